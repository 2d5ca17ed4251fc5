//! Products with weights that are packed numbers of a few bits.

use super::{Inferred, Kind, Operand};
use crate::graph::fused::Step;
use crate::graph::interpret::{Data, Error, Operands, each};
use crate::graph::rules::Broken;
use std::fmt;

/// `O[m,n] = sum over k of in0[m,k] * in2[n,k / block] * (q[n,k] - zero[n,k / block])`.
///
/// Row `n` of `in1`, bytes, holds the numbers `q[n,..]` of `bits` bits each, the first in the low bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packed {
    /// Extent of k, a whole number of blocks and of 16 packed bytes.
    pub depth: usize,
    /// 2, 4 or 8.
    pub bits: u32,
    /// Numbers that share a scale, a power of two and at least 16.
    pub block: usize,
    /// What is subtracted.
    pub zeros: Zeros,
}

/// Zero points of [`Packed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zeros {
    /// The middle of the numbers: 8 where they have 4 bits.
    Middle,
    /// `in3[n,..]`, packed as the numbers are, each row from a byte of its own on.
    Packed,
    /// `in3[n,k / block]`.
    Values,
}

impl Packed {
    /// Numbers in 16 bytes.
    pub fn together(&self) -> usize {
        128 / self.bits as usize
    }

    /// Blocks of a row.
    pub fn blocks(&self) -> usize {
        self.depth / self.block
    }

    /// Bytes of a row of packed zero points.
    pub fn zero_bytes(&self) -> usize {
        (self.blocks() * self.bits as usize).div_ceil(8)
    }

    /// True when the extents are what the kind promises.
    pub fn is_regular(&self) -> bool {
        let block = self.block.is_power_of_two() && self.block >= 16;
        block && self.depth.is_multiple_of(self.block) && self.depth.is_multiple_of(self.together())
    }
}

impl Kind for Packed {
    fn name(&self) -> &'static str {
        "packed"
    }

    fn operands(&self) -> usize {
        if self.zeros == Zeros::Middle { 3 } else { 4 }
    }

    fn infer(&self, operands: &[Operand<'_>], _: usize) -> Result<Option<Inferred>, Broken> {
        let [(dtype, x), (_, packed), (_, scales), zeros @ ..] = operands else {
            return Err(Broken::TooFewOperands(3));
        };
        let (&[m, k], &[n, bytes], &[rows, blocks]) = (*x, *packed, *scales) else {
            return Err(Broken::Fit("an operand has not two dimensions".into()));
        };
        let zeros_fit = zeros.iter().all(|(_, d)| match self.zeros {
            Zeros::Packed => **d == [n, self.zero_bytes()],
            _ => **d == [n, self.blocks()],
        });
        let fit = k == self.depth && bytes * 8 == k * self.bits as usize && rows == n && blocks == self.blocks();
        if !fit || !zeros_fit || !self.is_regular() {
            return Err(Broken::Fit(format!(
                "data {x:?}, numbers {packed:?} and scales {scales:?} do not fit {self:?}"
            )));
        }
        Ok(Some(Inferred::new(*dtype, &[m, n])))
    }

    fn check(&self, step: &Step) -> Result<(), Broken> {
        let dense = step.inputs[1..self.operands()].iter().all(|a| a.view.is_dense());
        if !dense || step.inputs[0].view.strides[1] != 1 {
            return Err(Broken::Layout("packed numbers, scales or rows of data lie apart"));
        }
        Ok(())
    }

    fn cut(&self, i: usize, d: usize, _: usize) -> Option<Option<usize>> {
        // [m, k] by the rows of all others.
        Some((d == usize::from(i > 0)).then_some(0))
    }

    fn interpret(&self, at: &Operands<'_>) -> Result<Option<Data>, Error> {
        let (x, view, scales) = (at.floats(0)?, at.view(0), at.floats(2)?);
        let field = |i: usize, row: usize, pitch: usize, k: usize| -> f64 {
            let bit = k * self.bits as usize;
            let byte = at.data(i).get(at.view(i).offset as usize + row * pitch + bit / 8).as_f64() as u32;
            f64::from(byte >> (bit % 8) & ((1 << self.bits) - 1))
        };
        let zero = |n: usize, b: usize| match self.zeros {
            Zeros::Middle => f64::from(1 << (self.bits - 1)),
            Zeros::Packed => field(3, n, self.zero_bytes(), b),
            Zeros::Values => at.data(3).get(at.view(3).at(&[n, b]) as usize).as_f64(),
        };
        let pitch = self.depth * self.bits as usize / 8;
        let mut out = Vec::new();
        each(at.dims(), |c| {
            let (m, n) = (c[0], c[1]);
            let term = |k: usize| {
                let b = k / self.block;
                let w = (field(1, n, pitch, k) - zero(n, b)) * scales[at.view(2).at(&[n, b]) as usize];
                x[view.at(&[m, k]) as usize] * w
            };
            out.push((0..self.depth).map(term).sum());
        });
        Ok(Some(Data::Float(out)))
    }

    fn collapse(&self, _: &mut Step) {}

    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "    {} bits, blocks of {}, zeros {:?}", self.bits, self.block, self.zeros)
    }
}
