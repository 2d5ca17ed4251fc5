//! The fused graph: the interface between the graph and the kernels.
//!
//! A [`FusedGraph`] is a list of [`Step`]s in execution order; each becomes a kernel launch, or a few. A step reads its operands
//! and writes its result through strided [`View`]s of tensors that live in memory, so layout operators (Reshape,
//! Transpose, Slice, Split, Concat, Expand, DepthToSpace, nearest Upsample ...) cost no kernel of their own, and it ends
//! in a scalar [`Expr`], so bias, batch normalisation, residual additions and activations cost none either.
//!
//! There are few kinds of steps. Everything else is expressed with them: a transposed convolution is one convolution
//! per phase of its strides, each writing a strided view of the output; resizing and gathering are pointwise steps that
//! read through index tables; LRN and LpPool are poolings with a prologue and an epilogue; Concat is nothing, its
//! producers write into parts of the result.
//!
//! # What a kernel may rely on
//! [`FusedGraph::check`] verifies all of it:
//! * Shapes are concrete and every dimension is at least 1 (steps with nothing to do are not in the graph).
//! * Operands: `Conv` input and weights, and `Pool` inputs, walk their innermost dimension with stride 1. `Conv` weights
//!   are entirely dense. The rows or the columns of both `MatMul` matrices have stride 1 (or extent 1). Other strides are
//!   arbitrary.
//! * Outputs never overlap themselves: no stride 0 on a dimension larger than 1.
//! * Every element address is inside its tensor, except where a [`Guard`] says that nothing is read.
//! * Epilogue operands have the dimensions of the output view. They never need an indirect access.
//! * A tensor may be written by several steps, each a disjoint part (Concat, Pad, transposed convolution); all of them
//!   precede the first reader of those parts.
//! * A step never reads an element that it writes. It may read other parts of the tensor it writes (DenseNet's growing
//!   concatenations do), except that `Pointwise` steps never read the tensor they write.

use super::expr::{Expr, Op, Scalar};
use super::kinds::Operand;
pub use super::kinds::{
    Attention, Before, Coder, ComputedLines, Conv, Extremes, Fourier, Gated, Lasts, LineRule, MadeLines, MadeRows,
    MadeUpdates, Nibbles, Normalize, Normed, NormedRows, Packed, Parts, Passes, Pool, PoolOp, Program, Reduce,
    ReduceOp, Resample, Scaled, Scan, Scatter, Scattered, Softmax, Sparse, Standardized, StepKind, Summand, Taps, TopK,
    Undefined, Window, Zeros,
};
pub use super::rules::Broken;
use super::view::View;
use crate::tensor::{DType, HostTensor, Words};
use std::collections::BTreeMap;
use std::fmt;

/// A tensor of a [`FusedGraph`], by position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TensorId(pub u32);

impl TensorId {
    /// Position in [`FusedGraph::tensors`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Where the memory of a tensor comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum Role {
    /// Input number `i` of the model: filled by the caller.
    Input(usize),
    /// Output number `i` of the model: read by the caller, and possibly by later steps.
    Output(usize),
    /// Weights, index tables and the like: known at compile time.
    Constant(HostTensor),
    /// Scratch memory from the arena.
    Intermediate,
}

/// A dense row-major tensor in device memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Its name in the model, or a name derived from it.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Extents, outermost first.
    pub shape: Vec<usize>,
    /// Where its memory comes from.
    pub role: Role,
}

impl Tensor {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// True when some dimension is zero.
    pub fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.len() * self.dtype.size()
    }
}

/// Restricts where an [`Access`] reads: only inside `ranges`; elsewhere its value is `fill` and memory is not touched.
#[derive(Clone, Debug, PartialEq)]
pub struct Guard {
    /// Half-open range of valid coordinates per dimension of the view.
    pub ranges: Vec<(usize, usize)>,
    /// The value outside.
    pub fill: Scalar,
}

/// Adds an index read from a tensor to an address.
///
/// With `i = index[index_view(coords)]`, wrapped by adding `extent` once when negative, the address grows by
/// `i * stride`. Values that stay outside `0..extent` are the caller's mistake; a kernel clamps them into the range so
/// that it never leaves the tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Indirect {
    /// An `i32` or `i64` tensor.
    pub index: TensorId,
    /// How it is read; same dimensions as the access.
    pub view: View,
    /// Element step of one index.
    pub stride: i64,
    /// Number of valid indices.
    pub extent: usize,
}

/// How a step reads one operand or writes its result.
#[derive(Clone, Debug, PartialEq)]
pub struct Access {
    /// The tensor in memory.
    pub tensor: TensorId,
    /// The walk over it.
    pub view: View,
    /// Limits of what is read. Only in operands of `Pointwise` steps, and of what attentions make.
    pub guard: Option<Guard>,
    /// Index tables added to the address (Gather, Resize, reflecting Pad). Only in operands of `Pointwise` steps, and of what attentions make.
    pub indirect: Vec<Indirect>,
}

impl Access {
    /// A plain strided access.
    pub fn new(tensor: TensorId, view: View) -> Access {
        Access { tensor, view, guard: None, indirect: Vec::new() }
    }

    /// True without guard and index tables.
    pub fn is_plain(&self) -> bool {
        self.guard.is_none() && self.indirect.is_empty()
    }
}

/// One kernel launch.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Names of the model's nodes it computes, joined by `+`.
    pub name: String,
    /// What it computes.
    pub kind: StepKind,
    /// The kind's own operands first, then those that only `expr` reads. `expr` numbers them all from 0.
    pub inputs: Vec<Access>,
    /// Applied to every element at the end: an expression of [`Op::Acc`] (what the kind computed) and of operands at the
    /// coordinates of the output. `Pointwise` steps have no `Acc`: this is all they compute. Its type is the output's.
    pub expr: Expr,
    /// Where the result goes.
    pub output: Access,
}

impl Step {
    /// The tensors that it writes: its output's, and those of operands that it writes before it reads them.
    pub fn written(&self) -> impl Iterator<Item = TensorId> {
        [self.output.tensor]
            .into_iter()
            .chain(self.kind.filled().iter().filter_map(|i| Some(self.inputs.get(*i)?.tensor)))
    }
}

/// A model as a list of kernel launches.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct FusedGraph {
    /// The model's name.
    pub name: String,
    /// All tensors.
    pub tensors: Vec<Tensor>,
    /// Kernel launches in execution order.
    pub steps: Vec<Step>,
    /// What constants were widened from, of floats of 8 bits: steps that would compute them. A target that multiplies the narrow values
    /// as they are reads those instead.
    pub widened: Vec<Step>,
    /// The model's inputs, in its order.
    pub inputs: Vec<TensorId>,
    /// The model's outputs, in its order.
    pub outputs: Vec<TensorId>,
    /// The model's own metadata (class labels, image normalisation ...).
    pub metadata: BTreeMap<String, String>,
    /// Names of the dimensions that the model leaves open, of inputs and outputs that have such.
    pub open_dims: BTreeMap<TensorId, Vec<Option<String>>>,
    /// Values that inputs must have: what was compiled depends on them.
    pub fixed: BTreeMap<TensorId, HostTensor>,
    /// The strings that the model itself may give out.
    pub words: Words,
    /// What the user should know about the model.
    pub notes: Vec<super::Note>,
}

impl FusedGraph {
    /// The tensor numbered `id`. Panics for an id of another graph.
    pub fn tensor(&self, id: TensorId) -> &Tensor {
        &self.tensors[id.index()]
    }

    /// A step is a product or a convolution whose tile is chosen among those of many sizes.
    pub(crate) fn is_tiled(&self, step: &Step) -> bool {
        matches!(
            step.kind,
            StepKind::Conv(_)
                | StepKind::MatMul
                | StepKind::Sparse(_)
                | StepKind::Scaled(_)
                | StepKind::Nibbles(_)
                | StepKind::Gated(_)
                | StepKind::Normed(_)
                | StepKind::Standardized(_)
        )
    }

    /// The type of what a step multiplies: the highest rate of a target depends on it.
    pub(crate) fn multiplied(&self, step: &Step) -> DType {
        self.tensor(step.inputs.first().unwrap_or(&step.output).tensor).dtype
    }

    /// Adds a tensor.
    pub fn add_tensor(&mut self, tensor: Tensor) -> TensorId {
        self.tensors.push(tensor);
        TensorId(self.tensors.len() as u32 - 1)
    }

    /// Verifies what the module promises to kernels. The error names the step.
    pub fn check(&self) -> Result<(), Broken> {
        let mut written = vec![false; self.tensors.len()];
        for (i, step) in self.steps.iter().enumerate() {
            self.check_step(step, &written).map_err(|rule| Broken::Step {
                number: i,
                step: step.name.clone(),
                kind: step.kind.name(),
                rule: Box::new(rule),
            })?;
            step.written().for_each(|t| written[t.index()] = true);
        }
        for &id in &self.outputs {
            let t = self.tensor(id);
            if !written[id.index()] && !t.is_empty() {
                return Err(Broken::Unwritten(t.name.clone()));
            }
        }
        Ok(())
    }

    fn check_step(&self, step: &Step, written: &[bool]) -> Result<(), Broken> {
        let out = &step.output;
        if out.view.is_empty() {
            return Err(Broken::NothingToDo);
        }
        if !out.is_plain() {
            return Err(Broken::IndirectWrite);
        }
        if out.view.dims.iter().zip(&out.view.strides).any(|(&d, &s)| d > 1 && s == 0) {
            return Err(Broken::WritesTwice);
        }
        if !matches!(self.tensor(out.tensor).role, Role::Output(_) | Role::Intermediate) {
            return Err(Broken::WritesConstant);
        }
        self.check_inside(&out.view, &[], out.tensor)?;
        if let Some(beside) = step.kind.beside() {
            self.check_inside(beside, &[], out.tensor)?;
        }
        if step.expr.nodes().is_empty() || step.expr.dtype() != self.tensor(out.tensor).dtype {
            return Err(Broken::ExprType);
        }
        let main = step.kind.operands();
        if step.inputs.len() < main {
            return Err(Broken::TooFewOperands(main));
        }
        let operands: Vec<Operand> =
            step.inputs[..main].iter().map(|a| (self.tensor(a.tensor).dtype, &a.view.dims[..])).collect();
        let inferred = step.kind.infer(&operands, out.view.rank())?;
        if let Some(i) = inferred.as_ref().filter(|i| !i.allows(&out.view.dims)) {
            return Err(Broken::Result { given: i.to_string(), output: out.view.dims.clone() });
        }
        for (i, access) in step.inputs.iter().enumerate() {
            let t = self.tensor(access.tensor);
            let wrong = |rule| Broken::Operand { number: i, tensor: t.name.clone(), rule: Box::new(rule) };
            let filled = step.kind.filled().contains(&i);
            if filled && matches!(t.role, Role::Constant(_) | Role::Input(_)) {
                return Err(wrong(Broken::WritesConstant));
            }
            if matches!(t.role, Role::Intermediate | Role::Output(_)) && !written[access.tensor.index()] && !filled {
                return Err(wrong(Broken::ReadTooEarly));
            }
            if !access.is_plain() && step.kind != StepKind::Pointwise && !step.kind.looked_up().contains(&i) {
                return Err(wrong(Broken::IndirectRead));
            }
            if access.tensor == out.tensor && step.kind == StepKind::Pointwise {
                return Err(wrong(Broken::ReadsOwnOutput));
            }
            if i >= main && access.view.dims != out.view.dims {
                let (operand, output) = (access.view.dims.clone(), out.view.dims.clone());
                return Err(wrong(Broken::EpilogueDims { operand, output }));
            }
            self.check_access(access).map_err(wrong)?;
        }
        for node in step.expr.nodes() {
            match node.op {
                Op::Input(i) if i as usize >= step.inputs.len() => return Err(Broken::NoOperand(i)),
                Op::Input(i) if (i as usize) < main && step.inputs[i as usize].view.dims != out.view.dims => {
                    return Err(Broken::EpilogueReads(i));
                }
                Op::Input(i) if self.tensor(step.inputs[i as usize].tensor).dtype != node.dtype => {
                    return Err(Broken::ReadAs { number: i, dtype: node.dtype });
                }
                Op::Paired if !step.kind.pairs() => {
                    return Err(Broken::Acc { used: node.dtype, computed: "nothing".into() });
                }
                Op::Acc | Op::Paired if inferred.as_ref().is_none_or(|i| i.dtype != node.dtype) => {
                    let computed = inferred.map_or("nothing".into(), |i| i.dtype.to_string());
                    return Err(Broken::Acc { used: node.dtype, computed });
                }
                _ => {}
            }
        }
        step.kind.check(step)
    }

    /// Verifies one step on its own, whoever writes its operands.
    pub(crate) fn step_promises(&self, step: &Step) -> Result<(), Broken> {
        self.check_step(step, &vec![true; self.tensors.len()])
    }

    fn check_access(&self, access: &Access) -> Result<(), Broken> {
        let view = &access.view;
        if view.is_empty() {
            return Err(Broken::Empty);
        }
        let mut walked = view.clone();
        if let Some(guard) = &access.guard {
            if guard.ranges.len() != view.rank() {
                return Err(Broken::GuardRank);
            }
            for (d, &(lo, hi)) in guard.ranges.iter().enumerate() {
                if lo >= hi || hi > view.dims[d] {
                    return Err(Broken::Guard { from: lo, to: hi, dimension: d });
                }
                walked = walked.sliced(d, lo, 1, hi - lo);
            }
        }
        for ind in &access.indirect {
            if !matches!(self.tensor(ind.index).dtype, DType::I32 | DType::I64) || ind.view.dims != view.dims {
                return Err(Broken::IndexTable);
            }
            self.check_inside(&ind.view, &[], ind.index)?;
        }
        self.check_inside(&walked, &access.indirect, access.tensor)
    }

    fn check_inside(&self, view: &View, indirect: &[Indirect], tensor: TensorId) -> Result<(), Broken> {
        let Some((mut lo, mut hi)) = view.extent() else { return Ok(()) };
        for ind in indirect {
            let reach = (ind.extent as i64 - 1) * ind.stride;
            lo += reach.min(0);
            hi += reach.max(0);
        }
        let len = self.tensor(tensor).len();
        if view.dims.len() != view.strides.len() || lo < 0 || hi >= len as i64 {
            let (view, tensor) = (view.clone(), self.tensor(tensor).name.clone());
            return Err(Broken::Outside { view, from: lo, to: hi, len, tensor });
        }
        Ok(())
    }
}

impl fmt::Display for FusedGraph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "graph {}", self.name)?;
        for (i, t) in self.tensors.iter().enumerate() {
            let role = match &t.role {
                Role::Input(k) => format!("input {k}"),
                Role::Output(k) => format!("output {k}"),
                Role::Constant(_) => "constant".into(),
                Role::Intermediate => "intermediate".into(),
            };
            writeln!(f, "  %{i} {}{:?} {role} {}", t.dtype, t.shape, t.name)?;
        }
        for step in &self.steps {
            let access = |a: &Access| {
                let mut s = format!("%{}{}", a.tensor.0, a.view);
                if let Some(g) = &a.guard {
                    s += &format!(" inside {:?} else {}", g.ranges, g.fill);
                }
                for i in &a.indirect {
                    s += &format!(" + {}*%{}{} of {}", i.stride, i.index.0, i.view, i.extent);
                }
                s
            };
            writeln!(f, "  {} = {} // {}", access(&step.output), step.kind.name(), step.name)?;
            step.kind.print(f)?;
            for (i, a) in step.inputs.iter().enumerate() {
                writeln!(f, "    in{i} = {}", access(a))?;
            }
            writeln!(f, "    {}", step.expr)?;
        }
        Ok(())
    }
}
