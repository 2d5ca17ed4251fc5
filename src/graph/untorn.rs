//! What is made of transposed tensors and normalised is stored as these lie, where the result is turned back.
//!
//! Networks whose channels come last are exported with a transposition before and after each operator that wants channels first. Of a residual's sum between
//! them the first transposition would be a copy: whoever normalises the sum, and whoever turns the result back, would walk lines of memory across. Here
//! the sum lies as its operands do, and readers walk it in that order ([`redirect_access`]); the result is turned back for nothing then
//! ([`absorb_elementwise`](super::absorb::absorb_elementwise)).

use super::forward::redirect_access;
use super::fused::{Access, FusedGraph, Role, Step, StepKind};
use super::join::lying;
use super::uses::Uses;
use super::view::{View, dense_strides};

/// Stores such tensors so.
pub(super) fn store_as_read(graph: &mut FusedGraph) {
    let uses = Uses::of(graph);
    for i in 0..graph.steps.len() {
        let Some((target, steps)) = stored(graph, &uses, i) else { continue };
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

/// How what step `i` gives is stored as its operands lie, and the steps that write and read it then.
fn stored(graph: &FusedGraph, uses: &Uses, i: usize) -> Option<(View, Vec<(usize, Step)>)> {
    let step = &graph.steps[i];
    let (out, id) = (&step.output.view, step.output.tensor);
    let alone = graph.tensor(id).role == Role::Intermediate && uses.writers[id.index()] == [i];
    if step.kind != StepKind::Pointwise || !alone || !lying(graph, &step.output)?.is_sorted() {
        return None;
    }
    // All operands that have elements for each of the result's lie alike.
    if !step.inputs.iter().all(Access::is_plain) {
        return None;
    }
    let repeats = |a: &Access| a.view.dims.iter().zip(&a.view.strides).any(|(n, stride)| *n > 1 && *stride == 0);
    let mut whole = step.inputs.iter().filter(|a| !repeats(a));
    let order = lying(graph, whole.next()?)?;
    if order.is_sorted() || !whole.all(|a| lying(graph, a).as_ref() == Some(&order)) {
        return None;
    }
    let mut strides = vec![0; out.rank()];
    let places = dense_strides(&order.iter().map(|d| out.dims[*d]).collect::<Vec<_>>());
    order.iter().zip(places).for_each(|(d, place)| strides[*d] = place);
    let target = View { offset: 0, dims: out.dims.clone(), strides };
    let readers = &uses.readers[id.index()];
    if !readers.iter().any(|r| is_turned_back(graph, uses, *r)) {
        return None;
    }
    // In the order in which all of it lies.
    let mut writer = Step { output: Access::new(id, target.clone()), ..step.clone() };
    for a in writer.inputs.iter_mut().chain([&mut writer.output]) {
        a.view = a.view.permuted(&order);
    }
    let mut steps = vec![(i, writer)];
    for &r in readers {
        let mut reader = graph.steps[r].clone();
        let looked_up = reader.inputs.iter().flat_map(|a| &a.indirect).any(|x| x.index == id);
        if looked_up || !matches!(reader.kind, StepKind::Pointwise | StepKind::Normalize(_)) {
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
