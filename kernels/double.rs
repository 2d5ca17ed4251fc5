//! Elementary functions on f64.
//!
//! Arithmetic, division and square root round correctly. The transcendental functions are reduced and then polynomials or
//! the series of the fdlibm library (Sun Microsystems, 1993), within 2 ULP but for the functions that are composed
//! of the others; `tests/kernels/numerics.rs` measures them. A NaN operand gives a NaN.

use super::math;
use crate::mir::{Builder, Gen, Part, Type};
use barewave_isa::op;

const T: Type = Type::F64;

/// A constant in a register pair.
pub(super) fn constant(b: &mut Builder, x: f64) -> Part {
    let p = b.v(2);
    let bits = x.to_bits();
    b.copy_into(p.dword(0), bits as u32);
    b.copy_into(p.dword(1), (bits >> 32) as u32);
    p
}

fn op2(b: &mut Builder, g: Gen, x: Part, y: Part) -> Part {
    b.op(g.of(T), &[x.into(), y.into()])
}
fn fma(b: &mut Builder, x: Part, y: Part, z: Part) -> Part {
    b.op(Gen::Fma.of(T), &[x.into(), y.into(), z.into()])
}
fn neg(b: &mut Builder, x: Part) -> Part {
    b.op(Gen::Neg.of(T), &[x.into()])
}
fn abs(b: &mut Builder, x: Part) -> Part {
    b.op(Gen::Abs.of(T), &[x.into()])
}
fn select(b: &mut Builder, mask: Part, x: Part, y: Part) -> Part {
    b.op(Gen::Select.of(T), &[mask.into(), x.into(), y.into()])
}
fn compare(b: &mut Builder, g: Gen, x: Part, y: Part) -> Part {
    b.op(g.of(T), &[x.into(), y.into()])
}
/// `value`, or a NaN where `x` is one.
fn keep_nan(b: &mut Builder, x: Part, value: Part) -> Part {
    let nan = compare(b, Gen::CmpUnordered, x, x);
    select(b, nan, x, value)
}
/// The magnitude of `x` with the sign of `s`.
fn copysign(b: &mut Builder, x: Part, s: Part) -> Part {
    let r = b.v(2);
    let mask = b.scalar(0x7fff_ffff);
    b.copy_into(r.dword(0), x.dword(0));
    b.emit(op::V_BFI_B32, &[r.dword(1).into()], &[mask.into(), x.dword(1).into(), s.dword(1).into()]);
    r
}

/// Square root, correctly rounded but for double rounding of denormal results: Goldschmidt's iteration from the hardware's
/// reciprocal root, on an operand that is scaled away from the denormals.
pub(super) fn sqrt(b: &mut Builder, x: Part) -> Part {
    let least = constant(b, 2f64.powi(-767));
    let small = compare(b, Gen::CmpLt, x, least);
    let up = b.select(small, 256u32, 0u32);
    let s = b.op(Gen::Ldexp.of(T), &[x.into(), up.into()]);
    let y = b.op(Gen::Rsq.of(T), &[s.into()]);
    let half = constant(b, 0.5);
    let (g, h) = (op2(b, Gen::Mul, s, y), op2(b, Gen::Mul, y, half));
    let minus = neg(b, h);
    let r = fma(b, minus, g, half);
    let (mut g, h) = (fma(b, g, r, g), fma(b, h, r, h));
    for _ in 0..2 {
        let minus = neg(b, g);
        let d = fma(b, minus, g, s);
        g = fma(b, d, h, g);
    }
    let down = b.select(small, -128i32, 0u32);
    let r = b.op(Gen::Ldexp.of(T), &[g.into(), down.into()]);
    // Zeros and infinity are their own roots; the iteration makes NaN of them.
    let (zero, most) = (constant(b, 0.0), constant(b, f64::INFINITY));
    let flat = compare(b, Gen::CmpEq, x, zero);
    let endless = compare(b, Gen::CmpEq, x, most);
    let r = select(b, flat, x, r);
    select(b, endless, x, r)
}

/// ln 2 in two parts: the first has 20 zero bits at its end, so that multiples by exponents are exact.
pub(super) const LN2: [f64; 2] = [6.931_471_803_691_238e-1, 1.908_214_929_270_587_7e-10];

/// Horner's scheme, highest coefficient first.
fn polynomial(b: &mut Builder, x: Part, c: &[f64]) -> Part {
    let mut r = constant(b, c[0]);
    for &k in &c[1..] {
        let k = constant(b, k);
        r = fma(b, r, x, k);
    }
    r
}

/// `x` between two limits.
fn clamp(b: &mut Builder, x: Part, low: f64, high: f64) -> Part {
    let (low, high) = (constant(b, low), constant(b, high));
    let r = op2(b, Gen::Max, x, low);
    op2(b, Gen::Min, r, high)
}

/// `x = n ln 2 + f + lost`: the integer as a float, the rest in two parts.
fn reduce(b: &mut Builder, x: Part) -> (Part, Part, Part) {
    let log2e = constant(b, std::f64::consts::LOG2_E);
    let t = op2(b, Gen::Mul, x, log2e);
    let n = b.op(Gen::Round.of(T), &[t.into()]);
    let minus = neg(b, n);
    let (high, low) = (constant(b, LN2[0]), constant(b, LN2[1]));
    let a = fma(b, minus, high, x);
    let f = fma(b, minus, low, a);
    // What that rounding took.
    let d = op2(b, Gen::Sub, a, f);
    let lost = fma(b, minus, low, d);
    (n, f, lost)
}

/// Coefficients of `(e^f - 1 - f) / f^2`.
const EXP: [f64; 12] = [
    1.0 / 6_227_020_800.0,
    1.0 / 479_001_600.0,
    1.0 / 39_916_800.0,
    1.0 / 3_628_800.0,
    1.0 / 362_880.0,
    1.0 / 40_320.0,
    1.0 / 5040.0,
    1.0 / 720.0,
    1.0 / 120.0,
    1.0 / 24.0,
    1.0 / 6.0,
    0.5,
];

/// `e^f - 1` of a reduced operand.
fn exp_of_rest(b: &mut Builder, f: Part, lost: Part) -> Part {
    let p = polynomial(b, f, &EXP);
    let square = op2(b, Gen::Mul, f, f);
    let p = fma(b, square, p, lost);
    op2(b, Gen::Add, f, p)
}

/// `e^x`.
pub(super) fn exp(b: &mut Builder, x: Part) -> Part {
    exp_scaled(b, x, 0)
}

/// `2^scale e^x`.
fn exp_scaled(b: &mut Builder, x: Part, scale: i32) -> Part {
    let (p, n) = exp_parts(b, x);
    let n = if scale == 0 { n } else { b.add(n, scale) };
    let r = b.op(Gen::Ldexp.of(T), &[p.into(), n.into()]);
    keep_nan(b, x, r)
}

/// `e^x = p 2^n`. Operands are taken as at most 1600 in magnitude.
pub(super) fn exp_parts(b: &mut Builder, x: Part) -> (Part, Part) {
    let c = clamp(b, x, -1600.0, 1600.0);
    let (n, f, lost) = reduce(b, c);
    let p = exp_of_rest(b, f, lost);
    let one = constant(b, 1.0);
    let p = op2(b, Gen::Add, one, p);
    (p, b.convert(T, Type::I32, n))
}

/// `e^x - 1`: with `p = e^f - 1` that is `2^n p + (2^n - 1)`, halved so that it overflows only where the result does. No `n`
/// is above 1024: half of `2^n` stays finite.
pub(super) fn exp_minus_one(b: &mut Builder, x: Part) -> Part {
    let c = clamp(b, x, -60.0, 709.9);
    let (n, f, lost) = reduce(b, c);
    let p = exp_of_rest(b, f, lost);
    let n = b.convert(T, Type::I32, n);
    let n = b.sub(n, 1u32);
    let (one, half) = (constant(b, 1.0), constant(b, -0.5));
    let scale = b.op(Gen::Ldexp.of(T), &[one.into(), n.into()]);
    let whole = op2(b, Gen::Add, scale, half);
    let r = fma(b, scale, p, whole);
    let r = op2(b, Gen::Add, r, r);
    // Where n was 0 that is p; tiny operands, and -0, pass unchanged.
    let zero = b.op(Gen::CmpEq.of(Type::U32), &[(-1i32).into(), n.into()]);
    let r = select(b, zero, p, r);
    let nothing = constant(b, 0.0);
    let flat = compare(b, Gen::CmpEq, x, nothing);
    let r = select(b, flat, x, r);
    keep_nan(b, x, r)
}

/// Natural logarithm (fdlibm's `e_log.c`): `x = 2^k (1 + f)`, `s = f / (2 + f)` and a polynomial of `s^2`.
pub(super) fn log(b: &mut Builder, x: Part) -> Part {
    let mant = b.op(op::V_FREXP_MANT_F64, &[x.into()]);
    let k = b.op(op::V_FREXP_EXP_I32_F64, &[x.into()]);
    let root = constant(b, std::f64::consts::FRAC_1_SQRT_2);
    let low = compare(b, Gen::CmpLt, mant, root);
    let by = b.select(low, 1u32, 0u32);
    let m = b.op(Gen::Ldexp.of(T), &[mant.into(), by.into()]);
    let k = b.sub(k, by);
    let k = b.convert(Type::I32, T, k);
    let minus_one = constant(b, -1.0);
    let f = op2(b, Gen::Add, m, minus_one);
    let two = constant(b, 2.0);
    let d = op2(b, Gen::Add, f, two);
    let s = math::div_of(b, T, f.into(), d.into());
    let z = op2(b, Gen::Mul, s, s);
    let r = polynomial(
        b,
        z,
        &[
            1.479_819_860_511_658_6e-1,
            1.531_383_769_920_937_3e-1,
            1.818_357_216_161_805e-1,
            2.222_219_843_214_978_4e-1,
            2.857_142_874_366_239e-1,
            3.999_999_999_940_942e-1,
            6.666_666_666_666_735e-1,
        ],
    );
    let r = op2(b, Gen::Mul, z, r);
    let half = constant(b, 0.5);
    let hf = op2(b, Gen::Mul, f, half);
    let hfsq = op2(b, Gen::Mul, hf, f);
    let sum = op2(b, Gen::Add, hfsq, r);
    let (high, lo) = (constant(b, LN2[0]), constant(b, LN2[1]));
    let tail = op2(b, Gen::Mul, k, lo);
    let t = fma(b, s, sum, tail);
    let t = op2(b, Gen::Sub, hfsq, t);
    let t = op2(b, Gen::Sub, t, f);
    let minus = neg(b, t);
    let r = fma(b, k, high, minus);
    // Poles, infinity and what has no logarithm.
    let (zero, most, least) = (constant(b, 0.0), constant(b, f64::INFINITY), constant(b, f64::NEG_INFINITY));
    let nan = constant(b, f64::NAN);
    let pole = compare(b, Gen::CmpEq, x, zero);
    let r = select(b, pole, least, r);
    let endless = compare(b, Gen::CmpEq, x, most);
    let r = select(b, endless, x, r);
    let negative = compare(b, Gen::CmpLt, x, zero);
    let r = select(b, negative, nan, r);
    keep_nan(b, x, r)
}

/// `ln(1 + x)`: the logarithm of the rounded sum, and what the rounding took.
pub(super) fn log_one_plus(b: &mut Builder, x: Part) -> Part {
    let (one, minus_one) = (constant(b, 1.0), constant(b, -1.0));
    let u = op2(b, Gen::Add, x, one);
    let l = log(b, u);
    let taken = op2(b, Gen::Add, u, minus_one);
    let lost = op2(b, Gen::Sub, x, taken);
    let extra = math::div_of(b, T, lost.into(), u.into());
    let sum = op2(b, Gen::Add, l, extra);
    // At the pole and at infinity nothing is lost; nor does a zero lose its sign.
    let (size, most) = (abs(b, l), constant(b, f64::MAX));
    let finite = compare(b, Gen::CmpLe, size, most);
    let r = select(b, finite, sum, l);
    let zero = constant(b, 0.0);
    let flat = compare(b, Gen::CmpEq, x, zero);
    select(b, flat, x, r)
}

/// `1 / (1 + e^-x)`, for negative operands `e^x / (1 + e^x)`.
pub(super) fn sigmoid(b: &mut Builder, x: Part) -> Part {
    let a = abs(b, x);
    let m = neg(b, a);
    let e = exp(b, m);
    let one = constant(b, 1.0);
    let d = op2(b, Gen::Add, one, e);
    let zero = constant(b, 0.0);
    let negative = compare(b, Gen::CmpLt, x, zero);
    let n = select(b, negative, e, one);
    let r = math::div_of(b, T, n.into(), d.into());
    keep_nan(b, x, r)
}

/// `t / (t + 2)` with `t = e^2|x| - 1`, and the sign of `x`.
pub(super) fn tanh(b: &mut Builder, x: Part) -> Part {
    let a = abs(b, x);
    let limit = constant(b, 22.0);
    let c = op2(b, Gen::Min, a, limit);
    let twice = op2(b, Gen::Add, c, c);
    let t = exp_minus_one(b, twice);
    let two = constant(b, 2.0);
    let d = op2(b, Gen::Add, t, two);
    let r = math::div_of(b, T, t.into(), d.into());
    let r = copysign(b, r, x);
    keep_nan(b, x, r)
}

/// Cosine: `h + 1 / 4h` with `h = e^|x| / 2`. Sine: with `t = e^|x| - 1` half of `t + t / (t + 1)`, or `h` where that overflows.
pub(super) fn hyperbolic(b: &mut Builder, cos: bool, x: Part) -> Part {
    let a = abs(b, x);
    let h = exp_scaled(b, a, -1);
    if cos {
        let quarter = constant(b, 0.25);
        let r = math::div_of(b, T, quarter.into(), h.into());
        return op2(b, Gen::Add, h, r);
    }
    let t = exp_minus_one(b, a);
    let (one, half) = (constant(b, 1.0), constant(b, 0.5));
    let d = op2(b, Gen::Add, t, one);
    let q = math::div_of(b, T, t.into(), d.into());
    let s = op2(b, Gen::Add, t, q);
    let s = op2(b, Gen::Mul, s, half);
    let limit = constant(b, 30.0);
    let big = compare(b, Gen::CmpGt, a, limit);
    let r = select(b, big, h, s);
    let r = copysign(b, r, x);
    keep_nan(b, x, r)
}
