//! Quantisation: conversions between floats and scaled 8- to 32-bit integers, per tensor or per slice of an axis.

use crate::graph::error::{Reason, Res};
use crate::graph::expr::{Binary, Expr, Unary, Val};
use crate::graph::lazy::Lazy;
use crate::graph::lower::Lowering;
use crate::graph::resolve::ValueId;
use crate::tensor::DType;

/// A scale or zero point under the rank of the data.
fn parameter(cx: &mut Lowering<'_>, v: ValueId, shape: &[usize]) -> Res<Lazy> {
    if cx.int("block_size", 0)? != 0 {
        return Err(Reason::attribute("block_size", "is not 0; only scales per tensor or per axis are supported"));
    }
    let lazy = cx.without_base(v);
    let n = lazy.len();
    if n == 1 {
        return Ok(lazy.reshaped(&[]));
    }
    let axis = cx.axis(cx.int("axis", 1)?, shape.len())?;
    if lazy.shape.len() != 1 || n != shape[axis] {
        return Err(Reason::Shape(format!("a scale of shape {:?} does not fit axis {axis} of {shape:?}", lazy.shape)));
    }
    let mut dims = vec![1; shape.len()];
    dims[axis] = n;
    Ok(lazy.reshaped(&dims))
}

pub(super) fn range(t: DType) -> Res<(f64, f64)> {
    match t {
        DType::I8 => Ok((-128.0, 127.0)),
        DType::U8 => Ok((0.0, 255.0)),
        DType::I16 => Ok((-32768.0, 32767.0)),
        DType::U16 => Ok((0.0, 65535.0)),
        other => Err(Reason::Type(format!("quantises to type {other}; i8, u8, i16 and u16 are supported"))),
    }
}

/// `round(x / scale) + zero`, saturated.
fn quantized(e: &mut Expr, x: Val, scale: Val, zero: Option<Val>, to: DType, (low, high): (f64, f64)) -> Val {
    let t = e.type_of(x);
    let y = e.binary(Binary::Div, x, scale);
    let mut y = e.unary(Unary::Round, y);
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
    if !cx.dtype(x).is_float() || cx.dtype(scale) != cx.dtype(x) {
        return Err(Reason::Type(format!(
            "data of type {} and a scale of type {}; twice the same float is supported",
            cx.dtype(x),
            cx.dtype(scale)
        )));
    }
    let zero = cx.optional(2);
    let to = match (zero, cx.int("output_dtype", 0)?) {
        (Some(z), _) => cx.dtype(z),
        (None, 0) => DType::U8,
        (None, code) => DType::from_onnx(code as i32)
            .ok_or_else(|| Reason::attribute("output_dtype", format!("is type {code}, which is not supported")))?,
    };
    let limits = range(to)?;
    let shape = cx.shape(x).to_vec();
    let mut terms = vec![cx.lazy(x), parameter(cx, scale, &shape)?];
    if let Some(z) = zero {
        terms.push(parameter(cx, z, &shape)?);
    }
    let y = cx.combine(terms, &shape, |e, v| quantized(e, v[0], v[1], v.get(2).copied(), to, limits))?;
    cx.set(0, y);
    Ok(())
}

pub(super) fn dequantize(cx: &mut Lowering<'_>) -> Res<()> {
    let (x, scale) = (cx.input(0)?, cx.input(1)?);
    let to = cx.dtype(scale);
    if !cx.dtype(x).is_int() || !to.is_float() {
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
        e.binary(Binary::Mul, x, v[1])
    })?;
    cx.set(0, y);
    Ok(())
}
