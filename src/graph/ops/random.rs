//! Random numbers from counters: each element hashes its own place with the seed, so that they do not depend on the order of
//! computation, and are the same in each run. Without a seed attribute the node's name is the seed.
//!
//! The hash is the finaliser of MurmurHash3 (Appleby), applied twice with the seed in between; its upper 24 bits are a uniform
//! number, two of which give a normal one by Box and Muller's transform.

use super::reduce::largest_along;
use crate::graph::ask::Ask;
use crate::graph::dim::Dim;
use crate::graph::error::{Reason, Res};
use crate::graph::expr::{Binary, Scalar, Unary, Val};
use crate::graph::fused::Coder;
use crate::graph::infer::Inference;
use crate::graph::lazy::Lazy;
use crate::graph::lower::{Lowering, splat};
use crate::graph::view::View;
use crate::onnx::Attribute;
use crate::tensor::DType;

/// The seed as 32 bits: of the attribute, or of the node's name (FNV-1a).
fn seed(cx: &Lowering<'_>) -> Res<u32> {
    if cx.attribute("seed").is_some() {
        return Ok((cx.float("seed", 0.0)? as f32).to_bits());
    }
    let name = &cx.node().node.name;
    Ok(name.bytes().fold(0x811c_9dc5, |h: u32, b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193)))
}

fn mixed(c: &mut Coder, mut x: Val) -> Val {
    let number = |c: &mut Coder, n: u32| c.constant(DType::U32, f64::from(n));
    for (shift, factor) in [(16, Some(0x85eb_ca6bu32)), (13, Some(0xc2b2_ae35)), (16, None)] {
        let by = number(c, shift);
        let high = c.binary(Binary::Shr, x, by);
        x = c.binary(Binary::Xor, x, high);
        if let Some(factor) = factor {
            let factor = number(c, factor);
            x = c.mul(x, factor);
        }
    }
    x
}

/// A uniform number between 0 and 1, neither of which it is, for an element's place.
fn uniform(c: &mut Coder, place: Val, seed: u32) -> Val {
    let x = c.cast(place, DType::U32);
    let x = mixed(c, x);
    let seed = c.constant(DType::U32, f64::from(seed));
    let x = c.add(x, seed);
    let x = mixed(c, x);
    let eight = c.constant(DType::U32, 8.0);
    let x = c.binary(Binary::Shr, x, eight);
    let x = c.cast(x, DType::F32);
    let (half, unit) = (c.constant(DType::F32, 0.5), c.constant(DType::F32, 2f64.powi(-24)));
    let x = c.add(x, half);
    c.mul(x, unit)
}

fn normal(c: &mut Coder, place: Val, seed: u32) -> Val {
    let (u, v) = (uniform(c, place, seed), uniform(c, place, seed ^ 0x9e37_79b9));
    let u = c.unary(Unary::Log, u);
    let minus_two = c.constant(DType::F32, -2.0);
    let u = c.mul(u, minus_two);
    let radius = c.unary(Unary::Sqrt, u);
    let circle = c.constant(DType::F32, 2.0 * std::f64::consts::PI);
    let angle = c.mul(v, circle);
    let x = c.unary(Unary::Cos, angle);
    c.mul(radius, x)
}

/// Output 0 from one number for each element.
fn fill(cx: &mut Lowering<'_>, dtype: DType, draw: impl Fn(&mut Coder, Val, u32) -> Val) -> Res<()> {
    let (shape, seed) = (cx.result(0), seed(cx)?);
    let n = shape.iter().product();
    if n == 0 {
        cx.set(0, splat(dtype, &shape, Scalar::of(dtype, 0.0)));
        return Ok(());
    }
    let y: Lazy = cx.program(Vec::new(), &[n], |c| {
        let at = c.coord(0);
        let x = draw(c, at, seed);
        c.cast(x, dtype)
    });
    cx.set(0, y.reshaped(&shape));
    Ok(())
}

/// `offset + factor * number`
fn moved(c: &mut Coder, x: Val, factor: f64, offset: f64) -> Val {
    let (factor, offset) = (c.constant(DType::F32, factor), c.constant(DType::F32, offset));
    let x = c.mul(x, factor);
    c.add(x, offset)
}

pub(super) fn uniforms(cx: &mut Lowering<'_>) -> Res<()> {
    let (low, high) = (cx.float("low", 0.0)?, cx.float("high", 1.0)?);
    let dtype = result_type(cx)?;
    fill(cx, dtype, |c, at, seed| {
        let u = uniform(c, at, seed);
        moved(c, u, high - low, low)
    })
}

pub(super) fn normals(cx: &mut Lowering<'_>) -> Res<()> {
    let (mean, scale) = (cx.float("mean", 0.0)?, cx.float("scale", 1.0)?);
    let dtype = result_type(cx)?;
    fill(cx, dtype, |c, at, seed| {
        let x = normal(c, at, seed);
        moved(c, x, scale, mean)
    })
}

/// 1 as often as the input says.
pub(super) fn bernoulli(cx: &mut Lowering<'_>) -> Res<()> {
    let x = cx.input(0)?;
    let (shape, dtype, seed) = (cx.result(0), result_type(cx)?, seed(cx)?);
    if shape.contains(&0) {
        cx.set(0, splat(dtype, &shape, Scalar::of(dtype, 0.0)));
        return Ok(());
    }
    let data = cx.operand_if(x, View::is_dense);
    let y = cx.program(vec![data], &[shape.iter().product()], |c| {
        let at = c.coord(0);
        let u = uniform(c, at, seed);
        let p = c.load(0, at);
        let p = c.cast(p, DType::F32);
        let hit = c.lt(u, p);
        c.cast(hit, dtype)
    });
    cx.set(0, y.reshaped(&shape));
    Ok(())
}

/// So many classes of each row, whose numbers are the logarithms of how often they come, up to a constant: the class whose number
/// is largest with Gumbel noise added (Gumbel, "Statistical theory of extreme values", 1954).
pub(super) fn multinomial(cx: &mut Lowering<'_>) -> Res<()> {
    let x = cx.input(0)?;
    let (shape, seed, dtype) = (cx.result(0), seed(cx)?, cx.type_attribute("dtype", DType::I32)?);
    let ([rows, draws], Some(&classes)) = (shape[..].try_into().unwrap_or([0; 2]), cx.shape(x).get(1)) else {
        return Err(Reason::Shape("rows of classes are needed".into()));
    };
    if classes == 0 {
        return Err(Reason::Shape("there is no class to draw".into()));
    }
    if shape.contains(&0) {
        cx.set(0, splat(dtype, &shape, Scalar::of(dtype, 0.0)));
        return Ok(());
    }
    let data = cx.operand_if(x, View::is_dense);
    let noisy = cx.program(vec![data], &[rows, draws, classes], |c| {
        let (row, draw, class) = (c.coord(0), c.coord(1), c.coord(2));
        let place = c.place(&[row, draw, class], &[rows, draws, classes]);
        let at = c.place(&[row, class], &[rows, classes]);
        let u = uniform(c, place, seed);
        let u = c.unary(Unary::Log, u);
        let u = c.unary(Unary::Neg, u);
        let u = c.unary(Unary::Log, u);
        let x = c.load(0, at);
        let x = c.cast(x, DType::F32);
        c.sub(x, u)
    });
    let access = cx.operand_of(noisy, View::is_dense);
    let drawn = largest_along(cx, access, 2, DType::F32);
    let y = cx.combine(vec![drawn.reshaped(&shape)], &shape, |e, v| e.cast(v[0], dtype))?;
    cx.set(0, y);
    Ok(())
}

/// The type that is asked for; otherwise that of input 0, or f32 where there is none.
fn result_type<'m>(cx: &impl Ask<'m>) -> Res<DType> {
    let default = cx.optional(0).map_or(DType::F32, |x| cx.dtype(x));
    cx.type_attribute("dtype", default)
}

// ---- rules ----

/// As many numbers as the shape attribute says.
pub(super) fn of_shape(cx: &mut Inference<'_>) -> Res<()> {
    let dims = match cx.attribute("shape") {
        Some(Attribute::Ints(list)) => list.iter().map(|d| Dim::Known(*d)).collect::<Vec<_>>(),
        _ => return Err(Reason::attribute("shape", "is missing")),
    };
    if dims.iter().any(|d| d.known().is_none()) {
        return Err(Reason::attribute("shape", "has a negative extent"));
    }
    cx.give(0, result_type(cx)?, dims)
}

/// As many numbers as input 0 has elements.
pub(super) fn of_like(cx: &mut Inference<'_>) -> Res<()> {
    let dims = cx.dims(cx.input(0)?).to_vec();
    cx.give(0, result_type(cx)?, dims)
}

/// So many draws of each row.
pub(super) fn of_draws(cx: &mut Inference<'_>) -> Res<()> {
    let rows = match cx.dims(cx.input(0)?) {
        [rows, _] => rows.clone(),
        _ => return Err(Reason::Shape("rows of classes are needed".into())),
    };
    let draws = cx.int("sample_size", 1)?;
    if draws < 0 {
        return Err(Reason::attribute("sample_size", "is negative"));
    }
    cx.give(0, cx.type_attribute("dtype", DType::I32)?, vec![rows, Dim::Known(draws)])
}
