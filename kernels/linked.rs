//! Steps one behind the other in one launch: the workgroups of the first, then those of the next, and so on
//! ([`chained`](crate::mir::Function::chained)).
//!
//! A workgroup of a step waits until all of the step before have ended, and needs no launch of its own for that: a launch costs more. Until then it
//! loads what no step gives, its weights, so that memory goes on meanwhile. When a workgroup has stored its results for the whole device to see, its first wave counts.
//! The first wave of a workgroup that waits looks at the counter until all have counted; then it drops what caches hold that the device does not share (all waves of a
//! workgroup load through the same ones: kernels do not ask for the mode of RDNA in which they do not), and only then do the others of the workgroup go on,
//! which wait at a barrier.
//!
//! Only workgroups of lower numbers are waited for. Workgroups begin in the order of their numbers (on a device of several dies those of each die
//! do), so the first of those that have not ended waits for nobody who is not there: however few are resident at once, it goes on.
//!
//! A workgroup stores nothing, and loads nothing that a step gives, before it has waited, so memory can be used again as from launch to launch.
//!
//! Layers of a model are rounds of the same steps, which share their code: each round has arguments of its own. The first step of a round waits for the last one of the
//! round before, if there is one ([`Number::Before`]).
//!
//! Where a device has several dies, workgroups of a step count in turns at as many counters, which they so keep busy for less long; others look at all of them at once. Those of
//! a round's last step count at one.
//!
//! Counters lie in [`Arg::Links`], which is zero before each launch and after it. What a step waits at nobody looks at any more when all of
//! it have ended: the first workgroup of the step behind it clears that. The counter of a launch's last step wraps to 0 by itself ([`Number::Wraps`]), and
//! who finds that it has done so clears what that step has waited at.

use super::choice::Machine;
use super::{Arg, Cx, Number, Tuning, Writer, attention, packed};
use crate::graph::fused::{Access, FusedGraph, Step, StepKind};
use crate::mir::{Buffer, Builder, Gen, Opnd, Part, Type};
use barewave_isa::Target;

/// Workitems of a workgroup of any step that shares its launch.
pub(super) const ITEMS: u32 = 256;

/// A step's place among those of its round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link {
    /// Its number among them.
    pub number: u32,
    /// Workgroups of the step before; the first one is told how many of the round before there are.
    pub before: Option<u32>,
    /// Another step of the round follows; else the kernel is told whether a round does.
    pub follows: bool,
}

impl Link {
    /// Counters of a step that another one of its round follows.
    fn ways(target: Target) -> u32 {
        Machine::of(target).dies.next_power_of_two()
    }

    /// Bytes of a counter: one for each lane of a wave, of which others look at the first.
    fn of_one(target: Target) -> u32 {
        target.info().wave_size * 4
    }

    /// Bytes of a step's counters.
    pub fn pitch(target: Target) -> u32 {
        Link::ways(target) * Link::of_one(target)
    }

    /// Bytes of [`Arg::Links`] for so many steps of all rounds. A round's begins behind as many counters as the rounds before it have steps.
    pub fn bytes(target: Target, steps: u32) -> u32 {
        (steps + 2) * Link::pitch(target)
    }
}

/// The counters that a step knows.
#[derive(Clone, Copy)]
pub(super) struct Counters {
    buffer: Buffer,
    /// Their address, where the counter that the step counts by is needed as it was.
    pointer: Option<Part>,
    /// Workgroups that are waited for.
    before: Opnd,
    /// What the step's own counter wraps at.
    wraps: Option<Part>,
    /// The bytes of what the step before has waited at, the step waits at, and it counts by.
    bytes: [u32; 3],
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
pub fn loaded_ahead(step: &Step) -> Vec<&Access> {
    match &step.kind {
        StepKind::Packed(p) => step.inputs[1..p.weights_end()].iter().collect(),
        StepKind::Attention(kind) => attention::loaded_ahead(kind).into_iter().map(|i| &step.inputs[i]).collect(),
        _ => Vec::new(),
    }
}

/// Cycles between two atomics that meet at one place, and of what waits besides what memory takes.
const TURN: f64 = 2.0;
const WAITING: f64 = 300.0;

/// Cycles until a step begins that waits in a launch for so many waves of the one before: what these have counted takes its way to be seen, and
/// so does the load that sees it, which may just have missed it.
fn waiting(machine: &Machine, waves: u32) -> f64 {
    WAITING + 2.5 * machine.device_latency + TURN * f64::from(waves)
}

/// Cycles of a wave that is alone on its SIMD for each instruction, those more of each that shares the SIMD, for each cycle that a vector instruction takes of it, and what a
/// round of workgroups takes besides. Fitted to 3,500 levels of eleven networks on gfx906, gfx90a, gfx942, gfx1100 and gfx1201 in the cycle model: to what each takes longer
/// with the workgroups at once that its launch has than with its own. The mean error is 500 to 1,600 cycles.
const PACE: f64 = 5.0;
const CROWD: f64 = 0.6;
const BEGINS: f64 = 1200.0;

/// Cycles that levels take longer once: the first workgroups find out whose they are.
const FINDS_OUT: f64 = 800.0;

/// Ways to what the whole device sees and back that each round of a level's workgroups takes longer, which look at the counter and have lost what caches held.
const LOOKS: f64 = 2.0;

/// What a kernel's workgroups do.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// All of them.
    pub workgroups: u64,
    /// Waves of one.
    pub waves: u32,
    /// Instructions that a wave executes.
    pub executed: u32,
}

/// What the workgroups of a launch have of a compute unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Room {
    /// Workgroups at once.
    pub workgroups: u64,
    /// Waves that each has place for.
    pub waves: u32,
}

/// How long launches take, one behind the other or as levels of one.
pub struct Estimate {
    machine: Machine,
    cus: u64,
    simds: u32,
}

impl Estimate {
    /// For a target.
    pub fn of(target: Target) -> Estimate {
        let info = target.info();
        Estimate { machine: Machine::of(target), cus: info.cus as u64, simds: info.simds }
    }

    /// Cycles until a launch begins behind another one.
    pub fn launch(&self) -> f64 {
        self.machine.launch
    }

    /// Cycles that a launch of several levels takes longer than one of the first, which may be told its workgroups: that is asked for first.
    pub fn finds_out(&self, told: bool) -> f64 {
        FINDS_OUT + if told { self.machine.begins } else { 0.0 }
    }

    /// Cycles until a level begins behind one that does so much, which itself waits for others or not: of its waves those of a round end at once, and then count one after the other, and
    /// those that have ended before may not have counted by then.
    pub fn waits(&self, before: &[Work], room: Room, waits: bool) -> f64 {
        let waves = |of: fn(&Work, u64) -> u64| -> u64 {
            before.iter().map(|w| of(w, room.workgroups * self.cus) * u64::from(w.waves)).sum()
        };
        let (all, last) = (waves(|w, _| w.workgroups), waves(|w, at_once| w.workgroups.min(at_once)));
        let left = all as f64 - self.cycles(before, room, waits) / TURN;
        waiting(&self.machine, left.max(last as f64) as u32)
    }

    /// Cycles of a wave of some work, and of what begins and ends it, with so many workgroups like its own on the compute unit.
    fn wave(&self, work: &Work, room: Room, workgroups: u64) -> f64 {
        // Waves that end at once have had their places: the others lie on the same SIMDs in all workgroups.
        let apart = self.simds >> room.waves.trailing_zeros().min(self.simds.trailing_zeros());
        let simds = (work.waves * apart).clamp(1, self.simds);
        let others = (workgroups as f64 * f64::from(work.waves) / f64::from(simds) - 1.0).max(0.0);
        BEGINS + f64::from(work.executed) * (PACE + CROWD * self.machine.issue * others)
    }

    /// Cycles of some work side by side, about: as many rounds as it takes, of which the first takes as long as the longest, or as long as its waves need to begin. `waits` is
    /// true for a level behind others: what there is room for has begun before, but workgroups of all other rounds find out that they need not wait.
    pub fn cycles(&self, all: &[Work], room: Room, waits: bool) -> f64 {
        let at_once = room.workgroups.max(1);
        let workgroups: u64 = all.iter().map(|w| w.workgroups).sum();
        let of_cu = workgroups.div_ceil(self.cus);
        let longest = all.iter().map(|w| self.wave(w, room, of_cu.min(at_once))).fold(0.0, f64::max);
        let looks = if waits { LOOKS * self.machine.device_latency } else { 0.0 };
        let one = |n: u64| {
            let waves = all.iter().map(|w| w.workgroups as f64 * self.wave(w, room, n)).sum::<f64>();
            looks + waves / workgroups as f64
        };
        let (full, rest) = (of_cu / at_once, of_cu % at_once);
        let others = full.saturating_sub(1) as f64 * one(at_once) + if full > 0 && rest > 0 { one(rest) } else { 0.0 };
        let ahead = if waits { at_once * self.cus } else { 0 };
        let waves: u64 = all.iter().map(|w| w.workgroups * u64::from(w.waves)).sum();
        let begin = waves as f64 * workgroups.saturating_sub(ahead) as f64 / workgroups.max(1) as f64;
        (longest + others).max(begin * self.machine.dispatch)
    }
}

/// Cycles until a step begins behind another one of so many waves, whichever way is quicker.
pub(super) fn begins(machine: &Machine, waves: u32) -> f64 {
    waiting(machine, waves).min(machine.launch)
}

impl Cx<'_> {
    /// The step may wait for others of its launch.
    pub(super) fn waits(&self) -> bool {
        self.link.is_some()
    }
}

impl Writer {
    /// Asks for what the step's waits need, so that it is there by then.
    pub(super) fn ask_links(&mut self) {
        let Some(link) = self.link else { return };
        let pitch = Link::pitch(self.b.target());
        let bytes = [0, 1, 2].map(|n| (link.number + n) * pitch);
        let buffer = self.b.buffer_arg(self.args.len() as u32, bytes[2] + pitch);
        self.args.push((Arg::Links, buffer));
        let pointer = (!link.follows).then(|| self.pointer(Arg::Links));
        let wraps = (!link.follows).then(|| self.number(Number::Wraps));
        let before = link.before.map_or_else(|| self.number(Number::Before).into(), Opnd::from);
        self.counters = Some(Counters { buffer, pointer, before, wraps, bytes });
    }

    /// Waits until all workgroups of the step before, if there is one in the launch, have ended. All waves come here.
    pub(super) fn wait_for_step_before(&mut self) {
        let (Some(link), Some(Counters { buffer, before, bytes, .. })) = (self.link, self.counters) else { return };
        let b = &mut self.b;
        let (lane, number) = lane_and_wave(b);
        let told = b.label();
        b.branch_lt(0u32, number, told);
        if link.before.is_none() {
            b.branch_lt(before, 1u32, told);
        }
        let (start, found) = (b.scalar(bytes[1]), b.v(1));
        // Each lane looks at one of the counters, and knows how many count there.
        let ways = Link::ways(b.target());
        let (at, before) = match link.before.filter(|_| ways > 1) {
            Some(all) => {
                let way = b.and(lane, ways - 1);
                let at = b.mul(way, Link::of_one(b.target()));
                let left = b.sub(all + ways - 1, way);
                (at, b.shr(left, ways.trailing_zeros()).into())
            }
            None => (b.to_vector(0u32), before),
        };
        b.wait_while_any("wait", |b| {
            b.loads_from_device(true);
            b.load_into(found, buffer, at, start, 0);
            b.loads_from_device(false);
            b.op(Gen::CmpNe.of(Type::U32), &[before, found.into()])
        });
        b.fix_order();
        b.acquire();
        b.place(told, "told");
        b.barrier();
        b.block("go");
    }

    /// Counts the workgroup, which has done everything else, for the step behind it, and clears what is waited at no more.
    pub(super) fn end_link(&mut self, grid: [u32; 3]) {
        let Some(Counters { buffer, pointer, wraps, bytes, .. }) = self.counters else { return };
        let b = &mut self.b;
        let (lane, number) = lane_and_wave(b);
        b.block("end");
        b.fix_order();
        b.finish_stores();
        b.barrier();
        let (left, cleared) = (b.label(), b.label());
        b.branch_lt(0u32, number, left);
        let own = b.shl(lane, 2u32);
        let (ways, of_one) = (Link::ways(b.target()), Link::of_one(b.target()));
        let clear = |b: &mut Builder, byte: u32| {
            for way in 0..ways {
                let (zero, start) = (b.to_vector(0u32), b.scalar(byte + way * of_one));
                b.device_store(buffer, zero, own, start, 0);
            }
        };
        let counted = match (pointer, wraps) {
            (Some(pointer), Some(wraps)) => {
                let at = b.add(own, bytes[2]);
                Some((b.device_increment(pointer, at, wraps), wraps))
            }
            _ => {
                let id = |dim: usize| (grid[dim] > 1).then(|| (grid[dim], b.workgroup_id(dim)));
                let ids: Vec<(u32, Part)> = (0..3).rev().filter_map(id).collect();
                let group = ids.into_iter().reduce(|(_, n), (of, id)| (of, b.mad(n, of, id)));
                let start = match group.filter(|_| ways > 1) {
                    Some((_, group)) => {
                        let way = b.and(group, ways - 1);
                        b.mad(way, of_one, bytes[2])
                    }
                    None => b.scalar(bytes[2]),
                };
                b.device_count(buffer, lane, start);
                None
            }
        };
        for (dim, _) in grid.iter().enumerate().filter(|(_, n)| **n > 1) {
            let id = b.workgroup_id(dim);
            b.branch_lt(0u32, id, cleared);
        }
        clear(b, bytes[0]);
        b.place(cleared, "cleared");
        if let Some((count, wraps)) = counted {
            let count = b.uniform(count);
            b.branch_lt(count, wraps, left);
            clear(b, bytes[1]);
        }
        b.place(left, "left");
    }
}

/// The number of a lane in its wave, and of the wave in its workgroup.
fn lane_and_wave(b: &mut Builder) -> (Part, Part) {
    let wave = b.wave_size();
    let item = b.workitem_id();
    let lane = b.and(item, wave - 1);
    let number = b.shr(item, wave.trailing_zeros());
    (lane, b.uniform(number))
}
