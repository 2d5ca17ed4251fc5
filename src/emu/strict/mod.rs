//! Strict mode: everything that hardware leaves undefined is reported.
//!
//! Before each instruction runs, its operands (from the instruction tables, the same description that the compiler's
//! passes use) are checked against what is known about the wave:
//!
//! * definedness of registers ([`defined`]),
//! * waits for memory operations, and distances between instructions ([`waits`]),
//! * what clauses are made of ([`clauses`]),
//! * bounds, alignment and initialisation of memory and LDS ([`access`]),
//! * races between waves ([`race`]). An operation that is still outstanding when its wave reaches a barrier counts as
//!   happening after it, and what others acquire says nothing of a store that was not waited for when they could be told.
//! * At a barrier all lanes that were launched are active.

mod access;
mod clauses;
mod defined;
pub mod facts;
pub mod race;
pub mod registers;
mod waits;

pub use race::Shadow;

use super::dispatch::Launch;
use super::exec::vmem::Piece;
use super::fault::FaultKind;
use super::memory::Allocation;
use super::uop::{Space, UOp};
use super::wave::{Ctl, EXEC, M0, SCALARS, SCC, VCC, Wave, scalar};
use barewave_isa::Reg;
use clauses::Clause;
use defined::{Defined, Known};
use facts::Facts;
use race::Actor;
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use waits::{Issued, Needs, Reach, Touches};

/// Why a check failed, and the lane.
type Problem = (FaultKind, Option<u32>);

/// Per wave.
struct State {
    known: Known,
    issued: Issued,
    clause: Clause,
    /// Lanes that were launched.
    launched: u64,
}

/// State of the checks of one workgroup.
pub struct Checker {
    waves: Vec<State>,
    /// Who touched LDS.
    lds: Shadow,
    /// For each byte of LDS 1 when it holds something, else 0.
    written: Vec<u8>,
    facts: Arc<Vec<Option<Facts>>>,
    reach: Reach,
    needs: Needs,
    allocations: Vec<Allocation>,
    /// The one that was found last.
    held: Option<Allocation>,
    /// Room for the pieces of an access.
    pieces: Vec<Piece>,
    /// Device addresses of the workgroup's private memory.
    scratch: Range<u64>,
    /// Bytes of private memory that hold undefined values: by dword, a bit for each.
    saved: HashMap<u64, u8>,
    /// Number of the workgroup's first wave in the launch.
    first: u64,
    /// When the workgroup last met at a barrier.
    barrier: u32,
    /// When it last acquired what others have written.
    acquired: u32,
    /// Loads past the caches of the instruction at hand: offset in device memory, bytes.
    polled: Vec<(u64, u64)>,
    /// Waves of a workgroup may use several caches: memory operations must be done before a barrier orders them.
    keeps_stores: bool,
    /// The kernel can tell other workgroups what it has done: it has atomics in memory, or stores past the caches.
    releases: bool,
    /// Stores that waves have waited for before a barrier, after others could be told of them: wave, and what it touched.
    settled: Vec<(u64, Touches)>,
    vgprs: u32,
    agprs: u32,
    /// The operation that is left out.
    without: Option<usize>,
}

impl Checker {
    /// A checker for workgroups of `waves` waves.
    pub fn new(l: &Launch, waves: usize) -> io::Result<Checker> {
        let target = l.machine.target;
        let d = &l.kernel.descriptor;
        let total = d.vgprs(l.machine.family);
        let (vgprs, agprs) = match d.accum_offset(l.machine.family) {
            Some(a) => (a.min(total), total.saturating_sub(a)),
            None => (total, l.machine.agprs),
        };
        let state = || State {
            known: Known::new(l.machine.rows(), l.machine.vgprs as usize),
            issued: Issued::default(),
            clause: Clause::default(),
            launched: 0,
        };
        Ok(Checker {
            waves: (0..waves).map(|_| state()).collect(),
            lds: Shadow::new(l.lds_size as u64, false)?,
            written: vec![0; l.lds_size as usize],
            facts: l.program.facts(),
            reach: Reach::of(target),
            needs: Needs::default(),
            allocations: Vec::new(),
            held: None,
            pieces: Vec::new(),
            scratch: 0..0,
            saved: HashMap::new(),
            first: 0,
            barrier: 0,
            acquired: 0,
            polled: Vec::new(),
            keeps_stores: waves > 1 && d.splits_workgroups(l.machine.family),
            settled: Vec::new(),
            releases: l.program.facts().iter().flatten().any(access::releases),
            vgprs,
            agprs,
            without: l.options.without.and_then(|a| l.program.code.index_of(l.entry - l.kernel.entry + a)),
        })
    }

    /// Workgroup `id` starts: registers that the launch sets are defined.
    pub fn begin(&mut self, l: &Launch, id: u64, waves: &[Wave]) {
        self.lds.clear(l.lds_size as u64);
        self.written.fill(0);
        self.saved.clear();
        self.settled.clear();
        self.look_again(l);
        self.first = id * waves.len() as u64;
        (self.barrier, self.acquired) = (0, 0);
        if let Some(w) = waves.first() {
            self.scratch = w.hidden_private..w.hidden_private + w.scratch_size * waves.len() as u64;
        }
        let d = &l.kernel.descriptor;
        let family = l.machine.family;
        let layout = d.user_sgpr_layout(family);
        for (s, w) in self.waves.iter_mut().zip(waves) {
            s.launched = w.exec();
            s.issued.clear();
            s.clause.clear();
            let known = &mut s.known;
            known.vector.fill(0);
            known.scalar = [0; SCALARS];
            let ids = if family.packed_workitem_ids() { 0 } else { d.workitem_ids() as usize };
            known.vector[..=ids].fill(w.all());
            let mut set = |at: Option<u16>, n: u16| {
                if let Some(at) = at {
                    known.scalar[at as usize..(at + n) as usize].fill(u32::MAX);
                }
            };
            set(layout.private_segment_buffer, 4);
            set(layout.dispatch_ptr, 2);
            set(layout.queue_ptr, 2);
            set(layout.kernarg_segment_ptr, 2);
            set(layout.dispatch_id, 2);
            set(layout.flat_scratch_init, 2);
            set(layout.private_segment_size, 1);
            if let Some((at, n, _)) = layout.kernarg_preload {
                set(Some(at), n);
            }
            for at in layout.system.workgroup_id {
                set(at, 1);
            }
            set(layout.system.workgroup_info, 1);
            set(layout.system.scratch_wave_offset, 1);
            for r in scalar(Reg::TTMP0) as usize..SCALARS {
                known.scalar[r] = if matches!(r, VCC..EXEC | M0 | SCC) { 0 } else { u32::MAX };
            }
            known.scalar[EXEC] = u32::MAX;
            known.scalar[EXEC + 1] = u32::MAX;
        }
    }

    /// All waves have met: accesses before the barrier are ordered before those behind it, except for what is not done.
    pub fn barrier(&mut self, l: &Launch) {
        self.barrier = l.state.clock.tick();
        let waves = self.waves.len() as u32;
        let mut told = Vec::new();
        for (n, s) in self.waves.iter().enumerate() {
            let actor = Actor {
                wave: self.first + n as u64,
                first: self.first,
                waves,
                now: self.barrier,
                barrier: self.barrier,
                acquired: self.acquired,
            };
            for t in s.issued.pending.iter().flat_map(|p| &p.touched) {
                let shadow = if t.lds { Some(&self.lds) } else { l.shadow };
                if let (Some(shadow), true) = (shadow, t.lds || self.keeps_stores) {
                    shadow.note(&actor, t.access, t.at, t.size);
                }
            }
            told.push(actor);
        }
        if self.releases {
            // Any wave may tell of what was done before the barrier.
            for (n, actor) in told.iter().enumerate() {
                self.tell_of_stores(actor, n, l);
                let settled = std::mem::take(&mut self.waves[n].issued.settled);
                self.settled.extend(settled.into_iter().map(|t| (actor.wave, t)));
            }
        }
    }

    /// Runs a wave until it stops.
    pub fn interpret(&mut self, w: &mut Wave, l: &Launch) -> Ctl {
        let all = self.facts.clone();
        let stop = w.count + super::dispatch::SLICE;
        loop {
            let ip = w.ip;
            if self.without == Some(ip) {
                w.ip += 1;
                continue;
            }
            let uop = &l.program.ops[ip];
            w.count += 1;
            let mut defined = None;
            if let Some(f) = &all[ip] {
                match self.before(w, l, ip, uop, f, &all) {
                    Ok(d) => defined = Some(d),
                    Err((kind, lane)) => return w.fail(kind, lane),
                }
            }
            // SAFETY: as in the fast interpreter.
            let ctl = unsafe { (uop.run)(w, uop) };
            if let (Some(f), Some(d)) = (&all[ip], defined)
                && ctl != Ctl::Fault
            {
                self.waves[w.index as usize].known.after(w, f, d);
                if f.acquires || self.met_atomic(w, l) {
                    self.acquired = l.state.clock.tick();
                }
            }
            if let Some(ctl) = w.proceed(ctl, stop) {
                return ctl;
            }
        }
    }

    /// Whether the loads of the instruction that was just done have met another workgroup's atomic. Asked behind the
    /// loads: an atomic is recorded before it is done, so that whoever sees what it left sees its record too.
    fn met_atomic(&mut self, w: &Wave, l: &Launch) -> bool {
        if self.polled.is_empty() {
            return false;
        }
        let a = self.actor(w, l);
        let met = |&(at, size): &(u64, u64)| l.shadow.is_some_and(|s| s.meets_atomic(&a, at, size));
        let found = self.polled.iter().any(met);
        self.polled.clear();
        found
    }

    fn before(
        &mut self,
        w: &Wave,
        l: &Launch,
        ip: usize,
        uop: &UOp,
        f: &Facts,
        all: &[Option<Facts>],
    ) -> Result<Defined, Problem> {
        self.allocated(f)?;
        let exec = w.exec();
        let s = &mut self.waves[w.index as usize];
        s.clause.pass(l.machine.target, f)?;
        s.issued.waits(l.machine.target, f)?;
        s.issued.gaps(l, &self.reach, &mut self.needs, ip, all)?;
        if f.meets && exec != s.launched {
            let (active, launched) = (exec, s.launched);
            return Err((FaultKind::DivergentBarrier { active, launched }, None));
        }
        let mut d = s.known.defined(w, uop, f, exec);
        let saves = d.lanes & exec != exec && self.saves(w, uop, f);
        self.waves[w.index as usize].known.decides(w, f, exec, &d, saves)?;
        if exec != 0 || uop.access.space == Space::Scalar {
            self.memory(w, l, uop, f, &mut d)?;
        }
        Ok(d)
    }

    /// Registers beyond the kernel's allocation.
    fn allocated(&self, f: &Facts) -> Result<(), Problem> {
        if f.vectors[0] <= self.vgprs && f.vectors[1] <= self.agprs {
            return Ok(());
        }
        for r in f.reads.iter().chain(&f.writes).filter(|r| r.first.is_vector()) {
            let last = r.first.offset(r.dwords as u16 - 1);
            let (n, limit, what) = match last.0 >= Reg::A0.0 {
                true => ((last.0 - Reg::A0.0) as u32, self.agprs, "AGPRs"),
                false => (last.0 as u32, self.vgprs, "VGPRs"),
            };
            if n >= limit {
                return Err((FaultKind::Launch(format!("{r} is used, the kernel allocates {limit} {what}")), None));
            }
        }
        Ok(())
    }
}
