//! Reads the notations that [`crate::syntax`] prints.

use crate::Quirk;
use crate::model::table::Style;
use crate::model::waits::{pack, unpack};
use crate::text::lex::{Cursor, ParseError, Result};
use crate::text::parse::What;
use crate::text::syntax::{self, DELAYS, GPRIDX, GS_OPS, SKIPS, SYS_OPS, VERSIONS};
use crate::{Counter, Target};

/// Takes a notation of the given style, if one stands here.
pub(crate) fn field(target: Target, style: Style, c: &mut Cursor) -> Result<Option<What>> {
    c.skip();
    let word = c.word();
    let value = match style {
        Style::HwReg if word == "hwreg" => hwreg(target, c)?,
        Style::HwReg if c.rest().starts_with('{') => fields(c, &[("id", 6, 0), ("offset", 5, 0), ("size", 5, 32)])?,
        Style::Message if word == "sendmsg" => message(target, c)?,
        Style::Waitcnt if word.ends_with("cnt") || word.ends_with("cnt_sat") => waitcnt(target, c)?,
        Style::DepCtr if word.starts_with("depctr_") => depctr(target, c)?,
        Style::Delay if word.starts_with("inst") => delay(c)?,
        Style::GprIdx if word == "gpr_idx" => gpridx(c)?,
        Style::Version if word.starts_with("UC_VERSION") || c.rest().contains("UC_VERSION") => version(c)?,
        Style::Attr | Style::Slot | Style::AttrChan if word.starts_with("attr") => {
            let start = c.at;
            c.at += word.len();
            let (number, chan) = match word["attr".len()..].split_once('.') {
                Some((n, ch)) => (n, "xyzw".find(ch).filter(|_| ch.len() == 1)),
                None => (&word["attr".len()..], None),
            };
            let (Ok(n), Some(ch)) = (number.parse::<u64>(), chan) else {
                return Err(ParseError { column: start, message: "expected an attribute like attr0.x".into() });
            };
            return Ok(Some(What::AttrChan(n, ch as u64)));
        }
        Style::Slot | Style::Attr if matches!(word, "p10" | "p20" | "p0") || word.starts_with("invalid_param_") => {
            c.at += word.len();
            match word {
                "p10" => 0,
                "p20" => 1,
                "p0" => 2,
                _ => word["invalid_param_".len()..].parse().unwrap_or(3),
            }
        }
        Style::ExpTgt => match export_target(target, word) {
            Some(v) => {
                c.at += word.len();
                v
            }
            None => return Ok(None),
        },
        _ => return Ok(None),
    };
    Ok(Some(What::Field(value)))
}

fn export_target(target: Target, word: &str) -> Option<u64> {
    let has = |quirk| target.info().has(quirk);
    let number = |prefix: &str, base: u64, n: u64| {
        word.strip_prefix(prefix).and_then(|d| d.parse::<u64>().ok()).filter(|&d| d < n).map(|d| base + d)
    };
    match word {
        "mrtz" => return Some(8),
        "null" => return Some(9),
        "prim" if has(Quirk::PrimExport) => return Some(20),
        "dual_src_blend0" if has(Quirk::DualBlendExport) => return Some(21),
        "dual_src_blend1" if has(Quirk::DualBlendExport) => return Some(22),
        _ => {}
    }
    number("mrt", 0, 8)
        .or_else(|| number("pos", 12, if has(Quirk::PrimExport) { 5 } else { 4 }))
        .or_else(|| number("param", 32, 32))
        .or_else(|| number("invalid_target_", 0, 64))
}

/// `{id: 1, offset: 0, size: 32}`.
fn fields(c: &mut Cursor, list: &[(&str, u32, i64)]) -> Result<u64> {
    c.expect("{")?;
    let mut values: Vec<i64> = list.iter().map(|f| f.2).collect();
    loop {
        if c.eat("}") {
            break;
        }
        let w = c.take_word();
        c.expect(":")?;
        let v = c.int()?;
        match list.iter().position(|f| f.0 == w) {
            Some(i) => values[i] = v,
            None => return c.fail(format!("unknown field `{w}`")),
        }
        c.eat(",");
    }
    hwreg_value(c, values[0], values[1], values[2])
}

fn hwreg_value(c: &Cursor, id: i64, offset: i64, size: i64) -> Result<u64> {
    if !(0..64).contains(&id) || !(0..32).contains(&offset) || !(1..=32).contains(&size) {
        return c.fail("expected a register from 0 to 63, an offset from 0 to 31, a size from 1 to 32");
    }
    Ok((id | offset << 6 | (size - 1) << 11) as u64)
}

fn hwreg(target: Target, c: &mut Cursor) -> Result<u64> {
    c.take_word();
    c.expect("(")?;
    c.skip();
    let start = c.at;
    let w = c.word();
    let id = match w.strip_prefix("HW_REG_") {
        Some(n) => {
            c.at += w.len();
            let found = syntax::id_of(syntax::hwregs(target), n);
            // older names of the same registers
            let old = match n {
                "HW_ID" => syntax::id_of(syntax::hwregs(target), "HW_ID1"),
                _ => syntax::id_of(syntax::hwregs(target), &format!("WAVE_{n}")),
            };
            found.or(old).ok_or_else(|| ParseError {
                column: start,
                message: format!("{target} has no hardware register `{w}`"),
            })? as i64
        }
        None => c.int()?,
    };
    let (mut offset, mut size) = (0, 32);
    if c.eat(",") {
        offset = c.int()?;
        c.expect(",")?;
        size = c.int()?;
    }
    c.expect(")")?;
    hwreg_value(c, id, offset, size)
}

fn message(target: Target, c: &mut Cursor) -> Result<u64> {
    let wide = target.info().has(Quirk::WideMessages);
    c.take_word();
    c.expect("(")?;
    c.skip();
    let start = c.at;
    let w = c.word();
    let id = match w.strip_prefix("MSG_") {
        Some(n) => {
            c.at += w.len();
            syntax::id_of(syntax::messages(target), n)
                .ok_or_else(|| ParseError { column: start, message: format!("{target} has no message `{w}`") })?
                as i64
        }
        None => c.int()?,
    };
    let (mut op, mut stream) = (0, 0);
    if c.eat(",") {
        let w = c.word();
        op = if let Some(i) = GS_OPS.iter().position(|o| *o == w) {
            c.at += w.len();
            i as i64
        } else if let Some(i) = SYS_OPS.iter().position(|o| *o == w && !o.is_empty()) {
            c.at += w.len();
            i as i64
        } else {
            c.int()?
        };
        if c.eat(",") {
            stream = c.int()?;
        }
    }
    c.expect(")")?;
    let limit = if wide { 256 } else { 16 };
    if !(0..limit).contains(&id) || !(0..8).contains(&op) || !(0..4).contains(&stream) {
        return c.fail("message, operation or stream out of range");
    }
    Ok(if wide { id as u64 } else { (id | op << 4 | stream << 8) as u64 })
}

fn waitcnt(target: Target, c: &mut Cursor) -> Result<u64> {
    let mut values = [(Counter::Vm, None), (Counter::Exp, None), (Counter::Lgkm, None)];
    loop {
        c.skip();
        let start = c.at;
        let w = c.take_word();
        let (name, saturate) = w.strip_suffix("_sat").map_or((w, false), |n| (n, true));
        let counter = match name {
            "vmcnt" => Counter::Vm,
            "expcnt" => Counter::Exp,
            "lgkmcnt" => Counter::Lgkm,
            _ => return Err(ParseError { column: start, message: format!("`{w}` is no counter") }),
        };
        c.expect("(")?;
        let v = c.int()?;
        c.expect(")")?;
        let max = unpack(target, 0xffff, counter) as i64;
        if !saturate && !(0..=max).contains(&v) {
            return Err(ParseError { column: start, message: format!("{name} holds 0 to {max}") });
        }
        for slot in &mut values {
            if slot.0 == counter {
                slot.1 = Some(v.clamp(0, max) as u64);
            }
        }
        if !(c.eat("&") || c.eat(",") || c.word().ends_with("cnt") || c.word().ends_with("_sat")) {
            break;
        }
    }
    Ok(pack(target, |k| values.iter().find(|v| v.0 == k).and_then(|v| v.1).unwrap_or(unpack(target, 0xffff, k))))
}

fn depctr(target: Target, c: &mut Cursor) -> Result<u64> {
    let mut v = syntax::depctr_default(target);
    loop {
        c.skip();
        let start = c.at;
        let w = c.take_word();
        let Some(&(name, lo, n)) = syntax::DEPCTR_FIELDS.iter().find(|f| f.0 == w) else {
            return Err(ParseError { column: start, message: format!("`{w}` is no field of the dependency counters") });
        };
        if name == "depctr_hold_cnt" && !syntax::has_hold_cnt(target) {
            return Err(ParseError { column: start, message: format!("{target} has no depctr_hold_cnt") });
        }
        c.expect("(")?;
        let x = c.int()?;
        c.expect(")")?;
        if x < 0 || x >= 1 << n {
            return Err(ParseError { column: start, message: format!("{name} holds 0 to {}", (1 << n) - 1) });
        }
        v = (v & !(((1 << n) - 1) << lo)) | (x as u64) << lo;
        if !(c.eat("&") || c.eat(",") || c.word().starts_with("depctr_")) {
            return Ok(v);
        }
    }
}

fn delay(c: &mut Cursor) -> Result<u64> {
    let mut v = 0;
    loop {
        c.skip();
        let start = c.at;
        let w = c.take_word();
        let (shift, list): (u32, &[&str]) = match w {
            "instid0" => (0, &DELAYS),
            "instskip" => (4, &SKIPS),
            "instid1" => (7, &DELAYS),
            _ => return Err(ParseError { column: start, message: "expected instid0, instskip or instid1".into() }),
        };
        c.expect("(")?;
        c.skip();
        let at = c.at;
        let name = c.take_word();
        let Some(i) = list.iter().position(|n| *n == name) else {
            return Err(ParseError { column: at, message: format!("expected one of {}", list.join(", ")) });
        };
        v |= (i as u64) << shift;
        c.expect(")")?;
        if !c.eat("|") {
            return Ok(v);
        }
    }
}

fn gpridx(c: &mut Cursor) -> Result<u64> {
    c.take_word();
    c.expect("(")?;
    let mut v = 0;
    while !c.eat(")") {
        let w = c.take_word();
        match GPRIDX.iter().position(|n| *n == w) {
            Some(i) => v |= 1 << i,
            None => return c.fail("expected SRC0, SRC1, SRC2 or DST"),
        }
        c.eat(",");
    }
    Ok(v)
}

fn version(c: &mut Cursor) -> Result<u64> {
    let mut v = 0;
    loop {
        while c.eat("(") {}
        c.skip();
        let w = c.word();
        let bits = match w {
            "UC_VERSION_W64_BIT" => 1 << 13,
            "UC_VERSION_W32_BIT" => 1 << 14,
            "UC_VERSION_MDP_BIT" => 1 << 15,
            _ => match VERSIONS.iter().find(|x| x.1 == w && !w.is_empty()) {
                Some(x) => x.0,
                None if matches!(w.parse::<u64>(), Ok(0..=255)) => w.parse().unwrap_or(0),
                None => return c.fail("expected a version name"),
            },
        };
        c.at += w.len();
        v |= bits;
        while c.eat(")") {}
        if !c.eat("|") {
            return Ok(v);
        }
    }
}
