//! The elementwise step whose result has a softmax or a normalisation becomes its beginning.
//!
//! A residual is added and the sum normalised, scores are scaled and masked before their softmax: whoever walks the lines reads what the
//! elementwise step read, and makes the elements himself. Where others read these, too (the residual goes on), he writes them.

use super::attend::renumbered;
use super::compose::{MAX_COST, MAX_INPUTS};
use super::forward::redirect;
use super::fused::{Access, ComputedLines, FusedGraph, LineRule, Role, Step, StepKind};
use super::join::lying;
use super::uses::{Changes, Changing, Uses};
use super::view::{View, dense_strides};

/// The graph with such steps, of those that `worth` says yes to, told of the softmax or normalisation alone and of the whole; `None`
/// where there are none.
pub(crate) fn compute_lines(
    graph: &FusedGraph,
    worth: impl Fn(&FusedGraph, &Step, &Step) -> bool,
) -> Option<FusedGraph> {
    let mut changing = Changing::of(graph);
    for at in 0..graph.steps.len() {
        let now = changing.graph();
        let found = computed(now, changing.uses(), at);
        if let Some((writer, whole)) = found.filter(|(_, whole)| worth(now, &now.steps[at], whole)) {
            changing.attempt(|_, _| Some(Changes::from([(writer, None), (at, Some(whole))])));
        }
    }
    changing.end()
}

/// The elementwise step that makes the lines of step `at`, and what that is when it makes them itself.
fn computed(graph: &FusedGraph, uses: &Uses, at: usize) -> Option<(usize, Step)> {
    let step = &graph.steps[at];
    let rule = match step.kind {
        StepKind::Softmax(s) => LineRule::Softmax(s),
        StepKind::Normalize(n) => LineRule::Normalize(n),
        _ => return None,
    };
    let lines = &step.inputs[0];
    let [writer] = uses.writers[lines.tensor.index()][..] else { return None };
    let before = &graph.steps[writer];
    let t = graph.tensor(lines.tensor);
    let whole = |view: &View| view.offset == 0 && view.is_dense() && view.len() == t.len();
    let once = step.inputs.iter().filter(|a| a.tensor == lines.tensor).count() == 1;
    let apart = before.inputs.iter().all(|a| a.is_plain() && a.tensor != step.output.tensor);
    if before.kind != StepKind::Pointwise || !whole(&before.output.view) || !once || !apart {
        return None;
    }
    // Others read the elements later, and find all of them.
    let kept = t.role != Role::Intermediate || uses.readers[lines.tensor.index()] != [at];
    let later = uses.readers[lines.tensor.index()].iter().all(|r| *r >= at);
    if !later || kept && lying(graph, lines).is_none() {
        return None;
    }
    let whole = beginning(before, step, rule, kept)
        .or_else(|| beginning(before, &in_dims_of(step, rule, &before.output.view), rule, kept))?;
    graph.step_promises(&whole).is_ok().then_some((writer, whole))
}

/// A step that begins with what the one before makes, whose result it walks.
fn beginning(before: &Step, step: &Step, rule: LineRule, kept: bool) -> Option<Step> {
    let lines = &step.inputs[0];
    let moved = |a: &Access| Some(Access::new(a.tensor, redirect(&lines.view, &a.view)?));
    let sources = before.inputs.iter().map(moved).collect::<Option<Vec<Access>>>()?;
    // Lines are walked as they lie in the operand that has most elements of its own.
    let own = |a: &Access| {
        let dims = a.view.dims.iter().zip(&a.view.strides);
        dims.map(|(n, stride)| if *stride == 0 { 1 } else { *n }).product::<usize>()
    };
    let mut order: Vec<usize> = (0..sources.len()).collect();
    order.sort_by_key(|i| (std::cmp::Reverse(own(&sources[*i])), sources[*i].view.strides.last() != Some(&1)));
    if order.first().is_none_or(|i| own(&sources[*i]) < lines.view.len()) {
        return None;
    }
    let first = usize::from(kept);
    let place = |i: u32| order.iter().position(|o| *o == i as usize).map(|p| (first + p) as u32);
    let element = renumbered(&before.expr, before.expr.result(), place)?;
    let main = first + sources.len();
    let behind = |i: u32| i.checked_sub(1).map(|i| i + main as u32);
    let mut inputs: Vec<Access> = if kept { vec![lines.clone()] } else { Vec::new() };
    inputs.extend(order.iter().map(|i| sources[*i].clone()));
    inputs.extend_from_slice(&step.inputs[1..]);
    let whole = Step {
        name: format!("{}+{}", before.name, step.name),
        kind: StepKind::ComputedLines(ComputedLines { rule, element, operands: sources.len(), kept }),
        inputs,
        expr: renumbered(&step.expr, step.expr.result(), behind)?,
        output: step.output.clone(),
    };
    let fits = whole.inputs.len() <= MAX_INPUTS && before.expr.cost() + whole.expr.cost() <= MAX_COST;
    fits.then_some(whole)
}

/// A step whose dimensions that count lines are as fine as those of the view in which what it walks was written, all of it: operands may
/// change along these alone.
fn in_dims_of(step: &Step, rule: LineRule, written: &View) -> Step {
    let mut fine = step.clone();
    let lines = &step.inputs[0].view;
    let places = dense_strides(&written.dims);
    for d in (0..lines.rank().saturating_sub(rule.axes())).rev() {
        let (n, stride) = (lines.dims[d] as i64, lines.strides[d]);
        let (mut parts, mut end) = (Vec::new(), n * stride);
        for place in places.iter().copied().filter(|p| stride > 0 && *p > stride && p % stride == 0) {
            if place < end && end % place == 0 {
                parts.push((end / place) as usize);
                end = place;
            }
        }
        if !parts.is_empty() {
            parts.push((end / stride) as usize);
            for a in fine.inputs.iter_mut().chain([&mut fine.output]) {
                a.view = a.view.split(d, &parts);
            }
        }
    }
    fine
}
