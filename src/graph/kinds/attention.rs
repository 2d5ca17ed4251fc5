//! Attention.

use super::{Inferred, Kind, Operand};
use crate::graph::expr::{Expr, Scalar};
use crate::graph::fused::Step;
use crate::graph::interpret::{Data, Error, Operands, each, evaluate};
use crate::graph::rules::Broken;
use crate::graph::view::View;
use crate::tensor::DType;
use std::fmt;
use std::ops::Range;

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
    /// What a row gives that has no softmax.
    pub undefined: Undefined,
    /// The step itself writes `in1` and `in2`, before it reads them. Five operands more say what: what there was of `in1`,
    /// `[b..,k,past]`, and one `[b..,k,1]` in it; the same of `in2`; and where that one goes, `[b..,1,1]`. What is neither is 0.
    pub cached: bool,
    /// The new lines are in `in1` and `in2` before the step, and where they are the step does not write.
    pub placed: bool,
    /// Keys and values lie where one operand more says, `[b..,1,t]` of whole numbers: that of key t is a number along the dimension of `in1`
    /// and `in2` that counts keys elsewhere. Keys of other numbers are not seen, and not read. Never with `cached`.
    pub paged: bool,
    /// Lines that the step makes of operands' elements first. Operands behind all those say of what, in their order.
    pub made: Vec<MadeLines>,
    /// Its kernel is told how many keys there are when it is launched, and where they lie.
    pub any_keys: bool,
}

/// What a row gives that has no softmax, since all its scores are -inf, or one is a NaN or +inf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undefined {
    /// NaN.
    Nan,
    /// 0 where all scores are -inf: there is nothing to attend to. NaN elsewhere.
    NanUnlessHidden,
    /// 0.
    Zero,
}

/// Lines of an attention that an expression makes: queries, a new key or a new value.
#[derive(Clone, Debug, PartialEq)]
pub struct MadeLines {
    /// The operand they are.
    pub of: usize,
    /// What becomes of an element: an expression of [`Op::Acc`](crate::graph::expr::Op::Acc), the element, and of operands by their number
    /// in the step.
    pub expr: Expr,
    /// How many of those there are, with dimensions `[b..,m,i,j]`: m counts lines, i times j elements of a line.
    pub operands: usize,
}

impl Attention {
    /// What is made of operand `i`, and the operands for that.
    pub fn made_of(&self, i: usize) -> Option<(&MadeLines, Range<usize>)> {
        let mut first = self.makings().start;
        self.made.iter().find_map(|made| {
            let own = first..first + made.operands;
            first = own.end;
            (made.of == i).then_some((made, own))
        })
    }

    /// All operands of what is made.
    pub fn makings(&self) -> Range<usize> {
        let first = self.caches().end + usize::from(self.paged);
        first..first + self.made.iter().map(|m| m.operands).sum::<usize>()
    }

    /// True where the elements of a line of operand `i` go along the dimension before the last.
    pub fn turned(&self, i: usize) -> bool {
        let caches = self.caches();
        i == 1 || caches.contains(&i) && i < caches.start + 2
    }

    /// Element `i` of line `m` of operand `of`, as it is used, of the batch at these coordinates.
    fn element(&self, at: &Operands<'_>, of: usize, batch: &[usize], m: usize, i: usize) -> f64 {
        let line = if self.turned(of) { [i, m] } else { [m, i] };
        let x = at.element(of, &[batch, &line].concat());
        let Some((made, own)) = self.made_of(of) else { return x.as_f64() };
        let inner = own.clone().next().map_or(usize::MAX, |n| at.view(n).dims[batch.len() + 2]);
        let coords = [batch, &[m, i / inner, i % inner]].concat();
        evaluate(&made.expr, Some(x), &mut Vec::new(), |n| at.element(n as usize, &coords)).as_f64()
    }

    /// The operand that says where keys and values lie.
    pub fn rows(&self) -> Option<usize> {
        self.paged.then_some(self.caches().end)
    }

    /// How many keys there are.
    pub fn keys(&self, step: &Step) -> usize {
        let view = &step.inputs[self.rows().unwrap_or(1)].view;
        view.dims[view.rank() - 1]
    }

    /// The operands that say what is written.
    pub fn caches(&self) -> Range<usize> {
        let first = 3 + self.operands;
        first..first + if self.cached { 5 } else { 0 }
    }
}

impl Kind for Attention {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn operands(&self) -> usize {
        self.makings().end
    }

    fn looked_up(&self) -> Range<usize> {
        self.makings()
    }

    fn filled(&self) -> &'static [usize] {
        if self.cached { &[1, 2] } else { &[] }
    }

    fn infer(&self, operands: &[Operand<'_>], r: usize) -> Result<Option<Inferred>, Broken> {
        let [(dtype, q), (_, k), (_, v), rest @ ..] = operands else {
            return Err(Broken::TooFewOperands(3));
        };
        let (rest, makings) = rest.split_at((self.makings().start - 3).min(rest.len()));
        let (scores, caches) = rest.split_at(self.operands.min(rest.len()));
        let batch = |d: &[usize]| d.len() == r && r >= 2 && d[..r - 2] == q[..r - 2];
        if ![q, k, v].into_iter().all(|d| batch(d)) || q[r - 1] != k[r - 2] || k[r - 1] != v[r - 2] {
            return Err(Broken::Fit(format!("queries {q:?}, keys {k:?} and values {v:?} do not fit")));
        }
        let mut all = [&q[..r - 1], &k[r - 1..]].concat();
        if self.paged {
            let [(index, rows)] = caches else { return Err(Broken::TooFewOperands(self.operands())) };
            let one = matches!(index, DType::I32 | DType::I64) && batch(rows) && rows[r - 2] == 1;
            if !one || self.cached || self.any_keys || self.causal.is_some() {
                return Err(Broken::Fit(format!("{index}{rows:?} does not say where keys {k:?} lie")));
            }
            all[r - 1] = rows[r - 1];
        }
        if let Some((_, d)) = scores.iter().find(|(_, d)| **d != all[..]) {
            return Err(Broken::Fit(format!("an operand of scores has dimensions {d:?}, not {all:?}")));
        }
        if self.cached {
            let [(tk, past_k), (_, new_k), (tv, past_v), (_, new_v), (index, start)] = caches else {
                return Err(Broken::TooFewOperands(self.operands()));
            };
            let alike = caches[..4].iter().all(|(t, d)| t == dtype && batch(d)) && batch(start);
            let lines = past_k[r - 2] == k[r - 2] && new_k[r - 2..] == [k[r - 2], 1] && past_k[r - 1] <= k[r - 1];
            let same = past_v[r - 1] == v[r - 1] && new_v[r - 2..] == [1, v[r - 1]] && past_v[r - 2] <= v[r - 2];
            let one = matches!(index, DType::I32 | DType::I64) && start[r - 2..] == [1, 1];
            if !(alike && lines && same && one) {
                return Err(Broken::Fit(format!("{tk}{past_k:?} and {tv}{past_v:?} are no caches of {k:?} and {v:?}")));
            }
        }
        let mut makings = makings.iter();
        for made in &self.made {
            let Some((_, of)) = operands.get(made.of).filter(|_| made.of != 1 && made.of != 2) else {
                return Err(Broken::TooFewOperands(made.of));
            };
            let (rows, length) = if self.turned(made.of) { (of[r - 1], of[r - 2]) } else { (of[r - 2], of[r - 1]) };
            for (_, d) in makings.by_ref().take(made.operands) {
                if d.len() != r + 1 || d[..r - 2] != q[..r - 2] || d[r - 2] != rows || d[r - 1] * d[r] != length {
                    return Err(Broken::Fit(format!("lines {of:?} are not made of {d:?}")));
                }
            }
        }
        Ok(Some(Inferred::new(*dtype, &[&q[..r - 1], &v[r - 1..]].concat())))
    }

    fn cut(&self, _: usize, d: usize, rank: usize) -> Option<Option<usize>> {
        // Batches; rows would see other keys.
        (d + 2 < rank && !self.cached && !self.paged && self.made.is_empty()).then_some(Some(d))
    }

    fn fill(&self, at: &Operands<'_>) -> Result<Vec<Data>, Error> {
        let last = self.caches().end - 1;
        let start = at.view(last);
        let of = |i: usize| -> Result<Data, Error> {
            let view = at.view(i);
            let axis = if i == 1 { view.rank() - 1 } else { view.rank() - 2 };
            let [past, new] = [0, 1].map(|n| self.caches().start + 2 * (i - 1) + n);
            let old = at.floats(past)?;
            let element = if i == 1 { axis - 1 } else { axis + 1 };
            let mut out = Vec::with_capacity(view.len());
            each(&view.dims, |c| {
                let batch: i64 = c[..c.len() - 2].iter().zip(&start.strides).map(|(c, s)| *c as i64 * s).sum();
                let place = at.data(last).get((start.offset + batch) as usize).as_i64();
                out.push(match c[axis] {
                    t if t as i64 == place => self.element(at, new, &c[..c.len() - 2], 0, c[element]),
                    t if t < at.view(past).dims[axis] => old[at.view(past).at(c) as usize],
                    _ => 0.0,
                });
            });
            Ok(Data::Float(out))
        };
        self.filled().iter().map(|i| of(*i)).collect()
    }

    fn interpret(&self, at: &Operands<'_>) -> Result<Option<Data>, Error> {
        let dims = at.dims();
        let r = dims.len();
        let (k, v) = (at.floats(1)?, at.floats(2)?);
        let views: Vec<&View> = (0..self.caches().start).map(|i| at.view(i)).collect();
        let (depth, lines) = (views[0].dims[r - 1], views[1].dims[r - 1]);
        let keys = self.rows().map_or(lines, |i| at.view(i).dims[r - 1]);
        // Where a key lies, if it is to be seen.
        let line = |c: &[usize], t: usize| -> Option<usize> {
            let Some(i) = self.rows() else { return Some(t) };
            let row = at.element(i, &[&c[..r - 2], &[0, t]].concat()).as_i64();
            usize::try_from(row).ok().filter(|row| *row < lines)
        };
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
                let query: Vec<f64> = (0..depth).map(|i| self.element(at, 0, &c[..r - 2], m, i)).collect();
                let score = |t: usize| {
                    if self.causal.is_some_and(|past| t as i64 > m as i64 + past) {
                        return f64::NEG_INFINITY;
                    }
                    let Some(row) = line(c, t) else { return f64::NEG_INFINITY };
                    let sum = (0..depth).map(|i| query[i] * k[place(1, c, i, row)]).sum();
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
                let zero = match self.undefined {
                    Undefined::Nan => false,
                    Undefined::NanUnlessHidden => sum == 0.0,
                    Undefined::Zero => sum == 0.0 || sum.is_nan(),
                };
                let scaled = |x: &f64| if zero { 0.0 } else { x / sum };
                row = Some((c[..r - 1].to_vec(), weights.iter().map(scaled).collect()));
            }
            let (_, weights) = row.as_ref().expect("just set");
            let value = |t: usize| line(c, t).map_or(0.0, |row| weights[t] * v[place(2, c, row, c[r - 1])]);
            out.push((0..keys).map(value).sum());
        });
        Ok(Some(Data::Float(out)))
    }

    fn collapse(&self, _: &mut Step) {}

    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "    score {}, causal {:?}, undefined {:?}, cached {}, paged {}, any keys {}",
            self.score, self.causal, self.undefined, self.cached, self.paged, self.any_keys
        )?;
        self.made.iter().try_for_each(|made| writeln!(f, "    in{} becomes {}", made.of, made.expr))
    }
}
