//! Liveness of virtual registers, dword by dword.
//!
//! Every dword of every virtual register is a *unit*. Live-in sets come from the usual backward fixpoint over the
//! blocks; live ranges are then read off in one backward walk of each block. Positions number the instructions in
//! layout order: instruction `i` reads at `2 i` and writes at `2 i + 1`, so a value that dies at an instruction may
//! leave its register to the value defined there.

use super::{Function, MInst, Opnd, Part, VReg};
use barewave_isa::Target;
use smallvec::SmallVec;
use std::ops::Range;

/// A set of units.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnitSet(Vec<u64>);

impl UnitSet {
    /// The empty set with room for `n` units.
    pub fn new(n: usize) -> UnitSet {
        UnitSet(vec![0; n.div_ceil(64)])
    }
    /// Calls `f` with the words that a run of at most 63 units has bits in, and these.
    #[inline(always)]
    fn words(run: Range<usize>, mut f: impl FnMut(usize, u64)) {
        let (word, shift, bits) = (run.start / 64, run.start % 64, (1u64 << run.len()) - 1);
        f(word, bits << shift);
        if shift + run.len() > 64 {
            // What the shift has pushed out.
            f(word + 1, bits >> (64 - shift));
        }
    }
    /// Adds a run of at most 63 units.
    #[inline]
    pub fn insert_all(&mut self, run: Range<usize>) {
        UnitSet::words(run, |w, bits| self.0[w] |= bits);
    }
    /// Removes a run of at most 63 units.
    #[inline]
    pub fn remove_all(&mut self, run: Range<usize>) {
        UnitSet::words(run, |w, bits| self.0[w] &= !bits);
    }
    /// Adds a run of at most 63 units; how many it had not.
    #[inline]
    pub fn add_all(&mut self, run: Range<usize>) -> u32 {
        let mut new = 0;
        UnitSet::words(run, |w, bits| {
            new += (bits & !self.0[w]).count_ones();
            self.0[w] |= bits;
        });
        new
    }
    /// Removes a run of at most 63 units; how many it had.
    #[inline]
    pub fn take_all(&mut self, run: Range<usize>) -> u32 {
        let mut gone = 0;
        UnitSet::words(run, |w, bits| {
            gone += (bits & self.0[w]).count_ones();
            self.0[w] &= !bits;
        });
        gone
    }
    /// True when it has a unit of a run of at most 63.
    #[inline]
    pub fn meets(&self, run: Range<usize>) -> bool {
        let mut found = 0;
        UnitSet::words(run, |w, bits| found |= self.0[w] & bits);
        found != 0
    }
    /// Adds a unit.
    #[inline]
    pub fn insert(&mut self, u: usize) {
        self.0[u / 64] |= 1 << (u % 64);
    }
    /// Removes a unit.
    #[inline]
    pub fn remove(&mut self, u: usize) {
        self.0[u / 64] &= !(1 << (u % 64));
    }
    /// True when the unit is in the set.
    #[inline]
    pub fn contains(&self, u: usize) -> bool {
        self.0[u / 64] >> (u % 64) & 1 == 1
    }
    /// Adds all of `other`; true when that changed the set.
    pub fn union(&mut self, other: &UnitSet) -> bool {
        let mut new = 0;
        for (a, b) in self.0.iter_mut().zip(&other.0) {
            new |= b & !*a;
            *a |= b;
        }
        new != 0
    }
    /// The first unit.
    pub fn first(&self) -> Option<usize> {
        let w = self.0.iter().position(|bits| *bits != 0)?;
        Some(w * 64 + self.0[w].trailing_zeros() as usize)
    }
    /// The units in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(w, &bits)| {
            let mut bits = bits;
            std::iter::from_fn(move || {
                (bits != 0).then(|| {
                    let i = bits.trailing_zeros() as usize;
                    bits &= bits - 1;
                    w * 64 + i
                })
            })
        })
    }
}

/// Unit numbers of a function's virtual registers.
#[derive(Clone, Debug)]
pub struct Units {
    base: Vec<u32>,
}

impl Units {
    /// Numbers the units of `f`.
    pub fn of(f: &Function) -> Units {
        let mut base = Vec::with_capacity(f.vregs.len() + 1);
        let mut n = 0;
        for v in &f.vregs {
            base.push(n);
            n += v.dwords as u32;
        }
        base.push(n);
        Units { base }
    }
    /// How many there are.
    pub fn count(&self) -> usize {
        *self.base.last().unwrap_or(&0) as usize
    }
    /// Unit of dword 0 of a virtual register.
    #[inline]
    pub fn base(&self, v: VReg) -> usize {
        self.base[v.0 as usize] as usize
    }
    /// Units of a part.
    #[inline]
    pub fn of_part(&self, p: Part) -> Range<usize> {
        let b = self.base(p.reg) + p.first as usize;
        b..b + p.len as usize
    }
}

/// Calls `f` with every virtual register part that the instruction reads.
#[inline(always)]
pub fn for_each_use(inst: &MInst, target: Target, mut f: impl FnMut(Part)) {
    // What [`MInst::uses`] gives, as a loop with one call, which is compiled in its place: a chain of iterators costs 5% more instructions.
    let slots = inst.info(target).map_or(&[][..], |info| info.dsts);
    let (srcs, dsts) = (inst.srcs.as_slice(), inst.dsts.as_slice());
    for i in 0..srcs.len() + dsts.len() {
        let o = match i.checked_sub(srcs.len()) {
            None => &srcs[i],
            Some(i) if slots.get(i).is_some_and(|slot| slot.read) => &dsts[i],
            Some(_) => continue,
        };
        if let Opnd::V(p) = *o {
            f(p);
        }
    }
}

/// Calls `f` with every virtual register part that the instruction writes.
#[inline(always)]
pub fn for_each_def(inst: &MInst, mut f: impl FnMut(Part)) {
    for o in inst.dsts.iter() {
        if let Opnd::V(p) = o {
            f(*p);
        }
    }
}

/// A block's instructions in the order in which an iteration of its loop means them, by stage, where that is not how they stand.
fn in_order(insts: &[MInst]) -> Option<Vec<&MInst>> {
    if insts.is_sorted_by_key(|i| i.stage) {
        return None;
    }
    let mut all: Vec<&MInst> = insts.iter().collect();
    all.sort_by_key(|i| i.stage);
    Some(all)
}

/// Positions at which a unit is live, ascending ranges `[start, end)`: most have one or two.
pub type Ranges = SmallVec<[(u32, u32); 2]>;

/// Liveness of a function.
#[derive(Clone, Debug)]
pub struct Liveness {
    /// Unit numbers.
    pub units: Units,
    /// Units live at the start of each block.
    pub live_in: Vec<UnitSet>,
    /// Units live at the end of each block.
    pub live_out: Vec<UnitSet>,
}

impl Liveness {
    /// Solves the dataflow equations.
    pub fn of(f: &Function) -> Liveness {
        let units = Units::of(f);
        let n = units.count();
        let mut upward = Vec::with_capacity(f.blocks.len());
        let mut killed = Vec::with_capacity(f.blocks.len());
        // Of each 64 units those that are read before they are written, and those that are written, side by side.
        let mut sets = vec![[0u64; 2]; n.div_ceil(64)];
        for block in &f.blocks {
            sets.fill([0; 2]);
            let order = in_order(&block.insts);
            for i in 0..block.insts.len() {
                let inst = order.as_ref().map_or(&block.insts[i], |order| order[i]);
                for_each_use(inst, f.target, |p| {
                    UnitSet::words(units.of_part(p), |w, bits| sets[w][0] |= bits & !sets[w][1]);
                });
                for_each_def(inst, |p| UnitSet::words(units.of_part(p), |w, bits| sets[w][1] |= bits));
            }
            upward.push(UnitSet(sets.iter().map(|s| s[0]).collect()));
            killed.push(UnitSet(sets.iter().map(|s| s[1]).collect()));
        }
        let mut live_in = upward;
        let mut live_out = vec![UnitSet::new(n); f.blocks.len()];
        // A loop reads its counter and limit behind its last block.
        for l in &f.loops {
            for p in [Some(f.whole(l.counter)), l.limit.part()].into_iter().flatten() {
                units.of_part(p).for_each(|u| live_out[l.latch.0 as usize].insert(u));
            }
        }
        for (b, out) in live_out.iter().enumerate() {
            out.iter().filter(|u| !killed[b].contains(*u)).for_each(|u| live_in[b].insert(u));
        }
        let successors: Vec<_> = (0..f.blocks.len()).map(|b| f.successors(b)).collect();
        // Blocks that others jump back to: only what becomes live there is news to those that were looked at before.
        let mut heads = vec![false; f.blocks.len()];
        for (b, all) in successors.iter().enumerate() {
            all.iter().filter(|s| **s <= b).for_each(|s| heads[*s] = true);
        }
        let mut again = true;
        while again {
            again = false;
            for b in (0..f.blocks.len()).rev() {
                let mut grown = false;
                for &s in &successors[b] {
                    grown |= live_out[b].union(&live_in[s]);
                }
                if grown {
                    let mut changed = 0;
                    for ((word, out), killed) in live_in[b].0.iter_mut().zip(&live_out[b].0).zip(&killed[b].0) {
                        let new = *word | (out & !killed);
                        changed |= new ^ *word;
                        *word = new;
                    }
                    again |= heads[b] && changed != 0;
                }
            }
        }
        Liveness { units, live_in, live_out }
    }

    /// Live ranges of every unit. Preloaded registers are live from position 0.
    pub fn ranges(&self, f: &Function) -> Vec<Ranges> {
        let n = self.units.count();
        let mut ranges: Vec<Ranges> = std::iter::repeat_with(Ranges::new).take(n).collect();
        let mut end_of: Vec<u32> = vec![0; n];
        let mut next = 2 * f.inst_count() as u32;
        // From the last one to the first; one that meets that behind it becomes one with it.
        let add = |ranges: &mut Ranges, start: u32, end: u32| match ranges.last_mut() {
            Some(behind) if end >= behind.0 => *behind = (start, end.max(behind.1)),
            _ => ranges.push((start, end)),
        };
        for (b, block) in f.blocks.iter().enumerate().rev() {
            let block_end = next;
            let block_start = block_end - 2 * block.insts.len() as u32;
            let mut live = self.live_out[b].clone();
            for u in live.iter() {
                end_of[u] = block_end;
            }
            for (i, inst) in block.insts.iter().enumerate().rev() {
                let at = block_start + 2 * i as u32;
                for_each_def(inst, |p| {
                    for u in self.units.of_part(p) {
                        let end = if live.contains(u) { end_of[u] } else { at + 2 };
                        live.remove(u);
                        add(&mut ranges[u], at + 1, end);
                    }
                });
                for_each_use(inst, f.target, |p| {
                    for u in self.units.of_part(p) {
                        if !live.contains(u) {
                            live.insert(u);
                            end_of[u] = at + 1;
                        }
                    }
                });
            }
            for u in live.iter() {
                add(&mut ranges[u], block_start, end_of[u]);
            }
            next = block_start;
        }
        ranges.iter_mut().for_each(|r| r.reverse());
        ranges
    }
}
