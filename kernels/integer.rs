//! Operations on integers, of 32 bits (narrower ones are computed there and wrapped) and of 64.
//!
//! Arithmetic and comparisons are generic operations of the type; division is in [`quotient`].

mod quotient;

use super::values::{self, Value};
use crate::graph::expr::{Binary, Unary};
use crate::mir::{Builder, Gen, Opnd, Part, Type};
use crate::tensor::DType;
use barewave_isa::op;

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
    /// The unsigned type of the same width.
    fn unsigned_type(self) -> Int {
        Int(self.0.unsigned())
    }
    /// All bits as the sign.
    fn sign(self, b: &mut Builder, x: Part) -> Part {
        self.op(b, Gen::Shr, x, self.0.bits() - 1)
    }
    /// `-x` where a sign says so.
    fn flip(self, b: &mut Builder, x: Part, sign: Part) -> Part {
        let t = self.op(b, Gen::Xor, x, sign);
        self.op(b, Gen::Sub, t, sign)
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

/// An operation of two operands, of which the second is a constant where it is `known`; `None` for those that integers do not have.
pub(super) fn binary(b: &mut Builder, op: Binary, t: DType, [x, y]: [Value; 2], known: Option<i64>) -> Option<Value> {
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
            let r = match op {
                Binary::Pow => power(i, b, x, y),
                _ => quotient::divide(i, b, op, [x, y], t.bits(), known),
            };
            return Some(i.value(b, r, t));
        }
    };
    let r = i.op(b, gen_op, x, y);
    Some(if gen_op.compares() { Value::Mask(r) } else { i.value(b, r, t) })
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
