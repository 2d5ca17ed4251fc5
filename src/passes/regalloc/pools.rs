//! Register files and who is in them when.

use super::view::{Apart, Range, Value};
use barewave_isa::Reg;
use smallvec::SmallVec;

/// One register file: a bitmap over positions for each register, and its tenants.
pub(super) struct Pool {
    pub first: Reg,
    regs: usize,
    words: usize,
    bits: Vec<u64>,
    /// Value numbers with a dword in each register, where somebody may have to go.
    tenants: Vec<Vec<u32>>,
}

impl Pool {
    pub fn new(first: Reg, regs: u32, positions: u32) -> Pool {
        let (regs, words) = (regs as usize, (positions as usize).div_ceil(64).max(1));
        Pool { first, regs, words, bits: vec![0; regs * words], tenants: Vec::new() }
    }

    /// The empty pool, which will know who is in it.
    pub fn with_tenants(self) -> Pool {
        Pool { tenants: vec![Vec::new(); self.regs], ..self }
    }

    /// Calls `f` with the words that a range has positions in, and these as bits.
    #[inline(always)]
    fn masks((s, e): Range, mut f: impl FnMut(usize, u64)) {
        let (first, last) = (s as usize / 64, (e as usize - 1) / 64);
        let (low, high) = (u64::MAX << (s % 64), u64::MAX >> (63 - (e - 1) % 64));
        if first == last {
            return f(first, low & high);
        }
        f(first, low);
        for w in first + 1..last {
            f(w, u64::MAX);
        }
        f(last, high);
    }

    fn free(&self, reg: usize, ranges: &[Range]) -> bool {
        let row = &self.bits[reg * self.words..][..self.words];
        let mut taken = 0;
        for &r in ranges {
            Self::masks(r, |w, m| taken |= row[w] & m);
        }
        taken == 0
    }

    /// True when the value fits at a register.
    pub fn fits(&self, v: &Value, at: usize) -> bool {
        at.is_multiple_of(v.align as usize)
            && at + v.dwords as usize <= self.regs
            && v.ranges.iter().enumerate().all(|(i, r)| self.free(at + i, r))
    }

    /// The places where a value fits, from the lowest on.
    fn places(&self, v: &Value) -> impl Iterator<Item = usize> {
        // Words of the bitmap, counted from that of the first register.
        let mut masks: SmallVec<[(usize, u64); 32]> = SmallVec::new();
        for (i, ranges) in v.ranges.iter().enumerate() {
            for &r in ranges {
                Self::masks(r, |w, m| masks.push((i * self.words + w, m)));
            }
        }
        let end = (self.regs + 1).saturating_sub(v.dwords as usize);
        let mut next = 0;
        std::iter::from_fn(move || {
            while next < end {
                let at = next;
                next += v.align as usize;
                let row = &self.bits[at * self.words..];
                if masks.iter().all(|(w, m)| row[*w] & m == 0) {
                    return Some(at);
                }
            }
            None
        })
    }

    /// The lowest place for a value.
    pub fn find(&self, v: &Value) -> Option<usize> {
        self.places(v).next()
    }

    /// The place at which fewest wishes of a value about banks are not met, of several the lowest.
    pub fn find_apart(&self, v: &Value, place: &[Option<Reg>]) -> Option<usize> {
        let broken = |at: usize| {
            let meets = |a: &&Apart| {
                let other = place[a.other.reg.0 as usize].filter(|r| r.file() == self.first.file());
                let banks = usize::from(a.banks);
                other.is_some_and(|r| {
                    (at + usize::from(a.dword)) % banks == (r.index() as usize + usize::from(a.other.first)) % banks
                })
            };
            v.apart.iter().filter(meets).count()
        };
        let mut best: Option<(usize, usize)> = None;
        for at in self.places(v) {
            let n = broken(at);
            if best.is_none_or(|b| n < b.0) {
                best = Some((n, at));
            }
            if n == 0 {
                break;
            }
        }
        best.map(|b| b.1)
    }

    pub fn take(&mut self, id: u32, v: &Value, at: usize) {
        for (i, ranges) in v.ranges.iter().enumerate() {
            let row = &mut self.bits[(at + i) * self.words..][..self.words];
            for &r in ranges {
                Self::masks(r, |w, m| row[w] |= m);
            }
            self.tenants.get_mut(at + i).into_iter().for_each(|t| t.push(id));
        }
    }

    pub fn release(&mut self, id: u32, v: &Value, at: usize) {
        for (i, ranges) in v.ranges.iter().enumerate() {
            let row = &mut self.bits[(at + i) * self.words..][..self.words];
            for &r in ranges {
                Self::masks(r, |w, m| row[w] &= !m);
            }
            self.tenants.get_mut(at + i).into_iter().for_each(|t| t.retain(|t| *t != id));
        }
    }

    /// The place at which making room for `v` costs least, and who has to go. `cost` is `None` for a tenant that
    /// cannot go; places that cost `limit` or more are not taken.
    pub fn cheapest(
        &self,
        v: &Value,
        values: &[Value],
        limit: u64,
        dword_of: impl Fn(u32, usize) -> usize,
    ) -> Option<Vec<u32>> {
        let mut best: Option<(u64, Vec<u32>)> = None;
        let last = self.regs.checked_sub(v.dwords as usize)?;
        for at in (0..=last).step_by(v.align as usize) {
            let bound = best.as_ref().map_or(limit, |b| b.0);
            if let Some((cost, who)) = self.blockers(v, at, values, bound, &dword_of) {
                best = Some((cost, who));
            }
        }
        best.map(|b| b.1)
    }

    fn blockers(
        &self,
        v: &Value,
        at: usize,
        values: &[Value],
        bound: u64,
        dword_of: impl Fn(u32, usize) -> usize,
    ) -> Option<(u64, Vec<u32>)> {
        let (mut cost, mut who) = (0u64, Vec::new());
        for (i, mine) in v.ranges.iter().enumerate() {
            let reg = at + i;
            if self.free(reg, mine) {
                continue;
            }
            for &t in &self.tenants[reg] {
                let theirs = &values[t as usize].ranges[dword_of(t, reg)];
                if !who.contains(&t) && overlap(mine, theirs) {
                    cost += values[t as usize].cost?;
                    if cost >= bound {
                        return None;
                    }
                    who.push(t);
                }
            }
        }
        Some((cost, who))
    }
}

/// True when two ascending lists of ranges have a position in common.
fn overlap(a: &[Range], b: &[Range]) -> bool {
    let (mut i, mut k) = (0, 0);
    while i < a.len() && k < b.len() {
        if a[i].0 < b[k].1 && b[k].0 < a[i].1 {
            return true;
        }
        if a[i].1 <= b[k].1 { i += 1 } else { k += 1 }
    }
    false
}
