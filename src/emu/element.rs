//! Data formats of typed buffer accesses: components of memory elements as registers hold them, and back.

use super::lanes::F16;
use super::numeric::*;
use barewave_isa::Target;

/// How a component's bits are a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Number {
    Unorm,
    Snorm,
    Uscaled,
    Sscaled,
    Uint,
    Sint,
    Float,
}

/// A data format: bits of x, y, z and w in order of address, and the kind of number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Format {
    /// Bits of x, y, z, w.
    pub bits: [u8; 4],
    /// What they are.
    pub number: Number,
}

impl Format {
    /// Parses `8_8_UNORM`. Sizes stand in order from the highest bit, so that x is the last; components of equal size
    /// read the same either way.
    pub fn parse(name: &str) -> Option<Format> {
        let (sizes, number) = name.rsplit_once('_')?;
        let number = match number {
            "UNORM" => Number::Unorm,
            "SNORM" => Number::Snorm,
            "USCALED" => Number::Uscaled,
            "SSCALED" => Number::Sscaled,
            "UINT" => Number::Uint,
            "SINT" => Number::Sint,
            "FLOAT" => Number::Float,
            _ => return None,
        };
        let mut bits = [0; 4];
        for (b, s) in bits.iter_mut().zip(sizes.split('_').rev()) {
            *b = s.parse().ok()?;
        }
        (bits[0] > 0).then_some(Format { bits, number })
    }
    /// Bytes of an element.
    pub fn bytes(&self) -> usize {
        self.bits.iter().map(|&b| b as usize).sum::<usize>() / 8
    }
    /// True for integers.
    pub fn integer(&self) -> bool {
        matches!(self.number, Number::Uint | Number::Sint)
    }
    /// Offset in bits of a component.
    fn at(&self, n: usize) -> usize {
        self.bits[..n].iter().map(|&b| b as usize).sum()
    }
    /// A component as the 32 bits that a register receives.
    pub fn load(&self, element: u128, n: usize) -> u32 {
        let bits = self.bits[n] as u32;
        if bits == 0 {
            let one = if self.integer() { 1 } else { 1f32.to_bits() };
            return if n == 3 { one } else { 0 };
        }
        let raw = (element >> self.at(n)) as u32 & ((1u64 << bits) - 1) as u32;
        let signed = ((raw << (32 - bits)) as i32) >> (32 - bits);
        let largest = |bits: u32| ((1u64 << bits) - 1) as f64;
        match self.number {
            Number::Uint => raw,
            Number::Sint => signed as u32,
            Number::Uscaled => (raw as f32).to_bits(),
            Number::Sscaled => (signed as f32).to_bits(),
            Number::Unorm => ((raw as f64 / largest(bits)) as f32).to_bits(),
            Number::Snorm => ((signed as f64 / largest(bits - 1)).max(-1.0) as f32).to_bits(),
            Number::Float => match bits {
                32 => raw,
                16 => f16_to_f32(F16(raw as u16)).to_bits(),
                // Unsigned floats with 5 bits of exponent: halves without sign and with a shorter mantissa.
                _ => f16_to_f32(F16((raw << (15 - bits)) as u16)).to_bits(),
            },
        }
    }
    /// The bits of a component for a register's value.
    pub fn store(&self, n: usize, value: u32) -> u128 {
        let bits = self.bits[n] as u32;
        if bits == 0 {
            return 0;
        }
        let f = f32::from_bits(value);
        let round = |x: f64| if x.is_nan() { 0.0 } else { x.round_ties_even() };
        let top = ((1u64 << bits) - 1) as f64;
        let half = ((1u64 << (bits - 1)) - 1) as f64;
        let raw = match self.number {
            Number::Uint => (value as u64).min(top as u64),
            Number::Sint => (value as i32 as i64).clamp(-(half as i64) - 1, half as i64) as u64,
            Number::Uscaled => round((f as f64).clamp(0.0, top)) as u64,
            Number::Sscaled => round((f as f64).clamp(-half - 1.0, half)) as i64 as u64,
            Number::Unorm => round((f as f64).clamp(0.0, 1.0) * top) as u64,
            Number::Snorm => round((f as f64).clamp(-1.0, 1.0) * half) as i64 as u64,
            Number::Float => match bits {
                32 => value as u64,
                16 => f32_to_f16(f).0 as u64,
                _ => {
                    // Toward zero; negative numbers become zero.
                    let h = if f < 0.0 { 0 } else { f32_to_f16_rtz(f).0 & 0x7fff };
                    (h >> (15 - bits)) as u64
                }
            },
        };
        ((raw & ((1u128 << bits) - 1) as u64) as u128) << self.at(n)
    }
}

/// A typed access as decoded.
#[derive(Clone, Debug)]
pub struct Typed {
    /// The format; `None` where the resource holds it.
    pub format: Option<Format>,
    /// The target, which numbers the formats.
    pub target: Target,
    /// Registers' components.
    pub count: usize,
    /// 16-bit components: two share a register, or one each (gfx8).
    pub packed: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_are_found_and_converted() {
        let f = |name| Format::parse(name).unwrap();
        assert_eq!(f("8_8_8_8_UNORM").load(0x80ff_0040, 0), (64f32 / 255.0).to_bits());
        assert_eq!(f("8_8_8_8_UNORM").load(0x80ff_0040, 2), 1f32.to_bits());
        // w has the two highest bits of 2_10_10_10, x the lowest ten.
        assert_eq!(f("2_10_10_10_UINT").load(0xc000_03ff, 0), 1023);
        assert_eq!(f("2_10_10_10_UINT").load(0xc000_03ff, 3), 3);
        assert_eq!(f("8_SNORM").load(0x80, 0), (-1f32).to_bits());
        assert_eq!((f("16_16_SINT").load(0xffff_0001, 1), f("16_16_SINT").load(0, 3)), (u32::MAX, 1));
        // 11-bit float one: exponent 15, mantissa 0.
        assert_eq!(f("10_11_11_FLOAT").load(15 << 6, 0), 1f32.to_bits());
        for name in ["8_8_8_8_SNORM", "16_16_UNORM", "10_11_11_FLOAT", "32_32_32_UINT", "16_16_16_16_FLOAT"] {
            let f = f(name);
            let element = 0x3a11_2233_4455_6677_1899_2abb_1cdd_3eff_u128 & ((1 << (8 * f.bytes() - 1)) * 2 - 1);
            let back = (0..4).fold(0, |e, n| e | f.store(n, f.load(element, n)));
            assert_eq!(back, element, "{name}");
        }
        assert!(Format::parse("INVALID").is_none() && Format::parse("RESERVED_15_UNORM").is_none());
    }
}
