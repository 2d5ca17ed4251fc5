//! What assembly must not say although the fields could hold it: alignment of register tuples, register banks of pairs,
//! offsets and masks out of the range of an instruction, registers that the target lacks there.

use crate::encode::decode::Mode;
use crate::encode::encoder::{EncodeError, Form, encode_raw};
use crate::model::codes::{Codes, inline_code};
use crate::model::table::{
    self, Image, Kind, Operand as Field, Over, Role, Row, Style, TRUE16, flag, literal_field, word,
};
use crate::text::syntax;
use crate::{Flags, Half, Inst, ModName, Op, Operand, Quirk, Reg, RegFile, Regs, Target, Type};

struct Check<'a> {
    target: Target,
    codes: Codes,
    row: &'a Row,
    inst: &'a Inst,
}

/// What the manuals forbid of an instruction although it has an encoding: register banks of pairs, alignment of tuples.
pub fn legal(target: Target, inst: &Inst) -> Result<(), EncodeError> {
    let raw = encode_raw(target, Mode::of(target), Form::Any, inst)?;
    check(target, raw.row(), inst)
}

/// What [`pairing`] says of two halves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pairing {
    /// They are no pair, whatever else they have.
    No,
    /// They are one.
    Yes,
    /// [`legal`] knows.
    Perhaps,
}

/// A quick look at two halves of a pair, by what they write and their sources, where these are registers and not behind a
/// constant. `all`: the halves have no other sources but one constant as the first one of either or both, third sources are addends that
/// they write over, and all registers are VGPRs.
pub fn pairing(target: Target, pair: Op, written: [Regs; 2], read: [[Option<Regs>; 3]; 2], all: bool) -> Pairing {
    let table = table::table(target);
    let mut rows = table.rows_of(pair).iter().filter_map(|&i| table.rows.get(usize::from(i)));
    if rows.any(|r| r.shape().format != "VOPD" || r.shape().has(word::SAME_BANK)) {
        return Pairing::Perhaps;
    }
    // The field of the second half's result has no lowest bit: it is that of the first turned around. So are the banks of addends.
    let [a, b] = written.map(|r| r.first.index() & 1);
    let vector = |r: Option<Regs>| r.filter(|r| r.first.file() == RegFile::Vgpr);
    let meet = |(a, b): (Option<Regs>, Option<Regs>)| {
        vector(a).zip(vector(b)).is_some_and(|(a, b)| meet_in_a_bank(target, a, b, 3))
    };
    // A third source that is no VGPR is a mask, which has no field.
    let masked =
        |half: &[Option<Regs>; 3]| half[2].is_some_and(|r| r.first.file() != RegFile::Vgpr && r.first != Reg::VCC_LO);
    let [x, y] = read;
    match a == b || read.iter().any(masked) || x.into_iter().zip(y).take(2).any(meet) {
        true => Pairing::No,
        false if all => Pairing::Yes,
        false => Pairing::Perhaps,
    }
}

/// Two VGPRs that halves of a pair read as the same source, whose banks are told by the bits of `mask`, cannot be read together.
fn meet_in_a_bank(target: Target, a: Regs, b: Regs, mask: u16) -> bool {
    let bank = |r: Regs, part: u16| (r.first.index() + part) & mask;
    let same = bank(a, 0) == bank(b, 0)
        || a.dwords > 1 && bank(a, 1) == bank(b, 0)
        || b.dwords > 1 && bank(a, 0) == bank(b, 1);
    same && (a != b || !target.info().has(Quirk::SameVgprPairs))
}

/// Why the instruction is refused, if it is.
pub(crate) fn check(target: Target, row: &Row, inst: &Inst) -> Result<(), EncodeError> {
    let check = Check { target, codes: target.codes(), row, inst };
    check.operands()?;
    check.modifiers()?;
    match row.shape().format {
        "VOPD" | "VOPD3" => check.banks(),
        "MAI" => check.overlap(),
        _ => Ok(()),
    }
}

impl Check<'_> {
    fn bad(&self, o: &Field, x: Operand, allowed: &'static str) -> EncodeError {
        EncodeError::Operand { op: self.inst.op, operand: o.name, got: x, allowed }
    }

    /// Operands with their fields. The parts of a listed image address are left out.
    fn each(&self) -> impl Iterator<Item = (&'static Field, Operand)> {
        let (mut d, mut s) = (0, 0);
        let inst = self.inst;
        let shape = self.row.shape();
        let srcs = usize::from(shape.srcs);
        shape.shown().iter().filter_map(move |o| {
            let x = match o.role {
                Role::Dst => {
                    d += 1;
                    inst.dsts.get(d - 1)
                }
                Role::Src if o.kind == Kind::ImageList => {
                    s += (inst.srcs.len() + 1).saturating_sub(srcs);
                    return None;
                }
                Role::Src => {
                    s += 1;
                    inst.srcs.get(s - 1)
                }
                _ => return None,
            };
            x.map(|x| (*o, *x))
        })
    }

    fn given(&self, name: ModName) -> Option<i32> {
        self.inst.mods.get(name)
    }

    fn operands(&self) -> Result<(), EncodeError> {
        let shape = self.row.shape();
        let align = self.target.info().vgpr_tuple_align;
        let dpp = shape.overlay.starts_with("DPP");
        for (o, x) in self.each() {
            match x {
                Operand::Regs(r) if r.first.is_vector() => {
                    let pair = r.dwords > 1 || o.name == "gdata";
                    let pair = pair && !(r.dwords == 3 && shape.has(word::UNALIGNED));
                    if align > 1 && pair && !r.first.index().is_multiple_of(u16::from(align)) {
                        return Err(self.bad(o, x, "a tuple that starts at an even register on this target"));
                    }
                    if dpp && r.dwords == 2 && !self.dpp_of_64_bits(o.role) {
                        return Err(self.bad(o, x, "64 bits wide with DPP only for row_newbcast or row_share"));
                    }
                }
                Operand::Regs(r) => self.scalar(o, r)?,
                Operand::Imm(v) => {
                    self.dpp_source(o, x)?;
                    self.number(o, x, v)?;
                }
                Operand::Off => {}
            }
        }
        Ok(())
    }

    fn has(&self, quirk: Quirk) -> bool {
        self.target.info().has(quirk)
    }

    fn dpp_of_64_bits(&self, role: Role) -> bool {
        if self.has(Quirk::Dpp64Rows) {
            return matches!(self.given(ModName::DppCtrl), Some(0x150..=0x15f));
        }
        role == Role::Dst
    }

    /// Scalar sources and constants of DPP in the wide encodings.
    fn dpp_source(&self, o: &Field, x: Operand) -> Result<(), EncodeError> {
        let shape = self.row.shape();
        if !shape.overlay.starts_with("DPP") {
            return Ok(());
        }
        if o.name == "src1" && !self.target.info().dpp_scalar_src1 {
            return Err(self.bad(o, x, "a VGPR beside DPP on this target"));
        }
        if shape.has(word::DPP_VGPR) && (o.name == "src1" || o.name == "src2" && !shape.has(word::MIX)) {
            return Err(self.bad(o, x, "a VGPR beside DPP in this instruction"));
        }
        Ok(())
    }

    fn scalar(&self, o: &Field, r: Regs) -> Result<(), EncodeError> {
        let x = Operand::Regs(r);
        let shape = self.row.shape();
        self.dpp_source(o, x)?;
        if r.first == Reg::NULL && matches!(o.name, "srsrc" | "rsrc" | "samp") {
            return Err(self.bad(o, x, "a tuple of SGPRs, not null"));
        }
        if !self.codes.names(r.first) {
            return Err(self.bad(o, x, "a register that this target has"));
        }
        if shape.format == "MAI" && !self.target.info().unified_agprs && r.first != Reg::LDS_DIRECT {
            return Err(self.bad(o, x, "a VGPR or an AGPR on this target"));
        }
        if shape.has(word::NULL_ONLY) && r.first != Reg::NULL {
            return Err(self.bad(o, x, "null on this target"));
        }
        if o.style == Style::Barrier && r.first != Reg::M0 {
            return Err(self.bad(o, x, "m0 or the number of a barrier"));
        }
        if o.name == "sbase" && o.bits == 128 && r.first == Reg::NULL {
            return Err(self.bad(o, x, "the descriptor of a buffer, not null"));
        }
        if self.row.shape().format == "TENSOR" && r.first == Reg::NULL {
            return Err(self.bad(o, x, "SGPRs of a descriptor, not null"));
        }
        let aperture = (Reg::SHARED_BASE.0..Reg::POPS_EXITING_WAVE_ID.0).contains(&r.first.0);
        let read_only = aperture || r.first == Reg::POPS_EXITING_WAVE_ID;
        if o.role == Role::Dst && o.has(flag::SCALAR_ONLY) && !o.has(flag::MASK) && aperture {
            return Err(self.bad(o, x, "a register that can be written"));
        }
        let special = read_only
            || matches!(r.first, Reg::SCC | Reg::VCCZ | Reg::EXECZ | Reg::LDS_DIRECT | Reg::FLAT_SCRATCH_BASE_LO);
        if o.role == Role::Src && o.has(flag::NO_INLINE) && (if o.bits > 32 { special } else { aperture }) {
            return Err(self.bad(o, x, "an SGPR, VCC, M0, EXEC or null"));
        }
        if r.first.file() == RegFile::Ttmp && r.first.index() + u16::from(r.dwords) > self.codes.ttmps() {
            return Err(self.bad(o, x, "ttmp0 to ttmp11 on this target"));
        }
        if r.first == Reg::LDS_DIRECT && !shape.format.starts_with("VOPD") {
            if !self.has(Quirk::LdsDirect) {
                return Err(self.bad(o, x, "a register that this target has"));
            }
            // operations that swap their sources
            if shape.has(word::NO_DIRECT) {
                return Err(self.bad(o, x, "anything but lds_direct in this instruction"));
            }
            if o.name != "src0" || shape.overlay.starts_with("SDWA") {
                return Err(self.bad(o, x, "src0 only, as lds_direct"));
            }
        }
        Ok(())
    }

    fn number(&self, o: &Field, x: Operand, v: u64) -> Result<(), EncodeError> {
        if o.style == Style::Attr && v > 32 {
            return Err(self.bad(o, x, "attr0 to attr32"));
        }
        if self.row.shape().format == "MAI" && o.name == "src2" && !self.target.info().unified_agprs {
            return Err(self.bad(o, x, "AGPRs: inline constants are read wrongly on this target"));
        }
        if o.style == Style::GprIdx && v > 15 {
            return Err(self.bad(o, x, "gpr_idx(..) or a number from 0 to 15"));
        }
        if o.style == Style::K16 && (0x1_0000..-32768i64 as u64).contains(&v) {
            return Err(self.bad(o, x, "a constant of 16 bits"));
        }
        let literal = literal_field(self.row.shape(), o, self.target.info().vop3_literal);
        if let (Type::I16 | Type::U16 | Type::B16, Some(i)) = (o.ty, o.source_index()) {
            // written as a float it keeps the code of an inline constant
            let float = self.given(ModName::Other).unwrap_or(0) >> (8 + i) & 1 == 1;
            if !literal && !float && inline_code(v, o.ty, o.bits).is_none() {
                return Err(self.bad(o, x, "a register or an inline constant in this encoding"));
            }
        }
        if o.kind == Kind::SmemOffset
            && (v as i64) < 0
            && self.row.shape().operands.iter().any(|b| b.name == "sbase" && b.bits == 128)
        {
            return Err(self.bad(o, x, "an offset that is not negative: the base is a buffer"));
        }
        Ok(())
    }

    fn modifiers(&self) -> Result<(), EncodeError> {
        let shape = self.row.shape();
        // what is said by leaving modifiers out matters to these only
        if self.inst.mods.is_empty() && shape.image.is_none() && !self.has(Quirk::PackedScalarLow) {
            return Ok(());
        }
        let bad = |modifier, value| Err(EncodeError::Modifier { op: self.inst.op, modifier, value });
        if let Some(v) = self.given(ModName::Offset) {
            // one bit less than the field has, which counts as its sign in other segments
            let field = shape.operands.iter().find(|o| o.role == Role::Mod && o.modifier == ModName::Offset);
            let limit = match self.has(Quirk::FlatOffset) {
                false => 0,
                true => field.map_or(u64::MAX, |o| o.max() / 2),
            };
            if shape.format == "FLAT" && !self.has(Quirk::FlatOffsetSigned) && v as u64 > limit {
                return bad(ModName::Offset, v);
            }
            let buffer = shape.operands.iter().any(|b| b.name == "sbase" && b.bits == 128);
            if buffer && v < 0 {
                return bad(ModName::Offset, v);
            }
        }
        let stores = self.given(ModName::Tfe) == Some(1)
            && matches!(shape.format, "MUBUF" | "MTBUF")
            && shape.operands.iter().any(|o| o.role == Role::Src && o.name == "vdata")
            && !shape.has(word::NO_RETURN);
        if stores {
            return bad(ModName::Tfe, 1);
        }
        let scaled = self.given(ModName::Cpol).unwrap_or(0) & 0x800 != 0;
        if scaled && shape.operands.iter().any(|o| o.name == "sbase" && o.bits == 128) {
            return bad(ModName::Cpol, 0x800);
        }
        if scaled && matches!(shape.format, "FLAT" | "GLOBAL" | "SCRATCH") {
            // an index is scaled: that takes an address in an SGPR and one in a VGPR
            let scalar = self.each().any(|(o, x)| o.name == "saddr" && x != Operand::Off);
            let vector = self.each().any(|(o, x)| o.name == "vaddr" && x != Operand::Off);
            if !vector || !scalar && shape.format != "SCRATCH" {
                return bad(ModName::Cpol, 0x800);
            }
        }
        self.halves()?;
        if shape.over == Over::Sdwa {
            self.sdwa()?;
        }
        if shape.format == "TENSOR" && self.given(ModName::R128) == Some(1) {
            return bad(ModName::R128, 1);
        }
        if shape.packed {
            self.packed()?;
        }
        let dot = || self.target.op(self.row.op).is_some_and(|i| i.flags.has(Flags::DOT));
        if shape.packed
            && shape.format == "VOP3P"
            && dot()
            && self.target.info().unified_agprs
            && self.target.has(crate::op::V_MOV_B64)
        {
            if let Some(v @ 1..) = self.given(ModName::OpSel) {
                return bad(ModName::OpSel, v);
            }
            if let Some(v @ 0..=6) = self.given(ModName::OpSelHi) {
                return bad(ModName::OpSelHi, v);
            }
        }
        if let Some(image) = shape.image.filter(|i| i.rays.is_empty()) {
            let dmask = self.given(ModName::Dmask).unwrap_or(0);
            let atomic = shape.has(word::RETURN) || shape.has(word::NO_RETURN);
            let want = image.data_dwords(|m| self.given(m).unwrap_or(0) as u64);
            for (o, x) in self.each() {
                if matches!(o.kind, Kind::ImageData | Kind::ImageDataAcc) && x.regs().is_some_and(|r| r.dwords != want)
                {
                    return Err(self.bad(o, x, "as many registers as dmask, d16 and tfe ask for"));
                }
            }
            self.image_address(image)?;
            let dim = self.given(ModName::Dim).unwrap_or(0);
            if shape.has(word::MSAA) && !matches!(dim, 6 | 7) {
                return bad(ModName::Dim, dim);
            }
            if image.gather && !matches!(dmask, 1 | 2 | 4 | 8) || atomic && !matches!(dmask, 1 | 3 | 15) {
                return bad(ModName::Dmask, dmask);
            }
        }
        Ok(())
    }

    /// What op_sel says about halves of registers that the operands name, too.
    fn halves(&self) -> Result<(), EncodeError> {
        let v = self.given(ModName::OpSel).unwrap_or(0);
        if v == 0 || self.row.variant & TRUE16 == 0 {
            return Ok(());
        }
        for (o, x) in self.each() {
            let Operand::Regs(r) = x else { continue };
            let differs = |bit: usize| v >> bit & 1 != i32::from(r.half == Half::Hi);
            let at = if o.role == Role::Dst { Some(3) } else { o.source_index() };
            let addend = o.role == Role::Dst && self.row.shape().has(word::OPSEL4);
            if r.half != Half::Full && (at.is_some_and(differs) || addend && differs(2)) {
                return Err(self.bad(o, x, "the half that op_sel names: leave op_sel out"));
            }
        }
        Ok(())
    }

    fn sdwa(&self) -> Result<(), EncodeError> {
        let shape = self.row.shape();
        let bad = |modifier, value| Err(EncodeError::Modifier { op: self.inst.op, modifier, value });
        let sext = self.given(ModName::Sext).unwrap_or(0);
        if shape.has(word::NO_SEXT) && sext != 0 {
            return bad(ModName::Sext, sext);
        }
        if shape.has(word::SEXT_REGS) {
            for (o, x) in self.each() {
                let marked = o.role == Role::Src && o.source_index().is_some_and(|i| sext >> i & 1 == 1);
                if marked && matches!(x, Operand::Imm(_)) {
                    return Err(self.bad(o, x, "a register where sext is applied"));
                }
            }
        }
        match self.given(ModName::DstSel) {
            Some(v @ 0..=5) if shape.has(word::WHOLE_DST) => bad(ModName::DstSel, v),
            _ => Ok(()),
        }
    }

    /// Formats of matrix operands that exist, and pairs of f32, of which a scalar gives its low half only.
    fn packed(&self) -> Result<(), EncodeError> {
        if !self.has(Quirk::PackedScalarLow) {
            return Ok(());
        }
        for (modifier, names) in [
            (ModName::MatrixAFmt, syntax::MATRIX_FMT.len()),
            (ModName::MatrixBFmt, syntax::MATRIX_FMT.len()),
            (ModName::MatrixAScaleFmt, syntax::MATRIX_SCALE_FMT.len()),
            (ModName::MatrixBScaleFmt, syntax::MATRIX_SCALE_FMT.len()),
        ] {
            if let Some(value) = self.given(modifier).filter(|v| *v as usize >= names) {
                return Err(EncodeError::Modifier { op: self.inst.op, modifier, value });
            }
        }
        let all = self.row.shape().operands.iter().find(|m| m.modifier == ModName::OpSelHi).map_or(0, |m| m.max());
        let high = self.given(ModName::OpSel).unwrap_or(0) | self.given(ModName::OpSelHi).unwrap_or(all as i32);
        for (o, x) in self.each() {
            let (Some(i), Operand::Regs(r)) = (o.source_index(), x) else { continue };
            let scalar = !r.first.is_vector() && r.first != Reg::NULL && r.first.file() != RegFile::Ttmp;
            if o.role == Role::Src && o.ty == Type::PkF32 && scalar && high >> i & 1 == 1 {
                return Err(self.bad(o, x, "a scalar only with op_sel and op_sel_hi of 0 for it"));
            }
        }
        Ok(())
    }

    /// The address is as long as dimension and operation ask for.
    fn image_address(&self, image: &Image) -> Result<(), EncodeError> {
        let shape = self.row.shape();
        let Some(o) = shape.operand("vaddr").filter(|_| shape.operand("dim").is_some()) else { return Ok(()) };
        let a16 = self.given(ModName::A16) == Some(1);
        let want = image.run(image.addr_dwords(self.given(ModName::Dim).unwrap_or(0) as u64, a16));
        let others = shape.operands.iter().filter(|o| o.role == Role::Src).count() - 1;
        let before = shape.operands.iter().filter(|o| o.role == Role::Src).take_while(|x| x.name != "vaddr").count();
        let list = self.inst.srcs.iter().skip(before).take(self.inst.srcs.len().saturating_sub(others));
        let got: u8 = list.filter_map(|x| x.regs()).map(|r| r.dwords).sum();
        if got != want && !(got == 8 && image.slots == 0 && (5..8).contains(&want)) {
            let x = self.inst.srcs.get(before).copied().unwrap_or(Operand::Off);
            return Err(self.bad(o, x, "an address of as many registers as dimension and operation ask for"));
        }
        Ok(())
    }

    /// Halves of a pair read their VGPRs from different banks and write different registers.
    fn banks(&self) -> Result<(), EncodeError> {
        let shape = self.row.shape();
        let long = shape.format == "VOPD3";
        let mut seen: [Option<Regs>; 4] = [None; 4];
        let mut constant = false;
        for (o, x) in self.each() {
            constant = match o.name {
                "imm" => true,
                n if n.starts_with("src0") => false,
                _ => constant,
            };
            // halves of constants are no inline constants of the long form
            if long && matches!(o.ty, Type::PkF16 | Type::PkBf16) && matches!(x, Operand::Imm(65..=0xffff_ffef)) {
                return Err(self.bad(o, x, "a register or an integer from -16 to 64 in the long form of pairs"));
            }
            let Operand::Regs(r) = x else { continue };
            // lds_direct counts as a register of bank 1
            let r = if r.first == Reg::LDS_DIRECT { Regs::v(1, 1) } else { r };
            if r.first.file() != RegFile::Vgpr {
                continue;
            }
            let slot = match o.name {
                "src0X" | "src0Y" => 0,
                // behind a constant stands the third source
                "vsrc1X" | "vsrc1Y" if constant => 2,
                "vsrc1X" | "vsrc1Y" => 1,
                "vsrc2X" | "vsrc2Y" => 2,
                "vdstX" | "vdstY" => 3,
                _ => continue,
            };
            let first = o.name.ends_with('X');
            // a destination that is also the addend stands for the third source, too
            let slots: &[usize] = if slot == 3 && o.has(flag::READ) { &[3, 2] } else { &[slot] };
            for &slot in slots {
                if first {
                    seen[slot] = Some(r);
                    continue;
                }
                let Some(a) = seen[slot] else { continue };
                if slot == 3 {
                    if a.overlaps(r) {
                        return Err(self.bad(o, x, "a register that the first half does not write"));
                    }
                    continue;
                }
                if shape.has(word::SAME_BANK) {
                    continue;
                }
                let mask = if slot == 2 && !long { 1 } else { 3 };
                if meet_in_a_bank(self.target, a, r, mask) {
                    return Err(self.bad(o, x, "a VGPR of another bank (number modulo 4) than the first half's"));
                }
            }
        }
        Ok(())
    }

    /// The addend of a matrix instruction is the destination or lies apart from it.
    fn overlap(&self) -> Result<(), EncodeError> {
        let Some(dst) = self.inst.dsts.first().and_then(|d| d.regs()) else { return Ok(()) };
        for (o, x) in self.each() {
            if let (Operand::Regs(r), "src2") = (x, o.name)
                && dst.dwords > 4
                && !self.row.shape().has(word::F8F6F4)
                && !o.has(flag::VGPR_ONLY)
                && r != dst
                && r.overlaps(dst)
            {
                return Err(self.bad(o, x, "the destination itself or registers apart from it"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Class, OpInfo};

    /// The quick look refuses no pair that is legal, and most of those that are not; what it takes is legal.
    #[test]
    fn what_may_not_pair_is_not_legal() {
        for target in ["gfx1100", "gfx1201", "gfx1250"].map(|t| Target::parse(t).unwrap()) {
            let (mut legals, mut refused, mut taken, mut seed) = (0, 0, 0, 1u32);
            let mut random = move || {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                Regs::v((seed >> 20) as u16 & 15, 1)
            };
            for pair in (0..Op::COUNT as u16).map(Op).filter(|op| target.has(*op)) {
                let Some((x, y)) = pair.dual_parts() else { continue };
                let (Some(x), Some(y)) = (target.op(x), target.op(y)) else { continue };
                for _ in 0..200 {
                    let [dsts, mut a, mut b] =
                        [2, x.srcs.len(), y.srcs.len()].map(|n| (0..n).map(|_| random()).collect::<Vec<_>>());
                    // Sums are written over.
                    for (dst, srcs) in dsts.iter().zip([&mut a, &mut b]) {
                        if let Some(addend) = srcs.get_mut(2) {
                            *addend = *dst;
                        }
                    }
                    let operands = |list: &[Regs]| list.iter().map(|r| Operand::Regs(*r)).collect::<Vec<_>>();
                    let mut inst = Inst::new(pair, &operands(&dsts), &operands(&[&a[..], &b[..]].concat()));
                    let mut read = [&a, &b].map(|s| [0, 1, 2].map(|i| s.get(i).copied()));
                    // Of some the first sources are a constant, of either or both.
                    for (half, first) in [0, a.len()].into_iter().enumerate() {
                        if random().first.index() < 4 {
                            (inst.srcs[first], read[half][0]) = (Operand::Imm(0x4049_0fdb), None);
                        }
                    }
                    // A half with a mask or a constant has no register there.
                    let registers = |i: &OpInfo| i.srcs.iter().all(|s| s.class.contains(Class::VGPR));
                    let all = registers(x) && registers(y);
                    let quick = pairing(target, pair, [dsts[0], dsts[1]], read, all);
                    let is_legal = legal(target, &inst).is_ok();
                    let right = match quick {
                        Pairing::No => !is_legal,
                        Pairing::Yes => is_legal,
                        Pairing::Perhaps => true,
                    };
                    assert!(right, "{} {dsts:?} {a:?} {b:?}: {quick:?}", pair.name());
                    legals += usize::from(is_legal);
                    refused += usize::from(quick == Pairing::No);
                    taken += usize::from(quick == Pairing::Yes);
                }
            }
            assert!(
                legals > 100 && (refused > legals && taken > 100 || target.info().name == "gfx1250"),
                "{legals} legal, {refused} refused, {taken} taken"
            );
        }
    }
}
