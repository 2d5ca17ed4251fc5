//! A product, a softmax of its rows and a product with what comes out become one attention, where a kernel computes that.
//!
//! Looked for are a matrix product whose result only a softmax over its columns reads, whose result only another product
//! reads, as its left side. Merging may have given the two products different dimensions for the same rows; they are
//! split into what divides both. A mask that is a constant and hides what lies behind a diagonal becomes a number.

use super::expr::{Expr, Op, Scalar, Unary, Val};
use super::fused::{Access, Attention, FusedGraph, Role, Softmax, Step, StepKind, TensorId, Undefined};
use super::prune;
use super::uses::Uses;
use super::view::View;
use crate::tensor::{DType, HostTensor};

/// The graph with attentions, of those steps that `worth` says yes to, and may change; it is told of which three steps. `None` where there
/// are none.
pub fn attend(graph: &FusedGraph, worth: impl Fn(&FusedGraph, [&Step; 3], &mut Step) -> bool) -> Option<FusedGraph> {
    let is_softmax = |s: &Step| matches!(s.kind, StepKind::Softmax(Softmax { log: false, .. }));
    let mut found = Vec::new();
    if !graph.steps.iter().any(is_softmax) {
        return None;
    }
    let uses = Uses::of(graph);
    for (i, _) in graph.steps.iter().enumerate().filter(|(_, s)| is_softmax(s)) {
        let Some((first, second)) = around(graph, &uses, i) else { continue };
        let parts = [first, i, second];
        if let Some(mut whole) = joined(graph, parts)
            && graph.step_promises(&whole).is_ok()
            && worth(graph, parts.map(|n| &graph.steps[n]), &mut whole)
        {
            found.push((parts, whole));
        }
    }
    if found.is_empty() {
        return None;
    }
    let mut out = graph.clone();
    let gone: Vec<usize> = found.iter().flat_map(|f| [f.0[0], f.0[1]]).collect();
    for (at, whole) in found {
        out.steps[at[2]] = whole;
    }
    let mut number = 0;
    out.steps.retain(|_| {
        number += 1;
        !gone.contains(&(number - 1))
    });
    prune::prune(&mut out);
    Some(out)
}

/// An access that walks all of a tensor as it lies.
fn is_whole(graph: &FusedGraph, a: &Access) -> bool {
    a.is_plain() && a.view.offset == 0 && a.view.is_dense() && a.view.len() == graph.tensor(a.tensor).len()
}

/// The only step that reads a tensor of the arena.
fn only_reader(graph: &FusedGraph, uses: &Uses, t: TensorId) -> Option<usize> {
    let &[at] = &uses.readers[t.index()][..] else { return None };
    let reads = |a: &&Access| a.tensor == t || a.indirect.iter().any(|i| i.index == t);
    let once = graph.steps[at].inputs.iter().filter(reads).count() == 1;
    (once && graph.tensor(t).role == Role::Intermediate).then_some(at)
}

/// The products before and behind a softmax.
fn around(graph: &FusedGraph, uses: &Uses, softmax: usize) -> Option<(usize, usize)> {
    let step = &graph.steps[softmax];
    let [scores] = &step.inputs[..] else { return None };
    if undefined(step).is_none() || !is_whole(graph, scores) || !is_whole(graph, &step.output) {
        return None;
    }
    let &[before] = &uses.writers[scores.tensor.index()][..] else { return None };
    let behind = only_reader(graph, uses, step.output.tensor)?;
    let [first, second] = [before, behind].map(|i| &graph.steps[i]);
    let products = first.kind == StepKind::MatMul && second.kind == StepKind::MatMul;
    let whole = is_whole(graph, &first.output) && is_whole(graph, &second.inputs[0]);
    let left = second.inputs[0].tensor == step.output.tensor;
    let alone = only_reader(graph, uses, scores.tensor) == Some(softmax);
    (products && whole && left && alone).then_some((before, behind))
}

/// What rows without a softmax give; `None` where the step does more with its result than store it, or zeros in the place of NaNs.
fn undefined(softmax: &Step) -> Option<Undefined> {
    let StepKind::Softmax(Softmax { masked, .. }) = softmax.kind else { return None };
    let node = |v: Val| softmax.expr.nodes()[v.index()].op;
    let stored = |v: Val| match node(v) {
        Op::Cast(x) => node(x) == Op::Acc,
        op => op == Op::Acc,
    };
    let result = softmax.expr.result();
    match node(result) {
        Op::Select(nan, zero, x) => {
            let nothing = matches!(node(zero), Op::Const(Scalar::Float(0.0)));
            let of_result = matches!(node(nan), Op::Unary(Unary::IsNan, y) if stored(y));
            (nothing && of_result && stored(x)).then_some(Undefined::Zero)
        }
        _ if !stored(result) => None,
        _ if masked => Some(Undefined::NanUnlessHidden),
        _ => Some(Undefined::Nan),
    }
}

/// The rows of both products, split into what divides both: the last of them are the rows of an attention.
fn common_rows(a: &[usize], b: &[usize]) -> Option<Vec<usize>> {
    let cuts = |dims: &[usize]| -> Vec<usize> {
        let mut product = 1;
        dims.iter()
            .rev()
            .map(|d| {
                product *= d;
                product
            })
            .collect()
    };
    let mut all = [cuts(a), cuts(b)].concat();
    all.push(1);
    all.sort_unstable();
    all.dedup();
    let mut rows: Vec<usize> = Vec::new();
    for two in all.windows(2) {
        if two[1] % two[0] != 0 {
            return None;
        }
        rows.push(two[1] / two[0]);
    }
    if a.last() == Some(&1) || b.last() == Some(&1) || rows.is_empty() {
        rows.insert(0, 1);
    }
    rows.reverse();
    Some(rows)
}

/// How many of the last `rows` have the product `extent`.
fn factors(rows: &[usize], extent: usize) -> Option<usize> {
    let mut product = 1;
    (0..=rows.len()).find(|n| {
        if *n > 0 {
            product *= rows[rows.len() - n];
        }
        product == extent
    })
}

/// Dimensions `dims` of a view, whose extents are `from`, as `rows`; the others stay.
fn with_rows(view: &View, from: &[usize], rows: &[usize]) -> Option<View> {
    let mut out = View { offset: view.offset, dims: Vec::new(), strides: Vec::new() };
    let mut left = rows.to_vec();
    let mut parts: Vec<(usize, i64)> = Vec::new();
    for (d, &extent) in from.iter().enumerate().rev() {
        let n = factors(&left, extent)?;
        let mut stride = view.strides[d];
        for _ in 0..n {
            let part = left.pop()?;
            parts.push((part, stride));
            stride *= part as i64;
        }
    }
    // What is left has an extent of 1.
    parts.extend(left.iter().rev().map(|&d| (d, 0)));
    parts.reverse();
    out.dims = parts.iter().map(|p| p.0).chain(view.dims[from.len()..].iter().copied()).collect();
    out.strides = parts.iter().map(|p| p.1).chain(view.strides[from.len()..].iter().copied()).collect();
    (parts.len() == rows.len()).then_some(out)
}

/// The same for a right side, which has no rows: it is the same for all but those of its batch.
fn without_rows(view: &View, extent: usize, rows: &[usize]) -> Option<View> {
    let n = factors(rows, extent)?.max(1);
    let (batch, own) = rows.split_at(rows.len() - n);
    let from: Vec<usize> = view.dims[..view.rank() - 2].to_vec();
    let mut v = with_rows(view, &from, batch)?;
    for (i, &d) in own[..n - 1].iter().enumerate() {
        v = v.repeated(batch.len() + i, d);
    }
    Some(v)
}

/// The three steps as one.
fn joined(graph: &FusedGraph, [first, softmax, second]: [usize; 3]) -> Option<Step> {
    let [scores, middle, values] = [first, softmax, second].map(|i| &graph.steps[i]);
    let (r1, r2) = (scores.output.view.rank(), values.output.view.rank());
    let (rows1, rows2) = (&scores.output.view.dims[..r1 - 1], &values.output.view.dims[..r2 - 1]);
    let keys = scores.output.view.dims[r1 - 1];
    if rows1.iter().product::<usize>() != rows2.iter().product::<usize>()
        || middle.output.view.dims.last() != Some(&keys)
    {
        return None;
    }
    if values.inputs[0].view.dims[r2 - 1] != keys {
        return None;
    }
    let rows = common_rows(rows1, rows2)?;
    let access = |a: &Access, view: View| Access::new(a.tensor, view);
    let q = access(&scores.inputs[0], with_rows(&scores.inputs[0].view, rows1, &rows)?);
    let k = access(&scores.inputs[1], without_rows(&scores.inputs[1].view, *rows1.last()?, &rows)?);
    let v = access(&values.inputs[1], without_rows(&values.inputs[1].view, *rows2.last()?, &rows)?);
    let (mut score, mut operands) =
        (renumbered(&scores.expr, scores.expr.result(), |i| i.checked_sub(2).map(|i| i + 3))?, Vec::new());
    for a in &scores.inputs[2..] {
        operands.push(access(a, with_rows(&a.view, rows1, &rows)?));
    }
    let mut causal = None;
    if let Some((past, operand, inner)) = diagonal(graph, &score, &operands) {
        causal = Some(past);
        score = renumbered(&score, inner, |i| (i != operand).then(|| if i > operand { i - 1 } else { i }))?;
        operands.remove(operand as usize - 3);
    }
    let n = operands.len() as u32;
    let expr = renumbered(&values.expr, values.expr.result(), |i| i.checked_sub(2).map(|i| i + 3 + n))?;
    let mut inputs = vec![q, k, v];
    inputs.extend(operands);
    for a in &values.inputs[2..] {
        inputs.push(access(a, with_rows(&a.view, rows2, &rows)?));
    }
    let output = access(&values.output, with_rows(&values.output.view, rows2, &rows)?);
    let kind = StepKind::Attention(Attention {
        score,
        operands: n as usize,
        causal,
        undefined: undefined(middle)?,
        cached: false,
        placed: false,
        paged: false,
        made: Vec::new(),
        any_keys: false,
    });
    let name = format!("{}+{}+{}", scores.name, middle.name, values.name);
    Some(Step { name, kind, inputs, expr, output })
}

/// The expression of one node, of operands under other numbers; `None` where it reads one that has none.
pub(super) fn renumbered(e: &Expr, root: Val, number: impl Fn(u32) -> Option<u32>) -> Option<Expr> {
    rewritten(e, root, |i| number(i).map(Op::Input))
}

/// The expression of one node, with something else in the place of operands; `None` where it reads one that has nothing.
pub(super) fn rewritten(e: &Expr, root: Val, operand: impl Fn(u32) -> Option<Op>) -> Option<Expr> {
    let mut needed = vec![false; e.nodes().len()];
    needed[root.index()] = true;
    for (i, node) in e.nodes().iter().enumerate().rev().filter(|(i, _)| *i <= root.index()) {
        if needed[i] {
            each_operand(node.op, |v| needed[v.index()] = true);
        }
    }
    let mut out = Expr::new();
    let mut map = vec![Val(0); e.nodes().len()];
    for (i, node) in e.nodes().iter().enumerate().filter(|(i, _)| needed[*i]) {
        let at = |v: Val| map[v.index()];
        let op = match node.op {
            Op::Input(i) => operand(i)?,
            Op::Unary(u, x) => Op::Unary(u, at(x)),
            Op::Binary(b, x, y) => Op::Binary(b, at(x), at(y)),
            Op::Select(c, x, y) => Op::Select(at(c), at(x), at(y)),
            Op::Cast(x) => Op::Cast(at(x)),
            Op::Bits(x) => Op::Bits(at(x)),
            same @ (Op::Acc | Op::Paired | Op::Const(_)) => same,
        };
        map[i] = out.push(op, node.dtype);
    }
    Some(out)
}

fn each_operand(op: Op, mut f: impl FnMut(Val)) {
    match op {
        Op::Acc | Op::Paired | Op::Input(_) | Op::Const(_) => {}
        Op::Unary(_, x) | Op::Cast(x) | Op::Bits(x) => f(x),
        Op::Binary(_, x, y) => [x, y].into_iter().for_each(f),
        Op::Select(c, x, y) => [c, x, y].into_iter().for_each(&mut f),
    }
}

/// An expression that shows one node only to rows from a diagonal of a constant on: how far beyond its own number a row sees, the
/// operand that says so, and the node.
fn diagonal(graph: &FusedGraph, e: &Expr, operands: &[Access]) -> Option<(i64, u32, Val)> {
    let node = |v: Val| e.nodes()[v.index()].op;
    let Op::Select(keep, x, none) = node(e.result()) else { return None };
    let (Op::Input(i), Op::Const(Scalar::Float(f64::NEG_INFINITY))) = (node(keep), node(none)) else { return None };
    let a = operands.get((i as usize).checked_sub(3)?)?;
    let Role::Constant(mask) = &graph.tensor(a.tensor).role else { return None };
    let r = a.view.rank();
    let flat = (0..r - 2).all(|d| a.view.dims[d] == 1 || a.view.strides[d] == 0);
    // Who else reads the mask would not find it any more.
    let once = e.nodes().iter().filter(|n| n.op == Op::Input(i)).count() == 1;
    if !flat || !once || mask.dtype() != DType::Bool {
        return None;
    }
    Some((seen_from(mask, &a.view)?, i, x))
}

/// How many columns more than its number a row of a mask sees, where each sees all up to there and no others.
fn seen_from(mask: &HostTensor, view: &View) -> Option<i64> {
    let bytes = mask.bytes();
    let r = view.rank();
    let (rows, columns) = (view.dims[r - 2], view.dims[r - 1]);
    let at = |m: usize, n: usize| {
        let i = view.offset + m as i64 * view.strides[r - 2] + n as i64 * view.strides[r - 1];
        bytes.get(i as usize).is_some_and(|b| *b != 0)
    };
    let first = (0..columns).take_while(|n| at(0, *n)).count() as i64;
    // A first row that sees everything, or nothing, says nothing about the others.
    let past = if first < columns as i64 && first > 0 { first - 1 } else { return None };
    let fits = |m: usize| (0..columns).all(|n| at(m, n) == (n as i64 <= m as i64 + past));
    (0..rows).all(fits).then_some(past)
}

#[cfg(test)]
mod tests {
    use super::common_rows;

    #[test]
    fn rows_are_split_by_what_divides_both() {
        assert_eq!(common_rows(&[2, 12], &[8, 3]), Some(vec![2, 4, 3]));
        assert_eq!(common_rows(&[6, 4], &[4, 6]), None);
        assert_eq!(common_rows(&[8, 1], &[8, 1]), Some(vec![8, 1]));
    }
}
