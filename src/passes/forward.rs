//! Facts that hold where a block begins, found forwards over all paths.

use crate::mir::Function;
use std::collections::BTreeSet;

/// The state at the start of each block, none where control never comes: `pass` takes a state through a block, `join` adds
/// what another path brings and says whether that was new.
pub fn forward<S: Clone>(
    f: &Function,
    start: S,
    join: impl Fn(&mut S, &S) -> bool,
    mut pass: impl FnMut(usize, &mut S),
) -> Vec<Option<S>> {
    let mut entry: Vec<Option<S>> = vec![None; f.blocks.len()];
    // The first block of those first: most come before what they lead to.
    let mut work = BTreeSet::new();
    if let Some(first) = entry.first_mut() {
        *first = Some(start);
        work.insert(0);
    }
    while let Some(b) = work.pop_first() {
        let Some(mut state) = entry[b].clone() else { continue };
        pass(b, &mut state);
        for s in f.successors(b) {
            let changed = match &mut entry[s] {
                Some(old) => join(old, &state),
                none => none.replace(state.clone()).is_none(),
            };
            if changed {
                work.insert(s);
            }
        }
    }
    entry
}
