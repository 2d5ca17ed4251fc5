//! Operators in every float type, on emulated devices in strict mode, against references computed in f64 ([`support::bounds`]).

use crate::support::bounds::{FLOATS, TARGETS, bound, check, fraction, values};
use crate::support::build::{Builder, int, ints};
use crate::support::device;
use crate::support::drawn;
use barewave::Compiler;
use barewave::graph::{Options, fuse};
use barewave::kernels::{Tuned, Tuning, candidates, joined};
use barewave::runtime::{EmulatedDevice, Session};
use barewave::tensor::{DType, HostTensor};
use barewave_isa::Target;
use std::sync::Arc;

/// `A B` with the mass of each sum.
fn product(a: &[f64], b: &[f64], [m, k, n]: [usize; 3]) -> Vec<(f64, f64)> {
    let mut out = Vec::new();
    for i in 0..m {
        for j in 0..n {
            let terms = (0..k).map(|l| a[i * k + l] * b[l * n + j]);
            out.push(terms.fold((0.0, 0.0), |(s, mass), x| (s + x, mass + x.abs())));
        }
    }
    out
}

#[test]
fn products_of_odd_shapes() {
    // Rows, depth, columns: below, at and beyond tiles; lines that begin at odd places; one row, one column.
    let shapes = [[1, 64, 40], [33, 65, 17], [64, 32, 64], [130, 24, 70], [5, 7, 129], [17, 100, 1], [70, 72, 132]];
    for t in FLOATS {
        for [m, k, n] in shapes {
            for transposed in 0..4 {
                let mut b = Builder::new(17, (m * k + n) as u64);
                let (ta, tb) = (transposed & 1, transposed >> 1);
                let (x, y) = (values(&mut b, t, &[m, k]), values(&mut b, t, &[k, n]));
                let turned = |v: &HostTensor, rows: usize, cols: usize, turn: usize| {
                    let x = v.to_f64();
                    let at = |i: usize| x[i % rows * cols + i / rows];
                    let turned: Vec<f64> = (0..rows * cols).map(at).collect();
                    if turn == 1 { HostTensor::from_f64(t, &[cols, rows], &turned) } else { v.clone() }
                };
                let (p, q) = (b.input_of(turned(&x, m, k, ta)), b.input_of(turned(&y, k, n, tb)));
                let z = b.node("Gemm", &[&p, &q], &[("transA", int(ta as i64)), ("transB", int(tb as i64))]);
                b.output(&z);
                let want: Vec<(f64, f64)> = product(&x.to_f64(), &y.to_f64(), [m, k, n])
                    .into_iter()
                    .map(|(s, mass)| (s, bound(t, s.abs(), k, mass)))
                    .collect();
                check(&b, &format!("{t} Gemm {m}x{k}x{n} {transposed:02b}"), &want, &TARGETS);
            }
        }
    }
}

#[test]
fn products_with_epilogues_and_batches() {
    for t in FLOATS {
        let (batches, m, k, n) = (3, 37, 40, 68);
        let mut b = Builder::new(17, 5);
        let (x, y, c) =
            (values(&mut b, t, &[batches, m, k]), values(&mut b, t, &[batches, k, n]), values(&mut b, t, &[n]));
        let (p, q, r) = (b.input_of(x.clone()), b.constant(y.clone()), b.constant(c.clone()));
        let z = b.node("MatMul", &[&p, &q], &[]);
        let z = b.node("Add", &[&z, &r], &[]);
        let z = b.node("Relu", &[&z], &[]);
        b.output(&z);
        let mut want = Vec::new();
        let (x, y, c) = (x.to_f64(), y.to_f64(), c.to_f64());
        for i in 0..batches {
            let sums = product(&x[i * m * k..][..m * k], &y[i * k * n..][..k * n], [m, k, n]);
            for (j, (s, mass)) in sums.into_iter().enumerate() {
                let s = s + c[j % n];
                // The product may be rounded to its type before the sum, or not.
                want.push((s.max(0.0), 3.0 * bound(t, s.abs() + mass, k, mass)));
            }
        }
        check(&b, &format!("{t} MatMul+Add+Relu"), &want, &TARGETS);
    }
}

#[test]
fn convolutions() {
    let cases = [
        ([1, 3, 15, 17], 20, 1, 3, 1, 1),
        ([2, 16, 9, 10], 33, 1, 1, 1, 0),
        ([1, 32, 12, 12], 64, 1, 3, 2, 1),
        ([1, 6, 11, 9], 6, 6, 3, 1, 1),
        ([1, 20, 8, 8], 36, 2, 3, 1, 1),
        ([2, 8, 7, 7], 16, 1, 5, 2, 2),
        // Images that share tiles.
        ([6, 12, 3, 2], 40, 1, 3, 1, 1),
        ([9, 70, 1, 1], 24, 1, 1, 1, 0),
        ([5, 24, 4, 4], 48, 3, 1, 1, 0),
        // Points in rounds, with nothing behind the last one.
        ([2, 64, 5, 5], 24, 1, 1, 2, 0),
    ];
    for t in FLOATS {
        for (i, case) in cases.into_iter().enumerate() {
            for constant in [true, false] {
                convolution(t, i as u64, case, constant);
            }
        }
    }
}

/// Shape of the input, output channels, groups, kernel, stride, pad.
type ConvCase = ([usize; 4], usize, usize, usize, usize, usize);

/// One convolution on all targets.
fn convolution(t: DType, seed: u64, (shape, cout, groups, kernel, stride, pad): ConvCase, constant: bool) -> Builder {
    let mut b = Builder::new(17, seed);
    let per_group = shape[1] / groups;
    let (x, w) = (values(&mut b, t, &shape), values(&mut b, t, &[cout, per_group, kernel, kernel]));
    let (p, q) = (b.input_of(x.clone()), if constant { b.constant(w.clone()) } else { b.input_of(w.clone()) });
    let attributes = [("group", int(groups as i64)), ("strides", ints(&[stride; 2])), ("pads", ints(&[pad; 4]))];
    let z = b.node("Conv", &[&p, &q], &attributes);
    b.output(&z);
    let (x, w) = (x.to_f64(), w.to_f64());
    let out = |d: usize| (shape[d] + 2 * pad - kernel) / stride + 1;
    let mut want = Vec::new();
    for at in 0..shape[0] * cout * out(2) * out(3) {
        let (ox, oy) = (at % out(3), at / out(3) % out(2));
        let (o, image) = (at / (out(2) * out(3)) % cout, at / (out(2) * out(3)) / cout);
        let (mut s, mut mass) = (0.0, 0.0);
        for c in 0..per_group {
            for tap in 0..kernel * kernel {
                let (ky, kx) = (tap / kernel, tap % kernel);
                let (y, x_at) = (oy * stride + ky, ox * stride + kx);
                if y < pad || x_at < pad || y - pad >= shape[2] || x_at - pad >= shape[3] {
                    continue;
                }
                let channel = o / (cout / groups) * per_group + c;
                let element = ((image * shape[1] + channel) * shape[2] + y - pad) * shape[3] + x_at - pad;
                let term = x[element] * w[(o * per_group + c) * kernel * kernel + tap];
                s += term;
                mass += term.abs();
            }
        }
        want.push((s, bound(t, s.abs(), per_group * kernel * kernel, mass)));
    }
    check(&b, &format!("{t} Conv {shape:?} to {cout}, kernel {kernel}, constant {constant}"), &want, &TARGETS);
    b
}

/// Launches of a model on a target.
fn launches(b: &Builder, target: &str) -> usize {
    let graph = fuse(&b.model, &Options::default()).unwrap();
    barewave::compile::compile(&graph, Target::parse(target).unwrap()).unwrap().plan().launches.len()
}

/// A model is one launch, whose workgroups share the depth of a product.
fn shares_depth(b: &Builder, target: &str) -> bool {
    let graph = fuse(&b.model, &Options::default()).unwrap();
    let compiled = barewave::compile::compile(&graph, Target::parse(target).unwrap()).unwrap();
    matches!(&compiled.plan().launches[..], [one] if one.sharing[2] > 1)
}

#[test]
fn depths_shared_among_workgroups() {
    // Few results, deep sums: depths that parts divide and do not, columns that fill rows of four and do not.
    for t in [DType::F16, DType::BF16, DType::F32, DType::F64, DType::I32] {
        for [m, k, n] in [[5, 4096, 9], [33, 1999, 49], [40, 3072, 20]] {
            let mut b = Builder::new(17, (m * k + n) as u64);
            let (x, y, c) = (values(&mut b, t, &[m, k]), values(&mut b, t, &[k, n]), values(&mut b, t, &[m, n]));
            let (p, q, r) = (b.input_of(x.clone()), b.input_of(y.clone()), b.input_of(c.clone()));
            let z = b.node("MatMul", &[&p, &q], &[]);
            let z = b.node("Add", &[&z, &r], &[]);
            b.output(&z);
            let sums = product(&x.to_f64(), &y.to_f64(), [m, k, n]);
            let with =
                |((s, mass), c): (&(f64, f64), f64)| (s + c, 2.0 * bound(t, s.abs() + c.abs(), k, mass + c.abs()));
            let want: Vec<(f64, f64)> = sums.iter().zip(c.to_f64()).map(with).collect();
            check(&b, &format!("{t} MatMul+Add {m}x{k}x{n}"), &want, &TARGETS);
            if t == DType::F32 {
                TARGETS.iter().for_each(|g| assert!(shares_depth(&b, g), "{g} {m}x{k}x{n}"));
            }
        }
    }
    let cases = [([1, 160, 7, 7], 40, 1, 3, 1, 1), ([2, 500, 6, 5], 36, 2, 3, 2, 1), ([1, 2048, 5, 5], 33, 1, 1, 1, 0)];
    for t in FLOATS {
        for (i, case) in cases.into_iter().enumerate() {
            let b = convolution(t, 90 + i as u64, case, i != 1);
            if t == DType::F32 {
                assert!(shares_depth(&b, "gfx906"), "{case:?}");
                assert!(shares_depth(&b, "gfx942"), "{case:?}");
            }
        }
    }
}

/// Places of gathered elements are made side by side where instructions take a clock: no load waits for its own address alone.
#[test]
fn gathers_look_up_places_together() {
    for target in ["gfx1010", "gfx1030", "gfx1100", "gfx1201"] {
        for t in [DType::F16, DType::F32] {
            let mut b = Builder::new(17, 1);
            let (x, w) = (values(&mut b, t, &[2, 24, 9, 9]), values(&mut b, t, &[40, 24, 5, 5]));
            let (x, w) = (b.input_of(x), b.constant(w));
            let z = b.node("Conv", &[&x, &w], &[("pads", ints(&[2; 4]))]);
            b.output(&z);
            let graph = fuse(&b.model, &Options::default()).unwrap();
            let of = Target::parse(target).unwrap();
            let kernels = barewave::kernels::lower(&graph, &graph.steps[0], of, &Default::default(), "conv");
            let machine = barewave::passes::compile(kernels.unwrap()[0].function.clone()).unwrap();
            let text = barewave::passes::listing::listing(&machine);
            let lines: Vec<&str> = text.lines().map(str::trim).collect();
            let address = |line: &str| line.contains("buffer_load").then(|| line.split(", ").nth(1).map(String::from));
            let waits = |w: &[&str]| {
                let made = w[0].strip_prefix("v_cndmask_b32").and_then(|rest| rest.split([' ', ',']).nth(1));
                made.is_some() && address(w[1]).flatten().as_deref() == made
            };
            let alone = lines.windows(2).filter(|w| waits(w)).count();
            assert!(alone < 2, "{target} {t}: {alone}\n{text}");
        }
    }
}

#[test]
fn products_of_large_tiles() {
    // The largest tiles, several bands of them, the last ones not whole. Some rows are compared.
    let cases = [
        ("gfx908", DType::F16, [1990, 70, 2090]),
        ("gfx942", DType::F16, [1990, 70, 2090]),
        ("gfx942", DType::F32, [1990, 50, 2090]),
        ("gfx1100", DType::F32, [1990, 50, 2090]),
        ("gfx1201", DType::F16, [1990, 70, 2090]),
    ];
    for (target, t, [m, k, n]) in cases {
        let mut b = Builder::new(17, 3);
        let (x, y) = (values(&mut b, t, &[m, k]), values(&mut b, t, &[k, n]));
        let (p, q) = (b.input_of(x.clone()), b.input_of(y.clone()));
        let z = b.node("MatMul", &[&p, &q], &[]);
        b.output(&z);
        let graph = fuse(&b.model, &Options::default()).unwrap();
        let chip = Target::parse(target).unwrap();
        let considered = candidates(&graph, &graph.steps[0], chip, &Default::default()).unwrap();
        let whole = considered.candidates.iter().filter(|c| c.parts == 1);
        let largest = whole.max_by_key(|c| c.tile[0] * c.tile[1]).unwrap();
        assert!(largest.tile[0] * largest.tile[1] > 15_000, "{target} {t}: {largest:?}");
        let mut tuning = Tuning::default();
        tuning.insert(considered.product.clone(), Tuned::from(largest));
        let compiler =
            Compiler::new(chip, barewave::Options { tuning: Arc::new(tuning), ..Default::default() }).without_levels();
        let compiled = compiler.compile_graph(&graph).unwrap();
        let [columns, rows, _] = compiled.plan().launches[0].grid.map(|g| g as usize);
        assert_eq!([rows, columns], [m.div_ceil(largest.tile[0] as usize), n.div_ceil(largest.tile[1] as usize)]);
        let device = Arc::new(EmulatedDevice::new(chip, true).unwrap());
        let mut session = Session::new(device, &compiled).unwrap();
        let (out, _) = session.run(&b.inputs).unwrap_or_else(|e| panic!("{target} {t}: {e}"));
        let (x, y, got) = (x.to_f64(), y.to_f64(), out[0].to_f64());
        for row in (0..m).step_by(61).chain([m - 1]) {
            let want = product(&x[row * k..][..k], &y, [1, k, n]);
            for (column, (s, mass)) in want.into_iter().enumerate() {
                let error = (got[row * n + column] - s).abs();
                assert!(error <= bound(t, s.abs(), k, mass), "{target} {t}: row {row}, column {column}: {error:e}");
            }
        }
    }
}

#[test]
fn integer_products() {
    for t in [DType::I32, DType::U32, DType::I64, DType::U64] {
        let [m, k, n] = [19, 21, 35];
        let mut b = Builder::new(17, 9);
        let mut any = |shape: [usize; 2]| {
            let v: Vec<i64> = (0..shape[0] * shape[1]).map(|_| (b.rng.next_u64() % 2000) as i64).collect();
            HostTensor::from_ints(t, &shape, &v)
        };
        let (x, y) = (any([m, k]), any([k, n]));
        let (p, q) = (b.input_of(x.clone()), b.input_of(y.clone()));
        let z = b.node("MatMul", &[&p, &q], &[]);
        b.output(&z);
        let want: Vec<(f64, f64)> =
            product(&x.to_f64(), &y.to_f64(), [m, k, n]).into_iter().map(|(s, _)| (s, 0.0)).collect();
        check(&b, &format!("{t} MatMul"), &want, &TARGETS);
    }
}

/// Targets for what has no instruction of its own per target.
const FEW: [&str; 6] = ["gfx803", "gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"];

/// Where second-level caches are slow a workgroup keeps scale and bias and takes several rows.
#[test]
fn workgroups_that_take_several_rows() {
    for (t, rows, n, op) in [
        (DType::F32, 1051, 2052, "LayerNormalization"),
        (DType::F32, 1600, 1100, "RMSNormalization"),
        (DType::F16, 1029, 2320, "LayerNormalization"),
    ] {
        let mut b = Builder::new(23, n as u64);
        let x = values(&mut b, t, &[rows, n]);
        let (scale, bias) = (values(&mut b, t, &[n]), values(&mut b, t, &[n]));
        let (scales, biases) = (scale.to_f64(), bias.to_f64());
        let (p, scale, bias) = (b.input_of(x.clone()), b.input_of(scale), b.input_of(bias));
        let centred = op == "LayerNormalization";
        let y = match centred {
            true => b.node(op, &[&p, &scale, &bias], &[("axis", int(1))]),
            false => b.node(op, &[&p, &scale], &[]),
        };
        b.output(&y);
        let mut want = Vec::new();
        for line in x.to_f64().chunks(n) {
            let mean = if centred { line.iter().sum::<f64>() / n as f64 } else { 0.0 };
            let variance = line.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n as f64;
            want.extend(line.iter().enumerate().map(|(i, x)| {
                let y = (x - mean) / (variance + 1e-5f32 as f64).sqrt() * scales[i];
                let all = if centred { y + biases[i] } else { y };
                (all, bound(t, all.abs(), n + 16, y.abs() + 8.0 / n as f64))
            }));
        }
        let targets = ["gfx803", "gfx906"];
        let graph = fuse(&b.model, &Options::default()).unwrap();
        for name in targets {
            let target = Target::parse(name).unwrap();
            let compiled =
                Compiler::new(target, barewave::Options::default()).without_levels().compile_graph(&graph).unwrap();
            assert!((compiled.plan().launches[0].grid[0] as usize) < rows, "{name} {t} {op}");
        }
        check(&b, &format!("{t} {op} {rows}x{n}"), &want, &targets);
    }
}

#[test]
fn reductions_softmax_and_norms() {
    for t in FLOATS {
        // In a part of a row of lanes, a row, several, a wave, waves; one that no registers hold; rows of odd bytes.
        for shape in [[3usize, 5], [2, 700], [9, 48], [70, 8], [5, 1024], [2, 4100], [1, 70000], [3, 4099]] {
            let [rows, n] = shape;
            for op in ["Softmax", "LogSoftmax", "LayerNormalization", "ReduceMean", "ReduceMax", "ReduceSumSquare"] {
                let mut b = Builder::new(17, n as u64);
                let x = values(&mut b, t, &shape);
                let p = b.input_of(x.clone());
                let ones = b.constant(HostTensor::from_f64(t, &[n], &vec![1.0; n]));
                let y = match op {
                    "LayerNormalization" => b.node(op, &[&p, &ones], &[("axis", int(1))]),
                    _ if op.starts_with("Reduce") => b.node(op, &[&p], &[("axes", ints(&[1]))]),
                    _ => b.node(op, &[&p], &[("axis", int(1))]),
                };
                b.output(&y);
                let mut want = Vec::new();
                for line in x.to_f64().chunks(n) {
                    let (sum, max) = (line.iter().sum::<f64>(), line.iter().fold(f64::MIN, |a, b| a.max(*b)));
                    let mass: f64 = line.iter().map(|x| x.abs()).sum();
                    let exp: f64 = line.iter().map(|x| (x - max).exp()).sum();
                    let mean = sum / n as f64;
                    let variance = line.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n as f64;
                    let squares: f64 = line.iter().map(|x| x * x).sum();
                    match op {
                        "ReduceMean" => want.push((mean, bound(t, mean.abs(), n, mass / n as f64))),
                        "ReduceMax" => want.push((max, 0.0)),
                        "ReduceSumSquare" => want.push((squares, bound(t, squares, n, squares))),
                        _ => want.extend(line.iter().map(|x| {
                            let y = match op {
                                "Softmax" => (x - max).exp() / exp,
                                "LogSoftmax" => x - max - exp.ln(),
                                _ => (x - mean) / (variance + 1e-5f32 as f64).sqrt(),
                            };
                            (y, bound(t, y.abs(), n + 16, y.abs() + 8.0 / n as f64))
                        })),
                    }
                }
                assert!(want.len() == rows || want.len() == rows * n);
                check(&b, &format!("{t} {op} {shape:?}"), &want, &FEW);
            }
        }
    }
}

#[test]
fn elementwise_in_every_float_type() {
    type Function = fn(f64, f64) -> f64;
    let binary: [(&str, Function); 6] = [
        ("Add", |x, y| x + y),
        ("Sub", |x, y| x - y),
        ("Mul", |x, y| x * y),
        ("Div", |x, y| x / y),
        ("Max", f64::max),
        ("Min", f64::min),
    ];
    let unary: [(&str, Function); 14] = [
        ("Neg", |x, _| -x),
        ("Abs", |x, _| x.abs()),
        ("Sqrt", |x, _| x.sqrt()),
        ("Reciprocal", |x, _| 1.0 / x),
        ("Exp", |x, _| x.exp()),
        ("Log", |x, _| x.ln()),
        ("Sigmoid", |x, _| 1.0 / (1.0 + (-x).exp())),
        ("Tanh", |x, _| x.tanh()),
        ("Sinh", |x, _| x.sinh()),
        ("Cosh", |x, _| x.cosh()),
        ("Floor", |x, _| x.floor()),
        ("Round", |x, _| x.round_ties_even()),
        ("Sign", |x, _| if x == 0.0 { 0.0 } else { x.signum() }),
        ("Softplus", |x, _| x.exp().ln_1p()),
    ];
    for t in FLOATS {
        for (name, f) in binary.iter().chain(&unary) {
            // Lengths with and without fours.
            for n in [64usize, 63] {
                let mut b = Builder::new(17, 1);
                let scale = |b: &mut Builder| {
                    let x: Vec<f64> = values(b, t, &[n]).to_f64().iter().map(|x| x * 9.0).collect();
                    HostTensor::from_f64(t, &[n], &x)
                };
                let (x, y) = (scale(&mut b), scale(&mut b));
                let p = b.input_of(x.clone());
                let z = if binary.iter().any(|f| f.0 == *name) {
                    let q = b.input_of(y.clone());
                    b.node(name, &[&p, &q], &[])
                } else {
                    b.node(name, &[&p], &[])
                };
                b.output(&z);
                let graph = fuse(&b.model, &Options::default()).unwrap();
                for target in FEW {
                    let (out, _) = device::run(&graph, &b.inputs, target, true)
                        .unwrap_or_else(|e| panic!("{t} {name} {target}: {e}"));
                    for ((got, x), y) in out[0].to_f64().iter().zip(x.to_f64()).zip(y.to_f64()) {
                        let want = f(x, y);
                        if want.is_nan() {
                            assert!(got.is_nan(), "{t} {name}({x:e}, {y:e}) {target}: {got:e}");
                            continue;
                        }
                        let error = (got - want).abs();
                        // 4 units in the last place of the type that is computed in.
                        let most = bound(t, want.abs(), 4, want.abs());
                        assert!(error <= most, "{t} {name}({x:e}, {y:e}) {target}: {got:e}, not {want:e}");
                    }
                }
            }
        }
    }
}

#[test]
fn casts_between_all_types() {
    let numbers = [0.0, 1.0, -1.0, 2.5, 100.0, -7.75, 65504.0, 1e-3, 127.0];
    // Small floats have a test of their own.
    let types = || DType::ALL.into_iter().filter(|t| t.bits() >= 8 && !t.is_small_float() && *t != DType::Str);
    for from in types() {
        for to in types() {
            // What every type holds; conversions that leave a type's range are tested elsewhere.
            let fits = |x: &f64| {
                let range = |t: DType| match t {
                    DType::Bool => *x == 0.0 || *x == 1.0,
                    DType::U8 | DType::U16 | DType::U32 | DType::U64 => (0.0..=127.0).contains(x) && x.fract() == 0.0,
                    t if t.is_float() => true,
                    _ => x.abs() <= 127.0 && x.fract() == 0.0,
                };
                range(from) && (to.is_float() || (x.abs() <= 127.0 && (*x >= 0.0 || to.is_signed_int())))
            };
            let x: Vec<f64> = numbers.iter().copied().filter(fits).collect();
            let mut b = Builder::new(19, 1);
            let x = HostTensor::from_f64(from, &[x.len()], &x);
            let p = b.input_of(x.clone());
            let z = b.node("Cast", &[&p], &[("to", int(to.to_onnx() as i64))]);
            b.output(&z);
            let kept = |x: f64| match to {
                DType::Bool => f64::from(x != 0.0),
                t if t.is_float() => x,
                _ => x.trunc(),
            };
            let want = HostTensor::from_f64(to, x.shape(), &x.to_f64().into_iter().map(kept).collect::<Vec<_>>());
            let want: Vec<(f64, f64)> = want.to_f64().into_iter().map(|x| (x, 0.0)).collect();
            check(&b, &format!("Cast {from} to {to}"), &want, &FEW);
        }
    }
}

/// Floats that an integer type has no number for become its nearest one, by a cast and by quantisation.
#[test]
fn floats_out_of_range_saturate() {
    let numbers = [300.0, -300.0, 7e4, -7e4, 3e9, -3e9, 1e20, -1e20, f64::INFINITY, f64::NEG_INFINITY];
    for from in [DType::F32, DType::F64, DType::F16, DType::BF16] {
        for to in [DType::I8, DType::U8, DType::I16, DType::U16, DType::I32, DType::U32] {
            for quantised in [false, true] {
                if quantised && (to.bits() == 32 || from == DType::F64) {
                    continue;
                }
                let mut b = Builder::new(21, 1);
                let x = HostTensor::from_f64(from, &[numbers.len()], &numbers);
                let held = x.to_f64();
                let p = b.input_of(x);
                let z = if quantised {
                    let scale = b.constant(HostTensor::from_f64(from, &[], &[0.5]));
                    let zero = b.constant(HostTensor::from_f64(to, &[], &[1.0]));
                    b.node("QuantizeLinear", &[&p, &scale, &zero], &[])
                } else {
                    b.node("Cast", &[&p], &[("to", int(to.to_onnx() as i64))])
                };
                b.output(&z);
                let bits = to.bits() as i32;
                let (least, most) = match to.is_signed_int() {
                    true => (-2f64.powi(bits - 1), 2f64.powi(bits - 1) - 1.0),
                    false => (0.0, 2f64.powi(bits) - 1.0),
                };
                let number = |x: f64| if quantised { 2.0 * x + 1.0 } else { x };
                let want: Vec<(f64, f64)> = held.iter().map(|x| (number(*x).clamp(least, most).trunc(), 0.0)).collect();
                check(&b, &format!("{from} to {to}, quantised: {quantised}"), &want, &FEW);
            }
        }
    }
}

/// An attention's extents: batch, heads, heads of keys, queries, keys, sizes of keys and of values; what hides keys.
type AttentionCase = ([usize; 7], Hidden);

#[derive(Clone, Copy, PartialEq, Debug)]
enum Hidden {
    Nothing,
    Causal,
    /// Booleans for each query and key; one query sees nothing.
    Flags,
    /// Numbers that are added, the same for all heads.
    Bias,
}

/// What attention gives for one query, and a bound of its error.
fn attended(scores: &[Option<f64>], values: impl Fn(usize) -> f64) -> (f64, f64) {
    let max = scores.iter().flatten().fold(f64::NEG_INFINITY, |a, b| a.max(*b));
    let weights: Vec<f64> = scores.iter().map(|s| s.map_or(0.0, |s| (s - max).exp())).collect();
    let sum: f64 = weights.iter().sum::<f64>().max(f64::MIN_POSITIVE);
    let terms = weights.iter().enumerate().map(|(t, w)| w / sum * values(t));
    terms.fold((0.0, 0.0), |(y, mass), x| (y + x, mass + x.abs()))
}

fn attention(
    t: DType,
    ([batch, heads, shared, m, n, d, width], hidden): AttentionCase,
    flat: bool,
) -> (Builder, Vec<(f64, f64)>) {
    let mut b = Builder::new(23, (m * n + d) as u64);
    let shape = |h: usize, s: usize, d: usize| if flat { vec![batch, s, h * d] } else { vec![batch, h, s, d] };
    let shapes = [shape(heads, m, d), shape(shared, n, d), shape(shared, n, width)];
    let tensors = shapes.map(|s| values(&mut b, t, &s));
    let names = tensors.each_ref().map(|x| b.input_of(x.clone()));
    let mut inputs: Vec<&str> = names.iter().map(String::as_str).collect();
    let flags: Vec<i64> = (0..m * n).map(|i| (i / n != 1 && (i * 7 + i / n) % 3 > 0) as i64).collect();
    let bias = values(&mut b, t, &[m, n]);
    let mask = match hidden {
        Hidden::Flags => Some(b.constant(HostTensor::from_ints(DType::Bool, &[m, n], &flags))),
        Hidden::Bias => Some(b.input_of(bias.clone())),
        _ => None,
    };
    inputs.extend(mask.as_deref());
    let mut attributes = vec![("is_causal", int((hidden == Hidden::Causal) as i64))];
    if flat {
        attributes.extend([("q_num_heads", int(heads as i64)), ("kv_num_heads", int(shared as i64))]);
    }
    let y = b.node("Attention", &inputs, &attributes);
    b.output(&y);
    let [q, k, v] = tensors.map(|x| x.to_f64());
    let bias = bias.to_f64();
    let at = |h: usize, hs: usize, s: usize, len: usize, size: usize, bt: usize, i: usize| match flat {
        true => ((bt * len + s) * hs + h) * size + i,
        false => ((bt * hs + h) * len + s) * size + i,
    };
    let mut want = vec![(0.0, 0.0); batch * heads * m * width];
    for (bt, h, row) in (0..batch * heads * m).map(|i| (i / (heads * m), i / m % heads, i % m)) {
        let of = h * shared / heads;
        let seen = |key: usize| match hidden {
            Hidden::Causal => key <= row,
            Hidden::Flags => flags[row * n + key] != 0,
            _ => true,
        };
        let score = |key: usize| {
            let dot: f64 =
                (0..d).map(|i| q[at(h, heads, row, m, d, bt, i)] * k[at(of, shared, key, n, d, bt, i)]).sum();
            let more = if hidden == Hidden::Bias { bias[row * n + key] } else { 0.0 };
            seen(key).then_some(dot / (d as f64).sqrt() + more)
        };
        let scores: Vec<Option<f64>> = (0..n).map(score).collect();
        for i in 0..width {
            let (y, mass) = attended(&scores, |key| v[at(of, shared, key, n, width, bt, i)]);
            let size = scores.iter().flatten().fold(1.0, |a: f64, s| a.max(s.abs()));
            // Weights are rounded to the type, and where products and softmax are apart scores are.
            let rounded = 3.0 * (1.0 + size) * mass * 2f64.powi(-fraction(t) - 1);
            want[at(h, heads, row, m, width, bt, i)] = (y, rounded + bound(t, y.abs(), n + d, mass * (1.0 + size)));
        }
    }
    (b, want)
}

#[test]
fn attentions() {
    let cases: [AttentionCase; 9] = [
        ([1, 2, 2, 64, 64, 64, 64], Hidden::Nothing),
        ([1, 2, 2, 70, 130, 64, 64], Hidden::Nothing),
        ([2, 4, 2, 33, 100, 128, 128], Hidden::Causal),
        ([1, 2, 1, 150, 150, 80, 48], Hidden::Causal),
        ([1, 1, 1, 20, 200, 37, 41], Hidden::Nothing),
        ([1, 2, 2, 40, 90, 32, 96], Hidden::Flags),
        ([1, 4, 1, 17, 40, 192, 256], Hidden::Bias),
        ([1, 2, 2, 50, 48, 40, 40], Hidden::Bias),
        ([1, 6, 3, 1, 300, 64, 64], Hidden::Nothing),
    ];
    let targets = ["gfx906", "gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201"];
    for t in [DType::F16, DType::BF16, DType::F32] {
        for (i, case) in cases.into_iter().enumerate() {
            let (b, want) = attention(t, case, i % 2 == 1);
            let joined: Vec<&str> = targets.into_iter().filter(|t| launches(&b, t) == 1).collect();
            // Where there are matrix instructions and registers enough it is one kernel.
            let [.., m, _, d, width] = case.0;
            let some = t != DType::F32 && m >= 16 && d.max(width) <= 128;
            let expected = ["gfx908", "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"];
            assert!(!some || expected.iter().all(|t| joined.contains(t)), "{t} {case:?} {joined:?}");
            let some: Vec<&str> = targets.into_iter().filter(|on| drawn(&format!("{t} {case:?} {on}"))).collect();
            check(&b, &format!("{t} {case:?}"), &want, &some);
        }
    }
}

/// One token behind many keys, or a few: one kernel everywhere, with matrix instructions or without.
#[test]
fn attentions_of_few_queries() {
    let cases: [AttentionCase; 8] = [
        ([1, 2, 2, 1, 300, 64, 64], Hidden::Nothing),
        ([1, 8, 2, 1, 333, 128, 128], Hidden::Flags),
        ([2, 3, 3, 2, 77, 40, 72], Hidden::Causal),
        ([1, 16, 2, 1, 500, 128, 96], Hidden::Bias),
        ([1, 4, 2, 3, 90, 128, 64], Hidden::Flags),
        ([2, 16, 16, 1, 2100, 32, 32], Hidden::Nothing),
        ([1, 1, 1, 1, 16, 8, 8], Hidden::Nothing),
        ([1, 5, 5, 1, 700, 24, 120], Hidden::Flags),
    ];
    for t in [DType::F16, DType::BF16, DType::F32] {
        for (i, case) in cases.into_iter().enumerate() {
            // Workgroups with several rounds of keys, once.
            if case.0[4] > 1000 && t != DType::F16 {
                continue;
            }
            let (b, want) = attention(t, case, i % 2 == 1);
            let run = |target: &&str| drawn(&format!("few {t} {case:?} {target}"));
            let targets: Vec<&str> = TARGETS.into_iter().filter(run).collect();
            for target in &targets {
                assert_eq!(launches(&b, target), 1, "{t} {case:?} {target}");
            }
            check(&b, &format!("{t} {case:?}"), &want, &targets);
        }
    }
}

/// Fewer blocks of queries than compute units, of which some see more keys than others: tiles of keys are divided equally, or those that see most
/// begin first.
#[test]
fn attentions_of_few_blocks() {
    let cases: [AttentionCase; 3] = [
        ([1, 16, 8, 256, 256, 64, 64], Hidden::Causal),
        ([1, 10, 5, 300, 300, 128, 128], Hidden::Causal),
        ([1, 14, 14, 200, 340, 64, 96], Hidden::Nothing),
    ];
    for (i, case) in cases.into_iter().enumerate() {
        let (b, want) = attention(DType::F16, case, i == 1);
        let run = |target: &&str| drawn(&format!("few blocks {case:?} {target}"));
        let targets: Vec<&str> = ["gfx90a", "gfx942", "gfx1100", "gfx1201"].into_iter().filter(run).collect();
        check(&b, &format!("{case:?}"), &want, &targets);
    }
}

/// An instruction of gfx1100 leaves a lane every second element of a line: lanes put lines together before they store them, and two halves of a
/// wave exchange their weights by twos.
#[test]
fn attentions_store_lines() {
    let (b, _) = attention(DType::F16, ([1, 24, 24, 512, 512, 64, 64], Hidden::Nothing), false);
    let (graph, target) = (fuse(&b.model, &Options::default()).unwrap(), Target::parse("gfx1100").unwrap());
    let whole = joined(&graph, target, &Tuning::default()).expect("an attention");
    let text = device::first_listing(&whole, "gfx1100");
    assert!(text.contains("buffer_store_b64") && !text.contains("buffer_store_b16"), "{text}");
    assert!(text.contains("v_dual_cndmask_b32"), "{text}");
}

/// Where no matrix instruction takes the type: one kernel, whose lanes have a query each.
#[test]
fn attentions_of_a_query_in_each_lane() {
    let cases: [AttentionCase; 7] = [
        ([1, 4, 4, 70, 130, 64, 64], Hidden::Nothing),
        ([2, 4, 2, 100, 201, 128, 128], Hidden::Causal),
        ([1, 8, 8, 150, 150, 32, 96], Hidden::Causal),
        ([1, 8, 2, 96, 90, 72, 40], Hidden::Flags),
        ([4, 4, 1, 65, 77, 40, 64], Hidden::Bias),
        ([1, 12, 12, 49, 49, 64, 64], Hidden::Bias),
        ([1, 16, 16, 64, 5, 16, 16], Hidden::Flags),
    ];
    let targets = [
        (DType::F32, &["gfx803", "gfx900", "gfx906", "gfx1010", "gfx1030", "gfx1100", "gfx1151", "gfx1201"][..]),
        (DType::F16, &["gfx906", "gfx1010", "gfx1030"]),
    ];
    let (mut all, mut single) = (0, 0);
    for (t, targets) in targets {
        for (i, case) in cases.into_iter().enumerate() {
            let (b, want) = attention(t, case, i % 2 == 1);
            let one = targets.iter().copied().filter(|target| launches(&b, target) == 1);
            let one: Vec<&str> = one.collect();
            (all, single) = (all + targets.len(), single + one.len());
            let some = one.into_iter().filter(|target| drawn(&format!("lanes {t} {case:?} {target}")));
            check(&b, &format!("{t} {case:?}"), &want, &some.collect::<Vec<_>>());
        }
    }
    // With few lanes to fill, products and softmax apart are quicker.
    assert!(single * 4 > all * 3, "{single} of {all}");
}

#[test]
fn the_last_of_a_shared_depth_adds_in_the_same_order() {
    let [m, k, n] = [33, 1999, 49];
    let mut b = Builder::new(17, 7);
    let (x, y) = (b.input(&[2, m, k]), b.input(&[2, k, n]));
    let p = b.node("MatMul", &[&x, &y], &[]);
    b.output(&p);
    let operand = |i: usize, batch: usize| b.inputs[i].to_f64()[batch * b.inputs[i].len() / 2..].to_vec();
    let want = [0, 1].map(|batch| product(&operand(0, batch), &operand(1, batch), [m, k, n])).concat();
    let graph = fuse(&b.model, &Options::default()).unwrap();
    for target in TARGETS {
        let (mut session, _) = device::session(&graph, target, true).unwrap();
        let mut run = || session.run(&b.inputs).unwrap_or_else(|e| panic!("{target}: {e}")).0.remove(0);
        // Whoever comes last, and counters begin at zero again.
        let first = run();
        (0..3).for_each(|_| assert_eq!(run().bytes(), first.bytes(), "{target}"));
        for (x, (y, mass)) in first.to_f64().iter().zip(&want) {
            assert!((x - y).abs() <= bound(DType::F32, y.abs(), k, *mass), "{target}: {x:e} instead of {y:e}");
        }
    }
}

#[test]
fn each_target_makes_halves_its_way() {
    // Two in one instruction, one beside what is there, one alone.
    let ways = ["v_cvt_pk_f16_f32", "v_fma_mixhi_f16", "v_cvt_f16_f32"];
    for (target, way) in [("gfx950", 0), ("gfx942", 1), ("gfx906", 1), ("gfx803", 2), ("gfx1100", 2)] {
        let mut b = Builder::new(17, 1);
        let x = b.input_of(HostTensor::from_f64(DType::F16, &[4096], &[1.0; 4096]));
        let y = b.node("Sqrt", &[&x], &[]);
        b.output(&y);
        let text = device::first_listing(&fuse(&b.model, &Options::default()).unwrap(), target);
        for (n, other) in ways.iter().enumerate() {
            assert_eq!(text.contains(other), n == way, "{target}: {other}\n{text}");
        }
    }
}
