//! Products of floats of 8 bits are computed of these, not of what they are widened to.
//!
//! Exporters put a cast or a DequantizeLinear between values of 8 bits and a product. Where a target multiplies such values as they
//! are, the product reads what the step in front of it reads, and scales go behind the sum: one of a tensor, of each row of the left
//! factor or of each column of the right one is the same for all products of a sum. (Sums then are rounded before they are scaled.)

use super::compose::{MAX_COST, MAX_INPUTS};
use super::expr::{Binary, Expr, Op, Scalar, Val};
use super::forward::{redirect, redirect_access};
use super::fused::{Access, FusedGraph, Role, Step, StepKind, TensorId};
use super::prune;
use super::view::View;
use crate::tensor::DType;

/// The graph with such products, of those that `takes` says yes to; `None` where there are none.
pub(crate) fn narrow_factors(graph: &FusedGraph, takes: impl Fn(&FusedGraph, &Step) -> bool) -> Option<FusedGraph> {
    let mut out: Option<FusedGraph> = None;
    for (at, step) in graph.steps.iter().enumerate() {
        if step.kind == StepKind::MatMul
            && let Some(narrow) = narrowed(graph, step).filter(|s| takes(graph, s))
        {
            out.get_or_insert_with(|| graph.clone()).steps[at] = narrow;
        }
    }
    // Steps that nobody reads any more go.
    out.map(|mut graph| {
        prune::prune(&mut graph);
        graph
    })
}

/// What a factor is multiplied by when it is widened.
enum Scale {
    One,
    Number(f64),
    /// An operand, as the result walks it.
    Operand(Access),
}

/// The product of the narrow values, and the scaling of its sums.
fn narrowed(graph: &FusedGraph, product: &Step) -> Option<Step> {
    let [(a, of_a), (b, of_b)] = [factor(graph, product, 0)?, factor(graph, product, 1)?];
    let mut inputs = vec![a, b];
    let mut expr = Expr::new();
    let mut sum = expr.push_acc(DType::F32);
    for scale in [of_a, of_b] {
        let by = match scale {
            Scale::One => continue,
            Scale::Number(x) => expr.constant(DType::F32, x),
            Scale::Operand(access) => {
                let x = expr.input(inputs.len(), graph.tensor(access.tensor).dtype);
                inputs.push(access);
                expr.cast(x, DType::F32)
            }
        };
        sum = expr.binary(Binary::Mul, sum, by);
    }
    let before = product.expr.nodes().iter().find(|n| n.op == Op::Acc).map(|n| n.dtype)?;
    if before == DType::F64 {
        return None;
    }
    let sum = expr.cast(sum, before);
    let further = inputs.len() - 2;
    inputs.extend_from_slice(&product.inputs[2..]);
    let result = expr.append(&product.expr, Some(sum), |e, i, t| e.input(i as usize + further, t));
    let step = Step {
        name: product.name.clone(),
        kind: StepKind::MatMul,
        inputs,
        expr: expr.finish(result),
        output: product.output.clone(),
    };
    let fits = step.inputs.len() <= MAX_INPUTS && step.expr.cost() <= MAX_COST && graph.step_promises(&step).is_ok();
    fits.then_some(step)
}

/// Factor `i` of a product as values of 8 bits, and their scale.
fn factor(graph: &FusedGraph, product: &Step, i: usize) -> Option<(Access, Scale)> {
    let read = &product.inputs[i];
    let step = writer_of(graph, read.tensor)?;
    let (narrow, by) = widened(&step.expr)?;
    let source = step.inputs.get(narrow as usize)?;
    if !graph.tensor(source.tensor).dtype.is_small_float() || !source.is_plain() {
        return None;
    }
    let access = redirect_access(read, source.tensor, &source.view)?;
    let scale = match by {
        None => Scale::One,
        Some(Op::Const(Scalar::Float(x))) if x.is_finite() => Scale::Number(x),
        Some(Op::Input(n)) => {
            let scale = step.inputs.get(n as usize)?;
            if !scale.is_plain() || !graph.tensor(scale.tensor).dtype.is_float() {
                return None;
            }
            let view = redirect(&read.view, &scale.view)?;
            Scale::Operand(Access::new(scale.tensor, beside_result(view, i, &product.output.view.dims)?))
        }
        _ => return None,
    };
    Some((access, scale))
}

/// The elementwise step that computes a tensor as a whole, densely, or that computed a constant.
pub(super) fn writer_of(graph: &FusedGraph, t: TensorId) -> Option<&Step> {
    let mut writers = graph.steps.iter().chain(&graph.widened).filter(|s| s.output.tensor == t);
    let (step, None) = (writers.next()?, writers.next()) else { return None };
    let wide = graph.tensor(t);
    let whole = step.output.view.offset == 0 && step.output.view.is_dense() && step.output.view.len() == wide.len();
    let own = matches!(wide.role, Role::Intermediate | Role::Constant(_));
    (step.kind == StepKind::Pointwise && whole && own).then_some(step)
}

/// What an expression widens, and what it multiplies it by.
fn widened(expr: &Expr) -> Option<(u32, Option<Op>)> {
    let nodes = expr.nodes();
    let op = |v: Val| nodes[v.index()].op;
    let holds = |v: Val| matches!(nodes[v.index()].dtype, DType::F32 | DType::F16 | DType::BF16);
    // The number of an operand behind conversions, and less a zero point of 0.
    let read = |mut v: Val| loop {
        match op(v) {
            Op::Cast(x) if holds(v) => v = x,
            Op::Binary(Binary::Sub, x, zero) if op(zero) == Op::Const(Scalar::Float(0.0)) => v = x,
            Op::Input(i) => return Some(i),
            _ => return None,
        }
    };
    let scale = |mut v: Val| {
        while let Op::Cast(x) = op(v)
            && nodes[v.index()].dtype == DType::F32
        {
            v = x;
        }
        op(v)
    };
    match op(expr.result()) {
        Op::Binary(Binary::Mul, x, by) => Some((read(x)?, Some(scale(by)))),
        _ => Some((read(expr.result())?, None)),
    }
}

/// The walk over a factor's scales as one over the result, which has another last or last but one dimension in the place of the depth.
fn beside_result(mut view: View, i: usize, result: &[usize]) -> Option<View> {
    let r = view.rank();
    let depth = if i == 0 { r - 1 } else { r - 2 };
    if view.strides[depth] != 0 && view.dims[depth] != 1 {
        return None;
    }
    view.dims[depth] = *result.get(depth)?;
    view.strides[depth] = 0;
    Some(view)
}
