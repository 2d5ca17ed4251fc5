//! Cuts a model in two where a value has to be known before the rest can be compiled: how many elements a NonZero finds,
//! which branch an If takes, how often a Loop goes round.
//!
//! The first part computes that value, with everything on the way to it; the rest takes over what the first part has computed,
//! the value itself as a constant. So only what decides is read back, and nothing is computed twice.

use super::{Error, Options, clusters, fix, lower, resolve, shapes};
use crate::onnx::{Attribute, Dim, Graph, Model, Node, ValueInfo};
use crate::tensor::HostTensor;
use std::collections::{BTreeMap, BTreeSet};

/// A model whose first part has to be run before the rest is compiled.
#[derive(Clone, Debug)]
pub struct Cut {
    /// Computes what the rest needs; the value that decides is its first output.
    pub first: Model,
    rest: Model,
    /// What the rest takes over besides that value.
    crossing: Vec<String>,
}

impl Cut {
    /// The name of the value that decides.
    pub fn deciding(&self) -> &str {
        self.first.graph.outputs.first().map_or("", |o| &o.name)
    }

    /// The second part, for what the first part gave, and its inputs that come from there.
    pub fn rest(mut self, outputs: Vec<HostTensor>) -> (Model, BTreeMap<String, HostTensor>) {
        let name = self.deciding().to_string();
        let mut outputs = outputs.into_iter();
        if let Some(value) = outputs.next() {
            self.rest.graph.initializers.insert(name, value);
        }
        let mut given = BTreeMap::new();
        for (name, value) in self.crossing.into_iter().zip(outputs) {
            let shape = value.shape().iter().map(|d| Dim::Known(*d)).collect();
            let (dtype, shape) = (Some(value.dtype()), Some(shape));
            self.rest.graph.inputs.push(ValueInfo { name: name.clone(), dtype, shape });
            given.insert(name, value);
        }
        (self.rest, given)
    }
}

/// The cut at the first value that has to be known and is not; `None` when there is none, or it is inside of a branch.
pub fn cut(model: &Model, options: &Options) -> Result<Option<Cut>, Error> {
    let mut resolved = resolve::resolve(model)?;
    let shapes = shapes::input_shapes(model, options)?;
    let clusters = clusters::find_clusters(&resolved);
    let value = loop {
        let Err((node, reason)) = lower::lower(&resolved, &shapes.list, clusters.clone()) else { return Ok(None) };
        let Some((node, input)) = reason.undecided(node) else { return Ok(None) };
        if !fix(&mut resolved, options, node, input) {
            let Some(Some(value)) = resolved.nodes[node as usize].inputs.get(input) else { return Ok(None) };
            break resolved.names[value.index()].to_string();
        }
    };
    Ok(cut_at(model, &value))
}

/// Names that a node reads, those that its graphs read too.
fn reads<'n>(node: &'n Node, out: &mut BTreeSet<&'n str>) {
    out.extend(node.inputs.iter().map(String::as_str));
    for a in node.attributes.values() {
        if let Attribute::Graph(g) = a {
            g.nodes.iter().for_each(|n| reads(n, out));
            out.extend(g.outputs.iter().map(|o| o.name.as_str()));
        }
    }
}

fn cut_at(model: &Model, value: &str) -> Option<Cut> {
    let graph = &model.graph;
    let maker: BTreeMap<&str, usize> =
        graph.nodes.iter().enumerate().flat_map(|(i, n)| n.outputs.iter().map(move |o| (o.as_str(), i))).collect();
    let read: Vec<BTreeSet<&str>> = graph
        .nodes
        .iter()
        .map(|n| {
            let mut names = BTreeSet::new();
            reads(n, &mut names);
            names
        })
        .collect();
    // The nodes on the way to the value.
    let mut early = vec![false; graph.nodes.len()];
    let mut open = vec![*maker.get(value)?];
    while let Some(i) = open.pop() {
        if !std::mem::replace(&mut early[i], true) {
            open.extend(read[i].iter().filter_map(|n| maker.get(n)));
        }
    }
    let needed = |side: bool| -> BTreeSet<&str> {
        (0..early.len()).filter(|i| early[*i] == side).flat_map(|i| read[i].iter().copied()).collect()
    };
    let (first, mut rest) = (needed(true), needed(false));
    rest.extend(graph.outputs.iter().map(|o| o.name.as_str()));
    let made = |name: &&str| maker.get(name).is_some_and(|i| early[*i]);
    let crossing: Vec<String> = rest.iter().filter(|n| made(n) && **n != value).map(|n| n.to_string()).collect();
    let part = |side: bool, names: &BTreeSet<&str>| Graph {
        name: graph.name.clone(),
        inputs: graph.inputs.iter().filter(|i| names.contains(i.name.as_str())).cloned().collect(),
        outputs: Vec::new(),
        initializers: graph
            .initializers
            .iter()
            .filter(|(n, _)| names.contains(n.as_str()))
            .map(|(n, t)| (n.clone(), t.clone()))
            .collect(),
        nodes: graph.nodes.iter().zip(&early).filter(|(_, e)| **e == side).map(|(n, _)| n.clone()).collect(),
    };
    let (mut before, mut behind) = (part(true, &first), part(false, &rest));
    let info = |name: &str| ValueInfo { name: name.to_string(), dtype: None, shape: None };
    before.outputs = std::iter::once(value).chain(crossing.iter().map(String::as_str)).map(info).collect();
    behind.outputs = graph.outputs.clone();
    let whole = |graph| Model {
        graph,
        opsets: model.opsets.clone(),
        metadata: model.metadata.clone(),
        structures: BTreeMap::new(),
    };
    Some(Cut { first: whole(before), rest: whole(behind), crossing })
}
