//! Support vector machines of ai.onnx.ml.

use super::{Attribute, Body};
use crate::tensor::HostTensor;

pub(super) fn body(op: &str) -> Option<fn(&mut Body<'_>)> {
    Some(match op {
        "SVMRegressor" => regressor,
        _ => return None,
    })
}

fn floats(b: &Body<'_>, name: &str) -> Vec<f32> {
    match b.node.attributes.get(name) {
        Some(Attribute::Floats(v)) => v.clone(),
        _ => Vec::new(),
    }
}

/// How alike each row of the features is to each support vector.
fn likeness(b: &mut Body<'_>, x: &str, count: usize) -> String {
    let vectors = floats(b, "support_vectors");
    let width = vectors.len() / count.max(1);
    let parameters = floats(b, "kernel_params");
    let at = |i: usize| parameters.get(i).copied().unwrap_or(0.0);
    let kind = b.text("kernel_type").unwrap_or("LINEAR").to_string();
    let vectors = b.constant(HostTensor::from_f32(&[count, width], &vectors));
    if kind == "RBF" {
        let one = b.ints(&[1]);
        let rows = b.op("Unsqueeze", &[x, &one]);
        let apart = b.op("Sub", &[&rows, &vectors]);
        let squares = b.op("Mul", &[&apart, &apart]);
        let last = b.ints(&[-1]);
        let distance = b.with("ReduceSum", &[&squares, &last], &[("keepdims", Attribute::Int(0))]);
        let gamma = b.number(-at(0));
        let scaled = b.op("Mul", &[&distance, &gamma]);
        return b.op("Exp", &[&scaled]);
    }
    let turned = b.with("Transpose", &[&vectors], &[("perm", Attribute::Ints(vec![1, 0]))]);
    let product = b.op("MatMul", &[x, &turned]);
    if kind == "LINEAR" {
        return product;
    }
    let (gamma, offset) = (b.number(at(0)), b.number(at(1)));
    let scaled = b.op("Mul", &[&product, &gamma]);
    let moved = b.op("Add", &[&scaled, &offset]);
    match kind.as_str() {
        "SIGMOID" => b.op("Tanh", &[&moved]),
        "POLY" => {
            let degree = b.number(at(2));
            b.op("Pow", &[&moved, &degree])
        }
        // Stops the model with the name of what is not known.
        other => b.op(&format!("ai.onnx.ml:SVM {other}"), &[&moved]),
    }
}

/// The sum of the vectors' coefficients by likeness, or, without vectors, a linear model.
fn regressor(b: &mut Body<'_>) {
    let x = b.input(0).to_string();
    let x = b.with("Cast", &[&x], &[("to", Attribute::Int(1))]);
    let coefficients = floats(b, "coefficients");
    let count = usize::try_from(b.int("n_supports", 0)).unwrap_or(0);
    let features = if count > 0 { likeness(b, &x, count) } else { x };
    let weights = b.constant(HostTensor::from_f32(&[coefficients.len(), 1], &coefficients));
    let sum = b.op("MatMul", &[&features, &weights]);
    let rho = floats(b, "rho").first().copied().unwrap_or(0.0);
    let rho = b.number(rho);
    let mut y = b.op("Add", &[&sum, &rho]);
    if b.int("one_class", 0) != 0 {
        let [zero, inside, outside] = [0.0, 1.0, -1.0].map(|v| b.number(v));
        let positive = b.op("Greater", &[&y, &zero]);
        y = b.op("Where", &[&positive, &inside, &outside]);
    }
    b.set(0, &y);
}
