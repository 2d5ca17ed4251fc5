//! What can go wrong while reading a model.

use std::path::PathBuf;

/// Why a model or tensor file could not be read. Each message says what, where, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be opened or read.
    #[error("cannot read {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The file is something else, or damaged.
    #[error("{path} is not a readable ONNX file: {reason}")]
    NotOnnx {
        /// The file.
        path: PathBuf,
        /// What was found and what to do.
        reason: String,
    },
    /// The structure is valid, its content is not.
    #[error("{path}: {what}: {reason}")]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The part of the model: a tensor, node or attribute.
        what: String,
        /// What is wrong with it.
        reason: String,
    },
}
