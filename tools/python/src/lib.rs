//! The native half of the Python package `barewave`.
//!
//! Arrays cross as addresses: the Python half (`python/barewave/__init__.py`) makes them contiguous, keeps them alive during
//! a call, and allocates what comes back. Nothing here is meant to be called by anyone else. While the compiler or a device
//! works, other Python threads run; a panic of theirs becomes an exception like any error.

#![cfg(feature = "extension")]

mod forms;
mod launch;
mod session;
mod tools;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};

pyo3::create_exception!(
    barewave,
    BarewaveError,
    PyRuntimeError,
    "What a model, its inputs or a device are refused for."
);

/// An error of any kind, or a message, as an exception: with everything that caused it, as the command has it.
fn error<'a>(e: impl Into<Box<dyn Error + 'a>>) -> PyErr {
    BarewaveError::new_err(barewave::text::with_sources(&*e.into()))
}

/// Does work while other Python threads run.
fn work<T: Send>(py: Python<'_>, f: impl FnOnce() -> Result<T, PyErr> + Send) -> PyResult<T> {
    py.detach(|| {
        catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
            Err(error(format!("internal error, please report it: {text}")))
        })
    })
}

/// A contiguous array of the caller's: element type (`f32`), shape, address, bytes.
type RawArray = (String, Vec<usize>, usize, usize);

/// An input of a run.
#[derive(FromPyObject)]
enum RawInput {
    /// Numbers.
    Array(RawArray),
    /// Strings, with their shape.
    Texts((Vec<usize>, Vec<String>)),
}

#[pymodule]
fn _barewave(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("BarewaveError", m.py().get_type::<BarewaveError>())?;
    m.add("__version__", env!("CARGO_PKG_VERSION"))?;
    m.add_class::<session::NativeSession>()?;
    m.add_class::<session::NativeTensor>()?;
    m.add_function(wrap_pyfunction!(session::compile, m)?)?;
    m.add_function(wrap_pyfunction!(tools::assemble, m)?)?;
    m.add_function(wrap_pyfunction!(tools::disassemble, m)?)?;
    m.add_function(wrap_pyfunction!(tools::devices, m)?)?;
    m.add_function(wrap_pyfunction!(tools::isa, m)?)?;
    m.add_function(wrap_pyfunction!(launch::launch, m)?)?;
    Ok(())
}
