//! Caches that an attention puts together itself.
//!
//! A decoder's step gives its caches out with the new token's key and value in them: a copy of all there is, for an attention that
//! reads it again. Where a kernel keeps what it reads, the copies are gone: caches are read once and written once. Looked for are
//! attentions whose keys and whose values are all of a tensor that a [scattering](Scattered) of one line writes and nobody reads before.

use super::attend::renumbered;
use super::fused::{Access, Attention, FusedGraph, Role, Scattered, Step, StepKind};
use super::prune::prune;
use super::view::{View, dense_strides};

/// The graph with such attentions, as far as `worth` says yes; `None` where there are none.
pub(crate) fn keep_caches(graph: &FusedGraph, worth: impl Fn(&FusedGraph, &Step) -> bool) -> Option<FusedGraph> {
    let mut found = Vec::new();
    for (i, step) in graph.steps.iter().enumerate() {
        if let Some((copies, whole)) = keeping(graph, i)
            && graph.step_promises(&whole).is_ok()
            && worth(graph, &whole)
            && step.kind != whole.kind
        {
            found.push((i, copies, whole));
        }
    }
    if found.is_empty() {
        return None;
    }
    let mut out = graph.clone();
    let gone: Vec<usize> = found.iter().flat_map(|f| f.1).collect();
    for (at, _, whole) in found {
        out.steps[at] = whole;
    }
    let mut number = 0..;
    out.steps.retain(|_| number.next().is_some_and(|n| !gone.contains(&n)));
    prune(&mut out);
    Some(out)
}

/// An attention with the steps that write its keys and values, and it as one that does so.
fn keeping(graph: &FusedGraph, at: usize) -> Option<([usize; 2], Step)> {
    let step = &graph.steps[at];
    let StepKind::Attention(kind) = &step.kind else { return None };
    let r = step.output.view.rank();
    let (k, v) = (Cache::of(graph, at, 1, r - 1)?, Cache::of(graph, at, 2, r - 2)?);
    if kind.cached || k.start != v.start || k.writer == v.writer {
        return None;
    }
    let first = kind.caches().start as u32;
    let expr = renumbered(&step.expr, step.expr.result(), |i| Some(if i < first { i } else { i + 5 }))?;
    let mut inputs = step.inputs.clone();
    inputs.splice(first as usize..first as usize, [k.past, k.new, v.past, v.new, k.start]);
    let name = [k.writer, v.writer, at].map(|i| graph.steps[i].name.as_str()).join("+");
    let kind = StepKind::Attention(Attention { cached: true, ..kind.clone() });
    Some(([k.writer, v.writer], Step { name, kind, inputs, expr, output: step.output.clone() }))
}

/// What an operand of an attention is put together of, over the attention's dimensions.
struct Cache {
    writer: usize,
    past: Access,
    new: Access,
    start: Access,
}

impl Cache {
    /// Of operand `i` of a step, whose lines follow each other in dimension `along`.
    fn of(graph: &FusedGraph, at: usize, i: usize, along: usize) -> Option<Cache> {
        let own = &graph.steps[at].inputs[i];
        let tensor = graph.tensor(own.tensor);
        let mut writers = (0..graph.steps.len()).filter(|n| graph.steps[*n].written().any(|t| t == own.tensor));
        let (writer, None) = (writers.next()?, writers.next()) else { return None };
        let step = &graph.steps[writer];
        let StepKind::Program(program) = &step.kind else { return None };
        let Scattered { axis, start } = program.scattered?;
        let [new, past, ..] = &step.inputs[..] else { return None };
        let places = step.inputs.get(start)?;
        let dims = &step.output.view.dims;
        let whole = step.expr.is_acc() && *dims == tensor.shape && step.output.view == View::dense(dims);
        let one = new.view.dims.get(axis) == Some(&1) && past.view.rank() == dims.len();
        let read_before = graph.steps[..at].iter().flat_map(|s| &s.inputs).any(|a| a.tensor == own.tensor);
        let computed = matches!(tensor.role, Role::Output(_) | Role::Intermediate);
        if !(whole && one && computed && writer < at) || read_before || own.view.offset != 0 {
            return None;
        }
        // The attention's dimensions in terms of the tensor's: which one each of them walks, and how far at a time.
        let dense = dense_strides(dims);
        let r = own.view.rank();
        let walks = |d: usize| -> Option<Option<(usize, i64)>> {
            let (extent, stride) = (own.view.dims[d], own.view.strides[d]);
            if extent == 1 || stride == 0 {
                return Some(None);
            }
            let fits =
                |k: &usize| stride % dense[*k] == 0 && (extent as i64 - 1) * (stride / dense[*k]) < dims[*k] as i64;
            let k = (0..dims.len()).filter(|k| dims[*k] > 1).find(fits)?;
            Some(Some((k, stride / dense[k])))
        };
        let walked: Vec<Option<(usize, i64)>> = (0..r).map(walks).collect::<Option<_>>()?;
        let lines = walked[along] == Some((axis, 1)) && own.view.dims[along] == dims[axis];
        let apart = (0..r).all(|d| d == along || walked[d].is_none_or(|w| w.0 != axis));
        let walked_all = (0..r).filter(|d| walked[*d].is_some()).map(|d| own.view.dims[d]).product::<usize>();
        if !(lines && apart && walked_all == tensor.len()) {
            return None;
        }
        let access = |a: &Access, extent: usize| {
            let strides = dense_strides(&a.view.dims);
            let mut view = View { offset: a.view.offset, dims: own.view.dims.clone(), strides: vec![0; r] };
            for (d, walked) in walked.iter().enumerate() {
                view.strides[d] = walked.map_or(0, |(k, m)| m * strides[k]);
            }
            view.dims[along] = extent;
            Access::new(a.tensor, view)
        };
        let mut start = View { offset: places.view.offset, dims: own.view.dims.clone(), strides: vec![0; r] };
        for d in 0..r {
            start.strides[d] = walked[d].filter(|w| w.0 == 0).map_or(0, |w| w.1);
        }
        (r - 2..r).for_each(|d| (start.dims[d], start.strides[d]) = (1, 0));
        let room = past.view.dims[axis];
        Some(Cache { writer, past: access(past, room), new: access(new, 1), start: Access::new(places.tensor, start) })
    }
}
