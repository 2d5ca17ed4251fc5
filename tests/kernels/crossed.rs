//! Steps that read memory along one dimension and write along another: softmax and normalisations behind a transposition, transpositions of many small matrices;
//! short lines of which a workgroup moves several together; quotients that become bytes.

use crate::support::build::{Builder, int, ints};
use crate::support::device::session;
use barewave::graph::interpret::Interpreter;
use barewave::graph::{self, Options};
use barewave::tensor::{DType, HostTensor, compare};

/// Runs a model in strict mode against the interpreter, in kernels whose names begin so.
fn is_one(b: &Builder, targets: &[&str], begins: &str, most: f64, what: &str) {
    let fused = graph::fuse(&b.model, &Options::default()).unwrap();
    let want = Interpreter::new(&fused).run(&fused, &b.inputs).unwrap();
    for target in targets {
        let (mut session, compiled) = session(&fused, target, true).unwrap_or_else(|e| panic!("{what} {target}: {e}"));
        let names: Vec<&str> = compiled.plan().launches.iter().map(|l| l.kernel.as_str()).collect();
        assert!(names.iter().all(|name| name.starts_with(begins)), "{what} on {target}: {names:?}");
        let (got, _) = session.run(&b.inputs).unwrap_or_else(|e| panic!("{what} {target}: {e}"));
        let c = compare(&got[0], &want[0], most, most).unwrap();
        assert!(c.passes(), "{what} on {target}: {c}");
    }
}

fn typed(b: &mut Builder, shape: &[usize], t: DType) -> String {
    let x = b.random(shape).to_f64();
    b.input_of(HostTensor::from_f64(t, shape, &x))
}

/// Channels that were first are last in what is made of them: whole pieces of lines and lines that are none, held and walked again.
#[test]
fn results_lie_along_lines() {
    let shapes = [
        [2, 96, 7, 9],
        [1, 21, 16, 17],
        [3, 33, 8, 8],
        [1, 200, 9, 15],
        [2, 768, 7, 7],
        [1, 2500, 6, 11],
        [5, 12, 30, 7],
    ];
    for (i, shape) in shapes.into_iter().enumerate() {
        for (j, (t, most)) in [(DType::F32, 3e-5), (DType::F16, 6e-3), (DType::BF16, 4e-2)].into_iter().enumerate() {
            let mut b = Builder::new(23, (10 * i + j) as u64);
            let x = typed(&mut b, &shape, t);
            let x = b.node("Transpose", &[&x], &[("perm", ints(&[0, 2, 3, 1]))]);
            let op = ["LayerNormalization", "RMSNormalization", "Softmax"][(i + j) % 3];
            let y = match op {
                "Softmax" => b.node(op, &[&x], &[("axis", int(-1))]),
                _ => {
                    let scale = b.random(&shape[1..2]).to_f64();
                    let scale = b.constant(HostTensor::from_f64(t, &shape[1..2], &scale));
                    b.node(op, &[&x, &scale], &[("axis", int(-1))])
                }
            };
            b.output(&y);
            let begins = if op == "Softmax" { "softmax" } else { "normalize" };
            is_one(
                &b,
                &["gfx803", "gfx906", "gfx942", "gfx1030", "gfx1201"],
                begins,
                most,
                &format!("{op} of {t} {shape:?}"),
            );
        }
    }
}

/// A normalisation over channels, written out node by node, difference and all, as torch does.
#[test]
fn channels_are_normalised_as_written_out() {
    for twice in [false, true] {
        let mut b = Builder::new(18, 7);
        let x = b.input(&[2, 24, 5, 7]);
        let axis = b.ints(&[1]);
        let mean = b.node("ReduceMean", &[&x, &axis], &[("keepdims", int(1))]);
        let d = b.node("Sub", &[&x, &mean], &[]);
        let two = b.constant(HostTensor::from_f32(&[], &[2.0]));
        let square = b.node("Pow", &[&d, &two], &[]);
        let variance = b.node("ReduceMean", &[&square, &axis], &[("keepdims", int(1))]);
        let tiny = b.constant(HostTensor::from_f32(&[], &[1e-6]));
        let variance = b.node("Add", &[&variance, &tiny], &[]);
        let deviation = b.node("Sqrt", &[&variance], &[]);
        let d = if twice { b.node("Sub", &[&x, &mean], &[]) } else { d };
        let y = b.node("Div", &[&d, &deviation], &[]);
        let (scale, bias) = (b.weight(&[24, 1, 1]), b.weight(&[24, 1, 1]));
        let y = b.node("Mul", &[&scale, &y], &[]);
        let y = b.node("Add", &[&y, &bias], &[]);
        b.output(&y);
        is_one(&b, &["gfx906", "gfx1100"], "normalize", 1e-4, &format!("twice {twice}"));
        let fused = graph::fuse(&b.model, &Options::default()).unwrap();
        let got = Interpreter::new(&fused).run(&fused, &b.inputs).unwrap().remove(0).to_f64();
        let data = |name: &str| b.model.graph.initializers[name].to_f64();
        let (x, scale, bias) = (b.inputs[0].to_f64(), data(&scale), data(&bias));
        for (i, y) in got.iter().enumerate() {
            let (image, c, place) = (i / 840, i / 35 % 24, i % 35);
            let line: Vec<f64> = (0..24).map(|c| x[image * 840 + c * 35 + place]).collect();
            let mean = line.iter().sum::<f64>() / 24.0;
            let variance = line.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 24.0;
            let want = (line[c] - mean) / (variance + 1e-6).sqrt() * scale[c] + bias[c];
            assert!((y - want).abs() < 1e-4, "{i}: {y} for {want}");
        }
    }
}

/// Transpositions of small matrices, a run of them at a time: of odd and even extents, of all sizes of elements, in any order of dimensions.
#[test]
fn small_matrices_are_turned_in_runs() {
    let shapes: [(&[usize], &[usize]); 5] = [
        (&[121, 49, 32], &[0, 2, 1]),
        (&[70, 77, 77], &[0, 2, 1]),
        (&[123, 30, 7, 7], &[0, 2, 3, 1]),
        (&[90, 5, 9, 44], &[0, 3, 1, 2]),
        (&[3, 60, 25, 35], &[0, 1, 3, 2]),
    ];
    for (i, (shape, perm)) in shapes.into_iter().enumerate() {
        for t in [DType::I8, DType::F16, DType::F32] {
            let mut b = Builder::new(17, i as u64);
            let n: usize = shape.iter().product();
            let all: Vec<f64> = (0..n).map(|_| b.below(251) as f64 - 125.0).collect();
            let x = b.input_of(HostTensor::from_f64(t, shape, &all));
            let y = b.node("Transpose", &[&x], &[("perm", ints(perm))]);
            b.output(&y);
            is_one(&b, &["gfx1036"], "pointwise", 0.0, &format!("{t} {shape:?}"));
        }
    }
}

/// Lines of a few elements, of which each workitem takes several by way of LDS, and scores with a bias of each head.
#[test]
fn short_lines_go_through_lds() {
    for (i, (shape, bias)) in [
        ([1, 1, 40_002, 3], false),
        ([1, 1, 10_000, 10], false),
        ([1, 1, 6006, 16], false),
        ([30, 3, 49, 49], true),
        ([20, 4, 50, 50], true),
        ([5, 6, 64, 64], true),
    ]
    .into_iter()
    .enumerate()
    {
        for (t, most) in [(DType::F32, 2e-5), (DType::F16, 3e-3)] {
            let mut b = Builder::new(17, i as u64);
            let mut x = typed(&mut b, &shape, t);
            if bias {
                let row = typed(&mut b, &[1, shape[1], shape[2], shape[3]], t);
                x = b.node("Add", &[&x, &row], &[]);
            }
            let y = b.node("Softmax", &[&x], &[("axis", int(-1))]);
            b.output(&y);
            let begins = if bias { "computed_softmax" } else { "softmax" };
            is_one(&b, &["gfx902", "gfx1036"], begins, most, &format!("{t} {shape:?}"));
        }
    }
}

/// What becomes a byte is on the right side of every middle between two whole numbers, whatever it is divided by; infinities and what overflows are the last bytes.
#[test]
fn quotients_become_bytes() {
    let far = [f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN, 1e-40, -1e-40, 0.0, -0.0];
    for (i, scale) in [0.0131f32, 0.01, 1.0 / 3.0, 2.5, 0.125, 7e-5, 1.9999999, 1e-30, 3e30].into_iter().enumerate() {
        for (t, zero) in [(DType::U8, 3), (DType::I8, -7), (DType::I8, 0)] {
            let middles = (-300..300).flat_map(|n| {
                let middle = ((f64::from(n) + 0.5) * f64::from(scale)) as f32;
                [middle.next_down(), middle, middle.next_up(), middle * 1.1]
            });
            let all: Vec<f32> = middles.chain(far).collect();
            let mut b = Builder::new(19, i as u64);
            let x = b.input_of(HostTensor::from_f32(&[all.len()], &all));
            let s = b.constant(HostTensor::from_f32(&[], &[scale]));
            let z = b.constant(HostTensor::from_f64(t, &[], &[f64::from(zero)]));
            let y = b.node("QuantizeLinear", &[&x, &s, &z], &[]);
            b.output(&y);
            let fused = graph::fuse(&b.model, &Options::default()).unwrap();
            for target in ["gfx906", "gfx1100"] {
                let (mut session, _) = session(&fused, target, true).unwrap();
                let got = session.run(&b.inputs).unwrap().0.remove(0).to_f64();
                let (low, high) = if t == DType::U8 { (0.0, 255.0) } else { (-128.0, 127.0) };
                for (x, y) in all.iter().zip(got) {
                    let want = (f64::from((x / scale).round_ties_even()) + f64::from(zero)).clamp(low, high);
                    assert_eq!(y, want, "{x} by {scale} to {t} on {target}");
                }
            }
        }
    }
}

/// Heads that lie last in what is read, and not in the result: lines that lie among those of a few others, held and not, with operands of each head;
/// and of many heads columns.
#[test]
fn lines_lie_among_others() {
    let shapes = [
        [2, 13, 40, 4],
        [1, 300, 37, 6],
        [3, 9, 196, 8],
        [1, 5, 700, 3],
        [2, 7, 3000, 2],
        [1, 11, 90, 48],
        [1, 260, 66, 12],
    ];
    for (i, shape) in shapes.into_iter().enumerate() {
        for (j, (t, most)) in [(DType::F32, 3e-5), (DType::F16, 6e-3)].into_iter().enumerate() {
            let mut b = Builder::new(23, (10 * i + j) as u64);
            let x = typed(&mut b, &shape, t);
            let x = b.node("Transpose", &[&x], &[("perm", ints(&[0, 3, 1, 2]))]);
            let norm = (i + j) % 3 == 0;
            let y = if norm {
                let scale = b.random(&shape[2..3]).to_f64();
                let scale = b.constant(HostTensor::from_f64(t, &shape[2..3], &scale));
                b.node("LayerNormalization", &[&x, &scale], &[("axis", int(-1))])
            } else {
                let y = b.node("Softmax", &[&x], &[("axis", int(-1))]);
                let of_head = b.random(&[shape[3], 1, 1]).to_f64();
                let of_head = b.constant(HostTensor::from_f64(t, &[shape[3], 1, 1], &of_head));
                let other = typed(&mut b, &[shape[0], shape[3], shape[1], shape[2]], t);
                let y = b.node("Mul", &[&y, &of_head], &[]);
                b.node("Add", &[&y, &other], &[])
            };
            b.output(&y);
            let begins = if norm { "normalize" } else { "softmax" };
            is_one(&b, &["gfx906", "gfx942", "gfx1030", "gfx1100", "gfx1201"], begins, most, &format!("{t} {shape:?}"));
        }
    }
}

/// Softmax over tokens, an odd number of them, in one walk and in pieces of which the last is shorter: elements of a line lie together in the result.
#[test]
fn results_of_odd_lines_go_through_lds() {
    for (i, (shape, t)) in [
        ([1, 3137, 152], DType::F16),
        ([2, 1001, 40], DType::F16),
        ([3, 197, 64], DType::F16),
        ([1, 5001, 96], DType::F32),
    ]
    .into_iter()
    .enumerate()
    {
        let mut b = Builder::new(23, i as u64);
        let x = typed(&mut b, &shape, t);
        let x = b.node("Transpose", &[&x], &[("perm", ints(&[0, 2, 1]))]);
        let y = b.node("Softmax", &[&x], &[("axis", int(-1))]);
        b.output(&y);
        is_one(&b, &["gfx906", "gfx942", "gfx1100"], "softmax", 6e-3, &format!("{t} {shape:?}"));
    }
}
