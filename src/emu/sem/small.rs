//! 6-bit and 4-bit floats of the OCP Microscaling specification (MX v1.0, tables 3 to 5): no infinities, no NaN, largest
//! numbers 7.5 (fp6 e2m3), 28 (bf6 e3m2) and 6 (fp4 e2m1). Conversions to them saturate; of a NaN, which the
//! specification leaves open, they make the largest number.

/// A small format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Small {
    /// Exponent bits.
    exponent: u32,
    /// Mantissa bits.
    mantissa: u32,
}

/// 6 bits, 2 of them exponent.
pub const FP6: Small = Small { exponent: 2, mantissa: 3 };
/// 6 bits, 3 of them exponent.
pub const BF6: Small = Small { exponent: 3, mantissa: 2 };
/// 4 bits, 2 of them exponent.
pub const FP4: Small = Small { exponent: 2, mantissa: 1 };

impl Small {
    /// Bits of a number.
    pub fn bits(self) -> u32 {
        1 + self.exponent + self.mantissa
    }
    fn bias(self) -> i32 {
        (1 << (self.exponent - 1)) - 1
    }
    /// Value of a code, exact.
    pub fn decode(self, code: u8) -> f32 {
        let code = code as u32;
        let e = (code >> self.mantissa & ((1 << self.exponent) - 1)) as i32;
        let f = (code & ((1 << self.mantissa) - 1)) as f32 / (1 << self.mantissa) as f32;
        let v = if e == 0 { f * 2f32.powi(1 - self.bias()) } else { (1.0 + f) * 2f32.powi(e - self.bias()) };
        if code >> (self.bits() - 1) & 1 == 1 { -v } else { v }
    }
    /// Code of a number: to nearest even, or with `seed / 2^32` of the last place added and the rest cut off.
    pub fn encode(self, x: f64, seed: Option<u32>) -> u8 {
        let sign = (x.is_sign_negative() as u32) << (self.bits() - 1);
        let top = (1u32 << (self.bits() - 1)) - 1;
        if !x.is_finite() {
            return (sign | top) as u8;
        }
        let a = x.abs();
        let least = 1 - self.bias();
        let exponent = if a == 0.0 { least } else { (((a.to_bits() >> 52) as i32) - 1023).max(least) };
        let step = 2f64.powi(exponent - self.mantissa as i32);
        let q = match seed {
            None => (a / step).round_ties_even(),
            Some(s) => (a / step + s as f64 / 4294967296.0).floor(),
        };
        // Counting in steps of the last place runs on through the exponents.
        let code = q + ((exponent - least) << self.mantissa) as f64;
        (sign | code.min(top as f64) as u32) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_the_specification() {
        let all = |s: Small| (0..1u8 << (s.bits() - 1)).map(|c| s.decode(c)).collect::<Vec<f32>>();
        assert_eq!(all(FP4), [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]);
        assert_eq!(all(FP6)[..10], [0.0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1.0, 1.125]);
        assert_eq!((all(FP6)[31], all(BF6)[31], all(BF6)[1]), (7.5, 28.0, 0.0625));
        for s in [FP4, FP6, BF6] {
            for c in 0..1u8 << s.bits() {
                assert_eq!(s.encode(s.decode(c) as f64, None), c, "{s:?}");
            }
        }
        assert_eq!((FP4.encode(5.0, None), FP4.encode(2.5, None), FP4.encode(1e9, None)), (6, 4, 7));
        assert_eq!((FP4.encode(5.0, Some(0x7fff_ffff)), FP4.encode(5.0, Some(0x8000_0000))), (6, 7));
    }
}
