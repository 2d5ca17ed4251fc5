//! Lets producers write straight into the tensors that their results are copied to.
//!
//! Concat copies every stored input into a part of its result. When such an input is an intermediate tensor, all its
//! writers and readers are redirected to that part and the copy disappears; chains of concatenations (DenseNet) end up
//! in one growing tensor. So does a transposed copy that keeps rows whole, such as that of attention's heads, and so do copies of
//! parts that lie together again as they did.
//!
//! The copy maps element `i` of the source, with coordinates `c` in the copy's dimensions, to an address that is linear in
//! `c`. An access to the source is redirected by writing its offset and each of its strides in the mixed radix of those
//! dimensions. That is exact if no digit ever overflows over the whole access, which is checked; otherwise the copy stays.
//!
//! Of a copy of what nobody of the graph writes again it is the readers that are redirected, to what it copies ([`read_through`]).

use super::fused::{Access, FusedGraph, Role, Step, StepKind, TensorId};
use super::uses::Uses;
use super::view::{View, dense_strides};

/// Removes the copies that are not needed.
pub(crate) fn forward_writes(graph: &mut FusedGraph) {
    let mut touching: Vec<Vec<u32>> = vec![Vec::new(); graph.tensors.len()];
    for (i, step) in graph.steps.iter().enumerate() {
        let all = step.inputs.iter().chain([&step.output]);
        let tables = step.inputs.iter().flat_map(|a| a.indirect.iter().map(|i| i.index));
        for t in all.map(|a| a.tensor).chain(tables) {
            if touching[t.index()].last() != Some(&(i as u32)) {
                touching[t.index()].push(i as u32);
            }
        }
    }
    let mut removed = vec![false; graph.steps.len()];
    for i in 0..graph.steps.len() {
        if removed[i] {
            continue;
        }
        let Some(Copied { from, to, view, copies }) = copied(graph, i, &touching) else { continue };
        let gone = |s: usize| copies.contains(&s) || removed[s];
        let steps: Vec<u32> = touching[from.index()].iter().copied().filter(|&s| !gone(s as usize)).collect();
        let mut changed = Vec::with_capacity(steps.len());
        let fits = steps.iter().all(|&s| match redirected(graph, s as usize, from, to, &view) {
            Some(step) => {
                changed.push((s, step));
                true
            }
            None => false,
        });
        if fits {
            for (s, step) in changed {
                graph.steps[s as usize] = step;
            }
            copies.iter().for_each(|s| removed[*s] = true);
            let mut merged = [&steps[..], &touching[to.index()][..]].concat();
            merged.sort_unstable();
            merged.dedup();
            touching[to.index()] = merged;
            touching[from.index()].clear();
        }
    }
    let mut gone = removed.iter();
    graph.steps.retain(|_| !gone.next().expect("one flag per step"));
}

/// Lets readers of a tensor that is a copy of another read that.
pub(super) fn read_through(graph: &mut FusedGraph) {
    let uses = Uses::of(graph);
    let mut gone = vec![false; graph.steps.len()];
    for i in 0..graph.steps.len() {
        let step = &graph.steps[i];
        let [input] = step.inputs.as_slice() else { continue };
        let (from, to) = (input.tensor, step.output.tensor);
        let whole = |a: &Access| {
            a.is_plain() && a.view.offset == 0 && a.view.is_dense() && a.view.len() == graph.tensor(a.tensor).len()
        };
        let copy = step.kind == StepKind::Pointwise && step.expr.is_copy() && whole(input) && whole(&step.output);
        let own = graph.tensor(to).role == Role::Intermediate && uses.writers[to.index()] == [i];
        // Another has to be there still, and unchanged, when they read it.
        let lasting = !matches!(graph.tensor(from).role, Role::Intermediate);
        if !(copy && own && lasting) || uses.writers[from.index()].len() > 1 {
            continue;
        }
        let reading = |r: &usize| {
            let mut reader = graph.steps[*r].clone();
            for a in reader.inputs.iter_mut() {
                if a.tensor == to {
                    a.tensor = from;
                }
                a.indirect.iter_mut().filter(|x| x.index == to).for_each(|x| x.index = from);
            }
            (*r, reader)
        };
        let readers: Vec<(usize, Step)> = uses.readers[to.index()].iter().map(reading).collect();
        if readers.iter().any(|(_, s)| graph.step_promises(s).is_err()) {
            continue;
        }
        readers.into_iter().for_each(|(r, s)| graph.steps[r] = s);
        gone[i] = true;
    }
    let mut gone = gone.into_iter();
    graph.steps.retain(|_| !gone.next().unwrap_or(false));
}

/// All of an intermediate tensor is copied, perhaps transposed without tearing its rows.
struct Copied {
    from: TensorId,
    to: TensorId,
    /// The walk over the target in the source's order.
    view: View,
    /// The steps that do it.
    copies: Vec<usize>,
}

/// What step `i` does where it only copies of an intermediate tensor: both walks, in the source's order.
fn copy(graph: &FusedGraph, i: usize) -> Option<[(TensorId, View); 2]> {
    let step = &graph.steps[i];
    let [input] = step.inputs.as_slice() else { return None };
    if step.kind != StepKind::Pointwise || !step.expr.is_copy() || !input.is_plain() {
        return None;
    }
    let mut order: Vec<usize> = (0..input.view.rank()).collect();
    order.sort_by_key(|&d| (std::cmp::Reverse(input.view.strides[d]), d));
    let (from, to) = (input.view.permuted(&order), step.output.view.permuted(&order));
    // Neighbours stay neighbours: who writes them writes lines.
    let lines = order.is_sorted() || to.strides.last() == Some(&1);
    let passing = graph.tensor(input.tensor).role == Role::Intermediate && input.tensor != step.output.tensor;
    (lines && passing).then_some([(input.tensor, from), (step.output.tensor, to)])
}

/// Parts that are put together at most.
const MOST_PARTS: usize = 64;

/// If step `i` copies all of a tensor, or its first part, and with others the parts of it that they copy lie behind each other in the target as they do in the
/// source: what Split has taken apart and Concat puts together with more.
fn copied(graph: &FusedGraph, i: usize, touching: &[Vec<u32>]) -> Option<Copied> {
    let [(source, mut from), (target, mut to)] = copy(graph, i)?;
    let len = graph.tensor(source).len();
    let is_whole = |v: &View| v.offset == 0 && v.is_dense() && v.len() == len;
    let mut copies = vec![i];
    while from.offset == 0 && !is_whole(&from) && copies.len() < MOST_PARTS {
        let others = touching[source.index()].iter().map(|s| *s as usize).filter(|s| !copies.contains(s));
        let mut next = others.filter_map(|s| {
            let [(read, part), (written, place)] = copy(graph, s)?;
            let ((d, from), (e, to)) = (joined(&from, &part)?, joined(&to, &place)?);
            ((read, written, d) == (source, target, e)).then_some((s, from, to))
        });
        let (s, wider_from, wider_to) = next.next()?;
        (from, to) = (wider_from, wider_to);
        copies.push(s);
    }
    is_whole(&from).then_some(Copied { from: source, to: target, view: to, copies })
}

/// Two walks as one, where the second goes on behind the first along a dimension; and which that is.
fn joined(v: &View, part: &View) -> Option<(usize, View)> {
    if v.strides != part.strides {
        return None;
    }
    (0..v.rank()).find_map(|d| {
        let alike = (0..v.rank()).all(|e| e == d || v.dims[e] == part.dims[e]);
        let goes_on = part.offset == v.offset + v.dims[d] as i64 * v.strides[d];
        let mut whole = v.clone();
        whole.dims[d] += part.dims[d];
        (alike && goes_on).then_some((d, whole))
    })
}

/// Step `s` with every access to `from` redirected to `to`, or `None` when that is impossible or breaks a promise to the
/// kernels.
fn redirected(graph: &FusedGraph, s: usize, from: TensorId, to: TensorId, target: &View) -> Option<Step> {
    let mut step = graph.steps[s].clone();
    for a in step.inputs.iter_mut().chain([&mut step.output]) {
        if a.indirect.iter().any(|i| i.index == from) {
            return None;
        }
        if a.tensor == from {
            *a = redirect_access(a, to, target)?;
        }
    }
    // Vectors of a pointwise kernel may reach past the elements it reads, into those it writes.
    if step.kind == StepKind::Pointwise && step.inputs.iter().any(|a| a.tensor == step.output.tensor) {
        return None;
    }
    graph.step_promises(&step).ok()?;
    Some(step)
}

/// An access to a tensor redirected to what it is copied to, `target` of tensor `to`; `None` when strides cannot say that.
pub(super) fn redirect_access(a: &Access, to: TensorId, target: &View) -> Option<Access> {
    if !a.indirect.is_empty() {
        return None;
    }
    let Some(guard) = &a.guard else { return Some(Access::new(to, redirect(&a.view, target)?)) };
    // Only what a guard lets through is read; from its first element the view goes back to coordinates 0.
    let mut walked = a.view.clone();
    for (d, &(lo, hi)) in guard.ranges.iter().enumerate() {
        walked = walked.sliced(d, lo, 1, hi - lo);
    }
    let mut view = redirect(&walked, target)?;
    view.offset -= guard.ranges.iter().zip(&view.strides).map(|(r, s)| r.0 as i64 * s).sum::<i64>();
    view.dims.clone_from(&a.view.dims);
    Some(Access { tensor: to, view, guard: a.guard.clone(), indirect: Vec::new() })
}

/// A walk over a tensor as one over what it is copied to.
pub(super) fn redirect(view: &View, target: &View) -> Option<View> {
    // Dimensions that follow each other are one: a walk may go through several of them.
    let (mut radix, mut apart): (Vec<usize>, Vec<i64>) = (Vec::new(), Vec::new());
    for (&n, &s) in target.dims.iter().zip(&target.strides) {
        match (radix.last_mut(), apart.last_mut()) {
            (Some(many), Some(step)) if *step == s * n as i64 => (*many, *step) = (*many * n, s),
            _ => {
                radix.push(n);
                apart.push(s);
            }
        }
    }
    let place = dense_strides(&radix);
    let digits = |v: i64| -> Vec<i64> {
        let mut rest = v.abs();
        let list = place.iter().map(|&p| {
            let d = rest / p;
            rest %= p;
            d * v.signum()
        });
        list.collect()
    };
    let mut low = digits(view.offset);
    let mut high = low.clone();
    let mut strides = Vec::with_capacity(view.rank());
    let address = |d: &[i64]| d.iter().zip(&apart).map(|(a, b)| a * b).sum::<i64>();
    let offset = target.offset + address(&low);
    for (&n, &s) in view.dims.iter().zip(&view.strides) {
        let step = if n == 1 { vec![0; radix.len()] } else { digits(s) };
        for (j, &d) in step.iter().enumerate() {
            let reach = d * (n as i64 - 1);
            low[j] += reach.min(0);
            high[j] += reach.max(0);
        }
        strides.push(address(&step));
    }
    let exact = (0..radix.len()).all(|j| low[j] >= 0 && high[j] < radix[j] as i64);
    exact.then(|| View { offset, dims: view.dims.clone(), strides })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirected_views_reach_the_copied_elements() {
        // A [2, 3, 4] tensor copied into channels 1.. of a [2, 5, 4] one.
        let target = View::dense(&[2, 5, 4]).sliced(1, 1, 1, 3);
        let source = View::dense(&[2, 3, 4]);
        let views =
            [source.clone(), source.permuted(&[2, 0, 1]), source.sliced(2, 3, -1, 3), source.sliced(1, 1, 1, 2)];
        for v in views {
            let r = redirect(&v, &target).unwrap();
            for i in 0..v.len() {
                let (mut c, mut rest) = (vec![0; v.rank()], i);
                for d in (0..v.rank()).rev() {
                    c[d] = rest % v.dims[d];
                    rest /= v.dims[d];
                }
                let at = v.at(&c);
                let coords = [(at / 12) as usize, (at / 4 % 3) as usize, (at % 4) as usize];
                assert_eq!(r.at(&c), target.at(&coords), "{v} at {c:?}");
            }
        }
    }

    #[test]
    fn walks_across_the_gap_are_refused_and_others_go_on() {
        let target = View::dense(&[2, 5, 4]).sliced(1, 1, 1, 3);
        assert!(redirect(&View::dense(&[24]), &target).is_none());
        let whole = View::dense(&[1, 5, 4]).sliced(1, 1, 1, 3);
        // 12 elements in a row inside one image: neighbouring dimensions are walked as one.
        let row = View { offset: 4, dims: vec![12], strides: vec![1] };
        assert_eq!(redirect(&View::dense(&[12]), &whole), Some(row));
    }
}
