//! Device memory for onnxruntime: tensors that stay on the card between runs.
//!
//! A GPU (or the virtual one) has an allocator, so that onnxruntime puts what groups of nodes read and write into device
//! memory, and a copier between that and the host's. Which device an address belongs to is kept in a table of what is allocated;
//! addresses of different devices differ (HIP's do by themselves, emulated devices use the host's own). A copy to the device
//! goes into the stream that it is given; one to the host, and one without a stream, waits for what comes before it, and is done
//! when the call returns. Memory is given back when no stream has any work left.

use crate::abi::*;
use crate::api::{Api, behind, call, catch, get, none, release};
use crate::devices::{Devices, Wanted};
use crate::error::Error;
use crate::streams::{Stream, Streams};
use barewave::runtime::{Device, DeviceError};
use ort_sys::*;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr::null;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

/// AMD's number in PCI.
pub const AMD: u32 = 0x1002;

/// What is allocated: size and device by address.
#[derive(Default)]
pub struct Allocations(Mutex<BTreeMap<u64, (u64, Arc<dyn Device>)>>);

impl Allocations {
    fn table(&self) -> MutexGuard<'_, BTreeMap<u64, (u64, Arc<dyn Device>)>> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The device that `bytes` bytes at an address belong to.
    pub fn device_of(&self, address: u64, bytes: u64) -> Result<Arc<dyn Device>, Error> {
        let table = self.table();
        let found = table.range(..=address).next_back();
        found
            .filter(|(start, (size, _))| bytes <= size.saturating_sub(address - **start))
            .map(|(_, (_, device))| device.clone())
            .ok_or(Error::Device(DeviceError::Handle("memory")))
    }

    fn alloc(&self, device: Arc<dyn Device>, bytes: u64) -> Result<u64, Error> {
        let address = device.alloc(bytes.max(1))?;
        self.table().insert(address, (bytes.max(1), device));
        Ok(address)
    }

    fn free(&self, address: u64, streams: &Streams) -> Result<(), Error> {
        let found = self.table().remove(&address);
        let Some((_, device)) = found else { return Ok(()) };
        streams.settle(&device);
        Ok(device.free(address)?)
    }
}

/// Whose memory an allocator gives: a session's, once that has a device, else that of the hardware.
pub struct Owner {
    /// The session's device.
    pub session: Arc<OnceLock<Arc<dyn Device>>>,
    /// The hardware's.
    pub hardware: Wanted,
    /// Where that is opened.
    pub devices: Arc<Devices>,
}

impl Owner {
    fn device(&self) -> Result<Arc<dyn Device>, Error> {
        match self.session.get() {
            Some(device) => Ok(device.clone()),
            None => Ok(self.devices.open(&self.hardware)?.0),
        }
    }
}

/// An allocator. onnxruntime sees its first field.
#[repr(C)]
pub struct Allocator {
    abi: OrtAllocator,
    info: *const OrtMemoryInfo,
    owner: Owner,
}

impl Allocator {
    /// An allocator that describes itself with `info`.
    pub fn new(info: *const OrtMemoryInfo, owner: Owner) -> Allocator {
        // SAFETY: a structure of plain fields.
        let abi = OrtAllocator {
            version: KNOWN_VERSION,
            Alloc: Some(alloc),
            Free: Some(free),
            Info: Some(describe),
            Reserve: Some(reserve),
            ..unsafe { OrtAllocator::default() }
        };
        Allocator { abi, info, owner }
    }

    fn alloc(&self, size: usize) -> *mut c_void {
        // Null is how an allocator says that there is no memory.
        let address = catch(|| self.owner.devices.allocations.alloc(self.owner.device()?, size as u64));
        address.map_or(none(), |a| a as *mut c_void)
    }
}

unsafe extern "system" fn alloc(this: *mut OrtAllocator, size: usize) -> *mut c_void {
    // SAFETY: onnxruntime passes what the factory gave.
    unsafe { behind::<Allocator>(this) }.alloc(size)
}
unsafe extern "system" fn reserve(this: *const OrtAllocator, size: usize) -> *mut c_void {
    // SAFETY: as above.
    unsafe { behind::<Allocator>(this) }.alloc(size)
}
unsafe extern "system" fn free(this: *mut OrtAllocator, p: *mut c_void) {
    // SAFETY: as above.
    let allocator: &Allocator = unsafe { behind(this) };
    // A device that fails here has failed before, where somebody was told.
    let devices = &allocator.owner.devices;
    let _ = catch(|| devices.allocations.free(p as u64, &devices.streams));
}
unsafe extern "system" fn describe(this: *const OrtAllocator) -> *const OrtMemoryInfo {
    // SAFETY: as above.
    unsafe { behind::<Allocator>(this) }.info
}

/// Gives an allocator back.
///
/// # Safety
/// It was made by `Box::into_raw` of an [`Allocator`], and nobody uses it any more.
pub unsafe fn release_allocator(allocator: *mut OrtAllocator) {
    // SAFETY: the caller's promise.
    unsafe { release::<Allocator>(allocator) };
}

impl Api {
    /// True when a tensor lies in memory of a device of ours.
    pub fn is_on_device(&self, value: *const OrtValue) -> bool {
        // SAFETY: plain questions about a value that is there.
        unsafe {
            let memory = (self.ep.Value_GetMemoryDevice)(value);
            !memory.is_null() && self.is_ours(memory)
        }
    }

    /// Whether memory is that of a device of ours.
    ///
    /// # Safety
    /// `memory` is what onnxruntime gave.
    unsafe fn is_ours(&self, memory: *const OrtMemoryDevice) -> bool {
        let gpu = OrtMemoryInfoDeviceType::OrtMemoryInfoDeviceType_GPU as i32;
        // SAFETY: the caller's promise.
        unsafe {
            (self.ep.MemoryDevice_GetDeviceType)(memory) == gpu && (self.ep.MemoryDevice_GetVendorId)(memory) == AMD
        }
    }
}

/// Copies between host and device. onnxruntime sees its first field.
#[repr(C)]
pub struct Copier {
    abi: OrtDataTransferImpl,
    api: Api,
    devices: Arc<Devices>,
}

impl Copier {
    /// A copier for the devices of a factory.
    pub fn new(api: Api, devices: Arc<Devices>) -> Copier {
        let abi = OrtDataTransferImpl {
            version: KNOWN_VERSION,
            Release: Some(release_copier),
            CanCopy: Some(can_copy),
            CopyTensors: Some(copy_tensors),
            tail: [0; 16],
        };
        Copier { abi, api, devices }
    }

    fn copy(&self, from: *const OrtValue, to: *mut OrtValue, stream: Option<Arc<Stream>>) -> Result<(), Error> {
        let size = get!(self.api, GetTensorSizeInBytes(from), 0)?;
        let source = get!(self.api, GetTensorData(from), null())?.cast::<u8>();
        let target = get!(self.api, GetTensorMutableData(to), none())?.cast::<u8>();
        if size == 0 {
            return Ok(());
        }
        let on = |address: u64| self.devices.allocations.device_of(address, size as u64);
        let streams = &self.devices.streams;
        let read = |bytes: &mut [u8]| {
            let device = on(source as u64)?;
            stream.as_ref().filter(|s| s.is_on(&device)).map_or_else(|| streams.wait(&device), |s| s.wait())?;
            Ok::<_, Error>(device.read(source as u64, bytes)?)
        };
        let write = |bytes: &[u8]| {
            let device = on(target as u64)?;
            if let Some(s) = stream.as_ref().filter(|s| s.is_on(&device)) {
                return s.write(target as u64, bytes);
            }
            streams.wait(&device)?;
            Ok(device.write(target as u64, bytes)?)
        };
        match (self.api.is_on_device(from), self.api.is_on_device(to)) {
            (true, true) => {
                let (source_device, target_device) = (on(source as u64)?, on(target as u64)?);
                if let Some(s) = stream.as_ref().filter(|s| s.is_on(&source_device) && s.is_on(&target_device)) {
                    return s.copy(source as u64, target as u64, size);
                }
                let mut bytes = vec![0; size];
                read(&mut bytes)?;
                write(&bytes)
            }
            // SAFETY: memory of the host that onnxruntime gave, of this size.
            (true, false) => read(unsafe { std::slice::from_raw_parts_mut(target, size) }),
            // SAFETY: as above.
            (false, _) => write(unsafe { std::slice::from_raw_parts(source, size) }),
        }
    }
}

unsafe extern "system" fn release_copier(this: *mut OrtDataTransferImpl) {
    // SAFETY: made by the factory, given back once.
    unsafe { release::<Copier>(this) };
}

unsafe extern "system" fn can_copy(
    this: *const OrtDataTransferImpl,
    from: *const OrtMemoryDevice,
    to: *const OrtMemoryDevice,
) -> bool {
    // SAFETY: onnxruntime passes what the factory gave, and memory devices of its own.
    unsafe {
        let copier: &Copier = behind(this);
        let host = |m| (copier.api.ep.MemoryDevice_GetDeviceType)(m) == 0;
        let (ours, theirs) = (copier.api.is_ours(from), copier.api.is_ours(to));
        (ours && (theirs || host(to))) || (theirs && host(from))
    }
}

unsafe extern "system" fn copy_tensors(
    this: *mut OrtDataTransferImpl,
    from: *const *const OrtValue,
    to: *const *mut OrtValue,
    streams: *const *mut OrtSyncStream,
    count: usize,
) -> OrtStatusPtr {
    // SAFETY: as above.
    let copier: &Copier = unsafe { behind(this) };
    copier.api.guard(|| {
        (0..count).try_for_each(|i| {
            // SAFETY: arrays of `count` elements; that of the streams may be missing.
            let (from, to, stream) =
                unsafe { (*from.add(i), *to.add(i), if streams.is_null() { none() } else { *streams.add(i) }) };
            copier.copy(from, to, copier.api.stream(stream, &copier.devices.streams))
        })
    })
}

/// What onnxruntime is told about the memory of a device.
pub struct MemoryInfo {
    api: Api,
    /// onnxruntime's handle.
    pub handle: *mut OrtMemoryInfo,
    /// What the command line calls the device.
    pub device: String,
}
// SAFETY: handles are only read and, with the factory, released.
unsafe impl Send for MemoryInfo {}
unsafe impl Sync for MemoryInfo {}

impl MemoryInfo {
    /// The memory of device `number` of its kind.
    pub fn new(api: Api, device: &str, number: i32) -> Result<MemoryInfo, Error> {
        let mut handle = none();
        let gpu = OrtMemoryInfoDeviceType::OrtMemoryInfoDeviceType_GPU;
        let kind = OrtDeviceMemoryType::OrtDeviceMemoryType_DEFAULT;
        let plain = OrtAllocatorType::OrtDeviceAllocator;
        let name = c"barewave";
        // Without an alignment, as bindings ask for memory; what a device gives is aligned to 256 bytes all the same.
        call!(api, ort.CreateMemoryInfo_V2(name.as_ptr(), gpu, AMD, number, kind, 0, plain, &mut handle))?;
        Ok(MemoryInfo { api, handle, device: device.to_string() })
    }

    /// The device that has the memory.
    pub fn hardware(&self) -> Wanted {
        Wanted { device: self.device.clone(), target: None, strict: false }
    }

    /// Whether this is the memory that onnxruntime means.
    pub fn is_of(&self, memory: *const OrtMemoryDevice) -> bool {
        // SAFETY: questions about handles that onnxruntime gave.
        unsafe { (self.api.ep.MemoryDevice_AreEqual)((self.api.ep.MemoryInfo_GetMemoryDevice)(self.handle), memory) }
    }

    /// True for the memory that `other` describes.
    pub fn is(&self, other: *const OrtMemoryInfo) -> bool {
        get!(self.api, CompareMemoryInfo(self.handle, other), 1).is_ok_and(|differ| differ == 0)
    }
}

impl Drop for MemoryInfo {
    fn drop(&mut self) {
        // SAFETY: made by `new`, released once.
        unsafe { (self.api.ort.ReleaseMemoryInfo)(self.handle) };
    }
}
