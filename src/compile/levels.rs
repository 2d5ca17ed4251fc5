//! Levels of a launch: what makes its workgroups wait for all of the level before.
//!
//! ```text
//! part:                                        each kernel's code:
//!     counter = address of the launch's           ...
//!     if the level is not the first:              ends: go to told
//!         wait until the counter of the level  told:
//!             before is its number of waves        wait for all stores
//!         drop what caches hold                    add 1 to the counter
//!     counter = address of the own level's         if that made the last level's 0: clear those before
//! ```
//! Kernels are finished code, as for those side by side ([`linked`](super::link::linked)); what a level has stored before its waves count is what launches one behind the
//! other would find. Workgroups wait for such of lower numbers only, which begin before them, so that however few are resident at once the launch goes on (as for steps that
//! are compiled as one, [`Link`](crate::kernels::Link)).
//!
//! Every wave waits, and counts, by itself: kernels have waves that end before others meet at a barrier. On devices of several dies, and where caches are told for whom a
//! store is, stores go where the whole device sees them: that is a field of instructions, which become no longer by it.
//!
//! Counters are zero before a launch and after it: that of the last level goes round to 0 with its last wave, behind which nobody looks at the others any more.

use super::kernel::KernelCode;
use super::link::{Beside, STANDING, Text, imm, s, sgprs};
use crate::mir::SLEEP;
use crate::passes::{ACCESSES_READ, SCALARS_WRITTEN};
use barewave_isa::{
    Counter, Fix, Flags, Inst, ModName, Op, OpInfo, Operand, Pipe, Reg, Regs, Target, max_required_states, op,
};

/// Bytes from a level's counter to the next: a line of a cache.
const PITCH: u32 = 128;

/// VGPRs of what waits and counts: a word, what an atomic gives, and an address.
const WORD: u16 = 0;
const FOUND: u16 = 1;
const ADDRESS: u16 = 2;
pub(super) const VGPRS: u32 = 4;

/// What waits for others asks its counter by: no kernel has an argument or an id there.
const SEEN: u16 = 16;

/// Bytes of counters for so many levels.
pub(super) fn bytes(levels: u32) -> u32 {
    levels * PITCH
}

/// The SGPRs that no kernel of a launch has: the address of the own level's counter, and what it wraps at; and where a launch is told that, behind these how many waves the level
/// before has.
#[derive(Clone, Copy)]
pub(super) struct Kept {
    counter: u16,
    wraps: u16,
    told: bool,
}

/// What counters come to.
#[derive(Clone, Copy)]
pub(super) struct Counts {
    /// Waves of the level before.
    pub before: u32,
    /// What the own level's wraps at: one less than its waves for the last level.
    pub wraps: u32,
}

impl Counts {
    /// Those of a level.
    pub fn of(target: Target, parts: &[Beside], level: u32) -> Counts {
        let of_level = |n: u32| -> u32 { parts.iter().filter(|p| p.level == n).map(|p| p.waves(target)).sum() };
        let last = parts.last().is_some_and(|p| p.level == level);
        Counts {
            before: level.checked_sub(1).map_or(0, of_level),
            wraps: if last { of_level(level) - 1 } else { u32::MAX },
        }
    }
}

/// A level of a launch.
#[derive(Clone, Copy)]
pub(super) struct Level {
    pub number: u32,
    /// None where the launch is told.
    pub counts: Option<Counts>,
}

impl Kept {
    /// Behind the registers of all of them, if there is room.
    pub fn of<'a>(target: Target, kernels: impl Iterator<Item = &'a KernelCode>, told: bool) -> Option<Kept> {
        let used = kernels.map(|k| k.sgprs).max()?.max(sgprs(told)).next_multiple_of(if told { 4 } else { 2 });
        let info = target.info();
        let end = if info.architected_sgprs { u32::from(STANDING[0]) } else { info.max_sgprs };
        let kept = Kept { counter: used as u16, wraps: used as u16 + 2, told };
        (kept.sgprs() <= end).then_some(kept)
    }

    /// SGPRs of a wave with them.
    pub fn sgprs(self) -> u32 {
        u32::from(self.wraps) + 1 + u32::from(self.told)
    }

    /// Arguments that they come from.
    pub fn args(self) -> u32 {
        1 + u32::from(self.told)
    }

    /// Waves of the level before, where the launch is told.
    fn before(self) -> Operand {
        s(self.wraps + 1)
    }

    fn address(self) -> Operand {
        Operand::Regs(Regs::s(self.counter, 2))
    }
}

fn v(n: u16) -> Operand {
    Operand::Regs(Reg::v(n).into())
}

/// The policy with which an instruction's results go where the whole device sees them.
pub(super) fn policy_of(target: Target, op: Op) -> i32 {
    let Some(info) = target.op(op).filter(|i| i.pipe == Pipe::Vmem) else { return 0 };
    let (atomic, store) = (target.info().device_atomic, target.info().device_store);
    let policy = if info.flags.has(Flags::ATOMIC) { atomic } else { store * u32::from(info.flags.has(Flags::STORE)) };
    policy as i32
}

impl Text {
    /// Asks for where the counters are, whose address is an argument, and for what they come to.
    pub(super) fn ask_counters(&mut self, kept: Kept, byte: u32) -> Option<()> {
        let args = [Operand::Regs(Regs::s(0, 2)), imm(byte)];
        match kept.told {
            true => self.push(op::S_LOAD_DWORDX4, &[Operand::Regs(Regs::s(kept.counter, 4))], &args),
            false => self.push(op::S_LOAD_DWORDX2, &[kept.address()], &args),
        }
    }

    /// Waits for the level before, and knows where the own one counts.
    pub(super) fn wait_for_level(&mut self, kept: Kept, level: Level) -> Option<()> {
        if let Some(counts) = level.counts {
            self.push(op::S_MOV_B32, &[s(kept.wraps)], &[imm(counts.wraps)])?;
        }
        let all = level.counts.map_or(kept.before(), |c| imm(c.before));
        let Some(before) = level.number.checked_sub(1) else { return Some(()) };
        self.wait_for(&[op::S_LOAD_DWORDX2])?;
        self.go_on(kept, before * PITCH)?;
        self.address(kept)?;
        let begin = self.code.len();
        let load = if self.target.has(op::GLOBAL_LOAD_DWORD) { op::GLOBAL_LOAD_DWORD } else { op::FLAT_LOAD_DWORD };
        self.access(load, &[v(FOUND)], &[], self.target.info().device_load)?;
        self.wait_for(&[load])?;
        self.push(op::V_READFIRSTLANE_B32, &[s(SEEN)], &[v(FOUND)])?;
        self.push(op::S_CMP_EQ_U32, &[], &[s(SEEN), all])?;
        // Over what follows, of a dword each.
        self.push(op::S_CBRANCH_SCC1, &[], &[imm(2)])?;
        self.push(op::S_SLEEP, &[], &[imm(SLEEP)])?;
        let back = (begin as i64 - self.code.len() as i64 - 4) / 4;
        self.push(op::S_BRANCH, &[], &[Operand::Imm(back as u64)])?;
        // What scalar loads go through, too.
        let scalar = self.target.has(op::S_DCACHE_INV).then(|| Inst::new(op::S_DCACHE_INV, &[], &[]));
        for inst in crate::mir::drops(self.target).into_iter().chain(scalar) {
            self.inst(&inst)?;
        }
        self.wait_for(&[op::BUFFER_LOAD_DWORD, op::S_LOAD_DWORDX2])?;
        self.go_on(kept, PITCH)
    }

    /// What all waves come to that have done everything else: they count, and end.
    pub(super) fn tell(&mut self, kept: Kept, levels: u32) -> Option<()> {
        self.wait_for(&[op::BUFFER_STORE_DWORD, op::BUFFER_LOAD_DWORD, op::S_LOAD_DWORDX2, op::DS_READ_B32])?;
        // Whatever the kernel did last.
        for _ in 0..max_required_states(self.target).div_ceil(8) {
            self.push(op::S_NOP, &[], &[imm(7)])?;
        }
        // Nor may the mask be written that accesses before still read.
        if self.target.hazards().iter().any(|h| h.fix == Fix::VmVsrc) {
            self.push(op::S_WAITCNT_DEPCTR, &[], &[imm(ACCESSES_READ)])?;
        }
        let one = Reg::EXEC_LO;
        match self.target.info().wave_size {
            64 => self.push(op::S_MOV_B64, &[Operand::Regs(Regs::new(one, 2))], &[imm(1)])?,
            _ => self.push(op::S_MOV_B32, &[Operand::Regs(one.into())], &[imm(1)])?,
        }
        self.address(kept)?;
        self.push(op::V_MOV_B32, &[v(WORD)], &[s(kept.wraps)])?;
        let policy = self.target.info().device_atomic;
        let mut plain = Text::new(self.target);
        plain.access(op::FLAT_ATOMIC_INC, &[], &[v(WORD)], policy)?;
        plain.push(op::S_ENDPGM, &[], &[imm(0)])?;
        self.push(op::S_CMP_LG_U32, &[], &[s(kept.wraps), imm(u32::MAX)])?;
        self.push(op::S_CBRANCH_SCC1, &[], &[imm(plain.code.len() as u32 / 4)])?;
        self.append(&plain);
        self.access(op::FLAT_ATOMIC_INC, &[v(FOUND)], &[v(WORD)], policy)?;
        self.wait_for(&[op::FLAT_ATOMIC_INC])?;
        self.push(op::V_READFIRSTLANE_B32, &[s(SEEN)], &[v(FOUND)])?;
        self.push(op::S_CMP_LG_U32, &[], &[s(SEEN), s(kept.wraps)])?;
        let mut clear = Text::new(self.target);
        clear.push(op::V_MOV_B32, &[v(WORD)], &[imm(0)])?;
        let store = if self.target.has(op::GLOBAL_STORE_DWORD) { op::GLOBAL_STORE_DWORD } else { op::FLAT_STORE_DWORD };
        for _ in 1..levels {
            clear.set(op::S_SUB_U32, kept.counter, kept.counter, imm(PITCH))?;
            clear.set(op::S_SUBB_U32, kept.counter + 1, kept.counter + 1, imm(0))?;
            clear.address(kept)?;
            clear.access(store, &[], &[v(WORD)], self.target.info().device_store)?;
        }
        self.push(op::S_CBRANCH_SCC1, &[], &[imm(clear.code.len() as u32 / 4)])?;
        self.append(&clear);
        self.push(op::S_ENDPGM, &[], &[imm(0)])
    }

    pub(super) fn append(&mut self, other: &Text) {
        self.code.extend_from_slice(&other.code);
        self.instructions += other.instructions;
    }

    /// The counter so many bytes further on.
    fn go_on(&mut self, kept: Kept, bytes: u32) -> Option<()> {
        if bytes == 0 {
            return Some(());
        }
        self.set(op::S_ADD_U32, kept.counter, kept.counter, imm(bytes))?;
        self.set(op::S_ADDC_U32, kept.counter + 1, kept.counter + 1, imm(0))
    }

    /// Its address where memory is accessed by it.
    fn address(&mut self, kept: Kept) -> Option<()> {
        // Vector instructions that read what scalar ones have written just now.
        if self.target.info().architected_sgprs {
            self.push(op::S_WAITCNT_DEPCTR, &[], &[imm(SCALARS_WRITTEN)])?;
        }
        (0..2).try_for_each(|n| self.push(op::V_MOV_B32, &[v(ADDRESS + n)], &[s(kept.counter + n)]))
    }

    fn access(&mut self, op: Op, dsts: &[Operand], data: &[Operand], policy: u32) -> Option<()> {
        let address = [Operand::Regs(Regs::v(ADDRESS, 2))];
        let srcs: Vec<Operand> = address.iter().chain(data).copied().chain([Operand::Off]).collect();
        // Some targets add a scalar address where there is one.
        let takes = self.target.op(op)?.srcs.len().min(srcs.len());
        let mut inst = Inst::new(op, dsts, &srcs[..takes]);
        if policy != 0 {
            inst.mods.set(ModName::Cpol, policy as i32);
        }
        self.inst(&inst)
    }

    /// Waits until instructions like these are done.
    pub(super) fn wait_for(&mut self, ops: &[Op]) -> Option<()> {
        let counters = |op: &Op| self.target.op(*op).map_or(&[][..], |i: &OpInfo| i.counters);
        let waits: Vec<(Counter, u8)> = ops.iter().flat_map(counters).map(|c| (*c, 0)).collect();
        self.target.encode_waits(&waits).iter().try_for_each(|i| self.inst(i))
    }
}
