//! 3x3 convolutions by Winograd's method, on emulated devices in strict mode: exact where arithmetic is, within the method's bound where
//! it rounds; each of its tiles, whole and shared depths.

use crate::support::build::{Builder, ints};
use barewave::Compiler;
use barewave::graph::fused::FusedGraph;
use barewave::graph::{Options, fuse};
use barewave::kernels::{Candidate, Tuned, Tuning, Way, When, candidates};
use barewave::runtime::{EmulatedDevice, Session};
use barewave::tensor::{DType, HostTensor};
use barewave_isa::Target;
use std::sync::Arc;

const TARGETS: [&str; 10] =
    ["gfx803", "gfx900", "gfx906", "gfx908", "gfx90a", "gfx942", "gfx1010", "gfx1030", "gfx1100", "gfx1201"];

/// A convolution: images, channels, rows and columns of the input; output channels; zeros above, left, below, right.
#[derive(Clone, Copy, Debug)]
struct Case {
    input: [usize; 4],
    channels: usize,
    pads: [usize; 4],
}

impl Case {
    fn random(b: &mut Builder) -> Case {
        let input = [b.between(1, 3), b.between(1, 70), b.between(3, 11), b.between(3, 11)];
        let pads = [0; 4].map(|_| b.below(3));
        Case { input, channels: b.between(5, 70), pads }
    }

    fn output(&self) -> [usize; 4] {
        let [n, _, h, w] = self.input;
        let [above, left, below, right] = self.pads;
        [n, self.channels, h + above + below - 2, w + left + right - 2]
    }

    /// The definition in f64.
    fn reference(&self, x: &[f64], weights: &[f64]) -> Vec<f64> {
        let ([_, c, h, w], [n, m, rows, columns]) = (self.input, self.output());
        let mut out = Vec::new();
        for (image, to) in (0..n).flat_map(|i| (0..m).map(move |to| (i, to))) {
            for (row, column) in (0..rows).flat_map(|r| (0..columns).map(move |c| (r, c))) {
                let mut sum = 0.0;
                for (from, tap) in (0..c).flat_map(|from| (0..9).map(move |tap| (from, tap))) {
                    let (y, z) =
                        ((row + tap / 3).wrapping_sub(self.pads[0]), (column + tap % 3).wrapping_sub(self.pads[1]));
                    if y < h && z < w {
                        sum += x[((image * c + from) * h + y) * w + z] * weights[(to * c + from) * 9 + tap];
                    }
                }
                out.push(sum);
            }
        }
        out
    }
}

/// What comes behind a convolution.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Behind {
    Nothing,
    Bias,
    /// Bias, another tensor, and an activation.
    All,
}

/// A model of a convolution, and what it gives by definition.
fn model(b: &mut Builder, case: Case, behind: Behind, whole: bool) -> Vec<f64> {
    // With whole numbers, and weights that halves of are whole too, nothing is rounded.
    let values = |b: &mut Builder, shape: &[usize], scale: f64| {
        let x = b.random(shape).to_f64().into_iter();
        let x: Vec<f64> = if whole { x.map(|x| (4.0 * x).round() * scale).collect() } else { x.collect() };
        HostTensor::from_f64(DType::F32, shape, &x)
    };
    let (x, w) = (values(b, &case.input, 1.0), values(b, &[case.channels, case.input[1], 3, 3], 4.0));
    let (bias, other) = (values(b, &[case.channels], 1.0), values(b, &case.output(), 1.0));
    let mut want = case.reference(&x.to_f64(), &w.to_f64());
    let (x, w) = (b.input_of(x), b.constant(w));
    let pads = [("pads", ints(&case.pads))];
    let y = if behind == Behind::Nothing {
        b.node("Conv", &[&x, &w], &pads)
    } else {
        let positions: usize = case.output()[2..].iter().product();
        let bias_of = bias.to_f64();
        want.iter_mut().enumerate().for_each(|(i, y)| *y += bias_of[i / positions % case.channels]);
        let bias = b.constant(bias);
        b.node("Conv", &[&x, &w, &bias], &pads)
    };
    let y = if behind == Behind::All {
        want.iter_mut().zip(other.to_f64()).for_each(|(y, z)| *y = (*y + z).max(0.0));
        let other = b.input_of(other);
        let y = b.node("Add", &[&y, &other], &[]);
        b.node("Relu", &[&y], &[])
    } else {
        y
    };
    b.output(&y);
    want
}

/// Ways to compute the first step by the method.
fn ways(graph: &FusedGraph, target: Target) -> (Tuning, Vec<Candidate>) {
    let mut all = Tuning::default();
    all.set_winograd(When::Always);
    let considered = candidates(graph, &graph.steps[0], target, &all).unwrap();
    let mut tuning = Tuning::default();
    let of_method: Vec<Candidate> = considered.candidates.into_iter().filter(|c| c.way == Way::Winograd).collect();
    of_method.first().into_iter().for_each(|c| tuning.insert(considered.product.clone(), Tuned::from(c)));
    (tuning, of_method)
}

fn run(graph: &FusedGraph, inputs: &[HostTensor], target: Target, tuning: Tuning) -> (Vec<f64>, [u32; 3]) {
    let options = barewave::Options { tuning: Arc::new(tuning), ..Default::default() };
    let compiled = Compiler::new(target, options).without_levels().compile_graph(graph).unwrap();
    assert_eq!(compiled.plan().launches.len(), 1);
    let device = Arc::new(EmulatedDevice::new(target, true).unwrap());
    let (out, _) = Session::new(device, &compiled).unwrap().run(inputs).unwrap();
    (out[0].to_f64(), compiled.plan().launches[0].grid)
}

#[test]
fn whole_numbers_are_exact_by_every_tile() {
    let mut rng = Builder::new(17, 3);
    for round in 0..9 {
        let case = Case::random(&mut rng);
        let behind = [Behind::Nothing, Behind::Bias, Behind::All][round % 3];
        let mut b = Builder::new(17, round as u64);
        let want = model(&mut b, case, behind, true);
        let graph = fuse(&b.model, &Options::default()).unwrap();
        for (i, name) in TARGETS.into_iter().enumerate() {
            let target = Target::parse(name).unwrap();
            let (_, ways) = ways(&graph, target);
            let tiles = ways.iter().map(|c| c.tile).collect::<std::collections::BTreeSet<_>>();
            assert!(tiles.len() >= 3, "{name}: {tiles:?}");
            let Case { input: [n, ..], channels, .. } = case;
            let [_, _, rows, columns] = case.output();
            let blocks = n * rows.div_ceil(2) * columns.div_ceil(2);
            // Another way for each target and round, and more parts than are worth it.
            let mut way = Tuned::from(&ways[(i + round) % ways.len()]);
            let depth = case.input[1].div_ceil(way.tile[2] as usize) as u32;
            way.parts = if depth >= 4 && round % 2 == 0 { 2 } else { way.parts };
            let mut tuning = Tuning::default();
            tuning.insert(candidates(&graph, &graph.steps[0], target, &tuning).unwrap().product, way);
            let (got, grid) = run(&graph, &b.inputs, target, tuning);
            let tiles = [blocks, channels].map(|e| e as u32);
            assert_eq!(grid, [tiles[0].div_ceil(way.tile[1]), tiles[1].div_ceil(way.tile[0]), way.parts]);
            for (i, (x, y)) in got.iter().zip(&want).enumerate() {
                assert_eq!(x, y, "{name} {case:?} {behind:?} {way:?}: element {i}");
            }
        }
    }
}

#[test]
fn errors_are_within_the_bound() {
    for (c, channels, side) in [(1, 7, 6), (3, 32, 9), (64, 33, 8), (300, 40, 7)] {
        let case = Case { input: [2, c, side, side], channels, pads: [1; 4] };
        let mut b = Builder::new(17, c as u64);
        let want = model(&mut b, case, Behind::Nothing, false);
        let graph = fuse(&b.model, &Options::default()).unwrap();
        // Factors are at most 1; sums of parts are a few more additions.
        let bound = (c + 8) as f64 * 64.0 * c as f64 * 2f64.powi(-24);
        for name in TARGETS {
            let target = Target::parse(name).unwrap();
            let (got, _) = run(&graph, &b.inputs, target, ways(&graph, target).0);
            for (i, (x, y)) in got.iter().zip(&want).enumerate() {
                assert!(
                    (x - y).abs() <= bound,
                    "{name} {case:?}: element {i} is {x:e} instead of {y:e}, not within {bound:e}"
                );
            }
        }
    }
}

#[test]
fn it_is_refused_where_it_is_not_wanted_or_does_not_apply() {
    let target = Target::parse("gfx906").unwrap();
    let case = Case { input: [1, 64, 56, 56], channels: 64, pads: [1; 4] };
    let mut b = Builder::new(17, 1);
    model(&mut b, case, Behind::Bias, false);
    let graph = fuse(&b.model, &Options::default()).unwrap();
    let chosen = |graph: &FusedGraph, tuning: &Tuning| {
        let considered = candidates(graph, &graph.steps[0], target, tuning).unwrap();
        (considered.candidates[0].way == Way::Winograd, considered.candidates.iter().any(|c| c.way == Way::Winograd))
    };
    assert_eq!(chosen(&graph, &Tuning::default()), (true, true));
    let never = Tuning::parse("winograd,never").unwrap();
    assert_eq!(chosen(&graph, &never), (false, false));
    // Weights that are computed, steps, other types, groups.
    let other = |t: DType, constant: bool, attributes: &[(&str, barewave::onnx::Attribute)], weights: [usize; 4]| {
        let mut b = Builder::new(17, 1);
        let x = b.random(&[1, 64, 20, 20]).to_f64();
        let x = b.input_of(HostTensor::from_f64(t, &[1, 64, 20, 20], &x));
        let w = b.random(&weights).to_f64();
        let w = HostTensor::from_f64(t, &weights, &w);
        let w = if constant { b.constant(w) } else { b.input_of(w) };
        let y = b.node("Conv", &[&x, &w], attributes);
        b.output(&y);
        let graph = fuse(&b.model, &Options::default()).unwrap();
        chosen(&graph, &Tuning::default()).1
    };
    assert!(other(DType::F32, true, &[], [64, 64, 3, 3]));
    assert!(!other(DType::F32, false, &[], [64, 64, 3, 3]));
    assert!(!other(DType::F16, true, &[], [64, 64, 3, 3]));
    assert!(!other(DType::F64, true, &[], [64, 64, 3, 3]));
    assert!(!other(DType::F32, true, &[("strides", ints(&[2, 2]))], [64, 64, 3, 3]));
    assert!(!other(DType::F32, true, &[("dilations", ints(&[2, 2]))], [64, 64, 3, 3]));
    assert!(!other(DType::F32, true, &[("group", barewave::onnx::Attribute::Int(2))], [64, 32, 3, 3]));
    assert!(!other(DType::F32, true, &[], [64, 64, 5, 5]));
}

/// Workgroups that share a depth count each other where their tiles were: a compute unit that has many has room for as many of them as of others.
#[test]
fn shared_depths_take_no_room() {
    let case = Case { input: [1, 64, 200, 200], channels: 32, pads: [1; 4] };
    let mut b = Builder::new(17, 1);
    model(&mut b, case, Behind::Nothing, false);
    let graph = fuse(&b.model, &Options::default()).unwrap();
    for (name, tile) in [("gfx906", [16, 16, 8]), ("gfx1100", [32, 32, 4]), ("gfx1201", [16, 16, 8])] {
        let target = Target::parse(name).unwrap();
        let room = |parts: u32| {
            let way = Tuned::from(&Candidate { tile, parts, clocks: 0.0, way: Way::Winograd });
            let mut tuning = Tuning::default();
            tuning.insert(candidates(&graph, &graph.steps[0], target, &tuning).unwrap().product, way);
            let options = barewave::Options { tuning: Arc::new(tuning), ..Default::default() };
            Compiler::new(target, options).without_levels().compile_graph(&graph).unwrap().stats()[0].occupancy
        };
        assert_eq!(room(2), room(1), "{name} {tile:?}");
    }
}
