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
        step.written().for_each(|t| change(&mut self.writers[t.index()]));
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

#[cfg(test)]
mod tests {
    use super::super::expr::Expr;
    use super::super::fused::{Access, Role, StepKind, Tensor, TensorId};
    use super::super::view::View;
    use super::*;
    use crate::tensor::DType;

    fn copy(from: u32, to: u32) -> Step {
        let access = |t: u32| Access::new(TensorId(t), View::dense(&[4]));
        let (name, kind) = (format!("{from} to {to}"), StepKind::Pointwise);
        Step { name, kind, inputs: vec![access(from)], expr: Expr::copy(DType::F32), output: access(to) }
    }

    fn tensor(role: Role) -> Tensor {
        Tensor { name: "t".into(), dtype: DType::F32, shape: vec![4], role }
    }

    /// An input, two tensors between, and an output.
    fn chain() -> FusedGraph {
        let roles = [Role::Input(0), Role::Intermediate, Role::Intermediate, Role::Output(0)];
        FusedGraph {
            tensors: roles.map(tensor).into(),
            steps: vec![copy(0, 1), copy(1, 2), copy(2, 3)],
            inputs: vec![TensorId(0)],
            outputs: vec![TensorId(3)],
            ..FusedGraph::default()
        }
    }

    #[test]
    fn a_refused_change_leaves_nothing() {
        let graph = chain();
        let mut changing = Changing::of(&graph);
        changing.attempt(|graph, _| {
            graph.add_tensor(tensor(Role::Intermediate));
            None
        });
        assert_eq!(changing.graph(), &graph);
        assert!(changing.end().is_none());
    }

    #[test]
    fn uses_are_those_of_the_changed_graph() {
        let graph = chain();
        let mut changing = Changing::of(&graph);
        // The second step goes; what it gave comes by a new tensor.
        changing.attempt(|graph, uses| {
            assert_eq!((&uses.writers[1][..], &uses.readers[1][..]), (&[0][..], &[1][..]));
            let new = graph.add_tensor(tensor(Role::Intermediate));
            Some(vec![(0, Some(copy(0, new.0))), (1, None), (2, Some(copy(new.0, 3)))])
        });
        let mut left = changing.graph().clone();
        left.steps[1] = left.steps[0].clone();
        let mut want = Uses::of(&left);
        want.writers.iter_mut().chain(&mut want.readers).for_each(|list| list.retain(|i| *i != 1));
        assert_eq!(changing.uses().writers, want.writers);
        assert_eq!(changing.uses().readers, want.readers);
        let end = changing.end().expect("it has changed");
        assert_eq!((end.steps.len(), end.tensors.len()), (2, 3), "{end}");
    }
}
