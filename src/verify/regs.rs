//! Registers as small numbers, and sets of them as bits.

use barewave_isa::{Half, Reg, Regs};

const AGPR: u16 = 256;
const SGPR: u16 = 512;
const TTMP: u16 = 640;
const SPECIAL: u16 = 656;
const WORDS: usize = 11;

/// Run of registers that an operand names, in our numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// First register.
    pub first: u16,
    /// How many.
    pub count: u8,
    /// Halves of it that are meant: low 1, high 2.
    pub halves: u8,
}

impl Span {
    /// The run, if it is of registers that hold values of the program: not `null`, apertures, MODE, nor VGPRs that no
    /// descriptor can allocate.
    pub fn of(r: Regs) -> Option<Span> {
        let first = number(r.first)?;
        let last = || number(r.first.offset(u16::from(r.dwords) - 1));
        let end = match if r.dwords > 1 { last() } else { Some(first) } {
            Some(last) if last >= first => last,
            // past the end of a file: what is left of it
            _ => file_end(first),
        };
        let halves = match r.half {
            Half::Full => 3,
            Half::Lo => 1,
            Half::Hi => 2,
        };
        Some(Span { first, count: (end - first + 1).min(64) as u8, halves })
    }
    /// One register.
    pub fn one(r: Reg) -> Option<Span> {
        Span::of(Regs::from(r))
    }
    /// One past the last register.
    pub fn end(self) -> u16 {
        self.first + u16::from(self.count)
    }
    /// True when the runs share a register.
    pub fn overlaps(self, other: Span) -> bool {
        self.first < other.end() && other.first < self.end()
    }
    /// True for VGPRs and AGPRs.
    pub fn is_vector(self) -> bool {
        self.first < SGPR
    }
    /// The first register by the name that the tables give it.
    #[inline]
    pub fn start(self) -> Reg {
        reg(self.first)
    }
    /// The registers by the names that the tables give them.
    pub fn regs(self) -> Regs {
        let half = [Half::Full, Half::Lo, Half::Hi, Half::Full][usize::from(self.halves & 3)];
        Regs { first: reg(self.first), dwords: self.count, half }
    }
    /// The numbers in it.
    pub fn numbers(self) -> std::ops::Range<u16> {
        self.first..self.end()
    }
}

fn file_end(n: u16) -> u16 {
    match n {
        0..AGPR => AGPR - 1,
        AGPR..SGPR => SGPR - 1,
        SGPR..TTMP => TTMP - 1,
        TTMP..SPECIAL => SPECIAL - 1,
        _ => n,
    }
}

/// Our number of a register.
pub fn number(r: Reg) -> Option<u16> {
    match r.0 {
        n @ 0..256 => Some(n),
        n if (Reg::A0.0..Reg::A0.0 + 256).contains(&n) => Some(n - Reg::A0.0 + AGPR),
        n if (Reg::S0.0..Reg::S0.0 + 128).contains(&n) => Some(n - Reg::S0.0 + SGPR),
        n if (Reg::TTMP0.0..Reg::TTMP0.0 + 16).contains(&n) => Some(n - Reg::TTMP0.0 + TTMP),
        n if (Reg::VCC_LO.0..Reg::NULL.0).contains(&n) => Some(n - Reg::VCC_LO.0 + SPECIAL),
        n if n == Reg::SCC.0 => Some(n - Reg::VCC_LO.0 + SPECIAL),
        _ => None,
    }
}

/// The register of a number.
pub fn reg(n: u16) -> Reg {
    match n {
        0..AGPR => Reg::v(n),
        AGPR..SGPR => Reg::a(n - AGPR),
        SGPR..TTMP => Reg::s(n - SGPR),
        TTMP..SPECIAL => Reg::ttmp(n - TTMP),
        _ => Reg(n - SPECIAL + Reg::VCC_LO.0),
    }
}

/// A set of registers.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Set([u64; WORDS]);

impl Set {
    /// Every register.
    pub const ALL: Set = Set([u64::MAX; WORDS]);

    /// Calls `f` with the words that a run has registers in, and these as bits: a run has at most 64.
    #[inline(always)]
    fn pieces(s: Span, mut f: impl FnMut(usize, u64)) {
        let (word, bit, count) = (usize::from(s.first >> 6), u32::from(s.first & 63), u32::from(s.count).min(64));
        let Some(mask) = u64::MAX.checked_shr(64 - count).filter(|_| word < WORDS) else { return };
        f(word, mask << bit);
        if bit + count > 64 && word + 1 < WORDS {
            f(word + 1, mask >> (64 - bit));
        }
    }
    /// Adds a run.
    #[inline]
    pub fn insert(&mut self, s: Span) {
        Set::pieces(s, |w, m| self.0[w] |= m);
    }
    /// Takes a run out.
    pub fn remove(&mut self, s: Span) {
        Set::pieces(s, |w, m| self.0[w] &= !m);
    }
    /// True when it has a register of the run.
    #[inline]
    pub fn meets(&self, s: Span) -> bool {
        let mut found = 0;
        Set::pieces(s, |w, m| found |= self.0[w] & m);
        found != 0
    }
    /// True when it has every register of the run.
    #[inline]
    pub fn covers(&self, s: Span) -> bool {
        let mut missing = 0;
        Set::pieces(s, |w, m| missing |= !self.0[w] & m);
        missing == 0
    }
    /// True when it has the register.
    pub fn has(&self, n: u16) -> bool {
        self.0[usize::from(n >> 6) % WORDS] >> (n & 63) & 1 == 1
    }
    /// Adds all of another set; true when that made it larger.
    pub fn join(&mut self, other: &Set) -> bool {
        let mut more = 0;
        for (a, b) in self.0.iter_mut().zip(&other.0) {
            more |= b & !*a;
            *a |= b;
        }
        more != 0
    }
    /// One past the largest number in `range` that it has, counted from the start of the range.
    fn top(&self, from: u16, to: u16) -> u32 {
        (from..to).rev().find(|n| self.has(*n)).map_or(0, |n| u32::from(n - from) + 1)
    }
    /// How many VGPRs, AGPRs and SGPRs it has.
    pub fn counts(&self) -> [u32; 3] {
        let count = |from: u16, to: u16| {
            self.0[usize::from(from / 64)..usize::from(to / 64)].iter().map(|w| w.count_ones()).sum()
        };
        [count(0, AGPR), count(AGPR, SGPR), count(SGPR, TTMP)]
    }
    /// VGPRs that a wave must have for it.
    pub fn vgprs(&self) -> u32 {
        self.top(0, AGPR)
    }
    /// AGPRs that a wave must have for it.
    pub fn agprs(&self) -> u32 {
        self.top(AGPR, SGPR)
    }
    /// SGPRs that a wave must have for it.
    pub fn sgprs(&self) -> u32 {
        self.top(SGPR, TTMP)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_registers_agree() {
        for r in [Reg::v(0), Reg::v(255), Reg::a(0), Reg::a(255), Reg::s(0), Reg::s(105), Reg::ttmp(15)] {
            assert_eq!(reg(number(r).unwrap()), r);
        }
        for r in [Reg::VCC_LO, Reg::EXEC_HI, Reg::M0, Reg::SCC] {
            assert_eq!(reg(number(r).unwrap()), r);
        }
        assert_eq!(number(Reg::NULL), None);
        assert_eq!(number(Reg::v(300)), None);
    }

    #[test]
    fn runs_cross_words() {
        let mut s = Set::default();
        let run = Span::of(Regs::v(50, 32)).unwrap();
        s.insert(run);
        assert!(s.covers(run) && s.vgprs() == 82);
        s.remove(Span::of(Regs::v(64, 1)).unwrap());
        assert!(s.meets(run) && !s.covers(run));
        let last = Span::of(Regs::v(250, 16)).unwrap();
        assert_eq!((last.first, last.count), (250, 6), "a run ends with its file");
    }
}
