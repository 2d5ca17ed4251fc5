//! Finds normalisations that were written out node by node.
//!
//! Exporters without LayerNormalization or RMSNormalization in their operator set write
//! `d = x - mean(x); y = d / sqrt(mean(d^2) + epsilon)`, or the same of `x` itself, with `1 / sqrt` multiplied where that was
//! an `rsqrt`. Each is one kernel. What scales and shifts the result is elementwise and becomes its epilogue anyway.
//!
//! The search starts at each Sqrt and goes back to the data; nothing inside may be read by anybody else.

use super::ask::Ask;
use super::dim::known;
use super::infer::Inference;
use super::resolve::{Resolved, ResolvedNode, Source, ValueId};
use crate::onnx::Attribute;
use crate::tensor::HostTensor;
use rustc_hash::{FxHashMap, FxHashSet};

/// A normalisation of a value over its last dimensions.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Norm {
    pub x: ValueId,
    /// The first of the dimensions.
    pub axis: usize,
    pub epsilon: f64,
    /// The mean is subtracted.
    pub center: bool,
}

/// The normalisations of a model.
#[derive(Clone, Debug, Default)]
pub(crate) struct Norms {
    /// By the node that gives the result.
    found: FxHashMap<u32, Norm>,
    /// Nodes that only work for these.
    inside: FxHashSet<u32>,
}

impl Norms {
    /// The normalisation that a node is the last one of.
    pub(crate) fn at(&self, node: u32) -> Option<&Norm> {
        self.found.get(&node)
    }

    /// True when a node has nothing left to do.
    pub(crate) fn hides(&self, node: u32) -> bool {
        self.inside.contains(&node)
    }
}

/// A model, with what its search asks.
struct Search<'a, 'm> {
    inference: &'a Inference<'m>,
    resolved: &'m Resolved<'m>,
    maker: FxHashMap<ValueId, u32>,
    readers: FxHashMap<ValueId, Vec<u32>>,
}

/// Finds them, outside of branches.
pub(crate) fn find_norms(inference: &Inference<'_>) -> Norms {
    let (resolved, _) = inference.place();
    let mut search = Search { inference, resolved, maker: FxHashMap::default(), readers: FxHashMap::default() };
    for (i, node) in (0..).zip(&resolved.nodes) {
        search.maker.extend(node.outputs.iter().flatten().map(|o| (*o, i)));
        node.inputs.iter().flatten().for_each(|v| search.readers.entry(*v).or_default().push(i));
    }
    let mut norms = Norms::default();
    for i in resolved.top() {
        if let Some((last, norm, inside)) = search.ending_in(i) {
            norms.found.insert(last, norm);
            norms.inside.extend(inside);
        }
    }
    norms
}

impl<'m> Search<'_, 'm> {
    fn node(&self, i: u32) -> &'m ResolvedNode<'m> {
        &self.resolved.nodes[i as usize]
    }

    /// The node that computes a value, if it is of this operator and outside of branches.
    fn made_by(&self, v: ValueId, op: &str) -> Option<u32> {
        let i = *self.maker.get(&v).filter(|_| self.resolved.sources[v.index()] == Source::Node)?;
        let node = self.node(i);
        (node.node.op == op && node.node.domain.is_empty() && !node.inner).then_some(i)
    }

    fn input(&self, i: u32, at: usize) -> Option<ValueId> {
        self.node(i).inputs.get(at).copied().flatten()
    }

    /// The first output, if it is read so often, by nodes outside of branches.
    fn output(&self, i: u32, uses: u32) -> Option<ValueId> {
        let v = self.node(i).outputs.first().copied().flatten()?;
        let readers = self.readers.get(&v).map_or(0, Vec::len);
        (self.resolved.uses[v.index()] == uses && readers == uses as usize).then_some(v)
    }

    fn constant(&self, v: ValueId) -> Option<&HostTensor> {
        self.inference.fact(v)?.tensor()
    }

    fn number(&self, v: ValueId) -> Option<f64> {
        self.constant(v)?.scalar_f64()
    }

    /// The other input of a node of two, whose one input is `v`.
    fn beside(&self, i: u32, v: ValueId) -> Option<ValueId> {
        match (self.input(i, 0)?, self.input(i, 1)?) {
            (a, b) if a == v => Some(b),
            (a, b) if b == v => Some(a),
            _ => None,
        }
    }

    /// The first of the dimensions that a ReduceMean goes over, if they are the last ones and stay with extent 1.
    fn mean_axis(&self, i: u32) -> Option<usize> {
        let node = self.node(i);
        let int = |name: &str, default| match node.node.attributes.get(name) {
            Some(Attribute::Int(n)) => *n,
            _ => default,
        };
        let axes = match node.node.attributes.get("axes") {
            Some(Attribute::Ints(list)) => list.clone(),
            _ => self.constant(self.input(i, 1)?)?.to_i64(),
        };
        let rank = self.inference.dims(self.input(i, 0)?).len() as i64;
        let mut axes: Vec<i64> = axes.into_iter().map(|a| if a < 0 { a + rank } else { a }).collect();
        axes.sort_unstable();
        let last = !axes.is_empty() && axes.iter().rev().zip((0..rank).rev()).all(|(a, d)| *a == d);
        let first = axes.first().copied().filter(|_| last && axes.len() as i64 <= rank && int("keepdims", 1) == 1)?;
        usize::try_from(first).ok()
    }

    /// The normalisation whose deviation a node computes: its last node, and those before.
    fn ending_in(&self, sqrt: u32) -> Option<(u32, Norm, Vec<u32>)> {
        let node = self.node(sqrt);
        if node.node.op != "Sqrt" || !node.node.domain.is_empty() {
            return None;
        }
        let add = self.made_by(self.input(sqrt, 0)?, "Add")?;
        self.output(add, 1)?;
        let (a, b) = (self.input(add, 0)?, self.input(add, 1)?);
        let (variance, epsilon) = match (self.number(a), self.number(b)) {
            (None, Some(e)) => (a, e),
            (Some(e), None) => (b, e),
            _ => return None,
        };
        let mean = self.made_by(variance, "ReduceMean")?;
        self.output(mean, 1)?;
        let axis = self.mean_axis(mean)?;
        let (square, data, twice) = self.square(self.input(mean, 0)?)?;
        self.output(square, 1)?;
        let mut inside = vec![square, mean, add, sqrt];
        let last = self.quotient(sqrt, data, &mut inside)?;
        let reads = if twice { 3 } else { 2 };
        let centered = self.centered(data, axis, reads);
        let (x, center) = match centered {
            Some((x, nodes)) => {
                inside.extend(nodes);
                (x, true)
            }
            None => (data, false),
        };
        let fact = self.inference.fact(x)?;
        let fits = known(&fact.dims)?.iter().all(|d| *d > 0);
        let float = fact.dtype.is_float() && !fact.dtype.is_small_float() && fact.tensor().is_none();
        (fits && float).then_some((last, Norm { x, axis, epsilon, center }, inside))
    }

    /// `x^2` or `x x`: the node, `x`, and whether it reads it twice.
    fn square(&self, v: ValueId) -> Option<(u32, ValueId, bool)> {
        if let Some(i) = self.made_by(v, "Pow") {
            return (self.number(self.input(i, 1)?)? == 2.0).then_some((i, self.input(i, 0)?, false));
        }
        let i = self.made_by(v, "Mul")?;
        (self.input(i, 0)? == self.input(i, 1)?).then_some((i, self.input(i, 0)?, true))
    }

    /// The node that divides `data` by the deviation, or multiplies it with its reciprocal, which is then inside.
    fn quotient(&self, sqrt: u32, data: ValueId, inside: &mut Vec<u32>) -> Option<u32> {
        let deviation = self.output(sqrt, 1)?;
        let [reader] = self.readers.get(&deviation)?[..] else { return None };
        let node = self.node(reader);
        let (op, outer) = (node.node.op.as_str(), node.node.domain.is_empty() && !node.inner);
        let divides = op == "Div" && self.input(reader, 1)? == deviation;
        if !outer {
            return None;
        }
        if divides && self.input(reader, 0)? == data {
            return Some(reader);
        }
        let one = || self.input(reader, 0).and_then(|v| self.number(v)) == Some(1.0);
        if op != "Reciprocal" && !(divides && one()) {
            return None;
        }
        let factor = self.output(reader, 1)?;
        let [product] = self.readers.get(&factor)?[..] else { return None };
        let last = self.node(product);
        let scales = last.node.op == "Mul" && last.node.domain.is_empty() && !last.inner;
        inside.push(reader);
        (scales && self.beside(product, factor)? == data).then_some(product)
    }

    /// If `data` is `x - mean(x)` and read so often: `x`, and the two nodes.
    fn centered(&self, data: ValueId, axis: usize, reads: u32) -> Option<(ValueId, [u32; 2])> {
        let sub = self.made_by(data, "Sub")?;
        self.output(sub, reads)?;
        let (x, average) = (self.input(sub, 0)?, self.input(sub, 1)?);
        let mean = self.made_by(average, "ReduceMean")?;
        self.output(mean, 1)?;
        (self.input(mean, 0)? == x && self.mean_axis(mean)? == axis).then_some((x, [mean, sub]))
    }
}
