//! Activations that are `x` times a share of it: Swish `x σ(x)`, Mish `x tanh ln(1 + e^x)` and Gelu `x Φ(x)`; and the error
//! function in double precision, which has its tail in common with Gelu. Within 4 ULP in both types.
//!
//! With `e = e^-|x|` the shares of Swish and Mish are quotients in which nothing cancels. Those of negative operands vanish like `e`: they
//! are computed times a power of two, which is taken off after the multiplication by `x`, so that denormal
//! results are not made from denormal shares.

use super::float::{Float, Polynomial};
use super::math;
use crate::mir::{Builder, Gen, Part, Type};
use std::f64::consts::{LOG2_E, SQRT_2};

const DOUBLE: Float = Float(Type::F64);

/// The power of two that shares of negative operands are multiplied by: what [`Float::exp_parts`] leaves room for.
fn headroom(f: Float) -> i32 {
    f.pick(64, 256)
}

/// `x` times a share that was computed times `2^headroom` where `negative`.
fn gated(f: Float, b: &mut Builder, negative: Part, x: Part, share: Part) -> Part {
    let r = f.mul(b, x, share);
    let down = b.select(negative, -headroom(f), 0u32);
    f.ldexp(b, r, down)
}

/// `x / (1 + e^-x)`.
pub(super) fn swish(f: Float, b: &mut Builder, x: Part) -> Part {
    let (e, up, negative) = decay(f, b, x);
    let one = f.held(b, 1.0);
    let d = f.add(b, one, e);
    let n = f.select(b, negative, up, one);
    let share = f.ratio(b, n, d);
    gated(f, b, negative, x, share)
}

/// `e = e^-|x|`, the same times `2^headroom`, and the mask of negative operands.
fn decay(f: Float, b: &mut Builder, x: Part) -> (Part, Part, Part) {
    let minus = f.minus_abs(b, x);
    let (p, n) = f.exp_parts(b, minus);
    let e = f.ldexp(b, p, n);
    let n = b.add(n, headroom(f));
    let up = f.ldexp(b, p, n);
    (e, up, f.compare_to(b, Gen::CmpLt, x, 0.0))
}

/// `x n / (n + 2)` with `n = e^x (e^x + 2)`; for positive operands both are multiplied by `e^-2x`.
pub(super) fn mish(f: Float, b: &mut Builder, x: Part) -> Part {
    let (e, up, negative) = decay(f, b, x);
    let (one, two) = (f.held(b, 1.0), f.held(b, 2.0));
    let (twice, twice_up) = (f.add(b, e, e), f.add(b, up, up));
    let (small, small_up) = (f.fma(b, e, e, twice), f.fma(b, up, e, twice_up));
    let small_d = f.add(b, two, small);
    let big = f.add(b, one, twice);
    let big_d = f.fma(b, twice, e, big);
    let n = f.select(b, negative, small_up, big);
    let d = f.select(b, negative, small_d, big_d);
    let share = f.ratio(b, n, d);
    gated(f, b, negative, x, share)
}

/// Of `erfcx(a / √2) (1 + a) / 2`, in `(a - 5) / (a + 5)` for `a` up to [`FARTHEST`]; f32 has a recipe of its own.
const TAIL: Polynomial = Polynomial {
    single: &[],
    double: &[
        -3.208_030_875_420_255e-10,
        -1.080_917_520_160_493_2e-10,
        4.333_528_158_325_769e-9,
        3.029_676_849_538_941_4e-9,
        -3.116_044_702_513_206e-8,
        -2.541_570_378_724_012e-8,
        1.968_374_524_576_587_3e-7,
        1.271_813_870_925_806_5e-7,
        -1.308_041_266_707_185_5e-6,
        -7.001_568_872_881_652e-8,
        9.060_177_730_482_646e-6,
        -9.896_190_457_264_207e-6,
        -5.360_770_951_800_352_4e-5,
        1.823_341_589_501_017_3e-4,
        7.791_626_219_345_6e-6,
        -1.676_072_345_168_403_6e-3,
        6.522_000_663_931_869e-3,
        -1.517_041_540_261_045_3e-2,
        2.453_696_324_395_99e-2,
        -2.640_104_296_629_611e-2,
        1.000_235_238_522_000_3e-2,
        3.103_036_842_596_333_3e-2,
        -9.155_228_183_400_894e-2,
        4.615_158_298_500_377_5e-1,
    ],
};

/// Where the tail of doubles is 0, even times `2^headroom`.
const FARTHEST: f64 = 44.0;

/// `Φ(-a) = p 2^n` of doubles from 0 on: `e^(-a²/2)` times a polynomial. What rounding takes from `a²` comes back as a factor.
fn tail(b: &mut Builder, a: Part) -> (Part, Part) {
    let f = DOUBLE;
    let limit = f.held(b, FARTHEST);
    let a = f.op(b, Gen::Min, a, limit);
    let (square, lost) = f.two_product(b, a, a);
    let x = f.scaled(b, square, -0.5);
    let (p, n) = f.exp_parts(b, x);
    let lost = f.scaled(b, lost, -0.5);
    let (less, more) = (f.plus(b, a, -5.0), f.plus(b, a, 5.0));
    let q = f.ratio(b, less, more);
    let m = f.polynomial(b, q, &TAIL);
    let sum = f.plus(b, a, 1.0);
    let m = f.div(b, m, sum);
    let m = f.fma(b, m, lost, m);
    (f.mul(b, p, m), n)
}

/// Of `(Φ(√z) - 1/2) / √z` for z up to 1/2.
const CENTRE: Polynomial = Polynomial {
    single: &[],
    double: &[
        2.033_742_058_621_596e-9,
        -4.100_625_267_192_469e-8,
        6.658_589_845_581_663e-7,
        -9.444_623_920_664_533e-6,
        1.154_346_820_383_927_4e-4,
        -1.187_328_214_939_370_9e-3,
        9.973_557_010_009_501e-3,
        -6.649_038_006_690_496e-2,
        3.989_422_804_014_327e-1,
    ],
};

/// `x Φ(x)` with the normal distribution's `Φ`.
pub(super) fn gelu(f: Float, b: &mut Builder, x: Part) -> Part {
    if f.is_double() { gelu_of_double(b, x) } else { gelu_of_single(b, x) }
}

/// From the tail, near 0 from a polynomial.
fn gelu_of_double(b: &mut Builder, x: Part) -> Part {
    let f = DOUBLE;
    let a = f.abs(b, x);
    let (p, n) = tail(b, a);
    let rest = f.ldexp(b, p, n);
    let one = f.held(b, 1.0);
    let big = f.sub(b, one, rest);
    let n = b.add(n, headroom(f));
    let up = f.ldexp(b, p, n);
    let negative = f.compare_to(b, Gen::CmpLt, x, 0.0);
    let share = f.select(b, negative, up, big);
    let z = f.mul(b, x, x);
    let p = f.polynomial(b, z, &CENTRE);
    let half = f.held(b, 0.5);
    let near = f.fma(b, x, p, half);
    let is_near = f.compare_to(b, Gen::CmpLt, z, 0.5);
    let centre = f.mul(b, x, near);
    let r = gated(f, b, negative, x, share);
    f.select(b, is_near, centre, r)
}

/// Of `erfcx(a / √2) (a + 4) / 2` in `(a - 4) / (a + 4)`, for `a` up to 14.6: least relative error, 9e-9, by Lawson's weighted least squares.
const MILLS: Polynomial = Polynomial {
    single: &[
        -1.324_345e-4,
        1.783_693_6e-4,
        1.569_589_4e-3,
        -3.512_076_6e-3,
        -7.525_003e-3,
        6.040_376_4e-2,
        -1.865_234_8e-1,
        3.871_369e-1,
        -6.078_965_7e-1,
        7.552_851_4e-1,
    ],
    double: &[],
};

/// `y = a Φ(-a)` of `a = |x|` is `w` times [`MILLS`] times `e^(-a²/2)` with `w = a / (a + 4)`; then `-y` of negative operands, others `x - y`.
/// What rounding takes from `a²` and from `a + 4` is put back.
fn gelu_of_single(b: &mut Builder, x: Part) -> Part {
    let f = Float(Type::F32);
    // From there on nothing is left. A NaN is taken for that here, and comes back with the last sum.
    let farthest = f.held(b, 20.0);
    let a = f.abs(b, x);
    let a = f.op(b, Gen::Min, a, farthest);
    let (square, lost) = f.two_product(b, a, a);
    // e^(-a²/2) = p 2^n with n at least -289.
    let unit = -LOG2_E / 2.0;
    let high = f.held(b, unit);
    let low = f.constant(b, unit - f64::from(unit as f32));
    let sum = math::product_and_whole(b, square, high);
    let n = math::whole_part(b, sum);
    let rest = f.product_less(b, square, high, n);
    let rest = f.fma(b, square, low, rest);
    let rest = f.fma(b, lost, high, rest);
    let p = f.one(b, Gen::Exp2, rest);
    let n = math::exponent_of_sum(b, sum, 0);
    let d = f.plus(b, a, 4.0);
    let kept = f.plus(b, d, -4.0);
    let excess = f.sub(b, kept, a);
    let r = f.one(b, Gen::Rcp, d);
    let w = f.mul(b, a, r);
    let e = f.less_product(b, d, w, a);
    let e = f.fma(b, excess, w, e);
    // The quotient in two parts, so that its product with the polynomial is rounded once.
    let w_low = f.mul(b, e, r);
    let minus_one = f.held(b, -1.0);
    let q = b.fma(2.0f32, w, minus_one);
    let q = b.fma(2.0f32, w_low, q);
    let m = f.polynomial(b, q, &MILLS);
    let low = f.mul(b, m, w_low);
    let m = f.fma(b, m, w, low);
    let y = f.mul(b, p, m);
    let y = f.ldexp(b, y, n);
    // 0 x is -0, of minus infinity a NaN.
    let zero = f.constant(b, 0.0);
    let below = f.product_less(b, x, zero, y);
    let above = f.sub(b, x, y);
    let negative = f.compare_to(b, Gen::CmpLt, x, 0.0);
    f.select(b, negative, below, above)
}

/// Of `erf √z / √z - 1` for z up to 1; f32 has a recipe of its own.
const ERF: Polynomial = Polynomial {
    single: &[],
    double: &[
        5.957_176_147_748_911e-11,
        -1.137_284_885_679_167_4e-9,
        1.465_977_527_404_743_6e-8,
        -1.635_031_270_105_469_5e-7,
        1.646_100_048_412_136_8e-6,
        -1.492_559_526_683_118_2e-5,
        1.205_533_111_164_271e-4,
        -8.548_326_980_833_79e-4,
        5.223_977_624_818_014_5e-3,
        -2.686_617_064_507_679_2e-2,
        1.128_379_167_095_487_9e-1,
        -3.761_263_890_318_375e-1,
        1.283_791_670_955_126e-1,
    ],
};

/// Error function of doubles: `1 - 2 Φ(-√2 |x|)` with the sign of `x`, below 1 an odd polynomial.
pub(super) fn erf(b: &mut Builder, x: Part) -> Part {
    let f = DOUBLE;
    let a = f.abs(b, x);
    let wide = f.scaled(b, a, SQRT_2);
    let (p, n) = tail(b, wide);
    let n = b.add(n, 1u32);
    let rest = f.ldexp(b, p, n);
    let one = f.held(b, 1.0);
    let big = f.sub(b, one, rest);
    let z = f.mul(b, a, a);
    let p = f.polynomial(b, z, &ERF);
    let small = f.fma(b, p, a, a);
    let is_small = f.compare_to(b, Gen::CmpLt, a, 1.0);
    let r = f.select(b, is_small, small, big);
    let r = f.copysign(b, r, x);
    f.keep_nan(b, x, r)
}
