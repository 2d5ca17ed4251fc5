//! The fused graph: the interface between the graph and the kernels.
//!
//! A [`FusedGraph`] is a list of [`Step`]s in execution order; each becomes one kernel launch. A step reads its operands
//! and writes its result through strided [`View`]s of tensors that live in memory, so layout operators (Reshape,
//! Transpose, Slice, Split, Concat, Expand, DepthToSpace, nearest Upsample ...) cost no kernel of their own, and it ends
//! in a scalar [`Expr`], so bias, batch normalisation, residual additions and activations cost none either.
//!
//! There are seven kinds of steps. Everything else is expressed with them: a transposed convolution is one convolution
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
use super::view::View;
use crate::tensor::{DType, HostTensor};
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
    /// Limits of what is read. Only in operands of `Pointwise` steps.
    pub guard: Option<Guard>,
    /// Index tables added to the address (Gather, Resize, reflecting Pad). Only in operands of `Pointwise` steps.
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

/// Sliding window of convolutions and poolings; one entry per spatial dimension (1 to 3 of them).
///
/// Output position `o` of a dimension reads input positions `o * stride + k * dilation - pad` for `k` in `0..kernel`;
/// positions outside `0..input extent` count as padding. Padding at the end needs no number: it is what the output's
/// extent reaches past the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// Extent of the window.
    pub kernel: Vec<usize>,
    /// Distance of neighbouring outputs.
    pub strides: Vec<usize>,
    /// Distance of neighbouring taps.
    pub dilations: Vec<usize>,
    /// Padding before the first element.
    pub pads: Vec<usize>,
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "kernel {:?}, strides {:?}, dilations {:?}, pads {:?}",
            self.kernel, self.strides, self.dilations, self.pads
        )
    }
}

/// How [`StepKind::Pool`] combines the elements of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolOp {
    /// Maximum of the elements inside the input.
    Max,
    /// Sum of the elements inside the input.
    Sum,
    /// Sum of the elements inside the input, divided by how many they are.
    Average,
    /// Sum of the elements inside the input, divided by how many taps fall into the input or its declared padding:
    /// positions `-pad .. input + pad_end`. Taps beyond that (from ceil mode) do not count.
    AverageIncludePad {
        /// Declared padding after the last element, per spatial dimension.
        pad_end: [usize; 3],
    },
}

/// How [`StepKind::Reduce`] combines elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReduceOp {
    /// Sum.
    Sum,
    /// Product.
    Prod,
    /// Largest; a NaN wins.
    Max,
    /// Smallest; a NaN wins.
    Min,
    /// Row-major index, within the reduced dimensions, of the first largest; the result is `i64`.
    ArgMax {
        /// Of equal elements take the last instead.
        last: bool,
    },
    /// Row-major index, within the reduced dimensions, of the first smallest; the result is `i64`.
    ArgMin {
        /// Of equal elements take the last instead.
        last: bool,
    },
}

/// What a step computes. Operand numbers refer to [`Step::inputs`]; `O` is the view of [`Step::output`].
#[derive(Clone, Debug, PartialEq)]
pub enum StepKind {
    /// `O[c] = expr(inputs at c)`. All views have the dimensions of `O`, merged as far as possible; any rank.
    Pointwise,
    /// `O[n,m,o..] = sum over c,k.. of in0[n, g*C/G + c, o*stride + k*dilation - pad ..] * in1[m, c, k..]`, `g` the group
    /// of `m`. in0 `[N,C,spatial..]`, in1 `[M,C/G,kernel..]`, O `[N,M,spatial..]`.
    Conv {
        /// Window over the spatial dimensions.
        window: Window,
        /// Number of groups `G`.
        groups: usize,
    },
    /// `O[b..,m,n] = sum over k of in0[b..,m,k] * in1[b..,k,n]`; batch dimensions are broadcast by stride 0 and merged as
    /// far as possible (possibly none).
    MatMul,
    /// `O[n,c,o..]` = the elements of `prologue(in0)` in each window, combined. in0 `[N,C,spatial..]`.
    Pool {
        /// How elements are combined.
        op: PoolOp,
        /// Window over the spatial dimensions.
        window: Window,
        /// Applied to each element first: an expression of [`Op::Acc`], the element.
        prologue: Expr,
    },
    /// `O[c] = combine over r of prologue(in0[c,r])`: in0 has the dimensions of `O` followed by the reduced ones (both
    /// merged as far as possible, each at least one).
    Reduce {
        /// How elements are combined.
        op: ReduceOp,
        /// Applied to each element first: an expression of [`Op::Acc`], the element.
        prologue: Expr,
    },
    /// `O[c,j] = exp(in0[c,j]) / sum over j of exp(in0[c,j])`, computed without overflow, or its logarithm. in0 and `O`
    /// have two or more dimensions, merged as far as possible; the last is the one summed over.
    Softmax {
        /// Take the logarithm.
        log: bool,
        /// Where all of `in0[c,..]` is hidden (-inf) the result is 0, not NaN: attention without anything to attend to.
        masked: bool,
    },
    /// `O[c,j..] = (in0[c,j..] - mean) / sqrt(variance + epsilon)`, mean and (biased) variance over the last
    /// `axes` dimensions. Layer, instance and group normalisation; their scale and bias are in the epilogue.
    Normalize {
        /// How many trailing dimensions are normalised over.
        axes: usize,
        /// Added to the variance.
        epsilon: f32,
        /// Subtract the mean; otherwise it counts as 0 (root mean square normalisation).
        center: bool,
    },
}

impl StepKind {
    /// A short lower-case name for dumps and kernel names.
    pub fn name(&self) -> &'static str {
        match self {
            StepKind::Pointwise => "pointwise",
            StepKind::Conv { .. } => "conv",
            StepKind::MatMul => "matmul",
            StepKind::Pool { .. } => "pool",
            StepKind::Reduce { .. } => "reduce",
            StepKind::Softmax { .. } => "softmax",
            StepKind::Normalize { .. } => "normalize",
        }
    }

    /// How many of the first [`Step::inputs`] the kernel's main part reads; the others belong to the epilogue.
    pub fn operands(&self) -> usize {
        match self {
            StepKind::Pointwise => 0,
            StepKind::Conv { .. } | StepKind::MatMul => 2,
            StepKind::Pool { .. } | StepKind::Reduce { .. } | StepKind::Softmax { .. } | StepKind::Normalize { .. } => {
                1
            }
        }
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

/// A model as a list of kernel launches.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct FusedGraph {
    /// The model's name.
    pub name: String,
    /// All tensors.
    pub tensors: Vec<Tensor>,
    /// Kernel launches in execution order.
    pub steps: Vec<Step>,
    /// The model's inputs, in its order.
    pub inputs: Vec<TensorId>,
    /// The model's outputs, in its order.
    pub outputs: Vec<TensorId>,
    /// The model's own metadata (class labels, image normalisation ...).
    pub metadata: BTreeMap<String, String>,
}

impl FusedGraph {
    /// The tensor numbered `id`. Panics for an id of another graph.
    pub fn tensor(&self, id: TensorId) -> &Tensor {
        &self.tensors[id.index()]
    }

    /// Adds a tensor.
    pub fn add_tensor(&mut self, tensor: Tensor) -> TensorId {
        self.tensors.push(tensor);
        TensorId(self.tensors.len() as u32 - 1)
    }

    /// Verifies what the module promises to kernels. The error names the step.
    pub fn check(&self) -> Result<(), String> {
        let mut written = vec![false; self.tensors.len()];
        for (i, step) in self.steps.iter().enumerate() {
            self.check_step(step, &written)
                .map_err(|e| format!("step {i} {} ({}): {e}", step.name, step.kind.name()))?;
            written[step.output.tensor.index()] = true;
        }
        for &id in &self.outputs {
            let t = self.tensor(id);
            if !written[id.index()] && !t.is_empty() {
                return Err(format!("output {} is never written", t.name));
            }
        }
        Ok(())
    }

    fn check_step(&self, step: &Step, written: &[bool]) -> Result<(), String> {
        let out = &step.output;
        if out.view.is_empty() {
            return Err("has nothing to do".into());
        }
        if !out.is_plain() {
            return Err("writes through a guard or an index table".into());
        }
        if out.view.dims.iter().zip(&out.view.strides).any(|(&d, &s)| d > 1 && s == 0) {
            return Err("writes elements twice".into());
        }
        if !matches!(self.tensor(out.tensor).role, Role::Output(_) | Role::Intermediate) {
            return Err("writes an input or a constant".into());
        }
        self.check_inside(&out.view, &[], out.tensor)?;
        if step.expr.nodes().is_empty() || step.expr.dtype() != self.tensor(out.tensor).dtype {
            return Err("the type of its expression is not the output's".into());
        }
        let main = step.kind.operands();
        for (i, access) in step.inputs.iter().enumerate() {
            let t = self.tensor(access.tensor);
            if matches!(t.role, Role::Intermediate | Role::Output(_)) && !written[access.tensor.index()] {
                return Err(format!("operand {i} ({}) is read before it is written", t.name));
            }
            if !access.is_plain() && step.kind != StepKind::Pointwise {
                return Err(format!("operand {i} has a guard or an index table"));
            }
            if access.tensor == out.tensor && step.kind == StepKind::Pointwise {
                return Err(format!("operand {i} is in the tensor it writes"));
            }
            if i >= main && access.view.dims != out.view.dims {
                return Err(format!(
                    "operand {i} has dimensions {:?}, the output {:?}",
                    access.view.dims, out.view.dims
                ));
            }
            self.check_access(access).map_err(|e| format!("operand {i} ({}): {e}", t.name))?;
        }
        for node in step.expr.nodes() {
            match node.op {
                Op::Input(i) if i as usize >= step.inputs.len() => return Err(format!("there is no operand {i}")),
                Op::Input(i) if (i as usize) < main && step.inputs[i as usize].view.dims != out.view.dims => {
                    return Err(format!("the epilogue reads operand {i}, which has other dimensions"));
                }
                Op::Input(i) if self.tensor(step.inputs[i as usize].tensor).dtype != node.dtype => {
                    return Err(format!("operand {i} is read as {}", node.dtype));
                }
                Op::Acc if step.kind == StepKind::Pointwise => return Err("a pointwise step has no Acc".into()),
                _ => {}
            }
        }
        if step.inputs.len() < main {
            return Err(format!("needs {main} operands"));
        }
        self.check_kind(step)
    }

    /// Verifies one step on its own, whoever writes its operands.
    pub(crate) fn step_promises(&self, step: &Step) -> Result<(), String> {
        self.check_step(step, &vec![true; self.tensors.len()])
    }

    fn check_access(&self, access: &Access) -> Result<(), String> {
        let view = &access.view;
        if view.is_empty() {
            return Err("is empty".into());
        }
        let mut walked = view.clone();
        if let Some(guard) = &access.guard {
            if guard.ranges.len() != view.rank() {
                return Err("its guard has another rank".into());
            }
            for (d, &(lo, hi)) in guard.ranges.iter().enumerate() {
                if lo >= hi || hi > view.dims[d] {
                    return Err(format!("guard {lo}..{hi} of dimension {d}"));
                }
                walked = walked.sliced(d, lo, 1, hi - lo);
            }
        }
        for ind in &access.indirect {
            if !matches!(self.tensor(ind.index).dtype, DType::I32 | DType::I64) || ind.view.dims != view.dims {
                return Err("its index table has the wrong type or dimensions".into());
            }
            self.check_inside(&ind.view, &[], ind.index)?;
        }
        self.check_inside(&walked, &access.indirect, access.tensor)
    }

    fn check_inside(&self, view: &View, indirect: &[Indirect], tensor: TensorId) -> Result<(), String> {
        let Some((mut lo, mut hi)) = view.extent() else { return Ok(()) };
        for ind in indirect {
            let reach = (ind.extent as i64 - 1) * ind.stride;
            lo += reach.min(0);
            hi += reach.max(0);
        }
        let len = self.tensor(tensor).len() as i64;
        if view.dims.len() != view.strides.len() || lo < 0 || hi >= len {
            return Err(format!("view {view} reaches {lo}..={hi} of {len} elements of {}", self.tensor(tensor).name));
        }
        Ok(())
    }

    fn check_kind(&self, step: &Step) -> Result<(), String> {
        let out = &step.output.view.dims;
        let dims = |i: usize| &step.inputs[i].view.dims;
        let inner_dense = |i: usize| step.inputs[i].view.is_inner_dense(1);
        match &step.kind {
            StepKind::Pointwise => {}
            StepKind::Conv { window, groups } => {
                let n = check_window(window)?;
                let (x, w) = (dims(0), dims(1));
                if x.len() != n + 2 || w.len() != n + 2 || out.len() != n + 2 {
                    return Err("ranks differ".into());
                }
                if *groups == 0 || x[1] != w[1] * groups || w[0] % groups != 0 || w[2..] != window.kernel[..] {
                    return Err(format!("{x:?} and {w:?} in {groups} groups do not fit"));
                }
                if out[0] != x[0] || out[1] != w[0] {
                    return Err(format!("{x:?} and {w:?} do not give {out:?}"));
                }
                if !inner_dense(0) || !step.inputs[1].view.is_dense() {
                    return Err("its operands are not dense enough".into());
                }
            }
            StepKind::Pool { window, .. } => {
                let n = check_window(window)?;
                let x = dims(0);
                if x.len() != n + 2 || out.len() != n + 2 || out[..2] != x[..2] || !inner_dense(0) {
                    return Err(format!("{x:?} does not give {out:?}"));
                }
            }
            StepKind::MatMul => {
                let (a, b, r) = (dims(0), dims(1), out.len());
                if r < 2 || a.len() != r || b.len() != r || a[..r - 2] != out[..r - 2] || b[..r - 2] != out[..r - 2] {
                    return Err("ranks or batch dimensions differ".into());
                }
                if a[r - 2] != out[r - 2] || b[r - 1] != out[r - 1] || a[r - 1] != b[r - 2] {
                    return Err(format!("{a:?} times {b:?} does not give {out:?}"));
                }
                for access in &step.inputs[..2] {
                    let (d, s) = (&access.view.dims, &access.view.strides);
                    if (s[r - 1] != 1 && d[r - 1] != 1) && (s[r - 2] != 1 && d[r - 2] != 1) {
                        return Err("a matrix has neither dense rows nor dense columns".into());
                    }
                }
            }
            StepKind::Reduce { .. } => {
                let x = dims(0);
                if out.is_empty() || x.len() <= out.len() || x[..out.len()] != out[..] {
                    return Err(format!("{x:?} does not reduce to {out:?}"));
                }
            }
            StepKind::Softmax { .. } => {
                if dims(0) != out || out.len() < 2 {
                    return Err(format!("{:?} does not give {out:?}", dims(0)));
                }
            }
            StepKind::Normalize { axes, .. } => {
                if dims(0) != out || *axes == 0 || *axes > out.len() {
                    return Err(format!("{:?} does not give {out:?}", dims(0)));
                }
            }
        }
        Ok(())
    }
}

fn check_window(w: &Window) -> Result<usize, String> {
    let n = w.kernel.len();
    if !(1..=3).contains(&n) || w.strides.len() != n || w.dilations.len() != n || w.pads.len() != n {
        return Err("its window does not have one to three dimensions".into());
    }
    if w.kernel.contains(&0) || w.strides.contains(&0) || w.dilations.contains(&0) {
        return Err("its window has a zero".into());
    }
    Ok(n)
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
            match &step.kind {
                StepKind::Pointwise | StepKind::MatMul => {}
                StepKind::Conv { window, groups } => writeln!(f, "    {window}, groups {groups}")?,
                StepKind::Pool { op, window, prologue } => writeln!(f, "    {op:?} of {prologue}, {window}")?,
                StepKind::Reduce { op, prologue } => writeln!(f, "    {op:?} of {prologue}")?,
                StepKind::Softmax { log, masked } => writeln!(f, "    log {log}, masked {masked}")?,
                StepKind::Normalize { axes, epsilon, center } => {
                    writeln!(f, "    over the last {axes}, epsilon {epsilon:e}, center {center}")?;
                }
            }
            for (i, a) in step.inputs.iter().enumerate() {
                writeln!(f, "    in{i} = {}", access(a))?;
            }
            writeln!(f, "    {}", step.expr)?;
        }
        Ok(())
    }
}
