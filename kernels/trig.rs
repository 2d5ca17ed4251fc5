//! Sine, cosine and tangent of every f32 and f64, within 2 ULP (tangent 4).
//!
//! An argument is reduced to `x = q π/2 + r` with `|r| <= π/4`; the quadrant `q` says which of two polynomials of `r`
//! the result is, and its sign. Below π/4 `r` is `x`. Of singles below 2^16, multiples of π/2 in three parts are taken off (Cody and Waite): `q` has
//! 16 bits, and the fused multiply-add that takes off the first part leaves no error. Code for larger
//! ones stands aside, and is executed where a lane of the wave needs it. That reduction is Payne and Hanek's (1983): with
//! `|x| = m 2^s` and `m` an integer of 24 bits (53), the bits of 2/π that make multiples of 4 in `m 2^s 2/π` do not matter,
//! and those far behind its point do not either.
//!
//! For f32 a window of 96 bits of 2/π remains, whose place depends on the
//! exponent alone; its product with `m` has the quadrant in its two top bits and 62 exact bits of the fraction below.
//! No f32 is closer to a multiple of π/2 than 2^-30, so at least 32 bits of `r` are right for every `x`. For f64 the
//! hardware has the pieces of 2/π that matter (`v_trig_preop_f64`), 53 bits each; four of them leave 64 bits right next to a
//! multiple of π/2, which no f64 is closer to than 2^-62. `r` goes on as the sum of two floats.
//!
//! The hardware's own `v_sin_f32` takes revolutions: its argument has an error of half a ULP of `x / 2π`, which is all of
//! the result for large `x` and near the zeros. It is not used.

use super::float::{Float, Polynomial};
use super::math::{WHOLE, add, mul, product_less, sub};
use crate::mir::{Builder, Gen, Generic, Opnd, Part, Type};
use barewave_isa::op;
use std::f64::consts::{FRAC_2_PI, FRAC_PI_2, FRAC_PI_4};

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

/// Singles from here on are reduced by Payne and Hanek's method.
pub(super) const FAR: f64 = 65536.0;

/// Values, and in the lanes of the mask what `others` computes, which is executed where a lane of the wave is in the mask.
pub(super) fn rarely<const N: usize>(
    b: &mut Builder,
    mask: Part,
    values: [Part; N],
    others: impl FnOnce(&mut Builder) -> [Part; N],
) -> [Part; N] {
    let held = values.map(|x| {
        let r = b.v(x.len);
        b.copy_into(r, x);
        r
    });
    let go_on = b.label();
    b.branch_if_none(mask, go_on, "far");
    for (r, x) in held.iter().zip(others(b)) {
        let x = b.select(mask, x, *r);
        b.copy_into(*r, x);
    }
    b.place(go_on, "near");
    held
}

/// Quadrant, remainder and nothing that it lacks of a magnitude below [`FAR`]: two roundings of the remainder itself.
fn cody_waite(b: &mut Builder, a: Part) -> [Part; 3] {
    // Added to the number of quarter turns it leaves the nearest integer in the lowest bits.
    let whole = b.to_vector(WHOLE);
    let quadrant = b.fma(a, FRAC_2_PI as f32, whole);
    let q = sub(b, quadrant, whole);
    let parts = [-FRAC_PI_2 as f32, 4.371_139e-8, 1.715_124_5e-15];
    let [first, second, third] = parts.map(|p| b.to_vector(p));
    let r = b.fma(q, first, a);
    let r = b.fma(q, second, r);
    let rest = b.fma(q, third, r);
    [quadrant, rest, b.to_vector(0u32)]
}

/// Reduces `|x|`, given as `a`. Infinities and NaN give anything.
fn reduce(f: Float, b: &mut Builder, a: Part) -> Reduced {
    if !f.is_double() {
        let near = cody_waite(b, a);
        let far = f.compare_to(b, Gen::CmpGe, a, FAR);
        let [quadrant, rest, low] = rarely(b, far, near, |b| {
            let (quadrant, rest, low) = payne_hanek(b, a);
            [quadrant, rest, low]
        });
        return Reduced { quadrant, rest, low };
    }
    let small = f.compare_to(b, Gen::CmpLt, a, FRAC_PI_4);
    let (quadrant, rest, low) = by_pieces(b, a);
    let zero = f.constant(b, 0.0);
    Reduced {
        quadrant: b.select(small, 0u32, quadrant),
        rest: f.select(b, small, a, rest),
        low: f.select(b, small, zero, low),
    }
}

/// Quadrant and remainder in two parts of a double's magnitude: the products with four pieces of 2/π, each with its
/// rounding error, summed from the largest on. Of the first one multiples of 4 are taken off.
fn by_pieces(b: &mut Builder, a: Part) -> (Part, Part, Part) {
    let f = Float(Type::F64);
    // Pieces for huge operands come times 2^128.
    let huge = f.compare_to(b, Gen::CmpGe, a, 2f64.powi(945));
    let by = b.select(huge, -128i32, 0u32);
    let x = f.ldexp(b, a, by);
    let products: Vec<(Part, Part)> = (0..4u32)
        .map(|i| {
            let piece = b.op(op::V_TRIG_PREOP_F64, &[a.into(), i.into()]);
            f.two_product(b, piece, x)
        })
        .collect();
    let [(first, a0), (a1, b1), (b2, c2), (c3, _)] = products[..] else { unreachable!("four pieces") };
    let quarter = f.scaled(b, first, 0.25);
    let whole = f.one(b, Gen::Floor, quarter);
    let minus_four = f.constant(b, -4.0);
    let first = f.fma(b, minus_four, whole, first);
    // Magnitudes of 4, of 2^-50 and of 2^-103.
    let (s, e1) = f.two_sum(b, a0, a1);
    let (s, e2) = f.two_sum(b, first, s);
    let turns = f.one(b, Gen::Round, s);
    let near = f.sub(b, s, turns);
    let (u, u_low) = f.two_sum(b, b1, b2);
    let (v, v_low) = f.two_sum(b, e1, e2);
    let (w, w_low) = f.two_sum(b, u, v);
    let (r, r_low) = f.two_sum(b, near, w);
    let mut last = f.add(b, c2, c3);
    for x in [u_low, v_low, w_low, r_low] {
        last = f.add(b, last, x);
    }
    let (r, r_low) = f.fast_two_sum(b, r, last);
    // Times π/2.
    let unit = f.held(b, FRAC_PI_2);
    let unit_low = f.held(b, 6.123_233_995_736_766e-17);
    let (high, low) = f.two_product(b, r, unit);
    let low = f.fma(b, r, unit_low, low);
    let low = f.fma(b, r_low, unit, low);
    let (rest, low) = f.fast_two_sum(b, high, low);
    (b.convert(Type::F64, Type::I32, turns), rest, low)
}

/// Quadrant and remainder in two parts of a magnitude from [`FAR`] on.
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
    let e = product_less(b, Type::F32, [exact.into(), unit.into(), r.into()]);
    let e = b.fma(exact, unit_low, e);
    let e = b.fma(tail, unit / 2f32.powi(24), e);
    let rest = add(b, r, e);
    let taken = sub(b, rest, r);
    let low = sub(b, e, taken);
    (quadrant, rest, low)
}

/// Of `(sin √z / √z - 1) / z` up to (π/4)²; of singles as in the Cephes library.
const SINE: Polynomial = Polynomial {
    single: &[-1.951_529_6e-4, 8.332_161e-3, -1.666_665_5e-1],
    double: &[
        -7.586_094_789_672_621e-13,
        1.605_852_134_995_498_6e-10,
        -2.505_210_606_733_570_5e-8,
        2.755_731_921_915_078_3e-6,
        -1.984_126_984_126_482_1e-4,
        8.333_333_333_333_331e-3,
        -1.666_666_666_666_666_6e-1,
    ],
};

/// Of `(cos √z - 1 + z/2) / z²` up to (π/4)².
const COSINE: Polynomial = Polynomial {
    single: &[2.443_315_7e-5, -1.388_731_6e-3, 4.166_664_6e-2],
    double: &[
        4.745_537_017_319_258e-14,
        -1.147_045_517_821_690_6e-11,
        2.087_675_575_487_959_4e-9,
        -2.755_731_922_129_809e-7,
        2.480_158_730_158_451e-5,
        -1.388_888_888_888_888_7e-3,
        4.166_666_666_666_666_4e-2,
    ],
};

/// Sine and cosine of a reduced argument: the polynomials at `rest + low`.
fn polynomials(f: Float, b: &mut Builder, r: &Reduced) -> (Part, Part) {
    let z = f.mul(b, r.rest, r.rest);
    let p = f.polynomial(b, z, &SINE);
    let cube = f.mul(b, r.rest, z);
    let p = f.fma(b, cube, p, r.low);
    let sine = f.add(b, r.rest, p);
    let p = f.polynomial(b, z, &COSINE);
    let square = f.mul(b, z, z);
    let p = f.mul(b, square, p);
    let half = f.constant(b, -0.5);
    let p = f.fma(b, z, half, p);
    let p = f.less_product(b, r.rest, r.low, p);
    let cosine = f.plus(b, p, 1.0);
    (sine, cosine)
}

/// `value`, or a NaN where `x` is infinite or a NaN.
fn finite_only(f: Float, b: &mut Builder, x: Part, a: Part, value: Part) -> Part {
    let finite = f.compare_to(b, Gen::CmpLt, a, f64::INFINITY);
    let nan = f.sub(b, x, x);
    f.select(b, finite, value, nan)
}

/// Mask of the lanes in an odd quadrant.
fn is_odd(b: &mut Builder, quadrant: Part) -> Part {
    let odd = b.and(quadrant, 1u32);
    b.op(Gen::CmpNe.of(Type::U32), &[0u32.into(), odd.into()])
}

/// Sine or cosine of radians.
pub(super) fn sin_cos(f: Float, b: &mut Builder, cos: bool, x: Part) -> Part {
    let a = f.abs(b, x);
    let r = reduce(f, b, a);
    let (sine, cosine) = polynomials(f, b, &r);
    let odd = is_odd(b, r.quadrant);
    let (value, turns) = if cos {
        (f.select(b, odd, sine, cosine), b.add(r.quadrant, 1u32))
    } else {
        (f.select(b, odd, cosine, sine), r.quadrant)
    };
    // The upper half of a turn is negative, and the sine is odd.
    let sign = b.shl(turns, 30u32);
    let sign = if cos { sign } else { b.op(Gen::Xor.of(Type::B32), &[sign.into(), f.top(x).into()]) };
    let value = f.xor_sign(b, value, sign);
    finite_only(f, b, x, a, value)
}

/// Tangent of radians: the quotient of the two polynomials, upside down and negative in odd quadrants.
pub(super) fn tan(f: Float, b: &mut Builder, x: Part) -> Part {
    let a = f.abs(b, x);
    let r = reduce(f, b, a);
    let (sine, cosine) = polynomials(f, b, &r);
    let odd = is_odd(b, r.quadrant);
    let (n, d) = (f.select(b, odd, cosine, sine), f.select(b, odd, sine, cosine));
    let t = f.ratio(b, n, d);
    let sign = b.shl(r.quadrant, 31u32);
    let sign = b.op(Gen::Xor.of(Type::B32), &[sign.into(), f.top(x).into()]);
    let t = f.xor_sign(b, t, sign);
    finite_only(f, b, x, a, t)
}
