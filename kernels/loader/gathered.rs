//! Columns of a convolution's input, gathered by a table: a byte offset and a mask of window coordinates for each k.
//!
//! The entries of the next tile are on their way to scalar registers while those of this one are used; what a mask has outside of the input
//! is not loaded and counts as zero.

use super::{Common, DepthPart, Layout, Loader, Tile, across, down, fragment};
use crate::mir::{Buffer, Builder, Gen, Opnd, Part, Type};
use barewave_isa::op;

/// So many elements of a wave of 32 lanes are looked up side by side, none of which waits for what an instruction has just written. Those of
/// more lanes take so long that it is there.
const TOGETHER: usize = 8;

/// See [`Loader::Gather`]. The depth runs over a table with a byte offset and a mask of window coordinates per k.
pub(in super::super) struct Gather {
    pub(super) common: Common,
    src: GatherSource,
    /// Registers of the table's entries, two dwords per k.
    entries: Vec<Part>,
    next: Part,
}

/// What a gathering loader is made from.
pub(in super::super) struct GatherSource {
    /// The input.
    pub buf: Buffer,
    /// Scalar byte offset (image, group).
    pub scalar: Part,
    /// The table: byte offset and mask of window coordinates per k.
    pub table: Part,
    /// The part of the depth that the workgroup sums.
    pub part: DepthPart,
    /// Byte offset per column of this workitem.
    pub columns: Vec<Part>,
    /// Window coordinates that lie inside the input, one bit each, per column; empty when all do.
    pub valid: Vec<Part>,
    /// What bytes, and the zeros outside of the input, are combined with by exclusive or.
    pub flip: u8,
}

/// Columns that a workitem of a gathering loader handles, and runs of k that a pass covers.
pub(in super::super) fn gather_shape(tile: &Tile) -> (u32, u32) {
    let threads = tile.threads();
    if threads >= tile.n { (1, threads / tile.n) } else { (tile.n / threads, 1) }
}

/// A loader for the columns of a convolution's input. The wavefront's row must be the same in all its lanes.
pub(in super::super) fn gather(b: &mut Builder, src: GatherSource, tile: &Tile, item: Part) -> Loader {
    let (cols, runs_per_pass) = gather_shape(tile);
    assert_eq!(cols as usize, src.columns.len());
    let (width, rows) = (tile.n / cols, runs_per_pass * tile.run);
    let share = fragment::runs(
        &[(width, across(1)), (runs_per_pass, down(tile.run))],
        &[(cols, across(width)), (tile.run, down(1)), (tile.k / rows, down(rows))],
        tile.types.stored_bytes() * 8,
    );
    let regs = Common::registers(b, tile, tile.n * tile.k / tile.threads(), 1);
    let common = Common::new(b, tile, share, Layout::dense(tile, tile.n), (1, regs), item);
    let mut next = src.table;
    // The table's entry of this wave's first k.
    let row = (runs_per_pass > 1).then(|| {
        let row = b.udiv(item, tile.n);
        let row = b.uniform(row);
        b.shl(row, 3 + tile.run.trailing_zeros())
    });
    let bytes = match (row, src.part.first) {
        (Some(row), Some(k)) => Some(b.mad(k, 8u32, row)),
        (None, Some(k)) => Some(b.shl(k, 3u32)),
        (row, None) => row,
    };
    if let Some(bytes) = bytes {
        let p = b.s(2);
        b.emit(op::S_ADD_U32, &[p.dword(0).into()], &[src.table.dword(0).into(), bytes.into()]);
        b.emit(op::S_ADDC_U32, &[p.dword(1).into()], &[src.table.dword(1).into(), 0u32.into()]);
        next = p;
    }
    let own = tile.k / runs_per_pass;
    let entries = (0..2 * own).step_by(16).map(|at| b.s((2 * own - at).min(16) as u8)).collect();
    let g = Gather { common, src, entries, next };
    g.fetch(b);
    Loader::Gather(g)
}

impl Gather {
    /// Loads the table entries of the next tile.
    fn fetch(&self, b: &mut Builder) {
        let (c, run) = (&self.common, self.common.run);
        let columns = self.src.columns.len() as u32;
        // The k of this workitem follow one another.
        let contiguous = c.k(run * columns) <= run;
        for (i, part) in self.entries.iter().enumerate() {
            let first = i as u32 * 16;
            // Entries of one pass lie together, those of the next `rows_per_pass` further.
            let piece = if contiguous { u32::from(part.len) } else { (2 * run).min(part.len.into()) };
            for at in (0..u32::from(part.len)).step_by(piece as usize) {
                let k = (first + at) / 2;
                b.scalar_load_into(part.slice(at as u8, piece as u8), self.next, c.k(k * columns) * 8);
            }
        }
        let (lo, hi): (Opnd, Opnd) = (self.next.dword(0).into(), self.next.dword(1).into());
        b.emit(op::S_ADD_U32, &[lo], &[lo, (c.depth * 8).into()]);
        b.emit(op::S_ADDC_U32, &[hi], &[hi, 0u32.into()]);
    }

    pub(super) fn issue(&mut self, b: &mut Builder) {
        let c = &self.common;
        let cols = self.src.columns.len();
        let entry = |i: usize| self.entries[i / 16].dword((i % 16) as u8);
        let together = if b.target().info().wave_size > 32 { 1 } else { TOGETHER };
        for some in (0..c.regs.len()).collect::<Vec<_>>().chunks(together) {
            let soffs: Vec<Part> = some.iter().map(|i| b.add(entry(2 * (i / cols)), self.src.scalar)).collect();
            let taps: Vec<(Part, Part)> = match self.src.valid.is_empty() {
                true => Vec::new(),
                false => some.iter().map(|i| (self.src.valid[i % cols], entry(2 * (i / cols) + 1))).collect(),
            };
            let seen: Vec<Part> = taps.iter().map(|(bits, taps)| b.and(*bits, *taps)).collect();
            let all_seen = taps.iter().zip(seen);
            let inside: Vec<Part> = all_seen
                .map(|((_, taps), seen)| b.op(Gen::CmpEq.of(Type::U32), &[(*taps).into(), seen.into()]))
                .collect();
            let mut columns: Vec<Part> = some.iter().map(|i| self.src.columns[i % cols]).collect();
            for (column, inside) in columns.iter_mut().zip(inside) {
                *column = b.guard(inside, *column);
            }
            for ((i, voff), soff) in some.iter().zip(columns).zip(soffs) {
                c.load(b, c.regs[*i], 1, self.src.buf, (voff, soff, 0));
            }
        }
        self.fetch(b);
    }

    pub(super) fn commit(&self, b: &mut Builder, base: u32) {
        let c = &self.common;
        let (cols, run) = (self.src.columns.len(), c.run as usize);
        for (pass, regs) in c.regs.chunks(run * cols).enumerate() {
            for col in 0..cols {
                let at = base + c.place((pass * run * cols + col) as u32, 0);
                let flip = u32::from(self.src.flip);
                if run == 1 {
                    if flip != 0 {
                        let raw = regs[col];
                        b.emit(Gen::Xor.of(Type::B32), &[raw.into()], &[raw.into(), flip.into()]);
                    }
                    c.write_row(b, regs[col], 1, at);
                } else {
                    let regs: Vec<Part> = (0..run).map(|r| regs[r * cols + col]).collect();
                    c.write_packed(b, &regs, (0, flip * 0x0101_0101), 1, at);
                }
            }
        }
    }
}
