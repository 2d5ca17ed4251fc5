//! Many updates of a tensor: their numbers are sorted by the places that they are for, so that each element of the result finds
//! its own side by side and in their order. What is combined is combined in that order, the same in every run.

use super::rank::{ABOVE, around, in_order};
use super::scatter::{Combine, held};
use crate::graph::expr::{Binary, Scalar, Val};
use crate::graph::fused::{Access, Coder};
use crate::graph::lazy::Lazy;
use crate::graph::lower::Lowering;
use crate::tensor::DType;

/// More updates of a line than that are sorted.
const FEW: usize = 64;

/// Updates that an element takes up at once, at most: as many loads are on their way together.
const AT_ONCE: usize = 16;

/// Updates of a tensor along one of its dimensions.
pub(super) struct Updates {
    /// What is updated, of these dimensions.
    pub data: Access,
    pub shape: Vec<usize>,
    pub axis: usize,
    /// The updates; their dimensions are not larger than those of the data, but for the axis.
    pub updates: Access,
    pub dims: Vec<usize>,
    /// For what place along the axis each update is, an `i32`; those that are for none are outside. Of these dimensions, those of the
    /// updates or 1 where all along a dimension are for the same.
    pub places: Access,
    pub lines: Vec<usize>,
}

/// The number in row-major order of an element at coordinates; those in dimensions of one element are not asked for.
fn place(c: &mut Coder, at: &[Val], dims: &[usize]) -> Val {
    let (at, dims): (Vec<Val>, Vec<usize>) =
        at.iter().copied().zip(dims.iter().copied()).filter(|(_, n)| *n != 1).unzip();
    c.place(&at, &dims)
}

/// Whether so many updates along an axis are sorted.
pub(super) fn many(updates: usize) -> bool {
    updates > FEW
}

impl Updates {
    /// Where among the sorted updates those for each place begin, and where all end.
    fn starts(&self, cx: &mut Lowering<'_>, sorted: Access) -> Access {
        let [outer, n, inner] = around(&self.lines, self.axis);
        let starts = cx.program(vec![sorted], &[outer, self.shape[self.axis] + 1, inner], |c| {
            let [o, row, q] = [0, 1, 2].map(|d| c.coord(d));
            let above = c.literal(DType::I64, Scalar::Int(ABOVE));
            let wanted = c.cast(row, DType::I64);
            let wanted = c.mul(wanted, above);
            let (least, most) = (c.int(0), c.int(n as i64));
            let (low, high) = (c.var(least), c.var(most));
            c.repeat(n.ilog2() as usize + 1, |c, _| {
                let (from, to) = (c.get(low), c.get(high));
                let sum = c.add(from, to);
                let (middle, _) = c.divide(sum, 2);
                let inside = c.clamp(middle, 0, n as i64);
                let at = place(c, &[o, inside, q], &[outer, n, inner]);
                let there = c.load(0, at);
                let (less, open) = (c.lt(there, wanted), c.lt(from, to));
                let up = c.plus(middle, 1);
                let next = c.select(less, up, from);
                let from = c.select(open, next, from);
                let to = c.select(less, to, middle);
                c.set(low, from);
                c.set(high, to);
            });
            c.get(low)
        });
        cx.stored_access(starts)
    }

    /// The tensor after its updates.
    pub fn apply(self, cx: &mut Lowering<'_>, how: Combine) -> Lazy {
        let dtype = cx.graph.tensor(self.data.tensor).dtype;
        let sorted = in_order(cx, self.places.clone(), around(&self.lines, self.axis));
        let starts = self.starts(cx, sorted.clone());
        let Updates { data, shape, axis, updates, dims, lines, .. } = self;
        let mut ends = lines.clone();
        ends[axis] = shape[axis] + 1;
        let all = dims[axis];
        // What a place has to expect, if all have as many.
        let together = (all / shape[axis]).clamp(1, AT_ONCE).next_power_of_two();
        cx.program(vec![data, updates, sorted, starts], &shape, |c| {
            let mut at: Vec<Val> = (0..shape.len()).map(|d| c.coord(d)).collect();
            let here = place(c, &at, &shape);
            let old = c.load(0, here);
            let old = held(c, old);
            // Other coordinates beyond those of the updates get none.
            let mut covered = None;
            for d in (0..shape.len()).filter(|d| *d != axis && dims[*d] < shape[*d]) {
                let inside = c.within(at[d], 0, dims[d] as i64);
                covered = Some(covered.map_or(inside, |m| c.and(m, inside)));
                at[d] = c.clamp(at[d], 0, dims[d] as i64);
            }
            let first = place(c, &at, &ends);
            let first = c.load(3, first);
            let mut next = at.clone();
            next[axis] = c.plus(at[axis], 1);
            let end = place(c, &next, &ends);
            let mut end = c.load(3, end);
            if let Some(m) = covered {
                end = c.select(m, end, first);
            }
            let number = |c: &mut Coder, i: Val| {
                let mut at = at.clone();
                at[axis] = c.clamp(i, 0, all as i64);
                let i = place(c, &at, &lines);
                c.load_int(2, i)
            };
            let update = |c: &mut Coder, number: Val| {
                let mut at = at.clone();
                at[axis] = number;
                let i = place(c, &at, &dims);
                let update = c.load(1, i);
                held(c, update)
            };
            let some = c.lt(first, end);
            let result = if how == Combine::Replace {
                let last = c.plus(end, -1);
                let last = number(c, last);
                let new = update(c, last);
                c.select(some, new, old)
            } else {
                let (now, next) = (c.var(old), c.var(first));
                c.repeat_while(some, |c| {
                    let from = c.get(next);
                    let each: Vec<Val> = (0..together as i64).map(|e| c.plus(from, e)).collect();
                    let numbers: Vec<Val> = each.iter().map(|i| number(c, *i)).collect();
                    let news: Vec<Val> = numbers.iter().map(|n| update(c, *n)).collect();
                    let mut value = c.get(now);
                    for (i, new) in each.into_iter().zip(news) {
                        let combined = how.apply(c, value, new);
                        let inside = c.lt(i, end);
                        value = c.select(inside, combined, value);
                    }
                    c.set(now, value);
                    let from = c.plus(from, together as i64);
                    let from = c.binary(Binary::Min, from, end);
                    c.set(next, from);
                    c.lt(from, end)
                });
                c.get(now)
            };
            c.cast(result, dtype)
        })
    }
}
