//! Reductions in two stages, so that there is work for all of a device.
//!
//! Sums over the rows of a matrix have a result for each column, and a workgroup takes neighbouring columns: where there are few of them a few
//! workgroups would go through all rows. Rows are cut into pieces of equal length, each gives a row of results, and another reduction takes
//! these, always in the same order. Between the two narrow floats are f32, as sums within a launch are.

use super::expr::Expr;
use super::fused::{Access, FusedGraph, Reduce, ReduceOp, Role, Step, StepKind, Tensor};
use super::view::View;
use crate::tensor::DType;

/// How many elements of `extent` make a piece where about `wanted` pieces are: equal pieces need one launch less; otherwise few elements are left.
pub(super) fn each(extent: usize, wanted: usize) -> usize {
    let each = (extent / wanted.max(1)).max(1);
    let near = (each..=each * 5 / 4).chain((each * 3 / 4..each).rev());
    near.into_iter().find(|each| extent.is_multiple_of(*each)).unwrap_or(each)
}

/// The graph with reductions in two stages, of about as many pieces as `pieces` says; `None` where there are none.
pub(crate) fn sum_in_stages(
    graph: &FusedGraph,
    pieces: impl Fn(&FusedGraph, &Step) -> Option<usize>,
) -> Option<FusedGraph> {
    let mut out = None;
    let mut steps = Vec::with_capacity(graph.steps.len());
    for step in &graph.steps {
        let stages = match (&step.kind, pieces(graph, step)) {
            (StepKind::Reduce(reduce), Some(n)) => stages(graph, &mut out, step, reduce, n),
            _ => None,
        };
        match stages {
            Some(stages) => steps.extend(stages),
            None => steps.push(step.clone()),
        }
    }
    out.map(|out| FusedGraph { steps, ..out })
}

/// The stages of a step; the tensor between them is added to `out`.
fn stages(
    graph: &FusedGraph,
    out: &mut Option<FusedGraph>,
    step: &Step,
    reduce: &Reduce,
    pieces: usize,
) -> Option<Vec<Step>> {
    let (input, dims) = (&step.inputs[0], &step.output.view.dims);
    let outer = dims.len();
    if matches!(reduce.op, ReduceOp::ArgMax { .. } | ReduceOp::ArgMin { .. }) || !input.is_plain() {
        return None;
    }
    // The outermost dimension that is long enough.
    let long = |d: &usize| (input.view.dims[*d].min(pieces), std::cmp::Reverse(*d));
    let axis = (outer..input.view.rank()).max_by_key(long)?;
    let extent = input.view.dims[axis];
    let each = each(extent, pieces);
    if each >= extent {
        return None;
    }
    let dtype = reduce.prologue.dtype();
    let between = if dtype.is_float() && dtype.size() < 4 { DType::F32 } else { dtype };
    let mut prologue = reduce.prologue.clone();
    let wide = prologue.cast(prologue.result(), between);
    let kind = StepKind::Reduce(Reduce { op: reduce.op, prologue: prologue.finish(wide) });
    // Pieces lie behind each other, a row of results each.
    let all = extent.div_ceil(each);
    let shape: Vec<usize> = [all].into_iter().chain(dims.iter().copied()).collect();
    let whole = View::dense(&shape);
    let name = format!("{} in {all} pieces", graph.tensor(step.output.tensor).name);
    let tensor = Tensor { name, dtype: between, shape, role: Role::Intermediate };
    let id = out.get_or_insert_with(|| graph.clone()).add_tensor(tensor);
    let stage = |first: usize, n: usize, each_of: usize| {
        let run = input.view.sliced(axis, first * each, 1, n * each_of).split(axis, &[n, each_of]);
        let inner = (outer..run.rank()).filter(|d| *d != axis);
        let order: Vec<usize> = [axis].into_iter().chain(0..outer).chain(inner).collect();
        Step {
            name: step.name.clone(),
            kind: kind.clone(),
            inputs: vec![Access::new(input.tensor, run.permuted(&order))],
            expr: Expr::acc(between),
            output: Access::new(id, whole.sliced(0, first, 1, n)),
        }
    };
    let (full, rest) = (extent / each, extent % each);
    let mut out = vec![stage(0, full, each)];
    out.extend((rest > 0).then(|| stage(full, 1, rest)));
    let mut end = step.clone();
    let order: Vec<usize> = (1..=outer).chain([0]).collect();
    end.inputs[0] = Access::new(id, whole.permuted(&order));
    end.kind = StepKind::Reduce(Reduce { op: reduce.op, prologue: Expr::acc(between) });
    let mut expr = Expr::new();
    let sum = expr.push_acc(between);
    let sum = expr.cast(sum, dtype);
    let result = expr.append(&step.expr, Some(sum), |e, i, t| e.input(i as usize, t));
    end.expr = expr.finish(result);
    out.push(end);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::each;

    #[test]
    fn pieces_are_equal_or_leave_little() {
        assert_eq!(each(65536, 7), 8192);
        assert_eq!(each(12000, 7), 2000);
        // A prime: seven pieces, and six elements.
        assert_eq!(each(65537, 7), 9362);
        assert_eq!(each(3, 8), 1);
        assert_eq!(each(0, 8), 1);
    }
}
