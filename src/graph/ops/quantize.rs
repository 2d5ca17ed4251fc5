//! Quantisation: conversions between floats and scaled 8- to 32-bit integers, per tensor or per slice of an axis.

use crate::graph::ask::Ask;
use crate::graph::error::{Reason, Res};
use crate::graph::expr::{Binary, Expr, Scalar, Unary, Val};
use crate::graph::fused::{Access, Extremes, StepKind};
use crate::graph::infer::Inference;
use crate::graph::lazy::Lazy;
use crate::graph::lower::{Lowering, splat};
use crate::graph::resolve::ValueId;
use crate::graph::view::View;
use crate::tensor::DType;
use crate::tensor::small::SmallFloat;

/// A scale or zero point under the rank of the data.
fn parameter(cx: &mut Lowering<'_>, v: ValueId, shape: &[usize]) -> Res<Lazy> {
    let block =
        usize::try_from(cx.int("block_size", 0)?).map_err(|_| Reason::attribute("block_size", "is negative"))?;
    let lazy = cx.without_base(v);
    let n = lazy.len();
    if block == 0 && n == 1 {
        return Ok(lazy.reshaped(&[]));
    }
    let axis = cx.axis(cx.int("axis", 1)?, shape.len())?;
    let misfit = || Reason::Shape(format!("a scale of shape {:?} does not fit axis {axis} of {shape:?}", cx.shape(v)));
    if block == 0 {
        if lazy.shape.len() != 1 || n != shape[axis] {
            return Err(misfit());
        }
        let mut dims = vec![1; shape.len()];
        dims[axis] = n;
        return Ok(lazy.reshaped(&dims));
    }
    // Each entry stands for a block of neighbours.
    let blocks = shape[axis].div_ceil(block);
    let fits = |d: usize| lazy.shape[d] == if d == axis { blocks } else { shape[d] };
    if lazy.shape.len() != shape.len() || !(0..shape.len()).all(fits) {
        return Err(misfit());
    }
    let mut dims = lazy.shape.clone();
    dims.insert(axis + 1, 1);
    let stored = cx.stored(lazy).reshaped(&dims);
    dims[axis + 1] = block;
    let wide = stored.broadcast(&dims).expect("a stored tensor can be broadcast");
    dims.remove(axis + 1);
    dims[axis] = blocks * block;
    let wide = wide.reshaped(&dims);
    if dims[axis] == shape[axis] {
        return Ok(wide);
    }
    let plain = cx.plain_of(wide);
    Ok(super::layout::sliced(cx, &plain, &[(axis, 0, 1, shape[axis])]))
}

pub(super) fn range(t: DType) -> Res<(f64, f64)> {
    match t {
        DType::I8 => Ok((-128.0, 127.0)),
        DType::U8 => Ok((0.0, 255.0)),
        DType::I16 => Ok((-32768.0, 32767.0)),
        DType::U16 => Ok((0.0, 65535.0)),
        DType::I4 => Ok((-8.0, 7.0)),
        DType::U4 => Ok((0.0, 15.0)),
        DType::I2 => Ok((-2.0, 1.0)),
        DType::U2 => Ok((0.0, 3.0)),
        DType::I32 => Ok((-2147483648.0, 2147483520.0)),
        other => match SmallFloat::of(other) {
            Some(f) => Ok((-f.decode(f.largest()), f.decode(f.largest()))),
            None => Err(Reason::Type(format!("quantises to type {other}, which is not supported"))),
        },
    }
}

/// `round(x / scale) + zero`, saturated.
fn quantized(e: &mut Expr, x: Val, scale: Val, zero: Option<Val>, to: DType, (low, high): (f64, f64)) -> Val {
    let t = e.type_of(x);
    let mut y = e.binary(Binary::Div, x, scale);
    if to.is_int() {
        y = e.unary(Unary::Round, y);
    }
    if let Some(z) = zero {
        let z = e.cast(z, t);
        y = e.binary(Binary::Add, y, z);
    }
    // Casts to integers of 8 and 16 bits saturate by themselves.
    if !to.is_int() || !matches!(to.bits(), 8 | 16) {
        let (low, high) = (e.constant(t, low), e.constant(t, high));
        y = e.binary(Binary::Max, y, low);
        y = e.binary(Binary::Min, y, high);
    }
    e.cast(y, to)
}

pub(super) fn quantize(cx: &mut Lowering<'_>) -> Res<()> {
    let (x, scale) = (cx.input(0)?, cx.input(1)?);
    if !cx.dtype(x).is_float() && cx.dtype(x) != DType::I32 || !cx.dtype(scale).is_float() {
        return Err(Reason::Type(format!(
            "data of type {} and a scale of type {}; floats are supported",
            cx.dtype(x),
            cx.dtype(scale)
        )));
    }
    // In the wider type of both, at least the data's.
    let t = match (cx.dtype(x), cx.dtype(scale)) {
        (a, b) if a == b => a,
        (DType::F64, _) | (_, DType::F64) => DType::F64,
        _ => DType::F32,
    };
    let zero = cx.optional(2);
    let to = quantized_type(cx)?;
    let limits = range(to)?;
    let shape = cx.shape(x).to_vec();
    let mut terms = vec![cx.lazy(x), parameter(cx, scale, &shape)?];
    if let Some(z) = zero {
        terms.push(parameter(cx, z, &shape)?);
    }
    let y = cx.combine(terms, &shape, |e, v| {
        let (x, scale) = (e.cast(v[0], t), e.cast(v[1], t));
        quantized(e, x, scale, v.get(2).copied(), to, limits)
    })?;
    cx.set(0, y);
    Ok(())
}

pub(super) fn dequantize(cx: &mut Lowering<'_>) -> Res<()> {
    let (x, scale) = (cx.input(0)?, cx.input(1)?);
    let to = cx.type_attribute("output_dtype", cx.dtype(scale))?;
    if !cx.dtype(x).is_int() && !cx.dtype(x).is_small_float() {
        return Err(Reason::Type(format!(
            "data of type {}; integers and floats of 8 and 4 bits are supported",
            cx.dtype(x)
        )));
    }
    if !to.is_float() || to.is_small_float() {
        return Err(Reason::Type(format!(
            "makes {to} of a scale of type {}; floats of 16 bits or more are supported",
            cx.dtype(scale)
        )));
    }
    let shape = cx.shape(x).to_vec();
    let mut terms = vec![cx.lazy(x), parameter(cx, scale, &shape)?];
    if let Some(z) = cx.optional(2) {
        terms.push(parameter(cx, z, &shape)?);
    }
    let y = cx.combine(terms, &shape, |e, v| {
        let mut x = e.cast(v[0], to);
        if let Some(&z) = v.get(2) {
            let z = e.cast(z, to);
            x = e.binary(Binary::Sub, x, z);
        }
        let scale = e.cast(v[1], to);
        e.binary(Binary::Mul, x, scale)
    })?;
    cx.set(0, y);
    Ok(())
}

/// Bytes of floats, by the scale and the zero point with which they reach from the smallest to the largest, 0 among them.
pub(super) fn dynamic(cx: &mut Lowering<'_>) -> Res<()> {
    let x = cx.input(0)?;
    let (t, shape) = (cx.dtype(x), cx.shape(x).to_vec());
    if t != DType::F32 {
        return Err(Reason::Type(format!("data of type {t}; f32 is supported")));
    }
    let (low, high) = range(DType::U8)?;
    // Both of them as f32, the zero point without a fraction.
    let result = |zero_point: bool| {
        let mut e = Expr::new();
        let [smallest, largest] = [0, 1].map(|i| e.input(i, t));
        let [zero, one, top] = [0.0, 1.0, high].map(|x| e.constant(t, x));
        let (smallest, largest) = (e.binary(Binary::Min, smallest, zero), e.binary(Binary::Max, largest, zero));
        let reach = e.binary(Binary::Sub, largest, smallest);
        let none = e.binary(Binary::Eq, reach, zero);
        let scale = e.binary(Binary::Div, reach, top);
        let scale = e.select(none, one, scale);
        if !zero_point {
            return e.finish(scale);
        }
        let place = e.binary(Binary::Div, smallest, scale);
        let place = e.unary(Unary::Neg, place);
        let place = e.unary(Unary::Round, place);
        let place = e.binary(Binary::Max, place, zero);
        let place = e.binary(Binary::Min, place, top);
        e.finish(place)
    };
    let [scale, zero] = if shape.contains(&0) {
        [1.0, 0.0].map(|x| splat(t, &[], Scalar::Float(x)))
    } else {
        let access = cx.operand_if(x, |v| row(v).is_some());
        let row = row(&access.view).expect("what is stored is a row");
        let kind = StepKind::Extremes(Extremes { results: [false, true].map(result) });
        let both = cx.produce(kind, vec![Access::new(access.tensor, row)], &[2], t);
        let both = cx.stored_access(both);
        [0, 1].map(|i| {
            let one = both.view.sliced(0, i, 1, 1);
            Lazy::read(Access::new(both.tensor, one), t).reshaped(&[])
        })
    };
    let data = cx.lazy(x);
    let y = cx.combine(vec![data, scale.clone(), zero.clone()], &shape, |e, v| {
        quantized(e, v[0], v[1], Some(v[2]), DType::U8, (low, high))
    })?;
    let zero = cx.combine(vec![zero], &[], |e, v| e.cast(v[0], DType::U8))?;
    cx.set(0, y);
    cx.set(1, scale);
    cx.set(2, zero);
    Ok(())
}

/// All elements of a view as a row of neighbours, in the order in which they lie; none where they are no neighbours.
fn row(view: &View) -> Option<View> {
    let mut order: Vec<usize> = (0..view.rank()).collect();
    order.sort_by_key(|d| (std::cmp::Reverse(view.strides[*d]), *d));
    view.permuted(&order).is_dense().then(|| View { offset: view.offset, ..View::dense(&[view.len()]) })
}

// ---- rules ----

pub(super) fn of_dynamic(cx: &mut Inference<'_>) -> Res<()> {
    let dims = cx.dims(cx.input(0)?).to_vec();
    cx.give(0, DType::U8, dims)?;
    cx.give(1, DType::F32, Vec::new())?;
    cx.give(2, DType::U8, Vec::new())
}

/// The type that data are quantised to: that of the zero point, where there is one.
fn quantized_type<'m>(cx: &impl Ask<'m>) -> Res<DType> {
    match cx.optional(2) {
        Some(zero) => Ok(cx.dtype(zero)),
        None => cx.type_attribute("output_dtype", DType::U8),
    }
}

pub(super) fn of_quantize(cx: &mut Inference<'_>) -> Res<()> {
    let to = quantized_type(cx)?;
    cx.give(0, to, cx.dims(cx.input(0)?).to_vec())
}

pub(super) fn of_dequantize(cx: &mut Inference<'_>) -> Res<()> {
    let to = cx.type_attribute("output_dtype", cx.dtype(cx.input(1)?))?;
    cx.give(0, to, cx.dims(cx.input(0)?).to_vec())
}
