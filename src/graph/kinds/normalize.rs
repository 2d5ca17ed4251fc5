//! Layer, instance, group and root mean square normalisation.

use super::{Inferred, Kind, Operand, StepKind};
use crate::graph::collapse::{groups, merge};
use crate::graph::fused::Step;
use crate::graph::interpret::{Data, Error, Operands, rows};
use crate::graph::rules::Broken;
use crate::graph::view::View;
use std::fmt;
use std::ops::Range;

/// `O[c,j..] = (in0[c,j..] - mean) / sqrt(variance + epsilon)`, mean and (biased) variance over the last `axes` dimensions.
/// Scale and bias are in the epilogue. By magnitudes it is `in0[c,j..]` divided by the sum of the magnitudes, or 0 where that is 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Normalize {
    /// How many trailing dimensions are normalised over.
    pub axes: usize,
    /// Added to the variance.
    pub epsilon: f64,
    /// Subtract the mean; otherwise it counts as 0 (root mean square normalisation).
    pub center: bool,
    /// Divide by the sum of magnitudes; there is no mean then, nor anything added.
    pub magnitudes: bool,
}

impl Normalize {
    /// Normalises what is normalised together.
    pub(super) fn normalize(&self, all: &mut [f64]) {
        if self.magnitudes {
            let sum: f64 = all.iter().map(|x| x.abs()).sum();
            all.iter_mut().for_each(|x| *x = if sum == 0.0 { 0.0 } else { *x / sum });
            return;
        }
        let n = all.len() as f64;
        let mean = if self.center { all.iter().sum::<f64>() / n } else { 0.0 };
        let var = all.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
        all.iter_mut().for_each(|x| *x = (*x - mean) / (var + self.epsilon).sqrt());
    }

    /// What becomes of elements, walked as a view says.
    pub(super) fn of_lines(&self, elements: &[f64], view: &View) -> Vec<f64> {
        let mut out = Vec::with_capacity(view.len());
        rows(view, self.axes, |at| {
            let from = out.len();
            out.extend(at.iter().map(|&i| elements[i]));
            self.normalize(&mut out[from..]);
        });
        out
    }
}

impl Kind for Normalize {
    fn name(&self) -> &'static str {
        "normalize"
    }

    fn operands(&self) -> usize {
        1
    }

    fn infer(&self, operands: &[Operand<'_>], rank: usize) -> Result<Option<Inferred>, Broken> {
        if self.axes == 0 || self.axes > rank {
            return Err(Broken::Fit(format!("normalises over {} of {rank} dimensions", self.axes)));
        }
        Ok(Some(Inferred::new(operands[0].0, operands[0].1)))
    }

    fn cut(&self, _: usize, d: usize, rank: usize) -> Option<Option<usize>> {
        (d + self.axes < rank).then_some(Some(d))
    }

    fn interpret(&self, at: &Operands<'_>) -> Result<Option<Data>, Error> {
        Ok(Some(Data::Float(self.of_lines(at.floats(0)?, at.view(0)))))
    }

    fn split(&self, runs: &[Range<usize>]) -> Option<StepKind> {
        let axes = runs[runs.len().checked_sub(self.axes)?..].iter().map(Range::len).sum();
        (axes > 0).then_some(StepKind::Normalize(Normalize { axes, ..*self }))
    }

    fn collapse(&self, step: &mut Step) {
        let (n, rank) = (self.axes, step.output.view.rank());
        in_memory_order(step, rank - n);
        let views: Vec<&View> = step.inputs.iter().chain([&step.output]).map(|a| &a.view).collect();
        let axes = groups(&views, rank - n..rank).len().max(1);
        merge(step, rank - n..rank, true);
        merge(step, 0..rank - n, true);
        step.kind = StepKind::Normalize(Normalize { axes, ..*self });
    }

    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.magnitudes {
            return writeln!(f, "    over the last {}, by magnitudes", self.axes);
        }
        // As the attribute has it, which has 32 bits.
        let (short, long) = (self.epsilon as f32, self.epsilon);
        let epsilon = if f64::from(short) == long { format!("{short:e}") } else { format!("{long:e}") };
        writeln!(f, "    over the last {}, epsilon {epsilon}, center {}", self.axes, self.center)
    }
}

/// Puts the dimensions that are normalised over, in whatever order, in that of the operand's memory.
fn in_memory_order(step: &mut Step, outer: usize) {
    let x = &step.inputs[0].view;
    let mut order: Vec<usize> = (0..x.rank()).collect();
    order[outer..].sort_by_key(|d| std::cmp::Reverse(x.strides[*d].abs()));
    let plain = step.inputs.iter().chain([&step.output]).all(|a| a.is_plain());
    if plain && !order.is_sorted() {
        for a in step.inputs.iter_mut().chain([&mut step.output]) {
            a.view = a.view.permuted(&order);
        }
    }
}
