//! How workgroups take the groups and points of a normalisation: by the estimate of all that may be.

use super::{Grouped, LEFT};
use crate::kernels::choice::{KEPT, Machine};
use crate::kernels::published::Exchange;
use crate::kernels::softmax::Elements;
use crate::kernels::{Arg, Cx, MAX_TENSOR_BYTES, epilogue};

/// Workitems of a workgroup, elements that each holds at most, and bytes of one access.
const WORKGROUPS: [u32; 3] = [256, 512, 1024];
const HELD: u32 = 64;
const WIDEST: usize = 16;

/// Pieces that a workitem puts together at most.
const MOST_PIECES: u32 = 16;

/// Workitems take fewer channels together where their plan takes less than so much of the time of others: bands of single groups may be held where wider ones
/// are read twice. Less is enough where all plans read once: groups that do not begin where accesses do are added up element by element.
const NARROWER: f64 = 0.9;
const NARROWER_TOLD: f64 = 0.97;

/// Of plans whose workgroups wait for those of other pieces, fitted to the cycle model: clocks of that over what the device takes to answer, alone and beside
/// others; and of the time in which a workgroup moves nothing, the share that no other one fills. Then the share of the time of other ways that they may take; rounds of workgroups that they take
/// at least where one is not enough; elements that a workitem holds and registers besides, at most; and bytes in which workgroups tell each other what they have found.
const TOLD: f64 = 6.0;
const WAITS: f64 = 2.0;
const SEEN: f64 = 0.4;
const QUICKER: f64 = 0.85;
const ROUNDS: f64 = 2.0;
const HELD_TOLD: u32 = 80;
const OTHERS_TOLD: u32 = 32;
const MOST_TOLD: usize = 1 << 24;

/// Workgroups that wait for each other at most: each looks for what all of them leave.
const MOST_MEMBERS: u32 = 80;

/// Workitems that a compute unit has at once, about.
const RESIDENT: u32 = 1024;

/// Instructions of a workitem for an element beside the expression's, around that, for each of its channels and for each number that it adds for its team. Counted.
const INSTRUCTIONS: f64 = 8.0;
const AROUND: f64 = 150.0;
const OF_A_CHANNEL: f64 = 20.0;
const OF_A_NUMBER: f64 = 12.0;

/// Registers of a workitem besides those of its elements: for each of its channels, and others.
const FOR_A_CHANNEL: u32 = 4;
const OTHERS: u32 = 40;

/// How the workgroups take groups and points.
#[derive(Clone, Copy, Default)]
pub(super) struct Plan {
    /// Channels that a workitem takes together.
    pub width: u32,
    /// Channels of a band, and how many bands.
    pub band: u32,
    pub bands: u32,
    pub workgroup: u32,
    /// Points that a workgroup has at a time, and how many times.
    pub abreast: u32,
    pub turns: u32,
    /// Pieces of the points.
    pub pieces: u32,
    /// Images that a launch goes through.
    pub images: u32,
    /// Workgroups wait for what those of other pieces find, and keep what they have read.
    pub together: bool,
}

impl Plan {
    /// How often what elements are made of is read.
    pub fn passes(&self) -> usize {
        if self.pieces > 1 && !self.together { 2 } else { 1 }
    }

    /// Workitems of the team that takes one of so many groups of a band.
    pub fn members(&self, groups: u32, wave: u32) -> u32 {
        (1 << (self.workgroup / groups).ilog2()).min(wave)
    }

    /// The plan that takes least time, and that in clocks, if operand and result lie as it needs.
    pub fn of(step: &Grouped, cx: &Cx, groups: usize) -> Option<(f64, Plan)> {
        let Plans { told, whole, section } = Plans::of(step, cx, groups)?;
        // The results of a section stay where the model has a cache before memory take them, so that by the model memory sees little of these.
        if let Some(section) = section.filter(|_| Machine::of(cx.target).takes_results) {
            return Some(section);
        }
        let apart = section.unwrap_or(whole);
        Some(told.filter(|(clocks, _)| *clocks < QUICKER * apart.0).unwrap_or(apart))
    }

    /// The plan by which workgroups tell each other what they have found that takes least time, and that in clocks.
    pub fn told(step: &Grouped, cx: &Cx, groups: usize) -> Option<(f64, Plan)> {
        Plans::of(step, cx, groups)?.told
    }
}

/// The quickest plans of each kind, and their clocks: workgroups tell each other what they have found, they do not, and the same with sections, where these are quicker.
struct Plans {
    told: Option<(f64, Plan)>,
    whole: (f64, Plan),
    section: Option<(f64, Plan)>,
}

impl Plans {
    fn of(step: &Grouped, cx: &Cx, groups: usize) -> Option<Plans> {
        let machine = Machine::of(cx.target);
        let (cus, wave, simds) = (cx.target.cus(), cx.target.info().wave_size, cx.target.info().simds);
        let (accesses, elements) = (step.accesses(cx), Elements::of(cx));
        let channels = groups as u32 * step.each;
        let (t, to) = (accesses[0].1, cx.dtype(Arg::Output));
        let (size, line) = (t.size().max(to.size()), machine.line as usize);
        let dense = |width: u32| {
            let written = |arg: Arg| arg == Arg::Output || Some(arg) == elements.kept;
            let mut ends = accesses.iter().enumerate().filter(|(i, a)| *i == 0 || written(a.0));
            width as usize * size <= WIDEST && ends.all(|(_, (_, t, lie))| lie.is_dense(*t, width))
        };
        // Of memory, and of second-level caches, which give each image what is the same in all.
        let bytes = |arg: &dyn Fn(Arg) -> bool| {
            let own = accesses.iter().filter(|a| arg(a.0));
            let own = own.map(|(_, t, lie)| lie.elements().map(|n| (n * t.size()) as f64));
            own.fold([0.0; 2], |all, own| [all[0] + own[0], all[1] + own[1]])
        };
        let [read, _] = bytes(&|arg| elements.sources.contains(&arg));
        let [moved, asked] = bytes(&|arg| !elements.sources.contains(&arg));
        let found = (INSTRUCTIONS + elements.made.map_or(0, |e| e.cost()) as f64) * machine.issue;
        let work = found + epilogue::clocks(cx);
        let bytes_told = |p: &Plan| {
            let teams = step.outer * p.bands as usize;
            teams * Exchange::bytes([1, p.pieces, p.band / step.each], wave) as usize
        };
        // Of what is moved and computed with all compute units busy, of workgroups by themselves, and of launches.
        let clocks = |p: &Plan| {
            let workgroups = f64::from(p.bands * p.pieces) * step.outer as f64;
            // Parts of lines at a band's sides come for the next one again.
            let bytes = p.band as usize * t.size();
            let whole =
                p.bands == 1 || bytes.is_multiple_of(line) && (channels as usize * t.size()).is_multiple_of(line);
            let touched = if whole { 1.0 } else { (bytes + line - t.size()) as f64 / bytes as f64 };
            let of_memory = if machine.one_cache { 1.0 } else { touched };
            let passes = p.passes() as f64;
            let sections = f64::from((step.outer as u32).div_ceil(p.images));
            let results = if machine.keeps(read + moved) { KEPT } else { 1.0 };
            let again = if sections > 1.0 || machine.keeps_until_read(read, moved) { KEPT } else { results };
            let memory = (read + again * (passes - 1.0) * read + results * moved) * of_memory / machine.memory;
            // What all pieces have left of a band's groups, each workgroup reads.
            let left = if p.pieces > 1 { f64::from(p.band / step.each * p.pieces) } else { 0.0 };
            let l2 = ((passes * read + asked) * touched + workgroups * left * LEFT as f64) / machine.l2;
            let used = f64::from(p.band / p.width * p.abreast) / f64::from(p.workgroup);
            let waves = f64::from(p.workgroup / wave);
            // Two sums over a team, or what it puts together.
            let members = p.members(p.band / step.each, wave);
            let of_group = if step.each.is_multiple_of(p.width) { step.each / p.width } else { step.each };
            let read_again = f64::from((p.abreast * of_group).div_ceil(members)) * 2.0;
            let joined = if p.pieces > 1 { f64::from(p.pieces.div_ceil(members)) } else { 0.0 };
            let around = AROUND + f64::from(p.width) * OF_A_CHANNEL + (read_again + joined) * OF_A_NUMBER;
            let around = around * machine.issue;
            let own = (f64::from(p.turns * p.width) * work + around) * waves / f64::from(simds);
            let resident = f64::from((RESIDENT / p.workgroup).max(1));
            let of_launch = workgroups / sections;
            let rounds = (of_launch / (f64::from(cus) * resident)).ceil();
            let last = (of_launch / f64::from(cus)).min(resident).max(1.0);
            let latencies = machine.answer(read) + machine.ends;
            let told = if p.together { TOLD * machine.device_latency } else { 0.0 };
            let alone = sections * rounds * (own * last + latencies + told);
            let first = (f64::from(p.turns * p.width) * found + around) * waves / f64::from(simds);
            let busy = ((passes - 1.0) * first + own) * workgroups / f64::from(cus);
            let launches = (passes * sections - 1.0) * (machine.launch + machine.ends);
            let mut flow = memory.max(l2).max(busy / used.max(0.1));
            if p.together {
                // Teams do the same at the same time: in part memory waits for them, less where a compute unit has several workgroups.
                let own_registers = p.turns * p.width + OTHERS_TOLD + FOR_A_CHANNEL * p.width;
                let at_once = machine.fit(p.workgroup / wave, own_registers, 0);
                let rounds = workgroups / (f64::from(cus) * at_once);
                flow += SEEN * rounds / at_once * (own + latencies + WAITS * machine.device_latency);
            }
            (flow, passes * alone, launches)
        };
        // Teams go on together: a second round of a few of them takes as long as the first one.
        let fills_rounds = |p: &Plan| {
            let workgroups = f64::from(p.bands * p.pieces) * step.outer as f64;
            let own_registers = p.turns * p.width + OTHERS_TOLD + FOR_A_CHANNEL * p.width;
            let rounds = workgroups / (f64::from(cus) * machine.fit(p.workgroup / wave, own_registers, 0));
            rounds <= 1.0 || rounds >= ROUNDS
        };
        let quickest = |together: bool| {
            let mut best: Option<(f64, Plan)> = None;
            for width in [8u32, 4, 2, 1].into_iter().filter(|n| dense(*n)) {
                // Single channels are for those that do not come in twos.
                if width == 1 && best.is_some() {
                    break;
                }
                let mut own: Option<(f64, Plan)> = None;
                for bands in (1..=groups as u32).filter(|n| (groups as u32).is_multiple_of(*n)) {
                    let band = channels / bands;
                    if !band.is_multiple_of(width) {
                        continue;
                    }
                    let across = band / width;
                    let fits = |n: &u32| *n >= across && *n >= groups as u32 / bands && *n * width <= 4096;
                    for workgroup in WORKGROUPS.into_iter().filter(fits) {
                        let abreast = workgroup / across;
                        // A workgroup's waves have to fit a compute unit.
                        let waves = (workgroup / wave).div_ceil(simds);
                        let registers = (cx.target.info().vgprs_per_simd / waves).min(cx.target.info().named_vgprs());
                        let (held, others) = if together { (HELD_TOLD, OTHERS_TOLD) } else { (HELD, OTHERS) };
                        let free = registers.saturating_sub(others + FOR_A_CHANNEL * width);
                        let most = held.min(free) / width;
                        if most == 0 {
                            continue;
                        }
                        let needed = (step.points as u32).div_ceil(abreast);
                        // As many points as fit, in pieces of about the same size.
                        for most in [most, most / 2, most / 4] {
                            let pieces = needed.div_ceil(most.max(1));
                            let turns = needed.div_ceil(pieces);
                            let pieces = needed.div_ceil(turns);
                            let images = step.outer as u32;
                            let plan = Plan { width, band, bands, workgroup, abreast, turns, pieces, images, together };
                            let (flow, alone, launches) = clocks(&plan);
                            let time = flow.max(alone) + launches;
                            let few = step.outer * groups * pieces as usize * LEFT <= MAX_TENSOR_BYTES / 4
                                && pieces.div_ceil(plan.members(band / step.each, wave)) <= MOST_PIECES;
                            let may =
                                || (2..=cus.min(MOST_MEMBERS)).contains(&pieces) && bytes_told(&plan) <= MOST_TOLD;
                            if together && !(may() && fills_rounds(&plan)) {
                                continue;
                            }
                            if few && own.is_none_or(|b| time < b.0) {
                                own = Some((time, plan));
                            }
                        }
                    }
                }
                let narrower = if together { NARROWER_TOLD } else { NARROWER };
                best = match (best, own) {
                    (Some(wider), Some(own)) if own.0 >= narrower * wider.0 => Some(wider),
                    (wider, own) => own.or(wider),
                };
            }
            best
        };
        let told = quickest(true);
        let whole = quickest(false)?;
        // Sections are as many workgroups' work each.
        let flow = |p: Plan| {
            let (flow, _, launches) = clocks(&p);
            (flow + launches, p)
        };
        let section = machine.section(step.outer, read, moved).map(|n| flow(Plan { images: n as u32, ..whole.1 }));
        let section = section.filter(|s| whole.1.pieces > 1 && s.0 < flow(whole.1).0);
        Some(Plans { told, whole, section })
    }
}
