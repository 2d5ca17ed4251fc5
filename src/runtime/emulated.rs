//! The emulated device behind the [`Device`] trait: a queue with its own thread is a stream.

use super::device::{
    Device, DeviceError, DeviceInfo, EventId, HostBuffer, KernelId, LaunchShape, LaunchStats, ModuleId, StreamId,
    check_code,
};
use super::queue::{Event, Queue};
use crate::codeobj::TargetId;
use crate::emu::{self, EmuDevice, LaunchOptions};
use barewave_isa::Target;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// A stream and what its launches did since the last synchronisation.
struct Stream {
    queue: Queue<DeviceError>,
    stats: Arc<Mutex<Vec<LaunchStats>>>,
}

#[derive(Clone)]
struct Kernel {
    module: Arc<emu::Module>,
    name: Arc<str>,
}

type Tables = super::tables::Tables<Arc<emu::Module>, Kernel, Arc<Stream>, Event>;

/// How an emulated device runs kernels, and what they may use.
#[derive(Clone, Debug, Default)]
pub struct EmulatedSettings {
    /// Checks and limits of every launch.
    pub options: LaunchOptions,
    /// Bytes of device memory.
    pub memory: Option<u64>,
    /// Device addresses are the host's own, so that those of several devices differ.
    pub unified: bool,
    /// Counts launches as they end, for those who show progress.
    pub ended: Option<Arc<AtomicU64>>,
}

/// An emulated device.
pub struct EmulatedDevice {
    device: Arc<EmuDevice>,
    info: DeviceInfo,
    options: LaunchOptions,
    ended: Option<Arc<AtomicU64>>,
    tables: Mutex<Tables>,
}

impl EmulatedDevice {
    /// A device of `target`; with `strict` every launch is checked for undefined behaviour (slow).
    pub fn new(target: Target, strict: bool) -> Result<EmulatedDevice, DeviceError> {
        let options = LaunchOptions { strict, ..LaunchOptions::default() };
        EmulatedDevice::with_settings(target, EmulatedSettings { options, ..EmulatedSettings::default() })
    }

    /// A device with other limits than the default ones.
    pub fn with_settings(target: Target, settings: EmulatedSettings) -> Result<EmulatedDevice, DeviceError> {
        let memory = settings.memory.unwrap_or(emu::DEFAULT_MEMORY);
        let make = if settings.unified { EmuDevice::unified } else { EmuDevice::with_memory };
        let device = make(target, memory).map_err(|e| DeviceError::Emulated(e.to_string()))?;
        let options = settings.options;
        let t = target.info();
        let info = DeviceInfo {
            name: format!("emulated {}", target.title()),
            id: TargetId::of_device(t.name, t.elf_features),
            target,
            compute_units: None,
            wave_size: t.wave_size,
            memory_bytes: device.capacity(),
            lds_bytes: t.lds_bytes.into(),
            driver: None,
        };
        Ok(EmulatedDevice { device: Arc::new(device), info, options, ended: settings.ended, tables: Mutex::default() })
    }

    /// A device that ends a launch with an error when one workgroup executes more instructions than this: for code that
    /// is not trusted to end.
    pub fn with_limit(target: Target, max_instructions: u64) -> Result<EmulatedDevice, DeviceError> {
        let mut device = EmulatedDevice::new(target, false)?;
        device.options.max_instructions = max_instructions;
        Ok(device)
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(|e| e.into_inner())
    }
    fn stream(&self, id: StreamId) -> Result<Arc<Stream>, DeviceError> {
        self.tables().streams.get(&id.0).cloned().ok_or(DeviceError::Handle("stream"))
    }
    fn event(&self, id: EventId) -> Result<Event, DeviceError> {
        self.tables().events.get(&id.0).cloned().ok_or(DeviceError::Handle("event"))
    }
}

impl From<emu::EmuError> for DeviceError {
    fn from(e: emu::EmuError) -> DeviceError {
        match e {
            emu::EmuError::WrongTarget { file, device } => DeviceError::WrongTarget { code: file, device },
            emu::EmuError::CodeObject(e) => DeviceError::Code(e.to_string()),
            e => DeviceError::Emulated(e.to_string()),
        }
    }
}

/// A pointer that the thread of a queue may use.
struct Shared(*mut u8);
// SAFETY: the host buffer it points into travels with it.
unsafe impl Send for Shared {}

impl Shared {
    /// The bytes.
    ///
    /// # Safety
    /// They must be valid, and nobody else may use them meanwhile.
    unsafe fn bytes<'a>(&self, len: usize) -> &'a mut [u8] {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.0, len) }
    }
}

impl Device for EmulatedDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }
    fn alloc(&self, bytes: u64) -> Result<u64, DeviceError> {
        Ok(self.device.alloc(bytes)?)
    }
    fn free(&self, address: u64) -> Result<(), DeviceError> {
        Ok(self.device.free(address)?)
    }
    fn host_buffer(&self, bytes: usize) -> Result<HostBuffer, DeviceError> {
        // What does not fit into the device's memory is not staged for it.
        let fits = bytes as u64 <= self.info.memory_bytes;
        let buffer = fits.then(|| HostBuffer::ordinary(bytes)).flatten();
        Ok(buffer.ok_or(emu::EmuError::OutOfMemory(bytes as u64))?)
    }
    fn write(&self, address: u64, data: &[u8]) -> Result<(), DeviceError> {
        Ok(self.device.write(address, data)?)
    }
    fn assume_written(&self, address: u64, bytes: u64) {
        self.device.assume_written(address, bytes);
    }
    fn read(&self, address: u64, data: &mut [u8]) -> Result<(), DeviceError> {
        Ok(self.device.read(address, data)?)
    }

    fn load(&self, elf: &[u8]) -> Result<ModuleId, DeviceError> {
        let module = self.device.load(elf)?;
        check_code(module.file(), &self.info.id)?;
        let mut t = self.tables();
        let id = t.id();
        t.modules.insert(id, Arc::new(module));
        Ok(ModuleId(id))
    }
    fn unload(&self, module: ModuleId) -> Result<(), DeviceError> {
        let mut t = self.tables();
        t.kernels.retain(|_, (m, _)| *m != module);
        t.modules.remove(&module.0).map(drop).ok_or(DeviceError::Handle("module"))
    }
    fn kernel(&self, module: ModuleId, name: &str) -> Result<KernelId, DeviceError> {
        let mut t = self.tables();
        let m = t.modules.get(&module.0).cloned().ok_or(DeviceError::Handle("module"))?;
        m.kernel(name)?;
        let id = t.id();
        t.kernels.insert(id, (module, Kernel { module: m, name: name.into() }));
        Ok(KernelId(id))
    }

    fn create_stream(&self) -> Result<StreamId, DeviceError> {
        let mut t = self.tables();
        let id = t.id();
        t.streams.insert(id, Arc::new(Stream { queue: Queue::new(), stats: Arc::default() }));
        Ok(StreamId(id))
    }
    fn destroy_stream(&self, stream: StreamId) -> Result<(), DeviceError> {
        self.tables().streams.remove(&stream.0).map(drop).ok_or(DeviceError::Handle("stream"))
    }
    fn copy_in(&self, stream: StreamId, address: u64, from: &HostBuffer) -> Result<(), DeviceError> {
        let (device, from) = (self.device.clone(), from.clone());
        let start = Shared(from.start());
        self.stream(stream)?.queue.push(move || {
            // SAFETY: the clone keeps the bytes, and refuses others access to them.
            let bytes = unsafe { start.bytes(from.len()) };
            Ok(device.write(address, bytes)?)
        });
        Ok(())
    }
    fn copy_out(&self, stream: StreamId, into: &HostBuffer, address: u64) -> Result<(), DeviceError> {
        let (device, into) = (self.device.clone(), into.clone());
        let start = Shared(into.start());
        self.stream(stream)?.queue.push(move || {
            // SAFETY: as above; copies into one buffer from several streams are ordered by their events.
            let bytes = unsafe { start.bytes(into.len()) };
            Ok(device.read(address, bytes)?)
        });
        Ok(())
    }
    fn launch(
        &self,
        stream: StreamId,
        kernel: KernelId,
        shape: LaunchShape,
        kernarg: &[u8],
    ) -> Result<(), DeviceError> {
        let kernel = self.tables().kernels.get(&kernel.0).map(|k| k.1.clone()).ok_or(DeviceError::Handle("kernel"))?;
        let stream = self.stream(stream)?;
        let (device, stats) = (self.device.clone(), stream.stats.clone());
        let options = LaunchOptions { dynamic_lds: shape.dynamic_lds, ..self.options.clone() };
        let (kernarg, ended) = (kernarg.to_vec(), self.ended.clone());
        stream.queue.push(move || {
            let k = kernel.module.kernel(&kernel.name)?;
            let done = device.launch(&k, shape.grid, shape.block, &kernarg, &options);
            let mut stats = stats.lock().unwrap_or_else(|e| e.into_inner());
            let done = done.map_err(|f| DeviceError::Fault { fault: Box::new(f), launch: stats.len() })?;
            stats.push(LaunchStats { instructions: done.instructions });
            if let Some(ended) = ended {
                ended.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        });
        Ok(())
    }
    fn synchronize(&self, stream: StreamId) -> Result<Vec<LaunchStats>, DeviceError> {
        let stream = self.stream(stream)?;
        let result = stream.queue.wait();
        let stats = std::mem::take(&mut *stream.stats.lock().unwrap_or_else(|e| e.into_inner()));
        result.map(|()| stats)
    }

    fn create_event(&self) -> Result<EventId, DeviceError> {
        let mut t = self.tables();
        let id = t.id();
        t.events.insert(id, Event::new());
        Ok(EventId(id))
    }
    fn destroy_event(&self, event: EventId) -> Result<(), DeviceError> {
        self.tables().events.remove(&event.0).map(drop).ok_or(DeviceError::Handle("event"))
    }
    fn record(&self, stream: StreamId, event: EventId) -> Result<(), DeviceError> {
        let event = self.event(event)?;
        self.stream(stream)?.queue.record(&event);
        Ok(())
    }
    fn wait(&self, stream: StreamId, event: EventId) -> Result<(), DeviceError> {
        let event = self.event(event)?;
        self.stream(stream)?.queue.wait_for(&event);
        Ok(())
    }
    fn elapsed(&self, start: EventId, end: EventId) -> Result<Duration, DeviceError> {
        let (start, end) = (self.event(start)?, self.event(end)?);
        let seconds = start.seconds_until(&end).ok_or(DeviceError::Emulated("an event was not reached yet".into()))?;
        Ok(Duration::from_secs_f64(seconds.max(0.0)))
    }
}
