//! Caches that an attention puts together itself.
//!
//! A decoder's step gives its caches out with the new token's key and value in them: a copy of all there is, for an attention that
//! reads it again. Where a kernel keeps what it reads, the copies are gone: caches are read once and written once. Looked for are
//! attentions whose keys and whose values are all of a tensor that a [scattering](Scattered) of one line writes and nobody reads before;
//! or into which a step copies what there was, and another one puts the line behind that.

use super::attend::renumbered;
use super::fused::{Access, Attention, FusedGraph, Role, Scattered, Step, StepKind, Tensor, TensorId};
use super::prune::prune;
use super::view::{View, dense_strides};
use crate::tensor::{DType, HostTensor};

/// The graph with such attentions, as far as `worth` says yes; `None` where there are none.
pub(crate) fn keep_caches(graph: &FusedGraph, worth: impl Fn(&FusedGraph, &Step) -> bool) -> Option<FusedGraph> {
    if !graph.steps.iter().any(|s| matches!(s.kind, StepKind::Attention(_))) {
        return None;
    }
    let mut out = graph.clone();
    let mut gone = Vec::new();
    for i in 0..graph.steps.len() {
        if let Some((copies, whole)) = keeping(&mut out, i)
            && out.step_promises(&whole).is_ok()
            && worth(&out, &whole)
        {
            out.steps[i] = whole;
            gone.extend(copies);
        }
    }
    if gone.is_empty() {
        return None;
    }
    Some(without(out, &gone))
}

/// A graph without some steps, and what only they have to do with.
pub(super) fn without(mut graph: FusedGraph, gone: &[usize]) -> FusedGraph {
    let mut number = 0..;
    graph.steps.retain(|_| number.next().is_some_and(|n| !gone.contains(&n)));
    prune(&mut graph);
    graph
}

/// An attention with the steps that write its keys and values, and it as one that does so.
fn keeping(graph: &mut FusedGraph, at: usize) -> Option<([usize; 2], Step)> {
    let step = graph.steps[at].clone();
    let StepKind::Attention(kind) = &step.kind else { return None };
    let r = step.output.view.rank();
    let (k, v) = (Cache::of(graph, at, 1, r - 1)?, Cache::of(graph, at, 2, r - 2)?);
    if kind.cached || kind.paged || k.start != v.start || k.writer == v.writer {
        return None;
    }
    let placed = matches!(k.start, Start::Behind(_));
    let start = match k.start {
        Start::Told(start) => start,
        Start::Behind(place) => {
            let batch = &step.output.view.dims[..r - 2];
            let view = View { offset: 0, dims: [batch, &[1, 1]].concat(), strides: vec![0; r] };
            let role = Role::Constant(HostTensor::from_ints(DType::I64, &[1], &[place]));
            let (name, shape) = (format!("{} place", step.name), vec![1]);
            Access::new(graph.add_tensor(Tensor { name, dtype: DType::I64, shape, role }), view)
        }
    };
    let first = kind.caches().start as u32;
    let expr = renumbered(&step.expr, step.expr.result(), |i| Some(if i < first { i } else { i + 5 }))?;
    let mut inputs = step.inputs.clone();
    inputs.splice(first as usize..first as usize, [k.past, k.new, v.past, v.new, start]);
    let name = [k.writer, v.writer, at].map(|i| graph.steps[i].name.as_str()).join("+");
    let kind = StepKind::Attention(Attention { cached: true, placed, ..kind.clone() });
    Some(([k.writer, v.writer], Step { name, kind, inputs, expr, output: step.output.clone() }))
}

/// What an operand of an attention is put together of, over the attention's dimensions.
struct Cache {
    writer: usize,
    past: Access,
    new: Access,
    start: Start,
}

/// Where the new line goes: where an operand says, or behind so many.
#[derive(PartialEq)]
enum Start {
    Told(Access),
    Behind(i64),
}

/// A step that writes a cache, but for the new line where that is there already.
struct Copied<'a> {
    writer: usize,
    axis: usize,
    past: Access,
    /// The new line, and the operand that says where it goes.
    new: Option<(&'a Access, &'a Access)>,
}

impl<'a> Copied<'a> {
    /// By the one step that writes a tensor.
    fn scattered(graph: &'a FusedGraph, writer: usize, dims: &[usize]) -> Option<Copied<'a>> {
        let step = &graph.steps[writer];
        let StepKind::Program(program) = &step.kind else { return None };
        let Scattered { axis, start } = program.scattered?;
        let [new, past, ..] = &step.inputs[..] else { return None };
        let places = step.inputs.get(start)?;
        let whole = step.expr.is_acc() && step.output.view == View::dense(dims);
        let one = new.view.dims.get(axis) == Some(&1) && past.view.rank() == dims.len();
        (whole && one).then(|| Copied { writer, axis, past: past.clone(), new: Some((new, places)) })
    }

    /// By one of two steps: what it leaves out is the last line along a dimension.
    fn joined(graph: &'a FusedGraph, writer: usize, dims: &[usize]) -> Option<Copied<'a>> {
        let step = &graph.steps[writer];
        let [from] = &step.inputs[..] else { return None };
        if step.kind != StepKind::Pointwise || !step.expr.is_copy() || !from.is_plain() {
            return None;
        }
        (0..dims.len()).filter(|axis| dims[*axis] > 1).find_map(|axis| {
            let mut room = dims.to_vec();
            room[axis] -= 1;
            let to = View::dense(dims).sliced(axis, 0, 1, room[axis]);
            let past = Access::new(from.tensor, View::dense(&room));
            let same = merged(&step.output.view) == merged(&to) && merged(&from.view) == merged(&past.view);
            same.then_some(Copied { writer, axis, past, new: None })
        })
    }
}

/// A view as a function of the number of an element: offset, and extents and strides with as few dimensions as there can be.
fn merged(view: &View) -> (i64, Vec<(usize, i64)>) {
    let mut out: Vec<(usize, i64)> = Vec::new();
    for (&d, &s) in view.dims.iter().zip(&view.strides).filter(|(d, _)| **d != 1) {
        match out.last_mut() {
            Some(last) if last.1 == s * d as i64 => *last = (last.0 * d, s),
            _ => out.push((d, s)),
        }
    }
    (view.offset, out)
}

impl Cache {
    /// Of operand `i` of a step, whose lines follow each other in dimension `along`.
    fn of(graph: &FusedGraph, at: usize, i: usize, along: usize) -> Option<Cache> {
        let own = &graph.steps[at].inputs[i];
        let tensor = graph.tensor(own.tensor);
        let dims = &tensor.shape;
        let writers: Vec<usize> =
            (0..graph.steps.len()).filter(|n| graph.steps[*n].written().any(|t| t == own.tensor)).collect();
        let Copied { writer, axis, past, new } = match writers[..] {
            [one] => Copied::scattered(graph, one, dims)?,
            [a, b] => Copied::joined(graph, a, dims).or_else(|| Copied::joined(graph, b, dims))?,
            _ => return None,
        };
        let read_before = graph.steps[..at].iter().flat_map(|s| &s.inputs).any(|a| a.tensor == own.tensor);
        let computed = matches!(tensor.role, Role::Output(_) | Role::Intermediate);
        if !computed || writers.iter().any(|w| *w >= at) || read_before || own.view.offset != 0 {
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
        let access = |tensor: TensorId, offset: i64, shape: &[usize], extent: usize| {
            let strides = dense_strides(shape);
            let mut view = View { offset, dims: own.view.dims.clone(), strides: vec![0; r] };
            for (d, walked) in walked.iter().enumerate() {
                view.strides[d] = walked.map_or(0, |(k, m)| m * strides[k]);
            }
            view.dims[along] = extent;
            Access::new(tensor, view)
        };
        let of = |a: &Access, extent: usize| access(a.tensor, a.view.offset, &a.view.dims, extent);
        let room = past.view.dims[axis];
        let Some((new, places)) = new else {
            let new = access(own.tensor, room as i64 * dense[axis], dims, 1);
            return Some(Cache { writer, past: of(&past, room), new, start: Start::Behind(room as i64) });
        };
        let mut start = View { offset: places.view.offset, dims: own.view.dims.clone(), strides: vec![0; r] };
        for d in 0..r {
            start.strides[d] = walked[d].filter(|w| w.0 == 0).map_or(0, |w| w.1);
        }
        (r - 2..r).for_each(|d| (start.dims[d], start.strides[d]) = (1, 0));
        let start = Start::Told(Access::new(places.tensor, start));
        Some(Cache { writer, past: of(&past, room), new: of(new, 1), start })
    }
}
