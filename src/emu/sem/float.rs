//! Floating-point arithmetic.
//!
//! Source: VOP1, VOP2 and VOP3 pseudocode of the "Vega", "CDNA3", "RDNA3" and "RDNA4" manuals. Of transcendental functions
//! they give a bound (1 ULP) and no more; see `numeric` for what is computed.

use super::{Sem, c, m};
use crate::lanes::{Bf16, F16, Lane, No};
use crate::numeric::*;

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

/// Semantics by name.
#[rustfmt::skip]
pub fn find(name: &str) -> Option<Sem> {
    Some(match name {
        "v_add_f32" => m!(|a: f32, b: f32| -> f32 { a + b }),
        "v_sub_f32" => m!(|a: f32, b: f32| -> f32 { a - b }),
        "v_subrev_f32" => m!(|a: f32, b: f32| -> f32 { b - a }),
        "v_mul_f32" => m!(|a: f32, b: f32| -> f32 { a * b }),
        "v_mul_legacy_f32" => m!(|a: f32, b: f32| -> f32 { mul_legacy(a, b) }),
        "v_fma_f32" | "v_fmac_f32" | "v_fmamk_f32" | "v_fmaak_f32" => m!(|a: f32, b: f32, c: f32| -> f32 { fma(a, b, c) }),
        "v_fma_legacy_f32" | "v_fmac_legacy_f32" => m!(|a: f32, b: f32, c: f32| -> f32 { fma_legacy(a, b, c) }),
        "v_mad_f32" | "v_mac_f32" | "v_madmk_f32" | "v_madak_f32" => m!(|a: f32, b: f32, c: f32| -> f32 { mad(a, b, c) }).flushing(),
        "v_mad_legacy_f32" | "v_mac_legacy_f32" => m!(|a: f32, b: f32, c: f32| -> f32 { mad_legacy(a, b, c) }).flushing(),
        // Mixed precision: sources arrive as singles.
        "v_fma_mix_f32" => m!(|a: f32, b: f32, c: f32| -> f32 { fma(a, b, c) }),
        "v_fma_mixlo_f16" | "v_fma_mixhi_f16" => m!(|a: f32, b: f32, c: f32| -> F16 { f32_to_f16(fma(a, b, c)) }),
        "v_mad_mix_f32" => m!(|a: f32, b: f32, c: f32| -> f32 { mad(a, b, c) }).flushing(),
        "v_mad_mixlo_f16" | "v_mad_mixhi_f16" => m!(|a: f32, b: f32, c: f32| -> F16 { f32_to_f16(mad(a, b, c)) }).flushing(),
        "v_min_f32" => m!(|a: f32, b: f32| -> f32 { min_num(a, b) }),
        "v_max_f32" => m!(|a: f32, b: f32| -> f32 { max_num(a, b) }),
        "v_min3_f32" => m!(|a: f32, b: f32, c: f32| -> f32 { min_num(min_num(a, b), c) }),
        "v_max3_f32" => m!(|a: f32, b: f32, c: f32| -> f32 { max_num(max_num(a, b), c) }),
        "v_med3_f32" => m!(|a: f32, b: f32, c: f32| -> f32 { med3(a, b, c) }),
        "v_maxmin_f32" => m!(|a: f32, b: f32, c: f32| -> f32 { min_num(max_num(a, b), c) }),
        "v_minmax_f32" => m!(|a: f32, b: f32, c: f32| -> f32 { max_num(min_num(a, b), c) }),
        "v_minimum_f32" => m!(|a: f32, b: f32| -> f32 { minimum(a, b) }),
        "v_maximum_f32" => m!(|a: f32, b: f32| -> f32 { maximum(a, b) }),
        "v_minimum3_f32" => m!(|a: f32, b: f32, c: f32| -> f32 { minimum(minimum(a, b), c) }),
        "v_maximum3_f32" => m!(|a: f32, b: f32, c: f32| -> f32 { maximum(maximum(a, b), c) }),
        "v_minimummaximum_f32" => m!(|a: f32, b: f32, c: f32| -> f32 { maximum(minimum(a, b), c) }),
        "v_maximumminimum_f32" => m!(|a: f32, b: f32, c: f32| -> f32 { minimum(maximum(a, b), c) }),
        "v_ceil_f32" => m!(|a: f32| -> f32 { a.ceil() }),
        "v_floor_f32" => m!(|a: f32| -> f32 { a.floor() }),
        "v_trunc_f32" => m!(|a: f32| -> f32 { a.trunc() }),
        "v_rndne_f32" => m!(|a: f32| -> f32 { round_even(a) }),
        "v_fract_f32" => m!(|a: f32| -> f32 { fract(a) }),
        "v_rcp_f32" | "v_rcp_iflag_f32" => m!(|a: f32| -> f32 { rcp(a) }),
        "v_rsq_f32" => m!(|a: f32| -> f32 { rsq(a) }),
        "v_sqrt_f32" => m!(|a: f32| -> f32 { sqrt(a) }),
        "v_exp_f32" | "v_exp_legacy_f32" => m!(|a: f32| -> f32 { exp2(a) }),
        "v_log_f32" | "v_log_legacy_f32" => m!(|a: f32| -> f32 { log2(a) }),
        "v_sin_f32" => m!(|a: f32| -> f32 { sin_turns(a) }),
        "v_cos_f32" => m!(|a: f32| -> f32 { cos_turns(a) }),
        "v_tanh_f32" => m!(|a: f32| -> f32 { (a as f64).tanh() as f32 }),
        "v_ldexp_f32" => m!(|a: f32, b: i32| -> f32 { ldexp(a, b) }),
        "v_frexp_mant_f32" => m!(|a: f32| -> f32 { frexp_mant(a) }),
        "v_frexp_exp_i32_f32" => m!(|a: f32| -> i32 { frexp_exp(a as f64) }),
        "v_div_fixup_f32" => m!(|a: f32, b: f32, c: f32| -> f32 { div_fixup(a, b, c) }),
        "v_div_fmas_f32" => c!(VccIn, |a: f32, b: f32, c: f32, bit| -> f32 { (div_fmas(a, b, c, bit), false) }),
        "v_div_scale_f32" => c!(BitOut, |a: f32, b: f32, c: f32, _bit| -> f32 { div_scale(a, b, c) }),
        "v_cubeid_f32" => m!(|a: f32, b: f32, c: f32| -> f32 { cube(a, b, c).0 }),
        "v_cubesc_f32" => m!(|a: f32, b: f32, c: f32| -> f32 { cube(a, b, c).1 }),
        "v_cubetc_f32" => m!(|a: f32, b: f32, c: f32| -> f32 { cube(a, b, c).2 }),
        "v_cubema_f32" => m!(|a: f32, b: f32, c: f32| -> f32 { cube(a, b, c).3 }),
        "v_mullit_f32" => m!(|a: f32, b: f32, c: f32| -> f32 {
            if b == -f32::MAX || b == f32::NEG_INFINITY || b.is_nan() || c <= 0.0 || c.is_nan() { -f32::MAX } else { mul_legacy(a, b) }
        }),

        "v_add_f64" => m!(|a: f64, b: f64| -> f64 { a + b }),
        "v_mul_f64" => m!(|a: f64, b: f64| -> f64 { a * b }),
        "v_fma_f64" | "v_fmac_f64" | "v_fmamk_f64" | "v_fmaak_f64" => m!(|a: f64, b: f64, c: f64| -> f64 { a.mul_add(b, c) }),
        "v_min_f64" => m!(|a: f64, b: f64| -> f64 { min_num64(a, b) }),
        "v_max_f64" => m!(|a: f64, b: f64| -> f64 { max_num64(a, b) }),
        "v_minimum_f64" => m!(|a: f64, b: f64| -> f64 { if a.is_nan() || b.is_nan() { a + b } else { min_num64(a, b) } }),
        "v_maximum_f64" => m!(|a: f64, b: f64| -> f64 { if a.is_nan() || b.is_nan() { a + b } else { max_num64(a, b) } }),
        "v_ceil_f64" => m!(|a: f64| -> f64 { a.ceil() }),
        "v_floor_f64" => m!(|a: f64| -> f64 { a.floor() }),
        "v_trunc_f64" => m!(|a: f64| -> f64 { a.trunc() }),
        "v_rndne_f64" => m!(|a: f64| -> f64 { a.round_ties_even() }),
        "v_fract_f64" => m!(|a: f64| -> f64 { fract64(a) }),
        "v_rcp_f64" => m!(|a: f64| -> f64 { 1.0 / a }),
        "v_rsq_f64" => m!(|a: f64| -> f64 { 1.0 / a.sqrt() }),
        "v_sqrt_f64" => m!(|a: f64| -> f64 { a.sqrt() }),
        "v_ldexp_f64" => m!(|a: f64, b: i32| -> f64 { ldexp64(a, b) }),
        "v_frexp_mant_f64" => m!(|a: f64| -> f64 { frexp64(a).0 }),
        "v_frexp_exp_i32_f64" => m!(|a: f64| -> i32 { frexp_exp(a) }),
        "v_div_fixup_f64" => m!(|a: f64, b: f64, c: f64| -> f64 { div_fixup64(a, b, c) }),
        "v_div_fmas_f64" => c!(VccIn, |a: f64, b: f64, c: f64, bit| -> f64 { (div_fmas64(a, b, c, bit), false) }),
        "v_div_scale_f64" => c!(BitOut, |a: f64, b: f64, c: f64, _bit| -> f64 { div_scale64(a, b, c) }),
        "v_trig_preop_f64" => m!(|a: f64, b: u32| -> f64 { trig_preop(a, b) }),

        "v_add_f16" => m!(|a: F16, b: F16| -> F16 { half2(a, b, |x, y| x + y) }),
        "v_sub_f16" => m!(|a: F16, b: F16| -> F16 { half2(a, b, |x, y| x - y) }),
        "v_subrev_f16" => m!(|a: F16, b: F16| -> F16 { half2(a, b, |x, y| y - x) }),
        "v_mul_f16" => m!(|a: F16, b: F16| -> F16 { half2(a, b, |x, y| x * y) }),
        "v_fma_f16" | "v_fmac_f16" | "v_fmamk_f16" | "v_fmaak_f16" | "v_fma_legacy_f16" => m!(|a: F16, b: F16, c: F16| -> F16 { fma16(a, b, c) }),
        "v_mad_f16" | "v_mac_f16" | "v_madmk_f16" | "v_madak_f16" | "v_mad_legacy_f16" => m!(|a: F16, b: F16, c: F16| -> F16 {
            half2(half2(a, b, |x, y| x * y), c, |x, y| x + y)
        }),
        "v_min_f16" => m!(|a: F16, b: F16| -> F16 { pick16(a, b, min_num) }),
        "v_max_f16" => m!(|a: F16, b: F16| -> F16 { pick16(a, b, max_num) }),
        "v_min3_f16" => m!(|a: F16, b: F16, c: F16| -> F16 { pick16(pick16(a, b, min_num), c, min_num) }),
        "v_max3_f16" => m!(|a: F16, b: F16, c: F16| -> F16 { pick16(pick16(a, b, max_num), c, max_num) }),
        "v_med3_f16" => m!(|a: F16, b: F16, c: F16| -> F16 { med3_16(a, b, c) }),
        "v_maxmin_f16" => m!(|a: F16, b: F16, c: F16| -> F16 { pick16(pick16(a, b, max_num), c, min_num) }),
        "v_minmax_f16" => m!(|a: F16, b: F16, c: F16| -> F16 { pick16(pick16(a, b, min_num), c, max_num) }),
        "v_minimum_f16" => m!(|a: F16, b: F16| -> F16 { pick16(a, b, minimum) }),
        "v_maximum_f16" => m!(|a: F16, b: F16| -> F16 { pick16(a, b, maximum) }),
        "v_minimum3_f16" => m!(|a: F16, b: F16, c: F16| -> F16 { pick16(pick16(a, b, minimum), c, minimum) }),
        "v_maximum3_f16" => m!(|a: F16, b: F16, c: F16| -> F16 { pick16(pick16(a, b, maximum), c, maximum) }),
        "v_minimummaximum_f16" => m!(|a: F16, b: F16, c: F16| -> F16 { pick16(pick16(a, b, minimum), c, maximum) }),
        "v_maximumminimum_f16" => m!(|a: F16, b: F16, c: F16| -> F16 { pick16(pick16(a, b, maximum), c, minimum) }),
        "v_ceil_f16" => m!(|a: F16| -> F16 { half1(a, f32::ceil) }),
        "v_floor_f16" => m!(|a: F16| -> F16 { half1(a, f32::floor) }),
        "v_trunc_f16" => m!(|a: F16| -> F16 { half1(a, f32::trunc) }),
        "v_rndne_f16" => m!(|a: F16| -> F16 { half1(a, round_even) }),
        "v_fract_f16" => m!(|a: F16| -> F16 { fract16(a) }),
        "v_rcp_f16" => m!(|a: F16| -> F16 { half1(a, |x| 1.0 / x) }),
        "v_rsq_f16" => m!(|a: F16| -> F16 { f64_to_f16(1.0 / (f16_to_f32(a) as f64).sqrt()) }),
        "v_sqrt_f16" => m!(|a: F16| -> F16 { half1(a, f32::sqrt) }),
        "v_exp_f16" => m!(|a: F16| -> F16 { exp2_16(a) }),
        "v_log_f16" => m!(|a: F16| -> F16 { log2_16(a) }),
        "v_sin_f16" => m!(|a: F16| -> F16 { half1(a, sin_turns) }),
        "v_cos_f16" => m!(|a: F16| -> F16 { half1(a, cos_turns) }),
        "v_tanh_f16" => m!(|a: F16| -> F16 { f64_to_f16((f16_to_f32(a) as f64).tanh()) }),
        "v_ldexp_f16" => m!(|a: F16, b: i16| -> F16 { f64_to_f16(ldexp64(f16_to_f32(a) as f64, b as i32)) }),
        "v_frexp_mant_f16" => m!(|a: F16| -> F16 { half1(a, frexp_mant) }),
        "v_frexp_exp_i16_f16" => m!(|a: F16| -> i16 { frexp_exp(f16_to_f32(a) as f64) as i16 }),
        "v_div_fixup_f16" | "v_div_fixup_legacy_f16" => m!(|a: F16, b: F16, c: F16| -> F16 {
            f32_to_f16(div_fixup(f16_to_f32(a), f16_to_f32(b), f16_to_f32(c)))
        }),

        "v_rcp_bf16" => m!(|a: Bf16| -> Bf16 { bf(a, |x| 1.0 / x) }),
        "v_rsq_bf16" => m!(|a: Bf16| -> Bf16 { bf(a, rsq) }),
        "v_sqrt_bf16" => m!(|a: Bf16| -> Bf16 { bf(a, f32::sqrt) }),
        "v_exp_bf16" => m!(|a: Bf16| -> Bf16 { bf(a, exp2) }),
        "v_log_bf16" => m!(|a: Bf16| -> Bf16 { bf(a, log2) }),
        "v_sin_bf16" => m!(|a: Bf16| -> Bf16 { bf(a, sin_turns) }),
        "v_cos_bf16" => m!(|a: Bf16| -> Bf16 { bf(a, cos_turns) }),
        "v_tanh_bf16" => m!(|a: Bf16| -> Bf16 { bf(a, |x| (x as f64).tanh() as f32) }),
        _ => return None,
    })
}
