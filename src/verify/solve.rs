//! The fixed point of a forward analysis: states at the start of blocks, joined over all ways that lead there.

use super::code::Graph;
use std::collections::BTreeSet;

/// What an analysis does.
pub trait Analysis {
    /// What is known at a point of the program.
    type State: Clone;

    /// A block has run; true when there is something to report in it.
    fn pass(&self, block: usize, state: &mut Self::State) -> bool;

    /// Joins what is known on another way; true when that changed something.
    fn join(&self, state: &mut Self::State, other: &Self::State) -> bool;

    /// Hands the state at the end of a block to the blocks that come next.
    fn follow(&self, block: usize, state: &Self::State, to: &mut dyn FnMut(usize, &Self::State));
}

/// Runs an analysis from the kernel's entry. Gives the state at the start of each block that there is something to report
/// in; none when `budget` instructions did not suffice, which no compiler's code comes near to.
pub fn solve<A: Analysis>(g: &Graph, a: &A, start: A::State, budget: &mut usize) -> Option<Vec<(usize, A::State)>> {
    let mut found = vec![false; g.blocks.len()];
    let mut entry: Vec<Option<A::State>> = vec![None; g.blocks.len()];
    if g.blocks.is_empty() {
        return Some(Vec::new());
    }
    entry[g.entry] = Some(start);
    // blocks by their place in reverse postorder: predecessors first
    let mut work: BTreeSet<u32> = BTreeSet::from([g.rank[g.entry]]);
    while let Some(rank) = work.pop_first() {
        let b = g.by_rank[rank as usize] as usize;
        let Some(mut state) = entry[b].clone() else { continue };
        *budget = budget.checked_sub(g.blocks[b].lines.len() + 1)?;
        // with the state of the last time, which joins all
        found[b] = a.pass(b, &mut state);
        a.follow(b, &state, &mut |s, state| {
            let changed = match &mut entry[s] {
                Some(old) => a.join(old, state),
                none => {
                    *none = Some(state.clone());
                    true
                }
            };
            if changed {
                work.insert(g.rank[s]);
            }
        });
    }
    let blocks = entry.into_iter().enumerate().filter(|(b, _)| found[*b]);
    Some(blocks.filter_map(|(b, state)| Some((b, state?))).collect())
}
