//! What workgroups of a launch tell each other while they run.
//!
//! A workgroup leaves a value of four bytes with a flag beside it, in one store of eight bytes that are aligned so, which memory takes whole: who
//! finds the flag has the value. Others look there, past the caches that are not shared, until they find it. Values are combined in the order of
//! their numbers, whoever came first, so that results are the same from run to run.
//!
//! Of [`Pieces`] only workgroups of lower numbers are waited for, and each leaves its value before it waits. Workgroups begin in the order of their numbers, so the first
//! of those that have not ended waits for nobody who is not there: however few are resident at once, it goes on. An
//! [`Exchange`] waits for all of a team, but not for ever.
//!
//! Values of a line's pieces are combined in two levels. The pieces come in blocks of [`BLOCK`]. Each piece leaves what it comes to; the last one of a
//! block, which waits for all others of it anyway, leaves what the block comes to. So a piece looks at those before it in
//! its block, and at the blocks before its own.
//!
//! Memory for this lies in [`Arg::Counters`], which is zero before each launch and after it. Each workgroup counts itself out when it has seen all it
//! needs, and the last of a line's clears the line's flags. What makes this safe is what makes [`split`](super::split) so: stores through to what the device shares are
//! done before the atomic that counts is issued, and its result is there before flags are cleared.

use super::error::Res;
use super::{Arg, Writer, lanes};
use crate::mir::{BlockId, Buffer, Gen, Opnd, Part, SLEEP, Type};
use barewave_isa::op;

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
        w.b.wait_while_any("wait", |b| {
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

    /// The workgroup has seen what it needs: the last of a line's clears its flags.
    pub fn leave(&self, w: &mut Writer) {
        let wave = w.b.wave_size();
        let left = w.b.label();
        w.b.branch_lt(0u32, self.wave, left);
        let first = self.first(w);
        let at = w.b.mad(self.line, wave, self.lane);
        let bytes = Pieces::of_line(self.pieces) * ENTRY;
        leave(w, (self.counters, at, self.pieces), (self.entries, first, bytes), self.lane, left);
    }
}

/// A wave counts its workgroup out of so many, by counters of which each lane has one, with this number; the last one goes on from there and clears some bytes
/// behind a first one. All others go to `left`, which comes next.
fn leave(
    w: &mut Writer,
    (counters, number, all): (Part, Part, u32),
    (entries, first, bytes): (Buffer, Part, u32),
    lane: Part,
    left: BlockId,
) {
    let wave = w.b.wave_size();
    let at = w.b.shl(number, 2u32);
    w.b.block("leave");
    w.b.fix_order();
    w.b.finish_stores();
    let before = w.b.device_increment(counters, at, all - 1);
    let before = w.b.uniform(before);
    w.b.branch_lt(before, all - 1, left);
    let own = w.b.shl(lane, 4u32);
    let (zeros, none) = (w.b.v(4), w.b.scalar(0));
    (0..4).for_each(|d| w.b.copy_into(zeros.dword(d), 0u32));
    w.b.loop_while("clear", bytes.div_ceil(wave * 16), 1, |b, n| {
        let at = b.mad(n, wave * 16, own);
        let inside = b.op(Gen::CmpGt.of(Type::U32), &[bytes.into(), at.into()]);
        let at = b.add(at, first);
        let at = b.guard(inside, at);
        b.device_store(entries, zeros, at, none, 0);
    });
    w.b.place(left, "left");
}

/// Bytes of a pair of numbers, and the flag of one that is there: the sign of the second number, which has none.
const PAIR: u32 = 8;
const SIGN: u32 = 1 << 31;

/// Looks for what others leave after which a workgroup waits no longer: with sleep between them a millisecond or more, which workgroups that
/// are there at the same time do not come near.
const LOOKS: u32 = 1 << 12;

/// No member.
const NONE: u32 = u32::MAX;

/// Teams of workgroups with consecutive numbers, each of which goes on with what all of its own team leave: rows of pairs of numbers, to each of which every
/// workgroup has one. The second number of a pair is not negative.
///
/// So some wait for workgroups of higher numbers, and nothing promises that these are there at the same time: a launch may have a part of a device, or share it. But they wait only for so many
/// looks. Who has not found all by then computes what the first missing member would leave, leaves it in its place (the same bits, whoever computes
/// them, so it does not matter who comes first), and looks once more, now without waiting, until nothing is missing; at last it does the same for itself, so that
/// it has in its registers what it began with. No workgroup needs another one to end, and results do not depend on who was there.
///
/// A flag is this launch's: each workgroup counts itself out when all its waves have their pairs (they meet behind their waits) and all
/// its stores are done (each wave waits for its own before that). The atomic that counts is issued then, so who finds that all
/// others have counted clears behind their last looks and stores. The counter goes round to zero by itself. What the last one clears is done when the launch ends, and the next
/// launch that has these counters comes behind it in the same stream.
///
/// No order between different addresses is needed for what is told: a pair is one aligned store of 8 bytes. Stores go through to, and looks come from, what the device
/// shares, by the target's policies of cache (`device_store`, `device_load`): L2 on a single die (`glc`, with `dlc` on RDNA1 and 2), memory behind the dies' L2s (`sc1` on CDNA3 and 4),
/// the device's scope on RDNA4. So nothing is written back or dropped as a whole. What is left in another's place, where several may, is left by an atomic.
pub(super) struct Exchange {
    teams: u32,
    members: u32,
    rows: u32,
    entries: Buffer,
    counters: Part,
    /// The workgroup's team and its number in it; the workitem's lane, and its wave's number, which is the same for all of it.
    team: Part,
    member: Part,
    lane: Part,
    wave: Part,
    /// The member whose pairs the workgroup computes.
    current: Part,
    /// How often the wave has looked in vain, and the first member that it misses, in all lanes.
    looks: Part,
    missed: Part,
}

impl Exchange {
    /// So many teams of so many members, with rows of pairs; the workgroup is a member of a team.
    pub fn new(w: &mut Writer, [teams, members, rows]: [u32; 3], [team, member]: [Part; 2]) -> Exchange {
        let counters = w.counters();
        let wave_size = w.b.wave_size();
        let entries = w.counters_buffer(Exchange::bytes([teams, members, rows], wave_size));
        let item = w.b.workitem_id();
        let (lane, wave) = (w.b.and(item, wave_size - 1), w.b.shr(item, wave_size.trailing_zeros()));
        let wave = w.b.uniform(wave);
        let (current, looks, missed) = (w.b.s(1), w.b.scalar(0), w.b.v(1));
        w.b.copy_into(current, member);
        Exchange { teams, members, rows, entries, counters, team, member, lane, wave, current, looks, missed }
    }

    /// Pairs of a team, and one more where they are odd: two are cleared at once.
    fn of_team([members, rows]: [u32; 2]) -> u32 {
        (members * rows).next_multiple_of(2)
    }

    /// Bytes of counters that they need.
    pub fn bytes([teams, members, rows]: [u32; 3], wave: u32) -> u32 {
        teams * (wave * 4 + Exchange::of_team([members, rows]) * PAIR)
    }

    /// Begins to compute the pairs of a member, whose number it gives (a scalar): first the workgroup's own. [`Exchange::close`] ends that.
    pub fn open(&self, w: &mut Writer) -> (BlockId, Part) {
        let head = w.b.open_any("member");
        w.b.copy_into(self.missed, NONE);
        (head, self.current)
    }

    /// Goes back for the first member that a wave misses, or for the own pairs where others were the last: all waves meet. Behind it all have found what they looked for
    /// last.
    pub fn close(&self, w: &mut Writer, head: BlockId) -> Res<()> {
        // Who counts the workgroup out does so for the stores of all its waves.
        w.b.block("told");
        w.b.fix_order();
        w.b.finish_stores();
        w.b.block("found");
        let workgroup = w.b.function().workgroup_size;
        let missed = lanes::across_waves(w, workgroup, vec![self.missed], &lanes::by(Gen::Min, Type::U32))?[0];
        let misses = w.b.op(Gen::CmpNe.of(Type::U32), &[NONE.into(), missed.into()]);
        let elsewhere = self.elsewhere(w);
        let again = w.b.mask_or(misses, elsewhere);
        let own = w.b.to_vector(self.member);
        let next = w.b.select(misses, missed, own);
        let next = w.b.uniform(next);
        w.b.copy_into(self.current, next);
        w.b.close_any(head, again);
        Ok(())
    }

    /// All lanes where the pairs are not the workgroup's own, or none.
    fn elsewhere(&self, w: &mut Writer) -> Part {
        let own = w.b.to_vector(self.member);
        w.b.op(Gen::CmpNe.of(Type::U32), &[self.current.into(), own.into()])
    }

    /// The byte of the first of the team's pairs.
    fn first(&self, w: &mut Writer) -> Part {
        let counted = self.teams * w.b.wave_size() * 4;
        w.b.mad(self.team, Exchange::of_team([self.members, self.rows]) * PAIR, counted)
    }

    /// The byte of the first pair of a row (a vector) of the team's.
    pub fn row(&self, w: &mut Writer, row: Part) -> Part {
        let first = self.first(w);
        w.b.mad(row, self.members * PAIR, first)
    }

    /// Leaves a pair of a row, by the lane of the mask.
    pub fn publish(&self, w: &mut Writer, row: Part, [x, y]: [Part; 2], mask: Part) {
        let pair = w.b.v(2);
        w.b.copy_into(pair.dword(0), x);
        w.b.copy_into(pair.dword(1), y);
        w.b.emit(Gen::Or.of(Type::U32), &[pair.dword(1).into()], &[SIGN.into(), pair.dword(1).into()]);
        let at = w.b.mad(self.current, PAIR, row);
        let at = w.b.guard(mask, at);
        let (none, elsewhere) = (w.b.scalar(0), self.elsewhere(w));
        let (other, told) = (w.b.label(), w.b.label());
        w.b.branch_if_none(elsewhere, other, "another");
        w.b.device_exchange(self.entries, pair, at, none);
        w.b.emit(op::S_BRANCH, &[], &[Opnd::Block(told)]);
        w.b.place(other, "own");
        w.b.device_store(self.entries, pair, at, none, 0);
        w.b.place(told, "published");
    }

    /// Waits for the pair of a member (a vector) of a row, in the lanes of the mask, or in all.
    pub fn find(&self, w: &mut Writer, row: Part, member: Part, needed: Option<Part>) -> Res<[Part; 2]> {
        let at = w.b.mad(member, PAIR, row);
        let at = needed.map_or(at, |mask| w.b.guard(mask, at));
        let (none, found) = (w.b.scalar(0), w.b.v(2));
        let (head, there) = (w.b.block("wait"), w.b.label());
        w.b.loads_from_device(true);
        w.b.load_into(found, self.entries, at, none, 0);
        w.b.loads_from_device(false);
        let missing = w.b.op(Gen::CmpLe.of(Type::I32), &[0u32.into(), found.dword(1).into()]);
        let missing = needed.map_or(missing, |mask| w.b.mask_and(missing, mask));
        w.b.branch_if_none(missing, there, "missing");
        w.b.emit(op::S_SLEEP, &[], &[SLEEP.into()]);
        w.b.emit(op::S_ADD_U32, &[self.looks.into()], &[self.looks.into(), 1u32.into()]);
        w.b.branch_lt(self.looks, LOOKS, head);
        let none = w.b.to_vector(NONE);
        let number = w.b.select(missing, member, none);
        let least = lanes::by(Gen::Min, Type::U32);
        let wave = w.b.wave_size();
        let first = lanes::combine(w, wave, &[number], &least)?;
        let first = least(w, &first, &[self.missed])?[0];
        w.b.copy_into(self.missed, first);
        w.b.place(there, "there");
        let second = w.b.v(1);
        w.b.emit(Gen::And.of(Type::U32), &[second.into()], &[(!SIGN).into(), found.dword(1).into()]);
        Ok([found.dword(0), second])
    }

    /// All waves of the workgroup have met since they found what they need: the last of a team's clears its flags.
    pub fn leave(&self, w: &mut Writer) {
        let wave = w.b.wave_size();
        let left = w.b.label();
        w.b.branch_lt(0u32, self.wave, left);
        let first = self.first(w);
        let number = w.b.mad(self.team, wave, self.lane);
        let bytes = Exchange::of_team([self.members, self.rows]) * PAIR;
        leave(w, (self.counters, number, self.members), (self.entries, first, bytes), self.lane, left);
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
