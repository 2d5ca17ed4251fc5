//! Registers in assembly text: `v7`, `s[4:5]`, `a[0:3]`, `v1.l`, lists of registers, and the special ones by name.

use crate::text::lex::{Cursor, ParseError, Result};
use crate::{Half, Reg, Regs};
use smallvec::SmallVec;

/// True when `v7`, `s[4:5]` or the like stands at the cursor.
#[inline]
pub(crate) fn plain_register(c: &Cursor) -> bool {
    let b = c.text.as_bytes();
    matches!(c.peek(), b'v' | b's' | b'a') && b.get(c.at + 1).is_some_and(|n| n.is_ascii_digit() || *n == b'[')
}

/// `v7`, `s[4:5]` in their usual spelling; anything else is left to [`register`].
#[inline]
pub(crate) fn usual_register(c: &mut Cursor) -> Option<Regs> {
    let b = c.text.as_bytes();
    let (base, limit) = match c.peek() {
        b'v' => (Reg::V0, 256),
        b's' => (Reg::S0, 106),
        b'a' => (Reg::A0, 256),
        _ => return None,
    };
    let mut at = c.at + 1;
    let bracket = b.get(at) == Some(&b'[');
    at += usize::from(bracket);
    let number = |at: &mut usize| -> Option<u16> {
        let start = *at;
        let mut n = 0u16;
        while let Some(d) = b.get(*at).filter(|d| d.is_ascii_digit()) {
            n = n * 10 + u16::from(d - b'0');
            *at += 1;
            if *at - start > 3 {
                return None;
            }
        }
        (*at > start && (b[start] != b'0' || *at == start + 1)).then_some(n)
    };
    let first = number(&mut at)?;
    let mut last = first;
    if bracket {
        if b.get(at) != Some(&b':') {
            return None;
        }
        at += 1;
        last = number(&mut at)?;
        if b.get(at) != Some(&b']') || last < first || last - first > 31 {
            return None;
        }
        at += 1;
    }
    if last >= limit || b.get(at).is_some_and(|&n| !matches!(n, b',' | b' ' | b'|' | b')')) {
        return None;
    }
    c.at = at;
    Some(Regs::new(base.offset(first), (last - first + 1) as u8))
}

/// True when a register or an absolute value follows a minus sign.
pub(crate) fn is_register_ahead(rest: &str) -> bool {
    let rest = rest.trim_start();
    if rest.starts_with('|') || rest.starts_with('[') {
        return true;
    }
    let word: String = rest.chars().take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.')).collect();
    special_register(&word).is_some()
        || matches!(word.as_str(), "abs" | "sext")
        || ["v", "s", "a", "ttmp"].iter().any(|p| {
            word.strip_prefix(p).is_some_and(|n| {
                (n.is_empty() && rest[word.len()..].starts_with('['))
                    || (!n.is_empty()
                        && n.trim_end_matches(".l").trim_end_matches(".h").chars().all(|c| c.is_ascii_digit()))
            })
        })
}

/// Special registers by name: first register and dwords (0: as the mode says).
fn special_register(name: &str) -> Option<(Reg, u8)> {
    Some(match name {
        "vcc" => (Reg::VCC_LO, 2),
        "vcc_lo" => (Reg::VCC_LO, 1),
        "vcc_hi" => (Reg::VCC_HI, 1),
        "exec" => (Reg::EXEC_LO, 2),
        "exec_lo" => (Reg::EXEC_LO, 1),
        "exec_hi" => (Reg::EXEC_HI, 1),
        "flat_scratch" => (Reg::FLAT_SCRATCH_LO, 2),
        "flat_scratch_lo" => (Reg::FLAT_SCRATCH_LO, 1),
        "flat_scratch_hi" => (Reg::FLAT_SCRATCH_HI, 1),
        "xnack_mask" => (Reg::XNACK_MASK_LO, 2),
        "xnack_mask_lo" => (Reg::XNACK_MASK_LO, 1),
        "xnack_mask_hi" => (Reg::XNACK_MASK_HI, 1),
        "tba" => (Reg::TBA_LO, 2),
        "tba_lo" => (Reg::TBA_LO, 1),
        "tba_hi" => (Reg::TBA_HI, 1),
        "tma" => (Reg::TMA_LO, 2),
        "tma_lo" => (Reg::TMA_LO, 1),
        "tma_hi" => (Reg::TMA_HI, 1),
        "m0" => (Reg::M0, 1),
        "null" => (Reg::NULL, 1),
        "scc" | "src_scc" => (Reg::SCC, 1),
        "vccz" | "src_vccz" => (Reg::VCCZ, 1),
        "execz" | "src_execz" => (Reg::EXECZ, 1),
        "lds_direct" | "src_lds_direct" => (Reg::LDS_DIRECT, 1),
        "shared_base" | "src_shared_base" => (Reg::SHARED_BASE, 2),
        "shared_limit" | "src_shared_limit" => (Reg::SHARED_LIMIT, 2),
        "private_base" | "src_private_base" => (Reg::PRIVATE_BASE, 2),
        "private_limit" | "src_private_limit" => (Reg::PRIVATE_LIMIT, 2),
        "pops_exiting_wave_id" | "src_pops_exiting_wave_id" => (Reg::POPS_EXITING_WAVE_ID, 1),
        "src_flat_scratch_base_lo" => (Reg::FLAT_SCRATCH_BASE_LO, 1),
        "src_flat_scratch_base_hi" => (Reg::FLAT_SCRATCH_BASE_HI, 1),
        _ => return None,
    })
}

/// A register, a range or a list, if one stands here.
pub(crate) fn register(c: &mut Cursor) -> Result<Option<Regs>> {
    c.skip();
    let start = c.at;
    if c.rest().starts_with('[') {
        return list(c).map(Some);
    }
    let word = c.word();
    let lower;
    let word = if word.bytes().any(|c| c.is_ascii_uppercase()) {
        lower = word.to_ascii_lowercase();
        lower.as_str()
    } else {
        word
    };
    if let Some((reg, dwords)) = special_register(word) {
        c.at += word.len();
        return Ok(Some(Regs::new(reg, dwords)));
    }
    for (prefix, base) in [("ttmp", Reg::TTMP0), ("v", Reg::V0), ("s", Reg::S0), ("a", Reg::A0), ("acc", Reg::A0)] {
        let Some(number) = word.strip_prefix(prefix) else { continue };
        if number.is_empty() {
            if !c.rest()[word.len()..].trim_start().starts_with('[') {
                continue;
            }
            c.at += word.len();
            c.expect("[")?;
            let first = c.int()?;
            let last = if c.eat(":") { c.int()? } else { first };
            c.expect("]")?;
            if first < 0 || last < first || last - first > 31 || last > 1023 {
                return Err(ParseError {
                    column: start,
                    message: "expected a range like [0:3], at most 32 registers".into(),
                });
            }
            let half = half(c);
            return Ok(Some(Regs { first: base.offset(first as u16), dwords: (last - first + 1) as u8, half }));
        }
        let (digits, half) = match (number.strip_suffix(".l"), number.strip_suffix(".h")) {
            (Some(d), _) => (d, Half::Lo),
            (_, Some(d)) => (d, Half::Hi),
            _ => (number, Half::Full),
        };
        if let Ok(n) = digits.parse::<u16>()
            && (digits.len() == 1 || !digits.starts_with('0'))
        {
            if n > 1023 {
                return Err(ParseError { column: start, message: format!("there is no register {word}") });
            }
            let limit = match base {
                Reg::V0 => 1024,
                Reg::A0 => 256,
                Reg::S0 => 128,
                _ => 16,
            };
            if n >= limit {
                return Err(ParseError { column: start, message: format!("there is no register {word}") });
            }
            c.at += word.len();
            return Ok(Some(Regs { first: base.offset(n), dwords: 1, half }));
        }
    }
    Ok(None)
}

fn half(c: &mut Cursor) -> Half {
    if c.rest().starts_with(".l") {
        c.at += 2;
        Half::Lo
    } else if c.rest().starts_with(".h") {
        c.at += 2;
        Half::Hi
    } else {
        Half::Full
    }
}

/// `[v0, v1, v2]`: the registers as they stand.
pub(crate) fn registers(c: &mut Cursor) -> Result<SmallVec<[Regs; 5]>> {
    c.expect("[")?;
    let mut out = SmallVec::new();
    loop {
        // a list in a list would be no register
        c.skip();
        let Some(r) = (if c.rest().starts_with('[') { None } else { register(c)? }) else {
            return c.fail("expected a register");
        };
        out.push(r);
        if c.eat("]") {
            return Ok(out);
        }
        c.expect(",")?;
    }
}

/// `[v0, v1, v2]`: consecutive registers as one run.
fn list(c: &mut Cursor) -> Result<Regs> {
    let start = c.at;
    let parts = registers(c)?;
    let fail = |message: &str| Err(ParseError { column: start, message: message.into() });
    let Some((&first, rest)) = parts.split_first() else { return fail("empty list") };
    let mut out = first;
    for r in rest {
        if r.first != out.first.offset(u16::from(out.dwords)) {
            return fail("registers of a list must be consecutive");
        }
        if out.dwords + r.dwords > 32 {
            return fail("at most 32 registers");
        }
        out = Regs::new(out.first, out.dwords + r.dwords);
    }
    Ok(out)
}
