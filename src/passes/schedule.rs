//! Instruction scheduling before register allocation: top-down list scheduling of each block.
//!
//! Priority is the longest latency path through the graph of `dependences` to the end of the block. While the
//! number of live vector or scalar registers is at the goal, the first ready instruction of the source order goes, so that what has
//! been begun is ended and hoisted loads do not cost occupancy. Where that was too late it is tried again with registers in reserve,
//! and where that does not save much the source's order stays. Ties keep the source order, so scheduling is
//! deterministic. Blocks whose order the kernel's author has fixed are left alone; other
//! [constraints] are edges like those of dependences.
//!
//! The goal is an occupancy step ([`Target::vgpr_steps`]): the most registers with which as many workgroups fit on a compute unit as
//! in the order that the block came in, or as LDS, the workgroup's size and the workgroups of the launch allow. So reordering never costs a
//! workgroup that there is, and uses all registers that cost none.
//!
//! [`Target::vgpr_steps`]: barewave_isa::Target::vgpr_steps

use super::constraints::{self, Broken};
use super::dependences::{Graph, Places, busy};
use crate::mir::liveness::{Liveness, UnitSet, for_each_def, for_each_use};
use crate::mir::{Function, MInst, Order, RegClass};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Reorders the instructions of blocks whose order is free. The kernel may use `budget` VGPRs; `reach` waves per SIMD is what it
/// gets if registers do not limit it. Returns the goal: the most VGPRs that cost no workgroup.
pub fn schedule(f: &mut Function, budget: u32, reach: u32) -> Result<u32, Broken> {
    let live = Liveness::of(f);
    let files = files_of_units(f);
    let goal = next_step(f, pressure(f, &live, &files), reach).min(budget);
    // Tuples leave gaps; scalars have no steps to aim at.
    let goals = [goal as i64, f.target.info().max_sgprs as i64 - 8];
    let mut places = Places::new(&live.units);
    for b in 0..f.blocks.len() {
        let constrained = !f.blocks[b].constraints.is_empty();
        if f.blocks[b].order == Order::Fixed || f.blocks[b].insts.len() < if constrained { 2 } else { 3 } {
            continue;
        }
        let stated = constraints::edges(&f.blocks[b]);
        let Some(graph) = Graph::of(f, &f.blocks[b].insts, &stated, &mut places) else {
            return Err(constraints::impossible(f, &f.blocks[b]));
        };
        // The order that the block came in stays within the goal; constraints may ask for another.
        let free = list_schedule(f, &live, b, &graph, &files, goals, 0);
        let order = match free.or_else(|| with_reserve(f, &live, b, &graph, &files, goals)) {
            Some(order) => order,
            None if constrained => graph.order,
            None => continue,
        };
        let mut old: Vec<Option<MInst>> = std::mem::take(&mut f.blocks[b].insts).into_iter().map(Some).collect();
        f.blocks[b].insts = order.into_iter().map(|i| old[i].take().expect("each instruction once")).collect();
    }
    f.blocks.iter_mut().filter(|b| !b.constraints.is_empty()).for_each(constraints::set_priorities);
    constraints::check(f, "schedule")?;
    Ok(goal)
}

/// Vector registers that gaps between tuples take, about.
const GAPS: u32 = 16;

/// Registers that are kept free while what has been begun is not ended, where the greedy choice alone did not stay within the goals.
const RESERVES: [i64; 3] = [8, 16, 32];

/// Most VGPRs that cost no workgroup against `pressure` of them, against `reach` waves, or against the waves that the launch has for a SIMD.
fn next_step(f: &Function, pressure: u32, reach: u32) -> u32 {
    let info = f.target.info();
    let free = f.target.most_vgprs(info.wave_size, reach);
    let steps = f.target.vgpr_steps(info.wave_size);
    // Waves that no whole workgroup fills are worth no registers.
    let of_group = f.workgroup_size.div_ceil(info.wave_size);
    let groups = |waves: u32| waves * info.simds / of_group;
    let step = steps.iter().find(|s| s.1 >= pressure).map(|step| {
        let as_many = steps.iter().rev().find(|s| groups(s.0) == groups(step.0));
        as_many.map_or(step.1, |s| s.1)
    });
    // Where registers have no other use, gaps should not make them spill.
    let spare = f.workgroups.map_or(0, |all| {
        let waves = all.div_ceil(f.target.cus()).saturating_mul(of_group).div_ceil(info.simds);
        f.target.most_vgprs(info.wave_size, waves).min(info.named_vgprs() - GAPS)
    });
    step.unwrap_or(u32::MAX).max(free).max(spare)
}

/// Most VGPRs that are live at once.
fn pressure(f: &Function, live: &Liveness, files: &[usize]) -> u32 {
    let count = |set: &UnitSet| set.iter().filter(|u| files[*u] == VGPRS).count() as u32;
    let mut most = 0;
    for (b, block) in f.blocks.iter().enumerate() {
        let mut alive = live.live_out[b].clone();
        let mut now = count(&alive);
        most = most.max(now);
        for inst in block.insts.iter().rev() {
            for_each_def(inst, |p| {
                if f.vreg(p.reg).class == RegClass::V {
                    now -= alive.take_all(live.units.of_part(p));
                }
            });
            for_each_use(inst, f.target, |p| {
                if f.vreg(p.reg).class == RegClass::V {
                    now += alive.add_all(live.units.of_part(p));
                }
            });
            most = most.max(now);
        }
    }
    most
}

/// Register files whose pressure is watched, and all others.
const VGPRS: usize = 0;
const SGPRS: usize = 1;
const OTHER: usize = 2;

/// The register file of every unit.
fn files_of_units(f: &Function) -> Vec<usize> {
    let file = |class| match class {
        RegClass::V => VGPRS,
        RegClass::S => SGPRS,
        RegClass::A => OTHER,
    };
    f.vregs.iter().flat_map(|v| std::iter::repeat_n(file(v.class), v.dwords as usize)).collect()
}

/// The quickest order that stays within the goals (VGPRs, SGPRs) with some of each in reserve; `None` when it takes more than three fifths of the time
/// of the source's and waits more than two fifths as long: whoever wrote that had in mind what is not seen here, other waves and lines of caches.
fn with_reserve(
    f: &Function,
    live: &Liveness,
    b: usize,
    g: &Graph,
    files: &[usize],
    goals: [i64; 2],
) -> Option<Vec<usize>> {
    let insts = &f.blocks[b].insts;
    let orders = RESERVES.iter().filter_map(|reserve| list_schedule(f, live, b, g, files, goals, *reserve));
    let timed = orders.map(|order| (g.cycles(f, insts, &order), order));
    let (cycles, order) = timed.min_by_key(|o| o.0)?;
    let before = g.cycles(f, insts, &g.order);
    let issued: u32 = insts.iter().map(|i| busy(f, i)).sum();
    (cycles < before / 5 * 3 || cycles - issued < (before - issued) / 5 * 2).then_some(order)
}

/// An order of the block's instructions that stays within the goals (VGPRs, SGPRs), with some of each in `reserve`; `None` when the greedy
/// choice did not.
fn list_schedule(
    f: &Function,
    live: &Liveness,
    b: usize,
    g: &Graph,
    files: &[usize],
    goals: [i64; 2],
    reserve: i64,
) -> Option<Vec<usize>> {
    let insts = &f.blocks[b].insts;
    let n = insts.len();
    // Uses of each unit that are still to come in this block, and which units are live now.
    let mut uses_left = vec![0u32; live.units.count()];
    let mut widest = [0i64; 3];
    for inst in insts {
        for_each_use(inst, f.target, |p| live.units.of_part(p).for_each(|u| uses_left[u] += 1));
        let mut defined = [0i64; 3];
        for_each_def(inst, |p| defined[files[live.units.of_part(p).start]] += p.len as i64);
        (0..3).for_each(|k| widest[k] = widest[k].max(defined[k]));
    }
    let mut alive = live.live_in[b].clone();
    let mut held = [0i64; 3];
    alive.iter().for_each(|u| held[files[u]] += 1);
    let mut incoming = g.incoming.clone();
    let mut ready = Ready {
        earliest: vec![0; n],
        done: vec![false; n],
        now: BinaryHeap::new(),
        later: BinaryHeap::new(),
        source: UnitSet::new(n),
    };
    (0..n).filter(|i| incoming[*i] == 0).for_each(|i| ready.add(i, g.height[i], 0));
    let mut order = Vec::with_capacity(n);
    let mut now = 0u32;
    let short = |held: &[i64; 3]| (0..2).any(|k| held[k] + widest[k] + reserve > goals[k]);
    while let Some(i) = ready.take(now, short(&held)) {
        for_each_use(&insts[i], f.target, |p| {
            for u in live.units.of_part(p) {
                uses_left[u] -= 1;
                if uses_left[u] == 0 && !live.live_out[b].contains(u) && alive.contains(u) {
                    alive.remove(u);
                    held[files[u]] -= 1;
                }
            }
        });
        for_each_def(&insts[i], |p| {
            for u in live.units.of_part(p) {
                held[files[u]] += i64::from(!alive.contains(u));
                alive.insert(u);
            }
        });
        if (0..2).any(|k| held[k] > goals[k]) {
            return None;
        }
        now = now.max(ready.earliest[i]) + busy(f, &insts[i]);
        order.push(i);
        for &(k, l) in &g.out[i] {
            ready.earliest[k] = ready.earliest[k].max(now.saturating_sub(1) + l);
            incoming[k] -= 1;
            if incoming[k] == 0 {
                ready.add(k, g.height[k], now);
            }
        }
    }
    Some(order)
}

/// Instructions whose predecessors have all been placed.
struct Ready {
    /// Cycle in which an instruction's operands are there.
    earliest: Vec<u32>,
    done: Vec<bool>,
    /// Those that can go at once, by height; ties keep the source order.
    now: BinaryHeap<(u32, Reverse<usize>)>,
    /// Those that would stall, by the cycle they wait for.
    later: BinaryHeap<Reverse<(u32, Reverse<u32>, usize)>>,
    /// All of them that are not done.
    source: UnitSet,
}

impl Ready {
    fn add(&mut self, i: usize, height: u32, now: u32) {
        match self.earliest[i] {
            at if at > now => self.later.push(Reverse((at, Reverse(height), i))),
            _ => self.now.push((height, Reverse(i))),
        }
        self.source.insert(i);
    }

    /// The next instruction: while registers are short the first one of the source order, which ends what has been
    /// begun; else the highest one that does not stall, or the one that stalls least.
    fn take(&mut self, now: u32, short: bool) -> Option<usize> {
        while let Some(&Reverse((at, Reverse(height), i))) = self.later.peek() {
            if at > now {
                break;
            }
            self.later.pop();
            self.now.push((height, Reverse(i)));
        }
        let i = loop {
            let i = if short {
                self.source.first()?
            } else if let Some((_, Reverse(i))) = self.now.pop() {
                i
            } else {
                self.later.pop()?.0.2
            };
            if !self.done[i] {
                break i;
            }
        };
        self.done[i] = true;
        self.source.remove(i);
        Some(i)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mir::Builder;
    use barewave_isa::Target;

    #[test]
    fn registers_between_whole_workgroups_are_free() {
        // Of 512 registers 72 leave room for seven waves, of which a workgroup of sixteen fills four.
        let of = |workgroup| Builder::new(Target::GFX942, "goal", workgroup).finish();
        assert_eq!(next_step(&of(256), 66, 8), 72);
        assert_eq!(next_step(&of(1024), 66, 8), 128);
        assert_eq!(next_step(&of(1024), 60, 8), 64);
    }

    #[test]
    fn registers_of_workgroups_that_a_launch_does_not_have_are_free() {
        let target = Target::GFX942;
        let of = |workgroup, workgroups| {
            let f = Function { workgroups, ..Builder::new(target, "goal", workgroup).finish() };
            assert_eq!(crate::mir::parse(&f.to_string()).unwrap(), f);
            next_step(&f, 60, 8)
        };
        // One workgroup of sixteen waves for each compute unit; two for one of them.
        assert_eq!(of(1024, Some(target.cus())), 128);
        assert_eq!(of(1024, Some(target.cus() + 1)), 64);
        assert_eq!(of(1024, None), 64);
        assert_eq!(of(1024, Some(u32::MAX)), 64);
        // Less than a wave for each SIMD.
        assert_eq!(of(64, Some(1)), target.info().named_vgprs() - GAPS);
    }
}
