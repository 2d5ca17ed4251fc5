//! Layer 3: traffic between the levels of memory.
//!
//! Workgroups are sampled: the first one, others beside it in x and y, and the last ones along these. What the first shares with one
//! far along an axis is shared along all of it: the rows of A of a matrix product along x, the columns of B along y. What it shares with
//! the next ones alone are lines that hold something of each of them. The last ones tell whether the grid ends within a
//! workgroup, which then touches less (`Counts`).
//!
//! From that follows which lots of lines (`Lots`) the workgroups touch that are resident on a die at once, in the order in which they are
//! dispatched (round-robin over dies). A lot that is touched by several of them comes once. One that is touched again later comes
//! again unless a cache still has it: what has been touched in between, loads and stores, is its reuse distance (`again`).
//! Within a workgroup the first level is a list of recently used lines of its size. L2 gathers what workgroups store: behind
//! it each line counts once as long as it is there.
//!
//! What is stored goes on to memory, but for chips whose memory-side cache takes what is written: there as much stays as that cache keeps of
//! all that the launch touches. The launch's own loads come from memory once: nobody says what was there before.

use crate::chip::{Chip, kept};
use crate::instr::{Instr, Unit};
use crate::record::{Group, Level, Step, Trace};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;

/// Bytes that a launch moves.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Traffic {
    /// Requests to the first level.
    pub l1: f64,
    /// Between first level and L2.
    pub l2: f64,
    /// Between L2 and what is behind it (memory-side cache or memory).
    pub fabric: f64,
    /// To and from memory.
    pub dram: f64,
    /// Different bytes that the launch touches.
    pub footprint: f64,
}

impl Traffic {
    /// Share of loads that the first level serves.
    pub fn l1_hits(&self) -> f64 {
        if self.l1 > 0.0 { 1.0 - (self.l2 / self.l1).min(1.0) } else { 0.0 }
    }
    /// Share of its requests that L2 serves.
    pub fn l2_hits(&self) -> f64 {
        if self.l2 > 0.0 { 1.0 - (self.fabric / self.l2).min(1.0) } else { 0.0 }
    }
}

/// How a launch is spread.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    /// Workgroups in x, y, z.
    pub grid: [u32; 3],
    /// Workgroups of a compute unit at once.
    pub per_cu: u32,
}

impl Spread {
    fn total(&self) -> u64 {
        self.grid.iter().map(|&g| u64::from(g)).product()
    }
}

/// What a workgroup touches: lines that it loads and stores, each with how many lines of rounds that are left out it stands for, and
/// counts. A line stands for others by the round that touches it first: what rounds come back to is there already.
#[derive(Default)]
struct Touched {
    loads: FxHashMap<u64, f64>,
    load_requests: f64,
    load_misses: f64,
    store_requests: f64,
    stores: FxHashMap<u64, f64>,
}

fn touched(chip: &Chip, instrs: &[Instr], waves: &[Trace]) -> Touched {
    let mut out = Touched::default();
    let capacity = (chip.l1_kib * 1024.0 / chip.l1_line) as usize;
    let (mut recent, mut within): (VecDeque<u64>, FxHashSet<u64>) = Default::default();
    let weights: Vec<Vec<f64>> = waves.iter().map(Trace::weights).collect();
    let longest = waves.iter().map(|w| w.steps.len()).max().unwrap_or(0);
    // Waves side by side, as barriers keep them.
    for step in 0..longest {
        for (w, trace) in waves.iter().enumerate() {
            let Some(s) = trace.steps.get(step) else { continue };
            if instrs[s.instr as usize].unit != Unit::Vmem {
                continue;
            }
            let Some(a) = s.access.map(|a| &trace.accesses[a as usize]) else { continue };
            let weight = weights[w][step];
            if a.store {
                out.store_requests += weight * a.lines.len() as f64;
                for &line in &a.lines {
                    out.stores.entry(line).or_insert(weight);
                }
                continue;
            }
            out.load_requests += weight * a.lines.len() as f64;
            for &line in &a.lines {
                out.loads.entry(line).or_insert(weight);
                if within.insert(line) {
                    out.load_misses += weight;
                    recent.push_back(line);
                    if recent.len() > capacity
                        && let Some(old) = recent.pop_front()
                    {
                        within.remove(&old);
                    }
                }
            }
        }
    }
    out
}

/// Lines that a workgroup loads, or stores.
fn lines(instrs: &[Instr], waves: &[Trace], stores: bool) -> FxHashSet<u64> {
    let access = |w: &'_ Trace, s: &Step| {
        let a = s.access.filter(|_| instrs[s.instr as usize].unit == Unit::Vmem)? as usize;
        (w.accesses[a].store == stores).then_some(a)
    };
    let all = waves.iter().flat_map(|w| w.steps.iter().filter_map(move |s| Some(&w.accesses[access(w, s)?])));
    all.flat_map(|a| a.lines.iter().copied()).collect()
}

/// How far along an axis workgroups are sampled, beside the first one: what is shared with the farthest is shared by all, the rest by
/// two, four or eight of them.
pub(crate) const BESIDE: [u32; 4] = [1, 2, 4, 16];

/// Shares of a workgroup's lines.
#[derive(Debug, PartialEq)]
struct Shared {
    /// With all along x, along y, and along both.
    x: f64,
    y: f64,
    both: f64,
    /// With so many workgroups next to each other in x, and in y: 2, 4 and 8.
    next: [[f64; NEXT.len()]; 2],
}

/// Workgroups next to each other that share a line.
const NEXT: [u64; 3] = [2, 4, 8];

/// The extents of a grid as far as what workgroups touch goes: the last one along an axis may touch less than the others.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Counts {
    x: f64,
    y: f64,
    z: f64,
}

impl Counts {
    fn of(grid: [u32; 3]) -> Counts {
        let [x, y, z] = grid.map(|g| f64::from(g.max(1)));
        Counts { x, y, z }
    }
}

/// What workgroups touch together: lots of lines, those of a lot by the same workgroups.
struct Lots {
    grid: [u64; 3],
    /// Bytes of a lot, of each kind that has any: what one workgroup touches alone, those along x, along y, along both, and
    /// so many next to each other in x and in y.
    kinds: Vec<(Kind, f64)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Own,
    X,
    Y,
    Both,
    NextX(u64),
    NextY(u64),
}

impl Lots {
    /// Of `shared` lines that together have so many bytes in a workgroup, in a grid.
    fn of(shared: &Shared, bytes: f64, grid: [u32; 3]) -> Lots {
        let next = |axis: usize| NEXT.iter().zip(shared.next[axis]);
        let rest = (1.0 - shared.x - shared.y + shared.both - shared.next.iter().flatten().sum::<f64>()).max(0.0);
        let mut kinds = vec![
            (Kind::Own, rest),
            (Kind::X, (shared.x - shared.both).max(0.0)),
            (Kind::Y, (shared.y - shared.both).max(0.0)),
            (Kind::Both, shared.both),
        ];
        kinds.extend(next(0).map(|(n, share)| (Kind::NextX(*n), share)));
        kinds.extend(next(1).map(|(n, share)| (Kind::NextY(*n), share)));
        kinds.retain(|k| k.1 > 0.0);
        kinds.iter_mut().for_each(|k| k.1 *= bytes);
        Lots { grid: grid.map(|g| u64::from(g).max(1)), kinds }
    }

    /// Bytes of all lots of the grid.
    fn all(&self, c: Counts) -> f64 {
        let count = |kind: Kind| match kind {
            Kind::Own => c.x * c.y * c.z,
            Kind::X => c.y * c.z,
            Kind::Y => c.x * c.z,
            Kind::Both => c.z,
            Kind::NextX(n) => (c.x / n as f64).ceil() * c.y * c.z,
            Kind::NextY(n) => c.x * (c.y / n as f64).ceil() * c.z,
        };
        self.kinds.iter().map(|(kind, bytes)| count(*kind) * bytes).sum()
    }

    /// The number of a workgroup's lot of a kind, among lots of that kind.
    fn number(&self, kind: Kind, id: u64) -> u64 {
        let [gx, gy, _] = self.grid;
        let (x, yz) = (id % gx, id / gx);
        let (y, z) = (yz % gy, yz / gy);
        match kind {
            Kind::Own => id,
            Kind::X => yz,
            Kind::Y => z * gx + x,
            Kind::Both => z,
            Kind::NextX(n) => yz * gx.div_ceil(n) + x / n,
            Kind::NextY(n) => (z * gy.div_ceil(n) + y / n) * gx + x,
        }
    }
}

impl Shared {
    /// By the lines of the first workgroup, each with its weight, and which of them workgroups along x and y touch too, the next one
    /// first and the farthest last.
    fn of(lines: &FxHashMap<u64, f64>, along: &[Vec<FxHashSet<u64>>; 2]) -> Shared {
        let mut out = Shared { x: 0.0, y: 0.0, both: 0.0, next: Default::default() };
        let weight: f64 = lines.values().sum::<f64>().max(1e-9);
        for (line, w) in lines {
            let w = w / weight;
            // How many in a row have it, and whether these are all that there are.
            let [x, y] = [0, 1].map(|a| along[a].iter().take_while(|others| others.contains(line)).count());
            let [all_x, all_y] = [(x, 0), (y, 1)].map(|(n, a)| n > 0 && n == along[a].len());
            out.x += if all_x { w } else { 0.0 };
            out.y += if all_y { w } else { 0.0 };
            out.both += if all_x && all_y { w } else { 0.0 };
            match (all_x || all_y, x, y) {
                (true, ..) | (_, 0, 0) => {}
                (_, n @ 1.., _) => out.next[0][n - 1] += w,
                (.., n) => out.next[1][n - 1] += w,
            }
        }
        out
    }
}

/// Bytes that some workgroups bring over: those of lots that nobody had before, and those that are touched again and are gone.
#[derive(Clone, Copy, Default, Debug)]
struct Again {
    /// Of loads, and of stores.
    first: [f64; 2],
    again: [f64; 2],
}

/// Share of a cache that is there for a launch's lines: others have some of it, and sets are not filled evenly.
const FILLED: f64 = 0.8;

/// What workgroups with the given numbers, so many at once, bring into a cache of so many bytes. Those that run at once go through their lots side by
/// side: each lot comes once. Between two of its uses lies what was touched since.
fn again(lots: &[Lots; 2], ids: impl Iterator<Item = u64>, at_once: u64, capacity: f64) -> Again {
    let mut out = Again::default();
    // The window that had a lot last, and the bytes of lots that each window was the last one to have.
    let mut last: [FxHashMap<(usize, u64), usize>; 2] = Default::default();
    let mut bytes: Vec<f64> = Vec::new();
    let mut met: Vec<(usize, (usize, u64), f64)> = Vec::new();
    let mut ids = ids.peekable();
    while ids.peek().is_some() {
        let now = bytes.len();
        met.clear();
        for id in ids.by_ref().take(at_once as usize) {
            for (side, lots) in lots.iter().enumerate() {
                for (n, (kind, size)) in lots.kinds.iter().enumerate() {
                    let lot = (n, lots.number(*kind, id));
                    match last[side].insert(lot, now) {
                        Some(before) if before == now => continue,
                        Some(before) => {
                            let since: f64 = bytes[before..].iter().sum();
                            out.again[side] += size * (1.0 - kept(capacity, since));
                            met.push((before, lot, *size));
                        }
                        None => {
                            out.first[side] += size;
                            met.push((now, lot, *size));
                        }
                    }
                }
            }
        }
        bytes.push(0.0);
        for (before, _, size) in &met {
            if *before < now {
                bytes[*before] -= size;
            }
            bytes[now] += size;
        }
    }
    out
}

/// Where the last workgroups of a grid touch or execute something else than the first one: values of the first one and of those along an axis, the
/// last one last, over that of the first, by their coordinates. Where those beside the first are like it, the last one alone is
/// different; else values go on from one to the next.
pub(crate) fn along(values: &[(u32, f64)]) -> f64 {
    let (Some(&(_, first)), Some(&(last, end))) = (values.first(), values.last()) else { return 1.0 };
    if first <= 0.0 || last == 0 {
        return 1.0;
    }
    let sum = match ends_apart(values) {
        true => f64::from(last) * first + end,
        false => {
            let between = values.windows(2).map(|w| {
                let n = f64::from(w[1].0 - w[0].0);
                n * (w[0].1 + w[1].1) / 2.0 - w[0].1 / 2.0 + w[1].1 / 2.0
            });
            first + between.sum::<f64>()
        }
    };
    sum / first / f64::from(last + 1)
}

/// Workgroups are like the first one, but perhaps for the last one.
fn ends_apart(values: &[(u32, f64)]) -> bool {
    let (Some(first), [beside @ .., _]) = (values.first(), values) else { return false };
    values.len() > 1 && beside.iter().all(|v| (v.1 / first.1.max(1e-9) - 1.0).abs() < ALIKE)
}

/// Workgroups differ that differ by more than this share.
pub(crate) const ALIKE: f64 = 0.02;

/// The one next to the first workgroup and the last one along an axis share the same lines with it, and execute and ask for as much: those between
/// do too.
pub(crate) fn settled(instrs: &[Instr], groups: &[Group], axis: usize) -> bool {
    let all = on_axis(groups, axis);
    let [first, next, .., last] = all[..] else { return true };
    let alike = |of: &dyn Fn(&Group) -> f64| (of(last) / of(first).max(1e-9) - 1.0).abs() < ALIKE;
    let shared = |stores: bool| {
        let own = lines(instrs, &first.waves, stores);
        let with = |g: &Group| {
            let theirs = lines(instrs, &g.waves, stores);
            own.iter().filter(|l| theirs.contains(l)).copied().collect::<FxHashSet<u64>>()
        };
        with(next) == with(last)
    };
    alike(&|g| g.waves.iter().map(Trace::executed).sum())
        && alike(&|g| requested(instrs, &g.waves))
        && [false, true].into_iter().all(shared)
}

/// The workgroups along an axis, the first one first.
pub(crate) fn on_axis(groups: &[Group], axis: usize) -> Vec<&Group> {
    let Some(first) = groups.first() else { return Vec::new() };
    let mut out: Vec<&Group> =
        groups.iter().filter(|g| (0..3).all(|i| i == axis || g.workgroup[i] == first.workgroup[i])).collect();
    out.sort_by_key(|g| g.workgroup[axis]);
    out
}

/// Workgroups of a die that are looked at one by one, and times that a die is filled with them; more of them are taken to go on like these.
const LOOKED_AT: u64 = 4096;
const FILLS: u64 = 16;

/// The traffic of a launch, from recorded workgroups: the first one, and those beside it in x and y (`BESIDE`) and the last ones along these
/// where there are any.
pub fn traffic(chip: &Chip, instrs: &[Instr], groups: &[Group], spread: Spread) -> Traffic {
    let Some(first) = groups.first() else { return Traffic::default() };
    let base = touched(chip, instrs, &first.waves);
    let line = chip.l1_line;
    let axes = [0, 1].map(|axis| on_axis(groups, axis));
    let total = spread.total();
    let mut counts = [Counts::of(spread.grid); 2];
    // Requests of all workgroups over those of as many like the first.
    let mut requests = 1.0;
    let mut sides: [(FxHashMap<u64, f64>, [Vec<FxHashSet<u64>>; 2]); 2] = Default::default();
    sides[0].0 = base.loads;
    sides[1].0 = base.stores;
    for (axis, all) in axes.iter().enumerate() {
        let end = spread.grid[axis].saturating_sub(1);
        let asked: Vec<(u32, f64)> = all.iter().map(|g| (g.workgroup[axis], requested(instrs, &g.waves))).collect();
        requests *= along(&asked);
        for (side, (own, found)) in sides.iter_mut().enumerate() {
            let touched: Vec<(u32, FxHashSet<u64>)> =
                all[1..].iter().map(|g| (g.workgroup[axis], lines(instrs, &g.waves, side == 1))).collect();
            // What the last one has of its own, beside what the first one has that it does not share along the axis.
            if let (true, [beside @ .., last]) = (ends_apart(&asked), &touched[..]) {
                let among = if beside.is_empty() { std::slice::from_ref(last) } else { beside };
                let mine = own.keys().filter(|l| !among.iter().all(|t| t.1.contains(l))).count() as f64;
                let theirs = last.1.iter().filter(|l| !own.contains_key(l)).count() as f64;
                let less = if mine > 0.0 { 1.0 - (theirs / mine).min(1.0) } else { 0.0 };
                *(if axis == 0 { &mut counts[side].x } else { &mut counts[side].y }) -= less;
            }
            let beside = touched.into_iter().filter(|t| t.0 != end || BESIDE.contains(&end));
            found[axis] = beside.map(|t| t.1).collect();
        }
    }
    let lots = sides.map(|(own, along)| {
        let weight = own.values().sum::<f64>();
        Lots::of(&Shared::of(&own, &along), weight * line, spread.grid)
    });
    let dies = (chip.dies as u64).max(1);
    let at_once = ((chip.cus as u64).max(1) * u64::from(spread.per_cu.max(1))).min(total);
    let [loads, stores] = [0, 1].map(|side| lots[side].all(counts[side]));
    let footprint = loads + stores;
    let (mall, l2) = (chip.mall_mib * 1048576.0, chip.l2_mib * 1048576.0);
    // What workgroups of `dies`, each the n-th, bring into a cache: first and again, loads and stores, of all workgroups.
    let brought = |n: u64, at_once: u64, capacity: f64| {
        let most = total.div_ceil(n);
        let looked = most.min(LOOKED_AT).min(FILLS * at_once).max(1);
        let found = again(&lots, (0..looked).map(|i| (i * n).min(total - 1)), at_once, capacity);
        let more = total as f64 / looked as f64;
        [0, 1].map(|side| {
            let all = [loads, stores][side];
            let first = (found.first[side] * more).clamp(all, all * n as f64);
            first + found.again[side] * more
        })
    };
    let [fabric_loads, fabric_stores] = brought(dies, at_once.div_ceil(dies), l2 * FILLED);
    let from_memory = match () {
        () if mall <= 0.0 => fabric_loads,
        () if footprint <= mall => loads,
        () => brought(1, at_once, mall)[0].min(fabric_loads),
    };
    let stay = if chip.mall_writes > 0.0 { chip.kept(footprint) } else { 0.0 };
    Traffic {
        l1: (base.load_requests + base.store_requests) * requests * total as f64 * line,
        l2: (base.load_misses + base.store_requests) * requests * total as f64 * line,
        fabric: fabric_loads + fabric_stores,
        dram: from_memory + fabric_stores * (1.0 - stay),
        footprint,
    }
}

/// Lines that a workgroup asks for.
fn requested(instrs: &[Instr], waves: &[Trace]) -> f64 {
    let of = |w: &Trace| {
        let weights = w.weights();
        let asked = w.steps.iter().zip(weights).filter(|(s, _)| instrs[s.instr as usize].unit == Unit::Vmem);
        asked.filter_map(|(s, weight)| Some(weight * w.accesses[s.access? as usize].lines.len() as f64)).sum::<f64>()
    };
    waves.iter().map(of).sum()
}

/// Says for each access of recorded waves where it is served: what the wave's workgroup has touched before comes from the
/// first level, the rest from the smallest cache that holds what the launch touches, scalar loads from memory at first.
pub fn place(chip: &Chip, instrs: &[Instr], waves: &mut [Trace], footprint: f64, first_round: bool) {
    let (mall, l2) = (chip.mall_mib * 1048576.0, chip.l2_mib * 1048576.0);
    let behind = match () {
        () if footprint <= l2 => Level::L2,
        () if footprint <= mall => Level::Mall,
        () => Level::Dram,
    };
    let capacity = (chip.l1_kib * 1024.0 / chip.l1_line) as usize;
    let (mut recent, mut within): (VecDeque<u64>, FxHashSet<u64>) = Default::default();
    let mut scalar: FxHashSet<u64> = FxHashSet::default();
    let longest = waves.iter().map(|w| w.steps.len()).max().unwrap_or(0);
    for step in 0..longest {
        for trace in waves.iter_mut() {
            let Some(s) = trace.steps.get(step) else { continue };
            let Some(a) = s.access else { continue };
            let a = &mut trace.accesses[a as usize];
            match instrs[s.instr as usize].unit {
                Unit::Smem => {
                    let new = a.lines.iter().any(|l| scalar.insert(*l));
                    a.level = if new && first_round { Level::Cold } else { Level::L1 };
                }
                Unit::Vmem => {
                    let mut missing = false;
                    for &line in &a.lines {
                        if within.insert(line) {
                            missing = true;
                            recent.push_back(line);
                            if recent.len() > capacity
                                && let Some(old) = recent.pop_front()
                            {
                                within.remove(&old);
                            }
                        }
                    }
                    a.level = if missing { behind } else { Level::L1 };
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 64 workgroups in a row: of four lines of the first one all have the first, it and the next one the second, four of them the
    /// third, and nobody else the last.
    #[test]
    fn lines_on_an_edge_are_not_shared_by_all() {
        let own: FxHashMap<u64, f64> = (0..4).map(|l| (l, 1.0)).collect();
        let along_x = [vec![0, 1, 2], vec![0, 2], vec![0], vec![0]].map(|l| l.into_iter().collect()).to_vec();
        let shared = Shared::of(&own, &[along_x, Vec::new()]);
        assert_eq!(shared, Shared { x: 0.25, y: 0.0, both: 0.0, next: [[0.25, 0.25, 0.0], [0.0; 3]] });
        let grid = [64, 1, 1];
        let lots = [Lots::of(&shared, 4.0, grid), Lots::of(&shared, 0.0, grid)];
        // 1 line, 32 and 16 that some share, 64 of their own.
        assert_eq!(lots[0].all(Counts::of(grid)), 1.0 + 32.0 + 16.0 + 64.0);
        let all = again(&lots, 0..64, 64, 1e9);
        assert_eq!((all.first[0], all.again[0]), (1.0 + 32.0 + 16.0 + 64.0, 0.0));
        // Workgroups of one of eight dies: no two are neighbours.
        assert_eq!(again(&lots, (0..8).map(|i| 8 * i), 8, 1e9).first[0], 1.0 + 8.0 + 8.0 + 8.0);
    }

    /// Eight rows of eight workgroups, a row at once: rows of A are its own, columns of B, a byte each, are read by every row.
    #[test]
    fn a_cache_has_what_was_touched_a_row_ago_if_it_is_large_enough() {
        let shared = Shared { x: 0.5, y: 0.5, both: 0.0, next: Default::default() };
        let grid = [8, 8, 1];
        let lots = [Lots::of(&shared, 2.0, grid), Lots::of(&shared, 0.0, grid)];
        let rereads = |capacity: f64| again(&lots, 0..64, 8, capacity).again[0];
        assert_eq!(again(&lots, 0..64, 8, 9.0).first[0], 8.0 + 8.0);
        // Between two rows lie a row of A and all columns of B.
        assert_eq!(rereads(9.0), 0.0);
        assert!(rereads(8.0) > 0.0 && rereads(1.0) > 55.0 && rereads(1.0) <= 56.0);
    }

    #[test]
    fn the_last_one_may_be_nearly_empty() {
        let beside = |end: f64| along(&[(0, 10.0), (1, 10.0), (2, 10.0), (9, end)]);
        assert_eq!(beside(10.0), 1.0);
        assert_eq!(beside(0.0), 0.9);
        // 1, 2, ... 10.
        let rising = along(&[(0, 1.0), (1, 2.0), (2, 3.0), (9, 10.0)]);
        assert!((rising - 5.5).abs() < 1e-9, "{rising}");
    }
}
