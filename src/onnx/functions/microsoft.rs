//! Operators that onnxruntime's optimiser and exporters write, in its domain `com.microsoft`.

use super::quantized::{dequantized_by, same};
use super::{Attribute, Body, attention, contributed, decoding, experts, images};

/// Operators that onnxruntime knows in ONNX's own domain.
pub(super) fn standard(op: &str) -> Option<fn(&mut Body<'_>)> {
    Some(match op {
        "SimplifiedLayerNormalization" => simplified_norm,
        _ => return None,
    })
}

pub(super) fn body(op: &str) -> Option<fn(&mut Body<'_>)> {
    Some(match op {
        "Gelu" => |b| same(b, "Gelu"),
        "BiasGelu" => |b| {
            let x = biased(b, 1);
            let y = b.op("Gelu", &[&x]);
            b.set(0, &y);
        },
        "FastGelu" => |b| {
            let x = biased(b, 1);
            let y = b.with("Gelu", &[&x], &[("approximate", Attribute::Text("tanh".into()))]);
            b.set(0, &y);
        },
        "QuickGelu" => |b| {
            let alpha = b.float("alpha", 1.702);
            let x = b.input(0).to_string();
            let y = b.with("Swish", &[&x], &[("alpha", Attribute::Float(alpha))]);
            b.set(0, &y);
        },
        "BiasSplitGelu" => bias_split_gelu,
        "BiasAdd" => |b| {
            let x = biased(b, 1);
            let skip = b.input(2).to_string();
            let y = b.op("Add", &[&x, &skip]);
            b.set(0, &y);
        },
        "BiasSoftmax" => |b| {
            let x = biased(b, 1);
            let axis = b.int("axis", 1);
            // The shapes tell it, too.
            b.ignore(&["is_inner_broadcast"]);
            // Over all dimensions from the axis on, as ONNX's own did before version 13.
            let list = [("axis", Attribute::Int(axis)), ("opset", Attribute::Int(1))];
            let y = b.with("barewave:Softmax", &[&x], &list);
            b.set(0, &y);
        },
        "SimplifiedLayerNormalization" => simplified_norm,
        "SkipLayerNormalization" => |b| skip_norm(b, true),
        "SkipSimplifiedLayerNormalization" => |b| skip_norm(b, false),
        "EmbedLayerNormalization" => embed_norm,
        "FusedConv" => fused_conv,
        "FusedGemm" => fused_gemm,
        "GemmFastGelu" => |b| {
            let [x, w, bias] = [0, 1, 2].map(|i| b.input(i).to_string());
            let mut y = b.op("MatMul", &[&x, &w]);
            if !bias.is_empty() {
                y = b.op("Add", &[&y, &bias]);
            }
            let y = b.with("Gelu", &[&y], &[("approximate", Attribute::Text("tanh".into()))]);
            b.set(0, &y);
        },
        "QEmbedLayerNormalization" => embed_norm,
        "CDist" => distances,
        "Trilu" => |b| same(b, "Trilu"),
        "SampleOp" => |b| same(b, "Identity"),
        "MatMulInteger16" => |b| {
            let factors = [0, 1].map(|i| {
                let x = b.input(i).to_string();
                b.with("Cast", &[&x], &[("to", Attribute::Int(6))])
            });
            let y = b.op("MatMul", &[&factors[0], &factors[1]]);
            b.set(0, &y);
        },
        "Unique" => unique,
        "GatherND" => |b| same(b, "GatherND"),
        "GridSample" => |b| same(b, "GridSample"),
        "Pad" => |b| same(b, "Pad"),
        "Range" => |b| {
            let [from, to, step] = [0, 1, 2].map(|i| b.input(i).to_string());
            let one = b.number(1.0);
            let step = if step.is_empty() { b.op("CastLike", &[&one, &from]) } else { step };
            let y = b.op("Range", &[&from, &to, &step]);
            b.set(0, &y);
        },
        "ExpandDims" => |b| {
            let [x, axis] = [0, 1].map(|i| b.input(i).to_string());
            let minus = b.ints(&[-1]);
            let axis = b.op("Reshape", &[&axis, &minus]);
            let axis = b.with("Cast", &[&axis], &[("to", Attribute::Int(7))]);
            let y = b.op("Unsqueeze", &[&x, &axis]);
            b.set(0, &y);
        },
        _ => {
            let others = [attention::body, contributed::body, decoding::body, images::body, experts::body];
            return others.into_iter().find_map(|body| body(op));
        }
    })
}

/// ONNX's Unique without its second output, in the order in which elements first appear.
fn unique(b: &mut Body<'_>) {
    let x = b.input(0).to_string();
    let made = b.many("Unique", &[&x], 4, &[("sorted", Attribute::Int(0))]);
    [(0, 0), (1, 2), (2, 3)].into_iter().for_each(|(i, from)| b.set(i, &made[from]));
}

/// Distances of all rows of one matrix from all rows of another.
fn distances(b: &mut Body<'_>) {
    let [x, y] = [0, 1].map(|i| b.input(i).to_string());
    let (first, second, last) = (b.ints(&[0]), b.ints(&[1]), b.ints(&[2]));
    let (x, y) = (b.op("Unsqueeze", &[&x, &second]), b.op("Unsqueeze", &[&y, &first]));
    let d = b.op("Sub", &[&x, &y]);
    let d = b.with("ReduceSumSquare", &[&d, &last], &[("keepdims", Attribute::Int(0))]);
    let d = match b.text("metric").unwrap_or("sqeuclidean") {
        "sqeuclidean" => d,
        "euclidean" => b.op("Sqrt", &[&d]),
        _ => {
            b.refuse("metric");
            d
        }
    };
    b.set(0, &d);
}

/// Input 0 plus input `i`, if that is given.
fn biased(b: &mut Body<'_>, i: usize) -> String {
    let [x, bias] = [b.input(0).to_string(), b.input(i).to_string()];
    if bias.is_empty() { x } else { b.op("Add", &[&x, &bias]) }
}

/// The first half times Gelu of the second.
fn bias_split_gelu(b: &mut Body<'_>) {
    let x = biased(b, 1);
    let halves = b.many("Split", &[&x], 2, &[("axis", Attribute::Int(-1)), ("num_outputs", Attribute::Int(2))]);
    let g = b.op("Gelu", &[&halves[1]]);
    let y = b.op("Mul", &[&halves[0], &g]);
    b.set(0, &y);
}

fn epsilon(b: &Body<'_>, default: f32) -> (&'static str, Attribute) {
    ("epsilon", Attribute::Float(b.float("epsilon", default)))
}

fn simplified_norm(b: &mut Body<'_>) {
    let [x, scale] = [0, 1].map(|i| b.input(i).to_string());
    let axis = b.int("axis", -1);
    b.idle("stash_type", Attribute::Int(1));
    let epsilon = epsilon(b, 1e-5);
    let y = b.with("RMSNormalization", &[&x, &scale], &[epsilon, ("axis", Attribute::Int(axis))]);
    b.set(0, &y);
}

fn skip_norm(b: &mut Body<'_>, center: bool) {
    let [x, skip, gamma] = [0, 1, 2].map(|i| b.input(i).to_string());
    let (beta, bias) =
        if center { (b.input(3).to_string(), b.input(4).to_string()) } else { (String::new(), b.input(3).to_string()) };
    let mut sum = b.op("Add", &[&x, &skip]);
    if !bias.is_empty() {
        sum = b.op("Add", &[&sum, &bias]);
    }
    let list = [epsilon(b, 1e-12), ("axis", Attribute::Int(-1))];
    if center {
        // Mean and inverse deviation beside it.
        let made = b.many("LayerNormalization", &[&sum, &gamma, &beta], 3, &list);
        made.iter().enumerate().for_each(|(i, value)| b.set(i, value));
    } else {
        let y = b.with("RMSNormalization", &[&sum, &gamma], &list);
        b.set(0, &y);
    }
    b.set(3, &sum);
}

/// Sums of embeddings, normalised. Of bytes, what was looked up becomes floats; scales are inputs 8 to 12 and zero points those
/// behind, in the order of the tables.
fn embed_norm(b: &mut Body<'_>) {
    let bytes = b.node.op.starts_with('Q');
    let [ids, segments, words, places, kinds, gamma, beta, mask] =
        [0, 1, 2, 3, 4, 5, 6, 7].map(|i| b.input(i).to_string());
    let positions = if bytes { String::new() } else { b.input(8).to_string() };
    let float = |b: &mut Body<'_>, x: String, table: usize| {
        if bytes { dequantized_by(b, &x, 6 + table, 11 + table) } else { x }
    };
    let word = b.op("Gather", &[&words, &ids]);
    let word = float(b, word, 2);
    let place = if positions.is_empty() {
        let length = b.with("Shape", &[&ids], &[("start", Attribute::Int(1)), ("end", Attribute::Int(2))]);
        let zero = b.ints(&[0]);
        b.op("Slice", &[&places, &zero, &length, &zero])
    } else {
        b.op("Gather", &[&places, &positions])
    };
    let place = float(b, place, 3);
    let mut sum = b.op("Add", &[&word, &place]);
    if !segments.is_empty() {
        let kind = b.op("Gather", &[&kinds, &segments]);
        let kind = float(b, kind, 4);
        sum = b.op("Add", &[&sum, &kind]);
    }
    let (gamma, beta) = (float(b, gamma, 5), float(b, beta, 6));
    let list = [epsilon(b, 1e-12), ("axis", Attribute::Int(-1))];
    let y = b.with("LayerNormalization", &[&sum, &gamma, &beta], &list);
    b.set(0, &y);
    if b.output(1).is_some() {
        // Without a mask, zero for each sentence.
        let wide = if mask.is_empty() { b.op("Sub", &[&ids, &ids]) } else { mask.clone() };
        let one = b.ints(&[1]);
        let count = b.with("ReduceSum", &[&wide, &one], &[("keepdims", Attribute::Int(0))]);
        b.set(1, &count);
    }
    b.set(2, &sum);
}

/// The activation that is fused to a product, by its name and parameters.
fn activated(b: &mut Body<'_>, x: &str) -> String {
    let parameters = match b.attribute("activation_params") {
        Some(Attribute::Floats(v)) => v.clone(),
        _ => Vec::new(),
    };
    let name = b.text("activation").unwrap_or("").to_string();
    let named = ["activation_alpha", "activation_beta"];
    let at =
        |b: &Body<'_>, i: usize, default: f32| parameters.get(i).copied().unwrap_or_else(|| b.float(named[i], default));
    match name.as_str() {
        "" => x.to_string(),
        "LeakyRelu" => b.with("LeakyRelu", &[x], &[("alpha", Attribute::Float(at(b, 0, 0.01)))]),
        "Clip" => {
            let (low, high) = (b.number(at(b, 0, f32::NEG_INFINITY)), b.number(at(b, 1, f32::INFINITY)));
            let y = b.op("Max", &[x, &low]);
            b.op("Min", &[&y, &high])
        }
        "HardSigmoid" => {
            let list = [("alpha", Attribute::Float(at(b, 0, 0.2))), ("beta", Attribute::Float(at(b, 1, 0.5)))];
            b.with("HardSigmoid", &[x], &list)
        }
        "Celu" | "Elu" | "ThresholdedRelu" => b.with(&name, &[x], &[("alpha", Attribute::Float(at(b, 0, 1.0)))]),
        "Selu" => {
            let names = [("activation_alpha", "alpha"), ("activation_gamma", "gamma")];
            let given = names.into_iter().filter_map(|(from, to)| b.attribute(from).map(|a| (to, a.clone())));
            b.with("Selu", &[x], &given.collect::<Vec<_>>())
        }
        other => b.op(other, &[x]),
    }
}

/// The attributes of the product itself.
fn without_activation<'n>(b: &Body<'n>) -> Vec<(&'n str, Attribute)> {
    b.attributes_that(|n| !n.starts_with("activation"))
}

fn fused_conv(b: &mut Body<'_>) {
    let [x, w, bias, z] = [0, 1, 2, 3].map(|i| b.input(i).to_string());
    let list = without_activation(b);
    let mut y = b.with("Conv", &[&x, &w, &bias], &list);
    if !z.is_empty() {
        y = b.op("Add", &[&y, &z]);
    }
    let y = activated(b, &y);
    b.set(0, &y);
}

fn fused_gemm(b: &mut Body<'_>) {
    let [x, w, c] = [0, 1, 2].map(|i| b.input(i).to_string());
    let list = without_activation(b);
    let y = b.with("Gemm", &[&x, &w, &c], &list);
    let y = activated(b, &y);
    b.set(0, &y);
}
