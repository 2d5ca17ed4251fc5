//! Writes what the crate reads at run time: `tables.rs` (names, operands, shapes) and `rows.bin` (encodings, and which
//! of them each target has).

use super::expand::{Encoding, Shape};
use super::operand::Operand;
use super::schema::{At, Kind, ModName, Role, Style, flag, word};
use super::text::{Fail, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

// Row record of `rows.bin`, 40 bytes, little endian: fixed u128, mask u128, op u16, mnemonic u16, shape u16, variant u16.

pub struct Tables {
    /// Per target, in order of `targets.isa`.
    pub targets: Vec<Vec<Encoding>>,
    /// Every operation, sorted.
    pub ops: Vec<String>,
}

/// `Type` of the crate for a type word.
fn type_name(ty: &str) -> &'static str {
    match ty {
        "b16" | "i8" => "B16",
        "i16" => "I16",
        "u16" => "U16",
        "f16" | "k16" => "F16",
        "bf16" => "Bf16",
        "f32" | "k32" => "F32",
        "i32" => "I32",
        "u32" => "U32",
        "f64" | "k64" => "F64",
        "i64" => "I64",
        "u64" => "U64",
        "b64" => "B64",
        "pf16" => "PkF16",
        "pbf16" => "PkBf16",
        "pb16" | "pi16" | "pu16" => "PkI16",
        "pf32" | "pb32" => "PkF32",
        "b32" | "mask" => "B32",
        _ if Style::of(ty).is_some() => "B32",
        _ => "Wide",
    }
}

fn style(o: &Operand) -> Style {
    match (Style::of(&o.ty), o.kind, o.ty.as_str()) {
        (Some(style), ..) => style,
        (None, Kind::Imm, "u16") => Style::U16,
        (None, Kind::Imm, "i16") => Style::I16,
        (None, Kind::Imm, _) => Style::I32,
        _ => Style::None,
    }
}

/// Number of the source that a field holds, 255 for none; halves of a pair count on.
fn source_index(name: &str) -> u8 {
    match name {
        "src0" | "src0X" => 0,
        "src1" | "vsrc1X" => 1,
        "src2" | "vsrc2X" => 2,
        "src3" | "src0Y" => 3,
        "src4" | "vsrc1Y" => 4,
        "vsrc2Y" => 5,
        _ => 255,
    }
}

/// Positions of the operands that others depend on, 255 where there is none.
fn places(s: &Shape) -> String {
    let is = |o: &Operand, place: At| match place {
        At::Constant => matches!(o.ty.as_str(), "k32" | "k16" | "k64"),
        At::SmemOffset => o.kind == Kind::SmemOffset,
        // the modifier, not the fields of the same name
        At::Neg | At::Abs | At::Sext | At::OpSel | At::D16 => {
            o.role == Role::Mod && o.name.trim_end_matches('u') == place.word()
        }
        _ => o.name == place.word(),
    };
    let find = |place: &At| s.operands.iter().position(|o| is(o, *place)).map_or("255".to_string(), |i| i.to_string());
    let list: Vec<String> = At::ALL.iter().map(find).collect();
    format!("[{}]", list.join(", "))
}

fn operand_literal(o: &Operand) -> String {
    let (lo, mask) = match *o.pieces {
        [(lo, len, 0)] if len > 0 && lo + len <= 64 => (lo, u64::MAX >> (64 - len)),
        _ => (0, 0),
    };
    let segs: Vec<String> = o.pieces.iter().map(|(lo, len, shift)| format!("({lo}, {len}, {shift})")).collect();
    let modname = if o.role == Role::Mod { ModName::of_field(&o.name) } else { ModName::Other };
    format!(
        "Operand {{ name: {:?}, role: {}, kind: {}, style: {}, ty: Type::{}, bits: {}, flags: {}, modifier: {}, \
         index: {}, lo: {lo}, mask: {mask}, segs: &[{}] }}",
        o.name,
        o.role.code(),
        o.kind.code(),
        style(o).code(),
        type_name(&o.ty),
        o.bits,
        o.flags | if o.name == "vdata" { flag::TFE_DATA } else { 0 },
        modname.code(),
        source_index(&o.name),
        segs.join(", ")
    )
}

fn image(i: &super::image::Image) -> String {
    format!(
        "Some(&Image {{ extra: {}, gradients: {}, coords: {}, lod: {}, gather: {}, packed: {}, slots: {}, partial: {}, \
         rays: &{:?}, addrs: &{:?}, datas: &{:?}, places: &{:?} }})",
        i.extra,
        i.gradients,
        i.coords,
        i.lod,
        i.gather,
        i.packed,
        i.slots,
        i.partial,
        i.rays,
        i.addrs,
        i.datas,
        i.places
    )
}

/// Position in a sorted list that holds the value.
fn number<T: Ord + std::fmt::Debug>(list: &[T], value: &T) -> Result<u16> {
    let at = list.binary_search(value).ok().and_then(|i| u16::try_from(i).ok());
    at.ok_or_else(|| Fail::file("", &format!("{value:?} has no number of 16 bits")))
}

fn sorted<'a, T: Ord + ?Sized + 'a>(list: impl Iterator<Item = &'a T>) -> Vec<&'a T> {
    list.collect::<BTreeSet<&T>>().into_iter().collect()
}

/// Writes `tables.rs`, returns `rows.bin`.
pub fn emit(t: &Tables, out: &mut String) -> Result<Vec<u8>> {
    // Each list from the one before it: targets share most of their rows, and rows their shapes.
    let rows: Vec<&Encoding> = sorted(t.targets.iter().flatten());
    let mnemonics: Vec<&str> = sorted(rows.iter().map(|e| e.mnemonic.as_str()));
    let shapes: Vec<&Shape> = sorted(rows.iter().map(|e| &e.shape));
    let operands: Vec<&Operand> = sorted(shapes.iter().flat_map(|s| s.operands.iter()));
    out.push_str("/// All operations, by canonical name.\npub mod op {\nuse super::Op;\n");
    for (i, name) in t.ops.iter().enumerate().filter(|(_, n)| !n.contains(':')) {
        let _ = writeln!(out, "pub const {}: Op = Op({i});", name.to_uppercase());
    }
    out.push_str("}\n");
    let _ = writeln!(out, "pub(crate) static OP_NAMES: &[&str] = &{:?};", t.ops);
    let _ = writeln!(out, "pub(crate) static MNEMONICS: &[&str] = &{mnemonics:?};");
    let _ = writeln!(out, "pub(crate) static OPERANDS: [Operand; {}] = [", operands.len());
    for o in &operands {
        let _ = writeln!(out, "{},", operand_literal(o));
    }
    out.push_str("];\n");
    let _ = writeln!(out, "pub(crate) static SHAPES: [Shape; {}] = [", shapes.len());
    for s in &shapes {
        let _ = writeln!(out, "{},", shape_literal(s, &operands)?);
    }
    out.push_str("];\n");
    let mut bin = Vec::new();
    for r in &rows {
        bin.extend(r.fixed.to_le_bytes());
        bin.extend(r.mask.to_le_bytes());
        let ops = number(&t.ops, &r.op)?;
        for x in [ops, number(&mnemonics, &r.mnemonic.as_str())?, number(&shapes, &&r.shape)?, r.variant] {
            bin.extend(x.to_le_bytes());
        }
    }
    let ranges = row_numbers(t, &rows, &mut bin);
    let _ = writeln!(out, "/// Where each target's row numbers stand in `rows.bin`: (first byte, rows).");
    let _ = writeln!(out, "pub(crate) static TARGET_ROWS: &[(usize, usize)] = &{ranges:?};");
    Ok(bin)
}

fn shape_literal(s: &Shape, operands: &[&Operand]) -> Result<String> {
    let index = |o: &Operand| Ok(format!("&OPERANDS[{}]", number(operands, &o)?));
    let list: Vec<String> = s.operands.iter().map(index).collect::<Result<_>>()?;
    let (base, overlay) = s.format.split_once('_').unwrap_or((&s.format, ""));
    let words: u32 = word::NAMES.iter().enumerate().map(|(i, w)| u32::from(s.words.contains(w.0)) << i).sum();
    let over = match overlay {
        "DPP" => "Dpp",
        "DPP8" => "Dpp8",
        "" => "None",
        _ => "Sdwa",
    };
    let packed = base == "VOP3P" && !s.words.contains("mix") || base.starts_with("WMMA");
    let count = |role: Role| s.operands.iter().filter(|o| o.role == role).count();
    Ok(format!(
        "Shape {{ format: {base:?}, overlay: {overlay:?}, bytes: {}, operands: &[{}], words: {words}, at: {}, packed: {packed}, \
         vector: {}, wide: {}, over: Over::{over}, dsts: {}, srcs: {}, image: {} }}",
        s.bytes,
        list.join(", "),
        places(s),
        base.starts_with("VOP"),
        base.starts_with("VOP3"),
        count(Role::Dst),
        count(Role::Src),
        s.image.as_ref().map_or("None".to_string(), image)
    ))
}

/// Appends the numbers of each target's rows; targets that have the same share them.
fn row_numbers(t: &Tables, rows: &[&Encoding], bin: &mut Vec<u8>) -> Vec<(usize, usize)> {
    let number: BTreeMap<&Encoding, u32> = rows.iter().zip(0u32..).map(|(r, i)| (*r, i)).collect();
    let mut seen: BTreeMap<Vec<u32>, (usize, usize)> = BTreeMap::new();
    let mut ranges = Vec::new();
    for list in &t.targets {
        let ids: Vec<u32> = list.iter().map(|e| number[e]).collect();
        let range = *seen.entry(ids.clone()).or_insert_with(|| {
            let at = bin.len();
            bin.extend(ids.iter().flat_map(|i| i.to_le_bytes()));
            (at, ids.len())
        });
        ranges.push(range);
    }
    ranges
}
