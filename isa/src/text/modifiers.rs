//! Modifiers in assembly text: reading them, and giving them to an instruction.

use crate::Quirk;
use crate::model::table::{Kind, Operand as Field, Role, Row, Style, word};
use crate::text::lex::{Cursor, List, ParseError, Result};
use crate::text::parse::Parts;
use crate::text::syntax::{
    self, DIMS, MATRIX_FMT, MATRIX_SCALE, MATRIX_SCALE_FMT, SCOPES, SDWA_SEL, SDWA_UNUSED, TH_LOAD, TH_STORE,
};
use crate::{Flags, Inst, ModName, Target};

/// A modifier as written.
#[derive(Clone, Debug)]
pub(crate) struct Given {
    pub name: ModName,
    pub value: i64,
    /// Bits of the cpol field that this word speaks of.
    pub part: u64,
    /// Values of a list, for `op_sel:[..]` and relatives.
    pub list: Option<List>,
    /// What a temporal hint is for.
    pub hint: Option<Hint>,
}

/// Temporal hints name the kind of access they are for, and one name of the value 3 is for the widest scope only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Hint {
    access: Flags,
    bypass: bool,
}

fn plain(name: ModName, value: i64) -> Given {
    Given { name, value, part: u64::MAX, list: None, hint: None }
}

const FLAGS: [(&str, ModName); 21] = [
    ("clamp", ModName::Clamp),
    ("gds", ModName::Gds),
    ("lds", ModName::Lds),
    ("tfe", ModName::Tfe),
    ("offen", ModName::Offen),
    ("idxen", ModName::Idxen),
    ("addr64", ModName::Addr64),
    ("unorm", ModName::Unorm),
    ("r128", ModName::R128),
    ("a16", ModName::A16),
    ("d16", ModName::D16),
    ("lwe", ModName::Lwe),
    ("da", ModName::Da),
    ("high", ModName::High),
    ("done", ModName::Done),
    ("vm", ModName::Vm),
    ("compr", ModName::Compr),
    ("row_en", ModName::RowEn),
    ("matrix_a_reuse", ModName::MatrixAReuse),
    ("matrix_b_reuse", ModName::MatrixBReuse),
    ("unused", ModName::Other),
];

const CPOL: [(&str, u64); 9] = [
    ("glc", 1),
    ("slc", 2),
    ("dlc", 4),
    ("scc", 16),
    ("sc0", 1),
    ("nt", 2),
    ("sc1", 16),
    ("nv", 32),
    ("scale_offset", 0x800),
];

const KEYS: [(&str, ModName); 25] = [
    ("offset", ModName::Offset),
    ("inst_offset", ModName::Offset),
    ("offset0", ModName::Offset0),
    ("offset1", ModName::Offset1),
    ("row_mask", ModName::RowMask),
    ("bank_mask", ModName::BankMask),
    ("fi", ModName::Fi),
    ("cbsz", ModName::Cbsz),
    ("abid", ModName::Abid),
    ("blgp", ModName::Blgp),
    ("dmask", ModName::Dmask),
    ("wait_exp", ModName::WaitExp),
    ("wait_vdst", ModName::WaitVdst),
    ("wait_va_vdst", ModName::WaitVdst),
    ("wait_vm_vsrc", ModName::WaitVmVsrc),
    ("byte_sel", ModName::ByteSel),
    ("bitop3", ModName::BitOp3),
    ("index_key", ModName::IndexKey),
    ("scale_sel", ModName::ScaleOpSel),
    ("clamp", ModName::Clamp),
    ("gds", ModName::Gds),
    ("tfe", ModName::Tfe),
    ("lwe", ModName::Lwe),
    ("unorm", ModName::Unorm),
    ("done", ModName::Done),
];

const LISTS: [(&str, ModName); 5] = [
    ("op_sel", ModName::OpSel),
    ("op_sel_hi", ModName::OpSelHi),
    ("neg_lo", ModName::Neg),
    ("neg_hi", ModName::NegHi),
    ("neg", ModName::Blgp),
];

const DPP: [(&str, i64, i64, i64); 11] = [
    // name, base, smallest and largest argument
    ("row_shl", 0x100, 1, 15),
    ("row_shr", 0x110, 1, 15),
    ("row_ror", 0x120, 1, 15),
    ("wave_shl", 0x12f, 1, 1),
    ("wave_rol", 0x133, 1, 1),
    ("wave_shr", 0x137, 1, 1),
    ("wave_ror", 0x13b, 1, 1),
    ("row_share", 0x150, 0, 15),
    ("row_newbcast", 0x150, 0, 15),
    ("row_xmask", 0x160, 0, 15),
    ("row_bcast", 0, 15, 31),
];

/// True when a modifier may start here although an operand is expected.
pub(crate) fn starts(c: &mut Cursor) -> bool {
    let w = c.word();
    let next = c.rest()[w.len()..].trim_start().chars().next();
    !w.is_empty()
        && (next == Some(':') && !c.rest()[w.len()..].trim_start().starts_with("::")
            || FLAGS.iter().any(|f| f.0 == w) && w != "da" && w != "a16"
            || CPOL.iter().any(|f| f.0 == w) && w != "scc"
            || w.starts_with("row_"))
}

/// Takes a modifier, if one stands here.
pub(crate) fn modifier(target: Target, c: &mut Cursor) -> Result<Option<Given>> {
    c.skip();
    let start = c.at;
    let word = c.word();
    if word.is_empty() {
        return Ok(None);
    }
    let after = c.rest()[word.len()..].trim_start();
    let keyed = after.starts_with(':') && !after.starts_with("::");
    if word == "a16" && after.starts_with(',') {
        // the register
        return Ok(None);
    }
    if !keyed {
        let (name, value) = match word.strip_prefix("no") {
            Some(w) if CPOL.iter().any(|f| f.0 == w) || FLAGS.iter().any(|f| f.0 == w) => (w, 0),
            _ => (word, 1),
        };
        let late = matches!(name, "nv" | "scale_offset") && !target.info().has(Quirk::LateCacheBits);
        if let Some(&(_, bit)) = CPOL.iter().find(|f| f.0 == name && !late) {
            c.at += word.len();
            return Ok(Some(Given {
                name: ModName::Cpol,
                value: if value == 1 { bit as i64 } else { 0 },
                part: bit,
                list: None,
                hint: None,
            }));
        }
        if let Some(&(_, m)) = FLAGS.iter().find(|f| f.0 == name) {
            c.at += word.len();
            // gfx9 spells the r128 bit of its image instructions a16
            let m = if m == ModName::A16 && target.info().has(Quirk::ImageA16) { ModName::R128 } else { m };
            return Ok(Some(plain(m, value)));
        }
        let fixed = match word {
            "row_mirror" => 0x140,
            "row_half_mirror" => 0x141,
            _ => return Ok(None),
        };
        c.at += word.len();
        return Ok(Some(plain(ModName::DppCtrl, fixed)));
    }
    c.at += word.len();
    c.eat(":");
    let bad = |m: String| ParseError { column: start, message: m };
    if let Some(&(_, m)) = LISTS.iter().find(|l| l.0 == word) {
        let list = c.int_list()?;
        let value = list.iter().enumerate().map(|(i, v)| (v & 1) << i.min(62)).sum();
        return Ok(Some(Given { name: m, value, part: u64::MAX, list: Some(list), hint: None }));
    }
    if word == "offset" && c.word() == "swizzle" {
        return Ok(Some(plain(ModName::Offset, swizzle(c)?)));
    }
    if let Some(&(_, m)) = KEYS.iter().find(|k| k.0 == word) {
        return Ok(Some(plain(m, c.int()?)));
    }
    if let Some(&(name, base, lo, hi)) = DPP.iter().find(|d| d.0 == word) {
        let v = c.int()?;
        if !(lo..=hi).contains(&v) || (name == "row_bcast" && v != 15 && v != 31) {
            return Err(bad(format!("{name} takes {lo} to {hi}")));
        }
        let v = if name == "row_bcast" { if v == 15 { 0x142 } else { 0x143 } } else { base + v };
        return Ok(Some(plain(ModName::DppCtrl, v)));
    }
    let given = match word {
        "mul" => match c.int()? {
            1 => plain(ModName::Omod, 0),
            2 => plain(ModName::Omod, 1),
            4 => plain(ModName::Omod, 2),
            _ => return Err(bad("expected mul:2 or mul:4".into())),
        },
        "div" => match c.int()? {
            1 => plain(ModName::Omod, 0),
            2 => plain(ModName::Omod, 3),
            _ => return Err(bad("expected div:2".into())),
        },
        "quad_perm" => {
            let l = c.int_list()?;
            if l.len() != 4 || l.iter().any(|v| !(0..4).contains(v)) {
                return Err(bad("quad_perm takes four numbers from 0 to 3".into()));
            }
            plain(ModName::DppCtrl, l.iter().enumerate().map(|(i, v)| v << (2 * i)).sum())
        }
        "dpp8" => {
            let l = c.int_list()?;
            if l.len() != 8 || l.iter().any(|v| !(0..8).contains(v)) {
                return Err(bad("dpp8 takes eight numbers from 0 to 7".into()));
            }
            plain(ModName::Dpp8, l.iter().enumerate().map(|(i, v)| v << (3 * i)).sum())
        }
        "bound_ctrl" => {
            let v = c.int()?;
            if v != 0 && v != 1 {
                return Err(bad("bound_ctrl takes 0 or 1".into()));
            }
            plain(ModName::BoundCtrl, if target.info().has(Quirk::BoundCtrl0) { v } else { 1 })
        }
        "dst_sel" | "src0_sel" | "src1_sel" => {
            let name = match word {
                "dst_sel" => ModName::DstSel,
                "src0_sel" => ModName::Src0Sel,
                _ => ModName::Src1Sel,
            };
            plain(name, named(c, &SDWA_SEL, "")?)
        }
        "dst_unused" => plain(ModName::DstUnused, named(c, &SDWA_UNUSED, "")?),
        "dim" => {
            c.skip();
            // 1D and 2D start with a digit: take the whole run of word characters
            let w = c.take_word();
            let short = w.strip_prefix("SQ_RSRC_IMG_").unwrap_or(w);
            match DIMS.iter().position(|d| *d == short) {
                Some(i) => plain(ModName::Dim, i as i64),
                None => return Err(bad(format!("`{w}` is no dimension"))),
            }
        }
        "th" => return th(c).map(Some),
        "scope" => {
            let v = if c.word().starts_with("SCOPE") { named(c, &SCOPES, "")? } else { c.int()? };
            Given { name: ModName::Cpol, value: v << 3, part: 0x18, list: None, hint: None }
        }
        "format" => plain(ModName::Format, format(target, c)?),
        "dfmt" => Given { name: ModName::Format, value: c.int()?, part: 0xf, list: None, hint: None },
        "nfmt" => Given { name: ModName::Format, value: c.int()? << 4, part: 0x70, list: None, hint: None },
        "matrix_a_fmt" => plain(ModName::MatrixAFmt, named(c, &MATRIX_FMT, "")?),
        "matrix_b_fmt" => plain(ModName::MatrixBFmt, named(c, &MATRIX_FMT, "")?),
        "matrix_a_scale" => plain(ModName::MatrixAScale, named(c, &MATRIX_SCALE, "")?),
        "matrix_b_scale" => plain(ModName::MatrixBScale, named(c, &MATRIX_SCALE, "")?),
        "matrix_a_scale_fmt" => plain(ModName::MatrixAScaleFmt, named(c, &MATRIX_SCALE_FMT, "")?),
        "matrix_b_scale_fmt" => plain(ModName::MatrixBScaleFmt, named(c, &MATRIX_SCALE_FMT, "")?),
        _ => return Err(bad(format!("`{word}` is no modifier"))),
    };
    Ok(Some(given))
}

/// A name of a list, or its number.
fn named(c: &mut Cursor, list: &[&str], prefix: &str) -> Result<i64> {
    c.skip();
    let w = c.word();
    if let Some(i) = list.iter().position(|n| *n == w.strip_prefix(prefix).unwrap_or(w)) {
        c.at += w.len();
        return Ok(i as i64);
    }
    if w.starts_with(|x: char| x.is_ascii_digit()) {
        return c.int();
    }
    c.fail(format!("expected one of {}", list.join(", ")))
}

/// `th:TH_LOAD_NT`.
fn th(c: &mut Cursor) -> Result<Given> {
    let word = c.word();
    let start = c.at;
    c.at += word.len();
    let find = |list: &[&str], w: &str| list.iter().position(|n| *n == w).map(|i| i as i64);
    let (access, name) = match word.strip_prefix("TH_").and_then(|w| w.split_once('_')) {
        Some(("LOAD", w)) => (Flags::LOAD, w),
        Some(("STORE", w)) => (Flags::STORE, w),
        Some(("ATOMIC", w)) => (Flags::ATOMIC, w),
        _ => (Flags::default(), word),
    };
    let v = match (access, name) {
        (Flags::LOAD, "BYPASS" | "LU") | (Flags::STORE, "BYPASS" | "WB" | "RT_WB") => Some(3),
        (Flags::LOAD, w) => find(&TH_LOAD, w),
        (Flags::STORE, "NT_WB") => Some(7),
        (Flags::STORE, w) => find(&TH_STORE, w),
        (Flags::ATOMIC, "RT") => Some(0),
        (Flags::ATOMIC, "RETURN" | "RT_RETURN") => Some(1),
        (Flags::ATOMIC, "NT") => Some(2),
        (Flags::ATOMIC, "NT_RETURN") => Some(3),
        (Flags::ATOMIC, "CASCADE_RT") => Some(4),
        (Flags::ATOMIC, "CASCADE_NT") => Some(6),
        (_, "TH_DEFAULT") => Some(0),
        _ => None,
    };
    match v {
        Some(value) => {
            let hint = Some(Hint { access, bypass: name == "BYPASS" }).filter(|_| value != 0);
            Ok(Given { name: ModName::Cpol, value, part: 7, list: None, hint })
        }
        None => Err(ParseError {
            column: start,
            message: format!("`{word}` is no temporal hint: expected TH_LOAD_.., TH_STORE_.. or TH_ATOMIC_.."),
        }),
    }
}

/// What is wrong with a temporal hint for an instruction with this cache policy.
fn misused(target: Target, row: &Row, hint: Hint, cpol: i32) -> Option<&'static str> {
    let flags = target.op(row.op).map_or(Flags::default(), |i| i.flags);
    let wanted = [Flags::ATOMIC, Flags::STORE, Flags::LOAD].into_iter().find(|f| flags.has(*f));
    let (th, system) = (cpol & 7, cpol >> 3 & 3 == 3);
    match wanted {
        Some(w) if w != hint.access => Some(match w {
            Flags::ATOMIC => "an atomic takes a temporal hint TH_ATOMIC_..",
            Flags::STORE => "a store takes a temporal hint TH_STORE_..",
            _ => "a load takes a temporal hint TH_LOAD_..",
        }),
        _ if row.shape().format == "SMEM" && (4..=6).contains(&th) => Some("scalar loads have no such temporal hint"),
        _ if th == 3 && hint.bypass != system => {
            Some("BYPASS belongs to SCOPE_SYS, and nothing else of its value does")
        }
        _ => None,
    }
}

/// `format:[BUF_FMT_32_FLOAT]`, `format:[BUF_DATA_FORMAT_32,BUF_NUM_FORMAT_FLOAT]` or a number.
fn format(target: Target, c: &mut Cursor) -> Result<i64> {
    if !c.eat("[") {
        return c.int();
    }
    let mut value: Option<i64> = None;
    let (mut data, mut num) = (1, 0);
    let mut split = false;
    loop {
        c.skip();
        let start = c.at;
        let w = c.take_word();
        let unknown = || ParseError { column: start, message: format!("`{w}` is no buffer format of {target}") };
        if let Some(n) = w.strip_prefix("BUF_FMT_") {
            value = Some(syntax::id_of(syntax::formats(target), n).ok_or_else(unknown)? as i64);
        } else if let Some(n) = w.strip_prefix("BUF_DATA_FORMAT_") {
            data = syntax::id_of(syntax::data_formats(target), n).ok_or_else(unknown)? as i64;
            split = true;
        } else if let Some(n) = w.strip_prefix("BUF_NUM_FORMAT_") {
            num = syntax::id_of(syntax::number_formats(target), n).ok_or_else(unknown)? as i64;
            split = true;
        } else {
            return Err(unknown());
        }
        if c.eat("]") {
            break;
        }
        c.expect(",")?;
    }
    if let Some(v) = value {
        return Ok(v);
    }
    if split && target.info().has(Quirk::UnifiedFormats) {
        // unified formats: find the one with both parts; half of one that does not exist spoils the whole
        let (d, n) = (
            syntax::data_formats(target).iter().find(|x| i64::from(x.0) == data).map_or("", |x| x.1),
            syntax::number_formats(target).iter().find(|x| i64::from(x.0) == num).map_or("", |x| x.1),
        );
        return match syntax::id_of(syntax::formats(target), &format!("{d}_{n}")) {
            Some(v) => Ok(v as i64),
            None if d == "INVALID" => Ok(0),
            None => c.fail("the target has no such combination of data and number format"),
        };
    }
    Ok(data | num << 4)
}

/// `swizzle(QUAD_PERM, 0, 1, 2, 3)` and relatives.
fn swizzle(c: &mut Cursor) -> Result<i64> {
    c.take_word();
    c.expect("(")?;
    let kind = c.take_word();
    c.expect(",")?;
    let mut numbers = |n: usize| -> Result<Vec<i64>> {
        let mut out = Vec::new();
        for i in 0..n {
            if i > 0 {
                c.expect(",")?;
            }
            out.push(c.int()?);
        }
        Ok(out)
    };
    let v = match kind {
        "QUAD_PERM" => {
            let n = numbers(4)?;
            0x8000 | n.iter().enumerate().map(|(i, v)| (v & 3) << (2 * i)).sum::<i64>()
        }
        "SWAP" => numbers(1)?[0] << 10 | 0x1f,
        "REVERSE" => (numbers(1)?[0] - 1) << 10 | 0x1f,
        "BROADCAST" => {
            let n = numbers(2)?;
            ((32 - n[0]) & 31) | (n[1] & 31) << 5
        }
        "FFT" => 0xe000 | numbers(1)?[0] & 31,
        "ROTATE" => {
            let n = numbers(2)?;
            0xc000 | (n[0] & 1) << 10 | (n[1] & 31) << 5
        }
        "BITMASK_PERM" => {
            c.expect("\"")?;
            let w = c.take_word();
            c.expect("\"")?;
            if w.len() != 5 {
                return c.fail("expected a mask of five characters");
            }
            let (mut and, mut or, mut xor) = (0, 0, 0);
            for (i, ch) in w.chars().enumerate() {
                let bit = 1 << (4 - i);
                match ch {
                    '0' => {}
                    '1' => or |= bit,
                    'p' => and |= bit,
                    'i' => {
                        and |= bit;
                        xor |= bit;
                    }
                    _ => return c.fail("the mask takes 0, 1, p and i"),
                }
            }
            and | or << 5 | xor << 10
        }
        _ => return c.fail("expected QUAD_PERM, BITMASK_PERM, BROADCAST, SWAP, REVERSE, FFT or ROTATE"),
    };
    c.expect(")")?;
    Ok(v)
}

/// Gives the modifiers to the instruction as the row understands them.
pub(crate) fn apply(target: Target, row: &Row, parts: &Parts, inst: &mut Inst) -> Result<()> {
    let shape = row.shape();
    let has = |name: ModName| row.mods >> name as u32 & 1 == 1;
    let field = |name: ModName| {
        let find = |o: &&&Field| o.role == Role::Mod && o.modifier == name;
        if has(name) { shape.operands.iter().find(find) } else { None }
    };
    // typed buffers: data format 1 unless said
    if field(ModName::Format).is_some() {
        inst.mods.set(ModName::Format, 1);
    }
    if shape.format == "MTBUF"
        && !parts.mods.iter().any(|m| m.1.name == ModName::Format)
        && field(ModName::Format).is_none()
    {
        inst.mods.set(ModName::Format, 1);
    }
    // an SDWA instruction that does not say otherwise keeps the unused bits
    if field(ModName::DstUnused).is_some() {
        inst.mods.set(ModName::DstUnused, 2);
    }
    for (at, m) in &parts.mods {
        let fail = |message: String| ParseError { column: *at, message };
        if m.name == ModName::Lds {
            if !shape.has(word::LDS) && m.value == 1 {
                return Err(fail("`lds` is not possible here".into()));
            }
            if m.value == 1 {
                inst.mods.set(ModName::Lds, 1);
            }
            continue;
        }
        if m.name == ModName::Gds && shape.has(word::GDS_ONLY) {
            continue;
        }
        let known = field(m.name).is_some()
            || (m.name == ModName::Offset && shape.operands.iter().any(|o| o.kind == Kind::SmemOffset));
        let dead = m.value == 0
            && matches!(
                m.name,
                ModName::Cpol
                    | ModName::Tfe
                    | ModName::Lwe
                    | ModName::Unorm
                    | ModName::R128
                    | ModName::A16
                    | ModName::D16
                    | ModName::Omod
                    | ModName::Gds
                    | ModName::Clamp
            );
        if !known {
            if dead {
                continue;
            }
            if m.name == ModName::Blgp && m.list.is_some() && field(ModName::Neg).is_some() {
                inst.mods.set(ModName::Neg, m.value as i32);
                continue;
            }
            return Err(fail("this modifier does not exist in this encoding".into()));
        }
        match m.name {
            ModName::Cpol | ModName::Format if m.part != u64::MAX => {
                let old = inst.mods.get(m.name).unwrap_or(0) as u64;
                inst.mods.set(m.name, ((old & !m.part) | m.value as u64) as i32);
            }
            ModName::Neg => {
                let old = inst.mods.get(ModName::Neg).unwrap_or(0);
                inst.mods.set(ModName::Neg, old | m.value as i32);
            }
            ModName::OpSel => {
                let mut v = m.value;
                if let Some(list) = &m.list {
                    // the last number is the destination's
                    let n = shape
                        .operands
                        .iter()
                        .filter(|o| o.role == Role::Src)
                        .filter_map(|o| o.source_index())
                        .max()
                        .map_or(0, |i| i + 1);
                    let n = if shape.has(word::OPSEL4) && list.len() > 3 { 3 } else { n };
                    let has_dst = field(ModName::OpSel).is_some_and(|o| o.segs.iter().any(|s| s.2 == 3));
                    let dst_at = if list.len() == n + 2 { n + 1 } else { n };
                    if has_dst && list.len() > n && n < 3 {
                        let d = list.get(dst_at).copied().unwrap_or(0) & 1;
                        v = (v & ((1 << n) - 1)) | d << 3;
                    }
                    if !has_dst && list.len() > n {
                        v &= (1 << n) - 1;
                    }
                    if shape.operands.iter().any(|o| o.style == Style::Attr) {
                        // the attribute stands between the two registers
                        v &= !2;
                    }
                    if list.len() > 4 || list.iter().any(|x| !(0..=1).contains(x)) {
                        return Err(fail("expected up to four numbers, 0 or 1".into()));
                    }
                }
                inst.mods.set(ModName::OpSel, v as i32);
            }
            ModName::OpSelHi => {
                let max = field(ModName::OpSelHi).map_or(0, |o| o.max() as i64);
                inst.mods.set(ModName::OpSelHi, (m.value & max) as i32);
            }
            ModName::NegHi => {
                let max = field(ModName::NegHi).map_or(0, |o| o.max() as i64);
                inst.mods.set(ModName::NegHi, (m.value & max) as i32);
            }
            _ => {
                let v = i32::try_from(m.value).map_err(|_| fail("the number is too large".into()))?;
                inst.mods.set(m.name, v);
            }
        }
    }
    for (at, m) in &parts.mods {
        let cpol = inst.mods.get(ModName::Cpol).unwrap_or(0);
        if let Some(what) = m.hint.and_then(|hint| misused(target, row, hint, cpol)) {
            return Err(ParseError { column: *at, message: what.into() });
        }
    }
    if shape.has(word::NO_RETURN) || shape.has(word::RETURN) {
        // the return bit follows from the form; glc or TH_ATOMIC_RETURN only picks it
        if let Some(v) = inst.mods.get(ModName::Cpol) {
            let ret = v & 1 == 1;
            if ret != shape.has(word::RETURN) {
                return Err(ParseError {
                    column: 0,
                    message: "a returning atomic needs a destination, and the other way round".into(),
                });
            }
        } else if shape.has(word::RETURN) {
            return Err(ParseError {
                column: 0,
                message: format!(
                    "a returning atomic needs {}",
                    if target.info().has(Quirk::TemporalHints) { "th:TH_ATOMIC_RETURN" } else { "glc or sc0" }
                ),
            });
        }
    }
    Ok(())
}
