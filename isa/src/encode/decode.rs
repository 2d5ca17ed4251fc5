//! Bytes to instructions.
//!
//! [`decode`] finds the row whose fixed bits match (two table look-ups, then a short list, most specific first) and how
//! long the instruction is; it allocates nothing. [`Raw::inst`] reads the fields as typed operands.

use crate::model::action::Action;
use crate::model::codes::{Codes, inline_value};
use crate::model::table::{
    self, At, DPP8, FAKE16, Index, Kind, LAST, LONG, NONE, ODD, OVERLAY, Operand as Field, Over, Probe, Role, Row,
    Shape, Style, TRUE16, WAVE32, WAVE64, WORD, default_of, flag, word,
};
use crate::model::valid::sdwa_exists;
use crate::{Form, Half, Inst, ModName, Mods, Op, Operand, Quirk, Reg, RegFile, Regs, Slot, Target, Type, VCC};
use smallvec::SmallVec;

/// How the wave runs, where the meaning of bits depends on it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Mode {
    /// Masks are pairs of SGPRs (and VCC, not VCC_LO).
    pub wave64: bool,
    /// 16-bit operands name halves of registers (`v1.l`); gfx11 and later only.
    pub true16: bool,
}

impl Mode {
    /// What LLVM assumes for a target: wave32 from gfx10 on; true16 on gfx11 but not gfx12.
    pub fn of(target: Target) -> Mode {
        Mode { wave64: target.info().wave_size == 64, true16: target.info().has(Quirk::PrintsHalves) }
    }
    /// Registers of a wave mask.
    pub(crate) fn mask_dwords(self) -> u8 {
        if self.wave64 { 2 } else { 1 }
    }
}

/// A decoded instruction: a table row and the bits. Small and cheap to copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Raw {
    bits: u128,
    /// Bytes beyond the first sixteen: addresses of image instructions.
    tail: u32,
    row: u16,
    op: Op,
    shape: u16,
    len: u8,
    target: Target,
    mode: Mode,
}

/// Decodes the instruction at the start of `bytes`; `None` when the bits are no instruction of the target or end early.
#[inline]
pub fn decode(target: Target, mode: Mode, bytes: &[u8]) -> Option<Raw> {
    Decoder::new(target, mode).decode(bytes)
}

/// A decoder with its table looked up once: for loops.
#[derive(Clone, Copy)]
pub struct Decoder {
    table: &'static table::Table,
    index: &'static Index,
    target: Target,
    mode: Mode,
    reject: u16,
}

impl Decoder {
    /// A decoder for a target.
    pub fn new(target: Target, mode: Mode) -> Decoder {
        let reject = if mode.true16 { FAKE16 } else { TRUE16 } | if mode.wave64 { WAVE32 } else { WAVE64 };
        let table = table::table(target);
        Decoder { table, index: table.index(target, mode.wave64), target, mode, reject }
    }

    /// Decodes the instruction at the start of `bytes`.
    #[inline]
    pub fn decode(&self, bytes: &[u8]) -> Option<Raw> {
        match bytes.first_chunk() {
            Some(window) => self.read(window),
            None => self.read_last(bytes),
        }
    }

    /// Near the end of the code: an instruction must not reach beyond it.
    #[inline(never)]
    fn read_last(&self, bytes: &[u8]) -> Option<Raw> {
        let mut window = [0; 20];
        window.get_mut(..bytes.len())?.copy_from_slice(bytes);
        self.read(&window).filter(|raw| raw.len() <= bytes.len())
    }

    #[inline]
    fn read(&self, window: &[u8; 20]) -> Option<Raw> {
        let bits = u128::from_le_bytes(*window.first_chunk()?);
        let index = self.index;
        if let Some((row, probe, len)) = index.first(bits as u32)
            && (bits as u64 ^ probe.fixed) & probe.mask == 0
            && u16::from(probe.variant) & (self.reject | ODD) == 0
        {
            match index.verdict(probe, bits as u64) {
                0 => return Some(self.raw(bits, 0, row, probe, len)),
                WORD => return Some(self.raw(bits, 0, row, probe, len + 4)),
                _ => {}
            }
        }
        self.read_odd(window)
    }

    /// What is not the first row of its slot with usual operands.
    #[inline(never)]
    fn read_odd(&self, window: &[u8; 20]) -> Option<Raw> {
        let bits = u128::from_le_bytes(*window.first_chunk()?);
        let tail = window.last_chunk().map_or(0, |t| u32::from_le_bytes(*t));
        // halves of registers that no row takes: LLVM then reads them as whole registers
        self.search(bits, tail, self.reject).or_else(|| {
            let whole = self.reject & !FAKE16;
            self.mode.true16.then(|| self.search(bits, tail, whole))?
        })
    }

    #[inline]
    fn raw(&self, bits: u128, tail: u32, row: u16, probe: &Probe, len: u8) -> Raw {
        let bits = bits & KEEP[usize::from(len) & 31];
        let (op, shape) = (probe.op, probe.shape);
        Raw { bits, tail, row, op, shape, len, target: self.target, mode: self.mode }
    }

    /// Tries all rows.
    fn search(&self, bits: u128, tail: u32, reject: u16) -> Option<Raw> {
        let index = self.index;
        for (i, probe) in index.candidates(bits as u32) {
            let misses = (bits as u64 ^ probe.fixed) & probe.mask != 0 || u16::from(probe.variant) & reject != 0;
            let odd = u16::from(probe.variant) & ODD != 0;
            if misses || odd && !self.fits(i, bits) {
                continue;
            }
            let verdict = if odd { index.verdicts(probe, bits) } else { index.verdict(probe, bits as u64) };
            let len = match verdict {
                0 => probe.bytes,
                WORD => probe.bytes + 4,
                v if v & NONE != 0 => return None,
                v if v & OVERLAY != 0 => continue,
                v if v & LAST != 0 && leaves_file(&self.raw(bits, 0, i, probe, probe.bytes)) => return None,
                v if v & !LAST == 0 => probe.bytes,
                v if v & LONG == 0 => probe.bytes + 4,
                _ => probe.bytes + 8,
            };
            return Some(self.raw(bits, if len > 16 { tail } else { 0 }, i, probe, len));
        }
        None
    }

    /// True when all fixed bits of a row agree, its DPP8 code, and the operands of SDWA exist.
    fn fits(&self, row: u16, bits: u128) -> bool {
        let Some(row) = self.table.rows.get(usize::from(row)) else { return false };
        let code = if row.bytes == 8 { bits as u32 } else { (bits >> 32) as u32 } & 0x1ff;
        (bits ^ row.fixed) & row.mask == 0
            && (row.variant & DPP8 == 0 || matches!(code, 0xe9 | 0xea))
            && (row.shape().over != Over::Sdwa || sdwa_exists(self.target.codes(), row, bits, self.mode.wave64))
    }
}

/// True when a tuple of AGPRs runs past the last one; the names of VGPRs go on.
#[inline(never)]
fn leaves_file(raw: &Raw) -> bool {
    let shape = raw.shape();
    shape.shown().iter().any(|o| {
        // the widest that the operand can be counts
        let longest = if shape.has(word::F8F6F4) && o.role == Role::Src { 8 } else { o.bits / 32 };
        let end = |r: Regs| r.first.index() + u16::from(r.dwords).max(longest);
        raw.operand(o).regs().is_some_and(|r| r.first.file() == RegFile::Agpr && end(r) > 256)
    })
}

/// The bits of an instruction of so many bytes.
static KEEP: [u128; 32] = {
    let mut keep = [u128::MAX; 32];
    let mut n = 0;
    while n < 16 {
        keep[n] = (1 << (8 * n)) - 1;
        n += 1;
    }
    keep
};

impl Raw {
    pub(crate) fn new(target: Target, mode: Mode, at: u16, row: &Row, bits: u128, tail: u32, len: u8) -> Raw {
        Raw { bits, tail, row: at, op: row.op, shape: row.shape, len, target, mode }
    }

    pub(crate) fn row_index(&self) -> u16 {
        self.row
    }

    #[inline]
    pub(crate) fn row(&self) -> &'static Row {
        let rows = &table::table(self.target).rows;
        &rows[usize::from(self.row).min(rows.len() - 1)]
    }

    #[inline]
    pub(crate) fn shape(&self) -> &'static Shape {
        table::shape(self.shape)
    }

    /// The operation.
    #[inline]
    pub fn op(&self) -> Op {
        self.op
    }

    /// Length in bytes, with literal.
    #[allow(clippy::len_without_is_empty)]
    #[inline]
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// The target it was decoded for.
    pub fn target(&self) -> Target {
        self.target
    }

    /// The mode it was decoded for.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The mnemonic on this target, without encoding suffix.
    pub fn mnemonic(&self) -> &'static str {
        self.row().mnemonic()
    }

    /// The encoding: `VOP3`, `VOP2`, `DS`, ...
    pub fn encoding(&self) -> &'static str {
        self.shape().format
    }

    /// The form it has in assembly (`_e32`, `_e64`, `_sdwa`, ...).
    pub fn form(&self) -> Form {
        let s = self.shape();
        let wide = s.format.starts_with("VOP3");
        match (s.overlay, wide) {
            ("", true) => Form::E64,
            ("", false) if s.format.starts_with("VOP") => Form::E32,
            ("", false) => Form::Any,
            ("DPP" | "DPP8", true) => Form::E64Dpp,
            ("DPP" | "DPP8", false) => Form::Dpp,
            _ => Form::Sdwa,
        }
    }

    /// What is laid over the encoding: `DPP`, `DPP8`, `SDWA`, `SDWAC` or nothing.
    pub fn overlay(&self) -> &'static str {
        self.shape().overlay
    }

    /// The instruction's bytes.
    pub fn bytes(&self) -> SmallVec<[u8; 20]> {
        let mut out = [0; 20];
        out[..16].copy_from_slice(&self.bits.to_le_bytes());
        out[16..].copy_from_slice(&self.tail.to_le_bytes());
        SmallVec::from_buf_and_len(out, self.len())
    }

    /// The literal dword, when an operand uses one.
    pub fn literal(&self) -> Option<u32> {
        let row = self.row();
        (self.len > row.bytes).then(|| (self.bits >> (row.bytes * 8)) as u32)
    }

    /// The literal that sources use: behind the instruction or part of it.
    pub(crate) fn any_literal(&self) -> Option<u32> {
        self.shape().field(At::Constant).map(|k| k.get(self.bits) as u32).or(self.literal())
    }

    /// True when a literal of eight bytes follows.
    pub(crate) fn has_long_literal(&self) -> bool {
        self.len == self.row().bytes + 8
    }

    pub(crate) fn literal64(&self) -> u64 {
        (self.bits >> (u32::from(self.row().bytes) * 8)) as u64
    }

    /// Its first sixteen bytes.
    #[inline]
    pub fn bits(&self) -> u128 {
        self.bits
    }

    /// Value of an operand or modifier that others depend on.
    #[inline]
    pub(crate) fn at(&self, at: At) -> u64 {
        self.shape().value(at, self.bits)
    }

    /// Value of a named field, 0 when the encoding has none.
    pub(crate) fn aux(&self, name: &str) -> u64 {
        self.shape().operand(name).map_or(0, |o| o.get(self.bits))
    }

    /// The typed form, as the encoder takes it back.
    pub fn inst(&self) -> Inst {
        let mut inst = Inst { op: self.op(), dsts: SmallVec::new(), srcs: SmallVec::new(), mods: Mods::new() };
        let shape = self.shape();
        for o in shape.operands {
            match o.role {
                Role::Dst => inst.dsts.push(self.operand(o)),
                Role::Src if o.kind == Kind::ImageList => inst.srcs.extend(self.image_list()),
                Role::Src => {
                    inst.srcs.push(self.operand(o));
                    if o.kind == Kind::SmemOffset {
                        self.smem_modifier(o, &mut inst.mods);
                    }
                }
                Role::Mod => {
                    let v = self.modifier(o);
                    let v = if o.modifier == ModName::OpSel { self.opsel_without_halves(o, v) } else { v };
                    if v != default_of(o, shape) {
                        inst.mods.set(o.modifier, v as i32);
                    }
                }
                Role::Aux => {}
            }
        }
        if shape.has(word::LDS) {
            inst.mods.set(ModName::Lds, 1);
        }
        inst
    }

    /// The halves of a dual-issue pair as instructions of their own; `None` for what is no pair, or has a half that exists
    /// only as such. The signs of VOPD3's sources are the halves' `neg`.
    pub fn halves(&self) -> Option<[Inst; 2]> {
        let Action::Pair(Some(x), Some(y)) = *self.op.action() else { return None };
        let half = |op| Inst { op, dsts: SmallVec::new(), srcs: SmallVec::new(), mods: Mods::new() };
        let mut halves = [half(x), half(y)];
        // the second destination begins the second half
        let mut at = 0;
        for o in self.shape().operands {
            match o.role {
                Role::Dst => {
                    at = usize::from(o.kind == Kind::VgprOdd || o.name == "vdstY");
                    halves[at].dsts.push(self.operand(o));
                }
                Role::Src => halves[at].srcs.push(self.operand(o)),
                Role::Mod if o.modifier == ModName::Neg => {
                    let neg = self.modifier(o);
                    for (h, half) in halves.iter_mut().enumerate() {
                        let own = neg >> (3 * h) & 7;
                        if own != 0 {
                            half.mods.set(ModName::Neg, own as i32);
                        }
                    }
                }
                Role::Mod | Role::Aux => {}
            }
        }
        Some(halves)
    }

    /// Value of a modifier field, sign-extended where it is signed.
    pub(crate) fn modifier(&self, o: &Field) -> i64 {
        let v = o.get(self.bits);
        if o.kind == Kind::ModifierSigned {
            return sign_extend(v, width_of(o));
        }
        v as i64
    }

    /// op_sel without the bits that the halves of true16 registers already say.
    fn opsel_without_halves(&self, _o: &Field, v: i64) -> i64 {
        let mut v = v;
        for o in self.shape().operands {
            if !o.has(flag::HALF) {
                continue;
            }
            match (o.role, o.source_index()) {
                (Role::Dst, _) => v &= !8,
                (Role::Src, Some(i)) if matches!(self.operand(o), Operand::Regs(r) if r.first.is_vector()) => {
                    v &= !(1 << i)
                }
                _ => {}
            }
        }
        v
    }

    /// One operand as typed value.
    pub(crate) fn operand(&self, o: &Field) -> Operand {
        let v = o.get(self.bits);
        let mut dwords = if o.has(flag::MASK) { self.mode.mask_dwords() } else { o.bits.div_ceil(32).max(1) as u8 };
        if o.has(flag::TFE_DATA) && self.at(At::Tfe) == 1 {
            dwords += 1;
        }
        if let Some(n) = self.element_dwords(o) {
            dwords = n;
        }
        let codes = self.target.codes();
        let vgpr = |n: u64, dwords: u8| {
            if o.has(flag::HALF) {
                return self.half_register(o, n);
            }
            Operand::Regs(Regs::v(n as u16 & 0xff, dwords))
        };
        let agpr = |n: u64, dwords: u8| Operand::Regs(Regs::new(Reg::a(n as u16 & 0xff), dwords));
        match o.kind {
            Kind::Vgpr => vgpr(v, dwords),
            Kind::VgprAcc if v & 256 != 0 => agpr(v, dwords),
            Kind::VgprAcc => vgpr(v, dwords),
            Kind::Agpr => agpr(v, dwords),
            Kind::Src | Kind::Ssrc | Kind::SrcAgpr | Kind::SrcVgprAcc => {
                if v & 256 != 0 {
                    let acc = o.kind == Kind::SrcAgpr
                        || (o.kind == Kind::SrcVgprAcc && !o.has(flag::VGPR_ONLY) && self.dst_is_agpr());
                    return if acc { agpr(v, dwords) } else { vgpr(v, dwords) };
                }
                self.source(o, v, dwords)
            }
            Kind::SrcAcc => {
                if v & 256 == 0 {
                    return self.source(o, v & 255, dwords);
                }
                if v & 512 != 0 { agpr(v, dwords) } else { vgpr(v, dwords) }
            }
            Kind::SrcSdwa if v & 256 == 0 => Operand::Regs(Regs::v(v as u16, dwords)),
            Kind::SrcSdwa => self.source(o, v & 255, dwords),
            Kind::SdwaSdst if v & 128 == 0 => Operand::Regs(Regs::new(Reg::VCC_LO, dwords)),
            Kind::SdwaSdst => self.scalar(codes, v & 127, dwords),
            Kind::Sgpr => self.scalar(codes, v, dwords),
            Kind::SgprPair => self.scalar(codes, v * 2, dwords),
            Kind::SgprQuad => self.scalar(codes, v * 4, dwords),
            Kind::FixedVcc => Operand::Regs(Regs::new(Reg::VCC_LO, dwords)),
            Kind::Imm if o.style == Style::Label || o.style == Style::S16 => Operand::Imm(sign_extend(v, 16) as u64),
            Kind::Imm => Operand::Imm(v),
            Kind::ImmSigned => Operand::Imm(sign_extend(v, width_of(o)) as u64),
            Kind::BufferAddr => match (self.at(At::Offen), self.at(At::Idxen)) {
                (0, 0) => Operand::Off,
                (1, 1) => vgpr(v, 2),
                _ => vgpr(v, 1),
            },
            Kind::GlobalAddr => vgpr(
                v,
                if self.at(At::Saddr) == codes.off() || self.shape().field(At::Saddr).is_none() { 2 } else { 1 },
            ),
            Kind::GlobalSaddr | Kind::FlatSaddr if v == codes.off() => Operand::Off,
            Kind::GlobalSaddr | Kind::FlatSaddr => self.scalar(codes, v, 2),
            Kind::ScratchAddr if self.scratch_vaddr() => vgpr(v, 1),
            Kind::ScratchAddr => Operand::Off,
            Kind::ScratchSaddr if codes.is_scratch_off(v) => Operand::Off,
            Kind::ScratchSaddr => self.scalar(codes, v, 1),
            Kind::VgprOdd => vgpr(v << 1 | (self.at(At::VdstX) & 1 ^ 1), 1),
            Kind::ExportSrc if self.at(At::En) >> o.source_index().unwrap_or(0) & 1 == 0 => Operand::Off,
            // two registers hold four halves: each stands for two sources
            Kind::ExportSrc if self.at(At::Compr) == 1 => {
                let from = if o.source_index().unwrap_or(0) < 2 { "src0" } else { "src1" };
                vgpr(self.aux(from), 1)
            }
            Kind::ExportSrc => vgpr(v, 1),
            Kind::ImageData => vgpr(v, self.image_sizes().0),
            Kind::ImageDataAcc if v & 256 != 0 => agpr(v, self.image_sizes().0),
            Kind::ImageDataAcc => vgpr(v, self.image_sizes().0),
            Kind::ImageAddr => {
                let rays = self.shape().image.and_then(|i| i.rays.first());
                vgpr(v, rays.map_or_else(|| self.image_sizes().1, |n| *n))
            }
            Kind::ImageList => self.image_list().first().copied().unwrap_or(Operand::Off),
            Kind::SmemOffset => self.smem_offset(o),
            Kind::Modifier | Kind::ModifierSigned | Kind::Aux => Operand::Imm(v),
        }
    }

    /// Registers of A or B where their element format decides.
    fn element_dwords(&self, o: &Field) -> Option<u8> {
        if o.role != Role::Src || !self.shape().has(word::F8F6F4) {
            return None;
        }
        let format = |m: ModName| {
            self.shape().operands.iter().find(|x| x.role == Role::Mod && x.modifier == m).map(|x| x.get(self.bits))
        };
        element_dwords(o.name, format)
    }

    fn half_register(&self, o: &Field, n: u64) -> Operand {
        let (n, hi) = if o.has(flag::LO128) {
            (n & 127, n & 128 != 0)
        } else {
            let bit = match o.role {
                Role::Dst => 3,
                _ => o.source_index().unwrap_or(0),
            };
            let opsel = self.shape().field(At::OpSel);
            (n & 255, opsel.is_some_and(|m| m.get(self.bits) >> bit & 1 == 1))
        };
        Operand::Regs(Regs { first: Reg::v(n as u16), dwords: 1, half: if hi { Half::Hi } else { Half::Lo } })
    }

    fn dst_is_agpr(&self) -> bool {
        self.shape().operands.iter().any(|o| {
            o.role == Role::Dst && (o.kind == Kind::Agpr || (o.kind == Kind::VgprAcc && o.get(self.bits) & 256 != 0))
        })
    }

    fn scratch_vaddr(&self) -> bool {
        match self.shape().field(At::Sve) {
            Some(sve) => sve.get(self.bits) == 1,
            None => self.at(At::Saddr) == self.target.codes().off(),
        }
    }

    /// A scalar operand. Tuples start at a multiple of their width (of four from 128 bits on): LLVM rounds others down.
    fn scalar(&self, codes: Codes, code: u64, dwords: u8) -> Operand {
        let align = match dwords {
            0 | 1 => 0,
            2 => 1,
            _ => 3,
        };
        let tuple = codes.register(code).is_some_and(|r| matches!(r.file(), RegFile::Sgpr | RegFile::Ttmp));
        match codes.register(if tuple { code & !align } else { code }) {
            Some(r) => Operand::Regs(Regs::new(r, dwords)),
            None => Operand::Imm(code),
        }
    }

    /// A source code below 256.
    fn source(&self, o: &Field, code: u64, dwords: u8) -> Operand {
        let codes = self.target.codes();
        if let Some(v) = inline_value(code, o.ty, o.bits) {
            return Operand::Imm(v);
        }
        // sources share one literal at its longest
        let code = if code == 255 && self.has_long_literal() { 254 } else { code };
        if code == 255 {
            return Operand::Imm(widen_literal(self.any_literal().unwrap_or(0), o.ty));
        }
        if codes.is_long_literal(code) {
            let own = self.shape().operands.iter().find(|k| k.style == Style::K64);
            let value = own.map_or_else(|| self.literal64(), |k| k.get(self.bits));
            let unused = 64 - crate::model::codes::constant_bits(o.ty, o.bits).clamp(1, 64);
            return Operand::Imm(value << unused >> unused);
        }
        self.scalar(codes, code, dwords)
    }

    fn smem_offset(&self, o: &Field) -> Operand {
        let codes = self.target.codes();
        let shape = self.shape();
        let imm = self.modifier_like(o);
        match (shape.field(At::Imm), shape.field(At::Soffen), shape.field(At::Soffset)) {
            (Some(i), soffen, soffset) => {
                let (i, e) = (i.get(self.bits) == 1, soffen.is_some_and(|e| e.get(self.bits) == 1));
                match (i, e) {
                    (true, false) => Operand::Imm(imm as u64),
                    (false, false) => self.scalar(codes, o.get(self.bits) & 127, 1),
                    (_, true) => self.scalar(codes, soffset.map_or(0, |s| s.get(self.bits)), 1),
                }
            }
            (None, _, Some(s)) => {
                let v = s.get(self.bits);
                if v == codes.off() || v == codes.smem_off() {
                    Operand::Imm(imm as u64)
                } else {
                    self.scalar(codes, v, 1)
                }
            }
            _ => Operand::Imm(imm as u64),
        }
    }

    fn modifier_like(&self, o: &Field) -> i64 {
        let v = o.get(self.bits);
        if self.target.info().has(Quirk::UnsignedSmemOffset) { v as i64 } else { sign_extend(v, width_of(o)) }
    }

    /// The offset beside a register offset, when the encoding has one.
    pub(crate) fn smem_extra(&self, o: &Field) -> Option<i64> {
        let shape = self.shape();
        match (shape.field(At::Imm), shape.field(At::Soffen)) {
            (Some(i), Some(e)) => (i.get(self.bits) == 1 && e.get(self.bits) == 1).then(|| self.modifier_like(o)),
            (Some(_), None) => None,
            _ if !matches!(self.smem_offset(o), Operand::Regs(_)) => None,
            _ => Some(self.modifier_like(o)).filter(|v| *v != 0 || !self.target.info().has(Quirk::HiddenSmemOffset)),
        }
    }

    fn smem_modifier(&self, o: &Field, mods: &mut Mods) {
        if let Some(v) = self.smem_extra(o) {
            mods.set(ModName::Offset, v as i32);
        }
    }
}

/// Width of a field's value in bits.
pub(crate) fn width_of(o: &Field) -> u32 {
    64 - o.max().leading_zeros()
}

pub(crate) fn sign_extend(v: u64, bits: u32) -> i64 {
    let s = 64 - bits.clamp(1, 64);
    ((v << s) as i64) >> s
}

/// A 32-bit literal as an operand of a type sees it.
pub(crate) fn widen_literal(literal: u32, ty: Type) -> u64 {
    let l = u64::from(literal);
    match ty {
        Type::F64 => l << 32,
        Type::I64 => i64::from(literal as i32) as u64,
        Type::F16 | Type::Bf16 | Type::I16 | Type::U16 | Type::B16 => l & 0xffff,
        _ => l,
    }
}

/// The wave mask register operand of a mode.
pub(crate) fn vcc(mode: Mode) -> Regs {
    if mode.wave64 { VCC } else { Regs::new(Reg::VCC_LO, 1) }
}

/// Dwords of an operand of an instruction with some modifiers: those of f8f6f4 instructions name the types of A and B.
pub fn operand_dwords(op: Op, slot: &Slot, mods: &Mods) -> u8 {
    // Shorter operands have no formats.
    if slot.bits < 128 || !matches!(op.action(), Action::Matrix(p) if p.mfma && p.formats) {
        return slot.dwords();
    }
    let format = |m: ModName| matches!(m, ModName::Cbsz | ModName::Blgp).then(|| mods.get(m).unwrap_or(0) as u64);
    element_dwords(slot.name, format).unwrap_or(slot.dwords())
}

/// Registers that A (src0) or B (src1) of an f8f6f4 instruction fills, by the format of its elements.
pub(crate) fn element_dwords(operand: &str, format: impl Fn(ModName) -> Option<u64>) -> Option<u8> {
    let (mfma, wmma) = match operand {
        "src0" => (ModName::Cbsz, ModName::MatrixAFmt),
        "src1" => (ModName::Blgp, ModName::MatrixBFmt),
        _ => return None,
    };
    let (value, unit) = match (format(mfma), format(wmma)) {
        (Some(v), _) => (v, 1),
        (None, v) => (v.unwrap_or(0), 2),
    };
    // one format that does not exist leaves both operands at their longest
    let known = [ModName::MatrixAFmt, ModName::MatrixBFmt].into_iter().all(|m| format(m).is_none_or(|v| v <= 4));
    let value = if known { value } else { 0 };
    Some(
        unit * match value {
            0 | 1 => 8,
            2 | 3 => 6,
            4 => 4,
            _ => 8,
        },
    )
}
