//! Convolutions by channels, of images whose channels come last, in strict mode: channels that do and do not fill tiles, windows that reach past the
//! image and pass over parts of it, several images, results of either order, shared depths; of floats of 16 bits and of bytes; and what stands between them in networks,
//! which walks images in either order.

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

/// Random elements, multiplied by something.
fn random(b: &mut Builder, t: DType, shape: &[usize], by: f64) -> HostTensor {
    let x: Vec<f64> = b.random(shape).to_f64().iter().map(|x| x * by).collect();
    HostTensor::from_f64(t, shape, &x)
}

/// Two convolutions one behind the other, with a sum of both, of an image with so many channels: what is between them may have its channels last.
fn network(t: DType, image: &[usize], [between, last]: [usize; 2], window: [usize; 2], more: [usize; 3]) -> Builder {
    let mut b = Builder::new(22, (image[1] + between) as u64);
    let random = |b: &mut Builder, shape: &[usize], by: f64| random(b, t, shape, by);
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

/// All outputs, and how many bytes the weights take.
fn run(b: &Builder, target: Target, when: When) -> (Vec<Vec<f64>>, usize) {
    let mut tuning = Tuning::default();
    tuning.set_channels_last(when);
    let options = Options { tuning: Arc::new(tuning), ..Options::default() };
    let mut model = b.model.clone();
    model.expand();
    let compiled = Compiler::new(target, options).compile(&model, &Shapes::default()).unwrap();
    let device = EmulatedDevice::new(target, true).unwrap();
    let (outputs, _) = Session::new(Arc::new(device), &compiled).unwrap().run(&b.inputs).unwrap();
    (outputs.iter().map(HostTensor::to_f64).collect(), compiled.weights_len())
}

/// Runs a network of floats with channels last and first, and compares; true where something was turned.
fn agrees(b: &Builder, target: &str, most: f64, what: &str) -> bool {
    let target = Target::parse(target).unwrap();
    let (got, weights) = run(b, target, When::Always);
    let (want, others) = run(b, target, When::Never);
    close(&got.concat(), &want.concat(), most, what);
    weights != others
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
                turned += usize::from(agrees(&b, target, most, &what));
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
    let random = |b: &mut Builder, shape: &[usize], by: f64| random(b, t, shape, by);
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
            turned += usize::from(agrees(&b, target, 1e-2, &what));
        }
    }
    assert!(turned > 3, "{turned}");
}

/// A first layer, to which something of each image is added, and a convolution of what it gives: results of the first may have their channels last.
fn first_layer(t: DType, image: &[usize], channels: usize, window: [usize; 2], more: [usize; 3]) -> Builder {
    let mut b = Builder::new(22, (image[1] + channels) as u64);
    let [stride, dilation, pad] = more;
    let (x, time) = (random(&mut b, t, image, 1.0), random(&mut b, t, &[image[0], channels, 1, 1], 1.0));
    let (x, time) = (b.input_of(x), b.input_of(time));
    let by = 1.0 / ((image[1] * window[0] * window[1]) as f64).sqrt();
    let weights = random(&mut b, t, &[channels, image[1], window[0], window[1]], by);
    let (weights, bias) = (b.constant(weights), random(&mut b, t, &[channels], 1.0));
    let bias = b.constant(bias);
    let attributes = [("pads", ints(&[pad; 4])), ("strides", ints(&[stride; 2])), ("dilations", ints(&[dilation; 2]))];
    let y = b.node("Conv", &[&x, &weights, &bias], &attributes);
    let y = b.node("Add", &[&y, &time], &[]);
    let y = b.node("Relu", &[&y], &[]);
    let weights = random(&mut b, t, &[33, channels, 3, 3], 1.0 / (3.0 * (channels as f64).sqrt()));
    let weights = b.constant(weights);
    let out = b.node("Conv", &[&y, &weights], &[("pads", ints(&[1; 4]))]);
    b.output(&out);
    b
}

#[test]
fn first_layers_give_channels_that_come_last() {
    let cases: [(&[usize], usize, [usize; 2], [usize; 3]); 6] = [
        (&[1, 3, 29, 31], 64, [7, 7], [2, 1, 3]),
        (&[3, 3, 17, 15], 40, [3, 3], [2, 1, 1]),
        (&[2, 3, 20, 24], 96, [4, 4], [4, 1, 0]),
        (&[2, 5, 9, 14], 72, [1, 1], [1, 1, 0]),
        (&[1, 16, 12, 11], 136, [3, 2], [1, 2, 2]),
        (&[3, 4, 8, 8], 32, [1, 1], [1, 1, 0]),
    ];
    let mut turned = 0;
    for (image, channels, window, more) in cases {
        for (t, most) in [(DType::F16, 4e-3), (DType::BF16, 3e-2)] {
            for target in TARGETS.iter().chain(&["gfx942"]) {
                let what = format!("{target} {t} {image:?} {channels} {window:?} {more:?}");
                if !drawn(&what) {
                    continue;
                }
                let b = first_layer(t, image, channels, window, more);
                turned += usize::from(agrees(&b, target, most, &what));
            }
        }
    }
    assert!(turned > 5, "{turned}");
}

/// Parameters of what is quantised.
struct Grid {
    scale: String,
    zero: String,
}

/// A scale, and a zero point of the type.
fn grid(b: &mut Builder, t: DType, scale: f32, zero: i64) -> Grid {
    let scale = b.constant(HostTensor::from_f32(&[], &[scale]));
    Grid { scale, zero: b.constant(HostTensor::from_ints(t, &[], &[zero])) }
}

/// Quantises and takes that back, where a model is told to with the bytes and what is made of them among its outputs.
fn quantised(b: &mut Builder, x: &str, grid: &Grid, seen: bool) -> String {
    let bytes = b.node("QuantizeLinear", &[x, &grid.scale, &grid.zero], &[]);
    let y = b.node("DequantizeLinear", &[&bytes, &grid.scale, &grid.zero], &[]);
    if seen {
        b.output(&bytes);
        b.output(&y);
    }
    y
}

/// A convolution by weights of bytes with a scale for each channel.
fn convolved(b: &mut Builder, x: &str, shape: &[usize], attributes: &[(&'static str, Attribute)]) -> String {
    let of = shape[1..].iter().product::<usize>() as f32;
    let bytes: Vec<i64> = (0..shape.iter().product()).map(|_| b.below(255) as i64 - 127).collect();
    let scales: Vec<f32> = (0..shape[0]).map(|i| (1.0 + (i % 5) as f32 / 4.0) / 73.0 / of.sqrt()).collect();
    let w = b.constant(HostTensor::from_ints(DType::I8, shape, &bytes));
    let scales = b.constant(HostTensor::from_f32(&[shape[0]], &scales));
    let zeros = b.constant(HostTensor::from_ints(DType::I8, &[shape[0]], &vec![0; shape[0]]));
    let w = b.node("DequantizeLinear", &[&w, &scales, &zeros], &[("axis", int(0))]);
    let bias = b.weight(&[shape[0]]);
    b.node("Conv", &[x, &w, &bias], attributes)
}

/// Quantised convolutions one behind the other, the last one's sums added to those of a shorter way, and a pool and a convolution of that.
fn quantised_network(t: DType, image: &[usize], case: ([usize; 2], [usize; 2], [usize; 3]), seen: bool) -> Builder {
    let ([between, last], window, more) = case;
    let [stride, dilation, pad] = more;
    let mut b = Builder::new(19, (image[1] + between) as u64);
    let x: Vec<f64> = b.random(image).to_f64();
    let x = b.input_of(HostTensor::from_f64(DType::F32, image, &x));
    let zero = |at: i64| if t == DType::I8 { 0 } else { at };
    let [of_x, of_y, of_z, of_sum] =
        [(0.0079, 113), (0.013, 0), (0.017, 131), (0.021, 7)].map(|(s, z)| grid(&mut b, t, s, zero(z)));
    let x = quantised(&mut b, &x, &of_x, seen);
    let y = convolved(&mut b, &x, &[between, image[1], 1, 1], &[]);
    let y = b.node("Relu", &[&y], &[]);
    let y = quantised(&mut b, &y, &of_y, seen);
    let attributes = [("pads", ints(&[pad; 4])), ("strides", ints(&[stride; 2])), ("dilations", ints(&[dilation; 2]))];
    let weights = [between, between, window[0], window[1]];
    let long = convolved(&mut b, &y, &weights, &attributes);
    let long = quantised(&mut b, &long, &of_z, seen);
    let long = convolved(&mut b, &long, &[last, between, 3, 3], &[("pads", ints(&[1; 4]))]);
    let long = quantised(&mut b, &long, &of_z, seen);
    // With nothing around the image, where that gives as many results.
    let short = match (window, more) {
        ([3, 3], [_, 1, 1]) => convolved(&mut b, &y, &[last, between, 1, 1], &attributes[1..2]),
        _ => convolved(&mut b, &y, &[last, between, window[0], window[1]], &attributes),
    };
    let short = quantised(&mut b, &short, &of_x, seen);
    let sum = b.node("Add", &[&long, &short], &[]);
    let sum = quantised(&mut b, &sum, &of_sum, seen);
    let pooled = [("kernel_shape", ints(&[2, 2])), ("strides", ints(&[1, 1])), ("pads", ints(&[1; 4]))];
    let out = b.node("MaxPool", &[&sum], &pooled);
    let out = quantised(&mut b, &out, &of_sum, seen);
    b.output(&out);
    let out = convolved(&mut b, &sum, &[last, last, 1, 1], &[]);
    b.output(&out);
    b
}

/// The last two outputs of a model.
fn last_of(b: &Builder, target: Target, when: When) -> (Vec<Vec<f64>>, usize) {
    let (outputs, weights) = run(b, target, when);
    (outputs[outputs.len() - 2..].to_vec(), weights)
}

/// What is stored in bytes, and with its channels last, is what it is where all of it is there to be seen.
#[test]
fn channels_of_bytes_that_come_last_change_nothing() {
    let cases: [(&[usize], [usize; 2], [usize; 2], [usize; 3]); 4] = [
        (&[1, 24, 6, 5], [96, 40], [3, 3], [1, 1, 1]),
        (&[2, 32, 7, 5], [40, 33], [3, 3], [2, 1, 1]),
        (&[2, 8, 5, 4], [72, 48], [3, 2], [1, 2, 2]),
        (&[1, 16, 5, 3], [160, 16], [1, 5], [1, 1, 2]),
    ];
    let mut turned = 0;
    for (image, channels, window, more) in cases {
        for t in [DType::U8, DType::I8] {
            let [b, open] = [false, true].map(|seen| quantised_network(t, image, (channels, window, more), seen));
            let (want, _) = last_of(&open, Target::parse("gfx1100").unwrap(), When::Never);
            for target in TARGETS.iter().chain(&["gfx942"]) {
                let what = format!("{target} {t} {image:?} {channels:?} {window:?} {more:?}");
                if !drawn(&what) {
                    continue;
                }
                let target = Target::parse(target).unwrap();
                let (got, weights) = last_of(&b, target, When::Always);
                assert!(want == got, "{what} by channels");
                let (got, others) = last_of(&b, target, When::Never);
                assert!(want == got, "{what}");
                turned += usize::from(weights != others);
            }
        }
    }
    assert!(turned > 5, "{turned}");
}
