//! Rows times formats: every encoding of every operation of a target, as fixed bits, mask and operand list.
//!
//! A row says *what* the operands are (types, in assembly order), a format says *where* they sit. The rules that join
//! them are here: which field takes which operand, which modifiers an operand's type brings along, and which bits of
//! unused fields must be zero.

use crate::alu::{scalar, vector};
use crate::formats::{self, Field, Format, Formats, Piece, Unused, all_bits, segments};
use crate::rows::Row;
use crate::text::{Fail, Result};
use std::collections::{BTreeMap, BTreeSet};

/// Bits of `Operand::flags`; the crate's `table.rs` has the same.
pub mod flag {
    pub const READ: u16 = 1;
    pub const VGPR_ONLY: u16 = 2;
    pub const NO_LITERAL: u16 = 4;
    pub const SCALAR_ONLY: u16 = 8;
    pub const MASK: u16 = 16;
    /// Takes neg and abs.
    pub const FLOAT_MODS: u16 = 32;
    /// Real 16-bit register (`v1.l`).
    pub const HALF: u16 = 64;
    /// 16-bit operand in an 8-bit field: only v0 to v127.
    pub const LO128: u16 = 128;
    /// Takes SDWA sext.
    pub const SEXT: u16 = 256;
    pub const AGPR_ONLY: u16 = 512;
    pub const LDS_DIRECT: u16 = 1024;
    pub const NO_INLINE: u16 = 2048;
}

/// One operand or modifier of an encoding.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Operand {
    pub name: String,
    /// 0 destination, 1 source, 2 modifier.
    pub role: u8,
    pub kind: String,
    pub ty: String,
    pub bits: u16,
    pub flags: u16,
    /// (first bit, bits, shift in the value)
    pub pieces: Vec<(u8, u8, u8)>,
}

/// Everything about an encoding except its opcode.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shape {
    pub format: String,
    pub bytes: u8,
    pub operands: Vec<Operand>,
    pub words: BTreeSet<String>,
    pub image: Option<crate::image::Image>,
}

/// An encoding of an operation on a target.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Encoding {
    pub op: String,
    pub mnemonic: String,
    pub shape: Shape,
    pub fixed: u128,
    pub mask: u128,
    /// 1 fake16 only, 2 true16 only, 4 wave32 only, 8 wave64 only, 16 DPP8; from bit 6 on registers read, from 11 written.
    pub variant: u16,
}

pub struct Context<'a> {
    pub formats: &'a Formats,
    pub parents: &'a BTreeMap<String, Option<String>>,
    pub target: &'a str,
    /// Added to VOP1 opcodes in VOP3.
    pub vop1_base: u64,
    pub true16: bool,
}

fn put(pieces: &[Piece], mut value: u64, fixed: &mut u128, mask: &mut u128) {
    for p in pieces {
        if p.len == 0 {
            continue;
        }
        let m = (1u128 << p.len) - 1;
        *fixed |= (u128::from(value) & m) << p.lo;
        *mask |= m << p.lo;
        value >>= p.len;
    }
}

/// Width of a type word and the word without prefix and suffixes.
pub struct Typed<'a> {
    pub name: Option<&'a str>,
    pub prefix: &'a str,
    pub ty: &'a str,
    pub bits: u16,
    pub read: bool,
    pub plus: bool,
    pub minus: bool,
    pub ignored: bool,
}

pub fn typed(word: &str) -> Typed<'_> {
    let (name, rest) = match word.split_once(':') {
        Some((n, r)) => (Some(n), r),
        None => (None, word),
    };
    let (prefix, rest) = rest.split_once('.').unwrap_or(("", rest));
    let ty = rest.trim_end_matches(['+', '-', '~']);
    let digits: String = ty.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit).collect();
    let mut bits: u16 = digits.parse().unwrap_or(32);
    if ty.starts_with('p') && !digits.is_empty() {
        bits *= 2;
    }
    let tail = &rest[ty.len()..];
    Typed {
        name,
        prefix,
        ty,
        bits,
        read: tail.contains('+'),
        plus: tail.contains('+'),
        minus: tail.contains('-'),
        ignored: tail.contains('~'),
    }
}

const IMMEDIATES: &[&str] = &[
    "s16", "u16imm", "i16imm", "i32imm", "hwreg", "label", "msg", "waitcnt", "depctr", "delay", "endpgm", "version",
    "gpridx", "k32", "k16", "k64", "barrier", "i8", "attr", "attrchan", "slot",
];

pub fn is_float(ty: &str) -> bool {
    matches!(ty, "f16" | "f32" | "f64" | "bf16" | "pf16" | "pbf16" | "pf32")
}

fn is_half(ty: &str) -> bool {
    matches!(ty, "f16" | "bf16" | "i16" | "u16" | "b16")
}

pub struct Builder<'a> {
    pub format: Format,
    pub name: &'a str,
    pub row: &'a Row,
    pub fixed: u128,
    pub mask: u128,
    pub used: BTreeSet<String>,
    /// Modifier bits that an operand ignores.
    pub ignored: u128,
    /// Bits that a modifier of the operation's own takes from the fields of the format.
    pub reserved: u128,
    pub operands: Vec<Operand>,
    pub t16: bool,
    pub f16: bool,
}

impl Builder<'_> {
    pub fn fail(&self, word: &str, what: &str) -> Fail {
        self.row.fail(word, what)
    }

    pub fn has(&self, word: &str) -> bool {
        self.row.sig.words.iter().any(|w| w == word)
    }

    pub fn field(&self, name: &str) -> Option<&Field> {
        self.format.fields.get(name)
    }

    pub fn add(&mut self, name: &str, role: u8, kind: &str, ty: &str, bits: u16, flags: u16, pieces: &[Piece]) {
        self.used.insert(name.to_string());
        self.operands.push(Operand {
            name: name.to_string(),
            role,
            kind: kind.to_string(),
            ty: ty.to_string(),
            bits,
            flags,
            pieces: segments(pieces),
        });
    }

    /// An operand that sits in the field of that name.
    pub fn operand(&mut self, field: &str, role: u8, word: &str) -> Result<()> {
        let t = typed(word);
        let f = self
            .field(field)
            .cloned()
            .ok_or_else(|| self.fail(word, &format!("{} has no field {field}", self.name)))?;
        let mut flags = 0;
        if role == 0 && t.read {
            flags |= flag::READ;
        }
        flags |= match t.prefix {
            "v" => flag::VGPR_ONLY,
            "vl" => flag::VGPR_ONLY | flag::LDS_DIRECT,
            "c" => flag::NO_LITERAL,
            "s" | "r" => flag::SCALAR_ONLY,
            "sc" => flag::SCALAR_ONLY | flag::NO_LITERAL,
            "a" => flag::AGPR_ONLY,
            _ => 0,
        };
        if t.prefix == "r" {
            flags |= flag::NO_INLINE;
        }
        let mut kind = f.kind.clone();
        if t.ty == "mask" {
            flags |= flag::MASK | flag::SCALAR_ONLY | flag::NO_LITERAL;
        }
        if t.prefix == "s" && role == 0 {
            kind = "S".into();
        }
        if t.prefix == "a" && role == 0 && kind == "V" {
            kind = "A".into();
        }
        if t.prefix == "a" && kind == "SRC" {
            kind = "SRCG".into();
        }
        if IMMEDIATES.contains(&t.ty) && (kind != "S" && kind != "SS" || matches!(t.ty, "gpridx" | "msg"))
            || kind == "U"
        {
            kind = "IMM".into();
        }
        let half = is_half(t.ty);
        if half && self.t16 {
            flags |= flag::HALF;
        }
        if half
            && (self.t16 || self.f16)
            && (kind == "VH"
                || field == "src0" && self.field("vdst").is_some_and(|v| v.kind == "VH")
                || field == "src0" && self.field("vdst").is_none() && self.name.starts_with("VOPC"))
        {
            flags |= flag::LO128;
        }
        if kind == "VH" {
            kind = "V".into();
        }
        let float = (is_float(t.ty) && !t.minus) || (role == 1 && t.plus);
        if role == 1 && float {
            flags |= flag::FLOAT_MODS;
        }
        if role == 1 && !float && !is_float(t.ty) {
            flags |= flag::SEXT;
        }
        if role == 1 && t.ignored {
            flags |= flag::SEXT;
            flags &= !flag::FLOAT_MODS;
        }
        // halves of registers take no signs as integers, and the bits are ignored
        let half_int =
            !is_float(t.ty) && (self.t16 && (half || self.has("t16signs")) || self.f16 && half && self.has("opsel"));
        // with SDWA the bits say sext and must otherwise be clear
        let sdwa = self.field("sext").is_some();
        if role == 1
            && (t.ignored || half_int)
            && !sdwa
            && let Some(i) = source_index(field)
        {
            for m in ["neg", "abs", "neghi"] {
                if let Some(p) = self.field(m).and_then(|f| f.pieces.get(i)).copied() {
                    self.ignored |= all_bits(&[p]);
                }
            }
        }
        let mut pieces = f.pieces.clone();
        if kind == "SDWA" || (field == "src1" && self.field("src0").is_some_and(|f| f.kind == "SDWA")) {
            kind = "SDWA".into();
        }
        if field == "src1" && kind == "SDWA" && pieces.len() == 1 && pieces[0].len == 1 {
            pieces = vec![Piece { lo: 9, len: 8 }, pieces[0]];
        }
        // halves in this format are VGPRs whatever the top bit of the code says
        if self.name == "VINTERP" && half && self.t16 && role == 1 {
            let p = pieces[0];
            kind = "V".into();
            self.fixed |= 1 << (p.lo + p.len - 1);
            pieces = vec![Piece { lo: p.lo, len: p.len - 1 }];
        }
        self.add(field, role, &kind, t.ty, t.bits, flags, &pieces);
        Ok(())
    }

    pub fn vcc(&mut self, role: u8) {
        self.operands.push(Operand {
            name: "vcc".into(),
            role,
            kind: "VCC".into(),
            ty: "mask".into(),
            bits: 32,
            flags: flag::MASK,
            pieces: Vec::new(),
        });
    }

    /// A modifier whose bits are the whole field.
    pub fn modifier(&mut self, name: &str) {
        if let Some(f) = self.field(name).cloned() {
            self.add(name, 2, "MOD", "b32", 0, 0, &f.pieces);
        }
    }

    /// A modifier with one bit per source; `keep` says which sources have it.
    pub fn per_source(&mut self, field: &str, name: &str, keep: &[bool]) {
        let Some(f) = self.field(field).cloned() else { return };
        let pieces: Vec<Piece> = f
            .pieces
            .iter()
            .enumerate()
            .map(|(i, p)| {
                let free = all_bits(&[*p]) & self.reserved == 0;
                if free && keep.get(i).copied().unwrap_or(false) { *p } else { Piece { lo: 0, len: 0 } }
            })
            .collect();
        for (i, p) in f.pieces.iter().enumerate() {
            if all_bits(&[*p]) & self.reserved != 0 {
                continue;
            }
            if p.len > 0 && !keep.get(i).copied().unwrap_or(false) && f.unused != Unused::Any {
                if matches!(f.unused, Unused::Ones | Unused::MustOnes) {
                    self.fixed |= all_bits(&[*p]);
                } else if self.ignored & all_bits(&[*p]) == 0 {
                    self.mask |= all_bits(&[*p]);
                }
            } else if field == "opsel" && !keep.get(i).copied().unwrap_or(false) && (i < 3 || self.compare()) {
                self.mask |= all_bits(&[*p]) & !self.ignored;
            }
        }
        self.used.insert(field.to_string());
        if pieces.iter().any(|p| p.len > 0) {
            self.add(name, 2, "MOD", "b32", 0, 0, &pieces);
        }
    }

    /// True when the result is no VGPR: comparisons.
    fn compare(&self) -> bool {
        self.t16 && !self.operands.iter().any(|o| o.role == 0 && o.kind == "V")
    }

    pub fn source_flags(&self, test: impl Fn(&Operand) -> bool) -> Vec<bool> {
        let mut out = vec![false; 5];
        for o in self.operands.iter().filter(|o| o.role == 1) {
            if let Some(i) = source_index(&o.name) {
                out[i] = test(o);
            }
        }
        out
    }

    /// Marks the bits of fields that were not used.
    pub fn finish(&mut self) {
        let (ones, checked) = unused(&self.format, &self.operands, |name| self.used.contains(name));
        self.fixed |= ones & !self.ignored & !self.mask;
        self.mask |= checked & !self.ignored;
    }
}

/// The bits of fields that an instruction does not use, where no operand lies: those that are ones, and those that are
/// looked at.
pub fn unused(f: &Format, operands: &[Operand], used: impl Fn(&str) -> bool) -> (u128, u128) {
    let taken = |o: &Operand| o.pieces.iter().fold(0, |all, &(lo, len, _)| all | ((1u128 << len) - 1) << lo);
    let occupied = operands.iter().map(taken).fold(0, |a, b| a | b);
    let (mut ones, mut checked) = (0, 0);
    for (_, x) in f.fields.iter().filter(|(name, _)| !used(name)) {
        let bits = all_bits(&x.pieces) & !occupied;
        ones |= if matches!(x.unused, Unused::Ones | Unused::MustOnes) { bits } else { 0 };
        checked |= if matches!(x.unused, Unused::Zero | Unused::MustOnes) { bits } else { 0 };
    }
    (ones, checked)
}

fn source_index(field: &str) -> Option<usize> {
    match field {
        "src0" => Some(0),
        "src1" => Some(1),
        "src2" => Some(2),
        "src3" => Some(3),
        "src4" => Some(4),
        _ => None,
    }
}

/// Implicit registers of a row, as bits of `variant`.
pub fn implicit(row: &Row) -> u16 {
    let mut bits = 0;
    for w in &row.sig.words {
        for (i, reg) in ["scc", "vcc", "exec", "m0", "mode"].iter().enumerate() {
            if w.strip_prefix('<') == Some(reg) {
                bits |= 1 << (6 + i);
            }
            if w.strip_prefix('>') == Some(reg) {
                bits |= 1 << (11 + i);
            }
        }
    }
    bits
}

/// Every encoding that a row gives a target.
pub fn expand(op: &str, row: &Row, cx: &Context) -> Result<Vec<Encoding>> {
    let mut out = Vec::new();
    let base = row.encodings.iter().find(|(e, _)| matches!(e.as_str(), "VOP1" | "VOP2" | "VOPC"));
    let wide = row.encodings.iter().find(|(e, _)| matches!(e.as_str(), "VOP3" | "VOP3P"));
    let halves = row.sig.words.iter().any(|w| w == "t16");
    let modes: &[(bool, bool)] = if halves && cx.true16 && row.sig.words.iter().any(|w| w == "t16only") {
        &[(true, false)]
    } else if halves && cx.true16 {
        &[(false, true), (true, false)]
    } else {
        &[(false, false)]
    };
    // a second signature for wave64 gives each encoding twice
    if let Some(narrow) = row.sig.words.iter().find_map(|w| w.strip_prefix("w64=")) {
        let (mut w32, mut w64) = (row.clone(), row.clone());
        w32.sig.words.retain(|w| !w.starts_with("w64="));
        w64.sig.words.retain(|w| !w.starts_with("w64="));
        let mut types = narrow.split(',');
        for slot in w64.sig.dsts.iter_mut().chain(w64.sig.srcs.iter_mut()) {
            *slot = types.next().ok_or_else(|| row.fail(narrow, "fewer types than operands"))?.to_string();
        }
        if let Some(key) = types.next() {
            w64.sig.words.retain(|w| !w.starts_with("indexkey"));
            w64.sig.words.push(key.to_string());
        }
        for (row, bit) in [(&w32, 4), (&w64, 8)] {
            out.extend(expand(op, row, cx)?.into_iter().map(|mut e| {
                e.variant |= bit;
                e
            }));
        }
        return Ok(out);
    }
    for (enc, opcode) in &row.encodings {
        let fail = |what: &str| row.fail(enc, what);
        let vop3_op = || -> Result<u64> {
            let given = wide.and_then(|w| w.1);
            match (given, base) {
                (Some(op), _) => Ok(op),
                (None, Some((b, Some(op)))) => Ok(match b.as_str() {
                    "VOP1" => op + cx.vop1_base,
                    "VOP2" => op + 0x100,
                    _ => *op,
                }),
                _ => Err(fail("needs an opcode")),
            }
        };
        let mut todo: Vec<(&str, u64, Option<&str>)> = Vec::new();
        match enc.as_str() {
            "SDWA" | "DPP" | "DPP8" => {
                let (b, o) = base.ok_or_else(|| fail("needs VOP1, VOP2 or VOPC in the row"))?;
                let overlay = if enc == "SDWA" && b == "VOPC" { "SDWAC" } else { enc };
                todo.push((b, o.unwrap_or(0), Some(overlay)));
            }
            "DPP3" => {
                let w = wide.ok_or_else(|| fail("needs VOP3 or VOP3P in the row"))?;
                todo.push((&w.0, vop3_op()?, Some("DPP")));
                todo.push((&w.0, vop3_op()?, Some("DPP8")));
            }
            "VOP3" => todo.push((enc, vop3_op()?, None)),
            _ => todo.push((enc, opcode.ok_or_else(|| fail("needs an opcode"))?, None)),
        }
        for (format, opcode, overlay) in todo {
            for &(t16, f16) in modes {
                let mut list = one(op, row, cx, format, opcode, overlay, t16, f16)?;
                for e in &mut list {
                    let carried = row.sig.words.iter().filter(|w| crate::emit::is_carried(w));
                    e.shape.words.extend(carried.cloned());
                }
                out.extend(list);
            }
        }
    }
    Ok(out)
}

/// Which declared format serves an encoding word of a row.
fn format_name<'a>(row: &Row, format: &'a str) -> &'a str {
    match format {
        "VOP3" if row.sig.dsts.len() == 2 && !row.sig.words.iter().any(|w| w == "permctl") => "VOP3B",
        "VOP3" if row.sig.srcs.iter().any(|s| s == "attr") => "VOP3I",
        "MAI" if row.mnemonic.starts_with("v_accvgpr") => "ACC",
        _ => format,
    }
}

fn one(
    op: &str,
    row: &Row,
    cx: &Context,
    format: &str,
    opcode: u64,
    overlay: Option<&str>,
    t16: bool,
    f16: bool,
) -> Result<Vec<Encoding>> {
    let fname = format_name(row, format);
    let fail = |word: &str, what: &str| row.fail(word, what);
    let mut f = formats::find(cx.formats, cx.parents, fname, cx.target)
        .cloned()
        .ok_or_else(|| fail(fname, "no such format for this target"))?;
    let mut variant = implicit(row) | if t16 { 2 } else { u16::from(f16) };
    let (mut fixed, mut mask) = (0u128, 0u128);
    for (p, v) in &f.fixed {
        put(&[*p], *v, &mut fixed, &mut mask);
    }
    if opcode >> f.op.iter().map(|p| u32::from(p.len)).sum::<u32>() != 0 {
        return Err(fail(&format!("{opcode:x}"), "the opcode does not fit"));
    }
    put(&f.op, opcode, &mut fixed, &mut mask);
    let mut label = format.to_string();
    if let Some(name) = overlay {
        let o = formats::find(cx.formats, cx.parents, name, cx.target)
            .ok_or_else(|| fail(name, "no such overlay for this target"))?;
        let at = f.bytes * 8;
        let code = f.fields.get("src0").ok_or_else(|| fail(name, "the format has no src0"))?.pieces[0];
        if name == "DPP8" {
            variant |= 16;
            // the two codes e9 and ea differ in the low two bits, which say whether inactive lanes are fetched
            put(&[Piece { lo: code.lo + 2, len: code.len - 2 }], o.code.unwrap_or(0) >> 2, &mut fixed, &mut mask);
            fixed |= 1 << code.lo;
        } else {
            put(&[code], o.code.unwrap_or(0), &mut fixed, &mut mask);
        }
        f.fields.remove("src0");
        let narrow = f.bytes == 4;
        for (n, field) in &o.fields {
            if !narrow && matches!(n.as_str(), "neg" | "abs" | "sext") {
                continue;
            }
            let pieces = field
                .pieces
                .iter()
                .map(|p| {
                    if name == "DPP8" && n == "fi" {
                        Piece { lo: code.lo + 1, len: 1 }
                    } else {
                        Piece { lo: p.lo + at, len: p.len }
                    }
                })
                .collect();
            let pieces = if name == "SDWA" || name == "SDWAC" { fix_sdwa(n, &field.pieces, at) } else { pieces };
            if n == "src1" && name.starts_with("SDWA") && !f.fields.contains_key("src1") {
                // the scalar bit of a source that is not there
                f.fields.insert("scalar1".into(), Field { pieces, kind: "N".into(), unused: Unused::Zero });
                continue;
            }
            f.fields.insert(n.clone(), Field { pieces, kind: field.kind.clone(), unused: field.unused });
        }
        f.bytes += 4;
        label = format!("{format}_{name}");
    }
    let mut b = Builder {
        format: f,
        name: fname,
        row,
        fixed,
        mask,
        used: BTreeSet::new(),
        ignored: 0,
        reserved: 0,
        operands: Vec::new(),
        t16,
        f16,
    };
    let mut words: BTreeSet<String> = BTreeSet::new();
    match fname {
        "SOP1" | "SOP2" | "SOPC" | "SOPK" | "SOPP" => scalar(&mut b)?,
        "EXP" => {
            for s in ["tgt", "src0", "src1", "src2", "src3"] {
                b.operand(s, 1, if s == "tgt" { "tgt" } else { "v.b32" })?;
            }
            for m in ["en", "done", "compr", "vm", "rowen"] {
                b.modifier(m);
            }
        }
        "SMEM" | "DS" | "FLAT" | "GLOBAL" | "SCRATCH" | "MUBUF" | "MTBUF" | "TENSOR" => {
            return crate::memory::expand(op, row, cx, fname, b.format, b.fixed, b.mask);
        }
        "MIMG" | "VIMAGE" | "VSAMPLE" => {
            return crate::image::expand(op, row, cx, fname, b.format, b.fixed, b.mask);
        }
        _ => vector(&mut b, fname, overlay, &mut words)?,
    }
    b.finish();
    Ok(vec![Encoding {
        op: op.to_string(),
        mnemonic: row.mnemonic.clone(),
        shape: Shape { format: label, bytes: b.format.bytes, operands: b.operands, words, image: None },
        fixed: b.fixed,
        mask: b.mask,
        variant,
    }])
}

/// SDWA's `src1 63` is the scalar bit of the base format's src1.
fn fix_sdwa(name: &str, pieces: &[Piece], at: u8) -> Vec<Piece> {
    if name == "src1" {
        return pieces.to_vec();
    }
    pieces.iter().map(|p| Piece { lo: p.lo + at, len: p.len }).collect()
}
