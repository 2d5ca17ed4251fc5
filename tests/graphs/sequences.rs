//! Recurrent layers, attention, and caches that grow: emulated devices in strict mode against the f64 interpreter of the fused
//! graph, and that against references written down here.

use crate::support::agree::{close, finish, outputs};
use crate::support::build::{Builder, int, ints, text};
use barewave::graph::fuse;
use barewave::graph::interpret::Interpreter;
use barewave::runtime::{AnyShape, EmulatedDevice};
use barewave::tensor::{DType, HostTensor};
use barewave::{Compiler, compile};
use barewave_isa::Target;
use std::sync::Arc;

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// A layer's weights `[rows, columns]` times a vector.
fn times(w: &[f64], rows: std::ops::Range<usize>, x: &[f64]) -> Vec<f64> {
    rows.map(|r| (0..x.len()).map(|c| w[r * x.len() + c] * x[c]).sum()).collect()
}

#[test]
fn lstm_with_everything() {
    for (hidden, steps, batch) in [(3, 4, 2), (70, 3, 3), (260, 2, 1), (262, 3, 5), (256, 3, 3)] {
        let mut b = Builder::new(17, hidden as u64);
        let width = 5;
        let x = b.input(&[steps, batch, width]);
        let (w, r) = (b.weight(&[2, 4 * hidden, width]), b.weight(&[2, 4 * hidden, hidden]));
        let bias = b.weight(&[2, 8 * hidden]);
        let lengths: Vec<i32> = (0..batch).map(|i| (steps - i % steps) as i32).collect();
        let l = b.constant(HostTensor::from_i32(&[batch], &lengths));
        let (h, c) = (b.input(&[2, batch, hidden]), b.input(&[2, batch, hidden]));
        let p = b.weight(&[2, 3 * hidden]);
        let attributes = [("direction", text("bidirectional")), ("hidden_size", int(hidden as i64))];
        let y = b.node_n("LSTM", &[&x, &w, &r, &bias, &l, &h, &c, &p], &attributes, 3);
        finish(&mut b, "", &y);
        let got = outputs(&b, "lstm", 2e-5);
        // The reference, sequence by sequence.
        let weights = |name: &str| b.model.graph.initializers[name].to_f64();
        let (xs, hs, cs) = (b.inputs[0].to_f64(), b.inputs[1].to_f64(), b.inputs[2].to_f64());
        let (w, r, bias, p) = (weights(&w), weights(&r), weights(&bias), weights(&p));
        let mut want = vec![0.0; steps * 2 * batch * hidden];
        let mut last = vec![0.0; 2 * batch * hidden];
        for d in 0..2 {
            let part = |v: &[f64], n: usize| v[d * n..(d + 1) * n].to_vec();
            let (w, r) = (part(&w, 4 * hidden * width), part(&r, 4 * hidden * hidden));
            let (bias, p) = (part(&bias, 8 * hidden), part(&p, 3 * hidden));
            for s in 0..batch {
                let at = (d * batch + s) * hidden;
                let (mut h, mut c) = (hs[at..at + hidden].to_vec(), cs[at..at + hidden].to_vec());
                let n = lengths[s] as usize;
                for t in 0..n {
                    let t = if d == 1 { n - 1 - t } else { t };
                    let x = &xs[(t * batch + s) * width..][..width];
                    let gate = |g: usize| -> Vec<f64> {
                        let rows = g * hidden..(g + 1) * hidden;
                        let (a, b) = (times(&w, rows.clone(), x), times(&r, rows, &h));
                        (0..hidden).map(|j| a[j] + b[j] + bias[g * hidden + j] + bias[(4 + g) * hidden + j]).collect()
                    };
                    let (i, o, f, new) = (gate(0), gate(1), gate(2), gate(3));
                    for j in 0..hidden {
                        let i = sigmoid(i[j] + p[j] * c[j]);
                        let f = sigmoid(f[j] + p[2 * hidden + j] * c[j]);
                        c[j] = f * c[j] + i * new[j].tanh();
                        h[j] = sigmoid(o[j] + p[hidden + j] * c[j]) * c[j].tanh();
                    }
                    want[((t * 2 + d) * batch + s) * hidden..][..hidden].copy_from_slice(&h);
                }
                last[at..at + hidden].copy_from_slice(&h);
            }
        }
        close(&got[0].to_f64(), &want, 1e-5, "lstm");
        close(&got[1].to_f64(), &last, 1e-5, "lstm, last");
    }
}

/// The first step of a model with a cache: what is before it has no elements.
#[test]
fn attention_behind_an_empty_cache() {
    let mut b = Builder::new(23, 44);
    let (heads, size, length) = (2, 4, 3);
    let [q, k, v] = [(); 3].map(|()| b.input(&[1, length, heads * size]));
    let [past_k, past_v] = [(); 2].map(|()| b.input(&[1, heads, 0, size]));
    let attributes = [("q_num_heads", int(heads as i64)), ("kv_num_heads", int(heads as i64)), ("is_causal", int(1))];
    let names = [&q, &k, &v, "", &past_k, &past_v];
    let y = b.node_n("Attention", &names, &attributes, 3);
    finish(&mut b, "", &y);
    let got = outputs(&b, "empty cache", 1e-5);
    let [q, k, v] = [0, 1, 2].map(|i| b.inputs[i].to_f64());
    let at = |x: &[f64], row: usize, head: usize, i: usize| x[(row * heads + head) * size + i];
    let mut want = Vec::new();
    for (row, head) in (0..length).flat_map(|r| (0..heads).map(move |h| (r, h))) {
        let score = |key: usize| (0..size).map(|i| at(&q, row, head, i) * at(&k, key, head, i)).sum::<f64>() / 2.0;
        let weights: Vec<f64> = (0..=row).map(|key| score(key).exp()).collect();
        let all: f64 = weights.iter().sum();
        want.extend(
            (0..size).map(|i| weights.iter().enumerate().map(|(key, w)| w * at(&v, key, head, i)).sum::<f64>() / all),
        );
    }
    close(&got[0].to_f64(), &want, 1e-5, "empty cache");
    assert_eq!(got[1].shape(), [1, heads, length, size]);
}

/// An LSTM with weights in bytes: its data are bytes as well, its state is not rounded. (onnxruntime rounds the state of each step to
/// bytes too, which no definition asks for: with that, and nothing else, this reference is what it computes to 2e-7.)
#[test]
fn an_lstm_with_weights_in_bytes() {
    for (case, t) in [DType::I8, DType::U8].into_iter().enumerate() {
        let (steps, batch, width, hidden) = (6, 2, 10, 12);
        let mut b = Builder::new(17, 90 + case as u64);
        let x = b.input(&[steps, batch, width]);
        let (low, zero) = if t == DType::I8 { (-128, 0) } else { (0, 119) };
        let columns = if case == 0 { 4 * hidden } else { 1 };
        let bytes = |b: &mut Builder, rows: usize| -> (Vec<String>, Vec<f64>) {
            let numbers: Vec<i64> = (0..rows * 4 * hidden).map(|_| low + b.below(256) as i64).collect();
            let scales: Vec<f32> = (0..columns).map(|_| 0.002 + b.below(100) as f32 / 1e5).collect();
            let w = b.constant(HostTensor::from_ints(t, &[1, rows, 4 * hidden], &numbers));
            let shape: &[usize] = if columns == 1 { &[1] } else { &[1, columns] };
            let s = b.constant(HostTensor::from_f32(shape, &scales));
            let z = b.constant(HostTensor::from_ints(t, shape, &vec![zero; columns]));
            // A row for each of the gates' units, as an LSTM has them.
            let at = |i: usize| {
                let (column, row) = (i / rows, i % rows);
                (numbers[row * 4 * hidden + column] - zero) as f64 * scales[column % columns] as f64
            };
            (vec![w, s, z], (0..rows * 4 * hidden).map(at).collect())
        };
        let (w, wf) = bytes(&mut b, width);
        let (r, rf) = bytes(&mut b, hidden);
        let bias = b.weight(&[1, 8 * hidden]);
        let none = String::new();
        let names =
            [&x, &w[0], &r[0], &bias, &none, &none, &none, &none, &w[1], &w[2], &r[1], &r[2]].map(String::as_str);
        let y = b.node_n("DynamicQuantizeLSTM", &names, &[("hidden_size", int(hidden as i64))], 3);
        finish(&mut b, "com.microsoft", &y);
        b.model.opsets.insert("com.microsoft".into(), 1);
        let got = outputs(&b, "lstm of bytes", 2e-5);
        let (xs, bias) = (b.inputs[0].to_f32(), b.model.graph.initializers[&bias].to_f64());
        let (least, most) = xs.iter().fold((0f32, 0f32), |(l, m), x| (l.min(*x), m.max(*x)));
        let scale = (most - least) / 255.0;
        let middle = (-least / scale).round_ties_even().clamp(0.0, 255.0);
        let byte = |x: f32| ((x / scale).round_ties_even() + middle).clamp(0.0, 255.0) - middle;
        let xs: Vec<f64> = xs.iter().map(|x| f64::from(byte(*x)) * f64::from(scale)).collect();
        let mut want = vec![0.0; steps * batch * hidden];
        for s in 0..batch {
            let (mut h, mut c) = (vec![0.0; hidden], vec![0.0; hidden]);
            for t in 0..steps {
                let x = &xs[(t * batch + s) * width..][..width];
                let gate = |g: usize| -> Vec<f64> {
                    let rows = g * hidden..(g + 1) * hidden;
                    let (a, b) = (times(&wf, rows.clone(), x), times(&rf, rows, &h));
                    (0..hidden).map(|j| a[j] + b[j] + bias[g * hidden + j] + bias[(4 + g) * hidden + j]).collect()
                };
                let (i, o, f, new) = (gate(0), gate(1), gate(2), gate(3));
                for j in 0..hidden {
                    c[j] = sigmoid(f[j]) * c[j] + sigmoid(i[j]) * new[j].tanh();
                    h[j] = sigmoid(o[j]) * c[j].tanh();
                }
                want[(t * batch + s) * hidden..][..hidden].copy_from_slice(&h);
            }
        }
        close(&got[0].to_f64(), &want, 1e-5, "lstm of bytes");
    }
}

/// A layer of a few units is a launch; of many, each phase of a step is one, whose workgroups have some of the units.
#[test]
fn many_units_are_spread_over_workgroups() {
    let layer = |kind: &str, gates: usize, hidden: usize, dtype: DType| {
        let (steps, batch) = (4, 9);
        let mut b = Builder::new(17, hidden as u64);
        let cast = |b: &mut Builder, shape: &[usize]| {
            let x = HostTensor::from_f64(
                dtype,
                shape,
                &b.random(shape).to_f64().iter().map(|x| x / 8.0).collect::<Vec<_>>(),
            );
            b.input_of(x)
        };
        let x = cast(&mut b, &[steps, batch, 7]);
        let (w, r) = (cast(&mut b, &[1, gates * hidden, 7]), cast(&mut b, &[1, gates * hidden, hidden]));
        let y = b.node_n(kind, &[&x, &w, &r], &[("hidden_size", int(hidden as i64))], 2);
        finish(&mut b, "", &y);
        b
    };
    for name in ["gfx906", "gfx942", "gfx1100"] {
        let target = Target::parse(name).unwrap();
        for (kind, gates, phases) in [("LSTM", 4, 1), ("GRU", 3, 2), ("RNN", 1, 1)] {
            for (hidden, spread) in [(16, false), (1024, true)] {
                let graph = fuse(&layer(kind, gates, hidden, DType::F32).model, &Default::default()).unwrap();
                let compiled = compile::compile(&graph, target).unwrap();
                let of_layer = |kernel: &str| kernel.starts_with("recurrent");
                let launches = compiled.plan().launches.iter().filter(|l| of_layer(&l.kernel)).count();
                assert_eq!(launches, if spread { 2 + 4 * phases } else { 1 }, "{kind} of {hidden} units on {name}");
            }
        }
    }
    for (dtype, tolerance) in [(DType::F16, 2e-3), (DType::BF16, 2e-2)] {
        outputs(&layer("LSTM", 4, 320, dtype), "lstm of narrow floats", tolerance);
    }
}

#[test]
fn gru_before_and_behind_the_reset() {
    for (before, hidden) in [(0, 6), (1, 6), (0, 65), (1, 130), (0, 290), (1, 512)] {
        let (steps, batch, width) = (3, 2, 4);
        let mut b = Builder::new(17, hidden as u64);
        let x = b.input(&[steps, batch, width]);
        let (w, r) = (b.weight(&[1, 3 * hidden, width]), b.weight(&[1, 3 * hidden, hidden]));
        let bias = b.weight(&[1, 6 * hidden]);
        let attributes =
            [("direction", text("reverse")), ("linear_before_reset", int(before)), ("hidden_size", int(hidden as i64))];
        let y = b.node_n("GRU", &[&x, &w, &r, &bias], &attributes, 2);
        finish(&mut b, "", &y);
        let got = outputs(&b, "gru", 2e-5);
        let weights = |name: &str| b.model.graph.initializers[name].to_f64();
        let (xs, w, r, bias) = (b.inputs[0].to_f64(), weights(&w), weights(&r), weights(&bias));
        let mut want = vec![0.0; steps * batch * hidden];
        for s in 0..batch {
            let mut h = vec![0.0; hidden];
            for t in (0..steps).rev() {
                let x = &xs[(t * batch + s) * width..][..width];
                let rows = |g: usize| g * hidden..(g + 1) * hidden;
                let input: Vec<Vec<f64>> = (0..3).map(|g| times(&w, rows(g), x)).collect();
                let gate = |g: usize| -> Vec<f64> {
                    let own = times(&r, rows(g), &h);
                    (0..hidden)
                        .map(|j| sigmoid(input[g][j] + own[j] + bias[g * hidden + j] + bias[(3 + g) * hidden + j]))
                        .collect()
                };
                let (z, reset) = (gate(0), gate(1));
                let own = if before == 1 {
                    let own = times(&r, rows(2), &h);
                    (0..hidden).map(|j| reset[j] * (own[j] + bias[5 * hidden + j])).collect::<Vec<_>>()
                } else {
                    let let_through: Vec<f64> = (0..hidden).map(|j| reset[j] * h[j]).collect();
                    let own = times(&r, rows(2), &let_through);
                    (0..hidden).map(|j| own[j] + bias[5 * hidden + j]).collect()
                };
                for j in 0..hidden {
                    let new = (input[2][j] + own[j] + bias[2 * hidden + j]).tanh();
                    h[j] = (1.0 - z[j]) * new + z[j] * h[j];
                }
                want[(t * batch + s) * hidden..][..hidden].copy_from_slice(&h);
            }
        }
        close(&got[0].to_f64(), &want, 1e-5, "gru");
    }
}

#[test]
fn a_growing_cache_compiles_at_most_twelve_times() {
    use barewave::onnx::Dim;
    // One step of decoding: a query, a key and a value of the new element, attention over all so far.
    let (heads, size) = (2, 8);
    let width = heads * size;
    let mut b = Builder::new(23, 51);
    let x = b.input(&[1, 1, width]);
    let (past_k, past_v) = (b.input(&[1, heads, 3, size]), b.input(&[1, heads, 3, size]));
    let w: Vec<String> = (0..4).map(|_| b.weight(&[width, width])).collect();
    let [q, k, v] = [0, 1, 2].map(|i| b.node("MatMul", &[&x, &w[i]], &[]));
    let attributes = [("q_num_heads", int(heads as i64)), ("kv_num_heads", int(heads as i64))];
    let y = b.node_n("Attention", &[&q, &k, &v, "", &past_k, &past_v], &attributes, 3);
    let z = b.node("MatMul", &[&y[0], &w[3]], &[]);
    [&z, &y[1], &y[2]].iter().for_each(|o| b.output(o));
    for i in [1, 2] {
        b.model.graph.inputs[i].shape =
            Some(vec![Dim::Known(1), Dim::Known(heads), Dim::Symbol("past".into()), Dim::Known(size)]);
    }
    decoded(&b, heads, size, width);
}

/// Decodes with a model of a new element and the keys and values so far: each step is compiled once, if at all.
fn decoded(b: &Builder, heads: usize, size: usize, width: usize) {
    use barewave::compile::KernelCache;
    let mut b = b.clone();
    for (target, most) in [("gfx942", 512), ("gfx1100", 512), ("gfx906", 40), ("gfx1201", 40)] {
        let cache = Arc::new(KernelCache::in_memory());
        let target = Target::parse(target).unwrap();
        let compiler = Compiler::new(target, compile::Options { cache: cache.clone(), ..Default::default() });
        let device = Arc::new(EmulatedDevice::new(target, most < 512).unwrap());
        let mut model = AnyShape::new(device, compiler, Arc::new(b.model.clone()), 1);
        let mut state = [b.random(&[1, heads, 1, size]), b.random(&[1, heads, 1, size])];
        let (mut compiles, mut before) = (0, 0);
        for n in 1..most {
            let x = b.random(&[1, 1, width]);
            let inputs = [x, state[0].clone(), state[1].clone()];
            let mut got = model.run(&inputs).unwrap().0;
            if n < 4 || n % 100 == 7 {
                let shapes = barewave::Shapes { dims: [("past".to_string(), n)].into(), ..Default::default() };
                let graph = fuse(&b.model, &shapes).unwrap();
                let want = Interpreter::new(&graph).run(&graph, &inputs).unwrap();
                close(&got[0].to_f64(), &want[0].to_f64(), 1e-5, &format!("{target} {n}"));
                close(&got[1].to_f64(), &want[1].to_f64(), 1e-6, &format!("{target} {n}, keys"));
            }
            state = [got.remove(1), got.remove(1)];
            let now = cache.stats().compiled;
            compiles += usize::from(now > before);
            before = now;
        }
        assert!(compiles <= 12, "{target}: compiled in {compiles} of {most} steps, {before} kernels");
    }
}

#[test]
fn a_growing_cache_of_plain_nodes_compiles_at_most_twelve_times() {
    plain_nodes_decode(2);
    plain_nodes_decode(4);
}

/// As torch writes it: keys and values in lists that grow, repeated for the heads of queries that share them.
fn plain_nodes_decode(shared: usize) {
    use barewave::onnx::{Attribute, Dim};
    let (heads, size) = (4, 8);
    let (width, part) = (heads * size, shared * size);
    let mut b = Builder::new(17, 52);
    let x = b.input(&[1, 1, width]);
    let past = [(); 2].map(|()| b.input(&[1, shared, 3, size]));
    let turned = [("perm", ints(&[0, 2, 1, 3]))];
    let projected = |b: &mut Builder, to: usize| {
        let w = b.weight(&[width, to]);
        let y = b.node("MatMul", &[&x, &w], &[]);
        let shape = b.ints(&[1, 1, (to / size) as i64, size as i64]);
        let y = b.node("Reshape", &[&y, &shape], &[]);
        b.node("Transpose", &[&y], &turned)
    };
    let q = projected(&mut b, width);
    let (mut present, mut whole) = (Vec::new(), Vec::new());
    for past in &past {
        let new = projected(&mut b, part);
        let all = b.node("Concat", &[past, &new], &[("axis", int(2))]);
        let (at, axis) = (b.ints(&[2]), b.ints(&[2]));
        let shape = b.node("Shape", &[&all], &[]);
        let rows = b.node("Gather", &[&shape, &at], &[]);
        let extents = |b: &mut Builder, front: &[i64]| {
            let (front, back) = (b.ints(front), b.ints(&[size as i64]));
            b.node("Concat", &[&front, &rows, &back], &[("axis", int(0))])
        };
        let y = b.node("Unsqueeze", &[&all, &axis], &[]);
        let wide = extents(&mut b, &[1, shared as i64, (heads / shared) as i64]);
        let y = b.node("Expand", &[&y, &wide], &[]);
        let flat = extents(&mut b, &[1, heads as i64]);
        whole.push(b.node("Reshape", &[&y, &flat], &[]));
        present.push(all);
    }
    let k = b.node("Transpose", &[&whole[0]], &[("perm", ints(&[0, 1, 3, 2]))]);
    let scores = b.node("MatMul", &[&q, &k], &[]);
    let root = b.constant(HostTensor::from_f32(&[], &[(size as f32).sqrt()]));
    let scores = b.node("Div", &[&scores, &root], &[]);
    // GPT-2's mask: a row of a triangle, as long as the keys so far.
    let seen: Vec<u8> = (0..520 * 520).map(|i| u8::from(i % 520 <= i / 520)).collect();
    let triangle = b.constant(HostTensor::new(DType::Bool, &[1, 1, 520, 520], seen).unwrap());
    let (zero, two) = (b.ints(&[0]), b.ints(&[2]));
    let [before, after] = [&past[0], &present[0]].map(|t| {
        let shape = b.node("Shape", &[t], &[]);
        b.node("Gather", &[&shape, &two], &[])
    });
    let (rows, columns) = (b.ints(&[2]), b.ints(&[3]));
    let mask = b.node("Slice", &[&triangle, &before, &after, &rows], &[]);
    let mask = b.node("Slice", &[&mask, &zero, &after, &columns], &[]);
    // How far back a key is counts in each head for itself.
    let slopes = b.weight(&[1, heads, 1, 520]);
    let slopes = b.node("Slice", &[&slopes, &zero, &after, &columns], &[]);
    let scores = b.node("Add", &[&scores, &slopes], &[]);
    let low = b.constant(HostTensor::from_f32(&[], &[f32::MIN]));
    let scores = b.node("Where", &[&mask, &scores, &low], &[]);
    let p = b.node("Softmax", &[&scores], &[("axis", Attribute::Int(-1))]);
    let y = b.node("MatMul", &[&p, &whole[1]], &[]);
    let y = b.node("Transpose", &[&y], &turned);
    let shape = b.ints(&[1, 1, width as i64]);
    let y = b.node("Reshape", &[&y, &shape], &[]);
    let w = b.weight(&[width, width]);
    let z = b.node("MatMul", &[&y, &w], &[]);
    [&z, &present[0], &present[1]].iter().for_each(|o| b.output(o));
    for i in [1, 2] {
        b.model.graph.inputs[i].shape =
            Some(vec![Dim::Known(1), Dim::Known(shared), Dim::Symbol("past".into()), Dim::Known(size)]);
    }
    decoded(&b, shared, size, width);
}

/// Packed attention: sequences of tokens without padding between them, against each sequence by itself.
#[test]
fn sequences_without_padding_attend_to_themselves() {
    let (lengths, heads, size, padded) = ([3usize, 1, 4], 2, 4, 5);
    let (width, tokens) = (heads * size, lengths.iter().sum::<usize>());
    let places = (0..lengths.len()).flat_map(|s| (0..padded).map(move |i| (s, i)));
    let (real, rest): (Vec<_>, Vec<_>) = places.partition(|(s, i)| *i < lengths[*s]);
    let offsets: Vec<i32> = real.iter().chain(&rest).map(|(s, i)| (s * padded + i) as i32).collect();
    let ends = lengths.iter().scan(0, |sum, n| {
        *sum += *n as i32;
        Some(*sum)
    });
    let ends: Vec<i32> = std::iter::once(0).chain(ends).collect();
    // Projected inside, three tensors, all in one.
    for how in ["PackedAttention", "PackedMultiHeadAttention", "in one"] {
        let mut b = Builder::new(21, 31);
        let data = [(); 3].map(|()| b.random(&[tokens, width]));
        let given = match how {
            "PackedAttention" => vec![b.input_of(data[0].clone()), b.weight(&[width, 3 * width])],
            "in one" => {
                let of = |t: usize, h: usize, part: usize| data[part].to_f64()[t * width + h * size..][..size].to_vec();
                let all = (0..tokens).flat_map(|t| (0..heads).map(move |h| (t, h)));
                let all: Vec<f64> =
                    all.flat_map(|(t, h)| (0..3).flat_map(move |p| of(t, h, p)).collect::<Vec<_>>()).collect();
                let whole = HostTensor::from_f64(DType::F32, &[tokens, heads, 3, size], &all);
                vec![b.input_of(whole), String::new(), String::new()]
            }
            _ => data.iter().map(|x| b.input_of(x.clone())).collect(),
        };
        let (bias, added) = (b.weight(&[3 * width]), b.weight(&[1, heads, padded, padded]));
        let offsets = b.input_of(HostTensor::from_i32(&[lengths.len(), padded], &offsets));
        let sums = b.input_of(HostTensor::from_i32(&[lengths.len() + 1], &ends));
        let names: Vec<&str> = given.iter().chain([&bias, &offsets, &sums, &added]).map(String::as_str).collect();
        let op = if how == "in one" { "PackedMultiHeadAttention" } else { how };
        let y = b.node(op, &names, &[("num_heads", int(heads as i64))]);
        finish(&mut b, "com.microsoft", &[y]);
        b.model.opsets.insert("com.microsoft".into(), 1);
        let got = outputs(&b, how, 1e-5)[0].to_f64();

        let constant = |name: &String| b.model.graph.initializers[name].to_f64();
        let (bias, added) = (constant(&bias), constant(&added));
        let row = |part: usize, t: usize, c: usize| {
            let x = match how {
                "PackedAttention" => {
                    let w = constant(&given[1]);
                    (0..width).map(|i| data[0].to_f64()[t * width + i] * w[i * 3 * width + part * width + c]).sum()
                }
                _ => data[part].to_f64()[t * width + c],
            };
            x + bias[part * width + c]
        };
        let mut want = Vec::new();
        for t in 0..tokens {
            let (own, first) = (real[t].0, ends[real[t].0] as usize);
            for c in 0..width {
                let head = c / size;
                let score = |k: usize| {
                    let dot: f64 = (0..size).map(|i| row(0, t, head * size + i) * row(1, k, head * size + i)).sum();
                    (dot / (size as f64).sqrt() + added[(head * padded + real[t].1) * padded + k - first]).exp()
                };
                let keys = first..first + lengths[own];
                let sum: f64 = keys.clone().map(score).sum();
                want.push(keys.map(|k| score(k) / sum * row(2, k, c)).sum::<f64>());
            }
        }
        close(&got, &want, 1e-5, how);
    }
}
