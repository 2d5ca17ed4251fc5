//! Attention.

use super::{Inferred, Kind, Operand};
use crate::graph::expr::{Expr, Scalar};
use crate::graph::fused::Step;
use crate::graph::interpret::{Data, Error, Operands, each, evaluate};
use crate::graph::rules::Broken;
use crate::graph::view::View;
use std::fmt;

/// `O[b..,m,n] = sum over t of P[b..,m,t] * in2[b..,t,n]`, where `P` is the softmax over t of
/// `score(sum over k of in0[b..,m,k] * in1[b..,k,t])`.
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    /// Applied to each score: an expression of [`Op::Acc`](crate::graph::expr::Op::Acc) and of operands from 3 on.
    pub score: Expr,
    /// How many of those there are, with dimensions `[b..,m,t]`.
    pub operands: usize,
    /// Row m sees only t up to `m + causal`.
    pub causal: Option<i64>,
    /// A row that sees nothing gives 0; otherwise NaN.
    pub masked: bool,
}

impl Kind for Attention {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn operands(&self) -> usize {
        3 + self.operands
    }

    fn infer(&self, operands: &[Operand<'_>], r: usize) -> Result<Option<Inferred>, Broken> {
        let [(dtype, q), (_, k), (_, v), scores @ ..] = operands else {
            return Err(Broken::TooFewOperands(3));
        };
        let batch = |d: &[usize]| d.len() == r && r >= 2 && d[..r - 2] == q[..r - 2];
        if ![q, k, v].into_iter().all(|d| batch(d)) || q[r - 1] != k[r - 2] || k[r - 1] != v[r - 2] {
            return Err(Broken::Fit(format!("queries {q:?}, keys {k:?} and values {v:?} do not fit")));
        }
        let all = [&q[..r - 1], &k[r - 1..]].concat();
        if let Some((_, d)) = scores.iter().find(|(_, d)| **d != all[..]) {
            return Err(Broken::Fit(format!("an operand of scores has dimensions {d:?}, not {all:?}")));
        }
        Ok(Some(Inferred::new(*dtype, &[&q[..r - 1], &v[r - 1..]].concat())))
    }

    fn cut(&self, _: usize, d: usize, rank: usize) -> Option<Option<usize>> {
        // Batches; rows would see other keys.
        (d + 2 < rank).then_some(Some(d))
    }

    fn interpret(&self, at: &Operands<'_>) -> Result<Option<Data>, Error> {
        let dims = at.dims();
        let r = dims.len();
        let (q, k, v) = (at.floats(0)?, at.floats(1)?, at.floats(2)?);
        let views: Vec<&View> = (0..3 + self.operands).map(|i| at.view(i)).collect();
        let (depth, keys) = (views[0].dims[r - 1], views[1].dims[r - 1]);
        let place = |i: usize, c: &[usize], m: usize, n: usize| {
            let view = views[i];
            let batch: i64 = (0..r - 2).map(|d| c[d] as i64 * view.strides[d]).sum();
            (view.offset + batch + m as i64 * view.strides[r - 2] + n as i64 * view.strides[r - 1]) as usize
        };
        let mut out = Vec::with_capacity(dims.iter().product());
        let mut cells = Vec::new();
        let mut row: Option<(Vec<usize>, Vec<f64>)> = None;
        each(dims, |c| {
            let m = c[r - 2];
            if row.as_ref().is_none_or(|(of, _)| of[..] != c[..r - 1]) {
                let score = |t: usize| {
                    if self.causal.is_some_and(|past| t as i64 > m as i64 + past) {
                        return f64::NEG_INFINITY;
                    }
                    let sum = (0..depth).map(|i| q[place(0, c, m, i)] * k[place(1, c, i, t)]).sum();
                    let operand = |i: u32| at.data(i as usize).get(place(i as usize, c, m, t));
                    evaluate(&self.score, Some(Scalar::Float(sum)), &mut cells, operand).as_f64()
                };
                let scores: Vec<f64> = (0..keys).map(score).collect();
                let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let weights: Vec<f64> = match max {
                    f64::NEG_INFINITY if scores.iter().all(|s| !s.is_nan()) => vec![0.0; keys],
                    _ => scores.iter().map(|s| (s - max).exp()).collect(),
                };
                let sum: f64 = weights.iter().sum();
                let scaled = |x: &f64| if sum == 0.0 && self.masked { 0.0 } else { x / sum };
                row = Some((c[..r - 1].to_vec(), weights.iter().map(scaled).collect()));
            }
            let (_, weights) = row.as_ref().expect("just set");
            out.push((0..keys).map(|t| weights[t] * v[place(2, c, t, c[r - 1])]).sum());
        });
        Ok(Some(Data::Float(out)))
    }

    fn collapse(&self, _: &mut Step) {}

    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "    score {}, causal {:?}, masked {}", self.score, self.causal, self.masked)
    }
}
