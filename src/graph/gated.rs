//! Products with packed weights of which one gates the other become one product.
//!
//! The gate of a gated layer is an elementwise expression of one product, and what it gates is another product of the same rows. Their
//! weights stand one behind the other in one constant ([`HostTensor::joined`], which copies nothing), and whoever sums a column
//! of one sums that of the other too, so that what gates is never in memory.

use super::expr::{Binary, Expr, Op};
use super::fused::{Access, FusedGraph, Packed, Role, Step, StepKind, Tensor, TensorId};
use super::join::{joined_weights, side, widened};
use super::prune::prune;
use crate::tensor::HostTensor;

/// Joins all that can be.
pub(crate) fn gate_products(graph: &mut FusedGraph) {
    let mut changed = false;
    for at in 0..graph.steps.len() {
        if let Some((step, weights)) = gated(graph, at) {
            let mut step = step;
            for (k, data) in (1..).zip(weights) {
                let like = graph.tensor(step.inputs[k].tensor);
                let (name, dtype, shape) = (like.name.clone(), data.dtype(), data.shape().to_vec());
                step.inputs[k].tensor = graph.add_tensor(Tensor { name, dtype, shape, role: Role::Constant(data) });
            }
            if graph.step_promises(&step).is_ok() {
                graph.steps[at] = step;
                changed = true;
            }
        }
    }
    if changed {
        prune(graph);
    }
}

/// Products of more rows may be computed with widened weights, each for itself.
const MOST: usize = 8;

/// A product of packed weights that nothing was done to.
fn plain(step: &Step) -> Option<&Packed> {
    match &step.kind {
        StepKind::Packed(p @ Packed { rows: None, gate: None, .. }) if step.output.view.dims[0] <= MOST => Some(p),
        _ => None,
    }
}

/// The step that product `at` becomes with the one that gates it, and its weights.
fn gated(graph: &FusedGraph, at: usize) -> Option<(Step, Vec<HostTensor>)> {
    let step = &graph.steps[at];
    let (kind, end) = (plain(step)?, step.kind.operands());
    // An operand of the end that one product of the same rows has written, which nobody else reads.
    let (number, first) = (end..step.inputs.len()).find_map(|i| {
        let access = &step.inputs[i];
        let first = only_writer(graph, access.tensor, at)?;
        let alike = plain(first) == Some(kind) && first.inputs.len() == end && first.inputs[0] == step.inputs[0];
        let dtype = |s: &Step, k: usize| graph.tensor(s.inputs[k].tensor).dtype;
        let types = || (1..end).all(|k| dtype(first, k) == dtype(step, k));
        (alike && types() && access.is_plain() && access.view == first.output.view).then_some((i, first))
    })?;
    let expr = multiplied(&step.expr, number as u32)?;
    let both = [first, step];
    if both.iter().any(|s| side(graph, s).is_none()) {
        return None;
    }
    let weights = (1..end).map(|k| joined_weights(graph, &both, k)).collect::<Option<Vec<_>>>()?;
    let columns = step.output.view.dims[1];
    let mut inputs = step.inputs.clone();
    for k in 1..end {
        inputs[k] = Access::new(inputs[k].tensor, widened(step, k, &[columns; 2], 1));
    }
    inputs.remove(number);
    let joined = Step {
        name: format!("{}+{}", first.name, step.name),
        kind: StepKind::Packed(Packed { gate: Some(first.expr.clone()), ..kind.clone() }),
        inputs,
        expr,
        output: step.output.clone(),
    };
    Some((joined, weights))
}

/// The step that writes a tensor of the arena, if it is one and only step `reader` reads it, once.
fn only_writer(graph: &FusedGraph, t: TensorId, reader: usize) -> Option<&Step> {
    let reads = |s: &Step| s.inputs.iter().filter(|a| a.tensor == t || a.indirect.iter().any(|i| i.index == t)).count();
    let alone = graph.steps.iter().enumerate().all(|(i, s)| reads(s) == usize::from(i == reader));
    let mut writers = graph.steps.iter().filter(|s| s.output.tensor == t);
    let writer = writers.next().filter(|_| writers.next().is_none() && alone)?;
    (graph.tensor(t).role == Role::Intermediate).then_some(writer)
}

/// An expression in which the kernel's own value is only multiplied with an operand, and that stands nowhere else, with the product in the
/// place of the kernel's own value and without the operand.
fn multiplied(e: &Expr, operand: u32) -> Option<Expr> {
    let nodes = e.nodes();
    let is = |v: super::expr::Val, op: Op| nodes[v.index()].op == op;
    let (acc, other) = (Op::Acc, Op::Input(operand));
    let product = nodes.iter().position(|n| match n.op {
        Op::Binary(Binary::Mul, a, b) => is(a, acc) && is(b, other) || is(a, other) && is(b, acc),
        _ => false,
    })?;
    let mut out = Expr::new();
    let mut map = vec![None; nodes.len()];
    for (i, node) in nodes.iter().enumerate() {
        let op = match node.op {
            _ if i == product => Op::Acc,
            Op::Acc => continue,
            Op::Input(n) if n == operand => continue,
            Op::Input(n) if n > operand => Op::Input(n - 1),
            op => {
                // What reads either of them besides has no place here.
                if super::expr::operands(op).any(|v| map[v.index()].is_none()) {
                    return None;
                }
                super::expr::rename(op, |v| map[v.index()].expect("just seen"))
            }
        };
        map[i] = Some(out.push(op, node.dtype));
    }
    (map.last().copied().flatten()? == out.result()).then_some(out)
}
