//! Keys shared among workgroups: while tokens are made one by one there are few queries and many keys. Each workgroup leaves the
//! results of its keys as they are, with the maximum and the sum that they are relative to; the last one to end
//! ([`split`](super::super::split)) puts them together: what is relative to a lower maximum is scaled down, and all is added.
//!
//! Where there are fewer queries than an instruction has columns, lanes of columns that are none read other parts, so that many
//! come at once, and combine what they have found in a butterfly. All orders are fixed.

use super::super::Writer;
use super::super::lanes;
use super::super::shares::Left;
use super::super::split::{IN_FLIGHT, Place, Shared};
use super::shares::Share;
use super::{Flash, LOWEST};
use crate::mir::{BlockId, Buffer, Builder, Gen, Opnd, Part, Pipeline, Type};

/// Parts that have been left and counted; `done` is where all go but the last one to end.
pub(super) struct Counted {
    pub shared: Shared,
    pub done: BlockId,
    /// Bytes of the workspace and of counters.
    pub bytes: [usize; 2],
    /// How many parts there are, and where they lie: so many bytes behind the place, or as shares do.
    count: Opnd,
    place: Place,
    share: Option<Share>,
    workspace: Buffer,
}

/// What some keys give, relative to a maximum: the sum of weights, and results.
struct State {
    max: Part,
    sum: Part,
    results: Vec<Part>,
}

impl Flash<'_> {
    /// Leaves the workgroup's part; only the last one of those who share the keys goes on.
    pub(super) fn share(&self, w: &mut Writer, number: Part, results: &[Part], (max, sum): (Part, Part)) -> Counted {
        let (plan, e) = (&self.plan, &self.plan.e);
        let tiles = [plan.blocks(), e.batches as u32, 1];
        let threads = plan.form.waves.0 * plan.lanes();
        let shared = Shared { threads, dwords: plan.left(), count: plan.parts, tiles };
        let zero = w.b.scalar(0);
        let place = shared.place(w, zero);
        let workspace = w.workspace(shared.bytes());
        let all = self.all_of(w, (results, max, sum));
        shared.leave(w, workspace, &place, number, &all);
        let done = w.b.label();
        shared.count_in(w, &place, shared.count - 1, done);
        let bytes = [shared.bytes(), shared.counters()];
        Counted { count: shared.count.into(), shared, done, bytes, place, share: None, workspace }
    }

    /// The same for a share of the units, of whose block it has not all keys.
    pub(super) fn share_of_block(
        &self,
        w: &mut Writer,
        share: &Share,
        done: BlockId,
        results: &[Part],
        (max, sum): (Part, Part),
    ) -> Counted {
        let (plan, e) = (&self.plan, &self.plan.e);
        let threads = plan.form.waves.0 * plan.lanes();
        let blocks = plan.blocks() * e.batches as u32;
        let groups = plan.shares.map_or(1, |s| s.groups);
        let number = w.b.workgroup_id(0);
        let all = self.all_of(w, (results, max, sum));
        let Left { shared, place, workspace, bytes } =
            share.ends.leave(w, (threads, groups), (share.block, blocks), (number, &all, [None; 2]), done);
        let count = w.b.add(share.ends.others, 1u32).into();
        Counted { count, shared, done, bytes, place, share: Some(*share), workspace }
    }

    /// Results with what they are relative to.
    fn all_of(&self, w: &mut Writer, (results, max, sum): (&[Part], Part, Part)) -> Vec<Part> {
        let both = w.b.v(2);
        w.b.copy_into(both.dword(0), max);
        w.b.copy_into(both.dword(1), sum);
        results.iter().copied().chain([both]).collect()
    }

    /// Results and sum of all parts, of which there are `count` pieces of registers.
    pub(super) fn put_together(&self, w: &mut Writer, c: &Counted, count: usize) -> (Vec<Part>, Part) {
        let plan = &self.plan;
        let per = (plan.form.side() * plan.form.side() / plan.lanes()) as u8;
        let b = &mut w.b;
        let (max, sum) = (self.float.held(b, LOWEST), self.float.held(b, 0.0));
        let results: Vec<Part> = (0..count).map(|_| b.v(per)).collect();
        for p in &results {
            (0..p.len).for_each(|i| b.copy_into(p.dword(i), 0u32));
        }
        let state = State { max, sum, results };
        let twins = self.twins();
        let item = b.workitem_id();
        // The lane of the same query in the first column that has it, and which of those columns the lane's is.
        let hidden: u32 = twins.iter().sum();
        let home = if hidden > 0 { b.and(item, !hidden) } else { item };
        let twin = twins.iter().enumerate().map(|(i, bit)| {
            let one = b.shr(item, bit.trailing_zeros());
            let one = b.and(one, 1u32);
            b.shl(one, i as u32)
        });
        let twin: Vec<Part> = twin.collect();
        let twin = twin.into_iter().reduce(|x, y| b.add(x, y)).unwrap_or_else(|| b.to_vector(0u32));
        let twin = b.to_vector(twin);
        let ahead = b.mul(twin, c.shared.part());
        let at_once = 1u32 << twins.len();
        let lanes: Vec<Part> = (1..=4).map(|dwords| b.mad(home, dwords * 4, ahead)).collect();
        let limit = match c.share {
            Some(_) => c.count,
            None => plan.parts.next_multiple_of(at_once).into(),
        };
        b.counted_loop("parts", limit, at_once, Pipeline::Off, false, |b, first| {
            let slot = match &c.share {
                Some(share) => {
                    let number = b.add(share.ends.first, first);
                    share.ends.slot(b, number)
                }
                None => first,
            };
            let start = b.mad(slot, c.shared.part(), c.place.group);
            let load = |b: &mut Builder, dwords: u8, before: u32| {
                b.device_load(c.workspace, dwords, lanes[usize::from(dwords) - 1], start, before * 4 * c.shared.threads)
            };
            let both = load(b, 2, plan.left() - 2);
            // What lies behind the last part is read as zero, and must not be the maximum.
            let number = b.add(twin, first);
            let inside = b.op(Gen::CmpGt.of(Type::U32), &[c.count, number.into()]);
            let lowest = self.float.held(b, LOWEST);
            let theirs = b.select(inside, both.dword(0), lowest);
            let (keep, take) = self.grow(b, max, theirs);
            self.mix(b, sum, both.dword(1), keep, take);
            for some in Shared::pieces(&state.results).chunks((IN_FLIGHT / 4) as usize) {
                let loaded: Vec<Part> = some.iter().map(|p| load(b, p.0.len, p.1)).collect();
                for ((own, _), new) in some.iter().zip(loaded) {
                    (0..own.len).for_each(|i| self.mix(b, own.dword(i), new.dword(i), keep, take));
                }
            }
        });
        for bit in twins {
            self.meet(&mut w.b, &state, bit);
        }
        (state.results, state.sum)
    }

    /// Bits of a lane's number that name columns without a query.
    fn twins(&self) -> Vec<u32> {
        let first = self.plan.form.side() / self.plan.at_once();
        let named = self.columns.iter().enumerate().filter(|(_, column)| **column >= first);
        let mut bits: Vec<(u32, u32)> = named.map(|(bit, column)| (*column, 1 << bit)).collect();
        bits.sort_unstable();
        bits.into_iter().map(|b| b.1).collect()
    }

    /// Combines with the lane whose number differs in one bit.
    fn meet(&self, b: &mut Builder, state: &State, bit: u32) {
        let theirs = lanes::across(b, state.max, bit);
        let sum = lanes::across(b, state.sum, bit);
        let results: Vec<Part> = state
            .results
            .iter()
            .flat_map(|p| (0..p.len).map(|i| p.dword(i)))
            .map(|own| lanes::across(b, own, bit))
            .collect();
        let (keep, take) = self.grow(b, state.max, theirs);
        self.mix(b, state.sum, sum, keep, take);
        let own = state.results.iter().flat_map(|p| (0..p.len).map(|i| p.dword(i)));
        own.zip(results).for_each(|(own, other)| self.mix(b, own, other, keep, take));
    }

    /// Takes the larger maximum; gives what scales what was relative to the own one, and to theirs.
    fn grow(&self, b: &mut Builder, max: Part, theirs: Part) -> (Part, Part) {
        let float = self.float;
        let new = float.op(b, Gen::Max, max, theirs);
        let factor = float.held(b, self.factor);
        let [keep, take] = [max, theirs].map(|x| {
            let gone = float.op(b, Gen::Sub, x, new);
            let gone = float.mul(b, gone, factor);
            b.op(Gen::Exp2.of(Type::F32), &[gone.into()])
        });
        b.copy_into(max, new);
        (keep, take)
    }

    /// `own = own keep + other take`.
    fn mix(&self, b: &mut Builder, own: Part, other: Part, keep: Part, take: Part) {
        let kept = self.float.mul(b, own, keep);
        let x = self.float.fma(b, other, take, kept);
        b.copy_into(own, x);
    }
}
