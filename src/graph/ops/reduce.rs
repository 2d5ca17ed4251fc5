//! Reductions over axes, softmax and relatives.

use crate::graph::ask::Ask;
use crate::graph::dim::Dim;
use crate::graph::error::{Reason, Res};
use crate::graph::expr::{Binary, Expr, Scalar, Unary, Val};
use crate::graph::fused::{Access, Reduce, ReduceOp, Softmax, StepKind};
use crate::graph::infer::Inference;
use crate::graph::lazy::Lazy;
use crate::graph::lower::{Lowering, splat};
use crate::graph::resolve::ValueId;
use crate::tensor::DType;

/// Which axes, and what the result looks like.
struct Plan {
    reduced: Vec<bool>,
    /// The result's shape.
    shape: Vec<usize>,
    /// How many elements make one.
    count: usize,
}

/// Which dimensions are reduced. `None`: nothing is (`noop_with_empty_axes`).
fn reduced<'m>(cx: &impl Ask<'m>) -> Res<Option<Vec<bool>>> {
    let rank = cx.rank(cx.input(0)?);
    let axes = match cx.ints("axes")? {
        Some(a) => a,
        None if cx.optional(1).is_some() => cx.const_ints(1, "the axes")?,
        None => vec![],
    };
    if axes.is_empty() && cx.int("noop_with_empty_axes", 0)? != 0 {
        return Ok(None);
    }
    let mut reduced = vec![axes.is_empty(); rank];
    for a in axes {
        reduced[cx.axis(a, rank)?] = true;
    }
    Ok(Some(reduced))
}

fn plan(cx: &Lowering<'_>) -> Res<Option<Plan>> {
    let shape = cx.shape(cx.input(0)?);
    Ok(reduced(cx)?.map(|reduced| {
        let count = shape.iter().zip(&reduced).filter(|&(_, &r)| r).map(|(&d, _)| d).product();
        Plan { reduced, shape: cx.result(0), count }
    }))
}

/// What stays of dimensions.
fn remaining<T: Clone>(dims: &[T], reduced: &[bool], one: Option<T>) -> Vec<T> {
    let left = |(d, &r): (&T, &bool)| if r { one.clone() } else { Some(d.clone()) };
    dims.iter().zip(reduced).filter_map(left).collect()
}

fn finish_plan(shape: &[usize], reduced: Vec<bool>, keep: bool) -> Plan {
    let count = shape.iter().zip(&reduced).filter(|&(_, &r)| r).map(|(&d, _)| d).product();
    let shape = remaining(shape, &reduced, keep.then_some(1));
    Plan { reduced, shape, count }
}

/// The reduction of an access by a plan.
fn reduce(cx: &mut Lowering<'_>, x: Access, p: &Plan, op: ReduceOp, prologue: Expr, dtype: DType) -> Lazy {
    let rank = p.reduced.len();
    let order: Vec<usize> = (0..rank).filter(|&d| !p.reduced[d]).chain((0..rank).filter(|&d| p.reduced[d])).collect();
    let mut view = x.view.permuted(&order);
    let mut dims: Vec<usize> = (0..rank).filter(|&d| !p.reduced[d]).map(|d| x.view.dims[d]).collect();
    if dims.is_empty() {
        dims.push(1);
        view = view.repeated(0, 1);
    }
    if view.rank() == dims.len() {
        view = view.repeated(dims.len(), 1);
    }
    let x = Access::new(x.tensor, view);
    cx.produce(StepKind::Reduce(Reduce { op, prologue }), vec![x], &dims, dtype).reshaped(&p.shape)
}

/// Sums along an axis, which stays with extent 1, in a type of their own.
pub(super) fn sum_along(cx: &mut Lowering<'_>, x: Access, axis: usize, from: DType, dtype: DType) -> Lazy {
    let shape = x.view.dims.clone();
    let reduced = (0..shape.len()).map(|d| d == axis).collect();
    let mut prologue = Expr::new();
    let acc = prologue.push_acc(from);
    let wide = prologue.cast(acc, dtype);
    reduce(cx, x, &finish_plan(&shape, reduced, true), ReduceOp::Sum, prologue.finish(wide), dtype)
}

/// The place of the largest element along an axis, which stays with extent 1, as i64.
pub(super) fn largest_along(cx: &mut Lowering<'_>, x: Access, axis: usize, from: DType) -> Lazy {
    let shape = x.view.dims.clone();
    let reduced = (0..shape.len()).map(|d| d == axis).collect();
    let p = finish_plan(&shape, reduced, true);
    reduce(cx, x, &p, ReduceOp::ArgMax { last: false }, Expr::acc(from), DType::I64)
}

/// Reduces input 0: `before` each element, `after` the whole, which gets the number of elements too.
fn simple(
    cx: &mut Lowering<'_>,
    op: ReduceOp,
    empty: f64,
    before: impl Fn(&mut Expr, Val) -> Val,
    after: impl Fn(&mut Expr, Val, usize) -> Val,
) -> Res<()> {
    let x = cx.input(0)?;
    let dtype = cx.dtype(x);
    // Booleans are reduced as bytes. Sums of f16 and how many elements they have may be beyond f16.
    let sums = matches!(op, ReduceOp::Sum | ReduceOp::Prod);
    let wide = match dtype {
        DType::Bool => DType::U8,
        DType::F16 | DType::BF16 if sums => DType::F32,
        other => other,
    };
    simple_in(cx, op, (empty, wide), before, after)
}

/// The same of functions that are of floats: integers become such, and the result an integer again, without its fraction.
fn of_floats(
    cx: &mut Lowering<'_>,
    op: ReduceOp,
    before: impl Fn(&mut Expr, Val) -> Val,
    after: impl Fn(&mut Expr, Val, usize) -> Val,
) -> Res<()> {
    let wide = float_of(cx.dtype(cx.input(0)?));
    simple_in(cx, op, (0.0, wide), before, after)
}

/// The floats in which functions of floats are computed of elements of a type: halves' sums may be beyond them.
fn float_of(dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::BF16 => DType::F32,
        float if float.is_float() => float,
        _ => DType::F64,
    }
}

/// The same, computed in type `wide`.
fn simple_in(
    cx: &mut Lowering<'_>,
    op: ReduceOp,
    (empty, wide): (f64, DType),
    before: impl Fn(&mut Expr, Val) -> Val,
    after: impl Fn(&mut Expr, Val, usize) -> Val,
) -> Res<()> {
    let x = cx.input(0)?;
    let dtype = cx.dtype(x);
    let Some(p) = plan(cx)? else {
        let y = cx.elementwise(&[x], |e, v| {
            let x = if wide.is_float() { e.cast(v[0], wide) } else { v[0] };
            let y = before(e, x);
            let y = after(e, y, 1);
            e.cast(y, dtype)
        })?;
        cx.set(0, y);
        return Ok(());
    };
    let y = if cx.shape(x).contains(&0) {
        splat(dtype, &p.shape, Scalar::of(dtype, empty))
    } else {
        let mut prologue = Expr::new();
        let acc = prologue.push_acc(dtype);
        let acc = prologue.cast(acc, wide);
        let r = before(&mut prologue, acc);
        let access = cx.operand(x);
        reduce(cx, access, &p, op, prologue.finish(r), wide)
    };
    let shape = y.shape.clone();
    let y = cx.combine(vec![y], &shape, |e, v| {
        let y = after(e, v[0], p.count);
        e.cast(y, dtype)
    })?;
    cx.set(0, y);
    Ok(())
}

fn same(_: &mut Expr, v: Val) -> Val {
    v
}

fn whole(_: &mut Expr, v: Val, _: usize) -> Val {
    v
}

fn square(e: &mut Expr, v: Val) -> Val {
    e.binary(Binary::Mul, v, v)
}

/// The smallest or largest value of a type.
fn limit(dtype: DType, largest: bool) -> f64 {
    let bits = dtype.size() as i32 * 8;
    match (dtype.is_float(), dtype.is_signed_int(), largest) {
        (true, _, true) => f64::INFINITY,
        (true, _, false) => f64::NEG_INFINITY,
        (_, true, true) => 2f64.powi(bits - 1) - 1.0,
        (_, true, false) => -(2f64.powi(bits - 1)),
        (_, _, true) if dtype == DType::Bool => 1.0,
        (_, _, true) => 2f64.powi(bits) - 1.0,
        (_, _, false) => 0.0,
    }
}

pub(super) fn sum(cx: &mut Lowering<'_>) -> Res<()> {
    simple(cx, ReduceOp::Sum, 0.0, same, whole)
}

pub(super) fn mean(cx: &mut Lowering<'_>) -> Res<()> {
    // The mean of nothing is 0, as in onnxruntime; ONNX leaves it open.
    let divided = |e: &mut Expr, v: Val, n: usize| {
        let n = e.constant(e.type_of(v), n.max(1) as f64);
        e.binary(Binary::Div, v, n)
    };
    let dtype = cx.dtype(cx.input(0)?);
    // A mean is in the range of its elements where their sum is not.
    if dtype.is_int() && dtype.bits() < 64 {
        return simple_in(cx, ReduceOp::Sum, (0.0, DType::I64), same, divided);
    }
    simple(cx, ReduceOp::Sum, 0.0, same, divided)
}

pub(super) fn max(cx: &mut Lowering<'_>) -> Res<()> {
    let empty = limit(cx.dtype(cx.input(0)?), false);
    simple(cx, ReduceOp::Max, empty, same, whole)
}

pub(super) fn min(cx: &mut Lowering<'_>) -> Res<()> {
    let empty = limit(cx.dtype(cx.input(0)?), true);
    simple(cx, ReduceOp::Min, empty, same, whole)
}

pub(super) fn prod(cx: &mut Lowering<'_>) -> Res<()> {
    simple(cx, ReduceOp::Prod, 1.0, same, whole)
}

pub(super) fn l1(cx: &mut Lowering<'_>) -> Res<()> {
    simple(cx, ReduceOp::Sum, 0.0, |e, v| e.unary(Unary::Abs, v), whole)
}

pub(super) fn l2(cx: &mut Lowering<'_>) -> Res<()> {
    of_floats(cx, ReduceOp::Sum, square, |e, v, _| e.unary(Unary::Sqrt, v))
}

pub(super) fn sum_square(cx: &mut Lowering<'_>) -> Res<()> {
    simple(cx, ReduceOp::Sum, 0.0, square, whole)
}

pub(super) fn log_sum(cx: &mut Lowering<'_>) -> Res<()> {
    of_floats(cx, ReduceOp::Sum, same, |e, v, _| e.unary(Unary::Log, v))
}

pub(super) fn log_sum_exp(cx: &mut Lowering<'_>) -> Res<()> {
    let x = cx.input(0)?;
    let dtype = cx.dtype(x);
    if plan(cx)?.is_none() {
        cx.pass(0, x);
        return Ok(());
    }
    // Of integers the logarithm without its fraction.
    simple_in(cx, ReduceOp::LogSumExp, (limit(dtype, false), float_of(dtype)), same, whole)
}

fn arg(cx: &mut Lowering<'_>, op: impl Fn(bool) -> ReduceOp) -> Res<()> {
    let x = cx.input(0)?;
    let shape = cx.shape(x).to_vec();
    let axis = cx.axis(cx.int("axis", 0)?, shape.len())?;
    if shape.contains(&0) {
        return Err(Reason::Shape(format!("data of shape {shape:?} has no elements")));
    }
    let last = cx.int("select_last_index", 0)? != 0;
    let reduced = (0..shape.len()).map(|d| d == axis).collect();
    let p = finish_plan(&shape, reduced, cx.int("keepdims", 1)? != 0);
    let prologue = Expr::acc(cx.dtype(x));
    let access = cx.operand(x);
    let y = reduce(cx, access, &p, op(last), prologue, DType::I64);
    cx.set(0, y);
    Ok(())
}

pub(super) fn arg_max(cx: &mut Lowering<'_>) -> Res<()> {
    arg(cx, |last| ReduceOp::ArgMax { last })
}

pub(super) fn arg_min(cx: &mut Lowering<'_>) -> Res<()> {
    arg(cx, |last| ReduceOp::ArgMin { last })
}

/// Shape and axis of softmax-like operators: before opset 13 (the model's, or the one that the node states) everything from `axis` on
/// is one dimension.
fn softmax_shape(cx: &Lowering<'_>) -> Res<(Vec<usize>, usize)> {
    let x = cx.input(0)?;
    let shape = cx.shape(x).to_vec();
    if shape.is_empty() {
        return Ok((vec![1], 0));
    }
    if cx.int("opset", cx.opset())? >= 13 {
        let axis = cx.axis(cx.int("axis", -1)?, shape.len())?;
        return Ok((shape, axis));
    }
    let axis = cx.axis(cx.int("axis", 1)?, shape.len())?;
    Ok((vec![shape[..axis].iter().product(), shape[axis..].iter().product()], 1))
}

fn softmax_with(cx: &mut Lowering<'_>, log: bool) -> Res<()> {
    let x = cx.input(0)?;
    let dtype = cx.dtype(x);
    if !dtype.is_float() {
        return Err(Reason::Type(format!("input 0 has type {dtype}; only floats are supported")));
    }
    let given = cx.shape(x).to_vec();
    if given.contains(&0) {
        cx.set(0, splat(dtype, &given, Scalar::Float(0.0)));
        return Ok(());
    }
    let (shape, axis) = softmax_shape(cx)?;
    let y = softmax_of(cx, x, shape, axis, log);
    cx.set(0, y.reshaped(&given));
    Ok(())
}

/// Softmax over the last dimension, which several nodes stand for.
pub(crate) fn lower_softmax(cx: &mut Lowering<'_>, x: ValueId) {
    let shape = cx.shape(x).to_vec();
    let axis = shape.len().saturating_sub(1);
    let y = softmax_of(cx, x, shape, axis, false);
    cx.set(0, y);
}

/// Softmax of a value with these dimensions.
fn softmax_of(cx: &mut Lowering<'_>, x: ValueId, shape: Vec<usize>, axis: usize, log: bool) -> Lazy {
    let dtype = cx.dtype(x);
    let lazy = cx.without_base(x).reshaped(&shape);
    // The axis goes last, and comes back afterwards.
    let mut order: Vec<usize> = (0..shape.len()).filter(|&d| d != axis).collect();
    order.push(axis);
    let moved = cx.permute(lazy, &order);
    let mut dims = moved.shape.clone();
    let mut access = cx.operand_of(moved, |_| true);
    if dims.len() == 1 {
        dims.insert(0, 1);
        access.view = access.view.repeated(0, 1);
    }
    let mut y = cx.produce(StepKind::Softmax(Softmax { log, masked: false }), vec![access], &dims, dtype);
    if axis + 1 != shape.len() {
        let mut back = vec![0; order.len()];
        order.iter().enumerate().for_each(|(i, &o)| back[o] = i);
        y = cx.permute(y, &back);
    }
    y
}

pub(super) fn softmax(cx: &mut Lowering<'_>) -> Res<()> {
    softmax_with(cx, false)
}

pub(super) fn log_softmax(cx: &mut Lowering<'_>) -> Res<()> {
    softmax_with(cx, true)
}

/// 1 at the first maximum along the axis, 0 elsewhere.
pub(super) fn hardmax(cx: &mut Lowering<'_>) -> Res<()> {
    let x = cx.input(0)?;
    let dtype = cx.dtype(x);
    let given = cx.shape(x).to_vec();
    if given.contains(&0) {
        return Err(Reason::Shape(format!("data of shape {given:?} has no elements")));
    }
    let (shape, axis) = softmax_shape(cx)?;
    let lazy = cx.without_base(x).reshaped(&shape);
    let access = cx.operand_of(lazy, |_| true);
    let p = finish_plan(&shape, (0..shape.len()).map(|d| d == axis).collect(), true);
    let best = reduce(cx, access, &p, ReduceOp::ArgMax { last: false }, Expr::acc(dtype), DType::I64);
    let best = cx.stored(best);
    let positions = super::source::counted(cx, "hardmax positions", DType::I64, shape[axis], (axis, shape.len()))?;
    let y = cx.combine(vec![positions, best], &shape, |e, v| {
        let hit = e.binary(Binary::Eq, v[0], v[1]);
        e.cast(hit, dtype)
    })?;
    cx.set(0, y.reshaped(&given));
    Ok(())
}

// ---- rules ----

fn of_reduced(cx: &mut Inference<'_>, reduced: &[bool], dtype: DType) -> Res<()> {
    let one = (cx.int("keepdims", 1)? != 0).then_some(Dim::Known(1));
    let dims = remaining(cx.dims(cx.input(0)?), reduced, one);
    cx.give(0, dtype, dims)
}

pub(super) fn of_reduction(cx: &mut Inference<'_>) -> Res<()> {
    let x = cx.input(0)?;
    match reduced(cx)? {
        Some(reduced) => of_reduced(cx, &reduced, cx.dtype(x)),
        None => cx.give(0, cx.dtype(x), cx.dims(x).to_vec()),
    }
}

/// Where the largest or smallest element is.
pub(super) fn of_place(cx: &mut Inference<'_>) -> Res<()> {
    let rank = cx.rank(cx.input(0)?);
    let axis = cx.axis(cx.int("axis", 0)?, rank)?;
    of_reduced(cx, &(0..rank).map(|d| d == axis).collect::<Vec<_>>(), DType::I64)
}
