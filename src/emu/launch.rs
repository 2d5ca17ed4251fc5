//! Launching: from a grid to waves with their initial registers, run by a pool of threads.
//!
//! Threads take workgroups in order of their number. Within a workgroup waves take turns: each runs until a barrier, a
//! sleep, its time slice or its end; when all that are left stand at a barrier they go on.
//!
//! A workgroup may wait in a loop for one that has a higher number (barriers of a whole grid do). A wave that jumps back in
//! such a loop ([`spin`](super::spin)) ends its turn. A thread whose workgroups all do nothing else starts more of them, twice as
//! many each time, and goes on with so many until the launch ends. So does, until a workgroup ends, a thread
//! that works for long without finishing one, since not every loop that waits looks like one. How many may run at once is
//! bounded by the memory for their registers ([`RESIDENT_BYTES`]), as it is on hardware, or by what a launch asks for.

use super::dispatch::{Launch, SLICE};
use super::exec::barrier;
use super::fault::{Fault, FaultKind};
use super::observe::{self, Observer, Watch};
use super::program::Program;
use super::queue::pool;
use super::spin;
use super::strict::Checker;
use super::wave::{
    Ctl, DX10_CLAMP, EXEC, FP16_OVFL, GroupState, IEEE, POISON, PRIVATE_APERTURE, SCALARS, SHARED_APERTURE, VCC, Wave,
    scalar,
};
use crate::codeobj::{Descriptor, Family};
use barewave_isa::{Quirk, Reg};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// What a launch did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LaunchStats {
    /// Workgroups run.
    pub workgroups: u64,
    /// Waves run.
    pub waves: u64,
    /// Instructions executed, summed over waves, without the rounds of loops in which waves wait and find nothing: how many
    /// those are, the threads of the host decide.
    pub instructions: u64,
}

/// Work of a thread that finishes no workgroup, counted like [`TURN`], before it starts more.
const PATIENCE: u64 = 1 << 22;
/// The same for each workgroup of a thread that only waits.
const WAITING: u64 = 1 << 13;
/// Instructions of a turn at most in which a wave has done nothing but to wait.
const LOOKING: u64 = 4 * spin::LONGEST as u64;
/// Waves of a launch that the calling thread begins alone: it may be over before others have woken up.
const TINY: u64 = 16;
/// Work of a tiny launch, counted like [`TURN`], after which the threads of the pool help all the same.
const ALONE: u64 = 1 << 12;
/// What a turn of a workgroup costs besides its instructions, counted in instructions.
const TURN: u64 = 64;
/// What a look at the real time counts, in instructions.
const LOOK: u64 = 1 << 14;
/// Bytes of registers and LDS of the workgroups that one thread runs at once.
const RESIDENT_BYTES: usize = 1 << 30;

impl Launch<'_> {
    fn descriptor(&self) -> &Descriptor {
        &self.kernel.descriptor
    }
    fn family(&self) -> Family {
        self.machine.family
    }
    fn lanes(&self) -> usize {
        self.program.lanes
    }
    fn threads(&self) -> u32 {
        self.block.iter().product()
    }
    fn waves_per_group(&self) -> u32 {
        self.threads().div_ceil(self.lanes() as u32)
    }

    /// Scratch bytes per lane.
    fn scratch_per_lane(&self) -> u32 {
        let fixed = self.descriptor().scratch_bytes;
        let dynamic = self.kernel.meta.as_ref().is_some_and(|m| m.dynamic_stack)
            || self.descriptor().properties.contains(crate::codeobj::Properties::DYNAMIC_STACK);
        let size = if dynamic { fixed.saturating_add(self.options.stack) } else { fixed };
        size.next_multiple_of(16)
    }

    /// Runs all workgroups.
    pub fn run(&self) -> Result<LaunchStats, Fault> {
        let total = self.grid.iter().map(|&g| g as u64).product::<u64>();
        if self.program.code.ends_at(self.entry) {
            // It does nothing, in however many workgroups.
            let waves = total * self.waves_per_group() as u64;
            return Ok(LaunchStats { workgroups: total, waves, instructions: waves });
        }
        let next = AtomicU64::new(0);
        let stop = AtomicBool::new(false);
        let first: Mutex<Option<(u64, Fault)>> = Mutex::new(None);
        let instructions = AtomicU64::new(0);
        // Turns of all threads in which workgroups did anything but to wait.
        let moves = AtomicU64::new(0);
        let threads = if self.options.single_thread { 1 } else { pool().current_num_threads() as u64 };
        let report = |id: u64, f: Fault| {
            stop.store(true, Ordering::Relaxed);
            let mut slot = first.lock().unwrap_or_else(|e| e.into_inner());
            if slot.as_ref().is_none_or(|(other, _)| id < *other) {
                *slot = Some((id, f));
            }
        };
        // `help` is called once, when there turns out to be more than one thread should do alone.
        let worker = |n: u64, help: &dyn Fn()| {
            let mut alone = 0;
            if total * u64::from(self.waves_per_group()) > TINY {
                alone = ALONE;
                help();
            }
            let (mut running, mut idle): (Vec<Group>, Vec<Group>) = (Vec::new(), Vec::new());
            let mut room = Room::default();
            let (mut own, mut seen) = (0, 0);
            while !stop.load(Ordering::Relaxed) {
                while running.len() < room.groups {
                    let made = idle.pop().map_or_else(|| Group::new(self, n), Ok);
                    let mut group = match made {
                        Ok(g) => g,
                        Err(kind) if running.is_empty() => return report(0, self.launch_fault(kind)),
                        // No memory for more: those that run have to do.
                        Err(_) => break,
                    };
                    let id = next.fetch_add(1, Ordering::Relaxed);
                    if id >= total {
                        idle.push(group);
                        break;
                    }
                    if let Err(f) = group.begin(self, id) {
                        report(id, *f);
                    }
                    running.push(group);
                }
                if running.is_empty() {
                    break;
                }
                if self.options.deadline.is_some_and(|d| Instant::now() >= d) {
                    let group = &mut running[0];
                    let n = group.states.iter().position(|s| *s != State::Done).unwrap_or(0);
                    group.waves[n].fault = Some((FaultKind::Timeout, None));
                    report(group.id, fault(self, &mut group.waves[n]));
                    break;
                }
                let before = running.len();
                let (mut work, mut waiting) = (0, true);
                let looks = self.state.looks.load(Ordering::Relaxed);
                let mut i = 0;
                while i < running.len() {
                    let group = &mut running[i];
                    let count = group.count;
                    let done = group.turn(self, None).unwrap_or_else(|f| {
                        report(group.id, *f);
                        true
                    });
                    // A turn costs something, however few instructions it has.
                    work += group.count - count + TURN;
                    waiting &= group.waits && !done;
                    if done {
                        instructions.fetch_add(group.counted(), Ordering::Relaxed);
                        idle.push(running.remove(i));
                    } else {
                        i += 1;
                    }
                }
                // Who looks at the time waits for it to pass: others may start meanwhile.
                work += LOOK * self.state.looks.load(Ordering::Relaxed).wrapping_sub(looks);
                if let Some(attend) = &self.options.services.attend {
                    attend();
                }
                if alone < ALONE {
                    alone += work;
                    if alone >= ALONE {
                        help();
                    }
                }
                let fit = running.first().map_or(1, |group| RESIDENT_BYTES / group.bytes());
                let most = self.options.resident.unwrap_or(fit).max(1);
                if !waiting {
                    moves.fetch_add(1, Ordering::Relaxed);
                    own += 1;
                }
                // While others get on, what is waited for may be theirs: workgroups that are begun only to wait are not theirs to run any more.
                let others = moves.load(Ordering::Relaxed) - own;
                let elsewhere = waiting && others != std::mem::replace(&mut seen, others);
                room.after(work, waiting && !elsewhere, before, (running.len(), most));
                if elsewhere {
                    std::thread::yield_now();
                }
            }
            running.iter_mut().chain(&mut idle).for_each(|g| g.release(self));
        };
        let workers = threads.min(total);
        if workers <= 1 {
            worker(0, &|| {});
        } else {
            let worker = &worker;
            let next = &next;
            pool().in_place_scope(|scope| {
                worker(0, &|| {
                    let left = total.saturating_sub(next.load(Ordering::Relaxed));
                    (1..workers.min(left + 1)).for_each(|n| scope.spawn(move |_| worker(n, &|| {})));
                });
            });
        }
        if let Some((_, f)) = first.into_inner().unwrap_or_else(|e| e.into_inner()) {
            return Err(f);
        }
        Ok(LaunchStats {
            workgroups: total,
            waves: total * self.waves_per_group() as u64,
            instructions: instructions.into_inner(),
        })
    }

    /// Runs some workgroups one after the other, and shows every instruction to an observer.
    pub fn run_observed(&self, workgroups: &[u64], observer: &mut dyn Observer) -> Result<LaunchStats, Fault> {
        let total = self.grid.iter().map(|&g| u64::from(g)).product::<u64>();
        let mut group = Group::new(self, 0).map_err(|kind| self.launch_fault(kind))?;
        let mut stats = LaunchStats::default();
        let mut watch = Watch::new(self.program, observer);
        let mut run = || {
            for &id in workgroups.iter().filter(|id| **id < total) {
                group.begin(self, id).map_err(|f| *f)?;
                watch.begin(self.workgroup(id), self.waves_per_group());
                while !group.turn(self, Some(&mut watch)).map_err(|f| *f)? {
                    if self.options.deadline.is_some_and(|d| Instant::now() >= d) {
                        return Err(self.launch_fault(FaultKind::Timeout));
                    }
                }
                stats.workgroups += 1;
                stats.waves += u64::from(self.waves_per_group());
                stats.instructions += group.counted();
            }
            Ok(())
        };
        let result = run();
        group.release(self);
        result.map(|()| stats)
    }

    fn launch_fault(&self, kind: FaultKind) -> Fault {
        Fault {
            kind,
            operator: None,
            kernel: self.kernel.name.clone(),
            pc: self.kernel.entry,
            instruction: String::new(),
            workgroup: [0; 3],
            wave: 0,
            lane: None,
        }
    }

    /// Sets the registers of a wave as the command processor does.
    fn start(&self, w: &mut Wave, index: u32, workgroup: [u32; 3], scratch: u64, per_wave: u64) {
        let (d, family, lanes) = (self.descriptor(), self.family(), self.lanes());
        w.s = [POISON; SCALARS];
        w.index = index;
        w.workgroup = workgroup;
        (w.count, w.in_vain) = (0, 0);
        (w.passed, w.waits_for, w.joined, w.gws_phase, w.vskip) = (0, None, None, None, false);
        w.gpr_idx = (0, 0);
        w.fault = None;
        w.scratch_size = per_wave;
        w.hidden_private = scratch;
        let flag = |on: bool, bit: u32| if on { bit } else { 0 };
        let bits = flag(d.dx10_clamp(family), DX10_CLAMP) | flag(d.ieee_mode(family), IEEE);
        w.set_mode(d.float_mode() | bits | flag(d.fp16_overflow(), FP16_OVFL));
        let left = self.threads() - index * lanes as u32;
        let exec = if left >= lanes as u32 { w.all() } else { (1u64 << left) - 1 };
        for r in scalar(Reg::VCC_LO)..SCALARS as u32 {
            w.s[r as usize] = 0;
        }
        w.set_pair(EXEC, exec);
        w.set_pair(VCC, 0);
        for (base, limit, aperture) in [
            (Reg::SHARED_BASE, Reg::SHARED_LIMIT, SHARED_APERTURE),
            (Reg::PRIVATE_BASE, Reg::PRIVATE_LIMIT, PRIVATE_APERTURE),
        ] {
            w.set_pair(scalar(base) as usize, (aperture as u64) << 32);
            w.set_pair(scalar(limit) as usize, (aperture as u64) << 32 | 0xffff_ffff);
        }

        // User SGPRs.
        let l = d.user_sgpr_layout(family);
        let wave_offset = index as u64 * per_wave;
        if let Some(at) = l.private_segment_buffer {
            let at = at as usize;
            let stride_index = if lanes == 64 { 3 } else { 2 };
            let size = per_wave * self.waves_per_group() as u64;
            w.s[at] = scratch as u32;
            w.s[at + 1] = (scratch >> 32) as u32 & 0xffff | 1 << 31;
            w.s[at + 2] = size.min(u32::MAX as u64) as u32;
            w.s[at + 3] = self.machine.target.info().scratch_buffer_word3 | stride_index << 21;
        }
        let mut pair = |at: Option<u16>, v: u64| {
            if let Some(at) = at {
                w.set_pair(at as usize, v);
            }
        };
        pair(l.dispatch_ptr, self.packet);
        pair(l.queue_ptr, self.packet + 64);
        pair(l.kernarg_segment_ptr, self.kernarg);
        pair(l.dispatch_id, 0);
        let init = if family.has(Quirk::FlatScratchSizes) { (self.scratch_per_lane() as u64) << 32 } else { scratch };
        pair(l.flat_scratch_init, init);
        if let Some(at) = l.private_segment_size {
            w.s[at as usize] = self.scratch_per_lane();
        }
        if let Some((at, dwords, offset)) = l.kernarg_preload {
            let mut bytes = vec![0; dwords as usize * 4];
            self.memory.read(self.kernarg + offset as u64 * 4, &mut bytes);
            for (i, b) in bytes.chunks_exact(4).enumerate() {
                w.s[at as usize + i] = u32::from_le_bytes([b[0], b[1], b[2], b[3]]);
            }
        }
        for (i, at) in l.system.workgroup_id.iter().enumerate() {
            if let Some(at) = at {
                w.s[*at as usize] = workgroup[i];
            }
        }
        if family.architected_workgroup_ids() {
            w.s[scalar(Reg::ttmp(9)) as usize] = workgroup[0];
            w.s[scalar(Reg::ttmp(7)) as usize] = workgroup[1] & 0xffff | workgroup[2] << 16;
            w.s[scalar(Reg::ttmp(8)) as usize] = index << 25;
        }
        if let Some(at) = l.system.workgroup_info {
            w.s[at as usize] = (index == 0) as u32 | self.waves_per_group();
        }
        if let Some(at) = l.system.scratch_wave_offset {
            w.s[at as usize] = wave_offset as u32;
        }
        w.architected_scratch = family.architected_flat_scratch();
        w.flat_scratch = scratch + wave_offset;
        if w.architected_scratch {
            let base = w.flat_scratch;
            w.set_pair(scalar(Reg::FLAT_SCRATCH_LO) as usize, base);
            w.set_pair(scalar(Reg::FLAT_SCRATCH_BASE_LO) as usize, base);
        }

        // Vector registers.
        let vgprs = d.vgprs(family).min(self.machine.vgprs) as usize;
        w.poison(0, vgprs);
        if self.machine.agprs > 0 {
            let n = match d.accum_offset(family) {
                Some(a) => d.vgprs(family).saturating_sub(a),
                None => self.machine.agprs,
            };
            w.poison(self.machine.vgprs as usize, n as usize);
        }
        let packed = family.packed_workitem_ids();
        let [bx, by, _] = self.block;
        for lane in 0..lanes {
            let n = index * lanes as u32 + lane as u32;
            let (x, y, z) = (n % bx, n / bx % by, n / bx / by);
            if packed {
                let mut v = x;
                v |= if d.workitem_ids() >= 1 { y << 10 } else { 0 };
                v |= if d.workitem_ids() >= 2 { z << 20 } else { 0 };
                w.set_lane(0, lane, v);
            } else {
                w.set_lane(0, lane, x);
                if d.workitem_ids() >= 1 {
                    w.set_lane(lanes as u32, lane, y);
                }
                if d.workitem_ids() >= 2 {
                    w.set_lane(2 * lanes as u32, lane, z);
                }
            }
        }
    }
}

/// How many workgroups a thread runs at once.
struct Room {
    groups: usize,
    /// They were found to wait for others: there stay so many.
    found: bool,
    /// Work since a workgroup ended or there were more, and since one did anything but to wait.
    work: u64,
    waited: u64,
}

impl Default for Room {
    fn default() -> Room {
        Room { groups: 1, found: false, work: 0, waited: 0 }
    }
}

impl Room {
    /// Each of so many workgroups had a turn, with so much work, and those that still run only waited, as all others do, or did not: so many, of so many that may.
    fn after(&mut self, work: u64, waiting: bool, before: usize, (running, most): (usize, usize)) {
        self.work += work;
        self.waited = if waiting { self.waited + work } else { 0 };
        let ended = running < before;
        self.found |= self.waited > WAITING * before as u64;
        if ended && !self.found {
            self.groups = 1;
        }
        let longer = self.waited > WAITING * before as u64 || self.work > PATIENCE;
        if longer && !ended {
            self.groups = self.groups.max((2 * before).min(most));
        }
        if ended || longer {
            (self.work, self.waited) = (0, 0);
        }
    }
}

/// The waves and the LDS of a workgroup that runs, used again for later ones.
struct Group {
    id: u64,
    /// Instructions executed.
    count: u64,
    /// Its waves did nothing but to wait for others in their last turn.
    waits: bool,
    states: Vec<State>,
    waves: Vec<Wave>,
    lds: Vec<u8>,
    scratch: u64,
    per_wave: u64,
    checker: Option<Checker>,
    state: Box<GroupState>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Ready,
    AtBarrier,
    Done,
}

impl Group {
    fn new(l: &Launch, thread: u64) -> Result<Group, FaultKind> {
        let n = l.waves_per_group() as usize;
        let per_wave = (l.scratch_per_lane() as u64 * l.lanes() as u64).next_multiple_of(1024);
        let uses_scratch = l.scratch_per_lane() > 0;
        let scratch = match uses_scratch {
            false => 0,
            true => l
                .memory
                .alloc(per_wave * n as u64)
                .ok_or_else(|| FaultKind::Launch("no device memory is left for scratch".into()))?,
        };
        let mut waves: Vec<Wave> = (0..n).map(|_| Wave::new(l.lanes(), l.machine.rows(), l.memory.view())).collect();
        for w in &mut waves {
            w.program = &l.program.code;
            w.waves = n as u32;
            w.quirks = l.machine.quirks();
            w.cu = thread as u32;
            w.launch = &l.state;
        }
        let refused = |e| FaultKind::Launch(format!("the host has no memory for strict mode: {e}"));
        let checker = l.options.strict.then(|| Checker::new(l, n)).transpose().map_err(refused)?;
        Ok(Group {
            id: 0,
            count: 0,
            waits: false,
            states: Vec::new(),
            waves,
            lds: vec![0; l.lds_size as usize + 64],
            scratch,
            per_wave,
            checker,
            state: Box::default(),
        })
    }

    fn release(&mut self, l: &Launch) {
        if self.scratch != 0 {
            l.memory.free_now(self.scratch);
        }
    }

    /// What its waves have executed, but for rounds in which they waited in vain.
    fn counted(&self) -> u64 {
        self.count - self.waves.iter().map(|w| w.in_vain).sum::<u64>()
    }

    /// Host memory of its registers and LDS.
    fn bytes(&self) -> usize {
        self.waves.iter().map(|w| 4 * w.elements()).sum::<usize>() + self.lds.len()
    }

    /// Puts everything into the state in which workgroup `id` starts.
    fn begin(&mut self, l: &Launch, id: u64) -> Result<(), Box<Fault>> {
        (self.id, self.count) = (id, 0);
        let workgroup = l.workgroup(id);
        // Undefined LDS holds a pattern that is neither zero nor a small number.
        for (i, b) in self.lds.iter_mut().enumerate() {
            *b = POISON.to_le_bytes()[i % 4];
        }
        let lds = self.lds.as_mut_ptr();
        let Some(entry) = l.program.code.index_of(l.entry) else {
            return Err(Box::new(l.launch_fault(FaultKind::BadJump(l.entry))));
        };
        *self.state = GroupState { arrived: vec![0; self.waves.len()], ..GroupState::default() };
        let state: *mut GroupState = &mut *self.state;
        for (i, w) in self.waves.iter_mut().enumerate() {
            w.group = state;
            w.lds = lds;
            w.lds_size = l.lds_size;
            l.start(w, i as u32, workgroup, self.scratch, self.per_wave);
            w.ip = entry;
        }
        if let Some(c) = &mut self.checker {
            c.begin(l, id, &self.waves);
        }
        self.states = vec![State::Ready; self.waves.len()];
        Ok(())
    }

    /// Gives every wave that is ready a time slice; true when all waves have ended.
    fn turn(&mut self, l: &Launch, mut watch: Option<&mut Watch>) -> Result<bool, Box<Fault>> {
        let mut alive = false;
        self.waits = true;
        for (w, state) in self.waves.iter_mut().zip(&mut self.states) {
            alive |= *state != State::Done;
            if *state != State::Ready {
                continue;
            }
            let before = w.count;
            let ctl = match (&mut self.checker, &mut watch) {
                (None, None) => interpret(w, l.program),
                (Some(c), None) => c.interpret(w, l),
                (_, Some(o)) => observe::interpret(w, l, o),
            };
            let executed = w.count - before;
            self.count += executed;
            self.waits &= executed <= LOOKING && matches!(ctl, Ctl::Spin | Ctl::Retry | Ctl::Yield);
            match ctl {
                Ctl::End => *state = State::Done,
                Ctl::Barrier => *state = State::AtBarrier,
                Ctl::Fault => return Err(Box::new(fault(l, w))),
                _ if self.count > l.options.max_instructions => {
                    w.fault = Some((FaultKind::InstructionLimit(l.options.max_instructions), None));
                    return Err(Box::new(fault(l, w)));
                }
                _ => {}
            }
        }
        if !alive {
            return Ok(true);
        }
        self.release_waves(l);
        let stuck = self.states.iter().all(|s| matches!(s, State::Done | State::AtBarrier));
        if let (true, Some(i)) = (stuck, self.states.iter().position(|s| *s == State::AtBarrier)) {
            let w = &mut self.waves[i];
            // The barrier is the operation before the one that would come next.
            w.ip = w.ip.saturating_sub(1);
            w.fault = Some((FaultKind::BarrierDeadlock, None));
            return Err(Box::new(fault(l, w)));
        }
        Ok(false)
    }

    /// Lets waves go on whose barrier is complete.
    fn release_waves(&mut self, l: &Launch) {
        let before = self.states.clone();
        let mut met = false;
        for (i, w) in self.waves.iter_mut().enumerate() {
            if before[i] == State::AtBarrier && barrier::released(w, |n| before[n] != State::Done) {
                self.states[i] = State::Ready;
                met = true;
            }
        }
        if met && let Some(c) = &mut self.checker {
            c.barrier(l);
        }
    }
}

fn fault(l: &Launch, w: &mut Wave) -> Fault {
    let (kind, lane) = w.fault.take().unwrap_or((FaultKind::IllegalInstruction, None));
    let pc = l.program.ops[w.ip.min(l.program.ops.len() - 1)].pc;
    Fault {
        kind,
        operator: None,
        kernel: l.kernel.name.clone(),
        pc: (l.program.code.base + pc as u64).wrapping_sub(l.entry).wrapping_add(l.kernel.entry),
        instruction: l.program.code.text_at(pc),
        workgroup: w.workgroup,
        wave: w.index,
        lane,
    }
}

/// Runs a wave until it stops; `w.ip` then is the next operation (or the one that failed).
fn interpret(w: &mut Wave, program: &Program) -> Ctl {
    if w.vskip {
        return interpret_scalars(w, program);
    }
    let ops = program.ops.as_ptr();
    let mut ip = w.ip;
    let mut count = w.count;
    let stop = count + SLICE;
    let ctl = loop {
        // SAFETY: `ip` is an index of the program: it starts as one, jumps only go to indices, and the last operation
        // never falls through.
        let op = unsafe { &*ops.add(ip) };
        if op.batch > 1 && w.plain_float {
            let n = op.batch as usize;
            // SAFETY: so many operations of the kind follow, all resolved for waves like this one.
            unsafe { (program.multiply_adds)(w, std::slice::from_raw_parts(ops.add(ip), n)) };
            ip += n;
            count += n as u64;
            continue;
        }
        count += 1;
        // SAFETY: operands were resolved for waves like this one.
        match unsafe { (op.run)(w, op) } {
            Ctl::Next => ip += 1,
            Ctl::Jump => {
                ip = w.ip;
                if count > stop {
                    break Ctl::Yield;
                }
            }
            Ctl::Spin => {
                ip = w.ip;
                break Ctl::Spin;
            }
            c @ (Ctl::Barrier | Ctl::Yield) => {
                ip += 1;
                break c;
            }
            c => break c,
        }
    };
    w.ip = ip;
    w.count = count;
    ctl
}

/// As [`interpret`] while vector instructions are skipped (s_setvskip of gfx8 and gfx9).
fn interpret_scalars(w: &mut Wave, program: &Program) -> Ctl {
    let stop = w.count + SLICE;
    while w.vskip {
        let op = &program.ops[w.ip];
        w.count += 1;
        if program.is_vector(w.ip) {
            w.ip += 1;
            continue;
        }
        // SAFETY: operands were resolved for waves like this one.
        let ctl = unsafe { (op.run)(w, op) };
        if let Some(ctl) = w.proceed(ctl, stop) {
            return ctl;
        }
    }
    Ctl::Yield
}
