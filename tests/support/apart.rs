//! What a model computes, operator by operator: each node is a model of its own, and what it computes is stored before another
//! reads it. No operator is fused with another and nothing is a view of what another computes, so what fusion and views get
//! wrong shows as a difference.

use barewave::graph::interpret::Interpreter;
use barewave::graph::{Options, fuse};
use barewave::onnx::{Attribute, Dim, Graph, Model, Node, ValueInfo};
use barewave::tensor::HostTensor;
use std::collections::{BTreeMap, BTreeSet};

/// Values by name.
pub type Values = BTreeMap<String, HostTensor>;

/// The outputs of a model. Fails where a node computes what is no tensor, and with what refuses a node.
pub fn outputs(model: &Model, inputs: &[HostTensor]) -> Result<Vec<HostTensor>, String> {
    let given = model.required_inputs().map(|i| i.name.clone()).zip(inputs.iter().cloned());
    let mut computed: Values = given.collect();
    for node in &model.graph.nodes {
        let made = results(&model.opsets, node, &model.graph.initializers, &computed)?;
        computed.extend(node.outputs.iter().filter(|o| !o.is_empty()).cloned().zip(made));
    }
    let find = |name: &String| computed.get(name).or_else(|| model.graph.initializers.get(name)).cloned();
    model.graph.outputs.iter().map(|o| find(&o.name).ok_or_else(|| format!("nothing computes {}", o.name))).collect()
}

/// What one node computes of constants and of values that others computed; the outputs that somebody wants.
pub fn results(
    opsets: &BTreeMap<String, i64>,
    node: &Node,
    constants: &Values,
    computed: &Values,
) -> Result<Vec<HostTensor>, String> {
    let mut model = Model { opsets: opsets.clone(), ..Model::default() };
    let mut names = BTreeSet::new();
    read(node, &mut names);
    let (mut options, mut inputs) = (Options::default(), Vec::new());
    for name in names {
        if let Some(value) = constants.get(&name) {
            model.graph.initializers.insert(name, value.clone());
        } else if let Some(value) = computed.get(&name) {
            let shape = value.shape().iter().map(|&d| Dim::Known(d)).collect();
            let info = ValueInfo { name: name.clone(), dtype: Some(value.dtype()), shape: Some(shape) };
            model.graph.inputs.push(info);
            inputs.push(value.clone());
            options.values.insert(name, value.clone());
        }
    }
    let wanted = node.outputs.iter().filter(|o| !o.is_empty());
    model.graph.outputs = wanted.map(|o| ValueInfo { name: o.clone(), dtype: None, shape: None }).collect();
    model.graph.nodes.push(node.clone());
    let graph = fuse(&model, &options).map_err(|e| e.to_string())?;
    Interpreter::new(&graph).run(&graph, &inputs).map_err(|e| e.to_string())
}

/// Names that a node reads, also those that nodes of graphs inside of it read.
fn read(node: &Node, names: &mut BTreeSet<String>) {
    names.extend(node.inputs.iter().filter(|i| !i.is_empty()).cloned());
    let inside = node.attributes.values().filter_map(|a| match a {
        Attribute::Graph(g) => Some(g),
        _ => None,
    });
    for Graph { nodes, outputs, .. } in inside.map(|g| &**g) {
        nodes.iter().for_each(|n| read(n, names));
        names.extend(outputs.iter().map(|o| o.name.clone()));
    }
}
