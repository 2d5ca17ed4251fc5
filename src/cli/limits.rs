//! Limits of what code and files from anywhere may use.

use super::{Failure, Result};
use barewave::emu::{LaunchOptions, TimeLimit};

/// Limits of a run on an emulated device.
#[derive(clap::Args)]
pub struct Limits {
    /// Stop a workgroup after this many instructions on an emulated device.
    #[arg(long, value_name = "N", default_value_t = LaunchOptions::default().max_instructions, value_parser = clap::value_parser!(u64).range(1..))]
    max_instructions: u64,
    /// Stop kernels on an emulated device after this many seconds (0: never).
    #[arg(long, value_name = "SECONDS", env = TimeLimit::VARIABLE, default_value_t)]
    timeout: TimeLimit,
    /// Memory for arrays and for an emulated device, such as 512M or 16G (default: that of this machine).
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    max_memory: Option<u64>,
}

/// A value on the command line that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadValue {
    /// Not a size of memory.
    #[error("'{0}' is not a number of bytes (such as 1048576, 512M, 16G)")]
    Bytes(String),
    /// Not a tolerance.
    #[error("'{0}' is not a tolerance: a number from 0 on")]
    Tolerance(String),
    /// Not a number.
    #[error("'{0}' is not a number")]
    Number(String),
    /// Not a number that pixels can be moved or divided by.
    #[error("'{0}' is not a finite number")]
    Finite(String),
    /// More than three extents.
    #[error("at most three numbers: X,Y,Z")]
    Extents,
    /// Nothing would run.
    #[error("an extent of 0 runs nothing")]
    NoExtent,
}

/// A number of bytes with K, M, G or T.
pub fn bytes(text: &str) -> std::result::Result<u64, BadValue> {
    let wrong = || BadValue::Bytes(text.into());
    let upper = text.trim_end_matches(['b', 'B', 'i']).to_ascii_uppercase();
    let (digits, shift) = match upper.strip_suffix(['K', 'M', 'G', 'T']) {
        Some(d) => (d, 10 * (1 + "KMGT".find(&upper[d.len()..]).unwrap_or(0))),
        None => (upper.as_str(), 0),
    };
    let n: u64 = digits.parse().map_err(|_| wrong())?;
    n.checked_mul(1 << shift).filter(|n| *n > 0).ok_or_else(wrong)
}

impl Limits {
    /// Options of launches; the clock starts now.
    pub fn options(&self, strict: bool) -> LaunchOptions {
        LaunchOptions {
            strict,
            max_instructions: self.max_instructions,
            deadline: self.timeout.deadline(),
            ..LaunchOptions::default()
        }
    }

    /// What arrays and an emulated device may take.
    pub fn memory(&self) -> u64 {
        self.max_memory.unwrap_or_else(of_this_machine)
    }

    /// What was asked for.
    pub fn asked_memory(&self) -> Option<u64> {
        self.max_memory
    }

    /// Fails when something needs more.
    pub fn check(&self, what: &str, bytes: u64) -> Result {
        if bytes <= self.memory() {
            return Ok(());
        }
        Err(Failure::new(format!(
            "{what} needs {bytes} bytes, the limit is {} (--max-memory raises it)",
            self.memory()
        )))
    }
}

#[cfg(unix)]
fn of_this_machine() -> u64 {
    // SAFETY: asks for two numbers.
    let (pages, size) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    match (u64::try_from(pages), u64::try_from(size)) {
        (Ok(n), Ok(s)) if n > 0 && s > 0 => n.saturating_mul(s),
        _ => 16 << 30,
    }
}

#[cfg(not(unix))]
fn of_this_machine() -> u64 {
    16 << 30
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        for (text, n) in [("7", 7), ("2K", 2048), ("512m", 512 << 20), ("16GiB", 16 << 30), ("1T", 1 << 40)] {
            assert_eq!(bytes(text), Ok(n), "{text}");
        }
        for text in ["", "0", "-1", "G", "1e9", "99999999999T", "12X"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }
}
