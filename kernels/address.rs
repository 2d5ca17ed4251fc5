//! From coordinates to byte offsets.

use crate::graph::view::View;
use crate::mir::{Builder, Opnd, Part};

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
    let mut out = vec![None; dims.len()];
    let mut rest = index;
    let wide: Vec<usize> = (0..dims.len()).filter(|d| dims[*d] != 1).collect();
    for (k, &d) in wide.iter().enumerate().rev() {
        if k == 0 {
            out[d] = Some(rest);
        } else {
            let (q, r) = b.divmod(rest, dims[d] as u32);
            out[d] = Some(r);
            rest = q;
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

/// Sum of two offsets.
pub(super) fn add(b: &mut Builder, x: Offset, y: Offset) -> Offset {
    let reg = match (x.reg, y.reg) {
        (Some(p), Some(q)) => Some(b.add(p, q)),
        (p, q) => p.or(q),
    };
    Offset { reg, imm: x.imm.wrapping_add(y.imm) }
}
