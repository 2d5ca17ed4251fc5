//! The generator behind every seeded number: random inputs and random weights.

use super::DType;

/// Sebastiano Vigna's splitmix64 generator.
#[derive(Clone, Debug)]
pub struct SplitMix64(pub u64);

impl SplitMix64 {
    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// The next number in `[0, 1)`, a multiple of 2^-24.
    pub fn next_unit(&mut self) -> f64 {
        (self.next_u64() >> 40) as f64 / (1u64 << 24) as f64
    }

    /// Number `n` of those that stand for data nobody has: floats between `-extent` and `extent`, integers from 0 to below it.
    pub fn drawn(n: u64, dtype: DType, extent: u64) -> f64 {
        let bits = SplitMix64(n).next_u64();
        if !dtype.is_float() {
            return (bits % extent.max(1)) as f64;
        }
        (2.0 * ((bits >> 11) as f64 / (1u64 << 53) as f64) - 1.0) * extent as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splitmix_matches_the_published_sequence() {
        let mut rng = SplitMix64(1234567);
        let got: Vec<u64> = (0..3).map(|_| rng.next_u64()).collect();
        assert_eq!(got, [6457827717110365317, 3203168211198807973, 9817491932198370423]);
    }
}
