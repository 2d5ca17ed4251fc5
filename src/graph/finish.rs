//! A normalisation of what a product gives becomes the end of the product, where one kernel computes both.
//!
//! Looked for are normalisations over the last dimension whose operand one matrix product writes, all of it and nothing else. The
//! sums are needed no more where nobody but the normalisation reads them; they then are where the result comes to
//! be. Elsewhere (a residual goes on without being normalised) both are parts of one tensor.

use super::attend::renumbered;
use super::fused::{Access, FusedGraph, Normalize, Normed, Role, Step, StepKind, TensorId};
use super::join;
use super::uses::{Changes, Changing, Uses};
use super::view::View;

/// The graph with such products, of those that `worth` says yes to; `None` where there are none.
pub(crate) fn finish_with_norms(graph: &FusedGraph, worth: impl Fn(&FusedGraph, &Step) -> bool) -> Option<FusedGraph> {
    let mut changing = Changing::of(graph);
    for at in 0..graph.steps.len() {
        if let StepKind::Normalize(norm) = changing.graph().steps[at].kind
            && !norm.magnitudes
            && fits(changing.graph(), changing.uses(), at, norm)
        {
            changing.attempt(|graph, uses| finished(graph, uses, at, norm, &worth));
        }
    }
    changing.end()
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

/// Step `at` normalises rows that one product gives.
fn fits(graph: &FusedGraph, uses: &Uses, at: usize, norm: Normalize) -> bool {
    let last = &graph.steps[at];
    let (sums, result) = (last.inputs[0].tensor, last.output.tensor);
    let [first] = uses.writers[sums.index()][..] else { return false };
    let product = &graph.steps[first];
    let whole = |view: &View, t: TensorId| view.offset == 0 && view.is_dense() && view.len() == graph.tensor(t).len();
    // What it reads beside has to be there when the product begins.
    let early = |a: &Access| uses.writers[a.tensor.index()].iter().all(|w| *w < first);
    let made = matrix(&product.output.view);
    product.kind == StepKind::MatMul
        && norm.axes == 1
        && product.output.view.rank() == 2
        && made.is_some()
        && made == matrix(&last.inputs[0].view)
        && whole(&product.output.view, sums)
        && graph.tensor(sums).role == Role::Intermediate
        && graph.tensor(sums).dtype == graph.tensor(result).dtype
        && product.inputs.iter().all(|a| a.tensor != result)
        && last.inputs[1..].iter().all(early)
}

/// What changes where the product of step `at`'s operand does that step too.
fn finished(
    graph: &mut FusedGraph,
    uses: &Uses,
    at: usize,
    norm: Normalize,
    worth: &impl Fn(&FusedGraph, &Step) -> bool,
) -> Option<Changes> {
    let last = graph.steps[at].clone();
    let (sums, result) = (last.inputs[0].tensor, last.output.tensor);
    let first = uses.writers[sums.index()][0];
    let product = graph.steps[first].clone();
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
    let place = matrix(&last.output.view)?;
    let (whole, readers) = match uses.readers[sums.index()][..] == [at] {
        true => (step(result, place.clone(), place)?, Vec::new()),
        false => {
            // The product writes both as parts of a new tensor; whoever reads them reads that.
            let (len, t) = (graph.tensor(sums).len(), graph.tensor(result));
            let alone = t.role == Role::Intermediate && uses.writers[result.index()] == [at];
            let made = matrix(&product.output.view)?;
            if !alone || t.len() != len || place != made {
                return None;
            }
            let (whole, readers) = join::one_behind_the_other(graph, uses, [sums, result], at)?;
            let normed = View { offset: len as i64, ..made.clone() };
            (step(whole, made, normed)?, readers)
        }
    };
    if graph.step_promises(&whole).is_err() || !worth(graph, &whole) {
        return None;
    }
    let readers = readers.into_iter().map(|(i, step)| (i, Some(step)));
    Some(readers.chain([(first, Some(whole)), (at, None)]).collect())
}
