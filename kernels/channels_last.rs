//! Whether steps take less where images have their channels last ([`keep_channels_last`](crate::graph::keep_channels_last)): by estimates of what each takes.

use super::tuning::Tuning;
use super::{When, candidates, choice, conv, cx, key, reduce};
use crate::graph::fused::{FusedGraph, StepKind};
use barewave_isa::Target;
use rustc_hash::FxHashMap;
use std::cell::RefCell;

/// Channels come last where steps take so much less then, without WMMA and with it: estimates, which know nothing of the launches that steps share.
const WORTH_TURNING: [f64; 2] = [0.95, 0.9];

fn worth_turning(target: Target) -> f64 {
    WORTH_TURNING[usize::from(target.info().wmma.is_some())]
}

/// What turning bytes on their way takes over what memory does.
const TURNING: f64 = 1.0;

/// Clocks of a byte of elements of two that a workgroup loads across lines of memory: each is a request of its own. The normalisation of an image of 25088
/// elements by the cycle model.
const TURNING_BY_ONE: f64 = 1.3;

/// The graph with images whose channels are last, and the clocks that steps save so; `None` where that is not worth it.
pub(super) fn turned(graph: &FusedGraph, target: Target, tuning: &Tuning) -> Option<(FusedGraph, f64)> {
    let known = RefCell::new(FxHashMap::<String, Option<(f64, bool)>>::default());
    crate::graph::keep_channels_last(
        graph,
        conv::comes_by_channels,
        |graph, step| {
            let key = key(graph, step);
            let found = known.borrow().get(&key).copied();
            let (clocks, by_channels) = found.unwrap_or_else(|| {
                let cx = cx(graph, step, target, tuning);
                let found = match step.kind {
                    StepKind::Conv(_) => conv::way(&cx),
                    StepKind::Reduce(_) => reduce::clocks(&cx).map(|clocks| (clocks, false)),
                    _ => candidates(graph, step, target, tuning)
                        .and_then(|found| Some((found.candidates.first()?.clocks, false))),
                };
                known.borrow_mut().insert(key, found);
                found
            })?;
            Some(crate::graph::Way { clocks, by_channels })
        },
        |bytes, parts| {
            let machine = choice::Machine::of(target);
            let by_one = TURNING_BY_ONE * bytes as f64 / parts.min(target.cus() as usize).max(1) as f64;
            f64::max(TURNING * bytes as f64 / machine.memory, by_one)
        },
        choice::Machine::of(target).ends,
        |before, after| match tuning.channels_last() {
            When::Faster => after < worth_turning(target) * before,
            When::Never => false,
            When::Always => true,
        },
    )
}
