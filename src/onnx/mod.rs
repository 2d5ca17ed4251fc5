//! Reads ONNX files.
//!
//! [`Model::load`] maps the file, decodes its protobuf structure and turns it into a [`Model`]: named values, typed
//! attributes, tensors in one encoding. Weights stay in the mapped file (or in their external files) and are not copied
//! unless they use one of the typed encodings, which have to be converted.
//!
//! Nothing here knows what an operator means; that is the business of [`crate::graph`].

mod error;
mod functions;
mod import;
mod indices;
mod proto;
mod seed;

pub use error::Error;
pub use indices::{IndexChecks, OutOfRange};
pub use seed::SEEDED_FROM;

use crate::tensor::{DType, HostTensor};
use std::collections::BTreeMap;

/// One extent of a declared shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dim {
    /// A number.
    Known(usize),
    /// A name that stands for a number given when compiling (`--dim NAME=N`).
    Symbol(String),
    /// Nothing is declared.
    Unknown,
}

/// A declared input or output.
#[derive(Clone, Debug, PartialEq)]
pub struct ValueInfo {
    /// Its name.
    pub name: String,
    /// Its element type; `None` when the file does not say.
    pub dtype: Option<DType>,
    /// Its shape; `None` when even the rank is not declared.
    pub shape: Option<Vec<Dim>>,
}

impl ValueInfo {
    /// Shape and type as input specs write them: `Nx3x224x224xf32`, `?` for what is not declared.
    pub fn described(&self) -> String {
        let mut out = String::new();
        match &self.shape {
            None => out.push_str("?x"),
            Some(dims) => {
                for d in dims {
                    match d {
                        Dim::Known(n) => out.push_str(&n.to_string()),
                        Dim::Symbol(s) => out.push_str(s),
                        Dim::Unknown => out.push('?'),
                    }
                    out.push('x');
                }
            }
        }
        out + self.dtype.map_or("?", DType::name)
    }
}

/// How an input or output that is no tensor is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Structure {
    /// A sequence of tensors of this type, as far as it is declared.
    Sequence(Option<DType>),
    /// A tensor or nothing.
    OptionalTensor(Option<DType>),
    /// A sequence of tensors or nothing.
    OptionalSequence(Option<DType>),
    /// A map, or a sequence of maps.
    Maps,
}

impl Structure {
    /// What it is called in messages.
    pub fn name(self) -> &'static str {
        match self {
            Structure::Sequence(_) => "a sequence",
            Structure::OptionalTensor(_) => "an optional tensor",
            Structure::OptionalSequence(_) => "an optional sequence",
            Structure::Maps => "maps",
        }
    }
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Attribute {
    /// A number.
    Float(f32),
    /// An integer.
    Int(i64),
    /// Text.
    Text(String),
    /// A tensor.
    Tensor(HostTensor),
    /// A subgraph (control flow).
    Graph(Box<Graph>),
    /// Numbers.
    Floats(Vec<f32>),
    /// Integers.
    Ints(Vec<i64>),
    /// Texts.
    Texts(Vec<String>),
    /// A kind that barewave does not read (sparse tensors, lists of tensors or graphs, types); ONNX's number of it.
    Other(i32),
}

/// One operator of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Its name, or one made of its operator and its first output when the file gives none.
    pub name: String,
    /// Its operator, such as `Conv`.
    pub op: String,
    /// The operator's domain; empty for ONNX's own.
    pub domain: String,
    /// Names of the values it reads; an empty name is an optional input that is not given.
    pub inputs: Vec<String>,
    /// Names of the values it computes; an empty name is an output that nobody wants.
    pub outputs: Vec<String>,
    /// Attributes by name.
    pub attributes: BTreeMap<String, Attribute>,
}

/// Operators and what they work on.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Graph {
    /// Its name.
    pub name: String,
    /// Declared inputs; older files list the initializers too.
    pub inputs: Vec<ValueInfo>,
    /// Declared outputs.
    pub outputs: Vec<ValueInfo>,
    /// Tensors that are part of the model.
    pub initializers: BTreeMap<String, HostTensor>,
    /// Operators; the file's order, in which every value precedes its readers.
    pub nodes: Vec<Node>,
}

/// An ONNX model.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Model {
    /// The graph.
    pub graph: Graph,
    /// Version of each operator set by domain; ONNX's own is the empty name.
    pub opsets: BTreeMap<String, i64>,
    /// Free text by name; barewave looks for image normalisation and class labels here.
    pub metadata: BTreeMap<String, String>,
    /// Inputs and outputs that are no tensors.
    pub structures: BTreeMap<String, Structure>,
    /// Where it comes from.
    pub origin: Origin,
}

/// Where a model comes from, as its file says; empty where it says nothing.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Origin {
    /// The program that wrote it.
    pub producer: String,
    /// Whose it is, as a reversed domain name.
    pub domain: String,
    /// The version of the model itself.
    pub version: i64,
    /// What it is for.
    pub description: String,
    /// What its graph is.
    pub graph_description: String,
}

impl Model {
    /// Version of ONNX's own operator set.
    pub fn opset(&self) -> i64 {
        self.opsets.get("").copied().unwrap_or(1)
    }

    /// Takes an input that is a sequence or an optional for what will be given: nothing (`None`), or tensors of these types and
    /// shapes. The elements of a sequence become inputs `name[0]`, `name[1]` and so on, in its place.
    pub fn unpack(&mut self, input: &str, given: Option<&[(DType, Vec<usize>)]>) {
        let (Some(at), Some(structure)) =
            (self.graph.inputs.iter().position(|i| i.name == input), self.structures.remove(input))
        else {
            return;
        };
        let info = |name: String, (dtype, shape): &(DType, Vec<usize>)| ValueInfo {
            name,
            dtype: Some(*dtype),
            shape: Some(shape.iter().map(|d| Dim::Known(*d)).collect()),
        };
        let (op, names, infos): (_, Vec<String>, Vec<ValueInfo>) = match (structure, given) {
            (_, None) => ("Optional", Vec::new(), Vec::new()),
            (Structure::OptionalTensor(_), Some(tensors)) => {
                self.graph.inputs.splice(at..=at, tensors.first().map(|t| info(input.into(), t)));
                return;
            }
            (_, Some(tensors)) => {
                let name = |i: usize| format!("{input}[{i}]");
                let infos = tensors.iter().enumerate().map(|(i, t)| info(name(i), t)).collect();
                ("SequenceConstruct", (0..tensors.len()).map(name).collect(), infos)
            }
        };
        self.graph.inputs.splice(at..=at, infos);
        let node = Node {
            name: input.into(),
            op: op.into(),
            domain: String::new(),
            inputs: names,
            outputs: vec![input.into()],
            attributes: BTreeMap::new(),
        };
        self.graph.nodes.insert(0, node);
    }

    /// Makes inputs that the caller has to give of those that have an initializer, which is what they are otherwise, and for which
    /// this holds.
    pub fn give_up_defaults(&mut self, given: impl Fn(&str) -> bool) {
        let names = self.graph.inputs.iter().map(|v| &v.name).filter(|n| given(n));
        names.for_each(|n| _ = self.graph.initializers.remove(n));
    }

    /// The inputs that the caller has to give: those without an initializer.
    pub fn required_inputs(&self) -> impl Iterator<Item = &ValueInfo> {
        self.graph.inputs.iter().filter(|v| !self.graph.initializers.contains_key(&v.name))
    }
}
