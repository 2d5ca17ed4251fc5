//! What onnxruntime gets at registration: finds devices and makes providers.

use crate::abi::*;
use crate::api::{Api, behind, call, none, release};
use crate::context;
use crate::devices::{Devices, Wanted, gpus, same_gpu};
use crate::error::Error;
use crate::memory::{AMD, Allocator, Copier, MemoryInfo, Owner};
use crate::options::Options;
use crate::provider::Provider;
use crate::streams::SyncStream;
use ort_sys::*;
use std::sync::{Arc, Mutex, OnceLock};

/// Name of the entry of a device's metadata that says what the command line calls it.
const DEVICE: &str = "device";

/// The factory. onnxruntime sees its first field.
#[repr(C)]
pub struct Factory {
    abi: OrtEpFactory,
    api: Api,
    /// Registered under a name that allows devices that are not there.
    is_virtual: bool,
    devices: Arc<Devices>,
    /// The virtual device, kept while the factory is.
    hardware: Mutex<Vec<Hardware>>,
    /// Of devices with memory of their own.
    memory: Arc<Mutex<Vec<MemoryInfo>>>,
}

/// A device that was made here.
struct Hardware(*mut OrtHardwareDevice);
// SAFETY: it is only released, with the factory.
unsafe impl Send for Hardware {}

impl Factory {
    /// The factory of a registration.
    pub fn new(api: Api, registered_name: &str) -> Factory {
        Factory {
            abi: OrtEpFactory {
                version: KNOWN_VERSION,
                GetName: Some(name),
                GetVendor: Some(vendor),
                GetSupportedDevices: Some(supported_devices),
                CreateEp: Some(create),
                ReleaseEp: Some(release_provider),
                GetVendorId: Some(vendor_id),
                GetVersion: Some(version),
                ValidateCompiledModelCompatibilityInfo: Some(validate),
                CreateAllocator: Some(create_allocator),
                ReleaseAllocator: Some(release_allocator),
                CreateDataTransfer: Some(create_data_transfer),
                IsStreamAware: Some(is_stream_aware),
                CreateSyncStreamForDevice: Some(create_stream),
                tail: [0; 16],
            },
            api,
            // onnxruntime's convention.
            is_virtual: registered_name.ends_with(".virtual"),
            devices: Arc::default(),
            hardware: Mutex::default(),
            memory: Arc::default(),
        }
    }

    /// What of the hardware can be used, and what the command line calls it.
    fn usable(&self, all: &[*const OrtHardwareDevice]) -> Result<Vec<(*const OrtHardwareDevice, String)>, Error> {
        if self.is_virtual {
            return Ok(vec![(self.virtual_device()?, "emu".into())]);
        }
        let kind = |d: &*const OrtHardwareDevice| {
            // SAFETY: devices that onnxruntime gave for this call.
            unsafe { ((self.api.ort.HardwareDevice_Type)(*d), (self.api.ort.HardwareDevice_VendorId)(*d)) }
        };
        let found = gpus();
        let mut list = Vec::new();
        for d in all.iter().filter(|d| kind(d) == (OrtHardwareDeviceType::OrtHardwareDeviceType_GPU, AMD)) {
            // SAFETY: as above.
            let metadata = self.api.pairs(unsafe { (self.api.ort.HardwareDevice_Metadata)(*d) });
            list.extend(same_gpu(&found, &metadata).map(|ordinal| (*d, format!("hip:{ordinal}"))));
        }
        if list.is_empty() {
            // Without a GPU of ours a session runs where `barewave run` would: on an emulated device.
            let cpu = all.iter().find(|d| kind(d).0 == OrtHardwareDeviceType::OrtHardwareDeviceType_CPU);
            list.extend(cpu.map(|d| (*d, "auto".into())));
        }
        Ok(list)
    }

    fn virtual_device(&self) -> Result<*const OrtHardwareDevice, Error> {
        let mut device = none();
        self.api.with_pairs(&[("is_virtual", "1")], |metadata| {
            let (gpu, name) = (OrtHardwareDeviceType::OrtHardwareDeviceType_GPU, c"AMD");
            call!(self.api, ep.CreateHardwareDevice(gpu, AMD, 0, name.as_ptr(), metadata, &mut device))
        })?;
        self.hardware.lock().unwrap_or_else(|e| e.into_inner()).push(Hardware(device));
        Ok(device)
    }

    /// Fills onnxruntime's list; gives how many there are.
    fn list(
        &self,
        this: *mut OrtEpFactory,
        all: &[*const OrtHardwareDevice],
        out: *mut *mut OrtEpDevice,
        most: usize,
    ) -> Result<usize, Error> {
        let mut count = 0;
        for (hardware, device) in self.usable(all)?.into_iter().take(most) {
            let mut made = none();
            self.api.with_pairs(&[(DEVICE, &device)], |metadata| {
                call!(self.api, ep.CreateEpDevice(this, hardware, metadata, std::ptr::null(), &mut made))
            })?;
            // On the CPU's own device memory is the host's.
            if device != "auto" {
                let number = device.strip_prefix("hip:").and_then(|n| n.parse().ok()).unwrap_or(0);
                let memory = MemoryInfo::new(self.api, &device, number)?;
                call!(self.api, ep.EpDevice_AddAllocatorInfo(made, memory.handle))?;
                self.memory.lock().unwrap_or_else(|e| e.into_inner()).push(memory);
            }
            // SAFETY: an array with room for `most`.
            unsafe { *out.add(count) = made };
            count += 1;
        }
        Ok(count)
    }

    fn provider(
        &self,
        metadata: &[*const OrtKeyValuePairs],
        options: *const OrtSessionOptions,
        logger: *const OrtLogger,
    ) -> Result<Provider, Error> {
        let mut entries = none();
        call!(self.api, ort.GetSessionOptionsConfigEntries(options, &mut entries))?;
        let list = self.api.pairs(entries);
        // SAFETY: it was made for us by the call above.
        unsafe { (self.api.ort.ReleaseKeyValuePairs)(entries) };
        let options = Options::parse(&list);
        let of =
            |m: &*const OrtKeyValuePairs| self.api.pairs(*m).into_iter().find(|(k, _)| k == DEVICE).map(|(_, v)| v);
        let hardware = metadata.iter().find_map(of).unwrap_or_else(|| "auto".into());
        Ok(Provider::new(self.api, logger, options, hardware, self.devices.clone()))
    }

    /// An allocator that sessions share.
    fn allocator(&self, info: *const OrtMemoryInfo) -> Option<Allocator> {
        let memory = self.memory.lock().unwrap_or_else(|e| e.into_inner());
        let known = memory.iter().find(|m| m.is(info))?;
        let owner =
            Owner { session: Arc::new(OnceLock::new()), hardware: known.hardware(), devices: self.devices.clone() };
        Some(Allocator::new(known.handle, owner))
    }

    /// A stream outside of sessions; null for memory that is not ours.
    fn stream(&self, memory: *const OrtMemoryDevice) -> Result<*mut OrtSyncStreamImpl, Error> {
        let known = self.memory.lock().unwrap_or_else(|e| e.into_inner());
        let Some(hardware) = known.iter().find(|m| m.is_of(memory)).map(MemoryInfo::hardware) else {
            return Ok(none());
        };
        drop(known);
        SyncStream::create(self.api, self.devices.open(&hardware)?.0, self.devices.clone())
    }

    /// Whether code for a target runs on what onnxruntime calls these devices.
    fn runs(&self, all: &[*const OrtHardwareDevice], info: &str) -> Result<OrtCompiledModelCompatibility, Error> {
        use OrtCompiledModelCompatibility as C;
        let Some(target) = context::target_of(info) else { return Ok(C::EP_NOT_APPLICABLE) };
        for (_, device) in self.usable(all)? {
            // Emulated devices are made for whatever is to run.
            if let Some(ordinal) = device.strip_prefix("hip:") {
                let wanted = Wanted { device: format!("hip:{ordinal}"), target: None, strict: false };
                if !self.devices.open(&wanted)?.0.target().runs_code_of(target) {
                    return Ok(C::EP_UNSUPPORTED);
                }
            }
        }
        Ok(C::EP_SUPPORTED_OPTIMAL)
    }
}

impl Drop for Factory {
    fn drop(&mut self) {
        for Hardware(device) in self.hardware.get_mut().unwrap_or_else(|e| e.into_inner()) {
            // SAFETY: made by `virtual_device`, released once.
            unsafe { (self.api.ep.ReleaseHardwareDevice)(*device) };
        }
    }
}

/// An array of onnxruntime's.
///
/// # Safety
/// `p` holds `n` elements.
unsafe fn array<'a, T>(p: *const T, n: usize) -> &'a [T] {
    // SAFETY: the caller's promise.
    if p.is_null() { &[] } else { unsafe { std::slice::from_raw_parts(p, n) } }
}

unsafe extern "system" fn name(_: *const OrtEpFactory) -> *const c_char {
    crate::NAME_C.as_ptr()
}
unsafe extern "system" fn vendor(_: *const OrtEpFactory) -> *const c_char {
    c"barewave".as_ptr()
}
unsafe extern "system" fn vendor_id(_: *const OrtEpFactory) -> u32 {
    AMD
}
unsafe extern "system" fn version(_: *const OrtEpFactory) -> *const c_char {
    crate::VERSION_C.as_ptr()
}

unsafe extern "system" fn supported_devices(
    this: *mut OrtEpFactory,
    all: *const *const OrtHardwareDevice,
    count: usize,
    out: *mut *mut OrtEpDevice,
    most: usize,
    found: *mut usize,
) -> OrtStatusPtr {
    // SAFETY: onnxruntime passes what `CreateEpFactories` gave, and arrays of these sizes.
    let (factory, all): (&Factory, _) = unsafe { (behind(this), array(all, count)) };
    factory.api.guard(|| {
        let n = factory.list(this, all, out, most)?;
        // SAFETY: a place for the number.
        unsafe { *found = n };
        Ok(())
    })
}

unsafe extern "system" fn create(
    this: *mut OrtEpFactory,
    _: *const *const OrtHardwareDevice,
    metadata: *const *const OrtKeyValuePairs,
    count: usize,
    options: *const OrtSessionOptions,
    logger: *const OrtLogger,
    out: *mut *mut OrtEp,
) -> OrtStatusPtr {
    // SAFETY: as above.
    let (factory, metadata): (&Factory, _) = unsafe { (behind(this), array(metadata, count)) };
    factory.api.guard(|| {
        let provider = factory.provider(metadata, options, logger)?;
        // SAFETY: a place for the pointer, which comes back in `release_provider`.
        unsafe { *out = Box::into_raw(Box::new(provider)).cast() };
        Ok(())
    })
}

unsafe extern "system" fn release_provider(_: *mut OrtEpFactory, ep: *mut OrtEp) {
    // SAFETY: made by `create`, given back once.
    unsafe { release::<Provider>(ep) };
}

unsafe extern "system" fn validate(
    this: *mut OrtEpFactory,
    all: *const *const OrtHardwareDevice,
    count: usize,
    info: *const c_char,
    out: *mut OrtCompiledModelCompatibility,
) -> OrtStatusPtr {
    // SAFETY: as above.
    let (factory, all, info): (&Factory, _, _) = unsafe { (behind(this), array(all, count), crate::api::text(info)) };
    factory.api.guard(|| {
        let answer = factory.runs(all, &info)?;
        // SAFETY: a place for the answer.
        unsafe { *out = answer };
        Ok(())
    })
}

unsafe extern "system" fn create_allocator(
    this: *mut OrtEpFactory,
    info: *const OrtMemoryInfo,
    _: *const OrtKeyValuePairs,
    out: *mut *mut OrtAllocator,
) -> OrtStatusPtr {
    // SAFETY: as above.
    let factory: &Factory = unsafe { behind(this) };
    factory.api.guard(|| {
        let made = factory.allocator(info).map_or(none(), |a| Box::into_raw(Box::new(a)).cast());
        // SAFETY: a place for the pointer, which comes back in `release_allocator`.
        unsafe { *out = made };
        Ok(())
    })
}

unsafe extern "system" fn release_allocator(_: *mut OrtEpFactory, allocator: *mut OrtAllocator) {
    // SAFETY: made here or by a provider, given back once.
    unsafe { crate::memory::release_allocator(allocator) };
}

unsafe extern "system" fn create_data_transfer(
    this: *mut OrtEpFactory,
    out: *mut *mut OrtDataTransferImpl,
) -> OrtStatusPtr {
    // SAFETY: as above.
    let factory: &Factory = unsafe { behind(this) };
    factory.api.guard(|| {
        let copier = Copier::new(factory.api, factory.devices.clone());
        // SAFETY: a place for the pointer, which is given back through its own `Release`.
        unsafe { *out = Box::into_raw(Box::new(copier)).cast() };
        Ok(())
    })
}

unsafe extern "system" fn is_stream_aware(_: *const OrtEpFactory) -> bool {
    true
}

unsafe extern "system" fn create_stream(
    this: *mut OrtEpFactory,
    memory: *const OrtMemoryDevice,
    _: *const OrtKeyValuePairs,
    out: *mut *mut OrtSyncStreamImpl,
) -> OrtStatusPtr {
    // SAFETY: as above.
    let factory: &Factory = unsafe { behind(this) };
    factory.api.guard(|| {
        let made = factory.stream(memory)?;
        // SAFETY: a place for the pointer, which is given back through its own `Release`.
        unsafe { *out = made };
        Ok(())
    })
}

/// The entry point: onnxruntime asks for factories when the library is registered.
///
/// # Safety
/// Called by onnxruntime, with what its header says.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn CreateEpFactories(
    registered_name: *const c_char,
    base: *const OrtApiBase,
    _logger: *const OrtLogger,
    factories: *mut *mut OrtEpFactory,
    most: usize,
    count: *mut usize,
) -> OrtStatusPtr {
    // SAFETY: as the header says.
    let api = match unsafe { Api::new(base) } {
        Ok(api) => api,
        Err(status) => return status,
    };
    api.guard(|| {
        if most == 0 {
            return Err(Error::Onnxruntime("no room for a factory".into()));
        }
        // SAFETY: as the header says; the factory comes back in `ReleaseEpFactory`.
        unsafe {
            let name = crate::api::text(registered_name);
            *factories = Box::into_raw(Box::new(Factory::new(api, &name))).cast();
            *count = 1;
        }
        Ok(())
    })
}

/// Gives a factory back.
///
/// # Safety
/// Called by onnxruntime with what [`CreateEpFactories`] gave, once.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn ReleaseEpFactory(factory: *mut OrtEpFactory) -> OrtStatusPtr {
    // SAFETY: the caller's promise.
    unsafe { release::<Factory>(factory) };
    OrtStatusPtr(none())
}
