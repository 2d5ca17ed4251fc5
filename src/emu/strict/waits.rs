//! Waits, wait states, and waits for the ALUs.
//!
//! * Every memory operation is queued per counter with the registers it fills. Touching such a register before a wait that
//!   proves completion is a fault. A wait for `n` leaves the `n` youngest when all queued operations complete in order; when
//!   some do not, only a wait for 0 proves anything.
//! * The hazard table says how many wait states must lie between two instructions, or how many vector instructions, or that
//!   a wait for the ALUs must.
//! * Where scalar registers that vector instructions have read must be waited for after a write (gfx12), the uses of scalar
//!   registers are followed ([`ScalarHistory`]).

use super::Problem;
use super::facts::Facts;
use super::race::Access;
use super::registers::RegSet;
use crate::dispatch::Launch;
use crate::fault::FaultKind;
use barewave_isa::{
    Between, Counter, Distance, Fix, Flags, HazardRule, Operand, Pipe, Reg, Regs, Relation, ScalarHistory, Target,
    Traits, WaitScheme, max_fix_reach, max_required_states, op,
};
use smallvec::SmallVec;
use std::collections::VecDeque;

/// Bytes that an operation touches.
#[derive(Clone, Copy, Debug)]
pub struct Touched {
    /// They are in LDS; else in device memory.
    pub lds: bool,
    /// First byte: address in LDS, offset in the shadow of memory.
    pub at: u64,
    /// How many.
    pub size: u64,
    /// What it does to them.
    pub access: Access,
}

/// What an operation touches: lanes that lie together are one.
pub type Touches = SmallVec<[Touched; 2]>;
/// Registers that an operation fills.
pub type Fills = SmallVec<[Regs; 2]>;

/// A memory operation that has been issued.
pub struct Pending {
    pub counter: Counter,
    pub in_order: bool,
    pub fills: Fills,
    /// It fills only these halves of them: low 1, high 2.
    pub halves: u8,
    pub name: &'static str,
    pub touched: Touches,
    /// It is a load from memory to LDS, whose bytes are there only after a wait.
    pub dma: bool,
    /// Others could be told of it before it was waited for.
    pub told: bool,
}

impl Pending {
    fn describe(&self) -> String {
        format!("{} ({:?} counter)", self.name, self.counter).to_lowercase()
    }
}

/// An instruction that later ones may have to keep away from by wait states.
struct Recent {
    /// Which operation.
    op: usize,
    /// When the next could issue.
    at: u32,
    /// What has come since.
    between: Between,
}

/// Wait states that operations want from earlier ones, as found when they met last: waves go the same ways again and again.
#[derive(Default)]
pub struct Needs(Vec<Vec<Need>>);

/// What an operation wants from one before it.
struct Need {
    /// The one before.
    op: usize,
    /// What lay between.
    between: Between,
    states: u32,
}

impl Needs {
    /// Wait states that operation `ip` wants from `p`, the `n`th of those before it, if they met last time.
    fn known(&self, ip: usize, n: usize, p: &Recent) -> Option<u32> {
        let need = self.0.get(ip)?.get(n)?;
        (need.op == p.op && need.between == p.between).then_some(need.states)
    }

    /// Keeps what was found.
    fn keep(&mut self, ip: usize, n: usize, p: &Recent, states: u32) {
        if self.0.len() <= ip {
            self.0.resize_with(ip + 1, Vec::new);
        }
        let (of, need) = (&mut self.0[ip], Need { op: p.op, between: p.between, states });
        match of.get_mut(n) {
            Some(old) => *old = need,
            // Those in front of it were kept before it.
            None => of.push(need),
        }
    }
}

/// What a wave has issued.
#[derive(Default)]
pub struct Issued {
    pub pending: VecDeque<Pending>,
    /// What operations touch that have been waited for, of those that others could be told of before.
    pub settled: Vec<Touches>,
    /// Registers that they fill, and perhaps others.
    filling: RegSet,
    /// Wait states that have gone by.
    clock: u32,
    /// Recently issued that later ones may have to keep away from.
    recent: VecDeque<Recent>,
    /// Recently issued that others may have to keep away from by more than wait states, and what has come since.
    producers: Vec<(usize, Distance)>,
    scalars: ScalarHistory,
    /// Scalar registers that may still be read, for each rule of [`Reach::still_read`].
    still_read: Vec<Vec<Regs>>,
    /// For each rule of [`Reach::across_branch`]: the producer came last, and a branch since.
    across_branch: Vec<(bool, bool)>,
}

/// How far hazards reach on a target.
pub struct Reach {
    /// Largest number of wait states.
    states: u32,
    /// Largest number of vector instructions over which hazards reach that are no matter of wait states.
    vectors: u8,
    /// Rules of what must not be written while it may still be read, however long ago the read was issued.
    still_read: Vec<&'static HazardRule>,
    /// Rules of memory instructions with only a branch between them.
    across_branch: Vec<&'static HazardRule>,
}

impl Reach {
    /// That of a target.
    pub fn of(target: Target) -> Reach {
        let still_read = |r: &&HazardRule| matches!(r.relation, Relation::ReadsSgpr | Relation::ReadsExec);
        Reach {
            states: max_required_states(target).into(),
            vectors: max_fix_reach(target),
            still_read: target.hazards().iter().filter(still_read).collect(),
            across_branch: target.hazards().iter().filter(|r| r.relation == Relation::AcrossBranch).collect(),
        }
    }
}

impl Issued {
    /// A new wave.
    pub fn clear(&mut self) {
        *self = Issued::default();
    }

    /// A wait takes effect; anything else must not touch what is outstanding.
    pub fn waits(&mut self, target: Target, f: &Facts) -> Result<(), Problem> {
        if let Some(list) = &f.wait {
            for &(counter, n) in list {
                let queued = self.pending.iter().filter(|p| p.counter == counter).count();
                let in_order = self.pending.iter().filter(|p| p.counter == counter).all(|p| p.in_order);
                let mut done = if n == 0 || in_order { queued.saturating_sub(n as usize) } else { 0 };
                let settled = &mut self.settled;
                self.pending.retain_mut(|p| {
                    let drop = p.counter == counter && done > 0;
                    done -= usize::from(drop);
                    if drop && p.told {
                        settled.push(std::mem::take(&mut p.touched));
                    }
                    !drop
                });
            }
            self.filling.clear();
            for fill in self.pending.iter().flat_map(|p| &p.fills) {
                self.filling.insert(*fill);
            }
            return Ok(());
        }
        if self.pending.is_empty() || !self.filling.meets(&f.touches) {
            return Ok(());
        }
        // The same kind of operation may fill a register again where results come in order: not on gfx12.
        let ordered = target.info().waits != WaitScheme::Split && f.info.flags.has(Flags::LOAD);
        for p in &self.pending {
            // Loads of the two halves of a register do not meet.
            let apart = f.fills & p.halves == 0;
            for fill in &p.fills {
                let again = |r: &&Regs| {
                    r.overlaps(*fill) && !apart && !(p.in_order && ordered && f.counters.contains(&p.counter))
                };
                let hit = f.reads.iter().find(|r| r.overlaps(*fill)).or(f.writes.iter().find(again));
                if let Some(r) = hit {
                    return Err((FaultKind::MissingWait { register: r.to_string(), pending: p.describe() }, None));
                }
            }
        }
        Ok(())
    }

    /// An operation is queued. A counter that is full makes the wave wait for the oldest.
    pub fn push(&mut self, target: Target, p: Pending) {
        let most = target.info().counters.iter().find(|c| c.counter == p.counter).map_or(63, |c| c.max as usize);
        let mut queued = self.pending.iter().enumerate().filter(|(_, q)| q.counter == p.counter);
        let oldest = queued.clone().next().map(|q| q.0);
        if let Some(oldest) = oldest
            && queued.clone().count() >= most
            && queued.all(|(_, q)| q.in_order)
        {
            let done = self.pending.remove(oldest);
            self.settled.extend(done.filter(|p| p.told).map(|p| p.touched));
        }
        for fill in &p.fills {
            self.filling.insert(*fill);
        }
        self.pending.push_back(p);
    }

    /// Whether loads from memory to LDS are outstanding.
    pub fn fills_lds(&self) -> bool {
        self.pending.iter().any(|p| p.dma)
    }

    /// Whether LDS bytes are still on their way from memory, by a load of the same wave; the error has the first of them.
    pub fn filled(&self, addr: u32, size: u32) -> Result<(), (FaultKind, u32)> {
        let (from, to) = (addr as u64, addr as u64 + size as u64);
        for p in self.pending.iter().filter(|p| p.dma) {
            if let Some(t) = p.touched.iter().find(|t| t.lds && t.at < to && from < t.at + t.size) {
                let byte = t.at.max(from) as u32;
                let register = format!("LDS at {byte:#x}");
                return Err((FaultKind::MissingWait { register, pending: p.describe() }, byte));
            }
        }
        Ok(())
    }

    /// Checks the distance from earlier instructions, and records this one: operation `ip` of `l`.
    pub fn gaps(
        &mut self,
        l: &Launch,
        reach: &Reach,
        needs: &mut Needs,
        ip: usize,
        all: &[Option<Facts>],
    ) -> Result<(), Problem> {
        let Some(f) = &all[ip] else { return Ok(()) };
        let text = |other: usize| l.program.code.text_at(l.program.ops[other].pc);
        if reach.states > 0 {
            let now = self.clock;
            for (n, p) in self.recent.iter_mut().rev().enumerate() {
                let need = needs.known(ip, n, p).unwrap_or_else(|| {
                    let need =
                        all[p.op].as_ref().map_or(0, |producer| f.inst.states_after(&producer.inst, p.between).into());
                    needs.keep(ip, n, p, need);
                    need
                });
                let have = now - p.at;
                if need > have {
                    return Err((FaultKind::MissingWaitStates { need, have, what: text(p.op) }, None));
                }
                p.between.pass(&f.inst);
            }
            self.clock += f.states;
            while self.recent.front().is_some_and(|p| self.clock - p.at >= reach.states) {
                self.recent.pop_front();
            }
            if f.delays {
                self.recent.push_back(Recent { op: ip, at: self.clock, between: Between::default() });
            }
        }
        if reach.vectors > 0 {
            for &(other, distance) in &self.producers {
                let fix = all[other].as_ref().and_then(|p| f.inst.fix_after(&p.inst));
                if let Some((fix, vectors)) = fix
                    && distance.within(fix, vectors)
                {
                    let wait = match fix {
                        Fix::DepCtr => "a wait for the vector ALU".into(),
                        _ => format!("{vectors} vector instructions"),
                    };
                    return Err((FaultKind::MissingGap { what: text(other), wait }, None));
                }
            }
            self.producers.retain_mut(|(_, distance)| distance.pass(l.machine.target, &f.inst, reach.vectors));
            if f.produces {
                self.producers.push((ip, Distance::default()));
            }
        }
        self.still_read.resize(reach.still_read.len(), Vec::new());
        for (rule, read) in reach.still_read.iter().zip(&mut self.still_read) {
            overwrites(rule, f, read)?;
        }
        self.across_branch.resize(reach.across_branch.len(), (false, false));
        for (rule, met) in reach.across_branch.iter().zip(&mut self.across_branch) {
            crosses(rule, f, met)?;
        }
        if let Some(u) = &f.scalars {
            if let Some((register, wait)) = self.scalars.missing(u) {
                let what = format!("the write of {}", Regs::from(register));
                return Err((FaultKind::MissingGap { what, wait: wait.to_string() }, None));
            }
            self.scalars.pass(u);
        }
        Ok(())
    }
}

/// Checks an instruction against a rule of memory instructions around a branch, and notes what it is.
fn crosses(rule: &HazardRule, f: &Facts, (last, branched): &mut (bool, bool)) -> Result<(), Problem> {
    let traits = f.traits;
    let consumer = rule.consumer.holds(f.inst.op, traits);
    if consumer && *branched {
        let what = "a memory instruction of the other kind in front of a branch".into();
        return Err((FaultKind::MissingGap { what, wait: "s_waitcnt_vscnt null, 0".into() }, None));
    }
    if rule.producer.holds(f.inst.op, traits) {
        (*last, *branched) = (true, false);
    } else if consumer || f.wait.as_ref().is_some_and(|w| w.contains(&(Counter::Vs, 0))) {
        (*last, *branched) = (false, false);
    } else if f.info.flags.has(Flags::BRANCH) {
        (*last, *branched) = (false, *last || *branched);
    }
    Ok(())
}

/// Checks an instruction against a rule of registers that may still be read, and adds what it reads.
fn overwrites(rule: &HazardRule, f: &Facts, read: &mut Vec<Regs>) -> Result<(), Problem> {
    let traits = f.traits;
    let valu = traits.has(Traits::VALU);
    // what scalar instructions write besides their results is interlocked
    let named = if valu { f.writes.len() } else { f.inst.dsts.len() };
    let mut written = f.writes.iter().take(named).filter(|r| !r.first.is_vector());
    let writes = written.clone().next().is_some();
    if rule.consumer.holds(f.inst.op, traits)
        && let Some(w) = written.find(|w| read.iter().any(|r| r.overlaps(**w)))
    {
        let what = format!("a read of {w}");
        return Err((FaultKind::MissingGap { what, wait: format!("what resolves {}", rule.name) }, None));
    }
    let field = |shift: u32, mask: u64| match (f.inst.op, f.inst.srcs.first()) {
        (op::S_WAITCNT_DEPCTR, Some(Operand::Imm(v))) => v >> shift & mask == 0,
        _ => false,
    };
    let zero = matches!((f.inst.op, f.inst.srcs.first()), (op::S_WAITCNT, Some(Operand::Imm(0))));
    let scalars_come = f.wait.as_ref().is_some_and(|w| w.contains(&(Counter::Lgkm, 0)));
    let resolved = match rule.fix {
        Fix::VmVsrc => valu || zero || field(2, 7),
        Fix::SaSdst => valu && writes || field(0, 1),
        Fix::Salu => f.info.pipe == Pipe::Salu && f.wait.is_none() || scalars_come,
        _ => false,
    };
    if resolved {
        read.clear();
    }
    if rule.producer.holds(f.inst.op, traits) {
        let exec = |r: &Regs| matches!(r.first, Reg::EXEC_LO | Reg::EXEC_HI);
        let wanted = |r: &&Regs| !r.first.is_vector() && (rule.relation == Relation::ReadsSgpr || exec(r));
        for r in f.reads.iter().filter(wanted) {
            if !read.contains(r) {
                read.push(*r);
            }
        }
    }
    Ok(())
}
