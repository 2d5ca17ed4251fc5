//! Lines of an attention that it makes itself.
//!
//! Queries, and the new key of a decoder's step, are rotated before an attention takes them: an elementwise step of one token, whose launch takes
//! longer than its work. Where a kernel holds such lines in registers, it does to their elements what the step did. Looked for are attentions
//! whose queries, new key or new value an elementwise step gives, and nobody else reads; also one that puts a new line into a cache that the
//! attention writes otherwise.

use super::attend::rewritten;
use super::cached::without;
use super::expr::Op;
use super::fused::{Access, Attention, FusedGraph, Guard, Indirect, MadeLines, Role, Step, StepKind, TensorId};
use super::view::View;

/// The graph with such attentions, of those that `worth` says yes to, told of the attention before; `None` where there are none.
pub(crate) fn make_lines(graph: &FusedGraph, worth: impl Fn(&FusedGraph, &Step, &Step) -> bool) -> Option<FusedGraph> {
    let mut out: Option<FusedGraph> = None;
    let mut gone = Vec::new();
    for i in 0..graph.steps.len() {
        let now = out.as_ref().unwrap_or(graph);
        if let Some((steps, whole)) = making(now, i)
            && now.step_promises(&whole).is_ok()
            && worth(now, &now.steps[i], &whole)
        {
            out.get_or_insert_with(|| graph.clone()).steps[i] = whole;
            gone.extend(steps);
        }
    }
    Some(without(out?, &gone))
}

/// A line and the step that makes it.
struct Line {
    of: usize,
    writer: usize,
    /// The operand's elements before that, what becomes of them, and what else that takes.
    from: Access,
    made: MadeLines,
    others: Vec<Access>,
}

/// Attention `at` as one that makes its lines, and the steps that are not needed any more.
fn making(graph: &FusedGraph, at: usize) -> Option<(Vec<usize>, Step)> {
    let step = &graph.steps[at];
    let StepKind::Attention(kind) = &step.kind else { return None };
    if !kind.made.is_empty() {
        return None;
    }
    let first = kind.caches().start;
    let candidates = [0, first + 1, first + 3];
    let candidates = &candidates[..if kind.cached { 3 } else { 1 }];
    let mut lines: Vec<Line> = candidates.iter().filter_map(|of| line(graph, at, kind, *of)).collect();
    // Nobody else reads what they were in; caches the attention itself writes.
    let alone = |l: &Line| {
        let t = step.inputs[l.of].tensor;
        if kind.placed && l.of > 0 {
            return graph.steps[..at].iter().all(|s| reads(s, t) == 0);
        }
        let own = lines.iter().filter(|l| step.inputs[l.of].tensor == t).count();
        graph.tensor(t).role == Role::Intermediate && graph.steps.iter().map(|s| reads(s, t)).sum::<usize>() == own
    };
    let alone: Vec<bool> = lines.iter().map(alone).collect();
    let mut alone = alone.into_iter();
    lines.retain(|_| alone.next() == Some(true));
    // New lines that are in the caches already stay there, but for both of them.
    let both = lines.iter().filter(|l| l.of > 0).count() == 2;
    lines.retain(|l| l.of == 0 || both || !kind.placed);
    if lines.is_empty() {
        return None;
    }
    let placed = kind.placed && !both;
    let mut whole = step.clone();
    let (end, mut made, mut others) = (kind.makings().start, Vec::new(), Vec::new());
    for l in &lines {
        whole.inputs[l.of] = l.from.clone();
        let start = (end + others.len()) as u32;
        // A line that is only copied is where it comes from.
        if !(l.made.expr.is_acc() && l.others.is_empty()) {
            let expr = rewritten(&l.made.expr, l.made.expr.result(), |i| Some(Op::Input(i + start)))?;
            made.push(MadeLines { expr, ..l.made.clone() });
            others.extend_from_slice(&l.others);
        }
    }
    let more = others.len() as u32;
    let behind = |i: u32| Some(Op::Input(if i < end as u32 { i } else { i + more }));
    whole.expr = rewritten(&step.expr, step.expr.result(), behind)?;
    whole.inputs.splice(end..end, others);
    whole.kind = StepKind::Attention(Attention { made, placed, ..kind.clone() });
    let mut writers: Vec<usize> = lines.iter().map(|l| l.writer).collect();
    writers.sort_unstable();
    writers.dedup();
    let names = writers.iter().map(|w| graph.steps[*w].name.as_str()).chain([step.name.as_str()]);
    whole.name = names.collect::<Vec<_>>().join("+");
    Some((writers, whole))
}

/// How often a step reads a tensor.
pub(super) fn reads(step: &Step, t: TensorId) -> usize {
    let all = step.inputs.iter().enumerate().filter(|(i, _)| !step.kind.filled().contains(i)).map(|(_, a)| a);
    all.flat_map(|a| a.indirect.iter().map(|x| x.index).chain([a.tensor])).filter(|x| *x == t).count()
}

/// Operand `of` of attention `at`, as the elementwise step makes it that gives it.
fn line(graph: &FusedGraph, at: usize, kind: &Attention, of: usize) -> Option<Line> {
    let step = &graph.steps[at];
    let access = &step.inputs[of];
    let mut writers =
        graph.steps.iter().enumerate().filter(|(i, s)| *i != at && s.written().any(|t| t == access.tensor));
    let (writer, by) = writers.next()?;
    if writers.next().is_some() || writer > at || by.kind != StepKind::Pointwise || !access.is_plain() {
        return None;
    }
    let turned = kind.turned(of);
    let rows = if turned { swapped(&access.view) } else { access.view.clone() };
    let (r, dtype) = (rows.rank(), graph.tensor(access.tensor).dtype);
    let (length, stride) = (rows.dims[r - 1], rows.strides[r - 1]);
    // Elements of a line may go through two dimensions of the step.
    let inner = by.output.view.dims.iter().filter(|d| **d > 1 && **d < length && length.is_multiple_of(**d));
    let walk = [length].iter().chain(inner).find_map(|n| {
        let mut view = rows.clone();
        view.dims.splice(r - 1.., [length / n, *n]);
        view.strides.splice(r - 1.., [stride * *n as i64, stride]);
        Walk::of(&by.output.view, view)
    })?;
    let all: Vec<Access> = by.inputs.iter().map(|a| walk.through(a)).collect::<Option<_>>()?;
    let element = all.iter().position(|a| {
        let [outer, inner] = [r - 1, r].map(|d| (a.view.dims[d], a.view.strides[d]));
        let line = inner.1 == 1 && (outer.0 == 1 || outer.1 == inner.0 as i64);
        a.is_plain() && line && graph.tensor(a.tensor).dtype == dtype
    })?;
    let mut view = all[element].view.clone();
    view.dims.splice(r - 1.., [length]);
    view.strides.splice(r - 1.., [1]);
    let from = Access::new(all[element].tensor, if turned { swapped(&view) } else { view });
    let operand = |i: u32| match i as usize {
        i if i == element => Some(Op::Acc),
        i => Some(Op::Input((i - usize::from(i > element)) as u32)),
    };
    let expr = rewritten(&by.expr, by.expr.result(), operand)?;
    let others: Vec<Access> = all.into_iter().enumerate().filter(|(i, _)| *i != element).map(|(_, a)| a).collect();
    Some(Line { of, writer, from, made: MadeLines { of, expr, operands: others.len() }, others })
}

/// The last two dimensions in the other order.
fn swapped(view: &View) -> View {
    let mut out = view.clone();
    let r = out.rank();
    out.dims.swap(r - 2, r - 1);
    out.strides.swap(r - 2, r - 1);
    out
}

/// A walk over what a step writes, in terms of the step's coordinates.
pub(super) struct Walk {
    dims: Vec<usize>,
    /// Where it begins, and for each of its dimensions along which one it goes, how far at a time.
    first: Vec<usize>,
    along: Vec<Option<(usize, usize)>>,
}

impl Walk {
    /// `view` of what `output` is written by; `None` where it is somewhere else.
    pub(super) fn of(output: &View, view: View) -> Option<Walk> {
        let mut order: Vec<usize> = (0..output.rank()).filter(|d| output.dims[*d] > 1).collect();
        order.sort_by_key(|d| std::cmp::Reverse(output.strides[*d]));
        if order.iter().any(|d| output.strides[*d] <= 0) {
            return None;
        }
        let (mut first, mut rest) = (vec![0; output.rank()], view.offset - output.offset);
        for &d in &order {
            first[d] = usize::try_from(rest / output.strides[d]).ok()?;
            rest %= output.strides[d];
        }
        let mut reached = first.clone();
        let mut along = Vec::new();
        for (&n, &stride) in view.dims.iter().zip(&view.strides) {
            if n == 1 || stride == 0 {
                along.push(None);
                continue;
            }
            let (d, by) = order.iter().find_map(|&d| {
                let by = usize::try_from(stride / output.strides[d]).ok()?;
                let fits = stride % output.strides[d] == 0 && reached[d] + (n - 1) * by < output.dims[d];
                (by > 0 && fits).then_some((d, by))
            })?;
            reached[d] += (n - 1) * by;
            along.push(Some((d, by)));
        }
        let inside = (0..output.rank()).all(|d| reached[d] < output.dims[d]);
        (rest == 0 && inside).then_some(Walk { dims: view.dims, first, along })
    }

    /// What the step reads as an operand, along the walk.
    pub(super) fn through(&self, a: &Access) -> Option<Access> {
        let view = |v: &View| {
            let offset = v.offset + self.first.iter().zip(&v.strides).map(|(c, s)| *c as i64 * s).sum::<i64>();
            let strides = self.along.iter().map(|to| to.map_or(0, |(d, by)| by as i64 * v.strides[d])).collect();
            View { offset, dims: self.dims.clone(), strides }
        };
        let guard = match &a.guard {
            None => None,
            Some(guard) => {
                let mut ranges: Vec<(usize, usize)> = self.dims.iter().map(|n| (0, *n)).collect();
                for (d, &(lo, hi)) in guard.ranges.iter().enumerate() {
                    if (lo, hi) == (0, a.view.dims[d]) {
                        continue;
                    }
                    let mut along = self.along.iter().enumerate().filter(|(_, to)| to.is_some_and(|to| to.0 == d));
                    match (along.next(), along.next()) {
                        (None, _) if (lo..hi).contains(&self.first[d]) => {}
                        (Some((own, Some((_, 1)))), None) => {
                            let first = self.first[d];
                            ranges[own] = (lo.saturating_sub(first), hi.saturating_sub(first).min(self.dims[own]));
                        }
                        _ => return None,
                    }
                }
                Some(Guard { ranges, fill: guard.fill })
            }
        };
        let indirect = a.indirect.iter().map(|i| Indirect { view: view(&i.view), ..i.clone() }).collect();
        Some(Access { tensor: a.tensor, view: view(&a.view), guard, indirect })
    }
}
