//! Recipes for results of 16 bits, computed in f32: an error that is small beside the rounding to f16 or bf16 is allowed, so they are
//! much shorter than those of f32 ([`math`](super::math), [`gates`](super::gates)).
//!
//! Powers of two are computed times another one, which is taken off where the result is made: `v_exp_f32` and `v_rcp_f32` flush denormals,
//! and bf16 has the exponents of f32. `tests/kernels/numerics.rs` tries every operand of both types.

mod angles;

use super::float::Float;
use super::math::{abs, add, copysign, less_product, mul, polynomial, sub};
use super::power::signed;
use crate::graph::expr::Unary;
use crate::mir::{Builder, Gen, Part, Type};
use crate::tensor::DType;
use barewave_isa::op;
use std::f32::consts::{LN_2, LOG2_E};
use std::ops::RangeInclusive;

/// The recipe of an operation of one operand, of f16 or bf16 values held as f32; `None` where that of f32 is short anyway.
pub(super) fn unary(b: &mut Builder, op: Unary, dtype: DType, x: Part) -> Option<Part> {
    Some(match op {
        Unary::Acos => angles::inverse_cosine(b, x),
        Unary::Acosh => inverse_hyperbolic_cosine(b, dtype, x),
        Unary::Asin => angles::inverse_sine(b, x),
        Unary::Asinh => inverse_hyperbolic_sine(b, dtype, x),
        Unary::Atan => angles::inverse_tangent(b, x),
        Unary::Atanh => inverse_hyperbolic_tangent(b, x),
        Unary::Cos => angles::sine(b, true, x),
        Unary::Cosh => {
            let [h, r] = half_exp(b, x);
            b.fma(r, 0.25f32, h)
        }
        Unary::Erf => erf(b, x),
        Unary::Exp if dtype == DType::F16 => exp_of_f16(b, x),
        Unary::Exp => exp_of_bf16(b, x),
        Unary::ExpMinusOne => exp_minus_one(b, x),
        Unary::Gelu => gelu(b, dtype, x),
        Unary::LogOnePlus => log_one_plus(b, x),
        Unary::Mish => mish(b, x),
        // What is denormal in f32, as operand or result, is 0 or infinite in f16.
        Unary::Recip if dtype == DType::F16 => reciprocal(b, x),
        Unary::Sigmoid => sigmoid(b, x),
        Unary::Sin => angles::sine(b, false, x),
        Unary::Sinh => hyperbolic_sine(b, x),
        // Denormal operands of f32, which the instruction flushes, are none of f16.
        Unary::Sqrt if dtype == DType::F16 => b.op(Gen::Sqrt.of(Type::F32), &[x.into()]),
        Unary::Swish => {
            let share = sigmoid(b, x);
            mul(b, x, share)
        }
        Unary::Tan => angles::tangent(b, x),
        Unary::Tanh => tanh(b, x),
        _ => return None,
    })
}

fn exp2(b: &mut Builder, x: Part) -> Part {
    b.op(Gen::Exp2.of(Type::F32), &[x.into()])
}

fn reciprocal(b: &mut Builder, x: Part) -> Part {
    b.op(Gen::Rcp.of(Type::F32), &[x.into()])
}

/// `2^up e^(times x)`: the product's rounding is a relative error of up to 3e-6 where 16 bits end.
fn exp(b: &mut Builder, x: Part, times: f32, up: f32) -> Part {
    let (times, up) = (b.to_vector(times * LOG2_E), b.to_vector(up));
    let x = b.fma(x, times, up);
    exp2(b, x)
}

/// `e^x`: what is denormal in f32 is 0 in f16.
fn exp_of_f16(b: &mut Builder, x: Part) -> Part {
    let x = mul(b, x, LOG2_E);
    exp2(b, x)
}

/// `e^x`: of negative operands times `2^64`, which is taken off the result.
fn exp_of_bf16(b: &mut Builder, x: Part) -> Part {
    let negative = b.op(Gen::CmpGt.of(Type::F32), &[0.0f32.into(), x.into()]);
    let (up, down) = (b.to_vector(64.0f32), b.to_vector(2f32.powi(-64)));
    let up = b.select(negative, up, 0u32);
    let t = b.fma(x, LOG2_E, up);
    let e = exp2(b, t);
    let down = b.select(negative, down, 1.0f32);
    mul(b, e, down)
}

/// `e^x` of what is not above 0.
pub(super) fn exp_below_one(b: &mut Builder, dtype: DType, x: Part) -> Part {
    if dtype == DType::F16 {
        return exp_of_f16(b, x);
    }
    let e = exp(b, x, 1.0, 64.0);
    mul(b, e, 2f32.powi(-64))
}

/// `e^x - 1`, below 1/8 a polynomial.
fn exp_minus_one(b: &mut Builder, x: Part) -> Part {
    let t = mul(b, x, LOG2_E);
    let e = exp2(b, t);
    let big = add(b, -1.0f32, e);
    let p = polynomial(b, x, &[4.165_923e-2, 1.667_745_4e-1, 5.000_003e-1, 1.0]);
    let small = mul(b, x, p);
    let a = abs(b, x.into());
    let is_small = b.op(Gen::CmpGt.of(Type::F32), &[0.125f32.into(), a.into()]);
    b.select(is_small, small, big)
}

/// `ln(1 + x)`, with what rounding the sum took of a small `x`. Of an infinite one that is nothing, which the median gives.
fn log_one_plus(b: &mut Builder, x: Part) -> Part {
    let u = add(b, 1.0f32, x);
    let l = b.op(Gen::Log2.of(Type::F32), &[u.into()]);
    let taken = add(b, -1.0f32, u);
    let lost = sub(b, x, taken);
    let [least, most] = [-1.0, 1.0].map(|s| b.to_vector(s * 2f32.powi(-24)));
    let lost = b.op(op::V_MED3_F32, &[lost.into(), least.into(), most.into()]);
    let ln_2 = b.to_vector(LN_2);
    b.fma(l, ln_2, lost)
}

/// `e^|x| / 2` and its reciprocal.
fn half_exp(b: &mut Builder, x: Part) -> [Part; 2] {
    let a = abs(b, x.into());
    let h = exp(b, a, 1.0, -1.0);
    [h, reciprocal(b, h)]
}

/// Hyperbolic sine: `h - 1 / 4h` with `h = e^|x| / 2`, below 1/2 a polynomial.
fn hyperbolic_sine(b: &mut Builder, x: Part) -> Part {
    let [h, r] = half_exp(b, x);
    let big = b.fma(r, -0.25f32, h);
    let big = copysign(b, big, x.into());
    let s = mul(b, x, x);
    let p = polynomial(b, s, &[8.402_457e-3, 1.666_613_4e-1, 1.0]);
    let small = mul(b, x, p);
    let is_big = b.op(Gen::CmpLt.of(Type::F32), &[0.25f32.into(), s.into()]);
    b.select(is_big, big, small)
}

/// `ln(a + w)` of magnitudes whose root `w` may be infinite though the result is not, where f32 has no larger numbers than the type: at most `limit`.
fn log_of_sum(b: &mut Builder, dtype: DType, a: Part, w: Part, limit: Part) -> Part {
    let ln_2 = b.to_vector(LN_2);
    if dtype == DType::F16 {
        let u = add(b, a, w);
        let l = b.op(Gen::Log2.of(Type::F32), &[u.into()]);
        return mul(b, l, ln_2);
    }
    let w = b.op(Gen::Min.of(Type::F32), &[w.into(), limit.into()]);
    let half = mul(b, w, 0.5f32);
    let u = b.fma(a, 0.5f32, half);
    let l = b.op(Gen::Log2.of(Type::F32), &[u.into()]);
    b.fma(l, ln_2, ln_2)
}

/// Inverse hyperbolic sine: `ln(a + √(a² + 1))` with the sign of `x`, below 1/2 a polynomial.
fn inverse_hyperbolic_sine(b: &mut Builder, dtype: DType, x: Part) -> Part {
    let a = abs(b, x.into());
    let s = mul(b, a, a);
    let more = add(b, 1.0f32, s);
    let w = b.op(Gen::Sqrt.of(Type::F32), &[more.into()]);
    let limit = add(b, 1.0f32, a);
    let big = log_of_sum(b, dtype, a, w, limit);
    let p = polynomial(b, s, &[-3.306_132e-2, 7.345_594_5e-2, -1.666_058_7e-1, 1.0]);
    let small = mul(b, a, p);
    let is_big = b.op(Gen::CmpLt.of(Type::F32), &[0.25f32.into(), s.into()]);
    let r = b.select(is_big, big, small);
    copysign(b, r, x.into())
}

/// Inverse hyperbolic cosine: `ln(x + √(t² + 2t))` with `t = x - 1`, which has values below -1, too.
fn inverse_hyperbolic_cosine(b: &mut Builder, dtype: DType, x: Part) -> Part {
    let t = add(b, -1.0f32, x);
    let more = add(b, 2.0f32, t);
    let square = mul(b, t, more);
    let w = b.op(Gen::Sqrt.of(Type::F32), &[square.into()]);
    let r = log_of_sum(b, dtype, x, w, x);
    let below = b.op(Gen::CmpGt.of(Type::F32), &[1.0f32.into(), x.into()]);
    b.select(below, f32::NAN, r)
}

/// Inverse hyperbolic tangent: half of `ln((1 + a) / (1 - a))` with the sign of `x`, below 1/4 a polynomial.
fn inverse_hyperbolic_tangent(b: &mut Builder, x: Part) -> Part {
    let a = abs(b, x.into());
    let (n, d) = (add(b, 1.0f32, a), sub(b, 1.0f32, a));
    let [n, d] = [n, d].map(|x| b.op(Gen::Log2.of(Type::F32), &[x.into()]));
    let l = sub(b, n, d);
    let big = mul(b, l, LN_2 / 2.0);
    let s = mul(b, a, a);
    let p = polynomial(b, s, &[2.131_505_6e-1, 3.330_741_8e-1, 1.0]);
    let small = mul(b, a, p);
    let is_big = b.op(Gen::CmpLt.of(Type::F32), &[0.0625f32.into(), s.into()]);
    let r = b.select(is_big, big, small);
    copysign(b, r, x.into())
}

/// `x^y` with the special cases of C's `pow`: `2^(y log2 |x|)`, the product by an instruction for which nothing times anything is nothing.
pub(super) fn power(b: &mut Builder, dtype: DType, x: Part, y: Part) -> Part {
    let f = Float(Type::F32);
    let a = abs(b, x.into());
    let whole_exponents = dtype == DType::BF16;
    // Denormals of f32, among operands and results, are numbers of bf16: the logarithm has them times 2^32, the result comes times 2^64.
    let log = if whole_exponents {
        let small = f.compare_to(b, Gen::CmpLt, a, f64::from(f32::MIN_POSITIVE));
        let up = f.scaled(b, a, 2f64.powi(32));
        let scaled = b.select(small, up, a);
        let log = f.one(b, Gen::Log2, scaled);
        let excess = b.to_vector(32.0f32);
        let excess = b.select(small, excess, 0u32);
        f.sub(b, log, excess)
    } else {
        f.one(b, Gen::Log2, a)
    };
    let exponent = b.op(op::V_MUL_LEGACY_F32, &[y.into(), log.into()]);
    let r = if whole_exponents {
        let low = f.compare_to(b, Gen::CmpLt, exponent, -64.0);
        let (up, down) = (b.to_vector(64.0f32), b.to_vector(2f32.powi(-64)));
        let up = b.select(low, up, 0u32);
        let exponent = f.add(b, exponent, up);
        let r = exp2(b, exponent);
        let down = b.select(low, down, 1.0f32);
        f.mul(b, r, down)
    } else {
        exp2(b, exponent)
    };
    signed(f, b, [x, y], r)
}

/// `1 / (1 + e^-x)`, from both terms divided by `2^32`.
fn sigmoid(b: &mut Builder, x: Part) -> Part {
    let down = 2f32.powi(-32);
    let e = exp(b, x, -1.0, -32.0);
    let d = add(b, down, e);
    let r = reciprocal(b, d);
    mul(b, r, down)
}

/// `1 - 2 / (1 + e^2x)`, and below 1/4 a polynomial, within 5e-7.
fn tanh(b: &mut Builder, x: Part) -> Part {
    let t = mul(b, x, 2.0 * LOG2_E);
    let e = exp2(b, t);
    let d = add(b, 1.0f32, e);
    let r = reciprocal(b, d);
    let big = b.fma(-2.0f32, r, 1.0f32);
    let s = mul(b, x, x);
    let p = polynomial(b, s, &[0.128_772_27, -0.333_246_1, 1.0]);
    let small = mul(b, p, x);
    let is_small = b.op(Gen::CmpGt.of(Type::F32), &[0.0625f32.into(), s.into()]);
    b.select(is_small, small, big)
}

/// `x n / (n + 2)` with `n = e^x (e^x + 2)`, computed times `2^64`; from 20 on that is `x`.
fn mish(b: &mut Builder, x: Part) -> Part {
    let down = 2f32.powi(-64);
    let limit = b.to_vector(20.0f32);
    let c = b.op(Gen::Min.of(Type::F32), &[x.into(), limit.into()]);
    let e = exp(b, c, 1.0, 64.0);
    let more = b.fma(e, down, 2.0f32);
    let n = mul(b, e, more);
    let d = b.fma(n, down, 2.0f32);
    let r = reciprocal(b, d);
    let share = mul(b, n, r);
    let share = mul(b, share, down);
    mul(b, x, share)
}

/// Exponents `p(a)` of `Φ(-a) = 2^p(a)`, within 5e-6 of it where f16 has it, and within 6e-5 where bf16 has it; both go on downwards behind.
const TAIL_OF_F16: [f32; 8] = [
    -1.834_826_2e-6,
    6.159_857e-5,
    -9.305_269e-4,
    8.507_898e-3,
    -5.396_008e-2,
    -4.584_643_8e-1,
    -1.151_251,
    -9.999_953e-1,
];
const TAIL_OF_BF16: [f32; 10] = [
    -1.597_601_4e-9,
    1.215_884_2e-7,
    -4.054_7e-6,
    7.834_838e-5,
    -9.811_291e-4,
    8.491_864e-3,
    -5.352_517_2e-2,
    -4.593_235_6e-1,
    -1.150_728_6,
    TAIL_UP - 1.000_048_9,
];
/// bf16 has results whose share is denormal in f32: there it is computed times two to the power of this.
const TAIL_UP: f32 = 64.0;

/// `x Φ(x)`.
fn gelu(b: &mut Builder, dtype: DType, x: Part) -> Part {
    let (tail, down) = match dtype {
        DType::F16 => (&TAIL_OF_F16[..], 1.0),
        _ => (&TAIL_OF_BF16[..], (-TAIL_UP).exp2()),
    };
    let a = abs(b, x.into());
    let p = polynomial(b, a, tail);
    let rest = exp2(b, p);
    let big = b.fma(-down, rest, 1.0f32);
    let negative = b.op(Gen::CmpGt.of(Type::F32), &[0.0f32.into(), x.into()]);
    let share = b.select(negative, rest, big);
    let r = mul(b, x, share);
    if down == 1.0 {
        return r;
    }
    let back = b.select(negative, down, 1.0f32);
    mul(b, r, back)
}

/// Error function, within 2.5e-6 of its value, and of what is missing to 1 within 0.2% up to 2.5 (7% up to 4):
/// `1 - 2^(t p(t))` with t = |x|, and `x q(x^2)` below 3/16. Coefficients by least squares, weighted again and again until errors are even.
fn erf(b: &mut Builder, x: Part) -> Part {
    let t = abs(b, x.into());
    let p = polynomial(b, t, &[-2.688_674e-3, 2.878_898_6e-2, -1.478_657_9e-1, -9.188_021e-1, -1.627_855_9]);
    let exponent = mul(b, p, t);
    let e = b.op(Gen::Exp2.of(Type::F32), &[exponent.into()]);
    let big = sub(b, 1.0f32, e);
    let big = copysign(b, big, x.into());
    let s = mul(b, x, x);
    let q = polynomial(b, s, &[1.113_943_8e-1, -3.761_069e-1, std::f32::consts::FRAC_2_SQRT_PI]);
    let small = mul(b, q, x);
    let is_big = b.op(Gen::CmpLt.of(Type::F32), &[0.1875f32.into(), t.into()]);
    b.select(is_big, big, small)
}

/// `1 / c` in two parts of one sign, the second of which is 0 where the first is all; `None` where f32 has no such parts.
fn in_parts(c: f32) -> Option<[f32; 2]> {
    let exact = 1.0 / f64::from(c);
    let high = match exact as f32 {
        far if f64::from(far).abs() > exact.abs() => f32::from_bits(far.to_bits() - 1),
        near => near,
    };
    let low = (exact - f64::from(high)) as f32;
    let is_whole = c.is_normal() && !high.is_infinite() && low == 0.0;
    (is_whole || c.is_normal() && high.is_normal() && low.is_normal()).then_some([high, low])
}

/// `x / c`: the product with `1 / c` in two parts, whose 48 bits tell a quotient from a middle between two results. Both parts have one sign, so
/// that infinities stay what they are. `None` where f32 has no such parts.
pub(super) fn quotient(b: &mut Builder, x: Part, c: f32) -> Option<Part> {
    let [high, low] = in_parts(c)?;
    // A power of two has its reciprocal.
    if low == 0.0 {
        return Some(mul(b, x, high));
    }
    let rest = mul(b, x, low);
    let high = b.to_vector(high);
    Some(b.fma(x, high, rest))
}

/// [`quotient`] rounds to the same whole number as the quotient of f32 does, of all operands on both sides of the middles behind these numbers.
pub(super) fn is_exact_at_middles(c: f32, mut numbers: RangeInclusive<i32>) -> bool {
    let Some([high, low]) = in_parts(c) else { return false };
    numbers.all(|n| {
        let middle = ((f64::from(n) + 0.5) * f64::from(c)) as f32;
        [middle.next_down(), middle, middle.next_up()].into_iter().all(|x| {
            let short = if low == 0.0 { x * high } else { x.mul_add(high, x * low) };
            short.round_ties_even() == (x / c).round_ties_even()
        })
    })
}

/// `x / y` where many are divided by the same `y`: the product with `1 / y` in two parts of one sign, as [`quotient`] has them, which are found once. Of
/// bf16 both are times a power of two that keeps the reciprocal far from denormals.
pub(super) fn shared_quotient(b: &mut Builder, dtype: DType, x: Part, y: Part) -> Part {
    let (x, y) = if dtype == DType::BF16 {
        let a = abs(b, y.into());
        let [big, small] = [(Gen::CmpLt, 2f32.powi(64)), (Gen::CmpGt, 2f32.powi(-64))]
            .map(|(compare, limit)| b.op(compare.of(Type::F32), &[limit.into(), a.into()]));
        let [up, down] = [2f32.powi(64), 2f32.powi(-64)].map(|by| b.to_vector(by));
        let by = b.select(small, up, 1.0f32);
        let by = b.select(big, down, by);
        (mul(b, x, by), mul(b, y, by))
    } else {
        (x, y)
    };
    let r = reciprocal(b, y);
    // Nearer to zero than the reciprocal is, by more than the instruction may be off.
    let high = mul(b, r, 1.0 - 2f32.powi(-22));
    let rest = less_product(b, Type::F32, [y.into(), high.into(), 1.0f32.into()]);
    // Of zeros and infinities it is a NaN, which the median makes the least.
    let [least, most] = [2f32.powi(-30), 1.0].map(|limit| b.to_vector(limit));
    let rest = b.op(op::V_MED3_F32, &[rest.into(), least.into(), most.into()]);
    let low = mul(b, rest, r);
    let rest = mul(b, x, low);
    b.fma(x, high, rest)
}

/// `x / y` of f16, whose numbers and their reciprocals are all far from what f32 has denormal.
pub(super) fn ratio(b: &mut Builder, x: Part, y: Part) -> Part {
    let q = Float(Type::F32).ratio(b, x, y);
    b.op(op::V_DIV_FIXUP_F32, &[q.into(), y.into(), x.into()])
}
