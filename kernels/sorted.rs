//! Sorting of lines in a workgroup: bitonic merges, of which a lane does four steps at once in registers.
//!
//! A lane holds sixteen keys and sorts them by a network (Batcher 1968). Runs of sixteen are then merged in pairs, stage by stage, in LDS: of each
//! pair the second one is taken backwards, so that all comparisons point one way, and elements whose places differ in one bit are compared,
//! from the highest bit down. A pass takes up what differs in four neighbouring bits of the place, compares in these, and leaves it where it
//! was. Where fewer than four bits are left a pass compares in some again, which changes nothing. Places are spread by one word in each
//! sixteen, so that lanes that are sixteen places apart read different banks.

use super::Writer;
use super::error::{Reason, Res};
use super::reduce::scalar_loop;
use crate::mir::{Gen, Part, Type};
use barewave_isa::op;

/// Keys of a lane.
pub(super) const EACH: u32 = 16;
const BITS: u32 = EACH.ilog2();

/// A key: words of a whole number without a sign, the lowest one first.
pub(super) type Key = Vec<Part>;

/// A team of lanes that sorts a line.
pub(super) struct Team {
    /// Lanes, a power of two.
    pub lanes: u32,
    /// Lanes of the workgroup.
    pub workgroup: u32,
    /// A lane's number in its team.
    pub member: Part,
}

/// The lanes whose first number is less than the second, of words of both of which the lowest are first: what is borrowed of those above says so.
pub(super) fn less<'a>(w: &mut Writer, words: impl Iterator<Item = (&'a Part, &'a Part)>) -> Option<Part> {
    let mut less: Option<Part> = None;
    for (x, y) in words {
        let (unused, borrow) = (w.b.v(1), w.b.mask());
        let dsts = [unused.into(), borrow.into()];
        match less {
            None => w.b.emit(op::V_SUB_CO_U32, &dsts, &[(*x).into(), (*y).into()]),
            Some(less) => w.b.emit(op::V_SUBB_CO_U32, &dsts, &[(*x).into(), (*y).into(), less.into()]),
        }
        less = Some(borrow);
    }
    less
}

/// The larger of two keys first.
fn exchange(w: &mut Writer, keys: &mut [Key], i: usize, j: usize) {
    let (x, y) = (keys[i].clone(), keys[j].clone());
    if let ([x], [y]) = (&x[..], &y[..]) {
        let of = |w: &mut Writer, g: Gen| w.b.generic(g.of(Type::U32), &[(*x).into(), (*y).into()]);
        (keys[i], keys[j]) = (vec![of(w, Gen::Max)], vec![of(w, Gen::Min)]);
        return;
    }
    let less = less(w, x.iter().zip(&y));
    if let Some(less) = less {
        keys[i] = x.iter().zip(&y).map(|(x, y)| w.b.select(less, *y, *x)).collect();
        keys[j] = x.iter().zip(&y).map(|(x, y)| w.b.select(less, *x, *y)).collect();
    }
}

/// Sorts the keys of each lane.
pub(super) fn sort_own(w: &mut Writer, keys: &mut [Key]) {
    let n = keys.len();
    let mut p = 1;
    while p < n {
        let mut k = p;
        while k > 0 {
            for j in (k % p..n - k).step_by(2 * k) {
                for i in j..(j + k).min(n - k) {
                    if i / (2 * p) == (i + k) / (2 * p) {
                        exchange(w, keys, i, i + k);
                    }
                }
            }
            k /= 2;
        }
        p *= 2;
    }
}

/// Compares the keys of each lane that differ in one of these bits of their number, the highest one first.
pub(super) fn compare(w: &mut Writer, keys: &mut [Key], bits: u32) {
    for bit in (0..bits).rev() {
        for i in (0..keys.len()).filter(|i| i >> bit & 1 == 0) {
            exchange(w, keys, i, i | 1 << bit);
        }
    }
}

/// Where places are in LDS, in bytes: the sum of these for bits of the place is that for all.
fn spread(w: &mut Writer, place: Part) -> Part {
    let more = w.b.shr(place, BITS);
    let at = w.b.add(place, more);
    w.b.shl(at, 2u32)
}

impl Team {
    /// Bytes between words of a key.
    fn plane(&self) -> u32 {
        (self.workgroup * EACH + self.workgroup) * 4
    }

    /// Addresses of what differs in four bits from bit `low` on, which is a scalar; those of the second half with the bits below turned over, or not.
    fn addresses(&self, w: &mut Writer, own: Part, low: Part, turned: bool) -> Vec<Part> {
        let one = w.b.scalar(1);
        let unit = w.b.shl(one, low);
        let mask = w.b.sub(unit, 1u32);
        let below = w.b.and(self.member, mask);
        let above = w.b.sub(self.member, below);
        let above = w.b.shl(above, BITS);
        let of = |w: &mut Writer, below: Part| {
            let place = w.b.add(above, below);
            let at = spread(w, place);
            w.b.add(at, own)
        };
        let first = of(w, below);
        let second = if turned {
            let below = w.b.generic(Gen::Xor.of(Type::B32), &[below.into(), mask.into()]);
            of(w, below)
        } else {
            first
        };
        let at = |w: &mut Writer, e: u32| {
            let number = w.b.scalar(e);
            let step = w.b.shl(number, low);
            let step = spread(w, step);
            w.b.add(if e >= EACH / 2 { second } else { first }, step)
        };
        (0..EACH).map(|e| if e == 0 { first } else { at(w, e) }).collect()
    }

    fn read(&self, w: &mut Writer, at: &[Part], words: usize) -> Vec<Key> {
        let of = |w: &mut Writer, at: Part| (0..words as u32).map(|d| w.b.lds_read(1, at, d * self.plane())).collect();
        at.iter().map(|at| of(w, *at)).collect()
    }

    fn write(&self, w: &mut Writer, at: &[Part], keys: &[Key]) {
        for (at, key) in at.iter().zip(keys) {
            for (d, word) in (0..).zip(key) {
                w.b.lds_write(*at, *word, d * self.plane());
            }
        }
        w.b.barrier();
    }

    /// Sorts the keys of all lanes, [`EACH`] of one lane, the largest one first. What is left is the lowest word of those of them
    /// whose numbers are the lane's own, and so many lanes further each: the first `count`.
    pub fn sort(&self, w: &mut Writer, mut keys: Vec<Key>, count: u32) -> Res<Vec<Part>> {
        let words = keys.first().map_or(0, Vec::len);
        if keys.len() != EACH as usize {
            return Err(Reason::Malformed("keys that do not fill a lane"));
        }
        sort_own(w, &mut keys);
        if self.lanes == 1 {
            return Ok(keys.into_iter().map(|key| key[0]).take(count as usize).collect());
        }
        let base = w.b.lds(self.plane() * words as u32);
        let item = w.b.workitem_id();
        let lines = w.b.sub(item, self.member);
        let own = w.b.mul(lines, (EACH + 1) * 4);
        let own = if base > 0 { w.b.add(own, base) } else { own };
        let none = w.b.scalar(0);
        let at = self.addresses(w, own, none, false);
        self.write(w, &at, &keys);
        scalar_loop(w, "merges", self.lanes.ilog2(), |w, stage| {
            let top = w.b.add(stage, 1u32);
            let at = self.addresses(w, own, top, true);
            let mut keys = self.read(w, &at, words);
            for e in 0..EACH as usize / 2 {
                exchange(w, &mut keys, e, EACH as usize - 1 - e);
            }
            compare(w, &mut keys, BITS - 1);
            self.write(w, &at, &keys);
            let low = w.b.s(1);
            w.b.copy_into(low, top);
            let head = w.b.block("passes");
            let next = w.b.generic(Gen::Max.of(Type::U32), &[low.into(), BITS.into()]);
            let next = w.b.sub(next, BITS);
            w.b.copy_into(low, next);
            let at = self.addresses(w, own, low, false);
            let mut keys = self.read(w, &at, words);
            compare(w, &mut keys, BITS);
            self.write(w, &at, &keys);
            w.b.branch_lt(0u32, low, head);
            Ok(())
        })?;
        let numbers = (0..count.div_ceil(self.lanes)).map(|r| {
            let place = w.b.add(self.member, r * self.lanes);
            let at = spread(w, place);
            let at = w.b.add(at, own);
            w.b.lds_read(1, at, 0)
        });
        Ok(numbers.collect())
    }
}
