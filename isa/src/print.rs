//! Instructions as text, in LLVM's syntax.
//!
//! Operands come in the row's order, separated by commas, then modifiers that differ from their defaults. What a
//! number means in text (a counter field, a hardware register, a lane swizzle) is in [`crate::syntax`].

use crate::codes::Codes;
use crate::decode::default_of;
use crate::syntax;
use crate::table::{self, Kind, Operand as Field, Role, Shape, Style, flag};
use crate::{Flags, Inst, ModName, Mode, Operand, Raw, Reg, Regs, Target, Type, encode_raw};
use std::fmt::{self, Write};

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

/// True when the target has the operation in a 32-bit vector encoding (`narrow`) or in VOP3.
fn has_form(raw: &Raw, narrow: bool) -> bool {
    let table = table::table(raw.target());
    table.rows_of(raw.op()).iter().filter_map(|&i| table.rows.get(usize::from(i))).any(|r| {
        let s = r.shape();
        s.overlay.is_empty()
            && if narrow {
                matches!(s.format, "VOP1" | "VOP2" | "VOPC" | "VINTRP")
            } else {
                s.format.starts_with("VOP3")
            }
    })
}

/// The suffix that names the encoding.
fn suffix(raw: &Raw, s: &Shape) -> &'static str {
    let no_dst = !s.operands.iter().any(|o| o.role == Role::Dst);
    match (s.format, s.overlay) {
        _ if no_dst && s.operands.iter().all(|o| o.role != Role::Src) => "",
        ("VINTRP", _) => "_e32",
        ("VOPC", "SDWAC") if raw.target().codes() == Codes::Gfx8 => "",
        ("VOPC", "") => "_e32",
        ("VOPC", "DPP" | "DPP8") => "",
        ("VOP1" | "VOP2", "") if has_form(raw, false) => "_e32",
        ("VOP3" | "VOP3P", "DPP" | "DPP8") => "_e64_dpp",
        ("VOP3", "") if has_form(raw, true) => "_e64",
        (_, "DPP" | "DPP8") => "_dpp",
        (_, "SDWA" | "SDWAC") => "_sdwa",
        _ => "",
    }
}

/// `[v1, v[2:3]]`; a single register stands alone.
fn print_list(list: &[Operand], out: &mut String) {
    let open = list.len() > 1;
    if open {
        out.push('[');
    }
    for (i, x) in list.iter().enumerate() {
        if let Operand::Regs(r) = x {
            let _ = write!(out, "{}{r}", if i > 0 { ", " } else { "" });
        }
    }
    if open {
        out.push(']');
    }
}

impl Raw {
    /// Appends the instruction's text.
    pub fn print(&self, out: &mut String) {
        let s = self.shape();
        let (mnemonic, mut second) = match self.mnemonic().split_once(" :: ") {
            Some((x, y)) => (x, Some(y)),
            None => (self.mnemonic(), None),
        };
        out.push_str(mnemonic);
        out.push_str(suffix(self, s));
        let mut first = true;
        for o in s.operands {
            if !matches!(o.role, Role::Dst | Role::Src) || self.hidden(o) {
                continue;
            }
            if o.name == "vdstY"
                && let Some(y) = second.take()
            {
                out.push_str(" :: ");
                out.push_str(y);
                first = true;
            }
            out.push_str(if first { " " } else { ", " });
            if o.style == Style::AttrChan {
                // written as part of the attribute
                out.truncate(out.len() - if first { 1 } else { 2 });
                let c = ["x", "y", "z", "w"].get(o.get(self.bits()) as usize).copied().unwrap_or("?");
                let _ = write!(out, ".{c}");
                continue;
            }
            first = false;
            if o.kind == Kind::ImageList {
                print_list(&self.image_list(o), out);
                continue;
            }
            self.print_operand(o, out);
        }
        if s.format == "EXP"
            && let Some(i) = out.find(", ")
        {
            out.replace_range(i..i + 2, " ");
        }
        if let Some(o) = s.operands.iter().find(|o| o.kind == Kind::SmemOffset)
            && let Some(v) = self.smem_extra(o)
        {
            out.push_str(" offset:");
            let _ = if v < 0 { write!(out, "-{:#x}", -v) } else { write!(out, "{v:#x}") };
        }
        for o in s.operands.iter().filter(|o| o.role == Role::Mod) {
            self.print_modifier(o, out);
        }
        if s.has("lds") {
            out.push_str(" lds");
        }
        if s.has("gdsonly") {
            out.push_str(" gds");
        }
    }

    /// Operands that assembly leaves out.
    fn hidden(&self, o: &Field) -> bool {
        match o.style {
            Style::Endpgm => o.get(self.bits()) == 0,
            _ if o.kind == Kind::FixedVcc && self.shape().format == "VOPD" => true,
            _ => o.kind == Kind::FlatSaddr && self.operand(o) == Operand::Off,
        }
    }

    /// Value of a modifier of this instruction, by name.
    fn mod_value(&self, name: ModName) -> u64 {
        self.shape()
            .operands
            .iter()
            .find(|o| o.role == Role::Mod && o.modifier == name)
            .map_or(0, |o| o.get(self.bits()))
    }

    fn print_operand(&self, o: &Field, out: &mut String) {
        let x = self.operand(o);
        let bit = o.source_index().map_or(0, |i| 1u64 << i);
        let source = o.role == Role::Src && bit != 0 && o.kind != Kind::Imm;
        let packed =
            self.shape().format == "VOP3P" && !self.shape().has("mix") || self.shape().format.starts_with("WMMA");
        let neg = source && !packed && self.mod_value(ModName::Neg) & bit != 0;
        let abs = source && !packed && self.mod_value(ModName::Abs) & bit != 0;
        let sext = source && self.mod_value(ModName::Sext) & bit != 0;
        let immediate = matches!(x, Operand::Imm(_));
        if sext {
            out.push_str("sext(");
        }
        let paren = neg && immediate && !abs;
        if neg {
            out.push_str(if paren { "neg(" } else { "-" });
        }
        if abs {
            out.push('|');
        }
        match x {
            Operand::Regs(r) => self.print_regs(o, r, out),
            Operand::Off => out.push_str("off"),
            Operand::Imm(v) => self.print_immediate(o, v, out),
        }
        if abs {
            out.push('|');
        }
        if paren || sext {
            out.push(')');
        }
    }

    fn print_regs(&self, o: &Field, r: Regs, out: &mut String) {
        let _ = o;
        let _ = match r.first {
            Reg::SCC => write!(out, "src_scc"),
            _ => write!(out, "{r}"),
        };
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
            Style::Label => {
                let _ = write!(out, "{}", field & 0xffff);
                return;
            }
            Style::Message => return syntax::print_message(target, field, out),
            Style::Waitcnt => return syntax::print_waitcnt(target, field, out),
            Style::DepCtr => return syntax::print_depctr(target, field, out),
            Style::Delay => return syntax::print_delay(field, out),
            Style::Endpgm => {
                let _ = write!(out, "{field}");
                return;
            }
            Style::Version => return syntax::print_version(field, out),
            Style::GprIdx => return syntax::print_gpridx(field, out),
            Style::Barrier => {}
            Style::K64 => return syntax::print_wide(v, Type::F64, out),
            Style::K32 | Style::K16 => {
                let _ = write!(out, "{v:#x}");
                return;
            }
            Style::Attr => {
                let _ = write!(out, "attr{field}");
                return;
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
                    let _ = write!(out, "_{field}");
                }
                return;
            }
            Style::ExpTgt => return syntax::print_export_target(target, field, out),
        }
        if o.kind == Kind::SmemOffset && v == 0 && matches!(target.codes(), Codes::Gfx10 | Codes::Gfx11) {
            out.push_str("null");
            return;
        }
        if o.kind == Kind::SmemOffset || matches!(o.kind, Kind::ImmSigned) {
            let v = v as i64;
            let _ = if v < 0 { write!(out, "-{:#x}", -v) } else { write!(out, "{v:#x}") };
            return;
        }
        // a source constant: inline or literal
        let code = match o.kind {
            Kind::SrcSdwa | Kind::Ssrc => field & 255,
            _ => field & 511,
        };
        if code == 254 && target.codes() == Codes::Gfx1250 {
            return syntax::print_wide(v, o.ty, out);
        }
        let inline = (128..=208).contains(&code) || (240..=248).contains(&code);
        if !inline {
            let inline = crate::codes::inline_code(v, o.ty, o.bits).filter(|_| code == 255);
            // marked literals, and those of bf16, show all their bits
            let v = match self.any_literal() {
                Some(l) if code == 255 && o.bits == 16 && (inline.is_some() || o.ty == Type::Bf16) => u64::from(l),
                _ => v,
            };
            if let Some(c) = inline {
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
            let _ = write!(out, "{n}");
            return;
        }
        if matches!(o.ty, Type::I16 | Type::U16 | Type::B16) {
            let _ = write!(out, "{v:#x}");
            return;
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
        match o.modifier {
            ModName::Neg | ModName::NegHi if s.format == "VOP3P" && !s.has("mix") || s.format.starts_with("WMMA") => {
                if v != 0 {
                    self.print_bits(if o.modifier == ModName::Neg { " neg_lo:[" } else { " neg_hi:[" }, o, v, out);
                }
            }
            ModName::Neg | ModName::Abs | ModName::Sext | ModName::NegHi => {}
            ModName::OpSel => {
                if v != 0 && !s.has("hidesel") {
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
            ModName::Offset if s.has("swz") => syntax::print_swizzle(v as u64, self.target(), out),
            ModName::Offset if v != 0 => {
                let _ = write!(out, " offset:{v}");
            }
            ModName::Offset0 if v != 0 => {
                let _ = write!(out, " offset0:{v}");
            }
            ModName::Offset1 if v != 0 => {
                let _ = write!(out, " offset1:{v}");
            }
            ModName::Offset | ModName::Offset0 | ModName::Offset1 => {}
            ModName::Cpol => {
                let flags = target.op(self.op()).map_or(Flags::default(), |i| i.flags);
                syntax::print_cpol(target, v as u64, flags, s.format, out);
            }
            ModName::Gds if syntax::has_sc_bits(target) => {}
            ModName::Gds => flag_word("gds", out),
            ModName::Tfe => flag_word("tfe", out),
            ModName::Offen => flag_word("offen", out),
            ModName::Idxen => flag_word("idxen", out),
            ModName::Unorm => flag_word("unorm", out),
            ModName::R128 => flag_word(if target.codes() == Codes::Gfx9 { "a16" } else { "r128" }, out),
            ModName::A16 => flag_word("a16", out),
            ModName::D16 => flag_word("d16", out),
            ModName::Lwe => flag_word("lwe", out),
            ModName::Da => flag_word("da", out),
            ModName::Dmask => {
                if v != 0 {
                    let _ = write!(out, " dmask:{v:#x}");
                }
            }
            ModName::Dim => syntax::print_dim(v as u64, out),
            ModName::Format => syntax::print_format(target, v as u64, out),
            ModName::DppCtrl => {
                let double = s.operands.iter().any(|x| x.bits >= 64 && matches!(x.role, Role::Dst | Role::Src));
                syntax::print_dpp(target, double, v as u64, out)
            }
            ModName::RowMask => {
                let _ = write!(out, " row_mask:{v:#x}");
            }
            ModName::BankMask => {
                let _ = write!(out, " bank_mask:{v:#x}");
            }
            ModName::BoundCtrl => flag_word("bound_ctrl:1", out),
            ModName::Fi => flag_word("fi:1", out),
            ModName::Dpp8 => {
                out.push_str(" dpp8:[");
                for i in 0..8 {
                    let _ = write!(out, "{}{}", if i > 0 { "," } else { "" }, v >> (3 * i) & 7);
                }
                out.push(']');
            }
            ModName::DstSel | ModName::Src0Sel | ModName::Src1Sel => {
                let name = match o.modifier {
                    ModName::DstSel => "dst_sel",
                    ModName::Src0Sel => "src0_sel",
                    _ => "src1_sel",
                };
                let _ = write!(out, " {name}:{}", syntax::SDWA_SEL.get(v as usize).copied().unwrap_or("?"));
            }
            ModName::DstUnused => {
                let _ = write!(
                    out,
                    " dst_unused:{}",
                    syntax::SDWA_UNUSED.get(v as usize).copied().unwrap_or(syntax::SDWA_UNUSED[0])
                );
            }
            ModName::Cbsz | ModName::Abid => {
                if v != 0 {
                    let _ = write!(out, " {}:{v}", if o.modifier == ModName::Cbsz { "cbsz" } else { "abid" });
                }
            }
            ModName::Blgp => {
                if v != 0 {
                    let dgemm = target.op(self.op()).is_some_and(|i| i.flags.has(Flags::DGEMM));
                    if dgemm && target.has(crate::op::V_MOV_B64) {
                        let _ = write!(out, " neg:[{},{},{}]", v & 1, v >> 1 & 1, v >> 2 & 1);
                    } else {
                        let _ = write!(out, " blgp:{v}");
                    }
                }
            }
            ModName::WaitExp => {
                let _ = write!(out, " wait_exp:{v}");
            }
            ModName::WaitVdst => {
                let _ =
                    write!(out, " {}:{v}", if target.codes() >= Codes::Gfx12 { "wait_va_vdst" } else { "wait_vdst" });
            }
            ModName::WaitVmVsrc => {
                let _ = write!(out, " wait_vm_vsrc:{v}");
            }
            ModName::ByteSel if v != 0 => {
                let _ = write!(out, " byte_sel:{v}");
            }
            ModName::BitOp3 if v != 0 => {
                let _ = if v < 10 { write!(out, " bitop3:{v}") } else { write!(out, " bitop3:{v:#x}") };
            }
            ModName::ScaleOpSel if v != 0 => {
                let _ = write!(out, " scale_sel:{v}");
            }
            ModName::IndexKey if v != 0 => {
                let _ = write!(out, " index_key:{v}");
            }
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
        out.push_str(head);
        let s = self.shape();
        let mut n = 0;
        for x in s.operands.iter().filter(|x| x.role == Role::Src) {
            if let Some(i) = x.source_index() {
                n = n.max(i + 1);
            }
        }
        match s.format {
            "MAI16" | "WMMA16" => n = 3,
            _ if self.mnemonic().starts_with("v_permlane") => n = 2,
            _ => {}
        }
        let dpp = s.overlay.starts_with("DPP");
        let vdst = s.operands.iter().find(|x| x.role == Role::Dst);
        if dpp && vdst.is_some_and(|d| d.has(flag::READ)) && n == 2 {
            n = 3;
        }
        let dst = o.modifier == ModName::OpSel
            && matches!(s.format, "VOP3" | "VINTERP")
            && vdst.is_some()
            && !self.mnemonic().starts_with("v_permlane")
            && !(dpp && vdst.is_none_or(|d| d.name != "vdst"));
        for i in 0..n {
            let _ = write!(out, "{}{}", if i > 0 { "," } else { "" }, v >> i & 1);
        }
        if dst {
            let _ = write!(out, ",{}", v >> 3 & 1);
        }
        out.push(']');
    }
}
