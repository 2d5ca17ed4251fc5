//! What a number in assembly text means to an operand: integers and floating-point values at the operand's type.

use crate::Type;
use crate::model::table::{At, Kind, Operand as Field, Role, Row, Style};
use crate::text::lex::{Base, Value};
use crate::text::parse::{Arg, Context, PLACEHOLDER};

/// Why a number cannot be an operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Misfit {
    /// Of a branch: the label.
    #[error("the branch target is out of reach or not aligned to 4 bytes")]
    Target,
    /// Of a branch: the number.
    #[error("expected a 16-bit branch distance")]
    Distance,
    /// It needs more bits than these.
    #[error("the constant does not fit {0} bits")]
    Bits(u8),
}

/// The bits of a number that may become a 64-bit literal (gfx1250), or is marked as a literal.
pub(crate) fn literal(cx: &Context, row: &Row, o: &Field, a: &Arg, v: Value) -> Result<u64, Misfit> {
    let known = !v.late && v.base == Base::None;
    if o.bits != 64 || !known || !matches!(o.role, Role::Src) {
        return constant(cx, o, v);
    }
    let double = o.ty == Type::F64 || o.style == Style::K64;
    let wide = cx.target.codes().has_long_literals()
        && (row.bytes == 4 || row.shape().field(At::Constant).is_some_and(|k| k.style == Style::K64));
    Ok(match (wide, v.float) {
        (true, _) if a.lit64 => v.number as u64,
        (true, true) if a.lit && double => v.number as u64 >> 32,
        (true, true) if double => v.number as u64,
        (true, false) if a.lit || o.ty == Type::I64 => v.number as u64,
        (true, false) if o.style == Style::K64 && u32::try_from(v.number).is_ok() => (v.number as u64) << 32,
        (false, false) if a.lit && double && u32::try_from(v.number).is_ok() => (v.number as u64) << 32,
        _ => constant(cx, o, v)?,
    })
}

/// The bits that a number means to an operand.
pub(crate) fn constant(cx: &Context, o: &Field, v: Value) -> Result<u64, Misfit> {
    if o.style == Style::Label {
        if v.base == Base::Linked {
            return Ok(0);
        }
        if v.base == Base::Here {
            let d = v.number - (cx.pc + 4);
            if d % 4 != 0 || !(-32768..=32767).contains(&(d / 4)) {
                return Err(Misfit::Target);
            }
            return Ok((d / 4) as u64);
        }
        if !(-32768..=65535).contains(&v.number) {
            return Err(Misfit::Distance);
        }
        return Ok(v.number as i16 as i64 as u64);
    }
    let field = matches!(o.kind, Kind::Imm | Kind::ImmSigned | Kind::SmemOffset);
    if !field && (v.late || v.base != Base::None) {
        cx.patch.number.set(Some(v.number));
        return Ok(match () {
            () if cx.patch.wide.get() && o.bits == 64 => PLACEHOLDER << 32 | PLACEHOLDER,
            () if o.ty == Type::F64 && o.bits == 64 => PLACEHOLDER << 32,
            () => PLACEHOLDER,
        });
    }
    if !v.float {
        let n = v.number;
        return Ok(match o.ty {
            Type::F64 if o.bits == 64 && !(-16..=64).contains(&n) => {
                if (-(1i64 << 31)..1i64 << 32).contains(&n) {
                    u64::from(n as u32) << 32
                } else {
                    n as u64
                }
            }
            _ if o.kind == Kind::Imm || o.kind == Kind::ImmSigned || o.kind == Kind::SmemOffset => n as u64,
            Type::I64 if (0..1i64 << 32).contains(&n) && !(-16..=64).contains(&n) => i64::from(n as u32 as i32) as u64,
            Type::U64 | Type::B64 if (-(1i64 << 31)..-16).contains(&n) => u64::from(n as u32),
            _ if crate::model::codes::constant_bits(o.ty, o.bits) == 64 => n as u64,
            _ if crate::model::codes::constant_bits(o.ty, o.bits) == 16 => {
                if !(-32768..=65535).contains(&n) {
                    return Err(Misfit::Bits(16));
                }
                n as u64 & 0xffff_ffff
            }
            _ => {
                if !(-(1i64 << 31)..1i64 << 32).contains(&n) {
                    return Err(Misfit::Bits(32));
                }
                n as u64 & 0xffff_ffff
            }
        });
    }
    let x = f64::from_bits(v.number as u64);
    Ok(match o.ty {
        Type::F16 | Type::PkF16 | Type::I16 | Type::U16 | Type::B16 => u64::from(half_bits(x)),
        Type::Bf16 | Type::PkBf16 => u64::from(bf16_bits(x)),
        _ if o.style == Style::K16 => u64::from(half_bits(x)),
        Type::PkF32 => u64::from((x as f32).to_bits()),
        Type::F64 if o.bits == 64 && crate::model::codes::inline_code(x.to_bits(), o.ty, o.bits).is_none() => {
            x.to_bits() & !0xffff_ffff
        }
        _ if o.bits == 64 && o.style != Style::K32 => x.to_bits(),
        _ => u64::from((x as f32).to_bits()),
    })
}

/// f64 to bf16 by way of f32, round to nearest even; the inline constant 1/(2*pi) is cut off.
fn bf16_bits(x: f64) -> u16 {
    let b = (x as f32).to_bits();
    if b == 0x3e22_f983 {
        return 0x3e22;
    }
    if x.is_nan() { 0x7fc0 } else { ((u64::from(b) + 0x7fff + u64::from(b >> 16 & 1)) >> 16) as u16 }
}

/// f64 to f16, round to nearest even.
pub(crate) fn half_bits(x: f64) -> u16 {
    let b = x.to_bits();
    let sign = (b >> 48) as u16 & 0x8000;
    let exp = (b >> 52 & 0x7ff) as i32 - 1023;
    let frac = b & ((1 << 52) - 1);
    if exp == 1024 {
        return sign | if frac == 0 { 0x7c00 } else { 0x7e00 };
    }
    if exp > 15 {
        return sign | 0x7c00;
    }
    let (mant, shift) = if exp >= -14 { (frac | 1 << 52, 42) } else { (frac | 1 << 52, 42 + (-14 - exp)) };
    if shift > 63 {
        return sign;
    }
    let (q, rest, tie) = (mant >> shift, mant & ((1 << shift) - 1), 1u64 << (shift - 1));
    let q = q + u64::from(rest > tie || (rest == tie && q & 1 == 1));
    let out = if exp >= -14 { ((exp + 14) as u64).wrapping_shl(10) + q } else { q };
    sign | out.min(0x7c00) as u16
}
