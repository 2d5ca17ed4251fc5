//! Real devices, through the HIP module API.
//!
//! The driver library is found and loaded at run time ([`Library`]); the code object is handed to `hipModuleLoadData`,
//! kernels are launched with `hipModuleLaunchKernel` from a packed argument buffer, copies go through pinned host memory
//! and `hipMemcpyAsync`. HIP's current device belongs to a thread, so every method sets it first. Handles are kept in
//! tables: what the caller holds are numbers, and a wrong one is an error, not a wild pointer.

mod error;
mod library;

pub use barewave_emu::hip::{code, describe, error_name, error_text, errors, types};
pub use error::HipError;
pub use library::Library;

use super::device::{
    Device, DeviceError, DeviceInfo, EventId, HostBuffer, KernelId, LaunchShape, LaunchStats, ModuleId, StreamId,
    check_code,
};
use crate::codeobj::{ElfFile, TargetId};
use barewave_isa::Target;
use std::ffi::{CString, c_int, c_void};
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use types::*;

/// A handle of the driver.
struct Handle<T>(T);
// SAFETY: HIP's handles may be used from any thread.
unsafe impl<T> Send for Handle<T> {}

struct Stream {
    handle: Handle<hipStream_t>,
    /// Buffers of copies that may still be under way, with their numbers.
    in_flight: Vec<(u64, HostBuffer)>,
    /// Copies so far.
    copies: u64,
    /// The caller's, who destroys it.
    imported: bool,
}

type Tables = super::tables::Tables<Handle<hipModule_t>, (String, Handle<hipFunction_t>), Stream, Handle<hipEvent_t>>;

/// A GPU that the HIP driver found.
pub struct HipDevice {
    library: Arc<Library>,
    ordinal: c_int,
    info: DeviceInfo,
    tables: Mutex<Tables>,
}

/// Calls a function of the driver and turns its result into an error with the function's name.
macro_rules! call {
    ($self:ident, $name:ident($($arg:expr),*)) => {
        call!($self, $name($($arg),*), "")
    };
    ($self:ident, $name:ident($($arg:expr),*), $context:expr) => {{
        // SAFETY: handles come from the driver and are given back once; pointers outlive the call.
        let result = unsafe { ($self.library.f.$name)($($arg),*) };
        $self.library.check(stringify!($name), result, $context)
    }};
}

impl HipDevice {
    /// Opens device `ordinal` of a driver.
    pub fn open(library: Arc<Library>, ordinal: u32) -> Result<HipDevice, DeviceError> {
        let p = library.properties(ordinal)?;
        let unknown = || HipError::UnknownArch { ordinal, arch: p.arch.clone() };
        // Features that later drivers may report say nothing about our code.
        let known = |part: &&str| ["gfx", "xnack", "sramecc"].iter().any(|w| part.starts_with(w));
        let arch: Vec<&str> = p.arch.split(':').filter(known).collect();
        let id = TargetId::parse(&arch.join(":")).map_err(|_| unknown())?;
        let target =
            Target::all().find(|t| t.info().name == id.processor).ok_or_else(unknown)?.of_marketing_name(&p.name);
        let info = DeviceInfo {
            name: p.name,
            id,
            target,
            compute_units: Some(p.compute_units),
            wave_size: p.wave_size,
            memory_bytes: p.memory_bytes,
            lds_bytes: p.lds_bytes,
            driver: Some((library.version()?, library.path().to_path_buf())),
        };
        let ordinal = c_int::try_from(ordinal).map_err(|_| DeviceError::Handle("device"))?;
        Ok(HipDevice { library, ordinal, info, tables: Mutex::default() })
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Makes this device the thread's current one.
    fn current(&self) -> Result<(), HipError> {
        call!(self, hipSetDevice(self.ordinal))
    }

    fn stream(&self, id: StreamId) -> Result<hipStream_t, DeviceError> {
        self.tables().streams.get(&id.0).map(|s| s.handle.0).ok_or(DeviceError::Handle("stream"))
    }
    fn event(&self, id: EventId) -> Result<hipEvent_t, DeviceError> {
        self.tables().events.get(&id.0).map(|e| e.0).ok_or(DeviceError::Handle("event"))
    }
    fn add_stream(&self, handle: hipStream_t, imported: bool) -> StreamId {
        let mut t = self.tables();
        let id = t.id();
        t.streams.insert(id, Stream { handle: Handle(handle), in_flight: Vec::new(), copies: 0, imported });
        StreamId(id)
    }
    fn hold(&self, stream: StreamId, buffer: &HostBuffer) {
        if let Some(s) = self.tables().streams.get_mut(&stream.0) {
            s.in_flight.push((s.copies, buffer.clone()));
            s.copies += 1;
        }
    }
}

impl Drop for HipDevice {
    fn drop(&mut self) {
        // What the users of the device have not given back. A driver that fails now has nobody to tell.
        let tables = std::mem::take(&mut *self.tables());
        let _ = self.current();
        for s in tables.streams.into_values() {
            let _ = call!(self, hipStreamSynchronize(s.handle.0));
            if !s.imported {
                let _ = call!(self, hipStreamDestroy(s.handle.0));
            }
        }
        for e in tables.events.into_values() {
            let _ = call!(self, hipEventDestroy(e.0));
        }
        for m in tables.modules.into_values() {
            let _ = call!(self, hipModuleUnload(m.0));
        }
    }
}

impl Device for HipDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }
    fn alloc(&self, bytes: u64) -> Result<u64, DeviceError> {
        self.current()?;
        let mut p = null_mut();
        let size = usize::try_from(bytes.max(1)).map_err(|_| DeviceError::Buffer(format!("{bytes} bytes")))?;
        call!(self, hipMalloc(&mut p, size), &format!("{bytes} bytes"))?;
        Ok(p as u64)
    }
    fn free(&self, address: u64) -> Result<(), DeviceError> {
        self.current()?;
        Ok(call!(self, hipFree(address as *mut c_void))?)
    }
    fn host_buffer(&self, bytes: usize) -> Result<HostBuffer, DeviceError> {
        self.current()?;
        let mut p = null_mut();
        call!(self, hipHostMalloc(&mut p, bytes.max(1), 0), &format!("{bytes} bytes"))?;
        let start = p.cast::<u8>();
        let library = self.library.clone();
        // SAFETY: the driver gave these bytes to us alone; the release gives them back once.
        unsafe {
            std::ptr::write_bytes(start, 0, bytes);
            Ok(HostBuffer::new(start, bytes, move |p, _| {
                (library.f.hipHostFree)(p.cast());
            }))
        }
    }
    fn write(&self, address: u64, data: &[u8]) -> Result<(), DeviceError> {
        if data.is_empty() {
            return Ok(());
        }
        self.current()?;
        Ok(call!(self, hipMemcpy(address as *mut c_void, data.as_ptr().cast(), data.len(), HOST_TO_DEVICE))?)
    }
    fn read(&self, address: u64, data: &mut [u8]) -> Result<(), DeviceError> {
        if data.is_empty() {
            return Ok(());
        }
        self.current()?;
        let to = data.as_mut_ptr().cast();
        Ok(call!(self, hipMemcpy(to, address as *const c_void, data.len(), DEVICE_TO_HOST))?)
    }

    fn load(&self, elf: &[u8]) -> Result<ModuleId, DeviceError> {
        let file = ElfFile::parse(elf).map_err(|e| DeviceError::Code(e.to_string()))?;
        check_code(&file, &self.info.id)?;
        self.current()?;
        let mut module = null_mut();
        call!(self, hipModuleLoadData(&mut module, elf.as_ptr().cast()), &format!("code for {}", file.target_id()))?;
        let mut t = self.tables();
        let id = t.id();
        t.modules.insert(id, Handle(module));
        Ok(ModuleId(id))
    }
    fn unload(&self, module: ModuleId) -> Result<(), DeviceError> {
        let handle = {
            let mut t = self.tables();
            t.kernels.retain(|_, (m, _)| *m != module);
            t.modules.remove(&module.0).ok_or(DeviceError::Handle("module"))?
        };
        self.current()?;
        Ok(call!(self, hipModuleUnload(handle.0))?)
    }
    fn kernel(&self, module: ModuleId, name: &str) -> Result<KernelId, DeviceError> {
        let handle = self.tables().modules.get(&module.0).map(|m| m.0).ok_or(DeviceError::Handle("module"))?;
        self.current()?;
        let text = CString::new(name).map_err(|_| DeviceError::Handle("kernel"))?;
        let mut function = null_mut();
        call!(self, hipModuleGetFunction(&mut function, handle, text.as_ptr()), name)?;
        let mut t = self.tables();
        let id = t.id();
        t.kernels.insert(id, (module, (name.to_string(), Handle(function))));
        Ok(KernelId(id))
    }

    fn create_stream(&self) -> Result<StreamId, DeviceError> {
        self.current()?;
        let mut stream = null_mut();
        call!(self, hipStreamCreateWithFlags(&mut stream, hipStreamNonBlocking))?;
        Ok(self.add_stream(stream, false))
    }
    unsafe fn import_stream(&self, raw: *mut c_void) -> Result<StreamId, DeviceError> {
        Ok(self.add_stream(raw.cast(), true))
    }
    fn raw_stream(&self, stream: StreamId) -> Option<*mut c_void> {
        Some(self.stream(stream).ok()?.cast())
    }
    fn destroy_stream(&self, stream: StreamId) -> Result<(), DeviceError> {
        let s = self.tables().streams.remove(&stream.0).ok_or(DeviceError::Handle("stream"))?;
        self.current()?;
        let done = call!(self, hipStreamSynchronize(s.handle.0));
        if !s.imported {
            call!(self, hipStreamDestroy(s.handle.0))?;
        }
        Ok(done?)
    }
    fn copy_in(&self, stream: StreamId, address: u64, from: &HostBuffer) -> Result<(), DeviceError> {
        let handle = self.stream(stream)?;
        if from.is_empty() {
            return Ok(());
        }
        self.current()?;
        self.hold(stream, from);
        let (to, start) = (address as *mut c_void, from.start().cast_const().cast());
        Ok(call!(self, hipMemcpyAsync(to, start, from.len(), HOST_TO_DEVICE, handle))?)
    }
    fn copy_out(&self, stream: StreamId, into: &HostBuffer, address: u64) -> Result<(), DeviceError> {
        let handle = self.stream(stream)?;
        if into.is_empty() {
            return Ok(());
        }
        self.current()?;
        self.hold(stream, into);
        let from = address as *const c_void;
        Ok(call!(self, hipMemcpyAsync(into.start().cast(), from, into.len(), DEVICE_TO_HOST, handle))?)
    }
    fn launch(
        &self,
        stream: StreamId,
        kernel: KernelId,
        shape: LaunchShape,
        kernarg: &[u8],
    ) -> Result<(), DeviceError> {
        let handle = self.stream(stream)?;
        let found = self.tables().kernels.get(&kernel.0).map(|(_, (name, function))| (name.clone(), function.0));
        let (name, function) = found.ok_or(DeviceError::Handle("kernel"))?;
        self.current()?;
        let mut size = kernarg.len();
        let mut extra = [
            HIP_LAUNCH_PARAM_BUFFER_POINTER as *mut c_void,
            kernarg.as_ptr().cast_mut().cast(),
            HIP_LAUNCH_PARAM_BUFFER_SIZE as *mut c_void,
            (&raw mut size).cast(),
            HIP_LAUNCH_PARAM_END as *mut c_void,
        ];
        let LaunchShape { grid: [gx, gy, gz], block: [bx, by, bz], dynamic_lds } = shape;
        let extra = extra.as_mut_ptr();
        Ok(call!(
            self,
            hipModuleLaunchKernel(function, gx, gy, gz, bx, by, bz, dynamic_lds, handle, null_mut(), extra),
            &format!("kernel {name}")
        )?)
    }
    fn synchronize(&self, stream: StreamId) -> Result<Vec<LaunchStats>, DeviceError> {
        let handle = self.stream(stream)?;
        self.current()?;
        // What another thread puts into the stream meanwhile is not waited for.
        let before = self.tables().streams.get(&stream.0).map_or(0, |s| s.copies);
        let done = call!(self, hipStreamSynchronize(handle));
        if let Some(s) = self.tables().streams.get_mut(&stream.0) {
            s.in_flight.retain(|(number, _)| *number >= before);
        }
        done?;
        Ok(Vec::new())
    }

    fn create_event(&self) -> Result<EventId, DeviceError> {
        self.current()?;
        let mut event = null_mut();
        call!(self, hipEventCreateWithFlags(&mut event, 0))?;
        let mut t = self.tables();
        let id = t.id();
        t.events.insert(id, Handle(event));
        Ok(EventId(id))
    }
    fn destroy_event(&self, event: EventId) -> Result<(), DeviceError> {
        let e = self.tables().events.remove(&event.0).ok_or(DeviceError::Handle("event"))?;
        self.current()?;
        Ok(call!(self, hipEventDestroy(e.0))?)
    }
    fn record(&self, stream: StreamId, event: EventId) -> Result<(), DeviceError> {
        let (handle, event) = (self.stream(stream)?, self.event(event)?);
        self.current()?;
        Ok(call!(self, hipEventRecord(event, handle))?)
    }
    fn wait(&self, stream: StreamId, event: EventId) -> Result<(), DeviceError> {
        let (handle, event) = (self.stream(stream)?, self.event(event)?);
        self.current()?;
        Ok(call!(self, hipStreamWaitEvent(handle, event, 0))?)
    }
    fn elapsed(&self, start: EventId, end: EventId) -> Result<Duration, DeviceError> {
        let (start, end) = (self.event(start)?, self.event(end)?);
        self.current()?;
        let mut ms = 0f32;
        call!(self, hipEventElapsedTime(&mut ms, start, end))?;
        Ok(Duration::from_secs_f64(f64::from(ms).max(0.0) / 1e3))
    }
}
