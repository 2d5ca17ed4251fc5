//! Cuts a model in two where a value has to be known before the rest can be compiled: how many elements a NonZero finds,
//! which branch an If takes, how often a Loop goes round.
//!
//! The first part computes that value, with everything on the way to it; the rest takes over what the first part has computed,
//! the value itself as a constant. So only what decides is read back, and nothing is computed twice.
//!
//! A node that works on what is in strings is cut out too: the first part computes its inputs, the host computes it, and its
//! outputs are inputs of the rest, which so does not depend on them.

use super::error::Reason;
use super::{Error, Options, clusters, fix, lower, ops, resolve, shapes};
use crate::onnx::{Attribute, Dim, Graph, Model, Node, ValueInfo};
use crate::tensor::HostTensor;
use std::collections::{BTreeMap, BTreeSet};

/// A model whose first part has to be run before the rest is compiled.
#[derive(Clone, Debug)]
pub struct Cut {
    /// Computes what the rest needs, and first what decides or what the host's node reads.
    pub first: Model,
    rest: Model,
    /// The node between the parts, if it is one.
    host: Option<Node>,
}

impl Cut {
    /// The name of the value that the parts are cut at.
    pub fn at(&self) -> &str {
        let value = || self.first.graph.outputs.first().map(|o| &o.name);
        self.host.as_ref().map_or_else(value, |node| node.outputs.first()).map_or("", |name| name)
    }

    /// True when the second part is the same whatever the first one gives.
    pub fn is_fixed(&self) -> bool {
        self.host.is_some()
    }

    /// The second part, for what the first part gave, and its inputs that come from there.
    ///
    /// # Errors
    /// When the host cannot compute the node between them.
    pub fn rest(mut self, outputs: Vec<HostTensor>) -> Result<(Model, BTreeMap<String, HostTensor>), Error> {
        let names = self.first.graph.outputs.iter().map(|o| o.name.clone());
        let mut made: BTreeMap<String, HostTensor> = names.zip(outputs).collect();
        let host = self.host.take();
        match &host {
            None => {
                let value = self.at().to_string();
                self.rest.graph.initializers.extend(made.remove(&value).map(|t| (value, t)));
            }
            Some(node) => {
                let inputs: Vec<Option<HostTensor>> = node.inputs.iter().map(|n| made.get(n).cloned()).collect();
                let refused = |reason| Error::Node { node: node.name.clone(), op: lower::qualified(node), reason };
                let outputs = ops::evaluate(node, &inputs).map_err(refused)?;
                made.extend(node.outputs.iter().cloned().zip(outputs));
            }
        }
        let needed = names_read(&self.rest.graph);
        let graph = &self.rest.graph;
        let there = |name: &str| graph.initializers.contains_key(name) || graph.inputs.iter().any(|i| i.name == name);
        made.retain(|name, _| needed.contains(name) && !there(name));
        for (name, value) in &made {
            let shape = value.shape().iter().map(|d| Dim::Known(*d)).collect();
            // The rest is to be the same for all values.
            let shape = (host.is_none()).then_some(shape);
            self.rest.graph.inputs.push(ValueInfo { name: name.clone(), dtype: Some(value.dtype()), shape });
        }
        Ok((self.rest, made))
    }
}

/// What the nodes of a graph read and it gives out.
fn names_read(graph: &Graph) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    graph.nodes.iter().for_each(|n| reads(n, &mut names));
    names.into_iter().chain(graph.outputs.iter().map(|o| o.name.as_str())).map(str::to_string).collect()
}

/// The cut at the first value that has to be known and is not, or at the first node of the host's; `None` when there is none, or
/// it is inside of a branch.
pub fn cut(model: &Model, options: &Options) -> Result<Option<Cut>, Error> {
    let mut resolved = resolve::resolve(model)?;
    let shapes = shapes::input_shapes(model, options)?;
    let clusters = clusters::find_clusters(&resolved);
    loop {
        let Err((node, reason)) = lower::lower(&resolved, &shapes.list, clusters.clone()) else { return Ok(None) };
        if reason == Reason::OnHost {
            return Ok(cut_out(model, resolved.nodes[node as usize].node));
        }
        let Some((node, input)) = reason.undecided(node) else { return Ok(None) };
        if !fix(&mut resolved, options, node, input) {
            let Some(Some(value)) = resolved.nodes[node as usize].inputs.get(input) else { return Ok(None) };
            return Ok(cut_at(model, resolved.names[value.index()]));
        }
    }
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

/// Cuts a model behind a value that some node computes.
fn cut_at(model: &Model, value: &str) -> Option<Cut> {
    let made = model.graph.nodes.iter().any(|n| n.outputs.iter().any(|o| o == value));
    made.then(|| parts(model, &[value], None))
}

/// Cuts a node out of a model.
fn cut_out(model: &Model, node: &Node) -> Option<Cut> {
    let at = model.graph.nodes.iter().position(|n| std::ptr::eq(n, node))?;
    let mut inputs: Vec<&str> = node.inputs.iter().map(String::as_str).filter(|n| !n.is_empty()).collect();
    let mut seen = BTreeSet::new();
    inputs.retain(|n| seen.insert(*n));
    Some(parts(model, &inputs, Some(at)))
}

/// The part that computes some values, which are its first outputs, and the rest without the host's node.
fn parts(model: &Model, values: &[&str], host: Option<usize>) -> Cut {
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
    // The nodes on the way to the values.
    let mut early = vec![false; graph.nodes.len()];
    let mut open: Vec<usize> = values.iter().filter_map(|v| maker.get(v).copied()).collect();
    while let Some(i) = open.pop() {
        if !std::mem::replace(&mut early[i], true) {
            open.extend(read[i].iter().filter_map(|n| maker.get(n)));
        }
    }
    let late = |i: &usize| !early[*i] && Some(*i) != host;
    let needed = |side: &dyn Fn(&usize) -> bool| -> BTreeSet<&str> {
        (0..early.len()).filter(side).flat_map(|i| read[i].iter().copied()).collect()
    };
    let (mut first, mut rest) = (needed(&|i| early[*i]), needed(&late));
    first.extend(values);
    rest.extend(graph.outputs.iter().map(|o| o.name.as_str()));
    let made = |name: &&str| maker.get(name).is_some_and(|i| early[*i]);
    let crossing = rest.iter().copied().filter(|n| made(n) && !values.contains(n));
    let part = |side: &dyn Fn(&usize) -> bool, names: &BTreeSet<&str>, outputs: Vec<ValueInfo>| Graph {
        name: graph.name.clone(),
        inputs: graph.inputs.iter().filter(|i| names.contains(i.name.as_str())).cloned().collect(),
        outputs,
        initializers: graph
            .initializers
            .iter()
            .filter(|(n, _)| names.contains(n.as_str()))
            .map(|(n, t)| (n.clone(), t.clone()))
            .collect(),
        nodes: (0..early.len()).filter(side).map(|i| graph.nodes[i].clone()).collect(),
    };
    let info = |name: &str| ValueInfo { name: name.to_string(), dtype: None, shape: None };
    let outputs = values.iter().copied().chain(crossing).map(info).collect();
    let before = part(&|i| early[*i], &first, outputs);
    let behind = part(&late, &rest, graph.outputs.clone());
    let whole = |graph| Model {
        graph,
        opsets: model.opsets.clone(),
        metadata: model.metadata.clone(),
        structures: BTreeMap::new(),
    };
    Cut { first: whole(before), rest: whole(behind), host: host.map(|i| graph.nodes[i].clone()) }
}
