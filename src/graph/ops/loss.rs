//! Classification losses: the score of the right class, weighted and averaged.

use super::gather::check_index;
use crate::graph::ask::Ask;
use crate::graph::error::{Reason, Res};
use crate::graph::expr::{Binary, Expr, Unary};
use crate::graph::fused::{Access, Indirect, Reduce, ReduceOp, Softmax, StepKind};
use crate::graph::infer::Inference;
use crate::graph::lazy::Lazy;
use crate::graph::lower::Lowering;
use crate::graph::resolve::ValueId;
use crate::graph::view::View;
use crate::onnx::Attribute;
use crate::tensor::DType;

/// The sum of all elements.
fn total(cx: &mut Lowering<'_>, lazy: Lazy, dtype: DType) -> Lazy {
    let access = cx.operand_of(lazy, |_| true);
    let view = access.view.repeated(0, 1);
    let kind = StepKind::Reduce(Reduce { op: ReduceOp::Sum, prologue: Expr::acc(dtype) });
    let view = if view.rank() == 1 { view.repeated(1, 1) } else { view };
    cx.produce(kind, vec![Access::new(access.tensor, view)], &[1], dtype).reshaped(&[])
}

/// Sets output 0 to the loss of log probabilities `[N, C, d..]` for classes `[N, d..]`.
fn loss(cx: &mut Lowering<'_>, log: Access, classes: ValueId, weights: Option<ValueId>, dtype: DType) -> Res<()> {
    check_index(cx, classes)?;
    let shape = log.view.dims.clone();
    let (c, mut dims) = (shape[1], shape.clone());
    dims.remove(1);
    if cx.shape(classes) != dims {
        return Err(Reason::Shape(format!(
            "classes of shape {:?} do not fit scores of shape {shape:?}",
            cx.shape(classes)
        )));
    }
    let index = cx.operand(classes);
    let index_type = cx.dtype(classes);
    let mut strides = log.view.strides.clone();
    let stride = strides.remove(1);
    let table = |stride| Indirect { index: index.tensor, view: index.view.clone(), stride, extent: c };
    let mut picked = Access::new(log.tensor, View { offset: log.view.offset, dims: dims.clone(), strides });
    picked.indirect.push(table(stride));
    let mut terms = vec![Lazy::read(picked, dtype), Lazy::read(index.clone(), index_type)];
    if let Some(w) = weights {
        if cx.shape(w) != [c] || cx.dtype(w) != dtype {
            return Err(Reason::Shape(format!("weights of shape {:?} do not fit {c} classes", cx.shape(w))));
        }
        let w = cx.operand(w);
        let zeros = View { offset: w.view.offset, dims: dims.clone(), strides: vec![0; dims.len()] };
        let mut access = Access::new(w.tensor, zeros);
        access.indirect.push(table(w.view.strides[0]));
        terms.push(Lazy::read(access, dtype));
    }
    let ignored = match cx.attribute("ignore_index") {
        Some(Attribute::Int(i)) => Some(*i),
        _ => None,
    };
    let weight = |e: &mut Expr, v: &[crate::graph::expr::Val]| {
        let w = v.get(2).copied().unwrap_or_else(|| e.constant(dtype, 1.0));
        let Some(i) = ignored else { return w };
        let i = e.literal(index_type, crate::graph::expr::Scalar::Int(i));
        let skip = e.binary(Binary::Eq, v[1], i);
        let zero = e.constant(dtype, 0.0);
        e.select(skip, zero, w)
    };
    let each = cx.combine(terms.clone(), &dims, |e, v| {
        let w = weight(e, v);
        let x = e.unary(Unary::Neg, v[0]);
        e.binary(Binary::Mul, x, w)
    })?;
    let y = match cx.text("reduction", "mean")? {
        "none" => each,
        "sum" => total(cx, each, dtype),
        "mean" => {
            let sum = total(cx, each, dtype);
            let used = cx.combine(terms, &dims, weight)?;
            let used = total(cx, used, dtype);
            let used = cx.stored(used);
            cx.combine(vec![sum, used], &[], |e, v| e.binary(Binary::Div, v[0], v[1]))?
        }
        other => return Err(Reason::attribute("reduction", format!("is `{other}`; none, sum and mean are supported"))),
    };
    cx.set(0, y);
    Ok(())
}

fn scores(cx: &Lowering<'_>) -> Res<(ValueId, DType)> {
    let x = cx.input(0)?;
    let (dtype, shape) = (cx.dtype(x), cx.shape(x));
    if !dtype.is_float() || shape.len() < 2 || shape.contains(&0) {
        return Err(Reason::Type(format!("scores of type {dtype} and shape {shape:?}; floats [N, C, ..] are needed")));
    }
    Ok((x, dtype))
}

pub(super) fn negative_log_likelihood(cx: &mut Lowering<'_>) -> Res<()> {
    let (x, dtype) = scores(cx)?;
    let log = cx.operand(x);
    let (classes, weights) = (cx.input(1)?, cx.optional(2));
    loss(cx, log, classes, weights, dtype)
}

pub(super) fn softmax_cross_entropy(cx: &mut Lowering<'_>) -> Res<()> {
    let (x, dtype) = scores(cx)?;
    let rank = cx.rank(x);
    // Classes go last for the softmax and come back as a view.
    let order: Vec<usize> = [0].into_iter().chain(2..rank).chain([1]).collect();
    let lazy = cx.without_base(x);
    let moved = cx.permute(lazy, &order);
    let dims = moved.shape.clone();
    let access = cx.operand_of(moved, |_| true);
    let log = cx.produce(StepKind::Softmax(Softmax { log: true, masked: false }), vec![access], &dims, dtype);
    let mut back = vec![0; rank];
    order.iter().enumerate().for_each(|(i, &o)| back[o] = i);
    let log = cx.permute(log, &back);
    let access = cx.operand_of(log, |_| true);
    let (classes, weights) = (cx.input(1)?, cx.optional(2));
    loss(cx, access.clone(), classes, weights, dtype)?;
    cx.set(1, Lazy::read(access, dtype));
    Ok(())
}

// ---- rules ----

pub(super) fn of_loss(cx: &mut Inference<'_>) -> Res<()> {
    let x = cx.input(0)?;
    let mut dims = cx.dims(x).to_vec();
    if cx.text("reduction", "mean")? != "none" || dims.len() < 2 {
        dims.clear();
    } else {
        dims.remove(1);
    }
    cx.give(0, cx.dtype(x), dims)
}

pub(super) fn of_cross_entropy(cx: &mut Inference<'_>) -> Res<()> {
    of_loss(cx)?;
    let x = cx.input(0)?;
    cx.give(1, cx.dtype(x), cx.dims(x).to_vec())
}
