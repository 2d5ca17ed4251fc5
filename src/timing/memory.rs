//! Layer 3: traffic between the levels of memory.
//!
//! Workgroups are sampled: the first one, and others beside it in x, y and z. What the first shares with one far along an axis
//! is shared along all of it: the rows of A of a matrix product along x, the columns of B along y. What it shares with the
//! next ones alone are lines that hold something of each of them. From that follows how many different lines the workgroups hold that are resident on a die at once, in the order in which they are dispatched
//! (round-robin over dies); these come over the fabric once, the other requests hit L2. What all workgroups touch together
//! stays in the memory-side cache, or in L2, when it fits there. Within a workgroup the first level is a list of recently
//! used lines of its size. L2 gathers what a workgroup stores: behind it each line counts once.

use crate::chip::Chip;
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

/// Lines that a workgroup loads.
fn loaded(instrs: &[Instr], waves: &[Trace]) -> FxHashSet<u64> {
    let access = |w: &'_ Trace, s: &Step| {
        let a = s.access.filter(|_| instrs[s.instr as usize].unit == Unit::Vmem)? as usize;
        (!w.accesses[a].store).then_some(a)
    };
    let loads = waves.iter().flat_map(|w| w.steps.iter().filter_map(move |s| Some(&w.accesses[access(w, s)?])));
    loads.flat_map(|a| a.lines.iter().copied()).collect()
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

/// Some workgroups: how many there are, how many different (x, z), (y, z) and z they have, and how many different lots of
/// neighbours in x and in y they are in.
struct Extents {
    groups: f64,
    columns: f64,
    rows: f64,
    planes: f64,
    next: [[f64; NEXT.len()]; 2],
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

    /// Different lines of some workgroups, in units of what one touches.
    fn different(&self, e: &Extents) -> f64 {
        let next = || self.next.iter().flatten();
        let own = (1.0 - self.x - self.y + self.both - next().sum::<f64>()).max(0.0);
        own * e.groups
            + (self.x - self.both).max(0.0) * e.rows
            + (self.y - self.both).max(0.0) * e.columns
            + self.both * e.planes
            + next().zip(e.next.iter().flatten()).map(|(share, lots)| share * lots).sum::<f64>()
    }
}

impl Extents {
    /// Of the workgroups of the given numbers.
    fn of(grid: [u32; 3], ids: impl Iterator<Item = u64>) -> Extents {
        let (mut xs, mut ys, mut zs): (FxHashSet<u64>, FxHashSet<u64>, FxHashSet<u64>) = Default::default();
        let mut lots: [[FxHashSet<(u64, u64, u64)>; NEXT.len()]; 2] = Default::default();
        let mut groups = 0.0;
        let [gx, gy, _] = grid.map(|g| u64::from(g).max(1));
        for id in ids {
            let (x, y, z) = (id % gx, id / gx % gy, id / gx / gy);
            xs.insert(z << 32 | x);
            ys.insert(z << 32 | y);
            zs.insert(z);
            for (i, n) in NEXT.iter().enumerate() {
                lots[0][i].insert((x / n, y, z));
                lots[1][i].insert((x, y / n, z));
            }
            groups += 1.0;
        }
        let [columns, rows, planes] = [xs, ys, zs].map(|s| s.len() as f64);
        Extents { groups, columns, rows, planes, next: lots.map(|axis| axis.map(|s| s.len() as f64)) }
    }

    /// Of all workgroups.
    fn all(grid: [u32; 3]) -> Extents {
        let [x, y, z] = grid.map(f64::from);
        let lots = |a: f64, others: f64| NEXT.map(|n| (a / n as f64).ceil() * others);
        Extents { groups: x * y * z, columns: x * z, rows: y * z, planes: z, next: [lots(x, y * z), lots(y, x * z)] }
    }
}

/// Workgroups of a die that are looked at one by one; more of them are taken to go on like these.
const LOOKED_AT: u64 = 4096;

/// The traffic of a launch, from recorded workgroups: the first one, and those beside it in x and y (`BESIDE`) where there are
/// any.
pub fn traffic(chip: &Chip, instrs: &[Instr], groups: &[Group], spread: Spread) -> Traffic {
    let Some(first) = groups.first() else { return Traffic::default() };
    let base = touched(chip, instrs, &first.waves);
    let weight: f64 = base.loads.values().sum::<f64>().max(1e-9);
    let beside = |axis: usize| -> Vec<FxHashSet<u64>> {
        let along = |g: &&Group| {
            let apart = |i: usize| g.workgroup[i] != first.workgroup[i];
            apart(axis) && (0..3).all(|i| i == axis || !apart(i))
        };
        let mut others: Vec<&Group> = groups.iter().filter(along).collect();
        others.sort_by_key(|g| g.workgroup[axis]);
        others.iter().map(|g| loaded(instrs, &g.waves)).collect()
    };
    let shared = Shared::of(&base.loads, &[0, 1].map(beside));
    let total = spread.total();
    let dies = (chip.dies as u64).max(1);
    let at_once = ((chip.cus as u64).max(1) * u64::from(spread.per_cu.max(1))).min(total);
    let die = (at_once.div_ceil(dies)).min(LOOKED_AT);
    let own = Extents::of(spread.grid, (0..die).map(|i| (i * dies).min(total - 1)));
    let per_die = shared.different(&own) / own.groups.max(1.0);
    let all = shared.different(&Extents::all(spread.grid));
    let line = chip.l1_line;
    let stores = base.stores.values().sum::<f64>() * total as f64 * line;
    let footprint = all * weight * line + stores;
    let loads_fabric = per_die * total as f64 * weight * line;
    let loads_fabric = loads_fabric.max(all * weight * line);
    let (mall, l2) = (chip.mall_mib * 1048576.0, chip.l2_mib * 1048576.0);
    let fabric =
        if footprint <= l2 * 0.8 { (all * weight * line * dies as f64).min(loads_fabric) } else { loads_fabric };
    let dram = match () {
        () if mall > 0.0 && footprint > mall => (loads_fabric / dies as f64).max(all * weight * line),
        () if mall > 0.0 || footprint <= l2 * 0.8 => all * weight * line,
        () => loads_fabric,
    };
    Traffic {
        l1: (base.load_requests + base.store_requests) * total as f64 * line,
        l2: (base.load_misses + base.store_requests) * total as f64 * line,
        fabric: fabric + stores,
        dram: dram + stores,
        footprint,
    }
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
        let lines: FxHashMap<u64, f64> = (0..4).map(|l| (l, 1.0)).collect();
        let along_x = [vec![0, 1, 2], vec![0, 2], vec![0], vec![0]].map(|l| l.into_iter().collect()).to_vec();
        let shared = Shared::of(&lines, &[along_x, Vec::new()]);
        assert_eq!(shared, Shared { x: 0.25, y: 0.0, both: 0.0, next: [[0.25, 0.25, 0.0], [0.0; 3]] });
        let grid = [64, 1, 1];
        // 1 line, 32 and 16 that some share, 64 of their own; in units of four lines.
        assert_eq!(shared.different(&Extents::all(grid)), (1.0 + 32.0 + 16.0 + 64.0) / 4.0);
        assert_eq!(shared.different(&Extents::of(grid, 0..64)), (1.0 + 32.0 + 16.0 + 64.0) / 4.0);
        // Workgroups of one of eight dies: no two are neighbours.
        assert_eq!(shared.different(&Extents::of(grid, (0..8).map(|i| 8 * i))), (1.0 + 8.0 + 8.0 + 8.0) / 4.0);
    }
}
