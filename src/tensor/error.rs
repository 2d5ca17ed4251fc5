//! What can go wrong with tensor and image files.

use super::host::SizeMismatch;
use std::path::{Path, PathBuf};

/// Why a tensor could not be read, written or made. The message says which file or spec, and what to do.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// A file whose content is wrong.
    #[error("{}: {what}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// A file that the system refuses to read or write.
    #[error("cannot {verb} {}: {reason}", .path.display())]
    Io {
        /// What was tried.
        verb: String,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        reason: String,
    },
    /// Anything else: a spec, a value that does not fit.
    #[error("{0}")]
    Other(String),
}

/// What is wrong with the bytes of a tensor or picture, or with words about them; whoever knows the file adds it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Problem {
    /// Bytes that are not what their format says.
    #[error("{0}")]
    Damaged(String),
    /// A valid kind of something that is not read.
    #[error("{0}")]
    Unsupported(String),
    /// Something is too large.
    #[error("{0}")]
    Size(String),
    /// Types or shapes that do not fit.
    #[error("{0}")]
    Shape(String),
    /// A word or number that makes no sense.
    #[error("{0}")]
    Word(String),
    /// Something that cannot be written.
    #[error("{0}")]
    Write(String),
    /// Bytes that do not fit their shape.
    #[error(transparent)]
    Bytes(#[from] SizeMismatch),
}

impl Error {
    /// A file whose content is wrong.
    pub(crate) fn file(path: &Path, what: impl std::fmt::Display) -> Error {
        Error::File { path: path.into(), what: what.to_string() }
    }

    /// A file that the system refuses to read or write.
    pub(crate) fn io(verb: &str, path: &Path, e: &std::io::Error) -> Error {
        Error::Io { verb: verb.into(), path: path.into(), reason: e.to_string() }
    }

    /// Anything else.
    pub(crate) fn other(what: impl Into<String>) -> Error {
        Error::Other(what.into())
    }
}
