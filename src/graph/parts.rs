//! Elementwise steps one behind the other that write the parts of all rows of a tensor, or read them, become one.
//!
//! Each of them alone writes, or reads, a part of many lines of memory; together they take whole lines.

use super::expr::Expr;
use super::fused::{Access, FusedGraph, Parts, Role, Step, StepKind};
use super::uses::{Changes, Changing};
use super::view::View;

/// The graph with such steps, of those that `worth` says yes to; `None` where there are none.
pub(crate) fn unite_parts(graph: &FusedGraph, worth: impl Fn(&FusedGraph, &Step) -> bool) -> Option<FusedGraph> {
    let mut changing = Changing::of(graph);
    let mut at = 0;
    while at < graph.steps.len() {
        let now = changing.graph();
        let found = [true, false].into_iter().find_map(|join| united(now, at, join));
        let Some((count, whole)) = found.filter(|(_, whole)| now.step_promises(whole).is_ok() && worth(now, whole))
        else {
            at += 1;
            continue;
        };
        let last = at + count - 1;
        let mut changes: Changes = (at..last).map(|i| (i, None)).collect();
        changes.push((last, Some(whole)));
        changing.attempt(|_, _| Some(changes));
        at += count;
    }
    changing.end()
}

/// A part of rows.
struct Part {
    rows: usize,
    columns: usize,
    /// Elements from a row to the next.
    pitch: i64,
    offset: i64,
}

impl Part {
    fn of(view: &View) -> Option<Part> {
        let (rows, columns, pitch) = match (&view.dims[..], &view.strides[..]) {
            ([rows], [pitch]) => (*rows, 1, *pitch),
            ([rows, columns], [pitch, 1]) => (*rows, *columns, *pitch),
            _ => return None,
        };
        (rows > 1 && pitch > columns as i64).then_some(Part { rows, columns, pitch, offset: view.offset })
    }
}

/// The step that moves something, as it lies and as it comes to lie.
fn moves(graph: &FusedGraph, step: &Step) -> bool {
    let [from] = &step.inputs[..] else { return false };
    let types = [from, &step.output].map(|a| graph.tensor(a.tensor).dtype);
    step.kind == StepKind::Pointwise
        && step.expr.is_copy()
        && from.is_plain()
        && step.output.is_plain()
        && types[0] == types[1]
        && from.tensor != step.output.tensor
}

/// The steps from `at` on that join parts to rows of a tensor, or part them: how many, and what they are together.
fn united(graph: &FusedGraph, at: usize, join: bool) -> Option<(usize, Step)> {
    let whole = |step: &Step| if join { step.output.clone() } else { step.inputs[0].clone() };
    let part = |step: &Step| if join { step.inputs[0].clone() } else { step.output.clone() };
    let first = graph.steps.get(at)?;
    let of = |step: &Step| {
        let (whole, part) = (moves(graph, step).then(|| whole(step))?, part(step));
        let found = Part::of(&whole.view).filter(|_| part.view.is_dense())?;
        Some((found, part))
    };
    let (begins, _) = of(first)?;
    let tensor = whole(first).tensor;
    let mut list = Vec::new();
    for step in graph.steps[at..].iter().take(Parts::MOST) {
        let fits = |p: &Part| (p.rows, p.pitch) == (begins.rows, begins.pitch);
        match of(step).filter(|(p, _)| fits(p) && whole(step).tensor == tensor) {
            Some(found) => list.push(found),
            None => break,
        }
    }
    let count = list.len();
    list.sort_by_key(|(p, _)| p.offset);
    let beside = list.windows(2).all(|two| two[0].0.offset + two[0].0.columns as i64 == two[1].0.offset);
    let columns: usize = list.iter().map(|(p, _)| p.columns).sum();
    // What is written is written once.
    let written: Vec<_> = list.iter().map(|(_, part)| part.tensor).filter(|_| !join).collect();
    let once = written.iter().enumerate().all(|(i, t)| !written[..i].contains(t));
    let able = written.iter().all(|t| matches!(graph.tensor(*t).role, Role::Intermediate | Role::Output(_)));
    if count < 2 || !beside || columns as i64 != begins.pitch || !once || !able {
        return None;
    }
    let rows = |tensor, offset: i64, columns: usize| {
        Access::new(tensor, View { offset, ..View::dense(&[begins.rows, columns]) })
    };
    let all = rows(tensor, list[0].0.offset, columns);
    let mut parts = list.iter().map(|(p, part)| rows(part.tensor, part.view.offset, p.columns));
    let (inputs, output) = if join {
        (parts.collect(), all)
    } else {
        let output = parts.next()?;
        ([all].into_iter().chain(parts).collect(), output)
    };
    let names: Vec<&str> = graph.steps[at..at + count].iter().map(|s| &s.name[..]).collect();
    let name = if names.windows(2).all(|two| two[0] == two[1]) { names[0].to_string() } else { names.join("+") };
    let expr = Expr::acc(graph.tensor(tensor).dtype);
    Some((count, Step { name, kind: StepKind::Parts(Parts { count, join }), inputs, expr, output }))
}
