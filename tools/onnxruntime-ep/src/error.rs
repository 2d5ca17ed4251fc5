//! What can go wrong, with the words of the command line.

use barewave::compile::{self, LoadError};
use barewave::graph;
use barewave::runtime::{AnyShapeError, DeviceError, SessionError};
use barewave::tensor::SizeMismatch;
use ort_sys::OrtErrorCode;
use std::path::PathBuf;

/// Why a call of onnxruntime's is refused.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// onnxruntime itself refused something.
    #[error("onnxruntime: {0}")]
    Onnxruntime(String),
    /// Options that make no sense.
    #[error("option `{name}` of {provider}: {what}", provider = crate::NAME)]
    Option {
        /// Its name.
        name: String,
        /// What is wrong with it.
        what: String,
    },
    /// An onnxruntime that is too old.
    #[error("onnxruntime {0} is too old for this plugin: 1.24.4 or later is needed (`pip install -U onnxruntime`)")]
    Version(String),
    /// Something of the model that no tensor type of ours holds.
    #[error("{what} is no tensor of a supported type")]
    Type {
        /// What: a value, an initializer, an attribute.
        what: String,
    },
    /// A model for another device.
    #[error("EPContext node `{node}` is not readable: {what}; compile the model again")]
    Context {
        /// The node.
        node: String,
        /// What is wrong with it.
        what: String,
    },
    /// Shapes that are not known where they have to be.
    #[error(
        "an EPContext model holds code for fixed shapes, but input `{input}` is {described}; fix its dimensions \
         (SessionOptions.add_free_dimension_override_by_name)"
    )]
    Open {
        /// The input.
        input: String,
        /// Its declaration.
        described: String,
    },
    /// A file cannot be written or read.
    #[error("cannot {what} {path}: {source}")]
    Io {
        /// `read` or `write`.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The model cannot be lowered.
    #[error(transparent)]
    Graph(#[from] graph::Error),
    /// The model does not compile.
    #[error(transparent)]
    Compile(#[from] compile::Error),
    /// A compiled model cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A model does not run.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// A model does not compile or run for what it was given.
    #[error(transparent)]
    AnyShape(#[from] AnyShapeError),
    /// A device cannot be had, or has stopped.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A tensor's bytes do not fit its shape.
    #[error(transparent)]
    Bytes(#[from] SizeMismatch),
    /// A panic.
    #[error("internal error, please report it: {0}")]
    Panic(String),
}

impl Error {
    /// onnxruntime's number for it, by which Python picks the class of the exception.
    pub fn code(&self) -> OrtErrorCode {
        match self {
            Error::Option { .. } => OrtErrorCode::ORT_INVALID_ARGUMENT,
            Error::Session(SessionError::Input { .. } | SessionError::InputCount { .. }) => {
                OrtErrorCode::ORT_INVALID_ARGUMENT
            }
            _ => OrtErrorCode::ORT_EP_FAIL,
        }
    }
}
