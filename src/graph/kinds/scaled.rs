//! Matrix products whose factors have a scale for each block of elements along the depth.

use super::{Inferred, Kind, Operand};
use crate::graph::fused::Step;
use crate::graph::interpret::{Data, Error, Operands, each};
use crate::graph::rules::Broken;
use crate::graph::view::View;
use crate::tensor::DType;
use crate::tensor::small::SmallFloat;
use std::fmt;

/// `O[b..,m,n] = sum over k of l[b..,m,k] * in2[b..,m,k / 32] * r[b..,k,n] * in3[b..,k / 32,n]`, in f32, where `l` and `r` are the elements of
/// `in0` and `in1` and scales are of F8E8M0 (the OCP's "Microscaling Formats").
///
/// Elements of 8 bits are the operand's. Of 4 bits it holds bytes of two neighbours along k each, the first in the low bits, and has half
/// the depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scaled {
    /// Types of the left and of the right factor's elements, of as many bits.
    pub types: [DType; 2],
    /// Extent of k, a multiple of [`Scaled::BLOCK`].
    pub depth: usize,
}

impl Scaled {
    /// Elements that share a scale.
    pub const BLOCK: usize = 32;

    /// Elements in a byte.
    pub fn in_byte(t: DType) -> usize {
        8 / t.bits().max(1)
    }

    /// The type of an operand of such elements.
    pub fn held(t: DType) -> DType {
        if Scaled::in_byte(t) > 1 { DType::U8 } else { t }
    }
}

impl Kind for Scaled {
    fn name(&self) -> &'static str {
        "scaled_matmul"
    }

    fn operands(&self) -> usize {
        4
    }

    fn infer(&self, operands: &[Operand<'_>], r: usize) -> Result<Option<Inferred>, Broken> {
        let [(left, a), (right, b), (of_left, c), (of_right, d)] = [operands[0], operands[1], operands[2], operands[3]];
        if r < 2 || [a, b, c, d].iter().any(|x| x.len() != r || x[..r - 2] != a[..r - 2]) {
            return Err(Broken::Fit("ranks or batch dimensions differ".into()));
        }
        let types = self.types.map(Scaled::held) == [left, right] && [of_left, of_right] == [DType::F8E8M0; 2];
        let known = self.types.iter().all(|t| SmallFloat::of(*t).is_some());
        let alike = self.types[0].bits() == self.types[1].bits();
        let (held, blocks) = (self.depth / Scaled::in_byte(self.types[0]), self.depth / Scaled::BLOCK);
        let depths = [a[r - 1], b[r - 2]] == [held; 2] && [c[r - 1], d[r - 2]] == [blocks; 2];
        let lines = a[r - 2] == c[r - 2] && b[r - 1] == d[r - 1];
        if !(types && known && alike && depths && lines && self.depth.is_multiple_of(Scaled::BLOCK)) {
            return Err(Broken::Fit(format!("{a:?} by {c:?} and {b:?} by {d:?} are no factors of {self:?}")));
        }
        Ok(Some(Inferred::new(DType::F32, &[&a[..r - 1], &b[r - 1..]].concat())))
    }

    fn check(&self, step: &Step) -> Result<(), Broken> {
        let dense = |v: &View| v.strides[v.rank() - 1] == 1 || v.strides[v.rank() - 2] == 1;
        let thin = |v: &View| v.dims[v.rank() - 1] == 1 || v.dims[v.rank() - 2] == 1;
        match step.inputs[..4].iter().all(|a| dense(&a.view) || thin(&a.view)) {
            true => Ok(()),
            false => Err(Broken::Layout("a matrix, or its scales, has neither dense rows nor dense columns")),
        }
    }

    fn interpret(&self, at: &Operands<'_>) -> Result<Option<Data>, Error> {
        let scales = [at.floats(2)?, at.floats(3)?];
        let r = at.dims().len();
        let each_byte = Scaled::in_byte(self.types[0]);
        let mut out = Vec::with_capacity(at.dims().iter().product());
        each(at.dims(), |c| {
            let factor = |side: usize, k: usize| {
                let place = |operand: usize, k: usize| {
                    let mut coords = c.to_vec();
                    coords[r - 1 - side] = k;
                    at.view(operand).at(&coords) as usize
                };
                let held = at.data(side).get(place(side, k / each_byte)).as_f64();
                let x = match SmallFloat::of(self.types[side]) {
                    Some(f) if each_byte > 1 => f.decode((held as u8 >> (k % each_byte * 4)) & 15),
                    _ => held,
                };
                x * scales[side][place(2 + side, k / Scaled::BLOCK)]
            };
            out.push((0..self.depth).map(|k| factor(0, k) * factor(1, k)).sum());
        });
        Ok(Some(Data::Float(out)))
    }

    fn collapse(&self, _: &mut Step) {}

    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "    {} by {}, a scale for each {} of {}", self.types[0], self.types[1], Scaled::BLOCK, self.depth)
    }
}
