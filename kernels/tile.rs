//! Tiles of the matrix kernels: sizes, and the ways a tile of an operand comes from global memory to LDS.
//!
//! An operand tile is `depth` (along k) by `width` (along m or n). In LDS row k holds `width` values, `pitch` apart
//! from the next row's. Each workitem first issues its global loads into registers, a whole tile ahead of their use,
//! and later commits them to LDS. What lies beyond the ends of m or n may be anything: those products are never
//! stored. Beyond the end of k both operands must read as zero.

use crate::mir::{Buffer, Builder, Gen, Opnd, Part, Type};
use barewave_isa::matrix::Fragment;
use barewave_isa::op;

/// Sizes of one workgroup's work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Tile {
    /// Rows and columns of the result per workgroup.
    pub m: u32,
    /// See `m`.
    pub n: u32,
    /// Depth of an LDS tile.
    pub k: u32,
    /// Rows and columns per workitem.
    pub tm: u32,
    /// See `tm`.
    pub tn: u32,
}

impl Tile {
    /// Workitems per workgroup.
    pub fn threads(&self) -> u32 {
        (self.m / self.tm) * (self.n / self.tn)
    }

    /// Rows and columns of a workitem's elements that lie together: LDS is read four at a time.
    pub fn chunk(&self) -> (u32, u32) {
        (self.tm.min(4), self.tn.min(4))
    }

    /// Where the elements of the tile are: which workitem has them in which of its registers.
    pub fn fragment(&self) -> Fragment {
        Fragment::blocked(self.threads(), self.n / self.tn, (self.tm, self.tn), self.chunk())
    }

    /// Tiles that were found to work well, largest first.
    const CANDIDATES: [Tile; 8] = [
        Tile { m: 128, n: 128, k: 8, tm: 8, tn: 8 },
        Tile { m: 128, n: 64, k: 8, tm: 8, tn: 8 },
        Tile { m: 64, n: 128, k: 8, tm: 8, tn: 8 },
        Tile { m: 64, n: 64, k: 8, tm: 8, tn: 8 },
        Tile { m: 32, n: 64, k: 8, tm: 4, tn: 8 },
        Tile { m: 64, n: 32, k: 8, tm: 8, tn: 4 },
        Tile { m: 32, n: 32, k: 8, tm: 4, tn: 4 },
        Tile { m: 16, n: 64, k: 8, tm: 2, tn: 8 },
    ];

    /// The tile that wastes least for an `m` by `n` result. `min_n` bounds the width from below (gathering loaders
    /// need whole wavefronts along n).
    pub fn choose(m: usize, n: usize, min_n: u32) -> Tile {
        let cost = |t: &Tile| {
            let tiles = m.div_ceil(t.m as usize) * n.div_ceil(t.n as usize);
            // Multiply-adds of a workgroup per k, and its reads from LDS and memory beside them.
            let per_item = (t.tm * t.tn) as f64 + 1.5 * (t.tm + t.tn) as f64;
            let load = 4.0 * (t.m + t.n) as f64 / t.threads() as f64;
            tiles as f64 * t.threads() as f64 * (per_item + load)
        };
        let fits = Self::CANDIDATES.iter().filter(|t| t.n >= min_n);
        *fits.min_by(|a, b| cost(a).total_cmp(&cost(b))).expect("some candidate is wide enough")
    }
}

/// How a tile of an operand is read.
pub(super) enum Loader {
    /// Neighbours along the width are neighbours in memory.
    Wide(Wide),
    /// Neighbours along k are neighbours in memory: transposed on the way to LDS.
    Deep(Deep),
    /// Columns of a convolution's input, gathered.
    Gather(Gather),
}

/// Address of an operand tile: element `(k, w)` is at `base + scalar + (k * k_stride + w * w_stride) * 4` bytes.
#[derive(Clone, Copy)]
pub(super) struct Source {
    /// Memory.
    pub buf: Buffer,
    /// Constant byte offset.
    pub base: u32,
    /// Scalar byte offset (batch, group); it may be absent.
    pub scalar: Option<Part>,
    /// First column of the workgroup's tile (scalar).
    pub first: Part,
    /// Element stride along k.
    pub k_stride: u32,
    /// Element stride along the width.
    pub w_stride: u32,
    /// Depth of the operand.
    pub depth: u32,
}

/// See [`Loader::Wide`].
pub(super) struct Wide {
    src: Source,
    width: u32,
    vec: u32,
    row: Part,
    voff: Part,
    soff: Part,
    rows_per_pass: u32,
    regs: Vec<Part>,
    lds: Part,
    pitch: u32,
    masked: bool,
}

/// See [`Loader::Deep`].
pub(super) struct Deep {
    src: Source,
    depth: u32,
    k_first: Part,
    voff: Part,
    soff: Part,
    cols_per_pass: u32,
    vec: u32,
    regs: Vec<Part>,
    lds: Part,
    pitch: u32,
    masked: bool,
}

/// See [`Loader::Gather`]. The depth runs over a table with a byte offset and a mask of window coordinates per k.
pub(super) struct Gather {
    /// The input.
    pub buf: Buffer,
    /// Scalar byte offset (image, group).
    pub scalar: Part,
    /// Byte offset per column of this workitem.
    pub columns: Vec<Part>,
    /// Window coordinates that lie inside the input, one bit each, per column; empty when all do.
    pub valid: Vec<Part>,
    width: u32,
    rows_per_pass: u32,
    depth: u32,
    entries: Part,
    next: Part,
    regs: Vec<Part>,
    lds: Part,
    pitch: u32,
}

impl Loader {
    /// Rows of `pitch` floats in LDS.
    pub fn pitch(&self) -> u32 {
        match self {
            Loader::Wide(l) => l.pitch,
            Loader::Deep(l) => l.pitch,
            Loader::Gather(l) => l.pitch,
        }
    }
    /// LDS write address of this workitem, relative to the tile.
    pub fn lds(&self) -> Part {
        match self {
            Loader::Wide(l) => l.lds,
            Loader::Deep(l) => l.lds,
            Loader::Gather(l) => l.lds,
        }
    }
    /// Issues the global loads of the tile that starts at depth `k` (scalar), which must be called for consecutive
    /// tiles from 0.
    pub fn issue(&mut self, b: &mut Builder, k: Part) {
        match self {
            Loader::Wide(l) => l.issue(b, k),
            Loader::Deep(l) => l.issue(b, k),
            Loader::Gather(l) => l.issue(b),
        }
    }
    /// Writes the loaded values to LDS at `base` (a constant) plus the write address.
    pub fn commit(&self, b: &mut Builder, base: u32) {
        match self {
            Loader::Wide(l) => {
                for (p, r) in l.regs.iter().enumerate() {
                    b.lds_write(l.lds, *r, base + p as u32 * l.rows_per_pass * l.pitch * 4);
                }
            }
            Loader::Deep(l) => {
                for (p, r) in l.regs.iter().enumerate() {
                    for i in 0..r.len {
                        let at = i as u32 * l.pitch + p as u32 * l.cols_per_pass;
                        b.lds_write(l.lds, r.dword(i), base + at * 4);
                    }
                }
            }
            Loader::Gather(l) => {
                let cols = l.columns.len();
                for (i, r) in l.regs.iter().enumerate() {
                    let (pass, col) = (i / cols, i % cols);
                    let at = pass as u32 * l.rows_per_pass * l.pitch + (col as u32) * (l.width / cols as u32);
                    b.lds_write(l.lds, *r, base + at * 4);
                }
            }
        }
    }
}

/// `scalar + base + bytes`, for the scalar offset of a load.
fn start_offset(b: &mut Builder, src: &Source) -> Part {
    match src.scalar {
        Some(s) => b.add(s, src.base),
        None => b.scalar(src.base),
    }
}

/// A loader for an operand with dense rows along the width or along k.
pub(super) fn dense(b: &mut Builder, src: Source, tile: &Tile, width: u32, item: Part) -> Loader {
    let threads = tile.threads();
    let masked = !src.depth.is_multiple_of(tile.k);
    if src.w_stride == 1 {
        let vec = (tile.k * width / threads).min(4);
        let per_row = width / vec;
        let row = b.udiv(item, per_row);
        let col = b.umod(item, per_row);
        let col = b.mul(col, vec);
        let pitch = width;
        let first = b.add(col, src.first);
        let words = b.mad(row, src.k_stride, first);
        let voff = b.shl(words, 2u32);
        let at = b.mad(row, pitch, col);
        let lds = b.shl(at, 2u32);
        let rows_per_pass = threads / per_row;
        let regs = (0..tile.k / rows_per_pass).map(|_| b.v(vec as u8)).collect();
        let soff = start_offset(b, &src);
        Loader::Wide(Wide { src, width, vec, row, voff, soff, rows_per_pass, regs, lds, pitch, masked })
    } else {
        assert_eq!(src.k_stride, 1, "a matrix has dense rows or dense columns");
        let vec = if src.depth.is_multiple_of(4) { (tile.k * width / threads).min(4) } else { 1 };
        let per_col = tile.k / vec;
        let k_first = b.umod(item, per_col);
        let k_first = b.mul(k_first, vec);
        let col = b.udiv(item, per_col);
        let pitch = width + 4;
        let first = b.add(col, src.first);
        let words = b.mad(first, src.w_stride, k_first);
        let voff = b.shl(words, 2u32);
        let at = b.mad(k_first, pitch, col);
        let lds = b.shl(at, 2u32);
        let cols_per_pass = threads / per_col;
        let regs = (0..width / cols_per_pass).map(|_| b.v(vec as u8)).collect();
        let soff = start_offset(b, &src);
        Loader::Deep(Deep { src, depth: tile.k, k_first, voff, soff, cols_per_pass, vec, regs, lds, pitch, masked })
    }
}

impl Wide {
    fn issue(&mut self, b: &mut Builder, k: Part) {
        let step = self.rows_per_pass * self.src.k_stride * 4;
        for p in 0..self.regs.len() as u32 {
            let voff = if self.masked {
                // Rows left in the operand; none when the tile lies behind its end.
                let row = if p > 0 { b.add(self.row, p * self.rows_per_pass) } else { self.row };
                let row = b.add(row, k);
                let inside = b.op(Gen::CmpGt.of(Type::U32), &[self.src.depth.into(), row.into()]);
                b.guard(inside, self.voff)
            } else {
                self.voff
            };
            b.load_into(self.regs[p as usize], self.src.buf, voff, self.soff, p * step);
        }
        let total = self.regs.len() as u32 * step;
        b.emit(Gen::Add.of(Type::I32), &[self.soff.into()], &[self.soff.into(), total.into()]);
        debug_assert_eq!(self.width % self.vec, 0);
    }
}

impl Deep {
    fn issue(&mut self, b: &mut Builder, k: Part) {
        let voff = if self.masked {
            let at = b.add(self.k_first, k);
            let inside = b.op(Gen::CmpGt.of(Type::U32), &[self.src.depth.into(), at.into()]);
            b.guard(inside, self.voff)
        } else {
            self.voff
        };
        let step = self.cols_per_pass * self.src.w_stride * 4;
        for p in 0..self.regs.len() as u32 {
            b.load_into(self.regs[p as usize], self.src.buf, voff, self.soff, p * step);
        }
        let total = self.depth * 4;
        b.emit(Gen::Add.of(Type::I32), &[self.soff.into()], &[self.soff.into(), total.into()]);
        debug_assert!(self.vec == 1 || self.src.depth.is_multiple_of(4));
    }
}

/// What a gathering loader is made from.
pub(super) struct GatherSource {
    pub buf: Buffer,
    pub scalar: Part,
    pub table: Part,
    pub columns: Vec<Part>,
    pub valid: Vec<Part>,
}

/// Columns that a workitem of a gathering loader handles, and rows that a pass covers.
pub(super) fn gather_shape(tile: &Tile) -> (u32, u32) {
    let threads = tile.threads();
    if threads >= tile.n { (1, threads / tile.n) } else { (tile.n / threads, 1) }
}

/// A loader for the columns of a convolution's input. The wavefront's row must be the same in all its lanes.
pub(super) fn gather(b: &mut Builder, src: GatherSource, tile: &Tile, item: Part) -> Loader {
    let (cols, rows_per_pass) = gather_shape(tile);
    assert_eq!(cols as usize, src.columns.len());
    let pitch = tile.n;
    let lds = b.shl(item, 2u32);
    let mut next = src.table;
    if rows_per_pass > 1 {
        let row = b.udiv(item, tile.n);
        let row = b.uniform(row);
        let bytes = b.shl(row, 3u32);
        let p = b.s(2);
        b.emit(op::S_ADD_U32, &[p.dword(0).into()], &[src.table.dword(0).into(), bytes.into()]);
        b.emit(op::S_ADDC_U32, &[p.dword(1).into()], &[src.table.dword(1).into(), 0u32.into()]);
        next = p;
    }
    let passes = tile.k / rows_per_pass;
    let entries = b.s((2 * passes) as u8);
    let regs = (0..passes * cols).map(|_| b.v(1)).collect();
    let g = Gather {
        buf: src.buf,
        scalar: src.scalar,
        columns: src.columns,
        valid: src.valid,
        width: tile.n,
        rows_per_pass,
        depth: tile.k,
        entries,
        next,
        regs,
        lds,
        pitch,
    };
    g.fetch(b);
    Loader::Gather(g)
}

impl Gather {
    /// Loads the table entries of the next tile.
    fn fetch(&self, b: &mut Builder) {
        let passes = self.entries.len as u32 / 2;
        if self.rows_per_pass == 1 {
            b.scalar_load_into(self.entries, self.next, 0);
        } else {
            for p in 0..passes {
                b.scalar_load_into(self.entries.slice(2 * p as u8, 2), self.next, p * self.rows_per_pass * 8);
            }
        }
        let (lo, hi): (Opnd, Opnd) = (self.next.dword(0).into(), self.next.dword(1).into());
        b.emit(op::S_ADD_U32, &[lo], &[lo, (self.depth * 8).into()]);
        b.emit(op::S_ADDC_U32, &[hi], &[hi, 0u32.into()]);
    }

    fn issue(&mut self, b: &mut Builder) {
        let cols = self.columns.len();
        for p in 0..self.regs.len() / cols {
            let offset = self.entries.dword(2 * p as u8);
            let taps = self.entries.dword(2 * p as u8 + 1);
            let soff = b.add(offset, self.scalar);
            for c in 0..cols {
                let voff = match self.valid.get(c) {
                    Some(&bits) => {
                        let seen = b.and(bits, taps);
                        let inside = b.op(Gen::CmpEq.of(Type::U32), &[taps.into(), seen.into()]);
                        b.guard(inside, self.columns[c])
                    }
                    None => self.columns[c],
                };
                b.load_into(self.regs[p * cols + c], self.buf, voff, soff, 0);
            }
        }
        self.fetch(b);
    }
}
