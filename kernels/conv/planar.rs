//! Convolutions over lines, and over volumes whose windows are one element wide in neighbouring dimensions, as convolutions over planes: a line is a plane of one
//! row, and dimensions that lie together, along which windows are points, are one. Kernels for planes are the ones that have several results for a workitem.

use crate::graph::fused::{Access, Conv, Step, StepKind, Window};
use crate::graph::view::View;

/// What belongs to a dimension of the window, behind images and channels.
const FIRST: usize = 2;

/// The same convolution over planes, if it is not over such already.
pub(super) fn planar(step: &Step, conv: &Conv) -> Option<(Step, Conv)> {
    let rank = conv.window.kernel.len();
    let all = || step.inputs.iter().chain([&step.output]);
    if rank == 2 || !conv.also.is_empty() || !all().all(|a| a.is_plain() && a.view.rank() == FIRST + rank) {
        return None;
    }
    let (mut step, mut conv) = (step.clone(), conv.clone());
    if rank == 1 {
        change(&mut step, |view| {
            let line = view.strides[FIRST] * view.dims[FIRST] as i64;
            view.dims.insert(FIRST, 1);
            view.strides.insert(FIRST, line);
        });
        let Window { kernel, strides, dilations, pads } = &mut conv.window;
        [kernel, strides, dilations].into_iter().for_each(|list| list.insert(0, 1));
        pads.insert(0, 0);
    }
    while conv.window.kernel.len() > 2 {
        let d = (0..conv.window.kernel.len() - 1).find(|d| are_one(&step, &conv.window, *d))?;
        change(&mut step, |view| {
            let (outer, inner) = (FIRST + d, FIRST + d + 1);
            if view.dims[inner] > 1 {
                view.strides[outer] = view.strides[inner];
            }
            view.dims[outer] *= view.dims.remove(inner);
            view.strides.remove(inner);
        });
        let Window { kernel, strides, dilations, pads } = &mut conv.window;
        for list in [kernel, strides, dilations, pads] {
            list.remove(d);
        }
    }
    step.kind = StepKind::Conv(conv.clone());
    Some((step, conv))
}

/// Changes every view of a convolution.
fn change(step: &mut Step, how: impl Fn(&mut View)) {
    step.inputs.iter_mut().chain([&mut step.output]).for_each(|Access { view, .. }| how(view));
}

/// Dimension `d` of the window and the one behind it lie together, and windows are points along both, all of them inside of the input.
fn are_one(step: &Step, window: &Window, d: usize) -> bool {
    let [x, _, ..] = &step.inputs[..] else { return false };
    let whole = |d: usize| {
        let extents = [x, &step.output].map(|a| a.view.dims[FIRST + d]);
        (window.kernel[d], window.strides[d], window.pads[d]) == (1, 1, 0) && extents[0] == extents[1]
    };
    let together = |a: &Access| {
        let (dims, strides) = (&a.view.dims[FIRST + d..], &a.view.strides[FIRST + d..]);
        dims[0] == 1 || dims[1] == 1 || strides[0] == strides[1] * dims[1] as i64
    };
    whole(d) && whole(d + 1) && step.inputs.iter().chain([&step.output]).all(together)
}
