//! Floats of 8 and 4 bits, computed as f32: from the code in a byte and back, by integer instructions that every target has.

use super::values;
use crate::mir::{Builder, Gen, MInst, Part, Type, matrix_instruction, scaled_instruction};
use crate::tensor::DType;
use crate::tensor::small::{SmallFloat, Special};
use barewave_isa::{ModName, Mods, Op, OpInfo, Target, op};

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
    // Infinities are those of halves, whose upper bytes such codes are.
    if f.special == Special::Ieee {
        let half = b.shl(code, 8u32);
        // Without its type: it is made of integers and taken for a half.
        let half = b.to_vector(half);
        return values::widened(b, Type::F16, half, 0);
    }
    // Exponent and mantissa where an f32 has them: a number a power of two too small, which is denormal where the code is.
    let high = b.shl(code, 31 - (f.exponent + f.mantissa));
    let own = b.op(Gen::Shr.of(Type::I32), &[high.into(), (8 - f.exponent).into()]);
    let own = b.and(own, 0x8000_0000 | u32::from(f.sign() - 1) << (23 - f.mantissa));
    // Without its type: it is made of integers and taken for a float.
    let own = b.to_vector(own);
    let x = b.op(Gen::Mul.of(Type::F32), &[2f32.powi(127 - f.bias).into(), own.into()]);
    let is_nan = match f.special {
        // What the code would stand for if it were a number.
        Special::NanAtEnd => {
            let mantissa = 2.0 - 2f32.powi(-(f.mantissa as i32));
            let end = b.scalar((mantissa * 2f32.powi((1 << f.exponent) - 1 - f.bias)).to_bits());
            let (is_nan, mods) = (b.mask(), Mods::new().with(ModName::Abs, 0b10));
            b.push(MInst { mods, ..MInst::new(op::V_CMP_EQ_F32, &[is_nan.into()], &[end.into(), x.into()]) });
            is_nan
        }
        Special::NanAtMinusZero => b.op(Gen::CmpEq.of(Type::U32), &[u32::from(f.sign()).into(), code.into()]),
        Special::Ieee | Special::None => return x,
    };
    b.select(is_nan, nan, x)
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

/// The instruction that makes two floats codes of a type, where a target has one that writes them to either half of a register.
fn conversion_of_two(target: Target, t: DType) -> Option<Op> {
    let (fnuz, both) = match t {
        DType::F8E4M3 => (false, op::V_CVT_PK_FP8_F32),
        DType::F8E4M3Z => (true, op::V_CVT_PK_FP8_F32),
        DType::F8E5M2 => (false, op::V_CVT_PK_BF8_F32),
        DType::F8E5M2Z => (true, op::V_CVT_PK_BF8_F32),
        _ => return None,
    };
    let writes_halves = |i: &OpInfo| i.dsts.first().is_some_and(|d| d.bits == 32);
    (fnuz == target.info().fnuz && target.op(both).is_some_and(writes_halves)).then_some(both)
}

/// The codes of two or four floats in the bytes of a word, as [`encode`] has each, where the target has an instruction for two.
pub(super) fn encode_together(b: &mut Builder, t: DType, floats: &[Part]) -> Option<Part> {
    let both = conversion_of_two(b.target(), t)?;
    let word = b.v(1);
    b.copy_into(word, 0u32);
    for (two, half) in floats.chunks_exact(2).zip([0, 0b1000]) {
        let mods = Mods::new().with(ModName::OpSel, half);
        b.push(MInst { mods, ..MInst::new(both, &[word.into()], &[two[0].into(), two[1].into()]) });
    }
    Some(word)
}

/// The code nearest to an f32, halves to even; what is too large overflows as the type does.
pub(super) fn encode(b: &mut Builder, t: DType, x: Part) -> Part {
    // Without its type: it is taken for an integer and for a float.
    let x = b.to_vector(x);
    let own = b.and(x, 0x7fff_ffffu32);
    let bits = b.to_vector(own);
    let is_nan = b.op(Gen::CmpLt.of(Type::U32), &[0x7f80_0000u32.into(), bits.into()]);
    let Some(f) = SmallFloat::of(t) else {
        // The nearest power of two, halves up, but for that of denormals, which is the least power.
        let denormal = b.op(Gen::CmpGt.of(Type::U32), &[0x0080_0000u32.into(), bits.into()]);
        let [less, half] = [0x003f_ffffu32, 0x0040_0000].map(|half| b.to_vector(half));
        let half = b.select(denormal, less, half);
        let half = b.add(bits, half);
        let e = b.shr(half, 23u32);
        let most = b.to_vector(254u32);
        let e = b.op(Gen::Min.of(Type::U32), &[e.into(), most.into()]);
        let end = b.to_vector(255u32);
        let infinite = b.op(Gen::CmpEq.of(Type::U32), &[0x7f80_0000u32.into(), bits.into()]);
        let e = b.select(infinite, end, e);
        return b.select(is_nan, end, e);
    };
    let cut = 23 - f.mantissa;
    // Half a unit less one, and one more where the last bit that stays is set; and the exponent counts from elsewhere.
    let last = b.op(op::V_BFE_U32, &[bits.into(), cut.into(), 1u32.into()]);
    let more = ((1u32 << (cut - 1)) - 1).wrapping_sub(((127 - f.bias) as u32) << 23);
    let up = sum_of_three(b, bits, last, more);
    let normal = b.shr(up, cut);
    // Numbers below those with an exponent: the last bits of a sum are as large as theirs.
    let unit = 2f32.powi(1 - f.bias - f.mantissa as i32 + 23);
    let sum = b.op(Gen::Add.of(Type::F32), &[unit.into(), bits.into()]);
    let sum = b.to_vector(sum);
    let tiny = b.sub(sum, unit.to_bits());
    let least = ((128 - f.bias) as u32) << 23;
    let is_tiny = b.op(Gen::CmpGt.of(Type::U32), &[least.into(), bits.into()]);
    let code = b.select(is_tiny, tiny, normal);
    // NaN is larger than any number, too.
    let code = b.op(Gen::Min.of(Type::U32), &[u32::from(f.overflow()).into(), code.into()]);
    let sign = b.shr(x, 31 - (f.exponent + f.mantissa));
    if f.special == Special::NanAtMinusZero {
        // Neither zero nor NaN has a sign: what else is there carries into its bit.
        let own = b.and(code, u32::from(f.sign() - 1));
        let carried = b.add(own, u32::from(f.sign() - 1));
        let sign = b.and(sign, carried);
        return and_or(b, sign, f.sign().into(), code);
    }
    let code = match (f.special, f.nan()) {
        (Special::Ieee, Some(nan)) => {
            let nan = b.to_vector(u32::from(nan));
            b.select(is_nan, nan, code)
        }
        _ => code,
    };
    let own = b.scalar((f.sign() - 1).into());
    let signed = b.op(op::V_BFI_B32, &[own.into(), code.into(), sign.into()]);
    if f.special != Special::None {
        return signed;
    }
    let nan = b.to_vector(u32::from(f.sign()));
    b.select(is_nan, nan, signed)
}

/// `x + y + constant`.
fn sum_of_three(b: &mut Builder, x: Part, y: Part, constant: u32) -> Part {
    if b.target().has(op::V_ADD3_U32) {
        let constant = b.scalar(constant);
        return b.op(op::V_ADD3_U32, &[x.into(), y.into(), constant.into()]);
    }
    let x = b.add(x, constant);
    b.add(x, y)
}
