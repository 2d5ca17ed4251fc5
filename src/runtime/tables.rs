//! What a device hands out, by number.

use super::ModuleId;
use std::collections::BTreeMap;

/// Modules, kernels (with the module that holds each), streams and events under numbers that are never used twice.
pub struct Tables<M, K, S, E> {
    next: u64,
    pub modules: BTreeMap<u64, M>,
    pub kernels: BTreeMap<u64, (ModuleId, K)>,
    pub streams: BTreeMap<u64, S>,
    pub events: BTreeMap<u64, E>,
}

// Derived, it would ask the types for a default, too.
impl<M, K, S, E> Default for Tables<M, K, S, E> {
    fn default() -> Self {
        let (modules, kernels) = (BTreeMap::new(), BTreeMap::new());
        Tables { next: 0, modules, kernels, streams: BTreeMap::new(), events: BTreeMap::new() }
    }
}

impl<M, K, S, E> Tables<M, K, S, E> {
    /// A number for something new.
    pub fn id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}
