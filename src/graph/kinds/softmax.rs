//! Softmax.

use super::{Inferred, Kind, Operand};
use crate::graph::collapse::merge;
use crate::graph::fused::Step;
use crate::graph::interpret::{Data, Error, Operands, rows};
use crate::graph::rules::Broken;
use crate::graph::view::View;
use std::fmt;

/// `O[c,j] = exp(in0[c,j]) / sum over j of exp(in0[c,j])`, computed without overflow, or its logarithm. in0 and `O` have two or
/// more dimensions, merged as far as possible; the last is the one summed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Softmax {
    /// Take the logarithm.
    pub log: bool,
    /// Where all of `in0[c,..]` is hidden (-inf) the result is 0, not NaN: attention without anything to attend to.
    pub masked: bool,
}

impl Softmax {
    /// What becomes of elements, walked as a view says.
    pub(super) fn of_lines(&self, a: &[f64], view: &View) -> Vec<f64> {
        let mut out = Vec::with_capacity(view.len());
        rows(view, 1, |at| {
            let m = at.iter().map(|&i| a[i]).fold(f64::NEG_INFINITY, f64::max);
            if self.masked && at.iter().all(|&i| a[i] == f64::NEG_INFINITY) {
                return out.extend(at.iter().map(|_| 0.0));
            }
            let sum: f64 = at.iter().map(|&i| (a[i] - m).exp()).sum();
            out.extend(at.iter().map(|&i| if self.log { a[i] - m - sum.ln() } else { (a[i] - m).exp() / sum }));
        });
        out
    }
}

impl Kind for Softmax {
    fn name(&self) -> &'static str {
        "softmax"
    }

    fn operands(&self) -> usize {
        1
    }

    fn infer(&self, operands: &[Operand<'_>], rank: usize) -> Result<Option<Inferred>, Broken> {
        if rank < 2 {
            return Err(Broken::Fit("has less than two dimensions".into()));
        }
        Ok(Some(Inferred::new(operands[0].0, operands[0].1)))
    }

    fn cut(&self, _: usize, d: usize, rank: usize) -> Option<Option<usize>> {
        (d + 1 < rank).then_some(Some(d))
    }

    fn interpret(&self, at: &Operands<'_>) -> Result<Option<Data>, Error> {
        Ok(Some(Data::Float(self.of_lines(at.floats(0)?, at.view(0)))))
    }

    fn collapse(&self, step: &mut Step) {
        merge(step, 0..step.output.view.rank() - 1, true);
    }

    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "    log {}, masked {}", self.log, self.masked)
    }
}
