//! Writes what the crate reads at run time: `tables.rs` (names, operands, shapes) and `rows.bin` (encodings, and which
//! of them each target has).

use crate::expand::{Encoding, Operand, Shape};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

// Row record of `rows.bin`, 40 bytes, little endian: fixed u128, mask u128, op u16, mnemonic u16, shape u16, variant u16.

pub struct Tables {
    /// Per target, in order of `targets.isa`.
    pub targets: Vec<Vec<Encoding>>,
    /// Every operation, sorted.
    pub ops: Vec<String>,
}

fn camel(kind: &str) -> String {
    match kind {
        "V" => "Vgpr",
        "VA" => "VgprAcc",
        "A" => "Agpr",
        "SRC" => "Src",
        "SRCG" => "SrcAgpr",
        "SRCA" => "SrcAcc",
        "VI" => "SrcVgprAcc",
        "S" => "Sgpr",
        "SS" => "Ssrc",
        "SO" => "Ssrc",
        "SB" => "SgprPair",
        "S4" => "SgprQuad",
        "SDWA" => "SrcSdwa",
        "SDWAS" => "SdwaSdst",
        "VCC" => "FixedVcc",
        "IMM" | "U" => "Imm",
        "I" => "ImmSigned",
        "MOD" => "Modifier",
        "MODS" => "ModifierSigned",
        "BUFADDR" => "BufferAddr",
        "GADDR" => "GlobalAddr",
        "GSADDR" => "GlobalSaddr",
        "FSADDR" => "FlatSaddr",
        "SVADDR" => "ScratchAddr",
        "SSADDR" => "ScratchSaddr",
        "SMEMOFF" => "SmemOffset",
        "AUX" => "Aux",
        "EXP" => "ExportSrc",
        "VDSTY" => "VgprOdd",
        "IDATA" => "ImageData",
        "IDATAA" => "ImageDataAcc",
        "IADDR" => "ImageAddr",
        "ILIST" => "ImageList",
        other => return format!("Unknown_{other}"),
    }
    .to_string()
}

fn type_name(ty: &str) -> (&'static str, &'static str) {
    // (Type variant, Style variant)
    match ty {
        "b16" | "i8" => ("B16", if ty == "i8" { "I8" } else { "None" }),
        "i16" => ("I16", "None"),
        "u16" => ("U16", "None"),
        "f16" => ("F16", "None"),
        "bf16" => ("Bf16", "None"),
        "f32" => ("F32", "None"),
        "i32" => ("I32", "None"),
        "u32" => ("U32", "None"),
        "f64" => ("F64", "None"),
        "i64" => ("I64", "None"),
        "u64" => ("U64", "None"),
        "b64" => ("B64", "None"),
        "pf16" => ("PkF16", "None"),
        "pbf16" => ("PkBf16", "None"),
        "pb16" | "pi16" | "pu16" => ("PkI16", "None"),
        "pf32" | "pb32" => ("PkF32", "None"),
        "s16" => ("B32", "S16"),
        "hwreg" => ("B32", "HwReg"),
        "label" => ("B32", "Label"),
        "msg" => ("B32", "Message"),
        "waitcnt" => ("B32", "Waitcnt"),
        "depctr" => ("B32", "DepCtr"),
        "delay" => ("B32", "Delay"),
        "endpgm" => ("B32", "Endpgm"),
        "version" => ("B32", "Version"),
        "gpridx" => ("B32", "GprIdx"),
        "barrier" => ("B32", "Barrier"),
        "k32" => ("F32", "K32"),
        "k16" => ("F16", "K16"),
        "k64" => ("F64", "K64"),
        "attr" => ("B32", "Attr"),
        "attrchan" => ("B32", "AttrChan"),
        "slot" => ("B32", "Slot"),
        "tgt" => ("B32", "ExpTgt"),
        "b32" | "mask" => ("B32", "None"),
        _ => ("Wide", "None"),
    }
}

fn style(o: &Operand) -> &'static str {
    let (_, style) = type_name(&o.ty);
    if o.kind == "IMM" && style == "None" {
        return match o.ty.as_str() {
            "u16" => "U16",
            "i16" => "I16",
            _ => "I32",
        };
    }
    style
}

/// `Modifier` variant of the crate for a modifier field.
fn modifier(name: &str) -> &'static str {
    match name {
        "neg" => "Neg",
        "neghi" => "NegHi",
        "abs" => "Abs",
        "sext" => "Sext",
        "opsel" => "OpSel",
        "opselhi" => "OpSelHi",
        "clamp" => "Clamp",
        "omod" => "Omod",
        "offset" => "Offset",
        "offset0" => "Offset0",
        "offset1" => "Offset1",
        "cpol" => "Cpol",
        "gds" => "Gds",
        "tfe" => "Tfe",
        "offen" => "Offen",
        "idxen" => "Idxen",
        "format" => "Format",
        "dmask" => "Dmask",
        "dim" => "Dim",
        "unorm" => "Unorm",
        "r128" => "R128",
        "a16" => "A16",
        "d16" | "d16u" => "D16",
        "lwe" => "Lwe",
        "da" => "Da",
        "dppctrl" => "DppCtrl",
        "rowmask" => "RowMask",
        "bankmask" => "BankMask",
        "boundctrl" | "permbc" => "BoundCtrl",
        "fi" | "permfi" => "Fi",
        "dpp8" => "Dpp8",
        "dstsel" => "DstSel",
        "dstunused" => "DstUnused",
        "src0sel" => "Src0Sel",
        "src1sel" => "Src1Sel",
        "cbsz" => "Cbsz",
        "abid" => "Abid",
        "blgp" => "Blgp",
        "indexkey8bit" | "indexkey16bit" | "indexkey32bit" => "IndexKey",
        "matrixafmt" => "MatrixAFmt",
        "matrixbfmt" => "MatrixBFmt",
        "matrixascale" => "MatrixAScale",
        "matrixbscale" => "MatrixBScale",
        "matrixascalefmt" => "MatrixAScaleFmt",
        "matrixbscalefmt" => "MatrixBScaleFmt",
        "matrixareuse" => "MatrixAReuse",
        "matrixbreuse" => "MatrixBReuse",
        "scalesel" => "ScaleOpSel",
        "bytesel" | "bytesel2" => "ByteSel",
        "bitop3" => "BitOp3",
        "waitvdst" => "WaitVdst",
        "waitexp" => "WaitExp",
        "waitvsrc" => "WaitVmVsrc",
        "done" => "Done",
        "vm" => "Vm",
        "compr" => "Compr",
        "en" => "En",
        "rowen" => "RowEn",
        "high" => "High",
        _ => "Other",
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

/// Words of a shape as bits, in the order of `word` in the crate's `table.rs`, and whether a shape takes the word from its
/// row as it is; the others say which of a row's encodings it is.
const WORDS: &[(&str, bool)] = &[
    ("f8f6f4", true),
    ("gdsonly", false),
    ("hidesel", true),
    ("lds", false),
    ("ldsonly", true),
    ("mix", false),
    ("noret", false),
    ("ret", false),
    ("swz", false),
    ("splat", true),
    ("opsel4", true),
    ("nosuffix", true),
    ("opsel2", true),
    ("unaligned", true),
    ("nodirect", true),
    ("nullonly", true),
    ("laneselect", true),
    ("onebus", true),
    ("wholedst", true),
    ("msaa", true),
    ("samebank", false),
    ("dppvgpr", true),
    ("spare", false),
    ("nosext", true),
    ("sextregs", true),
];

/// True for a word that every shape of a row carries.
pub fn is_carried(word: &str) -> bool {
    WORDS.contains(&(word, true))
}

/// Operands that others depend on, in the order of `At` in the crate's `table.rs`.
const PLACES: &[&str] = &[
    "neg", "abs", "sext", "opsel", "tfe", "saddr", "sve", "soffset", "imm", "soffen", "offen", "idxen", "en", "compr",
    "vdstX", "dim", "a16", "dmask", "d16", "K", "SMEMOFF",
];

fn places(s: &Shape) -> String {
    let find = |place: &&str| {
        s.operands.iter().position(|o| match *place {
            "K" => matches!(o.ty.as_str(), "k32" | "k16" | "k64"),
            "SMEMOFF" => o.kind == "SMEMOFF",
            // the modifier, not the fields of the same name
            "neg" | "abs" | "sext" | "opsel" | "d16" => o.role == 2 && o.name.trim_end_matches('u') == *place,
            name => o.name == name,
        })
    };
    let list: Vec<String> = PLACES.iter().map(|p| find(p).unwrap_or(255).to_string()).collect();
    format!("[{}]", list.join(", "))
}

fn operand_literal(o: &Operand) -> String {
    let (lo, mask) = match *o.pieces {
        [(lo, len, 0)] if len > 0 && lo + len <= 64 => (lo, u64::MAX >> (64 - len)),
        _ => (0, 0),
    };
    let segs: Vec<String> = o.pieces.iter().map(|(lo, len, shift)| format!("({lo}, {len}, {shift})")).collect();
    let (ty, _) = type_name(&o.ty);
    let modname = if o.role == 2 { modifier(&o.name) } else { "Other" };
    format!(
        "Operand {{ name: {:?}, role: Role::{}, kind: Kind::{}, style: Style::{}, ty: Type::{ty}, bits: {}, flags: {}, modifier: ModName::{modname}, index: {}, lo: {lo}, mask: {mask}, segs: &[{}] }}",
        o.name,
        ["Dst", "Src", "Mod", "Aux"][usize::from(o.role)],
        camel(&o.kind),
        style(o),
        o.bits,
        o.flags | if o.name == "vdata" { 4096 } else { 0 },
        source_index(&o.name),
        segs.join(", ")
    )
}

fn image(i: &crate::image::Image) -> String {
    format!(
        "Some(&Image {{ extra: {}, gradients: {}, coords: {}, lod: {}, gather: {}, packed: {}, slots: {}, partial: {}, \
         rays: &{:?}, addrs: &{:?}, datas: &{:?} }})",
        i.extra, i.gradients, i.coords, i.lod, i.gather, i.packed, i.slots, i.partial, i.rays, i.addrs, i.datas
    )
}

/// Returns (`tables.rs`, `rows.bin`).
pub fn emit(t: &Tables, out: &mut String) -> Vec<u8> {
    let mnemonics: BTreeSet<&str> = t.targets.iter().flatten().map(|e| e.mnemonic.as_str()).collect();
    let mnemonics: Vec<&str> = mnemonics.into_iter().collect();
    let operands: BTreeSet<&Operand> = t.targets.iter().flatten().flat_map(|e| e.shape.operands.iter()).collect();
    let operands: Vec<&Operand> = operands.into_iter().collect();
    let shapes: BTreeSet<&Shape> = t.targets.iter().flatten().map(|e| &e.shape).collect();
    let shapes: Vec<&Shape> = shapes.into_iter().collect();
    let index = |o: &Operand| operands.binary_search(&o).unwrap_or(0);

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
        let list: Vec<String> = s.operands.iter().map(|o| format!("&OPERANDS[{}]", index(o))).collect();
        let (base, overlay) = s.format.split_once('_').unwrap_or((&s.format, ""));
        let words: u32 = WORDS.iter().enumerate().map(|(i, w)| u32::from(s.words.contains(w.0)) << i).sum();
        let over = match overlay {
            "DPP" => "Dpp",
            "DPP8" => "Dpp8",
            "" => "None",
            _ => "Sdwa",
        };
        let packed = base == "VOP3P" && !s.words.contains("mix") || base.starts_with("WMMA");
        let _ = writeln!(
            out,
            "Shape {{ format: {base:?}, overlay: {overlay:?}, bytes: {}, operands: &[{}], words: {words}, at: {}, packed: {packed}, \
             vector: {}, wide: {}, over: Over::{over}, dsts: {}, srcs: {}, image: {} }},",
            s.bytes,
            list.join(", "),
            places(s),
            base.starts_with("VOP"),
            base.starts_with("VOP3"),
            s.operands.iter().filter(|o| o.role == 0).count(),
            s.operands.iter().filter(|o| o.role == 1).count(),
            s.image.as_ref().map_or("None".to_string(), image)
        );
    }
    out.push_str("];\n");

    let rows: BTreeSet<&Encoding> = t.targets.iter().flatten().collect();
    let rows: Vec<&Encoding> = rows.into_iter().collect();
    let number: BTreeMap<&Encoding, u32> = rows.iter().zip(0u32..).map(|(r, i)| (*r, i)).collect();
    let mut bin = Vec::new();
    for r in &rows {
        bin.extend(r.fixed.to_le_bytes());
        bin.extend(r.mask.to_le_bytes());
        let op = t.ops.binary_search(&r.op).unwrap_or(0);
        let mnemonic = mnemonics.binary_search(&r.mnemonic.as_str()).unwrap_or(0);
        let shape = shapes.binary_search(&&r.shape).unwrap_or(0);
        for x in [op, mnemonic, shape] {
            bin.extend((x as u16).to_le_bytes());
        }
        bin.extend(r.variant.to_le_bytes());
    }
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
    let _ = writeln!(out, "/// Where each target's row numbers stand in `rows.bin`: (first byte, rows).");
    let _ = writeln!(out, "pub(crate) static TARGET_ROWS: &[(usize, usize)] = &{ranges:?};");
    bin
}
