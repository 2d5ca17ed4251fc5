//! The strings that a model holds: what its outputs may be made of besides the strings of its inputs.

use super::fused::FusedGraph;
use crate::onnx::{Attribute, Graph, Model};
use crate::tensor::{HostTensor, Problem, Words};

/// All strings in constants and attributes of a model, and in inputs that became part of it.
pub(super) fn of_model(model: &Model, graph: &FusedGraph) -> Result<Words, Problem> {
    let mut words = Words::default();
    graph.fixed.values().try_for_each(|t| of_tensor(t, &mut words))?;
    of_graph(&model.graph, &mut words)?;
    Ok(words)
}

fn of_tensor(t: &HostTensor, words: &mut Words) -> Result<(), Problem> {
    t.words().map_or(Ok(()), |own| words.merge(own))
}

fn of_graph(graph: &Graph, words: &mut Words) -> Result<(), Problem> {
    graph.initializers.values().try_for_each(|t| of_tensor(t, words))?;
    for value in graph.nodes.iter().flat_map(|n| n.attributes.values()) {
        match value {
            Attribute::Tensor(t) => of_tensor(t, words)?,
            Attribute::Text(t) => words.add(t).map(drop)?,
            Attribute::Texts(list) => list.iter().try_for_each(|t| words.add(t).map(drop))?,
            Attribute::Graph(g) => of_graph(g, words)?,
            _ => {}
        }
    }
    // What an encoder gives for what it does not know.
    words.add("_Unused").map(drop)
}
