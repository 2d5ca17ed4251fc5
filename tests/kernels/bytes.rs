//! Products and convolutions of bytes, summed in 32 bits: exact on every target, by the instructions that it has for them.

use crate::support::build::{Builder, int, ints};
use crate::support::device;
use barewave::graph::{Options, fuse};
use barewave::tensor::{DType, HostTensor};
use barewave_isa::Target;

/// One target per way to multiply bytes, and what its kernels must contain.
const TARGETS: [(&str, &str); 11] = [
    ("gfx803", "v_mad_i32_i24"),
    ("gfx906", "v_dot4_i32_i8"),
    ("gfx908", "v_mfma_i32_"),
    ("gfx90a", "v_mfma_i32_"),
    ("gfx942", "v_mfma_i32_"),
    ("gfx950", "v_mfma_i32_"),
    ("gfx1010", "v_mad_i32_i24"),
    ("gfx1012", "v_dot4_i32_i8"),
    ("gfx1030", "v_dot4_i32_i8"),
    ("gfx1100", "v_wmma_i32_16x16x16_iu8"),
    ("gfx1201", "v_wmma_i32_16x16x16_iu8"),
];

fn bytes(b: &mut Builder, t: DType, shape: &[usize]) -> HostTensor {
    let low = if t == DType::I8 { -128 } else { 0 };
    let n = shape.iter().product();
    // The ends of the range come often.
    let values: Vec<i64> =
        (0..n).map(|_| low + [b.below(256), 0, 255][b.below(8).saturating_sub(5).min(2)] as i64).collect();
    HostTensor::from_ints(t, shape, &values)
}

/// Runs strictly on all targets and compares exactly.
fn check(b: &Builder, what: &str, want: &[i64]) {
    let graph = fuse(&b.model, &Options::default()).unwrap_or_else(|e| panic!("{what}: {e}"));
    for (target, _) in TARGETS {
        let (out, _) = device::run(&graph, &b.inputs, target, true).unwrap_or_else(|e| panic!("{what} {target}: {e}"));
        let got = out[0].to_i64();
        let wrong = got.iter().zip(want).position(|(x, y)| x != y);
        assert!(got.len() == want.len() && wrong.is_none(), "{what} {target}: element {wrong:?}");
    }
}

#[test]
fn products_of_odd_shapes() {
    let shapes =
        [[1, 1, 1], [3, 5, 7], [17, 33, 65], [64, 64, 64], [100, 70, 130], [33, 129, 200], [5, 260, 16], [16, 16, 1]];
    let (i, u) = (DType::I8, DType::U8);
    for (n, [rows, k, columns]) in shapes.into_iter().enumerate() {
        for (ta, tb) in [(i, i), (u, i), (u, u), (i, u)] {
            // No zero points, one each, one for each row and column.
            let zeros = n % 3;
            let mut b = Builder::new(17, (rows * k + columns) as u64);
            let (x, y) = (bytes(&mut b, ta, &[2, rows, k]), bytes(&mut b, tb, &[k, columns]));
            let (zx, zy) = match zeros {
                0 => (None, None),
                1 => (Some(bytes(&mut b, ta, &[])), Some(bytes(&mut b, tb, &[]))),
                _ => (Some(bytes(&mut b, ta, &[rows])), Some(bytes(&mut b, tb, &[columns]))),
            };
            let at = |z: &Option<HostTensor>, i: usize| z.as_ref().map_or(0, |z| z.to_i64()[i % z.to_i64().len()]);
            let (xs, ys) = (x.to_i64(), y.to_i64());
            let mut want = Vec::new();
            for batch in 0..2 {
                for r in 0..rows {
                    for c in 0..columns {
                        let term =
                            |l| (xs[(batch * rows + r) * k + l] - at(&zx, r)) * (ys[l * columns + c] - at(&zy, c));
                        want.push((0..k).map(term).sum::<i64>());
                    }
                }
            }
            let mut names = vec![b.input_of(x), if b.coin() { b.input_of(y) } else { b.constant(y) }];
            names.extend([zx, zy].into_iter().flatten().map(|z| b.input_of(z)));
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let out = b.node("MatMulInteger", &names, &[]);
            b.output(&out);
            check(&b, &format!("{ta} by {tb} {rows}x{k}x{columns}, zero points {zeros}"), &want);
        }
    }
}

#[test]
fn convolutions_of_bytes() {
    // Images, channels, rows, columns, output channels, window, padding, stride, groups.
    let shapes = [
        [1, 3, 9, 11, 8, 3, 1, 1, 1],
        [2, 16, 7, 7, 40, 1, 0, 1, 1],
        [1, 8, 12, 10, 12, 3, 0, 2, 2],
        [1, 6, 8, 8, 6, 3, 1, 1, 6],
        [1, 5, 6, 13, 66, 5, 2, 1, 1],
        [2, 12, 9, 10, 12, 5, 2, 2, 12],
        [1, 4, 7, 7, 8, 3, 1, 2, 4],
        [1, 3, 4, 4, 2, 9, 4, 1, 1],
    ];
    // Types of data and weights, and their zero points.
    let (i, u) = (DType::I8, DType::U8);
    let types = [(i, 0, i, 0), (u, 3, i, 0), (u, 128, u, 128), (i, -7, u, 128), (u, 0, i, 0), (u, 255, u, 9)];
    for (n, k) in (0..shapes.len()).flat_map(|n| (0..types.len()).step_by(2).map(move |k| (n, (k + n) % types.len()))) {
        let (tx, zx, tw, zw) = types[k];
        let [images, channels, h, w, out_channels, window, pad, stride, groups] = shapes[n];
        let mut b = Builder::new(17, (channels * h + w) as u64);
        let per_group = channels / groups;
        let x = bytes(&mut b, tx, &[images, channels, h, w]);
        let weights = bytes(&mut b, tw, &[out_channels, per_group, window, window]);
        let (xs, ws) = (x.to_i64(), weights.to_i64());
        let extent = |n: usize| (n + 2 * pad - window) / stride + 1;
        let mut want = Vec::new();
        for (image, m) in (0..images).flat_map(|i| (0..out_channels).map(move |m| (i, m))) {
            for (r, c) in (0..extent(h)).flat_map(|r| (0..extent(w)).map(move |c| (r, c))) {
                let mut sum = 0;
                for (k, dr, dc) in
                    (0..per_group).flat_map(|k| (0..window * window).map(move |d| (k, d / window, d % window)))
                {
                    let channel = m / (out_channels / groups) * per_group + k;
                    let (y, x) = ((r * stride + dr).wrapping_sub(pad), (c * stride + dc).wrapping_sub(pad));
                    if y < h && x < w {
                        let a = xs[((image * channels + channel) * h + y) * w + x];
                        sum += (a - zx) * (ws[((m * per_group + k) * window + dr) * window + dc] - zw);
                    }
                }
                want.push(sum);
            }
        }
        let (x, constant) = (b.input_of(x), b.coin());
        let weights = if constant { b.constant(weights) } else { b.input_of(weights) };
        let attributes = [("pads", ints(&[pad; 4])), ("strides", ints(&[stride; 2])), ("group", int(groups as i64))];
        let [zero, middle] = [(tx, zx), (tw, zw)].map(|(t, z)| b.constant(HostTensor::from_ints(t, &[], &[z])));
        let names = [&x, &weights, &zero, &middle].map(String::as_str);
        let plain = (zx, zw) == (0, 0) && b.coin();
        let out = b.node("ConvInteger", if plain { &names[..2] } else { &names }, &attributes);
        b.output(&out);
        let what = format!("{channels}x{h}x{w} by {out_channels}x{window}x{window} in {groups} groups");
        check(&b, &format!("{what}, {tx} around {zx} by {tw} around {zw}"), &want);
    }
}

/// A quantised convolution by windows of 3x3 of an image that the zero point surrounds, of size `side`.
fn quantised(
    x: &[i64],
    side: usize,
    w: &[i64],
    groups: usize,
    zero: i64,
    scale: f32,
    [low, high]: [i64; 2],
) -> Vec<i64> {
    let (inputs, plane) = (x.len() / (side * side), side * side);
    let taps = inputs / groups * 9;
    let channels = w.len() / taps;
    let mut out = Vec::new();
    for (m, at) in (0..channels).flat_map(|m| (0..plane).map(move |at| (m, at))) {
        let mut sum = 0;
        for tap in 0..taps {
            let c = m / (channels / groups) * (inputs / groups) + tap / 9;
            let (r, s) = ((at / side + tap % 9 / 3).wrapping_sub(1), (at % side + tap % 3).wrapping_sub(1));
            if r < side && s < side {
                sum += (x[c * plane + r * side + s] - zero) * w[m * taps + tap];
            }
        }
        out.push(((sum as f32 * scale).round_ties_even() as i64 + zero).clamp(low, high));
    }
    out
}

/// Padding is the zero point without a step of its own, and depthwise convolutions are steps of bytes: what quantises the
/// results of one gives what the next reads.
#[test]
fn a_chain_of_quantised_convolutions_has_a_step_for_each() {
    for (t, zero) in [(DType::U8, 97), (DType::U8, 0), (DType::I8, -5)] {
        let mut b = Builder::new(17, 3);
        let x = bytes(&mut b, t, &[1, 8, 9, 9]);
        let mut want = x.to_i64();
        let mut y = b.input_of(x);
        let [xs, ws] = [0.02f32, 0.00109].map(|s| (s, b.constant(HostTensor::from_f32(&[], &[s]))));
        let z = b.constant(HostTensor::from_ints(t, &[], &[zero]));
        let wz = b.constant(HostTensor::from_ints(DType::I8, &[], &[0]));
        let range = if t == DType::U8 { [0, 255] } else { [-128, 127] };
        for (inputs, channels, groups) in [(8, 12, 1), (12, 12, 12), (12, 16, 1)] {
            let w = bytes(&mut b, DType::I8, &[channels, inputs / groups, 3, 3]);
            want = quantised(&want, 9, &w.to_i64(), groups, zero, xs.0 * ws.0 / xs.0, range);
            let w = b.constant(w);
            let names = [&y, &xs.1, &z, &w, &ws.1, &wz, &xs.1, &z].map(String::as_str);
            y = b.node("QLinearConv", &names, &[("pads", ints(&[1; 4])), ("group", int(groups as i64))]);
        }
        b.output(&y);
        let graph = fuse(&b.model, &Options::default()).unwrap();
        // Three, and one that brings the model's input into the form that the first reads.
        assert!(graph.steps.len() <= 4, "{t}: {graph}");
        check(&b, &format!("chain of {t}"), &want);
    }
}

/// MatMul, Gemm and Conv between dequantisations: as floats say, but for rounding, with weights that stay bytes.
#[test]
fn dequantised_factors_stay_bytes() {
    for (case, op) in ["MatMul", "Gemm", "Gemm", "Conv"].into_iter().enumerate() {
        let mut b = Builder::new(17, case as u64);
        let flipped = case == 2;
        let (rows, k, n) = (5, 70, 96);
        let (left, right, axis) = match op {
            "Conv" => (vec![1, k, 6, 7], vec![n, k, 3, 3], 0),
            _ if flipped => (vec![rows, k], vec![n, k], 0),
            _ => (vec![rows, k], vec![k, n], 1),
        };
        let (x, w) = (bytes(&mut b, DType::U8, &left), bytes(&mut b, DType::I8, &right));
        let scales: Vec<f32> = (0..n).map(|i| 0.01 + i as f32 / 1000.0).collect();
        let (zero, bias) = (117, b.random(&[n]));
        let one = |b: &mut Builder, t: HostTensor| b.constant(t);
        let (xs, zx) =
            (one(&mut b, HostTensor::from_f32(&[], &[0.02])), HostTensor::from_ints(DType::U8, &[], &[zero]));
        let (zx, ws) = (one(&mut b, zx), one(&mut b, HostTensor::from_f32(&[n], &scales)));
        let (xv, wv) = (x.to_i64(), w.to_i64());
        let (given, weights) = (b.input_of(x), one(&mut b, w));
        let x = b.node("DequantizeLinear", &[&given, &xs, &zx], &[]);
        let w = b.node("DequantizeLinear", &[&weights, &ws], &[("axis", int(axis))]);
        let c = one(&mut b, bias.clone());
        let names = [&x, &w, &c].map(String::as_str);
        let y = match op {
            "MatMul" => b.node(op, &names[..2], &[]),
            "Gemm" => b.node(op, &names, &[("transB", int(flipped.into()))]),
            _ => b.node(op, &names, &[("pads", ints(&[1; 4]))]),
        };
        b.output(&y);
        let (bias, a) = (bias.to_f64(), |i: usize| (xv[i] - zero) as f64 * 0.02f32 as f64);
        let mut want = Vec::new();
        if op == "Conv" {
            for (m, at) in (0..n).flat_map(|m| (0..42usize).map(move |at| (m, at))) {
                let mut sum = bias[m];
                for (c, tap) in (0..k).flat_map(|c| (0..9usize).map(move |t| (c, t))) {
                    let (r, s) = ((at / 7 + tap / 3).wrapping_sub(1), (at % 7 + tap % 3).wrapping_sub(1));
                    if r < 6 && s < 7 {
                        sum += a((c * 6 + r) * 7 + s) * wv[(m * k + c) * 9 + tap] as f64 * scales[m] as f64;
                    }
                }
                want.push(sum);
            }
        } else {
            for (r, c) in (0..rows).flat_map(|r| (0..n).map(move |c| (r, c))) {
                let at = |l: usize| if flipped { c * k + l } else { l * n + c };
                let sum: f64 = (0..k).map(|l| a(r * k + l) * wv[at(l)] as f64 * scales[c] as f64).sum();
                want.push(sum + if op == "Gemm" { bias[c] } else { 0.0 });
            }
        }
        let mut model = b.model.clone();
        model.expand();
        let graph = fuse(&model, &Options::default()).unwrap();
        let size = want.iter().fold(0.0, |m: f64, x| m.max(x.abs()));
        for (target, _) in TARGETS {
            let compiled = barewave::compile::compile(&graph, Target::parse(target).unwrap()).unwrap();
            // Lines of windows may have zeros behind them, and a depth in parts.
            assert!(compiled.weights_len() < wv.len() * 2, "{op} {target}: {}", compiled.weights_len());
            let (out, _) =
                device::run(&graph, &b.inputs, target, true).unwrap_or_else(|e| panic!("{op} {target}: {e}"));
            let worst = out[0].to_f64().iter().zip(&want).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
            assert!(worst < 1e-6 * size, "{op} {target}: off by {worst} of {size}");
        }
    }
}

/// The kernels are made of the instructions that multiply bytes.
#[test]
fn each_target_multiplies_bytes_its_way() {
    let mut b = Builder::new(17, 1);
    let (x, y) = (bytes(&mut b, DType::I8, &[256, 256]), bytes(&mut b, DType::I8, &[256, 256]));
    let (x, y) = (b.input_of(x), b.input_of(y));
    let out = b.node("MatMulInteger", &[&x, &y], &[]);
    b.output(&out);
    let graph = fuse(&b.model, &Options::default()).unwrap();
    for (target, wanted) in TARGETS {
        let text = device::first_listing(&graph, target);
        assert!(text.contains(wanted), "{target}: no {wanted} in\n{text}");
    }
}

/// The scale, the zero point and bytes of floats, as ONNX defines them.
fn dynamically_quantised(x: &[f32]) -> (f32, i64, Vec<i64>) {
    let low = x.iter().copied().fold(0.0, f32::min);
    let high = x.iter().copied().fold(0.0, f32::max);
    let scale = if high > low { (high - low) / 255.0 } else { 1.0 };
    let zero = (-(low / scale)).round_ties_even().clamp(0.0, 255.0);
    let byte = |x: &f32| ((x / scale).round_ties_even() + zero).clamp(0.0, 255.0) as i64;
    (scale, zero as i64, x.iter().map(byte).collect())
}

/// Scale and zero point take one launch, of one workgroup or of several of which the last one ends it, and bytes another.
#[test]
fn floats_become_bytes() {
    // What the model does with them is read back in another order, or from the middle of a tensor.
    let shapes: [&[usize]; 10] =
        [&[], &[1], &[3], &[5, 7], &[64, 64], &[17, 241], &[3, 11, 130], &[129, 100], &[40, 256, 13], &[2, 2_100_000]];
    for (n, shape) in shapes.into_iter().enumerate() {
        let mut b = Builder::new(17, n as u64);
        let count: usize = shape.iter().product();
        // Both signs, one of them, and nothing but zeros.
        let (times, plus) = [(4.0f32, 0.5), (3.0, -7.0), (0.25, 2.0), (0.0, 0.0)][n % 4];
        let mut data: Vec<f32> = b.random(&[count]).to_f32().iter().map(|x| x * times + plus).collect();
        // The extremes are anywhere.
        let at = [b.below(count), b.below(count)];
        data[at[0]] += 9.0 * times;
        data[at[1]] -= 11.0 * times;
        let x = b.input_of(HostTensor::from_f32(shape, &data));
        let x = match shape.len() {
            2 => b.node("Transpose", &[&x], &[]),
            _ => x,
        };
        b.node_n("DynamicQuantizeLinear", &[&x], &[], 3).iter().for_each(|y| b.output(y));
        let (scale, zero, mut bytes) = dynamically_quantised(&data);
        if let [rows, columns] = shape[..] {
            bytes = (0..count).map(|i| bytes[i % rows * columns + i / rows]).collect();
        }
        let graph = fuse(&b.model, &Options::default()).unwrap();
        for (target, _) in TARGETS.into_iter().filter(|(t, _)| count < 1_000_000 || *t == "gfx942") {
            let what = format!("{shape:?} on {target}");
            let (mut session, compiled) =
                device::session(&graph, target, true).unwrap_or_else(|e| panic!("{what}: {e}"));
            // Scale and zero point are outputs of the model, which take a copy each, perhaps beside another step.
            assert!(compiled.plan().launches.len() <= 4, "{what}");
            // Counters begin anew in each run.
            for _ in 0..2 {
                let (out, _) = session.run(&b.inputs).unwrap_or_else(|e| panic!("{what}: {e}"));
                assert_eq!((out[1].to_f64()[0] as f32, out[2].to_i64()[0]), (scale, zero), "{what}");
                let wrong = out[0].to_i64().iter().zip(&bytes).position(|(x, y)| x != y);
                assert!(out[0].to_i64().len() == count && wrong.is_none(), "{what}: element {wrong:?}");
            }
        }
    }
}

/// What is quantised, multiplied and scaled needs no launch but these: extremes, bytes, and a product.
#[test]
fn dynamically_quantised_products_take_three_launches() {
    let mut b = Builder::new(17, 3);
    let x = b.input(&[33, 160]);
    let weights = bytes(&mut b, DType::I8, &[160, 48]);
    let weights = b.constant(weights);
    let q = b.node_n("DynamicQuantizeLinear", &[&x], &[], 3);
    let y = b.node("MatMulInteger", &[&q[0], &weights, &q[2]], &[]);
    let y = b.node("Cast", &[&y], &[("to", int(1))]);
    let y = b.node("Mul", &[&y, &q[1]], &[]);
    b.output(&y);
    let graph = fuse(&b.model, &Options::default()).unwrap();
    let data = b.inputs[0].to_f32();
    let (scale, zero, left) = dynamically_quantised(&data);
    let right = b.model.graph.initializers.values().next().unwrap().to_i64();
    let product = |i: usize| {
        let (r, c) = (i / 48, i % 48);
        let sum: i64 = (0..160).map(|k| (left[r * 160 + k] - zero) * right[k * 48 + c]).sum();
        sum as f32 * scale
    };
    for (target, _) in TARGETS {
        let (mut session, compiled) = device::session(&graph, target, true).unwrap_or_else(|e| panic!("{target}: {e}"));
        assert_eq!(compiled.plan().launches.len(), 3, "{target}");
        let (out, _) = session.run(&b.inputs).unwrap_or_else(|e| panic!("{target}: {e}"));
        let got = out[0].to_f64();
        for (i, x) in got.iter().enumerate() {
            let want = f64::from(product(i));
            assert!((x - want).abs() <= 1e-6 * want.abs(), "{target}: element {i} is {x} instead of {want}");
        }
    }
}
