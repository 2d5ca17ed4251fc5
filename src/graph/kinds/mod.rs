//! The kinds of steps. Everything that the graph asks of a kind is a method of [`Kind`], implemented in the kind's own
//! file; its kernels are written in [`crate::kernels`].

mod attention;
mod computed;
mod conv;
mod extremes;
mod fourier;
mod gated;
mod lasts;
mod matmul;
mod nibbles;
mod normalize;
mod normed;
mod packed;
mod parts;
mod pointwise;
mod pool;
pub mod program;
pub mod recurrent;
mod reduce;
mod resample;
mod scaled;
mod scan;
mod scatter;
mod softmax;
mod sparse;
mod standardized;
mod topk;
mod window;

pub use attention::{Attention, MadeLines, Undefined};
pub use computed::{ComputedLines, LineRule};
pub use conv::{Before, Conv, Summand};
pub use extremes::Extremes;
pub use fourier::{Fourier, Passes};
pub use gated::Gated;
pub use lasts::Lasts;
pub use nibbles::Nibbles;
pub use normalize::Normalize;
pub use normed::Normed;
pub use packed::{NormedRows, Packed, Zeros};
pub use parts::Parts;
pub use pool::{Pool, PoolOp};
pub use program::{Coder, Program, Scattered};
pub use recurrent::Recurrent;
pub use reduce::{Reduce, ReduceOp};
pub use resample::{Resample, Taps};
pub use scaled::Scaled;
pub use scan::Scan;
pub use scatter::{MadeUpdates, Scatter};
pub use softmax::Softmax;
pub use sparse::Sparse;
pub use standardized::{MadeRows, Standardized};
pub use topk::TopK;
pub use window::Window;

use super::fused::Step;
use super::interpret::{self, Data, Operands};
use super::rules::Broken;
use super::view::View;
use crate::tensor::DType;
use std::fmt;
use std::ops::{Deref, Range};

/// The type of sums of products of a type's elements: those of 8 bits are summed in 32 bits.
fn summed(t: DType) -> DType {
    match t {
        DType::I8 => DType::I32,
        t if t.is_small_float() => DType::F32,
        t => t,
    }
}

/// What a step computes. Operand numbers refer to [`Step::inputs`]; `O` is the view of [`Step::output`].
#[derive(Clone, Debug, PartialEq)]
pub enum StepKind {
    /// `O[c] = expr(inputs at c)`. All views have the dimensions of `O`, merged as far as possible; any rank.
    Pointwise,
    /// Convolution.
    Conv(Conv),
    /// `O[b..,m,n] = sum over k of in0[b..,m,k] * in1[b..,k,n]`; batch dimensions are broadcast by stride 0 and merged as
    /// far as possible (possibly none).
    MatMul,
    /// The same where one factor holds two of every four elements along k.
    Sparse(Sparse),
    /// The same where both factors have a scale for each block of elements along k.
    Scaled(Scaled),
    /// The same where both factors are integers of 4 bits, two in a byte.
    Nibbles(Nibbles),
    /// A product of pairs of columns.
    Gated(Gated),
    /// Pooling.
    Pool(Pool),
    /// Reduction.
    Reduce(Reduce),
    /// The smallest and the largest element.
    Extremes(Extremes),
    /// Fourier transforms.
    Fourier(Fourier),
    /// Running sums or products.
    Scan(Scan),
    /// Softmax.
    Softmax(Softmax),
    /// Attention.
    Attention(Attention),
    /// A product with packed weights.
    Packed(Packed),
    /// Normalisation.
    Normalize(Normalize),
    /// Softmax or a normalisation of lines that an expression makes.
    ComputedLines(ComputedLines),
    /// A matrix product and the normalisation of its rows.
    Normed(Normed),
    /// A matrix product of normalised rows.
    Standardized(Standardized),
    /// A program for each element.
    Program(Program),
    /// A recurrent layer.
    Recurrent(Recurrent),
    /// Images that are resized.
    Resample(Resample),
    /// Places of the best elements of lines.
    TopK(TopK),
    /// Elements that are replaced at places along an axis.
    Scatter(Scatter),
    /// Which update of a place is the last one.
    Lasts(Lasts),
    /// Rows of several parts, or parts of rows.
    Parts(Parts),
}

impl StepKind {
    /// What it says of rows that it normalises and multiplies.
    pub fn standardized(&self) -> Option<&Standardized> {
        match self {
            StepKind::Standardized(s) | StepKind::Gated(Gated { rows: Some(s) }) => Some(s),
            _ => None,
        }
    }

    /// A matrix product, whether of single columns or of pairs.
    pub fn is_product(&self) -> bool {
        matches!(self, StepKind::MatMul | StepKind::Gated(Gated { rows: None }))
    }

    /// Columns of a product for each of the results.
    pub fn of_column(&self) -> usize {
        1 + usize::from(self.pairs())
    }
}

/// The one place where a kind is looked up.
impl Deref for StepKind {
    type Target = dyn Kind;
    fn deref(&self) -> &(dyn Kind + 'static) {
        match self {
            StepKind::Pointwise => &pointwise::Pointwise,
            StepKind::Conv(k) => k,
            StepKind::MatMul => &matmul::MatMul,
            StepKind::Sparse(k) => k,
            StepKind::Scaled(k) => k,
            StepKind::Nibbles(k) => k,
            StepKind::Gated(k) => k,
            StepKind::Pool(k) => k,
            StepKind::Reduce(k) => k,
            StepKind::Extremes(k) => k,
            StepKind::Fourier(k) => k,
            StepKind::Scan(k) => k,
            StepKind::Softmax(k) => k,
            StepKind::Attention(k) => k,
            StepKind::Packed(k) => k,
            StepKind::Normalize(k) => k,
            StepKind::ComputedLines(k) => k,
            StepKind::Normed(k) => k,
            StepKind::Standardized(k) => k,
            StepKind::Program(k) => k,
            StepKind::Recurrent(k) => k,
            StepKind::Resample(k) => k,
            StepKind::TopK(k) => k,
            StepKind::Scatter(k) => k,
            StepKind::Lasts(k) => k,
            StepKind::Parts(k) => k,
        }
    }
}

/// An operand of a kind: its type and the dimensions of its view.
pub type Operand<'a> = (DType, &'a [usize]);

/// What a kind computes ([`Op::Acc`](super::expr::Op::Acc) of the step's expression), as far as its operands tell.
#[derive(Clone, Debug, PartialEq)]
pub struct Inferred {
    /// Element type.
    pub dtype: DType,
    /// Dimensions of the output; `None` where a window decides.
    pub dims: Vec<Option<usize>>,
}

impl Inferred {
    fn new(dtype: DType, known: &[usize]) -> Inferred {
        Inferred { dtype, dims: known.iter().copied().map(Some).collect() }
    }

    /// True when the output may have these dimensions.
    pub fn allows(&self, dims: &[usize]) -> bool {
        self.dims.len() == dims.len() && self.dims.iter().zip(dims).all(|(i, d)| i.is_none_or(|i| i == *d))
    }
}

impl fmt::Display for Inferred {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dims: Vec<String> = self.dims.iter().map(|d| d.map_or("?".into(), |d| d.to_string())).collect();
        write!(f, "[{}]", dims.join(", "))
    }
}

/// A kind of step.
pub trait Kind {
    /// A short lower-case name for dumps and kernel names.
    fn name(&self) -> &'static str;

    /// How many of the first [`Step::inputs`] the kernel's main part reads; the others belong to the epilogue.
    fn operands(&self) -> usize;

    /// What it computes from operands, for an output of `rank` dimensions; `None` when the expression is all there is.
    fn infer(&self, operands: &[Operand<'_>], rank: usize) -> Result<Option<Inferred>, Broken>;

    /// Checks what else the kind promises to its kernels; that the operands give the output is known.
    fn check(&self, _step: &Step) -> Result<(), Broken> {
        Ok(())
    }

    /// What it computes, for all coordinates of the output in row-major order; nothing where `infer` says nothing.
    fn interpret(&self, operands: &Operands<'_>) -> Result<Option<Data>, interpret::Error>;

    /// It computes two values for each element of the output ([`Op::Paired`](super::expr::Op::Paired)).
    fn pairs(&self) -> bool {
        false
    }

    /// The second of these, for all coordinates of the output in row-major order.
    fn interpret_paired(&self, _operands: &Operands<'_>) -> Result<Option<Data>, interpret::Error> {
        Ok(None)
    }

    /// What a part of the output along dimension `d` of `rank` needs of operand `i`: a part of the same place along the dimension given,
    /// or all of it; `None` where the kind does not compute parts along `d`.
    fn cut(&self, _i: usize, _d: usize, _rank: usize) -> Option<Option<usize>> {
        None
    }

    /// What it writes in the tensor of the output beside the output, or before it in its place.
    fn beside(&self) -> Option<&View> {
        None
    }

    /// That, in row-major order.
    fn interpret_beside(&self, _operands: &Operands<'_>) -> Result<Option<Data>, interpret::Error> {
        Ok(None)
    }

    /// Operands that the step itself writes before it reads them.
    fn filled(&self) -> &'static [usize] {
        &[]
    }

    /// What it writes in each of those, in row-major order of the operand's view.
    fn fill(&self, _operands: &Operands<'_>) -> Result<Vec<Data>, interpret::Error> {
        Ok(Vec::new())
    }

    /// Operands that have limits and tables, as those of elementwise steps may.
    fn looked_up(&self) -> Range<usize> {
        0..0
    }

    /// The kind over dimensions split in these runs of finer ones, if the same of it can be said of them.
    fn split(&self, _runs: &[Range<usize>]) -> Option<StepKind> {
        None
    }

    /// Merges dimensions of a step of this kind that all its operands walk as one.
    fn collapse(&self, step: &mut Step);

    /// Prints its parameters, if it has any, for dumps.
    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;
}
