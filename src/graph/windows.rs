//! Convolutions of one input by windows of different extents become one.
//!
//! A convolution by points and one by a larger window give neighbouring channels of one tensor (the two halves of what a Fire
//! module of SqueezeNet gives): the point is a window of zeros around its tap. There is more to multiply then, in one launch
//! less; whoever asks says what is worth it. Where an element is not finite its zeros are NaN in the results around it, of
//! which the larger window's half is not finite there in any case.

use super::collapse::{groups, inner_stride};
use super::fused::{Access, Conv, FusedGraph, Role, Step, StepKind, Tensor};
use super::join::{own_part, side};
use super::uses::Changing;
use super::view::View;
use crate::tensor::HostTensor;
use rustc_hash::FxHashMap;

/// Weights of windows of more bytes take longer to be read than a launch takes.
const MOST_PADDED: usize = 16 << 20;

/// The graph with such convolutions joined, where `worth` says yes to the whole instead of both; `None` where there are none.
pub(crate) fn join_windows(
    graph: &FusedGraph,
    worth: impl Fn(&FusedGraph, &Step, [&Step; 2]) -> bool,
) -> Option<FusedGraph> {
    let mut changing = Changing::of(graph);
    let mut before: FxHashMap<[u32; 2], usize> = FxHashMap::default();
    for at in 0..graph.steps.len() {
        let step = &graph.steps[at];
        if !matches!(step.kind, StepKind::Conv(Conv { groups: 1, before: None, flip: 0, .. })) {
            continue;
        }
        let key = [step.inputs[0].tensor.0, step.output.tensor.0];
        let Some(&first) = before.get(&key) else {
            before.insert(key, at);
            continue;
        };
        let other = changing.graph().steps[first].clone();
        let Some(pair) = Pair::of(changing.graph(), [&other, step]) else { continue };
        changing.attempt(|graph, _| {
            let (weights, operands) = (pair.weights(graph)?, pair.operands(graph)?);
            let whole = pair.whole(graph, weights, operands);
            let fits = graph.step_promises(&whole).is_ok() && worth(graph, &whole, [&other, step]);
            fits.then(|| vec![(first, Some(whole)), (at, None)])
        });
    }
    changing.end()
}

/// Two convolutions in the order of their channels, one by points.
struct Pair<'a> {
    steps: [&'a Step; 2],
    /// Which of them has the larger window.
    large: usize,
    /// The tap of the larger window that the point is.
    tap: usize,
}

impl<'a> Pair<'a> {
    fn of(graph: &FusedGraph, [a, b]: [&'a Step; 2]) -> Option<Pair<'a>> {
        let is_point = |s: &Step| matches!(&s.kind, StepKind::Conv(c) if c.window.is_point());
        let (point, large) = match (is_point(a), is_point(b)) {
            (true, false) => (a, b),
            (false, true) => (b, a),
            _ => return None,
        };
        let (read, written) = (&large.inputs[0].view, &large.output.view);
        // All in the same order, and of constants but for what both read.
        let plain = |s: &Step| s.inputs.iter().chain([&s.output]).all(Access::is_plain);
        let same_input = point.inputs[0].view.offset == read.offset
            && point.inputs[0].view.dims[..2] == read.dims[..2]
            && is_flat(&point.inputs[0].view, read);
        let alike = point.expr == large.expr && point.inputs.len() == large.inputs.len();
        let dtype = |s: &Step| graph.tensor(s.inputs[1].tensor).dtype;
        let fits = plain(point) && plain(large) && same_input && alike && dtype(point) == dtype(large);
        let same_output = point.output.view.dims[0] == written.dims[0] && is_flat(&point.output.view, written);
        // Windows that sit on every point of their input.
        if !fits || !same_output || read.dims[2..] != written.dims[2..] {
            return None;
        }
        let tap = middle(large)?;
        let after = |s: &Step| s.output.view.offset + s.output.view.dims[1] as i64 * written.strides[1];
        let steps = if after(point) == written.offset {
            [point, large]
        } else if after(large) == point.output.view.offset {
            [large, point]
        } else {
            return None;
        };
        Some(Pair { steps, large: usize::from(std::ptr::eq(steps[1], large)), tap })
    }

    fn large(&self) -> &'a Step {
        self.steps[self.large]
    }

    fn channels(&self) -> usize {
        self.steps.iter().map(|s| s.output.view.dims[1]).sum()
    }

    /// The weights of both, one below the other.
    fn weights(&self, graph: &FusedGraph) -> Option<HostTensor> {
        let taps: usize = self.large().inputs[1].view.dims[2..].iter().product();
        let part = |(i, s): (usize, &&Step)| {
            let Role::Constant(t) = &graph.tensor(s.inputs[1].tensor).role else { return None };
            side(graph, s)?;
            let rows = s.output.view.dims[1];
            if i != self.large && t.byte_len() * taps > MOST_PADDED {
                return None;
            }
            let t = if i == self.large { t.clone() } else { padded(t, taps, self.tap) };
            t.reshaped(&[rows, t.len() / rows]).ok()
        };
        HostTensor::joined(self.steps.iter().enumerate().map(part).collect::<Option<_>>()?, 0).ok()
    }

    /// What the epilogue reads of each channel, of both.
    fn operands(&self, graph: &FusedGraph) -> Option<Vec<HostTensor>> {
        let both = |k: usize| {
            let part = |s: &&Step| own_part(graph, &s.inputs[k], 1).and_then(|t| t.reshaped(&[t.len()]).ok());
            HostTensor::joined(self.steps.iter().map(part).collect::<Option<_>>()?, 0).ok()
        };
        (2..self.large().inputs.len()).map(both).collect()
    }

    /// The whole, whose constants are added to the graph.
    fn whole(&self, graph: &mut FusedGraph, weights: HostTensor, operands: Vec<HostTensor>) -> Step {
        let name = self.steps.map(|s| s.name.as_str()).join("+");
        let mut step = Step { name, ..self.large().clone() };
        step.output.view.dims[1] = self.channels();
        step.output.view.offset = self.steps[0].output.view.offset;
        let mut constant = |like: &Access, data: HostTensor| {
            let (dtype, shape) = (data.dtype(), data.shape().to_vec());
            let name = graph.tensor(like.tensor).name.clone();
            graph.add_tensor(Tensor { name, dtype, shape, role: Role::Constant(data) })
        };
        let mut dims = step.inputs[1].view.dims.clone();
        dims[0] = self.channels();
        step.inputs[1] = Access::new(constant(&step.inputs[1], weights), View::dense(&dims));
        for (access, data) in step.inputs[2..].iter_mut().zip(operands) {
            access.tensor = constant(access, data);
            access.view.dims[1] = self.channels();
        }
        step
    }
}

/// True when the dimensions of `flat` behind the first two are those of `full`, one by one or all in one line; their strides and
/// those of the first two agree.
fn is_flat(flat: &View, full: &View) -> bool {
    let r = full.rank();
    let outer = (0..2).all(|d| full.dims[d] == 1 || flat.strides[d] == full.strides[d]);
    let one_by_one = flat.rank() == r && flat.dims[2..] == full.dims[2..] && flat.strides[2..] == full.strides[2..];
    let line = flat.rank() == 3
        && flat.dims[2] == full.dims[2..].iter().product::<usize>()
        && groups(&[full], 2..r).len() <= 1
        && (flat.dims[2] == 1 || flat.strides[2] == inner_stride(full, 2..r));
    outer && (one_by_one || line)
}

/// The tap that a window has on the very element that it stands for, if it has one and moves from element to element.
fn middle(step: &Step) -> Option<usize> {
    let StepKind::Conv(Conv { window: w, .. }) = &step.kind else { return None };
    let mut tap = 0;
    for d in 0..w.kernel.len() {
        let at = w.pads[d] / w.dilations[d];
        if w.strides[d] != 1 || at * w.dilations[d] != w.pads[d] || at >= w.kernel[d] {
            return None;
        }
        tap = tap * w.kernel[d] + at;
    }
    Some(tap)
}

/// The weights of points as those of windows.
fn padded(points: &HostTensor, taps: usize, tap: usize) -> HostTensor {
    let size = points.dtype().size();
    let mut bytes = vec![0; points.byte_len() * taps];
    for (element, window) in points.bytes().chunks_exact(size).zip(bytes.chunks_exact_mut(size * taps)) {
        window[tap * size..][..size].copy_from_slice(element);
    }
    HostTensor::new(points.dtype(), &[points.len(), taps], bytes).expect("as many elements as bytes")
}
