//! Who writes and reads each tensor, and graphs that change by and by.
//!
//! A pass that asks whether a change is worth it tries many and makes few, in graphs of any length: [`Changing`] copies the graph once, takes
//! back what a refused change has added, and keeps up with who writes and reads what by looking at changed steps alone.

use super::fused::{FusedGraph, Step};
use super::prune::prune;

/// The steps that write and read each tensor, in order.
pub(super) struct Uses {
    pub writers: Vec<Vec<usize>>,
    pub readers: Vec<Vec<usize>>,
}

impl Uses {
    pub fn of(graph: &FusedGraph) -> Uses {
        let mut uses = Uses { writers: Vec::new(), readers: Vec::new() };
        uses.cover(graph);
        for (i, step) in graph.steps.iter().enumerate() {
            uses.insert(i, step);
        }
        uses
    }

    /// Takes note of a tensor that is added.
    pub fn add(&mut self, writer: Option<usize>, readers: Vec<usize>) {
        self.writers.push(writer.into_iter().collect());
        self.readers.push(readers);
    }

    /// Has lists for the tensors that the graph has now, and for no others.
    fn cover(&mut self, graph: &FusedGraph) {
        self.writers.resize_with(graph.tensors.len(), Vec::new);
        self.readers.resize_with(graph.tensors.len(), Vec::new);
    }

    fn insert(&mut self, i: usize, step: &Step) {
        self.each(step, |list| {
            if let Err(place) = list.binary_search(&i) {
                list.insert(place, i);
            }
        });
    }

    fn remove(&mut self, i: usize, step: &Step) {
        self.each(step, |list| {
            if let Ok(place) = list.binary_search(&i) {
                list.remove(place);
            }
        });
    }

    /// The lists that a step stands in.
    fn each(&mut self, step: &Step, mut change: impl FnMut(&mut Vec<usize>)) {
        change(&mut self.writers[step.output.tensor.index()]);
        for t in step.inputs.iter().flat_map(|a| a.indirect.iter().map(|x| x.index).chain([a.tensor])) {
            change(&mut self.readers[t.index()]);
        }
    }
}

/// Steps that take the place of others, by their numbers; `None` where there is to be none.
pub(super) type Changes = Vec<(usize, Option<Step>)>;

/// A graph that changes.
pub(super) struct Changing<'g> {
    before: &'g FusedGraph,
    /// A copy, from the first change on that was tried.
    now: Option<FusedGraph>,
    uses: Uses,
    /// Steps that are to go; until the end they keep their numbers.
    gone: Vec<bool>,
    changed: bool,
}

impl<'g> Changing<'g> {
    pub fn of(graph: &'g FusedGraph) -> Changing<'g> {
        let gone = vec![false; graph.steps.len()];
        Changing { before: graph, now: None, uses: Uses::of(graph), gone, changed: false }
    }

    /// The graph as it is now. Steps that are to go are among its steps.
    pub fn graph(&self) -> &FusedGraph {
        self.now.as_ref().unwrap_or(self.before)
    }

    /// Who writes and reads its tensors: not the steps that are to go.
    pub fn uses(&self) -> &Uses {
        &self.uses
    }

    /// Tries a change, which may add tensors and leaves steps alone: those that it gives are put in their places. Where it gives none, what
    /// it has added is taken back.
    pub fn attempt(&mut self, change: impl FnOnce(&mut FusedGraph, &Uses) -> Option<Changes>) {
        let graph = self.now.get_or_insert_with(|| self.before.clone());
        let tensors = graph.tensors.len();
        let Some(changes) = change(graph, &self.uses) else {
            graph.tensors.truncate(tensors);
            return;
        };
        self.uses.cover(graph);
        for (i, step) in changes {
            self.uses.remove(i, &graph.steps[i]);
            match step {
                Some(step) => {
                    self.uses.insert(i, &step);
                    graph.steps[i] = step;
                }
                None => self.gone[i] = true,
            }
        }
        self.changed = true;
    }

    /// The graph without what is of no use any more; `None` where nothing has changed.
    pub fn end(self) -> Option<FusedGraph> {
        let mut graph = self.now.filter(|_| self.changed)?;
        let mut gone = self.gone.into_iter();
        graph.steps.retain(|_| !gone.next().unwrap_or(false));
        prune(&mut graph);
        Some(graph)
    }
}
