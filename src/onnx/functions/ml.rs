//! Support vector machines of ai.onnx.ml.

use super::{Attribute, Body};
use crate::tensor::HostTensor;

pub(super) fn body(op: &str) -> Option<fn(&mut Body<'_>)> {
    Some(match op {
        "SVMClassifier" => classifier,
        "SVMRegressor" => regressor,
        _ => return None,
    })
}

fn floats(b: &Body<'_>, name: &str) -> Vec<f32> {
    match b.attribute(name) {
        Some(Attribute::Floats(v)) => v.clone(),
        _ => Vec::new(),
    }
}

/// The most weights of vectors for pairs of classes.
const MOST_WEIGHTS: usize = 1 << 28;

/// How alike each row of the features is to each support vector.
fn likeness(b: &mut Body<'_>, x: &str, count: usize) -> String {
    let vectors = floats(b, "support_vectors");
    if count == 0 || !vectors.len().is_multiple_of(count) || vectors.is_empty() {
        b.ignore(&["kernel_params", "kernel_type"]);
        return b.op(&format!("ai.onnx.ml:SVM with {} numbers for {count} vectors", vectors.len()), &[x]);
    }
    let width = vectors.len() / count;
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

/// Scores of pairs of classes by the vectors of both, and votes for the better one of each; or, without vectors, a linear
/// model of each class.
fn classifier(b: &mut Body<'_>) {
    let x = b.input(0).to_string();
    let x = b.with("Cast", &[&x], &[("to", Attribute::Int(1))]);
    let labels = match (b.attribute("classlabels_ints"), b.attribute("classlabels_strings")) {
        (Some(Attribute::Ints(v)), _) if !v.is_empty() => b.ints(v),
        (_, Some(list @ Attribute::Texts(_))) => b.with("Constant", &[], &[("value_strings", list.clone())]),
        _ => b.op("ai.onnx.ml:SVMClassifier without labels", &[&x]),
    };
    let coefficients = floats(b, "coefficients");
    let per_class: Vec<usize> = match b.attribute("vectors_per_class") {
        Some(Attribute::Ints(v)) => v.iter().map(|n| usize::try_from(*n).unwrap_or(0)).collect(),
        _ => Vec::new(),
    };
    let count: usize = per_class.iter().fold(0, |n, c| n.saturating_add(*c));
    let weights = per_class.len().checked_pow(2).and_then(|pairs| pairs.checked_mul(count));
    if weights.is_none_or(|n| n > MOST_WEIGHTS) {
        b.ignore(&["kernel_params", "kernel_type", "post_transform", "prob_a", "prob_b", "rho", "support_vectors"]);
        let refused = format!("ai.onnx.ml:SVMClassifier of {} classes and {count} vectors", per_class.len());
        let y = b.op(&refused, &[&x]);
        b.set(0, &y);
        return;
    }
    let (votes, scores) = if count == 0 {
        b.ignore(&["kernel_params", "kernel_type"]);
        let classes = label_count(b).max(1);
        let weights = b.constant(HostTensor::from_f32(
            &[classes, coefficients.len() / classes],
            &coefficients[..coefficients.len() / classes * classes],
        ));
        let weights = b.with("Transpose", &[&weights], &[("perm", Attribute::Ints(vec![1, 0]))]);
        let product = b.op("MatMul", &[&x, &weights]);
        let rho = floats(b, "rho").first().copied().unwrap_or(0.0);
        let rho = b.number(rho);
        let scores = b.op("Add", &[&product, &rho]);
        (scores.clone(), after(b, scores))
    } else {
        let pairs = pair_scores(b, &x, &per_class, &coefficients);
        let (votes, probabilities) = (votes(b, &pairs, per_class.len()), probabilities(b, &pairs, per_class.len()));
        let binary = per_class.len() == 2;
        let scores = match probabilities {
            Some(scores) => after(b, scores),
            None if binary => {
                let other = b.op("Neg", &[&pairs]);
                let both = b.with("Concat", &[&other, &pairs], &[("axis", Attribute::Int(1))]);
                after(b, both)
            }
            None => after(b, pairs),
        };
        (votes, scores)
    };
    let best = b.with("ArgMax", &[&votes], &[("axis", Attribute::Int(1)), ("keepdims", Attribute::Int(0))]);
    let label = b.op("Gather", &[&labels, &best]);
    b.set(0, &label);
    b.set(1, &scores);
}

fn label_count(b: &Body<'_>) -> usize {
    match (b.attribute("classlabels_ints"), b.attribute("classlabels_strings")) {
        (Some(Attribute::Ints(v)), _) if !v.is_empty() => v.len(),
        (_, Some(Attribute::Texts(v))) => v.len(),
        _ => 0,
    }
}

/// The pairs of `classes` classes, in their order.
fn pairs_of(classes: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..classes).flat_map(move |i| (i + 1..classes).map(move |j| (i, j)))
}

/// `[rows, pairs]` scores: positive where the first of the two classes is the better one.
fn pair_scores(b: &mut Body<'_>, x: &str, per_class: &[usize], coefficients: &[f32]) -> String {
    let (classes, count) = (per_class.len(), per_class.iter().sum::<usize>());
    let like = likeness(b, x, count);
    let pairs: Vec<(usize, usize)> = pairs_of(classes).collect();
    let starts: Vec<usize> = per_class.iter().scan(0, |at, n| Some(std::mem::replace(at, *at + n))).collect();
    let mut weights = vec![0.0; count * pairs.len()];
    for (p, &(i, j)) in pairs.iter().enumerate() {
        // The vectors of a class have a coefficient against each other class.
        for (class, row) in [(i, j - 1), (j, i)] {
            for s in starts[class]..starts[class] + per_class[class] {
                weights[s * pairs.len() + p] = coefficients.get(row * count + s).copied().unwrap_or(0.0);
            }
        }
    }
    let weights = b.constant(HostTensor::from_f32(&[count, pairs.len()], &weights));
    let sum = b.op("MatMul", &[&like, &weights]);
    let mut rho = floats(b, "rho");
    rho.resize(pairs.len(), 0.0);
    let rho = b.constant(HostTensor::from_f32(&[1, pairs.len()], &rho));
    b.op("Add", &[&sum, &rho])
}

/// How often each class is the better one of a pair.
fn votes(b: &mut Body<'_>, pairs: &str, classes: usize) -> String {
    let zero = b.number(0.0);
    let first = b.op("Greater", &[pairs, &zero]);
    let first = b.with("Cast", &[&first], &[("to", Attribute::Int(1))]);
    let count = pairs_of(classes).count();
    let (mut change, mut base) = (vec![0.0; count * classes], vec![0.0; classes]);
    for (p, (i, j)) in pairs_of(classes).enumerate() {
        (change[p * classes + i], change[p * classes + j]) = (1.0, -1.0);
        base[j] += 1.0;
    }
    let change = b.constant(HostTensor::from_f32(&[count, classes], &change));
    let base = b.constant(HostTensor::from_f32(&[1, classes], &base));
    let product = b.op("MatMul", &[&first, &change]);
    b.op("Add", &[&product, &base])
}

/// Probabilities of the classes out of those of pairs (Wu, Lin and Weng, 2004), where the model was trained for them.
fn probabilities(b: &mut Body<'_>, pairs: &str, classes: usize) -> Option<String> {
    let (slope, offset) = (floats(b, "prob_a"), floats(b, "prob_b"));
    let count = pairs_of(classes).count();
    if slope.len() != count || offset.len() != count {
        return None;
    }
    let negative = |list: &[f32]| list.iter().map(|v| -v).collect::<Vec<f32>>();
    let slope = b.constant(HostTensor::from_f32(&[1, count], &negative(&slope)));
    let offset = b.constant(HostTensor::from_f32(&[1, count], &negative(&offset)));
    let scaled = b.op("Mul", &[pairs, &slope]);
    let moved = b.op("Add", &[&scaled, &offset]);
    let each = b.op("Sigmoid", &[&moved]);
    let (low, high) = (b.number(1e-7), b.number(1.0 - 1e-7));
    let each = b.op("Clip", &[&each, &low, &high]);
    Some(b.with("barewave:Coupled", &[&each], &[("classes", Attribute::Int(classes as i64))]))
}

/// What `post_transform` makes of scores.
fn after(b: &mut Body<'_>, scores: String) -> String {
    match b.text("post_transform").unwrap_or("NONE") {
        "NONE" => scores,
        "LOGISTIC" => b.op("Sigmoid", &[&scores]),
        "SOFTMAX" => b.with("Softmax", &[&scores], &[("axis", Attribute::Int(1))]),
        // Stops the model with the name of what is not known.
        other => {
            let op = format!("ai.onnx.ml:SVMClassifier with {other}");
            b.op(&op, &[&scores])
        }
    }
}

/// The sum of the vectors' coefficients by likeness, or, without vectors, a linear model.
fn regressor(b: &mut Body<'_>) {
    let x = b.input(0).to_string();
    let x = b.with("Cast", &[&x], &[("to", Attribute::Int(1))]);
    let coefficients = floats(b, "coefficients");
    let count = usize::try_from(b.int("n_supports", 0)).unwrap_or(0);
    b.idle("post_transform", Attribute::Text("NONE".into()));
    let features = if count > 0 {
        likeness(b, &x, count)
    } else {
        b.ignore(&["kernel_params", "kernel_type"]);
        x
    };
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
