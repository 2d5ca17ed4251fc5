//! Products with weights of a few bits, which are scaled block by block.

use super::{Inferred, Kind, Operand};
use crate::graph::fused::Step;
use crate::graph::interpret::{Data, Error, Operands};
use crate::graph::rules::Broken;
use crate::tensor::DType;
use std::fmt;

/// `O[m,n] = sum over k of in0[m,k] * (weight[n,k] - zero[n,k/block]) * scale[n,k/block]`. The weights are fields of `bits` bits of
/// in1, dense bytes `[n, blocks * block * bits / 8]`, low bits first; the scales are in2, dense `[n, blocks]`; zero points are in3
/// where they are given. Depths that blocks do not divide end within the last one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Packed {
    /// Bits of a weight: 2, 4 or 8.
    pub bits: usize,
    /// Weights of a block, a power of two, at least 16.
    pub block: usize,
    /// What counts as zero.
    pub zeros: Zeros,
}

/// Zero points of [`Packed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zeros {
    /// The middle of the fields' range.
    Middle,
    /// Fields of the weights' bits, `[n, bytes]`.
    Fields,
    /// Numbers, `[n, blocks]`.
    Numbers,
}

impl Packed {
    /// Blocks of a depth, and bytes of a column's weights.
    pub fn blocks(&self, depth: usize) -> (usize, usize) {
        let blocks = depth.div_ceil(self.block);
        (blocks, blocks * self.block * self.bits / 8)
    }

    /// The middle of the fields' range.
    pub fn middle(&self) -> f64 {
        f64::from(1u32 << (self.bits - 1))
    }
}

impl Kind for Packed {
    fn name(&self) -> &'static str {
        "packed"
    }

    fn operands(&self) -> usize {
        if self.zeros == Zeros::Middle { 3 } else { 4 }
    }

    fn infer(&self, operands: &[Operand<'_>], rank: usize) -> Result<Option<Inferred>, Broken> {
        let ((dtype, a), (bytes, w), (_, s)) = (operands[0], operands[1], operands[2]);
        let fit = |what: &str| Err(Broken::Fit(what.into()));
        if ![2, 4, 8].contains(&self.bits) || self.block < 16 || !self.block.is_power_of_two() {
            return fit("weights are not of 2, 4 or 8 bits in blocks of 16, 32, 64 ...");
        }
        let (&[rows, depth], &[columns, ..]) = (a, w) else { return fit("operands are not matrices") };
        let (blocks, row) = self.blocks(depth);
        if rank != 2 || bytes != DType::U8 || w != [columns, row] || s != [columns, blocks] {
            return fit("weights or scales are not those of the columns' blocks");
        }
        let zeros = match self.zeros {
            Zeros::Middle => true,
            Zeros::Fields => operands[3] == (DType::U8, &[columns, (blocks * self.bits).div_ceil(8)]),
            Zeros::Numbers => operands[3].1 == [columns, blocks],
        };
        if !zeros {
            return fit("zero points are not those of the columns' blocks");
        }
        Ok(Some(Inferred::new(dtype, &[rows, columns])))
    }

    fn check(&self, step: &Step) -> Result<(), Broken> {
        if step.inputs[1..self.operands()].iter().any(|a| !a.view.is_dense()) || step.inputs[0].view.strides[1] != 1 {
            return Err(Broken::Layout("an operand of a product with packed weights is not dense"));
        }
        Ok(())
    }

    fn interpret(&self, at: &Operands<'_>) -> Result<Option<Data>, Error> {
        let (a, av) = (at.floats(0)?, at.view(0));
        let (rows, depth) = (av.dims[0], av.dims[1]);
        let columns = at.dims()[1];
        let (blocks, pitch) = self.blocks(depth);
        let element = |operand: usize, i: usize| at.data(operand).get(at.view(operand).offset as usize + i);
        let field = |operand: usize, line: usize, i: usize| {
            let byte = element(operand, line + i * self.bits / 8).as_i64();
            (byte >> (i * self.bits % 8) & ((1 << self.bits) - 1)) as f64
        };
        let zero = |n: usize, b: usize| match self.zeros {
            Zeros::Middle => self.middle(),
            Zeros::Fields => field(3, n * (blocks * self.bits).div_ceil(8), b),
            Zeros::Numbers => element(3, n * blocks + b).as_f64(),
        };
        let weight = |n: usize, k: usize| {
            let b = k / self.block;
            (field(1, n * pitch, k) - zero(n, b)) * element(2, n * blocks + b).as_f64()
        };
        let x = |m: usize, k: usize| a[(av.offset + m as i64 * av.strides[0] + k as i64) as usize];
        let sum = |m: usize, n: usize| (0..depth).map(|k| x(m, k) * weight(n, k)).sum();
        Ok(Some(Data::Float((0..rows * columns).map(|i| sum(i / columns, i % columns)).collect())))
    }

    fn collapse(&self, _: &mut Step) {}

    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "    {} bits, blocks of {}, {:?} as zero", self.bits, self.block, self.zeros)
    }
}
