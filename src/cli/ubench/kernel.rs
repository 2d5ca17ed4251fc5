//! Generated kernels: a loop over copies of an instruction between two readings of the clock.
//!
//! Arguments: where each wave writes its clocks, the number of rounds, and memory to read. Two runs with different numbers of
//! rounds differ by rounds alone: what surrounds the loop cancels out.

use crate::{Failure, Result};
use barewave::codeobj::{Abi, link_assembly};
use barewave_isa::{
    Class, Counter, EncodeError, Flags, Form, Inst, Mode, Op, OpInfo, Operand, Pipe, Reg, Regs, Slot, Target, assemble,
    encode_raw, parse,
};

/// Bytes of the arguments.
pub const ARGUMENTS: usize = 24;

/// The arguments of a launch.
pub fn arguments(out: u64, rounds: u32, data: u64) -> Vec<u8> {
    let mut bytes = out.to_le_bytes().to_vec();
    bytes.extend(u64::from(rounds).to_le_bytes());
    bytes.extend(data.to_le_bytes());
    bytes
}

/// The first of some spellings that the target's assembler takes.
fn spelled<'a>(target: Target, choices: &[&'a str]) -> Result<&'a str> {
    let mode = Mode::of(target);
    choices
        .iter()
        .find(|c| parse(target, mode, c).is_ok())
        .copied()
        .ok_or_else(|| Failure::new(format!("{target} has none of: {}", choices.join("; "))))
}

/// Text of an instruction, as the assembler takes it.
fn text(target: Target, inst: &Inst) -> std::result::Result<String, EncodeError> {
    Ok(encode_raw(target, Mode::of(target), Form::Any, inst)?.to_string())
}

/// The waits for counters, one a line.
pub fn waits(target: Target, counters: &[Counter]) -> String {
    let has = |c: &Counter| target.info().counters.iter().any(|i| i.counter == *c);
    let list: Vec<(Counter, u8)> = counters.iter().filter(|c| has(c)).map(|c| (*c, 0)).collect();
    target.encode_waits(&list).iter().filter_map(|i| text(target, i).ok()).map(|t| format!("\t{t}\n")).collect()
}

/// First register of sources, and of results.
const SOURCES: u16 = 8;
const RESULTS: u16 = 40;
/// First scalar register of sources and results.
const SCALARS: u16 = 20;
/// First register behind the results, where those of a second instruction go, and the end of what generated code uses.
const BESIDE: u16 = 104;
const VGPRS: u16 = 120;

fn operand(slot: &Slot, first: u16, scalar: u16) -> Operand {
    let width = slot.dwords().max(1);
    let align = u16::from(slot.align.max(1));
    if slot.class.contains(Class::VGPR) {
        return Operand::Regs(Regs::new(Reg(Reg::V0.0 + first.next_multiple_of(align)), width));
    }
    if slot.class.contains(Class::AGPR) {
        return Operand::Regs(Regs::new(Reg(Reg::A0.0 + first.next_multiple_of(align)), width));
    }
    if slot.class.contains(Class::SGPR) {
        return Operand::Regs(Regs::new(Reg(Reg::S0.0 + scalar.next_multiple_of(align)), width));
    }
    Operand::Imm(0)
}

/// What copies of an instruction have to do with each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Relation {
    /// Each reads what the one before has written.
    Chain,
    /// None.
    Independent,
    /// None, neither with copies of another instruction between them.
    Beside,
}

/// A copy of an instruction; nothing for one that cannot be generated (memory, branches, odd operands).
pub fn copy(target: Target, info: &OpInfo, relation: Relation, number: u16) -> Option<String> {
    let simple = matches!(info.pipe, Pipe::Valu | Pipe::Trans | Pipe::Matrix | Pipe::Salu);
    let plain = !info.flags.has(Flags::BRANCH) && !info.flags.has(Flags::SIDE_EFFECTS);
    let first = info.dsts.first().filter(|_| simple && plain)?;
    let width = u16::from(first.dwords()).next_multiple_of(4);
    let (begin, end) = if relation == Relation::Beside { (BESIDE, VGPRS) } else { (RESULTS, BESIDE) };
    let n = if relation == Relation::Chain { 0 } else { number % ((end - begin) / width).clamp(1, 8) };
    let result = begin + n * width;
    let scalar = SCALARS + 4 * (n % 4);
    let dsts: Vec<Operand> = info.dsts.iter().map(|s| operand(s, result, scalar)).collect();
    let matrix = info.flags.has(Flags::MATRIX);
    let chain = relation == Relation::Chain;
    // What the next copy reads of the result: A of a matrix instruction, else the first source as wide as the result.
    let fits = |s: &Slot| s.dwords() == first.dwords() && s.class.0 & first.class.0 != 0;
    let reads = if matrix { Some(0) } else { info.srcs.iter().position(fits) }.filter(|_| chain);
    // A matrix instruction may leave its result in registers that it can read A of too, but that no compiler would choose.
    let accumulates = matrix && target.info().max_agprs > 0 && !target.info().unified_agprs;
    let accumulator = |s: &Slot, first: u16| Operand::Regs(Regs::new(Reg(Reg::A0.0 + first), s.dwords().max(1)));
    let mut srcs: Vec<Operand> = Vec::new();
    for (i, s) in info.srcs.iter().enumerate() {
        srcs.push(match () {
            () if reads == Some(i) && accumulates => accumulator(s, result),
            () if reads == Some(i) => operand(s, result, scalar),
            // Registers that nothing is written to; gfx908 reads inline constants wrongly.
            () if matrix && i == 2 && chain && accumulates => accumulator(s, 0),
            () if matrix && i == 2 && chain && s.class.contains(Class::INLINE) => Operand::Imm(0),
            () if matrix && i == 2 => dsts[0],
            () => operand(s, SOURCES + 8 * (i as u16 % 3), 40 + 4 * (i as u16)),
        });
    }
    let inst = Inst::new(info.op, &dsts, &srcs);
    if chain && reads.is_none() && !info.dsts.iter().any(|d| d.read) {
        return None;
    }
    text(target, &inst).ok()
}

/// An operation of the target by one of its names.
pub fn operation(target: Target, name: &str) -> Option<&'static OpInfo> {
    (0..Op::COUNT as u16).map(Op).filter_map(|op| target.op(op)).find(|i| i.name == name || i.op.name() == name)
}

/// Assembles a kernel `k` around a loop's body; `before` stands in front of the loop, after registers v8 to v119 and s20 to s63
/// were zeroed, v1 holds four times the lane's number, `s[16:17]` the address of the memory to read.
pub fn kernel(target: Target, before: &str, body: &str, lds: u32) -> Result<Vec<u8>> {
    let info = target.info();
    let lgkm = waits(target, &[Counter::Lgkm, Counter::Km]);
    let vm = waits(target, &[Counter::Vm, Counter::Lgkm]);
    // Clocks that wrap around after 20 bits.
    let mut wraps = "";
    let mut clock = |to: &str| -> Result<String> {
        let choices = [
            format!("s_memtime s[{to}:{}]", to.parse::<u32>().unwrap_or(0) + 1),
            format!("s_getreg_b32 s{to}, hwreg(HW_REG_SHADER_CYCLES, 0, 20)"),
            format!("s_getreg_b32 s{to}, hwreg(HW_REG_SHADER_CYCLES_LO, 0, 20)"),
            format!("s_getreg_b32 s{to}, hwreg(HW_REG_SHADER_CYCLES_LO)"),
        ];
        let list: Vec<&str> = choices.iter().map(String::as_str).collect();
        let text = spelled(target, &list)?;
        wraps = if text.starts_with("s_getreg") { "\ts_and_b32 s8, s8, 0xfffff\n" } else { "" };
        Ok(format!("\t{text}\n{lgkm}"))
    };
    let one = |list: &[&'static str]| spelled(target, list);
    let load2 = |to: &str, at: &str| -> Result<String> {
        let (a, b) = (format!("s_load_dwordx2 {to}, s[0:1], {at}"), format!("s_load_b64 {to}, s[0:1], {at}"));
        Ok(format!("\t{}\n", spelled(target, &[&a, &b])?))
    };
    let mut code = load2("s[12:13]", "0x0")? + &load2("s[14:15]", "0x8")? + &load2("s[16:17]", "0x10")?;
    code += "\tv_and_b32 v0, 0x3ff, v0\n\tv_lshlrev_b32 v1, 2, v0\n";
    code.extend((SOURCES..VGPRS).map(|v| format!("\tv_mov_b32 v{v}, 0\n")));
    code.extend((20..64).map(|s| format!("\ts_mov_b32 s{s}, 0\n")));
    code += &lgkm;
    code += before;
    code += &vm;
    code += &clock("8")?;
    code += ".Lloop:\n";
    code += body;
    let sub = one(&["s_sub_u32 s14, s14, 1", "s_sub_co_u32 s14, s14, 1"])?;
    code += &format!("\t{sub}\n\ts_cmp_lg_u32 s14, 0\n\ts_cbranch_scc1 .Lloop\n");
    code += &vm;
    code += &clock("10")?;
    let difference = one(&["s_sub_u32 s8, s10, s8", "s_sub_co_u32 s8, s10, s8"])?;
    let store = one(&["flat_store_dword v[2:3], v4", "flat_store_b32 v[2:3], v4"])?;
    code += &format!(
        "\t{difference}\n{wraps}\tv_mov_b32 v2, s12\n\tv_mov_b32 v3, s13\n\tv_mov_b32 v4, s8\n\ts_nop 4\n\t{store}\n\ts_endpgm\n"
    );
    let wave = if info.wave_size == 32 { "\t.amdhsa_wavefront_size32 1\n" } else { "" };
    let unified = if info.unified_agprs { "\t.amdhsa_accum_offset 128\n" } else { "" };
    let vgprs = 128;
    let source = format!(
        "\t.amdgcn_target \"amdgcn-amd-amdhsa--{name}\"\n\t.text\n\t.globl k\n\t.p2align 8\n\t.type k,@function\nk:\n{code}\
         \t.rodata\n\t.p2align 6\n\t.amdhsa_kernel k\n\t.amdhsa_user_sgpr_kernarg_segment_ptr 1\n\
         \t.amdhsa_group_segment_fixed_size {lds}\n\t.amdhsa_next_free_vgpr {vgprs}\n\t.amdhsa_next_free_sgpr 96\n{unified}{wave}\t.end_amdhsa_kernel\n\
         \t.amdgpu_metadata\n---\namdhsa.version: [1, 2]\namdhsa.kernels:\n  - .name: k\n    .symbol: k.kd\n\
         \x20   .kernarg_segment_size: {ARGUMENTS}\n    .group_segment_fixed_size: {lds}\n    .private_segment_fixed_size: 0\n\
         \x20   .kernarg_segment_align: 8\n    .wavefront_size: {lanes}\n    .sgpr_count: 96\n    .vgpr_count: 128\n\
         \x20   .max_flat_workgroup_size: 1024\n    .args:\n\
         \x20     - {{ .offset: 0, .size: 8, .value_kind: global_buffer, .address_space: global }}\n\
         \x20     - {{ .offset: 8, .size: 8, .value_kind: by_value }}\n\
         \x20     - {{ .offset: 16, .size: 8, .value_kind: global_buffer, .address_space: global }}\n...\n\t.end_amdgpu_metadata\n",
        name = info.name,
        lanes = info.wave_size,
    );
    let mode = Mode::of(target);
    let assembly = assemble(target, mode, &source).map_err(|e| {
        let first = e.first().map_or(String::new(), |e| e.to_string());
        Failure::new(format!("the generated kernel does not assemble: {first}"))
    })?;
    Ok(link_assembly(target, mode, &assembly, Abi::V5)?)
}
