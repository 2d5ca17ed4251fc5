//! Functions that a model brings along: their nodes take the place of each call.

use crate::onnx::proto::{AttributeProto, FunctionProto, GraphProto, NodeProto};
use std::collections::BTreeMap;

/// Deeper nesting of calls is a circle.
const DEEPEST: usize = 64;

/// A function that calls itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("function `{0}` calls itself")]
pub(crate) struct Recursive(pub String);

/// Replaces calls of functions by their nodes, in a graph and the graphs inside of it.
pub(crate) fn inline_local(graph: &mut GraphProto, functions: &[FunctionProto]) -> Result<(), Recursive> {
    let known: BTreeMap<(&str, &str), &FunctionProto> =
        functions.iter().map(|f| ((domain(&f.domain), f.name.as_str()), f)).collect();
    let mut calls = 0;
    graph.node = inlined(std::mem::take(&mut graph.node), &known, 0, &mut calls)?;
    Ok(())
}

fn domain(name: &str) -> &str {
    if name == "ai.onnx" { "" } else { name }
}

type Known<'f> = BTreeMap<(&'f str, &'f str), &'f FunctionProto>;

fn inlined(
    nodes: Vec<NodeProto>,
    known: &Known<'_>,
    depth: usize,
    calls: &mut usize,
) -> Result<Vec<NodeProto>, Recursive> {
    let mut out = Vec::with_capacity(nodes.len());
    for mut node in nodes {
        for a in &mut node.attribute {
            if let Some(g) = &mut a.g {
                g.node = inlined(std::mem::take(&mut g.node), known, depth, calls)?;
            }
        }
        match known.get(&(domain(&node.domain), node.op_type.as_str())) {
            None => out.push(node),
            Some(f) if depth >= DEEPEST => return Err(Recursive(f.name.clone())),
            Some(f) => {
                *calls += 1;
                out.extend(inlined(called(f, &node, *calls), known, depth + 1, calls)?);
            }
        }
    }
    Ok(out)
}

/// The nodes of a function for one call.
fn called(f: &FunctionProto, call: &NodeProto, number: usize) -> Vec<NodeProto> {
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    for (i, formal) in f.input.iter().enumerate() {
        names.insert(formal.clone(), call.input.get(i).cloned().unwrap_or_default());
    }
    for (i, formal) in f.output.iter().enumerate() {
        if let Some(actual) = call.output.get(i).filter(|a| !a.is_empty()) {
            names.insert(formal.clone(), actual.clone());
        }
    }
    let own = format!("{}#{number}/", f.name);
    let mut nodes = f.node.clone();
    // An output that is an input has to be copied.
    for (i, formal) in f.output.iter().enumerate() {
        if f.input.contains(formal)
            && let Some(actual) = call.output.get(i)
        {
            let source = f.input.iter().position(|n| n == formal).and_then(|k| call.input.get(k)).cloned();
            nodes.push(NodeProto {
                op_type: "Identity".into(),
                input: vec![source.unwrap_or_default()],
                output: vec![actual.clone()],
                ..Default::default()
            });
            names.insert(formal.clone(), call.input.get(i).cloned().unwrap_or_default());
        }
    }
    let given = |name: &str| {
        let default = || f.attribute_proto.iter().find(|a| a.name == name);
        call.attribute.iter().find(|a| a.name == name).or_else(default)
    };
    for node in &mut nodes {
        rename(node, &mut names, &own, &given);
        if !call.name.is_empty() {
            node.name = call.name.clone();
        }
    }
    nodes
}

fn rename<'f>(
    node: &mut NodeProto,
    names: &mut BTreeMap<String, String>,
    own: &str,
    given: &impl Fn(&str) -> Option<&'f AttributeProto>,
) {
    for name in node.input.iter_mut().chain(&mut node.output).filter(|n| !n.is_empty()) {
        *name = names.entry(name.clone()).or_insert_with(|| format!("{own}{name}")).clone();
    }
    let attributes = std::mem::take(&mut node.attribute);
    for mut a in attributes {
        if !a.ref_attr_name.is_empty() {
            // An attribute of the call; nothing where that has none.
            let Some(actual) = given(&a.ref_attr_name) else { continue };
            a = AttributeProto { name: a.name.clone(), ..actual.clone() };
        }
        if let Some(g) = &mut a.g {
            let mut inner = names.clone();
            for v in g.input.iter_mut().chain(&mut g.output) {
                v.name = inner.entry(v.name.clone()).or_insert_with(|| format!("{own}{}", v.name)).clone();
            }
            for t in &mut g.initializer {
                t.name = inner.entry(t.name.clone()).or_insert_with(|| format!("{own}{}", t.name)).clone();
            }
            for n in &mut g.node {
                rename(n, &mut inner, own, given);
            }
        }
        node.attribute.push(a);
    }
}
