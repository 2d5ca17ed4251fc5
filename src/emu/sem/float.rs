//! Floating-point arithmetic.
//!
//! Source: VOP1, VOP2 and VOP3 pseudocode of the "Vega", "CDNA3", "RDNA3" and "RDNA4" manuals. Of transcendental functions
//! they give a bound (1 ULP) and no more; see `numeric` for what is computed.

use super::{Mix, Sem, c, m};
use crate::lanes::{Bf16, F16, Lane, No};
use crate::numeric::*;
use barewave_isa::action::Float;

#[inline(always)]
fn mul_legacy(a: f32, b: f32) -> f32 {
    // Zero times anything is zero.
    if a == 0.0 || b == 0.0 { 0.0 } else { a * b }
}
#[inline(always)]
fn fma_legacy(a: f32, b: f32, c: f32) -> f32 {
    if a == 0.0 || b == 0.0 { fma(0.0, 0.0, c) } else { fma(a, b, c) }
}
/// Multiplication and addition without denormals, each rounded.
#[inline(always)]
fn mad(a: f32, b: f32, c: f32) -> f32 {
    flush(flush(flush(a) * flush(b)) + flush(c))
}
#[inline(always)]
fn mad_legacy(a: f32, b: f32, c: f32) -> f32 {
    flush(flush(mul_legacy(flush(a), flush(b))) + flush(c))
}
#[inline(always)]
fn round_even(x: f32) -> f32 {
    x.round_ties_even()
}
#[inline(always)]
fn bf(a: Bf16, f: impl Fn(f32) -> f32) -> Bf16 {
    f32_to_bf16(f(bf16_to_f32(a)))
}
/// Half-precision minimum or maximum through singles: the conversion is exact both ways.
#[inline(always)]
fn pick16(a: F16, b: F16, f: impl Fn(f32, f32) -> f32) -> F16 {
    f32_to_f16(f(f16_to_f32(a), f16_to_f32(b)))
}
fn div_fmas(a: f32, b: f32, c: f32, scale: bool) -> f32 {
    let r = fma(a, b, c);
    if scale { ldexp(r, if c.to_bits() >> 23 & 0xff > 127 { 64 } else { -64 }) } else { r }
}
fn div_fmas64(a: f64, b: f64, c: f64, scale: bool) -> f64 {
    let r = a.mul_add(b, c);
    if scale { ldexp64(r, if c.to_bits() >> 52 & 0x7ff > 1023 { 128 } else { -128 }) } else { r }
}
fn frexp_mant(x: f32) -> f32 {
    if x == 0.0 || !x.is_finite() { x } else { frexp64(x as f64).0 as f32 }
}
fn frexp_exp(x: f64) -> i32 {
    if x == 0.0 || !x.is_finite() { 0 } else { frexp64(x).1 }
}
fn fract64(x: f64) -> f64 {
    let f = x - x.floor();
    if f >= 1.0 { f64::from_bits(0x3fef_ffff_ffff_ffff) } else { f }
}
fn fract16(x: F16) -> F16 {
    let v = f16_to_f32(x);
    let f = f32_to_f16(v - v.floor());
    if f.0 == 0x3c00 { F16(0x3bff) } else { f }
}
fn med3_16(a: F16, b: F16, c: F16) -> F16 {
    f32_to_f16(med3(f16_to_f32(a), f16_to_f32(b), f16_to_f32(c)))
}
/// Cube map: face number and coordinates of a direction (Vega manual, V_CUBE*).
fn cube(x: f32, y: f32, z: f32) -> (f32, f32, f32, f32) {
    let (ax, ay, az) = (x.abs(), y.abs(), z.abs());
    let neg = |v: f32| v < 0.0;
    if az >= ax && az >= ay {
        (if neg(z) { 5.0 } else { 4.0 }, if neg(z) { -x } else { x }, -y, 2.0 * z)
    } else if ay >= ax {
        (if neg(y) { 3.0 } else { 2.0 }, x, if neg(y) { -z } else { z }, 2.0 * y)
    } else {
        (if neg(x) { 1.0 } else { 0.0 }, if neg(x) { z } else { -z }, -y, 2.0 * x)
    }
}
/// The `n`-th piece of 2/pi for argument reduction (V_TRIG_PREOP_F64). 1201 bits of 2/pi.
fn trig_preop(x: f64, n: u32) -> f64 {
    const TWO_OVER_PI: [u32; 38] = [
        0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab, 0xdebbc561, 0xb7246e3a,
        0x424dd2e0, 0x06492eea, 0x09d1921c, 0xfe1deb1c, 0xb129a73e, 0xe88235f5, 0x2ebb4484, 0xe99c7026, 0xb45f7e41,
        0x3991d639, 0x835339f4, 0x9c845f8b, 0xbdf9283b, 0x1ff897ff, 0xde05980f, 0xef2f118b, 0x5a0a6d1f, 0x6d367ecf,
        0x27cb09b7, 0x4f463f66, 0x9e5fea2d, 0x7527bac7, 0xebe5f17b, 0x3d0739f7, 0x8a5292ea, 0x6bfb5fb1, 0x1f8d5d08,
        0x56033046, 0xfc7b6bab,
    ];
    let e = (x.to_bits() >> 52 & 0x7ff) as i32;
    let mut shift = (n & 31) as i32 * 53;
    if e > 1077 {
        shift += e - 1077;
    }
    // 53 bits from position `shift` of the fraction.
    let mut m = 0u64;
    for i in 0..53 {
        let p = (shift + i) as usize;
        let bit = TWO_OVER_PI.get(p / 32).map_or(0, |w| w >> (31 - p % 32) & 1);
        m = m << 1 | bit as u64;
    }
    let mut scale = -53 - shift;
    if e >= 1968 {
        scale += 128;
    }
    ldexp64(m as f64, scale)
}

/// The half of a register that the result of a mixed-precision instruction goes to.
fn half(f: Float) -> Mix {
    if matches!(f, Float::FmaMixhiF16 | Float::MadMixhiF16) { Mix::High } else { Mix::Low }
}

/// Semantics.
#[rustfmt::skip]
pub fn of(f: Float) -> Sem {
    match f {
        Float::AddF32 => m!(|a: f32, b: f32| -> f32 { a + b }),
        Float::SubF32 => m!(|a: f32, b: f32| -> f32 { a - b }),
        Float::SubrevF32 => m!(|a: f32, b: f32| -> f32 { b - a }),
        Float::MulF32 => m!(|a: f32, b: f32| -> f32 { a * b }),
        Float::MulLegacyF32 => m!(|a: f32, b: f32| -> f32 { mul_legacy(a, b) }),
        Float::FmaF32 => m!(|a: f32, b: f32, c: f32| -> f32 { fma(a, b, c) }),
        Float::FmaLegacyF32 => m!(|a: f32, b: f32, c: f32| -> f32 { fma_legacy(a, b, c) }),
        Float::MadF32 => m!(|a: f32, b: f32, c: f32| -> f32 { mad(a, b, c) }).flushing(),
        Float::MadLegacyF32 => m!(|a: f32, b: f32, c: f32| -> f32 { mad_legacy(a, b, c) }).flushing(),
        // Mixed precision: sources arrive as singles.
        Float::FmaMixF32 => m!(|a: f32, b: f32, c: f32| -> f32 { fma(a, b, c) }).mixing(Mix::Low),
        Float::FmaMixloF16 | Float::FmaMixhiF16 => m!(|a: f32, b: f32, c: f32| -> F16 { f32_to_f16(fma(a, b, c)) }).mixing(half(f)),
        Float::MadMixF32 => m!(|a: f32, b: f32, c: f32| -> f32 { mad(a, b, c) }).flushing().mixing(Mix::Low),
        Float::MadMixloF16 | Float::MadMixhiF16 => m!(|a: f32, b: f32, c: f32| -> F16 { f32_to_f16(mad(a, b, c)) }).flushing().mixing(half(f)),
        Float::MinF32 => m!(|a: f32, b: f32| -> f32 { min_num(a, b) }).quieting(),
        Float::MaxF32 => m!(|a: f32, b: f32| -> f32 { max_num(a, b) }).quieting(),
        Float::Min3F32 => m!(|a: f32, b: f32, c: f32| -> f32 { min_num(min_num(a, b), c) }).quieting(),
        Float::Max3F32 => m!(|a: f32, b: f32, c: f32| -> f32 { max_num(max_num(a, b), c) }).quieting(),
        Float::Med3F32 => m!(|a: f32, b: f32, c: f32| -> f32 { med3(a, b, c) }).quieting(),
        Float::MaxminF32 => m!(|a: f32, b: f32, c: f32| -> f32 { min_num(max_num(a, b), c) }).quieting(),
        Float::MinmaxF32 => m!(|a: f32, b: f32, c: f32| -> f32 { max_num(min_num(a, b), c) }).quieting(),
        Float::MinimumF32 => m!(|a: f32, b: f32| -> f32 { minimum(a, b) }),
        Float::MaximumF32 => m!(|a: f32, b: f32| -> f32 { maximum(a, b) }),
        Float::Minimum3F32 => m!(|a: f32, b: f32, c: f32| -> f32 { minimum(minimum(a, b), c) }),
        Float::Maximum3F32 => m!(|a: f32, b: f32, c: f32| -> f32 { maximum(maximum(a, b), c) }),
        Float::MinimummaximumF32 => m!(|a: f32, b: f32, c: f32| -> f32 { maximum(minimum(a, b), c) }),
        Float::MaximumminimumF32 => m!(|a: f32, b: f32, c: f32| -> f32 { minimum(maximum(a, b), c) }),
        Float::CeilF32 => m!(|a: f32| -> f32 { a.ceil() }),
        Float::FloorF32 => m!(|a: f32| -> f32 { a.floor() }),
        Float::TruncF32 => m!(|a: f32| -> f32 { a.trunc() }),
        Float::RndneF32 => m!(|a: f32| -> f32 { round_even(a) }),
        Float::FractF32 => m!(|a: f32| -> f32 { fract(a) }),
        Float::RcpF32 => m!(|a: f32| -> f32 { rcp(a) }),
        Float::RsqF32 => m!(|a: f32| -> f32 { rsq(a) }),
        Float::SqrtF32 => m!(|a: f32| -> f32 { sqrt(a) }),
        Float::ExpF32 => m!(|a: f32| -> f32 { exp2(a) }),
        Float::LogF32 => m!(|a: f32| -> f32 { log2(a) }),
        Float::SinF32 => m!(|a: f32| -> f32 { sin_turns(a) }),
        Float::CosF32 => m!(|a: f32| -> f32 { cos_turns(a) }),
        Float::TanhF32 => m!(|a: f32| -> f32 { (a as f64).tanh() as f32 }),
        Float::LdexpF32 => m!(|a: f32, b: i32| -> f32 { ldexp(a, b) }),
        Float::FrexpMantF32 => m!(|a: f32| -> f32 { frexp_mant(a) }),
        Float::FrexpExpI32F32 => m!(|a: f32| -> i32 { frexp_exp(a as f64) }),
        Float::DivFixupF32 => m!(|a: f32, b: f32, c: f32| -> f32 { div_fixup(a, b, c) }),
        Float::DivFmasF32 => c!(VccIn, |a: f32, b: f32, c: f32, bit| -> f32 { (div_fmas(a, b, c, bit), false) }),
        Float::DivScaleF32 => c!(BitOut, |a: f32, b: f32, c: f32, _bit| -> f32 { div_scale(a, b, c) }),
        Float::CubeidF32 => m!(|a: f32, b: f32, c: f32| -> f32 { cube(a, b, c).0 }),
        Float::CubescF32 => m!(|a: f32, b: f32, c: f32| -> f32 { cube(a, b, c).1 }),
        Float::CubetcF32 => m!(|a: f32, b: f32, c: f32| -> f32 { cube(a, b, c).2 }),
        Float::CubemaF32 => m!(|a: f32, b: f32, c: f32| -> f32 { cube(a, b, c).3 }),
        Float::MullitF32 => m!(|a: f32, b: f32, c: f32| -> f32 {
            if b == -f32::MAX || b == f32::NEG_INFINITY || b.is_nan() || c <= 0.0 || c.is_nan() { -f32::MAX } else { mul_legacy(a, b) }
        }),

        Float::AddF64 => m!(|a: f64, b: f64| -> f64 { a + b }),
        Float::MulF64 => m!(|a: f64, b: f64| -> f64 { a * b }),
        Float::FmaF64 => m!(|a: f64, b: f64, c: f64| -> f64 { a.mul_add(b, c) }),
        Float::MinF64 => m!(|a: f64, b: f64| -> f64 { min_num64(a, b) }).quieting(),
        Float::MaxF64 => m!(|a: f64, b: f64| -> f64 { max_num64(a, b) }).quieting(),
        Float::MinimumF64 => m!(|a: f64, b: f64| -> f64 { if a.is_nan() || b.is_nan() { a + b } else { min_num64(a, b) } }),
        Float::MaximumF64 => m!(|a: f64, b: f64| -> f64 { if a.is_nan() || b.is_nan() { a + b } else { max_num64(a, b) } }),
        Float::CeilF64 => m!(|a: f64| -> f64 { a.ceil() }),
        Float::FloorF64 => m!(|a: f64| -> f64 { a.floor() }),
        Float::TruncF64 => m!(|a: f64| -> f64 { a.trunc() }),
        Float::RndneF64 => m!(|a: f64| -> f64 { a.round_ties_even() }),
        Float::FractF64 => m!(|a: f64| -> f64 { fract64(a) }),
        Float::RcpF64 => m!(|a: f64| -> f64 { 1.0 / a }),
        Float::RsqF64 => m!(|a: f64| -> f64 { 1.0 / a.sqrt() }),
        Float::SqrtF64 => m!(|a: f64| -> f64 { a.sqrt() }),
        Float::LdexpF64 => m!(|a: f64, b: i32| -> f64 { ldexp64(a, b) }),
        Float::FrexpMantF64 => m!(|a: f64| -> f64 { frexp64(a).0 }),
        Float::FrexpExpI32F64 => m!(|a: f64| -> i32 { frexp_exp(a) }),
        Float::DivFixupF64 => m!(|a: f64, b: f64, c: f64| -> f64 { div_fixup64(a, b, c) }),
        Float::DivFmasF64 => c!(VccIn, |a: f64, b: f64, c: f64, bit| -> f64 { (div_fmas64(a, b, c, bit), false) }),
        Float::DivScaleF64 => c!(BitOut, |a: f64, b: f64, c: f64, _bit| -> f64 { div_scale64(a, b, c) }),
        Float::TrigPreopF64 => m!(|a: f64, b: u32| -> f64 { trig_preop(a, b) }),

        Float::AddF16 => m!(|a: F16, b: F16| -> F16 { half2(a, b, |x, y| x + y) }),
        Float::SubF16 => m!(|a: F16, b: F16| -> F16 { half2(a, b, |x, y| x - y) }),
        Float::SubrevF16 => m!(|a: F16, b: F16| -> F16 { half2(a, b, |x, y| y - x) }),
        Float::MulF16 => m!(|a: F16, b: F16| -> F16 { half2(a, b, |x, y| x * y) }),
        Float::FmaF16 => m!(|a: F16, b: F16, c: F16| -> F16 { fma16(a, b, c) }),
        Float::MadF16 => m!(|a: F16, b: F16, c: F16| -> F16 {
            half2(half2(a, b, |x, y| x * y), c, |x, y| x + y)
        }),
        Float::MinF16 => m!(|a: F16, b: F16| -> F16 { pick16(a, b, min_num) }).quieting(),
        Float::MaxF16 => m!(|a: F16, b: F16| -> F16 { pick16(a, b, max_num) }).quieting(),
        Float::Min3F16 => m!(|a: F16, b: F16, c: F16| -> F16 { pick16(pick16(a, b, min_num), c, min_num) }).quieting(),
        Float::Max3F16 => m!(|a: F16, b: F16, c: F16| -> F16 { pick16(pick16(a, b, max_num), c, max_num) }).quieting(),
        Float::Med3F16 => m!(|a: F16, b: F16, c: F16| -> F16 { med3_16(a, b, c) }).quieting(),
        Float::MaxminF16 => m!(|a: F16, b: F16, c: F16| -> F16 { pick16(pick16(a, b, max_num), c, min_num) }).quieting(),
        Float::MinmaxF16 => m!(|a: F16, b: F16, c: F16| -> F16 { pick16(pick16(a, b, min_num), c, max_num) }).quieting(),
        Float::MinimumF16 => m!(|a: F16, b: F16| -> F16 { pick16(a, b, minimum) }),
        Float::MaximumF16 => m!(|a: F16, b: F16| -> F16 { pick16(a, b, maximum) }),
        Float::Minimum3F16 => m!(|a: F16, b: F16, c: F16| -> F16 { pick16(pick16(a, b, minimum), c, minimum) }),
        Float::Maximum3F16 => m!(|a: F16, b: F16, c: F16| -> F16 { pick16(pick16(a, b, maximum), c, maximum) }),
        Float::MinimummaximumF16 => m!(|a: F16, b: F16, c: F16| -> F16 { pick16(pick16(a, b, minimum), c, maximum) }),
        Float::MaximumminimumF16 => m!(|a: F16, b: F16, c: F16| -> F16 { pick16(pick16(a, b, maximum), c, minimum) }),
        Float::CeilF16 => m!(|a: F16| -> F16 { half1(a, f32::ceil) }),
        Float::FloorF16 => m!(|a: F16| -> F16 { half1(a, f32::floor) }),
        Float::TruncF16 => m!(|a: F16| -> F16 { half1(a, f32::trunc) }),
        Float::RndneF16 => m!(|a: F16| -> F16 { half1(a, round_even) }),
        Float::FractF16 => m!(|a: F16| -> F16 { fract16(a) }),
        Float::RcpF16 => m!(|a: F16| -> F16 { half1(a, |x| 1.0 / x) }),
        Float::RsqF16 => m!(|a: F16| -> F16 { f64_to_f16(1.0 / (f16_to_f32(a) as f64).sqrt()) }),
        Float::SqrtF16 => m!(|a: F16| -> F16 { half1(a, f32::sqrt) }),
        Float::ExpF16 => m!(|a: F16| -> F16 { exp2_16(a) }),
        Float::LogF16 => m!(|a: F16| -> F16 { log2_16(a) }),
        Float::SinF16 => m!(|a: F16| -> F16 { half1(a, sin_turns) }),
        Float::CosF16 => m!(|a: F16| -> F16 { half1(a, cos_turns) }),
        Float::TanhF16 => m!(|a: F16| -> F16 { f64_to_f16((f16_to_f32(a) as f64).tanh()) }),
        Float::LdexpF16 => m!(|a: F16, b: i16| -> F16 { f64_to_f16(ldexp64(f16_to_f32(a) as f64, b as i32)) }),
        Float::FrexpMantF16 => m!(|a: F16| -> F16 { half1(a, frexp_mant) }),
        Float::FrexpExpI16F16 => m!(|a: F16| -> i16 { frexp_exp(f16_to_f32(a) as f64) as i16 }),
        Float::DivFixupF16 => m!(|a: F16, b: F16, c: F16| -> F16 {
            f32_to_f16(div_fixup(f16_to_f32(a), f16_to_f32(b), f16_to_f32(c)))
        }),

        Float::RcpBf16 => m!(|a: Bf16| -> Bf16 { bf(a, |x| 1.0 / x) }),
        Float::RsqBf16 => m!(|a: Bf16| -> Bf16 { bf(a, rsq) }),
        Float::SqrtBf16 => m!(|a: Bf16| -> Bf16 { bf(a, f32::sqrt) }),
        Float::ExpBf16 => m!(|a: Bf16| -> Bf16 { bf(a, exp2) }),
        Float::LogBf16 => m!(|a: Bf16| -> Bf16 { bf(a, log2) }),
        Float::SinBf16 => m!(|a: Bf16| -> Bf16 { bf(a, sin_turns) }),
        Float::CosBf16 => m!(|a: Bf16| -> Bf16 { bf(a, cos_turns) }),
        Float::TanhBf16 => m!(|a: Bf16| -> Bf16 { bf(a, |x| (x as f64).tanh() as f32) }),
    }
}
