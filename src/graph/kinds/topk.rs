//! The best elements of lines.

use super::{Inferred, Kind, Operand};
use crate::graph::expr::Scalar;
use crate::graph::fused::Step;
use crate::graph::interpret::{Data, Error, Operands, rows};
use crate::graph::rules::Broken;
use crate::tensor::DType;
use std::cmp::Ordering;
use std::fmt;

/// `O[c..,p,j]` = where the `j`-th best element of piece `p` of in0's line `c..` is in its line, the best one first and of equal ones the first; an
/// `i32`. in0 has the dimensions of `O` without the last two, and that of the lines. Zeros of both signs are equal, and a NaN is
/// larger than all numbers. [`TopK::piece`] says where pieces lie: they have `k` elements at least, and [`TopK::LONGEST`] at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopK {
    /// The largest are the best ones, else the smallest.
    pub largest: bool,
    /// The next operand, of `O`'s dimensions and in0's type, becomes these elements.
    pub elements: bool,
    /// The last operand, an `i32` of in0's dimensions, says where its elements were before: `O` is that.
    pub origins: bool,
}

impl TopK {
    /// Elements of a piece, at most.
    pub const LONGEST: usize = 4096;

    /// So many of the best of a piece are found by a wave without sorting, at most.
    const FEW: usize = 128;

    /// Whether a wave finds the best `k` of a piece, not a workgroup that sorts: no more than that, which 32 bits hold.
    pub fn few(dtype: DType, k: usize) -> bool {
        dtype.size() <= 4 && k <= TopK::FEW
    }

    /// Keys that a lane holds of lines that are not ranked in pieces, and lanes of a workgroup, at most.
    pub const EACH: usize = 16;
    const LANES: usize = 1024;

    /// Bytes of a key in memory.
    pub(crate) const KEY: usize = 8;

    /// So many of the best are found without pieces, with those that come close, at most.
    const CLOSE: usize = 2048;

    /// How many are found where the best `k` are to be among them.
    pub fn room(k: usize) -> usize {
        k + k / 4 + 8
    }

    /// Whether one step ranks lines of elements of 32 bits at most that are longer than a piece: workgroups find the best of parts of them, and one of these the best of all.
    pub fn at_once(lines: usize, n: usize, k: usize) -> bool {
        let (held, room) = (TopK::EACH * TopK::LANES, TopK::room(k));
        let parts = n.div_ceil(held).max(1);
        let fits = parts == 1 || parts * room <= held;
        room <= TopK::CLOSE && fits && n / parts >= room && lines <= TopK::lines_left(parts, room)
    }

    /// So many lines leave no more of their parts than one buffer holds.
    pub(crate) fn lines_left(parts: usize, room: usize) -> usize {
        if parts == 1 { usize::MAX } else { crate::graph::LARGEST / (parts * room * TopK::KEY) }
    }

    /// Whether elements of a type are ranked.
    pub fn ranks(dtype: DType) -> bool {
        !matches!(dtype, DType::Str | DType::Bool)
    }

    /// First element, and how many there are, of one of so many pieces of `n` elements: the first pieces have one more than others.
    pub fn piece(n: usize, pieces: usize, p: usize) -> [usize; 2] {
        let (each, more) = (n / pieces, n % pieces);
        [p * each + p.min(more), each + usize::from(p < more)]
    }

    /// The operand that says where elements were before.
    pub(crate) fn origins_operand(&self) -> Option<usize> {
        self.origins.then_some(1 + usize::from(self.elements))
    }

    /// The best of all pieces: where in memory each is, and where in its line.
    fn best(&self, at: &Operands<'_>) -> Vec<(usize, usize)> {
        let mut best = Vec::new();
        let [.., pieces, k] = at.dims()[..] else { return best };
        rows(at.view(0), 1, |line| {
            let value = |i: &usize| at.data(0).get(line[*i]);
            for p in 0..pieces {
                let [first, count] = TopK::piece(line.len(), pieces, p);
                let mut order: Vec<usize> = (first..first + count).collect();
                order.sort_by(|a, b| self.order(value(a), value(b)));
                best.extend(order[..k].iter().map(|i| (line[*i], *i)));
            }
        });
        best
    }

    fn order(&self, a: Scalar, b: Scalar) -> Ordering {
        let by = match (a, b) {
            (Scalar::Float(a), Scalar::Float(b)) => a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan())),
            _ => a.as_i64().cmp(&b.as_i64()),
        };
        if self.largest { by.reverse() } else { by }
    }
}

impl Kind for TopK {
    fn name(&self) -> &'static str {
        "topk"
    }

    fn operands(&self) -> usize {
        1 + usize::from(self.elements) + usize::from(self.origins)
    }

    fn filled(&self) -> &'static [usize] {
        if self.elements { &[1] } else { &[] }
    }

    fn infer(&self, operands: &[Operand<'_>], rank: usize) -> Result<Option<Inferred>, Broken> {
        let (dtype, dims) = operands[0];
        if let Some(operand) = self.origins_operand().map(|i| operands[i])
            && operand != (DType::I32, dims)
        {
            return Err(Broken::Fit(format!("the places of {dims:?} are {} of {:?}", operand.0, operand.1)));
        }
        if let Some((t, _)) = self.elements.then(|| operands[1]).filter(|(t, _)| *t != dtype) {
            return Err(Broken::Fit(format!("elements of type {dtype} become {t}")));
        }
        let (Some(outer), true) = (dims.len().checked_sub(1), TopK::ranks(dtype) && rank == dims.len() + 1) else {
            return Err(Broken::Fit(format!("ranks {dtype} of {dims:?}")));
        };
        let mut known: Vec<Option<usize>> = dims[..outer].iter().copied().map(Some).collect();
        known.extend([None, None]);
        Ok(Some(Inferred { dtype: DType::I32, dims: known }))
    }

    fn check(&self, step: &Step) -> Result<(), Broken> {
        let elements = self.elements.then(|| &step.inputs[1].view.dims);
        if let Some(dims) = elements.filter(|dims| **dims != step.output.view.dims) {
            return Err(Broken::Fit(format!("elements are {dims:?} of {:?}", step.output.view.dims)));
        }
        let (n, out) = (step.inputs[0].view.dims.last().copied().unwrap_or(0), &step.output.view.dims);
        match out[..] {
            [.., pieces, k] if k <= n / pieces && n.div_ceil(pieces) <= TopK::LONGEST => Ok(()),
            [ref lines @ .., 1, k] if TopK::at_once(lines.iter().product(), n, k) => Ok(()),
            _ => Err(Broken::Fit(format!("has {n} elements in a line for {out:?}"))),
        }
    }

    fn cut(&self, _: usize, d: usize, rank: usize) -> Option<Option<usize>> {
        (d + 2 < rank).then_some(Some(d))
    }

    fn fill(&self, at: &Operands<'_>) -> Result<Vec<Data>, Error> {
        if !self.elements {
            return Ok(Vec::new());
        }
        let elements = self.best(at).into_iter().map(|(place, _)| at.data(0).get(place));
        Ok(vec![match at.data(0) {
            Data::Float(_) => Data::Float(elements.map(Scalar::as_f64).collect()),
            Data::Int(_) => Data::Int(elements.map(Scalar::as_i64).collect()),
        }])
    }

    fn interpret(&self, at: &Operands<'_>) -> Result<Option<Data>, Error> {
        let best = self.best(at).into_iter();
        let Some(operand) = self.origins_operand() else {
            return Ok(Some(Data::Int(best.map(|(_, i)| i as i64).collect())));
        };
        let n = at.view(0).dims.last().copied().unwrap_or(1);
        let (mut origins, each) = (Vec::new(), at.dims().iter().rev().take(2).product::<usize>());
        rows(at.view(operand), 1, |line| {
            origins.extend(line.iter().map(|place| at.data(operand).get(*place).as_i64()));
        });
        let places = best.enumerate().map(|(j, (_, i))| origins[j / each * n + i]);
        Ok(Some(Data::Int(places.collect())))
    }

    fn collapse(&self, _: &mut Step) {}

    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TopK { largest, elements, origins } = self;
        writeln!(f, "    largest {largest}, elements {elements}, origins {origins}")
    }
}
