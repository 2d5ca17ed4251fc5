//! Images are stored with their channels last where what reads and writes them is quicker then.
//!
//! Tensors that convolutions read and write change their places in memory together: who reads or writes one walks it in another order
//! ([`redirect_access`]), so that only steps between such a tensor and one that stays as it is turn anything. Dimensions that steps have merged
//! are split again where that order parts them, and merged anew behind it. Tensors that some step could not walk then, or whose convolutions would not be computed
//! by channels, stay. Of what remains, tensors that steps have in common are decided on together: what their steps take is compared with what they take now.
//! Copies that turned images before turn nothing then, and go.

use super::collapse::collapse_views;
use super::forward::{forward_writes, read_through, redirect_access};
use super::fused::{Access, FusedGraph, Role, Step, StepKind, TensorId};
use super::lazy::split_access;
use super::uses::Uses;
use super::view::View;
use crate::tensor::DType;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Channels that are worth it, and of which there are whole groups.
const LEAST: usize = 32;
const WHOLE: usize = 8;

/// How a convolution, a matrix product or a reduction is computed.
pub(crate) struct Way {
    /// Clocks, about.
    pub clocks: f64,
    /// A convolution from an image whose channels are last.
    pub by_channels: bool,
}

/// How a tensor holds images: so many channels, each a plane of so many elements.
#[derive(Clone, Copy, PartialEq)]
struct Planes {
    channels: usize,
    plane: usize,
}

impl Planes {
    /// Images of `len` elements with their channels last, walked as they are with their channels first.
    fn turned(self, len: usize) -> View {
        let Planes { channels, plane } = self;
        let strides = vec![(channels * plane) as i64, 1, channels as i64];
        View { offset: 0, dims: vec![len / (channels * plane), channels, plane], strides }
    }
}

type Images = BTreeMap<TensorId, Planes>;

/// The graph with such tensors and the clocks that they save; `None` where that is not `worth` it, by the clocks without and with them. `way` tells how such a step is computed, `turning`
/// the clocks that so many bytes take more where a step of so many parts turns them, each of which is computed by itself, `apart` those that a step takes besides what it computes; `takes`, of which types images are that may
/// be stored so.
pub(crate) fn keep_channels_last(
    graph: &FusedGraph,
    takes: impl Fn(DType) -> bool,
    way: impl Fn(&FusedGraph, &Step) -> Option<Way>,
    turning: impl Fn(usize, usize) -> f64,
    apart: f64,
    worth: impl Fn(f64, f64) -> bool,
) -> Option<(FusedGraph, f64)> {
    let uses = Uses::of(graph);
    let mut saved = 0.0;
    let mut last = reached(graph, &uses, takes);
    while !last.is_empty() {
        let (next, stuck) = turned(graph, &uses, &last);
        let mut stay: BTreeSet<TensorId> = stuck.into_iter().collect();
        if stay.is_empty() {
            stay = unable(&next, &last, &way);
        }
        if stay.is_empty() {
            (last, saved) = worth_it((graph, &uses), &next, &last, (&way, &turning, apart, &worth))?;
            break;
        }
        last.retain(|t, _| !stay.contains(t));
    }
    if last.is_empty() {
        return None;
    }
    let (mut next, _) = turned(graph, &uses, &last);
    read_through(&mut next);
    forward_writes(&mut next);
    collapse_views(&mut next);
    Some((next, saved))
}

/// Tensors that could have their channels last: those that convolutions read and write, and besides them steps that can walk them in any order.
fn reached(graph: &FusedGraph, uses: &Uses, takes: impl Fn(DType) -> bool) -> Images {
    let walks = |at: &usize| match &graph.steps[*at].kind {
        StepKind::Conv(c) => c.groups == 1,
        StepKind::Pool(_) | StepKind::Reduce(_) | StepKind::Pointwise | StepKind::Normalize(_) => true,
        StepKind::MatMul | StepKind::Resample(_) => true,
        _ => false,
    };
    let mut images: BTreeMap<TensorId, Option<Planes>> = BTreeMap::new();
    let convolutions = graph.steps.iter().filter(|s| matches!(s.kind, StepKind::Conv(_)));
    for a in convolutions.flat_map(|s| [&s.inputs[0], &s.output]) {
        let planes = planes(a, graph.tensor(a.tensor).len());
        images.entry(a.tensor).and_modify(|known| *known = known.filter(|k| Some(*k) == planes)).or_insert(planes);
    }
    let able = |(t, planes): (TensorId, Option<Planes>)| {
        let (writers, readers) = (&uses.writers[t.index()], &uses.readers[t.index()]);
        let tensor = graph.tensor(t);
        let image = planes.filter(|p| p.plane > 1 && p.channels >= LEAST && p.channels.is_multiple_of(WHOLE))?;
        let able = tensor.role == Role::Intermediate && takes(tensor.dtype) && writers.iter().chain(readers).all(walks);
        able.then_some((t, image))
    };
    images.into_iter().filter_map(able).collect()
}

/// How a tensor of so many elements holds images, where a convolution walks it as images, channels, and places.
fn planes(a: &Access, len: usize) -> Option<Planes> {
    let [images, channels] = [a.view.dims[0], a.view.dims[1]];
    let [image, plane] = [a.view.strides[0], a.view.strides[1]];
    let plane = usize::try_from(plane).ok().filter(|p| *p > 0 && channels > 1 && len.is_multiple_of(*p))?;
    let all = if images > 1 { usize::try_from(image).ok()? } else { len };
    let whole = all > 0 && all.is_multiple_of(plane) && len.is_multiple_of(all);
    whole.then_some(Planes { channels: all / plane, plane })
}

/// The graph with these tensors turned, and those of them for which that cannot be.
fn turned(graph: &FusedGraph, uses: &Uses, images: &Images) -> (FusedGraph, Vec<TensorId>) {
    let mut next = graph.clone();
    let stuck = images.iter().filter(|(t, planes)| turn(&mut next, uses, **t, **planes).is_none());
    let stuck = stuck.map(|(t, _)| *t).collect();
    (next, stuck)
}

/// Stores a tensor with its channels last.
fn turn(graph: &mut FusedGraph, uses: &Uses, t: TensorId, planes: Planes) -> Option<()> {
    let target = planes.turned(graph.tensor(t).len());
    let touching: BTreeSet<_> = uses.writers[t.index()].iter().chain(&uses.readers[t.index()]).collect();
    let steps = touching.into_iter().map(|at| Some((*at, walked(&graph.steps[*at], t, planes, &target)?)));
    let changed: Vec<(usize, Step)> = steps.collect::<Option<_>>()?;
    let stored = vec![target.dims[0], planes.plane, planes.channels];
    let before = std::mem::replace(&mut graph.tensors[t.index()].shape, stored);
    if changed.iter().any(|(_, s)| graph.step_promises(s).is_err()) {
        graph.tensors[t.index()].shape = before;
        return None;
    }
    changed.into_iter().for_each(|(at, step)| graph.steps[at] = step);
    Some(())
}

/// A step that walks a tensor so.
fn walked(step: &Step, t: TensorId, planes: Planes, target: &View) -> Option<Step> {
    let mut step = split(step, t, [planes.plane, planes.plane * planes.channels])?;
    if step.inputs.iter().flat_map(|a| &a.indirect).any(|x| x.index == t) {
        return None;
    }
    for a in step.inputs.iter_mut().chain([&mut step.output]).filter(|a| a.tensor == t) {
        *a = redirect_access(a, t, target)?;
    }
    if step.kind == StepKind::Pointwise {
        in_order(&mut step);
    }
    // What walks windows tells its dimensions by their places.
    if !matches!(step.kind, StepKind::Conv(_) | StepKind::Pool(_) | StepKind::Resample(_)) {
        step.kind.clone().collapse(&mut step);
    }
    Some(step)
}

/// Puts the dimensions of an elementwise step in the order of its result's memory.
fn in_order(step: &mut Step) {
    let mut order: Vec<usize> = (0..step.output.view.rank()).collect();
    order.sort_by_key(|d| std::cmp::Reverse(step.output.view.strides[*d]));
    for a in step.inputs.iter_mut().chain([&mut step.output]) {
        a.view = a.view.permuted(&order);
        a.indirect.iter_mut().for_each(|i| i.view = i.view.permuted(&order));
        if let Some(guard) = &mut a.guard {
            guard.ranges = order.iter().map(|d| guard.ranges[*d]).collect();
        }
    }
}

/// The step with dimensions split where a walk over the tensor goes on from a plane or an image to the next.
fn split(step: &Step, t: TensorId, places: [usize; 2]) -> Option<Step> {
    let rank = step.output.view.rank();
    if !matches!(step.kind, StepKind::Pointwise | StepKind::Normalize(_) | StepKind::Reduce(_)) {
        return Some(step.clone());
    }
    let accesses = || step.inputs.iter().chain([&step.output]);
    let parts = |d: usize| {
        let mut cuts = BTreeSet::new();
        for v in accesses().filter(|a| a.tensor == t && a.view.rank() > d).map(|a| &a.view) {
            let (n, stride) = (v.dims[d], usize::try_from(v.strides[d]).unwrap_or(0));
            cuts.extend(places.iter().filter(|p| stride > 0 && stride < **p && stride * n > **p).map(|p| (*p, stride)));
        }
        let extent = accesses().map(|a| &a.view).find(|v| v.rank() > d)?.dims[d];
        let (mut parts, mut inner) = (Vec::new(), 1);
        for (place, stride) in cuts {
            let cut = place.is_multiple_of(stride).then_some(place / stride)?;
            if cut != inner {
                parts.push(cut.is_multiple_of(inner).then_some(cut / inner)?);
                inner = cut;
            }
        }
        parts.push(extent.is_multiple_of(inner).then_some(extent / inner)?);
        parts.reverse();
        Some(parts)
    };
    // A reduction's operand has more dimensions than its result: those that go.
    let most = accesses().map(|a| a.view.rank()).max()?;
    let parts: Vec<Vec<usize>> = (0..most).map(parts).collect::<Option<_>>()?;
    if parts.iter().all(|p| p.len() == 1) {
        return Some(step.clone());
    }
    let runs: Vec<Range<usize>> = parts[..rank]
        .iter()
        .scan(0, |from, p| {
            *from += p.len();
            Some(*from - p.len()..*from)
        })
        .collect();
    let kind = if let StepKind::Normalize(_) = step.kind { step.kind.split(&runs)? } else { step.kind.clone() };
    let split = |a: &Access| split_access(a, &parts[..a.view.rank()].concat());
    let inputs = step.inputs.iter().map(split).collect::<Option<_>>()?;
    Some(Step { kind, inputs, output: split(&step.output)?, ..step.clone() })
}

/// Tensors that cannot be turned with the others: of windows that are not walked by channels.
fn unable(next: &FusedGraph, last: &Images, way: &impl Fn(&FusedGraph, &Step) -> Option<Way>) -> BTreeSet<TensorId> {
    let mut stay = BTreeSet::new();
    for step in &next.steps {
        let tensors = || step.inputs.iter().chain([&step.output]).map(|a| a.tensor);
        let touched = || tensors().filter(|t| last.contains_key(t));
        match step.kind {
            StepKind::Conv(_) if touched().next().is_some() => match way(next, step) {
                Some(way) if way.by_channels => {}
                // Its input stays, or, where that does already, its result.
                _ if last.contains_key(&step.inputs[0].tensor) => _ = stay.insert(step.inputs[0].tensor),
                None => _ = stay.insert(step.output.tensor),
                Some(_) => {}
            },
            // These turn nothing.
            StepKind::Pool(_) | StepKind::Resample(_) if !tensors().all(|t| last.contains_key(&t)) => {
                stay.extend(touched());
            }
            _ => {}
        }
    }
    stay
}

/// Those of the tensors that are worth it, and the clocks that they save, by what the steps that they have in common take without and with them.
fn worth_it(
    (graph, uses): (&FusedGraph, &Uses),
    next: &FusedGraph,
    last: &Images,
    (way, turning, apart, worth): (
        &impl Fn(&FusedGraph, &Step) -> Option<Way>,
        &impl Fn(usize, usize) -> f64,
        f64,
        &impl Fn(f64, f64) -> bool,
    ),
) -> Option<(Images, f64)> {
    let mut together: BTreeMap<TensorId, TensorId> = last.keys().map(|t| (*t, *t)).collect();
    fn first(together: &BTreeMap<TensorId, TensorId>, t: TensorId) -> TensorId {
        if together[&t] == t { t } else { first(together, together[&t]) }
    }
    let touched = |s: &Step| -> Vec<TensorId> {
        s.inputs.iter().chain([&s.output]).map(|a| a.tensor).filter(|t| last.contains_key(t)).collect()
    };
    for step in &next.steps {
        for pair in touched(step).windows(2) {
            let (a, b) = (first(&together, pair[0]), first(&together, pair[1]));
            together.insert(a.max(b), a.min(b));
        }
    }
    let mut clocks: BTreeMap<TensorId, [f64; 2]> = BTreeMap::new();
    for (old, new) in graph.steps.iter().zip(&next.steps) {
        let Some(t) = touched(new).first().copied() else { continue };
        let of = |graph: &FusedGraph, step: &Step| match step.kind {
            StepKind::Conv(_) => Some(way(graph, step)?.clocks),
            StepKind::MatMul | StepKind::Reduce(_) => Some(way(graph, step).map_or(0.0, |way| way.clocks)),
            StepKind::Pointwise => Some(turning(across(graph, step), usize::MAX)),
            StepKind::Normalize(norm) => {
                let out = &step.output.view;
                let lines = out.dims[..out.rank() - norm.axes].iter().product();
                Some(turning(across(graph, step), lines))
            }
            _ => Some(0.0),
        };
        let sums = clocks.entry(first(&together, t)).or_default();
        sums[0] += of(graph, old)?;
        sums[1] += of(next, new)? + apart * summands(graph, uses, old) as f64;
    }
    clocks.retain(|_, c| worth(c[0], c[1]));
    let saved = clocks.values().map(|c| c[0] - c[1]).sum();
    let worth = |t: &TensorId| clocks.contains_key(&first(&together, *t));
    Some((last.iter().filter(|(t, _)| worth(t)).map(|(t, p)| (*t, *p)).collect(), saved))
}

/// Convolutions that one is added to, and is one with ([`sum_convolutions`](super::sum_convolutions)) as long as neither is by channels.
fn summands(graph: &FusedGraph, uses: &Uses, step: &Step) -> usize {
    let may = |s: &Step| matches!(&s.kind, StepKind::Conv(conv) if conv.groups == 1);
    let added = |a: &&Access| {
        let [writer] = uses.writers[a.tensor.index()][..] else { return false };
        may(&graph.steps[writer]) && uses.readers[a.tensor.index()].len() == 1
    };
    if may(step) { step.inputs[step.kind.operands()..].iter().filter(added).count() } else { 0 }
}

/// Bytes that a step reads across the lines of memory in which it writes.
fn across(graph: &FusedGraph, step: &Step) -> usize {
    let out = &step.output.view;
    let Some(along) = (0..out.rank()).find(|d| out.dims[*d] > 1 && out.strides[*d].abs() == 1) else { return 0 };
    let alike = |a: &&Access| a.view.rank() == out.rank() && a.view.strides[along].abs() > 1;
    let bytes = |a: &Access| {
        let t = graph.tensor(a.tensor);
        a.view.len().min(t.len()) * t.dtype.size()
    };
    step.inputs.iter().filter(alike).map(bytes).sum()
}
