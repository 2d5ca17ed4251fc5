//! Steps of optimisers, and operators that behave otherwise in training, as far as nothing is random.

use super::{Attribute, Body};

pub(super) fn body(op: &str) -> Option<fn(&mut Body<'_>)> {
    Some(match op {
        "Adagrad" => adagrad,
        "Adam" => adam,
        "Momentum" => momentum,
        _ => return None,
    })
}

/// Input `i` of tensor `k`: behind the rate and the count of steps stand all tensors, then all gradients, then all states.
fn of(b: &Body<'_>, kinds: usize, i: usize, k: usize) -> String {
    let count = b.node.inputs.len().saturating_sub(2) / kinds;
    b.input(2 + i * count + k).to_string()
}

/// `x * factor`
fn times(b: &mut Body<'_>, x: &str, factor: f32) -> String {
    let factor = b.number(factor);
    let factor = b.op("CastLike", &[&factor, x]);
    b.op("Mul", &[x, &factor])
}

/// The gradient with the norm's part, for tensor `x`.
fn regularised(b: &mut Body<'_>, x: &str, g: &str) -> String {
    let norm = b.float("norm_coefficient", 0.0);
    let part = times(b, x, norm);
    b.op("Add", &[&part, g])
}

/// The root of `h`, with epsilon.
fn root(b: &mut Body<'_>, h: &str) -> String {
    let epsilon = b.float("epsilon", 0.0);
    let epsilon = b.number(epsilon);
    let epsilon = b.op("CastLike", &[&epsilon, h]);
    let root = b.op("Sqrt", &[h]);
    b.op("Add", &[&root, &epsilon])
}

/// `x - rate * direction`
fn stepped(b: &mut Body<'_>, x: &str, rate: &str, direction: &str) -> String {
    let rate = b.op("CastLike", &[rate, x]);
    let step = b.op("Mul", &[&rate, direction]);
    b.op("Sub", &[x, &step])
}

fn adagrad(b: &mut Body<'_>) {
    let (rate, count) = (b.input(0).to_string(), b.node.inputs.len().saturating_sub(2) / 3);
    let steps = b.op("CastLike", &[b.input(1).to_string().as_str(), &rate]);
    let decay = b.float("decay_factor", 0.0);
    let decay = times(b, &steps, decay);
    let one = b.number(1.0);
    let one = b.op("CastLike", &[&one, &rate]);
    let slower = b.op("Add", &[&decay, &one]);
    let rate = b.op("Div", &[&rate, &slower]);
    for k in 0..count {
        let [x, g, h] = [0, 1, 2].map(|i| of(b, 3, i, k));
        let g = regularised(b, &x, &g);
        let square = b.op("Mul", &[&g, &g]);
        let h = b.op("Add", &[&h, &square]);
        let root = root(b, &h);
        let direction = b.op("Div", &[&g, &root]);
        let y = stepped(b, &x, &rate, &direction);
        b.set(k, &y);
        b.set(count + k, &h);
    }
}

fn adam(b: &mut Body<'_>) {
    let (mut rate, count) = (b.input(0).to_string(), b.node.inputs.len().saturating_sub(2) / 4);
    let (alpha, beta) = (b.float("alpha", 0.9), b.float("beta", 0.999));
    // Both averages start from 0: what they lack is made up for, once there was a step.
    let steps = b.op("CastLike", &[b.input(1).to_string().as_str(), &rate]);
    let one = b.number(1.0);
    let one = b.op("CastLike", &[&one, &rate]);
    let lacking = |b: &mut Body<'_>, factor: f32| {
        let factor = b.number(factor);
        let factor = b.op("CastLike", &[&factor, &one]);
        let power = b.op("Pow", &[&factor, &steps]);
        b.op("Sub", &[&one, &power])
    };
    let (of_alpha, of_beta) = (lacking(b, alpha), lacking(b, beta));
    let of_beta = b.op("Sqrt", &[&of_beta]);
    let adjusted = b.op("Mul", &[&rate, &of_beta]);
    let adjusted = b.op("Div", &[&adjusted, &of_alpha]);
    let none = b.op("Sub", &[&one, &one]);
    let started = b.op("Greater", &[&steps, &none]);
    rate = b.op("Where", &[&started, &adjusted, &rate]);
    let post = 1.0 - b.float("norm_coefficient_post", 0.0);
    for k in 0..count {
        let [x, g, v, h] = [0, 1, 2, 3].map(|i| of(b, 4, i, k));
        let g = regularised(b, &x, &g);
        let square = b.op("Mul", &[&g, &g]);
        let average = |b: &mut Body<'_>, old: &str, new: &str, keep: f32| {
            let (old, new) = (times(b, old, keep), times(b, new, 1.0 - keep));
            b.op("Add", &[&old, &new])
        };
        let (v, h) = (average(b, &v, &g, alpha), average(b, &h, &square, beta));
        let root = root(b, &h);
        let direction = b.op("Div", &[&v, &root]);
        let y = stepped(b, &x, &rate, &direction);
        let y = times(b, &y, post);
        b.set(k, &y);
        b.set(count + k, &v);
        b.set(2 * count + k, &h);
    }
}

fn momentum(b: &mut Body<'_>) {
    let (rate, count) = (b.input(0).to_string(), b.node.inputs.len().saturating_sub(2) / 3);
    let (alpha, beta) = (b.float("alpha", 0.0), b.float("beta", 0.0));
    let nesterov = b.text("mode") == Some("nesterov");
    let zero = b.ints(&[0]);
    let started = b.op("Greater", &[b.input(1).to_string().as_str(), &zero]);
    for k in 0..count {
        let [x, g, v] = [0, 1, 2].map(|i| of(b, 3, i, k));
        let g = regularised(b, &x, &g);
        let own = times(b, &g, beta);
        // The first step takes the whole gradient.
        let own = b.op("Where", &[&started, &own, &g]);
        let kept = times(b, &v, alpha);
        let v = b.op("Add", &[&kept, &own]);
        let direction = if nesterov {
            let ahead = times(b, &v, alpha);
            b.op("Add", &[&g, &ahead])
        } else {
            v.clone()
        };
        let y = stepped(b, &x, &rate, &direction);
        b.set(k, &y);
        b.set(count + k, &v);
    }
}

/// BatchNormalization by the statistics of the batch, which move the running ones.
pub(super) fn batch_norm(b: &mut Body<'_>) {
    b.idle("training_mode", Attribute::Int(1));
    b.idle("spatial", Attribute::Int(1));
    let [x, scale, bias, mean, var] = [0, 1, 2, 3, 4].map(|i| b.input(i).to_string());
    let flat = b.ints(&[0, 0, -1]);
    let flat = b.op("Reshape", &[&x, &flat]);
    let axes = b.ints(&[0, 2]);
    let averaged =
        |b: &mut Body<'_>, x: &str, keep: i64| b.with("ReduceMean", &[x, &axes], &[("keepdims", Attribute::Int(keep))]);
    let (kept, own_mean) = (averaged(b, &flat, 1), averaged(b, &flat, 0));
    let centered = b.op("Sub", &[&flat, &kept]);
    let squares = b.op("Mul", &[&centered, &centered]);
    let own_var = averaged(b, &squares, 0);
    let epsilon = ("epsilon", Attribute::Float(b.float("epsilon", 1e-5)));
    let y = b.with("BatchNormalization", &[&x, &scale, &bias, &own_mean, &own_var], &[epsilon]);
    b.set(0, &y);
    let momentum = b.float("momentum", 0.9);
    for (i, old, new) in [(1, mean, own_mean), (2, var, own_var)] {
        // Statistics may be of another type than data.
        let new = b.op("CastLike", &[&new, &old]);
        let (old, new) = (times(b, &old, momentum), times(b, &new, 1.0 - momentum));
        let moved = b.op("Add", &[&old, &new]);
        b.set(i, &moved);
    }
}
