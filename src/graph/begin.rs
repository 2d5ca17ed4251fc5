//! What is made of each element of a convolution's input becomes the convolution's beginning.
//!
//! Batch normalisation and activation before a convolution of one point (DenseNet's, of ever longer lists of channels) are an
//! elementwise step whose other operands are constants of a channel each. The convolution reads what the step read, and does
//! to each element what the step did while it loads it.

use super::attend::{renumbered, rewritten};
use super::expr::Op;
use super::forward::{redirect, redirect_access};
use super::fused::{Access, Before, Conv, FusedGraph, Role, Step, StepKind};
use super::prune;
use super::view::View;

/// The graph with such convolutions, of those that `takes` says yes to; `None` where there are none.
pub(crate) fn begin_convolutions(graph: &FusedGraph, takes: impl Fn(&FusedGraph, &Step) -> bool) -> Option<FusedGraph> {
    let mut out: Option<FusedGraph> = None;
    for at in 0..graph.steps.len() {
        let now = out.as_ref().unwrap_or(graph);
        if let Some((reader, step)) = begun(now, at).filter(|(_, s)| takes(now, s)) {
            out.get_or_insert_with(|| graph.clone()).steps[reader] = step;
        }
    }
    // Steps that nobody reads any more go.
    out.map(|mut graph| {
        prune::prune(&mut graph);
        graph
    })
}

/// The convolution that reads what step `at` gives, and what it is when it does that itself.
fn begun(graph: &FusedGraph, at: usize) -> Option<(usize, Step)> {
    let step = &graph.steps[at];
    let result = step.output.tensor;
    let whole = step.output.view.offset == 0 && step.output.view.is_dense();
    let filled = step.output.view.len() == graph.tensor(result).len();
    if step.kind != StepKind::Pointwise || !whole || !filled || graph.tensor(result).role != Role::Intermediate {
        return None;
    }
    let touches = |s: &Step| s.inputs.iter().chain([&s.output]).filter(|a| a.tensor == result).count();
    let mut users = graph.steps.iter().enumerate().filter(|(i, s)| *i != at && touches(s) > 0);
    let (reader, conv) = users.next()?;
    let StepKind::Conv(Conv { window, groups: 1, before: None, flip: 0, also }) = &conv.kind else { return None };
    if !also.is_empty()
        || users.next().is_some()
        || touches(conv) != 1
        || conv.inputs[0].tensor != result
        || !window.is_point()
    {
        return None;
    }
    // One operand that is computed, and constants of the channels.
    let constant = |a: &Access| matches!(graph.tensor(a.tensor).role, Role::Constant(_));
    let mut computed = step.inputs.iter().enumerate().filter(|(_, a)| !constant(a));
    let (data, source) = computed.next()?;
    if computed.next().is_some() || !step.inputs.iter().all(Access::is_plain) {
        return None;
    }
    let read = &conv.inputs[0].view;
    let mut inputs = conv.inputs[..2].to_vec();
    inputs[0] = redirect_access(&conv.inputs[0], source.tensor, &source.view)?;
    for (_, a) in step.inputs.iter().enumerate().filter(|(i, _)| *i != data) {
        inputs.push(Access::new(a.tensor, of_channels(&redirect(read, &a.view)?)?));
    }
    let operands = inputs.len() - 2;
    inputs.extend_from_slice(&conv.inputs[2..]);
    let operand = |i: u32| match i as usize {
        i if i == data => Some(Op::Acc),
        i if i < data => Some(Op::Input(i as u32 + 2)),
        i => Some(Op::Input(i as u32 + 1)),
    };
    let before = Before { expr: rewritten(&step.expr, step.expr.result(), operand)?, operands };
    let moved = |i: u32| Some(if i < 2 { i } else { i + operands as u32 });
    let begun = Step {
        name: format!("{}+{}", step.name, conv.name),
        kind: StepKind::Conv(Conv { before: Some(before), ..Conv::new(window.clone(), 1) }),
        inputs,
        expr: renumbered(&conv.expr, conv.expr.result(), moved)?,
        output: conv.output.clone(),
    };
    graph.step_promises(&begun).ok()?;
    Some((reader, begun))
}

/// The walk over the channels of a view that has one element for each.
fn of_channels(view: &View) -> Option<View> {
    let flat = (0..view.rank()).all(|d| d == 1 || view.dims[d] == 1 || view.strides[d] == 0);
    let line = view.strides[1] == 1 || view.dims[1] == 1;
    (flat && line).then(|| View { offset: view.offset, dims: vec![view.dims[1]], strides: vec![1] })
}
