//! Operands and modifiers of scalar and vector arithmetic: which field each word of a row's signature goes to, in the
//! order in which assembly writes them. Memory formats are in `memory.rs`.

use crate::expand::{Builder, flag, typed};
use crate::formats::{Piece, all_bits};
use crate::text::Result;
use std::collections::BTreeSet;

pub fn scalar(b: &mut Builder) -> Result<()> {
    let sig = b.row.sig.clone();
    for d in &sig.dsts {
        b.operand("sdst", 0, d)?;
    }
    let mut n = 0;
    for s in &sig.srcs {
        let t = typed(s);
        let field = match (b.name, t.name) {
            (_, Some(name)) => name.to_string(),
            ("SOPP" | "SOPK", None) if t.ty == "i32" && b.name == "SOPK" => "imm".to_string(),
            ("SOPP" | "SOPK", None) => "simm16".to_string(),
            _ => {
                n += 1;
                format!("src{}", n - 1)
            }
        };
        if field == "imm" {
            // s_setreg_imm32_b32, s_fmaak_f32: a dword that follows
            let at = b.format.bytes * 8;
            b.format.bytes += 4;
            b.add("imm", 1, "IMM", t.ty, 32, 0, &[Piece { lo: at, len: 32 }]);
            continue;
        }
        if t.ty == "k32" {
            let at = b.format.bytes * 8;
            b.format.bytes += 4;
            b.add("imm", 1, "IMM", "k32", 32, 0, &[Piece { lo: at, len: 32 }]);
            n -= 1;
            continue;
        }
        b.operand(&field, 1, s)?;
    }
    Ok(())
}

pub fn vector(b: &mut Builder, fname: &str, overlay: Option<&str>, words: &mut BTreeSet<String>) -> Result<()> {
    let sig = b.row.sig.clone();
    let e32 = matches!(fname, "VOP1" | "VOP2" | "VOPC" | "VOP2K");
    if !e32 || overlay.is_none() && b.row.encodings.len() == 1 {
        own_bits(b, overlay.is_none())?;
    }
    for (i, d) in sig.dsts.iter().enumerate() {
        let mask = typed(d).ty == "mask";
        if mask && e32 && !(fname == "VOPC" && b.field("sdst").is_some()) {
            b.vcc(0);
        } else if mask || (i == 1 && fname == "VOP3B" && !b.has("permctl")) {
            b.operand("sdst", 0, d)?;
        } else if i == 1 {
            // v_swap: the second destination sits in src0
            b.operand("src0", 0, &format!("v.{d}"))?;
        } else {
            b.operand("vdst", 0, d)?;
        }
    }
    // v_cmpx of gfx10 and later: the destination field is ignored, exec is written there
    if sig.dsts.is_empty() && fname == "VOP3" && b.has(">exec") {
        b.used.insert("vdst".into());
        b.used.insert("sdst".into());
        b.fixed |= 0x7e;
    }
    let mut n = 0;
    for s in &sig.srcs {
        let t = typed(s);
        match t.ty {
            "k32" | "k16" | "k64" => {
                let f = b.field("imm").cloned().ok_or_else(|| b.fail(s, "the format has no literal"))?;
                let mut pieces = f.pieces.clone();
                if t.ty == "k64" {
                    pieces = vec![Piece { lo: 32, len: 64 }];
                    b.format.bytes = 12;
                }
                b.add("imm", 1, "IMM", t.ty, if t.ty == "k64" { 64 } else { 32 }, 0, &pieces);
                continue;
            }
            "attr" | "attrchan" => {
                b.operand(t.ty, 1, s)?;
                continue;
            }
            "slot" => {
                let field = if b.field("vsrc").is_some() { "vsrc" } else { "src1" };
                let p = b.field(field).map(|f| f.pieces.clone()).unwrap_or_default();
                b.add(field, 1, "IMM", "slot", 32, 0, &p);
                n = 1;
                continue;
            }
            _ => {}
        }
        if b.field("vsrc").is_some() {
            b.operand("vsrc", 1, s)?;
            continue;
        }
        if fname == "VOP3I" {
            // the attribute sits in src0; registers start at src1
            let field = if n == 0 { "src1" } else { "src2" };
            n += 1;
            b.operand(field, 1, s)?;
            continue;
        }
        if t.ty == "mask" && e32 {
            b.vcc(1);
            continue;
        }
        let field = format!("src{n}");
        n += 1;
        let word = if overlay.is_some_and(|o| o.starts_with("DPP")) && !e32 && !s.contains('.') {
            format!("c.{s}")
        } else {
            s.clone()
        };
        b.operand(&field, 1, &word)?;
    }
    for m in ["bytesel", "bytesel2", "bitop3", "scalesel"] {
        if b.has(m) {
            b.reserved |= b.field(m).map_or(0, |f| all_bits(&f.pieces));
        }
    }
    let floats = b.source_flags(|o| o.flags & flag::FLOAT_MODS != 0);
    let all = b.source_flags(|_| true);
    let vop3p = matches!(fname, "VOP3P" | "WMMA" | "WMMA16" | "ACC");
    if fname == "MAI" || fname == "MAI16" {
        for m in ["opsel", "opselhi"] {
            b.modifier(m);
        }
        for m in ["cbsz", "abid", "blgp"] {
            if b.has(m) {
                b.modifier(m);
            }
        }
        if b.field("acd").is_some() {
            b.used.insert("acd".into());
        }
        return Ok(());
    }
    if b.has("permctl") && fname == "VOP3" {
        b.modifier("permbc");
        b.modifier("permfi");
    }
    if b.has("high") {
        b.modifier("high");
    }
    if !b.has("opsel") {
        own_modifiers(b, &["bytesel", "bytesel2"]);
    }
    if vop3p {
        let pk = b.has("pk");
        if fname == "WMMA" && b.has("matrixascalefmt") {
            // the scale loads leave the third source as v0 and opselhi clear
            b.used.extend(["opselhi".to_string(), "src2".to_string()]);
            b.fixed |= 0x100 << 50;
            b.mask |= 0x1ff << 50;
        }
        for m in ["matrixafmt", "matrixbfmt"] {
            if b.has(m) {
                b.modifier(m);
            }
        }
        own_modifiers(b, &["indexkey8bit", "indexkey16bit", "indexkey32bit"]);
        for m in ["matrixascale", "matrixbscale", "matrixascalefmt", "matrixbscalefmt", "matrixareuse", "matrixbreuse"]
        {
            if b.has(m) || b.has("scales") {
                b.modifier(m);
            }
        }
        if pk || b.has("opsel") {
            b.per_source("opsel", "opsel", &all[..3]);
        }
        if pk || b.has("opselhi") {
            b.per_source("opselhi", "opselhi", &all[..3]);
        }
        if pk || b.has("neglo") {
            let keep = if fname.starts_with("WMMA") { &floats[..3] } else { &all[..3] };
            b.per_source("neg", "neg", keep);
        }
        if pk || b.has("neghi") {
            let keep = if fname.starts_with("WMMA") { &floats[..3] } else { &all[..3] };
            b.per_source("neghi", "neghi", keep);
        }
        if !pk && !b.has("neglo") && fname == "VOP3P" && floats.iter().any(|f| *f) {
            // fma_mix: neg and |abs| on the operands
            b.per_source("neg", "neg", &floats[..3]);
            b.per_source("neghi", "abs", &floats[..3]);
            words.insert("mix".into());
        }
        if b.has("clamp") {
            b.modifier("clamp");
        }
    } else {
        own_modifiers(b, &["bitop3"]);
        let opsel = b.has("opsel") || b.t16 && !e32;
        if opsel && b.field("opsel").is_some() {
            let mut keep = all.clone();
            if b.has("opsel2") {
                keep = vec![true, true, false, false];
            }
            if fname == "VOP3I" {
                // the attribute stands between the two registers
                keep = vec![true, false, true, true];
            }
            keep[2] |= b.has("opsel4") && b.has("opsel");
            if b.has("packedsel") {
                // the halves of packed sources stay as they are
                keep[..2].fill(false);
                b.ignored |= 3 << 11;
            }
            if b.t16 && !b.has("opsel") {
                keep = b.source_flags(|o| o.flags & flag::HALF != 0);
            }
            // conversions keep the bits of both sides
            if b.t16 && !b.has("opsel") && b.row.encodings.iter().any(|e| e.0 == "VOP1") {
                keep[0] = true;
            }
            let vop1 = keep[0] && b.t16 && b.row.encodings.iter().any(|e| e.0 == "VOP1");
            keep[3] = !b.has("opsel2")
                && b.operands.iter().any(|o| {
                    o.role == 0
                        && o.flags & (flag::MASK | flag::SCALAR_ONLY) == 0
                        && (!b.t16 || o.flags & flag::HALF != 0 || b.has("opsel") || vop1)
                });
            b.per_source("opsel", "opsel", &keep);
        }
        if b.has("opsel") {
            own_modifiers(b, &["bytesel", "bytesel2"]);
        }
        if matches!(fname, "VINTERP" | "VOP3I") && b.has("clamp") {
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
        b.per_source("neg", "neg", &floats);
        b.per_source("abs", "abs", &floats);
        if sdwa && sig.dsts.is_empty() && fname == "VOPC" && b.field("sdst").is_some() {
            // the destination's number is ignored, the bit that says so is not
            b.mask |= 1 << 47;
        }
        if sdwa {
            let ints = b.source_flags(|o| o.flags & flag::SEXT != 0);
            b.per_source("sext", "sext", &ints);
            if !sig.dsts.is_empty() && !b.has("nodstsel") {
                b.modifier("dstsel");
                b.modifier("dstunused");
            }
            if b.has("nodstsel")
                && let Some(f) = b.field("dstsel").cloned()
            {
                // the whole destination is written
                b.fixed |= 6 << f.pieces[0].lo;
                b.mask |= all_bits(&f.pieces);
                b.used.insert("dstsel".into());
            }
            if all[0] {
                b.modifier("src0sel");
            }
            if all[1] {
                b.modifier("src1sel");
            }
        }
    }
    if overlay.is_some_and(|o| o.starts_with("DPP")) {
        for m in ["dpp8", "dppctrl", "rowmask", "bankmask", "boundctrl", "fi"] {
            b.modifier(m);
        }
    }
    for m in ["waitexp", "waitvdst", "waitvsrc"] {
        if b.field(m).is_some() {
            b.modifier(m);
        }
    }
    own_modifiers(b, &["scalesel"]);
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

fn own_modifiers(b: &mut Builder, names: &[&str]) {
    for m in names {
        if b.has(m) {
            b.modifier(m);
        }
    }
}
