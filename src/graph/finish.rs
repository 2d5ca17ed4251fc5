//! A normalisation of what a product gives becomes the end of the product, where one kernel computes both.
//!
//! Looked for are normalisations over the last dimension whose operand one matrix product writes, all of it and nothing else. The
//! sums are needed no more where nobody but the normalisation reads them; they then are where the result comes to
//! be. Elsewhere (a residual goes on without being normalised) both are parts of one tensor.

use super::attend::renumbered;
use super::forward::redirect_access;
use super::fused::{Access, FusedGraph, Normalize, Normed, Role, Step, StepKind, Tensor, TensorId};
use super::prune;
use super::view::View;

/// The graph with such products, of those that `worth` says yes to; `None` where there are none.
pub(crate) fn finish_with_norms(graph: &FusedGraph, worth: impl Fn(&FusedGraph, &Step) -> bool) -> Option<FusedGraph> {
    let mut out: Option<FusedGraph> = None;
    let mut at = 0;
    while let Some(step) = out.as_ref().unwrap_or(graph).steps.get(at) {
        let found = match step.kind {
            StepKind::Normalize(norm) => finished(out.as_ref().unwrap_or(graph), at, norm, &worth),
            _ => None,
        };
        match found {
            Some(changed) => out = Some(changed),
            None => at += 1,
        }
    }
    out.map(|mut graph| {
        prune::prune(&mut graph);
        graph
    })
}

/// Rows and columns of a view of lines, if they are a matrix.
fn matrix(view: &View) -> Option<View> {
    let keep: Vec<usize> = (0..view.rank()).filter(|d| *d + 1 == view.rank() || view.dims[*d] != 1).collect();
    let of = |list: &[i64]| keep.iter().map(|d| list[*d]).collect::<Vec<_>>();
    let dims: Vec<usize> = keep.iter().map(|d| view.dims[*d]).collect();
    match dims.len() {
        1 => Some(View {
            offset: view.offset,
            dims: [1, dims[0]].to_vec(),
            strides: [&[0], &of(&view.strides)[..]].concat(),
        }),
        2 => Some(View { offset: view.offset, dims, strides: of(&view.strides) }),
        _ => None,
    }
}

/// Everybody who touches a tensor.
fn users(graph: &FusedGraph, t: TensorId) -> (Vec<usize>, Vec<usize>) {
    let reads = |s: &Step| s.inputs.iter().any(|a| a.tensor == t || a.indirect.iter().any(|i| i.index == t));
    let of = |f: &dyn Fn(&Step) -> bool| {
        graph.steps.iter().enumerate().filter(|(_, s)| f(s)).map(|(i, _)| i).collect::<Vec<_>>()
    };
    (of(&|s| s.output.tensor == t), of(&reads))
}

/// The graph without step `at`, which its operand's product does too.
fn finished(
    graph: &FusedGraph,
    at: usize,
    norm: Normalize,
    worth: &impl Fn(&FusedGraph, &Step) -> bool,
) -> Option<FusedGraph> {
    let last = &graph.steps[at];
    let (sums, result) = (last.inputs[0].tensor, last.output.tensor);
    let (writers, readers) = users(graph, sums);
    let [first] = writers[..] else { return None };
    let product = &graph.steps[first];
    let whole = |view: &View, t: TensorId| view.offset == 0 && view.is_dense() && view.len() == graph.tensor(t).len();
    let (made, read) = (matrix(&product.output.view)?, matrix(&last.inputs[0].view)?);
    let fits = product.kind == StepKind::MatMul
        && norm.axes == 1
        && product.output.view.rank() == 2
        && made == read
        && whole(&product.output.view, sums)
        && graph.tensor(sums).role == Role::Intermediate
        && graph.tensor(sums).dtype == graph.tensor(result).dtype
        && product.inputs.iter().all(|a| a.tensor != result);
    // What it reads beside has to be there when the product begins.
    let early = last.inputs[1..].iter().all(|a| users(graph, a.tensor).0.iter().all(|w| *w < first));
    if !fits || !early {
        return None;
    }
    let operands = product.inputs.len() - 2;
    let moved = |i: u32| Some(i + product.inputs.len() as u32 - 1);
    let mut inputs = product.inputs.clone();
    for a in &last.inputs[1..] {
        inputs.push(Access::new(a.tensor, matrix(&a.view)?));
    }
    let step = |tensor: TensorId, sums: View, output: View| {
        let kind = StepKind::Normed(Normed { sum: product.expr.clone(), operands, sums, norm });
        let name = format!("{}+{}", product.name, last.name);
        let expr = renumbered(&last.expr, last.expr.result(), moved)?;
        Some(Step { name, kind, inputs: inputs.clone(), expr, output: Access::new(tensor, output) })
    };
    let mut out = graph.clone();
    if readers == [at] {
        let place = matrix(&last.output.view)?;
        out.steps[first] = step(result, place.clone(), place)?;
    } else {
        out.steps[first] = beside(&mut out, [sums, result], [first, at], &step)?;
    }
    let step = &out.steps[first];
    if out.step_promises(step).is_err() || !worth(&out, step) {
        return None;
    }
    out.steps.remove(at);
    Some(out)
}

/// The step that writes both tensors as parts of a new one; whoever reads them reads that.
fn beside(
    out: &mut FusedGraph,
    [sums, result]: [TensorId; 2],
    [first, at]: [usize; 2],
    step: &impl Fn(TensorId, View, View) -> Option<Step>,
) -> Option<Step> {
    let (place, view) = (matrix(&out.steps[first].output.view)?, matrix(&out.steps[at].output.view)?);
    let (len, t) = (out.tensor(sums).len(), out.tensor(result));
    let alone = t.role == Role::Intermediate && t.len() == len && view == place && users(out, result).0 == [at];
    if !alone {
        return None;
    }
    let (name, dtype) = (t.name.clone(), t.dtype);
    let whole = out.add_tensor(Tensor { name, dtype, shape: vec![2, len], role: Role::Intermediate });
    let part = |i: usize| View { offset: (i * len) as i64, dims: vec![len], strides: vec![1] };
    for i in 0..out.steps.len() {
        if i == at || i == first {
            continue;
        }
        let mut reader = out.steps[i].clone();
        let mut changed = false;
        for a in &mut reader.inputs {
            for (part, t) in [part(0), part(1)].iter().zip([sums, result]) {
                if a.indirect.iter().any(|x| x.index == t) {
                    return None;
                }
                if a.tensor == t {
                    *a = redirect_access(a, whole, part)?;
                    changed = true;
                }
            }
        }
        if changed {
            out.step_promises(&reader).ok()?;
            out.steps[i] = reader;
        }
    }
    let normed = View { offset: len as i64, ..place.clone() };
    step(whole, place, normed)
}
