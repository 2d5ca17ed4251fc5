//! Dense products of which one gates the other: both columns of a result in one launch, as two products and as halves of one, with what normalises
//! their rows.

use crate::joined::outputs_on;
use crate::support::build::{Builder, float, int};
use barewave::graph::interpret::Interpreter;
use barewave::graph::{Options, fuse};
use barewave::kernels;
use barewave::tensor::{DType, HostTensor};
use barewave_isa::Target;

const TARGETS: [&str; 7] = ["gfx803", "gfx906", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201"];

/// How a model writes a gated layer.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    /// One product of twice as many columns, halved: `value * gelu(gate)`, with a bias.
    Halves,
    /// The same with weights that lie along the depth.
    Turned,
    /// `silu(x W) * (x V)`.
    Two,
    /// The same behind a normalisation of rows.
    Normed,
}

/// A gated layer of so many rows, depth and columns.
fn layer(b: &mut Builder, t: DType, [m, k, n]: [usize; 3], form: Form) {
    let values = |b: &mut Builder, shape: &[usize]| {
        let x = b.random(shape).to_f64();
        HostTensor::from_f64(t, shape, &x)
    };
    let x = values(b, &[m, k]);
    let x = b.input_of(x);
    let constant = |b: &mut Builder, shape: &[usize]| {
        let value = values(b, shape);
        b.constant(value)
    };
    let y = match form {
        Form::Halves | Form::Turned => {
            let bias = constant(b, &[2 * n]);
            let both = if form == Form::Turned {
                let w = constant(b, &[2 * n, k]);
                b.node("Gemm", &[&x, &w, &bias], &[("transB", int(1))])
            } else {
                let w = constant(b, &[k, 2 * n]);
                let y = b.node("MatMul", &[&x, &w], &[]);
                b.node("Add", &[&y, &bias], &[])
            };
            let halves = b.node_n("Split", &[&both], &[("axis", int(-1)), ("num_outputs", int(2))], 2);
            let gate = b.node("Gelu", &[&halves[1]], &[]);
            b.node("Mul", &[&halves[0], &gate], &[])
        }
        Form::Two | Form::Normed => {
            let x = if form == Form::Normed {
                let scale = constant(b, &[k]);
                b.node("RMSNormalization", &[&x, &scale], &[("axis", int(-1)), ("epsilon", float(1e-3))])
            } else {
                x
            };
            let [w, v] = [constant(b, &[k, n]), constant(b, &[k, n])];
            let [gate, up] = [b.node("MatMul", &[&x, &w], &[]), b.node("MatMul", &[&x, &v], &[])];
            let factor = b.node("Sigmoid", &[&gate], &[]);
            let gate = b.node("Mul", &[&gate, &factor], &[]);
            b.node("Mul", &[&gate, &up], &[])
        }
    };
    b.output(&y);
}

#[test]
fn gated_layers_are_one_launch() {
    // One tile and several, odd ones, few rows, deep ones, and columns that do not fill tiles.
    let extents =
        [[7, 64, 50], [1, 256, 96], [130, 72, 96], [33, 129, 258], [16, 64, 700], [4, 2048, 64], [64, 768, 192]];
    let forms = [Form::Halves, Form::Turned, Form::Two, Form::Normed];
    let mut number = 0;
    for [m, k, n] in extents {
        for (t, most) in [(DType::F32, 1e-5), (DType::F16, 6e-3), (DType::BF16, 4e-2)] {
            number += 1;
            let form = forms[(number + number / 4) % 4];
            let mut b = Builder::new(23, number as u64);
            layer(&mut b, t, [m, k, n], form);
            let what = format!("{m} {k} {n} {t} {form:?}");
            let name = if form == Form::Normed { "standardized_gated" } else { "gated" };
            let (_, joined) = outputs_on(&TARGETS, &b, &what, most, name);
            assert!(joined >= 3 || form == Form::Normed, "{what}: one launch on {joined} targets");
            // The products of pairs by themselves, as the interpreter has them.
            let graph = fuse(&b.model, &Options::default()).unwrap();
            let target = Target::parse("gfx942").unwrap();
            let whole = kernels::joined(&graph, target, &Default::default()).expect("products are joined");
            let [apart, whole] = [&graph, &whole].map(|g| Interpreter::new(g).run(g, &b.inputs).unwrap());
            let size = apart[0].to_f64().iter().fold(0.0, |m: f64, x| m.max(x.abs()));
            for (x, y) in whole[0].to_f64().iter().zip(apart[0].to_f64()) {
                assert!((x - y).abs() <= most * size, "{what}: {x:e} instead of {y:e}");
            }
        }
    }
}
