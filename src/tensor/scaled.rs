//! A tensor that is another one with factors in it, which is made when somebody wants its bytes.
//!
//! Weights that a factor for each channel goes into are read once, when they are packed for a kernel: until then nothing of them is in memory.

use super::host::HostTensor;
use bytes::Bytes;
use std::sync::OnceLock;

/// A tensor of f32, of which as many equal parts as there are factors are multiplied by one each.
pub(super) struct Scaled {
    pub of: HostTensor,
    pub factors: Vec<f64>,
    /// The bytes, once they were asked for.
    pub bytes: OnceLock<Bytes>,
}

/// Elements that are copied and multiplied together: they stay in the second cache.
const SOME: usize = 1 << 16;

impl Scaled {
    /// Writes the bytes to memory of their size.
    pub fn copy_to(&self, out: &mut [u8]) {
        let part = self.of.len() / self.factors.len();
        // What is put together has no parts that lie somewhere.
        let lies = self.of.ready().is_some() || self.of.fill().is_some();
        let parts = if lies { (SOME / part).max(1) } else { self.factors.len() };
        let runs = out.chunks_mut(4 * part * parts).zip(self.factors.chunks(parts));
        for (n, (out, factors)) in runs.enumerate() {
            let own = if lies { self.of.part(n * part * parts, out.len() / 4) } else { None };
            own.as_ref().unwrap_or(&self.of).copy_to(out);
            out.chunks_exact_mut(4 * part).zip(factors).for_each(|(out, factor)| multiply(out, *factor));
        }
    }
}

/// Multiplies floats by a factor, each rounded once.
fn multiply(all: &mut [u8], factor: f64) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the feature was just detected.
        return unsafe { multiply_by_avx2(all, factor) };
    }
    multiply_anywhere(all, factor);
}

/// The same with four numbers at once.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn multiply_by_avx2(all: &mut [u8], factor: f64) {
    multiply_anywhere(all, factor);
}

#[inline(always)]
fn multiply_anywhere(all: &mut [u8], factor: f64) {
    for x in all.as_chunks_mut().0 {
        *x = ((f64::from(f32::from_le_bytes(*x)) * factor) as f32).to_le_bytes();
    }
}
