//! What is read twice, in sections: a launch goes through as much as a cache before memory keeps until the next one reads it again.

use super::Machine;

/// Time that bytes take from a cache before memory, over what they take from there.
pub const KEPT: f64 = 0.4;

/// Share of such a cache that a section may have: others have some of it.
const FILLED: f64 = 0.8;

impl Machine {
    /// How many of `count` equal parts a section has, of which one launch reads all `read` bytes and the next one again while it moves `moved` others.
    /// Half of each is between what the first has read and the second reads: both go through a section from its beginning. Sections are about as
    /// large as each other. `None` where all is kept anyway, or one part is too much.
    pub fn section(&self, count: usize, read: f64, moved: f64) -> Option<usize> {
        let between = read + moved / 2.0;
        let most = (FILLED * self.cache * count as f64 / between) as usize;
        let some = !self.keeps_until_read(read, moved) && (1..count).contains(&most);
        some.then(|| count.div_ceil(count.div_ceil(most)))
    }

    /// A cache before memory keeps all of what one launch reads until the next one reads it again.
    pub fn keeps_until_read(&self, read: f64, moved: f64) -> bool {
        read + moved / 2.0 <= self.cache
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use barewave_isa::Target;

    #[test]
    fn a_section_is_what_the_cache_keeps() {
        let of = |target, count, read, moved| Machine::of(target).section(count, read, moved);
        let mib = 1048576.0;
        // 256 MiB, of which 136 are read, and 136 written the second time.
        assert_eq!(of(Target::GFX942, 102, 510.0 * mib, 510.0 * mib), Some(26));
        // All fits, or no part does.
        assert_eq!(of(Target::GFX942, 8, 160.0 * mib, 160.0 * mib), None);
        assert_eq!(of(Target::GFX906, 26, 130.0 * mib, 130.0 * mib), None);
    }
}
