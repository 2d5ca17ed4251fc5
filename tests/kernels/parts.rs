//! Steps that read or write parts of tensors: equal parts share a kernel, whatever computes them.

use crate::support::build::{Builder, int, ints};
use crate::support::device::{TARGETS, session};
use crate::support::drawn;
use barewave::Compiled;
use barewave::graph::fused::FusedGraph;
use barewave::graph::interpret::Interpreter;
use barewave::graph::{self, Options};
use barewave::onnx::Attribute;
use barewave::tensor::{DType, HostTensor, compare};
use std::ops::RangeInclusive;

const PARTS: usize = 17;

/// Runs a model in strict mode on every target and compares its results with the interpreter's; `look` is shown what was compiled.
fn agrees(fused: &FusedGraph, b: &Builder, tolerance: f64, what: &str, look: impl Fn(&Compiled, &str)) {
    let want = Interpreter::new(fused).run(fused, &b.inputs).unwrap();
    for target in TARGETS {
        let what = format!("{what} {target}");
        let (mut session, compiled) = session(fused, target, true).unwrap_or_else(|e| panic!("{what}: {e}"));
        look(&compiled, &what);
        let (got, _) = session.run(&b.inputs).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_eq!(got.len(), want.len(), "{what}");
        for (g, w) in got.iter().zip(&want) {
            let c = compare(g, w, tolerance, tolerance).unwrap();
            assert!(c.passes(), "{what}: {c}");
        }
    }
}

/// Runs a model of parts everywhere, in at most so many launches of as many kernels.
fn check(b: &Builder, kernels: usize, what: &str) {
    let fused = graph::fuse(&b.model, &Options::default()).unwrap();
    agrees(&fused, b, 1e-4, what, |compiled, what| {
        let plan = compiled.plan();
        let n = plan.launches.len();
        assert!(n <= kernels, "{what}: {n} launches");
        assert!(plan.kernels.len() <= kernels, "{what}: {} kernels", plan.kernels.len());
    });
}

/// Runs a reduction everywhere, in so many launches.
fn check_launches(b: &Builder, launches: RangeInclusive<usize>, tolerance: f64, what: &str) {
    let fused = graph::fuse(&b.model, &Options::default()).unwrap();
    agrees(&fused, b, tolerance, what, |compiled, what| {
        let n = compiled.plan().launches.len();
        assert!(launches.contains(&n), "{what}: {n} launches");
    });
}

/// The parts of an array along an axis.
fn split(b: &mut Builder, x: &str, axis: usize, each: usize) -> Vec<String> {
    let sizes = b.ints(&[each as i64; PARTS]);
    b.node_n("Split", &[x, &sizes], &[("axis", int(axis as i64))], PARTS)
}

fn whole(b: &mut Builder, parts: &[String], axis: usize) {
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let y = b.node("Concat", &parts, &[("axis", int(axis as i64))]);
    b.output(&y);
}

/// Every type of element: where a part begins within 16 bytes stands in the code, the rest in its address.
#[test]
fn inputs_of_concat() {
    for (dtype, shape, axis, kernels) in [
        (DType::F32, [4, 4], 0, 1),
        (DType::F32, [3, 5], 1, 4),
        (DType::F16, [3, 5], 0, 8),
        (DType::U8, [7, 3], 1, 16),
        (DType::Bool, [1, 16], 0, 1),
        (DType::I64, [3, 3], 0, 2),
    ] {
        let mut b = Builder::new(17, 1);
        let part = |i: usize| {
            let values: Vec<f64> = (0..shape[0] * shape[1]).map(|n| ((n * 7 + i * 5) % 11 % 2) as f64).collect();
            HostTensor::from_f64(dtype, &shape, &values)
        };
        let parts: Vec<String> = (0..PARTS).map(|i| b.input_of(part(i))).collect();
        whole(&mut b, &parts, axis);
        check(&b, kernels, &format!("Concat of {dtype} {shape:?} along {axis}"));
    }
}

#[test]
fn outputs_of_split() {
    for (shape, axis, kernels) in [([PARTS * 4, 4], 0, 1), ([5, PARTS * 3], 1, 4), ([PARTS * 3, 5], 0, 4)] {
        let mut b = Builder::new(17, 2);
        let x = b.input(&shape);
        for part in split(&mut b, &x, axis, shape[axis] / PARTS) {
            b.output(&part);
        }
        check(&b, kernels, &format!("Split of {shape:?} along {axis}"));
    }
}

type Operation = fn(&mut Builder, &str) -> String;

/// Operators between a Split and a Concat: their kernels read and write parts.
#[test]
fn operators_on_parts() {
    let table: [(&str, &[usize], usize, Operation); 8] = [
        ("elementwise", &[PARTS * 3, 5], 0, |b, x| b.node("Sigmoid", &[x], &[])),
        ("softmax", &[2, PARTS * 5, 7], 1, |b, x| b.node("Softmax", &[x], &[("axis", int(-1))])),
        ("sum", &[PARTS * 3, 5, 33], 0, |b, x| {
            let axes = b.ints(&[2]);
            b.node("ReduceSum", &[x, &axes], &[("keepdims", int(1))])
        }),
        ("product", &[PARTS * 5, 12], 0, |b, x| {
            let w = b.constant(HostTensor::from_f64(DType::F32, &[12, 9], &[0.5; 108]));
            b.node("MatMul", &[x, &w], &[])
        }),
        ("product of columns", &[6, PARTS * 9], 1, |b, x| b.node("MatMul", &[x, "weights"], &[])),
        ("backwards", &[PARTS * 6, 3], 0, |b, x| {
            let (start, end, axis, step) = (b.ints(&[-1]), b.ints(&[-99]), b.ints(&[0]), b.ints(&[-2]));
            b.node("Slice", &[x, &start, &end, &axis, &step], &[])
        }),
        ("pooling", &[1, PARTS * 2, 7, 5], 1, |b, x| b.node("MaxPool", &[x], &[("kernel_shape", ints(&[3, 3]))])),
        ("convolution", &[1, PARTS * 3, 6, 5], 1, |b, x| {
            b.node("Conv", &[x, "filter"], &[("pads", Attribute::Ints(vec![1, 1, 1, 1]))])
        }),
    ];
    for (what, shape, axis, operation) in table {
        let mut b = Builder::new(17, 3);
        let constants = [("weights", b.random(&[9, 4])), ("filter", b.random(&[2, 3, 3, 3]))];
        constants.into_iter().for_each(|(name, t)| _ = b.model.graph.initializers.insert(name.into(), t));
        let x = b.input(shape);
        let parts = split(&mut b, &x, axis, shape[axis] / PARTS);
        let parts: Vec<String> = parts.iter().map(|p| operation(&mut b, p)).collect();
        whole(&mut b, &parts, axis);
        check(&b, 8, what);
    }
}

/// Few results of many elements each are made of pieces, of which the last one may be shorter: where the elements are neighbours by the last workgroup
/// to come, else in another launch.
#[test]
fn long_reductions_are_cut_in_pieces() {
    let cases: [(&str, &[usize], &[i64], DType, f64, RangeInclusive<usize>); 12] = [
        ("ReduceSum", &[262_147], &[0], DType::F32, 1e-4, 1..=1),
        ("ReduceMean", &[3, 2, 140_000], &[1, 2], DType::F16, 2e-3, 1..=1),
        ("ReduceMax", &[600, 2, 401], &[0, 2], DType::F32, 0.0, 2..=3),
        ("ReduceMin", &[2, 131_072], &[1], DType::F64, 0.0, 1..=1),
        ("ReduceSumSquare", &[4, 131_073], &[-1], DType::F32, 1e-4, 1..=1),
        ("ReduceL2", &[131_073, 3], &[0], DType::BF16, 1e-2, 1..=3),
        ("ReduceLogSumExp", &[140_000], &[0], DType::F16, 2e-3, 1..=1),
        ("ReduceSum", &[1, 400_001], &[0, 1], DType::I32, 0.0, 1..=1),
        ("ReduceLogSumExp", &[131_073, 24], &[0], DType::F32, 1e-4, 1..=3),
        ("ReduceLogSumExp", &[2, 100_001], &[1], DType::F64, 1e-6, 1..=1),
        ("ReduceProd", &[140_000], &[0], DType::F32, 1e-3, 1..=1),
        ("ReduceSum", &[500, 1024], &[1], DType::F32, 1e-4, 1..=1),
    ];
    for (op, shape, axes, dtype, tolerance, launches) in cases {
        let mut b = Builder::new(18, 7);
        // Of products each factor is near one.
        let value = |x: &f64| match (op, dtype) {
            ("ReduceProd", _) => 1.0 + x * 1e-4,
            (_, DType::I32) => (x * 1e6).round(),
            _ => x + 0.25,
        };
        let values: Vec<f64> = b.random(shape).to_f64().iter().map(value).collect();
        let x = b.input_of(HostTensor::from_f64(dtype, shape, &values));
        let axes = b.ints(axes);
        let y = b.node(op, &[&x, &axes], &[("keepdims", int(0))]);
        b.output(&y);
        check_launches(&b, launches, tolerance, &format!("{op} of {shape:?} {dtype:?}"));
    }
}

/// Places of the first and of the last extremum of long lines and columns, of which there are many, behind an expression of their own: of columns a
/// piece's place, what lies there, whose it is.
#[test]
fn places_in_long_lines_are_found_in_pieces() {
    let cases: [(&str, &[usize], i64, i64, DType, f64, RangeInclusive<usize>); 9] = [
        ("ArgMax", &[1 << 20], 0, 0, DType::F32, 9.0, 1..=1),
        ("ArgMax", &[3, 200_001], 1, 1, DType::F16, 9.0, 1..=1),
        ("ArgMin", &[5, 170_000], 1, 0, DType::I8, 9.0, 1..=1),
        ("ArgMin", &[2, 65_539, 24], 1, 1, DType::F32, 9.0, 1..=6),
        ("ArgMax", &[3, 140_001], 1, 0, DType::F64, 1e9, 1..=1),
        ("ArgMax", &[4, 131_072], 1, 0, DType::U8, 0.0, 1..=1),
        ("ArgMax", &[7, 1001], 1, 1, DType::I8, 2.0, 1..=1),
        ("ArgMin", &[7, 1000], 1, 0, DType::BF16, 2.0, 1..=1),
        ("ArgMax", &[1000, 40], 0, 1, DType::I64, 2.0, 1..=4),
    ];
    for (op, shape, axis, last, dtype, range, launches) in cases {
        for before in ["", "Neg"] {
            let what = format!("{op} of {before} {shape:?} {dtype:?}");
            if before == "Neg" && dtype == DType::U8 || !drawn(&what) {
                continue;
            }
            let mut b = Builder::new(18, 13);
            let values: Vec<f64> = b.random(shape).to_f64().iter().map(|x| (x * range).round()).collect();
            // Of floats all are the least, or the greatest, in some lines.
            let low = if dtype.is_float() && before.is_empty() { f64::INFINITY } else { 0.0 };
            let low = if op == "ArgMax" { -low } else { low };
            let values: Vec<f64> = values
                .iter()
                .enumerate()
                .map(|(i, x)| if i * 3 < values.len() && range < 10.0 { low } else { *x })
                .collect();
            let mut x = b.input_of(HostTensor::from_f64(dtype, shape, &values));
            if !before.is_empty() {
                x = b.node(before, &[&x], &[]);
            }
            let flags = [("axis", int(axis)), ("select_last_index", int(last)), ("keepdims", int(0))];
            let y = b.node(op, &[&x], &flags);
            let one = b.ints(&[3]);
            let y = b.node("Add", &[&y, &one], &[]);
            b.output(&y);
            check_launches(&b, launches.clone(), 0.0, &what);
        }
    }
}

/// Sums of few columns of many rows go through pieces of rows, of which the last workgroup to come adds what all have left: with a shorter last piece, behind an expression of their own,
/// of several matrices, and of neighbouring columns that are no whole load.
#[test]
fn sums_of_few_columns_are_cut_in_pieces() {
    let cases: [(&str, &[usize], i64, DType, f64, RangeInclusive<usize>); 10] = [
        ("ReduceSum", &[65536, 32], 0, DType::F32, 1e-4, 1..=1),
        ("ReduceMean", &[65537, 40], 0, DType::F16, 2e-3, 1..=1),
        ("ReduceMax", &[2, 49152, 24], 1, DType::F32, 0.0, 1..=1),
        ("ReduceSumSquare", &[65536, 37], 0, DType::BF16, 1e-2, 1..=1),
        ("ReduceSum", &[65536, 32], 0, DType::I32, 0.0, 1..=1),
        ("ReduceMean", &[3, 3136, 144], 1, DType::F16, 2e-3, 1..=1),
        ("ReduceMean", &[1, 1000, 67], 1, DType::F32, 1e-4, 1..=1),
        ("ReduceLogSumExp", &[2, 5003, 96], 1, DType::F32, 1e-4, 1..=1),
        ("ReduceMin", &[9001, 48], 0, DType::F64, 0.0, 1..=1),
        ("ReduceSum", &[64, 4096], 0, DType::F32, 1e-4, 1..=1),
    ];
    for (op, shape, axis, dtype, tolerance, launches) in cases {
        let mut b = Builder::new(18, 11);
        let value = |x: &f64| if dtype == DType::I32 { (x * 1e4).round() } else { x + 0.25 };
        let values: Vec<f64> = b.random(shape).to_f64().iter().map(value).collect();
        let x = b.input_of(HostTensor::from_f64(dtype, shape, &values));
        let axes = b.ints(&[axis]);
        let y = b.node(op, &[&x, &axes], &[("keepdims", int(0))]);
        let y = if dtype == DType::F32 { b.node("Relu", &[&y], &[]) } else { y };
        b.output(&y);
        check_launches(&b, launches, tolerance, &format!("{op} of {shape:?} {dtype:?}"));
    }
}

/// What one elementwise step makes of each element is made where the element is reduced, also where the reduction walks in another order, unless
/// somebody else reads it too.
#[test]
fn reductions_begin_with_elementwise_steps() {
    let cases: [(&str, &str, &[usize], &[i64], bool, usize); 5] = [
        ("Cast", "ReduceSum", &[37, 65], &[0], false, 1),
        ("Exp", "ReduceSum", &[5, 33, 8], &[1], false, 1),
        ("Abs", "ReduceMax", &[9, 70], &[1], false, 1),
        ("Neg", "ArgMax", &[9, 70], &[1], false, 1),
        ("Exp", "ReduceMean", &[40, 33], &[0], true, 2),
    ];
    for (before, op, shape, axes, read, steps) in cases {
        let mut b = Builder::new(18, 5);
        let x = b.random(shape);
        let bytes: Vec<f64> = x.to_f64().iter().map(|x| (x * 100.0).round()).collect();
        let x = if before == "Cast" { HostTensor::from_f64(DType::I8, shape, &bytes) } else { x };
        let x = b.input_of(x);
        let to = if before == "Cast" { vec![("to", int(6))] } else { vec![] };
        let y = b.node(before, &[&x], &to);
        if read {
            b.output(&y);
        }
        let y = if op == "ArgMax" {
            b.node(op, &[&y], &[("axis", int(axes[0]))])
        } else {
            let axes = b.ints(axes);
            b.node(op, &[&y, &axes], &[("keepdims", int(0))])
        };
        b.output(&y);
        let fused = graph::fuse(&b.model, &Options::default()).unwrap();
        assert_eq!(fused.steps.len(), steps, "{before} {op}");
        agrees(&fused, &b, 1e-4, &format!("{before}, {op} of {shape:?}"), |_, _| ());
    }
}

/// Products and convolutions that read a part of the tensor that they write another part of, whose lanes reach behind what they read: behind the
/// last line of each matrix lies what others write, and where parts lie side by side also behind each line.
#[test]
fn products_beside_what_they_read() {
    let axis = |d: i64| [("axis", int(d))];
    for (case, &(batches, m, k)) in [(2, 5, 7), (3, 17, 24), (2, 33, 40), (3, 12, 68)].iter().enumerate() {
        for (t, most) in [(DType::F32, 1e-5), (DType::F16, 4e-3)] {
            for d in [1, 2] {
                let mut b = Builder::new(17, case as u64);
                let input = |b: &mut Builder, shape: &[usize]| {
                    let x = b.random(shape);
                    b.input_of(HostTensor::from_f64(t, shape, &x.to_f64()))
                };
                // Kernels of their own, which write parts.
                let (x, u) = (input(&mut b, &[batches, m, k]), input(&mut b, &[batches, m, k]));
                let [x, u] = [x, u].map(|x| b.node("Softmax", &[&x], &[]));
                let (right, left) = (input(&mut b, &[batches, k, k]), input(&mut b, &[batches, m, m]));
                let y = b.node("MatMul", &[&x, &right], &[]);
                let z = b.node("MatMul", &[&left, &u], &[]);
                for parts in [[&x, &y], [&z, &u]] {
                    let whole = b.node("Concat", &parts.map(String::as_str), &axis(d));
                    b.output(&whole);
                }
                let fused = graph::fuse(&b.model, &Options::default()).unwrap();
                let beside =
                    fused.steps.iter().filter(|s| s.inputs.iter().any(|a| a.tensor == s.output.tensor)).count();
                assert_eq!(beside, 2, "case {case}, parts along {d}");
                agrees(&fused, &b, most, &format!("{t} case {case}, parts along {d}"), |_, _| {});
            }
        }
    }
    for (case, &(images, channels, side, more)) in [(2, 8, 5, 4), (3, 16, 7, 12), (2, 24, 13, 40)].iter().enumerate() {
        let mut b = Builder::new(17, case as u64);
        let x = b.input(&[images, channels, side, side]);
        let x = b.node("Softmax", &[&x], &axis(1));
        let w = b.weight(&[more, channels, 1, 1]);
        let y = b.node("Conv", &[&x, &w], &[]);
        let whole = b.node("Concat", &[&x, &y], &axis(1));
        b.output(&whole);
        let fused = graph::fuse(&b.model, &Options::default()).unwrap();
        agrees(&fused, &b, 1e-4, &format!("convolution {case}"), |_, _| {});
    }
}

/// A workitem has more of short lines where waves would otherwise begin more slowly than memory feeds them: a wave more lines, a launch fewer workgroups.
#[test]
fn waves_have_several_short_lines() {
    for (op, shape, dtype, tolerance, workgroups) in [
        ("Softmax", [16_500, 49], DType::F16, 2e-3, 520),
        ("LogSoftmax", [132_000, 5], DType::F16, 4e-3, 520),
        ("LayerNormalization", [30_801, 33], DType::F16, 1e-2, 1000),
    ] {
        let mut b = Builder::new(17, 19);
        let x = b.random(&shape).to_f64();
        let x = b.input_of(HostTensor::from_f64(dtype, &shape, &x));
        let y = match op {
            "LayerNormalization" => {
                let scale: Vec<f64> = b.random(&shape[1..]).to_f64();
                let scale = b.constant(HostTensor::from_f64(dtype, &shape[1..], &scale));
                b.node(op, &[&x, &scale], &[])
            }
            _ => b.node(op, &[&x], &[]),
        };
        b.output(&y);
        let fused = graph::fuse(&b.model, &Options::default()).unwrap();
        let want = Interpreter::new(&fused).run(&fused, &b.inputs).unwrap();
        for target in ["gfx906", "gfx1030"] {
            let (mut session, compiled) =
                session(&fused, target, true).unwrap_or_else(|e| panic!("{op} {target}: {e}"));
            let grid = compiled.plan().launches[0].grid[0];
            assert!(target != "gfx906" || grid <= workgroups, "{op} on {target}: {grid} workgroups");
            let (got, _) = session.run(&b.inputs).unwrap_or_else(|e| panic!("{op} {target}: {e}"));
            let c = compare(&got[0], &want[0], tolerance, tolerance).unwrap();
            assert!(c.passes(), "{op} of {shape:?} on {target}: {c}");
        }
    }
}
