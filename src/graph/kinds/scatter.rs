//! Elements that are replaced at places along an axis.

use super::{Inferred, Kind, Operand};
use crate::graph::expr::{Expr, Node, Op, Scalar};
use crate::graph::fused::Step;
use crate::graph::interpret::{Data, Error, Operands, each, evaluate};
use crate::graph::rules::Broken;
use crate::tensor::DType;
use std::fmt;
use std::ops::Range;

/// `O` = in0, but for the element at `c` with in1's index at `c` along the axis, which is in2's element at `c`, for all `c`: of several for one place the last one
/// along the axis. Negative indices count from the end; what is outside is left out. in1 and in2 have the same dimensions, which are no larger than
/// those of `O` but along the axis. Nothing else is done to elements.
#[derive(Clone, Debug, PartialEq)]
pub struct Scatter {
    /// The axis.
    pub axis: usize,
    /// No two are for the same element.
    pub apart: bool,
    /// What stands for in2's elements, where they are made of several operands first. Then no two are for the same element.
    pub made: Option<MadeUpdates>,
}

/// Elements that an expression makes.
#[derive(Clone, Debug, PartialEq)]
pub struct MadeUpdates {
    /// Of operands from in2 on, by their number in the step.
    pub expr: Expr,
    /// How many of those there are, at least one, all with in1's dimensions.
    pub operands: usize,
}

/// So many lines that are replaced in are as many workitems' work.
const MANY_LINES: usize = 2048;

impl Scatter {
    /// Whether updates of these dimensions have enough lines along an axis.
    pub fn has_many_lines(dims: &[usize], axis: usize) -> bool {
        dims.iter().product::<usize>() / dims[axis] >= MANY_LINES
    }

    /// The operands that updates are, or are made of.
    pub fn updates(&self) -> Range<usize> {
        2..2 + self.made.as_ref().map_or(1, |made| made.operands)
    }
}

impl Kind for Scatter {
    fn name(&self) -> &'static str {
        "scatter"
    }

    fn operands(&self) -> usize {
        self.updates().end
    }

    fn looked_up(&self) -> Range<usize> {
        if self.made.is_some() { self.updates() } else { 0..0 }
    }

    fn infer(&self, operands: &[Operand<'_>], rank: usize) -> Result<Option<Inferred>, Broken> {
        let [(dtype, dims), (index, places), ref all @ ..] = operands[..self.operands().min(operands.len())] else {
            return Err(Broken::TooFewOperands(3));
        };
        let Some(&(first, updates)) = all.first().filter(|_| all.len() == self.updates().len()) else {
            return Err(Broken::TooFewOperands(self.operands()));
        };
        let updated = self.made.as_ref().map_or(first, |made| made.expr.dtype());
        let inside = |d: usize| d == self.axis || updates[d] <= dims[d];
        let others = all.iter().all(|(_, d)| *d == updates) && (self.made.is_none() || self.apart);
        let alike = others && updates.len() == rank && places == updates && updated == dtype && self.axis < rank;
        if !alike || !(0..rank).all(inside) || !matches!(index, DType::I32 | DType::I64) {
            return Err(Broken::Fit(format!("{index}{places:?} and {updated}{updates:?} do not fit {dtype}{dims:?}")));
        }
        Ok(Some(Inferred::new(dtype, dims)))
    }

    fn check(&self, step: &Step) -> Result<(), Broken> {
        if step.inputs.len() > self.operands() || !matches!(step.expr.nodes(), [Node { op: Op::Acc, .. }]) {
            return Err(Broken::Layout("scattered elements are changed"));
        }
        Ok(())
    }

    fn interpret(&self, at: &Operands<'_>) -> Result<Option<Data>, Error> {
        let mut all: Vec<Scalar> = Vec::with_capacity(at.dims().iter().product());
        each(at.dims(), |c| all.push(at.element(0, c)));
        let strides = crate::graph::view::dense_strides(at.dims());
        let extent = at.dims()[self.axis] as i64;
        let mut cells = Vec::new();
        each(&at.view(2).dims, |c| {
            let index = at.element(1, c).as_i64();
            let index = if index < 0 { index + extent } else { index };
            if (0..extent).contains(&index) {
                let place = |d: usize| if d == self.axis { index } else { c[d] as i64 };
                let place: i64 = strides.iter().enumerate().map(|(d, s)| place(d) * s).sum();
                all[place as usize] = match &self.made {
                    None => at.element(2, c),
                    Some(made) => evaluate(&made.expr, None, &mut cells, |i| at.element(i as usize, c)),
                };
            }
        });
        Ok(Some(match at.data(0) {
            Data::Float(_) => Data::Float(all.into_iter().map(Scalar::as_f64).collect()),
            Data::Int(_) => Data::Int(all.into_iter().map(Scalar::as_i64).collect()),
        }))
    }

    fn collapse(&self, _: &mut Step) {
        // Its dimensions have a meaning.
    }

    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "    axis {}{}", self.axis, if self.apart { ", apart" } else { "" })?;
        self.made.iter().try_for_each(|made| writeln!(f, "    updates are {}", made.expr))
    }
}
