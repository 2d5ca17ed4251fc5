//! Products of constants that have at most two elements other than zero in every four along the depth: every type, side and layout, on
//! emulated devices in strict mode against sums in f64.

use crate::support::build::{Builder, int, ints};
use crate::support::drawn;
use barewave::graph::{Options, fuse};
use barewave::kernels::{Tuning, When};
use barewave::runtime::EmulatedDevice;
use barewave::tensor::{DType, HostTensor};
use barewave::{Compiled, Compiler, Session};
use barewave_isa::Target;
use std::sync::Arc;

/// A product: batches, rows, columns, depth.
#[derive(Clone, Copy, Debug)]
struct Case {
    extents: [usize; 4],
    /// Whether each factor is given transposed.
    turned: [bool; 2],
    /// Types of the sparse factor and of the other one.
    types: [DType; 2],
    /// Which factor is sparse.
    side: usize,
}

/// Values of a sparse matrix of `rows` by `cols`, of which dimension `deep` is the depth: of each group of four none to two are left.
fn sparse(b: &mut Builder, [rows, cols]: [usize; 2], deep: usize, value: impl Fn(f64) -> f64) -> Vec<f64> {
    let mut values: Vec<f64> = b.random(&[rows, cols]).to_f64().into_iter().map(value).collect();
    let (lines, depth) = if deep == 1 { (rows, cols) } else { (cols, rows) };
    for line in 0..lines {
        for group in 0..depth.div_ceil(4) {
            let (one, two) = (b.below(4), b.below(4));
            for k in (4 * group..depth.min(4 * group + 4)).filter(|k| k % 4 != one && k % 4 != two) {
                let at = if deep == 1 { line * cols + k } else { k * cols + line };
                // Masks leave zeros of either sign.
                values[at] = if k % 2 == 0 { 0.0 } else { values[at] * 0.0 };
            }
        }
    }
    values
}

impl Case {
    /// The model, its inputs, and the values of both factors.
    fn model(&self, seed: u64) -> (Builder, Vec<Vec<f64>>) {
        let [batches, m, n, k] = self.extents;
        let mut b = Builder::new(21, seed);
        let bytes = self.types[0] == DType::I8;
        let value = |v: f64| if bytes { (v * 90.0).round().clamp(-128.0, 127.0) } else { v };
        let (mut names, mut values) = (Vec::new(), Vec::new());
        for (side, turned) in self.turned.into_iter().enumerate() {
            let [rows, cols] = if side == 0 { [m, k] } else { [k, n] };
            let [rows, cols] = if turned { [cols, rows] } else { [rows, cols] };
            let dtype = self.types[usize::from(side != self.side)];
            let tensor = if side == self.side {
                let deep = usize::from((side == 0) != turned);
                HostTensor::from_f64(dtype, &[rows, cols], &sparse(&mut b, [rows, cols], deep, value))
            } else {
                let all: Vec<f64> = b.random(&[batches, rows, cols]).to_f64().into_iter().map(value).collect();
                HostTensor::from_f64(dtype, &[batches, rows, cols], &all)
            };
            values.push(tensor.to_f64());
            names.push(if side == self.side { b.constant(tensor) } else { b.input_of(tensor) });
        }
        let small = self.types[0].is_small_float();
        let float = DType::F32.to_onnx();
        let names: Vec<String> = (0..2)
            .map(|side| match () {
                () if small => b.node("Cast", &[&names[side]], &[("to", int(float.into()))]),
                () if bytes && self.turned[side] => {
                    let perm = if side == self.side { ints(&[1, 0]) } else { ints(&[0, 2, 1]) };
                    b.node("Transpose", &[&names[side]], &[("perm", perm)])
                }
                () => names[side].clone(),
            })
            .collect();
        let both: Vec<&str> = names.iter().map(String::as_str).collect();
        let out = if bytes {
            b.node("MatMulInteger", &both, &[])
        } else {
            let [ta, tb] = self.turned.map(|t| int(t.into()));
            let out = b.node("FusedMatMul", &both, &[("transA", ta), ("transB", tb)]);
            b.model.graph.nodes.last_mut().unwrap().domain = "com.microsoft".into();
            b.node("Relu", &[&out], &[])
        };
        b.output(&out);
        (b, values)
    }

    fn compiled(&self, b: &Builder, target: &str, when: When) -> Compiled {
        let graph = fuse(&b.model, &Options::default()).unwrap();
        let mut tuning = Tuning::default();
        tuning.set_sparse(when);
        let options = barewave::Options { tuning: Arc::new(tuning), ..Default::default() };
        let compiled = Compiler::new(Target::parse(target).unwrap(), options).without_levels().compile_graph(&graph);
        compiled.unwrap_or_else(|e| panic!("{target} {self:?}: {e}"))
    }

    /// Runs it as a sparse product and compares the result.
    fn check(&self, target: &str, seed: u64) {
        let [batches, m, n, k] = self.extents;
        let what = format!("{target} {self:?}");
        let (b, values) = self.model(seed);
        let compiled = self.compiled(&b, target, When::Always);
        assert_eq!(sparse_launches(&compiled), 1, "{what}");
        let bytes = self.types[0] == DType::I8;
        let target = Target::parse(target).unwrap();
        let device = Arc::new(EmulatedDevice::new(target, true).unwrap());
        let mut session = Session::new(device, &compiled).unwrap_or_else(|e| panic!("{what}: {e}"));
        let (got, _) = session.run(&b.inputs).unwrap_or_else(|e| panic!("{what}: {e}"));
        let got = got[0].to_f64();
        assert_eq!(got.len(), batches * m * n);
        let (u, v) = match self.types[0] {
            DType::F16 => (2f64.powi(-11), 2f64.powi(-23)),
            DType::BF16 => (2f64.powi(-8), 2f64.powi(-23)),
            DType::I8 => (0.0, 0.0),
            _ => (2f64.powi(-24), 2f64.powi(-23)),
        };
        for (i, got) in got.iter().enumerate() {
            let (z, row, col) = (i / (m * n), i / n % m, i % n);
            let z = [0, 1].map(|side| if side == self.side { 0 } else { z });
            let a = |l: usize| values[0][z[0] * m * k + if self.turned[0] { l * m + row } else { row * k + l }];
            let b = |l: usize| values[1][z[1] * k * n + if self.turned[1] { col * k + l } else { l * n + col }];
            let want: f64 = (0..k).map(|l| a(l) * b(l)).sum();
            let want = if bytes { want } else { want.max(0.0) };
            let size: f64 = (0..k).map(|l| (a(l) * b(l)).abs()).sum();
            let most = u * want.abs() + (k + 2) as f64 * v * size + 1e-30;
            assert!((got - want).abs() <= most, "{what}: {got} instead of {want} at {i}");
        }
    }
}

/// Launches that multiply a sparse factor.
fn sparse_launches(compiled: &Compiled) -> usize {
    compiled.plan().launches.iter().filter(|l| l.kernel.contains("sparse")).count()
}

const TARGETS: [&str; 4] = ["gfx942", "gfx950", "gfx1200", "gfx1201"];

#[test]
fn every_type_side_and_layout_of_odd_extents() {
    let mut random = Builder::new(21, 7);
    for (i, target) in TARGETS.into_iter().enumerate() {
        let fnuz = Target::parse(target).unwrap().info().fnuz;
        let [e4, e5] = if fnuz { [DType::F8E4M3Z, DType::F8E5M2Z] } else { [DType::F8E4M3, DType::F8E5M2] };
        let types = [[DType::F16; 2], [DType::BF16; 2], [DType::I8; 2], [e4; 2], [e5; 2], [e4, e5], [e5, e4]];
        for (j, types) in types.into_iter().enumerate() {
            for (l, turned) in [[false, false], [false, true], [true, false], [true, true]].into_iter().enumerate() {
                for side in 0..2 {
                    let mut extent = |most: usize| match random.coin() {
                        true => random.between(1, most),
                        false => random.below(most / 16) * 16 + 16,
                    };
                    let extents = [1 + (i + j + l) % 2, 4 + extent(150), 4 + extent(150), 24 + extent(400)];
                    let case = Case { extents, turned, types, side };
                    if drawn(&format!("{target} {case:?}")) {
                        case.check(target, (i + j) as u64 + 1);
                    }
                }
            }
        }
    }
}

/// Parts of a depth that several workgroups sum, and tiles in equal shares.
#[test]
fn depths_are_shared() {
    for (target, extents) in [
        ("gfx942", [1, 16, 48, 8192]),
        ("gfx942", [1, 300, 300, 4100]),
        ("gfx950", [1, 16, 64, 8192]),
        ("gfx1201", [1, 40, 33, 4096]),
        ("gfx1200", [1, 16, 64, 2100]),
    ] {
        for (types, side) in [([DType::F16; 2], 1), ([DType::I8; 2], 0)] {
            let case = Case { extents, turned: [false, true], types, side };
            case.check(target, 5);
        }
    }
}

/// Convolutions of single points, with what comes behind them.
#[test]
fn convolutions_of_points() {
    for (i, (target, [images, channels, outputs, height, width])) in
        [("gfx942", [1, 64, 96, 14, 14]), ("gfx950", [2, 70, 33, 9, 11]), ("gfx1201", [3, 48, 64, 7, 7])]
            .into_iter()
            .enumerate()
    {
        let mut b = Builder::new(21, i as u64);
        let x = HostTensor::from_f64(
            DType::F16,
            &[images, channels, height, width],
            &b.random(&[images, channels, height, width]).to_f64(),
        );
        let w = sparse(&mut b, [outputs, channels], 1, |v| v);
        let w = HostTensor::from_f64(DType::F16, &[outputs, channels, 1, 1], &w);
        let bias = HostTensor::from_f64(DType::F16, &[outputs], &b.random(&[outputs]).to_f64());
        let names = [b.input_of(x.clone()), b.constant(w.clone()), b.constant(bias.clone())];
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let y = b.node("Conv", &names, &[]);
        let y = b.node("Relu", &[&y], &[]);
        b.output(&y);
        let case = Case { extents: [1; 4], turned: [false; 2], types: [DType::F16; 2], side: 0 };
        let compiled = case.compiled(&b, target, When::Always);
        assert_eq!(sparse_launches(&compiled), 1, "{target}");
        let device = Arc::new(EmulatedDevice::new(Target::parse(target).unwrap(), true).unwrap());
        let (got, _) = Session::new(device, &compiled).unwrap().run(&b.inputs).unwrap();
        let (x, w, bias, points) = (x.to_f64(), w.to_f64(), bias.to_f64(), height * width);
        for (i, got) in got[0].to_f64().into_iter().enumerate() {
            let (image, output, point) = (i / (outputs * points), i / points % outputs, i % points);
            let terms = (0..channels).map(|c| x[(image * channels + c) * points + point] * w[output * channels + c]);
            let (sum, size) = terms.fold((bias[output], 1.0), |(sum, size), t| (sum + t, size + t.abs()));
            let want = sum.max(0.0);
            assert!((got - want).abs() <= want / 2048.0 + size * 1e-5, "{target}: {got} instead of {want} at {i}");
        }
    }
}

/// Where nothing says so they are multiplied as sparse ones where that takes less time, and nowhere that has no instructions for it.
#[test]
fn they_are_where_it_is_quicker() {
    let case = Case { extents: [1, 2048, 2048, 2048], turned: [false, true], types: [DType::F16; 2], side: 1 };
    let (b, _) = case.model(3);
    for (target, quicker) in
        [("gfx942", 1), ("gfx950", 1), ("gfx1201", 1), ("gfx1200", 1), ("gfx90a", 0), ("gfx1100", 0)]
    {
        assert_eq!(sparse_launches(&case.compiled(&b, target, When::Faster)), quicker, "{target}");
    }
    assert_eq!(sparse_launches(&case.compiled(&b, "gfx942", When::Never)), 0);
    // What is not sparse stays as it is.
    let mut b = Builder::new(21, 9);
    let (x, w) = (b.input(&[1024, 1024]), b.random(&[1024, 1024]));
    let w = b.constant(w);
    let y = b.node("MatMul", &[&x, &w], &[]);
    b.output(&y);
    assert_eq!(sparse_launches(&case.compiled(&b, "gfx942", When::Always)), 0);
}
