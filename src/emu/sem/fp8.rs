//! 8-bit floats. gfx942 has AMD's FNUZ encodings (bias one larger, no infinity, one NaN: 0x80), gfx950 and gfx12 the
//! OCP ones (e4m3 without infinity, e5m2 with).

use super::{Sem, m};
use crate::lanes::{Lane, No, Pk};
use barewave_isa::action::Float8;

/// Mantissa bits of fp8 (e4m3).
pub const FP8: u32 = 3;
/// Mantissa bits of bf8 (e5m2).
pub const BF8: u32 = 2;

/// 8-bit float to single, exact.
pub fn decode(x: u8, mantissa: u32, fnuz: bool) -> f32 {
    let sign = if x & 0x80 != 0 { -1.0 } else { 1.0 };
    let (e, m) = (((x & 0x7f) >> mantissa) as i32, (x & ((1 << mantissa) - 1)) as f32);
    let top = (1 << (7 - mantissa)) - 1;
    if fnuz && x == 0x80 || !fnuz && mantissa == FP8 && x & 0x7f == 0x7f {
        return f32::NAN;
    }
    if !fnuz && mantissa == BF8 && e == top {
        return if m == 0.0 { sign * f32::INFINITY } else { f32::NAN };
    }
    let bias = bias(mantissa, fnuz);
    let fraction = m / (1 << mantissa) as f32;
    if e == 0 { sign * fraction * 2f32.powi(1 - bias) } else { sign * (1.0 + fraction) * 2f32.powi(e - bias) }
}

fn bias(mantissa: u32, fnuz: bool) -> i32 {
    (1 << (6 - mantissa)) - i32::from(!fnuz)
}

/// Largest finite number.
pub fn largest(mantissa: u32, fnuz: bool) -> f32 {
    let code = match (mantissa, fnuz) {
        (_, true) => 0x7f,
        (FP8, _) => 0x7e,
        _ => 0x7b,
    };
    decode(code, mantissa, fnuz)
}

/// Single to 8-bit float: to nearest even, or with `seed / 2^32` of the last place added and the rest cut off. Overflow
/// gives NaN, or infinity where there is one.
pub fn encode(x: f32, mantissa: u32, fnuz: bool, seed: Option<u32>) -> u8 {
    let nan = if fnuz { 0x80 } else { 0x7f };
    let sign = if x.is_sign_negative() { 0x80 } else { 0 };
    let overflow = if !fnuz && mantissa == BF8 { sign | 0x7c } else { nan };
    if x.is_nan() {
        return nan;
    }
    if x.is_infinite() {
        return overflow;
    }
    let a = x.abs() as f64;
    let bias = bias(mantissa, fnuz);
    let exponent = if a == 0.0 { 1 - bias } else { (((a.to_bits() >> 52) as i32) - 1023).max(1 - bias) };
    let step = 2f64.powi(exponent - mantissa as i32);
    let q = match seed {
        None => (a / step).round_ties_even(),
        Some(s) => (a / step + s as f64 / 4294967296.0).floor(),
    };
    if q * step > largest(mantissa, fnuz) as f64 {
        return overflow;
    }
    // Counting in steps of the last place runs on through the exponents.
    let code = q as i32 + ((exponent - (1 - bias)) << mantissa);
    let code = if exponent == 1 - bias { q as i32 } else { code };
    if code == 0 && fnuz { 0 } else { code as u8 | sign }
}

fn pair(a: f32, b: f32, mantissa: u32, fnuz: bool) -> u16 {
    encode(a, mantissa, fnuz, None) as u16 | (encode(b, mantissa, fnuz, None) as u16) << 8
}
fn dot(a: u32, b: u32, c: f32, ma: u32, mb: u32) -> f32 {
    (0..4).fold(c, |s, i| decode((a >> (8 * i)) as u8, ma, false).mul_add(decode((b >> (8 * i)) as u8, mb, false), s))
}

/// Semantics, for the encodings of a target.
#[rustfmt::skip]
pub fn of(f: Float8, fnuz: bool) -> Sem {
    match (f, fnuz) {
        (Float8::CvtF32Fp8, false) => m!(|a: u32| -> f32 { decode(a as u8, FP8, false) }),
        (Float8::CvtF32Fp8, true) => m!(|a: u32| -> f32 { decode(a as u8, FP8, true) }),
        (Float8::CvtF32Bf8, false) => m!(|a: u32| -> f32 { decode(a as u8, BF8, false) }),
        (Float8::CvtF32Bf8, true) => m!(|a: u32| -> f32 { decode(a as u8, BF8, true) }),
        (Float8::CvtPkF32Fp8, false) => m!(|a: u32| -> Pk<f32> { Pk(decode(a as u8, FP8, false), decode((a >> 8) as u8, FP8, false)) }),
        (Float8::CvtPkF32Fp8, true) => m!(|a: u32| -> Pk<f32> { Pk(decode(a as u8, FP8, true), decode((a >> 8) as u8, FP8, true)) }),
        (Float8::CvtPkF32Bf8, false) => m!(|a: u32| -> Pk<f32> { Pk(decode(a as u8, BF8, false), decode((a >> 8) as u8, BF8, false)) }),
        (Float8::CvtPkF32Bf8, true) => m!(|a: u32| -> Pk<f32> { Pk(decode(a as u8, BF8, true), decode((a >> 8) as u8, BF8, true)) }),
        (Float8::CvtPkFp8F32, false) => m!(|a: f32, b: f32| -> u16 { pair(a, b, FP8, false) }),
        (Float8::CvtPkFp8F32, true) => m!(|a: f32, b: f32| -> u16 { pair(a, b, FP8, true) }),
        (Float8::CvtPkBf8F32, false) => m!(|a: f32, b: f32| -> u16 { pair(a, b, BF8, false) }),
        (Float8::CvtPkBf8F32, true) => m!(|a: f32, b: f32| -> u16 { pair(a, b, BF8, true) }),
        (Float8::CvtSrFp8F32, false) => m!(|a: f32, b: u32| -> u32 { encode(a, FP8, false, Some(b)) as u32 }),
        (Float8::CvtSrFp8F32, true) => m!(|a: f32, b: u32| -> u32 { encode(a, FP8, true, Some(b)) as u32 }),
        (Float8::CvtSrBf8F32, false) => m!(|a: f32, b: u32| -> u32 { encode(a, BF8, false, Some(b)) as u32 }),
        (Float8::CvtSrBf8F32, true) => m!(|a: f32, b: u32| -> u32 { encode(a, BF8, true, Some(b)) as u32 }),
        (Float8::Dot4F32Fp8Fp8, _) => m!(|a: u32, b: u32, c: f32| -> f32 { dot(a, b, c, FP8, FP8) }),
        (Float8::Dot4F32Fp8Bf8, _) => m!(|a: u32, b: u32, c: f32| -> f32 { dot(a, b, c, FP8, BF8) }),
        (Float8::Dot4F32Bf8Fp8, _) => m!(|a: u32, b: u32, c: f32| -> f32 { dot(a, b, c, BF8, FP8) }),
        (Float8::Dot4F32Bf8Bf8, _) => m!(|a: u32, b: u32, c: f32| -> f32 { dot(a, b, c, BF8, BF8) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_survives() {
        for mantissa in [FP8, BF8] {
            for fnuz in [false, true] {
                for x in 0..=255u8 {
                    let v = decode(x, mantissa, fnuz);
                    let back = encode(v, mantissa, fnuz, None);
                    if v.is_nan() {
                        assert!(decode(back, mantissa, fnuz).is_nan());
                    } else {
                        assert_eq!(back, x, "{v} with {mantissa} mantissa bits");
                    }
                }
            }
        }
    }

    #[test]
    fn known_values_and_rounding() {
        // From the OCP 8-bit specification and AMD's CDNA3 manual.
        assert_eq!((decode(0x7e, FP8, false), decode(0x7f, FP8, true)), (448.0, 240.0));
        assert_eq!((decode(0x7b, BF8, false), decode(0x7f, BF8, true)), (57344.0, 57344.0));
        assert_eq!((decode(1, FP8, false), decode(1, FP8, true)), (2f32.powi(-9), 2f32.powi(-10)));
        assert_eq!((encode(1.0, FP8, false, None), encode(1.0, FP8, true, None)), (0x38, 0x40));
        // Ties go to even: 1.0625 lies between 1.0 and 1.125.
        assert_eq!((encode(1.0625, FP8, false, None), encode(1.1875, FP8, false, None)), (0x38, 0x3a));
        assert_eq!((encode(1e9, FP8, false, None), encode(1e9, BF8, false, None)), (0x7f, 0x7c));
        assert_eq!((encode(-1e9, BF8, true, None), encode(-0.0, FP8, true, None)), (0x80, 0));
        // Stochastic rounding: the seed decides in proportion.
        assert_eq!(encode(1.0625, FP8, false, Some(0x7000_0000)), 0x38);
        assert_eq!(encode(1.0625, FP8, false, Some(0x9000_0000)), 0x39);
    }
}
