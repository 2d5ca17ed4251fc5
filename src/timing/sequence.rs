//! Launches one after the other: what one leaves in caches the next ones find there.
//!
//! A launch touches parts of its operands ([`Operand`]), each so many bytes from an address on. Of what it loads, a cache still has what was touched
//! not long ago: the different bytes that were touched in between are the reuse distance, of the launches between, and of half of the one that
//! touched it and of the one that asks, which both go through their operands from the beginning.
//!
//! L2 keeps what was loaded and stored, where there is one of it. Those of several dies do not: the next launch's workgroups are on other dies.
//! The memory-side cache keeps what was loaded, and what was stored where it takes that (`mall_writes`).
//! Nothing is taken to be in a cache that no launch before has touched: inputs and weights come from memory when they are first
//! used.

use crate::chip::{Chip, kept};
use crate::memory::{FILLED, MIB, Operand, Part};
use crate::record::Level;

/// Memory that was touched.
#[derive(Clone, Copy)]
struct Entry {
    start: f64,
    end: f64,
    /// Share of it.
    dense: f64,
    launch: usize,
    stored: bool,
}

/// What launches have touched, each place as it was touched last.
#[derive(Default)]
pub struct Touched {
    entries: Vec<Entry>,
    /// Bytes that each launch touched, and those of them that none has touched since.
    launches: Vec<(f64, f64)>,
}

/// Bytes of what a launch loads of an operand that are still there.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Found {
    /// In L2.
    pub l2: f64,
    /// Of the rest, in the memory-side cache.
    pub mall: f64,
}

impl Found {
    /// Where most of so many bytes are: what waits for the rest is not told apart.
    pub fn level(&self, bytes: f64) -> Level {
        match () {
            () if self.l2 > 0.0 && self.l2 >= bytes / 2.0 => Level::L2,
            () if self.l2 + self.mall > 0.0 && self.l2 + self.mall >= bytes / 2.0 => Level::Mall,
            () => Level::Dram,
        }
    }
}

impl Touched {
    /// The next launch, by what it touches of its operands and where these begin: what of each is still there.
    pub fn launch(&mut self, chip: &Chip, operands: &[Operand], starts: &[u64]) -> Vec<Found> {
        let mut out = Vec::with_capacity(operands.len());
        let operands = || operands.iter().zip(starts);
        let touches: f64 = operands().map(|(o, _)| o.loads.bytes.max(o.stores.bytes)).sum();
        let now = self.launches.len();
        let entry = |part: &Part, start: u64, stored: bool| {
            let start = start as f64 + part.from;
            Entry { start, end: start + part.over, dense: part.bytes / part.over.max(1.0), launch: now, stored }
        };
        for (operand, start) in operands() {
            let new = entry(&operand.loads, *start, false);
            let mut found = Found::default();
            for e in &self.entries {
                let both = new.shares(e);
                if both == 0.0 {
                    continue;
                }
                let between: f64 = self.launches[e.launch + 1..].iter().map(|l| l.1).sum();
                let distance = between + (self.launches[e.launch].0 + touches) / 2.0;
                let l2 = if chip.dies > 1.0 { 0.0 } else { both * kept(chip.l2_mib * MIB * FILLED, distance) };
                let takes = !e.stored || chip.mall_writes > 0.0;
                found.l2 += l2;
                found.mall += if takes { (both - l2) * chip.kept(distance) } else { 0.0 };
            }
            out.push(found);
        }
        self.launches.push((touches, 0.0));
        for (operand, start) in operands() {
            for (part, stored) in [(&operand.loads, false), (&operand.stores, true)] {
                if part.bytes > 0.0 {
                    self.touch(entry(part, *start, stored));
                }
            }
        }
        out
    }

    fn touch(&mut self, new: Entry) {
        let mut rest = Vec::new();
        for old in &mut self.entries {
            let (start, end) = (old.start.max(new.start), old.end.min(new.end));
            if new.shares(old) == 0.0 {
                continue;
            }
            self.launches[old.launch].1 -= (end - start) * old.dense;
            if old.end > end {
                rest.push(Entry { start: end, ..*old });
            }
            old.end = start;
        }
        self.launches[new.launch].1 += (new.end - new.start) * new.dense;
        self.entries.retain(|e| e.end > e.start);
        self.entries.extend(rest);
        self.entries.push(new);
    }
}

/// Operands of which less is touched have gaps.
const GAPS: f64 = 0.9;

impl Entry {
    /// Bytes that two have in common. Two with gaps have none, unless they begin at the same place: each may be where the other has gaps.
    fn shares(&self, other: &Entry) -> f64 {
        let apart = self.dense < GAPS && other.dense < GAPS && self.start != other.start;
        let both = self.end.min(other.end) - self.start.max(other.start);
        if apart { 0.0 } else { both.max(0.0) * self.dense.min(other.dense) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use barewave_isa::Target;

    /// What each of some launches finds: operands by where they begin, bytes loaded and bytes stored.
    fn found(target: Target, launches: &[&[(u64, f64, f64)]]) -> Vec<Found> {
        let chip = Chip::of(target).unwrap();
        let mut touched = Touched::default();
        let of = |operands: &&[(u64, f64, f64)]| {
            let part = |bytes: f64| Part { bytes, from: 0.0, over: bytes };
            let bytes: Vec<Operand> =
                operands.iter().map(|&(_, l, s)| Operand { loads: part(l), stores: part(s) }).collect();
            let found = touched.launch(&chip, &bytes, &operands.iter().map(|o| o.0).collect::<Vec<_>>());
            found.iter().fold(Found::default(), |a, f| Found { l2: a.l2 + f.l2, mall: a.mall + f.mall })
        };
        launches.iter().map(of).collect()
    }

    #[test]
    fn an_operand_is_where_most_of_it_is() {
        assert_eq!(Found { l2: 6e5, mall: 0.0 }.level(1e6), Level::L2);
        assert_eq!(Found { l2: 3e5, mall: 3e5 }.level(1e6), Level::Mall);
        assert_eq!(Found { l2: 1e5, mall: 1e5 }.level(1e6), Level::Dram);
        assert_eq!(Found::default().level(0.0), Level::Dram);
    }

    const A: u64 = 1 << 30;
    const B: u64 = 2 << 30;

    #[test]
    fn what_was_just_written_is_in_l2() {
        let write: &[_] = &[(A, 0.0, 1e6)];
        let read: &[_] = &[(A, 1e6, 0.0), (B, 0.0, 1e5)];
        assert_eq!(found(Target::GFX1100, &[write, read])[1], Found { l2: 1e6, mall: 0.0 });
        // Half of it.
        let part: &[_] = &[(A + 500_000, 1e6, 0.0)];
        assert_eq!(found(Target::GFX1100, &[write, part])[1], Found { l2: 5e5, mall: 0.0 });
        // On other dies, in a cache that takes no stores; but it has what was loaded.
        assert_eq!(found(Target::GFX942, &[write, read])[1], Found::default());
        assert_eq!(found(Target::GFX942, &[write, read, read])[2], Found { l2: 0.0, mall: 1e6 });
    }

    #[test]
    fn what_lies_behind_much_else_is_gone() {
        let write: &[_] = &[(A, 0.0, 1e6)];
        let other: &[_] = &[(B, 2e7, 0.0)];
        let read: &[_] = &[(A, 1e6, 0.0)];
        let after = found(Target::GFX1100, &[write, other, read])[2];
        assert!(after.l2 < 1e4 && after.mall > 0.98e6, "{after:?}");
        assert!(found(Target::GFX906, &[write, other, read])[2].l2 < 1e4);
        // The same bytes again and again are no distance.
        let small: &[_] = &[(B, 1e6, 0.0)];
        assert_eq!(found(Target::GFX906, &[write, small, small, small, small, read])[5].l2, 1e6);
    }

    #[test]
    fn parts_that_lie_between_each_other_are_not_found() {
        let chip = Chip::of(Target::GFX1100).unwrap();
        let find = |from: f64| {
            let mut touched = Touched::default();
            let loads = |from| Operand { loads: Part { bytes: 4e5, from, over: 1e6 }, ..Operand::default() };
            touched.launch(&chip, &[loads(0.0)], &[A]);
            touched.launch(&chip, &[loads(from)], &[A])[0]
        };
        assert_eq!(find(4e4), Found::default());
        assert!((find(0.0).l2 - 4e5).abs() < 1.0);
    }
}
