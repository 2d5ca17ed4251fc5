//! The loop with nothing ahead but loads from memory: a round is a tile. Its scores are multiplied and become weights, and
//! its values are added by these. K and V have one buffer each in LDS, which is written while the other is read; what stands
//! beside what within a wave is the scheduler's.

use super::super::super::Writer;
use super::super::super::error::Res;
use super::{K_PART, Products, Rounds, Summed, V_PART};
use crate::mir::{Builder, Lds, Part, Pipeline};

impl Rounds<'_, '_> {
    pub(super) fn write_plain(mut self, w: &mut Writer) -> Res<Summed> {
        let (flash, keys, [of_scores, of_values]) = (self.flash, self.flash.plan.keys, self.pieces());
        let zero = w.b.scalar(0);
        let first = flash.key(&mut w.b, zero);
        self.loaders[0].issue(&mut w.b, first);
        self.loaders[1].issue(&mut w.b, zero);
        let limit = flash.limit(&mut w.b);
        let node = w.b.begin_loop("keys");
        let at = node.counter();
        let next = w.b.add(at, keys);
        let (first, next_key) = (flash.key(&mut w.b, at), flash.key(&mut w.b, next));
        w.b.in_lds(K_PART);
        self.loaders[0].commit(&mut w.b, 0);
        w.b.in_lds(Lds::Any);
        w.b.barrier();
        self.loaders[0].issue(&mut w.b, next_key);
        self.products(&mut w.b, &Products::Scores(0), 0..of_scores, self.scores[0].sums.len());
        w.b.in_lds(V_PART);
        self.loaders[1].commit(&mut w.b, 0);
        w.b.in_lds(Lds::Any);
        self.hide_apart(&mut w.b, 0, first);
        let own = self.look(w, 0, first)?;
        self.meet(&mut w.b, own);
        self.grow(&mut w.b);
        let offset = flash.float.mul(&mut w.b, self.max, self.factor);
        let offset = flash.float.neg(&mut w.b, offset);
        let cells = self.scores[0].values.chunks(flash.plan.run as usize);
        let cells: Vec<Part> = cells.map(|cell| self.weights(&mut w.b, cell, offset)).collect();
        w.b.barrier();
        self.loaders[1].issue(&mut w.b, next);
        self.products(&mut w.b, &Products::Values(&cells), of_scores..of_scores + of_values, self.results.len());
        w.b.in_lds(Lds::Any);
        w.b.end_loop(node, limit, keys, Pipeline::Off, false);
        Ok(self.summed(w))
    }

    /// Products of some pieces, each with a read of its own; so many of them are read together.
    fn products(&self, b: &mut Builder, products: &Products, pieces: std::ops::Range<usize>, together: usize) {
        let first = pieces.start;
        for start in pieces.clone().step_by(together) {
            let some = start..(start + together).min(pieces.end);
            let read = some.map(|piece| {
                let into = b.v(self.flash.words() as u8);
                self.read(b, piece, into);
                (piece, into)
            });
            let read: Vec<(usize, Part)> = read.collect();
            for (piece, into) in read {
                self.product(b, products, piece - first, into);
            }
        }
    }
}
