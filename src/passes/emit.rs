//! Emission: physical machine IR to bytes, with branch distances, and to readable assembly.
//!
//! All instructions but branches have a size that does not depend on layout, and branches are always four bytes; so
//! one pass over sizes places every block and a second one encodes. Where a distance is one that the target's branches
//! cannot have, an `s_nop` goes behind the branch, and all is done again.

use super::repeated::Repeated;
use crate::mir::{BlockId, Function, MInst, Opnd, Part};
use barewave_isa::{Inst, Operand, Regs, op};
use smallvec::SmallVec;

/// An instruction that cannot be encoded: a defect of an earlier pass.
#[derive(Debug, thiserror::Error)]
#[error("kernel {kernel}, {block}: {inst} cannot be encoded: {why}")]
pub struct EmitError {
    kernel: String,
    block: String,
    inst: String,
    why: String,
}

/// The machine code of a function.
#[derive(Clone, Debug, Default)]
pub struct Emitted {
    /// Bytes.
    pub code: Vec<u8>,
    /// Byte offset of each block.
    pub blocks: Vec<u32>,
    /// Number of instructions.
    pub insts: usize,
}

/// The instruction as the encoder takes it; `None` for a generic operation or a virtual register. `distance` gives
/// the branch distance to a block, in dwords from the following instruction.
pub fn lower_inst(i: &MInst, distance: impl Fn(BlockId) -> i64) -> Option<Inst> {
    lower_with(i, distance, |_| None)
}

/// The same, with registers in the place of virtual ones.
pub(super) fn lower_with(
    i: &MInst,
    distance: impl Fn(BlockId) -> i64,
    mut place: impl FnMut(Part) -> Option<Regs>,
) -> Option<Inst> {
    let mut operand = |o: &Opnd| match *o {
        Opnd::P(r) => Some(Operand::Regs(r)),
        Opnd::Imm(x) => Some(Operand::Imm(x)),
        Opnd::Off => Some(Operand::Off),
        Opnd::Block(b) => Some(Operand::Imm(distance(b) as u64)),
        Opnd::V(p) => place(p).map(Operand::Regs),
    };
    let op = i.op()?;
    let (mut dsts, mut srcs) = (SmallVec::new(), SmallVec::new());
    for o in i.dsts.iter() {
        dsts.push(operand(o)?);
    }
    for o in i.srcs.iter() {
        srcs.push(operand(o)?);
    }
    Some(Inst { op, dsts, srcs, mods: i.mods.clone() })
}

/// Encodes a function whose operands are physical.
pub fn emit(f: &mut Function) -> Result<Emitted, EmitError> {
    loop {
        let (out, astray) = lay_out(f)?;
        let Some(b) = astray else { return Ok(out) };
        // the branch ends its block, and where it goes lies beyond the next one's start
        let Some(next) = f.blocks.get_mut(b + 1) else { return Ok(out) };
        next.insts.insert(0, MInst::new(op::S_NOP, &[], &[0u32.into()]));
    }
}

/// Encodes the function as it stands, and finds a block with a branch whose distance the target cannot have.
fn lay_out(f: &Function) -> Result<(Emitted, Option<usize>), EmitError> {
    let fail = |b: usize, inst: &MInst, why: String| EmitError {
        kernel: f.name.clone(),
        block: f.blocks[b].name.clone(),
        inst: format!("{inst:?}"),
        why,
    };
    let mut out = Emitted { code: Vec::with_capacity(8 * f.inst_count()), ..Emitted::default() };
    let mut fixups: Vec<(usize, usize, usize)> = Vec::new();
    let mut repeated = Repeated::new();
    // Where the bytes of each begin and end that was not seen before.
    let mut places: Vec<(usize, usize)> = Vec::new();
    for (b, block) in f.blocks.iter().enumerate() {
        out.blocks.push(out.code.len() as u32);
        for (i, inst) in block.insts.iter().enumerate() {
            out.insts += 1;
            let at = out.code.len();
            let branches = inst.srcs.iter().any(|s| matches!(s, Opnd::Block(_)));
            if branches {
                fixups.push((b, i, at));
            } else if let Some(before) = repeated.find(inst, places.len()) {
                let (from, to) = places[before];
                out.code.extend_from_within(from..to);
                continue;
            }
            let low = lower_inst(inst, |_| 0).ok_or_else(|| fail(b, inst, "it is not a target instruction".into()))?;
            barewave_isa::encode(f.target, &low, &mut out.code).map_err(|e| fail(b, inst, e.to_string()))?;
            if !branches {
                places.push((at, out.code.len()));
            }
        }
    }
    let mut word = Vec::with_capacity(8);
    let mut astray = None;
    for (b, i, at) in fixups {
        let inst = &f.blocks[b].insts[i];
        let distance = |t: BlockId| i64::from(out.blocks[t.0 as usize]) - at as i64;
        if let Some(Opnd::Block(t)) = inst.srcs.iter().find(|s| matches!(s, Opnd::Block(_)))
            && f.target.goes_astray(Some(distance(*t)))
        {
            astray = Some(b);
        }
        let low = lower_inst(inst, |t| (distance(t) - 4) / 4)
            .ok_or_else(|| fail(b, inst, "it is not a target instruction".into()))?;
        word.clear();
        barewave_isa::encode(f.target, &low, &mut word).map_err(|e| fail(b, inst, e.to_string()))?;
        out.code[at..at + word.len()].copy_from_slice(&word);
    }
    Ok((out, astray))
}
