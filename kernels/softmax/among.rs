//! Lines that lie among each other: element by element those of a few lines lie together, as heads of attention do that a product gives last.
//! They are too few for columns ([`columns`](crate::kernels::columns)).
//!
//! A team takes several of them at once: a load takes an element of each. From there on each is a line in registers, one after the other in straight code, as lines
//! are that a team takes abreast.

use super::{Elements, Walk, walked};
use crate::graph::collapse;
use crate::graph::fused::Step;
use crate::graph::view::View;
use crate::kernels::error::Res;
use crate::kernels::lines::{Chunk, Place, SHORT, Shape, WORKGROUP};
use crate::kernels::values::Value;
use crate::kernels::{Arg, Cx, Writer};
use crate::mir::Part;
use barewave_isa::Target;
use std::borrow::Cow;

/// Bytes from an element of a line to the next one, up to which neighbouring workitems take these.
const NEAR: usize = 64;

/// Bytes of a load at most.
const WIDEST: usize = 16;

/// Lines that lie among each other are taken together where that leaves a wave for each compute unit at least.
const WAVES: usize = 1;

/// The step with the dimension in front of its lines in which neighbours of what is walked lie together, where lines are not that themselves: lines are then
/// walked as they lie in memory. Which line is which does not change.
pub(super) fn as_in_memory<'a>(cx: &Cx<'a>, axes: usize) -> Cow<'a, Step> {
    let step = cx.step;
    let view = cx.view(Elements::of(cx).sources[0]);
    let (rank, outer) = (view.rank(), view.rank() - axes);
    let long = |d: &usize| view.dims[*d] > 1;
    let beside = (0..outer).find(|d| long(d) && view.strides[*d] == 1);
    let last = last_outside(view, outer);
    let all = || step.inputs.iter().chain([&step.output]);
    let Some(beside) = beside.filter(|_| all().all(|a| a.is_plain() && a.view.rank() == rank)) else {
        return Cow::Borrowed(step);
    };
    if Some(beside) == last || view.strides[rank - 1] == 1 {
        return Cow::Borrowed(step);
    }
    let order: Vec<usize> = (0..outer).filter(|d| *d != beside).chain([beside]).chain(outer..rank).collect();
    let mut step = step.clone();
    for a in step.inputs.iter_mut().chain([&mut step.output]) {
        a.view = a.view.permuted(&order);
    }
    Cow::Owned(step)
}

impl Shape {
    /// So many neighbouring lines as one, whose elements are those of all.
    pub fn among(&self, lines: u32) -> Shape {
        let n = lines as usize;
        let (count, size, others) = (self.count / n, self.size * n, self.others * n);
        let dwords = self.dwords * lines;
        Shape { count, size, others, dwords, together: 1, dense: true, columns: None, ..*self }
    }

    /// Workitems that hold such lines; none where they do not.
    fn team_among(&self, lines: u32, target: Target) -> Option<u32> {
        let shape = self.among(lines);
        let team = shape.of_neighbours(target);
        let own = (shape.length as u32).div_ceil(team);
        (shape.chunks(team, team.max(WORKGROUP), target) >= own).then_some(team)
    }
}

/// How many lines are taken together by neighbours of their elements, which are not far from each other; none where lines are not walked so.
pub(super) fn together(cx: &Cx, elements: &Elements, shape: &Shape, outer: usize) -> Option<u32> {
    let arg = elements.sources[0];
    let (view, t) = (cx.view(arg), cx.dtype(arg));
    let (_, strides) = collapse::apply(view, &collapse::groups(&[view], outer..view.rank()));
    let is_near = matches!(strides[..], [apart] if apart > 1 && apart as usize * t.size() <= NEAR);
    let plain = elements.made.is_none() && !shape.dense && shape.dwords == 1 && shape.length >= 2 * SHORT as usize;
    if !is_near || !plain || shape.walked(cx.target).is_some() {
        return None;
    }
    let (row, wave) = (shape.columns.unwrap_or(1), cx.target.info().wave_size);
    // A load begins at whole words.
    let in_words = |elements: i64| (elements * t.size() as i64) % 4 == 0;
    let beside = last_outside(view, outer);
    let apart = |d: usize| view.dims[d] == 1 || Some(d) == beside || in_words(view.strides[d]);
    let aligned = in_words(view.offset) && (0..view.rank()).all(apart);
    // Nobody's lines go backwards: how far one is behind the first is a constant.
    let forward = |arg: Arg| beside.is_some_and(|d| cx.view(arg).strides[d] >= 0);
    let aligned = aligned && walked(cx).into_iter().all(forward);
    let fits =
        |n: usize| aligned && row.is_multiple_of(n) && n * t.size() <= WIDEST && (n * t.size()).is_multiple_of(4);
    let found = (2..=row.min(8)).rev().filter(|n| fits(*n)).map(|n| n as u32);
    let teams: Vec<(u32, u32)> = found.filter_map(|n| Some((n, shape.team_among(n, cx.target)?))).collect();
    let enough = |(n, team): &(u32, u32)| {
        shape.count / *n as usize * (team.div_ceil(wave) as usize) >= WAVES * cx.target.cus() as usize
    };
    let of_wave = teams.iter().find(|found| found.1 <= wave && enough(found));
    Some(of_wave.or(teams.iter().find(|found| enough(found))).map_or(1, |found| found.0))
}

/// A line of those that lie among each other.
pub(super) struct Line {
    number: Part,
    /// How it lies in each access.
    places: Vec<(Arg, Place)>,
    /// What it has of all chunks.
    chunks: Vec<(Chunk, Value)>,
}

impl Walk<'_> {
    /// Loads the lines that lie among each other.
    pub(super) fn load_among(&mut self, w: &mut Writer) -> Res<Vec<Line>> {
        let (cx, arg, n) = (self.cx, self.elements.sources[0], self.abreast);
        let first = w.b.mul(self.lines.line, n);
        self.lines.line = first;
        self.prepare(w);
        let beside = last_outside(cx.view(arg), self.outer);
        let line = |turn: u32| {
            let behind =
                |arg: Arg| turn * beside.map_or(0, |d| cx.view(arg).strides[d] as u32 * cx.dtype(arg).size() as u32);
            let places = self.places.iter().map(|(arg, place)| (*arg, place.behind(behind(*arg)))).collect();
            let number = if turn > 0 { w.b.add(first, turn) } else { first };
            Line { number, places, chunks: Vec::new() }
        };
        let mut all: Vec<Line> = (0..n).map(line).collect();
        let buf = w.buffer(cx, arg)?;
        self.lines.each(w, "lines", |w, c| {
            let loaded = self.lines.load_beside(w, cx.dtype(arg), buf, self.place(arg)?, c, n);
            all.iter_mut().zip(loaded).for_each(|(line, x)| line.chunks.push((*c, x)));
            Ok(())
        })?;
        Ok(all)
    }

    /// Makes one of these the line that is walked, with `fill` behind its end.
    pub(super) fn take_of(&mut self, w: &mut Writer, line: Line, fill: f64) -> Res<()> {
        (self.lines.line, self.places) = (line.number, line.places);
        let filled = line.chunks.into_iter().map(|(c, x)| Ok((c, self.filled(w, &c, &[vec![x]], fill)?)));
        self.held = filled.collect::<Res<_>>()?;
        Ok(())
    }
}

/// The last dimension in front of lines that has several coordinates.
fn last_outside(view: &View, outer: usize) -> Option<usize> {
    (0..outer).rfind(|d| view.dims[*d] > 1)
}
