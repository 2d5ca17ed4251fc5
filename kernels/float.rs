//! Arithmetic of the two types that floats are computed in, f32 and f64, behind one interface.

use super::{double, math};
use crate::mir::{Builder, Gen, Opnd, Part, Type};

/// The type that a kernel computes its floats in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Float(pub Type);

impl Float {
    /// A constant as an operand.
    pub fn constant(self, b: &mut Builder, x: f64) -> Opnd {
        match self.0 {
            Type::F64 => double::constant(b, x).into(),
            _ => (x as f32).into(),
        }
    }
    /// A new register that holds a constant.
    pub fn held(self, b: &mut Builder, x: f64) -> Part {
        match self.0 {
            Type::F64 => double::constant(b, x),
            _ => b.to_vector(x as f32),
        }
    }
    /// An operation of two operands.
    pub fn op(self, b: &mut Builder, op: Gen, x: impl Into<Opnd>, y: impl Into<Opnd>) -> Part {
        b.op(op.of(self.0), &[x.into(), y.into()])
    }
    /// `acc = op(acc, x)`.
    pub fn update(self, b: &mut Builder, op: Gen, acc: Part, x: Part) {
        b.emit(op.of(self.0), &[acc.into()], &[acc.into(), x.into()]);
    }
    /// `x * y + z`.
    pub fn fma(self, b: &mut Builder, x: impl Into<Opnd>, y: impl Into<Opnd>, z: impl Into<Opnd>) -> Part {
        b.op(Gen::Fma.of(self.0), &[x.into(), y.into(), z.into()])
    }
    /// `acc += x * y`.
    pub fn fma_into(self, b: &mut Builder, acc: Part, x: impl Into<Opnd>, y: impl Into<Opnd>) {
        b.emit(Gen::Fma.of(self.0), &[acc.into()], &[x.into(), y.into(), acc.into()]);
    }
    /// Per lane `mask ? x : y`.
    pub fn select(self, b: &mut Builder, mask: Part, x: Part, y: Opnd) -> Part {
        match self.0 {
            Type::F64 => b.op(Gen::Select.of(self.0), &[mask.into(), x.into(), y]),
            _ => b.select(mask, x, y),
        }
    }
    /// `x / y`, correctly rounded.
    pub fn div(self, b: &mut Builder, x: Opnd, y: Part) -> Part {
        math::div_of(b, self.0, x, y.into())
    }
    /// Square root.
    pub fn sqrt(self, b: &mut Builder, x: Part) -> Part {
        match self.0 {
            Type::F64 => double::sqrt(b, x),
            _ => math::sqrt(b, x.into()),
        }
    }
    /// `e^x`.
    pub fn exp(self, b: &mut Builder, x: Part) -> Part {
        match self.0 {
            Type::F64 => double::exp(b, x),
            _ => math::exp(b, x.into()),
        }
    }
    /// Natural logarithm.
    pub fn log(self, b: &mut Builder, x: Part) -> Part {
        match self.0 {
            Type::F64 => double::log(b, x),
            _ => math::log(b, x.into()),
        }
    }
}
