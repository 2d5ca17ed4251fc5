//! What convolutions may be computed as instead: with what changes their input, and as two steps.

use super::{Implicit, Positions, clocks, is_direct, quickest};
use crate::graph::fused::StepKind;
use crate::kernels::{Arg, Cx, choice, gemm, loader, values};
use crate::tensor::DType;

/// Registers of what a workitem loads of a tile and of constants beside it, at most; and instructions that a load of these takes as long as.
const MOST_LOADED: f64 = 64.0;
const OF_LOAD: f64 = 4.0;

/// The elements of the step's input can be changed while they are loaded, and that is quicker than what changes them and the convolution one after the
/// other: by estimates of both.
pub(in crate::kernels) fn begins(cx: &Cx, apart: [Cx; 2]) -> bool {
    let (StepKind::Conv(conv), [change, rest]) = (&cx.step.kind, &apart) else { return false };
    let (StepKind::Conv(alone), Some(before)) = (&rest.step.kind, &conv.before) else { return false };
    let dtype = cx.dtype(Arg::Input(0));
    let able = matches!(dtype, DType::F32 | DType::F16 | DType::BF16);
    let same = |i: usize| cx.dtype(Arg::Input(i)) == dtype;
    let forward = cx.step.inputs[0].view.strides.iter().all(|s| *s >= 0);
    let product = Implicit::with(cx, conv, Positions::Image);
    let all = able && (0..cx.step.kind.operands()).all(same) && forward && product.least_width() == 1;
    let Some(types) = gemm::types(cx).ok().filter(|types| all && !is_direct(cx, *types, conv)) else { return false };
    let (Ok((whole, tile, _)), Ok(Some(part))) = (quickest(cx, types, conv), clocks(rest, alone)) else { return true };
    let (machine, info) = (choice::Machine::of(cx.target), cx.target.info());
    // All tiles of some positions change these for themselves.
    let e = product.extents();
    let along = [(e.m, tile.m), (e.n, tile.n)];
    let ((channels, high), (positions, width)) = (along[1 - e.image], along[e.image]);
    let (tiles, positions) = (channels.div_ceil(high as usize), positions.next_multiple_of(width as usize));
    let elements =
        (e.batches * tiles * positions * e.k) as f64 / f64::from(info.wave_size * info.simds * cx.target.cus());
    // Of each load its k's constants come by others.
    let together = if product.comes_apart() { 1.0 } else { f64::from(loader::WORD) };
    let constants = before.operands as f64 / together;
    let loads = f64::from(width * tile.k / tile.threads()) * (1.0 / together + constants);
    if loads > MOST_LOADED {
        return false;
    }
    let each =
        (before.expr.cost() as f64 + OF_LOAD * constants) * machine.issue + values::conversions(cx.target, dtype);
    let moved = change.step.inputs.iter().chain([&change.step.output]);
    let moved: usize = moved.map(|a| change.graph.tensor(a.tensor).bytes()).sum();
    let first = machine.launch + machine.ends + moved as f64 / machine.memory;
    whole + elements * each < first + part
}

/// Two steps are taken for one where both need so much less time: all are estimates.
const WORTH_TWO: f64 = 0.8;

/// A convolution whose windows are rows, and the sums of what it gives, are quicker than one of whole windows.
pub(in crate::kernels) fn are_quicker(rows: &Cx, sums: &Cx, whole: &Cx) -> bool {
    let clocks = |cx: &Cx| match &cx.step.kind {
        StepKind::Conv(conv) => clocks(cx, conv).ok().flatten(),
        _ => None,
    };
    let (Some(by_rows), Some(whole)) = (clocks(rows), clocks(whole)) else { return false };
    let machine = choice::Machine::of(rows.target);
    let moved = [rows, sums].map(|cx| cx.graph.tensor(cx.step.output.tensor).bytes() as f64);
    let added = machine.launch + machine.ends + moved.iter().sum::<f64>() / machine.memory;
    by_rows + added < WORTH_TWO * whole
}
