//! Gathers: loads from places that other loads have told.
//!
//! What workgroups share of an operand that they read line by line is told by which of the first one's lines the others touch (`lots`). Of a
//! table that is read by index they touch this line or that by chance. What counts is how many lines a workgroup touches, of how large a range, and how many
//! workgroups read in the same range: one that reads `b` bytes of `s` leaves out each byte with the chance `1 - b/s`, and `n` of them together
//! with the n-th power of that. A range that is larger than a cache is there by the share of it that fits, as anything is that is used in no order.
//!
//! Which loads are gathers is read off a wave's trace: registers that memory has filled, what is computed of them, and addresses made of that. A
//! load whose lines follow each other alike in all workgroups, and these in order, is none: its table holds steps, not places.

use crate::instr::{Instr, Unit};
use crate::lots::{Along, Operands};
use crate::memory::on_axis;
use crate::prepared::REGISTERS;
use crate::record::{Group, Trace};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};

/// The instructions that load from where other vector loads have told, by their numbers. What went through LDS on its way is not followed.
fn gathers<'i>(instrs: &'i [Instr], wave: &Trace) -> FxHashSet<u32> {
    let mut told = vec![false; REGISTERS];
    let mut out = FxHashSet::default();
    for s in &wave.steps {
        let i = &instrs[s.instr as usize];
        let any = |registers: &[u16]| registers.iter().any(|r| told[usize::from(*r) % REGISTERS]);
        let by_place = any(&i.places);
        if i.unit == Unit::Vmem && !i.store && by_place {
            out.insert(s.instr);
        }
        // Of two that are issued as one each computes by itself.
        let of_part = |(reads, writes): (&'i [u16], &'i [u16])| {
            let tells = match i.unit {
                Unit::Vmem if !i.store => true,
                Unit::Lds | Unit::Smem | Unit::Vmem => by_place,
                _ => any(reads),
            };
            (writes, tells)
        };
        let parts: SmallVec<[(&[u16], bool); 2]> = i.parts().map(of_part).collect();
        parts.iter().for_each(|(writes, tells)| writes.iter().for_each(|r| told[usize::from(*r) % REGISTERS] = *tells));
    }
    out
}

/// A range in which workgroups read by chance.
struct Range {
    operand: usize,
    /// Ranges, and workgroups that read in each.
    number: f64,
    sharing: f64,
    /// Its first line.
    first: u64,
    /// Bytes of it, and those that a workgroup reads.
    bytes: f64,
    own: f64,
}

impl Range {
    /// Different bytes that so many workgroups read in one.
    fn touched(&self, workgroups: f64) -> f64 {
        self.bytes * (1.0 - (1.0 - self.own / self.bytes).powf(workgroups))
    }
}

/// What a launch gathers.
#[derive(Default)]
pub(crate) struct Scattered {
    ranges: Vec<Range>,
}

/// Ranges are the same that have so much in common.
const SAME: f64 = 0.5;

fn span(lines: &BTreeSet<u64>) -> Option<(u64, u64)> {
    Some((*lines.first()?, *lines.last()?))
}

/// Both follow each other in the same steps.
fn alike(a: &BTreeSet<u64>, b: &BTreeSet<u64>) -> bool {
    let (Some(first), Some(other)) = (a.first(), b.first()) else { return true };
    a.len() == b.len() && a.iter().zip(b).all(|(x, y)| x - first == y - other)
}

/// Numbers rise, or fall.
fn ordered<'n>(numbers: impl Iterator<Item = &'n u64>) -> bool {
    let numbers: Vec<&u64> = numbers.collect();
    numbers.is_sorted() || numbers.iter().rev().is_sorted()
}

/// Pieces in which lines follow each other without a gap.
fn pieces(lines: &BTreeSet<u64>) -> usize {
    lines.iter().filter(|l| l.checked_sub(1).is_none_or(|before| !lines.contains(&before))).count()
}

impl Scattered {
    /// What recorded workgroups gather; takes it from the lines of the first one, each with how many others it stands for.
    pub fn take(
        instrs: &[Instr],
        groups: &[Group],
        lines: &mut FxHashMap<u64, f64>,
        operands: &Operands,
        line: f64,
        grid: [u32; 3],
    ) -> Scattered {
        let found = groups.first().and_then(|g| g.waves.first()).map(|w| gathers(instrs, w)).unwrap_or_default();
        if found.is_empty() {
            return Scattered::default();
        }
        let of = |g: &Group| -> BTreeMap<usize, BTreeSet<u64>> {
            let mut out: BTreeMap<usize, BTreeSet<u64>> = BTreeMap::new();
            let steps = g.waves.iter().flat_map(|w| w.steps.iter().map(move |s| (w, s)));
            for (w, s) in steps.filter(|(_, s)| found.contains(&s.instr)) {
                for line in s.access.map_or(&[][..], |a| &w.accesses[a as usize].lines) {
                    out.entry(operands.of(*line)).or_default().insert(*line);
                }
            }
            out
        };
        let at = |axis: usize, g: &Group| u64::from(g.workgroup[axis].abs_diff(groups[0].workgroup[axis]));
        let beside: [Vec<(u64, BTreeMap<usize, BTreeSet<u64>>)>; 3] =
            [0, 1, 2].map(|axis| on_axis(groups, axis).into_iter().skip(1).map(|g| (at(axis, g), of(g))).collect());
        let mut ranges = Vec::new();
        for (operand, own) in of(&groups[0]) {
            let others_at = |axis: usize| beside[axis].iter().filter_map(|(at, g)| Some((*at, g.get(&operand)?)));
            let others = |axis: usize| others_at(axis).map(|o| o.1);
            let Some((first, last)) = span(&own) else { continue };
            let in_order =
                [0, 1, 2].map(|axis| ordered([&own].into_iter().chain(others(axis)).filter_map(|l| l.first())));
            if in_order == [true; 3] && [0, 1, 2].into_iter().flat_map(others).all(|o| alike(&own, o)) {
                continue;
            }
            let same = |other: &BTreeSet<u64>| {
                let Some((from, to)) = span(other) else { return false };
                let both = (last.min(to) + 1).saturating_sub(first.max(from)) as f64;
                both >= SAME * ((last - first + 1).min(to - from + 1)) as f64
            };
            // Ranges of their own follow each other.
            let shares = |axis: usize| others_at(axis).map(move |(at, o)| (at, !in_order[axis] || same(o)));
            let along = [0, 1, 2].map(|axis| Along::of(shares(axis)));
            let mut all = own.clone();
            for axis in [0, 1, 2] {
                others(axis).zip(shares(axis)).filter(|(_, shares)| shares.1).for_each(|(o, _)| all.extend(o));
            }
            let Some((first, last)) = span(&all) else { continue };
            // So many places drawn evenly leave as much at both ends as lies between two of them.
            let n = pieces(&all) as f64;
            let ends = if n > 1.0 { (n + 1.0) / (n - 1.0) } else { 1.0 };
            let bytes = (last - first + 1) as f64 * line * ends;
            let touched: f64 = own.iter().filter_map(|l| lines.remove(l)).sum();
            let number: f64 = along.iter().zip(grid).map(|(a, n)| a.count(f64::from(n.max(1)))).product();
            let workgroups: f64 = grid.iter().map(|n| f64::from((*n).max(1))).product();
            let own = (touched * line).min(bytes);
            ranges.push(Range { operand, first, number, sharing: workgroups / number.max(1.0), bytes, own });
        }
        Scattered { ranges }
    }

    /// The first line of an operand that may be read, and the last one.
    pub fn reach(&self, operand: usize, line: f64) -> Option<(u64, u64)> {
        let some = self.ranges.iter().filter(|r| r.operand == operand);
        some.map(|r| (r.first, r.first + (r.number * r.bytes / line) as u64))
            .reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }

    /// Bytes that a workgroup reads.
    pub fn own(&self) -> f64 {
        self.ranges.iter().map(|r| r.own).sum()
    }

    /// Different bytes that the launch reads, or of an operand.
    pub fn all(&self, operand: Option<usize>) -> f64 {
        let some = self.ranges.iter().filter(|r| operand.is_none_or(|o| o == r.operand));
        some.map(|r| r.number * r.touched(r.sharing)).sum()
    }

    /// Bytes that all workgroups bring into one of `dies` caches, so many of them at once; each has so much room for them.
    pub fn brought(&self, dies: f64, at_once: f64, room: f64) -> f64 {
        let working = |r: &Range| r.touched(at_once.min(r.sharing)) * (at_once / r.sharing).clamp(1.0, r.number);
        let used: f64 = self.ranges.iter().map(working).sum();
        let there = (room / used.max(1.0)).min(1.0);
        let of = |r: &Range| {
            let asked = r.number * r.sharing * r.own;
            let sharing = (r.sharing / dies).max(1.0);
            let first = (r.number * r.touched(sharing) * r.sharing / sharing).min(asked);
            first + (asked - first) * (1.0 - there)
        };
        self.ranges.iter().map(of).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Access, Level, Step};
    use barewave_isa::{Mode, Target, parse};

    fn instrs(texts: &[&str]) -> Vec<Instr> {
        let t = Target::GFX942;
        let instr = |text: &&str| Instr::new(t, &parse(t, Mode::of(t), text).unwrap().inst(), 64).unwrap();
        texts.iter().map(instr).collect()
    }

    const GATHER: [&str; 4] = [
        "global_load_dword v1, v0, s[0:1]",
        "v_lshlrev_b32 v2, 2, v1",
        "global_load_dword v3, v2, s[2:3]",
        "global_load_dword v4, v0, s[2:3]",
    ];

    /// Workgroups that read an index each and these lines by it.
    fn groups(of: &[(u32, &[u64])]) -> Vec<Group> {
        let group = |(at, lines): &(u32, &[u64])| {
            let access =
                |lines: &[u64]| Access { clocks: 1, level: Level::L2, lines: lines.to_vec(), store: false, polls: 0 };
            let steps = [Some(0), None, Some(1), None].iter().zip(0..);
            let steps = steps.map(|(access, instr)| Step { instr, access: *access, jumped: false }).collect();
            let accesses = vec![access(&[u64::from(*at)]), access(lines)];
            Group::new([*at, 0, 0], vec![Trace { steps, accesses, ..Trace::default() }], &instrs(&GATHER))
        };
        of.iter().map(group).collect()
    }

    fn taken(of: &[(u32, &[u64])], workgroups: u32) -> (Scattered, usize) {
        let mut lines: FxHashMap<u64, f64> = of[0].1.iter().map(|l| (*l, 1.0)).collect();
        let operands = Operands::new(&[0, 1000], 1.0);
        let s = Scattered::take(&instrs(&GATHER), &groups(of), &mut lines, &operands, 1.0, [workgroups, 1, 1]);
        (s, lines.len())
    }

    #[test]
    fn addresses_made_of_what_was_loaded_are_gathers() {
        let all = groups(&[(0, &[1000])]);
        assert_eq!(gathers(&instrs(&GATHER), &all[0].waves[0]).into_iter().collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn a_table_is_touched_by_chance() {
        let of: [(u32, &[u64]); 4] = [(0, &[1001, 1050]), (1, &[1030, 1099]), (2, &[1005, 1070]), (63, &[1045, 1010])];
        let (s, left) = taken(&of, 64);
        assert_eq!((left, s.ranges.len(), s.own()), (0, 1, 2.0));
        // Eight places over 100 lines: a table of some 128 lines, of which 128 draws leave a third.
        let share = s.all(Some(1)) / s.ranges[0].bytes;
        assert!((120.0..140.0).contains(&s.ranges[0].bytes) && (share - 0.635).abs() < 0.02, "{share}");
        // All of it again and again where nothing stays, once where all of it does.
        assert_eq!(s.brought(1.0, 64.0, 0.0), 128.0);
        assert!((s.brought(1.0, 64.0, 1e9) - s.all(None)).abs() < 1e-9);
        assert!(s.brought(8.0, 8.0, 1e9) > 1.4 * s.all(None));
    }

    #[test]
    fn workgroups_with_a_row_each_share_nothing() {
        let of: [(u32, &[u64]); 3] = [(0, &[1001, 1008]), (1, &[1013, 1017]), (63, &[1631, 1639])];
        let (s, _) = taken(&of, 64);
        assert_eq!(s.ranges[0].number, 64.0);
        assert!((s.all(None) - 128.0).abs() < 1e-9);
    }

    #[test]
    fn a_row_of_a_table_for_each_workgroup_is_drawn_by_chance() {
        let of: [(u32, &[u64]); 4] = [(0, &[1010, 1011]), (1, &[1090, 1091]), (2, &[1040, 1041]), (63, &[1060, 1061])];
        let (s, left) = taken(&of, 64);
        assert_eq!((left, s.ranges[0].number, s.ranges[0].sharing), (0, 1.0, 64.0));
    }

    #[test]
    fn what_goes_on_in_the_same_steps_is_none() {
        let (s, left) = taken(&[(0, &[1000, 1004]), (1, &[1001, 1005]), (63, &[1063, 1067])], 64);
        assert_eq!((s.ranges.len(), left), (0, 2));
    }
}
