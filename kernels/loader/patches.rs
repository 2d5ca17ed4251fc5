//! Patches of a convolution's input for Winograd's method: each is loaded, transformed and written as an element of 16 tiles.
//!
//! A column is a block of 2x2 results; what it needs of a channel is a patch of 4x4 elements `d`, of which Bᵀ d B goes to LDS
//! ([`winograd`](crate::kernels::winograd)). Two workitems share a patch: each makes two rows of Bᵀ d, of three rows of d. With those in the order
//! a, b, c — d0, d1, d2 for the first workitem, d3, d2, d1 for the second — its rows are `a - c` and `b + c`, and `b - c` for the second: the same
//! instructions for both. The second one's `a - c` is the last row of Bᵀ d with the other sign, which the weights' last row
//! has too.

use super::super::{address, winograd};
use super::{Common, DepthPart, Layout, Tile, across, down, fragment};
use crate::graph::view::View;
use crate::mir::{Buffer, Builder, Gen, Part, Type};

/// Rows and columns of d that a workitem loads.
const ROWS: usize = 3;
const COLUMNS: usize = 4;

/// What patches are cut from.
pub(in super::super) struct PatchSource<'a> {
    /// The input.
    pub buf: Buffer,
    /// How it lies: images, channels, rows, columns.
    pub x: &'a View,
    /// Zeros in front of rows and of columns.
    pub pads: [usize; 2],
    /// Blocks of results of an image, from above and from the left.
    pub blocks: [usize; 2],
    /// First block of the workgroup.
    pub first: Part,
    /// The part of the channels that the workgroup sums.
    pub part: DepthPart,
}

/// See [`Loader::Patches`](super::Loader::Patches).
pub(in super::super) struct Patches {
    pub(super) common: Common,
    buf: Buffer,
    /// Byte offsets of the rows' elements of the workitem's first channel, out of bounds where the image is left.
    offsets: Vec<Part>,
    /// Scalar offset, which moves on with the tiles.
    soff: Part,
    /// The workitem's first channel, and how many there are; channels between those that it has.
    channel: Part,
    depth: u32,
    apart: u32,
    /// Bytes from a channel to the next.
    step: u32,
    /// Loads behind the last channel are guarded.
    masked: bool,
    /// 1, or -1 for the second workitem of a patch.
    sign: Part,
}

/// A loader of patches.
pub(in super::super) fn patches(b: &mut Builder, src: PatchSource, tile: &Tile, item: Part) -> super::Loader {
    let (x, n, threads) = (src.x, tile.n, tile.threads());
    let size = i64::from(tile.types.stored_bytes());
    let apart = threads / (2 * n);
    let share = fragment::runs(
        &[(n, across(1)), (2, across(8 * n)), (apart, down(1))],
        &[(4, across(n)), (2, across(4 * n)), (tile.k / apart, down(apart))],
        tile.types.stored_bytes() * 8,
    );
    let layout = Layout::dense(tile, winograd::PRODUCTS * n);
    let lds = layout.address(b, &share, item);
    let column = b.and(item, n - 1);
    let column = b.add(src.first, column);
    let half = b.shr(item, n.trailing_zeros());
    let half = b.and(half, 1u32);
    let own = b.shr(item, n.trailing_zeros() + 1);
    let own = b.to_vector(own);
    let coords = address::coordinates(b, column, &[x.dims[0], src.blocks[0], src.blocks[1]]);
    // First row and column of the patch.
    let corner = |b: &mut Builder, d: usize| {
        let at = match coords[d + 1] {
            Some(c) => b.mul(c, 2u32),
            None => b.to_vector(0u32),
        };
        b.sub(at, src.pads[d] as u32)
    };
    let (top, left) = (corner(b, 0), corner(b, 1));
    let thrice = b.mul(half, 3u32);
    let (a, second) = (b.add(top, thrice), b.add(top, half));
    let (second, third) = (b.add(second, 1u32), b.sub(top, half));
    let third = b.add(third, 2u32);
    let along = |b: &mut Builder, at: Part, d: usize| {
        let inside = b.op(Gen::CmpGt.of(Type::U32), &[(x.dims[d + 2] as u32).into(), at.into()]);
        (b.mul(at, (x.strides[d + 2] * size) as i32), inside)
    };
    let rows = [a, second, third].map(|at| along(b, at, 0));
    let columns: Vec<(Part, Part)> = (0..COLUMNS as u32)
        .map(|c| {
            let at = if c > 0 { b.add(left, c) } else { left };
            along(b, at, 1)
        })
        .collect();
    let mut start = b.mul(own, (x.strides[1] * size) as u32);
    if let Some(image) = coords[0] {
        start = b.mad(image, (x.strides[0] * size) as i32, start);
    }
    let mut offsets = Vec::new();
    for (row, in_rows) in rows {
        let row = b.add(start, row);
        for &(column, in_columns) in &columns {
            let at = b.add(row, column);
            let inside = b.mask_and(in_rows, in_columns);
            offsets.push(b.guard(inside, at));
        }
    }
    let second = b.op(Gen::CmpEq.of(Type::U32), &[half.into(), 1u32.into()]);
    let [one, minus] = [1.0f32, -1.0].map(|x| b.to_vector(x.to_bits()));
    let sign = b.select(second, minus, one);
    let (depth, step) = (x.dims[1] as u32, (x.strides[1] * size) as u32);
    let soff = b.scalar((x.offset * size) as u32);
    let soff = match src.part.first {
        Some(first) => b.mad(first, step, soff),
        None => soff,
    };
    let regs = (0..tile.k / apart).flat_map(|_| 0..ROWS * COLUMNS).map(|_| b.v(1)).collect();
    let common =
        Common { types: tile.types, run: 1, depth: tile.k, share, layout, lds, vec: 1, regs, late_first: false };
    let channel = src.part.absolute(b, own);
    let masked = depth != src.part.split.span();
    super::Loader::Patches(Patches { common, buf: src.buf, offsets, soff, channel, depth, apart, step, masked, sign })
}

impl Patches {
    pub(super) fn issue(&mut self, b: &mut Builder, k: Part) {
        for (regs, pass) in self.common.regs.chunks(ROWS * COLUMNS).zip(0..) {
            let ahead = pass * self.apart;
            let inside = self.masked.then(|| {
                let at = b.add(self.channel, k);
                let at = if ahead > 0 { b.add(at, ahead) } else { at };
                b.op(Gen::CmpGt.of(Type::U32), &[self.depth.into(), at.into()])
            });
            self.common.note(b, pass * (ROWS * COLUMNS) as u32);
            for (reg, offset) in regs.iter().zip(&self.offsets) {
                let voff = match inside {
                    Some(mask) => b.guard(mask, *offset),
                    None => *offset,
                };
                b.load_into(*reg, self.buf, voff, self.soff, ahead * self.step);
            }
        }
        let next = self.common.depth * self.step;
        b.emit(Gen::Add.of(Type::I32), &[self.soff.into()], &[self.soff.into(), next.into()]);
    }

    pub(super) fn commit(&self, b: &mut Builder, base: u32) {
        let c = &self.common;
        let sum = |b: &mut Builder, x: Part, y: Part| b.generic(Gen::Add.of(Type::F32), &[x.into(), y.into()]);
        let less = |b: &mut Builder, x: Part, y: Part| b.generic(Gen::Sub.of(Type::F32), &[x.into(), y.into()]);
        for (pass, regs) in c.regs.chunks(ROWS * COLUMNS).enumerate() {
            let (mut first, mut second) = (Vec::new(), Vec::new());
            for i in 0..COLUMNS {
                let [p, q, r] = [0, 1, 2].map(|row| regs[row * COLUMNS + i]);
                first.push(less(b, p, r));
                second.push(b.fma(self.sign, r, q));
            }
            for (row, x) in [first, second].into_iter().enumerate() {
                let all = [less(b, x[0], x[2]), sum(b, x[1], x[2]), less(b, x[2], x[1]), less(b, x[1], x[3])];
                for (i, element) in all.into_iter().enumerate() {
                    let (k, column) = c.share.element(0, ((pass * 2 + row) * COLUMNS + i) as u32);
                    b.element(k, column);
                    b.lds_write(c.lds, element, base + c.layout.at(k, column));
                }
            }
        }
    }
}
