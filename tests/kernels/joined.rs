//! Steps that become one: products that normalise their rows, convolutions that change what they load, that are added up, elementwise
//! steps side by side; and draws, which are made of both kinds. Emulated devices in strict mode against the operators one by one,
//! interpreted in f64.

use crate::support::apart;
use crate::support::build::{Builder, float, int, ints};
use crate::support::device;
use crate::support::drawn;
use barewave::codeobj::{ElfFile, Listing, list};
use barewave::graph::{Options, fuse};
use barewave::tensor::{DType, HostTensor};
use barewave_isa::Target;

const TARGETS: [&str; 5] = ["gfx906", "gfx942", "gfx1030", "gfx1100", "gfx1201"];

/// Runs a model everywhere; gives what the interpreter makes of it, and how many launches are products with normalised rows.
fn outputs(b: &Builder, what: &str, most: f64) -> (Vec<HostTensor>, usize) {
    outputs_on(&TARGETS, b, what, most, "normed")
}

/// The same on some targets, of launches whose names begin so.
pub fn outputs_on(targets: &[&str], b: &Builder, what: &str, most: f64, name: &str) -> (Vec<HostTensor>, usize) {
    let graph = fuse(&b.model, &Options::default()).unwrap_or_else(|e| panic!("{what}: {e}"));
    let want = apart::outputs(&b.model, &b.inputs).unwrap_or_else(|e| panic!("{what}: {e}"));
    let mut joined = 0;
    for target in targets {
        let compiled = barewave::compile::compile(&graph, Target::parse(target).unwrap()).unwrap();
        joined += compiled.plan().launches.iter().filter(|l| l.kernel.starts_with(name)).count();
        if !drawn(&format!("{what} {target}")) {
            continue;
        }
        let (got, _) = device::run(&graph, &b.inputs, target, true).unwrap_or_else(|e| panic!("{what} {target}: {e}"));
        for (g, w) in got.iter().zip(&want) {
            close(&g.to_f64(), &w.to_f64(), most, &format!("{what} {target}"));
        }
    }
    (want, joined)
}

fn close(got: &[f64], want: &[f64], most: f64, what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    let size = want.iter().fold(1e-30, |m: f64, x| m.max(x.abs()));
    for (i, (x, y)) in got.iter().zip(want).enumerate() {
        assert!((x - y).abs() / size <= most, "{what}: element {i} is {x:e} instead of {y:e}");
    }
}

#[test]
fn products_end_in_normalisations() {
    // Rows, depth, columns: one tile and several, odd ones, few rows, many columns, a depth that is shared.
    let extents = [(7, 33, 50), (1, 64, 64), (130, 40, 96), (33, 16, 257), (16, 24, 700), (4, 2048, 64), (2, 8, 3)];
    for (case, (m, k, n)) in extents.into_iter().enumerate() {
        for (t, most) in [(DType::F32, 1e-5), (DType::F16, 4e-3), (DType::BF16, 3e-2)] {
            let mut b = Builder::new(23, case as u64);
            let typed = |b: &mut Builder, shape: &[usize]| {
                let x = b.random(shape);
                b.input_of(HostTensor::from_f64(t, shape, &x.to_f64()))
            };
            let (x, residual) = (typed(&mut b, &[1, m, k]), typed(&mut b, &[1, m, n]));
            let weights = |b: &mut Builder, shape: &[usize]| {
                let w = b.random(shape);
                b.constant(HostTensor::from_f64(t, shape, &w.to_f64()))
            };
            let w = weights(&mut b, &[k, n]);
            let y = b.node("MatMul", &[&x, &w], &[]);
            let y = b.node("Add", &[&y, &residual], &[]);
            let (scale, bias) = (weights(&mut b, &[n]), weights(&mut b, &[n]));
            // The sums go on beside what is normalised, or they do not; around the mean, or around 0.
            let z = match case % 2 {
                0 => b.node("LayerNormalization", &[&y, &scale, &bias], &[("axis", int(-1))]),
                _ => b.node("RMSNormalization", &[&y, &scale], &[("axis", int(-1)), ("epsilon", float(1e-3))]),
            };
            let goes_on = case % 3 > 0;
            let end = if goes_on {
                let twice = typed(&mut b, &[n, n]);
                let far = b.node("MatMul", &[&z, &twice], &[]);
                b.node("Add", &[&y, &far], &[])
            } else {
                z
            };
            b.output(&end);
            let (_, joined) = outputs(&b, &format!("{m} {k} {n} {t}"), most);
            assert!(joined >= 3, "{m} {k} {n} {t}: normalised at the product's end on {joined} targets");
        }
    }
}

#[test]
fn products_begin_with_normalisations() {
    // Rows, depth, columns: one tile and several, odd ones, few rows, many columns, deep ones; what is counted of the last one takes more
    // of gfx950's LDS than an offset reaches.
    let extents = [
        (7, 64, 50),
        (1, 64, 64),
        (130, 128, 96),
        (33, 256, 257),
        (16, 64, 700),
        (4, 2048, 64),
        (64, 768, 192),
        (1, 128, 64),
    ];
    let targets = ["gfx803", "gfx906", "gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201"];
    for (case, (m, k, n)) in extents.into_iter().enumerate() {
        for (t, most) in [(DType::F32, 1e-5), (DType::F16, 4e-3), (DType::BF16, 3e-2)] {
            let mut b = Builder::new(23, 100 + case as u64);
            // Means of rows are up to 20 times their deviation, or about 0.
            let far = if case % 2 == 0 { 12.0 } else { 0.1 };
            let values = b.random(&[m, k]).to_f64();
            let values: Vec<f64> =
                (0..).zip(values).map(|(i, x)| x + far * f64::from(i / k as u32 % 3) - far).collect();
            let x = b.input_of(HostTensor::from_f64(t, &[m, k], &values));
            let weights = |b: &mut Builder, shape: &[usize]| {
                let w = b.random(shape);
                b.constant(HostTensor::from_f64(t, shape, &w.to_f64()))
            };
            let (scale, bias) = (weights(&mut b, &[k]), weights(&mut b, &[k]));
            let z = match case % 3 {
                2 => b.node("RMSNormalization", &[&x, &scale], &[("axis", int(-1)), ("epsilon", float(1e-3))]),
                _ => b.node("LayerNormalization", &[&x, &scale, &bias], &[("axis", int(-1))]),
            };
            // Factors as they are, or turned.
            let factors = |b: &mut Builder, turned: bool| match turned {
                true => {
                    let w = weights(b, &[n, k]);
                    b.node("Transpose", &[&w], &[("perm", ints(&[1, 0]))])
                }
                false => weights(b, &[k, n]),
            };
            let w = factors(&mut b, case % 2 > 0);
            let y = b.node("MatMul", &[&z, &w], &[]);
            let y = b.node("Neg", &[&y], &[]);
            // Rows that others read too, or products only.
            let end = match case % 4 {
                0 => y,
                1 => {
                    let other = factors(&mut b, false);
                    let far = b.node("MatMul", &[&z, &other], &[]);
                    b.node("Add", &[&y, &far], &[])
                }
                _ => {
                    let back = weights(&mut b, &[n, k]);
                    let far = b.node("MatMul", &[&y, &back], &[]);
                    b.node("Add", &[&z, &far], &[])
                }
            };
            b.output(&end);
            let what = format!("{m} {k} {n} {t}");
            let (_, joined) = outputs_on(&targets, &b, &what, most, "standardized");
            assert!(joined >= 6, "{what}: {joined} products normalise their rows");
        }
    }
}

/// Rows whose elements are further apart than the largest f16.
#[test]
fn rows_of_the_largest_halves_are_normalised() {
    let targets = ["gfx803", "gfx906", "gfx90a", "gfx942", "gfx1030", "gfx1100"];
    for (m, k, n) in [(33, 256, 192), (4, 2048, 64)] {
        let mut b = Builder::new(23, 8);
        let constant = |b: &mut Builder, shape: &[usize]| {
            let values = b.random(shape).to_f64();
            b.constant(HostTensor::from_f64(DType::F16, shape, &values))
        };
        let largest = b.random(&[m, k]).to_f64().into_iter().map(|x| 60_000.0 * x.signum());
        let x = HostTensor::from_f64(DType::F16, &[m, k], &largest.collect::<Vec<f64>>());
        let x = b.input_of(x);
        let (scale, w) = (constant(&mut b, &[k]), constant(&mut b, &[k, n]));
        let z = b.node("LayerNormalization", &[&x, &scale], &[("axis", int(-1))]);
        let y = b.node("MatMul", &[&z, &w], &[]);
        b.output(&y);
        let (_, joined) = outputs_on(&targets, &b, &format!("{m} {k} {n}"), 4e-3, "standardized");
        assert!(joined >= 3, "{m} {k} {n}: {joined}");
    }
}

/// Factors of f16 that a small scale would put near denormals keep their digits: there the rows are normalised on their own.
#[test]
fn small_scales_stay_out_of_factors_of_f16() {
    let targets = ["gfx90a", "gfx942", "gfx1100"];
    for (t, most) in [(DType::F32, 1e-5), (DType::F16, 4e-3)] {
        let mut b = Builder::new(23, 7);
        let constant = |b: &mut Builder, shape: &[usize], times: f64| {
            let values: Vec<f64> = b.random(shape).to_f64().into_iter().map(|x| x * times).collect();
            b.constant(HostTensor::from_f64(t, shape, &values))
        };
        let values = b.random(&[33, 256]).to_f64();
        let x = b.input_of(HostTensor::from_f64(t, &[33, 256], &values));
        let (scale, bias) = (constant(&mut b, &[256], 1.0 / 128.0), constant(&mut b, &[256], 1.0 / 128.0));
        let w = constant(&mut b, &[256, 192], 1.0);
        let z = b.node("LayerNormalization", &[&x, &scale, &bias], &[("axis", int(-1))]);
        let y = b.node("MatMul", &[&z, &w], &[]);
        b.output(&y);
        let (_, joined) = outputs_on(&targets, &b, &t.to_string(), most, "standardized");
        assert_eq!(joined > 0, t == DType::F32, "{t}: {joined}");
    }
}

/// Loads of two dwords that the device shares, which follow one another in a kernel's text without a wait between them: the most.
fn most_in_flight(code: &[u8], target: Target) -> usize {
    let mut text = Vec::new();
    list(&ElfFile::parse(code).unwrap(), code, target, &Listing::default(), &mut text).unwrap();
    let (mut now, mut most) = (0, 0);
    for line in String::from_utf8(text).unwrap().lines() {
        if line.contains("buffer_load_dwordx2 ") && line.contains(" glc") {
            now += 1;
            most = most.max(now);
        } else if line.contains("s_waitcnt") {
            now = 0;
        }
    }
    most
}

/// A row of halves takes many instructions and nearly all registers; its elements are asked for together all the same.
#[test]
fn elements_of_rows_are_asked_for_together() {
    let mut b = Builder::new(23, 5);
    let halves = |b: &mut Builder, shape: &[usize]| HostTensor::from_f64(DType::F16, shape, &b.random(shape).to_f64());
    let x = halves(&mut b, &[32, 768]);
    let x = b.input_of(x);
    let [w, scale, bias] = [&[768, 768][..], &[768], &[768]].map(|shape| {
        let values = halves(&mut b, shape);
        b.constant(values)
    });
    let y = b.node("MatMul", &[&x, &w], &[]);
    let z = b.node("LayerNormalization", &[&y, &scale, &bias], &[("axis", int(-1))]);
    b.output(&z);
    let graph = fuse(&b.model, &Options::default()).unwrap();
    for target in ["gfx1010", "gfx1030"].map(|t| Target::parse(t).unwrap()) {
        let compiled = barewave::compile::compile(&graph, target).unwrap();
        let normed = compiled.plan().launches.iter().any(|l| l.kernel.starts_with("normed"));
        let most = most_in_flight(compiled.code(), target);
        assert!(normed && most >= 8, "{target:?}: normalised by the product: {normed}, {most} loads in flight");
    }
}

/// Weights of a type.
fn typed(b: &mut Builder, t: DType, shape: &[usize]) -> String {
    let x = b.random(shape).to_f64();
    b.constant(HostTensor::from_f64(t, shape, &x))
}

/// Batch normalisation and an activation, before a convolution.
fn activated(b: &mut Builder, t: DType, x: &str, channels: usize, activation: &str) -> String {
    let [scale, bias, mean] = [0; 3].map(|_| typed(b, t, &[channels]));
    let variance = b.constant(HostTensor::from_f64(t, &[channels], &vec![0.7; channels]));
    let y = b.node("BatchNormalization", &[x, &scale, &bias, &mean, &variance], &[]);
    b.node(activation, &[&y], &[])
}

#[test]
fn convolutions_change_what_they_load() {
    // Images, channels in and out, rows and columns, window; whether the step becomes the convolution's beginning.
    let cases = [
        ([1, 13, 40, 5, 7], 1, "Relu", true),
        ([2, 64, 32, 8, 8], 1, "Relu", true),
        ([1, 300, 128, 7, 7], 1, "Sigmoid", true),
        ([3, 16, 17, 3, 3], 1, "Softplus", true),
        ([1, 2048, 24, 2, 3], 1, "Relu", true),
        ([1, 8, 12, 6, 6], 3, "Relu", false),
        ([1, 9, 3, 6, 6], 1, "Relu", false),
    ];
    let types = [(DType::F32, 1e-5), (DType::F16, 4e-3), (DType::BF16, 3e-2)];
    for (([n, from, to, rows, columns], window, activation, begins), (t, most)) in
        cases.into_iter().flat_map(|case| types.map(|t| (case, t)))
    {
        let what = format!("{t} {n}x{from}x{rows}x{columns} to {to}, {activation}");
        let mut b = Builder::new(17, (from + to) as u64);
        let x = b.random(&[n, from, rows, columns]).to_f64();
        let x = b.input_of(HostTensor::from_f64(t, &[n, from, rows, columns], &x));
        let y = activated(&mut b, t, &x, from, activation);
        let (w, bias) = (typed(&mut b, t, &[to, from, window, window]), typed(&mut b, t, &[to]));
        let pads = [("pads", ints(&[window / 2; 4]))];
        let y = b.node("Conv", &[&y, &w, &bias], &pads);
        b.output(&y);
        outputs(&b, &what, most);
        let graph = fuse(&b.model, &Options::default()).unwrap();
        for target in TARGETS {
            let compiled = barewave::compile::compile(&graph, Target::parse(target).unwrap()).unwrap();
            assert_eq!(compiled.plan().launches.len(), if begins { 1 } else { 2 }, "{what} {target}");
        }
    }
}

#[test]
fn lists_of_channels_grow_without_copies() {
    let mut b = Builder::new(17, 5);
    let mut list = vec![b.input(&[1, 8, 6, 6])];
    for i in 0..3 {
        let channels = 8 + 8 * i;
        let all = if i == 0 {
            list[0].clone()
        } else {
            let parts: Vec<&str> = list.iter().map(String::as_str).collect();
            b.node("Concat", &parts, &[("axis", int(1))])
        };
        let y = activated(&mut b, DType::F32, &all, channels, "Relu");
        let w = b.weight(&[16, channels, 1, 1]);
        let y = b.node("Conv", &[&y, &w], &[]);
        let y = activated(&mut b, DType::F32, &y, 16, "Relu");
        let w = b.weight(&[8, 16, 3, 3]);
        list.push(b.node("Conv", &[&y, &w], &[("pads", ints(&[1; 4]))]));
    }
    let parts: Vec<&str> = list.iter().map(String::as_str).collect();
    let all = b.node("Concat", &parts, &[("axis", int(1))]);
    b.output(&all);
    outputs(&b, "growing list", 1e-5);
    let graph = fuse(&b.model, &Options::default()).unwrap();
    let compiled = barewave::compile::compile(&graph, Target::GFX942).unwrap();
    // Six convolutions; the given channels' copy runs beside the first one.
    assert_eq!(compiled.plan().launches.len(), 6);
}

#[test]
fn points_and_windows_of_one_input_are_one_convolution() {
    // Channels in, of points and of windows; image; window; padding, distance of taps.
    let cases: [([usize; 3], [usize; 2], [usize; 2], [usize; 2]); 5] = [
        ([16, 24, 40], [13, 13], [3, 3], [1, 1]),
        ([5, 7, 9], [9, 11], [3, 3], [1, 1]),
        ([12, 33, 65], [8, 6], [5, 1], [2, 1]),
        ([8, 16, 16], [10, 7], [3, 3], [2, 2]),
        ([64, 96, 32], [1, 5], [3, 3], [1, 1]),
    ];
    for (case, (channels, [h, w], window, [pad, apart])) in cases.into_iter().enumerate() {
        for (t, most) in [(DType::F32, 1e-5), (DType::F16, 4e-3)] {
            let mut b = Builder::new(17, case as u64);
            let [c, m, n] = channels;
            let shape = [1 + case % 2, c, h, w];
            let x = b.random(&shape);
            let x = b.input_of(HostTensor::from_f64(t, &shape, &x.to_f64()));
            let mut half = |rows: usize, window: [usize; 2], pad: usize| {
                let mut weights = |shape: &[usize]| {
                    let w = b.random(shape);
                    b.constant(HostTensor::from_f64(t, shape, &w.to_f64()))
                };
                let (k, bias) = (weights(&[rows, c, window[0], window[1]]), weights(&[rows]));
                let sides = if window[1] == 1 { [pad, 0, pad, 0] } else { [pad; 4] };
                let attributes = [("pads", ints(&sides)), ("dilations", ints(&[apart; 2]))];
                let y = b.node("Conv", &[&x, &k, &bias], &attributes);
                b.node("Relu", &[&y], &[])
            };
            let parts = if case % 2 == 0 {
                [half(m, [1, 1], 0), half(n, window, pad)]
            } else {
                [half(n, window, pad), half(m, [1, 1], 0)]
            };
            // The order in which they are computed is not that of their channels.
            let (first, second) = if case == 3 { (1, 0) } else { (0, 1) };
            let y = b.node("Concat", &[&parts[first], &parts[second]], &[("axis", int(1))]);
            b.output(&y);
            let what = format!("{channels:?} {h}x{w} {window:?} {t}");
            outputs(&b, &what, most);
            let graph = fuse(&b.model, &Options::default()).unwrap();
            for target in TARGETS {
                let compiled = barewave::compile::compile(&graph, Target::parse(target).unwrap()).unwrap();
                assert_eq!((graph.steps.len(), compiled.plan().launches.len()), (2, 1), "{what} {target}");
            }
        }
    }
}

/// A convolution of an input of its own: its channels and image, window, stride, distance of taps and padding.
struct Term {
    from: usize,
    image: [usize; 2],
    window: usize,
    stride: usize,
    apart: usize,
    pad: usize,
    /// The result is multiplied with a constant for each channel.
    scaled: bool,
}

impl Term {
    fn node(&self, b: &mut Builder, t: DType, images: usize, to: usize, constant: bool) -> String {
        let typed = |b: &mut Builder, shape: &[usize]| {
            let x = b.random(shape);
            HostTensor::from_f64(t, shape, &x.to_f64())
        };
        let x = typed(b, &[images, self.from, self.image[0], self.image[1]]);
        let x = b.input_of(x);
        let (w, bias) = (typed(b, &[to, self.from, self.window, self.window]), typed(b, &[to]));
        let (w, bias) = (if constant { b.constant(w) } else { b.input_of(w) }, b.constant(bias));
        let attributes = [("strides", self.stride), ("dilations", self.apart)].map(|(n, v)| (n, ints(&[v; 2])));
        let [strides, dilations] = attributes;
        let y = b.node("Conv", &[&x, &w, &bias], &[strides, dilations, ("pads", ints(&[self.pad; 4]))]);
        if !self.scaled {
            return y;
        }
        let scale = typed(b, &[to, 1, 1]);
        let scale = b.constant(scale);
        b.node("Mul", &[&scale, &y], &[])
    }
}

#[test]
fn convolutions_that_are_added_are_one() {
    let term = |from: usize, image, [window, stride, apart, pad]: [usize; 4]| {
        let scaled = from.is_multiple_of(8);
        Term { from, image, window, stride, apart, pad, scaled }
    };
    // Images, channels; what is added: points and strided points, windows, deep ones whose depth is shared, three at once.
    let cases: [(usize, usize, Vec<Term>); 7] = [
        (1, 64, vec![term(16, [7, 9], [1, 1, 1, 0]), term(32, [13, 17], [1, 2, 1, 0])]),
        (2, 33, vec![term(5, [6, 7], [1, 1, 1, 0]), term(19, [6, 7], [1, 1, 1, 0])]),
        (1, 40, vec![term(24, [9, 9], [3, 1, 1, 1]), term(11, [17, 17], [3, 2, 1, 1])]),
        (3, 17, vec![term(9, [8, 5], [3, 1, 2, 2]), term(13, [8, 5], [1, 1, 1, 0])]),
        (1, 36, vec![term(1200, [5, 5], [1, 1, 1, 0]), term(700, [9, 9], [1, 2, 1, 0])]),
        (1, 24, vec![term(7, [6, 6], [1, 1, 1, 0]), term(8, [11, 11], [1, 2, 1, 0]), term(9, [6, 6], [3, 1, 1, 1])]),
        (2, 96, vec![term(31, [12, 1], [1, 1, 1, 0]), term(62, [23, 1], [1, 2, 1, 0])]),
    ];
    for (case, (images, to, terms)) in cases.into_iter().enumerate() {
        for (t, most) in [(DType::F32, 1e-5), (DType::F16, 4e-3), (DType::BF16, 3e-2), (DType::F64, 1e-12)] {
            let mut b = Builder::new(17, case as u64);
            let parts: Vec<String> = terms
                .iter()
                .enumerate()
                .map(|(i, c)| c.node(&mut b, t, images, to, !(case + i).is_multiple_of(3)))
                .collect();
            let y = parts.iter().skip(1).fold(parts[0].clone(), |sum, y| b.node("Add", &[&sum, y], &[]));
            let y = b.node("Relu", &[&y], &[]);
            b.output(&y);
            let what = format!("case {case} {t}");
            outputs(&b, &what, most);
            let graph = fuse(&b.model, &Options::default()).unwrap();
            // Scales go into constant weights that are not small.
            let constant = |i: usize| !(case + i).is_multiple_of(3) && matches!(t, DType::F32 | DType::F64);
            let one = terms.iter().enumerate().all(|(i, c)| !c.scaled || constant(i));
            for target in TARGETS {
                let compiled = barewave::compile::compile(&graph, Target::parse(target).unwrap()).unwrap();
                let launches = compiled.plan().launches.len();
                // Points of f64 alone may take smaller tiles than what is gathered beside them, and less time.
                let joined = (launches == 1) == one || t == DType::F64;
                assert!(graph.steps.len() == terms.len() && joined, "{what} {target}: {launches}");
            }
        }
    }
}

#[test]
fn convolutions_that_are_not_just_added_stay_apart() {
    // What an activation lies between, what is multiplied, what another step reads too.
    for how in ["activated", "multiplied", "read twice", "taken away"] {
        let mut b = Builder::new(17, 4);
        let (x, z) = (b.input(&[1, 16, 8, 8]), b.input(&[1, 24, 15, 15]));
        let (w, v) = (b.weight(&[32, 16, 1, 1]), b.weight(&[32, 24, 1, 1]));
        let first = b.node("Conv", &[&x, &w], &[]);
        let first = if how == "activated" { b.node("Relu", &[&first], &[]) } else { first };
        let second = b.node("Conv", &[&z, &v], &[("strides", ints(&[2; 2]))]);
        let together = match how {
            "multiplied" => "Mul",
            "taken away" => "Sub",
            _ => "Add",
        };
        let y = b.node(together, &[&first, &second], &[]);
        b.output(&y);
        if how == "read twice" {
            let other = b.node("Relu", &[&first], &[]);
            b.output(&other);
        }
        outputs(&b, how, 1e-5);
        let graph = fuse(&b.model, &Options::default()).unwrap();
        for target in TARGETS {
            let compiled = barewave::compile::compile(&graph, Target::parse(target).unwrap()).unwrap();
            assert!(compiled.plan().launches.len() >= 2, "{how} {target}");
        }
    }
}

#[test]
fn queries_and_keys_turn_together() {
    // Heads of queries and of keys, and whether keys are turned over too.
    for (heads, shared, over) in [(4, 4, false), (4, 2, false), (3, 1, true), (2, 2, true)] {
        let (tokens, size) = (5, 8);
        let mut b = Builder::new(20, 9);
        let x = b.input(&[1, tokens, 16]);
        let (cos, sin) = (b.weight(&[1, 1, tokens, size]), b.weight(&[1, 1, tokens, size]));
        let w = [heads, shared].map(|h| b.weight(&[16, h * size]));
        let mut turned = Vec::new();
        for (w, h) in w.iter().zip([heads, shared]) {
            let y = b.node("MatMul", &[&x, w], &[]);
            let shape = b.ints(&[1, tokens as i64, h as i64, size as i64]);
            let y = b.node("Reshape", &[&y, &shape], &[]);
            let y = b.node("Transpose", &[&y], &[("perm", ints(&[0, 2, 1, 3]))]);
            let (zero, middle, end, axis) = (b.ints(&[0]), b.ints(&[4]), b.ints(&[8]), b.ints(&[3]));
            let low = b.node("Slice", &[&y, &zero, &middle, &axis], &[]);
            let high = b.node("Slice", &[&y, &middle, &end, &axis], &[]);
            let high = b.node("Neg", &[&high], &[]);
            let halves = b.node("Concat", &[&high, &low], &[("axis", int(3))]);
            let a = b.node("Mul", &[&y, &cos], &[]);
            let c = b.node("Mul", &[&halves, &sin], &[]);
            turned.push(b.node("Add", &[&a, &c], &[]));
        }
        let groups = b.ints(&[1, heads as i64, tokens as i64, size as i64]);
        let k = if heads == shared {
            turned[1].clone()
        } else {
            let all = b.ints(&[1, shared as i64, (heads / shared) as i64, tokens as i64, size as i64]);
            let axis = b.ints(&[2]);
            let k = b.node("Unsqueeze", &[&turned[1], &axis], &[]);
            let k = b.node("Expand", &[&k, &all], &[]);
            b.node("Reshape", &[&k, &groups], &[])
        };
        let k = if over { b.node("Exp", &[&k], &[]) } else { k };
        let k = b.node("Transpose", &[&k], &[("perm", ints(&[0, 1, 3, 2]))]);
        let scores = b.node("MatMul", &[&turned[0], &k], &[]);
        b.output(&scores);
        let (want, _) = outputs(&b, &format!("{heads} {shared} {over}"), 1e-5);

        let data = |name: &str| b.model.graph.initializers[name].to_f64();
        let (xs, cos, sin) = (b.inputs[0].to_f64(), data(&cos), data(&sin));
        let rotated = |w: &[f64], h: usize, head: usize, t: usize| -> Vec<f64> {
            let at = |i: usize| (0..16).map(|j| xs[t * 16 + j] * w[j * h * size + head * size + i]).sum::<f64>();
            let half = |i: usize| if i < 4 { -at(i + 4) } else { at(i - 4) };
            (0..size).map(|i| at(i) * cos[t * size + i] + half(i) * sin[t * size + i]).collect()
        };
        let (wq, wk) = (data(&w[0]), data(&w[1]));
        let mut scores = Vec::new();
        for head in 0..heads {
            for q in 0..tokens {
                let query = rotated(&wq, heads, head, q);
                for k in 0..tokens {
                    let key = rotated(&wk, shared, head / (heads / shared), k);
                    let key = key.iter().map(|x| if over { x.exp() } else { *x });
                    scores.push(query.iter().zip(key).map(|(a, b)| a * b).sum::<f64>());
                }
            }
        }
        close(&want[0].to_f64(), &scores, 1e-5, "scores");
        if !over {
            let graph = fuse(&b.model, &Options::default()).unwrap();
            let kinds: Vec<&str> = graph.steps.iter().map(|s| s.kind.name()).collect();
            assert_eq!(kinds, ["matmul", "pointwise", "matmul"], "{heads} {shared}");
        }
    }
}

#[test]
fn shared_keys_and_values_are_not_copied() {
    // Heads of queries and of keys, queries, keys.
    for (heads, shared, queries, keys) in [(4, 2, 5, 7), (6, 1, 1, 9), (8, 4, 1, 33), (3, 3, 4, 4)] {
        let size = 8;
        let mut b = Builder::new(20, 21);
        let q = b.input(&[1, queries, heads * size]);
        let shape = b.ints(&[1, queries as i64, heads as i64, size as i64]);
        let q = b.node("Reshape", &[&q, &shape], &[]);
        let q = b.node("Transpose", &[&q], &[("perm", ints(&[0, 2, 1, 3]))]);
        let [k, v] = [(); 2].map(|()| {
            let x = b.input(&[1, shared, keys, size]);
            let axis = b.ints(&[2]);
            let x = b.node("Unsqueeze", &[&x, &axis], &[]);
            let all = b.ints(&[1, shared as i64, (heads / shared) as i64, keys as i64, size as i64]);
            let x = b.node("Expand", &[&x, &all], &[]);
            let whole = b.ints(&[1, heads as i64, keys as i64, size as i64]);
            b.node("Reshape", &[&x, &whole], &[])
        });
        let k = b.node("Transpose", &[&k], &[("perm", ints(&[0, 1, 3, 2]))]);
        let scores = b.node("MatMul", &[&q, &k], &[]);
        let p = b.node("Softmax", &[&scores], &[("axis", int(-1))]);
        let y = b.node("MatMul", &[&p, &v], &[]);
        let y = b.node("Transpose", &[&y], &[("perm", ints(&[0, 2, 1, 3]))]);
        b.output(&y);
        let what = format!("{heads} {shared} {queries} {keys}");
        let (got, _) = outputs(&b, &what, 1e-5);
        let graph = fuse(&b.model, &Options::default()).unwrap();
        let kinds: Vec<&str> = graph.steps.iter().map(|s| s.kind.name()).collect();
        assert_eq!(kinds, ["matmul", "softmax", "matmul"], "{what}");
        let [q, k, v] = [0, 1, 2].map(|i| b.inputs[i].to_f64());
        let mut want = vec![0.0; queries * heads * size];
        for (t, head) in (0..queries).flat_map(|t| (0..heads).map(move |h| (t, h))) {
            let at = |x: usize| (head / (heads / shared) * keys + x) * size;
            let dot = |x: usize| (0..size).map(|i| q[(t * heads + head) * size + i] * k[at(x) + i]).sum::<f64>();
            let e: Vec<f64> = (0..keys).map(|x| dot(x).exp()).collect();
            let sum: f64 = e.iter().sum();
            for i in 0..size {
                want[(t * heads + head) * size + i] = (0..keys).map(|x| e[x] / sum * v[at(x) + i]).sum();
            }
        }
        close(&got[0].to_f64(), &want, 1e-5, &what);
    }
}

#[test]
fn draws_come_as_often_as_asked() {
    let draws = 2000;
    for to in [DType::I32, DType::I64] {
        let mut b = Builder::new(22, 3);
        let shares = [[0.1, 0.2, 0.3, 0.4], [0.7, 0.0, 0.25, 0.05]];
        let logs: Vec<f64> = shares.iter().flatten().map(|p: &f64| p.ln() + 3.0).collect();
        let x = b.input_of(HostTensor::from_f64(DType::F32, &[2, 4], &logs));
        let attributes =
            [("dtype", int(to.to_onnx() as i64)), ("sample_size", int(draws as i64)), ("seed", float(5.0))];
        let y = b.node("Multinomial", &[&x], &attributes);
        b.output(&y);
        let (got, _) = outputs(&b, "draws", 0.0);
        assert_eq!((got[0].shape(), got[0].dtype()), (&[2, draws][..], to));
        for (row, shares) in got[0].to_i64().chunks(draws).zip(shares) {
            for (class, share) in shares.into_iter().enumerate() {
                let found = row.iter().filter(|c| **c == class as i64).count() as f64 / draws as f64;
                assert!((found - share).abs() < 0.04, "class {class}: {found} instead of {share}");
            }
        }
    }
}
