//! Convolutions of tall windows to few channels are computed row of the window by row.
//!
//! Last layers of super resolution and of decoders have three channels and windows of 3x3 to 9x9: as products they have three rows, of which tiles have
//! sixteen at least. Windows of one row each give as many rows as there are channels times rows of the window, each a channel of
//! its own; results are sums of these, shifted by what lies between the window's rows. In between are sums of 32 bits. Whoever asks says where that is
//! worth it.

use super::compose::MAX_INPUTS;
use super::expr::{Binary, Expr, Scalar};
use super::fused::{Access, Conv, FusedGraph, Guard, Role, Step, StepKind, Tensor, Window};
use super::view::View;
use crate::tensor::{DType, HostTensor};

/// Channels at most.
const FEW: usize = 8;

/// The graph with such convolutions as two steps, where `quicker` says yes to both instead of one; `None` where there are none.
pub(crate) fn take_rows_apart(
    graph: &FusedGraph,
    quicker: impl Fn(&FusedGraph, [&Step; 2], &Step) -> bool,
) -> Option<FusedGraph> {
    let (mut out, mut steps): (Option<FusedGraph>, _) = (None, Vec::with_capacity(graph.steps.len()));
    let mut changed = false;
    for step in &graph.steps {
        if let Some(weights) = rows_of_weights(graph, step) {
            let now = out.get_or_insert_with(|| graph.clone());
            let tensors = now.tensors.len();
            let both = in_two(now, step, weights).filter(|[rows, sums]| {
                let promised = [rows, sums].into_iter().all(|s| now.step_promises(s).is_ok());
                promised && quicker(now, [rows, sums], step)
            });
            if let Some(both) = both {
                steps.extend(both);
                changed = true;
                continue;
            }
            now.tensors.truncate(tensors);
        }
        steps.push(step.clone());
    }
    let mut graph = out.filter(|_| changed)?;
    graph.steps = steps;
    super::prune::prune(&mut graph);
    Some(graph)
}

/// The convolution, if it is such a one.
fn tall(step: &Step) -> Option<&Conv> {
    let StepKind::Conv(conv @ Conv { groups: 1, before: None, flip: 0, also, window }) = &step.kind else {
        return None;
    };
    let few = step.output.view.dims[1] <= FEW && window.kernel.len() == 2;
    // Phases of a transposed convolution are side by side anyway, and few results of each are near each other.
    let together = step.output.view.strides.last() == Some(&1);
    let rows = few && together && window.kernel[0] > 1 && window.strides[0] == 1;
    let operands = window.kernel.first()? + step.inputs.len() - 2;
    (rows && also.is_empty() && operands <= MAX_INPUTS && step.inputs.iter().all(Access::is_plain)).then_some(conv)
}

/// Its weights, of which each row of the window has channels of its own: those of the first row, then those of the next.
fn rows_of_weights(graph: &FusedGraph, step: &Step) -> Option<HostTensor> {
    tall(step)?;
    let access = &step.inputs[1];
    let t = graph.tensor(access.tensor);
    let Role::Constant(data) = &t.role else { return None };
    if !matches!(t.dtype, DType::F32 | DType::F16 | DType::BF16) {
        return None;
    }
    let (&[channels, inputs, height, width], strides) = (&access.view.dims[..], &access.view.strides) else {
        return None;
    };
    let mut bytes = Vec::with_capacity(channels * inputs * height * width * t.dtype.size());
    for row in 0..height {
        for (channel, input) in (0..channels).flat_map(|m| (0..inputs).map(move |c| (m, c))) {
            for column in 0..width {
                let at = [channel, input, row, column].into_iter().zip(strides);
                let at = access.view.offset + at.map(|(i, stride)| i as i64 * stride).sum::<i64>();
                bytes.extend_from_slice(data.element(usize::try_from(at).ok()?));
            }
        }
    }
    HostTensor::new(t.dtype, &[height * channels, inputs, 1, width], bytes).ok()
}

/// The convolution with windows of one row, and the sums of what it gives.
fn in_two(graph: &mut FusedGraph, step: &Step, weights: HostTensor) -> Option<[Step; 2]> {
    let (Window { kernel, strides, dilations, pads }, out) = (&tall(step)?.window, &step.output.view);
    let (x, rows) = (&step.inputs[0].view, kernel[0]);
    let (images, channels, height, width) = (out.dims[0], out.dims[1], x.dims[2], out.dims[3]);
    let dtype = graph.tensor(step.inputs[1].tensor).dtype;
    let of_steps = graph.tensor(step.output.tensor).name.clone();
    let weights = Tensor {
        name: graph.tensor(step.inputs[1].tensor).name.clone(),
        dtype,
        shape: weights.shape().to_vec(),
        role: Role::Constant(weights),
    };
    let shape = weights.shape.clone();
    let weights = graph.add_tensor(weights);
    let between = vec![images, rows * channels, height, width];
    let name = format!("{of_steps} by rows");
    let between = Tensor { name, dtype: DType::F32, shape: between, role: Role::Intermediate };
    let whole = View::dense(&between.shape);
    let between = graph.add_tensor(between);
    let mut expr = Expr::new();
    let sum = expr.push_acc(dtype);
    let sum = expr.cast(sum, DType::F32);
    let window = Window {
        kernel: vec![1, kernel[1]],
        strides: vec![1, strides[1]],
        dilations: vec![1, dilations[1]],
        pads: vec![0, pads[1]],
    };
    let by_rows = Step {
        name: step.name.clone(),
        kind: StepKind::Conv(Conv::new(window, 1)),
        inputs: vec![step.inputs[0].clone(), Access::new(weights, View::dense(&shape))],
        expr: expr.finish(sum),
        output: Access::new(between, whole.clone()),
    };
    // Row by row of the window: where its results are, shifted, and which of them there are.
    let mut inputs = Vec::new();
    let mut expr = Expr::new();
    let mut sum = None;
    for row in 0..rows {
        let further = (row * dilations[0]) as i64 - pads[0] as i64;
        let ends = [-further, height as i64 - further].map(|y| y.clamp(0, out.dims[2] as i64) as usize);
        if ends[0] >= ends[1] {
            continue;
        }
        let first = (row * channels) as i64 * whole.strides[1] + further * whole.strides[2];
        let view = View { offset: first, dims: out.dims.clone(), strides: whole.strides.clone() };
        let mut access = Access::new(between, view);
        if ends != [0, out.dims[2]] {
            let mut ranges: Vec<(usize, usize)> = out.dims.iter().map(|n| (0, *n)).collect();
            ranges[2] = (ends[0], ends[1]);
            access.guard = Some(Guard { ranges, fill: Scalar::Float(0.0) });
        }
        let x = expr.input(inputs.len(), DType::F32);
        sum = Some(sum.map_or(x, |sum| expr.binary(Binary::Add, sum, x)));
        inputs.push(access);
    }
    let sum = expr.cast(sum?, dtype);
    let own = inputs.len();
    let result = expr.append(&step.expr, Some(sum), |expr, i, t| expr.input(own + i as usize - 2, t));
    inputs.extend_from_slice(&step.inputs[2..]);
    let sums = Step {
        name: step.name.clone(),
        kind: StepKind::Pointwise,
        inputs,
        expr: expr.finish(result),
        output: step.output.clone(),
    };
    Some([by_rows, sums])
}
