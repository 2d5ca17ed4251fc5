//! Fourier transforms of lines.

use super::{Inferred, Kind, Operand};
use crate::graph::fused::Step;
use crate::graph::interpret::{Data, Error, Operands, each};
use crate::graph::rules::Broken;
use crate::tensor::DType;
use std::f64::consts::PI;
use std::fmt;

/// `O[a,b,k,q,p]` = part `p` (0 real, 1 imaginary) of the sum over `j < n` of `x[j] exp(-+2 pi i j k / n)`, where `x[j]` is made of `in0[a,b,j,q,..]`: of a
/// real number or of a real and an imaginary one, 0 where in0 has none, times `in1[j]` where there is a window. The sign is that of [`Fourier::inverse`]; nothing
/// is divided by `n`. `O` may have fewer than `n` bins, and the real parts alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fourier {
    /// Elements of a transform, of which in0 has the first ones.
    pub n: usize,
    /// Angles grow with the product of both indices.
    pub inverse: bool,
    /// in0 has the first half: `x[n - j]` is the conjugate of `x[j]`.
    pub hermitian: bool,
    /// There is an in1, of in0's type.
    pub window: bool,
    /// The type that is computed in: f32 or f64.
    pub dtype: DType,
}

/// How a transform is computed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Passes {
    /// Radices of passes over elements of which there are as many as the radices' product.
    pub radices: Vec<usize>,
    /// These are more than the transform has: it is a convolution with a chirp, which transforms of that length and back compute (Bluestein 1970).
    pub convolved: bool,
}

impl Passes {
    /// Elements that are transformed.
    pub fn length(&self) -> usize {
        self.radices.iter().product()
    }
}

impl Fourier {
    /// Bytes of the real parts of a line, at most: a workgroup holds a line in registers, and its real parts in LDS.
    const LONGEST: usize = 32 << 10;

    /// The largest radix of a pass, and the largest prime factor: a workitem holds as many elements.
    const RADIX: usize = 20;
    const PRIME: usize = 13;

    /// The passes that a transform of `n` elements takes. None where it is too long. A convolution cancels more: it is computed in f64 alone.
    pub fn passes(n: usize, dtype: DType) -> Option<Passes> {
        if let Some(radices) = Fourier::radices(n, dtype) {
            return Some(Passes { radices, convolved: false });
        }
        let least = (2 * n).checked_sub(1).filter(|_| n > 1 && dtype == DType::F64)?;
        let lengths = [1, 3, 5, 9, 15].into_iter().flat_map(|odd| (0..16).map(move |bits| odd << bits));
        let able = lengths.filter(|length| *length >= least && *length < 2 * least.next_power_of_two());
        let all = able.filter_map(|length| Fourier::radices(length, dtype));
        let radices = all.min_by_key(|r| r.len() * r.iter().product::<usize>())?;
        Some(Passes { radices, convolved: true })
    }

    /// Radices of the passes that a transform of `n` elements takes, as few as there can be and of these the ones with the least sum; odd ones
    /// first. None where it is too long, or has a prime factor that is too large.
    fn radices(n: usize, dtype: DType) -> Option<Vec<usize>> {
        let mut left = n;
        for p in 2..=Fourier::PRIME {
            while left.is_multiple_of(p) {
                left /= p;
            }
        }
        if n < 2 || left > 1 || n * dtype.size() > Fourier::LONGEST {
            return None;
        }
        let (mut chosen, mut some) = (Vec::new(), Vec::new());
        Fourier::split(n, Fourier::RADIX, &mut some, &mut chosen);
        chosen.sort_by_key(|r: &usize| (r.is_multiple_of(2), *r));
        (!chosen.is_empty()).then_some(chosen)
    }

    /// Puts the best of all products of factors up to `most` that are `n` in `best`; `some` are those that have been taken.
    fn split(n: usize, most: usize, some: &mut Vec<usize>, best: &mut Vec<usize>) {
        let cost = |list: &[usize]| (list.len(), list.iter().sum::<usize>());
        if n == 1 {
            if best.is_empty() || cost(some) < cost(best) {
                best.clone_from(some);
            }
            return;
        }
        if !best.is_empty() && some.len() >= best.len() {
            return;
        }
        for r in (2..=most.min(n)).rev().filter(|r| n.is_multiple_of(*r)) {
            some.push(r);
            Fourier::split(n / r, r, some, best);
            some.pop();
        }
    }
}

impl Kind for Fourier {
    fn name(&self) -> &'static str {
        "fourier"
    }

    fn operands(&self) -> usize {
        1 + usize::from(self.window)
    }

    fn infer(&self, operands: &[Operand<'_>], rank: usize) -> Result<Option<Inferred>, Broken> {
        let (t, dims) = operands[0];
        let float = |t: DType| matches!(t, DType::F32 | DType::F64);
        let &[a, b, given, q, parts] = dims else {
            return Err(Broken::Fit(format!("transforms {dims:?}")));
        };
        let most = if self.hermitian { self.n / 2 + 1 } else { self.n };
        if rank != 5 || given == 0 || given > most || !(1..=2).contains(&parts) || !float(t) || !float(self.dtype) {
            return Err(Broken::Fit(format!("transforms {t} of {dims:?} of {} elements", self.n)));
        }
        if self.window && operands[1] != (t, &[given]) {
            return Err(Broken::Fit(format!("a window {:?} for {given} elements", operands[1])));
        }
        if Fourier::passes(self.n, self.dtype).is_none() {
            return Err(Broken::Fit(format!("transforms {} elements", self.n)));
        }
        Ok(Some(Inferred { dtype: self.dtype, dims: vec![Some(a), Some(b), None, Some(q), None] }))
    }

    fn check(&self, step: &Step) -> Result<(), Broken> {
        match step.output.view.dims[..] {
            [_, _, bins, _, 1..=2] if bins <= self.n => Ok(()),
            ref other => Err(Broken::Fit(format!("has {} bins for {other:?}", self.n))),
        }
    }

    fn interpret(&self, at: &Operands<'_>) -> Result<Option<Data>, Error> {
        let (n, x, view) = (self.n, at.floats(0)?, at.view(0));
        let window = if self.window { Some(at.floats(1)?) } else { None };
        let (given, parts) = (view.dims[2], view.dims[4]);
        let &[outer, inner, bins, across, results] = at.dims() else { return Ok(None) };
        let turn: Vec<(f64, f64)> = (0..n)
            .map(|i| {
                let (sin, cos) = (2.0 * PI * (i as f64 / n as f64)).sin_cos();
                (if self.inverse { sin } else { -sin }, cos)
            })
            .collect();
        let element = |[a, b, q]: [usize; 3], j: usize| {
            let beyond = self.hermitian && n - j < j;
            let from = if beyond { n - j } else { j };
            if from >= given {
                return (0.0, 0.0);
            }
            let of = |p: usize| x[view.at(&[a, b, from, q, p]) as usize];
            let weight = window.map_or(1.0, |w| w[at.view(1).at(&[from]) as usize]);
            let im = if parts == 2 { of(1) * weight } else { 0.0 };
            (of(0) * weight, if beyond { -im } else { im })
        };
        let mut out = vec![0.0; outer * inner * bins * across * results];
        each(&[outer, inner, across], |c| {
            let &[a, b, q] = c else { return };
            let line: Vec<(f64, f64)> = (0..n).map(|j| element([a, b, q], j)).collect();
            for k in 0..bins {
                let (mut sum, mut angle) = ([0.0; 2], 0);
                for (re, im) in &line {
                    let (sin, cos) = turn[angle];
                    sum[0] += re * cos - im * sin;
                    sum[1] += re * sin + im * cos;
                    angle += k;
                    angle -= if angle >= n { n } else { 0 };
                }
                let first = (((a * inner + b) * bins + k) * across + q) * results;
                out[first..][..results].copy_from_slice(&sum[..results]);
            }
        });
        Ok(Some(Data::Float(out)))
    }

    fn collapse(&self, _: &mut Step) {}

    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fourier { n, inverse, hermitian, window, dtype } = self;
        writeln!(f, "    {n} elements in {dtype}, inverse {inverse}, hermitian {hermitian}, window {window}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_few_radices() {
        let of = |n: usize| Fourier::radices(n, DType::F32);
        assert_eq!(of(400), Some(vec![20, 20]));
        assert_eq!(of(4096), Some(vec![16, 16, 16]));
        assert_eq!(of(1000), Some(vec![10, 10, 10]));
        assert_eq!(of(75), Some(vec![5, 15]));
        assert_eq!([of(1), of(17), of(1009), of(1 << 14)], [None, None, None, None]);
        assert_eq!(Fourier::radices(8192, DType::F64), None);
        let of = |n: usize| Fourier::passes(n, DType::F64).map(|p| (p.length(), p.convolved));
        assert_eq!(
            [of(1000), of(1009), of(17), of(2053)],
            [Some((1000, false)), Some((2048, true)), Some((36, true)), None]
        );
        for n in 2..=8192 {
            if let Some(all) = Fourier::radices(n, DType::F32) {
                assert_eq!(all.iter().product::<usize>(), n);
                assert!(all.iter().all(|r| (2..=Fourier::RADIX).contains(r)), "{all:?}");
            }
        }
    }
}
