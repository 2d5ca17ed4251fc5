//! Scatter: a copy, and then a workitem for each line along the axis that stores what replaces elements of it, one after the other.
//!
//! A line's stores are a workitem's own, in program order, so that of several for one place the last one stays, in every run. Several indices and
//! elements are on their way together. Where no two are for one place each is a workitem's.

use super::address::{self, Offset};
use super::error::{Reason, Res};
use super::reduce::scalar_loop;
use super::values::{self, Value};
use super::{Arg, Cx, Kernel, Writer, pointwise};
use crate::graph::expr::Expr;
use crate::graph::fused::{Scatter, Step, StepKind};
use crate::mir::{Gen, Part, Type};
use crate::tensor::DType;

/// Workitems of a workgroup where there are so many that each compute unit has a few workgroups.
const WORKGROUP: u32 = 256;
const ENOUGH: u32 = 2;

/// Updates of a line that are read together.
const TOGETHER: u32 = 8;

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
        let extent = self.cx.step.output.view.dims[self.axis] as u32;
        for (index, x) in read[0].iter().zip(&read[1]) {
            let index = index.whole(&mut w.b).dword(0);
            let turned = w.b.add(index, extent);
            let negative = w.b.op(Gen::CmpGt.of(Type::I32), &[0u32.into(), index.into()]);
            let index = w.b.select(negative, turned, index);
            let mut inside = w.b.op(Gen::CmpGt.of(Type::U32), &[extent.into(), index.into()]);
            if let Some(present) = self.present {
                inside = w.b.mask_and(inside, present);
            }
            let along = w.b.mul(index, stride);
            let mut at = address::add(&mut w.b, self.first[2], Offset { reg: Some(along), imm: 0 });
            let reg = at.vector(&mut w.b);
            at.reg = Some(w.b.guard(inside, reg));
            values::store(&mut w.b, t, buf, at, *x);
        }
        Ok(())
    }
}

pub(super) fn lower(cx: &Cx, &Scatter { axis, apart }: &Scatter) -> Res<Vec<Kernel>> {
    let step = cx.step;
    let mut copy = Step {
        kind: StepKind::Pointwise,
        inputs: step.inputs[..1].to_vec(),
        expr: Expr::copy(cx.dtype(Arg::Output)),
        ..step.clone()
    };
    StepKind::Pointwise.collapse(&mut copy);
    let mut kernels = pointwise::lower(&Cx { step: &copy, ..*cx })?;
    let index = cx.dtype(Arg::Input(1));
    if !matches!(index, DType::I32 | DType::I64) {
        return Err(Reason::Malformed("indices that are no numbers"));
    }
    let cx = Cx { moves: true, ..*cx };
    let mut dims = step.inputs[2].view.dims.clone();
    let updates = if apart { 1 } else { std::mem::replace(&mut dims[axis], 1) as u32 };
    let lines: usize = dims.iter().product();
    let many = lines >= (ENOUGH * WORKGROUP * cx.target.cus()) as usize;
    let workgroup = if many { WORKGROUP } else { cx.target.info().wave_size };
    let mut w = cx.kernel(workgroup);
    let line = pointwise::linear_index(&mut w.b);
    let last = w.b.to_vector(lines as u32 - 1);
    let held = w.b.op(Gen::Min.of(Type::U32), &[line.into(), last.into()]);
    let coords = address::coordinates(&mut w.b, held, &dims);
    let t = cx.dtype(Arg::Output);
    let mut of_line = coords.clone();
    of_line[axis] = None;
    let first = [(Arg::Input(1), index, &coords), (Arg::Input(2), t, &coords), (Arg::Output, t, &of_line)]
        .map(|(arg, t, coords)| address::offset(&mut w.b, cx.view(arg), t.size(), coords));
    let present = (!lines.is_multiple_of(workgroup as usize))
        .then(|| w.b.op(Gen::CmpGt.of(Type::U32), &[(lines as u32).into(), line.into()]));
    let all = Updates { cx, axis, index, first, present };
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
    kernels.push(w.finish([(lines as u32).div_ceil(workgroup), 1, 1], 0));
    Ok(kernels)
}
