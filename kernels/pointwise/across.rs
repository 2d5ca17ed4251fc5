//! Elementwise steps with operands that are the same along rows, which neighbours are taken across the ends of.
//!
//! A scale of each channel goes with a row of 49 elements where planes are of 7x7. Of narrow elements no two fill a word of memory wherever such rows
//! begin. But the result and operands that have all of its elements lie densely, so workitems take neighbours of all of it, whole words of them. Of
//! operands that are the same along rows each loads what goes with its first neighbour's row and what goes with its last one's: no row is shorter than its
//! neighbours are many.

use super::{MOST, WORK, WORKGROUP, ahead, finish, many, places, share};
use crate::graph::fused::Access;
use crate::graph::view::View;
use crate::kernels::address::{self, Offset};
use crate::kernels::error::Res;
use crate::kernels::values::{self, Kind, Value};
use crate::kernels::{Arg, Cx, Kernel};
use crate::mir::{Gen, Type};

/// Bytes of a word of memory, and of neighbours of a workitem.
const WORD: usize = 4;
const BYTES: usize = 16;

/// Elements of operands that a workitem holds at most.
const HELD: usize = 48;

/// See the module's documentation.
pub(super) struct Across {
    /// Neighbours that a workitem takes.
    width: usize,
}

/// The access has an element of its own for each of the result's, and these lie as the result's do.
fn is_whole(cx: &Cx, a: &Access) -> bool {
    a.is_plain() && a.view.is_dense() && a.view.dims == cx.step.output.view.dims
}

impl Across {
    /// How the step is computed this way, where rows by themselves are walked in single elements or parts of words.
    pub fn of(cx: &Cx) -> Option<Across> {
        let (step, out) = (cx.step, &cx.step.output);
        let (&row, rows) = out.view.dims.split_last()?;
        let repeats = |i: usize| {
            let a = &step.inputs[i];
            a.is_plain() && a.view.strides.last() == Some(&0) && values::kind(cx.dtype(Arg::Input(i))) != Kind::Bool
        };
        let inputs = || 0..step.inputs.len();
        let fits = is_whole(cx, out)
            && rows.iter().product::<usize>() > 1
            && inputs().any(repeats)
            && inputs().all(|i| repeats(i) || is_whole(cx, &step.inputs[i]));
        let own = || share(cx).width;
        if !fits || own() > 1 && own() * cx.dtype(Arg::Output).size() >= WORD {
            return None;
        }
        let whole = || inputs().filter(|i| !repeats(*i)).map(Arg::Input).chain([Arg::Output]);
        let all = out.view.len();
        let takes = |width: &usize| {
            let lies = |arg: Arg| {
                let (t, bytes) = (cx.dtype(arg), width * cx.dtype(arg).size());
                let flat = View { offset: cx.view(arg).offset, dims: vec![all], strides: vec![1] };
                bytes <= BYTES && values::is_aligned(t, &flat, bytes)
            };
            let held = width * inputs().len() <= HELD && width * step.expr.cost().max(1) <= WORK;
            all.is_multiple_of(*width) && *width <= row && held && many(cx, *width) && whole().all(lies)
        };
        let width = [MOST, 8, 4, 2].into_iter().find(takes)?;
        Some(Across { width })
    }

    /// The kernel.
    pub fn lower(&self, cx: &Cx) -> Res<Vec<Kernel>> {
        let (step, width) = (cx.step, self.width as u32);
        let dims = &step.output.view.dims;
        let (Some((&row, rows)), all) = (dims.split_last(), step.output.view.len()) else { return Ok(Vec::new()) };
        let units = all / self.width;
        let inputs = || 0..step.inputs.len();
        let whole = |i: usize| is_whole(cx, &step.inputs[i]);
        let bytes = |arg: Arg| self.width * cx.dtype(arg).size();
        let moved: usize = inputs().filter(|i| whole(*i)).map(Arg::Input).chain([Arg::Output]).map(bytes).sum();
        let held = self.width * step.inputs.len();
        let rounds = places(cx, units, moved, |rounds| rounds * held <= HELD) as u32;
        let per_group = WORKGROUP * rounds;
        let mut w = cx.kernel(WORKGROUP);
        let (group, item) = (w.b.workgroup_id(0), w.b.workitem_id());
        let first = w.b.mad(group, per_group, item);
        let loaded = ahead(&mut w, 0..rounds, |w, round| {
            let unit = if round > 0 { w.b.add(first, round * WORKGROUP) } else { first };
            let flat = w.b.mul(unit, width);
            let (number, within) = w.b.divmod(flat, row as u32);
            // Neighbours up to this one are of the first one's row.
            let stays: Vec<_> = (1..width)
                .map(|e| w.b.op(Gen::CmpGt.of(Type::U32), &[(row as u32 - e).into(), within.into()]))
                .collect();
            let next = w.b.add(number, 1u32);
            let last = w.b.select(stays[stays.len() - 1], number, next);
            let coords = [number, last].map(|n| {
                let mut coords = address::coordinates_of_item(&mut w.b, n, rows);
                coords.push(None);
                coords
            });
            let mut operands = Vec::new();
            for i in inputs() {
                let (arg, view) = (Arg::Input(i), &step.inputs[i].view);
                let (t, buf) = (cx.dtype(arg), w.buffer(cx, arg)?);
                if whole(i) {
                    let at = w.b.mul(flat, t.size() as u32);
                    let at = Offset { reg: Some(at), imm: (view.offset * t.size() as i64) as u32 };
                    operands.push(values::load_some(&mut w.b, t, buf, at, width));
                    continue;
                }
                let ends = coords.each_ref().map(|coords| {
                    let at = address::offset(&mut w.b, view, t.size(), coords);
                    values::load(&mut w.b, t, buf, at)
                });
                operands.push(ends.to_vec());
            }
            Ok((unit, flat, stays, operands))
        })?;
        let t = cx.dtype(Arg::Output);
        let start = (step.output.view.offset * t.size() as i64) as u32;
        for (unit, flat, stays, mut operands) in loaded {
            for i in inputs().filter(|i| !whole(*i)) {
                let [own, next] = [operands[i][0], operands[i][1]];
                let others = stays.iter().map(|stays| values::select(&mut w.b, *stays, own, next));
                operands[i] = std::iter::once(own).chain(others).collect::<Vec<Value>>();
            }
            let mut at = Offset { reg: Some(w.b.mul(flat, t.size() as u32)), imm: start };
            if !units.is_multiple_of(per_group as usize) {
                let inside = w.b.op(Gen::CmpGt.of(Type::U32), &[(units as u32).into(), unit.into()]);
                at = at.within(&mut w.b, inside);
            }
            finish(&mut w, cx, &operands, self.width, at)?;
        }
        let flops = (all * step.expr.cost()) as u64;
        Ok(vec![w.finish([(units as u32).div_ceil(per_group), 1, 1], flops)])
    }
}
