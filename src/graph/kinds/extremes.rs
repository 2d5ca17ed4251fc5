//! What two expressions make of the smallest and the largest element of a tensor.

use super::{Inferred, Kind, Operand};
use crate::graph::expr::{Expr, Scalar};
use crate::graph::fused::Step;
use crate::graph::interpret::{Data, Error, Operands, evaluate};
use crate::graph::rules::Broken;
use crate::tensor::DType;
use std::fmt;

/// `O[i] = results[i](smallest, largest)` of all elements of in0, as `f32`: both expressions have these two as operands 0 and 1. NaN are left out, and
/// of nothing the smallest is infinite, the largest negative infinite. in0 is a row of neighbours, and `O` one of two elements.
#[derive(Clone, Debug, PartialEq)]
pub struct Extremes {
    /// What is made of both.
    pub results: [Expr; 2],
}

impl Kind for Extremes {
    fn name(&self) -> &'static str {
        "extremes"
    }

    fn operands(&self) -> usize {
        1
    }

    fn infer(&self, operands: &[Operand<'_>], rank: usize) -> Result<Option<Inferred>, Broken> {
        let (dtype, dims) = operands[0];
        if rank != 1 || dims.len() != 1 || !matches!(dtype, DType::F32 | DType::F16 | DType::BF16) {
            return Err(Broken::Fit(format!("finds extremes of {dtype} {dims:?} for {rank} dimensions")));
        }
        if self.results.iter().any(|e| e.dtype() != DType::F32) {
            return Err(Broken::Fit("makes something other than f32 of extremes".into()));
        }
        Ok(Some(Inferred::new(DType::F32, &[self.results.len()])))
    }

    fn check(&self, step: &Step) -> Result<(), Broken> {
        match step.inputs[0].view.is_dense() {
            true => Ok(()),
            false => Err(Broken::Fit(format!("finds extremes of {}, which are no neighbours", step.inputs[0].view))),
        }
    }

    fn interpret(&self, at: &Operands<'_>) -> Result<Option<Data>, Error> {
        let (all, view) = (at.floats(0)?, at.view(0));
        let first = usize::try_from(view.offset).unwrap_or(0);
        let elements = &all[first..first + view.len()];
        let smallest = elements.iter().copied().fold(f64::INFINITY, f64::min);
        let largest = elements.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let mut cells = Vec::new();
        let mut result = |e: &Expr| {
            evaluate(e, None, &mut cells, |i| Scalar::Float(if i == 0 { smallest } else { largest })).as_f64()
        };
        Ok(Some(Data::Float(self.results.iter().map(&mut result).collect())))
    }

    fn collapse(&self, _: &mut Step) {}

    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, second] = &self.results;
        writeln!(f, "    {first} and {second} of smallest and largest")
    }
}
