//! Products of pairs of columns, of which one gates the other.

use super::matmul::MatMul;
use super::standardized::Standardized;
use super::{Inferred, Kind, Operand};
use crate::graph::fused::Step;
use crate::graph::interpret::{Data, Error, Operands};
use crate::graph::rules::Broken;
use crate::graph::view::View;
use std::fmt;

/// A matrix product of which each element of the output has two columns: [`Op::Acc`](crate::graph::expr::Op::Acc) is the one,
/// [`Op::Paired`](crate::graph::expr::Op::Paired) the other.
///
/// Of `in1`, which has `2 N` columns for `N` of the output, [`Gated::GROUP`] that are the first ones of as many pairs lie side by side, then
/// the second ones of these. What goes with columns of normalised rows is not in that order: all first ones, then all second ones.
#[derive(Clone, Debug, PartialEq)]
pub struct Gated {
    /// What is done to rows before they are multiplied, if anything.
    pub rows: Option<Standardized>,
}

impl Gated {
    /// Columns that lie side by side: a workitem has at least twice as many of a row in any of the kernels' tiles.
    pub const GROUP: usize = 2;

    /// The columns of a pair.
    pub fn columns(n: usize) -> [usize; 2] {
        let first = n / Gated::GROUP * 2 * Gated::GROUP + n % Gated::GROUP;
        [first, first + Gated::GROUP]
    }

    /// The product alone.
    fn inner(&self) -> &dyn Kind {
        match &self.rows {
            Some(rows) => rows,
            None => &MatMul,
        }
    }

    /// One of the columns of all pairs.
    fn side(&self, at: &Operands<'_>, side: usize) -> Result<Option<Data>, Error> {
        let columns = at.dims().last().copied().unwrap_or(0);
        let found = match &self.rows {
            Some(rows) => rows.product(at, |n| [Gated::columns(n)[side], n + side * columns]),
            None => MatMul::product(at, |n| Gated::columns(n)[side]),
        };
        found.map(Some)
    }
}

impl Kind for Gated {
    fn name(&self) -> &'static str {
        match self.rows {
            Some(_) => "standardized_gated_matmul",
            None => "gated_matmul",
        }
    }

    fn operands(&self) -> usize {
        self.inner().operands()
    }

    fn infer(&self, operands: &[Operand<'_>], r: usize) -> Result<Option<Inferred>, Broken> {
        let mut found = self.inner().infer(operands, r)?;
        if let Some(Some(columns)) = found.as_mut().and_then(|f| f.dims.last_mut()) {
            if !columns.is_multiple_of(2 * Gated::GROUP) {
                return Err(Broken::Fit(format!("{columns} columns are no groups of pairs")));
            }
            *columns /= 2;
        }
        Ok(found)
    }

    fn check(&self, step: &Step) -> Result<(), Broken> {
        self.inner().check(step)
    }

    fn interpret(&self, at: &Operands<'_>) -> Result<Option<Data>, Error> {
        self.side(at, 0)
    }

    fn pairs(&self) -> bool {
        true
    }

    fn interpret_paired(&self, at: &Operands<'_>) -> Result<Option<Data>, Error> {
        self.side(at, 1)
    }

    fn cut(&self, i: usize, d: usize, rank: usize) -> Option<Option<usize>> {
        if d + 1 == rank { None } else { self.inner().cut(i, d, rank) }
    }

    fn beside(&self) -> Option<&View> {
        self.rows.as_ref().and_then(Kind::beside)
    }

    fn interpret_beside(&self, at: &Operands<'_>) -> Result<Option<Data>, Error> {
        self.rows.as_ref().map_or(Ok(None), |rows| rows.interpret_beside(at))
    }

    fn collapse(&self, _: &mut Step) {}

    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner().print(f)
    }
}
