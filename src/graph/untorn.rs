//! What is made of transposed tensors and normalised is stored as these lie, where the result is turned back.
//!
//! Networks whose channels come last are exported with a transposition before and after each operator that wants channels first. Of a residual's sum between
//! them the first transposition would be a copy: whoever normalises the sum, and whoever turns the result back, would walk lines of memory across. Here
//! the sum lies as its operands do, and readers walk it in that order ([`redirect_access`]); the result is turned back for nothing then
//! ([`absorb_elementwise`](super::absorb::absorb_elementwise)).
//!
//! Likewise what only products read as their second factor, and what lies in columns where it comes from: keys that are turned by their positions and
//! scaled behind a transposition are stored as keys, one after the other.

use super::forward::redirect_access;
use super::fused::{Access, FusedGraph, Role, Step, StepKind};
use super::join::lying;
use super::lazy::map_access;
use super::uses::Uses;
use super::view::{View, dense_strides};

/// Stores such tensors so.
pub(super) fn store_as_read(graph: &mut FusedGraph) {
    let uses = Uses::of(graph);
    for i in 0..graph.steps.len() {
        let order = stored(graph, &uses, i).or_else(|| in_columns(graph, &uses, i));
        let Some((target, steps)) = order.and_then(|order| reordered(graph, &uses, i, &order)) else { continue };
        let id = graph.steps[i].output.tensor.index();
        let mut dims: Vec<(i64, usize)> = target.strides.iter().copied().zip(target.dims.iter().copied()).collect();
        dims.sort_by_key(|d| std::cmp::Reverse(d.0));
        let shape = dims.into_iter().map(|d| d.1).collect();
        let before = std::mem::replace(&mut graph.tensors[id].shape, shape);
        if steps.iter().any(|(_, s)| graph.step_promises(s).is_err()) {
            graph.tensors[id].shape = before;
            continue;
        }
        steps.into_iter().for_each(|(at, step)| graph.steps[at] = step);
    }
}

/// True for an elementwise step that alone writes an intermediate tensor, as it lies.
fn may_lie_otherwise(graph: &FusedGraph, uses: &Uses, i: usize) -> Option<bool> {
    let step = &graph.steps[i];
    let id = step.output.tensor;
    let alone = graph.tensor(id).role == Role::Intermediate && uses.writers[id.index()] == [i];
    Some(step.kind == StepKind::Pointwise && alone && lying(graph, &step.output)?.is_sorted())
}

/// The order of dimensions in which what step `i` gives lies as its operands do.
fn stored(graph: &FusedGraph, uses: &Uses, i: usize) -> Option<Vec<usize>> {
    let step = &graph.steps[i];
    // All operands that have elements for each of the result's lie alike.
    if !may_lie_otherwise(graph, uses, i)? || !step.inputs.iter().all(Access::is_plain) {
        return None;
    }
    let repeats = |a: &Access| a.view.dims.iter().zip(&a.view.strides).any(|(n, stride)| *n > 1 && *stride == 0);
    let mut whole = step.inputs.iter().filter(|a| !repeats(a));
    let order = lying(graph, whole.next()?)?;
    if order.is_sorted() || !whole.all(|a| lying(graph, a).as_ref() == Some(&order)) {
        return None;
    }
    let readers = &uses.readers[step.output.tensor.index()];
    let kinds = |r: &usize| matches!(graph.steps[*r].kind, StepKind::Pointwise | StepKind::Normalize(_));
    (readers.iter().all(kinds) && readers.iter().any(|r| is_turned_back(graph, uses, *r))).then_some(order)
}

/// The order of dimensions in which each column of what step `i` gives lies together, where that is a product's second factor and its
/// operands lie so. Weights of attention stay in rows with their factors.
fn in_columns(graph: &FusedGraph, uses: &Uses, i: usize) -> Option<Vec<usize>> {
    let step = &graph.steps[i];
    let (out, id) = (&step.output.view, step.output.tensor);
    if !may_lie_otherwise(graph, uses, i)? {
        return None;
    }
    let last = out.rank().checked_sub(1)?;
    let mut depth = None;
    for &r in &uses.readers[id.index()] {
        let reader = &graph.steps[r];
        let (StepKind::MatMul, [rows, columns, others @ ..]) = (&reader.kind, &reader.inputs[..]) else { return None };
        let weights =
            uses.writers[rows.tensor.index()].iter().any(|w| matches!(graph.steps[*w].kind, StepKind::Softmax(_)));
        let ([.., k, n], [.., pitch, 1]) = (&columns.view.dims[..], &columns.view.strides[..]) else { return None };
        let whole = *n == out.dims[last] && *pitch == *n as i64 && depth.is_none_or(|d| d == *k);
        if weights || !whole || columns.tensor != id || rows.tensor == id || others.iter().any(|a| a.tensor == id) {
            return None;
        }
        depth = Some(*k);
    }
    let depth = depth?;
    let first = (0..last).rev().find(|d| out.dims[*d..last].iter().product::<usize>() == depth)?;
    // Whether an operand is walked across; none where it is the same along the columns, or along the rows.
    let across = |a: &Access| {
        let apart = |d: usize| Some(a.view.strides[d].abs()).filter(|s| *s > 0 && a.view.dims[d] > 1);
        Some((first..last).filter_map(apart).min()? < apart(last)?)
    };
    let mut walks = step.inputs.iter().filter_map(across).peekable();
    (walks.peek().is_some() && walks.all(|w| w)).then(|| (0..first).chain([last]).chain(first..last).collect())
}

/// How what step `i` gives lies in another order of dimensions, and the steps that write and read it then.
fn reordered(graph: &FusedGraph, uses: &Uses, i: usize, order: &[usize]) -> Option<(View, Vec<(usize, Step)>)> {
    let step = &graph.steps[i];
    let (out, id) = (&step.output.view, step.output.tensor);
    let mut strides = vec![0; out.rank()];
    let places = dense_strides(&order.iter().map(|d| out.dims[*d]).collect::<Vec<_>>());
    order.iter().zip(places).for_each(|(d, place)| strides[*d] = place);
    let target = View { offset: 0, dims: out.dims.clone(), strides };
    // In the order in which all of it lies.
    let mut writer = Step { output: Access::new(id, target.clone()), ..step.clone() };
    for a in writer.inputs.iter_mut().chain([&mut writer.output]) {
        *a = map_access(a, |v| v.permuted(order), |ranges| order.iter().map(|d| ranges[*d]).collect());
    }
    let mut steps = vec![(i, writer)];
    for &r in &uses.readers[id.index()] {
        let mut reader = graph.steps[r].clone();
        if reader.inputs.iter().flat_map(|a| &a.indirect).any(|x| x.index == id) {
            return None;
        }
        for a in reader.inputs.iter_mut().filter(|a| a.tensor == id) {
            *a = redirect_access(a, id, &target)?;
        }
        steps.push((r, reader));
    }
    Some((target, steps))
}

/// A normalisation whose one reader is elementwise and turns what it reads.
fn is_turned_back(graph: &FusedGraph, uses: &Uses, norm: usize) -> bool {
    let to = graph.steps[norm].output.tensor;
    let [reader] = uses.readers[to.index()][..] else { return false };
    let reader = &graph.steps[reader];
    let turns = |a: &Access| a.tensor == to && lying(graph, a).is_some_and(|order| !order.is_sorted());
    matches!(graph.steps[norm].kind, StepKind::Normalize(_))
        && reader.kind == StepKind::Pointwise
        && graph.tensor(to).role == Role::Intermediate
        && reader.inputs.iter().any(turns)
}
