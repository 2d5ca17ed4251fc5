//! Matrix products of which one factor holds two of every four elements along the depth.

use super::{Inferred, Kind, Operand, summed};
use crate::graph::fused::Step;
use crate::graph::interpret::{Data, Error, Operands, each};
use crate::graph::rules::Broken;
use crate::graph::view::View;
use crate::tensor::DType;
use std::fmt;

/// Bytes of a cell.
const CELL: usize = 16;

/// `O[b..,m,n] = sum over k of in0[b..,m,k] * in1[b..,k,n]`, where operand `side` is a matrix of which every group of four k, the first of
/// them a multiple of four, has two elements that are *kept*; the others are zero.
///
/// Of that operand there are the kept elements, two of each group in their order, in *cells* of 16 bytes: element `e` of cell `c` of a
/// line (a row of the left factor, a column of the right one) is `in_side[b..,c,line * run + e]`, so that what several lines have at one
/// depth lies together. Where in its group each was say two bits of `in2[b..,c,line]`, the lowest of the word those of the first element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sparse {
    /// The operand, 0 or 1.
    pub side: usize,
    /// Extent of k.
    pub depth: usize,
}

impl Sparse {
    /// Kept elements of a cell.
    pub fn run(t: DType) -> usize {
        CELL / t.size().max(1)
    }

    /// Cells of a line.
    pub fn cells(&self, t: DType) -> usize {
        self.depth.div_ceil(2 * Sparse::run(t))
    }

    /// The type of a word of places: two bits for each element of a cell.
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
        let (sparse, cells) = if self.side == 0 { (left, a) } else { (right, b) };
        let (depth, other) = if self.side == 0 { (b[r - 2], b[r - 1]) } else { (a[r - 1], a[r - 2]) };
        let (count, lines) = (words[r - 2], words[r - 1]);
        let fits = depth == self.depth && count == self.cells(sparse) && Sparse::places(sparse) == Some(places);
        if !fits || cells[r - 2..] != [count, lines * Sparse::run(sparse)] {
            return Err(Broken::Fit(format!("{a:?}, {b:?} and {words:?} are no factors of depth {}", self.depth)));
        }
        let result = if self.side == 0 { [lines, other] } else { [other, lines] };
        Ok(Some(Inferred::new(summed(left), &[&a[..r - 2], &result].concat())))
    }

    fn check(&self, step: &Step) -> Result<(), Broken> {
        let dense = |v: &View| v.strides[v.rank() - 1] == 1 || v.strides[v.rank() - 2] == 1;
        let thin = |v: &View| v.dims[v.rank() - 1] == 1 || v.dims[v.rank() - 2] == 1;
        if !step.inputs[..2].iter().all(|a| dense(&a.view) || thin(&a.view)) {
            return Err(Broken::Layout("a matrix has neither dense rows nor dense columns"));
        }
        let lies = |v: &View| {
            let r = v.rank();
            v.strides[r - 1] == 1 && v.strides[r - 2] == v.dims[r - 1] as i64
        };
        match [self.side, 2].iter().all(|i| lies(&step.inputs[*i].view)) {
            true => Ok(()),
            false => Err(Broken::Layout("cells, or words of places, do not lie one behind the other")),
        }
    }

    fn interpret(&self, at: &Operands<'_>) -> Result<Option<Data>, Error> {
        let (kept, dense) = (at.floats(self.side)?, at.floats(1 - self.side)?);
        let (of_cells, of_dense, of_words) = (at.view(self.side), at.view(1 - self.side), at.view(2));
        let r = at.dims().len();
        let (cells, lines) = (of_words.dims[r - 2], of_words.dims[r - 1]);
        let run = of_cells.dims[r - 1] / lines.max(1);
        // The depth of the other factor, and its rows or columns.
        let (deep, across) = if self.side == 0 { (r - 2, r - 1) } else { (r - 1, r - 2) };
        let line = if self.side == 0 { r - 2 } else { r - 1 };
        let mut out = Vec::with_capacity(at.dims().iter().product());
        each(at.dims(), |c| {
            let start = |v: &View| v.offset + (0..r - 2).map(|d| c[d] as i64 * v.strides[d]).sum::<i64>();
            let beside = start(of_dense) + c[across] as i64 * of_dense.strides[across];
            let product = |e: usize| {
                let (cell, e) = ((e / run) as i64, e % run);
                let word = start(of_words) + cell * of_words.strides[r - 2] + c[line] as i64;
                let place = at.data(2).get(word as usize).as_i64() >> (2 * e) & 3;
                let k = cell * 2 * run as i64 + (e / 2 * 4) as i64 + place;
                let x = kept[(start(of_cells) + cell * of_cells.strides[r - 2]) as usize + c[line] * run + e];
                let inside = k < self.depth as i64;
                if inside { x * dense[(beside + k * of_dense.strides[deep]) as usize] } else { 0.0 }
            };
            out.push((0..cells * run).map(product).sum());
        });
        Ok(Some(Data::Float(out)))
    }

    fn collapse(&self, _: &mut Step) {}

    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "    operand {} has two of every four of {}", self.side, self.depth)
    }
}
