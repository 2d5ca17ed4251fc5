//! Scatter whose constant indices are the places of a slice, which is what exporters make of `x[..., 1::2] = y`: each element of the
//! result is one of the updates or one of the data, by its place along the sliced axis. Nothing is searched, and neither
//! is stored first.

use super::source::MAX_GENERATED;
use crate::graph::ask::Ask;
use crate::graph::error::Res;
use crate::graph::expr::Scalar;
use crate::graph::fused::{Access, Guard};
use crate::graph::lazy::Lazy;
use crate::graph::lower::Lowering;
use crate::graph::resolve::ValueId;
use crate::graph::view::View;
use crate::tensor::{DType, HostTensor};

/// Every so many elements at most are assigned: the updates are read for each of them.
const LARGEST_STEP: usize = 4;

/// Where along an axis updates go.
struct Run {
    start: usize,
    step: usize,
    count: usize,
    /// The dimension of the updates that walks along it, if one does.
    by: Option<usize>,
}

impl Run {
    fn is_whole(&self, extent: usize) -> bool {
        (self.start, self.count) == (0, extent)
    }
}

/// The runs of the axes that rows of indices are for, where these are a grid of places.
fn runs(indices: &HostTensor, extents: &[usize]) -> Option<Vec<Run>> {
    let (&k, lead) = indices.shape().split_last()?;
    let list = indices.to_i64();
    let row = |r: usize| list[r * k..][..k].iter().zip(extents).map(|(&v, &n)| if v < 0 { v + n as i64 } else { v });
    let first: Vec<i64> = row(0).collect();
    let mut runs: Vec<Run> = first.iter().map(|&v| Run { start: v as usize, step: 1, count: 1, by: None }).collect();
    let pitches = View::dense(lead).strides;
    for d in (0..lead.len()).filter(|&d| lead[d] > 1) {
        let next: Vec<i64> = row(pitches[d] as usize).collect();
        let mut moved = (0..k).filter(|&j| next[j] != first[j]);
        let (Some(j), None) = (moved.next(), moved.next()) else { return None };
        let step = usize::try_from(next[j] - first[j]).ok()?;
        if runs[j].by.is_some() {
            return None;
        }
        runs[j] = Run { step, count: lead[d], by: Some(d), ..runs[j] };
    }
    let at = |r: usize| {
        let place = |run: &Run| run.start + run.by.map_or(0, |d| r / pitches[d] as usize % lead[d]) * run.step;
        runs.iter().map(place).map(|place| place as i64).collect::<Vec<i64>>()
    };
    let inside = first.iter().all(|v| *v >= 0)
        && runs.iter().zip(extents).all(|(run, &n)| run.start + (run.count - 1) * run.step < n);
    (inside && (0..list.len() / k).all(|r| row(r).eq(at(r).iter().copied()))).then_some(runs)
}

/// Data of which a slice along one axis is replaced. `None` where that is not what the indices say.
pub(super) fn slice(cx: &mut Lowering<'_>, [data, indices, updates]: [ValueId; 3]) -> Res<Option<Lazy>> {
    let shape = cx.shape(data).to_vec();
    let Some(table) = cx.constant(indices) else { return Ok(None) };
    let lead = table.shape()[..table.shape().len() - 1].to_vec();
    let Some(runs) = runs(table, &shape) else { return Ok(None) };
    let mut parts = runs.iter().enumerate().filter(|(d, run)| !run.is_whole(shape[*d]));
    let (part, more) = (parts.next(), parts.next());
    if more.is_some() {
        return Ok(None);
    }
    // The updates' dimensions in the order of the axes.
    let rest = &shape[runs.len()..];
    let walked: Vec<usize> = (0..lead.len()).filter(|&d| lead[d] > 1).collect();
    let order = runs.iter().filter_map(|run| walked.iter().position(|d| Some(*d) == run.by));
    let order: Vec<usize> = order.chain(walked.len()..walked.len() + rest.len()).collect();
    let dims: Vec<usize> = walked.iter().map(|&d| lead[d]).chain(rest.iter().copied()).collect();
    let new = cx.with_literals(updates).reshaped(&dims);
    let counts: Vec<usize> = runs.iter().map(|run| run.count).chain(rest.iter().copied()).collect();
    let new = cx.permute(new, &order).reshaped(&counts);
    let Some((axis, run)) = part else { return Ok(Some(new)) };
    let (extent, step) = (shape[axis], run.step);
    let old = cx.with_literals(data);
    if run.start < step && step * run.count == extent && step <= LARGEST_STEP {
        let flags: Vec<i64> = (0..step).map(|i| i64::from(i == run.start)).collect();
        let split = |n: usize| [&shape[..axis], &[run.count, n], &shape[axis + 1..]].concat();
        let mut dims = vec![1; shape.len() + 1];
        dims[axis + 1] = step;
        let flags = flags_of(cx, &dims, &flags);
        let list = vec![flags, new.reshaped(&split(1)), old.reshaped(&split(step))];
        let y = cx.combine(list, &split(step), |e, v| e.select(v[0], v[1], v[2]))?;
        return Ok(Some(y.reshaped(&shape)));
    }
    if step != 1 || extent > MAX_GENERATED {
        return Ok(None);
    }
    let range = run.start..run.start + run.count;
    let Some(new) = placed(cx, new, axis, range.start, &shape) else { return Ok(None) };
    let flags: Vec<i64> = (0..extent).map(|i| i64::from(range.contains(&i))).collect();
    let mut dims = vec![1; shape.len()];
    dims[axis] = extent;
    let flags = flags_of(cx, &dims, &flags);
    cx.combine(vec![flags, new, old], &shape, |e, v| e.select(v[0], v[1], v[2])).map(Some)
}

fn flags_of(cx: &mut Lowering<'_>, dims: &[usize], flags: &[i64]) -> Lazy {
    let flags = cx.add_const("assigned".into(), HostTensor::from_ints(DType::Bool, dims, flags));
    Lazy::read(Access::new(flags, View::dense(dims)), DType::Bool)
}

/// A value as a part of a longer one, from `start` on along an axis; what it is elsewhere, nobody may ask. `None` when its views do not
/// allow it.
pub(super) fn placed(cx: &mut Lowering<'_>, part: Lazy, axis: usize, start: usize, shape: &[usize]) -> Option<Lazy> {
    let mut part = cx.plain_of(part);
    let n = part.shape[axis];
    for a in &mut part.inputs {
        if !a.is_plain() || a.view.dims != part.shape {
            return None;
        }
        a.view.offset -= start as i64 * a.view.strides[axis];
        a.view.dims[axis] = shape[axis];
        let mut ranges: Vec<(usize, usize)> = shape.iter().map(|&d| (0, d)).collect();
        ranges[axis] = (start, start + n);
        a.guard = Some(Guard { ranges, fill: Scalar::of(cx.graph.tensor(a.tensor).dtype, 0.0) });
    }
    (part.shape, part.grid) = (shape.to_vec(), shape.to_vec());
    Some(cx.normal(part))
}
