//! Steps that do the same to different tensors, one behind the other and none with what another gives, in one launch: its workgroups along z
//! have a set of arguments each ([`take_sets`](crate::mir::Function::take_sets)). The parts of a Concat are such, and those of a Split.

use super::cache::StepCode;
use super::kernel::KernelIr;
use crate::graph::fused::{FusedGraph, Role, Step, StepKind, TensorId};
use crate::graph::view::View;
use crate::kernels;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Bytes of arguments that a launch has at most.
const MOST_BYTES: usize = 2048;

/// Steps that look at each other before they are launched together, at most.
const MOST_STEPS: usize = 128;

/// What is launched together.
#[derive(Default)]
pub(super) struct Together {
    /// Of a graph's step all those that one launch computes.
    pub of: FxHashMap<(usize, usize), Arc<Vec<usize>>>,
    /// The kernel that takes so many sets of arguments, by the group of its steps; none where these have one that cannot.
    pub codes: BTreeMap<(usize, usize), (StepCode, Vec<KernelIr>)>,
}

impl Together {
    /// The kernel for so many steps of a group.
    pub fn code(&self, group: usize, sets: usize) -> Option<&StepCode> {
        self.codes.get(&(group, sets)).map(|(code, _)| code).filter(|code| !code.is_empty())
    }
}

/// What the kernel for so many steps is called.
pub(super) fn named(name: &str, sets: usize) -> String {
    if sets > 1 { format!("{name}_x{sets}") } else { name.to_string() }
}

/// What steps are called.
pub(super) fn described<'a>(mut names: impl Iterator<Item = &'a str>) -> String {
    let first = names.next().unwrap_or_default();
    match names.filter(|name| *name != first).count() {
        0 => first.to_string(),
        others => format!("{first} and {others} others"),
    }
}

/// The steps of a graph that are launched together, by lists in order. `code` are the kernels of a step, `group` tells steps that share them.
pub(super) fn find_together<'a>(
    graph: &FusedGraph,
    group: &[usize],
    code: impl Fn(usize) -> &'a StepCode,
) -> Vec<Vec<usize>> {
    let mut out = Vec::new();
    let mut first = 0;
    while first < graph.steps.len() {
        let mut window = Window::begin(graph, &graph.steps[first]);
        let mut end = first + 1;
        while end < graph.steps.len() && end - first < MOST_STEPS && window.take(&graph.steps[end]) {
            end += 1;
        }
        let mut lists: BTreeMap<(usize, Option<[u32; 3]>), Vec<usize>> = BTreeMap::new();
        for i in first..end {
            if let [kernel] = &code(i)[..]
                && (kernel.workspace, kernel.counters, kernel.rounds, kernel.sharing) == (0, 0, 1, [1; 3])
                && kernel.grid[2] == 1
            {
                lists.entry((group[i], kernels::grid(graph, &graph.steps[i]))).or_default().push(i);
            }
        }
        for list in lists.into_values() {
            let sets = MOST_BYTES / (8 * code(list[0])[0].args.len()).max(1);
            out.extend(list.chunks(sets.max(1)).filter(|some| some.len() > 1).map(<[usize]>::to_vec));
        }
        first = end;
    }
    out
}

/// Steps in a row that may be computed in any order, or at once: none reads what another writes, no two write the same elements, and the
/// memory of none is another's before.
struct Window<'a> {
    graph: &'a FusedGraph,
    reads: BTreeSet<TensorId>,
    passing: BTreeSet<TensorId>,
    output: TensorId,
    views: Vec<(TensorId, &'a View)>,
    /// All write parts of one tensor: what they read may end with each.
    joins: bool,
    /// All read the same of what steps before gave, which ends with the last.
    splits: bool,
}

fn reads(step: &Step) -> BTreeSet<TensorId> {
    step.inputs.iter().flat_map(|a| a.indirect.iter().map(|t| t.index).chain([a.tensor])).collect()
}

/// Those that only live for a while.
fn passing(graph: &FusedGraph, reads: &BTreeSet<TensorId>) -> BTreeSet<TensorId> {
    reads.iter().copied().filter(|t| graph.tensor(*t).role == Role::Intermediate).collect()
}

impl<'a> Window<'a> {
    fn begin(graph: &'a FusedGraph, step: &'a Step) -> Window<'a> {
        let (reads, output) = (reads(step), step.output.tensor);
        let able = step.kind == StepKind::Pointwise && !reads.contains(&output);
        let views = vec![(output, &step.output.view)];
        Window { graph, passing: passing(graph, &reads), reads, output, views, joins: able, splits: able }
    }

    /// One more step, if it may be.
    fn take(&mut self, step: &'a Step) -> bool {
        let (read, output) = (reads(step), step.output.tensor);
        let able = step.kind == StepKind::Pointwise
            && !read.contains(&output)
            && !self.views.iter().any(|(t, _)| read.contains(t))
            && !self.reads.contains(&output);
        let joins = able && self.joins && output == self.output;
        let splits = able && self.splits && passing(self.graph, &read) == self.passing;
        let apart = |(t, view): &(TensorId, &View)| *t != output || are_apart(view, &step.output.view);
        if !(joins || splits) || !self.views.iter().all(apart) {
            return false;
        }
        (self.joins, self.splits) = (joins, splits);
        self.views.push((output, &step.output.view));
        self.reads.extend(read);
        true
    }
}

/// True for views of one tensor that have no element in common, for one that can be told.
fn are_apart(a: &View, b: &View) -> bool {
    let (Some(x), Some(y)) = (a.extent(), b.extent()) else { return true };
    if x.1 < y.0 || y.1 < x.0 {
        return true;
    }
    // Parts of the same lines: what lies in these is apart.
    let longest = |v: &View| (0..v.rank()).filter(|d| v.dims[*d] > 1).max_by_key(|d| v.strides[*d]);
    let (Some(d), Some(e)) = (longest(a), longest(b)) else { return false };
    let stride = a.strides[d];
    if stride != b.strides[e] || stride <= 0 {
        return false;
    }
    let within = |v: &View, d: usize| {
        let mut line = v.clone();
        line.dims[d] = 1;
        line.offset %= stride;
        line.extent().filter(|(first, last)| *first >= 0 && *last < stride).map(|_| line)
    };
    match (within(a, d), within(b, e)) {
        (Some(a), Some(b)) => are_apart(&a, &b),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_lines_are_apart() {
        let whole = View::dense(&[4, 6, 5]);
        let part = |d: usize, first: usize, n: usize| whole.sliced(d, first, 1, n);
        for d in 0..3 {
            assert!(are_apart(&part(d, 0, 2), &part(d, 2, 2)) && !are_apart(&part(d, 0, 2), &part(d, 1, 2)));
            assert!(!are_apart(&whole, &part(d, 1, 1)) && !are_apart(&part(d, 3, 1), &whole));
        }
        assert!(are_apart(&part(1, 0, 2).sliced(2, 0, 1, 3), &part(2, 3, 2)));
        assert!(!are_apart(&part(0, 1, 2), &part(1, 1, 2)));
    }
}
