//! Scalar expressions of the graph as instructions on one element per lane.

use super::double;
use super::math;
use super::trig;
use super::values::{self, Kind, Value, kind};
use crate::graph::expr::{Binary, Expr, Node, Op, Scalar, Unary, Val};
use crate::mir::{Builder, Gen, Generic, Opnd, Part, Type};
use crate::tensor::DType;
use barewave_isa::{ModName, Mods, op};

/// Evaluates an expression. `input` gives the elements of operands, `acc` the producing kernel's value.
pub(super) fn eval(
    b: &mut Builder,
    expr: &Expr,
    input: &dyn Fn(u32) -> Value,
    acc: Option<Value>,
) -> Result<Value, String> {
    let mut done: Vec<Value> = Vec::with_capacity(expr.nodes().len());
    for node in expr.nodes() {
        let at = |v: Val| (done[v.index()], expr.type_of(v));
        let value = match node.op {
            Op::Acc => acc.ok_or("an expression needs a value that this kernel does not compute")?,
            Op::Input(i) => input(i),
            _ => operation(b, node, at)?,
        };
        done.push(value);
    }
    done.pop().ok_or_else(|| "an empty expression".into())
}

/// Computes an operation; `at` gives its operands and their types.
pub(super) fn operation(b: &mut Builder, node: &Node, at: impl Fn(Val) -> (Value, DType)) -> Result<Value, String> {
    match node.op {
        Op::Acc | Op::Input(_) => Err("an operand is no operation".into()),
        Op::Const(c) => Ok(constant(b, node.dtype, c)),
        Op::Unary(op, a) => unary(b, op, at(a)),
        Op::Binary(op, x, y) => binary(b, op, at(x), at(y).0),
        Op::Select(c, x, y) => match at(c).0 {
            Value::Mask(m) => Ok(values::select(b, m, at(x).0, at(y).0)),
            _ => Err("the condition of a selection is not a boolean".into()),
        },
        Op::Cast(a) => cast(b, at(a), node),
        Op::Bits(a) => bits(b, at(a), node.dtype),
    }
}

/// The bits of a value as another type of its size. Halves are held as f32, so theirs are narrowed and widened.
fn bits(b: &mut Builder, (x, from): (Value, DType), to: DType) -> Result<Value, String> {
    let half = |t: DType| kind(t) == Kind::Float && t.size() == 2;
    match x {
        Value::Mask(_) => Err(no("Bits", from)),
        Value::Pair(_) => Ok(x),
        _ if kind(to) == Kind::Bool => Err(no("Bits", from)),
        _ => {
            let mut r = x.reg(b);
            if half(from) {
                r = b.convert(Type::F32, values::stored(from), r);
            }
            if half(to) {
                r = b.convert(values::stored(to), Type::F32, r);
            } else if to.size() < 4 {
                r = wrap(b, r, to);
            }
            Ok(Value::Word(r.into()))
        }
    }
}

fn constant(b: &mut Builder, t: DType, c: Scalar) -> Value {
    match kind(t) {
        Kind::Float => Value::Word((c.as_f64() as f32).into()),
        Kind::Double => Value::Pair(pair(b, c.as_f64().to_bits() as i64)),
        Kind::Int { .. } => Value::Word((c.as_i64() as u32).into()),
        Kind::Long { .. } => Value::Pair(pair(b, c.as_i64())),
        Kind::Bool => {
            let m = b.mask();
            b.copy_into(m, Opnd::Imm(if c.as_i64() != 0 { u64::MAX } else { 0 }));
            Value::Mask(m)
        }
    }
}

fn no(op: impl std::fmt::Debug, t: DType) -> String {
    format!("{op:?} of {t} elements has no kernel")
}

fn unary(b: &mut Builder, op: Unary, (x, t): (Value, DType)) -> Result<Value, String> {
    match kind(t) {
        Kind::Float => float_unary(b, op, x.word()).ok_or_else(|| no(op, t)),
        Kind::Double => match x {
            Value::Pair(p) => double::unary(b, op, p).ok_or_else(|| no(op, t)),
            _ => Err(no(op, t)),
        },
        Kind::Int { signed } => {
            let x = x.word();
            let r = match op {
                Unary::Neg => {
                    let v = vector(b, x);
                    b.sub(0u32, v)
                }
                Unary::Not => b.op(Gen::Not.of(Type::B32), &[x]),
                Unary::Abs if signed => {
                    let v = vector(b, x);
                    let n = b.sub(0u32, v);
                    b.op(Gen::Max.of(Type::I32), &[v.into(), n.into()])
                }
                Unary::Abs => vector(b, x),
                Unary::Sign if signed => {
                    let v = vector(b, x);
                    let (one, minus) = (b.to_vector(1u32), b.to_vector(-1i32));
                    b.op(op::V_MED3_I32, &[v.into(), minus.into(), one.into()])
                }
                Unary::Sign => {
                    let v = vector(b, x);
                    b.op(Gen::Min.of(Type::U32), &[1u32.into(), v.into()])
                }
                Unary::Floor | Unary::Ceil | Unary::Round => vector(b, x),
                _ => return Err(no(op, t)),
            };
            Ok(Value::Word(wrap(b, r, t).into()))
        }
        Kind::Long { signed } => {
            let Value::Pair(p) = x else { return Err(no(op, t)) };
            let zero = pair(b, 0);
            match op {
                Unary::Neg => Ok(Value::Pair(sub64(b, zero, p))),
                Unary::Abs if signed => {
                    let n = sub64(b, zero, p);
                    let m = b.op(Gen::CmpGt.of(Type::I64), &[zero64(), p.into()]);
                    Ok(values::select(b, m, Value::Pair(n), x))
                }
                Unary::Abs | Unary::Floor | Unary::Ceil | Unary::Round => Ok(x),
                Unary::Not => {
                    let r = b.v(2);
                    for i in 0..2 {
                        b.emit(Gen::Not.of(Type::B32), &[r.dword(i).into()], &[p.dword(i).into()]);
                    }
                    Ok(Value::Pair(r))
                }
                Unary::Sign => {
                    let less = b.op(Gen::CmpGt.of(Type::I64), &[zero64(), p.into()]);
                    let zero_mask = b.op(Gen::CmpEq.of(Type::U64), &[zero64(), p.into()]);
                    let (one, minus) = (pair(b, 1), pair(b, -1));
                    let s = values::select(b, less, Value::Pair(minus), Value::Pair(one));
                    Ok(values::select(b, zero_mask, Value::Pair(zero), s))
                }
                _ => Err(no(op, t)),
            }
        }
        Kind::Bool => match (op, x) {
            (Unary::Not, Value::Mask(m)) => {
                let r = b.mask();
                b.emit(if m.len == 2 { op::S_NOT_B64 } else { op::S_NOT_B32 }, &[r.into()], &[m.into()]);
                Ok(Value::Mask(r))
            }
            _ => Err(no(op, t)),
        },
    }
}

/// The 64-bit zero as an operand.
fn zero64() -> Opnd {
    Opnd::Imm(0)
}

fn vector(b: &mut Builder, x: Opnd) -> Part {
    Value::Word(x).reg(b)
}

fn float_unary(b: &mut Builder, op: Unary, x: Opnd) -> Option<Value> {
    let one = |b: &mut Builder, o| b.op(o, &[x]);
    Some(Value::Word(Opnd::V(match op {
        Unary::Neg => math::neg(b, x),
        Unary::Abs => math::abs(b, x),
        Unary::Floor => one(b, Gen::Floor.of(Type::F32)),
        Unary::Ceil => one(b, Gen::Ceil.of(Type::F32)),
        Unary::Round => one(b, Gen::Round.of(Type::F32)),
        Unary::Sqrt => math::sqrt(b, x),
        Unary::Recip => math::div(b, 1.0f32.into(), x),
        Unary::Exp => math::exp(b, x),
        Unary::Log => math::log(b, x),
        Unary::Tanh => math::tanh(b, x),
        Unary::Sigmoid => math::sigmoid(b, x),
        Unary::Erf => math::erf(b, x),
        Unary::Sin => trig::sin_cos(b, false, x),
        Unary::Cos => trig::sin_cos(b, true, x),
        Unary::Tan => trig::tan(b, x),
        Unary::Sinh => math::sinh(b, x),
        Unary::Cosh => math::cosh(b, x),
        Unary::ExpMinusOne => math::exp_minus_one(b, x),
        Unary::LogOnePlus => math::log_one_plus(b, x),
        Unary::Sign => {
            let v = vector(b, x);
            let (one, minus) = (b.to_vector(1.0f32), b.to_vector(-1.0f32));
            let pos = b.op(Gen::CmpLt.of(Type::F32), &[0.0f32.into(), v.into()]);
            let neg = b.op(Gen::CmpGt.of(Type::F32), &[0.0f32.into(), v.into()]);
            let r = b.select(pos, one, v);
            b.select(neg, minus, r)
        }
        Unary::IsNan => {
            let v = vector(b, x);
            return Some(Value::Mask(b.op(Gen::CmpUnordered.of(Type::F32), &[v.into(), v.into()])));
        }
        Unary::IsInf => {
            let a = math::abs(b, x);
            return Some(Value::Mask(b.op(Gen::CmpEq.of(Type::F32), &[f32::INFINITY.into(), a.into()])));
        }
        _ => return None,
    })))
}

fn binary(b: &mut Builder, op: Binary, (x, t): (Value, DType), y: Value) -> Result<Value, String> {
    match kind(t) {
        Kind::Float => float_binary(b, op, x.word(), y.word()).ok_or_else(|| no(op, t)),
        Kind::Double => match (x, y) {
            (Value::Pair(p), Value::Pair(q)) => double::binary(b, op, p, q).ok_or_else(|| no(op, t)),
            _ => Err(no(op, t)),
        },
        Kind::Int { signed } => int_binary(b, op, signed, t, x.word(), y.word()).ok_or_else(|| no(op, t)),
        Kind::Long { signed } => match (x, y) {
            (Value::Pair(p), Value::Pair(q)) => long_binary(b, op, signed, p, q).ok_or_else(|| no(op, t)),
            _ => Err(no(op, t)),
        },
        Kind::Bool => match (x, y) {
            (Value::Mask(p), Value::Mask(q)) => mask_binary(b, op, p, q).ok_or_else(|| no(op, t)),
            _ => Err(no(op, t)),
        },
    }
}

fn float_binary(b: &mut Builder, op: Binary, x: Opnd, y: Opnd) -> Option<Value> {
    let cmp = |b: &mut Builder, o| {
        let v = vector(b, y);
        Value::Mask(b.op(o, &[x, v.into()]))
    };
    Some(Value::Word(Opnd::V(match op {
        Binary::Add => math::add(b, x, y),
        Binary::Sub => math::sub(b, x, y),
        Binary::Mul => math::mul(b, x, y),
        Binary::Div => math::div(b, x, y),
        Binary::Min => math::extremum(b, false, x, y),
        Binary::Max => math::extremum(b, true, x, y),
        Binary::Pow => math::pow(b, x, y),
        Binary::Eq => return Some(cmp(b, Gen::CmpEq.of(Type::F32))),
        Binary::Lt => return Some(cmp(b, Gen::CmpLt.of(Type::F32))),
        Binary::Le => return Some(cmp(b, Gen::CmpLe.of(Type::F32))),
        Binary::Rem => math::remainder(b, x, y),
        Binary::Mod => math::modulo(b, x, y),
        _ => return None,
    })))
}

fn int_binary(b: &mut Builder, op: Binary, signed: bool, t: DType, x: Opnd, y: Opnd) -> Option<Value> {
    let pick = |s, u| if signed { s } else { u };
    let cmp = |b: &mut Builder, o| {
        let v = vector(b, y);
        Some(Value::Mask(b.op(o, &[x, v.into()])))
    };
    let (vx, vy) = (vector(b, x), vector(b, y));
    let r = match op {
        Binary::Add => b.add(vx, y),
        Binary::Sub => b.sub(vx, vy),
        Binary::Mul => b.mul(vx, y),
        Binary::Min => b.op(pick(Gen::Min.of(Type::I32), Gen::Min.of(Type::U32)), &[x, vy.into()]),
        Binary::Max => b.op(pick(Gen::Max.of(Type::I32), Gen::Max.of(Type::U32)), &[x, vy.into()]),
        Binary::And => b.op(Gen::And.of(Type::B32), &[x, vy.into()]),
        Binary::Or => b.op(Gen::Or.of(Type::B32), &[x, vy.into()]),
        Binary::Xor => b.op(Gen::Xor.of(Type::B32), &[x, vy.into()]),
        Binary::Shl => b.shl(vx, y),
        Binary::Shr => b.shr(vx, y),
        Binary::Eq => return cmp(b, Gen::CmpEq.of(Type::U32)),
        Binary::Lt => return cmp(b, pick(Gen::CmpLt.of(Type::I32), Gen::CmpLt.of(Type::U32))),
        Binary::Le => return cmp(b, pick(Gen::CmpLe.of(Type::I32), Gen::CmpLe.of(Type::U32))),
        Binary::Div | Binary::Rem | Binary::Mod => divide(b, op, signed, vx, vy),
        Binary::Pow => return None,
    };
    Some(Value::Word(wrap(b, r, t).into()))
}

/// Integer division family; signs are taken off first and put back.
fn divide(b: &mut Builder, op: Binary, signed: bool, x: Part, y: Part) -> Part {
    if !signed {
        let (q, r) = math::udivrem(b, x, y);
        return if op == Binary::Div { q } else { r };
    }
    let sign = |b: &mut Builder, v: Part| b.op(op::V_ASHRREV_I32, &[31u32.into(), v.into()]);
    let flip = |b: &mut Builder, v: Part, s: Part| {
        let t = b.op(Gen::Xor.of(Type::B32), &[v.into(), s.into()]);
        b.sub(t, s)
    };
    let (sx, sy) = (sign(b, x), sign(b, y));
    let (ax, ay) = (flip(b, x, sx), flip(b, y, sy));
    let (q, r) = math::udivrem(b, ax, ay);
    if op == Binary::Div {
        let s = b.op(Gen::Xor.of(Type::B32), &[sx.into(), sy.into()]);
        return flip(b, q, s);
    }
    let r = flip(b, r, sx);
    if op == Binary::Rem {
        return r;
    }
    // The divisor's sign: add it where remainder and divisor differ in sign and the remainder is not 0.
    let s = b.op(Gen::Xor.of(Type::B32), &[r.into(), y.into()]);
    let differ = b.op(Gen::CmpGt.of(Type::I32), &[0u32.into(), s.into()]);
    let some = b.op(Gen::CmpNe.of(Type::U32), &[0u32.into(), r.into()]);
    let m = b.mask_and(differ, some);
    let t = b.add(r, y);
    b.select(m, t, r)
}

fn long_binary(b: &mut Builder, op: Binary, signed: bool, p: Part, q: Part) -> Option<Value> {
    let pick = |s, u| if signed { s } else { u };
    let both = |b: &mut Builder, o| {
        let r = b.v(2);
        for i in 0..2 {
            b.emit(o, &[r.dword(i).into()], &[p.dword(i).into(), q.dword(i).into()]);
        }
        Some(Value::Pair(r))
    };
    let less = |b: &mut Builder| b.op(pick(Gen::CmpLt.of(Type::I64), Gen::CmpLt.of(Type::U64)), &[p.into(), q.into()]);
    match op {
        Binary::Add => Some(Value::Pair(add64(b, p, q))),
        Binary::Sub => Some(Value::Pair(sub64(b, p, q))),
        Binary::Mul => {
            let r = b.v(2);
            let lo = b.mul(p.dword(0), q.dword(0));
            let hi = b.op(Gen::MulHi.of(Type::U32), &[p.dword(0).into(), q.dword(0).into()]);
            let x = b.mul(p.dword(0), q.dword(1));
            let y = b.mul(p.dword(1), q.dword(0));
            let hi = b.add(hi, x);
            b.copy_into(r.dword(0), lo);
            let hi = b.add(hi, y);
            b.copy_into(r.dword(1), hi);
            Some(Value::Pair(r))
        }
        Binary::And => both(b, Gen::And.of(Type::B32)),
        Binary::Or => both(b, Gen::Or.of(Type::B32)),
        Binary::Xor => both(b, Gen::Xor.of(Type::B32)),
        Binary::Min => {
            let m = less(b);
            Some(values::select(b, m, Value::Pair(p), Value::Pair(q)))
        }
        Binary::Max => {
            let m = less(b);
            Some(values::select(b, m, Value::Pair(q), Value::Pair(p)))
        }
        Binary::Eq => Some(Value::Mask(b.op(Gen::CmpEq.of(Type::U64), &[p.into(), q.into()]))),
        Binary::Lt => Some(Value::Mask(less(b))),
        Binary::Le => {
            Some(Value::Mask(b.op(pick(Gen::CmpLe.of(Type::I64), Gen::CmpLe.of(Type::U64)), &[p.into(), q.into()])))
        }
        _ => None,
    }
}

fn mask_binary(b: &mut Builder, op: Binary, p: Part, q: Part) -> Option<Value> {
    let wide = p.len == 2;
    let pick = |w, n| if wide { w } else { n };
    let r = b.mask();
    let o = match op {
        Binary::And | Binary::Mul | Binary::Min => pick(op::S_AND_B64, op::S_AND_B32),
        Binary::Or | Binary::Max => pick(op::S_OR_B64, op::S_OR_B32),
        Binary::Xor => pick(op::S_XOR_B64, op::S_XOR_B32),
        Binary::Eq => pick(op::S_XNOR_B64, op::S_XNOR_B32),
        _ => return None,
    };
    b.emit(o, &[r.into()], &[p.into(), q.into()]);
    Some(Value::Mask(r))
}

fn pair(b: &mut Builder, x: i64) -> Part {
    let p = b.v(2);
    b.copy_into(p.dword(0), x as u32);
    b.copy_into(p.dword(1), (x >> 32) as u32);
    p
}

fn add64(b: &mut Builder, p: Part, q: Part) -> Part {
    carry_chain(b, op::V_ADD_CO_U32, op::V_ADDC_CO_U32, p, q)
}

fn sub64(b: &mut Builder, p: Part, q: Part) -> Part {
    carry_chain(b, op::V_SUB_CO_U32, op::V_SUBB_CO_U32, p, q)
}

fn carry_chain(b: &mut Builder, low: barewave_isa::Op, high: barewave_isa::Op, p: Part, q: Part) -> Part {
    let (r, carry, out) = (b.v(2), b.mask(), b.mask());
    b.emit(low, &[r.dword(0).into(), carry.into()], &[p.dword(0).into(), q.dword(0).into()]);
    b.emit(high, &[r.dword(1).into(), out.into()], &[p.dword(1).into(), q.dword(1).into(), carry.into()]);
    r
}

/// Wraps a 32-bit result to a narrower type.
fn wrap(b: &mut Builder, r: Part, t: DType) -> Part {
    match t {
        DType::I8 | DType::I16 => b.op(op::V_BFE_I32, &[r.into(), 0u32.into(), (t.size() as u32 * 8).into()]),
        DType::U8 => b.and(r, 0xffu32),
        DType::U16 => b.and(r, 0xffffu32),
        _ => r,
    }
}

fn cast(b: &mut Builder, (x, from): (Value, DType), node: &Node) -> Result<Value, String> {
    let to = node.dtype;
    Ok(match (kind(from), kind(to)) {
        (Kind::Float, Kind::Float) if matches!(to, DType::F16 | DType::BF16) => {
            let h = b.convert(Type::F32, values::stored(to), x.word());
            Value::Word(b.convert(values::stored(to), Type::F32, h).into())
        }
        (Kind::Float, Kind::Float) => x,
        (Kind::Float, Kind::Int { signed }) => {
            let x = x.word();
            let r = b.op(
                if signed { Generic::convert(Type::F32, Type::I32) } else { Generic::convert(Type::F32, Type::U32) },
                &[x],
            );
            Value::Word(saturate(b, r, to).into())
        }
        (Kind::Float, Kind::Long { .. }) => Value::Pair(float_to_long(b, x.word())),
        (Kind::Float, Kind::Bool) => {
            let v = x.reg(b);
            Value::Mask(b.op(Gen::CmpNe.of(Type::F32), &[0.0f32.into(), v.into()]))
        }
        (Kind::Int { signed }, Kind::Float) => {
            let r = b.op(
                if signed { Generic::convert(Type::I32, Type::F32) } else { Generic::convert(Type::U32, Type::F32) },
                &[x.word()],
            );
            Value::Word(r.into())
        }
        (Kind::Int { .. }, Kind::Int { .. }) => {
            let v = x.reg(b);
            Value::Word(wrap(b, v, to).into())
        }
        (Kind::Int { signed }, Kind::Long { .. }) => {
            let (r, v) = (b.v(2), x.reg(b));
            b.copy_into(r.dword(0), v);
            if signed {
                b.emit(op::V_ASHRREV_I32, &[r.dword(1).into()], &[31u32.into(), v.into()]);
            } else {
                b.copy_into(r.dword(1), 0u32);
            }
            Value::Pair(r)
        }
        (Kind::Int { .. }, Kind::Bool) => {
            let v = x.reg(b);
            Value::Mask(b.op(Gen::CmpNe.of(Type::U32), &[0u32.into(), v.into()]))
        }
        (Kind::Long { signed }, Kind::Float) => {
            let Value::Pair(p) = x else { return Err(no("Cast", from)) };
            // Through doubles: high word scaled by 2^32 plus low word.
            let hi = b.op(
                if signed { Generic::convert(Type::I32, Type::F64) } else { Generic::convert(Type::U32, Type::F64) },
                &[p.dword(1).into()],
            );
            let hi = b.op(Gen::Ldexp.of(Type::F64), &[hi.into(), 32u32.into()]);
            let lo = b.op(Generic::convert(Type::U32, Type::F64), &[p.dword(0).into()]);
            let sum = b.op(Gen::Add.of(Type::F64), &[hi.into(), lo.into()]);
            Value::Word(b.op(Generic::convert(Type::F64, Type::F32), &[sum.into()]).into())
        }
        (Kind::Long { .. }, Kind::Int { .. }) => {
            let v = x.reg(b);
            Value::Word(wrap(b, v, to).into())
        }
        (Kind::Long { .. }, Kind::Long { .. }) => x,
        (Kind::Long { .. }, Kind::Bool) => {
            let Value::Pair(p) = x else { return Err(no("Cast", from)) };
            Value::Mask(b.op(Gen::CmpNe.of(Type::U64), &[zero64(), p.into()]))
        }
        (Kind::Double, Kind::Double) | (Kind::Bool, Kind::Bool) => x,
        (Kind::Double, Kind::Bool) => {
            let Value::Pair(p) = x else { return Err(no("Cast", from)) };
            Value::Mask(b.op(Gen::CmpNe.of(Type::F64), &[zero64(), p.into()]))
        }
        // Through the type in memory, so that a narrow float is rounded once.
        (Kind::Double, Kind::Float) => {
            let Value::Pair(p) = x else { return Err(no("Cast", from)) };
            let narrow = b.convert(Type::F64, values::stored(to), p);
            let wide = if to == DType::F32 { narrow } else { b.convert(values::stored(to), Type::F32, narrow) };
            Value::Word(wide.into())
        }
        (Kind::Double, Kind::Int { .. }) => {
            let Value::Pair(p) = x else { return Err(no("Cast", from)) };
            let r = b.convert(Type::F64, values::computed(to), p);
            Value::Word(saturate(b, r, to).into())
        }
        (Kind::Double, Kind::Long { .. }) => {
            let Value::Pair(p) = x else { return Err(no("Cast", from)) };
            Value::Pair(b.convert(Type::F64, values::computed(to), p))
        }
        (Kind::Float | Kind::Int { .. }, Kind::Double) => {
            let v = x.reg(b);
            Value::Pair(b.convert(values::computed(from), Type::F64, v))
        }
        (Kind::Long { .. }, Kind::Double) => {
            let Value::Pair(p) = x else { return Err(no("Cast", from)) };
            Value::Pair(b.convert(values::computed(from), Type::F64, p))
        }
        (Kind::Bool, to) => {
            let Value::Mask(m) = x else { return Err(no("Cast", from)) };
            if to == Kind::Double {
                let (one, none) = (pair(b, 1f64.to_bits() as i64), pair(b, 0));
                return Ok(values::select(b, m, Value::Pair(one), Value::Pair(none)));
            }
            let one: Opnd = if to == Kind::Float { 1.0f32.into() } else { 1u32.into() };
            let one = b.to_vector(one);
            let r = b.select(m, one, 0u32);
            match to {
                Kind::Long { .. } => {
                    let p = b.v(2);
                    b.copy_into(p.dword(0), r);
                    b.copy_into(p.dword(1), 0u32);
                    Value::Pair(p)
                }
                _ => Value::Word(r.into()),
            }
        }
    })
}

/// The conversion instructions saturate to 32 bits; narrower types saturate here.
fn saturate(b: &mut Builder, r: Part, t: DType) -> Part {
    let (lo, hi) = match t {
        DType::I8 => (-128, 127),
        DType::I16 => (-32768, 32767),
        DType::U8 => (0, 255),
        DType::U16 => (0, 65535),
        _ => return r,
    };
    let (lo, hi) = (b.to_vector(lo), b.to_vector(hi));
    b.op(op::V_MED3_I32, &[r.into(), lo.into(), hi.into()])
}

/// Truncates to a 64-bit integer: `hi = floor(x / 2^32)`, `lo = x - hi 2^32`, both exact in double precision.
fn float_to_long(b: &mut Builder, x: Opnd) -> Part {
    let t = b.op(Gen::Trunc.of(Type::F32), &[x]);
    let d = b.op(Generic::convert(Type::F32, Type::F64), &[t.into()]);
    let h = b.op(Gen::Ldexp.of(Type::F64), &[d.into(), (-32i32).into()]);
    let h = b.op(Gen::Floor.of(Type::F64), &[h.into()]);
    let scaled = b.op(Gen::Ldexp.of(Type::F64), &[h.into(), 32u32.into()]);
    let minus = Mods::new().with(ModName::Neg, 2);
    let l = b.op_with(op::V_ADD_F64, &[d.into(), scaled.into()], minus);
    let r = b.v(2);
    b.emit(Generic::convert(Type::F64, Type::U32), &[r.dword(0).into()], &[l.into()]);
    b.emit(Generic::convert(Type::F64, Type::I32), &[r.dword(1).into()], &[h.into()]);
    r
}
