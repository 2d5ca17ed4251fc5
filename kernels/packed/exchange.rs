//! Data that the workitems of a wave load side by side and take from each other by way of LDS.
//!
//! A workitem multiplies 16 bytes of packed numbers with as many elements, which take several times as many bytes. If each loads its own, those of neighbours lie far
//! from each other: every load of a wave touches all the lines that its data lie in, again for each 16 bytes of a workitem. So each load of a wave takes what lies one
//! behind the other, the pieces go to LDS, and each workitem reads back those that are its own. LDS executes a wave's accesses in order, and each wave has a part for
//! itself: nobody waits. A workitem's pieces are put in an order of its own (an exclusive or), so that neighbours read from different banks.

use crate::kernels::Writer;
use crate::mir::{Buffer, Gen, Part, Type};

/// Bytes of a piece, what a load takes for a workitem; of what LDS serves in a clock; and of LDS that leave room for as many workgroups as registers do.
const PIECE: u32 = 16;
const AT_ONCE: u32 = 128;
const ROOM: u32 = 16 << 10;

/// Pieces on their way.
#[derive(Clone, Copy)]
pub(super) struct Exchange {
    /// Pieces of a workitem.
    pieces: u32,
    wave: u32,
    /// Where the LDS begins.
    start: u32,
    /// Bytes of a run in front of what the workitem loads first.
    first: Part,
    /// Where it writes that, and the first of its own pieces.
    home: Part,
    own: Part,
}

impl Exchange {
    /// For workgroups of so many workitems, each of which takes so many bytes of a run, as a member of a team of whole waves. `None` where there is nothing to
    /// exchange, too much for LDS, or where workitems would not have an order for all of their pieces.
    pub fn of(w: &mut Writer, bytes: u32, member: Part, workgroup: u32) -> Option<Exchange> {
        let (wave, pieces) = (w.b.wave_size(), bytes / PIECE);
        // Workitems that LDS serves at once take turns of so many.
        let beside = (AT_ONCE / bytes.max(1)).max(1);
        let fits = bytes.is_power_of_two()
            && (2..=AT_ONCE / PIECE).contains(&pieces)
            && (wave / pieces).is_multiple_of(beside * pieces)
            && workgroup * bytes <= ROOM;
        if !fits {
            return None;
        }
        let start = w.b.lds(workgroup * bytes);
        let item = w.b.workitem_id();
        let (lane, wave_first) = (w.b.and(item, wave - 1), w.b.and(item, !(wave - 1)));
        // The order of who owns a piece, as its owner and as who loads it see it.
        let [owned, loaded] = [beside, beside * pieces].map(|by| {
            let turn = w.b.shr(lane, by.trailing_zeros());
            w.b.and(turn, pieces - 1)
        });
        let lane_bytes = w.b.shl(lane, PIECE.trailing_zeros());
        let before = w.b.and(member, !(wave - 1));
        let first = w.b.mad(before, bytes, lane_bytes);
        let place = w.b.op(Gen::Xor.of(Type::B32), &[lane.into(), loaded.into()]);
        let place = w.b.shl(place, PIECE.trailing_zeros());
        let home = w.b.mad(wave_first, bytes, place);
        let owned = w.b.shl(owned, PIECE.trailing_zeros());
        let own = w.b.mad(item, bytes, owned);
        Some(Exchange { pieces, wave, start, first, home, own })
    }

    /// What the workitem loads of a run that lies so many bytes behind the buffer's beginning; of its team's members so many have some of it.
    pub fn load(&self, w: &mut Writer, buf: Buffer, byte: u32, members: Option<u32>) -> Vec<Part> {
        let load = |i: u32| {
            let ahead = i * self.wave * PIECE;
            let at = match members {
                Some(members) => {
                    let left = (members * self.pieces * PIECE).saturating_sub(ahead);
                    let inside = w.b.op(Gen::CmpGt.of(Type::U32), &[left.into(), self.first.into()]);
                    w.b.guard(inside, self.first)
                }
                None => self.first,
            };
            w.b.load(buf, (PIECE / 4) as u8, at, 0u32, byte + ahead)
        };
        (0..self.pieces).map(load).collect()
    }

    /// The workitem's own pieces, of what all of its wave have loaded.
    pub fn own(&self, w: &mut Writer, loaded: &[Part]) -> Vec<Part> {
        for (i, piece) in (0..).zip(loaded) {
            w.b.lds_write(self.home, *piece, self.start + i * self.wave * PIECE);
        }
        let read = |i: u32| {
            let at = match i {
                0 => self.own,
                _ => w.b.op(Gen::Xor.of(Type::B32), &[self.own.into(), (i * PIECE).into()]),
            };
            w.b.lds_read((PIECE / 4) as u8, at, self.start)
        };
        (0..self.pieces).map(read).collect()
    }
}
