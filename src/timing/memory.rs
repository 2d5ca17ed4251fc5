//! Layer 3: traffic between the levels of memory.
//!
//! Workgroups are sampled: the first one, and its neighbours in x, y and z. What the first shares with a neighbour is shared
//! along that axis: the rows of A of a matrix product along x, the columns of B along y. From that follows how many
//! different lines the workgroups hold that are resident on a die at once, in the order in which they are dispatched
//! (round-robin over dies); these come over the fabric once, the other requests hit L2. What all workgroups touch together
//! stays in the memory-side cache, or in L2, when it fits there. Within a workgroup the first level is a list of recently
//! used lines of its size. L2 gathers what a workgroup stores: behind it each line counts once.

use crate::chip::Chip;
use crate::instr::{Instr, Unit};
use crate::record::{Group, Level, Trace};
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

/// Shares of a workgroup's lines: with its neighbour in x, in y, and with both.
struct Shared {
    x: f64,
    y: f64,
    both: f64,
}

impl Shared {
    /// Different lines of some workgroups, in units of what one touches.
    fn different(&self, groups: f64, columns: f64, rows: f64, planes: f64) -> f64 {
        let own = (1.0 - self.x - self.y + self.both).max(0.0);
        own * groups
            + (self.x - self.both).max(0.0) * rows
            + (self.y - self.both).max(0.0) * columns
            + self.both * planes
    }
}

/// Different (x, z), (y, z) and z among the workgroups of the given numbers.
fn extents(grid: [u32; 3], ids: impl Iterator<Item = u64>) -> (f64, f64, f64, f64) {
    let (mut xs, mut ys, mut zs): (FxHashSet<u64>, FxHashSet<u64>, FxHashSet<u64>) = Default::default();
    let mut n = 0.0;
    let [gx, gy, _] = grid.map(|g| u64::from(g).max(1));
    for id in ids {
        let (x, y, z) = (id % gx, id / gx % gy, id / gx / gy);
        xs.insert(z << 32 | x);
        ys.insert(z << 32 | y);
        zs.insert(z);
        n += 1.0;
    }
    (n, xs.len() as f64, ys.len() as f64, zs.len() as f64)
}

/// Workgroups of a die that are looked at one by one; more of them are taken to go on like these.
const LOOKED_AT: u64 = 4096;

/// The traffic of a launch, from recorded workgroups: the first one, and those beside it in x and y where there are any.
pub fn traffic(chip: &Chip, instrs: &[Instr], groups: &[Group], spread: Spread) -> Traffic {
    let Some(first) = groups.first() else { return Traffic::default() };
    let base = touched(chip, instrs, &first.waves);
    let weight: f64 = base.loads.values().sum::<f64>().max(1e-9);
    let beside = |axis: usize| {
        groups.iter().find(|g| {
            (0..3).all(|i| g.workgroup[i] == first.workgroup[i] + u32::from(i == axis))
                && g.workgroup != first.workgroup
        })
    };
    let common = |other: Option<&Group>| -> FxHashSet<u64> {
        let lines = other.map(|g| touched(chip, instrs, &g.waves).loads).unwrap_or_default();
        base.loads.keys().filter(|l| lines.contains_key(l)).copied().collect()
    };
    let (along_x, along_y) = (common(beside(0)), common(beside(1)));
    let of = |set: &mut dyn Iterator<Item = &u64>| set.map(|l| base.loads[l]).sum::<f64>() / weight;
    let shared = Shared {
        x: of(&mut along_x.iter()),
        y: of(&mut along_y.iter()),
        both: of(&mut along_x.intersection(&along_y)),
    };
    let total = spread.total();
    let dies = (chip.dies as u64).max(1);
    let at_once = ((chip.cus as u64).max(1) * u64::from(spread.per_cu.max(1))).min(total);
    let die = (at_once.div_ceil(dies)).min(LOOKED_AT);
    let (n, columns, rows, planes) = extents(spread.grid, (0..die).map(|i| (i * dies).min(total - 1)));
    let per_die = shared.different(n, columns, rows, planes) / n.max(1.0);
    let (gx, gy, gz) = (f64::from(spread.grid[0]), f64::from(spread.grid[1]), f64::from(spread.grid[2]));
    let all = shared.different(total as f64, gx * gz, gy * gz, gz);
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
