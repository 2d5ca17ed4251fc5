//! Convolutions.

use super::{Inferred, Kind, Operand, StepKind, Window, summed};
use crate::graph::collapse::{groups, inner_stride};
use crate::graph::expr::{Expr, Scalar};
use crate::graph::fused::Step;
use crate::graph::interpret::{Data, Error, Operands, Term, each, evaluate};
use crate::graph::rules::Broken;
use crate::graph::view::View;
use crate::tensor::DType;
use std::fmt;

/// `O[n,m,o..] = sum over c,k.. of in0[n, g*C/G + c, o*stride + k*dilation - pad ..] * in1[m, c, k..]`, `g` the group of `m`.
/// in0 `[N,C,spatial..]`, in1 `[M,C/G,kernel..]`, O `[N,M,spatial..]`. With [`Conv::also`] the sum of several such.
#[derive(Clone, Debug, PartialEq)]
pub struct Conv {
    /// Window over the spatial dimensions.
    pub window: Window,
    /// Number of groups `G`.
    pub groups: usize,
    /// What is multiplied instead of the elements of in0 themselves.
    pub before: Option<Before>,
    /// Where in0 holds bytes: what each of them, and the zeros around in0, is combined with by exclusive or before it is
    /// multiplied. So padding can be any byte.
    pub flip: u8,
    /// Convolutions of further operands (inputs and weights in turn, from 2 on) that are added; only with one group and nothing
    /// before.
    pub also: Vec<Summand>,
}

/// A convolution that is added to another.
#[derive(Clone, Debug, PartialEq)]
pub struct Summand {
    /// Window over the spatial dimensions.
    pub window: Window,
    /// As [`Conv::flip`].
    pub flip: u8,
}

impl Conv {
    /// One convolution.
    pub fn new(window: Window, groups: usize) -> Conv {
        Conv { window, groups, before: None, flip: 0, also: Vec::new() }
    }

    /// All convolutions that are added up: the numbers of their inputs, behind which their weights are, windows, and flips.
    pub fn summands(&self) -> impl Iterator<Item = (usize, &Window, u8)> {
        let also = self.also.iter().enumerate().map(|(i, s)| (2 * i + 2, &s.window, s.flip));
        std::iter::once((0, &self.window, self.flip)).chain(also)
    }
}

/// What is made of each element of a convolution's input first.
#[derive(Clone, Debug, PartialEq)]
pub struct Before {
    /// An expression of [`Op::Acc`](crate::graph::expr::Op::Acc), the element, and of operands from 2 on.
    pub expr: Expr,
    /// How many of those there are, with one element for each channel.
    pub operands: usize,
}

impl Conv {
    /// The sums of products of integers.
    fn interpret_integers(&self, at: &Operands<'_>) -> Result<Vec<i64>, Error> {
        let mut sums: Vec<i64> = vec![0; at.dims().iter().product()];
        for (i, window, flip) in self.summands() {
            let (Data::Int(x), Data::Int(w), None) = (at.data(i), at.data(i + 1), &self.before) else {
                return Err(Error::Integers);
            };
            let (mut flipped, mut around) = (std::borrow::Cow::Borrowed(x), None);
            if flip != 0 {
                let flip = i64::from(flip as i8);
                flipped.to_mut().iter_mut().for_each(|x| *x ^= flip);
                around = Some(flip);
            }
            let more = conv((&flipped, at.view(i), around), (w, at.view(i + 1)), window, self.groups, at.dims());
            sums.iter_mut().zip(more).for_each(|(s, m)| *s = s.wrapping_add(m));
        }
        Ok(sums)
    }
}

impl Kind for Conv {
    fn name(&self) -> &'static str {
        "conv"
    }

    fn operands(&self) -> usize {
        2 + 2 * self.also.len() + self.before.as_ref().map_or(0, |b| b.operands)
    }

    fn infer(&self, operands: &[Operand<'_>], _: usize) -> Result<Option<Inferred>, Broken> {
        let n = self.window.check()?;
        let (dtype, groups) = (operands[0].0, self.groups);
        let [batch, channels] = [operands[0].1, operands[1].1].map(|d| d.first().copied());
        for (i, window, flip) in self.summands() {
            let ((t, x), (_, w)) = (operands[i], operands[i + 1]);
            if window.check()? != n || x.len() != n + 2 || w.len() != n + 2 {
                return Err(Broken::Fit("ranks differ".into()));
            }
            if groups == 0 || x[1] != w[1] * groups || w[0] % groups != 0 || w[2..] != window.kernel[..] {
                return Err(Broken::Fit(format!("{x:?} and {w:?} in {groups} groups do not fit")));
            }
            if t != dtype || Some(x[0]) != batch || Some(w[0]) != channels {
                return Err(Broken::Fit("convolutions that are added differ".into()));
            }
            if flip != 0 && (t != DType::I8 || self.before.is_some()) {
                return Err(Broken::Fit("no bytes to combine with others".into()));
            }
        }
        let (x, w) = (operands[0].1, operands[1].1);
        if !self.also.is_empty() && (groups != 1 || self.before.is_some()) {
            return Err(Broken::Fit("grouped or begun convolutions are not added".into()));
        }
        if let Some(before) = &self.before {
            let fits = before.expr.dtype() == dtype && operands[2..].iter().all(|o| *o.1 == [x[1]]);
            // Padding is of what is multiplied, not of the input.
            let points = self.window.is_point() && groups == 1;
            if !fits || !points {
                return Err(Broken::Fit("what comes before it does not fit".into()));
            }
        }
        let mut out = Inferred::new(summed(dtype), &[x[0], w[0]]);
        out.dims.resize(n + 2, None);
        Ok(Some(out))
    }

    fn check(&self, step: &Step) -> Result<(), Broken> {
        let alone = self.groups == 1 && self.also.is_empty() && self.before.is_none();
        let lines = |v: &View| v.is_inner_dense(1) || alone && v.strides[1] == 1;
        let dense = |i: usize| lines(&step.inputs[i].view) && step.inputs[i + 1].view.is_dense();
        match self.summands().all(|(i, ..)| dense(i)) {
            true => Ok(()),
            false => Err(Broken::Layout("its operands are not dense enough")),
        }
    }

    fn cut(&self, i: usize, d: usize, _: usize) -> Option<Option<usize>> {
        let input = self.summands().any(|s| s.0 == i);
        let weights = self.summands().any(|s| s.0 + 1 == i);
        match d {
            0 => Some(input.then_some(0)),
            1 if self.groups == 1 => Some(weights.then_some(0)),
            _ => None,
        }
    }

    fn interpret(&self, at: &Operands<'_>) -> Result<Option<Data>, Error> {
        if let Data::Int(_) = at.data(0) {
            return self.interpret_integers(at).map(|sums| Some(Data::Int(sums)));
        }
        let (mut x, w) = (std::borrow::Cow::Borrowed(at.floats(0)?), at.floats(1)?);
        if let Some(before) = &self.before {
            let (data, mut cells) = (x.to_mut(), Vec::new());
            each(&at.view(0).dims, |c| {
                let i = at.view(0).at(c) as usize;
                let operand = |n: u32| at.data(n as usize).get(at.view(n as usize).at(&c[1..2]) as usize);
                data[i] = evaluate(&before.expr, Some(Scalar::Float(data[i])), &mut cells, operand).as_f64();
            });
        }
        let mut sums = conv((&x, at.view(0), None), (w, at.view(1)), &self.window, self.groups, at.dims());
        for (i, window, _) in self.summands().skip(1) {
            let (x, w) = (at.floats(i)?, at.floats(i + 1)?);
            let more = conv((x, at.view(i), None), (w, at.view(i + 1)), window, 1, at.dims());
            sums.iter_mut().zip(more).for_each(|(s, m)| *s += m);
        }
        Ok(Some(Data::Float(sums)))
    }

    fn collapse(&self, step: &mut Step) {
        if !self.also.is_empty() {
            return;
        }
        // Dimensions over which the window does not slide are one line.
        let (rank, window) = (step.output.view.rank(), &self.window);
        let spatial = window.kernel.len();
        let sits = |d: usize| window.kernel[d] == 1 && window.strides[d] == 1 && window.pads[d] == 0;
        let same = |x: &View, o: &View, d: usize| x.dims[2 + d] == o.dims[2 + d];
        let (x, o) = (&step.inputs[0].view, &step.output.view);
        let all = (0..spatial).all(|d| sits(d) && same(x, o, d));
        if all && spatial > 1 {
            let mut views: Vec<&View> = vec![x, o];
            views.extend(step.inputs[2..].iter().map(|a| &a.view));
            let dense = x.dims[2..].iter().all(|&d| d == 1) || inner_stride(x, 2..rank) == 1;
            if dense && groups(&views, 2..rank).len() <= 1 {
                let n: usize = o.dims[2..].iter().product();
                let mut line = self.clone();
                let window = &mut line.window;
                window.kernel.truncate(1);
                window.strides.truncate(1);
                window.dilations.truncate(1);
                window.pads.truncate(1);
                step.kind = StepKind::Conv(line);
                for (i, a) in step.inputs.iter_mut().chain([&mut step.output]).enumerate() {
                    let v = &mut a.view;
                    let n = if i == 1 { 1 } else { n };
                    let stride = inner_stride(v, 2..v.rank());
                    v.dims.truncate(2);
                    v.strides.truncate(2);
                    v.dims.push(n);
                    v.strides.push(if i == 1 { 1 } else { stride });
                }
            }
        }
    }

    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let before = self.before.as_ref().map_or(String::new(), |b| format!(", of {}", b.expr));
        let flip = if self.flip == 0 { String::new() } else { format!(", bytes ^ {:#x}", self.flip) };
        writeln!(f, "    {}, groups {}{before}{flip}", self.window, self.groups)?;
        self.also.iter().try_for_each(|s| writeln!(f, "    and {}, bytes ^ {:#x}", s.window, s.flip))
    }
}

/// The convolution of data, around which there is what is given or nothing, and weights.
fn conv<T: Term>(
    (a, av, around): (&[T], &View, Option<T>),
    (w, wv): (&[T], &View),
    window: &Window,
    groups: usize,
    dims: &[usize],
) -> Vec<T> {
    let spatial = window.kernel.len();
    let per_group = wv.dims[0] / groups;
    let channels = wv.dims[1];
    let mut out = Vec::with_capacity(dims.iter().product());
    let mut taps: Vec<(Option<i64>, i64)> = Vec::new();
    each(dims, |c| {
        // The taps of this position: element offsets in the input and in the weights, without channels.
        if c[1] == 0 || taps.is_empty() || spatial > 0 {
            taps.clear();
            each(&window.kernel, |k| {
                let (mut x, mut y) = (Some(0), 0);
                for d in 0..spatial {
                    let p = (c[2 + d] * window.strides[d] + k[d] * window.dilations[d]) as i64 - window.pads[d] as i64;
                    let inside = (0..av.dims[2 + d] as i64).contains(&p);
                    x = x.filter(|_| inside).map(|x| x + p * av.strides[2 + d]);
                    y += k[d] as i64 * wv.strides[2 + d];
                }
                if x.is_some() || around.is_some() {
                    taps.push((x, y));
                }
            });
        }
        let first = (c[1] / per_group * channels) as i64;
        let a0 = av.offset + c[0] as i64 * av.strides[0] + first * av.strides[1];
        let w0 = wv.offset + c[1] as i64 * wv.strides[0];
        let mut sum = T::ZERO;
        for ch in 0..channels as i64 {
            let (ac, wc) = (a0 + ch * av.strides[1], w0 + ch * wv.strides[1]);
            sum = taps.iter().fold(sum, |sum, &(x, y)| {
                let x = x.map(|x| a[(ac + x) as usize]).or(around).unwrap_or(T::ZERO);
                sum.and(x, w[(wc + y) as usize])
            });
        }
        out.push(sum);
    });
    out
}
