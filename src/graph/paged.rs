//! Keys and values that an attention reads where a table says.
//!
//! Over a cache in blocks, attention takes its keys and values from copies in which those of a group of queries lie one behind the other. Where a
//! kernel looks up where each key lies, the copies are gone. Looked for are attentions whose keys and whose values a step gathers by the same numbers,
//! and nobody else reads: keys as they are, values but for those without a number, which are 0.

use super::attend::renumbered;
use super::cached::without;
use super::expr::{Binary, Expr, Op, Scalar, Val};
use super::fused::{Access, Attention, FusedGraph, Indirect, Role, Step, StepKind};
use super::made::{Walk, reads};
use super::view::View;

/// The graph with such attentions, as far as `worth` says yes, told of the attention before and the steps that are not needed then; `None` where there are none.
pub(crate) fn read_by_tables(
    graph: &FusedGraph,
    worth: impl Fn(&FusedGraph, &Step, [&Step; 2], &Step) -> bool,
) -> Option<FusedGraph> {
    let mut out: Option<FusedGraph> = None;
    let mut gone = Vec::new();
    for i in 0..graph.steps.len() {
        if let Some((copies, whole)) = by_table(graph, i)
            && graph.step_promises(&whole).is_ok()
            && worth(graph, &graph.steps[i], copies.map(|c| &graph.steps[c]), &whole)
        {
            out.get_or_insert_with(|| graph.clone()).steps[i] = whole;
            gone.extend(copies);
        }
    }
    Some(without(out?, &gone))
}

/// Lines that are gathered.
struct Gathered {
    writer: usize,
    /// What they are gathered from, along all dimensions of the attention's operand, and the numbers, `[b..,1,t]`.
    from: Access,
    rows: Access,
}

/// Attention `at` as one that looks up its keys and values, and the steps that gather these otherwise.
fn by_table(graph: &FusedGraph, at: usize) -> Option<([usize; 2], Step)> {
    let step = &graph.steps[at];
    let StepKind::Attention(kind) = &step.kind else { return None };
    if kind.cached || kind.paged || kind.causal.is_some() || !kind.made.is_empty() {
        return None;
    }
    let [k, v] = [1, 2].map(|i| gathered(graph, at, i));
    let (k, v) = (k?, v?);
    if k.rows != v.rows || k.writer == v.writer {
        return None;
    }
    let mut inputs = step.inputs.clone();
    let (mut score, mut operands) = (kind.score.clone(), kind.operands);
    // Keys without a number have to be hidden. Where nothing else is said of them, the kernel does that.
    let (operand, rest) = hidden(&score, |i| same_rows(&inputs[i], &k.rows))?;
    let renumber = |i: u32| (i != operand).then_some(if i > operand { i - 1 } else { i });
    if let Some(rest) = rest.and_then(|rest| renumbered(&score, rest, renumber)) {
        (score, operands) = (rest, operands - 1);
        inputs.remove(operand as usize);
    }
    let (before, first) = (3 + kind.operands as u32, 3 + operands as u32);
    let behind =
        |i: u32| if i < 3 { Some(i) } else { Some((i + first + 1).checked_sub(before)?).filter(|_| i >= before) };
    let expr = renumbered(&step.expr, step.expr.result(), behind)?;
    let writers = [k.writer, v.writer];
    inputs.insert(first as usize, k.rows);
    (inputs[1], inputs[2]) = (k.from, v.from);
    let name = [k.writer, v.writer, at].map(|i| graph.steps[i].name.as_str()).join("+");
    let kind = Attention { score, operands, paged: true, any_keys: false, ..kind.clone() };
    Some((writers, Step { name, kind: StepKind::Attention(kind), inputs, expr, output: step.output.clone() }))
}

/// True for an operand of scores that is the numbers of keys, the same for all queries.
fn same_rows(a: &Access, rows: &Access) -> bool {
    let r = a.view.rank();
    let flat = |view: &View| -> Vec<i64> {
        let strides = view.strides.iter().zip(&view.dims).enumerate();
        strides.filter(|(d, _)| *d != r - 2).map(|(_, (s, n))| if *n == 1 { 0 } else { *s }).collect()
    };
    a.is_plain()
        && a.tensor == rows.tensor
        && a.view.offset == rows.view.offset
        && (a.view.strides[r - 2] == 0 || a.view.dims[r - 2] == 1)
        && flat(&a.view) == flat(&rows.view)
}

/// The operand that an expression shows its result only by where it is not negative, and what it shows where there is no other condition.
fn hidden(e: &Expr, is_rows: impl Fn(usize) -> bool) -> Option<(u32, Option<Val>)> {
    let node = |v: Val| e.nodes()[v.index()].op;
    let Op::Select(shown, x, none) = node(e.result()) else { return None };
    let Op::Const(Scalar::Float(f64::NEG_INFINITY)) = node(none) else { return None };
    let mut conditions = vec![shown];
    while let Some(condition) = conditions.pop() {
        if let Op::Binary(Binary::And, a, b) = node(condition) {
            conditions.extend([a, b]);
        } else if let Some(operand) = not_negative(e, condition).filter(|i| is_rows(*i as usize)) {
            let once = e.nodes().iter().filter(|n| n.op == Op::Input(operand)).count() == 1;
            return Some((operand, Some(x).filter(|_| once && condition == shown)));
        }
    }
    None
}

/// The operand of which a value says that it is not negative.
fn not_negative(e: &Expr, known: Val) -> Option<u32> {
    let node = |v: Val| e.nodes()[v.index()].op;
    let Op::Binary(Binary::Le, zero, rows) = node(known) else { return None };
    match (node(zero), node(rows)) {
        (Op::Const(Scalar::Int(0)), Op::Input(i)) => Some(i),
        _ => None,
    }
}

/// Operand `i` of attention `at`, as a step gathers it.
fn gathered(graph: &FusedGraph, at: usize, i: usize) -> Option<Gathered> {
    let access = &graph.steps[at].inputs[i];
    let whole = graph.tensor(access.tensor);
    let mut writers = graph.steps.iter().enumerate().filter(|(_, s)| s.written().any(|t| t == access.tensor));
    let (writer, by) = writers.next()?;
    let read = graph.steps.iter().map(|s| reads(s, access.tensor)).sum::<usize>();
    let alone = whole.role == Role::Intermediate && read == 1;
    if writers.next().is_some() || writer > at || by.kind != StepKind::Pointwise || !access.is_plain() || !alone {
        return None;
    }
    let walk = Walk::of(&by.output.view, access.view.clone())?;
    let lines = walk.through(by.inputs.first()?)?;
    let r = lines.view.rank();
    let along = if i == 1 { r - 1 } else { r - 2 };
    let (elements, keys) = (2 * r - 3 - along, lines.view.dims[along]);
    let [Indirect { index, view, stride, extent }] = &lines.indirect[..] else { return None };
    let by_number = lines.guard.is_none() && lines.view.strides[along] == 0 && view.strides[elements] == 0;
    if !by_number || *stride <= 0 {
        return None;
    }
    let mut from = Access::new(lines.tensor, lines.view.clone());
    (from.view.dims[along], from.view.strides[along]) = (*extent, *stride);
    let mut rows = Access::new(*index, view.clone());
    let pitch = view.strides[along];
    (rows.view.dims[r - 2], rows.view.strides[r - 2]) = (1, 0);
    (rows.view.dims[r - 1], rows.view.strides[r - 1]) = (keys, pitch);
    // Values of no key are 0.
    let cleared = || {
        let e = &by.expr;
        let node = |v: Val| e.nodes()[v.index()].op;
        let Op::Select(known, x, none) = node(e.result()) else { return None };
        let zero = matches!(node(none), Op::Const(Scalar::Float(0.0)));
        let told = walk.through(by.inputs.get(not_negative(e, known)? as usize)?)?;
        let same = told.is_plain() && told.tensor == *index && told.view == *view;
        (zero && same && node(x) == Op::Input(0) && by.inputs.len() == 2).then_some(())
    };
    let taken = (by.expr.is_copy() && by.inputs.len() == 1) || cleared().is_some();
    taken.then_some(Gathered { writer, from, rows })
}
