//! Instruction scheduling before register allocation: top-down list scheduling of each block.
//!
//! The dependence graph of a block has an edge for each value read after it is written (weighted with the producer's
//! latency), for each value overwritten, between memory accesses of one address space of which one writes, and
//! between instructions with side effects. Priority is the longest latency path to the end of the block. While the
//! number of live vector registers is above the limit, the ready instruction that frees most registers goes first,
//! so that hoisted loads do not cost occupancy. Ties keep the source order, so scheduling is deterministic. Blocks
//! whose order the kernel's author has fixed are left alone.

use crate::mir::liveness::{Liveness, for_each_def, for_each_use};
use crate::mir::{Function, MInst, Opnd, Part, RegClass};
use barewave_isa::{Flags, Pipe, Reg};
use rustc_hash::FxHashMap;

/// Reorders the instructions of unpinned blocks; `vgpr_goal` is the number of live VGPRs to stay below if possible.
pub fn schedule(f: &mut Function, vgpr_goal: u32) {
    let live = Liveness::of(f);
    for b in 0..f.blocks.len() {
        if f.blocks[b].pinned || f.blocks[b].insts.len() < 3 {
            continue;
        }
        let graph = Graph::of(f, &f.blocks[b].insts);
        let order = list_schedule(f, &live, b, &graph, vgpr_goal);
        let mut old: Vec<Option<MInst>> = std::mem::take(&mut f.blocks[b].insts).into_iter().map(Some).collect();
        f.blocks[b].insts = order.into_iter().map(|i| old[i].take().expect("each instruction once")).collect();
    }
}

/// Dependence graph of a block.
struct Graph {
    /// Per instruction: successors and the cycles that must pass.
    out: Vec<Vec<(usize, u32)>>,
    incoming: Vec<u32>,
    /// Cycles from issue to the end of the block.
    height: Vec<u32>,
}

/// What instructions can conflict on: a dword of a virtual register, a fixed register, an address space.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Place {
    Dword(u32, u8),
    Fixed(Reg),
    Lds,
    Memory,
    Effects,
}

#[derive(Default)]
struct Access {
    writer: Option<usize>,
    readers: Vec<usize>,
}

impl Graph {
    fn of(f: &Function, insts: &[MInst]) -> Graph {
        let n = insts.len();
        let mut g = Graph { out: vec![Vec::new(); n], incoming: vec![0; n], height: vec![0; n] };
        let mut places: FxHashMap<Place, Access> = FxHashMap::default();
        let mut before: Vec<(usize, u32)> = Vec::new();
        for (i, inst) in insts.iter().enumerate() {
            before.clear();
            let (reads, writes) = accesses(f, inst);
            for p in &reads {
                let a = places.entry(*p).or_default();
                if let Some(w) = a.writer {
                    before.push((w, latency(f, &insts[w], *p)));
                }
                a.readers.push(i);
            }
            for p in &writes {
                let a = places.entry(*p).or_default();
                if let Some(w) = a.writer {
                    before.push((w, 1));
                }
                before.extend(a.readers.iter().filter(|r| **r != i).map(|r| (*r, 0)));
                *a = Access { writer: Some(i), readers: Vec::new() };
            }
            if inst.info(f.target).is_some_and(|x| x.flags.has(Flags::TERMINATOR)) {
                before.extend((0..i).map(|k| (k, 0)));
            }
            before.sort_unstable_by_key(|&(k, l)| (k, std::cmp::Reverse(l)));
            before.dedup_by_key(|e| e.0);
            for &(k, l) in &before {
                g.out[k].push((i, l));
                g.incoming[i] += 1;
            }
        }
        for i in (0..n).rev() {
            let own = insts[i].info(f.target).map_or(1, |x| x.busy.max(1) as u32);
            g.height[i] = g.out[i].iter().map(|&(k, l)| l.max(1) + g.height[k]).max().unwrap_or(0).max(own);
        }
        g
    }
}

fn latency(f: &Function, producer: &MInst, place: Place) -> u32 {
    match place {
        Place::Lds | Place::Memory | Place::Effects => 1,
        _ => producer.info(f.target).map_or(1, |x| x.latency.max(1) as u32),
    }
}

fn accesses(f: &Function, inst: &MInst) -> (Vec<Place>, Vec<Place>) {
    let (mut reads, mut writes) = (Vec::new(), Vec::new());
    let dwords = |p: Part| (p.first..p.first + p.len).map(move |i| Place::Dword(p.reg.0, i));
    for_each_use(inst, f.target, |p| reads.extend(dwords(p)));
    for_each_def(inst, |p| writes.extend(dwords(p)));
    for (list, out) in [(&inst.srcs[..], &mut reads), (&inst.dsts[..], &mut writes)] {
        for o in list {
            if let Opnd::P(r) = o {
                out.extend(r.iter().map(Place::Fixed));
            }
        }
    }
    if let Some(info) = inst.info(f.target) {
        // EXEC and MODE are read by everything; only writers of them order anything.
        reads.extend(info.reads.iter().map(|r| Place::Fixed(*r)));
        writes.extend(info.writes.iter().map(|r| Place::Fixed(*r)));
        let space = match info.pipe {
            Pipe::Lds => Some(Place::Lds),
            Pipe::Vmem => Some(Place::Memory),
            _ => None,
        };
        if let Some(space) = space {
            let store = info.flags.has(Flags::STORE) || info.flags.has(Flags::ATOMIC);
            if store { writes.push(space) } else { reads.push(space) }
        }
        if info.flags.has(Flags::BARRIER) {
            writes.push(Place::Lds);
        }
        if info.flags.has(Flags::SIDE_EFFECTS) {
            writes.push(Place::Effects);
        }
    }
    (reads, writes)
}

fn list_schedule(f: &Function, live: &Liveness, b: usize, g: &Graph, goal: u32) -> Vec<usize> {
    let insts = &f.blocks[b].insts;
    let n = insts.len();
    let vector = |p: Part| f.vreg(p.reg).class == RegClass::V;
    // Uses of each unit that are still to come in this block, and which units are live now.
    let mut uses_left: FxHashMap<usize, u32> = FxHashMap::default();
    for inst in insts {
        for_each_use(inst, f.target, |p| {
            live.units.of_part(p).for_each(|u| *uses_left.entry(u).or_default() += 1);
        });
    }
    let mut alive = live.live_in[b].clone();
    let mut vgprs: i64 = f
        .vregs
        .iter()
        .enumerate()
        .filter(|(_, v)| v.class == RegClass::V)
        .map(|(i, v)| {
            let base = live.units.base(crate::mir::VReg(i as u32));
            (base..base + v.dwords as usize).filter(|u| alive.contains(*u)).count() as i64
        })
        .sum();
    let mut incoming = g.incoming.clone();
    let mut earliest = vec![0u32; n];
    let mut ready: Vec<usize> = (0..n).filter(|i| incoming[*i] == 0).collect();
    let mut order = Vec::with_capacity(n);
    let mut now = 0u32;
    while !ready.is_empty() {
        let growth = |i: usize| -> i64 {
            let mut d = 0i64;
            for_each_def(&insts[i], |p| {
                if vector(p) {
                    d += live.units.of_part(p).filter(|u| !alive.contains(*u)).count() as i64;
                }
            });
            for_each_use(&insts[i], f.target, |p| {
                if vector(p) {
                    let last = |u: &usize| uses_left.get(u) == Some(&1) && !live.live_out[b].contains(*u);
                    d -= live.units.of_part(p).filter(last).count() as i64;
                }
            });
            d
        };
        let pressed = vgprs >= goal as i64;
        let best = (0..ready.len())
            .min_by_key(|&k| {
                let i = ready[k];
                let stall = earliest[i].saturating_sub(now);
                let frees = if pressed { growth(i) } else { 0 };
                (frees, stall, std::cmp::Reverse(g.height[i]), i)
            })
            .expect("the ready list is not empty");
        let i = ready.swap_remove(best);
        vgprs += growth(i);
        for_each_use(&insts[i], f.target, |p| {
            for u in live.units.of_part(p) {
                if let Some(k) = uses_left.get_mut(&u) {
                    *k -= 1;
                    if *k == 0 && !live.live_out[b].contains(u) {
                        alive.remove(u);
                    }
                }
            }
        });
        for_each_def(&insts[i], |p| live.units.of_part(p).for_each(|u| alive.insert(u)));
        now = now.max(earliest[i]) + insts[i].info(f.target).map_or(1, |x| x.busy.max(1) as u32);
        order.push(i);
        for &(k, l) in &g.out[i] {
            earliest[k] = earliest[k].max(now.saturating_sub(1) + l);
            incoming[k] -= 1;
            if incoming[k] == 0 {
                ready.push(k);
            }
        }
    }
    order
}
