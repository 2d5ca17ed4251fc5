//! Operators of `com.microsoft` on images whose channels lie in the last dimension.

use super::quantized::{channels_first, channels_last, same};
use super::{Attribute, Body};
use crate::tensor::HostTensor;

pub(super) fn body(op: &str) -> Option<fn(&mut Body<'_>)> {
    Some(match op {
        "NhwcConv" => |b| turned(b, "Conv"),
        "NhwcFusedConv" => |b| turned(b, "com.microsoft:FusedConv"),
        "NhwcMaxPool" => |b| turned(b, "MaxPool"),
        "QLinearConv" => |b| match b.int("channels_last", 0) {
            0 => same(b, "QLinearConv"),
            _ => turned(b, "QLinearConv"),
        },
        "CropAndResize" => crop_and_resize,
        "GroupNorm" => |b| {
            let x = b.input(0).to_string();
            group_norm(b, &x);
        },
        "SkipGroupNorm" => skip_group_norm,
        _ => return None,
    })
}

/// An operator of images with the channels first. Weights have theirs there already, but for NhwcConv: onnxruntime's optimiser turns
/// them with the images.
fn turned(b: &mut Body<'_>, op: &str) {
    let mut inputs = b.inputs();
    // What is added to the result lies as it does.
    let added = op.ends_with("FusedConv") && b.has(3);
    let weights = b.node.op == "NhwcConv";
    for i in [0].into_iter().chain(weights.then_some(1)).chain(added.then_some(3)) {
        if let Some(input) = inputs.get_mut(i) {
            *input = channels_first(b, input);
        }
    }
    let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
    let list = b.attributes_that(|n| n != "channels_last");
    let y = b.with(op, &inputs, &list);
    let y = channels_last(b, &y);
    b.set(0, &y);
}

/// Normalisation of groups of channels, with an activation.
fn group_norm(b: &mut Body<'_>, x: &str) {
    let [gamma, beta] = [1, 2].map(|i| b.input(i).to_string());
    let last = b.int("channels_last", 1) != 0;
    let x = if last { channels_first(b, x) } else { x.to_string() };
    // Groups are channels of one line; what scales and shifts is for each channel of the image.
    let groups = b.int("groups", 1);
    let (shape, rows) = (b.op("Shape", &[&x]), b.ints(&[0, groups, -1]));
    let grouped = b.op("Reshape", &[&x, &rows]);
    let count = usize::try_from(groups).unwrap_or(0).min(1 << 20);
    let same = |b: &mut Body<'_>, v: f32| b.constant(HostTensor::from_f32(&[count], &vec![v; count]));
    let (one, zero) = (same(b, 1.0), same(b, 0.0));
    let epsilon = ("epsilon", Attribute::Float(b.float("epsilon", 1e-5)));
    let [one, zero] = [one, zero].map(|v| b.op("CastLike", &[&v, &x]));
    let y = b.with("InstanceNormalization", &[&grouped, &one, &zero], &[epsilon]);
    let y = b.op("Reshape", &[&y, &shape]);
    let per_channel = b.ints(&[1, -1, 1, 1]);
    let [gamma, beta] = [gamma, beta].map(|v| b.op("Reshape", &[&v, &per_channel]));
    let y = b.op("Mul", &[&y, &gamma]);
    let mut y = b.op("Add", &[&y, &beta]);
    if b.int("activation", 0) == 1 {
        y = b.op("Swish", &[&y]);
    }
    let y = if last { channels_last(b, &y) } else { y };
    b.set(0, &y);
}

/// The same of a sum, which is output 1. What is added has all extents, or those of images are 1 or left out.
fn skip_group_norm(b: &mut Body<'_>) {
    let [x, skip, bias] = [0, 3, 4].map(|i| b.input(i).to_string());
    let shape = b.op("Shape", &[&skip]);
    let rank = b.op("Shape", &[&shape]);
    let four = b.ints(&[4]);
    let missing = b.op("Sub", &[&four, &rank]);
    let one = HostTensor::from_i64(&[1], &[1]);
    let ones = b.with("ConstantOfShape", &[&missing], &[("value", Attribute::Tensor(one))]);
    let [zero, one, end] = [0, 1, 4].map(|n| b.ints(&[n]));
    let (batch, others) = (b.op("Slice", &[&shape, &zero, &one]), b.op("Slice", &[&shape, &one, &end]));
    let whole = b.with("Concat", &[&batch, &ones, &others], &[("axis", Attribute::Int(0))]);
    let skip = b.op("Reshape", &[&skip, &whole]);
    let mut sum = b.op("Add", &[&x, &skip]);
    if !bias.is_empty() {
        sum = b.op("Add", &[&sum, &bias]);
    }
    group_norm(b, &sum);
    b.set(1, &sum);
}

/// Parts of images, each brought to one size. A box is first row, first column, last row and last column, as shares of the image's extent less one; the
/// corners of both are at the same places. What is outside of the image has one value.
fn crop_and_resize(b: &mut Body<'_>) {
    let [x, boxes, images, size] = [0, 1, 2, 3].map(|i| b.input(i).to_string());
    let nearest = match b.text("mode").unwrap_or("bilinear") {
        "bilinear" => false,
        "nearest" => true,
        _ => return b.refuse("mode"),
    };
    let beyond = b.float("extrapolation_value", 0.0);
    let chosen = b.op("Gather", &[&x, &images]);
    let wide = |b: &mut Body<'_>, v: &str| b.with("Cast", &[v], &[("to", Attribute::Int(1))]);
    let boxes = wide(b, &boxes);
    let edges = b.many("Split", &[&boxes], 4, &[("axis", Attribute::Int(1)), ("num_outputs", Attribute::Int(4))]);
    let [zero, half, one, two] = [0.0, 0.5, 1.0, 2.0].map(|v| b.number(v));
    let sizes = b.many("Split", &[&size], 2, &[("num_outputs", Attribute::Int(2))]);
    // Of rows, then of columns: places in the image, [boxes, places], whether they are inside, and what GridSample calls them.
    let [(rows, row_inside), (columns, column_inside)] = [0, 1].map(|d| {
        let extent = b.with("Shape", &[&x], &[("start", Attribute::Int(2 + d)), ("end", Attribute::Int(3 + d))]);
        let extent = wide(b, &extent);
        let last = b.op("Sub", &[&extent, &one]);
        let d = d as usize;
        let [from, to] = [d, d + 2].map(|i| b.op("Mul", &[&edges[i], &last]));
        let scalar = b.ints(&[]);
        let count = b.op("Reshape", &[&sizes[d], &scalar]);
        let count = wide(b, &count);
        let steps = b.op("Sub", &[&count, &one]);
        let most = b.op("Max", &[&steps, &one]);
        let length = b.op("Sub", &[&to, &from]);
        let step = b.op("Div", &[&length, &most]);
        let numbers = b.op("Range", &[&zero, &count, &one]);
        let way = b.op("Mul", &[&numbers, &step]);
        let along = b.op("Add", &[&from, &way]);
        // One place alone is the middle.
        let middle = b.op("Add", &[&from, &to]);
        let middle = b.op("Mul", &[&middle, &half]);
        let alone = b.op("Equal", &[&steps, &zero]);
        let mut at = b.op("Where", &[&alone, &middle, &along]);
        let (not_before, not_behind) = (b.op("GreaterOrEqual", &[&at, &zero]), b.op("LessOrEqual", &[&at, &last]));
        let inside = b.op("And", &[&not_before, &not_behind]);
        if nearest {
            at = b.op("Add", &[&at, &half]);
            at = b.op("Floor", &[&at]);
        }
        let span = b.op("Max", &[&last, &one]);
        let at = b.op("Mul", &[&at, &two]);
        let at = b.op("Div", &[&at, &span]);
        (b.op("Sub", &[&at, &one]), inside)
    });
    let [across, down, apart] = [1, 2, 3].map(|axis| b.ints(&[axis]));
    let [rows, row_inside] = [rows, row_inside].map(|v| b.op("Unsqueeze", &[&v, &down]));
    let [columns, column_inside] = [columns, column_inside].map(|v| b.op("Unsqueeze", &[&v, &across]));
    let none = b.op("Mul", &[&rows, &zero]);
    let columns = b.op("Add", &[&columns, &none]);
    let none = b.op("Mul", &[&columns, &zero]);
    let rows = b.op("Add", &[&rows, &none]);
    let [columns, rows] = [columns, rows].map(|v| b.op("Unsqueeze", &[&v, &apart]));
    let grid = b.with("Concat", &[&columns, &rows], &[("axis", Attribute::Int(3))]);
    let list = [
        ("mode", Attribute::Text(if nearest { "nearest" } else { "linear" }.into())),
        ("padding_mode", Attribute::Text("border".into())),
        ("align_corners", Attribute::Int(1)),
    ];
    let y = b.with("GridSample", &[&chosen, &grid], &list);
    let inside = b.op("And", &[&row_inside, &column_inside]);
    let inside = b.op("Unsqueeze", &[&inside, &across]);
    let beyond = b.number(beyond);
    let beyond = b.op("CastLike", &[&beyond, &y]);
    let y = b.op("Where", &[&inside, &y, &beyond]);
    b.set(0, &y);
}
