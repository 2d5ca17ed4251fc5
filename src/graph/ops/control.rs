//! Control flow that is decided before the model runs.

use crate::graph::error::{Reason, Res};
use crate::graph::lower::{Lowering, qualified};

/// If with a condition that is known: the nodes of its branch are lowered in its place, the other branch is not looked at.
pub(super) fn if_(cx: &mut Lowering<'_>) -> Res<()> {
    let condition = cx.input(0)?;
    let not_constant = || Reason::NotConstant { what: "the condition".into(), input: 0 };
    let taken = cx.constant(condition).ok_or_else(not_constant)?;
    let taken = taken.scalar_f64().ok_or_else(|| Reason::Shape("the condition is not one value".into()))? != 0.0;
    let name = if taken { "then_branch" } else { "else_branch" };
    let node = cx.node();
    let branch = node.branches.iter().find(|b| b.name == name);
    let branch = branch.ok_or_else(|| Reason::attribute(name, "is missing"))?;
    if branch.outputs.len() != node.node.outputs.len() {
        let (has, wants) = (branch.outputs.len(), node.node.outputs.len());
        return Err(Reason::attribute(name, format!("has {has} outputs, the node {wants}")));
    }
    cx.lower_nodes(&branch.nodes).map_err(|(i, reason)| {
        let inner = cx.resolved_node(i).node;
        Reason::Within { number: i, node: inner.name.clone(), op: qualified(inner), reason: Box::new(reason) }
    })?;
    for (i, &v) in branch.outputs.iter().enumerate() {
        if !cx.is_known(v) {
            return Err(Reason::Branch(name));
        }
        cx.pass(i, v);
    }
    Ok(())
}
