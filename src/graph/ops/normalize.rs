//! Normalisations.

use super::pool::{power, root};
use crate::graph::ask::Ask;
use crate::graph::dim::Dim;
use crate::graph::error::{Reason, Res};
use crate::graph::expr::{Binary, Expr, Unary, Val};
use crate::graph::fused::{Access, Normalize, Pool, PoolOp, Reduce, ReduceOp, StepKind, Window};
use crate::graph::infer::Inference;
use crate::graph::lazy::Lazy;
use crate::graph::lower::Lowering;
use crate::graph::norms::Norm;
use crate::graph::resolve::ValueId;
use crate::graph::view::View;
use crate::tensor::{DType, HostTensor};

fn float_input(cx: &Lowering<'_>) -> Res<(ValueId, DType, Vec<usize>)> {
    let x = cx.input(0)?;
    let (t, shape) = (cx.dtype(x), cx.shape(x).to_vec());
    if !t.is_float() {
        return Err(Reason::Type(format!("input 0 has type {t}; only floats are supported")));
    }
    if shape.contains(&0) {
        return Err(Reason::Shape(format!("data of shape {shape:?} has no elements")));
    }
    Ok((x, t, shape))
}

/// A vector along dimension 1 of `rank` dimensions.
fn channels(rank: usize, c: usize) -> Vec<usize> {
    let mut dims = vec![1; rank];
    if rank > 1 {
        dims[1] = c;
    } else {
        dims[0] = c;
    }
    dims
}

/// `x * scale + shift` per channel; both constants are computed here when everything is known.
pub(super) fn batch(cx: &mut Lowering<'_>) -> Res<()> {
    let (x, dtype, shape) = float_input(cx)?;
    if cx.int("training_mode", 0)? != 0 {
        return Err(Reason::attribute("training_mode", "is 1; only inference (0) is supported"));
    }
    if cx.opset() < 9 && cx.int("spatial", 1)? == 0 {
        return Err(Reason::attribute("spatial", "is 0; only 1 is supported"));
    }
    let epsilon = cx.float("epsilon", 1e-5f32.into())?;
    let c = if shape.len() > 1 { shape[1] } else { 1 };
    let params = [cx.input(1)?, cx.input(2)?, cx.input(3)?, cx.input(4)?];
    for (i, &p) in params.iter().enumerate() {
        if cx.shape(p).iter().product::<usize>() != c {
            return Err(Reason::Shape(format!("input {} has shape {:?}, there are {c} channels", i + 1, cx.shape(p))));
        }
    }
    let dims = channels(shape.len(), c);
    let known: Option<Vec<Vec<f64>>> = params.iter().map(|&p| cx.constant(p).map(HostTensor::to_f64)).collect();
    let y = if let Some(p) = known {
        let scale: Vec<f64> = p[0].iter().zip(&p[3]).map(|(s, v)| s / (v + epsilon).sqrt()).collect();
        let mut shift: Vec<f64> = (0..c).map(|i| p[1][i] - p[2][i] * scale[i]).collect();
        let mut lazy = cx.lazy(x);
        // (y + bias) * scale + shift = y * scale + (bias * scale + shift)
        if let Some((without, bias)) = strip_bias(cx, &lazy, c) {
            lazy = without;
            shift.iter_mut().zip(&scale).zip(bias).for_each(|((t, s), b)| *t += s * b);
        }
        let mut vector = |name: &str, values: &[f64]| {
            let name = format!("{} {name}", cx.node().node.name);
            let id = cx.add_const(name, HostTensor::from_f64(dtype, &dims, values));
            Lazy::read(Access::new(id, View::dense(&dims)), dtype)
        };
        let (scale, shift) = (vector("scale", &scale), vector("shift", &shift));
        cx.combine(vec![lazy, scale, shift], &shape, |e, v| {
            let y = e.binary(Binary::Mul, v[0], v[1]);
            e.binary(Binary::Add, y, v[2])
        })?
    } else {
        let mut terms = Vec::new();
        for p in params {
            terms.push(cx.without_base(p).reshaped(&dims));
        }
        let affine = cx.combine(vec![terms[0].clone(), terms[3].clone()], &dims, |e, v| {
            let dtype = e.type_of(v[0]);
            let (variance, epsilon) = (e.cast(v[1], dtype), e.constant(dtype, epsilon));
            let s = e.binary(Binary::Add, variance, epsilon);
            let s = e.unary(Unary::Sqrt, s);
            e.binary(Binary::Div, v[0], s)
        })?;
        let scale = cx.stored(affine);
        let lazy = cx.lazy(x);
        cx.combine(vec![lazy, scale, terms[1].clone(), terms[2].clone()], &shape, |e, v| {
            // Statistics may be of another type than data.
            let dtype = e.type_of(v[0]);
            let [scale, shift, mean] = [v[1], v[2], v[3]].map(|p| e.cast(p, dtype));
            let y = e.binary(Binary::Sub, v[0], mean);
            let y = e.binary(Binary::Mul, y, scale);
            e.binary(Binary::Add, y, shift)
        })?
    };
    cx.set(0, y);
    Ok(())
}

/// If the value is `rest + bias` with a constant vector along dimension 1, returns both.
fn strip_bias(cx: &Lowering<'_>, lazy: &Lazy, c: usize) -> Option<(Lazy, Vec<f64>)> {
    use crate::graph::expr::Op;
    let nodes = lazy.expr.nodes();
    let Op::Binary(Binary::Add, rest, added) = nodes.last()?.op else { return None };
    let Op::Input(i) = nodes[added.index()].op else { return None };
    let access = &lazy.inputs[i as usize];
    let tensor = cx.graph.tensor(access.tensor);
    let crate::graph::fused::Role::Constant(bias) = &tensor.role else { return None };
    // The vector must run along the grid dimension that is the channel, and along nothing else.
    let channel = usize::from(lazy.shape.first() != Some(&1));
    let along = |(d, &s): (usize, &i64)| s == i64::from(d == channel);
    let fits = lazy.grid.get(channel) == Some(&c) && access.view.strides.iter().enumerate().all(along);
    if !fits || !access.is_plain() || access.view.offset != 0 || bias.len() != c {
        return None;
    }
    if crate::graph::lazy::groups(&lazy.shape, &lazy.grid)?.get(1)? != &(channel..channel + 1) {
        return None;
    }
    let mut without = lazy.clone();
    without.expr = lazy.expr.clone().finish(rest);
    Some((without, bias.to_f64()))
}

/// Multiplies by a scale and adds a bias, both broadcast under the given shapes.
fn affine(
    cx: &mut Lowering<'_>,
    y: Lazy,
    scale: Option<(ValueId, &[usize])>,
    bias: Option<(ValueId, &[usize])>,
) -> Res<Lazy> {
    let mut y = y;
    for (term, op) in [(scale, Binary::Mul), (bias, Binary::Add)] {
        if let Some((v, dims)) = term {
            if cx.shape(v).iter().product::<usize>() != dims.iter().product::<usize>() {
                return Err(Reason::Shape(format!("a scale or bias has shape {:?}; {dims:?} is needed", cx.shape(v))));
            }
            let t = cx.without_base(v).reshaped(dims);
            let t = if cx.dtype(v) == y.dtype() {
                t
            } else {
                let (dims, dtype) = (t.shape.clone(), y.dtype());
                cx.combine(vec![t], &dims, |e, v| e.cast(v[0], dtype))?
            };
            let shape = y.shape.clone();
            y = cx.combine(vec![y, t], &shape, |e, v| e.binary(op, v[0], v[1]))?;
        }
    }
    Ok(y)
}

/// Normalises over all dimensions from `axis` on of what there is under `dims`.
fn normalized(cx: &mut Lowering<'_>, x: Lazy, dims: &[usize], axis: usize, epsilon: f64, center: bool) -> Res<Lazy> {
    let (dtype, lazy) = (x.dtype(), x);
    // It is computed in floats of 32 bits anyway.
    let lazy = lazy.halves().unwrap_or(lazy);
    let own = lazy.dtype();
    let access = cx.operand_of(lazy.reshaped(dims), |_| true);
    let kind = StepKind::Normalize(Normalize { axes: dims.len() - axis, epsilon, center, magnitudes: false });
    let y = cx.produce(kind, vec![access], dims, own);
    cx.combine(vec![y], dims, |e, v| e.cast(v[0], dtype))
}

/// A normalisation that several nodes stand for.
pub(crate) fn lower_norm(cx: &mut Lowering<'_>, norm: &Norm) -> Res<()> {
    let shape = cx.shape(norm.x).to_vec();
    // The dimensions go last, and come back afterwards.
    let (axes, rank) = (norm.axes.clone(), shape.len());
    let order: Vec<usize> = (0..axes.start).chain(axes.end..rank).chain(axes.clone()).collect();
    let x = cx.without_base(norm.x);
    let x = if order.is_sorted() { x } else { cx.permute(x, &order) };
    let dims = x.shape.clone();
    let mut y = normalized(cx, x, &dims, rank - axes.len(), norm.epsilon, norm.center)?;
    if !order.is_sorted() {
        let mut back = vec![0; rank];
        order.iter().enumerate().for_each(|(i, &o)| back[o] = i);
        y = cx.permute(y, &back);
    }
    for (term, op) in [(norm.scale, Binary::Mul), (norm.bias, Binary::Add)] {
        if let Some(v) = term {
            let term = cx.without_base(v);
            y = cx.combine(vec![y, term], &shape, |e, v| e.binary(op, v[0], v[1]))?;
        }
    }
    cx.set(0, y);
    Ok(())
}

pub(super) fn instance(cx: &mut Lowering<'_>) -> Res<()> {
    let (x, _, shape) = float_input(cx)?;
    if shape.len() < 3 {
        return Err(Reason::Shape(format!("data of shape {shape:?}; [N, C, spatial..] is needed")));
    }
    let epsilon = cx.float("epsilon", 1e-5f32.into())?;
    let lazy = cx.without_base(x);
    let y = normalized(cx, lazy, &shape, 2, epsilon, true)?;
    let dims = channels(shape.len(), shape[1]);
    let (scale, bias) = (cx.input(1)?, cx.input(2)?);
    let y = affine(cx, y, Some((scale, &dims)), Some((bias, &dims)))?;
    cx.set(0, y);
    Ok(())
}

pub(super) fn group(cx: &mut Lowering<'_>) -> Res<()> {
    let (x, _, shape) = float_input(cx)?;
    let groups = usize::try_from(cx.int("num_groups", 0)?).unwrap_or(0);
    if shape.len() < 2 || groups == 0 || shape[1] % groups != 0 {
        return Err(Reason::Shape(format!("{groups} groups do not divide data of shape {shape:?}")));
    }
    let epsilon = cx.float("epsilon", 1e-5f32.into())?;
    let mut split = vec![shape[0], groups, shape[1] / groups];
    split.extend(&shape[2..]);
    let lazy = cx.without_base(x);
    let y = normalized(cx, lazy, &split, 2, epsilon, true)?;
    // Scale and bias are per channel since opset 21, per group before.
    let (scale, bias) = (cx.input(1)?, cx.input(2)?);
    let mut dims = vec![1; split.len()];
    dims[1] = groups;
    if cx.shape(scale).iter().product::<usize>() == shape[1] && cx.opset() >= 21 {
        dims[2] = shape[1] / groups;
    }
    let y = affine(cx, y, Some((scale, &dims)), Some((bias, &dims)))?;
    cx.set(0, y.reshaped(&shape));
    Ok(())
}

/// Sets outputs 1 and 2 to the mean and the reciprocal deviation over all dimensions from `axis` on.
fn statistics(cx: &mut Lowering<'_>, x: ValueId, axis: usize, epsilon: f64) -> Res<()> {
    let (dtype, shape) = (of_statistics(cx)?, cx.shape(x).to_vec());
    let n: usize = shape[axis..].iter().product();
    let outer = if axis == 0 { vec![1] } else { shape[..axis].to_vec() };
    let mut kept = shape[..axis].to_vec();
    kept.resize(shape.len(), 1);
    let inner = [&outer[..], &shape[axis..]].concat();
    let sum = |cx: &mut Lowering<'_>, data: Access, prologue: Expr| {
        let view = data.view.reshaped(&inner).unwrap_or_else(|| View::dense(&inner));
        let kind = StepKind::Reduce(Reduce { op: ReduceOp::Sum, prologue });
        cx.produce(kind, vec![Access::new(data.tensor, view)], &outer, dtype).reshaped(&kept)
    };
    let data = if cx.dtype(x) == dtype {
        cx.operand_if(x, View::is_dense)
    } else {
        let x = cx.without_base(x);
        let x = cx.combine(vec![x], &shape, |e, v| e.cast(v[0], dtype))?;
        cx.operand_of(x, View::is_dense)
    };
    let mean = sum(cx, data.clone(), Expr::acc(dtype));
    let mean = cx.combine(vec![mean], &kept, |e, v| {
        let n = e.constant(dtype, n as f64);
        e.binary(Binary::Div, v[0], n)
    })?;
    let mean = cx.stored(mean);
    let centered =
        cx.combine(vec![Lazy::read(data, dtype), mean.clone()], &shape, |e, v| e.binary(Binary::Sub, v[0], v[1]))?;
    let centered = cx.operand_of(centered, View::is_dense);
    let squares = sum(cx, centered, power(dtype, 2.0));
    let inverse = cx.combine(vec![squares], &kept, |e, v| {
        let (n, epsilon) = (e.constant(dtype, n as f64), e.constant(dtype, epsilon));
        let v = e.binary(Binary::Div, v[0], n);
        let v = e.binary(Binary::Add, v, epsilon);
        let v = e.unary(Unary::Sqrt, v);
        e.unary(Unary::Recip, v)
    })?;
    cx.set(1, mean);
    cx.set(2, inverse);
    Ok(())
}

fn layer_like(cx: &mut Lowering<'_>, center: bool) -> Res<()> {
    let (x, _, shape) = float_input(cx)?;
    let axis = cx.axis(cx.int("axis", -1)?, shape.len())?;
    let epsilon = cx.float("epsilon", 1e-5f32.into())?;
    if center && (cx.wants(1) || cx.wants(2)) {
        statistics(cx, x, axis, epsilon)?;
    }
    let lazy = cx.without_base(x);
    let y = normalized(cx, lazy, &shape, axis, epsilon, center)?;
    let dims = |cx: &Lowering<'_>, v: ValueId| {
        // Usually the normalised dimensions; anything that broadcasts is allowed.
        let mut d = vec![1; shape.len().saturating_sub(cx.rank(v))];
        d.extend(cx.shape(v));
        d
    };
    let scale = cx.optional(1).map(|v| (v, dims(cx, v)));
    let bias = cx.optional(2).map(|v| (v, dims(cx, v)));
    let y = affine(cx, y, scale.as_ref().map(|(v, d)| (*v, &d[..])), bias.as_ref().map(|(v, d)| (*v, &d[..])))?;
    cx.set(0, y);
    Ok(())
}

pub(super) fn layer(cx: &mut Lowering<'_>) -> Res<()> {
    layer_like(cx, true)
}

pub(super) fn rms(cx: &mut Lowering<'_>) -> Res<()> {
    layer_like(cx, false)
}

pub(super) fn mean_variance(cx: &mut Lowering<'_>) -> Res<()> {
    let (x, dtype, shape) = float_input(cx)?;
    let axes = cx.ints("axes")?.unwrap_or_else(|| vec![0, 2, 3]);
    let mut reduced = vec![false; shape.len()];
    for a in axes {
        reduced[cx.axis(a, shape.len())?] = true;
    }
    let order: Vec<usize> =
        (0..shape.len()).filter(|&d| !reduced[d]).chain((0..shape.len()).filter(|&d| reduced[d])).collect();
    let n = reduced.iter().filter(|&&r| r).count();
    if n == 0 {
        return Err(Reason::attribute("axes", "is empty"));
    }
    let lazy = cx.without_base(x);
    let moved = cx.permute(lazy, &order);
    let dims = moved.shape.clone();
    let access = cx.operand_of(moved, |_| true);
    // The reference implementation adds 1e-9 to the deviation: its square is added to the variance here.
    let y = cx.produce(
        StepKind::Normalize(Normalize { axes: n, epsilon: 1e-18, center: true, magnitudes: false }),
        vec![access],
        &dims,
        dtype,
    );
    let mut back = vec![0; order.len()];
    order.iter().enumerate().for_each(|(i, &o)| back[o] = i);
    let y = if order.is_sorted() { y } else { cx.permute(y, &back) };
    cx.set(0, y);
    Ok(())
}

/// `x / (bias + alpha / size * sum of squares over neighbouring channels)^beta`: a sum pooling along the channels with
/// the rest as epilogue.
pub(super) fn lrn(cx: &mut Lowering<'_>) -> Res<()> {
    let (x, dtype, shape) = float_input(cx)?;
    let size = usize::try_from(cx.int("size", 0)?).unwrap_or(0);
    if size == 0 || shape.len() < 2 {
        return Err(Reason::attribute("size", format!("is {size} for data of shape {shape:?}")));
    }
    let (alpha, beta, bias) = (cx.float("alpha", 1e-4)?, cx.float("beta", 0.75)?, cx.float("bias", 1.0)?);
    let is_positive = alpha >= 0.0 && bias > 0.0;
    let dims = [shape[0], 1, shape[1], shape[2..].iter().product()];
    let access = cx.operand(x);
    let x = Lazy::read(access.clone(), dtype);
    let data = cx.operand_of(x.clone().reshaped(&dims), |v| v.is_inner_dense(1));
    let window =
        Window { kernel: vec![size, 1], strides: vec![1, 1], dilations: vec![1, 1], pads: vec![(size - 1) / 2, 0] };
    let kind = StepKind::Pool(Pool { op: PoolOp::Sum, window, prologue: power(dtype, 2.0) });
    let sum = cx.produce(kind, vec![data], &dims, dtype).reshaped(&shape);
    let y = cx.combine(vec![sum, x], &shape, |e, v| {
        let factor = e.constant(dtype, alpha / size as f64);
        let y = e.binary(Binary::Mul, v[0], factor);
        let bias = e.constant(dtype, bias);
        let y = e.binary(Binary::Add, y, bias);
        if let Some(n) = quarters(beta).filter(|_| is_positive) {
            // The reciprocal of a root is an instruction where results have 16 bits, and never denormal.
            return if dtype.is_half() {
                let root = e.unary(Unary::Sqrt, y);
                let inverse = e.unary(Unary::Recip, root);
                let mut factors = vec![inverse; n / 2];
                if n % 2 > 0 {
                    factors.push(e.unary(Unary::Sqrt, inverse));
                }
                factors.into_iter().fold(v[1], |x, y| e.binary(Binary::Mul, x, y))
            } else {
                let power = power_in_quarters(e, y, n);
                e.binary(Binary::Div, v[1], power)
            };
        }
        let beta = e.constant(dtype, -beta);
        let y = e.binary(Binary::Pow, y, beta);
        e.binary(Binary::Mul, v[1], y)
    })?;
    cx.set(0, y);
    Ok(())
}

/// How many quarters a power of up to 2 is, as 0.75 is three; `None` for others.
fn quarters(power: f64) -> Option<usize> {
    (1..=8usize).find(|n| *n as f64 == 4.0 * power)
}

/// `x` to a power of so many quarters, by roots: of a positive number.
fn power_in_quarters(e: &mut Expr, x: Val, quarters: usize) -> Val {
    let root = e.unary(Unary::Sqrt, x);
    let mut factors = vec![x; quarters / 4];
    if quarters & 2 > 0 {
        factors.push(root);
    }
    if quarters & 1 > 0 {
        factors.push(e.unary(Unary::Sqrt, root));
    }
    factors.into_iter().reduce(|x, y| e.binary(Binary::Mul, x, y)).unwrap_or(x)
}

/// `x / norm(x)` along one axis; 0 where the norm is 0.
pub(super) fn lp(cx: &mut Lowering<'_>) -> Res<()> {
    let (x, dtype, shape) = float_input(cx)?;
    let axis = cx.axis(cx.int("axis", -1)?, shape.len())?;
    let p = cx.int("p", 2)? as f64;
    let mut order: Vec<usize> = (0..shape.len()).filter(|&d| d != axis).collect();
    order.push(axis);
    if p == 1.0 || p == 2.0 {
        return of_lines(cx, x, &order, dtype, &shape, p == 1.0);
    }
    let access = cx.operand(x);
    let mut view = access.view.permuted(&order);
    let mut dims = view.dims[..shape.len() - 1].to_vec();
    if dims.is_empty() {
        dims.push(1);
        view = view.repeated(0, 1);
    }
    let kind = StepKind::Reduce(Reduce { op: ReduceOp::Sum, prologue: power(dtype, p) });
    let sum = cx.produce(kind, vec![Access::new(access.tensor, view)], &dims, dtype);
    let mut kept = shape.clone();
    kept[axis] = 1;
    let norm = root(cx, sum.reshaped(&kept), p)?;
    let norm = cx.stored(norm);
    let y = cx.combine(vec![Lazy::read(access, dtype), norm], &shape, |e: &mut Expr, v| {
        let zero = e.constant(dtype, 0.0);
        let none = e.binary(Binary::Eq, v[1], zero);
        let y = e.binary(Binary::Div, v[0], v[1]);
        e.select(none, zero, y)
    })?;
    cx.set(0, y);
    Ok(())
}

/// Lines of the last of the dimensions in an order, divided by the sum of their magnitudes, or by the root of the sum of their squares: by that of the squares'
/// mean, and by the root of how many they are. What is added to the mean is the least number of the type, so that lines of nothing stay nothing.
fn of_lines(
    cx: &mut Lowering<'_>,
    x: ValueId,
    order: &[usize],
    dtype: DType,
    shape: &[usize],
    magnitudes: bool,
) -> Res<()> {
    let lazy = cx.without_base(x);
    let moved = cx.permute(lazy, order);
    let (dims, length) = (moved.shape.clone(), shape[order[order.len() - 1]]);
    let lines = [dims.iter().product::<usize>() / length.max(1), length];
    let moved = if dims.len() == 1 { moved.reshaped(&lines) } else { moved };
    let of_lines = moved.shape.clone();
    let access = cx.operand_of(moved, |_| true);
    let epsilon = if dtype == DType::F64 { f64::from_bits(1) } else { f32::from_bits(1).into() };
    let kind = StepKind::Normalize(Normalize { axes: 1, epsilon, center: false, magnitudes });
    let y = cx.produce(kind, vec![access], &of_lines, dtype).reshaped(&dims);
    let mut back = vec![0; order.len()];
    order.iter().enumerate().for_each(|(i, &o)| back[o] = i);
    let y = if order.is_sorted() { y } else { cx.permute(y, &back) };
    if magnitudes {
        cx.set(0, y);
        return Ok(());
    }
    let y = cx.combine(vec![y], shape, |e, v| {
        let root = e.constant(dtype, 1.0 / (length as f64).sqrt());
        e.binary(Binary::Mul, v[0], root)
    })?;
    cx.set(0, y);
    Ok(())
}

// ---- rules ----

/// The result has type and shape of input 0.
pub(super) fn same(cx: &mut Inference<'_>) -> Res<()> {
    let x = cx.input(0)?;
    cx.give(0, cx.dtype(x), cx.dims(x).to_vec())
}

/// The result, and statistics over its inner dimensions.
pub(super) fn of_layer(cx: &mut Inference<'_>) -> Res<()> {
    same(cx)?;
    let x = cx.input(0)?;
    let axis = cx.axis(cx.int("axis", -1)?, cx.rank(x))?;
    let mut kept = cx.dims(x)[..axis].to_vec();
    kept.resize(cx.rank(x), Dim::Known(1));
    let dtype = of_statistics(cx)?;
    for i in 1..3 {
        cx.give(i, dtype, kept.clone())?;
    }
    Ok(())
}

/// The type of statistics, which is float32 unless the node says otherwise.
fn of_statistics<'m>(cx: &impl Ask<'m>) -> Res<DType> {
    let number = cx.int("stash_type", 1)?;
    let dtype = i32::try_from(number).ok().and_then(DType::from_onnx).filter(|t| t.is_float() && !t.is_small_float());
    dtype.ok_or_else(|| Reason::attribute("stash_type", format!("is {number}, which is no type of floats")))
}
