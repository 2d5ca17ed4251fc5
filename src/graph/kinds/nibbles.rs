//! Matrix products of integers of 4 bits, two in a byte.

use super::{Inferred, Kind, Operand};
use crate::graph::fused::Step;
use crate::graph::interpret::{Data, Error, Operands, each};
use crate::graph::rules::Broken;
use crate::graph::view::View;
use crate::tensor::DType;
use std::fmt;

/// `O[b..,m,n] = sum over k of l[b..,m,k] * r[b..,k,n]`, in i32, where `l` and `r` are integers of 4 bits.
///
/// `in0` and `in1` are bytes of two neighbours along k each, the first in the low bits, and have half the depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nibbles {
    /// Which of the factors, the left and the right one, have a sign.
    pub signed: [bool; 2],
}

impl Nibbles {
    /// Types of the left and of the right factor's elements.
    pub fn types(&self) -> [DType; 2] {
        self.signed.map(|signed| if signed { DType::I4 } else { DType::U4 })
    }
}

impl Kind for Nibbles {
    fn name(&self) -> &'static str {
        "nibble_matmul"
    }

    fn operands(&self) -> usize {
        2
    }

    fn infer(&self, operands: &[Operand<'_>], r: usize) -> Result<Option<Inferred>, Broken> {
        let [(left, a), (right, b)] = [operands[0], operands[1]];
        if r < 2 || a.len() != r || b.len() != r || a[..r - 2] != b[..r - 2] {
            return Err(Broken::Fit("ranks or batch dimensions differ".into()));
        }
        if a[r - 1] != b[r - 2] || [left, right] != [DType::U8; 2] {
            return Err(Broken::Fit(format!("{a:?} of {left} and {b:?} of {right} are no factors")));
        }
        Ok(Some(Inferred::new(DType::I32, &[&a[..r - 1], &b[r - 1..]].concat())))
    }

    fn check(&self, step: &Step) -> Result<(), Broken> {
        super::matmul::MatMul.check(step)
    }

    fn cut(&self, i: usize, d: usize, rank: usize) -> Option<Option<usize>> {
        super::matmul::MatMul.cut(i, d, rank)
    }

    fn interpret(&self, at: &Operands<'_>) -> Result<Option<Data>, Error> {
        let r = at.dims().len();
        let mut out = Vec::with_capacity(at.dims().iter().product());
        each(at.dims(), |c| {
            let both = |side: usize, k: usize| {
                let view: &View = at.view(side);
                let mut coords = c.to_vec();
                coords[r - 1 - side] = k;
                let byte = at.data(side).get(view.at(&coords) as usize).as_i64() as u8;
                [byte & 15, byte >> 4].map(|x| i64::from(x) - if self.signed[side] && x > 7 { 16 } else { 0 })
            };
            let two = |k: usize| both(0, k).into_iter().zip(both(1, k)).map(|(a, b)| a * b).sum::<i64>();
            out.push((0..at.view(0).dims[r - 1]).map(two).sum());
        });
        Ok(Some(Data::Int(out)))
    }

    fn collapse(&self, _: &mut Step) {}

    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [left, right] = self.types();
        writeln!(f, "    {left} by {right}, two in a byte")
    }
}
