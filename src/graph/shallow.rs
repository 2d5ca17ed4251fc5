//! Products of a depth of few elements, to few columns or, of 16 bits, of few rows, are elementwise: a result is the sum of so many products of what two
//! operands have there.
//!
//! Points that are turned in space, a million of three coordinates, move through memory as they would for a sum, while a tile of a product would be
//! nearly empty.

use super::compose::MAX_INPUTS;
use super::expr::{Binary, Expr};
use super::fused::{Access, FusedGraph, Step, StepKind};
use super::uses::Changing;
use super::view::View;
use crate::tensor::DType;

/// Depth, and columns or rows, at most; and how many of the others there are at least.
const DEPTH: usize = 4;
const FEW: usize = 4;
const MANY: usize = 1024;

/// The graph with such products as elementwise steps, of those that `fits` says yes to; `None` where there are none.
pub(crate) fn spread_shallow_products(
    graph: &FusedGraph,
    fits: impl Fn(&FusedGraph, &Step) -> bool,
) -> Option<FusedGraph> {
    let mut changing = Changing::of(graph);
    for (at, step) in graph.steps.iter().enumerate() {
        let spread = spread(graph, step).filter(|s| graph.step_promises(s).is_ok() && fits(graph, step));
        if let Some(spread) = spread {
            changing.attempt(|_, _| Some(vec![(at, Some(spread))]));
        }
    }
    changing.end()
}

/// Such a product as an elementwise step.
fn spread(graph: &FusedGraph, step: &Step) -> Option<Step> {
    let ([a, b, rest @ ..], StepKind::MatMul) = (&step.inputs[..], &step.kind) else { return None };
    let dtype = graph.tensor(a.tensor).dtype;
    let known = matches!(dtype, DType::F32 | DType::F16 | DType::BF16) && graph.tensor(b.tensor).dtype == dtype;
    let out = &step.output.view;
    let (rank, columns) = (out.rank(), *out.dims.last()?);
    let depth = *a.view.dims.last()?;
    let rows = out.len() / columns.max(1);
    let narrow = columns <= FEW && rows >= MANY;
    let flat = dtype.is_half() && columns >= MANY && rank >= 2 && out.dims[rank - 2] <= FEW;
    let small = depth <= DEPTH && (narrow || flat) && 2 * depth + rest.len() <= MAX_INPUTS;
    let alike = rank >= 2 && [a, b].iter().all(|x| x.view.rank() == rank);
    if !known || !small || !alike || !step.inputs.iter().all(Access::is_plain) {
        return None;
    }
    let (mut expr, mut inputs, mut sum) = (Expr::new(), Vec::new(), None);
    for k in 0..depth as i64 {
        // A side's element of the depth stands for all of the other side's dimension.
        let factors = [(a, rank - 1), (b, rank - 2)].map(|(access, along)| {
            let mut strides = access.view.strides.clone();
            let offset = access.view.offset + k * strides[along];
            strides[along] = 0;
            inputs.push(Access::new(access.tensor, View { offset, dims: out.dims.clone(), strides }));
            expr.input(inputs.len() - 1, dtype)
        });
        let product = expr.binary(Binary::Mul, factors[0], factors[1]);
        sum = Some(sum.map_or(product, |sum| expr.binary(Binary::Add, sum, product)));
    }
    let own = inputs.len();
    let result = expr.append(&step.expr, sum, |expr, i, t| expr.input(own + i as usize - 2, t));
    inputs.extend_from_slice(rest);
    let (kind, expr) = (StepKind::Pointwise, expr.finish(result));
    Some(Step { name: step.name.clone(), kind, inputs, expr, output: step.output.clone() })
}
