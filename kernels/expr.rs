//! Scalar expressions of the graph as instructions on one element per lane.

use super::bounds::Bounds;
use super::elementary;
use super::error::{Reason, Res};
use super::float::Float;
use super::halves;
use super::integer::{self, pair, wrap};
use super::math;
use super::small;
use super::values::{self, Kind, Value, kind};
use crate::graph::PAIRED;
use crate::graph::expr::{Binary, Expr, Node, Op, Scalar, Unary, Val, operands};
use crate::mir::{Builder, Gen, Generic, Opnd, Part, Type};
use crate::tensor::DType;
use barewave_isa::op;
use std::ops::RangeInclusive;

/// Evaluates an expression. `input` gives the elements of operands, `acc` the producing kernel's value.
pub(super) fn eval(b: &mut Builder, expr: &Expr, input: &dyn Fn(u32) -> Value, acc: Option<Value>) -> Res<Value> {
    eval_within(b, expr, input, acc, Bounds::ANY)
}

/// [`eval`] of what is stored as an element of the expression's type, and nothing else: storing rounds a float of 16 bits or less.
/// `shared` tells operands that are the same in other evaluations of a workitem.
pub(super) fn eval_to_store(
    b: &mut Builder,
    expr: &Expr,
    input: &dyn Fn(u32) -> Value,
    acc: Option<Value>,
    shared: &dyn Fn(u32) -> bool,
) -> Res<Value> {
    eval_nodes(b, expr, input, acc, Bounds::ANY, Some(shared), false)
}

/// [`eval`] of a sum of many products: one more rounding, of what it is multiplied by before something is added, is left out.
pub(super) fn eval_sum(b: &mut Builder, expr: &Expr, input: &dyn Fn(u32) -> Value, sum: Value) -> Res<Value> {
    eval_nodes(b, expr, input, Some(sum), Bounds::ANY, None, true)
}

/// [`eval`] where something is known of the kernel's value.
pub(super) fn eval_within(
    b: &mut Builder,
    expr: &Expr,
    input: &dyn Fn(u32) -> Value,
    acc: Option<Value>,
    within: Bounds,
) -> Res<Value> {
    eval_nodes(b, expr, input, acc, within, None, false)
}

fn eval_nodes(
    b: &mut Builder,
    expr: &Expr,
    input: &dyn Fn(u32) -> Value,
    acc: Option<Value>,
    within: Bounds,
    to_store: Option<&dyn Fn(u32) -> bool>,
    is_sum: bool,
) -> Res<Value> {
    let mut done: Vec<Value> = Vec::with_capacity(expr.nodes().len());
    let bounds = Bounds::of_nodes(expr, within);
    let mut uses = vec![0; expr.nodes().len()];
    expr.nodes().iter().flat_map(|node| operands(node.op)).for_each(|v| uses[v.index()] += 1);
    // The factors of what is only added, where the product's rounding does not matter: it is little beside that to 16 bits, and one of many
    // beside those of a sum.
    let of_sum =
        |v: Val| is_sum && expr.type_of(v) == DType::F32 && matches!(expr.nodes()[v.index()].op, Op::Acc | Op::Paired);
    let product = |v: Val| match expr.nodes()[v.index()].op {
        Op::Binary(Binary::Mul, x, y) if uses[v.index()] == 1 => {
            (expr.type_of(v).is_half() || of_sum(x) || of_sum(y)).then_some((x, y))
        }
        _ => None,
    };
    for (i, node) in expr.nodes().iter().enumerate() {
        let at = |v: Val| (done[v.index()], expr.type_of(v));
        let is_stored = to_store.is_some() && i + 1 == expr.nodes().len();
        let is_shared = |v: Val| match expr.nodes()[v.index()].op {
            Op::Input(i) => to_store.is_some_and(|shared| shared(i)),
            _ => false,
        };
        let value = match node.op {
            Op::Acc => acc.ok_or(Reason::Malformed("an expression needs a value that this kernel does not compute"))?,
            Op::Paired => input(PAIRED),
            Op::Input(i) => input(i),
            // The root of a reciprocal is one instruction, which 16 bits are far from telling from both.
            Op::Unary(_, x) if inverse_root(expr, &bounds, node).is_some() => {
                let of = inverse_root(expr, &bounds, node).unwrap_or(x);
                Value::Word(b.op(Gen::Rsq.of(Type::F32), &[done[of.index()].word()]).into())
            }
            Op::Binary(op @ (Binary::Add | Binary::Sub), x, y) if product(x).or(product(y)).is_some() => {
                let word = |v: Val| done[v.index()].word();
                let sum = match (op, product(x), product(y)) {
                    (Binary::Add, Some((p, q)), _) => b.fma(word(p), word(q), word(y)),
                    (Binary::Add, None, Some((p, q))) => b.fma(word(p), word(q), word(x)),
                    (_, Some((p, q)), _) => math::product_less(b, Type::F32, [word(p), word(q), word(y)]),
                    (_, None, Some((p, q))) => math::less_product(b, Type::F32, [word(p), word(q), word(x)]),
                    _ => math::sub(b, word(x), word(y)),
                };
                Value::Word(sum.into())
            }
            Op::Unary(Unary::Sqrt, x) if kind(node.dtype) == Kind::Float && bounds[x.index()].are_normal() => {
                Value::Word(b.op(Gen::Sqrt.of(Type::F32), &[done[x.index()].word()]).into())
            }
            Op::Cast(x)
                if is_stored
                    && (small::is_small(node.dtype) || node.dtype.is_half())
                    && kind(expr.type_of(x)) == Kind::Float =>
            {
                done[x.index()]
            }
            // That is exact to a few parts of 2^24. Between two results of bf16 that lie side by side is no quotient of two of its numbers so close to the middle.
            Op::Binary(Binary::Div, x, y) if node.dtype == DType::BF16 && bounds[y.index()].are_invertible() => {
                let r = b.op(Gen::Rcp.of(Type::F32), &[done[y.index()].word()]);
                Value::Word(b.op(Gen::Mul.of(Type::F32), &[done[x.index()].word(), r.into()]).into())
            }
            Op::Binary(Binary::Div, x, y) if node.dtype.is_half() && is_shared(y) => {
                let [x, y] = [x, y].map(|v| done[v.index()].reg(b));
                Value::Word(halves::shared_quotient(b, node.dtype, x, y).into())
            }
            // What is rounded to a byte needs no more than to fall on the right side of the middles between whole numbers.
            Op::Binary(Binary::Div, x, y) if node.dtype == DType::F32 => {
                let exact = |of: &(f32, RangeInclusive<i32>)| halves::is_exact_at_middles(of.0, of.1.clone());
                let short = match of_byte(expr, &uses, i, y).filter(exact) {
                    Some((c, _)) => {
                        let x = done[x.index()].reg(b);
                        halves::quotient(b, x, c)
                    }
                    None => None,
                };
                match short {
                    Some(q) => Value::Word(q.into()),
                    None => operation(b, node, at)?,
                }
            }
            // Of a pair of registers its value is not seen any more.
            Op::Binary(op @ (Binary::Div | Binary::Rem | Binary::Mod), x, y)
                if matches!(kind(node.dtype), Kind::Long { .. }) =>
            {
                let known = match expr.nodes()[y.index()].op {
                    Op::Const(c) => Some(c.as_i64()),
                    _ => None,
                };
                let operands = [done[x.index()], done[y.index()]];
                integer::binary(b, op, node.dtype, operands, known).ok_or_else(|| no(op, node.dtype))?
            }
            Op::Bits(v) => match expr.nodes()[v.index()] {
                // Codes of what becomes a small float are what the conversion writes: they need not be found again.
                Node { op: Op::Cast(x), dtype } if small::is_small(dtype) && kind(expr.type_of(x)) == Kind::Float => {
                    let x = done[x.index()].reg(b);
                    let code = small::encode(b, dtype, x);
                    Value::Word(b.to_vector(code).into())
                }
                _ => operation(b, node, at)?,
            },
            _ => match limits(expr, node) {
                Some((x, low, high)) if kind(node.dtype) == Kind::Float => {
                    let x = done[x.index()].reg(b);
                    Value::Word(elementary::within(b, x, low, high).into())
                }
                _ => operation(b, node, at)?,
            },
        };
        done.push(value);
    }
    done.pop().ok_or(Reason::Malformed("an empty expression"))
}

/// The divisor of a quotient of f32, node `i`, that is only rounded to a whole number, to which a zero point of a byte may be added, and then becomes a byte; and the
/// numbers between whose neighbours that byte changes.
fn of_byte(expr: &Expr, uses: &[u32], i: usize, divisor: Val) -> Option<(f32, RangeInclusive<i32>)> {
    let nodes = expr.nodes();
    let Op::Const(c) = nodes[divisor.index()].op else { return None };
    let reader = |i: usize| {
        let reads = |node: &Node| operands(node.op).any(|v| v.index() == i);
        if uses[i] == 1 { nodes.iter().position(reads) } else { None }
    };
    let round = reader(i).filter(|_| nodes[i].dtype == DType::F32)?;
    let mut last = reader(round).filter(|_| matches!(nodes[round].op, Op::Unary(Unary::Round, _)))?;
    let mut zero = Some(0);
    if let Op::Binary(Binary::Add, x, y) = nodes[last].op {
        let other = if x.index() == round { y } else { x };
        zero = match nodes[other.index()].op {
            Op::Const(z) if z.as_f64().abs() <= 255.0 => Some(z.as_f64() as i32),
            Op::Cast(v) if matches!(expr.type_of(v), DType::I8 | DType::U8) => None,
            _ => return None,
        };
        last = reader(last)?;
    }
    let least = match (nodes[last].op, nodes[last].dtype) {
        (Op::Cast(_), DType::I8) => -128,
        (Op::Cast(_), DType::U8) => 0,
        _ => return None,
    };
    let numbers = match zero {
        Some(zero) => least - 1 - zero..=least + 256 - zero,
        None => -512..=512,
    };
    Some((c.as_f64() as f32, numbers))
}

/// The value and the numbers between which an operation keeps it, where it is the smaller of one and the larger of another one and the value, or the
/// other way round.
fn limits(expr: &Expr, node: &Node) -> Option<(Val, f32, f32)> {
    let parts = |node: &Node| {
        let Op::Binary(op @ (Binary::Min | Binary::Max), x, c) = node.op else { return None };
        match expr.nodes()[c.index()].op {
            Op::Const(c) => Some((op, x, c.as_f64() as f32)),
            _ => None,
        }
    };
    let (last, x, outer) = parts(node)?;
    let (first, x, inner) = parts(&expr.nodes()[x.index()])?;
    let (low, high) = if last == Binary::Min { (inner, outer) } else { (outer, inner) };
    (first != last && low <= high).then_some((x, low, high))
}

/// What a value of 16 bits is the root's reciprocal of, or the reciprocal's root, where nothing is denormal.
fn inverse_root(expr: &Expr, bounds: &[Bounds], node: &Node) -> Option<Val> {
    let (Op::Unary(last, x), true) = (node.op, node.dtype.is_half()) else { return None };
    match (last, expr.nodes()[x.index()].op) {
        (Unary::Sqrt, Op::Unary(Unary::Recip, of)) if bounds[of.index()].are_invertible() => {
            // Of a root the reciprocal is an instruction already.
            let is_root = matches!(expr.nodes()[of.index()].op, Op::Unary(Unary::Sqrt, _));
            (!is_root).then_some(of)
        }
        (Unary::Recip, Op::Unary(Unary::Sqrt, of)) if bounds[of.index()].are_normal() => Some(of),
        _ => None,
    }
}

/// Computes an operation; `at` gives its operands and their types.
pub(super) fn operation(b: &mut Builder, node: &Node, at: impl Fn(Val) -> (Value, DType)) -> Res<Value> {
    match node.op {
        Op::Acc | Op::Paired | Op::Input(_) => Err(Reason::Malformed("an operand is no operation")),
        Op::Const(c) => Ok(constant(b, node.dtype, c)),
        Op::Unary(op, a) => unary(b, op, at(a)),
        Op::Binary(op, x, y) => binary(b, op, at(x), at(y).0),
        Op::Select(c, x, y) => match at(c).0 {
            Value::Mask(m) => Ok(values::select(b, m, at(x).0, at(y).0)),
            _ => Err(Reason::Malformed("the condition of a selection is not a boolean")),
        },
        Op::Cast(a) => cast(b, at(a), node),
        Op::Bits(a) => bits(b, at(a), node.dtype),
    }
}

/// The bits of a value as another type of its size. Halves are held as f32, so theirs are narrowed and widened.
fn bits(b: &mut Builder, (x, from): (Value, DType), to: DType) -> Res<Value> {
    match x {
        Value::Mask(_) => Err(no("Bits", from)),
        Value::Pair(_) => Ok(x),
        _ if kind(to) == Kind::Bool => Err(no("Bits", from)),
        _ => {
            let mut r = x.reg(b);
            if from.is_half() {
                r = b.convert(Type::F32, values::stored(from), r);
            } else if small::is_small(from) {
                r = small::encode(b, from, r);
            }
            if to.is_half() {
                r = b.convert(values::stored(to), Type::F32, r);
            } else if small::is_small(to) {
                r = small::decode(b, to, r);
            } else if to.size() < 4 {
                r = wrap(b, r, to);
            }
            // Without its type.
            Ok(Value::Word(b.to_vector(r).into()))
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

fn no(op: impl std::fmt::Debug, dtype: DType) -> Reason {
    Reason::Operation { op: format!("{op:?}").replace('"', ""), dtype }
}

fn unary(b: &mut Builder, op: Unary, (x, t): (Value, DType)) -> Res<Value> {
    match kind(t) {
        Kind::Float | Kind::Double => {
            let x = x.whole(b);
            let short = if t.is_half() { halves::unary(b, op, t, x) } else { None };
            if let Some(r) = short {
                return Ok(Value::Word(r.into()));
            }
            elementary::unary(Float(values::computed(t)), b, op, x).ok_or_else(|| no(op, t))
        }
        Kind::Int { .. } | Kind::Long { .. } => integer::unary(b, op, t, x).ok_or_else(|| no(op, t)),
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

fn binary(b: &mut Builder, op: Binary, (x, t): (Value, DType), y: Value) -> Res<Value> {
    match kind(t) {
        Kind::Float | Kind::Double => {
            let short = if t.is_half() { elementary::binary_of_halves(b, op, t, x, y) } else { None };
            if let Some(r) = short {
                return Ok(Value::Word(r.into()));
            }
            elementary::binary(Float(values::computed(t)), b, op, x, y).ok_or_else(|| no(op, t))
        }
        Kind::Int { .. } | Kind::Long { .. } => {
            let known = match y {
                Value::Word(Opnd::Imm(c)) => Some(i64::from(c as i32)),
                _ => None,
            };
            integer::binary(b, op, t, [x, y], known).ok_or_else(|| no(op, t))
        }
        Kind::Bool => match (x, y) {
            (Value::Mask(p), Value::Mask(q)) => mask_binary(b, op, p, q).ok_or_else(|| no(op, t)),
            _ => Err(no(op, t)),
        },
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

fn cast(b: &mut Builder, (x, from): (Value, DType), node: &Node) -> Res<Value> {
    let to = node.dtype;
    Ok(match (kind(from), kind(to)) {
        (Kind::Float, Kind::Float) if small::is_small(to) => {
            let x = x.reg(b);
            let code = small::encode(b, to, x);
            Value::Word(small::decode(b, to, code).into())
        }
        (Kind::Float, Kind::Float) if matches!(to, DType::F16 | DType::BF16) => {
            let h = b.convert(Type::F32, values::stored(to), x.word());
            Value::Word(b.convert(values::stored(to), Type::F32, h).into())
        }
        (Kind::Float, Kind::Float) => x,
        (Kind::Float, Kind::Int { .. }) => {
            let r = b.op(Generic::convert(Type::F32, whole(to)), &[x.word()]);
            Value::Word(narrowed(b, r, to).into())
        }
        (Kind::Float, Kind::Long { .. }) => {
            let x = x.reg(b);
            Value::Pair(float_to_long(b, x, values::computed(to)))
        }
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
        (Kind::Long { .. }, Kind::Float) => {
            let Value::Pair(p) = x else { return Err(no("Cast", from)) };
            let wide = b.convert(values::computed(from), Type::F64, p);
            Value::Word(b.convert(Type::F64, Type::F32, wide).into())
        }
        (Kind::Long { .. }, Kind::Int { .. }) => {
            let Value::Pair(p) = x else { return Err(no("Cast", from)) };
            // The low word, which is no half of a 64-bit integer any more.
            let low = b.to_vector(p.dword(0));
            Value::Word(wrap(b, low, to).into())
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
            let memory = if small::is_small(to) { Type::F32 } else { values::stored(to) };
            let narrow = b.convert(Type::F64, memory, p);
            let wide = if small::is_small(to) {
                let code = small::encode(b, to, narrow);
                small::decode(b, to, code)
            } else if to == DType::F32 {
                narrow
            } else {
                b.convert(values::stored(to), Type::F32, narrow)
            };
            Value::Word(wide.into())
        }
        (Kind::Double, Kind::Int { .. }) => {
            let Value::Pair(p) = x else { return Err(no("Cast", from)) };
            let r = b.convert(Type::F64, whole(to), p);
            Value::Word(narrowed(b, r, to).into())
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

/// The type that floats are converted to on their way to an integer of up to 32 bits.
fn whole(to: DType) -> Type {
    if to.bits() < 32 { Type::I32 } else { values::computed(to) }
}

/// The conversion instructions saturate to 32 bits; narrower types saturate here, but for those of 4 and 2 bits, which keep the low bits.
fn narrowed(b: &mut Builder, r: Part, t: DType) -> Part {
    let (lo, hi) = match t {
        t if t.bits() < 8 => return wrap(b, r, t),
        DType::I8 => (-128, 127),
        DType::I16 => (-32768, 32767),
        DType::U8 => (0, 255),
        DType::U16 => (0, 65535),
        _ => return r,
    };
    let (lo, hi) = (b.to_vector(lo), b.to_vector(hi));
    b.op(op::V_MED3_I32, &[r.into(), lo.into(), hi.into()])
}

/// Truncates to a 64-bit integer: of the magnitude `high = trunc(a / 2^32)` and `low = a - high 2^32`, both exact in f32. What is beyond the signed
/// type saturates in the upper half; there the lower one is 0.
fn float_to_long(b: &mut Builder, x: Part, to: Type) -> Part {
    // Without its type: its sign is taken for an integer.
    let bits = b.to_vector(x);
    let a = math::abs(b, x.into());
    let high = math::mul(b, a, 2f32.powi(-32));
    let high = b.op(Gen::Trunc.of(Type::F32), &[high.into()]);
    let unit = b.to_vector(2f32.powi(32));
    let low = math::less_product(b, Type::F32, [high.into(), unit.into(), a.into()]);
    let low = b.op(Generic::convert(Type::F32, Type::U32), &[low.into()]);
    let sign = b.op(Gen::Shr.of(Type::I32), &[bits.into(), 31u32.into()]);
    let low = b.op(Gen::Xor.of(Type::B32), &[low.into(), sign.into()]);
    // The upper half has its sign before it is converted, and needs only what the lower one borrows.
    let (high, taken) = if to.is_signed() {
        let high = math::copysign(b, high, x.into());
        let none = b.to_vector(0u32);
        (b.op(Generic::convert(Type::F32, Type::I32), &[high.into()]), none)
    } else {
        let high = b.op(Generic::convert(Type::F32, Type::U32), &[high.into()]);
        (b.op(Gen::Xor.of(Type::B32), &[high.into(), sign.into()]), sign)
    };
    let [whole, minus] = [[low, high], [sign, taken]].map(|words| {
        let p = b.v(2);
        for (k, word) in words.into_iter().enumerate() {
            b.copy_into(p.dword(k as u8), word);
        }
        p
    });
    b.op(Gen::Sub.of(to), &[whole.into(), minus.into()])
}
