//! Products of a few rows, bound by memory: workitems own columns, and each element of the right operand is read once.
//!
//! A workgroup takes some columns over the whole depth. The lanes of a wave load four neighbouring columns each of a few k, as many lanes as the tile is wide;
//! others have the k behind these, and waves take turns in steps of the depth. What they load goes from memory straight to the registers in which it is
//! multiplied, several steps at a time, so that nobody waits for anybody until the depth is over. Then the sums meet in LDS; the first waves add them, always in
//! the same order, and store the results. No parts of sums go through memory, and no workgroup has to find out whether it is the last one.

use super::Writer;
use super::choice::{self, Ending, Extents, Machine, Round, multiply_add};
use super::error::{Reason, Res};
use super::fragment::{self, across, down};
use super::gemm::{self, Sums};
use super::loader::Source;
use super::strip::{LOAD, MULTIPLY, Shape, Strip};
use super::tile::{Form, Tile, Types, WIDEST};
use crate::mir::{BlockId, Builder, Gen, Pipeline, Term, Type};
use barewave_isa::Target;
use barewave_isa::matrix::Fragment;

/// Rows at most.
const ROWS: usize = 8;

/// Columns of tiles, waves, and steps of a wave that are on their way, of which those most that fit are considered: so many.
const WIDTHS: [u32; 3] = [32, 64, 128];
const WAVES: [u32; 3] = [4, 8, 16];
const STEPS: [u32; 6] = [8, 6, 4, 3, 2, 1];
const CONSIDERED: usize = 2;

/// Neighbouring columns of a workitem, and its k in a step: a load's worth of the left operand.
const COLUMNS: u32 = 4;
const DEPTH: u32 = 4;

/// LDS in which sums meet at most, in bytes.
const MEET: u32 = 36 * 1024;

/// Registers of a workitem besides sums and operands, and at most, where a SIMD has them for its share of a workgroup's waves: more leave
/// it few of others.
const OTHERS: u32 = 16;
const REGISTERS: u32 = 168;

/// How a workgroup multiplies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Few {
    /// Rows of the product, which the tile has all of. It has more: as many as its workitems would, with a result of [`COLUMNS`] columns each.
    pub rows: u32,
    /// Waves that share the depth, and their lanes.
    waves: u32,
    lanes: u32,
    /// Steps of a wave that are on their way.
    pub steps: u32,
}

/// Tiles and what a round of them takes; none where there are more rows, or operands have other lines.
pub(super) fn candidates(target: Target, types: Types, machine: &Machine, e: &Extents) -> Vec<(Tile, Round)> {
    let types = Types { matrix: None, ..types };
    let fits = e.few && e.lines && !e.deep.1 && e.m <= ROWS && types == Types::of(crate::tensor::DType::F32);
    if !fits {
        return Vec::new();
    }
    let (rows, lanes) = (e.m as u32, machine.lanes());
    let of = |(n, waves): (u32, u32)| {
        let steps = STEPS.into_iter().filter_map(move |steps| {
            let form = Few { rows, waves, lanes, steps };
            let m = waves * lanes * COLUMNS / n;
            let tile = Tile { types, m, n, k: 0, run: 1, buffers: 1, form: Form::Few(form) };
            let tile = Tile { k: waves * steps * form.step(&tile), ..tile };
            let round = form.round(target, &tile, machine, e);
            let whole = rows <= m && e.k.is_multiple_of(tile.k as usize) && round.lds <= MEET;
            let of_simd = waves.div_ceil(target.info().simds);
            let most = target.most_vgprs(lanes, of_simd).min(REGISTERS);
            (whole && round.vgprs <= most).then_some((tile, round))
        });
        steps.take(CONSIDERED)
    };
    WIDTHS.into_iter().flat_map(|n| WAVES.map(|w| (n, w))).flat_map(of).collect()
}

impl Few {
    /// Workitems.
    pub fn threads(&self) -> u32 {
        self.waves * self.lanes
    }

    /// Lanes that have columns of the same k side by side, and groups of them that have different k.
    fn in_row(&self, tile: &Tile) -> u32 {
        tile.n / COLUMNS
    }
    fn groups(&self, tile: &Tile) -> u32 {
        self.lanes / self.in_row(tile)
    }

    /// k of all lanes of a wave in a step.
    fn step(&self, tile: &Tile) -> u32 {
        DEPTH * self.groups(tile)
    }

    /// Registers for a workitem's sums of all rows.
    pub fn sums(&self, b: &mut Builder) -> Sums {
        let parts = (0..self.rows).map(|_| b.v(COLUMNS as u8)).collect();
        Sums { parts, per: COLUMNS, dwords: 1 }
    }

    /// Who has which results in the end: those of the first workitems are rows of the product.
    pub fn result(&self, tile: &Tile) -> Fragment {
        let in_row = self.in_row(tile);
        fragment::runs(&[(in_row, across(COLUMNS)), (self.threads() / in_row, down(1))], &[(COLUMNS, across(1))], 32)
    }

    /// Bytes of a part's sums in LDS, and how many parts there are.
    fn of_part(&self, tile: &Tile) -> u32 {
        self.rows * tile.n * 4
    }
    fn parts(&self, tile: &Tile) -> u32 {
        self.waves * self.groups(tile)
    }

    /// What a workgroup does for each k of a tile.
    fn round(&self, target: Target, tile: &Tile, machine: &Machine, e: &Extents) -> Round {
        let (groups, step) = (self.groups(tile), f64::from(self.step(tile)));
        let products = f64::from(self.rows * tile.n) / f64::from(self.lanes) * multiply_add(target, Type::F32);
        // Loads of a wave's step, and what moves their places.
        let moves = f64::from(DEPTH + self.rows + 2) / step * machine.issue;
        let loaded = machine.loaded(tile, e);
        // The first level gives a line at a time, whatever a load takes of it.
        let of_left = self.rows * machine.line.max(groups * WIDEST) / (DEPTH * groups);
        let lds = self.parts(tile) * self.of_part(tile);
        let moved = f64::from(2 * lds) / (machine.lds * f64::from(target.info().simds));
        Round {
            waves: self.waves,
            products,
            moves,
            spread: true,
            meetings: 0,
            loaded,
            given: (tile.n * 4 + of_left).max(loaded),
            own: COLUMNS,
            vgprs: COLUMNS * self.rows + self.steps * DEPTH * (COLUMNS + self.rows) + OTHERS,
            lds,
            behind: moved + 2.0 * choice::lds_answer(target),
            bare: 0.0,
            ending: Ending::default(),
            crowded: false,
        }
    }

    /// How lanes share an operand, of which they have so many neighbouring columns.
    fn shape(&self, tile: &Tile, columns: u32) -> Shape {
        let wide = if columns > 1 { columns } else { 0 };
        let f = fragment::runs(&[(self.in_row(tile), across(wide)), (self.groups(tile), down(DEPTH))], &[], 32);
        Shape {
            lane: f.lane,
            waves: self.waves,
            steps: self.steps,
            depth: DEPTH,
            step: self.step(tile),
            side: tile.n / COLUMNS,
            columns,
        }
    }

    /// Multiplies over a depth, a multiple of the tile's, and gives the results, and where waves have gone that have none.
    pub fn multiply(
        &self,
        w: &mut Writer,
        tile: &Tile,
        (left, right): (Source, Source),
        depth: u32,
    ) -> Res<(Sums, BlockId)> {
        if right.w_stride != 1 || left.k_stride != 1 {
            return Err(Reason::Malformed("lines that lie otherwise"));
        }
        let sums = gemm::zeros(&mut w.b, tile);
        let b = &mut w.b;
        let mut left = Strip::new(b, Shape { side: 1, ..self.shape(tile, 1) }, 4, left, self.rows);
        let mut right = Strip::new(b, self.shape(tile, COLUMNS), 4, right, tile.n);
        b.counted_loop("k", depth, tile.k, Pipeline::Stated, false, |b, _| {
            b.fix_order();
            for set in 0..self.steps as usize {
                b.stage(MULTIPLY);
                let (rows, columns) = (left.turned(b, set), right.turned(b, set));
                for k in 0..DEPTH as u8 {
                    for (row, sum) in (0..).zip(&sums.parts) {
                        for c in 0..COLUMNS as u8 {
                            b.fma_into(sum.dword(c), columns.part(c.into(), k, 1), rows.part(row, k, 1));
                        }
                    }
                }
                b.stage(LOAD);
                b.moves(Some(Term::A));
                left.load(b, set);
                b.moves(Some(Term::B));
                right.load(b, set);
                b.moves(None);
            }
            b.stage(MULTIPLY);
        });
        Ok(self.meet(w, tile, &sums))
    }

    /// Adds the sums of all groups and waves, which meet in LDS.
    fn meet(&self, w: &mut Writer, tile: &Tile, sums: &Sums) -> (Sums, BlockId) {
        let b = &mut w.b;
        let (in_row, groups) = (self.in_row(tile), self.groups(tile));
        let (of_part, of_row) = (self.of_part(tile), tile.n * 4);
        b.lds_of_at_least(self.parts(tile) * of_part);
        let item = b.workitem_id();
        let parts = fragment::runs(&[(in_row, down(COLUMNS * 4)), (groups * self.waves, down(of_part))], &[], 32);
        let write = fragment::coordinate(b, &parts, item, fragment::row, 1, None);
        let write = b.to_vector(write);
        for (row, sum) in (0..).zip(&sums.parts) {
            b.lds_write(write, *sum, row * of_row);
        }
        b.barrier();
        // Whole waves that have no row end here; lanes that have none do what those of the last one do.
        let (done, of_wave) = (b.label(), self.lanes / in_row);
        let row = b.shr(item, in_row.trailing_zeros());
        if self.rows <= (self.waves - 1) * of_wave {
            let first = b.uniform(row);
            b.branch_lt(self.rows - 1, first, done);
        }
        let within = b.and(item, in_row - 1);
        let within = b.mul(within, COLUMNS * 4);
        let row = match self.rows.is_multiple_of(of_wave) {
            true => row,
            false => b.op(Gen::Min.of(Type::U32), &[row.into(), (self.rows - 1).into()]),
        };
        let read = b.mad(row, of_row, within);
        let read = b.to_vector(read);
        let sum = b.lds_read(COLUMNS as u8, read, 0);
        for part in 1..self.parts(tile) {
            let more = b.lds_read(COLUMNS as u8, read, part * of_part);
            for c in 0..COLUMNS as u8 {
                let (sum, more) = (sum.dword(c), more.dword(c));
                b.emit(Gen::Add.of(Type::F32), &[sum.into()], &[sum.into(), more.into()]);
            }
        }
        (Sums { parts: vec![sum], per: COLUMNS, dwords: 1 }, done)
    }
}
