//! Bytes and halves of words become f32 where they lie: what takes them out of their word is left out.
//!
//! `v_cvt_f32_ubyte0` to `3` convert an unsigned byte of a word on every target. What has SDWA (gfx8 to gfx10) reads any byte or half of a register, with its
//! sign or without.
//!
//! ```text
//! %2 = v_bfe_i32 %1, 8, 8
//! %3 = v_cvt_f32_i32 %2      ->      %3 = v_cvt_f32_i32 %1 {src0_sel=1, sext=1}
//! ```

use crate::mir::{Function, MInst, Opnd, Part, RegClass, VReg};
use barewave_isa::{ModName, Op, op};
use rustc_hash::FxHashMap;

/// Conversions of bytes.
const OF_BYTES: [Op; 4] = [op::V_CVT_F32_UBYTE0, op::V_CVT_F32_UBYTE1, op::V_CVT_F32_UBYTE2, op::V_CVT_F32_UBYTE3];

/// Part of a word.
#[derive(Clone, Copy)]
struct Field {
    word: Part,
    shift: u64,
    bits: u64,
    signed: bool,
}

/// Converts in place what it can. `defs`: how often each register is written.
pub(super) fn convert_in_place(f: &mut Function, defs: &[u32]) {
    let mut fields: FxHashMap<VReg, Field> = FxHashMap::default();
    for b in 0..f.blocks.len() {
        for i in 0..f.blocks[b].insts.len() {
            let inst = &f.blocks[b].insts[i];
            if let ([Opnd::V(d)], Some(field)) = (&inst.dsts[..], field(f, inst))
                && [d.reg, field.word.reg].iter().all(|v| defs[v.0 as usize] == 1)
            {
                fields.insert(d.reg, field);
            } else if let (Some(op::V_CVT_F32_I32 | op::V_CVT_F32_U32), [Opnd::V(x)]) = (inst.op(), &inst.srcs[..])
                && inst.mods.is_empty()
                && let Some(field) = fields.get(&x.reg)
                && let Some(converted) = converted(f, inst, *field)
            {
                f.blocks[b].insts[i] = converted;
            }
        }
    }
}

/// The part of a word that an instruction takes out of it.
fn field(f: &Function, i: &MInst) -> Option<Field> {
    let signed = i.op() == Some(op::V_BFE_I32);
    match (i.op()?, &i.srcs[..]) {
        (op::V_BFE_I32 | op::V_BFE_U32, &[Opnd::V(word), Opnd::Imm(shift), Opnd::Imm(bits)]) => {
            let vector = f.vreg(word.reg).class == RegClass::V && i.mods.is_empty();
            (vector && shift % bits.max(1) == 0).then_some(Field { word, shift, bits, signed })
        }
        _ => None,
    }
}

/// The conversion that reads the word.
fn converted(f: &Function, i: &MInst, Field { word, shift, bits, signed }: Field) -> Option<MInst> {
    let mut out = i.clone();
    out.srcs[0] = word.into();
    if bits == 8 && !signed {
        out.code = OF_BYTES.get(shift as usize / 8).copied()?.into();
        return Some(out);
    }
    let part = match bits {
        8 => shift / 8,
        16 => 4 + shift / 16,
        _ => return None,
    };
    out.mods = out.mods.with(ModName::Src0Sel, part as i32);
    if signed {
        out.mods.set(ModName::Sext, 1);
    }
    i.op().filter(|op| f.target.selects_parts(*op)).map(|_| out)
}
