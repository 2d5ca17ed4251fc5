//! Columns of a convolution's input, gathered: by a table of a byte offset and a mask of window coordinates for each k, or, where windows are
//! points inside of the input, with as many bytes from each k to the next. Bytes of lines of windows come in words of four, each by a load that
//! stays within its line of the input and is put in its place by what the column's selector says.
//!
//! The entries of the next tile come to scalar registers as soon as those of this one have been used; where a wait for them is one for LDS
//! too, they are asked for in front of what is written there, behind which all waves wait anyway. What a mask has outside of the input is not
//! loaded and counts as zero.

use super::{Common, DepthPart, Layout, Loader, REACH, Tile, across, down, fragment};
use crate::mir::{Buffer, Builder, Gen, Opnd, Part, Type};
use barewave_isa::op;

/// So many elements of a wave of 32 lanes are looked up side by side, none of which waits for what an instruction has just written. Those of
/// more lanes take so long that it is there.
const TOGETHER: usize = 8;

/// See [`Loader::Gather`].
pub(in super::super) struct Gather {
    pub(super) common: Common,
    src: GatherSource,
    along: Along,
    /// Columns of the workitem.
    cols: usize,
}

/// Where the elements of the workitem's next tile are along the depth.
enum Along {
    /// The table, registers of entries, two dwords per k, and the byte offset of those behind them.
    Table { table: Buffer, entries: Vec<Part>, next: Part },
    /// The byte offset of the first, which is at most the last tile's, and bytes from each k to the next.
    Even { first: Part, last: Part, step: u32 },
}

/// What places follow from along the depth.
#[derive(Clone, Copy)]
pub(in super::super) enum Depth {
    /// A table: byte offset and mask of window coordinates per k.
    Table(Buffer),
    /// So many bytes are from each k to the next, and all are inside of the input.
    Even(u32),
}

/// What a gathering loader is made from.
pub(in super::super) struct GatherSource {
    /// The input.
    pub buf: Buffer,
    /// Scalar byte offset (image, group).
    pub scalar: Part,
    /// What gives the places along the depth.
    pub depth: Depth,
    /// The part of the depth that the workgroup sums.
    pub part: DepthPart,
    /// Byte offset per column of this workitem; of words one for each of a line.
    pub columns: Vec<Part>,
    /// For each of these, where elements are bytes that come in words, which bytes of what is loaded are those of the word: a selector.
    pub selectors: Vec<Part>,
    /// Window coordinates that lie inside the input, one bit each, per column; empty when all do.
    pub valid: Vec<Part>,
    /// What bytes, and the zeros outside of the input, are combined with by exclusive or.
    pub flip: u8,
}

impl GatherSource {
    /// Elements of a load.
    fn together(&self) -> u32 {
        if self.selectors.is_empty() { 1 } else { WORD }
    }
}

/// Bytes of a word.
pub(in super::super) const WORD: u32 = 4;

/// Columns that a workitem of a gathering loader handles of a tile so wide, and runs of k that a pass covers.
pub(in super::super) fn gather_shape(tile: &Tile, width: u32) -> (u32, u32) {
    let threads = tile.threads();
    if threads >= width { (1, threads / width) } else { (width / threads, 1) }
}

/// A loader for so many columns of a convolution's input. The wavefront's row must be the same in all its lanes.
pub(in super::super) fn gather(b: &mut Builder, src: GatherSource, tile: &Tile, of: u32, item: Part) -> Loader {
    let (cols, runs_per_pass) = gather_shape(tile, of);
    let each = src.together();
    assert!(src.columns.len().is_multiple_of(cols as usize) && tile.run.is_multiple_of(each));
    let (width, rows) = (of / cols, runs_per_pass * tile.run);
    let share = fragment::runs(
        &[(width, across(1)), (runs_per_pass, down(tile.run))],
        &[(each, down(1)), (cols, across(width)), (tile.run / each, down(each)), (tile.k / rows, down(rows))],
        tile.types.stored_bytes() * 8,
    );
    let loads = of * tile.k / tile.threads() / each;
    let regs = if each > 1 { cells(b, tile, loads, cols) } else { Common::registers(b, tile, loads, 1) };
    let common = Common::new(b, tile, share, Layout::dense(tile, of), (each, regs), item);
    // This wave's first k.
    let row = (runs_per_pass > 1).then(|| {
        let row = b.udiv(item, of);
        let row = b.uniform(row);
        b.shl(row, tile.run.trailing_zeros())
    });
    let k = match (row, src.part.first) {
        (Some(row), Some(first)) => Some(b.add(first, row)),
        (row, first) => row.or(first),
    };
    let along = match src.depth {
        Depth::Table(table) => {
            let next = b.s(1);
            match k {
                Some(k) => {
                    let bytes = b.shl(k, ENTRY.trailing_zeros() - each.trailing_zeros());
                    b.copy_into(next, bytes);
                }
                None => b.copy_into(next, 0u32),
            }
            let own = tile.k / runs_per_pass / each;
            let entries = (0..2 * own).step_by(16).map(|at| b.s((2 * own - at).min(16) as u8)).collect();
            Along::Table { table, entries, next }
        }
        Depth::Even(step) => {
            let at = |b: &mut Builder, k: Option<Part>| k.map_or(src.scalar, |k| b.mad(k, step, src.scalar));
            let (first, last) = (b.s(1), at(b, row));
            let own = at(b, k);
            b.copy_into(first, own);
            let last = b.add(last, (src.part.split.span() - tile.k) * step);
            Along::Even { first, last, step }
        }
    };
    let g = Gather { common, src, along, cols: cols as usize };
    g.fetch(b);
    Loader::Gather(g)
}

/// Registers of loads of words: those of a cell side by side.
fn cells(b: &mut Builder, tile: &Tile, loads: u32, cols: u32) -> Vec<Part> {
    let words = tile.run / WORD;
    let all: Vec<Part> = (0..loads / words).map(|_| b.v(words as u8)).collect();
    let place = |load: u32| {
        let (col, word, pass) = (load % cols, load / cols % words, load / cols / words);
        all[(pass * cols + col) as usize].dword(word as u8)
    };
    (0..loads).map(place).collect()
}

/// Bytes of an entry of the table.
const ENTRY: u32 = 8;

impl Gather {
    /// Who waits for what LDS has answered waits for the table's entries too.
    fn shares_waits(b: &Builder) -> bool {
        let counters = |op| b.target().op(op).map_or(&[][..], |i| i.counters);
        counters(op::S_BUFFER_LOAD_DWORDX4).iter().any(|c| counters(op::DS_READ_B128).contains(c))
    }

    /// Loads the table entries of the next tile.
    fn fetch(&self, b: &mut Builder) {
        let Along::Table { table, entries, next } = &self.along else { return };
        let (c, each) = (&self.common, self.src.together());
        let (run, columns) = (self.common.run, self.cols as u32);
        // The k of this workitem follow one another.
        let contiguous = c.k(run / each * columns) <= run;
        for (i, part) in entries.iter().enumerate() {
            let first = i as u32 * 16;
            // Entries of one pass lie together, those of the next `rows_per_pass` further.
            let piece = if contiguous { u32::from(part.len) } else { (2 * run / each).min(part.len.into()) };
            for at in (0..u32::from(part.len)).step_by(piece as usize) {
                let bytes = c.k((first + at) / 2 * columns) / each * ENTRY;
                b.scalar_buffer_load_into(part.slice(at as u8, piece as u8), *table, *next, bytes);
            }
        }
        let next: Opnd = (*next).into();
        b.emit(Gen::Add.of(Type::I32), &[next], &[next, (c.depth / each * ENTRY).into()]);
    }

    /// Scalar offset of an element's load, and that of the load itself.
    fn offset(&self, b: &mut Builder, i: usize) -> (Part, u32) {
        let cols = self.cols;
        match &self.along {
            Along::Table { entries, .. } => (b.add(entry(entries, 2 * (i / cols)), self.src.scalar), 0),
            Along::Even { first, step, .. } => {
                let bytes = self.common.k((i / cols * cols) as u32) * step;
                let far = bytes / REACH * REACH;
                (if far > 0 { b.add(*first, far) } else { *first }, bytes - far)
            }
        }
    }

    /// Where a load's offset is among those of columns.
    fn column(&self, load: usize) -> usize {
        let (cols, words) = (self.cols, self.src.columns.len() / self.cols);
        let word = self.common.k((load - load % cols) as u32) / WORD;
        load % cols * words + word as usize % words
    }

    pub(super) fn issue(&mut self, b: &mut Builder) {
        let c = &self.common;
        let (cols, each) = (self.cols, self.src.together());
        let together = if b.target().info().wave_size > 32 { 1 } else { TOGETHER };
        for some in (0..c.regs.len()).collect::<Vec<_>>().chunks(together) {
            let soffs: Vec<(Part, u32)> = some.iter().map(|i| self.offset(b, *i)).collect();
            let taps: Vec<(Part, Part)> = match &self.along {
                Along::Table { entries, .. } if !self.src.valid.is_empty() => {
                    some.iter().map(|i| (self.src.valid[i % cols], entry(entries, 2 * (i / cols) + 1))).collect()
                }
                _ => Vec::new(),
            };
            let seen: Vec<Part> = taps.iter().map(|(bits, taps)| b.and(*bits, *taps)).collect();
            let all_seen = taps.iter().zip(seen);
            let inside: Vec<Part> = all_seen
                .map(|((_, taps), seen)| b.op(Gen::CmpEq.of(Type::U32), &[(*taps).into(), seen.into()]))
                .collect();
            let mut columns: Vec<Part> = some.iter().map(|i| self.src.columns[self.column(*i)]).collect();
            for (column, inside) in columns.iter_mut().zip(inside) {
                *column = b.guard(inside, *column);
            }
            for ((i, voff), (soff, own)) in some.iter().zip(columns).zip(soffs) {
                c.note(b, *i as u32);
                c.load(b, c.regs[*i], each, self.src.buf, (voff, soff, own));
            }
        }
        match self.along {
            Along::Table { .. } if Self::shares_waits(b) => {}
            Along::Table { .. } => self.fetch(b),
            Along::Even { first, last, step } => {
                let next = b.add(first, c.depth * step);
                // What is loaded behind the last tile nobody reads.
                b.emit(Gen::Min.of(Type::U32), &[first.into()], &[next.into(), last.into()]);
            }
        }
    }

    /// What is behind a wait for LDS that there is anyway, in front of [`Gather::commit`].
    pub(super) fn prepare(&self, b: &mut Builder) {
        if Self::shares_waits(b) {
            self.fetch(b);
        }
    }

    pub(super) fn commit(&self, b: &mut Builder, base: u32) {
        let c = &self.common;
        let (cols, run) = (self.cols, c.run as usize);
        if self.src.together() > 1 {
            return self.commit_words(b, base);
        }
        for (pass, regs) in c.regs.chunks(run * cols).enumerate() {
            for col in 0..cols {
                let at = base + c.place(b, (pass * run * cols + col) as u32, 0);
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

impl Gather {
    /// Puts the bytes of each word in their places, and writes whole cells.
    fn commit_words(&self, b: &mut Builder, base: u32) {
        let (c, cols) = (&self.common, self.cols);
        let words = (c.run / WORD) as usize;
        let flip = u32::from(self.src.flip) * 0x0101_0101;
        for (pass, regs) in c.regs.chunks(words * cols).enumerate() {
            for col in 0..cols {
                let loads = (0..words).map(|word| word * cols + col);
                for load in loads {
                    let (word, selector) = (regs[load], self.src.selectors[self.column(pass * words * cols + load)]);
                    b.emit(op::V_PERM_B32, &[word.into()], &[word.into(), word.into(), selector.into()]);
                    if flip != 0 {
                        b.emit(Gen::Xor.of(Type::B32), &[word.into()], &[word.into(), flip.into()]);
                    }
                }
                let cell = Part { len: words as u8, ..regs[col] };
                let at = base + c.place(b, (pass * words * cols + col) as u32, 0);
                b.lds_write(c.lds, cell, at);
            }
        }
    }
}

/// A dword of table entries.
fn entry(entries: &[Part], i: usize) -> Part {
    entries[i / 16].dword((i % 16) as u8)
}
