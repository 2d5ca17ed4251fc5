//! Few updates of a tensor, stored over a copy of it. Of those for one place one stands for all: the last, where it replaces, else
//! the first, with what all of them make of the element in their order. So no two are stored at one place, and results are the same in every run.

use super::ordered::{Indices, place, target};
use super::scatter::{Combine, held, in_turn};
use crate::graph::expr::Val;
use crate::graph::fused::{Access, Coder, Scatter, StepKind};
use crate::graph::lazy::Lazy;
use crate::graph::lower::Lowering;
use crate::graph::view::View;

/// So many updates of a line look at each other; of more the last one of each place is found.
pub(super) const LOOKED_AT: usize = 256;

/// Updates that are looked at together.
const TOGETHER: usize = 32;

/// Elements for each update, at least.
const ELEMENTS: usize = 8;

/// Places above which it is worth the launches to find these.
const WORTH_FINDING: usize = 1 << 19;

/// Elements for each time that an update looks at another one to combine them, at least.
const WORTH_COMBINING: usize = 16;

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

impl Few {
    /// Whether they are so few that all other elements are better copied than looked at.
    pub fn is_worth(&self, how: Combine) -> bool {
        let Indices { lines, axis, .. } = &self.indices;
        let [all, elements, lines_of] = [&self.dims, &self.shape, lines].map(|dims| dims.iter().product::<usize>());
        let (n, places) = (self.dims[*axis], self.extent().saturating_mul(lines_of / lines[*axis]));
        let fits = match how {
            Combine::Replace => n <= LOOKED_AT || places >= WORTH_FINDING,
            _ => n <= LOOKED_AT && all.saturating_mul(n * WORTH_COMBINING) <= elements,
        };
        fits && all.saturating_mul(ELEMENTS) <= elements && elements.saturating_mul(8) < crate::graph::LARGEST
    }

    /// The tensor after its updates.
    pub fn apply(&self, cx: &mut Lowering<'_>, how: Combine) -> Lazy {
        let Indices { lines, axis, .. } = &self.indices;
        let (places, values) = match self.dims[*axis] <= LOOKED_AT {
            true => self.looked(cx, how),
            false => (self.last(cx), self.updates.clone()),
        };
        let mut places = Access { view: View::dense(lines), ..cx.stored_access(places) };
        // Those of one line are for several.
        (0..lines.len()).filter(|d| lines[*d] < self.dims[*d]).for_each(|d| places.view.strides[d] = 0);
        places.view.dims.clone_from(&self.dims);
        let dtype = cx.graph.tensor(self.data.tensor).dtype;
        let kind = StepKind::Scatter(Scatter { axis: *axis, apart: true, made: None });
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
            let read = |c: &mut Coder, j: Val| {
                let at = self.with(&at, j);
                let to = self.target(c, &at);
                let i = place(c, &at, &self.dims);
                [to, c.load(1, i)]
            };
            let result = how.all(c, (old, own), (n, TOGETHER), read);
            c.cast(result, dtype)
        });
        (places, cx.stored_access(values))
    }

    /// Places of those that replace: the last one of each.
    fn last(&self, cx: &mut Lowering<'_>) -> Lazy {
        let Indices { table, lines, axis, .. } = &self.indices;
        let mut ends = lines.clone();
        ends[*axis] = self.extent();
        let last = self.indices.lasts(cx);
        cx.program(vec![table.clone(), last], lines, |c| {
            let at: Vec<Val> = (0..lines.len()).map(|d| c.coord(d)).collect();
            let own = self.target(c, &at);
            let held = c.clamp(own, 0, self.extent() as i64);
            let there = self.with(&at, held);
            let i = place(c, &there, &ends);
            let last = c.load(1, i);
            let stands = c.eq(last, at[*axis]);
            self.kept(c, own, stands)
        })
    }
}
