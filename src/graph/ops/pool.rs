//! Poolings.

use super::conv::{Frame, check_size};
use crate::graph::error::{Reason, Res};
use crate::graph::expr::{Binary, Expr, Unary};
use crate::graph::fused::{Pool, PoolOp, Reduce, ReduceOp, StepKind, Window};
use crate::graph::lower::Lowering;
use crate::tensor::DType;

fn check(cx: &Lowering<'_>) -> Res<DType> {
    let x = cx.input(0)?;
    let (t, shape) = (cx.dtype(x), cx.shape(x));
    if !t.is_float() {
        return Err(Reason::Type(format!("pools type {t}; only floats are supported")));
    }
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
    if cx.int("storage_order", 0)? != 0 && cx.wants(1) {
        return Err(Reason::Output { number: 1, meaning: " (indices)", rest: "" });
    }
    let ceil = cx.int("ceil_mode", 0)? != 0;
    let (begin, end) = frame.padding(&shape[2..]);
    let mut dims = shape[..2].to_vec();
    for d in 0..spatial {
        let (padded, s) = (shape[2 + d] + begin[d] + end[d], frame.strides[d]);
        let room = padded.checked_sub(frame.reach(d)).ok_or_else(|| {
            Reason::Shape(format!("the window reaches over {} elements, the padded input has {padded}", frame.reach(d)))
        })?;
        let mut n = if ceil { room.div_ceil(s) } else { room / s } + 1;
        // A window that would start after the input and its first padding does not exist.
        if ceil && (n - 1) * s >= shape[2 + d] + begin[d] {
            n -= 1;
        }
        dims.push(n);
    }
    check_size(&dims)?;
    let mut pad_end = [0; 3];
    pad_end[..spatial].copy_from_slice(&end);
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
    let window = Window { kernel: frame.kernel, strides: frame.strides, dilations: frame.dilations, pads: begin };
    let data = cx.operand_if(x, |v| v.is_inner_dense(1));
    let mut y = cx.produce(StepKind::Pool(Pool { op, window, prologue }), vec![data], &dims, dtype);
    if let How::Lp(p) = how {
        y = root(cx, y, p)?;
    }
    cx.set(0, y);
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
    let dtype = check(cx)?;
    let x = cx.input(0)?;
    let shape = cx.shape(x).to_vec();
    let data = cx.operand(x);
    let y = cx.produce(StepKind::Reduce(Reduce { op, prologue }), vec![data], &shape[..2], dtype);
    let mut out = shape[..2].to_vec();
    out.resize(shape.len(), 1);
    Ok(y.reshaped(&out))
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
    let (dtype, p) = (check(cx)?, norm_order(cx)?);
    let y = global(cx, ReduceOp::Sum, power(dtype, p))?;
    let y = root(cx, y, p)?;
    cx.set(0, y);
    Ok(())
}
