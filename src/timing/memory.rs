//! Layer 3: traffic between the levels of memory.
//!
//! Workgroups are sampled: the first one, others beside it in x, y and z, and the last ones along these. What the first shares with one
//! far along an axis is shared along all of it: the rows of A of a matrix product along x, the columns of B along y. What it shares with
//! the next ones alone are lines that hold something of each of them. The last ones tell whether the grid ends within a
//! workgroup, which then touches less.
//!
//! From that follows which lots of lines (`lots`) the workgroups touch that are resident on a die at once, in the order in which they are
//! dispatched (round-robin over dies), and which of them a cache still has.
//! Within a workgroup the first level is a list of recently used lines of its size, and there is another one for scalar loads of data. L2 gathers what workgroups store: behind
//! it each line counts once as long as it is there.
//!
//! What is stored goes on to memory, but for chips whose memory-side cache takes what is written: there as much stays as that cache keeps of
//! all that the launch touches. The launch's own loads come from memory once: nobody says what was there before.

use crate::chip::Chip;
use crate::instr::{Instr, Unit};
use crate::lots::{Beside, Lots, Operands, again};
use crate::record::{Access, Group, Level, Trace};
use crate::scattered::Scattered;
use crate::waiting;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;
use std::ops::Range;

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

/// KiB of the cache for scalar loads, which a few compute units share (AMD's ROCm documentation, GPU specifications: 16 on every one).
const SCALAR_KIB: f64 = 16.0;

/// Lines that a cache of the first level has: those that came last.
struct Recent {
    capacity: usize,
    order: VecDeque<u64>,
    lines: FxHashSet<u64>,
}

impl Recent {
    /// The caches for vector memory and for scalar loads.
    fn both(chip: &Chip) -> [Recent; 2] {
        [chip.l1_kib, SCALAR_KIB].map(|kib| Recent {
            capacity: (kib * 1024.0 / chip.l1_line) as usize,
            order: VecDeque::new(),
            lines: FxHashSet::default(),
        })
    }

    /// A line is asked for, and is there from here on. True where it was not.
    fn brings(&mut self, line: u64) -> bool {
        let new = self.lines.insert(line);
        if new {
            self.order.push_back(line);
            if self.order.len() > self.capacity
                && let Some(old) = self.order.pop_front()
            {
                self.lines.remove(&old);
            }
        }
        new
    }
}

fn touched(chip: &Chip, instrs: &[Instr], waves: &[Trace]) -> Touched {
    let mut out = Touched::default();
    let mut caches = Recent::both(chip);
    let weights: Vec<Vec<f64>> = waves.iter().map(|w| w.weights().collect()).collect();
    let longest = waves.iter().map(|w| w.steps.len()).max().unwrap_or(0);
    // Waves side by side, as barriers keep them.
    for step in 0..longest {
        for (w, trace) in waves.iter().enumerate() {
            let Some((s, a)) = trace.steps.get(step).and_then(|s| Some((s, s.access?))) else { continue };
            let (a, instr) = (&trace.accesses[a as usize], &instrs[s.instr as usize]);
            if !instr.moves_data {
                continue;
            }
            let cache = &mut caches[usize::from(instr.unit == Unit::Smem)];
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
                if cache.brings(line) {
                    out.load_misses += weight;
                }
            }
        }
    }
    out
}

/// How far along x and y workgroups are sampled, beside the first one: what is shared with the farthest is shared by all, the rest by
/// two, four or eight of them.
pub(crate) const BESIDE: [u32; 4] = [1, 2, 4, 16];

/// How far before the last workgroup along x and y others are sampled where workgroups differ: whether the last one alone does, or those of the
/// last tiles, they tell.
pub(crate) const BEFORE_LAST: [u32; 2] = [1, 16];

/// The same along each axis. Few launches have workgroups in z.
const SAMPLED: [&[u32]; 3] = [&BESIDE, &BESIDE, &[1]];

/// Bytes.
pub(crate) const MIB: f64 = 1048576.0;

/// Share of a cache that is there for a launch's lines: others have some of it, and sets are not filled evenly.
pub(crate) const FILLED: f64 = 0.8;

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

/// The one next to the first workgroup, others that were recorded and the last one along an axis share the same lines with it, and execute and ask for as much: those between
/// do too.
pub(crate) fn settled(groups: &[Group], axis: usize) -> bool {
    let all = on_axis(groups, axis);
    let [first, next, between @ .., last] = &all[..] else { return true };
    let alike = |of: &dyn Fn(&Group) -> f64| (of(last) / of(first).max(1e-9) - 1.0).abs() < ALIKE;
    // Of the first one's lines the same ones are shared with each.
    let shared = |side: usize| {
        let with = |g: &Group, line: &u64| g.lines[side].contains(line);
        let all = |line: &u64| between.iter().chain([last]).all(|g| with(g, line) == with(next, line));
        first.lines[side].iter().all(all)
    };
    alike(&|g| g.executed) && alike(&|g| g.requested) && [0, 1].into_iter().all(shared)
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

/// Bytes that a launch touches between two addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Part {
    /// Bytes.
    pub bytes: f64,
    /// From how many bytes behind the operand's beginning on.
    pub from: f64,
    /// Over how many they are spread.
    pub over: f64,
}

/// What a launch touches of one of its operands, the memory that begins where an argument says.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Operand {
    /// What it loads.
    pub loads: Part,
    /// What it stores.
    pub stores: Part,
}

/// Memory as a launch uses it.
#[derive(Default)]
pub struct Moved {
    /// Bytes between its levels.
    pub traffic: Traffic,
    /// What it touches of each operand.
    pub operands: Vec<Operand>,
    /// Of what a workgroup of the second round loads of each operand, the share that one of the first round has loaded before it, on the same die.
    pub before: Vec<f64>,
}

/// How a launch uses memory, from recorded workgroups: the first one, and those beside it in x and y (`BESIDE`), the next one in z, and the last ones along these
/// where there are any. Operands begin and end at the given addresses: what rounds that were left out stand for may lie behind their ends, but no launch
/// touches more of an operand than there is.
pub fn traffic(chip: &Chip, instrs: &[Instr], groups: &[Group], spread: Spread, bounds: &[Range<u64>]) -> Moved {
    let Some(first) = groups.first() else { return Default::default() };
    let base = touched(chip, instrs, &first.waves);
    let line = chip.l1_line;
    let total = spread.total();
    let mut counts = [spread.grid.map(|n| f64::from(n.max(1))); 2];
    // Requests of all workgroups over those of as many like the first, and lines that they load and store.
    let mut requests = 1.0;
    let mut more: [FxHashMap<usize, f64>; 2] = Default::default();
    let starts: Vec<u64> = bounds.iter().map(|b| b.start).collect();
    let operands = Operands::new(&starts, line);
    let mut sides: [(FxHashMap<u64, f64>, [Vec<Beside>; 3]); 2] = Default::default();
    sides[0].0 = base.loads;
    sides[1].0 = base.stores;
    for axis in [0, 1, 2] {
        let all = on_axis(groups, axis);
        let end = spread.grid[axis].saturating_sub(1);
        let asked: Vec<(u32, f64)> = all.iter().map(|g| (g.workgroup[axis], g.requested)).collect();
        // Along z the last one is like the others.
        let sampled = SAMPLED[axis];
        let may_end = axis < 2;
        let is_near = |at: u32| at == end || BEFORE_LAST.iter().any(|far| at + far == end);
        if may_end {
            requests *= along(&asked);
        }
        for (side, (own, found)) in sides.iter_mut().enumerate() {
            let touched: Vec<(u32, &FxHashSet<u64>)> =
                all[1..].iter().map(|g| (g.workgroup[axis], &g.lines[side])).collect();
            // What the last one has of its own, beside what the first one has that it does not share along the axis.
            if let (true, true, [beside @ .., last]) = (may_end, ends_apart(&asked), &touched[..]) {
                let among = if beside.is_empty() { std::slice::from_ref(last) } else { beside };
                let mine = own.keys().filter(|l| !among.iter().all(|t| t.1.contains(l))).count() as f64;
                let theirs = last.1.iter().filter(|l| !own.contains_key(l)).count() as f64;
                let less = if mine > 0.0 { 1.0 - (theirs / mine).min(1.0) } else { 0.0 };
                counts[side][axis] -= less;
            }
            // The first one may be at an edge, where it touches less of an operand than others.
            if may_end && touched.iter().any(|t| t.1.len() > own.len()) {
                let counts = operands.counts(own.keys());
                let others: Vec<_> = touched.iter().map(|t| (t.0, operands.counts(t.1.iter()))).collect();
                for (operand, first) in counts {
                    let others = others.iter().map(|(at, c)| (*at, c.get(&operand).copied().unwrap_or(0.0)));
                    let counts: Vec<(u32, f64)> = [(0, first)].into_iter().chain(others).collect();
                    if counts.iter().all(|c| c.1 >= first) {
                        *more[side].entry(operand).or_insert(1.0) *= along(&counts);
                    }
                }
            }
            let shares = |at: u32| !(may_end && is_near(at)) || sampled.contains(&at);
            found[axis] = touched.into_iter().map(|(at, lines)| Beside { at, shares: shares(at), lines }).collect();
        }
    }
    let own: f64 = sides.iter().flat_map(|s| s.0.values()).sum::<f64>() * line;
    let scattered = Scattered::take(instrs, groups, &mut sides[0].0, &operands, line, spread.grid);
    // What is read by chance has its share of a cache.
    let share = scattered.own() / own.max(1.0);
    let mut lots = sides.map(|(own, beside)| Lots::of(&own, &beside, &operands, line, spread.grid));
    for ((lots, counts), more) in lots.iter_mut().zip(counts).zip(more) {
        more.iter().for_each(|(operand, times)| lots.scale(*operand, *times));
        for (n, bounds) in bounds.iter().enumerate() {
            lots.bound(n, counts, lines_of(bounds, line) * line);
        }
    }
    let dies = (chip.dies as u64).max(1);
    let at_once = ((chip.cus as u64).max(1) * u64::from(spread.per_cu.max(1))).min(total);
    let [regular, stores] = [0, 1].map(|side| lots[side].all(counts[side], None));
    let loads = regular + scattered.all(None);
    let footprint = loads + stores;
    let (mall, l2) = (chip.mall_mib * MIB, chip.l2_mib * MIB);
    // What workgroups of `dies`, each the n-th, bring into a cache: first and again, loads and stores, of all workgroups.
    let brought = |n: u64, at_once: u64, capacity: f64| {
        let most = total.div_ceil(n);
        let looked = most.min(LOOKED_AT).min(FILLS * at_once).max(1);
        let found = again(&lots, (0..looked).map(|i| (i * n).min(total - 1)), at_once, capacity);
        let more = total as f64 / looked as f64;
        [0, 1].map(|side| {
            let all = [regular, stores][side];
            let first = (found.first[side] * more).clamp(all, all * n as f64);
            let by_chance = if side == 0 { scattered.brought(n as f64, at_once as f64, capacity * share) } else { 0.0 };
            first + found.again[side] * more + by_chance
        })
    };
    let [fabric_loads, fabric_stores] = brought(dies, at_once.div_ceil(dies), l2 * FILLED);
    let from_memory = match () {
        () if mall <= 0.0 => fabric_loads,
        () if footprint <= mall => loads,
        () => brought(1, at_once, mall)[0].min(fabric_loads),
    };
    let stay = if chip.mall_writes > 0.0 { chip.kept(footprint) } else { 0.0 };
    let traffic = Traffic {
        l1: (base.load_requests + base.store_requests) * requests * total as f64 * line,
        l2: (base.load_misses + base.store_requests) * requests * total as f64 * line,
        fabric: fabric_loads + fabric_stores,
        dram: from_memory + fabric_stores * (1.0 - stay),
        footprint,
    };
    let of = |side: usize, n: usize| {
        let bytes = lots[side].all(counts[side], Some(n)) + if side == 0 { scattered.all(Some(n)) } else { 0.0 };
        let by_chance = scattered.reach(n, line).filter(|_| side == 0);
        let (first, last) =
            lots[side].reach(n).into_iter().chain(by_chance).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))?;
        let from = (first as f64 * line - starts[n] as f64).max(0.0);
        Some(Part { bytes, from, over: ((last - first + 1) as f64 * line).max(bytes) })
    };
    let part = |side: usize, n: usize| of(side, n).unwrap_or_default();
    Moved {
        traffic,
        operands: (0..starts.len()).map(|n| Operand { loads: part(0, n), stores: part(1, n) }).collect(),
        before: lots[0].before(starts.len(), at_once.div_ceil(dies), dies, total),
    }
}

/// Lines that an operand lies in.
fn lines_of(bounds: &Range<u64>, line: f64) -> f64 {
    let line = (line as u64).max(1);
    (bounds.end.div_ceil(line).saturating_sub(bounds.start / line)) as f64
}

/// Where the loads of a launch find what nobody of it has loaded before: by operand, from its first workgroups and from later ones.
pub struct Served<'s> {
    /// The level for each operand; [`Level::Dram`] for others.
    pub levels: &'s [Level],
    /// Where each operand begins.
    pub starts: &'s [u64],
    /// Different bytes that the launch touches: what is loaded again is in the smallest cache that holds them.
    pub footprint: f64,
}

/// Recorded waves as they are simulated: each access knows where it is served instead of its lines. What the wave's workgroup has touched lately by the first level, what it has touched
/// before that by the smallest cache that holds what the launch touches, and the rest where its operand is. So are scalar loads of data, which have
/// a first level of their own; other scalar loads come from memory at first (`first_round`).
pub fn place(chip: &Chip, instrs: &[Instr], waves: &[Trace], served: &Served, first_round: bool) -> Vec<Trace> {
    let again = smallest(chip, served.footprint);
    let operands = Operands::new(served.starts, chip.l1_line);
    let level = |line: u64| served.levels.get(operands.of(line)).copied().unwrap_or(Level::Dram);
    let mut caches = Recent::both(chip);
    let (mut told, mut seen): (FxHashSet<u64>, FxHashSet<u64>) = Default::default();
    let longest = waves.iter().map(|w| w.steps.len()).max().unwrap_or(0);
    let placed = |a: &Access| Access { lines: Vec::new(), ..*a };
    let mut out: Vec<Trace> = waves
        .iter()
        .map(|w| Trace {
            steps: w.steps.clone(),
            accesses: w.accesses.iter().map(placed).collect(),
            skips: w.skips.clone(),
            fetches: w.fetches.clone(),
            unseen: w.unseen,
            unseen_work: w.unseen_work,
        })
        .collect();
    for step in 0..longest {
        for (trace, placed) in waves.iter().zip(&mut out) {
            let Some(s) = trace.steps.get(step) else { continue };
            let Some(a) = s.access else { continue };
            let (lines, level_of) = (&trace.accesses[a as usize].lines, &mut placed.accesses[a as usize].level);
            let instr = &instrs[s.instr as usize];
            if trace.accesses[a as usize].polls > 0 {
                *level_of = waiting::shared_level(chip);
            } else if instr.moves_data {
                let cache = &mut caches[usize::from(instr.unit == Unit::Smem)];
                *level_of = Level::L1;
                for &line in lines {
                    if cache.brings(line) {
                        let first = seen.insert(line);
                        *level_of = (*level_of).max(if first { level(line) } else { level(line).min(again) });
                    }
                }
            } else if instr.unit == Unit::Smem {
                let new = lines.iter().any(|l| told.insert(*l));
                *level_of = if new && first_round { Level::Cold } else { Level::L1 };
            }
        }
    }
    out
}

/// The smallest cache behind the first level that holds so many bytes.
pub fn smallest(chip: &Chip, bytes: f64) -> Level {
    match () {
        () if bytes <= chip.l2_mib * MIB => Level::L2,
        () if bytes <= chip.mall_mib * MIB => Level::Mall,
        () => Level::Dram,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
