//! Products of more rows than a kernel multiplies with packed weights: the weights are widened before.

use super::attend::renumbered;
use super::expr::Expr;
use super::fused::{Access, FusedGraph, Packed, Role, Step, StepKind, Tensor};
use super::ops::widening;
use super::view::View;
use crate::tensor::DType;

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
    let end = p.weights_end();
    let dtype = graph.tensor(step.inputs[0].tensor).dtype;
    let (first, wide) = widened_weights(graph, p, &step.name, &step.inputs[1..end], dtype)?;
    let mut inputs = vec![step.inputs[0].clone(), wide];
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

/// A step that widens packed weights, and how a product reads these.
pub(super) fn widened_weights(
    graph: &mut FusedGraph,
    p: &Packed,
    name: &str,
    weights: &[Access],
    dtype: DType,
) -> Option<(Step, Access)> {
    let n = weights.first()?.view.dims[0];
    let types: Vec<_> = weights.iter().map(|a| graph.tensor(a.tensor).dtype).collect();
    let program = widening(p, n, &types, dtype)?;
    let (view, role) = (View::dense(&[n, p.depth]), Role::Intermediate);
    let tensor = Tensor { name: format!("{name} weights"), dtype, shape: view.dims.clone(), role };
    let wide = graph.add_tensor(tensor);
    let step = Step {
        name: name.to_string(),
        kind: StepKind::Program(program),
        inputs: weights.to_vec(),
        expr: Expr::acc(dtype),
        output: Access::new(wide, view.clone()),
    };
    Some((step, Access::new(wide, view.permuted(&[1, 0]))))
}
