//! Conversions between number formats.
//!
//! Source: VOP1 and VOP3 pseudocode (V_CVT_*) of the "Vega", "CDNA3" and "RDNA3" manuals.

use super::{Sem, m};
use crate::lanes::{Bf16, F16, Lane, No, Pk};
use crate::numeric::*;
use barewave_isa::action::Convert;

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

/// Semantics.
#[rustfmt::skip]
pub fn of(f: Convert) -> Sem {
    match f {
        Convert::CvtF32I32 => m!(|a: i32| -> f32 { a as f32 }),
        Convert::CvtF32U32 => m!(|a: u32| -> f32 { a as f32 }),
        Convert::CvtI32F32 => m!(|a: f32| -> i32 { to_i32(a) }),
        Convert::CvtU32F32 => m!(|a: f32| -> u32 { a as u32 }),
        Convert::CvtF64I32 => m!(|a: i32| -> f64 { a as f64 }),
        Convert::CvtF64U32 => m!(|a: u32| -> f64 { a as f64 }),
        Convert::CvtI32F64 => m!(|a: f64| -> i32 { a as i32 }),
        Convert::CvtU32F64 => m!(|a: f64| -> u32 { a as u32 }),
        Convert::CvtF32F64 => m!(|a: f64| -> f32 { a as f32 }),
        Convert::CvtF64F32 => m!(|a: f32| -> f64 { a as f64 }),
        Convert::CvtF16F32 => m!(|a: f32| -> F16 { f32_to_f16(a) }),
        Convert::CvtF32F16 => m!(|a: F16| -> f32 { f16_to_f32(a) }),
        Convert::CvtF32Bf16 => m!(|a: Bf16| -> f32 { bf16_to_f32(a) }),
        Convert::CvtPkBf16F32 => m!(|a: f32, b: f32| -> u32 { pack(f32_to_bf16(a).0, f32_to_bf16(b).0) }),
        Convert::CvtPkF16F32 => m!(|a: f32, b: f32| -> u32 { pack(f32_to_f16(a).0, f32_to_f16(b).0) }),
        Convert::CvtF16U16 => m!(|a: u16| -> F16 { f32_to_f16(a as f32) }),
        Convert::CvtF16I16 => m!(|a: i16| -> F16 { f32_to_f16(a as f32) }),
        Convert::CvtU16F16 => m!(|a: F16| -> u16 { f16_to_f32(a) as u16 }),
        Convert::CvtI16F16 => m!(|a: F16| -> i16 { f16_to_f32(a) as i16 }),
        Convert::CvtI32I16 => m!(|a: i16| -> i32 { a as i32 }),
        Convert::CvtU32U16 => m!(|a: u16| -> u32 { a as u32 }),
        Convert::CvtRpiI32F32 => m!(|a: f32| -> i32 { (a as f64 + 0.5).floor() as i32 }),
        Convert::CvtFlrI32F32 => m!(|a: f32| -> i32 { a.floor() as i32 }),
        Convert::CvtOffF32I4 => m!(|a: u32| -> f32 { ((a << 28) as i32 >> 28) as f32 / 16.0 }),
        Convert::CvtF32Ubyte0 => m!(|a: u32| -> f32 { (a & 0xff) as f32 }),
        Convert::CvtF32Ubyte1 => m!(|a: u32| -> f32 { (a >> 8 & 0xff) as f32 }),
        Convert::CvtF32Ubyte2 => m!(|a: u32| -> f32 { (a >> 16 & 0xff) as f32 }),
        Convert::CvtF32Ubyte3 => m!(|a: u32| -> f32 { (a >> 24) as f32 }),
        Convert::CvtPkrtzF16F32 => m!(|a: f32, b: f32| -> u32 { pack(f32_to_f16_rtz(a).0, f32_to_f16_rtz(b).0) }),
        Convert::CvtPknormI16F32 => m!(|a: f32, b: f32| -> u32 { pack(norm_i16(a) as u16, norm_i16(b) as u16) }),
        Convert::CvtPknormU16F32 => m!(|a: f32, b: f32| -> u32 { pack(norm_u16(a), norm_u16(b)) }),
        Convert::CvtPknormI16F16 => m!(|a: F16, b: F16| -> u32 { pack(norm_i16(f16_to_f32(a)) as u16, norm_i16(f16_to_f32(b)) as u16) }),
        Convert::CvtPknormU16F16 => m!(|a: F16, b: F16| -> u32 { pack(norm_u16(f16_to_f32(a)), norm_u16(f16_to_f32(b))) }),
        Convert::CvtNormI16F16 => m!(|a: F16| -> i16 { norm_i16(f16_to_f32(a)) }),
        Convert::CvtNormU16F16 => m!(|a: F16| -> u16 { norm_u16(f16_to_f32(a)) }),
        Convert::CvtPkU16U32 => m!(|a: u32, b: u32| -> u32 { pack(a.min(0xffff) as u16, b.min(0xffff) as u16) }),
        Convert::CvtPkI16I32 => m!(|a: i32, b: i32| -> u32 { pack(a.clamp(-32768, 32767) as u16, b.clamp(-32768, 32767) as u16) }),
        Convert::CvtPkI16F32 => m!(|a: f32, b: f32| -> u32 { pack(a as i16 as u16, b as i16 as u16) }),
        Convert::CvtPkU16F32 => m!(|a: f32, b: f32| -> u32 { pack(a as u16, b as u16) }),
        Convert::CvtPkU8F32 => m!(|a: f32, b: u32, c: u32| -> u32 { insert_byte(a as u8 as u32, b, c) }),
        // The byte of the destination that the second operand names.
        Convert::CvtPkaccumU8F32 => m!(|a: f32, b: u32, c: u32| -> u32 { insert_byte(a as u8 as u32, b, c) }),
        Convert::CvtSrF16F32 => m!(|a: f32, b: u32| -> F16 { sr_f16(a, b) }),
        Convert::CvtSrBf16F32 => m!(|a: f32, b: u32| -> Bf16 { sr_bf16(a, b) }),
        Convert::PackB32F16 => m!(|a: F16, b: F16| -> u32 { pack(a.0, b.0) }),
        Convert::CvtSrPkBf16F32 => m!(|a: f32, b: f32, c: u32| -> Pk<Bf16> { Pk(sr_bf16(a, c << 16), sr_bf16(b, c)) }),
        Convert::CvtSrPkF16F32 => m!(|a: f32, b: f32, c: u32| -> Pk<F16> { Pk(sr_f16(a, c << 16), sr_f16(b, c)) }),
    }
}
