//! Why a session refuses.

use super::device::DeviceError;
use crate::tensor::{Problem, SizeMismatch};
use crate::verify;

/// Why a run could not be made.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The device refused.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// An input does not fit the model.
    #[error("input '{name}' must be {expected}, not {given}")]
    Input {
        /// Input.
        name: String,
        /// Type and shape the model takes.
        expected: String,
        /// What was given.
        given: String,
    },
    /// The model was compiled for several shapes, but not for these.
    #[error("the model was not compiled for {given}; it was for {}", .known.join(", or "))]
    Shapes {
        /// Types and shapes that were given.
        given: String,
        /// Those of each plan.
        known: Vec<String>,
    },
    /// An input has another value than the model was compiled for.
    #[error(
        "the model was compiled for one value of input '{name}', which decides shapes or branches, and this is another"
    )]
    Fixed {
        /// Input.
        name: String,
    },
    /// Number of inputs.
    #[error("the model takes {expected} inputs ({names}), not {given}")]
    InputCount {
        /// How many the model takes, of those that are not bound to device memory.
        expected: usize,
        /// Their names.
        names: String,
        /// How many were given.
        given: usize,
    },
    /// An output does not fit the memory given for it.
    #[error("output '{name}' is {expected}, the memory given for it {given}")]
    Output {
        /// Output.
        name: String,
        /// Type and shape the model gives.
        expected: String,
        /// What it should go to.
        given: String,
    },
    /// Number of outputs.
    #[error("the model gives {expected} outputs to host memory, not {given}")]
    OutputCount {
        /// How many the model gives, of those that are not bound to device memory.
        expected: usize,
        /// How many were wanted.
        given: usize,
    },
    /// An output was bound to memory that is another tensor's.
    #[error(
        "output '{output}' is bound to memory that holds '{other}', too; it may only lie exactly where an input does that is no longer needed when it is written"
    )]
    Overlap {
        /// Output.
        output: String,
        /// The input or output whose memory it is.
        other: String,
    },
    /// No input or output of that number.
    #[error("the model has no {what} number {number}")]
    NoPort {
        /// `input` or `output`.
        what: &'static str,
        /// Number asked for, from 0.
        number: usize,
    },
    /// A tensor's bytes do not fit its shape.
    #[error(transparent)]
    Bytes(#[from] SizeMismatch),
    /// There is no run to finish.
    #[error("no run was started")]
    NotStarted,
    /// Strings that cannot be told apart.
    #[error(transparent)]
    Words(#[from] Problem),
    /// The machine code is not fit to run.
    #[error(transparent)]
    Code(#[from] verify::Refused),
    /// The plan makes no sense.
    #[error("the launch plan is damaged: {0}")]
    Plan(String),
}
