//! Initialisation, versions, errors.

use crate::api::{Result, err, put};
use crate::state;
use crate::types::hipChannelFormatDesc;
use barewave_emu::hip::code::*;
use barewave_emu::hip::{error_name, error_text, errors};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

/// Version of the HIP API that this library behaves like: 7.0.
const VERSION: c_int = 70_000_000;

/// Texts with the zero that C wants, by code.
fn texts() -> &'static BTreeMap<u32, (CString, CString)> {
    static TEXTS: OnceLock<BTreeMap<u32, (CString, CString)>> = OnceLock::new();
    let c = |s: &str| CString::new(s).unwrap_or_default();
    TEXTS.get_or_init(|| errors().map(|(code, name, text)| (code, (c(name), c(text)))).collect())
}

fn name_pointer(code: u32) -> *const c_char {
    texts().get(&code).map_or(c"hipErrorUnknown".as_ptr(), |t| t.0.as_ptr())
}

fn text_pointer(code: u32) -> *const c_char {
    texts().get(&code).map_or(c"unknown error".as_ptr(), |t| t.1.as_ptr())
}

/// Tells that this is no GPU: barewave's `--device auto` passes over a library that has this symbol. Gives its version.
#[unsafe(no_mangle)]
pub extern "C" fn barewaveEmulatedDriver() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// The last error of this thread, which is then forgotten.
#[unsafe(no_mangle)]
pub extern "C" fn hipGetLastError() -> u32 {
    crate::api::take_last()
}

/// The last error of this thread.
#[unsafe(no_mangle)]
pub extern "C" fn hipPeekAtLastError() -> u32 {
    crate::api::peek_last()
}

/// The last error of this thread, which is then forgotten.
#[unsafe(no_mangle)]
pub extern "C" fn hipExtGetLastError() -> u32 {
    crate::api::take_last()
}

/// Name of an error.
#[unsafe(no_mangle)]
pub extern "C" fn hipGetErrorName(code: u32) -> *const c_char {
    name_pointer(code)
}

/// Description of an error.
#[unsafe(no_mangle)]
pub extern "C" fn hipGetErrorString(code: u32) -> *const c_char {
    text_pointer(code)
}

/// Address of a function of this library by its name.
#[cfg(not(unix))]
fn address_of(_: &CStr) -> *mut c_void {
    std::ptr::null_mut()
}

/// Address of a function of this library by its name.
#[cfg(unix)]
fn address_of(name: &CStr) -> *mut c_void {
    // SAFETY: `dladdr` fills the structure for an address of this library; opening it again only counts it.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        let own = barewaveEmulatedDriver as *const c_void;
        if libc::dladdr(own, &mut info) == 0 || info.dli_fname.is_null() {
            return std::ptr::null_mut();
        }
        let library = libc::dlopen(info.dli_fname, libc::RTLD_NOW | libc::RTLD_NOLOAD);
        if library.is_null() {
            return std::ptr::null_mut();
        }
        let found = libc::dlsym(library, name.as_ptr());
        libc::dlclose(library);
        found
    }
}

/// Names of functions by the numbers of AMD's tracer: there is no tracer here.
#[unsafe(no_mangle)]
pub extern "C" fn hipApiName(_id: u32) -> *const c_char {
    c"unknown".as_ptr()
}

/// Takes a tracer's callback, which is never called.
#[unsafe(no_mangle)]
pub extern "C" fn hipRegisterTracerCallback(_callback: *const c_void) {}

/// Describes a texel.
#[unsafe(no_mangle)]
pub extern "C" fn hipCreateChannelDesc(x: c_int, y: c_int, z: c_int, w: c_int, kind: c_uint) -> hipChannelFormatDesc {
    hipChannelFormatDesc { channels: [x, y, z, w], kind }
}

fn proc_address(symbol: *const c_char, place: *mut *mut c_void) -> Result {
    if symbol.is_null() || place.is_null() {
        return Err(crate::api::INVALID);
    }
    // SAFETY: the caller's word.
    let name = unsafe { CStr::from_ptr(symbol) };
    // Programs of HIP 6 and later mean the newer layout of the properties.
    let name = match name.to_bytes() {
        b"hipGetDeviceProperties" => c"hipGetDevicePropertiesR0600",
        b"hipChooseDevice" => c"hipChooseDeviceR0600",
        _ => name,
    };
    let found = if name.to_bytes().starts_with(b"hip") { address_of(name) } else { std::ptr::null_mut() };
    // SAFETY: not null, and the caller's word.
    unsafe { put(place, found)? };
    if found.is_null() { err(hipErrorNotFound) } else { Ok(()) }
}

hip! {
    fn hipInit(flags: c_uint) {
        if flags != 0 {
            return Err(crate::api::INVALID);
        }
        if state::devices().is_empty() { err(hipErrorNoDevice) } else { Ok(()) }
    }
    fn hipDriverGetVersion(version: *mut c_int) {
        put(version, VERSION)
    }
    fn hipRuntimeGetVersion(version: *mut c_int) {
        put(version, VERSION)
    }
    fn hipDrvGetErrorName(code: u32, text: *mut *const c_char) {
        put(text, if error_name(code).is_some() { name_pointer(code) } else { std::ptr::null() })?;
        if error_name(code).is_some() { Ok(()) } else { Err(crate::api::INVALID) }
    }
    fn hipDrvGetErrorString(code: u32, text: *mut *const c_char) {
        put(text, if error_text(code).is_some() { text_pointer(code) } else { std::ptr::null() })?;
        if error_text(code).is_some() { Ok(()) } else { Err(crate::api::INVALID) }
    }
    fn hipGetProcAddress(symbol: *const c_char, place: *mut *mut c_void, _version: c_int, _flags: u64,
        status: *mut c_uint) {
        let result = proc_address(symbol, place);
        if !status.is_null() {
            put(status, c_uint::from(result.is_err()))?;
        }
        result
    }
}
