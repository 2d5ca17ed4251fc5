//! Matrix products whose rows are normalised.

use super::matmul::MatMul;
use super::{Inferred, Kind, Normalize, Operand, StepKind};
use crate::graph::expr::Expr;
use crate::graph::fused::{Access, Step};
use crate::graph::interpret::{Data, Error, Operands, each, evaluate};
use crate::graph::rules::Broken;
use crate::graph::view::View;
use std::fmt;

/// `O[m,n]` = row m of `S` normalised, with `S[m,n] = sum(sum over k of in0[m,k] * in1[k,n])`, which is written beside it.
#[derive(Clone, Debug, PartialEq)]
pub struct Normed {
    /// What `S` is of the product: an expression of [`Op::Acc`](crate::graph::expr::Op::Acc) and of operands from 2 on.
    pub sum: Expr,
    /// How many of those there are, with dimensions `[m,n]`.
    pub operands: usize,
    /// Where `S` is in the tensor of the output: a part of its own, or, where nobody else needs it, the output's place.
    pub sums: View,
    /// How rows are normalised: over their one dimension.
    pub norm: Normalize,
}

impl Normed {
    /// The product alone, which writes `S`.
    pub fn product(&self, step: &Step) -> Step {
        Step {
            name: step.name.clone(),
            kind: StepKind::MatMul,
            inputs: step.inputs[..2 + self.operands].to_vec(),
            expr: self.sum.clone(),
            output: Access::new(step.output.tensor, self.sums.clone()),
        }
    }

    /// `S` rounded to its type, in row-major order.
    fn sums(&self, at: &Operands<'_>) -> Result<Vec<f64>, Error> {
        let Some(Data::Float(products)) = MatMul.interpret(at)? else { return Err(Error::Integers) };
        let (mut cells, mut out) = (Vec::new(), Vec::with_capacity(products.len()));
        each(at.dims(), |c| {
            let acc = crate::graph::expr::Scalar::Float(products[out.len()]);
            let operand = |i: u32| at.data(i as usize).get(at.view(i as usize).at(c) as usize);
            out.push(evaluate(&self.sum, Some(acc), &mut cells, operand).as_f64());
        });
        Ok(out)
    }
}

impl Kind for Normed {
    fn name(&self) -> &'static str {
        "normed_matmul"
    }

    fn operands(&self) -> usize {
        2 + self.operands
    }

    fn infer(&self, operands: &[Operand<'_>], r: usize) -> Result<Option<Inferred>, Broken> {
        if r != 2 || operands.len() < 2 || self.norm.axes != 1 || self.sums.rank() != 2 {
            return Err(Broken::Fit("rows of a matrix are normalised, of nothing else".into()));
        }
        let found = MatMul.infer(&operands[..2], r)?;
        if let Some(f) =
            found.iter().find(|f| !operands[2..].iter().all(|o| f.allows(o.1)) || !f.allows(&self.sums.dims))
        {
            return Err(Broken::Fit(format!("an operand of the sums, or they, have not the dimensions {f}")));
        }
        Ok(Some(Inferred { dtype: self.sum.dtype(), ..found.unwrap_or(Inferred::new(self.sum.dtype(), &[])) }))
    }

    fn check(&self, step: &Step) -> Result<(), Broken> {
        MatMul.check(step)?;
        if self.sums.strides[1] != 1 || step.output.view.strides[1] != 1 {
            return Err(Broken::Layout("its rows are not dense"));
        }
        Ok(())
    }

    fn interpret(&self, at: &Operands<'_>) -> Result<Option<Data>, Error> {
        let mut sums = self.sums(at)?;
        for row in sums.chunks_mut(at.dims()[1].max(1)) {
            self.norm.normalize(row);
        }
        Ok(Some(Data::Float(sums)))
    }

    fn beside(&self) -> Option<&View> {
        Some(&self.sums)
    }

    fn interpret_beside(&self, at: &Operands<'_>) -> Result<Option<Data>, Error> {
        Ok(Some(Data::Float(self.sums(at)?)))
    }

    fn collapse(&self, _: &mut Step) {}

    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "    of {} at {}", self.sum, self.sums)?;
        self.norm.print(f)
    }
}
