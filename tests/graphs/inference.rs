//! Inference of types and shapes: with run-time sizes, alone and against what models declare. That it says of every value what
//! lowering makes of it is checked whenever a model is compiled.

use crate::support;
use barewave::Compiler;
use barewave::compile::{Missing, Verdict};
use barewave::graph::{self, Dim, Options, Reason, Types};
use barewave::onnx::{Attribute, Dim as Declared, Model, Node, ValueInfo};
use barewave::tensor::{DType, HostTensor};
use barewave_isa::Target;
use std::collections::BTreeMap;

fn node(op: &str, inputs: &[&str], outputs: &[&str], attributes: &[(&str, Attribute)]) -> Node {
    Node {
        name: format!("the {}", outputs[0]),
        op: op.into(),
        domain: String::new(),
        inputs: inputs.iter().map(|s| s.to_string()).collect(),
        outputs: outputs.iter().map(|s| s.to_string()).collect(),
        attributes: attributes.iter().map(|(n, a)| (n.to_string(), a.clone())).collect(),
    }
}

fn symbol(name: &str) -> Declared {
    Declared::Symbol(name.into())
}

fn model(inputs: &[(&str, DType, Vec<Declared>)], nodes: Vec<Node>, output: &str) -> Model {
    let mut m = Model::default();
    let info = |(name, dtype, dims): &(&str, DType, Vec<Declared>)| ValueInfo {
        name: name.to_string(),
        dtype: Some(*dtype),
        shape: Some(dims.clone()),
    };
    m.graph.inputs = inputs.iter().map(info).collect();
    m.graph.outputs = vec![ValueInfo { name: output.into(), dtype: None, shape: None }];
    m.graph.nodes = nodes;
    m.opsets.insert(String::new(), 21);
    m
}

fn shape(types: &Types, value: &str) -> String {
    let dims: Vec<String> = types.values[value].dims.iter().map(Dim::to_string).collect();
    format!("{}[{}]", types.values[value].dtype, dims.join(", "))
}

fn ints(values: &[i64]) -> Attribute {
    Attribute::Ints(values.to_vec())
}

/// Heads of attention as torch exports them: extents from Shape, Gather and Concat, and a cache that grows.
#[test]
fn shapes_computed_from_shapes_stay_expressions() {
    let one = |v: i64| Attribute::Tensor(HostTensor::from_i64(&[1], &[v]));
    let scalar = |v: i64| Attribute::Tensor(HostTensor::from_i64(&[], &[v]));
    let nodes = vec![
        node("Shape", &["x"], &["extents"], &[]),
        node("Constant", &[], &["first"], &[("value", scalar(1))]),
        node("Gather", &["extents", "first"], &["length"], &[("axis", Attribute::Int(0))]),
        node("Constant", &[], &["axis"], &[("value", one(0))]),
        node("Unsqueeze", &["length", "axis"], &["length_1"], &[]),
        node("Constant", &[], &["rest"], &[("value", one(-1))]),
        node("Constant", &[], &["four"], &[("value", one(4))]),
        node("Concat", &["rest", "length_1", "four", "four"], &["want"], &[("axis", Attribute::Int(0))]),
        node("Reshape", &["x", "want"], &["split"], &[]),
        node("Transpose", &["split"], &["keys"], &[("perm", ints(&[0, 2, 1, 3]))]),
        node("Concat", &["past", "keys"], &["all"], &[("axis", Attribute::Int(2))]),
        node("Transpose", &["all"], &["turned"], &[("perm", ints(&[0, 1, 3, 2]))]),
        node("MatMul", &["keys", "turned"], &["scores"], &[]),
        node("Softmax", &["scores"], &["y"], &[]),
    ];
    let x = ("x", DType::F32, vec![symbol("batch"), symbol("seq"), Declared::Known(16)]);
    let past = ("past", DType::F32, vec![symbol("batch"), Declared::Known(4), symbol("past"), Declared::Known(4)]);
    let m = model(&[x, past], nodes, "y");
    let types = graph::infer(&m, &Options::default()).unwrap();
    assert_eq!(types.refused, []);
    assert_eq!(shape(&types, "split"), "f32[batch, seq, 4, 4]");
    assert_eq!(shape(&types, "all"), "f32[batch, 4, past+seq, 4]");
    assert_eq!(shape(&types, "y"), "f32[batch, 4, seq, past+seq]");
    // Numbers that are given are numbers.
    let dims = [("seq", 3), ("batch", 1)].map(|(n, d)| (n.to_string(), d)).into_iter().collect();
    let types = graph::infer(&m, &Options { dims, ..Options::default() }).unwrap();
    assert_eq!(shape(&types, "y"), "f32[1, 4, 3, past+3]");
    // A compiled model's outputs have these names.
    let dims = [("seq", 3), ("batch", 1), ("past", 2)].map(|(n, d)| (n.to_string(), d)).into_iter().collect();
    let fused = graph::fuse(&m, &Options { dims, ..Options::default() }).unwrap();
    let names: Vec<Option<&str>> = fused.open_dims[&fused.outputs[0]].iter().map(Option::as_deref).collect();
    assert_eq!(names, [Some("batch"), None, Some("seq"), Some("past+seq")]);
    // Without any extents given, types and shapes tell what compiles.
    let support = Compiler::new(Target::GFX1100, barewave::Options::default()).supports(&m, &Options::default());
    assert!(support.unwrap().is_complete());
}

#[test]
fn windows_slices_and_parts_of_run_time_sizes() {
    let four = |v: [i64; 4]| Attribute::Tensor(HostTensor::from_i64(&[4], &v));
    let list = |v: &[i64]| Attribute::Tensor(HostTensor::from_i64(&[v.len()], v));
    let nodes = vec![
        node(
            "Constant",
            &[],
            &["w"],
            &[("value", Attribute::Tensor(HostTensor::from_f32(&[8, 3, 3, 3], &[0.5; 216])))],
        ),
        node("Conv", &["x", "w"], &["conv"], &[("strides", ints(&[2, 2])), ("pads", ints(&[1, 1, 1, 1]))]),
        node(
            "MaxPool",
            &["x"],
            &["pool"],
            &[
                ("kernel_shape", ints(&[2, 2])),
                ("auto_pad", Attribute::Text("SAME_UPPER".into())),
                ("strides", ints(&[2, 2])),
            ],
        ),
        node("Constant", &[], &["pads"], &[("value", list(&[0, 0, 1, 0, 0, 0, 2, 0]))]),
        node("Pad", &["x", "pads"], &["padded"], &[]),
        node("Constant", &[], &["from"], &[("value", list(&[-1, 1]))]),
        node("Constant", &[], &["to"], &[("value", list(&[i64::MAX, -1]))]),
        node("Constant", &[], &["axes"], &[("value", list(&[2, 3]))]),
        node("Slice", &["x", "from", "to", "axes"], &["cut"], &[]),
        node("Split", &["x"], &["left", "right"], &[("axis", Attribute::Int(2)), ("num_outputs", Attribute::Int(2))]),
        node("Constant", &[], &["repeats"], &[("value", four([1, 2, 1, 3]))]),
        node("Tile", &["x", "repeats"], &["tiled"], &[]),
        node("Flatten", &["tiled"], &["flat"], &[]),
        node("NonZero", &["flat"], &["places"], &[]),
        node("Cast", &["places"], &["y"], &[("to", Attribute::Int(1))]),
        node("Sum", &["conv", "pool"], &["wrong"], &[]),
        node("Exp", &["wrong"], &["after"], &[]),
    ];
    let x = ("x", DType::F32, vec![Declared::Known(1), Declared::Known(3), symbol("H"), symbol("W")]);
    let mut m = model(&[x], nodes, "y");
    for name in ["cut", "left", "right", "padded", "after"] {
        m.graph.outputs.push(ValueInfo { name: name.into(), dtype: None, shape: None });
    }
    let types = graph::infer(&m, &Options::default()).unwrap();
    assert_eq!(shape(&types, "conv"), "f32[1, 8, floor((H-1)/2)+1, floor((W-1)/2)+1]");
    assert_eq!(shape(&types, "pool"), "f32[1, 3, floor((H+1)/2), floor((W+1)/2)]");
    assert_eq!(shape(&types, "padded"), "f32[1, 3, H+3, W]");
    assert_eq!(shape(&types, "cut"), "f32[1, 3, 1, W-2]");
    assert_eq!(shape(&types, "left"), "f32[1, 3, floor((H+1)/2), W]");
    assert_eq!(shape(&types, "flat"), "f32[1, 18*H*W]");
    assert_eq!(shape(&types, "y"), "f32[2, places[1]]");
    // 8 channels and 3 do not broadcast, whatever H and W are; what reads the sum is blocked.
    let [(16 | 15, Reason::Shape(why))] = &types.refused[..] else { panic!("{:?}", types.refused) };
    assert!(why.contains("do not broadcast"), "{why}");
    assert!(!types.values.contains_key("after"));
    let support =
        Compiler::new(Target::GFX942, barewave::Options::default()).supports(&m, &Options::default()).unwrap();
    let verdict = |name: &str| &support.nodes.iter().find(|n| n.node == name).unwrap().verdict;
    assert!(matches!(verdict("the wrong"), Verdict::Unsupported(Missing::Node(Reason::Shape(_)))));
    assert_eq!(*verdict("the after"), Verdict::Blocked("wrong".into()));
    assert_eq!(*verdict("the conv"), Verdict::Supported);
}

/// What torch writes for an expansion to sizes of which some may be -1, and extents that follow from others.
#[test]
fn sizes_that_others_decide() {
    let list = |v: &[i64]| Attribute::Tensor(HostTensor::from_i64(&[v.len()], v));
    let nodes = vec![
        node("Concat", &["past", "new"], &["keys"], &[("axis", Attribute::Int(1))]),
        node("MatMul", &["queries", "turned"], &["scores"], &[]),
        node("Shape", &["scores"], &["whole"], &[]),
        node("Constant", &[], &["unknown"], &[("value", list(&[-1; 3]))]),
        node("Constant", &[], &["ones"], &[("value", list(&[1; 3]))]),
        node("Equal", &["whole", "unknown"], &["open"], &[]),
        node("Where", &["open", "ones", "whole"], &["want"], &[]),
        node("Expand", &["mask", "want"], &["wide"], &[]),
        node("Add", &["scores", "wide"], &["masked"], &[]),
        node("MatMul", &["masked", "keys"], &["y"], &[]),
    ];
    let input = |name, dims: [&str; 3]| {
        let dim = |d: &str| d.parse().map_or_else(|_| symbol(d), Declared::Known);
        (name, DType::F32, dims.map(dim).to_vec())
    };
    let inputs = [
        input("past", ["b", "past", "8"]),
        input("new", ["c", "1", "8"]),
        input("queries", ["1", "1", "width"]),
        input("turned", ["d", "8", "total"]),
        input("mask", ["1", "1", "seen"]),
    ];
    let types = graph::infer(&model(&inputs, nodes, "y"), &Options::default()).unwrap();
    assert_eq!(types.refused, []);
    assert_eq!(shape(&types, "y"), "f32[max(b, d), 1, 8]");
    let names = ["b", "c", "d", "past", "width", "total", "seen"].map(String::from).into();
    let settled: Vec<String> = types.settled(&names).iter().map(|(name, d)| format!("{name} = {d}")).collect();
    assert_eq!(settled, ["b = d", "c = d", "seen = past+1", "total = past+1", "width = 8"]);
}

/// Operators of models that people quantise and of scikit-learn: a row of data more is a row of results more.
#[test]
fn rows_go_through_quantised_products_and_trees() {
    let floats = |v: &[f32]| Attribute::Floats(v.to_vec());
    let of = |domain: &str, n: Node| Node { domain: domain.into(), ..n };
    let (ms, ml) = ("com.microsoft", "ai.onnx.ml");
    let mut product = node(
        "MatMulNBits",
        &["x", "packed", "scales"],
        &["product"],
        &[("K", Attribute::Int(32)), ("N", Attribute::Int(6)), ("block_size", Attribute::Int(32))],
    );
    product.domain = ms.into();
    let (leaf, root) = (Attribute::Texts(vec!["BRANCH_LEQ".into(), "LEAF".into(), "LEAF".into()]), ints(&[1, 0, 0]));
    let tree = node(
        "TreeEnsembleClassifier",
        &["wide"],
        &["label", "scores"],
        &[
            ("classlabels_strings", Attribute::Texts(["a", "b", "c"].map(str::to_string).to_vec())),
            ("nodes_modes", leaf),
            ("nodes_treeids", ints(&[0; 3])),
            ("nodes_nodeids", ints(&[0, 1, 2])),
            ("nodes_featureids", ints(&[0; 3])),
            ("nodes_values", floats(&[0.5, 0.0, 0.0])),
            ("nodes_truenodeids", root),
            ("nodes_falsenodeids", ints(&[2, 0, 0])),
            ("class_treeids", ints(&[0, 0])),
            ("class_nodeids", ints(&[1, 2])),
            ("class_ids", ints(&[0, 2])),
            ("class_weights", floats(&[1.0, 1.0])),
        ],
    );
    let turned = node("FusedMatMul", &["product", "product"], &["gram"], &[("transB", Attribute::Int(1))]);
    let scaled = node("Scaler", &["product"], &["wide"], &[("offset", floats(&[0.5])), ("scale", floats(&[2.0]))]);
    let nodes = vec![product, of(ms, turned), of(ml, scaled), of(ml, tree), node("Exp", &["scores"], &["y"], &[])];
    let mut m = model(&[("x", DType::F32, vec![symbol("rows"), Declared::Known(32)])], nodes, "y");
    m.graph.initializers.insert("packed".into(), HostTensor::new(DType::U8, &[6, 1, 16], vec![0x8f; 96]).unwrap());
    m.graph.initializers.insert("scales".into(), HostTensor::from_f32(&[6], &[1.0; 6]));
    for name in ["gram", "label"] {
        m.graph.outputs.push(ValueInfo { name: name.into(), dtype: None, shape: None });
    }
    let types = graph::infer(&m, &Options::default()).unwrap();
    assert_eq!(types.refused, []);
    assert_eq!(shape(&types, "gram"), "f32[rows, rows]");
    assert_eq!(shape(&types, "label"), "string[rows]");
    assert_eq!(shape(&types, "y"), "f32[rows, 3]");
    // What lowering makes of it is the same.
    let dims = [("rows".to_string(), 5)].into();
    let fused = graph::fuse(&m, &Options { dims, ..Options::default() }).unwrap();
    let shapes: Vec<&[usize]> = fused.outputs.iter().map(|o| &fused.tensor(*o).shape[..]).collect();
    assert_eq!(shapes, [&[5, 3][..], &[5, 5], &[5]]);
}

/// Every model of ONNX's node tests with names for its extents: at the extents that the names stand for, outputs have the
/// shapes that the model declares.
#[test]
fn shapes_of_node_tests_hold_for_named_extents() {
    let Some(tests) = support::onnx_data("node") else { return };
    let (mut compared, mut unknown) = (0, 0);
    let mut wrong = Vec::new();
    for entry in std::fs::read_dir(tests).unwrap() {
        let folder = entry.unwrap().path();
        let Ok(mut m) = Model::load(&folder.join("model.onnx")) else { continue };
        for dim in m.graph.inputs.iter_mut().flat_map(|i| i.shape.iter_mut().flatten()) {
            if let Declared::Known(n @ 2..) = dim {
                *dim = symbol(&format!("n{n}"));
            }
        }
        let Ok(types) = graph::infer(&m, &Options::default()) else { continue };
        for o in &m.graph.outputs {
            let (Some(found), Some(declared)) = (types.values.get(&o.name), &o.shape) else { continue };
            if found.dims.len() != declared.len() {
                wrong.push(format!("{}: {:?} is {declared:?}", folder.display(), found.dims));
                continue;
            }
            for (d, declared) in found.dims.iter().zip(declared) {
                let value = |name: &str| name[1..].parse::<i64>().unwrap_or(0);
                let named = d.sizes().iter().all(|s| s.starts_with('n') && s[1..].parse::<i64>().is_ok());
                match declared {
                    Declared::Known(n) if named && d.at(&value) != *n as i64 => {
                        wrong.push(format!("{}: {d} is {n}", folder.display()));
                    }
                    Declared::Known(_) if named => compared += 1,
                    _ => unknown += 1,
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {compared}:\n{}", wrong.len(), wrong.join("\n"));
    println!("{compared} extents compared, {unknown} that only a run tells");
    assert!(compared > 4200 && unknown < compared / 20, "{compared} compared, {unknown} unknown");
}

/// Large models: every value has the shape of the same value when extents are numbers.
#[test]
fn light_models_have_the_same_shapes_with_a_named_batch() {
    for name in ["resnet50", "densenet121", "shufflenet", "inception_v2"] {
        let Some(path) = support::light(name) else { return };
        let mut m = Model::load(&path).unwrap();
        let known = graph::infer(&m, &Options::default()).unwrap();
        let batch = m.graph.inputs.iter_mut().flat_map(|i| i.shape.iter_mut().flatten()).next().unwrap();
        *batch = symbol("N");
        let open = graph::infer(&m, &Options::default()).unwrap();
        assert_eq!(open.refused, [], "{name}");
        let at = |t: &Types| -> BTreeMap<String, Vec<i64>> {
            t.values.iter().map(|(n, v)| (n.clone(), v.dims.iter().map(|d| d.at(&|_| 1)).collect())).collect()
        };
        assert_eq!(at(&open), at(&known), "{name}");
    }
}
