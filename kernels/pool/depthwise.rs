//! Depthwise convolutions of planes in LDS: pools whose elements are multiplied with weights before they are added.
//!
//! A workitem has the weights of its channel in registers, and multiplies each row that it reads with a row of them for each of its results whose window has it.
//! Bytes are multiplied as whole numbers.

use super::planes::Planes;
use super::{Combined, PoolOp, Pooling, Share, Source};
use crate::graph::expr::{Binary, Expr, Scalar};
use crate::graph::fused::Conv;
use crate::kernels::choice::Machine;
use crate::kernels::direct::{self, Weight, Weights};
use crate::kernels::error::Res;
use crate::kernels::float::Float;
use crate::kernels::{Arg, Cx, Kernel, Writer, reduce};
use crate::mir::{Part, Type};
use crate::tensor::DType;

/// Planes are taken where they need less than so much of the time: both are estimates, fitted to the cycle model's times of 14 convolutions on seven targets.
const WORTH: f64 = 1.25;

/// Answers of memory for which a workgroup waits, one after the other, alone: for planes, for weights, and for its meetings.
const WAITS: f64 = 3.0;

/// Registers of weights, of results and of a row's elements, at most.
const REGISTERS: usize = 104;

/// The kernel of a depthwise convolution, where planes in LDS are sooner than other ways.
pub(in crate::kernels) fn depthwise(cx: &Cx, conv: &Conv) -> Option<Res<Vec<Kernel>>> {
    let (t, weights) = (cx.dtype(Arg::Input(0)), &cx.step.inputs[1].view);
    let taps = conv.window.kernel.iter().product();
    let apart = conv.groups == weights.dims[0] && weights.dims[1] == 1 && conv.also.is_empty() && conv.before.is_none();
    let known = matches!(t, DType::F32 | DType::F16 | DType::BF16 | DType::I8) && cx.dtype(Arg::Input(1)) == t;
    if !apart || !known || cx.link.is_some() || !Weights::come_in_words(cx, taps) {
        return None;
    }
    let (prologue, neutral) = match t {
        DType::I8 => flipped(conv.flip as i8),
        _ => (Expr::copy(t), Scalar::Float(0.0)),
    };
    let window = &conv.window;
    let pooling = Pooling { cx, window, prologue: &prologue, pool: PoolOp::Sum, neutral, weights: true };
    let (clocks, planes) = Planes::of(&pooling)?;
    let machine = Machine::of(cx.target);
    let begun = machine.ends + WAITS * machine.dram;
    let worth = begun + clocks < WORTH * direct::clocks(cx, conv);
    worth.then(|| planes.lower(&pooling))
}

/// Bytes combined with another by exclusive or, as they are multiplied; and what that makes of the zeros around them.
fn flipped(with: i8) -> (Expr, Scalar) {
    let mut e = Expr::new();
    let mut x = e.push_acc(DType::I8);
    if with != 0 {
        let with = e.constant(DType::I8, f64::from(with));
        x = e.binary(Binary::Xor, x, with);
    }
    let x = e.cast(x, DType::I32);
    (e.finish(x), Scalar::Int(i64::from(with)))
}

impl Pooling<'_> {
    /// Registers that a workitem has its weights in.
    fn of_weights(&self) -> usize {
        let taps: usize = self.window.kernel.iter().product();
        if self.cx.dtype(Arg::Input(1)) == DType::F16 { taps.div_ceil(2) } else { taps }
    }

    /// A workitem has room for its share of a convolution.
    pub(super) fn holds(&self, share: &Share) -> bool {
        !self.weights || self.of_weights() + share.width * share.below + 2 * share.columns(self.window) <= REGISTERS
    }

    /// Instructions for what a workitem multiplies, and for its weights.
    pub(super) fn multiplied(&self, share: &Share) -> usize {
        let taps: usize = self.window.kernel.iter().product();
        taps * share.width * share.below + 2 * self.of_weights()
    }

    /// The sums of each window, in rows of neighbours, with the weights of a channel.
    pub(super) fn convolved(
        &self,
        w: &mut Writer,
        share: &Share,
        coords: &[Option<Part>],
        source: Source,
        weights: &[Weight],
    ) -> Res<Vec<Combined>> {
        let (window, ty) = (self.window, self.ty());
        let (columns, step) = (window.kernel[1], window.strides[1]);
        let first = share.around[0] - window.pads[1];
        let whole = ty == Type::I32;
        let zero = |w: &mut Writer| if whole { w.b.to_vector(0u32) } else { Float(ty).held(&mut w.b, 0.0) };
        let sums: Vec<Vec<Part>> = (0..share.below).map(|_| (0..share.width).map(|_| zero(w)).collect()).collect();
        // What lies outside of rows that a workitem has all of.
        let outside = match self.neutral.as_i64() {
            0 => None,
            _ => Some(reduce::literal(w, self.prologue.dtype(), self.neutral)?),
        };
        self.walk(w, share, coords, source, |w, row, [own, _]| {
            for (h, of_window) in self.takers(share, row) {
                for k in 0..columns {
                    let weight = weights[of_window * columns + k];
                    for (e, sum) in sums[h].iter().enumerate() {
                        if let Some(x) = own[first + e * step + k * window.dilations[1]].or(outside) {
                            let x = x.whole(&mut w.b);
                            weight.multiply_add(w, ty, *sum, (x, false));
                        }
                    }
                }
            }
        })?;
        Ok(sums.into_iter().map(|sums| Combined { sums, own: Vec::new() }).collect())
    }
}
