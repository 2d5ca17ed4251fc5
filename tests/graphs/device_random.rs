//! Random models on the emulated devices, compared with their operators interpreted one by one.
//!
//! The same operators and networks as in `random`, which proves the interpreter right; here every kernel that they become runs
//! as machine code, on every target, in strict mode.

use crate::support::apart;
use crate::support::build::{Builder, int, ints};
use crate::support::device::{self, TARGETS};
use crate::support::drawn;
use crate::support::generate::{OPERATORS, network, operator};
use crate::support::{mixed, wider};
use barewave::graph::{self, Options};
use barewave::tensor::compare;

/// Runs a model on a target. The error says what is wrong.
fn check(b: &Builder, name: &str) -> Result<(), String> {
    let fused = graph::fuse(&b.model, &Options::default()).map_err(|e| e.to_string())?;
    let (got, _) = device::run(&fused, &b.inputs, name, true)?;
    let want = apart::outputs(&b.model, &b.inputs)?;
    for (i, (g, w)) in got.iter().zip(&want).enumerate() {
        let c = compare(g, w, 1e-4, 1e-4).map_err(|e| e.to_string())?;
        if !c.passes() {
            let kinds: Vec<&str> = fused.steps.iter().map(|s| s.kind.name()).collect();
            return Err(format!("output {i}: {c} ({})", kinds.join(" ")));
        }
    }
    Ok(())
}

/// Runs many models on all targets and reports all that fail.
fn check_all(models: impl Iterator<Item = (String, Builder)>) {
    check_some(models.flat_map(|(what, b)| TARGETS.map(|target| (target, what.clone(), b.clone()))));
}

/// Runs models on a target each.
fn check_some(models: impl Iterator<Item = (&'static str, String, Builder)>) {
    let mut failures = Vec::new();
    let mut count = 0;
    for (target, what, b) in models.filter(|(target, what, _)| drawn(&format!("{what} {target}"))) {
        count += 1;
        if let Err(e) = check(&b, target) {
            failures.push(format!("{target} {what}: {e}"));
        }
    }
    assert!(failures.is_empty(), "{} of {count} fail:\n{}", failures.len(), failures.join("\n"));
}

/// Each operator as often as there is time for, on targets in turn.
#[test]
fn operators() {
    const SEEDS: u64 = 200;
    check_some(OPERATORS.iter().flat_map(|op| {
        (0..SEEDS).zip(TARGETS.iter().cycle()).map(move |(seed, target)| {
            let mut b = Builder::new(17, seed);
            operator(&mut b, op);
            (*target, format!("{op} seed {seed}"), b)
        })
    }));
}

#[test]
fn results_that_reach_past_an_image_of_single_points() {
    let mut models = Vec::new();
    for (padded, channels) in [(true, 6), (false, 6), (true, 2), (false, 2)] {
        let mut b = Builder::new(17, 5);
        let x = b.input(&[2, 3, 4, 7]);
        let bias = b.weight(&[channels]);
        let y = if padded {
            let w = b.weight(&[channels, 3, 1, 1]);
            b.node("Conv", &[&x, &w, &bias], &[("pads", ints(&[0, 0, 1, 2]))])
        } else {
            let w = b.weight(&[3, channels, 2, 2]);
            b.node("ConvTranspose", &[&x, &w, &bias], &[("strides", ints(&[2, 2])), ("output_padding", ints(&[0, 1]))])
        };
        b.output(&y);
        models.push((format!("{channels} channels, {}", if padded { "padded" } else { "transposed" }), b));
    }
    check_all(models.into_iter());
}

#[test]
fn wider_operators() {
    check_all(wider::OPERATORS.iter().flat_map(|op| {
        (0..12).map(move |seed| {
            let mut b = Builder::new(18, seed);
            wider::operator(&mut b, op);
            (format!("{op} seed {seed}"), b)
        })
    }));
}

#[test]
fn phases_that_reach_past_the_image() {
    // Outputs 2, 5, ..., 26 have one tap each, and the last of them no input.
    let mut b = Builder::new(17, 3);
    let (x, w) = (b.input(&[2, 4, 8]), b.weight(&[4, 5, 4]));
    let attributes = [("group", int(2)), ("strides", ints(&[3])), ("dilations", ints(&[2]))];
    let y = b.node("ConvTranspose", &[&x, &w], &attributes);
    b.output(&y);
    check_all([("one tap".to_string(), b)].into_iter());
}

#[test]
fn networks() {
    check_all((0..150).map(|seed| (format!("network {seed}"), network(seed))));
}

/// Values of every type, moved and joined, before every family of operators.
#[test]
fn mixed_networks() {
    let run = |seed: u64, target: &str| -> Result<(), String> {
        let g = mixed::network(seed);
        let fused = graph::fuse(&g.b.model, &Options::default()).map_err(|e| e.to_string())?;
        let (got, _) = device::run(&fused, &g.b.inputs, target, true)?;
        g.agree(&got)
    };
    let mut failures = Vec::new();
    for (seed, target) in (0..3000).zip(TARGETS.iter().cycle()).filter(|(seed, _)| drawn(&format!("mixed {seed}"))) {
        if let Err(e) = run(seed, target) {
            failures.push(format!("{target} seed {seed}: {e}"));
        }
    }
    assert!(failures.is_empty(), "{} fail:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn shapes_larger_than_a_tile() {
    // Input, output channels, groups, kernel, stride, pad: sizes around and beyond tile borders.
    let convolutions = [
        ([1, 3, 61, 59], 64, 1, 7, 2, 3),
        ([2, 67, 14, 15], 129, 1, 1, 1, 0),
        ([1, 65, 17, 17], 65, 65, 3, 1, 1),
        ([1, 96, 9, 33], 200, 4, 3, 1, 1),
        ([3, 130, 7, 7], 31, 1, 3, 2, 1),
        ([1, 16, 1, 130], 70, 2, 1, 1, 0),
    ];
    let products = [[130, 77, 259], [1, 1000, 65], [257, 1, 3], [63, 129, 1], [128, 64, 128], [3, 515, 3]];
    let mut models = Vec::new();
    for (i, (shape, cout, groups, k, stride, pad)) in convolutions.into_iter().enumerate() {
        let mut b = Builder::new(17, i as u64);
        let x = b.input(&shape);
        let (w, bias) = (b.weight(&[cout, shape[1] / groups, k, k]), b.weight(&[cout]));
        let attributes = [("group", int(groups as i64)), ("strides", ints(&[stride; 2])), ("pads", ints(&[pad; 4]))];
        let y = b.node("Conv", &[&x, &w, &bias], &attributes);
        let y = b.node("Relu", &[&y], &[]);
        b.output(&y);
        models.push((format!("Conv {shape:?} to {cout} in {groups} groups, kernel {k}"), b));
    }
    for (i, [m, k, n]) in products.into_iter().enumerate() {
        for transposed in 0..4 {
            let mut b = Builder::new(17, i as u64);
            let (ta, tb) = (transposed & 1, transposed >> 1);
            let x = b.input(&if ta == 1 { [k, m] } else { [m, k] });
            let y = b.input(&if tb == 1 { [n, k] } else { [k, n] });
            let z = b.node("Gemm", &[&x, &y], &[("transA", int(ta as i64)), ("transB", int(tb as i64))]);
            b.output(&z);
            models.push((format!("Gemm {m}x{k}x{n} transposed {transposed:02b}"), b));
        }
    }
    for (i, shape) in [[2, 3, 1, 1000], [1, 1, 700, 65], [5, 130, 1, 1]].into_iter().enumerate() {
        for op in ["Softmax", "ReduceMean", "ReduceMax", "GlobalAveragePool"] {
            let mut b = Builder::new(17, i as u64);
            let x = b.input(&shape);
            let attributes = if op.starts_with("Reduce") { vec![("axes", ints(&[1, 3]))] } else { vec![] };
            let y = b.node(op, &[&x], &attributes);
            b.output(&y);
            models.push((format!("{op} {shape:?}"), b));
        }
    }
    check_all(models.into_iter());
}
