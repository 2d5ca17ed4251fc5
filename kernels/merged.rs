//! The best few keys of a team's lanes by merging: each lane sorts its own, so many at a time, and of two sorted lists the larger of the first of one and the
//! last of the other, and so on, are the best of both, in an order that a few comparisons put right (Batcher 1968). So lists of a lane meet, and then those
//! of lanes. Every lane of the team has all of the best at the end.

use super::error::Res;
use super::sorted::{self, Key};
use super::{Writer, lanes};
use crate::mir::{Gen, Part, Type};

/// Keys that are kept, at most.
pub(super) const MOST: usize = 16;

/// Instructions for a comparison, which gives the larger and the smaller one, and comparisons that sort 1, 2, 4 ... keys.
const EXCHANGE: f64 = 2.0;
const SORTED: [f64; 5] = [0.0, 1.0, 5.0, 19.0, 63.0];

/// Instructions of a wave beside these.
const BESIDE: f64 = 30.0;

/// Keys that are kept where so many are wanted.
pub(super) fn kept(k: usize) -> usize {
    k.next_power_of_two()
}

/// Instructions of a wave whose lanes hold so many keys each, in teams of so many lanes; the best ones are kept, and each lane takes one.
pub(super) fn instructions(k: usize, held: usize, team: u32) -> f64 {
    let (kept, bits) = (kept(k) as f64, kept(k).ilog2());
    let lists = held.div_ceil(kept as usize) as f64;
    let cleaned = EXCHANGE * kept / 2.0 * f64::from(bits);
    let met = f64::from(team.ilog2()) * (2.0 * kept + cleaned);
    SORTED[bits as usize] * EXCHANGE * lists + (lists - 1.0) * (kept + cleaned) + met + 2.0 * k as f64 + BESIDE
}

/// The best of two sorted lists, as many as each has.
fn merge(w: &mut Writer, a: &[Part], b: &[Part]) -> Vec<Part> {
    let pairs = a.iter().zip(b.iter().rev());
    let mut keys: Vec<Key> =
        pairs.map(|(x, y)| vec![w.b.generic(Gen::Max.of(Type::U32), &[(*x).into(), (*y).into()])]).collect();
    let bits = keys.len().ilog2();
    sorted::compare(w, &mut keys, bits);
    keys.into_iter().map(|key| key[0]).collect()
}

/// The best keys of each team, the largest one first, as many as are kept where `k` are wanted.
pub(super) fn best(w: &mut Writer, keys: &[Part], k: usize, team: u32) -> Res<Vec<Part>> {
    let mut lists: Vec<Vec<Part>> = Vec::new();
    for (i, some) in keys.chunks(kept(k)).enumerate() {
        let mut list: Vec<Key> = some.iter().map(|key| vec![*key]).collect();
        while list.len() < kept(k) {
            list.push(vec![w.b.to_vector(0u32)]);
        }
        sorted::sort_own(w, &mut list);
        lists.push(list.into_iter().map(|key| key[0]).collect());
        // Two at a time, so that no more are kept than there have to be.
        for _ in 0..(i + 1).trailing_zeros() {
            let (b, a) = (lists.pop().unwrap_or_default(), lists.pop().unwrap_or_default());
            lists.push(merge(w, &a, &b));
        }
    }
    let own = lists.into_iter().reduce(|a, b| merge(w, &a, &b)).unwrap_or_default();
    lanes::combine(w, team, &own, |w, a, b| Ok(merge(w, a, b)))
}

/// The key of a list that has the lane's number in its team, of the first `k` from `from` on.
pub(super) fn of_lane(w: &mut Writer, list: &[Part], member: Part, [from, team]: [usize; 2], k: usize) -> Part {
    let some = &list[from..k.min(from + team)];
    let mut own = some[0];
    for (number, key) in (0u32..).zip(some).skip(1) {
        let mine = w.b.op(Gen::CmpEq.of(Type::U32), &[number.into(), member.into()]);
        own = w.b.select(mine, *key, own);
    }
    own
}
