//! Equal shares of work: units of blocks, one block behind the other, are divided equally among as many workgroups as run at once. A
//! workgroup goes through its share block by block. Of a block that it has all units of it stores the results; of others, at the
//! beginning and at the end of a share, it leaves what it has, and counts; the last one to come puts the parts together
//! ([`split`](super::split)), always in the order of units, so that results do not depend on who that is.
//!
//! What a block and a unit are is the kernel's matter: a block of queries and a tile of keys ([`attention`](super::attention)), a tile of
//! a product and a round of its depth ([`divided`](super::divided)).

use super::Writer;
use super::present::Lanes;
use super::split::{IN_FLIGHT, Place, Shared, dwords};
use crate::mir::{BlockId, Buffer, Builder, Gen, Opnd, Part, Pipeline, Type};

/// Who has parts of a block.
#[derive(Clone, Copy)]
pub(super) struct Ends {
    /// The first workgroup that has units of it, and how many others there are.
    pub first: Part,
    pub others: Part,
}

/// Dwords of a part that a workitem has in flight, of two parts: what multiplies needs no more registers than that.
pub(super) const AT_ONCE: u32 = IN_FLIGHT / 2;

/// A part that has been left and counted.
pub(super) struct Left {
    pub shared: Shared,
    pub place: Place,
    pub workspace: Buffer,
    /// Bytes of the workspace and of counters.
    pub bytes: [usize; 2],
}

impl Ends {
    /// Of a block of `whole` units, of which the first is number `begins` of all, in shares of so many units.
    pub fn of(b: &mut Builder, begins: Part, whole: impl Into<Opnd>, units: u32) -> Ends {
        let ends = b.add(begins, whole);
        let ends = b.sub(ends, 1u32);
        let (first, last) = (b.udiv(begins, units), b.udiv(ends, units));
        Ends { first, others: b.sub(last, first) }
    }

    /// Where the workgroup of a number leaves what it has of the block: a share has two ends.
    pub fn slot(&self, b: &mut Builder, number: Part) -> Part {
        let own = b.shl(number, 1u32);
        let first = b.shl(self.first, 1u32);
        let first = b.add(first, 1u32);
        b.generic(Gen::Max.of(Type::U32), &[own.into(), first.into()])
    }

    /// Leaves what workgroup `number` of `groups` has, registers of each of `threads` workitems that have any, of one of `blocks`, and goes
    /// to `done` unless all others were there before.
    pub fn leave(
        &self,
        w: &mut Writer,
        (threads, groups): (u32, u32),
        (block, blocks): (Part, u32),
        (number, parts, lanes): (Part, &[Part], Lanes),
        done: BlockId,
    ) -> Left {
        let shared = Shared { threads, dwords: dwords(parts), count: 2 * groups, tiles: [1; 3] };
        let counted = Shared { threads, dwords: 1, count: 1, tiles: [blocks, 1, 1] };
        let zero = w.b.scalar(0);
        let place = Place { lanes, ..shared.place_of(w, zero) };
        let counters = counted.place_of(w, block);
        let workspace = w.workspace(shared.bytes());
        let slot = self.slot(&mut w.b, number);
        shared.leave(w, workspace, &place, slot, parts);
        counted.count_in(w, &counters, self.others, done);
        let bytes = [shared.bytes(), counted.counters()];
        Left { shared, place, workspace, bytes }
    }
}

impl Left {
    /// Adds all parts in order, and puts the sums where those of this workgroup are.
    pub fn add(&self, w: &mut Writer, ends: &Ends, ty: Type, sums: &[Part]) {
        let (shared, from) = (&self.shared, self.workspace);
        let b = &mut w.b;
        let start = |b: &mut Builder, number: Part| {
            let slot = ends.slot(b, number);
            b.mad(slot, shared.part(), self.place.group)
        };
        let second = b.add(ends.first, 1u32);
        let both = [start(b, ends.first), start(b, second)];
        let further = b.sub(ends.others, 1u32);
        let pieces = Shared::pieces(sums);
        let lanes: Vec<Part> = (1..=4).map(|dwords| self.place.at(b, dwords)).collect();
        // Some at a time, of the first two parts at once, of which there are always that many.
        for some in pieces.chunks((AT_ONCE / 4) as usize) {
            let load = |b: &mut Builder, start: Part| -> Vec<Part> {
                let of = |(piece, before): &(Part, u32)| {
                    let lane = lanes[usize::from(piece.len) - 1];
                    b.device_load(from, piece.len, lane, start, before * 4 * shared.threads)
                };
                some.iter().map(of).collect()
            };
            let add = |b: &mut Builder, own: &[Part], new: &[Part]| {
                for (own, new) in own.iter().zip(new) {
                    for i in (0..own.len).step_by(usize::from(ty.dwords())) {
                        let (own, new) = (own.slice(i, ty.dwords()), new.slice(i, ty.dwords()));
                        b.emit(Gen::Add.of(ty), &[own.into()], &[own.into(), new.into()]);
                    }
                }
            };
            let [own, new] = both.map(|start| load(b, start));
            add(b, &own, &new);
            let all = b.label();
            b.branch_lt(ends.others, 2u32, all);
            b.counted_loop("parts", further, 1, Pipeline::Off, false, |b, number| {
                let number = b.add(number, second);
                let number = b.add(number, 1u32);
                let start = start(b, number);
                let new = load(b, start);
                add(b, &own, &new);
            });
            b.place(all, "all");
            for ((sum, _), own) in some.iter().zip(own) {
                b.copy_into(*sum, own);
            }
        }
    }
}
