//! Elementwise steps: one workitem computes one element, or four neighbours where every operand allows it.
//!
//! The linear index is split into coordinates by constant division; each operand's offset is a sum of coordinate
//! times stride. Four elements go together when all types have 32 bits or are floats of 16, the innermost dimension
//! is a multiple of four, the result is dense in it and every operand is dense or constant in it.

use super::address::{self, Offset};
use super::error::Res;
use super::values::{self, Value};
use super::{Arg, Cx, Kernel, Writer, expr};
use crate::graph::fused::{Access, FusedGraph, Step};
use crate::mir::{Builder, Gen, Part, Type};
use barewave_isa::op;

const WORKGROUP: u32 = 256;

pub(super) fn lower(cx: &Cx) -> Res<Vec<Kernel>> {
    let out = &cx.step.output;
    let dims = out.view.dims.clone();
    let width = width(cx.graph, cx.step);
    let mut steps = dims.clone();
    if let Some(last) = steps.last_mut() {
        *last /= width;
    }
    let groups: usize = steps.iter().product();
    let mut w = cx.kernel(WORKGROUP);
    let index = linear_index(&mut w.b);
    let mut coords = address::coordinates(&mut w.b, index, &steps);
    if width > 1
        && let Some(Some(c)) = coords.last().copied()
    {
        *coords.last_mut().expect("just seen") = Some(w.b.mul(c, width as u32));
    }
    let mut operands = Vec::new();
    for (i, access) in cx.step.inputs.iter().enumerate() {
        operands.push(load(&mut w, cx, i, access, &coords, width)?);
    }
    let size = cx.dtype(Arg::Output).size();
    let mut at = address::offset(&mut w.b, &out.view, size, &coords);
    if !groups.is_multiple_of(WORKGROUP as usize) {
        let inside = w.b.op(Gen::CmpGt.of(Type::U32), &[(groups as u32).into(), index.into()]);
        let reg = at.vector(&mut w.b);
        at.reg = Some(w.b.guard(inside, reg));
    }
    let mut results = Vec::new();
    for lane in 0..width {
        let input = |i: u32| operands[i as usize][lane.min(operands[i as usize].len() - 1)];
        results.push(expr::eval(&mut w.b, &cx.step.expr, &input, None)?);
    }
    let buf = w.buffer(cx, Arg::Output)?;
    if width == 1 {
        values::store(&mut w.b, cx.dtype(Arg::Output), buf, at, results[0]);
    } else {
        values::store_some(&mut w.b, cx.dtype(Arg::Output), buf, at, &results);
    }
    let flops = (dims.iter().product::<usize>() * cx.step.expr.cost()) as u64;
    Ok(vec![w.finish([(groups as u32).div_ceil(WORKGROUP), 1, 1], flops)])
}

/// Index of the workitem in a one-dimensional grid.
pub(super) fn linear_index(b: &mut Builder) -> Part {
    let group = b.workgroup_id(0);
    let item = b.workitem_id();
    let size = b.function().workgroup_size;
    let base = b.mul(group, size);
    b.add(base, item)
}

/// How many neighbours go together.
pub(super) fn width(graph: &FusedGraph, step: &Step) -> usize {
    let Some((&last, d)) = step.output.view.dims.last().zip(step.output.view.rank().checked_sub(1)) else { return 1 };
    let fits = |a: &Access| {
        let t = graph.tensor(a.tensor).dtype;
        values::comes_in_fours(t)
            && (a.view.strides[d] == 0 || values::is_word_aligned(t, &a.view))
            && a.indirect.is_empty()
            && matches!(a.view.strides[d], 0 | 1)
            && a.guard.as_ref().is_none_or(|g| g.ranges[d] == (0, last))
    };
    let stores = fits(&step.output) && step.output.view.strides[d] == 1;
    if last.is_multiple_of(4) && step.inputs.iter().all(fits) && stores { 4 } else { 1 }
}

/// The elements of operand `i` at the coordinates: `width` of them, or one that serves for all.
fn load(w: &mut Writer, cx: &Cx, i: usize, access: &Access, coords: &[Option<Part>], width: usize) -> Res<Vec<Value>> {
    let buf = w.buffer(cx, Arg::Input(i))?;
    let t = cx.dtype(Arg::Input(i));
    let mut at = address::offset(&mut w.b, &access.view, t.size(), coords);
    for (k, ind) in access.indirect.iter().enumerate() {
        let table = w.buffer(cx, Arg::Index(i, k))?;
        let it = cx.dtype(Arg::Index(i, k));
        let b = &mut w.b;
        let place = address::offset(b, &ind.view, it.size(), coords);
        let raw = values::load(b, it, table, place).reg(b);
        let wrapped = b.add(raw, ind.extent as u32);
        let negative = b.op(Gen::CmpGt.of(Type::I32), &[0u32.into(), raw.into()]);
        let index = b.select(negative, wrapped, raw);
        let (zero, top) = (b.to_vector(0u32), b.to_vector(ind.extent as u32 - 1));
        let index = b.op(op::V_MED3_I32, &[index.into(), zero.into(), top.into()]);
        let step = b.mul(index, (ind.stride * t.size() as i64) as i32);
        at = address::add(b, at, Offset { reg: Some(step), imm: 0 });
    }
    let inside = access.guard.as_ref().and_then(|g| guard(&mut w.b, &g.ranges, &access.view.dims, coords));
    if let Some(mask) = inside {
        let reg = at.vector(&mut w.b);
        let folded = if at.imm != 0 { w.b.add(reg, at.imm) } else { reg };
        at = Offset { reg: Some(w.b.guard(mask, folded)), imm: 0 };
    }
    let dense = width > 1 && access.view.strides.last() == Some(&1);
    let mut loaded =
        if dense { values::load_some(&mut w.b, t, buf, at, 4) } else { vec![values::load(&mut w.b, t, buf, at)] };
    if let (Some(mask), Some(g)) = (inside, &access.guard) {
        let mut fill = crate::graph::expr::Expr::new();
        fill.literal(t, g.fill);
        let zero = g.fill.as_f64() == 0.0 && !matches!(loaded[0], Value::Mask(_));
        // What lies out of bounds reads as zero: only another filling needs a selection.
        if !zero {
            for x in &mut loaded {
                let value = expr::eval(&mut w.b, &fill, &|_| unreachable!("a literal has no operands"), None)?;
                *x = values::select(&mut w.b, mask, *x, value);
            }
        }
    }
    Ok(loaded)
}

/// Mask of the lanes whose coordinates lie in all ranges; `None` when the ranges exclude nothing.
fn guard(b: &mut Builder, ranges: &[(usize, usize)], dims: &[usize], coords: &[Option<Part>]) -> Option<Part> {
    let mut mask: Option<Part> = None;
    for (d, &(lo, hi)) in ranges.iter().enumerate() {
        if (lo, hi) == (0, dims[d]) {
            continue;
        }
        let c = coords[d]?;
        let c = if b.is_vector(c.into()) { c } else { b.to_vector(c) };
        let shifted = if lo > 0 { b.sub(c, lo as u32) } else { c };
        let m = b.op(Gen::CmpGt.of(Type::U32), &[((hi - lo) as u32).into(), shifted.into()]);
        mask = Some(match mask {
            Some(p) => b.mask_and(p, m),
            None => m,
        });
    }
    mask
}
