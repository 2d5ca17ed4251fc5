//! Models as exporters leave them: nodes in any order, branches that are decided before the model runs, open extents.

mod support;

use barewave::graph::fused::FusedGraph;
use barewave::graph::{self, Options};
use barewave::onnx::{Attribute, Dim, Graph, Model, Node, ValueInfo};
use barewave::tensor::{DType, HostTensor};
use pretty_assertions::assert_eq;
use support::build::{Builder, int};
use support::device::run;

fn fuse(model: &Model) -> FusedGraph {
    graph::fuse(model, &Options::default()).unwrap()
}

fn result(model: &Model, inputs: &[HostTensor]) -> Vec<f64> {
    run(&fuse(model), inputs, "gfx1100", true).unwrap().0[0].to_f64()
}

fn value(name: &str) -> ValueInfo {
    ValueInfo { name: name.into(), dtype: None, shape: None }
}

fn node(op: &str, inputs: &[&str], output: &str) -> Node {
    Node {
        name: format!("{op}_{output}"),
        op: op.into(),
        domain: String::new(),
        inputs: inputs.iter().map(|s| s.to_string()).collect(),
        outputs: vec![output.into()],
        attributes: Default::default(),
    }
}

/// A branch with one output.
fn branch(nodes: Vec<Node>, output: &str) -> Attribute {
    Attribute::Graph(Box::new(Graph { nodes, outputs: vec![value(output)], ..Graph::default() }))
}

#[test]
fn nodes_may_stand_in_any_order() {
    let mut b = Builder::new(17, 3);
    let x = b.input(&[2, 5]);
    let w = b.weight(&[5, 3]);
    let y = b.node("MatMul", &[&x, &w], &[]);
    let y = b.node("Relu", &[&y], &[]);
    let z = b.node("Add", &[&y, &y], &[]);
    b.output(&z);
    let in_order = result(&b.model, &b.inputs);
    let mut shuffled = b.model.clone();
    shuffled.graph.nodes.reverse();
    assert_eq!(result(&shuffled, &b.inputs), in_order);
    // The order of the file decides nothing: the same kernels in the same order.
    assert_eq!(fuse(&shuffled).to_string(), fuse(&b.model).to_string());
}

/// If on whether `x` has one row: it is squeezed or summed over rows; both branches read `x` from around them.
fn squeeze_or_sum(rows: usize) -> Builder {
    let mut b = Builder::new(17, 4);
    let x = b.input(&[rows, 3]);
    let shape = b.node("Shape", &[&x], &[]);
    let (zero, one, axes) = (b.constant(HostTensor::from_i64(&[], &[0])), b.ints(&[1]), b.ints(&[0]));
    let n = b.node("Gather", &[&shape, &zero], &[]);
    let is_one = b.node("Equal", &[&n, &one], &[]);
    let squeezed = branch(vec![node("Squeeze", &["t", &axes], "then"), node("Neg", &[&x], "t")], "then");
    let summed = branch(vec![node("ReduceSum", &[&x, &axes], "else"), node("Unknown", &[&x], "dead")], "else");
    let y = b.node("If", &[&is_one], &[("then_branch", squeezed), ("else_branch", summed)]);
    let y = b.node("Abs", &[&y], &[]);
    b.output(&y);
    b
}

#[test]
fn a_branch_that_shapes_decide_is_lowered_in_place() {
    let b = squeeze_or_sum(1);
    let x = b.inputs[0].to_f64();
    assert_eq!(result(&b.model, &b.inputs), x.iter().map(|v| v.abs()).collect::<Vec<_>>());
    assert_eq!(fuse(&b.model).steps.len(), 1, "the branch is part of one expression");
    let b = squeeze_or_sum(2);
    let x = b.inputs[0].to_f64();
    let sums: Vec<f64> = (0..3).map(|i| f64::from((x[i] as f32 + x[i + 3] as f32).abs())).collect();
    assert_eq!(result(&b.model, &b.inputs), sums);
}

#[test]
fn branches_nest_and_refusals_in_them_name_the_inner_node() {
    let mut b = Builder::new(17, 5);
    let x = b.input(&[4]);
    let yes = b.constant(HostTensor::from_f64(DType::Bool, &[1], &[1.0]));
    let nested = |op: &str| {
        let mut inner = node("If", &[&yes], "inner");
        inner.attributes.insert("then_branch".into(), branch(vec![node(op, &[&x], "deep")], "deep"));
        inner.attributes.insert("else_branch".into(), branch(vec![node("Frobnicate", &[&x], "no")], "no"));
        branch(vec![inner], "inner")
    };
    let make = |b: &mut Builder, op: &str| {
        let y = b.node("If", &[&yes], &[("then_branch", nested(op)), ("else_branch", branch(vec![], &x))]);
        b.model.graph.outputs = vec![value(&y)];
    };
    make(&mut b, "Neg");
    let x_values = b.inputs[0].to_f64();
    assert_eq!(result(&b.model, &b.inputs), x_values.iter().map(|v| -v).collect::<Vec<_>>());
    make(&mut b, "Frobnicate");
    let e = graph::fuse(&b.model, &Options::default()).unwrap_err().to_string();
    assert!(e.contains("`Frobnicate_deep`") && e.contains("operator Frobnicate is not supported"), "{e}");
}

#[test]
fn a_condition_that_is_computed_is_refused_by_name() {
    let mut b = Builder::new(17, 6);
    let x = b.input(&[1]);
    let zero = b.constant(HostTensor::from_f32(&[1], &[0.0]));
    let c = b.node("Less", &[&x, &zero], &[]);
    let y = b.node("If", &[&c], &[("then_branch", branch(vec![], &x)), ("else_branch", branch(vec![], &x))]);
    b.output(&y);
    let e = graph::fuse(&b.model, &Options::default()).unwrap_err().to_string();
    assert!(e.contains("(If): the condition (input 0) depends on the model's inputs"), "{e}");
}

#[test]
fn damaged_branches_are_errors() {
    let make = |then: Attribute, outputs: usize| {
        let mut b = Builder::new(17, 7);
        b.input(&[2]);
        let yes = b.constant(HostTensor::from_f64(DType::Bool, &[], &[1.0]));
        let y = b.node_n("If", &[&yes], &[("then_branch", then)], outputs);
        b.output(&y[0]);
        graph::fuse(&b.model, &Options::default()).unwrap_err().to_string()
    };
    assert!(make(branch(vec![node("Neg", &["nowhere"], "v")], "v"), 1).contains("reads `nowhere`"));
    assert!(make(branch(vec![], "nowhere"), 1).contains("`nowhere`"));
    assert!(make(branch(vec![node("Neg", &["x1"], "v")], "v"), 2).contains("has 1 outputs, the node 2"));
    assert!(make(int(1), 1).contains("attribute `then_branch` is missing"));
    let circle = branch(vec![node("Neg", &["b"], "a"), node("Neg", &["a"], "b")], "a");
    assert!(make(circle, 1).contains("in a circle"));
}

#[test]
fn extents_of_zero_are_shapes_like_any_other() {
    // An empty cache in front of one new element.
    let mut b = Builder::new(17, 8);
    let past = b.input(&[1, 0, 4]);
    let new = b.input(&[1, 1, 4]);
    let all = b.node("Concat", &[&past, &new], &[("axis", int(1))]);
    let y = b.node("Neg", &[&all], &[]);
    b.output(&y);
    b.output(&past);
    for i in &mut b.model.graph.inputs {
        i.shape.as_mut().unwrap()[1] = Dim::Symbol("past".into());
    }
    let shapes = b.model.graph.inputs.iter().zip(&b.inputs).map(|(i, t)| (i.name.clone(), t.shape().to_vec()));
    let g = graph::fuse(&b.model, &Options { shapes: shapes.collect(), ..Options::default() }).unwrap();
    // One symbol, two extents: a note, not an error.
    assert_eq!(g.notes.len(), 1);
    let out = run(&g, &b.inputs, "gfx942", true).unwrap().0;
    assert_eq!(out[0].to_f64(), b.inputs[1].to_f64().iter().map(|v| -v).collect::<Vec<_>>());
    assert_eq!(out[1].shape(), [1, 0, 4]);
}
