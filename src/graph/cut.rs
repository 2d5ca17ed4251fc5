//! Cuts a model in two where a value has to be known before the rest can be compiled: how many elements a NonZero finds,
//! which branch an If takes, how often a Loop goes round.
//!
//! The first part computes that value, with everything on the way to it; the rest takes over what the first part has computed,
//! the value itself as a constant. So only what decides is read back, and nothing is computed twice. Values that do not
//! depend on one another's decisions (what is found of each of many classes, say) are computed by the same first part.
//!
//! A node that works on what is in strings is cut out too: the first part computes its inputs, the host computes it, and its
//! outputs are inputs of the rest, which so does not depend on them. So is a Loop of which only its body tells how often it
//! goes round, what shapes it carries, or what its next node looks like; its body is a model of its own. Of an If that has
//! such a node inside, the branch that is taken comes in its place first.

use super::error::Reason;
use super::infer::Inference;
use super::{Error, Options, clusters, fix, lower, ops, resolve, shapes};
use crate::onnx::{Attribute, Dim, Graph, Model, Node, ValueInfo};
use crate::tensor::{DType, HostTensor};
use std::collections::{BTreeMap, BTreeSet};

/// A model whose first part has to be run before the rest is compiled.
#[derive(Clone, Debug)]
pub struct Cut {
    /// Computes what the rest needs, and first what decides or what the node between the parts reads.
    pub first: Model,
    rest: Model,
    between: Option<Between>,
    /// Values that have to be known.
    decisive: Vec<String>,
}

/// A node between two parts: of the host's, or a Loop.
#[derive(Clone, Debug)]
pub struct Between {
    /// The node.
    pub node: Node,
    /// Constants of the model that it reads.
    pub constants: BTreeMap<String, HostTensor>,
    /// What a Loop's body reads from outside besides that, and the first part gives.
    pub captured: Vec<String>,
}

impl Between {
    /// The node's own inputs, of values by name.
    pub fn inputs(&self, made: &BTreeMap<String, HostTensor>) -> Vec<Option<HostTensor>> {
        let value = |name: &String| made.get(name).or_else(|| self.constants.get(name)).cloned();
        self.node.inputs.iter().map(value).collect()
    }

    /// Its outputs, of a node that works on what is in strings.
    ///
    /// # Errors
    /// When the host cannot compute it.
    pub fn on_host(&self, made: &BTreeMap<String, HostTensor>) -> Result<Vec<HostTensor>, Error> {
        ops::evaluate(&self.node, &self.inputs(made)).map_err(|reason| self.refused(reason))
    }

    /// The body of a Loop.
    pub fn body(&self) -> Option<&Graph> {
        match self.node.attributes.get("body") {
            Some(Attribute::Graph(body)) => Some(body),
            _ => None,
        }
    }

    /// Why the node is refused.
    pub fn refused(&self, reason: Reason) -> Error {
        Error::Node { node: self.node.name.clone(), op: lower::qualified(&self.node), reason }
    }
}

impl Cut {
    /// The names of the values that the parts are cut at.
    pub fn at(&self) -> &[String] {
        self.between.as_ref().map_or(&self.decisive, |b| &b.node.outputs)
    }

    /// The node between the parts, if they are cut at one: then the second part is the same whatever the first one gives.
    pub fn between(&self) -> Option<&Between> {
        self.between.as_ref()
    }

    /// The second part, for what the first part gave and the node between them, and its inputs that come from there.
    pub fn rest(mut self, mut made: BTreeMap<String, HostTensor>) -> (Model, BTreeMap<String, HostTensor>) {
        for value in std::mem::take(&mut self.decisive) {
            self.rest.graph.initializers.extend(made.remove(&value).map(|t| (value, t)));
        }
        let needed = names_read(&self.rest.graph);
        let graph = &self.rest.graph;
        let there = |name: &str| graph.initializers.contains_key(name) || graph.inputs.iter().any(|i| i.name == name);
        made.retain(|name, _| needed.contains(name) && !there(name));
        for (name, value) in &made {
            // The rest behind a node is to be the same for all values.
            let shape = self.between.is_none().then(|| value.shape().iter().map(|d| Dim::Known(*d)).collect());
            self.rest.graph.inputs.push(ValueInfo { name: name.clone(), dtype: Some(value.dtype()), shape });
        }
        (self.rest, made)
    }
}

/// What the nodes of a graph read and it gives out.
fn names_read(graph: &Graph) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    graph.nodes.iter().for_each(|n| reads(n, &mut names));
    names.into_iter().chain(graph.outputs.iter().map(|o| o.name.as_str())).map(str::to_string).collect()
}

/// The cut at the first value that has to be known and is not, and at others that can be known without it, or at the first node of the host's, or a Loop that is not
/// decided before it runs; `None` when there is none, or it is inside of a Scan.
pub fn cut(model: &Model, options: &Options) -> Result<Option<Cut>, Error> {
    let mut resolved = resolve::resolve(model)?;
    let shapes = shapes::input_shapes(model, options)?;
    let clusters = clusters::find_clusters(&resolved);
    loop {
        let Err((top, reason)) = lower::lower(&resolved, &shapes.list, clusters.clone()) else { return Ok(None) };
        let undecided = reason.undecided(top);
        if undecided.is_some_and(|(node, input)| fix(&mut resolved, options, node, input)) {
            continue;
        }
        let node = &resolved.nodes[top as usize];
        let inside = matches!(reason, Reason::Within { .. });
        return match (node.node.op.as_str(), undecided) {
            _ if !reason.is_for_stages() => Ok(None),
            ("If", _) if inside => {
                let inference = Inference::lenient(&resolved, &shapes.list);
                let condition =
                    node.inputs.first().copied().flatten().and_then(|v| inference.fact(v)?.tensor().cloned());
                match condition.and_then(|c| c.scalar_f64()).and_then(|c| inlined(model, node.node, c != 0.0)) {
                    Some(model) => cut(&model, options),
                    None => Ok(None),
                }
            }
            ("Loop", _) if inside => Ok(cut_out(model, node.node)),
            (_, None) if !inside => Ok(cut_out(model, node.node)),
            (_, Some(first)) if !inside => {
                let others = undecided_nodes(&resolved, &shapes.list);
                if others.iter().any(|(node, input)| fix(&mut resolved, options, *node, *input)) {
                    continue;
                }
                let value =
                    |(node, input): (u32, usize)| resolved.nodes[node as usize].inputs.get(input).copied().flatten();
                let values: Vec<&str> =
                    [first].into_iter().chain(others).filter_map(value).map(|v| resolved.names[v.index()]).collect();
                Ok(cut_at(model, &values))
            }
            _ => Ok(None),
        };
    }
}

/// All nodes that need to know an input which no other such node decides, and the number of the input.
fn undecided_nodes(resolved: &resolve::Resolved<'_>, shapes: &[(DType, Vec<usize>)]) -> Vec<(u32, usize)> {
    let inference = Inference::lenient(resolved, shapes);
    let own = |node: u32| match inference.refused(node)? {
        Reason::Within { .. } => None,
        reason => reason.undecided(node),
    };
    resolved.top().filter_map(own).collect()
}

/// The model with the branch that an If takes in its place.
fn inlined(model: &Model, node: &Node, taken: bool) -> Option<Model> {
    let at = model.graph.nodes.iter().position(|n| std::ptr::eq(n, node))?;
    let Some(Attribute::Graph(branch)) = node.attributes.get(if taken { "then_branch" } else { "else_branch" }) else {
        return None;
    };
    let pass = |(from, to): (&ValueInfo, &String)| Node {
        name: node.name.clone(),
        op: "Identity".into(),
        domain: String::new(),
        inputs: vec![from.name.clone()],
        outputs: vec![to.clone()],
        attributes: BTreeMap::new(),
    };
    let mut model = model.clone();
    model.graph.initializers.extend(branch.initializers.iter().map(|(n, t)| (n.clone(), t.clone())));
    let outputs = branch.outputs.iter().zip(&node.outputs).filter(|(_, to)| !to.is_empty()).map(pass);
    let nodes = branch.nodes.iter().cloned().chain(outputs).collect::<Vec<_>>();
    model.graph.nodes.splice(at..=at, nodes);
    Some(model)
}

/// Names that a node reads, those that its graphs read too.
fn reads<'n>(node: &'n Node, out: &mut BTreeSet<&'n str>) {
    out.extend(node.inputs.iter().map(String::as_str));
    node.attributes.values().for_each(|a| reads_inside(a, out));
}

/// Names that a graph in an attribute reads.
fn reads_inside<'n>(attribute: &'n Attribute, out: &mut BTreeSet<&'n str>) {
    if let Attribute::Graph(g) = attribute {
        g.nodes.iter().for_each(|n| reads(n, out));
        out.extend(g.outputs.iter().map(|o| o.name.as_str()));
    }
}

/// Cuts a model behind those of some values that nodes compute.
fn cut_at(model: &Model, values: &[&str]) -> Option<Cut> {
    let made: BTreeSet<&str> = model.graph.nodes.iter().flat_map(|n| &n.outputs).map(String::as_str).collect();
    let mut decisive: Vec<&str> = Vec::new();
    for value in values {
        if made.contains(value) && !decisive.contains(value) {
            decisive.push(value);
        }
    }
    let cut = (!decisive.is_empty()).then(|| parts(model, &decisive, None))?;
    Some(Cut { decisive: decisive.into_iter().map(str::to_string).collect(), ..cut })
}

/// Cuts a node out of a model.
fn cut_out(model: &Model, node: &Node) -> Option<Cut> {
    let graph = &model.graph;
    let at = graph.nodes.iter().position(|n| std::ptr::eq(n, node))?;
    let outside = |name: &str| {
        graph.inputs.iter().any(|i| i.name == name) || graph.nodes.iter().any(|n| n.outputs.iter().any(|o| o == name))
    };
    let (mut inside, mut defined) = (BTreeSet::new(), BTreeSet::new());
    node.attributes.values().for_each(|a| reads_inside(a, &mut inside));
    defines(node, &mut defined);
    inside.retain(|name| !defined.contains(name));
    let own = node.inputs.iter().map(String::as_str).filter(|name| !name.is_empty());
    let read: BTreeSet<&str> = own.chain(inside.iter().copied()).collect();
    let constant = |name: &&str| graph.initializers.get(*name).map(|t| (name.to_string(), t.clone()));
    let constants: BTreeMap<String, HostTensor> = read.iter().filter_map(constant).collect();
    let values: Vec<&str> = read.into_iter().filter(|n| !constants.contains_key(*n) && outside(n)).collect();
    let captured = values.iter().filter(|v| inside.contains(*v)).map(|v| v.to_string()).collect();
    let mut cut = parts(model, &values, Some(at));
    cut.between = Some(Between { node: node.clone(), constants, captured });
    Some(cut)
}

/// Names that the graphs inside of a node define.
fn defines<'n>(node: &'n Node, out: &mut BTreeSet<&'n str>) {
    for a in node.attributes.values() {
        let Attribute::Graph(g) = a else { continue };
        out.extend(g.inputs.iter().map(|i| i.name.as_str()).chain(g.initializers.keys().map(String::as_str)));
        for n in &g.nodes {
            out.extend(n.outputs.iter().map(String::as_str));
            defines(n, out);
        }
    }
}

/// The part that computes some values, which are its first outputs, and the rest without the node between them.
fn parts(model: &Model, values: &[&str], between: Option<usize>) -> Cut {
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
    let late = |i: &usize| !early[*i] && Some(*i) != between;
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
    let whole =
        |graph| Model { graph, opsets: model.opsets.clone(), metadata: model.metadata.clone(), ..Model::default() };
    Cut { first: whole(before), rest: whole(behind), between: None, decisive: Vec::new() }
}
