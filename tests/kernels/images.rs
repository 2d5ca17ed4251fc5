//! Images that are resized, and images sampled at places that are data: on extents around those that workgroups share, with channels first and last.

use crate::support::agree::{finish, outputs, outputs_on};
use crate::support::build::{Builder, int, ints, text};
use barewave::tensor::{DType, HostTensor};

/// Targets of each kind with few compute units.
const SMALL: [&str; 4] = ["gfx902", "gfx90c", "gfx1036", "gfx1103"];

/// Images of small numbers, which some types hold a sixteenth of.
fn image(b: &mut Builder, t: DType, shape: &[usize]) -> String {
    let values: Vec<f64> = (0..shape.iter().product()).map(|_| (b.below(201) as f64 - 100.0) / 16.0).collect();
    b.input_of(HostTensor::from_f64(t, shape, &values))
}

/// Rows that a workgroup has several of, or parts of, and windows that reach over the edges; sums that something is added to.
#[test]
fn resized() {
    let extents = [
        ([16, 20], [32, 40]),
        ([9, 13], [27, 39]),
        ([7, 12], [11, 18]),
        ([20, 34], [10, 17]),
        ([1, 5], [3, 1]),
        ([5, 64], [5, 128]),
        ([2, 700], [3, 1402]),
        ([3, 1100], [2, 500]),
    ];
    for (t, most) in [(DType::F32, 1e-5), (DType::F16, 2e-3), (DType::BF16, 1e-2)] {
        for (i, ([h, w], [height, width])) in extents.into_iter().enumerate() {
            let ways = [
                ("linear", "half_pixel", 0),
                ("cubic", "asymmetric", 0),
                ("linear", "align_corners", 0),
                ("cubic", "half_pixel", 1),
                ("cubic", "half_pixel", 0),
            ];
            for (mode, how, antialias) in [0, 1].map(|n| ways[(2 * i + t.size() + n) % 5]) {
                for last in [false, true] {
                    let (mut b, channels) = (Builder::new(19, i as u64), [3, 8, 6][i % 3]);
                    let shape = if last { [2, h, w, channels] } else { [2, channels, h, w] };
                    let mut x = image(&mut b, t, &shape);
                    if last {
                        x = b.node("Transpose", &[&x], &[("perm", ints(&[0, 3, 1, 2]))]);
                    }
                    let sizes = b.ints(&[2, channels as i64, height, width]);
                    let how = [
                        ("mode", text(mode)),
                        ("coordinate_transformation_mode", text(how)),
                        ("antialias", int(antialias)),
                    ];
                    let mut y = b.node("Resize", &[&x, "", "", &sizes], &how);
                    if last {
                        y = b.node("Transpose", &[&y], &[("perm", ints(&[0, 2, 3, 1]))]);
                    } else if i % 2 == 1 {
                        let bias = image(&mut b, t, &[channels, 1, 1]);
                        y = b.node("Add", &[&y, &bias], &[]);
                    }
                    finish(&mut b, "", &[y]);
                    outputs_on(&b, &format!("{t} {how:?} of {shape:?} to {height}x{width}"), most, &SMALL);
                }
            }
        }
    }
}

/// Elements that two tables choose, of bytes, too.
#[test]
fn nearest() {
    for t in [DType::F32, DType::F16, DType::I8, DType::I64] {
        for ([h, w], [height, width]) in
            [([8, 12], [12, 18]), ([9, 7], [16, 13]), ([20, 30], [13, 20]), ([4, 6], [8, 9])]
        {
            let mut b = Builder::new(19, 3);
            let values: Vec<f64> = (0..2 * 3 * h * w).map(|_| b.below(100) as f64).collect();
            let x = b.input_of(HostTensor::from_f64(t, &[2, 3, h, w], &values));
            let sizes = b.ints(&[2, 3, height, width]);
            let y = b.node("Resize", &[&x, "", "", &sizes], &[("mode", text("nearest"))]);
            finish(&mut b, "", &[y]);
            outputs(&b, &format!("{t} {h}x{w} to {height}x{width}"), 0.0);
        }
    }
}

/// So many images that workgroups have their planes in LDS, one or several; one that LDS has room for once.
#[test]
fn sampled_planes() {
    for (t, most) in [(DType::F32, 1e-5), (DType::F16, 2e-3), (DType::F64, 1e-12)] {
        for (i, (images, planes, places)) in [
            ([1, 128], [6, 10], [3, 5]),
            ([2, 11], [9, 12], [17, 31]),
            ([3, 6], [4, 2], [33, 17]),
            ([1, 14], [72, 84], [6, 23]),
        ]
        .into_iter()
        .enumerate()
        {
            let ways = [("linear", "zeros"), ("cubic", "border"), ("nearest", "zeros"), ("linear", "reflection")];
            let (mode, padding) = ways[(i + t.size()) % 4];
            let mut b = Builder::new(20, 7 + i as u64);
            let x = image(&mut b, t, &[images, planes].concat());
            let shape = [images[0], places[0], places[1], 2];
            let grid: Vec<f64> = (0..shape.iter().product()).map(|_| b.below(321) as f64 / 128.0 - 1.25).collect();
            let grid = b.input_of(HostTensor::from_f64(t, &shape, &grid));
            let y = b.node("GridSample", &[&x, &grid], &[("mode", text(mode)), ("padding_mode", text(padding))]);
            let bias = image(&mut b, t, &[images[1], 1, 1]);
            let y = b.node("Add", &[&y, &bias], &[]);
            finish(&mut b, "", &[y]);
            outputs_on(&b, &format!("{t} {mode} {padding} of {images:?} {planes:?} at {places:?}"), most, &SMALL);
        }
    }
}
