//! Finds what a model computes of its constants alone and is too large to be computed while its types are inferred:
//! weights that are standardised, merged or scaled, tables of positions put together.
//!
//! Of values that depend on nothing but constants, and on extents that are declared, and that another node reads, the nodes behind them
//! become models without inputs; who runs these takes their outputs for constants ([`Compiler::settle`](crate::Compiler::settle)). It is
//! worth it where the value is no larger than the constants behind it, and up to 4 MiB also where it would take launches of its own in
//! each run. Views, and weights that are widened, are left to their readers.

use super::Options;
use super::dim::{Dim as Extent, known};
use super::infer::{Inference, read_by};
use super::resolve::{Resolved, Source, ValueId, resolve};
use super::shapes::input_dims;
use crate::onnx::{Dim, Graph, Model, ValueInfo};
use crate::tensor::{DType, HostTensor};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeMap, BTreeSet};

/// A value that is larger than the constants behind it has no more bytes.
const MOST_BYTES: usize = 4 << 20;
/// All products together take no more multiply-adds, and all nodes give no more elements: some seconds of an emulated device.
const MOST_WORK: f64 = (1u64 << 32) as f64;
const MOST_ELEMENTS: usize = 1 << 28;
/// Constants of a model of its own, bytes; the last value may bring more.
const TOGETHER: usize = 32 << 20;

/// What is read where it lies, or as it is.
const FREE: [&str; 12] = [
    "DequantizeLinear",
    "Dropout",
    "Expand",
    "Flatten",
    "Identity",
    "Reshape",
    "Shape",
    "Slice",
    "Split",
    "Squeeze",
    "Transpose",
    "Unsqueeze",
];
/// What its readers compute at each place.
const OF_PLACES: [&str; 6] = ["Constant", "ConstantOfShape", "EyeLike", "Range", "Tile", "Trilu"];
/// What may take long, or is another number in each run: by a part of its name.
const LEFT: [&str; 10] =
    ["Attention", "Bernoulli", "Conv", "Einsum", "GRU", "LSTM", "Multinomial", "RNN", "Random", "Resize"];

/// Models without inputs, whose outputs are the values of `model`, by name, that are better computed once. Empty where there are none, and
/// for a model that makes no sense.
pub(crate) fn computed_constants(model: &Model) -> Vec<Model> {
    let Ok(resolved) = resolve(model) else { return Vec::new() };
    if !may_compute(&resolved) {
        return Vec::new();
    }
    let Ok(inputs) = input_dims(model, &Options::default()) else { return Vec::new() };
    let facts = Inference::open(&resolved, &inputs);
    let mut constants = Constants { resolved: &resolved, facts, made_by: FxHashMap::default(), work: 0.0 };
    let read = constants.find();
    let mut parts = Vec::new();
    let mut part = Behind::default();
    let mut left = MOST_ELEMENTS;
    for value in constants.worth_it(read) {
        let behind = constants.behind(value);
        let Some(rest) = left.checked_sub(constants.elements(&behind)) else { continue };
        left = rest;
        part.nodes.extend(behind.nodes);
        part.roots.extend(behind.roots);
        part.values.insert(value);
        if part.bytes() >= TOGETHER {
            parts.push(constants.model(std::mem::take(&mut part)));
        }
    }
    if !part.values.is_empty() {
        parts.push(constants.model(part));
    }
    parts
}

/// False where no node reads only what looks like constants, which takes no inference to see.
fn may_compute(resolved: &Resolved<'_>) -> bool {
    let mut constant: Vec<bool> = resolved.sources.iter().map(|s| matches!(s, Source::Initializer(_))).collect();
    let mut found = false;
    for i in resolved.top() {
        let node = &resolved.nodes[i as usize];
        let op = node.node.op.as_str();
        if ["Shape", "Size"].contains(&op) || node.inputs.iter().flatten().all(|v| constant[v.index()]) {
            node.outputs.iter().flatten().for_each(|o| constant[o.index()] = true);
            found |= !FREE.contains(&op) && !OF_PLACES.contains(&op);
        }
    }
    found
}

struct Constants<'r, 'm> {
    resolved: &'r Resolved<'m>,
    facts: Inference<'m>,
    /// The node that computes a value of constants alone.
    made_by: FxHashMap<ValueId, u32>,
    /// Multiply-adds of products so far.
    work: f64,
}

/// What values are computed from, and by.
#[derive(Default)]
struct Behind {
    values: BTreeSet<ValueId>,
    nodes: BTreeSet<u32>,
    roots: BTreeMap<ValueId, HostTensor>,
}

impl Behind {
    fn bytes(&self) -> usize {
        self.roots.values().map(HostTensor::byte_len).sum()
    }
}

impl Constants<'_, '_> {
    /// Finds who makes what; gives those that other nodes read.
    fn find(&mut self) -> Vec<ValueId> {
        let mut read = Vec::new();
        for i in self.resolved.top() {
            let node = &self.resolved.nodes[i as usize];
            if self.is_computed(i) {
                self.made_by.extend(node.outputs.iter().flatten().map(|o| (*o, i)));
            } else {
                read.extend(read_by(self.resolved, node).into_iter().filter(|v| self.made_by.contains_key(v)));
            }
        }
        read
    }

    fn is_computed(&mut self, i: u32) -> bool {
        let node = &self.resolved.nodes[i as usize];
        let op = node.node.op.as_str();
        let there = |v: &ValueId| self.made_by.contains_key(v) || self.constant(*v).is_some();
        let plain = |v: &ValueId| self.extents(*v).is_some() && self.dtype(*v).is_some_and(|t| t != DType::Str);
        let computed = node.branches.is_empty()
            && !LEFT.iter().any(|part| op.contains(part))
            && node.inputs.iter().flatten().all(there)
            && node.outputs.iter().flatten().all(plain);
        if computed && (op.contains("MatMul") || op.contains("Gemm")) {
            // Of two matrices and their product the root is exact.
            let size = |v: &ValueId| self.len(*v) as f64;
            let all =
                self.work + node.inputs.iter().take(2).chain(&node.outputs).flatten().map(size).product::<f64>().sqrt();
            if all > MOST_WORK {
                return false;
            }
            self.work = all;
        }
        computed
    }

    /// Elements that all nodes give which compute some values.
    fn elements(&self, behind: &Behind) -> usize {
        let outputs = behind.nodes.iter().flat_map(|i| self.resolved.nodes[*i as usize].outputs.iter().flatten());
        outputs.map(|v| self.len(*v)).fold(0, usize::saturating_add)
    }

    fn len(&self, v: ValueId) -> usize {
        self.extents(v).map_or(0, |dims| dims.into_iter().fold(1, usize::saturating_mul))
    }

    /// A value that needs no computing, or was computed already.
    fn constant(&self, v: ValueId) -> Option<HostTensor> {
        let Some(fact) = self.facts.fact(v) else {
            return match self.resolved.sources[v.index()] {
                Source::Initializer(t) => Some(t.clone()),
                Source::Input(_) | Source::Node => None,
            };
        };
        let number = |n: &Extent| match n {
            Extent::Known(n) => Some(*n),
            Extent::Open(_) => None,
        };
        let extents = || {
            let numbers: Option<Vec<i64>> = fact.numbers()?.iter().map(number).collect();
            Some(HostTensor::from_ints(fact.dtype, &known(&fact.dims)?, &numbers?))
        };
        fact.tensor().cloned().or_else(extents)
    }

    fn extents(&self, v: ValueId) -> Option<Vec<usize>> {
        self.facts.fact(v).filter(|f| !f.is_list()).and_then(|f| known(&f.dims))
    }

    fn dtype(&self, v: ValueId) -> Option<DType> {
        self.facts.fact(v).map(|f| f.dtype)
    }

    /// The values among these, or behind them, that are worth computing.
    fn worth_it(&self, mut open: Vec<ValueId>) -> BTreeSet<ValueId> {
        let (mut worth, mut seen) = (BTreeSet::new(), FxHashSet::default());
        while let Some(v) = open.pop() {
            let Some(i) = self.made_by.get(&v).filter(|_| self.constant(v).is_none() && seen.insert(v)) else {
                continue;
            };
            let node = &self.resolved.nodes[*i as usize];
            let one = node.outputs.iter().flatten().count() == 1;
            if one && !FREE.contains(&node.node.op.as_str()) && self.is_worth_it(v) {
                worth.insert(v);
            } else {
                open.extend(node.inputs.iter().flatten());
            }
        }
        worth
    }

    fn is_worth_it(&self, v: ValueId) -> bool {
        let Some(dtype) = self.dtype(v) else { return false };
        let bytes = self.len(v).saturating_mul(dtype.size());
        let behind = self.behind(v);
        let takes_launches = |i: &u32| {
            let node = self.resolved.nodes[*i as usize].node;
            let op = super::ops::find(&node.domain, &node.op);
            let simple = |list: &[&str]| list.contains(&node.op.as_str());
            !op.is_some_and(|o| o.elementwise) && !simple(&FREE) && !simple(&OF_PLACES)
        };
        bytes <= behind.bytes() || bytes <= MOST_BYTES && behind.nodes.iter().any(takes_launches)
    }

    /// What a value is computed from.
    fn behind(&self, v: ValueId) -> Behind {
        let mut behind = Behind::default();
        let mut open = vec![v];
        while let Some(v) = open.pop() {
            if let Some(t) = self.constant(v) {
                behind.roots.insert(v, t);
            } else if let Some(i) = self.made_by.get(&v)
                && behind.nodes.insert(*i)
            {
                open.extend(self.resolved.nodes[*i as usize].inputs.iter().flatten());
            }
        }
        behind
    }

    fn model(&self, part: Behind) -> Model {
        let name = |v: ValueId| self.resolved.names[v.index()].to_string();
        let output = |v: &ValueId| {
            let shape = self.extents(*v).map(|dims| dims.into_iter().map(Dim::Known).collect());
            ValueInfo { name: name(*v), dtype: self.dtype(*v), shape }
        };
        let graph = Graph {
            name: "constants".into(),
            inputs: Vec::new(),
            outputs: part.values.iter().map(output).collect(),
            nodes: part.nodes.iter().map(|i| self.resolved.nodes[*i as usize].node.clone()).collect(),
            initializers: part.roots.into_iter().map(|(v, t)| (name(v), t)).collect(),
        };
        Model { graph, opsets: self.resolved.model.opsets.clone(), ..Model::default() }
    }
}
