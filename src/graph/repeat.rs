//! What elementwise steps would write several times is written once, and read as often.
//!
//! Exporters repeat keys and values for the queries that share them (Expand, then Reshape). A step none of whose operands walks a
//! dimension gives the same along it: it goes over the other dimensions alone, and who reads the result reads it with a stride
//! of 0 there. Where nothing but a copy is left, the source is read itself. A reader that has the repeated dimension merged with
//! its neighbour gets it split.

use super::forward::redirect_access;
use super::fused::{Access, FusedGraph, Role, Step, StepKind, TensorId};
use super::join::lying;
use super::prune::prune;
use super::uses::Uses;
use super::view::{View, dense_strides};
use std::collections::BTreeMap;

/// Takes the repetitions out of all steps whose readers can do without.
pub(super) fn read_repeated(graph: &mut FusedGraph) {
    let uses = Uses::of(graph);
    let mut changed = false;
    for i in 0..graph.steps.len() {
        changed |= once(graph, i, &uses).is_some();
    }
    if changed {
        prune(graph);
    }
}

/// Makes step `i` go over what it repeats once.
fn once(graph: &mut FusedGraph, i: usize, uses: &Uses) -> Option<()> {
    let step = Some(&graph.steps[i]).filter(|s| s.kind == StepKind::Pointwise)?.clone();
    let t = step.output.tensor;
    let repeated: Vec<usize> = (0..step.output.view.rank()).filter(|d| is_repeated(&step, *d)).collect();
    let alone = uses.writers[t.index()] == [i] && graph.tensor(t).role == Role::Intermediate;
    if repeated.is_empty() || step.inputs.is_empty() || !alone {
        return None;
    }
    let order = lying(graph, &step.output)?;
    // What is read instead: the source of a copy, or the same tensor, of which less is written.
    let (tensor, mut instead) = match &step.inputs[..] {
        [source] if step.expr.is_copy() && source.is_plain() && readable(graph, source.tensor) => {
            (source.tensor, source.view.clone())
        }
        _ => {
            let mut dims = step.output.view.permuted(&order).dims;
            let ones = |d: &usize| repeated.contains(&order[*d]);
            (0..dims.len()).filter(ones).for_each(|d| dims[d] = 1);
            let dense = dense_strides(&dims);
            let mut view = step.output.view.clone();
            order.iter().zip(&dense).for_each(|(d, s)| view.strides[*d] = *s);
            (t, view)
        }
    };
    repeated.iter().for_each(|d| instead.strides[*d] = 0);
    let target = instead.permuted(&order);
    let mut readers: BTreeMap<usize, Step> = BTreeMap::new();
    for &reader in &uses.readers[t.index()] {
        let step = redirected(&graph.steps[reader], t, tensor, &target)?;
        graph.step_promises(&step).ok()?;
        readers.insert(reader, step);
    }
    if tensor == t {
        let shorter = &mut graph.steps[i];
        shorter.output.view.strides.clone_from(&instead.strides);
        for a in shorter.inputs.iter_mut().chain([&mut shorter.output]) {
            for d in &repeated {
                a.view.dims[*d] = 1;
                a.guard.iter_mut().for_each(|g| g.ranges[*d] = (0, 1));
            }
        }
        let dims: Vec<usize> = shorter.output.view.permuted(&order).dims;
        for d in repeated.iter().rev().take(order.len() - 1) {
            shorter.inputs.iter_mut().chain([&mut shorter.output]).for_each(|a| without(a, *d));
        }
        graph.tensors[t.index()].shape = dims;
    }
    readers.into_iter().for_each(|(r, step)| graph.steps[r] = step);
    Some(())
}

/// Takes a dimension that is not walked out of an access.
fn without(a: &mut Access, d: usize) {
    a.view.dims.remove(d);
    a.view.strides.remove(d);
    a.guard.iter_mut().for_each(|g| _ = g.ranges.remove(d));
}

/// A tensor that may be read in the place of its copy: what is made of constants is small, and kernels may want it as it is.
fn readable(graph: &FusedGraph, t: TensorId) -> bool {
    !matches!(graph.tensor(t).role, Role::Constant(_))
}

/// No operand of a step walks a dimension.
fn is_repeated(step: &Step, d: usize) -> bool {
    let n = step.output.view.dims[d];
    let still = |a: &Access| {
        let whole = a.guard.as_ref().is_none_or(|g| g.ranges[d] == (0, n));
        a.view.strides[d] == 0 && whole && a.indirect.is_empty()
    };
    n > 1 && step.inputs.iter().all(still)
}

/// A step that reads `tensor` through `target` in the place of all of `t`.
fn redirected(step: &Step, t: TensorId, tensor: TensorId, target: &View) -> Option<Step> {
    let mut step = step.clone();
    for i in 0..step.inputs.len() {
        if step.inputs[i].indirect.iter().any(|x| x.index == t) {
            return None;
        }
        while step.inputs[i].tensor == t {
            match redirect_access(&step.inputs[i], tensor, target) {
                // The target may be in the same tensor.
                Some(a) => {
                    step.inputs[i] = a;
                    break;
                }
                None => {
                    let (d, inner) = split_of(&step.inputs[i].view, target, splittable(&step))?;
                    step = split(&step, d, inner)?;
                }
            }
        }
    }
    Some(step)
}

/// How many of the first dimensions of a step may be split.
fn splittable(step: &Step) -> usize {
    match step.kind {
        StepKind::Pointwise => step.output.view.rank(),
        StepKind::MatMul => step.output.view.rank() - 2,
        _ => 0,
    }
}

/// A dimension of a walk over a tensor that goes over several of those that its elements are made of, and the extent of the innermost
/// of these.
fn split_of(view: &View, target: &View, most: usize) -> Option<(usize, usize)> {
    let place = dense_strides(&target.dims);
    (0..most).find_map(|d| {
        let fits = |j: &usize| target.dims[*j] > 1 && place[*j] == view.strides[d];
        let j = (0..place.len()).find(fits)?;
        let inner = target.dims[j];
        (view.dims[d] > inner && view.dims[d].is_multiple_of(inner)).then_some((d, inner))
    })
}

/// A step with a dimension as two, the second of extent `inner`.
fn split(step: &Step, d: usize, inner: usize) -> Option<Step> {
    let mut out = step.clone();
    for a in out.inputs.iter_mut().chain([&mut out.output]) {
        if !a.is_plain() {
            return None;
        }
        let (n, s) = (a.view.dims[d], a.view.strides[d]);
        a.view.dims.splice(d..=d, [n / inner, inner]);
        a.view.strides.splice(d..=d, [s * inner as i64, s]);
    }
    Some(out)
}
