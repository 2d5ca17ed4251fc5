//! Errors of the HIP device.

use super::describe;
use std::path::PathBuf;

/// What can go wrong with HIP.
#[derive(Clone, Debug, thiserror::Error)]
pub enum HipError {
    /// No driver library was found.
    #[error("no HIP driver: {0}")]
    NotFound(String),
    /// A library lacks a function.
    #[error("{} is no usable HIP driver: it has no {function}", path.display())]
    MissingFunction {
        /// The library.
        path: PathBuf,
        /// The function.
        function: &'static str,
    },
    /// The driver works and has no device.
    #[error("the HIP driver {} found no device ({reason})", path.display())]
    NoDevice {
        /// The library.
        path: PathBuf,
        /// What it returned.
        reason: String,
    },
    /// A device number beyond the last.
    #[error("there is no HIP device {ordinal}: the driver {} found {count}", path.display())]
    NoSuchDevice {
        /// The library.
        path: PathBuf,
        /// Number asked for.
        ordinal: u32,
        /// Number of devices.
        count: u32,
    },
    /// A device that we have no tables for.
    #[error("HIP device {ordinal} is {arch}, which this version has no tables for")]
    UnknownArch {
        /// Number.
        ordinal: u32,
        /// `gcnArchName`.
        arch: String,
    },
    /// A call failed.
    #[error("{function} failed: {}{}", describe(*code), if context.is_empty() { String::new() } else { format!(" ({context})") })]
    Call {
        /// Function.
        function: &'static str,
        /// Result code.
        code: u32,
        /// What it was about.
        context: String,
    },
}
