//! Damaged and hostile models: an error or a model, never a panic.

use crate::support;
use crate::support::agree::{finish, outputs};
use crate::support::build::{Builder, int, ints, text};
use barewave::graph::interpret::Interpreter;
use barewave::graph::{self, Options};
use barewave::onnx::{Attribute, Dim, Graph, Model, Structure, ValueInfo};
use barewave::tensor::{DType, HostTensor, SplitMix64};
use barewave::{Compiler, compile};
use barewave_isa::Target;
use std::path::Path;

fn files() -> Vec<(String, Vec<u8>)> {
    let names = ["examples/digits/digits.onnx", "examples/vector_add/vector_add.onnx", "examples/lenet/lenet.onnx"];
    let real = ["squeezenet", "shufflenet"].into_iter().filter_map(support::light);
    let all = names.iter().map(|n| Path::new(n).to_path_buf()).chain(real);
    all.map(|p| (p.display().to_string(), std::fs::read(&p).unwrap())).collect()
}

#[test]
fn damaged_bytes() {
    let mut rng = SplitMix64(9);
    for (name, bytes) in files() {
        let mut accepted = 0;
        for _ in 0..400 {
            let mut b = bytes.clone();
            for _ in 0..1 + rng.next_u64() % 3 {
                let at = (rng.next_u64() % b.len() as u64) as usize;
                b[at] = rng.next_u64() as u8;
            }
            if let Ok(model) = Model::from_bytes(b.into(), Path::new(&name)) {
                accepted += usize::from(graph::fuse(&model, &Options::default()).is_ok());
            }
        }
        assert!(accepted > 0, "{name}: the damage is too great to test anything but the parser");
    }
}

/// What the compiler makes for each element of an extent is bounded, however large the extent is.
#[test]
fn endless_extents() {
    let long = |b: &mut Builder, shape: &[usize]| {
        let x = b.input(&vec![1; shape.len()]);
        let info = b.model.graph.inputs.last_mut().unwrap();
        info.shape = Some(shape.iter().map(|&n| Dim::Known(n)).collect());
        x
    };
    let error = |mut b: Builder, y: &str| {
        b.output(y);
        graph::fuse(&b.model, &Options::default()).unwrap_err().to_string()
    };
    let mut b = Builder::new(17, 1);
    let x = long(&mut b, &[1 << 40]);
    let first = b.constant(HostTensor::from_i64(&[], &[0]));
    let parts = b.node("SplitToSequence", &[&x], &[]);
    let y = b.node("SequenceAt", &[&parts, &first], &[]);
    let error_of_parts = error(b, &y);
    assert!(error_of_parts.contains("SplitToSequence") && error_of_parts.contains("at most 65536"), "{error_of_parts}");

    let mut b = Builder::new(23, 1);
    let x = long(&mut b, &[1, 1, 1 << 17, 4]);
    let y = b.node("Attention", &[&x, &x, &x], &[("is_causal", int(1))]);
    let error_of_mask = error(b, &y);
    assert!(error_of_mask.contains("Attention") && error_of_mask.contains("131072 x 131072"), "{error_of_mask}");

    // A condition that is shorter than what it chooses of.
    let mut b = Builder::new(17, 1);
    let x = long(&mut b, &[1 << 40]);
    let chosen = b.constant(HostTensor::from_ints(DType::Bool, &[3], &[0, 1, 1]));
    let y = b.node("Compress", &[&x, &chosen], &[("axis", int(0))]);
    b.output(&y);
    let graph = graph::fuse(&b.model, &Options::default()).unwrap();
    assert_eq!(graph.tensor(graph.outputs[0]).shape, [2]);

    // Parts of a product of bytes, whose sums are no bytes.
    let mut b = Builder::new(17, 1);
    let [x, w] = [[4, 1 << 33], [1 << 33, 2]].map(|shape| {
        let name = long(&mut b, &shape);
        b.model.graph.inputs.last_mut().unwrap().dtype = Some(DType::I8);
        name
    });
    let y = b.node("MatMulInteger", &[&x, &w], &[]);
    b.output(&y);
    let compiler = Compiler::new(Target::GFX1100, compile::Options::default());
    assert_eq!(compiler.compile(&b.model, &Options::default()).map(drop).map_err(|e| e.to_string()), Ok(()));

    // Steps that are cut into parts, each of which a kernel addresses.
    const LONG: usize = 9_999_999_999_999_999;
    let lengths = HostTensor::from_i64(&[2], &[1, 1]);
    for (op, shape, words) in [
        ("ReduceSum", &[LONG][..], "less than 2^31"),
        ("ReduceMax", &[2, LONG], "less than 2^31"),
        ("GlobalAveragePool", &[1, 1, LONG, 4], "less than 2^31"),
        ("Gemm", &[2, LONG], "less than 2^31"),
        ("TopK", &[LONG], "lines of 9999999999999999 elements"),
        ("Attention", &[2, 1, 1 << 30, 4], "1073741824 positions"),
        ("Hardmax", &[LONG], "hardmax positions are too many"),
        ("Attention", &[LONG, 8, 6], "less than 2^31"),
        ("Attention", &[3, 1, 4, 4], "input 6 has shape [2], not [3]"),
        ("Resize", &[1, 1, 1 << 31, 4], "filters of"),
        ("Resize", &[1, 1, LONG, 4], "filters of"),
    ] {
        let mut b = Builder::new(24, 1);
        let x = long(&mut b, shape);
        let y = match op {
            "Gemm" => b.node(op, &[&x, &x], &[("transB", int(1))]),
            "Resize" => {
                let sizes = b.ints(&[1, 1, 3, 4]);
                b.node(op, &[&x, "", "", &sizes], &[("mode", text("linear")), ("antialias", int(1))])
            }
            "TopK" => {
                let k = b.ints(&[2]);
                b.node_n(op, &[&x, &k], &[], 2).remove(0)
            }
            // So many queries, of few keys.
            "Attention" if shape[0] == LONG => {
                let (queries, keys) = (long(&mut b, &[1, 1, LONG, 8]), long(&mut b, &[1, 1, 6, 8]));
                b.node(op, &[&queries, &keys, &keys], &[])
            }
            "Attention" => {
                let n = b.constant(lengths.clone());
                let queries = long(&mut b, &[shape[0], 1, 4, 4]);
                b.node(op, &[&queries, &x, &x, "", "", "", &n], &[])
            }
            _ => b.node(op, &[&x], &[]),
        };
        b.output(&y);
        let compiler = Compiler::new(Target::GFX1100, compile::Options::default());
        let e = compiler.compile(&b.model, &Options::default()).map(drop).unwrap_err().to_string();
        assert!(e.contains(op) && e.contains(words), "{op}: {e}");
    }
}

/// A Loop of so many rounds that carries one value, by the nodes that the closure adds to its body.
fn loop_of(b: &mut Builder, rounds: i64, start: &str, round: impl FnOnce(&mut Builder, &str) -> String) -> String {
    let most = b.constant(HostTensor::from_i64(&[], &[rounds]));
    let depth = b.model.graph.nodes.len();
    let [number, go, state] = ["number", "go", "state"].map(|what| format!("{what}_{most}"));
    let result = round(b, &state);
    let again = b.node("Identity", &[&go], &[]);
    let info = |name: &str, dtype| ValueInfo { name: name.into(), dtype, shape: None };
    let body = Graph {
        nodes: b.model.graph.nodes.split_off(depth),
        inputs: vec![info(&number, Some(DType::I64)), info(&go, Some(DType::Bool)), info(&state, Some(DType::F32))],
        outputs: vec![info(&again, None), info(&result, None)],
        ..Graph::default()
    };
    b.node("Loop", &[&most, "", start], &[("body", Attribute::Graph(Box::new(body)))])
}

/// A loop that is too long is refused by what its first round takes, not when all of that is laid out.
#[test]
fn endless_rounds() {
    let error = |make: &dyn Fn(&mut Builder, &str) -> String| {
        let mut b = Builder::new(17, 5);
        let x = b.input(&[2]);
        let y = make(&mut b, &x);
        b.output(&y);
        graph::fuse(&b.model, &Options::default()).unwrap_err().to_string()
    };
    let twice = |b: &mut Builder, v: &str| b.node("Add", &[v, v], &[]);
    let one = error(&|b, x| loop_of(b, 1 << 40, x, twice));
    assert!(one.contains("1099511627776 rounds of"), "{one}");
    let nested = error(&|b, x| loop_of(b, 3000, x, |b, v| loop_of(b, 3001, v, twice)));
    assert!(nested.contains("3000 rounds of"), "{nested}");
    // The body alone tells whether it goes on, by the number of the round.
    let uncounted = error(&|b, x| {
        let end = b.constant(HostTensor::from_i64(&[], &[1 << 40]));
        let y = loop_of(b, 1, x, twice);
        let node = b.model.graph.nodes.last_mut().unwrap();
        node.inputs[0].clear();
        let Some(Attribute::Graph(body)) = node.attributes.get_mut("body") else { unreachable!() };
        let number = body.inputs[0].name.clone();
        let again = body.nodes.iter_mut().find(|n| n.op == "Identity").unwrap();
        (again.op, again.inputs) = ("Less".into(), vec![number, end]);
        y
    });
    assert!(uncounted.contains("at most 40000 nodes are laid out for a Loop of which only its rounds"), "{uncounted}");
}

/// States of a sequence share its elements: 20,000 of up to 20,000 elements would be 200 million else.
#[test]
fn a_sequence_in_many_states() {
    let mut b = Builder::new(17, 6);
    let x = b.input_of(HostTensor::from_f32(&[1], &[1.0]));
    let all: Vec<String> = (0..4).map(|i| b.constant(HostTensor::from_f32(&[1], &[i as f32]))).collect();
    let all: Vec<&str> = all.iter().map(|s| s.as_str()).collect();
    let front = b.ints(&[0]);
    let mut sequence = b.node("SequenceConstruct", &[&x, all[1]], &[]);
    for i in 0..20_000 {
        let place: &[&str] = if i % 3 == 0 { &[&front] } else { &[] };
        sequence = b.node("SequenceInsert", &[&[sequence.as_str(), all[i % 4]], place].concat(), &[]);
    }
    for _ in 0..10_000 {
        sequence = b.node("SequenceErase", &[&sequence, &front], &[]);
    }
    let length = b.node("SequenceLength", &[&sequence], &[]);
    let middle = b.ints(&[5000]);
    let at = b.node("SequenceAt", &[&sequence, &middle], &[]);
    let y = b.node("Add", &[&at, &x], &[]);
    finish(&mut b, "", &[length, y]);
    let graph = graph::fuse(&b.model, &Options::default()).unwrap();
    let got = Interpreter::new(&graph).run(&graph, &b.inputs).unwrap();
    // 6,667 elements came in front of the two, 3,331 of the others are gone too.
    let behind: Vec<usize> = (0..20_000).filter(|i| i % 3 != 0).collect();
    assert_eq!(got[0].to_i64(), [10_002]);
    assert_eq!(got[1].to_f64(), [(behind[10_000 - 6667 - 2 + 5000] % 4) as f64 + 1.0]);
}

/// An operator that gives more than a model wants, and a graph where none belongs.
#[test]
fn outputs_that_nobody_wants() {
    let mut b = Builder::new(17, 6);
    let x = b.input_of(HostTensor::from_f32(&[4], &[3.0, 5.0, -1.0, 4.0]));
    let k = b.ints(&[2]);
    let best = b.node("TopK", &[&x, &k], &[]);
    finish(&mut b, "", &[best]);
    assert_eq!(outputs(&b, "TopK", 0.0)[0].to_f64(), [5.0, 4.0]);

    let mut b = Builder::new(20, 6);
    let x = b.input(&[4]);
    let y = b.node("Split", &[&x], &[("num_outputs", Attribute::Graph(Box::default()))]);
    b.output(&y);
    let compiler = Compiler::new(Target::GFX1100, compile::Options::default());
    let error = compiler.fuse(&b.model, &Options::default()).unwrap_err().to_string();
    assert!(error.contains("num_outputs"), "{error}");
}

/// Operators whose inputs, or lists among their attributes, do not fit each other.
#[test]
fn parts_that_do_not_fit() {
    let error = |make: &dyn Fn(&mut Builder) -> String| {
        let mut b = Builder::new(17, 7);
        let y = make(&mut b);
        b.output(&y);
        let compiler = Compiler::new(Target::GFX1100, compile::Options::default());
        b.model.expand();
        compiler.fuse(&b.model, &Options::default()).unwrap_err().to_string()
    };
    let lstm = |shapes: [&[usize]; 3], layout: i64| {
        error(&|b| {
            let (x, w, r) = (b.input(&[2, 2, 3]), b.weight(&[1, 16, 3]), b.weight(&[1, 16, 4]));
            let [bias, state, holes] = shapes.map(|s| b.weight(s));
            let at = [("hidden_size", int(4)), ("layout", int(layout))];
            b.node("LSTM", &[&x, &w, &r, &bias, "", &state, "", &holes], &at)
        })
    };
    let good: [&[usize]; 3] = [&[1, 32], &[1, 2, 4], &[1, 12]];
    for (i, bad) in
        [(0, &[32][..]), (0, &[1, 16]), (0, &[2, 32]), (1, &[2, 4]), (1, &[2, 1, 4]), (2, &[12]), (2, &[1, 8])]
    {
        let mut shapes = good;
        shapes[i] = bad;
        let e = lstm(shapes, 0);
        assert!(e.contains(&format!("input {} has shape {bad:?}", [3, 5, 7][i])), "{e}");
    }
    let e = lstm([good[0], &[2, 4], good[2]], 1);
    assert!(e.contains("input 5 has shape [2, 4], not [2, 1, 4]"), "{e}");
    let e = error(&|b| {
        let x = b.input(&[2, 3, 4, 5]);
        let half = HostTensor::from_f64(DType::F16, &[2, 3, 4, 5], &[0.0; 120]);
        let half = b.constant(half);
        b.node("TensorScatter", &[&x, &half], &[])
    });
    assert!(e.contains("input 0 is f32 and input 1 f16, TensorScatter takes one type for both"), "{e}");
    for (mode, pads) in [("edge", [0, 1]), ("wrap", [2, 0]), ("reflect", [-3, 1])] {
        let e = error(&|b| {
            let x = b.input(&[if pads[0] < 0 { 3 } else { 0 }]);
            let pads = b.ints(&pads);
            b.node("Pad", &[&x, &pads], &[("mode", Attribute::Text(mode.into()))])
        });
        assert!(e.contains("has no elements to pad with"), "{mode}: {e}");
    }
    for (op, takes) in [("Add", 2), ("Sqrt", 1), ("Neg", 1)] {
        let e = error(&|b| {
            let (x, wide) = (b.input(&[4, 1]), b.input(&[3]));
            let inputs = [vec![x.as_str(); takes], vec![&wide]].concat();
            b.node(op, &inputs, &[])
        });
        assert!(e.contains(&format!("it has {} inputs and takes {takes}", takes + 1)), "{e}");
    }
    let vectors = |op: &'static str, count: Attribute| {
        error(&|b| {
            let x = b.input(&[2, 3]);
            let name = if op == "SVMRegressor" { "n_supports" } else { "vectors_per_class" };
            let mut at = vec![
                (name, count.clone()),
                ("support_vectors", Attribute::Floats(vec![1.0; 12])),
                ("coefficients", Attribute::Floats(vec![1.0; 4])),
            ];
            if op == "SVMClassifier" {
                at.push(("classlabels_ints", ints(&[0, 1])));
            }
            let y = b.node(op, &[&x], &at[..]);
            b.model.graph.nodes.last_mut().unwrap().domain = "ai.onnx.ml".into();
            y
        })
    };
    for count in [i64::MAX, 13, 5] {
        let e = vectors("SVMRegressor", int(count));
        assert!(e.contains(&format!("12 numbers for {count} vectors")), "{e}");
    }
    let e = vectors("SVMClassifier", Attribute::Ints(vec![i64::MAX; 2]));
    assert!(e.contains("SVMClassifier of 2 classes"), "{e}");
    let e = vectors("SVMClassifier", ints(&[1; 2000]));
    assert!(e.contains("SVMClassifier of 2000 classes and 2000 vectors"), "{e}");
    let e = error(&|b| {
        let y = b.node("NhwcMaxPool", &[], &[("kernel_shape", ints(&[2, 2]))]);
        b.model.graph.nodes.last_mut().unwrap().domain = "com.microsoft".into();
        y
    });
    assert!(e.contains("input 0"), "{e}");
}

/// What is read together with other data, and has fewer elements than these need, or none.
#[test]
fn parts_of_other_shapes() {
    let error = |opset, op: &str, shapes: &[&[usize]], attributes: &[(&str, Attribute)]| {
        let mut b = Builder::new(opset, 7);
        let inputs: Vec<String> = shapes.iter().map(|s| if s == &[9] { String::new() } else { b.input(s) }).collect();
        let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
        let y = b.node(op, &inputs, attributes);
        b.output(&y);
        let compiler = Compiler::new(Target::GFX1100, compile::Options::default());
        compiler.fuse(&b.model, &Options::default()).map(drop).map_err(|e| e.to_string())
    };
    const NONE: &[usize] = &[9];
    let heads = [("q_num_heads", int(2)), ("kv_num_heads", int(2))];
    let square: &[usize] = &[1, 2, 4, 8];
    let deformed: [&[usize]; 5] = [&[1, 1, 3, 3], &[1, 1, 2, 2], &[1, 8, 2, 2], &[1], &[1, 4, 2, 2]];
    let linear: [&[usize]; 6] = [&[1, 3, 16], &[1, 3, 16], &[1, 3, 16], &[1, 2, 8, 8], &[1, 3, 2], &[1, 3, 1]];
    let causal: [&[usize]; 3] = [&[1, 4, 8], &[4, 1, 3], &[4]];
    let attention: [&[usize]; 4] = [square, square, square, &[4, 4]];
    for (opset, op, good, at, wrong) in [
        (
            22,
            "DeformConv",
            &deformed[..],
            &[][..],
            &[(3, &[0][..]), (3, &[2]), (4, &[0, 4, 2, 2]), (4, &[1, 4, 1, 1])][..],
        ),
        (
            27,
            "LinearAttention",
            &linear,
            &heads,
            &[(3, &[1, 2, 0, 8]), (3, &[1, 2, 8]), (4, &[1, 1, 2]), (5, &[1, 0, 1])],
        ),
        (27, "CausalConvWithState", &causal, &[], &[(2, &[0]), (2, &[3])]),
        (17, "LayerNormalization", &[&[3, 4], &[4], &[4]], &[], &[(1, &[3, 4, 1]), (2, &[2, 3, 4]), (1, &[3])]),
        (23, "Attention", &attention, &[], &[(3, &[4, 0]), (3, &[0, 4]), (3, &[4, 5])]),
        (24, "DeformConv", &[deformed[0], deformed[1], deformed[2], NONE, deformed[4]], &[], &[(4, &[1, 4, 2, 1])]),
    ] {
        assert_eq!(error(opset, op, good, at), Ok(()), "{op}");
        for (i, shape) in wrong {
            let mut shapes = good.to_vec();
            shapes[*i] = shape;
            let e = error(opset, op, &shapes, at).unwrap_err();
            assert!(e.contains(op) && !e.contains("internal"), "{op}: {e}");
        }
    }
}

/// A Scan over a batch of nothing, whose results have no shape, and over a larger one than that of what it carries; places for fewer caches than there are.
#[test]
fn batches_of_other_sizes() {
    for (batch, words) in [(0, "it runs no round"), (2, "a value of shape [0, 2] in a batch of 2")] {
        let e = scanned(batch);
        assert!(e.contains("Scan") && e.contains(words), "{e}");
    }
    for n in [0, 1, 3] {
        let mut b = Builder::new(24, 7);
        let (cache, update) = (b.input(&[2, 4, 8]), b.input(&[2, 1, 8]));
        let at = b.input_of(HostTensor::from_i64(&[n], &vec![0; n]));
        let y = b.node("TensorScatter", &[&cache, &update, &at], &[]);
        b.output(&y);
        let e = graph::fuse(&b.model, &Options::default()).unwrap_err().to_string();
        assert!(e.contains(&format!("input 2 has shape [{n}], not [2]")), "{e}");
    }
}

/// What is said of a Scan over so large a batch that carries an empty one.
fn scanned(batch: usize) -> String {
    let mut b = Builder::new(8, 7);
    let (sum, x) = (b.input(&[0, 2]), b.input(&[batch, 3, 2]));
    let info = |name: &str| ValueInfo { name: name.into(), dtype: Some(DType::F32), shape: None };
    let next = b.node("Add", &["sum", "part"], &[]);
    let node = b.model.graph.nodes.pop().unwrap();
    let inputs = vec![info("sum"), info("part")];
    let body = Graph { nodes: vec![node], inputs, outputs: vec![info(&next)], ..Graph::default() };
    let attributes = [("num_scan_inputs", int(1)), ("body", Attribute::Graph(Box::new(body)))];
    let y = b.node("Scan", &["", &sum, &x], &attributes);
    b.output(&y);
    graph::fuse(&b.model, &Options::default()).unwrap_err().to_string()
}

/// Outputs that are declared as something else than what is computed.
#[test]
fn outputs_of_another_structure() {
    let error = |op: &str, declared: Option<Structure>| {
        let mut b = Builder::new(17, 7);
        let x = b.input(&[2]);
        let y = b.node(op, &[&x], &[]);
        b.output(&y);
        match declared {
            Some(structure) => _ = b.model.structures.insert(y, structure),
            None => b.model.graph.outputs[0].dtype = Some(DType::F32),
        }
        graph::fuse(&b.model, &Options::default()).map(drop).map_err(|e| e.to_string())
    };
    for (op, declared, words) in [
        ("Relu", Some(Structure::Sequence(None)), "declared as a sequence, but the model computes a tensor"),
        (
            "Relu",
            Some(Structure::OptionalSequence(None)),
            "declared as an optional sequence, but the model computes a tensor",
        ),
        ("Relu", Some(Structure::Maps), "declared as maps, but the model computes none"),
        ("SequenceConstruct", None, "declared as a tensor, but the model computes a sequence"),
    ] {
        let e = error(op, declared).unwrap_err();
        assert!(e.contains(words), "{e}");
    }
    for (op, declared) in [
        ("Relu", None),
        ("Relu", Some(Structure::OptionalTensor(None))),
        ("Optional", Some(Structure::OptionalTensor(None))),
        ("SequenceConstruct", Some(Structure::Sequence(None))),
    ] {
        assert_eq!(error(op, declared), Ok(()), "{op} {declared:?}");
    }
    // Who gives an array for a sequence is told what it is.
    let mut b = Builder::new(17, 7);
    let x = b.input(&[2]);
    (b.model.graph.inputs[0].dtype, b.model.graph.inputs[0].shape) = (None, None);
    let y = b.node("SequenceLength", &[&x], &[]);
    b.output(&y);
    let e = graph::fuse(&b.model, &Options::default()).unwrap_err().to_string();
    assert!(e.contains("is not a tensor of a supported type") && !e.contains("declares no shape"), "{e}");
    b.model.structures.insert(x.clone(), Structure::Sequence(None));
    for e in [graph::fuse(&b.model, &Options::default()).unwrap_err(), graph::check_tensors(&b.model).unwrap_err()] {
        let e = e.to_string();
        assert!(e.contains("is a sequence") && e.contains("InferenceSession"), "{e}");
    }
}

/// Operators that are written with others say for themselves what they take, though what they are written with takes more.
#[test]
fn types_that_functions_do_not_take() {
    use DType::{Bool, F16, F32, I8, I32, I64, Str, U8};
    let result = |op: &str, domain: &str, types: &[DType]| {
        let mut b = Builder::new(21, 7);
        let number = |t: DType| match t {
            Str => HostTensor::from_texts(&[1, 1], ["one"]).unwrap(),
            t => HostTensor::from_f64(t, &[1, 1], &[1.0]),
        };
        let inputs: Vec<String> = types.iter().map(|t| b.input_of(number(*t))).collect();
        let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
        let y = b.node(op, &inputs, &[]);
        b.model.graph.nodes.last_mut().unwrap().domain = domain.into();
        b.output(&y);
        b.model.expand();
        let compiler = Compiler::new(Target::GFX1100, compile::Options::default());
        compiler.fuse(&b.model, &Options::default()).map(drop).map_err(|e| e.to_string())
    };
    let training = "ai.onnx.preview.training";
    let product = [U8, F32, U8, I8, F32, I8, F32, U8];
    for (op, domain, good, wrong) in [
        ("Adagrad", training, &[F32, I64, F32, F32, F32][..], &[(0, I64), (0, U8), (1, F16), (1, Str), (2, I32)][..]),
        ("Adam", training, &[F32, I64, F32, F32, F32, F32], &[(0, Bool), (1, F32), (5, U8)]),
        ("Momentum", training, &[F32, I64, F32, F32, F32], &[(0, Str), (1, Bool), (4, I64)]),
        ("QLinearMatMul", "", &product, &[(1, Bool), (4, Str), (6, I64), (4, F16), (0, I32), (2, I8), (7, Bool)]),
        ("Dropout", "", &[F32, F16], &[(0, I64), (1, I32)]),
        ("MulInteger", "com.microsoft", &[U8, U8, U8, U8], &[(0, F32), (3, I8)]),
    ] {
        assert_eq!(result(op, domain, good), Ok(()), "{op}");
        for (i, t) in wrong {
            let mut types = good.to_vec();
            types[*i] = *t;
            let e = result(op, domain, &types).unwrap_err();
            assert!(e.contains(op) && e.contains(&format!("input {i} ")), "{op} with {} as input {i}: {e}", t.name());
            assert!(!e.contains("internal") && !e.contains("Checked"), "{e}");
        }
    }
    for to in [DType::F8E4M3, DType::F8E5M2Z] {
        let e = result("DequantizeLinear", "", &[I8, to]).unwrap_err();
        let words = format!("makes {to} of a scale of type {to}; floats of 16 bits or more are supported");
        assert!(e.contains("DequantizeLinear") && e.contains(&words), "{e}");
    }
}

/// What ONNX calls a scalar is one number: none is not its default, and of several none is chosen.
#[test]
fn numbers_that_are_none_or_several() {
    let result = |op: &str, at: usize, count: usize, value: f64| {
        let mut b = Builder::new(21, 7);
        let float = |shape: &[usize]| HostTensor::from_f64(DType::F32, shape, &vec![0.5; shape.iter().product()]);
        let boxes = [0.0, 0.0, 1.0, 1.0, 0.0, 10.0, 1.0, 11.0];
        let mut inputs = match op {
            "Trilu" => vec![float(&[3, 3]), HostTensor::from_i64(&[], &[0])],
            _ => vec![
                HostTensor::from_f64(DType::F32, &[1, 2, 4], &boxes),
                float(&[1, 1, 2]),
                HostTensor::from_i64(&[1], &[2]),
                float(&[1]),
                float(&[1]),
            ],
        };
        let t = inputs[at].dtype();
        inputs[at] = HostTensor::from_f64(t, &[count], &vec![value; count]);
        let names: Vec<String> = inputs.into_iter().map(|t| b.constant(t)).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let y = b.node(op, &names, &[]);
        b.output(&y);
        graph::fuse(&b.model, &Options::default()).map(drop).map_err(|e| e.to_string())
    };
    for (op, at) in [("Trilu", 1), ("NonMaxSuppression", 2), ("NonMaxSuppression", 3), ("NonMaxSuppression", 4)] {
        assert_eq!(result(op, at, 1, 1.0), Ok(()), "{op}, input {at}");
        for count in [0, 2] {
            let e = result(op, at, count, 1.0).unwrap_err();
            assert!(e.contains(op) && e.contains(&format!("(input {at}) is {count} numbers, not one")), "{e}");
        }
    }
    for overlap in [-0.5, 1.5, f64::NAN] {
        let e = result("NonMaxSuppression", 3, 1, overlap).unwrap_err();
        assert!(e.contains("overlap") && e.contains("from 0 to 1"), "{e}");
    }
}

/// Branches in branches are looked at once for each that lies around them; loops in loops are not so deep.
#[test]
fn graphs_inside_of_each_other() {
    fn deep(b: &mut Builder, x: &str, levels: usize) -> String {
        if levels == 0 {
            return b.node("Relu", &[x], &[]);
        }
        let yes = b.constant(HostTensor::from_ints(DType::Bool, &[], &[1]));
        let outside = b.model.graph.nodes.len();
        let y = deep(b, x, levels - 1);
        let taken = Graph {
            nodes: b.model.graph.nodes.split_off(outside),
            outputs: vec![ValueInfo { name: y, dtype: None, shape: None }],
            ..Graph::default()
        };
        let other = Graph { outputs: vec![ValueInfo { name: x.into(), dtype: None, shape: None }], ..Graph::default() };
        let [taken, other] = [taken, other].map(|g| Attribute::Graph(Box::new(g)));
        b.node("If", &[&yes], &[("then_branch", taken), ("else_branch", other)])
    }
    let mut b = Builder::new(17, 5);
    let x = b.input(&[2]);
    let y = deep(&mut b, &x, 200);
    b.output(&y);
    let fused = graph::fuse(&b.model, &Options::default()).unwrap();
    assert_eq!(fused.steps.len(), 1);

    fn loops(b: &mut Builder, x: &str, levels: usize) -> String {
        match levels {
            0 => b.node("Relu", &[x], &[]),
            _ => loop_of(b, 1, x, |b, v| loops(b, v, levels - 1)),
        }
    }
    let of = |levels| {
        let mut b = Builder::new(17, 5);
        let x = b.input(&[2]);
        let y = loops(&mut b, &x, levels);
        b.output(&y);
        graph::fuse(&b.model, &Options::default()).map(|_| ()).map_err(|e| e.to_string())
    };
    assert_eq!(of(4), Ok(()));
    let error = of(30).unwrap_err();
    assert!(error.contains("30 loops lie inside of each other"), "{error}");
}

/// What would be cut into millions of parts is refused.
#[test]
fn a_result_of_fifty_doublings() {
    let mut b = Builder::new(17, 5);
    let x = b.input(&[2]);
    let y = (0..50).fold(x, |v, _| b.node("Concat", &[&v, &v], &[("axis", int(0))]));
    b.output(&y);
    let compiler = Compiler::new(Target::GFX1100, compile::Options::default());
    let error = compiler.compile(&b.model, &Options::default()).unwrap_err().to_string();
    assert!(error.contains("1125899906842624"), "{error}");
}

/// What is missing is told of models whose branches read what is missing too.
#[test]
fn a_branch_that_is_not_taken_reads_what_is_not_supported() {
    let mut b = Builder::new(18, 7);
    let x = b.input(&[2, 4]);
    let lost = b.node("Frobnicate", &[&x], &[]);
    let condition = b.constant(HostTensor::from_ints(DType::Bool, &[], &[1]));
    let mut branch = |op: &str, inputs: &[&str]| {
        let y = b.node(op, inputs, &[]);
        let nodes = vec![b.model.graph.nodes.pop().unwrap()];
        let outputs = vec![ValueInfo { name: y, dtype: None, shape: None }];
        Attribute::Graph(Box::new(Graph { nodes, outputs, ..Graph::default() }))
    };
    let (taken, other) = (branch("Relu", &[&x]), branch("Add", &[&x, &lost]));
    let y = b.node("If", &[&condition], &[("then_branch", taken), ("else_branch", other)]);
    let halves = b.node_n("Split", &[&y], &[("axis", int(1)), ("num_outputs", int(2))], 2);
    [&halves[1], &lost].iter().for_each(|o| b.output(o));
    let compiler = Compiler::new(Target::GFX1100, compile::Options::default());
    let error = compiler.fuse(&b.model, &Options::default()).unwrap_err().to_string();
    assert!(error.contains("Frobnicate") && !error.contains("Split"), "{error}");
}

#[test]
fn extreme_numbers() {
    let extremes = [i64::MIN, -1_000_000, -1, 0, 1, 2, 7, 1 << 20, 1 << 40, i64::MAX];
    let mut errors = 0;
    let real = support::light("shufflenet").map(|p| Model::load(&p).unwrap());
    for model in std::iter::once(everything()).chain(real) {
        assert_eq!(graph::fuse(&model, &Options::default()).map(|_| ()), Ok(()));
        for n in 0..model.graph.nodes.len() {
            for name in model.graph.nodes[n].attributes.keys() {
                let of = |v: i64| match &model.graph.nodes[n].attributes[name] {
                    Attribute::Int(_) => vec![Attribute::Int(v)],
                    Attribute::Ints(list) => (0..list.len())
                        .map(|i| {
                            let mut l = list.clone();
                            l[i] = v;
                            Attribute::Ints(l)
                        })
                        .chain([Attribute::Ints(vec![v]), Attribute::Ints(vec![])])
                        .collect(),
                    Attribute::Float(_) => vec![Attribute::Float(v as f32), Attribute::Text("x".into())],
                    _ => vec![],
                };
                for value in extremes.into_iter().flat_map(of) {
                    let mut m = model.clone();
                    m.graph.nodes[n].attributes.insert(name.clone(), value);
                    errors += usize::from(graph::fuse(&m, &Options::default()).is_err());
                }
            }
        }
        // (ShuffleNet's integers are the shapes of its weights: extreme ones only cost time.)
        for (name, t) in model.graph.initializers.iter().take_while(|_| model.graph.name.is_empty()) {
            if t.dtype().is_float() {
                continue;
            }
            for v in extremes {
                for i in 0..t.len() {
                    let mut values = t.to_i64();
                    values[i] = v;
                    let mut m = model.clone();
                    m.graph.initializers.insert(name.clone(), HostTensor::from_ints(t.dtype(), t.shape(), &values));
                    errors += usize::from(graph::fuse(&m, &Options::default()).is_err());
                }
            }
        }
    }
    assert!(errors > 100, "only {errors} errors: nothing was tested");
}

/// A model with as many kinds of parameters as possible.
fn everything() -> Model {
    let mut b = Builder::new(17, 3);
    let x = b.input(&[1, 4, 8, 8]);
    let w = b.weight(&[4, 2, 3, 3]);
    let spatial =
        [("group", int(2)), ("pads", ints(&[1, 1, 1, 1])), ("strides", ints(&[1, 1])), ("dilations", ints(&[1, 1]))];
    let y = b.node("Conv", &[&x, &w], &spatial);
    let t = b.weight(&[4, 2, 3, 3]);
    let attributes = [&spatial[..], &[("output_padding", ints(&[0, 0]))]].concat();
    let y = b.node("ConvTranspose", &[&y, &t], &attributes);
    let window = [
        ("kernel_shape", ints(&[2, 2])),
        ("strides", ints(&[1, 1])),
        ("pads", ints(&[0, 0, 1, 1])),
        ("ceil_mode", int(1)),
    ];
    let y = b.node("MaxPool", &[&y], &window);
    let y = b.node("AveragePool", &[&y], &[&window[..], &[("count_include_pad", int(1))]].concat());
    let y = b.node("LRN", &[&y], &[("size", int(3))]);
    let p = b.ints(&[0, 0, 1, 1, 0, 0, 1, -1]);
    let y = b.node("Pad", &[&y, &p], &[]);
    let q = b.ints(&[0, 0, 1, 0, 0, 0, 0, 1]);
    let y = b.node("Pad", &[&y, &q], &[("mode", Attribute::Text("reflect".into()))]);
    let (s, e, a, st) = (b.ints(&[0, 9]), b.ints(&[8, -100]), b.ints(&[2, 3]), b.ints(&[1, -1]));
    let y = b.node("Slice", &[&y, &s, &e, &a, &st], &[]);
    let y = b.node("DepthToSpace", &[&y], &[("blocksize", int(2))]);
    let y = b.node("SpaceToDepth", &[&y], &[("blocksize", int(2))]);
    let sizes = b.ints(&[1, 4, 6, 7]);
    let y = b.node("Resize", &[&y, "", "", &sizes], &[("mode", Attribute::Text("linear".into()))]);
    let i = b.ints(&[1, -1, 2]);
    let y = b.node("Gather", &[&y, &i], &[("axis", int(1))]);
    let y = b.node("Transpose", &[&y], &[("perm", ints(&[0, 2, 3, 1]))]);
    let r = b.ints(&[1, 2, 1, 2]);
    let y = b.node("Tile", &[&y, &r], &[]);
    let n = b.ints(&[0, -1, 6]);
    let y = b.node("Reshape", &[&y, &n], &[("allowzero", int(0))]);
    let n = b.ints(&[2, 4]);
    let parts = b.node_n("Split", &[&y, &n], &[("axis", int(2))], 2);
    let y = b.node("Concat", &[&parts[1], &parts[0]], &[("axis", int(2))]);
    let parts = b.node_n("Split", &[&y], &[("axis", int(2)), ("num_outputs", int(2))], 2);
    let y = b.node("Concat", &[&parts[1], &parts[0]], &[("axis", int(2))]);
    let n = b.ints(&[2, 1, 1, 6]);
    let y = b.node("Expand", &[&y, &n], &[]);
    let n = b.ints(&[1]);
    let y = b.node("Unsqueeze", &[&y, &n], &[]);
    let y = b.node("Squeeze", &[&y, &n], &[]);
    let y = b.node("ReduceMean", &[&y], &[("axes", ints(&[1])), ("keepdims", int(1))]);
    let y = b.node("Softmax", &[&y], &[("axis", int(2))]);
    let y = b.node("Flatten", &[&y], &[("axis", int(1))]);
    let y = b.node("ArgMax", &[&y], &[("axis", int(1)), ("keepdims", int(0)), ("select_last_index", int(0))]);
    let y = b.node("Cast", &[&y], &[("to", int(1))]);
    let shape = b.ints(&[2]);
    let z = b.node("ConstantOfShape", &[&shape], &[]);
    let y = b.node("Add", &[&y, &z], &[]);
    b.output(&y);
    b.model
}

/// What is given of nothing, or of less than there is, is no reason to leave it aside.
#[test]
fn parts_that_are_empty_or_too_short() {
    let error = |opset: i64, domain: &str, op: &str, inputs: &[Option<HostTensor>], list: &[(&str, Attribute)]| {
        let mut b = Builder::new(opset, 7);
        let names: Vec<String> = inputs.iter().map(|t| t.clone().map_or(String::new(), |t| b.constant(t))).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let y = b.node(op, &names, list);
        b.model.graph.nodes.last_mut().unwrap().domain = domain.into();
        b.output(&y);
        b.model.expand();
        graph::fuse(&b.model, &Options::default()).map(drop).unwrap_err().to_string()
    };
    let float = |shape: &[usize]| Some(HostTensor::from_f64(DType::F32, shape, &vec![0.5; shape.iter().product()]));
    let whole = |t: DType, shape: &[usize]| Some(HostTensor::from_ints(t, shape, &vec![1; shape.iter().product()]));
    // Steps of four sequences, and lengths of none.
    let layer = [float(&[3, 4, 2]), float(&[1, 5, 2]), float(&[1, 5, 5]), None, whole(DType::I32, &[0])];
    let e = error(17, "", "RNN", &layer, &[("hidden_size", int(5))]);
    assert!(e.contains("lengths of shape [0] for 4 sequences"), "{e}");
    let bytes = [whole(DType::U8, &[2, 3]), whole(DType::U8, &[3, 2]), whole(DType::U8, &[0])];
    let e = error(17, "", "MatMulInteger", &bytes, &[]);
    assert!(e.contains("zero point of shape [0]"), "{e}");
    // A past without heads, and a mask of fewer keys than there are.
    let rows = || float(&[1, 3, 8]);
    let heads = [("q_num_heads", int(2)), ("kv_num_heads", int(2))];
    let past = [rows(), rows(), rows(), None, float(&[0]), float(&[1, 2, 1, 4])];
    let e = error(23, "", "Attention", &past, &heads);
    assert!(e.contains("the past (input 4) has shape [0]"), "{e}");
    let masked = [rows(), rows(), rows(), None, whole(DType::I32, &[1, 2])];
    let e = error(17, "com.microsoft", "MultiHeadAttention", &masked, &[("num_heads", int(2))]);
    assert!(e.contains("a mask of shape [1, 2] for 3 keys"), "{e}");
}
