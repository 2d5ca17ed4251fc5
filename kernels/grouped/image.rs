//! Few long lines that lie together: each is one group of channels at many points, so many of its elements next to each other. Where a workgroup for
//! each leaves most compute units idle, and pieces of lines take two launches; several workgroups that hold a line together take one.

use super::plan::Plan;
use super::{Grouped, SHORT};
use crate::graph::fused::{Normalize, Step};
use crate::kernels::choice::Machine;
use crate::kernels::softmax::Elements;
use crate::kernels::{Arg, Cx};

/// Elements that are loaded together at most.
const TOGETHER: usize = 8;

/// Elements of a line at least.
const LONG: usize = 1 << 13;

/// What they read and write takes memory so much of a launch's time at least: less is launched together with others, which workgroups that wait for each other are not.
const LAUNCHES: f64 = 1.0;

/// The share of the time of other ways that it may take: both are estimated, and wrong by about as much.
const QUICKER: f64 = 0.9;

impl Grouped {
    /// The step with its lines cut in points and channels, and how several workgroups hold each; none where that is not worth it beside `others`, the clocks of
    /// other ways.
    pub fn of_few(cx: &Cx, n: &Normalize, others: f64) -> Option<(Step, Grouped)> {
        let elements = Elements::of(cx);
        let view = cx.view(elements.sources[0]);
        let (rank, size) = (view.rank(), cx.dtype(elements.sources[0]).size());
        let outer = rank - n.axes;
        let [count, length] = [0..outer, outer..rank].map(|range| view.dims[range].iter().product::<usize>());
        let plain = cx.step.inputs.iter().chain([&cx.step.output]).all(|a| a.is_plain() && a.view.rank() == rank);
        if n.magnitudes || !plain || count >= cx.target.cus() as usize || length < LONG {
            return None;
        }
        let machine = Machine::of(cx.target);
        let moved = (count * length * (size + cx.dtype(Arg::Output).size())) as f64;
        if moved < LAUNCHES * machine.launch * machine.memory {
            return None;
        }
        // As many channels as an access takes, and then as many as can be.
        let last = view.dims[rank - 1];
        let together = |n: usize| TOGETHER.min(1 << n.trailing_zeros());
        let fits = |n: &usize| last.is_multiple_of(*n) && n * size < SHORT && (n * size).is_multiple_of(4);
        let each = (2..last).filter(fits).max_by_key(|n| (together(*n), *n))?;
        let mut step = cx.step.clone();
        for a in step.inputs.iter_mut().chain([&mut step.output]) {
            let (dims, strides) = (&mut a.view.dims, &mut a.view.strides);
            let stride = strides[rank - 1];
            dims.splice(rank - 1.., [last / each, each]);
            strides.splice(rank - 1.., [stride * each as i64, stride]);
            dims.insert(outer, 1);
            strides.insert(outer, stride * each as i64);
        }
        let (found, clocks) = Grouped::by(&Cx { step: &step, ..*cx }, n.axes + 1, Plan::told)?;
        (clocks < QUICKER * others).then_some((step, found))
    }
}
