//! Lines along the depth: a workitem loads pieces of them, and writes whole cells.

use super::ends::{End, Kept};
use super::{
    Common, Layout, Loader, Sideways, Source, Starts, deep_load, first_element, last_first, start_offset, tally,
};
use crate::kernels::fragment::{self, across, down};
use crate::kernels::tile::{Order, Tile, WIDEST};
use crate::mir::{Builder, Part};
use barewave_isa::matrix::Fragment;

/// See [`Loader::Deep`].
pub(in super::super) struct Deep {
    pub(super) common: Common,
    pub(super) src: Source,
    /// First k of this workitem.
    k_first: Part,
    /// Offset of its first element in the tile that is loaded next.
    pub(super) voff: Part,
    pub(super) starts: Starts,
    /// Loads of a column.
    pub(super) loads: u32,
    end: End,
    kept: Option<Kept>,
    /// What is counted of rows, if anything.
    pub(super) tally: Option<tally::Tally>,
    /// Where tiles follow each other along the width.
    pub(super) sideways: Option<Sideways>,
}

/// What a workitem moves of a tile so wide, `own` elements of a line at a time.
pub(super) fn share(tile: &Tile, width: u32, own: u32) -> Fragment {
    let per_col = tile.k / own;
    let cols = tile.threads() / per_col;
    // Who writes whole cells does so beside those with other columns.
    let beside = if tile.cell() == WIDEST { cols.min(8) } else { 1 };
    // Halves of words are put together with those of the next column.
    let both = if tile.cell() == 2 && width / cols > 1 { 2 } else { 1 };
    fragment::runs(
        &[(beside, across(1)), (per_col, down(own)), (cols / beside, across(beside * both))],
        &[(own, down(1)), (both, across(1)), (width / cols / both, across(cols * both))],
        tile.types.stored_bytes() * 8,
    )
}

/// See [`dense_together`](super::dense_together).
pub(super) fn deep(
    b: &mut Builder,
    mut src: Source,
    tile: &Tile,
    (width, order): (u32, Order),
    together: u32,
    item: Part,
) -> Loader {
    let (threads, size) = (tile.threads(), tile.types.stored_bytes());
    // Of cells that lie apart no load has more than one.
    assert!(src.k_stride == 1 || tile.cell() == WIDEST, "a matrix has dense rows or dense columns");
    let (own, vec) = deep_load(tile, tile.k * width / threads, together, src.depth);
    let mut share = share(tile, width, own);
    // Places side by side, of whichever columns.
    share.lane.iter_mut().chain(&mut share.position).for_each(|step| step.col = order.column(step.col));
    let layout = Layout::deep(tile, width).ordered(order);
    let (k_first, voff) = first_element(b, &src, &share, item, size.trailing_zeros());
    let regs = Common::registers(b, tile, width * tile.k / threads / vec, vec);
    let common = Common::new(b, tile, share, layout, (vec, regs), item);
    let end = End::of(b, &mut src, tile.k);
    let first = start_offset(b, &src, size);
    let loads = 0..common.regs.len() as u32;
    let starts = Starts::new(b, tile, first, loads.map(|l| src.element(common.k(l), common.column(l)) * size));
    let loads = own / vec;
    let kept = Kept::of(b, &end, &common, k_first, loads);
    Loader::Deep(Deep { common, src, k_first, voff, starts, loads, end, kept, sideways: None, tally: None })
}

impl Deep {
    pub(super) fn issue(&mut self, b: &mut Builder, k: Part) {
        let c = &self.common;
        let k = self.src.depth_of(b, k, !matches!(self.end, End::Behind));
        self.end.reach(b, &self.src, k);
        let size = c.types.stored_bytes();
        let mut offsets = Vec::new();
        for l in 0..self.loads {
            offsets.push(if self.end.is_within() {
                let at = if self.sideways.is_some() { self.k_first } else { b.add(self.k_first, k) };
                let at = if l > 0 { b.add(at, c.k(l)) } else { at };
                self.end.guarded(b, self.voff, self.src.depth, at)
            } else {
                self.voff
            });
        }
        for (load, &reg) in c.regs.iter().enumerate() {
            let imm = self.src.element(c.k(load as u32), c.column(load as u32)) * size;
            let mut voff = offsets[load % offsets.len()];
            if let Some(s) = self.sideways {
                voff = s.guarded(b, voff, c.column(load as u32), k);
            }
            let (soff, near) = self.starts.of(imm);
            c.note(b, load as u32);
            c.load(b, reg, c.vec, self.src.buf, (voff, soff, near));
        }
        let next = self.sideways.map_or(c.depth * self.src.k_stride * size, |s| s.step);
        self.starts.advance(b, self.voff, next);
    }

    pub(super) fn commit(&self, b: &mut Builder, base: u32) {
        let vec = self.common.vec;
        self.common.write_lines(b, base, self.loads, |b, pass, regs| {
            if let Some(kept) = &self.kept {
                kept.clear(b, regs);
            }
            if let Some(tally) = &self.tally {
                tally.add(b, pass, regs, vec);
            }
        });
    }
}

impl Common {
    /// Writes lines along the depth, of which a workitem has loaded pieces by so many loads each; `before` changes or counts what was loaded of one.
    pub(super) fn write_lines(
        &self,
        b: &mut Builder,
        base: u32,
        loads: u32,
        before: impl Fn(&mut Builder, usize, &[Part]),
    ) {
        let passes: Vec<(usize, &[Part])> = self.regs.chunks(loads as usize).enumerate().collect();
        let passes = if self.late_first && loads == 1 { last_first(&passes) } else { passes };
        let both = self.is_of_halves() && self.regs.len() > 1;
        for (pass, regs) in passes {
            let first = pass as u32 * loads;
            before(b, pass, regs);
            if both {
                // With the column before, which is ready too.
                if pass % 2 > 0 {
                    self.write_both(b, base, pass as u32 - 1);
                }
            } else if self.run == 1 {
                // Transposed: every k goes to its own row.
                for e in 0..self.vec {
                    let at = base + self.place(b, first, e);
                    if self.is_of_halves() {
                        b.lds_write_half(self.lds, regs[0].dword((e / 2) as u8), e % 2 > 0, at);
                        continue;
                    }
                    let x = self.converted(b, regs[0], e, 1);
                    b.lds_write(self.lds, x, at);
                }
            } else if self.vec == 1 {
                for (r, regs) in regs.chunks(self.run as usize).enumerate() {
                    let at = base + self.place(b, first + r as u32 * self.run, 0);
                    self.write_packed(b, regs, (0, 0), 1, at);
                }
            } else {
                // Whole cells of a load, or a part of one.
                let own = self.vec.min(self.run);
                let words = (own * self.types.stored_bytes() / 4) as u8;
                for (l, reg) in regs.iter().enumerate() {
                    for e in (0..self.vec).step_by(own as usize) {
                        let data = reg.slice((e * self.types.stored_bytes() / 4) as u8, words);
                        let at = base + self.place(b, first + l as u32, e);
                        b.lds_write(self.lds, data, at);
                    }
                }
            }
        }
    }
}
