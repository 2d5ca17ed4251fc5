//! Quantised operators: what is defined as dequantisation, a float operator, and quantisation.

use super::{Attribute, Body};
use crate::tensor::DType;

pub(super) fn standard(op: &str) -> Option<fn(&mut Body<'_>)> {
    Some(match op {
        "QLinearMatMul" => matmul,
        _ => return None,
    })
}

pub(super) fn body(op: &str) -> Option<fn(&mut Body<'_>)> {
    Some(match op {
        "QLinearAdd" => add,
        "QLinearMul" => mul,
        "QLinearSigmoid" => |b| unary(b, "Sigmoid", &[]),
        "QLinearLeakyRelu" => |b| unary(b, "LeakyRelu", &["alpha"]),
        "QLinearSoftmax" => |b| {
            let axis = b.int("axis", -1);
            let list = [vec![("axis", Attribute::Int(axis))], attributes(b, &["opset"])].concat();
            unary_with(b, "barewave:Softmax", &list);
        },
        "QLinearGlobalAveragePool" => |b| unary(b, "GlobalAveragePool", &[]),
        "QLinearAveragePool" => average_pool,
        "QLinearReduceMean" => |b| unary(b, "ReduceMean", &["axes", "keepdims"]),
        "QLinearConcat" => concat,
        "QLinearWhere" => where_,
        "QGemm" => gemm,
        "MulInteger" => |b| {
            let [x, y] = [0, 2].map(|i| centered(b, i, i + 1));
            let y = b.op("Mul", &[&x, &y]);
            b.set(0, &y);
        },
        "ReduceSumInteger" => |b| {
            let x = b.input(0).to_string();
            let x = b.with("Cast", &[&x], &[("to", Attribute::Int(6))]);
            let list = attributes(b, &["axes", "keepdims"]);
            let y = b.with("ReduceSum", &[&x], &list);
            b.set(0, &y);
        },
        "DynamicQuantizeMatMul" => dynamic_matmul,
        "MatMulIntegerToFloat" => matmul_to_float,
        "DynamicQuantizeLSTM" => lstm,
        "QuantizeLinear" => |b| same(b, "QuantizeLinear"),
        "DequantizeLinear" => |b| same(b, "DequantizeLinear"),
        _ => return None,
    })
}

/// An operator that ONNX itself has too.
pub(super) fn same(b: &mut Body<'_>, op: &str) {
    let inputs = b.inputs();
    let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
    let attributes = b.attributes_that(|_| true);
    b.push(op, &inputs, b.node.outputs.clone(), &attributes);
}

fn attributes(b: &Body<'_>, names: &[&'static str]) -> Vec<(&'static str, Attribute)> {
    names.iter().filter_map(|n| b.attribute(n).map(|a| (*n, a.clone()))).collect()
}

/// Inputs `i`, `i + 1` and `i + 2`, data with scale and zero point, as floats.
fn dequantized(b: &mut Body<'_>, i: usize) -> String {
    let x = b.input(i).to_string();
    dequantized_by(b, &x, i + 1, i + 2)
}

/// A value as floats, by the scale and the zero point that are inputs `scale` and `zero`.
pub(super) fn dequantized_by(b: &mut Body<'_>, x: &str, scale: usize, zero: usize) -> String {
    let [s, z] = [scale, zero].map(|i| b.input(i).to_string());
    b.op("DequantizeLinear", &[x, &s, &z])
}

/// An input as another type.
fn cast(b: &mut Body<'_>, i: usize, to: DType) -> String {
    let x = b.input(i).to_string();
    b.with("Cast", &[&x], &[("to", Attribute::Int(i64::from(to.to_onnx())))])
}

/// Input `i` without its zero point, input `zero`, in 32 bits.
fn centered(b: &mut Body<'_>, i: usize, zero: usize) -> String {
    let x = cast(b, i, DType::I32);
    if !b.has(zero) {
        return x;
    }
    let z = cast(b, zero, DType::I32);
    b.op("Sub", &[&x, &z])
}

/// Images of channels in the last dimension with those behind the batch.
pub(super) fn channels_first(b: &mut Body<'_>, x: &str) -> String {
    b.with("Transpose", &[x], &[("perm", Attribute::Ints(vec![0, 3, 1, 2]))])
}

/// And back.
pub(super) fn channels_last(b: &mut Body<'_>, x: &str) -> String {
    b.with("Transpose", &[x], &[("perm", Attribute::Ints(vec![0, 2, 3, 1]))])
}

/// Output 0 from floats; its scale and zero point are inputs `i` and `i + 1`.
fn quantize(b: &mut Body<'_>, value: &str, i: usize) {
    let [s, z] = [b.input(i).to_string(), b.input(i + 1).to_string()];
    let y = b.op("QuantizeLinear", &[value, &s, &z]);
    b.set(0, &y);
}

/// A zero point, input `i`, as a float.
fn zero(b: &mut Body<'_>, i: usize) -> String {
    if b.has(i) { cast(b, i, DType::F32) } else { b.number(0.0) }
}

/// Output 0 from floats in steps of its scale, to which its zero point, input `zero`, was added: onnxruntime does that before it rounds, which where a
/// tie meets an odd one is not what QuantizeLinear does.
fn rounded(b: &mut Body<'_>, value: &str, zero: usize) {
    let one = b.number(1.0);
    let z = b.input(zero).to_string();
    let nothing = if z.is_empty() { z } else { b.op("Sub", &[&z, &z]) };
    let y = b.op("QuantizeLinear", &[value, &one, &nothing]);
    b.set(0, &y);
}

/// A scale, input `i`, over that of the output.
fn in_steps(b: &mut Body<'_>, i: usize) -> String {
    let [s, step] = [i, 6].map(|i| b.input(i).to_string());
    b.op("Div", &[&s, &step])
}

/// `round(x * y * (scales / scale) + zero)`, the product of both without their zero points exact in integers.
fn mul(b: &mut Body<'_>) {
    let (x, y) = (centered(b, 0, 2), centered(b, 3, 5));
    let product = b.op("Mul", &[&x, &y]);
    let product = b.with("Cast", &[&product], &[("to", Attribute::Int(i64::from(DType::F32.to_onnx())))]);
    let [s, t, step] = [1, 4, 6].map(|i| b.input(i).to_string());
    let scale = b.op("Mul", &[&s, &t]);
    let scale = b.op("Div", &[&scale, &step]);
    let (r, z) = (b.op("Mul", &[&product, &scale]), zero(b, 7));
    let r = b.op("Add", &[&r, &z]);
    rounded(b, &r, 7);
}

/// `round(x * (scale of x / scale) + (y * (scale of y / scale) + all zero points))`. onnxruntime's multiply-adds round once where two operators do
/// twice: of sums that are nearly ties a few differ by one.
fn add(b: &mut Body<'_>) {
    let terms = [(0, 1, 2), (3, 4, 5)].map(|(i, scale, nothing)| {
        let (scale, x, z) = (in_steps(b, scale), cast(b, i, DType::F32), zero(b, nothing));
        [x, z].map(|v| b.op("Mul", &[&v, &scale]))
    });
    let [[x, x_zero], [y, y_zero]] = terms;
    let (zeros, z) = (b.op("Add", &[&x_zero, &y_zero]), zero(b, 7));
    let offset = b.op("Sub", &[&z, &zeros]);
    let y = b.op("Add", &[&y, &offset]);
    let r = b.op("Add", &[&x, &y]);
    rounded(b, &r, 7);
}

fn unary(b: &mut Body<'_>, op: &str, names: &[&'static str]) {
    let list = attributes(b, names);
    unary_with(b, op, &list);
}

fn unary_with(b: &mut Body<'_>, op: &str, list: &[(&str, Attribute)]) {
    let r = of_floats(b, op, list);
    quantize(b, &r, 3);
}

/// An operator of input 0 as floats.
fn of_floats(b: &mut Body<'_>, op: &str, list: &[(&str, Attribute)]) -> String {
    let x = dequantized(b, 0);
    // Channels in the last dimension, of images.
    if b.int("channels_last", 0) == 0 {
        return b.with(op, &[&x], list);
    }
    let x = channels_first(b, &x);
    let r = b.with(op, &[&x], list);
    channels_last(b, &r)
}

fn average_pool(b: &mut Body<'_>) {
    let list = attributes(b, &["auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides"]);
    let r = of_floats(b, "AveragePool", &list);
    let (step, z) = (b.input(3).to_string(), zero(b, 4));
    let r = b.op("Div", &[&r, &step]);
    let r = b.op("Add", &[&r, &z]);
    rounded(b, &r, 4);
}

fn concat(b: &mut Body<'_>) {
    let parts: Vec<String> = (2..b.node.inputs.len()).step_by(3).map(|i| dequantized(b, i)).collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let list = attributes(b, &["axis"]);
    let r = b.with("Concat", &parts, &list);
    quantize(b, &r, 0);
}

fn where_(b: &mut Body<'_>) {
    let (x, y) = (dequantized(b, 1), dequantized(b, 4));
    let c = b.input(0).to_string();
    let r = b.op("Where", &[&c, &x, &y]);
    quantize(b, &r, 7);
}

fn gemm(b: &mut Body<'_>) {
    let x = dequantized(b, 0);
    // A scale for each column of the product.
    let columns = 1 - b.int("transB", 0).clamp(0, 1);
    let [y, s, z] = [3, 4, 5].map(|i| b.input(i).to_string());
    let y = b.with("DequantizeLinear", &[&y, &s, &z], &[("axis", Attribute::Int(columns))]);
    let list = attributes(b, &["alpha", "transA", "transB"]);
    let mut r = b.with("Gemm", &[&x, &y], &list);
    if b.has(6) {
        // The bias counts in units of the product's scale.
        let [c, s, t] = [6, 1, 4].map(|i| b.input(i).to_string());
        let scale = b.op("Mul", &[&s, &t]);
        let alpha = b.float("alpha", 1.0);
        let alpha = b.number(alpha);
        let scale = b.op("Mul", &[&scale, &alpha]);
        let c = b.with("Cast", &[&c], &[("to", Attribute::Int(1))]);
        let c = b.op("Mul", &[&c, &scale]);
        r = b.op("Add", &[&r, &c]);
    }
    if b.has(7) { quantize(b, &r, 7) } else { b.set(0, &r) }
}

/// `round(product * scales / scale) + zero`, the product exact in integers.
fn matmul(b: &mut Body<'_>) {
    let [x, xs, xz, w, ws, wz, s, z] = [0, 1, 2, 3, 4, 5, 6, 7].map(|i| b.input(i).to_string());
    let float = |b: &mut Body<'_>, v: &str| b.with("Cast", &[v], &[("to", Attribute::Int(1))]);
    let product = b.op("MatMulInteger", &[&x, &w, &xz, &wz]);
    let product = float(b, &product);
    let (xs, ws, s) = (float(b, &xs), float(b, &ws), float(b, &s));
    // A scale for each row of the left matrix stands along it.
    let xs = b.op("barewave:Rows", &[&xs, &x]);
    let r = b.op("Mul", &[&xs, &ws]);
    let r = b.op("Mul", &[&product, &r]);
    let y = b.op("QuantizeLinear", &[&r, &s, &z]);
    b.set(0, &y);
}

fn dynamic_matmul(b: &mut Body<'_>) {
    let [x, w, ws, wz, bias] = [0, 1, 2, 3, 4].map(|i| b.input(i).to_string());
    let q = b.many("DynamicQuantizeLinear", &[&x], 3, &[]);
    scaled_product(b, [&q[0], &w], [&q[1], &ws], [&q[2], &wz], &bias);
}

fn matmul_to_float(b: &mut Body<'_>) {
    let [x, w, xs, ws, xz, wz, bias] = [0, 1, 2, 3, 4, 5, 6].map(|i| b.input(i).to_string());
    scaled_product(b, [&x, &w], [&xs, &ws], [&xz, &wz], &bias);
}

fn scaled_product(b: &mut Body<'_>, factors: [&str; 2], scales: [&str; 2], zeros: [&str; 2], bias: &str) {
    let r = b.op("MatMulInteger", &[factors[0], factors[1], zeros[0], zeros[1]]);
    let r = b.with("Cast", &[&r], &[("to", Attribute::Int(1))]);
    let scale = b.op("Mul", &scales);
    let mut r = b.op("Mul", &[&r, &scale]);
    if !bias.is_empty() {
        r = b.op("Add", &[&r, bias]);
    }
    b.set(0, &r);
}

/// An LSTM with weights in bytes, which become floats before. Its data are rounded to bytes as onnxruntime does; its state, which
/// onnxruntime rounds anew in each step, is not: results differ by what that loses.
fn lstm(b: &mut Body<'_>) {
    let count = if b.text("direction") == Some("bidirectional") { 2 } else { 1 };
    let weights = |b: &mut Body<'_>, i: usize, scale: usize| {
        let [w, s, z] = [i, scale, scale + 1].map(|i| b.input(i).to_string());
        let float = [("to", Attribute::Int(1))];
        // One for each direction, or for each of its columns.
        let shape = b.ints(&[count, 1, -1]);
        let s = b.op("Reshape", &[&s, &shape]);
        let mut w = b.with("Cast", &[&w], &float);
        if !z.is_empty() {
            let z = b.with("Cast", &[&z], &float);
            let z = b.op("Reshape", &[&z, &shape]);
            w = b.op("Sub", &[&w, &z]);
        }
        let w = b.op("Mul", &[&w, &s]);
        b.with("Transpose", &[&w], &[("perm", Attribute::Ints(vec![0, 2, 1]))])
    };
    let (w, r) = (weights(b, 1, 8), weights(b, 2, 10));
    let [x, bias, lengths, h, c, p] = [0, 3, 4, 5, 6, 7].map(|i| b.input(i).to_string());
    let q = b.many("DynamicQuantizeLinear", &[&x], 3, &[]);
    let x = b.op("DequantizeLinear", &[&q[0], &q[1], &q[2]]);
    let names =
        ["activation_alpha", "activation_beta", "activations", "clip", "direction", "hidden_size", "input_forget"];
    let list = attributes(b, &names);
    b.push("LSTM", &[&x, &w, &r, &bias, &lengths, &h, &c, &p], b.node.outputs.clone(), &list);
}
