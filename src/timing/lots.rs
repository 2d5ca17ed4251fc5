//! Lots of lines: what the workgroups of a launch touch together, and what of it they bring into a cache.
//!
//! Workgroups are sampled: the first one, and others along each axis of the grid. A line of the first one is shared along an axis by all, by a
//! few next to each other, by two that dies take one after the other, or by nobody ([`Along`]). An operand through which workgroups go line by line, and of which one further along touches
//! what is not as far away as it would be, comes again every so many workgroups: a vector that is added to every row. Lines that are shared in the same
//! way make a lot for each of the groups of workgroups that share them.
//!
//! Workgroups are then gone through in the order in which they are dispatched. A lot that several of those touch that run at once comes once.
//! One that is touched again later comes again unless the cache still has it: what has been touched in between, loads and
//! stores, is its reuse distance ([`again`]).

use crate::chip::kept;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;

/// Who shares a line along an axis.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Along {
    /// All.
    All,
    /// Nobody.
    Own,
    /// So many next to each other.
    Next(u64),
    /// One of every so many.
    Every(u64),
    /// Two that are so far apart, as neighbours on one of several dies are.
    Apart(u64),
}

impl Along {
    /// By which of the sampled workgroups, so far from the first one, the nearest first, share it with that.
    pub(crate) fn of(sampled: impl Iterator<Item = (u64, bool)>) -> Along {
        // The farthest one up to which all share it, how many do, the first of these, and the farthest of all.
        let (mut near, mut sharing, mut first, mut all, mut end) = (None, 0, 0, true, 0);
        for (at, shares) in sampled {
            all &= shares;
            if all {
                near = Some(at);
            }
            if shares {
                first = if sharing == 0 { at } else { first };
                sharing += 1;
            }
            end = at;
        }
        match near {
            Some(_) if all => Along::All,
            Some(at) => Along::Next((at + 1).next_power_of_two()),
            // The farthest one may be where it comes again.
            None if sharing == 1 && first < end => Along::Apart(first),
            None => Along::Own,
        }
    }

    /// Lots of it among so many workgroups.
    pub(crate) fn count(self, workgroups: f64) -> f64 {
        match self {
            Along::All => 1.0,
            Along::Own => workgroups,
            Along::Next(n) => (workgroups / n as f64).ceil(),
            Along::Every(n) => workgroups.min(n as f64),
            Along::Apart(_) => (workgroups / 2.0).ceil(),
        }
    }

    /// The lot of the workgroup at a place.
    fn number(self, at: u64) -> u64 {
        match self {
            Along::All => 0,
            Along::Own => at,
            Along::Next(n) => at / n,
            Along::Every(n) => at % n,
            Along::Apart(n) => at / (2 * n) * n + at % n,
        }
    }
}

/// A sampled workgroup along an axis.
pub(crate) struct Beside<'l> {
    /// How far from the first one.
    pub at: u32,
    /// It tells who shares a line: the last one may end within the grid, and have less.
    pub shares: bool,
    /// Its lines.
    pub lines: &'l FxHashSet<u64>,
}

/// Lots that are shared in the same way.
struct Lot {
    along: [Along; 3],
    /// Bytes of each.
    bytes: f64,
    operand: usize,
}

/// The extents of a grid as far as what workgroups touch goes: the last one along an axis may touch less than the others.
pub(crate) type Extents = [f64; 3];

/// What the workgroups of a grid touch, loads or stores.
pub(crate) struct Lots {
    grid: [u64; 3],
    lots: Vec<Lot>,
    reach: BTreeMap<usize, (u64, u64)>,
}

/// Which operands lines belong to: the one that begins last in front of a line's end.
pub(crate) struct Operands {
    /// Addresses and their numbers, in order of addresses.
    starts: Vec<(u64, usize)>,
    line: u64,
}

impl Operands {
    /// Of operands that begin at these addresses, for lines of so many bytes.
    pub fn new(starts: &[u64], line: f64) -> Operands {
        let mut starts: Vec<(u64, usize)> = starts.iter().copied().zip(0..).collect();
        starts.sort_unstable();
        starts.dedup_by_key(|s| s.0);
        Operands { starts, line: (line as u64).max(1) }
    }

    /// The number of a line's operand.
    pub fn of(&self, line: u64) -> usize {
        let end = line.saturating_add(1).saturating_mul(self.line);
        let after = self.starts.partition_point(|s| s.0 < end);
        self.starts.get(after.saturating_sub(1)).map_or(0, |s| s.1)
    }

    /// How many of some lines are of each operand.
    pub fn counts<'l>(&self, lines: impl Iterator<Item = &'l u64>) -> BTreeMap<usize, f64> {
        let mut out = BTreeMap::new();
        lines.for_each(|line| *out.entry(self.of(*line)).or_default() += 1.0);
        out
    }

    /// The first line of each operand among some, and the last.
    fn ends<'l>(&self, lines: impl Iterator<Item = &'l u64>) -> BTreeMap<usize, (u64, u64)> {
        let mut ends = vec![(u64::MAX, 0); self.starts.iter().map(|s| s.1 + 1).max().unwrap_or(1)];
        for line in lines {
            let (least, most) = &mut ends[self.of(*line)];
            (*least, *most) = ((*line).min(*least), (*line).max(*most));
        }
        ends.into_iter().enumerate().filter(|(_, (least, most))| least <= most).collect()
    }
}

/// Every how many workgroups an operand comes again, of which one next to the first begins `step` lines further on, and others, so
/// far away, as many as is said; `None` where it goes on.
fn period(step: u64, seen: &[(u64, u64)]) -> Option<u64> {
    // Workgroups begin within lines.
    let comes_again = seen.iter().any(|(at, lines)| *lines < at * (step - 1));
    if !comes_again {
        return None;
    }
    let pieces = seen.iter().map(|s| s.1).max()?.div_ceil(step) + 1;
    // It divides how much nearer they are.
    let whole = seen.iter().all(|(at, lines)| lines % step == 0 && lines / step <= *at);
    let nearer = seen.iter().map(|(at, lines)| at.saturating_sub(lines / step)).fold(0, gcd);
    let dividing = |n: &u64| whole && nearer % n == 0;
    Some((pieces..=nearer.min(pieces * 16)).find(dividing).unwrap_or(pieces))
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl Lots {
    /// By the lines of the first workgroup, each with how many others it stands for, and those of the sampled ones along each axis,
    /// the nearest first.
    pub fn of(
        lines: &FxHashMap<u64, f64>,
        beside: &[Vec<Beside>; 3],
        operands: &Operands,
        line: f64,
        grid: [u32; 3],
    ) -> Lots {
        let ends = operands.ends(lines.keys());
        // Lines that the first workgroup touches of an operand one after the other from the first one on.
        let whole = |operand: usize, first: u64| {
            (first..).take_while(|l| lines.contains_key(l) && operands.of(*l) == operand).count() as u64
        };
        let mut reach = ends.clone();
        let periods = beside.each_ref().map(|sampled| {
            let all: Vec<(u64, BTreeMap<usize, (u64, u64)>)> =
                sampled.iter().map(|b| (u64::from(b.at), operands.ends(b.lines.iter()))).collect();
            // Along each axis what workgroups touch goes on by as much.
            for (operand, (first, last)) in &mut reach {
                let own = ends[operand];
                let others = || all.iter().filter_map(|f| f.1.get(operand));
                *first -= others().map(|o| own.0.saturating_sub(o.0)).max().unwrap_or(0).min(*first);
                *last += others().map(|o| o.1.saturating_sub(own.1)).max().unwrap_or(0);
            }
            let of = |(operand, (first, _)): (&usize, &(u64, u64))| {
                let further = |(at, of): &(u64, BTreeMap<usize, (u64, u64)>)| {
                    Some((*at, of.get(operand)?.0.checked_sub(*first)?))
                };
                let seen: Vec<(u64, u64)> = all.iter().map(further).collect::<Option<_>>()?;
                let step = seen.iter().find(|s| s.0 == 1).filter(|s| s.1 > 0)?.1;
                // Only where workgroups touch all of what lies between their beginnings: rows of tiles of a matrix lie between each other.
                (step <= whole(*operand, *first)).then_some(())?;
                // What comes again lies together: the columns of a matrix that a share begins with do not.
                let (from, to) = ends[operand];
                let together = |n: &u64| to - from <= n * step;
                Some((*operand, period(step, &seen).filter(together)?))
            };
            ends.iter().filter_map(of).collect::<FxHashMap<usize, u64>>()
        });
        let mut bytes: FxHashMap<(usize, [Along; 3]), f64> = FxHashMap::default();
        for (number, weight) in lines {
            let operand = operands.of(*number);
            let along = [0, 1, 2].map(|axis| {
                let sharing =
                    beside[axis].iter().filter(|b| b.shares).map(|b| (u64::from(b.at), b.lines.contains(number)));
                match Along::of(sharing) {
                    Along::Own => periods[axis].get(&operand).map_or(Along::Own, |n| Along::Every(*n)),
                    other => other,
                }
            });
            *bytes.entry((operand, along)).or_default() += weight * line;
        }
        let mut lots: Vec<Lot> =
            bytes.into_iter().map(|((operand, along), bytes)| Lot { along, bytes, operand }).collect();
        lots.sort_by_key(|l| (l.operand, l.along));
        Lots { grid: grid.map(|g| u64::from(g).max(1)), lots, reach }
    }

    /// The first and the last line of an operand that any workgroup touches.
    pub fn reach(&self, operand: usize) -> Option<(u64, u64)> {
        self.reach.get(&operand).copied()
    }

    /// Bytes of all lots in a grid, or of those of an operand.
    pub fn all(&self, extents: Extents, operand: Option<usize>) -> f64 {
        let some = self.lots.iter().filter(|lot| operand.is_none_or(|o| o == lot.operand));
        some.map(|lot| lot.along.iter().zip(extents).map(|(a, n)| a.count(n)).product::<f64>() * lot.bytes).sum()
    }

    /// Workgroups touch so many times as much of an operand as the first one.
    pub fn scale(&mut self, operand: usize, times: f64) {
        self.lots.iter_mut().filter(|lot| lot.operand == operand).for_each(|lot| lot.bytes *= times);
    }

    /// A grid touches so many bytes of an operand at most.
    pub fn bound(&mut self, operand: usize, extents: Extents, most: f64) {
        let all = self.all(extents, Some(operand));
        if all > most {
            self.lots.iter_mut().filter(|lot| lot.operand == operand).for_each(|lot| lot.bytes *= most / all);
        }
    }

    /// Of what the first workgroup after `at_once` of a die touches, by operand, the share that these have touched. Dies take workgroups in turn.
    pub fn before(&self, operands: usize, at_once: u64, dies: u64, total: u64) -> Vec<f64> {
        let mut out = vec![0.0; operands];
        let next = at_once * dies;
        if next >= total {
            return out;
        }
        let mut all = out.clone();
        for lot in self.lots.iter().filter(|l| l.operand < operands) {
            let own = self.number(lot, next);
            all[lot.operand] += lot.bytes;
            if (0..at_once).rev().any(|i| self.number(lot, i * dies) == own) {
                out[lot.operand] += lot.bytes;
            }
        }
        out.iter_mut().zip(all).for_each(|(o, a)| *o /= a.max(1.0));
        out
    }

    /// The number of a workgroup's lot, among those that are shared in the same way.
    fn number(&self, lot: &Lot, workgroup: u64) -> u64 {
        let [gx, gy, _] = self.grid;
        let (x, yz) = (workgroup % gx, workgroup / gx);
        let [x, y, z] =
            [(lot.along[0], x), (lot.along[1], yz % gy), (lot.along[2], yz / gy)].map(|(a, at)| a.number(at));
        (z * gy + y) * gx + x
    }
}

/// Bytes that some workgroups bring over: those of lots that nobody had before, and those that are touched again and are gone.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Again {
    /// Of loads, and of stores.
    pub first: [f64; 2],
    /// The same.
    pub again: [f64; 2],
}

/// What workgroups with the given numbers, so many at once, bring into a cache of so many bytes. Those that run at once go through their lots side by
/// side: each lot comes once. Between two of its uses lies what was touched since.
pub(crate) fn again(lots: &[Lots; 2], ids: impl Iterator<Item = u64>, at_once: u64, capacity: f64) -> Again {
    let mut out = Again::default();
    // The window that had a lot last, and the bytes of lots that each window was the last one to have.
    let mut last: [FxHashMap<(usize, u64), usize>; 2] = Default::default();
    let mut bytes: Vec<f64> = Vec::new();
    let mut met: Vec<(usize, f64)> = Vec::new();
    let mut ids = ids.peekable();
    while ids.peek().is_some() {
        let now = bytes.len();
        met.clear();
        for id in ids.by_ref().take(at_once as usize) {
            for (side, lots) in lots.iter().enumerate() {
                for (n, lot) in lots.lots.iter().enumerate() {
                    let size = lot.bytes;
                    match last[side].insert((n, lots.number(lot, id)), now) {
                        Some(before) if before == now => continue,
                        Some(before) => {
                            let since: f64 = bytes[before..].iter().sum();
                            out.again[side] += size * (1.0 - kept(capacity, since));
                            met.push((before, size));
                        }
                        None => {
                            out.first[side] += size;
                            met.push((now, size));
                        }
                    }
                }
            }
        }
        bytes.push(0.0);
        for (before, size) in &met {
            if *before < now {
                bytes[*before] -= size;
            }
            bytes[now] += size;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lots(shared: &[(u64, [Along; 3], f64)], grid: [u64; 3]) -> Lots {
        let lots = shared.iter().map(|&(operand, along, bytes)| Lot { along, bytes, operand: operand as usize });
        Lots { grid, lots: lots.collect(), reach: BTreeMap::new() }
    }

    fn beside(x: &[(u32, &[u64])]) -> [Vec<Beside<'static>>; 3] {
        let of = |(at, lines): &(u32, &[u64])| {
            let lines: FxHashSet<u64> = lines.iter().copied().collect();
            Beside { at: *at, shares: true, lines: Box::leak(Box::new(lines)) }
        };
        [x.iter().map(of).collect(), Vec::new(), Vec::new()]
    }

    const NONE: [Along; 3] = [Along::Own; 3];

    /// 64 workgroups in a row: of four lines of the first one all have the first, it and the next one the second, four of them the
    /// third, and nobody else the last.
    #[test]
    fn lines_on_an_edge_are_not_shared_by_all() {
        let own: FxHashMap<u64, f64> = (0..4).map(|l| (l, 1.0)).collect();
        let along = beside(&[(1, &[0, 1, 2]), (2, &[0, 2]), (4, &[0]), (16, &[0])]);
        let of = |grid| Lots::of(&own, &along, &Operands::new(&[0], 1.0), 1.0, grid);
        let with = of([64, 1, 1]);
        // 1 line, 32 and 16 that some share, 64 of their own.
        assert_eq!(with.all([64.0, 1.0, 1.0], None), 1.0 + 32.0 + 16.0 + 64.0);
        let both = || [of([64, 1, 1]), lots(&[], [64, 1, 1])];
        let all = again(&both(), 0..64, 64, 1e9);
        assert_eq!((all.first[0], all.again[0]), (1.0 + 32.0 + 16.0 + 64.0, 0.0));
        // Workgroups of one of eight dies: no two are neighbours.
        assert_eq!(again(&both(), (0..8).map(|i| 8 * i), 8, 1e9).first[0], 1.0 + 8.0 + 8.0 + 8.0);
    }

    /// Two operands of four lines a workgroup: one goes on, the other, which begins at line 1000, comes again every fifth workgroup.
    #[test]
    fn a_vector_that_is_added_to_every_row_is_read_once() {
        let at =
            |n: u64| -> Vec<u64> { (0..4).map(|i| 4 * n + i).chain((0..4).map(|i| 1000 + 4 * (n % 5) + i)).collect() };
        let own: FxHashMap<u64, f64> = at(0).into_iter().map(|l| (l, 1.0)).collect();
        let [a, b, c, d, e] = [1, 2, 4, 16, 199].map(at);
        let along = beside(&[(1, &a), (2, &b), (4, &c), (16, &d), (199, &e)]);
        let of = Lots::of(&own, &along, &Operands::new(&[128, 128_000], 128.0), 128.0, [200, 1, 1]);
        let extents = [200.0, 1.0, 1.0];
        assert_eq!(of.all(extents, Some(0)), 200.0 * 4.0 * 128.0);
        assert_eq!(of.all(extents, Some(1)), 5.0 * 4.0 * 128.0);
    }

    /// Eight columns of tiles of four rows of two lines each, then the next row of tiles; rows have 16 lines. Written as columns, the
    /// tiles of a row lie between each other.
    #[test]
    fn tiles_of_a_matrix_are_all_different() {
        let at = |n: u64| -> Vec<u64> {
            (0..4).flat_map(|row| [0, 1].map(|l| (4 * (n % 8) + row) * 16 + 2 * (n / 8) + l)).collect()
        };
        let own: FxHashMap<u64, f64> = at(0).into_iter().map(|l| (l, 1.0)).collect();
        let [a, b, c, d, e] = [1, 2, 4, 16, 63].map(at);
        let along = beside(&[(1, &a), (2, &b), (4, &c), (16, &d), (63, &e)]);
        let of = Lots::of(&own, &along, &Operands::new(&[0], 128.0), 128.0, [64, 1, 1]);
        assert_eq!(of.all([64.0, 1.0, 1.0], None), 64.0 * 8.0 * 128.0);
    }

    /// Twelve columns of tiles of two lines, 24 rows deep, in equal shares of one and a third: they begin with this row or that.
    #[test]
    fn shares_of_columns_of_tiles_are_all_different() {
        let at = |n: u64| -> Vec<u64> {
            (32 * n..32 * (n + 1)).flat_map(|unit| [0, 1].map(|l| unit % 24 * 24 + 2 * (unit / 24) + l)).collect()
        };
        let own: FxHashMap<u64, f64> = at(0).into_iter().map(|l| (l, 1.0)).collect();
        let [a, b, c, d] = [1, 2, 4, 8].map(at);
        let along = beside(&[(1, &a), (2, &b), (4, &c), (8, &d)]);
        let of = Lots::of(&own, &along, &Operands::new(&[0], 128.0), 128.0, [9, 1, 1]);
        assert_eq!(of.all([9.0, 1.0, 1.0], None), 9.0 * 64.0 * 128.0);
    }

    /// Two dies: the second workgroup of each shares a line with its first one, the third another.
    #[test]
    fn neighbours_on_a_die_share_lines() {
        let own: FxHashMap<u64, f64> = (0..3).map(|l| (l, 1.0)).collect();
        let along = beside(&[(1, &[]), (2, &[0]), (4, &[1]), (8, &[]), (31, &[])]);
        let of = || Lots::of(&own, &along, &Operands::new(&[0], 1.0), 1.0, [32, 1, 1]);
        assert_eq!(of().all([32.0, 1.0, 1.0], None), 16.0 + 16.0 + 32.0);
        // On a die they come once, on two each brings its own.
        let both = [of(), lots(&[], [32, 1, 1])];
        assert_eq!(again(&both, (0..16).map(|i| 2 * i), 16, 1e9).first[0], 8.0 + 8.0 + 16.0);
    }

    #[test]
    fn what_begins_within_lines_goes_on() {
        // One and three quarters of a line each.
        let seen = [1u64, 2, 4, 16, 999].map(|at| (at, (at * 7).div_ceil(4)));
        assert_eq!(period(seen[0].1, &seen), None);
        // Rows of 25 lines, eight a workgroup: of three lots each a little.
        let seen = [1u64, 2, 4, 16].map(|at| (at, at * 8 % 25));
        assert_eq!(period(8, &seen), Some(3));
    }

    /// Eight rows of eight workgroups, a row at once: rows of A are its own, columns of B, a byte each, are read by every row.
    #[test]
    fn a_cache_has_what_was_touched_a_row_ago_if_it_is_large_enough() {
        let row = (0, [Along::All, Along::Own, Along::Own], 1.0);
        let column = (0, [Along::Own, Along::All, Along::Own], 1.0);
        let both = [lots(&[row, column], [8, 8, 1]), lots(&[], [8, 8, 1])];
        let rereads = |capacity: f64| again(&both, 0..64, 8, capacity).again[0];
        assert_eq!(again(&both, 0..64, 8, 9.0).first[0], 8.0 + 8.0);
        // Between two rows lie a row of A and all columns of B.
        assert_eq!(rereads(9.0), 0.0);
        assert!(rereads(8.0) > 0.0 && rereads(1.0) > 55.0 && rereads(1.0) <= 56.0);
    }

    /// Sixteen columns of tiles, four rows at once: later workgroups have rows of A of their own, and columns of B that others had.
    #[test]
    fn later_workgroups_find_what_earlier_ones_share_with_them() {
        let row = (0, [Along::All, Along::Own, Along::Own], 1.0);
        let column = (1, [Along::Own, Along::All, Along::Own], 1.0);
        let both = lots(&[row, column], [16, 16, 1]);
        assert_eq!(both.before(2, 64, 1, 256), [0.0, 1.0]);
        // Half a row at once: the other half has the same row of A.
        assert_eq!(both.before(2, 8, 1, 256), [1.0, 0.0]);
        // Of each die a quarter.
        assert_eq!(both.before(2, 16, 4, 256), [0.0, 1.0]);
        assert_eq!(both.before(2, 256, 1, 256), [0.0, 0.0]);
    }

    #[test]
    fn no_more_of_an_operand_is_touched_than_there_is() {
        let mut all = lots(&[(0, NONE, 3.0), (0, [Along::All; 3], 4.0), (1, NONE, 2.0)], [4, 1, 1]);
        let extents = [4.0, 1.0, 1.0];
        all.bound(0, extents, 16.0);
        assert_eq!((all.all(extents, Some(0)), all.all(extents, Some(1))), (16.0, 8.0));
        all.bound(0, extents, 8.0);
        assert_eq!((all.all(extents, Some(0)), all.all(extents, Some(1))), (8.0, 8.0));
        assert_eq!(all.lots[0].bytes / all.lots[1].bytes, 0.75);
    }

    #[test]
    fn operands_are_told_by_where_they_begin() {
        let all = Operands::new(&[4096, 128, 128, 64], 128.0);
        assert_eq!([0, 1, 31, 32, 1000].map(|l| all.of(l)), [3, 1, 1, 0, 0]);
        assert_eq!(lots(&[(0, NONE, 2.0)], [4, 1, 1]).all([4.0, 1.0, 1.0], Some(1)), 0.0);
    }
}
