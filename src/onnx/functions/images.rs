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
