//! What is made of each element of a convolution's or a reduction's input becomes its beginning, and the normalisation of the rows of
//! products with packed weights theirs.
//!
//! Batch normalisation and activation before a convolution of one point (DenseNet's, of ever longer lists of channels) are an
//! elementwise step whose other operands are constants of a channel each. The convolution reads what the step read, and does
//! to each element what the step did while it loads it.
//!
//! So do reductions with what one elementwise step makes of their elements, a cast of bytes or a square, where nobody else reads that.
//!
//! A normalisation whose rows nobody reads but products of few rows with packed weights (a decoding layer's) is done by each of their
//! workgroups for itself, where that takes less time than a launch.

use super::attend::{renumbered, rewritten};
use super::expr::{Expr, Op};
use super::forward::{redirect, redirect_access};
use super::fused::{
    Access, Before, Conv, FusedGraph, Normalize, NormedRows, Packed, Reduce, Role, Step, StepKind, TensorId,
};
use super::uses::{Changing, Uses};
use super::view::View;

/// The graph with such convolutions, where `worth` says yes to one instead of the step before it and the convolution that there was; `None` where
/// there are none.
pub(crate) fn begin_convolutions(
    graph: &FusedGraph,
    worth: impl Fn(&FusedGraph, &Step, [&Step; 2]) -> bool,
) -> Option<FusedGraph> {
    let mut changing = Changing::of(graph);
    for at in 0..graph.steps.len() {
        let now = changing.graph();
        let found = begun(now, changing.uses(), at);
        if let Some((reader, step)) = found.filter(|(i, s)| worth(now, s, [&now.steps[at], &now.steps[*i]])) {
            changing.attempt(|_, _| Some(vec![(reader, Some(step))]));
        }
    }
    changing.end()
}

/// Lets reductions do to their elements what the step before them does, where that is all that reads what it reads, in the same order.
pub(super) fn begin_reductions(graph: &mut FusedGraph) {
    let uses = Uses::of(graph);
    for at in 0..graph.steps.len() {
        if let Some(step) = begun_reduction(graph, &uses, at) {
            graph.steps[at] = step;
        }
    }
}

/// Reduction `at` with the step before it.
fn begun_reduction(graph: &FusedGraph, uses: &Uses, at: usize) -> Option<Step> {
    let step = &graph.steps[at];
    let (StepKind::Reduce(reduce), read) = (&step.kind, step.inputs.first()?) else { return None };
    let [before] = uses.writers[read.tensor.index()][..] else { return None };
    let before = &graph.steps[before];
    let ([source], true) = (&before.inputs[..], before.kind == StepKind::Pointwise) else { return None };
    let alone = uses.readers[read.tensor.index()] == [at] && touches(step, read.tensor) == 1;
    if !alone || own_result(graph, before)? != read.tensor || !read.is_plain() || !source.is_plain() {
        return None;
    }
    let view = redirect(&read.view, &source.view)?;
    if view.strides != read.view.strides {
        return None;
    }
    let mut expr = Expr::new();
    let element = expr.push_acc(graph.tensor(source.tensor).dtype);
    let element = expr.append(&before.expr, None, |_, _, _| element);
    let element = expr.append(&reduce.prologue, Some(element), |_, _, _| element);
    let mut begun = step.clone();
    begun.name = format!("{}+{}", before.name, step.name);
    begun.inputs[0] = Access::new(source.tensor, view);
    begun.kind = StepKind::Reduce(Reduce { op: reduce.op, prologue: expr.finish(element) });
    graph.step_promises(&begun).is_ok().then_some(begun)
}

/// The graph with products that normalise their rows themselves, where `takes` says yes to all that read a normalisation; `None` where
/// there are none.
pub(crate) fn begin_with_norms(graph: &FusedGraph, takes: impl Fn(&FusedGraph, &Step) -> bool) -> Option<FusedGraph> {
    let mut changing = Changing::of(graph);
    for at in 0..graph.steps.len() {
        let now = changing.graph();
        let StepKind::Normalize(norm) = now.steps[at].kind else { continue };
        let all_take = |list: &Vec<(usize, Step)>| list.iter().all(|(_, s)| takes(now, s));
        if let Some(found) = normed(now, changing.uses(), at, norm).filter(all_take) {
            changing.attempt(|_, _| Some(found.into_iter().map(|(reader, step)| (reader, Some(step))).collect()));
        }
    }
    changing.end()
}

/// The products that read what normalisation `at` gives, all who read it, and what they are when they do that themselves.
fn normed(graph: &FusedGraph, uses: &Uses, at: usize, norm: Normalize) -> Option<Vec<(usize, Step)>> {
    let step = &graph.steps[at];
    let (source, result) = (step.inputs.first()?, own_result(graph, step)?);
    let length = *step.output.view.dims.last()?;
    if norm.axes != 1 || norm.magnitudes || graph.tensor(source.tensor).dtype != graph.tensor(result).dtype {
        return None;
    }
    if uses.writers[result.index()] != [at] {
        return None;
    }
    let mut found = Vec::new();
    for &i in uses.readers[result.index()].iter().filter(|i| **i != at) {
        let reader = &graph.steps[i];
        let StepKind::Packed(product @ Packed { rows: None, .. }) = &reader.kind else { return None };
        let read = &reader.inputs[0].view;
        let whole = |elements: i64| elements % length as i64 == 0;
        let rows = read.dims[1] == length && whole(read.offset) && (read.dims[0] == 1 || whole(read.strides[0]));
        if touches(reader, result) != 1 || reader.inputs[0].tensor != result || !rows {
            return None;
        }
        let end = product.weights_end();
        let moved = |a: &Access| Some(Access::new(a.tensor, redirect(read, &a.view)?));
        let mut inputs = reader.inputs[..end].to_vec();
        inputs[0] = moved(source)?;
        for a in &step.inputs[1..] {
            inputs.push(moved(a)?);
        }
        let operands = inputs.len() - end;
        inputs.extend_from_slice(&reader.inputs[end..]);
        // An expression that reads what is normalised beside it has no place here.
        let operand = |i: u32| i.checked_sub(1).map(|i| i + end as u32);
        let behind = |i: u32| Some(if i < end as u32 { i } else { i + operands as u32 });
        let rows = NormedRows { norm, expr: renumbered(&step.expr, step.expr.result(), operand)?, operands };
        let begun = Step {
            name: format!("{}+{}", step.name, reader.name),
            kind: StepKind::Packed(Packed { rows: Some(rows), ..product.clone() }),
            inputs,
            expr: renumbered(&reader.expr, reader.expr.result(), behind)?,
            output: reader.output.clone(),
        };
        graph.step_promises(&begun).ok()?;
        found.push((i, begun));
    }
    (!found.is_empty()).then_some(found)
}

/// The tensor that a step writes all of, if nobody else has to do with it outside of the graph.
fn own_result(graph: &FusedGraph, step: &Step) -> Option<TensorId> {
    let (view, result) = (&step.output.view, step.output.tensor);
    let whole = view.offset == 0 && view.is_dense() && view.len() == graph.tensor(result).len();
    (whole && graph.tensor(result).role == Role::Intermediate).then_some(result)
}

/// How often a step reads or writes a tensor.
fn touches(step: &Step, t: TensorId) -> usize {
    let read = step.inputs.iter().flat_map(|a| a.indirect.iter().map(|x| x.index).chain([a.tensor]));
    read.chain([step.output.tensor]).filter(|x| *x == t).count()
}

/// The convolution that reads what step `at` gives, and what it is when it does that itself.
fn begun(graph: &FusedGraph, uses: &Uses, at: usize) -> Option<(usize, Step)> {
    let step = &graph.steps[at];
    let result = own_result(graph, step).filter(|_| step.kind == StepKind::Pointwise)?;
    let [reader] = uses.readers[result.index()][..] else { return None };
    let conv = &graph.steps[reader];
    let StepKind::Conv(Conv { window, groups: 1, before: None, flip: 0, also }) = &conv.kind else { return None };
    if !also.is_empty()
        || uses.writers[result.index()] != [at]
        || touches(conv, result) != 1
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
