//! The ways a tile of an operand comes from global memory to LDS.
//!
//! What each workitem moves of a tile is its *share*: a fragment whose rows are k. It says from where in memory the workitem loads
//! and, with the tile's layout, to where in LDS it writes.
//!
//! Each workitem first issues its global loads into registers, a whole tile ahead of their use, and later commits them to
//! LDS, in the type that is multiplied. What lies beyond the ends of m or n may be anything: those products are
//! never stored. Beyond the end of k both operands must read as zero.

mod beginning;
mod channels;
mod deep;
mod ends;
mod gathered;
mod packing;
mod patches;
mod straight;
pub(super) mod tally;
mod transposed;

use super::error::{Reason, Res};
use super::fragment::{self, across, down};
use super::rounds;
use super::split::DepthPart;
use super::tile::{Layout, Order, Tile, Types, WIDEST};
use super::values;
use crate::graph::expr::Expr;
use crate::graph::view::View;
use crate::mir::{Buffer, Builder, Gen, Part, Type};
use crate::tensor::DType;
use barewave_isa::matrix::{self, Fragment};
use barewave_isa::op;
use beginning::Beginning;
pub(super) use channels::{ChannelSource, Channels, Taps, channels};
use deep::Deep;
use ends::End;
pub(super) use gathered::{Depth, Gather, GatherSource, WORD, gather, gather_shape};
use packing::{Halves, TurnedBytes};
pub(super) use packing::{gather_word, turn_bytes};
pub(super) use patches::{PatchSource, Patches, patches};
pub(super) use straight::{Straight, is_of_whole_blocks, straight};
pub(super) use transposed::{COLUMNS, Transposed, is_of_whole_loads, loads_transposed, transposed};

/// How a tile of an operand is read.
pub(super) enum Loader {
    /// Neighbours along the width are neighbours in memory.
    Wide(Wide),
    /// The same, transposed on their way.
    Transposed(Transposed),
    /// Neighbours along k are neighbours in memory.
    Deep(Deep),
    /// Either, straight to LDS.
    Straight(Straight),
    /// Columns of a convolution's input, gathered.
    Gather(Gather),
    /// The same, whose channels are neighbours in memory.
    Channels(Channels),
    /// Patches of a convolution's input, transformed for Winograd's method.
    Patches(Patches),
}

/// Address of an operand tile: element `(k, w)` is at byte `base + scalar + (k * k_stride + w * w_stride) * size`. Of an operand in cells
/// that lie apart `k` is that of a cell's first element, behind which the others lie.
#[derive(Clone, Copy)]
pub(super) struct Source {
    /// Memory: a buffer of its own, whose size [`Source::end_buffer`] sets.
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
    /// k of the product for each of the operand's: a power of two.
    pub each: u32,
    /// The part of the operand's depth that the workgroup sums.
    pub part: DepthPart,
    /// Lines in the dense direction begin at multiples of four bytes.
    pub aligned: bool,
    /// Bytes of the operand's matrix, where tiles reach behind its columns: what lies behind them is another's.
    pub end: Option<u32>,
    /// Columns of an operand behind which no load begins: between its lines are others' elements, which the same step writes, or loads of narrow elements
    /// go where lines begin and end anywhere. Of these one that would reach behind them begins earlier, in the same line, and what it has in front is
    /// shifted out.
    pub columns: Option<u32>,
}

/// What [`Source::end`] is of a matrix that is two dimensions of a view, a depth and a width, in tiles so wide.
pub(super) fn end_of(view: &View, along: (usize, usize), size: usize, tile: u32) -> Option<u32> {
    let last = |d: usize| (view.dims[d] as i64 - 1) * view.strides[d];
    let bytes = (last(along.0) + last(along.1) + 1) * size as i64;
    (!view.dims[along.1].is_multiple_of(tile as usize)).then_some(bytes as u32)
}

/// Scalar offsets of a tile's loads, so that loads in a loop need no other instructions.
struct Starts {
    /// Of the first.
    first: Part,
    /// So many bytes further.
    further: Vec<(u32, Part)>,
    /// From tile to tile the workitem's offset moves instead of these: where other instructions run in the shadow of those that multiply
    /// one is less than one for each load; elsewhere the vector ALU has the tile to multiply.
    stay: bool,
}

/// Most offsets that are kept, of an operand: there are about a hundred scalar registers.
const MOST_STARTS: usize = 24;

/// Bytes that a load's own offset reaches.
const REACH: u32 = 4096;

impl Starts {
    /// For loads so many bytes from the first.
    fn new(b: &mut Builder, tile: &Tile, first: Part, bytes: impl Iterator<Item = u32>) -> Starts {
        let stay = rounds::in_shadow(b.target(), tile);
        let mut further: Vec<(u32, Part)> = Vec::new();
        // Where matrix instructions leave no room and do not queue loads come better one by one: those of a round's time. With one buffer
        // they are waited for soon.
        let wmma11 = b.target().info().wmma == Some(matrix::Layout::Wmma11);
        let alone = rounds::is_narrow(tile) && wmma11 && tile.buffers > 1;
        let most = if alone { 0 } else { MOST_STARTS };
        for far in bytes.map(|at| at / REACH * REACH).filter(|far| *far > 0) {
            if further.len() < most && !further.iter().any(|f| f.0 == far) {
                further.push((far, b.add(first, far)));
            }
        }
        Starts { first, further, stay }
    }

    /// Offset of a load, and the bytes that are left for its own.
    fn of(&self, bytes: u32) -> (Part, u32) {
        let near = bytes % REACH;
        match self.further.iter().find(|f| f.0 == bytes - near) {
            Some((_, start)) => (*start, near),
            None => (self.first, bytes),
        }
    }

    /// Goes so many bytes further, of a workitem that begins at `own`.
    fn advance(&self, b: &mut Builder, own: Part, step: u32) {
        let starts = [self.first].into_iter().chain(self.further.iter().map(|f| f.1));
        let moved: Vec<Part> = if self.stay { vec![own] } else { starts.collect() };
        for at in moved {
            b.emit(Gen::Add.of(Type::I32), &[at.into()], &[at.into(), step.into()]);
        }
    }
}

/// In groups of four, the last one of each group first: who waits for the last one of some loads waits once for all of them.
fn last_first<T: Copy>(all: &[T]) -> Vec<T> {
    all.chunks(4).flat_map(|some| some.iter().rev().copied()).collect()
}

/// The most elements of `bytes` bytes that a load in the dense direction may take, where lines have `line` of them and do or do not
/// begin at multiples of four bytes.
pub(super) fn most_together(bytes: u32, line: u32, aligned: bool) -> u32 {
    let cap = WIDEST / bytes;
    if bytes >= 4 {
        return cap;
    }
    // Whole words, where there is more than one element.
    let fits = |n: &u32| *n <= cap && line.is_multiple_of(*n) && *n * bytes >= 4;
    if aligned { [16, 8, 4, 2].into_iter().find(fits).unwrap_or(1) } else { 1 }
}

/// How many elements a load takes of a tile so wide with lines along the width, `together` at most. A width that is no power of two is
/// loaded like the next one: workitems that have nothing of a line do what those beside them do.
pub(super) fn wide_load(tile: &Tile, width: u32, together: u32) -> u32 {
    match Halves::of(tile, width, together) {
        Some(halves) => halves.vec,
        // Four as what is converted, or as many as lie in LDS as they come.
        None => (wide_own(tile, width) / tile.run).min(if tile.cell() < 4 { 8 } else { 4 }).min(together),
    }
}

/// LDS stores what such a tile loads along the width by halves of words.
pub(super) fn is_stored_by_halves(tile: &Tile, width: u32, together: u32) -> bool {
    Halves::of(tile, width, together).is_some()
}

/// Elements that a workitem loads of such a tile.
pub(super) fn wide_own(tile: &Tile, width: u32) -> u32 {
    tile.k * width.next_power_of_two() / tile.threads()
}

/// Of rows of `per_row` workitems, a power of two, the one whose work a workitem does where the first `has` of each have work: its own, or
/// the last one's.
fn within(b: &mut Builder, item: Part, per_row: u32, has: u32) -> Part {
    if has == per_row {
        return item;
    }
    let at = b.and(item, per_row - 1);
    let row = b.sub(item, at);
    let at = b.op(Gen::Min.of(Type::U32), &[at.into(), (has - 1).into()]);
    b.add(row, at)
}

/// The same with lines along k, of an operand of some depth: the elements that lie together, and those of a load.
pub(super) fn deep_load(tile: &Tile, own: u32, together: u32, depth: u32) -> (u32, u32) {
    if tile.run > 1 {
        let own = own.min(WIDEST / tile.types.stored_bytes()).max(tile.run);
        // Elements of whole words come so many at a time that lines end between loads.
        let whole = if tile.types.stored_bytes() < 4 { own } else { 1 << depth.trailing_zeros().min(own.ilog2()) };
        return (own, own.min(together).min(whole));
    }
    let vec = if depth.is_multiple_of(4) { own.min(4).min(together) } else { 1 };
    (vec, vec)
}

/// Lines along the depth that so many loads of each workitem ask for, one after the other, for a tile so wide.
pub(super) fn lines_asked(tile: &Tile, width: u32, loads: u32) -> u32 {
    let own = deep_load(tile, tile.k * width / tile.threads(), u32::MAX, tile.k).0;
    loads * tile.threads() * own / tile.k
}

/// What all loaders have.
struct Common {
    types: Types,
    run: u32,
    /// Depth of the tile.
    depth: u32,
    /// What a workitem moves. Its positions run over the elements of a load, then over the loads.
    share: Fragment,
    layout: Layout,
    /// LDS write address of this workitem, relative to the tile.
    lds: Part,
    /// Elements of a load.
    vec: u32,
    /// Loaded registers.
    regs: Vec<Part>,
    /// What was loaded last of what is written together is taken first: one wait for all of it.
    late_first: bool,
}

impl Common {
    fn new(
        b: &mut Builder,
        tile: &Tile,
        share: Fragment,
        layout: Layout,
        (vec, regs): (u32, Vec<Part>),
        item: Part,
    ) -> Common {
        let lds = layout.address(b, &share, item);
        let late_first = rounds::in_shadow(b.target(), tile);
        Common { types: tile.types, run: tile.run, depth: tile.k, share, layout, lds, vec, regs, late_first }
    }

    /// Registers of so many loads of `vec` elements.
    fn registers(b: &mut Builder, tile: &Tile, loads: u32, vec: u32) -> Vec<Part> {
        let dwords = (vec * tile.types.stored_bytes()).div_ceil(4) as u8;
        (0..loads).map(|_| b.v(dwords)).collect()
    }

    /// k of the elements of a load, from the workitem's first.
    fn k(&self, load: u32) -> u32 {
        self.share.element(0, load * self.vec).0
    }

    /// Column of the elements of a load, from the workitem's first.
    fn column(&self, load: u32) -> u32 {
        self.share.element(0, load * self.vec).1
    }

    /// What follows is of element `e` of a load, as listings say it. Gives its byte in LDS, from the workitem's first.
    fn place(&self, b: &mut Builder, load: u32, e: u32) -> u32 {
        let (k, column) = self.share.element(0, load * self.vec + e);
        b.element(k, column);
        self.layout.at(k, column)
    }

    /// What follows is of a load, as listings say it.
    fn note(&self, b: &mut Builder, load: u32) {
        b.element(self.k(load), self.column(load));
    }

    /// Bytes of a cell in LDS.
    fn cell(&self) -> u32 {
        self.run * self.types.bytes()
    }

    /// Loads elements that lie together into a register.
    fn load(&self, b: &mut Builder, reg: Part, together: u32, buf: Buffer, (voff, soff, imm): (Part, Part, u32)) {
        match together * self.types.stored_bytes() {
            1 => b.load_op_into(op::BUFFER_LOAD_UBYTE, reg, buf, voff, soff, imm),
            2 => b.load_op_into(op::BUFFER_LOAD_USHORT, reg, buf, voff, soff, imm),
            _ => b.load_into(reg, buf, voff, soff, imm),
        }
    }

    /// Elements `from..from + count` of a loaded register in the type that is multiplied, as one tuple.
    fn converted(&self, b: &mut Builder, raw: Part, from: u32, count: u32) -> Part {
        let (t, dwords) = (self.types, u32::from(self.types.compute.dwords()));
        if t.storage.dwords() == t.compute.dwords() && t.storage.bits() >= 32 {
            return raw.slice((from * dwords) as u8, (count * dwords) as u8);
        }
        if count == 1 {
            return values::widened(b, t.storage, raw, from);
        }
        let out = b.v((count * dwords) as u8);
        for i in 0..count {
            let x = values::widened(b, t.storage, raw, from + i);
            b.copy_into(out.dword(i as u8), x);
        }
        out
    }

    /// Writes neighbouring cells of one k each, of those of halves one or an even number.
    fn write_row(&self, b: &mut Builder, raw: Part, count: u32, at: u32) {
        if self.is_of_halves() {
            match count {
                1 => b.lds_write_half(self.lds, raw, false, at),
                _ => b.lds_write(self.lds, raw.slice(0, (count / 2) as u8), at),
            }
            return;
        }
        let per_write = (WIDEST / self.types.bytes()).min(count);
        for from in (0..count).step_by(per_write as usize) {
            let x = self.converted(b, raw, from, per_write);
            b.lds_write(self.lds, x, at + from * self.cell());
        }
    }

    /// Writes `count` neighbouring cells of narrow elements: elements `e..e + count` of each of these registers, their words
    /// combined with `flip` by exclusive or.
    fn write_packed(&self, b: &mut Builder, regs: &[Part], (e, flip): (u32, u32), count: u32, at: u32) {
        let cells = b.v((count * self.cell() / 4) as u8);
        for c in 0..count {
            let per_word = 4 / self.types.stored_bytes();
            let (word, place) = (((e + c) / per_word) as u8, (e + c) % per_word);
            let words = regs.chunks(per_word as usize).enumerate();
            let words: Vec<(usize, &[Part])> = if self.late_first { words.rev().collect() } else { words.collect() };
            for (i, some) in words {
                let dst = cells.dword((c * self.cell() / 4) as u8 + i as u8);
                let some: Vec<Part> = some.iter().map(|r| r.dword(word)).collect();
                gather_word(b, dst, &some, place);
                if flip != 0 {
                    b.emit(Gen::Xor.of(Type::B32), &[dst.into()], &[dst.into(), flip.into()]);
                }
            }
        }
        b.lds_write(self.lds, cells, at);
    }
}

/// See [`Loader::Wide`].
pub(super) struct Wide {
    /// What is made of the elements first.
    beginning: Option<Beginning>,
    common: Common,
    /// Bytes are turned in the registers that they are loaded to.
    turned: Option<TurnedBytes>,
    /// LDS stores them half by half.
    halves: Option<Halves>,
    src: Source,
    /// First k of this workitem.
    k_first: Part,
    /// Offset of its first element in the tile that is loaded next.
    voff: Part,
    starts: Starts,
    /// Bits in front of the workitem's elements of a load.
    in_front: Option<Part>,
    end: End,
    /// Where tiles follow each other along the width.
    sideways: Option<Sideways>,
}

/// Tiles follow each other along the width.
#[derive(Clone, Copy)]
struct Sideways {
    /// Column of the workitem's first element in the first tile.
    column: Part,
    /// Columns in all.
    width: u32,
    /// Bytes from a tile to the next.
    step: u32,
}

impl Sideways {
    /// Offset of a load whose columns begin `ahead` of the workitem's first, in the tile that begins at `tile`: out of bounds behind
    /// the last column.
    fn guarded(&self, b: &mut Builder, voff: Part, ahead: u32, tile: Part) -> Part {
        let at = b.add(self.column, tile);
        let at = if ahead > 0 { b.add(at, ahead) } else { at };
        let inside = b.op(Gen::CmpGt.of(Type::U32), &[self.width.into(), at.into()]);
        b.guard(inside, voff)
    }
}

impl Loader {
    fn common(&self) -> &Common {
        match self {
            Loader::Wide(l) => &l.common,
            Loader::Transposed(l) => &l.common,
            Loader::Deep(l) => &l.common,
            Loader::Straight(l) => &l.common,
            Loader::Gather(l) => &l.common,
            Loader::Channels(l) => &l.common,
            Loader::Patches(l) => &l.common,
        }
    }
    /// LDS stores halves of words.
    pub fn is_stored_by_halves(&self) -> bool {
        matches!(self, Loader::Wide(l) if l.halves.is_some())
    }
    /// How the tile lies in LDS.
    pub fn layout(&self) -> Layout {
        self.common().layout
    }
    /// LDS write address of this workitem, relative to the tile.
    pub fn lds(&self) -> Part {
        self.common().lds
    }
    /// From here on tiles are `base` bytes further in LDS, where offsets of instructions need not reach them.
    pub fn go_to(&mut self, b: &mut Builder, base: u32) {
        let common = match self {
            Loader::Wide(l) => &mut l.common,
            Loader::Transposed(l) => &mut l.common,
            Loader::Deep(l) => &mut l.common,
            Loader::Straight(l) => &mut l.common,
            Loader::Gather(l) => &mut l.common,
            Loader::Channels(l) => &mut l.common,
            Loader::Patches(l) => &mut l.common,
        };
        common.lds = b.add(common.lds, base);
    }
    /// From here on tiles of `tile` columns follow each other along the width, of `width` columns in all: what
    /// [`Loader::issue`] is told is a tile's first column. Only dense loaders go that way.
    pub fn go_sideways(&mut self, b: &mut Builder, tile: u32, width: u32, item: Part) {
        let (common, src, way) = match self {
            Loader::Wide(l) => (&l.common, &l.src, &mut l.sideways),
            Loader::Deep(l) => (&l.common, &l.src, &mut l.sideways),
            _ => return,
        };
        let column = fragment::coordinate(b, &common.share, item, fragment::col, 1, None);
        *way = Some(Sideways { column, width, step: tile * src.w_stride * common.types.stored_bytes() });
    }
    /// From here on `expr` is made of each element, of the type: of it, and of operands (their numbers in the expression, buffers, and
    /// where in them that of k 0 is) that have an element of that type for each k. Only loaders along the width do that.
    pub fn begin_with(
        &mut self,
        b: &mut Builder,
        (expr, dtype): (&Expr, DType),
        operands: Vec<(u32, Buffer, u32)>,
    ) -> Res<()> {
        let Loader::Wide(l) = self else { return Err(Reason::Malformed("a beginning for lines along k")) };
        if values::stored(dtype) != l.common.types.storage || !matches!(dtype.size(), 2 | 4) {
            return Err(Reason::Malformed("a beginning for elements of another type"));
        }
        let mut rows: Vec<u32> = (0..l.common.regs.len() as u32).map(|load| l.common.k(load)).collect();
        rows.sort_unstable();
        rows.dedup();
        let rows = rows.into_iter().map(|r| (r, operands.iter().map(|_| b.v(1)).collect())).collect();
        let first = b.shl(l.k_first, dtype.size().trailing_zeros());
        l.beginning = Some(Beginning { expr: expr.clone(), dtype, operands, first, rows });
        Ok(())
    }
    /// Changes what was loaded, where [`Loader::begin_with`] said so, and asks for where the next tile is; before [`Loader::commit`].
    pub fn prepare(&self, b: &mut Builder) -> Res<()> {
        match self {
            Loader::Gather(l) => l.prepare(b),
            Loader::Wide(Wide { beginning: Some(beginning), common, .. }) => return beginning.apply(b, common),
            _ => {}
        }
        Ok(())
    }
    /// Issues the global loads of the tile that starts at depth `k` (scalar), which must be called for consecutive
    /// tiles from 0.
    pub fn issue(&mut self, b: &mut Builder, k: Part) {
        match self {
            Loader::Wide(l) => l.issue(b, k),
            Loader::Transposed(l) => l.issue(b, k),
            Loader::Deep(l) => l.issue(b, k),
            Loader::Straight(l) => l.issue(b, k),
            Loader::Gather(l) => l.issue(b),
            Loader::Channels(l) => l.issue(b),
            Loader::Patches(l) => l.issue(b, k),
        }
    }
    /// Writes the loaded values to LDS at `base` (a constant) plus the write address. What goes straight there is where [`Loader::lds`] said.
    pub fn commit(&self, b: &mut Builder, base: u32) {
        match self {
            Loader::Wide(l) => l.commit(b, base),
            Loader::Transposed(l) => l.commit(b, base),
            Loader::Deep(l) => l.commit(b, base),
            Loader::Straight(_) => {}
            Loader::Gather(l) => l.commit(b, base),
            Loader::Channels(l) => l.commit(b, base),
            Loader::Patches(l) => l.commit(b, base),
        }
    }
}

/// `scalar + base`, for the scalar offset of a load.
pub(super) fn start_offset(b: &mut Builder, src: &Source, size: u32) -> Part {
    let start = match src.scalar {
        Some(s) => b.add(s, src.base),
        None => b.scalar(src.base),
    };
    match src.part.first {
        Some(k) => b.mad(k, src.k_stride * size, start),
        None => start,
    }
}

/// A loader for an operand with dense rows along the width or along k. `line` is the extent of the dense direction.
pub(super) fn dense(b: &mut Builder, src: Source, tile: &Tile, width: u32, line: usize, item: Part) -> Loader {
    let together = most_together(tile.types.stored_bytes(), line as u32, src.aligned);
    dense_together(b, src, tile, (width, Order::PLAIN), together, item)
}

/// The same with loads of so many elements at most. Memory takes any address, so lines may begin and end anywhere; but a dword that the
/// end of the operand cuts is lost: none that matters may reach there. Columns may lie in LDS in another order than in memory.
pub(super) fn dense_together(
    b: &mut Builder,
    mut src: Source,
    tile: &Tile,
    (width, order): (u32, Order),
    together: u32,
    item: Part,
) -> Loader {
    let (threads, size, run) = (tile.threads(), tile.types.stored_bytes(), tile.run);
    let scale = size.trailing_zeros();
    if src.w_stride == 1 {
        let vec = wide_load(tile, width, together);
        let halves = Halves::of(tile, width, together);
        let whole = width.next_power_of_two();
        let per_row = whole / vec;
        let item = within(b, item, per_row, width / vec);
        let rows = threads / per_row * run;
        let share = match halves {
            Some(halves) => halves.share(tile),
            None => fragment::runs(
                &[(per_row, across(vec)), (threads / per_row, down(run))],
                &[(vec, across(1)), (run, down(1)), (tile.k / rows, down(rows))],
                size * 8,
            ),
        };
        let layout = Layout::wide(tile, width, vec).ordered(order);
        let (k_first, mut voff) = first_element(b, &src, &share, item, scale);
        let mut in_front = None;
        if let Some(columns) = src.columns {
            let column = fragment::coordinate(b, &share, item, fragment::col, 1, Some(src.first));
            let inside = b.op(Gen::CmpGt.of(Type::U32), &[columns.into(), column.into()]);
            if size < 4 && !columns.is_multiple_of(vec) {
                assert!(vec * size <= 4 && columns >= vec, "{vec} elements of lines of {columns}");
                let end = b.add(column, vec);
                let end = b.op(Gen::Max.of(Type::U32), &[end.into(), columns.into()]);
                let behind = b.sub(end, columns);
                let bytes = b.shl(behind, scale);
                voff = b.sub(voff, bytes);
                in_front = Some(b.shl(bytes, 3u32));
            }
            voff = b.guard(inside, voff);
        }
        let loads = wide_own(tile, width) / vec;
        let turned = TurnedBytes::new(b, tile, loads, vec);
        let regs = turned.as_ref().map_or_else(|| Common::registers(b, tile, loads, vec), TurnedBytes::registers);
        let common = Common::new(b, tile, share, layout, (vec, regs), item);
        let end = End::of(b, &mut src, tile.k);
        let first = start_offset(b, &src, size);
        let loads = 0..common.regs.len() as u32;
        let starts = Starts::new(b, tile, first, loads.map(|l| common.k(l) * src.k_stride * size));
        Loader::Wide(Wide {
            beginning: None,
            common,
            turned,
            halves,
            src,
            k_first,
            voff,
            starts,
            in_front,
            end,
            sideways: None,
        })
    } else {
        deep::deep(b, src, tile, (width, order), together, item)
    }
}

/// k of a workitem's first element, and its byte from the operand's start.
pub(super) fn first_element(b: &mut Builder, src: &Source, share: &Fragment, item: Part, scale: u32) -> (Part, Part) {
    let k = fragment::coordinate(b, share, item, fragment::row, 1, None);
    let column = fragment::coordinate(b, share, item, fragment::col, 1, Some(src.first));
    let words = match (src.k_stride, src.w_stride) {
        (stride, 1) => b.mad(k, stride, column),
        (1, stride) => b.mad(column, stride, k),
        (each, stride) => {
            let k = b.mul(k, each);
            b.mad(column, stride, k)
        }
    };
    let k = src.part.absolute(b, k);
    (k, b.shl(words, scale))
}

impl Source {
    /// Lets the buffer end with the matrix, where that is one of several and tiles reach further.
    pub fn end_buffer(&self, b: &mut Builder) {
        if let (Some(at), Some(end)) = (self.scalar, self.end) {
            b.emit(Gen::Add.of(Type::I32), &[self.buf.desc.dword(2).into()], &[at.into(), (self.base + end).into()]);
        }
    }

    /// The element at a k and column, from the first on.
    fn element(&self, k: u32, column: u32) -> u32 {
        k * self.k_stride + column * self.w_stride
    }

    /// The operand's depth where the product's is `k`; what is never masked does not ask.
    fn depth_of(&self, b: &mut Builder, k: Part, masked: bool) -> Part {
        if self.each > 1 && masked { b.shr(k, self.each.trailing_zeros()) } else { k }
    }
}

impl Wide {
    fn issue(&mut self, b: &mut Builder, k: Part) {
        let c = &self.common;
        let k = self.src.depth_of(b, k, !matches!(self.end, End::Behind));
        self.end.reach(b, &self.src, k);
        let step = self.src.k_stride * c.types.stored_bytes();
        // A run is inside as a whole where the depth is a multiple of it.
        let whole_runs = self.src.depth.is_multiple_of(c.run);
        let own = match self.sideways {
            Some(s) => s.guarded(b, self.voff, 0, k),
            None => self.voff,
        };
        let mut voff = own;
        for (load, &reg) in c.regs.iter().enumerate() {
            let at = c.k(load as u32);
            if self.end.is_within() && (at.is_multiple_of(c.run) || !whole_runs) || self.end.is_overlapped() {
                // Rows left in the operand; none when the tile lies behind its end.
                let row = if at > 0 { b.add(self.k_first, at) } else { self.k_first };
                let row = if self.sideways.is_some() { row } else { b.add(row, k) };
                voff = self.end.guarded(b, own, self.src.depth, row);
            }
            let (soff, near) = self.starts.of(at * step);
            c.note(b, load as u32);
            c.load(b, reg, c.vec, self.src.buf, (voff, soff, near));
        }
        if let Some(beginning) = &self.beginning {
            beginning.issue(b, k);
        }
        let next = self.sideways.map_or(c.depth * step, |s| s.step);
        self.starts.advance(b, self.voff, next);
    }

    fn commit(&self, b: &mut Builder, base: u32) {
        let c = &self.common;
        let clear = |b: &mut Builder, reg: Part| {
            if let Some(bits) = self.in_front {
                b.emit(Gen::Shr.of(Type::U32), &[reg.into()], &[reg.into(), bits.into()]);
            }
        };
        if let Some(turned) = &self.turned {
            return turned.commit(b, c, base, clear);
        }
        if let Some(halves) = &self.halves {
            return halves.commit(b, c, base);
        }
        for (pass, regs) in c.regs.chunks(c.run as usize).enumerate() {
            regs.iter().for_each(|reg| clear(b, *reg));
            let load = pass as u32 * c.run;
            if c.run == 1 {
                let at = base + c.place(b, load, 0);
                c.write_row(b, regs[0], c.vec, at);
            } else {
                let together = (WIDEST / c.cell()).min(c.vec);
                for e in (0..c.vec).step_by(together as usize) {
                    let at = base + c.place(b, load, e);
                    c.write_packed(b, regs, (e, 0), together, at);
                }
            }
        }
    }
}
