//! The command as its users call it.

mod attacks;
mod cli;
mod cycles;
mod lsp;
mod model;
mod pages;
#[cfg(unix)]
mod readme;
mod shapes;
mod trust;
mod waiting;

/// Bytes of the checksum behind a compiled file.
const SEAL: usize = 12;
