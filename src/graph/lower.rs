//! Lowers operators to steps.
//!
//! One walk over the nodes in order, behind [`super::infer`], which knows types, shapes and constants already. Each operator's
//! function (see [`super::ops`]) reads its inputs as constants or lazy values and sets its outputs, which have the types and
//! shapes that were inferred. What several later nodes read is stored, unless the reading is free or the readers form one
//! cluster.
//!
//! A step is emitted when a value has to be stored. Everything lazy that has gathered on a producer by then is its
//! epilogue.

use super::ask::Ask;
use super::compose::MAX_COST;
use super::dim::known;
use super::error::{Reason, Res};
use super::expr::{Expr, Scalar};
use super::fused::{Access, FusedGraph, Role, Step, StepKind, Tensor, TensorId};
use super::infer::{Fact, Inference};
use super::interpret::Interpreter;
use super::lazy::{Lazy, reshape_access, without_ones};
use super::norms::{Norms, Written, find_norms};
use super::ops;
use super::resolve::{Branch, Resolved, ResolvedNode, Source, ValueId};
use super::shared::Shared;
use super::view::View;
use crate::onnx::Attribute;
use crate::tensor::{DType, HostTensor};

/// What is known about a value.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    /// Known at compile time.
    Const(HostTensor),
    /// Computed at run time.
    Lazy(Lazy),
    /// A sequence; its elements rest on no kernel.
    List(Shared<Value>),
    /// An optional without a value.
    Nothing,
}

/// A part of what a producer writes: a slice `(start, step, length)` of each output dimension.
pub(crate) struct Part {
    pub kind: StepKind,
    pub inputs: Vec<Access>,
    pub slices: Option<Vec<(usize, usize, usize)>>,
    /// Stands for the kernel's value where the kind has none (`Pointwise`).
    pub acc: Option<Scalar>,
}

pub(super) struct Producer {
    pub(super) parts: Vec<Part>,
    pub(super) dims: Vec<usize>,
}

/// The state of lowering.
pub(crate) struct Lowering<'m> {
    pub(super) resolved: &'m Resolved<'m>,
    pub(super) inference: Inference<'m>,
    pub graph: FusedGraph,
    pub(super) values: Vec<Option<Value>>,
    stored_consts: Vec<Option<TensorId>>,
    pub(super) producers: Vec<Producer>,
    inline: Vec<bool>,
    norms: Norms,
    /// Indices of scatters whose updates were put in order, and that order: those of several scatters are sorted once.
    pub(super) orders: Vec<(ops::Indices, ops::Order)>,
    /// The last update of each place, of those that were looked for.
    pub(super) lasts: Vec<(ops::Indices, Access)>,
    /// The node being lowered.
    pub(super) current: usize,
    /// How many nodes were lowered so far; one in the body of a loop counts in each round.
    pub(super) laid_out: usize,
    /// In a survey: what became of the nodes so far.
    outcomes: Option<Vec<(u32, Outcome)>>,
}

/// Lowers all nodes; the result computes the model but its views are not merged yet. The error is the node that is refused,
/// and why.
pub(crate) fn lower(
    resolved: &Resolved<'_>,
    shapes: &[(DType, Vec<usize>)],
    inline: Vec<bool>,
) -> Result<FusedGraph, (u32, Reason)> {
    let mut cx = Lowering::new(Inference::closed(resolved, shapes)?, shapes, inline);
    cx.lower_nodes(&resolved.top().collect::<Vec<_>>())?;
    cx.store_outputs();
    Ok(cx.graph)
}

/// How a node fares in [`survey`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    /// It is lowered.
    Lowered,
    /// It is not, and why.
    Refused(Reason),
    /// It reads a value, named here, that an earlier node should have computed.
    Blocked(String),
}

/// Lowers whatever can be lowered, node by node: what becomes of each node that was looked at (those in branches that are
/// not taken are not), and a graph that has the steps of all nodes that were lowered, but need not compute the model.
pub(crate) fn survey(
    resolved: &Resolved<'_>,
    shapes: &[(DType, Vec<usize>)],
    inline: Vec<bool>,
) -> (Vec<(u32, Outcome)>, FusedGraph) {
    let mut cx = Lowering::new(Inference::lenient(resolved, shapes), shapes, inline);
    cx.outcomes = Some(Vec::new());
    // Reasons are among the outcomes.
    let _ = cx.lower_nodes(&resolved.top().collect::<Vec<_>>());
    // Every value that waits to be part of a kernel becomes one.
    for v in resolved.nodes.iter().flat_map(|n| n.outputs.iter().flatten()) {
        if matches!(&cx.values[v.index()], Some(Value::Lazy(l)) if l.base.is_some() || !l.expr.is_copy()) {
            cx.store(*v);
        }
    }
    (cx.outcomes.unwrap_or_default(), cx.graph)
}

/// The operator with its domain, when that is not ONNX's own. What checks another's inputs speaks for it.
pub(crate) fn qualified(node: &crate::onnx::Node) -> String {
    if let ("barewave", Some(Attribute::Text(other))) = (node.domain.as_str(), node.attributes.get("operator")) {
        return other.clone();
    }
    if node.domain.is_empty() { node.op.clone() } else { format!("{}.{}", node.domain, node.op) }
}

impl<'m> Lowering<'m> {
    /// A state in which nothing is known and no value is stored for its readers' sake.
    pub(super) fn over(inference: Inference<'m>) -> Lowering<'m> {
        let (resolved, _) = inference.place();
        let count = resolved.sources.len();
        Lowering {
            resolved,
            inference,
            graph: FusedGraph::default(),
            values: vec![None; count],
            stored_consts: vec![None; count],
            producers: Vec::new(),
            inline: vec![false; count],
            norms: Norms::default(),
            orders: Vec::new(),
            lasts: Vec::new(),
            current: 0,
            laid_out: 0,
            outcomes: None,
        }
    }

    /// Inputs and constants are values, no node is lowered yet.
    fn new(inference: Inference<'m>, shapes: &[(DType, Vec<usize>)], inline: Vec<bool>) -> Lowering<'m> {
        let norms = find_norms(&inference);
        let mut cx = Lowering { inline, norms, ..Lowering::over(inference) };
        let resolved = cx.resolved;
        cx.graph.name = resolved.model.graph.name.clone();
        cx.graph.metadata = resolved.model.metadata.clone();
        for (i, source) in resolved.sources.iter().enumerate() {
            match source {
                Source::Node => {}
                Source::Initializer(t) => cx.values[i] = Some(Value::Const((*t).clone())),
                Source::Input(k) => {
                    let (dtype, shape) = shapes[*k].clone();
                    let view = View::dense(&shape);
                    let empty = view.is_empty();
                    let id = cx.graph.add_tensor(Tensor {
                        name: resolved.names[i].into(),
                        dtype,
                        shape: shape.clone(),
                        role: Role::Input(*k),
                    });
                    cx.graph.inputs.push(id);
                    cx.values[i] = Some(if let Some(value) = resolved.fixed[*k] {
                        Value::Const(value.clone())
                    } else if empty {
                        Value::Const(HostTensor::from_f64(dtype, &shape, &[]))
                    } else {
                        Value::Lazy(Lazy::read(Access::new(id, view), dtype))
                    });
                }
            }
        }
        cx
    }

    /// Lowers nodes in their order. The error is the first that is refused, and why; a survey goes on and takes notes.
    pub(crate) fn lower_nodes(&mut self, nodes: &[u32]) -> Result<(), (u32, Reason)> {
        let resolved: &'m Resolved<'m> = self.resolved;
        let outside = self.current;
        for &i in nodes {
            self.current = i as usize;
            self.laid_out += 1;
            let node = &resolved.nodes[i as usize];
            if self.norms.hides(i) {
                self.outcomes.iter_mut().for_each(|list| list.push((i, Outcome::Lowered)));
                continue;
            }
            if self.outcomes.is_none() {
                self.lower_node().map_err(|reason| (i, reason))?;
                continue;
            }
            let reads = match self.norms.at(i) {
                Some(written) => written.reads(),
                None => node.inputs.iter().flatten().copied().collect(),
            };
            let missing = reads.iter().find(|v| self.values[v.index()].is_none());
            let outcome = match missing {
                Some(v) => Outcome::Blocked(resolved.names[v.index()].to_string()),
                None => match self.lower_inferred(i) {
                    Ok(()) => Outcome::Lowered,
                    Err(reason) => {
                        node.outputs.iter().flatten().for_each(|o| self.values[o.index()] = None);
                        Outcome::Refused(reason)
                    }
                },
            };
            self.outcomes.iter_mut().for_each(|list| list.push((i, outcome.clone())));
        }
        self.current = outside;
        Ok(())
    }

    /// In a survey: lowers a node, unless inference refused it. Nodes with graphs inside are looked at with what is in them; inference
    /// goes past those that read what it does not know, and past what reads their results, for which it is made up here.
    fn lower_inferred(&mut self, i: u32) -> Res<()> {
        let node = self.node();
        let within = !node.branches.is_empty()
            && ops::find(&node.node.domain, &node.node.op).is_some_and(ops::Operator::runs_graphs);
        match self.inference.refused(i) {
            Some(reason) if !within => return Err(reason.clone()),
            _ => {}
        }
        let wanted = || node.outputs.iter().enumerate().filter_map(|(k, o)| Some((k, (*o)?)));
        if !within && wanted().any(|(k, _)| self.inference.result(i as usize, k).is_none()) {
            self.infer(&[i]).map_err(|(_, reason)| reason)?;
            if let Some(reason) = self.inference.refused(i) {
                return Err(reason.clone());
            }
        }
        self.lower_node()?;
        for (_, o) in wanted() {
            if let (None, Some(value)) = (self.inference.fact(o), &self.values[o.index()]) {
                let fact = Fact::of_value(value);
                self.inference.learn(o, Some(fact));
            }
        }
        Ok(())
    }

    fn lower_node(&mut self) -> Res<()> {
        let resolved: &'m Resolved<'m> = self.resolved;
        let node = &resolved.nodes[self.current];
        let constant = |k: usize| self.inference.result(self.current, k).and_then(Fact::tensor).cloned();
        let constants: Option<Vec<(ValueId, HostTensor)>> =
            (0..).zip(&node.outputs).filter_map(|(k, o)| o.map(|o| Some((o, constant(k)?)))).collect();
        if let Some(list) = constants {
            list.into_iter().for_each(|(o, t)| self.values[o.index()] = Some(Value::Const(t)));
            return Ok(());
        }
        let (domain, name) = (&node.node.domain, &node.node.op);
        let op = ops::find(domain, name).ok_or_else(|| Reason::Operator { hint: ops::hint(domain, name) })?;
        match self.norms.at(self.current as u32).cloned() {
            Some(Written::Norm(norm)) => ops::lower_norm(self, &norm)?,
            Some(Written::Softmax(x)) => ops::lower_softmax(self, x),
            None => (op.lower)(self)?,
        }
        for (k, o) in node.outputs.iter().enumerate() {
            let Some(o) = *o else { continue };
            match &self.values[o.index()] {
                None => return Err(Reason::Output { number: k, meaning: "", rest: "; only earlier outputs are" }),
                Some(Value::Lazy(l)) if l.shape.contains(&0) => {
                    let empty = HostTensor::from_f64(l.dtype(), &l.shape, &[]);
                    self.values[o.index()] = Some(Value::Const(empty));
                }
                _ => {}
            }
            self.agree(k, o)?;
            if resolved.uses[o.index()] > 1
                && let Some(Value::Lazy(l)) = &self.values[o.index()]
                && !l.is_cheap()
                && (!self.inline[o.index()] || l.expr.cost() > MAX_COST / 2)
            {
                // A long expression that each reader brought along would be computed again where it is cut.
                self.store(o);
            }
        }
        Ok(())
    }

    /// What output `k` was lowered to is what was inferred.
    fn agree(&self, k: usize, o: ValueId) -> Res<()> {
        let (dtype, shape) = (self.dtype(o), self.shape(o));
        let Some(fact) = self.inference.result(self.current, k) else {
            // Of nodes with graphs inside a survey infers nothing before it looks at what is in them.
            return match self.node().branches[..] {
                [] => {
                    let inferred = "left out".into();
                    Err(Reason::Disagreement { number: k, inferred, lowered: format!("{dtype}{shape:?}") })
                }
                _ => Ok(()),
            };
        };
        if fact.is_list() {
            return Ok(());
        }
        if fact.dtype == dtype && known(&fact.dims).is_some_and(|dims| dims == shape) {
            return Ok(());
        }
        let dims: Vec<String> = fact.dims.iter().map(|d| d.to_string()).collect();
        let inferred = format!("{}[{}]", fact.dtype, dims.join(", "));
        Err(Reason::Disagreement { number: k, inferred, lowered: format!("{dtype}{shape:?}") })
    }

    /// Computes outputs on the host, whose steps and tensors are all there is.
    pub(super) fn fold(&mut self, outputs: &[ValueId]) -> Res<()> {
        for &o in outputs {
            if let Some(value) = self.values[o.index()].clone() {
                self.values[o.index()] = Some(self.folded(value)?);
            }
        }
        Ok(())
    }

    fn folded(&mut self, value: Value) -> Res<Value> {
        Ok(match value {
            Value::Lazy(lazy) => {
                let (shape, dtype) = (lazy.shape.clone(), lazy.dtype());
                let id = self.store_lazy(lazy);
                let value = Interpreter::new(&self.graph).evaluate_constant(&self.graph, 0, id)?;
                debug_assert_eq!(value.dtype(), dtype);
                Value::Const(value.reshaped(&shape)?)
            }
            Value::List(list) => Value::List(list.iter().map(|v| self.folded(v.clone())).collect::<Res<_>>()?),
            Value::Const(_) | Value::Nothing => value,
        })
    }

    /// Forgets all steps and tensors.
    pub(super) fn reset(&mut self) {
        self.graph.steps.clear();
        self.graph.widened.clear();
        self.graph.tensors.clear();
        self.producers.clear();
        self.orders.clear();
        self.lasts.clear();
    }

    /// A tensor that nothing computes.
    pub(super) fn placeholder(&mut self, v: ValueId, dtype: DType, shape: &[usize]) -> Value {
        let name = self.resolved.names[v.index()].to_string();
        let id = self.graph.add_tensor(Tensor { name, dtype, shape: shape.to_vec(), role: Role::Intermediate });
        Value::Lazy(Lazy::read(Access::new(id, View::dense(shape)), dtype))
    }

    /// Stores every output of the model; the elements of a sequence are outputs `name[0]`, `name[1]` and so on.
    fn store_outputs(&mut self) {
        let resolved = self.resolved;
        for (i, &v) in resolved.outputs.iter().enumerate() {
            let name = &resolved.model.graph.outputs[i].name;
            match self.values[v.index()].clone() {
                Some(Value::Nothing) => {}
                Some(Value::List(list)) => {
                    for (k, value) in list.iter().enumerate() {
                        let lazy = self.as_lazy(value);
                        self.store_output(format!("{name}[{k}]"), lazy);
                    }
                }
                _ => {
                    let lazy = self.lazy(v);
                    let (dtype, shape, empty) = (lazy.dtype(), lazy.shape.clone(), lazy.len() == 0);
                    let id = self.store_output(name.clone(), lazy);
                    if !empty {
                        let view = View::dense(&shape);
                        self.values[v.index()] = Some(Value::Lazy(Lazy::read(Access::new(id, view), dtype)));
                    }
                }
            }
        }
    }

    /// Makes a value the next output of the model.
    fn store_output(&mut self, name: String, lazy: Lazy) -> TensorId {
        let (dtype, shape) = (lazy.dtype(), lazy.shape.clone());
        let role = Role::Output(self.graph.outputs.len());
        let id = if shape.contains(&0) {
            self.graph.add_tensor(Tensor { name, dtype, shape, role })
        } else {
            let id = self.store_lazy(lazy);
            let tensor = &mut self.graph.tensors[id.index()];
            if matches!(tensor.role, Role::Intermediate) {
                (tensor.role, tensor.shape, tensor.name) = (role, shape, name);
                id
            } else {
                let view = View::dense(&shape);
                let source = Access::new(id, view.clone());
                let out = self.graph.add_tensor(Tensor { name: name.clone(), dtype, shape, role });
                let output = Access::new(out, view);
                let step =
                    Step { name, kind: StepKind::Pointwise, inputs: vec![source], expr: Expr::copy(dtype), output };
                self.graph.steps.push(step);
                out
            }
        };
        self.graph.outputs.push(id);
        id
    }

    // ---- what operators ask ----

    /// Node number `i`.
    pub(crate) fn resolved_node(&self, i: u32) -> &'m ResolvedNode<'m> {
        &self.resolved.nodes[i as usize]
    }

    /// True when a value has been computed, as all that precede their readers are, but for those of a survey.
    pub(crate) fn is_known(&self, v: ValueId) -> bool {
        self.values[v.index()].is_some()
    }

    /// Sets output `i`; nothing happens when nobody reads it.
    pub(crate) fn set(&mut self, i: usize, mut lazy: Lazy) {
        if let Some(o) = self.node().outputs.get(i).copied().flatten() {
            if lazy.base.is_some() || !lazy.expr.is_copy() || lazy.nodes.is_empty() {
                let n = self.current as u32;
                if lazy.nodes.last() != Some(&n) {
                    lazy.nodes.push(n);
                }
            }
            self.values[o.index()] = Some(Value::Lazy(lazy));
        }
    }

    /// Sets output `i` to a constant.
    pub(crate) fn set_const(&mut self, i: usize, tensor: HostTensor) {
        if let Some(o) = self.node().outputs.get(i).copied().flatten() {
            self.values[o.index()] = Some(Value::Const(tensor));
        }
    }

    /// Sets output `i` to the value of an input, constant or not.
    pub(crate) fn pass(&mut self, i: usize, v: ValueId) {
        if let Some(o) = self.node().outputs.get(i).copied().flatten() {
            self.values[o.index()] = self.values[v.index()].clone();
        }
    }

    /// Shape of a value.
    pub(crate) fn shape(&self, v: ValueId) -> &[usize] {
        match self.values[v.index()].as_ref() {
            Some(Value::Const(t)) => t.shape(),
            Some(Value::Lazy(l)) => &l.shape,
            Some(Value::List(_) | Value::Nothing) | None => &[],
        }
    }

    /// Shape of output `i`, as it was inferred.
    pub(crate) fn result(&self, i: usize) -> Vec<usize> {
        self.inference.result(self.current, i).and_then(|f| known(&f.dims)).unwrap_or_default()
    }

    /// Infers types and shapes of nodes in the graph inside of a node, for the values that it was given.
    pub(crate) fn infer(&mut self, nodes: &[u32]) -> Result<(), (u32, Reason)> {
        self.inference.walk(nodes)
    }

    /// Gives a parameter of a branch its value.
    pub(crate) fn bind(&mut self, v: ValueId, value: Value) {
        let fact = Fact::of_value(&value);
        self.inference.learn(v, Some(fact));
        self.stored_consts[v.index()] = None;
        self.values[v.index()] = Some(value);
    }

    /// Forgets a value.
    pub(super) fn unbind(&mut self, v: ValueId) {
        (self.values[v.index()], self.stored_consts[v.index()]) = (None, None);
        self.inference.learn(v, None);
    }

    /// Makes a value output `i`.
    pub(crate) fn give(&mut self, i: usize, value: Value) {
        let Some(o) = self.node().outputs.get(i).copied().flatten() else { return };
        // Of a long sequence it is told once what is known of its elements.
        if matches!(value, Value::List(_)) && self.inference.fact(o).is_some_and(Fact::is_list) {
            self.values[o.index()] = Some(value);
        } else {
            self.bind(o, value);
        }
    }

    /// Forgets what the nodes of a branch computed, and of those inside of it.
    pub(crate) fn forget(&mut self, branch: &Branch<'_>) {
        let resolved = self.resolved;
        for &n in &branch.nodes {
            let node = &resolved.nodes[n as usize];
            for o in node.outputs.iter().flatten() {
                self.unbind(*o);
            }
            node.branches.iter().for_each(|b| self.forget(b));
        }
    }

    /// A value that rests on no kernel: what it is stays what it is.
    pub(crate) fn settled(&mut self, v: ValueId) -> Value {
        if matches!(&self.values[v.index()], Some(Value::Lazy(l)) if !l.is_cheap()) {
            self.store(v);
        }
        self.values[v.index()].clone().unwrap_or_else(|| unreachable!("values precede their readers"))
    }

    /// A value that may have no number as a lazy one.
    pub(crate) fn as_lazy(&mut self, value: &Value) -> Lazy {
        match value {
            Value::Lazy(l) => l.clone(),
            Value::Const(t) if t.is_empty() => splat(t.dtype(), t.shape(), Scalar::of(t.dtype(), 0.0)),
            Value::Const(t) => {
                let (dtype, shape) = (t.dtype(), t.shape().to_vec());
                let id = self.add_const("constant".into(), t.clone());
                Lazy::read(Access::new(id, View::dense(&shape)), dtype)
            }
            Value::List(_) | Value::Nothing => unreachable!("inference lets only tensors through"),
        }
    }

    /// A value as a lazy one. Constants of one element become literals.
    pub(crate) fn lazy(&mut self, v: ValueId) -> Lazy {
        match self.values[v.index()].as_ref() {
            Some(Value::Lazy(l)) => l.clone(),
            Some(Value::Const(t)) if t.len() == 1 => {
                let (dtype, shape) = (t.dtype(), t.shape().to_vec());
                splat(dtype, &shape, literal(t))
            }
            Some(Value::Const(t)) if t.is_empty() => splat(t.dtype(), t.shape(), Scalar::of(t.dtype(), 0.0)),
            Some(Value::Const(t)) => {
                let (dtype, shape) = (t.dtype(), t.shape().to_vec());
                let id = self.store_const(v);
                Lazy::read(Access::new(id, View::dense(&shape)), dtype)
            }
            Some(Value::List(_) | Value::Nothing) => unreachable!("inference lets only tensors through"),
            None => unreachable!("values precede their readers"),
        }
    }

    fn store_const(&mut self, v: ValueId) -> TensorId {
        if let Some(id) = self.stored_consts[v.index()] {
            return id;
        }
        let Some(Value::Const(t)) = &self.values[v.index()] else { unreachable!("only constants are stored here") };
        let tensor = t.clone();
        let id = self.add_const(self.resolved.names[v.index()].to_string(), tensor);
        self.stored_consts[v.index()] = Some(id);
        id
    }

    /// Adds a constant tensor.
    pub(crate) fn add_const(&mut self, name: String, tensor: HostTensor) -> TensorId {
        let (dtype, shape) = (tensor.dtype(), tensor.shape().to_vec());
        self.graph.add_tensor(Tensor { name, dtype, shape, role: Role::Constant(tensor) })
    }

    /// Stores a value and replaces it by a read of the stored tensor.
    pub(crate) fn store(&mut self, v: ValueId) {
        let lazy = self.lazy(v);
        let (shape, dtype) = (lazy.shape.clone(), lazy.dtype());
        let id = self.store_lazy(lazy);
        let stored = Lazy::read(Access::new(id, View::dense(&shape)), dtype);
        if matches!(self.values[v.index()], Some(Value::Lazy(_))) {
            self.values[v.index()] = Some(Value::Lazy(stored));
        }
    }

    /// A read of the value after storing it.
    pub(crate) fn stored(&mut self, lazy: Lazy) -> Lazy {
        let (shape, dtype) = (lazy.shape.clone(), lazy.dtype());
        let id = self.store_lazy(lazy);
        Lazy::read(Access::new(id, View::dense(&shape)), dtype)
    }

    /// A plain access with the dimensions of the value's shape, for a kernel's own operand; stores what is not plain.
    pub(crate) fn operand(&mut self, v: ValueId) -> Access {
        self.operand_if(v, |_| true)
    }

    /// Like [`Lowering::operand`]; also stores a dense copy when the view is not `good` enough.
    pub(crate) fn operand_if(&mut self, v: ValueId, good: impl Fn(&View) -> bool) -> Access {
        if matches!(self.values[v.index()], Some(Value::Const(_))) {
            let view = View::dense(self.shape(v));
            return Access::new(self.store_const(v), view);
        }
        let lazy = self.lazy(v);
        if let Some(access) = plain_access(&lazy)
            && good(&access.view)
        {
            return access;
        }
        self.store_dense(v)
    }

    fn store_dense(&mut self, v: ValueId) -> Access {
        let lazy = self.lazy(v);
        let shape = lazy.shape.clone();
        let dtype = lazy.dtype();
        let id = self.store_lazy(lazy);
        let access = Access::new(id, View::dense(&shape));
        self.values[v.index()] = Some(Value::Lazy(Lazy::read(access.clone(), dtype)));
        access
    }

    /// A plain access with the dimensions of the shape to a lazy value that belongs to no [`ValueId`].
    pub(crate) fn operand_of(&mut self, lazy: Lazy, good: impl Fn(&View) -> bool) -> Access {
        if let Some(access) = plain_access(&lazy)
            && good(&access.view)
        {
            return access;
        }
        let shape = lazy.shape.clone();
        Access::new(self.store_lazy(lazy), View::dense(&shape))
    }

    /// A lazy value that rests on no kernel; stores it otherwise.
    pub(crate) fn without_base(&mut self, v: ValueId) -> Lazy {
        let lazy = self.lazy(v);
        if lazy.base.is_none() {
            return lazy;
        }
        self.store(v);
        self.lazy(v)
    }

    /// The value as plain accesses with exactly the dimensions of its shape, to change dimension by dimension.
    pub(crate) fn plain(&mut self, v: ValueId) -> Lazy {
        if let Some(plain) = self.without_base(v).plain() {
            return plain;
        }
        // Once for all who read it.
        self.store(v);
        let lazy = self.without_base(v);
        self.plain_of(lazy)
    }

    /// The same of a value that belongs to no [`ValueId`].
    pub(crate) fn plain_of(&mut self, lazy: Lazy) -> Lazy {
        let lazy = if lazy.base.is_some() { self.stored(lazy) } else { lazy };
        match lazy.plain() {
            Some(p) => p,
            None => {
                let read = self.stored(lazy);
                read.plain().expect("a stored tensor has plain dimensions")
            }
        }
    }

    /// Back from [`Lowering::plain`].
    pub(crate) fn normal(&mut self, lazy: Lazy) -> Lazy {
        match lazy.clone().normal() {
            Some(l) => l,
            None => {
                // A guard on a dimension of extent 1: store under the grid as it is.
                let mut l = lazy;
                l.shape = l.grid.clone();
                self.stored(l)
            }
        }
    }

    /// Dimensions in another order.
    pub(crate) fn permute(&mut self, lazy: Lazy, perm: &[usize]) -> Lazy {
        let lazy = if lazy.base.is_some() { self.stored(lazy) } else { lazy };
        match lazy.permuted(perm) {
            Some(l) => l,
            None => {
                let read = self.stored(lazy);
                read.permuted(perm).expect("a stored tensor can be permuted")
            }
        }
    }
}

impl<'m> Ask<'m> for Lowering<'m> {
    fn place(&self) -> (&'m Resolved<'m>, usize) {
        (self.resolved, self.current)
    }

    fn dtype(&self, v: ValueId) -> DType {
        match self.values[v.index()].as_ref() {
            Some(Value::Const(t)) => t.dtype(),
            Some(Value::Lazy(l)) => l.dtype(),
            Some(Value::List(_) | Value::Nothing) | None => DType::F32,
        }
    }

    fn rank(&self, v: ValueId) -> usize {
        self.shape(v).len()
    }

    fn constant(&self, v: ValueId) -> Option<&HostTensor> {
        match self.values[v.index()].as_ref() {
            Some(Value::Const(t)) => Some(t),
            _ => None,
        }
    }
}

/// The first element.
pub(super) fn literal(t: &HostTensor) -> Scalar {
    if t.dtype().is_float() { Scalar::Float(t.to_f64()[0]) } else { Scalar::Int(t.to_i64()[0]) }
}

/// A value that is the same everywhere.
pub(crate) fn splat(dtype: DType, shape: &[usize], value: Scalar) -> Lazy {
    let mut expr = Expr::new();
    expr.literal(dtype, value);
    Lazy { shape: shape.to_vec(), grid: without_ones(shape), base: None, inputs: Vec::new(), expr, nodes: Vec::new() }
}

fn plain_access(lazy: &Lazy) -> Option<Access> {
    let access = lazy.as_read()?;
    if !access.is_plain() {
        return None;
    }
    reshape_access(access, &lazy.shape)
}
