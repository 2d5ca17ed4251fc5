//! An independent interpreter of ONNX models in f64: the simplest loops that follow the operators' definitions.
//!
//! It shares nothing with the compiler but the importer's data structures, knows nothing of views, fusion or steps, and
//! covers the operators that the random tests use. Integers are exact up to 2^53.

use barewave::onnx::{Attribute, Model, Node};
use barewave::tensor::HostTensor;
use std::collections::BTreeMap;

/// A dense tensor of doubles.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    pub shape: Vec<usize>,
    pub data: Vec<f64>,
}

impl Array {
    pub fn from_host(t: &HostTensor) -> Array {
        Array { shape: t.shape().to_vec(), data: t.to_f64() }
    }

    pub(super) fn new(shape: &[usize], f: impl FnMut(&[usize]) -> f64) -> Array {
        let mut data = Vec::new();
        each(shape, f, &mut data);
        Array { shape: shape.to_vec(), data }
    }

    pub(super) fn at(&self, c: &[usize]) -> f64 {
        self.data[self.place(c)]
    }

    pub(super) fn place(&self, c: &[usize]) -> usize {
        c.iter().zip(&self.shape).fold(0, |i, (&c, &d)| i * d + c)
    }

    /// The element at `c` of a larger shape that this one is broadcast to.
    pub(super) fn cast(&self, c: &[usize]) -> f64 {
        let skip = c.len() - self.shape.len();
        let own: Vec<usize> = c[skip..].iter().zip(&self.shape).map(|(&c, &d)| if d == 1 { 0 } else { c }).collect();
        self.at(&own)
    }

    /// The element at possibly outside coordinates, or `None`.
    pub(super) fn get(&self, c: &[i64]) -> Option<f64> {
        let inside = c.iter().zip(&self.shape).all(|(&c, &d)| c >= 0 && c < d as i64);
        inside.then(|| self.at(&c.iter().map(|&c| c as usize).collect::<Vec<_>>()))
    }
}

fn each(shape: &[usize], mut f: impl FnMut(&[usize]) -> f64, out: &mut Vec<f64>) {
    let n: usize = shape.iter().product();
    for i in 0..n {
        let mut c = vec![0; shape.len()];
        let mut rest = i;
        for d in (0..shape.len()).rev() {
            c[d] = rest % shape[d];
            rest /= shape[d];
        }
        out.push(f(&c));
    }
}

pub(super) fn coords(shape: &[usize]) -> Vec<Vec<usize>> {
    let mut list = Vec::new();
    each(
        shape,
        |c| {
            list.push(c.to_vec());
            0.0
        },
        &mut Vec::new(),
    );
    list
}

fn broadcast(shapes: &[&[usize]]) -> Vec<usize> {
    let rank = shapes.iter().map(|s| s.len()).max().unwrap();
    (0..rank)
        .map(|d| {
            shapes
                .iter()
                .filter(|s| s.len() + d >= rank)
                .map(|s| s[s.len() + d - rank])
                .filter(|&n| n != 1)
                .max()
                .unwrap_or(1)
        })
        .collect()
}

pub(super) struct Attrs<'a>(pub(super) &'a Node);

impl Attrs<'_> {
    pub(super) fn int(&self, name: &str, default: i64) -> i64 {
        match self.0.attributes.get(name) {
            Some(Attribute::Int(v)) => *v,
            _ => default,
        }
    }
    fn float(&self, name: &str, default: f64) -> f64 {
        match self.0.attributes.get(name) {
            Some(Attribute::Float(v)) => *v as f64,
            _ => default,
        }
    }
    pub(super) fn ints(&self, name: &str) -> Option<Vec<i64>> {
        match self.0.attributes.get(name) {
            Some(Attribute::Ints(v)) => Some(v.clone()),
            _ => None,
        }
    }
    pub(super) fn text(&self, name: &str, default: &str) -> String {
        match self.0.attributes.get(name) {
            Some(Attribute::Text(v)) => v.clone(),
            _ => default.into(),
        }
    }
}

pub(super) fn axis(a: i64, rank: usize) -> usize {
    if a < 0 { (a + rank as i64) as usize } else { a as usize }
}

/// Runs a model.
pub fn run(model: &Model, inputs: &[HostTensor]) -> Vec<Array> {
    let mut values: BTreeMap<&str, Array> = BTreeMap::new();
    for (name, t) in &model.graph.initializers {
        values.insert(name, Array::from_host(t));
    }
    for (info, t) in model.required_inputs().zip(inputs) {
        values.insert(&info.name, Array::from_host(t));
    }
    for node in &model.graph.nodes {
        let x: Vec<Option<&Array>> = node.inputs.iter().map(|n| values.get(n.as_str())).collect();
        let y = evaluate(node, &x);
        for (name, value) in node.outputs.iter().zip(y) {
            values.insert(name, value);
        }
    }
    model.graph.outputs.iter().map(|o| values[o.name.as_str()].clone()).collect()
}

fn evaluate(node: &Node, x: &[Option<&Array>]) -> Vec<Array> {
    let a = Attrs(node);
    let x0 = x[0].unwrap();
    let map = |f: &dyn Fn(f64) -> f64| Array { shape: x0.shape.clone(), data: x0.data.iter().map(|&v| f(v)).collect() };
    let zip = |f: &dyn Fn(f64, f64) -> f64| {
        let x1 = x[1].unwrap();
        Array::new(&broadcast(&[&x0.shape, &x1.shape]), |c| f(x0.cast(c), x1.cast(c)))
    };
    let list = |i: usize| -> Vec<i64> { x[i].unwrap().data.iter().map(|&v| v as i64).collect() };
    let one = match node.op.as_str() {
        "Relu" => map(&|v| v.max(0.0)),
        "LeakyRelu" => map(&|v| if v < 0.0 { v * a.float("alpha", 0.01) } else { v }),
        "Sigmoid" => map(&|v| 1.0 / (1.0 + (-v).exp())),
        "Tanh" => map(&f64::tanh),
        "Exp" => map(&f64::exp),
        "Neg" => map(&|v| -v),
        "Abs" => map(&f64::abs),
        "Softplus" => map(&|v| (1.0 + v.exp()).ln()),
        "HardSigmoid" => map(&|v| (v * a.float("alpha", 0.2) + a.float("beta", 0.5)).clamp(0.0, 1.0)),
        "HardSwish" => map(&|v| v * (v / 6.0 + 0.5).clamp(0.0, 1.0)),
        "Elu" => map(&|v| if v < 0.0 { a.float("alpha", 1.0) * (v.exp() - 1.0) } else { v }),
        "Identity" | "Dropout" => x0.clone(),
        "Clip" => {
            let bound = |i: usize, d: f64| x.get(i).copied().flatten().map_or(d, |b| b.data[0]);
            let (low, high) = (bound(1, f64::NEG_INFINITY), bound(2, f64::INFINITY));
            map(&|v| v.max(low).min(high))
        }
        "Add" => zip(&|a, b| a + b),
        "Sub" => zip(&|a, b| a - b),
        "Mul" => zip(&|a, b| a * b),
        "Div" => zip(&|a, b| a / b),
        "Max" => zip(&f64::max),
        "Min" => zip(&f64::min),
        "PRelu" => zip(&|v, s| if v < 0.0 { v * s } else { v }),
        "Where" => {
            let (x1, x2) = (x[1].unwrap(), x[2].unwrap());
            let shape = broadcast(&[&x0.shape, &x1.shape, &x2.shape]);
            Array::new(&shape, |c| if x0.cast(c) != 0.0 { x1.cast(c) } else { x2.cast(c) })
        }
        "Less" => zip(&|a, b| (a < b) as u8 as f64),
        "Conv" => conv(&a, x0, x[1].unwrap(), x.get(2).copied().flatten()),
        "ConvTranspose" => conv_transpose(&a, x0, x[1].unwrap(), x.get(2).copied().flatten()),
        "MaxPool" | "AveragePool" => pool(&a, x0, node.op == "MaxPool"),
        "GlobalAveragePool" | "GlobalMaxPool" => {
            let n: usize = x0.shape[2..].iter().product();
            let mut shape = x0.shape[..2].to_vec();
            shape.resize(x0.shape.len(), 1);
            let data = x0.data.chunks(n).map(|w| {
                if node.op == "GlobalMaxPool" {
                    w.iter().copied().fold(f64::MIN, f64::max)
                } else {
                    w.iter().sum::<f64>() / n as f64
                }
            });
            Array { data: data.collect(), shape }
        }
        "BatchNormalization" => {
            let p = |i: usize, c: usize| x[i].unwrap().data[c];
            let e = a.float("epsilon", 1e-5f32 as f64);
            Array::new(&x0.shape, |c| (x0.at(c) - p(3, c[1])) / (p(4, c[1]) + e).sqrt() * p(1, c[1]) + p(2, c[1]))
        }
        "InstanceNormalization" => {
            let n: usize = x0.shape[2..].iter().product();
            let channels = x0.shape[1];
            let mut data = Vec::new();
            for (i, w) in x0.data.chunks(n).enumerate() {
                let mean = w.iter().sum::<f64>() / n as f64;
                let var = w.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n as f64;
                let (s, b) = (x[1].unwrap().data[i % channels], x[2].unwrap().data[i % channels]);
                data.extend(w.iter().map(|v| (v - mean) / (var + a.float("epsilon", 1e-5f32 as f64)).sqrt() * s + b));
            }
            Array { shape: x0.shape.clone(), data }
        }
        "LayerNormalization" => {
            let d = axis(a.int("axis", -1), x0.shape.len());
            let n: usize = x0.shape[d..].iter().product();
            let mut out = [vec![], vec![], vec![]];
            for w in x0.data.chunks(n) {
                let mean = w.iter().sum::<f64>() / n as f64;
                let var = w.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n as f64;
                let inverse = 1.0 / (var + a.float("epsilon", 1e-5f32 as f64)).sqrt();
                let scale = |i: usize| x[1].unwrap().data[i];
                let bias = |i: usize| x.get(2).copied().flatten().map_or(0.0, |b| b.data[i]);
                out[0].extend(w.iter().enumerate().map(|(i, v)| (v - mean) * inverse * scale(i) + bias(i)));
                out[1].push(mean);
                out[2].push(inverse);
            }
            let mut kept = x0.shape.clone();
            kept[d..].fill(1);
            let shapes = [&x0.shape, &kept, &kept];
            return out.into_iter().zip(shapes).map(|(data, s)| Array { shape: s.clone(), data }).collect();
        }
        "CumSum" => {
            let d = axis(list(1)[0], x0.shape.len());
            let (reverse, exclusive) = (a.int("reverse", 0) != 0, a.int("exclusive", 0) != 0);
            Array::new(&x0.shape, |c| {
                let mut at = c.to_vec();
                let inside = |i: usize| if reverse { i > c[d] } else { i < c[d] } || (i == c[d] && !exclusive);
                (0..x0.shape[d])
                    .filter(|&i| inside(i))
                    .map(|i| {
                        at[d] = i;
                        x0.at(&at)
                    })
                    .sum()
            })
        }
        "Trilu" => {
            let k = x.get(1).copied().flatten().map_or(0, |k| k.data[0] as i64);
            let r = x0.shape.len();
            Array::new(&x0.shape, |c| {
                let above = c[r - 1] as i64 - c[r - 2] as i64;
                let keep = if a.int("upper", 1) != 0 { above >= k } else { above <= k };
                if keep { x0.at(c) } else { 0.0 }
            })
        }
        "QuantizeLinear" => {
            let (scale, zero) = (x[1].unwrap(), x[2].unwrap());
            let d = if scale.data.len() == 1 { 0 } else { a.int("axis", 1) as usize };
            let of = |p: &Array, c: &[usize]| p.data[if p.data.len() == 1 { 0 } else { c[d] }];
            // The quotient is rounded to f32 before it is rounded to an integer, as the operator's type demands.
            let q = |v: f64, s: f64| ((v / s) as f32).round_ties_even() as f64;
            Array::new(&x0.shape, |c| (q(x0.at(c), of(scale, c)) + of(zero, c)).clamp(0.0, 255.0))
        }
        "DequantizeLinear" => {
            let (scale, zero) = (x[1].unwrap(), x[2].unwrap());
            let d = if scale.data.len() == 1 { 0 } else { a.int("axis", 1) as usize };
            let of = |p: &Array, c: &[usize]| p.data[if p.data.len() == 1 { 0 } else { c[d] }];
            Array::new(&x0.shape, |c| (x0.at(c) - of(zero, c)) * of(scale, c))
        }
        "Attention" => attention(&a, x),
        "RotaryEmbedding" => {
            let [b, h, s, d] = x0.shape[..] else { panic!() };
            let (cos, sin) = (x[1].unwrap(), x[2].unwrap());
            let (ids, interleaved) = (x[3].unwrap(), a.int("interleaved", 0) != 0);
            Array::new(&[b, h, s, d], |c| {
                let (pair, imaginary) =
                    if interleaved { (c[3] / 2, c[3] % 2 == 1) } else { (c[3] % (d / 2), c[3] >= d / 2) };
                let element =
                    |i: usize| x0.at(&[c[0], c[1], c[2], if interleaved { 2 * pair + i } else { pair + i * d / 2 }]);
                let position = ids.at(&[c[0], c[2]]) as usize;
                let (co, si) = (cos.at(&[position, pair]), sin.at(&[position, pair]));
                if imaginary { si * element(0) + co * element(1) } else { co * element(0) - si * element(1) }
            })
        }
        "LRN" => {
            let (size, alpha) = (a.int("size", 1), a.float("alpha", 1e-4));
            let (beta, bias) = (a.float("beta", 0.75), a.float("bias", 1.0));
            Array::new(&x0.shape, |c| {
                let mut sum = 0.0;
                for k in 0..size {
                    let mut at: Vec<i64> = c.iter().map(|&v| v as i64).collect();
                    at[1] += k - (size - 1) / 2;
                    sum += x0.get(&at).unwrap_or(0.0).powi(2);
                }
                x0.at(c) / (bias + alpha / size as f64 * sum).powf(beta)
            })
        }
        "Gemm" => gemm(&a, x0, x[1].unwrap(), x.get(2).copied().flatten()),
        "MatMul" => matmul(x0, x[1].unwrap()),
        "Softmax" | "LogSoftmax" => {
            let d = axis(a.int("axis", -1), x0.shape.len());
            let log = node.op == "LogSoftmax";
            Array::new(&x0.shape, |c| {
                let mut at = c.to_vec();
                let sum: f64 = (0..x0.shape[d])
                    .map(|i| {
                        at[d] = i;
                        x0.at(&at).exp()
                    })
                    .sum();
                if log { x0.at(c) - sum.ln() } else { x0.at(c).exp() / sum }
            })
        }
        "Concat" => {
            let d = axis(a.int("axis", 0), x0.shape.len());
            let mut shape = x0.shape.clone();
            shape[d] = x.iter().map(|v| v.unwrap().shape[d]).sum();
            Array::new(&shape, |c| {
                let mut at = c.to_vec();
                for v in x {
                    let v = v.unwrap();
                    if at[d] < v.shape[d] {
                        return v.at(&at);
                    }
                    at[d] -= v.shape[d];
                }
                unreachable!()
            })
        }
        "Reshape" => {
            let want = list(1);
            let known: i64 = want
                .iter()
                .enumerate()
                .map(|(i, &d)| if d == 0 { x0.shape[i] as i64 } else { d })
                .filter(|&d| d > 0)
                .product();
            let shape = want.iter().enumerate().map(|(i, &d)| match d {
                0 => x0.shape[i],
                -1 => x0.data.len() / known as usize,
                d => d as usize,
            });
            Array { shape: shape.collect(), data: x0.data.clone() }
        }
        "Flatten" => {
            let d = a.int("axis", 1) as usize;
            let shape = vec![x0.shape[..d].iter().product(), x0.shape[d..].iter().product()];
            Array { shape, data: x0.data.clone() }
        }
        "Squeeze" => {
            let drop: Vec<usize> = list(1).iter().map(|&d| axis(d, x0.shape.len())).collect();
            let shape = (0..x0.shape.len()).filter(|d| !drop.contains(d)).map(|d| x0.shape[d]).collect();
            Array { shape, data: x0.data.clone() }
        }
        "Unsqueeze" => {
            let rank = x0.shape.len() + list(1).len();
            let mut new: Vec<usize> = list(1).iter().map(|&d| axis(d, rank)).collect();
            new.sort();
            let mut shape = x0.shape.clone();
            new.iter().for_each(|&d| shape.insert(d, 1));
            Array { shape, data: x0.data.clone() }
        }
        "Transpose" => {
            let rank = x0.shape.len();
            let perm = a.ints("perm").unwrap_or_else(|| (0..rank as i64).rev().collect());
            let shape: Vec<usize> = perm.iter().map(|&p| x0.shape[p as usize]).collect();
            Array::new(&shape, |c| {
                let mut at = vec![0; rank];
                perm.iter().zip(c).for_each(|(&p, &c)| at[p as usize] = c);
                x0.at(&at)
            })
        }
        "Pad" => {
            let rank = x0.shape.len();
            let pads = list(1);
            let fill = x.get(2).copied().flatten().map_or(0.0, |v| v.data[0]);
            let mode = a.text("mode", "constant");
            let shape: Vec<usize> =
                (0..rank).map(|d| (x0.shape[d] as i64 + pads[d] + pads[d + rank]) as usize).collect();
            Array::new(&shape, |c| {
                let at: Vec<i64> = (0..rank)
                    .map(|d| {
                        let (mut i, n) = (c[d] as i64 - pads[d], x0.shape[d] as i64);
                        match mode.as_str() {
                            "edge" => i = i.max(0).min(n - 1),
                            "wrap" => i = (i + 4 * n) % n,
                            "reflect" => {
                                while i < 0 || i >= n {
                                    i = if i < 0 { -i } else { 2 * (n - 1) - i };
                                }
                            }
                            _ => {}
                        }
                        i
                    })
                    .collect();
                x0.get(&at).unwrap_or(fill)
            })
        }
        "Slice" => {
            let (starts, ends, axes, steps) = (list(1), list(2), list(3), list(4));
            let mut index: Vec<Vec<usize>> = x0.shape.iter().map(|&n| (0..n).collect()).collect();
            for i in 0..starts.len() {
                let d = axis(axes[i], x0.shape.len());
                let n = x0.shape[d] as i64;
                let wrap = |v: i64| if v < 0 { v + n } else { v };
                let (mut at, end) = (wrap(starts[i]), wrap(ends[i]));
                let mut picked = Vec::new();
                if steps[i] > 0 {
                    at = at.max(0);
                    while at < end.min(n) {
                        picked.push(at as usize);
                        at += steps[i];
                    }
                } else {
                    at = at.min(n - 1);
                    while at > end.max(-1) {
                        picked.push(at as usize);
                        at += steps[i];
                    }
                }
                index[d] = picked;
            }
            let shape: Vec<usize> = index.iter().map(Vec::len).collect();
            Array::new(&shape, |c| x0.at(&c.iter().zip(&index).map(|(&c, i)| i[c]).collect::<Vec<_>>()))
        }
        "Gather" => {
            let d = axis(a.int("axis", 0), x0.shape.len());
            let index = x[1].unwrap();
            let shape = [&x0.shape[..d], &index.shape, &x0.shape[d + 1..]].concat();
            let n = index.shape.len();
            Array::new(&shape, |c| {
                let i = axis(index.at(&c[d..d + n]) as i64, x0.shape[d]);
                x0.at(&[&c[..d], &[i], &c[d + n..]].concat())
            })
        }
        "Expand" => {
            let want: Vec<usize> = list(1).iter().map(|&d| d as usize).collect();
            Array::new(&broadcast(&[&x0.shape, &want]), |c| x0.cast(c))
        }
        "Tile" => {
            let repeats = list(1);
            let shape: Vec<usize> = x0.shape.iter().zip(&repeats).map(|(&d, &r)| d * r as usize).collect();
            Array::new(&shape, |c| x0.at(&c.iter().zip(&x0.shape).map(|(&c, &d)| c % d).collect::<Vec<_>>()))
        }
        "DepthToSpace" => {
            let b = a.int("blocksize", 1) as usize;
            let [n, c, h, w] = x0.shape[..] else { panic!() };
            let depth = c / (b * b);
            let crd = a.text("mode", "DCR") == "CRD";
            Array::new(&[n, depth, h * b, w * b], |o| {
                let (i, j) = (o[2] % b, o[3] % b);
                let channel = if crd { (o[1] * b + i) * b + j } else { (i * b + j) * depth + o[1] };
                x0.at(&[o[0], channel, o[2] / b, o[3] / b])
            })
        }
        "SpaceToDepth" => {
            let b = a.int("blocksize", 1) as usize;
            let [n, c, h, w] = x0.shape[..] else { panic!() };
            Array::new(&[n, c * b * b, h / b, w / b], |o| {
                let (block, channel) = (o[1] / c, o[1] % c);
                x0.at(&[o[0], channel, o[2] * b + block / b, o[3] * b + block % b])
            })
        }
        "Resize" => resize(&a, x0, &x[2].unwrap().data),
        "Split" => {
            let d = axis(a.int("axis", 0), x0.shape.len());
            let mut start = 0;
            return list(1)
                .iter()
                .map(|&n| {
                    let mut shape = x0.shape.clone();
                    shape[d] = n as usize;
                    let y = Array::new(&shape, |c| {
                        let mut at = c.to_vec();
                        at[d] += start;
                        x0.at(&at)
                    });
                    start += n as usize;
                    y
                })
                .collect();
        }
        op if op.starts_with("Reduce") => reduce(op, &a, x0),
        _ => return super::wider::evaluate(node, x),
    };
    vec![one]
}

/// Softmax of scaled products, with a boolean mask and grouped heads.
fn attention(a: &Attrs<'_>, x: &[Option<&Array>]) -> Array {
    let (q, k, v) = (x[0].unwrap(), x[1].unwrap(), x[2].unwrap());
    let [b, h, s, d] = q.shape[..] else { panic!() };
    let (hk, t, dv) = (k.shape[1], k.shape[2], v.shape[3]);
    let mask = x.get(3).copied().flatten();
    let causal = a.int("is_causal", 0) != 0;
    Array::new(&[b, h, s, dv], |c| {
        let group = c[1] / (h / hk);
        let score = |j: usize| -> f64 {
            let dot: f64 = (0..d).map(|i| q.at(&[c[0], c[1], c[2], i]) * k.at(&[c[0], group, j, i])).sum();
            let hidden = (causal && j > c[2]) || mask.is_some_and(|m| m.cast(&[c[0], c[1], c[2], j]) == 0.0);
            if hidden { f64::NEG_INFINITY } else { dot / (d as f64).sqrt() }
        };
        let weights: Vec<f64> = (0..t).map(|j| score(j).exp()).collect();
        let sum: f64 = weights.iter().sum();
        (0..t).map(|j| weights[j] / sum * v.at(&[c[0], group, j, c[3]])).sum()
    })
}

fn or_ones(list: Option<Vec<i64>>, n: usize) -> Vec<i64> {
    list.unwrap_or_else(|| vec![1; n])
}

/// Padding at the beginning and at the end.
fn pads(a: &Attrs<'_>, input: &[usize], kernel: &[i64], s: &[i64], d: &[i64]) -> (Vec<i64>, Vec<i64>) {
    let n = input.len();
    let auto = a.text("auto_pad", "NOTSET");
    if auto.starts_with("SAME") {
        let total: Vec<i64> = (0..n)
            .map(|i| {
                let out = (input[i] as i64 + s[i] - 1) / s[i];
                ((out - 1) * s[i] + (kernel[i] - 1) * d[i] + 1 - input[i] as i64).max(0)
            })
            .collect();
        let half: Vec<i64> = total.iter().map(|t| t / 2).collect();
        let rest: Vec<i64> = total.iter().map(|t| t - t / 2).collect();
        return if auto == "SAME_UPPER" { (half, rest) } else { (rest, half) };
    }
    let p = a.ints("pads").unwrap_or_else(|| vec![0; 2 * n]);
    (p[..n].to_vec(), p[n..].to_vec())
}

fn conv(a: &Attrs<'_>, x: &Array, w: &Array, bias: Option<&Array>) -> Array {
    let n = x.shape.len() - 2;
    let kernel: Vec<i64> = w.shape[2..].iter().map(|&k| k as i64).collect();
    let (s, d) = (or_ones(a.ints("strides"), n), or_ones(a.ints("dilations"), n));
    let (begin, end) = pads(a, &x.shape[2..], &kernel, &s, &d);
    let groups = a.int("group", 1) as usize;
    let mut shape = vec![x.shape[0], w.shape[0]];
    for i in 0..n {
        let room = x.shape[2 + i] as i64 + begin[i] + end[i] - (kernel[i] - 1) * d[i] - 1;
        shape.push((room / s[i] + 1) as usize);
    }
    let taps = coords(&w.shape[1..]);
    Array::new(&shape, |o| {
        let group = o[1] / (w.shape[0] / groups);
        let mut sum = bias.map_or(0.0, |b| b.data[o[1]]);
        for t in &taps {
            let mut at = vec![o[0] as i64, (group * w.shape[1] + t[0]) as i64];
            at.extend((0..n).map(|i| o[2 + i] as i64 * s[i] + t[1 + i] as i64 * d[i] - begin[i]));
            if let Some(v) = x.get(&at) {
                sum += v * w.at(&[&[o[1]], &t[..]].concat());
            }
        }
        sum
    })
}

/// By scattering each input into the output.
fn conv_transpose(a: &Attrs<'_>, x: &Array, w: &Array, bias: Option<&Array>) -> Array {
    let n = x.shape.len() - 2;
    let (s, d) = (or_ones(a.ints("strides"), n), or_ones(a.ints("dilations"), n));
    let p = a.ints("pads").unwrap_or_else(|| vec![0; 2 * n]);
    let extra = a.ints("output_padding").unwrap_or_else(|| vec![0; n]);
    let groups = a.int("group", 1) as usize;
    let mut shape = vec![x.shape[0], w.shape[1] * groups];
    for i in 0..n {
        let k = w.shape[2 + i] as i64;
        shape.push(((x.shape[2 + i] as i64 - 1) * s[i] + extra[i] + (k - 1) * d[i] + 1 - p[i] - p[i + n]) as usize);
    }
    let mut y = Array::new(&shape, |c| bias.map_or(0.0, |b| b.data[c[1]]));
    for c in coords(&x.shape) {
        let group = c[1] / (x.shape[1] / groups);
        for t in coords(&w.shape[1..]) {
            let mut at = vec![c[0] as i64, (group * w.shape[1] + t[0]) as i64];
            at.extend((0..n).map(|i| c[2 + i] as i64 * s[i] + t[1 + i] as i64 * d[i] - p[i]));
            if y.get(&at).is_some() {
                let i = at.iter().zip(&shape).fold(0, |i, (&c, &d)| i * d + c as usize);
                y.data[i] += x.at(&c) * w.at(&[&[c[1]], &t[..]].concat());
            }
        }
    }
    y
}

fn pool(a: &Attrs<'_>, x: &Array, max: bool) -> Array {
    let n = x.shape.len() - 2;
    let kernel = a.ints("kernel_shape").unwrap();
    let (s, d) = (or_ones(a.ints("strides"), n), or_ones(a.ints("dilations"), n));
    let (begin, end) = pads(a, &x.shape[2..], &kernel, &s, &d);
    let ceil = a.int("ceil_mode", 0) != 0;
    let mut shape = x.shape[..2].to_vec();
    for i in 0..n {
        let room = x.shape[2 + i] as i64 + begin[i] + end[i] - (kernel[i] - 1) * d[i] - 1;
        let mut out = if ceil { (room + s[i] - 1) / s[i] } else { room / s[i] } + 1;
        if ceil && (out - 1) * s[i] >= x.shape[2 + i] as i64 + begin[i] {
            out -= 1;
        }
        shape.push(out as usize);
    }
    let taps = coords(&kernel.iter().map(|&k| k as usize).collect::<Vec<_>>());
    let include = a.int("count_include_pad", 0) != 0;
    Array::new(&shape, |o| {
        let (mut best, mut sum, mut count) = (f64::NEG_INFINITY, 0.0, 0.0);
        for t in &taps {
            let mut at = vec![o[0] as i64, o[1] as i64];
            at.extend((0..n).map(|i| o[2 + i] as i64 * s[i] + t[i] as i64 * d[i] - begin[i]));
            let padded = (0..n).all(|i| at[2 + i] < x.shape[2 + i] as i64 + end[i]);
            match x.get(&at) {
                Some(v) => {
                    best = best.max(v);
                    sum += v;
                    count += 1.0;
                }
                None if include && padded => count += 1.0,
                None => {}
            }
        }
        if max { best } else { sum / count }
    })
}

fn gemm(a: &Attrs<'_>, x: &Array, y: &Array, c: Option<&Array>) -> Array {
    let (ta, tb) = (a.int("transA", 0) != 0, a.int("transB", 0) != 0);
    let (m, k) = if ta { (x.shape[1], x.shape[0]) } else { (x.shape[0], x.shape[1]) };
    let n = if tb { y.shape[0] } else { y.shape[1] };
    Array::new(&[m, n], |o| {
        let left = |i: usize| if ta { x.at(&[i, o[0]]) } else { x.at(&[o[0], i]) };
        let right = |i: usize| if tb { y.at(&[o[1], i]) } else { y.at(&[i, o[1]]) };
        let sum: f64 = (0..k).map(|i| left(i) * right(i)).sum();
        a.float("alpha", 1.0) * sum + c.map_or(0.0, |c| a.float("beta", 1.0) * c.cast(o))
    })
}

fn matmul(x: &Array, y: &Array) -> Array {
    let (rx, ry) = (x.shape.len(), y.shape.len());
    let batch = broadcast(&[&x.shape[..rx - 2], &y.shape[..ry - 2], &[]]);
    let (m, k, n) = (x.shape[rx - 2], x.shape[rx - 1], y.shape[ry - 1]);
    let b = batch.len();
    let fit = |v: &Array, c: &[usize]| -> Vec<usize> {
        let r = v.shape.len() - 2;
        c[b - r..b].iter().zip(&v.shape).map(|(&c, &d)| if d == 1 { 0 } else { c }).collect()
    };
    Array::new(&[&batch[..], &[m, n]].concat(), |c| {
        let (hx, hy) = (fit(x, c), fit(y, c));
        (0..k).map(|i| x.at(&[&hx[..], &[c[b], i]].concat()) * y.at(&[&hy[..], &[i, c[b + 1]]].concat())).sum()
    })
}

fn reduce(op: &str, a: &Attrs<'_>, x: &Array) -> Array {
    let rank = x.shape.len();
    let axes: Vec<usize> = match a.ints("axes") {
        Some(l) => l.iter().map(|&d| axis(d, rank)).collect(),
        None => (0..rank).collect(),
    };
    let kept: Vec<usize> = (0..rank).map(|d| if axes.contains(&d) { 1 } else { x.shape[d] }).collect();
    let inner: Vec<usize> = (0..rank).map(|d| if axes.contains(&d) { x.shape[d] } else { 1 }).collect();
    let walk = coords(&inner);
    let mut y = Array::new(&kept, |c| {
        let v: Vec<f64> = walk.iter().map(|w| x.at(&c.iter().zip(w).map(|(a, b)| a + b).collect::<Vec<_>>())).collect();
        match op {
            "ReduceSum" => v.iter().sum(),
            "ReduceMean" => v.iter().sum::<f64>() / v.len() as f64,
            "ReduceMax" => v.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            "ReduceMin" => v.iter().copied().fold(f64::INFINITY, f64::min),
            "ReduceProd" => v.iter().product(),
            "ReduceL1" => v.iter().map(|x| x.abs()).sum(),
            "ReduceL2" => v.iter().map(|x| x * x).sum::<f64>().sqrt(),
            "ReduceSumSquare" => v.iter().map(|x| x * x).sum(),
            "ReduceLogSumExp" => v.iter().map(|x| x.exp()).sum::<f64>().ln(),
            _ => panic!("the reference does not know {op}"),
        }
    });
    if a.int("keepdims", 1) == 0 {
        y.shape = (0..rank).filter(|d| !axes.contains(d)).map(|d| x.shape[d]).collect();
    }
    y
}

fn resize(a: &Attrs<'_>, x: &Array, scales: &[f64]) -> Array {
    let shape: Vec<usize> = x.shape.iter().zip(scales).map(|(&d, &s)| (d as f64 * s).floor() as usize).collect();
    let half = a.text("coordinate_transformation_mode", "half_pixel") == "half_pixel";
    let nearest = a.text("mode", "nearest") == "nearest";
    // Places that decide between elements are computed in f32, and what is in the middle but for its rounding is there.
    let position = |o: usize, s: f64| match (nearest, half) {
        (true, true) => f64::from((o as f32 + 0.5) / s as f32 - 0.5),
        (true, false) => f64::from(o as f32 / s as f32),
        (false, true) => (o as f64 + 0.5) / s - 0.5,
        (false, false) => o as f64 / s,
    };
    Array::new(&shape, |c| {
        let mut sum = 0.0;
        for corner in 0..1usize << c.len() {
            let (mut weight, mut at) = (1.0, Vec::new());
            for d in 0..c.len() {
                let p = position(c[d], scales[d]);
                let high = corner >> d & 1;
                let i = if nearest {
                    weight *= if high == 1 { 0.0 } else { 1.0 };
                    if a.text("nearest_mode", "") == "floor" { p.floor() } else { (p - 0.5 - 1e-6).ceil() }
                } else {
                    weight *= if high == 1 { p - p.floor() } else { 1.0 - (p - p.floor()) };
                    p.floor() + high as f64
                };
                at.push(i.max(0.0).min(x.shape[d] as f64 - 1.0) as usize);
            }
            sum += weight * x.at(&at);
        }
        sum
    })
}
