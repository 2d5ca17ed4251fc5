//! Loads that go from memory straight to LDS, without registers in between (gfx950).
//!
//! A load of a wave fills a block of LDS, lane after lane. So it is the lanes' places in memory that make the layout: each takes the 16 bytes
//! that belong where it writes ([`Layout::straight`](crate::kernels::tile::Layout::straight)), and all lanes together whole lines of the first-level cache. What lies behind the
//! end of the depth, or of the buffer, comes as zero, as it does to registers.

use super::{Common, End, Loader, Source, start_offset};
use crate::kernels::fragment;
use crate::kernels::tile::{Layout, Tile, WIDEST};
use crate::mir::{Builder, Gen, Part, Type};
use barewave_isa::matrix::Fragment;

/// Lines of a block.
const LINES: u32 = 8;

/// Bytes of each.
const LINE: u32 = 128;

/// See [`Loader::Straight`].
pub(in crate::kernels) struct Straight {
    /// Its write address is that of the wave's first block (scalar).
    pub(super) common: Common,
    src: Source,
    /// First k of this workitem.
    k_first: Part,
    /// Offset of its first 16 bytes in the tile that is loaded next.
    voff: Part,
    loads: Vec<Load>,
    end: End,
}

/// A load of a wave.
struct Load {
    /// k and column from the workitem's first.
    k: u32,
    column: u32,
    /// Scalar offset in memory.
    start: Part,
    /// Bytes in LDS from the wave's first block.
    ahead: u32,
}

/// Columns of a block, of lines along k or along the width.
fn columns(tile: &Tile, deep: bool) -> u32 {
    if deep { LINES } else { LINE / tile.types.stored_bytes() }
}

/// A tile so wide consists of whole blocks, of which all waves load as many; and so do the parts of it that so many waves read.
pub(in crate::kernels) fn is_of_whole_blocks(
    tile: &Tile,
    (width, readers): (u32, u32),
    deep: bool,
    waves: u32,
) -> bool {
    let (columns, high) = (columns(tile, deep), tile.k * tile.types.stored_bytes() / LINE);
    let lines = tile.k / LINES;
    let whole = tile.k * tile.types.stored_bytes() == high * LINE && width.is_multiple_of(readers * columns);
    whole && if deep { (width / columns).is_multiple_of(waves) } else { lines.is_multiple_of(waves) }
}

/// A loader of such an operand.
pub(in crate::kernels) fn straight(b: &mut Builder, mut src: Source, tile: &Tile, width: u32, item: Part) -> Loader {
    let (size, run, lanes) = (tile.types.stored_bytes(), tile.run, b.wave_size());
    let (waves, deep) = (tile.threads() / lanes, src.w_stride != 1);
    let layout = Layout::straight(tile, width, deep);
    let number = b.shr(item, lanes.trailing_zeros());
    let wave = b.uniform(number);
    // k and column of the workitem's first elements, and of each load from there.
    let across = width / columns(tile, deep);
    let (k, column, places): (Part, Part, Vec<(u32, u32)>) = if deep {
        let cell = b.shr(item, 3u32);
        let cell = b.and(cell, 7u32);
        let k = b.mul(cell, run);
        let line = b.and(item, LINES - 1);
        let column = b.mad(number, LINES, line);
        let own = across / waves;
        let panels = tile.k * size / LINE;
        let at = |l: u32| (l / own * (LINE / size), l % own * waves * LINES);
        (k, column, (0..own * panels).map(at).collect())
    } else {
        // Waves have lines in turn.
        let of_set = |set: u32| if size == 2 { set / 2 * 16 + set % 2 * 4 } else { set * LINES };
        let steps = |bits: std::ops::Range<u32>| bits.map(|bit| fragment::down(of_set(1 << bit)));
        let lane = match size {
            // Half a cell's columns, k within 4, the other four, cells.
            2 => [fragment::across(8), fragment::down(1), fragment::down(2), fragment::down(8)]
                .into_iter()
                .chain([fragment::across(16), fragment::across(32)]),
            _ => [fragment::down(1), fragment::down(2), fragment::down(4), fragment::across(16)]
                .into_iter()
                .chain([fragment::across(32), fragment::across(64)]),
        };
        let lane = lane.chain(steps(0..waves.trailing_zeros())).collect();
        let f = Fragment { lane, position: Vec::new(), bits: size * 8, spacing: size * 8 };
        let k = fragment::coordinate(b, &f, item, fragment::row, 1, None);
        let mut column = fragment::coordinate(b, &f, item, fragment::col, 1, None);
        if size == 1 {
            // Cells that have changed places.
            let other = b.shr(k, 4u32);
            let other = b.and(other, 1u32);
            let other = b.shl(other, 4u32);
            column = b.generic(Gen::Xor.of(Type::B32), &[column.into(), other.into()]);
        }
        let sets = tile.k / LINES / waves;
        let at = |l: u32| (of_set(l / across * waves), l % across * columns(tile, deep));
        (k, column, (0..sets * across).map(at).collect())
    };
    let column = b.add(column, src.first);
    let elements = if deep { b.mad(column, src.w_stride, k) } else { b.mad(k, src.k_stride, column) };
    let k_first = src.part.absolute(b, k);
    let voff = b.shl(elements, size.trailing_zeros());
    let voff = b.to_vector(voff);
    let end = End::of(b, &mut src, tile.k);
    let first = start_offset(b, &src, size);
    let loads = places.into_iter().map(|(k, column)| {
        let bytes = src.element(k, column) * size;
        let start = if bytes > 0 { b.add(first, bytes) } else { first };
        Load { k, column, start, ahead: layout.at(k, column) }
    });
    let loads = loads.collect();
    let own = if deep { layout.at(0, LINES) } else { layout.at(if size == 2 { 4 } else { LINES }, 0) };
    let lds = b.mul(wave, own);
    let share = Fragment { lane: Vec::new(), position: Vec::new(), bits: size * 8, spacing: size * 8 };
    let vec = WIDEST / size;
    let common =
        Common { types: tile.types, run, depth: tile.k, share, layout, lds, vec, regs: Vec::new(), late_first: false };
    Loader::Straight(Straight { common, src, k_first, voff, loads, end })
}

impl Straight {
    /// Loads the tile that begins at depth `k` (scalar).
    pub(super) fn issue(&self, b: &mut Builder, k: Part) {
        self.end.reach(b, &self.src, k);
        let c = &self.common;
        let mut guarded: Option<(u32, Part)> = None;
        for load in &self.loads {
            let voff = match guarded {
                _ if !self.end.is_within() => self.voff,
                Some((at, voff)) if at == load.k => voff,
                _ => {
                    let at = b.add(self.k_first, k);
                    let at = if load.k > 0 { b.add(at, load.k) } else { at };
                    let voff = self.end.guarded(b, self.voff, self.src.depth, at);
                    guarded = Some((load.k, voff));
                    voff
                }
            };
            b.element(load.k, load.column);
            b.load_to_lds(self.src.buf, voff, load.start, (c.lds, load.ahead));
        }
        let step = c.depth * self.src.k_stride * c.types.stored_bytes();
        b.emit(Gen::Add.of(Type::I32), &[self.voff.into()], &[self.voff.into(), step.into()]);
    }
}
