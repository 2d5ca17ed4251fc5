//! Inverse trigonometric and hyperbolic functions, within 4 ULP in both types.
//!
//! The trigonometric ones are odd polynomials (Chebyshev interpolations of `(f(√z) / √z - 1) / z`) after a reduction: of the arc
//! tangent by the tangent of a difference from π/4 or π/2, one division for all; of the arc sine from 1/2 on
//! by the half angle. The hyperbolic ones are logarithms of `1 + t`, where `t` loses nothing near 0.

use super::float::{Float, Polynomial};
use crate::mir::{Builder, Gen, Part};
use std::f64::consts::{FRAC_PI_2, FRAC_PI_4, LN_2, PI};

/// What π/2 in the type lacks.
fn pi_2_low(f: Float) -> f64 {
    f.pick(FRAC_PI_2 - f64::from(FRAC_PI_2 as f32), 6.123_233_995_736_766e-17)
}

/// On squares up to tan(π/8)².
const ATAN: Polynomial = Polynomial {
    single: &[-6.451_928e-2, 1.074_373_1e-1, -1.426_395_6e-1, 1.999_954e-1, -3.333_333e-1],
    double: &[
        1.628_575_685_522_102_8e-2,
        -3.457_056_198_242_774e-2,
        4.551_593_220_626_549e-2,
        -5.230_454_270_650_244e-2,
        5.878_928_997_834_775e-2,
        -6.666_424_885_738_255e-2,
        7.692_296_375_032_143e-2,
        -9.090_908_753_500_877e-2,
        1.111_111_110_515_544_7e-1,
        -1.428_571_428_565_982_8e-1,
        1.999_999_999_999_980_4e-1,
        -3.333_333_333_333_333e-1,
    ],
};

/// On squares up to 1/4.
const ASIN: Polynomial = Polynomial {
    single: &[3.369_084_7e-2, 1.714_923_8e-2, 3.110_066_2e-2, 4.459_940_3e-2, 7.500_094e-2, 1.666_666_6e-1],
    double: &[
        2.961_201_126_495_512e-2,
        -1.924_167_174_674_304e-2,
        1.955_451_333_612_337_8e-2,
        3.044_879_909_455_677_3e-3,
        9.319_560_794_767_446e-3,
        9.621_842_970_100_282e-3,
        1.156_645_961_212_166_9e-2,
        1.396_378_001_220_357e-2,
        1.735_281_654_032_549_6e-2,
        2.237_215_744_350_722e-2,
        3.038_194_447_553_234e-2,
        4.464_285_714_255_189_5e-2,
        7.500_000_000_000_118e-2,
        1.666_666_666_666_666_6e-1,
    ],
};

/// Arc tangent: of `a = |x|` as it is up to tan(π/8), as `π/4 + atan((a - 1) / (a + 1))` up to tan(3π/8), beyond as
/// `π/2 + atan(-1 / a)`.
pub(super) fn atan(f: Float, b: &mut Builder, x: Part) -> Part {
    let a = f.abs(b, x);
    let middle = f.compare_to(b, Gen::CmpGt, a, 0.414_213_562_373_095_03);
    let high = f.compare_to(b, Gen::CmpGt, a, 2.414_213_562_373_095);
    let one = f.held(b, 1.0);
    let (less, more) = (f.plus(b, a, -1.0), f.plus(b, a, 1.0));
    let minus_one = f.held(b, -1.0);
    let n = f.select(b, middle, less, a);
    let n = f.select(b, high, minus_one, n);
    let d = f.select(b, middle, more, one);
    let d = f.select(b, high, a, d);
    let t = f.div(b, n, d);
    let z = f.mul(b, t, t);
    let p = f.polynomial(b, z, &ATAN);
    let cube = f.mul(b, t, z);
    // The offset's low part comes in before the last sum.
    let zero = f.held(b, 0.0);
    let of = |b: &mut Builder, quarter: f64, half: f64| {
        let (q, h) = (f.held(b, quarter), f.held(b, half));
        let r = f.select(b, middle, q, zero);
        f.select(b, high, h, r)
    };
    let low = of(b, pi_2_low(f) / 2.0, pi_2_low(f));
    let offset = of(b, FRAC_PI_4, FRAC_PI_2);
    let rest = f.fma(b, cube, p, low);
    let rest = f.add(b, t, rest);
    let r = f.add(b, offset, rest);
    f.copysign(b, r, x)
}

/// What arc sine and cosine share: of `a = |x|` up to 1/2 `s = a`, above `s = √((1 - a) / 2)`; the mask of the latter, `s`, and
/// what `asin s` is more than `s`.
fn half_angle(f: Float, b: &mut Builder, a: Part) -> (Part, Part, Part) {
    let large = f.compare_to(b, Gen::CmpGt, a, 0.5);
    let (half, minus_half) = (f.held(b, 0.5), f.constant(b, -0.5));
    let z = f.fma(b, minus_half, a, half);
    let root = f.sqrt(b, z);
    let square = f.mul(b, a, a);
    let z = f.select(b, large, z, square);
    let s = f.select(b, large, root, a);
    let p = f.polynomial(b, z, &ASIN);
    let cube = f.mul(b, s, z);
    (large, s, f.mul(b, cube, p))
}

/// Arc sine: above 1/2 it is `π/2 - 2 asin s`.
pub(super) fn asin(f: Float, b: &mut Builder, x: Part) -> Part {
    let a = f.abs(b, x);
    let (large, s, more) = half_angle(f, b, a);
    let small = f.add(b, s, more);
    let (two, low) = (f.constant(b, -2.0), f.held(b, pi_2_low(f)));
    let rest = f.fma(b, two, more, low);
    let (two, half_turn) = (f.constant(b, -2.0), f.held(b, FRAC_PI_2));
    let (whole, lost) = {
        let twice = f.scaled(b, s, -2.0);
        let sum = f.fma(b, two, s, half_turn);
        let taken = f.sub(b, sum, half_turn);
        (sum, f.sub(b, twice, taken))
    };
    let rest = f.add(b, rest, lost);
    let big = f.add(b, whole, rest);
    let r = f.select(b, large, big, small);
    f.copysign(b, r, x)
}

/// Arc cosine: `π/2 - asin x`, above 1/2 `2 asin s`, below -1/2 `π - 2 asin s`.
pub(super) fn acos(f: Float, b: &mut Builder, x: Part) -> Part {
    let a = f.abs(b, x);
    let (large, s, more) = half_angle(f, b, a);
    let low = pi_2_low(f);
    // The small ones with the sign of x.
    let (own, own_more) = (f.copysign(b, s, x), f.copysign(b, more, x));
    let rest = f.held(b, low);
    let rest = f.sub(b, rest, own_more);
    let rest = f.sub(b, rest, own);
    let small = f.plus(b, rest, FRAC_PI_2);
    let half = f.add(b, s, more);
    let near = f.add(b, half, half);
    let two = f.constant(b, -2.0);
    let rest = f.held(b, 2.0 * low);
    let rest = f.fma(b, two, half, rest);
    let far = f.plus(b, rest, PI);
    let negative = f.compare_to(b, Gen::CmpLt, x, 0.0);
    let big = f.select(b, negative, far, near);
    f.select(b, large, big, small)
}

/// From this magnitude on `asinh` and `acosh` are `ln 2|x|` in the type, and adding 1 changes nothing; its square is still finite.
fn large(f: Float) -> f64 {
    f.pick(2f64.powi(60), 2f64.powi(500))
}

/// `ln(1 + t)`, or `ln 2 + ln a` where the operand's magnitude `a` is large or a NaN.
fn log_of_sum(f: Float, b: &mut Builder, t: Part, a: Part) -> Part {
    let near = f.compare_to(b, Gen::CmpLt, a, large(f));
    let t = f.select(b, near, t, a);
    let (zero, ln_2) = (f.held(b, 0.0), f.held(b, LN_2));
    let more = f.select(b, near, zero, ln_2);
    let l = f.log_one_plus(b, t);
    f.add(b, l, more)
}

/// `ln(a + √(a² + 1))` with the sign of `x`: `1 + t` with `t = a + a² / (1 + √(a² + 1))`.
pub(super) fn asinh(f: Float, b: &mut Builder, x: Part) -> Part {
    let a = f.abs(b, x);
    let limit = f.held(b, large(f));
    let c = f.op(b, Gen::Min, a, limit);
    let square = f.mul(b, c, c);
    let root = f.plus(b, square, 1.0);
    let root = f.sqrt_of_normal(b, root);
    let d = f.plus(b, root, 1.0);
    let q = f.ratio(b, square, d);
    let t = f.add(b, c, q);
    let r = log_of_sum(f, b, t, a);
    f.copysign(b, r, x)
}

/// `ln(x + √(x² - 1))`: `1 + t` with `u = x - 1` and `t = u + √(u (u + 2))`. NaN below 1.
pub(super) fn acosh(f: Float, b: &mut Builder, x: Part) -> Part {
    let limit = f.held(b, large(f));
    let c = f.op(b, Gen::Min, x, limit);
    let u = f.plus(b, c, -1.0);
    let two = f.plus(b, u, 2.0);
    let square = f.mul(b, u, two);
    let root = f.sqrt_of_normal(b, square);
    let t = f.add(b, u, root);
    let r = log_of_sum(f, b, t, x);
    let nan = f.held(b, f64::NAN);
    let outside = f.compare_to(b, Gen::CmpLt, x, 1.0);
    f.select(b, outside, nan, r)
}

/// `ln((1 + a) / (1 - a)) / 2` with the sign of `x`: `1 + t` with `t = 2a / (1 - a)`.
pub(super) fn atanh(f: Float, b: &mut Builder, x: Part) -> Part {
    let a = f.abs(b, x);
    let one = f.held(b, 1.0);
    let d = f.sub(b, one, a);
    let twice = f.add(b, a, a);
    let t = f.div(b, twice, d);
    let l = f.log_one_plus(b, t);
    let r = f.scaled(b, l, 0.5);
    f.copysign(b, r, x)
}
