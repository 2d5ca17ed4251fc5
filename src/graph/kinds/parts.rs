//! Rows of several parts, and parts of rows.

use super::{Inferred, Kind, Operand};
use crate::graph::expr::Scalar;
use crate::graph::fused::Step;
use crate::graph::interpret::{Data, Error, Operands};
use crate::graph::rules::Broken;
use std::fmt;

/// Parts at most.
const MOST: usize = 16;

/// The numbers of operands.
const NUMBERS: [usize; MOST] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

/// `O[r, ..]` = the rows `r` of so many operands, side by side. Or the other way round: in0's rows are of so many parts, of which `O` has the first and the
/// step writes the others in in1, in2 and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// How many.
    pub count: usize,
    /// They become rows.
    pub join: bool,
}

impl Parts {
    /// Most parts that a step has.
    pub const MOST: usize = MOST;

    /// All elements from column `first` on of so many, of in0's rows.
    fn columns(at: &Operands<'_>, first: usize, count: usize) -> Data {
        let rows = at.view(0).dims[0];
        let places = (0..rows).flat_map(|r| (first..first + count).map(move |c| [r, c]));
        collected(at, places.map(|place| at.element(0, &place)))
    }
}

/// Elements of in0's type.
fn collected(at: &Operands<'_>, all: impl Iterator<Item = Scalar>) -> Data {
    match at.data(0) {
        Data::Float(_) => Data::Float(all.map(|x| x.as_f64()).collect()),
        Data::Int(_) => Data::Int(all.map(|x| x.as_i64()).collect()),
    }
}

impl Kind for Parts {
    fn name(&self) -> &'static str {
        if self.join { "join" } else { "part" }
    }

    fn operands(&self) -> usize {
        self.count
    }

    fn filled(&self) -> &'static [usize] {
        if self.join { &[] } else { &NUMBERS[1..self.count.clamp(1, MOST)] }
    }

    fn infer(&self, operands: &[Operand<'_>], rank: usize) -> Result<Option<Inferred>, Broken> {
        let (dtype, first) = operands[0];
        let alike = operands.iter().all(|(t, d)| *t == dtype && d.len() == 2 && d[0] == first[0]);
        if !alike || rank != 2 || !(2..=MOST).contains(&self.count) {
            return Err(Broken::Fit(format!("{operands:?} are no parts of rows")));
        }
        let others: usize = operands[1..].iter().map(|(_, d)| d[1]).sum();
        let columns = if self.join { Some(first[1] + others) } else { first[1].checked_sub(others) };
        match columns {
            Some(n) => Ok(Some(Inferred::new(dtype, &[first[0], n]))),
            None => Err(Broken::Fit(format!("{operands:?} have more than their rows"))),
        }
    }

    fn check(&self, step: &Step) -> Result<(), Broken> {
        let views = step.inputs[..self.count].iter().chain([&step.output]);
        match views.into_iter().all(|a| a.is_plain() && a.view.is_dense()) && step.expr.is_acc() {
            true => Ok(()),
            false => Err(Broken::Fit("rows do not lie together, or change on their way".into())),
        }
    }

    fn interpret(&self, at: &Operands<'_>) -> Result<Option<Data>, Error> {
        if !self.join {
            return Ok(Some(Parts::columns(at, 0, at.dims()[1])));
        }
        let place = |r: usize| (0..self.count).flat_map(move |i| (0..at.view(i).dims[1]).map(move |c| (i, [r, c])));
        let all = (0..at.dims()[0]).flat_map(place).map(|(i, place)| at.element(i, &place));
        Ok(Some(collected(at, all)))
    }

    fn fill(&self, at: &Operands<'_>) -> Result<Vec<Data>, Error> {
        let mut first = at.dims()[1];
        let of = |i: &usize| {
            let columns = at.view(*i).dims[1];
            first += columns;
            Parts::columns(at, first - columns, columns)
        };
        Ok(self.filled().iter().map(of).collect())
    }

    fn collapse(&self, _: &mut Step) {}

    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "    {} parts", self.count)
    }
}
