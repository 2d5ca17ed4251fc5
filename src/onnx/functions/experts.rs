//! Mixtures of experts: each token goes through those of many small networks that a router gives the highest scores.
//!
//! All experts compute all tokens, as products side by side, and each token takes the weighted sum of what its own gave. That is
//! as quick as anything where there are many tokens; for one token it reads the weights of experts that nobody asked.

use super::{Attribute, Body};

pub(super) fn body(op: &str) -> Option<fn(&mut Body<'_>)> {
    (op == "MoE").then_some(mixture)
}

fn mixture(b: &mut Body<'_>) {
    let [x, router, up, up_bias, down, down_bias, gate, gate_bias] =
        [0, 1, 2, 3, 4, 5, 6, 7].map(|i| b.input(i).to_string());
    let weights = weights(b, &router);
    let shape = b.op("Shape", &[&x]);
    let tokens = b.with("Flatten", &[&x], &[("axis", Attribute::Int(-1))]);
    let first = b.ints(&[0]);
    let tokens = b.op("Unsqueeze", &[&tokens, &first]);
    let h = linear(b, &tokens, &up, &up_bias);
    let gated = (!gate.is_empty()).then(|| linear(b, &tokens, &gate, &gate_bias));
    let h = activated(b, &h, gated);
    let y = linear(b, &h, &down, &down_bias);
    let y = b.op("Mul", &[&y, &weights]);
    let y = b.with("ReduceSum", &[&y, &first], &[("keepdims", Attribute::Int(0))]);
    let y = b.op("Reshape", &[&y, &shape]);
    b.set(0, &y);
}

/// What each expert's result counts for each token, 0 for those that were not chosen: `[experts, tokens, 1]`.
fn weights(b: &mut Body<'_>, router: &str) -> String {
    let last = ("axis", Attribute::Int(-1));
    let mut attributes = vec![last.clone()];
    // Another way to choose, which Softmax does not have.
    if b.int("use_sparse_mixer", 0) != 0 {
        attributes.push(("use_sparse_mixer", Attribute::Int(1)));
    }
    let all = b.with("Softmax", &[router], &attributes);
    let k = b.ints(&[b.int("k", 1)]);
    let best = b.many("TopK", &[&all, &k], 2, std::slice::from_ref(&last));
    let mut chosen = best[0].clone();
    if b.int("normalize_routing_weights", 0) != 0 {
        let minus = b.ints(&[-1]);
        let sum = b.op("ReduceSum", &[&chosen, &minus]);
        chosen = b.op("Div", &[&chosen, &sum]);
    }
    let shape = b.op("Shape", &[&all]);
    let none = b.op("ConstantOfShape", &[&shape]);
    let none = b.op("CastLike", &[&none, &all]);
    let spread = b.with("ScatterElements", &[&none, &best[1], &chosen], &[last]);
    let spread = b.with("Transpose", &[&spread], &[("perm", Attribute::Ints(vec![1, 0]))]);
    let end = b.ints(&[2]);
    b.op("Unsqueeze", &[&spread, &end])
}

/// A layer of each expert: weights `[experts, to, from]`, bias `[experts, to]`.
fn linear(b: &mut Body<'_>, x: &str, w: &str, bias: &str) -> String {
    let w = b.with("Transpose", &[w], &[("perm", Attribute::Ints(vec![0, 2, 1]))]);
    let y = b.op("MatMul", &[x, &w]);
    if bias.is_empty() {
        return y;
    }
    let one = b.ints(&[1]);
    let bias = b.op("Unsqueeze", &[bias, &one]);
    b.op("Add", &[&y, &bias])
}

fn activated(b: &mut Body<'_>, h: &str, gated: Option<String>) -> String {
    let kind = b.text("activation_type").unwrap_or("relu").to_string();
    let y = match kind.as_str() {
        "swiglu" => return swiglu(b, h, gated),
        "relu" => b.op("Relu", &[h]),
        "silu" => b.op("Swish", &[h]),
        "gelu" => b.with("Gelu", &[h], &[("approximate", Attribute::Text("tanh".into()))]),
        "identity" => h.to_string(),
        // No operator has such a name.
        other => b.op(other, &[h]),
    };
    match gated {
        Some(gated) => b.op("Mul", &[&y, &gated]),
        None => y,
    }
}

/// Swish of one value times another, which take turns in `h`, are its halves, or come apart.
fn swiglu(b: &mut Body<'_>, h: &str, gated: Option<String>) -> String {
    let [mut gate, mut value] = match (b.int("swiglu_fusion", 0), gated) {
        (_, Some(gated)) => [h.to_string(), gated],
        (1, None) => [0, 1].map(|from| {
            let (from, to) = (b.ints(&[from]), b.ints(&[i64::MAX]));
            let (last, two) = (b.ints(&[-1]), b.ints(&[2]));
            b.op("Slice", &[h, &from, &to, &last, &two])
        }),
        (_, None) => {
            let halves = [("axis", Attribute::Int(-1)), ("num_outputs", Attribute::Int(2))];
            let made = b.many("Split", &[h], 2, &halves);
            [made[0].clone(), made[1].clone()]
        }
    };
    if b.node.attributes.contains_key("swiglu_limit") {
        let limit = b.float("swiglu_limit", f32::INFINITY);
        let [low, high] = [-limit, limit].map(|v| {
            let v = b.number(v);
            b.op("CastLike", &[&v, h])
        });
        gate = b.op("Min", &[&gate, &high]);
        value = b.op("Clip", &[&value, &low, &high]);
    }
    let alpha = ("alpha", Attribute::Float(b.float("activation_alpha", 1.0)));
    let gate = b.with("Swish", &[&gate], &[alpha]);
    let beta = b.number(b.float("activation_beta", 0.0));
    let beta = b.op("CastLike", &[&beta, h]);
    let value = b.op("Add", &[&value, &beta]);
    b.op("Mul", &[&gate, &value])
}
