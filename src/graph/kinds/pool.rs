//! Poolings.

use super::{Inferred, Kind, Operand, Window};
use crate::graph::expr::{Expr, Scalar};
use crate::graph::fused::Step;
use crate::graph::interpret::{Data, Error, Operands, each, evaluate};
use crate::graph::rules::Broken;
use crate::graph::view::View;
use std::fmt;

/// How [`Pool`] combines the elements of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolOp {
    /// Maximum of the elements inside the input.
    Max,
    /// Sum of the elements inside the input.
    Sum,
    /// Sum of the elements inside the input, divided by how many they are.
    Average,
    /// Sum of the elements inside the input, divided by how many taps fall into the input or its declared padding:
    /// positions `-pad .. input + pad_end`. Taps beyond that (from ceil mode) do not count.
    AverageIncludePad {
        /// Declared padding after the last element, per spatial dimension.
        pad_end: [usize; 3],
    },
}

/// `O[n,c,o..]` = the elements of `prologue(in0)` in each window, combined. in0 `[N,C,spatial..]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    /// How elements are combined.
    pub op: PoolOp,
    /// Window over the spatial dimensions.
    pub window: Window,
    /// Applied to each element first: an expression of [`Op::Acc`](crate::graph::expr::Op::Acc), the element.
    pub prologue: Expr,
}

impl Kind for Pool {
    fn name(&self) -> &'static str {
        "pool"
    }

    fn operands(&self) -> usize {
        1
    }

    fn infer(&self, operands: &[Operand<'_>], _: usize) -> Result<Option<Inferred>, Broken> {
        let n = self.window.check()?;
        let (_, x) = operands[0];
        if x.len() != n + 2 {
            return Err(Broken::Fit("ranks differ".into()));
        }
        let mut out = Inferred::new(self.prologue.dtype(), &x[..2]);
        out.dims.resize(n + 2, None);
        Ok(Some(out))
    }

    fn check(&self, step: &Step) -> Result<(), Broken> {
        if step.inputs[0].view.is_inner_dense(1) {
            Ok(())
        } else {
            Err(Broken::Layout("its operand is not dense enough"))
        }
    }

    fn cut(&self, _: usize, d: usize, _: usize) -> Option<Option<usize>> {
        (d < 2).then_some(Some(d))
    }

    fn interpret(&self, at: &Operands<'_>) -> Result<Option<Data>, Error> {
        let pooled = |x: &[f64], of: fn(f64) -> Scalar| pool(x, of, at.view(0), self, at.dims());
        Ok(Some(match at.data(0) {
            Data::Float(x) => Data::Float(pooled(x, Scalar::Float)),
            // The largest of narrow integers, which f64 holds.
            Data::Int(x) if self.op == PoolOp::Max => {
                let x: Vec<f64> = x.iter().map(|x| *x as f64).collect();
                Data::Int(pooled(&x, |x| Scalar::Int(x as i64)).into_iter().map(|x| x as i64).collect())
            }
            Data::Int(_) => return Err(Error::Integers),
        }))
    }

    /// Windows slide over every dimension.
    fn collapse(&self, _: &mut Step) {}

    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "    {:?} of {}, {}", self.op, self.prologue, self.window)
    }
}

fn pool(a: &[f64], of: fn(f64) -> Scalar, v: &View, kind: &Pool, dims: &[usize]) -> Vec<f64> {
    let Pool { op, window, prologue } = kind;
    let spatial = window.kernel.len();
    let mut out = Vec::with_capacity(dims.iter().product());
    let mut cells = Vec::new();
    each(dims, |c| {
        let (mut sum, mut max, mut inside, mut declared) = (0.0, f64::NEG_INFINITY, 0u64, 0u64);
        let base = v.offset + c[0] as i64 * v.strides[0] + c[1] as i64 * v.strides[1];
        each(&window.kernel, |k| {
            let (mut at, mut is_inside, mut is_declared) = (base, true, true);
            for d in 0..spatial {
                let n = v.dims[2 + d] as i64;
                let p = (c[2 + d] * window.strides[d] + k[d] * window.dilations[d]) as i64 - window.pads[d] as i64;
                is_inside &= (0..n).contains(&p);
                if let PoolOp::AverageIncludePad { pad_end } = *op {
                    is_declared &= p < n + pad_end[d] as i64;
                }
                at += p * v.strides[2 + d];
            }
            declared += is_declared as u64;
            if is_inside {
                inside += 1;
                let x = evaluate(prologue, Some(of(a[at as usize])), &mut cells, |_| Scalar::Int(0)).as_f64();
                sum += x;
                max = if x.is_nan() || max.is_nan() { f64::NAN } else { max.max(x) };
            }
        });
        out.push(match *op {
            PoolOp::Max => max,
            PoolOp::Sum => sum,
            PoolOp::Average => sum / inside as f64,
            PoolOp::AverageIncludePad { .. } => sum / declared as f64,
        });
    });
    out
}
