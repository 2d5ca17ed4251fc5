//! Layer 1: the waves of one compute unit, instruction by instruction.
//!
//! Waves issue in order. At each step the wave that can issue earliest does (of equals that of the highest priority, which
//! `s_setprio` sets, then the oldest, unless it is far ahead), and what it takes is marked busy: a slot of its SIMD, the unit, a port of LDS or memory. When a wave can issue is the latest of: its previous
//! instruction, its operands, the counters that it waits for, its unit, a barrier. Which of these it was is the stall's
//! reason.
//!
//! Rules by family, each with its source:
//! * GCN and CDNA: four SIMDs in turn, so a wave issues at every fourth clock, one instruction per unit and turn
//!   (rocprofiler-compute, "pipeline descriptions"). A matrix instruction takes the vector port for one turn and the matrix
//!   unit for its passes; others run in its shadow (pyhip's measurements on MI308X). There is no queue: a second matrix
//!   instruction blocks its wave (aster).
//! * RDNA (thread traces of gfx1100 and gfx1201): every clock, one instruction per unit and SIMD; results are interlocked, LDS
//!   and memory wait for all results of the vector ALU, scalar memory and branches for those of the scalar ALU. The vector
//!   ALU, which also multiplies matrices, executes in order what the waves of its SIMD have put into its queue. Results of
//!   transcendentals and masks are waited for there and do not hold up issue; 64-bit instructions take the transcendental
//!   unit, and hold up issue for as long as they execute.
//! * LDS: a wave's lanes go in phases; a phase takes as many turns as its busiest bank has different words.
//! * Memory: one cache line of the first level a turn; what is loaded comes back in order. What goes straight to LDS
//!   takes as much of its port as writes of as many bytes.

use crate::chip::Chip;
use crate::instr::{Instr, Meeting, Unit};
use crate::prepared::{COUNTERS, Clocks, Lists, NOTHING, PATHS, Path, Prepared, Program, Ready, SCALARS};
use crate::record::{Access, Level, Trace};
use crate::stall::{Issued, STALLS, Stall};
use crate::turn::{NOBODY, Turn, Until, Waiting, wave_of};
use rustc_hash::FxHashMap;
use skipped::{Added, Again, more_rounds};
use std::cmp::Reverse;
use std::collections::VecDeque;

mod skipped;

/// What is simulated: waves of workgroups that are resident at once.
pub struct Resident<'a> {
    /// What each instruction of the traces is.
    pub instrs: &'a [Instr],
    /// A workgroup's waves, for each workgroup.
    pub groups: Vec<&'a [Trace]>,
    /// Workgroups that take the places of those that have ended.
    pub queue: Vec<&'a [Trace]>,
    /// When each wave may issue first, by group and wave; empty: all at 0.
    pub starts: Vec<Vec<u64>>,
    /// Compute units that the waves are spread over: both of a work group processor in WGP mode, else one.
    pub cus: usize,
    /// The SIMD of each wave, groups in order, of which the oldest always goes first, as thread traces have them; else they
    /// are dealt out, and an older wave is not let far ahead.
    pub simds: Option<Vec<usize>>,
}

/// What the simulation found.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Clocks until the last wave has ended, rounds that were left out included.
    pub clocks: u64,
    /// Clocks of each unit that it was busy, over all SIMDs, rounds that were left out included; by its number.
    busy: [f64; UNITS],
    /// For each wave (groups in order): when each step of its trace was issued, and why not earlier.
    pub issued: Vec<Vec<Issued>>,
    /// For each wave: when it ended, with the rounds that were left out.
    pub ended: Vec<u64>,
    /// Clocks that waves stood still, by the reason's number.
    stalls: [u64; STALLS.len()],
}

impl Outcome {
    /// Clocks that a unit was busy, over all SIMDs, rounds that were left out included.
    pub fn busy_with(&self, unit: Unit) -> f64 {
        self.busy[unit as usize]
    }

    /// Clocks that waves stood still, by reason, most first.
    pub fn longest_stalls(&self) -> Vec<(Stall, u64)> {
        let mut out: Vec<(Stall, u64)> = STALLS.into_iter().zip(self.stalls).filter(|s| s.1 > 0).collect();
        out.sort_by_key(|s| (Reverse(s.1), s.0));
        out
    }
}

/// Instructions that an older wave may be ahead of a younger one by priority, a power of two. Hardware has no such bound, but only the first
/// rounds of loops are simulated, and these must be typical of all.
const AHEAD: usize = 32;
/// What executes instructions ([`Unit`]).
const UNITS: usize = Unit::Internal as usize + 1;

#[derive(Clone)]
struct Wave<'a> {
    trace: &'a Trace,
    /// Its next instruction, as soon as it waits for its turn.
    instr: &'a Prepared<'a>,
    group: usize,
    simd: usize,
    /// Next step.
    at: usize,
    /// When its last instruction lets the next one issue.
    next: u64,
    /// When its next instruction can issue as far as the wave itself is concerned, and what decides that.
    own: (u64, Stall),
    /// When what it reads of transcendentals is there: an RDNA instruction waits for that in the vector ALU's queue.
    in_queue: u64,
    ready: Vec<Ready>,
    /// Until when each scalar register is read by vector instructions (RDNA).
    reading: [u64; SCALARS],
    /// Last issue to the vector ALU, and to the scalar one.
    last_vector: Option<u64>,
    last_scalar: Option<u64>,
    /// Completion times of what each counter counts, in order of issue, and whether it is memory.
    outstanding: [Vec<(u64, bool)>; COUNTERS],
    /// When its last instruction was issued.
    last: Option<u64>,
    /// When each of its steps was issued, as if rounds that are simulated once more took no time but for the last ones; and what time these took.
    issued: Vec<Issued>,
    behind: u64,
    /// The loop whose recorded rounds are simulated again.
    again: Option<Again>,
    /// Instructions that it has issued, without those that cost nothing.
    progress: usize,
    extra: u64,
    /// What rounds that were left out have added.
    added: Vec<Added>,
    next_skip: usize,
    /// The step in front of which that is.
    skip_at: usize,
    released: Option<u64>,
    /// Phase of the barrier it signalled at, the phases it has arrived at, and whether it waits for one.
    signalled: Option<usize>,
    arrivals: usize,
    blocked: bool,
    /// Next of the trace's fetches.
    fetch: usize,
    /// 0 to 3, the highest.
    priority: u8,
}

#[derive(Default, Clone)]
struct Simd {
    /// Its port to LDS, and its compute unit.
    port: usize,
    cu: usize,
    /// The wave that issues first, of those that wait.
    first: usize,
    /// When each path is free, by what is below and what it shares with other SIMDs.
    free: [u64; PATHS],
    /// When the vector ALU is free; on RDNA instructions wait for it in a queue.
    valu: u64,
    /// When each of the latest vector instructions leaves the queue (RDNA).
    queue: VecDeque<u64>,
    /// Next clock at which a vector instruction may issue (RDNA).
    issued: u64,
    trans: u64,
    /// When the transcendental unit has executed what is in the queue (RDNA).
    special: u64,
    matrix: u64,
    salu: u64,
    branch: u64,
    lds: u64,
    vmem: u64,
}

/// A barrier of a workgroup in one phase.
#[derive(Default, Clone)]
struct Phase {
    arrived: usize,
    last: u64,
    waiting: Vec<usize>,
}

/// What SIMDs share.
#[derive(Clone)]
struct Shared {
    /// LDS ports: one per pair of SIMDs.
    ports: Vec<u64>,
    /// Ports to memory: one per compute unit.
    memory: Vec<u64>,
    scalar: u64,
    /// Clocks of each unit that it was busy with what is simulated.
    busy: [u64; UNITS],
    stalls: [u64; STALLS.len()],
}

#[derive(Clone)]
struct Unitary<'a> {
    quad: bool,
    program: &'a Program<'a>,
    waves: Vec<Wave<'a>>,
    simds: Vec<Simd>,
    shared: Shared,
    /// When lines of code are in the instruction cache.
    code: FxHashMap<u32, u64>,
    phases: Vec<Vec<Phase>>,
    alive: Vec<usize>,
    /// Of each loop of a workgroup's waves that was cut short, how many more rounds are simulated.
    more: Vec<Vec<u64>>,
    /// First workgroup that has no place yet.
    queued: usize,
    /// Clocks of each unit that it was busy with rounds that were left out.
    busy_more: [f64; UNITS],
    barrier: u64,
    /// Instructions that an older wave may be ahead, as a number of bits.
    ahead: u32,
    /// Waves of each SIMD that can go on, and of these the first's turn; [`NOBODY`] where there is none.
    waiting: Vec<Vec<Waiting>>,
    next: Vec<Turn>,
    /// Waves that what was just issued lets go on.
    woken: Vec<usize>,
    /// Some wave's code comes from memory.
    cold_code: bool,
}

/// Simulates resident workgroups of one compute unit, or of a work group processor.
pub fn simulate(chip: &Chip, what: &Resident) -> Outcome {
    simulate_until(chip, what, 0)
}

/// The same where what waves wait for is there at a clock.
pub(crate) fn simulate_until(chip: &Chip, what: &Resident, opens: u64) -> Outcome {
    let lists = Lists::of(chip, what.instrs);
    let mut program = Program::of(chip, what.instrs, &lists);
    program.clocks.opens = opens;
    let mut all = Unitary::new(chip, what, &program);
    all.run(false);
    all.outcome()
}

/// The same without the queue, and the clocks with it: until the first workgroup ends these are one simulation.
pub fn simulate_apart(chip: &Chip, what: &Resident) -> (Outcome, u64) {
    let lists = Lists::of(chip, what.instrs);
    let program = Program::of(chip, what.instrs, &lists);
    let mut all = Unitary::new(chip, what, &program);
    let ended = all.run(true);
    let mut alone = all.clone();
    alone.waves.retain(|w| w.group < what.groups.len());
    alone.run(false);
    if let Some((group, t)) = ended {
        all.start_queued(group, t);
        all.run(false);
    }
    (alone.outcome(), all.outcome().clocks)
}

impl Simd {
    /// It has issued on a path that is its own: finds when those that this touches are free.
    fn find_free(&mut self, path: Path, shared: &Shared) {
        match path {
            Path::Queue | Path::Special => {
                self.free[Path::Queue as usize] = self.issued;
                self.free[Path::Special as usize] = self.issued.max(self.trans);
            }
            Path::Vector | Path::Matrix => {
                self.free[Path::Vector as usize] = self.valu;
                self.free[Path::Matrix as usize] = self.valu.max(self.matrix);
            }
            Path::Salu => {
                self.free[Path::Salu as usize] = self.salu;
                self.free[Path::Smem as usize] = self.salu.max(shared.scalar);
            }
            Path::Branch => self.free[Path::Branch as usize] = self.branch,
            Path::Smem | Path::Lds | Path::Vmem | Path::Free => {}
        }
    }
}

impl Shared {
    /// Puts a wave's instruction into the queue of an RDNA SIMD's vector ALU; when its result is there.
    fn queue(&mut self, s: &mut Simd, wave: &mut Wave, clocks: &Clocks, t: u64) -> u64 {
        let i = wave.instr;
        let busy = u64::from(i.busy).max(1);
        let keeps = if i.unit == Unit::Trans { 1 } else { busy };
        s.issued = t + if i.wide { busy } else { 1 };
        let special = i.wide || i.unit == Unit::Trans;
        if special {
            s.trans = t + busy;
        }
        let start = s.valu.max(t).max(wave.in_queue).max(if special { s.special } else { 0 });
        if special {
            s.special = start + busy;
        }
        s.valu = start + keeps;
        s.queue.push_back(start + keeps + clocks.vector_retire);
        if s.queue.len() > clocks.vector_queue {
            // Until it has a place, it keeps its wave and the waves beside it from issuing another.
            let accepted = s.queue.pop_front().unwrap_or(t);
            s.issued = s.issued.max(accepted + 1);
            wave.next = wave.next.max(accepted + 1);
        }
        wave.last_vector = Some(start);
        self.busy[i.unit as usize] += busy;
        start + u64::from(i.latency)
    }

    /// Marks what any other instruction keeps busy; when its result is there.
    fn occupy(&mut self, s: &mut Simd, i: &Prepared, clocks: &Clocks, t: u64, access: Option<&Access>) -> u64 {
        let turn = clocks.turn;
        let busy = u64::from(i.busy).max(1);
        let mut used = busy;
        let done = match i.unit {
            Unit::Valu | Unit::Trans => {
                s.valu = t + busy;
                t + u64::from(i.latency)
            }
            Unit::Matrix => {
                s.valu = t + if i.blocks_vector { busy } else { turn };
                s.matrix = t + busy;
                t + u64::from(i.latency)
            }
            Unit::Salu => {
                s.salu = t + turn;
                t + u64::from(i.latency)
            }
            Unit::Smem => {
                s.salu = s.salu.max(t + turn);
                self.scalar = t + turn;
                used = turn;
                t + access.map_or(clocks.smem_hit, |a| clocks.scalar_levels[a.level as usize])
            }
            Unit::Lds => {
                let data = access.map_or(busy, |a| u64::from(a.clocks).max(1));
                used = data;
                let port = &mut self.ports[s.port];
                let start = (*port).max(t);
                *port = start + data;
                s.lds = t + turn;
                // The table's latency is that of an access without conflicts.
                start + clocks.lds_latency + data.saturating_sub(turn)
            }
            Unit::Vmem => {
                let lines = access.map_or(busy, |a| u64::from(a.clocks).max(1));
                used = lines;
                // A wave may run ahead of the port by some instructions.
                let start = self.memory[s.cu].max(t);
                self.memory[s.cu] = start + lines;
                s.vmem = t + turn;
                let level = access.map_or(Level::L1, |a| a.level);
                if i.fills > 0 {
                    // Writes of what has come since take the port meanwhile: as much as this load's will.
                    let port = &mut self.ports[s.port];
                    *port = (*port).max(t) + u64::from(i.fills);
                    self.busy[Unit::Lds as usize] += u64::from(i.fills);
                }
                let waits = access.is_some_and(|a| a.polls > 0);
                let asked = if waits { clocks.opens.max(start + lines) } else { start + lines };
                asked + clocks.levels[level as usize]
            }
            Unit::Branch => {
                s.branch = t + 1;
                t
            }
            Unit::Export | Unit::Internal => t,
        };
        self.busy[i.unit as usize] += used;
        done
    }
}

/// The first clock from one on that is a SIMD's turn of four.
fn turn_of(simd: usize, t: u64) -> u64 {
    let turn = simd as u64;
    t.saturating_sub(turn).next_multiple_of(4) + turn
}

impl<'a> Unitary<'a> {
    fn new(chip: &'a Chip, what: &Resident<'a>, program: &'a Program<'a>) -> Unitary<'a> {
        let simds = chip.target.info().simds as usize * what.cus;
        let mut waves = Vec::new();
        for (g, group) in what.groups.iter().chain(&what.queue).enumerate() {
            for (w, trace) in group.iter().enumerate() {
                let start = what.starts.get(g).and_then(|s| s.get(w)).copied().unwrap_or(0);
                waves.push(Wave {
                    trace,
                    instr: trace.steps.first().map_or(NOTHING, |s| program.instr(s.instr)),
                    group: g,
                    simd: what.simds.as_ref().map_or(waves.len(), |s| s[waves.len()]) % simds,
                    at: 0,
                    next: start,
                    own: (start, Stall::Issue),
                    in_queue: 0,
                    ready: vec![Ready::new(0, Unit::Internal); program.registers],
                    reading: [0; SCALARS],
                    last_vector: None,
                    last_scalar: None,
                    outstanding: Default::default(),
                    last: None,
                    issued: Vec::with_capacity(trace.steps.len()),
                    behind: 0,
                    again: None,
                    progress: 0,
                    extra: 0,
                    added: Vec::new(),
                    next_skip: 0,
                    skip_at: trace.skips.first().map_or(usize::MAX, |s| s.at as usize),
                    released: None,
                    signalled: None,
                    arrivals: 0,
                    blocked: false,
                    fetch: 0,
                    priority: 0,
                });
            }
        }
        let mut all = Unitary {
            quad: chip.quad_cadence(),
            program,
            alive: what.groups.iter().chain(&what.queue).map(|g| g.len()).collect(),
            phases: vec![Vec::new(); what.groups.len() + what.queue.len()],
            more: what.groups.iter().chain(&what.queue).map(|g| more_rounds(g)).collect(),
            queued: what.groups.len(),
            waves,
            simds: (0..simds).map(|n| Simd { port: n / 2, cu: n * what.cus / simds, ..Simd::default() }).collect(),
            shared: Shared {
                ports: vec![0; simds / 2],
                memory: vec![0; what.cus],
                scalar: 0,
                busy: [0; UNITS],
                stalls: [0; STALLS.len()],
            },
            code: FxHashMap::default(),
            busy_more: [0.0; UNITS],
            barrier: what.instrs.iter().find(|i| i.meeting.is_some()).map_or(8, |i| u64::from(i.latency)),
            ahead: if what.simds.is_some() { usize::BITS - 1 } else { AHEAD.ilog2() },
            waiting: vec![Vec::new(); simds],
            next: vec![NOBODY; simds],
            woken: Vec::new(),
            cold_code: what.groups.iter().chain(&what.queue).any(|g| g.iter().any(|t| !t.fetches.is_empty())),
        };
        let starts = |w: &Wave| w.group < all.queued && !w.trace.steps.is_empty();
        let first: Vec<usize> = (0..all.waves.len()).filter(|&w| starts(&all.waves[w])).collect();
        first.into_iter().for_each(|w| all.take_turn(w));
        all
    }

    /// Goes on until all waves have ended, or, if told to, until the first workgroup has: its number, and when.
    fn run(&mut self, until_one_ends: bool) -> Option<(usize, u64)> {
        loop {
            let next = self.next.iter().copied().fold(NOBODY, |a, b| a.min(b));
            if next == NOBODY {
                return None;
            }
            let (t, w) = ((next >> 64) as u64, wave_of(next));
            let Wave { simd, group, instr: Prepared { path, .. }, .. } = self.waves[w];
            let Simd { port, cu, first, .. } = self.simds[simd];
            self.waiting[simd].swap_remove(first);
            let more = self.issue(w, t);
            if !self.waves[w].blocked && more && !self.woken.contains(&w) {
                self.enter(w);
            }
            while let Some(w) = self.woken.pop() {
                self.take_turn(w);
            }
            if self.cold_code || matches!(path, Path::Smem | Path::Lds | Path::Vmem) {
                for s in 0..self.simds.len() {
                    let shared = match path {
                        _ if self.cold_code => true,
                        Path::Lds => self.simds[s].port == port,
                        Path::Vmem => self.simds[s].cu == cu,
                        _ => true,
                    };
                    if shared {
                        self.find_next(s);
                    }
                }
            } else {
                self.find_next(simd);
            }
            if !more && self.alive[group] == 0 {
                if until_one_ends {
                    return Some((group, t));
                }
                self.start_queued(group, t);
            }
        }
    }

    /// Finds the wave of a SIMD that issues first.
    fn find_next(&mut self, simd: usize) {
        if self.cold_code {
            for n in 0..self.waiting[simd].len() {
                let w = wave_of(self.waiting[simd][n].order.into());
                self.waiting[simd][n].own = self.own(&self.waves[w]).0.at;
            }
        }
        let free = &self.simds[simd].free;
        let (mut first, mut place) = ((u64::MAX, u64::MAX), 0);
        for (n, x) in self.waiting[simd].iter().enumerate() {
            let at = x.own.max(free[x.path as usize]);
            let at = if self.quad { turn_of(simd, at) } else { at };
            if at < first.0 || at == first.0 && x.order < first.1 {
                (first, place) = ((at, x.order), n);
            }
        }
        self.next[simd] = Turn::from(first.0) << 64 | Turn::from(first.1);
        self.simds[simd].first = place;
    }

    /// What was found.
    fn outcome(self) -> Outcome {
        let ended: Vec<u64> = self.waves.iter().map(|w| w.last.map_or(0, |at| at + 1) + w.extra).collect();
        let mut busy = self.busy_more;
        busy.iter_mut().zip(self.shared.busy).for_each(|(all, b)| *all += b as f64);
        // Rounds that were left out are counted at each wave's own pace, which together may promise more than a unit gives.
        let full = |unit: Unit| (busy[unit as usize] / self.simds.len() as f64).ceil() as u64;
        let least = full(Unit::Matrix).max(full(Unit::Valu));
        Outcome {
            clocks: ended.iter().copied().max().unwrap_or(0).max(least),
            ended,
            busy,
            issued: self.waves.into_iter().map(|w| w.issued).collect(),
            stalls: self.shared.stalls,
        }
    }

    /// Lets a wave wait for its turn.
    fn enter(&mut self, w: usize) {
        let wave = &self.waves[w];
        let instr = self.program.instr(wave.trace.steps[wave.at].instr);
        self.waves[w].instr = instr;
        let (own, in_queue) = self.own(&self.waves[w]);
        let wave = &mut self.waves[w];
        (wave.own, wave.in_queue) = ((own.at, own.why), in_queue);
        let priority = u64::from(3 - wave.priority.min(3));
        let order = priority << 62 | ((wave.progress >> self.ahead) as u64) << 32 | w as u64;
        self.waiting[wave.simd].push(Waiting { own: own.at, path: instr.path, order });
    }

    /// Lets a wave take part again.
    fn take_turn(&mut self, w: usize) {
        self.enter(w);
        self.find_next(self.waves[w].simd);
    }

    /// When a wave's next instruction can issue as far as the wave itself is concerned, and what decides that; when what it waits for in the vector
    /// ALU's queue is there.
    fn own(&self, wave: &Wave) -> (Until, u64) {
        let (i, clocks) = (wave.instr, &self.program.clocks);
        let (mut all, mut queued) = (Until { at: wave.next, why: Stall::Issue }, 0);
        if let Some(at) = wave.released {
            all.later(at, Stall::Barrier);
        }
        for n in i.needed {
            let ready = wave.ready[usize::from(n.register)];
            // The usual case, in the queue too: it is there when the instruction issues.
            if ready.at() <= all.at {
                continue;
            }
            let matrix = ready.by(Unit::Matrix);
            // An RDNA instruction issues before a mask or transcendental's result is there, and waits in the vector ALU's queue.
            let trans = ready.by(Unit::Trans);
            let in_queue = !self.quad && i.vector && (trans || n.scalar && ready.by_vector());
            if in_queue {
                if trans && n.read {
                    queued = queued.max(ready.at());
                }
            } else if !(matrix && n.forwarded) {
                all.later(ready.at(), if matrix { Stall::Matrix } else { Stall::Dependency });
            }
        }
        if i.unit == Unit::Salu {
            i.masks.iter().for_each(|r| all.later(wave.reading[usize::from(*r)], Stall::Dependency));
        }
        if let Some(f) = wave.trace.fetches.get(wave.fetch).filter(|f| f.needed as usize == wave.at)
            && let Some(at) = self.code.get(&f.line)
        {
            all.later(*at, Stall::Code);
        }
        for (counter, most) in i.waits {
            let list = &wave.outstanding[usize::from(*counter)];
            if list.len() > usize::from(*most) {
                let (at, memory) = list[list.len() - 1 - usize::from(*most)];
                all.later(at + clocks.wait_release, if memory { Stall::Memory } else { Stall::Lds });
            }
        }
        if !self.quad
            && matches!(i.unit, Unit::Lds | Unit::Vmem)
            && let Some(last) = wave.last_vector
        {
            all.later(last + clocks.valu_to_memory, Stall::Dependency);
        }
        if let (Some(clocks), Some(last)) = (i.after_scalar, wave.last_scalar) {
            all.later(last + u64::from(clocks), Stall::Dependency);
        }
        (all, queued)
    }

    /// Issues the wave's next instruction at `t`: whether it has more. Waves that it lets go on are in `woken`.
    fn issue(&mut self, w: usize, t: u64) -> bool {
        if self.cold_code {
            let (own, in_queue) = self.own(&self.waves[w]);
            (self.waves[w].own, self.waves[w].in_queue) = ((own.at, own.why), in_queue);
        }
        let (wave, clocks) = (&mut self.waves[w], &self.program.clocks);
        let (s, i, simd) = (&mut self.simds[wave.simd], wave.instr, wave.simd);
        let (own, mut why) = wave.own;
        if s.free[i.path as usize] > own {
            why = i.path.stall();
        }
        let trace = wave.trace;
        let step = &trace.steps[wave.at];
        let access = step.access.map(|a| &trace.accesses[a as usize]);
        let previous = wave.last.map_or(t, |at| at + clocks.turn);
        if t > previous {
            self.shared.stalls[why as usize] += t - previous;
        }
        let done = match i.vector && !self.quad {
            true => self.shared.queue(s, wave, clocks, t),
            false => self.shared.occupy(s, i, clocks, t, access),
        };
        wave.issued.push(Issued::new(t - wave.behind, if t > previous { why } else { Stall::None }));
        (wave.last, wave.progress, wave.released) = (Some(t), wave.progress + usize::from(!i.free), None);
        for r in i.written {
            let at = if r.late { t + clocks.valu_to_scalar } else { done };
            wave.ready[usize::from(r.register)] = Ready::new(at, i.unit);
        }
        if i.vector {
            i.masks.iter().for_each(|r| wave.reading[usize::from(*r)] = t + clocks.scalar_read);
        }
        if self.cold_code {
            for f in trace.fetches[wave.fetch..].iter().take_while(|f| f.asked as usize <= wave.at) {
                self.code.entry(f.line).or_insert(t + clocks.smem_cold);
            }
            wave.fetch += trace.fetches[wave.fetch..].iter().take_while(|f| f.needed as usize <= wave.at).count();
        }
        for c in i.counters {
            let list = &mut wave.outstanding[usize::from(*c)];
            let last = list.last().map_or(0, |l| l.0);
            list.push((done.max(last), i.unit == Unit::Vmem));
        }
        if i.unit == Unit::Salu {
            wave.last_scalar = Some(t);
        }
        wave.next = wave.next.max(t + clocks.turn * u64::from(i.idle.max(1)));
        if i.free {
            wave.next = t;
        }
        if i.unit == Unit::Branch {
            wave.next = t + if step.jumped { clocks.branch_taken } else { 3.max(clocks.turn) };
        }
        wave.at += 1;
        wave.priority = i.priority.unwrap_or(wave.priority);
        let (group, skips) = (wave.group, wave.at == wave.skip_at);
        match i.path {
            Path::Smem | Path::Lds | Path::Vmem => self.find_free(simd, i.path),
            path => s.find_free(path, &self.shared),
        }
        if i.fills > 0 {
            self.find_free(simd, Path::Lds);
        }
        if let Some(meeting) = i.meeting {
            self.meet(w, t, meeting);
        }
        if skips {
            self.pass_skips(w);
        }
        let more = self.waves[w].at < trace.steps.len();
        if !more {
            // The wave has ended: others may have waited only for it.
            self.alive[group] -= 1;
            (0..self.phases[group].len()).for_each(|p| self.complete(group, p));
        }
        more
    }

    /// A SIMD has issued to memory: finds when that is free for it and those that share it.
    fn find_free(&mut self, simd: usize, path: Path) {
        let c = &self.program.clocks;
        let Simd { port, cu, .. } = self.simds[simd];
        match path {
            Path::Lds => {
                let busy = self.shared.ports[port].saturating_sub(c.lds_backlog);
                for s in self.simds.iter_mut().filter(|s| s.port == port) {
                    s.free[Path::Lds as usize] = s.lds.max(busy);
                }
            }
            Path::Vmem => {
                let busy = self.shared.memory[cu].saturating_sub(c.memory_backlog);
                for s in self.simds.iter_mut().filter(|s| s.cu == cu) {
                    s.free[Path::Vmem as usize] = s.vmem.max(busy);
                }
            }
            _ => self.simds.iter_mut().for_each(|s| s.find_free(Path::Salu, &self.shared)),
        }
    }

    /// Starts the next workgroup in the place of one that has ended.
    fn start_queued(&mut self, ended: usize, t: u64) {
        let next = self.queued;
        self.queued += 1;
        let extra = self.waves.iter().filter(|w| w.group == ended).map(|w| w.extra).max().unwrap_or(0);
        for i in 0..self.waves.len() {
            let w = &mut self.waves[i];
            if w.group == next && !w.trace.steps.is_empty() {
                (w.next, w.extra) = (t + self.program.clocks.dispatch, extra);
                self.take_turn(i);
            }
        }
    }

    /// A wave comes to a barrier.
    fn meet(&mut self, w: usize, t: u64, meeting: Meeting) {
        let group = self.waves[w].group;
        let arrives = !matches!(meeting, Meeting::Wait);
        let mut phase = self.waves[w].signalled.unwrap_or(usize::MAX);
        if arrives {
            // The phase after those that the wave has been through.
            phase = self.waves[w].arrivals;
            self.waves[w].arrivals += 1;
            while self.phases[group].len() <= phase {
                self.phases[group].push(Phase::default());
            }
            let p = &mut self.phases[group][phase];
            p.arrived += 1;
            p.last = p.last.max(t);
            self.waves[w].signalled = Some(phase);
        }
        if matches!(meeting, Meeting::Barrier | Meeting::Wait) && phase != usize::MAX {
            self.phases[group][phase].waiting.push(w);
            self.waves[w].blocked = true;
        }
        if phase != usize::MAX {
            self.complete(group, phase);
        }
    }

    /// Lets the waves of a barrier go on when all that live have arrived.
    fn complete(&mut self, group: usize, phase: usize) {
        let alive = self.alive[group];
        let p = &mut self.phases[group][phase];
        if p.waiting.is_empty() || p.arrived < alive {
            return;
        }
        let at = p.last + self.barrier;
        for w in p.waiting.drain(..) {
            let wave = &mut self.waves[w];
            wave.next = at.max(wave.next);
            (wave.released, wave.blocked) = (Some(wave.next), false);
            self.woken.push(w);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Step;
    use barewave_isa::{Mode, Target, parse};

    /// When each of two waves of one SIMD issues its last instruction; both add, behind `first` of each.
    fn last(first: [&str; 2]) -> [u64; 2] {
        let t = Target::GFX1100;
        let chip = Chip::of(t).unwrap();
        let adds: Vec<String> = (0..8).map(|n| format!("v_add_f32 v{n}, v20, v21")).collect();
        let texts: Vec<&str> = first.into_iter().chain(adds.iter().map(String::as_str)).collect();
        let instr = |text: &&str| Instr::new(t, &parse(t, Mode::of(t), text).unwrap().inst(), 32).unwrap();
        let instrs: Vec<Instr> = texts.iter().map(instr).collect();
        let trace = |first: u32| {
            let steps = [first].into_iter().chain(2..10).map(|instr| Step { instr, access: None, jumped: false });
            [Trace { steps: steps.collect(), ..Trace::default() }]
        };
        let traces = [trace(0), trace(1)];
        let groups = traces.iter().map(|t| &t[..]).collect();
        let simds = Some(vec![0, 0]);
        let what = Resident { instrs: &instrs, groups, queue: Vec::new(), starts: Vec::new(), cus: 1, simds };
        let outcome = simulate(&chip, &what);
        [0, 1].map(|w| outcome.issued[w].last().unwrap().at())
    }

    #[test]
    fn a_higher_priority_goes_first() {
        let [older, younger] = last(["s_setprio 0", "s_setprio 0"]);
        assert!(older < younger, "{older} {younger}");
        let [older, younger] = last(["s_setprio 0", "s_setprio 3"]);
        assert!(younger < older, "{older} {younger}");
    }
}
