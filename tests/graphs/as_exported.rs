//! Models as exporters leave them: nodes in any order, branches that are decided before the model runs, open extents.

use crate::support::agree::{finish, outputs};
use crate::support::build::{Builder, int, ints};
use crate::support::device::run;
use barewave::graph::fused::FusedGraph;
use barewave::graph::{self, Options};
use barewave::onnx::{Attribute, Dim, Graph, Model, Node, ValueInfo};
use barewave::tensor::{DType, HostTensor};
use pretty_assertions::assert_eq;

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

/// The kinds of a model's steps, and what it gives.
fn kinds(b: &Builder) -> (Vec<&'static str>, Vec<f64>) {
    let graph = fuse(&b.model);
    (graph.steps.iter().map(|s| s.kind.name()).collect(), result(&b.model, &b.inputs))
}

fn close(got: &[f64], want: &[f64]) {
    assert_eq!(got.len(), want.len());
    let size = want.iter().fold(1f64, |m, x| m.max(x.abs()));
    for (x, y) in got.iter().zip(want) {
        assert!((x - y).abs() < 1e-5 * size, "{x} instead of {y}");
    }
}

#[test]
fn softmax_written_out_is_one_step() {
    // As it is; with dimensions that come back; of which somebody reads the exponentials; over another dimension.
    for (form, want) in [(0, &["softmax"][..]), (1, &["softmax"]), (2, &[]), (3, &[])] {
        let mut b = Builder::new(17, 4);
        let x = b.input(&[2, 3, 5]);
        let axis = if form == 3 { 1 } else { -1 };
        let keep = i64::from(form != 1);
        let attributes = [("axes", Attribute::Ints(vec![axis])), ("keepdims", int(keep))];
        let max = b.node("ReduceMax", &[&x], &attributes);
        let back = b.ints(&[2, 3, 1]);
        let max = if form == 1 { b.node("Reshape", &[&max, &back], &[]) } else { max };
        let d = b.node("Sub", &[&x, &max], &[]);
        let e = b.node("Exp", &[&d], &[]);
        let axes = b.ints(&[axis]);
        let sum = b.node("ReduceSum", &[&e, &axes], &[("keepdims", int(keep))]);
        let sum = if form == 1 { b.node("Reshape", &[&sum, &back], &[]) } else { sum };
        let y = b.node("Div", &[&e, &sum], &[]);
        let y = if form == 2 { b.node("Mul", &[&y, &e], &[]) } else { y };
        b.output(&y);
        let (kinds, got) = kinds(&b);
        assert!(want.is_empty() != (kinds == want), "{form}: {kinds:?}");
        let x = b.inputs[0].to_f64();
        let line = |i: usize| -> Vec<usize> {
            if form == 3 {
                (0..3).map(|r| i / 15 * 15 + r * 5 + i % 5).collect()
            } else {
                (0..5).map(|c| i / 5 * 5 + c).collect()
            }
        };
        let share = |i: usize| {
            let of = line(i);
            let max = of.iter().map(|j| x[*j]).fold(f64::MIN, f64::max);
            let e = (x[i] - max).exp();
            let y = e / of.iter().map(|j| (x[*j] - max).exp()).sum::<f64>();
            if form == 2 { y * e } else { y }
        };
        close(&got, &(0..30).map(share).collect::<Vec<_>>());
    }
}

#[test]
fn tensorflows_normalisation_is_one_step() {
    for scaled in [true, false] {
        let mut b = Builder::new(15, 6);
        let x = b.input(&[4, 6]);
        let axes = [("axes", Attribute::Ints(vec![1]))];
        let mean = b.node("ReduceMean", &[&x], &axes);
        let d = b.node("Sub", &[&x, &mean], &[]);
        let square = b.node("Mul", &[&d, &d], &[]);
        let variance = b.node("ReduceMean", &[&square], &axes);
        let tiny = b.constant(HostTensor::from_f32(&[], &[1e-3]));
        let variance = b.node("Add", &[&variance, &tiny], &[]);
        let root = b.node("Sqrt", &[&variance], &[]);
        let factor = b.node("Reciprocal", &[&root], &[]);
        let (scale, bias) = (b.weight(&[6]), b.weight(&[6]));
        let factor = if scaled { b.node("Mul", &[&factor, &scale], &[]) } else { factor };
        let direct = b.node("Mul", &[&x, &factor], &[]);
        let moved = b.node("Mul", &[&mean, &factor], &[]);
        let rest = b.node("Sub", &[&bias, &moved], &[]);
        let y = b.node("Add", &[&direct, &rest], &[]);
        b.output(&y);
        let (kinds, got) = kinds(&b);
        assert_eq!(kinds, ["normalize"], "{scaled}");
        let data = |name: &str| b.model.graph.initializers[name].to_f64();
        let (x, scale, bias) = (b.inputs[0].to_f64(), data(&scale), data(&bias));
        let mut want = Vec::new();
        for row in x.chunks(6) {
            let mean = row.iter().sum::<f64>() / 6.0;
            let variance = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 6.0;
            for (i, v) in row.iter().enumerate() {
                let y = (v - mean) / (variance + 1e-3).sqrt();
                want.push(if scaled { y * scale[i] } else { y } + bias[i]);
            }
        }
        close(&got, &want);
    }
}

#[test]
fn factors_of_queries_and_keys_are_the_products() {
    let mut b = Builder::new(17, 8);
    let (q, k) = (b.input(&[2, 3, 4]), b.input(&[2, 5, 4]));
    let (half, quarter) =
        (b.constant(HostTensor::from_f32(&[], &[0.5])), b.constant(HostTensor::from_f32(&[1], &[4.0])));
    let q = b.node("Mul", &[&q, &half], &[]);
    let k = b.node("Transpose", &[&k], &[("perm", ints(&[0, 2, 1]))]);
    let k = b.node("Div", &[&k, &quarter], &[]);
    let y = b.node("MatMul", &[&q, &k], &[]);
    b.output(&y);
    let (kinds, got) = kinds(&b);
    assert_eq!(kinds, ["matmul"]);
    let (q, k) = (b.inputs[0].to_f64(), b.inputs[1].to_f64());
    let at = |i: usize| {
        let (n, row, column) = (i / 15, i / 5 % 3, i % 5);
        (0..4).map(|d| q[n * 12 + row * 4 + d] * k[n * 20 + column * 4 + d]).sum::<f64>() / 8.0
    };
    close(&got, &(0..30).map(at).collect::<Vec<_>>());
}

/// A convolution with scale, bias and activation; with channels that come last it is turned, and its result back.
fn convolution(b: &mut Builder, x: &str, [from, to, window]: [usize; 3], last: bool, active: bool) -> String {
    let turn = |b: &mut Builder, x: &str, to: [usize; 4]| b.node("Transpose", &[x], &[("perm", ints(&to))]);
    let w = b.weight(&[to, from, window, window]);
    let data = if last { turn(b, x, [0, 3, 1, 2]) } else { x.to_string() };
    let y = b.node("Conv", &[&data, &w], &[("pads", ints(&[window / 2; 4]))]);
    let y = if last { turn(b, &y, [0, 2, 3, 1]) } else { y };
    let shape = if last { vec![to] } else { vec![to, 1, 1] };
    let (scale, bias) = (b.weight(&shape), b.weight(&shape));
    let y = b.node("Mul", &[&y, &scale], &[]);
    let y = b.node("Add", &[&y, &bias], &[]);
    if active { b.node("Relu", &[&y], &[]) } else { y }
}

/// Residual blocks, the first of which projects its shortcut.
fn residual_network(x: &HostTensor, last: bool) -> Builder {
    let mut b = Builder::new(17, 77);
    let x = b.input_of(x.clone());
    let mut x = convolution(&mut b, &x, [3, 6, 3], last, true);
    for (from, to) in [(6, 10), (10, 10), (10, 7)] {
        let y = convolution(&mut b, &x, [from, 5, 1], last, true);
        let y = convolution(&mut b, &y, [5, 5, 3], last, true);
        let y = convolution(&mut b, &y, [5, to, 1], last, false);
        let shortcut = if from == to { x } else { convolution(&mut b, &x, [from, to, 1], last, false) };
        let y = b.node("Add", &[&y, &shortcut], &[]);
        x = b.node("Relu", &[&y], &[]);
    }
    b.output(&x);
    b
}

/// Images with channels behind rows and columns.
fn channels_last(x: &HostTensor) -> HostTensor {
    let [n, c, h, w] = [0, 1, 2, 3].map(|d| x.shape()[d]);
    let data = x.to_f64();
    let at = |i: usize| ((i / c / w / h * c + i % c) * h + i / c / w % h) * w + i / c % w;
    let values: Vec<f64> = (0..data.len()).map(|i| data[at(i)]).collect();
    HostTensor::from_f64(DType::F32, &[n, h, w, c], &values)
}

#[test]
fn channels_that_come_last_cost_no_steps() {
    for shape in [[1, 3, 6, 5], [2, 3, 4, 7]] {
        let x = Builder::new(17, 78).random(&shape);
        let (plain, last) = (residual_network(&x, false), residual_network(&channels_last(&x), true));
        let want = channels_last(&run(&fuse(&plain.model), &plain.inputs, "gfx942", true).unwrap().0[0]);
        let graph = fuse(&last.model);
        for target in ["gfx906", "gfx942", "gfx1030", "gfx1100", "gfx1201"] {
            let got = run(&graph, &last.inputs, target, true).unwrap().0.remove(0);
            assert_eq!(got.shape(), want.shape());
            close(&got.to_f64(), &want.to_f64());
        }
        // What is turned is the input, and the output.
        let turning = graph.steps.iter().filter(|s| s.kind.name() == "pointwise").count();
        assert!(turning <= 2, "{graph}");
        assert_eq!(graph.steps.len() - turning, fuse(&plain.model).steps.len());
    }
}

#[test]
fn softmax_of_one_dimension_needs_its_axis_where_that_was_the_second() {
    let mut b = Builder::new(11, 0);
    let x = b.input(&[8]);
    let y = b.node("Softmax", &[&x], &[]);
    b.output(&y);
    let e = graph::fuse(&b.model, &Options::default()).unwrap_err().to_string();
    assert!(e.contains("axis 1 is outside the 1 dimensions"), "{e}");
}

#[test]
fn a_quantised_softmax_is_of_the_opset_that_its_node_states() {
    for (model_opset, stated, axis) in [(12, 13, 1), (12, 13, 0), (17, 12, 1), (17, 12, 0), (12, 13, -1), (12, 12, -1)]
    {
        let mut b = Builder::new(model_opset, 5);
        let codes: Vec<i64> = (0..24).map(|_| b.below(256) as i64).collect();
        let x = HostTensor::from_ints(DType::U8, &[2, 3, 4], &codes);
        let name = b.input_of(x.clone());
        let number = |b: &mut Builder, v| b.constant(HostTensor::from_f32(&[], &[v]));
        let zero = |b: &mut Builder, v| b.constant(HostTensor::from_ints(DType::U8, &[], &[v]));
        let (xs, xz) = (number(&mut b, 0.02), zero(&mut b, 100));
        let (ys, yz) = (number(&mut b, 1.0 / 256.0), zero(&mut b, 0));
        // The last axis goes without saying in every opset.
        let attributes = [("opset", int(stated)), ("axis", int(axis))];
        let attributes = &attributes[..if axis < 0 { 1 } else { 2 }];
        let y = b.node("QLinearSoftmax", &[&name, &xs, &xz, &ys, &yz], attributes);
        finish(&mut b, "com.microsoft", &[y]);
        let e: Vec<f64> = x.to_i64().iter().map(|v| (0.02 * *v as f64).exp()).collect();
        let axis = if axis < 0 { 2 } else { axis as usize };
        let (length, step) = ([2, 3, 4][axis], [12, 4, 1][axis]);
        let together = |i: usize, j: usize| match stated {
            13.. => i / (length * step) == j / (length * step) && i % step == j % step,
            _ => i / (length * step) == j / (length * step),
        };
        let sums = (0..24).map(|i| (0..24).filter(|j| together(i, *j)).map(|j| e[j]).sum::<f64>());
        let want: Vec<f64> = sums.zip(&e).map(|(sum, e)| (256.0 * e / sum).round().min(255.0)).collect();
        let got = outputs(&b, "quantised softmax", 0.0);
        assert_eq!(got[0].to_f64(), want, "opset {model_opset}, {stated} stated, axis {axis}");
    }
}

#[test]
fn factors_of_halves_are_the_products_which_would_be_too_large_without() {
    let mut b = Builder::new(17, 8);
    let mut large = |shape: &[usize]| {
        let x: Vec<f64> = b.random(shape).to_f64().iter().map(|x| 200.0 + 20.0 * x).collect();
        b.input_of(HostTensor::from_f64(DType::F16, shape, &x))
    };
    let [q, k] = [[2, 33, 64], [2, 64, 17]].map(|shape| large(&shape));
    let small = b.constant(HostTensor::from_f64(DType::F16, &[], &[1.0 / 128.0]));
    let [q, k] = [q, k].map(|x| b.node("Mul", &[&x, &small], &[]));
    let y = b.node("MatMul", &[&q, &k], &[]);
    b.output(&y);
    assert_eq!(kinds(&b).0, ["matmul"]);
    outputs(&b, "large products of halves", 2e-3);
}

/// A root mean square normalisation of halves as language models have it: in f32, of which the results are rounded before they are scaled.
fn widened_norm(t: DType, rounded: bool) -> Builder {
    let mut b = Builder::new(17, 6);
    let x = HostTensor::from_f64(t, &[7, 96], &b.random(&[7, 96]).to_f64());
    let halves = b.input_of(x);
    let x = b.node("Cast", &[&halves], &[("to", int(1))]);
    let two = b.constant(HostTensor::from_f32(&[], &[2.0]));
    let squares = b.node("Pow", &[&x, &two], &[]);
    let mean = b.node("ReduceMean", &[&squares], &[("axes", ints(&[1])), ("keepdims", int(1))]);
    let epsilon = b.constant(HostTensor::from_f32(&[], &[1e-5]));
    let mean = b.node("Add", &[&mean, &epsilon], &[]);
    let root = b.node("Sqrt", &[&mean], &[]);
    let inverse = b.node("Reciprocal", &[&root], &[]);
    let mut y = b.node("Mul", &[&x, &inverse], &[]);
    if rounded {
        let constant = |b: &mut Builder, shape: &[usize]| {
            let x = b.random(shape).to_f64();
            b.constant(HostTensor::from_f64(t, shape, &x))
        };
        y = b.node("Cast", &[&y], &[("to", int(t.to_onnx().into()))]);
        let scale = constant(&mut b, &[96]);
        y = b.node("Mul", &[&scale, &y], &[]);
        let w = constant(&mut b, &[96, 24]);
        y = b.node("MatMul", &[&y, &w], &[]);
        let twice = b.node("Add", &[&halves, &halves], &[]);
        b.output(&twice);
    }
    b.output(&y);
    b
}

#[test]
fn norms_of_halves_that_were_widened_read_the_halves() {
    for (t, most) in [(DType::F16, 2e-3), (DType::BF16, 2e-2)] {
        let b = widened_norm(t, true);
        let steps = fuse(&b.model).steps;
        let kinds: Vec<&str> = steps.iter().map(|s| s.kind.name()).collect();
        assert_eq!(kinds, ["normalize", "pointwise", "matmul"]);
        outputs(&b, "a norm of halves", most);
        // Nobody rounds what stays wide.
        let b = widened_norm(t, false);
        assert_eq!(fuse(&b.model).steps.len(), 1);
        outputs(&b, "a wide norm of halves", 1e-5);
    }
}

#[test]
fn bounds_with_dimensions_add_none_to_what_they_clip() {
    let mut b = Builder::new(17, 5);
    let x = b.input(&[2, 3]);
    let x = b.node("ReduceSum", &[&x], &[("keepdims", int(0))]);
    let bounds = [-0.5, 0.5].map(|v| b.constant(HostTensor::from_f32(&[1, 1], &[v])));
    let y = b.node("Clip", &[&x, &bounds[0], &bounds[1]], &[]);
    b.output(&y);
    let out = run(&fuse(&b.model), &b.inputs, "gfx906", true).unwrap().0.remove(0);
    assert_eq!(out.shape(), [0; 0]);
    let sum: f64 = b.inputs[0].to_f64().iter().sum();
    assert!((out.to_f64()[0] - sum.clamp(-0.5, 0.5)).abs() < 1e-6);
}
