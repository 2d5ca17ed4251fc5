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
fn s8(x: u32, i: u32) -> i32 {
    (x >> (8 * i)) as u8 as i8 as i32
}
#[inline(always)]
fn u8_(x: u32, i: u32) -> i32 {
    (x >> (8 * i)) as u8 as i32
}
#[inline(always)]
fn s4(x: u32, i: u32) -> i32 {
    ((x >> (4 * i) << 28) as i32) >> 28
}
#[inline(always)]
fn u4(x: u32, i: u32) -> i32 {
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
pub fn dot_signs(name: &str, signed: [bool; 2]) -> Option<Sem> {
    Some(match (name, signed) {
        ("v_dot4_i32_iu8", [false, false]) => m!(|a: u32, b: u32, c: i32| -> i32 { dot4(a, b, c, u8_, u8_) }),
        ("v_dot4_i32_iu8", [true, false]) => m!(|a: u32, b: u32, c: i32| -> i32 { dot4(a, b, c, s8, u8_) }),
        ("v_dot4_i32_iu8", [false, true]) => m!(|a: u32, b: u32, c: i32| -> i32 { dot4(a, b, c, u8_, s8) }),
        ("v_dot4_i32_iu8", [true, true]) => m!(|a: u32, b: u32, c: i32| -> i32 { dot4(a, b, c, s8, s8) }),
        ("v_dot8_i32_iu4", [false, false]) => m!(|a: u32, b: u32, c: i32| -> i32 { dot8(a, b, c, u4, u4) }),
        ("v_dot8_i32_iu4", [true, false]) => m!(|a: u32, b: u32, c: i32| -> i32 { dot8(a, b, c, s4, u4) }),
        ("v_dot8_i32_iu4", [false, true]) => m!(|a: u32, b: u32, c: i32| -> i32 { dot8(a, b, c, u4, s4) }),
        ("v_dot8_i32_iu4", [true, true]) => m!(|a: u32, b: u32, c: i32| -> i32 { dot8(a, b, c, s4, s4) }),
        _ => return None,
    })
}

/// Semantics by name.
#[rustfmt::skip]
pub fn find(name: &str) -> Option<Sem> {
    Some(match name {
        "v_pk_add_f16" => m!(|a: Pk<F16>, b: Pk<F16>| -> Pk<F16> { h(a, b, |x, y| x + y) }),
        "v_pk_mul_f16" => m!(|a: Pk<F16>, b: Pk<F16>| -> Pk<F16> { h(a, b, |x, y| x * y) }),
        "v_pk_min_f16" => m!(|a: Pk<F16>, b: Pk<F16>| -> Pk<F16> { h(a, b, min_num) }),
        "v_pk_max_f16" => m!(|a: Pk<F16>, b: Pk<F16>| -> Pk<F16> { h(a, b, max_num) }),
        "v_pk_minimum_f16" => m!(|a: Pk<F16>, b: Pk<F16>| -> Pk<F16> { h(a, b, minimum) }),
        "v_pk_maximum_f16" => m!(|a: Pk<F16>, b: Pk<F16>| -> Pk<F16> { h(a, b, maximum) }),
        "v_pk_minimum3_f16" => m!(|a: Pk<F16>, b: Pk<F16>, c: Pk<F16>| -> Pk<F16> { h(h(a, b, minimum), c, minimum) }),
        "v_pk_maximum3_f16" => m!(|a: Pk<F16>, b: Pk<F16>, c: Pk<F16>| -> Pk<F16> { h(h(a, b, maximum), c, maximum) }),
        "v_pk_fma_f16" | "v_pk_fmac_f16" => m!(|a: Pk<F16>, b: Pk<F16>, c: Pk<F16>| -> Pk<F16> { both3(a, b, c, fma16) }),
        "v_pk_add_bf16" => m!(|a: Pk<Bf16>, b: Pk<Bf16>| -> Pk<Bf16> { bf2(a, b, |x, y| x + y) }),
        "v_pk_mul_bf16" => m!(|a: Pk<Bf16>, b: Pk<Bf16>| -> Pk<Bf16> { bf2(a, b, |x, y| x * y) }),
        "v_pk_min_num_bf16" => m!(|a: Pk<Bf16>, b: Pk<Bf16>| -> Pk<Bf16> { bf2(a, b, min_num) }),
        "v_pk_max_num_bf16" => m!(|a: Pk<Bf16>, b: Pk<Bf16>| -> Pk<Bf16> { bf2(a, b, max_num) }),
        "v_pk_add_f32" => m!(|a: Pk<f32>, b: Pk<f32>| -> Pk<f32> { both(a, b, |x, y| x + y) }),
        "v_pk_mul_f32" => m!(|a: Pk<f32>, b: Pk<f32>| -> Pk<f32> { both(a, b, |x, y| x * y) }),
        "v_pk_fma_f32" => m!(|a: Pk<f32>, b: Pk<f32>, c: Pk<f32>| -> Pk<f32> { both3(a, b, c, fma) }),
        // op_sel alone chooses: bit 0 of the first source, bit 1 of the second.
        "v_pk_mov_b32" => m!(|a: Pk<f32>, b: Pk<f32>| -> Pk<f32> { Pk(a.0, b.0) }).raw(),
        "v_pk_add_u16" => m!(|a: Pk<u16>, b: Pk<u16>| -> Pk<u16> { both(a, b, u16::wrapping_add) }),
        "v_pk_add_i16" => m!(|a: Pk<i16>, b: Pk<i16>| -> Pk<i16> { both(a, b, i16::wrapping_add) }),
        "v_pk_sub_u16" => m!(|a: Pk<u16>, b: Pk<u16>| -> Pk<u16> { both(a, b, u16::wrapping_sub) }),
        "v_pk_sub_i16" => m!(|a: Pk<i16>, b: Pk<i16>| -> Pk<i16> { both(a, b, i16::wrapping_sub) }),
        "v_pk_mul_lo_u16" => m!(|a: Pk<u16>, b: Pk<u16>| -> Pk<u16> { both(a, b, u16::wrapping_mul) }),
        "v_pk_mad_u16" => m!(|a: Pk<u16>, b: Pk<u16>, c: Pk<u16>| -> Pk<u16> { both3(a, b, c, |x, y, z| x.wrapping_mul(y).wrapping_add(z)) }),
        "v_pk_mad_i16" => m!(|a: Pk<i16>, b: Pk<i16>, c: Pk<i16>| -> Pk<i16> { both3(a, b, c, |x, y, z| x.wrapping_mul(y).wrapping_add(z)) }),
        "v_pk_min_u16" => m!(|a: Pk<u16>, b: Pk<u16>| -> Pk<u16> { both(a, b, u16::min) }),
        "v_pk_max_u16" => m!(|a: Pk<u16>, b: Pk<u16>| -> Pk<u16> { both(a, b, u16::max) }),
        "v_pk_min_i16" => m!(|a: Pk<i16>, b: Pk<i16>| -> Pk<i16> { both(a, b, i16::min) }),
        "v_pk_max_i16" => m!(|a: Pk<i16>, b: Pk<i16>| -> Pk<i16> { both(a, b, i16::max) }),
        "v_pk_lshlrev_b16" => m!(|a: Pk<u16>, b: Pk<u16>| -> Pk<u16> { both(a, b, |x, y| y << (x & 15)) }),
        "v_pk_lshrrev_b16" => m!(|a: Pk<u16>, b: Pk<u16>| -> Pk<u16> { both(a, b, |x, y| y >> (x & 15)) }),
        "v_pk_ashrrev_i16" => m!(|a: Pk<i16>, b: Pk<i16>| -> Pk<i16> { both(a, b, |x, y| y >> (x & 15)) }),
        "v_dot2_f32_f16" | "v_dot2c_f32_f16" => m!(|a: Pk<F16>, b: Pk<F16>, c: f32| -> f32 { dot2(a, b, c) }),
        "v_dot2_f32_bf16" | "v_dot2c_f32_bf16" => m!(|a: Pk<Bf16>, b: Pk<Bf16>, c: f32| -> f32 { dot2_bf(a, b, c) }),
        "v_dot2_f16_f16" => m!(|a: Pk<F16>, b: Pk<F16>, c: F16| -> F16 { f32_to_f16(dot2(a, b, f16_to_f32(c))) }),
        "v_dot2_bf16_bf16" => m!(|a: Pk<Bf16>, b: Pk<Bf16>, c: Bf16| -> Bf16 { f32_to_bf16(dot2_bf(a, b, bf16_to_f32(c))) }),
        "v_dot2_i32_i16" | "v_dot2c_i32_i16" => m!(|a: Pk<i16>, b: Pk<i16>, c: i32| -> i32 {
            (a.0 as i32 * b.0 as i32).wrapping_add(a.1 as i32 * b.1 as i32).wrapping_add(c)
        }),
        "v_dot2_u32_u16" => m!(|a: Pk<u16>, b: Pk<u16>, c: u32| -> u32 {
            (a.0 as u32 * b.0 as u32).wrapping_add(a.1 as u32 * b.1 as u32).wrapping_add(c)
        }),
        "v_dot4_i32_i8" | "v_dot4c_i32_i8" => m!(|a: u32, b: u32, c: i32| -> i32 { dot4(a, b, c, s8, s8) }),
        "v_dot4_u32_u8" => m!(|a: u32, b: u32, c: i32| -> i32 { dot4(a, b, c, u8_, u8_) }),
        "v_dot8_i32_i4" | "v_dot8c_i32_i4" => m!(|a: u32, b: u32, c: i32| -> i32 { dot8(a, b, c, s4, s4) }),
        "v_dot8_u32_u4" => m!(|a: u32, b: u32, c: i32| -> i32 { dot8(a, b, c, u4, u4) }),
        "v_dot4_i32_iu8" | "v_dot8_i32_iu4" => dot_signs(name, [false, false])?,
        _ => return None,
    })
}
