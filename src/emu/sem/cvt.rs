//! Conversions between number formats.
//!
//! Source: VOP1 and VOP3 pseudocode (V_CVT_*) of the "Vega", "CDNA3" and "RDNA3" manuals.

use super::{Sem, m};
use crate::lanes::{Bf16, F16, Lane, No, Pk};
use crate::numeric::*;

#[inline(always)]
fn norm_i16(x: f32) -> i16 {
    (x.clamp(-1.0, 1.0) * 32767.0).round_ties_even() as i16
}
#[inline(always)]
fn norm_u16(x: f32) -> u16 {
    (x.clamp(0.0, 1.0) * 65535.0).round_ties_even() as u16
}
#[inline(always)]
fn pack(a: u16, b: u16) -> u32 {
    a as u32 | (b as u32) << 16
}
#[inline(always)]
fn insert_byte(value: u32, place: u32, into: u32) -> u32 {
    let s = 8 * (place & 3);
    into & !(0xff << s) | (value & 0xff) << s
}
/// Stochastic rounding to half: the seed's upper bits are added below the last bit kept.
fn sr_f16(x: f32, seed: u32) -> F16 {
    if !x.is_finite() || x.abs() < 6.1035156e-5 {
        return f32_to_f16(x);
    }
    f32_to_f16_rtz(f32::from_bits(x.to_bits().wrapping_add(seed >> 19)))
}
fn sr_bf16(x: f32, seed: u32) -> Bf16 {
    if !x.is_finite() {
        return f32_to_bf16(x);
    }
    Bf16((x.to_bits().wrapping_add(seed >> 16) >> 16) as u16)
}

/// Semantics by name.
#[rustfmt::skip]
pub fn find(name: &str) -> Option<Sem> {
    Some(match name {
        "v_cvt_f32_i32" => m!(|a: i32| -> f32 { a as f32 }),
        "v_cvt_f32_u32" => m!(|a: u32| -> f32 { a as f32 }),
        "v_cvt_i32_f32" => m!(|a: f32| -> i32 { to_i32(a) }),
        "v_cvt_u32_f32" => m!(|a: f32| -> u32 { a as u32 }),
        "v_cvt_f64_i32" => m!(|a: i32| -> f64 { a as f64 }),
        "v_cvt_f64_u32" => m!(|a: u32| -> f64 { a as f64 }),
        "v_cvt_i32_f64" => m!(|a: f64| -> i32 { a as i32 }),
        "v_cvt_u32_f64" => m!(|a: f64| -> u32 { a as u32 }),
        "v_cvt_f32_f64" => m!(|a: f64| -> f32 { a as f32 }),
        "v_cvt_f64_f32" => m!(|a: f32| -> f64 { a as f64 }),
        "v_cvt_f16_f32" => m!(|a: f32| -> F16 { f32_to_f16(a) }),
        "v_cvt_f32_f16" => m!(|a: F16| -> f32 { f16_to_f32(a) }),
        "v_cvt_f32_bf16" => m!(|a: Bf16| -> f32 { bf16_to_f32(a) }),
        "v_cvt_pk_bf16_f32" => m!(|a: f32, b: f32| -> u32 { pack(f32_to_bf16(a).0, f32_to_bf16(b).0) }),
        "v_cvt_pk_f16_f32" => m!(|a: f32, b: f32| -> u32 { pack(f32_to_f16(a).0, f32_to_f16(b).0) }),
        "v_cvt_f16_u16" => m!(|a: u16| -> F16 { f32_to_f16(a as f32) }),
        "v_cvt_f16_i16" => m!(|a: i16| -> F16 { f32_to_f16(a as f32) }),
        "v_cvt_u16_f16" => m!(|a: F16| -> u16 { f16_to_f32(a) as u16 }),
        "v_cvt_i16_f16" => m!(|a: F16| -> i16 { f16_to_f32(a) as i16 }),
        "v_cvt_i32_i16" => m!(|a: i16| -> i32 { a as i32 }),
        "v_cvt_u32_u16" => m!(|a: u16| -> u32 { a as u32 }),
        "v_cvt_rpi_i32_f32" => m!(|a: f32| -> i32 { (a as f64 + 0.5).floor() as i32 }),
        "v_cvt_flr_i32_f32" => m!(|a: f32| -> i32 { a.floor() as i32 }),
        "v_cvt_off_f32_i4" => m!(|a: u32| -> f32 { ((a << 28) as i32 >> 28) as f32 / 16.0 }),
        "v_cvt_f32_ubyte0" => m!(|a: u32| -> f32 { (a & 0xff) as f32 }),
        "v_cvt_f32_ubyte1" => m!(|a: u32| -> f32 { (a >> 8 & 0xff) as f32 }),
        "v_cvt_f32_ubyte2" => m!(|a: u32| -> f32 { (a >> 16 & 0xff) as f32 }),
        "v_cvt_f32_ubyte3" => m!(|a: u32| -> f32 { (a >> 24) as f32 }),
        "v_cvt_pkrtz_f16_f32" => m!(|a: f32, b: f32| -> u32 { pack(f32_to_f16_rtz(a).0, f32_to_f16_rtz(b).0) }),
        "v_cvt_pknorm_i16_f32" => m!(|a: f32, b: f32| -> u32 { pack(norm_i16(a) as u16, norm_i16(b) as u16) }),
        "v_cvt_pknorm_u16_f32" => m!(|a: f32, b: f32| -> u32 { pack(norm_u16(a), norm_u16(b)) }),
        "v_cvt_pknorm_i16_f16" => m!(|a: F16, b: F16| -> u32 { pack(norm_i16(f16_to_f32(a)) as u16, norm_i16(f16_to_f32(b)) as u16) }),
        "v_cvt_pknorm_u16_f16" => m!(|a: F16, b: F16| -> u32 { pack(norm_u16(f16_to_f32(a)), norm_u16(f16_to_f32(b))) }),
        "v_cvt_norm_i16_f16" => m!(|a: F16| -> i16 { norm_i16(f16_to_f32(a)) }),
        "v_cvt_norm_u16_f16" => m!(|a: F16| -> u16 { norm_u16(f16_to_f32(a)) }),
        "v_cvt_pk_u16_u32" => m!(|a: u32, b: u32| -> u32 { pack(a.min(0xffff) as u16, b.min(0xffff) as u16) }),
        "v_cvt_pk_i16_i32" => m!(|a: i32, b: i32| -> u32 { pack(a.clamp(-32768, 32767) as u16, b.clamp(-32768, 32767) as u16) }),
        "v_cvt_pk_i16_f32" => m!(|a: f32, b: f32| -> u32 { pack(a as i16 as u16, b as i16 as u16) }),
        "v_cvt_pk_u16_f32" => m!(|a: f32, b: f32| -> u32 { pack(a as u16, b as u16) }),
        "v_cvt_pk_u8_f32" => m!(|a: f32, b: u32, c: u32| -> u32 { insert_byte(a as u8 as u32, b, c) }),
        // The byte of the destination that the second operand names.
        "v_cvt_pkaccum_u8_f32" => m!(|a: f32, b: u32, c: u32| -> u32 { insert_byte(a as u8 as u32, b, c) }),
        "v_cvt_sr_f16_f32" => m!(|a: f32, b: u32| -> F16 { sr_f16(a, b) }),
        "v_cvt_sr_bf16_f32" => m!(|a: f32, b: u32| -> Bf16 { sr_bf16(a, b) }),
        "v_pack_b32_f16" => m!(|a: F16, b: F16| -> u32 { pack(a.0, b.0) }),
        "v_cvt_sr_pk_bf16_f32" => m!(|a: f32, b: f32, c: u32| -> Pk<Bf16> { Pk(sr_bf16(a, c << 16), sr_bf16(b, c)) }),
        "v_cvt_sr_pk_f16_f32" => m!(|a: f32, b: f32, c: u32| -> Pk<F16> { Pk(sr_f16(a, c << 16), sr_f16(b, c)) }),
        _ => return None,
    })
}
