//! Running sums and products.

use super::{Inferred, Kind, Operand};
use crate::graph::collapse::merge;
use crate::graph::expr::{Binary, Scalar};
use crate::graph::fused::Step;
use crate::graph::interpret::{Data, Error, Operands, binary, rows};
use crate::graph::rules::Broken;
use crate::tensor::DType;
use std::fmt;

/// `O[c,j] = in1[c] op in0[c,0] op .. op in0[c,j]`, without in1 where no `start` is given. in0 and `O` have two or more dimensions, merged as far
/// as possible; the last is the one that is walked. in1 has these dimensions too, and is the same all along the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scan {
    /// Products instead of sums.
    pub product: bool,
    /// From the last element to the first.
    pub reverse: bool,
    /// Without the element itself.
    pub exclusive: bool,
    /// There is an in1, of type `dtype`.
    pub start: bool,
    /// The type that is computed in: in0's, f32 for narrower floats.
    pub dtype: DType,
}

impl Scan {
    /// The type that running sums of elements of a type are computed in.
    pub fn computed(dtype: DType) -> DType {
        if dtype.is_float() && dtype.size() < 4 { DType::F32 } else { dtype }
    }

    /// The operation.
    pub fn op(&self) -> Binary {
        if self.product { Binary::Mul } else { Binary::Add }
    }

    /// What changes nothing.
    pub fn neutral(&self) -> Scalar {
        Scalar::of(self.dtype, if self.product { 1.0 } else { 0.0 })
    }
}

impl Kind for Scan {
    fn name(&self) -> &'static str {
        "scan"
    }

    fn operands(&self) -> usize {
        1 + usize::from(self.start)
    }

    fn infer(&self, operands: &[Operand<'_>], rank: usize) -> Result<Option<Inferred>, Broken> {
        if rank < 2 {
            return Err(Broken::Fit("has less than two dimensions".into()));
        }
        if operands[1..].iter().any(|x| *x != (self.dtype, operands[0].1)) {
            return Err(Broken::Fit(format!("begins with {:?} for {:?}", &operands[1..], operands[0])));
        }
        Ok(Some(Inferred::new(self.dtype, operands[0].1)))
    }

    fn cut(&self, _: usize, d: usize, rank: usize) -> Option<Option<usize>> {
        (d + 1 < rank).then_some(Some(d))
    }

    fn interpret(&self, at: &Operands<'_>) -> Result<Option<Data>, Error> {
        let mut starts = Vec::new();
        if self.start {
            rows(at.view(1), 1, |line| starts.push(at.data(1).get(line[0])));
        }
        let mut starts = starts.into_iter();
        let mut results: Vec<Scalar> = Vec::with_capacity(at.view(0).len());
        rows(at.view(0), 1, |line| {
            let from = results.len();
            let mut sum = starts.next().unwrap_or(self.neutral());
            let ordered: Box<dyn Iterator<Item = &usize>> =
                if self.reverse { Box::new(line.iter().rev()) } else { Box::new(line.iter()) };
            for &i in ordered {
                let x = at.data(0).get(i);
                let next = match (sum, x, self.product) {
                    // Rounded once, as sums of many terms are.
                    (Scalar::Float(a), Scalar::Float(b), false) => Scalar::Float(a + b),
                    (Scalar::Float(a), Scalar::Float(b), true) => Scalar::Float(a * b),
                    _ => binary(self.op(), self.dtype, self.dtype, sum, x),
                };
                results.push(if self.exclusive { sum } else { next });
                sum = next;
            }
            if self.reverse {
                results[from..].reverse();
            }
        });
        Ok(Some(match results.first() {
            Some(Scalar::Int(_)) => Data::Int(results.into_iter().map(Scalar::as_i64).collect()),
            _ => Data::Float(results.into_iter().map(Scalar::as_f64).collect()),
        }))
    }

    fn collapse(&self, step: &mut Step) {
        merge(step, 0..step.output.view.rank() - 1, true);
    }

    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Scan { reverse, exclusive, start, .. } = self;
        writeln!(f, "    {:?}, reverse {reverse}, exclusive {exclusive}, start {start}", self.op())
    }
}
