//! Operators of long lines that take several launches: running sums in chunks, TopK in pieces and heats. Emulated devices in
//! strict mode against the f64 interpreter of the fused graph, and that against sums and sorts written down here.

use crate::support::agree::{close, finish, outputs, outputs_on};
use crate::support::build::{Builder, int, ints};
use crate::support::drawn;
use barewave::compile::compile;
use barewave::graph::{Options, fuse};
use barewave::tensor::{DType, HostTensor};
use barewave_isa::Target;

#[test]
fn running_sums_and_products_in_chunks() {
    // Extents with divisors, with one that has none further on, and primes.
    for shape in [[3, 96], [130, 5], [2, 77], [3, 19], [1, 1024]] {
        for (reverse, exclusive) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            for dtype in [DType::F32, DType::F16, DType::I32] {
                let mut b = Builder::new(14, 11);
                let axis = if shape[0] > shape[1] { 0 } else { 1 };
                let data: Vec<f64> = (0..shape.iter().product()).map(|_| b.below(9) as f64 - 4.0).collect();
                let x = b.input_of(HostTensor::from_f64(dtype, &shape, &data));
                let along = b.constant(HostTensor::from_i64(&[], &[axis as i64]));
                let flags = [("reverse", int(reverse)), ("exclusive", int(exclusive))];
                let y = b.node("CumSum", &[&x, &along], &flags);
                finish(&mut b, "", &[y]);
                let what = format!("{dtype} {shape:?}, reverse {reverse}, exclusive {exclusive}");
                let got = outputs(&b, &what, 0.0).remove(0);
                let (n, step) = (shape[axis], if axis == 0 { shape[1] } else { 1 });
                let mut want = vec![0.0; data.len()];
                for first in (0..data.len()).filter(|i| i / step % n == 0) {
                    let mut sum = 0.0;
                    for j in 0..n {
                        let at = first + step * if reverse == 1 { n - 1 - j } else { j };
                        want[at] = if exclusive == 1 { sum } else { sum + data[at] };
                        sum += data[at];
                    }
                }
                close(&got.to_f64(), &want, 0.0, &what);
            }
        }
    }
}

/// Lines of a few lanes, of a wave and of a workgroup, that are walked in rounds, columns of several members, lines of neither kind, and few lines in
/// pieces; with an expression behind them.
#[test]
fn running_sums_of_lines_of_any_length() {
    let cases: [(&[usize], i64, DType); 16] = [
        (&[70, 9], 1, DType::F32),
        (&[33, 64], 1, DType::F16),
        (&[5, 203], 1, DType::BF16),
        (&[9, 640], 1, DType::I32),
        (&[3, 4096], 1, DType::F32),
        (&[2, 8200], 1, DType::F16),
        (&[3, 5003], 1, DType::F64),
        (&[2, 40_008], 1, DType::F32),
        (&[3, 33_001], 1, DType::I64),
        (&[1, 400_016], 1, DType::F16),
        (&[2, 300_001], 1, DType::U32),
        (&[1030, 64], 0, DType::F32),
        (&[3, 777, 40], 1, DType::F16),
        (&[2, 130, 3], 1, DType::F32),
        (&[70_001, 32], 0, DType::I32),
        (&[2, 300, 33], 1, DType::F64),
    ];
    for (shape, axis, dtype) in cases {
        for (reverse, exclusive) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let what = format!("{dtype} {shape:?}, reverse {reverse}, exclusive {exclusive}");
            if !drawn(&what) {
                continue;
            }
            let mut b = Builder::new(14, 17);
            let count: usize = shape.iter().product();
            // Small integers, whose sums are exact in f32.
            let data: Vec<f64> =
                (0..count).map(|_| b.below(7) as f64 - if dtype == DType::U32 { 0.0 } else { 3.0 }).collect();
            let x = b.input_of(HostTensor::from_f64(dtype, shape, &data));
            let along = b.constant(HostTensor::from_i64(&[], &[axis]));
            let flags = [("reverse", int(reverse)), ("exclusive", int(exclusive))];
            let y = b.node("CumSum", &[&x, &along], &flags);
            let y = b.node("Add", &[&y, &x], &[]);
            finish(&mut b, "", &[y]);
            let tolerance = if dtype.size() == 2 { 1e-2 } else { 0.0 };
            let got = outputs(&b, &what, tolerance).remove(0);
            let axis = axis as usize;
            let (n, step) = (shape[axis], shape[axis + 1..].iter().product::<usize>());
            let mut want = vec![0.0; data.len()];
            for first in (0..data.len()).filter(|i| i / step % n == 0) {
                let mut sum = 0.0;
                for j in 0..n {
                    let at = first + step * if reverse == 1 { n - 1 - j } else { j };
                    want[at] = data[at] + if exclusive == 1 { sum } else { sum + data[at] };
                    sum += data[at];
                }
            }
            close(&got.to_f64(), &want, tolerance, &what);
        }
    }
}

/// Products near one, in rounds of a workgroup, along columns and in pieces.
#[test]
fn running_products() {
    for (shape, axis) in [([2, 5000], 1), ([700, 32], 0), ([1, 200_000], 1), ([40, 33], 1)] {
        for (reverse, exclusive) in [(0, 0), (1, 1)] {
            let mut b = Builder::new(26, 19);
            let count: usize = shape.iter().product();
            let data: Vec<f64> = (0..count).map(|_| 1.0 + (b.below(9) as f64 - 4.0) / 65536.0).collect();
            let x = b.input_of(HostTensor::from_f64(DType::F32, &shape, &data));
            let along = b.constant(HostTensor::from_i64(&[], &[axis]));
            let y = b.node("CumProd", &[&x, &along], &[("reverse", int(reverse)), ("exclusive", int(exclusive))]);
            finish(&mut b, "", &[y]);
            let what = format!("{shape:?}, reverse {reverse}, exclusive {exclusive}");
            let got = outputs(&b, &what, 1e-4).remove(0);
            let (n, step) = (shape[axis as usize], if axis == 0 { shape[1] } else { 1 });
            let mut want = vec![0.0; data.len()];
            for first in (0..data.len()).filter(|i| i / step % n == 0) {
                let mut product = 1.0;
                for j in 0..n {
                    let at = first + step * if reverse == 1 { n - 1 - j } else { j };
                    want[at] = if exclusive == 1 { product } else { product * data[at] };
                    product *= data[at];
                }
            }
            close(&got.to_f64(), &want, 1e-4, &what);
        }
    }
}

/// Workgroups of each launch of a model.
fn workgroups(b: &Builder, target: Target) -> Vec<u32> {
    let graph = fuse(&b.model, &Options::default()).unwrap();
    compile(&graph, target).unwrap().plan().launches.iter().map(|l| l.grid.iter().product()).collect()
}

#[test]
fn the_best_of_lines_take_a_launch() {
    for (shape, k, launches) in [([4, 4096], 8, 1), ([512, 64], 8, 1), ([1, 32000], 50, 1), ([100, 50257], 100, 2)] {
        for target in [Target::GFX906, Target::GFX1100] {
            let mut b = Builder::new(17, 14);
            let (x, count) = (b.input(&shape), b.ints(&[k]));
            let y = b.node_n("TopK", &[&x, &count], &[], 2);
            finish(&mut b, "", &y);
            assert_eq!(workgroups(&b, target).len(), launches, "{k} of {shape:?} on {target:?}");
        }
    }
}

/// A few lines whose elements lie apart: the last images of a network whose channels are normalised.
#[test]
fn few_columns_are_normalised_by_many_workgroups() {
    let mut b = Builder::new(17, 15);
    let x = b.input(&[1, 768, 7, 7]);
    let x = b.node("Transpose", &[&x], &[("perm", ints(&[0, 2, 3, 1]))]);
    let (scale, bias) = (b.weight(&[768]), b.weight(&[768]));
    let y = b.node("LayerNormalization", &[&x, &scale, &bias], &[]);
    finish(&mut b, "", &[y]);
    outputs(&b, "columns", 1e-5);
    let launches = workgroups(&b, Target::GFX1100);
    assert!(launches.len() == 1 && launches[0] > 8, "{launches:?}");
}

/// Lines that smaller workgroups would walk again and again, enough of them that two launches would take longer.
#[test]
fn the_largest_workgroups_hold_lines() {
    for (op, n) in [("LayerNormalization", 36864), ("Softmax", 36001), ("LogSoftmax", 36866)] {
        let mut b = Builder::new(17, n as u64);
        let x = b.input(&[48, n]);
        let y = if op == "LayerNormalization" {
            let (scale, bias) = (b.weight(&[n]), b.weight(&[n]));
            b.node(op, &[&x, &scale, &bias], &[])
        } else {
            b.node(op, &[&x], &[])
        };
        finish(&mut b, "", &[y]);
        outputs(&b, op, 1e-5);
        for target in ["gfx803", "gfx906", "gfx942", "gfx1030", "gfx1100", "gfx1201"] {
            let graph = fuse(&b.model, &Options::default()).unwrap();
            let compiled = compile(&graph, Target::parse(target).unwrap()).unwrap();
            let workitems: Vec<u32> = compiled.plan().launches.iter().map(|l| l.block).collect();
            assert_eq!(workitems, [1024], "{op} of {n} on {target}");
        }
    }
}

/// A vocabulary's best word: the line of a single token is several compute units' work, also of an odd length.
#[test]
fn few_long_lines_are_reduced_by_many_workgroups() {
    for (op, n) in [("ArgMax", 50257), ("ReduceMax", 152064), ("ReduceLogSumExp", 50257)] {
        for target in [Target::GFX906, Target::GFX942, Target::GFX1100] {
            let mut b = Builder::new(17, 16);
            let x = b.input(&[1, n]);
            let attributes = if op == "ArgMax" { ("axis", int(1)) } else { ("axes", ints(&[1])) };
            let y = b.node(op, &[&x], &[attributes]);
            finish(&mut b, "", &[y]);
            let launches = workgroups(&b, target);
            assert!(launches.len() == 1 && launches[0] >= 8, "{op} of {n} on {target:?}: {launches:?}");
        }
    }
}

/// Few workgroups have all of these columns, and yet take less than three launches that read them twice.
#[test]
fn columns_are_scanned_in_one_launch() {
    for target in [Target::GFX906, Target::GFX1100] {
        let mut b = Builder::new(14, 18);
        let x = b.input_of(HostTensor::from_f64(DType::F16, &[4096, 512], &vec![0.0; 4096 * 512]));
        let axis = b.constant(HostTensor::from_i64(&[], &[0]));
        let y = b.node("CumSum", &[&x, &axis], &[]);
        finish(&mut b, "", &[y]);
        assert_eq!(workgroups(&b, target).len(), 1, "{target:?}");
    }
}

/// Groups of images in the middle of a network that makes pictures: a workgroup holds each of them, though their channels are parts of lines of memory.
#[test]
fn groups_of_channels_are_read_once() {
    let mut b = Builder::new(21, 20);
    let shape = [2, 32, 32, 640];
    let x = b.input_of(HostTensor::from_f64(DType::F16, &shape, &vec![0.0; shape.iter().product()]));
    let x = b.node("Transpose", &[&x], &[("perm", ints(&[0, 3, 1, 2]))]);
    let [scale, bias] = [1.0, 0.0].map(|v| b.constant(HostTensor::from_f64(DType::F16, &[640], &[v; 640])));
    let y = b.node("GroupNormalization", &[&x, &scale, &bias], &[("num_groups", int(32))]);
    let y = b.node("Transpose", &[&y], &[("perm", ints(&[0, 2, 3, 1]))]);
    finish(&mut b, "", &[y]);
    for target in [Target::GFX90A, Target::GFX942, Target::GFX1030, Target::GFX1100, Target::GFX1201] {
        assert_eq!(workgroups(&b, target).len(), 1, "{target:?}");
    }
}

/// Order of elements: zeros are equal, NaNs larger than all numbers.
fn order(a: f64, b: f64) -> std::cmp::Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

#[test]
fn the_best_of_lines_are_found_by_teams() {
    // Teams of a lane, of rows, of waves, of several waves; whole lines, lines of odd lengths, along other axes, pieces even and not; in
    // rounds, by a sieve and sorted, and merged; few values again and again, and many.
    let (f16, f32, bf16, i8) = (DType::F16, DType::F32, DType::BF16, DType::I8);
    let (f64, i64) = (DType::F64, DType::I64);
    let kinds = [
        (1, f16),
        (0, f32),
        (1, f32),
        (0, bf16),
        (1, i8),
        (0, DType::U16),
        (1, DType::I32),
        (0, DType::U8),
        (1, f64),
        (0, i64),
        (0, f64),
        (1, DType::U64),
        (1, i64),
    ];
    let shapes = [
        ([37, 80, 1], 1, 1),
        ([1, 1000, 1], 1, 50),
        ([5, 129, 3], 1, 11),
        ([300, 7, 1], 1, 7),
        ([2, 64, 1], 1, 64),
        ([3, 1024, 1], 1, 8),
        ([2, 2053, 1], 1, 40),
        ([1, 4096, 2], 1, 5),
        ([70, 16, 1], 0, 9),
        ([1, 17, 1], 1, 17),
        ([3, 300, 1], 1, 200),
        ([1, 600, 3], 1, 130),
        ([4, 1000, 1], 1, 46),
        ([3, 1024, 1], 1, 54),
        ([9, 1024, 1], 1, 1024),
        ([1, 2000, 1], 1, 2000),
        ([2, 4096, 1], 1, 150),
        ([1, 8400, 1], 1, 300),
        ([2, 4999, 1], 1, 4999),
        ([1, 9000, 2], 1, 2500),
        ([1, 4097, 1], 1, 2048),
        ([3, 4096, 1], 1, 128),
        ([2, 9001, 1], 1, 100),
        ([1, 8192, 2], 1, 8),
        ([5, 1030, 1], 1, 60),
        ([1, 5000, 1], 1, 1),
        ([2, 2000, 1], 1, 33),
        ([700, 260, 1], 1, 6),
        ([1, 4161, 1], 1, 100),
        ([1, 4097, 1], 1, 127),
    ];
    for (i, (shape, axis, k)) in shapes.into_iter().enumerate() {
        for (largest, dtype) in [0, 3, 8].map(|more| kinds[(i + more) % kinds.len()]) {
            let mut b = Builder::new(17, 13);
            let special = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 0.0, 6e-8];
            let many = dtype.size() >= 4 && (i + largest as usize).is_multiple_of(2);
            let data: Vec<f64> = (0..shape.iter().product())
                .map(|_| match (b.below(90), dtype.is_float()) {
                    (n @ 0..6, true) => special[n],
                    _ if many => b.below(1 << 20) as f64,
                    (n, true) => n as f64 - 40.0,
                    (n, false) => n as f64,
                })
                .collect();
            let x = b.input_of(HostTensor::from_f64(dtype, &shape, &data));
            let count = b.ints(&[k as i64]);
            let y = b.node_n("TopK", &[&x, &count], &[("axis", int(axis)), ("largest", int(largest))], 2);
            finish(&mut b, "", &y);
            let what = format!("{k} of {dtype} {shape:?}, largest {largest}");
            let got = outputs(&b, &what, 0.0)[1].to_f64();
            let given = b.inputs[0].to_f64();
            let [outer, n, inner] = if axis == 0 { [1, shape[0], shape[1] * shape[2]] } else { shape };
            for (o, q) in (0..outer).flat_map(|o| (0..inner).map(move |q| (o, q))) {
                let value = |i: usize| given[(o * n + i) * inner + q];
                let mut best: Vec<usize> = (0..n).collect();
                best.sort_by(|a, b| {
                    let by = order(value(*a), value(*b));
                    if largest == 1 { by.reverse() } else { by }
                });
                let found: Vec<f64> = (0..k).map(|j| got[(o * k + j) * inner + q]).collect();
                let want: Vec<f64> = best[..k].iter().map(|i| *i as f64).collect();
                assert_eq!(found, want, "{what}, line {o} {q}");
            }
        }
    }
}

#[test]
fn the_best_of_long_lines_are_found_in_heats_and_by_merging() {
    // The last three are sorted: whole, of runs that are not a power of two of them, and of single elements.
    let (high, low, whole) = ((1, DType::F64), (0, DType::F64), (1, DType::I64));
    for (shape, axis, k, kinds) in [
        ([33, 1024, 1], 1, 5, vec![high, whole]),
        ([1, 1200, 24], 1, 4, vec![low]),
        ([58, 768, 1], 1, 1, vec![low]),
        ([66, 512, 1], 1, 512, vec![high]),
        ([1, 700, 35], 1, 200, vec![low]),
        ([35, 701, 1], 1, 3, vec![whole]),
    ] {
        for (largest, dtype) in kinds {
            let mut b = Builder::new(17, 13);
            // Many are equal: the first ones count.
            let data: Vec<f64> = (0..shape.iter().product()).map(|_| b.below(60) as f64).collect();
            let x = b.input_of(HostTensor::from_f64(dtype, &shape, &data));
            let count = b.ints(&[k as i64]);
            let y = b.node_n("TopK", &[&x, &count], &[("axis", int(axis)), ("largest", int(largest))], 2);
            finish(&mut b, "", &y);
            let what = format!("{k} of {dtype} {shape:?}, largest {largest}");
            let got = outputs(&b, &what, 0.0);
            let [outer, n, inner] = shape;
            let (mut places, mut values) = (vec![0.0; outer * k * inner], vec![0.0; outer * k * inner]);
            for (o, q) in (0..outer).flat_map(|o| (0..inner).map(move |q| (o, q))) {
                let value = |i: usize| data[(o * n + i) * inner + q];
                let mut order: Vec<usize> = (0..n).collect();
                order.sort_by(|a, b| {
                    let by = value(*a).total_cmp(&value(*b));
                    if largest == 1 { by.reverse() } else { by }.then(a.cmp(b))
                });
                for (j, i) in order.into_iter().take(k).enumerate() {
                    let at = (o * k + j) * inner + q;
                    (places[at], values[at]) = (i as f64, value(i));
                }
            }
            close(&got[0].to_f64(), &values, 0.0, &what);
            close(&got[1].to_f64(), &places, 0.0, &what);
        }
    }
}

/// Long lines whose parts workgroups share: where the best are all over a line, at one of its ends, side by side, or equal; compared in LDS and sorted, of one
/// workgroup and of several.
#[test]
fn the_best_of_long_lines_are_found_at_once() {
    type Line = fn(usize, usize) -> f64;
    let lines: [(&str, Line); 5] = [
        ("scattered", |i, n| (i * 7919 % n) as f64),
        ("rising", |i, _| i as f64),
        ("falling", |i, n| (n - i) as f64),
        ("side by side", |i, n| if i / 1000 == n / 2000 { i as f64 * 100.0 } else { (i % 9) as f64 }),
        ("equal", |i, n| f64::from(u8::from(i == n / 2))),
    ];
    for (i, (name, line)) in lines.into_iter().enumerate() {
        let all = [(4104, 1), (9001, 64), (40_002, 300), (33_000, 1000), (280_000, 300)];
        for &(n, k) in &all[..if i == 0 { 5 } else { 4 }] {
            let (dtype, largest) = [(DType::F32, 1), (DType::I32, 0), (DType::F16, 1)][(i + k) % 3];
            let mut b = Builder::new(17, 13);
            let data: Vec<f64> = (0..n).map(|i| line(i, n)).collect();
            let x = b.input_of(HostTensor::from_f64(dtype, &[1, n], &data));
            let count = b.ints(&[k as i64]);
            let y = b.node_n("TopK", &[&x, &count], &[("largest", int(largest))], 2);
            finish(&mut b, "", &y);
            let what = format!("{k} of {n} {dtype}, {name}, largest {largest}");
            outputs_on(&b, &what, 0.0, &["gfx906", "gfx942", "gfx1030", "gfx1100", "gfx1201"]);
        }
    }
}

/// So many lines that several share a wave, each of few lanes: equal elements, zeros of both signs, infinities and NaN are among them.
#[test]
fn the_best_of_many_short_lines_are_found_in_rounds() {
    for (dtype, lines, length, k, largest) in [
        (DType::F16, 3_851, 255, 5, 1),
        (DType::BF16, 3_850, 256, 8, 0),
        (DType::F32, 3_853, 131, 6, 1),
        (DType::I32, 3_850, 256, 8, 0),
        (DType::I8, 3_852, 200, 7, 1),
        (DType::F16, 3_850, 128, 13, 0),
        (DType::F32, 3_851, 100, 7, 1),
    ] {
        let mut b = Builder::new(17, 13);
        let special = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 0.0, 6e-8];
        let one = |b: &mut Builder| match (b.below(120), dtype.is_float()) {
            (n @ 0..6, true) => special[n],
            // Some differ in their last bits alone.
            (n, _) if length == 100 => 1.0 + (b.below(64) as f64 + n as f64 * 128.0) * 2f64.powi(-23),
            (n, _) => n as f64 - 60.0,
        };
        let data: Vec<f64> = (0..lines * length).map(|_| one(&mut b)).collect();
        let x = b.input_of(HostTensor::from_f64(dtype, &[lines, length], &data));
        let count = b.ints(&[k]);
        let y = b.node_n("TopK", &[&x, &count], &[("largest", int(largest))], 2);
        finish(&mut b, "", &y);
        outputs_on(&b, &format!("{k} of {length} {dtype}"), 0.0, &["gfx906", "gfx1100"]);
    }
}
