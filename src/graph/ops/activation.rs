//! Activation functions, written with the primitive scalar operations.

use super::elementwise::{self, float_with, unary_with};
use super::normalize;
use crate::graph::ask::Ask;
use crate::graph::error::{Reason, Res};
use crate::graph::expr::{Binary, Expr, Unary, Val};
use crate::graph::infer::Inference;
use crate::graph::lazy::broadcast_shape;
use crate::graph::lower::Lowering;

/// A literal of the type of `like`.
fn lit(e: &mut Expr, like: Val, value: f64) -> Val {
    e.constant(e.type_of(like), value)
}

fn mul(e: &mut Expr, a: Val, by: f64) -> Val {
    let by = lit(e, a, by);
    e.binary(Binary::Mul, a, by)
}

fn add(e: &mut Expr, a: Val, c: f64) -> Val {
    let c = lit(e, a, c);
    e.binary(Binary::Add, a, c)
}

fn at_least(e: &mut Expr, a: Val, low: f64) -> Val {
    let low = lit(e, a, low);
    e.binary(Binary::Max, a, low)
}

fn at_most(e: &mut Expr, a: Val, high: f64) -> Val {
    let high = lit(e, a, high);
    e.binary(Binary::Min, a, high)
}

/// `x < 0 ? negative : x`
fn if_negative(e: &mut Expr, x: Val, negative: Val) -> Val {
    let zero = lit(e, x, 0.0);
    let below = e.binary(Binary::Lt, x, zero);
    e.select(below, negative, x)
}

/// `e^x - 1`, or `scale` times that.
fn exp_minus_one(e: &mut Expr, x: Val, scale: f64) -> Val {
    let y = e.unary(Unary::ExpMinusOne, x);
    mul(e, y, scale)
}

/// `ln(1 + e^x)` without overflow.
pub(crate) fn soft_plus(e: &mut Expr, x: Val) -> Val {
    let a = e.unary(Unary::Abs, x);
    let n = e.unary(Unary::Neg, a);
    let n = e.unary(Unary::Exp, n);
    let l = e.unary(Unary::LogOnePlus, n);
    let p = at_least(e, x, 0.0);
    e.binary(Binary::Add, p, l)
}

pub(super) fn relu(cx: &mut Lowering<'_>) -> Res<()> {
    unary_with(cx, |e, x| at_least(e, x, 0.0))
}

pub(super) fn leaky_relu(cx: &mut Lowering<'_>) -> Res<()> {
    let alpha = cx.float("alpha", 0.01)?;
    float_with(cx, |e, x| {
        let y = mul(e, x, alpha);
        if_negative(e, x, y)
    })
}

/// Before opset 7 slopes of channels stand at their dimension, without those behind it.
pub(super) fn of_slopes(cx: &mut Inference<'_>) -> Res<()> {
    if cx.opset() >= 7 { elementwise::of_first(cx) } else { normalize::same(cx) }
}

pub(super) fn prelu(cx: &mut Lowering<'_>) -> Res<()> {
    let (x, slope) = (cx.input(0)?, cx.input(1)?);
    let shape = cx.shape(x).to_vec();
    let mut slope_shape = cx.shape(slope).to_vec();
    if cx.opset() < 7 && slope_shape.len() == 1 && slope_shape[0] != 1 {
        slope_shape.resize(shape.len().saturating_sub(1), 1);
    }
    if broadcast_shape([&shape[..], &slope_shape[..]].into_iter())? != shape {
        return Err(Reason::Shape(format!("the slope's shape {slope_shape:?} does not broadcast to {shape:?}")));
    }
    let slope = cx.without_base(slope).reshaped(&slope_shape);
    let x = cx.lazy(x);
    let y = cx.combine(vec![x, slope], &shape, |e, v| {
        let y = e.binary(Binary::Mul, v[0], v[1]);
        if_negative(e, v[0], y)
    })?;
    cx.set(0, y);
    Ok(())
}

pub(super) fn clip(cx: &mut Lowering<'_>) -> Res<()> {
    if cx.opset() < 11 {
        let (low, high) = (cx.float("min", f64::NEG_INFINITY)?, cx.float("max", f64::INFINITY)?);
        return unary_with(cx, |e, mut x| {
            if low > f32::MIN as f64 {
                x = at_least(e, x, low);
            }
            if high < f32::MAX as f64 { at_most(e, x, high) } else { x }
        });
    }
    let x = cx.input(0)?;
    let mut ids = vec![x];
    let mut ops = Vec::new();
    for (i, op) in [(1, Binary::Max), (2, Binary::Min)] {
        if let Some(bound) = cx.optional(i) {
            if cx.shape(bound).iter().product::<usize>() != 1 || cx.dtype(bound) != cx.dtype(x) {
                return Err(Reason::Type(format!("input {i} is not one element of the type of input 0")));
            }
            ids.push(bound);
            ops.push(op);
        }
    }
    let y = cx.elementwise(&ids, |e, v| ops.iter().zip(&v[1..]).fold(v[0], |x, (&op, &b)| e.binary(op, x, b)))?;
    // A bound of more dimensions than the operand adds none.
    let shape = cx.shape(x).to_vec();
    cx.set(0, y.reshaped(&shape));
    Ok(())
}

pub(super) fn elu(cx: &mut Lowering<'_>) -> Res<()> {
    let alpha = cx.float("alpha", 1.0)?;
    float_with(cx, |e, x| {
        let y = exp_minus_one(e, x, alpha);
        if_negative(e, x, y)
    })
}

pub(super) fn celu(cx: &mut Lowering<'_>) -> Res<()> {
    let alpha = cx.float("alpha", 1.0)?;
    float_with(cx, |e, x| {
        let y = mul(e, x, 1.0 / alpha);
        let y = exp_minus_one(e, y, alpha);
        let (p, n) = (at_least(e, x, 0.0), at_most(e, y, 0.0));
        e.binary(Binary::Add, p, n)
    })
}

pub(super) fn selu(cx: &mut Lowering<'_>) -> Res<()> {
    // The defaults of the first version were rounded differently.
    let old = cx.opset() < 6;
    let alpha = cx.float("alpha", if old { 1.6732 } else { 1.673_263_192_176_818_8 })?;
    let gamma = cx.float("gamma", if old { 1.0507 } else { 1.050_701_022_148_132_3 })?;
    float_with(cx, |e, x| {
        let y = exp_minus_one(e, x, alpha);
        let y = if_negative(e, x, y);
        mul(e, y, gamma)
    })
}

pub(super) fn hard_sigmoid(cx: &mut Lowering<'_>) -> Res<()> {
    let (alpha, beta) = (cx.float("alpha", 0.2)?, cx.float("beta", 0.5)?);
    float_with(cx, |e, x| {
        let y = mul(e, x, alpha);
        let y = add(e, y, beta);
        let y = at_least(e, y, 0.0);
        at_most(e, y, 1.0)
    })
}

pub(super) fn hard_swish(cx: &mut Lowering<'_>) -> Res<()> {
    float_with(cx, |e, x| {
        // x + 3 is exact where it is small.
        let y = add(e, x, 3.0);
        let y = at_least(e, y, 0.0);
        let y = at_most(e, y, 6.0);
        let y = mul(e, y, 1.0 / 6.0);
        e.binary(Binary::Mul, x, y)
    })
}

pub(super) fn softplus(cx: &mut Lowering<'_>) -> Res<()> {
    float_with(cx, soft_plus)
}

pub(super) fn softsign(cx: &mut Lowering<'_>) -> Res<()> {
    float_with(cx, |e, x| {
        let a = e.unary(Unary::Abs, x);
        let a = add(e, a, 1.0);
        e.binary(Binary::Div, x, a)
    })
}

pub(super) fn thresholded_relu(cx: &mut Lowering<'_>) -> Res<()> {
    let alpha = cx.float("alpha", 1.0)?;
    float_with(cx, |e, x| {
        let (alpha, zero) = (lit(e, x, alpha), lit(e, x, 0.0));
        let above = e.binary(Binary::Lt, alpha, x);
        e.select(above, x, zero)
    })
}

pub(super) fn shrink(cx: &mut Lowering<'_>) -> Res<()> {
    let (lambd, bias) = (cx.float("lambd", 0.5)?, cx.float("bias", 0.0)?);
    unary_with(cx, |e, x| {
        let t = e.type_of(x);
        let compute = if t.is_float() { t } else { crate::tensor::DType::F32 };
        let x = e.cast(x, compute);
        let (low, high, zero) = (lit(e, x, -lambd), lit(e, x, lambd), lit(e, x, 0.0));
        let (raised, lowered) = (add(e, x, bias), add(e, x, -bias));
        let above = e.binary(Binary::Lt, high, x);
        let below = e.binary(Binary::Lt, x, low);
        let y = e.select(above, lowered, zero);
        let y = e.select(below, raised, y);
        e.cast(y, t)
    })
}

pub(super) fn gelu(cx: &mut Lowering<'_>) -> Res<()> {
    let tanh = match cx.text("approximate", "none")? {
        "none" => false,
        "tanh" => true,
        other => return Err(Reason::attribute("approximate", format!("is `{other}`; none and tanh are supported"))),
    };
    float_with(cx, |e, x| {
        if !tanh {
            return e.unary(Unary::Gelu, x);
        }
        // 1 + tanh(y) = 2 σ(2y) with y = sqrt(2/pi) (x + 0.044715 x^3): nothing cancels.
        let x2 = e.binary(Binary::Mul, x, x);
        let y = mul(e, x2, 0.044715);
        let y = add(e, y, 1.0);
        let y = e.binary(Binary::Mul, x, y);
        let y = mul(e, y, 2.0 * std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::FRAC_1_SQRT_2);
        let share = e.unary(Unary::Sigmoid, y);
        e.binary(Binary::Mul, x, share)
    })
}

pub(super) fn mish(cx: &mut Lowering<'_>) -> Res<()> {
    float_with(cx, |e, x| e.unary(Unary::Mish, x))
}

pub(super) fn swish(cx: &mut Lowering<'_>) -> Res<()> {
    let alpha = cx.float("alpha", 1.0)?;
    float_with(cx, |e, x| {
        if alpha == 1.0 {
            return e.unary(Unary::Swish, x);
        }
        let y = mul(e, x, alpha);
        let y = e.unary(Unary::Sigmoid, y);
        e.binary(Binary::Mul, x, y)
    })
}
