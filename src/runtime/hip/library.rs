//! The driver library: finding it at run time, and its functions.
//!
//! Nothing of HIP is needed to build barewave. The first use looks for the library by its names where the system's
//! loader looks (`LD_LIBRARY_PATH`, the loader's cache), then in `ROCM_PATH`, `HIP_PATH` and `/opt/rocm*`.

use super::error::HipError;
use super::types::*;
use super::{code, describe, error_name};
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// Functions by name, each with the types of its arguments; all of these return `hipError_t`.
macro_rules! functions {
    ($($name:ident($($arg:ty),*);)*) => {
        /// The functions of the driver that the HIP device uses.
        #[allow(non_snake_case, missing_docs)]
        pub(super) struct Functions {
            $(pub $name: unsafe extern "C" fn($($arg),*) -> hipError_t,)*
        }

        impl Functions {
            fn load(library: &libloading::Library, path: &Path) -> Result<Functions, HipError> {
                Ok(Functions {$(
                    $name: {
                        let name = concat!(stringify!($name), "\0").as_bytes();
                        // SAFETY: the signatures are those of the HIP API, which promises to keep them.
                        let symbol = unsafe { library.get::<unsafe extern "C" fn($($arg),*) -> hipError_t>(name) };
                        let missing =
                            |_| HipError::MissingFunction { path: path.to_path_buf(), function: stringify!($name) };
                        *symbol.map_err(missing)?
                    },
                )*})
            }
        }

        /// The compiler compares every signature with hip-sys's. (Its result type is an enumeration of 32 bits, which
        /// must not be given codes that it does not list: hence the number.)
        #[cfg(feature = "hip-sys")]
        const _: () = {
            $(const _: unsafe extern "C" fn($($arg),*) -> hip_sys::hiprt::hipError_t = hip_sys::hiprt::$name;)*
            assert!(size_of::<hip_sys::hiprt::hipError_t>() == size_of::<hipError_t>());
        };
    };
}

functions! {
    hipInit(c_uint);
    hipGetDeviceCount(*mut c_int);
    hipDriverGetVersion(*mut c_int);
    hipRuntimeGetVersion(*mut c_int);
    hipSetDevice(c_int);
    hipMalloc(*mut *mut c_void, usize);
    hipFree(*mut c_void);
    hipHostMalloc(*mut *mut c_void, usize, c_uint);
    hipHostFree(*mut c_void);
    hipMemcpy(*mut c_void, *const c_void, usize, hipMemcpyKind);
    hipMemcpyAsync(*mut c_void, *const c_void, usize, hipMemcpyKind, hipStream_t);
    hipModuleLoadData(*mut hipModule_t, *const c_void);
    hipModuleUnload(hipModule_t);
    hipModuleGetFunction(*mut hipFunction_t, hipModule_t, *const c_char);
    hipModuleLaunchKernel(hipFunction_t, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, hipStream_t,
        *mut *mut c_void, *mut *mut c_void);
    hipStreamCreateWithFlags(*mut hipStream_t, c_uint);
    hipStreamDestroy(hipStream_t);
    hipStreamSynchronize(hipStream_t);
    hipStreamWaitEvent(hipStream_t, hipEvent_t, c_uint);
    hipEventCreateWithFlags(*mut hipEvent_t, c_uint);
    hipEventDestroy(hipEvent_t);
    hipEventRecord(hipEvent_t, hipStream_t);
    hipEventElapsedTime(*mut f32, hipEvent_t, hipEvent_t);
}

/// Device properties, of whichever layout the driver has.
type PropertiesFn<T> = unsafe extern "C" fn(*mut T, c_int) -> hipError_t;

/// What we want to know of a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Properties {
    pub name: String,
    pub arch: String,
    pub compute_units: u32,
    pub wave_size: u32,
    pub memory_bytes: u64,
    pub lds_bytes: u64,
    /// Domain, bus and device on PCI.
    pub pci: [u32; 3],
}

/// A loaded driver.
pub struct Library {
    pub(super) f: Functions,
    old_properties: Option<PropertiesFn<hipDeviceProp_tR0000>>,
    new_properties: Option<PropertiesFn<hipDeviceProp_tR0600>>,
    path: PathBuf,
    emulated: bool,
    /// Keeps the functions valid. Never unloaded: drivers have threads of their own.
    _library: ManuallyDrop<libloading::Library>,
}

/// Symbol that barewave's own emulated driver exports.
const EMULATED_MARK: &[u8] = b"barewaveEmulatedDriver\0";

impl Library {
    /// The driver of this process, found at the first call.
    pub fn get() -> Result<Arc<Library>, HipError> {
        static FOUND: OnceLock<Result<Arc<Library>, HipError>> = OnceLock::new();
        FOUND.get_or_init(|| Library::find().map(Arc::new)).clone()
    }

    /// A driver at a certain place.
    pub fn open(path: &Path) -> Result<Library, HipError> {
        // SAFETY: loading runs the library's initialisers; a file that is called so is trusted to be a HIP driver.
        let library = unsafe { libloading::Library::new(path) };
        Library::new(library.map_err(|e| HipError::NotFound(format!("{}: {e}", path.display())))?, path)
    }

    fn new(library: libloading::Library, name: &Path) -> Result<Library, HipError> {
        let f = Functions::load(&library, name)?;
        let path = place_of(f.hipInit as *const c_void).unwrap_or_else(|| name.to_path_buf());
        // SAFETY: signatures of the HIP API.
        unsafe {
            Ok(Library {
                old_properties: library.get(b"hipGetDeviceProperties\0").ok().map(|s| *s),
                new_properties: library.get(b"hipGetDevicePropertiesR0600\0").ok().map(|s| *s),
                emulated: library.get::<*const c_void>(EMULATED_MARK).is_ok(),
                f,
                path,
                _library: ManuallyDrop::new(library),
            })
        }
    }

    fn find() -> Result<Library, HipError> {
        let mut problem = None;
        for name in NAMES {
            // SAFETY: as in `open`.
            match unsafe { libloading::Library::new(*name) } {
                Ok(library) => return Library::new(library, Path::new(name)),
                // A library that is there but cannot be loaded names something else as missing.
                Err(e) => {
                    let text = std::error::Error::source(&e).map_or(e.to_string(), |s| s.to_string());
                    if !text.contains(&format!("{name}: cannot open")) && cfg!(unix) {
                        problem.get_or_insert(text);
                    }
                }
            }
        }
        let folders = folders();
        for folder in &folders {
            for name in NAMES {
                let path = folder.join(name);
                if path.is_file() {
                    match Library::open(&path) {
                        Ok(library) => return Ok(library),
                        Err(e) => {
                            problem.get_or_insert(e.to_string());
                        }
                    }
                }
            }
        }
        let looked = folders.iter().map(|f| f.display().to_string()).collect::<Vec<_>>().join(", ");
        Err(HipError::NotFound(problem.unwrap_or(format!("{} is not in the loader's path nor in {looked}", NAMES[0]))))
    }

    /// The file that was loaded.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// True for barewave's own emulated driver.
    pub fn is_emulated(&self) -> bool {
        self.emulated
    }

    /// Turns a result code into an error.
    pub(super) fn check(&self, function: &'static str, code: hipError_t, context: &str) -> Result<(), HipError> {
        if code == code::hipSuccess {
            return Ok(());
        }
        Err(HipError::Call { function, code, context: context.to_string() })
    }

    /// Number of devices; an error when there is none.
    pub fn device_count(&self) -> Result<u32, HipError> {
        let none = |function: &str, code| {
            let reason = format!("{function}: {}", error_name(code).map_or(describe(code), str::to_string));
            HipError::NoDevice { path: self.path.clone(), reason }
        };
        // SAFETY: plain calls.
        let result = unsafe { (self.f.hipInit)(0) };
        if result != code::hipSuccess {
            return Err(none("hipInit", result));
        }
        let mut count = 0;
        // SAFETY: `count` outlives the call.
        let result = unsafe { (self.f.hipGetDeviceCount)(&mut count) };
        match u32::try_from(count) {
            Ok(n) if n > 0 && result == code::hipSuccess => Ok(n),
            _ => Err(none("hipGetDeviceCount", result)),
        }
    }

    /// Versions of driver and runtime as `major.minor.patch` of the driver's number.
    pub fn version(&self) -> Result<String, HipError> {
        let (mut version, f) = (0, &self.f);
        // SAFETY: `version` outlives the calls.
        self.check("hipDriverGetVersion", unsafe { (f.hipDriverGetVersion)(&mut version) }, "")?;
        if version < 10_000_000 {
            // Older drivers return a number of another kind here.
            // SAFETY: as above.
            self.check("hipRuntimeGetVersion", unsafe { (f.hipRuntimeGetVersion)(&mut version) }, "")?;
        }
        Ok(format!("{}.{}.{}", version / 10_000_000, version / 100_000 % 100, version % 100_000))
    }

    /// Properties of a device.
    pub(super) fn properties(&self, ordinal: u32) -> Result<Properties, HipError> {
        let count = self.device_count()?;
        let number = c_int::try_from(ordinal).ok().filter(|_| ordinal < count);
        let Some(number) = number else {
            return Err(HipError::NoSuchDevice { path: self.path.clone(), ordinal, count });
        };
        let unsigned = |v: c_int| u32::try_from(v).unwrap_or(0);
        /// Room behind the structure, for a driver that writes more than it should.
        #[repr(C)]
        struct Padded<T>(T, [u64; 256]);
        if let Some(f) = self.new_properties {
            let mut p = Padded(hipDeviceProp_tR0600::default(), [0; 256]);
            // SAFETY: the structure has the layout that the function's name promises.
            self.check("hipGetDevicePropertiesR0600", unsafe { f(&mut p.0, number) }, "")?;
            let p = p.0;
            return Ok(Properties {
                name: text_of(&p.name),
                arch: text_of(&p.gcnArchName),
                compute_units: unsigned(p.multiProcessorCount),
                wave_size: unsigned(p.warpSize),
                memory_bytes: p.totalGlobalMem as u64,
                lds_bytes: p.sharedMemPerBlock as u64,
                pci: [p.pciDomainID, p.pciBusID, p.pciDeviceID].map(unsigned),
            });
        }
        let Some(f) = self.old_properties else {
            return Err(HipError::MissingFunction { path: self.path.clone(), function: "hipGetDeviceProperties" });
        };
        let mut p = Padded(hipDeviceProp_tR0000::default(), [0; 256]);
        // SAFETY: the unsuffixed function keeps this layout.
        self.check("hipGetDeviceProperties", unsafe { f(&mut p.0, number) }, "")?;
        let p = p.0;
        Ok(Properties {
            name: text_of(&p.name),
            arch: text_of(&p.gcnArchName),
            compute_units: unsigned(p.multiProcessorCount),
            wave_size: unsigned(p.warpSize),
            memory_bytes: p.totalGlobalMem as u64,
            lds_bytes: p.sharedMemPerBlock as u64,
            pci: [p.pciDomainID, p.pciBusID, p.pciDeviceID].map(unsigned),
        })
    }

    /// Where a device is on PCI, as Linux writes it: `0000:03:00.0`.
    pub fn pci_address(&self, ordinal: u32) -> Result<String, HipError> {
        let [domain, bus, device] = self.properties(ordinal)?.pci;
        Ok(format!("{domain:04x}:{bus:02x}:{device:02x}.0"))
    }
}

/// The unversioned name first: whoever sets `LD_LIBRARY_PATH` means that one.
const NAMES: &[&str] = if cfg!(windows) {
    &["amdhip64.dll", "amdhip64_7.dll", "amdhip64_6.dll"]
} else {
    &["libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"]
};

/// Where ROCm installs, in order.
fn folders() -> Vec<PathBuf> {
    let sub = if cfg!(windows) { "bin" } else { "lib" };
    let named = ["ROCM_PATH", "HIP_PATH"].iter().filter_map(std::env::var_os).filter(|v| !v.is_empty());
    let mut folders: Vec<PathBuf> = named.map(|v| PathBuf::from(v).join(sub)).collect();
    if cfg!(not(windows)) {
        folders.push("/opt/rocm/lib".into());
        // Versions beside each other, newest first.
        let entries = std::fs::read_dir("/opt").into_iter().flatten().flatten();
        let mut versions: Vec<PathBuf> = entries
            .filter(|e| e.file_name().to_string_lossy().starts_with("rocm-"))
            .map(|e| e.path().join("lib"))
            .collect();
        versions.sort();
        folders.extend(versions.into_iter().rev());
    }
    folders
}

/// The file that a function was loaded from.
#[cfg(unix)]
fn place_of(function: *const c_void) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    // SAFETY: all zeroes is a value of this structure of pointers; the call fills it for an address in a loaded file.
    let name = unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(function, &mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        std::ffi::CStr::from_ptr(info.dli_fname)
    };
    let path = Path::new(std::ffi::OsStr::from_bytes(name.to_bytes()));
    Some(std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf()))
}

#[cfg(not(unix))]
fn place_of(_: *const c_void) -> Option<PathBuf> {
    None
}
