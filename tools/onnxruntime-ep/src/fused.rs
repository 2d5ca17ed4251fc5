//! A group at run time: takes tensors from onnxruntime, runs the group's code, and leaves tensors there.

use crate::abi::*;
use crate::api::{Api, behind, get, none};
use crate::error::Error;
use crate::read::tensor;
use barewave::runtime::{AnyShape, Ready, Session};
use barewave::tensor::packed;
use barewave::tensor::{AsTensor, DType, HostTensor, TensorView, TensorViewMut};
use ort_sys::*;
use std::ffi::c_void;
use std::ptr::null;
use std::sync::Mutex;

/// How a group is run.
pub enum Running {
    /// Compiled for whatever shapes come.
    Any(Box<AnyShape>),
    /// Compiled for the shapes that it has.
    Plan(Box<Session>),
}

/// A group. onnxruntime sees its first field.
#[repr(C)]
pub struct Fused {
    abi: OrtNodeComputeInfo,
    api: Api,
    running: Mutex<Running>,
    order: Order,
}

/// Which of the fused node's inputs and outputs are those of the code, in its order.
pub struct Order {
    /// Inputs.
    pub inputs: Vec<usize>,
    /// Outputs.
    pub outputs: Vec<usize>,
}

/// An input of a run: where it lies, or a copy with a byte for each element of types that onnxruntime packs.
enum Input<'a> {
    Bytes(DType, Vec<usize>, &'a [u8]),
    Unpacked(HostTensor),
}

impl Input<'_> {
    fn view(&self) -> Result<TensorView<'_>, Error> {
        match self {
            Input::Bytes(dtype, shape, bytes) => Ok(TensorView::new(*dtype, shape, bytes)?),
            Input::Unpacked(t) => Ok(t.view()),
        }
    }
}

impl Fused {
    /// A group that is compiled.
    pub fn new(api: Api, running: Running, order: Order) -> Fused {
        let abi = OrtNodeComputeInfo {
            version: KNOWN_VERSION,
            CreateState: Some(create_state),
            Compute: Some(compute),
            ReleaseState: Some(release_state),
            tail: [0; 16],
        };
        Fused { abi, api, running: Mutex::new(running), order }
    }

    fn input<'a>(&self, context: *const OrtKernelContext, i: usize) -> Result<Input<'a>, Error> {
        let value = get!(self.api, KernelContext_GetInput(context, i), null())?;
        let what = || format!("input {i} of a group");
        if value.is_null() {
            return Err(Error::Type { what: what() });
        }
        let (dtype, shape) = self.api.tensor_info(value)?;
        let dtype = dtype.ok_or_else(|| Error::Type { what: what() })?;
        // SAFETY: inputs are there as long as the run.
        let bytes: &'a [u8] = unsafe { self.api.tensor_bytes(value)? };
        if dtype.bits() < 8 {
            return Ok(Input::Unpacked(tensor(dtype, &shape, bytes::Bytes::copy_from_slice(bytes), &what())?));
        }
        Ok(Input::Bytes(dtype, shape, bytes))
    }

    /// Memory for output `i` of the code.
    fn output<'a>(&self, context: *mut OrtKernelContext, i: usize, shape: &[usize]) -> Result<&'a mut [u8], Error> {
        let i = self.order.outputs.get(i).copied().unwrap_or(i);
        let dims: Vec<i64> = shape.iter().map(|d| *d as i64).collect();
        let value = get!(self.api, KernelContext_GetOutput(context, i, dims.as_ptr(), dims.len()), none())?;
        let size = get!(self.api, GetTensorSizeInBytes(value), 0)?;
        let data = get!(self.api, GetTensorMutableData(value), none())?;
        if size == 0 || data.is_null() {
            return Ok(&mut []);
        }
        // SAFETY: onnxruntime has just made it for us.
        Ok(unsafe { std::slice::from_raw_parts_mut(data.cast::<u8>(), size) })
    }

    fn run(&self, context: *mut OrtKernelContext) -> Result<(), Error> {
        let inputs = self.order.inputs.iter().map(|i| self.input(context, *i)).collect::<Result<Vec<_>, _>>()?;
        let views = inputs.iter().map(Input::view).collect::<Result<Vec<_>, _>>()?;
        let mut running = self.running.lock().unwrap_or_else(|e| e.into_inner());
        let session = match &mut *running {
            Running::Plan(session) => session,
            Running::Any(any) => match any.ready(&views)? {
                Ready::Whole(session) => session,
                Ready::Stages(stages) => {
                    let (outputs, _) = stages.run(&views)?;
                    return outputs.iter().enumerate().try_for_each(|(i, t)| self.give(context, i, t));
                }
            },
        };
        let ports = session.plan_for(&views)?.outputs.clone();
        let byte_each = ports.iter().any(|p| p.element_type().is_some_and(|t| t.bits() < 8));
        if byte_each {
            let (outputs, _) = session.run(&views)?;
            return outputs.iter().enumerate().try_for_each(|(i, t)| self.give(context, i, t));
        }
        let mut outputs = Vec::with_capacity(ports.len());
        for (i, port) in ports.iter().enumerate() {
            let dtype = port.element_type().ok_or_else(|| Error::Type { what: format!("output {}", port.name) })?;
            outputs.push(TensorViewMut::new(dtype, &port.shape, self.output(context, i, &port.shape)?)?);
        }
        session.run_into(&views, &mut outputs)?;
        Ok(())
    }

    /// Copies a tensor to an output.
    fn give(&self, context: *mut OrtKernelContext, i: usize, t: &HostTensor) -> Result<(), Error> {
        let out = self.output(context, i, t.shape())?;
        if t.dtype().bits() < 8 {
            let bytes = packed(t.bytes(), t.dtype());
            let n = out.len().min(bytes.len());
            out[..n].copy_from_slice(&bytes[..n]);
        } else {
            let given = TensorViewMut::new(t.dtype(), t.shape(), out);
            t.copy_to(given?.bytes_mut());
        }
        Ok(())
    }
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
