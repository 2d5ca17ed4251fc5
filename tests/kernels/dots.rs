//! Products of a few rows with weights that lie along the depth.

use crate::support::agree::{TARGETS, outputs};
use crate::support::build::{Builder, int};
use barewave::graph::{Options, fuse};
use barewave::kernels;
use barewave::tensor::{DType, HostTensor};
use barewave_isa::Target;

/// Values whose products and their sums are exact in f32.
fn values(b: &mut Builder, t: DType, shape: &[usize]) -> HostTensor {
    let values = (0..shape.iter().product()).map(|_| (b.below(17) as f64 - 8.0) / 4.0);
    HostTensor::from_f64(t, shape, &values.collect::<Vec<_>>())
}

/// How a model writes the product.
#[derive(Clone, Copy, Debug)]
enum Form {
    /// `x w^T + b`, activated, and a residual added.
    Gemm,
    /// The weights are the left factor.
    Left,
    /// A window over all of an image.
    Window,
}

/// Rows, columns and depth.
const CASES: [(usize, usize, usize); 10] = [
    (1, 28, 672),
    (1, 120, 480),
    (8, 33, 96),
    (3, 77, 200),
    (1, 1000, 1036),
    (5, 10, 1280),
    (2, 1, 64),
    (1, 7, 2056),
    (7, 5, 26),
    (1, 2003, 4104),
];

#[test]
fn products_of_few_lines() {
    let mut found = 0;
    for (number, (rows, columns, depth)) in CASES.into_iter().enumerate() {
        for (t, form) in [DType::F32, DType::F16, DType::BF16].into_iter().zip([Form::Gemm, Form::Left, Form::Window]) {
            // Every type sees every form.
            let t = [t, DType::F32, DType::F16, DType::BF16][number % 4];
            let mut b = Builder::new(20, number as u64);
            let w = values(&mut b, t, &[columns, depth]);
            let y = match form {
                Form::Gemm => {
                    let x = values(&mut b, t, &[rows, depth]);
                    let (bias, other) = (values(&mut b, t, &[columns]), values(&mut b, t, &[rows, columns]));
                    let (x, w, bias, other) = (b.input_of(x), b.constant(w), b.constant(bias), b.input_of(other));
                    let y = b.node("Gemm", &[&x, &w, &bias], &[("transB", int(1))]);
                    let y = b.node("Relu", &[&y], &[]);
                    b.node("Add", &[&y, &other], &[])
                }
                Form::Left => {
                    let x = values(&mut b, t, &[rows, depth]);
                    let (x, w) = (b.input_of(x), b.input_of(w));
                    let x = b.node("Transpose", &[&x], &[]);
                    b.node("MatMul", &[&w, &x], &[])
                }
                Form::Window => {
                    let (x, w) =
                        (values(&mut b, t, &[rows, depth / 2, 1, 2]), w.reshaped(&[columns, depth / 2, 1, 2]).unwrap());
                    let (x, w) = (b.input_of(x), b.constant(w));
                    b.node("Conv", &[&x, &w], &[])
                }
            };
            b.output(&y);
            let graph = fuse(&b.model, &Options::default()).unwrap();
            let step = graph.steps.last().unwrap();
            for target in TARGETS.map(|t| Target::parse(t).unwrap()) {
                let considered = kernels::candidates(&graph, step, target, &Default::default());
                found += usize::from(considered.is_some_and(|c| c.by_lines));
            }
            let most = if t == DType::F32 { 1e-6 } else { 4e-3 };
            outputs(&b, &format!("{rows} x {columns} x {depth} {t} {form:?}"), most);
        }
    }
    assert!(found >= 80, "{found} of 150 are computed line by line");
}
