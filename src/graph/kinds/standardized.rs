//! Matrix products of normalised rows.

use super::matmul::MatMul;
use super::{Inferred, Kind, Normalize, Operand};
use crate::graph::expr::{Expr, Scalar};
use crate::graph::fused::Step;
use crate::graph::interpret::{Data, Error, Operands, each, evaluate};
use crate::graph::rules::Broken;
use crate::graph::view::View;
use crate::tensor::DType;
use std::fmt;

/// `O[m,n] = in3[n] + sum over k of z[m,k] * in1[k,n]`, `z[m,..]` being row m of `in0`, normalised.
///
/// That is `(sum over k of in0[m,k] * in1[k,n] - mean[m] * in2[n]) / deviation[m] + in3[n]` with `in2[n]` the sum of column n of `in1`:
/// rows are multiplied as they are while their mean and deviation are found. `in2` and `in3` are f32.
#[derive(Clone, Debug, PartialEq)]
pub struct Standardized {
    /// How rows are normalised: over their one dimension.
    pub norm: Normalize,
    /// What is written beside the product, if anything.
    pub made: Option<MadeRows>,
}

/// What a product of normalised rows makes of these for others.
#[derive(Clone, Debug, PartialEq)]
pub struct MadeRows {
    /// Where in the tensor of the output it is, `[m,k]`: a part of its own.
    pub view: View,
    /// An expression of [`Op::Acc`](crate::graph::expr::Op::Acc), the normalised element, and of operands from
    /// [`Standardized::FACTORS`] on.
    pub expr: Expr,
    /// How many of those there are, with dimensions `[m,k]`, the same for all rows.
    pub operands: usize,
}

impl Standardized {
    /// Operands of the product: both factors, and what goes with columns.
    pub const FACTORS: usize = 4;

    /// Normalised rows, one behind the other.
    fn rows(&self, at: &Operands<'_>) -> Result<Vec<f64>, Error> {
        let (x, view) = (at.floats(0)?, at.view(0));
        let mut out = Vec::with_capacity(view.len());
        each(&view.dims, |c| out.push(x[view.at(c) as usize]));
        out.chunks_mut(view.dims[1]).for_each(|row| self.norm.normalize(row));
        Ok(out)
    }

    /// The product. Each column of the output is a column of the factors, and has a bias of its own.
    pub(super) fn product(&self, at: &Operands<'_>, of: impl Fn(usize) -> [usize; 2]) -> Result<Data, Error> {
        let (rows, factors, bias) = (self.rows(at)?, at.floats(1)?, at.floats(3)?);
        let (view, depth) = (at.view(1), at.view(0).dims[1]);
        let mut out = Vec::new();
        each(at.dims(), |c| {
            let [column, own] = of(c[1]);
            let term = |k: usize| rows[c[0] * depth + k] * factors[view.at(&[k, column]) as usize];
            out.push(bias[at.view(3).at(&[c[0], own]) as usize] + (0..depth).map(term).sum::<f64>());
        });
        Ok(Data::Float(out))
    }
}

impl Kind for Standardized {
    fn name(&self) -> &'static str {
        "standardized_matmul"
    }

    fn operands(&self) -> usize {
        Standardized::FACTORS + self.made.as_ref().map_or(0, |made| made.operands)
    }

    fn infer(&self, operands: &[Operand<'_>], r: usize) -> Result<Option<Inferred>, Broken> {
        if r != 2 || self.norm.axes != 1 || operands.len() != self.operands() {
            return Err(Broken::Fit("rows of a matrix are normalised, of nothing else".into()));
        }
        let found = MatMul.infer(&operands[..2], r)?;
        let (columns, made) = operands[2..].split_at(Standardized::FACTORS - 2);
        let fits = |f: &Inferred| columns.iter().all(|(t, dims)| *t == DType::F32 && f.allows(dims));
        let rows = operands[0].1;
        let made_fits = |m: &MadeRows| m.view.dims == rows && made.iter().all(|(_, dims)| *dims == rows);
        if !found.as_ref().is_some_and(fits) || !self.made.as_ref().is_none_or(made_fits) {
            return Err(Broken::Fit("what goes with columns or rows has not their dimensions".into()));
        }
        Ok(found)
    }

    fn check(&self, step: &Step) -> Result<(), Broken> {
        MatMul.check(step)?;
        let of_columns = |a: &crate::graph::fused::Access| a.view.strides == [0, 1];
        if step.inputs[0].view.strides[1] != 1 || !step.inputs[2..self.operands()].iter().all(of_columns) {
            return Err(Broken::Layout("rows lie apart, or what goes with columns is not the same for all rows"));
        }
        match &self.made {
            Some(made) if made.view.strides[1] != 1 => Err(Broken::Layout("its rows are not dense")),
            _ => Ok(()),
        }
    }

    fn interpret(&self, at: &Operands<'_>) -> Result<Option<Data>, Error> {
        self.product(at, |n| [n; 2]).map(Some)
    }

    fn beside(&self) -> Option<&View> {
        self.made.as_ref().map(|made| &made.view)
    }

    fn interpret_beside(&self, at: &Operands<'_>) -> Result<Option<Data>, Error> {
        let Some(made) = &self.made else { return Ok(None) };
        let (mut rows, mut cells, mut i) = (self.rows(at)?, Vec::new(), 0);
        each(&made.view.dims, |c| {
            let operand = |o: u32| at.data(o as usize).get(at.view(o as usize).at(c) as usize);
            rows[i] = evaluate(&made.expr, Some(Scalar::Float(rows[i])), &mut cells, operand).as_f64();
            i += 1;
        });
        Ok(Some(Data::Float(rows)))
    }

    fn collapse(&self, _: &mut Step) {}

    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(made) = &self.made {
            writeln!(f, "    rows {} at {}", made.expr, made.view)?;
        }
        self.norm.print(f)
    }
}
