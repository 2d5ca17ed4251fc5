//! Convolutions and programs of shapes for which kernels do something else than for others, against their operators one by one, on emulated devices
//! of few compute units in strict mode.

use crate::support::agree::{TARGETS, outputs_on};
use crate::support::build::{Builder, int, ints, text};
use barewave::graph::{Options, fuse};
use barewave::tensor::{DType, HostTensor};
use barewave_isa::Target;

/// Few compute units: there is enough for all of them.
const SMALL: [&str; 3] = ["gfx909", "gfx1036", "gfx1103"];

const TYPES: [(DType, f64); 3] = [(DType::F32, 1e-5), (DType::F16, 4e-3), (DType::BF16, 3e-2)];

fn random(b: &mut Builder, t: DType, shape: &[usize]) -> HostTensor {
    HostTensor::from_f64(t, shape, &b.random(shape).to_f64())
}

/// A convolution of an input, and what is made of its result.
fn convolution(b: &mut Builder, t: DType, image: &[usize], weights: &[usize], [pad, stride, dilation]: [&[usize]; 3]) {
    let groups = image[1] / weights[1];
    let (x, w, bias) = (random(b, t, image), random(b, t, weights), random(b, t, &weights[..1]));
    let (x, w, bias) = (b.input_of(x), b.constant(w), b.constant(bias));
    let attributes =
        [("group", int(groups as i64)), ("pads", ints(pad)), ("strides", ints(stride)), ("dilations", ints(dilation))];
    let y = b.node("Conv", &[&x, &w, &bias], &attributes);
    let y = b.node("Relu", &[&y], &[]);
    b.output(&y);
}

#[test]
fn channels_of_lines_and_volumes() {
    // Image, window, zeros before and behind, strides, dilations.
    type Case = (&'static [usize], &'static [usize], &'static [usize], &'static [usize], &'static [usize]);
    let cases: [Case; 6] = [
        (&[2, 90, 250], &[31], &[15, 15], &[1], &[1]),
        (&[1, 70, 333], &[7], &[3, 3], &[1], &[1]),
        (&[3, 40, 200], &[5], &[0, 4], &[2], &[2]),
        (&[1, 60, 9, 10, 14], &[5, 1, 1], &[2, 0, 0, 2, 0, 0], &[1, 1, 1], &[1, 1, 1]),
        (&[1, 30, 5, 6, 20], &[1, 1, 3], &[0, 0, 1, 0, 0, 1], &[1, 1, 1], &[1, 1, 1]),
        (&[1, 24, 6, 9, 11], &[3, 3, 3], &[1; 6], &[1, 2, 2], &[1, 1, 1]),
    ];
    for (image, window, pads, strides, dilations) in cases {
        for (t, most) in TYPES {
            let mut b = Builder::new(22, image[1] as u64);
            let weights = [&[image[1], 1], window].concat();
            convolution(&mut b, t, image, &weights, [pads, strides, dilations]);
            outputs_on(&b, &format!("apart {t} {image:?} {window:?}"), most, &SMALL);
        }
    }
}

#[test]
fn rows_of_windows_apart() {
    // Image, channels, window, zeros, steps and dilation across.
    let cases = [
        ([1, 40, 37, 50], 3, [9, 9], [4; 4], 1),
        ([1, 16, 60, 40], 1, [5, 5], [2; 4], 1),
        ([2, 33, 30, 31], 2, [7, 3], [0, 1, 5, 1], 2),
        ([1, 64, 24, 40], 4, [3, 3], [1; 4], 1),
    ];
    let mut found = 0;
    for (image, channels, window, pads, step) in cases {
        for (t, most) in TYPES {
            let mut b = Builder::new(22, image[1] as u64);
            let weights = [channels, image[1], window[0], window[1]];
            convolution(&mut b, t, &image, &weights, [&pads, &[1, step], &[2 / step, 1]]);
            outputs_on(&b, &format!("rows {t} {image:?} {window:?}"), most, &SMALL);
            let graph = fuse(&b.model, &Options::default()).unwrap();
            for target in SMALL.iter().chain(&TARGETS) {
                let compiled = barewave::compile::compile(&graph, Target::parse(target).unwrap()).unwrap();
                found += usize::from(compiled.plan().launches.len() == 2);
            }
        }
    }
    assert!(found >= 12, "{found} of 96 are two steps");
}

#[test]
fn programs_of_several_channels() {
    for (t, most) in TYPES {
        let mut b = Builder::new(16, 12);
        let x = random(&mut b, t, &[2, 16, 9, 11]);
        let x = b.input_of(x);
        let corners = [[0.3, 0.7, 7.9, 6.2], [1.0, 2.0, 30.0, 18.0], [-3.0, 0.0, 4.0, 5.5]];
        let rois: Vec<f64> = (0..20).flat_map(|i| corners[i % 3]).collect();
        let rois = b.input_of(HostTensor::from_f64(t, &[20, 4], &rois));
        let batch: Vec<i64> = (0..20).map(|i| i % 2).collect();
        let batch = b.input_of(HostTensor::from_i64(&[20], &batch));
        let attributes = [("output_height", int(5)), ("output_width", int(7)), ("sampling_ratio", int(2))];
        let y = b.node("RoiAlign", &[&x, &rois, &batch], &attributes);
        let gate = b.node("Sigmoid", &[&y], &[]);
        let y = b.node("Mul", &[&y, &gate], &[]);
        b.output(&y);
        outputs_on(&b, &format!("regions {t}"), most, &SMALL);
    }
    for (mode, padding) in [("linear", "zeros"), ("nearest", "border"), ("cubic", "reflection")] {
        let mut b = Builder::new(22, 3);
        let x = random(&mut b, DType::F32, &[2, 12, 7, 9]);
        let grid = random(&mut b, DType::F32, &[2, 21, 33, 2]);
        let (x, grid) = (b.input_of(x), b.input_of(grid));
        let y = b.node("GridSample", &[&x, &grid], &[("mode", text(mode)), ("padding_mode", text(padding))]);
        b.output(&y);
        outputs_on(&b, &format!("grid {mode} {padding}"), 1e-4, &SMALL);
    }
}

#[test]
fn shallow_products() {
    // Rows, depth, columns: as many products as the first says.
    for (batch, rows, depth, columns) in [(1, 1500, 3, 3), (300, 4, 4, 4), (2, 3, 2, 1100), (1, 1030, 1, 2)] {
        for (t, most) in TYPES {
            let mut b = Builder::new(22, rows as u64);
            let (x, w) = (random(&mut b, t, &[batch, rows, depth]), random(&mut b, t, &[batch, depth, columns]));
            let bias = random(&mut b, t, &[columns]);
            let (x, w, bias) = (b.input_of(x), b.input_of(w), b.constant(bias));
            let y = b.node("MatMul", &[&x, &w], &[]);
            let y = b.node("Add", &[&y, &bias], &[]);
            b.output(&y);
            outputs_on(&b, &format!("{t} {batch}x{rows}x{depth}x{columns}"), most, &SMALL);
        }
    }
}
