//! The best keys of long lines, in one launch: workgroups hold a piece of a line each and leave those of it that may be among the line's best; the last one to
//! come does the same with what all have left, and puts them in order.
//!
//! A key is two words: the element's code, and behind it its place, where the first counts; no two are equal. A workgroup looks for a threshold that no fewer
//! than `k` of its keys reach and not many more, by halving between the smallest and the largest of what each lane has best: each wave counts its keys
//! that reach the middle, and the counts meet in LDS. Where too many codes are equal, the same is done among their places. Keys that reach it are put side by side, in any
//! order: first in the step's workspace, where a piece has room for so many, and at last in LDS, where how many better ones each has is its place in the
//! result, or they are sorted ([`sorted`](super::sorted)).

use super::error::Res;
use super::sieve::{count_better, extreme, lanes_of, places_of};
use super::sorted::{self, Key, Team};
use super::split::{Found, count_workgroup};
use super::{Kernel, Writer, lanes};
use crate::graph::fused::TopK;
use crate::mir::{BlockId, Buffer, Gen, Part, Pipeline, Type};
use barewave_isa::{Target, op};

/// Lanes of a workgroup, and keys of a lane at most.
const LANES: [u32; 3] = [256, 512, 1024];
const EACH: u32 = TopK::EACH as u32;

/// Keys that are counted in a round with a lane's own, in reads of four.
const READ: u32 = 8;

/// Keys in LDS at most of which each is compared with all others; more are sorted.
const COMPARED: u32 = 512;

/// Bytes of a key.
const KEY: u32 = TopK::KEY as u32;

/// What a workgroup has to do beside its keys, as so many of a lane's; and what takes its time whatever its lanes, as so many of one of 256: that several meet, and
/// so many comparisons of a key that one lane makes one after the other.
const BESIDE: u32 = 6;
const MEETING: u32 = 24;
const COMPARISONS: u32 = 3;

/// How long lines are shared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Select {
    /// How many of the best are wanted.
    pub k: u32,
    /// Keys that a piece may leave.
    room: u32,
    /// Elements of a line.
    length: u32,
    /// Lanes of a workgroup, and elements of each at most.
    pub lanes: u32,
    pub each: u32,
    /// Pieces of a line.
    pub pieces: u32,
}

/// Keys of a lane.
struct Keys<'a> {
    /// 0 of those that are not there.
    codes: &'a [Part],
    /// The second words.
    places: &'a dyn Fn(&mut Writer, usize) -> Part,
}

/// The lanes of a workgroup.
struct Group {
    lanes: u32,
    item: Part,
    /// Where a workitem leaves a word for the other waves, and where each of a wave's finds those of all, from `counts` on.
    home: Part,
    others: Part,
    counts: u32,
    /// Which of two such places is next: with two words in each.
    turn: Part,
    /// The number of the workitem's wave, and the one whose word it finds.
    wave: Part,
    other: Part,
}

/// What keys have to be above.
struct Threshold {
    words: [Part; 2],
    /// Keys that are.
    count: Part,
}

/// Lanes that compare a key with others, each with some of them, where there is room for so many keys.
fn lanes_of_key(lanes: u32, room: u32) -> u32 {
    1 << (lanes / room).checked_ilog2().unwrap_or(0).min(lanes::ROW.ilog2())
}

/// What becomes of a key.
pub(super) trait Results {
    /// What is known of it.
    type Found;
    /// Looks up that of the last word of a key, in lanes that have one.
    fn find(&mut self, w: &mut Writer, kept: Part, inside: Option<Part>) -> Res<Self::Found>;
    /// Stores it as the result of a number, in lanes that have one.
    fn store(&mut self, w: &mut Writer, found: Self::Found, number: Part, ranked: Option<Part>) -> Res<()>;
}

impl Select {
    /// For the best `k` of so many lines of `n` elements.
    pub fn of(target: Target, lines: usize, n: usize, k: usize) -> Option<Select> {
        let room = TopK::room(k) as u32;
        let each = [4, 8, EACH].into_iter().flat_map(|each| LANES.map(|lanes| (lanes, each)));
        let all = each.filter_map(|(lanes, each)| {
            let pieces = n.div_ceil((lanes * each) as usize) as u32;
            let merged = if pieces > 1 { (pieces * room).div_ceil(lanes) } else { 0 };
            let fits = merged <= EACH
                && (room <= lanes || room > COMPARED && lanes >= LANES[2].min(k as u32))
                && n / pieces as usize >= room as usize
                && lines <= TopK::lines_left(pieces as usize, room as usize);
            let turns = (lines as u32 * pieces * lanes).div_ceil(1024 * target.cus());
            let compared = if room > COMPARED { 0 } else { room / lanes_of_key(lanes, room) / COMPARISONS };
            let meeting = if pieces > 1 { MEETING } else { 0 };
            let work = (each * turns + merged + BESIDE) * lanes + (compared + meeting) * LANES[0];
            fits.then_some((work, Select { k: k as u32, length: n as u32, room, lanes, each, pieces }))
        });
        all.min_by_key(|(work, _)| *work).map(|(_, select)| select)
    }

    /// Gives out the best keys of each line, each of whose lanes has so many codes; `first` is the place of the lane's first one, from which `numbers` go on. The
    /// workgroup is `number` of `lines` times as many as there are pieces.
    pub fn run(
        &self,
        mut w: Writer,
        (codes, numbers, first): (Vec<Part>, Vec<u32>, Part),
        (number, lines): (Part, usize),
        results: &mut impl Results,
        flops: u64,
    ) -> Res<Kernel> {
        let group = Group::new(&mut w, self.lanes);
        let places = |w: &mut Writer, e: usize| w.b.sub(u32::MAX - numbers[e], first);
        let own = Keys { codes: &codes, places: &places };
        let (grid, done) = ([lines as u32 * self.pieces, 1, 1], w.b.label());
        if self.pieces == 1 {
            self.put_in_order(&mut w, &group, &own, (None, done), results)?;
            w.b.place(done, "done");
            return Ok(w.finish(grid, flops));
        }
        let bytes = grid[0] * self.room * KEY;
        let workspace = w.workspace(bytes as usize);
        let threshold = self.threshold(&mut w, &group, &own, None)?;
        self.leave(&mut w, &group, &own, &threshold, (workspace, number))?;
        let line = w.b.udiv(number, self.pieces);
        let counter = w.b.mad(line, self.lanes, group.item);
        let counter = w.b.mul(counter, 4u32);
        count_workgroup(&mut w, counter, (self.lanes, Found::Apart), self.pieces - 1, done);
        let of_line = self.pieces * self.room;
        let start = w.b.mul(line, of_line * KEY);
        let own = w.b.shl(group.item, KEY.ilog2());
        let at = w.b.add(start, own);
        w.b.loads_from_device(true);
        let load = |from: u32| {
            let at = w.b.add(at, from * KEY);
            let inside = (from + self.lanes > of_line)
                .then(|| w.b.op(Gen::CmpGt.of(Type::U32), &[(of_line - from).into(), group.item.into()]));
            let at = inside.map_or(at, |inside| w.b.guard(inside, at));
            w.b.load(workspace, 2, at, 0u32, 0)
        };
        let left: Vec<Part> = (0..of_line).step_by(self.lanes as usize).map(load).collect();
        w.b.loads_from_device(false);
        let codes: Vec<Part> = left.iter().map(|key| key.dword(0)).collect();
        let places = |_: &mut Writer, e: usize| left[e].dword(1);
        self.put_in_order(
            &mut w,
            &group,
            &Keys { codes: &codes, places: &places },
            (Some(threshold.words[0]), done),
            results,
        )?;
        w.b.place(done, "done");
        let counters = lines * self.lanes as usize * 4;
        Ok(Kernel { workspace: bytes as usize, counters, sharing: [self.pieces, 1, 1], ..w.finish(grid, flops) })
    }

    /// Halves what is between a scalar, which `k` reach at least, and one that is so far above it that none is larger, until what is reached by no more than there is
    /// room for, or one number, is left: that is the first scalar then. Gives how many were counted last, without `k`.
    fn halve(
        &self,
        w: &mut Writer,
        [low, apart]: [Part; 2],
        name: &str,
        count: impl FnOnce(&mut Writer, Part) -> Res<Part>,
    ) -> Res<Part> {
        let over = w.b.scalar(0);
        let (head, found) = (w.b.block(name), w.b.label());
        let rest = w.b.shr(apart, 1u32);
        let half = w.b.sub(apart, rest);
        w.b.copy_into(apart, rest);
        let middle = w.b.add(low, half);
        let reached = count(w, middle)?;
        let more = w.b.sub(reached, self.k);
        w.b.copy_into(over, more);
        // All bits where too few do.
        let few = w.b.generic(Gen::Shr.of(Type::I32), &[over.into(), 31u32.into()]);
        let enough = w.b.generic(Gen::Not.of(Type::B32), &[few.into()]);
        let up = w.b.and(half, enough);
        let next = w.b.add(low, up);
        w.b.copy_into(low, next);
        w.b.branch_lt(over, self.room - self.k + 1, found);
        w.b.branch_lt(0u32, apart, head);
        w.b.place(found, "found");
        Ok(over)
    }

    /// The threshold of keys; `least` is reached by `k` of them at least.
    fn threshold(&self, w: &mut Writer, group: &Group, keys: &Keys<'_>, least: Option<Part>) -> Res<Threshold> {
        let own = extreme(w, keys.codes.to_vec(), true);
        let wave = w.b.wave_size();
        // As many teams of lanes as are wanted reach the smallest of what they have best.
        let teams = (self.lanes / self.k).checked_ilog2().map(|n| 1 << n.min(lanes::ROW.ilog2()));
        let of_teams = lanes::combine(w, teams.unwrap_or(1), &[own], lanes::by(Gen::Max, Type::U32))?;
        let ends = [Gen::Max, Gen::Min];
        let mut of_wave = Vec::new();
        for op in ends {
            of_wave.push(lanes::combine(w, wave, &of_teams, lanes::by(op, Type::U32))?[0]);
        }
        let found = group.exchange(w, [of_wave[0], of_wave[1]]);
        let [high, low] = [0, 1].map(|i| group.of_waves(w, found[i], ends[i]));
        let low = if teams.is_some() { low? } else { w.b.scalar(0) };
        if let Some(least) = least {
            let next = w.b.generic(Gen::Max.of(Type::U32), &[low.into(), least.into()]);
            w.b.copy_into(low, next);
        }
        let apart = w.b.sub(high?, low);
        let over = self.halve(w, [low, apart], "codes", |w, least| {
            let reached = keys.codes.iter().map(|x| w.b.op(Gen::CmpGe.of(Type::U32), &[(*x).into(), least.into()]));
            let reached: Vec<Part> = reached.collect();
            group.count(w, &reached)
        })?;
        // Below the last place, and how far the first one is above.
        let [lowest, apart] = [u32::MAX - self.length, self.length].map(|x| w.b.scalar(x));
        let join = w.b.label();
        w.b.branch_lt(over, self.room - self.k + 1, join);
        let among = self.halve(w, [lowest, apart], "places", |w, place| {
            let reached = keys.above(w, [low, place]);
            group.count(w, &reached)
        })?;
        w.b.copy_into(over, among);
        w.b.place(join, "threshold is known");
        let count = w.b.add(over, self.k);
        Ok(Threshold { words: [low, lowest], count })
    }

    /// Leaves the keys above a threshold in the workspace, and in what is left of the piece's room such as are not there.
    fn leave(
        &self,
        w: &mut Writer,
        group: &Group,
        keys: &Keys<'_>,
        threshold: &Threshold,
        (workspace, number): (Buffer, Part),
    ) -> Res<()> {
        let start = w.b.mul(number, self.room * KEY);
        w.b.stores_for_device(true);
        group.gather(w, keys, threshold, |w, key, place, kept| {
            let pair = w.b.v(2);
            (0..2).for_each(|d| w.b.copy_into(pair.dword(d), key[d as usize]));
            let at = w.b.shl(place, KEY.ilog2());
            let at = w.b.add(at, start);
            let at = w.b.guard(kept, at);
            w.b.store(workspace, pair, at, 0u32, 0);
        })?;
        let none = w.b.v(2);
        (0..2).for_each(|d| w.b.copy_into(none.dword(d), 0u32));
        for from in (0..self.room - self.k).step_by(self.lanes as usize) {
            let place = w.b.add(threshold.count, group.item);
            let place = w.b.add(place, from);
            let inside = w.b.op(Gen::CmpGt.of(Type::U32), &[self.room.into(), place.into()]);
            let at = w.b.shl(place, KEY.ilog2());
            let at = w.b.add(at, start);
            let at = w.b.guard(inside, at);
            w.b.store(workspace, none, at, 0u32, 0);
        }
        w.b.stores_for_device(false);
        Ok(())
    }

    /// Gives out the best keys of a workgroup; `least` is reached by `k` of them at least.
    fn put_in_order(
        &self,
        w: &mut Writer,
        group: &Group,
        keys: &Keys<'_>,
        (least, done): (Option<Part>, BlockId),
        results: &mut impl Results,
    ) -> Res<()> {
        let sorted = self.room > COMPARED;
        let team = self.room.next_power_of_two() / sorted::EACH;
        let each = if sorted { 1 } else { lanes_of_key(self.lanes, self.room) };
        let held = if sorted { team * sorted::EACH } else { (self.room + READ * each).next_multiple_of(4) };
        // What is nobody's is written behind the keys.
        let plane = (held + self.lanes) * 4;
        let region = w.b.lds(2 * plane);
        let home = w.b.shl(group.item, 2u32);
        let none = w.b.to_vector(0u32);
        for from in (0..held).step_by(self.lanes as usize) {
            (0..2).for_each(|d| w.b.lds_write(home, none, region + from * 4 + d * plane));
        }
        let threshold = self.threshold(w, group, keys, least)?;
        group.gather(w, keys, &threshold, |w, key, place, kept| {
            let at = w.b.shl(place, 2u32);
            let aside = w.b.add(home, held * 4);
            let at = w.b.select(kept, at, aside);
            (0..2).for_each(|d| w.b.lds_write(at, key[d as usize], region + d * plane));
        })?;
        w.b.barrier();
        if sorted {
            let inside = w.b.op(Gen::CmpGt.of(Type::U32), &[team.into(), group.item.into()]);
            w.b.branch_if_none(inside, done, "sort");
            let read = |e: u32| [1, 0].map(|d| w.b.lds_read(1, home, region + d * plane + e * team * 4)).to_vec();
            let keys: Vec<Key> = (0..sorted::EACH).map(read).collect();
            let sorted = Team { lanes: team, workgroup: team, member: group.item }.sort(w, keys, self.k)?;
            for (kept, from) in sorted.into_iter().zip((0..self.k).step_by(team as usize)) {
                let number = w.b.add(group.item, from);
                let ranked =
                    (self.k - from < team).then(|| w.b.op(Gen::CmpGt.of(Type::U32), &[self.k.into(), number.into()]));
                let found = results.find(w, kept, ranked)?;
                results.store(w, found, number, ranked)?;
            }
            return Ok(());
        }
        let number = w.b.shr(group.item, each.trailing_zeros());
        let inside = w.b.op(Gen::CmpGt.of(Type::U32), &[threshold.count.into(), number.into()]);
        w.b.branch_if_none(inside, done, "compare");
        let at = w.b.op(Gen::Min.of(Type::U32), &[number.into(), threshold.count.into()]);
        let at = w.b.shl(at, 2u32);
        let own = [0, 1].map(|d| w.b.lds_read(1, at, region + d * plane));
        // On its way while keys are compared.
        let found = results.find(w, own[1], Some(inside))?;
        let rank = w.b.to_vector(0u32);
        let among = w.b.and(group.item, each - 1);
        let among = w.b.shl(among, 4u32);
        let better = w.b.begin_loop("better");
        let from = w.b.shl(better.counter(), 2u32);
        let from = w.b.add(among, from);
        let read = |r: u32| [0, 1].map(|d| w.b.lds_read(4, from, region + r * each * 16 + d * plane));
        let others: Vec<[Part; 2]> = (0..READ / 4).map(read).collect();
        for other in &others {
            (0..4).for_each(|e| count_better(w, &own, &other.map(|word| word.dword(e)), rank));
        }
        w.b.end_loop(better, threshold.count, READ * each, Pipeline::Off, false);
        let rank = lanes::combine(w, each, &[rank], lanes::by(Gen::Add, Type::U32))?[0];
        let wanted = w.b.op(Gen::CmpGt.of(Type::U32), &[self.k.into(), rank.into()]);
        let mut ranked = w.b.mask_and(inside, wanted);
        if each > 1 {
            let leads = w.b.op(Gen::CmpEq.of(Type::U32), &[0u32.into(), among.into()]);
            ranked = w.b.mask_and(ranked, leads);
        }
        results.store(w, found, rank, Some(ranked))
    }
}

impl Keys<'_> {
    /// The lanes whose keys are above a threshold.
    fn above(&self, w: &mut Writer, [code, place]: [Part; 2]) -> Vec<Part> {
        let code = w.b.to_vector(code);
        let above = |(e, own): (usize, &Part)| {
            let second = (self.places)(w, e);
            let more = w.b.op(Gen::CmpLt.of(Type::U32), &[place.into(), second.into()]);
            let (unused, borrow) = (w.b.v(1), w.b.mask());
            let srcs = [code.into(), (*own).into(), more.into()];
            w.b.emit(op::V_SUBB_CO_U32, &[unused.into(), borrow.into()], &srcs);
            borrow
        };
        self.codes.iter().enumerate().map(above).collect()
    }
}

impl Group {
    fn new(w: &mut Writer, lanes: u32) -> Group {
        let wave = w.b.wave_size();
        let waves = lanes / wave;
        // Words of the waves lie in banks of their own.
        let counts = w.b.lds(4 * Group::words(lanes, wave) * 4);
        let item = w.b.workitem_id();
        let own = w.b.shr(item, wave.trailing_zeros());
        let home = w.b.add(item, own);
        let home = w.b.shl(home, 2u32);
        let other = w.b.and(item, waves - 1);
        let others = w.b.mul(other, (wave + 1) * 4);
        let turn = w.b.scalar(0);
        Group { lanes, item, home, others, counts, turn, wave: own, other }
    }

    /// Words of the workitems, and what lies between those of waves.
    fn words(lanes: u32, wave: u32) -> u32 {
        lanes + lanes / wave
    }

    /// What the wave of each lane's `other` has, words that are the same in all lanes of that.
    fn exchange<const N: usize>(&self, w: &mut Writer, own: [Part; N]) -> [Part; N] {
        let size = Group::words(self.lanes, w.b.wave_size()) * 4;
        let at = w.b.add(self.home, self.turn);
        let place = |i: usize| self.counts + 2 * size * i as u32;
        for (i, x) in own.into_iter().enumerate() {
            let x = w.b.to_vector(x);
            w.b.lds_write(at, x, place(i));
        }
        w.b.barrier();
        let from = w.b.add(self.others, self.turn);
        let next = w.b.sub(size, self.turn);
        w.b.copy_into(self.turn, next);
        std::array::from_fn(|i| w.b.lds_read(1, from, place(i)))
    }

    /// The words of waves combined, as a scalar.
    fn of_waves(&self, w: &mut Writer, found: Part, op: Gen) -> Res<Part> {
        let waves = self.lanes / w.b.wave_size();
        let all = lanes::combine(w, waves, &[found], lanes::by(op, Type::U32))?;
        Ok(w.b.uniform(all[0]))
    }

    /// How many lanes masks have.
    fn own_count(w: &mut Writer, masks: &[Part]) -> Part {
        let counts: Vec<Part> = masks.iter().map(|mask| lanes_of(w, *mask)).collect();
        counts.into_iter().reduce(|a, b| w.b.add(a, b)).unwrap_or_else(|| w.b.scalar(0))
    }

    /// How many lanes masks of all waves have.
    fn count(&self, w: &mut Writer, masks: &[Part]) -> Res<Part> {
        let own = Group::own_count(w, masks);
        let [found] = self.exchange(w, [own]);
        self.of_waves(w, found, Gen::Add)
    }

    /// Puts keys above a threshold somewhere: with the place of each among them, and the lanes that have one.
    fn gather(
        &self,
        w: &mut Writer,
        keys: &Keys<'_>,
        threshold: &Threshold,
        mut put: impl FnMut(&mut Writer, [Part; 2], Part, Part),
    ) -> Res<()> {
        let masks = keys.above(w, threshold.words);
        let own = Group::own_count(w, &masks);
        let [found] = self.exchange(w, [own]);
        let before = w.b.op(Gen::CmpGt.of(Type::U32), &[self.wave.into(), self.other.into()]);
        let found = w.b.select(before, found, 0u32);
        let mut from = self.of_waves(w, found, Gen::Add)?;
        for (e, (code, mask)) in keys.codes.iter().zip(masks).enumerate() {
            let place = places_of(w, mask, from);
            let second = (keys.places)(w, e);
            put(w, [*code, second], place, mask);
            let more = lanes_of(w, mask);
            from = w.b.add(from, more);
        }
        Ok(())
    }
}
