//! Finds values that are read several times but still need not be stored.
//!
//! A value with several readers is normally written to memory once. That would split `x * sigmoid(x)`, GELU, Mish and
//! other activations into two kernels. So for each such value this pass walks forward from its readers, in order, for a
//! few nodes: when all are elementwise and everything joins again in one value, the whole region becomes one expression
//! and its inner values stay unstored. So does a value that is only cut into parts which one Concat puts together.

use super::ops;
use super::resolve::{Resolved, ValueId};
use std::collections::BTreeMap;

/// Regions with more nodes are not worth one expression.
const MAX_NODES: usize = 16;

/// For each value: true when it may be recomputed by each of its readers because they end up in one kernel.
pub(crate) fn find_clusters(r: &Resolved<'_>) -> Vec<bool> {
    let mut readers: Vec<Vec<u32>> = vec![Vec::new(); r.sources.len()];
    for (i, node) in r.nodes.iter().enumerate() {
        node.reads().for_each(|v| readers[v.index()].push(i as u32));
    }
    let mut inline = vec![false; r.sources.len()];
    let elementwise: Vec<bool> =
        r.nodes.iter().map(|n| ops::find(&n.node.domain, &n.node.op).is_some_and(|o| o.elementwise)).collect();
    for node in &r.nodes {
        for &out in node.outputs.iter().flatten() {
            if r.uses[out.index()] > 1
                && !inline[out.index()]
                && let Some(inner) = region(r, &readers, &elementwise, out)
            {
                for v in inner {
                    inline[v.index()] = true;
                }
            }
            inline[out.index()] |= is_put_together(r, &readers, out);
        }
    }
    inline
}

/// All who read a value cut parts of it, and one Concat reads each of these, once.
fn is_put_together(r: &Resolved<'_>, readers: &[Vec<u32>], value: ValueId) -> bool {
    let node = |n: u32| &r.nodes[n as usize];
    let is = |n: u32, ops: &[&str]| node(n).node.domain.is_empty() && ops.contains(&node(n).node.op.as_str());
    let mut all = None;
    let cuts = |n: u32| is(n, &["Slice", "Split"]) && node(n).inputs.first() == Some(&Some(value));
    let parts = readers[value.index()].iter().filter(|n| cuts(**n)).flat_map(|n| node(*n).outputs.iter().flatten());
    let together = parts.map(|part| &readers[part.index()][..]).all(|list| match list {
        [n] => *all.get_or_insert(*n) == *n && is(*n, &["Concat"]),
        _ => false,
    });
    together && readers[value.index()].iter().all(|n| cuts(*n)) && all.is_some()
}

/// The values from `start` up to where its readers join again, without the joining value.
fn region(r: &Resolved<'_>, readers: &[Vec<u32>], elementwise: &[bool], start: ValueId) -> Option<Vec<ValueId>> {
    // Values whose readers are not all visited yet, with the number of reads left.
    let mut open: BTreeMap<ValueId, u32> = BTreeMap::from([(start, r.uses[start.index()])]);
    let mut inner = vec![start];
    let mut last: Option<u32> = None;
    for _ in 0..MAX_NODES {
        let next = open
            .keys()
            .flat_map(|v| readers[v.index()].iter().copied())
            .filter(|&n| last.is_none_or(|l| n > l))
            .min()?;
        if !elementwise[next as usize] {
            return None;
        }
        last = Some(next);
        let node = &r.nodes[next as usize];
        for v in node.inputs.iter().flatten() {
            if let Some(left) = open.get_mut(v) {
                *left -= 1;
                if *left == 0 {
                    open.remove(v);
                }
            }
        }
        for &o in node.outputs.iter().flatten() {
            open.insert(o, r.uses[o.index()]);
            inner.push(o);
        }
        if open.len() == 1 {
            let (&exit, _) = open.first_key_value()?;
            inner.retain(|&v| v != exit);
            return Some(inner);
        }
    }
    None
}
