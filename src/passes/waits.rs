//! Wait insertion. Whether the waits suffice is proved over the bytes, by `verify`.
//!
//! The hardware counts outstanding memory operations per counter; a wait for `n` returns when at most `n` are left.
//! The model gives every operation of a counter a score, its number in issue order. A register that an outstanding
//! operation will write remembers the score. When an instruction touches that register, operations up to the score
//! must be done: at most `issued - score` may be left. So does a part of LDS that a load from memory will fill, until an
//! instruction of the wave touches it or a barrier separates it. Where operations of a counter can finish out of order (scalar
//! loads, or two kinds of operation on one counter) only a wait for zero proves anything. Before a barrier LDS
//! accesses must be done. At block starts the states of all predecessors are merged by aligning the newest score
//! and keeping the younger one for each register; loops iterate to a fixpoint.
//!
//! A wait for the counter's maximum would wait for nothing, so the largest wait is one less.
//!
//! A register that a load of vector memory will fill may be filled by another one without a wait: results come in the
//! order of issue, except on gfx12.
//!
//! Store data needs no wait: from gfx7 on it is read before later instructions can overwrite it.

use crate::mir::{Function, Lds, MInst, Opnd};
use barewave_isa::{Counter, CounterInfo, Flags, OpInfo, Pipe, Reg, Target, WaitScheme};
use smallvec::SmallVec;
use std::collections::{BTreeSet, VecDeque};

const COUNTERS: usize = 8;

/// What is outstanding at a point of the program.
#[derive(Clone, PartialEq, Eq, Debug)]
struct State {
    counters: [Outstanding; COUNTERS],
    /// Counters that operations are outstanding on which will write a register, a bit each.
    pending: Vec<u8>,
}

/// Outstanding operations of a counter.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Outstanding {
    /// Operations issued so far.
    issued: u32,
    /// Operations known to be done.
    done: u32,
    /// Kinds of operation outstanding: bit per pipe, top bit when they finish out of order.
    kinds: u16,
    /// What will be written, with the score of the newest operation that does, by score.
    writes: VecDeque<(u32, Cell)>,
}

/// What an outstanding operation will write: a register, or a part of LDS.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Cell {
    Reg(Reg),
    Lds(Lds),
}

const OUT_OF_ORDER: u16 = 1 << 15;

impl Outstanding {
    fn in_order(&self) -> bool {
        self.kinds & OUT_OF_ORDER == 0 && self.kinds.count_ones() <= 1
    }

    fn score(&self, cell: Cell) -> Option<u32> {
        self.writes.iter().rev().find(|w| w.1 == cell).map(|w| w.0)
    }

    /// As many as may be left when all up to the score must be done; none where they are.
    fn left(&self, score: u32) -> Option<u32> {
        (score > self.done).then(|| if self.in_order() { self.issued - score } else { 0 })
    }

    /// The scores of equal situations become equal.
    fn normalise(&mut self) {
        self.writes.iter_mut().for_each(|w| w.0 -= self.done);
        self.writes.make_contiguous().sort_unstable();
        self.issued -= self.done;
        self.done = 0;
    }

    /// What may be outstanding here or in `other`, the newest of both aligned.
    fn merge(&mut self, other: &Outstanding) {
        let issued = (self.issued - self.done).max(other.issued - other.done);
        let mine = self.issued;
        self.writes.iter_mut().for_each(|w| w.0 = issued - (mine - w.0));
        for &(score, cell) in other.writes.iter().filter(|w| w.0 > other.done) {
            let score = issued - (other.issued - score);
            match self.writes.iter_mut().find(|w| w.1 == cell) {
                Some(w) => w.0 = w.0.max(score),
                None => self.writes.push_back((score, cell)),
            }
        }
        self.writes.make_contiguous().sort_unstable();
        self.issued = issued;
        self.done = 0;
        self.kinds |= other.kinds;
    }
}

impl State {
    /// Nothing is.
    fn new() -> State {
        State { counters: Default::default(), pending: vec![0; Reg::COUNT] }
    }

    /// Waits that the instruction needs: most operations that may be outstanding, per counter. Its results may be outstanding on the
    /// counters `ordered`.
    ///
    /// `lds` is the part of LDS that the instruction touches or, as a barrier, separates.
    fn needed(&self, info: &OpInfo, inst: &MInst, ordered: &[Counter], lds: Option<Lds>) -> [Option<u32>; COUNTERS] {
        let mut need = [None; COUNTERS];
        let mut require = |c: usize, score: u32| {
            if let Some(left) = self.counters[c].left(score) {
                need[c] = Some(need[c].map_or(left, |n: u32| n.min(left)));
            }
        };
        let mut touch = |r: Reg, is_filled: bool| {
            let mut pending = self.pending[usize::from(r.0)];
            while pending != 0 {
                let c = pending.trailing_zeros() as usize;
                pending &= pending - 1;
                let counter = &self.counters[c];
                let comes_in_order = is_filled && counter.in_order() && ordered.iter().any(|&o| o as usize == c);
                if !comes_in_order && let Some(score) = counter.score(Cell::Reg(r)) {
                    require(c, score);
                }
            }
        };
        for (list, is_filled) in [(&inst.srcs[..], false), (&inst.dsts[..], true)] {
            for o in list {
                let Opnd::P(regs) = *o else { continue };
                let all = usize::from(regs.first.0)..usize::from(regs.first.0) + usize::from(regs.dwords);
                // Most registers wait for nothing.
                if self.pending[all].iter().all(|p| *p == 0) {
                    continue;
                }
                for r in regs.first.0..regs.first.0 + u16::from(regs.dwords) {
                    touch(Reg(r), is_filled);
                }
            }
        }
        info.reads.iter().chain(info.writes).for_each(|r| touch(*r, false));
        if let Some(mine) = lds {
            for (c, counter) in self.counters.iter().enumerate() {
                let meets = |cell| matches!(cell, Cell::Lds(theirs) if theirs.meets(mine));
                counter.writes.iter().filter(|w| meets(w.1)).for_each(|w| require(c, w.0));
            }
        }
        if info.flags.has(Flags::BARRIER) {
            for (c, counter) in self.counters.iter().enumerate() {
                if counter.kinds & (1 << Pipe::Lds as u16) != 0 {
                    require(c, counter.issued);
                }
            }
        }
        need
    }

    /// A wait has returned.
    fn wait(&mut self, c: usize, left: u32) {
        let counter = &mut self.counters[c];
        let done = counter.issued.saturating_sub(left);
        if done > counter.done && (left == 0 || counter.in_order()) {
            counter.done = done;
            while let Some(&(_, cell)) = counter.writes.front().filter(|w| w.0 <= done) {
                counter.writes.pop_front();
                if let Cell::Reg(r) = cell {
                    self.pending[usize::from(r.0)] &= !(1 << c);
                }
            }
            if left == 0 {
                counter.kinds = 0;
            }
        }
    }

    /// The instruction has been issued.
    fn issue(&mut self, info: &OpInfo, written: &[Cell], max: &[u32; COUNTERS]) {
        for &name in info.counters {
            let c = name as usize;
            let counter = &mut self.counters[c];
            counter.issued += 1;
            // No wait tells operations apart that are older than the counter's maximum: they share a score, so that
            // the states of a loop stay finite.
            let oldest = counter.issued.saturating_sub(max[c] + 1);
            if oldest > counter.done {
                counter.done = oldest;
                counter.writes.iter_mut().take_while(|w| w.0 <= oldest).for_each(|w| w.0 = oldest + 1);
            }
            counter.kinds |= 1 << info.pipe as u16;
            if info.flags.has(Flags::OUT_OF_ORDER) {
                counter.kinds |= OUT_OF_ORDER;
            }
            for &cell in written {
                let was = match cell {
                    Cell::Reg(r) => std::mem::replace(&mut self.pending[usize::from(r.0)], 0),
                    Cell::Lds(_) => u8::MAX,
                };
                if was >> c & 1 == 1 {
                    counter.writes.retain(|w| w.1 != cell);
                }
                if let Cell::Reg(r) = cell {
                    self.pending[usize::from(r.0)] = was | 1 << c;
                }
                counter.writes.push_back((counter.issued, cell));
            }
        }
    }

    /// Joins the state of another path; true when that changed this one.
    fn merge(&mut self, other: &State) -> bool {
        let before = self.clone();
        self.counters.iter_mut().zip(&other.counters).for_each(|(mine, theirs)| mine.merge(theirs));
        self.pending.iter_mut().zip(&other.pending).for_each(|(mine, theirs)| *mine |= theirs);
        *self != before
    }

    /// Moves scores so that equal situations compare equal.
    fn normalise(&mut self) {
        self.counters.iter_mut().for_each(Outstanding::normalise);
    }
}

/// Most operations that may be outstanding, per counter.
type Most = SmallVec<[(Counter, u8); 2]>;

/// The wait in front of an instruction, which has this number in its block.
type Need = (usize, Most);

/// Inserts the waits that the function needs. Operands must be physical.
pub fn waits(f: &mut Function) {
    let needs = solve(f);
    let target = f.target;
    for (block, needs) in f.blocks.iter_mut().zip(needs) {
        if needs.is_empty() {
            continue;
        }
        let mut needs = needs.into_iter().peekable();
        let old = std::mem::take(&mut block.insts);
        block.insts.reserve_exact(old.len() + needs.len());
        for (i, inst) in old.into_iter().enumerate() {
            if let Some((_, list)) = needs.next_if(|(k, _)| *k == i) {
                block.insts.extend(target.encode_waits(&list).into_iter().map(MInst::from));
            }
            block.insts.push(inst);
        }
    }
}

/// The waits of every block that can be reached: what its last visit finds, which is the one with all that may be outstanding at its start.
fn solve(f: &Function) -> Vec<Vec<Need>> {
    let from_memory = f.blocks.iter().flat_map(|b| &b.insts).any(|i| i.loads_to_lds(f.target));
    let mut needs = vec![Vec::new(); f.blocks.len()];
    let mut entry: Vec<Option<State>> = vec![None; f.blocks.len()];
    // The first block of those first: most come before what they lead to.
    let mut work = BTreeSet::new();
    if let Some(first) = entry.first_mut() {
        *first = Some(State::new());
        work.insert(0);
    }
    while let Some(b) = work.pop_first() {
        let mut state = entry[b].clone().expect("a block on the list has a state");
        needs[b].clear();
        walk_block(f, b, from_memory, &mut state, &mut needs[b]);
        state.normalise();
        for s in f.successors(b) {
            let changed = match &mut entry[s] {
                Some(old) => old.merge(&state),
                none => {
                    *none = Some(state.clone());
                    true
                }
            };
            if changed {
                work.insert(s);
            }
        }
    }
    needs
}

/// Runs the model over a block, adding the waits that are needed; the model assumes that they are then made. `from_memory`: some loads
/// of the function go to LDS.
fn walk_block(f: &Function, b: usize, from_memory: bool, state: &mut State, needs: &mut Vec<Need>) {
    let max = counter_limits(f.target);
    let mut written: Vec<Cell> = Vec::new();
    for (i, inst) in f.blocks[b].insts.iter().enumerate() {
        let Some(info) = inst.info(f.target) else { continue };
        if let Some(list) = decode_wait(f.target, inst) {
            for (c, n) in list {
                state.wait(c as usize, n as u32);
            }
            continue;
        }
        let load = info.pipe == Pipe::Vmem && info.flags.has(Flags::LOAD);
        let ordered = if load && f.target.info().waits != WaitScheme::Split { info.counters } else { &[] };
        let touches_lds = from_memory && (info.pipe == Pipe::Lds || info.flags.has(Flags::BARRIER));
        let need = state.needed(info, inst, ordered, touches_lds.then_some(inst.space.lds));
        if need.iter().any(Option::is_some) {
            let least = |k: &CounterInfo| need[k.counter as usize].map(|n| (k.counter, n.min(k.max as u32 - 1) as u8));
            let list: Most = f.target.info().counters.iter().filter_map(least).collect();
            list.iter().for_each(|&(c, n)| state.wait(c as usize, n.into()));
            needs.push((i, list));
        }
        if !info.counters.is_empty() {
            written.clear();
            for o in inst.dsts.iter() {
                if let Opnd::P(regs) = o {
                    written.extend(regs.iter().map(Cell::Reg));
                }
            }
            let to_lds = from_memory && inst.loads_to_lds(f.target);
            written.extend(to_lds.then_some(Cell::Lds(inst.space.lds)));
            state.issue(info, &written, &max);
        }
    }
}

fn counter_limits(target: Target) -> [u32; COUNTERS] {
    let mut max = [63; COUNTERS];
    for c in target.info().counters {
        max[c.counter as usize] = c.max as u32;
    }
    max
}

/// What a wait instruction waits for.
fn decode_wait(target: Target, inst: &MInst) -> Option<Vec<(Counter, u8)>> {
    let op = inst.op()?;
    if target.op(op)?.pipe != Pipe::Branch {
        return None;
    }
    let inst = super::emit::lower_inst(inst, |_| 0)?;
    target.decode_wait(&inst).map(|l| l.into_iter().collect())
}
