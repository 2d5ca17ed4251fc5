//! What becomes of typical patterns: how many kernels, and what they look like.

use crate::support::build::{Builder, float, int, ints, text};
use crate::support::{apart, device};
use barewave::graph::fused::{Conv, FusedGraph, Role, StepKind};
use barewave::graph::{self, Error, Options, plan};
use barewave::onnx::{Attribute, Dim, Model};
use barewave::tensor::{DType, HostTensor};
use std::collections::BTreeMap;
use std::path::Path;

fn fuse(b: &Builder) -> FusedGraph {
    graph::fuse(&b.model, &Options::default()).unwrap()
}

fn kinds(g: &FusedGraph) -> Vec<&'static str> {
    g.steps.iter().map(|s| s.kind.name()).collect()
}

fn conv(b: &mut Builder, x: &str, cin: usize, cout: usize, k: usize) -> String {
    let (w, bias) = (b.weight(&[cout, cin, k, k]), b.weight(&[cout]));
    b.node("Conv", &[x, &w, &bias], &[("pads", ints(&[k / 2; 4]))])
}

fn batch_norm(b: &mut Builder, x: &str, c: usize) -> String {
    let (s, t, m) = (b.weight(&[c]), b.weight(&[c]), b.weight(&[c]));
    let v = b.constant(HostTensor::from_f64(DType::F32, &[c], &vec![0.7; c]));
    b.node("BatchNormalization", &[x, &s, &t, &m, &v], &[])
}

#[test]
fn a_residual_block_is_two_kernels() {
    let mut b = Builder::new(17, 1);
    let x = b.input(&[1, 8, 6, 6]);
    let y = conv(&mut b, &x, 8, 8, 3);
    let y = batch_norm(&mut b, &y, 8);
    let y = b.node("Relu", &[&y], &[]);
    let y = conv(&mut b, &y, 8, 8, 3);
    let y = batch_norm(&mut b, &y, 8);
    let y = b.node("Add", &[&y, &x], &[]);
    let y = b.node("Relu", &[&y], &[]);
    b.output(&y);
    let g = fuse(&b);
    assert_eq!(kinds(&g), ["conv", "conv"]);
    // The bias disappears in the shift of the normalisation.
    assert_eq!(g.steps[0].expr.to_string(), "max(add(mul(acc, in2), in3), 0.0)");
    assert_eq!(g.steps[1].expr.to_string(), "max(add(add(mul(acc, in2), in3), in4), 0.0)");
}

#[test]
fn activations_made_of_many_nodes_are_one_expression() {
    // x * sigmoid(x), and GELU as exporters write it.
    let mut b = Builder::new(17, 1);
    let x = b.input(&[1, 4, 5, 5]);
    let y = conv(&mut b, &x, 4, 4, 3);
    let s = b.node("Sigmoid", &[&y], &[]);
    let y = b.node("Mul", &[&y, &s], &[]);
    let y = conv(&mut b, &y, 4, 4, 1);
    let c = |b: &mut Builder, v: f32| b.constant(HostTensor::from_f32(&[], &[v]));
    let (root, one, half) = (c(&mut b, std::f32::consts::SQRT_2), c(&mut b, 1.0), c(&mut b, 0.5));
    let e = b.node("Div", &[&y, &root], &[]);
    let e = b.node("Erf", &[&e], &[]);
    let e = b.node("Add", &[&e, &one], &[]);
    let e = b.node("Mul", &[&y, &e], &[]);
    let y = b.node("Mul", &[&e, &half], &[]);
    b.output(&y);
    let g = fuse(&b);
    assert_eq!(kinds(&g), ["conv", "conv"]);
    assert_eq!(g.steps[0].expr.to_string(), "t2 = add(acc, in2); mul(t2, sigmoid(t2))");
}

#[test]
fn concatenation_costs_nothing() {
    let mut b = Builder::new(17, 1);
    let x = b.input(&[2, 4, 5, 5]);
    let p = conv(&mut b, &x, 4, 3, 1);
    let q = conv(&mut b, &x, 4, 5, 3);
    let c1 = b.node("Concat", &[&p, &q], &[("axis", int(1))]);
    let r = conv(&mut b, &c1, 8, 2, 3);
    let c2 = b.node("Concat", &[&c1, &r], &[("axis", int(1))]);
    let y = conv(&mut b, &c2, 10, 4, 1);
    b.output(&y);
    let g = fuse(&b);
    assert_eq!(kinds(&g), ["conv"; 4]);
    // All of it is in one tensor of 10 channels: r reads and writes it.
    let grown = g.steps[2].output.tensor;
    assert_eq!(g.tensor(grown).shape, [2, 10, 5, 5]);
    assert_eq!(g.steps[2].inputs[0].tensor, grown);
    assert_eq!(g.steps[2].output.view.offset, 8 * 25);
}

#[test]
fn layout_operators_are_views() {
    let mut b = Builder::new(17, 1);
    let x = b.input(&[1, 12, 4, 6]);
    let s = b.ints(&[1, 3, 4, 4, 6]);
    let y = b.node("Reshape", &[&x, &s], &[]);
    let y = b.node("Transpose", &[&y], &[("perm", ints(&[0, 2, 1, 3, 4]))]);
    let s = b.ints(&[1, 12, 4, 6]);
    let y = b.node("Reshape", &[&y, &s], &[]);
    let scales = b.constant(HostTensor::from_f32(&[4], &[1.0, 1.0, 2.0, 2.0]));
    let attributes = [("coordinate_transformation_mode", text("asymmetric")), ("nearest_mode", text("floor"))];
    let y = b.node("Resize", &[&y, "", &scales], &attributes);
    let y = b.node("Relu", &[&y], &[]);
    b.output(&y);
    let g = fuse(&b);
    assert_eq!(kinds(&g), ["pointwise"]);
    // Upsampling repeats by strides of 0.
    assert_eq!(g.steps[0].inputs[0].view.strides.iter().filter(|&&s| s == 0).count(), 2);
}

#[test]
fn padding_moves_into_the_convolution() {
    let mut b = Builder::new(17, 1);
    let x = b.input(&[1, 4, 5, 5]);
    let p = b.ints(&[0, 0, 1, 2, 0, 0, 1, 2]);
    let y = b.node("Pad", &[&x, &p], &[]);
    let w = b.weight(&[4, 4, 3, 3]);
    let y = b.node("Conv", &[&y, &w], &[]);
    b.output(&y);
    let g = fuse(&b);
    assert_eq!(kinds(&g), ["conv"]);
    let StepKind::Conv(Conv { window, .. }) = &g.steps[0].kind else { panic!() };
    assert_eq!(window.pads, [1, 2]);
    assert_eq!(g.steps[0].output.view.dims, [1, 4, 5, 7]);
}

#[test]
fn dimensions_are_merged() {
    let mut b = Builder::new(17, 1);
    let x = b.input(&[2, 4, 5, 7]);
    let y = conv(&mut b, &x, 4, 6, 1);
    let y = b.node("Relu", &[&y], &[]);
    b.output(&y);
    let g = fuse(&b);
    assert_eq!(g.steps[0].output.view.dims, [2, 6, 35]);
    assert_eq!(g.steps[0].inputs[1].view.dims, [6, 4, 1]);

    // A batched product with one right side is one product.
    let mut b = Builder::new(17, 1);
    let x = b.input(&[3, 4, 5, 7]);
    let w = b.weight(&[7, 2]);
    let y = b.node("MatMul", &[&x, &w], &[]);
    b.output(&y);
    let g = fuse(&b);
    assert_eq!(g.steps[0].output.view.dims, [60, 2]);
}

#[test]
fn shape_arithmetic_disappears() {
    let mut b = Builder::new(17, 1);
    let x = b.input(&[2, 3, 4, 5]);
    let s = b.node("Shape", &[&x], &[]);
    let zero = b.constant(HostTensor::from_i64(&[], &[0]));
    let n = b.node("Gather", &[&s, &zero], &[]);
    let axes = b.ints(&[0]);
    let n = b.node("Unsqueeze", &[&n, &axes], &[]);
    let rest = b.ints(&[-1]);
    let s = b.node("Concat", &[&n, &rest], &[("axis", int(0))]);
    let y = b.node("Reshape", &[&x, &s], &[]);
    let w = b.weight(&[60, 4]);
    let y = b.node("Gemm", &[&y, &w], &[("alpha", float(1.0))]);
    b.output(&y);
    let g = fuse(&b);
    assert_eq!(kinds(&g), ["matmul"]);
    assert!(g.tensors.iter().all(|t| t.dtype == DType::F32), "{g}");
}

#[test]
fn transposed_convolution_is_one_convolution_per_phase() {
    let mut b = Builder::new(17, 1);
    let x = b.input(&[1, 3, 4, 4]);
    let (w, bias) = (b.weight(&[3, 5, 4, 4]), b.weight(&[5]));
    let y = b.node("ConvTranspose", &[&x, &w, &bias], &[("strides", ints(&[2, 2])), ("pads", ints(&[1, 1, 1, 1]))]);
    let y = b.node("Relu", &[&y], &[]);
    b.output(&y);
    let g = fuse(&b);
    assert_eq!(kinds(&g), ["conv"; 4]);
    for s in &g.steps {
        assert_eq!(s.inputs[1].view.dims, [5, 3, 2, 2]);
        assert_eq!(s.expr.to_string(), "max(add(acc, in2), 0.0)");
        assert!(matches!(g.tensor(s.inputs[1].tensor).role, Role::Constant(_)), "weights are rearranged here");
    }
}

#[test]
fn weights_are_not_copied() {
    let model = Model::load(Path::new("examples/lenet/lenet.onnx")).unwrap();
    let g = graph::fuse(&model, &Options::default()).unwrap();
    for t in &g.tensors {
        if let Role::Constant(c) = &t.role {
            assert_eq!(c.bytes().as_ptr(), model.graph.initializers[&t.name].bytes().as_ptr(), "{}", t.name);
        }
    }
}

#[test]
fn symbolic_dimensions_take_given_numbers() {
    let mut b = Builder::new(17, 1);
    let x = b.input(&[1, 3, 8, 8]);
    let y = conv(&mut b, &x, 3, 2, 3);
    b.output(&y);
    b.model.graph.inputs[0].shape =
        Some(vec![Dim::Symbol("batch".into()), Dim::Known(3), Dim::Symbol("h".into()), Dim::Symbol("w".into())]);
    let with = |list: &[(&str, usize)]| {
        let dims: BTreeMap<String, usize> = list.iter().map(|(k, v)| (k.to_string(), *v)).collect();
        graph::fuse(&b.model, &Options { dims, ..Options::default() })
    };
    let g = with(&[("batch", 4), ("h", 5), ("w", 9)]).unwrap();
    assert_eq!(g.tensor(g.outputs[0]).shape, [4, 2, 5, 9]);
    let missing = with(&[("h", 5)]).unwrap_err().to_string();
    assert!(missing.contains("--dim w=N") && missing.contains("--dim batch=N"), "{missing}");
    let shapes = BTreeMap::from([(x.clone(), vec![2, 3, 5, 9])]);
    let g = graph::fuse(&b.model, &Options { shapes, ..Options::default() }).unwrap();
    assert_eq!(g.tensor(g.outputs[0]).shape, [2, 2, 5, 9]);
}

#[test]
fn the_arena_is_shared() {
    let mut b = Builder::new(17, 1);
    let mut x = b.input(&[1, 4, 16, 16]);
    for _ in 0..6 {
        x = conv(&mut b, &x, 4, 4, 3);
    }
    b.output(&x);
    let p = plan::plan(&fuse(&b), |_| true, |_| 0, &mut plan::WeightsRegion::default());
    assert_eq!((p.arena_bytes, p.sum_bytes), (2 * 4096, 5 * 4096));
}

fn error(b: &Builder) -> Error {
    graph::fuse(&b.model, &Options::default()).map(|_| ()).unwrap_err()
}

#[test]
fn errors_name_node_operator_and_attribute() {
    let of = |op: &str, inputs: usize, attributes: &[(&str, Attribute)]| {
        let mut b = Builder::new(17, 1);
        let x = b.input(&[1, 2, 4, 4]);
        let w = b.weight(&[3, 2, 3, 3]);
        let y = b.node(op, &[x.as_str(), w.as_str()][..inputs], attributes);
        b.output(&y);
        error(&b).to_string()
    };
    let make = |op: &str, attributes: &[(&str, Attribute)]| of(op, 2, attributes);
    assert!(make("Frobnicate", &[]).contains("node `Frobnicate_v3`: operator Frobnicate is not supported"));
    assert!(make("conv", &[]).contains("did you mean Conv?"));
    let e = make("Conv", &[("winograd", int(1))]);
    assert!(e.contains("node `Conv_v3` (Conv): attribute `winograd` is not supported; Conv supports auto_pad"), "{e}");
    let e = make("Conv", &[("auto_pad", text("SOMEHOW"))]);
    assert!(
        e.contains("attribute `auto_pad` is `SOMEHOW`; NOTSET, VALID, SAME_UPPER and SAME_LOWER are supported"),
        "{e}"
    );
    assert!(make("Conv", &[("group", int(2))]).contains("do not fit in 2 groups"));
    assert!(make("Conv", &[("strides", ints(&[1]))]).contains("`strides` has 1 entries for 2 spatial dimensions"));
    assert!(make("Conv", &[("strides", text("x"))]).contains("`strides` is not a list of integers"));
    assert!(make("MatMul", &[]).contains("do not fit"));
    assert!(make("Add", &[]).contains("shapes [1, 2, 4, 4] and [3, 2, 3, 3] do not broadcast"));
    assert!(make("Reshape", &[]).contains("input 1 is f32, Reshape takes i32 or i64"));
    assert!(make("MaxPool", &[]).contains("it has 2 inputs and takes 1"));
    assert!(of("MaxPool", 1, &[]).contains("attribute `kernel_shape` is missing"));
    assert!(make("Resize", &[]).contains("neither scales nor sizes are given"));
}

#[test]
fn what_the_body_of_an_operator_does_not_read_stops_the_model() {
    let refused = |op: &str, inputs: &[usize], attributes: &[(&str, Attribute)]| {
        let mut b = Builder::new(21, 1);
        let last = inputs.iter().max().map_or(0, |i| i + 1);
        let mut names = vec![String::new(); last];
        inputs.iter().for_each(|i| names[*i] = b.input(&[2, 4, 8]));
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let y = b.node(op, &names, attributes);
        b.model.graph.nodes[0].domain = "com.microsoft".into();
        b.output(&y);
        b.model.expand();
        error(&b).to_string()
    };
    let heads = [("num_heads", int(2)), ("kv_num_heads", int(2))];
    // A sink of each head, which takes part in the softmax.
    let e = refused("GroupQueryAttention", &[0, 1, 2, 3, 4, 5, 6, 12], &heads);
    assert!(e.contains("operator com.microsoft.GroupQueryAttention with input 12 is not supported"), "{e}");
    let e = refused("GroupQueryAttention", &[0, 1, 2, 3, 4, 5, 6], &[heads[0].clone(), ("causal", int(0))]);
    assert!(e.contains("GroupQueryAttention with attribute causal is not supported"), "{e}");
    let e = refused("MultiHeadAttention", &[0, 1, 2, 6, 7, 8], &heads[..1]);
    assert!(e.contains("MultiHeadAttention with input 8 is not supported"), "{e}");
    let e = refused("CDist", &[0, 1], &[("metric", text("cosine"))]);
    assert!(e.contains("CDist with attribute metric is not supported"), "{e}");
    // An output that it does not make, where somebody asks for it.
    let asked = |output: usize| {
        let mut b = Builder::new(21, 1);
        let inputs = [b.input(&[2, 8]), b.input(&[2, 8]), b.input(&[8])];
        let names: Vec<&str> = inputs.iter().map(String::as_str).collect();
        let y = b.node_n("SkipSimplifiedLayerNormalization", &names, &[], 4);
        b.model.graph.nodes[0].domain = "com.microsoft".into();
        b.output(&y[output]);
        b.model.expand();
        b
    };
    let e = error(&asked(2)).to_string();
    assert!(e.contains("SkipSimplifiedLayerNormalization with output 2 is not supported"), "{e}");
    assert!(graph::fuse(&asked(3).model, &Options::default()).is_ok());
    // Layouts of the processor that an optimised model was saved on.
    let mut b = Builder::new(21, 1);
    let x = b.input(&[1, 16, 8, 8]);
    let y = b.node("ReorderOutput", &[&x], &[("channels", int(16))]);
    b.model.graph.nodes[0].domain = "com.microsoft.nchwc".into();
    b.output(&y);
    let e = error(&b).to_string();
    assert!(
        e.contains("com.microsoft.nchwc.ReorderOutput is not supported") && e.contains("ORT_ENABLE_EXTENDED"),
        "{e}"
    );
}

#[test]
fn what_must_be_known_at_compile_time_is_named() {
    let mut b = Builder::new(17, 1);
    let x = b.input(&[2, 3]);
    let s = b.input_of(HostTensor::from_i64(&[1], &[6]));
    let y = b.node("Reshape", &[&x, &s], &[]);
    b.output(&y);
    let e = error(&b).to_string();
    assert!(e.contains("the new shape (input 1) depends on the model's inputs"), "{e}");
}

#[test]
fn outputs_without_computation_are_copied() {
    // An input, a constant, and the same value twice.
    let mut b = Builder::new(17, 1);
    let x = b.input(&[3]);
    let c = b.weight(&[2]);
    let y = b.node("Relu", &[&x], &[]);
    for name in [&x, &c, &y, &y] {
        b.output(name);
    }
    let g = fuse(&b);
    assert_eq!(kinds(&g), ["pointwise"; 4]);
    assert!(g.outputs.iter().enumerate().all(|(i, &o)| g.tensor(o).role == Role::Output(i)));
}

/// A product stands in a part of the result of a concatenation, and an epilogue that writes another part of it reads it there: of rows
/// and columns beyond the results nothing is read, which another wave may be writing.
#[test]
fn what_is_read_beside_what_is_written_ends_with_it() {
    for (rows, target) in [(8, "gfx942"), (21, "gfx90a"), (8, "gfx908"), (5, "gfx1100"), (8, "gfx803")] {
        let mut b = Builder::new(17, 3);
        let (x, scale) = (b.input(&[1, rows, 3]), b.input(&[1, rows, 5]));
        let (v, w) = (b.weight(&[3, 5]), b.weight(&[3, 5]));
        let first = b.node("MatMul", &[&x, &v], &[]);
        let second = b.node("MatMul", &[&x, &w], &[]);
        let scaled = b.node("Mul", &[&first, &scale], &[]);
        let gated = b.node("Mul", &[&scaled, &second], &[]);
        let y = b.node("Concat", &[&gated, &first], &[("axis", int(2))]);
        b.output(&y);
        let g = fuse(&b);
        assert_eq!(kinds(&g), ["matmul", "matmul"]);
        let reads_own = |s: &barewave::graph::fused::Step| s.inputs.iter().any(|a| a.tensor == s.output.tensor);
        assert!(g.steps.iter().any(reads_own));
        let got = device::run(&g, &b.inputs, target, true).unwrap_or_else(|e| panic!("{target}: {e}")).0.remove(0);
        let want = apart::outputs(&b.model, &b.inputs).unwrap().remove(0);
        let far = got.to_f64().iter().zip(want.to_f64()).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(far < 1e-5, "{target}: {far}");
    }
}

#[test]
fn normalisations_in_f64_keep_all_digits_of_their_epsilon() {
    let mut b = Builder::new(17, 1);
    let data = b.random(&[4, 8]);
    let x = b.input_of(HostTensor::from_f64(DType::F64, &[4, 8], &data.to_f64()));
    let c = |b: &mut Builder, v: f64| b.constant(HostTensor::from_f64(DType::F64, &[], &[v]));
    let (two, epsilon) = (c(&mut b, 2.0), c(&mut b, 1e-3));
    let square = b.node("Pow", &[&x, &two], &[]);
    let mean = b.node("ReduceMean", &[&square], &[("axes", ints(&[1])), ("keepdims", int(1))]);
    let shifted = b.node("Add", &[&mean, &epsilon], &[]);
    let root = b.node("Sqrt", &[&shifted], &[]);
    let y = b.node("Div", &[&x, &root], &[]);
    b.output(&y);
    let g = fuse(&b);
    let StepKind::Normalize(n) = &g.steps[0].kind else { panic!("{:?}", kinds(&g)) };
    assert_eq!((g.steps.len(), n.epsilon), (1, 1e-3));
}

/// Scores of 2 heads of 8 places, of keys that were made of `keys`, and what attention makes of them.
fn attended(b: &mut Builder, keys: &str, mask: Option<&str>) -> String {
    let (q, v) = (b.input(&[2, 8, 16]), b.input(&[2, 8, 16]));
    let mut scores = b.node("MatMul", &[&q, keys], &[]);
    if let Some(mask) = mask {
        scores = b.node("Add", &[&scores, mask], &[]);
    }
    let weights = b.node("Softmax", &[&scores], &[("axis", int(2))]);
    b.node("MatMul", &[&weights, &v], &[])
}

fn agrees(b: &Builder) {
    let want = apart::outputs(&b.model, &b.inputs).unwrap();
    for target in ["gfx942", "gfx1100"] {
        let got = device::run(&fuse(b), &b.inputs, target, true).unwrap_or_else(|e| panic!("{target}: {e}")).0;
        for (got, want) in got.iter().zip(&want) {
            let far = got.to_f64().iter().zip(want.to_f64()).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(far < 1e-4, "{target}: {far}");
        }
    }
}

#[test]
fn keys_are_stored_as_they_come() {
    let mut b = Builder::new(17, 5);
    let (x, by) = (b.input(&[8, 2, 16]), b.input(&[8, 1, 16]));
    let turned = b.node("Mul", &[&x, &by], &[]);
    let keys = b.node("Transpose", &[&turned], &[("perm", ints(&[1, 2, 0]))]);
    let y = attended(&mut b, &keys, None);
    b.output(&y);
    let g = fuse(&b);
    assert_eq!(kinds(&g), ["pointwise", "matmul", "softmax", "matmul"]);
    assert_eq!(g.tensor(g.steps[0].output.tensor).shape, [2, 8, 16]);
    agrees(&b);
}

#[test]
fn masks_that_hide_nothing_vanish() {
    let mut b = Builder::new(17, 6);
    let keys = b.input(&[2, 16, 8]);
    let all = b.constant(HostTensor::from_f64(DType::Bool, &[8, 8], &[1.0; 64]));
    let c = |b: &mut Builder, v: f32| b.constant(HostTensor::from_f32(&[], &[v]));
    let (zero, least) = (c(&mut b, 0.0), c(&mut b, f32::MIN));
    let mask = b.node("Where", &[&all, &zero, &least], &[]);
    let y = attended(&mut b, &keys, Some(&mask));
    b.output(&y);
    let g = fuse(&b);
    assert_eq!(kinds(&g), ["matmul", "softmax", "matmul"]);
    assert_eq!((g.steps[0].inputs.len(), g.steps[0].expr.is_acc()), (2, true));
    agrees(&b);
}

#[test]
fn masks_of_several_layers_are_what_is_added() {
    let mut b = Builder::new(17, 7);
    let lengths: Vec<f64> = (0..64).map(|i| f64::from(i % 8 <= i / 8)).collect();
    let given = b.input_of(HostTensor::from_f64(DType::Bool, &[8, 8], &lengths));
    let other = b.input_of(HostTensor::from_f64(DType::Bool, &[8, 1], &[1.0; 8]));
    let mask = b.node("And", &[&given, &other], &[]);
    let c = |b: &mut Builder, v: f32| b.constant(HostTensor::from_f32(&[], &[v]));
    let (zero, least) = (c(&mut b, 0.0), c(&mut b, -1e4));
    for _ in 0..2 {
        let keys = b.input(&[2, 16, 8]);
        let added = b.node("Where", &[&mask, &zero, &least], &[]);
        let y = attended(&mut b, &keys, Some(&added));
        b.output(&y);
    }
    let g = fuse(&b);
    let masks: Vec<_> = g.steps.iter().filter(|s| s.kind == StepKind::Pointwise).collect();
    let [mask] = masks[..] else { panic!("{:?}", kinds(&g)) };
    assert_eq!(mask.expr.to_string(), "select(and(in0, in1), 0.0, -10000.0)");
    agrees(&b);
}
