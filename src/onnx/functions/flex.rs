//! FlexAttention: attention whose scores and weights pass through graphs that the node brings along.

use super::{Attribute, Body, Graph, Node};
use std::collections::BTreeMap;

pub(super) fn body(op: &str) -> Option<fn(&mut Body<'_>)> {
    (op == "FlexAttention").then_some(attention as fn(&mut Body<'_>))
}

/// The nodes of a graph with names of their own; names from around it stay as they are.
fn renamed(nodes: &[Node], names: &mut BTreeMap<String, String>, prefix: &str) -> Vec<Node> {
    for out in nodes.iter().flat_map(|n| &n.outputs).filter(|o| !o.is_empty()) {
        names.insert(out.clone(), format!("{prefix}{out}"));
    }
    let now = |names: &BTreeMap<String, String>, n: &String| names.get(n).cloned().unwrap_or_else(|| n.clone());
    let mut list = Vec::with_capacity(nodes.len());
    for node in nodes {
        let mut node = node.clone();
        node.inputs.iter_mut().chain(&mut node.outputs).for_each(|n| *n = now(names, n));
        for a in node.attributes.values_mut() {
            let Attribute::Graph(g) = a else { continue };
            // What the inner graph defines hides what is outside of it.
            let mut inner = names.clone();
            g.inputs.iter().map(|i| &i.name).chain(g.initializers.keys()).for_each(|n| {
                inner.remove(n);
            });
            g.nodes = renamed(&g.nodes, &mut inner, prefix);
            g.outputs.iter_mut().for_each(|o| o.name = now(&inner, &o.name));
        }
        list.push(node);
    }
    list
}

/// Puts a graph of one input and one output in place.
fn inlined(b: &mut Body<'_>, graph: &Graph, x: &str) -> String {
    let prefix = format!("{}/", b.fresh());
    let mut names: BTreeMap<String, String> =
        graph.inputs.first().map(|i| (i.name.clone(), x.to_string())).into_iter().collect();
    for (name, value) in &graph.initializers {
        let own = format!("{prefix}{name}");
        b.push("Constant", &[], vec![own.clone()], &[("value", Attribute::Tensor(value.clone()))]);
        names.insert(name.clone(), own);
    }
    b.nodes.extend(renamed(&graph.nodes, &mut names, &prefix));
    let out = graph.outputs.first().map_or(x, |o| &o.name);
    names.get(out).cloned().unwrap_or_else(|| out.to_string())
}

/// The value through the graph of that name, if there is one.
fn modified(b: &mut Body<'_>, name: &str, x: &str) -> String {
    match b.attribute(name) {
        Some(Attribute::Graph(g)) => inlined(b, g, x),
        _ => x.to_string(),
    }
}

fn extents(b: &mut Body<'_>, x: &str, from: i64, to: i64) -> String {
    b.with("Shape", &[x], &[("start", Attribute::Int(from)), ("end", Attribute::Int(to))])
}

/// Heads that share keys and values are a dimension behind those of the keys.
fn attention(b: &mut Body<'_>) {
    let [q, k, v] = [0, 1, 2].map(|i| b.input(i).to_string());
    let along = [("axis", Attribute::Int(0))];
    let (heads, rest, any, two) = (extents(b, &k, 0, 2), extents(b, &q, 2, 4), b.ints(&[-1]), b.ints(&[2]));
    let grouped = b.with("Concat", &[&heads, &any, &rest], &along);
    let queries = b.op("Reshape", &[&q, &grouped]);
    let keys = b.with("Transpose", &[&k], &[("perm", Attribute::Ints(vec![0, 1, 3, 2]))]);
    let (keys, values) = (b.op("Unsqueeze", &[&keys, &two]), b.op("Unsqueeze", &[&v, &two]));
    let scores = b.op("MatMul", &[&queries, &keys]);
    let scale = match b.attribute("scale") {
        Some(Attribute::Float(scale)) => b.number(*scale),
        _ => {
            let size = extents(b, &q, 3, 4);
            let size = b.with("Cast", &[&size], &[("to", Attribute::Int(1))]);
            let root = b.op("Sqrt", &[&size]);
            b.op("Reciprocal", &[&root])
        }
    };
    let scale = b.op("CastLike", &[&scale, &q]);
    let scores = b.op("Mul", &[&scores, &scale]);
    let (outer, lines, columns) = (extents(b, &q, 0, 2), extents(b, &q, 2, 3), extents(b, &k, 2, 3));
    let flat = b.with("Concat", &[&outer, &lines, &columns], &along);
    let scores = b.op("Reshape", &[&scores, &flat]);
    let scores = modified(b, "score_mod", &scores);
    let precision = b.int("softmax_precision", 0);
    let to = [("to", Attribute::Int(precision))];
    let scores = if precision == 0 { scores } else { b.with("Cast", &[&scores], &to) };
    let weights = b.with("Softmax", &[&scores], &[("axis", Attribute::Int(-1))]);
    let weights = b.op("CastLike", &[&weights, &q]);
    let weights = modified(b, "prob_mod", &weights);
    let grouped = b.with("Concat", &[&heads, &any, &lines, &columns], &along);
    let weights = b.op("Reshape", &[&weights, &grouped]);
    let y = b.op("MatMul", &[&weights, &values]);
    let width = extents(b, &v, 3, 4);
    let flat = b.with("Concat", &[&outer, &lines, &width], &along);
    let y = b.op("Reshape", &[&y, &flat]);
    b.set(0, &y);
}
