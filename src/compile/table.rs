//! Tables of tiles in files.

use crate::kernels::{Tuning, TuningError};
use std::path::{Path, PathBuf};

/// Why a file is no table of tiles.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// There is nothing to read.
    #[error("cannot read {}: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// What was read is no table.
    #[error("{}: {error}", path.display())]
    Wrong {
        /// The file.
        path: PathBuf,
        /// The line, and what is wrong with it.
        error: TuningError,
    },
}

/// Reads a table of tiles ([`Tuning::parse`]) from a file.
///
/// # Errors
/// When the file cannot be read, or a line of it makes no sense: names the file and the line.
pub fn read_tuning(path: &Path) -> Result<Tuning, TableError> {
    let text =
        crate::mapped::read_text(path).map_err(|error| TableError::Unreadable { path: path.to_owned(), error })?;
    Tuning::parse(&text).map_err(|error| TableError::Wrong { path: path.to_owned(), error })
}
