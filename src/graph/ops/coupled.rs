//! Probabilities of classes out of those of pairs of classes.
//!
//! T.-F. Wu, C.-J. Lin, R. C. Weng, "Probability Estimates for Multi-class Classification by Pairwise Coupling", 2004: the
//! probabilities `p` are the minimum of a quadratic form `Q` made of the pairs' ones; their algorithm 2 goes there coordinate
//! by coordinate, until the gradient is the same for all classes. That is an approximation on purpose, so all programs that
//! are to agree take the same steps and stop at the same place.

use crate::graph::ask::Ask;
use crate::graph::dim::Dim;
use crate::graph::error::{Reason, Res};
use crate::graph::expr::{Binary, Unary, Val};
use crate::graph::fused::Coder;
use crate::graph::infer::{Inference, by_lowering};
use crate::graph::lower::Lowering;
use crate::graph::view::View;
use crate::tensor::DType;

/// The steps are written out for each pair of classes.
const MOST_CLASSES: usize = 24;

/// `[rows, pairs]` probabilities of the first of two classes become `[rows, classes]`.
pub(super) fn coupled(cx: &mut Lowering<'_>) -> Res<()> {
    let x = cx.input(0)?;
    let classes = usize::try_from(cx.int("classes", 0)?).unwrap_or(0);
    let [rows, pairs] = cx.shape(x)[..] else { return Err(Reason::Shape("rows of pairs are needed".into())) };
    if !(2..=MOST_CLASSES).contains(&classes) {
        return Err(Reason::Size(format!("probabilities of {classes} classes; 2 to {MOST_CLASSES} are supported")));
    }
    if cx.dtype(x) != DType::F32 || pairs != classes * (classes - 1) / 2 || rows == 0 {
        return Err(Reason::Shape(format!("{rows} rows of {pairs} pairs of {classes} classes")));
    }
    let data = cx.operand_if(x, View::is_dense);
    let y = cx.program(vec![data], &[rows, classes], |c| {
        let (row, own) = (c.coord(0), c.coord(1));
        Coupling { classes, pairs, row }.solve(c, own)
    });
    cx.set(0, y);
    Ok(())
}

/// One row.
struct Coupling {
    classes: usize,
    pairs: usize,
    row: Val,
}

impl Coupling {
    /// The probability of class `i` against class `j`.
    fn against(&self, c: &mut Coder, i: usize, j: usize) -> Val {
        let (a, b) = (i.min(j), i.max(j));
        let pair = a * (2 * self.classes - a - 1) / 2 + b - a - 1;
        let base = c.times(self.row, self.pairs as i64);
        let at = c.plus(base, pair as i64);
        let first = c.load(0, at);
        if i < j {
            return first;
        }
        let one = c.constant(DType::F32, 1.0);
        c.sub(one, first)
    }

    /// An entry of the quadratic form.
    fn form(&self, c: &mut Coder, t: usize, j: usize) -> Val {
        if t == j {
            let mut total = c.constant(DType::F32, 0.0);
            for k in (0..self.classes).filter(|k| *k != t) {
                let r = self.against(c, k, t);
                let square = c.mul(r, r);
                total = c.add(total, square);
            }
            return total;
        }
        let (a, b) = (self.against(c, j, t), self.against(c, t, j));
        let product = c.mul(a, b);
        c.unary(Unary::Neg, product)
    }

    /// The probability of class `own`.
    fn solve(&self, c: &mut Coder, own: Val) -> Val {
        let n = self.classes;
        let zero = c.constant(DType::F32, 0.0);
        let even = c.constant(DType::F32, 1.0 / n as f64);
        let p: Vec<_> = (0..n).map(|_| c.var(even)).collect();
        let slope: Vec<_> = (0..n).map(|_| c.var(zero)).collect();
        let diagonal: Vec<Val> = (0..n).map(|t| self.form(c, t, t)).collect();
        let diagonal: Vec<_> = diagonal.into_iter().map(|d| c.var(d)).collect();
        let none = c.int(0);
        let rounds = c.var(none);
        let most = c.int(n.max(100) as i64);
        let close = c.constant(DType::F32, 0.005 / n as f64);
        let first = c.lt(none, most);
        c.repeat_while(first, |c| {
            let mut whole = zero;
            for t in 0..n {
                let mut sum = zero;
                for j in 0..n {
                    let q = if t == j { c.get(diagonal[t]) } else { self.form(c, t, j) };
                    let pj = c.get(p[j]);
                    let term = c.mul(q, pj);
                    sum = c.add(sum, term);
                }
                c.set(slope[t], sum);
                let pt = c.get(p[t]);
                let term = c.mul(pt, sum);
                whole = c.add(whole, term);
            }
            let mut error = zero;
            for s in &slope {
                let s = c.get(*s);
                let apart = c.sub(s, whole);
                let apart = c.unary(Unary::Abs, apart);
                error = c.binary(Binary::Max, error, apart);
            }
            // Elements that are done take a step of nothing.
            let goes_on = c.le(close, error);
            let one = c.constant(DType::F32, 1.0);
            for t in 0..n {
                let (s, d) = (c.get(slope[t]), c.get(diagonal[t]));
                let apart = c.sub(whole, s);
                let step = c.binary(Binary::Div, apart, d);
                let step = c.select(goes_on, step, zero);
                let old = c.get(p[t]);
                let new = c.add(old, step);
                c.set(p[t], new);
                let size = c.add(one, step);
                let (bend, twice) = (c.mul(step, d), c.add(s, s));
                let change = c.add(bend, twice);
                let change = c.mul(step, change);
                let moved = c.add(whole, change);
                let moved = c.binary(Binary::Div, moved, size);
                whole = c.binary(Binary::Div, moved, size);
                for j in 0..n {
                    let q = if t == j { d } else { self.form(c, t, j) };
                    let (s, change) = (c.get(slope[j]), c.mul(step, q));
                    let s = c.add(s, change);
                    let s = c.binary(Binary::Div, s, size);
                    c.set(slope[j], s);
                    let pj = c.get(p[j]);
                    let pj = c.binary(Binary::Div, pj, size);
                    c.set(p[j], pj);
                }
            }
            let round = c.get(rounds);
            let round = c.plus(round, 1);
            c.set(rounds, round);
            let more = c.lt(round, most);
            c.and(goes_on, more)
        });
        let mut result = c.get(p[0]);
        for (t, p) in p.iter().enumerate().skip(1) {
            let (t, p) = (c.int(t as i64), c.get(*p));
            let hit = c.eq(own, t);
            result = c.select(hit, p, result);
        }
        result
    }
}

/// Rows of probabilities.
pub(super) fn of_coupled(cx: &mut Inference<'_>) -> Res<()> {
    let [rows, _] = cx.dims(cx.input(0)?) else { return by_lowering(cx) };
    cx.give(0, DType::F32, vec![rows.clone(), Dim::Known(cx.int("classes", 0)?)])
}
