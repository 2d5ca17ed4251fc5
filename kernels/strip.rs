//! What waves that share a depth load of an operand: from memory straight to the registers in which it is multiplied, a few steps at a time
//! ([`slices`](super::slices), [`few`](super::few)).

use super::fragment::down;
use super::loader::tally::{Counted, Tally};
use super::loader::{self, Source};
use super::tile::WIDEST;
use crate::mir::{Builder, Gen, Part, Type};
use barewave_isa::matrix::{Fragment, Step};
use barewave_isa::op;

/// The stages of a loop over such steps.
pub(super) const LOAD: u8 = 0;
pub(super) const MULTIPLY: u8 = 1;

/// How the lanes of a workgroup's waves share an operand.
pub(super) struct Shape {
    /// What each bit of a lane's number adds to its k (rows) and column.
    pub lane: Vec<Step>,
    /// Waves, each of which takes every so many-th step, and steps of a wave that are on their way.
    pub waves: u32,
    pub steps: u32,
    /// k of a lane in a step, and of all lanes of a wave.
    pub depth: u32,
    pub step: u32,
    /// Columns from a lane's first ones to the next of its own, over those that lie side by side.
    pub side: u32,
    /// Neighbouring columns of a lane; 1 where lines lie along k.
    pub columns: u32,
}

/// What a wave loads of an operand.
pub(super) struct Strip {
    src: Source,
    bytes: u32,
    shape: Shape,
    /// Which elements a lane has, of a fragment whose rows are k, and the first one's k.
    share: Fragment,
    k_first: Part,
    /// Offset of the lane's first element in the step that is loaded next, and bytes to the wave's next one.
    at: Part,
    next: u32,
    /// Scalar offsets, and the bytes that they are from the first.
    starts: Vec<(u32, Part)>,
    /// Loads of a step: the byte of each from the lane's first.
    loads: Vec<u32>,
    /// Registers of loads, of the steps that are on their way.
    sets: Vec<Vec<Part>>,
}

/// Bytes that a load's own offset reaches.
const REACH: u32 = 4096;

impl Strip {
    /// A tile's operand, so wide, of elements of so many bytes.
    pub fn new(b: &mut Builder, shape: Shape, bytes: u32, src: Source, width: u32) -> Strip {
        let Shape { waves, steps, depth, step, side, columns, .. } = shape;
        let of_waves = (0..waves.trailing_zeros()).map(|bit| down(step << bit));
        let lane = shape.lane.iter().copied().chain(of_waves).collect();
        let share = Fragment { lane, position: Vec::new(), bits: 32, spacing: 32 };
        let item = b.workitem_id();
        let (k_first, at) = loader::first_element(b, &src, &share, item, bytes.trailing_zeros());
        let at = b.to_vector(at);
        // The lane's place moves.
        let moved = b.v(1);
        b.copy_into(moved, at);
        let (loads, dwords): (Vec<u32>, u32) = if columns == 1 {
            let pieces = depth * bytes / WIDEST;
            let of = |n: u32| (0..pieces).map(move |p| (n, p));
            let byte = |(n, p): (u32, u32)| n * side * src.w_stride * bytes + p * WIDEST;
            ((0..width / side).flat_map(of).map(byte).collect(), depth * bytes / 4)
        } else {
            let of = |n: u32| (0..depth).map(move |k| (n, k));
            let byte = |(n, k): (u32, u32)| (n * side * columns + k * src.k_stride) * bytes;
            ((0..width / side / columns).flat_map(of).map(byte).collect(), columns * bytes / 4)
        };
        src.end_buffer(b);
        let first = loader::start_offset(b, &src, bytes);
        let mut starts = vec![(0, first)];
        for far in loads.iter().map(|at| at / REACH * REACH) {
            if !starts.iter().any(|s| s.0 == far) {
                starts.push((far, b.add(first, far)));
            }
        }
        let registers = if columns == 1 { width / side } else { loads.len() as u32 };
        let set = |b: &mut Builder| (0..registers).map(|_| b.v(dwords as u8)).collect();
        let sets = (0..steps).map(|_| set(b)).collect();
        let next = waves * step * src.k_stride * bytes;
        Strip { src, bytes, shape, share, k_first, at: moved, next, starts, loads, sets }
    }

    /// Begins to count rows that lie along k, each of which so many workitems share.
    pub fn count_rows(&self, b: &mut Builder, members: u32, dtype: Type, center: bool) -> Tally {
        let Shape { side, depth, .. } = self.shape;
        let rows = (0..self.sets[0].len() as u32).map(|i| i * side).collect();
        let counted = Counted { dtype, share: &self.share, rows, members, own: depth, words: true };
        let ahead = b.mul(self.k_first, self.bytes);
        let start = b.sub(self.at, ahead);
        Tally::new(b, counted, center, |b, row| {
            let byte = row * self.src.w_stride * self.bytes;
            let far = byte / REACH * REACH;
            let soff = self.starts.iter().find(|s| s.0 == far).map_or(self.starts[0].1, |s| s.1);
            let near = if self.starts.iter().any(|s| s.0 == far) { byte - far } else { byte };
            match self.bytes {
                4 => b.load(self.src.buf, 1, start, soff, near),
                _ => b.load_op(op::BUFFER_LOAD_USHORT, self.src.buf, start, soff, near),
            }
        })
    }

    /// Counts what was loaded into a set.
    pub fn count(&self, b: &mut Builder, tally: &Tally, set: usize) {
        for (number, reg) in self.sets[set].iter().enumerate() {
            tally.add(b, number, &[*reg], self.shape.depth);
        }
    }

    /// Loads the wave's next step into a set of registers.
    pub fn load(&mut self, b: &mut Builder, set: usize) {
        let Shape { side, columns, depth, .. } = self.shape;
        let regs = &self.sets[set];
        let pieces = self.loads.len() / regs.len();
        let k_first = set as u32 * self.next / (self.src.k_stride * self.bytes);
        for (i, byte) in self.loads.iter().enumerate() {
            let (of_tile, step) = if columns == 1 { (pieces, WIDEST / self.bytes) } else { (depth as usize, 1) };
            let k = (i % of_tile) as u32 * step;
            b.element(k_first + k, (i / of_tile) as u32 * side * columns);
            let far = byte / REACH * REACH;
            let start = self.starts.iter().find(|s| s.0 == far).map_or(self.starts[0].1, |s| s.1);
            let reg = regs[i / pieces];
            let reg = if pieces > 1 { reg.slice((i % pieces * 4) as u8, 4) } else { reg };
            b.load_into(reg, self.src.buf, self.at, start, byte - far);
        }
        b.emit(Gen::Add.of(crate::mir::Type::I32), &[self.at.into()], &[self.at.into(), self.next.into()]);
    }

    /// What was loaded into a set, as instructions need it: columns of narrow elements are put together.
    pub fn turned(&self, b: &mut Builder, set: usize) -> Turned<'_> {
        let Shape { columns, depth, .. } = self.shape;
        let regs = &self.sets[set];
        if columns == 1 || self.bytes == 4 {
            return Turned { strip: self, parts: regs.clone(), apart: columns > 1 };
        }
        let per_word = 4 / self.bytes;
        let mut parts = Vec::new();
        for lines in regs.chunks(depth as usize) {
            if self.bytes == 1 && columns == 4 {
                let cells: Vec<Part> = (0..4).map(|_| b.v((depth / per_word) as u8)).collect();
                for (i, some) in (0..).zip(lines.chunks(4)) {
                    let columns = [0, 1, 2, 3].map(|c: usize| cells[c].dword(i));
                    loader::turn_bytes(b, [some[0], some[1], some[2], some[3]], columns, false);
                }
                parts.extend(cells);
                continue;
            }
            for column in 0..columns {
                let (word, place) = ((column / per_word) as u8, column % per_word);
                let dst = b.v((depth / per_word) as u8);
                for (i, some) in lines.chunks(per_word as usize).enumerate() {
                    let some: Vec<Part> = some.iter().map(|r| r.dword(word)).collect();
                    loader::gather_word(b, dst.dword(i as u8), &some, place);
                }
                parts.push(dst);
            }
        }
        Turned { strip: self, parts, apart: false }
    }
}

/// Operands of instructions.
pub(super) struct Turned<'a> {
    strip: &'a Strip,
    parts: Vec<Part>,
    /// Each k of a lane is in another register, with its neighbours' columns.
    apart: bool,
}

impl Turned<'_> {
    /// What instruction `q` of a step multiplies of an instruction tile.
    pub fn part(&self, number: u32, q: u8, dwords: u8) -> Part {
        if !self.apart {
            return self.parts[number as usize].slice(q * dwords, dwords);
        }
        let Shape { columns, depth, .. } = self.strip.shape;
        let (lines, column) = (number / columns * depth, number % columns);
        self.parts[(lines + u32::from(q)) as usize].dword(column as u8)
    }
}
