//! Few updates of a tensor, stored over a copy of it. Of those for one place one stands for all: the last, where it replaces, else
//! the first, with what all of them make of the element in their order. So no two are stored at one place, and results are the same in every run.

use super::ordered::{Indices, place, target};
use super::rank::{around, in_order};
use super::scatter::{Combine, held, in_turn};
use crate::graph::expr::Val;
use crate::graph::fused::{Access, Coder, Scatter, StepKind};
use crate::graph::lazy::Lazy;
use crate::graph::lower::Lowering;
use crate::graph::view::View;
use crate::tensor::DType;

/// So many updates of a line look at each other; more are sorted.
const LOOKED_AT: usize = 256;

/// Updates that are looked at together.
const TOGETHER: usize = 32;

/// Elements for each update, at least.
const ELEMENTS: usize = 8;

/// Elements above which it is worth the launches to sort.
const WORTH_SORTING: usize = 1 << 18;

/// Updates of a tensor along one of its dimensions.
pub(super) struct Few {
    /// What is updated.
    pub data: Access,
    /// Its dimensions.
    pub shape: Vec<usize>,
    /// What updates it.
    pub updates: Access,
    /// Its dimensions.
    pub dims: Vec<usize>,
    /// Where that goes.
    pub indices: Indices,
}

/// Whether updates of these dimensions, along an axis, of so many elements are few.
pub(super) fn are_few(dims: &[usize], axis: usize, elements: usize) -> bool {
    let all: usize = dims.iter().product();
    all.saturating_mul(ELEMENTS) <= elements && (dims[axis] <= LOOKED_AT || elements >= WORTH_SORTING)
}

impl Few {
    /// The tensor after its updates.
    pub fn apply(&self, cx: &mut Lowering<'_>, how: Combine) -> Lazy {
        let Indices { lines, axis, .. } = &self.indices;
        let (places, values) = if self.dims[*axis] <= LOOKED_AT { self.looked(cx, how) } else { self.sorted(cx, how) };
        let mut places = Access { view: View::dense(lines), ..cx.stored_access(places) };
        // Those of one line are for several.
        (0..lines.len()).filter(|d| lines[*d] < self.dims[*d]).for_each(|d| places.view.strides[d] = 0);
        places.view.dims.clone_from(&self.dims);
        let dtype = cx.graph.tensor(self.data.tensor).dtype;
        let kind = StepKind::Scatter(Scatter { axis: *axis, apart: true });
        let y = cx.produce(kind, vec![self.data.clone(), places, values], &self.shape, dtype);
        cx.stored(y)
    }

    fn extent(&self) -> usize {
        self.indices.extents.iter().product()
    }

    /// The coordinates of an update with another one along the axis.
    fn with(&self, at: &[Val], along: Val) -> Vec<Val> {
        let mut at = at.to_vec();
        at[self.indices.axis] = along;
        at
    }

    /// Where the update at coordinates goes, by the indices in operand 0.
    fn target(&self, c: &mut Coder, at: &[Val]) -> Val {
        let number = place(c, at, &self.indices.lines);
        target(c, 0, number, &self.indices.extents)
    }

    /// The place where it stands for all, or one behind the last.
    fn kept(&self, c: &mut Coder, own: Val, stands: Val) -> Val {
        let inside = c.within(own, 0, self.extent() as i64);
        let (kept, none) = (c.and(stands, inside), c.int(self.extent() as i64));
        c.select(kept, own, none)
    }

    /// The element of the data in operand 2 that an update at coordinates changes.
    fn old(&self, c: &mut Coder, at: &[Val], own: Val) -> Val {
        let own = c.clamp(own, 0, self.extent() as i64);
        let at = self.with(at, own);
        let here = place(c, &at, &self.shape);
        let old = c.load(2, here);
        held(c, old)
    }

    /// Places and values where each update looks at all of its line.
    fn looked(&self, cx: &mut Lowering<'_>, how: Combine) -> (Lazy, Access) {
        let Indices { table, lines, axis, .. } = &self.indices;
        let n = self.dims[*axis];
        let coords = |c: &mut Coder| (0..lines.len()).map(|d| c.coord(d)).collect::<Vec<_>>();
        let places = cx.program(vec![table.clone()], lines, |c| {
            let at = coords(c);
            let own = self.target(c, &at);
            let none = c.int(0);
            let others = c.var(none);
            let read = |c: &mut Coder, j: Val| {
                let at = self.with(&at, j);
                self.target(c, &at)
            };
            in_turn(c, (n, TOGETHER), read, |c, j, to| {
                let (same, u) = (c.eq(to, own), at[*axis]);
                let stands = if how == Combine::Replace { c.lt(u, j) } else { c.lt(j, u) };
                let (hit, one, old) = (c.and(same, stands), c.int(1), c.get(others));
                let new = c.select(hit, one, old);
                c.set(others, new);
            });
            let others = c.get(others);
            let stands = c.eq(others, none);
            self.kept(c, own, stands)
        });
        if how == Combine::Replace {
            return (places, self.updates.clone());
        }
        let dtype = cx.graph.tensor(self.data.tensor).dtype;
        let operands = vec![table.clone(), self.updates.clone(), self.data.clone()];
        let values = cx.program(operands, &self.dims, |c| {
            let at = coords(c);
            let own = self.target(c, &at);
            let old = self.old(c, &at, own);
            let now = c.var(old);
            let read = |c: &mut Coder, j: Val| {
                let at = self.with(&at, j);
                let to = self.target(c, &at);
                let i = place(c, &at, &self.dims);
                [to, c.load(1, i)]
            };
            in_turn(c, (n, TOGETHER), read, |c, _, [to, update]| {
                let hit = c.eq(to, own);
                how.update(c, now, update, hit);
            });
            let result = c.get(now);
            c.cast(result, dtype)
        });
        (places, cx.stored_access(values))
    }

    /// Places and values in the order of places.
    fn sorted(&self, cx: &mut Lowering<'_>, how: Combine) -> (Lazy, Access) {
        let Indices { table, lines, axis, .. } = &self.indices;
        let n = self.dims[*axis];
        let coords = |c: &mut Coder| (0..lines.len()).map(|d| c.coord(d)).collect::<Vec<_>>();
        let targets = cx.program(vec![table.clone()], lines, |c| {
            let at = coords(c);
            self.target(c, &at)
        });
        let targets = cx.stored_access(targets);
        let order = in_order(cx, targets.clone(), around(lines, *axis));
        // Of the update that is so far behind in the order, of operand 1: its coordinates, and where it goes, by operand 0.
        let update = |c: &mut Coder, at: &[Val], i: Val| {
            let i = c.clamp(i, 0, n as i64);
            let at = self.with(at, i);
            let i = place(c, &at, lines);
            let number = c.load_int(1, i);
            let at = self.with(&at, number);
            let i = place(c, &at, lines);
            let to = c.load(0, i);
            (at, to)
        };
        let places = cx.program(vec![targets.clone(), order.clone()], lines, |c| {
            let at = coords(c);
            let i = at[*axis];
            let beside = c.plus(i, if how == Combine::Replace { 1 } else { -1 });
            let ((_, own), (_, other)) = (update(c, &at, i), update(c, &at, beside));
            let (same, there) = (c.eq(own, other), c.within(beside, 0, n as i64));
            let (follows, no) = (c.and(same, there), c.literal(DType::Bool, crate::graph::expr::Scalar::Int(0)));
            let stands = c.eq(follows, no);
            self.kept(c, own, stands)
        });
        let dtype = cx.graph.tensor(self.data.tensor).dtype;
        let operands = vec![targets, order, self.data.clone(), self.updates.clone()];
        let values = cx.program(operands, &self.dims, |c| {
            let at = coords(c);
            let value = |c: &mut Coder, at: &[Val]| {
                let i = place(c, at, &self.dims);
                let update = c.load(3, i);
                held(c, update)
            };
            let (from, own) = update(c, &at, at[*axis]);
            let first = value(c, &from);
            if how == Combine::Replace {
                return c.cast(first, dtype);
            }
            let old = self.old(c, &from, own);
            let first = how.apply(c, old, first);
            // Whether the update behind one is for the same place.
            let more = |c: &mut Coder, i: Val| {
                let next = c.plus(i, 1);
                let (_, to) = update(c, &at, next);
                let (same, there) = (c.eq(to, own), c.within(next, 0, n as i64));
                c.and(same, there)
            };
            let (now, number) = (c.var(first), c.var(at[*axis]));
            let some = more(c, at[*axis]);
            c.repeat_while(some, |c| {
                let i = c.get(number);
                let next = c.plus(i, 1);
                let (from, _) = update(c, &at, next);
                let (new, old) = (value(c, &from), c.get(now));
                let new = how.apply(c, old, new);
                c.set(now, new);
                c.set(number, next);
                more(c, next)
            });
            let result = c.get(now);
            c.cast(result, dtype)
        });
        (places, cx.stored_access(values))
    }
}
