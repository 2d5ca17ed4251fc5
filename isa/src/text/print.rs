//! Instructions as text, in LLVM's syntax.
//!
//! Operands come in the row's order, separated by commas, then modifiers that differ from their defaults. What a
//! number means in text (a counter field, a hardware register, a lane swizzle) is in [`crate::syntax`].

use crate::Quirk;
use crate::model::table::default_of;
use crate::model::table::{self, At, Kind, Operand as Field, Role, Style, flag, prints_zero, word};
use crate::text::{numbers, syntax};
use crate::{Flags, Inst, ModName, Mode, Operand, Raw, Target, Type, encode_raw};
use std::fmt;

/// A decoded instruction prints as LLVM prints it, branch distances as numbers.
impl fmt::Display for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = String::with_capacity(64);
        self.print(&mut out);
        f.write_str(&out)
    }
}

/// An instruction with the target that spells it: prints the shortest encoding's text.
pub struct Displayed<'a> {
    inst: &'a Inst,
    target: Target,
}

impl Inst {
    /// The instruction as assembly text for a target.
    pub fn display(&self, target: Target) -> Displayed<'_> {
        Displayed { inst: self, target }
    }
}

impl fmt::Display for Displayed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match encode_raw(self.target, Mode::of(self.target), crate::Form::Any, self.inst) {
            Ok(raw) => fmt::Display::fmt(&raw, f),
            Err(e) => write!(f, "{:?} /* {e} */", self.inst),
        }
    }
}

/// `[v1, v[2:3]]`; a single register stands alone.
fn print_list(list: &[Operand], out: &mut String) {
    let open = list.len() > 1;
    if open {
        out.push('[');
    }
    for (i, x) in list.iter().enumerate() {
        if i > 0 {
            out.push_str(", ");
        }
        if let Operand::Regs(r) = x {
            numbers::any_register(*r, out);
        }
    }
    if open {
        out.push(']');
    }
}

/// Sources with a sign, one bit each.
struct Signs {
    neg: u64,
    abs: u64,
    sext: u64,
}

impl Raw {
    /// Appends the instruction's text.
    pub fn print(&self, out: &mut String) {
        let table = table::table(self.target());
        let s = self.shape();
        out.push_str(table.head(self.target(), self.row_index()));
        let sign = |at| if s.packed { 0 } else { s.value(at, self.bits()) };
        let signs = Signs { neg: sign(At::Neg), abs: sign(At::Abs), sext: s.value(At::Sext, self.bits()) };
        let pair = s.at[At::VdstX as usize] != 255;
        let export = s.at[At::En as usize] != 255;
        let usual = !s.has(word::F8F6F4);
        let signed = signs.neg | signs.abs | signs.sext;
        let mut comma = false;
        for &o in s.shown() {
            if self.hidden(o) {
                continue;
            }
            if o.style == Style::AttrChan {
                // written as part of the attribute
                out.push_str([".x", ".y", ".z", ".w"].get(o.get(self.bits()) as usize).copied().unwrap_or(".?"));
                continue;
            }
            if pair && o.name == "vdstY" {
                out.push_str(" :: ");
                out.push_str(self.mnemonic().split_once(" :: ").map_or("?", |(_, y)| y));
                comma = false;
            }
            if comma {
                out.push(',');
            }
            out.push(' ');
            // the target of an export stands apart without a comma
            comma = !(export && o.style == Style::ExpTgt);
            // operands without a number ask for bit 63, which is never set
            if usual && signed >> (o.index & 63) & 1 == 0 && self.print_usual(o, out) {
                continue;
            }
            if o.kind == Kind::ImageList {
                print_list(&self.image_list(), out);
                continue;
            }
            self.print_operand(o, &signs, out);
        }
        if let Some(o) = s.field(At::SmemOffset)
            && let Some(v) = self.smem_extra(o)
        {
            out.push_str(" offset:");
            numbers::signed_hex(v, out);
        }
        // stores from LDS say so before their cache policy, loads to it behind
        let mut lds = s.has(word::LDS);
        if self.bits() & self.row().quiet != 0 {
            let every = s.has(word::SWIZZLE);
            for &o in s.modifiers() {
                if o.role != Role::Mod {
                    continue;
                }
                if lds && o.modifier == ModName::Cpol && s.has(word::LDS_ONLY) {
                    out.push_str(" lds");
                    lds = false;
                }
                if every || o.get(self.bits()) != 0 || prints_zero(o) {
                    self.print_modifier(o, out);
                }
            }
        }
        if lds {
            out.push_str(" lds");
        }
        if s.has(word::GDS_ONLY) {
            out.push_str(" gds");
        }
    }

    /// Operands that assembly leaves out.
    #[inline]
    fn hidden(&self, o: &Field) -> bool {
        match (o.style, o.kind) {
            (Style::Endpgm, _) => o.get(self.bits()) == 0,
            (_, Kind::FixedVcc) => self.shape().format == "VOPD",
            (_, Kind::FlatSaddr) => self.operand(o) == Operand::Off,
            _ => false,
        }
    }

    /// Prints whole VGPRs and SGPRs without a detour; false for all else.
    #[inline]
    fn print_usual(&self, o: &Field, out: &mut String) -> bool {
        if o.has(flag::HALF) || o.has(flag::TFE_DATA) && self.shape().value(At::Tfe, self.bits()) == 1 {
            return false;
        }
        let v = o.get(self.bits());
        let dwords = if o.has(flag::MASK) { self.mode().mask_dwords() } else { o.bits.div_ceil(32).max(1) as u8 };
        match o.kind {
            Kind::Vgpr => numbers::vgprs(v as usize & 255, dwords, out),
            Kind::VgprAcc if v & 256 == 0 => numbers::vgprs(v as usize, dwords, out),
            Kind::Src | Kind::Ssrc if v & 256 != 0 => numbers::vgprs(v as usize & 255, dwords, out),
            Kind::Src | Kind::Ssrc | Kind::Sgpr | Kind::SgprPair | Kind::SgprQuad => {
                let first = match o.kind {
                    Kind::SgprPair => v * 2,
                    Kind::SgprQuad => v * 4,
                    _ => v,
                };
                let aligned = dwords == 1 || first & if dwords == 2 { 1 } else { 3 } == 0;
                aligned && first + u64::from(dwords) <= 102 && numbers::sgprs(first as usize, dwords, out)
            }
            _ => false,
        }
    }

    fn print_operand(&self, o: &Field, signs: &Signs, out: &mut String) {
        let x = self.operand(o);
        if o.index == 255 || o.role != Role::Src || o.kind == Kind::Imm || signs.neg | signs.abs | signs.sext == 0 {
            return self.print_plain(o, x, out);
        }
        let bit = 1u64 << o.index;
        let (neg, abs, sext) = (signs.neg & bit != 0, signs.abs & bit != 0, signs.sext & bit != 0);
        if sext {
            out.push_str("sext(");
        }
        let paren = neg && !abs && matches!(x, Operand::Imm(_));
        if neg {
            out.push_str(if paren { "neg(" } else { "-" });
        }
        if abs {
            out.push('|');
        }
        let start = out.len();
        self.print_plain(o, x, out);
        // literals that are marked as such take a bare sign
        if paren && out[start..].starts_with("lit") {
            out.replace_range(start - "neg(".len()..start, "-");
            return;
        }
        if abs {
            out.push('|');
        }
        if paren || sext {
            out.push(')');
        }
    }

    #[inline]
    fn print_plain(&self, o: &Field, x: Operand, out: &mut String) {
        match x {
            Operand::Regs(r) => numbers::any_register(r, out),
            Operand::Off => out.push_str("off"),
            Operand::Imm(v) => self.print_immediate(o, v, out),
        }
    }

    fn print_immediate(&self, o: &Field, v: u64, out: &mut String) {
        let field = o.get(self.bits());
        let target = self.target();
        match o.style {
            Style::None => {}
            Style::I32 | Style::U16 | Style::I16 | Style::S16 | Style::I8 => {
                return syntax::print_number(field, o, out);
            }
            Style::HwReg => return syntax::print_hwreg(target, field, out),
            Style::Label => return numbers::dec(field & 0xffff, out),
            Style::Message => return syntax::print_message(target, field, out),
            Style::Waitcnt => return syntax::print_waitcnt(target, field, out),
            Style::DepCtr => return syntax::print_depctr(target, field, out),
            Style::Delay => return syntax::print_delay(field, out),
            Style::Endpgm => return numbers::dec(field, out),
            Style::Version => return syntax::print_version(field, out),
            Style::GprIdx => return syntax::print_gpridx(field, out),
            Style::Barrier => {}
            Style::K64 => return syntax::print_wide(v, Type::F64, out),
            Style::K32 | Style::K16 => return numbers::hex(v, out),
            Style::Attr => {
                out.push_str("attr");
                return numbers::dec(field, out);
            }
            Style::AttrChan => return,
            Style::Slot => {
                out.push_str(match field {
                    0 => "p10",
                    1 => "p20",
                    2 => "p0",
                    _ => "invalid_param",
                });
                if field > 2 {
                    out.push('_');
                    numbers::dec(field, out);
                }
                return;
            }
            Style::ExpTgt => return syntax::print_export_target(target, field, out),
        }
        if o.kind == Kind::SmemOffset && v == 0 && target.info().has(Quirk::SmemNullOffset) {
            out.push_str("null");
            return;
        }
        if o.kind == Kind::SmemOffset || matches!(o.kind, Kind::ImmSigned) {
            return numbers::signed_hex(v as i64, out);
        }
        // a source constant: inline or literal
        let code = match o.kind {
            Kind::SrcSdwa | Kind::Ssrc => field & 255,
            _ => field & 511,
        };
        let mut code = if code == 255 && self.has_long_literal() { 254 } else { code };
        if target.codes().is_long_literal(code) {
            if crate::model::codes::constant_bits(o.ty, o.bits) == 64 {
                return syntax::print_wide(v, o.ty, out);
            }
            // what fits of it is shown as if it stood alone; of integers, what fits of 32 bits
            let small = (-16..=64).contains(&(self.literal64() as i32));
            let integer = matches!(o.ty, Type::I16 | Type::U16 | Type::B16);
            code = match crate::model::codes::inline_code(v, o.ty, o.bits).filter(|_| small || !integer) {
                Some(inline) => inline,
                None if o.ty == Type::Bf16 => return numbers::hex(self.literal64() & 0xffff_ffff, out),
                None => return numbers::hex(v, out),
            };
        }
        let inline = (128..=208).contains(&code) || (240..=248).contains(&code);
        if !inline {
            let inline = crate::model::codes::inline_code(v, o.ty, o.bits).filter(|_| code == 255);
            // integers of 16 bits: a literal that would be an inline constant of 32 bits is marked, of others the half shows
            if code == 255 && matches!(o.ty, Type::I16 | Type::U16 | Type::B16) {
                let l = u64::from(self.any_literal().unwrap_or(0));
                if crate::model::codes::inline_code(l, Type::F32, 32).is_none() {
                    return numbers::hex(v, out);
                }
                out.push_str("lit(");
                numbers::hex(l, out);
                out.push(')');
                return;
            }
            // marked literals, and those of bf16, show all their bits
            let v = match self.any_literal() {
                Some(l) if code == 255 && o.bits == 16 && (inline.is_some() || o.ty == Type::Bf16) => u64::from(l),
                _ => v,
            };
            if let Some(c) = inline {
                if self.shape().has(word::SPLAT) {
                    let small = (v as i64) < 65;
                    return if small { numbers::signed(v as i64, out) } else { numbers::hex(v, out) };
                }
                if o.ty == Type::F64 {
                    out.push_str(syntax::inline_text(c, o.ty, o.bits));
                    return;
                }
                out.push_str("lit(");
                syntax::print_literal(v, o, out);
                out.push(')');
                return;
            }
            return syntax::print_literal(v, o, out);
        }
        if code < 240 {
            let n = if code <= 192 { code as i64 - 128 } else { 192 - code as i64 };
            return numbers::signed(n, out);
        }
        if matches!(o.ty, Type::I16 | Type::U16 | Type::B16) {
            return numbers::hex(v, out);
        }
        if self.shape().has(word::SPLAT) && self.row().bytes != 4 {
            // not the halves that the constant gives but its value as f32
            return numbers::hex(crate::model::codes::inline_value(code, Type::F32, 32).unwrap_or(v), out);
        }
        out.push_str(syntax::inline_text(code, o.ty, o.bits));
    }

    // An arm that prints nothing must not fall through to the next.
    #[allow(clippy::collapsible_match)]
    fn print_modifier(&self, o: &Field, out: &mut String) {
        let v = self.modifier(o);
        let s = self.shape();
        let default = default_of(o, s);
        let target = self.target();
        let flag_word = |word: &str, out: &mut String| {
            if v != 0 {
                out.push(' ');
                out.push_str(word);
            }
        };
        let number = |head: &str, out: &mut String| {
            out.push_str(head);
            numbers::signed(v, out);
        };
        match o.modifier {
            ModName::Neg | ModName::NegHi if s.packed => {
                if v != 0 {
                    self.print_bits(if o.modifier == ModName::Neg { " neg_lo:[" } else { " neg_hi:[" }, o, v, out);
                }
            }
            ModName::Neg | ModName::Abs | ModName::Sext | ModName::NegHi => {}
            ModName::OpSel => {
                if v != 0 && !s.has(word::HIDE_SEL) {
                    self.print_bits(" op_sel:[", o, v, out);
                }
            }
            ModName::OpSelHi => {
                if v != default || s.format == "MAI16" {
                    self.print_bits(" op_sel_hi:[", o, v, out);
                }
            }
            ModName::Clamp => flag_word("clamp", out),
            ModName::Omod => out.push_str(match v {
                1 => " mul:2",
                2 => " mul:4",
                3 => " div:2",
                _ => "",
            }),
            ModName::Offset if s.has(word::SWIZZLE) => syntax::print_swizzle(v as u64, self.target(), out),
            ModName::Offset if v != 0 => number(" offset:", out),
            ModName::Offset0 if v != 0 => number(" offset0:", out),
            ModName::Offset1 if v != 0 => number(" offset1:", out),
            ModName::Offset | ModName::Offset0 | ModName::Offset1 => {}
            ModName::Cpol if v == 0 => {}
            ModName::Cpol => {
                let flags = target.op(self.op()).map_or(Flags::default(), |i| i.flags);
                syntax::print_cpol(target, v as u64, flags, s.format, out);
            }
            ModName::Gds if target.info().unified_agprs => {}
            ModName::Gds => flag_word("gds", out),
            ModName::Tfe => flag_word("tfe", out),
            ModName::Offen => flag_word("offen", out),
            ModName::Idxen => flag_word("idxen", out),
            ModName::Unorm => flag_word("unorm", out),
            ModName::R128 => flag_word(if target.info().has(Quirk::ImageA16) { "a16" } else { "r128" }, out),
            ModName::A16 => flag_word("a16", out),
            ModName::D16 => flag_word("d16", out),
            ModName::Lwe => flag_word("lwe", out),
            ModName::Da => flag_word("da", out),
            ModName::Dmask => {
                if v != 0 {
                    out.push_str(" dmask:");
                    numbers::hex(v as u64, out);
                }
            }
            ModName::Dim => syntax::print_dim(v as u64, out),
            ModName::Format => syntax::print_format(target, v as u64, out),
            ModName::DppCtrl => {
                let double = s.operands.iter().any(|x| x.bits >= 64 && matches!(x.role, Role::Dst | Role::Src));
                syntax::print_dpp(target, double, v as u64, out)
            }
            ModName::RowMask => {
                out.push_str(" row_mask:");
                numbers::hex(v as u64, out);
            }
            ModName::BankMask => {
                out.push_str(" bank_mask:");
                numbers::hex(v as u64, out);
            }
            ModName::BoundCtrl => flag_word("bound_ctrl:1", out),
            ModName::Fi => flag_word("fi:1", out),
            ModName::Dpp8 => {
                out.push_str(" dpp8:[");
                for i in 0..8 {
                    if i > 0 {
                        out.push(',');
                    }
                    numbers::dec(v as u64 >> (3 * i) & 7, out);
                }
                out.push(']');
            }
            ModName::DstSel | ModName::Src0Sel | ModName::Src1Sel => {
                out.push_str(match o.modifier {
                    ModName::DstSel => " dst_sel:",
                    ModName::Src0Sel => " src0_sel:",
                    _ => " src1_sel:",
                });
                out.push_str(syntax::SDWA_SEL.get(v as usize).copied().unwrap_or("?"));
            }
            ModName::DstUnused => {
                out.push_str(" dst_unused:");
                out.push_str(syntax::SDWA_UNUSED.get(v as usize).copied().unwrap_or(syntax::SDWA_UNUSED[0]));
            }
            ModName::Cbsz if v != 0 => number(" cbsz:", out),
            ModName::Abid if v != 0 => number(" abid:", out),
            ModName::Blgp if v != 0 => {
                let dgemm = target.op(self.op()).is_some_and(|i| i.flags.has(Flags::DGEMM));
                if dgemm && target.has(crate::op::V_MOV_B64) {
                    numbers::bits(" neg:[", 3, v as u64, out);
                    out.push(']');
                } else {
                    number(" blgp:", out);
                }
            }
            ModName::WaitExp => number(" wait_exp:", out),
            ModName::WaitVdst if target.info().has(Quirk::WaitVaVdst) => number(" wait_va_vdst:", out),
            ModName::WaitVdst => number(" wait_vdst:", out),
            ModName::WaitVmVsrc => number(" wait_vm_vsrc:", out),
            ModName::ByteSel if v != 0 => number(" byte_sel:", out),
            ModName::BitOp3 if v > 10 => {
                out.push_str(" bitop3:");
                numbers::hex(v as u64, out);
            }
            ModName::BitOp3 if v != 0 => number(" bitop3:", out),
            ModName::ScaleOpSel if v != 0 => number(" scale_sel:", out),
            ModName::IndexKey if v != 0 => number(" index_key:", out),
            ModName::MatrixAReuse => flag_word("matrix_a_reuse", out),
            ModName::MatrixBReuse => flag_word("matrix_b_reuse", out),
            ModName::MatrixAFmt
            | ModName::MatrixBFmt
            | ModName::MatrixAScale
            | ModName::MatrixBScale
            | ModName::MatrixAScaleFmt
            | ModName::MatrixBScaleFmt => {
                if v != 0 {
                    syntax::print_matrix(o.modifier, v as u64, out);
                }
            }
            ModName::High => flag_word("high", out),
            ModName::Done => flag_word("done", out),
            ModName::Compr => flag_word("compr", out),
            ModName::Vm => flag_word("vm", out),
            ModName::RowEn => flag_word("row_en", out),
            _ => {}
        }
    }

    /// `op_sel:[0,1]` and relatives: one number per source, and the destination's for op_sel that has it.
    fn print_bits(&self, head: &str, o: &Field, v: i64, out: &mut String) {
        let s = self.shape();
        let mut n = 0;
        for x in s.operands.iter().filter(|x| x.role == Role::Src) {
            if let Some(i) = x.source_index() {
                n = n.max(i + 1);
            }
        }
        match s.format {
            "MAI16" | "WMMA16" => n = 3,
            _ if s.has(word::OPSEL2) => n = 2,
            _ => {}
        }
        let dpp = s.overlay.starts_with("DPP");
        let vdst = s.operands.iter().find(|x| x.role == Role::Dst);
        if s.has(word::OPSEL4) {
            n = 3;
        }
        let dst = o.modifier == ModName::OpSel
            && matches!(s.format, "VOP3" | "VINTERP")
            && vdst.is_some()
            && !s.has(word::OPSEL2)
            && !(dpp && vdst.is_none_or(|d| d.name != "vdst"));
        numbers::bits(head, n, v as u64, out);
        if dst {
            out.push_str(if v >> 3 & 1 == 1 { ",1" } else { ",0" });
        }
        out.push(']');
    }
}
