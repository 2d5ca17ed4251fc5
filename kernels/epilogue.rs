//! What a producing kernel does with each value it has computed: the step's expression, then the store.

use super::address::Offset;
use super::error::Res;
use super::values::{self, Value};
use super::{Arg, Cx, Writer, expr};

/// Operand numbers that the step's expression reads.
pub(super) fn operands(cx: &Cx) -> Vec<usize> {
    let nodes = cx.step.expr.nodes().iter();
    let mut list: Vec<usize> = nodes
        .filter_map(|n| match n.op {
            crate::graph::expr::Op::Input(i) => Some(i as usize),
            _ => None,
        })
        .collect();
    list.sort_unstable();
    list.dedup();
    list
}

/// Applies the expression to `acc` and stores it. `offset` gives the byte offset of the element in an access: an
/// operand of the expression or the output.
pub(super) fn finish(
    w: &mut Writer,
    cx: &Cx,
    acc: Value,
    mut offset: impl FnMut(&mut Writer, Arg) -> Res<Offset>,
) -> Res<()> {
    let mut loaded = vec![None; cx.step.inputs.len()];
    for i in operands(cx) {
        let buf = w.buffer(cx, Arg::Input(i))?;
        let at = offset(w, Arg::Input(i))?;
        loaded[i] = Some(values::load(&mut w.b, cx.dtype(Arg::Input(i)), buf, at));
    }
    let input = |i: u32| loaded[i as usize].expect("operands() names every input of the expression");
    let value = expr::eval(&mut w.b, &cx.step.expr, &input, Some(acc))?;
    let buf = w.buffer(cx, Arg::Output)?;
    let at = offset(w, Arg::Output)?;
    values::store(&mut w.b, cx.dtype(Arg::Output), buf, at, value);
    Ok(())
}
