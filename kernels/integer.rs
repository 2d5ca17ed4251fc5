//! Operations on integers, of 32 bits (narrower ones are computed there and wrapped) and of 64.
//!
//! Arithmetic and comparisons are generic operations of the type. Division goes through an estimate in double precision: of
//! 32 bits it is right within one; of 64 it takes off all but the last bits of a quotient, and is repeated for the rest.

use super::float::Float;
use super::values::{self, Value};
use crate::graph::expr::{Binary, Unary};
use crate::mir::{Builder, Gen, Generic, Opnd, Part, Type};
use crate::tensor::DType;
use barewave_isa::{ModName, Mods, op};

/// The type that integers are computed in: 32 or 64 bits, signed or not.
#[derive(Clone, Copy)]
struct Int(Type);

impl Int {
    fn is_signed(self) -> bool {
        self.0.is_signed()
    }
    fn is_long(self) -> bool {
        self.0.bits() == 64
    }
    fn op(self, b: &mut Builder, g: Gen, x: impl Into<Opnd>, y: impl Into<Opnd>) -> Part {
        b.op(g.of(self.0), &[x.into(), y.into()])
    }
    /// An operation of the unsigned type of the same width.
    fn unsigned(self, b: &mut Builder, g: Gen, x: impl Into<Opnd>, y: impl Into<Opnd>) -> Part {
        b.op(g.of(self.0.unsigned()), &[x.into(), y.into()])
    }
    fn held(self, b: &mut Builder, x: i64) -> Part {
        if self.is_long() { pair(b, x) } else { b.to_vector(x as i32) }
    }
    fn select(self, b: &mut Builder, mask: Part, x: Part, y: Part) -> Part {
        if self.is_long() {
            b.op(Gen::Select.of(self.0), &[mask.into(), x.into(), y.into()])
        } else {
            b.select(mask, x, y)
        }
    }
    fn copy(self, b: &mut Builder, x: Part) -> Part {
        let r = b.v(x.len);
        b.copy_into(r, x);
        r
    }
    /// A result of the elements' type.
    fn value(self, b: &mut Builder, r: Part, t: DType) -> Value {
        if self.is_long() { Value::Pair(r) } else { Value::Word(wrap(b, r, t).into()) }
    }
}

/// A 64-bit constant in a register pair.
pub(super) fn pair(b: &mut Builder, x: i64) -> Part {
    let p = b.v(2);
    b.copy_into(p.dword(0), x as u32);
    b.copy_into(p.dword(1), (x >> 32) as u32);
    p
}

/// Wraps a 32-bit result to a narrower type.
pub(super) fn wrap(b: &mut Builder, r: Part, t: DType) -> Part {
    match t {
        DType::I8 | DType::I16 => b.op(op::V_BFE_I32, &[r.into(), 0u32.into(), (t.size() as u32 * 8).into()]),
        DType::U8 => b.and(r, 0xffu32),
        DType::U16 => b.and(r, 0xffffu32),
        DType::I4 | DType::I2 => b.op(op::V_BFE_I32, &[r.into(), 0u32.into(), (t.bits() as u32).into()]),
        DType::U4 | DType::U2 => b.and(r, (1u32 << t.bits()) - 1),
        _ => r,
    }
}

/// An operation of one operand; `None` for those that integers do not have.
pub(super) fn unary(b: &mut Builder, op: Unary, t: DType, x: Value) -> Option<Value> {
    let i = Int(values::computed(t));
    let x = x.whole(b);
    let r = match op {
        Unary::Neg => i.op(b, Gen::Sub, 0u32, x),
        Unary::Not => b.op(Gen::Not.of(i.0), &[x.into()]),
        Unary::Abs if i.is_signed() => {
            let n = i.op(b, Gen::Sub, 0u32, x);
            i.op(b, Gen::Max, x, n)
        }
        Unary::Sign if i.is_signed() => {
            let (one, minus) = (i.held(b, 1), i.held(b, -1));
            let r = i.op(b, Gen::Min, x, one);
            i.op(b, Gen::Max, r, minus)
        }
        Unary::Sign => {
            let one = i.held(b, 1);
            i.op(b, Gen::Min, x, one)
        }
        Unary::Abs | Unary::Floor | Unary::Ceil | Unary::Round => x,
        _ => return None,
    };
    Some(i.value(b, r, t))
}

/// An operation of two operands; `None` for those that integers do not have.
pub(super) fn binary(b: &mut Builder, op: Binary, t: DType, x: Value, y: Value) -> Option<Value> {
    let i = Int(values::computed(t));
    let x = x.whole(b);
    let y: Opnd = match y {
        Value::Word(o) if !matches!(op, Binary::Div | Binary::Rem | Binary::Mod | Binary::Pow) => o,
        y => y.whole(b).into(),
    };
    let gen_op = match op {
        Binary::Add => Gen::Add,
        Binary::Sub => Gen::Sub,
        Binary::Mul => Gen::Mul,
        Binary::Min => Gen::Min,
        Binary::Max => Gen::Max,
        Binary::And => Gen::And,
        Binary::Or => Gen::Or,
        Binary::Xor => Gen::Xor,
        Binary::Eq => Gen::CmpEq,
        Binary::Lt => Gen::CmpLt,
        Binary::Le => Gen::CmpLe,
        Binary::Shl | Binary::Shr => {
            let by = if let (Opnd::V(p), true) = (y, i.is_long()) { p.dword(0).into() } else { y };
            let g = if op == Binary::Shl { Gen::Shl } else { Gen::Shr };
            let r = i.unsigned(b, g, x, by);
            return Some(i.value(b, r, t));
        }
        Binary::Div | Binary::Rem | Binary::Mod | Binary::Pow => {
            let Opnd::V(y) = y else { return None };
            let r = if op == Binary::Pow { power(i, b, x, y) } else { divide(i, b, op, x, y) };
            return Some(i.value(b, r, t));
        }
    };
    let r = i.op(b, gen_op, x, y);
    Some(if gen_op.compares() { Value::Mask(r) } else { i.value(b, r, t) })
}

/// The division family; signs are taken off first and put back.
fn divide(i: Int, b: &mut Builder, op: Binary, x: Part, y: Part) -> Part {
    let quotient = |b: &mut Builder, x, y| if i.is_long() { long_quotient(b, x, y) } else { word_quotient(b, x, y) };
    if !i.is_signed() {
        let (q, r) = quotient(b, x, y);
        return if op == Binary::Div { q } else { r };
    }
    let sign = |b: &mut Builder, v: Part| i.op(b, Gen::Shr, v, i.0.bits() - 1);
    let flip = |b: &mut Builder, v: Part, s: Part| {
        let t = i.op(b, Gen::Xor, v, s);
        i.op(b, Gen::Sub, t, s)
    };
    let (sx, sy) = (sign(b, x), sign(b, y));
    let (ax, ay) = (flip(b, x, sx), flip(b, y, sy));
    let (q, r) = quotient(b, ax, ay);
    if op == Binary::Div {
        let s = i.op(b, Gen::Xor, sx, sy);
        return flip(b, q, s);
    }
    let r = flip(b, r, sx);
    if op == Binary::Rem {
        return r;
    }
    // The divisor's sign: add it where remainder and divisor differ in sign and the remainder is not 0.
    let s = i.op(b, Gen::Xor, r, y);
    let differ = i.op(b, Gen::CmpGt, Opnd::Imm(0), s);
    let some = i.op(b, Gen::CmpNe, Opnd::Imm(0), r);
    let m = b.mask_and(differ, some);
    let t = i.op(b, Gen::Add, r, y);
    i.select(b, m, t, r)
}

/// Unsigned 32-bit quotient and remainder, through a double-precision estimate corrected by one.
fn word_quotient(b: &mut Builder, n: Part, d: Part) -> (Part, Part) {
    let f = Float(Type::F64);
    let (nf, df) = (
        b.op(Generic::convert(Type::U32, Type::F64), &[n.into()]),
        b.op(Generic::convert(Type::U32, Type::F64), &[d.into()]),
    );
    let r = f.one(b, Gen::Rcp, df);
    let minus = Mods::new().with(ModName::Neg, 1);
    let one = f.held(b, 1.0);
    let mut r = r;
    for _ in 0..2 {
        let e = b.op_with(op::V_FMA_F64, &[df.into(), r.into(), one.into()], minus.clone());
        r = f.fma(b, e, r, r);
    }
    let q = f.mul(b, nf, r);
    let q = b.op(Generic::convert(Type::F64, Type::U32), &[q.into()]);
    let qd = b.mul(q, d);
    let rem = b.sub(n, qd);
    // The estimate may be one too large or one too small.
    let q1 = b.sub(q, 1u32);
    let r1 = b.add(rem, d);
    let too_large = b.op(Gen::CmpGe.of(Type::U32), &[qd.into(), n.into()]);
    let exact = b.op(Gen::CmpNe.of(Type::U32), &[qd.into(), n.into()]);
    let too_large = b.mask_and(too_large, exact);
    let q = b.select(too_large, q1, q);
    let rem = b.select(too_large, r1, rem);
    let under = b.op(Gen::CmpGe.of(Type::U32), &[rem.into(), d.into()]);
    let q2 = b.add(q, 1u32);
    let r2 = b.sub(rem, d);
    (b.select(under, q2, q), b.select(under, r2, rem))
}

/// Unsigned 64-bit quotient and remainder. A round adds to the quotient what double precision finds of the remaining one, a
/// little less than that, so that it is never too much, but at least 1: two or three rounds do. Division by 0 gives 0.
fn long_quotient(b: &mut Builder, n: Part, d: Part) -> (Part, Part) {
    let i = Int(Type::U64);
    let f = Float(Type::F64);
    let df = b.convert(Type::U64, Type::F64, d);
    let one = f.held(b, 1.0);
    let inverse = f.div(b, one, df);
    let inverse = f.scaled(b, inverse, 1.0 - 2f64.powi(-50));
    let zero = i.held(b, 0);
    let (q, r) = (i.copy(b, zero), i.copy(b, n));
    let defined = i.op(b, Gen::CmpNe, d, Opnd::Imm(0));
    b.loop_while_any("quotient", |b| {
        let left = i.op(b, Gen::CmpGe, r, d);
        let left = b.mask_and(left, defined);
        let rf = b.convert(Type::U64, Type::F64, r);
        let e = f.mul(b, rf, inverse);
        let e = b.convert(Type::F64, Type::U64, e);
        let least = i.held(b, 1);
        let e = i.op(b, Gen::Max, e, least);
        let e = i.select(b, left, e, zero);
        let taken = i.op(b, Gen::Mul, e, d);
        for (acc, g, x) in [(q, Gen::Add, e), (r, Gen::Sub, taken)] {
            let next = i.op(b, g, acc, x);
            b.copy_into(acc, next);
        }
        let left = i.op(b, Gen::CmpGe, r, d);
        b.mask_and(left, defined)
    });
    (q, r)
}

/// `x^y` by squaring. A negative exponent leaves 0 of all but 1 and -1.
fn power(i: Int, b: &mut Builder, x: Part, y: Part) -> Part {
    let zero = i.held(b, 0);
    let one = i.held(b, 1);
    let start = if i.is_signed() { i.op(b, Gen::Max, y, zero) } else { y };
    let (r, base, e) = (i.copy(b, one), i.copy(b, x), i.copy(b, start));
    let is_odd = |b: &mut Builder, e: Part| {
        let bit = b.op(Gen::And.of(Type::U32), &[e.dword(0).into(), 1u32.into()]);
        b.op(Gen::CmpNe.of(Type::U32), &[0u32.into(), bit.into()])
    };
    b.loop_while_any("power", |b| {
        let odd = is_odd(b, e);
        let more = i.op(b, Gen::Mul, r, base);
        let next = i.select(b, odd, more, r);
        b.copy_into(r, next);
        let square = i.op(b, Gen::Mul, base, base);
        b.copy_into(base, square);
        let half = i.unsigned(b, Gen::Shr, e, 1u32);
        b.copy_into(e, half);
        i.op(b, Gen::CmpNe, Opnd::Imm(0), e)
    });
    if !i.is_signed() {
        return r;
    }
    let odd = is_odd(b, y);
    let minus_one = i.held(b, -1);
    let is_one = i.op(b, Gen::CmpEq, x, one);
    let is_minus = i.op(b, Gen::CmpEq, x, minus_one);
    let turned = i.select(b, odd, minus_one, one);
    let inverse = i.select(b, is_minus, turned, zero);
    let inverse = i.select(b, is_one, one, inverse);
    let negative = i.op(b, Gen::CmpGt, Opnd::Imm(0), y);
    i.select(b, negative, inverse, r)
}
