//! The boundary: exported functions, their results, and what happens when something goes wrong inside.

use barewave_emu::hip::{code, error_name};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

/// Result of a call that is not `hipSuccess`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Code(pub u32);

/// Result of the inside of a call.
pub type Result<T = ()> = std::result::Result<T, Code>;

/// An error with this code.
pub fn err<T>(code: u32) -> Result<T> {
    Err(Code(code))
}

/// `hipErrorInvalidValue`.
pub const INVALID: Code = Code(code::hipErrorInvalidValue);

thread_local! {
    static LAST: Cell<u32> = const { Cell::new(0) };
}

/// The last error of this thread, which is then forgotten.
pub fn take_last() -> u32 {
    LAST.replace(0)
}

/// The last error of this thread.
pub fn peek_last() -> u32 {
    LAST.get()
}

/// How much is written to stderr.
pub fn log_level() -> u32 {
    static LEVEL: OnceLock<u32> = OnceLock::new();
    *LEVEL.get_or_init(|| {
        let read = |name: &str| std::env::var(name).ok()?.trim().parse().ok();
        read("BAREWAVE_LOG").or_else(|| read("AMD_LOG_LEVEL")).unwrap_or(1)
    })
}

/// One line on stderr, unless the level is 0.
pub fn log(line: &str) {
    if log_level() >= 1 {
        eprintln!("barewave: {line}");
    }
}

/// Runs the inside of a call: turns its result into a code, remembers errors, stops panics, traces.
pub fn call(name: &str, arguments: impl Fn() -> String, inside: impl FnOnce() -> Result) -> u32 {
    if crate::fork::forked() {
        crate::fork::tell(name);
        LAST.set(code::hipErrorNotInitialized);
        return code::hipErrorNotInitialized;
    }
    let result = match catch_unwind(AssertUnwindSafe(inside)) {
        Ok(Ok(())) => 0,
        Ok(Err(Code(c))) => c,
        Err(payload) => {
            let text = payload.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("");
            log(&format!("internal error in {name}: {text}"));
            code::hipErrorUnknown
        }
    };
    if result != 0 && result != code::hipErrorNotReady {
        LAST.set(result);
    }
    if log_level() >= 3 {
        eprintln!("barewave: {name}({}) = {}", arguments(), error_name(result).unwrap_or("?"));
    }
    result
}

/// Exports functions of the HIP API. The inside of each may use pointers that the caller gave, and returns a
/// [`Result`].
macro_rules! hip {
    ($(fn $name:ident($($arg:ident: $t:ty),* $(,)?) $inside:block)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $t),*) -> u32 {
            #[allow(unused_mut)]
            let arguments = || {
                let mut text: Vec<String> = Vec::new();
                $(text.push(format!("{:?}", $arg));)*
                text.join(", ")
            };
            // SAFETY: the caller keeps the contract of the HIP API: pointers are null or valid.
            $crate::api::call(stringify!($name), arguments, || unsafe { $inside })
        }
    )*};
}

/// Writes a result where the caller wants it; null is an invalid value.
///
/// # Safety
/// The pointer is null or valid for a write.
pub unsafe fn put<T>(place: *mut T, value: T) -> Result {
    if place.is_null() {
        return Err(INVALID);
    }
    // SAFETY: the caller's promise; a misaligned place is no reason to fail.
    unsafe { place.write_unaligned(value) };
    Ok(())
}

/// Reads what the caller points to; null is an invalid value.
///
/// # Safety
/// The pointer is null or valid for a read.
pub unsafe fn get<T: Copy>(place: *const T) -> Result<T> {
    if place.is_null() {
        return Err(INVALID);
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { place.read_unaligned() })
}
