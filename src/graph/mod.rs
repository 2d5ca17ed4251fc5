//! From an imported model to a fused graph and its memory plan.
//!
//! [`fused`] is the interface to the kernels; [`expr`] and [`view`] are the two languages it is written in. [`fuse`] is the
//! whole way there.

mod ask;
mod clusters;
pub(crate) mod collapse;
mod compose;
mod cut;
pub mod dim;
mod error;
pub mod expr;
mod forward;
pub mod fused;
mod infer;
pub mod interpret;
pub mod kinds;
mod lazy;
pub(crate) mod lower;
mod ops;
pub mod plan;
mod prune;
mod resolve;
mod rules;
mod shapes;
mod store;
pub mod view;

pub use cut::{Cut, cut};
pub use error::{Error, InputError, NameError, Reason};
pub use ops::supported as supported_operators;
pub use shapes::Note;

use crate::onnx::{Dim, Model};
use crate::tensor::HostTensor;
use fused::FusedGraph;
use std::collections::BTreeMap;

/// What the caller may decide.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Extents of the model's symbolic dimensions, by name.
    pub dims: BTreeMap<String, usize>,
    /// Shapes of the arrays that will be given, by the input's name.
    pub shapes: BTreeMap<String, Vec<usize>>,
    /// Arrays that will be given, by the input's name. Those whose values have to be known when the model is compiled
    /// (they decide shapes, or which branch is taken) become part of it, no others.
    pub values: BTreeMap<String, HostTensor>,
}

/// Larger arrays never become part of a model: nothing that decides shapes is.
const MOST_FIXED: usize = 4096;

/// How the nodes of a model fare one by one: each node that some output needs (but for those in branches that are not
/// taken) with what becomes of it, and the steps of those that can be lowered.
pub(crate) fn survey<'m>(
    model: &'m Model,
    options: &'m Options,
) -> Result<(Vec<(&'m crate::onnx::Node, lower::Outcome)>, FusedGraph), Error> {
    let mut resolved = resolve::resolve(model)?;
    let shapes = shapes::input_shapes(model, options)?;
    let clusters = clusters::find_clusters(&resolved);
    let (outcomes, graph) = loop {
        let (outcomes, graph) = lower::survey(&resolved, &shapes.list, clusters.clone());
        let undecided = outcomes.iter().find_map(|(i, outcome)| match outcome {
            lower::Outcome::Refused(reason) => reason.undecided(*i),
            _ => None,
        });
        match undecided {
            Some((node, input)) if fix(&mut resolved, options, node, input) => {}
            _ => break (outcomes, graph),
        }
    };
    Ok((outcomes.into_iter().map(|(i, outcome)| (resolved.nodes[i as usize].node, outcome)).collect(), graph))
}

/// Turns a model into kernel launches.
pub fn fuse(model: &Model, options: &Options) -> Result<FusedGraph, Error> {
    let mut resolved = resolve::resolve(model)?;
    let shapes = shapes::input_shapes(model, options)?;
    let clusters = clusters::find_clusters(&resolved);
    let mut graph = loop {
        match lower::lower(&resolved, &shapes.list, clusters.clone()) {
            Ok(graph) => break graph,
            Err((node, reason)) => {
                let undecided = reason.undecided(node);
                if !undecided.is_some_and(|(node, input)| fix(&mut resolved, options, node, input)) {
                    let node = resolved.nodes[node as usize].node;
                    let error = Error::Node { node: node.name.clone(), op: lower::qualified(node), reason };
                    return Err(error.noted(&shapes.notes));
                }
            }
        }
    };
    graph.notes = shapes.notes;
    for (i, value) in resolved.fixed.iter().enumerate() {
        if let Some(value) = value {
            graph.fixed.insert(graph.inputs[i], (*value).clone());
            graph.notes.push(Note::Fixed { input: resolved.names[resolved.inputs[i].index()].into() });
        }
    }
    check(&graph, "lower")?;
    check_outputs(model, &graph)?;
    forward::forward_writes(&mut graph);
    check(&graph, "forward_writes")?;
    prune::prune(&mut graph);
    check(&graph, "prune")?;
    collapse::collapse_views(&mut graph);
    check(&graph, "collapse_views")?;
    name_dims(model, &mut graph);
    Ok(graph)
}

/// Makes the inputs that decide input `input` of a node part of the model, when their values are known; false when they are
/// not, or are part of it already.
fn fix<'o>(resolved: &mut resolve::Resolved<'o>, options: &'o Options, node: u32, input: usize) -> bool {
    let Some(Some(value)) = resolved.nodes[node as usize].inputs.get(input) else { return false };
    let mut changed = false;
    for i in resolved.inputs_behind(*value) {
        let name = resolved.names[resolved.inputs[i].index()];
        match options.values.get(name) {
            _ if resolved.fixed[i].is_some() => {}
            Some(t) if t.len() <= MOST_FIXED => {
                resolved.fixed[i] = Some(t);
                changed = true;
            }
            _ => return false,
        }
    }
    changed
}

/// Takes over how the model names the dimensions that it leaves open.
fn name_dims(model: &Model, graph: &mut FusedGraph) {
    let ports = model.required_inputs().zip(&graph.inputs).chain(model.graph.outputs.iter().zip(&graph.outputs));
    for (info, id) in ports {
        let Some(dims) = &info.shape else { continue };
        let name = |(i, d): (usize, &Dim)| match d {
            Dim::Known(_) => None,
            Dim::Symbol(s) => Some(s.clone()),
            Dim::Unknown => Some(format!("{}[{i}]", info.name)),
        };
        let names: Vec<Option<String>> = dims.iter().enumerate().map(name).collect();
        if names.iter().any(Option::is_some) && names.len() == graph.tensors[id.index()].shape.len() {
            graph.open_dims.insert(*id, names);
        }
    }
}

/// Fails when the model declares an output of another type than it computes: whoever reads it would misread it.
fn check_outputs(model: &Model, graph: &FusedGraph) -> Result<(), Error> {
    for (declared, id) in model.graph.outputs.iter().zip(&graph.outputs) {
        let computed = graph.tensor(*id).dtype;
        if let Some(dtype) = declared.dtype
            && dtype != computed
        {
            return Err(Error::OutputType { name: declared.name.clone(), declared: dtype, computed });
        }
    }
    Ok(())
}

fn check(graph: &FusedGraph, pass: &'static str) -> Result<(), Error> {
    graph.check().map_err(|rule| Error::Internal { pass, rule })
}
