//! Reductions and running sums by partial results, so that there is work for all of a device.
//!
//! A reduction has a result for each line of its elements, and few of them are few workgroups' work. So lines are cut into pieces of equal length, if not
//! by a kernel of one launch (`kernels/joint.rs`): each gives a row of results, and another reduction takes these, always in the same order. Between the two narrow floats are f32, as sums within
//! a launch are. The place of an extremum is found in each piece, what lies there is gathered, and the place of its extremum tells whose place it is.
//! Of running sums each piece begins with what those before it come to, which is the running sum of what they are reduced to. As all is read twice,
//! running sums go through sections that a cache keeps, where there is one: a section is read again right behind its first time.

use super::expr::{Binary, Expr};
use super::fused::{Access, FusedGraph, Indirect, Reduce, ReduceOp, Role, Scan, Step, StepKind, Tensor, TensorId};
use super::view::View;
use crate::tensor::DType;

/// Elements of a piece are a multiple of so many where they can be: what loads take together.
const TOGETHER: usize = 8;

/// How many elements of `extent` make a piece where about `wanted` pieces are: equal pieces need one launch less; otherwise few elements are left, or
/// as many as pieces that loads take well leave.
fn each(extent: usize, wanted: usize) -> usize {
    let each = (extent / wanted.max(1)).max(1);
    let near = || {
        let least = (each * 3 / 4).max(1);
        (each..=each * 5 / 4).chain((least..each).rev()).filter(|n| extent.is_multiple_of(*n))
    };
    let aligned = near().find(|n| n.is_multiple_of(TOGETHER));
    let whole = aligned.or(near().next().filter(|_| !extent.is_multiple_of(TOGETHER)));
    whole.unwrap_or(if each > 8 * TOGETHER { each / TOGETHER * TOGETHER } else { each })
}

/// Whether about so many pieces of `extent` elements are equal.
pub(crate) fn comes_out_even(extent: usize, wanted: usize) -> bool {
    extent.is_multiple_of(each(extent, wanted))
}

/// How lines are cut.
#[derive(Clone, Copy)]
pub(crate) struct Cuts {
    /// Pieces of a line, about.
    pub pieces: usize,
    /// Sections of its pieces that running sums go through one after the other.
    pub sections: usize,
}

/// The graph with reductions and scans in stages, cut as `cuts` says; `None` where there are none.
pub(crate) fn in_pieces(graph: &FusedGraph, cuts: impl Fn(&FusedGraph, &Step) -> Option<Cuts>) -> Option<FusedGraph> {
    let mut out = None;
    let mut steps = Vec::with_capacity(graph.steps.len());
    for step in &graph.steps {
        let stages = match (&step.kind, cuts(graph, step)) {
            (StepKind::Reduce(reduce), Some(cuts)) => stages(graph, &mut out, step, reduce, cuts.pieces),
            (StepKind::Scan(scan), Some(cuts)) => scanned(graph, &mut out, step, *scan, cuts),
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
    let places = matches!(reduce.op, ReduceOp::ArgMax { .. } | ReduceOp::ArgMin { .. });
    // A place tells in which piece it is where lines have one dimension.
    if !input.is_plain() || places && input.view.rank() > outer + 1 {
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
    let found = if places { DType::I64 } else { between };
    // Pieces lie behind each other, a row of results each.
    let all = extent.div_ceil(each);
    let shape: Vec<usize> = [all].into_iter().chain(dims.iter().copied()).collect();
    let whole = View::dense(&shape);
    let name = format!("{} in {all} pieces", graph.tensor(step.output.tensor).name);
    let out = out.get_or_insert_with(|| graph.clone());
    let mut added = |name: String, dtype: DType, shape: &[usize]| {
        out.add_tensor(Tensor { name, dtype, shape: shape.to_vec(), role: Role::Intermediate })
    };
    let id = added(name.clone(), found, &shape);
    let stage = |first: usize, n: usize, each_of: usize| {
        let run = input.view.sliced(axis, first * each, 1, n * each_of).split(axis, &[n, each_of]);
        let inner = (outer..run.rank()).filter(|d| *d != axis);
        let order: Vec<usize> = [axis].into_iter().chain(0..outer).chain(inner).collect();
        Step {
            name: step.name.clone(),
            kind: kind.clone(),
            inputs: vec![Access::new(input.tensor, run.permuted(&order))],
            expr: Expr::acc(found),
            output: Access::new(id, whole.sliced(0, first, 1, n)),
        }
    };
    let (full, rest) = (extent / each, extent % each);
    let runs: Vec<_> = [(0, full, each), (full, 1, rest)].into_iter().filter(|run| run.2 > 0).collect();
    let mut steps: Vec<Step> = runs.iter().map(|(first, n, each_of)| stage(*first, *n, *each_of)).collect();
    let mut end = step.clone();
    let order: Vec<usize> = (1..=outer).chain([0]).collect();
    end.kind = StepKind::Reduce(Reduce { op: reduce.op, prologue: Expr::acc(between) });
    if !places {
        end.inputs[0] = Access::new(id, whole.permuted(&order));
        let mut expr = Expr::new();
        let sum = expr.push_acc(between);
        let sum = expr.cast(sum, dtype);
        let result = expr.append(&step.expr, Some(sum), |e, i, t| e.input(i as usize, t));
        end.expr = expr.finish(result);
        steps.push(end);
        return Some(steps);
    }
    let (values, best) =
        (added(format!("{name}, elements"), between, &shape), added(format!("{name}, whose"), found, dims));
    let table =
        |index: TensorId, view: View, stride: i64, extent: usize| vec![Indirect { index, view, stride, extent }];
    let pointwise = |inputs: Vec<Access>, expr: Expr, output: Access| {
        let mut step = Step { name: step.name.clone(), kind: StepKind::Pointwise, inputs, expr, output };
        StepKind::Pointwise.collapse(&mut step);
        step
    };
    // What lies at the places.
    let mut element = Expr::new();
    let read = element.input(0, graph.tensor(input.tensor).dtype);
    let value = element.append(&reduce.prologue, Some(read), |e, i, t| e.input(i as usize, t));
    let value = element.cast(value, between);
    let element = element.finish(value);
    for (first, n, each_of) in runs {
        let run = input.view.sliced(axis, first * each, 1, n * each_of).split(axis, &[n, each_of]);
        let first_ones = run.permuted(&[axis].into_iter().chain(0..outer).collect::<Vec<_>>());
        let at = whole.sliced(0, first, 1, n);
        let mut access = Access::new(input.tensor, first_ones);
        access.indirect = table(id, at.clone(), input.view.strides[axis], each_of);
        steps.push(pointwise(vec![access], element.clone(), Access::new(values, at)));
    }
    end.inputs = vec![Access::new(values, whole.permuted(&order))];
    (end.expr, end.output) = (Expr::acc(found), Access::new(best, View::dense(dims)));
    steps.push(end);
    // The best one's piece, and the place in it.
    let mut expr = Expr::new();
    let piece = expr.input(0, found);
    let length = expr.constant(found, each as f64);
    let before = expr.binary(Binary::Mul, piece, length);
    let within = expr.input(1, found);
    let place = expr.binary(Binary::Add, before, within);
    let result = expr.append(&step.expr, Some(place), |e, i, t| e.input(i as usize + 1, t));
    let mut within = Access::new(id, View { offset: 0, dims: dims.clone(), strides: whole.strides[1..].to_vec() });
    within.indirect = table(best, View::dense(dims), whole.strides[0], all);
    let inputs = [Access::new(best, View::dense(dims)), within].into_iter().chain(step.inputs[1..].iter().cloned());
    steps.push(pointwise(inputs.collect(), expr.finish(result), step.output.clone()));
    Some(steps)
}

/// The stages of a running sum or product, of each section; the tensors between them are added to `out`.
fn scanned(graph: &FusedGraph, out: &mut Option<FusedGraph>, step: &Step, scan: Scan, cuts: Cuts) -> Option<Vec<Step>> {
    let (input, rank, t) = (&step.inputs[0], step.output.view.rank(), scan.dtype);
    let axis = rank - 1;
    let extent = step.output.view.dims[axis];
    let each = each(extent, cuts.pieces);
    if each >= extent || scan.start || step.inputs.iter().any(|a| !a.is_plain()) {
        return None;
    }
    let (full, rest) = (extent / each, extent % each);
    let all = extent.div_ceil(each);
    // Pieces of columns come first, so that columns stay neighbours.
    let before_lines = input.view.strides[axis] != 1;
    let at = if before_lines { 0 } else { axis };
    let mut shape = step.output.view.dims[..axis].to_vec();
    shape.insert(at, all);
    let whole = View::dense(&shape);
    let name = &graph.tensor(step.output.tensor).name;
    let out = out.get_or_insert_with(|| graph.clone());
    let mut added = |what: &str| {
        let name = format!("{name} in {all} pieces, {what}");
        out.add_tensor(Tensor { name, dtype: t, shape: shape.clone(), role: Role::Intermediate })
    };
    let sums = added("sums");
    let made = |kind: StepKind, inputs: Vec<Access>, expr: Expr, output: Access| {
        let mut made = Step { name: step.name.clone(), kind: kind.clone(), inputs, expr, output };
        kind.collapse(&mut made);
        made
    };
    let run_of = |view: &View, (first, n, each_of): (usize, usize, usize)| {
        let run = view.sliced(axis, first * each, 1, n * each_of).split(axis, &[n, each_of]);
        match before_lines {
            true => run.permuted(&[axis].into_iter().chain(0..axis).chain([rank]).collect::<Vec<_>>()),
            false => run,
        }
    };
    let mut prologue = Expr::new();
    let element = prologue.push_acc(graph.tensor(input.tensor).dtype);
    let wide = prologue.cast(element, t);
    let op = if scan.product { ReduceOp::Prod } else { ReduceOp::Sum };
    let reduce = StepKind::Reduce(Reduce { op, prologue: prologue.finish(wide) });
    let of_section = all.div_ceil(cuts.sections.max(1));
    let mut sections: Vec<_> = (0..all).step_by(of_section).map(|first| (first, all.min(first + of_section))).collect();
    if scan.reverse {
        sections.reverse();
    }
    let (mut steps, mut before) = (Vec::new(), None);
    for (first, end) in sections {
        // Whole pieces, and the one that is left.
        let runs = [(first, full.min(end) - first.min(full), each), (full, end.saturating_sub(full), rest)];
        let runs: Vec<_> = runs.into_iter().filter(|run| run.1 * run.2 > 0).collect();
        for &run in &runs {
            let inputs = vec![Access::new(input.tensor, run_of(&input.view, run))];
            steps.push(made(
                reduce.clone(),
                inputs,
                Expr::acc(t),
                Access::new(sums, whole.sliced(at, run.0, 1, run.1)),
            ));
        }
        // Behind the section before it comes the piece that this one ended with.
        let (from, count) = match before {
            None => (first, end - first),
            Some(_) if scan.reverse => (first, end + 1 - first),
            Some(_) => (first - 1, end + 1 - first),
        };
        let starts = added("before");
        let order: Vec<usize> = (0..rank).filter(|d| *d != at).chain([at]).collect();
        let lines = |first: usize, count: usize| whole.sliced(at, first, 1, count).permuted(&order);
        let mut inputs = vec![Access::new(sums, lines(from, count))];
        inputs.extend(before.map(|before| {
            let known = lines(if scan.reverse { end } else { from }, 1).sliced(axis, 0, 0, count);
            Access::new(before, known)
        }));
        let kind = StepKind::Scan(Scan { exclusive: true, start: before.is_some(), ..scan });
        steps.push(made(kind, inputs, Expr::acc(t), Access::new(starts, lines(from, count))));
        before = Some(starts);
        for run in runs {
            let before = whole.sliced(at, run.0, 1, run.1).repeated(rank, run.2);
            let access = |a: &Access| Access::new(a.tensor, run_of(&a.view, run));
            let mut inputs: Vec<Access> = step.inputs.iter().map(access).collect();
            inputs.insert(1, Access::new(starts, before));
            let expr = step.expr.map_inputs(|i| i + u32::from(i > 0));
            steps.push(made(StepKind::Scan(Scan { start: true, ..scan }), inputs, expr, access(&step.output)));
        }
    }
    Some(steps)
}

#[cfg(test)]
mod tests {
    use super::each;

    #[test]
    fn pieces_are_equal_or_leave_little() {
        assert_eq!(each(65536, 7), 8192);
        assert_eq!(each(12000, 7), 2000);
        // A prime: seven pieces, and six elements.
        assert_eq!(each(65537, 7), 9360);
        assert_eq!(each(3, 8), 1);
        assert_eq!(each(0, 8), 1);
    }
}
