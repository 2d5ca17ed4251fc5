//! Operators that are programs or bodies of others: emulated devices in strict mode against the host, and that against references
//! written down here.

use crate::support::agree::{TARGETS, close, finish, outputs};
use crate::support::build::{Builder, float, int, ints, text};
use barewave::graph::fuse;
use barewave::graph::interpret::Interpreter;
use barewave::onnx::Attribute;
use barewave::runtime::{AnyShape, EmulatedDevice};
use barewave::tensor::{DType, HostTensor};
use barewave::{Compiler, compile};
use barewave_isa::Target;
use std::sync::Arc;

#[test]
fn top_k_of_equal_elements_takes_the_first() {
    for (largest, axis) in [(1, 1), (0, 1), (1, 0), (0, 2)] {
        let mut b = Builder::new(17, 3);
        let data: Vec<f64> = (0..7 * 9 * 5).map(|_| b.below(6) as f64).collect();
        let x = b.input_of(HostTensor::from_f64(DType::F32, &[7, 9, 5], &data));
        let k = b.ints(&[4]);
        let y = b.node_n("TopK", &[&x, &k], &[("axis", int(axis)), ("largest", int(largest))], 2);
        finish(&mut b, "", &y);
        let got = outputs(&b, "top k", 0.0);
        let dims = [7, 9, 5];
        let strides = [45, 5, 1];
        let d = axis as usize;
        let mut shape = dims;
        shape[d] = 4;
        let mut wanted = Vec::new();
        for i in 0..shape.iter().product::<usize>() {
            let c = [i / (shape[1] * shape[2]), i / shape[2] % shape[1], i % shape[2]];
            let base: usize = (0..3).filter(|e| *e != d).map(|e| c[e] * strides[e]).sum();
            let mut order: Vec<usize> = (0..dims[d]).collect();
            let value = |i: &usize| data[base + i * strides[d]];
            order.sort_by(|p, q| {
                let by = value(p).total_cmp(&value(q));
                if largest == 1 { by.reverse() } else { by }.then(p.cmp(q))
            });
            wanted.push(order[c[d]] as f64);
        }
        close(&got[1].to_f64(), &wanted, 0.0, "top k");
    }
}

/// Who reads the elements need not read where they were, and the other way round.
#[test]
fn top_k_of_which_one_output_is_read() {
    for (shape, k, read) in [(vec![2, 5, 8], 3, 0), (vec![2, 5, 8], 3, 1), (vec![5, 1], 1, 0), (vec![3, 300], 7, 0)] {
        let mut b = Builder::new(17, 11);
        let x = b.input(&shape);
        let count = b.ints(&[k]);
        let both = b.node_n("TopK", &[&x, &count], &[], 2);
        let y = b.node("Neg", &[&both[read]], &[]);
        b.output(&y);
        let n = shape[shape.len() - 1];
        let data = b.inputs[0].to_f64();
        let wanted = data.chunks(n).flat_map(|line| {
            let mut order: Vec<usize> = (0..n).collect();
            order.sort_by(|p, q| line[*q].total_cmp(&line[*p]).then(p.cmp(q)));
            order.truncate(k as usize);
            order.into_iter().map(|i| if read == 0 { -line[i] } else { -(i as f64) }).collect::<Vec<_>>()
        });
        let wanted: Vec<f64> = wanted.collect();
        close(&outputs(&b, "one of two", 0.0)[0].to_f64(), &wanted, 0.0, "one of two");
    }
}

#[test]
fn scatters_replace_add_and_bound() {
    for reduction in ["none", "add", "mul", "max", "min"] {
        let mut b = Builder::new(18, 5);
        let x = b.input(&[6, 7]);
        let list: Vec<i64> = (0..4).map(|i| if i == 3 { -2 } else { i * 2 }).collect();
        let index = b.input_of(HostTensor::from_i64(&[4, 1], &list));
        let updates = b.input(&[4, 7]);
        let y = b.node("ScatterND", &[&x, &index, &updates], &[("reduction", text(reduction))]);
        finish(&mut b, "", &[y]);
        let got = outputs(&b, "scatter", 1e-6).remove(0).to_f64();
        let (mut want, u) = (b.inputs[0].to_f64(), b.inputs[2].to_f64());
        for (i, row) in list.iter().enumerate() {
            for c in 0..7 {
                let old = &mut want[(if *row < 0 { row + 6 } else { *row }) as usize * 7 + c];
                let new = u[i * 7 + c];
                *old = match reduction {
                    "none" => new,
                    "add" => *old + new,
                    "mul" => *old * new,
                    "max" => old.max(new),
                    _ => old.min(new),
                };
            }
        }
        close(&got, &want, 1e-6, reduction);
    }
}

#[test]
fn einsum_of_batches_sums_and_diagonals() {
    for (equation, shapes) in [
        ("bij,bjk->bik", vec![vec![2, 3, 5], vec![2, 5, 4]]),
        ("bhqd,bhkd->bhqk", vec![vec![2, 3, 4, 5], vec![2, 3, 6, 5]]),
        ("i,j->ij", vec![vec![3], vec![4]]),
        ("...ij->...ji", vec![vec![2, 3, 4]]),
        ("ii->i", vec![vec![5, 5]]),
        ("ij,jk,kl->il", vec![vec![2, 3], vec![3, 4], vec![4, 5]]),
        ("abc,cd->abd", vec![vec![2, 3, 4], vec![4, 5]]),
        ("ij->", vec![vec![4, 5]]),
        ("ij,jk->ik", vec![vec![2, 0], vec![0, 3]]),
        ("ij,k->ik", vec![vec![0, 2], vec![3]]),
    ] {
        let mut b = Builder::new(17, 9);
        let names: Vec<String> = shapes.iter().map(|s| b.input(s)).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let y = b.node("Einsum", &names, &[("equation", text(equation))]);
        finish(&mut b, "", &[y]);
        let got = outputs(&b, equation, 1e-6).remove(0);
        // Over all values of all labels.
        let dots = |t: &str| t.replace("...", "Z");
        let (terms, out) = equation.split_once("->").unwrap();
        let terms: Vec<Vec<char>> = terms.split(',').map(|t| dots(t).chars().collect()).collect();
        let out: Vec<char> = dots(out).chars().collect();
        let mut extents = std::collections::BTreeMap::new();
        terms.iter().zip(&shapes).for_each(|(t, s)| extents.extend(t.iter().copied().zip(s.iter().copied())));
        let labels: Vec<char> = extents.keys().copied().collect();
        let data: Vec<Vec<f64>> = b.inputs.iter().map(HostTensor::to_f64).collect();
        let mut want = vec![0.0; got.len()];
        for i in 0..extents.values().product::<usize>() {
            let mut rest = i;
            let mut value = std::collections::BTreeMap::new();
            for l in labels.iter().rev() {
                value.insert(*l, rest % extents[l]);
                rest /= extents[l];
            }
            let at = |t: &[char]| t.iter().fold(0, |a, l| a * extents[l] + value[l]);
            want[at(&out)] += terms.iter().zip(&data).map(|(t, d)| d[at(t)]).product::<f64>();
        }
        close(&got.to_f64(), &want, 1e-5, equation);
    }
}

#[test]
fn wide_windows_are_products() {
    // A transform of a signal, patches of an image, and a wide window with padding, dilation and groups.
    for (x, w, attributes) in [
        (vec![2, 1, 200], vec![5, 1, 64], vec![("strides", ints(&[20]))]),
        (vec![1, 3, 32, 48], vec![6, 3, 16, 16], vec![("strides", ints(&[16, 16]))]),
        (vec![1, 4, 60], vec![4, 2, 33], vec![("pads", ints(&[7, 9])), ("group", int(2)), ("dilations", ints(&[2]))]),
    ] {
        let mut b = Builder::new(17, 77);
        let (xn, wn) = (b.input(&x), b.weight(&w));
        let bias = b.weight(&[w[0]]);
        let y = b.node("Conv", &[&xn, &wn, &bias], &attributes);
        let y = b.node("Relu", &[&y], &[]);
        finish(&mut b, "", &[y]);
        let got = outputs(&b, "wide", 1e-5).remove(0);
        if x.len() != 3 {
            continue;
        }
        let one = |name: &str, default: usize| match attributes.iter().find(|a| a.0 == name) {
            Some((_, Attribute::Ints(v))) => v[0] as usize,
            Some((_, Attribute::Int(v))) => *v as usize,
            _ => default,
        };
        let (stride, dilation, pad, groups) = (one("strides", 1), one("dilations", 1), one("pads", 0), one("group", 1));
        let weights = |name: &str| b.model.graph.initializers[name].to_f64();
        let (data, wv, bv) = (b.inputs[0].to_f64(), weights(&wn), weights(&bias));
        let length = got.shape()[2];
        let mut want = Vec::new();
        for i in 0..got.len() {
            let (n, o, t) = (i / length / w[0], i / length % w[0], i % length);
            let mut sum = bv[o];
            for c in 0..w[1] {
                for k in 0..w[2] {
                    let p = (t * stride + k * dilation) as i64 - pad as i64;
                    if (0..x[2] as i64).contains(&p) {
                        let channel = o / (w[0] / groups) * w[1] + c;
                        sum += data[(n * x[1] + channel) * x[2] + p as usize] * wv[(o * w[1] + c) * w[2] + k];
                    }
                }
            }
            want.push(sum.max(0.0));
        }
        close(&got.to_f64(), &want, 1e-5, "wide");
    }
}

#[test]
fn sampling_agrees_with_the_interpreter() {
    for mode in ["linear", "nearest", "cubic"] {
        for padding in ["zeros", "border", "reflection"] {
            let mut b = Builder::new(20, 11);
            let x = b.input(&[2, 3, 5, 7]);
            let grid: Vec<f64> = b.random(&[2, 4, 3, 2]).to_f64().iter().map(|v| v * 1.6).collect();
            let grid = b.input_of(HostTensor::from_f64(DType::F32, &[2, 4, 3, 2], &grid));
            let attributes = [("mode", text(mode)), ("padding_mode", text(padding)), ("align_corners", int(1))];
            let y = b.node("GridSample", &[&x, &grid], &attributes);
            finish(&mut b, "", &[y]);
            outputs(&b, mode, 1e-4);
        }
    }
    for ratio in [0, 2] {
        let mut b = Builder::new(16, 12);
        let x = b.input(&[2, 3, 9, 11]);
        let rois: Vec<f32> = vec![0.3, 0.7, 7.9, 6.2, 1.0, 2.0, 30.0, 18.0, -3.0, 0.0, 4.0, 5.5];
        let rois = b.input_of(HostTensor::from_f32(&[3, 4], &rois));
        let batch = b.input_of(HostTensor::from_i64(&[3], &[0, 1, 1]));
        let attributes = [
            ("output_height", int(3)),
            ("output_width", int(2)),
            ("sampling_ratio", int(ratio)),
            ("spatial_scale", float(0.7)),
        ];
        let y = b.node("RoiAlign", &[&x, &rois, &batch], &attributes);
        finish(&mut b, "", &[y]);
        outputs(&b, "regions", 1e-5);
    }
}

#[test]
fn trees_are_walked() {
    // Two trees: x0 <= 0 ? (x1 < 0.5 ? 1 : 2) : 4 and x2 > 0.25 ? 10 : 20.
    let mut b = Builder::new(17, 13);
    let x = b.input(&[300, 3]);
    let list = |v: &[i64]| Attribute::Ints(v.to_vec());
    let modes = ["BRANCH_LEQ", "BRANCH_LT", "LEAF", "LEAF", "LEAF", "BRANCH_GT", "LEAF", "LEAF"];
    let attributes = [
        ("n_targets", int(1)),
        ("nodes_treeids", list(&[0, 0, 0, 0, 0, 1, 1, 1])),
        ("nodes_nodeids", list(&[0, 1, 2, 3, 4, 0, 1, 2])),
        ("nodes_featureids", list(&[0, 1, 0, 0, 0, 2, 0, 0])),
        ("nodes_values", Attribute::Floats(vec![0.0, 0.5, 0.0, 0.0, 0.0, 0.25, 0.0, 0.0])),
        ("nodes_modes", Attribute::Texts(modes.map(String::from).to_vec())),
        ("nodes_truenodeids", list(&[1, 3, 0, 0, 0, 1, 0, 0])),
        ("nodes_falsenodeids", list(&[2, 4, 0, 0, 0, 2, 0, 0])),
        ("target_treeids", list(&[0, 0, 0, 1, 1])),
        ("target_nodeids", list(&[3, 4, 2, 1, 2])),
        ("target_ids", list(&[0; 5])),
        ("target_weights", Attribute::Floats(vec![1.0, 2.0, 4.0, 10.0, 20.0])),
    ];
    let y = b.node("TreeEnsembleRegressor", &[&x], &attributes);
    finish(&mut b, "ai.onnx.ml", &[y]);
    let got = outputs(&b, "trees", 0.0).remove(0).to_f64();
    let want: Vec<f64> = b.inputs[0]
        .to_f64()
        .chunks(3)
        .map(|r| {
            let first = if r[0] <= 0.0 { if r[1] < 0.5 { 1.0 } else { 2.0 } } else { 4.0 };
            first + if r[2] > 0.25 { 10.0 } else { 20.0 }
        })
        .collect();
    assert_eq!(got, want);
}

#[test]
fn bodies_compute_what_they_stand_for() {
    let mut b = Builder::new(17, 31);
    let (x, skip) = (b.input(&[2, 3, 40]), b.input(&[2, 3, 40]));
    let (gamma, beta, bias) = (b.weight(&[40]), b.weight(&[40]), b.weight(&[40]));
    let y = b.node_n("SkipLayerNormalization", &[&x, &skip, &gamma, &beta, &bias], &[("epsilon", float(1e-5))], 4);
    finish(&mut b, "com.microsoft", &y);
    let got = outputs(&b, "skip", 1e-5);
    let weights = |name: &str| b.model.graph.initializers[name].to_f64();
    let (g, t, bias) = (weights(&gamma), weights(&beta), weights(&bias));
    let sum: Vec<f64> = b.inputs[0]
        .to_f64()
        .iter()
        .zip(b.inputs[1].to_f64())
        .enumerate()
        .map(|(i, (a, c))| a + c + bias[i % 40])
        .collect();
    let mean = |row: &[f64]| row.iter().sum::<f64>() / 40.0;
    let means: Vec<f64> = sum.chunks(40).map(mean).collect();
    let inverse = |row: &[f64]| {
        let var = row.iter().map(|v| (v - mean(row)).powi(2)).sum::<f64>() / 40.0;
        (var + 1e-5).sqrt().recip()
    };
    let inverses: Vec<f64> = sum.chunks(40).map(inverse).collect();
    let normal = |(i, v): (usize, &f64)| (v - means[i / 40]) * inverses[i / 40] * g[i % 40] + t[i % 40];
    let want: Vec<f64> = sum.iter().enumerate().map(normal).collect();
    for (got, (want, what)) in got.iter().zip([(want, "skip"), (means, "mean"), (inverses, "inverse"), (sum, "sum")]) {
        close(&got.to_f64(), &want, 1e-5, what);
    }
}

#[test]
fn small_floats_round_as_on_the_host() {
    let small = [DType::F8E4M3, DType::F8E4M3Z, DType::F8E5M2, DType::F8E5M2Z, DType::F4E2M1, DType::F8E8M0];
    let mut values: Vec<f64> = (0..2000).map(|i| ((i * 7919) % 2000) as f64 / 900.0 - 1.1).collect();
    values.extend((-20..18).flat_map(|e| [1.0, 1.25, 1.0625, 1.1875].map(|m| m * 2f64.powi(e))));
    values.extend([-127, -126].map(|e| 2f64.powi(e)));
    values.extend([1e-40, 6e-39, 1.5 * 2f64.powi(-127)]);
    values.extend([0.0, -0.0, 447.0, 448.0, 464.0, 465.0, 1e6, -1e6, f64::INFINITY, f64::NEG_INFINITY, f64::NAN]);
    for t in small {
        for saturate in [0, 1] {
            let mut b = Builder::new(24, 1);
            let x = b.input_of(HostTensor::from_f64(DType::F32, &[values.len()], &values));
            let attributes =
                [("to", int(t.to_onnx() as i64)), ("saturate", int(saturate)), ("round_mode", text("nearest"))];
            let attributes = if t == DType::F8E8M0 { &attributes[..] } else { &attributes[..2] };
            let y = b.node("Cast", &[&x], attributes);
            let z = b.node("Cast", &[&y], &[("to", int(1))]);
            finish(&mut b, "", &[y, z]);
            outputs(&b, &format!("{t} {saturate}"), 0.0);
        }
    }
}

/// What a narrow float makes of an integer goes on as such.
#[test]
fn integers_become_narrow_floats() {
    let narrow = [DType::F16, DType::BF16, DType::F8E4M3, DType::F8E4M3Z, DType::F8E5M2, DType::F8E5M2Z, DType::F4E2M1];
    let mut b = Builder::new(24, 1);
    let mut made = Vec::new();
    for from in [DType::I8, DType::U8, DType::U16, DType::I32, DType::I64, DType::I4] {
        let list: Vec<i64> = (0..300).map(|i| i * i * if from.bits() > 8 { 3 } else { 1 } - 40 * i).collect();
        let x = b.input_of(HostTensor::from_ints(from, &[300], &list));
        for t in narrow {
            let y = b.node("Cast", &[&x], &[("to", int(t.to_onnx() as i64)), ("saturate", int(0))]);
            let z = b.node("Cast", &[&y], &[("to", int(1))]);
            made.push((t, from, z.clone()));
            b.output(&z);
        }
    }
    let got = outputs(&b, "integers", 0.0);
    for ((t, from, _), got) in made.iter().zip(&got) {
        let once = HostTensor::from_f64(*t, &[300], &got.to_f64());
        close(&got.to_f64(), &once.to_f64(), 0.0, &format!("{from} as {t}"));
    }
}

#[test]
fn long_integers_are_converted_after_arithmetic() {
    for to in [DType::F32, DType::I32, DType::F64, DType::Bool, DType::U8] {
        let mut b = Builder::new(17, 2);
        let list: Vec<i64> = (0..100).map(|i| (i - 50) * 3_000_000_000 / 7).collect();
        let x = b.input_of(HostTensor::from_i64(&[100], &list));
        let y = b.node("Mul", &[&x, &x], &[]);
        let y = b.node("Sub", &[&y, &x], &[]);
        let y = b.node("Cast", &[&y], &[("to", int(to.to_onnx() as i64))]);
        finish(&mut b, "", &[y]);
        outputs(&b, &to.to_string(), 1e-7);
    }
}

#[test]
fn roots_and_logarithms_of_sums_of_integers() {
    for t in [DType::I32, DType::I64, DType::U32, DType::U64] {
        for op in ["ReduceL2", "ReduceLogSum", "ReduceLogSumExp"] {
            let mut b = Builder::new(18, 2);
            let list: Vec<i64> = (0..24).map(|i| 3 + i * 7 % 20).collect();
            let x = b.input_of(HostTensor::from_ints(t, &[4, 6], &list));
            let axes = b.ints(&[1]);
            let y = b.node(op, &[&x, &axes], &[("keepdims", int(0))]);
            finish(&mut b, "", &[y]);
            let got = outputs(&b, &format!("{op} {t}"), 0.0);
            let want = list.chunks(6).map(|row| {
                let sum = |f: &dyn Fn(f64) -> f64| row.iter().map(|x| f(*x as f64)).sum::<f64>();
                match op {
                    "ReduceL2" => sum(&|x| x * x).sqrt(),
                    "ReduceLogSum" => sum(&|x| x).ln(),
                    _ => sum(&f64::exp).ln(),
                }
            });
            close(&got[0].to_f64(), &want.map(f64::trunc).collect::<Vec<_>>(), 0.0, op);
        }
    }
}

#[test]
fn one_kernel_serves_all_extents() {
    use barewave::onnx::Dim;
    use barewave::{Shapes, compile::KernelCache};
    // Elementwise over a broadcast row, a transposition, a part of each row: none of them knows its extents.
    let mut b = Builder::new(17, 41);
    let (x, row) = (b.input(&[4, 6]), b.weight(&[6]));
    let sum = b.node("Add", &[&x, &row], &[]);
    let act = b.node("Sigmoid", &[&sum], &[]);
    let turned = b.node("Transpose", &[&x], &[]);
    let turned = b.node("Exp", &[&turned], &[]);
    let (starts, ends, axes) = (b.ints(&[1]), b.ints(&[5]), b.ints(&[1]));
    let part = b.node("Slice", &[&x, &starts, &ends, &axes], &[]);
    let part = b.node("Neg", &[&part], &[]);
    [&act, &turned, &part].iter().for_each(|o| b.output(o));
    b.model.graph.inputs[0].shape = Some(vec![Dim::Symbol("N".into()), Dim::Known(6)]);
    for target in TARGETS {
        let cache = Arc::new(KernelCache::in_memory());
        let target = Target::parse(target).unwrap();
        let compiler = Compiler::new(target, compile::Options { cache: cache.clone(), ..Default::default() });
        let device = Arc::new(EmulatedDevice::new(target, true).unwrap());
        let mut made = Vec::new();
        for n in [5, 2, 64, 333, 1000, 7, 4096] {
            let shapes = Shapes { dims: [("N".to_string(), n)].into(), ..Shapes::default() };
            let compiled = compiler.compile(&b.model, &shapes).unwrap();
            let values = b.random(&[n, 6]);
            let mut session = barewave::Session::new(device.clone(), &compiled).unwrap();
            let got = session.run(std::slice::from_ref(&values)).unwrap().0;
            let graph = fuse(&b.model, &shapes).unwrap();
            let want = Interpreter::new(&graph).run(&graph, &[values]).unwrap();
            for (g, w) in got.iter().zip(&want) {
                close(&g.to_f64(), &w.to_f64(), 1e-6, &format!("{target} {n}"));
            }
            made.push(cache.stats().compiled);
        }
        // Lines of a multiple of four elements and others are two kernels; no extent makes a third.
        assert_eq!(made[made.len() - 1], made[2], "{target}: {made:?}");
        assert!(made[0] == 3 && made[2] <= 6, "{target}: {made:?}");
    }
}

#[test]
fn poolings_tell_where_the_largest_was() {
    for (t, several) in [(DType::F32, 2), (DType::U8, 2), (DType::U8, 1), (DType::I8, 1)] {
        let mut b = Builder::new(17, 61);
        let least = if t == DType::I8 { 120.0 } else { 0.0 };
        let values: Vec<f64> = (0..2 * 3 * 7 * 5).map(|_| b.below(200) as f64 - least).collect();
        let x = b.input_of(HostTensor::from_f64(t, &[2, 3, 7, 5], &values));
        let attributes = [("kernel_shape", ints(&[3, 2])), ("strides", ints(&[2, 1])), ("pads", ints(&[1, 0, 1, 1]))];
        let y = b.node_n("MaxPool", &[&x], &attributes, several);
        finish(&mut b, "", &y);
        let got = outputs(&b, "places", 0.0);
        let (mut want, mut places) = (Vec::new(), Vec::new());
        for i in 0..got[0].len() {
            let (plane, row, column) = (i / 20, i / 5 % 4, i % 5);
            let (mut best, mut place) = (f64::NEG_INFINITY, 0);
            for (r, c) in (0..6).map(|k| ((row * 2 + k / 2) as i64 - 1, column + k % 2)) {
                if (0..7).contains(&r) && c < 5 {
                    let at = plane * 35 + r as usize * 5 + c;
                    if values[at] > best {
                        (best, place) = (values[at], at);
                    }
                }
            }
            want.push(best);
            places.push(place as f64);
        }
        assert_eq!(got[0].shape(), [2, 3, 4, 5]);
        close(&got[0].to_f64(), &want, 0.0, "largest");
        if several == 2 {
            close(&got[1].to_f64(), &places, 0.0, "places");
        }
    }
}

/// Mean, deviation and deciles of random numbers; other nodes and seeds give others.
#[test]
fn random_numbers_are_distributed_as_asked() {
    let n = 4096;
    let mut b = Builder::new(22, 3);
    let x = b.input(&[n]);
    let names: Vec<String> = [
        ("RandomUniformLike", vec![("low", float(-3.0)), ("high", float(5.0)), ("seed", float(1.0))]),
        ("RandomNormalLike", vec![("mean", float(2.0)), ("scale", float(0.5)), ("seed", float(1.0))]),
        ("RandomNormalLike", vec![("mean", float(2.0)), ("scale", float(0.5)), ("seed", float(2.0))]),
        ("RandomNormalLike", vec![("mean", float(2.0)), ("scale", float(0.5))]),
    ]
    .iter()
    .map(|(op, attributes)| b.node(op, &[&x], attributes))
    .collect();
    let quarter = b.constant(HostTensor::from_f32(&[n], &vec![0.25; n]));
    let some = b.node("Mul", &[&x, &x], &[]);
    let zero = b.node("Sub", &[&some, &some], &[]);
    let chance = b.node("Add", &[&zero, &quarter], &[]);
    let hits = b.node("Bernoulli", &[&chance], &[]);
    names.iter().chain([&hits]).for_each(|o| b.output(o));
    let got: Vec<Vec<f64>> = outputs(&b, "random", 1e-5).iter().map(HostTensor::to_f64).collect();
    let moments = |v: &[f64]| {
        let mean = v.iter().sum::<f64>() / v.len() as f64;
        (mean, (v.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / v.len() as f64).sqrt())
    };
    let (mean, deviation) = moments(&got[0]);
    assert!((mean - 1.0).abs() < 0.15 && (deviation - 8.0 / 12f64.sqrt()).abs() < 0.1, "{mean} {deviation}");
    for tenth in 0..10 {
        let low = -3.0 + 0.8 * f64::from(tenth);
        let count = got[0].iter().filter(|x| (low..low + 0.8).contains(*x)).count();
        assert!((300..520).contains(&count), "{count} of {n} from {low} on");
    }
    for v in &got[1..4] {
        let (mean, deviation) = moments(v);
        assert!((mean - 2.0).abs() < 0.04 && (deviation - 0.5).abs() < 0.03, "{mean} {deviation}");
        let within = v.iter().filter(|x| (**x - 2.0).abs() < 0.5).count() as f64 / n as f64;
        assert!((within - 0.6827).abs() < 0.03, "{within}");
    }
    assert!(got[1] != got[2] && got[1] != got[3]);
    let share = got[4].iter().sum::<f64>() / n as f64;
    assert!((share - 0.25).abs() < 0.03, "{share}");
}

#[test]
fn indices_out_of_range_are_named() {
    use barewave::onnx::IndexChecks;
    let mut b = Builder::new(21, 41);
    let x = b.input(&[5, 3]);
    let rows = b.input_of(HostTensor::from_i64(&[2], &[4, -5]));
    let pairs = b.input_of(HostTensor::from_i64(&[2, 2], &[0, 2, -5, -3]));
    let y = b.node("Gather", &[&x, &rows], &[]);
    let z = b.node("GatherND", &[&x, &pairs], &[]);
    [&y, &z].iter().for_each(|o| b.output(o));
    let mut model = b.model.clone();
    let checks = IndexChecks::add(&mut model);
    let run = |rows: [i64; 2], pairs: [i64; 4]| {
        let device = Arc::new(EmulatedDevice::new(Target::GFX942, true).unwrap());
        let compiler = Compiler::new(Target::GFX942, compile::Options::default());
        let inputs = [b.inputs[0].clone(), HostTensor::from_i64(&[2], &rows), HostTensor::from_i64(&[2, 2], &pairs)];
        let mut got = AnyShape::new(device, compiler, Arc::new(model.clone()), 1).run(&inputs).unwrap().0;
        checks.verify(&mut got).map(|()| got.len()).map_err(|e| e.to_string())
    };
    assert_eq!(run([4, -5], [0, 2, -5, -3]), Ok(2), "the checks' own outputs are gone");
    let wrong = run([0, 5], [0; 4]).unwrap_err();
    assert!(wrong.contains(&format!("`Gather_{y}` (Gather): index 5")) && wrong.contains("extent 5"), "{wrong}");
    assert!(run([0, -6], [0; 4]).unwrap_err().contains("index -6"));
    assert!(run([0; 2], [0, 0, 4, 3]).unwrap_err().contains("(GatherND): index 3"));
}

#[test]
fn products_of_nothing_are_zero() {
    let mut b = Builder::new(17, 51);
    let (rows, none) = (b.input_of(HostTensor::from_f32(&[0, 4], &[])), b.input_of(HostTensor::from_f32(&[2, 0], &[])));
    let (w, c, kernel) = (b.weight(&[4, 3]), b.weight(&[3]), b.weight(&[5, 3, 3, 3]));
    let empty = b.constant(HostTensor::from_f32(&[0, 3], &[]));
    let pictures = b.input_of(HostTensor::from_f32(&[0, 3, 8, 8], &[]));
    let y = b.node("Gemm", &[&rows, &w, &c], &[]);
    let z = b.node("Gemm", &[&none, &empty, &c], &[("beta", float(2.0))]);
    let q = b.node("Conv", &[&pictures, &kernel], &[]);
    let larger = b.weight(&[3, 2, 3, 3]);
    let r = b.node("ConvTranspose", &[&pictures, &larger], &[]);
    [&y, &z, &q, &r].iter().for_each(|o| b.output(o));
    for [left, right] in [[&rows, &w], [&none, &empty]] {
        let product = b.node("com.microsoft.FusedMatMul", &[left, right], &[("alpha", float(2.0))]);
        b.output(&product);
    }
    let got = outputs(&b, "nothing", 0.0);
    let twice: Vec<f64> = b.model.graph.initializers[&c].to_f64().iter().map(|v| v * 2.0).collect();
    assert_eq!((got[3].shape(), got[4].shape()), (&[0, 2, 10, 10][..], &[0, 3][..]));
    assert_eq!((got[5].shape(), got[5].to_f64()), (&[2, 3][..], vec![0.0; 6]));
    assert_eq!((got[0].shape(), got[1].to_f64(), got[2].shape()), (&[0, 3][..], twice.repeat(2), &[0, 5, 6, 6][..]));
}

/// onnxruntime's optimiser turns the weights of NhwcConv with the images.
#[test]
fn convolutions_of_turned_images_and_weights() {
    let model = |turned: bool| {
        let mut b = Builder::new(17, 77);
        let (x, w) = (b.input(&[1, 6, 5, 8]), b.weight(&[6, 3, 2, 4]));
        let attributes = [("pads", ints(&[1, 1, 1, 0])), ("kernel_shape", ints(&[3, 2])), ("group", int(2))];
        if turned {
            let y = b.node("NhwcConv", &[&x, &w], &attributes);
            finish(&mut b, "com.microsoft", &[y]);
        } else {
            let [x, w] = [x, w].map(|v| b.node("Transpose", &[&v], &[("perm", ints(&[0, 3, 1, 2]))]));
            let y = b.node("Conv", &[&x, &w], &attributes);
            let y = b.node("Transpose", &[&y], &[("perm", ints(&[0, 2, 3, 1]))]);
            b.output(&y);
        }
        b.model.opsets.insert("com.microsoft".into(), 1);
        outputs(&b, "turned convolution", 1e-5)[0].to_f64()
    };
    close(&model(true), &model(false), 1e-6, "turned convolution");
}

/// Matrices times their inverses are unit matrices, where a pivot has to be looked for too.
#[test]
fn inverses_undo() {
    for (shape, t, most) in [
        (vec![3usize, 2, 2], DType::F32, 1e-4),
        (vec![1, 1], DType::F32, 1e-5),
        (vec![2, 2, 7, 7], DType::F32, 1e-3),
        (vec![33, 33], DType::F64, 1e-9),
        (vec![5, 4, 4], DType::F16, 0.1),
    ] {
        let mut b = Builder::new(21, 41);
        let n = shape[shape.len() - 1];
        // The largest elements lie beside the diagonal.
        let x = b.random(&shape).to_f64();
        let x: Vec<f64> = (0..x.len()).map(|i| x[i] + if (i / n + 1) % n == i % n { 3.0 } else { 0.0 }).collect();
        let x = HostTensor::from_f64(t, &shape, &x);
        let given = b.input_of(x.clone());
        let y = b.node("Inverse", &[&given], &[]);
        finish(&mut b, "com.microsoft", &[y]);
        b.model.opsets.insert("com.microsoft".into(), 1);
        let got = outputs(&b, &format!("{shape:?} {t}"), most)[0].to_f64();
        let x = x.to_f64();
        for m in (0..x.len()).step_by(n * n) {
            for (i, j) in (0..n).flat_map(|i| (0..n).map(move |j| (i, j))) {
                let product: f64 = (0..n).map(|k| x[m + i * n + k] * got[m + k * n + j]).sum();
                assert!((product - f64::from(i == j)).abs() < most, "{shape:?} {t}: {i} {j}: {product}");
            }
        }
    }
}

/// Halves made of one value, as it is or in another order, unlike each other by what is computed of them, by where they lie, by both or by nothing.
#[test]
fn halves_of_one_value_follow_each_other() {
    let negated = |b: &mut Builder, x: &String| b.node("Neg", &[x], &[]);
    for (shape, axis) in [(&[2usize, 8, 4, 6][..], 2), (&[2, 8, 4, 6], 3), (&[1, 4, 2, 2], 1)] {
        for moved in ["", "DepthToSpace", "SpaceToDepth"] {
            for (first, second) in [(0, 1), (1, 0), (1, 1), (0, 0)] {
                let mut b = Builder::new(17, 5);
                let x = b.input(shape);
                let y = match moved {
                    "" => x,
                    op => b.node(op, &[&x], &[("blocksize", int(2))]),
                };
                let halves: Vec<String> =
                    [first, second].map(|n| if n == 1 { negated(&mut b, &y) } else { y.clone() }).into();
                let z = b.node("Concat", &[&halves[0], &halves[1]], &[("axis", int(axis))]);
                finish(&mut b, "", &[z, y]);
                let what = format!("{moved} {shape:?}, {first} and {second} along {axis}");
                let got = outputs(&b, &what, 0.0);
                let sizes: Vec<usize> = got[1].shape().to_vec();
                let y = got[1].to_f64();
                let run: usize = sizes[axis as usize..].iter().product();
                let sign = |n: i32| move |v: &f64| if n == 1 { -v } else { *v };
                let want: Vec<f64> = y
                    .chunks(run)
                    .flat_map(|rows| {
                        rows.iter().map(sign(first)).chain(rows.iter().map(sign(second))).collect::<Vec<f64>>()
                    })
                    .collect();
                close(&got[0].to_f64(), &want, 0.0, &what);
            }
        }
    }
}

#[test]
fn one_of_many_whatever_counts_them() {
    for (t, list) in [
        (DType::F32, vec![2.75, -1.0, 299.5, 40.0, -0.5]),
        (DType::I8, vec![2.0, -1.0, 100.0, -128.0, 127.0]),
        (DType::U8, vec![2.0, 255.0, 254.0, 0.0, 128.0]),
        (DType::U64, vec![2.0, 299.0, 300.0, 1e18, 1.0]),
    ] {
        let mut b = Builder::new(17, 62);
        let x = b.input_of(HostTensor::from_f64(t, &[5], &list));
        let (depth, values) = (b.constant(HostTensor::from_i64(&[], &[300])), b.weight(&[2]));
        let values_of = b.model.graph.initializers[&values].to_f64();
        let y = b.node("OneHot", &[&x, &depth, &values], &[]);
        finish(&mut b, "", &[y]);
        let got = outputs(&b, &format!("one of 300 of {t}"), 0.0)[0].to_f64();
        for (row, index) in got.chunks(300).zip(&list) {
            let index = index.trunc();
            let place = if index < 0.0 { index + 300.0 } else { index };
            let want = |i: usize| values_of[usize::from(i as f64 == place)];
            assert!((0..300).all(|i| row[i] == want(i)), "{t} {index}");
        }
    }
}

#[test]
fn statistics_are_of_the_type_that_is_asked_for() {
    for (t, asked, is) in
        [(DType::F16, None, DType::F32), (DType::F32, Some(16), DType::BF16), (DType::F64, Some(11), DType::F64)]
    {
        let mut b = Builder::new(17, 63);
        let values: Vec<f64> = (0..3 * 5 * 7).map(|_| b.below(64) as f64 / 8.0).collect();
        let x = b.input_of(HostTensor::from_f64(t, &[3, 5, 7], &values));
        let scale = b.constant(HostTensor::from_f64(t, &[7], &[1.0; 7]));
        let mut attributes = vec![("axis", int(-1))];
        attributes.extend(asked.map(|n| ("stash_type", int(n))));
        let y = b.node_n("LayerNormalization", &[&x, &scale, ""], &attributes, 3);
        finish(&mut b, "", &y);
        let got = outputs(&b, &format!("statistics of {t}"), 1e-2);
        assert_eq!([got[0].dtype(), got[1].dtype(), got[2].dtype()], [t, is, is]);
        let means: Vec<f64> = values.chunks(7).map(|row| row.iter().sum::<f64>() / 7.0).collect();
        close(&got[1].to_f64(), &means, if is == DType::BF16 { 1e-2 } else { 1e-6 }, "means");
    }
}

/// Running statistics of another type than data, whose own are of theirs.
#[test]
fn statistics_of_a_batch_move_those_of_another_type() {
    for (of_data, of_running) in [(DType::F16, DType::F32), (DType::F32, DType::F16), (DType::F32, DType::F64)] {
        let mut b = Builder::new(15, 4);
        let given = |b: &mut Builder, dtype, shape: &[usize]| {
            let values = b.random(shape).to_f64();
            b.input_of(HostTensor::from_f64(dtype, shape, &values))
        };
        let x = given(&mut b, of_data, &[2, 3, 5]);
        let [scale, bias, mean, var] = [of_data, of_data, of_running, of_running].map(|t| given(&mut b, t, &[3]));
        let attributes = [("training_mode", int(1)), ("momentum", float(0.75))];
        let y = b.node_n("BatchNormalization", &[&x, &scale, &bias, &mean, &var], &attributes, 3);
        finish(&mut b, "", &y);
        let got = outputs(&b, "statistics of a batch", 2e-3);
        assert_eq!([0, 1, 2].map(|i| got[i].dtype()), [of_data, of_running, of_running]);
        let (x, old) = (b.inputs[0].to_f64(), b.inputs[3].to_f64());
        let mean = |c: usize| (0..10).map(|i| x[i / 5 * 15 + c * 5 + i % 5]).sum::<f64>() / 10.0;
        let want: Vec<f64> = (0..3).map(|c| 0.75 * old[c] + 0.25 * mean(c)).collect();
        close(&got[1].to_f64(), &want, 2e-3, "running mean");
    }
}

#[test]
fn windows_that_the_input_ends_in() {
    for (op, kernel, strides, input) in
        [("MaxPool", 2, 2, 1), ("AveragePool", 3, 2, 2), ("AveragePool", 4, 3, 2), ("MaxPool", 5, 4, 6)]
    {
        let mut b = Builder::new(19, 64);
        let x = b.input(&[2, 3, input]);
        let values = b.inputs[0].to_f64();
        let how = [("kernel_shape", ints(&[kernel])), ("strides", ints(&[strides])), ("ceil_mode", int(1))];
        let y = b.node(op, &[&x], &how);
        finish(&mut b, "", &[y]);
        let got = outputs(&b, &format!("{op} of {kernel} over {input}"), 1e-6);
        let starts = (0..input).step_by(strides).take_while(|s| *s == 0 || s - strides + kernel < input);
        let want: Vec<f64> = values
            .chunks(input)
            .flat_map(|row| {
                let window = |s: usize| row[s..(s + kernel).min(input)].to_vec();
                let max = op == "MaxPool";
                let one = move |w: Vec<f64>| {
                    if max { w.iter().fold(f64::MIN, |m, v| m.max(*v)) } else { w.iter().sum::<f64>() / w.len() as f64 }
                };
                starts.clone().map(window).map(one).collect::<Vec<_>>()
            })
            .collect();
        close(&got[0].to_f64(), &want, 1e-6, op);
    }
}

#[test]
fn extents_are_scaled_in_float32() {
    for (n, scale, scaled) in [(20, 0.7, 14), (10, 0.9, 9), (7, 1.3, 9)] {
        let mut b = Builder::new(18, 65);
        let x = b.input(&[2, n]);
        let scales = b.constant(HostTensor::from_f32(&[2], &[1.0, scale]));
        let how = [("mode", text("nearest")), ("coordinate_transformation_mode", text("asymmetric"))];
        let y = b.node("Resize", &[&x, "", &scales], &how);
        finish(&mut b, "", &[y]);
        assert_eq!(outputs(&b, &format!("{n} by {scale}"), 0.0)[0].shape(), [2, scaled]);
    }
}

/// Nearest sampling at places that lie in the middle, or at an element, but for the rounding of f32: which elements onnxruntime
/// takes.
#[test]
fn places_are_scaled_in_float32() {
    type Case = (&'static str, &'static str, usize, f32, Option<[f32; 2]>, &'static [i64]);
    let cases: [Case; 7] = [
        ("half_pixel", "round_prefer_ceil", 28, 0.1, None, &[5, 15]),
        ("half_pixel", "round_prefer_ceil", 20, 0.3, None, &[1, 5, 8, 11, 15, 18]),
        ("half_pixel", "floor", 26, 0.2, None, &[2, 7, 12, 17, 22]),
        ("asymmetric", "floor", 12, 0.8, None, &[0, 1, 2, 3, 5, 6, 7, 8, 10]),
        ("asymmetric", "round_prefer_ceil", 7, 1.2, None, &[0, 1, 2, 3, 3, 4, 5, 6]),
        ("tf_crop_and_resize", "ceil", 3, 4.0, Some([0.2, 1.0]), &[1, 1, 2, 2]),
        ("tf_crop_and_resize", "ceil", 25, 6.0, Some([0.2, 0.5]), &[5, 7, 8, 10, 11, 12]),
    ];
    for (coordinates, nearest, n, to, region, want) in cases {
        let mut b = Builder::new(19, 65);
        let values: Vec<i64> = (0..n as i64).collect();
        let x = b.input_of(HostTensor::from_ints(DType::F32, &[n], &values));
        let how = [
            ("mode", text("nearest")),
            ("coordinate_transformation_mode", text(coordinates)),
            ("nearest_mode", text(nearest)),
            ("extrapolation_value", Attribute::Float(-7.0)),
        ];
        let y = match region {
            Some(region) => {
                let region = b.constant(HostTensor::from_f32(&[2], &region));
                let sizes = b.ints(&[to as i64]);
                b.node("Resize", &[&x, &region, "", &sizes], &how)
            }
            None => {
                let scales = b.constant(HostTensor::from_f32(&[1], &[to]));
                b.node("Resize", &[&x, "", &scales], &how)
            }
        };
        finish(&mut b, "", &[y]);
        let got = outputs(&b, &format!("{n} by {to}, {coordinates} and {nearest}"), 0.0);
        assert_eq!(got[0].to_i64(), want, "{n} by {to}, {coordinates} and {nearest}");
    }
}

#[test]
fn the_largest_byte_of_all() {
    for t in [DType::I8, DType::U8] {
        let mut b = Builder::new(12, 66);
        let values: Vec<i64> =
            (0..2 * 3 * 7).map(|_| b.below(100) as i64 - if t == DType::I8 { 90 } else { 0 }).collect();
        let x = b.input_of(HostTensor::from_ints(t, &[2, 3, 7], &values));
        let y = b.node("MaxPool", &[&x], &[("kernel_shape", ints(&[7]))]);
        finish(&mut b, "", &[y]);
        let want: Vec<i64> = values.chunks(7).map(|row| *row.iter().max().unwrap()).collect();
        assert_eq!(outputs(&b, "bytes", 0.0)[0].to_i64(), want);
    }
}
