//! Sets of registers.

use barewave_isa::Regs;

/// A set of registers, a bit each.
#[derive(Clone, Default)]
pub struct RegSet(Vec<u64>);

impl RegSet {
    /// The words that have the registers of a run, with their bits there.
    pub fn words(regs: Regs) -> impl Iterator<Item = (usize, u64)> {
        let (first, end) = (regs.first.0 as usize, regs.first.0 as usize + regs.dwords as usize);
        (first / 64..end.div_ceil(64)).map(move |word| {
            let (low, high) = (first.saturating_sub(word * 64), (end - word * 64).min(64));
            (word, (u64::MAX >> (64 - high)) & (u64::MAX << low))
        })
    }

    /// Adds the registers of a run.
    pub fn insert(&mut self, regs: Regs) {
        for (word, bits) in RegSet::words(regs) {
            if word >= self.0.len() {
                self.0.resize(word + 1, 0);
            }
            self.0[word] |= bits;
        }
    }

    /// Takes the registers of a run away.
    pub fn remove(&mut self, regs: Regs) {
        for (word, bits) in RegSet::words(regs).filter(|(word, _)| *word < self.0.len()).collect::<Vec<_>>() {
            self.0[word] &= !bits;
        }
    }

    /// Adds those of another set; whether some were new.
    pub fn join(&mut self, other: &RegSet) -> bool {
        self.0.resize(self.0.len().max(other.0.len()), 0);
        let news =
            self.0.iter_mut().zip(&other.0).map(|(own, bits)| (*own | bits) != std::mem::replace(own, *own | bits));
        news.fold(false, |any, new| any | new)
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether one of those in such words is there.
    pub fn meets(&self, words: &[(usize, u64)]) -> bool {
        words.iter().any(|&(word, bits)| self.0.get(word).is_some_and(|w| w & bits != 0))
    }
}
