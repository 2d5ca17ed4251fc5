//! Sine, cosine and tangent of every f32, within 2 ULP (tangent 3).
//!
//! An argument is reduced to `x = q π/2 + r` with `|r| <= π/4`; the quadrant `q` says which of two polynomials of `r`
//! the result is, and its sign. Below π/4 `r` is `x`. Above, the reduction is Payne and Hanek's (1983): with
//! `|x| = m 2^s` and `m` an integer of 24 bits, the bits of 2/π that make multiples of 4 in `m 2^s 2/π` do not matter,
//! and those far behind its point do not either. What remains is a window of 96 bits of 2/π, whose place depends on the
//! exponent alone; its product with `m` has the quadrant in its two top bits and 62 exact bits of the fraction below.
//! No f32 is closer to a multiple of π/2 than 2^-30, so at least 32 bits of `r` are right for every `x`; `r` goes on as
//! the sum of two floats.
//!
//! The hardware's own `v_sin_f32` takes revolutions: its argument has an error of half a ULP of `x / 2π`, which is all of
//! the result for large `x` and near the zeros. It is not used.

use super::math::{abs, add, as_vector, div, mul, neg, polynomial, sub};
use crate::mir::{Builder, Gen, Generic, Opnd, Part, Type};
use barewave_isa::op;

/// 2/π in binary, behind the point, after 32 zero bits.
const TWO_OVER_PI: [u32; 8] =
    [0, 0xa2f9_836e, 0x4e44_1529, 0xfc27_57d1, 0xf534_ddc0, 0xdb62_9599, 0x3c43_9041, 0xfe51_63ab];

/// An argument after reduction.
struct Reduced {
    /// Number of quarter turns, in the two lowest bits.
    quadrant: Part,
    /// What remains, at most π/4 in magnitude.
    rest: Part,
    /// What `rest` lacks.
    low: Part,
}

/// Reduces `|x|`, given as `a`. Infinities and NaN give anything.
fn reduce(b: &mut Builder, a: Part) -> Reduced {
    let small = b.op(Gen::CmpGt.of(Type::F32), &[std::f32::consts::FRAC_PI_4.into(), a.into()]);
    let (quadrant, rest, low) = payne_hanek(b, a);
    Reduced {
        quadrant: b.select(small, 0u32, quadrant),
        rest: b.select(small, a, rest),
        low: b.select(small, 0u32, low),
    }
}

/// Quadrant and remainder in two parts of a magnitude from 2^-6 on.
fn payne_hanek(b: &mut Builder, a: Part) -> (Part, Part, Part) {
    let exponent = b.shr(a, 23u32);
    let fraction = b.and(a, 0x007f_ffffu32);
    let m = b.op(Gen::Or.of(Type::B32), &[0x0080_0000u32.into(), fraction.into()]);
    // |x| = m 2^(exponent - 150). The window starts two bits above the point of the product, at bit `exponent - 120` of
    // the table: in its word `(exponent - 121) / 32`, so that the shift right of two neighbours is below 32.
    let mut words: Vec<Opnd> = TWO_OVER_PI.map(Opnd::from).to_vec();
    for first in [153u32, 185, 217, 249] {
        // Once per word that the window lies further.
        let further = b.op(Gen::CmpLe.of(Type::U32), &[first.into(), exponent.into()]);
        let k = (first as usize - 153) / 32 + 1;
        for i in 0..4 {
            words[i] = b.select(further, Opnd::from(TWO_OVER_PI[i + k]), words[i]).into();
        }
    }
    let by = b.sub(120u32, exponent);
    let window: Vec<Part> = (0..3).map(|i| b.op(op::V_ALIGNBIT_B32, &[words[i], words[i + 1], by.into()])).collect();
    // The upper 64 of the product's lower 96 bits: `high` and `mid`, an integer of two bits before the point.
    let sum = b.v(2);
    let carry = b.mask();
    b.copy_into(sum.dword(1), 0u32);
    b.emit(Gen::MulHi.of(Type::U32), &[sum.dword(0).into()], &[m.into(), window[2].into()]);
    let product = b.v(2);
    b.emit(op::V_MAD_U64_U32, &[product.into(), carry.into()], &[m.into(), window[1].into(), sum.into()]);
    let mid = product.dword(0);
    let high = b.mad(m, window[0], product.dword(1));
    // To the nearest quarter turn; the rest is a signed fraction of 64 bits.
    let rounded = b.add(high, 0x2000_0000u32);
    let quadrant = b.shr(rounded, 30u32);
    let upper = b.op(op::V_ALIGNBIT_B32, &[high.into(), mid.into(), 30u32.into()]);
    let lower = b.shl(mid, 2u32);
    // Its upper 24 bits and the 32 bits below as floats, then the product with π/2 in two parts.
    let exact = b.and(upper, 0xffff_ff00u32);
    let exact = b.op(Generic::convert(Type::I32, Type::F32), &[exact.into()]);
    let tail = b.op(op::V_ALIGNBIT_B32, &[upper.into(), lower.into(), 8u32.into()]);
    let tail = b.op(Generic::convert(Type::U32, Type::F32), &[tail.into()]);
    let unit = std::f64::consts::FRAC_PI_2 / 2f64.powi(32);
    let (unit, unit_low) = (unit as f32, (unit - unit as f32 as f64) as f32);
    let r = mul(b, exact, unit);
    let minus = neg(b, r.into());
    let e = b.fma(exact, unit, minus);
    let e = b.fma(exact, unit_low, e);
    let e = b.fma(tail, unit / 2f32.powi(24), e);
    let rest = add(b, r, e);
    let taken = sub(b, rest, r);
    let low = sub(b, e, taken);
    (quadrant, rest, low)
}

/// Sine and cosine of a reduced argument: the polynomials of the Cephes library (single precision), at `rest + low`.
fn polynomials(b: &mut Builder, r: &Reduced) -> (Part, Part) {
    let z = mul(b, r.rest, r.rest);
    let p = polynomial(b, z, &[-1.951_529_6e-4, 8.332_161e-3, -1.666_665_5e-1]);
    let cube = mul(b, r.rest, z);
    let p = b.fma(cube, p, r.low);
    let sine = add(b, r.rest, p);
    let p = polynomial(b, z, &[2.443_315_7e-5, -1.388_731_6e-3, 4.166_664_6e-2]);
    let square = mul(b, z, z);
    let p = mul(b, square, p);
    let p = b.fma(z, -0.5f32, p);
    let back = neg(b, r.rest.into());
    let p = b.fma(back, r.low, p);
    let cosine = add(b, 1.0f32, p);
    (sine, cosine)
}

/// `value`, or a NaN where `x` is infinite or a NaN.
fn finite_only(b: &mut Builder, x: Part, a: Part, value: Part) -> Part {
    let finite = b.op(Gen::CmpGt.of(Type::F32), &[f32::INFINITY.into(), a.into()]);
    let nan = sub(b, x, x);
    b.select(finite, value, nan)
}

/// Mask of the lanes in an odd quadrant.
fn is_odd(b: &mut Builder, quadrant: Part) -> Part {
    let odd = b.and(quadrant, 1u32);
    b.op(Gen::CmpNe.of(Type::U32), &[0u32.into(), odd.into()])
}

/// Sine or cosine of radians.
pub(super) fn sin_cos(b: &mut Builder, cos: bool, x: Opnd) -> Part {
    let x = as_vector(b, x);
    let a = abs(b, x.into());
    let r = reduce(b, a);
    let (sine, cosine) = polynomials(b, &r);
    let odd = is_odd(b, r.quadrant);
    let (value, turns) = if cos {
        (b.select(odd, sine, cosine), b.add(r.quadrant, 1u32))
    } else {
        (b.select(odd, cosine, sine), r.quadrant)
    };
    // The upper half of a turn is negative, and the sine is odd.
    let sign = b.shl(turns, 30u32);
    let sign = if cos { sign } else { b.op(Gen::Xor.of(Type::B32), &[sign.into(), x.into()]) };
    let sign = b.and(sign, 0x8000_0000u32);
    let value = b.op(Gen::Xor.of(Type::B32), &[sign.into(), value.into()]);
    finite_only(b, x, a, value)
}

/// Tangent of radians: the quotient of the two polynomials, upside down and negative in odd quadrants.
pub(super) fn tan(b: &mut Builder, x: Opnd) -> Part {
    let x = as_vector(b, x);
    let a = abs(b, x.into());
    let r = reduce(b, a);
    let (sine, cosine) = polynomials(b, &r);
    let odd = is_odd(b, r.quadrant);
    let (n, d) = (b.select(odd, cosine, sine), b.select(odd, sine, cosine));
    let t = div(b, n.into(), d.into());
    let sign = b.shl(r.quadrant, 31u32);
    let sign = b.op(Gen::Xor.of(Type::B32), &[sign.into(), x.into()]);
    let sign = b.and(sign, 0x8000_0000u32);
    let t = b.op(Gen::Xor.of(Type::B32), &[sign.into(), t.into()]);
    finite_only(b, x, a, t)
}
