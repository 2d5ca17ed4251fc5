//! A group at run time: takes tensors from onnxruntime, runs the group's code, and leaves tensors there.
//!
//! Where onnxruntime has a stream for the device, the kernels go into that, and when all outputs stay on the device nobody waits
//! for them here.

use crate::abi::*;
use crate::api::{Api, behind, get, none};
use crate::devices::Devices;
use crate::error::Error;
use crate::groups::SMALL;
use crate::read::tensor;
use crate::streams::Stream;
use barewave::runtime::{AnyShape, Device, Given, Ready, Session};
use barewave::tensor::packed;
use barewave::tensor::{AsTensor, DType, HostTensor, TensorView, TensorViewMut};
use ort_sys::*;
use std::ffi::c_void;
use std::ptr::null;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// How a group is run.
pub enum Running {
    /// Compiled for whatever shapes come.
    Any(Box<AnyShape>),
    /// Compiled for the shapes that it has.
    Plan(Box<Session>),
}

impl Running {
    /// The same group, with a stream and memory of its own.
    fn fork(&self) -> Result<Running, Error> {
        Ok(match self {
            Running::Any(any) => Running::Any(Box::new(any.fork()?)),
            Running::Plan(session) => Running::Plan(Box::new(session.fork()?)),
        })
    }
}

/// Runs of one group that may be under way at once; further ones wait. Each has an arena and buffers of its own.
const MOST_AT_ONCE: usize = 8;

/// One of what runs a group, and the stream that it last ran in, which has to be there until it runs in another.
struct Runner {
    running: Running,
    stream: Option<Arc<Stream>>,
}

/// What runs a group: as many as have been under way at once.
struct Pool {
    state: Mutex<PoolState>,
    freed: Condvar,
}

struct PoolState {
    idle: Vec<Runner>,
    /// Never run: it has no buffers.
    origin: Running,
    made: usize,
}

/// One of a pool, given back when it is dropped.
struct Borrowed<'p> {
    pool: &'p Pool,
    runner: Option<Runner>,
}

impl Pool {
    fn new(origin: Running) -> Pool {
        let state = PoolState { idle: Vec::new(), origin, made: 0 };
        Pool { state: Mutex::new(state), freed: Condvar::new() }
    }

    /// One that nobody uses: the one used last, a new one, or the first that is given back.
    fn take(&self) -> Result<Borrowed<'_>, Error> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(runner) = state.idle.pop() {
                return Ok(Borrowed { pool: self, runner: Some(runner) });
            }
            if state.made < MOST_AT_ONCE {
                let runner = Some(Runner { running: state.origin.fork()?, stream: None });
                state.made += 1;
                return Ok(Borrowed { pool: self, runner });
            }
            state = self.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        if let Some(runner) = self.runner.take() {
            self.pool.state.lock().unwrap_or_else(PoisonError::into_inner).idle.push(runner);
            self.pool.freed.notify_one();
        }
    }
}

/// A group. onnxruntime sees its first field.
#[repr(C)]
pub struct Fused {
    abi: OrtNodeComputeInfo,
    api: Api,
    pool: Pool,
    order: Order,
    device: Arc<dyn Device>,
    devices: Arc<Devices>,
    /// Values of small inputs decide shapes: they are read back from the device.
    reads_values: bool,
}

/// Which of the fused node's inputs and outputs are those of the code, in its order.
pub struct Order {
    /// Inputs.
    pub inputs: Vec<usize>,
    /// Outputs.
    pub outputs: Vec<usize>,
}

/// An input of a run: where it lies, or a copy (with a byte for each element of types that onnxruntime packs).
enum Input<'a> {
    Host(DType, Vec<usize>, &'a [u8]),
    Device(DType, Vec<usize>, u64),
    Copy(HostTensor),
}

impl Input<'_> {
    fn given(&self) -> Result<Given<'_>, Error> {
        match self {
            Input::Host(dtype, shape, bytes) => Ok(Given::Host(TensorView::new(*dtype, shape, bytes)?)),
            Input::Device(dtype, shape, address) => Ok(Given::Device { dtype: *dtype, shape, address: *address }),
            Input::Copy(t) => Ok(Given::Host(t.view())),
        }
    }
}

impl Fused {
    /// A group that is compiled, on a device.
    pub fn new(
        api: Api,
        running: Running,
        order: Order,
        device: Arc<dyn Device>,
        devices: Arc<Devices>,
        reads_values: bool,
    ) -> Fused {
        let abi = OrtNodeComputeInfo {
            version: KNOWN_VERSION,
            CreateState: Some(create_state),
            Compute: Some(compute),
            ReleaseState: Some(release_state),
            tail: [0; 16],
        };
        Fused { abi, api, pool: Pool::new(running), order, device, devices, reads_values }
    }

    fn input<'a>(
        &self,
        context: *const OrtKernelContext,
        i: usize,
        stream: &Option<Arc<Stream>>,
    ) -> Result<Input<'a>, Error> {
        let value = get!(self.api, KernelContext_GetInput(context, i), null())?;
        let what = || format!("input {i} of a group");
        if value.is_null() {
            return Err(Error::Type { what: what() });
        }
        let (dtype, shape) = self.api.tensor_info(value)?;
        let dtype = dtype.ok_or_else(|| Error::Type { what: what() })?;
        if self.api.is_on_device(value) {
            let address = get!(self.api, GetTensorData(value), null())? as u64;
            let size = get!(self.api, GetTensorSizeInBytes(value), 0)?;
            let small = self.reads_values && shape.iter().product::<usize>() <= SMALL;
            if dtype.bits() >= 8 && size > 0 && !small && self.is_here(address, size) {
                return Ok(Input::Device(dtype, shape, address));
            }
            settled(stream)?;
            return Ok(Input::Copy(tensor(dtype, &shape, self.fetch(address, size)?.into(), &what())?));
        }
        // SAFETY: inputs are there as long as the run.
        let bytes: &'a [u8] = unsafe { self.api.tensor_bytes(value)? };
        if dtype.bits() < 8 {
            return Ok(Input::Copy(tensor(dtype, &shape, bytes::Bytes::copy_from_slice(bytes), &what())?));
        }
        Ok(Input::Host(dtype, shape, bytes))
    }

    /// True for memory of the device that this group runs on.
    fn is_here(&self, address: u64, size: usize) -> bool {
        let device = self.devices.allocations.device_of(address, size as u64);
        device.is_ok_and(|d| Arc::ptr_eq(&d, &self.device))
    }

    /// The device of some memory, where nothing is under way if it is another one. The stream is waited for where it is used.
    fn device_at(&self, address: u64, size: usize) -> Result<Arc<dyn Device>, Error> {
        let device = self.devices.allocations.device_of(address, size as u64)?;
        if !Arc::ptr_eq(&device, &self.device) {
            self.devices.streams.wait(&device)?;
        }
        Ok(device)
    }

    /// Bytes of a device.
    fn fetch(&self, address: u64, size: usize) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; size];
        if size > 0 {
            self.device_at(address, size)?.read(address, &mut bytes)?;
        }
        Ok(bytes)
    }

    /// Memory for output `i` of the code.
    fn output<'a>(&self, context: *mut OrtKernelContext, i: usize, shape: &[usize]) -> Result<Output<'a>, Error> {
        let i = self.order.outputs.get(i).copied().unwrap_or(i);
        let dims: Vec<i64> = shape.iter().map(|d| *d as i64).collect();
        let value = get!(self.api, KernelContext_GetOutput(context, i, dims.as_ptr(), dims.len()), none())?;
        let size = get!(self.api, GetTensorSizeInBytes(value), 0)?;
        let data = get!(self.api, GetTensorMutableData(value), none())?;
        if size == 0 || data.is_null() {
            return Ok(Output::Host(&mut []));
        }
        if self.api.is_on_device(value) {
            return Ok(Output::Device(data as u64, size));
        }
        // SAFETY: onnxruntime has just made it for us.
        Ok(Output::Host(unsafe { std::slice::from_raw_parts_mut(data.cast::<u8>(), size) }))
    }

    fn run(&self, context: *mut OrtKernelContext) -> Result<(), Error> {
        let mut stream = self.api.stream_of(context, &self.devices.streams)?;
        if let Some(other) = stream.take_if(|s| !s.is_on(&self.device)) {
            other.wait()?;
        }
        let input = |i: &usize| self.input(context, *i, &stream);
        let inputs = self.order.inputs.iter().map(input).collect::<Result<Vec<_>, _>>()?;
        let given = inputs.iter().map(Input::given).collect::<Result<Vec<_>, _>>()?;
        let mut borrowed = self.pool.take()?;
        let Some(Runner { running, stream: last }) = &mut borrowed.runner else {
            unreachable!("taken when it is dropped")
        };
        let session = match running {
            Running::Plan(session) => session,
            Running::Any(any) => match any.ready(&given)? {
                Ready::Whole(session) => session,
                Ready::Stages(stages) => {
                    settled(&stream)?;
                    let (outputs, _) = stages.run(&self.all_on_host(&given)?)?;
                    return outputs.iter().enumerate().try_for_each(|(i, t)| self.give(context, i, t));
                }
            },
        };
        session.use_stream(stream.as_ref().map(|s| s.id()))?;
        last.clone_from(&stream);
        let (host, plan) = session.place(&given)?;
        let ports = plan.outputs.clone();
        let byte_each = ports.iter().any(|p| p.element_type().is_some_and(|t| t.bits() < 8));
        if byte_each {
            settled(&stream)?;
            (0..ports.len()).try_for_each(|i| session.bind_output(i, None))?;
            let (outputs, _) = session.run(&host)?;
            return outputs.iter().enumerate().try_for_each(|(i, t)| self.give(context, i, t));
        }
        let mut wanted = Vec::with_capacity(ports.len());
        for (i, port) in ports.iter().enumerate() {
            let mut to = self.output(context, i, &port.shape)?;
            if let Output::Device(address, size) = to
                && !self.is_here(address, size)
            {
                to = Output::Elsewhere(address, vec![0; size]);
            }
            let bound = if let Output::Device(address, _) = to { Some(address) } else { None };
            session.bind_output(i, bound)?;
            wanted.push(to);
        }
        if let Some(stream) = &stream
            && wanted.iter().all(|to| matches!(to, Output::Device(..)))
        {
            session.start(&host)?;
            stream.ran(session.shared_plan());
            return Ok(());
        }
        let mut outputs = Vec::with_capacity(ports.len());
        for (port, to) in ports.iter().zip(&mut wanted) {
            let dtype = port.element_type().ok_or_else(|| Error::Type { what: format!("output {}", port.name) })?;
            let bytes: &mut [u8] = match to {
                Output::Host(bytes) => bytes,
                Output::Elsewhere(_, bytes) => bytes,
                Output::Device(..) => continue,
            };
            outputs.push(TensorViewMut::new(dtype, &port.shape, bytes)?);
        }
        settled(&stream)?;
        session.run_into(&host, &mut outputs)?;
        for to in &wanted {
            if let Output::Elsewhere(address, bytes) = to {
                self.device_at(*address, bytes.len())?.write(*address, bytes)?;
            }
        }
        Ok(())
    }

    /// Copies of all inputs in host memory.
    fn all_on_host(&self, given: &[Given]) -> Result<Vec<HostTensor>, Error> {
        let copy = |g: &Given| match g {
            Given::Host(t) => Ok(HostTensor::new(t.dtype(), t.shape(), t.bytes().to_vec())?),
            Given::Device { dtype, shape, address } => {
                let size = shape.iter().product::<usize>() * dtype.size();
                Ok(HostTensor::new(*dtype, shape, self.fetch(*address, size)?)?)
            }
        };
        given.iter().map(copy).collect()
    }

    /// Copies a tensor to an output.
    fn give(&self, context: *mut OrtKernelContext, i: usize, t: &HostTensor) -> Result<(), Error> {
        let packed = (t.dtype().bits() < 8).then(|| packed(t.bytes(), t.dtype()));
        let bytes = packed.as_ref().unwrap_or_else(|| t.bytes());
        match self.output(context, i, t.shape())? {
            Output::Host(out) if out.len() == bytes.len() => out.copy_from_slice(bytes),
            Output::Device(address, size) if size == bytes.len() => {
                self.device_at(address, size)?.write(address, bytes)?;
            }
            _ => return Err(Error::Type { what: format!("output {i} of a group") }),
        }
        Ok(())
    }
}

/// Waits for what is in the stream, if there is one.
fn settled(stream: &Option<Arc<Stream>>) -> Result<(), Error> {
    stream.as_ref().map_or(Ok(()), |s| s.wait())
}

/// Memory for an output.
enum Output<'a> {
    Host(&'a mut [u8]),
    /// On the device: address and size.
    Device(u64, usize),
    /// On another device: address, and what goes there after the run.
    Elsewhere(u64, Vec<u8>),
}

unsafe extern "system" fn create_state(
    info: *mut OrtNodeComputeInfo,
    _: *mut OrtNodeComputeContext,
    state: *mut *mut c_void,
) -> OrtStatusPtr {
    // All state is behind the structure itself.
    // SAFETY: a place for one pointer.
    unsafe { *state = info.cast() };
    OrtStatusPtr(none())
}

unsafe extern "system" fn compute(
    info: *mut OrtNodeComputeInfo,
    _: *mut c_void,
    context: *mut OrtKernelContext,
) -> OrtStatusPtr {
    // SAFETY: made by `Fused::new`, and given back after the last run.
    let fused: &Fused = unsafe { behind(info) };
    fused.api.guard(|| fused.run(context))
}

unsafe extern "system" fn release_state(_: *mut OrtNodeComputeInfo, _: *mut c_void) {}

#[cfg(test)]
mod tests {
    use super::*;
    use barewave::runtime::EmulatedDevice;
    use barewave::{Compiler, Model, Shapes};
    use barewave_isa::Target;
    use std::sync::mpsc::{RecvTimeoutError, channel};
    use std::time::Duration;

    #[test]
    fn runs_are_under_way_at_once_up_to_a_number() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/vector_add/vector_add.onnx");
        let model = Model::load(path.as_ref()).unwrap();
        let compiler = Compiler::new(Target::GFX1100, barewave::Options::default());
        let compiled = compiler.compile(&model, &Shapes::default()).unwrap();
        let device: Arc<dyn Device> = Arc::new(EmulatedDevice::new(Target::GFX1100, false).unwrap());
        let pool = Pool::new(Running::Plan(Box::new(Session::new(device, &compiled).unwrap())));
        let mut taken: Vec<Borrowed> = (0..MOST_AT_ONCE).map(|_| pool.take().unwrap()).collect();
        std::thread::scope(|s| {
            let ((tell, told), pool) = (channel(), &pool);
            s.spawn(move || {
                let one = pool.take();
                tell.send(one.is_ok()).unwrap();
            });
            assert_eq!(told.recv_timeout(Duration::from_millis(100)), Err(RecvTimeoutError::Timeout));
            taken.pop();
            assert_eq!(told.recv_timeout(Duration::from_secs(30)), Ok(true));
        });
        drop(taken);
        assert_eq!(pool.state.lock().unwrap().idle.len(), MOST_AT_ONCE);
    }
}
