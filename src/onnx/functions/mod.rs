//! Operators that are written with others: a node of such an operator is replaced by the nodes of its body when a model is
//! read, as are nodes that call the model's own functions.
//!
//! A body needs to know attributes only, never shapes or types; what does need them is lowered as an operator of its own. The
//! nodes of a body have the name of the node they stand for, so that messages speak of what the user knows.

mod attention;
mod experts;
mod flex;
mod images;
mod local;
mod microsoft;
mod ml;
mod packed;
mod pairs;
mod quantized;
mod training;

pub(super) use local::inline_local;

use super::{Attribute, Graph, Model, Node};
use crate::tensor::HostTensor;

/// The nodes that replace a node.
pub(super) struct Body<'a> {
    /// The node that is replaced.
    node: &'a Node,
    nodes: Vec<Node>,
    made: usize,
}

type Attributes<'a> = &'a [(&'a str, Attribute)];

impl Body<'_> {
    /// Name of input `i`; empty when it is not given.
    fn input(&self, i: usize) -> &str {
        self.node.inputs.get(i).map_or("", String::as_str)
    }

    fn has(&self, i: usize) -> bool {
        !self.input(i).is_empty()
    }

    /// Name of output `i`, if somebody wants it.
    fn output(&self, i: usize) -> Option<&str> {
        self.node.outputs.get(i).map(String::as_str).filter(|o| !o.is_empty())
    }

    fn int(&self, name: &str, default: i64) -> i64 {
        match self.node.attributes.get(name) {
            Some(Attribute::Int(v)) => *v,
            _ => default,
        }
    }

    fn float(&self, name: &str, default: f32) -> f32 {
        match self.node.attributes.get(name) {
            Some(Attribute::Float(v)) => *v,
            Some(Attribute::Int(v)) => *v as f32,
            _ => default,
        }
    }

    fn text(&self, name: &str) -> Option<&str> {
        match self.node.attributes.get(name) {
            Some(Attribute::Text(v)) => Some(v),
            _ => None,
        }
    }

    fn fresh(&mut self) -> String {
        self.made += 1;
        let end = self.node.outputs.iter().find(|o| !o.is_empty()).map_or("", |o| o);
        format!("{end}/{}", self.made)
    }

    fn push(&mut self, op: &str, inputs: &[&str], outputs: Vec<String>, attributes: Attributes<'_>) {
        let (domain, op) = op.rsplit_once(':').unwrap_or(("", op));
        self.nodes.push(Node {
            name: self.node.name.clone(),
            op: op.into(),
            domain: domain.into(),
            inputs: inputs.iter().map(|s| s.to_string()).collect(),
            outputs,
            attributes: attributes.iter().map(|(n, a)| (n.to_string(), a.clone())).collect(),
        });
    }

    /// A node with one output, whose name is returned.
    fn op(&mut self, op: &str, inputs: &[&str]) -> String {
        self.with(op, inputs, &[])
    }

    /// The same with attributes.
    fn with(&mut self, op: &str, inputs: &[&str], attributes: Attributes<'_>) -> String {
        let out = self.fresh();
        self.push(op, inputs, vec![out.clone()], attributes);
        out
    }

    /// A node with several outputs.
    fn many(&mut self, op: &str, inputs: &[&str], outputs: usize, attributes: Attributes<'_>) -> Vec<String> {
        let out: Vec<String> = (0..outputs).map(|_| self.fresh()).collect();
        self.push(op, inputs, out.clone(), attributes);
        out
    }

    /// A constant.
    fn constant(&mut self, value: HostTensor) -> String {
        self.with("Constant", &[], &[("value", Attribute::Tensor(value))])
    }

    /// A constant list of integers.
    fn ints(&mut self, list: &[i64]) -> String {
        self.constant(HostTensor::from_i64(&[list.len()], list))
    }

    /// A constant float.
    fn number(&mut self, value: f32) -> String {
        self.constant(HostTensor::from_f32(&[], &[value]))
    }

    /// Makes a value output `i`.
    fn set(&mut self, i: usize, value: &str) {
        if let Some(out) = self.output(i).map(str::to_string) {
            self.push("Identity", &[value], vec![out], &[]);
        }
    }
}

/// The body of an operator; `None` when the node is not one that has a body.
fn expand(node: &Node) -> Option<Vec<Node>> {
    let write = match node.domain.as_str() {
        "com.microsoft" => microsoft::body(&node.op).or_else(|| quantized::body(&node.op))?,
        "" if trains(node) => training::batch_norm,
        "" => quantized::standard(&node.op).or_else(|| microsoft::standard(&node.op))?,
        "ai.onnx.ml" => ml::body(&node.op)?,
        "ai.onnx.preview" => flex::body(&node.op)?,
        "ai.onnx.preview.training" => training::body(&node.op)?,
        _ => return None,
    };
    let mut body = Body { node, nodes: Vec::new(), made: 0 };
    write(&mut body);
    Some(body.nodes)
}

/// A normalisation by the statistics of its own batch.
fn trains(node: &Node) -> bool {
    node.op == "BatchNormalization" && node.attributes.get("training_mode") == Some(&Attribute::Int(1))
}

/// Replaces all nodes that have a body, those of subgraphs too.
pub(super) fn expand_graph(graph: &mut Graph) {
    let nodes = std::mem::take(&mut graph.nodes);
    for mut node in nodes {
        for a in node.attributes.values_mut() {
            if let Attribute::Graph(g) = a {
                expand_graph(g);
            }
        }
        match expand(&node) {
            // Bodies are written with operators that may have bodies themselves.
            Some(body) => {
                let mut inner = Graph { nodes: body, ..Graph::default() };
                expand_graph(&mut inner);
                graph.nodes.append(&mut inner.nodes);
            }
            None => graph.nodes.push(node),
        }
    }
}

impl Model {
    /// Writes operators that are made of others with those, and those that read dequantised constants with ones
    /// that read the constants as they are.
    pub fn expand(&mut self) {
        expand_graph(&mut self.graph);
        pairs::join_pairs(&mut self.graph);
    }
}
