//! Strict mode: everything that hardware leaves undefined is reported.
//!
//! Before each instruction runs, its operands (from the instruction tables, the same description that the compiler's
//! passes use) are checked against what is known about the wave:
//!
//! * *Definedness* of every register, lane by lane, is propagated as memory checkers do: a result is defined when all
//!   that it was computed from is. Undefined values may be moved and stored to LDS; they may not decide (addresses,
//!   branches, EXEC) and may not reach device memory.
//! * *Waits*: every memory operation is queued per counter with the registers it fills. Touching such a register
//!   before a wait that proves completion is a fault. A wait for `n` leaves the `n` youngest when all queued operations
//!   complete in order; when some do not, only a wait for 0 proves anything.
//! * *Wait states* between two instructions, from the hazard table.
//! * *LDS*: each byte remembers who wrote and who read it since the last barrier. An operation that is still
//!   outstanding when its wave reaches the barrier counts as happening after it.
//! * *Memory*: accesses must lie inside of one allocation; bytes read must have been written.

use super::exec::vmem;
use super::fault::FaultKind;
use super::launch::Launch;
use super::memory::Allocation;
use super::sem::Form;
use super::wave::{Ctl, EXEC, M0, SCALARS, SCC, Space, UOp, VCC, Wave, scalar};
use barewave_isa::{
    Counter, Flags, Inst, ModName, OpInfo, Operand, Pipe, Reg, Regs, Target, max_required_states, op, required_states,
};
use std::collections::HashMap;
use std::collections::VecDeque;
use std::sync::Arc;

/// What is known of an instruction without running it.
pub struct Facts {
    inst: Inst,
    info: &'static OpInfo,
    /// Registers read, implicit ones included.
    reads: Vec<Regs>,
    /// Registers written.
    writes: Vec<Regs>,
    wait: Option<Vec<(Counter, u8)>>,
    /// Wait states that the instruction itself provides.
    states: u32,
    /// A scalar bitwise instruction.
    logic: Option<Logic>,
    /// The low dword of a 64-bit result depends on the low dwords of the sources only.
    split: bool,
    /// A packed instruction on pairs of dwords: which dword of each source makes the low and the high result, a bit each.
    halves: Option<[u32; 2]>,
}

/// A memory operation that has been issued.
struct Pending {
    counter: Counter,
    in_order: bool,
    fills: Vec<Regs>,
    name: &'static str,
    /// LDS bytes it touches: address, size, is a write.
    lds: Vec<(u32, u32, bool)>,
    /// A read-modify-write.
    atomic: bool,
    /// It is a load from memory to LDS, whose bytes are there only after a wait.
    dma: bool,
}

/// Per wave.
struct State {
    /// Defined lanes by vector row.
    vector: Vec<u64>,
    /// Defined bits of scalar registers.
    scalar: [u32; SCALARS],
    pending: VecDeque<Pending>,
    /// Recently issued: operation index, wait states before the next instruction.
    recent: VecDeque<(usize, u32)>,
}

/// Last accesses of a byte of LDS since the barrier.
#[derive(Clone, Copy, Default)]
struct Byte {
    written: bool,
    /// Wave + 1.
    writer: u8,
    /// Wave + 1; 255 when several.
    reader: u8,
    /// Wave + 1 of read-modify-writes, which may meet each other but nothing else; 255 when several.
    atomic: u8,
}

/// State of the checks of one workgroup.
pub struct Checker {
    waves: Vec<State>,
    lds: Vec<Byte>,
    facts: Arc<Vec<Option<Facts>>>,
    hazards: HashMap<(usize, usize), u8>,
    reach: u32,
    allocations: Vec<Allocation>,
    rows: usize,
    /// Row of the first AGPR.
    first_agpr: usize,
    vgprs: u32,
    agprs: u32,
    /// The operation that is left out.
    without: Option<usize>,
}

/// Special registers that never count as undefined or as data.
fn tracked(r: Reg) -> bool {
    !matches!(r, Reg::MODE | Reg::EXEC_LO | Reg::EXEC_HI | Reg::NULL | Reg::EXECZ | Reg::VCCZ)
        && !(Reg::SHARED_BASE.0..=Reg::PRIVATE_LIMIT.0 + 1).contains(&r.0)
}

fn facts(target: Target, inst: Inst, lanes: usize) -> Option<Facts> {
    let info = target.op(inst.op)?;
    // Lane masks of a wave of 32 are one register.
    let used = |r: &&Reg| !(lanes == 32 && **r == Reg::VCC_HI);
    let mut reads: Vec<Regs> = inst.srcs.iter().filter_map(|o| o.regs()).collect();
    let mut writes: Vec<Regs> = inst.dsts.iter().filter_map(|o| o.regs()).collect();
    // Accumulators; partial writes (halves, one lane) are not reads that matter.
    let partial = inst.op == op::V_WRITELANE_B32 || info.flags.has(Flags::LOAD) || info.pipe == Pipe::Lds;
    for (o, slot) in inst.dsts.iter().zip(info.dsts) {
        if slot.read && slot.bits >= 32 && !partial && !inst.op.name().contains("_mix") {
            reads.extend(o.regs());
        }
    }
    if inst.op == op::V_SWAP_B32 {
        reads.extend(writes.iter().copied());
    }
    let implicit = |r: &Reg| Regs::new(*r, 1);
    reads.extend(info.reads.iter().filter(used).map(implicit));
    writes.extend(info.writes.iter().filter(used).map(implicit));
    // Memory instructions name M0 as a habit; only some use it.
    if matches!(info.pipe, Pipe::Lds | Pipe::Vmem) && !inst.op.name().contains("addtid") {
        reads.retain(|r| r.first != Reg::M0);
    }
    let wait = target.decode_wait(&inst).map(|l| l.into_iter().collect());
    let states = match (inst.op, inst.srcs.first()) {
        (op::S_NOP, Some(Operand::Imm(n))) => *n as u32 + 1,
        _ => 1,
    };
    let split = splits(inst.op.name());
    let logic = logic(inst.op.name());
    let pairs =
        info.flags.has(Flags::PACKED) && inst.dsts.first().and_then(|o| o.regs()).is_some_and(|r| r.dwords == 2);
    let select = |name| inst.mods.get(name).unwrap_or(0) as u32;
    let halves =
        (pairs && info.srcs.iter().all(|s| s.bits == 64)).then(|| [select(ModName::OpSel), select(ModName::OpSelHi)]);
    Some(Facts { inst, info, reads, writes, wait, states, logic, split, halves })
}

/// Scalar bitwise instructions, whose results can be known although operands are not.
#[derive(Clone, Copy)]
struct Logic {
    /// `&`, `|`, `^`, or `=` for moves.
    kind: char,
    not_a: bool,
    not_b: bool,
    bits: u32,
    /// The second operand is EXEC.
    exec: bool,
}

fn logic(name: &str) -> Option<Logic> {
    let rest = name.strip_prefix("s_")?;
    let (rest, bits) = rest.rsplit_once("_b").map(|(r, b)| (r, b.parse::<u32>().ok()))?;
    let bits = bits.filter(|b| matches!(b, 32 | 64))?;
    let exec = rest.ends_with("_saveexec") || rest.ends_with("_wrexec");
    let (kind, not_a, not_b) = match rest.trim_end_matches("_saveexec").trim_end_matches("_wrexec") {
        "and" | "nand" => ('&', false, false),
        "andn1" => ('&', true, false),
        "andn2" => ('&', false, true),
        "or" | "nor" => ('|', false, false),
        "orn1" => ('|', true, false),
        "orn2" => ('|', false, true),
        "xor" | "xnor" => ('^', false, false),
        "mov" | "not" => ('=', false, false),
        _ => return None,
    };
    Some(Logic { kind, not_a, not_b, bits, exec })
}

/// 64-bit operations through which nothing flows from high to low dwords: compilers leave unneeded high halves
/// undefined.
fn splits(name: &str) -> bool {
    const LOGIC: [&str; 8] =
        ["s_and_", "s_or_", "s_xor_", "s_andn2_", "s_mov_b64", "s_lshl_b64", "s_mul_u64", "s_cselect_b64"];
    const VECTOR: [&str; 8] = [
        "v_mad_u64_u32",
        "v_mad_i64_i32",
        "v_lshlrev_b64",
        "v_lshl_add_u64",
        "v_add_nc_u64",
        "v_sub_nc_u64",
        "v_mul_u64",
        "v_mov_b64",
    ];
    VECTOR.contains(&name)
        || (name.ends_with("64") && !name.contains("exec") && LOGIC.iter().any(|p| name.starts_with(p)))
}

impl Checker {
    /// A checker for workgroups of `waves` waves.
    pub fn new(l: &Launch, waves: usize) -> Checker {
        let target = l.machine.target;
        let lanes = l.program.lanes;
        let facts = l.program.raws.iter().map(|r| facts(target, r.as_ref()?.inst(), lanes)).collect();
        let rows = l.machine.rows();
        let d = &l.kernel.descriptor;
        let total = d.vgprs(l.machine.family);
        let (vgprs, agprs) = match d.accum_offset(l.machine.family) {
            Some(a) => (a.min(total), total.saturating_sub(a)),
            None => (total, l.machine.agprs),
        };
        let state =
            || State { vector: vec![0; rows], scalar: [0; SCALARS], pending: VecDeque::new(), recent: VecDeque::new() };
        Checker {
            waves: (0..waves).map(|_| state()).collect(),
            lds: vec![Byte::default(); l.lds_size as usize],
            facts: Arc::new(facts),
            hazards: HashMap::new(),
            reach: max_required_states(target) as u32,
            allocations: Vec::new(),
            rows,
            first_agpr: l.machine.vgprs as usize,
            vgprs,
            agprs,
            without: l.options.without.and_then(|a| l.program.index_of(l.entry - l.kernel.entry + a)),
        }
    }

    /// A workgroup starts: registers that the launch sets are defined.
    pub fn begin(&mut self, l: &Launch, waves: &[Wave]) {
        self.lds.fill(Byte::default());
        self.allocations = l.memory.snapshot();
        let d = &l.kernel.descriptor;
        let family = l.machine.family;
        let layout = d.user_sgpr_layout(family);
        for (s, w) in self.waves.iter_mut().zip(waves) {
            s.vector.fill(0);
            s.pending.clear();
            s.recent.clear();
            s.scalar = [0; SCALARS];
            let ids = if family.packed_workitem_ids() { 0 } else { d.workitem_ids() as usize };
            for row in 0..=ids {
                s.vector[row] = w.all();
            }
            let mut set = |at: Option<u16>, n: u16| {
                for i in 0..n {
                    if let Some(at) = at {
                        s.scalar[(at + i) as usize] = u32::MAX;
                    }
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
                s.scalar[r] = if matches!(r, VCC..EXEC | M0 | SCC) { 0 } else { u32::MAX };
            }
            s.scalar[EXEC] = u32::MAX;
            s.scalar[EXEC + 1] = u32::MAX;
        }
    }

    /// All waves have met: accesses before the barrier are ordered before those behind it.
    pub fn barrier(&mut self) {
        for b in &mut self.lds {
            (b.writer, b.reader, b.atomic) = (0, 0, 0);
        }
        for (wave, s) in self.waves.iter().enumerate() {
            for p in &s.pending {
                for &(addr, size, write) in &p.lds {
                    for b in self.lds.iter_mut().skip(addr as usize).take(size as usize) {
                        let who = wave as u8 + 1;
                        match (p.atomic, write) {
                            (true, _) => b.atomic = if b.atomic == 0 { who } else { 255 },
                            (_, true) => b.writer = who,
                            _ => b.reader = who,
                        }
                    }
                }
            }
        }
    }

    /// Runs a wave until it stops.
    pub fn interpret(&mut self, w: &mut Wave, l: &Launch) -> Ctl {
        let all = self.facts.clone();
        let stop = w.count + super::launch::SLICE;
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
                self.after(w, f, d);
            }
            match ctl {
                Ctl::Next => w.ip += 1,
                Ctl::Jump if w.count > stop => return Ctl::Yield,
                Ctl::Jump => {}
                c @ (Ctl::Barrier | Ctl::Yield) => {
                    w.ip += 1;
                    return c;
                }
                c => return c,
            }
        }
    }

    fn row(&self, r: Reg) -> Option<usize> {
        let n = match r.0 {
            n if n >= Reg::A0.0 && self.first_agpr <= Reg::A0.0 as usize => (n - Reg::A0.0) as usize + self.first_agpr,
            n => n as usize,
        };
        r.is_vector().then_some(n).filter(|&n| n < self.rows)
    }

    /// Lanes of a vector register that are defined.
    fn lanes(&self, wave: usize, r: Reg) -> u64 {
        self.row(r).map_or(0, |row| self.waves[wave].vector[row])
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
        let wave = w.index as usize;
        self.allocated(f)?;
        self.waits(wave, f)?;
        self.wait_states(l, wave, ip, f, all)?;
        let exec = w.exec();
        let d = self.defined(w, uop, f, exec);
        self.decides(w, f, exec, &d)?;
        if exec != 0 || uop.access.space == Space::Scalar {
            self.memory(w, l, uop, f, &d)?;
        }
        Ok(d)
    }

    /// Registers beyond the kernel's allocation.
    fn allocated(&self, f: &Facts) -> Result<(), Problem> {
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

    fn waits(&mut self, wave: usize, f: &Facts) -> Result<(), Problem> {
        let s = &mut self.waves[wave];
        if let Some(list) = &f.wait {
            for &(counter, n) in list {
                let queued = s.pending.iter().filter(|p| p.counter == counter).count();
                let in_order = s.pending.iter().filter(|p| p.counter == counter).all(|p| p.in_order);
                let mut done = if n == 0 || in_order { queued.saturating_sub(n as usize) } else { 0 };
                s.pending.retain(|p| {
                    let drop = p.counter == counter && done > 0;
                    done -= usize::from(drop);
                    !drop
                });
            }
            return Ok(());
        }
        for p in &s.pending {
            for fill in &p.fills {
                // The same kind of operation may fill a register again: results come in order.
                let again = |r: &&Regs| {
                    r.overlaps(*fill)
                        && !(p.in_order && f.info.counters.contains(&p.counter) && f.info.flags.has(Flags::LOAD))
                };
                let hit = f.reads.iter().find(|r| r.overlaps(*fill)).or(f.writes.iter().find(again));
                if let Some(r) = hit {
                    let pending = format!("{} ({:?} counter)", p.name, p.counter).to_lowercase();
                    return Err((FaultKind::MissingWait { register: r.to_string(), pending }, None));
                }
            }
        }
        Ok(())
    }

    fn wait_states(
        &mut self,
        l: &Launch,
        wave: usize,
        ip: usize,
        f: &Facts,
        all: &[Option<Facts>],
    ) -> Result<(), Problem> {
        if self.reach == 0 {
            return Ok(());
        }
        let mut between = 0;
        for &(other, states) in self.waves[wave].recent.iter().rev() {
            if let Some(p) = &all[other] {
                let need = *self
                    .hazards
                    .entry((other, ip))
                    .or_insert_with(|| required_states(l.machine.target, &p.inst, &f.inst))
                    as u32;
                if need > between {
                    let what = l.program.text_at(l.program.ops[other].pc);
                    return Err((FaultKind::MissingWaitStates { need, have: between, what }, None));
                }
            }
            between += states;
            if between >= self.reach {
                break;
            }
        }
        let recent = &mut self.waves[wave].recent;
        recent.push_back((ip, f.states));
        if recent.len() > self.reach as usize + 1 {
            recent.pop_front();
        }
        Ok(())
    }

    /// Whether what is read is defined: for scalars, and lane by lane for vectors.
    fn defined(&self, w: &Wave, uop: &UOp, f: &Facts, exec: u64) -> Defined {
        let s = &self.waves[w.index as usize];
        let mut d = Defined { scalar: true, lanes: w.all(), low: true, low_lanes: w.all(), bits: None };
        let crosses = f.info.flags.has(Flags::CROSS_LANE) || f.info.flags.has(Flags::MATRIX);
        // A lane mask counts lane by lane.
        let mask = match uop.form {
            Form::BitIn | Form::BitInOut => f.inst.srcs.last().and_then(|o| o.regs()),
            Form::VccIn => Some(Regs::new(Reg::VCC_LO, (w.lanes / 32) as u8)),
            _ => None,
        };
        if let Some(m) = mask.filter(|m| !m.first.is_vector()) {
            let at = scalar(m.first) as usize;
            let hi = if w.lanes == 64 { s.scalar[at + 1] } else { 0 };
            d.lanes &= s.scalar[at] as u64 | (hi as u64) << 32;
        }
        for r in &f.reads {
            if mask.is_some_and(|m| m.overlaps(*r)) {
                continue;
            }
            for (i, r) in r.iter().enumerate() {
                if r.is_vector() {
                    let lanes = self.lanes(w.index as usize, r);
                    // Instructions that read other lanes: one defined lane vouches for the row.
                    let lanes = if crosses && lanes != 0 { w.all() } else { lanes };
                    d.lanes &= lanes;
                    d.low_lanes &= if i == 0 { lanes } else { w.all() };
                } else if tracked(r) {
                    let known = s.scalar[scalar(r) as usize] == u32::MAX;
                    d.scalar &= known;
                    d.low &= i > 0 || known;
                }
            }
        }
        if !d.scalar {
            d.lanes = 0;
        }
        if !d.low {
            d.low_lanes = 0;
        }
        if let Some(select) = f.halves {
            let [low, high] = select.map(|bits| self.selected(w, f, bits));
            (d.low, d.low_lanes, d.scalar, d.lanes) = (low != 0, low, high != 0, high);
        } else if !f.split {
            (d.low, d.low_lanes) = (d.scalar, d.lanes);
        }
        d.low &= d.low_lanes & exec == exec;
        if let Some(l) = f.logic {
            d.bits = Some(self.logic(w, uop, f, l));
        } else if matches!(uop.form, Form::Compare | Form::CompareExec | Form::BitOut | Form::BitInOut) {
            // Inactive lanes give 0.
            d.bits = Some(d.lanes | !exec);
        }
        d.scalar &= d.lanes & exec == exec;
        d
    }

    /// Lanes in which the dwords that `bits` selects of a packed instruction's sources are all defined.
    fn selected(&self, w: &Wave, f: &Facts, bits: u32) -> u64 {
        let s = &self.waves[w.index as usize];
        let mut lanes = w.all();
        for (n, r) in f.inst.srcs.iter().enumerate().filter_map(|(n, o)| Some((n, o.regs()?))) {
            let Some(r) = r.iter().nth((bits >> n & 1) as usize) else { continue };
            if r.is_vector() {
                lanes &= self.lanes(w.index as usize, r);
            } else if tracked(r) && s.scalar[scalar(r) as usize] != u32::MAX {
                lanes = 0;
            }
        }
        lanes
    }

    /// Defined bits of a scalar logic instruction's result: a known 0 decides an AND, a known 1 an OR.
    fn logic(&self, w: &Wave, uop: &UOp, f: &Facts, l: Logic) -> u64 {
        let s = &self.waves[w.index as usize];
        let wide = l.bits == 64;
        let take = |n: usize| {
            let v = if wide { w.r64(&uop.src[n]) } else { w.r32(&uop.src[n]) as u64 };
            let d = match f.inst.srcs.get(n).and_then(|o| o.regs()) {
                Some(r) if tracked(r.first) && !r.first.is_vector() => {
                    let at = scalar(r.first) as usize;
                    s.scalar[at] as u64 | (s.scalar[at + 1] as u64) << 32
                }
                _ => u64::MAX,
            };
            (v, d)
        };
        let (mut a, da) = take(0);
        let (mut b, db) = match l.exec {
            true => (w.pair(EXEC), u64::MAX),
            false => take(1),
        };
        if l.not_a {
            a = !a;
        }
        if l.not_b {
            b = !b;
        }
        let known = match l.kind {
            '&' => da & db | da & !a | db & !b,
            '|' => da & db | da & a | db & b,
            '^' => da & db,
            _ => da,
        };
        if wide { known } else { known | !0xffff_ffff }
    }

    /// Undefined values must not decide: branches, EXEC, addresses.
    fn decides(&self, w: &Wave, f: &Facts, exec: u64, d: &Defined) -> Result<(), Problem> {
        let flags = f.info.flags;
        let memory = flags.has(Flags::LOAD) || flags.has(Flags::STORE) || flags.has(Flags::ATOMIC);
        let writes_exec = f.writes.iter().any(|r| r.first == Reg::EXEC_LO);
        if !(flags.has(Flags::BRANCH) || writes_exec || memory) {
            return Ok(());
        }
        if memory && f.info.pipe != Pipe::Smem && exec == 0 {
            return Ok(());
        }
        if f.logic.is_some() && d.bits.is_some_and(|b| b & w.all() == w.all()) {
            return Ok(());
        }
        let lds = f.info.pipe == Pipe::Lds;
        for (i, o) in f.inst.srcs.iter().enumerate() {
            let data = f.info.srcs.get(i).is_some_and(|s| s.name.contains("data"));
            if !(data && lds)
                && let Some(r) = o.regs()
            {
                self.require(w, r, exec)?;
            }
        }
        for r in f.info.reads.iter().filter(|r| !memory && tracked(**r)) {
            let dwords = 1;
            self.require(w, Regs::new(*r, dwords), exec)?;
        }
        Ok(())
    }

    fn require(&self, w: &Wave, regs: Regs, exec: u64) -> Result<(), Problem> {
        for r in regs.iter() {
            if r.is_vector() {
                let bad = exec & !self.lanes(w.index as usize, r);
                if bad != 0 {
                    return Err((FaultKind::UndefinedRegister(Regs::from(r).to_string()), Some(bad.trailing_zeros())));
                }
            } else if tracked(r)
                && !(r == Reg::VCC_HI && w.lanes == 32)
                && self.waves[w.index as usize].scalar[scalar(r) as usize] != u32::MAX
            {
                return Err((FaultKind::UndefinedRegister(Regs::from(r).to_string()), None));
            }
        }
        Ok(())
    }

    /// Bounds, alignment, initialisation, races; queues the operation on its counters.
    fn memory(&mut self, w: &Wave, l: &Launch, uop: &UOp, f: &Facts, d: &Defined) -> Result<(), Problem> {
        let mut touched = Vec::new();
        let flags = f.info.flags;
        let dma = uop.access.flags & vmem::TO_LDS != 0 && !matches!(uop.access.space, Space::Lds { .. });
        let (reads, writes) = (flags.has(Flags::LOAD), flags.has(Flags::STORE) || flags.has(Flags::ATOMIC));
        match uop.access.space {
            Space::Lds { second } => {
                let exec = w.exec();
                let atomic = flags.has(Flags::ATOMIC) || (reads && writes);
                let writes = writes || !reads;
                for lane in (0..w.lanes as u32).filter(|n| exec >> n & 1 == 1) {
                    let base = w.lane(uop.src[0].at, lane as usize);
                    let two = [Some(uop.imm as u32), second.then_some(uop.dst2)];
                    for offset in two.into_iter().flatten() {
                        let addr = base.wrapping_add(offset);
                        touched.push((addr, uop.access.bytes as u32, writes));
                        self.filled(w.index as usize, addr, uop.access.bytes as u32).map_err(|k| (k, Some(lane)))?;
                        self.lds_access(w, l, lane, addr, uop.access.bytes as u32, writes, atomic, d)?;
                    }
                }
            }
            Space::None | Space::Scalar => {}
            _ => {
                for (lane, p, size) in vmem::touched(w, uop) {
                    let Some(addr) = w.mem.address_of(p) else {
                        // A flat access to LDS.
                        let at = (p as u64).wrapping_sub(w.lds as u64) as u32;
                        let atomic = flags.has(Flags::ATOMIC);
                        touched.push((at, size, writes || !reads));
                        self.lds_access(w, l, lane, at, size, writes || !reads, atomic, d)?;
                        continue;
                    };
                    let recorded = self.inside(addr, size, writes && !reads).map_err(|k| (k, Some(lane)))?;
                    let atomic = flags.has(Flags::ATOMIC);
                    if atomic && addr % uop.access.bytes.max(1) as u64 != 0 {
                        let align = uop.access.bytes as u32;
                        return Err((FaultKind::Misaligned { addr, align }, Some(lane)));
                    }
                    if reads
                        && recorded
                        && uop.access.space != Space::Scratch
                        && let Some(addr) = l.memory.first_unwritten(addr, size as u64)
                    {
                        return Err((FaultKind::UninitialisedRead { space: "memory", addr }, Some(lane)));
                    }
                    if writes || !reads {
                        l.memory.mark(addr, size as u64, true);
                    }
                }
                if dma {
                    // What arrives is as defined as memory.
                    let known = Defined { scalar: true, lanes: w.all(), low: true, low_lanes: w.all(), bits: None };
                    for (lane, addr, size) in vmem::lds_filled(w, uop) {
                        touched.push((addr, size, true));
                        self.lds_access(w, l, lane, addr, size, true, false, &known)?;
                    }
                }
            }
        }
        if !f.info.counters.is_empty() {
            let loads = reads || (flags.has(Flags::ATOMIC) && !f.inst.dsts.is_empty()) || f.info.pipe == Pipe::Smem;
            let fills: Vec<Regs> = if loads || f.info.pipe == Pipe::Lds {
                f.inst.dsts.iter().filter_map(|o| o.regs()).collect()
            } else {
                Vec::new()
            };
            // A flat access that goes to memory in all lanes behaves like a global one; whether it does is known here.
            let flat = uop.access.space == Space::Flat;
            let to_lds = flat && vmem::flat_reaches_lds(w, uop);
            for &counter in f.info.counters {
                // Atomics count as loads when they return something, else as stores.
                let returns = !f.inst.dsts.is_empty();
                let both = f.info.counters.contains(&Counter::Vs) && f.info.counters.contains(&Counter::Vm);
                if both && counter == (if returns { Counter::Vs } else { Counter::Vm }) {
                    continue;
                }
                if counter == Counter::Exp || (flat && !to_lds && counter == Counter::Lgkm) {
                    continue;
                }
                self.waves[w.index as usize].pending.push_back(Pending {
                    counter,
                    in_order: !flags.has(Flags::OUT_OF_ORDER) || (flat && !to_lds),
                    fills: fills.clone(),
                    name: f.info.name,
                    lds: touched.clone(),
                    atomic: flags.has(Flags::ATOMIC),
                    dma,
                });
            }
        }
        Ok(())
    }

    /// Whether an access lies in an allocation, and all writes to that were recorded.
    fn inside(&self, addr: u64, size: u32, store: bool) -> Result<bool, FaultKind> {
        let n = self.allocations.partition_point(|a| a.start <= addr);
        let found = n.checked_sub(1).map(|i| self.allocations[i]);
        match found.filter(|a| addr + size as u64 <= a.start + a.size.next_multiple_of(4)) {
            Some(a) => Ok(a.recorded),
            None => Err(FaultKind::OutOfBounds { addr, size, store }),
        }
    }

    /// Whether LDS bytes are still on their way from memory, by a load of the same wave.
    fn filled(&self, wave: usize, addr: u32, size: u32) -> Result<(), FaultKind> {
        for p in self.waves[wave].pending.iter().filter(|p| p.dma) {
            if p.lds.iter().any(|&(at, n, _)| at < addr.wrapping_add(size) && addr < at + n) {
                let pending = format!("{} ({:?} counter)", p.name, p.counter).to_lowercase();
                return Err(FaultKind::MissingWait { register: format!("LDS at {addr:#x}"), pending });
            }
        }
        Ok(())
    }

    fn lds_access(
        &mut self,
        w: &Wave,
        l: &Launch,
        lane: u32,
        addr: u32,
        size: u32,
        write: bool,
        atomic: bool,
        d: &Defined,
    ) -> Result<(), Problem> {
        let end = addr as u64 + size as u64;
        if end > l.lds_size as u64 {
            return Err((FaultKind::LdsOutOfBounds { addr, size, limit: l.lds_size }, Some(lane)));
        }
        let me = w.index as u8 + 1;
        for i in addr..addr + size {
            let b = &mut self.lds[i as usize];
            let race = |other: u8| {
                let other_wave = if other == 255 { u32::MAX } else { other as u32 - 1 };
                Err((FaultKind::LdsRace { addr: i, other_wave }, Some(lane)))
            };
            if !write && !b.written {
                return Err((FaultKind::UninitialisedRead { space: "LDS", addr: i as u64 }, Some(lane)));
            }
            if b.writer != 0 && b.writer != me {
                return race(b.writer);
            }
            if write && b.reader != 0 && b.reader != me {
                return race(b.reader);
            }
            // Atomics of several waves may meet.
            if atomic {
                b.atomic = if b.atomic == 0 || b.atomic == me { me } else { 255 };
            } else {
                if b.atomic != 0 && b.atomic != me {
                    return race(b.atomic);
                }
                if write {
                    b.writer = me;
                } else {
                    b.reader = if b.reader == 0 || b.reader == me { me } else { 255 };
                }
            }
            if write && !atomic {
                b.written = d.lanes >> lane & 1 == 1;
            }
        }
        Ok(())
    }

    /// Records what the instruction defined.
    fn after(&mut self, w: &Wave, f: &Facts, d: Defined) {
        let loads = f.info.flags.has(Flags::LOAD) || f.info.pipe == Pipe::Smem;
        let wave = w.index as usize;
        let exec = w.exec();
        for (i, r) in f.writes.iter().flat_map(|r| r.iter().enumerate()) {
            let (scalars, vectors) = if i == 0 { (d.low, d.low_lanes) } else { (d.scalar, d.lanes) };
            if r.is_vector() {
                let Some(row) = self.row(r) else { continue };
                let lanes = if loads { w.all() } else { vectors };
                let at = &mut self.waves[wave].vector[row];
                if f.info.flags.has(Flags::MATRIX) || f.inst.op == op::V_WRITELANE_B32 {
                    *at |= if d.scalar { w.all() } else { 0 };
                } else {
                    *at = *at & !exec | lanes & exec;
                }
            } else if (scalar(r) as usize) < SCALARS {
                // Lane masks and bitwise results are known bit by bit; SCC only when all of the result is.
                let known = match d.bits {
                    Some(b) if r == Reg::SCC && b & w.all() == w.all() => u32::MAX,
                    Some(_) if r == Reg::SCC => 0,
                    // The old EXEC.
                    Some(_) if f.logic.is_some_and(|l| l.exec) => u32::MAX,
                    Some(b) => (b >> (32 * i.min(1))) as u32,
                    _ if loads || scalars || !tracked(r) => u32::MAX,
                    _ => 0,
                };
                self.waves[wave].scalar[scalar(r) as usize] = known;
            }
        }
    }
}

/// Why a check failed, and the lane.
type Problem = (FaultKind, Option<u32>);

/// What an instruction reads is defined.
struct Defined {
    /// All scalars, and vectors in all active lanes.
    scalar: bool,
    /// By lane.
    lanes: u64,
    /// The same for the low dwords of 64-bit values.
    low: bool,
    /// By lane.
    low_lanes: u64,
    /// Bit by bit, for lane masks and scalar logic.
    bits: Option<u64>,
}
