//! Products in equal shares: where the tiles of the result do not fill the compute units a whole number of times, some of them are
//! shared, so that all workgroups, as many as run at once, have equally much to do.
//!
//! Tiles lie in bands of rows, and workgroups in the grid as their first tiles do. The rounds of a row's first tiles, one tile behind the
//! other, are divided in equal [`shares`](super::shares), one for each of the row's workgroups: workgroups of a column of the grid then read the same
//! of the right operand at the same time, and parts of the left one at different times. Behind its share a workgroup computes as many
//! whole tiles as all others. Shares come first, so that who puts parts of a tile together
//! does so while others multiply, and each has the rounds of one tile at least where there are that many tiles. (Osama, Merrill,
//! Cecka, Garland, Owens: Stream-K, 2023, in its form with two tiles.)
//!
//! Sums of a tile that several workgroups have are added in the order of its depth: `(part + part) + part ...`, each part being summed like
//! a whole tile. Who adds them is the last one to come, which changes nothing of that.

use super::address::Offset;
use super::choice::Split;
use super::error::Res;
use super::gemm;
use super::present::Present;
use super::shares::Ends;
use super::split::{DepthPart, Product};
use super::tile::Tile;
use super::{Arg, Cx, Kernel, Writer};
use crate::graph::view::View;
use crate::mir::{BlockId, Gen, Part, Type};

/// How tiles are divided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shares {
    /// Workgroups: so many beside each other, in as many rows as a band has.
    pub groups: u32,
    /// All tiles, and rounds of each.
    pub tiles: u32,
    pub rounds: u32,
    /// Rows of tiles of a band.
    pub band: u32,
}

impl Shares {
    /// Workgroups of a row of tiles.
    fn of_row(&self) -> u32 {
        self.groups / self.band
    }

    /// Whole tiles of each workgroup.
    pub fn whole(&self) -> u32 {
        (self.tiles / self.groups).saturating_sub(1)
    }

    /// Tiles that are shared.
    pub fn shared(&self) -> u32 {
        self.tiles - self.whole() * self.groups
    }

    /// Rounds of a share.
    pub fn units(&self) -> u32 {
        (self.shared() / self.band * self.rounds).div_ceil(self.of_row())
    }

    /// Parts of shared tiles that workgroups leave: two where a share ends within a tile, but of a tile in the middle of which shares begin and
    /// end only one more for each.
    pub fn parts(&self) -> u32 {
        let (units, tiles) = (self.units(), self.shared() / self.band);
        let ends = (tiles * self.rounds).div_ceil(units) - 1;
        let within = ends - ends / (self.rounds / gcd(units, self.rounds));
        self.band * (within + within.min(tiles))
    }

    /// Begins a round over a workgroup's tiles, of which there are so many columns in a matrix, and so many rows.
    pub fn open(&self, w: &mut Writer, (tile, split): (&Tile, &Split), [rows, columns]: [u32; 2]) -> Share {
        let b = &mut w.b;
        let (row, place) = (b.workgroup_id(0), b.workgroup_id(1));
        let all = self.shared() / self.band * self.rounds;
        let (unit, end, further) = (b.s(1), b.s(1), b.scalar(0));
        let start = b.mul(place, self.units());
        b.copy_into(unit, start);
        let start = b.add(start, self.units());
        let most = b.scalar(all);
        let start = b.generic(Gen::Min.of(Type::U32), &[start.into(), most.into()]);
        b.copy_into(end, start);
        let walk = Walked { shares: *self, head: b.label(), over: b.label(), place, unit, end, further };
        // The last ones may have nothing to share.
        if self.of_row() * self.units() - all >= self.units() {
            if self.whole() > 0 {
                b.branch_lt(unit, end, walk.head);
                walk.go_whole(w);
            } else {
                let behind = b.add(unit, 1u32);
                b.branch_lt(end, behind, walk.over);
            }
        }
        let b = &mut w.b;
        b.place(walk.head, "share");
        let (at, round) = b.divmod(unit, self.rounds);
        let left = b.sub(end, unit);
        let own = b.scalar(self.rounds);
        let own = b.sub(own, round);
        let rounds = b.generic(Gen::Min.of(Type::U32), &[own.into(), left.into()]);
        let begins = b.sub(unit, round);
        let ends = Ends::of(b, begins, self.rounds, self.units());
        // Those of a row are numbered in a row.
        let before = b.mul(row, self.of_row());
        let ends = Ends { first: b.add(ends.first, before), ..ends };
        let number = b.add(before, place);
        let block = b.mad(at, self.band, row);
        let (batch, of_matrix) = b.divmod(at, rows / self.band * columns);
        let (band, column) = b.divmod(of_matrix, columns);
        let row = b.mad(band, self.band, row);
        let first = (b.mul(row, tile.m), b.mul(column, tile.n));
        let part = DepthPart::of_span(split, b.mul(round, tile.k));
        Share { walk, number, batch, first, part, rounds, block, ends }
    }
}

/// The greatest common divisor.
fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// How a workgroup goes through its tiles.
#[derive(Clone, Copy)]
struct Walked {
    shares: Shares,
    /// Where a tile begins, and where there are no more.
    head: BlockId,
    over: BlockId,
    /// The workgroup's place in its row.
    place: Part,
    /// The unit of the row that a tile begins with, the end of the share, and how much further the next one is than those behind it.
    unit: Part,
    end: Part,
    further: Part,
}

/// What a workgroup computes in a round: some depth of a tile.
#[derive(Clone, Copy)]
pub(super) struct Share {
    walk: Walked,
    /// The workgroup's number.
    number: Part,
    /// The tile among all.
    block: Part,
    ends: Ends,
    /// Its rounds.
    pub rounds: Part,
    /// The product of the tile, its first row and column, and the depth.
    pub batch: Part,
    pub first: (Part, Part),
    pub part: DepthPart,
}

impl Share {
    /// Rounds that a workgroup has of shared tiles.
    pub fn about(&self) -> u32 {
        self.walk.shares.units()
    }
}

impl Walked {
    /// From here on tiles are whole.
    fn go_whole(&self, w: &mut Writer) {
        let (b, s) = (&mut w.b, &self.shares);
        let first = b.add(self.place, s.shared() / s.band);
        let first = b.mul(first, s.rounds);
        b.copy_into(self.unit, first);
        b.copy_into(self.end, s.tiles / s.band * s.rounds);
        b.copy_into(self.further, (s.of_row() - 1) * s.rounds);
    }

    /// Goes on behind a tile of so many rounds.
    fn close(&self, w: &mut Writer, rounds: Part) {
        w.b.barrier();
        let next = w.b.add(self.unit, rounds);
        let next = w.b.add(next, self.further);
        w.b.copy_into(self.unit, next);
        w.b.branch_lt(self.unit, self.end, self.head);
        if self.shares.whole() > 0 {
            w.b.branch_lt(0u32, self.further, self.over);
            self.go_whole(w);
            w.b.branch_lt(self.unit, self.end, self.head);
        }
        w.b.place(self.over, "over");
    }
}

/// Stores what a workgroup has of its tiles and ends the kernel.
pub(super) fn store(
    mut w: Writer,
    cx: &Cx,
    p: &Product,
    share: &Share,
    outer: impl FnMut(&mut Writer, &View, usize) -> Offset,
) -> Res<Vec<Kernel>> {
    let (tile, s) = (p.tile, &share.walk.shares);
    let (whole, done) = (w.b.label(), w.b.label());
    w.b.branch_lt(s.rounds - 1, share.rounds, whole);
    let present = Present::of(&mut w, tile, &p.extents, &p.sums);
    let sums = present.among(&p.sums.parts);
    let mine = (share.number, &sums[..], present.lanes);
    let left = share.ends.leave(&mut w, (tile.threads(), s.groups), (share.block, s.shared()), mine, done);
    left.add(&mut w, &share.ends, tile.types.accumulate, &sums);
    w.b.place(whole, "whole");
    gemm::store(&mut w, cx, (tile, &p.sums), &p.walk, p.first, None, outer)?;
    w.b.place(done, "done");
    share.walk.close(&mut w, share.rounds);
    let e = &p.extents;
    let flops = 2 * (e.batches * e.m * e.n * e.k) as u64 * u64::from(tile.types.storage.held());
    let grid = [s.band, s.groups / s.band, 1];
    let [workspace, counters] = left.bytes;
    Ok(vec![Kernel { workspace, counters, sharing: grid, ..w.finish(grid, flops) }])
}

/// What is asked for in a round is there in each.
pub(super) fn prepare(w: &mut Writer, cx: &Cx) -> Res<()> {
    for i in 0..cx.step.inputs.len() {
        w.buffer(cx, Arg::Input(i))?;
    }
    w.buffer(cx, Arg::Output)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_what_ends_of_shares_leave() {
        for (groups, tiles, rounds, band) in [
            (304, 128, 128, 4),
            (304, 128, 128, 1),
            (8, 12, 5, 1),
            (8, 12, 6, 2),
            (96, 100, 7, 4),
            (6, 4, 9, 1),
            (6, 2, 9, 1),
        ] {
            let shares = Shares { groups, tiles, rounds, band };
            let (units, all) = (shares.units(), shares.shared() / band * rounds);
            // Tiles of a row whose units two and more workgroups have, each of which leaves a part.
            let owners = |tile: u32| ((tile + 1) * rounds - 1) / units - tile * rounds / units + 1;
            let parts: u32 = (0..all / rounds).map(owners).filter(|owners| *owners > 1).sum();
            assert_eq!(shares.parts(), band * parts, "{shares:?}");
        }
    }
}
