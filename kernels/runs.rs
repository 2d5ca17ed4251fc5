//! Pieces of memory that a workgroup moves to LDS, or from there, in wide accesses: a run of bytes each.

use super::Writer;
use super::address::Offset;
use crate::mir::{Buffer, Gen, Part, Type};

/// A workgroup's run of an operand, of which each workgroup has one, one behind the other or of its own place.
#[derive(Clone, Copy)]
pub(super) struct Run {
    /// Bytes of an access: 4, 8 or 16, of which all that follows has whole ones.
    pub unit: u32,
    /// Bytes of the run, and workitems.
    pub bytes: u32,
    pub items: u32,
    /// Where it begins, behind the operand's first byte, and where that is.
    pub from: Part,
    pub start: u32,
    /// Bytes of the operand, where the last run is shorter: something else may lie behind it.
    pub ends: Option<u32>,
}

/// The widest access that takes whole ones of all these bytes, up to a limit.
pub(super) fn widest(most: u32, bytes: &[usize]) -> u32 {
    let fits = |n: &u32| *n <= most && bytes.iter().all(|b| b.is_multiple_of(*n as usize));
    [16u32, 8].into_iter().find(fits).unwrap_or(4)
}

impl Run {
    /// Accesses of all workitems for so many bytes.
    pub fn turns(&self, bytes: u32) -> u32 {
        bytes.div_ceil(self.items * self.unit)
    }

    /// Bytes of what all workitems move in a turn.
    pub fn of_turn(&self) -> u32 {
        self.items * self.unit
    }

    /// Where the access of a turn is in memory, of lanes that have one; where in the run the one of the first turn is; and which lanes have one, where
    /// not all do.
    pub fn place(&self, w: &mut Writer, turn: u32) -> (Offset, Part, Option<Part>) {
        let (units, before) = (self.bytes / self.unit, turn * self.items);
        let item = w.b.workitem_id();
        let own = w.b.mul(item, self.unit);
        let from = w.b.add(own, self.from);
        let mut at = Offset { reg: Some(from), imm: self.start + before * self.unit };
        let mut inside = None;
        if before + self.items > units {
            let mask = w.b.op(Gen::CmpGt.of(Type::U32), &[units.saturating_sub(before).into(), item.into()]);
            at.reg = Some(w.b.guard(mask, from));
            inside = Some(mask);
        }
        if let Some(all) = self.ends {
            let left = all.saturating_sub(before * self.unit);
            let mask = w.b.op(Gen::CmpGt.of(Type::U32), &[left.into(), from.into()]);
            at = at.within(&mut w.b, mask);
        }
        (at, own, inside)
    }

    /// Loads so many bytes of the run, or zeros where it has ended.
    pub fn load(&self, w: &mut Writer, buf: Buffer, bytes: u32) -> Vec<Loaded> {
        let turns = 0..self.turns(bytes);
        let of = |turn| {
            let (at, own, inside) = self.place(w, turn);
            let (v, s, imm) = at.operands(&mut w.b);
            Loaded { own, inside, data: w.b.load(buf, (self.unit / 4) as u8, v, s, imm) }
        };
        turns.map(of).collect()
    }

    /// Writes what was loaded to LDS as it lies in memory.
    pub fn fill(&self, w: &mut Writer, loaded: Vec<Loaded>, base: u32) {
        for (turn, x) in (0..).zip(loaded) {
            w.b.lds_write(x.own, x.data, base + turn * self.of_turn());
        }
    }

    /// Stores the run as it lies in LDS.
    pub fn empty(&self, w: &mut Writer, buf: Buffer, base: u32) {
        for turn in 0..self.turns(self.bytes) {
            let (at, own, inside) = self.place(w, turn);
            // Nobody has written what would lie behind.
            let own = inside.map_or(own, |inside| {
                let first = w.b.to_vector(0u32);
                w.b.select(inside, own, first)
            });
            let data = w.b.lds_read((self.unit / 4) as u8, own, base + turn * self.of_turn());
            let (v, s, imm) = at.operands(&mut w.b);
            w.b.store(buf, data, v, s, imm);
        }
    }
}

/// An access of a turn.
pub(super) struct Loaded {
    /// As [`Run::place`] says.
    pub own: Part,
    pub inside: Option<Part>,
    pub data: Part,
}
