//! Arithmetic of the two types that floats are computed in, f32 and f64, behind one interface: what the recipes of
//! elementary functions are written in.

use super::{double, math};
use crate::mir::{Builder, Gen, Opnd, Part, Type};
use barewave_isa::op;

/// The type that a kernel computes its floats in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Float(pub Type);

/// A polynomial in each type, highest coefficient first.
pub(super) struct Polynomial {
    /// In f32.
    pub single: &'static [f32],
    /// In f64.
    pub double: &'static [f64],
}

impl Float {
    /// True of f64.
    pub fn is_double(self) -> bool {
        self.0 == Type::F64
    }
    /// One of two values: for f32, for f64.
    pub fn pick<T>(self, single: T, double: T) -> T {
        if self.is_double() { double } else { single }
    }
    /// A constant as an operand.
    pub fn constant(self, b: &mut Builder, x: f64) -> Opnd {
        if self.is_double() { double::constant(b, x).into() } else { (x as f32).into() }
    }
    /// A new register that holds a constant.
    pub fn held(self, b: &mut Builder, x: f64) -> Part {
        if self.is_double() { double::constant(b, x) } else { b.to_vector(x as f32) }
    }
    /// The operand in a vector register.
    pub fn vector(self, b: &mut Builder, x: Opnd) -> Part {
        match x {
            Opnd::V(p) if b.is_vector(x) => p,
            _ => b.to_vector(x),
        }
    }
    /// An operation of two operands.
    pub fn op(self, b: &mut Builder, op: Gen, x: impl Into<Opnd>, y: impl Into<Opnd>) -> Part {
        b.op(op.of(self.0), &[x.into(), y.into()])
    }
    /// An operation of one operand.
    pub fn one(self, b: &mut Builder, op: Gen, x: impl Into<Opnd>) -> Part {
        b.op(op.of(self.0), &[x.into()])
    }
    /// `x + y`.
    pub fn add(self, b: &mut Builder, x: impl Into<Opnd>, y: impl Into<Opnd>) -> Part {
        self.op(b, Gen::Add, x, y)
    }
    /// `x - y`.
    pub fn sub(self, b: &mut Builder, x: impl Into<Opnd>, y: impl Into<Opnd>) -> Part {
        self.op(b, Gen::Sub, x, y)
    }
    /// `x * y`.
    pub fn mul(self, b: &mut Builder, x: impl Into<Opnd>, y: impl Into<Opnd>) -> Part {
        self.op(b, Gen::Mul, x, y)
    }
    /// `x * c`.
    pub fn scaled(self, b: &mut Builder, x: Part, c: f64) -> Part {
        let c = self.constant(b, c);
        self.mul(b, c, x)
    }
    /// `x + c`.
    pub fn plus(self, b: &mut Builder, x: Part, c: f64) -> Part {
        let c = self.constant(b, c);
        self.add(b, c, x)
    }
    /// `-x`.
    pub fn neg(self, b: &mut Builder, x: Part) -> Part {
        if self.is_double() { self.one(b, Gen::Neg, x) } else { math::neg(b, x.into()) }
    }
    /// `|x|`.
    pub fn abs(self, b: &mut Builder, x: Part) -> Part {
        if self.is_double() { self.one(b, Gen::Abs, x) } else { math::abs(b, x.into()) }
    }
    /// `-|x|`.
    pub fn minus_abs(self, b: &mut Builder, x: Part) -> Part {
        if !self.is_double() {
            return math::minus_abs(b, x.into());
        }
        let a = self.abs(b, x);
        self.neg(b, a)
    }
    /// The magnitude of `x` with the sign of `s`.
    pub fn copysign(self, b: &mut Builder, x: Part, s: Part) -> Part {
        let r = b.v(x.len);
        let mask = b.scalar(0x7fff_ffff);
        let top = x.len - 1;
        if top > 0 {
            b.copy_into(r.dword(0), x.dword(0));
        }
        b.emit(op::V_BFI_B32, &[r.dword(top).into()], &[mask.into(), x.dword(top).into(), s.dword(top).into()]);
        r
    }
    /// Turns the sign of `x` where bit 31 of `bits` is set.
    pub fn xor_sign(self, b: &mut Builder, x: Part, bits: Part) -> Part {
        let top = x.len - 1;
        let sign = b.and(bits, 0x8000_0000u32);
        let turned = b.op(Gen::Xor.of(Type::B32), &[sign.into(), x.dword(top).into()]);
        if top == 0 {
            return turned;
        }
        let r = b.v(x.len);
        b.copy_into(r.dword(0), x.dword(0));
        b.copy_into(r.dword(top), turned);
        r
    }
    /// The dword with the sign.
    pub fn top(self, x: Part) -> Part {
        x.dword(x.len - 1)
    }
    /// Mask of the lanes where the comparison holds.
    pub fn compare(self, b: &mut Builder, op: Gen, x: impl Into<Opnd>, y: impl Into<Opnd>) -> Part {
        self.op(b, op, x, y)
    }
    /// Mask of the lanes where `x` compares so with a constant.
    pub fn compare_to(self, b: &mut Builder, op: Gen, x: Part, c: f64) -> Part {
        // Single precision compares with a literal as the first operand.
        let turned = match op {
            Gen::CmpLt => Gen::CmpGt,
            Gen::CmpLe => Gen::CmpGe,
            Gen::CmpGt => Gen::CmpLt,
            Gen::CmpGe => Gen::CmpLe,
            same => same,
        };
        let c = self.constant(b, c);
        self.op(b, turned, c, x)
    }
    /// `value`, or a NaN where `x` is one.
    pub fn keep_nan(self, b: &mut Builder, x: Part, value: Part) -> Part {
        let nan = self.op(b, Gen::CmpUnordered, x, x);
        self.select(b, nan, x, value)
    }
    /// `acc = op(acc, x)`.
    pub fn update(self, b: &mut Builder, op: Gen, acc: Part, x: Part) {
        b.emit(op.of(self.0), &[acc.into()], &[acc.into(), x.into()]);
    }
    /// `x * y + z`.
    pub fn fma(self, b: &mut Builder, x: impl Into<Opnd>, y: impl Into<Opnd>, z: impl Into<Opnd>) -> Part {
        b.op(Gen::Fma.of(self.0), &[x.into(), y.into(), z.into()])
    }
    /// `x * y - z`, rounded once.
    pub fn product_less(self, b: &mut Builder, x: impl Into<Opnd>, y: impl Into<Opnd>, z: impl Into<Opnd>) -> Part {
        math::product_less(b, self.0, [x.into(), y.into(), z.into()])
    }
    /// `z - x * y`, rounded once.
    pub fn less_product(self, b: &mut Builder, x: impl Into<Opnd>, y: impl Into<Opnd>, z: impl Into<Opnd>) -> Part {
        math::less_product(b, self.0, [x.into(), y.into(), z.into()])
    }
    /// `acc += x * y`.
    pub fn fma_into(self, b: &mut Builder, acc: Part, x: impl Into<Opnd>, y: impl Into<Opnd>) {
        b.emit(Gen::Fma.of(self.0), &[acc.into()], &[x.into(), y.into(), acc.into()]);
    }
    /// Horner's scheme.
    pub fn polynomial(self, b: &mut Builder, x: Part, c: &Polynomial) -> Part {
        let own: Vec<f64> = match self.is_double() {
            true => c.double.to_vec(),
            false => c.single.iter().map(|c| f64::from(*c)).collect(),
        };
        let mut r = self.held(b, own[0]);
        for &k in &own[1..] {
            let k = self.held(b, k);
            r = self.fma(b, r, x, k);
        }
        r
    }
    /// `x * 2^n`.
    pub fn ldexp(self, b: &mut Builder, x: impl Into<Opnd>, n: impl Into<Opnd>) -> Part {
        b.op(Gen::Ldexp.of(self.0), &[x.into(), n.into()])
    }
    /// `x = mantissa * 2^exponent` with a mantissa from 1/2 below 1; zeros, infinities and NaN are their own.
    pub fn frexp(self, b: &mut Builder, x: Part) -> (Part, Part) {
        let mantissa = self.pick(op::V_FREXP_MANT_F32, op::V_FREXP_MANT_F64);
        (b.op(mantissa, &[x.into()]), self.exponent(b, x))
    }
    /// The exponent of [`Float::frexp`].
    pub fn exponent(self, b: &mut Builder, x: Part) -> Part {
        b.op(self.pick(op::V_FREXP_EXP_I32_F32, op::V_FREXP_EXP_I32_F64), &[x.into()])
    }
    /// `x * y` as a rounded product and what the rounding took.
    pub fn two_product(self, b: &mut Builder, x: Part, y: Part) -> (Part, Part) {
        let high = self.mul(b, x, y);
        (high, self.product_less(b, x, y, high))
    }
    /// `x + y` as a rounded sum and what the rounding took (D. E. Knuth).
    pub fn two_sum(self, b: &mut Builder, x: Part, y: Part) -> (Part, Part) {
        let s = self.add(b, x, y);
        let own_y = self.sub(b, s, x);
        let own_x = self.sub(b, s, own_y);
        let (lost_x, lost_y) = (self.sub(b, x, own_x), self.sub(b, y, own_y));
        (s, self.add(b, lost_x, lost_y))
    }
    /// [`Float::two_sum`] where `x` is 0 or not smaller in magnitude than `y`.
    pub fn fast_two_sum(self, b: &mut Builder, x: Part, y: Part) -> (Part, Part) {
        let s = self.add(b, x, y);
        let taken = self.sub(b, s, x);
        (s, self.sub(b, y, taken))
    }
    /// Per lane `mask ? x : y`.
    pub fn select(self, b: &mut Builder, mask: Part, x: impl Into<Opnd>, y: impl Into<Opnd>) -> Part {
        match self.0 {
            Type::F64 => b.op(Gen::Select.of(self.0), &[mask.into(), x.into(), y.into()]),
            _ => b.select(mask, x, y),
        }
    }
    /// `x / y`, correctly rounded.
    pub fn div(self, b: &mut Builder, x: impl Into<Opnd>, y: Part) -> Part {
        math::div_of(b, self.0, x.into(), y.into())
    }
    /// `x / y` within 1 ULP, for a divisor far from denormal and from overflow.
    pub fn ratio(self, b: &mut Builder, x: Part, y: Part) -> Part {
        if self.is_double() {
            return self.div(b, x, y);
        }
        let r = self.one(b, Gen::Rcp, y);
        let q = self.mul(b, x, r);
        let e = self.less_product(b, y, q, x);
        self.fma(b, e, r, q)
    }
    /// Square root.
    pub fn sqrt(self, b: &mut Builder, x: Part) -> Part {
        if self.is_double() { double::sqrt(b, x) } else { math::sqrt(b, x.into()) }
    }
    /// Square root of what is no denormal.
    pub fn sqrt_of_normal(self, b: &mut Builder, x: Part) -> Part {
        if self.is_double() { double::sqrt(b, x) } else { math::sqrt_of_normal(b, x.into()) }
    }
    /// `1 / sqrt(x)`.
    pub fn reciprocal_root(self, b: &mut Builder, x: Part) -> Part {
        let root = self.sqrt(b, x);
        let one = self.constant(b, 1.0);
        self.div(b, one, root)
    }
    /// `1 / x`, and 0 of 0.
    pub fn reciprocal_or_zero(self, b: &mut Builder, x: Part) -> Part {
        let one = self.constant(b, 1.0);
        let r = self.div(b, one, x);
        let none = self.compare_to(b, Gen::CmpEq, x, 0.0);
        let zero = self.held(b, 0.0);
        self.select(b, none, zero, r)
    }
    /// What a normalisation multiplies by, of a sum of squares that `scale` makes the variance: `1 / sqrt(squares * scale + epsilon)`.
    pub fn inverse_deviation(self, b: &mut Builder, squares: Part, scale: Opnd, epsilon: f64) -> Part {
        let epsilon = self.constant(b, epsilon);
        let variance = self.fma(b, squares, scale, epsilon);
        self.reciprocal_root(b, variance)
    }
    /// `e^x = p 2^n`, `n` an integer and `p` not far from 1. Where the result overflows, or is 0 even times `2^64` (f64: `2^256`), so is
    /// `p 2^n`; of a NaN `p` may be one or not.
    pub fn exp_parts(self, b: &mut Builder, x: Part) -> (Part, Part) {
        if self.is_double() { double::exp_parts(b, x) } else { math::exp_parts(b, x.into()) }
    }
    /// `e^x`.
    pub fn exp(self, b: &mut Builder, x: Part) -> Part {
        if self.is_double() { double::exp(b, x) } else { math::exp(b, x.into()) }
    }
    /// Natural logarithm.
    pub fn log(self, b: &mut Builder, x: Part) -> Part {
        if self.is_double() { double::log(b, x) } else { math::log(b, x.into()) }
    }
    /// `ln(1 + x)`.
    pub fn log_one_plus(self, b: &mut Builder, x: Part) -> Part {
        if self.is_double() { double::log_one_plus(b, x) } else { math::log_one_plus(b, x.into()) }
    }
}
