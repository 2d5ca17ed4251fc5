//! Operators whose result is known without computing, and those that pass their input on.

use crate::graph::ask::Ask;
use crate::graph::dim::{Dim, described, known, product};
use crate::graph::error::{Reason, Res};
use crate::graph::expr::Scalar;
use crate::graph::fused::Access;
use crate::graph::infer::{Inference, by_lowering};
use crate::graph::lazy::{Lazy, map_access};
use crate::graph::lower::{Lowering, splat};
use crate::graph::view::View;
use crate::onnx::Attribute;
use crate::tensor::{DType, HostTensor, element_count};

/// Index ranges and the like larger than this are a mistake in the model.
pub(super) const MAX_GENERATED: usize = 1 << 24;

/// The numbers from 0 on, `n` of them along dimension `axis` of `rank`.
pub(super) fn counted(
    cx: &mut Lowering<'_>,
    name: &str,
    dtype: DType,
    n: usize,
    (axis, rank): (usize, usize),
) -> Res<Lazy> {
    if n > MAX_GENERATED {
        return Err(Reason::Size(format!(
            "{n} {name} are too many to be counted; up to {MAX_GENERATED} are supported"
        )));
    }
    let numbers: Vec<i64> = (0..n as i64).collect();
    let mut dims = vec![1; rank];
    dims[axis] = n;
    let id = cx.add_const(name.into(), HostTensor::from_ints(dtype, &dims, &numbers));
    Ok(Lazy::read(Access::new(id, View::dense(&dims)), dtype))
}

/// What Constant is.
pub(super) fn of_constant(cx: &mut Inference<'_>) -> Res<()> {
    let node = cx.node().node;
    let (name, value) = node.attributes.first_key_value().ok_or(Reason::Value("it has no value".into()))?;
    let tensor = match value {
        Attribute::Tensor(t) => t.clone(),
        Attribute::Float(v) => HostTensor::from_f32(&[], &[*v]),
        Attribute::Floats(v) => HostTensor::from_f32(&[v.len()], v),
        Attribute::Int(v) => HostTensor::from_i64(&[], &[*v]),
        Attribute::Ints(v) => HostTensor::from_i64(&[v.len()], v),
        Attribute::Text(v) => texts(&[], &[v.as_str()])?,
        Attribute::Texts(v) => texts(&[v.len()], v)?,
        _ => return Err(Reason::attribute(name, "has a type that is not supported")),
    };
    cx.give_value(0, tensor);
    Ok(())
}

/// A tensor of strings.
pub(super) fn texts<T: AsRef<str>>(shape: &[usize], list: &[T]) -> Res<HostTensor> {
    HostTensor::from_texts(shape, list.iter().map(AsRef::as_ref)).map_err(|e| Reason::Value(e.to_string()))
}

/// Nothing is left to do where inference knows the value.
pub(super) fn inferred(cx: &mut Lowering<'_>) -> Res<()> {
    Err(Reason::Value(format!("{} is not a constant", cx.node().node.op)))
}

/// Dimensions as a shape.
pub(super) fn to_shape(dims: &[i64]) -> Res<Vec<usize>> {
    let shape: Vec<usize> = dims
        .iter()
        .map(|&d| usize::try_from(d))
        .collect::<Result<_, _>>()
        .map_err(|_| Reason::Shape(format!("{dims:?} is not a shape")))?;
    element_count(&shape).ok_or_else(|| Reason::Size(format!("the shape {dims:?} is too large")))?;
    Ok(shape)
}

/// The value that ConstantOfShape repeats.
fn repeated<'m>(cx: &impl Ask<'m>) -> Res<(DType, Scalar)> {
    match cx.attribute("value") {
        None => Ok((DType::F32, Scalar::Float(0.0))),
        Some(Attribute::Tensor(t)) if t.len() == 1 && t.dtype().is_float() => {
            Ok((t.dtype(), Scalar::Float(t.to_f64()[0])))
        }
        Some(Attribute::Tensor(t)) if t.len() == 1 => Ok((t.dtype(), Scalar::Int(t.to_i64()[0]))),
        Some(_) => Err(Reason::attribute("value", "is not a tensor of one element")),
    }
}

pub(super) fn constant_of_shape(cx: &mut Lowering<'_>) -> Res<()> {
    let (dtype, value) = repeated(cx)?;
    cx.set(0, splat(dtype, &cx.result(0), value));
    Ok(())
}

pub(super) fn of_constant_of_shape(cx: &mut Inference<'_>) -> Res<()> {
    let (dtype, value) = repeated(cx)?;
    let dims = cx.numbers(0, "the shape")?;
    if dims.iter().any(|d| matches!(d, Dim::Known(n) if *n < 0)) {
        return Err(Reason::Shape(format!("{} is not a shape", described(&dims))));
    }
    let count = product(&dims).known();
    cx.give(0, dtype, dims)?;
    if let (Some(n), Scalar::Int(value)) = (count.filter(|n| *n <= 64), value) {
        cx.give_numbers(0, vec![Dim::Known(value); n]);
    }
    Ok(())
}

pub(super) fn identity(cx: &mut Lowering<'_>) -> Res<()> {
    let x = cx.input(0)?;
    cx.pass(0, x);
    Ok(())
}

pub(super) fn dropout(cx: &mut Lowering<'_>) -> Res<()> {
    let all_zero = |t: &HostTensor| t.to_f64().iter().all(|x| *x == 0.0);
    if cx.optional(2).is_some() && !all_zero(cx.known(2, "whether it is in training")?) {
        // In training, too, nothing is dropped where the ratio is 0.
        let keeps_all = cx.optional(1).is_some() && all_zero(cx.known(1, "the ratio")?);
        if !keeps_all {
            return Err(Reason::Value(
                "input training_mode is true; only inference is supported, and training with a ratio of 0".into(),
            ));
        }
    }
    let x = cx.input(0)?;
    if cx.wants(1) {
        let shape = cx.shape(x).to_vec();
        let mask =
            if cx.opset() < 10 { (cx.dtype(x), Scalar::of(cx.dtype(x), 1.0)) } else { (DType::Bool, Scalar::Int(1)) };
        cx.set(1, splat(mask.0, &shape, mask.1));
    }
    cx.pass(0, x);
    Ok(())
}

pub(super) fn of_identity(cx: &mut Inference<'_>) -> Res<()> {
    let x = cx.input(0)?;
    cx.same(0, x);
    Ok(())
}

/// The data, and a mask that drops nothing.
pub(super) fn of_dropout(cx: &mut Inference<'_>) -> Res<()> {
    let x = cx.input(0)?;
    cx.same(0, x);
    let mask = if cx.opset() < 10 { cx.dtype(x) } else { DType::Bool };
    cx.give(1, mask, cx.dims(x).to_vec())
}

/// Numbers that are known where sizes are.
fn give_sizes(cx: &mut Inference<'_>, dims: &[usize], list: Vec<Dim>) -> Res<()> {
    if let Some(values) = known(&list) {
        let values: Vec<i64> = values.into_iter().map(|v| v as i64).collect();
        cx.give_value(0, HostTensor::from_i64(dims, &values));
        return Ok(());
    }
    cx.give(0, DType::I64, dims.iter().map(|&d| d.into()).collect())?;
    cx.give_numbers(0, list);
    Ok(())
}

pub(super) fn of_shape(cx: &mut Inference<'_>) -> Res<()> {
    let dims = cx.dims(cx.input(0)?).to_vec();
    let rank = dims.len() as i64;
    let clamp = |v: i64| (if v < 0 { v.saturating_add(rank) } else { v }).clamp(0, rank) as usize;
    let (start, end) = (clamp(cx.int("start", 0)?), clamp(cx.int("end", rank)?));
    let part = dims.get(start..end).unwrap_or(&[]).to_vec();
    give_sizes(cx, &[part.len()], part)
}

pub(super) fn of_size(cx: &mut Inference<'_>) -> Res<()> {
    let n = product(cx.dims(cx.input(0)?));
    give_sizes(cx, &[], vec![n])
}

/// Start, limit and step of a Range decide how long it is.
pub(super) fn of_range(cx: &mut Inference<'_>) -> Res<()> {
    let ends: Option<Vec<Dim>> = (0..3).map(|i| cx.sized_numbers(cx.optional(i)?)?.first().cloned()).collect();
    match ends.as_deref() {
        Some([start, limit, step @ Dim::Known(1..)]) if (limit - start).known().is_none() => {
            let dims = vec![(limit - start).quotient_up(step)];
            cx.give(0, cx.dtype(cx.input(0)?), dims)
        }
        _ => by_lowering(cx),
    }
}

pub(super) fn of_one_hot(cx: &mut Inference<'_>) -> Res<()> {
    let (indices, values) = (cx.input(0)?, cx.input(2)?);
    let depth = cx.const_floats(1, "the depth")?;
    let [depth] = depth[..] else { return Err(Reason::Value("the depth is not one number".into())) };
    let mut dims = cx.dims(indices).to_vec();
    let axis = cx.axis(cx.int("axis", -1)?, dims.len() + 1)?;
    dims.insert(axis, Dim::Known(depth.max(0.0) as i64));
    cx.give(0, cx.dtype(values), dims)
}

pub(super) fn range(cx: &mut Lowering<'_>) -> Res<()> {
    let dtype = cx.dtype(cx.input(0)?);
    let one = |v: Vec<f64>, what: &str| match v[..] {
        [x] => Ok(x),
        _ => Err(Reason::Value(format!("the {what} is not one number"))),
    };
    let start = one(cx.const_floats(0, "the start")?, "start")?;
    let limit = one(cx.const_floats(1, "the limit")?, "limit")?;
    let delta = one(cx.const_floats(2, "the delta")?, "delta")?;
    if delta == 0.0 || delta.is_nan() {
        return Err(Reason::Value(format!("the delta is {delta}: the range never reaches its limit")));
    }
    let n = ((limit - start) / delta).ceil().max(0.0);
    if !n.is_finite() || n > MAX_GENERATED as f64 {
        return Err(Reason::Size(format!("the range {start}, {limit}, {delta} is too long")));
    }
    let values: Vec<f64> = (0..n as usize).map(|i| start + i as f64 * delta).collect();
    cx.set_const(0, HostTensor::from_f64(dtype, &[values.len()], &values));
    Ok(())
}

pub(super) fn eye_like(cx: &mut Lowering<'_>) -> Res<()> {
    let x = cx.input(0)?;
    let shape = cx.shape(x).to_vec();
    let dtype = cx.type_attribute("dtype", cx.dtype(x))?;
    let k = cx.int("k", 0)?;
    let [rows, cols] = shape[..] else { return Err(Reason::Shape("input 0 is not a matrix".into())) };
    if rows.saturating_mul(cols) > MAX_GENERATED {
        return Err(Reason::Size(format!("the shape {shape:?} is too large")));
    }
    let at = |i: usize| ((i % cols) as i64 - (i / cols) as i64 == k) as u8 as f64;
    let values: Vec<f64> = (0..rows * cols).map(at).collect();
    cx.set_const(0, HostTensor::from_f64(dtype, &shape, &values));
    Ok(())
}

/// Keeps one triangle of the last two dimensions, by a constant mask.
pub(super) fn trilu(cx: &mut Lowering<'_>) -> Res<()> {
    let x = cx.input(0)?;
    let shape = cx.shape(x).to_vec();
    let &[.., rows, cols] = &shape[..] else {
        return Err(Reason::Shape(format!("data of shape {shape:?} is not a matrix")));
    };
    let k = cx.scalar(1, "the diagonal")?.unwrap_or(0.0) as i64;
    if shape.contains(&0) {
        cx.pass(0, x);
        return Ok(());
    }
    if rows.saturating_mul(cols) > MAX_GENERATED {
        return Err(Reason::Size(format!("a mask for the shape {shape:?} is too large")));
    }
    let upper = cx.int("upper", 1)? != 0;
    let kept = |i: usize| {
        let above = ((i % cols) as i64).saturating_sub((i / cols) as i64);
        if upper { above >= k } else { above <= k }
    };
    let mask: Vec<i64> = (0..rows * cols).map(|i| kept(i) as i64).collect();
    let id = cx.add_const("triangle".into(), HostTensor::from_ints(DType::Bool, &[rows, cols], &mask));
    let mask = Lazy::read(Access::new(id, View::dense(&[rows, cols])), DType::Bool);
    let lazy = cx.lazy(x);
    let y = cx.combine(vec![lazy, mask], &shape, |e, v| {
        let zero = e.constant(e.type_of(v[0]), 0.0);
        e.select(v[1], v[0], zero)
    })?;
    cx.set(0, y);
    Ok(())
}

pub(super) fn one_hot(cx: &mut Lowering<'_>) -> Res<()> {
    use crate::graph::expr::Binary;
    let (indices, values) = (cx.input(0)?, cx.input(2)?);
    let depth = cx.const_floats(1, "the depth")?;
    let [depth] = depth[..] else { return Err(Reason::Value("the depth is not one number".into())) };
    let depth = depth.max(0.0) as usize;
    if depth > MAX_GENERATED || cx.shape(values) != [2] {
        return Err(Reason::Size("the depth is too large or `values` are not two".into()));
    }
    let rank = cx.rank(indices) + 1;
    let axis = cx.axis(cx.int("axis", -1)?, rank)?;
    // Indices are whole numbers, of a type that also holds the depth.
    let given = cx.dtype(indices);
    let dtype = if given.is_float() || given.bits() < 32 { DType::I32 } else { given };
    // value = (index wrapped into 0..depth) == position ? on : off
    let positions = counted(cx, "one_hot positions", dtype, depth, (axis, rank))?;
    let mut idx_shape = cx.shape(indices).to_vec();
    idx_shape.insert(axis, 1);
    let idx = cx.without_base(indices).reshaped(&idx_shape);
    let pair = cx.plain(values);
    let side = |cx: &mut Lowering<'_>, i: usize| {
        let mut l = pair.clone();
        for a in &mut l.inputs {
            *a = map_access(a, |v| v.sliced(0, i, 1, 1), |r| r.to_vec());
        }
        l.grid = vec![1];
        cx.normal(l)
    };
    let (off, on) = (side(cx, 0), side(cx, 1));
    let mut shape = idx_shape;
    shape[axis] = depth;
    let y = cx.combine(vec![idx, positions, off, on], &shape, |e, v| {
        let (n, zero) = (e.constant(dtype, depth as f64), e.constant(dtype, 0.0));
        let index = e.cast(v[0], dtype);
        let below = e.binary(Binary::Lt, index, zero);
        let wrapped = e.binary(Binary::Add, index, n);
        let index = e.select(below, wrapped, index);
        let hit = e.binary(Binary::Eq, index, v[1]);
        e.select(hit, v[3], v[2])
    })?;
    cx.set(0, y);
    Ok(())
}

pub(super) fn of_eye(cx: &mut Inference<'_>) -> Res<()> {
    let x = cx.input(0)?;
    let dtype = cx.type_attribute("dtype", cx.dtype(x))?;
    cx.give(0, dtype, cx.dims(x).to_vec())
}
