//! Rows times formats: every encoding of every operation of a target, as fixed bits, mask and operand list.
//!
//! A row says *what* the operands are (types, in assembly order), a format says *where* they sit. Which encodings a row
//! has on a target is decided here, overlays among them; operands are placed by `alu`, `memory` and `image`.

use super::alu::{scalar, vector};
use super::formats::{self, Field, Format, Formats, Piece, Unused};
use super::operand::{Builder, Operand};
use super::rows::Row;
use super::schema::{Role, variant, word};
use super::text::Result;
use super::{Parents, image, memory};
use std::collections::BTreeSet;

/// Everything about an encoding except its opcode.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shape {
    pub format: String,
    pub bytes: u8,
    pub operands: Vec<Operand>,
    pub words: BTreeSet<String>,
    pub image: Option<image::Image>,
}

/// An encoding of an operation on a target.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Encoding {
    pub op: String,
    pub mnemonic: String,
    pub shape: Shape,
    pub fixed: u128,
    pub mask: u128,
    /// Bits of `variant`.
    pub variant: u16,
}

pub struct Context<'a> {
    pub formats: &'a Formats,
    pub parents: &'a Parents,
    pub target: &'a str,
    /// Added to VOP1 opcodes in VOP3.
    pub vop1_base: u64,
    pub true16: bool,
}

/// Format and opcode of an encoding in the making.
pub struct Frame<'a> {
    pub name: &'a str,
    pub format: Format,
    pub fixed: u128,
    pub mask: u128,
}

impl Frame<'_> {
    /// Fixes the value of a field.
    pub fn put(&mut self, pieces: &[Piece], value: u64) {
        put(pieces, value, &mut self.fixed, &mut self.mask);
    }
}

/// Fixes the value of a field.
pub fn put(pieces: &[Piece], mut value: u64, fixed: &mut u128, mask: &mut u128) {
    for p in pieces.iter().filter(|p| p.len > 0) {
        let m = (1u128 << p.len) - 1;
        *fixed |= (u128::from(value) & m) << p.lo;
        *mask |= m << p.lo;
        value >>= p.len;
    }
}

/// Implicit registers of a row, as bits of `variant`.
pub fn implicit(row: &Row) -> u16 {
    let mut bits = 0;
    for w in &row.sig.words {
        for (i, reg) in ["scc", "vcc", "exec", "m0", "mode"].iter().enumerate() {
            if w.strip_prefix('<') == Some(reg) {
                bits |= 1 << (variant::READS as usize + i);
            }
            if w.strip_prefix('>') == Some(reg) {
                bits |= 1 << (variant::WRITES as usize + i);
            }
        }
    }
    bits
}

/// Every encoding that a row gives a target.
pub fn expand(op: &str, row: &Row, cx: &Context) -> Result<Vec<Encoding>> {
    // a second signature for wave64 gives each encoding twice
    if let Some((narrow, wide)) = by_wave_size(row)? {
        let mut out = Vec::new();
        for (row, bit) in [(&narrow, variant::WAVE32), (&wide, variant::WAVE64)] {
            let list = expand(op, row, cx)?.into_iter();
            out.extend(list.map(|e| Encoding { variant: e.variant | bit, ..e }));
        }
        return Ok(out);
    }
    let has = |word: &str| row.sig.words.iter().any(|w| w == word);
    let modes: &[(bool, bool)] = match has("t16") && cx.true16 {
        true if has("t16only") => &[(true, false)],
        true => &[(false, true), (true, false)],
        false => &[(false, false)],
    };
    let carried = word::NAMES.iter().filter(|(w, carried)| *carried && has(w)).map(|(w, _)| w.to_string());
    let carried: Vec<String> = carried.collect();
    let mut out = Vec::new();
    for encoding in &row.encodings {
        for (format, opcode, overlay) in forms(row, encoding, cx)? {
            for &(t16, f16) in modes {
                let mut list = one(op, row, cx, (format, opcode, overlay), t16, f16)?;
                list.iter_mut().for_each(|e| e.shape.words.extend(carried.iter().cloned()));
                out.extend(list);
            }
        }
    }
    Ok(out)
}

/// The rows for waves of 32 and 64 where the row has a second signature.
fn by_wave_size(row: &Row) -> Result<Option<(Row, Row)>> {
    let Some(second) = row.sig.words.iter().find_map(|w| w.strip_prefix("w64=")) else { return Ok(None) };
    let (mut w32, mut w64) = (row.clone(), row.clone());
    w32.sig.words.retain(|w| !w.starts_with("w64="));
    w64.sig.words.retain(|w| !w.starts_with("w64="));
    let mut types = second.split(',');
    for slot in w64.sig.dsts.iter_mut().chain(w64.sig.srcs.iter_mut()) {
        *slot = types.next().ok_or_else(|| row.fail(second, "fewer types than operands"))?.to_string();
    }
    if let Some(key) = types.next() {
        w64.sig.words.retain(|w| !w.starts_with("indexkey"));
        w64.sig.words.push(key.to_string());
    }
    if let Some(more) = types.next() {
        return Err(row.fail(more, "more types than operands"));
    }
    Ok(Some((w32, w64)))
}

/// Format, opcode and overlay of what an encoding word of a row stands for.
fn forms<'a>(
    row: &'a Row,
    (enc, opcode): &'a (String, Option<u64>),
    cx: &Context,
) -> Result<Vec<(&'a str, u64, Option<&'a str>)>> {
    let fail = |what: &str| row.fail(enc, what);
    let base = row.encodings.iter().find(|(e, _)| matches!(e.as_str(), "VOP1" | "VOP2" | "VOPC"));
    let wide = row.encodings.iter().find(|(e, _)| matches!(e.as_str(), "VOP3" | "VOP3P"));
    let vop3_op = || match (wide.and_then(|w| w.1), base) {
        (Some(op), _) => Ok(op),
        (None, Some((b, Some(op)))) => Ok(match b.as_str() {
            "VOP1" => op + cx.vop1_base,
            "VOP2" => op + 0x100,
            _ => *op,
        }),
        _ => Err(fail("needs an opcode")),
    };
    Ok(match enc.as_str() {
        "SDWA" | "DPP" | "DPP8" => {
            let (b, o) = base.ok_or_else(|| fail("needs VOP1, VOP2 or VOPC in the row"))?;
            let overlay = if enc == "SDWA" && b == "VOPC" { "SDWAC" } else { enc.as_str() };
            vec![(b.as_str(), o.ok_or_else(|| row.fail(b, "needs an opcode"))?, Some(overlay))]
        }
        "DPP3" => {
            let w = wide.ok_or_else(|| fail("needs VOP3 or VOP3P in the row"))?;
            vec![(w.0.as_str(), vop3_op()?, Some("DPP")), (w.0.as_str(), vop3_op()?, Some("DPP8"))]
        }
        "VOP3" => vec![(enc.as_str(), vop3_op()?, None)],
        _ => vec![(enc.as_str(), opcode.ok_or_else(|| fail("needs an opcode"))?, None)],
    })
}

/// Which declared format serves an encoding word of a row.
fn format_name<'a>(row: &Row, format: &'a str) -> &'a str {
    match format {
        "VOP3" if row.sig.dsts.len() == 2 && !row.sig.words.iter().any(|w| w == "permctl") => "VOP3B",
        "VOP3" if row.sig.srcs.iter().any(|s| s == "attr") => "VOP3I",
        "MAI" if row.sig.words.iter().any(|w| w == "acc") => "ACC",
        _ => format,
    }
}

/// The format with its fixed bits and the opcode.
fn frame<'a>(row: &Row, cx: &Context, fname: &'a str, opcode: u64) -> Result<Frame<'a>> {
    let format = formats::find(cx.formats, cx.parents, fname, cx.target);
    let format = format.cloned().ok_or_else(|| row.fail(fname, "no such format for this target"))?;
    let mut f = Frame { name: fname, fixed: 0, mask: 0, format };
    for (p, v) in f.format.fixed.clone() {
        f.put(&[p], v);
    }
    if opcode >> f.format.op.iter().map(|p| u32::from(p.len)).sum::<u32>() != 0 {
        return Err(row.fail(&format!("{opcode:x}"), "the opcode does not fit"));
    }
    let op = f.format.op.clone();
    f.put(&op, opcode);
    Ok(f)
}

/// Lays an overlay over a format: its code in the place of source 0, and a dword more.
fn lay_over(row: &Row, cx: &Context, name: &str, frame: &mut Frame) -> Result<()> {
    let overlay = formats::find(cx.formats, cx.parents, name, cx.target)
        .ok_or_else(|| row.fail(name, "no such overlay for this target"))?;
    let value = overlay.code.ok_or_else(|| row.fail(name, "is a format and no overlay"))?;
    let at = frame.format.bytes * 8;
    let src0 = frame.format.fields.remove("src0").ok_or_else(|| row.fail(name, "the format has no src0"))?;
    let code = src0.pieces[0];
    if name == "DPP8" {
        // the two codes e9 and ea differ in the low two bits, which say whether inactive lanes are fetched
        frame.put(&[Piece { lo: code.lo + 2, len: code.len - 2 }], value >> 2);
        frame.fixed |= 1 << code.lo;
    } else {
        frame.put(&[code], value);
    }
    let narrow = frame.format.bytes == 4;
    for (n, field) in &overlay.fields {
        if !narrow && matches!(n.as_str(), "neg" | "abs" | "sext") {
            continue;
        }
        let sdwa = name.starts_with("SDWA");
        let moved = |p: &Piece| match n.as_str() {
            "fi" if name == "DPP8" => Piece { lo: code.lo + 1, len: 1 },
            // the scalar bit of the base format's src1
            "src1" if sdwa => *p,
            _ => Piece { lo: p.lo + at, len: p.len },
        };
        let pieces = field.pieces.iter().map(moved).collect();
        let missing = sdwa && n == "src1" && !frame.format.fields.contains_key("src1");
        let field = match missing {
            // the scalar bit of a source that is not there
            true => ("scalar1", Field { pieces, kind: super::schema::FieldKind::N, unused: Unused::Zero }),
            false => (n.as_str(), Field { pieces, kind: field.kind, unused: field.unused }),
        };
        frame.format.fields.insert(field.0.to_string(), field.1);
    }
    frame.format.bytes += 4;
    Ok(())
}

/// The encodings of a row in one form.
fn one(
    op: &str,
    row: &Row,
    cx: &Context,
    (format, opcode, overlay): (&str, u64, Option<&str>),
    t16: bool,
    f16: bool,
) -> Result<Vec<Encoding>> {
    let fname = format_name(row, format);
    let mut frame = frame(row, cx, fname, opcode)?;
    let mut bits = implicit(row) | if t16 { variant::TRUE16 } else { 0 } | if f16 { variant::FAKE16 } else { 0 };
    let mut label = format.to_string();
    if let Some(name) = overlay {
        lay_over(row, cx, name, &mut frame)?;
        bits |= if name == "DPP8" { variant::DPP8 } else { 0 };
        label = format!("{format}_{name}");
    }
    match fname {
        "SMEM" | "DS" | "FLAT" | "GLOBAL" | "SCRATCH" | "MUBUF" | "MTBUF" | "TENSOR" => {
            return memory::expand(op, row, cx, &frame);
        }
        "MIMG" | "VIMAGE" | "VSAMPLE" => return image::expand(op, row, &frame),
        _ => {}
    }
    let Frame { format: f, fixed, mask, .. } = frame;
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
                b.operand(s, Role::Src, if s == "tgt" { "tgt" } else { "v.b32" })?;
            }
            for m in ["en", "done", "compr", "vm", "rowen"] {
                b.modifier(m);
            }
        }
        _ => vector(&mut b, overlay, &mut words)?,
    }
    b.finish();
    Ok(vec![Encoding {
        op: op.to_string(),
        mnemonic: row.mnemonic.clone(),
        shape: Shape { format: label, bytes: b.format.bytes, operands: b.operands, words, image: None },
        fixed: b.fixed,
        mask: b.mask,
        variant: bits,
    }])
}
