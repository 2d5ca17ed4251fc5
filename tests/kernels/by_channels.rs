//! Convolutions by channels, of images whose channels come last, in strict mode: channels that do and do not fill tiles, windows that reach past the
//! image and pass over parts of it, several images, results of either order, shared depths; and what stands between them in networks, which walks
//! images in either order.

use crate::support::agree::close;
use crate::support::build::{Builder, int, ints, text};
use crate::support::drawn;
use barewave::graph::Options as Shapes;
use barewave::kernels::{Tuning, When};
use barewave::onnx::Attribute;
use barewave::runtime::{EmulatedDevice, Session};
use barewave::tensor::{DType, HostTensor};
use barewave::{Compiler, Options};
use barewave_isa::Target;
use std::sync::Arc;

const TARGETS: [&str; 6] = ["gfx906", "gfx90a", "gfx950", "gfx1030", "gfx1100", "gfx1201"];

/// Two convolutions one behind the other, with a sum of both, of an image with so many channels: what is between them may have its channels last.
fn network(t: DType, image: &[usize], [between, last]: [usize; 2], window: [usize; 2], more: [usize; 3]) -> Builder {
    let mut b = Builder::new(22, (image[1] + between) as u64);
    let random = |b: &mut Builder, shape: &[usize], by: f64| {
        let x: Vec<f64> = b.random(shape).to_f64().iter().map(|x| x * by).collect();
        HostTensor::from_f64(t, shape, &x)
    };
    let [stride, dilation, pad] = more;
    let (x, by) = (random(&mut b, image, 1.0), 1.0 / (image[1] as f64).sqrt());
    let (w, bias) = (random(&mut b, &[between, image[1], 1, 1], by), random(&mut b, &[between], 1.0));
    let x = b.input_of(x);
    let (w, bias) = (b.constant(w), b.constant(bias));
    let y = b.node("Conv", &[&x, &w, &bias], &[]);
    let y = b.node("Relu", &[&y], &[]);
    let by = 1.0 / ((between * window[0] * window[1]) as f64).sqrt();
    let (w, bias) = (random(&mut b, &[between, between, window[0], window[1]], by), random(&mut b, &[between], 1.0));
    let (w, bias) = (b.constant(w), b.constant(bias));
    let attributes = [
        ("pads", ints(&[pad; 4])),
        ("strides", ints(&[stride; 2])),
        ("dilations", ints(&[dilation; 2])),
        ("auto_pad", Attribute::Text("NOTSET".into())),
    ];
    let z = b.node("Conv", &[&y, &w, &bias], &attributes);
    let z = b.node("Tanh", &[&z], &[]);
    let w = random(&mut b, &[last, between, 1, 1], 1.0 / (between as f64).sqrt());
    let w = b.constant(w);
    let out = b.node("Conv", &[&z, &w], &[]);
    b.output(&out);
    b
}

fn run(b: &Builder, target: Target, when: When) -> (Vec<f64>, usize) {
    let mut tuning = Tuning::default();
    tuning.set_channels_last(when);
    let options = Options { tuning: Arc::new(tuning), ..Options::default() };
    let compiled = Compiler::new(target, options).compile(&b.model, &Shapes::default()).unwrap();
    let device = EmulatedDevice::new(target, true).unwrap();
    let (outputs, _) = Session::new(Arc::new(device), &compiled).unwrap().run(&b.inputs).unwrap();
    (outputs.iter().flat_map(HostTensor::to_f64).collect(), compiled.weights_len())
}

#[test]
fn channels_that_come_last_change_nothing() {
    // Image, channels between convolutions and of the result, window, stride, dilation and padding.
    let cases: [(&[usize], [usize; 2], [usize; 2], [usize; 3]); 7] = [
        (&[1, 24, 9, 11], [64, 40], [3, 3], [1, 1, 1]),
        (&[3, 32, 7, 5], [40, 5], [3, 3], [2, 1, 1]),
        (&[2, 8, 12, 10], [72, 33], [5, 2], [1, 2, 2]),
        (&[1, 40, 10, 17], [96, 64], [1, 1], [1, 1, 0]),
        (&[1, 16, 5, 3], [160, 16], [3, 3], [1, 1, 1]),
        (&[2, 16, 8, 9], [48, 32], [1, 1], [2, 1, 1]),
        (&[4, 40, 4, 4], [128, 24], [4, 4], [1, 1, 3]),
    ];
    let mut turned = 0;
    for (image, channels, window, more) in cases {
        for (t, most) in [(DType::F16, 4e-3), (DType::BF16, 3e-2)] {
            for target in TARGETS {
                let what = format!("{target} {t} {image:?} {channels:?} {window:?} {more:?}");
                if !drawn(&what) {
                    continue;
                }
                let b = network(t, image, channels, window, more);
                let target = Target::parse(target).unwrap();
                let (got, weights) = run(&b, target, When::Always);
                let (want, others) = run(&b, target, When::Never);
                close(&got, &want, most, &what);
                turned += usize::from(weights != others);
            }
        }
    }
    assert!(turned > 5, "{turned}");
}

/// A block of a network that removes noise from images, small: normalisations of groups, what is added to each channel of an image, a concatenation, tokens
/// that are normalised and multiplied, a residual, doubled images, pooled ones.
fn block(t: DType, images: usize, channels: usize, [h, w]: [usize; 2]) -> Builder {
    let mut b = Builder::new(22, (images * channels + h) as u64);
    let groups = 8;
    let random = |b: &mut Builder, shape: &[usize], by: f64| {
        let x: Vec<f64> = b.random(shape).to_f64().iter().map(|x| x * by).collect();
        HostTensor::from_f64(t, shape, &x)
    };
    let conv = |b: &mut Builder, x: &str, [from, to, window]: [usize; 3]| {
        let weights = random(b, &[to, from, window, window], 1.0 / ((from * window * window) as f64).sqrt());
        let (weights, bias) = (b.constant(weights), random(b, &[to], 1.0));
        let bias = b.constant(bias);
        b.node("Conv", &[x, &weights, &bias], &[("pads", ints(&[window / 2; 4]))])
    };
    let normal = |b: &mut Builder, x: &str, channels: usize| {
        let (scale, bias) = (random(b, &[channels], 1.0), random(b, &[channels], 1.0));
        let (scale, bias) = (b.constant(scale), b.constant(bias));
        let x = b.node("GroupNormalization", &[x, &scale, &bias], &[("num_groups", int(groups))]);
        let gate = b.node("Sigmoid", &[&x], &[]);
        b.node("Mul", &[&x, &gate], &[])
    };
    let (x, time) = (random(&mut b, &[images, 4, h, w], 1.0), random(&mut b, &[images, channels], 1.0));
    let (x, time) = (b.input_of(x), b.input_of(time));
    let x = conv(&mut b, &x, [4, channels, 3]);
    let y = normal(&mut b, &x, channels);
    let y = conv(&mut b, &y, [channels, channels, 3]);
    let axes = b.ints(&[2, 3]);
    let time = b.node("Unsqueeze", &[&time, &axes], &[]);
    let y = b.node("Add", &[&y, &time], &[]);
    let y = normal(&mut b, &y, channels);
    let y = conv(&mut b, &y, [channels, channels, 3]);
    let y = b.node("Concat", &[&y, &x], &[("axis", int(1))]);
    let z = normal(&mut b, &y, 2 * channels);
    let z = conv(&mut b, &z, [2 * channels, channels, 3]);
    let flat = b.ints(&[0, 0, -1]);
    let tokens = b.node("Reshape", &[&z, &flat], &[]);
    let tokens = b.node("Transpose", &[&tokens], &[("perm", ints(&[0, 2, 1]))]);
    let (scale, bias) = (random(&mut b, &[channels], 1.0), random(&mut b, &[channels], 1.0));
    let (scale, bias) = (b.constant(scale), b.constant(bias));
    let lines = b.node("LayerNormalization", &[&tokens, &scale, &bias], &[]);
    let weights = random(&mut b, &[channels, channels], 1.0 / (channels as f64).sqrt());
    let weights = b.constant(weights);
    let lines = b.node("MatMul", &[&lines, &weights], &[]);
    let lines = b.node("Add", &[&lines, &tokens], &[]);
    let lines = b.node("Transpose", &[&lines], &[("perm", ints(&[0, 2, 1]))]);
    let image = b.ints(&[0, 0, h as i64, w as i64]);
    let lines = b.node("Reshape", &[&lines, &image], &[]);
    let z = conv(&mut b, &lines, [channels, channels, 1]);
    let z = b.node("Add", &[&z, &x], &[]);
    let scales = b.constant(HostTensor::from_f64(DType::F32, &[4], &[1.0, 1.0, 2.0, 2.0]));
    let large = b.node("Resize", &[&z, "", &scales], &[("mode", text("nearest"))]);
    let large = conv(&mut b, &large, [channels, channels, 3]);
    let window = [("kernel_shape", ints(&[2, 2])), ("strides", ints(&[2, 2]))];
    let small = b.node("AveragePool", &[&large], &window);
    let small = conv(&mut b, &small, [channels, 5, 3]);
    let mean = b.node("GlobalAveragePool", &[&large], &[]);
    b.output(&small);
    b.output(&mean);
    b
}

#[test]
fn what_stands_between_convolutions_walks_images_in_either_order() {
    let mut turned = 0;
    for (images, channels, image) in [(1, 32, [5, 7]), (2, 40, [8, 8]), (3, 64, [6, 3])] {
        for target in TARGETS {
            let what = format!("{target} {images} {channels} {image:?}");
            if !drawn(&what) {
                continue;
            }
            let b = block(DType::F16, images, channels, image);
            let target = Target::parse(target).unwrap();
            let (got, weights) = run(&b, target, When::Always);
            let (want, others) = run(&b, target, When::Never);
            close(&got, &want, 1e-2, &what);
            turned += usize::from(weights != others);
        }
    }
    assert!(turned > 3, "{turned}");
}
