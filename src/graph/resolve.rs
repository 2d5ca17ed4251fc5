//! Resolves names: every value of the model becomes a number, nodes are sorted, and those that no output needs dropped.
//! Graphs inside of nodes (the branches of If) are resolved with them; they see the names around them.

use super::error::NameError;
use crate::onnx::{self, Attribute, Graph, Model};
use crate::tensor::HostTensor;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;

/// A value of the model, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ValueId(pub u32);

impl ValueId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Who defines a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Source<'m> {
    /// Input number `i` of those the caller gives.
    Input(usize),
    /// Part of the model.
    Initializer(&'m crate::tensor::HostTensor),
    /// A node.
    Node,
}

/// A node with its values numbered.
#[derive(Clone, Debug)]
pub(crate) struct ResolvedNode<'m> {
    pub node: &'m onnx::Node,
    /// `None`: an optional input that is not given.
    pub inputs: Vec<Option<ValueId>>,
    /// `None`: an output that nobody wants.
    pub outputs: Vec<Option<ValueId>>,
    /// The graphs among its attributes.
    pub branches: Vec<Branch<'m>>,
    /// Part of another node's branch, which decides whether it is computed.
    pub inner: bool,
}

impl ResolvedNode<'_> {
    /// The inputs whose elements it reads: Shape and Size read no more than extents.
    pub(crate) fn reads(&self) -> impl Iterator<Item = ValueId> {
        let extents = self.node.domain.is_empty() && ["Shape", "Size"].contains(&self.node.op.as_str());
        self.inputs.iter().flatten().copied().filter(move |_| !extents)
    }
}

/// A graph inside of a node. Its nodes stand in front of that node in [`Resolved::nodes`].
#[derive(Clone, Debug)]
pub(crate) struct Branch<'m> {
    /// The attribute's name.
    pub name: &'m str,
    /// Its nodes, in order.
    pub nodes: Vec<u32>,
    /// What the node around it gives a value.
    pub parameters: Vec<ValueId>,
    pub outputs: Vec<ValueId>,
}

/// A model with numbers for names, without dead nodes.
#[derive(Clone, Debug)]
pub(crate) struct Resolved<'m> {
    pub model: &'m Model,
    pub names: Vec<&'m str>,
    pub sources: Vec<Source<'m>>,
    /// How often each value's elements are read, by nodes and as an output of the model; 1 where only its extents are.
    pub uses: Vec<u32>,
    pub nodes: Vec<ResolvedNode<'m>>,
    pub inputs: Vec<ValueId>,
    /// For each input the value that it is compiled for, if it is.
    pub fixed: Vec<Option<&'m HostTensor>>,
    pub outputs: Vec<ValueId>,
}

/// Numbers all values, checks that each is defined exactly once, brings the nodes into an order in which every value
/// precedes its readers (the file's, wherever that is one), and drops dead nodes.
pub(crate) fn resolve(model: &Model) -> Result<Resolved<'_>, NameError> {
    let mut r = Resolved {
        model,
        names: Vec::new(),
        sources: Vec::new(),
        uses: Vec::new(),
        nodes: Vec::with_capacity(model.graph.nodes.len()),
        inputs: Vec::new(),
        fixed: Vec::new(),
        outputs: Vec::new(),
    };
    let mut inputs = FxHashMap::default();
    for (i, info) in model.required_inputs().enumerate() {
        let id = r.define(&info.name, Source::Input(i));
        if inputs.insert(info.name.as_str(), id).is_some() {
            return Err(NameError::InputTwice(info.name.clone()));
        }
        r.inputs.push(id);
    }
    r.fixed = vec![None; r.inputs.len()];
    let (nodes, outputs) = resolve_graph(&mut r, &model.graph, &mut vec![inputs])?;
    (r.nodes, r.outputs) = (nodes, outputs);
    if r.outputs.is_empty() {
        return Err(NameError::NoOutputs);
    }
    nest_lists(&mut r);
    drop_dead_nodes(&mut r);
    Ok(r)
}

/// Longer lists are not looked at: nobody concatenates so much bit by bit.
const MOST_LISTED: usize = 512;

/// A Concat that begins with all that an earlier one concatenates, in the same order, reads what that gives: of lists that grow
/// layer by layer (DenseNet as torch writes it) each element is copied once, not once a layer.
fn nest_lists(r: &mut Resolved<'_>) {
    type List = (Option<i64>, Vec<Option<ValueId>>);
    let mut known: FxHashMap<List, ValueId> = FxHashMap::default();
    let mut lengths: BTreeSet<usize> = BTreeSet::new();
    for node in r.nodes.iter_mut().filter(|n| !n.inner && n.node.op == "Concat" && n.node.domain.is_empty()) {
        let axis = match node.node.attributes.get("axis") {
            Some(Attribute::Int(axis)) => Some(*axis),
            _ => None,
        };
        let list = node.inputs.clone();
        if list.len() < 2 || list.len() > MOST_LISTED {
            continue;
        }
        let first = lengths.range(..list.len()).rev();
        let nested = first.filter_map(|n| known.get(&(axis, list[..*n].to_vec())).map(|v| (*n, *v))).next();
        if let Some((n, whole)) = nested {
            node.inputs.splice(..n, [Some(whole)]);
        }
        if let Some(Some(output)) = node.outputs.first() {
            lengths.insert(list.len());
            known.entry((axis, list)).or_insert(*output);
        }
    }
}

impl<'m> Resolved<'m> {
    /// Numbers of the nodes that are in no branch.
    pub(crate) fn top(&self) -> impl Iterator<Item = u32> + use<'_, 'm> {
        (0..self.nodes.len() as u32).filter(|i| !self.nodes[*i as usize].inner)
    }

    /// Numbers of the inputs that a value is computed from.
    pub(crate) fn inputs_behind(&self, value: ValueId) -> Vec<usize> {
        let mut needed = vec![false; self.sources.len()];
        needed[value.index()] = true;
        for node in self.nodes.iter().rev() {
            if node.outputs.iter().flatten().any(|o| needed[o.index()]) {
                for v in node.inputs.iter().flatten().chain(node.branches.iter().flat_map(|b| &b.outputs)) {
                    needed[v.index()] = true;
                }
            }
        }
        (0..self.inputs.len()).filter(|i| needed[self.inputs[*i].index()]).collect()
    }

    fn define(&mut self, name: &'m str, source: Source<'m>) -> ValueId {
        self.sources.push(source);
        self.names.push(name);
        ValueId(self.sources.len() as u32 - 1)
    }
}

/// The names that can be seen: of the innermost graph last.
type Scopes<'m> = Vec<FxHashMap<&'m str, ValueId>>;

/// The nodes of a graph and of the graphs inside of them, and its outputs. Its inputs are in the last scope.
fn resolve_graph<'m>(
    r: &mut Resolved<'m>,
    graph: &'m Graph,
    scopes: &mut Scopes<'m>,
) -> Result<(Vec<ResolvedNode<'m>>, Vec<ValueId>), NameError> {
    let mut own = scopes.pop().unwrap_or_default();
    for (name, tensor) in &graph.initializers {
        let id = r.define(name, Source::Initializer(tensor));
        own.insert(name, id);
    }
    let mut definer: FxHashMap<ValueId, usize> = FxHashMap::default();
    let mut outputs_of = Vec::with_capacity(graph.nodes.len());
    for (i, node) in graph.nodes.iter().enumerate() {
        let mut outputs = Vec::with_capacity(node.outputs.len());
        for name in &node.outputs {
            outputs.push(if name.is_empty() {
                None
            } else {
                let id = r.define(name, Source::Node);
                definer.insert(id, i);
                if own.insert(name, id).is_some() {
                    let (node, op, value) = (node.name.clone(), node.op.clone(), name.clone());
                    return Err(NameError::DefinedTwice { node, op, value });
                }
                Some(id)
            });
        }
        outputs_of.push(outputs);
    }
    scopes.push(own);
    // Each node with the nodes of its branches, and what it waits for: its inputs and what its branches read.
    let mut local = Vec::with_capacity(graph.nodes.len());
    for (node, outputs) in graph.nodes.iter().zip(outputs_of) {
        let find = |name: &String| match lookup(scopes, name) {
            _ if name.is_empty() => Ok(None),
            Some(id) => Ok(Some(id)),
            None => Err(NameError::Undefined { node: node.name.clone(), op: node.op.clone(), value: name.clone() }),
        };
        let inputs: Vec<Option<ValueId>> = node.inputs.iter().map(find).collect::<Result<_, _>>()?;
        let mut waits: Vec<ValueId> = inputs.iter().flatten().copied().collect();
        let mut inner = Vec::new();
        let mut branches = Vec::new();
        for (name, value) in &node.attributes {
            let Attribute::Graph(body) = value else { continue };
            let parameters: Vec<ValueId> = body.inputs.iter().map(|i| r.define(&i.name, Source::Node)).collect();
            scopes.push(body.inputs.iter().map(|i| i.name.as_str()).zip(parameters.iter().copied()).collect());
            let (nodes, outputs) = resolve_graph(r, body, scopes)?;
            scopes.pop();
            waits.extend(nodes.iter().flat_map(|n| n.inputs.iter().flatten()).chain(&outputs));
            let own = append(&mut inner, nodes);
            branches.push(Branch { name, nodes: own, parameters, outputs });
        }
        inner.iter_mut().for_each(|n: &mut ResolvedNode| n.inner = true);
        local.push((ResolvedNode { node, inputs, outputs, branches, inner: false }, inner, waits));
    }
    let waits: Vec<Vec<usize>> =
        local.iter().map(|(_, _, w)| w.iter().filter_map(|v| definer.get(v).copied()).collect()).collect();
    let order = sort(&waits).map_err(|circle| {
        NameError::Circle(circle.into_iter().map(|i| format!("`{}`", local[i].0.node.name)).collect())
    })?;
    let mut local: Vec<Option<_>> = local.into_iter().map(Some).collect();
    let mut nodes = Vec::with_capacity(local.len());
    for i in order {
        let Some((mut node, inner, _)) = local[i].take() else { continue };
        let base = nodes.len() as u32;
        append(&mut nodes, inner);
        node.branches.iter_mut().for_each(|b| b.nodes.iter_mut().for_each(|n| *n += base));
        nodes.push(node);
    }
    let output =
        |info: &'m onnx::ValueInfo| lookup(scopes, &info.name).ok_or_else(|| NameError::Output(info.name.clone()));
    let outputs = graph.outputs.iter().map(output).collect::<Result<_, _>>()?;
    Ok((nodes, outputs))
}

fn lookup(scopes: &Scopes<'_>, name: &str) -> Option<ValueId> {
    scopes.iter().rev().find_map(|s| s.get(name).copied())
}

/// Adds nodes at the end of a list; gives the places of those that are in no branch.
fn append<'m>(to: &mut Vec<ResolvedNode<'m>>, nodes: Vec<ResolvedNode<'m>>) -> Vec<u32> {
    let base = to.len() as u32;
    let mut own = Vec::new();
    for (i, mut node) in nodes.into_iter().enumerate() {
        if !node.inner {
            own.push(base + i as u32);
        }
        node.branches.iter_mut().for_each(|b| b.nodes.iter_mut().for_each(|n| *n += base));
        to.push(node);
    }
    own
}

/// An order in which each comes after those it waits for: the given one, but for those that others wait for. The error is
/// a circle.
fn sort(waits: &[Vec<usize>]) -> Result<Vec<usize>, Vec<usize>> {
    #[derive(Clone, Copy, PartialEq)]
    enum State {
        New,
        Open,
        Done,
    }
    let mut state = vec![State::New; waits.len()];
    let mut order = Vec::with_capacity(waits.len());
    // What is being looked at, with the number of the next one it waits for.
    let mut open: Vec<(usize, usize)> = Vec::new();
    for start in 0..waits.len() {
        if state[start] == State::New {
            state[start] = State::Open;
            open.push((start, 0));
        }
        while let Some((at, next)) = open.last_mut() {
            let Some(&needed) = waits[*at].get(*next) else {
                state[*at] = State::Done;
                order.push(*at);
                open.pop();
                continue;
            };
            *next += 1;
            match state[needed] {
                State::Done => {}
                State::New => {
                    state[needed] = State::Open;
                    open.push((needed, 0));
                }
                State::Open => {
                    let from = open.iter().position(|(n, _)| *n == needed).unwrap_or(0);
                    let mut circle: Vec<usize> = open[from..].iter().rev().map(|(n, _)| *n).collect();
                    circle.extend(circle.first().copied());
                    return Err(circle);
                }
            }
        }
    }
    Ok(order)
}

fn drop_dead_nodes(r: &mut Resolved<'_>) {
    let mut uses = vec![0u32; r.sources.len()];
    for o in &r.outputs {
        uses[o.index()] += 1;
    }
    let mut place = vec![None; r.nodes.len()];
    for (i, node) in r.nodes.iter().enumerate().rev() {
        if node.outputs.iter().flatten().any(|o| uses[o.index()] > 0) {
            place[i] = Some(0);
            for v in node.inputs.iter().flatten().chain(node.branches.iter().flat_map(|b| &b.outputs)) {
                uses[v.index()] += 1;
            }
        }
    }
    for (new, p) in place.iter_mut().flatten().enumerate() {
        *p = new as u32;
    }
    let mut keep = place.iter();
    r.nodes.retain(|_| keep.next().is_some_and(Option::is_some));
    for node in &mut r.nodes {
        for o in &mut node.outputs {
            if o.is_some_and(|o| uses[o.index()] == 0) {
                *o = None;
            }
        }
        for b in &mut node.branches {
            b.nodes = b.nodes.iter().filter_map(|n| place[*n as usize]).collect();
        }
    }
    for node in &r.nodes {
        if node.reads().next().is_none() {
            node.inputs.iter().flatten().for_each(|v| uses[v.index()] = (uses[v.index()] - 1).max(1));
        }
    }
    r.uses = uses;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::{Node, ValueInfo};

    fn node(op: &str, inputs: &[&str], outputs: &[&str]) -> Node {
        Node {
            name: outputs[0].into(),
            op: op.into(),
            domain: String::new(),
            inputs: inputs.iter().map(|s| s.to_string()).collect(),
            outputs: outputs.iter().map(|s| s.to_string()).collect(),
            attributes: Default::default(),
        }
    }

    fn model(nodes: Vec<Node>) -> Model {
        let info = |n: &str| ValueInfo { name: n.into(), dtype: None, shape: None };
        let mut m = Model::default();
        m.graph.nodes = nodes;
        m.graph.inputs = vec![info("x")];
        m.graph.outputs = vec![info("y")];
        m
    }

    #[test]
    fn dead_nodes_vanish_and_uses_are_counted() {
        let m = model(vec![
            node("Relu", &["x"], &["a"]),
            node("Exp", &["a"], &["dead"]),
            node("Log", &["dead"], &["dead2"]),
            node("Add", &["a", "a"], &["y"]),
        ]);
        let r = resolve(&m).unwrap();
        let names: Vec<_> = r.nodes.iter().map(|n| n.node.op.as_str()).collect();
        assert_eq!(names, ["Relu", "Add"]);
        let a = r.nodes[0].outputs[0].unwrap();
        assert_eq!(r.uses[a.index()], 2);
    }

    #[test]
    fn undefined_and_doubly_defined_values_are_errors() {
        let undefined = model(vec![node("Relu", &["z"], &["y"])]);
        assert!(resolve(&undefined).unwrap_err().to_string().contains("reads `z`"));
        let twice = model(vec![node("Relu", &["x"], &["y"]), node("Relu", &["x"], &["y"])]);
        assert!(resolve(&twice).unwrap_err().to_string().contains("defined elsewhere"));
        let initializer = || {
            let mut m = model(vec![node("Relu", &["x"], &["y"])]);
            m.graph.initializers.insert("y".into(), crate::tensor::HostTensor::from_f32(&[], &[1.0]));
            m
        };
        assert!(resolve(&initializer()).unwrap_err().to_string().contains("defined elsewhere"));
        let missing = model(vec![node("Relu", &["x"], &["q"])]);
        assert!(resolve(&missing).unwrap_err().to_string().contains("output `y`"));
    }

    #[test]
    fn nodes_are_sorted_and_keep_the_order_of_the_file_where_they_can() {
        let m = model(vec![
            node("Add", &["c", "b"], &["y"]),
            node("Exp", &["x"], &["a"]),
            node("Log", &["b"], &["c"]),
            node("Relu", &["a"], &["b"]),
        ]);
        let ops = |m: &Model| -> Vec<String> { resolve(m).unwrap().nodes.iter().map(|n| n.node.op.clone()).collect() };
        assert_eq!(ops(&m), ["Exp", "Relu", "Log", "Add"]);
        let sorted = model(vec![
            node("Exp", &["x"], &["a"]),
            node("Log", &["x"], &["b"]),
            node("Relu", &["x"], &["c"]),
            node("Sum", &["c", "b", "a"], &["y"]),
        ]);
        assert_eq!(ops(&sorted), ["Exp", "Log", "Relu", "Sum"]);
        // A long chain, backwards.
        let name = |i: usize| if i == 0 { "x".to_string() } else { format!("v{i}") };
        let mut chain: Vec<Node> = (0..50_000).map(|i| node("Relu", &[&name(i)], &[&name(i + 1)])).rev().collect();
        chain.push(node("Relu", &["v50000"], &["y"]));
        assert_eq!(resolve(&model(chain)).unwrap().nodes.len(), 50_001);
    }

    #[test]
    fn circles_are_errors_that_name_the_nodes() {
        let m = model(vec![node("Add", &["x", "b"], &["a"]), node("Exp", &["a"], &["b"]), node("Log", &["b"], &["y"])]);
        let message = resolve(&m).unwrap_err().to_string();
        assert!(message.contains("`a` -> `b` -> `a`") || message.contains("`b` -> `a` -> `b`"), "{message}");
        let own = model(vec![node("Add", &["x", "y"], &["y"])]);
        assert!(resolve(&own).unwrap_err().to_string().contains("`y` -> `y`"));
    }
}
