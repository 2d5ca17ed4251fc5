//! Products with packed weights of which one gates the other become one product.
//!
//! The gate of a gated layer is an elementwise expression of one product, and what it gates is another product of the same rows. Their
//! weights stand one behind the other in one constant ([`HostTensor::joined`], which copies nothing), and whoever sums a column
//! of one sums that of the other too, so that what gates is never in memory.

use super::expr::{Binary, Expr, Node, Op, Val};
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
    // Whichever of the two stands first.
    let (gate, both, expr) = match multiplied(&step.expr, number as u32) {
        Some(expr) => (first.expr.clone(), [first, step], expr),
        None => {
            let (gate, expr) = factored(&step.expr, number as u32).filter(|_| is_bare(&first.expr))?;
            (gate, [step, first], expr)
        }
    };
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
        kind: StepKind::Packed(Packed { gate: Some(gate), ..kind.clone() }),
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
    let (out, map) = copied(nodes, |i, op| match op {
        _ if i == product => Some(Op::Acc),
        Op::Acc => None,
        Op::Input(n) if n == operand => None,
        Op::Input(n) if n > operand => Some(Op::Input(n - 1)),
        op => Some(op),
    })?;
    (map.last().copied().flatten()? == out.result()).then_some(out)
}

/// The other way round: what an operand, which stands nowhere else, is multiplied with, an expression of the kernel's own value alone; and the
/// whole expression with the product in the place of that value.
fn factored(e: &Expr, operand: u32) -> Option<(Expr, Expr)> {
    let nodes = e.nodes();
    let is = |v: Val| nodes[v.index()].op == Op::Input(operand);
    let (product, factor) = nodes.iter().enumerate().find_map(|(i, n)| match n.op {
        Op::Binary(Binary::Mul, a, b) if is(b) => Some((i, a)),
        Op::Binary(Binary::Mul, a, b) if is(a) => Some((i, b)),
        _ => None,
    })?;
    let mut own = vec![false; nodes.len()];
    for (i, node) in nodes[..product].iter().enumerate() {
        own[i] = node.op == Op::Acc || super::expr::operands(node.op).any(|v| own[v.index()]);
    }
    let is_literal = |op: Op| !matches!(op, Op::Input(_) | Op::Acc) && super::expr::operands(op).next().is_none();
    let (gate, _) = copied(&nodes[..=factor.index()], |i, op| (own[i] || is_literal(op)).then_some(op))?;
    let (rest, map) = copied(nodes, |i, op| match op {
        _ if i == product => Some(Op::Acc),
        _ if own[i] => None,
        Op::Input(n) if n == operand => None,
        Op::Input(n) if n > operand => Some(Op::Input(n - 1)),
        op => Some(op),
    })?;
    (own[factor.index()] && map.last().copied().flatten()? == rest.result()).then_some((gate, rest))
}

/// Nothing but the kernel's own value.
fn is_bare(e: &Expr) -> bool {
    matches!(e.nodes(), [only] if only.op == Op::Acc)
}

/// An expression of what nodes become, and where each is; nothing where one reads another that is left out.
fn copied(nodes: &[Node], becomes: impl Fn(usize, Op) -> Option<Op>) -> Option<(Expr, Vec<Option<Val>>)> {
    let mut out = Expr::new();
    let mut map: Vec<Option<Val>> = vec![None; nodes.len()];
    for (i, node) in nodes.iter().enumerate() {
        let Some(op) = becomes(i, node.op) else { continue };
        if super::expr::operands(op).any(|v| map[v.index()].is_none()) {
            return None;
        }
        let op = super::expr::rename(op, |v| map[v.index()].expect("just seen"));
        map[i] = Some(out.push(op, node.dtype));
    }
    Some((out, map))
}
