//! Equal shares of the work: where there are about as many blocks of queries as workgroups run at once, or blocks see different
//! numbers of keys, some compute units would stand still while others have a block more. Instead all tiles of keys of all blocks,
//! one block behind the other, are divided equally among as many workgroups as run at once. A workgroup computes the tiles of its
//! share, block by block ([`shares`](super::super::shares)); parts of a block are put together as those of shared keys are
//! ([`parts`](super::parts)), in the order of keys.
//!
//! Under a causal mask the blocks of a batch follow each other as 0, n-1, 1, n-2, ...: two neighbours then have as many tiles as
//! any other two, so that a division tells which block a tile is of.

use super::super::shares::Ends;
use super::plan::Plan;
use crate::mir::{BlockId, Builder, Gen, Part, Type};

/// How all units, tiles of keys of blocks, are divided.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Shares {
    /// Workgroups, and units of each.
    pub groups: u32,
    pub units: u32,
    work: Work,
}

/// Tiles of keys that blocks of queries see.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Work {
    /// Those of a batch's first block, and how many more each next one has.
    first: u32,
    more: u32,
    /// Blocks of a batch, and batches.
    blocks: u32,
    batches: u32,
}

/// What a workgroup computes in a round: tiles of a block.
#[derive(Clone, Copy)]
pub(super) struct Share {
    head: BlockId,
    /// The unit that it begins with, and the end of the share.
    unit: Part,
    end: Part,
    /// The block among all, its batch, and its number there.
    pub block: Part,
    pub batch: Part,
    pub block_of_batch: Part,
    /// First tile of keys, and how many.
    pub tile: Part,
    pub tiles: Part,
    /// Who has tiles of the block.
    pub ends: Ends,
}

impl Work {
    /// None where blocks do not see equally many more keys, one after the other.
    pub fn of(plan: &Plan) -> Option<Work> {
        let (e, keys) = (&plan.e, plan.keys);
        let blocks = plan.blocks();
        let batches = e.batches as u32;
        let Some(past) = e.causal else {
            return Some(Work { first: (e.keys as u32).div_ceil(keys), more: 0, blocks, batches });
        };
        let past = u32::try_from(past).ok()?;
        let linear = plan.queries.is_multiple_of(keys) && past as usize + e.queries <= e.keys;
        let first = past.checked_add(plan.queries)?.div_ceil(keys);
        linear.then_some(Work { first, more: plan.queries / keys, blocks, batches })
    }

    /// Units of two blocks that follow each other, and of a batch.
    fn of_two(&self) -> u32 {
        2 * self.first + self.more * (self.blocks - 1)
    }
    fn of_batch(&self) -> u64 {
        u64::from(self.blocks) * u64::from(self.of_two()) / 2
    }

    /// All units.
    pub fn units(&self) -> u64 {
        self.of_batch() * u64::from(self.batches)
    }

    /// Units of the block that has most.
    pub fn most(&self) -> u32 {
        self.first + self.more * (self.blocks - 1)
    }

    /// Shares for so many workgroups at most; none where each would have a few units only.
    pub fn shared(self, groups: u32) -> Option<Shares> {
        let all = u32::try_from(self.units()).ok().filter(|n| *n < 1 << 31)?;
        let units = all.div_ceil(groups);
        (units >= FEWEST).then(|| Shares { groups: all.div_ceil(units), units, work: self })
    }
}

/// Units of a share at least, and less than what are few.
const FEWEST: u32 = 2;
const FEW: u64 = 8;

impl Shares {
    /// Shares, or blocks, have few tiles.
    pub fn are_few(&self) -> bool {
        let of_block = self.work.of_batch() / u64::from(self.work.blocks);
        u64::from(self.units).min(of_block) < FEW
    }

    /// Blocks that a share has tiles of beyond the first, about.
    pub fn blocks(&self) -> f64 {
        let work = &self.work;
        f64::from(self.units) * f64::from(work.blocks) / work.of_batch() as f64
    }

    /// Begins a round over the blocks of the workgroup's share.
    pub fn open(&self, b: &mut Builder) -> Share {
        let Work { first, more, blocks, batches } = self.work;
        let all = self.work.units() as u32;
        let min = |b: &mut Builder, x: Part, y: Part| b.generic(Gen::Min.of(Type::U32), &[x.into(), y.into()]);
        let number = b.workgroup_id(0);
        let start = b.mul(number, self.units);
        let unit = b.s(1);
        b.copy_into(unit, start);
        let end = b.add(start, self.units);
        let most = b.scalar(all);
        let end = min(b, end, most);
        let head = b.block("share");
        let (batch, own) = match batches {
            1 => (b.scalar(0), unit),
            _ => b.divmod(unit, self.work.of_batch() as u32),
        };
        let (block_of_batch, tile, whole) = if more == 0 {
            let (block, tile) = b.divmod(own, first);
            (block, tile, b.scalar(first))
        } else {
            let (pair, rest) = b.divmod(own, self.work.of_two());
            let of_first = b.mad(pair, more, first);
            let behind = b.sub(rest, of_first);
            // All bits where the tile is of the first of the two.
            let one = b.generic(Gen::Shr.of(Type::I32), &[behind.into(), 31u32.into()]);
            let last = b.scalar(blocks - 1);
            let other = b.sub(last, pair);
            let pick = |b: &mut Builder, x: Part, y: Part| {
                let different = b.generic(Gen::Xor.of(Type::U32), &[x.into(), y.into()]);
                let different = b.and(different, one);
                b.generic(Gen::Xor.of(Type::U32), &[y.into(), different.into()])
            };
            let block = pick(b, pair, other);
            let tile = pick(b, rest, behind);
            let whole = b.mad(block, more, first);
            (block, tile, whole)
        };
        let left = b.sub(end, unit);
        let tiles = b.sub(whole, tile);
        let tiles = min(b, tiles, left);
        let begins = b.sub(unit, tile);
        let ends = Ends::of(b, begins, whole, self.units);
        let block = b.mad(batch, blocks, block_of_batch);
        Share { head, unit, end, block, batch, block_of_batch, tile, tiles, ends }
    }
}

impl Share {
    /// Goes on with the next block of the share.
    pub fn close(&self, b: &mut Builder) {
        b.barrier();
        let next = b.add(self.unit, self.tiles);
        b.copy_into(self.unit, next);
        b.branch_lt(self.unit, self.end, self.head);
    }
}
