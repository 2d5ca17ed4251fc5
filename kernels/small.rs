//! Floats of 8 and 4 bits, computed as f32: from the code in a byte and back, by integer instructions that every target has.

use crate::mir::{Builder, Gen, Generic, Opnd, Part, Type, matrix_instruction, scaled_instruction};
use crate::tensor::DType;
use crate::tensor::small::{SmallFloat, Special};
use barewave_isa::{Target, op};

/// True for the types that this file converts.
pub(super) fn is_small(t: DType) -> bool {
    SmallFloat::of(t).is_some() || t == DType::F8E8M0
}

/// The types as which a target's matrix instructions multiply two factors of blocks with scales, if they do.
pub(super) fn multiplied_in_blocks(target: Target, factors: [DType; 2]) -> Option<[Type; 2]> {
    let element = |t: DType| match t {
        DType::F8E4M3 => Some(Type::Fp8),
        DType::F8E5M2 => Some(Type::Bf8),
        DType::F4E2M1 => Some(Type::Fp4),
        _ => None,
    };
    let elements = [element(factors[0])?, element(factors[1])?];
    let has = |side: usize| scaled_instruction(target, elements, Type::F32, side).is_some();
    (has(16) || has(32)).then_some(elements)
}

/// The types as which a target's matrix instructions multiply two factors, if they do.
pub(super) fn multiplied(target: Target, factors: [DType; 2]) -> Option<[Type; 2]> {
    let element = |t: DType| {
        let (fnuz, element) = match t {
            DType::F8E4M3 => (false, Type::Fp8),
            DType::F8E4M3Z => (true, Type::Fp8),
            DType::F8E5M2 => (false, Type::Bf8),
            DType::F8E5M2Z => (true, Type::Bf8),
            _ => return None,
        };
        (fnuz == target.info().fnuz).then_some(element)
    };
    let elements = [element(factors[0])?, element(factors[1])?];
    let has = |side: usize| matrix_instruction(target, elements, Type::F32, side).is_some();
    (has(16) || has(32)).then_some(elements)
}

/// The f32 that a code stands for.
pub(super) fn decode(b: &mut Builder, t: DType, code: Part) -> Part {
    let nan = b.to_vector(f32::NAN);
    let Some(f) = SmallFloat::of(t) else {
        // Exponent 0 is a denormal f32, half of the smallest normal one.
        let bits = b.shl(code, 23u32);
        let zero = b.op(Gen::CmpEq.of(Type::U32), &[0u32.into(), code.into()]);
        let least = b.to_vector(0x0040_0000u32);
        let bits = b.select(zero, least, bits);
        let end = b.op(Gen::CmpEq.of(Type::U32), &[255u32.into(), code.into()]);
        return b.select(end, nan, bits);
    };
    let own = b.and(code, u32::from(f.sign() - 1));
    // Normal: the exponent moves to where an f32 has it. Otherwise a small integer times a power of two.
    let wide = b.shl(own, 23 - f.mantissa);
    let normal = b.add(wide, ((127 - f.bias) as u32) << 23);
    let count = b.op(Generic::convert(Type::U32, Type::F32), &[own.into()]);
    let step = 2f32.powi(1 - f.bias - f.mantissa as i32);
    let tiny = b.op(Gen::Mul.of(Type::F32), &[step.into(), count.into()]);
    let is_tiny = b.op(Gen::CmpGt.of(Type::U32), &[(1u32 << f.mantissa).into(), own.into()]);
    let mut x = b.select(is_tiny, tiny, normal);
    if f.special == Special::Ieee {
        let end = u32::from(f.largest()) + 1;
        let inf = b.to_vector(f32::INFINITY);
        let is_inf = b.op(Gen::CmpEq.of(Type::U32), &[end.into(), own.into()]);
        x = b.select(is_inf, inf, x);
        let is_nan = b.op(Gen::CmpLt.of(Type::U32), &[end.into(), own.into()]);
        x = b.select(is_nan, nan, x);
    }
    let sign = b.and(code, u32::from(f.sign()));
    let sign = b.shl(sign, 31 - (f.exponent + f.mantissa));
    let x = b.op(Gen::Or.of(Type::B32), &[sign.into(), x.into()]);
    let code_of_nan = match f.special {
        Special::NanAtEnd => Some((own, u32::from(f.sign() - 1))),
        Special::NanAtMinusZero => Some((code, u32::from(f.sign()))),
        _ => None,
    };
    match code_of_nan {
        None => x,
        Some((which, code)) => {
            let is_nan = b.op(Gen::CmpEq.of(Type::U32), &[code.into(), which.into()]);
            b.select(is_nan, nan, x)
        }
    }
}

/// `x & mask | y`.
pub(super) fn and_or(b: &mut Builder, x: Part, mask: u32, y: Part) -> Part {
    if b.target().has(op::V_AND_OR_B32) {
        let mask = b.scalar(mask);
        return b.op(op::V_AND_OR_B32, &[x.into(), mask.into(), y.into()]);
    }
    let x = b.and(x, mask);
    b.op(Gen::Or.of(Type::B32), &[x.into(), y.into()])
}

/// The codes of a word as pairs of halves: elements `(j, j + half)` of the word's, of floats of 4 bits or of 8 that
/// [fit halves](SmallFloat::fits_halves), and none of which is a NaN that halves do not have. They are so many times too small.
pub(super) fn halves(b: &mut Builder, t: DType, word: Part) -> (Vec<Part>, f32) {
    // A code of 8 bits is a half's high byte but for the length of the exponent and what it counts from.
    let (shift, power) = match SmallFloat::of(t) {
        Some(f) if t != DType::F4E2M1 => (5 - f.exponent, 2f32.powi(15 - f.bias)),
        _ => (0, 1.0),
    };
    let bytes = match t {
        DType::F4E2M1 => {
            // The high bytes of 0, 0.5, 1, 1.5, 2, 3, 4 and 6 as halves, whose low ones are 0.
            let tables = [0x4644_4240u32, 0x3e3c_3800].map(|table| b.to_vector(table));
            let (up, down) = (b.shl(word, 4u32), b.shr(word, 4u32));
            let mut of = |codes: Part, signs: Part| {
                let own = b.and(codes, 0x0707_0707u32);
                let own = b.op(op::V_PERM_B32, &[tables[0].into(), tables[1].into(), own.into()]);
                and_or(b, signs, 0x8080_8080, own)
            };
            vec![of(word, up), of(down, word)]
        }
        _ => vec![word],
    };
    // Bytes 0 and 2, then 1 and 3.
    let mut pairs = Vec::new();
    for (second, bytes) in [false, true].into_iter().flat_map(|second| bytes.iter().map(move |x| (second, *x))) {
        let x = if second { bytes } else { b.shl(bytes, 8u32) };
        let own = if shift > 0 { b.shr(x, shift) } else { x };
        let mask = (0x7f00 >> shift) | if shift > 0 { 0 } else { 0x8000 };
        let own = b.and(own, mask << 16 | mask);
        // Without its type: it is made of integers and taken for halves.
        let pair = if shift > 0 { and_or(b, x, 0x8000_8000, own) } else { own };
        pairs.push(b.to_vector(pair));
    }
    (pairs, power)
}

/// The code nearest to an f32, halves to even; what is too large overflows as the type does.
pub(super) fn encode(b: &mut Builder, t: DType, x: Part) -> Part {
    // Without its type: it is taken for an integer and for a float.
    let x = b.to_vector(x);
    let own = b.and(x, 0x7fff_ffffu32);
    let bits = b.to_vector(own);
    let is_nan = b.op(Gen::CmpLt.of(Type::U32), &[0x7f80_0000u32.into(), bits.into()]);
    let Some(f) = SmallFloat::of(t) else {
        // The nearest power of two, halves up.
        let half = b.add(bits, 0x0040_0000u32);
        let e = b.shr(half, 23u32);
        let most = b.to_vector(254u32);
        let e = b.op(Gen::Min.of(Type::U32), &[e.into(), most.into()]);
        let end = b.to_vector(255u32);
        let infinite = b.op(Gen::CmpEq.of(Type::U32), &[0x7f80_0000u32.into(), bits.into()]);
        let e = b.select(infinite, end, e);
        return b.select(is_nan, end, e);
    };
    let cut = 23 - f.mantissa;
    // Half a unit less one, and one more where the last bit that stays is set.
    let last = b.shr(bits, cut);
    let last = b.and(last, 1u32);
    let up = b.add(bits, (1u32 << (cut - 1)) - 1);
    let up = b.add(up, last);
    let q = b.shr(up, cut);
    let normal = b.sub(q, ((127 - f.bias) as u32) << f.mantissa);
    let steps = 2f32.powi(f.bias - 1 + f.mantissa as i32);
    let tiny = b.op(Gen::Mul.of(Type::F32), &[steps.into(), bits.into()]);
    let tiny = b.op(Gen::Round.of(Type::F32), &[tiny.into()]);
    let tiny = b.op(Generic::convert(Type::F32, Type::U32), &[tiny.into()]);
    let least = ((128 - f.bias) as u32) << 23;
    let is_tiny = b.op(Gen::CmpGt.of(Type::U32), &[least.into(), bits.into()]);
    let code = b.select(is_tiny, tiny, normal);
    let beyond = b.to_vector(u32::from(f.overflow()));
    let over = b.op(Gen::CmpLt.of(Type::U32), &[u32::from(f.largest()).into(), code.into()]);
    let code = b.select(over, beyond, code);
    let sign = b.shr(x, 31 - (f.exponent + f.mantissa));
    let sign = b.and(sign, u32::from(f.sign()));
    let nan = b.to_vector(u32::from(f.nan().unwrap_or(f.sign())));
    if f.special != Special::NanAtMinusZero {
        let code = b.select(is_nan, nan, code);
        return b.op(Gen::Or.of(Type::B32), &[sign.into(), code.into()]);
    }
    // Neither zero nor NaN has a sign.
    let zero = b.op(Gen::CmpEq.of(Type::U32), &[0u32.into(), code.into()]);
    let none: Opnd = 0u32.into();
    let none = b.to_vector(none);
    let sign = b.select(zero, none, sign);
    let signed = b.op(Gen::Or.of(Type::B32), &[sign.into(), code.into()]);
    b.select(is_nan, nan, signed)
}
