//! Integer, bit and move instructions.
//!
//! Source: VOP1, VOP2 and VOP3 pseudocode of the "Vega", "RDNA2" and "RDNA3" manuals.

use super::{Sem, c, m};
use crate::lanes::{Lane, No, Pk};
use barewave_isa::action::Int;

#[inline(always)]
pub(super) fn i24(x: u32) -> i32 {
    ((x << 8) as i32) >> 8
}
#[inline(always)]
pub(super) fn u24(x: u32) -> u32 {
    x & 0xff_ffff
}
#[inline(always)]
fn byte(x: u32, n: u32) -> u32 {
    x >> (8 * n) & 0xff
}
#[inline(always)]
pub(super) fn sad8(a: u32, b: u32) -> u32 {
    byte(a, 0).abs_diff(byte(b, 0))
        + byte(a, 1).abs_diff(byte(b, 1))
        + byte(a, 2).abs_diff(byte(b, 2))
        + byte(a, 3).abs_diff(byte(b, 3))
}
/// SAD that skips reference bytes of zero.
#[inline(always)]
pub(super) fn msad8(a: u32, b: u32) -> u32 {
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

/// Semantics.
pub fn of(f: Int) -> Sem {
    match f {
        Int::MovB32 => m!(|a: u32| -> u32 { a }),
        Int::ScreenPartition4seB32 => m!(|a: u32| -> u32 { screen_partition(a) }),
        Int::MovB64 => m!(|a: u64| -> u64 { a }),
        Int::MovB16 => m!(|a: u16| -> u16 { a }),
        Int::NotB32 => m!(|a: u32| -> u32 { !a }),
        Int::NotB16 => m!(|a: u16| -> u16 { !a }),
        Int::AndB32 => m!(|a: u32, b: u32| -> u32 { a & b }),
        Int::OrB32 => m!(|a: u32, b: u32| -> u32 { a | b }),
        Int::XorB32 => m!(|a: u32, b: u32| -> u32 { a ^ b }),
        Int::XnorB32 => m!(|a: u32, b: u32| -> u32 { !(a ^ b) }),
        Int::AndB16 => m!(|a: u16, b: u16| -> u16 { a & b }),
        Int::OrB16 => m!(|a: u16, b: u16| -> u16 { a | b }),
        Int::XorB16 => m!(|a: u16, b: u16| -> u16 { a ^ b }),
        Int::AndOrB32 => m!(|a: u32, b: u32, c: u32| -> u32 { a & b | c }),
        Int::Or3B32 => m!(|a: u32, b: u32, c: u32| -> u32 { a | b | c }),
        Int::Xor3B32 => m!(|a: u32, b: u32, c: u32| -> u32 { a ^ b ^ c }),
        Int::LshlOrB32 => m!(|a: u32, b: u32, c: u32| -> u32 { a << (b & 31) | c }),
        Int::LshlAddU32 => m!(|a: u32, b: u32, c: u32| -> u32 { (a << (b & 31)).wrapping_add(c) }),
        Int::AddLshlU32 => m!(|a: u32, b: u32, c: u32| -> u32 { a.wrapping_add(b) << (c & 31) }),
        Int::Add3U32 => m!(|a: u32, b: u32, c: u32| -> u32 { a.wrapping_add(b).wrapping_add(c) }),
        Int::XadU32 => m!(|a: u32, b: u32, c: u32| -> u32 { (a ^ b).wrapping_add(c) }),
        Int::BfiB32 => m!(|a: u32, b: u32, c: u32| -> u32 { a & b | !a & c }),
        Int::BfeU32 => m!(|a: u32, b: u32, c: u32| -> u32 { bfe_u(a, b, c) }),
        Int::BfeI32 => m!(|a: u32, b: u32, c: u32| -> u32 { bfe_i(a, b, c) }),
        Int::BfmB32 => m!(|a: u32, b: u32| -> u32 { (1u32 << (a & 31)).wrapping_sub(1) << (b & 31) }),
        Int::BfrevB32 => m!(|a: u32| -> u32 { a.reverse_bits() }),
        Int::FfbhU32 => m!(|a: u32| -> u32 { if a == 0 { u32::MAX } else { a.leading_zeros() } }),
        Int::FfblB32 => m!(|a: u32| -> u32 { if a == 0 { u32::MAX } else { a.trailing_zeros() } }),
        Int::FfbhI32 => m!(|a: i32| -> u32 {
            let x = a ^ (a >> 31);
            if x == 0 { u32::MAX } else { x.leading_zeros() }
        }),
        Int::BcntU32B32 => m!(|a: u32, b: u32| -> u32 { a.count_ones().wrapping_add(b) }),
        Int::LshlrevB32 => m!(|a: u32, b: u32| -> u32 { b << (a & 31) }),
        Int::LshrrevB32 => m!(|a: u32, b: u32| -> u32 { b >> (a & 31) }),
        Int::AshrrevI32 => m!(|a: u32, b: i32| -> i32 { b >> (a & 31) }),
        Int::LshlrevB16 => m!(|a: u16, b: u16| -> u16 { b << (a & 15) }),
        Int::LshrrevB16 => m!(|a: u16, b: u16| -> u16 { b >> (a & 15) }),
        Int::AshrrevI16 => m!(|a: u16, b: i16| -> i16 { b >> (a & 15) }),
        Int::LshlrevB64 => m!(|a: u32, b: u64| -> u64 { b << (a & 63) }),
        Int::LshrrevB64 => m!(|a: u32, b: u64| -> u64 { b >> (a & 63) }),
        Int::AshrrevI64 => m!(|a: u32, b: i64| -> i64 { b >> (a & 63) }),
        Int::LshlAddU64 => m!(|a: u64, b: u32, c: u64| -> u64 { (a << (b & 7)).wrapping_add(c) }),
        Int::AddNcU64 => m!(|a: u64, b: u64| -> u64 { a.wrapping_add(b) }),
        Int::SubNcU64 => m!(|a: u64, b: u64| -> u64 { a.wrapping_sub(b) }),
        Int::MulU64 => m!(|a: u64, b: u64| -> u64 { a.wrapping_mul(b) }),
        Int::AddU32 => m!(|a: u32, b: u32| -> u32 { a.wrapping_add(b) }),
        Int::SubU32 => m!(|a: u32, b: u32| -> u32 { a.wrapping_sub(b) }),
        Int::SubrevU32 => m!(|a: u32, b: u32| -> u32 { b.wrapping_sub(a) }),
        Int::AddI32 => m!(|a: i32, b: i32| -> i32 { a.wrapping_add(b) }),
        Int::SubI32 => m!(|a: i32, b: i32| -> i32 { a.wrapping_sub(b) }),
        Int::AddU16 => m!(|a: u16, b: u16| -> u16 { a.wrapping_add(b) }),
        Int::SubU16 => m!(|a: u16, b: u16| -> u16 { a.wrapping_sub(b) }),
        Int::SubrevU16 => m!(|a: u16, b: u16| -> u16 { b.wrapping_sub(a) }),
        Int::AddI16 => m!(|a: i16, b: i16| -> i16 { a.wrapping_add(b) }),
        Int::SubI16 => m!(|a: i16, b: i16| -> i16 { a.wrapping_sub(b) }),
        Int::MulLoU16 => m!(|a: u16, b: u16| -> u16 { a.wrapping_mul(b) }),
        Int::MadU16 => {
            m!(|a: u16, b: u16, c: u16| -> u16 { a.wrapping_mul(b).wrapping_add(c) })
        }
        Int::MadI16 => {
            m!(|a: i16, b: i16, c: i16| -> i16 { a.wrapping_mul(b).wrapping_add(c) })
        }
        Int::MadU32U16 => m!(|a: u16, b: u16, c: u32| -> u32 { (a as u32 * b as u32).wrapping_add(c) }),
        Int::MadI32I16 => m!(|a: i16, b: i16, c: i32| -> i32 { (a as i32 * b as i32).wrapping_add(c) }),
        Int::MulLoU32 => m!(|a: u32, b: u32| -> u32 { a.wrapping_mul(b) }),
        Int::MulHiU32 => m!(|a: u32, b: u32| -> u32 { ((a as u64 * b as u64) >> 32) as u32 }),
        Int::MulHiI32 => m!(|a: i32, b: i32| -> i32 { ((a as i64 * b as i64) >> 32) as i32 }),
        Int::MulU32U24 => m!(|a: u32, b: u32| -> u32 { u24(a).wrapping_mul(u24(b)) }),
        Int::MulI32I24 => m!(|a: u32, b: u32| -> i32 { i24(a).wrapping_mul(i24(b)) }),
        Int::MulHiU32U24 => m!(|a: u32, b: u32| -> u32 { ((u24(a) as u64 * u24(b) as u64) >> 32) as u32 }),
        Int::MulHiI32I24 => m!(|a: u32, b: u32| -> i32 { ((i24(a) as i64 * i24(b) as i64) >> 32) as i32 }),
        Int::MadU32U24 => m!(|a: u32, b: u32, c: u32| -> u32 { u24(a).wrapping_mul(u24(b)).wrapping_add(c) }),
        Int::MadI32I24 => m!(|a: u32, b: u32, c: i32| -> i32 { i24(a).wrapping_mul(i24(b)).wrapping_add(c) }),
        Int::MadU32 => m!(|a: u32, b: u32, c: u32| -> u32 { a.wrapping_mul(b).wrapping_add(c) }),
        Int::MadNcU64U32 => m!(|a: u32, b: u32, c: u64| -> u64 { (a as u64 * b as u64).wrapping_add(c) }),
        Int::MadNcI64I32 => m!(|a: i32, b: i32, c: i64| -> i64 { (a as i64 * b as i64).wrapping_add(c) }),
        Int::MadU64U32 => {
            c!(BitOut, |a: u32, b: u32, c: u64, _bit| -> u64 { (a as u64 * b as u64).overflowing_add(c) })
        }
        Int::MadI64I32 => {
            c!(BitOut, |a: i32, b: i32, c: i64, _bit| -> i64 { (a as i64 * b as i64).overflowing_add(c) })
        }
        Int::MinU32 => m!(|a: u32, b: u32| -> u32 { a.min(b) }),
        Int::MaxU32 => m!(|a: u32, b: u32| -> u32 { a.max(b) }),
        Int::MinI32 => m!(|a: i32, b: i32| -> i32 { a.min(b) }),
        Int::MaxI32 => m!(|a: i32, b: i32| -> i32 { a.max(b) }),
        Int::MinU64 => m!(|a: u64, b: u64| -> u64 { a.min(b) }),
        Int::MaxU64 => m!(|a: u64, b: u64| -> u64 { a.max(b) }),
        Int::MinI64 => m!(|a: i64, b: i64| -> i64 { a.min(b) }),
        Int::MaxI64 => m!(|a: i64, b: i64| -> i64 { a.max(b) }),
        Int::MinU16 => m!(|a: u16, b: u16| -> u16 { a.min(b) }),
        Int::MaxU16 => m!(|a: u16, b: u16| -> u16 { a.max(b) }),
        Int::MinI16 => m!(|a: i16, b: i16| -> i16 { a.min(b) }),
        Int::MaxI16 => m!(|a: i16, b: i16| -> i16 { a.max(b) }),
        Int::Min3U32 => m!(|a: u32, b: u32, c: u32| -> u32 { a.min(b).min(c) }),
        Int::Max3U32 => m!(|a: u32, b: u32, c: u32| -> u32 { a.max(b).max(c) }),
        Int::Med3U32 => m!(|a: u32, b: u32, c: u32| -> u32 { med3(a, b, c) }),
        Int::Min3I32 => m!(|a: i32, b: i32, c: i32| -> i32 { a.min(b).min(c) }),
        Int::Max3I32 => m!(|a: i32, b: i32, c: i32| -> i32 { a.max(b).max(c) }),
        Int::Med3I32 => m!(|a: i32, b: i32, c: i32| -> i32 { med3(a, b, c) }),
        Int::Min3U16 => m!(|a: u16, b: u16, c: u16| -> u16 { a.min(b).min(c) }),
        Int::Max3U16 => m!(|a: u16, b: u16, c: u16| -> u16 { a.max(b).max(c) }),
        Int::Med3U16 => m!(|a: u16, b: u16, c: u16| -> u16 { med3(a, b, c) }),
        Int::Min3I16 => m!(|a: i16, b: i16, c: i16| -> i16 { a.min(b).min(c) }),
        Int::Max3I16 => m!(|a: i16, b: i16, c: i16| -> i16 { a.max(b).max(c) }),
        Int::Med3I16 => m!(|a: i16, b: i16, c: i16| -> i16 { med3(a, b, c) }),
        Int::MaxminU32 => m!(|a: u32, b: u32, c: u32| -> u32 { a.max(b).min(c) }),
        Int::MinmaxU32 => m!(|a: u32, b: u32, c: u32| -> u32 { a.min(b).max(c) }),
        Int::MaxminI32 => m!(|a: i32, b: i32, c: i32| -> i32 { a.max(b).min(c) }),
        Int::MinmaxI32 => m!(|a: i32, b: i32, c: i32| -> i32 { a.min(b).max(c) }),
        Int::AlignbitB32 => {
            m!(|a: u32, b: u32, c: u32| -> u32 { ((a as u64) << 32 | b as u64).wrapping_shr(c & 31) as u32 })
        }
        Int::AlignbyteB32 => {
            m!(|a: u32, b: u32, c: u32| -> u32 { ((a as u64) << 32 | b as u64).wrapping_shr(8 * (c & 3)) as u32 })
        }
        Int::PermB32 => m!(|a: u32, b: u32, c: u32| -> u32 { perm(a, b, c) }),
        Int::LerpU8 => m!(|a: u32, b: u32, c: u32| -> u32 {
            let mut out = 0;
            for i in 0..4 {
                out |= ((byte(a, i) + byte(b, i) + (c >> (8 * i) & 1)) >> 1) << (8 * i);
            }
            out
        }),
        Int::SadU8 => m!(|a: u32, b: u32, c: u32| -> u32 { sad8(a, b).wrapping_add(c) }),
        Int::SadHiU8 => m!(|a: u32, b: u32, c: u32| -> u32 { (sad8(a, b) << 16).wrapping_add(c) }),
        Int::SadU16 => m!(|a: u32, b: u32, c: u32| -> u32 {
            ((a & 0xffff).abs_diff(b & 0xffff) + (a >> 16).abs_diff(b >> 16)).wrapping_add(c)
        }),
        Int::SadU32 => m!(|a: u32, b: u32, c: u32| -> u32 { a.abs_diff(b).wrapping_add(c) }),
        Int::MsadU8 => m!(|a: u32, b: u32, c: u32| -> u32 { msad8(a, b).wrapping_add(c) }),
        Int::QsadPkU16U8 => m!(|a: u64, b: u32, c: u64| -> u64 { qsad(a, b, c, sad8) }),
        Int::MqsadPkU16U8 => m!(|a: u64, b: u32, c: u64| -> u64 { qsad(a, b, c, msad8) }),
        Int::SatPkU8I16 => m!(|a: Pk<i16>| -> u32 { a.0.clamp(0, 255) as u32 | (a.1.clamp(0, 255) as u32) << 8 }),
        Int::CndmaskB32 => c!(BitIn, |a: u32, b: u32, _c: No, bit| -> u32 { (if bit { b } else { a }, false) }),
        Int::CndmaskB16 => c!(BitIn, |a: u16, b: u16, _c: No, bit| -> u16 { (if bit { b } else { a }, false) }),
        Int::AddCoU32 => c!(BitOut, |a: u32, b: u32, _c: No, _bit| -> u32 { a.overflowing_add(b) }),
        Int::SubCoU32 => c!(BitOut, |a: u32, b: u32, _c: No, _bit| -> u32 { a.overflowing_sub(b) }),
        Int::SubrevCoU32 => c!(BitOut, |a: u32, b: u32, _c: No, _bit| -> u32 { b.overflowing_sub(a) }),
        Int::AddcCoU32 => c!(BitInOut, |a: u32, b: u32, _c: No, bit| -> u32 {
            let s = a as u64 + b as u64 + bit as u64;
            (s as u32, s >> 32 != 0)
        }),
        Int::SubbCoU32 => c!(BitInOut, |a: u32, b: u32, _c: No, bit| -> u32 {
            let s = (a as u64).wrapping_sub(b as u64).wrapping_sub(bit as u64);
            (s as u32, s >> 32 != 0)
        }),
        Int::SubbrevCoU32 => c!(BitInOut, |a: u32, b: u32, _c: No, bit| -> u32 {
            let s = (b as u64).wrapping_sub(a as u64).wrapping_sub(bit as u64);
            (s as u32, s >> 32 != 0)
        }),
        Int::PrngB32 => m!(|a: u32| -> u32 { a << 1 ^ if a >> 31 != 0 { 197 } else { 0 } }),
        Int::AshrPkI8I32 => m!(|a: i32, b: i32, c: u32| -> u32 {
            let f = |x: i32| (x >> (c & 31)).clamp(-128, 127) as u8 as u32;
            f(a) | f(b) << 8
        }),
        Int::AshrPkU8I32 => m!(|a: i32, b: i32, c: u32| -> u32 {
            let f = |x: i32| (x >> (c & 31)).clamp(0, 255) as u32;
            f(a) | f(b) << 8
        }),
    }
}
