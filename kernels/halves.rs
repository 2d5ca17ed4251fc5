//! Recipes for results of 16 bits, computed in f32: an error that is small beside the rounding to f16 or bf16 is allowed, so they are
//! much shorter than those of f32 ([`math`](super::math), [`gates`](super::gates)).
//!
//! Powers of two are computed times another one, which is taken off where the result is made: `v_exp_f32` and `v_rcp_f32` flush denormals,
//! and bf16 has the exponents of f32. `tests/kernels/numerics.rs` tries every operand of both types.

use super::float::Float;
use super::math::{abs, add, copysign, mul, polynomial, sub};
use crate::graph::expr::Unary;
use crate::mir::{Builder, Gen, Part, Type};
use crate::tensor::DType;
use barewave_isa::op;
use std::f32::consts::LOG2_E;

/// The recipe of an operation of one operand, of f16 or bf16 values held as f32; `None` where that of f32 is short anyway.
pub(super) fn unary(b: &mut Builder, op: Unary, dtype: DType, x: Part) -> Option<Part> {
    Some(match op {
        Unary::Erf => erf(b, x),
        Unary::Exp if dtype == DType::F16 => exp_of_f16(b, x),
        Unary::Gelu => gelu(b, dtype, x),
        Unary::Mish => mish(b, x),
        // What is denormal in f32, as operand or result, is 0 or infinite in f16.
        Unary::Recip if dtype == DType::F16 => reciprocal(b, x),
        Unary::Sigmoid => sigmoid(b, x),
        // Denormal operands of f32, which the instruction flushes, are none of f16.
        Unary::Sqrt if dtype == DType::F16 => b.op(Gen::Sqrt.of(Type::F32), &[x.into()]),
        Unary::Swish => {
            let share = sigmoid(b, x);
            mul(b, x, share)
        }
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

/// `x / c`: the product with what f32 has for `1 / c`, corrected by what is left over, and infinities and zeros put
/// right.
pub(super) fn quotient(b: &mut Builder, x: Part, c: f32) -> Part {
    let r = b.to_vector(1.0 / c);
    let q = mul(b, x, r);
    if c.is_normal() && c.to_bits() << 9 == 0 {
        return q;
    }
    let minus = b.to_vector(-c);
    let e = b.fma(minus, q, x);
    let q = b.fma(e, r, q);
    b.op(op::V_DIV_FIXUP_F32, &[q.into(), c.into(), x.into()])
}

/// `x / y` of f16, whose numbers and their reciprocals are all far from what f32 has denormal.
pub(super) fn ratio(b: &mut Builder, x: Part, y: Part) -> Part {
    let q = Float(Type::F32).ratio(b, x, y);
    b.op(op::V_DIV_FIXUP_F32, &[q.into(), y.into(), x.into()])
}
