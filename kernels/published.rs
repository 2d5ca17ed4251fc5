//! What workgroups of a launch tell each other while they run.
//!
//! A workgroup leaves a value of four bytes with a flag beside it, in one store of eight bytes that are aligned so, which memory takes whole: who
//! finds the flag has the value. Others look there, past the caches that are not shared, until they find it. Values are combined in the order of
//! their numbers, whoever came first, so that results are the same from run to run.
//!
//! Only workgroups of lower numbers are waited for, and each leaves its value before it waits. Workgroups begin in the order of their numbers, so the first
//! of those that have not ended waits for nobody who is not there: however few are resident at once, it goes on.
//!
//! Values of a line's pieces are combined in two levels. The pieces come in blocks of [`BLOCK`]. Each piece leaves what it comes to; the last one of a
//! block, which waits for all others of it anyway, leaves what the block comes to. So a piece looks at those before it in
//! its block, and at the blocks before its own.
//!
//! Memory for this lies in [`Arg::Counters`], which is zero before each launch and after it. Each workgroup counts itself out when it has seen all it
//! needs, and the last of a line's clears the line's flags. What makes this safe is what makes [`split`](super::split) so: stores through to what the device shares are
//! done before the atomic that counts is issued, and its result is there before flags are cleared.

use super::error::Res;
use super::{Arg, Writer};
use crate::mir::{Buffer, Gen, Part, Type};

/// Pieces of a block, a multiple of the lanes of any wave.
const BLOCK: u32 = 64;

/// Blocks that a wave looks at: some for each lane.
const MOST_BLOCKS: u32 = 256;

/// Pieces of a line at most.
pub(super) const MOST_PIECES: u32 = BLOCK * MOST_BLOCKS;

/// Bytes of a value with its flag, and the flag of a value that is there.
const ENTRY: u32 = 8;
const THERE: u32 = 1;

/// Pieces that each are a workgroup's, in the order in which workgroups are numbered, a line's behind each other.
pub(super) struct Pieces {
    lines: u32,
    pieces: u32,
    entries: Buffer,
    counters: Part,
    /// The line, the piece's block and its number in there.
    line: Part,
    block: Part,
    within: Part,
    /// The workitem's lane, and its wave's number, which is the same for all of it.
    lane: Part,
    wave: Part,
}

/// How values are combined.
pub(super) trait Combine {
    /// The first one before the second.
    fn both(&self, w: &mut Writer, first: Part, second: Part) -> Res<Part>;
    /// Those of all lanes of a wave, in their order.
    fn of_wave(&self, w: &mut Writer, x: Part) -> Res<Part>;
    /// What changes nothing.
    fn neutral(&self, w: &mut Writer) -> Res<Part>;
    /// Lane by lane the first one where the mask is set.
    fn select(&self, w: &mut Writer, mask: Part, first: Part, second: Part) -> Part;
}

impl Pieces {
    /// So many lines in so many pieces each; workgroup by workgroup, whose workitems all take part.
    pub fn new(w: &mut Writer, lines: u32, pieces: u32, [lane, wave]: [Part; 2]) -> Pieces {
        let counters = w.counters();
        let entries = w.counters_buffer(Pieces::bytes(lines, pieces, w.b.wave_size()));
        let number = w.b.workgroup_id(0);
        let (line, piece) = w.b.divmod(number, pieces);
        let (block, within) = w.b.divmod(piece, BLOCK);
        Pieces { lines, pieces, entries, counters, line, block, within, lane, wave }
    }

    /// Values of a line, its blocks' behind its pieces', and one more where they are odd: two are cleared at once.
    fn of_line(pieces: u32) -> u32 {
        (pieces + pieces.div_ceil(BLOCK)).next_multiple_of(2)
    }

    /// Bytes of counters that they need.
    pub fn bytes(lines: u32, pieces: u32, wave: u32) -> u32 {
        lines * (wave * 4 + Pieces::of_line(pieces) * ENTRY)
    }

    /// The byte of the first of the line's values.
    fn first(&self, w: &mut Writer) -> Part {
        let counted = self.lines * w.b.wave_size() * 4;
        w.b.mad(self.line, Pieces::of_line(self.pieces) * ENTRY, counted)
    }

    /// What the pieces before the workgroup's come to, where its own comes to `own`, in all lanes. All waves meet.
    pub fn before(&self, w: &mut Writer, own: Part, how: &impl Combine) -> Res<Part> {
        let wave = w.b.wave_size();
        let home = w.b.shl(self.lane, 2u32);
        let kept = w.b.lds(wave * 4);
        let told = w.b.label();
        w.b.branch_lt(0u32, self.wave, told);
        let first = self.first(w);
        let entry = w.b.shl(self.lane, ENTRY.trailing_zeros());
        // The first lane's is the piece's own.
        let pieces = w.b.mad(self.block, BLOCK * ENTRY, first);
        let is_first = w.b.op(Gen::CmpEq.of(Type::U32), &[0u32.into(), self.lane.into()]);
        let at = w.b.shl(self.within, ENTRY.trailing_zeros());
        let at = w.b.add(pieces, at);
        self.publish(w, at, own, is_first);
        let mut in_block = None;
        for from in (0..BLOCK).step_by(wave as usize) {
            let found = self.find(w, (pieces, from), entry, self.within, how)?;
            in_block = Some(match in_block {
                Some(before) => how.both(w, before, found)?,
                None => found,
            });
        }
        let none = how.neutral(w)?;
        let in_block = in_block.unwrap_or(none);
        let blocks = w.b.add(first, self.pieces * ENTRY);
        if self.pieces > BLOCK {
            let all = how.both(w, in_block, own)?;
            let number = w.b.mad(self.lane, BLOCK, self.within);
            let is_last = w.b.op(Gen::CmpEq.of(Type::U32), &[(BLOCK - 1).into(), number.into()]);
            let at = w.b.shl(self.block, ENTRY.trailing_zeros());
            let at = w.b.add(blocks, at);
            self.publish(w, at, all, is_last);
        }
        let mut before = None;
        for from in (0..(self.pieces - 1) / BLOCK).step_by(wave as usize) {
            let found = self.find(w, (blocks, from), entry, self.block, how)?;
            before = Some(match before {
                Some(before) => how.both(w, before, found)?,
                None => found,
            });
        }
        let before = match before {
            Some(before) => how.both(w, before, in_block)?,
            None => in_block,
        };
        w.b.lds_write(home, before, kept);
        w.b.place(told, "told");
        w.b.barrier();
        let start = w.b.to_vector(0u32);
        Ok(w.b.lds_read(1, start, kept))
    }

    /// Leaves a value at a byte, by the lane of the mask.
    fn publish(&self, w: &mut Writer, at: Part, value: Part, mask: Part) {
        let entry = w.b.v(2);
        w.b.copy_into(entry.dword(0), value);
        w.b.copy_into(entry.dword(1), THERE);
        let at = w.b.to_vector(at);
        let at = w.b.guard(mask, at);
        let none = w.b.scalar(0);
        w.b.device_store(self.entries, entry, at, none, 0);
    }

    /// Waits for values with numbers below `end`, of those that follow number `from` behind byte `first` one for each lane; what these come to.
    fn find(
        &self,
        w: &mut Writer,
        (first, from): (Part, u32),
        entry: Part,
        end: Part,
        how: &impl Combine,
    ) -> Res<Part> {
        let number = w.b.add(self.lane, from);
        let needed = w.b.op(Gen::CmpGt.of(Type::U32), &[end.into(), number.into()]);
        let at = w.b.add(entry, first);
        let at = w.b.guard(needed, at);
        let (none, found) = (w.b.scalar(from * ENTRY), w.b.v(2));
        w.b.loop_while_any("wait", |b| {
            b.loads_from_device(true);
            b.load_into(found, self.entries, at, none, 0);
            b.loads_from_device(false);
            let missing = b.op(Gen::CmpEq.of(Type::U32), &[0u32.into(), found.dword(1).into()]);
            b.mask_and(missing, needed)
        });
        let neutral = how.neutral(w)?;
        let x = how.select(w, needed, found.dword(0), neutral);
        how.of_wave(w, x)
    }

    /// The workgroup has seen what it needs, and does nothing more: the last of a line's clears its flags.
    pub fn leave(&self, w: &mut Writer) {
        let wave = w.b.wave_size();
        let left = w.b.label();
        w.b.branch_lt(0u32, self.wave, left);
        let first = self.first(w);
        let at = w.b.mad(self.line, wave, self.lane);
        let at = w.b.shl(at, 2u32);
        let others = self.pieces - 1;
        w.b.block("leave");
        w.b.fix_order();
        w.b.finish_stores();
        let before = w.b.device_increment(self.counters, at, others);
        let before = w.b.uniform(before);
        w.b.branch_lt(before, others, left);
        let bytes = Pieces::of_line(self.pieces) * ENTRY;
        let own = w.b.shl(self.lane, 4u32);
        let (zeros, none) = (w.b.v(4), w.b.scalar(0));
        (0..4).for_each(|d| w.b.copy_into(zeros.dword(d), 0u32));
        let entries = self.entries;
        w.b.loop_while("clear", bytes.div_ceil(wave * 16), 1, |b, n| {
            let at = b.mad(n, wave * 16, own);
            let inside = b.op(Gen::CmpGt.of(Type::U32), &[bytes.into(), at.into()]);
            let at = b.add(at, first);
            let at = b.guard(inside, at);
            b.device_store(entries, zeros, at, none, 0);
        });
        w.b.place(left, "left");
    }
}

impl Writer {
    /// Counters as a buffer of so many bytes.
    fn counters_buffer(&mut self, bytes: u32) -> Buffer {
        let buf = self.b.buffer_arg(self.args.len() as u32, bytes);
        self.args.push((Arg::Counters, buf));
        buf
    }
}
