//! Reductions.

use super::{Inferred, Kind, Operand};
use crate::graph::collapse::{apply, groups, merge};
use crate::graph::expr::{Binary, Expr, Scalar};
use crate::graph::fused::Step;
use crate::graph::interpret::{Data, Error, Operands, binary, evaluate, rows};
use crate::graph::rules::Broken;
use crate::graph::view::View;
use crate::tensor::DType;
use std::fmt;

/// How [`Reduce`] combines elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReduceOp {
    /// Sum.
    Sum,
    /// Product.
    Prod,
    /// Largest; a NaN wins.
    Max,
    /// Smallest; a NaN wins.
    Min,
    /// Logarithm of the sum of exponentials, of floats.
    LogSumExp,
    /// Row-major index, within the reduced dimensions, of the first largest; the result is `i64`.
    ArgMax {
        /// Of equal elements take the last instead.
        last: bool,
    },
    /// Row-major index, within the reduced dimensions, of the first smallest; the result is `i64`.
    ArgMin {
        /// Of equal elements take the last instead.
        last: bool,
    },
}

/// `O[c] = combine over r of prologue(in0[c,r])`: in0 has the dimensions of `O` followed by the reduced ones (both merged as
/// far as possible, each at least one).
#[derive(Clone, Debug, PartialEq)]
pub struct Reduce {
    /// How elements are combined.
    pub op: ReduceOp,
    /// Applied to each element first: an expression of [`Op::Acc`](crate::graph::expr::Op::Acc), the element.
    pub prologue: Expr,
}

impl Kind for Reduce {
    fn name(&self) -> &'static str {
        "reduce"
    }

    fn operands(&self) -> usize {
        1
    }

    fn infer(&self, operands: &[Operand<'_>], rank: usize) -> Result<Option<Inferred>, Broken> {
        let (_, x) = operands[0];
        if rank == 0 || x.len() <= rank {
            return Err(Broken::Fit(format!("{x:?} does not reduce to {rank} dimensions")));
        }
        let dtype = match self.op {
            ReduceOp::ArgMax { .. } | ReduceOp::ArgMin { .. } => DType::I64,
            _ => self.prologue.dtype(),
        };
        Ok(Some(Inferred::new(dtype, &x[..rank])))
    }

    fn cut(&self, _: usize, d: usize, _: usize) -> Option<Option<usize>> {
        Some(Some(d))
    }

    fn interpret(&self, at: &Operands<'_>) -> Result<Option<Data>, Error> {
        Ok(Some(reduce(at.data(0), at.view(0), self.op, &self.prologue, at.dims())))
    }

    fn collapse(&self, step: &mut Step) {
        let rank = step.output.view.rank();
        let x = step.inputs[0].view.clone();
        let inner = groups(&[&x], rank..x.rank());
        let tail = apply(&x, &inner);
        merge(step, 0..rank, true);
        let v = &mut step.inputs[0].view;
        let kept = v.rank() - (x.rank() - rank);
        v.dims.truncate(kept);
        v.strides.truncate(kept);
        v.dims.extend(tail.0);
        v.strides.extend(tail.1);
    }

    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "    {:?} of {}", self.op, self.prologue)
    }
}

/// `ln(e^a + e^b)`.
fn log_sum_exp(a: f64, b: f64) -> f64 {
    let largest = a.max(b);
    let m = if largest.is_infinite() { 0.0 } else { largest };
    m + ((a - m).exp() + (b - m).exp()).ln()
}

fn reduce(a: &Data, v: &View, op: ReduceOp, prologue: &Expr, dims: &[usize]) -> Data {
    let n = v.rank() - dims.len();
    let mut cells = Vec::new();
    let mut results: Vec<Scalar> = Vec::with_capacity(dims.iter().product());
    rows(v, n, |at| {
        let mut best: Option<(Scalar, usize)> = None;
        for (i, &e) in at.iter().enumerate() {
            let x = evaluate(prologue, Some(a.get(e)), &mut cells, |_| Scalar::Int(0));
            let Some((b, _)) = best else {
                best = Some((x, i));
                continue;
            };
            let dtype = prologue.dtype();
            let pick = |op: Binary| binary(op, dtype, dtype, b, x);
            let less = |p: Scalar, q: Scalar| binary(Binary::Lt, DType::Bool, dtype, p, q).as_i64() != 0;
            best = Some(match op {
                ReduceOp::Sum => (pick(Binary::Add), 0),
                ReduceOp::Prod => (pick(Binary::Mul), 0),
                ReduceOp::Max => (pick(Binary::Max), 0),
                ReduceOp::Min => (pick(Binary::Min), 0),
                ReduceOp::LogSumExp => (Scalar::Float(log_sum_exp(b.as_f64(), x.as_f64())), 0),
                ReduceOp::ArgMax { last } if less(b, x) || (last && !less(x, b)) => (x, i),
                ReduceOp::ArgMin { last } if less(x, b) || (last && !less(b, x)) => (x, i),
                ReduceOp::ArgMax { .. } | ReduceOp::ArgMin { .. } => best.expect("set above"),
            });
        }
        let (value, index) = best.expect("nothing is reduced over no elements");
        results.push(match op {
            ReduceOp::ArgMax { .. } | ReduceOp::ArgMin { .. } => Scalar::Int(index as i64),
            _ => value,
        });
    });
    match results.first() {
        Some(Scalar::Int(_)) => Data::Int(results.into_iter().map(Scalar::as_i64).collect()),
        _ => Data::Float(results.into_iter().map(Scalar::as_f64).collect()),
    }
}
