//! What strict mode knows of an instruction without running it.

use super::registers::RegSet;
use barewave_isa::action::{Action, Address, Part, Salu, Transfer};
use barewave_isa::{
    Counter, Fix, Flags, HazardInst, Inst, ModName, OpInfo, Operand, Pipe, Reg, Regs, ScalarUse, Target, Traits,
    WaitScheme, op,
};
use std::collections::BTreeMap;

/// What is known of an instruction without running it.
pub struct Facts {
    pub inst: HazardInst,
    pub info: &'static OpInfo,
    /// Registers read, implicit ones included.
    pub reads: Vec<Regs>,
    /// Registers written.
    pub writes: Vec<Regs>,
    /// Both, as words of a set of registers.
    pub touches: Vec<(usize, u64)>,
    /// VGPRs and AGPRs that the kernel must have for them.
    pub vectors: [u32; 2],
    /// Counters that it increments.
    pub counters: &'static [Counter],
    /// Halves of its destination that it fills: low 1, high 2.
    pub fills: u8,
    /// What it waits for.
    pub wait: Option<Vec<(Counter, u8)>>,
    /// Wait states that the instruction itself provides.
    pub states: u32,
    /// Instructions of the clause that it begins.
    pub clause: usize,
    /// A scalar bitwise instruction.
    pub logic: Option<Logic>,
    /// The low dword of a 64-bit result depends on the low dwords of the sources only.
    pub split: bool,
    /// A packed instruction on pairs of dwords: which dword of each source makes the low and the high result, a bit each.
    pub halves: Option<[u32; 2]>,
    /// Others may have to keep away from it by wait states.
    pub delays: bool,
    /// Others may have to keep away from it by more than wait states.
    pub produces: bool,
    /// Scalar registers it uses, where the order of their uses is a hazard.
    pub scalars: Option<ScalarUse>,
    /// Undefined sources must not decide: a branch, a write of EXEC, a memory operation.
    pub decides: bool,
    /// Sources that are the data of a memory operation, a bit each.
    pub data: u32,
    /// What rules of hazards call it.
    pub traits: Traits,
    /// Works on global data share.
    pub gds: bool,
    /// A memory instruction that takes an address from M0.
    pub takes_m0: bool,
    /// Waves meet: all lanes should be there.
    pub meets: bool,
    /// Loads and stores as atomics do.
    pub coherent: bool,
    /// After it, memory shows what other workgroups have written.
    pub acquires: bool,
}

/// Special registers that never count as undefined or as data.
pub fn tracked(r: Reg) -> bool {
    !matches!(r, Reg::MODE | Reg::EXEC_LO | Reg::EXEC_HI | Reg::NULL | Reg::EXECZ | Reg::VCCZ)
        && !(Reg::SHARED_BASE.0..=Reg::PRIVATE_LIMIT.0 + 1).contains(&r.0)
}

pub fn facts(target: Target, inst: Inst, lanes: usize) -> Option<Facts> {
    let info = target.op(inst.op)?;
    let inst = HazardInst::new(target, inst)?;
    // Lane masks of a wave of 32 are one register.
    let used = |r: &&Reg| !(lanes == 32 && **r == Reg::VCC_HI);
    let mut reads: Vec<Regs> = inst.srcs.iter().filter_map(|o| o.regs()).collect();
    let mut writes: Vec<Regs> = inst.dsts.iter().filter_map(|o| o.regs()).collect();
    // Accumulators; partial writes (halves, one lane) are not reads that matter.
    let partial = inst.op.is_partial() || info.flags.has(Flags::LOAD) || info.pipe == Pipe::Lds;
    for (o, slot) in inst.dsts.iter().zip(info.dsts) {
        if slot.read && slot.bits >= 32 && !partial {
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
    let memory = inst.op.memory();
    let through_lds = memory.is_some_and(|m| matches!(m.transfer, Transfer::LoadLds | Transfer::StoreLds));
    let to_lds = info.pipe == Pipe::Vmem && (inst.mods.get(ModName::Lds) == Some(1) || through_lds);
    let takes_m0 = to_lds || memory.is_some_and(|m| m.address == Address::ThreadId);
    if matches!(info.pipe, Pipe::Lds | Pipe::Vmem) && !takes_m0 {
        reads.retain(|r| r.first != Reg::M0);
    }
    let mut vectors = [0; 2];
    for r in reads.iter().chain(&writes).filter(|r| r.first.is_vector()) {
        let end = r.first.0 as u32 + r.dwords as u32;
        match end.checked_sub(Reg::A0.0 as u32 + 1) {
            Some(last) => vectors[1] = vectors[1].max(last + 1),
            None => vectors[0] = vectors[0].max(end),
        }
    }
    let mut words = BTreeMap::new();
    for (word, bits) in reads.iter().chain(&writes).flat_map(|r| RegSet::words(*r)) {
        *words.entry(word).or_insert(0) |= bits;
    }
    let touches = words.into_iter().collect();
    let wait = target.decode_wait(&inst).map(|l| l.into_iter().collect());
    let states = match (inst.op, inst.srcs.first()) {
        (op::S_NOP, Some(Operand::Imm(n))) => *n as u32 + 1,
        _ => 1,
    };
    let clause = match (inst.op, inst.srcs.first()) {
        (op::S_CLAUSE, Some(Operand::Imm(n))) => (*n & 63) as usize + 1,
        _ => 0,
    };
    let fills = match memory.filter(|m| m.components == 0).map(|m| m.part) {
        Some(Part::Low) => 1,
        Some(Part::High) => 2,
        _ => 3,
    };
    let split = inst.op.is_split();
    let logic = Logic::of(inst.op.action(), info.dsts.first().map_or(0, |d| d.bits.into()));
    let pairs =
        info.flags.has(Flags::PACKED) && inst.dsts.first().and_then(|o| o.regs()).is_some_and(|r| r.dwords == 2);
    let select = |name| inst.mods.get(name).unwrap_or(0) as u32;
    let halves =
        (pairs && info.srcs.iter().all(|s| s.bits == 64)).then(|| [select(ModName::OpSel), select(ModName::OpSelHi)]);
    let counters = target.counters(&inst);
    let scalars = target.scalar_use(&inst);
    let (coherent, acquires) = (coherent(target, &inst, info.flags), acquires(&inst, info));
    let meets = matches!(inst.op, op::S_BARRIER | op::S_BARRIER_SIGNAL | op::S_BARRIER_SIGNAL_ISFIRST);
    let gds = inst.mods.get(ModName::Gds) == Some(1);
    let moves = info.flags.has(Flags::LOAD) || info.flags.has(Flags::STORE) || info.flags.has(Flags::ATOMIC);
    let decides = moves || info.flags.has(Flags::BRANCH) || writes.iter().any(|r| r.first == Reg::EXEC_LO);
    let data = info.srcs.iter().enumerate().map(|(n, s)| u32::from(s.name.contains("data")) << n).sum();
    let traits = Traits::of(info, &inst);
    let delays = inst.starts().any(|r| r.fix == Fix::Nop);
    let produces = inst.starts().any(|r| r.fix != Fix::Nop);
    Some(Facts {
        inst,
        info,
        reads,
        writes,
        touches,
        vectors,
        counters,
        fills,
        wait,
        states,
        clause,
        logic,
        split,
        halves,
        delays,
        produces,
        scalars,
        decides,
        data,
        traits,
        gds,
        takes_m0,
        meets,
        coherent,
        acquires,
    })
}

/// Cache policy bit for the device and wider scopes: sc1 of gfx942, the upper bit of gfx12's scope.
const DEVICE_SCOPE: i32 = 16;
/// Cache policy bit of gfx8 to gfx11: do not read from a cache that other workgroups do not share.
const GLC: i32 = 1;

fn device_scope(inst: &Inst) -> bool {
    inst.mods.get(ModName::Cpol).unwrap_or(0) & DEVICE_SCOPE != 0
}

/// A load or store that other workgroups' atomics may meet.
fn coherent(target: Target, inst: &Inst, flags: Flags) -> bool {
    let glc = target.info().waits != WaitScheme::Split && inst.mods.get(ModName::Cpol).unwrap_or(0) & GLC != 0;
    device_scope(inst) || glc && flags.has(Flags::LOAD)
}

/// Atomics of device memory, what drops caches that a device's workgroups share, and global wave sync. Source: LLVM's
/// "User Guide for AMDGPU Backend", memory model tables, agent scope.
fn acquires(inst: &Inst, info: &OpInfo) -> bool {
    match inst.op {
        op::BUFFER_WBINVL1 | op::BUFFER_WBINVL1_VOL | op::BUFFER_GL1_INV => true,
        op::S_DCACHE_INV | op::S_DCACHE_INV_VOL | op::S_GL1_INV => true,
        op::BUFFER_INV | op::GLOBAL_INV => device_scope(inst),
        _ => {
            let gws = matches!(inst.op.action(), Action::Sync(_)) && info.pipe == Pipe::Lds;
            gws || info.flags.has(Flags::ATOMIC) && matches!(info.pipe, Pipe::Vmem | Pipe::Smem)
        }
    }
}

/// Scalar bitwise instructions, whose results can be known although operands are not.
#[derive(Clone, Copy)]
pub struct Logic {
    /// `&`, `|`, `^`, or `=` for moves.
    pub kind: char,
    pub not_a: bool,
    pub not_b: bool,
    pub bits: u32,
    /// The second operand is EXEC.
    pub exec: bool,
}

impl Logic {
    /// `bits` are those of the destination.
    fn of(action: &Action, bits: u32) -> Option<Logic> {
        use Salu::*;
        let Action::Salu(f) = action else { return None };
        let (kind, not_a, not_b) = match f {
            AndB32 | AndB64 | NandB32 | NandB64 => ('&', false, false),
            AndSaveexecB32 | AndSaveexecB64 | NandSaveexecB32 | NandSaveexecB64 => ('&', false, false),
            Andn1SaveexecB32 | Andn1SaveexecB64 | Andn1WrexecB32 | Andn1WrexecB64 => ('&', true, false),
            Andn2B32 | Andn2B64 | Andn2SaveexecB32 | Andn2SaveexecB64 => ('&', false, true),
            Andn2WrexecB32 | Andn2WrexecB64 => ('&', false, true),
            OrB32 | OrB64 | NorB32 | NorB64 => ('|', false, false),
            OrSaveexecB32 | OrSaveexecB64 | NorSaveexecB32 | NorSaveexecB64 => ('|', false, false),
            Orn1SaveexecB32 | Orn1SaveexecB64 => ('|', true, false),
            Orn2B32 | Orn2B64 | Orn2SaveexecB32 | Orn2SaveexecB64 => ('|', false, true),
            XorB32 | XorB64 | XnorB32 | XnorB64 => ('^', false, false),
            XorSaveexecB32 | XorSaveexecB64 | XnorSaveexecB32 | XnorSaveexecB64 => ('^', false, false),
            MovB32 | MovB64 | NotB32 | NotB64 => ('=', false, false),
            _ => return None,
        };
        let exec = matches!(
            f,
            AndSaveexecB32
                | AndSaveexecB64
                | NandSaveexecB32
                | NandSaveexecB64
                | Andn1SaveexecB32
                | Andn1SaveexecB64
                | Andn1WrexecB32
                | Andn1WrexecB64
                | Andn2SaveexecB32
                | Andn2SaveexecB64
                | Andn2WrexecB32
                | Andn2WrexecB64
                | OrSaveexecB32
                | OrSaveexecB64
                | NorSaveexecB32
                | NorSaveexecB64
                | Orn1SaveexecB32
                | Orn1SaveexecB64
                | Orn2SaveexecB32
                | Orn2SaveexecB64
                | XorSaveexecB32
                | XorSaveexecB64
                | XnorSaveexecB32
                | XnorSaveexecB64
        );
        Some(Logic { kind, not_a, not_b, bits, exec })
    }
}
