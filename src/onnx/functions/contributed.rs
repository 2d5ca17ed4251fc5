//! Operators of `com.microsoft` that recent exporters write: gates beside normalisations, weights of bitsandbytes, windows.

use super::{Attribute, Body};
use crate::tensor::{DType, HostTensor};

/// ONNX's number of the type f32, and of i32.
const F32: i64 = 1;
const I32: i64 = 6;

pub(super) fn body(op: &str) -> Option<fn(&mut Body<'_>)> {
    Some(match op {
        "BranchwiseRMSNorm" => branchwise_norm,
        "CausalConvWithState" => |b| {
            // one dimension, no holes, channels first: as ONNX has it
            for (name, value) in [("ndim", 1), ("dilation", 1), ("state_channels_last", -1)] {
                b.idle(name, Attribute::Int(value));
            }
            as_in_onnx(b, &["activation"]);
        },
        "GatedAdd" => |b| {
            let [x, y, gate] = [0, 1, 2].map(|i| b.input(i).to_string());
            let y = b.op("Mul", &[&y, &gate]);
            let sum = b.op("Add", &[&x, &y]);
            b.set(0, &sum);
        },
        "GatedRMSNorm" => gated_norm,
        "LinearAttention" => |b| as_in_onnx(b, &["chunk_size", "kv_num_heads", "q_num_heads", "scale", "update_rule"]),
        "LinearAttentionGate" => decay,
        "MatMulBnb4" => product_of_codes,
        "ScaledSiLU" => scaled_silu,
        "UnfoldTensor" => windows,
        _ => return None,
    })
}

/// The operator of this name that ONNX has, with an output and a state behind it, and with these attributes.
fn as_in_onnx(b: &mut Body<'_>, attributes: &[&str]) {
    let (inputs, list) = (b.inputs(), b.attributes_that(|n| attributes.contains(&n)));
    let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
    let op = b.node.op.clone();
    let made = b.many(&op, &inputs, 2, &list);
    made.iter().enumerate().for_each(|(i, value)| b.set(i, value));
}

/// A value as f32.
fn wide(b: &mut Body<'_>, x: &str) -> String {
    b.with("Cast", &[x], &[("to", Attribute::Int(F32))])
}

/// The shape of a value but for its last dimension.
fn leading(b: &mut Body<'_>, x: &str) -> String {
    b.with("Shape", &[x], &[("end", Attribute::Int(-1))])
}

/// `x / sqrt(mean(x^2) + epsilon)` over the last dimension.
fn over_its_mean_square(b: &mut Body<'_>, x: &str, epsilon: f32) -> String {
    let (last, epsilon) = (b.ints(&[-1]), b.number(epsilon));
    let square = b.op("Mul", &[x, x]);
    let mean = b.op("ReduceMean", &[&square, &last]);
    let mean = b.op("Add", &[&mean, &epsilon]);
    let root = b.op("Sqrt", &[&mean]);
    b.op("Div", &[x, &root])
}

/// Each group of as many neighbours as there are scales is normalised for itself, scaled, and gated.
fn gated_norm(b: &mut Body<'_>) {
    let [x, scale, gate] = [0, 1, 2].map(|i| b.input(i).to_string());
    let epsilon = b.float("epsilon", 1e-5);
    let activation = b.text("activation").unwrap_or("silu");
    let (whole, lead, minus) = (b.op("Shape", &[&x]), leading(b, &x), b.ints(&[-1]));
    let width = b.op("Shape", &[&scale]);
    let groups = b.with("Concat", &[&lead, &minus, &width], &[("axis", Attribute::Int(0))]);
    let [x32, gate32] = [&x, &gate].map(|v| {
        let v = wide(b, v);
        b.op("Reshape", &[&v, &groups])
    });
    let scale = wide(b, &scale);
    let y = over_its_mean_square(b, &x32, epsilon);
    let y = b.op("Mul", &[&y, &scale]);
    let mut open = b.op("Sigmoid", &[&gate32]);
    match activation {
        "silu" | "swish" => open = b.op("Mul", &[&gate32, &open]),
        "sigmoid" => {}
        _ => b.refuse("activation"),
    }
    let y = b.op("Mul", &[&y, &open]);
    let y = b.op("Reshape", &[&y, &whole]);
    let y = b.op("CastLike", &[&y, &x]);
    b.set(0, &y);
}

/// Each branch is normalised for itself: the last dimension but one is the branches', or they lie in the last one.
fn branchwise_norm(b: &mut Body<'_>) {
    let [x, scale] = [0, 1].map(|i| b.input(i).to_string());
    let (epsilon, branches) = (b.float("epsilon", 1e-5), b.int("num_branches", 0));
    let whole = b.op("Shape", &[&x]);
    let mut y = wide(b, &x);
    if branches > 0 {
        let (lead, parts) = (leading(b, &x), b.ints(&[branches, -1]));
        let groups = b.with("Concat", &[&lead, &parts], &[("axis", Attribute::Int(0))]);
        y = b.op("Reshape", &[&y, &groups]);
    }
    y = over_its_mean_square(b, &y, epsilon);
    if !scale.is_empty() {
        // one row for all branches, or a row for each
        let (minus, width) = (b.ints(&[-1]), b.with("Shape", &[&y], &[("start", Attribute::Int(-1))]));
        let rows = b.with("Concat", &[&minus, &width], &[("axis", Attribute::Int(0))]);
        let scale = wide(b, &scale);
        let scale = b.op("Reshape", &[&scale, &rows]);
        y = b.op("Mul", &[&y, &scale]);
    }
    let y = b.op("Reshape", &[&y, &whole]);
    let y = b.op("CastLike", &[&y, &x]);
    b.set(0, &y);
}

/// What a linear attention forgets, and how much it takes in.
fn decay(b: &mut Body<'_>) {
    let [a, bias, scale, rate] = [0, 1, 2, 3].map(|i| b.input(i).to_string());
    let x = wide(b, &a);
    let x = b.op("Add", &[&x, &bias]);
    let x = b.op("Softplus", &[&x]);
    let x = b.op("Mul", &[&scale, &x]);
    let x = b.op("CastLike", &[&x, &a]);
    b.set(0, &x);
    if b.has(3) {
        let y = b.op("Sigmoid", &[&rate]);
        b.set(1, &y);
    }
}

/// `z * sigmoid(z)` of a multiple of what comes in.
fn scaled_silu(b: &mut Body<'_>) {
    let [x, scale] = [0, 1].map(|i| b.input(i).to_string());
    let alpha = b.float("alpha", 1.0);
    let scale = if scale.is_empty() { b.number(alpha) } else { wide(b, &scale) };
    let z = wide(b, &x);
    let z = b.op("Mul", &[&z, &scale]);
    let z = b.op("CastLike", &[&z, &x]);
    let open = b.op("Sigmoid", &[&z]);
    let y = b.op("Mul", &[&z, &open]);
    b.set(0, &y);
}

/// Slices of some length along a dimension, a step apart: the places in a slice are a new last dimension.
fn windows(b: &mut Body<'_>) {
    let x = b.input(0).to_string();
    let (dim, size, step) = (b.int("dim", -1), b.int("size", 0), b.int("step", 1));
    if !(1..=MOST_PLACES).contains(&size) {
        return b.refuse("size");
    }
    if step < 1 {
        return b.refuse("step");
    }
    let (axis, steps, last) = (b.ints(&[dim]), b.ints(&[step]), b.ints(&[-1]));
    let mut places = Vec::new();
    for at in 0..size {
        let end = if at + 1 == size { i64::MAX } else { at + 1 - size };
        let (start, end) = (b.ints(&[at]), b.ints(&[end]));
        let place = b.op("Slice", &[&x, &start, &end, &axis, &steps]);
        places.push(b.op("Unsqueeze", &[&place, &last]));
    }
    let places: Vec<&str> = places.iter().map(String::as_str).collect();
    let y = b.with("Concat", &places, &[("axis", Attribute::Int(-1))]);
    b.set(0, &y);
}

/// Longest slices: each place of one is a node.
const MOST_PLACES: i64 = 512;

/// Values of the codes of bitsandbytes. Source: its `functional.py` (`create_fp4_map`, `create_normal_map`).
const FP4: [f32; 16] = [
    0.0,
    0.005_208_333_3,
    0.666_666_7,
    1.0,
    0.333_333_34,
    0.5,
    0.166_666_67,
    0.25,
    0.0,
    -0.005_208_333_3,
    -0.666_666_7,
    -1.0,
    -0.333_333_34,
    -0.5,
    -0.166_666_67,
    -0.25,
];
const NF4: [f32; 16] = [
    -1.0,
    -0.696_192_8,
    -0.525_073_05,
    -0.394_917_5,
    -0.284_441_38,
    -0.184_773_43,
    -0.091_050_036,
    0.0,
    0.079_580_3,
    0.160_930_2,
    0.246_112_3,
    0.337_915_24,
    0.440_709_83,
    0.562_617,
    0.722_956_84,
    1.0,
];

/// A product with weights of which each has four bits that stand for a float, and each run of some a scale.
fn product_of_codes(b: &mut Body<'_>) {
    let [a, codes, scales] = [0, 1, 2].map(|i| b.input(i).to_string());
    let [k, n, block] = ["K", "N", "block_size"].map(|name| b.int(name, 0));
    b.ignore(&["training_mode"]);
    let table = match b.int("quant_type", 1) {
        0 => FP4,
        1 => NF4,
        _ => return b.refuse("quant_type"),
    };
    let Some(total) = k.checked_mul(n).filter(|t| *t > 0 && *t < i64::from(i32::MAX)) else {
        return b.refuse("K");
    };
    if block < 1 {
        return b.refuse("block_size");
    }
    let byte = |v: i64| HostTensor::from_ints(DType::U8, &[], &[v]);
    let (four, low) = (b.constant(byte(4)), b.constant(byte(15)));
    let (minus, zero, one) = (b.ints(&[-1]), b.ints(&[0]), b.ints(&[1]));
    // the first of two weights has the upper half of its byte
    let bytes = b.op("Reshape", &[&codes, &minus]);
    let first = b.with("BitShift", &[&bytes, &four], &[("direction", Attribute::Text("RIGHT".into()))]);
    let second = b.op("BitwiseAnd", &[&bytes, &low]);
    let [first, second] = [first, second].map(|x| b.op("Unsqueeze", &[&x, &one]));
    let codes = b.with("Concat", &[&first, &second], &[("axis", Attribute::Int(1))]);
    let codes = b.op("Reshape", &[&codes, &minus]);
    let codes = b.with("Cast", &[&codes], &[("to", Attribute::Int(I32))]);
    let table = b.constant(HostTensor::from_f32(&[16], &table));
    let mut w = b.op("Gather", &[&table, &codes]);
    let blocks = total.div_euclid(block) + i64::from(total % block != 0);
    let end = b.ints(&[total]);
    if total % 2 != 0 {
        w = b.op("Slice", &[&w, &zero, &end]);
    }
    if total % block != 0 {
        let rest = b.ints(&[0, blocks * block - total]);
        w = b.op("Pad", &[&w, &rest]);
    }
    let (rows, column, shape) = (b.ints(&[blocks, block]), b.ints(&[blocks, 1]), b.ints(&[n, k]));
    let scales = wide(b, &scales);
    let scales = b.op("Reshape", &[&scales, &column]);
    w = b.op("Reshape", &[&w, &rows]);
    w = b.op("Mul", &[&w, &scales]);
    if total % block != 0 {
        w = b.op("Reshape", &[&w, &minus]);
        w = b.op("Slice", &[&w, &zero, &end]);
    }
    w = b.op("Reshape", &[&w, &shape]);
    w = b.op("CastLike", &[&w, &a]);
    if b.int("transB", 1) != 0 {
        w = b.with("Transpose", &[&w], &[("perm", Attribute::Ints(vec![1, 0]))]);
    }
    let y = b.op("MatMul", &[&a, &w]);
    b.set(0, &y);
}
