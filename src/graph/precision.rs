//! A model of 32-bit floats as one that computes in 16 bits.
//!
//! Inputs and outputs keep their types; between them floats are of the other type, weights included. A value has up to two
//! forms, the one of its own name in 32 bits and `name:f16`: a node that computes in 16 bits reads and makes the second,
//! one that does not the first, and a Cast makes the form that is missing where it is read first. In 32 bits stay
//!
//! * what is computed of shapes and constants alone, because sizes have to be exact and nothing of it runs on the device,
//! * operators whose floats ONNX has in 32 bits only, or whose results change with the type beyond rounding (numbers of
//!   elements, quantisation),
//! * angles and places that arithmetic alone makes of inputs and constants (positions that are turned by, steps of a diffusion, buckets of
//!   distances): 16 bits do not tell position 2049 from 2048, and a sine of thousands has nothing left of what was rounded,
//! * sequences and optionals, and what goes into and comes out of nodes with graphs inside (If, Loop, Scan); the graphs are
//!   converted as models of their own.

use super::{Error, Options, Types, infer};
use crate::onnx::{Attribute, Dim, Graph, Model, Node, ValueInfo};
use crate::tensor::DType;
use std::collections::{BTreeMap, BTreeSet};

/// Operators that stay in 32 bits.
const KEPT: [&str; 17] = [
    "BitCast",
    "DFT",
    "DequantizeLinear",
    "DynamicQuantizeLinear",
    "ImageDecoder",
    "MelWeightMatrix",
    "Multinomial",
    "NonMaxSuppression",
    "QLinearConv",
    "QLinearMatMul",
    "QuantizeLinear",
    "RandomNormal",
    "RandomUniform",
    "Range",
    "STFT",
    "TfIdfVectorizer",
    "Unique",
];

/// Operators that angles and places are made by.
#[rustfmt::skip]
const ARITHMETIC: [&str; 36] = [
    "Abs", "Add", "Cast", "CastLike", "Ceil", "Clip", "Concat", "Constant", "Div", "Einsum", "Exp", "Expand", "Flatten", "Floor", "Gather", "Gemm",
    "Identity", "Log", "MatMul", "Max", "Min", "Mod", "Mul", "Neg", "Pow", "Range", "Reciprocal", "Reshape", "Slice", "Split", "Squeeze", "Sub",
    "Tile", "Transpose", "Unsqueeze", "Where",
];

/// Operators whose results have their first input's type, all of them.
#[rustfmt::skip]
const OF_FIRST: [&str; 111] = [
    "Abs", "Acos", "Acosh", "Add", "Asin", "Asinh", "Atan", "Atanh", "Attention", "AveragePool", "BatchNormalization", "Ceil", "Celu", "CenterCropPad",
    "Clip", "Compress", "Concat", "Conv", "ConvTranspose", "Cos", "Cosh", "CumProd", "CumSum", "DeformConv", "DepthToSpace", "Det", "Div", "Einsum", "Elu",
    "Erf", "Exp", "Expand", "Flatten", "Floor", "GRU", "Gather", "GatherElements", "GatherND", "Gelu", "Gemm", "GlobalAveragePool", "GlobalLpPool",
    "GlobalMaxPool", "GridSample", "GroupNormalization", "HardSigmoid", "HardSwish", "Hardmax", "Identity", "InstanceNormalization", "LRN", "LSTM",
    "LeakyRelu", "Log", "LogSoftmax", "LpNormalization", "LpPool", "MatMul", "Max", "MeanVarianceNormalization", "Mean", "Min", "Mish", "Mod", "Mul", "Neg",
    "PRelu", "Pad", "Pow", "RMSNormalization", "RNN", "Reciprocal", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
    "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare", "Relu", "Reshape", "Resize", "ReverseSequence", "RoiAlign", "RotaryEmbedding", "Round",
    "ScatterElements", "ScatterND", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Slice", "Softmax", "Softplus", "Softsign", "SpaceToDepth", "Split", "Sqrt",
    "Squeeze", "Sub", "Sum", "Swish", "Tanh", "Tile", "Transpose", "Trilu",
];

/// The element types of a graph's values, as far as they are known: from `types`, and of what nodes make of which these say nothing, because a
/// run-time size decides something, by what operators say of types alone.
fn dtypes<'g>(graph: &'g Graph, types: &'g Types) -> BTreeMap<&'g str, DType> {
    let mut known: BTreeMap<&str, DType> =
        graph.inputs.iter().filter_map(|i| Some((i.name.as_str(), i.dtype?))).collect();
    known.extend(types.values.iter().map(|(name, t)| (name.as_str(), t.dtype)));
    for node in &graph.nodes {
        for (i, output) in node.outputs.iter().enumerate() {
            if !output.is_empty()
                && !known.contains_key(output.as_str())
                && let Some(dtype) = dtype_of(node, i, |n| known.get(node.inputs.get(n)?.as_str()).copied())
            {
                known.insert(output, dtype);
            }
        }
    }
    known
}

/// The element type of a node's output, by its operator and its inputs' types.
fn dtype_of(node: &Node, output: usize, input: impl Fn(usize) -> Option<DType>) -> Option<DType> {
    if !(node.domain.is_empty() || node.domain == "ai.onnx") {
        return None;
    }
    // What the graphs in it declare.
    let declared = |skipped: usize| {
        let of = |a: &Attribute| match a {
            Attribute::Graph(g) => g.outputs.get(output + skipped)?.dtype,
            _ => None,
        };
        node.attributes.values().find_map(of)
    };
    match (node.op.as_str(), output) {
        (op, _) if OF_FIRST.contains(&op) => input(0),
        ("Shape" | "Size" | "ArgMax" | "ArgMin" | "NonZero" | "NonMaxSuppression", 0) => Some(DType::I64),
        (
            "Equal" | "Greater" | "GreaterOrEqual" | "Less" | "LessOrEqual" | "Not" | "And" | "Or" | "Xor" | "IsInf"
            | "IsNaN",
            0,
        ) => Some(DType::Bool),
        ("Dropout" | "MaxPool" | "TopK", 0) => input(0),
        ("Dropout", 1) => Some(DType::Bool),
        ("MaxPool" | "TopK", 1) => Some(DType::I64),
        ("LayerNormalization", 0) => input(0),
        ("CastLike" | "Where", 0) => input(1),
        ("OneHot", 0) => input(2),
        ("Cast", 0) => match node.attributes.get("to")? {
            Attribute::Int(to) => DType::from_onnx(i32::try_from(*to).ok()?),
            _ => None,
        },
        ("ConstantOfShape", 0) => match node.attributes.get("value") {
            Some(Attribute::Tensor(t)) => Some(t.dtype()),
            _ => Some(DType::F32),
        },
        ("If" | "Scan", _) => declared(0),
        // Behind whether it goes on.
        ("Loop", _) => declared(1),
        _ => None,
    }
}

/// Inputs that are in 32 bits whatever the others are.
fn stays(node: &Node, input: usize) -> bool {
    match node.op.as_str() {
        "Resize" => input > 0,
        "Upsample" => input == 1,
        _ => false,
    }
}

/// The nodes, by their numbers, that make angles of sines and cosines and floats that become integers, where nothing but arithmetic is between these
/// and inputs, constants and integers; the sines and cosines with them.
fn angles(graph: &Graph, is_float: impl Fn(&str) -> bool) -> BTreeSet<usize> {
    let makers = graph.nodes.iter().enumerate().flat_map(|(n, node)| node.outputs.iter().map(move |o| (o.as_str(), n)));
    let makers: BTreeMap<&str, usize> = makers.collect();
    let read = |n: usize| graph.nodes[n].inputs.iter().filter(|i| is_float(i)).filter_map(|i| makers.get(i.as_str()));
    // Nodes stand behind what they read.
    let mut plain = vec![false; graph.nodes.len()];
    let mut kept = BTreeSet::new();
    for (n, node) in graph.nodes.iter().enumerate() {
        let known = read(n).all(|m| plain[*m]);
        plain[n] = known && ARITHMETIC.contains(&node.op.as_str());
        let becomes_integers = node.op == "Cast" && !node.outputs.iter().any(|o| is_float(o));
        if known && (matches!(node.op.as_str(), "Sin" | "Cos") || becomes_integers) {
            let mut open = vec![n];
            while let Some(n) = open.pop() {
                if kept.insert(n) {
                    open.extend(read(n));
                }
            }
        }
    }
    kept
}

fn is_kept(node: &Node) -> bool {
    let listed = KEPT.contains(&node.op.as_str());
    let quantised = node.op.contains("QLinear") || node.op.contains("Quantize") || node.op.contains("Integer");
    let holds = node.op.contains("Sequence") || node.op.contains("Optional");
    let foreign = !node.domain.is_empty() && node.domain != "ai.onnx" && node.domain != "com.microsoft";
    let graphs = node.attributes.values().any(|a| matches!(a, Attribute::Graph(_)));
    listed || quantised || holds || foreign || graphs
}

/// The model, with its computations on 32-bit floats done in `dtype`.
///
/// # Errors
/// When its names do not fit together, or inputs declare no types.
pub fn in_type(model: &Model, dtype: DType) -> Result<Model, Error> {
    let types = infer(model, &Options::default())?;
    let dtypes = dtypes(&model.graph, &types);
    let is_float = |name: &str| dtypes.get(name) == Some(&DType::F32);
    let known = |name: &String| name.is_empty() || dtypes.contains_key(name.as_str());
    let mut out = Converted { dtype, model: model.clone(), whole: BTreeSet::new(), half: BTreeSet::new() };
    let nodes = std::mem::take(&mut out.model.graph.nodes);
    out.whole.extend(model.graph.inputs.iter().map(|i| i.name.clone()));
    out.whole.extend(model.graph.initializers.keys().cloned());
    // What follows from shapes and constants alone.
    let mut exact: BTreeSet<String> = model.graph.initializers.keys().cloned().collect();
    let angles = angles(&model.graph, is_float);
    for (n, mut node) in nodes.into_iter().enumerate() {
        let given = |node: &Node| node.inputs.iter().filter(|i| !i.is_empty()).cloned().collect::<Vec<_>>();
        let from_shapes =
            matches!(node.op.as_str(), "Shape" | "Size") || given(&node).iter().all(|i| exact.contains(i));
        let mut values = node.inputs.iter().chain(&node.outputs);
        let converts = !from_shapes && !angles.contains(&n) && !is_kept(&node) && values.all(known);
        let floats = |names: &[String]| names.iter().any(|n| is_float(n));
        if from_shapes {
            exact.extend(node.outputs.iter().cloned());
        }
        if !converts || !(floats(&node.inputs) || floats(&node.outputs)) {
            for input in given(&node).into_iter().chain(read_inside(&node)) {
                out.want_whole(&input, &node.name);
            }
            out.whole.extend(node.outputs.iter().cloned());
            convert_inside(&mut node, model, &types, dtype);
            out.model.graph.nodes.push(node);
            continue;
        }
        for i in 0..node.inputs.len() {
            let input = node.inputs[i].clone();
            if is_float(&input) && !stays(&node, i) {
                node.inputs[i] = out.want_half(&input, &node.name);
            } else {
                out.want_whole(&input, &node.name);
            }
        }
        for output in node.outputs.iter_mut().filter(|o| is_float(o)) {
            out.half.insert(output.clone());
            *output = out.name(output);
        }
        out.whole.extend(node.outputs.iter().cloned());
        for key in ["to", "dtype"] {
            if let Some(Attribute::Int(to)) = node.attributes.get_mut(key)
                && *to == i64::from(DType::F32.to_onnx())
            {
                *to = i64::from(dtype.to_onnx());
            }
        }
        out.model.graph.nodes.push(node);
    }
    for output in &model.graph.outputs {
        out.want_whole(&output.name, &output.name);
    }
    Ok(out.model)
}

/// Names that the graphs inside of a node read; some are of values of their own.
fn read_inside(node: &Node) -> Vec<String> {
    let graphs = node.attributes.values().filter_map(|a| if let Attribute::Graph(g) = a { Some(g) } else { None });
    graphs.flat_map(|g| read_in(g)).collect()
}

/// Names that a graph reads, its own among them.
fn read_in(graph: &Graph) -> Vec<String> {
    let mut names: Vec<String> = graph.outputs.iter().map(|o| o.name.clone()).collect();
    for node in &graph.nodes {
        names.extend(node.inputs.iter().cloned());
        names.extend(read_inside(node));
    }
    names
}

/// Converts the graphs inside of a node, each as a model whose inputs and constants are also what it reads of `outer`. One of which
/// too little is known stays as it is.
fn convert_inside(node: &mut Node, outer: &Model, types: &Types, dtype: DType) {
    for attribute in node.attributes.values_mut() {
        let Attribute::Graph(graph) = attribute else { continue };
        let mut inner = Model { graph: (**graph).clone(), opsets: outer.opsets.clone(), ..Model::default() };
        let mut own: BTreeSet<&str> = graph.nodes.iter().flat_map(|n| &n.outputs).map(String::as_str).collect();
        own.extend(graph.inputs.iter().map(|i| i.name.as_str()).chain(graph.initializers.keys().map(String::as_str)));
        let outside: BTreeSet<String> = read_in(graph).into_iter().filter(|n| !own.contains(n.as_str())).collect();
        for name in &outside {
            if let Some(t) = outer.graph.initializers.get(name) {
                inner.graph.initializers.insert(name.clone(), t.clone());
            } else if let Some(t) = types.values.get(name) {
                let dims = t.dims.iter().map(|d| d.known().map_or(Dim::Unknown, Dim::Known));
                let info = ValueInfo { name: name.clone(), dtype: Some(t.dtype), shape: Some(dims.collect()) };
                inner.graph.inputs.push(info);
            }
        }
        let Ok(converted) = in_type(&inner, dtype) else { continue };
        let inputs = graph.inputs.len();
        **graph = converted.graph;
        graph.inputs.truncate(inputs);
        graph.initializers.retain(|name, _| !outside.contains(name));
    }
}

struct Converted {
    dtype: DType,
    model: Model,
    /// Values that are there under their own names.
    whole: BTreeSet<String>,
    /// Values that are there in the other type.
    half: BTreeSet<String>,
}

impl Converted {
    /// The name of a value's other form.
    fn name(&self, value: &str) -> String {
        format!("{value}:{}", self.dtype.name())
    }

    fn cast(&mut self, node: &str, from: String, to: String, dtype: DType) {
        let attributes = BTreeMap::from([("to".to_string(), Attribute::Int(i64::from(dtype.to_onnx())))]);
        let (op, domain) = ("Cast".into(), String::new());
        let cast = Node { name: node.to_string(), op, domain, inputs: vec![from], outputs: vec![to], attributes };
        self.model.graph.nodes.push(cast);
    }

    /// Sees to it that a value is there in the other type; gives its name.
    fn want_half(&mut self, value: &str, node: &str) -> String {
        let name = self.name(value);
        if self.half.insert(value.to_string()) {
            match self.model.graph.initializers.get(value) {
                Some(t) => {
                    let converted = t.mapped(self.dtype, |_, _| {});
                    self.model.graph.initializers.insert(name.clone(), converted);
                }
                None => self.cast(node, value.to_string(), name.clone(), self.dtype),
            }
        }
        name
    }

    /// Sees to it that a value is there under its own name.
    fn want_whole(&mut self, value: &str, node: &str) {
        if self.half.contains(value) && self.whole.insert(value.to_string()) {
            let from = self.name(value);
            self.cast(node, from, value.to_string(), DType::F32);
        }
    }
}
