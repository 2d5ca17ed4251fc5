//! Float operators between dequantisations, as quantisers write them (QDQ), become products of bytes.
//!
//! `MatMul`, `Gemm` or `Conv` of two dequantised values, of which the right one is a constant, is the product of the integers, exact,
//! times both scales: weights stay bytes in memory. What dequantises and quantises around it stays where it is. Of integers of 4 bits both
//! factors are such; they are taken for bytes, and products for what they are where a target multiplies them so
//! ([`crate::graph::nibble_factors`]). Where only the weights are quantised, or to fewer bits than the data, they stay as small
//! ([`super::packed`]).

use super::packed::{self, Packings};
use super::{Attribute, Body, Graph, Node, expand_graph, experts};
use crate::tensor::{DType, HostTensor};
use std::collections::HashMap;

/// What is known of the values of a graph by name.
pub(super) struct Known<'g> {
    made: HashMap<&'g str, &'g Node>,
    graph: &'g Graph,
}

/// A dequantised value of 8 or 4 bits.
struct Bytes<'g> {
    dtype: DType,
    value: &'g str,
    scale: &'g str,
    /// Empty where there is none.
    zero: &'g str,
    /// The dimension that has a scale for each slice.
    axis: Option<i64>,
}

impl<'g> Known<'g> {
    fn of(graph: &'g Graph) -> Known<'g> {
        let outputs = graph.nodes.iter().flat_map(|n| n.outputs.iter().map(move |o| (o.as_str(), n)));
        Known { made: outputs.filter(|(o, _)| !o.is_empty()).collect(), graph }
    }

    /// The node that computes a value, if it is such an operator of ONNX.
    pub(super) fn made_by(&self, name: &str, op: &str) -> Option<&'g Node> {
        self.made.get(name).copied().filter(|n| n.op == op && n.domain.is_empty())
    }

    /// The value, if no run changes it.
    pub(super) fn constant(&self, name: &str) -> Option<&'g HostTensor> {
        if let Some(t) = self.graph.initializers.get(name) {
            // What is an input too can be given.
            return (!self.graph.inputs.iter().any(|i| i.name == name)).then_some(t);
        }
        let node = self.made_by(name, "Constant")?;
        match node.attributes.get("value") {
            Some(Attribute::Tensor(t)) => Some(t),
            _ => None,
        }
    }

    /// The bytes that a value was made of, by a scale of 32 bits.
    fn bytes(&self, name: &str) -> Option<Bytes<'g>> {
        let node = self.made_by(name, "DequantizeLinear")?;
        let input = |i: usize| node.inputs.get(i).map_or("", String::as_str);
        let (value, scale, zero) = (input(0), input(1), input(2));
        let of = |node: &Node, name: &str| match node.attributes.get(name) {
            Some(Attribute::Int(v)) => Some(*v),
            _ => None,
        };
        let dtype = match self.constant(zero).or_else(|| self.constant(value)) {
            Some(t) => t.dtype(),
            // What is quantised without a zero point is unsigned where nothing else is said.
            None => {
                let quantised = self.made_by(value, "QuantizeLinear").filter(|n| n.inputs.len() == 2)?;
                match of(quantised, "output_dtype").unwrap_or(0) {
                    0 => DType::U8,
                    t => DType::from_onnx(i32::try_from(t).ok()?)?,
                }
            }
        };
        let scales = self.constant(scale).filter(|s| s.dtype() == DType::F32)?;
        let attribute = |name: &str| of(node, name);
        let plain = attribute("block_size").unwrap_or(0) == 0 && attribute("output_dtype").unwrap_or(0) == 0;
        let axis = (scales.len() != 1).then(|| attribute("axis").unwrap_or(1));
        let fits = plain && scales.shape().len() < 2 && dtype.is_int() && matches!(dtype.bits(), 4 | 8);
        fits.then_some(Bytes { dtype, value, scale, zero, axis })
    }
}

/// Replaces all such operators of a graph and of those inside of it.
pub(super) fn join_pairs(graph: &mut Graph) {
    let known = Known::of(graph);
    let mut packings = Packings::default();
    let mixture = |n: &Node| {
        let mut body = Graph { nodes: experts::quantised(n, &known)?, ..Graph::default() };
        expand_graph(&mut body);
        Some(body.nodes)
    };
    let mut body = |n| product(n, &known).or_else(|| packed::reader(n, &known, &mut packings)).or_else(|| mixture(n));
    let replaced: HashMap<usize, Vec<Node>> =
        graph.nodes.iter().enumerate().filter_map(|(i, n)| Some((i, body(n)?))).collect();
    let nodes = std::mem::take(&mut graph.nodes);
    for (i, mut node) in nodes.into_iter().enumerate() {
        for a in node.attributes.values_mut() {
            if let Attribute::Graph(g) = a {
                join_pairs(g);
            }
        }
        match replaced.get(&i) {
            Some(body) => graph.nodes.extend(body.iter().cloned()),
            None => graph.nodes.push(node),
        }
    }
}

/// The nodes that stand for an operator on dequantised values.
fn product(node: &Node, known: &Known<'_>) -> Option<Vec<Node>> {
    if !node.domain.is_empty() || !matches!(node.op.as_str(), "MatMul" | "Gemm" | "Conv") {
        return None;
    }
    let [x, w] = [0, 1].map(|i| node.inputs.get(i).and_then(|name| known.bytes(name)));
    let (x, w) = (x.filter(|x| x.axis.is_none())?, w?);
    // Weights of fewer bits than the data's are packed.
    if x.dtype.bits() != w.dtype.bits() {
        return None;
    }
    let rank = known.constant(w.value)?.shape().len() as i64;
    let axis = w.axis.map(|a| if a < 0 { a + rank } else { a });
    let mut b = Body::new(node);
    if node.op == "Conv" {
        convolution(&mut b, &x, &w, axis, rank)?;
    } else {
        matrices(&mut b, &x, &w, axis, rank)?;
    }
    Some(b.nodes)
}

/// The operator of the integers themselves: ONNX has those of bytes.
fn of_integers(op: &str, x: &Bytes<'_>) -> String {
    if x.dtype.bits() < 8 { format!("barewave:{op}") } else { op.to_string() }
}

/// Both scales in one.
fn scaled(b: &mut Body<'_>, sums: &str, x: &Bytes<'_>, scale: &str) -> String {
    let y = b.with("Cast", &[sums], &[("to", Attribute::Int(i64::from(DType::F32.to_onnx())))]);
    let both = b.op("Mul", &[x.scale, scale]);
    b.op("Mul", &[&y, &both])
}

fn matrices(b: &mut Body<'_>, x: &Bytes<'_>, w: &Bytes<'_>, axis: Option<i64>, rank: i64) -> Option<()> {
    let gemm = b.node.op == "Gemm";
    let flipped = gemm && b.int("transB", 0) != 0;
    let plain = !gemm || b.int("transA", 0) == 0 && b.float("alpha", 1.0) == 1.0 && b.float("beta", 1.0) == 1.0;
    // A scale for each column of the product.
    if !plain || rank != 2 || axis.is_some_and(|a| a != i64::from(!flipped)) {
        return None;
    }
    let perm = [("perm", Attribute::Ints(vec![1, 0]))];
    let right = if flipped { b.with("Transpose", &[w.value], &perm) } else { w.value.to_string() };
    let sums = b.op(&of_integers("MatMulInteger", x), &[x.value, &right, x.zero, w.zero]);
    let mut y = scaled(b, &sums, x, w.scale);
    if b.has(2) {
        let bias = b.input(2).to_string();
        y = b.op("Add", &[&y, &bias]);
    }
    b.set(0, &y);
    Some(())
}

fn convolution(b: &mut Body<'_>, x: &Bytes<'_>, w: &Bytes<'_>, axis: Option<i64>, rank: i64) -> Option<()> {
    if axis.is_some_and(|a| a != 0) || rank < 3 {
        return None;
    }
    let attributes: Vec<(&str, Attribute)> =
        b.node.attributes.iter().map(|(name, a)| (name.as_str(), a.clone())).collect();
    let sums = b.with(&of_integers("ConvInteger", x), &[x.value, w.value, x.zero, w.zero], &attributes);
    // Along the channels.
    let mut dims = vec![1; rank as usize];
    dims[1] = -1;
    let dims = b.ints(&dims);
    let scale = if axis.is_some() { b.op("Reshape", &[w.scale, &dims]) } else { w.scale.to_string() };
    let mut y = scaled(b, &sums, x, &scale);
    if b.has(2) {
        let bias = b.input(2).to_string();
        let bias = b.op("Reshape", &[&bias, &dims]);
        y = b.op("Add", &[&y, &bias]);
    }
    b.set(0, &y);
    Some(())
}
