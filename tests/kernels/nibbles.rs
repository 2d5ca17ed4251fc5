//! Products of integers of 4 bits: as bytes, and two in a byte by WMMA and dot products, exact in every bit. Emulated devices in strict mode
//! against sums of integers.

use crate::support::build::{Builder, int};
use crate::support::drawn;
use barewave::graph::interpret::Interpreter;
use barewave::graph::{Options, fuse};
use barewave::kernels::{self, Candidate, Tuned, Tuning, When, candidates};
use barewave::runtime::EmulatedDevice;
use barewave::tensor::{DType, HostTensor};
use barewave::{Compiled, Compiler, Session};
use barewave_isa::{Target, op};
use std::sync::Arc;

/// One of each kind: no dot products of 4 bits, those of one sign, MFMA beside them, those of any sign, WMMA of both generations.
const TARGETS: [&str; 10] =
    ["gfx803", "gfx906", "gfx90a", "gfx942", "gfx1010", "gfx1011", "gfx1030", "gfx1100", "gfx1151", "gfx1201"];

/// What multiplies.
#[derive(Clone, Copy, Debug, PartialEq)]
enum By {
    MatMul,
    /// With weights [N,K] and a bias.
    Gemm,
    /// Of single points: rows are pixels.
    Conv,
}

/// Zero points of the weights.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Zeros {
    One(i64),
    /// Another one for each column.
    Columns,
}

/// A product of quantised data and weights.
#[derive(Clone, Copy, Debug)]
struct Case {
    by: By,
    /// Types of data and weights.
    types: [DType; 2],
    zero: i64,
    zeros: Zeros,
    extents: [usize; 3],
    /// What the result is quantised to.
    to: Option<DType>,
    /// Data and weights may be multiplied two in a byte.
    packs: bool,
}

fn limits(t: DType) -> (i64, i64) {
    let n = 1i64 << t.bits();
    if t.is_signed_int() { (-n / 2, n / 2 - 1) } else { (0, n - 1) }
}

/// Powers of two are scales, so that all that follows a sum is exact, too.
const SCALE: f64 = 0.25;
const STEP: f64 = 2.0;

impl Case {
    fn model(&self, seed: u64) -> (Builder, Vec<f64>) {
        let mut b = Builder::new(21, seed);
        let ([m, n, k], [t, w]) = (self.extents, self.types);
        let shape = if self.by == By::Conv { vec![1, k, 1, m] } else { vec![m, k] };
        let x: Vec<f64> = b.random(&shape).to_f64().iter().map(|x| x * 4.0).collect();
        let x = HostTensor::from_f64(DType::F32, &shape, &x);
        let (low, high) = limits(t);
        let codes: Vec<i64> =
            x.to_f64().iter().map(|x| ((x / SCALE).round_ties_even() as i64 + self.zero).clamp(low, high)).collect();
        let (below, above) = limits(w);
        let weights: Vec<i64> = (0..n * k).map(|_| below + b.below((above - below + 1) as usize) as i64).collect();
        let scales: Vec<f64> = (0..n).map(|c| 1.0 / f64::from(1 << (1 + c % 4))).collect();
        let zeros: Vec<i64> = match self.zeros {
            Zeros::One(z) => vec![z; n],
            Zeros::Columns => (0..n as i64).map(|c| (c % 5 + below).clamp(below, above)).collect(),
        };
        let bias: Vec<f64> = (0..n).map(|c| c as f64 / 4.0 - 3.0).collect();
        // Weights [N,K], or [K,N].
        let rowwise = self.by != By::MatMul;
        let stored: Vec<i64> = match rowwise {
            true => weights.clone(),
            false => (0..n * k).map(|i| weights[i % n * k + i / n]).collect(),
        };
        let dims: &[usize] = match self.by {
            By::MatMul => &[k, n],
            By::Gemm => &[n, k],
            By::Conv => &[n, k, 1, 1],
        };
        let x = b.input_of(x);
        let number = |b: &mut Builder, v: f64| b.constant(HostTensor::from_f64(DType::F32, &[], &[v]));
        let (xs, xz) = (number(&mut b, SCALE), b.constant(HostTensor::from_ints(t, &[], &[self.zero])));
        let q = b.node("QuantizeLinear", &[&x, &xs, &xz], &[]);
        let d = b.node("DequantizeLinear", &[&q, &xs, &xz], &[]);
        let names = [
            b.constant(HostTensor::from_ints(w, dims, &stored)),
            b.constant(HostTensor::from_f64(DType::F32, &[n], &scales)),
            b.constant(HostTensor::from_ints(w, &[n], &zeros)),
        ];
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let v = b.node("DequantizeLinear", &names, &[("axis", int(i64::from(!rowwise)))]);
        let added = b.constant(HostTensor::from_f64(DType::F32, &[n], &bias));
        let mut y = match self.by {
            By::MatMul => b.node("MatMul", &[&d, &v], &[]),
            By::Gemm => b.node("Gemm", &[&d, &v, &added], &[("transB", int(1))]),
            By::Conv => b.node("Conv", &[&d, &v, &added], &[]),
        };
        if let Some(to) = self.to {
            let (s, z) = (number(&mut b, STEP), b.constant(HostTensor::from_ints(to, &[], &[1])));
            y = b.node("QuantizeLinear", &[&y, &s, &z], &[]);
        }
        b.output(&y);
        let result = |row: usize, c: usize| {
            let code = |l: usize| codes[if self.by == By::Conv { l * m + row } else { row * k + l }];
            let sum: i64 = (0..k).map(|l| (code(l) - self.zero) * (weights[c * k + l] - zeros[c])).sum();
            let y = sum as f64 * SCALE * scales[c] + if rowwise { bias[c] } else { 0.0 };
            match self.to {
                None => y,
                Some(to) => {
                    let (low, high) = limits(to);
                    ((y / STEP).round_ties_even() as i64 + 1).clamp(low, high) as f64
                }
            }
        };
        let want = match self.by {
            By::Conv => (0..n * m).map(|i| result(i % m, i / m)).collect(),
            _ => (0..m * n).map(|i| result(i / n, i % n)).collect(),
        };
        (b, want)
    }
}

fn tuning(nibbles: When) -> Tuning {
    let mut tuning = Tuning::default();
    tuning.set_nibbles(nibbles);
    tuning
}

fn run(b: &Builder, target: Target, tuning: Tuning, what: &str) -> (Vec<f64>, Compiled) {
    let mut model = b.model.clone();
    model.expand();
    let graph = fuse(&model, &Options::default()).unwrap_or_else(|e| panic!("{what}: {e}"));
    let options = barewave::Options { tuning: Arc::new(tuning), ..Default::default() };
    let compiled =
        Compiler::new(target, options).without_levels().compile_graph(&graph).unwrap_or_else(|e| panic!("{what}: {e}"));
    let device = Arc::new(EmulatedDevice::new(target, true).unwrap());
    let mut session = Session::new(device, &compiled).unwrap();
    let (out, _) = session.run(&b.inputs).unwrap_or_else(|e| panic!("{what}: {e}"));
    (out[0].to_f64(), compiled)
}

fn packed_launches(compiled: &Compiled) -> usize {
    compiled.plan().launches.iter().filter(|l| l.kernel.contains("nibble")).count()
}

fn differ(got: &[f64], want: &[f64]) -> Option<(usize, f64, f64)> {
    assert_eq!(got.len(), want.len());
    (0..want.len()).find(|i| got[*i] != want[*i]).map(|i| (i, got[i], want[i]))
}

#[test]
fn products_of_integers_of_4_bits_are_exact() {
    use By::{Conv, Gemm, MatMul};
    let (i4, u4) = (DType::I4, DType::U4);
    let case = |by, types, zero, zeros, extents, to, packs| Case { by, types, zero, zeros, extents, to, packs };
    let cases = [
        case(MatMul, [i4, i4], 0, Zeros::One(0), [64, 64, 256], None, true),
        case(Gemm, [i4, i4], -3, Zeros::One(0), [70, 33, 98], Some(DType::I8), true),
        case(MatMul, [u4, i4], 5, Zeros::One(0), [129, 47, 130], Some(i4), true),
        case(Gemm, [u4, u4], 0, Zeros::One(8), [40, 100, 64], None, true),
        case(MatMul, [u4, u4], 9, Zeros::One(0), [33, 96, 222], Some(u4), true),
        case(MatMul, [i4, u4], 2, Zeros::One(0), [65, 40, 72], None, true),
        // What fits 4 bits with a zero point of each column, or with none.
        case(MatMul, [i4, i4], 1, Zeros::Columns, [48, 52, 96], None, true),
        case(Gemm, [u4, u4], 7, Zeros::Columns, [30, 66, 44], Some(DType::U8), true),
        // Few rows, one column, odd depths.
        case(MatMul, [i4, i4], 0, Zeros::One(0), [1, 128, 512], None, true),
        case(Gemm, [u4, i4], 4, Zeros::One(0), [3, 70, 256], None, true),
        case(MatMul, [i4, i4], -8, Zeros::One(0), [50, 1, 34], None, true),
        case(MatMul, [u4, i4], 15, Zeros::One(0), [37, 41, 77], Some(i4), false),
        // Convolutions of single points.
        case(Conv, [u4, i4], 0, Zeros::One(0), [196, 48, 64], None, true),
        case(Conv, [i4, i4], 3, Zeros::Columns, [81, 33, 36], Some(i4), false),
    ];
    for (number, case) in cases.into_iter().enumerate() {
        let (b, want) = case.model(70 + number as u64);
        let mut model = b.model.clone();
        model.expand();
        let graph = fuse(&model, &Options::default()).unwrap_or_else(|e| panic!("{case:?}: {e}"));
        for target in TARGETS {
            let what = format!("{case:?} {target}");
            if !drawn(&what) {
                continue;
            }
            let t = Target::parse(target).unwrap();
            let joined = kernels::joined(&graph, t, &tuning(When::Always)).unwrap_or_else(|| graph.clone());
            let out = Interpreter::new(&joined).run(&joined, &b.inputs).unwrap();
            assert_eq!(differ(&out[0].to_f64(), &want), None, "{what}: interpreted");
            for when in [When::Always, When::Never, When::Faster] {
                let (got, compiled) = run(&b, t, tuning(when), &what);
                let multiplied = t.has(op::V_DOT8_I32_I4) || t.has(op::V_DOT8_I32_IU4);
                match when {
                    When::Always if case.packs => {
                        // Constants without a sign are multiplied by signed data where instructions take any.
                        let any = case.types != [i4, u4] || t.has(op::V_DOT8_I32_IU4);
                        assert_eq!(packed_launches(&compiled) == 1, multiplied && any, "{what}");
                    }
                    When::Never => assert_eq!(packed_launches(&compiled), 0, "{what}"),
                    _ => {}
                }
                assert_eq!(differ(&got, &want), None, "{what} {when:?}");
            }
        }
    }
}

/// What a product writes is packed by a step of its own; data that several products read are packed once.
#[test]
fn layers_of_integers_of_4_bits() {
    for target in ["gfx1100", "gfx1201", "gfx906"] {
        let mut b = Builder::new(21, 7);
        let (m, k, n) = (36, 64, 80);
        let mut x = b.input(&[m, k]);
        let weights = |b: &mut Builder, k: usize, n: usize| {
            let list: Vec<i64> = (0..n * k).map(|_| b.below(16) as i64 - 8).collect();
            let names = [
                b.constant(HostTensor::from_ints(DType::I4, &[k, n], &list)),
                b.constant(HostTensor::from_f64(DType::F32, &[], &[0.125])),
            ];
            b.node("DequantizeLinear", &[&names[0], &names[1]], &[])
        };
        for (k, n) in [(k, n), (n, n)] {
            let s = b.constant(HostTensor::from_f64(DType::F32, &[], &[0.5]));
            let z = b.constant(HostTensor::from_ints(DType::U4, &[], &[6]));
            let q = b.node("QuantizeLinear", &[&x, &s, &z], &[]);
            let d = b.node("DequantizeLinear", &[&q, &s, &z], &[]);
            let [v, w] = [weights(&mut b, k, n), weights(&mut b, k, n)];
            let [v, w] = [v, w].map(|w| b.node("MatMul", &[&d, &w], &[]));
            x = b.node("Max", &[&v, &w], &[]);
        }
        b.output(&x);
        let t = Target::parse(target).unwrap();
        let (want, bytes) = run(&b, t, tuning(When::Never), target);
        let (got, packed) = run(&b, t, tuning(When::Always), target);
        let products = bytes.plan().launches.iter().filter(|l| l.kernel.contains("matmul")).count();
        assert_eq!((packed_launches(&bytes), packed_launches(&packed)), (0, products), "{target}");
        assert_eq!(differ(&got, &want), None, "{target}");
    }
}

/// Tiles of any size, shared depths, and waves that share one.
#[test]
fn tiles_of_integers_of_4_bits() {
    let case = Case {
        by: By::Gemm,
        types: [DType::U4, DType::I4],
        zero: 3,
        zeros: Zeros::One(0),
        extents: [270, 300, 1056],
        to: None,
        packs: true,
    };
    let (b, want) = case.model(90);
    let mut model = b.model.clone();
    model.expand();
    let graph = fuse(&model, &Options::default()).unwrap();
    for target in ["gfx906", "gfx1030", "gfx1100", "gfx1201"] {
        let chip = Target::parse(target).unwrap();
        let always = tuning(When::Always);
        let joined = kernels::joined(&graph, chip, &always).unwrap();
        let considered = joined.steps.iter().find_map(|s| candidates(&joined, s, chip, &always)).unwrap();
        let some: Vec<&Candidate> =
            considered.candidates.iter().enumerate().filter(|(i, _)| i % 13 == 0).map(|(_, c)| c).collect();
        for c in some {
            let name = format!("{target} {:?} in {} {:?}", c.tile, c.parts, c.way);
            if !drawn(&name) {
                continue;
            }
            let mut tuning = tuning(When::Always);
            tuning.insert(considered.product.clone(), Tuned::from(c));
            let (got, _) = run(&b, chip, tuning, &name);
            assert_eq!(differ(&got, &want), None, "{name}");
        }
    }
}
