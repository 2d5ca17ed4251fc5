//! Rows of a product that are the positions of several images, which an access may hold otherwise than one behind the other: a sum with something
//! for each channel of an image, or with a part of a larger image.
//!
//! Row `r` lies `r * stride + (r / positions) * gap` bytes behind the first one. Where tiles are of one image each, the second term is the workgroup's;
//! where images end within tiles, it is computed for each row.

use super::Walk;
use crate::graph::view::View;
use crate::kernels::address::Offset;
use crate::mir::{Builder, Part};

/// What is added for each image to where a row would lie in line.
#[derive(Clone, Copy)]
pub(super) struct Gap {
    /// Rows of an image.
    positions: u32,
    bytes: i32,
}

impl Gap {
    /// The gap of an access with elements of `size` bytes; none where its rows lie in line.
    pub fn of(walk: &Walk, view: &View, size: usize) -> Option<Gap> {
        let positions = walk.positions?;
        let bytes = (view.strides[walk.m_dim - 1] - positions as i64 * view.strides[walk.m_dim]) * size as i64;
        (bytes != 0).then_some(Gap { positions: positions as u32, bytes: bytes as i32 })
    }

    /// Adds to what is the same for a workgroup, whose tile of so many rows begins at `first`; gives the gap back where the tile may have rows of several images.
    pub fn of_tile(self, b: &mut Builder, outer: &mut Offset, first: Part, rows: u32) -> Option<Gap> {
        if !self.positions.is_multiple_of(rows) {
            return Some(self);
        }
        let image = b.udiv(first, self.positions);
        let by = b.mul(image, self.bytes);
        outer.reg = Some(outer.reg.map_or(by, |reg| b.add(reg, by)));
        None
    }

    /// Byte offset of row `at` in its column, rows being `stride` bytes apart.
    pub fn of_row(self, b: &mut Builder, at: Part, stride: i64) -> Part {
        let image = b.udiv(at, self.positions);
        let by = b.mul(image, self.bytes);
        b.mad(at, stride as i32, by)
    }
}
