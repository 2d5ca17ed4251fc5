//! Expressions of operands, element by element.

use super::{Inferred, Kind, Operand};
use crate::graph::collapse::merge;
use crate::graph::fused::Step;
use crate::graph::interpret::{Data, Error, Operands};
use crate::graph::rules::Broken;
use std::fmt;

/// See [`StepKind::Pointwise`](super::StepKind::Pointwise).
pub(super) struct Pointwise;

impl Kind for Pointwise {
    fn name(&self) -> &'static str {
        "pointwise"
    }

    fn operands(&self) -> usize {
        0
    }

    fn infer(&self, _: &[Operand<'_>], _: usize) -> Result<Option<Inferred>, Broken> {
        Ok(None)
    }

    fn cut(&self, _: usize, d: usize, _: usize) -> Option<Option<usize>> {
        Some(Some(d))
    }

    fn interpret(&self, _: &Operands<'_>) -> Result<Option<Data>, Error> {
        Ok(None)
    }

    fn collapse(&self, step: &mut Step) {
        merge(step, 0..step.output.view.rank(), true);
    }

    fn print(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}
