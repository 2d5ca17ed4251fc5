//! From an imported model to a fused graph and its memory plan.
//!
//! [`fused`] is the interface to the kernels; [`expr`] and [`view`] are the two languages it is written in. [`fuse`] is the
//! whole way there.

mod abreast;
mod absorb;
mod activations;
mod apart;
mod ask;
mod attend;
mod begin;
mod bytes;
mod cached;
mod clusters;
pub(crate) mod collapse;
mod compose;
mod computed;
mod constants;
mod cut;
pub mod dim;
pub(crate) mod drawn;
mod early;
mod error;
pub mod expr;
mod far;
mod finish;
mod forward;
pub mod fused;
mod gated;
mod infer;
pub mod interpret;
mod join;
pub mod kinds;
mod large;
mod layout;
mod lazy;
pub(crate) mod lower;
mod made;
mod narrow;
mod nibbles;
mod norms;
mod ops;
mod paged;
mod pairs;
mod partial;
mod parts;
pub mod plan;
mod points;
mod precision;
mod prune;
mod repeat;
mod resolve;
mod rules;
mod scaled;
mod shallow;
mod shapes;
mod shared;
mod sparse;
mod standardize;
mod store;
mod sums;
mod ties;
mod unpack;
mod untorn;
mod uses;
pub mod view;
mod windows;
mod words;

pub(crate) use apart::take_rows_apart;
pub use attend::attend;
pub(crate) use begin::{begin_convolutions, begin_with_norms};
pub(crate) use cached::keep_caches;
pub(crate) use computed::compute_lines;
pub(crate) use constants::computed_constants;
pub use cut::{Between, Cut, cut};
pub use dim::Dim;
pub use error::{Error, InputError, NameError, Reason};
pub use far::split_far;
pub(crate) use far::walked;
pub(crate) use finish::finish_with_norms;
pub(crate) use infer::check_operator;
pub(crate) use interpret::PAIRED;
pub use large::{LARGEST, split_large};
pub(crate) use layout::{Way, keep_channels_last};
pub(crate) use made::make_lines;
pub(crate) use narrow::narrow_factors;
pub(crate) use nibbles::nibble_factors;
pub(crate) use ops::nothing_collected;
pub use ops::supported as supported_operators;
pub(crate) use paged::read_by_tables;
pub(crate) use pairs::{gate_dense_products, gate_widened_products};
pub(crate) use partial::{Cuts, comes_out_even, in_pieces};
pub(crate) use parts::unite_parts;
pub(crate) use points::multiply_points;
pub use precision::in_type;
pub(crate) use scaled::scaled_factors;
pub(crate) use shallow::spread_shallow_products;
pub use shapes::{Note, check_tensors};
pub(crate) use sparse::sparse_factors;
pub(crate) use standardize::{Turned, standardize};
pub(crate) use sums::sum_convolutions;
pub(crate) use unpack::unpack_weights;
pub(crate) use windows::join_windows;

use crate::onnx::{Dim as Declared, Model, Structure, ValueInfo};
use crate::tensor::{DType, HostTensor};
use fused::FusedGraph;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

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
    /// What [`open_types`] says of the model, for who fuses it for many shapes; found out anew otherwise.
    pub types: Option<Arc<Types>>,
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
    let mut resolved = timed!("resolve", resolve::resolve(model))?;
    let shapes = shapes::input_shapes(model, options)?;
    let clusters = timed!("find_clusters", clusters::find_clusters(&resolved));
    let mut graph = loop {
        match timed!("lower", lower::lower(&resolved, &shapes.list, clusters.clone())) {
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
    if graph.outputs.iter().any(|o| graph.tensor(*o).dtype == DType::Str) {
        graph.words = words::of_model(model, &graph).map_err(Error::Words)?;
    }
    graph.notes.extend(check_outputs(model, &graph)?);
    timed!("store_as_read", untorn::store_as_read(&mut graph));
    timed!("absorb_elementwise", absorb::absorb_elementwise(&mut graph));
    timed!("forward_writes", forward::forward_writes(&mut graph));
    timed!("begin_reductions", begin::begin_reductions(&mut graph));
    timed!("prune", prune::prune(&mut graph));
    timed!("make_early", early::make_early(&mut graph));
    timed!("store_bytes", bytes::store_bytes(&mut graph));
    timed!("join_products", join::join_products(&mut graph));
    timed!("gate_products", gated::gate_products(&mut graph));
    timed!("read_repeated", repeat::read_repeated(&mut graph));
    timed!("join_elementwise", abreast::join_elementwise(&mut graph));
    timed!("collapse_views", collapse::collapse_views(&mut graph));
    timed!("split_large", split_large(&mut graph, LARGEST));
    graph.check().map_err(|rule| Error::Internal { pass: "fuse", rule })?;
    name_dims(model, options, &mut graph);
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

/// Element type and dimensions of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueType {
    /// Its element type.
    pub dtype: DType,
    /// Its dimensions, outermost first.
    pub dims: Vec<Dim>,
}

/// What inference finds out about a model.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Types {
    /// Type and dimensions of values by name: of inputs, constants, and what nodes compute, but for the graphs inside of
    /// nodes, and for nodes that are refused or read what such compute.
    pub values: BTreeMap<String, ValueType>,
    /// Nodes that are refused: their numbers in [`Graph::nodes`](crate::onnx::Graph::nodes), and why.
    pub refused: Vec<(usize, Reason)>,
    /// Extents that nodes need to be equal, where that depends on run-time sizes.
    pub ties: Vec<(Dim, Dim)>,
}

/// Infers types and shapes without compiling anything. Extents that neither the model nor `options` tell are named
/// run-time sizes: by their symbol, by their place (`input[2]`), or, where only a run tells, by the value that has them.
///
/// # Errors
/// When names do not fit together, or an input declares no type or number of dimensions and none are given.
pub fn infer(model: &Model, options: &Options) -> Result<Types, Error> {
    let resolved = resolve::resolve(model)?;
    let inputs = shapes::input_dims(model, options)?;
    let inference = infer::Inference::open(&resolved, &inputs);
    let mut types = Types::default();
    let outer = resolved.top().flat_map(|i| resolved.nodes[i as usize].outputs.iter().flatten().copied());
    let given = (0..resolved.sources.len()).filter(|i| resolved.sources[*i] != resolve::Source::Node);
    for v in given.map(|i| resolve::ValueId(i as u32)).chain(outer) {
        if let Some(fact) = inference.fact(v) {
            let value = ValueType { dtype: fact.dtype, dims: fact.dims.clone() };
            types.values.insert(resolved.names[v.index()].to_string(), value);
        }
    }
    for i in resolved.top() {
        let number = model.graph.nodes.iter().position(|n| std::ptr::eq(n, resolved.nodes[i as usize].node));
        if let (Some(number), Some(reason)) = (number, inference.refused(i)) {
            types.refused.push((number, reason.clone()));
        }
    }
    types.ties = inference.into_ties();
    Ok(types)
}

/// Names the dimensions that the model leaves open: of inputs as it does, of outputs by what they are made of, where that
/// is the inputs' sizes.
fn name_dims(model: &Model, options: &Options, graph: &mut FusedGraph) {
    let types = options.types.clone().unwrap_or_else(|| open_types(model));
    let mut inputs: BTreeSet<String> = BTreeSet::new();
    let (given, made) = (graph.inputs.clone(), graph.outputs.clone());
    for (info, id) in model.required_inputs().zip(given) {
        let Some(dims) = &info.shape else { continue };
        let names: Vec<Option<String>> = dims.iter().enumerate().map(|(i, d)| shapes::open_name(info, i, d)).collect();
        inputs.extend(names.iter().flatten().cloned());
        note_names(graph, id, names);
    }
    for id in made {
        let Some(info) = declared_output(model, graph, id) else { continue };
        let inferred = types.values.get(&info.name).map(|t| &t.dims);
        let rank = graph.tensor(id).shape.len();
        let name = |i: usize| {
            let declared = info.shape.as_ref().and_then(|dims| dims.get(i));
            match inferred.and_then(|dims| dims.get(i)) {
                Some(d) if d.known().is_none() && d.sizes().is_subset(&inputs) => Some(d.to_string()),
                _ => shapes::open_name(info, i, declared?),
            }
        };
        let names = (0..rank).map(name).collect();
        note_names(graph, id, names);
    }
}

/// What [`infer`] says of a model when nothing is given, if there are sizes to be named; as far as it gets.
pub fn open_types(model: &Model) -> Arc<Types> {
    let open = |d: &Declared| !matches!(d, Declared::Known(_));
    let sized = model.required_inputs().filter_map(|i| i.shape.as_ref()).flatten().any(open);
    Arc::new(if sized { infer(model, &Options::default()).unwrap_or_default() } else { Types::default() })
}

fn note_names(graph: &mut FusedGraph, id: fused::TensorId, names: Vec<Option<String>>) {
    if names.iter().any(Option::is_some) && names.len() == graph.tensor(id).shape.len() {
        graph.open_dims.insert(id, names);
    }
}

/// The declaration of an output; none for elements of a sequence.
fn declared_output<'m>(model: &'m Model, graph: &FusedGraph, id: fused::TensorId) -> Option<&'m ValueInfo> {
    model.graph.outputs.iter().find(|o| o.name == graph.tensor(id).name)
}

/// Fails when the model declares an output of another type or structure than it computes: whoever reads it would misread it. Another shape
/// is worth a note: arrays have their shapes with them.
fn check_outputs(model: &Model, graph: &FusedGraph) -> Result<Vec<Note>, Error> {
    let mut notes = Vec::new();
    for declared in &model.graph.outputs {
        let is_tensor = graph.outputs.iter().any(|id| graph.tensor(*id).name == declared.name);
        let (declared_as, computed) = match model.structures.get(&declared.name) {
            Some(s @ (Structure::Sequence(_) | Structure::OptionalSequence(_))) if is_tensor => (s.name(), "a tensor"),
            // ZipMap gives the table that its maps are made of.
            Some(s @ Structure::Maps) if !model.graph.nodes.iter().any(|n| n.op == "ZipMap") => (s.name(), "none"),
            None if declared.dtype.is_some() && !is_tensor => {
                ("a tensor", "a sequence, or an optional without a value")
            }
            _ => continue,
        };
        let name = declared.name.clone();
        return Err(Error::OutputStructure { name, declared: declared_as, computed });
    }
    for id in &graph.outputs {
        let Some(declared) = declared_output(model, graph, *id) else { continue };
        let (computed, shape) = (graph.tensor(*id).dtype, &graph.tensor(*id).shape);
        if let Some(dtype) = declared.dtype
            && dtype != computed
        {
            return Err(Error::OutputType { name: declared.name.clone(), declared: dtype, computed });
        }
        let differs = |(d, n): (&Declared, &usize)| matches!(d, Declared::Known(k) if k != n);
        if let Some(dims) = &declared.shape
            && (dims.len() != shape.len() || dims.iter().zip(shape).any(differs))
        {
            let made = ValueInfo {
                shape: Some(shape.iter().map(|n| Declared::Known(*n)).collect()),
                dtype: Some(computed),
                ..declared.clone()
            };
            let (declared, computed) = (declared.described(), made.described());
            notes.push(Note::OutputShape { output: made.name, declared, computed });
        }
    }
    Ok(notes)
}
