//! Steps in a row that one launch computes, one behind the other ([`Link`](crate::kernels::Link)): those that memory bounds, and that take little longer
//! than a launch does. A step whose weights another one gives begins a launch. A model's layers repeat: a launch computes the same steps in rounds, which share their
//! code, and as many of these as their arguments let it.

use super::cache::StepCode;
use super::kernel::KernelIr;
use super::link::MOST_BYTES;
use crate::graph::fused::{Access, FusedGraph};
use crate::kernels::loaded_ahead;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Arguments that a step has more where it shares its launch; one that is a round by itself has another one.
const MORE: usize = 3;

/// What is launched as one.
#[derive(Default)]
pub(super) struct Chains {
    /// Of a graph's step all those of its launch.
    pub of: FxHashMap<(usize, usize), Arc<Vec<usize>>>,
    /// Their kernel and what it is called, by the groups of its steps; none where they cannot have one.
    pub codes: BTreeMap<Vec<usize>, (String, StepCode, Vec<KernelIr>)>,
}

impl Chains {
    /// The name and the kernel for steps of these groups.
    pub fn code(&self, groups: &[usize]) -> Option<(&str, &StepCode)> {
        let (name, code, _) = self.codes.get(groups)?;
        (!code.is_empty()).then_some((name, code))
    }
}

/// The steps of a graph that one launch could compute, by lists in order. `code` are the kernels of a step by itself, `group` tells steps that share them,
/// `able` those that can wait for others.
pub(super) fn find_chains<'a>(
    graph: &FusedGraph,
    group: &[usize],
    code: impl Fn(usize) -> &'a StepCode,
    able: impl Fn(usize) -> bool,
) -> Vec<Vec<usize>> {
    let mut known: FxHashMap<usize, bool> = FxHashMap::default();
    let mut fits = |i: usize| {
        *known.entry(group[i]).or_insert_with(|| {
            let [kernel] = &code(i)[..] else { return false };
            (kernel.rounds, kernel.blobs.is_empty()) == (1, true) && able(i)
        })
    };
    // The end of those that begin with a step.
    let mut extent = |first: usize| {
        let (mut end, mut round, mut kernels, mut args) = (first, None, 0, 0);
        while end < graph.steps.len() && fits(end) {
            let list = first..end;
            match round {
                Some(steps) if group[end] != group[end - steps] => break,
                None if group[end] == group[first] && end > first => round = Some(end - first),
                None if list.clone().any(|s| group[s] == group[end]) => break,
                _ => {}
            }
            kernels += code(end).len();
            args += code(end).iter().map(|k| k.args.len()).sum::<usize>();
            let bytes = 8 * (args + kernels * (MORE + usize::from(round == Some(1))));
            let given = |a: &&Access| list.clone().any(|s| graph.steps[s].written().any(|t| t == a.tensor));
            if bytes > MOST_BYTES || loaded_ahead(&graph.steps[end]).iter().any(given) {
                break;
            }
            end += 1;
        }
        // A round that has begun is there as a whole.
        round.map_or(end, |steps| end - (end - first) % steps)
    };
    let mut out: Vec<Vec<usize>> = Vec::new();
    let mut first = 0;
    while first < graph.steps.len() {
        let end = extent(first);
        if end > first + 1 {
            out.push((first..end).collect());
        }
        first = end.max(first + 1);
    }
    out
}

/// Steps of a round, of those of a launch by their groups.
pub(super) fn round_of(groups: &[usize]) -> usize {
    groups.iter().skip(1).position(|g| *g == groups[0]).map_or(groups.len(), |n| n + 1)
}
