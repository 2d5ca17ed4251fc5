//! Between which numbers the values of an expression lie, as far as its operations say: recipes are shorter where nothing is denormal.

use crate::graph::expr::{Binary, Expr, Op, Unary, Val};

/// The least that a value is where it is a number, and the most where it is finite: it may be infinite besides, which has the roots and the reciprocal that
/// instructions give.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Bounds {
    pub least: f64,
    pub most: f64,
}

/// What roundings of an operation in f32 change at most, and more.
const ROUNDED: f64 = 1e-6;

impl Bounds {
    /// Nothing is known.
    pub const ANY: Bounds = Bounds { least: f64::NEG_INFINITY, most: f32::MAX as f64 };
    /// Not below 0.
    pub const POSITIVE: Bounds = Bounds { least: 0.0, ..Bounds::ANY };

    /// Of the result of an expression whose kernel's value lies within `acc`.
    pub fn of(expr: &Expr, acc: Bounds) -> Bounds {
        Bounds::of_nodes(expr, acc).pop().unwrap_or(Bounds::ANY)
    }

    /// The same of all its nodes.
    pub fn of_nodes(expr: &Expr, acc: Bounds) -> Vec<Bounds> {
        let mut all: Vec<Bounds> = Vec::with_capacity(expr.nodes().len());
        for node in expr.nodes() {
            let at = |v: Val| all[v.index()];
            let found = match node.op {
                _ if !node.dtype.is_float() => Bounds::ANY,
                Op::Acc => acc,
                Op::Const(c) => Bounds { least: c.as_f64(), most: c.as_f64() }.rounded(),
                Op::Unary(op, a) => Bounds::unary(op, at(a)),
                Op::Binary(Binary::Mul, a, b) if a == b => Bounds::square(at(a)),
                Op::Binary(op, a, b) => Bounds::binary(op, at(a), at(b)),
                _ => Bounds::ANY,
            };
            all.push(found);
        }
        all
    }

    /// Positive, and not denormal in f32.
    pub fn are_normal(self) -> bool {
        self.least >= f64::from(f32::MIN_POSITIVE) * (1.0 + ROUNDED)
    }

    /// The same of the reciprocal, too.
    pub fn are_invertible(self) -> bool {
        self.are_normal() && self.most <= 1.0 / (f64::from(f32::MIN_POSITIVE) * (1.0 + ROUNDED))
    }

    fn unary(op: Unary, x: Bounds) -> Bounds {
        match op {
            Unary::Sqrt if x.least >= 0.0 => Bounds { least: x.least.sqrt(), most: x.most.sqrt() }.rounded(),
            Unary::Sqrt | Unary::Exp => Bounds::POSITIVE,
            // Of infinite ones it is 0, whose root is what the instruction gives, too.
            Unary::Recip if x.least > 0.0 => Bounds { least: 1.0 / x.most, most: 1.0 / x.least }.rounded(),
            Unary::Abs if x.least < 0.0 => Bounds { least: 0.0, most: x.most.max(-x.least) }.rounded(),
            Unary::Abs => x,
            _ => Bounds::ANY,
        }
    }

    fn square(x: Bounds) -> Bounds {
        let far = x.most.abs().max(x.least.abs());
        let near = if x.least > 0.0 { x.least } else { (-x.most).max(0.0) };
        Bounds { least: near * near, most: far * far }.rounded()
    }

    fn binary(op: Binary, x: Bounds, y: Bounds) -> Bounds {
        match op {
            Binary::Add => Bounds { least: x.least + y.least, most: x.most + y.most }.rounded(),
            Binary::Mul if x.least >= 0.0 && y.least >= 0.0 => {
                Bounds { least: x.least * y.least, most: x.most * y.most }.rounded()
            }
            Binary::Max => Bounds { least: x.least.max(y.least), most: x.most.max(y.most) },
            // The finite one of an infinite one and another.
            Binary::Min => Bounds { least: x.least.min(y.least), most: x.most.max(y.most) },
            _ => Bounds::ANY,
        }
    }

    /// With what f32 makes of them: denormals may be 0, and what is too large infinite.
    fn rounded(self) -> Bounds {
        let (down, up) = (|x: f64| x - x.abs() * ROUNDED, |x: f64| x + x.abs() * ROUNDED);
        let (tiny, most) = (f64::from(f32::MIN_POSITIVE), Bounds::ANY.most);
        let least = match down(self.least) {
            x if x.is_nan() || x < -most => Bounds::ANY.least,
            x if x.abs() < tiny => x.signum().min(0.0) * tiny,
            x => x.min(most),
        };
        let most = match up(self.most) {
            x if x.is_nan() || x > most => most,
            x if x.abs() < tiny => tiny,
            x => x,
        };
        Bounds { least, most }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::DType;

    #[test]
    fn operations_keep_what_is_known() {
        let t = DType::BF16;
        let mut e = Expr::new();
        let x = e.push_acc(t);
        let square = e.binary(Binary::Mul, x, x);
        let scale = e.constant(t, 0.25);
        let scaled = e.binary(Binary::Mul, square, scale);
        let bias = e.constant(t, 1.0);
        let sum = e.binary(Binary::Add, scaled, bias);
        let root = e.unary(Unary::Sqrt, sum);
        let all = Bounds::of_nodes(&e, Bounds::ANY);
        let of = |v: Val| all[v.index()];
        assert_eq!(of(square), Bounds::POSITIVE);
        assert!((0.999..1.0).contains(&of(sum).least) && !of(scaled).are_normal() && of(sum).are_normal());
        // Roots of what is finite are no more than 2^64.
        assert!(of(root).are_invertible() && !of(sum).are_invertible());
    }

    #[test]
    fn what_underflows_may_be_nothing() {
        let t = DType::F32;
        let mut e = Expr::new();
        let little = e.constant(t, 1e-30);
        let x = e.push_acc(t);
        let less = e.binary(Binary::Max, x, little);
        let product = e.binary(Binary::Mul, less, little);
        let root = e.unary(Unary::Sqrt, product);
        let all = Bounds::of_nodes(&e, Bounds::ANY);
        assert!(all[less.index()].are_normal());
        assert_eq!((all[product.index()].least, all[root.index()].are_normal()), (0.0, false));
    }
}
