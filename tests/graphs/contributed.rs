//! Operators of `com.microsoft` whose bodies are other operators: emulated devices in strict mode against the host, and that against references
//! written down here.

use crate::support::agree::{close, finish, outputs};
use crate::support::build::{Builder, float, int, text};
use barewave::graph::{Options, fuse};
use barewave::onnx::Attribute;
use barewave::tensor::{DType, HostTensor};

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// Rows of `width` elements over the root of their mean square.
fn normed(x: &[f64], width: usize, epsilon: f64) -> Vec<f64> {
    let row = |r: &[f64]| {
        let mean = r.iter().map(|v| v * v).sum::<f64>() / width as f64;
        r.iter().map(|v| v / (mean + epsilon).sqrt()).collect::<Vec<f64>>()
    };
    x.chunks(width).flat_map(row).collect()
}

#[test]
fn gates_and_norms() {
    // groups of 4 in rows of 12
    for (activation, silu) in [("silu", true), ("sigmoid", false)] {
        let mut b = Builder::new(17, 3);
        let (x, scale, gate) = (b.input(&[2, 3, 12]), b.weight(&[4]), b.input(&[2, 3, 12]));
        let y =
            b.node("GatedRMSNorm", &[&x, &scale, &gate], &[("activation", text(activation)), ("epsilon", float(0.01))]);
        finish(&mut b, "com.microsoft", &[y]);
        let got = outputs(&b, "GatedRMSNorm", 1e-5).remove(0);
        let [x, gate] = [0, 1].map(|i| b.inputs[i].to_f64());
        let scale = b.model.graph.initializers[&scale].to_f64();
        let open = |g: f64| sigmoid(g) * if silu { g } else { 1.0 };
        let want = normed(&x, 4, 0.01).into_iter().enumerate().map(|(i, v)| v * scale[i % 4] * open(gate[i]));
        close(&got.to_f64(), &want.collect::<Vec<_>>(), 1e-5, "GatedRMSNorm");
    }
    // branches in the last dimension, or in one of their own; a row of scales for all, or one for each
    for (shape, branches, scales) in [
        (&[2, 12][..], 3, Some(&[4][..])),
        (&[2, 12], 3, Some(&[12])),
        (&[2, 3, 4], 0, Some(&[3, 4])),
        (&[5, 4], 0, None),
    ] {
        let mut b = Builder::new(17, 3);
        let x = b.input(shape);
        let scale = scales.map(|s| b.weight(s)).unwrap_or_default();
        let list = [("num_branches", int(branches)), ("epsilon", float(1e-3))];
        let y = b.node("BranchwiseRMSNorm", &[&x, &scale], &list);
        finish(&mut b, "com.microsoft", &[y]);
        let got = outputs(&b, "BranchwiseRMSNorm", 1e-5).remove(0);
        assert_eq!(got.shape(), shape);
        let scale = b.model.graph.initializers.get(&scale).map_or(vec![1.0], |s| s.to_f64());
        let want = normed(&b.inputs[0].to_f64(), 4, 1e-3).into_iter().enumerate();
        let want: Vec<f64> = want.map(|(i, v)| v * scale[i % scale.len()]).collect();
        close(&got.to_f64(), &want, 1e-5, "BranchwiseRMSNorm");
    }
    let mut b = Builder::new(17, 4);
    let (a, bias, scale, rate) = (b.input(&[2, 5, 3]), b.weight(&[3]), b.weight(&[3]), b.input(&[2, 5, 3]));
    let y = b.node_n("LinearAttentionGate", &[&a, &bias, &scale, &rate], &[], 2);
    finish(&mut b, "com.microsoft", &y);
    let got = outputs(&b, "LinearAttentionGate", 1e-5);
    let [bias, scale] = [bias, scale].map(|n| b.model.graph.initializers[&n].to_f64());
    let want = b.inputs[0].to_f64().into_iter().enumerate();
    let want: Vec<f64> = want.map(|(i, v)| scale[i % 3] * (v + bias[i % 3]).exp().ln_1p()).collect();
    close(&got[0].to_f64(), &want, 1e-5, "LinearAttentionGate");
    let want: Vec<f64> = b.inputs[1].to_f64().into_iter().map(sigmoid).collect();
    close(&got[1].to_f64(), &want, 1e-5, "LinearAttentionGate");
    let mut b = Builder::new(17, 5);
    let (x, y, gate) = (b.input(&[2, 3, 8]), b.input(&[2, 3, 8]), b.input(&[2, 3, 1]));
    let sum = b.node("GatedAdd", &[&x, &y, &gate], &[]);
    finish(&mut b, "com.microsoft", &[sum]);
    let got = outputs(&b, "GatedAdd", 1e-6).remove(0);
    let [x, y, gate] = [0, 1, 2].map(|i| b.inputs[i].to_f64());
    let want: Vec<f64> = (0..48).map(|i| x[i] + y[i] * gate[i / 8]).collect();
    close(&got.to_f64(), &want, 1e-6, "GatedAdd");
    for given in [false, true] {
        let mut b = Builder::new(17, 6);
        let x = b.input(&[7, 9]);
        let scale = b.constant(HostTensor::from_f32(&[], &[2.5]));
        let y = b.node("ScaledSiLU", &[&x, if given { &scale } else { "" }], &[("alpha", float(1.25))]);
        finish(&mut b, "com.microsoft", &[y]);
        let got = outputs(&b, "ScaledSiLU", 1e-5).remove(0);
        let times = if given { 2.5 } else { 1.25 };
        let want = b.inputs[0].to_f64().into_iter().map(|x| x * times * sigmoid(x * times));
        close(&got.to_f64(), &want.collect::<Vec<_>>(), 1e-5, "ScaledSiLU");
    }
}

#[test]
fn windows_along_a_dimension() {
    for (dim, size, step) in [(-1i64, 3, 2), (1, 2, 1), (0, 4, 3), (2, 1, 1)] {
        let mut b = Builder::new(17, 7);
        let shape = [4, 5, 7];
        let x = b.input(&shape);
        let list = [("dim", int(dim)), ("size", int(size as i64)), ("step", int(step as i64))];
        let y = b.node("UnfoldTensor", &[&x], &list);
        finish(&mut b, "com.microsoft", &[y]);
        let got = outputs(&b, "UnfoldTensor", 0.0).remove(0);
        let along = dim.rem_euclid(3) as usize;
        let mut out = [4, 5, 7, size];
        out[along] = (shape[along] - size) / step + 1;
        assert_eq!(got.shape(), out);
        let x = b.inputs[0].to_f64();
        let want = (0..out.iter().product()).map(|i: usize| {
            let mut at = [i / (out[3] * out[2] * out[1]), i / (out[3] * out[2]) % out[1], i / out[3] % out[2]];
            at[along] = at[along] * step + i % out[3];
            x[(at[0] * 5 + at[1]) * 7 + at[2]]
        });
        assert_eq!(got.to_f64(), want.collect::<Vec<_>>());
    }
}

/// Weights of four bits of bitsandbytes: the first has the upper half of its byte. 3 rows of 5 are not a whole number of blocks, nor of bytes.
#[test]
fn codes_of_bitsandbytes() {
    let value = |kind: i64, code: usize| match kind {
        0 => {
            let of = [0.0, 1.0 / 192.0, 2.0 / 3.0, 1.0, 1.0 / 3.0, 0.5, 1.0 / 6.0, 0.25][code & 7];
            if code > 7 { -of } else { of }
        }
        // quantiles of the normal distribution, as published
        _ => [
            -1.0,
            -0.6961928,
            -0.52507305,
            -0.3949175,
            -0.28444138,
            -0.18477343,
            -0.091050036,
            0.0,
            0.0795803,
            0.1609302,
            0.2461123,
            0.33791524,
            0.44070983,
            0.562617,
            0.72295684,
            1.0,
        ][code],
    };
    for (kind, n, k, turned) in [(0, 8, 32, true), (1, 8, 32, false), (1, 3, 5, true), (0, 4, 10, true)] {
        let mut b = Builder::new(17, 8);
        let block = 16;
        let x = b.input(&[2, 3, if turned { k } else { n }]);
        let codes: Vec<usize> = (0..n * k).map(|_| b.below(16)).collect();
        let packed = codes.chunks(2).map(|c| (c[0] << 4 | c.get(1).copied().unwrap_or(0)) as i64);
        let packed: Vec<i64> = packed.collect();
        let w = b.constant(HostTensor::from_ints(DType::U8, &[packed.len()], &packed));
        let scales = b.weight(&[(n * k).div_ceil(block)]);
        let list =
            [("K", k as i64), ("N", n as i64), ("block_size", 16), ("quant_type", kind), ("transB", turned.into())];
        let y = b.node("MatMulBnb4", &[&x, &w, &scales], &list.map(|(name, v)| (name, int(v))));
        finish(&mut b, "com.microsoft", &[y]);
        let got = outputs(&b, "MatMulBnb4", 1e-5).remove(0);
        let (x, scales) = (b.inputs[0].to_f64(), b.model.graph.initializers[&scales].to_f64());
        let weight = |row: usize, column: usize| {
            let at = row * k + column;
            value(kind, codes[at]) * scales[at / block]
        };
        let (depth, width) = if turned { (k, n) } else { (n, k) };
        assert_eq!(got.shape(), [2, 3, width]);
        let element = |i: usize| {
            let (r, c) = (i / width, i % width);
            let w = |l: usize| if turned { weight(c, l) } else { weight(l, c) };
            (0..depth).map(|l| x[r * depth + l] * w(l)).sum::<f64>()
        };
        close(&got.to_f64(), &(0..6 * width).map(element).collect::<Vec<_>>(), 1e-5, "MatMulBnb4");
    }
}

/// The scale of a weight is that of the group that is said of its column; beside zero points, which onnxruntime leaves out then, it is an error.
#[test]
fn weights_in_groups_of_any_columns() {
    for (rows, padded) in [(1, false), (3, true), (40, false)] {
        let mut b = Builder::new(17, 9);
        let (k, n, block, blocks) = (40, 6, 16, 3);
        let x = b.input(&[rows, k]);
        let raw: Vec<usize> = (0..n * blocks * block).map(|_| b.below(16)).collect();
        let packed: Vec<i64> = raw.chunks(2).map(|c| (c[0] | c[1] << 4) as i64).collect();
        let w = b.constant(HostTensor::from_ints(DType::U8, &[n, blocks, block / 2], &packed));
        let scales = b.weight(&[n * blocks]);
        let zeros = b.constant(HostTensor::from_ints(DType::U8, &[n, 2], &[0x88; 12]));
        let groups: Vec<i64> = (0..if padded { 48 } else { k }).map(|_| b.below(blocks) as i64).collect();
        let g = b.constant(HostTensor::from_ints(DType::I32, &[groups.len()], &groups));
        let sizes = [("K", k as i64), ("N", n as i64), ("bits", 4), ("block_size", block as i64)];
        let sizes = sizes.map(|(name, v)| (name, int(v)));
        let mut with_zeros = b.clone();
        let y = with_zeros.node("MatMulNBits", &[&x, &w, &scales, &zeros, &g], &sizes);
        finish(&mut with_zeros, "com.microsoft", &[y]);
        let error = fuse(&with_zeros.model, &Options::default()).unwrap_err().to_string();
        assert!(error.contains("zero points (input 3)"), "{error}");
        let y = b.node("MatMulNBits", &[&x, &w, &scales, "", &g], &sizes);
        finish(&mut b, "com.microsoft", &[y]);
        let got = outputs(&b, "MatMulNBits in groups", 1e-5).remove(0);
        let (x, scales) = (b.inputs[0].to_f64(), b.model.graph.initializers[&scales].to_f64());
        let weight = |c: usize, l: usize| (raw[c * 48 + l] as f64 - 8.0) * scales[c * blocks + groups[l] as usize];
        let element = |i: usize| (0..k).map(|l| x[i / n * k + l] * weight(i % n, l)).sum::<f64>();
        close(&got.to_f64(), &(0..rows * n).map(element).collect::<Vec<_>>(), 1e-5, "groups");
    }
}

/// Linear attention and causal convolutions of `com.microsoft` are those that ONNX has taken over, and what only the former can do is named.
#[test]
fn what_onnx_has_taken_over() {
    let attention = |b: &mut Builder, domain: &str, more: &[(&str, Attribute)]| {
        let inputs = [[2, 3, 8], [2, 3, 8], [2, 3, 6]].map(|s| b.input(&s));
        let (past, decay, beta) = (b.input(&[2, 2, 4, 3]), b.input(&[2, 3, 2]), b.input(&[2, 3, 2]));
        let [q, k, v] = &inputs;
        let list = [("q_num_heads", int(2)), ("kv_num_heads", int(2)), ("scale", float(0.4))];
        let list = [&list[..], more].concat();
        let y = b.node_n("LinearAttention", &[q, k, v, &past, &decay, &beta], &list, 2);
        finish(b, domain, &y);
    };
    let convolution = |b: &mut Builder, domain: &str, more: &[(&str, Attribute)]| {
        let (x, w, bias, past) = (b.input(&[2, 3, 7]), b.weight(&[3, 1, 4]), b.weight(&[3]), b.input(&[2, 3, 3]));
        let list = [&[("activation", text("silu"))][..], more].concat();
        let y = b.node_n("CausalConvWithState", &[&x, &w, &bias, &past], &list, 2);
        finish(b, domain, &y);
    };
    type Make<'m> = &'m dyn Fn(&mut Builder, &str, &[(&str, Attribute)]);
    for (make, usual, other) in [
        (&attention as Make<'_>, ("chunk_size", 64), ("state_window", 2)),
        (&convolution, ("ndim", 1), ("dilation", 2)),
    ] {
        let made = |domain: &str, more: &[(&str, Attribute)]| {
            let mut b = Builder::new(27, 11);
            make(&mut b, domain, more);
            b
        };
        let [theirs, own] = [("com.microsoft", usual), ("", ("", 0))].map(|(domain, (name, v))| {
            let more = [(name, int(v))];
            let b = made(domain, if name.is_empty() { &[] } else { &more });
            outputs(&b, "taken over", 1e-5).iter().map(HostTensor::to_f64).collect::<Vec<_>>()
        });
        assert_eq!(theirs, own);
        let mut model = made("com.microsoft", &[(other.0, int(other.1))]).model;
        model.expand();
        let error = fuse(&model, &Options::default()).unwrap_err().to_string();
        assert!(error.contains(other.0), "{error}");
    }
}
