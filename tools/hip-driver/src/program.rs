//! Code that is handed over as a bare pointer: ELF files, whose size stands in their headers, and clang's offload
//! bundles of several of them. Also what compiled HIP programs do at start: they register a bundle and the host
//! functions that stand for its kernels.

use crate::api::{Code, Result, err, log};
use crate::module::{Function, Module};
use crate::state::{self, Device, lock};
use crate::types::dim3;
use barewave_emu::codeobj::{ElfFile, Entry, TargetId, code_objects};
use barewave_emu::hip::code::*;
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::{Arc, Mutex};

const BUNDLE: &[u8] = b"__CLANG_OFFLOAD_BUNDLE__";
const COMPRESSED: &[u8] = b"CCOB";

/// Reads a number at an offset from a pointer.
///
/// # Safety
/// The bytes are there.
unsafe fn number<const N: usize>(image: *const u8, at: usize) -> u64 {
    let mut bytes = [0; 8];
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(image.add(at), bytes.as_mut_ptr(), N) };
    u64::from_le_bytes(bytes)
}

/// Size of the ELF file at a pointer, by its headers: the end of the last thing they name.
///
/// # Safety
/// An ELF file is there.
unsafe fn elf_size(image: *const u8) -> u64 {
    // SAFETY: the caller's promise covers header and tables.
    unsafe {
        let (ph, sh) = (number::<8>(image, 32), number::<8>(image, 40));
        let (ph_size, ph_count) = (number::<2>(image, 54), number::<2>(image, 56));
        let (sh_size, sh_count) = (number::<2>(image, 58), number::<2>(image, 60));
        let mut end = 64.max(ph + ph_size * ph_count).max(sh + sh_size * sh_count);
        for i in 0..ph_count {
            let at = image.add((ph + i * ph_size) as usize);
            end = end.max(number::<8>(at, 8).saturating_add(number::<8>(at, 32)));
        }
        const NOBITS: u64 = 8;
        for i in 0..sh_count {
            let at = image.add((sh + i * sh_size) as usize);
            if number::<4>(at, 4) != NOBITS {
                end = end.max(number::<8>(at, 24).saturating_add(number::<8>(at, 32)));
            }
        }
        end
    }
}

/// Size of the bundle at a pointer: the end of its last entry.
///
/// # Safety
/// A whole bundle is there.
unsafe fn bundle_size(image: *const u8) -> u64 {
    // SAFETY: the caller's promise covers the table of entries.
    unsafe {
        let (mut at, mut end) = (BUNDLE.len() + 8, 0);
        for _ in 0..number::<8>(image, BUNDLE.len()) {
            end = end.max(number::<8>(image, at).saturating_add(number::<8>(image, at + 8)));
            at += 24 + number::<8>(image, at + 16) as usize;
        }
        end.max(at as u64)
    }
}

/// Size of the compressed bundle at a pointer; `None` for the oldest version, which does not tell.
///
/// # Safety
/// A whole bundle is there.
unsafe fn compressed_size(image: *const u8) -> Option<u64> {
    // SAFETY: the caller's promise.
    unsafe {
        match number::<2>(image, 4) {
            2 => Some(number::<4>(image, 8)),
            3 => Some(number::<8>(image, 8)),
            _ => None,
        }
    }
}

/// The ELF file for a device, out of a file, bundle or compressed bundle.
pub fn image_in<'a>(file: &'a [u8], device: &Device) -> Result<Cow<'a, [u8]>> {
    let refuse = |why: &dyn std::fmt::Display| {
        log(&why.to_string());
        Code(hipErrorInvalidImage)
    };
    let mut list = code_objects(file).map_err(|e| refuse(&e))?;
    let fits = |e: &Entry| {
        // A file that is no bundle is checked when it is loaded.
        e.target().is_empty() || TargetId::parse(e.target()).is_ok_and(|id| id.mismatch(&device.id).is_none())
    };
    match list.iter().position(fits) {
        Some(i) => Ok(list.swap_remove(i).data),
        None => {
            let names: Vec<&str> = list.iter().map(Entry::target).collect();
            log(&format!("no code for {} in the offload bundle, which has {}", device.id, names.join(", ")));
            err(hipErrorNoBinaryForGpu)
        }
    }
}

/// The ELF file for a device, out of what a pointer leads to.
///
/// # Safety
/// A whole ELF file or bundle is there, and stays while the result is used.
pub unsafe fn image_for<'a>(image: *const c_void, device: &Device) -> Result<Cow<'a, [u8]>> {
    let start = image.cast::<u8>();
    // SAFETY: the caller's promise; every image is longer than its magic number.
    unsafe {
        let magic = |n| std::slice::from_raw_parts(start, n);
        let size = if magic(4) == b"\x7fELF" {
            Some(elf_size(start))
        } else if magic(4) == COMPRESSED {
            compressed_size(start)
        } else if magic(4) == &BUNDLE[..4] && magic(BUNDLE.len()) == BUNDLE {
            Some(bundle_size(start))
        } else {
            None
        };
        let Some(size) = size else {
            log("an image that is neither ELF nor an offload bundle of a known version");
            return err(hipErrorInvalidImage);
        };
        image_in(std::slice::from_raw_parts(start, size as usize), device)
    }
}

/// Checks that a code object is for a device.
pub fn check_target(elf: &[u8], device: &Device) -> Result {
    let file = ElfFile::parse(elf).map_err(|e| {
        log(&e.to_string());
        Code(hipErrorInvalidImage)
    })?;
    if let Some(why) = file.target_id().mismatch(&device.id) {
        log(&why);
        return err(hipErrorNoBinaryForGpu);
    }
    Ok(())
}

/// A bundle that a program registered.
#[derive(Default)]
struct Registered {
    /// Address of the bundle.
    bundle: u64,
    /// Kernels by the address of the host function that stands for them.
    functions: BTreeMap<u64, String>,
    /// What was loaded so far, by device.
    modules: BTreeMap<i32, Arc<Module>>,
}

static REGISTERED: Mutex<BTreeMap<u64, Registered>> = Mutex::new(BTreeMap::new());

/// The kernel that a host function stands for, on the current device.
pub fn function_of(host: *const c_void) -> Result<Arc<Function>> {
    let device = state::current()?;
    let mut all = lock(&REGISTERED);
    let found = all.values_mut().find_map(|r| {
        let name = r.functions.get(&(host as u64))?.clone();
        Some((r, name))
    });
    let (r, name) = found.ok_or(Code(hipErrorInvalidDeviceFunction))?;
    let module = match r.modules.get(&device.ordinal) {
        Some(m) => m.clone(),
        None => {
            // SAFETY: registered by the program, whose image is there until it is unregistered.
            let elf = unsafe { image_for(r.bundle as *const c_void, device)? };
            let m = Arc::new(Module::load(device, &elf)?);
            r.modules.insert(device.ordinal, m.clone());
            m
        }
    };
    Function::of(module, &name).map(Arc::new).map_err(|_| Code(hipErrorInvalidDeviceFunction))
}

/// First word of what a program's data section holds for each bundle: magic number (low half), version; the address of
/// the bundle follows, and an unused word. "HIPF".
const WRAPPER_MAGIC: u32 = 0x4849_5046;

type Configuration = (dim3, dim3, usize, u64);

thread_local! {
    static CONFIGURATIONS: RefCell<Vec<Configuration>> = const { RefCell::new(Vec::new()) };
}

/// Registers a bundle; the handle is passed to the other functions.
///
/// # Safety
/// Called by a program's start code.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __hipRegisterFatBinary(wrapper: *const c_void) -> *mut c_void {
    // SAFETY: the start code passes its wrapper.
    let Ok(w) = (unsafe { crate::api::get(wrapper.cast::<[u64; 3]>()) }) else { return std::ptr::null_mut() };
    if w[0] as u32 != WRAPPER_MAGIC {
        log("a program registers device code in an unknown format");
        return std::ptr::null_mut();
    }
    let key = wrapper as u64;
    lock(&REGISTERED).insert(key, Registered { bundle: w[1], ..Registered::default() });
    key as *mut c_void
}

/// Registers the host function that stands for a kernel.
///
/// # Safety
/// Called by a program's start code.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __hipRegisterFunction(
    bundle: *mut c_void,
    host: *const c_void,
    _device_name: *const c_char,
    name: *const c_char,
    _threads: c_int,
    _tid: *mut c_void,
    _bid: *mut c_void,
    _block: *mut c_void,
    _grid: *mut c_void,
    _wave: *mut c_int,
) {
    if name.is_null() {
        return;
    }
    // SAFETY: the start code passes a name.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
    if let Some(r) = lock(&REGISTERED).get_mut(&(bundle as u64)) {
        r.functions.insert(host as u64, name);
    }
}

/// Registers a global variable of the device; they are found by name.
///
/// # Safety
/// Called by a program's start code.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __hipRegisterVar() {}

/// Forgets a bundle.
///
/// # Safety
/// Called by a program's end code.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __hipUnregisterFatBinary(bundle: *mut c_void) {
    // Nothing to give back in the child of a fork; a lock might be held for ever.
    if crate::fork::forked() {
        return;
    }
    lock(&REGISTERED).remove(&(bundle as u64));
}

hip! {
    fn __hipPushCallConfiguration(grid: dim3, block: dim3, shared: usize, stream: *mut c_void) {
        CONFIGURATIONS.with_borrow_mut(|c| c.push((grid, block, shared, stream as u64)));
        Ok(())
    }
    fn __hipPopCallConfiguration(grid: *mut dim3, block: *mut dim3, shared: *mut usize, stream: *mut *mut c_void) {
        let c = CONFIGURATIONS.with_borrow_mut(Vec::pop).ok_or(Code(hipErrorMissingConfiguration))?;
        crate::api::put(grid, c.0)?;
        crate::api::put(block, c.1)?;
        crate::api::put(shared, c.2)?;
        crate::api::put(stream, c.3 as *mut c_void)
    }
    fn hipConfigureCall(grid: dim3, block: dim3, shared: usize, stream: *mut c_void) {
        CONFIGURATIONS.with_borrow_mut(|c| c.push((grid, block, shared, stream as u64)));
        Ok(())
    }
    fn hipGetFuncBySymbol(function: *mut *mut c_void, host: *const c_void) {
        crate::api::put(function, state::FUNCTIONS.add(function_of(host)?))
    }
    fn hipModuleGetLoadingMode(mode: *mut c_uint) {
        // Eager.
        crate::api::put(mode, 1)
    }
}
