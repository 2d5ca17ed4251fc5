//! Products with weights that are packed numbers of a few bits.

use super::{Inferred, Kind, Normalize, Operand};
use crate::graph::expr::{Expr, Scalar};
use crate::graph::fused::Step;
use crate::graph::interpret::{Data, Error, Operands, each, evaluate};
use crate::graph::rules::Broken;
use crate::tensor::DType;
use crate::tensor::small::SmallFloat;
use std::fmt;

/// `O[m,n] = sum over k of in0[m,k] * in2[n,k / block] * (q[n,k] - zero[n,k / block])`.
///
/// Row `n` of `in1`, bytes, holds the numbers `q[n,..]` of `bits` bits each, the first in the low bits: whole ones, or the codes of floats
/// ([`Zeros::Floats`]). What is multiplied may be made of the rows of `in0` first ([`NormedRows`]).
#[derive(Clone, Debug, PartialEq)]
pub struct Packed {
    /// Extent of k, a whole number of blocks and of 16 packed bytes.
    pub depth: usize,
    /// 2, 4 or 8.
    pub bits: u32,
    /// Numbers that share a scale, a power of two and at least 16.
    pub block: usize,
    /// What is subtracted.
    pub zeros: Zeros,
    /// What the rows of `in0` are made into before they are multiplied, if anything.
    pub rows: Option<NormedRows>,
    /// What gates results, if anything: `O[m,n]` is this expression of `S[m,n]`, an [`Op::Acc`](crate::graph::expr::Op::Acc), times
    /// `S[m,n + N]`, where `S` is the product and has `2 N` columns.
    pub gate: Option<Expr>,
}

/// Rows of data that are normalised.
#[derive(Clone, Debug, PartialEq)]
pub struct NormedRows {
    /// How: over their one dimension.
    pub norm: Normalize,
    /// What is multiplied: an expression of [`Op::Acc`](crate::graph::expr::Op::Acc), the normalised element, and of operands from
    /// [`Packed::weights_end`] on.
    pub expr: Expr,
    /// How many of those there are, with dimensions `[m,k]`.
    pub operands: usize,
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
    /// Nothing: the numbers are the codes of floats of this type.
    Floats(DType),
}

impl Zeros {
    /// The codes of a type of floats, if a packed matrix may hold them: kernels make halves of them.
    pub fn of_floats(t: DType) -> Option<Zeros> {
        SmallFloat::of(t).filter(|f| f.fits_halves()).map(|_| Zeros::Floats(t))
    }
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

    /// The number behind the last operand that is of the weights.
    pub fn weights_end(&self) -> usize {
        if matches!(self.zeros, Zeros::Middle | Zeros::Floats(_)) { 3 } else { 4 }
    }

    /// Rows of the weights for each column of the result.
    pub fn of_column(&self) -> usize {
        1 + usize::from(self.gate.is_some())
    }

    /// The rows that are multiplied, one behind the other.
    fn data(&self, at: &Operands<'_>) -> Result<Vec<f64>, Error> {
        let (x, view) = (at.floats(0)?, at.view(0));
        let mut out = Vec::with_capacity(view.len());
        each(&view.dims, |c| out.push(x[view.at(c) as usize]));
        let Some(rows) = &self.rows else { return Ok(out) };
        out.chunks_mut(self.depth).for_each(|row| rows.norm.normalize(row));
        let (mut cells, mut i) = (Vec::new(), 0);
        each(&view.dims, |c| {
            let operand = |o: u32| at.data(o as usize).get(at.view(o as usize).at(c) as usize);
            out[i] = evaluate(&rows.expr, Some(Scalar::Float(out[i])), &mut cells, operand).as_f64();
            i += 1;
        });
        Ok(out)
    }

    /// True when the extents are what the kind promises.
    pub fn is_regular(&self) -> bool {
        let block = self.block.is_power_of_two() && self.block >= 16;
        let numbers = match self.zeros {
            Zeros::Floats(t) => Zeros::of_floats(t).is_some() && t.bits() == self.bits as usize,
            _ => true,
        };
        numbers && block && self.depth.is_multiple_of(self.block) && self.depth.is_multiple_of(self.together())
    }
}

impl Kind for Packed {
    fn name(&self) -> &'static str {
        "packed"
    }

    fn operands(&self) -> usize {
        self.weights_end() + self.rows.as_ref().map_or(0, |r| r.operands)
    }

    fn infer(&self, operands: &[Operand<'_>], _: usize) -> Result<Option<Inferred>, Broken> {
        let [(dtype, x), (_, packed), (_, scales), others @ ..] = operands else {
            return Err(Broken::TooFewOperands(3));
        };
        let (zeros, of_rows) = others.split_at(self.weights_end().min(operands.len()) - 3);
        let rows_fit = |r: &NormedRows| r.norm.axes == 1 && r.expr.dtype() == *dtype;
        if !self.rows.as_ref().is_none_or(rows_fit) || of_rows.iter().any(|(_, d)| d != x) {
            return Err(Broken::Fit("rows are normalised over their one dimension, to what has their type".into()));
        }
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
        if self.gate.as_ref().is_some_and(|g| g.dtype() != *dtype || n % 2 > 0) {
            return Err(Broken::Fit("what gates results is half of the columns, of their type".into()));
        }
        Ok(Some(Inferred::new(*dtype, &[m, n / self.of_column()])))
    }

    fn check(&self, step: &Step) -> Result<(), Broken> {
        let dense = step.inputs[1..self.weights_end()].iter().all(|a| a.view.is_dense());
        if !dense || step.inputs[0].view.strides[1] != 1 {
            return Err(Broken::Layout("packed numbers, scales or rows of data lie apart"));
        }
        Ok(())
    }

    fn cut(&self, i: usize, d: usize, _: usize) -> Option<Option<usize>> {
        if self.gate.is_some() && d == 1 {
            return None;
        }
        // [m, k] by the rows of all of the weights'.
        Some((d == usize::from((1..self.weights_end()).contains(&i))).then_some(0))
    }

    fn interpret(&self, at: &Operands<'_>) -> Result<Option<Data>, Error> {
        let (x, scales) = (self.data(at)?, at.floats(2)?);
        let field = |i: usize, row: usize, pitch: usize, k: usize| -> f64 {
            let bit = k * self.bits as usize;
            let byte = at.data(i).get(at.view(i).offset as usize + row * pitch + bit / 8).as_f64();
            let part = byte as u32 >> (bit % 8) & ((1 << self.bits) - 1);
            match self.zeros {
                // Bytes that are floats are read as such.
                Zeros::Floats(_) if self.bits == 8 => byte,
                Zeros::Floats(t) => SmallFloat::of(t).map_or(0.0, |f| f.decode(part as u8)),
                _ => f64::from(part),
            }
        };
        let zero = |n: usize, b: usize| match self.zeros {
            Zeros::Middle => f64::from(1 << (self.bits - 1)),
            Zeros::Packed => field(3, n, self.zero_bytes(), b),
            Zeros::Values => at.data(3).get(at.view(3).at(&[n, b]) as usize).as_f64(),
            Zeros::Floats(_) => 0.0,
        };
        let pitch = self.depth * self.bits as usize / 8;
        let mut out = Vec::new();
        let columns = at.dims()[1];
        let sum = |m: usize, n: usize| -> f64 {
            let term = |k: usize| {
                let b = k / self.block;
                let w = (field(1, n, pitch, k) - zero(n, b)) * scales[at.view(2).at(&[n, b]) as usize];
                x[m * self.depth + k] * w
            };
            (0..self.depth).map(term).sum()
        };
        let mut cells = Vec::new();
        each(at.dims(), |c| {
            let (m, n) = (c[0], c[1]);
            out.push(match &self.gate {
                Some(gate) => {
                    let factor = evaluate(gate, Some(Scalar::Float(sum(m, n))), &mut cells, |_| Scalar::Float(0.0));
                    factor.as_f64() * sum(m, n + columns)
                }
                None => sum(m, n),
            });
        });
        Ok(Some(Data::Float(out)))
    }

    fn collapse(&self, _: &mut Step) {}

    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "    {} bits, blocks of {}, zeros {:?}", self.bits, self.block, self.zeros)?;
        if let Some(gate) = &self.gate {
            writeln!(f, "    gated by {gate}")?;
        }
        let Some(rows) = &self.rows else { return Ok(()) };
        write!(f, "    rows {} of", rows.expr)?;
        rows.norm.print(f)
    }
}
