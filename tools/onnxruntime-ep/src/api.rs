//! onnxruntime's functions, with results instead of statuses.

use crate::abi::OrtEpApi;
use crate::error::Error;
use barewave::text::with_sources;
use ort_sys::*;
use std::ffi::{CStr, CString};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;

/// The version of `OrtApi` that is asked for: that of onnxruntime 1.24.
const API: u32 = 24;

/// An older version, good for making the status that says that onnxruntime is too old.
const OLD_API: u32 = 17;

/// The functions of the onnxruntime that loaded this plugin.
#[derive(Clone, Copy)]
pub struct Api {
    /// For everybody.
    pub ort: &'static OrtApi,
    /// For plugins.
    pub ep: &'static OrtEpApi,
    /// True when fused nodes get what their inner graphs read of the graphs around: found missing in 1.24 and 1.25, there in
    /// 1.27.
    pub passes_implicit: bool,
}

/// Calls a function of `OrtApi` or `OrtEpApi` that returns a status.
macro_rules! call {
    ($api:expr, $table:ident.$name:ident($($arg:expr),* $(,)?)) => {
        // SAFETY: the arguments are handles that onnxruntime gave for the time of this call, and places for its results.
        $api.check(unsafe { ($api.$table.$name)($($arg),*) })
    };
}

/// Calls a function that gives its result through its last argument.
macro_rules! get {
    ($api:expr, $name:ident($($arg:expr),* $(,)?), $start:expr) => {{
        let mut out = $start;
        $crate::api::call!($api, ort.$name($($arg,)* &mut out)).map(|()| out)
    }};
}

pub(crate) use {call, get};

impl Api {
    /// The functions, when this onnxruntime is new enough. The error is the status to return.
    ///
    /// # Safety
    /// `base` is what onnxruntime gave.
    pub unsafe fn new(base: *const OrtApiBase) -> Result<Api, OrtStatusPtr> {
        // SAFETY: the caller's promise; tables live as long as the library.
        unsafe {
            let base = &*base;
            let version = text((base.GetVersionString)());
            let numbers: Vec<u32> = version.split('.').map_while(|n| n.parse().ok()).collect();
            let passes_implicit = numbers >= vec![1, 27];
            if let Some(ort) = (base.GetApi)(API).as_ref()
                && let Some(ep) = (ort.GetEpApi)().cast::<OrtEpApi>().as_ref()
            {
                return Ok(Api { ort, ep, passes_implicit });
            }
            let old = (base.GetApi)(OLD_API).as_ref();
            Err(old.map_or(OrtStatusPtr(null_mut()), |ort| status(ort, &Error::Version(version))))
        }
    }

    /// A status as a result.
    pub fn check(&self, status: OrtStatusPtr) -> Result<(), Error> {
        if status.0.is_null() {
            return Ok(());
        }
        // SAFETY: a status that was just given; it is released once.
        unsafe {
            let message = text((self.ort.GetErrorMessage)(status.0));
            (self.ort.ReleaseStatus)(status.0);
            Err(Error::Onnxruntime(message))
        }
    }

    /// Runs the body of a function that onnxruntime calls: errors and panics become statuses.
    pub fn guard(&self, f: impl FnOnce() -> Result<(), Error>) -> OrtStatusPtr {
        match catch(f) {
            Ok(()) => OrtStatusPtr(null_mut()),
            Err(e) => status(self.ort, &e),
        }
    }

    /// A line in onnxruntime's log.
    pub fn log(&self, logger: *const OrtLogger, level: OrtLoggingLevel, message: &str) {
        let message = c_string(message);
        let (file, function) = (c"barewave", c"barewave");
        // A log that fails has nobody to tell.
        let _ =
            call!(self, ort.Logger_LogMessage(logger, level, message.as_ptr(), file.as_ptr(), 0, function.as_ptr()));
    }

    /// Names and values of a list of pairs.
    pub fn pairs(&self, list: *const OrtKeyValuePairs) -> Vec<(String, String)> {
        let (mut keys, mut values, mut count) = (std::ptr::null(), std::ptr::null(), 0);
        if list.is_null() {
            return Vec::new();
        }
        // SAFETY: the arrays live as long as the list, and are copied here.
        unsafe {
            (self.ort.GetKeyValuePairs)(list, &mut keys, &mut values, &mut count);
            (0..count).map(|i| (text(*keys.add(i)), text(*values.add(i)))).collect()
        }
    }

    /// Makes a list of pairs for the time of a call.
    pub fn with_pairs<T>(&self, pairs: &[(&str, &str)], f: impl FnOnce(*const OrtKeyValuePairs) -> T) -> T {
        let mut list = null_mut();
        // SAFETY: the list is made, filled and released here; strings are copied.
        unsafe {
            (self.ort.CreateKeyValuePairs)(&mut list);
            for (k, v) in pairs {
                (self.ort.AddKeyValuePair)(list, c_string(k).as_ptr(), c_string(v).as_ptr());
            }
            let out = f(list);
            (self.ort.ReleaseKeyValuePairs)(list);
            out
        }
    }
}

/// Runs something; a panic is an error.
pub fn catch<T>(f: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| {
        let message = panic.downcast_ref::<String>().map(String::as_str);
        Err(Error::Panic(message.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no message").into()))
    })
}

/// An error as a status.
fn status(ort: &OrtApi, e: &Error) -> OrtStatusPtr {
    let message = c_string(&with_sources(e));
    // SAFETY: the message is copied.
    unsafe { (ort.CreateStatus)(e.code(), message.as_ptr()) }
}

/// Text for C; a zero byte ends it.
pub fn c_string(s: &str) -> CString {
    let end = s.find('\0').unwrap_or(s.len());
    CString::new(&s[..end]).unwrap_or_default()
}

/// Text from C; nothing for a null pointer.
///
/// # Safety
/// `p` is null or the start of a string that ends with a zero.
pub unsafe fn text(p: *const c_char) -> String {
    if p.is_null() {
        return String::new();
    }
    // SAFETY: the caller's promise.
    barewave::text::printable(&unsafe { CStr::from_ptr(p) }.to_string_lossy()).into_owned()
}

/// What lies behind a pointer that onnxruntime passes back.
///
/// # Safety
/// `p` was made by `Box::into_raw` of this type (whose first field is the structure that onnxruntime sees).
pub unsafe fn behind<'a, T>(p: *const impl Sized) -> &'a T {
    // SAFETY: the caller's promise.
    unsafe { &*p.cast::<T>() }
}

/// Gives back what was made for onnxruntime.
///
/// # Safety
/// As [`behind`], and nobody uses it any more.
pub unsafe fn release<T>(p: *mut impl Sized) {
    if !p.is_null() {
        // SAFETY: the caller's promise.
        let owned = unsafe { Box::from_raw(p.cast::<T>()) };
        // A destructor that panics must not do so across the boundary.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(owned)));
    }
}

/// A null pointer for results.
pub fn none<T>() -> *mut T {
    null_mut()
}
