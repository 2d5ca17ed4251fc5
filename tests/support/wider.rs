//! More operators for the random tests, each with its generator and, below, its reference in f64: what is computed element by
//! element, what moves, searches, samples, and recurs.

use super::build::{Builder, int, ints, text};
use super::reference::{Array, Attrs, axis, coords};
use barewave::onnx::{Attribute, Node};
use barewave::tensor::HostTensor;

/// The operators that [`operator`] makes.
pub const OPERATORS: [&str; 18] = [
    "Unary",
    "Compare",
    "Einsum",
    "GatherElements",
    "GatherND",
    "ScatterElements",
    "ScatterND",
    "ArgMax",
    "ArgMin",
    "TopK",
    "OneHot",
    "RNN",
    "GRU",
    "LSTM",
    "GridSample",
    "MaxRoiPool",
    "DFT",
    "Det",
];

const UNARY: [&str; 14] = [
    "Sin", "Cos", "Atan", "Sinh", "Cosh", "Asinh", "Erf", "Floor", "Ceil", "Round", "Sign", "Softsign", "Mish", "Celu",
];
const ACTIVATIONS: [&str; 5] = ["Sigmoid", "Tanh", "Relu", "Softsign", "HardSigmoid"];

/// One operator on random operands.
pub fn operator(b: &mut Builder, op: &str) {
    let y = match op {
        "Unary" => {
            let shape = shape(b);
            let x = b.input(&shape);
            let op = UNARY[b.below(UNARY.len())];
            // Away from where rounding steps.
            let k = b.constant(HostTensor::from_f32(&[], &[3.01]));
            let x = b.node("Mul", &[&x, &k], &[]);
            b.node(op, &[&x], &[])
        }
        "Compare" => {
            let (x, y) = (b.input(&[3, 5]), b.input(&[5]));
            let op = ["Greater", "Less", "GreaterOrEqual", "LessOrEqual"][b.below(4)];
            b.node(op, &[&x, &y], &[])
        }
        "Einsum" => einsum(b),
        "GatherElements" | "ScatterElements" => elements(b, op),
        "GatherND" | "ScatterND" => points(b, op),
        "ArgMax" | "ArgMin" => {
            let shape = shape(b);
            let (x, d) = (b.input(&shape), b.below(shape.len()));
            let keep = b.below(2) as i64;
            b.node(op, &[&x], &[("axis", int(d as i64)), ("keepdims", int(keep))])
        }
        "TopK" => {
            let shape = shape(b);
            let (x, d) = (b.input(&shape), b.below(shape.len()));
            let k = b.between(1, shape[d]) as i64;
            let k = b.ints(&[k]);
            let largest = b.below(2) as i64;
            let both = b.node_n(op, &[&x, &k], &[("axis", int(d as i64)), ("largest", int(largest))], 2);
            b.output(&both[1]);
            both[0].clone()
        }
        "OneHot" => {
            let depth = b.between(1, 6);
            let shape = shape(b);
            let index = whole(b, &shape, -(depth as i64), depth as i64);
            let (x, d) = (b.input_of(index), b.constant(HostTensor::from_i64(&[], &[depth as i64])));
            let values = b.constant(HostTensor::from_f32(&[2], &[-1.0, 2.0]));
            b.node(op, &[&x, &d, &values], &[])
        }
        "RNN" | "GRU" | "LSTM" => recurrent(b, op),
        "GridSample" => {
            let (h, w) = (b.between(2, 6), b.between(2, 6));
            let (x, grid) = (b.input(&[2, 2, h, w]), b.input(&[2, 3, 4, 2]));
            let corners = b.below(2) as i64;
            b.node(op, &[&x, &grid], &[("align_corners", int(corners))])
        }
        "MaxRoiPool" => {
            let x = b.input(&[2, 3, 7, 9]);
            let n = b.between(1, 4);
            let mut regions = Vec::new();
            for _ in 0..n {
                let (left, top) = (b.below(6), b.below(6));
                let (right, bottom) = (left + b.below(7), top + b.below(7));
                regions.extend([b.below(2), left, top, right, bottom].map(|v| v as f32));
            }
            let regions = b.input_of(HostTensor::from_f32(&[n, 5], &regions));
            let size = [b.between(1, 4), b.between(1, 4)];
            b.node(op, &[&x, &regions], &[("pooled_shape", ints(&size))])
        }
        "DFT" => {
            let (n, parts) = (b.between(2, 11), b.between(1, 2));
            let x = b.input(&[2, n, 3, parts]);
            let inverse = b.below(2) as i64;
            b.node(op, &[&x], &[("axis", int(1)), ("inverse", int(inverse))])
        }
        "Det" => {
            let n = b.between(1, 5);
            let x = b.input(&[3, n, n]);
            b.node(op, &[&x], &[])
        }
        other => panic!("no generator for {other}"),
    };
    b.output(&y);
}

fn shape(b: &mut Builder) -> Vec<usize> {
    (0..b.between(1, 4)).map(|_| b.between(1, 6)).collect()
}

/// Integers in `low..high`.
fn whole(b: &mut Builder, shape: &[usize], low: i64, high: i64) -> HostTensor {
    let n = shape.iter().product::<usize>();
    let list: Vec<i64> = (0..n).map(|_| low + b.below((high - low) as usize) as i64).collect();
    HostTensor::from_i64(shape, &list)
}

fn einsum(b: &mut Builder) -> String {
    let list = [
        "ij,jk->ik",
        "bij,bjk->bik",
        "ij->ji",
        "ii->i",
        "ij->",
        "i,j->ij",
        "bhid,bhjd->bhij",
        "ij,ij->i",
        "ijk,kl->ijl",
    ];
    let equation = list[b.below(list.len())];
    let extents: Vec<usize> = (0..26).map(|_| b.between(1, 5)).collect();
    let (left, _) = equation.split_once("->").unwrap();
    let operands: Vec<String> = left
        .split(',')
        .map(|part| {
            let shape: Vec<usize> = part.bytes().map(|s| extents[(s - b'a') as usize]).collect();
            b.input(&shape)
        })
        .collect();
    b.node("Einsum", &operands.iter().map(String::as_str).collect::<Vec<_>>(), &[("equation", text(equation))])
}

fn elements(b: &mut Builder, op: &str) -> String {
    let shape = shape(b);
    let (x, d) = (b.input(&shape), b.below(shape.len()));
    let n = shape[d] as i64;
    let mut taken: Vec<usize> = shape.iter().map(|e| b.between(1, *e)).collect();
    if op == "GatherElements" {
        let index = whole(b, &taken, -n, n);
        let index = b.input_of(index);
        return b.node(op, &[&x, &index], &[("axis", int(d as i64))]);
    }
    // Without a reduction, places must differ: one of each line.
    let how = ["none", "add", "mul", "max", "min"][b.below(5)];
    if how == "none" {
        taken[d] = 1;
    }
    let index = whole(b, &taken, 0, n);
    let (index, update) = (b.input_of(index), b.input(&taken));
    b.node(op, &[&x, &index, &update], &[("axis", int(d as i64)), ("reduction", text(how))])
}

fn points(b: &mut Builder, op: &str) -> String {
    let shape = shape(b);
    let (x, depth) = (b.input(&shape), b.between(1, shape.len()));
    let scatter = op == "ScatterND";
    let how = ["add", "mul", "max", "min"][b.below(4)];
    let n = b.between(1, 5);
    let list: Vec<i64> = (0..n * depth).map(|i| b.below(shape[i % depth]) as i64).collect();
    let index = b.input_of(HostTensor::from_i64(&[n, depth], &list));
    if !scatter {
        return b.node(op, &[&x, &index], &[]);
    }
    let update = [&[n], &shape[depth..]].concat();
    let update = b.input(&update);
    b.node(op, &[&x, &index, &update], &[("reduction", text(how))])
}

fn recurrent(b: &mut Builder, op: &str) -> String {
    let (gates, functions) =
        [("LSTM", (4, 3)), ("GRU", (3, 2)), ("RNN", (1, 1))].into_iter().find(|f| f.0 == op).unwrap().1;
    let direction = ["forward", "reverse", "bidirectional"][b.below(3)];
    let d = 1 + usize::from(direction == "bidirectional");
    let (s, n, width, h) = (b.between(1, 5), b.between(1, 3), b.between(1, 5), b.between(1, 6));
    let x = b.input(&[s, n, width]);
    let (w, r, bias) = (b.weight(&[d, gates * h, width]), b.weight(&[d, gates * h, h]), b.weight(&[d, 2 * gates * h]));
    let mut attributes = vec![("hidden_size", int(h as i64)), ("direction", text(direction))];
    if b.coin() {
        let list = (0..functions * d).map(|_| ACTIVATIONS[b.below(ACTIVATIONS.len())].to_string()).collect();
        attributes.push(("activations", Attribute::Texts(list)));
    }
    let y = b.node_n(op, &[&x, &w, &r, &bias], &attributes, 2);
    b.output(&y[1]);
    y[0].clone()
}

// ---- references ----

/// What an operator of this file computes.
pub fn evaluate(node: &Node, x: &[Option<&Array>]) -> Vec<Array> {
    let (a, x0) = (Attrs(node), x[0].unwrap());
    let map = |f: fn(f64) -> f64| Array { shape: x0.shape.clone(), data: x0.data.iter().map(|&v| f(v)).collect() };
    let zip = |f: fn(f64, f64) -> bool| {
        let x1 = x[1].unwrap();
        Array::new(&x0.shape, |c| f(x0.at(c), x1.cast(c)) as u8 as f64)
    };
    let one = match node.op.as_str() {
        "Sin" => map(f64::sin),
        "Cos" => map(f64::cos),
        "Atan" => map(f64::atan),
        "Sinh" => map(f64::sinh),
        "Cosh" => map(f64::cosh),
        "Asinh" => map(f64::asinh),
        "Erf" => map(erf),
        "Floor" => map(f64::floor),
        "Ceil" => map(f64::ceil),
        "Round" => map(f64::round_ties_even),
        "Sign" => map(|v| (v > 0.0) as u8 as f64 - (v < 0.0) as u8 as f64),
        "Softsign" => map(|v| v / (1.0 + v.abs())),
        "Mish" => map(|v| v * (1.0 + v.exp()).ln().tanh()),
        "Celu" => map(|v| v.max(0.0) + (v.exp() - 1.0).min(0.0)),
        "Greater" => zip(|a, b| a > b),
        "GreaterOrEqual" => zip(|a, b| a >= b),
        "LessOrEqual" => zip(|a, b| a <= b),
        "Einsum" => einsum_of(&a.text("equation", ""), x),
        "GatherElements" | "ScatterElements" => elements_of(node, &a, x),
        "GatherND" | "ScatterND" => points_of(node, &a, x),
        "ArgMax" | "ArgMin" | "TopK" => return ranked(node, &a, x),
        "OneHot" => {
            let (depth, values) = (x[1].unwrap().data[0], x[2].unwrap());
            let shape = [&x0.shape[..], &[depth as usize]].concat();
            let hot = |v: f64, k: usize| (if v < 0.0 { v + depth } else { v }) == k as f64;
            let last = x0.shape.len();
            Array::new(&shape, |c| values.data[usize::from(hot(x0.at(&c[..last]), c[last]))])
        }
        "RNN" | "GRU" | "LSTM" => return layer(node, &a, x),
        "GridSample" => bilinear(&a, x0, x[1].unwrap()),
        "MaxRoiPool" => regions(&a, x0, x[1].unwrap()),
        "DFT" => transform(x0, a.int("inverse", 0) != 0),
        "Det" => {
            let n = x0.shape[1];
            Array { shape: vec![x0.shape[0]], data: x0.data.chunks(n * n).map(|m| determinant(m, n)).collect() }
        }
        other => panic!("the reference does not know {other}"),
    };
    vec![one]
}

/// By its series, which converges everywhere.
fn erf(x: f64) -> f64 {
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        term *= -x * x / n as f64;
        sum += term / (2 * n + 1) as f64;
    }
    sum * 2.0 / std::f64::consts::PI.sqrt()
}

fn einsum_of(equation: &str, x: &[Option<&Array>]) -> Array {
    let (left, right) = equation.split_once("->").unwrap();
    let parts: Vec<&[u8]> = left.split(',').map(str::as_bytes).collect();
    let mut letters: Vec<u8> = parts.concat();
    letters.sort();
    letters.dedup();
    let extent = |s: &u8| {
        let (p, i) = (0..parts.len()).find_map(|p| Some((p, parts[p].iter().position(|t| t == s)?))).unwrap();
        x[p].unwrap().shape[i]
    };
    let all: Vec<usize> = letters.iter().map(extent).collect();
    let place = |list: &[u8], c: &[usize]| -> Vec<usize> {
        list.iter().map(|s| c[letters.iter().position(|t| t == s).unwrap()]).collect()
    };
    let shape: Vec<usize> = right.as_bytes().iter().map(extent).collect();
    let mut sums = std::collections::BTreeMap::new();
    for c in coords(&all) {
        let term: f64 = parts.iter().zip(x).map(|(p, v)| v.unwrap().at(&place(p, &c))).product();
        *sums.entry(place(right.as_bytes(), &c)).or_insert(0.0) += term;
    }
    Array::new(&shape, |c| sums[c])
}

fn reduced(how: &str, old: f64, new: f64) -> f64 {
    match how {
        "add" => old + new,
        "mul" => old * new,
        "max" => old.max(new),
        "min" => old.min(new),
        _ => new,
    }
}

fn elements_of(node: &Node, a: &Attrs, x: &[Option<&Array>]) -> Array {
    let (data, index) = (x[0].unwrap(), x[1].unwrap());
    let d = axis(a.int("axis", 0), data.shape.len());
    let place = |c: &[usize]| {
        let mut at = c.to_vec();
        at[d] = axis(index.at(c) as i64, data.shape[d]);
        at
    };
    if node.op == "GatherElements" {
        return Array::new(&index.shape, |c| data.at(&place(c)));
    }
    let mut y = data.clone();
    for c in coords(&index.shape) {
        let at = y.place(&place(&c));
        y.data[at] = reduced(&a.text("reduction", "none"), y.data[at], x[2].unwrap().at(&c));
    }
    y
}

fn points_of(node: &Node, a: &Attrs, x: &[Option<&Array>]) -> Array {
    let (data, index) = (x[0].unwrap(), x[1].unwrap());
    let depth = index.shape[1];
    let point = |c: &[usize]| -> Vec<usize> {
        let first = (0..depth).map(|i| index.at(&[c[0], i]) as usize);
        first.chain(c[1..].iter().copied()).collect()
    };
    if node.op == "GatherND" {
        let shape = [&index.shape[..1], &data.shape[depth..]].concat();
        return Array::new(&shape, |c| data.at(&point(c)));
    }
    let mut y = data.clone();
    for c in coords(&x[2].unwrap().shape) {
        let at = y.place(&point(&c));
        y.data[at] = reduced(&a.text("reduction", "none"), y.data[at], x[2].unwrap().at(&c));
    }
    y
}

/// ArgMax, ArgMin and TopK: the first elements of each line in order.
fn ranked(node: &Node, a: &Attrs, x: &[Option<&Array>]) -> Vec<Array> {
    let x0 = x[0].unwrap();
    let d = axis(a.int("axis", -1), x0.shape.len());
    let most = node.op == "ArgMax" || node.op == "TopK" && a.int("largest", 1) != 0;
    let order = |c: &[usize]| -> Vec<usize> {
        let mut at = c.to_vec();
        let line: Vec<f64> = (0..x0.shape[d])
            .map(|i| {
                at[d] = i;
                x0.at(&at)
            })
            .collect();
        let mut order: Vec<usize> = (0..line.len()).collect();
        order.sort_by(|&i, &j| if most { line[j].total_cmp(&line[i]) } else { line[i].total_cmp(&line[j]) });
        order
    };
    let top = node.op == "TopK";
    let mut shape = x0.shape.clone();
    shape[d] = if top { x[1].unwrap().data[0] as usize } else { 1 };
    let mut places = Array::new(&shape, |c| order(c)[c[d]] as f64);
    if top {
        let values = Array::new(&shape, |c| {
            let mut at = c.to_vec();
            at[d] = order(c)[c[d]];
            x0.at(&at)
        });
        return vec![values, places];
    }
    if a.int("keepdims", 1) == 0 {
        places.shape.remove(d);
    }
    vec![places]
}

fn activation(name: &str, v: f64) -> f64 {
    match name {
        "Sigmoid" => 1.0 / (1.0 + (-v).exp()),
        "Tanh" => v.tanh(),
        "Relu" => v.max(0.0),
        "Softsign" => v / (1.0 + v.abs()),
        "HardSigmoid" => (0.2 * v + 0.5).clamp(0.0, 1.0),
        other => panic!("the reference does not know {other}"),
    }
}

/// The output of all steps, and the last state.
fn layer(node: &Node, a: &Attrs, x: &[Option<&Array>]) -> Vec<Array> {
    let (x0, w, r, bias) = (x[0].unwrap(), x[1].unwrap(), x[2].unwrap(), x[3].unwrap());
    let (&[s, n, _], &[d, _, h]) = (&x0.shape[..], &r.shape[..]) else { panic!() };
    let (gates, defaults): (usize, &[&str]) = match node.op.as_str() {
        "LSTM" => (4, &["Sigmoid", "Tanh", "Tanh"]),
        "GRU" => (3, &["Sigmoid", "Tanh"]),
        _ => (1, &["Tanh"]),
    };
    let mut names: Vec<String> = defaults.iter().cycle().take(2 * defaults.len()).map(|s| s.to_string()).collect();
    if let Some(Attribute::Texts(list)) = node.attributes.get("activations") {
        names.clone_from(list);
    }
    let (mut all, mut last) = (vec![0.0; s * d * n * h], vec![0.0; d * n * h]);
    for side in 0..d {
        let back = side == 1 || a.text("direction", "") == "reverse";
        let f = |i: usize, v: f64| activation(&names[side * defaults.len() + i], v);
        for item in 0..n {
            let (mut state, mut cell) = (vec![0.0; h], vec![0.0; h]);
            for step in 0..s {
                let t = if back { s - 1 - step } else { step };
                let from = |g: usize, j: usize| {
                    let row = g * h + j;
                    let sum: f64 = (0..x0.shape[2]).map(|k| w.at(&[side, row, k]) * x0.at(&[t, item, k])).sum();
                    sum + bias.at(&[side, row])
                };
                let again = |g: usize, j: usize, state: &[f64]| {
                    let row = g * h + j;
                    (0..h).map(|k| r.at(&[side, row, k]) * state[k]).sum::<f64>()
                };
                let second = |g: usize, j: usize| bias.at(&[side, (gates + g) * h + j]);
                let sum = |g: usize, j: usize| from(g, j) + again(g, j, &state) + second(g, j);
                let next: Vec<f64> = match node.op.as_str() {
                    "RNN" => (0..h).map(|j| f(0, sum(0, j))).collect(),
                    "GRU" => {
                        let let_through: Vec<f64> = (0..h).map(|j| f(0, sum(1, j)) * state[j]).collect();
                        (0..h)
                            .map(|j| {
                                let z = f(0, sum(0, j));
                                let new = f(1, from(2, j) + again(2, j, &let_through) + second(2, j));
                                (1.0 - z) * new + z * state[j]
                            })
                            .collect()
                    }
                    _ => {
                        let old = cell.clone();
                        (0..h)
                            .map(|j| {
                                cell[j] = f(0, sum(2, j)) * old[j] + f(0, sum(0, j)) * f(1, sum(3, j));
                                f(0, sum(1, j)) * f(2, cell[j])
                            })
                            .collect()
                    }
                };
                state = next;
                let at = ((t * d + side) * n + item) * h;
                all[at..at + h].copy_from_slice(&state);
            }
            let at = (side * n + item) * h;
            last[at..at + h].copy_from_slice(&state);
        }
    }
    vec![Array { shape: vec![s, d, n, h], data: all }, Array { shape: vec![d, n, h], data: last }]
}

fn bilinear(a: &Attrs, x: &Array, grid: &Array) -> Array {
    let corners = a.int("align_corners", 0) != 0;
    let shape = [x.shape[0], x.shape[1], grid.shape[1], grid.shape[2]];
    let at = |v: f64, n: usize| {
        if corners { (v + 1.0) / 2.0 * (n as f64 - 1.0) } else { ((v + 1.0) * n as f64 - 1.0) / 2.0 }
    };
    Array::new(&shape, |c| {
        let (px, py) = (grid.at(&[c[0], c[2], c[3], 0]), grid.at(&[c[0], c[2], c[3], 1]));
        let (px, py) = (at(px, x.shape[3]), at(py, x.shape[2]));
        let mut sum = 0.0;
        for (dy, dx) in [(0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0)] {
            let (gy, gx) = (py.floor() + dy, px.floor() + dx);
            let weight = (1.0 - (py - gy).abs()) * (1.0 - (px - gx).abs());
            sum += weight * x.get(&[c[0] as i64, c[1] as i64, gy as i64, gx as i64]).unwrap_or(0.0);
        }
        sum
    })
}

fn regions(a: &Attrs, x: &Array, rois: &Array) -> Array {
    let bins = a.ints("pooled_shape").unwrap();
    let shape = [rois.shape[0], x.shape[1], bins[0] as usize, bins[1] as usize];
    let range = |low: f64, high: f64, bin: usize, bins: i64, extent: usize| {
        let step = (high - low + 1.0).max(1.0) / bins as f64;
        let edge = |v: f64| (v + low).clamp(0.0, extent as f64) as usize;
        edge((bin as f64 * step).floor())..edge(((bin + 1) as f64 * step).ceil())
    };
    Array::new(&shape, |c| {
        let r = |i: usize| rois.at(&[c[0], i]);
        let mut most = f64::NEG_INFINITY;
        for y in range(r(2), r(4), c[2], bins[0], x.shape[2]) {
            for column in range(r(1), r(3), c[3], bins[1], x.shape[3]) {
                most = most.max(x.at(&[r(0) as usize, c[1], y, column]));
            }
        }
        if most.is_finite() { most } else { 0.0 }
    })
}

/// Along dimension 1; the last one holds real and imaginary parts.
fn transform(x: &Array, inverse: bool) -> Array {
    let (mut shape, n) = (x.shape.clone(), x.shape[1]);
    shape[3] = 2;
    Array::new(&shape, |c| {
        let mut sum = 0.0;
        for k in 0..n {
            let part = |i: usize| if i < x.shape[3] { x.at(&[c[0], k, c[2], i]) } else { 0.0 };
            let turn = if inverse { 2.0 } else { -2.0 } * std::f64::consts::PI * (c[1] * k % n) as f64 / n as f64;
            let (re, im) = (part(0), part(1));
            sum += if c[3] == 0 { re * turn.cos() - im * turn.sin() } else { re * turn.sin() + im * turn.cos() };
        }
        if inverse { sum / n as f64 } else { sum }
    })
}

/// By the first row's minors.
fn determinant(m: &[f64], n: usize) -> f64 {
    if n == 1 {
        return m[0];
    }
    let minor = |skip: usize| -> Vec<f64> {
        (1..n).flat_map(|r| (0..n).filter(move |c| *c != skip).map(move |c| m[r * n + c])).collect()
    };
    (0..n).map(|c| if c % 2 == 0 { 1.0 } else { -1.0 } * m[c] * determinant(&minor(c), n - 1)).sum()
}
