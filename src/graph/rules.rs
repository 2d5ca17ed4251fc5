//! The rules that a fused graph keeps, and what it says when one is broken.

use super::view::View;
use crate::tensor::DType;

/// A rule of [`FusedGraph::check`](super::fused::FusedGraph::check) that is broken: a mistake of whoever made the graph.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Broken {
    /// In a step.
    #[error("step {number} {step} ({kind}): {rule}")]
    Step {
        /// Its number.
        number: usize,
        /// Its name.
        step: String,
        /// Its kind.
        kind: &'static str,
        /// What is broken.
        rule: Box<Broken>,
    },
    /// In an operand of a step.
    #[error("operand {number} ({tensor}): {rule}")]
    Operand {
        /// Its number.
        number: usize,
        /// The tensor's name.
        tensor: String,
        /// What is broken.
        rule: Box<Broken>,
    },
    /// An output that no step writes.
    #[error("output {0} is never written")]
    Unwritten(String),
    /// A step without elements.
    #[error("has nothing to do")]
    NothingToDo,
    /// A result goes through a guard or an index table.
    #[error("writes through a guard or an index table")]
    IndirectWrite,
    /// A result has a stride of 0.
    #[error("writes elements twice")]
    WritesTwice,
    /// A result goes to a tensor that is not the step's to write.
    #[error("writes an input or a constant")]
    WritesConstant,
    /// The expression's type is not that of the tensor it is written to.
    #[error("the type of its expression is not the output's")]
    ExprType,
    /// An operand is read before a step writes it.
    #[error("is read before it is written")]
    ReadTooEarly,
    /// Guards and index tables are for pointwise steps.
    #[error("has a guard or an index table")]
    IndirectRead,
    /// Pointwise steps do not read the tensor they write.
    #[error("is in the tensor it writes")]
    ReadsOwnOutput,
    /// An epilogue operand has other dimensions than the output.
    #[error("has dimensions {operand:?}, the output {output:?}")]
    EpilogueDims {
        /// The operand's.
        operand: Vec<usize>,
        /// The output's.
        output: Vec<usize>,
    },
    /// The expression reads an operand that is not there.
    #[error("there is no operand {0}")]
    NoOperand(u32),
    /// The expression reads an operand of the kernel, which has other dimensions.
    #[error("the epilogue reads operand {0}, which has other dimensions")]
    EpilogueReads(u32),
    /// The expression takes an operand for another type.
    #[error("operand {number} is read as {dtype}")]
    ReadAs {
        /// The operand.
        number: u32,
        /// The type.
        dtype: DType,
    },
    /// The expression takes what the kind computes for another type, or for something where there is nothing.
    #[error("its expression takes what it computes for {used}; it is {computed}")]
    Acc {
        /// What the expression says.
        used: DType,
        /// What it is.
        computed: String,
    },
    /// Too few operands.
    #[error("needs {0} operands")]
    TooFewOperands(usize),
    /// An access without elements.
    #[error("is empty")]
    Empty,
    /// A guard of another rank than its view.
    #[error("its guard has another rank")]
    GuardRank,
    /// A guard's range makes no sense.
    #[error("guard {from}..{to} of dimension {dimension}")]
    Guard {
        /// Start of the range.
        from: usize,
        /// End of the range.
        to: usize,
        /// The dimension.
        dimension: usize,
    },
    /// An index table of the wrong type or dimensions.
    #[error("its index table has the wrong type or dimensions")]
    IndexTable,
    /// A view reaches out of its tensor.
    #[error("view {view} reaches {from}..={to} of {len} elements of {tensor}")]
    Outside {
        /// The view.
        view: View,
        /// The first element it reaches.
        from: i64,
        /// The last.
        to: i64,
        /// Elements of the tensor.
        len: usize,
        /// The tensor.
        tensor: String,
    },
    /// The operands of a kind do not fit each other.
    #[error("{0}")]
    Fit(String),
    /// What the operands give is not what the output has.
    #[error("its operands give {given}, the output is {output:?}")]
    Result {
        /// What they give.
        given: String,
        /// Dimensions of the output.
        output: Vec<usize>,
    },
    /// An operand's strides are not what the kind promises to kernels.
    #[error("{0}")]
    Layout(&'static str),
    /// A window that makes no sense.
    #[error("its window {0}")]
    Window(&'static str),
}
