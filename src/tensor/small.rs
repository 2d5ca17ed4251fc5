//! Floats of 8 and 4 bits, as ONNX defines them: how many bits exponent and mantissa have and what the codes at the ends
//! mean. Host and kernels convert by the same description.

use super::DType;

/// What the codes that are no ordinary numbers mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// All exponent and mantissa bits set is NaN; there is no infinity.
    NanAtEnd,
    /// As in IEEE 754: the largest exponent is infinity (mantissa 0) or NaN.
    Ieee,
    /// Minus zero is NaN; there is no infinity.
    NanAtMinusZero,
    /// All codes are numbers; what is too large becomes the largest, NaN minus zero.
    None,
}

/// A float type of at most 8 bits with a sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmallFloat {
    /// Bits of the exponent.
    pub exponent: u32,
    /// Bits of the mantissa.
    pub mantissa: u32,
    /// What the exponent counts from.
    pub bias: i32,
    /// What is special.
    pub special: Special,
}

impl SmallFloat {
    /// The description of a type that is one.
    pub const fn of(t: DType) -> Option<SmallFloat> {
        let (exponent, mantissa, bias, special) = match t {
            DType::F8E4M3 => (4, 3, 7, Special::NanAtEnd),
            DType::F8E4M3Z => (4, 3, 8, Special::NanAtMinusZero),
            DType::F8E5M2 => (5, 2, 15, Special::Ieee),
            DType::F8E5M2Z => (5, 2, 16, Special::NanAtMinusZero),
            DType::F4E2M1 => (2, 1, 1, Special::None),
            _ => return None,
        };
        Some(SmallFloat { exponent, mantissa, bias, special })
    }

    /// The exponents of halves reach as far: moved to where a half has them, codes stand for numbers that are a power of two too small.
    pub const fn fits_halves(self) -> bool {
        self.bias <= 15
    }

    /// The sign's bit.
    pub const fn sign(self) -> u8 {
        1 << (self.exponent + self.mantissa)
    }

    /// The code of the largest number.
    pub const fn largest(self) -> u8 {
        let end = self.sign() - 1;
        match self.special {
            Special::NanAtEnd => end - 1,
            Special::Ieee => end - (1 << self.mantissa),
            Special::NanAtMinusZero | Special::None => end,
        }
    }

    /// The code of a NaN, where there is one.
    pub const fn nan(self) -> Option<u8> {
        match self.special {
            Special::NanAtEnd => Some(self.sign() - 1),
            Special::Ieee => Some(self.sign() - (1 << self.mantissa) + (1 << (self.mantissa - 1))),
            Special::NanAtMinusZero => Some(self.sign()),
            Special::None => None,
        }
    }

    /// What becomes of numbers beyond the largest.
    pub const fn overflow(self) -> u8 {
        match self.special {
            Special::NanAtEnd => self.sign() - 1,
            Special::Ieee => self.largest() + 1,
            Special::NanAtMinusZero => self.sign(),
            Special::None => self.largest(),
        }
    }

    /// The number that a code stands for.
    pub fn decode(self, code: u8) -> f64 {
        let sign = if code & self.sign() != 0 { -1.0 } else { 1.0 };
        let own = code & (self.sign() - 1);
        let (e, m) = ((own >> self.mantissa) as i32, (own & ((1 << self.mantissa) - 1)) as f64);
        match self.special {
            Special::NanAtEnd if own == self.sign() - 1 => return f64::NAN,
            Special::NanAtMinusZero if code == self.sign() => return f64::NAN,
            Special::Ieee if own > self.largest() + 1 => return f64::NAN,
            Special::Ieee if own == self.largest() + 1 => return sign * f64::INFINITY,
            _ => {}
        }
        let one = 2f64.powi(self.mantissa as i32);
        sign * if e == 0 { m / one * 2f64.powi(1 - self.bias) } else { (1.0 + m / one) * 2f64.powi(e - self.bias) }
    }

    /// The code nearest to a number, halves to even; beyond the largest it is [`SmallFloat::overflow`].
    pub fn encode(self, v: f64) -> u8 {
        let sign = if v.is_sign_negative() { self.sign() } else { 0 };
        if v.is_nan() {
            return match self.special {
                // The sign of a NaN stays where it can.
                Special::NanAtMinusZero => self.sign(),
                Special::None => self.sign(),
                _ => self.nan().unwrap_or(self.largest()) | sign,
            };
        }
        let a = v.abs();
        let own = if a.is_infinite() {
            self.overflow()
        } else {
            let least = 1 - self.bias;
            let e = if a == 0.0 { least } else { (a.log2().floor() as i32).max(least) };
            // The logarithm may be off by one next to a power of two.
            let e = if a < 2f64.powi(e) {
                (e - 1).max(least)
            } else if a >= 2f64.powi(e + 1) {
                e + 1
            } else {
                e
            };
            let q = (a / 2f64.powi(e - self.mantissa as i32)).round_ties_even() as i64;
            // q counts from 2^mantissa where the number is normal, and carries into the exponent by itself.
            let code = q + (((e - least) as i64) << self.mantissa);
            if code > self.largest() as i64 { self.overflow() } else { code as u8 }
        };
        match self.special {
            // There is no minus zero, and NaN has no sign.
            Special::NanAtMinusZero if own == 0 || own == self.sign() => own,
            _ => own | sign,
        }
    }
}

/// Powers of two from the code of an exponent, 255 is NaN.
pub fn decode_exponent(code: u8) -> f64 {
    if code == 255 { f64::NAN } else { 2f64.powi(code as i32 - 127) }
}

/// The code of the power of two nearest to a number, halves up; what has no sign loses it. Of denormals what is above the least power, 2^-127, is the next
/// one (ONNX's rounding "nearest").
pub fn encode_exponent(v: f64) -> u8 {
    if v.is_nan() || v.is_infinite() {
        return 255;
    }
    let a = v.abs() as f32;
    let bits = a.to_bits();
    let (e, m) = (bits >> 23, bits & 0x7f_ffff);
    let up = if e == 0 { m > 0x40_0000 } else { m >= 0x40_0000 };
    (e + u32::from(up)).min(254) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    const TYPES: [DType; 5] = [DType::F8E4M3, DType::F8E4M3Z, DType::F8E5M2, DType::F8E5M2Z, DType::F4E2M1];

    #[test]
    fn every_power_comes_back() {
        for code in 0..=254 {
            assert_eq!(encode_exponent(decode_exponent(code)), code);
        }
        assert_eq!([0.0, 1e-40, 6e-39, f64::NAN].map(encode_exponent), [0, 0, 1, 255]);
    }

    #[test]
    fn every_code_comes_back() {
        for t in TYPES {
            let f = SmallFloat::of(t).unwrap();
            for code in 0..=(f.sign() as u16 * 2 - 1) as u8 {
                let v = f.decode(code);
                if v.is_nan() {
                    assert!(f.decode(f.encode(v)).is_nan(), "{t} {code}");
                } else {
                    assert_eq!(f.encode(v), code, "{t} {v}");
                }
            }
        }
    }

    #[test]
    fn what_is_between_goes_to_the_nearest_even_code() {
        for t in TYPES {
            let f = SmallFloat::of(t).unwrap();
            for code in 0..f.largest() {
                let (a, b) = (f.decode(code), f.decode(code + 1));
                let even = if code % 2 == 0 { code } else { code + 1 };
                assert_eq!(f.encode((a + b) / 2.0), even, "{t} {a} {b}");
                assert_eq!(f.encode(a + (b - a) * 0.49), code);
                assert_eq!(f.encode(a + (b - a) * 0.51), code + 1);
            }
        }
    }

    #[test]
    fn the_ends_of_each_type() {
        let f = |t| SmallFloat::of(t).unwrap();
        assert_eq!(f(DType::F8E4M3).decode(f(DType::F8E4M3).largest()), 448.0);
        assert_eq!(f(DType::F8E5M2).decode(f(DType::F8E5M2).largest()), 57344.0);
        assert_eq!(f(DType::F8E4M3Z).decode(f(DType::F8E4M3Z).largest()), 240.0);
        assert_eq!(f(DType::F4E2M1).decode(f(DType::F4E2M1).largest()), 6.0);
        assert!(f(DType::F8E4M3).decode(f(DType::F8E4M3).encode(1e9)).is_nan());
        assert_eq!(f(DType::F8E5M2).decode(f(DType::F8E5M2).encode(-1e9)), f64::NEG_INFINITY);
        assert_eq!(f(DType::F4E2M1).decode(f(DType::F4E2M1).encode(-1e9)), -6.0);
        assert_eq!((encode_exponent(1.0), decode_exponent(127), encode_exponent(3.0)), (127, 1.0, 129));
    }
}
