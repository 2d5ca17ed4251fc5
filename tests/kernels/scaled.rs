//! Products of blocks of 32 floats of 8 or 4 bits with scales of F8E8M0: codes and scales reach the matrix instructions of targets that have
//! such, and every target gives the same. Emulated devices in strict mode against sums in f64.

use crate::support::build::{Builder, int};
use crate::support::{device, drawn};
use barewave::graph::interpret::Interpreter;
use barewave::graph::{Options, fuse};
use barewave::kernels::{self, Candidate, Tuned, Tuning, candidates};
use barewave::runtime::EmulatedDevice;
use barewave::tensor::{DType, HostTensor};
use barewave::{Compiler, Session, compile};
use barewave_isa::Target;
use std::sync::Arc;

const TARGETS: [&str; 5] = ["gfx950", "gfx942", "gfx90a", "gfx1100", "gfx1201"];

/// How the left factor comes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Left {
    /// Codes and scales are inputs.
    Codes,
    /// A QuantizeLinear makes them of floats.
    Quantised,
}

/// A product.
#[derive(Clone, Copy, Debug)]
struct Case {
    /// Types of both factors' elements.
    types: [DType; 2],
    left: Left,
    batches: usize,
    extents: [usize; 3],
    /// The weights are [N,K].
    rowwise: bool,
}

/// Scales of F8E8M0 near 1.
fn powers(b: &mut Builder, dims: &[usize]) -> HostTensor {
    let codes: Vec<u8> = (0..dims.iter().product()).map(|_| 124 + b.below(7) as u8).collect();
    HostTensor::new(DType::F8E8M0, dims, codes).unwrap()
}

/// A matrix of codes and its scales, the depth along `axis`, and the elements they stand for.
fn blocks(b: &mut Builder, t: DType, dims: &[usize], axis: usize) -> (HostTensor, HostTensor, Vec<f64>) {
    let values: Vec<f64> = b.random(dims).to_f64().iter().map(|x| x * 5.0).collect();
    let codes = HostTensor::from_f64(t, dims, &values);
    let mut of_scales = dims.to_vec();
    of_scales[axis] /= 32;
    let scales = powers(b, &of_scales);
    let (q, s) = (codes.to_f64(), scales.to_f64());
    let inner: usize = dims[axis + 1..].iter().product();
    let scale = |i: usize| {
        s[i / (inner * dims[axis]) * inner * of_scales[axis] + i / inner % dims[axis] / 32 * inner + i % inner]
    };
    let elements = (0..q.len()).map(|i| q[i] * scale(i)).collect();
    (codes, scales, elements)
}

impl Case {
    fn model(&self, seed: u64, to: DType) -> (Builder, Vec<f64>) {
        let mut b = Builder::new(25, seed);
        let ([m, n, k], batches) = (self.extents, self.batches);
        let widen = |axis: usize| {
            [("axis", int(axis as i64)), ("block_size", int(32)), ("output_dtype", int(to.to_onnx().into()))]
        };
        let dims = if batches > 1 { vec![batches, m, k] } else { vec![m, k] };
        let axis = dims.len() - 1;
        let (codes, scales, mut left) = blocks(&mut b, self.types[0], &dims, axis);
        let x = match self.left {
            Left::Codes => {
                let (codes, scales) = (b.input_of(codes), b.input_of(scales));
                b.node("DequantizeLinear", &[&codes, &scales], &widen(axis))
            }
            Left::Quantised => {
                let x: Vec<f64> = b.random(&dims).to_f64();
                let x = HostTensor::from_f64(to, &dims, &x);
                let s = scales.to_f64();
                // What is quantised is a float divided by a power of two.
                let scaled: Vec<f64> = x.to_f64().iter().enumerate().map(|(i, x)| x / s[i / 32]).collect();
                let most = if self.types[0] == DType::F8E4M3 { 448.0 } else { 57344.0 };
                let scaled: Vec<f64> = scaled.iter().map(|x| x.clamp(-most, most)).collect();
                let q = HostTensor::from_f64(self.types[0], &dims, &scaled).to_f64();
                left = q.iter().enumerate().map(|(i, q)| q * s[i / 32]).collect();
                let (x, scales) = (b.input_of(x), b.input_of(scales));
                let narrow = [
                    ("axis", int(axis as i64)),
                    ("block_size", int(32)),
                    ("output_dtype", int(self.types[0].to_onnx().into())),
                ];
                let q = b.node("QuantizeLinear", &[&x, &scales], &narrow);
                b.node("DequantizeLinear", &[&q, &scales], &widen(axis))
            }
        };
        let (shape, axis) = if self.rowwise { ([n, k], 1) } else { ([k, n], 0) };
        let (codes, scales, right) = blocks(&mut b, self.types[1], &shape, axis);
        let (codes, scales) = (b.constant(codes), b.constant(scales));
        let w = b.node("DequantizeLinear", &[&codes, &scales], &widen(axis));
        let w = if self.rowwise { b.node("Transpose", &[&w], &[]) } else { w };
        let y = b.node("MatMul", &[&x, &w], &[]);
        let y = b.node("Relu", &[&y], &[]);
        b.output(&y);
        let at = |c: usize, l: usize| if self.rowwise { c * k + l } else { l * n + c };
        let sum = |i: usize| -> f64 { (0..k).map(|l| left[i / n * k + l] * right[at(i % n, l)]).sum() };
        let want = (0..batches * m * n).map(|i| sum(i).max(0.0)).collect();
        (b, want)
    }
}

#[test]
fn products_of_blocks_with_scales() {
    let (four, e4m3, e5m2) = (DType::F4E2M1, DType::F8E4M3, DType::F8E5M2);
    let case = |types, left, batches, extents, rowwise| Case { types, left, batches, extents, rowwise };
    let cases = [
        case([four, four], Left::Codes, 1, [64, 64, 256], true),
        case([four, four], Left::Codes, 1, [33, 70, 96], false),
        case([four, four], Left::Quantised, 1, [130, 47, 160], true),
        case([four, four], Left::Quantised, 3, [20, 96, 1024], false),
        case([e4m3, e4m3], Left::Codes, 1, [64, 128, 384], true),
        case([e4m3, e5m2], Left::Codes, 1, [40, 33, 64], false),
        case([e5m2, e4m3], Left::Quantised, 2, [65, 50, 224], true),
        case([e4m3, e4m3], Left::Quantised, 1, [300, 260, 32], false),
        // Few rows, and factors of different sizes, are other products.
        case([four, four], Left::Quantised, 1, [3, 64, 128], true),
        case([e4m3, four], Left::Codes, 1, [40, 64, 128], true),
    ];
    for (number, case) in cases.into_iter().enumerate() {
        for to in [DType::F32, DType::F16, DType::BF16] {
            let (b, want) = case.model(40 + number as u64, to);
            let mut model = b.model.clone();
            model.expand();
            let graph = fuse(&model, &Options::default()).unwrap_or_else(|e| panic!("{case:?}: {e}"));
            let size = want.iter().fold(1e-30, |m: f64, x| m.max(x.abs()));
            for target in TARGETS {
                let what = format!("{case:?} {to} {target}");
                if target != "gfx950" && !drawn(&what) {
                    continue;
                }
                let t = Target::parse(target).unwrap();
                let joined = kernels::joined(&graph, t, &Tuning::default());
                let scaled = joined.as_ref().is_some_and(|g| g.steps.iter().any(|s| s.kind.name() == "scaled_matmul"));
                let alike = case.types[0].bits() == case.types[1].bits() && case.extents[0] * case.batches > 8;
                assert_eq!(scaled, target == "gfx950" && alike, "{what}");
                if let Some(joined) = joined.filter(|_| scaled) {
                    let out = Interpreter::new(&joined).run(&joined, &b.inputs).unwrap();
                    let off = out[0].to_f64().iter().zip(&want).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
                    assert!(off <= 1e-2 * size, "{what}: interpreted, off by {off:e} of {size}");
                }
                let compiled = compile::compile(&graph, t).unwrap_or_else(|e| panic!("{what}: {e}"));
                let ([_, n, k], bits) = (case.extents, case.types[1].bits());
                let most = n * k * bits / 8 + n * k / 32 + 4096;
                assert!(compiled.weights_len() <= most, "{what}: {} bytes, not {most}", compiled.weights_len());
                let (out, _) = device::run(&graph, &b.inputs, target, true).unwrap_or_else(|e| panic!("{what}: {e}"));
                let error = match to {
                    DType::F32 => 2e-6,
                    DType::F16 => 1e-3,
                    _ => 8e-3,
                };
                let off = out[0].to_f64().iter().zip(&want).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
                assert!(off <= error * size, "{what}: off by {off:e} of {size}");
            }
        }
    }
}

/// Tiles of any size, also those whose scales lie far behind the operands in LDS, and shared depths.
#[test]
fn tiles_of_blocks_with_scales() {
    let four = DType::F4E2M1;
    let case = Case { types: [four; 2], left: Left::Codes, batches: 1, extents: [270, 300, 1056], rowwise: true };
    let (b, want) = case.model(90, DType::F32);
    let mut model = b.model.clone();
    model.expand();
    let graph = fuse(&model, &Options::default()).unwrap();
    let chip = Target::parse("gfx950").unwrap();
    let joined = kernels::joined(&graph, chip, &Tuning::default()).unwrap();
    let considered = joined.steps.iter().find_map(|s| candidates(&joined, s, chip, &Tuning::default())).unwrap();
    let some: Vec<&Candidate> = considered
        .candidates
        .iter()
        .enumerate()
        .filter(|(i, c)| i % 9 == 0 || c.tile[..2] == [256, 256])
        .map(|(_, c)| c)
        .collect();
    assert!(some.iter().any(|c| c.tile == [256, 256, 128]), "{some:?}");
    let size = want.iter().fold(1e-30, |m: f64, x| m.max(x.abs()));
    for c in some {
        let name = format!("{:?} in {}", c.tile, c.parts);
        if !(c.tile == [256, 256, 128] && c.parts == 1 || drawn(&name)) {
            continue;
        }
        let mut tuning = Tuning::default();
        tuning.insert(considered.product.clone(), Tuned::from(c));
        let compiler =
            Compiler::new(chip, barewave::Options { tuning: Arc::new(tuning), ..Default::default() }).without_levels();
        let compiled = compiler.compile_graph(&graph).unwrap_or_else(|e| panic!("{name}: {e}"));
        let device = Arc::new(EmulatedDevice::new(chip, true).unwrap());
        let mut session = Session::new(device, &compiled).unwrap();
        let (out, _) = session.run(&b.inputs).unwrap_or_else(|e| panic!("{name}: {e}"));
        let off = out[0].to_f64().iter().zip(&want).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
        assert!(off <= 4e-6 * size, "{name}: off by {off:e} of {size}");
    }
}
