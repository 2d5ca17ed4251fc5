//! Scatter: a copy, and then a workitem for each line along the axis that stores what replaces elements of it, one after the other.
//!
//! A line's stores are a workitem's own, in program order, so that of several for one place the last one stays, in every run. Several indices and
//! elements are on their way together. Where there are too few lines for that, updates find out which are [for one place](super::contested). Where no two are for one place, neighbours of each are a workitem's, which may have to make them first.

use super::address::{self, Offset};
use super::contested;
use super::error::{Reason, Res};
use super::reduce::scalar_loop;
use super::values::{self, Value};
use super::{Arg, Cx, Kernel, Writer, expr, pointwise};
use crate::graph::expr::Expr;
use crate::graph::fused::{Scatter, Step, StepKind};
use crate::mir::{Gen, Part, Type};
use crate::tensor::DType;

/// Workitems of a workgroup where there are so many that each compute unit has a few workgroups.
const WORKGROUP: u32 = 256;
const ENOUGH: u32 = 2;

/// Updates of a line that are read together.
const TOGETHER: u32 = 8;

/// Bytes that a workitem stores of an update, at most.
const WIDEST: usize = 16;

/// What replaces elements of the workitems' lines.
struct Updates<'a> {
    /// Elements are moved as the bits that they are.
    cx: Cx<'a>,
    axis: usize,
    index: DType,
    /// First elements of the line: of its indices, of what replaces, of the result.
    first: [Offset; 3],
    /// The lanes that have a line, where not all do.
    present: Option<Part>,
}

impl Updates<'_> {
    /// Bytes between neighbours along the axis.
    fn stride(&self, arg: Arg, t: DType) -> u32 {
        (self.cx.view(arg).strides[self.axis] * t.size() as i64) as u32
    }

    /// So many updates from one on.
    fn replace(&self, w: &mut Writer, from: Part, count: u32) -> Res<()> {
        let t = self.cx.dtype(Arg::Output);
        let args = [(Arg::Input(1), self.index, self.first[0]), (Arg::Input(2), t, self.first[1])];
        let mut read: Vec<Vec<Value>> = Vec::new();
        for (arg, t, first) in args {
            let (buf, stride) = (w.buffer(&self.cx, arg)?, self.stride(arg, t));
            let ahead = w.b.mul(from, stride);
            let at = address::add(&mut w.b, first, Offset { reg: Some(ahead), imm: 0 });
            let at = |w: &mut Writer, e: u32| {
                let reg = at.vector(&mut w.b);
                Offset { reg: Some(if e == 0 { reg } else { w.b.add(reg, e * stride) }), imm: at.imm }
            };
            let mut values = Vec::new();
            for e in 0..count {
                let at = at(w, e);
                values.push(values::load(&mut w.b, t, buf, at));
            }
            read.push(values);
        }
        let (buf, stride) = (w.buffer(&self.cx, Arg::Output)?, self.stride(Arg::Output, t));
        let extent = dims_along(&self.cx, self.axis);
        for (index, x) in read[0].iter().zip(&read[1]) {
            let (index, mut inside) = placed(w, *index, extent);
            if let Some(present) = self.present {
                inside = w.b.mask_and(inside, present);
            }
            let along = w.b.mul(index, stride);
            let mut at = address::add(&mut w.b, self.first[2], Offset { reg: Some(along), imm: 0 });
            at = at.within(&mut w.b, inside);
            values::store(&mut w.b, t, buf, at, *x);
        }
        Ok(())
    }
}

pub(super) fn lower(cx: &Cx, scatter: &Scatter) -> Res<Vec<Kernel>> {
    let step = cx.step;
    let mut copy = Step {
        kind: StepKind::Pointwise,
        inputs: step.inputs[..1].to_vec(),
        expr: Expr::copy(cx.dtype(Arg::Output)),
        ..step.clone()
    };
    StepKind::Pointwise.collapse(&mut copy);
    let mut kernels = pointwise::lower(&Cx { step: &copy, ..*cx })?;
    if !matches!(cx.dtype(Arg::Input(1)), DType::I32 | DType::I64) {
        return Err(Reason::Malformed("indices that are no numbers"));
    }
    let cx = Cx { moves: scatter.made.is_none(), ..*cx };
    match scatter.apart {
        true => kernels.push(one_by_one(&cx, scatter)?),
        false if Scatter::has_many_lines(&cx.view(Arg::Input(2)).dims, scatter.axis) => {
            kernels.push(line_by_line(&cx, scatter.axis)?);
        }
        false => kernels.extend(contested::lower(&cx, scatter.axis)?),
    }
    Ok(kernels)
}

/// Workitems of a workgroup for so many in all.
pub(super) fn workgroup(cx: &Cx, items: usize) -> u32 {
    let many = items >= (ENOUGH * WORKGROUP * cx.target.cus()) as usize;
    if many { WORKGROUP } else { cx.target.info().wave_size }
}

/// What a workitem is one of.
pub(super) struct Numbered {
    /// Its number, or the last one's that is needed.
    pub held: Part,
    /// The lanes that are, where not all are.
    pub present: Option<Part>,
}

impl Numbered {
    /// Number `item` of `items`, which workitems count up to a multiple of `round`.
    pub fn of(w: &mut Writer, item: Part, items: usize, round: u32) -> Numbered {
        let last = w.b.to_vector(items as u32 - 1);
        let held = w.b.op(Gen::Min.of(Type::U32), &[item.into(), last.into()]);
        let all = items.is_multiple_of(round as usize);
        let present = (!all).then(|| w.b.op(Gen::CmpGt.of(Type::U32), &[(items as u32).into(), item.into()]));
        Numbered { held, present }
    }

    /// The workitem's own number of so many.
    pub fn own(w: &mut Writer, items: usize) -> Numbered {
        let item = pointwise::linear_index(&mut w.b);
        let round = w.b.function().workgroup_size;
        Numbered::of(w, item, items, round)
    }
}

/// Each workitem stores all updates of a line.
fn line_by_line(cx: &Cx, axis: usize) -> Res<Kernel> {
    let index = cx.dtype(Arg::Input(1));
    let mut dims = cx.step.inputs[2].view.dims.clone();
    let updates = std::mem::replace(&mut dims[axis], 1) as u32;
    let lines: usize = dims.iter().product();
    let mut w = cx.kernel(workgroup(cx, lines));
    let Numbered { held, present } = Numbered::own(&mut w, lines);
    let coords = address::coordinates(&mut w.b, held, &dims);
    let t = cx.dtype(Arg::Output);
    let mut of_line = coords.clone();
    of_line[axis] = None;
    let first = [(Arg::Input(1), index, &coords), (Arg::Input(2), t, &coords), (Arg::Output, t, &of_line)]
        .map(|(arg, t, coords)| address::offset(&mut w.b, cx.view(arg), t.size(), coords));
    let all = Updates { cx: *cx, axis, index, first, present };
    if updates >= TOGETHER {
        scalar_loop(&mut w, "updates", updates / TOGETHER, |w, round| {
            let from = w.b.mul(round, TOGETHER);
            all.replace(w, from, TOGETHER)
        })?;
    }
    let rest = updates % TOGETHER;
    if rest > 0 {
        let from = w.b.scalar(updates - rest);
        all.replace(&mut w, from, rest)?;
    }
    let groups = (lines as u32).div_ceil(w.b.function().workgroup_size);
    Ok(w.finish([groups, 1, 1], 0))
}

/// Neighbours that go to neighbouring places together.
fn neighbours(cx: &Cx, axis: usize) -> usize {
    let (out, places, t) = (cx.view(Arg::Output), cx.view(Arg::Input(1)), cx.dtype(Arg::Output));
    let Some(d) = out.rank().checked_sub(1).filter(|d| *d != axis) else { return 1 };
    let (extent, alike) = (places.dims[d], places.strides[d] == 0 || places.dims[d] == 1);
    let fits = |width: &usize| {
        let bytes = width * t.size();
        alike
            && out.strides[d] == 1
            && extent.is_multiple_of(*width)
            && bytes <= WIDEST
            && values::is_aligned(t, out, bytes)
    };
    let one_word = t.size() >= 4 || values::comes_in_fours(t);
    [8, 4, 2].into_iter().filter(|_| one_word).find(fits).unwrap_or(1)
}

/// Each workitem stores neighbours of an update, which may have to be made first.
fn one_by_one(cx: &Cx, scatter: &Scatter) -> Res<Kernel> {
    let (axis, t, index) = (scatter.axis, cx.dtype(Arg::Output), cx.dtype(Arg::Input(1)));
    let dims = &cx.step.inputs[2].view.dims;
    let width = neighbours(cx, axis);
    let mut steps = dims.clone();
    if let Some(last) = steps.last_mut() {
        *last /= width;
    }
    let items: usize = steps.iter().product();
    let mut w = cx.kernel(workgroup(cx, items));
    let Numbered { held, present } = Numbered::own(&mut w, items);
    let mut coords = address::coordinates(&mut w.b, held, &steps);
    if let Some(Some(last)) = coords.last_mut() {
        *last = w.b.mul(*last, width as u32);
    }
    let place = address::offset(&mut w.b, cx.view(Arg::Input(1)), index.size(), &coords);
    let buf = w.buffer(cx, Arg::Input(1))?;
    let place = values::load(&mut w.b, index, buf, place);
    let (mut known, mut operands) = (Vec::new(), Vec::new());
    for i in scatter.updates() {
        operands.push(pointwise::load(&mut w, cx, i, &coords, width, &mut known)?);
    }
    let operand = |i: usize, lane: usize| operands[i][lane.min(operands[i].len() - 1)];
    let mut results = Vec::new();
    for lane in 0..width {
        results.push(match &scatter.made {
            None => operand(0, lane),
            Some(made) => expr::eval(&mut w.b, &made.expr, &|i| operand(i as usize - 2, lane), None)?,
        });
    }
    let (place, mut inside) = placed(&mut w, place, dims_along(cx, axis));
    if let Some(present) = present {
        inside = w.b.mask_and(inside, present);
    }
    coords[axis] = None;
    let first = address::offset(&mut w.b, cx.view(Arg::Output), t.size(), &coords);
    let along = w.b.mul(place, (cx.view(Arg::Output).strides[axis] * t.size() as i64) as u32);
    let mut at = address::add(&mut w.b, first, Offset { reg: Some(along), imm: 0 });
    at = at.within(&mut w.b, inside);
    let buf = w.buffer(cx, Arg::Output)?;
    values::store_some(&mut w.b, t, buf, at, &results);
    let groups = (items as u32).div_ceil(w.b.function().workgroup_size);
    Ok(w.finish([groups, 1, 1], 0))
}

/// Places along the axis.
pub(super) fn dims_along(cx: &Cx, axis: usize) -> u32 {
    cx.view(Arg::Output).dims[axis] as u32
}

/// The place that an index means, of so many, and the lanes whose place there is.
pub(super) fn placed(w: &mut Writer, index: Value, extent: u32) -> (Part, Part) {
    let index = index.whole(&mut w.b).dword(0);
    let turned = w.b.add(index, extent);
    let negative = w.b.op(Gen::CmpGt.of(Type::I32), &[0u32.into(), index.into()]);
    let index = w.b.select(negative, turned, index);
    (index, w.b.op(Gen::CmpGt.of(Type::U32), &[extent.into(), index.into()]))
}
