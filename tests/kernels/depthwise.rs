//! Depthwise convolutions whose planes go through LDS, against their operators one by one, on emulated devices of few compute units in strict mode.

use crate::support::agree::{listing, outputs_on};
use crate::support::build::{Builder, int, ints};
use barewave::tensor::{DType, HostTensor};
use barewave_isa::Target;

/// Images, channels, rows and columns; window, strides, dilations, zeros above and left, below and right.
type Case = ([usize; 4], [usize; 2], [usize; 2], [usize; 2], [usize; 4]);

const CASES: [Case; 7] = [
    ([2, 150, 14, 14], [7, 7], [1, 1], [1, 1], [3; 4]),
    ([1, 101, 28, 28], [5, 5], [1, 1], [1, 1], [2; 4]),
    ([3, 160, 7, 8], [3, 3], [1, 1], [1, 1], [1; 4]),
    ([1, 48, 56, 24], [3, 5], [2, 1], [1, 1], [1, 2, 0, 2]),
    ([1, 64, 40, 36], [5, 3], [2, 2], [1, 1], [2, 1, 1, 0]),
    ([2, 77, 20, 20], [3, 3], [1, 1], [2, 2], [2; 4]),
    ([1, 40, 112, 48], [7, 7], [1, 1], [1, 1], [3, 0, 3, 6]),
];

/// Bytes around zero points of their own, also where nothing is added to a sum but what lies around the image.
#[test]
fn planes_of_bytes() {
    let mut found = 0;
    for (number, (image, window, strides, dilations, pads)) in CASES.into_iter().enumerate() {
        for (t, zero) in [(DType::I8, 0), (DType::I8, -7), (DType::U8, 128), (DType::U8, 113)] {
            let mut b = Builder::new(22, number as u64);
            let low = if t == DType::U8 { 0 } else { -128 };
            let some = |b: &mut Builder, t: DType, shape: &[usize], low: i64| {
                let values: Vec<i64> = (0..shape.iter().product()).map(|_| low + b.below(256) as i64).collect();
                HostTensor::from_ints(t, shape, &values)
            };
            let x = some(&mut b, t, &image, low);
            let w = some(&mut b, DType::I8, &[image[1], 1, window[0], window[1]], -128);
            let (x, w) = (b.input_of(x), b.constant(w));
            let zero = b.constant(HostTensor::from_ints(t, &[], &[zero]));
            let attributes = [
                ("group", int(image[1] as i64)),
                ("pads", ints(&pads)),
                ("strides", ints(&strides)),
                ("dilations", ints(&dilations)),
            ];
            let y = b.node("ConvInteger", &[&x, &w, &zero], &attributes);
            b.output(&y);
            for name in ["gfx902", "gfx1036", "gfx1103"] {
                found += usize::from(listing(&b, Target::parse(name).unwrap()).contains("ds_"));
            }
            outputs_on(&b, &format!("depthwise {number} {t} {zero}"), 0.0, &["gfx902", "gfx1036", "gfx1103"]);
        }
    }
    assert!(found >= 12, "{found} of 84 go through LDS");
}

#[test]
fn planes_of_channels() {
    let mut found = 0;
    for (number, (image, window, strides, dilations, pads)) in CASES.into_iter().enumerate() {
        for t in [DType::F32, DType::F16, DType::BF16] {
            let mut b = Builder::new(22, number as u64);
            let shaped = |b: &mut Builder, shape: &[usize]| HostTensor::from_f64(t, shape, &b.random(shape).to_f64());
            let channels = image[1];
            let (x, w) = (shaped(&mut b, &image), shaped(&mut b, &[channels, 1, window[0], window[1]]));
            let bias = shaped(&mut b, &[channels]);
            let out = [0, 1]
                .map(|d| (image[2 + d] + pads[d] + pads[2 + d] - dilations[d] * (window[d] - 1) - 1) / strides[d] + 1);
            let other = shaped(&mut b, &[image[0], channels, out[0], out[1]]);
            // Weights that the model computes lie as they do.
            let w = if number % 3 == 1 { b.input_of(w) } else { b.constant(w) };
            let (x, bias) = (b.input_of(x), b.constant(bias));
            let attributes = [
                ("group", int(channels as i64)),
                ("pads", ints(&pads)),
                ("strides", ints(&strides)),
                ("dilations", ints(&dilations)),
            ];
            let mut y = b.node("Conv", &[&x, &w, &bias], &attributes);
            if number % 2 == 0 {
                let gate = b.node("Sigmoid", &[&y], &[]);
                y = b.node("Mul", &[&y, &gate], &[]);
                let other = b.input_of(other);
                y = b.node("Add", &[&y, &other], &[]);
            }
            b.output(&y);
            for name in ["gfx902", "gfx1036", "gfx1103"] {
                found += usize::from(listing(&b, Target::parse(name).unwrap()).contains("ds_"));
            }
            let most = match t {
                DType::F32 => 1e-6,
                DType::F16 => 2e-3,
                _ => 1e-2,
            };
            outputs_on(&b, &format!("depthwise {number} {t}"), most, &["gfx902", "gfx1036", "gfx1103"]);
        }
    }
    assert!(found >= 30, "{found} of 63 go through LDS");
}
