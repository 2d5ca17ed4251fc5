//! Which update of a place is the last one.

use super::{Inferred, Kind, Operand};
use crate::graph::expr::{Node, Op};
use crate::graph::fused::Step;
use crate::graph::interpret::{Data, Error, Operands, each};
use crate::graph::rules::Broken;
use crate::graph::view::dense_strides;
use crate::tensor::DType;
use std::fmt;

/// `O[c]` = the largest number along the axis, an `i32`, of an element of in0 that is c's coordinate along the axis, where all others of its coordinates are
/// c's; -1 where there is none. Negative elements count from the end of `O`; what is outside is left out. Nothing else is done to numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Lasts {
    /// The axis.
    pub axis: usize,
}

impl Kind for Lasts {
    fn name(&self) -> &'static str {
        "lasts"
    }

    fn operands(&self) -> usize {
        1
    }

    fn infer(&self, operands: &[Operand<'_>], rank: usize) -> Result<Option<Inferred>, Broken> {
        let (index, places) = operands[0];
        if places.len() != rank || self.axis >= rank || !matches!(index, DType::I32 | DType::I64) {
            return Err(Broken::Fit(format!("finds the last of {index} {places:?} for {rank} dimensions")));
        }
        let dims = (0..rank).map(|d| (d != self.axis).then_some(places[d])).collect();
        Ok(Some(Inferred { dtype: DType::I32, dims }))
    }

    fn check(&self, step: &Step) -> Result<(), Broken> {
        match (step.inputs.len(), step.expr.nodes()) {
            (1, [Node { op: Op::Acc, .. }]) => Ok(()),
            _ => Err(Broken::Layout("numbers of updates are changed")),
        }
    }

    fn interpret(&self, at: &Operands<'_>) -> Result<Option<Data>, Error> {
        let strides = dense_strides(at.dims());
        let extent = at.dims()[self.axis] as i64;
        let mut all = vec![-1; at.dims().iter().product()];
        each(&at.view(0).dims, |c| {
            let index = at.element(0, c).as_i64();
            let index = if index < 0 { index + extent } else { index };
            if (0..extent).contains(&index) {
                let place = |d: usize| if d == self.axis { index } else { c[d] as i64 };
                let place: i64 = strides.iter().enumerate().map(|(d, s)| place(d) * s).sum();
                let last: &mut i64 = &mut all[place as usize];
                *last = (*last).max(c[self.axis] as i64);
            }
        });
        Ok(Some(Data::Int(all)))
    }

    fn collapse(&self, _: &mut Step) {
        // Its dimensions have a meaning.
    }

    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "    axis {}", self.axis)
    }
}
