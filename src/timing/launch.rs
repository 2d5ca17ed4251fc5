//! Layer 2: a launch over the compute units, from recorded workgroups to microseconds and the name of what bounds it.
//!
//! Workgroups go round-robin over dies and engines to compute units until these are full; where one ends the next begins.
//! What a compute unit needs for its first workgroups, and for each further round of them, is simulated ([`wave`]); rounds
//! are multiplied. The last, partly filled round is simulated apart: that is the tail. The launch takes the longest of
//! that, of what the dispatcher needs, and of what each level of memory needs for its traffic ([`memory`]).
//!
//! Latency under load: compute units do not ask all at once. N of them that take turns waiting (Z clocks, with the latency of an idle memory)
//! and having lines moved (S clocks each of the whole way) need the longer of Z + S and N*S for a turn, so that a wait grows
//! where the bandwidth is spent, and there its bound stands beside that of the compute units. A queue at each compute unit's fixed share of the
//! bandwidth was tried instead. It takes Z + N*S: a product of f32 of 64x4096x4096 on gfx1201 took 892,000 clocks, on gfx1030 the time
//! grew by 40%; without it 550,000, where the analytical form, which rows of hardware have judged, has 476,000 ([`crate::gemm`] also lets limits
//! that are about as long delay each other).

use crate::chained::{Alone, asked_before};
use crate::chip::Chip;
use crate::folded::folded;
use crate::instr::{Instr, Unit};
use crate::memory::{self, ALIKE, BEFORE_LAST, BESIDE, Moved, Operand, Served, Spread, Traffic, on_axis};
use crate::modelled::{Bound, Detailed, Modelled, Parts};
use crate::record::{Group, Level, Loops, Part, Recorder, Step, Trace};
use crate::sequence::Found;
use crate::stall::Stall;
use crate::waiting::{self, Meetings, Pace};
use crate::wave::{self, Resident};
use barewave_emu::codeobj::{Family, KernelInfo};
use barewave_emu::{EmuDevice, Fault, Kernel, LaunchOptions};
use barewave_isa::{Occupancy, Resources, Target};
use std::ops::Range;
use std::sync::Arc;

/// Why a launch cannot be modelled.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// No constants for the target.
    #[error("the cycle model knows no chip of target {0}")]
    NoChip(String),
    /// The launch faults on the emulated device.
    #[error("the launch cannot be traced: {0}")]
    Fault(Box<Fault>),
    /// Bytes that are no instruction, or one that the tables do not have.
    #[error("the instruction at {0:#x} is not known to the cycle model")]
    Unknown(u64),
    /// A wave executes too much that does not repeat.
    #[error(
        "a wave executes more than {} instructions that are not rounds of one loop: too irregular for the cycle model",
        crate::record::MOST_STEPS
    )]
    TooLong,
    /// Workgroups wait for others that find no place beside them.
    #[error("workgroups wait for others that begin only when some of them end: {at_once} of {workgroups} run at once")]
    NeverMeet {
        /// Workgroups that the device holds at once.
        at_once: usize,
        /// Workgroups of the launch.
        workgroups: usize,
    },
    /// More workgroups wait for each other than can be followed.
    #[error("{0} workgroups wait for each other: more than the cycle model follows")]
    TooMany(u64),
    /// Not even one workgroup fits on a compute unit.
    #[error("no compute unit holds even one workgroup of this kernel: {0:?} are too many")]
    DoesNotFit(barewave_isa::OccupancyLimit),
}

/// Numbers of the workgroups that are recorded first: the first one, and along each axis those next to it and the last ones; of several dies, which
/// take workgroups in turn, also the next one of the first one's.
fn ends(grid: [u32; 3], dies: u32) -> Vec<u64> {
    let mut out = along(grid, [0, 1, 2], &[0, 1, u32::MAX]);
    if dies > 1 {
        out.extend(along(grid, [0], &[dies]));
        out.sort();
        out.dedup();
    }
    out
}

/// Numbers of the workgroups so far from the first one along some axes.
fn along(grid: [u32; 3], axes: impl IntoIterator<Item = usize>, far: &[u32]) -> Vec<u64> {
    let [gx, gy, gz] = grid.map(|g| u64::from(g.max(1)));
    let of = |axis: usize| {
        let (step, n) = [(1, gx), (gx, gy), (gx * gy, gz)][axis];
        far.iter().map(move |d| u64::from(*d).min(n - 1) * step)
    };
    let mut out: Vec<u64> = axes.into_iter().flat_map(of).collect();
    out.sort();
    out.dedup();
    out
}

/// Numbers of the workgroups so far before the last one along an axis.
fn before_last(grid: [u32; 3], axis: usize) -> Vec<u64> {
    let far: Vec<u32> = BEFORE_LAST.iter().filter_map(|far| grid[axis].checked_sub(far + 1)).collect();
    along(grid, [axis], &far)
}

/// Records workgroups: where the one next to the first and the last one along an axis tell different things, those between too.
fn record<'c>(
    mut recorder: Recorder<'c>,
    grid: [u32; 3],
    dies: u32,
    observe: impl Fn(&[u64], &mut Recorder) -> Result<(), Fault>,
) -> Result<Recorder<'c>, ModelError> {
    let run = |recorder: &mut Recorder, which: &[u64]| {
        observe(which, recorder).map_err(|f| ModelError::Fault(Box::new(f)))?;
        recorder.finish();
        Ok::<_, ModelError>(())
    };
    let first = ends(grid, dies);
    run(&mut recorder, &first)?;
    if !recorder.stopped() {
        let open = |axis: &usize| !memory::settled(&recorder.groups, *axis);
        let mut more = along(grid, [0, 1].into_iter().filter(open), &BESIDE);
        if dies > 1 && open(&0) {
            more.extend(along(grid, [0], &[2 * dies, 4 * dies]));
        }
        more.extend([0, 1].into_iter().filter(open).flat_map(|axis| before_last(grid, axis)));
        more.sort();
        more.dedup();
        more.retain(|id| !first.contains(id));
        if !more.is_empty() {
            run(&mut recorder, &more)?;
        }
    }
    Ok(recorder)
}

/// A launch of which workgroups were recorded, before it is said where its operands are.
pub struct Recorded {
    chip: Chip,
    instrs: Arc<[Instr]>,
    addresses: Arc<[u64]>,
    groups: Vec<Group>,
    grid: [u32; 3],
    occupancy: Occupancy,
    /// Compute units that a workgroup is spread over.
    shared_cus: u64,
    /// Where each argument's memory begins and ends, if it is an address.
    bounds: Vec<Range<u64>>,
    starts: Vec<u64>,
    moved: Moved,
    /// Of all workgroups what they wait for; nothing where they do not.
    meetings: Arc<[Meetings]>,
    /// It is a step of several in a launch, and follows others there.
    linked: bool,
    behind: bool,
    approximations: Vec<String>,
}

/// Models a launch whose operands nobody has touched: `args` are the explicit arguments, as for [`EmuDevice::launch`].
pub fn model(
    device: &EmuDevice,
    kernel: &Kernel,
    grid: [u32; 3],
    block: [u32; 3],
    args: &[u8],
    options: &LaunchOptions,
) -> Result<Detailed, ModelError> {
    Ok(recorded(device, kernel, grid, block, args, options, Loops::Shortened)?.modelled(&[]))
}

/// Records what of a launch its model needs: `args` are the explicit arguments, as for [`EmuDevice::launch`]. The workgroups that are traced are
/// executed, and write, but for what only data depends on.
pub fn recorded(
    device: &EmuDevice,
    kernel: &Kernel,
    grid: [u32; 3],
    block: [u32; 3],
    args: &[u8],
    options: &LaunchOptions,
    loops: Loops,
) -> Result<Recorded, ModelError> {
    recorded_part(device, kernel, (grid, None), block, args, options, loops)
}

/// The same of some workgroups of a launch, as if they were all: so many of them along each axis. Where they wait for all of those before them, what comes before them
/// is over when they begin, and instead of a launch's cost there is that of a store's way to where they see it ([`Modelled::behind`]).
pub fn recorded_part(
    device: &EmuDevice,
    kernel: &Kernel,
    (grid, part): ([u32; 3], Option<(Part, u32)>),
    block: [u32; 3],
    args: &[u8],
    options: &LaunchOptions,
    loops: Loops,
) -> Result<Recorded, ModelError> {
    let target = device.target();
    let chip = Chip::of(target).ok_or_else(|| ModelError::NoChip(target.to_string()))?;
    let resources = resources(target, kernel.info(), block.iter().product(), options.dynamic_lds)?;
    let occupancy = target.occupancy(&resources);
    if occupancy.workgroups == 0 {
        return Err(ModelError::DoesNotFit(occupancy.limit));
    }
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b));
    let starts: Vec<u64> = args.chunks(8).map(word).collect();
    // An operand ends where the next one begins, or its memory does.
    let end_of = |start: u64| {
        let memory = device.allocation_of(start).map_or(u64::MAX, |(first, bytes)| first + bytes);
        starts.iter().copied().filter(|s| *s > start).fold(memory, u64::min)
    };
    let bounds: Vec<_> = starts.iter().map(|start| *start..end_of(*start)).collect();
    let operands: Vec<_> = bounds.iter().filter(|b| device.allocation_of(b.start).is_some()).cloned().collect();
    let dies = chip.dies as u32;
    let observe = |which: &[u64], recorder: &mut Recorder| {
        let Some((part, all)) = part else {
            return device.observe(kernel, grid, block, args, options, which, recorder).map(|_| ());
        };
        recorder.part = Some(part);
        let which: Vec<u64> = which.iter().map(|id| part.number(grid, *id)).collect();
        device.observe(kernel, [all, 1, 1], block, args, options, &which, recorder).map(|_| ())
    };
    let mut recorder =
        record(Recorder::new(&chip, resources.wave_size, loops).with_operands(&operands), grid, dies, observe)?;
    let by_data = recorder.depends;
    if by_data {
        // Counters are as they were.
        for (address, bytes) in recorder.changed.iter().rev() {
            // What was read there can be written there.
            device.write(*address, bytes).ok();
        }
        recorder = record(
            Recorder::computing(&chip, resources.wave_size, loops).with_operands(&operands),
            grid,
            dies,
            observe,
        )?;
    }
    if let Some(at) = recorder.unknown {
        return Err(ModelError::Unknown(at));
    }
    if recorder.too_long {
        return Err(ModelError::TooLong);
    }
    // Workgroups of a part wait for those before them, and not for each other.
    let meetings = match recorder.waited_at().filter(|_| part.is_none()) {
        Some(at) => follow(device, args, &recorder, at, grid, observe)?,
        None => Vec::new(),
    };
    let shared_cus = if resources.wgp_mode { 2 } else { 1 };
    if !meetings.is_empty() {
        let at_once = (chip.cus as u64 / shared_cus).max(1) * resident(&chip, grid, occupancy, shared_cus);
        waiting::check(&meetings, at_once as usize)?;
    }
    let Recorder { instrs, addresses, groups, decided, .. } = recorder;
    let (instrs, addresses): (Arc<[Instr]>, Arc<[u64]>) = (instrs.into(), addresses.into());
    let mut approximations = approximations(&groups, decided);
    let left_out = [
        (
            by_data && !meetings.is_empty(),
            "where data decides, what a workgroup waits for is what memory held before the launch",
        ),
        (
            groups.first().is_some_and(|g| counts_by_more_atomics(&instrs, g)),
            "atomic instructions take what stores do: those that meet at one place do not wait for each other",
        ),
        (
            kernel.info().descriptor.scratch_bytes > 0,
            "private memory (scratch) counts as memory that each workgroup has of its own: a card gives it to the next one",
        ),
    ];
    approximations.extend(left_out.into_iter().filter(|l| l.0).map(|l| l.1.to_string()));
    let moved = memory::traffic(&chip, &instrs, &groups, spread(&chip, grid, occupancy, shared_cus), &bounds);
    Ok(Recorded {
        chip,
        instrs,
        addresses,
        groups,
        grid,
        occupancy,
        shared_cus,
        bounds,
        starts,
        moved,
        meetings: meetings.into(),
        linked: part.is_some_and(|(p, _)| !p.beside),
        behind: part.is_some_and(|(p, _)| p.first > 0 && !p.beside),
        approximations,
    })
}

/// Workgroups that are followed at most: a launch whose workgroups wait has as many as run at once, or a chain of them.
const MOST_FOLLOWED: u64 = 1 << 15;

/// Follows all workgroups of a launch, some of which wait somewhere, for what they store there and wait for.
fn follow(
    device: &EmuDevice,
    args: &[u8],
    recorder: &Recorder,
    at: Range<u64>,
    grid: [u32; 3],
    observe: impl Fn(&[u64], &mut Recorder) -> Result<(), Fault>,
) -> Result<Vec<Meetings>, ModelError> {
    let workgroups: u64 = grid.iter().map(|&g| u64::from(g)).product();
    if workgroups > MOST_FOLLOWED {
        return Err(ModelError::TooMany(workgroups));
    }
    // Counters are as they were.
    for (address, bytes) in recorder.changed.iter().rev() {
        device.write(*address, bytes).ok();
    }
    // The operand that they lie in: others wait elsewhere in it.
    let starts = args.chunks(8).map(|bytes| bytes.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b)));
    let (first, bytes) = device.allocation_of(at.start).unwrap_or((at.start, at.end - at.start));
    let (mut start, mut end) = (first, first + bytes);
    for s in starts {
        start = if s <= at.start { start.max(s) } else { start };
        end = if s >= at.end { end.min(s) } else { end };
    }
    let which: Vec<u64> = (0..workgroups).collect();
    let run = |mut all: Recorder| {
        observe(&which, &mut all).map_err(|f| ModelError::Fault(Box::new(f)))?;
        all.finish();
        Ok::<_, ModelError>((all.depends, all.meetings))
    };
    let (depends, meetings) = run(recorder.like(start..end, recorder.leaves_out()))?;
    Ok(if depends { run(recorder.like(start..end, false))?.1 } else { meetings })
}

fn spread(chip: &Chip, grid: [u32; 3], occupancy: Occupancy, shared_cus: u64) -> Spread {
    Spread { grid, per_cu: resident(chip, grid, occupancy, shared_cus).div_ceil(shared_cus) as u32 }
}

/// Workgroups that are on each `shared_cus` compute units at once.
fn resident(chip: &Chip, grid: [u32; 3], occupancy: Occupancy, shared_cus: u64) -> u64 {
    let workgroups: u64 = grid.iter().map(|&g| u64::from(g)).product();
    let cus = (chip.cus as u64 / shared_cus).max(1);
    u64::from(occupancy.workgroups).min(workgroups.div_ceil(cus)).max(1)
}

/// Waves that end with an atomic, by which they are counted.
fn counting(instrs: &[Instr], group: &Group) -> usize {
    let atomic = |s: &Step| instrs[s.instr as usize].atomic && instrs[s.instr as usize].unit == Unit::Vmem;
    let last = |w: &&Trace| w.steps.iter().rev().find(|s| s.access.is_some()).is_some_and(atomic);
    group.waves.iter().filter(last).count().max(1)
}

/// There are more atomic instructions on memory than the few by which a workgroup says that it is done: as many as waves.
fn counts_by_more_atomics(instrs: &[Instr], group: &Group) -> bool {
    let atomic = |i: &Instr| i.atomic && i.unit == Unit::Vmem;
    let of = |w: &Trace| w.steps.iter().filter(|s| atomic(&instrs[s.instr as usize])).count();
    group.waves.iter().map(of).sum::<usize>() >= group.waves.len()
}

/// Where the first of recorded workgroups does not stand for all: the others execute more or less than it, or `decided` loops
/// end when vector instructions say so, which may be data.
fn approximations(groups: &[Group], decided: bool) -> Vec<String> {
    let mut out = Vec::new();
    if decided {
        out.push("a loop ends when vector instructions say so: it has as many rounds as with the data at hand".into());
    }
    let Some((first, others)) = groups.split_first() else { return out };
    let own = first.work.max(1.0);
    let shares = others.iter().map(|g| g.work / own);
    let (least, most) = shares.fold((1.0f64, 1.0f64), |(a, b), s| (a.min(s), b.max(s)));
    if least < 1.0 - ALIKE || most > 1.0 + ALIKE {
        out.push(format!(
            "workgroups count by the clocks of the instructions that they execute; {} beside the first one have {least:.2} to {most:.2} times as many",
            others.len()
        ));
    }
    out
}

/// The clocks of what workgroups execute over those of what the first one does.
struct Worth {
    mean: f64,
    most: f64,
}

fn worth(groups: &[Group]) -> Worth {
    let mut out = Worth { mean: 1.0, most: 1.0 };
    for axis in [0, 1] {
        let values: Vec<(u32, f64)> = on_axis(groups, axis).iter().map(|g| (g.workgroup[axis], g.work)).collect();
        out.mean *= memory::along(&values);
        let first = values.first().map_or(1.0, |v| v.1).max(1.0);
        out.most *= values.iter().map(|v| v.1 / first).fold(1.0, f64::max);
    }
    // What a few instructions decide is not worth another count of rounds.
    let alike = (out.mean - 1.0).abs() < ALIKE && out.most < 1.0 + ALIKE;
    if alike { Worth { mean: 1.0, most: 1.0 } } else { out }
}

/// What a workgroup of a kernel takes of a compute unit.
pub fn resources(
    target: Target,
    kernel: &KernelInfo,
    workgroup_size: u32,
    dynamic_lds: u32,
) -> Result<Resources, ModelError> {
    let d = &kernel.descriptor;
    let family = Family::of_mach(target.info().elf_mach).ok_or_else(|| ModelError::NoChip(target.to_string()))?;
    let total = d.vgprs(family);
    let (vgprs, agprs) = match d.accum_offset(family) {
        Some(a) => (a.min(total), total.saturating_sub(a)),
        None => (total, if target.info().max_agprs > 0 { total } else { 0 }),
    };
    Ok(Resources {
        wave_size: if d.wave32() { 32 } else { 64 },
        workgroup_size,
        vgprs,
        agprs,
        sgprs: d.sgprs(family),
        lds_bytes: d.lds_bytes + dynamic_lds,
        wgp_mode: d.wgp_mode(family),
    })
}

impl Recorded {
    /// The same launch with the first workgroups along each axis alone, as far as what tells that was recorded.
    pub fn part(&self, grid: [u32; 3]) -> Option<Recorded> {
        let within = |g: &&Group| (0..3).all(|d| g.workgroup[d] < grid[d]);
        let groups: Vec<Group> = self.groups.iter().filter(within).cloned().collect();
        let number = |w: [u32; 3]| w.iter().zip(grid).rev().fold(0, |n, (at, of)| n * u64::from(of) + u64::from(*at));
        let known = |id: &u64| groups.iter().any(|g| number(g.workgroup) == *id);
        // Workgroups may wait for others that are no part of it.
        if !self.meetings.is_empty() || !ends(grid, self.chip.dies as u32).iter().all(known) {
            return None;
        }
        let Recorded { ref chip, occupancy, shared_cus, .. } = *self;
        let spread = spread(chip, grid, occupancy, shared_cus);
        let moved = memory::traffic(chip, &self.instrs, &groups, spread, &self.bounds);
        Some(Recorded {
            chip: self.chip.clone(),
            instrs: self.instrs.clone(),
            addresses: self.addresses.clone(),
            groups,
            grid,
            occupancy,
            shared_cus,
            bounds: self.bounds.clone(),
            starts: self.starts.clone(),
            moved,
            meetings: self.meetings.clone(),
            linked: self.linked,
            behind: self.behind,
            approximations: self.approximations.clone(),
        })
    }

    /// Workgroups that the device has at once, on how many compute units; each of these may be several that share workgroups.
    pub(crate) fn room(&self) -> (u64, u64, u64) {
        let cus = (self.chip.cus as u64 / self.shared_cus).max(1);
        (u64::from(self.occupancy.workgroups), cus, self.shared_cus)
    }

    /// Instructions that its traces name.
    pub(crate) fn instrs(&self) -> &[Instr] {
        &self.instrs
    }

    /// What it touches of the memory that begins at each of its arguments (of 64 bits each), where this is an address.
    pub fn operands(&self) -> &[Operand] {
        &self.moved.operands
    }

    /// Where most of what it loads of each operand is, by what caches have of them.
    pub fn levels(&self, found: &[Found]) -> Vec<Level> {
        found.iter().zip(self.operands()).map(|(f, o)| f.level(o.loads.bytes)).collect()
    }

    /// Found is all that it loads, by operand: in L2, where there is one.
    pub fn in_l2(&self) -> Vec<Found> {
        let one = self.chip.dies <= 1.0;
        self.operands().iter().map(|o| Found { l2: if one { o.loads.bytes } else { 0.0 }, mall: 0.0 }).collect()
    }

    /// Its simulation where caches have what is found of its operands; nothing of those that are left out. `levels` as [`Self::levels`] has them.
    pub fn modelled(&self, found: &[Found]) -> Detailed {
        let mut detailed = self.simulated(&self.levels(found));
        self.find(&mut detailed.modelled, found);
        detailed
    }

    /// Its simulation where all of its operands were gone through before, and are in the smallest cache that holds what it touches.
    pub fn behind_itself(&self) -> Detailed {
        self.simulated(&vec![memory::smallest(&self.chip, self.moved.traffic.footprint); self.operands().len()])
    }

    /// Takes from a simulated launch's traffic what caches have of its operands.
    pub fn find(&self, modelled: &mut Modelled, found: &[Found]) {
        let [l2, mall]: [f64; 2] = [found.iter().map(|f| f.l2).sum(), found.iter().map(|f| f.mall).sum()];
        let Traffic { fabric, dram, .. } = self.moved.traffic;
        let traffic =
            Traffic { fabric: (fabric - l2).max(0.0), dram: (dram - l2 - mall).max(0.0), ..self.moved.traffic };
        modelled.moving(&self.chip, traffic);
    }

    /// A workgroup's waves as the first ones find operands at these levels.
    pub(crate) fn placed(&self, levels: &[Level]) -> Vec<Trace> {
        self.placed_in(levels, true)
    }

    fn placed_in(&self, levels: &[Level], first_round: bool) -> Vec<Trace> {
        let Recorded { chip, instrs, groups, moved, starts, .. } = self;
        let served = Served { levels, starts, footprint: moved.traffic.footprint };
        let placed = memory::place(chip, instrs, &groups[0].waves, &served, first_round);
        if self.meetings.is_empty() && !self.behind { folded(instrs, placed) } else { placed }
    }

    /// The same of later ones, which find in caches what those before them have loaded.
    pub(crate) fn placed_later(&self, levels: &[Level]) -> Vec<Trace> {
        let again = memory::smallest(&self.chip, self.moved.traffic.footprint);
        let level = |n: usize| levels.get(n).copied().unwrap_or(Level::Dram);
        let later = |(n, share): (usize, &f64)| if *share > 0.5 { level(n).min(again) } else { level(n) };
        let levels: Vec<Level> = self.moved.before.iter().enumerate().map(later).collect();
        self.placed_in(&levels, false)
    }

    /// Joins the layers: waits as long as operands at these levels let it, and all traffic.
    pub fn simulated(&self, levels: &[Level]) -> Detailed {
        let Recorded { chip, instrs, groups, moved, occupancy, .. } = self;
        let (grid, shared_cus, traffic) = (self.grid, self.shared_cus, moved.traffic);
        let workgroups: u64 = grid.iter().map(|&g| u64::from(g)).product();
        let cus = (chip.cus as u64 / shared_cus).max(1);
        let resident = resident(chip, grid, *occupancy, shared_cus);
        let at_once = cus * resident;
        // As many workgroups like the first one as execute what these do.
        let work = worth(groups);
        let counted =
            if workgroups > at_once { (workgroups as f64 * work.mean).round().max(1.0) as u64 } else { workgroups };
        let rounds = counted / at_once;
        let rest = counted - rounds * at_once;
        let more = rounds > 1 || rounds == 1 && rest > 0;
        let first = self.placed(levels);
        let later = if more { self.placed_later(levels) } else { Vec::new() };
        let resident_of = |n: u64, queued: u64| Resident {
            instrs,
            groups: (0..n).map(|_| &first[..]).collect(),
            queue: (0..queued).map(|_| &later[..]).collect(),
            starts: Vec::new(),
            cus: shared_cus as usize,
            simds: None,
        };
        let (full, with_next) = match more {
            true => wave::simulate_apart(chip, &resident_of(resident, resident)),
            false => (wave::simulate(chip, &resident_of(resident, 0)), 0),
        };
        let one = full.clocks as f64;
        let mut clocks = if rounds > 0 { one } else { 0.0 };
        let mut further = one;
        if more {
            further = (with_next as f64 - one).max(1.0);
            clocks += further * (rounds.max(1) - 1) as f64;
        }
        let mut tail = 0.0;
        if rest > 0 {
            let n = rest.div_ceil(cus);
            let last = if n == resident { one } else { wave::simulate(chip, &resident_of(n, 0)).clocks as f64 };
            // A last round overlaps the one before it as full rounds overlap each other.
            tail = if rounds > 0 { (last - (one - further)).max(0.0) } else { last };
            clocks += tail;
        }
        if workgroups <= at_once {
            clocks *= work.most;
        }
        let used = workgroups as f64 / (rounds as f64 + f64::from(rest > 0)) / at_once as f64;
        let dispatch = chip.dispatch(workgroups as f64 * first.len() as f64, chip.cus);
        let mut parts = Parts { compute: clocks, tail, dispatch, used, ..Parts::default() };
        parts.memory(chip, &traffic);
        if !self.meetings.is_empty() {
            let pace = Pace {
                waves: &groups[0].waves,
                issued: &full.issued[..first.len()],
                clocks: one,
                moved: parts.moved() / workgroups as f64,
                at_once: at_once as usize,
                start: dispatch / workgroups as f64,
                seen: waiting::seen(chip),
                turn: 0.0,
            };
            // That they meet was seen when they were recorded.
            parts.waiting = waiting::delay(&self.meetings, &pace).unwrap_or(0.0);
        }
        let alone = self.linked.then(|| {
            let issued = &full.issued[..first.len()];
            let own = traffic.dram / workgroups as f64;
            let asked = || asked_before(&groups[0].waves, &first, issued, chip.l1_line, own);
            let asks = if self.behind { asked() } else { None };
            // Rounds overlap.
            let clocks = parts.compute / workgroups.div_ceil(at_once) as f64;
            let scale = clocks / one.max(1.0);
            // What comes behind a wait that is over when all that was asked for before is there.
            let behind = asks.map_or(0, |_| {
                let opens = full.clocks;
                wave::simulate_until(chip, &resident_of(resident, 0), opens).clocks.saturating_sub(opens)
            });
            let behind = (behind as f64 * scale).min(clocks);
            let all = u64::from(occupancy.workgroups) * cus;
            let start = dispatch / workgroups as f64;
            // What vector ALUs do of a workgroup from one wait for memory to the next.
            let vector = full.busy_with(Unit::Valu) + full.busy_with(Unit::Trans);
            let units = f64::from(chip.target.info().simds) * shared_cus as f64 * resident as f64;
            let waits = issued[0].iter().filter(|i| i.why() == Stall::Memory).count().max(1);
            let (asked, places) = asks.unwrap_or((0.0, 1));
            let computes = (vector / units / waits as f64 * scale).min(behind);
            let at_once = all as usize;
            let counts = counting(instrs, &groups[0]);
            Alone { clocks, behind, asked, computes, moved: 0.0, adding: 0.0, places, counts, at_once, start }
        });
        let simds = f64::from(chip.target.info().simds) * shared_cus as f64;
        let unit = |u: Unit, n: f64| full.busy_with(u) / n / one.max(1.0);
        let ports = simds / 2.0;
        let busy =
            [unit(Unit::Valu, simds) + unit(Unit::Trans, simds), unit(Unit::Matrix, simds), unit(Unit::Lds, ports)];
        let executed: f64 = first.iter().map(Trace::executed).sum();
        let mut modelled = Modelled {
            clocks: 0.0,
            clocks_with_launch: 0.0,
            microseconds: 0.0,
            sustained_microseconds: None,
            bound: Bound::Latency,
            busy,
            occupancy: *occupancy,
            workgroups,
            rounds: workgroups as f64 / at_once as f64,
            instructions: executed / first.len().max(1) as f64,
            traffic,
            parts,
            behind: self.behind,
            alone,
            added: None,
            stalls: full.longest_stalls(),
            validated: chip.is_validated(),
            approximations: self.approximations.clone(),
        };
        modelled.settle(chip);
        Detailed { modelled, instrs: instrs.clone(), addresses: self.addresses.clone(), waves: first, outcome: full }
    }
}
