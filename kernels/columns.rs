//! How lines are walked as columns: how many neighbouring lines a workgroup takes, and how many of its workitems share one.

use super::choice::Machine;
use super::lines::{BESIDE, CACHE_BUSY, LIGHT, MOST, MOST_RESIDENT, SHORT, Shape, WORKGROUP};
use barewave_isa::Target;

/// Bytes of neighbouring columns that a workgroup takes at least, workitems of such a workgroup at most, members that share a column, and workitems of a
/// compute unit that are enough: of four bytes each; where they load less, and but once, more of them up to what a compute unit holds.
const COLUMNS: u32 = 64;
const TALLEST: u32 = 1024;
const MEMBERS: u32 = 64;
const RESIDENT: usize = 1024;

/// Strips of a wave's columns from which on all columns are walked in such.
const STRIPS: usize = 2;

/// Bytes of neighbouring columns where these are so few, and so short, that many compute units would have none: then a workgroup's turn counts, not the share
/// that it uses of lines of memory.
const FEWEST: u32 = 16;

/// Members at most that share a column where its elements are combined in their order.
const IN_ORDER: u32 = 16;

impl Shape {
    /// Whether workitems that walk lines as columns hold them; none where they are not walked so.
    pub fn are_held_columns(&self, target: Target) -> Option<bool> {
        let (beside, team) = self.columns.filter(|_| !self.dense).and_then(|row| self.as_columns(row, target))?;
        let own = (self.length as u32).div_ceil(team);
        Some(self.chunks(team, beside * team, target) >= own)
    }

    /// Rows of columns begin anywhere in lines of memory, of which a strip of columns shares two with others: second-level caches give them twice, and have no
    /// time for it.
    fn is_cut(&self, row: usize, strip: u32, target: Target) -> bool {
        let (machine, strip) = (Machine::of(target), f64::from(strip) * self.size as f64);
        let given = (strip + f64::from(machine.line)) / strip / machine.l2;
        !(row * self.size).is_multiple_of(machine.line as usize) && given > CACHE_BUSY / machine.memory
    }

    /// How many neighbouring lines of `row` neighbouring workitems walk, and how many workitems share one, so that the compute
    /// units have enough to do; none where a line's neighbours are too few.
    pub fn as_columns(&self, row: usize, target: Target) -> Option<(u32, u32)> {
        let (wave, cus) = (target.info().wave_size, target.cus() as usize);
        // What is walked again should be all of the lines of memory that it is in.
        let bytes = if self.again { Machine::of(target).line.max(COLUMNS) } else { COLUMNS };
        let mut least = (bytes / self.size as u32).min(wave);
        // Elements in order are otherwise one workgroup's for each line.
        let fewest = if self.in_order { least.min(COLUMNS / self.size as u32) } else { least };
        if row < fewest as usize / 2 || self.length < 2 * SHORT as usize {
            return None;
        }
        let (length, is_cut) = (self.length as u32, self.is_cut(row, least, target));
        if !self.again && is_cut && row >= STRIPS * wave as usize {
            least = wave;
            // As wide as a row where that still leaves members enough.
            while 2 * least <= WORKGROUP && (least as usize) < row && self.is_cut(row, least, target) {
                least *= 2;
            }
        }
        // Wider strips share fewer, where workgroups still hold their lines.
        let holds = |least: u32| length * self.dwords <= TALLEST / least * (MOST - BESIDE);
        while self.again && is_cut && 2 * least <= wave && (least as usize) < row && holds(2 * least) {
            least *= 2;
        }
        let whole = least;
        let is_held = self.again && !self.in_order && length * self.dwords <= MEMBERS * LIGHT;
        while is_held && least * self.size as u32 > FEWEST && self.count.div_ceil(least as usize) < cus / 2 {
            least /= 2;
        }
        // As many members as fill the chip, and as keep a line in registers that is walked again if they can.
        let enough = if self.again { RESIDENT } else { (RESIDENT * 4 / self.size.clamp(1, 4)).min(MOST_RESIDENT) };
        let wanted = 1u32 << (enough * cus / self.count.max(1)).max(1).ilog2();
        let held = |team: u32| length.div_ceil(team) * self.dwords;
        let most = match self.in_order {
            true => IN_ORDER,
            false if least < whole => (TALLEST / least).min(MEMBERS),
            false => TALLEST / least,
        };
        let most = most.min((length / SHORT).next_power_of_two());
        let mut team = wanted.clamp(1, most);
        while self.again && held(team) > LIGHT && team < most {
            team *= 2;
        }
        let mut beside = (WORKGROUP / team).max(least);
        while beside > least && beside * team > wave && self.count < 2 * cus * beside as usize {
            beside /= 2;
        }
        Some((beside, team))
    }
}
