//! What can go wrong with tensor and image files.

use std::path::Path;

/// Why a tensor could not be read, written or made. The message says which file or spec, and what to do.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);

impl Error {
    /// A file whose content is wrong.
    pub(crate) fn file(path: &Path, what: impl std::fmt::Display) -> Error {
        Error(format!("{}: {what}", path.display()))
    }

    /// A file that the system refuses to read or write.
    pub(crate) fn io(verb: &str, path: &Path, e: &std::io::Error) -> Error {
        Error(format!("cannot {verb} {}: {e}", path.display()))
    }

    /// Anything else.
    pub(crate) fn other(what: impl Into<String>) -> Error {
        Error(what.into())
    }
}
