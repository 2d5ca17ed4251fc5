//! What waves execute: traces recorded from the emulator, long loops by their first rounds.
//!
//! A recorder watches workgroups run. For each wave it keeps the instructions and what their accesses mean for the memory
//! pipeline: cache lines, bank conflicts. When the rounds of a loop repeat (the same instructions `STEADY` times in a row)
//! it stops recording and lets the rest of the loop run without its vector and memory instructions, counting rounds: loop
//! control is scalar. A loop whose end vector instructions or loads tell (`rounds`) runs in full, unrecorded. What follows a
//! loop that was cut short sees registers of its last recorded round: addresses there are those of an earlier round, which
//! is an approximation. Loads and matrix instructions, and what computes with their results, are not
//! executed as long as where a wave goes does not depend on them ([`left_out`](crate::left_out)).

use crate::chip::Chip;
use crate::instr::{Instr, Unit};
use crate::lds;
use crate::left_out::{Flow, LeftOut};
use crate::rounds::{self, Known};
use crate::stretch::{self, Stretch, Stretches};
use crate::waiting::{self, Event, Meetings, WaitLoop};
use barewave_emu::observe::{self, AccessSpace, LaneAccess, Observer, Step as Executed, Verdict};
use barewave_isa::Target;
use rustc_hash::{FxHashMap, FxHashSet};
use std::ops::Range;
use std::sync::Arc;

/// Where data comes from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Level {
    /// First-level cache.
    L1,
    /// Second-level cache.
    L2,
    /// Memory-side cache.
    Mall,
    /// Memory.
    Dram,
    /// Memory that nobody has touched yet, with its page.
    Cold,
}

/// An access of a wave to memory or LDS.
#[derive(Clone, Debug)]
pub struct Access {
    /// Clocks that it takes of the port: LDS phases with their conflicts, or cache lines.
    pub clocks: u32,
    /// Where it is served.
    pub level: Level,
    /// Cache lines of the first level, by number; none for LDS.
    pub lines: Vec<u64>,
    /// It writes.
    pub store: bool,
    /// Where it is what a wave waits by for other workgroups ([`waiting`]), the cache lines that it looks at, which come from where all of the device see the same.
    pub polls: usize,
}

/// An executed instruction.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// Which, in [`Recorder::instrs`].
    pub instr: u32,
    /// Which of the trace's accesses it makes.
    pub access: Option<u32>,
    /// A branch that was taken.
    pub jumped: bool,
}

/// Rounds of a loop that are not in the trace. Of those that end at one step an inner loop's come first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Skip {
    /// Step before which they belong.
    pub at: u32,
    /// First step of the recorded rounds that stand for them.
    pub from: u32,
    /// How many rounds these are.
    pub rounds: u32,
    /// How many rounds are missing.
    pub times: u64,
    /// Number of rounds left out before them, of the same trace, whose pace they go on at; else it is that of the recorded ones.
    pub pace: Option<u32>,
}

impl Skip {
    /// Steps of a recorded round.
    pub fn round(&self) -> u32 {
        (self.at - self.from) / self.rounds.max(1)
    }
}

/// A line of code that is not in the instruction cache when it is first asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fetch {
    /// Its number.
    pub line: u32,
    /// Step with which a wave asks for it.
    pub asked: u32,
    /// First step of it.
    pub needed: u32,
}

/// What a wave executes.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Instructions in order.
    pub steps: Vec<Step>,
    /// Accesses in order.
    pub accesses: Vec<Access>,
    /// Rounds left out, in order.
    pub skips: Vec<Skip>,
    /// Lines of code that come from memory, in order; recorded launches have none: their code is in the cache.
    pub fetches: Vec<Fetch>,
    /// Instructions that were executed and have no steps.
    pub unseen: f64,
    /// Clocks that these keep units busy, all together.
    pub unseen_work: f64,
}

impl Trace {
    /// How often steps stand for executed instructions, left-out rounds included, by the pieces in which that is the same.
    fn weighted(&self) -> Vec<(Range<u32>, f64)> {
        let mut ends = vec![0, self.steps.len() as u32];
        ends.extend(self.skips.iter().flat_map(|s| [s.from, s.at]));
        ends.sort_unstable();
        ends.dedup();
        let mut out: Vec<_> = ends.windows(2).map(|w| (w[0]..w[1], 1.0)).collect();
        for s in &self.skips {
            let more = s.times as f64 / f64::from(s.rounds.max(1));
            let within = out.iter_mut().filter(|(p, _)| s.from <= p.start && p.end <= s.at);
            within.for_each(|(_, w)| *w += *w * more);
        }
        out
    }

    /// How often each step stands for an executed instruction, left-out rounds included.
    pub fn weights(&self) -> impl Iterator<Item = f64> + use<> {
        self.weighted().into_iter().flat_map(|(steps, w)| std::iter::repeat_n(w, steps.len()))
    }

    /// Instructions executed.
    pub fn executed(&self) -> f64 {
        self.weighted().iter().map(|(steps, w)| steps.len() as f64 * w).sum::<f64>() + self.unseen
    }

    /// Clocks that its instructions keep units busy, all together.
    fn work(&self, instrs: &[Instr]) -> f64 {
        let of = |i: &Instr| f64::from(i.busy.max(1) + i.idle);
        let seen: f64 = self.steps.iter().zip(self.weights()).map(|(s, w)| w * of(&instrs[s.instr as usize])).sum();
        seen + self.unseen_work
    }

    /// The same without the steps that make no access, and the memory of all of them.
    fn thinned(mut self, instrs: &[Instr]) -> (Trace, Vec<Step>) {
        let (executed, work) = (self.executed(), self.work(instrs));
        let kept = |n: &mut u32, s: &Step| {
            let before = *n;
            *n += u32::from(s.access.is_some());
            Some(before)
        };
        let before: Vec<u32> = self.steps.iter().scan(0, kept).collect();
        let all = self.accesses.len() as u32;
        let at = |step: u32| before.get(step as usize).copied().unwrap_or(all);
        for s in &mut self.skips {
            (s.at, s.from) = (at(s.at), at(s.from));
        }
        let steps = self.steps.iter().filter(|s| s.access.is_some()).copied().collect();
        let mut memory = std::mem::replace(&mut self.steps, steps);
        memory.clear();
        (self.unseen, self.unseen_work) = (0.0, 0.0);
        (self.unseen, self.unseen_work) = (executed - self.executed(), work - self.work(instrs));
        (self, memory)
    }
}

/// Equal rounds in a row after which a loop is cut short.
const STEADY: usize = 4;
/// Rounds that stand for the ones left out are a multiple of these, and have so many instructions together at least. A round may take a quarter of a
/// cache line: four of them have as many new lines wherever they begin.
const ROUNDS: usize = 4;
const WINDOW: usize = 256;
/// Steps of a wave that are recorded at most; beyond it the launch is too irregular for this model.
pub const MOST_STEPS: usize = 1 << 20;

/// Which rounds of loops are recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Loops {
    /// The first ones of those that repeat themselves.
    #[default]
    Shortened,
    /// All: what leaving some out does to a figure is told by this, slowly.
    Whole,
}

/// A loop that a wave is in.
struct Loop {
    /// Number of its first instruction in the program.
    head: usize,
    /// Step at which each of its rounds began.
    rounds: Vec<usize>,
}

/// A loop whose further rounds are counted only. Where its end depends on vector instructions these run.
struct Skipping {
    rounds: observe::Loop,
    times: u64,
    /// First step of the rounds that stand for the others, and how many these are.
    from: usize,
    recorded: u32,
}

#[derive(Default)]
struct Recorded {
    trace: Trace,
    /// Number in the program of each step's instruction.
    indices: Vec<usize>,
    loops: Vec<Loop>,
    skipping: Option<Skipping>,
    previous: Option<usize>,
    /// Instructions that were recorded before they are executed.
    ahead: Range<usize>,
    /// The loop in which it waits, and what it did for others.
    waits: Option<WaitLoop>,
    events: Vec<Event>,
}

/// Some workgroups of a launch of one dimension, one behind the other, that are numbered in three.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// The first one's number in the launch.
    pub first: u32,
    /// How many there are in x, y, z.
    pub grid: [u32; 3],
    /// Others of the launch run beside them; else they wait for those before them.
    pub beside: bool,
}

impl Part {
    /// What a workgroup of the launch is called in the part.
    fn place(&self, number: u32) -> [u32; 3] {
        let [x, y, _] = self.grid.map(|n| n.max(1));
        let own = number.saturating_sub(self.first);
        [own % x, own / x % y, own / x / y]
    }

    /// The launch's number of workgroup `id` of a grid that has as many or fewer.
    pub(crate) fn number(&self, grid: [u32; 3], id: u64) -> u64 {
        let [x, y, _] = grid.map(|n| u64::from(n.max(1)));
        let [of_x, of_y, _] = self.grid.map(|n| u64::from(n.max(1)));
        u64::from(self.first) + id % x + of_x * (id / x % y + of_y * (id / x / y))
    }
}

/// A workgroup's traces; of those after the first one the accesses of vector memory instructions alone.
#[derive(Clone, Debug)]
pub struct Group {
    /// Its coordinates.
    pub workgroup: [u32; 3],
    /// Its waves.
    pub waves: Arc<[Trace]>,
    /// Lines that it loads, and that it stores.
    pub lines: Arc<[FxHashSet<u64>; 2]>,
    /// Lines that it asks for.
    pub requested: f64,
    /// Instructions that its waves execute.
    pub executed: f64,
    /// Clocks that these keep units busy, all together.
    pub work: f64,
}

impl Group {
    /// One of these waves.
    pub fn new(workgroup: [u32; 3], waves: Vec<Trace>, instrs: &[Instr]) -> Group {
        let (mut lines, mut requested): ([FxHashSet<u64>; 2], f64) = Default::default();
        let (mut executed, mut work) = (0.0, 0.0);
        for w in &waves {
            executed += w.executed();
            work += w.work(instrs);
            for (s, weight) in w.steps.iter().zip(w.weights()) {
                let Some(a) = s.access.filter(|_| instrs[s.instr as usize].moves_data) else { continue };
                let a = &w.accesses[a as usize];
                requested += weight * a.lines.len() as f64;
                lines[usize::from(a.store)].extend(&a.lines);
            }
        }
        Group { workgroup, waves: waves.into(), lines: lines.into(), requested, executed, work }
    }
}

/// An [`Observer`] that records.
pub struct Recorder<'a> {
    chip: &'a Chip,
    target: Target,
    lanes: u32,
    loops: Loops,
    /// Instructions met, each once.
    pub instrs: Vec<Instr>,
    /// Address of each in the code object.
    pub addresses: Vec<u64>,
    /// Which of them each instruction of the program is.
    known: Vec<Option<u32>>,
    touched: Vec<LaneAccess>,
    current: Vec<Recorded>,
    /// Memory for the next workgroup's steps and their numbers.
    spare: Vec<(Vec<Step>, Vec<usize>)>,
    /// Memory that arguments begin in: what any scalar load brings of it is data.
    operands: Vec<Range<u64>>,
    /// Clocks of accesses to LDS by their pattern.
    patterns: lds::Patterns,
    at: [u32; 3],
    /// Those of a launch that are followed, where these are some of several kinds.
    pub(crate) part: Option<Part>,
    /// Workgroups that were recorded.
    pub groups: Vec<Group>,
    /// An instruction that the model does not know, by its address.
    pub unknown: Option<u64>,
    /// A wave that was cut off at [`MOST_STEPS`].
    pub too_long: bool,
    /// A loop whose end vector instructions decide.
    pub decided: bool,
    /// Of rounds of loops, by numbers of their instructions, whether it takes vector instructions to know how many there are.
    needing: FxHashMap<Vec<usize>, bool>,
    /// What is left out, where anything is.
    left_out: Option<LeftOut>,
    /// Stretches of code that waves go through at once.
    stretches: Stretches,
    /// What atomic instructions found in memory, where they did so, in order, while anything is left out: it may have to be recorded again.
    pub(crate) changed: Vec<(u64, Vec<u8>)>,
    /// What was recorded depends on such a result: it must be recorded again by [`Recorder::computing`].
    pub depends: bool,
    /// Of loads that see what others have stored, by their numbers in the program, in which loops waves wait by them.
    wait_loops: FxHashMap<usize, Option<WaitLoop>>,
    /// Where stores may be what somebody waits for; no store is, where this is nowhere.
    pub(crate) watched: Range<u64>,
    /// What each recorded workgroup waited for, and stored there.
    pub(crate) meetings: Vec<Meetings>,
}

impl<'a> Recorder<'a> {
    /// A recorder for waves of `lanes` lanes.
    pub fn new(chip: &'a Chip, lanes: u32, loops: Loops) -> Recorder<'a> {
        Recorder {
            chip,
            target: chip.target,
            lanes,
            loops,
            instrs: Vec::new(),
            addresses: Vec::new(),
            known: Vec::new(),
            touched: Vec::new(),
            current: Vec::new(),
            spare: Vec::new(),
            operands: Vec::new(),
            patterns: lds::Patterns::default(),
            at: [0; 3],
            part: None,
            groups: Vec::new(),
            unknown: None,
            too_long: false,
            decided: false,
            needing: FxHashMap::default(),
            left_out: Some(LeftOut::default()),
            stretches: Stretches::default(),
            changed: Vec::new(),
            depends: false,
            wait_loops: FxHashMap::default(),
            watched: 0..0,
            meetings: Vec::new(),
        }
    }

    /// A recorder that leaves no instruction out.
    pub fn computing(chip: &'a Chip, lanes: u32, loops: Loops) -> Recorder<'a> {
        Recorder { left_out: None, ..Recorder::new(chip, lanes, loops) }
    }

    /// Where operands are.
    pub(crate) fn with_operands(self, operands: &[Range<u64>]) -> Recorder<'a> {
        Recorder { operands: operands.to_vec(), ..self }
    }

    /// One that follows workgroups for what they store between two addresses, and leaves data out or not.
    pub(crate) fn like(&self, watched: Range<u64>, leaves_out: bool) -> Recorder<'a> {
        let left_out = leaves_out.then(LeftOut::default);
        Recorder { left_out, watched, ..Recorder::new(self.chip, self.lanes, self.loops) }
    }

    /// Data is left out.
    pub(crate) fn leaves_out(&self) -> bool {
        self.left_out.is_some()
    }

    /// Nothing more needs to be recorded: something cannot be modelled, or not this way.
    pub(crate) fn stopped(&self) -> bool {
        self.depends || self.too_long || self.unknown.is_some()
    }

    /// Ends the workgroup that runs.
    pub fn finish(&mut self) {
        if !self.current.is_empty() {
            let (mut waves, mut meetings) = (Vec::new(), Vec::new());
            for mut r in std::mem::take(&mut self.current) {
                close(&mut r);
                meetings.push(r.events);
                r.indices.clear();
                // Of the others only where they go counts.
                let (trace, memory) =
                    if self.groups.is_empty() { (r.trace, Vec::new()) } else { r.trace.thinned(&self.instrs) };
                self.spare.push((memory, r.indices));
                waves.push(trace);
            }
            if self.groups.is_empty() {
                // Conflicts in LDS need not be seen in the others.
                self.stretches.clear();
            }
            self.meetings.push(meetings);
            // Of those that are followed for what they tell others nothing else is asked.
            if self.watched.is_empty() || self.groups.is_empty() {
                self.groups.push(Group::new(self.at, waves, &self.instrs));
            }
        }
    }

    fn instr(&mut self, step: &Executed) -> Option<u32> {
        if let Some(Some(known)) = self.known.get(step.index) {
            return Some(*known);
        }
        self.meet(step, step.index)
    }

    /// Adds one of the program's instructions to those that were met.
    fn meet(&mut self, step: &Executed, index: usize) -> Option<u32> {
        let (address, raw) = step.instruction(index)?;
        let mut instr = Instr::decoded(self.target, raw, self.lanes)?;
        if instr.unit == Unit::Smem && index == step.index {
            step.visit(|a| instr.moves_data |= self.operands.iter().any(|o| o.contains(&a.address)));
        }
        let n = self.instrs.len() as u32;
        self.instrs.push(instr);
        self.addresses.push(address);
        self.known.resize(self.known.len().max(index + 1), None);
        self.known[index] = Some(n);
        Some(n)
    }

    /// Records the stretch of code that a wave is at, if it is at one: its end.
    fn pass(&mut self, step: &Executed, instr: u32, wave: usize) -> Option<usize> {
        let (first, exec) = (step.index, step.exec());
        let left_out = self.left_out.as_mut()?;
        let conflicts = self.groups.is_empty();
        if !stretch::passes(&self.instrs[instr as usize], wave, conflicts, left_out) {
            return None;
        }
        if !self.stretches.pass(first, wave, exec, left_out) {
            let mut new = Stretch::at(first, wave, exec, left_out)?;
            for index in first.. {
                let known = self.known.get(index).copied().flatten();
                let Some(n) = known.or_else(|| self.meet(step, index)) else { break };
                let left_out = self.left_out.as_mut()?;
                if !new.add(n, &self.instrs[n as usize], wave, conflicts, left_out) {
                    break;
                }
            }
            self.stretches.keep(new, wave, self.left_out.as_ref()?);
        }
        let s = self.stretches.at(first)?;
        let r = &mut self.current[wave];
        r.trace.steps.extend_from_slice(&s.steps);
        r.indices.extend(s.range());
        r.ahead = s.range();
        r.previous = Some(r.ahead.end - 1);
        Some(r.ahead.end)
    }

    /// It takes vector instructions to know how often a loop goes round, from where a wave is up to its `last` instruction: by a round of it.
    fn needs_vectors(&mut self, step: &Executed, last: usize, round: &[usize]) -> bool {
        if let Some(known) = self.needing.get(round) {
            return *known;
        }
        for index in step.index..=last {
            if self.known.get(index).is_none_or(|n| n.is_none()) {
                self.meet(step, index);
            }
        }
        let met = |n: u32| (self.addresses[n as usize], &self.instrs[n as usize]);
        let known = |n: usize| self.known.get(n).copied().flatten().map(met);
        let code: Vec<Known> = (step.index..=last).map(known).collect();
        let executed: Vec<_> = round.iter().filter_map(|n| known(*n)).collect();
        let needs = rounds::need_vectors(&code, &executed);
        self.needing.insert(round.to_vec(), needs);
        needs
    }

    /// A wave is at a load in a loop in which it waits, where it is not known to be in it, or it is in such a loop.
    fn is_waiting(&mut self, step: &Executed, instr: u32, wave: usize) -> Option<WaitLoop> {
        let r = &mut self.current[wave];
        r.waits = r.waits.filter(|l| (l.first..=l.last).contains(&step.index));
        if self.instrs[instr as usize].sees_others && r.waits.is_none() {
            let (target, lanes) = (self.target, self.lanes);
            let code = |n: usize| step.instruction(n).map(|(address, raw)| (address, *raw));
            let found = || waiting::wait_loop(target, lanes, step.index, code);
            r.waits = *self.wait_loops.entry(step.index).or_insert_with(found);
        }
        r.waits
    }

    /// Dwords that an instruction touches, of those between two addresses.
    fn dwords(&mut self, step: &Executed, within: Range<u64>) -> Vec<u64> {
        step.touches(&mut self.touched);
        let touched = self.touched.iter().filter(|a| within.contains(&a.address));
        let mut out: Vec<u64> =
            touched.flat_map(|a| a.address / 4..(a.address + u64::from(a.bytes)).div_ceil(4)).collect();
        out.sort_unstable();
        out.dedup();
        out
    }

    /// Somebody waits, and where: the first and the last byte.
    pub(crate) fn waited_at(&self) -> Option<Range<u64>> {
        let mut dwords = self.meetings.iter().flatten().flatten().flat_map(|e| &e.dwords).copied();
        let first = dwords.next()?;
        let (least, most) = dwords.fold((first, first), |(a, b), d| (a.min(d), b.max(d)));
        Some(4 * least..4 * most + 4)
    }

    /// What the access of an instruction means for the memory pipeline.
    fn access(&mut self, step: &Executed, instr: u32) -> Option<Access> {
        let Instr { store, moves_data, .. } = self.instrs[instr as usize];
        // Of workgroups beside the first one only the lines count.
        if !moves_data && !self.groups.is_empty() {
            return None;
        }
        match step.space() {
            AccessSpace::None => None,
            AccessSpace::Lds => {
                step.touches(&mut self.touched);
                let clocks = self.patterns.clocks(self.chip, instr, &self.touched, store);
                Some(Access { clocks, level: Level::L1, lines: Vec::new(), store, polls: 0 })
            }
            AccessSpace::Memory | AccessSpace::Scalar => {
                let line = (self.chip.l1_line as u64).ilog2();
                let mut lines: Vec<u64> = Vec::with_capacity(8);
                // The latest one; nothing has so high a number.
                let (mut latest, mut ascending) = (u64::MAX, true);
                step.visit(|a| {
                    let (first, last) = (a.address >> line, (a.address + u64::from(a.bytes.max(1)) - 1) >> line);
                    if first == latest && last == latest {
                        return;
                    }
                    for l in first..last.min(first + 64) + 1 {
                        if l != latest {
                            ascending &= lines.is_empty() || latest < l;
                            lines.push(l);
                            latest = l;
                        }
                    }
                });
                if !ascending {
                    lines.sort_unstable();
                    lines.dedup();
                }
                let per_line = (self.chip.l1_line / self.chip.l1_bytes_clk).max(1.0);
                let clocks = (lines.len() as f64 * per_line).ceil() as u32;
                Some(Access { clocks: clocks.max(1), level: Level::L2, lines, store, polls: 0 })
            }
        }
    }
}

/// Ends a loop that was cut short.
fn close(r: &mut Recorded) {
    if let Some(s) = r.skipping.take()
        && s.times > 0
    {
        let at = r.trace.steps.len() as u32;
        r.trace.skips.push(Skip { at, from: s.from as u32, rounds: s.recorded, times: s.times, pace: None });
    }
}

/// How many of a loop's last rounds stand for those to come, when these were the same and there are enough of them; else nothing.
fn steady(rounds: &[usize], indices: &[usize]) -> Option<usize> {
    let last = rounds.len().checked_sub(2)?;
    let round = |i: usize| &indices[rounds[i]..rounds[i + 1]];
    let length = round(last).len().max(1);
    let window = ROUNDS.max(WINDOW.div_ceil(length)).next_multiple_of(ROUNDS);
    let same = window.max(STEADY);
    (same <= last + 1 && (last + 1 - same..last).all(|i| round(i) == round(last))).then_some(window)
}

impl Observer for Recorder<'_> {
    fn begin(&mut self, workgroup: [u32; 3], waves: u32) {
        self.finish();
        self.at = self.part.map_or(workgroup, |p| p.place(workgroup[0]));
        if let Some(s) = &mut self.left_out {
            s.begin(waves as usize);
        }
        // Workgroups are much alike.
        let like = self.groups.first().map_or(&[][..], |g| &g.waves);
        let recorded = |wave: usize| {
            let mut out = Recorded::default();
            if let Some(w) = like.get(wave) {
                (out.trace.steps, out.indices) = self.spare.pop().unwrap_or_default();
                out.trace.steps.reserve(w.steps.len());
                out.indices.reserve(w.steps.len());
            }
            out
        };
        self.current = (0..waves as usize).map(recorded).collect();
    }

    fn before(&mut self, step: &Executed) -> Verdict {
        if self.depends {
            return Verdict::End;
        }
        let Some(n) = self.instr(step) else {
            self.unknown.get_or_insert(step.pc);
            return Verdict::Run;
        };
        let wave = step.wave as usize;
        let r = &mut self.current[wave];
        if r.ahead.contains(&step.index) {
            return Verdict::Through(observe::Loop { first: step.index, last: r.ahead.end - 1, full: false });
        }
        r.ahead = 0..0;
        if let Some(s) = &r.skipping {
            if (s.rounds.first..=s.rounds.last).contains(&step.index) {
                return Verdict::Through(s.rounds);
            }
            close(r);
        } else if let (Some(p), Some(last)) = (r.previous, r.trace.steps.last_mut())
            && self.instrs[last.instr as usize].unit == Unit::Branch
        {
            last.jumped = step.index != p + 1;
            let by_mask = ["s_cbranch_vcc", "s_cbranch_exec"];
            let name = self.instrs[last.instr as usize].name;
            self.decided |= step.index <= p && by_mask.iter().any(|n| name.starts_with(n));
        }
        let before = r.previous;
        let backward = before.is_some_and(|p| step.index <= p);
        r.previous = Some(step.index);
        if backward {
            let start = r.trace.steps.len();
            match r.loops.iter().rposition(|l| l.head == step.index) {
                Some(at) => {
                    r.loops.truncate(at + 1);
                    r.loops[at].rounds.push(start);
                }
                None => {
                    r.loops.retain(|l| l.head <= step.index);
                    r.loops.push(Loop { head: step.index, rounds: vec![start] });
                }
            }
            let l = &r.loops[r.loops.len() - 1];
            let inside = r.trace.skips.last().is_some_and(|s| s.at as usize > l.rounds[0]);
            // Whoever is waited for in a loop that goes round unwatched would never come.
            let waits = self
                .wait_loops
                .values()
                .flatten()
                .any(|w| w.first >= step.index && before.is_some_and(|p| w.last <= p));
            let goes_on = inside || waits || self.loops == Loops::Whole;
            if let (false, Some(window)) = (goes_on, steady(&l.rounds, &r.indices)) {
                let from = l.rounds[l.rounds.len() - 1 - window];
                let last = r.indices[from..].iter().copied().max().unwrap_or(step.index);
                let round = r.indices[l.rounds[l.rounds.len() - 2]..].to_vec();
                let full = self.needs_vectors(step, last, &round);
                let r = &mut self.current[wave];
                let rounds = observe::Loop { first: step.index, last, full };
                // The round that begins here is the first one left out.
                r.skipping = Some(Skipping { rounds, times: 1, from, recorded: window as u32 });
                r.loops.clear();
                return Verdict::Through(rounds);
            }
        }
        if r.trace.steps.len() >= MOST_STEPS {
            self.too_long = true;
            return Verdict::End;
        }
        let waits = self.is_waiting(step, n, wave);
        if waits.is_none()
            && let Some(end) = self.pass(step, n, wave)
        {
            return Verdict::Through(observe::Loop { first: step.index, last: end - 1, full: false });
        }
        let mut access = self.access(step, n);
        let Instr { sees_others, store, atomic, moves_data, .. } = self.instrs[n as usize];
        let polls = waits.is_some() && sees_others;
        if polls || (store || atomic) && moves_data && !self.watched.is_empty() {
            let within = if polls { 0..u64::MAX } else { self.watched.clone() };
            let dwords = self.dwords(step, within);
            let r = &mut self.current[wave];
            if !dwords.is_empty() {
                r.events.push(Event { step: r.trace.steps.len() as u32, publishes: !polls, atomic, dwords });
            }
        }
        if let (true, Some(a)) = (polls, &mut access) {
            *a = Access {
                lines: Vec::new(),
                polls: a.lines.len().max(1),
                level: waiting::shared_level(self.chip),
                ..*a
            };
        }
        let i = &self.instrs[n as usize];
        if self.left_out.is_some() && i.atomic && i.unit == Unit::Vmem {
            step.touches(&mut self.touched);
            self.changed.extend(self.touched.iter().filter_map(|a| Some((a.address, step.held(a)?))));
        }
        let touched = &mut self.touched;
        let flow = match &mut self.left_out {
            Some(s) => {
                let lines = access.as_ref().map_or(&[][..], |a| &a.lines);
                s.follow(wave, &self.instrs[n as usize], step.exec(), lines, || {
                    step.touches(touched);
                    touched
                })
            }
            None => Flow::Runs,
        };
        let r = &mut self.current[wave];
        let access = access.map(|a| {
            r.trace.accesses.push(a);
            (r.trace.accesses.len() - 1) as u32
        });
        r.indices.push(step.index);
        r.trace.steps.push(Step { instr: n, access, jumped: false });
        if let Some(l) = waits {
            match flow {
                _ if step.index == l.leaves => {
                    r.waits = None;
                    return Verdict::Leave(l.to);
                }
                // What was waited for decides only when the loop ends.
                Flow::Decides => return Verdict::Leave(step.index + 1),
                _ => {}
            }
        }
        match flow {
            Flow::Runs => Verdict::Run,
            Flow::Skipped => Verdict::Through(observe::Loop { first: step.index, last: step.index, full: false }),
            Flow::Decides => {
                self.depends = true;
                Verdict::End
            }
        }
    }

    fn jumped_back(&mut self, wave: u32, times: u64) {
        if let Some(s) = &mut self.current[wave as usize].skipping {
            s.times += times;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_thinned_trace_touches_and_executes_is_that_of_the_whole() {
        let step = |access: Option<u32>| Step { instr: 0, access, jumped: false };
        let access = |line: u64| Access { clocks: 1, level: Level::L2, lines: vec![line], store: false, polls: 0 };
        // Something before it, a loop of four steps a round that goes on for ten more rounds behind four, and something behind it.
        let mut steps = vec![step(None), step(Some(0))];
        let round = |n: u32| [step(None), step(Some(1 + n)), step(None), step(None)];
        steps.extend((0..4).flat_map(round));
        steps.push(step(None));
        let skips = vec![Skip { at: 18, from: 10, rounds: 2, times: 10, pace: None }];
        let whole = Trace { steps, accesses: (0..5).map(access).collect(), skips, ..Trace::default() };
        let touched = |t: &Trace| -> Vec<(u32, f64)> {
            t.steps.iter().zip(t.weights()).filter_map(|(s, w)| Some((s.access?, w))).collect()
        };
        let t = Target::GFX90A;
        let add = barewave_isa::parse(t, barewave_isa::Mode::of(t), "v_add_f32 v0, v1, v2").unwrap();
        let instrs = [Instr::new(t, &add.inst(), 64).unwrap()];
        let thin = whole.clone().thinned(&instrs).0;
        assert_eq!(thin.steps.len(), 5);
        assert_eq!(touched(&thin), touched(&whole));
        assert_eq!((thin.executed(), whole.executed()), (59.0, 59.0));
        assert_eq!((thin.work(&instrs), whole.work(&instrs)), (4.0 * 59.0, 4.0 * 59.0));
    }
}
