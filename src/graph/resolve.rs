//! Resolves names: every value of the model becomes a number, and nodes that no output needs are dropped.

use super::error::Error;
use crate::onnx::{self, Model};
use rustc_hash::FxHashMap;

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
}

/// A model with numbers for names, without dead nodes.
#[derive(Clone, Debug)]
pub(crate) struct Resolved<'m> {
    pub model: &'m Model,
    pub names: Vec<&'m str>,
    pub sources: Vec<Source<'m>>,
    /// How often each value is read, by nodes and as an output of the model.
    pub uses: Vec<u32>,
    pub nodes: Vec<ResolvedNode<'m>>,
    pub inputs: Vec<ValueId>,
    pub outputs: Vec<ValueId>,
}

/// Numbers all values, checks that each is defined exactly once and before it is read, and drops dead nodes.
pub(crate) fn resolve(model: &Model) -> Result<Resolved<'_>, Error> {
    let graph = &model.graph;
    let mut ids: FxHashMap<&str, ValueId> = FxHashMap::default();
    let mut r = Resolved {
        model,
        names: Vec::new(),
        sources: Vec::new(),
        uses: Vec::new(),
        nodes: Vec::with_capacity(graph.nodes.len()),
        inputs: Vec::new(),
        outputs: Vec::new(),
    };
    fn define<'m>(r: &mut Resolved<'m>, name: &'m str, source: Source<'m>) -> ValueId {
        r.sources.push(source);
        r.names.push(name);
        ValueId(r.sources.len() as u32 - 1)
    }
    for (name, tensor) in &graph.initializers {
        let id = define(&mut r, name, Source::Initializer(tensor));
        ids.insert(name, id);
    }
    for (i, info) in model.required_inputs().enumerate() {
        let id = define(&mut r, &info.name, Source::Input(i));
        if ids.insert(&info.name, id).is_some() {
            return Err(Error::Model(format!("the model has two inputs named `{}`", info.name)));
        }
        r.inputs.push(id);
    }
    for node in &graph.nodes {
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for name in &node.inputs {
            inputs.push(if name.is_empty() {
                None
            } else {
                Some(*ids.get(name.as_str()).ok_or_else(|| Error::Node {
                    node: node.name.clone(),
                    op: node.op.clone(),
                    what: format!("reads `{name}`, which nothing before it defines; the model is damaged"),
                })?)
            });
        }
        let mut outputs = Vec::with_capacity(node.outputs.len());
        for name in &node.outputs {
            outputs.push(if name.is_empty() {
                None
            } else {
                let id = define(&mut r, name, Source::Node);
                if ids.insert(name, id).is_some() {
                    return Err(Error::Node {
                        node: node.name.clone(),
                        op: node.op.clone(),
                        what: format!("defines `{name}`, which is defined before; the model is damaged"),
                    });
                }
                Some(id)
            });
        }
        r.nodes.push(ResolvedNode { node, inputs, outputs });
    }
    for info in &graph.outputs {
        match ids.get(info.name.as_str()) {
            Some(&id) => r.outputs.push(id),
            None => {
                return Err(Error::Model(format!(
                    "nothing in the model computes its output `{}`; the model is damaged",
                    info.name
                )));
            }
        }
    }
    if r.outputs.is_empty() {
        return Err(Error::Model("the model has no outputs, so there is nothing to compute".into()));
    }
    drop_dead_nodes(&mut r);
    Ok(r)
}

fn drop_dead_nodes(r: &mut Resolved<'_>) {
    let mut uses = vec![0u32; r.sources.len()];
    for o in &r.outputs {
        uses[o.index()] += 1;
    }
    let mut alive = vec![false; r.nodes.len()];
    for (i, node) in r.nodes.iter().enumerate().rev() {
        if node.outputs.iter().flatten().any(|o| uses[o.index()] > 0) {
            alive[i] = true;
            for v in node.inputs.iter().flatten() {
                uses[v.index()] += 1;
            }
        }
    }
    let mut keep = alive.iter();
    r.nodes.retain(|_| *keep.next().expect("one flag per node"));
    for node in &mut r.nodes {
        for o in &mut node.outputs {
            if o.is_some_and(|o| uses[o.index()] == 0) {
                *o = None;
            }
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
        assert!(resolve(&twice).unwrap_err().to_string().contains("defined before"));
        let missing = model(vec![node("Relu", &["x"], &["q"])]);
        assert!(resolve(&missing).unwrap_err().to_string().contains("output `y`"));
    }
}
