//! Activations that models write with other operators, as one operation: its recipe is shorter and nothing cancels in it.
//!
//! A product is taken apart into its factors, in whatever order and however nested it is written; where these are all that an activation has, it is one:
//!
//! ```text
//! x · 1/2 · (1 + erf(x / √2))     Gelu
//! 1/2 · (1 + tanh y)              the logistic function of 2y (Gelu by tanh has this factor)
//! x · tanh(softplus x)            Mish
//! ```

use super::expr::{Binary, Expr, Op, Scalar, Unary, Val};
use super::ops::soft_plus;
use crate::tensor::DType;
use std::f64::consts::{FRAC_1_SQRT_2, SQRT_2};

/// Products with more factors are none of these, but for one that stays.
const MOST: usize = 4;

/// The product of two values where it has another name.
pub(super) fn product(e: &mut Expr, a: Val, b: Val) -> Option<Val> {
    if !e.type_of(a).is_float() {
        return None;
    }
    let mut factors = Vec::with_capacity(MOST);
    let all = collect(e, a, &mut factors) && collect(e, b, &mut factors);
    if !all {
        return None;
    }
    gelu(e, &factors).or_else(|| mish(e, &factors)).or_else(|| logistic(e, &factors))
}

/// A factor: a value, or a literal that is one half.
#[derive(Clone, Copy, PartialEq)]
enum Factor {
    Value(Val),
    Half,
}

/// Adds the factors of a value; false where there are too many.
fn collect(e: &Expr, v: Val, out: &mut Vec<Factor>) -> bool {
    let factor = match e.nodes()[v.index()].op {
        Op::Binary(Binary::Mul, a, b) => return collect(e, a, out) && collect(e, b, out),
        Op::Binary(Binary::Div, a, b) if is(e, b, 2.0) => return collect(e, a, out) && add(out, Factor::Half),
        _ if is(e, v, 0.5) => Factor::Half,
        _ => Factor::Value(v),
    };
    add(out, factor)
}

fn add(out: &mut Vec<Factor>, factor: Factor) -> bool {
    out.push(factor);
    out.len() <= MOST
}

/// True for this literal, as the value's type has it.
fn is(e: &Expr, v: Val, want: f64) -> bool {
    // What others round in f32 may be off by one.
    let off = match e.type_of(v) {
        DType::F16 => 2f64.powi(-11),
        DType::BF16 => 2f64.powi(-8),
        DType::F32 => 2f64.powi(-23),
        _ => 2f64.powi(-52),
    };
    matches!(e.nodes()[v.index()].op, Op::Const(Scalar::Float(c)) if (c - want).abs() <= off * want)
}

/// `f` of `1 + f(y)`.
fn one_plus(e: &Expr, v: Val, f: Unary) -> Option<Val> {
    let Op::Binary(Binary::Add, a, b) = e.nodes()[v.index()].op else { return None };
    let other = if is(e, a, 1.0) { b } else { a };
    (is(e, a, 1.0) || is(e, b, 1.0)).then_some(())?;
    argument(e, other, f)
}

/// `y` of `f(y)`.
fn argument(e: &Expr, v: Val, f: Unary) -> Option<Val> {
    match e.nodes()[v.index()].op {
        Op::Unary(op, y) if op == f => Some(y),
        _ => None,
    }
}

fn gelu(e: &mut Expr, factors: &[Factor]) -> Option<Val> {
    let (x, y) = two_values(factors, |v| one_plus(e, v, Unary::Erf))?;
    let is_x = match e.nodes()[y.index()].op {
        Op::Binary(Binary::Div, a, b) => a == x && is(e, b, SQRT_2),
        Op::Binary(Binary::Mul, a, b) => a == x && is(e, b, FRAC_1_SQRT_2) || b == x && is(e, a, FRAC_1_SQRT_2),
        _ => false,
    };
    (factors.len() == 3 && factors.contains(&Factor::Half) && is_x).then(|| e.unary(Unary::Gelu, x))
}

fn mish(e: &mut Expr, factors: &[Factor]) -> Option<Val> {
    let (x, y) = two_values(factors, |v| argument(e, v, Unary::Tanh))?;
    // Equal nodes are one.
    let is_x = factors.len() == 2 && soft_plus(e, x) == y;
    is_x.then(|| e.unary(Unary::Mish, x))
}

/// Of two values the other one, and what `of` says of the one of which it says something.
fn two_values(factors: &[Factor], of: impl Fn(Val) -> Option<Val>) -> Option<(Val, Val)> {
    let mut values = factors.iter().filter_map(|f| if let Factor::Value(v) = f { Some(*v) } else { None });
    let (a, b) = (values.next()?, values.next()?);
    if values.next().is_some() {
        return None;
    }
    of(b).map(|y| (a, y)).or_else(|| of(a).map(|y| (b, y)))
}

fn logistic(e: &mut Expr, factors: &[Factor]) -> Option<Val> {
    let half = factors.iter().position(|f| *f == Factor::Half)?;
    let share = |f: &Factor| if let Factor::Value(v) = f { one_plus(e, *v, Unary::Tanh) } else { None };
    let (at, y) = factors.iter().enumerate().find_map(|(i, f)| Some((i, share(f)?)))?;
    let y = doubled(e, y);
    let mut product = e.unary(Unary::Sigmoid, y);
    for (_, factor) in factors.iter().enumerate().filter(|(i, _)| *i != half && *i != at) {
        let other = match factor {
            Factor::Value(v) => *v,
            Factor::Half => e.constant(e.type_of(y), 0.5),
        };
        product = e.binary(Binary::Mul, other, product);
    }
    Some(product)
}

/// Twice a value.
fn doubled(e: &mut Expr, y: Val) -> Val {
    if let Op::Binary(Binary::Mul, a, b) = e.nodes()[y.index()].op {
        for (other, literal) in [(a, b), (b, a)] {
            if let Op::Const(Scalar::Float(c)) = e.nodes()[literal.index()].op {
                let twice = e.constant(e.type_of(y), 2.0 * c);
                return e.binary(Binary::Mul, other, twice);
            }
        }
    }
    e.binary(Binary::Add, y, y)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An expression of one operand, as text.
    fn text(dtype: DType, of: impl Fn(&mut Expr, Val) -> Val) -> String {
        let mut e = Expr::new();
        let x = e.input(0, dtype);
        let r = of(&mut e, x);
        e.finish(r).to_string()
    }

    fn mul(e: &mut Expr, a: Val, b: f64) -> Val {
        let b = e.constant(e.type_of(a), b);
        e.binary(Binary::Mul, a, b)
    }

    fn one_plus_of(e: &mut Expr, f: Unary, y: Val) -> Val {
        let one = e.constant(e.type_of(y), 1.0);
        let y = e.unary(f, y);
        e.binary(Binary::Add, y, one)
    }

    #[test]
    fn gelu_is_one_however_it_is_written() {
        for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16] {
            let share = |e: &mut Expr, x: Val, by: f64| {
                let root = e.constant(dtype, by * SQRT_2);
                let y = e.binary(Binary::Div, x, root);
                one_plus_of(e, Unary::Erf, y)
            };
            let last = |e: &mut Expr, x: Val| {
                let s = share(e, x, 1.0);
                let p = e.binary(Binary::Mul, x, s);
                mul(e, p, 0.5)
            };
            let first = |e: &mut Expr, x: Val| {
                let (s, h) = (share(e, x, 1.0), mul(e, x, 0.5));
                e.binary(Binary::Mul, s, h)
            };
            let inside = |e: &mut Expr, x: Val| {
                let y = mul(e, x, FRAC_1_SQRT_2);
                let s = one_plus_of(e, Unary::Erf, y);
                let s = mul(e, s, 0.5);
                e.binary(Binary::Mul, x, s)
            };
            for written in [text(dtype, last), text(dtype, first), text(dtype, inside)] {
                assert_eq!(written, "gelu(in0)", "{dtype:?}");
            }
            // Another number, and a product with one more factor.
            let other = |e: &mut Expr, x: Val| {
                let s = share(e, x, 1.01);
                let p = e.binary(Binary::Mul, x, s);
                mul(e, p, 0.5)
            };
            assert!(text(dtype, other).contains("erf"), "{dtype:?}");
        }
    }

    #[test]
    fn halves_of_one_and_a_hyperbolic_tangent_are_logistic() {
        let by_tanh = |e: &mut Expr, x: Val| {
            let y = mul(e, x, 0.75);
            let s = one_plus_of(e, Unary::Tanh, y);
            let p = e.binary(Binary::Mul, x, s);
            mul(e, p, 0.5)
        };
        assert_eq!(text(DType::F32, by_tanh), "mul(in0, sigmoid(mul(in0, 1.5)))");
    }

    #[test]
    fn mish_is_one() {
        let mish = |e: &mut Expr, x: Val| {
            let y = soft_plus(e, x);
            let y = e.unary(Unary::Tanh, y);
            e.binary(Binary::Mul, x, y)
        };
        assert_eq!(text(DType::F32, mish), "mish(in0)");
        let other = |e: &mut Expr, x: Val| {
            let y = mul(e, x, 3.0);
            let y = soft_plus(e, y);
            let y = e.unary(Unary::Tanh, y);
            e.binary(Binary::Mul, x, y)
        };
        assert!(text(DType::F32, other).contains("tanh"));
    }
}
