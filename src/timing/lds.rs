//! Bank conflicts of LDS: the lanes of an access go in phases, and a phase takes a turn for each different word that its
//! busiest bank has to give.
//!
//! Which lanes make a phase was measured for gfx942, gfx950, gfx1100 and gfx1201 (shark-ai, HipKittens, pyhip: three
//! independent experiments that agree); others take those of their family.

use crate::chip::Chip;
use barewave_emu::observe::LaneAccess;

/// Lanes of the phases of 16-byte reads within 32 lanes: not in order on CDNA3 and RDNA3.
const WIDE_READ: [[u32; 8]; 4] = [
    [0, 1, 2, 3, 20, 21, 22, 23],
    [4, 5, 6, 7, 16, 17, 18, 19],
    [8, 9, 10, 11, 28, 29, 30, 31],
    [12, 13, 14, 15, 24, 25, 26, 27],
];

/// Lanes of the first of two phases of 16-byte reads within 32 lanes with 64 banks (gfx950).
const WIDE_READ_64: [u32; 16] = [0, 1, 2, 3, 12, 13, 14, 15, 20, 21, 22, 23, 24, 25, 26, 27];

/// Which phase a lane belongs to.
fn phase(chip: &Chip, lane: u32, bytes: u32, store: bool) -> u32 {
    // With 64 banks (gfx950 reads) a phase serves twice the bytes.
    let wide = if chip.lds_banks > 32.0 && !store { 2 } else { 1 };
    match bytes {
        0..=4 => lane / (32 * wide),
        5..=8 => lane / (16 * wide),
        _ if store || !scattered(chip) => lane / (8 * wide),
        _ if wide == 2 => lane / 32 * 2 + u32::from(!WIDE_READ_64.contains(&(lane % 32))),
        _ => {
            let within = WIDE_READ.iter().position(|p| p.contains(&(lane % 32))).unwrap_or(0) as u32;
            lane / 32 * 4 + within
        }
    }
}

/// Phases of 16-byte reads interleave lanes (CDNA3, CDNA4, RDNA3); on RDNA4 they are runs of eight.
fn scattered(chip: &Chip) -> bool {
    let info = chip.target.info();
    info.unified_agprs || info.wmma == Some(barewave_isa::matrix::Layout::Wmma11)
}

/// Clocks that an access takes of the LDS port: of a pair of SIMDs on GCN and CDNA (64 bytes a clock), of the compute unit
/// on RDNA (128 bytes a clock).
pub fn clocks(chip: &Chip, lanes: &[LaneAccess], store: bool) -> u32 {
    let banks = chip.lds_banks as u64;
    let per_phase = if chip.quad_cadence() { 2 } else { 1 };
    let mut total = 0;
    // An instruction with two offsets lists the lanes twice.
    let mut rest = lanes;
    while let Some(first) = rest.first() {
        let again = rest.iter().skip(1).position(|l| l.lane <= first.lane).map_or(rest.len(), |p| p + 1);
        let (now, later) = rest.split_at(again);
        rest = later;
        let mut by_phase: Vec<(u32, u64)> = Vec::with_capacity(now.len() * 4);
        for l in now {
            let p = phase(chip, l.lane, l.bytes, store);
            let words = u64::from(l.bytes.max(1)).div_ceil(4);
            by_phase.extend((0..words).map(|w| (p, l.address / 4 + w)));
        }
        by_phase.sort_unstable();
        by_phase.dedup();
        let mut at = 0;
        while at < by_phase.len() {
            let p = by_phase[at].0;
            let end = by_phase[at..].iter().position(|x| x.0 != p).map_or(by_phase.len(), |e| at + e);
            let mut count = [0u32; 64];
            for (_, word) in &by_phase[at..end] {
                count[(word % banks) as usize] += 1;
            }
            total += count.iter().copied().max().unwrap_or(0).max(1) * per_phase;
            at = end;
        }
    }
    total.max(1)
}

/// Patterns that are kept of an instruction.
const KEPT: usize = 4;

/// Clocks that what a wave's load brings straight to LDS, so many bytes a lane, takes of the port: lanes lie side by side, without conflicts.
pub fn filled(chip: &Chip, bytes: u32) -> u32 {
    let lanes: Vec<LaneAccess> = (0..chip.target.info().wave_size)
        .map(|lane| LaneAccess { lane, address: u64::from(lane * bytes.max(4)), bytes: bytes.max(4) })
        .collect();
    clocks(chip, &lanes, true)
}

/// Clocks of accesses that were asked for before: of an instruction with the same lanes as far from the first one, which is in the same bank.
#[derive(Default)]
pub struct Patterns {
    known: Vec<Vec<(Vec<LaneAccess>, u32)>>,
}

impl Patterns {
    /// As [`clocks`], of an instruction with a number.
    pub fn clocks(&mut self, chip: &Chip, instr: u32, lanes: &[LaneAccess], store: bool) -> u32 {
        let n = instr as usize;
        if self.known.len() <= n {
            self.known.resize_with(n + 1, Vec::new);
        }
        let known = &mut self.known[n];
        // Words of all banks.
        let all = 4 * chip.lds_banks as u64;
        let same = |other: &[LaneAccess]| {
            let (Some(a), Some(b)) = (lanes.first(), other.first()) else {
                return lanes.is_empty() && other.is_empty();
            };
            let apart = a.address.wrapping_sub(b.address);
            apart.is_multiple_of(all)
                && lanes.len() == other.len()
                && lanes
                    .iter()
                    .zip(other)
                    .all(|(x, y)| x.address.wrapping_sub(y.address) == apart && (x.lane, x.bytes) == (y.lane, y.bytes))
        };
        if let Some((_, clocks)) = known.iter().find(|k| same(&k.0)) {
            return *clocks;
        }
        let clocks = clocks(chip, lanes, store);
        if known.len() == KEPT {
            known.remove(0);
        }
        known.push((lanes.to_vec(), clocks));
        clocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use barewave_isa::Target;

    fn of(target: Target, lanes: u32, bytes: u32, address: impl Fn(u32) -> u64, store: bool) -> u32 {
        let chip = Chip::of(target).unwrap();
        let list: Vec<LaneAccess> = (0..lanes).map(|lane| LaneAccess { lane, address: address(lane), bytes }).collect();
        clocks(&chip, &list, store)
    }

    #[test]
    fn widths_take_what_was_measured() {
        // A block of 64 reads on gfx942: 4, 8, 16 clocks each for 4, 8, 16 bytes.
        for (bytes, expected) in [(4, 4), (8, 8), (16, 16)] {
            assert_eq!(of(Target::GFX942, 64, bytes, |l| u64::from(l * bytes), false), expected);
        }
        assert_eq!(of(Target::GFX950, 64, 16, |l| u64::from(l * 16), false), 8);
        assert_eq!(of(Target::GFX1100, 32, 4, |l| u64::from(l * 4), false), 1);
        assert_eq!(of(Target::GFX1100, 32, 16, |l| u64::from(l * 16), false), 4);
    }

    #[test]
    fn conflicts_and_broadcasts() {
        assert_eq!(of(Target::GFX942, 64, 4, |_| 16, false), 4, "one word for all: a broadcast");
        assert_eq!(of(Target::GFX942, 64, 4, |l| u64::from(l) * 128, false), 128, "one bank for all: 32 turns twice");
        assert_eq!(of(Target::GFX942, 64, 4, |l| u64::from(l) * 132, false), 4, "padding spreads the banks");
        assert_eq!(of(Target::GFX942, 64, 4, |l| u64::from(l) * 16, false), 16, "four-way");
    }

    #[test]
    fn what_comes_straight_from_memory_is_written_as_anything_else() {
        let chip = Chip::of(Target::GFX950).unwrap();
        assert_eq!([4, 16].map(|bytes| filled(&chip, bytes)), [4, 16]);
    }

    #[test]
    fn patterns_that_were_met_take_the_same() {
        let chip = Chip::of(Target::GFX942).unwrap();
        let mut known = Patterns::default();
        let at = |from: u64, stride: u64| -> Vec<LaneAccess> {
            (0..64).map(|lane| LaneAccess { lane, address: from + u64::from(lane) * stride, bytes: 4 }).collect()
        };
        for (from, stride) in [(0, 4), (128, 4), (0, 128), (4, 4), (132, 128), (0, 8), (64, 12), (0, 4)] {
            let lanes = at(from, stride);
            assert_eq!(known.clocks(&chip, 3, &lanes, false), clocks(&chip, &lanes, false), "{from} {stride}");
        }
    }
}
