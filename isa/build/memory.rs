//! Memory encodings: addressing modes, returning atomics and loads to LDS of one row.

use crate::expand::{Context, Encoding, Operand, Shape, flag, unused};
use crate::formats::{Format, Piece, all_bits, segments};
use crate::rows::Row;
use crate::text::Result;
use std::collections::BTreeSet;

struct Case {
    operands: Vec<Operand>,
    used: BTreeSet<String>,
    words: BTreeSet<String>,
    fixed: u128,
    mask: u128,
}

fn width(ty: &str) -> u16 {
    ty.trim_start_matches(|c: char| !c.is_ascii_digit()).parse().unwrap_or(32)
}

/// The sign of the 24-bit offset of a scalar load: a buffer's is not negative.
fn not_negative(f: &Format, srcs: &[String]) -> u128 {
    let offset = f.fields.get("offset").and_then(|o| o.pieces.first());
    let wide = offset.filter(|p| p.len == 24 && srcs.iter().any(|s| s == "sbase:b128"));
    wide.map_or(0, |p| 1 << (p.lo + p.len - 1))
}

/// The encodings of a row in a memory format. `fixed` and `mask` hold format and opcode.
pub fn expand(
    op: &str,
    row: &Row,
    cx: &Context,
    name: &str,
    f: Format,
    fixed: u128,
    mask: u128,
) -> Result<Vec<Encoding>> {
    let has = |w: &str| row.sig.words.iter().any(|x| x == w);
    let fail = |word: &str, what: &str| row.fail(word, what);
    let mut out = Vec::new();
    // (returning atomic, load to LDS or the short form of a tensor copy)
    let mut cases: Vec<(Option<bool>, bool)> = Vec::new();
    if name == "TENSOR" {
        cases.extend([(None, false), (None, true)]);
    } else if has("atomic") {
        cases.push((Some(false), false));
        cases.push((Some(true), false));
    } else {
        cases.push((None, false));
        if has("lds") {
            cases.push((None, true));
        }
    }
    for (returns, lds) in cases {
        let mut c = Case { operands: Vec::new(), used: BTreeSet::new(), words: BTreeSet::new(), fixed, mask };
        let add =
            |c: &mut Case, field: &str, role: u8, kind: Option<&str>, ty: &str, width: u16, flags: u16| -> Result<()> {
                let (pieces, k) = match f.fields.get(field) {
                    Some(x) => (x.pieces.clone(), x.kind.clone()),
                    None if kind.is_some() => (Vec::new(), String::new()),
                    None => return Err(fail(field, &format!("{name} has no such field on {}", cx.target))),
                };
                c.used.insert(field.to_string());
                let kind = kind.map_or(k, str::to_string);
                c.operands.push(Operand {
                    name: field.to_string(),
                    role,
                    kind,
                    ty: ty.to_string(),
                    bits: width,
                    flags,
                    pieces: segments(&pieces),
                });
                Ok(())
            };
        // destinations
        let buffer = matches!(name, "MUBUF" | "MTBUF");
        let mut srcs: Vec<String> = row.sig.srcs.clone();
        if returns == Some(true) && buffer {
            let data = srcs.remove(0);
            let ty = data.split(':').nth(1).unwrap_or("b32");
            add(&mut c, "vdata", 0, None, ty, width(ty), flag::READ)?;
        } else if !lds {
            for d in &row.sig.dsts {
                let (field, ty) = d.split_once(':').ok_or_else(|| fail(d, "expected field:type"))?;
                if returns == Some(false) {
                    continue;
                }
                let read = if ty.ends_with('+') { flag::READ } else { 0 };
                let ty = ty.trim_end_matches('+');
                let field = if name == "SMEM" { "sdata" } else { field };
                let read = if name == "SMEM" && returns == Some(true) { flag::READ } else { read };
                add(&mut c, field, 0, None, ty, width(ty), read)?;
            }
        }
        if name == "SMEM" && returns == Some(true) {
            srcs.remove(0);
        }
        if name == "TENSOR" && lds {
            // tensors of one or two dimensions: the last two groups of the descriptor are absent
            for s in srcs.drain(2..) {
                let field = s.split(':').next().and_then(|n| f.fields.get(n));
                let at = field.and_then(|x| x.pieces.first()).ok_or_else(|| fail(&s, "no such field"))?;
                c.fixed |= 0x7c << at.lo;
                c.mask |= all_bits(&[*at]);
                c.used.extend(s.split(':').next().map(String::from));
            }
        }
        for s in &srcs {
            let (field, ty) = s.split_once(':').unwrap_or((s, "b32"));
            match (name, field) {
                ("MUBUF" | "MTBUF", "vaddr") => add(&mut c, "vaddr", 1, Some("BUFADDR"), "b32", 32, 0)?,
                ("MUBUF" | "MTBUF", "srsrc") => add(&mut c, "srsrc", 1, None, "b128", 128, flag::SCALAR_ONLY)?,
                ("MUBUF" | "MTBUF", "soffset") => {
                    add(&mut c, "soffset", 1, None, "b32", 32, flag::SCALAR_ONLY | flag::NO_LITERAL)?
                }
                ("GLOBAL", "vaddr") => add(&mut c, "vaddr", 1, Some("GADDR"), "b64", 64, 0)?,
                ("GLOBAL", "saddr") if !s.contains(':') => add(&mut c, "saddr", 1, Some("GSADDR"), "b64", 64, 0)?,
                ("SCRATCH", "vaddr") => add(&mut c, "vaddr", 1, Some("SVADDR"), "b32", 32, 0)?,
                ("SCRATCH", "saddr") => add(&mut c, "saddr", 1, Some("SSADDR"), "b32", 32, 0)?,
                ("FLAT", "vaddr") => {
                    let kind = if srcs.iter().any(|s| s == "saddr") { Some("GADDR") } else { None };
                    add(&mut c, "vaddr", 1, kind, "b64", 64, 0)?;
                }
                ("FLAT", "saddr") => add(&mut c, "saddr", 1, Some("FSADDR"), "b64", 64, 0)?,
                ("SMEM", "soff") => {
                    c.mask |= not_negative(&f, &srcs);
                    add(&mut c, "offset", 1, Some("SMEMOFF"), "b32", 32, 0)?;
                    for n in ["imm", "soffen", "soffset"] {
                        if let Some(x) = f.fields.get(n) {
                            let p = x.pieces.first().map(|p| (p.lo, p.len, 0)).into_iter().collect();
                            c.used.insert(n.to_string());
                            c.operands.push(Operand {
                                name: n.into(),
                                role: 3,
                                kind: "AUX".into(),
                                ty: "b32".into(),
                                bits: 0,
                                flags: 0,
                                pieces: p,
                            });
                        }
                    }
                }
                ("SMEM", "offset") => {
                    c.mask |= not_negative(&f, &srcs);
                    add(&mut c, "offset", 1, None, ty, width(ty), 0)?;
                }
                ("SMEM", "sdata") if ty == "i8" => {
                    add(&mut c, "sdata", 1, Some("IMM"), "i8", 8, 0)?;
                    // five bits of the field hold a number, the others are clear
                    if let (true, Some(o)) = (has("imm5"), c.operands.last_mut())
                        && let Some((lo, len, _)) = o.pieces.first_mut()
                    {
                        c.mask |= ((1u128 << (*len - 5)) - 1) << (*lo + 5);
                        *len = 5;
                    }
                }
                ("DS", "addr") => add(&mut c, "addr", 1, None, "b32", 32, 0)?,
                _ => add(&mut c, field, 1, None, ty, width(ty), 0)?,
            }
        }
        // modifiers, in the order LLVM prints them
        let mut mods: Vec<&str> = Vec::new();
        match name {
            "DS" => {
                if has("offset2") {
                    mods.extend(["offset0", "offset1"]);
                } else if has("offset") || has("swz") {
                    mods.push("offset");
                }
                if has("gds") {
                    mods.push("gds");
                } else if has("gdsonly") {
                    let p = &f.fields["gds"].pieces;
                    c.fixed |= all_bits(p);
                    c.mask |= all_bits(p);
                    c.used.insert("gds".into());
                    c.words.insert("gdsonly".into());
                }
                if has("swz") {
                    c.words.insert("swz".into());
                }
                c.used.extend(["offset", "offset0", "offset1"].map(String::from));
                let offset = &f.fields["offset"].pieces;
                if !has("offset") && !has("offset2") && !has("swz") {
                    c.mask |= all_bits(offset);
                }
            }
            "MUBUF" | "MTBUF" => {
                if srcs.iter().any(|s| s == "srsrc") {
                    if name == "MTBUF" {
                        mods.push("format");
                    }
                    if srcs.iter().any(|s| s == "vaddr") {
                        mods.extend(["idxen", "offen"]);
                    }
                    mods.extend(["offset", "cpol"]);
                } else if has("cpol") {
                    mods.push("cpol");
                } else if let Some(x) = f.fields.get("cpol") {
                    // cache control ignores slc, and most operations of it only that
                    c.used.insert("cpol".into());
                    let checked = x.pieces.iter().enumerate().filter(|(i, _)| *i != 1 && !has("anypolicy"));
                    c.mask |= all_bits(&checked.map(|p| *p.1).collect::<Vec<_>>());
                }
                if has("tfe") && !lds {
                    mods.push("tfe");
                }
                if (lds || has("ldsonly"))
                    && let Some(x) = f.fields.get("lds")
                {
                    c.fixed |= all_bits(&x.pieces);
                    c.mask |= all_bits(&x.pieces);
                    c.used.insert("lds".into());
                    c.words.insert("lds".into());
                }
            }
            "SMEM" => {
                if has("cpol") {
                    mods.push("cpol");
                }
            }
            "TENSOR" => mods.extend(["r128", "cpol"]),
            _ => {
                if !has("nooffset") {
                    mods.push("offset");
                }
                mods.push("cpol");
                if lds && let Some(x) = f.fields.get("lds") {
                    c.fixed |= all_bits(&x.pieces);
                    c.mask |= all_bits(&x.pieces);
                    c.used.insert("lds".into());
                    c.words.insert("lds".into());
                }
                if f.fields.contains_key("sve") {
                    let p = &f.fields["sve"].pieces;
                    c.used.insert("sve".into());
                    c.operands.push(Operand {
                        name: "sve".into(),
                        role: 3,
                        kind: "AUX".into(),
                        ty: "b32".into(),
                        bits: 0,
                        flags: 0,
                        pieces: p.iter().map(|p| (p.lo, p.len, 0)).collect(),
                    });
                }
            }
        }
        for m in mods {
            let Some(x) = f.fields.get(m) else { continue };
            let signed = x.kind == "I";
            let mut shift = 0;
            let mut pieces = Vec::new();
            // the second policy bit means nothing to cache control
            let control = buffer && m == "cpol" && !srcs.iter().any(|s| s == "srsrc");
            for (i, p) in x.pieces.iter().enumerate() {
                if p.len > 0 && !(control && i == 1) {
                    // a returning atomic has the first policy bit set, the other form has it clear
                    if m == "cpol" && (i == 0 && has("noglc") || i == 4 && has("nosc1")) {
                        c.mask |= all_bits(&[*p]);
                    }
                    if m == "cpol" && i == 0 && returns.is_some() {
                        let glc = Piece { lo: p.lo, len: 1 };
                        c.mask |= all_bits(&[glc]);
                        if returns == Some(true) {
                            c.fixed |= all_bits(&[glc]);
                        }
                    }
                    pieces.push((p.lo, p.len, shift));
                }
                shift += p.len.max(1);
            }
            c.used.insert(m.to_string());
            c.operands.push(Operand {
                name: m.to_string(),
                role: 2,
                kind: if signed { "MODS" } else { "MOD" }.into(),
                ty: "b32".into(),
                bits: 0,
                flags: 0,
                pieces,
            });
        }
        // bits that atomics must leave clear
        if let (Some(x), true) = (f.fields.get("atomiczero"), has("atomic")) {
            c.mask |= all_bits(&x.pieces);
        }
        // the bit that says AGPR says nothing without data
        for x in f.fields.values().filter(|x| x.kind == "VA") {
            let acc = all_bits(x.pieces.get(1..).unwrap_or(&[]));
            let used = c.operands.iter().flat_map(|o| &o.pieces).any(|p| acc >> p.0 & 1 == 1);
            if !used {
                c.mask |= acc;
            }
        }
        // bits that the operation demands clear
        for list in row.sig.words.iter().filter_map(|w| w.strip_prefix("zero=")) {
            for n in list.split(',') {
                let bit: u32 = n.parse().map_err(|_| fail(n, "expected bit numbers"))?;
                c.mask |= 1u128.checked_shl(bit).ok_or_else(|| fail(n, "expected bits up to 127"))?;
            }
        }
        if let Some(x) = f.fields.get("saddr").filter(|_| !c.used.contains("saddr")) {
            // an address that is not there reads as `off`
            c.fixed |= 0x7c << x.pieces.first().map_or(0, |p| p.lo);
            c.mask |= all_bits(&x.pieces);
            c.used.insert("saddr".into());
        }
        let (ones, checked) = unused(&f, &c.operands, |name| c.used.contains(name) || lds && name == "vdst");
        c.fixed |= ones;
        c.mask |= checked;
        if returns.is_some() {
            c.words.insert(if returns == Some(true) { "ret" } else { "noret" }.into());
        }
        out.push(Encoding {
            op: op.to_string(),
            mnemonic: row.mnemonic.clone(),
            shape: Shape {
                format: name.to_string(),
                bytes: f.bytes,
                operands: c.operands,
                words: c.words,
                image: None,
            },
            fixed: c.fixed,
            mask: c.mask,
            variant: crate::expand::implicit(row),
        });
    }
    Ok(out)
}
