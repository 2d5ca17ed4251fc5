//! Cuts steps that reach further than a kernel addresses.
//!
//! Offsets in kernels have 32 bits, of which one tells lanes that are masked out: of each tensor a step reaches over less than
//! [`LARGEST`](super::LARGEST) bytes. But a kernel is given the address at which its own part of a tensor begins, of 64 bits. So a
//! step over larger tensors becomes
//!
//! * a step for each part of its result, along the dimension of the result that takes it furthest, and along others where that is
//!   not enough,
//! * products that add up, where the depth of a product is what is long,
//! * one that reads several windows of a table and chooses, where the table is gathered from ([`large`](super::large)),
//! * reductions of parts and one of their results, where what is reduced is long.
//!
//! What cannot be cut stays, and no kernel takes it. This comes last, so that what other passes put together (attention, which
//! never writes its scores) is whole when they look at it.

use super::expr::Expr;
use super::fused::{Access, FusedGraph, Guard, Reduce, ReduceOp, Role, Step, StepKind, Tensor};
use super::large::{deep, gathered};
use super::view::View;
use crate::tensor::DType;

/// Steps that one becomes, at most.
pub(super) const MOST_PARTS: usize = 4096;

/// The first and the last element that an access may touch.
pub(crate) fn walked(access: &Access) -> Option<(i64, i64)> {
    let mut view = access.view.clone();
    if let Some(guard) = &access.guard {
        for (d, &(from, to)) in guard.ranges.iter().enumerate() {
            view = view.sliced(d, from, 1, to.checked_sub(from)?);
        }
    }
    let (mut first, mut last) = view.extent()?;
    for x in &access.indirect {
        let reach = (x.extent as i64 - 1) * x.stride;
        first += reach.min(0);
        last += reach.max(0);
    }
    Some((first, last))
}

/// Cuts all steps of `graph` that reach over `largest` bytes or more of a tensor, as far as they can be cut.
pub fn split_far(graph: &mut FusedGraph, largest: usize) {
    // Kernels that pack what they read add to it.
    let far = Far { largest, most: largest / 4 * 3 };
    if !graph.tensors.iter().any(|t| t.bytes() >= largest) {
        return;
    }
    let mut done = Vec::with_capacity(graph.steps.len());
    for step in std::mem::take(&mut graph.steps) {
        let (start, whole) = (done.len(), (graph.tensors.len(), step.clone()));
        // A stack, the next step on top.
        let mut rest = vec![step];
        while let Some(step) = rest.pop() {
            let parts = far.furthest(graph, &step).and_then(|i| far.parts(graph, &step, i));
            match parts {
                Some(parts) if done.len() - start + rest.len() + parts.len() <= MOST_PARTS => {
                    rest.extend(parts.into_iter().rev());
                }
                Some(_) => {
                    done.truncate(start);
                    graph.tensors.truncate(whole.0);
                    done.push(whole.1);
                    break;
                }
                None => done.push(step),
            }
        }
    }
    graph.steps = done;
}

struct Far {
    largest: usize,
    /// Bytes that a part reaches over, at most.
    most: usize,
}

impl Far {
    /// The access (an operand, or behind them the output) that reaches furthest, where one reaches too far.
    fn furthest(&self, graph: &FusedGraph, step: &Step) -> Option<usize> {
        let reach = |a: &Access| {
            let t = graph.tensor(a.tensor);
            let (first, last) = walked(a)?;
            (t.bytes() >= self.largest).then(|| (last + 1 - first) as usize * t.dtype.size())
        };
        let accesses = step.inputs.iter().chain([&step.output]).map(reach).enumerate();
        let (i, bytes) = accesses.max_by_key(|(i, bytes)| (*bytes, std::cmp::Reverse(*i)))?;
        bytes.filter(|bytes| *bytes >= self.largest).map(|_| i)
    }

    /// The steps that stand for one whose access `i` reaches too far.
    fn parts(&self, graph: &mut FusedGraph, step: &Step, i: usize) -> Option<Vec<Step>> {
        let access = step.inputs.get(i).unwrap_or(&step.output);
        let size = graph.tensor(access.tensor).dtype.size();
        let most = (self.most / size) as i64;
        let reach = |d: usize| (access.view.dims[d] as i64 - 1) * access.view.strides[d].abs();
        let along = |d: usize| if i < step.inputs.len() { cut(step, i, d).flatten() } else { Some(d) };
        let rank = step.output.view.rank();
        let own = (0..rank).filter(|d| (0..step.inputs.len()).all(|k| cut(step, k, *d).is_some()));
        let own = own.filter_map(|d| Some((d, along(d)?))).max_by_key(|(d, own)| (reach(*own), std::cmp::Reverse(*d)));
        let tables: i64 = access.indirect.iter().map(|x| (x.extent as i64 - 1) * x.stride.abs()).sum();
        let gathers = access.indirect.iter().enumerate().max_by_key(|(_, x)| (x.extent as i64 - 1) * x.stride);
        if let Some((d, own)) = own.filter(|(_, own)| reach(*own) > 0 && reach(*own) >= tables) {
            let (first, last) = walked(access)?;
            let stride = access.view.strides[own].abs();
            // What a part reaches over besides.
            let rest = (last - first - reach(own)).max(0) + 1;
            let rows = usize::try_from((most - rest).max(0) / stride).ok()? + 1;
            let count = step.output.view.dims[d];
            // Parts of one size share a kernel.
            let parts = count.div_ceil(rows);
            let rows = count.div_ceil(parts);
            return (2..=MOST_PARTS)
                .contains(&parts)
                .then(|| (0..count).step_by(rows).map(|at| part(step, d, at, rows.min(count - at))).collect());
        }
        match (&step.kind, gathers) {
            (_, Some((index, _))) => gathered(graph, self.largest, step, i, index),
            (StepKind::MatMul, None) if i < 2 => deep(graph, self.largest, step, i),
            (StepKind::Reduce(reduce), None) if i == 0 => in_two_stages(graph, step, reduce, most),
            _ => None,
        }
    }
}

/// The dimension of operand `i` that goes with dimension `d` of the result ([`Kind::cut`](super::kinds::Kind::cut)).
pub(super) fn cut(step: &Step, i: usize, d: usize) -> Option<Option<usize>> {
    if i < step.kind.operands() { step.kind.cut(i, d, step.output.view.rank()) } else { Some(Some(d)) }
}

/// The part of a step that gives `len` coordinates of dimension `d` of its result, from `start`.
pub(super) fn part(step: &Step, d: usize, start: usize, len: usize) -> Step {
    let mut part = step.clone();
    part.output.view = step.output.view.sliced(d, start, 1, len);
    let mut hidden = Vec::new();
    for (k, access) in part.inputs.iter_mut().enumerate() {
        let Some(own) = cut(step, k, d).flatten() else { continue };
        access.view = access.view.sliced(own, start, 1, len);
        access.indirect.iter_mut().for_each(|x| x.view = x.view.sliced(own, start, 1, len));
        if let Some(Guard { ranges, fill }) = &mut access.guard {
            let (from, to) = ranges[own];
            ranges[own] = (from.max(start).min(start + len) - start, to.max(start).min(start + len) - start);
            if ranges[own].0 >= ranges[own].1 {
                hidden.push((k, *fill));
            }
        }
    }
    // Operands of which a part reads nothing are constants there.
    for (k, fill) in hidden {
        let access = &mut part.inputs[k];
        let first = walked(&step.inputs[k]).map_or(0, |(first, _)| first);
        let strides = vec![0; access.view.rank()];
        *access = Access::new(access.tensor, View { offset: first, strides, dims: access.view.dims.clone() });
        let mut e = Expr::new();
        let literal =
            |e: &mut Expr, i: u32, t| if i as usize == k { e.literal(t, fill) } else { e.input(i as usize, t) };
        let result = e.append(&part.expr, None, literal);
        part.expr = e.finish(result);
    }
    part
}

/// Reductions of runs of at most `most` elements, and the reduction of what they give.
fn in_two_stages(graph: &mut FusedGraph, step: &Step, reduce: &Reduce, most: i64) -> Option<Vec<Step>> {
    if matches!(reduce.op, ReduceOp::ArgMax { .. } | ReduceOp::ArgMin { .. }) {
        return None;
    }
    let (input, dims) = (&step.inputs[0], &step.output.view.dims);
    let reach = |d: usize| (input.view.dims[d] as i64 - 1) * input.view.strides[d].abs();
    let own = (dims.len()..input.view.rank()).max_by_key(|d| (reach(*d), std::cmp::Reverse(*d)))?;
    let (first, last) = walked(input)?;
    let rest = (last - first - reach(own)).max(0) + 1;
    let stride = input.view.strides[own].abs();
    let rows = usize::try_from((most - rest).max(0).checked_div(stride)?).ok()? + 1;
    let count = input.view.dims[own];
    let parts = count.div_ceil(rows);
    let rows = count.div_ceil(parts);
    let parts = count.div_ceil(rows);
    if !(2..=MOST_PARTS).contains(&parts) {
        return None;
    }
    let t: DType = reduce.prologue.dtype();
    let shape: Vec<usize> = dims.iter().copied().chain([parts]).collect();
    let name = format!("{} in {parts} parts", graph.tensor(step.output.tensor).name);
    let id = graph.add_tensor(Tensor { name, dtype: t, shape: shape.clone(), role: Role::Intermediate });
    let whole = View::dense(&shape);
    let mut out: Vec<Step> = (0..parts)
        .map(|n| {
            let mut run = input.clone();
            run.view = run.view.sliced(own, n * rows, 1, rows.min(count - n * rows));
            let at = whole.sliced(dims.len(), n, 1, 1);
            let at = View { dims: dims.clone(), strides: at.strides[..dims.len()].to_vec(), ..at };
            let (kind, expr) = (step.kind.clone(), Expr::acc(t));
            Step { name: step.name.clone(), kind, inputs: vec![run], expr, output: Access::new(id, at) }
        })
        .collect();
    let mut end = step.clone();
    end.inputs[0] = Access::new(id, whole);
    end.kind = StepKind::Reduce(Reduce { op: reduce.op, prologue: Expr::acc(t) });
    out.push(end);
    Some(out)
}
