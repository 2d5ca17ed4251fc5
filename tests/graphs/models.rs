//! Whole models through import, fusion and the host interpreter, compared with what onnxruntime computed. The larger ones
//! run in `device_models`.

use crate::support;
use barewave::graph::interpret::Interpreter;
use barewave::graph::{self, Options, plan};
use barewave::onnx::Model;
use barewave::tensor::{DType, HostTensor, ImageOptions, InputSpec, Wanted, compare, load_image, load_npz};
use std::path::Path;

fn random(shape: &[usize], seed: u64) -> HostTensor {
    let dims: Vec<String> = shape.iter().map(usize::to_string).collect();
    let spec: InputSpec = format!("{}xf32=random:{seed}", dims.join("x")).parse().unwrap();
    let wanted = Wanted { name: "x".into(), dtype: DType::F32, shape: shape.to_vec() };
    spec.load(&wanted, &ImageOptions::default()).unwrap()
}

#[test]
fn light_models_fuse_into_few_kernels() {
    let expected = [
        ("bvlc_alexnet", 14),
        ("densenet121", 188),
        ("inception_v1", 66),
        ("inception_v2", 74),
        ("resnet50", 57),
        ("shufflenet", 75),
        ("squeezenet", 31),
        ("vgg19", 25),
        ("zfnet512", 14),
    ];
    for (name, steps) in expected {
        let Some(path) = support::light(name) else { return };
        let model = Model::load(&path).unwrap();
        let fused = graph::fuse(&model, &Options::default()).unwrap();
        assert_eq!(fused.steps.len(), steps, "{name}");
        let p = plan::plan(&fused, |_| true, |_| 0, &mut plan::WeightsRegion::default());
        assert!(p.arena_bytes < p.sum_bytes * 3 / 4, "{name}: {} of {}", p.arena_bytes, p.sum_bytes);
    }
}

#[test]
fn digits_are_recognised_as_reported() {
    let model = Model::load(Path::new("examples/digits/digits.onnx")).unwrap();
    let fused = graph::fuse(&model, &Options::default()).unwrap();
    let data = load_npz(Path::new("examples/digits/held_out.npz")).unwrap();
    let (images, labels) = (data["images"].to_f64(), data["labels"].to_i64());
    let mut right = 0;
    for (pixels, &label) in images.chunks(64).zip(&labels) {
        let x: Vec<f64> = pixels.iter().map(|p| p / 16.0).collect();
        let x = HostTensor::from_f64(DType::F32, &[1, 1, 8, 8], &x);
        let y = Interpreter::new(&fused).run(&fused, &[x]).unwrap().remove(0);
        right += usize::from(barewave::tensor::top_k(&y, 1)[0].0 as i64 == label);
    }
    assert_eq!(format!("{right}/{}", labels.len()), model.metadata["accuracy"]);
}

#[test]
fn digit_images_are_read_as_the_metadata_says() {
    let model = Model::load(Path::new("examples/digits/digits.onnx")).unwrap();
    let fused = graph::fuse(&model, &Options::default()).unwrap();
    let options = ImageOptions::from_metadata(&model.metadata).unwrap();
    for digit in 0..10 {
        let path = format!("examples/digits/{digit}.png");
        let x = load_image(Path::new(&path), DType::F32, &[1, 1, 8, 8], &options).unwrap();
        let y = Interpreter::new(&fused).run(&fused, &[x]).unwrap().remove(0);
        assert_eq!(barewave::tensor::top_k(&y, 1)[0].0, digit);
    }
}

#[test]
fn lenet_matches_on_many_inputs() {
    let model = Model::load(Path::new("examples/lenet/lenet.onnx")).unwrap();
    let fused = graph::fuse(&model, &Options::default()).unwrap();
    assert_eq!(fused.steps.len(), 3);
    let want = load_npz(Path::new("tests/models/lenet.npz")).unwrap();
    let sums = want["sums"].to_f64();
    // Every 20th here; the device tests run all of them.
    for seed in (0..1000).step_by(20) {
        let y = Interpreter::new(&fused).run(&fused, &[random(&[1, 3, 28, 28], seed as u64)]).unwrap().remove(0);
        let v = y.to_f64();
        let n = v.len() as f64;
        let weighted: f64 = v.iter().enumerate().map(|(i, x)| x * (i + 1) as f64 / n).sum();
        let got = [v.iter().sum(), v.iter().map(|x| x * x).sum(), weighted];
        for (g, w) in got.iter().zip(&sums[seed * 3..]) {
            assert!((g - w).abs() <= 1e-5 * w.abs().max(1.0), "seed {seed}: {g} instead of {w}");
        }
        if seed == 0 {
            let first = want["first"].reshaped(y.shape()).unwrap();
            assert!(compare(&y, &first, 0.0, 0.0).unwrap().relative() < 1e-5);
        }
    }
}
