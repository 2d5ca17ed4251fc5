//! `x^y`, and what division leaves.
//!
//! The power is `e^(y ln |x|)`; an error of the exponent is the result's relative error, and the exponent reaches 88 (f64:
//! 745) times 1 ULP. So the logarithm and its product with `y` are sums of two numbers: with `x = 2^k m`, `m` within
//! `√2` of 1, and `s = (m - 1) / (m + 1)`, `ln m = 2s + 2/3 s³ + s⁵ q(s²)`. Of doubles the first two terms are computed with
//! their rounding errors; of singles, whose logarithm is to base 2, the first term and `s²`: two roundings of the second term, a hundredth of the
//! logarithm at most, are an ULP of the result. Within 2 ULP of doubles and 4 of singles, measured by `tests/kernels/numerics.rs`.

use super::float::{Float, Polynomial};
use super::math;
use crate::mir::{Builder, Gen, Part, Type};
use barewave_isa::op;
use std::f64::consts::{FRAC_1_SQRT_2, LOG2_E};

/// Of `(ln m - 2s - 2/3 s³) / s⁵` in `s²`.
const LOG: Polynomial = Polynomial {
    single: &[2.304_815_4e-1, 2.856_224e-1, 4.000_001_5e-1],
    double: &[
        1.172_305_102_809_775_3e-1,
        1.170_624_854_092_238_6e-1,
        1.333_480_423_822_534_5e-1,
        1.538_459_497_089_545_7e-1,
        1.818_181_833_531_440_4e-1,
        2.222_222_222_165_623_2e-1,
        2.857_142_857_142_936_4e-1,
        0.4,
    ],
};

/// `m` and `k` of a magnitude `2^k m`, `m` from `√½` to `√2`.
fn split(f: Float, b: &mut Builder, a: Part) -> (Part, Part) {
    let (mantissa, k) = f.frexp(b, a);
    let low = f.compare_to(b, Gen::CmpLt, mantissa, FRAC_1_SQRT_2);
    let by = b.select(low, 1u32, 0u32);
    let m = f.ldexp(b, mantissa, by);
    let k = b.sub(k, by);
    (m, k)
}

/// `s = (m - 1) / (m + 1)` and its rest.
fn quotient_in_two(f: Float, b: &mut Builder, m: Part) -> (Part, Part) {
    let (n, d) = (f.plus(b, m, -1.0), f.plus(b, m, 1.0));
    let taken = f.plus(b, d, -1.0);
    let d_low = f.sub(b, m, taken);
    let r = f.one(b, Gen::Rcp, d);
    // Of singles the rest is exact enough whatever bits the quotient has.
    let s = if f.is_double() { f.div(b, n, d) } else { f.mul(b, n, r) };
    let e = f.less_product(b, s, d, n);
    let e = f.less_product(b, s, d_low, e);
    (s, f.mul(b, e, r))
}

/// `ln a` of a double's magnitude as the sum of two numbers; of 0 and infinity as their limits and anything.
fn log_in_two(b: &mut Builder, a: Part) -> (Part, Part) {
    let f = Float(Type::F64);
    let (m, k) = split(f, b, a);
    let k = b.convert(Type::I32, f.0, k);
    let (s, s_low) = quotient_in_two(f, b, m);
    // s², s³ and 2/3 s³ with their rests.
    let (z, z_low) = f.two_product(b, s, s);
    let twice = f.add(b, s, s);
    let z_low = f.fma(b, twice, s_low, z_low);
    let (c, c_low) = f.two_product(b, s, z);
    let c_low = f.fma(b, s, z_low, c_low);
    let c_low = f.fma(b, s_low, z, c_low);
    let third = f.held(b, 2.0 / 3.0);
    let third_low = f.held(b, 3.700_743_415_417_188e-17);
    let (u, u_low) = f.two_product(b, c, third);
    let u_low = f.fma(b, c, third_low, u_low);
    let u_low = f.fma(b, c_low, third, u_low);
    let q = f.polynomial(b, z, &LOG);
    let fifth = f.mul(b, c, z);
    let rest = f.fma(b, fifth, q, u_low);
    let s_low_twice = f.add(b, s_low, s_low);
    let rest = f.add(b, rest, s_low_twice);
    let (w, w_low) = f.fast_two_sum(b, twice, u);
    // Multiples of the first part of ln 2 by exponents are exact.
    let [high, low] = super::double::LN2;
    let whole = f.scaled(b, k, high);
    let (t, t_low) = f.fast_two_sum(b, whole, w);
    let rest = f.add(b, rest, w_low);
    let rest = f.add(b, rest, t_low);
    let low = f.held(b, low);
    let rest = f.fma(b, k, low, rest);
    let (high, low) = f.fast_two_sum(b, t, rest);
    // Neither 0 nor infinity has a mantissa.
    let flat = f.compare_to(b, Gen::CmpEq, a, 0.0);
    let endless = f.compare_to(b, Gen::CmpEq, a, f64::INFINITY);
    let least = f.held(b, f64::NEG_INFINITY);
    let high = f.select(b, flat, least, high);
    (f.select(b, endless, a, high), low)
}

/// `log2 a` of a single's magnitude as the sum of two numbers, the second below 1/100; of 0 and infinity as their limits and anything.
fn log2_in_two(b: &mut Builder, a: Part) -> (Part, Part) {
    let f = Float(Type::F32);
    let (m, k) = split(f, b, a);
    // Quicker than a conversion.
    let sum = b.v(1);
    b.emit(Gen::Add.of(Type::I32), &[sum.into()], &[k.into(), math::WHOLE.to_bits().into()]);
    let k = math::whole_part(b, sum);
    let (s, s_low) = quotient_in_two(f, b, m);
    // The first term, with its rounding error and what the constant lacks.
    let in_two = |x: f64| [x, x - f64::from(x as f32)];
    let [unit, unit_low] = in_two(2.0 * LOG2_E).map(|x| f.held(b, x));
    let (first, first_low) = f.two_product(b, s, unit);
    let first_low = f.fma(b, s, unit_low, first_low);
    let first_low = f.fma(b, s_low, unit, first_low);
    // s² with its rest, and what the other terms have in common with s.
    let (z, z_low) = f.two_product(b, s, s);
    let twice = f.add(b, s, s);
    let z_low = f.fma(b, twice, s_low, z_low);
    let coefficients: Vec<f32> = LOG.single.iter().map(|c| (f64::from(*c) * LOG2_E) as f32).collect();
    let p = math::polynomial(b, z, &coefficients);
    let [third, third_low] = in_two(2.0 / 3.0 * LOG2_E).map(|x| f.held(b, x));
    let p = f.fma(b, z, p, third_low);
    let p = f.mul(b, z, p);
    let p = f.fma(b, z_low, third, p);
    let p = f.fma(b, z, third, p);
    let rest = f.fma(b, s, p, first_low);
    let (high, lost) = f.fast_two_sum(b, k, first);
    let low = f.add(b, rest, lost);
    // Neither 0 nor infinity has a mantissa: that of 0 is 0.
    let limit = f.plus(b, m, -1.0);
    let limit = f.scaled(b, limit, f64::INFINITY);
    let special = class(b, a, ZERO | INFINITE);
    (f.select(b, special, limit, high), low)
}

/// Classes of floats in `v_cmp_class_f32`'s mask.
const ZERO: u32 = 1 << 5 | 1 << 6;
const INFINITE: u32 = 1 << 2 | 1 << 9;
const NEGATIVE: u32 = 1 << 3 | 1 << 4;

/// Mask of the lanes where a float, single or double, is of one of these classes.
fn class(b: &mut Builder, x: Part, classes: u32) -> Part {
    let op = if x.len == 2 { op::V_CMP_CLASS_F64 } else { op::V_CMP_CLASS_F32 };
    let mask = b.mask();
    b.emit(op, &[mask.into()], &[x.into(), classes.into()]);
    mask
}

/// A product `high` and the rest: where the result is 0 or infinite, the rest may be anything.
fn where_finite(f: Float, b: &mut Builder, high: Part, rest: Part) -> Part {
    let size = f.abs(b, high);
    let near = f.compare_to(b, Gen::CmpLt, size, f.pick(256.0, 2048.0));
    let zero = f.held(b, 0.0);
    f.select(b, near, rest, zero)
}

/// `a^y` of a magnitude: of doubles `e^(y ln a)`, of singles `2^(y log2 a)`.
fn magnitude(f: Float, b: &mut Builder, a: Part, y: Part) -> Part {
    let (log, log_low) = if f.is_double() { log_in_two(b, a) } else { log2_in_two(b, a) };
    let (high, low) = f.two_product(b, y, log);
    let low = f.fma(b, y, log_low, low);
    let low = where_finite(f, b, high, low);
    if f.is_double() {
        let (p, n) = f.exp_parts(b, high);
        let p = f.fma(b, p, low, p);
        let r = f.ldexp(b, p, n);
        return f.keep_nan(b, high, r);
    }
    let sum = f.plus(b, high, math::WHOLE.into());
    let (sum, n) = math::exponent_within_reach(b, sum);
    let rest = f.sub(b, high, n);
    let rest = f.add(b, rest, low);
    let p = f.one(b, Gen::Exp2, rest);
    let n = math::exponent_of_sum(b, sum, 0);
    f.ldexp(b, p, n)
}

/// `x^y` of `|x|^y`: odd exponents keep the sign, that of zeros and infinities too; a finite negative base needs an integral exponent.
pub(super) fn signed(f: Float, b: &mut Builder, [x, y]: [Part; 2], r: Part) -> Part {
    let whole = f.one(b, Gen::Trunc, y);
    let partial = f.compare(b, Gen::CmpNe, whole, y);
    let half = f.scaled(b, y, 0.5);
    let half_whole = f.one(b, Gen::Trunc, half);
    let odd = f.compare(b, Gen::CmpNe, half_whole, half);
    let odd = b.mask_and_not(odd, partial);
    let signed = f.copysign(b, r, x);
    let r = f.select(b, odd, signed, r);
    let negative = class(b, x, NEGATIVE);
    let outside = b.mask_and(negative, partial);
    let nan = f.held(b, f64::NAN);
    f.select(b, outside, nan, r)
}

/// `x^y` with the special cases of C's `pow`.
pub(super) fn pow(f: Float, b: &mut Builder, x: Part, y: Part) -> Part {
    let a = f.abs(b, x);
    let r = magnitude(f, b, a, y);
    // 1 and -1 stay 1 whatever the exponent, infinities and NaN included (a NaN exponent of -1 is not integral); y == 0 gives 1 for every x.
    let one = f.held(b, 1.0);
    let unit = f.compare_to(b, Gen::CmpEq, a, 1.0);
    let zero = f.compare_to(b, Gen::CmpEq, y, 0.0);
    let flat = b.mask_or(unit, zero);
    let r = f.select(b, flat, one, r);
    signed(f, b, [x, y], r)
}

/// C's `fmod`: what division leaves, with the sign of `x`, exact for every quotient.
///
/// A round takes from `r = |x|` a whole number of `s = |y| 2^k`, where `k` makes that number fit in 20 bits (f64: 52). The quotient is
/// at most one too many, and never too few, so `r - q s` lies between `-s` and `s`; as a multiple of the last bit of `s` it is
/// exact. Every round takes 19 bits off the quotient (51): one round is enough below 2^19, fifteen always (41). Of doubles the quotient is correctly rounded;
/// of singles `r` times the hardware's reciprocal of `y`'s mantissa, which is made larger than its error, by `3/4 2^-20` at most.
pub(super) fn remainder(f: Float, b: &mut Builder, x: Part, y: Part) -> Part {
    let (a, d) = (f.abs(b, x), f.abs(b, y));
    // NaN where there is no remainder: an infinite dividend, a divisor of 0, a NaN operand.
    let finite = f.compare_to(b, Gen::CmpLt, a, f64::INFINITY);
    let some = f.compare_to(b, Gen::CmpGt, d, 0.0);
    let defined = b.mask_and(finite, some);
    // An infinite divisor leaves everything; lanes without a remainder have nothing to do.
    let (most, zero) = (f.constant(b, f64::INFINITY), f.constant(b, 0.0));
    let d = f.select(b, defined, d, most);
    let start = f.select(b, defined, a, zero);
    let r = b.v(start.len);
    b.copy_into(r, start);
    let inverse = (!f.is_double()).then(|| {
        let (mantissa, _) = f.frexp(b, d);
        let inverse = f.one(b, Gen::Rcp, mantissa);
        f.scaled(b, inverse, 1.0 + 2f64.powi(-21))
    });
    b.loop_while_any("remainder", |b| {
        let (er, ed) = (f.exponent(b, r), f.exponent(b, d));
        let k = b.sub(er, ed);
        let k = b.sub(k, f.pick(19u32, 51));
        let k = b.op(Gen::Max.of(Type::I32), &[k.into(), 0u32.into()]);
        let s = f.ldexp(b, d, k);
        let q = match inverse {
            None => f.div(b, r, s),
            Some(inverse) => {
                let exponent = b.add(ed, k);
                let down = b.sub(0u32, exponent);
                let r = f.ldexp(b, r, down);
                f.mul(b, r, inverse)
            }
        };
        let q = f.one(b, Gen::Trunc, q);
        let left = f.less_product(b, q, s, r);
        let over = f.compare_to(b, Gen::CmpLt, left, 0.0);
        let back = f.add(b, left, s);
        let left = f.select(b, over, back, left);
        let more = f.compare(b, Gen::CmpGe, r, d);
        let left = f.select(b, more, left, r);
        b.copy_into(r, left);
        f.compare(b, Gen::CmpGe, r, d)
    });
    let signed = f.copysign(b, r, x);
    let nan = f.held(b, f64::NAN);
    f.select(b, defined, signed, nan)
}

/// Python's `%`: the remainder with the divisor's sign.
pub(super) fn modulo(f: Float, b: &mut Builder, x: Part, y: Part) -> Part {
    let r = remainder(f, b, x, y);
    let signs = b.op(Gen::Xor.of(Type::B32), &[f.top(r).into(), f.top(y).into()]);
    let differ = b.op(Gen::CmpGt.of(Type::I32), &[0u32.into(), signs.into()]);
    let some = f.compare_to(b, Gen::CmpNe, r, 0.0);
    let differ = b.mask_and(differ, some);
    let moved = f.add(b, r, y);
    f.select(b, differ, moved, r)
}
