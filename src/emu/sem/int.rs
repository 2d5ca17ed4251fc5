//! Integer, bit and move instructions.
//!
//! Source: VOP1, VOP2 and VOP3 pseudocode of the "Vega", "RDNA2" and "RDNA3" manuals.

use super::{Sem, c, m};
use crate::lanes::{Lane, No, Pk};

#[inline(always)]
fn i24(x: u32) -> i32 {
    ((x << 8) as i32) >> 8
}
#[inline(always)]
fn u24(x: u32) -> u32 {
    x & 0xff_ffff
}
#[inline(always)]
fn byte(x: u32, n: u32) -> u32 {
    x >> (8 * n) & 0xff
}
#[inline(always)]
fn sad8(a: u32, b: u32) -> u32 {
    byte(a, 0).abs_diff(byte(b, 0))
        + byte(a, 1).abs_diff(byte(b, 1))
        + byte(a, 2).abs_diff(byte(b, 2))
        + byte(a, 3).abs_diff(byte(b, 3))
}
/// SAD that skips reference bytes of zero.
#[inline(always)]
fn msad8(a: u32, b: u32) -> u32 {
    let mut sum = 0;
    for i in 0..4 {
        sum += if byte(b, i) == 0 { 0 } else { byte(a, i).abs_diff(byte(b, i)) };
    }
    sum
}
/// V_PERM_B32: selects bytes of `{a, b}`, sign replications and constants.
#[inline(always)]
fn perm(a: u32, b: u32, sel: u32) -> u32 {
    let data = b as u64 | (a as u64) << 32;
    let mut out = 0;
    for i in 0..4 {
        let s = sel >> (8 * i) & 0xff;
        let v = match s {
            0..8 => (data >> (8 * s)) as u32 & 0xff,
            8..12 => {
                let sign = data >> (16 * (s - 8) + 15) & 1;
                if sign != 0 { 0xff } else { 0 }
            }
            12 => 0,
            _ => 0xff,
        };
        out |= v << (8 * i);
    }
    out
}
#[inline(always)]
fn med3<T: Ord + Copy>(a: T, b: T, c: T) -> T {
    a.min(b).max(a.max(b).min(c))
}
#[inline(always)]
fn bfe_u(a: u32, b: u32, c: u32) -> u32 {
    let (offset, width) = (b & 31, c & 31);
    a >> offset & ((1u32 << width).wrapping_sub(1))
}
#[inline(always)]
fn bfe_i(a: u32, b: u32, c: u32) -> u32 {
    let (offset, width) = (b & 31, c & 31);
    if width == 0 {
        0
    } else if offset + width < 32 {
        ((a << (32 - offset - width)) as i32 >> (32 - width)) as u32
    } else {
        (a as i32 >> offset) as u32
    }
}
/// Bitwise function given by its truth table (V_BITOP3).
#[inline(always)]
fn qsad(a: u64, b: u32, c: u64, f: fn(u32, u32) -> u32) -> u64 {
    let mut out = 0;
    for i in 0..4 {
        let s = f((a >> (8 * i)) as u32, b) + ((c >> (16 * i)) as u32 & 0xffff);
        out |= ((s & 0xffff) as u64) << (16 * i);
    }
    out
}

/// Which of four shader engines a rectangle of 32-pixel tiles covers (V_SCREEN_PARTITION_4SE_B32): operand bits 7:6 and
/// 5:4 are the first tile's x and y, 3:2 and 1:0 the last one's, modulo 4; tile (x, y) belongs to engine
/// {x[0] ^ y[1], y[0] ^ x[1]}.
fn screen_partition(a: u32) -> u32 {
    let range =
        |from: u32, to: u32| (0..4).map(move |i| (from + i) & 3).take(((to.wrapping_sub(from) & 3) + 1) as usize);
    let mut engines = 0;
    for x in range(a >> 6 & 3, a >> 2 & 3) {
        for y in range(a >> 4 & 3, a & 3) {
            engines |= 1 << ((x & 1 ^ y >> 1) << 1 | (y & 1 ^ x >> 1));
        }
    }
    engines
}

/// Semantics by name.
pub fn find(name: &str) -> Option<Sem> {
    Some(match name {
        "v_mov_b32" | "v_accvgpr_read_b32" | "v_accvgpr_write_b32" | "v_accvgpr_mov_b32" => m!(|a: u32| -> u32 { a }),
        "v_screen_partition_4se_b32" => m!(|a: u32| -> u32 { screen_partition(a) }),
        "v_mov_b64" => m!(|a: u64| -> u64 { a }),
        "v_mov_b16" => m!(|a: u16| -> u16 { a }),
        "v_not_b32" => m!(|a: u32| -> u32 { !a }),
        "v_not_b16" => m!(|a: u16| -> u16 { !a }),
        "v_and_b32" => m!(|a: u32, b: u32| -> u32 { a & b }),
        "v_or_b32" => m!(|a: u32, b: u32| -> u32 { a | b }),
        "v_xor_b32" => m!(|a: u32, b: u32| -> u32 { a ^ b }),
        "v_xnor_b32" => m!(|a: u32, b: u32| -> u32 { !(a ^ b) }),
        "v_and_b16" => m!(|a: u16, b: u16| -> u16 { a & b }),
        "v_or_b16" => m!(|a: u16, b: u16| -> u16 { a | b }),
        "v_xor_b16" => m!(|a: u16, b: u16| -> u16 { a ^ b }),
        "v_and_or_b32" => m!(|a: u32, b: u32, c: u32| -> u32 { a & b | c }),
        "v_or3_b32" => m!(|a: u32, b: u32, c: u32| -> u32 { a | b | c }),
        "v_xor3_b32" => m!(|a: u32, b: u32, c: u32| -> u32 { a ^ b ^ c }),
        "v_lshl_or_b32" => m!(|a: u32, b: u32, c: u32| -> u32 { a << (b & 31) | c }),
        "v_lshl_add_u32" => m!(|a: u32, b: u32, c: u32| -> u32 { (a << (b & 31)).wrapping_add(c) }),
        "v_add_lshl_u32" => m!(|a: u32, b: u32, c: u32| -> u32 { a.wrapping_add(b) << (c & 31) }),
        "v_add3_u32" => m!(|a: u32, b: u32, c: u32| -> u32 { a.wrapping_add(b).wrapping_add(c) }),
        "v_xad_u32" => m!(|a: u32, b: u32, c: u32| -> u32 { (a ^ b).wrapping_add(c) }),
        "v_bfi_b32" => m!(|a: u32, b: u32, c: u32| -> u32 { a & b | !a & c }),
        "v_bfe_u32" => m!(|a: u32, b: u32, c: u32| -> u32 { bfe_u(a, b, c) }),
        "v_bfe_i32" => m!(|a: u32, b: u32, c: u32| -> u32 { bfe_i(a, b, c) }),
        "v_bfm_b32" => m!(|a: u32, b: u32| -> u32 { (1u32 << (a & 31)).wrapping_sub(1) << (b & 31) }),
        "v_bfrev_b32" => m!(|a: u32| -> u32 { a.reverse_bits() }),
        "v_ffbh_u32" => m!(|a: u32| -> u32 { if a == 0 { u32::MAX } else { a.leading_zeros() } }),
        "v_ffbl_b32" => m!(|a: u32| -> u32 { if a == 0 { u32::MAX } else { a.trailing_zeros() } }),
        "v_ffbh_i32" => m!(|a: i32| -> u32 {
            let x = a ^ (a >> 31);
            if x == 0 { u32::MAX } else { x.leading_zeros() }
        }),
        "v_bcnt_u32_b32" => m!(|a: u32, b: u32| -> u32 { a.count_ones().wrapping_add(b) }),
        "v_lshlrev_b32" => m!(|a: u32, b: u32| -> u32 { b << (a & 31) }),
        "v_lshrrev_b32" => m!(|a: u32, b: u32| -> u32 { b >> (a & 31) }),
        "v_ashrrev_i32" => m!(|a: u32, b: i32| -> i32 { b >> (a & 31) }),
        "v_lshl_b32" => m!(|a: u32, b: u32| -> u32 { a << (b & 31) }),
        "v_lshr_b32" => m!(|a: u32, b: u32| -> u32 { a >> (b & 31) }),
        "v_lshlrev_b16" => m!(|a: u16, b: u16| -> u16 { b << (a & 15) }),
        "v_lshrrev_b16" => m!(|a: u16, b: u16| -> u16 { b >> (a & 15) }),
        "v_ashrrev_i16" => m!(|a: u16, b: i16| -> i16 { b >> (a & 15) }),
        "v_lshlrev_b64" => m!(|a: u32, b: u64| -> u64 { b << (a & 63) }),
        "v_lshrrev_b64" => m!(|a: u32, b: u64| -> u64 { b >> (a & 63) }),
        "v_ashrrev_i64" => m!(|a: u32, b: i64| -> i64 { b >> (a & 63) }),
        "v_lshl_add_u64" => m!(|a: u64, b: u32, c: u64| -> u64 { (a << (b & 7)).wrapping_add(c) }),
        "v_add_nc_u64" => m!(|a: u64, b: u64| -> u64 { a.wrapping_add(b) }),
        "v_sub_nc_u64" => m!(|a: u64, b: u64| -> u64 { a.wrapping_sub(b) }),
        "v_mul_u64" => m!(|a: u64, b: u64| -> u64 { a.wrapping_mul(b) }),
        "v_add_u32" => m!(|a: u32, b: u32| -> u32 { a.wrapping_add(b) }),
        "v_sub_u32" => m!(|a: u32, b: u32| -> u32 { a.wrapping_sub(b) }),
        "v_subrev_u32" => m!(|a: u32, b: u32| -> u32 { b.wrapping_sub(a) }),
        "v_add_i32" => m!(|a: i32, b: i32| -> i32 { a.wrapping_add(b) }),
        "v_sub_i32" => m!(|a: i32, b: i32| -> i32 { a.wrapping_sub(b) }),
        "v_add_u16" => m!(|a: u16, b: u16| -> u16 { a.wrapping_add(b) }),
        "v_sub_u16" => m!(|a: u16, b: u16| -> u16 { a.wrapping_sub(b) }),
        "v_subrev_u16" => m!(|a: u16, b: u16| -> u16 { b.wrapping_sub(a) }),
        "v_add_i16" => m!(|a: i16, b: i16| -> i16 { a.wrapping_add(b) }),
        "v_sub_i16" => m!(|a: i16, b: i16| -> i16 { a.wrapping_sub(b) }),
        "v_mul_lo_u16" => m!(|a: u16, b: u16| -> u16 { a.wrapping_mul(b) }),
        "v_mad_u16" | "v_mad_legacy_u16" => {
            m!(|a: u16, b: u16, c: u16| -> u16 { a.wrapping_mul(b).wrapping_add(c) })
        }
        "v_mad_i16" | "v_mad_legacy_i16" => {
            m!(|a: i16, b: i16, c: i16| -> i16 { a.wrapping_mul(b).wrapping_add(c) })
        }
        "v_mad_u32_u16" => m!(|a: u16, b: u16, c: u32| -> u32 { (a as u32 * b as u32).wrapping_add(c) }),
        "v_mad_i32_i16" => m!(|a: i16, b: i16, c: i32| -> i32 { (a as i32 * b as i32).wrapping_add(c) }),
        "v_mul_lo_u32" | "v_mul_lo_i32" => m!(|a: u32, b: u32| -> u32 { a.wrapping_mul(b) }),
        "v_mul_hi_u32" => m!(|a: u32, b: u32| -> u32 { ((a as u64 * b as u64) >> 32) as u32 }),
        "v_mul_hi_i32" => m!(|a: i32, b: i32| -> i32 { ((a as i64 * b as i64) >> 32) as i32 }),
        "v_mul_u32_u24" => m!(|a: u32, b: u32| -> u32 { u24(a).wrapping_mul(u24(b)) }),
        "v_mul_i32_i24" => m!(|a: u32, b: u32| -> i32 { i24(a).wrapping_mul(i24(b)) }),
        "v_mul_hi_u32_u24" => m!(|a: u32, b: u32| -> u32 { ((u24(a) as u64 * u24(b) as u64) >> 32) as u32 }),
        "v_mul_hi_i32_i24" => m!(|a: u32, b: u32| -> i32 { ((i24(a) as i64 * i24(b) as i64) >> 32) as i32 }),
        "v_mad_u32_u24" => m!(|a: u32, b: u32, c: u32| -> u32 { u24(a).wrapping_mul(u24(b)).wrapping_add(c) }),
        "v_mad_i32_i24" => m!(|a: u32, b: u32, c: i32| -> i32 { i24(a).wrapping_mul(i24(b)).wrapping_add(c) }),
        "v_mad_u32" => m!(|a: u32, b: u32, c: u32| -> u32 { a.wrapping_mul(b).wrapping_add(c) }),
        "v_mad_nc_u64_u32" => m!(|a: u32, b: u32, c: u64| -> u64 { (a as u64 * b as u64).wrapping_add(c) }),
        "v_mad_nc_i64_i32" => m!(|a: i32, b: i32, c: i64| -> i64 { (a as i64 * b as i64).wrapping_add(c) }),
        "v_mad_u64_u32" => {
            c!(BitOut, |a: u32, b: u32, c: u64, _bit| -> u64 { (a as u64 * b as u64).overflowing_add(c) })
        }
        "v_mad_i64_i32" => {
            c!(BitOut, |a: i32, b: i32, c: i64, _bit| -> i64 { (a as i64 * b as i64).overflowing_add(c) })
        }
        "v_min_u32" => m!(|a: u32, b: u32| -> u32 { a.min(b) }),
        "v_max_u32" => m!(|a: u32, b: u32| -> u32 { a.max(b) }),
        "v_min_i32" => m!(|a: i32, b: i32| -> i32 { a.min(b) }),
        "v_max_i32" => m!(|a: i32, b: i32| -> i32 { a.max(b) }),
        "v_min_u64" => m!(|a: u64, b: u64| -> u64 { a.min(b) }),
        "v_max_u64" => m!(|a: u64, b: u64| -> u64 { a.max(b) }),
        "v_min_i64" => m!(|a: i64, b: i64| -> i64 { a.min(b) }),
        "v_max_i64" => m!(|a: i64, b: i64| -> i64 { a.max(b) }),
        "v_min_u16" => m!(|a: u16, b: u16| -> u16 { a.min(b) }),
        "v_max_u16" => m!(|a: u16, b: u16| -> u16 { a.max(b) }),
        "v_min_i16" => m!(|a: i16, b: i16| -> i16 { a.min(b) }),
        "v_max_i16" => m!(|a: i16, b: i16| -> i16 { a.max(b) }),
        "v_min3_u32" => m!(|a: u32, b: u32, c: u32| -> u32 { a.min(b).min(c) }),
        "v_max3_u32" => m!(|a: u32, b: u32, c: u32| -> u32 { a.max(b).max(c) }),
        "v_med3_u32" => m!(|a: u32, b: u32, c: u32| -> u32 { med3(a, b, c) }),
        "v_min3_i32" => m!(|a: i32, b: i32, c: i32| -> i32 { a.min(b).min(c) }),
        "v_max3_i32" => m!(|a: i32, b: i32, c: i32| -> i32 { a.max(b).max(c) }),
        "v_med3_i32" => m!(|a: i32, b: i32, c: i32| -> i32 { med3(a, b, c) }),
        "v_min3_u16" => m!(|a: u16, b: u16, c: u16| -> u16 { a.min(b).min(c) }),
        "v_max3_u16" => m!(|a: u16, b: u16, c: u16| -> u16 { a.max(b).max(c) }),
        "v_med3_u16" => m!(|a: u16, b: u16, c: u16| -> u16 { med3(a, b, c) }),
        "v_min3_i16" => m!(|a: i16, b: i16, c: i16| -> i16 { a.min(b).min(c) }),
        "v_max3_i16" => m!(|a: i16, b: i16, c: i16| -> i16 { a.max(b).max(c) }),
        "v_med3_i16" => m!(|a: i16, b: i16, c: i16| -> i16 { med3(a, b, c) }),
        "v_maxmin_u32" => m!(|a: u32, b: u32, c: u32| -> u32 { a.max(b).min(c) }),
        "v_minmax_u32" => m!(|a: u32, b: u32, c: u32| -> u32 { a.min(b).max(c) }),
        "v_maxmin_i32" => m!(|a: i32, b: i32, c: i32| -> i32 { a.max(b).min(c) }),
        "v_minmax_i32" => m!(|a: i32, b: i32, c: i32| -> i32 { a.min(b).max(c) }),
        "v_alignbit_b32" => {
            m!(|a: u32, b: u32, c: u32| -> u32 { ((a as u64) << 32 | b as u64).wrapping_shr(c & 31) as u32 })
        }
        "v_alignbyte_b32" => {
            m!(|a: u32, b: u32, c: u32| -> u32 { ((a as u64) << 32 | b as u64).wrapping_shr(8 * (c & 3)) as u32 })
        }
        "v_perm_b32" => m!(|a: u32, b: u32, c: u32| -> u32 { perm(a, b, c) }),
        "v_lerp_u8" => m!(|a: u32, b: u32, c: u32| -> u32 {
            let mut out = 0;
            for i in 0..4 {
                out |= ((byte(a, i) + byte(b, i) + (c >> (8 * i) & 1)) >> 1) << (8 * i);
            }
            out
        }),
        "v_sad_u8" => m!(|a: u32, b: u32, c: u32| -> u32 { sad8(a, b).wrapping_add(c) }),
        "v_sad_hi_u8" => m!(|a: u32, b: u32, c: u32| -> u32 { (sad8(a, b) << 16).wrapping_add(c) }),
        "v_sad_u16" => m!(|a: u32, b: u32, c: u32| -> u32 {
            ((a & 0xffff).abs_diff(b & 0xffff) + (a >> 16).abs_diff(b >> 16)).wrapping_add(c)
        }),
        "v_sad_u32" => m!(|a: u32, b: u32, c: u32| -> u32 { a.abs_diff(b).wrapping_add(c) }),
        "v_msad_u8" => m!(|a: u32, b: u32, c: u32| -> u32 { msad8(a, b).wrapping_add(c) }),
        "v_qsad_pk_u16_u8" => m!(|a: u64, b: u32, c: u64| -> u64 { qsad(a, b, c, sad8) }),
        "v_mqsad_pk_u16_u8" => m!(|a: u64, b: u32, c: u64| -> u64 { qsad(a, b, c, msad8) }),
        "v_sat_pk_u8_i16" => m!(|a: Pk<i16>| -> u32 { a.0.clamp(0, 255) as u32 | (a.1.clamp(0, 255) as u32) << 8 }),
        "v_cndmask_b32" => c!(BitIn, |a: u32, b: u32, _c: No, bit| -> u32 { (if bit { b } else { a }, false) }),
        "v_cndmask_b16" => c!(BitIn, |a: u16, b: u16, _c: No, bit| -> u16 { (if bit { b } else { a }, false) }),
        "v_add_co_u32" => c!(BitOut, |a: u32, b: u32, _c: No, _bit| -> u32 { a.overflowing_add(b) }),
        "v_sub_co_u32" => c!(BitOut, |a: u32, b: u32, _c: No, _bit| -> u32 { a.overflowing_sub(b) }),
        "v_subrev_co_u32" => c!(BitOut, |a: u32, b: u32, _c: No, _bit| -> u32 { b.overflowing_sub(a) }),
        "v_addc_co_u32" => c!(BitInOut, |a: u32, b: u32, _c: No, bit| -> u32 {
            let s = a as u64 + b as u64 + bit as u64;
            (s as u32, s >> 32 != 0)
        }),
        "v_subb_co_u32" => c!(BitInOut, |a: u32, b: u32, _c: No, bit| -> u32 {
            let s = (a as u64).wrapping_sub(b as u64).wrapping_sub(bit as u64);
            (s as u32, s >> 32 != 0)
        }),
        "v_subbrev_co_u32" => c!(BitInOut, |a: u32, b: u32, _c: No, bit| -> u32 {
            let s = (b as u64).wrapping_sub(a as u64).wrapping_sub(bit as u64);
            (s as u32, s >> 32 != 0)
        }),
        "v_prng_b32" => m!(|a: u32| -> u32 { a << 1 ^ if a >> 31 != 0 { 197 } else { 0 } }),
        "v_ashr_pk_i8_i32" => m!(|a: i32, b: i32, c: u32| -> u32 {
            let f = |x: i32| (x >> (c & 31)).clamp(-128, 127) as u8 as u32;
            f(a) | f(b) << 8
        }),
        "v_ashr_pk_u8_i32" => m!(|a: i32, b: i32, c: u32| -> u32 {
            let f = |x: i32| (x >> (c & 31)).clamp(0, 255) as u32;
            f(a) | f(b) << 8
        }),
        _ => return None,
    })
}

/// Saturating versions: integer instructions with the `clamp` modifier.
#[rustfmt::skip]
pub fn clamped(name: &str) -> Option<Sem> {
    Some(match name {
        "v_add_u32" => m!(|a: u32, b: u32| -> u32 { a.saturating_add(b) }),
        "v_sub_u32" => m!(|a: u32, b: u32| -> u32 { a.saturating_sub(b) }),
        "v_subrev_u32" => m!(|a: u32, b: u32| -> u32 { b.saturating_sub(a) }),
        "v_add_i32" => m!(|a: i32, b: i32| -> i32 { a.saturating_add(b) }),
        "v_sub_i32" => m!(|a: i32, b: i32| -> i32 { a.saturating_sub(b) }),
        "v_add_u16" => m!(|a: u16, b: u16| -> u16 { a.saturating_add(b) }),
        "v_sub_u16" => m!(|a: u16, b: u16| -> u16 { a.saturating_sub(b) }),
        "v_subrev_u16" => m!(|a: u16, b: u16| -> u16 { b.saturating_sub(a) }),
        "v_add_i16" => m!(|a: i16, b: i16| -> i16 { a.saturating_add(b) }),
        "v_sub_i16" => m!(|a: i16, b: i16| -> i16 { a.saturating_sub(b) }),
        "v_mad_u16" => m!(|a: u16, b: u16, c: u16| -> u16 { (a as u64 * b as u64 + c as u64).min(0xffff) as u16 }),
        "v_mad_i16" => m!(|a: i16, b: i16, c: i16| -> i16 { (a as i64 * b as i64 + c as i64).clamp(-32768, 32767) as i16 }),
        "v_mad_u32_u24" => m!(|a: u32, b: u32, c: u32| -> u32 { (u24(a) as u64 * u24(b) as u64 + c as u64).min(u32::MAX as u64) as u32 }),
        "v_mad_i32_i24" => m!(|a: u32, b: u32, c: i32| -> i32 {
            (i24(a) as i64 * i24(b) as i64 + c as i64).clamp(i32::MIN as i64, i32::MAX as i64) as i32
        }),
        "v_mad_u32_u16" => m!(|a: u16, b: u16, c: u32| -> u32 { (a as u64 * b as u64 + c as u64).min(u32::MAX as u64) as u32 }),
        "v_mad_i32_i16" => m!(|a: i16, b: i16, c: i32| -> i32 {
            (a as i64 * b as i64 + c as i64).clamp(i32::MIN as i64, i32::MAX as i64) as i32
        }),
        "v_pk_add_u16" => m!(|a: Pk<u16>, b: Pk<u16>| -> Pk<u16> { Pk(a.0.saturating_add(b.0), a.1.saturating_add(b.1)) }),
        "v_pk_sub_u16" => m!(|a: Pk<u16>, b: Pk<u16>| -> Pk<u16> { Pk(a.0.saturating_sub(b.0), a.1.saturating_sub(b.1)) }),
        "v_pk_add_i16" => m!(|a: Pk<i16>, b: Pk<i16>| -> Pk<i16> { Pk(a.0.saturating_add(b.0), a.1.saturating_add(b.1)) }),
        "v_pk_sub_i16" => m!(|a: Pk<i16>, b: Pk<i16>| -> Pk<i16> { Pk(a.0.saturating_sub(b.0), a.1.saturating_sub(b.1)) }),
        "v_sad_u8" => m!(|a: u32, b: u32, c: u32| -> u32 { sad8(a, b).saturating_add(c) }),
        "v_sad_u16" => m!(|a: u32, b: u32, c: u32| -> u32 {
            ((a & 0xffff).abs_diff(b & 0xffff) + (a >> 16).abs_diff(b >> 16)).saturating_add(c)
        }),
        "v_sad_u32" => m!(|a: u32, b: u32, c: u32| -> u32 { a.abs_diff(b).saturating_add(c) }),
        _ => return None,
    })
}
