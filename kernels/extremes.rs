//! The smallest and the largest element of a tensor, and what is made of both, in one launch.
//!
//! Every workgroup finds those of a piece, leaves them in the step's workspace and counts itself in; the last one to come takes those of all pieces
//! together ([`split`](super::split) has what makes that safe). No order matters to extremes, so results do not depend on who that is.

use super::address::Offset;
use super::error::Res;
use super::float::Float;
use super::lines::{self, Lines, Shape, part_offset};
use super::split::count_workgroup;
use super::values::Value;
use super::{Arg, Cx, Kernel, Writer, epilogue, expr, lanes};
use crate::graph::fused::Extremes;
use crate::graph::view::View;
use crate::mir::{Gen, Part, Type};
use crate::tensor::DType;

/// Elements of a piece where that is not too many pieces, and pieces at most.
const PIECE: usize = 4096;
const MOST: usize = 1024;

/// Bytes of what a piece leaves.
const LEFT: u32 = 8;

pub(super) fn lower(cx: &Cx, kind: &Extremes) -> Res<Vec<Kernel>> {
    let (row, t) = (&cx.step.inputs[0].view, cx.dtype(Arg::Input(0)));
    let n = row.len();
    let each = if n <= PIECE { n } else { PIECE * n.div_ceil(PIECE * MOST) };
    let pieces = n.div_ceil(each) as u32;
    let cut = View { offset: row.offset, dims: vec![pieces as usize, each], strides: vec![each as i64, 1] };
    // What is loaded together does not end behind the last piece.
    let together = lines::together(&[(t, row)]);
    let shape = Shape { together, ..Shape::of(&[(t, &cut)], 1, pieces as usize, false)? };
    let (mut w, mut lines) = Lines::begin(cx, shape);
    let last = n - (pieces as usize - 1) * each;
    if last < each {
        let line = lines.line;
        lines.end_early(&mut w, line, pieces - 1, last as u32);
    }
    let place = lines.place(&mut w, &cut, t.size(), 1);
    let mut own: Vec<Vec<Part>> = (0..together).map(|_| nothing(&mut w)).collect();
    lines.each(&mut w, "extremes", |w, c| {
        let buf = w.buffer(cx, Arg::Input(0))?;
        let elements = lines.load(w, t, buf, &place, c);
        for (x, both) in elements.into_iter().zip(&mut own) {
            let mut x = x.whole(&mut w.b);
            if let Some(inside) = c.inside {
                x = or_nan(w, inside, x);
            }
            FLOAT.update(&mut w.b, Gen::Min, both[0], x);
            FLOAT.update(&mut w.b, Gen::Max, both[1], x);
        }
        Ok(())
    })?;
    let own = lanes::folded(&mut w, own, &merge)?;
    let mut both = lines.combine(&mut w, &own, merge)?;
    let done = w.b.label();
    if pieces > 1 {
        both = of_all(&mut w, &lines, pieces, both, done)?;
    }
    for (result, i) in kind.results.iter().zip(0..) {
        let of = |k: u32| Value::of(DType::F32, both[k as usize]);
        let value = expr::eval(&mut w.b, result, &of, None)?;
        let element = w.b.scalar(i);
        epilogue::finish(&mut w, cx, value, |w, arg| {
            let at = part_offset(w, cx.view(arg), cx.dtype(arg).size(), 0..1, element, true);
            Ok(if arg == Arg::Output { lines.mask_result(w, at) } else { at })
        })?;
    }
    let (workspace, counters) = if pieces > 1 { (pieces * LEFT, lines.team() * 4) } else { (0, 0) };
    if pieces > 1 {
        w.b.place(done, "done");
    }
    let (workspace, counters) = (workspace as usize, counters as usize);
    Ok(vec![Kernel { workspace, counters, sharing: [pieces, 1, 1], ..w.finish([pieces, 1, 1], 2 * n as u64) }])
}

const FLOAT: Float = Float(Type::F32);

/// Registers that hold the extremes of nothing.
fn nothing(w: &mut Writer) -> Vec<Part> {
    [f64::INFINITY, f64::NEG_INFINITY].map(|x| FLOAT.held(&mut w.b, x)).to_vec()
}

/// The extremes of two sets, by those of each.
fn merge(w: &mut Writer, x: &[Part], y: &[Part]) -> Res<Vec<Part>> {
    let both = [(Gen::Min, 0), (Gen::Max, 1)];
    Ok(both.into_iter().map(|(op, i)| FLOAT.op(&mut w.b, op, x[i], y[i])).collect())
}

/// A value, which is not a number in other lanes: extremes leave that out.
fn or_nan(w: &mut Writer, lanes: Part, x: Part) -> Part {
    let nan = FLOAT.held(&mut w.b, f64::NAN);
    FLOAT.select(&mut w.b, lanes, x, nan)
}

/// Leaves the extremes of a piece, and goes to `done` unless all others have been left before: then it is those of all.
fn of_all(w: &mut Writer, lines: &Lines, pieces: u32, both: Vec<Part>, done: crate::mir::BlockId) -> Res<Vec<Part>> {
    let workspace = w.workspace((pieces * LEFT) as usize);
    let pair = w.b.v(2);
    (0..2).for_each(|i| w.b.copy_into(pair.dword(i), both[usize::from(i)]));
    let at = w.b.mul(lines.line, LEFT);
    let at = lines.mask_result(w, Offset { reg: Some(at), imm: 0 });
    let (v, s, imm) = at.operands(&mut w.b);
    w.b.stores_for_device(true);
    w.b.store(workspace, pair, v, s, imm);
    w.b.stores_for_device(false);
    let item = w.b.workitem_id();
    let counter = w.b.mul(item, 4u32);
    count_workgroup(w, counter, lines.team(), pieces - 1, done);
    let zero = w.b.scalar(0);
    let mut all = Vec::new();
    w.b.loads_from_device(true);
    for first in (0..pieces).step_by(lines.team() as usize) {
        let at = lines.own(w, zero, LEFT, first, pieces);
        let (v, s, imm) = at.operands(&mut w.b);
        all.push((first, w.b.load(workspace, 2, v, s, imm)));
    }
    w.b.loads_from_device(false);
    let mut found = Vec::new();
    for (first, left) in all {
        let inside = lines.is_below(w, first, pieces);
        let own = [left.dword(0), left.dword(1)];
        found.push(own.map(|x| inside.map_or(x, |inside| or_nan(w, inside, x))).to_vec());
    }
    let found = lanes::folded(w, found, &merge)?;
    lines.combine(w, &found, merge)
}
