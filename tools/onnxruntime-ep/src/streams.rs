//! Streams: what onnxruntime puts into one of them happens in that order, without its waiting for the device.
//!
//! For each run onnxruntime has a stream for the nodes on a device. Groups put their kernels into it and return, copies to
//! the device go through host memory of the stream's own, and where other work has to wait there are notifications, which are
//! events. The host waits at the end of a run (unless the run's options say `disable_synchronize_execution_providers`), for
//! what it copies from the device, and before memory is given back.
//!
//! Of what these functions return onnxruntime only logs most errors. So a fault of a kernel stays with its stream until
//! somebody hears it who can fail: the end of the run, the next run in the stream, or a copy out of it.

use crate::abi::*;
use crate::api::{Api, behind, get, none, release};
use crate::devices::Devices;
use crate::error::Error;
use barewave::runtime::plan::Plan;
use barewave::runtime::{Device, DeviceError, EventId, HostBuffer, StreamId};
use ort_sys::*;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Host buffers that a stream keeps for further copies.
const MOST_STAGED: usize = 8;

/// A stream of a device.
pub struct Stream {
    device: Arc<dyn Device>,
    id: StreamId,
    /// What went wrong in it that nobody was told.
    failed: Mutex<Option<DeviceError>>,
    /// What was put into it since it was last waited for.
    launched: Mutex<Vec<Arc<Plan>>>,
    staged: Mutex<Vec<HostBuffer>>,
}

fn locked<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stream {
    fn new(device: Arc<dyn Device>) -> Result<Stream, Error> {
        let id = device.create_stream()?;
        Ok(Stream { device, id, failed: Mutex::default(), launched: Mutex::default(), staged: Mutex::default() })
    }

    /// Its number on its device.
    pub fn id(&self) -> StreamId {
        self.id
    }

    /// Whether it is one of this device.
    pub fn is_on(&self, device: &Arc<dyn Device>) -> bool {
        Arc::ptr_eq(&self.device, device)
    }

    /// Remembers a run that was put into it, to name the operator of a fault.
    pub fn ran(&self, plan: Arc<Plan>) {
        // Only emulated devices say which launch a fault came from.
        if self.device.info().driver.is_none() {
            locked(&self.launched).push(plan);
        }
    }

    /// Waits until everything in it is done; what went wrong is kept for [`Stream::wait`].
    pub fn settle(&self) {
        let done = self.device.synchronize(self.id);
        let launched = std::mem::take(&mut *locked(&self.launched));
        if let Err(e) = done {
            locked(&self.failed).get_or_insert(with_operator(e, &launched));
        }
    }

    /// Waits until everything in it is done, and says what went wrong since somebody was last told.
    pub fn wait(&self) -> Result<(), Error> {
        self.settle();
        locked(&self.failed).take().map_or(Ok(()), |e| Err(e.into()))
    }

    /// A buffer for copies of `size` bytes that are under way for a while.
    fn stage(&self, size: usize) -> Result<HostBuffer, Error> {
        let mut staged = locked(&self.staged);
        let idle = staged.iter_mut().position(|b| b.set_len(size) && b.bytes().is_ok());
        if let Some(i) = idle {
            return Ok(staged.remove(i));
        }
        Ok(self.device.host_buffer(size)?)
    }

    fn unstage(&self, buffer: HostBuffer) {
        let mut staged = locked(&self.staged);
        staged.truncate(MOST_STAGED - 1);
        staged.insert(0, buffer);
    }

    /// Puts a copy of bytes of the host's, which may change as soon as this returns, to device memory into the stream.
    pub fn write(&self, address: u64, data: &[u8]) -> Result<(), Error> {
        let mut buffer = self.stage(data.len())?;
        buffer.bytes()?.copy_from_slice(data);
        self.device.copy_in(self.id, address, &buffer)?;
        self.unstage(buffer);
        Ok(())
    }

    /// Puts a copy between places of the device into the stream.
    pub fn copy(&self, from: u64, to: u64, size: usize) -> Result<(), Error> {
        let buffer = self.stage(size)?;
        self.device.copy_out(self.id, &buffer, from)?;
        self.device.copy_in(self.id, to, &buffer)?;
        self.unstage(buffer);
        Ok(())
    }

    /// What other libraries know it by: the driver's own handle, or, where there is none, a number of no other stream.
    fn handle(&self) -> *mut c_void {
        self.device.raw_stream(self.id).unwrap_or_else(|| std::ptr::from_ref(self).cast_mut().cast())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // A device that fails here has failed before, where somebody was told.
        let _ = self.device.destroy_stream(self.id);
    }
}

/// The error, with the operator whose kernel it came from: launches count from the first of `launched`.
fn with_operator(e: DeviceError, launched: &[Arc<Plan>]) -> DeviceError {
    let DeviceError::Fault { mut fault, launch } = e else { return e };
    let found = launched.iter().flat_map(|p| &p.launches).nth(launch);
    fault.operator = found.filter(|l| l.kernel == fault.kernel).map(|l| l.step.clone());
    DeviceError::Fault { fault, launch }
}

/// The streams that onnxruntime has.
#[derive(Default)]
pub struct Streams(Mutex<Vec<Known>>);

struct Known {
    /// As onnxruntime's functions name it.
    handle: usize,
    /// What it was given.
    interface: usize,
    stream: Weak<Stream>,
}

impl Streams {
    fn find(&self, is: impl Fn(&Known) -> bool) -> Option<Arc<Stream>> {
        locked(&self.0).iter().find(|k| is(k))?.stream.upgrade()
    }

    fn of(&self, device: &Arc<dyn Device>) -> Vec<Arc<Stream>> {
        let all = locked(&self.0);
        all.iter().filter_map(|k| k.stream.upgrade()).filter(|s| s.is_on(device)).collect()
    }

    /// Waits for all streams of a device.
    pub fn settle(&self, device: &Arc<dyn Device>) {
        self.of(device).iter().for_each(|s| s.settle());
    }

    /// As [`Streams::settle`]; what went wrong in one of them is said.
    pub fn wait(&self, device: &Arc<dyn Device>) -> Result<(), Error> {
        self.of(device).iter().map(|s| s.wait()).fold(Ok(()), Result::and)
    }
}

impl Api {
    /// The stream that a group is to run in.
    pub fn stream_of(&self, context: *const OrtKernelContext, streams: &Streams) -> Result<Option<Arc<Stream>>, Error> {
        let handle = get!(self, KernelContext_GetGPUComputeStream(context), none())? as usize;
        Ok(if handle == 0 { None } else { streams.find(|k| k.handle == handle) })
    }

    /// The stream behind onnxruntime's, if it is one of ours.
    pub fn stream(&self, stream: *const OrtSyncStream, streams: &Streams) -> Option<Arc<Stream>> {
        if stream.is_null() {
            return None;
        }
        // SAFETY: a question about a stream that onnxruntime gave.
        let interface = unsafe { (self.ep.SyncStream_GetImpl)(stream) } as usize;
        streams.find(|k| k.interface == interface)
    }
}

/// A stream as onnxruntime has it. It sees the first field.
#[repr(C)]
pub struct SyncStream {
    abi: OrtSyncStreamImpl,
    api: Api,
    stream: Arc<Stream>,
    devices: Arc<Devices>,
}

impl SyncStream {
    /// A new stream of a device, for onnxruntime, which gives it back.
    pub fn create(api: Api, device: Arc<dyn Device>, devices: Arc<Devices>) -> Result<*mut OrtSyncStreamImpl, Error> {
        let abi = OrtSyncStreamImpl {
            version: KNOWN_VERSION,
            Release: Some(release_stream),
            GetHandle: Some(handle),
            CreateNotification: Some(create_notification),
            Flush: Some(flush),
            OnSessionRunEnd: Some(run_ended),
            tail: [0; 16],
        };
        let stream = Arc::new(Stream::new(device)?);
        let (number, weak) = (stream.handle() as usize, Arc::downgrade(&stream));
        let made = Box::into_raw(Box::new(SyncStream { abi, api, stream, devices: devices.clone() }));
        locked(&devices.streams.0).push(Known { handle: number, interface: made as usize, stream: weak });
        Ok(made.cast())
    }
}

unsafe extern "system" fn release_stream(this: *mut OrtSyncStreamImpl) {
    // SAFETY: made by `SyncStream::create`, given back once.
    unsafe {
        let devices = behind::<SyncStream>(this).devices.clone();
        locked(&devices.streams.0).retain(|k| k.interface != this as usize);
        release::<SyncStream>(this);
    }
}

unsafe extern "system" fn handle(this: *mut OrtSyncStreamImpl) -> *mut c_void {
    // SAFETY: as above.
    unsafe { behind::<SyncStream>(this) }.stream.handle()
}

unsafe extern "system" fn create_notification(
    this: *mut OrtSyncStreamImpl,
    out: *mut *mut OrtSyncNotificationImpl,
) -> OrtStatusPtr {
    // SAFETY: as above.
    let stream: &SyncStream = unsafe { behind(this) };
    stream.api.guard(|| {
        let made = Notification::new(stream)?;
        // SAFETY: a place for the pointer, which is given back through its own `Release`.
        unsafe { *out = Box::into_raw(Box::new(made)).cast() };
        Ok(())
    })
}

unsafe extern "system" fn flush(this: *mut OrtSyncStreamImpl) -> OrtStatusPtr {
    // SAFETY: as above.
    let stream: &SyncStream = unsafe { behind(this) };
    stream.api.guard(|| {
        stream.stream.settle();
        Ok(())
    })
}

unsafe extern "system" fn run_ended(this: *mut OrtSyncStreamImpl) -> OrtStatusPtr {
    // SAFETY: as above.
    let stream: &SyncStream = unsafe { behind(this) };
    stream.api.guard(|| stream.stream.wait())
}

/// A point in a stream that others wait for. onnxruntime sees its first field.
#[repr(C)]
struct Notification {
    abi: OrtSyncNotificationImpl,
    api: Api,
    stream: Arc<Stream>,
    devices: Arc<Devices>,
    event: EventId,
}

impl Notification {
    fn new(stream: &SyncStream) -> Result<Notification, Error> {
        let abi = OrtSyncNotificationImpl {
            version: KNOWN_VERSION,
            Release: Some(release_notification),
            Activate: Some(activate),
            WaitOnDevice: Some(wait_on_device),
            WaitOnHost: Some(wait_on_host),
            tail: [0; 16],
        };
        let event = stream.stream.device.create_event()?;
        let SyncStream { api, devices, .. } = stream;
        Ok(Notification { abi, api: *api, stream: stream.stream.clone(), devices: devices.clone(), event })
    }

    /// Lets what follows in `consumer` wait for the point.
    fn wait_in(&self, consumer: *const OrtSyncStream) -> Result<(), Error> {
        match self.api.stream(consumer, &self.devices.streams) {
            Some(other) if other.is_on(&self.stream.device) => Ok(self.stream.device.wait(other.id, self.event)?),
            // Another device knows nothing of this one's events.
            _ => {
                self.stream.settle();
                Ok(())
            }
        }
    }
}

impl Drop for Notification {
    fn drop(&mut self) {
        // As above.
        let _ = self.stream.device.destroy_event(self.event);
    }
}

unsafe extern "system" fn release_notification(this: *mut OrtSyncNotificationImpl) {
    // SAFETY: made by `create_notification`, given back once.
    unsafe { release::<Notification>(this) };
}

unsafe extern "system" fn activate(this: *mut OrtSyncNotificationImpl) -> OrtStatusPtr {
    // SAFETY: as above.
    let n: &Notification = unsafe { behind(this) };
    n.api.guard(|| Ok(n.stream.device.record(n.stream.id, n.event)?))
}

unsafe extern "system" fn wait_on_device(
    this: *mut OrtSyncNotificationImpl,
    consumer: *mut OrtSyncStream,
) -> OrtStatusPtr {
    // SAFETY: as above.
    let n: &Notification = unsafe { behind(this) };
    n.api.guard(|| n.wait_in(consumer))
}

unsafe extern "system" fn wait_on_host(this: *mut OrtSyncNotificationImpl) -> OrtStatusPtr {
    // SAFETY: as above.
    let n: &Notification = unsafe { behind(this) };
    // For all of the stream: faults of its kernels come to light with it.
    n.api.guard(|| {
        n.stream.settle();
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use barewave::runtime::{EmulatedDevice, Session};
    use barewave::{Compiler, HostTensor, Model, Shapes};
    use barewave_isa::Target;

    #[test]
    fn faults_stay_until_somebody_is_told() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/vector_add/vector_add.onnx");
        let compiler = Compiler::new(Target::GFX1100, barewave::Options::default());
        let compiled = compiler.compile(&Model::load(path.as_ref()).unwrap(), &Shapes::default()).unwrap();
        let device: Arc<dyn Device> = Arc::new(EmulatedDevice::new(Target::GFX1100, false).unwrap());
        let stream = Stream::new(device.clone()).unwrap();
        let mut session = Session::new(device.clone(), &compiled).unwrap();
        session.use_stream(Some(stream.id())).unwrap();
        // No memory there.
        session.bind_input(0, Some(256)).unwrap();
        session.bind_input(1, Some(device.alloc(1 << 20).unwrap())).unwrap();
        session.bind_output(0, Some(device.alloc(1 << 20).unwrap())).unwrap();
        session.start::<HostTensor>(&[]).unwrap();
        stream.ran(session.shared_plan());
        stream.settle();
        stream.settle();
        let message = stream.wait().unwrap_err().to_string();
        assert!(message.contains("operator"), "{message}");
        stream.wait().unwrap();
    }

    #[test]
    fn copies_follow_each_other() {
        let device: Arc<dyn Device> = Arc::new(EmulatedDevice::new(Target::GFX1100, false).unwrap());
        let stream = Stream::new(device.clone()).unwrap();
        let [a, b] = [0; 2].map(|_| device.alloc(4096).unwrap());
        for turn in 0..40u8 {
            let mut data = vec![turn; 1000 + usize::from(turn)];
            stream.write(a, &data).unwrap();
            stream.copy(a, b, data.len()).unwrap();
            data.fill(0);
        }
        stream.wait().unwrap();
        let mut data = vec![0; 1039];
        device.read(b, &mut data).unwrap();
        assert!(data.iter().all(|d| *d == 39));
        assert!(locked(&stream.staged).len() <= MOST_STAGED);
    }
}
