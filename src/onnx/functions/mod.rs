//! Operators that are written with others: a node of such an operator is replaced by the nodes of its body when a model is
//! read, as are nodes that call the model's own functions.
//!
//! A body needs to know attributes only, never shapes or types; what does need them is lowered as an operator of its own. The
//! nodes of a body have the name of the node they stand for, so that messages speak of what the user knows.

mod attention;
mod contributed;
mod decoding;
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
use std::cell::RefCell;
use std::collections::BTreeSet;

/// The nodes that replace a node.
pub(super) struct Body<'a> {
    /// The node that is replaced.
    node: &'a Node,
    nodes: Vec<Node>,
    made: usize,
    /// Inputs and attributes of the node that were looked at.
    read: RefCell<Read>,
}

#[derive(Default)]
struct Read {
    inputs: BTreeSet<usize>,
    attributes: BTreeSet<String>,
    /// An attribute whose value the body does not know.
    refused: Option<&'static str>,
}

type Attributes<'a> = &'a [(&'a str, Attribute)];

impl<'a> Body<'a> {
    fn new(node: &'a Node) -> Body<'a> {
        Body { node, nodes: Vec::new(), made: 0, read: RefCell::default() }
    }

    /// Name of input `i`; empty when it is not given.
    fn input(&self, i: usize) -> &'a str {
        self.read.borrow_mut().inputs.insert(i);
        self.node.inputs.get(i).map_or("", String::as_str)
    }

    /// Names of all inputs.
    fn inputs(&self) -> Vec<String> {
        (0..self.node.inputs.len()).map(|i| self.input(i).to_string()).collect()
    }

    fn attribute(&self, name: &str) -> Option<&'a Attribute> {
        self.read.borrow_mut().attributes.insert(name.to_string());
        self.node.attributes.get(name)
    }

    /// All attributes whose names fit.
    fn attributes_that(&self, fits: impl Fn(&str) -> bool) -> Vec<(&'a str, Attribute)> {
        let given = self.node.attributes.iter().filter(|(n, _)| fits(n));
        given.filter_map(|(n, _)| self.attribute(n).map(|a| (n.as_str(), a.clone()))).collect()
    }

    /// Takes note of an attribute that has no effect when it has this value.
    fn idle(&self, name: &str, value: Attribute) {
        if self.node.attributes.get(name) == Some(&value) {
            self.attribute(name);
        }
    }

    /// Takes note of attributes that have no effect, whatever they say.
    fn ignore(&self, names: &[&str]) {
        names.iter().for_each(|n| _ = self.attribute(n));
    }

    /// Stops the model for the value of an attribute.
    fn refuse(&self, name: &'static str) {
        self.read.borrow_mut().refused = Some(name);
    }

    /// What the node asks for beyond what the body looked at: an input, or an attribute that is not zero or empty.
    fn unread(&self) -> Option<String> {
        let read = self.read.borrow();
        let input = (0..self.node.inputs.len()).find(|i| !self.node.inputs[*i].is_empty() && !read.inputs.contains(i));
        let asks = |value: &Attribute| match value {
            Attribute::Int(v) => *v != 0,
            Attribute::Float(v) => *v != 0.0,
            Attribute::Text(t) => !t.is_empty(),
            Attribute::Ints(list) => !list.is_empty(),
            Attribute::Floats(list) => !list.is_empty(),
            _ => true,
        };
        let mut attributes = self.node.attributes.iter().filter(|(n, a)| !read.attributes.contains(*n) && asks(a));
        let attribute = read.refused.or_else(|| attributes.next().map(|(n, _)| n.as_str()));
        input.map(|i| format!("input {i}")).or_else(|| attribute.map(|n| format!("attribute {n}")))
    }

    fn has(&self, i: usize) -> bool {
        !self.input(i).is_empty()
    }

    /// Name of output `i`, if somebody wants it.
    fn output(&self, i: usize) -> Option<&str> {
        self.node.outputs.get(i).map(String::as_str).filter(|o| !o.is_empty())
    }

    fn int(&self, name: &str, default: i64) -> i64 {
        match self.attribute(name) {
            Some(Attribute::Int(v)) => *v,
            _ => default,
        }
    }

    fn float(&self, name: &str, default: f32) -> f32 {
        match self.attribute(name) {
            Some(Attribute::Float(v)) => *v,
            Some(Attribute::Int(v)) => *v as f32,
            _ => default,
        }
    }

    fn text(&self, name: &str) -> Option<&'a str> {
        match self.attribute(name) {
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
    let checked = inputs_of(node).map(|words| check(node, words));
    let mut body = Body::new(checked.as_ref().map_or(node, |(of_checked, _)| of_checked));
    write(&mut body);
    // No operator has such a name: it stops the model.
    let stops =
        |what: String, outputs: Vec<String>| Node { op: format!("{} with {what}", node.op), outputs, ..node.clone() };
    if let Some(what) = body.unread() {
        return Some(vec![stops(what, node.outputs.clone())]);
    }
    // So does an output that the body does not make, where somebody reads it.
    let made: BTreeSet<&String> = body.nodes.iter().flat_map(|n| &n.outputs).collect();
    let others = node.outputs.iter().enumerate().filter(|(_, o)| !o.is_empty() && !made.contains(o));
    let others: Vec<Node> = others.map(|(i, o)| stops(format!("output {i}"), vec![o.clone()])).collect();
    body.nodes.extend(others);
    let nodes = body.nodes;
    Some(checked.map(|(_, check)| check).into_iter().chain(nodes).collect())
}

/// Types of the inputs of operators whose bodies would take others, too, as their rows would have them (`graph/ops/types.rs`).
fn inputs_of(node: &Node) -> Option<&'static str> {
    Some(match (node.domain.as_str(), node.op.as_str()) {
        ("", "QLinearMatMul") => "qA fB qA qC fB qC fB e",
        ("ai.onnx.ml", "SVMClassifier" | "SVMRegressor") => "n",
        ("ai.onnx.preview.training", "Adagrad" | "Adam" | "Momentum") => "f i f*",
        ("com.microsoft", "MulInteger") => "qA qA qB qB",
        ("com.microsoft", "ReduceSumInteger") => "q",
        _ => return None,
    })
}

/// The node as it reads what was checked, and a node that checks it.
fn check(node: &Node, inputs: &str) -> (Node, Node) {
    let end = node.outputs.iter().find(|o| !o.is_empty()).map_or("", |o| o);
    let name = |(i, input): (usize, &String)| if input.is_empty() { String::new() } else { format!("{end}/input {i}") };
    let of_checked = Node { inputs: node.inputs.iter().enumerate().map(name).collect(), ..node.clone() };
    let attributes = [("operator", &*node.op), ("inputs", inputs)];
    let check = Node {
        name: node.name.clone(),
        op: "Checked".into(),
        domain: "barewave".into(),
        inputs: node.inputs.clone(),
        outputs: of_checked.inputs.clone(),
        attributes: attributes.map(|(n, text)| (n.to_string(), Attribute::Text(text.into()))).into(),
    };
    (of_checked, check)
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
