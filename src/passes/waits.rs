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
use barewave_isa::{Counter, Flags, Inst, OpInfo, Pipe, Reg, Target, WaitScheme};
use std::collections::BTreeMap;

const COUNTERS: usize = 8;

/// What is outstanding at a point of the program.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct State {
    /// Operations issued so far, per counter.
    issued: [u32; COUNTERS],
    /// Operations known to be done.
    done: [u32; COUNTERS],
    /// Kinds of operation outstanding: bit per pipe, top bit when they finish out of order.
    kinds: [u16; COUNTERS],
    /// Score of the newest operation that writes a register, or of the newest load to a part of LDS.
    writes: BTreeMap<(Cell, u8), u32>,
}

/// What an outstanding operation will write.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Cell {
    Reg(Reg),
    Lds(Lds),
}

const OUT_OF_ORDER: u16 = 1 << 15;

impl State {
    /// Waits that the instruction needs: most operations that may be outstanding, per counter. Registers that are only
    /// `filled` may be outstanding on the counters `ordered`.
    ///
    /// `lds` is the part of LDS that the instruction touches or, as a barrier, separates.
    fn needed(
        &self,
        info: &OpInfo,
        touched: &[Reg],
        filled: &[Reg],
        ordered: &[Counter],
        lds: Option<Lds>,
    ) -> [Option<u32>; COUNTERS] {
        let mut need = [None; COUNTERS];
        let mut require = |c: usize, score: u32| {
            if score > self.done[c] {
                let left = if in_order(self.kinds[c]) { self.issued[c] - score } else { 0 };
                need[c] = Some(need[c].map_or(left, |n: u32| n.min(left)));
            }
        };
        if !self.writes.is_empty() {
            for &r in touched {
                for (&(_, c), &score) in self.writes.range((Cell::Reg(r), 0)..=(Cell::Reg(r), u8::MAX)) {
                    require(c as usize, score);
                }
            }
            for &r in filled {
                for (&(_, c), &score) in self.writes.range((Cell::Reg(r), 0)..=(Cell::Reg(r), u8::MAX)) {
                    if !(in_order(self.kinds[c as usize]) && ordered.iter().any(|&o| o as u8 == c)) {
                        require(c as usize, score);
                    }
                }
            }
        }
        if let Some(mine) = lds {
            for (&(cell, c), &score) in self.writes.range((Cell::Lds(Lds::Any), 0)..) {
                if matches!(cell, Cell::Lds(theirs) if theirs.meets(mine)) {
                    require(c as usize, score);
                }
            }
        }
        if info.flags.has(Flags::BARRIER) {
            for c in 0..COUNTERS {
                if self.kinds[c] & (1 << Pipe::Lds as u16) != 0 {
                    require(c, self.issued[c]);
                }
            }
        }
        need
    }

    /// A wait has returned.
    fn wait(&mut self, c: usize, left: u32) {
        let done = self.issued[c].saturating_sub(left);
        if done > self.done[c] && (left == 0 || in_order(self.kinds[c])) {
            self.done[c] = done;
            self.writes.retain(|(_, k), score| *k as usize != c || *score > done);
            if left == 0 {
                self.kinds[c] = 0;
            }
        }
    }

    /// The instruction has been issued.
    fn issue(&mut self, info: &OpInfo, written: impl Iterator<Item = Cell>, max: &[u32; COUNTERS]) {
        let written: Vec<Cell> = if info.counters.is_empty() { Vec::new() } else { written.collect() };
        for &counter in info.counters {
            let c = counter as usize;
            self.issued[c] += 1;
            // No wait tells operations apart that are older than the counter's maximum: they share a score, so that
            // the states of a loop stay finite.
            let oldest = self.issued[c].saturating_sub(max[c] + 1);
            if oldest > self.done[c] {
                self.done[c] = oldest;
                let old = self.writes.iter_mut().filter(|((_, k), score)| *k as usize == c && **score <= oldest);
                old.for_each(|(_, score)| *score = oldest + 1);
            }
            self.kinds[c] |= 1 << info.pipe as u16;
            if info.flags.has(Flags::OUT_OF_ORDER) {
                self.kinds[c] |= OUT_OF_ORDER;
            }
            for &r in &written {
                self.writes.insert((r, counter as u8), self.issued[c]);
            }
        }
    }

    /// Joins the state of another path; true when that changed this one.
    fn merge(&mut self, other: &State) -> bool {
        let before = self.clone();
        for c in 0..COUNTERS {
            let pending = (self.issued[c] - self.done[c]).max(other.issued[c] - other.done[c]);
            let (mine, theirs) = (self.issued[c], other.issued[c]);
            let issued = pending;
            for ((_, k), score) in self.writes.iter_mut() {
                if *k as usize == c {
                    *score = issued - (mine - *score);
                }
            }
            for (&(r, k), &score) in &other.writes {
                if k as usize == c && score > other.done[c] {
                    let score = issued - (theirs - score);
                    let e = self.writes.entry((r, k)).or_insert(score);
                    *e = (*e).max(score);
                }
            }
            self.issued[c] = issued;
            self.done[c] = 0;
            self.kinds[c] |= other.kinds[c];
        }
        *self != before
    }

    /// Moves scores so that equal situations compare equal.
    fn normalise(&mut self) {
        for c in 0..COUNTERS {
            let done = self.done[c];
            self.writes.iter_mut().filter(|((_, k), _)| *k as usize == c).for_each(|(_, s)| *s -= done);
            self.issued[c] -= done;
            self.done[c] = 0;
        }
    }
}

fn in_order(kinds: u16) -> bool {
    kinds & OUT_OF_ORDER == 0 && kinds.count_ones() <= 1
}

/// Inserts the waits that the function needs. Operands must be physical.
pub fn waits(f: &mut Function) {
    let entry = solve(f);
    let mut inserts: Vec<Vec<(usize, Vec<Inst>)>> = vec![Vec::new(); f.blocks.len()];
    let target = f.target;
    for (b, state) in entry.into_iter().enumerate() {
        let Some(mut state) = state else { continue };
        walk_block(f, b, &mut state, &mut |i, need| {
            let list: Vec<(Counter, u8)> = need.iter().map(|&(c, n)| (c, n as u8)).collect();
            inserts[b].push((i, target.encode_waits(&list).into_iter().collect()));
        });
    }
    for (block, inserts) in f.blocks.iter_mut().zip(inserts) {
        if inserts.is_empty() {
            continue;
        }
        let mut at = inserts.into_iter().peekable();
        let old = std::mem::take(&mut block.insts);
        for (i, inst) in old.into_iter().enumerate() {
            while let Some((_, list)) = at.next_if(|(k, _)| *k == i) {
                block.insts.extend(list.into_iter().map(MInst::from));
            }
            block.insts.push(inst);
        }
    }
}

type OnNeed<'a> = dyn FnMut(usize, &[(Counter, u32)]) + 'a;

/// State at the start of every reachable block.
fn solve(f: &Function) -> Vec<Option<State>> {
    let mut entry: Vec<Option<State>> = vec![None; f.blocks.len()];
    if f.blocks.is_empty() {
        return entry;
    }
    entry[0] = Some(State::default());
    let mut work = vec![0usize];
    while let Some(b) = work.pop() {
        let mut state = entry[b].clone().expect("a block on the list has a state");
        walk_block(f, b, &mut state, &mut |_, _| {});
        state.normalise();
        for s in f.successors(b) {
            let changed = match &mut entry[s] {
                Some(old) => old.merge(&state),
                none => {
                    *none = Some(state.clone());
                    true
                }
            };
            if changed && !work.contains(&s) {
                work.push(s);
            }
        }
    }
    entry
}

/// Runs the model over a block, telling where waits are needed; the model assumes that they are then made.
fn walk_block(f: &Function, b: usize, state: &mut State, on_need: &mut OnNeed) {
    let max = counter_limits(f.target);
    let (mut touched, mut filled): (Vec<Reg>, Vec<Reg>) = Default::default();
    for (i, inst) in f.blocks[b].insts.iter().enumerate() {
        let Some(info) = inst.info(f.target) else { continue };
        if let Some(list) = decode_wait(f.target, inst) {
            for (c, n) in list {
                state.wait(c as usize, n as u32);
            }
            continue;
        }
        touched.clear();
        filled.clear();
        for (list, regs) in [(&inst.srcs[..], &mut touched), (&inst.dsts[..], &mut filled)] {
            for o in list {
                if let Opnd::P(r) = o {
                    regs.extend(r.iter());
                }
            }
        }
        touched.extend(info.reads.iter().chain(info.writes));
        let load = info.pipe == Pipe::Vmem && info.flags.has(Flags::LOAD);
        let ordered = if load && f.target.info().waits != WaitScheme::Split { info.counters } else { &[] };
        let touches_lds = info.pipe == Pipe::Lds || info.flags.has(Flags::BARRIER);
        let need = state.needed(info, &touched, &filled, ordered, touches_lds.then_some(inst.space.lds));
        if need.iter().any(Option::is_some) {
            let list: Vec<(Counter, u32)> = f
                .target
                .info()
                .counters
                .iter()
                .filter_map(|k| need[k.counter as usize].map(|n| (k.counter, n.min(k.max as u32 - 1))))
                .collect();
            on_need(i, &list);
            for &(c, n) in &list {
                state.wait(c as usize, n);
            }
        }
        let written = inst.dsts.iter().filter_map(|o| if let Opnd::P(r) = o { Some(*r) } else { None });
        let to_lds = inst.loads_to_lds(f.target).then_some(Cell::Lds(inst.space.lds));
        state.issue(info, written.flat_map(|r| r.iter()).map(Cell::Reg).chain(to_lds), &max);
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
