//! Convolutions of points whose channels come last in memory are matrix products: lines of their images are channels of a position, one position behind
//! the other, as lines of their weights are channels of a result. Kernels of products have more ways to compute them.

use super::collapse;
use super::fused::{Access, Conv, FusedGraph, Step, StepKind};
use super::view::View;

/// The graph with such convolutions as products, of those that `may` be; `None` where there are none.
pub(crate) fn multiply_points(graph: &FusedGraph, may: impl Fn(&FusedGraph, &Step) -> bool) -> Option<FusedGraph> {
    let products = graph.steps.iter().enumerate().filter_map(|(at, step)| Some((at, as_product(graph, step)?)));
    let products: Vec<(usize, Step)> = products.filter(|(at, _)| may(graph, &graph.steps[*at])).collect();
    if products.is_empty() {
        return None;
    }
    let mut next = graph.clone();
    products.into_iter().for_each(|(at, product)| next.steps[at] = product);
    Some(next)
}

/// The convolution as a product of positions of all images and weights; none where it is not one of points, where positions are not in line, or where what it
/// reads and writes has something between images.
fn as_product(graph: &FusedGraph, step: &Step) -> Option<Step> {
    let StepKind::Conv(conv) = &step.kind else { return None };
    let [x, weights, ..] = &step.inputs[..] else { return None };
    let last = |a: &Access| a.view.strides[1] == 1 && a.view.dims[1] > 1;
    let plain = step.inputs.iter().chain([&step.output]).all(Access::is_plain);
    let same = x.view.dims[2..] == step.output.view.dims[2..];
    if !is_of_points(conv) || !plain || !same || !last(x) || !last(&step.output) || !weights.view.is_dense() {
        return None;
    }
    let mut product = Step { kind: StepKind::MatMul, ..step.clone() };
    let (first, behind) = product.inputs.split_at_mut(1);
    let images = || [x].into_iter().chain(&step.inputs[2..]).chain([&step.output]).map(|a| &a.view);
    let matrices = collapse::of_positions(images(), true).filter(|all| all.iter().all(|v| v.rank() == 2))?;
    let accesses = first.iter_mut().chain(&mut behind[1..]).chain([&mut product.output]);
    accesses.zip(matrices).for_each(|(a, view)| a.view = view);
    let [outputs, channels] = [weights.view.dims[0], weights.view.dims[1]];
    let view = View { offset: weights.view.offset, dims: vec![channels, outputs], strides: vec![1, channels as i64] };
    product.inputs[1].view = view;
    graph.step_promises(&product).ok()?;
    Some(product)
}

/// Windows are points, of all channels, and nothing else is in the convolution.
fn is_of_points(conv: &Conv) -> bool {
    let alone = conv.groups == 1 && conv.before.is_none() && conv.also.is_empty() && conv.flip == 0;
    alone && conv.window.is_point()
}
