//! Lines along the width by transposing loads (gfx12): lanes load pieces of lines and get pieces of columns, as LDS has them.
//!
//! A load of a wave has 8 k of 32 columns. Of halves 8 lanes load 16 bytes of a line each, of 8 lines, and get a column each; of bytes 16
//! lanes load 8 bytes each, of 8 lines of two pieces, and get a column each. These loads know no bounds: lines and the depth are whole tiles,
//! and loads behind the last tile load that again.

use super::{Common, Loader, Source, first_element, start_offset};
use crate::kernels::fragment::{self, across, down};
use crate::kernels::tile::{Layout, Tile, WIDEST};
use crate::mir::{Buffer, Builder, Gen, Part, Type};
use barewave_isa::{Op, Target, op};

/// Columns of a load.
pub(in crate::kernels) const COLUMNS: u32 = 32;

/// k of a load.
const DEPTH: u32 = 8;

/// Bytes that the offset of a load reaches.
const REACH: u32 = 1 << 23;

/// See [`Loader::Transposed`].
pub(in crate::kernels) struct Transposed {
    pub(super) common: Common,
    /// Memory.
    buf: Buffer,
    load: Op,
    /// Address of the tile's first line, in bytes as a pair, and of the workitem's piece from there.
    base: Part,
    piece: Part,
    /// Bytes from a k to the next.
    line: u32,
    /// k at which the last tile begins.
    last: u32,
    /// Of each load, the bytes from the workitem's first.
    offsets: Vec<u32>,
    /// Registers of cells, of one load or of two.
    cells: Vec<Part>,
}

/// The load of elements of so many bytes, where the target has one whose lanes are known.
fn load_of(target: Target, bytes: u32) -> Option<Op> {
    let load = match bytes {
        1 => op::GLOBAL_LOAD_TR_B64,
        2 => op::GLOBAL_LOAD_TR_B128,
        _ => return None,
    };
    (target.info().wave_size == 32 && target.op(load).is_some()).then_some(load)
}

/// Elements of so many bytes whose lines lie so many elements apart can be loaded so.
pub(in crate::kernels) fn loads_transposed(target: Target, bytes: u32, apart: u32) -> bool {
    // Of the deepest tile that is considered.
    let most = DEPTH * WIDEST * apart.saturating_mul(bytes);
    load_of(target, bytes).is_some() && most < REACH
}

/// Waves across and down of what a pass of all waves loads.
fn waves(tile: &Tile, width: u32) -> (u32, u32) {
    let all = tile.threads() / COLUMNS;
    let wide = all.min(width / COLUMNS).max(1);
    (wide, all / wide)
}

/// A tile so wide consists of whole loads of all waves.
pub(in crate::kernels) fn is_of_whole_loads(tile: &Tile, width: u32) -> bool {
    let (wide, high) = waves(tile, width);
    width.is_power_of_two() && width.is_multiple_of(wide * COLUMNS) && tile.k.is_multiple_of(high * tile.run)
}

/// A loader of such an operand, of whole tiles.
pub(in crate::kernels) fn transposed(
    b: &mut Builder,
    src: Source,
    tile: &Tile,
    width: u32,
    item: Part,
) -> Option<Loader> {
    let (size, run) = (tile.types.stored_bytes(), tile.run);
    let load = load_of(b.target(), size)?;
    let (wide, high) = waves(tile, width);
    let share = fragment::runs(
        &[(COLUMNS, across(1)), (wide, across(COLUMNS)), (high, down(run))],
        &[
            (run, down(1)),
            (width / (wide * COLUMNS), across(wide * COLUMNS)),
            (tile.k / (high * run), down(high * run)),
        ],
        size * 8,
    );
    // What a lane loads: of halves a line each, of bytes four lines, then the other half of these, then the other lines.
    let mut piece = share.clone();
    let lanes = match size {
        1 => [down(1), down(2), across(8), down(4), across(16)],
        _ => [down(1), down(2), down(4), across(8), across(16)],
    };
    piece.lane[..lanes.len()].copy_from_slice(&lanes);
    let layout = Layout::deep(tile, width);
    let (_, at) = first_element(b, &src, &piece, item, size.trailing_zeros());
    let at = b.to_vector(at);
    let start = start_offset(b, &src, size);
    let base = b.s(2);
    b.emit(op::S_ADD_U32, &[base.dword(0).into()], &[src.buf.desc.dword(0).into(), start.into()]);
    b.emit(op::S_ADDC_U32, &[base.dword(1).into()], &[src.buf.desc.dword(1).into(), 0u32.into()]);
    let loads = width * tile.k / tile.threads() / DEPTH;
    let cells: Vec<Part> = (0..loads * DEPTH / run).map(|_| b.v((WIDEST / 4) as u8)).collect();
    let regs = (0..loads).map(|l| {
        let per_cell = run / DEPTH;
        let dwords = (WIDEST / 4 / per_cell) as u8;
        cells[(l / per_cell) as usize].slice((l % per_cell) as u8 * dwords, dwords)
    });
    let common = Common::new(b, tile, share, layout, (DEPTH, regs.collect()), item);
    let offsets = (0..loads).map(|l| (common.k(l) * src.k_stride + common.column(l)) * size).collect();
    let last = src.part.split.chunk - tile.k;
    let line = src.k_stride * size;
    Some(Loader::Transposed(Transposed { common, buf: src.buf, load, base, piece: at, line, last, offsets, cells }))
}

impl Transposed {
    pub(super) fn issue(&self, b: &mut Builder, k: Part) {
        let k = b.op(Gen::Min.of(Type::U32), &[k.into(), self.last.into()]);
        let ahead = b.mul(k, self.line);
        let base = b.s(2);
        b.emit(op::S_ADD_U32, &[base.dword(0).into()], &[self.base.dword(0).into(), ahead.into()]);
        b.emit(op::S_ADDC_U32, &[base.dword(1).into()], &[self.base.dword(1).into(), 0u32.into()]);
        for ((load, reg), offset) in (0..).zip(&self.common.regs).zip(&self.offsets) {
            self.common.note(b, load);
            b.load_from_into(self.load, *reg, self.buf, self.piece, base, *offset);
        }
    }

    pub(super) fn commit(&self, b: &mut Builder, base: u32) {
        let c = &self.common;
        let per_cell = c.run / DEPTH;
        for (cell, load) in self.cells.iter().zip((0..).step_by(per_cell as usize)) {
            let at = base + c.place(b, load, 0);
            b.lds_write(c.lds, *cell, at);
        }
    }
}
