//! The `clamp` modifier of vector instructions whose result is no float, or halves in a row: results saturate at the
//! ends of their type, halves at 0 and 1.
//!
//! Source: field CLAMP of the VOP3 and VOP3P encodings in the "Vega" and "RDNA3" manuals. A dot product is clamped once,
//! when all is added up, as the extension SPV_KHR_integer_dot_product wants it of the instructions that Mesa chooses for it.

use super::int::{i24, msad8, sad8, u24};
use super::packed::{s4, s8, u4, u8_};
use super::{Sem, c, m};
use crate::lanes::{Bf16, F16, Lane, No, Pk};
use crate::numeric::*;
use barewave_isa::action::{Action, Convert, Int, Packed};

#[inline(always)]
fn i32_of(x: i64) -> i32 {
    x.clamp(i32::MIN as i64, i32::MAX as i64) as i32
}
#[inline(always)]
fn u32_of(x: u64) -> u32 {
    x.min(u32::MAX as u64) as u32
}
#[inline(always)]
fn i16_of(x: i32) -> i16 {
    x.clamp(-0x8000, 0x7fff) as i16
}
#[inline(always)]
fn u16_of(x: u64) -> u16 {
    x.min(0xffff) as u16
}
#[inline(always)]
fn dot(n: u32, a: u32, b: u32, f: fn(u32, u32) -> i32, g: fn(u32, u32) -> i32) -> i64 {
    (0..n).map(|i| i64::from(f(a, i) * g(b, i))).sum()
}
#[inline(always)]
fn qsad(a: u64, b: u32, c: u64, f: fn(u32, u32) -> u32) -> u64 {
    (0..4)
        .map(|i| u64::from(u16_of(u64::from(f((a >> (8 * i)) as u32, b)) + (c >> (16 * i) & 0xffff))) << (16 * i))
        .sum()
}
/// A sum that carries, and its saturated value.
#[inline(always)]
fn sum(exact: i64) -> (u32, bool) {
    (exact.clamp(0, u32::MAX as i64) as u32, exact as u64 >> 32 != 0)
}

/// Integer dot products whose operands are signed (`true`) or not, saturated.
#[rustfmt::skip]
pub fn dot_signs(f: Packed, signed: [bool; 2]) -> Option<Sem> {
    Some(match (f, signed) {
        (Packed::Dot4I32Iu8, [false, false]) => m!(|a: u32, b: u32, c: i32| -> i32 { i32_of(dot(4, a, b, u8_, u8_) + c as i64) }),
        (Packed::Dot4I32Iu8, [true, false]) => m!(|a: u32, b: u32, c: i32| -> i32 { i32_of(dot(4, a, b, s8, u8_) + c as i64) }),
        (Packed::Dot4I32Iu8, [false, true]) => m!(|a: u32, b: u32, c: i32| -> i32 { i32_of(dot(4, a, b, u8_, s8) + c as i64) }),
        (Packed::Dot4I32Iu8, [true, true]) => m!(|a: u32, b: u32, c: i32| -> i32 { i32_of(dot(4, a, b, s8, s8) + c as i64) }),
        (Packed::Dot8I32Iu4, [false, false]) => m!(|a: u32, b: u32, c: i32| -> i32 { i32_of(dot(8, a, b, u4, u4) + c as i64) }),
        (Packed::Dot8I32Iu4, [true, false]) => m!(|a: u32, b: u32, c: i32| -> i32 { i32_of(dot(8, a, b, s4, u4) + c as i64) }),
        (Packed::Dot8I32Iu4, [false, true]) => m!(|a: u32, b: u32, c: i32| -> i32 { i32_of(dot(8, a, b, u4, s4) + c as i64) }),
        (Packed::Dot8I32Iu4, [true, true]) => m!(|a: u32, b: u32, c: i32| -> i32 { i32_of(dot(8, a, b, s4, s4) + c as i64) }),
        _ => return None,
    })
}

/// What takes the place of an instruction's semantics when it clamps; `None` where no result leaves its type's range
/// (minima, shifts, conversions that saturate anyway). Where the result is a float, it is yet to be clamped.
#[rustfmt::skip]
pub fn clamped(a: &Action) -> Option<Sem> {
    Some(match a {
        Action::Int(Int::AddU32) => m!(|a: u32, b: u32| -> u32 { a.saturating_add(b) }),
        Action::Int(Int::SubU32) => m!(|a: u32, b: u32| -> u32 { a.saturating_sub(b) }),
        Action::Int(Int::SubrevU32) => m!(|a: u32, b: u32| -> u32 { b.saturating_sub(a) }),
        Action::Int(Int::AddI32) => m!(|a: i32, b: i32| -> i32 { a.saturating_add(b) }),
        Action::Int(Int::SubI32) => m!(|a: i32, b: i32| -> i32 { a.saturating_sub(b) }),
        Action::Int(Int::AddU16) => m!(|a: u16, b: u16| -> u16 { a.saturating_add(b) }),
        Action::Int(Int::SubU16) => m!(|a: u16, b: u16| -> u16 { a.saturating_sub(b) }),
        Action::Int(Int::SubrevU16) => m!(|a: u16, b: u16| -> u16 { b.saturating_sub(a) }),
        Action::Int(Int::AddI16) => m!(|a: i16, b: i16| -> i16 { a.saturating_add(b) }),
        Action::Int(Int::SubI16) => m!(|a: i16, b: i16| -> i16 { a.saturating_sub(b) }),
        Action::Int(Int::MadU16) => m!(|a: u16, b: u16, c: u16| -> u16 { (a as u64 * b as u64 + c as u64).min(0xffff) as u16 }),
        Action::Int(Int::MadI16) => m!(|a: i16, b: i16, c: i16| -> i16 { (a as i64 * b as i64 + c as i64).clamp(-32768, 32767) as i16 }),
        Action::Int(Int::MadU32U24) => m!(|a: u32, b: u32, c: u32| -> u32 { (u24(a) as u64 * u24(b) as u64 + c as u64).min(u32::MAX as u64) as u32 }),
        Action::Int(Int::MadI32I24) => m!(|a: u32, b: u32, c: i32| -> i32 {
            (i24(a) as i64 * i24(b) as i64 + c as i64).clamp(i32::MIN as i64, i32::MAX as i64) as i32
        }),
        Action::Int(Int::MadU32U16) => m!(|a: u16, b: u16, c: u32| -> u32 { (a as u64 * b as u64 + c as u64).min(u32::MAX as u64) as u32 }),
        Action::Int(Int::MadI32I16) => m!(|a: i16, b: i16, c: i32| -> i32 {
            (a as i64 * b as i64 + c as i64).clamp(i32::MIN as i64, i32::MAX as i64) as i32
        }),
        Action::Packed(Packed::PkAddU16) => m!(|a: Pk<u16>, b: Pk<u16>| -> Pk<u16> { Pk(a.0.saturating_add(b.0), a.1.saturating_add(b.1)) }),
        Action::Packed(Packed::PkSubU16) => m!(|a: Pk<u16>, b: Pk<u16>| -> Pk<u16> { Pk(a.0.saturating_sub(b.0), a.1.saturating_sub(b.1)) }),
        Action::Packed(Packed::PkAddI16) => m!(|a: Pk<i16>, b: Pk<i16>| -> Pk<i16> { Pk(a.0.saturating_add(b.0), a.1.saturating_add(b.1)) }),
        Action::Packed(Packed::PkSubI16) => m!(|a: Pk<i16>, b: Pk<i16>| -> Pk<i16> { Pk(a.0.saturating_sub(b.0), a.1.saturating_sub(b.1)) }),
        Action::Int(Int::SadU8) => m!(|a: u32, b: u32, c: u32| -> u32 { sad8(a, b).saturating_add(c) }),
        Action::Int(Int::SadU16) => m!(|a: u32, b: u32, c: u32| -> u32 {
            ((a & 0xffff).abs_diff(b & 0xffff) + (a >> 16).abs_diff(b >> 16)).saturating_add(c)
        }),
        Action::Int(Int::SadU32) => m!(|a: u32, b: u32, c: u32| -> u32 { a.abs_diff(b).saturating_add(c) }),
        Action::Int(Int::SadHiU8) => m!(|a: u32, b: u32, c: u32| -> u32 { (sad8(a, b) << 16).saturating_add(c) }),
        Action::Int(Int::MsadU8) => m!(|a: u32, b: u32, c: u32| -> u32 { msad8(a, b).saturating_add(c) }),
        Action::Int(Int::QsadPkU16U8) => m!(|a: u64, b: u32, c: u64| -> u64 { qsad(a, b, c, sad8) }),
        Action::Int(Int::MqsadPkU16U8) => m!(|a: u64, b: u32, c: u64| -> u64 { qsad(a, b, c, msad8) }),
        Action::Int(Int::MulU32U24) => m!(|a: u32, b: u32| -> u32 { u32_of(u24(a) as u64 * u24(b) as u64) }),
        Action::Int(Int::MulI32I24) => m!(|a: u32, b: u32| -> i32 { i32_of(i24(a) as i64 * i24(b) as i64) }),
        Action::Int(Int::AddNcU64) => m!(|a: u64, b: u64| -> u64 { a.saturating_add(b) }),
        Action::Int(Int::SubNcU64) => m!(|a: u64, b: u64| -> u64 { a.saturating_sub(b) }),
        Action::Int(Int::MadNcU64U32) => m!(|a: u32, b: u32, c: u64| -> u64 { (a as u64 * b as u64).saturating_add(c) }),
        Action::Int(Int::MadNcI64I32) => m!(|a: i32, b: i32, c: i64| -> i64 { (a as i64 * b as i64).saturating_add(c) }),
        // The carry is that of the exact sum.
        Action::Int(Int::AddCoU32) => c!(BitOut, |a: u32, b: u32, _c: No, _bit| -> u32 { sum(a as i64 + b as i64) }),
        Action::Int(Int::SubCoU32) => c!(BitOut, |a: u32, b: u32, _c: No, _bit| -> u32 { sum(a as i64 - b as i64) }),
        Action::Int(Int::SubrevCoU32) => c!(BitOut, |a: u32, b: u32, _c: No, _bit| -> u32 { sum(b as i64 - a as i64) }),
        Action::Int(Int::AddcCoU32) => c!(BitInOut, |a: u32, b: u32, _c: No, bit| -> u32 { sum(a as i64 + b as i64 + bit as i64) }),
        Action::Int(Int::SubbCoU32) => c!(BitInOut, |a: u32, b: u32, _c: No, bit| -> u32 { sum(a as i64 - b as i64 - bit as i64) }),
        Action::Int(Int::SubbrevCoU32) => c!(BitInOut, |a: u32, b: u32, _c: No, bit| -> u32 { sum(b as i64 - a as i64 - bit as i64) }),
        Action::Int(Int::MadU64U32) => c!(BitOut, |a: u32, b: u32, c: u64, _bit| -> u64 {
            let p = a as u64 * b as u64;
            (p.saturating_add(c), p.checked_add(c).is_none())
        }),
        Action::Int(Int::MadI64I32) => c!(BitOut, |a: i32, b: i32, c: i64, _bit| -> i64 {
            let p = a as i64 * b as i64;
            (p.saturating_add(c), p.checked_add(c).is_none())
        }),
        Action::Packed(Packed::PkMulLoU16) => m!(|a: Pk<u16>, b: Pk<u16>| -> Pk<u16> { Pk(a.0.saturating_mul(b.0), a.1.saturating_mul(b.1)) }),
        Action::Packed(Packed::PkMadU16) => m!(|a: Pk<u16>, b: Pk<u16>, c: Pk<u16>| -> Pk<u16> {
            Pk(u16_of(a.0 as u64 * b.0 as u64 + c.0 as u64), u16_of(a.1 as u64 * b.1 as u64 + c.1 as u64))
        }),
        Action::Packed(Packed::PkMadI16) => m!(|a: Pk<i16>, b: Pk<i16>, c: Pk<i16>| -> Pk<i16> {
            Pk(i16_of(a.0 as i32 * b.0 as i32 + c.0 as i32), i16_of(a.1 as i32 * b.1 as i32 + c.1 as i32))
        }),
        Action::Packed(Packed::Dot2I32I16) => m!(|a: Pk<i16>, b: Pk<i16>, c: i32| -> i32 {
            i32_of(a.0 as i64 * b.0 as i64 + a.1 as i64 * b.1 as i64 + c as i64)
        }),
        Action::Packed(Packed::Dot2U32U16) => m!(|a: Pk<u16>, b: Pk<u16>, c: u32| -> u32 {
            u32_of(a.0 as u64 * b.0 as u64 + a.1 as u64 * b.1 as u64 + c as u64)
        }),
        Action::Packed(Packed::Dot4I32I8) => m!(|a: u32, b: u32, c: i32| -> i32 { i32_of(dot(4, a, b, s8, s8) + c as i64) }),
        Action::Packed(Packed::Dot4U32U8) => m!(|a: u32, b: u32, c: u32| -> u32 { u32_of(dot(4, a, b, u8_, u8_) as u64 + c as u64) }),
        Action::Packed(Packed::Dot8I32I4) => m!(|a: u32, b: u32, c: i32| -> i32 { i32_of(dot(8, a, b, s4, s4) + c as i64) }),
        Action::Packed(Packed::Dot8U32U4) => m!(|a: u32, b: u32, c: u32| -> u32 { u32_of(dot(8, a, b, u4, u4) as u64 + c as u64) }),
        Action::Convert(Convert::CvtPkrtzF16F32) => m!(|a: f32, b: f32| -> Pk<F16> { Pk(f32_to_f16_rtz(a), f32_to_f16_rtz(b)) }),
        Action::Convert(Convert::CvtPkF16F32) => m!(|a: f32, b: f32| -> Pk<F16> { Pk(f32_to_f16(a), f32_to_f16(b)) }),
        Action::Convert(Convert::CvtPkBf16F32) => m!(|a: f32, b: f32| -> Pk<Bf16> { Pk(f32_to_bf16(a), f32_to_bf16(b)) }),
        Action::Convert(Convert::PackB32F16) => m!(|a: F16, b: F16| -> Pk<F16> { Pk(a, b) }),
        _ => return None,
    })
}
