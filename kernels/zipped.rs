//! Elementwise steps whose innermost dimension has a few coordinates, along which operands lie far apart: channels that come last and went first
//! (pictures of bytes), blocks of channels that become pixels (DepthToSpace).
//!
//! A workitem loads neighbours of the dimension before for each of these coordinates, and stores what they are together, one behind the other: both
//! go over memory in whole lines, with no way through LDS. What [`unzipped`](super::unzipped) does the other way round.

use super::address::{self, Offset};
use super::blocks::{Blocks, WIDEST, in_words, load_together};
use super::error::Res;
use super::pointwise::{self, WORK};
use super::values::Value;
use super::{Arg, Cx, Kernel, Writer};
use crate::graph::fused::Access;
use crate::mir::Part;

/// Extent of the innermost dimension, at most.
const MOST: usize = 8;

/// Elements that a workitem computes at most.
const HELD: usize = 64;

/// Bytes that a workitem stores at most: several stores each go to second-level caches in parts of their lines.
const STORED: usize = 32;

/// See the module's documentation.
pub(super) struct Zipped {
    /// The dimension that operands are dense in, and how many neighbours of it a workitem takes.
    dense: usize,
    width: usize,
    /// Extent of the innermost dimension.
    few: usize,
}

/// How an operand has what a workitem computes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lie {
    /// Neighbours for each coordinate, or what serves for all of them.
    Rows,
    /// As the result has it.
    Same,
}

impl Zipped {
    /// How the step is computed this way, if it is.
    pub fn of(cx: &Cx) -> Option<Zipped> {
        let out = &cx.step.output;
        let d = out.view.rank().checked_sub(1)?;
        let few = out.view.dims[d];
        let dense = (0..d).rfind(|j| out.view.dims[*j] > 1)?;
        let positive = cx.step.inputs.iter().chain([out]).all(|a| a.view.strides.iter().all(|s| *s >= 0));
        let lies = out.view.strides[d] == 1 && out.view.strides[dense] == few as i64;
        if !(2..=MOST).contains(&few) || !lies || !out.is_plain() || !positive {
            return None;
        }
        let size = |arg: Arg| cx.dtype(arg).size();
        let fits = |width: &usize| {
            let zipped = Zipped { dense, width: *width, few };
            let stored = width * few * size(Arg::Output);
            out.view.dims[dense].is_multiple_of(*width)
                && pointwise::enough(cx, width * few)
                && width * few <= HELD
                && width * few * cx.step.expr.cost() <= 2 * WORK
                && stored <= STORED
                && in_words(cx.dtype(Arg::Output), out, stored, &[d, dense])
                && (0..cx.step.inputs.len()).all(|i| zipped.lie(cx, i).is_some())
        };
        let turned = |a: &Access| a.view.strides[dense] == 1 && a.view.strides[d] != 0;
        let widths: Vec<usize> = [8, 4, 2, 1].into_iter().filter(fits).collect();
        let one = widths.iter().find(|width| *width * few * size(Arg::Output) <= WIDEST);
        let width = *one.or(widths.last())?;
        cx.step.inputs.iter().any(turned).then_some(Zipped { dense, width, few })
    }

    /// How operand `i` lies, if it can be loaded.
    fn lie(&self, cx: &Cx, i: usize) -> Option<Lie> {
        let (a, t) = (&cx.step.inputs[i], cx.dtype(Arg::Input(i)));
        let (d, run) = (a.view.rank() - 1, self.width * t.size());
        let [across, along] = [self.dense, d].map(|d| a.view.strides[d]);
        let rows = across == 0 || across == 1 && run <= WIDEST && in_words(t, a, run, &[self.dense]);
        let all = run * self.few;
        let same = along == 1 && across == self.few as i64 && in_words(t, a, all, &[self.dense, d]);
        match a.is_plain() {
            true if rows => Some(Lie::Rows),
            true if same => Some(Lie::Same),
            _ => None,
        }
    }

    pub fn lower(&self, cx: &Cx) -> Res<Vec<Kernel>> {
        let (d, each) = (cx.step.output.view.rank() - 1, self.width * self.few);
        let would = |places| places * each * cx.step.inputs.len() <= HELD;
        let blocks = Blocks::of(cx, &[(self.dense, self.width), (d, self.few)], would);
        let load = |w: &mut Writer, coords: &[Option<Part>]| {
            (0..cx.step.inputs.len()).map(|i| self.load(w, cx, i, coords)).collect::<Res<Vec<_>>>()
        };
        blocks.lower(cx, load, |w, place| {
            let at = place.of_result(w, cx, (d, 0));
            pointwise::finish(w, cx, &place.loaded, each, at)
        })
    }

    /// The elements of operand `i` in the order of the result's, or one that serves for all.
    fn load(&self, w: &mut Writer, cx: &Cx, i: usize, coords: &[Option<Part>]) -> Res<Vec<Value>> {
        let (t, view, buf) = (cx.dtype(Arg::Input(i)), &cx.step.inputs[i].view, w.buffer(cx, Arg::Input(i))?);
        let [across, along] = [self.dense, view.rank() - 1].map(|d| view.strides[d]);
        let at = address::offset(&mut w.b, view, t.size(), coords);
        if self.lie(cx, i) == Some(Lie::Same) {
            return Ok(load_together(w, t, buf, at, self.width * self.few));
        }
        let mut rows = Vec::new();
        for c in 0..if along == 0 { 1 } else { self.few } {
            let by = c as i64 * along * t.size() as i64;
            let at = Offset { imm: at.imm.wrapping_add(by as u32), ..at };
            let row = load_together(w, t, buf, at, if across == 0 { 1 } else { self.width });
            rows.push(row);
        }
        if let [row] = &rows[..]
            && row.len() == 1
        {
            return Ok(rows.remove(0));
        }
        let of = |p: usize, c: usize| {
            let row = &rows[c.min(rows.len() - 1)];
            row[p.min(row.len() - 1)]
        };
        Ok((0..self.width).flat_map(|p| (0..self.few).map(move |c| (p, c))).map(|(p, c)| of(p, c)).collect())
    }
}
