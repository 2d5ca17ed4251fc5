//! Steps in a row that one launch computes, one behind the other ([`Link`](crate::kernels::Link)): those that memory bounds, and that take little longer
//! than a launch does. A step whose weights another one gives begins a launch. A model's layers repeat: a launch has no step twice, so that layers share their code.

use super::cache::StepCode;
use super::kernel::{KernelCode, KernelIr};
use crate::graph::fused::{Access, FusedGraph};
use crate::kernels::loaded_ahead;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes of arguments that a launch has at most.
const MOST_BYTES: usize = 2048;

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
    pub fn code(&self, groups: &[usize]) -> Option<(&str, &KernelCode)> {
        let (name, code, _) = self.codes.get(groups)?;
        Some((name, code.first()?))
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
    let mut out: Vec<Vec<usize>> = Vec::new();
    let mut list: Vec<usize> = Vec::new();
    let mut bytes = 0;
    for i in 0..graph.steps.len() {
        let own = code(i).iter().map(|k| 8 * (k.args.len() + 3)).sum::<usize>();
        let takes = fits(i);
        let given = |a: &Access| list.iter().any(|s| graph.steps[*s].written().any(|t| t == a.tensor));
        let waits = loaded_ahead(&graph.steps[i]).iter().any(given);
        if !takes || waits || list.iter().any(|s| group[*s] == group[i]) || bytes + own > MOST_BYTES {
            out.push(std::mem::take(&mut list));
            bytes = 0;
        }
        if takes {
            list.push(i);
            bytes += own;
        }
    }
    out.push(list);
    out.retain(|list| list.len() > 1);
    out
}
