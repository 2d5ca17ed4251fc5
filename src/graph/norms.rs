//! Finds normalisations and softmax that were written out node by node.
//!
//! Exporters without LayerNormalization or RMSNormalization in their operator set write
//! `d = x - mean(x); y = d / sqrt(mean(d^2) + epsilon)`, or the same of `x` itself, with `1 / sqrt` multiplied where that was
//! an `rsqrt`. Difference and mean may be computed twice; the mean may be over channels. Each is one kernel. What scales and shifts the result is elementwise and becomes its epilogue anyway. TensorFlow
//! scales and shifts first: `y = x f + (b - mean(x) f)` with `f = g / sqrt(..)`. Softmax is `e / sum(e)` with `e = exp(x - max(x))`
//! (jax).
//!
//! The search starts at each Sqrt and Exp; nothing inside may be read by anybody else.

use super::ask::Ask;
use super::dim::known;
use super::infer::Inference;
use super::resolve::{Resolved, ResolvedNode, Source, ValueId};
use crate::onnx::Attribute;
use crate::tensor::HostTensor;
use rustc_hash::{FxHashMap, FxHashSet};
use std::ops::Range;

/// A normalisation of a value over neighbouring dimensions.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Norm {
    pub x: ValueId,
    /// The dimensions.
    pub axes: Range<usize>,
    pub epsilon: f64,
    /// The mean is subtracted.
    pub center: bool,
    /// What the result is multiplied with, and what is added then, where that was inside.
    pub scale: Option<ValueId>,
    pub bias: Option<ValueId>,
}

/// What was written out.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Written {
    /// A normalisation.
    Norm(Norm),
    /// Softmax of a value over its last dimension.
    Softmax(ValueId),
}

impl Written {
    /// The values that it is made of.
    pub(crate) fn reads(&self) -> Vec<ValueId> {
        match self {
            Written::Norm(n) => [Some(n.x), n.scale, n.bias].into_iter().flatten().collect(),
            Written::Softmax(x) => vec![*x],
        }
    }
}

/// The normalisations of a model.
#[derive(Clone, Debug, Default)]
pub(crate) struct Norms {
    /// By the node that gives the result.
    found: FxHashMap<u32, Written>,
    /// Nodes that only work for these.
    inside: FxHashSet<u32>,
}

impl Norms {
    /// The normalisation that a node is the last one of.
    pub(crate) fn at(&self, node: u32) -> Option<&Written> {
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
        node.reads().for_each(|v| search.readers.entry(v).or_default().push(i));
    }
    let mut norms = Norms::default();
    for i in resolved.top() {
        let norm = search.ending_in(i).map(|(last, norm, inside)| (last, Written::Norm(norm), inside));
        if let Some((last, written, inside)) = norm.or_else(|| search.softmax_of(i)) {
            // What inference refuses is told of the node itself.
            if !inside.iter().chain([&last]).all(|n| search.is_known(*n)) {
                continue;
            }
            norms.found.insert(last, written);
            norms.inside.extend(inside);
        }
    }
    norms
}

impl<'m> Search<'_, 'm> {
    fn node(&self, i: u32) -> &'m ResolvedNode<'m> {
        &self.resolved.nodes[i as usize]
    }

    /// True when inference knows what a node computes.
    fn is_known(&self, i: u32) -> bool {
        self.output_of(i).is_some_and(|v| self.inference.fact(v).is_some())
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

    /// The dimensions that a ReduceMean goes over, if they are neighbours and stay with extent 1.
    fn mean_axes(&self, i: u32) -> Option<Range<usize>> {
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
        let (first, last) = (*axes.first()?, *axes.last()?);
        let neighbours = axes.iter().zip(first..).all(|(a, d)| *a == d) && 0 <= first && last < rank;
        let axes = usize::try_from(first).ok()?..usize::try_from(last).ok()? + 1;
        (neighbours && int("keepdims", 1) == 1).then_some(axes)
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
        let axes = self.mean_axes(mean)?;
        let (square, data, twice) = self.square(self.input(mean, 0)?)?;
        self.output(square, 1)?;
        let mut inside = vec![square, mean, add, sqrt];
        let Some((last, twin)) = self.quotient(sqrt, data, &mut inside) else {
            return self.shifted(sqrt, (data, if twice { 2 } else { 1 }), axes, epsilon, &inside);
        };
        let reads = if twice { 2 } else { 1 } + u32::from(twin.is_none());
        let centered = self.centered(data, &axes, [reads, 1 + u32::from(twin.is_some())]);
        inside.extend(twin);
        let (x, center) = match centered {
            Some((x, nodes)) => {
                inside.extend(nodes);
                (x, true)
            }
            None => (data, false),
        };
        let norm = Norm { x, axes, epsilon, center, scale: None, bias: None };
        self.is_computed(x).then_some((last, norm, inside))
    }

    /// A value of floats that is no constant and has elements.
    fn is_computed(&self, x: ValueId) -> bool {
        let Some(fact) = self.inference.fact(x) else { return false };
        let filled = known(&fact.dims).is_some_and(|dims| dims.iter().all(|d| *d > 0));
        filled && fact.dtype.is_float() && !fact.dtype.is_small_float() && fact.tensor().is_none()
    }

    /// The only node that reads the first output of one, if it is of this operator and outside of branches.
    fn next(&self, i: u32, op: &str) -> Option<u32> {
        let v = self.output(i, 1)?;
        let [reader] = self.readers.get(&v)?[..] else { return None };
        (self.made_by(self.output_of(reader)?, op)? == reader).then_some(reader)
    }

    fn output_of(&self, i: u32) -> Option<ValueId> {
        self.node(i).outputs.first().copied().flatten()
    }

    /// `x f + (b - mean f)` around a deviation, of `data = x - mean` that is read so often before.
    fn shifted(
        &self,
        sqrt: u32,
        (data, reads): (ValueId, u32),
        axes: Range<usize>,
        epsilon: f64,
        inside: &[u32],
    ) -> Option<(u32, Norm, Vec<u32>)> {
        let mut inside = inside.to_vec();
        let mut factor = self.next(sqrt, "Reciprocal").or_else(|| {
            let by = self.next(sqrt, "Div")?;
            (self.number(self.input(by, 0)?) == Some(1.0)).then_some(by)
        })?;
        inside.push(factor);
        let mut scale = None;
        if let Some(scaled) = self.next(factor, "Mul") {
            scale = Some(self.beside(scaled, self.output_of(factor)?)?);
            inside.push(scaled);
            factor = scaled;
        }
        let f = self.output(factor, 2)?;
        // The mean is read twice: by what is squared, and here.
        let sub = self.made_by(data, "Sub")?;
        self.output(sub, reads)?;
        let (x, average) = (self.input(sub, 0)?, self.input(sub, 1)?);
        let mean = self.made_by(average, "ReduceMean")?;
        self.output(mean, 2)?;
        if self.input(mean, 0)? != x || self.mean_axes(mean)? != axes {
            return None;
        }
        let [one, other] = self.readers.get(&f)?[..] else { return None };
        let product = |i: u32, with: ValueId| {
            (self.made_by(self.output_of(i)?, "Mul")? == i && self.beside(i, f)? == with).then_some(i)
        };
        let (direct, moved) = match (product(one, x), product(other, average)) {
            (Some(d), Some(m)) => (d, m),
            _ => (product(other, x)?, product(one, average)?),
        };
        let difference = self.next(moved, "Sub")?;
        let bias = self.input(difference, 0)?;
        let last = self.next(direct, "Add")?;
        let ends = self.input(difference, 1)? == self.output_of(moved)?
            && self.next(difference, "Add")? == last
            && self.input(last, 0)? != self.input(last, 1)?;
        inside.extend([sub, mean, direct, moved, difference]);
        // What scales and shifts must not be along the dimensions that are normalised over alone, nor widen the result.
        let narrow = |v: ValueId| self.inference.dims(v).len() <= self.inference.dims(x).len();
        let fits = narrow(bias)
            && scale.is_none_or(narrow)
            && self.inference.dims(self.output_of(last)?) == self.inference.dims(x);
        let norm = Norm { x, axes, epsilon, center: true, scale, bias: Some(bias) };
        (ends && fits && self.is_computed(x)).then_some((last, norm, inside))
    }

    /// The softmax whose exponential a node computes: its last node, and those before.
    fn softmax_of(&self, exp: u32) -> Option<(u32, Written, Vec<u32>)> {
        let e = self.output(exp, 2).filter(|e| self.made_by(*e, "Exp") == Some(exp))?;
        let sub = self.made_by(self.input(exp, 0)?, "Sub")?;
        self.output(sub, 1)?;
        let x = self.input(sub, 0)?;
        let mut inside = vec![exp, sub];
        self.reduced(self.input(sub, 1)?, "ReduceMax", x, &mut inside)?;
        let [one, other] = self.readers.get(&e)?[..] else { return None };
        let divides = |i: u32| self.made_by(self.output_of(i)?, "Div").filter(|d| *d == i);
        let last = divides(one).or_else(|| divides(other))?;
        if self.input(last, 0)? != e {
            return None;
        }
        self.reduced(self.input(last, 1)?, "ReduceSum", e, &mut inside)?;
        self.is_computed(x).then_some((last, Written::Softmax(x), inside))
    }

    /// Checks that a value is a reduction of another over its last dimension, which stays with an extent of 1 or comes back with it,
    /// and takes note of the nodes, none of which anybody else reads.
    fn reduced(&self, mut v: ValueId, op: &str, of: ValueId, inside: &mut Vec<u32>) -> Option<()> {
        let dims = known(self.inference.dims(of))?;
        let (last, outer) = dims.split_last()?;
        if known(self.inference.dims(v))? != [outer, &[1]].concat() || *last == 1 {
            return None;
        }
        loop {
            let i = *self.maker.get(&v)?;
            self.output(i, 1).filter(|o| *o == v && self.made_by(v, &self.node(i).node.op) == Some(i))?;
            inside.push(i);
            match self.node(i).node.op.as_str() {
                "Reshape" | "Unsqueeze" | "Identity" => v = self.input(i, 0)?,
                found if found == op => break,
                _ => return None,
            }
        }
        let i = *inside.last()?;
        let found = known(self.inference.dims(v))?;
        // Of all the dimensions only the last one is reduced where as many elements are left: no other has more than one.
        let over_last =
            found.iter().product::<usize>() == outer.iter().product::<usize>() && self.reduces_last(i, dims.len());
        (self.input(i, 0)? == of && over_last).then_some(())
    }

    /// True when a reduction goes over the last of `rank` dimensions alone.
    fn reduces_last(&self, i: u32, rank: usize) -> bool {
        let axes = match self.node(i).node.attributes.get("axes") {
            Some(Attribute::Ints(list)) => Some(list.clone()),
            _ => self.input(i, 1).and_then(|v| self.constant(v)).map(HostTensor::to_i64),
        };
        axes.is_some_and(|a| matches!(a[..], [a] if a == -1 || a + 1 == rank as i64))
    }

    /// `x^2` or `x x`: the node, `x`, and whether it reads it twice.
    fn square(&self, v: ValueId) -> Option<(u32, ValueId, bool)> {
        if let Some(i) = self.made_by(v, "Pow") {
            return (self.number(self.input(i, 1)?)? == 2.0).then_some((i, self.input(i, 0)?, false));
        }
        let i = self.made_by(v, "Mul")?;
        (self.input(i, 0)? == self.input(i, 1)?).then_some((i, self.input(i, 0)?, true))
    }

    /// The node that divides `data` by the deviation, or multiplies it with its reciprocal, which is then inside; and the one that computes the same
    /// difference as `data` again, where that is what is divided.
    fn quotient(&self, sqrt: u32, data: ValueId, inside: &mut Vec<u32>) -> Option<(u32, Option<u32>)> {
        let deviation = self.output(sqrt, 1)?;
        let [reader] = self.readers.get(&deviation)?[..] else { return None };
        let node = self.node(reader);
        let (op, outer) = (node.node.op.as_str(), node.node.domain.is_empty() && !node.inner);
        let divides = op == "Div" && self.input(reader, 1)? == deviation;
        if !outer {
            return None;
        }
        if divides && let Some(twin) = self.is_or_repeats(self.input(reader, 0)?, data) {
            return Some((reader, twin));
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
        let twin = self.is_or_repeats(self.beside(product, factor)?, data).filter(|_| scales)?;
        Some((product, twin))
    }

    /// True when a value is `data`: with the node that computes the difference again that `data` is, where it is another's, read once.
    fn is_or_repeats(&self, v: ValueId, data: ValueId) -> Option<Option<u32>> {
        if v == data {
            return Some(None);
        }
        let [twin, sub] = [self.made_by(v, "Sub")?, self.made_by(data, "Sub")?];
        self.output(twin, 1)?;
        [0, 1].iter().all(|at| self.input(twin, *at) == self.input(sub, *at)).then_some(Some(twin))
    }

    /// If `data` is `x - mean(x)`, and both are read so often: `x`, and the two nodes.
    fn centered(&self, data: ValueId, axes: &Range<usize>, [reads, of_mean]: [u32; 2]) -> Option<(ValueId, [u32; 2])> {
        let sub = self.made_by(data, "Sub")?;
        self.output(sub, reads)?;
        let (x, average) = (self.input(sub, 0)?, self.input(sub, 1)?);
        let mean = self.made_by(average, "ReduceMean")?;
        self.output(mean, of_mean)?;
        (self.input(mean, 0)? == x && self.mean_axes(mean)? == *axes).then_some((x, [mean, sub]))
    }
}
