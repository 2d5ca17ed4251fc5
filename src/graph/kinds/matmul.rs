//! Matrix products.

use super::{Inferred, Kind, Operand, summed};
use crate::graph::collapse::merge;
use crate::graph::fused::Step;
use crate::graph::interpret::{Data, Error, Operands, Term, each};
use crate::graph::rules::Broken;
use crate::graph::view::View;
use std::fmt;

/// See [`StepKind::MatMul`](super::StepKind::MatMul).
pub(super) struct MatMul;

impl Kind for MatMul {
    fn name(&self) -> &'static str {
        "matmul"
    }

    fn operands(&self) -> usize {
        2
    }

    fn infer(&self, operands: &[Operand<'_>], r: usize) -> Result<Option<Inferred>, Broken> {
        let ((dtype, a), (_, b)) = (operands[0], operands[1]);
        if r < 2 || a.len() != r || b.len() != r || a[..r - 2] != b[..r - 2] {
            return Err(Broken::Fit("ranks or batch dimensions differ".into()));
        }
        if a[r - 1] != b[r - 2] {
            return Err(Broken::Fit(format!("{a:?} and {b:?} are no factors")));
        }
        Ok(Some(Inferred::new(summed(dtype), &[&a[..r - 1], &b[r - 1..]].concat())))
    }

    fn check(&self, step: &Step) -> Result<(), Broken> {
        for access in &step.inputs[..2] {
            let (d, s, r) = (&access.view.dims, &access.view.strides, access.view.rank());
            if (s[r - 1] != 1 && d[r - 1] != 1) && (s[r - 2] != 1 && d[r - 2] != 1) {
                return Err(Broken::Layout("a matrix has neither dense rows nor dense columns"));
            }
        }
        Ok(())
    }

    fn cut(&self, i: usize, d: usize, rank: usize) -> Option<Option<usize>> {
        // [.., m, k] by [.., k, n].
        Some((d + 1 + i != rank).then_some(d))
    }

    fn interpret(&self, at: &Operands<'_>) -> Result<Option<Data>, Error> {
        MatMul::product(at, |n| n).map(Some)
    }

    fn collapse(&self, step: &mut Step) {
        // First all batch dimensions; then a batch that shares the right matrix becomes more rows.
        merge(step, 0..step.output.view.rank() - 2, false);
        while step.output.view.rank() > 2 {
            let d = step.output.view.rank() - 3;
            let rows = |v: &View| v.dims[d + 1] == 1 || v.strides[d] == v.strides[d + 1] * v.dims[d + 1] as i64;
            let b = &step.inputs[1].view;
            let shared = b.strides[d] == 0 || b.dims[d] == 1;
            let others = step.inputs.iter().enumerate().filter(|&(i, _)| i != 1).all(|(_, a)| rows(&a.view));
            // One row may lie anyhow; several need dense rows or columns.
            let a = &step.inputs[0].view;
            let apart = if a.dims[d + 1] == 1 { a.strides[d] } else { a.strides[d + 1] };
            let dense = a.strides[d + 2] == 1 || a.dims[d + 2] == 1 || apart == 1 || a.dims[d] == 1;
            if !shared || !others || !dense || !rows(&step.output.view) {
                break;
            }
            for (i, a) in step.inputs.iter_mut().chain([&mut step.output]).enumerate() {
                let v = &mut a.view;
                let (batch, stride) = (v.dims.remove(d), v.strides.remove(d));
                if i == 1 {
                    continue;
                }
                if v.dims[d] == 1 {
                    v.strides[d] = stride;
                }
                v.dims[d] *= batch;
            }
        }
    }

    fn print(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}

impl MatMul {
    /// The product, of which each column is one of the right factor's.
    pub fn product(at: &Operands<'_>, column: impl Fn(usize) -> usize) -> Result<Data, Error> {
        match (at.data(0), at.data(1)) {
            (Data::Float(a), Data::Float(b)) => {
                Ok(Data::Float(matmul((a, at.view(0)), (b, at.view(1)), at.dims(), column)))
            }
            (Data::Int(a), Data::Int(b)) => Ok(Data::Int(matmul((a, at.view(0)), (b, at.view(1)), at.dims(), column))),
            _ => Err(Error::Integers),
        }
    }
}

fn matmul<T: Term>(
    (a, av): (&[T], &View),
    (b, bv): (&[T], &View),
    dims: &[usize],
    column: impl Fn(usize) -> usize,
) -> Vec<T> {
    let r = dims.len();
    let k = av.dims[r - 1];
    let mut out = Vec::with_capacity(dims.iter().product());
    let start = |v: &View, c: &[usize], d: usize, line: usize| {
        let batch: i64 = (0..r - 2).map(|i| c[i] as i64 * v.strides[i]).sum();
        v.offset + batch + line as i64 * v.strides[d]
    };
    each(dims, |c| {
        let (a0, b0) = (start(av, c, r - 2, c[r - 2]), start(bv, c, r - 1, column(c[r - 1])));
        let factors = |i: i64| (a[(a0 + i * av.strides[r - 1]) as usize], b[(b0 + i * bv.strides[r - 2]) as usize]);
        out.push((0..k as i64).map(factors).fold(T::ZERO, |sum, (a, b)| sum.and(a, b)));
    });
    out
}
