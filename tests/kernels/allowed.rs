//! Products that lose something, for speed, where that is allowed: emulated devices in strict mode against sums in f64.
//!
//! Of f32 by matrix instructions that read 10 bits of its mantissa. Of numbers of at most 11 bits nothing is lost, so their sums are exact. Of others an
//! instruction reads each factor with an error of at most `2^-10` of it, so of a product `2.1 * 2^-10`.
//!
//! Of f16 with sums of f16, in runs of at most 32 along the depth. Of small whole numbers these are exact. Of others every sum of a run is rounded
//! with each product: by `2^-11` of the magnitude of what is in it, or, of denormals, by `2^-25`.
//!
//! The bound of an error is that of all products, that of a sum in f32, and that of the result's type.

use crate::support::build::{Builder, int, ints};
use crate::support::drawn;
use barewave::graph::fused::FusedGraph;
use barewave::graph::{Options, fuse};
use barewave::kernels::{Tuned, Tuning, candidates};
use barewave::runtime::EmulatedDevice;
use barewave::tensor::{DType, HostTensor};
use barewave::{Compiler, Session};
use barewave_isa::Target;
use std::sync::Arc;

/// What is allowed of a type, and a target that is quicker so.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Allowed {
    Xf32,
    F16Sums,
}

/// Most products of a sum in f16.
const RUN: usize = 32;

impl Allowed {
    fn target(self) -> &'static str {
        match self {
            Allowed::Xf32 => "gfx942",
            Allowed::F16Sums => "gfx900",
        }
    }

    fn dtype(self) -> DType {
        match self {
            Allowed::Xf32 => DType::F32,
            Allowed::F16Sums => DType::F16,
        }
    }

    fn tuning(self) -> Tuning {
        let line = match self {
            Allowed::Xf32 => "xf32,allowed",
            Allowed::F16Sums => "f16-sums,allowed",
        };
        Tuning::parse(line).unwrap()
    }

    /// The largest of the whole numbers of which nothing is lost.
    fn largest(self) -> f64 {
        match self {
            Allowed::Xf32 => 50.0,
            // Products of a run are at most 288 together.
            Allowed::F16Sums => 3.0,
        }
    }

    /// What is lost at most of so many products that are `size` together.
    fn lost(self, depth: usize, size: f64) -> f64 {
        match self {
            Allowed::Xf32 => 2.1 * 2f64.powi(-10) * size,
            Allowed::F16Sums => RUN as f64 * (1.02 * 2f64.powi(-11) * size + depth as f64 * 2f64.powi(-25)),
        }
    }

    /// By what a result is rounded.
    fn rounded(self, want: f64) -> f64 {
        match self {
            Allowed::Xf32 => 0.0,
            Allowed::F16Sums => 1.001 * 2f64.powi(-11) * want.abs() + 2f64.powi(-25),
        }
    }
}

fn run(graph: &FusedGraph, b: &Builder, target: &str, tuning: Tuning, name: &str) -> Vec<f64> {
    let chip = Target::parse(target).unwrap();
    let compiler =
        Compiler::new(chip, barewave::Options { tuning: Arc::new(tuning), ..Default::default() }).without_levels();
    let compiled = compiler.compile_graph(graph).unwrap_or_else(|e| panic!("{name}: {e}"));
    let device = Arc::new(EmulatedDevice::new(chip, true).unwrap());
    let mut session = Session::new(device, &compiled).unwrap_or_else(|e| panic!("{name}: {e}"));
    session.run(&b.inputs).unwrap_or_else(|e| panic!("{name}: {e}")).0[0].to_f64()
}

/// Numbers of few bits, or of any.
fn values(b: &mut Builder, allowed: Allowed, shape: &[usize], whole: bool) -> HostTensor {
    let mut values = b.random(shape).to_f64();
    if whole {
        values.iter_mut().for_each(|v| *v = (*v * allowed.largest()).round());
    }
    HostTensor::from_f64(allowed.dtype(), shape, &values)
}

/// What is expected of each element, and the sum of its products' magnitudes.
struct Expected {
    allowed: Allowed,
    sums: Vec<[f64; 2]>,
    depth: usize,
    whole: bool,
}

impl Expected {
    /// Says whether something was lost.
    fn check(&self, got: &[f64], name: &str) -> bool {
        assert_eq!(got.len(), self.sums.len(), "{name}");
        let mut inexact = false;
        for (i, (got, [want, size])) in got.iter().zip(&self.sums).enumerate() {
            let of_sum = if self.whole { 0.0 } else { (self.depth + 3) as f64 * 2f64.powi(-23) * size };
            let of_sum = of_sum + self.allowed.rounded(want.abs() + of_sum);
            let lost = if self.whole { 0.0 } else { self.allowed.lost(self.depth, *size) };
            let lost = lost + self.allowed.rounded(lost);
            let error = (got - want).abs();
            assert!(error <= of_sum + lost, "{name}: {got} instead of {want} at {i}");
            inexact |= error > of_sum;
        }
        inexact
    }
}

/// A product of batches, rows, columns and a depth, and what comes of it.
fn product(
    allowed: Allowed,
    [batches, m, n, k]: [usize; 4],
    turned: [bool; 2],
    whole: bool,
    seed: u64,
) -> (Builder, Expected) {
    let mut b = Builder::new(17, seed);
    let shape = |rows, cols, turned: bool| if turned { [batches, cols, rows] } else { [batches, rows, cols] };
    let [x, y] = [shape(m, k, turned[0]), shape(k, n, turned[1])].map(|s| values(&mut b, allowed, &s, whole));
    let names = [b.input_of(x.clone()), b.input_of(y.clone())];
    let [ta, tb] = turned.map(|t| int(t.into()));
    let out = b.node("FusedMatMul", &[&names[0], &names[1]], &[("transA", ta), ("transB", tb)]);
    b.model.graph.nodes.last_mut().unwrap().domain = "com.microsoft".into();
    b.output(&out);
    let (x, y) = (x.to_f64(), y.to_f64());
    let sums = (0..batches * m * n).map(|i| {
        let (z, row, col) = (i / (m * n), i / n % m, i % n);
        let a = |l: usize| x[z * m * k + if turned[0] { l * m + row } else { row * k + l }];
        let b = |l: usize| y[z * k * n + if turned[1] { col * k + l } else { l * n + col }];
        let products = (0..k).map(|l| a(l) * b(l));
        [products.clone().sum(), products.map(f64::abs).sum()]
    });
    (b, Expected { allowed, sums: sums.collect(), depth: k, whole })
}

/// A convolution with a bias, by steps of `stride`.
fn convolution(
    allowed: Allowed,
    [n, c, h, w]: [usize; 4],
    [m, side]: [usize; 2],
    stride: usize,
    whole: bool,
) -> (Builder, Expected) {
    let mut b = Builder::new(17, (m + side + stride) as u64);
    let pad = side / 2;
    let [x, y] = [[n, c, h, w], [m, c, side, side]].map(|s| values(&mut b, allowed, &s, whole));
    let bias = values(&mut b, allowed, &[m], whole);
    let names = [b.input_of(x.clone()), b.constant(y.clone()), b.constant(bias.clone())];
    let attributes = [("pads", ints(&[pad; 4])), ("strides", ints(&[stride; 2]))];
    let out = b.node("Conv", &[&names[0], &names[1], &names[2]], &attributes);
    b.output(&out);
    let (x, y, bias) = (x.to_f64(), y.to_f64(), bias.to_f64());
    let [rows, columns] = [h, w].map(|d| (d + 2 * pad - side) / stride + 1);
    let sums = (0..n * m * rows * columns).map(|i| {
        let (image, channel) = (i / (m * rows * columns), i / (rows * columns) % m);
        let (row, column) = (i / columns % rows, i % columns);
        let (mut sum, mut size) = (bias[channel], bias[channel].abs());
        for l in 0..c * side * side {
            let (from, r, s) = (l / (side * side), l / side % side, l % side);
            let (r, s) = (row * stride + r, column * stride + s);
            if (pad..h + pad).contains(&r) && (pad..w + pad).contains(&s) {
                let p = x[((image * c + from) * h + r - pad) * w + s - pad] * y[channel * c * side * side + l];
                (sum, size) = (sum + p, size + p.abs());
            }
        }
        [sum, size]
    });
    (b, Expected { allowed, sums: sums.collect(), depth: c * side * side, whole })
}

/// Runs a model's first step by some of the tiles that there are for it: how many of these lose something.
fn by_some(b: &Builder, expected: &Expected, name: &str) -> usize {
    let graph = fuse(&b.model, &Options::default()).unwrap();
    let allowed = expected.allowed;
    let chip = Target::parse(allowed.target()).unwrap();
    let considered = candidates(&graph, &graph.steps[0], chip, &allowed.tuning()).unwrap();
    let mut inexact = 0;
    for (i, way) in considered.candidates.iter().enumerate() {
        let name = format!("{name} by {:?} in {}", way.tile, way.parts);
        if i == 0 || drawn(&format!("{name} {i}")) && i % 7 == 0 {
            let mut tuning = allowed.tuning();
            tuning.insert(considered.product.clone(), Tuned::from(way));
            inexact += usize::from(expected.check(&run(&graph, b, allowed.target(), tuning, &name), &name));
        }
    }
    inexact
}

/// Products of every layout, by some tiles each: how many of these lose something.
fn products_of_every_layout(allowed: Allowed, all: &[[usize; 4]]) -> usize {
    let layouts = [[false, false], [false, true], [true, false], [true, true]];
    let mut inexact = 0;
    for (i, extents) in all.iter().enumerate() {
        for (j, turned) in layouts.into_iter().enumerate() {
            for whole in [true, false] {
                let (b, expected) = product(allowed, *extents, turned, whole, (i * 4 + j) as u64);
                inexact += by_some(&b, &expected, &format!("{extents:?} {turned:?} {whole}"));
            }
        }
    }
    inexact
}

#[test]
fn products_of_xf32() {
    let all = [[1, 64, 64, 64], [2, 37, 92, 130], [1, 128, 136, 257], [3, 16, 16, 1024], [1, 300, 260, 96]];
    let inexact = products_of_every_layout(Allowed::Xf32, &all);
    assert!(inexact > 10, "{inexact} of them read 10 bits");
}

#[test]
fn products_with_sums_of_f16() {
    let all = [[1, 128, 136, 257], [3, 19, 17, 1001], [1, 300, 260, 96], [8, 130, 64, 33]];
    let inexact = products_of_every_layout(Allowed::F16Sums, &all);
    assert!(inexact > 10, "{inexact} of them sum in f16");
}

/// Convolutions, by some tiles each: how many of these lose something.
fn convolutions(allowed: Allowed) -> usize {
    let mut inexact = 0;
    for (input, [channels, side], stride) in [
        ([1, 32, 14, 14], [64, 3], 1),
        ([2, 64, 9, 7], [48, 1], 1),
        ([1, 3, 31, 29], [64, 7], 2),
        ([2, 65, 12, 12], [37, 3], 2),
    ] {
        for whole in [true, false] {
            let (b, expected) = convolution(allowed, input, [channels, side], stride, whole);
            inexact += by_some(&b, &expected, &format!("{input:?} {channels} {side} {stride} {whole}"));
        }
    }
    inexact
}

#[test]
fn convolutions_of_xf32() {
    let inexact = convolutions(Allowed::Xf32);
    assert!(inexact > 1, "{inexact} of them read 10 bits");
}

#[test]
fn convolutions_with_sums_of_f16() {
    let inexact = convolutions(Allowed::F16Sums);
    assert!(inexact > 1, "{inexact} of them sum in f16");
}

#[test]
fn nothing_is_lost_where_it_is_not_allowed_or_no_quicker() {
    let every = || Tuning::parse("xf32,allowed\nf16-sums,allowed").unwrap();
    for (allowed, others) in [
        (Allowed::Xf32, &["gfx90a", "gfx950", "gfx1100"][..]),
        (Allowed::F16Sums, &["gfx803", "gfx906", "gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"]),
    ] {
        let (b, expected) = product(allowed, [1, 512, 512, 128], [false, true], false, 1);
        let graph = fuse(&b.model, &Options::default()).unwrap();
        for (tuning, lost) in [(allowed.tuning(), true), (every(), true), (Tuning::default(), false)] {
            let got = run(&graph, &b, allowed.target(), tuning, allowed.target());
            assert_eq!(expected.check(&got, allowed.target()), lost, "{allowed:?}");
        }
        // Elsewhere kernels are the same with and without.
        for target in others {
            let code = |tuning: Tuning| {
                let options = barewave::Options { tuning: Arc::new(tuning), ..Default::default() };
                let compiler = Compiler::new(Target::parse(target).unwrap(), options).without_levels();
                compiler.compile_graph(&graph).unwrap().code().clone()
            };
            assert!(code(every()) == code(Tuning::default()), "{target}");
        }
    }
}
