//! Splits constants beyond what a kernel addresses.
//!
//! Offsets in kernels have 32 bits, of which one tells lanes that are masked out, so a step reads less than 1 GiB of a tensor. An
//! embedding of many words, or the product with it, has more. Such a constant becomes several, each a run of its rows (of the
//! dimension with the largest stride), which copies nothing; and the step that reads it becomes
//!
//! * a step for each run, each a part of the result, where the rows are a dimension of the result,
//! * products that add up, where they are the depth of a matrix product,
//! * one that reads all runs and chooses, where they are gathered: each run has indices of its own, held inside of it.
//!
//! Steps over large tensors that are computed at run time are cut later, when all other passes have seen them whole
//! ([`far`](super::far)).

use super::expr::{Binary, Expr};
use super::far::{MOST_PARTS, cut, part};
use super::fused::{Access, FusedGraph, Indirect, Role, Step, StepKind, Tensor, TensorId};
use super::prune::prune;
use super::store::acc_dtype;
use super::view::View;
use crate::tensor::DType;
use rustc_hash::FxHashMap;

/// Kernels address less of a tensor, in bytes.
pub const LARGEST: usize = 1 << 30;

/// Splits constants of `largest` bytes and more (of [`LARGEST`], in what [`fuse`](super::fuse) gives), where the steps that read them
/// can be.
pub fn split_large(graph: &mut FusedGraph, largest: usize) {
    let large = |t: &Tensor| matches!(t.role, Role::Constant(_)) && t.bytes() >= largest;
    if !graph.tensors.iter().any(large) {
        return;
    }
    let mut split = Split { graph, largest, runs: FxHashMap::default() };
    let mut steps = std::mem::take(&mut split.graph.steps);
    // A step may read several.
    for number in 0..MOST_OPERANDS {
        let mut next = Vec::with_capacity(steps.len());
        for step in steps {
            let is_large = |a: &Access| large(split.graph.tensor(a.tensor));
            match step.inputs.iter().position(is_large).and_then(|i| split.step(&step, i)) {
                Some(parts) => next.extend(parts),
                None => next.push(step),
            }
        }
        steps = next;
        let left = steps.iter().flat_map(|s| &s.inputs).any(|a| large(split.graph.tensor(a.tensor)));
        if !left || number + 1 == MOST_OPERANDS {
            break;
        }
    }
    split.graph.steps = steps;
    prune(graph);
}

/// Large constants of a step that are looked at.
const MOST_OPERANDS: usize = 4;

/// The way in which rows of a constant are read.
#[derive(Clone, Copy)]
enum Rows {
    /// A dimension of the access is one of the result, which may have another place there.
    Result { own: usize, of_output: usize },
    /// The dimension that a product adds up over.
    Depth(usize),
    /// Indices choose them.
    Gathered(usize),
}

struct Split<'g> {
    graph: &'g mut FusedGraph,
    largest: usize,
    /// Constants that are runs of others: by tensor, first element and length.
    runs: FxHashMap<(TensorId, i64, i64), TensorId>,
}

impl Split<'_> {
    /// The steps that stand for one whose operand `i` is large.
    fn step(&mut self, step: &Step, i: usize) -> Option<Vec<Step>> {
        match rows(step, i)? {
            Rows::Result { own, of_output } => self.apart(step, i, own, of_output),
            Rows::Depth(own) => self.added(step, i, own),
            Rows::Gathered(index) => self.gathered(step, i, index),
        }
    }

    /// Runs of `count` rows, `stride` elements apart, of which each reaches over `span` elements: first row and rows of each.
    fn runs(&self, t: DType, count: usize, stride: i64, span: i64) -> Option<Vec<(usize, usize)>> {
        // Kernels that pack what they read add to it.
        let most = (self.largest / 4 * 3 / t.size()) as i64;
        let rows = usize::try_from((most - span).checked_div(stride)?).ok()? + 1;
        let fits = span <= most && (2..=MOST_PARTS).contains(&count.div_ceil(rows));
        fits.then(|| (0..count).step_by(rows).map(|at| (at, rows.min(count - at))).collect())
    }

    /// The constant that holds what an access reads; the access of that.
    fn window(&mut self, access: &Access, reach: i64) -> Option<Access> {
        let (from, last) = access.view.extent()?;
        let count = last + reach + 1 - from;
        let id = match self.runs.get(&(access.tensor, from, count)) {
            Some(id) => *id,
            None => {
                let t = self.graph.tensor(access.tensor);
                // A kernel is given the address of its window.
                let Role::Constant(data) = &t.role else { return Some(access.clone()) };
                let part = data.part(usize::try_from(from).ok()?, usize::try_from(count).ok()?)?;
                let (name, dtype, shape) = (format!("{}[{from}..]", t.name), t.dtype, part.shape().to_vec());
                let id = self.graph.add_tensor(Tensor { name, dtype, shape, role: Role::Constant(part) });
                self.runs.insert((access.tensor, from, count), id);
                id
            }
        };
        let view = View { offset: access.view.offset - from, ..access.view.clone() };
        Some(Access { tensor: id, view, ..access.clone() })
    }

    /// Each run gives a part of the result.
    fn apart(&mut self, step: &Step, i: usize, own: usize, of_output: usize) -> Option<Vec<Step>> {
        let view = &step.inputs[i].view;
        let span = span(view, own);
        let runs =
            self.runs(self.graph.tensor(step.inputs[i].tensor).dtype, view.dims[own], view.strides[own], span)?;
        let part = |(start, len): (usize, usize)| {
            let mut part = part(step, of_output, start, len);
            part.inputs[i] = self.window(&part.inputs[i], 0)?;
            Some(part)
        };
        runs.into_iter().map(part).collect()
    }

    /// Products that each add one run of the depth to those before.
    fn added(&mut self, step: &Step, i: usize, own: usize) -> Option<Vec<Step>> {
        let view = &step.inputs[i].view;
        let t = self.graph.tensor(step.inputs[i].tensor).dtype;
        let runs = self.runs(t, view.dims[own], view.strides[own], span(view, own))?;
        // Sums are of another type than operands where these are integers.
        let t = acc_dtype(&step.expr);
        let dims = step.output.view.dims.clone();
        let other = 1 - i;
        let depth = [dims.len() - 1, dims.len() - 2];
        let mut before: Option<TensorId> = None;
        let mut out = Vec::new();
        for (n, (start, len)) in runs.iter().copied().enumerate() {
            let mut part = step.clone();
            part.inputs[other].view = part.inputs[other].view.sliced(depth[other], start, 1, len);
            part.inputs[i].view = part.inputs[i].view.sliced(own, start, 1, len);
            part.inputs[i] = self.window(&part.inputs[i], 0)?;
            let last = n + 1 == runs.len();
            if !last {
                part.inputs.truncate(2);
            }
            let mut e = Expr::new();
            let mut sum = e.push_acc(t);
            if let Some(id) = before {
                let so_far = e.input(part.inputs.len(), t);
                part.inputs.push(Access::new(id, View::dense(&dims)));
                sum = e.binary(Binary::Add, sum, so_far);
            }
            let result = if last { e.append(&step.expr, Some(sum), |e, k, t| e.input(k as usize, t)) } else { sum };
            part.expr = e.finish(result);
            if !last {
                let name = format!("{} so far", self.graph.tensor(step.output.tensor).name);
                let sums = Tensor { name, dtype: t, shape: dims.clone(), role: Role::Intermediate };
                let id = self.graph.add_tensor(sums);
                part.output = Access::new(id, View::dense(&dims));
                before = Some(id);
            }
            out.push(part);
        }
        Some(out)
    }

    /// One step that reads all runs, behind steps for the indices of each.
    fn gathered(&mut self, step: &Step, i: usize, index: usize) -> Option<Vec<Step>> {
        let access = &step.inputs[i];
        let Indirect { index: table, view, stride, extent } = access.indirect[index].clone();
        let others = access.indirect.iter().enumerate().filter(|(k, _)| *k != index);
        // What other indices add.
        let reach: i64 = others.map(|(_, x)| (x.extent as i64 - 1) * x.stride).sum();
        let (from, last) = access.view.extent()?;
        let t = self.graph.tensor(access.tensor).dtype;
        let runs = self.runs(t, extent, stride, last - from + 1 + reach)?;
        let (mut out, mut whole) = (Vec::new(), step.clone());
        let whole_table = self.graph.tensor(table).clone();
        let of_index = whole_table.dtype;
        let mut places = Vec::new();
        for (n, (start, len)) in runs.iter().copied().enumerate() {
            let mut e = Expr::new();
            let at = wrapped(&mut e, 0, of_index, extent);
            let (low, high) = (e.constant(of_index, start as f64), e.constant(of_index, (len - 1) as f64));
            let own = e.binary(Binary::Sub, at, low);
            let own = e.binary(Binary::Min, own, high);
            let zero = e.constant(of_index, 0.0);
            let own = e.binary(Binary::Max, own, zero);
            let id = self.graph.add_tensor(Tensor {
                name: format!("{} in {}[{start}..]", whole_table.name, self.graph.tensor(access.tensor).name),
                role: Role::Intermediate,
                ..whole_table.clone()
            });
            let dense = View::dense(&whole_table.shape);
            out.push(Step {
                name: step.name.clone(),
                kind: StepKind::Pointwise,
                inputs: vec![Access::new(table, dense.clone())],
                expr: e.finish(own),
                output: Access::new(id, dense),
            });
            let mut run = access.clone();
            run.view.offset += start as i64 * stride;
            let mut run = self.window(&run, reach + (len as i64 - 1) * stride)?;
            run.indirect[index] = Indirect { index: id, view: view.clone(), stride, extent: len };
            if n == 0 {
                places.push(i);
                whole.inputs[i] = run;
            } else {
                places.push(whole.inputs.len());
                whole.inputs.push(run);
            }
        }
        let number = whole.inputs.len();
        whole.inputs.push(Access::new(table, view));
        let mut e = Expr::new();
        let at = wrapped(&mut e, number, of_index, extent);
        let ends: Vec<usize> = runs.iter().map(|(start, len)| start + len).collect();
        let result = e.append(&step.expr, None, |e, k, t| {
            if k as usize != i {
                return e.input(k as usize, t);
            }
            let mut value = e.input(places[places.len() - 1], t);
            for (place, end) in places.iter().zip(&ends).rev().skip(1) {
                let end = e.constant(of_index, *end as f64);
                let before = e.binary(Binary::Lt, at, end);
                let own = e.input(*place, t);
                value = e.select(before, own, value);
            }
            value
        });
        whole.expr = e.finish(result);
        out.push(whole);
        Some(out)
    }
}

/// Operand `number` of an expression as an index from the start of `extent`.
fn wrapped(e: &mut Expr, number: usize, t: DType, extent: usize) -> super::expr::Val {
    let raw = e.input(number, t);
    let (zero, all) = (e.constant(t, 0.0), e.constant(t, extent as f64));
    let negative = e.binary(Binary::Lt, raw, zero);
    let other = e.binary(Binary::Add, raw, all);
    e.select(negative, other, raw)
}

/// The products of runs of the depth that stand for one of which operand `i` reaches over `largest` bytes; each adds to what those
/// before it give.
pub(super) fn deep(graph: &mut FusedGraph, largest: usize, step: &Step, i: usize) -> Option<Vec<Step>> {
    let own = step.output.view.rank() - 1 - i;
    let backwards = step.inputs[i].view.strides.iter().any(|s| *s < 0);
    let mut split = Split { graph, largest, runs: FxHashMap::default() };
    if backwards { None } else { split.added(step, i, own) }
}

/// The step that reads windows of operand `i` and chooses, where table `index` leads too far, behind steps for the indices of each.
pub(super) fn gathered(
    graph: &mut FusedGraph,
    largest: usize,
    step: &Step,
    i: usize,
    index: usize,
) -> Option<Vec<Step>> {
    let access = step.inputs.get(i)?;
    let backwards = access.view.strides.iter().chain(access.indirect.iter().map(|x| &x.stride)).any(|s| *s < 0);
    let mut split = Split { graph, largest, runs: FxHashMap::default() };
    if backwards || access.guard.is_some() { None } else { split.gathered(step, i, index) }
}

/// Elements from the first to the last of one row.
fn span(view: &View, rows: usize) -> i64 {
    1 + (0..view.rank()).filter(|d| *d != rows).map(|d| (view.dims[d] as i64 - 1) * view.strides[d]).sum::<i64>()
}

/// How the rows of operand `i` are read; `None` where that is not known, or they lie backwards.
fn rows(step: &Step, i: usize) -> Option<Rows> {
    let access = &step.inputs[i];
    let (view, rank) = (&access.view, step.output.view.rank());
    let backwards = view.strides.iter().chain(access.indirect.iter().map(|x| &x.stride)).any(|s| *s < 0);
    if backwards || access.guard.is_some() {
        return None;
    }
    let reach = |d: usize| (view.dims[d] as i64 - 1) * view.strides[d];
    let widest = (0..view.rank()).max_by_key(|d| reach(*d))?;
    let gathered = access.indirect.iter().enumerate().max_by_key(|(_, x)| (x.extent as i64 - 1) * x.stride);
    if let Some((k, x)) = gathered
        && (x.extent as i64 - 1) * x.stride > reach(widest)
    {
        return Some(Rows::Gathered(k));
    }
    if matches!(step.kind, StepKind::MatMul) && i < 2 && widest == rank - 1 - i {
        return Some(Rows::Depth(widest));
    }
    let of_output = (0..rank).find(|d| cut(step, i, *d).flatten() == Some(widest))?;
    // A part of the result needs a part of nothing else than this.
    let splits = match step.kind {
        StepKind::MatMul | StepKind::Packed(_) => true,
        StepKind::Pointwise => access.indirect.is_empty(),
        _ => false,
    };
    splits.then_some(Rows::Result { own: widest, of_output })
}
