//! Poolings.

use super::conv::Frame;
use crate::graph::ask::Ask;
use crate::graph::dim::{Dim, described};
use crate::graph::error::{Reason, Res};
use crate::graph::expr::{Binary, Expr, Unary, Val};
use crate::graph::fused::{Coder, Pool, PoolOp, Reduce, ReduceOp, StepKind, Window};
use crate::graph::infer::Inference;
use crate::graph::lower::Lowering;
use crate::graph::view::View;
use crate::tensor::DType;

fn check(cx: &Lowering<'_>) -> Res<DType> {
    let x = cx.input(0)?;
    let (t, shape) = (cx.dtype(x), cx.shape(x));
    if shape.len() < 3 || shape.contains(&0) {
        return Err(Reason::Shape(format!("data of shape {shape:?} cannot be pooled; [N, C, spatial..] is needed")));
    }
    Ok(t)
}

enum How {
    Max,
    Average,
    Lp(f64),
}

fn pool(cx: &mut Lowering<'_>, how: How) -> Res<()> {
    let dtype = check(cx)?;
    let x = cx.input(0)?;
    let shape = cx.shape(x).to_vec();
    let spatial = shape.len() - 2;
    let frame = Frame::read(cx, spatial, None)?;
    let (begin, end) = frame.padding(&shape[2..]);
    let dims = cx.result(0);
    if !dtype.is_float() && !matches!((&how, dtype), (How::Max, DType::I8 | DType::U8)) {
        return Err(Reason::Type(format!("pools type {dtype}; floats are supported, and the largest of i8 and u8")));
    }
    if let How::Max = how
        && cx.wants(1)
    {
        return places(cx, &frame, &begin, &dims);
    }
    // A window that covers all of the image slides nowhere: its elements are summed by many workitems.
    let covers = frame.kernel == shape[2..] && frame.dilations.iter().all(|d| *d == 1);
    if covers && begin.iter().chain(&end).all(|p| *p == 0) && dims[2..].iter().all(|d| *d == 1) {
        return match how {
            How::Max => global_max(cx),
            How::Average => global_average(cx),
            How::Lp(p) => lp_of_all(cx, p),
        };
    }
    let mut pad_end = [0; 3];
    pad_end[..spatial].copy_from_slice(&end);
    if cx.opset() < 19 && cx.int("ceil_mode", 0)? == 0 {
        // What such a window has beyond the padding counts as padding, as in onnxruntime.
        for d in 0..spatial {
            pad_end[d] = pad_end[d].max(frame.reach(d).saturating_sub(shape[2 + d] + begin[d]));
        }
    }
    let op = match how {
        How::Max => PoolOp::Max,
        How::Average if cx.int("count_include_pad", 0)? != 0 => PoolOp::AverageIncludePad { pad_end },
        How::Average => PoolOp::Average,
        How::Lp(_) => PoolOp::Sum,
    };
    let mut prologue = Expr::acc(dtype);
    if let How::Lp(p) = how {
        prologue = power(dtype, p);
    }
    let mut window = Window { kernel: frame.kernel, strides: frame.strides, dilations: frame.dilations, pads: begin };
    let last = |v: &View| spatial < 3 && channels_last(v, dtype.size());
    let mut data = cx.operand_if(x, |v| v.is_inner_dense(1) || last(v));
    let mut y = if last(&data.view) {
        // Windows slide over channels too, one at a time.
        window.kernel.push(1);
        window.strides.push(1);
        window.dilations.push(1);
        window.pads.push(0);
        data.view = behind(&data.view);
        let mut given = vec![dims[0], 1];
        given.extend(dims[2..].iter().chain([&dims[1]]));
        let y = cx.produce(StepKind::Pool(Pool { op, window, prologue }), vec![data], &given, dtype);
        given.remove(1);
        let order: Vec<usize> = [0, spatial + 1].into_iter().chain(1..=spatial).collect();
        cx.permute(y.reshaped(&given), &order)
    } else {
        cx.produce(StepKind::Pool(Pool { op, window, prologue }), vec![data], &dims, dtype)
    };
    if let How::Lp(p) = how {
        y = root(cx, y, p)?;
    }
    cx.set(0, y);
    Ok(())
}

/// Bytes of a pixel from which on channels that come last are pooled as they lie.
const PIXEL: usize = 16;

/// A view of `[N,C,spatial..]` as one of `[N,1,spatial..,C]`.
fn behind(v: &View) -> View {
    let order: Vec<usize> = [0].into_iter().chain(2..v.rank()).chain([1]).collect();
    let mut v = v.permuted(&order);
    v.dims.insert(1, 1);
    v.strides.insert(1, 0);
    v
}

/// Channels come last in memory, and a pixel has some bytes.
fn channels_last(v: &View, size: usize) -> bool {
    v.strides[1] == 1 && v.dims[1] * size >= PIXEL && behind(v).is_inner_dense(1)
}

/// The largest element of each window, and its number among all elements (by columns with `storage_order`).
fn places(cx: &mut Lowering<'_>, frame: &Frame, begin: &[usize], dims: &[usize]) -> Res<()> {
    let x = cx.input(0)?;
    let (shape, dtype) = (cx.shape(x).to_vec(), cx.dtype(x));
    let spatial = shape.len() - 2;
    let area: usize = shape[2..].iter().product();
    let by_columns = cx.int("storage_order", 0)? != 0;
    let data = cx.operand_if(x, View::is_dense);
    let walk = |c: &mut Coder, index: bool| {
        let at: Vec<Val> = (0..dims.len()).map(|d| c.coord(d)).collect();
        let plane = c.place(&at[..2], &dims[..2]);
        let base = c.times(plane, area as i64);
        let (zero, none) = (c.constant(dtype, 0.0), c.int(-1));
        let (best, place) = (c.var(zero), c.var(none));
        c.repeat(frame.kernel.iter().product(), |c, tap| {
            let (mut rest, mut coords, mut inside) = (tap, Vec::new(), None);
            for d in (0..spatial).rev() {
                let (q, k) = c.divide(rest, frame.kernel[d]);
                rest = q;
                let start = c.times(at[2 + d], frame.strides[d] as i64);
                let reach = c.times(k, frame.dilations[d] as i64);
                let p = c.add(start, reach);
                let p = c.plus(p, -(begin[d] as i64));
                let here = c.within(p, 0, shape[2 + d] as i64);
                inside = Some(inside.map_or(here, |m| c.and(m, here)));
                coords.insert(0, p);
            }
            let own = c.place(&coords, &shape[2..]);
            let from = c.add(base, own);
            let value = c.load_checked(0, from);
            let (old, old_place, zero) = (c.get(best), c.get(place), c.int(0));
            let first = c.lt(old_place, zero);
            let larger = c.lt(old, value);
            let mut take = c.binary(Binary::Or, first, larger);
            if let Some(m) = inside {
                take = c.and(take, m);
            }
            let number = if by_columns {
                let turned: Vec<Val> = coords.iter().rev().copied().collect();
                let extents: Vec<usize> = shape[2..].iter().rev().copied().collect();
                let own = c.place(&turned, &extents);
                c.add(base, own)
            } else {
                from
            };
            let (value, number) = (c.select(take, value, old), c.select(take, number, old_place));
            c.set(best, value);
            c.set(place, number);
        });
        if index {
            let place = c.get(place);
            c.cast(place, DType::I64)
        } else {
            c.get(best)
        }
    };
    let values = cx.program(vec![data.clone()], dims, |c| walk(c, false));
    cx.set(0, values);
    if cx.wants(1) {
        let numbers = cx.program(vec![data], dims, |c| walk(c, true));
        cx.set(1, numbers);
    }
    Ok(())
}

/// `|x|^p` of the accumulator.
pub(super) fn power(dtype: DType, p: f64) -> Expr {
    let mut e = Expr::new();
    let x = e.push_acc(dtype);
    let y = if p == 2.0 {
        e.binary(Binary::Mul, x, x)
    } else {
        let a = e.unary(Unary::Abs, x);
        let p = e.constant(dtype, p);
        e.binary(Binary::Pow, a, p)
    };
    e.finish(y)
}

/// `y^(1/p)`
pub(super) fn root(cx: &mut Lowering<'_>, y: crate::graph::lazy::Lazy, p: f64) -> Res<crate::graph::lazy::Lazy> {
    let shape = y.shape.clone();
    cx.combine(vec![y], &shape, |e, v| {
        if p == 2.0 {
            return e.unary(Unary::Sqrt, v[0]);
        }
        let r = e.constant(e.type_of(v[0]), 1.0 / p);
        e.binary(Binary::Pow, v[0], r)
    })
}

pub(super) fn max(cx: &mut Lowering<'_>) -> Res<()> {
    pool(cx, How::Max)
}

pub(super) fn average(cx: &mut Lowering<'_>) -> Res<()> {
    pool(cx, How::Average)
}

/// `p`, an integer since opset 2 and a float before.
fn norm_order(cx: &Lowering<'_>) -> Res<f64> {
    cx.float("p", 2.0)
}

pub(super) fn lp(cx: &mut Lowering<'_>) -> Res<()> {
    let p = norm_order(cx)?;
    pool(cx, How::Lp(p))
}

fn global(cx: &mut Lowering<'_>, op: ReduceOp, prologue: Expr) -> Res<crate::graph::lazy::Lazy> {
    let t = cx.dtype(cx.input(0)?);
    if !t.is_float() && op != ReduceOp::Max {
        return Err(Reason::Type(format!("pools type {t}; floats are supported, and the largest of integers")));
    }
    let dtype = check(cx)?;
    let x = cx.input(0)?;
    let shape = cx.shape(x).to_vec();
    let data = cx.operand(x);
    let y = cx.produce(StepKind::Reduce(Reduce { op, prologue }), vec![data], &shape[..2], dtype);
    Ok(y.reshaped(&cx.result(0)))
}

pub(super) fn global_average(cx: &mut Lowering<'_>) -> Res<()> {
    let dtype = check(cx)?;
    let n: usize = cx.shape(cx.input(0)?)[2..].iter().product();
    let y = global(cx, ReduceOp::Sum, Expr::acc(dtype))?;
    let shape = y.shape.clone();
    let y = cx.combine(vec![y], &shape, |e, v| {
        let n = e.constant(dtype, n as f64);
        e.binary(Binary::Div, v[0], n)
    })?;
    cx.set(0, y);
    Ok(())
}

pub(super) fn global_max(cx: &mut Lowering<'_>) -> Res<()> {
    let dtype = check(cx)?;
    let y = global(cx, ReduceOp::Max, Expr::acc(dtype))?;
    cx.set(0, y);
    Ok(())
}

pub(super) fn global_lp(cx: &mut Lowering<'_>) -> Res<()> {
    let p = norm_order(cx)?;
    lp_of_all(cx, p)
}

fn lp_of_all(cx: &mut Lowering<'_>, p: f64) -> Res<()> {
    let dtype = check(cx)?;
    let y = global(cx, ReduceOp::Sum, power(dtype, p))?;
    let y = root(cx, y, p)?;
    cx.set(0, y);
    Ok(())
}

// ---- rules ----

fn planes(cx: &Inference<'_>) -> Res<Vec<Dim>> {
    let dims = cx.dims(cx.input(0)?);
    if dims.len() < 3 {
        let shape = described(dims);
        return Err(Reason::Shape(format!("data of shape {shape} cannot be pooled; [N, C, spatial..] is needed")));
    }
    Ok(dims.to_vec())
}

/// The pooled data, and where the elements came from.
pub(super) fn of_pool(cx: &mut Inference<'_>) -> Res<()> {
    let shape = planes(cx)?;
    let frame = Frame::read(cx, shape.len() - 2, None)?;
    let ceil = cx.int("ceil_mode", 0)? != 0;
    let mut dims = shape[..2].to_vec();
    for (d, n) in shape[2..].iter().enumerate() {
        dims.push(frame.pooled(d, n, ceil)?);
    }
    cx.give(0, cx.dtype(cx.input(0)?), dims.clone())?;
    cx.give(1, DType::I64, dims)
}

pub(super) fn of_global(cx: &mut Inference<'_>) -> Res<()> {
    let mut dims = planes(cx)?;
    dims[2..].fill(Dim::Known(1));
    cx.give(0, cx.dtype(cx.input(0)?), dims)
}
