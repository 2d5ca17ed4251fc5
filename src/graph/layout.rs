//! Images are stored with their channels last where convolutions are quicker then.
//!
//! Tensors that convolutions read and write change their places in memory together: who reads or writes one walks it in another order
//! ([`redirect_access`]), so that only convolutions between such a tensor and one that stays as it is turn anything. Tensors that some step could not walk
//! then, or whose convolutions would not be computed by channels, stay. What all convolutions take then is compared with what they take now.

use super::forward::redirect_access;
use super::fused::{FusedGraph, Role, Step, StepKind, TensorId};
use super::uses::Uses;
use super::view::View;
use std::collections::BTreeSet;

/// Channels that are worth it, and of which there are whole groups.
const LEAST: usize = 32;
const WHOLE: usize = 8;

/// How convolutions are computed.
pub(crate) struct Way {
    /// Clocks, about.
    pub clocks: f64,
    /// From an image whose channels are last to such an image.
    pub by_channels: bool,
}

/// The graph with such tensors; `None` where that is not `worth` it, by the clocks without and with them. `way` tells how a convolution is computed,
/// `turning` the clocks that so many bytes take more where a convolution turns them.
pub(crate) fn keep_channels_last(
    graph: &FusedGraph,
    way: impl Fn(&FusedGraph, &Step) -> Option<Way>,
    turning: impl Fn(usize) -> f64,
    worth: impl Fn(f64, f64) -> bool,
) -> Option<FusedGraph> {
    let uses = Uses::of(graph);
    let mut last = reached(graph, &uses);
    while !last.is_empty() {
        let mut next = graph.clone();
        let stuck: Vec<TensorId> = last.iter().copied().filter(|t| turn(&mut next, &uses, *t).is_none()).collect();
        let mut stay: BTreeSet<TensorId> = stuck.into_iter().collect();
        if stay.is_empty() {
            let (mut before, mut after) = (0.0, 0.0);
            for (old, new) in graph.steps.iter().zip(&next.steps) {
                let touched = |s: &Step| s.inputs.iter().chain([&s.output]).any(|a| last.contains(&a.tensor));
                if !touched(new) {
                    continue;
                }
                if let StepKind::Conv(_) = new.kind {
                    let (Some(was), is) = (way(graph, old), way(&next, new)) else { return None };
                    match is {
                        Some(is) if is.by_channels => after += is.clocks,
                        // Its input stays, or, where that does already, its result.
                        _ if last.contains(&new.inputs[0].tensor) => _ = stay.insert(new.inputs[0].tensor),
                        None => _ = stay.insert(new.output.tensor),
                        Some(is) => after += is.clocks + turning(graph.tensor(new.output.tensor).bytes()),
                    }
                    before += was.clocks;
                } else if let StepKind::Pool(_) = new.kind {
                    // A pool turns nothing.
                    let all = || new.inputs.iter().chain([&new.output]).map(|a| a.tensor);
                    if !all().all(|t| last.contains(&t)) {
                        stay.extend(all().filter(|t| last.contains(t)));
                    }
                }
            }
            if stay.is_empty() {
                return worth(before, after).then_some(next);
            }
        }
        last.retain(|t| !stay.contains(t));
    }
    None
}

/// Tensors that could have their channels last: those that convolutions, and pools and sums beside them, read and write. What other steps walk they
/// walk in an order of their own.
fn reached(graph: &FusedGraph, uses: &Uses) -> BTreeSet<TensorId> {
    let takes = |at: &usize| match &graph.steps[*at].kind {
        StepKind::Conv(c) => c.groups == 1,
        StepKind::Pool(_) | StepKind::Reduce(_) => true,
        _ => false,
    };
    let able = |t: &TensorId| {
        let (writers, readers) = (&uses.writers[t.index()], &uses.readers[t.index()]);
        let t = graph.tensor(*t);
        let image = (3..=5).contains(&t.shape.len()) && t.shape[1] >= LEAST && t.shape[1].is_multiple_of(WHOLE);
        let floats = t.dtype.is_float() && t.dtype.size() == 2;
        t.role == Role::Intermediate && image && floats && writers.iter().chain(readers).all(takes)
    };
    let convolutions = graph.steps.iter().filter(|s| matches!(s.kind, StepKind::Conv(_)));
    convolutions.flat_map(|s| [s.inputs[0].tensor, s.output.tensor]).filter(able).collect()
}

/// Stores a tensor with its channels last.
fn turn(graph: &mut FusedGraph, uses: &Uses, t: TensorId) -> Option<()> {
    let shape = graph.tensor(t).shape.clone();
    let order: Vec<usize> = [0].into_iter().chain(2..shape.len()).chain([1]).collect();
    let stored: Vec<usize> = order.iter().map(|d| shape[*d]).collect();
    let dense = View::dense(&stored);
    let mut strides = vec![0; shape.len()];
    order.iter().zip(&dense.strides).for_each(|(d, s)| strides[*d] = *s);
    let target = View { offset: 0, dims: shape.clone(), strides };
    let mut changed = Vec::new();
    for at in uses.writers[t.index()].iter().chain(&uses.readers[t.index()]).collect::<BTreeSet<_>>() {
        let mut step = graph.steps[*at].clone();
        if step.inputs.iter().flat_map(|a| &a.indirect).any(|x| x.index == t) {
            return None;
        }
        for a in step.inputs.iter_mut().chain([&mut step.output]).filter(|a| a.tensor == t) {
            *a = redirect_access(a, t, &target)?;
        }
        changed.push((*at, step));
    }
    let before = std::mem::replace(&mut graph.tensors[t.index()].shape, stored);
    if changed.iter().any(|(_, s)| graph.step_promises(s).is_err()) {
        graph.tensors[t.index()].shape = before;
        return None;
    }
    changed.into_iter().for_each(|(at, step)| graph.steps[at] = step);
    Some(())
}
