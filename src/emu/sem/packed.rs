//! Packed arithmetic (two values per register or register pair) and dot products.
//!
//! `op_sel` and `neg` have been applied when a function sees its operands. In integer dot products of gfx11 on, the
//! `neg` bits say which operands are signed; they arrive as different kernels, see [`dot_signs`].
//!
//! Source: VOP3P section of the "Vega" (7 nm), "CDNA3" and "RDNA3" manuals. In which order and with what rounding dot
//! products of floats add is not documented: here those of halves add in double precision, those of bf16 and 8-bit floats
//! term by term with fused multiply-adds in single precision.

use super::{Sem, m};
use crate::lanes::{Bf16, F16, Lane, No, Pk};
use crate::numeric::*;
use barewave_isa::action::Packed;

#[inline(always)]
fn both<A: Copy, B: Copy, D>(a: Pk<A>, b: Pk<B>, f: impl Fn(A, B) -> D) -> Pk<D> {
    Pk(f(a.0, b.0), f(a.1, b.1))
}
#[inline(always)]
fn both3<A: Copy, D>(a: Pk<A>, b: Pk<A>, c: Pk<A>, f: impl Fn(A, A, A) -> D) -> Pk<D> {
    Pk(f(a.0, b.0, c.0), f(a.1, b.1, c.1))
}
#[inline(always)]
fn h(a: Pk<F16>, b: Pk<F16>, f: impl Fn(f32, f32) -> f32) -> Pk<F16> {
    both(a, b, |x, y| half2(x, y, &f))
}
#[inline(always)]
fn bf2(a: Pk<Bf16>, b: Pk<Bf16>, f: impl Fn(f32, f32) -> f32) -> Pk<Bf16> {
    both(a, b, |x, y| f32_to_bf16(f(bf16_to_f32(x), bf16_to_f32(y))))
}
#[inline(always)]
pub(super) fn s8(x: u32, i: u32) -> i32 {
    (x >> (8 * i)) as u8 as i8 as i32
}
#[inline(always)]
pub(super) fn u8_(x: u32, i: u32) -> i32 {
    (x >> (8 * i)) as u8 as i32
}
#[inline(always)]
pub(super) fn s4(x: u32, i: u32) -> i32 {
    ((x >> (4 * i) << 28) as i32) >> 28
}
#[inline(always)]
pub(super) fn u4(x: u32, i: u32) -> i32 {
    (x >> (4 * i) & 15) as i32
}
#[inline(always)]
fn dot4(a: u32, b: u32, c: i32, f: fn(u32, u32) -> i32, g: fn(u32, u32) -> i32) -> i32 {
    let mut sum = c;
    for i in 0..4 {
        sum = sum.wrapping_add(f(a, i) * g(b, i));
    }
    sum
}
#[inline(always)]
fn dot8(a: u32, b: u32, c: i32, f: fn(u32, u32) -> i32, g: fn(u32, u32) -> i32) -> i32 {
    let mut sum = c;
    for i in 0..8 {
        sum = sum.wrapping_add(f(a, i) * g(b, i));
    }
    sum
}
/// Products are exact in double precision, where they are added up; the sum is rounded once more.
#[inline(always)]
fn dot2(a: Pk<F16>, b: Pk<F16>, c: f32) -> f32 {
    let p = f16_to_f32(a.0) as f64 * f16_to_f32(b.0) as f64 + f16_to_f32(a.1) as f64 * f16_to_f32(b.1) as f64;
    (p + c as f64) as f32
}
#[inline(always)]
fn dot2_bf(a: Pk<Bf16>, b: Pk<Bf16>, c: f32) -> f32 {
    let r = fma(bf16_to_f32(a.0), bf16_to_f32(b.0), c);
    fma(bf16_to_f32(a.1), bf16_to_f32(b.1), r)
}

/// Integer dot products whose operands are signed (`true`) or not.
#[rustfmt::skip]
pub fn dot_signs(f: Packed, signed: [bool; 2]) -> Option<Sem> {
    Some(match (f, signed) {
        (Packed::Dot4I32Iu8, [false, false]) => m!(|a: u32, b: u32, c: i32| -> i32 { dot4(a, b, c, u8_, u8_) }),
        (Packed::Dot4I32Iu8, [true, false]) => m!(|a: u32, b: u32, c: i32| -> i32 { dot4(a, b, c, s8, u8_) }),
        (Packed::Dot4I32Iu8, [false, true]) => m!(|a: u32, b: u32, c: i32| -> i32 { dot4(a, b, c, u8_, s8) }),
        (Packed::Dot4I32Iu8, [true, true]) => m!(|a: u32, b: u32, c: i32| -> i32 { dot4(a, b, c, s8, s8) }),
        (Packed::Dot8I32Iu4, [false, false]) => m!(|a: u32, b: u32, c: i32| -> i32 { dot8(a, b, c, u4, u4) }),
        (Packed::Dot8I32Iu4, [true, false]) => m!(|a: u32, b: u32, c: i32| -> i32 { dot8(a, b, c, s4, u4) }),
        (Packed::Dot8I32Iu4, [false, true]) => m!(|a: u32, b: u32, c: i32| -> i32 { dot8(a, b, c, u4, s4) }),
        (Packed::Dot8I32Iu4, [true, true]) => m!(|a: u32, b: u32, c: i32| -> i32 { dot8(a, b, c, s4, s4) }),
        _ => return None,
    })
}

/// Semantics.
#[rustfmt::skip]
pub fn of(f: Packed) -> Sem {
    match f {
        Packed::PkAddF16 => m!(|a: Pk<F16>, b: Pk<F16>| -> Pk<F16> { h(a, b, |x, y| x + y) }),
        Packed::PkMulF16 => m!(|a: Pk<F16>, b: Pk<F16>| -> Pk<F16> { h(a, b, |x, y| x * y) }),
        Packed::PkMinF16 => m!(|a: Pk<F16>, b: Pk<F16>| -> Pk<F16> { h(a, b, min_num) }).quieting(),
        Packed::PkMaxF16 => m!(|a: Pk<F16>, b: Pk<F16>| -> Pk<F16> { h(a, b, max_num) }).quieting(),
        Packed::PkMinimumF16 => m!(|a: Pk<F16>, b: Pk<F16>| -> Pk<F16> { h(a, b, minimum) }),
        Packed::PkMaximumF16 => m!(|a: Pk<F16>, b: Pk<F16>| -> Pk<F16> { h(a, b, maximum) }),
        Packed::PkMinimum3F16 => m!(|a: Pk<F16>, b: Pk<F16>, c: Pk<F16>| -> Pk<F16> { h(h(a, b, minimum), c, minimum) }),
        Packed::PkMaximum3F16 => m!(|a: Pk<F16>, b: Pk<F16>, c: Pk<F16>| -> Pk<F16> { h(h(a, b, maximum), c, maximum) }),
        Packed::PkFmaF16 => m!(|a: Pk<F16>, b: Pk<F16>, c: Pk<F16>| -> Pk<F16> { both3(a, b, c, fma16) }),
        Packed::PkAddBf16 => m!(|a: Pk<Bf16>, b: Pk<Bf16>| -> Pk<Bf16> { bf2(a, b, |x, y| x + y) }),
        Packed::PkMulBf16 => m!(|a: Pk<Bf16>, b: Pk<Bf16>| -> Pk<Bf16> { bf2(a, b, |x, y| x * y) }),
        Packed::PkMinNumBf16 => m!(|a: Pk<Bf16>, b: Pk<Bf16>| -> Pk<Bf16> { bf2(a, b, min_num) }).quieting(),
        Packed::PkMaxNumBf16 => m!(|a: Pk<Bf16>, b: Pk<Bf16>| -> Pk<Bf16> { bf2(a, b, max_num) }).quieting(),
        Packed::PkAddF32 => m!(|a: Pk<f32>, b: Pk<f32>| -> Pk<f32> { both(a, b, |x, y| x + y) }),
        Packed::PkMulF32 => m!(|a: Pk<f32>, b: Pk<f32>| -> Pk<f32> { both(a, b, |x, y| x * y) }),
        Packed::PkFmaF32 => m!(|a: Pk<f32>, b: Pk<f32>, c: Pk<f32>| -> Pk<f32> { both3(a, b, c, fma) }),
        // op_sel alone chooses: bit 0 of the first source, bit 1 of the second.
        Packed::PkMovB32 => m!(|a: Pk<f32>, b: Pk<f32>| -> Pk<f32> { Pk(a.0, b.0) }).raw(),
        Packed::PkAddU16 => m!(|a: Pk<u16>, b: Pk<u16>| -> Pk<u16> { both(a, b, u16::wrapping_add) }),
        Packed::PkAddI16 => m!(|a: Pk<i16>, b: Pk<i16>| -> Pk<i16> { both(a, b, i16::wrapping_add) }),
        Packed::PkSubU16 => m!(|a: Pk<u16>, b: Pk<u16>| -> Pk<u16> { both(a, b, u16::wrapping_sub) }),
        Packed::PkSubI16 => m!(|a: Pk<i16>, b: Pk<i16>| -> Pk<i16> { both(a, b, i16::wrapping_sub) }),
        Packed::PkMulLoU16 => m!(|a: Pk<u16>, b: Pk<u16>| -> Pk<u16> { both(a, b, u16::wrapping_mul) }),
        Packed::PkMadU16 => m!(|a: Pk<u16>, b: Pk<u16>, c: Pk<u16>| -> Pk<u16> { both3(a, b, c, |x, y, z| x.wrapping_mul(y).wrapping_add(z)) }),
        Packed::PkMadI16 => m!(|a: Pk<i16>, b: Pk<i16>, c: Pk<i16>| -> Pk<i16> { both3(a, b, c, |x, y, z| x.wrapping_mul(y).wrapping_add(z)) }),
        Packed::PkMinU16 => m!(|a: Pk<u16>, b: Pk<u16>| -> Pk<u16> { both(a, b, u16::min) }),
        Packed::PkMaxU16 => m!(|a: Pk<u16>, b: Pk<u16>| -> Pk<u16> { both(a, b, u16::max) }),
        Packed::PkMinI16 => m!(|a: Pk<i16>, b: Pk<i16>| -> Pk<i16> { both(a, b, i16::min) }),
        Packed::PkMaxI16 => m!(|a: Pk<i16>, b: Pk<i16>| -> Pk<i16> { both(a, b, i16::max) }),
        Packed::PkLshlrevB16 => m!(|a: Pk<u16>, b: Pk<u16>| -> Pk<u16> { both(a, b, |x, y| y << (x & 15)) }),
        Packed::PkLshrrevB16 => m!(|a: Pk<u16>, b: Pk<u16>| -> Pk<u16> { both(a, b, |x, y| y >> (x & 15)) }),
        Packed::PkAshrrevI16 => m!(|a: Pk<i16>, b: Pk<i16>| -> Pk<i16> { both(a, b, |x, y| y >> (x & 15)) }),
        Packed::Dot2F32F16 => m!(|a: Pk<F16>, b: Pk<F16>, c: f32| -> f32 { dot2(a, b, c) }),
        Packed::Dot2F32Bf16 => m!(|a: Pk<Bf16>, b: Pk<Bf16>, c: f32| -> f32 { dot2_bf(a, b, c) }),
        Packed::Dot2F16F16 => m!(|a: Pk<F16>, b: Pk<F16>, c: F16| -> F16 { f32_to_f16(dot2(a, b, f16_to_f32(c))) }),
        Packed::Dot2Bf16Bf16 => m!(|a: Pk<Bf16>, b: Pk<Bf16>, c: Bf16| -> Bf16 { f32_to_bf16(dot2_bf(a, b, bf16_to_f32(c))) }),
        Packed::Dot2I32I16 => m!(|a: Pk<i16>, b: Pk<i16>, c: i32| -> i32 {
            (a.0 as i32 * b.0 as i32).wrapping_add(a.1 as i32 * b.1 as i32).wrapping_add(c)
        }),
        Packed::Dot2U32U16 => m!(|a: Pk<u16>, b: Pk<u16>, c: u32| -> u32 {
            (a.0 as u32 * b.0 as u32).wrapping_add(a.1 as u32 * b.1 as u32).wrapping_add(c)
        }),
        Packed::Dot4I32I8 => m!(|a: u32, b: u32, c: i32| -> i32 { dot4(a, b, c, s8, s8) }),
        Packed::Dot4U32U8 => m!(|a: u32, b: u32, c: i32| -> i32 { dot4(a, b, c, u8_, u8_) }),
        Packed::Dot8I32I4 => m!(|a: u32, b: u32, c: i32| -> i32 { dot8(a, b, c, s4, s4) }),
        Packed::Dot8U32U4 => m!(|a: u32, b: u32, c: i32| -> i32 { dot8(a, b, c, u4, u4) }),
        // with all operands unsigned; `dot_signs` has the others
        Packed::Dot4I32Iu8 => m!(|a: u32, b: u32, c: i32| -> i32 { dot4(a, b, c, u8_, u8_) }),
        Packed::Dot8I32Iu4 => m!(|a: u32, b: u32, c: i32| -> i32 { dot8(a, b, c, u4, u4) }),
    }
}
