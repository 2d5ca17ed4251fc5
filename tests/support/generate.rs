//! Random operators and random networks.

use super::build::{Builder, float, int, ints, text};
use barewave::tensor::{DType, HostTensor};

/// The operators that [`operator`] can make.
pub const OPERATORS: [&str; 36] = [
    "Conv",
    "ConvTranspose",
    "MaxPool",
    "AveragePool",
    "LRN",
    "BatchNormalization",
    "InstanceNormalization",
    "Gemm",
    "MatMul",
    "Softmax",
    "LogSoftmax",
    "Concat",
    "Pad",
    "Slice",
    "Gather",
    "DepthToSpace",
    "SpaceToDepth",
    "Resize",
    "ReduceSum",
    "ReduceMean",
    "ReduceMax",
    "ReduceMin",
    "ReduceProd",
    "ReduceL1",
    "ReduceL2",
    "ReduceSumSquare",
    "ReduceLogSumExp",
    "Expand",
    "Tile",
    "Where",
    "LayerNormalization",
    "CumSum",
    "Trilu",
    "QuantizeLinear",
    "Attention",
    "RotaryEmbedding",
];

/// One operator on random operands.
pub fn operator(b: &mut Builder, op: &str) {
    let spatial = b.between(1, 3);
    let image = |b: &mut Builder, channels: usize| -> Vec<usize> {
        let mut s = vec![b.between(1, 3), channels];
        s.extend((0..spatial).map(|_| b.between(3, 9)));
        s
    };
    let each = |b: &mut Builder, low: usize, high: usize| -> Vec<usize> {
        (0..spatial).map(|_| b.between(low, high)).collect()
    };
    let y = match op {
        "Conv" | "ConvTranspose" => {
            let groups = b.between(1, 3);
            // Few channels have a kernel of their own.
            let (cin, cout) = (b.between(1, 3), if b.coin() { b.between(1, 3) } else { b.between(5, 9) });
            let shape = image(b, groups * cin);
            let kernel = each(b, 1, 3);
            let transposed = op == "ConvTranspose";
            let mut ws = if transposed { vec![groups * cin, cout] } else { vec![groups * cout, cin] };
            ws.extend(&kernel);
            let (x, w, bias) = (b.input(&shape), b.weight(&ws), b.weight(&[groups * cout]));
            let mut attributes = vec![("group", int(groups as i64)), ("strides", ints(&each(b, 1, 3)))];
            let dilations = each(b, 1, if transposed { 3 } else { 2 });
            if transposed || kernel.iter().zip(&dilations).zip(&shape[2..]).all(|((k, d), n)| (k - 1) * d < *n) {
                attributes.push(("dilations", ints(&dilations)));
            }
            match b.below(3) {
                0 if !transposed => attributes.push(("auto_pad", text(["SAME_UPPER", "SAME_LOWER"][b.below(2)]))),
                1 => {
                    let p: Vec<usize> = (0..2 * spatial).map(|_| b.below(2)).collect();
                    // A transposed convolution is cropped by its pads: something must remain.
                    if !transposed {
                        attributes.push(("pads", ints(&p)));
                    } else if shape[2..].iter().all(|&n| n > 2) {
                        attributes.push(("pads", ints(&p)));
                        let strides = attributes.iter().find(|a| a.0 == "strides").cloned();
                        let Some((_, barewave::onnx::Attribute::Ints(strides))) = strides else { unreachable!() };
                        // Places behind the last window, where nothing but the bias arrives.
                        let behind: Vec<usize> = strides.iter().map(|s| b.below(*s as usize)).collect();
                        attributes.push(("output_padding", ints(&behind)));
                    }
                }
                _ => {}
            }
            if b.coin() { b.node(op, &[&x, &w, &bias], &attributes) } else { b.node(op, &[&x, &w], &attributes) }
        }
        "MaxPool" | "AveragePool" => {
            let c = b.between(1, 3);
            let shape = image(b, c);
            let x = b.input(&shape);
            let kernel = each(b, 2, 3);
            let mut attributes = vec![("kernel_shape", ints(&kernel)), ("strides", ints(&each(b, 1, 3)))];
            attributes.push(("ceil_mode", int(b.below(2) as i64)));
            if b.coin() {
                attributes.push(("pads", ints(&(0..2 * spatial).map(|_| b.below(2)).collect::<Vec<_>>())));
            }
            if op == "AveragePool" {
                attributes.push(("count_include_pad", int(b.below(2) as i64)));
            }
            b.node(op, &[&x], &attributes)
        }
        "LRN" => {
            let c = b.between(1, 7);
            let shape = image(b, c);
            let x = b.input(&shape);
            let size = b.between(1, 5) as i64;
            b.node(op, &[&x], &[("size", int(size)), ("alpha", float(0.3)), ("beta", float(0.6)), ("bias", float(1.5))])
        }
        "BatchNormalization" | "InstanceNormalization" => {
            let c = b.between(1, 4);
            let shape = image(b, c);
            let x = b.input(&shape);
            let (s, t, m) = (b.weight(&[c]), b.weight(&[c]), b.weight(&[c]));
            let var: Vec<f64> = (0..c).map(|_| 0.5 + b.rng.next_unit()).collect();
            let var = HostTensor::from_f64(DType::F32, &[c], &var);
            // Known at compile time or not.
            let v = if b.coin() { b.constant(var) } else { b.input_of(var) };
            if op == "BatchNormalization" {
                b.node(op, &[&x, &s, &t, &m, &v], &[])
            } else {
                b.node(op, &[&x, &s, &t], &[])
            }
        }
        "Gemm" => {
            let (m, k, n) = (b.between(1, 9), b.between(1, 9), b.between(1, 9));
            let (ta, tb) = (b.below(2), b.below(2));
            let x = b.input(&if ta == 1 { [k, m] } else { [m, k] });
            let y = b.weight(&if tb == 1 { [n, k] } else { [k, n] });
            let third = [[m, n], [1, n], [m, 1], [1, 1]][b.below(4)];
            let c = b.weight(&third);
            let attributes =
                [("transA", int(ta as i64)), ("transB", int(tb as i64)), ("alpha", float(0.5)), ("beta", float(2.0))];
            b.node(op, &[&x, &y, &c], &attributes)
        }
        "MatMul" => {
            let (m, k, n) = (b.between(1, 6), b.between(1, 6), b.between(1, 6));
            let (p, q) = (b.between(1, 3), b.between(1, 3));
            let left: &[usize] = &[vec![m, k], vec![q, m, k], vec![p, q, m, k], vec![p, 1, m, k]][b.below(4)];
            let right: &[usize] = &[vec![k, n], vec![q, k, n], vec![1, q, k, n]][b.below(3)];
            let (x, y) = (b.input(left), b.input(right));
            b.node(op, &[&x, &y], &[])
        }
        "Softmax" | "LogSoftmax" => {
            let shape = image(b, 3);
            let x = b.input(&shape);
            let d = b.below(shape.len()) as i64;
            b.node(op, &[&x], &[("axis", int(d))])
        }
        "Concat" => {
            let mut shape = image(b, 2);
            let d = b.below(shape.len());
            let mut parts = Vec::new();
            for _ in 0..b.between(1, 4) {
                shape[d] = b.between(1, 4);
                parts.push(b.input(&shape));
            }
            b.node(op, &parts.iter().map(String::as_str).collect::<Vec<_>>(), &[("axis", int(d as i64))])
        }
        "Pad" => {
            let shape = image(b, 2);
            let x = b.input(&shape);
            let mode = ["constant", "reflect", "edge", "wrap"][b.below(4)];
            let mut pads: Vec<i64> = Vec::new();
            for _ in 0..2 {
                for &n in &shape {
                    pads.push(if mode == "constant" { b.below(4) as i64 - 1 } else { b.below(n.min(3)) as i64 });
                }
            }
            // What is cropped away from both ends must leave something.
            for d in 0..shape.len() {
                if shape[d] as i64 + pads[d].min(0) + pads[d + shape.len()].min(0) < 1 {
                    pads[d] = 0;
                }
            }
            let (p, v) = (b.ints(&pads), b.weight(&[]));
            b.node(op, &[&x, &p, &v], &[("mode", text(mode))])
        }
        "Slice" => {
            let shape = image(b, 4);
            let x = b.input(&shape);
            let d = b.below(shape.len());
            let n = shape[d] as i64;
            let (start, end, step) = if b.coin() {
                (b.below(n as usize) as i64, n + 5, b.between(1, 3) as i64)
            } else {
                (-1, -n - 5, -(b.between(1, 3) as i64))
            };
            let (s, e, a, t) = (b.ints(&[start]), b.ints(&[end]), b.ints(&[d as i64]), b.ints(&[step]));
            b.node(op, &[&x, &s, &e, &a, &t], &[])
        }
        "Gather" => {
            let shape = image(b, 4);
            let x = b.input(&shape);
            let d = b.below(shape.len());
            let n = shape[d];
            let index: Vec<i64> = (0..6).map(|_| b.below(2 * n) as i64 - n as i64).collect();
            let index = HostTensor::from_i64(&[2, 3], &index);
            let i = if b.coin() { b.constant(index) } else { b.input_of(index) };
            b.node(op, &[&x, &i], &[("axis", int(d as i64))])
        }
        "DepthToSpace" => {
            let x = b.input(&[2, 12, 3, 5]);
            let mode = ["DCR", "CRD"][b.below(2)];
            b.node(op, &[&x], &[("blocksize", int(2)), ("mode", text(mode))])
        }
        "SpaceToDepth" => {
            let x = b.input(&[2, 3, 4, 6]);
            b.node(op, &[&x], &[("blocksize", int(2))])
        }
        "Resize" => {
            let (h, w) = (b.between(2, 6), b.between(2, 6));
            let x = b.input(&[2, 2, h, w]);
            let scales = [[2.0, 3.0], [1.5, 0.5], [1.0, 2.0], [2.5, 1.3]][b.below(4)];
            let scales = b.constant(HostTensor::from_f32(&[4], &[1.0, 1.0, scales[0], scales[1]]));
            let mode = ["nearest", "linear"][b.below(2)];
            let coordinates = ["half_pixel", "asymmetric"][b.below(2)];
            let attributes = [
                ("mode", text(mode)),
                ("coordinate_transformation_mode", text(coordinates)),
                ("nearest_mode", text(["floor", "round_prefer_floor"][b.below(2)])),
            ];
            b.node(op, &[&x, "", &scales], &attributes)
        }
        _ if op.starts_with("Reduce") => {
            let shape = image(b, 3);
            let x = b.input(&shape);
            let mut axes: Vec<usize> = (0..shape.len()).filter(|_| b.coin()).collect();
            if axes.is_empty() {
                axes.push(1);
            }
            let keep = b.below(2) as i64;
            b.node(op, &[&x], &[("axes", ints(&axes)), ("keepdims", int(keep))])
        }
        "Expand" => {
            let x = b.input(&[3, 1, 4]);
            let s = b.ints(&[2, 1, 5, 4]);
            b.node(op, &[&x, &s], &[])
        }
        "Tile" => {
            let x = b.input(&[2, 3, 4]);
            let s = b.ints(&[2, 1, 3]);
            b.node(op, &[&x, &s], &[])
        }
        "Where" => {
            let (x, y, z) = (b.input(&[3, 4]), b.input(&[4]), b.input(&[2, 1, 1]));
            let c = b.node("Less", &[&x, &y], &[]);
            b.node(op, &[&c, &x, &z], &[])
        }
        "LayerNormalization" => {
            let shape = image(b, 3);
            let x = b.input(&shape);
            let d = b.between(1, shape.len() - 1);
            let (s, t) = (b.weight(&shape[d..]), b.weight(&shape[d..]));
            let all = b.node_n(op, &[&x, &s, &t], &[("axis", int(d as i64))], 3);
            b.output(&all[1]);
            b.output(&all[2]);
            all[0].clone()
        }
        "CumSum" => {
            let shape = image(b, 4);
            let x = b.input(&shape);
            let d = b.below(shape.len()) as i64;
            let axis = b.constant(HostTensor::from_i64(&[], &[d]));
            let (reverse, exclusive) = (b.below(2) as i64, b.below(2) as i64);
            b.node(op, &[&x, &axis], &[("reverse", int(reverse)), ("exclusive", int(exclusive))])
        }
        "Trilu" => {
            let shape = image(b, 3);
            let x = b.input(&shape);
            let k = b.below(5) as i64 - 2;
            let k = b.constant(HostTensor::from_i64(&[], &[k]));
            let upper = b.below(2) as i64;
            b.node(op, &[&x, &k], &[("upper", int(upper))])
        }
        "QuantizeLinear" => {
            let shape = image(b, 4);
            let x = b.input(&shape);
            let per_channel = b.coin();
            let dims = if per_channel { vec![4] } else { vec![] };
            let n = dims.iter().product();
            let scale: Vec<f64> = (0..n).map(|_| 0.001 + 0.01 * b.rng.next_unit()).collect();
            let scale = b.constant(HostTensor::from_f64(DType::F32, &dims, &scale));
            let zero: Vec<i64> = (0..n).map(|_| b.below(256) as i64).collect();
            let zero = b.constant(HostTensor::from_ints(DType::U8, &dims, &zero));
            let y = b.node(op, &[&x, &scale, &zero], &[]);
            b.node("DequantizeLinear", &[&y, &scale, &zero], &[])
        }
        "Attention" => {
            let (group, hk, s, t) = (b.between(1, 2), b.between(1, 3), b.between(1, 5), b.between(1, 7));
            let (d, dv) = (b.between(1, 6), b.between(1, 6));
            let (q, k) = (b.input(&[2, group * hk, s, d]), b.input(&[2, hk, t, d]));
            let v = b.input(&[2, hk, t, dv]);
            let mut inputs = vec![q, k, v];
            if b.coin() {
                // Every query sees the first key.
                let seen: Vec<i64> = (0..s * t).map(|i| (i % t == 0 || b.coin()) as i64).collect();
                inputs.push(b.input_of(HostTensor::from_ints(DType::Bool, &[s, t], &seen)));
            }
            let causal = b.below(2) as i64;
            let names: Vec<&str> = inputs.iter().map(String::as_str).collect();
            b.node(op, &names, &[("is_causal", int(causal))])
        }
        "RotaryEmbedding" => {
            let (h, s, d) = (b.between(1, 3), b.between(1, 5), 2 * b.between(1, 4));
            let x = b.input(&[2, h, s, d]);
            let (cos, sin) = (b.weight(&[9, d / 2]), b.weight(&[9, d / 2]));
            let ids: Vec<i64> = (0..2 * s).map(|_| b.below(9) as i64).collect();
            let ids = b.input_of(HostTensor::from_i64(&[2, s], &ids));
            let interleaved = b.below(2) as i64;
            b.node(op, &[&x, &cos, &sin, &ids], &[("interleaved", int(interleaved))])
        }
        other => panic!("no generator for {other}"),
    };
    b.output(&y);
}

/// Adds one random operator to a graph of values with known shapes.
fn grow(b: &mut Builder, values: &mut Vec<(String, Vec<usize>)>) {
    // Recent values are more likely: chains get longer.
    let near = b.coin();
    let pick = if near { values.len() - 1 - b.below(values.len().min(3)) } else { b.below(values.len()) };
    let (x, shape) = values[pick].clone();
    let same: Vec<String> = values.iter().filter(|v| v.1 == shape).map(|v| v.0.clone()).collect();
    let rank = shape.len();
    let image = rank == 4;
    let (y, out) = match b.below(22) {
        0 | 1 => {
            let op = ["Relu", "Sigmoid", "Tanh", "Abs", "HardSwish", "Elu", "LeakyRelu"][b.below(7)];
            (b.node(op, &[&x], &[]), shape)
        }
        2..=4 => {
            let other = same[b.below(same.len())].clone();
            let op = ["Add", "Sub", "Mul", "Max", "Min"][b.below(5)];
            let z = b.node(op, &[&x, &other], &[]);
            // Products stay bounded.
            (b.node("Tanh", &[&z], &[]), shape)
        }
        5 => {
            let mut small = shape.clone();
            small.iter_mut().for_each(|d| *d = if b.coin() { 1 } else { *d });
            let c = if b.coin() { b.weight(&small) } else { b.input(&small) };
            let op = ["Add", "Mul"][b.below(2)];
            (b.node(op, &[&x, &c], &[]), shape)
        }
        6..=8 if image => {
            let (cin, cout) = (shape[1], b.between(1, 6));
            let k = [1, 3][b.below(2)];
            let (w, bias) = (b.weight(&[cout, cin, k, k]), b.weight(&[cout]));
            let attributes = [("pads", ints(&[k / 2; 4]))];
            let y = if b.coin() {
                b.node("Conv", &[&x, &w, &bias], &attributes)
            } else {
                b.node("Conv", &[&x, &w], &attributes)
            };
            let y = b.node("Tanh", &[&y], &[]);
            (y, vec![shape[0], cout, shape[2], shape[3]])
        }
        9 if image => {
            let c = shape[1];
            let (s, t, m) = (b.weight(&[c]), b.weight(&[c]), b.weight(&[c]));
            let v = b.constant(HostTensor::from_f64(DType::F32, &[c], &vec![0.8; c]));
            (b.node("BatchNormalization", &[&x, &s, &t, &m, &v], &[]), shape)
        }
        10 if image => {
            // Concatenate with values that differ in the channels only.
            let fits: Vec<(String, usize)> = values
                .iter()
                .filter(|v| v.1.len() == 4 && v.1[0] == shape[0] && v.1[2..] == shape[2..])
                .map(|v| (v.0.clone(), v.1[1]))
                .collect();
            let n = b.between(1, 3);
            let picked: Vec<(String, usize)> = (0..n).map(|_| fits[b.below(fits.len())].clone()).collect();
            let mut names = vec![x.as_str()];
            names.extend(picked.iter().map(|p| p.0.as_str()));
            let channels = shape[1] + picked.iter().map(|p| p.1).sum::<usize>();
            if channels > 24 {
                return;
            }
            (b.node("Concat", &names, &[("axis", int(1))]), vec![shape[0], channels, shape[2], shape[3]])
        }
        11 => {
            let mut perm: Vec<usize> = (0..rank).collect();
            for i in (1..rank).rev() {
                perm.swap(i, b.below(i + 1));
            }
            (b.node("Transpose", &[&x], &[("perm", ints(&perm))]), perm.iter().map(|&p| shape[p]).collect())
        }
        12 => {
            // A random regrouping of the same elements.
            let total: usize = shape.iter().product();
            let divisors: Vec<usize> = (1..=total).filter(|d| total.is_multiple_of(*d)).collect();
            let first = divisors[b.below(divisors.len())];
            let rest: Vec<usize> = (1..=total / first).filter(|d| (total / first).is_multiple_of(*d)).collect();
            let second = rest[b.below(rest.len())];
            let mut new = vec![first, second, total / first / second];
            if b.coin() {
                new.insert(b.below(4), 1);
            }
            let s = b.ints(&new.iter().map(|&d| d as i64).collect::<Vec<_>>());
            (b.node("Reshape", &[&x, &s], &[]), new)
        }
        13 => {
            let d = b.below(rank);
            let n = shape[d];
            if n < 2 {
                return;
            }
            let (start, step) = (b.below(n - 1), b.between(1, 2));
            let (s, e, a, t) =
                (b.ints(&[start as i64]), b.ints(&[n as i64]), b.ints(&[d as i64]), b.ints(&[step as i64]));
            let mut out = shape.clone();
            out[d] = (n - start).div_ceil(step);
            (b.node("Slice", &[&x, &s, &e, &a, &t], &[]), out)
        }
        14 => {
            let d = b.below(rank);
            if shape[d] < 2 {
                return;
            }
            let first = b.between(1, shape[d] - 1);
            let s = b.ints(&[first as i64, (shape[d] - first) as i64]);
            let parts = b.node_n("Split", &[&x, &s], &[("axis", int(d as i64))], 2);
            let mut a = shape.clone();
            a[d] = first;
            values.push((parts[0].clone(), a));
            let mut c = shape.clone();
            c[d] = shape[d] - first;
            (parts[1].clone(), c)
        }
        15 if image => {
            let p: Vec<i64> = (0..8).map(|i| if i % 4 < 2 { 0 } else { b.below(2) as i64 }).collect();
            let mode = ["constant", "edge"][b.below(2)];
            let s = b.ints(&p);
            let y = b.node("Pad", &[&x, &s], &[("mode", text(mode))]);
            (y, (0..4).map(|d| shape[d] + (p[d] + p[d + 4]) as usize).collect())
        }
        16 if image && shape[2] * shape[3] <= 40 => {
            let scales = b.constant(HostTensor::from_f32(&[4], &[1.0, 1.0, 2.0, 2.0]));
            let attributes = [("coordinate_transformation_mode", text("asymmetric")), ("nearest_mode", text("floor"))];
            let mode = [("mode", text("nearest")), ("mode", text("linear"))][b.below(2)].clone();
            let y = b.node("Resize", &[&x, "", &scales], &[&attributes[..], &[mode]].concat());
            (y, vec![shape[0], shape[1], shape[2] * 2, shape[3] * 2])
        }
        17 if image && shape[1] % 4 == 0 => {
            let y = b.node("DepthToSpace", &[&x], &[("blocksize", int(2)), ("mode", text("CRD"))]);
            (y, vec![shape[0], shape[1] / 4, shape[2] * 2, shape[3] * 2])
        }
        18 => {
            let d = b.below(rank);
            let op = ["ReduceMean", "ReduceMax", "ReduceL2"][b.below(3)];
            let mut out = shape.clone();
            out[d] = 1;
            (b.node(op, &[&x], &[("axes", ints(&[d]))]), out)
        }
        19 if image && shape[2] > 1 && shape[3] > 1 => {
            let op = ["MaxPool", "AveragePool"][b.below(2)];
            let y = b.node(op, &[&x], &[("kernel_shape", ints(&[2, 2])), ("strides", ints(&[1, 2]))]);
            (y, vec![shape[0], shape[1], shape[2] - 1, (shape[3] - 2) / 2 + 1])
        }
        20 => {
            // What is made of one value, one after the other: as it is, turned about, halves that have changed places.
            let d = b.below(rank);
            let whole = shape[d] % 2 == 1 || b.coin();
            let mut parts = vec![x.clone(); 2];
            if !whole {
                let half = shape[d] as i64 / 2;
                let s = b.ints(&[half, half]);
                parts = b.node_n("Split", &[&x, &s], &[("axis", int(d as i64))], 2);
                parts.swap(0, 1);
            }
            for part in &mut parts {
                if b.coin() {
                    let op = ["Neg", "Abs"][b.below(2)];
                    *part = b.node(op, &[part], &[]);
                }
            }
            let mut out = shape.clone();
            out[d] *= if whole { 2 } else { 1 };
            (b.node("Concat", &[&parts[0], &parts[1]], &[("axis", int(d as i64))]), out)
        }
        21 if image && shape[2] % 2 == 0 && shape[3] % 2 == 0 => {
            let y = b.node("SpaceToDepth", &[&x], &[("blocksize", int(2))]);
            (y, vec![shape[0], shape[1] * 4, shape[2] / 2, shape[3] / 2])
        }
        _ if rank >= 2 => {
            // Several of one value, as a layer's projections are.
            let (k, biased) = (shape[rank - 1], b.coin());
            let mut made = (x.clone(), shape.clone());
            for _ in 0..b.between(1, 3) {
                let n = b.between(1, 6);
                let (w, bias) = (b.weight(&[k, n]), b.weight(&[n]));
                let y = b.node("MatMul", &[&x, &w], &[]);
                let y = if biased { b.node("Add", &[&bias, &y], &[]) } else { y };
                let mut out = shape.clone();
                out[rank - 1] = n;
                made = (b.node("Tanh", &[&y], &[]), out);
                values.push(made.clone());
            }
            made
        }
        _ => (b.node("Neg", &[&x], &[]), shape),
    };
    if out.iter().product::<usize>() <= 4000 {
        values.push((y, out));
    }
}

/// A random network: branches, values that are read several times, layout operators between computations.
pub fn network(seed: u64) -> Builder {
    let mut b = Builder::new(17, seed);
    let shape = [b.between(1, 2), b.between(1, 4), b.between(2, 6), b.between(2, 6)];
    let mut values = vec![(b.input(&shape), shape.to_vec())];
    for _ in 0..b.between(4, 24) {
        grow(&mut b, &mut values);
    }
    // The last value and a few others are wanted; some of them are also read inside.
    let last = values.len() - 1;
    let mut wanted = vec![last];
    for _ in 0..b.below(3) {
        wanted.push(b.below(values.len()));
    }
    wanted.sort();
    wanted.dedup();
    for w in wanted {
        let name = values[w].0.clone();
        b.output(&name);
    }
    b
}
