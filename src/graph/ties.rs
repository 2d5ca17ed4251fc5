//! Extents that have to be equal.
//!
//! Operators that join values ask for it: what is concatenated agrees in all other dimensions, the columns of a matrix are as many
//! as the rows of what it is multiplied with. An open inference keeps such pairs. Taken as equations, one after the other is
//! solved for a size that it contains, which is then replaced in all others: what is left are the sizes that can be chosen. Sizes
//! that only a run tells are replaced first. Of what broadcasts, extents are taken for equal too; one of them may be 1 as well, so what is settled here is a choice that fits,
//! not the only one.

use super::Types;
use super::dim::Dim;
use std::collections::{BTreeMap, BTreeSet};

impl Types {
    /// What these sizes have to be, as far as others of them decide it.
    pub fn settled(&self, sizes: &BTreeSet<String>) -> BTreeMap<String, Dim> {
        let mut settled: BTreeMap<String, Dim> = BTreeMap::new();
        for (a, b) in &self.ties {
            let mut difference = a - b;
            for name in difference.sizes() {
                if let Some(value) = settled.get(&name) {
                    difference = difference.with(&name, value);
                }
            }
            let Some((name, value)) = difference.root(|name| !sizes.contains(name)) else { continue };
            settled.values_mut().for_each(|other| *other = other.with(&name, &value));
            settled.insert(name, value);
        }
        settled.retain(|name, value| sizes.contains(name) && value.sizes().is_subset(sizes));
        settled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_follow_from_others() {
        let [batch, rows, past, new, mask, heads] = ["batch", "rows", "past", "new", "mask", "heads"].map(Dim::size);
        let n = Dim::Known;
        let ties = vec![
            (batch.clone(), rows.clone()),
            (&(&past + &new) * &batch, &(&past + &new) * &rows),
            (&past + &new, mask.clone()),
            (&heads * &n(8), n(32)),
            // Wrong, and nothing for now.
            (n(2), n(3)),
            // Of something that only a run tells.
            (new.clone(), Dim::size("found")),
            (&Dim::size("found").larger(&new) + &n(1), rows.clone()),
        ];
        let names = ["batch", "rows", "past", "new", "mask", "heads"].map(String::from).into();
        let settled = Types { ties, ..Types::default() }.settled(&names);
        let texts: Vec<String> = settled.iter().map(|(name, d)| format!("{name} = {d}")).collect();
        assert_eq!(texts, ["batch = new+1", "heads = 4", "mask = new+past", "rows = new+1"]);
    }
}
