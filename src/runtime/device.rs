//! A device that runs code objects. One trait, so that nothing above it knows whether a GPU is there.
//!
//! Work goes to streams: what is put into one stream happens in that order, streams run beside each other, events order
//! them and tell time. Nothing that was put into a stream is waited for before [`Device::synchronize`], which is also
//! where faults of kernels surface. Copies in streams go through [`HostBuffer`]s, memory of the host that the device can
//! reach on its own.

use super::emulated::{EmulatedDevice, EmulatedSettings};
use super::hip::{HipDevice, HipError, Library};
use super::queue::QueueError;
use crate::codeobj::{ElfFile, Mismatch, TargetId};
use crate::emu::Fault;
use barewave_isa::{Target, UnknownTarget};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::c_void;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// A code object loaded on a device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ModuleId(pub u64);
/// A kernel of a loaded code object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct KernelId(pub u64);
/// A stream of a device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct StreamId(pub u64);
/// An event of a device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct EventId(pub u64);

/// How much of a kernel is launched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LaunchShape {
    /// Workgroups in x, y, z.
    pub grid: [u32; 3],
    /// Workitems of a workgroup in x, y, z.
    pub block: [u32; 3],
    /// LDS added to what the kernel declares, bytes.
    pub dynamic_lds: u32,
}

/// What an emulated device says about a launch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LaunchStats {
    /// Wavefront instructions executed.
    pub instructions: u64,
}

/// What is known of a device.
#[derive(Clone, PartialEq, Debug)]
pub struct DeviceInfo {
    /// Name for people (`emulated gfx942`, `AMD Instinct MI300X`).
    pub name: String,
    /// Architecture and features as the device reports them.
    pub id: TargetId,
    /// Its target in our tables.
    pub target: Target,
    /// Compute units; `None` for an emulated device, which has none.
    pub compute_units: Option<u32>,
    /// Lanes of a wave.
    pub wave_size: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// LDS that a workgroup may use, bytes.
    pub lds_bytes: u64,
    /// HIP driver: version and file; `None` for an emulated device.
    pub driver: Option<(String, PathBuf)>,
}

/// What can go wrong on a device.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DeviceError {
    /// No device of that name.
    #[error("no device '{0}': use auto, hip, hip:N or emu:TARGET (`barewave devices` lists them)")]
    Unknown(String),
    /// No target of that name.
    #[error(transparent)]
    Target(#[from] UnknownTarget),
    /// The emulated device refuses or has stopped.
    #[error("{0}")]
    Emulated(String),
    /// A kernel on the emulated device faulted.
    #[error("{fault}")]
    Fault {
        /// What happened where.
        fault: Box<Fault>,
        /// Launches of the stream that were done since it was last waited for.
        launch: usize,
    },
    /// The code object cannot be read.
    #[error("{0}")]
    Code(String),
    /// The HIP driver refuses or has stopped.
    #[error(transparent)]
    Hip(#[from] HipError),
    /// The code is for another target.
    #[error("the code object is for {code}, the device is {device}: compile with --target {device}")]
    WrongTarget {
        /// Target of the code.
        code: String,
        /// Target of the device.
        device: String,
    },
    /// The code needs features that the device does not have switched on (or off).
    #[error("{why}: the device is {device}; compile for {} without features, which runs with either", device.processor)]
    Features {
        /// Which feature, and how.
        why: Mismatch,
        /// The device.
        device: TargetId,
    },
    /// A handle of another device, or one that was given back.
    #[error("no such {0} on this device")]
    Handle(&'static str),
    /// A stream of somebody else's for a device that has none.
    #[error("{0} takes no streams but its own (create_stream makes one)")]
    NoImport(String),
    /// A host buffer is too small, or still in use by copies that were not waited for.
    #[error("{0}")]
    Buffer(String),
}

impl QueueError for DeviceError {
    fn panicked(message: String) -> DeviceError {
        DeviceError::Emulated(format!("internal error in the emulated device: {message}"))
    }
}

/// Checks that code is for a device: its architecture or the generic one of its family, and features such as XNACK.
pub(super) fn check_code(file: &ElfFile, device: &TargetId) -> Result<(), DeviceError> {
    let code = file.target_id();
    if !code.fits(device) {
        return Err(DeviceError::WrongTarget { code: code.processor, device: device.processor.clone() });
    }
    match code.mismatch(device) {
        Some(why) => Err(DeviceError::Features { why, device: device.clone() }),
        None => Ok(()),
    }
}

/// Memory of the host that a device reaches on its own. Clones share the bytes; copies in flight hold a clone, so that
/// the bytes can be had only when no copy uses them.
#[derive(Clone)]
pub struct HostBuffer {
    memory: Arc<Pinned>,
    /// Bytes that are in use, of those that are there.
    len: usize,
}

struct Pinned {
    start: *mut u8,
    len: usize,
    /// Gives the memory back.
    release: Box<dyn Fn(*mut u8, usize) + Send + Sync>,
}

// SAFETY: the bytes belong to the buffer alone; they are reached by `bytes` with exclusive access, or by the device's
// copies, which are ordered by their stream.
unsafe impl Send for Pinned {}
unsafe impl Sync for Pinned {}

impl Drop for Pinned {
    fn drop(&mut self) {
        (self.release)(self.start, self.len);
    }
}

impl HostBuffer {
    /// Wraps memory that a device driver gave.
    ///
    /// # Safety
    /// `start` is valid for `len` initialised bytes, by nobody else used, until `release` is called with it.
    pub(super) unsafe fn new(
        start: *mut u8,
        len: usize,
        release: impl Fn(*mut u8, usize) + Send + Sync + 'static,
    ) -> HostBuffer {
        HostBuffer { memory: Arc::new(Pinned { start, len, release: Box::new(release) }), len }
    }

    /// A buffer in ordinary memory, if there is so much.
    pub(super) fn ordinary(len: usize) -> Option<HostBuffer> {
        let layout = Layout::array::<u8>(len.max(1)).ok()?;
        // SAFETY: the layout has a byte at least.
        let start = unsafe { alloc_zeroed(layout) };
        if start.is_null() {
            return None;
        }
        // SAFETY: the memory was allocated with this layout.
        let release = move |p: *mut u8, _| unsafe { dealloc(p, layout) };
        // SAFETY: as above; it is zeroed.
        Some(unsafe { HostBuffer::new(start, len, release) })
    }

    /// Size in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Bytes that it has room for.
    pub fn capacity(&self) -> usize {
        self.memory.len
    }

    /// Uses so many bytes from now on; false when it has no room for them, and nothing changes.
    pub fn set_len(&mut self, len: usize) -> bool {
        let fits = len <= self.memory.len;
        if fits {
            self.len = len;
        }
        fits
    }

    /// True when it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Start of the bytes, for the device's copies.
    pub(super) fn start(&self) -> *mut u8 {
        self.memory.start
    }

    /// The bytes, when no copy is under way.
    pub fn bytes(&mut self) -> Result<&mut [u8], DeviceError> {
        let p = Arc::get_mut(&mut self.memory)
            .ok_or_else(|| DeviceError::Buffer("a host buffer is still used by a copy: synchronise first".into()))?;
        // SAFETY: valid by construction, and nobody else holds the buffer.
        Ok(unsafe { std::slice::from_raw_parts_mut(p.start, self.len) })
    }
}

/// A device: memory, modules, streams. All methods may be called from several threads.
pub trait Device: Send + Sync {
    /// What is known of it.
    fn info(&self) -> &DeviceInfo;
    /// Architecture.
    fn target(&self) -> Target {
        self.info().target
    }

    /// Reserves device memory, 256-byte aligned.
    fn alloc(&self, bytes: u64) -> Result<u64, DeviceError>;
    /// Gives memory back. Work that uses it must be done.
    fn free(&self, address: u64) -> Result<(), DeviceError>;
    /// Host memory for copies in streams, zeroed.
    fn host_buffer(&self, bytes: usize) -> Result<HostBuffer, DeviceError>;
    /// Copies to the device and waits until it is done.
    fn write(&self, address: u64, data: &[u8]) -> Result<(), DeviceError>;
    /// Tells a device that checks launches for undefined behaviour that memory holds meaningful data.
    fn assume_written(&self, _address: u64, _bytes: u64) {}
    /// Copies from the device and waits until it is done.
    fn read(&self, address: u64, data: &mut [u8]) -> Result<(), DeviceError>;

    /// Loads a code object from the bytes of its ELF file, after a check that it fits the device.
    fn load(&self, elf: &[u8]) -> Result<ModuleId, DeviceError>;
    /// Unloads one. Its kernels must not be running.
    fn unload(&self, module: ModuleId) -> Result<(), DeviceError>;
    /// A kernel by its name.
    fn kernel(&self, module: ModuleId, name: &str) -> Result<KernelId, DeviceError>;

    /// A new stream.
    fn create_stream(&self) -> Result<StreamId, DeviceError>;
    /// Takes over a stream of the caller's: on a HIP device a `hipStream_t` of this device, null for its default stream.
    /// [`Device::destroy_stream`] waits for it and forgets it, and the caller goes on owning it.
    ///
    /// # Safety
    /// The handle is a stream of this device and stays one until it is forgotten.
    ///
    /// # Errors
    /// When the device has no streams but its own, as emulated ones.
    unsafe fn import_stream(&self, _raw: *mut c_void) -> Result<StreamId, DeviceError> {
        Err(DeviceError::NoImport(self.info().name.clone()))
    }
    /// The driver's own handle of a stream, for other libraries' work in it: a `hipStream_t` on a HIP device. `None` where
    /// there is none, as on emulated devices.
    fn raw_stream(&self, _stream: StreamId) -> Option<*mut c_void> {
        None
    }
    /// Ends a stream, after its work.
    fn destroy_stream(&self, stream: StreamId) -> Result<(), DeviceError>;
    /// Puts a copy of a whole host buffer to device memory into a stream.
    fn copy_in(&self, stream: StreamId, address: u64, from: &HostBuffer) -> Result<(), DeviceError>;
    /// Puts a copy of device memory that fills a host buffer into a stream.
    fn copy_out(&self, stream: StreamId, into: &HostBuffer, address: u64) -> Result<(), DeviceError>;
    /// Puts a launch into a stream, with the explicit arguments as the bytes that the kernel reads.
    fn launch(&self, stream: StreamId, kernel: KernelId, shape: LaunchShape, kernarg: &[u8])
    -> Result<(), DeviceError>;
    /// Waits until everything in a stream is done. Gives what is known of its launches since the last time, in order;
    /// empty where the device does not count. The first fault since then is the error.
    fn synchronize(&self, stream: StreamId) -> Result<Vec<LaunchStats>, DeviceError>;

    /// A new event.
    fn create_event(&self) -> Result<EventId, DeviceError>;
    /// Gives an event back.
    fn destroy_event(&self, event: EventId) -> Result<(), DeviceError>;
    /// Puts an event into a stream.
    fn record(&self, stream: StreamId, event: EventId) -> Result<(), DeviceError>;
    /// Lets what follows in a stream wait for the latest recording of an event, in whatever stream.
    fn wait(&self, stream: StreamId, event: EventId) -> Result<(), DeviceError>;
    /// Time between two events that were reached.
    fn elapsed(&self, start: EventId, end: EventId) -> Result<Duration, DeviceError>;
}

/// A device opened by name, and what the user should know about the choice.
pub struct Opened {
    /// The device.
    pub device: Arc<dyn Device>,
    /// One line: why no GPU is used. `None` when the device is what was asked for.
    pub note: Option<String>,
    /// A HIP driver was looked for, and there is none: for most machines that is as it should be.
    pub no_driver: bool,
}

/// [`open_with`] the default limits; `strict` concerns emulated devices: every launch is checked.
pub fn open(name: &str, preferred: Option<Target>, strict: bool) -> Result<Opened, DeviceError> {
    let mut settings = EmulatedSettings::default();
    settings.options.strict = strict;
    open_with(name, preferred, &settings)
}

/// Opens a device by its name on the command line: `emu:TARGET` (or `emu`), `hip` (or `hip:N`), `auto`.
///
/// `auto` is the first GPU whose target is `preferred` (any that code can be made for, when there is no preference),
/// and otherwise an emulated device for `preferred` or gfx942, with a note. Emulated HIP drivers are passed over: they
/// are used only when `hip` asks for them. `settings` concern emulated devices.
pub fn open_with(name: &str, preferred: Option<Target>, settings: &EmulatedSettings) -> Result<Opened, DeviceError> {
    let emulated = |target| Ok::<_, DeviceError>(Arc::new(EmulatedDevice::with_settings(target, settings.clone())?));
    if let Some(t) = name.strip_prefix("emu:") {
        let target = Target::parse(t)?;
        return Ok(Opened { device: emulated(target)?, note: None, no_driver: false });
    }
    let fallback = preferred.unwrap_or(Target::GFX942);
    if name == "emu" {
        return Ok(Opened { device: emulated(fallback)?, note: None, no_driver: false });
    }
    if let Some(ordinal) = name.strip_prefix("hip") {
        let ordinal = match ordinal.strip_prefix(':') {
            None if ordinal.is_empty() => 0,
            Some(n) => n.parse().map_err(|_| DeviceError::Unknown(name.to_string()))?,
            None => return Err(DeviceError::Unknown(name.to_string())),
        };
        let device = HipDevice::open(Library::get()?, ordinal)?;
        return Ok(Opened { device: Arc::new(device), note: None, no_driver: false });
    }
    if name != "auto" {
        return Err(DeviceError::Unknown(name.to_string()));
    }
    match first_gpu(preferred) {
        Ok(device) => Ok(Opened { device: Arc::new(device), note: None, no_driver: false }),
        Err(why) => {
            let note = format!("{why}; going on with the emulated {fallback}");
            Ok(Opened { device: emulated(fallback)?, note: Some(note), no_driver: Library::get().is_err() })
        }
    }
}

/// Why no GPU is taken where one may be.
#[derive(Debug, thiserror::Error)]
enum NoGpu {
    /// There is no driver, or it refuses.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The driver is an emulated one.
    #[error("{} is an emulated driver (--device hip uses it)", .0.display())]
    Emulated(PathBuf),
    /// None of them will do.
    #[error("no GPU for {wanted} among {}", .others.join(", "))]
    Others {
        /// What was looked for.
        wanted: String,
        /// What there is.
        others: Vec<String>,
    },
}

/// The first GPU for `preferred`, or why there is none.
fn first_gpu(preferred: Option<Target>) -> Result<HipDevice, NoGpu> {
    let library = Library::get().map_err(DeviceError::from)?;
    if library.is_emulated() {
        return Err(NoGpu::Emulated(library.path().to_path_buf()));
    }
    let count = library.device_count().map_err(DeviceError::from)?;
    let mut others = Vec::new();
    for ordinal in 0..count {
        match HipDevice::open(library.clone(), ordinal) {
            Ok(d) if preferred.is_none_or(|t| t == d.target()) => return Ok(d),
            Ok(d) => others.push(d.info().id.to_string()),
            Err(e) => others.push(format!("hip:{ordinal} ({e})")),
        }
    }
    let wanted = preferred.map_or("known targets".to_string(), |t| t.to_string());
    Err(NoGpu::Others { wanted, others })
}
