//! Functions that a model brings along: their nodes take the place of each call.

use crate::onnx::proto::{AttributeProto, FunctionProto, GraphProto, NodeProto};
use std::collections::BTreeMap;

/// Deeper nesting of calls is a circle.
const DEEPEST: usize = 64;

/// Nodes that calls are replaced by at most: functions that call others twice double them with each level.
const MOST_NODES: usize = 1 << 18;

/// Calls that cannot be replaced, of a function.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadCall {
    /// It calls itself.
    #[error("it calls itself; the model is damaged")]
    Recursive(String),
    /// Its calls, and those of others, are too many.
    #[error("calls of functions make more than {MOST_NODES} nodes")]
    TooMany(String),
}

impl BadCall {
    /// The function.
    pub(crate) fn function(&self) -> &str {
        match self {
            BadCall::Recursive(f) | BadCall::TooMany(f) => f,
        }
    }
}

/// What has been made of calls so far.
#[derive(Default)]
struct Made {
    calls: usize,
    nodes: usize,
}

/// Replaces calls of functions by their nodes, in a graph and the graphs inside of it.
pub(crate) fn inline_local(graph: &mut GraphProto, functions: &[FunctionProto]) -> Result<(), BadCall> {
    let known: Known<'_> =
        functions.iter().map(|f| ((domain(&f.domain), f.name.as_str(), f.overload.as_str()), f)).collect();
    graph.node = inlined(std::mem::take(&mut graph.node), &known, 0, &mut Made::default())?;
    Ok(())
}

fn domain(name: &str) -> &str {
    if name == "ai.onnx" { "" } else { name }
}

/// By domain, name and overload.
type Known<'f> = BTreeMap<(&'f str, &'f str, &'f str), &'f FunctionProto>;

fn inlined(nodes: Vec<NodeProto>, known: &Known<'_>, depth: usize, made: &mut Made) -> Result<Vec<NodeProto>, BadCall> {
    let mut out = Vec::with_capacity(nodes.len());
    for mut node in nodes {
        for a in &mut node.attribute {
            if let Some(g) = &mut a.g {
                g.node = inlined(std::mem::take(&mut g.node), known, depth, made)?;
            }
        }
        match known.get(&(domain(&node.domain), node.op_type.as_str(), node.overload.as_str())) {
            None => out.push(node),
            Some(f) if depth >= DEEPEST => return Err(BadCall::Recursive(f.name.clone())),
            Some(f) => {
                made.calls += 1;
                made.nodes += f.node.len();
                if made.calls.max(made.nodes) > MOST_NODES {
                    return Err(BadCall::TooMany(f.name.clone()));
                }
                out.extend(inlined(called(f, &node, made.calls), known, depth + 1, made)?);
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
