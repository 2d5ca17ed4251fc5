//! What a producing kernel does with each value it has computed: the step's expression, then the store.

use super::address::Offset;
use super::error::Res;
use super::values::{self, Kind, Value};
use super::{Arg, Cx, Writer, expr};
use crate::graph::PAIRED;
use crate::graph::expr::{Binary, Node, Op};
use crate::mir::{Builder, Code, Gen, Generic, MInst, Type, packs_f32};
use crate::tensor::DType;
use barewave_isa::{Target, op};

/// Operand numbers that the step's expression reads.
pub(super) fn operands(cx: &Cx) -> Vec<usize> {
    let nodes = cx.step.expr.nodes().iter();
    let mut list: Vec<usize> = nodes
        .filter_map(|n| match n.op {
            Op::Input(i) => Some(i as usize),
            _ => None,
        })
        .collect();
    list.sort_unstable();
    list.dedup();
    list
}

/// An access may not go beyond the results: what is written, and what is read from the tensor that is written, where another
/// workitem may be writing just then. Other operands are read there, and what comes of it is not stored.
pub(super) fn has_ends(cx: &Cx, arg: Arg) -> bool {
    match arg {
        Arg::Input(i) => cx.step.inputs[i].tensor == cx.step.output.tensor,
        _ => arg == Arg::Output,
    }
}

/// Clocks of a SIMD for the expression of a wave's values, of which each lane has one: an instruction for each sum and product. Other
/// expressions are written down, and their instructions counted.
pub(super) fn clocks(cx: &Cx) -> f64 {
    let issue = cx.target.op(op::V_MOV_B32).map_or(1.0, |i| f64::from(i.busy.max(1)));
    let simple = |n: &Node| !matches!(n.op, Op::Unary(..) | Op::Binary(Binary::Div | Binary::Pow | Binary::Mod, ..));
    if cx.step.expr.nodes().iter().all(simple) {
        return cx.step.expr.cost() as f64 * issue;
    }
    let mut b = Builder::new(cx.target, "", cx.target.info().wave_size);
    let mut value = |t: DType| match values::kind(t) {
        Kind::Bool => Value::Mask(b.mask()),
        Kind::Double | Kind::Long { .. } => Value::Pair(b.v(2)),
        _ => Value::Word(b.v(1).into()),
    };
    let acc = cx.step.expr.nodes().iter().find(|n| n.op == Op::Acc).map(|n| value(n.dtype));
    let inputs: Vec<Value> = (0..cx.step.inputs.len()).map(|i| value(cx.dtype(Arg::Input(i)))).collect();
    let paired = cx.step.expr.nodes().iter().find(|n| n.op == Op::Paired).map(|n| value(n.dtype));
    let input = |i: u32| paired.filter(|_| i == PAIRED).unwrap_or_else(|| inputs[i as usize]);
    match expr::eval(&mut b, &cx.step.expr, &input, acc) {
        Ok(_) => b.function().blocks.iter().flat_map(|block| &block.insts).map(|i| issue * of_one(cx.target, i)).sum(),
        // The kernel will say why.
        Err(_) => 0.0,
    }
}

/// The share of an instruction that one element has: half of what is packed with that of another element.
fn of_one(target: Target, i: &MInst) -> f64 {
    let packed = |g: Generic| g.ty == Type::F32 && matches!(g.op, Gen::Add | Gen::Sub | Gen::Mul | Gen::Fma);
    match i.code {
        Code::Gen(g) if packed(g) && packs_f32(target) => 0.5,
        _ => 1.0,
    }
}

/// Applies the expression to `acc` and stores it. `offset` gives the byte offset of the element in an access: an
/// operand of the expression or the output.
pub(super) fn finish(
    w: &mut Writer,
    cx: &Cx,
    acc: Value,
    offset: impl FnMut(&mut Writer, Arg) -> Res<Offset>,
) -> Res<()> {
    finish_pair(w, cx, (acc, None), offset)
}

/// The same of a pair of values, of which the second is [`Op::Paired`].
pub(super) fn finish_pair(
    w: &mut Writer,
    cx: &Cx,
    (acc, paired): (Value, Option<Value>),
    mut offset: impl FnMut(&mut Writer, Arg) -> Res<Offset>,
) -> Res<()> {
    let mut loaded = vec![None; cx.step.inputs.len()];
    for i in operands(cx) {
        let buf = w.buffer(cx, Arg::Input(i))?;
        let at = offset(w, Arg::Input(i))?;
        loaded[i] = Some(values::load(&mut w.b, cx.dtype(Arg::Input(i)), buf, at));
    }
    let of = |i: u32| loaded[i as usize].expect("operands() names every input of the expression");
    let input = |i: u32| paired.filter(|_| i == PAIRED).unwrap_or_else(|| of(i));
    let value = expr::eval(&mut w.b, &cx.step.expr, &input, Some(acc))?;
    let buf = w.buffer(cx, Arg::Output)?;
    let at = offset(w, Arg::Output)?;
    values::store(&mut w.b, cx.dtype(Arg::Output), buf, at, value);
    Ok(())
}
