//! Steps one behind the other in one launch: the workgroups of the first, then those of the next, and so on
//! ([`chained`](crate::mir::Function::chained)).
//!
//! A workgroup of a step waits until all of the step before have ended, and needs no launch of its own for that: a launch costs more. Until then it
//! loads what no step gives, its weights, so that memory goes on meanwhile. When a workgroup has stored its results for the whole device to see, its first wave counts:
//! lane by lane, each a counter of its own, which costs no mask. The first wave of a workgroup that waits looks at these, each lane at one, until all
//! have counted; then it drops what caches hold that the device does not share (all waves of a
//! workgroup load through the same ones: kernels do not ask for the mode of RDNA in which they do not), and only then do the others of the workgroup go on,
//! which wait at a barrier.
//!
//! Only workgroups of lower numbers are waited for. Workgroups begin in the order of their numbers (on a device of several dies those of each die
//! do), so the first of those that have not ended waits for nobody who is not there: however few are resident at once, it goes on.
//!
//! A workgroup stores nothing, and loads nothing that a step gives, before it has waited, so memory can be used again as from launch to launch. Counters
//! lie in [`Arg::Links`], which is zero before each launch and after it: each workgroup counts itself out, too, when it ends, and the last one of a step,
//! behind whose waits all of its like are, clears what they waited for. What counts those wraps to 0 by itself.

use super::{Arg, Cx, Tuning, Writer, attention, packed};
use crate::graph::fused::{Access, FusedGraph, Step, StepKind};
use crate::mir::{Buffer, Builder, Gen, Part, Type};
use barewave_isa::Target;

/// Workitems of a workgroup of any step that shares its launch.
pub(super) const ITEMS: u32 = 256;

/// A step's place among those of its launch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link {
    /// Its number among them.
    pub number: u32,
    /// Workgroups of the step before, if there is one.
    pub before: u32,
    /// Another step follows.
    pub follows: bool,
}

impl Link {
    /// Bytes of [`Arg::Links`] for so many steps.
    pub fn bytes(target: Target, steps: u32) -> u32 {
        (steps - 1) * 2 * target.info().wave_size * 4
    }
}

/// True for a step that can share its launch with others, and takes about as long there.
pub fn chains(graph: &FusedGraph, step: &Step, target: Target, tuning: &Tuning) -> bool {
    let cx = super::cx(graph, step, target, tuning);
    match &step.kind {
        StepKind::Packed(_) => packed::chains(&cx),
        StepKind::Attention(_) => attention::chains(&cx),
        _ => false,
    }
}

/// Operands that a step of a shared launch loads before it waits for the others: none of these may give them.
pub fn loaded_ahead(step: &Step) -> &[Access] {
    match &step.kind {
        StepKind::Packed(p) => &step.inputs[1..p.weights_end()],
        _ => &[],
    }
}

impl Cx<'_> {
    /// The step waits for others of its launch.
    pub(super) fn waits(&self) -> bool {
        self.link.is_some_and(|l| l.number > 0)
    }
}

impl Writer {
    /// Byte of what counts those who end a step of a number, and of what counts those who have waited for them.
    fn counts(&self, number: u32) -> [u32; 2] {
        let bytes = self.b.wave_size() * 4;
        [2 * number * bytes, (2 * number + 1) * bytes]
    }

    /// Counters of the step of a number and of those before it as a buffer.
    fn links(&mut self, number: u32) -> Buffer {
        let [_, last] = self.counts(number);
        let buf = self.b.buffer_arg(self.args.len() as u32, last + self.b.wave_size() * 4);
        self.args.push((Arg::Links, buf));
        buf
    }

    /// Waits until all workgroups of the step before, if there is one in the launch, have ended. All waves come here.
    pub(super) fn wait_for_step_before(&mut self) {
        let Some(link) = self.link.filter(|l| l.number > 0) else { return };
        let [ended, _] = self.counts(link.number - 1);
        let links = self.links(link.number - 1);
        let b = &mut self.b;
        let (at, number) = lane_and_wave(b);
        let told = b.label();
        b.branch_lt(0u32, number, told);
        let (none, found) = (b.scalar(ended), b.v(1));
        b.loop_while_any("wait", |b| {
            b.loads_from_device(true);
            b.load_into(found, links, at, none, 0);
            b.loads_from_device(false);
            b.op(Gen::CmpNe.of(Type::U32), &[link.before.into(), found.into()])
        });
        b.fix_order();
        b.acquire();
        b.place(told, "told");
        b.barrier();
        b.block("go");
    }

    /// Counts the workgroup, which has done everything else, for the step behind it, and among those who need what the step before has counted no more.
    pub(super) fn end_link(&mut self, grid: [u32; 3]) {
        let Some(link) = self.link else { return };
        let own: u32 = grid.iter().product();
        let pointer = self.pointer(Arg::Links);
        let (ended, before) = (self.counts(link.number)[0], link.number.checked_sub(1).map(|n| self.counts(n)));
        let links = before.map(|_| self.links(link.number - 1));
        let b = &mut self.b;
        let (at, number) = lane_and_wave(b);
        b.block("end");
        b.fix_order();
        b.finish_stores();
        b.barrier();
        let left = b.label();
        b.branch_lt(0u32, number, left);
        if link.follows {
            let at = b.add(at, ended);
            b.device_increment(pointer, at, u32::MAX);
        }
        if let (Some([waited, gone]), Some(links)) = (before, links) {
            let out = b.add(at, gone);
            let count = b.device_increment(pointer, out, own - 1);
            let count = b.uniform(count);
            b.branch_lt(count, own - 1, left);
            let (zero, start) = (b.to_vector(0u32), b.scalar(waited));
            b.device_store(links, zero, at, start, 0);
        }
        b.place(left, "left");
    }
}

/// Byte of a lane's own counter among those of its wave, and the number of the wave in its workgroup.
fn lane_and_wave(b: &mut Builder) -> (Part, Part) {
    let wave = b.wave_size();
    let item = b.workitem_id();
    let lane = b.and(item, wave - 1);
    let at = b.shl(lane, 2u32);
    let number = b.shr(item, wave.trailing_zeros());
    (at, b.uniform(number))
}
