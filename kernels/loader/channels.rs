//! Columns of a convolution's input whose channels are neighbours in memory: lines along the depth, which runs over the taps of windows and, of
//! each, over the channels.
//!
//! A tile of the depth is of one tap, so that all loads of a tile go as far from their columns' corners, and are inside of the input or not by one
//! coordinate of the window: scalar registers walk from tap to tap, a few instructions a tile. A load takes neighbouring channels. Taps are followed
//! by channels that are not there, so that they end between tiles; lanes that would load these do not.

use super::deep::share;
use super::{Common, DepthPart, Layout, Loader, deep_load};
use crate::kernels::fragment;
use crate::kernels::tile::Tile;
use crate::mir::{Buffer, Builder, Gen, Part, Type};

/// Bits of a mask that no coordinate of a window has: of channels that end with the last tile of a tap, and of what is behind the last tap.
const ENDS: u32 = 30;
const NEVER: u32 = 31;

/// See [`Loader::Channels`](super::Loader::Channels).
pub(in super::super) struct Channels {
    pub(super) common: Common,
    src: ChannelSource,
    /// Byte offset of each load's column and channel, and the coordinates of the window that are inside for it.
    columns: Vec<(Part, Option<Part>)>,
    /// Loads of a column.
    loads: u32,
    /// Where the next tile is: its scalar byte offset, its first channel, and its tap.
    offset: Part,
    channel: Part,
    taps: Vec<Part>,
}

/// The window of such an input.
#[derive(Clone)]
pub(in super::super) struct Taps {
    /// Extents, and bytes from one tap to the next in each dimension.
    pub kernel: Vec<u32>,
    pub steps: Vec<u32>,
    /// First bit of each dimension's coordinates.
    pub bits: Vec<u32>,
    /// Channels, and what these take of the depth: whole tiles.
    pub channels: u32,
    pub padded: u32,
}

/// What such a loader is made from.
pub(in super::super) struct ChannelSource {
    /// The input.
    pub buf: Buffer,
    /// Scalar byte offset.
    pub scalar: u32,
    /// Channels of a load at most.
    pub together: u32,
    /// What bytes, and the zeros outside of the input, are combined with by exclusive or.
    pub flip: u8,
    pub taps: Taps,
    /// The part of the depth that the workgroup sums.
    pub part: DepthPart,
    /// Some loads are outside of the input, or behind the depth.
    pub masked: bool,
}

/// A loader for so many columns of such an input. `column` gives, for a column of all (a vector), the byte offset of its corner, and of which coordinates of
/// the window are inside of the input a bit each, where loads are masked.
pub(in super::super) fn channels(
    b: &mut Builder,
    src: ChannelSource,
    tile: &Tile,
    (width, first): (u32, Part),
    item: Part,
    mut column: impl FnMut(&mut Builder, Part) -> (Part, Option<Part>),
) -> Loader {
    let size = tile.types.stored_bytes();
    let (own, vec) = deep_load(tile, tile.k * width / tile.threads(), src.together, tile.k);
    let share = share(tile, width, own);
    let regs = Common::registers(b, tile, width * tile.k / tile.threads() / vec, vec);
    let k_first = fragment::coordinate(b, &share, item, fragment::row, 1, None);
    let column_first = fragment::coordinate(b, &share, item, fragment::col, 1, Some(first));
    let common = Common::new(b, tile, share, Layout::deep(tile, width), (vec, regs), item);
    let loads = own / vec;
    let bytes = b.mul(k_first, size);
    // Of the last tile of a tap, channels that are there.
    let there = src.taps.channels + tile.k - src.taps.padded;
    let mut columns = Vec::new();
    for load in 0..common.regs.len() as u32 {
        let at = if common.column(load) > 0 { b.add(column_first, common.column(load)) } else { column_first };
        let (corner, inside) = column(b, at);
        let own = b.add(corner, bytes);
        let own = if common.k(load) > 0 { b.add(own, common.k(load) * size) } else { own };
        let inside = inside.filter(|_| src.masked).map(|inside| {
            if there == tile.k {
                return inside;
            }
            let k = b.add(k_first, common.k(load));
            let is_there = b.op(Gen::CmpGt.of(Type::U32), &[there.into(), k.into()]);
            let (bit, none) = (b.to_vector(1u32 << ENDS), b.to_vector(0u32));
            let bit = b.select(is_there, bit, none);
            b.generic(Gen::Or.of(Type::U32), &[inside.into(), bit.into()])
        });
        columns.push((own, inside));
    }
    let (offset, channel) = (b.s(1), b.s(1));
    let taps: Vec<Part> = src.taps.kernel.iter().map(|_| b.s(1)).collect();
    let loader = Channels { common, src, columns, loads, offset, channel, taps };
    loader.begin(b);
    Loader::Channels(loader)
}

impl Channels {
    /// Goes to the first tile.
    fn begin(&self, b: &mut Builder) {
        let t = &self.src.taps;
        let size = self.common.types.stored_bytes();
        let Some(first) = self.src.part.first else {
            b.copy_into(self.offset, self.src.scalar);
            b.copy_into(self.channel, 0u32);
            self.taps.iter().for_each(|tap| b.copy_into(*tap, 0u32));
            return;
        };
        let (mut rest, channel) = b.divmod(first, t.padded);
        b.copy_into(self.channel, channel);
        let mut offset = b.mad(channel, size, self.src.scalar);
        for d in (0..t.kernel.len()).rev() {
            let at = if d > 0 {
                let (above, at) = b.divmod(rest, t.kernel[d]);
                rest = above;
                at
            } else {
                b.generic(Gen::Min.of(Type::U32), &[rest.into(), t.kernel[0].into()])
            };
            b.copy_into(self.taps[d], at);
            offset = b.mad(at, t.steps[d], offset);
        }
        b.copy_into(self.offset, offset);
    }

    /// Goes to the next tile.
    fn advance(&self, b: &mut Builder) {
        let t = &self.src.taps;
        let depth = self.common.depth;
        let size = self.common.types.stored_bytes();
        // A counter that has reached its end begins again; 1 where it has.
        let wrapped = |b: &mut Builder, counter: Part, end: u32| {
            let left = b.sub(end, counter);
            let goes_on = b.generic(Gen::Min.of(Type::U32), &[left.into(), 1u32.into()]);
            b.emit(Gen::Mul.of(Type::I32), &[counter.into()], &[counter.into(), goes_on.into()]);
            b.sub(1u32, goes_on)
        };
        let moved = |b: &mut Builder, part: Part, by: Part, step: u32| {
            let far = if step == 1 { by } else { b.mul(by, step) };
            b.emit(Gen::Add.of(Type::I32), &[part.into()], &[part.into(), far.into()]);
        };
        let further = depth * size;
        b.emit(Gen::Add.of(Type::I32), &[self.offset.into()], &[self.offset.into(), further.into()]);
        b.emit(Gen::Add.of(Type::I32), &[self.channel.into()], &[self.channel.into(), depth.into()]);
        let mut carry = wrapped(b, self.channel, t.padded);
        // What has been gone since the counter began.
        let mut gone = t.padded * size;
        for d in (0..t.kernel.len()).rev() {
            if d > 0 && t.kernel[d] == 1 {
                continue;
            }
            moved(b, self.taps[d], carry, 1);
            moved(b, self.offset, carry, t.steps[d].wrapping_sub(gone));
            if d > 0 {
                carry = wrapped(b, self.taps[d], t.kernel[d]);
                gone = t.kernel[d] * t.steps[d];
            } else {
                let tap = self.taps[0];
                b.emit(Gen::Min.of(Type::U32), &[tap.into()], &[tap.into(), t.kernel[0].into()]);
            }
        }
    }

    /// The bits that a column has to have for a load of the next tile (scalar).
    fn mask(&self, b: &mut Builder) -> Part {
        let t = &self.src.taps;
        // 1 where a counter is at an end.
        let reached = |b: &mut Builder, counter: Part, end: u32| {
            let left = b.sub(end, counter);
            let before = b.generic(Gen::Min.of(Type::U32), &[left.into(), 1u32.into()]);
            b.sub(1u32, before)
        };
        let ended = reached(b, self.taps[0], t.kernel[0]);
        let mut mask = b.shl(ended, NEVER);
        if t.padded != t.channels {
            let last = reached(b, self.channel, t.padded - self.common.depth);
            let ends = b.shl(last, ENDS);
            mask = b.generic(Gen::Or.of(Type::U32), &[mask.into(), ends.into()]);
        }
        for (tap, first) in self.taps.iter().zip(&t.bits) {
            let at = b.add(*tap, *first);
            let own = b.shl(1u32, at);
            mask = b.generic(Gen::Or.of(Type::U32), &[mask.into(), own.into()]);
        }
        mask
    }

    pub(super) fn issue(&mut self, b: &mut Builder) {
        let c = &self.common;
        let mask = self.src.masked.then(|| self.mask(b));
        for (load, (column, inside)) in self.columns.iter().enumerate() {
            let own = match (mask, inside) {
                (Some(mask), Some(inside)) => {
                    let seen = b.and(*inside, mask);
                    let all = b.op(Gen::CmpEq.of(Type::U32), &[mask.into(), seen.into()]);
                    b.guard(all, *column)
                }
                _ => *column,
            };
            c.note(b, load as u32);
            c.load(b, c.regs[load], c.vec, self.src.buf, (own, self.offset, 0));
        }
        self.advance(b);
    }

    pub(super) fn commit(&self, b: &mut Builder, base: u32) {
        let flip = u32::from(self.src.flip) * 0x0101_0101;
        self.common.write_lines(b, base, self.loads, |b, _, regs| {
            let words = regs.iter().flat_map(|reg| (0..reg.len).map(|i| reg.dword(i)));
            for word in words.filter(|_| flip != 0) {
                b.emit(Gen::Xor.of(Type::B32), &[word.into()], &[word.into(), flip.into()]);
            }
        });
    }
}
