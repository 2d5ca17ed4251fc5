//! Elementwise steps over all of what a convolution gives, in any order, become its epilogue; so do those over a softmax or a
//! normalisation that turn its result back to how what it reads lies, copies among them.
//!
//! While operators are lowered an epilogue ends at a transposition. Exports of networks whose channels come last turn every
//! convolution's data and turn the result back, so that scale, bias, activation and residual stand behind a transposition.
//! Here such a step is done by the convolution, in the order in which the convolution writes: whoever read the step's result
//! reads the convolution's ([`redirect_access`]), which often was turned back anyway. Where the result has its own place (a
//! model's output), the convolution writes there if its neighbours are neighbours there too.

use super::compose::{MAX_COST, MAX_INPUTS};
use super::expr::{Expr, Op};
use super::forward::{redirect, redirect_access};
use super::fused::{Access, FusedGraph, Role, Step, StepKind, TensorId};
use super::join::lying;
use super::uses::Uses;
use super::view::View;

/// Makes epilogues of all such steps.
pub(super) fn absorb_elementwise(graph: &mut FusedGraph) {
    let mut uses = Uses::of(graph);
    let mut gone = vec![false; graph.steps.len()];
    for i in 0..graph.steps.len() {
        if let Some(conv) = absorbed(graph, i, &mut uses) {
            gone[conv] = true;
        }
    }
    let mut gone = gone.into_iter();
    graph.steps.retain(|_| !gone.next().unwrap_or(false));
}

/// Puts the producer whose epilogue step `i` becomes in its place; the number of the producer.
fn absorbed(graph: &mut FusedGraph, i: usize, uses: &mut Uses) -> Option<usize> {
    let step = &graph.steps[i];
    if step.kind != StepKind::Pointwise || !step.inputs.iter().all(Access::is_plain) {
        return None;
    }
    // The last of the producers it reads.
    let takes = |kind: &StepKind| match kind {
        StepKind::Conv(_) => !step.expr.is_copy(),
        StepKind::Scan(_) | StepKind::Softmax(_) | StepKind::Normalize(_) => true,
        _ => false,
    };
    let made = |a: &Access| match uses.writers[a.tensor.index()][..] {
        [w] if takes(&graph.steps[w].kind) => Some(w),
        _ => None,
    };
    let (operand, at) = step.inputs.iter().enumerate().filter_map(|(k, a)| Some((k, made(a)?))).max_by_key(|x| x.1)?;
    let (from, to) = (step.inputs[operand].tensor, step.output.tensor);
    let alone = uses.readers[from.index()] == [i] && graph.tensor(from).role == Role::Intermediate;
    let once = step.inputs.iter().filter(|a| a.tensor == from).count() == 1;
    if !alone || !once || graph.steps[at].inputs.iter().any(|a| a.tensor == to) {
        return None;
    }
    let windows = matches!(graph.steps[at].kind, StepKind::Conv(_));
    let order = lying(graph, &step.inputs[operand])?;
    lying(graph, &graph.steps[at].output)?;
    let mut merged = merged(graph, at, i, operand, &order)?;
    let place = step.inputs[operand].view.clone();
    if let Some(readers) = turned_readers(graph, i, from, &place, uses).filter(|_| windows) {
        // The convolution writes what it wrote before, of the result's type.
        let dtype = graph.tensor(to).dtype;
        let name = graph.tensor(to).name.clone();
        let before = std::mem::replace(&mut graph.tensors[from.index()].dtype, dtype);
        if graph.step_promises(&merged).is_err() || readers.iter().any(|(_, s)| graph.step_promises(s).is_err()) {
            graph.tensors[from.index()].dtype = before;
            return None;
        }
        graph.tensors[from.index()].name = name;
        uses.readers[from.index()] = std::mem::take(&mut uses.readers[to.index()]);
        uses.writers[to.index()].clear();
        readers.into_iter().for_each(|(r, s)| graph.steps[r] = s);
        uses.writers[from.index()] = vec![i];
    } else {
        let view = redirect(&merged.output.view, &graph.steps[i].output.view.permuted(&order))?;
        let lines = if windows {
            view.rank() == 0 || view.dims[view.rank() - 1] == 1 || view.strides[view.rank() - 1] == 1
        } else {
            lies_alike(&view, &merged.inputs[0].view)
        };
        merged.output = Access::new(to, view);
        if !lines || graph.step_promises(&merged).is_err() {
            return None;
        }
    }
    for a in &merged.inputs {
        let list = &mut uses.readers[a.tensor.index()];
        list.retain(|r| *r != at && *r != i);
        list.push(i);
        list.sort_unstable();
    }
    graph.steps[i] = merged;
    Some(at)
}

/// Neighbours in one of the views are neighbours in the other, along the same dimension.
fn lies_alike(a: &View, b: &View) -> bool {
    let neighbours = |v: &View| (0..v.rank()).find(|d| v.dims[*d] > 1 && v.strides[*d] == 1);
    a.dims == b.dims && neighbours(a).is_some() && neighbours(a) == neighbours(b)
}

/// Producer `at` with step `i`, whose operand number `operand` is its result, as epilogue; it writes where it wrote.
fn merged(graph: &FusedGraph, at: usize, i: usize, operand: usize, order: &[usize]) -> Option<Step> {
    let (conv, step) = (&graph.steps[at], &graph.steps[i]);
    let mut inputs = conv.inputs.clone();
    let mut numbers = vec![0; step.inputs.len()];
    for (k, a) in step.inputs.iter().enumerate().filter(|(k, _)| *k != operand) {
        numbers[k] = inputs.len();
        inputs.push(Access::new(a.tensor, redirect(&conv.output.view, &a.view.permuted(order))?));
    }
    let mut expr = Expr::new();
    let acc = conv.expr.nodes().iter().find(|n| n.op == Op::Acc).map(|n| n.dtype)?;
    let acc = expr.push_acc(acc);
    let own = expr.append(&conv.expr, Some(acc), |e, k, t| e.input(k as usize, t));
    let result = expr.append(&step.expr, None, |e, k, t| match k as usize {
        k if k == operand => own,
        k => e.input(numbers[k], t),
    });
    let name = format!("{}+{}", conv.name, step.name);
    let merged = Step { name, kind: conv.kind.clone(), inputs, expr: expr.finish(result), output: conv.output.clone() };
    (merged.inputs.len() <= MAX_INPUTS && merged.expr.cost() <= MAX_COST).then_some(merged)
}

/// Who reads what step `i` gives, reading `from` in its place, where the step reads it as `place`; `None` where the result has a
/// place of its own, or someone cannot.
fn turned_readers(
    graph: &FusedGraph,
    i: usize,
    from: TensorId,
    place: &View,
    uses: &Uses,
) -> Option<Vec<(usize, Step)>> {
    let step = &graph.steps[i];
    let to = step.output.tensor;
    if graph.tensor(to).role != Role::Intermediate || uses.writers[to.index()] != [i] {
        return None;
    }
    let target = place.permuted(&lying(graph, &step.output)?);
    let turned = |r: usize| {
        let mut reader = graph.steps[r].clone();
        for a in &mut reader.inputs {
            if a.indirect.iter().any(|x| x.index == to) {
                return None;
            }
            if a.tensor == to {
                *a = redirect_access(a, from, &target)?;
            }
        }
        Some((r, reader))
    };
    uses.readers[to.index()].iter().map(|r| turned(*r)).collect()
}
