//! Number formats and the odd functions of AMD's floating-point units, one scalar value at a time and without branches
//! where it matters, so that lane loops vectorise.
//!
//! Sources: AMD "Vega", "CDNA3" and "RDNA3" instruction set manuals (pseudocode of the VALU chapters). Where the manual
//! promises an error bound only (transcendentals: 1 ULP), results here are the correctly rounded ones.

use super::lanes::{Bf16, F16};

/// Half to single, exact; NaN payloads keep their bits (signalling stays signalling).
#[inline(always)]
pub fn f16_to_f32(h: F16) -> f32 {
    let h = h.0 as u32;
    let sign = (h & 0x8000) << 16;
    let mag = h & 0x7fff;
    // Exponent rebias by 112; denormals come out right through the float multiplication.
    let normal = f32::from_bits(mag << 13) * f32::from_bits(0x7780_0000);
    let special = 0x7f80_0000 | mag << 13;
    let bits = if mag >= 0x7c00 { special } else { normal.to_bits() };
    f32::from_bits(bits | sign)
}

/// Single to half, to nearest even.
#[inline(always)]
pub fn f32_to_f16(x: f32) -> F16 {
    let b = x.to_bits();
    let sign = (b >> 16) & 0x8000;
    let mag = b & 0x7fff_ffff;
    // Normal results: round in integer arithmetic, a carry moves into the exponent as it should.
    let odd = (mag >> 13) & 1;
    let normal = (mag.wrapping_add(0xfff + odd) >> 13).wrapping_sub(112 << 10);
    // Denormal results: let the float unit round at the place of the last bit.
    let denormal = (f32::from_bits(mag.min(0x4700_0000)) + 0.5).to_bits().wrapping_sub(0x3f00_0000);
    let nan = 0x7e00 | (mag >> 13) & 0x3ff;
    let r = if mag > 0x7f80_0000 {
        nan
    } else if mag >= 0x4780_0000 {
        0x7c00
    } else if mag < 0x3880_0000 {
        denormal
    } else {
        normal
    };
    F16((r | sign) as u16)
}

/// Single to half, toward zero; overflow gives the largest finite number.
#[inline(always)]
pub fn f32_to_f16_rtz(x: f32) -> F16 {
    let b = x.to_bits();
    let sign = (b >> 16) & 0x8000;
    let mag = b & 0x7fff_ffff;
    let shift = (126u32.wrapping_sub(mag >> 23)).min(31);
    let r = if mag > 0x7f80_0000 {
        0x7e00 | (mag >> 13) & 0x3ff
    } else if mag == 0x7f80_0000 {
        0x7c00
    } else if mag >= 0x4780_0000 {
        0x7bff
    } else if mag < 0x3880_0000 {
        (mag & 0x7f_ffff | 0x80_0000) >> shift
    } else {
        (mag >> 13).wrapping_sub(112 << 10)
    };
    F16((r | sign) as u16)
}

/// Double to single, rounded to odd: no later rounding to fewer than 23 bits can go wrong.
#[inline(always)]
pub fn f64_to_f32_odd(x: f64) -> f32 {
    let r = x as f32;
    let back = r as f64;
    if back == x || r.is_nan() {
        return r;
    }
    // `r` was rounded; the odd one of the two neighbours is wanted.
    let b = r.to_bits();
    if b & 1 == 1 && r.is_finite() {
        return r;
    }
    let away = back.abs() > x.abs();
    f32::from_bits(if away { b - 1 } else { b + 1 })
}

/// Double to half, to nearest even.
#[inline(always)]
pub fn f64_to_f16(x: f64) -> F16 {
    f32_to_f16(f64_to_f32_odd(x))
}

/// bf16 to single, exact.
#[inline(always)]
pub fn bf16_to_f32(h: Bf16) -> f32 {
    f32::from_bits((h.0 as u32) << 16)
}

/// Single to bf16, to nearest even.
#[inline(always)]
pub fn f32_to_bf16(x: f32) -> Bf16 {
    let b = x.to_bits();
    let r = b.wrapping_add(0x7fff + ((b >> 16) & 1)) >> 16;
    let nan = b >> 16 | 0x40;
    Bf16(if b & 0x7fff_ffff > 0x7f80_0000 { nan } else { r } as u16)
}

/// `a * b + c` with one rounding, as every FMA of the hardware.
#[inline(always)]
pub fn fma(a: f32, b: f32, c: f32) -> f32 {
    a.mul_add(b, c)
}

/// `a * b + c` in half precision with one rounding.
#[inline(always)]
pub fn fma16(a: F16, b: F16, c: F16) -> F16 {
    // The product is exact in double; the sum is made odd where it was rounded, then rounded once.
    let p = f16_to_f32(a) as f64 * f16_to_f32(b) as f64;
    let c = f16_to_f32(c) as f64;
    let s = p + c;
    let bb = s - p;
    let err = (p - (s - bb)) + (c - bb);
    let bits = s.to_bits();
    let inexact = err != 0.0 && s.is_finite();
    let toward = (err > 0.0) == (s > 0.0);
    let odd = if inexact && bits & 1 == 0 { if toward { bits + 1 } else { bits.wrapping_sub(1) } } else { bits };
    f64_to_f16(f64::from_bits(odd))
}

/// Applies an operation on singles to halves: exact for one addition, multiplication, division or square root.
#[inline(always)]
pub fn half1(a: F16, f: impl Fn(f32) -> f32) -> F16 {
    f32_to_f16(f(f16_to_f32(a)))
}

/// As [`half1`] with two operands.
#[inline(always)]
pub fn half2(a: F16, b: F16, f: impl Fn(f32, f32) -> f32) -> F16 {
    f32_to_f16(f(f16_to_f32(a), f16_to_f32(b)))
}

/// The NaN with its quiet bit set.
#[inline(always)]
pub fn quiet(x: f32) -> f32 {
    f32::from_bits(x.to_bits() | 0x0040_0000)
}

#[inline(always)]
fn is_snan(x: f32) -> bool {
    let m = x.to_bits() & 0x7fff_ffff;
    m > 0x7f80_0000 && m & 0x0040_0000 == 0
}

/// Sort key of a number: total order with -0 below +0.
#[inline(always)]
fn key(x: f32) -> i32 {
    let b = x.to_bits() as i32;
    b ^ ((b >> 31) as u32 >> 1) as i32
}

/// IEEE 754-2008 minNum, -0 below +0; signalling NaNs come back quiet (IEEE mode).
#[inline(always)]
pub fn min_num(a: f32, b: f32) -> f32 {
    let m = if key(b) < key(a) { b } else { a };
    let m = if b.is_nan() { a } else { m };
    let m = if a.is_nan() { b } else { m };
    let m = if is_snan(b) { quiet(b) } else { m };
    if is_snan(a) { quiet(a) } else { m }
}

/// IEEE 754-2008 maxNum.
#[inline(always)]
pub fn max_num(a: f32, b: f32) -> f32 {
    let m = if key(b) > key(a) { b } else { a };
    let m = if b.is_nan() { a } else { m };
    let m = if a.is_nan() { b } else { m };
    let m = if is_snan(b) { quiet(b) } else { m };
    if is_snan(a) { quiet(a) } else { m }
}

/// IEEE 754-2019 minimum: NaN wins.
#[inline(always)]
pub fn minimum(a: f32, b: f32) -> f32 {
    let m = if key(b) < key(a) { b } else { a };
    let m = if b.is_nan() { quiet(b) } else { m };
    if a.is_nan() { quiet(a) } else { m }
}

/// IEEE 754-2019 maximum: NaN wins.
#[inline(always)]
pub fn maximum(a: f32, b: f32) -> f32 {
    let m = if key(b) > key(a) { b } else { a };
    let m = if b.is_nan() { quiet(b) } else { m };
    if a.is_nan() { quiet(a) } else { m }
}

/// Middle of three; with a NaN the minimum of them (V_MED3_F32).
#[inline(always)]
pub fn med3(a: f32, b: f32, c: f32) -> f32 {
    if a.is_nan() || b.is_nan() || c.is_nan() {
        return min_num(min_num(a, b), c);
    }
    max_num(min_num(a, b), min_num(max_num(a, b), c))
}

#[inline(always)]
fn key64(x: f64) -> i64 {
    let b = x.to_bits() as i64;
    b ^ ((b >> 63) as u64 >> 1) as i64
}

/// [`min_num`] for doubles (NaN operands are dropped).
#[inline(always)]
pub fn min_num64(a: f64, b: f64) -> f64 {
    let m = if key64(b) < key64(a) { b } else { a };
    let m = if b.is_nan() { a } else { m };
    if a.is_nan() { b } else { m }
}

/// [`max_num`] for doubles.
#[inline(always)]
pub fn max_num64(a: f64, b: f64) -> f64 {
    let m = if key64(b) > key64(a) { b } else { a };
    let m = if b.is_nan() { a } else { m };
    if a.is_nan() { b } else { m }
}

/// Flushes a denormal to zero of the same sign.
#[inline(always)]
pub fn flush(x: f32) -> f32 {
    let b = x.to_bits();
    f32::from_bits(if b & 0x7f80_0000 == 0 { b & 0x8000_0000 } else { b })
}

/// Flushes a half denormal.
#[inline(always)]
pub fn flush16(x: u16) -> u16 {
    if x & 0x7c00 == 0 { x & 0x8000 } else { x }
}

/// Flushes a double denormal.
#[inline(always)]
pub fn flush64(x: u64) -> u64 {
    if x & 0x7ff0_0000_0000_0000 == 0 { x & 1 << 63 } else { x }
}

/// V_RCP_F32: denormal operands and results are flushed.
#[inline(always)]
pub fn rcp(x: f32) -> f32 {
    flush(1.0 / flush(x))
}

/// V_RSQ_F32.
#[inline(always)]
pub fn rsq(x: f32) -> f32 {
    let x = flush(x);
    let near = 1.0 / x.sqrt();
    // One step of Newton's iteration in double precision.
    let r = near as f64;
    let error = 1.0 - x as f64 * (r * r);
    let better = (r + 0.5 * r * error) as f32;
    if near.is_finite() && near != 0.0 { better } else { near }
}

/// V_SQRT_F32.
#[inline(always)]
pub fn sqrt(x: f32) -> f32 {
    flush(x).sqrt()
}

/// Added to a double of moderate size, this rounds it to an integer, which then stands in the lowest bits of the sum.
const ROUNDER: f64 = 6755399441055744.0;

/// `c[0] + c[1] x + ... + c[7] x^7` in three levels (Estrin), so that the multiplications of a level overlap.
#[inline(always)]
fn polynomial(x: f64, c: [f64; 8]) -> f64 {
    let x2 = x * x;
    let low = (c[0] + c[1] * x) + (c[2] + c[3] * x) * x2;
    let high = (c[4] + c[5] * x) + (c[6] + c[7] * x) * x2;
    low + high * (x2 * x2)
}

/// `2^x` of a small number in double precision, good to about 1e-12, by splitting off the integer part and a polynomial;
/// no branches.
#[inline(always)]
fn exp2_core(x: f64) -> f64 {
    let rounded = x + ROUNDER;
    let t = (x - (rounded - ROUNDER)) * std::f64::consts::LN_2;
    // Taylor on |t| <= 0.347: the first term left out is below 3e-13.
    let low = [1.0, 1.0, 0.5, 1.0 / 6.0, 1.0 / 24.0, 1.0 / 120.0, 1.0 / 720.0, 1.0 / 5040.0];
    let t8 = (t * t) * (t * t) * ((t * t) * (t * t));
    let high = (1.0 / 40320.0 + t * (1.0 / 362880.0)) + t * t * (1.0 / 3628800.0);
    let p = polynomial(t, low) + high * t8;
    p * f64::from_bits(rounded.to_bits().wrapping_add(1023) << 52)
}

/// V_EXP_F32: `2^x`; denormal operands count as zero, denormal results are flushed.
#[inline(always)]
pub fn exp2(x: f32) -> f32 {
    let r = exp2_core(x.clamp(-200.0, 200.0) as f64) as f32;
    if x.is_nan() { quiet(x) } else { flush(r) }
}

/// V_EXP_F16 keeps denormals.
#[inline(always)]
pub fn exp2_16(x: F16) -> F16 {
    let v = f16_to_f32(x);
    let r = f64_to_f16(exp2_core(v.clamp(-60.0, 60.0) as f64));
    if v.is_nan() { F16(x.0 | 0x200) } else { r }
}

/// `log2 x` of a positive normal number, good to about 1e-13.
#[inline(always)]
fn log2_core(x: f64) -> f64 {
    let b = x.to_bits();
    // Mantissa into [sqrt(1/2), sqrt 2).
    let e = (b.wrapping_sub(0x3fe6_a09e_667f_3bcd) as i64) >> 52;
    let m = f64::from_bits(b.wrapping_sub((e << 52) as u64));
    let s = (m - 1.0) / (m + 1.0);
    let odd = [1.0, 1.0 / 3.0, 1.0 / 5.0, 1.0 / 7.0, 1.0 / 9.0, 1.0 / 11.0, 1.0 / 13.0, 1.0 / 15.0];
    (e as i32 as f64) + s * polynomial(s * s, odd) * (2.0 * std::f64::consts::LOG2_E)
}

/// V_LOG_F32: `log2 x`; denormal operands count as zero.
#[inline(always)]
pub fn log2(x: f32) -> f32 {
    let x = flush(x);
    let r = log2_core(x as f64) as f32;
    let r = if x == 0.0 { f32::NEG_INFINITY } else { r };
    let r = if x < 0.0 { f32::from_bits(0xffc0_0000) } else { r };
    if x.is_nan() || x == f32::INFINITY { x + x } else { r }
}

/// V_LOG_F16 keeps denormals.
#[inline(always)]
pub fn log2_16(x: F16) -> F16 {
    half1(x, |v| {
        let r = log2_core(v as f64) as f32;
        let r = if v == 0.0 { f32::NEG_INFINITY } else { r };
        let r = if v < 0.0 { f32::from_bits(0xffc0_0000) } else { r };
        if v.is_nan() || v == f32::INFINITY { v + v } else { r }
    })
}

/// `sin(2 pi (x + shift / 4))`, good to about 1e-14 and exact at multiples of a quarter; NaN for infinities.
#[inline(always)]
fn sine(x: f32, shift: u64) -> f32 {
    let v = flush(x) as f64;
    // From 2^24 on all singles are whole turns.
    let turn = if v.abs() < 16777216.0 { v - ((v + ROUNDER) - ROUNDER) } else { 0.0 };
    let rounded = 4.0 * turn + ROUNDER;
    let y = (turn - 0.25 * (rounded - ROUNDER)) * std::f64::consts::TAU;
    let w = y * y;
    // Taylor on |y| <= pi / 4.
    let sin = y * polynomial(
        w,
        [
            1.0,
            -1.0 / 6.0,
            1.0 / 120.0,
            -1.0 / 5040.0,
            1.0 / 362880.0,
            -1.0 / 39916800.0,
            1.0 / 6227020800.0,
            -1.0 / 1307674368000.0,
        ],
    );
    let cos = polynomial(
        w,
        [1.0, -0.5, 1.0 / 24.0, -1.0 / 720.0, 1.0 / 40320.0, -1.0 / 3628800.0, 1.0 / 479001600.0, -1.0 / 87178291200.0],
    );
    let quarter = rounded.to_bits().wrapping_add(shift);
    let r = if quarter & 1 == 1 { cos } else { sin };
    // Zeros at whole and half turns are positive, except that of -0.
    let r = if quarter & 2 == 2 { 0.0 - r } else { r } as f32;
    if x.is_finite() { r } else { f32::from_bits(0x7fc0_0000 | x.to_bits() & 0x8000_0000) }
}

/// V_SIN_F32: `sin(2 pi x)`.
#[inline(always)]
pub fn sin_turns(x: f32) -> f32 {
    sine(x, 0)
}

/// V_COS_F32: `cos(2 pi x)`.
#[inline(always)]
pub fn cos_turns(x: f32) -> f32 {
    sine(x, 1)
}

/// Fraction as the hardware gives it: at most the largest number below one.
#[inline(always)]
pub fn fract(x: f32) -> f32 {
    let f = x - x.floor();
    if f >= 1.0 { f32::from_bits(0x3f7f_ffff) } else { f }
}

/// `x * 2^n`.
#[inline(always)]
pub fn ldexp(x: f32, n: i32) -> f32 {
    // Through double: the range of exponents there holds every intermediate; one rounding at the end.
    let n = n.clamp(-400, 400);
    let scale = f64::from_bits(((n + 1023) as u64) << 52);
    (x as f64 * scale) as f32
}

/// `x * 2^n` for doubles.
pub fn ldexp64(x: f64, n: i32) -> f64 {
    let mut n = n.clamp(-2200, 2200);
    let mut x = x;
    // Scale in steps that stay exact except for the last.
    while n > 1000 {
        x *= f64::from_bits((1000u64 + 1023) << 52);
        n -= 1000;
    }
    if n < -1000 && x != 0.0 && x.is_finite() {
        // Normalise first so that only one rounding happens.
        let (m, e) = frexp64(x);
        let total = e + n;
        if total < -1080 {
            return if m < 0.0 { -0.0 } else { 0.0 };
        }
        let step = f64::from_bits(((-1000i64 + 1023) as u64) << 52);
        let rest = total + 1000;
        let m = m * f64::from_bits(((rest.max(-1000) + 1023) as u64) << 52);
        return m * step;
    }
    x * f64::from_bits(((n + 1023) as u64) << 52)
}

/// Mantissa in [0.5, 1) and exponent; 0 and non-finite numbers give themselves and 0.
pub fn frexp64(x: f64) -> (f64, i32) {
    if x == 0.0 || !x.is_finite() {
        return (x, 0);
    }
    let (x, adjust) = if x.abs() < f64::MIN_POSITIVE { (x * 18014398509481984.0, -54) } else { (x, 0) };
    let b = x.to_bits();
    let e = (b >> 52 & 0x7ff) as i32 - 1022;
    (f64::from_bits(b & !(0x7ff << 52) | 1022 << 52), e + adjust)
}

/// Round to integer as conversions do: NaN gives 0, the rest saturates.
#[inline(always)]
pub fn to_i32(x: f32) -> i32 {
    x as i32
}

/// V_DIV_FIXUP_F32 (Vega manual): repairs the special cases of a division computed by Newton iteration. Where that went through infinities and ended
/// in a NaN the quotient is too large. The manual does not say so, but LLVM divides by the same instructions without a further one, and its quotients
/// are right on hardware whatever their size.
pub fn div_fixup(q: f32, d: f32, n: f32) -> f32 {
    let sign = f32::from_bits((n.to_bits() ^ d.to_bits()) & 0x8000_0000);
    if n.is_nan() {
        quiet(n)
    } else if d.is_nan() {
        quiet(d)
    } else if n == 0.0 && d == 0.0 || n.is_infinite() && d.is_infinite() {
        f32::from_bits(0xffc0_0000)
    } else if d == 0.0 || n.is_infinite() {
        f32::INFINITY.copysign(f32::from_bits(sign.to_bits() | 0x3f80_0000))
    } else if d.is_infinite() || n == 0.0 {
        0f32.copysign(f32::from_bits(sign.to_bits() | 0x3f80_0000))
    } else {
        let exponents = (n.to_bits() >> 23 & 0xff) as i32 - (d.to_bits() >> 23 & 0xff) as i32;
        let magnitude = match q.abs() {
            _ if exponents < -150 => 0.0,
            q if q.is_nan() => f32::INFINITY,
            q => q,
        };
        magnitude.copysign(f32::from_bits(sign.to_bits() | 0x3f80_0000))
    }
}

/// V_DIV_FIXUP_F64, the same for doubles.
pub fn div_fixup64(q: f64, d: f64, n: f64) -> f64 {
    let negative = n.is_sign_negative() != d.is_sign_negative();
    let signed = |x: f64| if negative { -x } else { x };
    if n.is_nan() || d.is_nan() {
        let x = if n.is_nan() { n } else { d };
        f64::from_bits(x.to_bits() | 1 << 51)
    } else if n == 0.0 && d == 0.0 || n.is_infinite() && d.is_infinite() {
        f64::from_bits(0xfff8_0000_0000_0000)
    } else if d == 0.0 || n.is_infinite() {
        signed(f64::INFINITY)
    } else if d.is_infinite() || n == 0.0 {
        signed(0.0)
    } else {
        let exponent = |x: f64| (x.to_bits() >> 52 & 0x7ff) as i32;
        signed(match q.abs() {
            _ if exponent(n) - exponent(d) < -1075 => 0.0,
            q if q.is_nan() => f64::INFINITY,
            q => q,
        })
    }
}

/// V_DIV_SCALE_F32 (Vega manual): scales `src0`, which is the denominator or the numerator, so that the iteration
/// neither overflows nor loses bits; the flag tells V_DIV_FMAS to scale back.
pub fn div_scale(s0: f32, d: f32, n: f32) -> (f32, bool) {
    let exp = |x: f32| (x.to_bits() >> 23 & 0xff) as i32;
    let denormal = |x: f32| exp(x) == 0 && x != 0.0;
    let up = f32::from_bits((64 + 127) << 23);
    let down = f32::from_bits((127 - 64) << 23);
    if n == 0.0 || d == 0.0 {
        (f32::NAN, false)
    } else if exp(n) - exp(d) >= 96 {
        // The quotient overflows: scale the denominator.
        (if s0.to_bits() == d.to_bits() { s0 * up } else { s0 }, true)
    } else if denormal(d) {
        (s0 * up, false)
    } else if denormal(1.0 / d) && denormal(n / d) {
        // The manual says 2^64 here too, which would overflow; the division comes out right with 2^-64.
        (if s0.to_bits() == d.to_bits() { s0 * down } else { s0 }, true)
    } else if denormal(1.0 / d) {
        (s0 * down, false)
    } else if denormal(n / d) {
        (if s0.to_bits() == n.to_bits() { s0 * up } else { s0 }, true)
    } else if exp(n) <= 23 {
        (s0 * up, false)
    } else {
        (s0, false)
    }
}

/// V_DIV_SCALE_F64.
pub fn div_scale64(s0: f64, d: f64, n: f64) -> (f64, bool) {
    let exp = |x: f64| (x.to_bits() >> 52 & 0x7ff) as i32;
    let denormal = |x: f64| exp(x) == 0 && x != 0.0;
    let up = f64::from_bits((128 + 1023) << 52);
    let down = f64::from_bits((1023 - 128) << 52);
    if n == 0.0 || d == 0.0 {
        (f64::NAN, false)
    } else if exp(n) - exp(d) >= 768 {
        (if s0.to_bits() == d.to_bits() { s0 * up } else { s0 }, true)
    } else if denormal(d) {
        (s0 * up, false)
    } else if denormal(1.0 / d) && denormal(n / d) {
        (if s0.to_bits() == d.to_bits() { s0 * down } else { s0 }, true)
    } else if denormal(1.0 / d) {
        (s0 * down, false)
    } else if denormal(n / d) {
        (if s0.to_bits() == n.to_bits() { s0 * up } else { s0 }, true)
    } else if exp(n) <= 53 {
        (s0 * up, false)
    } else {
        (s0, false)
    }
}

/// V_CMP_CLASS: bit i of the mask selects a class of number. `exp_all` and `quiet_bit` describe the format.
#[inline(always)]
pub fn class(bits: u64, mask: u32, width: u32, mantissa: u32) -> bool {
    let sign = bits >> (width - 1) & 1 == 1;
    let exp_mask = (1u64 << (width - 1 - mantissa)) - 1;
    let exp = bits >> mantissa & exp_mask;
    let frac = bits & ((1 << mantissa) - 1);
    let number = if exp == exp_mask {
        if frac == 0 { 2 } else { 9 }
    } else if exp == 0 {
        if frac == 0 { 5 } else { 4 }
    } else {
        3
    };
    let index = match number {
        9 => (frac >> (mantissa - 1) & 1) as u32,
        n if sign => n,
        n => 11 - n,
    };
    mask >> index & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::{bf16, f16};

    #[test]
    fn every_half_converts_both_ways() {
        for b in 0..=u16::MAX {
            let want = f16::from_bits(b).to_f32();
            let got = f16_to_f32(F16(b));
            if f16::from_bits(b).is_nan() {
                assert!(got.is_nan());
                assert_eq!(f32_to_f16(got).0, b | 0x200);
            } else {
                assert_eq!(got.to_bits(), want.to_bits(), "{b:#x}");
                assert_eq!(f32_to_f16(got).0, b);
                assert_eq!(f32_to_f16_rtz(got).0, b);
            }
        }
    }

    #[test]
    fn singles_round_to_half_and_bf16_like_an_independent_library() {
        let mut x = 1u32;
        for _ in 0..2_000_000 {
            x = x.wrapping_mul(1664525).wrapping_add(1013904223);
            // Concentrate exponents around the interesting range.
            let bits = x & 0x807f_ffff | (100 + (x >> 23) % 46) << 23;
            for v in [f32::from_bits(bits), f32::from_bits(x)] {
                if v.is_nan() {
                    continue;
                }
                assert_eq!(f32_to_f16(v).0, f16::from_f32(v).to_bits(), "{v:e}");
                assert_eq!(f64_to_f16(v as f64).0, f16::from_f32(v).to_bits(), "{v:e}");
                assert_eq!(f32_to_bf16(v).0, bf16::from_f32(v).to_bits(), "{v:e}");
                let z = f32_to_f16_rtz(v);
                let back = f16_to_f32(z);
                assert!(back.abs() <= v.abs() || v.is_infinite());
                let next = f16_to_f32(F16(z.0 + 1));
                assert!(next.abs() > v.abs() || !next.is_finite());
            }
        }
    }

    #[test]
    fn transcendentals_are_correctly_rounded_almost_always() {
        let mut wrong = 0;
        let mut x = 7u32;
        for _ in 0..300_000 {
            x = x.wrapping_mul(1664525).wrapping_add(1013904223);
            let v = (x as f32 / u32::MAX as f32 - 0.5) * 250.0;
            let want = (v as f64).exp2() as f32;
            if want >= f32::MIN_POSITIVE && exp2(v) != want {
                wrong += 1;
            }
            let v = f32::from_bits(x >> 1);
            if v.is_normal() {
                let want = (v as f64).log2() as f32;
                assert!((log2(v) - want).abs() <= want.abs() * 2e-7, "{v:e}");
            }
            let v = (x as f32 / u32::MAX as f32 - 0.5) * 40.0;
            let turn = (v as f64).fract() * std::f64::consts::TAU;
            wrong += usize::from(turn.sin().abs() > 1e-3 && sin_turns(v) != turn.sin() as f32);
            wrong += usize::from(turn.cos().abs() > 1e-3 && cos_turns(v) != turn.cos() as f32);
        }
        assert!(wrong < 10, "{wrong}");
        assert_eq!((sin_turns(0.5).to_bits(), sin_turns(-0.0).to_bits(), cos_turns(3e30)), (0, 1 << 31, 1.0));
        assert_eq!((exp2(0.0), exp2(-1.0), exp2(f32::INFINITY), exp2(-127.0)), (1.0, 0.5, f32::INFINITY, 0.0));
        assert_eq!((log2(8.0), log2(0.0), log2(1.0)), (3.0, f32::NEG_INFINITY, 0.0));
        assert_eq!((sin_turns(0.25), cos_turns(0.5), cos_turns(0.25)), (1.0, -1.0, 0.0));
        assert!(log2(-1.0).is_nan());
    }

    #[test]
    fn half_fma_rounds_once() {
        // 1 + 2^-11 is a tie; an addend far below decides it.
        let one = F16(0x3c00);
        let ulp_half = F16(0x1000);
        let tiny = F16(0x0001);
        assert_eq!(fma16(ulp_half, one, one).0, 0x3c00);
        let bigger = fma16(F16(0x3c01), F16(0x3c01), tiny);
        // (1 + 2^-10)^2 + 2^-24 = 1 + 2^-9 + 2^-20 + 2^-24.
        assert_eq!(bigger.0, 0x3c02);
        // (1 + 2^-10) * (1 + 2^-1) = 1.5 + 1.5 * 2^-10: a tie between 0x3e01 and 0x3e02 (even).
        assert_eq!(fma16(F16(0x3c01), F16(0x3e00), F16(0)).0, 0x3e02);
        assert_eq!(fma16(F16(0x3c01), F16(0x3e00), F16(0x8001)).0, 0x3e01);
        assert_eq!(fma16(F16(0x7bff), F16(0x7bff), F16(0xfc00)).0, 0xfc00);
    }

    #[test]
    fn minimum_and_maximum_know_nan_and_zero() {
        let snan = f32::from_bits(0x7f80_0001);
        assert_eq!(min_num(0.0, -0.0).to_bits(), 0x8000_0000);
        assert_eq!(max_num(-0.0, 0.0).to_bits(), 0);
        assert_eq!(min_num(f32::NAN, 2.0), 2.0);
        assert_eq!(max_num(1.0, snan).to_bits(), 0x7fc0_0001);
        assert!(minimum(f32::NAN, 1.0).is_nan() && maximum(1.0, f32::NAN).is_nan());
        assert_eq!((min_num(-3.0, -5.0), max_num(-3.0, -5.0), med3(3.0, 1.0, 2.0)), (-5.0, -3.0, 2.0));
    }

    #[test]
    fn classes() {
        let c = |x: f32, bit: u32| class(x.to_bits() as u64, 1 << bit, 32, 23);
        assert!(c(f32::from_bits(0x7f80_0001), 0) && c(f32::NAN, 1) && c(f32::NEG_INFINITY, 2) && c(-1.0, 3));
        assert!(c(-1e-40, 4) && c(-0.0, 5) && c(0.0, 6) && c(1e-40, 7) && c(1.0, 8) && c(f32::INFINITY, 9));
    }
}
