//! Many updates of a tensor: their numbers are sorted by the places that they are for, so that each element of the result finds
//! its own side by side and in their order. What is combined is combined in that order, the same in every run. Of what replaces only the last one of each
//! place is looked for.

use super::rank::{ABOVE, around, in_order};
use super::scatter::{Combine, held};
use crate::graph::expr::{Binary, Scalar, Val};
use crate::graph::fused::{Access, Coder, Lasts, Role, StepKind};
use crate::graph::lazy::Lazy;
use crate::graph::lower::Lowering;
use crate::graph::view::View;
use crate::tensor::DType;

/// More updates of a line than that are sorted: as many launches take as long as looking at so many.
const FEW: usize = 64;

/// Fewer are, but not so few, where all elements together would look at more than that.
const LOOKS: usize = 1 << 26;
const VERY_FEW: usize = 10;

/// Updates that an element takes up at once, at most: as many loads are on their way together.
const AT_ONCE: usize = 16;

/// Indices that say where updates go.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Indices {
    /// One for each of the extents, side by side; all of them densely.
    pub table: Access,
    /// The dimensions of the updates, or 1 where all along one are for the same place.
    pub lines: Vec<usize>,
    /// Along which of them updates are for places of one line.
    pub axis: usize,
    /// What the places along it are numbered by.
    pub extents: Vec<usize>,
}

/// Updates in order of their places.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    /// As [`in_order`] gives them.
    sorted: Access,
    /// Where among these those for each place begin, and where all end.
    starts: Access,
}

/// Updates of a tensor along one of its dimensions.
pub(super) struct Updates {
    /// What is updated.
    pub data: Result<Access, Scalar>,
    /// Its dimensions.
    pub shape: Vec<usize>,
    /// Along which one places are told.
    pub axis: usize,
    /// What updates it, of no larger dimensions but for the axis.
    pub updates: Access,
    /// Its dimensions.
    pub dims: Vec<usize>,
    /// The dimensions of its indices: the same ones, or 1 where all along one are for the same place.
    pub lines: Vec<usize>,
}

/// The number in row-major order of an element at coordinates; those in dimensions of one element are not asked for.
pub(super) fn place(c: &mut Coder, at: &[Val], dims: &[usize]) -> Val {
    let (at, dims): (Vec<Val>, Vec<usize>) =
        at.iter().copied().zip(dims.iter().copied()).filter(|(_, n)| *n != 1).unzip();
    c.place(&at, &dims)
}

/// Whether so many updates along an axis are sorted, at each of which so many elements would look otherwise.
pub(super) fn many(updates: usize, elements: usize) -> bool {
    updates > FEW || updates > VERY_FEW && updates.saturating_mul(elements) > LOOKS
}

/// The place that the indices `u` of a table are for, outside of all places when one of them is out of range.
pub(super) fn target(c: &mut Coder, operand: usize, u: Val, extents: &[usize]) -> Val {
    let first = c.times(u, extents.len() as i64);
    let coords: Vec<Val> = (0..extents.len())
        .map(|d| {
            let at = c.plus(first, d as i64);
            let i = c.load_int(operand, at);
            c.wrapped(i, extents[d])
        })
        .collect();
    let row = c.place(&coords, extents);
    if extents.len() == 1 {
        return row;
    }
    let none = c.int(-1);
    coords.iter().zip(extents).fold(row, |row, (i, n)| {
        let inside = c.within(*i, 0, *n as i64);
        c.select(inside, row, none)
    })
}

impl Indices {
    /// The updates in order, perhaps those of another scatter.
    pub fn order(&self, cx: &mut Lowering<'_>) -> Order {
        let known = cx.orders.iter().find(|(other, _)| other.is_same(self, cx));
        if let Some((_, order)) = known {
            return order.clone();
        }
        let Indices { table, lines, axis, extents } = self;
        let places = cx.program(vec![table.clone()], lines, |c| {
            let at: Vec<Val> = (0..lines.len()).map(|d| c.coord(d)).collect();
            let u = place(c, &at, lines);
            target(c, 0, u, extents)
        });
        let order = Order::of(cx, places, lines, *axis, extents.iter().product());
        cx.orders.push((self.clone(), order.clone()));
        order
    }

    /// The last update of each place, perhaps found for another scatter, -1 where there is none.
    pub fn lasts(&self, cx: &mut Lowering<'_>) -> Access {
        if let Some((_, last)) = cx.lasts.iter().find(|(other, _)| other.is_same(self, cx)) {
            return last.clone();
        }
        let Indices { table, lines, axis, extents } = self;
        let extent = extents.iter().product();
        let places = match extents.len() {
            1 => Access { view: table.view.reshaped(lines).unwrap_or_else(|| View::dense(lines)), ..table.clone() },
            _ => {
                let places = cx.program(vec![table.clone()], lines, |c| {
                    let at: Vec<Val> = (0..lines.len()).map(|d| c.coord(d)).collect();
                    let u = place(c, &at, lines);
                    let to = target(c, 0, u, extents);
                    let (inside, none) = (c.within(to, 0, extent as i64), c.int(extent as i64));
                    c.select(inside, to, none)
                });
                cx.stored_access(places)
            }
        };
        let last = lasts(cx, places, lines, *axis, extent);
        cx.lasts.push((self.clone(), last.clone()));
        last
    }

    /// They are the same ones, or equal constants.
    pub fn is_same(&self, other: &Indices, cx: &Lowering<'_>) -> bool {
        let constant = |i: &Indices| match &cx.graph.tensor(i.table.tensor).role {
            Role::Constant(t) => Some(t),
            _ => None,
        };
        let table = match (constant(self), constant(other)) {
            (Some(a), Some(b)) => self.table.view == other.table.view && a == b,
            _ => self.table == other.table,
        };
        table && (&self.lines, self.axis, &self.extents) == (&other.lines, other.axis, &other.extents)
    }
}

/// The last update of each place of so many along an axis, by places of updates in lines; -1 where there is none.
pub(super) fn lasts(cx: &mut Lowering<'_>, places: Access, lines: &[usize], axis: usize, extent: usize) -> Access {
    let mut dims = lines.to_vec();
    dims[axis] = extent;
    let last = cx.produce(StepKind::Lasts(Lasts { axis }), vec![places], &dims, DType::I32);
    cx.stored_access(last)
}

impl Order {
    /// Of updates for places along an axis below `extent`, an `i32` each; those that are for none are outside.
    pub fn of(cx: &mut Lowering<'_>, places: Lazy, lines: &[usize], axis: usize, extent: usize) -> Order {
        let places = cx.stored_access(places);
        let dims @ [outer, n, inner] = around(lines, axis);
        let sorted = in_order(cx, places, dims);
        let starts = cx.program(vec![sorted.clone()], &[outer, extent + 1, inner], |c| {
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
        Order { starts: cx.stored_access(starts), sorted }
    }
}

impl Updates {
    /// The tensor after its updates, which go where indices say.
    pub fn by_indices(self, cx: &mut Lowering<'_>, indices: &Indices, how: Combine) -> Lazy {
        if how == Combine::Replace {
            let last = indices.lasts(cx);
            return self.replace(cx, last);
        }
        let order = indices.order(cx);
        self.apply(cx, order, how)
    }

    /// The element at coordinates as it was, of the last operand where it is one.
    fn old(&self, c: &mut Coder, at: &[Val], operand: usize, dtype: DType) -> Val {
        match self.data {
            Ok(_) => {
                let here = place(c, at, &self.shape);
                c.load(operand, here)
            }
            Err(fill) => c.literal(dtype, fill),
        }
    }

    /// Coordinates within those of updates, and whether they were that already where they need not be.
    fn within(&self, c: &mut Coder, at: &mut [Val]) -> Option<Val> {
        let mut covered = None;
        for d in (0..self.shape.len()).filter(|d| *d != self.axis && self.dims[*d] < self.shape[*d]) {
            let inside = c.within(at[d], 0, self.dims[d] as i64);
            covered = Some(covered.map_or(inside, |m| c.and(m, inside)));
            at[d] = c.clamp(at[d], 0, self.dims[d] as i64);
        }
        covered
    }

    /// The tensor with the last update of each place instead of what was there.
    pub fn replace(self, cx: &mut Lowering<'_>, last: Access) -> Lazy {
        let dtype = cx.graph.tensor(self.updates.tensor).dtype;
        let mut places = self.lines.clone();
        places[self.axis] = self.shape[self.axis];
        let operands: Vec<Access> = [self.updates.clone(), last].into_iter().chain(self.data.clone()).collect();
        cx.program(operands, &self.shape, |c| {
            let mut at: Vec<Val> = (0..self.shape.len()).map(|d| c.coord(d)).collect();
            let old = self.old(c, &at, 2, dtype);
            let covered = self.within(c, &mut at);
            let here = place(c, &at, &places);
            let last = c.load(1, here);
            let zero = c.int(0);
            let mut some = c.binary(Binary::Le, zero, last);
            if let Some(m) = covered {
                some = c.and(some, m);
            }
            at[self.axis] = c.binary(Binary::Max, last, zero);
            let from = place(c, &at, &self.dims);
            let new = c.load(0, from);
            c.select(some, new, old)
        })
    }

    /// The tensor after its updates, which are combined in their order.
    fn apply(self, cx: &mut Lowering<'_>, Order { sorted, starts }: Order, how: Combine) -> Lazy {
        let (shape, axis, dims, lines) = (&self.shape, self.axis, &self.dims, &self.lines);
        let dtype = cx.graph.tensor(self.updates.tensor).dtype;
        let mut ends = lines.clone();
        ends[axis] = shape[axis] + 1;
        let all = dims[axis];
        // What a place has to expect, if all have as many.
        let together = (all / shape[axis]).clamp(1, AT_ONCE).next_power_of_two();
        let operands: Vec<Access> =
            [self.updates.clone(), sorted, starts].into_iter().chain(self.data.clone()).collect();
        cx.program(operands, shape, |c| {
            let mut at: Vec<Val> = (0..shape.len()).map(|d| c.coord(d)).collect();
            let old = self.old(c, &at, 3, dtype);
            let old = held(c, old);
            // Other coordinates beyond those of the updates get none.
            let covered = self.within(c, &mut at);
            let first = place(c, &at, &ends);
            let first = c.load(2, first);
            let mut next = at.clone();
            next[axis] = c.plus(at[axis], 1);
            let end = place(c, &next, &ends);
            let mut end = c.load(2, end);
            if let Some(m) = covered {
                end = c.select(m, end, first);
            }
            let number = |c: &mut Coder, i: Val| {
                let mut at = at.clone();
                at[axis] = c.clamp(i, 0, all as i64);
                let i = place(c, &at, lines);
                c.load_int(1, i)
            };
            let update = |c: &mut Coder, number: Val| {
                let mut at = at.clone();
                at[axis] = number;
                let i = place(c, &at, dims);
                let update = c.load(0, i);
                held(c, update)
            };
            let some = c.lt(first, end);
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
            let result = c.get(now);
            c.cast(result, dtype)
        })
    }
}
