//! Merges the dimensions that all operands of a step walk as one.
//!
//! Fewer dimensions mean fewer divisions in kernels and longer runs of neighbouring elements: an activation over an image
//! becomes one dimension, a batched product with a shared right side one large product, a 1x1 convolution one over a
//! line. What may be merged depends on the kind
//! ([`super::kinds`]); here is what they share.

use super::fused::{Access, FusedGraph, Step};
use super::view::View;
use std::ops::Range;

/// Merges dimensions in every step.
pub(crate) fn collapse_views(graph: &mut FusedGraph) {
    for step in &mut graph.steps {
        step.kind.clone().collapse(step);
    }
}

/// The stride of dimensions that form one line.
pub(super) fn inner_stride(v: &View, range: Range<usize>) -> i64 {
    range.rev().find(|&d| v.dims[d] != 1).map_or(1, |d| v.strides[d])
}

/// Which dimensions of `range` form one, for all views: a list of runs, without extents of 1.
pub(crate) fn groups(views: &[&View], range: Range<usize>) -> Vec<Vec<usize>> {
    let mut out: Vec<Vec<usize>> = Vec::new();
    let dims = &views[0].dims;
    for d in range.filter(|&d| dims[d] != 1) {
        if let Some(run) = out.last_mut() {
            let p = *run.last().expect("runs are not empty");
            if views.iter().all(|v| v.strides[p] == v.strides[d] * dims[d] as i64) {
                run.push(d);
                continue;
            }
        }
        out.push(vec![d]);
    }
    out
}

/// Extents and strides of the runs; one of extent 1 when there are none.
pub(crate) fn apply(v: &View, groups: &[Vec<usize>]) -> (Vec<usize>, Vec<i64>) {
    if groups.is_empty() {
        return (vec![1], vec![0]);
    }
    let dims = groups.iter().map(|g| g.iter().map(|&d| v.dims[d]).product()).collect();
    (dims, groups.iter().map(|g| v.strides[g[g.len() - 1]]).collect())
}

/// Views of images, channels, and positions of these, as matrices of positions and channels, with a dimension of images in front where these are not `merged` or do not
/// lie in line; none where an image's positions do not.
pub(crate) fn of_positions<'a>(views: impl Iterator<Item = &'a View>, merged: bool) -> Option<Vec<View>> {
    let turn = |v: &View| {
        let order: Vec<usize> = [0].into_iter().chain(2..v.rank()).chain([1]).collect();
        v.permuted(&order)
    };
    let turned: Vec<View> = views.map(turn).collect();
    let (all, last) = (turned.iter().collect::<Vec<_>>(), turned.first()?.rank() - 1);
    let runs = if merged { groups(&all, 0..last) } else { [vec![vec![0]], groups(&all, 1..last)].concat() };
    if runs.len() > 2 || runs.len() == 2 && runs[0] != [0] || !merged && runs.len() < 2 {
        return None;
    }
    let matrix = |v: &View| {
        let (mut dims, mut strides) = apply(v, &runs);
        dims.push(v.dims[last]);
        strides.push(v.strides[last]);
        View { offset: v.offset, dims, strides }
    };
    Some(turned.iter().map(matrix).collect())
}

/// Merges the dimensions `range` of all accesses of a step. With `keep`, at least one dimension remains of them.
pub(super) fn merge(step: &mut Step, range: Range<usize>, keep: bool) {
    let mut blockers: Vec<View> = Vec::new();
    for a in &step.inputs {
        blockers.extend(a.indirect.iter().map(|i| i.view.clone()));
        if let Some(g) = &a.guard {
            // A guarded dimension stays alone: no strides merge with this view's.
            let limited = |d: usize| i64::from(g.ranges[d] != (0, a.view.dims[d]));
            let strides = (0..a.view.rank()).map(limited).collect();
            blockers.push(View { offset: 0, dims: a.view.dims.clone(), strides });
        }
    }
    let views: Vec<&View> =
        step.inputs.iter().map(|a| &a.view).chain([&step.output.view]).chain(blockers.iter()).collect();
    let mut runs = groups(&views, range.clone());
    if runs.is_empty() && keep && range.is_empty() {
        // Nothing there at all: a dimension of extent 1 stands in.
        for a in step.inputs.iter_mut().chain([&mut step.output]) {
            insert_one(a, range.start);
        }
        return;
    }
    if runs.is_empty() && keep {
        runs.push(vec![range.start]);
    }
    for a in step.inputs.iter_mut().chain([&mut step.output]) {
        if let Some(g) = &mut a.guard {
            let merged: Vec<(usize, usize)> = runs
                .iter()
                .map(|run| match run[..] {
                    [d] => g.ranges[d],
                    _ => (0, run.iter().map(|&d| a.view.dims[d]).product()),
                })
                .collect();
            g.ranges.splice(range.clone(), merged);
        }
        for v in std::iter::once(&mut a.view).chain(a.indirect.iter_mut().map(|i| &mut i.view)) {
            let (dims, strides): (Vec<usize>, Vec<i64>) = runs
                .iter()
                .map(|run| (run.iter().map(|&d| v.dims[d]).product::<usize>(), v.strides[run[run.len() - 1]]))
                .unzip();
            v.dims.splice(range.clone(), dims);
            v.strides.splice(range.clone(), strides);
        }
    }
}

fn insert_one(a: &mut Access, at: usize) {
    for v in std::iter::once(&mut a.view).chain(a.indirect.iter_mut().map(|i| &mut i.view)) {
        v.dims.insert(at, 1);
        v.strides.insert(at, 0);
    }
    if let Some(g) = &mut a.guard {
        g.ranges.insert(at, (0, 1));
    }
}
