//! What strict mode knows of an instruction without running it.

use barewave_isa::{
    Counter, Fix, Flags, HazardInst, Inst, ModName, OpInfo, Operand, Pipe, Reg, Regs, ScalarUse, Target, WaitScheme, op,
};

/// What is known of an instruction without running it.
pub struct Facts {
    pub inst: HazardInst,
    pub info: &'static OpInfo,
    /// Registers read, implicit ones included.
    pub reads: Vec<Regs>,
    /// Registers written.
    pub writes: Vec<Regs>,
    /// Counters that it increments.
    pub counters: &'static [Counter],
    /// Halves of its destination that it fills: low 1, high 2.
    pub fills: u8,
    /// What it waits for.
    pub wait: Option<Vec<(Counter, u8)>>,
    /// Wait states that the instruction itself provides.
    pub states: u32,
    /// A scalar bitwise instruction.
    pub logic: Option<Logic>,
    /// The low dword of a 64-bit result depends on the low dwords of the sources only.
    pub split: bool,
    /// A packed instruction on pairs of dwords: which dword of each source makes the low and the high result, a bit each.
    pub halves: Option<[u32; 2]>,
    /// Others may have to keep away from it by more than wait states.
    pub produces: bool,
    /// Scalar registers it uses, where the order of their uses is a hazard.
    pub scalars: Option<ScalarUse>,
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
    let name = inst.op.name();
    let to_lds = info.pipe == Pipe::Vmem && (inst.mods.get(ModName::Lds) == Some(1) || name.contains("_lds_"));
    let takes_m0 = to_lds || name.contains("addtid");
    if matches!(info.pipe, Pipe::Lds | Pipe::Vmem) && !takes_m0 {
        reads.retain(|r| r.first != Reg::M0);
    }
    let wait = target.decode_wait(&inst).map(|l| l.into_iter().collect());
    let states = match (inst.op, inst.srcs.first()) {
        (op::S_NOP, Some(Operand::Imm(n))) => *n as u32 + 1,
        _ => 1,
    };
    let fills = if name.ends_with("d16_hi") { 2 } else { 3 - 2 * u8::from(name.ends_with("_d16")) };
    let split = splits(name);
    let logic = logic(name);
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
    let produces = inst.starts().any(|r| r.fix != Fix::Nop);
    Some(Facts {
        inst,
        info,
        reads,
        writes,
        counters,
        fills,
        wait,
        states,
        logic,
        split,
        halves,
        produces,
        scalars,
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
    let name = inst.op.name();
    match inst.op {
        op::BUFFER_WBINVL1 | op::BUFFER_WBINVL1_VOL | op::BUFFER_GL1_INV => true,
        op::S_DCACHE_INV | op::S_DCACHE_INV_VOL | op::S_GL1_INV => true,
        op::BUFFER_INV | op::GLOBAL_INV => device_scope(inst),
        _ => {
            name.starts_with("ds_gws_") || info.flags.has(Flags::ATOMIC) && matches!(info.pipe, Pipe::Vmem | Pipe::Smem)
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
