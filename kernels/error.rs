//! Why a step has no kernel.

use crate::tensor::DType;

/// What is not supported, and what is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// An operation that elements of the type do not have.
    #[error("{op} of {dtype} elements has no kernel")]
    Operation {
        /// What is to be computed.
        op: String,
        /// The elements' type.
        dtype: DType,
    },
    /// Factors of different types, or of one without products.
    #[error("operands of {0} and {1} elements are not multiplied")]
    Factors(DType, DType),
    /// A type without reductions.
    #[error("elements of type {0} are not reduced")]
    Reduction(DType),
    /// Something else where floats are needed.
    #[error("{0} elements; floats are supported")]
    NotFloat(DType),
    /// A factor whose neighbours lie apart in both directions.
    #[error("operand {0} has neither dense rows nor dense columns")]
    NotDense(usize),
    /// An operand with negative strides.
    #[error("operand {0} is read backwards; products and convolutions take positive strides")]
    Backwards(usize),
    /// A window with more coordinates than a mask has bits.
    #[error("window {0:?} is too large: its extents may add up to 31")]
    Window(Vec<usize>),
    /// A tensor beyond what offsets reach.
    #[error(
        "a step reaches over {reach} bytes of tensor {name}, which has {bytes}; kernels address less than 1 GiB of each tensor, and this \
         step is not cut: give a smaller batch or a shorter sequence, or compute in 16 bits (--dtype)"
    )]
    TooLarge {
        /// The tensor.
        name: String,
        /// Its size.
        bytes: usize,
        /// What the step reaches over.
        reach: usize,
    },
    /// A tuning that asks for what is not there.
    #[error(
        "the tuning asks for a tile of {}x{}x{} and {parts} workgroups that share the depth, which this product has no kernel for; \
         bench gemm and conv --explain list what there is",
        tile[0], tile[1], tile[2]
    )]
    Tuned {
        /// Rows, columns and depth of the tile.
        tile: [u32; 3],
        /// Workgroups that share the depth.
        parts: u32,
    },
    /// A line beyond what counters reach.
    #[error("{0:?} elements are gone through in a row; kernels count less than 2^31")]
    TooLong(Vec<usize>),
    /// A layer whose state does not fit into LDS, or is of no type that is computed in f32.
    #[error("a recurrent layer of {units} units of type {dtype} has no kernel")]
    Recurrent {
        /// Units of the layer.
        units: usize,
        /// Type of its state.
        dtype: DType,
    },
    /// A graph that breaks its own rules: a defect of barewave.
    #[error("{0}")]
    Malformed(&'static str),
}

/// A result of the rooms of kernels.
pub(super) type Res<T> = Result<T, Reason>;
