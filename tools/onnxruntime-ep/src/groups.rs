//! Which nodes are taken over, and in which groups.
//!
//! Nodes that can be compiled are put into groups that onnxruntime replaces by one node each, so no way from a group may
//! lead through a foreign node back into it. Each node gets a level: how often the longest way to it changes between nodes
//! that can be compiled and others. Nodes of one level that can be compiled are one group: a way that leaves the group
//! and comes back changes twice, and so ends at a higher level. Groups depend on lower levels only, and there are as few of
//! them as a way through the graph has changes.
//!
//! What can be compiled is found by compiling: every group is lowered with the shapes that are declared, what is refused is
//! taken out, and the rest is grouped anew until nothing is refused; then the code is made. Extents that are not declared get
//! numbers on trial until some fit (heads divide a width, a window lies in a picture): those of them that others decide (all that
//! is concatenated has one batch, a mask is as long as a cache and what goes behind it) are what they have to be. Small inputs whose
//! values decide shapes or branches get values on trial; the code for the real ones is made when they come. An extent is
//! refused only where the operator itself refuses it or a tensor grows too large, so what passes with some numbers passes with all
//! that the model is for.

use crate::read::{ReadGraph, Value};
use barewave::compile::{Missing, NodeSupport, Verdict};
use barewave::graph::{self, Reason, in_type};
use barewave::onnx::{Attribute, Dim, Graph, Model, ValueInfo};
use barewave::tensor::{DType, HostTensor};
use barewave::{Compiler, Shapes};
use std::collections::{BTreeMap, BTreeSet};

/// Extents on trial for dimensions that are left open: that of the first dimension (the batch, mostly), that of others.
/// Then come numbers that extents have by others, and the model's own.
const TRIALS: [(usize, usize); 8] = [(2, 2), (1, 1), (1, 2), (1, 16), (2, 64), (1, 64), (1, 224), (1, 512)];

/// Elements of inputs whose values may become part of code.
pub const SMALL: usize = 64;

/// More such inputs are not tried.
const MOST_VALUES: usize = 8;

/// Numbers of the nodes of each group, in topological order.
pub type Groups = Vec<Vec<usize>>;

/// Nodes that cannot be compiled, and why.
pub type Reasons = BTreeMap<usize, String>;

/// Chooses groups among the nodes that are `candidates`, which compute 32-bit floats in `dtype` if that is given; gives also
/// why the others are left.
pub fn choose(
    compiler: &Compiler,
    dtype: Option<DType>,
    graph: &ReadGraph,
    candidates: BTreeSet<usize>,
) -> (Groups, Reasons) {
    let mut left = candidates;
    // Groups that were found good.
    let mut good: BTreeSet<Vec<usize>> = BTreeSet::new();
    let mut reasons = Reasons::new();
    loop {
        let groups = by_level(graph, &left);
        let before = left.len();
        for group in &groups {
            if good.contains(group) {
                continue;
            }
            let refused = refused(compiler, dtype, graph, group);
            if refused.is_empty() {
                good.insert(group.clone());
            }
            left.retain(|i| !refused.contains_key(i));
            reasons.extend(refused);
        }
        if left.len() == before {
            return (groups, reasons);
        }
    }
}

/// Groups of nodes by level.
fn by_level(graph: &ReadGraph, ours: &BTreeSet<usize>) -> Groups {
    let mut maker: BTreeMap<&str, usize> = BTreeMap::new();
    let mut level = vec![0usize; graph.nodes.len()];
    let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (i, n) in graph.nodes.iter().enumerate() {
        let mine = ours.contains(&i);
        // Even levels are ours, odd ones are not.
        let above = |p: &usize| level[*p] + usize::from(ours.contains(p) != mine);
        let reads = n.node.inputs.iter().chain(&n.implicit);
        let least = usize::from(!mine);
        level[i] = reads.filter_map(|v| maker.get(v.as_str())).map(above).max().unwrap_or(least).max(least);
        if mine {
            groups.entry(level[i]).or_default().push(i);
        }
        maker.extend(n.node.outputs.iter().filter(|o| !o.is_empty()).map(|o| (o.as_str(), i)));
    }
    groups.into_values().collect()
}

/// The nodes of a group that cannot be compiled; none when the whole group can.
fn refused(compiler: &Compiler, dtype: Option<DType>, graph: &ReadGraph, group: &[usize]) -> Reasons {
    let converted = |model: Model| match dtype {
        // What cannot be converted is said by the compiler, too.
        Some(dtype) => in_type(&model, dtype).unwrap_or(model),
        None => model,
    };
    let model = match group_model(graph, group, unique) {
        Ok(model) => converted(model),
        // Nodes that read or make what is no tensor.
        Err(nodes) => return nodes.into_iter().map(|i| (i, "reads or makes what is no tensor".into())).collect(),
    };
    let attempt = Attempt { compiler, model: &model, group };
    let mut best: Option<(Refused, Shapes)> = None;
    let sizes = Sizes::of(&model);
    let open = !sizes.by_name.is_empty();
    let plain = |settled| TRIALS.map(|(first, other)| Trial { first, other, apart: None, settled });
    let own = own_numbers(&model).into_iter().map(|other| Trial { first: 2, other, apart: None, settled: true });
    // What others decide may be a 1 that is repeated instead.
    let free = plain(false).into_iter().filter(|_| !sizes.settled.is_empty());
    for trial in plain(true).into_iter().chain(sizes.apart()).chain(own).chain(free) {
        let shapes = sizes.shapes(&model, &trial);
        let found = attempt.with(&shapes);
        if best.as_ref().is_none_or(|(b, _)| found.nodes.len() < b.nodes.len()) {
            best = Some((found, shapes));
        }
        if !open || best.as_ref().is_some_and(|(b, _)| b.nodes.is_empty()) {
            break;
        }
    }
    let Some((found, shapes)) = best else { return Reasons::new() };
    if found.undecided { attempt.with_values(found, shapes, graph) } else { found.nodes }
}

/// What cannot be compiled.
struct Refused {
    nodes: Reasons,
    /// Some of it because a value is not known that decides shapes or branches.
    undecided: bool,
}

/// A group that is tried.
struct Attempt<'a> {
    compiler: &'a Compiler,
    model: &'a Model,
    group: &'a [usize],
}

impl Attempt<'_> {
    /// With these shapes and values.
    fn with(&self, shapes: &Shapes) -> Refused {
        let all = |undecided, why: &str| {
            let nodes = self.group.iter().map(|i| (*i, why.to_string())).collect();
            Refused { nodes, undecided }
        };
        let support = match self.compiler.supports(self.model, shapes) {
            Ok(support) => support,
            Err(e) => return all(false, &e.to_string()),
        };
        let mut missing: BTreeMap<&str, String> = BTreeMap::new();
        let mut undecided = false;
        let waits = |n: &&NodeSupport| matches!(n.verdict, Verdict::Staged(_));
        let waiting: BTreeSet<&str> = support.nodes.iter().filter(waits).map(|n| n.node.as_str()).collect();
        let nodes = &self.model.graph.nodes;
        let late: BTreeSet<&str> = nodes
            .iter()
            .filter(|n| waiting.contains(n.name.as_str()))
            .flat_map(|n| n.outputs.iter().map(String::as_str))
            .collect();
        let reads_late =
            |name: &str| nodes.iter().any(|n| n.name == name && n.inputs.iter().any(|v| late.contains(v.as_str())));
        for n in &support.nodes {
            let why = match &n.verdict {
                Verdict::Unsupported(why) => why,
                // A group is compiled whole: what waits for a run is missing, but not what waits for that.
                Verdict::Staged(why) if !reads_late(&n.node) => why,
                _ => continue,
            };
            missing.entry(&n.node).or_insert_with(|| why.to_string());
            undecided |= matches!(why, Missing::Node(r) if is_undecided(r));
        }
        let reason = |i: &usize| Some((*i, missing.get(unique(*i).as_str())?.clone()));
        let nodes: Reasons = self.group.iter().filter_map(reason).collect();
        // Whatever only the making of code finds out concerns the whole group.
        if nodes.is_empty() && !support.is_complete() {
            return all(undecided, &support.to_string());
        }
        if nodes.is_empty()
            && let Err(e) = self.compiler.compile(self.model, shapes)
        {
            return all(undecided, &e.to_string());
        }
        Refused { nodes, undecided }
    }

    /// With values on trial for small inputs, which become known when the group is run and are then made part of its code.
    /// One input after the other gets the value with which most compiles.
    fn with_values(&self, without: Refused, mut shapes: Shapes, graph: &ReadGraph) -> Reasons {
        let small: Vec<(&str, DType, Vec<usize>)> = self.model.required_inputs().filter_map(small_input).collect();
        if small.is_empty() || small.len() > MOST_VALUES {
            return without.nodes;
        }
        for (name, dtype, shape) in &small {
            shapes.values.insert(name.to_string(), trial_value(*dtype, shape, 0));
        }
        let mut found = self.with(&shapes).nodes;
        for (name, dtype, shape) in &small {
            for kind in 1..VALUES {
                if found.is_empty() {
                    break;
                }
                let before = shapes.values.insert(name.to_string(), trial_value(*dtype, shape, kind));
                let now = self.with(&shapes).nodes;
                if now.len() < found.len() {
                    found = now;
                } else if let Some(before) = before {
                    shapes.values.insert(name.to_string(), before);
                }
            }
        }
        // What another value of a condition leads to has to compile as well, whatever numbers there are beside it.
        for (condition, dtype, shape) in small.iter().filter(|(_, dtype, _)| *dtype == DType::Bool) {
            for (kind, numbers) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                shapes.values.insert(condition.to_string(), trial_value(*dtype, shape, kind));
                for (name, dtype, shape) in small.iter().filter(|(_, dtype, _)| dtype.is_float()) {
                    shapes.values.insert(name.to_string(), trial_value(*dtype, shape, numbers));
                }
                found.extend(self.with(&shapes).nodes);
            }
        }
        // How often a loop goes round is nothing to make part of code.
        let loops = |(i, _): &(usize, String)| {
            let n = &graph.nodes[*i].node;
            n.op != "If" && n.attributes.values().any(|a| matches!(a, Attribute::Graph(_)))
        };
        found.extend(without.nodes.into_iter().filter(loops));
        found
    }
}

/// True when a value is missing that has to be known.
fn is_undecided(r: &Reason) -> bool {
    match r {
        Reason::NotConstant { .. } => true,
        Reason::Within { reason, .. } => is_undecided(reason),
        _ => false,
    }
}

/// An input whose value can be made part of code: small, and of a shape that is declared.
fn small_input(info: &ValueInfo) -> Option<(&str, DType, Vec<usize>)> {
    let known = |d: &Dim| match d {
        Dim::Known(n) => Some(*n),
        _ => None,
    };
    let shape: Vec<usize> = info.shape.as_ref()?.iter().map(known).collect::<Option<_>>()?;
    let fits = shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d)).is_some_and(|n| n <= SMALL);
    fits.then_some((info.name.as_str(), info.dtype?, shape))
}

/// How many kinds of values are tried.
const VALUES: usize = 4;

/// A value on trial: ones, zeros, 0 1 2 and so on, or -1 1 1 and so on.
fn trial_value(dtype: DType, shape: &[usize], kind: usize) -> HostTensor {
    let element = |i: usize| match kind {
        0 => 1,
        1 => 0,
        2 => i as i64,
        _ => 1 - 2 * i64::from(i == 0),
    };
    let values: Vec<i64> = (0..shape.iter().product()).map(element).collect();
    HostTensor::from_ints(dtype, shape, &values)
}

/// The name of a node while groups are chosen: names in models need not be unique.
fn unique(i: usize) -> String {
    format!("#{i}")
}

/// A group as a model: what it reads from outside are its inputs, what others read its outputs; `name` gives the names of
/// its nodes. The error are the nodes that cannot be part of a model.
pub fn group_model(graph: &ReadGraph, group: &[usize], name: impl Fn(usize) -> String) -> Result<Model, Vec<usize>> {
    let inside: BTreeSet<usize> = group.iter().copied().collect();
    let made: BTreeSet<&str> = group
        .iter()
        .flat_map(|i| &graph.nodes[*i].node.outputs)
        .map(String::as_str)
        .filter(|o| !o.is_empty())
        .collect();
    let mut model = Model { opsets: graph.opsets.clone(), ..Model::default() };
    let g: &mut Graph = &mut model.graph;
    let mut foreign: BTreeSet<usize> = BTreeSet::new();
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for i in group {
        let n = &graph.nodes[*i];
        for name in n.node.inputs.iter().chain(&n.implicit).filter(|v| !v.is_empty() && !made.contains(v.as_str())) {
            match graph.values.get(name) {
                Some(Value::Constant(t)) => {
                    g.initializers.insert(name.clone(), t.clone());
                }
                Some(Value::Tensor(info)) if info.shape.is_some() => {
                    if seen.insert(name) {
                        g.inputs.push(info.clone());
                    }
                }
                _ => {
                    foreign.insert(*i);
                }
            }
        }
        if n.node.outputs.iter().any(|o| !o.is_empty() && !matches!(graph.values.get(o), Some(Value::Tensor(_)))) {
            foreign.insert(*i);
        }
        g.nodes.push(barewave::onnx::Node { name: name(*i), ..n.node.clone() });
    }
    if !foreign.is_empty() {
        return Err(foreign.into_iter().collect());
    }
    let outside = graph.nodes.iter().enumerate().filter(|(i, _)| !inside.contains(i));
    let mut wanted: BTreeSet<&str> = outside
        .flat_map(|(_, n)| n.node.inputs.iter().chain(&n.implicit))
        .chain(&graph.outputs)
        .map(String::as_str)
        .collect();
    wanted.retain(|v| made.contains(v));
    // Nobody reads it, but onnxruntime wants nodes to give something.
    if wanted.is_empty() {
        wanted.extend(made.iter().next());
    }
    g.outputs = wanted.into_iter().filter_map(|v| declared(graph, v)).collect();
    model.expand();
    Ok(model)
}

fn declared(graph: &ReadGraph, name: &str) -> Option<ValueInfo> {
    match graph.values.get(name) {
        Some(Value::Tensor(info)) => Some(info.clone()),
        _ => None,
    }
}

/// Most numbers of a model's own that are tried.
const MOST_OWN: usize = 12;

/// Numbers that extents of a model may have to do with: those of its attributes, and extents of its constants.
fn own_numbers(model: &Model) -> BTreeSet<usize> {
    let of_attribute = |a: &Attribute| match a {
        Attribute::Int(n) => vec![*n],
        Attribute::Ints(list) => list.clone(),
        _ => Vec::new(),
    };
    let attributes = model.graph.nodes.iter().flat_map(|n| n.attributes.values()).flat_map(of_attribute);
    let extents = model.graph.initializers.values().flat_map(|t| t.shape().to_vec());
    let numbers = attributes.filter_map(|n| usize::try_from(n).ok()).chain(extents);
    let all: BTreeSet<usize> = numbers.filter(|n| (3..=4096).contains(n)).collect();
    all.into_iter().take(MOST_OWN).collect()
}

/// Extents on trial.
struct Trial {
    /// Of first dimensions.
    first: usize,
    /// Of others.
    other: usize,
    /// Of a size that differs from the others.
    apart: Option<(String, usize)>,
    /// Those that others decide are what these say.
    settled: bool,
}

/// Models with more sizes to choose are not tried with one of them apart.
const MOST_APART: usize = 4;

/// Larger extents that others decide are not tried.
const LARGEST: i64 = 1 << 16;

/// The extents that a model's inputs leave open, by name.
struct Sizes {
    /// Each, and whether it is the first dimension where it is named first.
    by_name: BTreeMap<String, bool>,
    /// Those that others decide.
    settled: BTreeMap<String, graph::Dim>,
}

/// The name of an extent that is left open, as inference has it.
fn size_name(info: &ValueInfo, i: usize, d: &Dim) -> Option<String> {
    match d {
        Dim::Known(_) => None,
        Dim::Symbol(s) => Some(s.clone()),
        Dim::Unknown => Some(format!("{}[{i}]", info.name)),
    }
}

impl Sizes {
    fn of(model: &Model) -> Sizes {
        let mut by_name = BTreeMap::new();
        for info in model.required_inputs() {
            for (i, d) in info.shape.iter().flatten().enumerate() {
                if let Some(name) = size_name(info, i, d) {
                    by_name.entry(name).or_insert(i == 0);
                }
            }
        }
        let names: BTreeSet<String> = by_name.keys().cloned().collect();
        let types = if names.is_empty() { None } else { graph::infer(model, &Shapes::default()).ok() };
        Sizes { settled: types.map(|t| t.settled(&names)).unwrap_or_default(), by_name }
    }

    /// Trials in which one size is one more than the others, or the sum of two: a decoder's mask is as long as its cache and what
    /// goes behind it.
    fn apart(&self) -> Vec<Trial> {
        let is_later = |(name, first): &(&String, &bool)| !**first && !self.settled.contains_key(*name);
        let later: Vec<&String> = self.by_name.iter().filter(is_later).map(|(name, _)| name).collect();
        if !(2..=MOST_APART).contains(&later.len()) {
            return Vec::new();
        }
        let apart = |s: &str, n| Trial { first: 2, other: 2, apart: Some((s.to_string(), n)), settled: true };
        later.into_iter().flat_map(|s| [apart(s, 3), apart(s, 4)]).collect()
    }

    /// Shapes of all inputs, with trial extents for those that are left open.
    fn shapes(&self, model: &Model, trial: &Trial) -> Shapes {
        let chosen = |name: &str| match (&trial.apart, self.by_name.get(name)) {
            (Some((apart, n)), _) if apart == name => *n,
            (_, Some(true)) => trial.first,
            _ => trial.other,
        };
        let size = |name: &str| {
            let settled = self.settled.get(name).filter(|_| trial.settled).map(|d| d.at(&|name| chosen(name) as i64));
            let fitting = settled.filter(|n| (1..=LARGEST).contains(n));
            fitting.map_or_else(|| chosen(name), |n| n as usize)
        };
        let mut shapes = Shapes::default();
        for info in model.required_inputs() {
            let extent = |(i, d): (usize, &Dim)| match (d, size_name(info, i, d)) {
                (Dim::Known(n), _) => *n,
                (_, name) => size(&name.unwrap_or_default()),
            };
            shapes.shapes.insert(info.name.clone(), info.shape.iter().flatten().enumerate().map(extent).collect());
        }
        shapes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::ReadNode;
    use barewave::onnx::Node;

    fn graph(nodes: &[(&[&str], &str)]) -> ReadGraph {
        let node = |(inputs, output): &(&[&str], &str)| ReadNode {
            handle: std::ptr::null(),
            node: Node {
                name: String::new(),
                op: "Relu".into(),
                domain: String::new(),
                inputs: inputs.iter().map(|s| s.to_string()).collect(),
                outputs: vec![output.to_string()],
                attributes: BTreeMap::new(),
            },
            implicit: Vec::new(),
        };
        ReadGraph { nodes: nodes.iter().map(node).collect(), ..ReadGraph::default() }
    }

    #[test]
    fn a_foreign_node_splits_only_what_it_lies_between() {
        // a -> b -> c(foreign) -> d, and a -> e beside it: e needs nothing of c and stays with a and b.
        let g = graph(&[(&["x"], "a"), (&["a"], "b"), (&["b"], "c"), (&["c"], "d"), (&["a"], "e")]);
        assert_eq!(by_level(&g, &[0, 1, 3, 4].into()), [vec![0, 1, 4], vec![3]]);
    }

    #[test]
    fn groups_are_convex() {
        // d reads a, of its own group otherwise, and c, which is foreign and reads a.
        let g = graph(&[(&["x"], "a"), (&["a"], "c"), (&["a", "c"], "d")]);
        assert_eq!(by_level(&g, &[0, 2].into()), [vec![0], vec![2]]);
        // A foreign start.
        assert_eq!(by_level(&g, &[1, 2].into()), [vec![1, 2]]);
    }

    /// A mask is as long as a cache with one more behind it.
    #[test]
    fn extents_that_others_decide_are_found() {
        let mut g = graph(&[(&["past", "new"], "keys"), (&["keys"], "ones"), (&["ones", "mask"], "y")]);
        let axis = |n| BTreeMap::from([("axis".to_string(), Attribute::Int(n))]);
        for (node, (op, attributes)) in
            g.nodes.iter_mut().zip([("Concat", axis(1)), ("Sign", BTreeMap::new()), ("Concat", axis(0))])
        {
            (node.node.op, node.node.attributes) = (op.into(), attributes);
        }
        let symbol = |s: &str| Dim::Symbol(s.into());
        let shapes = [("past", symbol("past")), ("new", Dim::Known(1)), ("mask", symbol("total"))];
        let given = shapes.map(|(name, extent)| (name, [Dim::Known(2), extent]));
        let made = ["keys", "ones", "y"].map(|name| (name, [Dim::Unknown, Dim::Unknown]));
        for (name, shape) in given.into_iter().chain(made) {
            let shape = Some(shape.to_vec());
            let info = ValueInfo { name: name.into(), dtype: Some(DType::F32), shape };
            g.values.insert(name.into(), Value::Tensor(info));
        }
        g.outputs.push("y".into());
        g.opsets.insert(String::new(), 18);
        let compiler = Compiler::new(barewave_isa::Target::GFX1100, Default::default());
        let (groups, reasons) = choose(&compiler, None, &g, (0..3).collect());
        assert_eq!((groups, reasons), (vec![vec![0, 1, 2]], Reasons::new()));
    }

    /// Nothing names the extents of a layer's keys and values.
    #[test]
    fn extents_without_names_are_found() {
        let mut g = graph(&[
            (&["past", "new"], "keys"),
            (&["queries", "keys"], "scores"),
            (&["scores", "mask"], "masked"),
            (&["masked", "values"], "joined"),
            (&["joined", "to"], "y"),
            (&["y", "weights"], "z"),
        ]);
        for (node, op) in g.nodes.iter_mut().zip(["Concat", "MatMul", "Add", "MatMul", "Reshape", "MatMul"]) {
            node.node.op = op.into();
        }
        g.nodes[0].node.attributes.insert("axis".into(), Attribute::Int(-1));
        let known = |n: usize| if n == 0 { Dim::Unknown } else { Dim::Known(n) };
        // Keys lie turned.
        let shapes: [(&str, &[usize]); 5] = [
            ("past", &[0, 2, 8, 0]),
            ("new", &[0, 2, 8, 1]),
            ("queries", &[0, 2, 0, 8]),
            ("mask", &[0, 1, 0, 0]),
            ("values", &[0, 2, 0, 0]),
        ];
        let made = ["keys", "scores", "masked", "joined", "y", "z"].map(|name| (name, &[0, 0, 0, 0][..]));
        for (name, shape) in shapes.into_iter().chain(made) {
            let shape = Some(shape.iter().map(|n| known(*n)).collect());
            let info = ValueInfo { name: name.into(), dtype: Some(DType::F32), shape };
            g.values.insert(name.into(), Value::Tensor(info));
        }
        let weights = HostTensor::from_f64(DType::F32, &[32, 4], &[1.0; 128]);
        g.values.insert("weights".into(), Value::Constant(weights));
        g.values.insert("to".into(), Value::Constant(HostTensor::from_i64(&[3], &[0, -1, 32])));
        g.outputs.push("z".into());
        g.opsets.insert(String::new(), 18);
        let compiler = Compiler::new(barewave_isa::Target::GFX1100, Default::default());
        let (groups, reasons) = choose(&compiler, None, &g, (0..6).collect());
        assert_eq!((groups, reasons), (vec![(0..6).collect()], Reasons::new()));
    }
}
