//! Instructions to bytes: the shortest encoding whose operands, fixed registers and modifiers fit.

mod address;
mod bus;

use crate::encode::decode::{Mode, Raw, vcc, widen_literal, width_of};
use crate::model::codes::{Codes, constant_bits, inline_code};
use crate::model::table::default_of;
use crate::model::table::{
    self, At, DPP8, FAKE16, Kind, Operand as Field, Over, Role, Row, Style, TRUE16, WAVE32, WAVE64, flag,
    literal_field, word,
};
use crate::{Half, Inst, ModName, Op, Operand, Quirk, Reg, RegFile, Regs, Target, Type};

/// Why an instruction cannot be encoded.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EncodeError {
    /// The target lacks the operation.
    #[error("{op} does not exist on {target}")]
    NoOp {
        /// The operation.
        op: Op,
        /// The target.
        target: Target,
    },
    /// Too many or too few operands.
    #[error("{op} takes {want} {what}, not {got}")]
    Count {
        /// The operation.
        op: Op,
        /// `destinations` or `sources`.
        what: &'static str,
        /// Number that the closest encoding takes.
        want: usize,
        /// Number given.
        got: usize,
    },
    /// An operand does not fit.
    #[error("{op}: {operand} cannot be {got}; expected {allowed}")]
    Operand {
        /// The operation.
        op: Op,
        /// Which operand (`vdst`, `src1`, ...).
        operand: &'static str,
        /// What was given.
        got: Operand,
        /// What the operand may be.
        allowed: &'static str,
    },
    /// A modifier does not exist in any encoding or its value does not fit.
    #[error("{op}: modifier {modifier:?} = {value} is not possible here")]
    Modifier {
        /// The operation.
        op: Op,
        /// Which modifier.
        modifier: ModName,
        /// Its value.
        value: i32,
    },
    /// Two different literals, or a literal where the encoding has none.
    #[error("{op}: more than one literal")]
    Literals {
        /// The operation.
        op: Op,
    },
}

/// Which encodings an instruction may take (`_e32`, `_e64`, ... in assembly).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Form {
    /// Any: the shortest.
    #[default]
    Any,
    /// VOP1, VOP2, VOPC.
    E32,
    /// VOP3, VOP3P.
    E64,
    /// SDWA.
    Sdwa,
    /// DPP16 or DPP8 of a 32-bit encoding.
    Dpp,
    /// DPP16 or DPP8 of VOP3.
    E64Dpp,
}

/// Appends the instruction's bytes; returns how many.
pub fn encode(target: Target, inst: &Inst, out: &mut Vec<u8>) -> Result<usize, EncodeError> {
    let raw = encode_raw(target, Mode::of(target), Form::Any, inst)?;
    out.extend_from_slice(&raw.bytes());
    Ok(raw.len())
}

/// Bytes that [`encode`] would write.
pub fn encoded_size(target: Target, inst: &Inst) -> Result<usize, EncodeError> {
    encode_raw(target, Mode::of(target), Form::Any, inst).map(|r| r.len())
}

/// Encodes with a given mode and form.
pub fn encode_raw(target: Target, mode: Mode, form: Form, inst: &Inst) -> Result<Raw, EncodeError> {
    let table = table::table(target);
    let mut choice = Choice::default();
    let reject = if mode.true16 { FAKE16 } else { TRUE16 } | if mode.wave64 { WAVE32 } else { WAVE64 };
    for &i in table.rows_of(inst.op) {
        let Some(row) = table.rows.get(usize::from(i)) else { continue };
        if row.variant & reject == 0 && form_fits(row, form) && choice.wants(row) {
            choice.add(try_row(target, mode, i, row, inst));
        }
    }
    choice.result().unwrap_or(Err(EncodeError::NoOp { op: inst.op, target }))
}

/// The shortest encoding that fits, or why the one that came furthest does not.
pub(crate) struct Choice<E> {
    pub found: Option<Raw>,
    best: Option<(u32, E)>,
}

impl<E> Default for Choice<E> {
    fn default() -> Self {
        Choice { found: None, best: None }
    }
}

impl<E> Choice<E> {
    /// True when a row could give something shorter than what was found.
    pub fn wants(&self, row: &Row) -> bool {
        self.found.as_ref().is_none_or(|f| f.len() > usize::from(row.bytes))
    }

    /// Takes the outcome of a row; an error says how far it came.
    pub fn add(&mut self, outcome: Result<Raw, (u32, E)>) {
        match outcome {
            Ok(raw) if self.found.as_ref().is_none_or(|f| raw.len() < f.len()) => self.found = Some(raw),
            Ok(_) => {}
            Err((progress, e)) => {
                if self.best.as_ref().is_none_or(|(p, _)| progress >= *p) {
                    self.best = Some((progress, e));
                }
            }
        }
    }

    /// The outcome; none when no row was tried.
    pub fn result(self) -> Option<Result<Raw, E>> {
        self.found.map(Ok).or(self.best.map(|(_, e)| Err(e)))
    }
}

pub(crate) fn form_fits(row: &Row, form: Form) -> bool {
    let s = row.shape();
    let dpp = matches!(s.over, Over::Dpp | Over::Dpp8);
    match form {
        Form::Any => true,
        Form::E32 => s.over == Over::None && !s.wide,
        Form::E64 => s.over == Over::None && s.wide,
        Form::Sdwa => s.over == Over::Sdwa,
        Form::Dpp => dpp && !s.wide,
        Form::E64Dpp => dpp && s.wide,
    }
}

struct Attempt<'a> {
    target: Target,
    codes: Codes,
    mode: Mode,
    row: &'a Row,
    inst: &'a Inst,
    bits: u128,
    tail: u32,
    literal: Option<u64>,
    literal_bytes: u8,
    /// The constant that is part of the encoding.
    constant: Option<u64>,
    /// op_sel bits that register halves ask for.
    halves: u64,
    agpr_dst: Option<bool>,
}

pub(crate) type Try<T> = Result<T, (u32, EncodeError)>;

pub(crate) fn try_row(target: Target, mode: Mode, index: u16, row: &Row, inst: &Inst) -> Try<Raw> {
    let shape = row.shape();
    let op = inst.op;
    let (dsts, srcs) = (usize::from(shape.dsts), usize::from(shape.srcs));
    if dsts != inst.dsts.len() {
        return Err((0, EncodeError::Count { op, what: "destinations", want: dsts, got: inst.dsts.len() }));
    }
    let listed = shape.image.is_some_and(|i| i.slots > 0);
    if if listed { inst.srcs.len() < srcs } else { srcs != inst.srcs.len() } {
        return Err((0, EncodeError::Count { op, what: "sources", want: srcs, got: inst.srcs.len() }));
    }
    // every given modifier must exist here
    for (name, value) in inst.mods.iter() {
        let known = row.mods >> name as u32 & 1 == 1
            || (name == ModName::Lds && shape.has(word::LDS) && value == 1)
            || (name == ModName::Offset && shape.field(At::SmemOffset).is_some())
            || (name == ModName::OpSel && value == 0)
            || name == ModName::Other;
        if !known {
            return Err((1, EncodeError::Modifier { op, modifier: name, value }));
        }
    }
    if shape.has(word::LDS)
        && inst.mods.get(ModName::Lds) != Some(1)
        && shape.operand("vdata").is_none()
        && !shape.has(word::LDS_ONLY)
    {
        let any = table::table(target)
            .rows_of(op)
            .iter()
            .any(|&i| table::table(target).rows.get(usize::from(i)).is_some_and(|r| !r.shape().has(word::LDS)));
        if any {
            return Err((1, EncodeError::Modifier { op, modifier: ModName::Lds, value: 0 }));
        }
    }
    let mut a = Attempt {
        target,
        codes: target.codes(),
        mode,
        row,
        inst,
        bits: row.fixed,
        tail: 0,
        literal: None,
        literal_bytes: 0,
        constant: None,
        halves: 0,
        agpr_dst: None,
    };
    let (mut d, mut s, mut progress) = (0, 0, 2);
    for &o in shape.shown() {
        let given = match o.role {
            Role::Dst => {
                d += 1;
                inst.dsts.get(d - 1)
            }
            Role::Src if o.kind == Kind::ImageList => {
                let list = &inst.srcs[s..s + inst.srcs.len() + 1 - srcs];
                s += list.len();
                a.image_list(o, list).map_err(|e| (progress, e))?;
                progress += 1;
                continue;
            }
            Role::Src => {
                s += 1;
                inst.srcs.get(s - 1)
            }
            _ => continue,
        };
        let Some(given) = given else { continue };
        a.operand(o, *given).map_err(|e| (progress, e))?;
        progress += 1;
    }
    // a modifier that is not given leaves its bits clear, unless something else decides them
    let wanted = inst.mods.iter().fold(row.decided, |all, (name, _)| all | 1 << name as u32);
    for &o in shape.modifiers() {
        if o.role == Role::Mod && wanted >> o.modifier as u32 & 1 == 1 {
            a.modifier(o).map_err(|e| (progress, e))?;
        }
    }
    a.finish().map_err(|e| (progress, e))?;
    let mut len = row.bytes;
    if let Some(l) = a.literal {
        a.bits |= u128::from(l) << (u32::from(row.bytes) * 8);
        len += a.literal_bytes;
    }
    Ok(Raw::new(target, mode, index, row, a.bits, a.tail, len))
}

impl Attempt<'_> {
    fn bad(&self, o: &Field, got: Operand, allowed: &'static str) -> EncodeError {
        EncodeError::Operand { op: self.inst.op, operand: o.name, got, allowed }
    }

    fn dwords(&self, o: &Field) -> u8 {
        if o.role == Role::Src && self.row.shape().has(word::F8F6F4) {
            let shape = self.row.shape();
            let given = |m: ModName| {
                shape
                    .operands
                    .iter()
                    .any(|x| x.role == Role::Mod && x.modifier == m)
                    .then(|| self.inst.mods.get(m).unwrap_or(0) as u64)
            };
            if let Some(n) = crate::encode::decode::element_dwords(o.name, given) {
                return n;
            }
        }
        let tfe = o.has(flag::TFE_DATA) && self.inst.mods.get(ModName::Tfe) == Some(1);
        if o.has(flag::MASK) { self.mode.mask_dwords() } else { o.bits.div_ceil(32).max(1) as u8 + u8::from(tfe) }
    }

    /// The number of a vector register of the right length and file.
    fn vector(&mut self, o: &Field, x: Operand, dwords: u8) -> Result<u64, EncodeError> {
        let Operand::Regs(r) = x else { return Err(self.bad(o, x, "a VGPR")) };
        if r.first.file() != RegFile::Vgpr {
            return Err(self.bad(o, x, "a VGPR"));
        }
        if r.dwords != dwords {
            return Err(self.bad(o, x, width_text(dwords)));
        }
        let n = u64::from(r.first.index());
        if n > 255 || n + u64::from(dwords) > u64::from(self.target.info().max_vgprs) {
            return Err(self.bad(o, x, "VGPRs that this target can name"));
        }
        if o.has(flag::HALF) {
            let hi = r.half == Half::Hi;
            if o.has(flag::LO128) {
                if n > 127 {
                    return Err(self.bad(o, x, "a half of v0 to v127 in this encoding"));
                }
                return Ok(n | if hi { 128 } else { 0 });
            }
            if hi {
                self.halves |= match o.role {
                    Role::Dst => 8,
                    _ => 1 << o.source_index().unwrap_or(0),
                };
            }
            return Ok(n);
        }
        if r.half != Half::Full {
            return Err(self.bad(o, x, "a whole register"));
        }
        if o.has(flag::LO128) && n > 127 {
            return Err(self.bad(o, x, "v0 to v127 in this encoding"));
        }
        Ok(n)
    }

    fn agpr(&self, o: &Field, x: Operand, dwords: u8) -> Result<u64, EncodeError> {
        let Operand::Regs(r) = x else { return Err(self.bad(o, x, "an AGPR")) };
        if r.first.file() != RegFile::Agpr || r.dwords != dwords {
            return Err(self.bad(o, x, "an AGPR of the right width"));
        }
        Ok(u64::from(r.first.index()))
    }

    fn scalar(&self, o: &Field, x: Operand, dwords: u8) -> Result<u64, EncodeError> {
        let Operand::Regs(r) = x else { return Err(self.bad(o, x, "a scalar register")) };
        if r.first.is_vector() {
            return Err(self.bad(o, x, "a scalar register"));
        }
        self.scalar_regs(o, r, dwords)
    }

    fn scalar_regs(&self, o: &Field, r: Regs, dwords: u8) -> Result<u64, EncodeError> {
        let x = Operand::Regs(r);
        let null = r.first == Reg::NULL;
        let aperture = (Reg::SHARED_BASE.0..=Reg::POPS_EXITING_WAVE_ID.0).contains(&r.first.0);
        if r.dwords != dwords && !null && !aperture {
            let width = match (o.has(flag::MASK), dwords) {
                (true, 1) => "one register, the mask of a wave of 32 lanes",
                (true, _) => "two registers, the mask of a wave of 64 lanes",
                _ => width_text(dwords),
            };
            return Err(self.bad(o, x, width));
        }
        let align = if dwords == 1 {
            1
        } else if dwords == 2 {
            2
        } else {
            4
        };
        if matches!(r.first.file(), RegFile::Sgpr | RegFile::Ttmp) && !r.first.index().is_multiple_of(align) {
            return Err(self.bad(o, x, "an SGPR run aligned to its size (2 or 4)"));
        }
        let code = self.codes.code(r.first).ok_or_else(|| self.bad(o, x, "a register that this target has"))?;
        if matches!(r.first.file(), RegFile::Sgpr)
            && u64::from(r.first.index()) + u64::from(dwords) > self.codes.sgprs()
        {
            return Err(self.bad(o, x, "SGPRs that this target has"));
        }
        Ok(code)
    }

    /// The code of a source operand, 9 bits.
    fn source(&mut self, o: &Field, x: Operand, dwords: u8) -> Result<u64, EncodeError> {
        match x {
            Operand::Regs(r) if r.first.file() == RegFile::Vgpr => {
                if o.kind == Kind::Ssrc || o.has(flag::SCALAR_ONLY) {
                    return Err(self.bad(o, x, "a scalar source"));
                }
                self.vector(o, x, dwords).map(|n| n | 256)
            }
            Operand::Regs(r) if r.first.file() == RegFile::Agpr => Err(self.bad(o, x, "a source that is no AGPR")),
            Operand::Regs(_)
                if o.has(flag::VGPR_ONLY)
                    && !(o.has(flag::LDS_DIRECT) && x == Operand::Regs(Reg::LDS_DIRECT.into())) =>
            {
                Err(self.bad(o, x, "a VGPR"))
            }
            Operand::Regs(r) => self.scalar_regs(o, r, dwords),
            Operand::Imm(_) if o.has(flag::VGPR_ONLY | flag::NO_INLINE) => Err(self.bad(o, x, "a register")),
            Operand::Imm(v) => {
                let forced =
                    o.source_index().is_some_and(|i| self.inst.mods.get(ModName::Other).unwrap_or(0) >> i & 1 == 1);
                if self.row.shape().has(word::SPLAT) {
                    let narrow = self.row.bytes == 4;
                    return match splat_code(v, narrow).filter(|_| !forced) {
                        Some(c) => Ok(c),
                        None => self.use_literal(o, x, v, forced),
                    };
                }
                if !forced
                    && let Some(c) = inline_code(v, o.ty, o.bits)
                    && (o.ty != Type::F64 && o.ty != Type::B64 || fits_inline(v, o))
                {
                    return Ok(c);
                }
                let keep_code = o
                    .source_index()
                    .is_some_and(|i| self.inst.mods.get(ModName::Other).unwrap_or(0) >> (8 + i) & 1 == 1);
                if keep_code && let Some(c) = inline_code(v, Type::F16, 16) {
                    return Ok(c);
                }
                if matches!(o.ty, Type::I16 | Type::U16 | Type::B16)
                    && !literal_field(self.row.shape(), o, self.target.info().vop3_literal)
                    && let Some(c) = inline_code(v, Type::F16, 16)
                {
                    return Ok(c);
                }
                self.use_literal(o, x, v, forced)
            }
            Operand::Off => Err(self.bad(o, x, "a source operand")),
        }
    }

    fn use_literal(&mut self, o: &Field, x: Operand, v: u64, forced: bool) -> Result<u64, EncodeError> {
        let vop3 = self.target.info().vop3_literal;
        if !literal_field(self.row.shape(), o, vop3) {
            return Err(self.bad(o, x, "a register or an inline constant in this encoding"));
        }
        let width = constant_bits(o.ty, o.bits);
        let keep = if width == 64 { u64::MAX } else { (1u64 << width) - 1 };
        let literal = match o.ty {
            Type::F64 => (v >> 32) as u32,
            _ => v as u32,
        };
        // gfx1250 sign-extends: a set top bit needs the 64-bit form
        let may_be_wide = self.codes.has_long_literals() && width == 64 && self.row.bytes == 4;
        let signed = may_be_wide && (o.ty != Type::F64 && v >> 31 == 1 || forced);
        let own = self.row.shape().operands.iter().any(|k| k.style == Style::K64);
        let (literal, bytes, code) = if own {
            // v_fmaak_f64: the constant that is part of the encoding
            (v, 8, 254)
        } else if !signed && widen_literal(literal, o.ty) & keep == v & keep {
            let narrow = width == 16 && matches!(literal >> 16, 0 | 0xffff);
            let l = if narrow { literal & 0xffff } else { literal };
            (u64::from(l), 4, 255)
        } else if may_be_wide {
            (v, 8, 254)
        } else {
            return Err(self.bad(o, x, "a 64-bit constant whose significant half is 32 bits wide"));
        };
        if self.literal.is_some_and(|l| l != literal) {
            return Err(EncodeError::Literals { op: self.inst.op });
        }
        self.literal = Some(literal);
        // sources that share it take it at its longest
        self.literal_bytes = self.literal_bytes.max(bytes);
        Ok(code)
    }

    fn operand(&mut self, o: &Field, x: Operand) -> Result<(), EncodeError> {
        let dwords = self.dwords(o);
        let is_agpr = matches!(x, Operand::Regs(r) if r.first.file() == RegFile::Agpr);
        let value = match o.kind {
            Kind::Vgpr => self.vector(o, x, dwords)?,
            Kind::VgprAcc if is_agpr => {
                self.same_file(o, x, true)?;
                self.agpr(o, x, dwords)? | 256
            }
            Kind::VgprAcc => {
                self.same_file(o, x, false)?;
                self.vector(o, x, dwords)?
            }
            Kind::Agpr => {
                self.agpr_dst = Some(true);
                self.agpr(o, x, dwords)?
            }
            Kind::Src | Kind::Ssrc => self.source(o, x, dwords)?,
            Kind::SrcAgpr => self.agpr(o, x, dwords)? | 256,
            Kind::SrcAcc if is_agpr => self.agpr(o, x, dwords)? | 256 | 512,
            Kind::SrcAcc => self.vector(o, x, dwords)? | 256,
            // the index of a sparse product
            Kind::SrcVgprAcc if o.has(flag::VGPR_ONLY) => self.vector(o, x, dwords)? | 256,
            Kind::SrcVgprAcc => match x {
                // values that are as wide as the operand asks for
                Operand::Regs(r)
                    if self.target.info().has(Quirk::SpecialConstants)
                        && (Reg::NULL.0..Reg::MODE.0).contains(&r.first.0) =>
                {
                    self.codes.code(r.first).ok_or_else(|| self.bad(o, x, "a register that this target has"))?
                }
                Operand::Regs(_) => {
                    if self.agpr_dst.unwrap_or(false) != is_agpr {
                        return Err(self.bad(o, x, "the same kind of register as the destination"));
                    }
                    (if is_agpr { self.agpr(o, x, dwords)? } else { self.vector(o, x, dwords)? }) | 256
                }
                Operand::Imm(v) => inline_code(v, o.ty, if o.ty == Type::Wide { 32 } else { o.bits })
                    .ok_or_else(|| self.bad(o, x, "a register or an inline constant"))?,
                Operand::Off => return Err(self.bad(o, x, "a register or an inline constant")),
            },
            Kind::SrcSdwa if o.has(flag::VGPR_ONLY) => self.vector(o, x, dwords)?,
            Kind::SrcSdwa => match x {
                Operand::Regs(r) if r.first.file() == RegFile::Vgpr => self.vector(o, x, dwords)?,
                Operand::Regs(r) => self.scalar_regs(o, r, dwords)? | 256,
                Operand::Imm(v) => {
                    let ty = if matches!(o.ty, Type::I16 | Type::U16 | Type::B16) { Type::F16 } else { o.ty };
                    inline_code(v, ty, o.bits).ok_or_else(|| self.bad(o, x, "a register or an inline constant"))? | 256
                }
                Operand::Off => return Err(self.bad(o, x, "a register")),
            },
            Kind::SdwaSdst if x == Operand::Regs(vcc(self.mode)) => 0,
            Kind::SdwaSdst => self.scalar(o, x, dwords)? | 128,
            Kind::Sgpr => self.scalar(o, x, dwords)?,
            Kind::SgprPair => self.scalar(o, x, dwords)? / 2,
            Kind::SgprQuad => self.scalar(o, x, dwords)? / 4,
            Kind::FixedVcc => {
                if x != Operand::Regs(vcc(self.mode)) {
                    return Err(self.bad(o, x, "vcc in this encoding"));
                }
                0
            }
            Kind::Imm | Kind::ImmSigned => {
                let Operand::Imm(v) = x else { return Err(self.bad(o, x, "a number")) };
                let w = width_of(o).min(64);
                let keep = if w == 64 { u64::MAX } else { (1 << w) - 1 };
                let (lo, hi) = (v as i64 >= -(1i64 << (w.min(63) - 1)), v <= keep);
                if !(hi || (lo && (v as i64) < 0)) {
                    return Err(self.bad(o, x, "a number that the field can hold"));
                }
                if matches!(o.style, Style::K32 | Style::K16 | Style::K64) {
                    // the literal field doubles as the literal of other sources
                    if self.constant.or(self.literal).is_some_and(|l| l != v & keep) {
                        return Err(EncodeError::Literals { op: self.inst.op });
                    }
                    self.constant = Some(v & keep);
                }
                v & keep
            }
            Kind::BufferAddr => {
                let (offen, idxen) =
                    (self.inst.mods.get(ModName::Offen).unwrap_or(0), self.inst.mods.get(ModName::Idxen).unwrap_or(0));
                match (offen, idxen) {
                    (0, 0) if x == Operand::Off => 0,
                    (0, 0) => return Err(self.bad(o, x, "`off`, or a VGPR with offen or idxen")),
                    (1, 1) => self.vector(o, x, 2)?,
                    _ => self.vector(o, x, 1)?,
                }
            }
            Kind::GlobalAddr => {
                let narrow = self.inst.srcs.iter().any(|s| matches!(s, Operand::Regs(r) if !r.first.is_vector()));
                self.vector(o, x, if narrow { 1 } else { 2 })?
            }
            Kind::GlobalSaddr | Kind::FlatSaddr if x == Operand::Off => self.codes.off(),
            Kind::GlobalSaddr | Kind::FlatSaddr => self.scalar(o, x, 2)?,
            Kind::ScratchAddr => {
                let sve = self.row.shape().operand("sve");
                if let Some(sve) = sve {
                    sve.put(&mut self.bits, u64::from(x != Operand::Off));
                }
                if x == Operand::Off { 0 } else { self.vector(o, x, 1)? }
            }
            Kind::ScratchSaddr => self.scratch_saddr(o, x)?,
            Kind::VgprOdd => {
                let n = self.vector(o, x, dwords)?;
                let first = self.inst.dsts.first().and_then(|d| d.regs()).map_or(0, |r| u64::from(r.first.index()));
                if (n ^ first) & 1 == 0 {
                    return Err(self.bad(
                        o,
                        x,
                        "an odd register beside an even one: the pair's destinations must differ in parity",
                    ));
                }
                n >> 1
            }
            Kind::ExportSrc => return self.export_source(o, x),
            Kind::SmemOffset => return self.smem_offset(o, x),
            Kind::ImageData | Kind::ImageDataAcc => {
                let smallest = self.row.shape().image.and_then(|i| i.datas.first().copied());
                let n =
                    x.regs().map(|r| r.dwords).filter(|n| Some(*n) == smallest).unwrap_or_else(|| self.image_data());
                let acc = is_agpr && o.kind == Kind::ImageDataAcc;
                if acc { self.agpr(o, x, n)? | 256 } else { self.vector(o, x, n)? }
            }
            Kind::ImageAddr => {
                let n = self.image_run(o, x)?;
                self.vector(o, x, n)?
            }
            // taken before
            Kind::ImageList => 0,
            Kind::Modifier | Kind::ModifierSigned | Kind::Aux => 0,
        };
        if o.role == Role::Dst && matches!(o.kind, Kind::VgprAcc) && self.agpr_dst.is_none() {
            self.agpr_dst = Some(is_agpr);
        }
        if value & !o.max() != 0 && o.kind != Kind::FixedVcc {
            return Err(self.bad(o, x, "an operand that the field can hold"));
        }
        o.put(&mut self.bits, value);
        Ok(())
    }

    /// Data operands that share the AGPR bit must be of one file.
    fn same_file(&mut self, o: &Field, x: Operand, agpr: bool) -> Result<(), EncodeError> {
        let shared = self
            .row
            .shape()
            .operands
            .iter()
            .filter(|p| p.kind == Kind::VgprAcc && p.segs.last() == o.segs.last())
            .count()
            > 1;
        if shared {
            if self.agpr_dst.is_some_and(|a| a != agpr) {
                return Err(self.bad(o, x, "the same kind of register (VGPR or AGPR) as the other data operand"));
            }
            self.agpr_dst = Some(agpr);
        }
        Ok(())
    }

    fn given(&self, name: ModName) -> u64 {
        self.inst.mods.get(name).unwrap_or(0) as u64
    }

    fn modifier(&mut self, o: &Field) -> Result<(), EncodeError> {
        let given = self.inst.mods.get(o.modifier);
        let mut v = given.map_or(default_of(o, self.row.shape()), i64::from);
        if o.modifier == ModName::En && given.is_none() {
            let on = |i: usize| self.inst.srcs.get(i + 1).is_some_and(|s| *s != Operand::Off);
            v = if self.given(ModName::Compr) == 1 {
                // the first of each two sources counts
                (3 * i64::from(on(0))) | (12 * i64::from(on(2)))
            } else {
                (0..4).filter(|&i| on(i)).map(|i| 1 << i).sum()
            };
        }
        if o.modifier == ModName::OpSel {
            v |= self.halves as i64;
            self.halves = 0;
        }
        let bad = EncodeError::Modifier { op: self.inst.op, modifier: o.modifier, value: v as i32 };
        let value = if o.kind == Kind::ModifierSigned {
            let w = width_of(o);
            if v < -(1i64 << (w - 1)) || v >= 1i64 << (w - 1) {
                return Err(bad);
            }
            v as u64 & o.max()
        } else {
            let v = if o.modifier == ModName::Dpp8 { v & 0xff_ffff } else { v };
            if v < 0 || v as u64 & !o.max() != 0 {
                return Err(bad);
            }
            v as u64
        };
        // bits that this form of the instruction fixes (the return bit of atomics)
        let mut want = 0u128;
        o.put(&mut want, o.max());
        let fixed = want & self.row.mask;
        o.put(&mut self.bits, value);
        if fixed != 0 {
            if given.is_some() && (self.bits ^ self.row.fixed) & fixed != 0 && self.row.fixed & fixed == 0 {
                return Err(bad);
            }
            self.bits = (self.bits & !fixed) | (self.row.fixed & fixed);
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), EncodeError> {
        let shape = self.row.shape();
        if self.halves != 0 {
            return Err(EncodeError::Modifier {
                op: self.inst.op,
                modifier: ModName::OpSel,
                value: self.halves as i32,
            });
        }
        if let Some(l) = self.literal
            && let Some(imm) = shape.field(At::Constant)
        {
            if imm.get(self.bits) != l {
                return Err(EncodeError::Literals { op: self.inst.op });
            }
            self.literal = None;
        }
        if self.row.variant & DPP8 != 0 {
            // code e9, or ea to fetch inactive lanes
            let at = if self.row.bytes == 8 { 0 } else { 32 };
            let fi = self.bits >> (at + 1) & 1;
            self.bits = (self.bits & !(1 << at)) | ((fi ^ 1) << at);
        }
        self.constant_bus()
    }
}

/// The inline constant that both halves of a value are, or a whole integer; the long encoding knows none.
fn splat_code(v: u64, narrow: bool) -> Option<u64> {
    if !narrow {
        return None;
    }
    let (lo, hi) = (v & 0xffff, v >> 16 & 0xffff);
    let whole = inline_code(v, Type::I32, 32).filter(|&c| c < 240);
    whole.or_else(|| inline_code(lo, Type::F16, 16).filter(|_| lo == hi))
}

fn fits_inline(v: u64, o: &Field) -> bool {
    crate::model::codes::inline_code(v, o.ty, o.bits).and_then(|c| crate::model::codes::inline_value(c, o.ty, o.bits))
        == Some(v)
}

fn width_text(dwords: u8) -> &'static str {
    match dwords {
        1 => "one register",
        2 => "two registers (64 bits)",
        3 => "three registers (96 bits)",
        4 => "four registers (128 bits)",
        5 => "five registers (160 bits)",
        8 => "eight registers (256 bits)",
        16 => "16 registers (512 bits)",
        32 => "32 registers (1024 bits)",
        _ => "registers of the operand's width",
    }
}
