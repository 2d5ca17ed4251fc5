//! Products of more rows than a kernel multiplies with packed weights: the weights are widened before.

use super::attend::renumbered;
use super::expr::Expr;
use super::fused::{Access, FusedGraph, Role, Step, StepKind, Tensor};
use super::ops::widening;
use super::view::View;

/// The graph with products of widened weights in the place of those that `which` names; `None` where there are none.
pub(crate) fn unpack_weights(graph: &FusedGraph, which: impl Fn(&FusedGraph, &Step) -> bool) -> Option<FusedGraph> {
    if !graph.steps.iter().any(|s| matches!(s.kind, StepKind::Packed(_)) && which(graph, s)) {
        return None;
    }
    let mut out = graph.clone();
    out.steps.clear();
    for step in &graph.steps {
        match which(graph, step).then(|| unpacked(&mut out, step)).flatten() {
            Some(two) => out.steps.extend(two),
            None => out.steps.push(step.clone()),
        }
    }
    Some(out)
}

/// A product as one that widens its weights, and one that multiplies with them.
fn unpacked(graph: &mut FusedGraph, step: &Step) -> Option<[Step; 2]> {
    let StepKind::Packed(p) = &step.kind else { return None };
    if p.rows.is_some() || p.gate.is_some() {
        return None;
    }
    let (end, n) = (p.weights_end(), step.output.view.dims[1]);
    let dtype = graph.tensor(step.inputs[0].tensor).dtype;
    let types: Vec<_> = step.inputs[1..end].iter().map(|a| graph.tensor(a.tensor).dtype).collect();
    let program = widening(p, n, &types, dtype)?;
    let (name, shape) = (format!("{} weights", step.name), vec![n, p.depth]);
    let wide = graph.add_tensor(Tensor { name, dtype, shape: shape.clone(), role: Role::Intermediate });
    let mut expr = Expr::new();
    let acc = expr.push_acc(dtype);
    let first = Step {
        name: step.name.clone(),
        kind: StepKind::Program(program),
        inputs: step.inputs[1..end].to_vec(),
        expr: expr.finish(acc),
        output: Access::new(wide, View::dense(&shape)),
    };
    let mut inputs = vec![step.inputs[0].clone(), Access::new(wide, View::dense(&shape).permuted(&[1, 0]))];
    inputs.extend_from_slice(&step.inputs[end..]);
    let number = |i: u32| i.checked_sub(end as u32).map(|i| i + 2);
    let second = Step {
        name: step.name.clone(),
        kind: StepKind::MatMul,
        inputs,
        expr: renumbered(&step.expr, step.expr.result(), number)?,
        output: step.output.clone(),
    };
    Some([first, second])
}
