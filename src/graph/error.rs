//! Why a model cannot be compiled.

use super::fused::Broken;
use super::interpret;
use super::lower::qualified;
use super::shapes::Note;
use crate::onnx::Node;
use crate::tensor::{DType, SizeMismatch};

/// Why a model cannot be turned into a fused graph. Each message says where and what to do.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// A node that cannot be lowered.
    #[error("node `{node}`{}: {}", within(.op, .reason), full(.op, .reason))]
    Node {
        /// The node's name.
        node: String,
        /// The operator, with its domain when that is not ONNX's own.
        op: String,
        /// What is wrong, and what is supported.
        reason: Reason,
    },
    /// The names of the model do not fit together.
    #[error(transparent)]
    Names(#[from] NameError),
    /// Types, shapes or extents of the inputs make no sense, all of them.
    #[error("{}", lines(.0))]
    Inputs(Vec<InputError>),
    /// Strings of the model that cannot be told apart.
    #[error(transparent)]
    Words(crate::tensor::Problem),
    /// An output has another type than it is declared with: whoever reads it would misread it.
    #[error("output `{name}` is declared as {declared}, but the model computes {computed}; the model is damaged")]
    OutputType {
        /// The output.
        name: String,
        /// What the file says.
        declared: DType,
        /// What the nodes compute.
        computed: DType,
    },
    /// An output is built otherwise than it is declared: whoever reads it would look for what is not there.
    #[error("output `{name}` is declared as {declared}, but the model computes {computed}; the model is damaged")]
    OutputStructure {
        /// The output.
        name: String,
        /// What the file says.
        declared: &'static str,
        /// What the nodes compute.
        computed: &'static str,
    },
    /// Something is wrong with a model of which there is something to know.
    #[error("{error}{}", .notes.iter().map(|n| format!("\nnote: {n}")).collect::<String>())]
    Noted {
        /// What is wrong.
        error: Box<Error>,
        /// What to know.
        notes: Vec<Note>,
    },
    /// A fused graph that breaks its own rules: a mistake in barewave.
    #[error("internal error after {pass}: {rule}; please report it with the model")]
    Internal {
        /// The pass that made it.
        pass: &'static str,
        /// The broken rule.
        rule: Broken,
    },
}

/// Why a node cannot be lowered. Operators report it; their caller adds the node's name.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Reason {
    /// No such operator.
    #[error("not supported{hint}")]
    Operator {
        /// What could be meant or done instead; empty, or starts with a semicolon.
        hint: String,
    },
    /// A required input is not given.
    #[error("input {0} is missing")]
    MissingInput(usize),
    /// An input has to be a constant and is not.
    #[error("{what} (input {input}) depends on the model's inputs; it has to be known at compile time")]
    NotConstant {
        /// Its meaning.
        what: String,
        /// Its number.
        input: usize,
    },
    /// It works on what is in strings, which have no place on a device.
    #[error(
        "works on what is in strings, which the host does between kernels: run the ONNX file itself (it cannot be part of a \
         compiled one, nor of a branch or loop)"
    )]
    OnHost,
    /// How often a loop goes round, or how many nodes that makes, is not to be laid out before it runs.
    #[error("{0}")]
    Rounds(String),
    /// An output that is not computed.
    #[error("output {number}{meaning} is not supported{rest}")]
    Output {
        /// Its number.
        number: usize,
        /// What it is, in parentheses after a space; or nothing.
        meaning: &'static str,
        /// What is supported, after a semicolon; or nothing.
        rest: &'static str,
    },
    /// An attribute is missing, wrong or not supported.
    #[error("attribute `{name}` {what}")]
    Attribute {
        /// Its name.
        name: String,
        /// What is wrong with it.
        what: String,
    },
    /// Element types that do not fit or are not supported.
    #[error("{0}")]
    Type(String),
    /// Shapes that do not fit or are not supported.
    #[error("{0}")]
    Shape(String),
    /// Something is too large.
    #[error("{0}")]
    Size(String),
    /// A constant input or the combination of inputs makes no sense or is not supported.
    #[error("{0}")]
    Value(String),
    /// A node inside of it is refused.
    #[error("its node `{node}`{}: {}", within(.op, .reason), full(.op, .reason))]
    Within {
        /// Its number.
        number: u32,
        /// The inner node's name.
        node: String,
        /// Its operator.
        op: String,
        /// What is wrong with it.
        reason: Box<Reason>,
    },
    /// Nodes inside of it are refused, each of which is listed by itself.
    #[error("nodes of its attribute `{0}` are not supported")]
    Branch(&'static str),
    /// Inference and lowering say different things of an output: a mistake in barewave.
    #[error("internal error: output {number} was inferred to be {inferred} and lowered to {lowered}; please report it")]
    Disagreement {
        /// Its number.
        number: usize,
        /// Type and shape by inference.
        inferred: String,
        /// Type and shape by lowering.
        lowered: String,
    },
    /// A constant cannot be computed.
    #[error(transparent)]
    Constant(#[from] interpret::Error),
    /// A constant's bytes do not fit its shape.
    #[error(transparent)]
    Bytes(#[from] SizeMismatch),
}

impl Reason {
    /// A node inside of the one at hand is refused.
    pub(crate) fn within(number: u32, inner: &Node, reason: Reason) -> Reason {
        Reason::Within { number, node: inner.name.clone(), op: qualified(inner), reason: Box::new(reason) }
    }

    /// Node and input that would have to be known; `node` is the one that reports this.
    pub(super) fn undecided(&self, node: u32) -> Option<(u32, usize)> {
        match self {
            Reason::NotConstant { input, .. } => Some((node, *input)),
            Reason::Within { number, reason, .. } => reason.undecided(*number),
            _ => None,
        }
    }

    /// True when a run in stages may get over it.
    pub(crate) fn is_for_stages(&self) -> bool {
        match self {
            Reason::NotConstant { .. } | Reason::OnHost | Reason::Rounds(_) => true,
            Reason::Within { reason, .. } => reason.is_for_stages(),
            _ => false,
        }
    }

    /// Something about an attribute.
    pub(crate) fn attribute(name: &str, what: impl Into<String>) -> Reason {
        Reason::Attribute { name: name.into(), what: what.into() }
    }
}

/// What is wrong with the names of a model.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NameError {
    /// Two inputs of one name.
    #[error("the model has two inputs named `{0}`")]
    InputTwice(String),
    /// A node reads what nothing defines.
    #[error("node `{node}` ({op}): reads `{value}`, which nothing defines; the model is damaged")]
    Undefined {
        /// The node.
        node: String,
        /// Its operator.
        op: String,
        /// What it reads.
        value: String,
    },
    /// A node defines what is defined elsewhere.
    #[error("node `{node}` ({op}): defines `{value}`, which is defined elsewhere too; the model is damaged")]
    DefinedTwice {
        /// The node.
        node: String,
        /// Its operator.
        op: String,
        /// What it defines.
        value: String,
    },
    /// Nodes that wait for each other.
    #[error("nodes read each other's results in a circle: {}; the model is damaged", .0.join(" -> "))]
    Circle(Vec<String>),
    /// An output that nothing computes.
    #[error("nothing in the model computes its output `{0}`; the model is damaged")]
    Output(String),
    /// No outputs.
    #[error("the model has no outputs, so there is nothing to compute")]
    NoOutputs,
}

/// What is wrong with an input.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum InputError {
    /// A dimension that is not in the model.
    #[error("the model has no symbolic dimension `{name}`; it has: {known}")]
    NoDimension {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// A dimension that has one extent here and another there.
    #[error("dimension `{name}` is {extent} in {place}, but {other_place} says {other}")]
    Conflict {
        /// The dimension.
        name: String,
        /// Its extent here.
        extent: usize,
        /// Where.
        place: String,
        /// Its other extent.
        other: usize,
        /// Where.
        other_place: String,
    },
    /// Not a tensor of a type that is read.
    #[error("input `{input}` is not a tensor of a supported type ({types})")]
    Type {
        /// The input.
        input: String,
        /// What is supported.
        types: String,
    },
    /// Not a tensor, but something that can only be given where it is built from tensors.
    #[error(
        "input `{input}` is {structure}; commands and compiled files take tensors only: \
         run the model with the Python package's InferenceSession, which takes lists of arrays, and None for an optional without a value"
    )]
    Structure {
        /// The input.
        input: String,
        /// What it is.
        structure: &'static str,
    },
    /// No shape is declared and no array given.
    #[error("input `{input}` declares no shape; give an array for it")]
    NoShape {
        /// The input.
        input: String,
    },
    /// An extent that nothing tells.
    #[error(
        "dimension {position} of input `{input}` ({described}) is not known; give an array for the input, or --dim {name}=N"
    )]
    Open {
        /// The dimension's number.
        position: usize,
        /// The input.
        input: String,
        /// The input's declaration.
        described: String,
        /// How `--dim` names the dimension.
        name: String,
    },
    /// The array for it has another shape.
    #[error("input `{input}` is {described}, but an array of shape {given:?} was given{difference}")]
    Misfit {
        /// The input.
        input: String,
        /// The input's declaration.
        described: String,
        /// The array's shape.
        given: Vec<usize>,
        /// Which dimension differs, after a colon; or nothing.
        difference: String,
    },
    /// Too many elements.
    #[error("input `{input}` of shape {shape:?} is too large")]
    TooLarge {
        /// The input.
        input: String,
        /// Its shape.
        shape: Vec<usize>,
    },
}

impl Error {
    /// The error, with what there is to know.
    pub(super) fn noted(self, notes: &[Note]) -> Error {
        if notes.is_empty() { self } else { Error::Noted { error: Box::new(self), notes: notes.to_vec() } }
    }
}

impl From<InputError> for Error {
    fn from(e: InputError) -> Error {
        Error::Inputs(vec![e])
    }
}

/// An unknown operator is named by the reason, any other beside the node.
fn within(op: &str, reason: &Reason) -> String {
    if matches!(reason, Reason::Operator { .. }) { String::new() } else { format!(" ({op})") }
}

fn full(op: &str, reason: &Reason) -> String {
    match reason {
        Reason::Operator { hint } => format!("operator {op} is not supported{hint}"),
        other => other.to_string(),
    }
}

fn lines(list: &[InputError]) -> String {
    list.iter().map(InputError::to_string).collect::<Vec<_>>().join("\n")
}

/// What operators report.
pub(crate) type Res<T> = Result<T, Reason>;
