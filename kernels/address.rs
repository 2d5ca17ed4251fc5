//! From coordinates to byte offsets.

use crate::graph::view::View;
use crate::mir::{Builder, Opnd, Part};
use std::ops::Range;

/// A byte offset: a part in a register and a constant part.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offset {
    /// Register part, vector or scalar; `None` is 0.
    pub reg: Option<Part>,
    /// Constant part.
    pub imm: u32,
}

impl Offset {
    /// As operands of a buffer access: vector offset, scalar offset, constant.
    pub fn operands(self, b: &mut Builder) -> (Opnd, Opnd, u32) {
        match self.reg {
            None => (Opnd::Off, 0u32.into(), self.imm),
            Some(r) if b.is_vector(r.into()) => (r.into(), 0u32.into(), self.imm),
            Some(r) => (Opnd::Off, r.into(), self.imm),
        }
    }
    /// The register part as a vector, so that it can be masked.
    pub fn vector(self, b: &mut Builder) -> Part {
        match self.reg {
            Some(r) if b.is_vector(r.into()) => r,
            Some(r) => b.to_vector(r),
            None => b.to_vector(0u32),
        }
    }
    /// The same for the lanes of a mask, where there is one: others are out of bounds.
    pub fn within(self, b: &mut Builder, mask: impl Into<Option<Part>>) -> Offset {
        let Some(mask) = mask.into() else { return self };
        let reg = self.vector(b);
        Offset { reg: Some(b.guard(mask, reg)), ..self }
    }
    /// Both parts in a vector.
    pub fn vector_with(self, b: &mut Builder) -> Part {
        match self.reg {
            None => b.to_vector(self.imm),
            Some(_) => {
                let v = self.vector(b);
                if self.imm == 0 { v } else { b.add(v, self.imm) }
            }
        }
    }
}

/// Splits a linear index into row-major coordinates. Dimensions of extent 1 give `None`.
pub(super) fn coordinates(b: &mut Builder, index: Part, dims: &[usize]) -> Vec<Option<Part>> {
    coordinates_below(b, index, dims, 1 << 32)
}

/// Numbers of workitems' places end so far behind the last place at most.
const BEYOND: u64 = 1 << 20;

/// The same of the number of a workitem's place, which is less than there are places or little more, as in the last workgroup.
pub(super) fn coordinates_of_item(b: &mut Builder, index: Part, dims: &[usize]) -> Vec<Option<Part>> {
    let places = dims.iter().fold(1u64, |n, d| n.saturating_mul(*d as u64));
    coordinates_below(b, index, dims, places.saturating_add(BEYOND))
}

fn coordinates_below(b: &mut Builder, index: Part, dims: &[usize], mut below: u64) -> Vec<Option<Part>> {
    let mut out = vec![None; dims.len()];
    let mut rest = index;
    let wide: Vec<usize> = (0..dims.len()).filter(|d| dims[*d] != 1).collect();
    for (k, &d) in wide.iter().enumerate().rev() {
        if k == 0 {
            out[d] = Some(rest);
        } else {
            let (q, r) = b.divmod_below(rest, dims[d] as u32, below);
            out[d] = Some(r);
            (rest, below) = (q, below / dims[d] as u64 + 1);
        }
    }
    out
}

/// Byte offset of the element of `view` at the coordinates (`None` is 0), elements of `size` bytes.
pub(super) fn offset(b: &mut Builder, view: &View, size: usize, coords: &[Option<Part>]) -> Offset {
    offset_of_dims(b, view, size, coords, 0..view.rank(), true)
}

/// The share of some dimensions in a byte offset; `constant` tells whether the view's own offset is included.
pub(super) fn offset_of_dims(
    b: &mut Builder,
    view: &View,
    size: usize,
    coords: &[Option<Part>],
    dims: std::ops::Range<usize>,
    constant: bool,
) -> Offset {
    let mut reg: Option<Part> = None;
    let mut negative = false;
    for d in dims {
        let (Some(c), stride) = (coords[d], view.strides[d] * size as i64) else { continue };
        if stride == 0 {
            continue;
        }
        negative |= stride < 0;
        reg = Some(match reg {
            None => b.mul(c, stride as i32),
            Some(r) => b.mad(c, stride as i32, r),
        });
    }
    let imm = if constant { (view.offset * size as i64) as u32 } else { 0 };
    match reg {
        // The hardware's bounds check looks at the register part alone: it must not be negative.
        Some(r) if negative && imm != 0 => Offset { reg: Some(b.add(r, imm)), imm: 0 },
        reg => Offset { reg, imm },
    }
}

/// Byte offset of element `index` of the dimensions `dims` of `view`, with the view's own offset where that is wanted.
pub(super) fn part_offset(
    b: &mut Builder,
    view: &View,
    size: usize,
    dims: Range<usize>,
    index: Part,
    constant: bool,
) -> Offset {
    let coords = coordinates(b, index, &view.dims[dims.clone()]);
    let part = View {
        offset: if constant { view.offset } else { 0 },
        dims: view.dims[dims.clone()].to_vec(),
        strides: view.strides[dims].to_vec(),
    };
    offset(b, &part, size, &coords)
}

/// Sum of two offsets.
pub(super) fn add(b: &mut Builder, x: Offset, y: Offset) -> Offset {
    let reg = match (x.reg, y.reg) {
        (Some(p), Some(q)) => Some(b.add(p, q)),
        (p, q) => p.or(q),
    };
    Offset { reg, imm: x.imm.wrapping_add(y.imm) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mir::Code;
    use barewave_isa::{Target, op};

    #[test]
    fn rests_have_24_bits_where_quotients_do() {
        let products = |dims: &[usize]| {
            let mut b = Builder::new(Target::GFX906, "places", 64);
            let index = b.workitem_id();
            coordinates_of_item(&mut b, index, dims);
            let short = |i: &&crate::mir::MInst| i.code == Code::Isa(op::V_MAD_I32_I24);
            b.function().blocks.iter().flat_map(|block| &block.insts).filter(short).count()
        };
        assert_eq!(products(&[3, 35, 33]), 2);
        // 2^24 times 33 places: the other quotient is small.
        assert_eq!(products(&[1 << 9, 3 << 15, 33]), 1);
        // Nothing is multiplied of a power of two.
        assert_eq!(products(&[3, 64, 33]), 1);
    }
}
