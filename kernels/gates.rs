//! Activations that are `x` times a share of it: Swish `x σ(x)`, Mish `x tanh ln(1 + e^x)` and Gelu `x Φ(x)`; and the error
//! function in double precision, which has its tail in common with Gelu. Within 4 ULP in both types.
//!
//! With `e = e^-|x|` the shares are quotients in which nothing cancels. Those of negative operands vanish like `e`: they
//! are computed times a power of two, which is taken off after the multiplication by `x`, so that denormal
//! results are not made from denormal shares.

use super::float::{Float, Polynomial};
use crate::mir::{Builder, Gen, Part};
use std::f64::consts::SQRT_2;

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
    let a = f.abs(b, x);
    let minus = f.neg(b, a);
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

/// Of `erfcx(a / √2) (1 + a) / 2`, in `(a - k) / (a + k)` with k = 4 (f32) or 5 (f64), for `a` up to [`farthest`].
const TAIL: Polynomial = Polynomial {
    single: &[
        -7.618_177e-5,
        -6.999_053_6e-5,
        6.911_898e-4,
        -2.969_461_8e-4,
        -5.001_646_5e-3,
        1.793_846_5e-2,
        -3.219_800_4e-2,
        2.860_016_6e-2,
        1.399_965_4e-2,
        -9.670_347e-2,
        4.720_532e-1,
    ],
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

/// Where the tail is 0 in the type, even times `2^headroom`.
fn farthest(f: Float) -> f64 {
    f.pick(20.0, 44.0)
}

/// `Φ(-a) = p 2^n` for `a` from 0 on: `e^(-a²/2)` times a polynomial. What rounding takes from `a²` comes back as a factor.
fn tail(f: Float, b: &mut Builder, a: Part) -> (Part, Part) {
    let limit = f.held(b, farthest(f));
    let a = f.op(b, Gen::Min, a, limit);
    let (square, lost) = f.two_product(b, a, a);
    let x = f.scaled(b, square, -0.5);
    let (p, n) = f.exp_parts(b, x);
    let lost = f.scaled(b, lost, -0.5);
    let k = f.pick(4.0, 5.0);
    let (less, more) = (f.plus(b, a, -k), f.plus(b, a, k));
    let q = f.ratio(b, less, more);
    let m = f.polynomial(b, q, &TAIL);
    let m = f.ratio_to_one_plus(b, m, lost, a);
    (f.mul(b, p, m), n)
}

/// Of `(Φ(√z) - 1/2) / √z` for z up to 1/2.
const CENTRE: Polynomial = Polynomial {
    single: &[1.042_779_8e-4, -1.182_535_9e-3, 9.972_708e-3, -6.649_033e-2, 3.989_423e-1],
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

/// `x Φ(x)` with the normal distribution's `Φ`: from its tail, near 0 from a polynomial.
pub(super) fn gelu(f: Float, b: &mut Builder, x: Part) -> Part {
    let a = f.abs(b, x);
    let (p, n) = tail(f, b, a);
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
    let f = Float(crate::mir::Type::F64);
    let a = f.abs(b, x);
    let wide = f.scaled(b, a, SQRT_2);
    let (p, n) = tail(f, b, wide);
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
