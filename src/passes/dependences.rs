//! What instructions of a block depend on: the graph that scheduling and packing walk.
//!
//! There is an edge for each value read after it is written (weighted with the producer's latency), for each value overwritten, between accesses of memory
//! or LDS that may meet ([`Space`]) and of which one writes (a load to LDS reads memory and writes LDS), and between instructions with side effects.

use crate::mir::liveness::{Units, for_each_def, for_each_use};
use crate::mir::{Function, Lds, MInst, Memory, Opnd, Part, Space, VReg};
use barewave_isa::{Flags, Pipe, Reg};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Dependence graph of a block.
pub(super) struct Graph {
    /// Per instruction: successors and the cycles that must pass.
    pub out: Vec<SmallVec<[(usize, u32); 4]>>,
    /// Per instruction: how many must come before it.
    pub incoming: Vec<u32>,
    /// The order nearest to the source that holds to all edges.
    pub order: Vec<usize>,
    /// Cycles from issue to the end of the block.
    pub height: Vec<u32>,
}

/// What instructions can conflict on: a dword of a virtual register, a fixed register, an address space.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Place {
    Dword(u32, u8),
    Fixed(Reg),
    Lds(Lds),
    Memory(Memory),
    Effects,
}

impl Place {
    /// The virtual register that it is a dword of.
    pub fn register(&self) -> Option<VReg> {
        match self {
            Place::Dword(v, _) => Some(VReg(*v)),
            _ => None,
        }
    }
    /// A register that all instructions share.
    pub fn is_shared(&self) -> bool {
        matches!(self, Place::Fixed(_))
    }
}

/// That an instruction reads or writes a place.
#[derive(Clone, Copy)]
pub(super) struct Touch {
    pub place: Place,
    /// Its number.
    pub inst: usize,
    pub writes: bool,
}

/// Of what instructions touch, in `order`, the places that are `wanted`, what each reads before what it writes. Phases of LDS buffers are taken
/// as one place: they change from iteration to iteration.
pub(super) fn touches(f: &Function, insts: &[MInst], order: &[usize], wanted: impl Fn(&Place) -> bool) -> Vec<Touch> {
    let merged = |i: &MInst| match i.space {
        Space { lds: Lds::Part { buffer, .. }, memory } => Space { lds: Lds::Part { buffer, phase: 0 }, memory },
        space => space,
    };
    let named = Named::of(f, insts, merged);
    let mut touches = Vec::with_capacity(4 * insts.len());
    let mut a = Accesses::default();
    for &inst in order {
        a.fill(f, &insts[inst], merged(&insts[inst]), &named);
        for (places, writes) in [(&a.reads, false), (&a.writes, true)] {
            for place in places {
                if wanted(place) {
                    touches.push(Touch { place: *place, inst, writes });
                }
            }
        }
    }
    touches
}

/// Numbers of instructions.
#[derive(Default)]
struct Access {
    writer: Option<u32>,
    readers: SmallVec<[u32; 4]>,
}

/// Who touched each place of a block last. Dwords of virtual registers, which are most places, have a table that serves
/// one block after the other.
pub(super) struct Places {
    units: Units,
    dwords: Vec<Access>,
    /// Units of the table that are in use.
    used: Vec<usize>,
    others: FxHashMap<Place, Access>,
}

impl Places {
    pub fn new(units: &Units) -> Places {
        let dwords = std::iter::repeat_with(Access::default).take(units.count()).collect();
        Places { units: units.clone(), dwords, used: Vec::new(), others: FxHashMap::default() }
    }

    fn at(&mut self, p: Place) -> &mut Access {
        let Place::Dword(v, i) = p else { return self.others.entry(p).or_default() };
        let unit = self.units.base(VReg(v)) + usize::from(i);
        let access = &mut self.dwords[unit];
        if access.writer.is_none() && access.readers.is_empty() {
            self.used.push(unit);
        }
        access
    }

    /// Nothing was touched.
    fn clear(&mut self) {
        self.used.drain(..).for_each(|u| self.dwords[u] = Access::default());
        self.others.clear();
    }
}

/// Of so many instructions none.
fn no_edges(n: usize) -> Vec<SmallVec<[(usize, u32); 4]>> {
    std::iter::repeat_with(SmallVec::new).take(n).collect()
}

impl Graph {
    /// The graph of dependences and of these other pairs; `None` where they form a circle.
    pub fn of(f: &Function, insts: &[MInst], stated: &[(usize, usize)], places: &mut Places) -> Option<Graph> {
        places.clear();
        let n = insts.len();
        let mut g = Graph { out: no_edges(n), incoming: vec![0; n], order: Vec::new(), height: vec![0; n] };
        let named = Named::of(f, insts, |i| i.space);
        let mut a = Accesses::default();
        let mut before: Vec<(usize, u32)> = Vec::new();
        for (i, inst) in insts.iter().enumerate() {
            before.clear();
            a.fill(f, inst, inst.space, &named);
            for p in &a.reads {
                let a = places.at(*p);
                if let Some(w) = a.writer.map(|w| w as usize) {
                    before.push((w, latency(f, &insts[w], *p)));
                }
                a.readers.push(i as u32);
            }
            for p in &a.writes {
                let a = places.at(*p);
                if let Some(w) = a.writer {
                    before.push((w as usize, 1));
                }
                for r in a.readers.iter().map(|r| *r as usize) {
                    if r != i {
                        before.push((r, 0));
                    }
                }
                a.writer = Some(i as u32);
                a.readers.clear();
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
        for &(a, b) in stated {
            g.out[a].push((b, 0));
            g.incoming[b] += 1;
        }
        g.order = if stated.is_empty() { (0..n).collect() } else { g.nearest_order()? };
        for &i in g.order.iter().rev() {
            let own = insts[i].info(f.target).map_or(1, |x| x.busy.max(1) as u32);
            g.height[i] = g.out[i].iter().map(|&(k, l)| l.max(1) + g.height[k]).max().unwrap_or(0).max(own);
        }
        Some(g)
    }

    /// How many instructions must come before each, one behind the other: no edge leads between two of the same number.
    pub fn depths(&self) -> Vec<u32> {
        let mut depths = vec![0; self.out.len()];
        for &i in &self.order {
            for &(k, _) in &self.out[i] {
                depths[k] = depths[k].max(depths[i] + 1);
            }
        }
        depths
    }

    /// Cycles that an order takes where each instruction waits for what it depends on.
    pub fn cycles(&self, f: &Function, insts: &[MInst], order: &[usize]) -> u32 {
        let mut earliest = vec![0; insts.len()];
        let mut now = 0;
        for &i in order {
            now = now.max(earliest[i]) + busy(f, &insts[i]);
            for &(k, l) in &self.out[i] {
                earliest[k] = earliest[k].max(now.saturating_sub(1) + l);
            }
        }
        now
    }

    /// The order nearest to the source where each instruction stands at the place of the one that `becomes` names, which stands for both.
    pub fn order_of_merged(&self, becomes: &[usize]) -> Option<Vec<usize>> {
        let n = becomes.len();
        let mut merged = Graph { out: no_edges(n), incoming: vec![0; n], order: Vec::new(), height: Vec::new() };
        for (from, edges) in self.out.iter().enumerate() {
            for &(to, cycles) in edges {
                if becomes[from] != becomes[to] {
                    merged.out[becomes[from]].push((becomes[to], cycles));
                    merged.incoming[becomes[to]] += 1;
                }
            }
        }
        let order = merged.nearest_order()?;
        Some(order.into_iter().filter(|i| becomes[*i] == *i).collect())
    }

    /// Of the instructions whose predecessors have gone always the first one of the source.
    fn nearest_order(&self) -> Option<Vec<usize>> {
        let mut incoming = self.incoming.clone();
        let mut ready: BinaryHeap<Reverse<usize>> =
            (0..incoming.len()).filter(|i| incoming[*i] == 0).map(Reverse).collect();
        let mut order = Vec::with_capacity(incoming.len());
        while let Some(Reverse(i)) = ready.pop() {
            order.push(i);
            for &(k, _) in &self.out[i] {
                incoming[k] -= 1;
                if incoming[k] == 0 {
                    ready.push(Reverse(k));
                }
            }
        }
        (order.len() == incoming.len()).then_some(order)
    }
}

/// Cycles from a producer's issue to where its result can be used.
pub(super) fn latency(f: &Function, producer: &MInst, place: Place) -> u32 {
    match place {
        Place::Lds(_) | Place::Memory(_) | Place::Effects => 1,
        _ => producer.info(f.target).map_or(1, |x| x.latency.max(1) as u32),
    }
}

/// The memory that a block's instructions name: what names none touches all of it.
struct Named {
    lds: Vec<Lds>,
    memory: Vec<Memory>,
    /// Fixed registers that some instruction writes. What reads others (EXEC, MODE) depends on nothing in the block.
    written: SmallVec<[Reg; 8]>,
}

impl Named {
    fn of(f: &Function, insts: &[MInst], space: impl Fn(&MInst) -> Space) -> Named {
        let (mut lds, mut memory, mut written) = (vec![Lds::Any], vec![Memory::Any], SmallVec::new());
        for inst in insts {
            let space = space(inst);
            if space.lds != Lds::Any {
                lds.push(space.lds);
            }
            if space.memory != Memory::Any {
                memory.push(space.memory);
            }
            let mut writes = |r: Reg| {
                if !written.contains(&r) {
                    written.push(r);
                }
            };
            for o in inst.dsts.iter() {
                if let Opnd::P(r) = o {
                    r.iter().for_each(&mut writes);
                }
            }
            inst.info(f.target).map_or(&[][..], |x| x.writes).iter().copied().for_each(writes);
        }
        lds.sort_unstable();
        lds.dedup();
        memory.sort_unstable();
        memory.dedup();
        Named { lds, memory, written }
    }
    fn lds(&self, l: Lds) -> &[Lds] {
        match self.lds.binary_search(&l) {
            Ok(i) if l != Lds::Any => &self.lds[i..=i],
            _ => &self.lds,
        }
    }
    fn memory(&self, m: Memory) -> &[Memory] {
        match self.memory.binary_search(&m) {
            Ok(i) if m != Memory::Any => &self.memory[i..=i],
            _ => &self.memory,
        }
    }
}

/// The places that an instruction reads and writes: lists that are used again for the next one.
#[derive(Default)]
struct Accesses {
    reads: Vec<Place>,
    writes: Vec<Place>,
}

impl Accesses {
    /// Those of an instruction, which touches this space.
    fn fill(&mut self, f: &Function, inst: &MInst, space: Space, named: &Named) {
        let Accesses { reads, writes } = self;
        reads.clear();
        writes.clear();
        let dwords = |p: Part| (p.first..p.first + p.len).map(move |i| Place::Dword(p.reg.0, i));
        for_each_use(inst, f.target, |p| dwords(p).for_each(|d| reads.push(d)));
        for_each_def(inst, |p| dwords(p).for_each(|d| writes.push(d)));
        let written = |r: &Reg| named.written.contains(r);
        for (list, out, reads) in [(&inst.srcs[..], &mut *reads, true), (&inst.dsts[..], &mut *writes, false)] {
            for o in list {
                if let Opnd::P(r) = o {
                    out.extend(r.iter().filter(|r| !reads || written(r)).map(Place::Fixed));
                }
            }
        }
        if let Some(info) = inst.info(f.target) {
            reads.extend(info.reads.iter().filter(|r| written(r)).map(|r| Place::Fixed(*r)));
            writes.extend(info.writes.iter().map(|r| Place::Fixed(*r)));
            let store = info.flags.has(Flags::STORE) || info.flags.has(Flags::ATOMIC);
            let lds = named.lds(space.lds).iter().map(|l| Place::Lds(*l));
            let memory = named.memory(space.memory).iter().map(|m| Place::Memory(*m));
            match info.pipe {
                Pipe::Lds if store => writes.extend(lds),
                Pipe::Lds => reads.extend(lds),
                Pipe::Vmem if inst.loads_to_lds(f.target) => {
                    // M0 has the address in LDS.
                    reads.extend(Some(Reg::M0).filter(written).map(Place::Fixed));
                    reads.extend(memory);
                    writes.extend(lds);
                }
                Pipe::Vmem if store => writes.extend(memory),
                Pipe::Vmem => reads.extend(memory),
                _ if info.flags.has(Flags::BARRIER) => writes.extend(lds),
                _ => {}
            }
            if info.flags.has(Flags::SIDE_EFFECTS) {
                writes.push(Place::Effects);
            }
        }
    }
}

/// Cycles for which an instruction keeps others of its wave from being issued.
pub(super) fn busy(f: &Function, inst: &MInst) -> u32 {
    inst.info(f.target).map_or(1, |x| x.busy.max(1) as u32)
}
