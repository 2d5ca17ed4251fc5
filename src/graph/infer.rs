//! Infers the type and shape of every value.
//!
//! One walk over the nodes in order, in front of lowering. Each operator's rule (`infer` of its row in [`super::ops`]) says
//! what its outputs are: an element type and dimensions as [`Dim`]s, so that one rule serves models whose extents are
//! known and models whose extents are not. Operators whose outputs only their lowering tells are lowered to nothing, with
//! placeholders for what they read.
//!
//! Contents of values are followed as far as they decide shapes: what depends on constants only and is small is computed
//! here and becomes a constant, and of lists of numbers that depend on run-time sizes (`Shape`, and arithmetic with what it
//! gives) each number is a [`Dim`]. Lowering reads all of it: types, shapes and constants.
//!
//! A walk is *closed* when all extents are known, as for compilation: then a shape that depends on what the model
//! computes is refused. An *open* one gives such an extent a name of its own and goes on.

use super::ask::Ask;
use super::dim::{Dim, known, product};
use super::error::{Reason, Res};
use super::lower::{Lowering, Value};
use super::ops;
use super::resolve::{Branch, Resolved, ResolvedNode, Source, ValueId};
use super::shared::Shared;
use crate::onnx::{Attribute, Node};
use crate::tensor::{DType, HostTensor};
use rustc_hash::{FxHashMap, FxHashSet};

/// Constants of up to this many elements are computed at compile time wherever possible.
const FOLD_LIMIT: usize = 1 << 16;

/// Lists of more numbers are not shapes.
const MOST_NUMBERS: usize = 64;

/// ONNX's number for attributes that are types.
const TYPE: i32 = 13;

/// What a run-time size stands for where an operator's lowering is asked.
const PLACEHOLDER: i64 = 16;

/// What is known of a value's content.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// All of it.
    Tensor(HostTensor),
    /// Whole numbers, some of which depend on run-time sizes.
    Numbers(Vec<Dim>),
    /// It is no tensor, but a sequence of values.
    List(Shared<Fact>),
    /// It is an optional without a value.
    Nothing,
}

/// What is known of a value.
#[derive(Clone, Debug)]
pub(crate) struct Fact {
    pub dtype: DType,
    pub dims: Vec<Dim>,
    pub content: Option<Content>,
}

impl Fact {
    /// A value of which type and shape are known.
    pub(crate) fn new(dtype: DType, dims: Vec<Dim>) -> Fact {
        Fact { dtype, dims, content: None }
    }

    /// A constant.
    pub(crate) fn of(t: HostTensor) -> Fact {
        let dims = t.shape().iter().map(|&d| d.into()).collect();
        Fact { dtype: t.dtype(), dims, content: Some(Content::Tensor(t)) }
    }

    /// What is known of a value that was lowered.
    pub(crate) fn of_value(value: &Value) -> Fact {
        match value {
            Value::Const(t) => Fact::of(t.clone()),
            Value::Lazy(l) => Fact::new(l.dtype(), l.shape.iter().map(|&d| d.into()).collect()),
            Value::List(list) => Fact::of_list(list.iter().map(Fact::of_value).collect()),
            Value::Nothing => Fact { dtype: DType::F32, dims: Vec::new(), content: Some(Content::Nothing) },
        }
    }

    /// True when it is no tensor.
    pub(crate) fn is_list(&self) -> bool {
        matches!(self.content, Some(Content::List(_) | Content::Nothing))
    }

    /// A sequence.
    pub(crate) fn of_list(list: Shared<Fact>) -> Fact {
        Fact { dtype: DType::F32, dims: Vec::new(), content: Some(Content::List(list)) }
    }

    /// The constant, if it is one.
    pub(crate) fn tensor(&self) -> Option<&HostTensor> {
        match &self.content {
            Some(Content::Tensor(t)) => Some(t),
            _ => None,
        }
    }

    /// The numbers in it, if they are known as far as sizes are.
    pub(super) fn numbers(&self) -> Option<Vec<Dim>> {
        match self.content.as_ref()? {
            Content::Numbers(list) => Some(list.clone()),
            Content::Tensor(t) if t.dtype().is_int() && t.len() <= MOST_NUMBERS => {
                Some(t.to_i64().into_iter().map(Dim::Known).collect())
            }
            Content::Tensor(_) | Content::List(_) | Content::Nothing => None,
        }
    }

    /// What it is when it has no elements.
    fn settle(&mut self) {
        let empty = self.content.is_none() && self.dims.iter().any(|d| d.is(0));
        if let Some(shape) = known(&self.dims).filter(|_| empty) {
            self.content = Some(Content::Tensor(HostTensor::from_f64(self.dtype, &shape, &[])));
        }
    }
}

/// Types, shapes and contents of a model's values, as far as they are known yet.
pub(crate) struct Inference<'m> {
    resolved: &'m Resolved<'m>,
    facts: Vec<Option<Fact>>,
    /// The outputs of each node, also those that nobody reads.
    results: Vec<Vec<Option<Fact>>>,
    /// The node that is looked at.
    current: usize,
    open: bool,
    /// Of an open walk, and of one that goes on after what it refuses: what was refused.
    refused: Option<FxHashMap<u32, Reason>>,
    /// Of an open walk: extents that have to be equal for what is done with them.
    ties: Vec<(Dim, Dim)>,
    /// What a size stands for where its own value matters.
    sizes: FxHashMap<String, i64>,
    /// Where single nodes are lowered to nothing.
    scratch: Option<Box<Lowering<'m>>>,
}

impl<'m> Inference<'m> {
    /// Nothing is known yet.
    pub(crate) fn empty(resolved: &'m Resolved<'m>) -> Inference<'m> {
        Inference {
            resolved,
            facts: vec![None; resolved.sources.len()],
            results: vec![Vec::new(); resolved.nodes.len()],
            current: 0,
            open: false,
            refused: None,
            ties: Vec::new(),
            sizes: FxHashMap::default(),
            scratch: None,
        }
    }

    /// Inputs and constants are known, no node was looked at.
    fn new(resolved: &'m Resolved<'m>, inputs: &[(DType, Vec<Dim>)]) -> Inference<'m> {
        let mut cx = Inference::empty(resolved);
        for (i, source) in resolved.sources.iter().enumerate() {
            cx.facts[i] = match source {
                Source::Node => None,
                Source::Initializer(t) => Some(Fact::of((*t).clone())),
                Source::Input(k) => Some(match (resolved.fixed[*k], inputs.get(*k)) {
                    (Some(value), _) => Fact::of(value.clone()),
                    (None, Some((dtype, dims))) => {
                        let mut fact = Fact::new(*dtype, dims.clone());
                        fact.settle();
                        fact
                    }
                    (None, None) => continue,
                }),
            };
        }
        cx
    }

    /// Everything about a model whose inputs have these types and shapes. The error is the first node that is refused, and
    /// why.
    pub(crate) fn closed(
        resolved: &'m Resolved<'m>,
        inputs: &[(DType, Vec<usize>)],
    ) -> Result<Inference<'m>, (u32, Reason)> {
        let mut cx = Inference::new(resolved, &as_dims(inputs));
        cx.walk(&resolved.top().collect::<Vec<_>>())?;
        Ok(cx)
    }

    /// The same, as far as nodes are not refused.
    pub(crate) fn lenient(resolved: &'m Resolved<'m>, inputs: &[(DType, Vec<usize>)]) -> Inference<'m> {
        let mut cx = Inference::new(resolved, &as_dims(inputs));
        cx.refused = Some(FxHashMap::default());
        // What is refused is in the list.
        let _ = cx.walk(&resolved.top().collect::<Vec<_>>());
        cx
    }

    /// The same, of a model with run-time sizes.
    pub(crate) fn open(resolved: &'m Resolved<'m>, inputs: &[(DType, Vec<Dim>)]) -> Inference<'m> {
        let mut cx = Inference::new(resolved, inputs);
        (cx.open, cx.refused) = (true, Some(FxHashMap::default()));
        // What is refused is in the list.
        let _ = cx.walk(&resolved.top().collect::<Vec<_>>());
        cx
    }

    /// Looks at nodes in their order.
    pub(crate) fn walk(&mut self, nodes: &[u32]) -> Result<(), (u32, Reason)> {
        let outside = self.current;
        for &i in nodes {
            self.current = i as usize;
            let node = &self.resolved.nodes[i as usize];
            self.results[i as usize].clear();
            let unknown = |v: &ValueId| self.facts[v.index()].is_none();
            if self.refused.is_some() && read_by(self.resolved, node).iter().any(unknown) {
                continue;
            }
            let result = self.look();
            match (&mut self.refused, result) {
                (_, Ok(())) => {}
                (None, Err(reason)) => return Err((i, reason)),
                (Some(list), Err(reason)) => {
                    list.insert(i, reason);
                }
            }
        }
        self.current = outside;
        Ok(())
    }

    /// Looks at the nodes of a graph inside of the current node: the first one that is refused is an error, also of a walk that goes on.
    pub(crate) fn walk_within(&mut self, nodes: &[u32]) -> Res<()> {
        let (outside, refused) = (self.current, self.refused.take());
        let result = self.walk(nodes);
        (self.current, self.refused) = (outside, refused);
        result.map_err(|(i, reason)| Reason::within(i, self.resolved.nodes[i as usize].node, reason))
    }

    /// Looks at the current node.
    fn look(&mut self) -> Res<()> {
        let (i, node) = (self.current, self.node());
        let op = operator(node.node)?;
        self.results[i] = vec![None; node.outputs.len()];
        let is_list = |v: &Option<ValueId>| v.and_then(|v| self.fact(v)).is_some_and(Fact::is_list);
        if let (false, Some(at)) = (op.lists, node.inputs.iter().position(is_list)) {
            return Err(Reason::Type(format!("input {at} is a sequence, or an optional without a value")));
        }
        let text = |v: &Option<ValueId>| v.is_some_and(|v| self.dtype(v) == DType::Str);
        if let (false, Some(at)) = (op.takes_strings(), node.inputs.iter().position(text)) {
            return Err(Reason::Type(format!("input {at} holds strings, which it does not take")));
        }
        op.check_inputs(&node.inputs, |v| self.fact(*v).filter(|f| !f.is_list()).map(|f| f.dtype))?;
        (op.infer)(self)?;
        self.results[i].iter_mut().flatten().for_each(Fact::settle);
        let inputs = || node.inputs.iter().flatten().map(|v| self.facts[v.index()].as_ref());
        let small = |fact: &Fact| product(&fact.dims).known().is_some_and(|n| n <= FOLD_LIMIT);
        let constant = |fact: Option<&Fact>| fact.is_some_and(|f| f.tensor().is_some() && small(f));
        let wanted = || node.outputs.iter().zip(&self.results[i]).filter(|(o, _)| o.is_some()).map(|(_, f)| f.as_ref());
        let done = wanted().all(|f| f.is_some_and(|f| f.tensor().is_some()));
        // Weights of 8 bits are told from what they are widened to: products take them as they are.
        let weights = |f: Option<&Fact>| {
            f.is_some_and(|f| f.dtype.is_small_float() && f.tensor().is_some_and(|t| t.len() > MOST_NUMBERS))
        };
        let computed = inputs().all(constant) && wanted().all(|f| f.is_none_or(small)) && !inputs().any(weights);
        if !done && node.branches.is_empty() && computed {
            self.attempt(true)?;
        }
        for (k, o) in node.outputs.iter().enumerate() {
            let Some(o) = o else { continue };
            let Some(fact) = &self.results[i][k] else {
                return Err(Reason::Output { number: k, meaning: "", rest: "; only earlier outputs are" });
            };
            self.facts[o.index()] = Some(fact.clone());
        }
        Ok(())
    }

    /// Lowers the current node to nothing, for its outputs; computes them when their inputs are constants and it is asked to
    /// `fold`.
    fn attempt(&mut self, fold: bool) -> Res<()> {
        let (i, node) = (self.current, self.node());
        let mut scratch =
            self.scratch.take().unwrap_or_else(|| Box::new(Lowering::over(Inference::empty(self.resolved))));
        let reads = read_by(self.resolved, node);
        let mut sized = false;
        for v in &reads {
            let Some(fact) = &self.facts[v.index()] else { continue };
            sized |= known(&fact.dims).is_none() || matches!(fact.content, Some(Content::Numbers(_)));
            scratch.adopt(*v, &self.placed(fact));
        }
        let results = self.results[i].iter().map(|f| f.as_ref().map(|f| self.placed(f))).collect();
        let results = scratch.attempt(i, results, fold);
        scratch.clean(reads.into_iter(), i);
        self.scratch = Some(scratch);
        self.results[i] = results?;
        if sized && self.open {
            for k in 0..self.results[i].len() {
                self.name_dims(k);
            }
        }
        Ok(())
    }

    /// The fact with numbers for sizes.
    fn placed(&self, fact: &Fact) -> Fact {
        let size = |name: &str| self.sizes.get(name).copied().unwrap_or(PLACEHOLDER);
        let dims: Vec<Dim> = fact.dims.iter().map(|d| Dim::Known(d.at(&size).max(0))).collect();
        let content = match (&fact.content, known(&dims)) {
            // Where sizes on trial are not what the numbers were counted for, they are not known.
            (Some(Content::Numbers(list)), Some(shape)) if list.len() != shape.iter().product::<usize>() => None,
            (Some(Content::Numbers(list)), Some(shape)) => {
                let values: Vec<i64> = list.iter().map(|d| d.at(&size)).collect();
                Some(Content::Tensor(HostTensor::from_ints(fact.dtype, &shape, &values)))
            }
            (Some(Content::List(list)), _) => Some(Content::List(list.iter().map(|f| self.placed(f)).collect())),
            (content, _) => content.clone(),
        };
        Fact { dtype: fact.dtype, dims, content }
    }

    /// Gives every extent of output `k` that is not known for all sizes a name.
    fn name_dims(&mut self, k: usize) {
        let Some(o) = self.node().outputs.get(k).copied().flatten() else { return };
        let Some(mut fact) = self.results[self.current][k].take() else { return };
        self.name_extents(&mut fact, self.resolved.names[o.index()]);
        self.results[self.current][k] = Some(fact);
    }

    fn name_extents(&mut self, fact: &mut Fact, value: &str) {
        match &mut fact.content {
            Some(Content::List(list)) => {
                let mut facts: Vec<Fact> = list.iter().cloned().collect();
                facts.iter_mut().enumerate().for_each(|(i, f)| self.name_extents(f, &format!("{value}[{i}]")));
                *list = facts.into_iter().collect();
            }
            Some(Content::Nothing) => {}
            content => *content = None,
        }
        for (d, dim) in fact.dims.iter_mut().enumerate().filter(|(_, dim)| !dim.is(1)) {
            let name = format!("{value}[{d}]");
            self.sizes.insert(name.clone(), dim.at(&|_| PLACEHOLDER));
            *dim = Dim::size(&name);
        }
    }

    /// A walk that may give extents names: for rules of what the model computes.
    pub(crate) fn is_open(&self) -> bool {
        self.open
    }

    /// A size that only a run tells, for dimension `d` of output `k`.
    pub(crate) fn told_by_run(&self, k: usize, d: usize) -> Dim {
        let o = self.node().outputs.get(k).copied().flatten();
        Dim::size(&format!("{}[{d}]", o.map_or("output", |o| self.resolved.names[o.index()])))
    }

    /// What the walk found to be equal, if it was an open one.
    pub(crate) fn into_ties(self) -> Vec<(Dim, Dim)> {
        self.ties
    }

    // ---- what rules ask and say ----

    /// These extents have to be equal.
    pub(crate) fn tie(&mut self, pairs: Vec<(Dim, Dim)>) {
        if self.open {
            self.ties.extend(pairs.into_iter().filter(|(a, b)| a != b));
        }
    }

    /// What is known of a value.
    pub(crate) fn fact(&self, v: ValueId) -> Option<&Fact> {
        self.facts[v.index()].as_ref()
    }

    /// Replaces what is known of a value.
    pub(crate) fn learn(&mut self, v: ValueId, fact: Option<Fact>) {
        self.facts[v.index()] = fact;
    }

    /// Output `i` of a node.
    pub(crate) fn result(&self, node: usize, i: usize) -> Option<&Fact> {
        self.results[node].get(i)?.as_ref()
    }

    pub(crate) fn set_results(&mut self, node: usize, results: Vec<Option<Fact>>) {
        self.results[node] = results;
    }

    /// Why a node was refused, of a walk that went on.
    pub(crate) fn refused(&self, node: u32) -> Option<&Reason> {
        self.refused.as_ref()?.get(&node)
    }

    /// Dimensions of a value.
    pub(crate) fn dims(&self, v: ValueId) -> &[Dim] {
        self.fact(v).map_or(&[], |f| &f.dims)
    }

    /// The numbers in input `i`, which has to be known as far as sizes are.
    pub(crate) fn numbers(&self, i: usize, what: &str) -> Res<Vec<Dim>> {
        match self.fact(self.input(i)?).and_then(Fact::numbers) {
            Some(list) => Ok(list),
            None => Ok(self.const_ints(i, what)?.into_iter().map(Dim::Known).collect()),
        }
    }

    /// The numbers in a value, where they are few and known as far as sizes are, and one of them is not a constant.
    pub(crate) fn sized_numbers(&self, v: ValueId) -> Option<Vec<Dim>> {
        let fact = self.fact(v)?;
        if fact.tensor().is_some() && !self.open { None } else { fact.numbers() }
    }

    /// Output `i` has this type and these dimensions.
    pub(crate) fn give(&mut self, i: usize, dtype: DType, dims: Vec<Dim>) -> Res<()> {
        if let Some(shape) = known(&dims)
            && crate::tensor::element_count(&shape).is_none()
        {
            return Err(Reason::Size(format!("the result's shape {shape:?} is too large")));
        }
        self.say(i, Fact::new(dtype, dims));
        Ok(())
    }

    /// Output `i` is this constant.
    pub(crate) fn give_value(&mut self, i: usize, value: HostTensor) {
        self.say(i, Fact::of(value));
    }

    /// Output `i` holds these numbers, besides what was said of it.
    pub(crate) fn give_numbers(&mut self, i: usize, list: Vec<Dim>) {
        if let Some(Some(fact)) = self.results[self.current].get_mut(i)
            && fact.tensor().is_none()
            && list.len() <= MOST_NUMBERS
        {
            fact.content = Some(Content::Numbers(list));
        }
    }

    /// Output `i` is a value of the node.
    pub(crate) fn same(&mut self, i: usize, v: ValueId) {
        if let Some(fact) = self.fact(v).cloned() {
            self.say(i, fact);
        }
    }

    /// Output `i` is what this says, also if nobody wants that output: lowering may ask for it.
    pub(crate) fn say(&mut self, i: usize, fact: Fact) {
        let results = &mut self.results[self.current];
        results.resize(results.len().max(i + 1), None);
        results[i] = Some(fact);
    }
}

impl<'m> Ask<'m> for Inference<'m> {
    fn place(&self) -> (&'m Resolved<'m>, usize) {
        (self.resolved, self.current)
    }
    fn dtype(&self, v: ValueId) -> DType {
        self.fact(v).map_or(DType::F32, |f| f.dtype)
    }
    fn rank(&self, v: ValueId) -> usize {
        self.dims(v).len()
    }
    fn constant(&self, v: ValueId) -> Option<&HostTensor> {
        self.fact(v)?.tensor()
    }
}

/// The rule of operators whose outputs only their lowering tells.
pub(crate) fn by_lowering(cx: &mut Inference<'_>) -> Res<()> {
    cx.attempt(false)
}

/// Fails when a node's operator is not there, or does not know one of its attributes.
pub(crate) fn check_operator(node: &Node) -> Res<()> {
    operator(node).map(|_| ())
}

/// A node's operator, which has to know all its attributes.
fn operator(node: &Node) -> Res<&'static ops::Operator> {
    let (domain, name) = (&node.domain, &node.op);
    let op = ops::find(domain, name).ok_or_else(|| Reason::Operator { hint: ops::hint(domain, name) })?;
    for (name, value) in &node.attributes {
        // Types of values are known without being told.
        let told = matches!(value, Attribute::Other(TYPE)) && op.lists;
        if matches!(value, Attribute::Other(_)) && !told {
            return Err(Reason::attribute(name, "has a type that is not supported"));
        }
        if !op.attributes.split(' ').any(|a| a == name) {
            let known = if op.attributes.is_empty() { "none" } else { op.attributes };
            return Err(Reason::attribute(name, format!("is not supported; {} supports {known}", op.name)));
        }
    }
    Ok(op)
}

fn as_dims(inputs: &[(DType, Vec<usize>)]) -> Vec<(DType, Vec<Dim>)> {
    inputs.iter().map(|(t, shape)| (*t, shape.iter().map(|&d| d.into()).collect())).collect()
}

/// All values that a node reads, and those that the graphs inside of it read from around it.
pub(super) fn read_by(resolved: &Resolved<'_>, node: &ResolvedNode<'_>) -> FxHashSet<ValueId> {
    let mut reads: FxHashSet<ValueId> = node.inputs.iter().flatten().copied().collect();
    for Branch { nodes, parameters, outputs, .. } in &node.branches {
        let mut inside: FxHashSet<ValueId> = outputs.iter().copied().collect();
        let nodes = || nodes.iter().map(|n| &resolved.nodes[*n as usize]);
        nodes().for_each(|n| inside.extend(read_by(resolved, n)));
        let made: FxHashSet<ValueId> =
            nodes().flat_map(|n| n.outputs.iter().flatten()).chain(parameters).copied().collect();
        reads.extend(inside.difference(&made));
    }
    reads
}

impl Lowering<'_> {
    /// Makes a value known, without a graph that computes it.
    fn adopt(&mut self, v: ValueId, fact: &Fact) {
        if let Some(value) = self.placeheld(v, fact) {
            self.bind(v, value);
        }
    }

    fn placeheld(&mut self, v: ValueId, fact: &Fact) -> Option<Value> {
        match &fact.content {
            Some(Content::Tensor(t)) => Some(Value::Const(t.clone())),
            Some(Content::List(list)) => {
                list.iter().map(|f| self.placeheld(v, f)).collect::<Option<_>>().map(Value::List)
            }
            Some(Content::Nothing) => Some(Value::Nothing),
            _ => known(&fact.dims).map(|shape| self.placeholder(v, fact.dtype, &shape)),
        }
    }

    /// Lowers node `i`, and gives what it makes of its outputs.
    fn attempt(&mut self, i: usize, results: Vec<Option<Fact>>, fold: bool) -> Res<Vec<Option<Fact>>> {
        self.current = i;
        self.inference.set_results(i, results);
        let node = self.resolved_node(i as u32);
        (operator(node.node)?.lower)(self)?;
        let outputs: Vec<ValueId> = node.outputs.iter().flatten().copied().collect();
        if fold {
            self.fold(&outputs)?;
        }
        let fact = |v: ValueId| self.values[v.index()].as_ref().map(Fact::of_value);
        Ok(node.outputs.iter().map(|o| o.and_then(fact)).collect())
    }

    /// Forgets everything about a node that was lowered to nothing.
    fn clean(&mut self, reads: impl Iterator<Item = ValueId>, i: usize) {
        let node = self.resolved_node(i as u32);
        let outputs = node.outputs.iter().flatten().copied();
        for v in reads.chain(outputs).chain(node.branches.iter().flat_map(|b| b.parameters.iter().copied())) {
            self.unbind(v);
            self.inference.learn(v, None);
        }
        node.branches.iter().for_each(|b| self.forget(b));
        self.inference.set_results(i, Vec::new());
        self.reset();
    }
}
