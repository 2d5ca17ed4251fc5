//! Whole models on emulated devices: every instruction is executed from the ELF bytes that the compiler writes.
//!
//! The architectures of the ONNX backend suite (`light_*`) are read from `BAREWAVE_ONNX_DATA`, a directory such as
//! `onnx/backend/test/data` of the onnx 1.22 wheel; without it those tests have nothing to check and say so.

use crate::support;
use crate::support::agree::outputs_on;
use crate::support::build::Builder;
use crate::support::device::{TARGETS, run, session};
use barewave::graph::{self, Options};
use barewave::onnx::Model;
use barewave::tensor::{DType, HostTensor, ImageOptions, InputSpec, Wanted, compare, load_image, load_npz, top_k};
use barewave_isa::Target;
use std::path::{Path, PathBuf};

fn fused(path: &str) -> (Model, graph::fused::FusedGraph) {
    let model = Model::load(Path::new(path)).unwrap();
    let fused = graph::fuse(&model, &Options::default()).unwrap();
    (model, fused)
}

fn random(shape: &[usize], seed: u64) -> HostTensor {
    let dims: Vec<String> = shape.iter().map(usize::to_string).collect();
    let spec: InputSpec = format!("{}xf32=random:{seed}", dims.join("x")).parse().unwrap();
    let wanted = Wanted { name: "x".into(), dtype: DType::F32, shape: shape.to_vec() };
    spec.load(&wanted, &ImageOptions::default()).unwrap()
}

#[test]
fn digits_reach_the_reported_accuracy_on_every_target() {
    let (model, graph) = fused("examples/digits/digits.onnx");
    let data = load_npz(Path::new("examples/digits/held_out.npz")).unwrap();
    let (images, labels) = (data["images"].to_f64(), data["labels"].to_i64());
    assert_eq!(labels.len(), 450);
    for target in Target::all().map(|t| t.info().name) {
        let (mut session, _) = session(&graph, target, false).unwrap();
        let mut right = 0;
        for (pixels, &label) in images.chunks(64).zip(&labels) {
            let x: Vec<f64> = pixels.iter().map(|p| p / 16.0).collect();
            let (y, _) = session.run(&[HostTensor::from_f64(DType::F32, &[1, 1, 8, 8], &x)]).unwrap();
            right += usize::from(top_k(&y[0], 1)[0].0 as i64 == label);
        }
        assert_eq!(format!("{right}/450"), model.metadata["accuracy"], "{target}");
    }
}

#[test]
fn vector_add_adds() {
    let (_, graph) = fused("examples/vector_add/vector_add.onnx");
    let shapes: Vec<Vec<usize>> = graph.inputs.iter().map(|i| graph.tensor(*i).shape.clone()).collect();
    let inputs: Vec<HostTensor> = shapes.iter().enumerate().map(|(i, s)| random(s, i as u64)).collect();
    for target in TARGETS {
        let (out, _) = run(&graph, &inputs, target, true).unwrap();
        let want: Vec<f32> = inputs[0].to_f32().iter().zip(inputs[1].to_f32()).map(|(a, b)| a + b).collect();
        assert_eq!(out[0].to_f32(), want, "{target}");
    }
}

#[test]
fn lenet_matches_onnxruntime_on_a_thousand_inputs() {
    let (_, graph) = fused("examples/lenet/lenet.onnx");
    let want = load_npz(Path::new("tests/models/lenet.npz")).unwrap();
    let sums = want["sums"].to_f64();
    let (mut vega, _) = session(&graph, "gfx906", false).unwrap();
    let (mut rdna, _) = session(&graph, "gfx1100", false).unwrap();
    for seed in 0..1000 {
        let device = if seed % 2 == 0 { &mut vega } else { &mut rdna };
        let (y, _) = device.run(&[random(&[1, 3, 28, 28], seed as u64)]).unwrap();
        let v = y[0].to_f64();
        let n = v.len() as f64;
        let weighted: f64 = v.iter().enumerate().map(|(i, x)| x * (i + 1) as f64 / n).sum();
        for (g, w) in [v.iter().sum(), v.iter().map(|x| x * x).sum(), weighted].iter().zip(&sums[seed * 3..]) {
            assert!((g - w).abs() <= 1e-4 * w.abs().max(1.0), "seed {seed}: {g} instead of {w}");
        }
        if seed < 2 {
            let first = want["first"].reshaped(y[0].shape()).unwrap();
            assert!(seed > 0 || compare(&y[0], &first, 0.0, 0.0).unwrap().relative() < 1e-5);
        }
    }
}

#[test]
fn super_resolution_matches_onnxruntime() {
    let (model, graph) = fused("examples/super_resolution/super_resolution.onnx");
    let options = ImageOptions::from_metadata(&model.metadata).unwrap();
    let picture = Path::new("examples/super_resolution/picture.png");
    let x = load_image(picture, DType::F32, &[1, 3, 64, 64], &options).unwrap();
    let want = load_npz(Path::new("tests/models/super_resolution.npz")).unwrap()["result"].to_f64();
    for target in ["gfx942", "gfx1030"] {
        let (y, report) = run(&graph, std::slice::from_ref(&x), target, false).unwrap();
        assert!(report.launches >= 37, "37 convolutions");
        let y = y[0].to_f64();
        let every_third = |c: usize| (0..256).step_by(3).flat_map(move |r| (0..256).step_by(3).map(move |k| (c, r, k)));
        let points: Vec<(usize, usize, usize)> = (0..3).flat_map(every_third).collect();
        assert_eq!(points.len(), want.len());
        for ((c, row, column), w) in points.into_iter().zip(&want) {
            let got = y[(c * 256 + row) * 256 + column];
            assert!((got - w).abs() < 1e-4, "{target}, channel {c} row {row} column {column}: {got} for {w}");
        }
    }
}

#[test]
fn real_architectures_match_onnxruntime() {
    let cases: [(&str, &[&str]); 9] = [
        ("squeezenet", &["gfx906", "gfx90a", "gfx1100"]),
        ("resnet50", &["gfx942", "gfx1030"]),
        ("shufflenet", &["gfx906", "gfx1100"]),
        ("densenet121", &["gfx90a"]),
        ("inception_v1", &["gfx1030"]),
        ("inception_v2", &["gfx1100"]),
        ("bvlc_alexnet", &["gfx942"]),
        ("zfnet512", &["gfx906"]),
        ("vgg19", &["gfx1100"]),
    ];
    for (name, targets) in cases {
        let Some(path) = support::light(name) else {
            println!("skipped: BAREWAVE_ONNX_DATA does not name the onnx backend data");
            return;
        };
        // Constant weights hide indexing errors: seeded random ones replace them.
        let mut model = Model::load(&path).unwrap();
        model.seed_weights(1);
        if let Some(at) = model.graph.nodes.iter().position(|n| n.op == "Softmax") {
            let logits = model.graph.nodes[at].inputs[0].clone();
            model.graph.nodes.truncate(at);
            model.graph.outputs[0].name = logits;
        }
        let graph = graph::fuse(&model, &Options::default()).unwrap();
        let want = &load_npz(Path::new(&format!("tests/models/light_{name}.npz"))).unwrap()["logits"];
        for target in targets {
            let (y, _) = run(&graph, &[random(&[1, 3, 224, 224], 7)], target, false).unwrap();
            let c = compare(&y[0], want, 0.0, 0.0).unwrap();
            println!("{name} on {target}: {c}");
            assert!(c.relative() < 1e-4, "{name} on {target}: {c}");
        }
    }
}

#[test]
fn no_kernel_of_a_real_model_spills() {
    let mut models = vec![PathBuf::from("examples/super_resolution/super_resolution.onnx")];
    for name in ["bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet", "squeezenet"]
    {
        models.extend(support::light(name));
    }
    for path in models {
        let (_, graph) = fused(path.to_str().unwrap());
        for target in TARGETS {
            let (_, program) = session(&graph, target, false).unwrap();
            for k in program.stats() {
                assert_eq!(k.spills, 0, "{} on {target}: {}", path.display(), k.kernel);
            }
        }
    }
}

/// Of images whose rows end within words elements come one by one, each in a register.
#[test]
fn no_convolution_of_an_odd_image_spills() {
    for (target, t) in [("gfx1100", DType::F16), ("gfx1100", DType::I8), ("gfx1201", DType::I8), ("gfx942", DType::F16)]
    {
        for [inputs, outputs] in [[512, 2048], [2048, 512]] {
            let mut b = Builder::new(23, 7);
            let values = |b: &mut Builder, shape: &[usize]| HostTensor::from_f64(t, shape, &b.random(shape).to_f64());
            let (x, w) = (values(&mut b, &[1, inputs, 7, 7]), values(&mut b, &[outputs, inputs, 1, 1]));
            let (x, w) = (b.input_of(x), b.constant(w));
            let y = b.node(if t == DType::I8 { "ConvInteger" } else { "Conv" }, &[&x, &w], &[]);
            b.output(&y);
            let graph = graph::fuse(&b.model, &Options::default()).unwrap();
            let (_, program) = session(&graph, target, false).unwrap();
            for k in program.stats() {
                assert_eq!(k.spills, 0, "{inputs} to {outputs} channels of {t} on {target}: {}", k.kernel);
            }
        }
    }
}

#[test]
fn of_1024_registers_kernels_use_those_that_operands_can_name() {
    let mut b = Builder::new(23, 7);
    let [q, k, v] = [4, 6, 6].map(|tokens| b.input(&[2, 3, tokens, 8]));
    let (mask, past) = (b.input(&[4, 18]), [0; 2].map(|_| b.input(&[2, 3, 12, 8])));
    let y = b.node_n("Attention", &[&q, &k, &v, &mask, &past[0], &past[1]], &[], 3);
    y.iter().for_each(|o| b.output(o));
    outputs_on(&b, "attention with a past", 1e-5, &["gfx1250"]);
}

#[test]
fn workgroups_of_gfx1250_count_who_is_the_last() {
    let mut b = Builder::new(17, 3);
    let (x, w) = (b.input(&[8, 8192]), b.weight(&[8192, 16]));
    let y = b.node("MatMul", &[&x, &w], &[]);
    b.output(&y);
    outputs_on(&b, "a product of great depth", 1e-5, &["gfx1250"]);
}
