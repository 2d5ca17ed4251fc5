//! The best keys of those that a wave holds, by a threshold in front of which few others are left.
//!
//! A lane's keys form groups. The threshold is the `k`-th best of the best ones of all groups: no fewer than `k` keys are as good, and all that are
//! lie in `k` groups. It is found bit by bit from the highest one down, by counting the lanes whose groups reach it. Keys that are as good go to LDS
//! side by side, and how many better ones each has there is its place in the result. No two keys are equal, so that nothing
//! depends on the order in which they are found.
//!
//! A key is one word, or two: then the threshold is looked for among the first words, and where more than `k` groups reach it
//! also among the second words of those whose first one is equal.

use super::Writer;
use super::error::Res;
use super::sorted::{Key, less};
use crate::mir::{Gen, Part, Pipeline, Type};
use barewave_isa::{Target, op};

/// Waves of a workgroup, at most.
const WAVES: u32 = 4;

/// Keys that are compared with a lane's own in a round, in reads of four.
const READ: u32 = 8;

/// How the keys of a wave are searched.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sieve {
    /// How many of the best are wanted.
    pub k: u32,
    /// Groups of a lane's keys: each has every so many of them.
    groups: usize,
    /// Keys that are as good as the threshold, at most.
    room: u32,
    /// Words of a key.
    words: usize,
    wave: u32,
}

/// Keys of a lane.
pub(super) struct Held<'a> {
    /// Their first words; 0 of those that are not there, which is less than all others or, of keys of two words, as little.
    pub codes: Vec<Part>,
    /// Numbers of elements, from that of the lane's first one on: of two words the second one has fewer the larger this is.
    pub numbers: Vec<u32>,
    /// The number of the lane's first element.
    pub first: Part,
    /// What is done with a key: its last word, its place in the result, the lanes that have one.
    pub give: &'a mut dyn FnMut(&mut Writer, Part, Part, Part) -> Res<()>,
}

impl Sieve {
    /// For the best `k` of so many times `width` keys, or of a line with one time more: lanes of the wave have one after the other, in so many loads.
    pub fn new(k: usize, units: usize, loads: usize, width: usize, words: usize, wave: u32) -> Sieve {
        let lanes = wave as usize;
        let slots = loads * width;
        let there = |groups: usize| match groups.checked_div(width) {
            None | Some(0) => units.min(lanes) * groups,
            Some(loads) => units.min(lanes * loads) * width,
        };
        // Twice as many groups as keys leave few others.
        let mut groups = 1;
        while groups < slots && (lanes * groups < 2 * k || there(groups) < k) {
            groups *= 2;
        }
        let room = (k * slots.div_ceil(groups)).min(slots * lanes);
        Sieve { k: k as u32, groups, room: room as u32, words, wave }
    }

    /// Bytes between the words of a key in LDS: the keys, what is read behind them, and a word for each lane that has none.
    fn plane(&self) -> u32 {
        ((self.room + READ + self.wave) * 4).next_multiple_of(16)
    }

    /// LDS of a wave.
    pub fn bytes(&self) -> u32 {
        self.plane() * self.words as u32
    }

    /// Waves of a workgroup for so many lines: several where there are many, if LDS has room for others beside them.
    pub fn waves(&self, lines: usize, target: Target) -> u32 {
        let many = lines >= (4 * WAVES * target.cus()) as usize;
        if many && WAVES * self.bytes() <= target.info().lds_bytes / 4 { WAVES } else { 1 }
    }

    /// How many groups' numbers are at least a scalar.
    fn reaching(&self, w: &mut Writer, of_groups: &[Part], least: Part) -> Part {
        let counts = of_groups.iter().map(|x| {
            let reached = w.b.op(Gen::CmpGe.of(Type::U32), &[(*x).into(), least.into()]);
            lanes_of(w, reached)
        });
        let counts: Vec<Part> = counts.collect();
        counts.into_iter().reduce(|a, b| w.b.add(a, b)).unwrap_or_else(|| w.b.scalar(0))
    }

    /// The largest number of so many bits that no fewer than a scalar `count` of the groups' numbers reach, or one that just as many do.
    fn threshold(&self, w: &mut Writer, of_groups: &[Part], bits: u32, count: Part) -> Part {
        let (found, bit) = (w.b.scalar(0), w.b.scalar(1 << (bits - 1)));
        let head = w.b.block("threshold");
        let tried = w.b.generic(Gen::Or.of(Type::B32), &[found.into(), bit.into()]);
        let reached = self.reaching(w, of_groups, tried);
        // All bits where too few do.
        let over = w.b.sub(reached, count);
        let few = w.b.generic(Gen::Shr.of(Type::I32), &[over.into(), 31u32.into()]);
        let enough = w.b.generic(Gen::Not.of(Type::B32), &[few.into()]);
        let taken = w.b.and(bit, enough);
        let next = w.b.generic(Gen::Or.of(Type::B32), &[found.into(), taken.into()]);
        w.b.copy_into(found, next);
        let half = w.b.shr(bit, 1u32);
        w.b.copy_into(bit, half);
        // On while there are bits, unless it is as many as are wanted.
        let more = w.b.generic(Gen::Min.of(Type::U32), &[over.into(), half.into()]);
        w.b.branch_lt(0u32, more, head);
        found
    }

    /// Gives out the best keys of each wave of a workgroup of so many workitems.
    pub fn run(&self, w: &mut Writer, held: Held<'_>, workgroup: u32) -> Res<()> {
        let Held { codes, numbers, first, give } = held;
        let group = |g: usize| (g..codes.len()).step_by(self.groups);
        let best: Vec<Part> =
            (0..self.groups.min(codes.len())).map(|g| extreme(w, group(g).map(|e| codes[e]).collect(), true)).collect();
        let wanted = w.b.scalar(self.k);
        let threshold = self.threshold(w, &best, 32, wanted);
        // Numbers as large as this still count of those whose code is the threshold.
        let last = w.b.scalar(u32::MAX >> 1);
        if self.words == 2 {
            self.break_ties(w, &codes, &numbers, first, &best, threshold, last);
        }
        let lds = w.b.lds(self.bytes() * workgroup.div_ceil(self.wave));
        let item = w.b.workitem_id();
        // From what is there anyway: keys leave few registers.
        let member = w.b.and(item, self.wave - 1);
        let wave = w.b.shr(item, self.wave.trailing_zeros());
        let region = w.b.mul(wave, self.bytes());
        let region = w.b.add(region, lds);
        let aside = w.b.shl(member, 2u32);
        let aside = w.b.add(aside, region);
        let aside = w.b.add(aside, (self.room + READ) * 4);
        let least = w.b.to_vector(threshold);
        let allowed = w.b.sub(last, first);
        let count = w.b.scalar(0);
        let second = |w: &mut Writer, number: u32| w.b.sub(u32::MAX - number, first);
        for (code, number) in codes.iter().zip(&numbers) {
            let kept = if self.words == 1 {
                w.b.op(Gen::CmpGe.of(Type::U32), &[(*code).into(), least.into()])
            } else {
                // What is borrowed when the key is subtracted from the threshold.
                let allowed = w.b.op(Gen::CmpGe.of(Type::I32), &[allowed.into(), (*number).into()]);
                let (unused, borrow) = (w.b.v(1), w.b.mask());
                let srcs = [least.into(), (*code).into(), allowed.into()];
                w.b.emit(op::V_SUBB_CO_U32, &[unused.into(), borrow.into()], &srcs);
                borrow
            };
            let next = w.b.label();
            w.b.branch_if_none(kept, next, "kept");
            let place = places_of(w, kept, count);
            let at = w.b.shl(place, 2u32);
            let at = w.b.add(at, region);
            let at = w.b.select(kept, at, aside);
            w.b.lds_write(at, *code, 0);
            if self.words == 2 {
                let low = second(w, *number);
                w.b.lds_write(at, low, self.plane());
            }
            let more = lanes_of(w, kept);
            let more = w.b.add(count, more);
            w.b.copy_into(count, more);
            w.b.place(next, "sieved");
        }
        // What is read behind the last one is no better than any.
        let behind = w.b.op(Gen::CmpGt.of(Type::U32), &[READ.into(), member.into()]);
        let at = w.b.add(member, count);
        let at = w.b.shl(at, 2u32);
        let at = w.b.add(at, region);
        let at = w.b.select(behind, at, aside);
        let none = w.b.to_vector(0u32);
        (0..self.words as u32).for_each(|d| w.b.lds_write(at, none, d * self.plane()));
        self.rank(w, region, member, count, give)
    }

    /// Of keys whose code is the threshold: the number behind which they do not count, if more than `k` groups reach it.
    #[allow(clippy::too_many_arguments)]
    fn break_ties(
        &self,
        w: &mut Writer,
        codes: &[Part],
        numbers: &[u32],
        first: Part,
        best: &[Part],
        threshold: Part,
        last: Part,
    ) {
        let reached = self.reaching(w, best, threshold);
        let join = w.b.label();
        w.b.branch_lt(reached, self.k + 1, join);
        let mut better = w.b.scalar(0);
        let mut low = Vec::new();
        for (g, best) in best.iter().enumerate() {
            let own = w.b.to_vector(0u32);
            for e in (g..codes.len()).step_by(self.groups).rev() {
                let alike = w.b.op(Gen::CmpEq.of(Type::U32), &[codes[e].into(), (*best).into()]);
                let next = w.b.select(alike, numbers[e], own);
                w.b.copy_into(own, next);
            }
            let number = w.b.add(own, first);
            // The fewer the better; nothing where the code is not the threshold.
            let turned = w.b.sub(BEHIND, number);
            let tie = w.b.op(Gen::CmpEq.of(Type::U32), &[(*best).into(), threshold.into()]);
            low.push(w.b.select(tie, turned, 0u32));
            // No code is larger than all bits.
            let more = w.b.op(Gen::CmpGt.of(Type::U32), &[(*best).into(), threshold.into()]);
            let more = lanes_of(w, more);
            better = w.b.add(better, more);
        }
        let left = w.b.scalar(self.k);
        let left = w.b.sub(left, better);
        let found = self.threshold(w, &low, BEHIND.ilog2() + 1, left);
        let behind = w.b.scalar(BEHIND);
        let number = w.b.sub(behind, found);
        w.b.copy_into(last, number);
        w.b.place(join, "threshold is known");
    }

    /// Gives out each of `count` keys in LDS with the number of better ones.
    fn rank(
        &self,
        w: &mut Writer,
        region: Part,
        member: Part,
        count: Part,
        give: &mut dyn FnMut(&mut Writer, Part, Part, Part) -> Res<()>,
    ) -> Res<()> {
        let turns = w.b.begin_loop("turns");
        let own = w.b.add(member, turns.counter());
        let last = w.b.sub(count, 1u32);
        let held = w.b.op(Gen::Min.of(Type::U32), &[own.into(), last.into()]);
        let at = w.b.shl(held, 2u32);
        let at = w.b.add(at, region);
        let key: Key = (0..self.words as u32).map(|d| w.b.lds_read(1, at, d * self.plane())).collect();
        let rank = w.b.to_vector(0u32);
        let better = w.b.begin_loop("better");
        let from = w.b.shl(better.counter(), 2u32);
        let from = w.b.add(region, from);
        let others: Vec<Vec<Part>> = (0..READ / 4)
            .map(|r| (0..self.words as u32).map(|d| w.b.lds_read(4, from, r * 16 + d * self.plane())).collect())
            .collect();
        for other in &others {
            for e in 0..4 {
                let other: Vec<Part> = other.iter().map(|word| word.dword(e)).collect();
                count_better(w, &key, &other, rank);
            }
        }
        w.b.end_loop(better, count, READ, Pipeline::Off, false);
        let there = w.b.op(Gen::CmpGt.of(Type::U32), &[count.into(), own.into()]);
        let wanted = w.b.op(Gen::CmpGt.of(Type::U32), &[self.k.into(), rank.into()]);
        let there = w.b.mask_and(there, wanted);
        give(w, key[self.words - 1], rank, there)?;
        w.b.end_loop(turns, count, self.wave, Pipeline::Off, false);
        Ok(())
    }
}

/// More than the number of any element that a wave holds, or would hold where a piece ends.
const BEHIND: u32 = (1 << 14) - 1;

/// Adds 1 to a key's rank where another one is better, of words of which the first one counts most.
pub(super) fn count_better(w: &mut Writer, key: &[Part], other: &[Part], rank: Part) {
    let less = less(w, key.iter().zip(other).rev());
    if let Some(less) = less {
        let (next, unused) = (w.b.v(1), w.b.mask());
        w.b.emit(op::V_ADDC_CO_U32, &[next.into(), unused.into()], &[rank.into(), 0u32.into(), less.into()]);
        w.b.copy_into(rank, next);
    }
}

/// How many lanes of a mask are before each lane, and `from` more.
pub(super) fn places_of(w: &mut Writer, mask: Part, from: Part) -> Part {
    let mut place = w.b.to_vector(from);
    let counting = [op::V_MBCNT_LO_U32_B32, op::V_MBCNT_HI_U32_B32];
    for (d, op) in (0..mask.len).zip(counting) {
        place = w.b.op(op, &[mask.dword(d).into(), place.into()]);
    }
    place
}

/// How many lanes a mask has.
pub(super) fn lanes_of(w: &mut Writer, mask: Part) -> Part {
    let count = w.b.s(1);
    let op = if mask.len == 2 { op::S_BCNT1_I32_B64 } else { op::S_BCNT1_I32_B32 };
    w.b.emit(op, &[count.into()], &[mask.into()]);
    count
}

/// The largest or the smallest of words, of which there is one at least.
pub(super) fn extreme(w: &mut Writer, mut all: Vec<Part>, largest: bool) -> Part {
    let (of_three, of_two) = if largest { (op::V_MAX3_U32, Gen::Max) } else { (op::V_MIN3_U32, Gen::Min) };
    while all.len() > 1 {
        let each = if all.len() > 2 { 3 } else { 2 };
        let some = all.chunks(each).map(|some| match *some {
            [x, y, z] => w.b.op(of_three, &[x.into(), y.into(), z.into()]),
            [x, y] => w.b.op(of_two.of(Type::U32), &[x.into(), y.into()]),
            _ => some[0],
        });
        all = some.collect();
    }
    all[0]
}
