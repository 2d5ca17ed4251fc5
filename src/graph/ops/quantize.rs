//! Quantisation: conversions between floats and scaled 8- to 32-bit integers, per tensor or per slice of an axis.

use crate::graph::ask::Ask;
use crate::graph::error::{Reason, Res};
use crate::graph::expr::{Binary, Expr, Unary, Val};
use crate::graph::infer::Inference;
use crate::graph::lazy::Lazy;
use crate::graph::lower::Lowering;
use crate::graph::resolve::ValueId;
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
    let (low, high) = (e.constant(t, low), e.constant(t, high));
    let y = e.binary(Binary::Max, y, low);
    let y = e.binary(Binary::Min, y, high);
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
    if !cx.dtype(x).is_int() && !cx.dtype(x).is_small_float() || !to.is_float() {
        return Err(Reason::Type(format!(
            "data of type {} and a scale of type {to}; integers and floats are supported",
            cx.dtype(x)
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

// ---- rules ----

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
