//! The library as other programs call it: compiler, compiled models, sessions bound to the caller's memory and streams.

use crate::support::build::Builder;
use barewave::codeobj::Abi;
use barewave::compile::{CacheStats, KernelCache, Missing, NodeSupport, Verdict};
use barewave::graph::Reason;
use barewave::onnx::{Attribute, Dim, Graph, Node, ValueInfo};
use barewave::runtime::{Device, EmulatedDevice, SessionError};
use barewave::tensor::DType;
use barewave::{AnyShape, Compiled, Compiler, HostTensor, Model, Options, Session, Shapes, TensorView, TensorViewMut};
use barewave_isa::Target;
use pretty_assertions::assert_eq;
use std::path::Path;
use std::sync::Arc;

fn load(path: &str) -> Model {
    Model::load(Path::new(path)).unwrap()
}

fn compiler(target: Target, cache: KernelCache) -> Compiler {
    Compiler::new(target, Options { cache: Arc::new(cache), ..Options::default() }).without_levels()
}

fn digits(target: Target) -> Compiled {
    let model = load("examples/digits/digits.onnx");
    compiler(target, KernelCache::in_memory()).compile(&model, &Shapes::default()).unwrap()
}

fn image() -> HostTensor {
    let pixels: Vec<f32> = (0..64).map(|i| (i * 7 % 17) as f32 / 16.0).collect();
    HostTensor::from_f32(&[1, 1, 8, 8], &pixels)
}

#[test]
fn a_saved_model_is_the_same_model() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("digits.hsaco");
    let made = digits(Target::GFX1030);
    made.save(&file, Abi::V5).unwrap();
    let read = Compiled::load(&file).unwrap();
    assert_eq!(read.plan(), made.plan());
    assert_eq!(read.stats().len(), 6);
    assert!(read.weights() == made.weights() && read.target() == Target::GFX1030);
    let device: Arc<dyn Device> = Arc::new(EmulatedDevice::new(Target::GFX1030, false).unwrap());
    let run = |c: &Compiled| Session::new(device.clone(), c).unwrap().run(&[image()]).unwrap().0;
    assert_eq!(run(&read), run(&made));
    // Saved again it is the same file.
    let again = dir.path().join("again.hsaco");
    read.save(&again, Abi::V5).unwrap();
    assert!(std::fs::read(&again).unwrap() == std::fs::read(&file).unwrap());
    let other: Arc<dyn Device> = Arc::new(EmulatedDevice::new(Target::GFX942, false).unwrap());
    assert!(Session::new(other, &read).err().unwrap().to_string().contains("gfx1030"));
}

/// A product with fewer compute units gets tiles for those, which every device of the architecture runs.
#[test]
fn products_have_their_own_tiles() {
    let cache = Arc::new(KernelCache::in_memory());
    let mut b = Builder::new(17, 1);
    let (x, y) = (b.input(&[1024, 4096]), b.input(&[4096, 1024]));
    let z = b.node("MatMul", &[&x, &y], &[]);
    b.output(&z);
    let compile = |name: &str| {
        let target = Target::parse(name).unwrap();
        let options = Options { cache: cache.clone(), ..Options::default() };
        Compiler::new(target, options).without_levels().compile(&b.model, &Shapes::default()).unwrap()
    };
    let [whole, small] = ["mi300x", "mi308x"].map(compile);
    assert_eq!(cache.stats().compiled, 2, "products do not share kernels");
    assert_ne!(whole.plan().launches[0].grid, small.plan().launches[0].grid, "304 units and 80 need other tiles");
    let mut bytes = Vec::new();
    small.write_to(Abi::V5, &mut bytes).unwrap();
    let read = Compiled::from_bytes(bytes.into(), Path::new("memory")).unwrap();
    assert_eq!((read.target().name(), read.target().cus()), ("mi308x", 80));
    for device in ["gfx942", "mi300a"] {
        let device = EmulatedDevice::new(Target::parse(device).unwrap(), false).unwrap();
        Session::new(Arc::new(device), &read).unwrap();
    }
}

#[test]
fn the_cache_changes_nothing_but_the_work() {
    let dir = tempfile::tempdir().unwrap();
    let model = load("examples/lenet/lenet.onnx");
    let object = |c: &Compiled| {
        let mut bytes = Vec::new();
        c.write_to(Abi::V5, &mut bytes).unwrap();
        bytes
    };
    let without = compiler(Target::GFX942, KernelCache::in_memory()).compile(&model, &Shapes::default()).unwrap();
    let first = compiler(Target::GFX942, KernelCache::in_folder(dir.path(), 1 << 30));
    let second = compiler(Target::GFX942, KernelCache::in_folder(dir.path(), 1 << 30));
    for c in [&first, &second, &second] {
        assert!(object(&c.compile(&model, &Shapes::default()).unwrap()) == object(&without));
    }
    let n = without.stats().len();
    assert_eq!(first.cache().stats(), CacheStats { memory: 0, disk: 0, compiled: n });
    assert_eq!(second.cache().stats(), CacheStats { memory: n, disk: n, compiled: 0 });
    // IR is there when it is asked for, and only then.
    assert!(without.ir().is_empty());
    let ir =
        Compiler::new(Target::GFX942, Options { keep_ir: true, cache: first.cache().clone(), ..Options::default() })
            .without_levels();
    assert_eq!(ir.compile(&model, &Shapes::default()).unwrap().ir().len(), n);
}

/// `relu(x @ w)` for any number of rows, `N`, of three.
fn rows() -> Model {
    let mut m = Model::default();
    m.opsets.insert(String::new(), 17);
    let info = |name: &str, last: usize| ValueInfo {
        name: name.into(),
        dtype: Some(DType::F32),
        shape: Some(vec![Dim::Symbol("N".into()), Dim::Known(last)]),
    };
    let node = |op: &str, inputs: &[&str], output: &str| Node {
        name: output.into(),
        op: op.into(),
        domain: String::new(),
        inputs: inputs.iter().map(|s| s.to_string()).collect(),
        outputs: vec![output.into()],
        attributes: Default::default(),
    };
    m.graph.nodes = vec![node("MatMul", &["x", "w"], "m"), node("Relu", &["m"], "y")];
    let weights: Vec<f32> = (0..30_000).map(|i| (i % 7) as f32 - 3.0).collect();
    m.graph.initializers.insert("w".into(), HostTensor::from_f32(&[3, 10_000], &weights));
    m.graph.inputs = vec![info("x", 3)];
    m.graph.outputs = vec![info("y", 10_000)];
    m
}

fn of_rows(n: usize) -> Shapes {
    Shapes { dims: [("N".to_string(), n)].into(), ..Shapes::default() }
}

#[test]
fn one_compiled_model_serves_the_shapes_it_was_compiled_for() {
    let c = compiler(Target::GFX1100, KernelCache::in_memory());
    let compiled = c.compile_for(&rows(), &[1, 5, 64].map(of_rows)).unwrap();
    let alone = c.compile(&rows(), &of_rows(5)).unwrap();
    assert_eq!(compiled.plans().len(), 3);
    // The weights are there once.
    assert!(compiled.weights().len() < alone.weights().len() + 4096, "{}", compiled.weights().len());
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rows.hsaco");
    compiled.save(&file, Abi::V5).unwrap();
    let read = Compiled::load(&file).unwrap();
    assert_eq!(read.plans(), compiled.plans());
    assert_eq!(read.plan().inputs[0].described(), "1x3xf32 (N = 1)");
    let device: Arc<dyn Device> = Arc::new(EmulatedDevice::new(Target::GFX1100, true).unwrap());
    let mut one = Session::new(device.clone(), &alone).unwrap();
    let mut all = Session::new(device, &read).unwrap();
    let x = |n: usize| HostTensor::from_f32(&[n, 3], &(0..3 * n).map(|i| i as f32 / 8.0).collect::<Vec<_>>());
    for n in [5, 1, 64, 5] {
        let y = all.run(&[x(n)]).unwrap().0.remove(0);
        assert_eq!((y.shape(), all.plan().inputs[0].shape[0]), (&[n, 10_000][..], n));
        if n == 5 {
            assert_eq!(y, one.run(&[x(5)]).unwrap().0.remove(0));
        }
    }
    let e = all.run(&[x(2)]).unwrap_err().to_string();
    for word in ["x=2x3xf32", "1x3xf32 (N = 1)", "64x3xf32 (N = 64)"] {
        assert!(e.contains(word), "{word}: {e}");
    }
    let e = one.run(&[x(2)]).unwrap_err().to_string();
    assert!(e.contains("input 'x' must be 5x3xf32 (N = 5), not 2x3xf32"), "{e}");
    assert!(c.compile_for(&rows(), &[]).unwrap_err().to_string().contains("no shapes"));
    // The same bytes every time.
    let mut again = Vec::new();
    c.compile_for(&rows(), &[1, 5, 64].map(of_rows)).unwrap().write_to(Abi::V5, &mut again).unwrap();
    assert!(again == std::fs::read(&file).unwrap());
}

#[test]
fn any_shape_is_compiled_when_it_comes() {
    let c = compiler(Target::GFX1100, KernelCache::in_memory());
    let device: Arc<dyn Device> = Arc::new(EmulatedDevice::new(Target::GFX1100, false).unwrap());
    let x = |n: usize| HostTensor::from_f32(&[n, 3], &(0..3 * n).map(|i| i as f32 / 8.0 - 1.0).collect::<Vec<_>>());
    let mut any = AnyShape::new(device.clone(), c.clone(), Arc::new(rows()), 3);
    for round in 0..2 {
        for n in [1, 2, 0, 7, 2] {
            let y = any.run(&[x(n)]).unwrap().0.remove(0);
            let alone = c.compile(&rows(), &of_rows(n)).unwrap();
            assert_eq!(y, Session::new(device.clone(), &alone).unwrap().run(&[x(n)]).unwrap().0.remove(0), "{n}");
        }
        // Four shapes, of which three are kept: 1 is compiled again, and pushes out what is oldest then.
        assert_eq!(any.compiled(), [4, 7][round]);
    }
    // No kernel was made twice.
    assert_eq!(any.run(&[x(7)]).unwrap().0[0].shape(), [7, 10_000]);
    assert_eq!(c.cache().stats().compiled, 3);
    let e = any.run(&[HostTensor::from_f32(&[2, 4], &[0.0; 8])]).unwrap_err().to_string();
    assert!(e.contains("dimension 1 is 4, not 3"), "{e}");
    assert_eq!(any.run(&[x(2)]).unwrap().0[0].shape(), [2, 10_000], "a refusal changes nothing");
}

#[test]
fn a_value_that_a_model_was_compiled_for_is_checked() {
    let mut m = rows();
    m.graph.nodes[1].op = "Reshape".into();
    m.graph.nodes[1].inputs.push("s".into());
    m.graph.inputs.push(ValueInfo { name: "s".into(), dtype: Some(DType::I64), shape: Some(vec![Dim::Known(2)]) });
    m.graph.outputs[0].shape = None;
    let s = |rows: i64| HostTensor::from_i64(&[2], &[rows, -1]);
    let shapes = Shapes { values: [("s".to_string(), s(4))].into(), ..of_rows(2) };
    let c = compiler(Target::GFX942, KernelCache::in_memory());
    let compiled = c.compile(&m, &shapes).unwrap();
    assert_eq!(compiled.notes().len(), 1);
    let verdict = |shapes| c.supports(&m, shapes).unwrap().nodes[1].verdict.clone();
    assert_eq!(verdict(&shapes), Verdict::Supported);
    // Without the value it can only be compiled when it runs.
    assert!(matches!(verdict(&of_rows(2)), Verdict::Staged(_)) && c.compile(&m, &of_rows(2)).is_err());
    let device: Arc<dyn Device> = Arc::new(EmulatedDevice::new(Target::GFX942, false).unwrap());
    let mut session = Session::new(device, &compiled).unwrap();
    let x = HostTensor::from_f32(&[2, 3], &[1.0; 6]);
    assert_eq!(session.run(&[x.clone(), s(4)]).unwrap().0[0].shape(), [4, 5000]);
    let e = session.run(&[x, s(5)]).unwrap_err();
    assert!(matches!(&e, SessionError::Fixed { name } if name == "s"), "{e}");
}

#[test]
fn everything_that_is_missing_stops_compilation_at_once() {
    let mut m = rows();
    let add = |m: &mut Model, op: &str, input: &str, output: &str| {
        let mut node = m.graph.nodes[1].clone();
        (node.name, node.op) = (output.into(), op.into());
        (node.inputs, node.outputs) = (vec![input.into()], vec![output.into()]);
        m.graph.nodes.push(node);
        m.graph.outputs.push(ValueInfo { name: output.into(), dtype: None, shape: None });
    };
    add(&mut m, "Frobnicate", "y", "a");
    let one = compiler(Target::GFX942, KernelCache::in_memory());
    let e = |m: &Model| one.compile(m, &of_rows(2)).unwrap_err().to_string();
    let first = e(&m);
    add(&mut m, "Frobnicate", "x", "b");
    add(&mut m, "Transmogrify", "x", "c");
    assert_eq!(first, "node `a`: operator Frobnicate is not supported; the README lists the supported ones");
    let all = e(&m);
    for word in ["Frobnicate: not supported", "node `a`, 2 times", "Transmogrify: not supported", "2 of 5 nodes"] {
        assert!(all.contains(word), "{word}: {all}");
    }
}

#[test]
fn many_threads_share_a_cache() {
    let dir = tempfile::tempdir().unwrap();
    let model = load("examples/digits/digits.onnx");
    std::thread::scope(|s| {
        for i in 0..6 {
            // Two caches on one folder, as two processes have them.
            let c = compiler([Target::GFX942, Target::GFX1100][i % 2], KernelCache::in_folder(dir.path(), 1 << 30));
            let model = &model;
            s.spawn(move || c.compile(model, &Shapes::default()).unwrap());
        }
    });
}

#[test]
fn tensors_stay_in_the_callers_memory() {
    let target = Target::GFX906;
    let device: Arc<dyn Device> = Arc::new(EmulatedDevice::new(target, true).unwrap());
    let compiled = digits(target);
    let mut session = Session::new(device.clone(), &compiled).unwrap();
    let x = image();
    let (want, _) = session.run(std::slice::from_ref(&x)).unwrap();
    // Host memory of the caller on both sides.
    let mut out = vec![0u8; want[0].bytes().len()];
    let view = TensorView::new(DType::F32, x.shape(), x.bytes()).unwrap();
    let shape = want[0].shape().to_vec();
    let into = TensorViewMut::new(DType::F32, &shape, &mut out).unwrap();
    session.run_into(&[view], &mut [into]).unwrap();
    assert!(out == want[0].bytes()[..]);
    // Device memory on both sides, in a stream of the caller's.
    let (a, b) = (device.alloc(256).unwrap(), device.alloc(want[0].bytes().len() as u64).unwrap());
    device.write(a, x.bytes()).unwrap();
    let stream = device.create_stream().unwrap();
    session.use_stream(Some(stream)).unwrap();
    session.bind_input(0, Some(a)).unwrap();
    session.bind_output(0, Some(b)).unwrap();
    let none: [HostTensor; 0] = [];
    session.start(&none).unwrap();
    let (outputs, report) = session.finish().unwrap();
    assert!(outputs.is_empty() && report.launches == 6);
    let mut got = vec![0; out.len()];
    device.read(b, &mut got).unwrap();
    assert_eq!(got, out);
    // What was bound need not be given, and must not be.
    let error = session.run(std::slice::from_ref(&x)).unwrap_err();
    assert!(matches!(error, SessionError::InputCount { expected: 0, given: 1, .. }), "{error}");
    // And back again.
    session.use_stream(None).unwrap();
    session.bind_input(0, None).unwrap();
    session.bind_output(0, None).unwrap();
    assert_eq!(session.run(std::slice::from_ref(&x)).unwrap().0, want);
    assert!(matches!(session.bind_input(1, None), Err(SessionError::NoPort { what: "input", number: 1 })));
    let wrong = HostTensor::from_f32(&[64], &[0.0; 64]);
    assert!(session.run(&[wrong]).unwrap_err().to_string().contains("1x1x8x8xf32, not 64xf32"));
    let mut small = [0u8; 8];
    let into = TensorViewMut::new(DType::F32, &[2], &mut small).unwrap();
    assert!(matches!(session.run_into(&[x], &mut [into]), Err(SessionError::Output { .. })));
    drop(session);
    device.destroy_stream(stream).unwrap();
}

#[test]
fn a_fault_names_the_operator() {
    for (target, strict) in [(Target::GFX942, false), (Target::GFX1100, true)] {
        let device: Arc<dyn Device> = Arc::new(EmulatedDevice::new(target, strict).unwrap());
        let mut session = Session::new(device, &digits(target)).unwrap();
        // Nothing is there.
        session.bind_input(0, Some(64)).unwrap();
        let none: [HostTensor; 0] = [];
        let error = session.run(&none).unwrap_err().to_string();
        assert!(error.contains("operator conv1+relu1, kernel `conv_0` at pc 0x"), "{error}");
    }
}

#[test]
fn one_models_output_is_the_next_ones_input() {
    let target = Target::GFX1201;
    let device: Arc<dyn Device> = Arc::new(EmulatedDevice::new(target, true).unwrap());
    let add = compiler(target, KernelCache::in_memory());
    let add = add.compile(&load("examples/vector_add/vector_add.onnx"), &Shapes::default()).unwrap();
    let n = add.plan().inputs[0].shape[0];
    let between = device.alloc(n as u64 * 4).unwrap();
    let stream = device.create_stream().unwrap();
    let sessions = || Session::new(device.clone(), &add).unwrap();
    let (mut first, mut second) = (sessions(), sessions());
    for s in [&mut first, &mut second] {
        s.use_stream(Some(stream)).unwrap();
    }
    first.bind_output(0, Some(between)).unwrap();
    second.bind_input(0, Some(between)).unwrap();
    let x = HostTensor::from_f32(&[n], &vec![1.5; n]);
    first.start(&[x.clone(), x.clone()]).unwrap();
    second.start(&[x]).unwrap();
    assert_eq!(second.finish().unwrap().0[0].to_f32(), vec![4.5; n]);
    first.finish().unwrap();
}

fn node(op: &str, inputs: &[&str], output: &str) -> Node {
    let names = |list: &[&str]| list.iter().map(|s| s.to_string()).collect();
    Node {
        name: format!("the {output}"),
        op: op.into(),
        domain: String::new(),
        inputs: names(inputs),
        outputs: names(&[output]),
        attributes: Default::default(),
    }
}

#[test]
fn everything_that_is_missing_is_named_at_once() {
    let mut model = Model::default();
    let info = |name: &str| ValueInfo {
        name: name.into(),
        dtype: Some(DType::F32),
        shape: Some(vec![Dim::Known(4), Dim::Known(8)]),
    };
    model.graph.inputs = vec![info("x")];
    model.graph.outputs = vec![info("d"), info("f"), info("g"), info("h")];
    model.graph.nodes = vec![
        node("Relu", &["x"], "a"),
        node("Frobnicate", &["a"], "b"),
        node("Exp", &["b"], "c"),
        node("Add", &["c", "a"], "d"),
        node("Frobnicate", &["x"], "f"),
        node("Softmax", &["a"], "g"),
        // Reads what is not computed, and would not be there anyway.
        node("Softmux", &["c"], "h"),
    ];
    model.opsets.insert(String::new(), 21);
    let support = compiler(Target::GFX942, KernelCache::in_memory()).supports(&model, &Shapes::default()).unwrap();
    let verdicts: Vec<&str> = support
        .nodes
        .iter()
        .map(|NodeSupport { verdict, .. }| match verdict {
            Verdict::Supported => "yes",
            Verdict::Unsupported(_) => "no",
            Verdict::Staged(_) => "staged",
            Verdict::Blocked(_) => "blocked",
        })
        .collect();
    assert_eq!(verdicts, ["yes", "no", "blocked", "blocked", "no", "yes", "no"]);
    assert!(!support.is_complete());
    let [(op, why, 2, "the b"), ("Softmux", _, 1, "the h")] = support.missing()[..] else { panic!("{support}") };
    assert_eq!(op, "Frobnicate");
    assert!(matches!(why, Missing::Node(Reason::Operator { .. })), "{why:?}");
    assert!(support.to_string().contains("2 of 7 nodes compile; 2 read"), "{support}");
    // A model that compiles is supported, node by node.
    let digits = load("examples/digits/digits.onnx");
    let support = compiler(Target::GFX942, KernelCache::in_memory()).supports(&digits, &Shapes::default()).unwrap();
    assert!(support.is_complete(), "{support}");
}

/// 16-bit floats between inputs and outputs that stay what they are; sizes stay exact.
#[test]
fn models_compute_in_other_types() {
    for (dtype, tolerance) in [(DType::F16, 2e-3), (DType::BF16, 2e-2)] {
        for target in [Target::GFX906, Target::GFX942, Target::GFX1030, Target::GFX1100, Target::GFX1201] {
            let model = load("examples/digits/digits.onnx");
            let other = barewave::graph::in_type(&model, dtype).unwrap();
            assert_eq!((&other.graph.inputs, &other.graph.outputs), (&model.graph.inputs, &model.graph.outputs));
            let compiled = compiler(target, KernelCache::in_memory()).compile(&other, &Shapes::default()).unwrap();
            let device: Arc<dyn Device> = Arc::new(EmulatedDevice::new(target, true).unwrap());
            let run = |c: &Compiled| Session::new(device.clone(), c).unwrap().run(&[image()]).unwrap().0.remove(0);
            let (got, want) = (run(&compiled).to_f64(), run(&digits(target)).to_f64());
            let worst = got.iter().zip(&want).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(worst > 0.0 && worst < tolerance, "{target} {dtype:?}: {worst}");
            assert!(compiled.weights_len() < digits(target).weights_len());
        }
    }
}

/// What follows a node whose result has a shape that only a run tells computes in the other type, too: padding by what a run-time size leaves over, as windowed attention has it.
#[test]
fn models_compute_in_other_types_behind_open_shapes() {
    let mut b = Builder::new(17, 5);
    let x = b.input(&[5, 16]);
    let (four, zeros, one) = (b.ints(&[4]), b.ints(&[0, 0]), b.ints(&[1]));
    let w = b.weight(&[16, 8]);
    let shape = b.node("Shape", &[&x], &[("end", Attribute::Int(1))]);
    let over = b.node("Mod", &[&shape, &four], &[]);
    let missing = b.node("Sub", &[&four, &over], &[]);
    let zero = b.ints(&[0]);
    let amounts = b.node("Concat", &[&zeros, &missing, &zero], &[("axis", Attribute::Int(0))]);
    let padded = b.node("Pad", &[&x, &amounts], &[]);
    let truth = b.node("Greater", &[&padded, &padded], &[]);
    let chosen = b.node("Where", &[&truth, &padded, &padded], &[]);
    let places = b.node("ArgMax", &[&chosen], &[("axis", Attribute::Int(1))]);
    let product = b.node("MatMul", &[&chosen, &w], &[]);
    let sum = b.node("ReduceSum", &[&product, &one], &[]);
    b.output(&sum);
    b.output(&places);
    b.model.graph.inputs[0].shape = Some(vec![Dim::Symbol("n".into()), Dim::Known(16)]);
    let known = barewave::graph::infer(&b.model, &Shapes::default()).unwrap();
    assert!(!known.values.contains_key(&padded), "inference tells now what this test wants untold");
    let target = Target::GFX942;
    let device: Arc<dyn Device> = Arc::new(EmulatedDevice::new(target, true).unwrap());
    let run = |m: &Model| {
        let shapes = Shapes { dims: [("n".to_string(), 5)].into(), ..Shapes::default() };
        let compiled = compiler(target, KernelCache::in_memory()).compile(m, &shapes).unwrap();
        Session::new(device.clone(), &compiled).unwrap().run(&b.inputs).unwrap().0
    };
    for (dtype, tolerance) in [(DType::F16, 1e-2), (DType::BF16, 8e-2)] {
        let other = barewave::graph::in_type(&b.model, dtype).unwrap();
        let multiply = other.graph.nodes.iter().find(|n| n.op == "MatMul").unwrap();
        assert_eq!(multiply.inputs[1], format!("{w}:{}", dtype.name()));
        let (got, want) = (run(&other), run(&b.model));
        let worst = got[0].to_f64().iter().zip(want[0].to_f64()).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(worst > 0.0 && worst < tolerance, "{dtype:?}: {worst}");
        assert_eq!(got[1].dtype(), DType::I64);
    }
}

/// Angles of positions, and buckets of distances, that 16 bits do not tell apart.
#[test]
fn positions_are_exact_in_other_types() {
    let mut b = Builder::new(17, 3);
    let positions = b.input_of(HostTensor::from_i64(&[1, 4], &[3, 2049, 30001, 49999]));
    let distances = b.input_of(HostTensor::from_f32(&[4], &[0.5, 257.0, 4099.0, 8191.0]));
    let frequencies = b.constant(HostTensor::from_f32(&[8, 1], &[1.0, 0.7, 0.5, 0.3, 0.2, 0.1, 0.05, 0.01]));
    let (x, two) = (b.input(&[8, 4]), b.constant(HostTensor::from_f32(&[], &[2.0])));
    let floats = b.node("Cast", &[&positions], &[("to", Attribute::Int(1))]);
    let angles = b.node("MatMul", &[&frequencies, &floats], &[]);
    let (cos, sin) = (b.node("Cos", &[&angles], &[]), b.node("Sin", &[&angles], &[]));
    let turned = [b.node("Mul", &[&x, &cos], &[]), b.node("Mul", &[&x, &sin], &[])];
    let sum = b.node("Sub", &[&turned[0], &turned[1]], &[]);
    let halves = b.node("Div", &[&distances, &two], &[]);
    let bucket = b.node("Cast", &[&halves], &[("to", Attribute::Int(7))]);
    b.output(&sum);
    b.output(&bucket);
    for target in [Target::GFX906, Target::GFX1100] {
        let device: Arc<dyn Device> = Arc::new(EmulatedDevice::new(target, true).unwrap());
        let run = |m: &Model| {
            let compiled = compiler(target, KernelCache::in_memory()).compile(m, &Shapes::default()).unwrap();
            Session::new(device.clone(), &compiled).unwrap().run(&b.inputs).unwrap().0
        };
        let want = run(&b.model);
        for (dtype, tolerance) in [(DType::F16, 2e-3), (DType::BF16, 2e-2)] {
            let got = run(&barewave::graph::in_type(&b.model, dtype).unwrap());
            let worst = got[0].to_f64().iter().zip(want[0].to_f64()).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(worst > 0.0 && worst < tolerance, "{target} {dtype:?}: {worst}");
            assert_eq!(got[1], want[1]);
        }
    }
}

/// The digits inside of an If, whose other branch says no; weights and image are read from outside.
fn digits_if_asked() -> Model {
    let mut m = load("examples/digits/digits.onnx");
    let name = m.graph.outputs[0].name.clone();
    let text = |s: &str| s.to_string();
    let node = |op: &str, inputs: &[&str], outputs: &[&str]| Node {
        name: text(op),
        op: text(op),
        domain: String::new(),
        inputs: inputs.iter().map(|s| text(s)).collect(),
        outputs: outputs.iter().map(|s| text(s)).collect(),
        attributes: Default::default(),
    };
    let result = |name: &str| vec![ValueInfo { name: name.into(), dtype: None, shape: None }];
    let branch = |nodes: Vec<Node>, output: &str| {
        Attribute::Graph(Box::new(Graph { nodes, outputs: result(output), ..Graph::default() }))
    };
    let digits = std::mem::take(&mut m.graph.nodes);
    let mut asked = node("If", &["asked"], &["answer"]);
    asked.attributes.insert("then_branch".into(), branch(digits, &name));
    asked.attributes.insert("else_branch".into(), branch(vec![node("Neg", &["image"], &["no"])], "no"));
    m.graph.nodes = vec![asked];
    m.graph.outputs = result("answer");
    m.graph.inputs.push(ValueInfo { name: "asked".into(), dtype: Some(DType::Bool), shape: Some(Vec::new()) });
    m
}

#[test]
fn graphs_inside_of_nodes_compute_in_other_types() {
    let model = digits_if_asked();
    let device: Arc<dyn Device> = Arc::new(EmulatedDevice::new(Target::GFX942, true).unwrap());
    let asked = HostTensor::new(DType::Bool, &[], vec![1]).unwrap();
    let run = |m: &Model| {
        let c = compiler(Target::GFX942, KernelCache::in_memory());
        let mut any = AnyShape::new(device.clone(), c, Arc::new(m.clone()), 1);
        any.run(&[image(), asked.clone()]).unwrap().0.remove(0).to_f64()
    };
    let want = run(&model);
    for (dtype, tolerance) in [(DType::F16, 2e-3), (DType::BF16, 2e-2)] {
        let got = run(&barewave::graph::in_type(&model, dtype).unwrap());
        let worst = got.iter().zip(&want).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(worst > 0.0 && worst < tolerance, "{dtype:?}: {worst}");
    }
}

/// Every model of ONNX's suite that can be read can be converted, and keeps its inputs and outputs.
#[test]
fn every_model_converts() {
    let Some(data) = std::env::var_os("BAREWAVE_ONNX_DATA") else { return };
    let mut converted = 0;
    for case in std::fs::read_dir(Path::new(&data).join("node")).unwrap() {
        let Ok(model) = Model::load(&case.unwrap().path().join("model.onnx")) else { continue };
        for dtype in [DType::F16, DType::BF16] {
            if let Ok(other) = barewave::graph::in_type(&model, dtype) {
                assert_eq!((&other.graph.inputs, &other.graph.outputs), (&model.graph.inputs, &model.graph.outputs));
                converted += 1;
            }
        }
    }
    assert!(converted > 3000, "{converted}");
}
