//! Operands and modifiers of scalar and vector arithmetic: which field each word of a row's signature goes to, in the
//! order in which assembly writes them. Memory formats are in `memory.rs`.

use super::formats::{Piece, all_bits};
use super::operand::{Builder, Typed, typed};
use super::rows::Signature;
use super::schema::{Kind, Role, flag};
use super::text::Result;
use std::collections::BTreeSet;

pub fn scalar(b: &mut Builder) -> Result<()> {
    let sig = b.row.sig.clone();
    for d in &sig.dsts {
        b.operand("sdst", Role::Dst, d)?;
    }
    let mut n = 0;
    for s in &sig.srcs {
        let t = typed(s);
        let field = match (b.name, t.name) {
            (_, Some(name)) => name.to_string(),
            ("SOPK", None) if t.ty == "i32" => "imm".to_string(),
            ("SOPP" | "SOPK", None) => "simm16".to_string(),
            _ if t.ty == "k32" => "imm".to_string(),
            _ => {
                n += 1;
                format!("src{}", n - 1)
            }
        };
        if field == "imm" {
            // s_setreg_imm32_b32, s_fmaak_f32: a dword that follows
            let at = b.format.bytes * 8;
            b.format.bytes += 4;
            b.add("imm", Role::Src, Kind::Imm, t.ty, 32, 0, &[Piece { lo: at, len: 32 }]);
            continue;
        }
        b.operand(&field, Role::Src, s)?;
    }
    Ok(())
}

fn is_e32(format: &str) -> bool {
    matches!(format, "VOP1" | "VOP2" | "VOPC" | "VOP2K")
}

pub fn vector(b: &mut Builder, overlay: Option<&str>, words: &mut BTreeSet<String>) -> Result<()> {
    let sig = b.row.sig.clone();
    if !is_e32(b.name) || overlay.is_none() && b.row.encodings.len() == 1 {
        own_bits(b, overlay.is_none())?;
    }
    destinations(b, &sig)?;
    let dpp = overlay.is_some_and(|o| o.starts_with("DPP"));
    sources(b, &sig, dpp)?;
    for m in ["bytesel", "bytesel2", "bitop3", "scalesel"] {
        if b.has(m) {
            b.reserved |= b.field(m).map_or(0, |f| all_bits(&f.pieces));
        }
    }
    if matches!(b.name, "MAI" | "MAI16") {
        for m in ["opsel", "opselhi"] {
            b.modifier(m);
        }
        b.own_modifiers(&["cbsz", "abid", "blgp"]);
        if b.field("acd").is_some() {
            b.used.insert("acd".into());
        }
        return Ok(());
    }
    if b.has("permctl") && b.name == "VOP3" {
        b.modifier("permbc");
        b.modifier("permfi");
    }
    b.own_modifiers(&["high"]);
    if !b.has("opsel") {
        b.own_modifiers(&["bytesel", "bytesel2"]);
    }
    if matches!(b.name, "VOP3P" | "WMMA" | "WMMA16" | "ACC") {
        packed(b, words)?;
    } else {
        plain(b, &sig, overlay)?;
    }
    if dpp {
        for m in ["dpp8", "dppctrl", "rowmask", "bankmask", "boundctrl", "fi"] {
            b.modifier(m);
        }
    }
    for m in ["waitexp", "waitvdst", "waitvsrc"] {
        b.modifier(m);
    }
    b.own_modifiers(&["scalesel"]);
    Ok(())
}

fn destinations(b: &mut Builder, sig: &Signature) -> Result<()> {
    for (i, d) in sig.dsts.iter().enumerate() {
        let mask = typed(d).ty == "mask";
        if mask && is_e32(b.name) && !(b.name == "VOPC" && b.field("sdst").is_some()) {
            b.vcc(Role::Dst);
        } else if mask || (i == 1 && b.name == "VOP3B" && !b.has("permctl")) {
            b.operand("sdst", Role::Dst, d)?;
        } else if i == 1 {
            // v_swap: the second destination sits in src0
            b.operand("src0", Role::Dst, &format!("v.{d}"))?;
        } else {
            b.operand("vdst", Role::Dst, d)?;
        }
    }
    // v_cmpx of gfx10 and later: the destination field is ignored, and encoded as exec, which is written
    if sig.dsts.is_empty() && b.name == "VOP3" && b.has(">exec") {
        const EXEC: u128 = 0x7e;
        b.used.insert("vdst".into());
        b.used.insert("sdst".into());
        b.fixed |= EXEC << b.need("sdst")?.pieces[0].lo;
    }
    Ok(())
}

fn sources(b: &mut Builder, sig: &Signature, dpp: bool) -> Result<()> {
    let mut n = 0;
    for s in &sig.srcs {
        let t = typed(s);
        if immediate(b, s, &t, &mut n)? {
            continue;
        }
        if b.field("vsrc").is_some() {
            b.operand("vsrc", Role::Src, s)?;
            continue;
        }
        if b.name == "VOP3I" {
            // the attribute sits in src0; registers start at src1
            let field = if n == 0 { "src1" } else { "src2" };
            n += 1;
            b.operand(field, Role::Src, s)?;
            continue;
        }
        if t.ty == "mask" && is_e32(b.name) {
            b.vcc(Role::Src);
            continue;
        }
        let field = format!("src{n}");
        n += 1;
        let word = if dpp && !is_e32(b.name) && !s.contains('.') { format!("c.{s}") } else { s.clone() };
        b.operand(&field, Role::Src, &word)?;
    }
    Ok(())
}

/// A literal or an attribute; false for other sources. `n` counts the sources before it.
fn immediate(b: &mut Builder, s: &str, t: &Typed, n: &mut usize) -> Result<bool> {
    match t.ty {
        "k32" | "k16" | "k64" => {
            let f = b.field("imm").cloned().ok_or_else(|| b.fail(s, "the format has no literal"))?;
            let mut pieces = f.pieces;
            if t.ty == "k64" {
                pieces = vec![Piece { lo: pieces[0].lo, len: 64 }];
                b.format.bytes += 4;
            }
            b.add("imm", Role::Src, Kind::Imm, t.ty, if t.ty == "k64" { 64 } else { 32 }, 0, &pieces);
        }
        "attr" | "attrchan" => b.operand(t.ty, Role::Src, s)?,
        "slot" => {
            let field = if b.field("vsrc").is_some() { "vsrc" } else { "src1" };
            let pieces = b.need(field)?.pieces;
            b.add(field, Role::Src, Kind::Imm, "slot", 32, 0, &pieces);
            *n = 1;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Modifiers of packed arithmetic and WMMA.
fn packed(b: &mut Builder, words: &mut BTreeSet<String>) -> Result<()> {
    let pk = b.has("pk");
    let floats = b.source_flags(|o| o.flags & flag::FLOAT_MODS != 0);
    let all = b.source_flags(|_| true);
    if b.name == "WMMA" && b.has("matrixascalefmt") {
        // the scale loads leave the third source as v0 and opselhi clear
        const V0: u128 = 0x100;
        b.used.extend(["opselhi".to_string(), "src2".to_string()]);
        let src2 = b.need("src2")?.pieces;
        b.fixed |= V0 << src2[0].lo;
        b.mask |= all_bits(&src2);
    }
    b.own_modifiers(&["matrixafmt", "matrixbfmt", "indexkey8bit", "indexkey16bit", "indexkey32bit"]);
    for m in ["matrixascale", "matrixbscale", "matrixascalefmt", "matrixbscalefmt", "matrixareuse", "matrixbreuse"] {
        if b.has(m) || b.has("scales") {
            b.modifier(m);
        }
    }
    if pk || b.has("opsel") {
        b.per_source("opsel", &all[..3]);
    }
    if pk || b.has("opselhi") {
        b.per_source("opselhi", &all[..3]);
    }
    let signed = if b.name.starts_with("WMMA") { &floats[..3] } else { &all[..3] };
    if pk || b.has("neglo") {
        b.per_source("neg", signed);
    }
    if pk || b.has("neghi") {
        b.per_source("neghi", signed);
    }
    if !pk && !b.has("neglo") && b.name == "VOP3P" && floats.iter().any(|f| *f) {
        // fma_mix: neg and |abs| on the operands
        b.per_source("neg", &floats[..3]);
        b.per_source("neghi", &floats[..3]);
        if let Some(o) = b.operands.iter_mut().find(|o| o.role == Role::Mod && o.name == "neghi") {
            o.name = "abs".into();
        }
        words.insert("mix".into());
    }
    b.own_modifiers(&["clamp"]);
    Ok(())
}

/// Modifiers of all other vector arithmetic.
fn plain(b: &mut Builder, sig: &Signature, overlay: Option<&str>) -> Result<()> {
    let floats = b.source_flags(|o| o.flags & flag::FLOAT_MODS != 0);
    let all = b.source_flags(|_| true);
    b.own_modifiers(&["bitop3"]);
    if (b.has("opsel") || b.t16 && !is_e32(b.name)) && b.field("opsel").is_some() {
        let keep = halves(b, &all)?;
        b.per_source("opsel", &keep);
    }
    if b.has("opsel") {
        b.own_modifiers(&["bytesel", "bytesel2"]);
    }
    if matches!(b.name, "VINTERP" | "VOP3I") && b.has("clamp") {
        // clamp comes first in these
        if let Some(i) = b.operands.iter().position(|o| o.name == "opsel") {
            let opsel = b.operands.remove(i);
            b.modifier("clamp");
            b.operands.push(opsel);
        }
    }
    let sdwa = overlay.is_some_and(|o| o.starts_with("SDWA"));
    if (b.has("clamp") || sdwa && !sig.dsts.is_empty()) && !b.used.contains("clamp") {
        b.modifier("clamp");
    }
    // SDWA does not scale integers
    let int = sig.dsts.first().is_some_and(|d| typed(d).ty.starts_with(['i', 'u']));
    if b.has("omod") && !(int && sdwa) {
        b.modifier("omod");
    }
    b.per_source("neg", &floats);
    b.per_source("abs", &floats);
    if sdwa {
        selects(b, sig, &all)?;
    }
    Ok(())
}

/// The sources, and as the fourth the destination, that op_sel chooses halves of.
fn halves(b: &mut Builder, all: &[bool]) -> Result<Vec<bool>> {
    let mut keep = all.to_vec();
    if b.has("opsel2") {
        keep = vec![true, true, false, false];
    }
    if b.name == "VOP3I" {
        // the attribute stands between the two registers
        keep = vec![true, false, true, true];
    }
    keep[2] |= b.has("opsel4") && b.has("opsel");
    if b.has("packedsel") {
        // the halves of packed sources stay as they are
        keep[..2].fill(false);
        b.ignored |= all_bits(&b.need("opsel")?.pieces[..2]);
    }
    if b.t16 && !b.has("opsel") {
        keep = b.source_flags(|o| o.flags & flag::HALF != 0);
    }
    // conversions keep the bits of both sides
    let vop1 = b.t16 && b.row.encodings.iter().any(|e| e.0 == "VOP1");
    if vop1 && !b.has("opsel") {
        keep[0] = true;
    }
    let vop1 = keep[0] && vop1;
    let takes_half = |o: &super::operand::Operand| {
        o.role == Role::Dst
            && o.flags & (flag::MASK | flag::SCALAR_ONLY) == 0
            && (!b.t16 || o.flags & flag::HALF != 0 || b.has("opsel") || vop1)
    };
    keep[3] = !b.has("opsel2") && b.operands.iter().any(takes_half);
    Ok(keep)
}

/// Modifiers of SDWA.
fn selects(b: &mut Builder, sig: &Signature, all: &[bool]) -> Result<()> {
    if sig.dsts.is_empty() && b.name == "VOPC" && b.field("sdst").is_some() {
        // the destination's number is ignored, the bit that says so is not
        let p = b.need("sdst")?.pieces[0];
        b.mask |= 1 << (p.lo + p.len - 1);
    }
    let ints = b.source_flags(|o| o.flags & flag::SEXT != 0);
    b.per_source("sext", &ints);
    if !sig.dsts.is_empty() && !b.has("nodstsel") {
        b.modifier("dstsel");
        b.modifier("dstunused");
    }
    if b.has("nodstsel")
        && let Some(f) = b.field("dstsel").cloned()
    {
        // the whole destination is written
        const DWORD: u128 = 6;
        b.fixed |= DWORD << f.pieces[0].lo;
        b.mask |= all_bits(&f.pieces);
        b.used.insert("dstsel".into());
    }
    for (m, there) in ["src0sel", "src1sel"].iter().zip(all) {
        if *there {
            b.modifier(m);
        }
    }
    Ok(())
}

/// Bits that an operation treats otherwise than its format: `free=63,10` ignores them, `zero=` and `ones=` demand them,
/// `bare=` demands zeros where no DPP is laid over.
fn own_bits(b: &mut Builder, bare: bool) -> Result<()> {
    for w in b.row.sig.words.clone() {
        let Some((key @ ("free" | "zero" | "ones" | "bare"), list)) = w.split_once('=') else { continue };
        for n in list.split(',') {
            let bit: u32 = n.parse().map_err(|_| b.fail(n, "expected bit numbers"))?;
            let bit = 1u128.checked_shl(bit).ok_or_else(|| b.fail(n, "expected bits up to 127"))?;
            match key {
                "free" => b.ignored |= bit,
                "bare" if !bare => {}
                _ => b.mask |= bit,
            }
            if key == "ones" {
                b.fixed |= bit;
            }
        }
    }
    Ok(())
}
