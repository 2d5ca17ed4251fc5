//! Matrix products of which one factor holds two of every four elements along the depth.

use super::{Inferred, Kind, Operand, summed};
use crate::graph::fused::Step;
use crate::graph::interpret::{Data, Error, Operands, each};
use crate::graph::rules::Broken;
use crate::graph::view::View;
use crate::tensor::DType;
use std::fmt;

/// Bytes of kept elements that have a word of places.
const RUN: usize = 16;

/// `O[b..,m,n] = sum over k of in0[b..,m,k] * in1[b..,k,n]`, where operand `side` is a matrix of which every group of four k, the first of
/// them a multiple of four, has two elements that are *kept*; the others are zero.
///
/// Of the depth of that operand there are the kept ones, two of each group in their order. Where in its group kept element `e` of a line
/// was say two bits of `in2[b..,e / run,line]`, the first of the word those of its first element. A run is as many elements as have 16
/// bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sparse {
    /// The operand, 0 or 1.
    pub side: usize,
    /// Extent of k.
    pub depth: usize,
}

impl Sparse {
    /// Kept elements of a word of places.
    pub fn run(t: DType) -> usize {
        RUN / t.size().max(1)
    }

    /// Kept elements of a line: of whole words.
    pub fn kept(&self, t: DType) -> usize {
        self.depth.div_ceil(2 * Sparse::run(t)) * Sparse::run(t)
    }

    /// The type of a word of places: two bits for each element of a run.
    pub fn places(t: DType) -> Option<DType> {
        match t.size() {
            1 => Some(DType::U32),
            2 => Some(DType::U16),
            _ => None,
        }
    }
}

impl Kind for Sparse {
    fn name(&self) -> &'static str {
        "sparse_matmul"
    }

    fn operands(&self) -> usize {
        3
    }

    fn infer(&self, operands: &[Operand<'_>], r: usize) -> Result<Option<Inferred>, Broken> {
        let [(left, a), (right, b), (places, words)] = [operands[0], operands[1], operands[2]];
        if r < 2 || [a, b, words].iter().any(|d| d.len() != r || d[..r - 2] != a[..r - 2]) {
            return Err(Broken::Fit("ranks or batch dimensions differ".into()));
        }
        let sparse = if self.side == 0 { left } else { right };
        let (kept, line) = if self.side == 0 { (a[r - 1], a[r - 2]) } else { (b[r - 2], b[r - 1]) };
        let depth = if self.side == 0 { b[r - 2] } else { a[r - 1] };
        let fits = depth == self.depth && kept == self.kept(sparse) && words[r - 1] == line;
        if !fits || words[r - 2] != kept / Sparse::run(sparse) || Sparse::places(sparse) != Some(places) {
            return Err(Broken::Fit(format!("{a:?}, {b:?} and {words:?} are no factors of depth {}", self.depth)));
        }
        Ok(Some(Inferred::new(summed(left), &[&a[..r - 1], &b[r - 1..]].concat())))
    }

    fn check(&self, step: &Step) -> Result<(), Broken> {
        let dense = |v: &View| v.strides[v.rank() - 1] == 1 || v.strides[v.rank() - 2] == 1;
        let thin = |v: &View| v.dims[v.rank() - 1] == 1 || v.dims[v.rank() - 2] == 1;
        match step.inputs[..2].iter().all(|a| dense(&a.view) || thin(&a.view)) {
            true => Ok(()),
            false => Err(Broken::Layout("a matrix has neither dense rows nor dense columns")),
        }
    }

    fn interpret(&self, at: &Operands<'_>) -> Result<Option<Data>, Error> {
        let (kept, dense) = (at.floats(self.side)?, at.floats(1 - self.side)?);
        let (of_kept, of_dense, of_words) = (at.view(self.side), at.view(1 - self.side), at.view(2));
        let r = at.dims().len();
        // Along the depth, and along rows or columns.
        let along = |side: usize| if side == 0 { (r - 1, r - 2) } else { (r - 2, r - 1) };
        let ((deep, line), (other_deep, other)) = (along(self.side), along(1 - self.side));
        let run = of_kept.dims[deep] / of_words.dims[r - 2].max(1);
        let mut out = Vec::with_capacity(at.dims().iter().product());
        each(at.dims(), |c| {
            let start = |v: &View| v.offset + (0..r - 2).map(|d| c[d] as i64 * v.strides[d]).sum::<i64>();
            let first = start(of_kept) + c[line] as i64 * of_kept.strides[line];
            let across = start(of_dense) + c[other] as i64 * of_dense.strides[other];
            let words = start(of_words) + c[line] as i64 * of_words.strides[r - 1];
            let product = |e: usize| {
                let word = at.data(2).get((words + (e / run) as i64 * of_words.strides[r - 2]) as usize).as_i64();
                let k = e / 2 * 4 + (word >> (2 * (e % run)) & 3) as usize;
                let x = kept[(first + e as i64 * of_kept.strides[deep]) as usize];
                let beside = |k: usize| dense[(across + k as i64 * of_dense.strides[other_deep]) as usize];
                if k < self.depth { x * beside(k) } else { 0.0 }
            };
            out.push((0..of_kept.dims[deep]).map(product).sum());
        });
        Ok(Some(Data::Float(out)))
    }

    fn collapse(&self, _: &mut Step) {}

    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "    operand {} has two of every four of {}", self.side, self.depth)
    }
}
