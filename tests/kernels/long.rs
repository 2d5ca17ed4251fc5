//! Long lines whose walk is where second-level caches would hold memory up: of those that no workgroup holds the beginning is held, and lines that begin anywhere
//! in lines of memory are walked from where these begin. Emulated devices in strict mode against the operators one by one, in f64.

use crate::support::agree::{finish, outputs_on};
use crate::support::build::{Builder, float, int, ints};
use barewave::graph::fuse;
use barewave::tensor::{DType, HostTensor};
use barewave_isa::Target;

/// Those that hold lines in part, or walk them from where lines of memory begin, and one that does neither.
const TARGETS: [&str; 3] = ["gfx906", "gfx950", "gfx1030"];

/// Checks a model of one step, which a workgroup of so many takes each line of on gfx906.
fn check(b: &mut Builder, y: String, workgroup: u32, most: f64, what: &str) {
    finish(b, "", &[y]);
    let graph = fuse(&b.model, &Default::default()).unwrap();
    let compiled = barewave::compile::compile(&graph, Target::GFX906).unwrap();
    let plan = compiled.plan();
    assert_eq!((plan.launches.len(), plan.kernels[0].workgroup_size), (1, workgroup), "{what}");
    outputs_on(b, what, most, &TARGETS);
}

/// Lines of different magnitudes, each with a few elements that are larger, wherever it begins.
fn lines(b: &mut Builder, count: usize, length: usize) -> Vec<f64> {
    let value = |b: &mut Builder, i: usize| {
        let (line, at) = (i / length, i % length);
        b.below(64) as f64 / 16.0 + (line % 5) as f64 + if (at + 7919 * line) % length < 5 { 4.0 } else { 0.0 }
    };
    (0..count * length).map(|i| value(b, i)).collect()
}

/// Softmax of a line of -inf at a line's beginning and end, and of one with NaN, whose neighbours are what they are without it.
#[test]
fn softmax_of_long_lines() {
    let cases = [
        (DType::F32, 30, 50_257, 1024),
        (DType::F16, 30, 50_257, 1024),
        (DType::BF16, 40, 45_058, 1024),
        (DType::F16, 30, 66_000, 1024),
        (DType::F16, 9, 3001, 128),
        (DType::F16, 5, 20_001, 512),
    ];
    for (seed, (t, count, length, workgroup)) in cases.into_iter().enumerate() {
        let most = if t == DType::F32 { 2e-5 } else { 1e-2 };
        for op in ["Softmax", "LogSoftmax"].into_iter().take(if seed % 2 > 0 { 2 } else { 1 }) {
            let mut b = Builder::new(17, seed as u64);
            let mut x = lines(&mut b, count, length);
            x[..length / 2].fill(f64::NEG_INFINITY);
            x[2 * length - length / 3..2 * length].fill(f64::NEG_INFINITY);
            if op == "Softmax" {
                x[3 * length - 1] = f64::NAN;
            }
            let x = b.input_of(HostTensor::from_f64(t, &[count, length], &x));
            let y = b.node(op, &[&x], &[("axis", int(1))]);
            check(&mut b, y, workgroup, most, &format!("{op} of {t} {count}x{length}"));
        }
    }
}

/// Planes are normalised by their mean and deviation, whose scale and bias all of a plane shares.
#[test]
fn normalisations_of_long_lines() {
    for (t, count, side) in [(DType::F32, 40, 223), (DType::F16, 40, 223), (DType::F16, 37, 211), (DType::F16, 7, 101)]
    {
        let most = if t == DType::F32 { 2e-5 } else { 1e-2 };
        let mut b = Builder::new(17, side as u64);
        let x = lines(&mut b, count, side * side);
        let x = b.input_of(HostTensor::from_f64(t, &[1, count, side, side], &x));
        let scale: Vec<f64> = (0..count).map(|i| 1.0 + i as f64 / 8.0).collect();
        let [scale, bias] = [1.0, -2.0].map(|by| {
            let values: Vec<f64> = scale.iter().map(|x| by * x).collect();
            b.input_of(HostTensor::from_f64(t, &[count], &values))
        });
        let y = b.node("InstanceNormalization", &[&x, &scale, &bias], &[("epsilon", float(1e-3))]);
        let workgroup = if side > 110 { 1024 } else { 512 };
        check(&mut b, y, workgroup, most, &format!("planes of {t} {count}x{side}x{side}"));
    }
}

/// Bytes are turned in tiles of bytes: with their signs where something is computed of them.
#[test]
fn bytes_are_turned_as_bytes() {
    for t in [DType::I8, DType::U8] {
        for shape in [[1, 700, 1000], [2, 513, 132], [3, 129, 301]] {
            let mut b = Builder::new(17, 1);
            let low = if t == DType::I8 { 128.0 } else { 0.0 };
            let values: Vec<f64> = (0..shape.iter().product()).map(|_| b.below(256) as f64 - low).collect();
            let x = b.input_of(HostTensor::from_f64(t, &shape, &values));
            let turned = b.node("Transpose", &[&x], &[("perm", ints(&[0, 2, 1]))]);
            let five = b.constant(HostTensor::from_f64(t, &[], &[5.0]));
            let y = b.node("Max", &[&turned, &five], &[]);
            for (y, what) in [(turned, "turned"), (y, "and bounded")] {
                let mut b = b.clone();
                finish(&mut b, "", &[y]);
                outputs_on(&b, &format!("{t} {shape:?} {what}"), 0.0, &TARGETS);
            }
        }
    }
}
