//! Operations on floats, f32 and f64: which recipe computes which.
//!
//! Arithmetic is an instruction, division and square root are correctly rounded (f32's root within 1 ULP), every other function of one
//! operand is within 4 ULP of the exact result for every operand, denormal ones among operands and results;
//! `tools/ulp` and `tests/kernels/numerics.rs` measure it. A NaN operand gives a NaN. Where a model computes in floats of 16 bits, recipes
//! that are long take less: their error is small beside the rounding to 16 bits.

use super::float::Float;
use super::values::Value;
use super::{double, gates, halves, inverse, math, power, trig};
use crate::graph::expr::{Binary, Unary};
use crate::mir::{Builder, Gen, Opnd, Part, Type};
use crate::tensor::DType;
use barewave_isa::{Op, op};

/// An operand as it stands in instructions: constants of f32 as they are.
fn operand(x: Value) -> Opnd {
    match x {
        Value::Pair(p) => p.into(),
        x => x.word(),
    }
}

/// A result in the type.
fn value(f: Float, r: Part) -> Value {
    if f.is_double() { Value::Pair(r) } else { Value::Word(r.into()) }
}

/// An operation of one operand; `None` for those that floats do not have.
pub(super) fn unary(f: Float, b: &mut Builder, op: Unary, x: Part) -> Option<Value> {
    let r = match op {
        Unary::Neg => f.neg(b, x),
        Unary::Abs => f.abs(b, x),
        Unary::Floor => f.one(b, Gen::Floor, x),
        Unary::Ceil => f.one(b, Gen::Ceil, x),
        Unary::Round => f.one(b, Gen::Round, x),
        Unary::Sqrt => f.sqrt(b, x),
        Unary::Recip => {
            let one = f.constant(b, 1.0);
            f.div(b, one, x)
        }
        Unary::Exp => f.exp(b, x),
        Unary::Log => f.log(b, x),
        Unary::LogOnePlus => f.log_one_plus(b, x),
        Unary::Sin => trig::sin_cos(f, b, false, x),
        Unary::Cos => trig::sin_cos(f, b, true, x),
        Unary::Tan => trig::tan(f, b, x),
        Unary::Asin => inverse::asin(f, b, x),
        Unary::Acos => inverse::acos(f, b, x),
        Unary::Atan => inverse::atan(f, b, x),
        Unary::Asinh => inverse::asinh(f, b, x),
        Unary::Acosh => inverse::acosh(f, b, x),
        Unary::Atanh => inverse::atanh(f, b, x),
        Unary::Swish => gates::swish(f, b, x),
        Unary::Mish => gates::mish(f, b, x),
        Unary::Gelu => gates::gelu(f, b, x),
        Unary::Sign => sign(f, b, x),
        Unary::IsNan => return Some(Value::Mask(f.compare(b, Gen::CmpUnordered, x, x))),
        Unary::IsInf => {
            let a = f.abs(b, x);
            return Some(Value::Mask(f.compare_to(b, Gen::CmpEq, a, f64::INFINITY)));
        }
        Unary::Not => return None,
        _ if f.is_double() => of_doubles(b, op, x)?,
        _ => of_singles(b, op, x)?,
    };
    Some(value(f, r))
}

/// Recipes from the hardware's own functions.
fn of_singles(b: &mut Builder, op: Unary, x: Part) -> Option<Part> {
    let x = x.into();
    Some(match op {
        Unary::Tanh => math::tanh(b, x),
        Unary::Sigmoid => math::sigmoid(b, x),
        Unary::Erf => math::erf(b, x),
        Unary::Sinh => math::sinh(b, x),
        Unary::Cosh => math::cosh(b, x),
        Unary::ExpMinusOne => math::exp_minus_one(b, x),
        _ => return None,
    })
}

/// The recipe for results of 16 bits of two operands, where there is one of its own ([`halves`]).
pub(super) fn binary_of_halves(b: &mut Builder, op: Binary, dtype: DType, x: Value, y: Value) -> Option<Part> {
    match (op, y) {
        (Binary::Div, Value::Word(Opnd::Imm(c))) => {
            let (x, c) = (x.reg(b), f32::from_bits(c as u32));
            Some(halves::quotient(b, x, c).unwrap_or_else(|| {
                let c = b.to_vector(c);
                halves::shared_quotient(b, dtype, x, c)
            }))
        }
        (Binary::Div, y) if dtype == DType::F16 => {
            let (x, y) = (x.reg(b), y.reg(b));
            Some(halves::ratio(b, x, y))
        }
        (Binary::Pow, y) => {
            let (x, y) = (x.reg(b), y.reg(b));
            Some(halves::power(b, dtype, x, y))
        }
        _ => None,
    }
}

/// Recipes from series.
fn of_doubles(b: &mut Builder, op: Unary, x: Part) -> Option<Part> {
    Some(match op {
        Unary::Tanh => double::tanh(b, x),
        Unary::Sigmoid => double::sigmoid(b, x),
        Unary::Erf => gates::erf(b, x),
        Unary::Sinh | Unary::Cosh => double::hyperbolic(b, op == Unary::Cosh, x),
        Unary::ExpMinusOne => double::exp_minus_one(b, x),
        _ => return None,
    })
}

/// 1 with the operand's sign; zeros and NaN are their own.
fn sign(f: Float, b: &mut Builder, x: Part) -> Part {
    let one = f.held(b, 1.0);
    let signed = f.copysign(b, one, x);
    let a = f.abs(b, x);
    let some = f.compare_to(b, Gen::CmpGt, a, 0.0);
    f.select(b, some, signed, x)
}

/// An operation of two operands; `None` for those that floats do not have.
pub(super) fn binary(f: Float, b: &mut Builder, op: Binary, x: Value, y: Value) -> Option<Value> {
    let (p, q) = (operand(x), operand(y));
    let simple = |b: &mut Builder, g| f.op(b, g, p, q);
    let compare = |b: &mut Builder, g| {
        let q = f.vector(b, q);
        Some(Value::Mask(f.compare(b, g, p, q)))
    };
    let r = match op {
        Binary::Add => simple(b, Gen::Add),
        Binary::Sub => simple(b, Gen::Sub),
        Binary::Mul => simple(b, Gen::Mul),
        Binary::Min => extremum(f, b, Gen::Min, p, q),
        Binary::Max => extremum(f, b, Gen::Max, p, q),
        Binary::Eq => return compare(b, Gen::CmpEq),
        Binary::Lt => return compare(b, Gen::CmpLt),
        Binary::Le => return compare(b, Gen::CmpLe),
        Binary::Div | Binary::Pow | Binary::Rem | Binary::Mod => {
            let (x, y) = (f.vector(b, p), f.vector(b, q));
            match op {
                Binary::Div => f.div(b, x, y),
                Binary::Pow => power::pow(f, b, x, y),
                Binary::Rem => power::remainder(f, b, x, y),
                _ => power::modulo(f, b, x, y),
            }
        }
        _ => return None,
    };
    Some(value(f, r))
}

/// Instructions that give the larger or smaller one of two or three f32, of which a NaN wins: gfx950 has one, and gfx12.
fn keeping_nan(g: Gen) -> (Op, Op) {
    match g {
        Gen::Max => (op::V_MAXIMUM_F32, op::V_MAXIMUM3_F32),
        _ => (op::V_MINIMUM_F32, op::V_MINIMUM3_F32),
    }
}

/// An f32 within limits; a NaN stays one. The median of a NaN and two numbers is the smaller one.
pub(super) fn within(b: &mut Builder, x: Part, low: f32, high: f32) -> Part {
    let f = Float(Type::F32);
    let (of_two, of_three) = keeping_nan(Gen::Max);
    if b.target().has(of_two) || b.target().has(of_three) {
        let least = extremum(f, b, Gen::Max, x.into(), low.into());
        return extremum(f, b, Gen::Min, least.into(), high.into());
    }
    let [low, high] = [low, high].map(|limit| b.to_vector(limit));
    let median = b.op(op::V_MED3_F32, &[x.into(), low.into(), high.into()]);
    f.keep_nan(b, x, median)
}

/// The larger or smaller operand; a NaN wins.
fn extremum(f: Float, b: &mut Builder, g: Gen, x: Opnd, y: Opnd) -> Part {
    let (of_two, of_three) = keeping_nan(g);
    if !f.is_double() && b.target().has(of_two) {
        return b.op(of_two, &[x, y]);
    }
    if !f.is_double() && b.target().has(of_three) {
        return b.op(of_three, &[x, y, y]);
    }
    if let (Opnd::V(x), Opnd::Imm(c)) | (Opnd::Imm(c), Opnd::V(x)) = (x, y)
        && !f.is_double()
        && !f32::from_bits(c as u32).is_nan()
    {
        // The constant, unless the operand lies beyond it or is a NaN.
        let beyond = if g == Gen::Max { op::V_CMP_NGE_F32 } else { op::V_CMP_NLE_F32 };
        let mask = b.mask();
        b.emit(beyond, &[mask.into()], &[Opnd::Imm(c), x.into()]);
        return b.select(mask, x, Opnd::Imm(c));
    }
    let mut r = f.op(b, g, x, y);
    // The hardware returns the other operand where one is a NaN; a constant is none.
    for o in [x, y] {
        if let Opnd::V(p) = o {
            r = f.keep_nan(b, p, r);
        }
    }
    r
}
