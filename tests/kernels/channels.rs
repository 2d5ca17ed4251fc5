//! Images whose channels come last: normalisations of groups of channels. Emulated devices in strict mode against the f64 interpreter of the
//! fused graph, and that against sums written down here.

use crate::support::agree::{close, finish, outputs_on};
use crate::support::build::{Builder, int, ints};
use barewave::graph::{Options, fuse};
use barewave::tensor::{DType, HostTensor};

const TARGETS: [&str; 12] = [
    "gfx803", "gfx902", "gfx906", "gfx90a", "gfx942", "gfx950", "gfx1010", "gfx1030", "gfx1036", "gfx1100", "gfx1150",
    "gfx1201",
];

/// `x` of `[image, point, channel]`, each group of each image normalised.
fn normalized(x: &[f64], [images, points, channels]: [usize; 3], groups: usize) -> Vec<f64> {
    let mut out = x.to_vec();
    let each = channels / groups;
    for (image, group) in (0..images).flat_map(|i| (0..groups).map(move |g| (i, g))) {
        let place = |k: usize| (image * points + k / each) * channels + group * each + k % each;
        let n = (points * each) as f64;
        let mean = (0..points * each).map(|k| x[place(k)]).sum::<f64>() / n;
        let variance = (0..points * each).map(|k| (x[place(k)] - mean).powi(2)).sum::<f64>() / n;
        (0..points * each).for_each(|k| out[place(k)] = (x[place(k)] - mean) / (variance + 1e-5).sqrt());
    }
    out
}

/// Groups and single channels, of few points and of many, whole pieces and others; with scales of each channel, of each group, and what is
/// added for each point.
#[test]
fn groups_of_channels() {
    let cases = [
        // Images, rows, columns, channels, groups.
        ([2, 8, 8, 64], 8),
        ([1, 17, 19, 48], 4),
        ([1, 40, 36, 320], 32),
        ([2, 64, 48, 40], 4),
        ([1, 33, 31, 30], 3),
        ([1, 21, 23, 35], 7),
        ([1, 64, 72, 6], 6),
        ([1, 100, 90, 32], 32),
        ([3, 2, 1, 96], 32),
        ([1, 128, 130, 12], 2),
    ];
    for (i, (shape, groups)) in cases.into_iter().enumerate() {
        for (j, (dtype, most)) in [(DType::F32, 2e-6), (DType::F16, 2e-3), (DType::BF16, 1e-2)].into_iter().enumerate()
        {
            let [n, h, w, c] = shape;
            let way = (i + j) % 3;
            let mut b = Builder::new(if way == 1 { 18 } else { 21 }, (10 * i + j) as u64);
            let data: Vec<f64> = (0..n * h * w * c).map(|_| b.below(64) as f64 / 16.0 + 10.0).collect();
            let x = b.input_of(HostTensor::from_f64(dtype, &shape, &data));
            let first = b.node("Transpose", &[&x], &[("perm", ints(&[0, 3, 1, 2]))]);
            let factors = if way == 1 { groups } else { c };
            let scales: Vec<f64> = (0..factors).map(|k| 1.0 + (k % 4) as f64 / 4.0).collect();
            let biases: Vec<f64> = (0..factors).map(|k| (k % 3) as f64 - 1.0).collect();
            let scale = b.constant(HostTensor::from_f64(dtype, &[factors], &scales));
            let bias = b.constant(HostTensor::from_f64(dtype, &[factors], &biases));
            let attributes = [("num_groups", int(groups as i64))];
            let mut y = b.node("GroupNormalization", &[&first, &scale, &bias], &attributes);
            match way {
                0 => y = b.node("Relu", &[&y], &[]),
                1 => (),
                _ => y = b.node("Add", &[&y, &first], &[]),
            }
            let y = b.node("Transpose", &[&y], &[("perm", ints(&[0, 2, 3, 1]))]);
            finish(&mut b, "", &[y]);
            let what = format!("{dtype} {shape:?} in {groups} groups, way {way}");
            let got = outputs_on(&b, &what, most, &TARGETS).remove(0);
            let normal = normalized(&data, [n, h * w, c], groups);
            let want: Vec<f64> = (0..data.len())
                .map(|k| {
                    let factor = if way == 1 { k % c / (c / groups) } else { k % c };
                    let y = normal[k] * scales[factor] + biases[factor];
                    match way {
                        0 => y.max(0.0),
                        1 => y,
                        _ => y + data[k],
                    }
                })
                .collect();
            close(&got.to_f64(), &want, most, &what);
        }
    }
}

/// A residual's sum between transpositions lies as its operands do, whoever else reads it.
#[test]
fn sums_of_channels_that_come_last() {
    let cases = [([2, 8, 8, 64], 8, 0), ([1, 17, 19, 48], 4, 1), ([3, 5, 7, 30], 30, 2), ([1, 40, 36, 32], 2, 3)];
    for (i, (shape, groups, way)) in cases.into_iter().enumerate() {
        for (dtype, most) in [(DType::F32, 2e-5), (DType::F16, 4e-3)] {
            let c = shape[3];
            let mut b = Builder::new(21, i as u64);
            let mut input = |shape: &[usize]| {
                let data: Vec<f64> = (0..shape.iter().product()).map(|_| b.below(64) as f64 / 16.0 - 1.0).collect();
                b.input_of(HostTensor::from_f64(dtype, shape, &data))
            };
            let (x, z, row) = (input(&shape), input(&shape), input(&[c]));
            let mut sum = b.node("Add", &[&x, &z], &[]);
            if way == 1 {
                sum = b.node("Mul", &[&sum, &row], &[]);
            }
            let turn = |b: &mut Builder, x: &str, perm: &[usize]| b.node("Transpose", &[x], &[("perm", ints(perm))]);
            let first = turn(&mut b, &sum, &[0, 3, 1, 2]);
            let ones = b.constant(HostTensor::from_f64(dtype, &[c], &vec![1.5; c]));
            let mut y = b.node("GroupNormalization", &[&first, &ones, &ones], &[("num_groups", int(groups))]);
            if way == 2 {
                y = b.node("Add", &[&y, &first], &[]);
            }
            let mut results = vec![turn(&mut b, &y, &[0, 2, 3, 1])];
            if way == 3 {
                results.push(b.node("Relu", &[&first], &[]));
            }
            finish(&mut b, "", &results);
            let what = format!("{dtype} {shape:?} in {groups} groups, way {way}");
            outputs_on(&b, &what, most, &TARGETS);
            if way < 2 {
                let graph = fuse(&b.model, &Options::default()).unwrap();
                assert_eq!(graph.steps.len(), 2, "{what}\n{graph}");
                assert_eq!(graph.steps[0].output.view.strides.last(), Some(&1), "{what}\n{graph}");
                assert_eq!(graph.steps[0].inputs[0].view.strides.last(), Some(&1), "{what}\n{graph}");
            }
        }
    }
}
