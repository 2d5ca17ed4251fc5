//! Products of many matrices that are smaller than any tile: a workitem computes results as those of elementwise steps, with what it needs of both
//! matrices in registers, where a workgroup for each product would compute a tile of which few results are stored.

use super::{Arg, Cx, Kernel, error::Res, pointwise};
use crate::graph::expr::{Binary, Expr, Op};
use crate::graph::fused::{Access, Step, StepKind};
use crate::graph::view::View;
use crate::tensor::DType;

/// Rows and columns, and depth, up to which elementwise results are sooner there, and how many products there are then at least for a compute unit.
/// Each element along the depth is an operand of its own, whose descriptor takes four scalar registers.
const SIDE: usize = 8;
const DEPTH: usize = 4;
const PRODUCTS: usize = 4;

/// The elementwise step that such a product is, and its depth; none of another.
fn step(cx: &Cx) -> Option<(Step, usize)> {
    let (step, r) = (cx.step, cx.step.output.view.rank());
    let (dims, k) = (&step.output.view.dims, step.inputs.first()?.view.dims[r - 1]);
    let batches: usize = dims[..r - 2].iter().product();
    let plain = step.inputs[..2].iter().all(Access::is_plain);
    let small = dims[r - 2] <= SIDE && dims[r - 1] <= SIDE && k <= DEPTH;
    if step.kind != StepKind::MatMul || !plain || !small || batches < PRODUCTS * cx.target.cus() as usize {
        return None;
    }
    let types = [0, 1].map(|i| cx.dtype(Arg::Input(i)));
    let acc = step.expr.nodes().iter().find(|n| n.op == Op::Acc)?.dtype;
    let sum = match types {
        [DType::F64, DType::F64] => DType::F64,
        [a, b] if [a, b].iter().all(|t| matches!(t, DType::F32 | DType::F16 | DType::BF16)) => DType::F32,
        _ => return None,
    };
    // Element `i` along the depth, the same along dimension `same`.
    let element = |operand: usize, i: usize, along: usize, same: usize| {
        let from = &step.inputs[operand].view;
        let mut view = View { offset: from.offset + i as i64 * from.strides[along], ..from.clone() };
        view.dims.clone_from(dims);
        view.strides[same] = 0;
        Access::new(step.inputs[operand].tensor, view)
    };
    let mut inputs: Vec<Access> = (0..k).map(|i| element(0, i, r - 1, r - 1)).collect();
    inputs.extend((0..k).map(|i| element(1, i, r - 2, r - 2)));
    inputs.extend_from_slice(&step.inputs[2..]);
    let mut e = Expr::new();
    let mut total = None;
    for i in 0..k {
        let [a, b] = [(i, types[0]), (k + i, types[1])].map(|(i, t)| {
            let x = e.input(i, t);
            e.cast(x, sum)
        });
        let product = e.binary(Binary::Mul, a, b);
        total = Some(total.map_or(product, |sum| e.binary(Binary::Add, sum, product)));
    }
    let total = e.cast(total?, acc);
    let result = e.append(&step.expr, Some(total), |e, i, t| e.input(2 * k + i as usize - 2, t));
    Some((Step { kind: StepKind::Pointwise, inputs, expr: e.finish(result), ..step.clone() }, k))
}

/// The kernel of such a product; none of another.
pub(super) fn lower(cx: &Cx) -> Option<Res<Vec<Kernel>>> {
    let (step, k) = step(cx)?;
    // What it reads are the product's operands.
    let operand = |arg: Arg| match arg {
        Arg::Input(i) => Arg::Input(if i < 2 * k { i / k } else { i - 2 * k + 2 }),
        arg => arg,
    };
    let named = |kernel: Kernel| Kernel { args: kernel.args.into_iter().map(operand).collect(), ..kernel };
    let kernels = pointwise::lower(&Cx { step: &step, ..*cx });
    Some(kernels.map(|list| list.into_iter().map(named).collect()))
}
