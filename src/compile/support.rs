//! What the compiler can do with a model, node by node, without stopping at the first thing it cannot.

use crate::graph::lower::Outcome;
use crate::graph::{self, Options, survey};
use crate::kernels;
use crate::onnx::{Model, Node};
use barewave_isa::Target;
use rayon::prelude::*;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;

/// Why a node does not compile.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Missing {
    /// Its operator, an attribute, a type, a shape or a value.
    #[error(transparent)]
    Node(#[from] graph::Reason),
    /// No kernel can be written for a step that it becomes.
    #[error(transparent)]
    Kernel(#[from] kernels::Reason),
}

impl Serialize for Missing {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

/// What becomes of one node.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "verdict", content = "reason", rename_all = "lowercase")]
pub enum Verdict {
    /// It compiles.
    Supported,
    /// It does not, and why.
    Unsupported(Missing),
    /// It waits for values that only a run computes: the model runs in stages, compiled as these are known.
    Staged(Missing),
    /// It reads the value named here, which a node before it does not compute.
    Blocked(String),
}

impl Verdict {
    fn of_refusal(reason: &graph::Reason) -> Verdict {
        let missing = Missing::Node(reason.clone());
        if reason.is_for_stages() { Verdict::Staged(missing) } else { Verdict::Unsupported(missing) }
    }
}

/// A node and what becomes of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeSupport {
    /// The node's name.
    pub node: String,
    /// Its operator, with the domain when that is not ONNX's own.
    pub op: String,
    /// What becomes of it.
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// What the compiler can do with a model: all nodes that its outputs need, in order.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Support {
    /// The nodes.
    pub nodes: Vec<NodeSupport>,
}

impl Support {
    /// True when the whole model compiles, some of it perhaps when it runs.
    pub fn is_complete(&self) -> bool {
        self.nodes.iter().all(|n| matches!(n.verdict, Verdict::Supported | Verdict::Staged(_)))
    }

    /// What is missing: operator and reason, how many nodes it concerns, the first of them. Most frequent first.
    pub fn missing(&self) -> Vec<(&str, &Missing, usize, &str)> {
        let mut found: BTreeMap<(&str, String), (&Missing, usize, &str)> = BTreeMap::new();
        for n in &self.nodes {
            if let Verdict::Unsupported(why) = &n.verdict {
                found.entry((&n.op, why.to_string())).or_insert((why, 0, &n.node)).1 += 1;
            }
        }
        let mut list: Vec<_> =
            found.into_iter().map(|((op, _), (why, count, first))| (op, why, count, first)).collect();
        list.sort_by_key(|m| std::cmp::Reverse(m.2));
        list
    }
}

impl fmt::Display for Support {
    /// One line for each thing that is missing, and one that counts.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (op, why, count, first) in self.missing() {
            let times = if count == 1 { String::new() } else { format!(", {count} times") };
            writeln!(f, "{op}: {why} (node `{first}`{times})")?;
        }
        let count = |what: fn(&Verdict) -> bool| self.nodes.iter().filter(|n| what(&n.verdict)).count();
        let (good, blocked) = (count(|v| *v == Verdict::Supported), count(|v| matches!(v, Verdict::Blocked(_))));
        let staged = count(|v| matches!(v, Verdict::Staged(_)));
        write!(f, "{} of {} nodes compile", good + staged, self.nodes.len())?;
        if let Some((node, why)) = self.nodes.iter().find_map(|n| match &n.verdict {
            Verdict::Staged(why) => Some((&n.node, why)),
            _ => None,
        }) {
            write!(f, ", {staged} of them when the model runs, in stages (node `{node}`: {why})")?;
        }
        if blocked > 0 {
            write!(f, "; {blocked} read what these do not compute and were not looked at")?;
        }
        Ok(())
    }
}

/// As far as types and shapes tell: of a model with extents that nothing gives.
fn open_support(model: &Model, options: &Options) -> Result<Support, graph::Error> {
    let types = graph::infer(model, options)?;
    let refused: BTreeMap<usize, &graph::Reason> = types.refused.iter().map(|(i, reason)| (*i, reason)).collect();
    let verdict = |(i, node): (usize, &Node)| {
        let unknown = node.inputs.iter().find(|v| !v.is_empty() && !types.values.contains_key(*v));
        match (refused.get(&i), unknown) {
            (Some(reason), _) => Verdict::of_refusal(reason),
            (None, Some(value)) => Verdict::Blocked(value.clone()),
            (None, None) => Verdict::Supported,
        }
    };
    let mut nodes: Vec<NodeSupport> = model
        .graph
        .nodes
        .iter()
        .enumerate()
        .map(|(i, node)| NodeSupport {
            node: node.name.clone(),
            op: graph::lower::qualified(node),
            verdict: verdict((i, node)),
        })
        .collect();
    wait(&model.graph.nodes.iter().collect::<Vec<_>>(), &mut nodes);
    Ok(Support { nodes })
}

/// Nodes that read what nodes of a later stage compute wait with them, if nothing else is in their way; operators that are not
/// there are told wherever they stand.
fn wait(of: &[&Node], nodes: &mut [NodeSupport]) {
    let mut late: BTreeMap<&str, Missing> = BTreeMap::new();
    // As often as nodes out of order need it.
    loop {
        let before = late.len();
        for (node, own) in of.iter().zip(&mut *nodes) {
            if let Verdict::Blocked(value) = &own.verdict
                && let Some(reason) = late.get(value.as_str())
            {
                own.verdict = match graph::check_operator(node) {
                    Ok(()) => Verdict::Staged(reason.clone()),
                    Err(reason) => Verdict::Unsupported(reason.into()),
                };
            }
            if let Verdict::Staged(reason) = &own.verdict {
                late.extend(node.outputs.iter().map(|o| (o.as_str(), reason.clone())));
            }
        }
        if late.len() == before {
            break;
        }
    }
    // What no other node can change: an operator that is not there.
    for (node, own) in of.iter().zip(nodes) {
        if matches!(own.verdict, Verdict::Blocked(_))
            && let Err(reason) = graph::check_operator(node)
        {
            own.verdict = Verdict::Unsupported(reason.into());
        }
    }
}

pub(super) fn supports(target: Target, model: &Model, options: &Options) -> Result<Support, graph::Error> {
    let (outcomes, mut graph) = match survey(model, options) {
        Err(graph::Error::Inputs(wrong)) if wrong.iter().all(|e| matches!(e, graph::InputError::Open { .. })) => {
            return open_support(model, options);
        }
        survey => survey?,
    };
    graph::split_far(&mut graph, graph::LARGEST);
    // Steps that no kernel can be written for, by the first of the nodes they compute, whose operator gave the kind.
    let mut equal: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (i, step) in graph.steps.iter().enumerate() {
        equal.entry(kernels::key(&graph, step)).or_default().push(i);
    }
    let failed: Vec<(&Vec<usize>, kernels::Reason)> = equal
        .par_iter()
        .filter_map(|(_, steps)| {
            let e =
                kernels::lower(&graph, &graph.steps[steps[0]], target, &kernels::Tuning::default(), "kernel").err()?;
            Some((steps, e.what))
        })
        .collect();
    let mut refused: BTreeMap<&str, kernels::Reason> = BTreeMap::new();
    for (steps, what) in failed {
        for i in steps {
            let first = graph.steps[*i].name.split('+').next().unwrap_or_default();
            refused.entry(first).or_insert_with(|| what.clone());
        }
    }
    let of: Vec<&Node> = outcomes.iter().map(|(node, _)| *node).collect();
    let mut nodes: Vec<NodeSupport> = Vec::with_capacity(of.len());
    nodes.extend(outcomes.into_iter().map(|(node, outcome)| NodeSupport {
        node: node.name.clone(),
        op: graph::lower::qualified(node),
        verdict: match outcome {
            Outcome::Blocked(value) => Verdict::Blocked(value),
            Outcome::Refused(why) => Verdict::of_refusal(&why),
            Outcome::Lowered => match refused.get(node.name.as_str()) {
                Some(why) => Verdict::Unsupported(why.clone().into()),
                None => Verdict::Supported,
            },
        },
    }));
    wait(&of, &mut nodes);
    Ok(Support { nodes })
}
