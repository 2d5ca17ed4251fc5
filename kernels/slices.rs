//! Products by matrix instructions whose waves share the depth.
//!
//! The waves of a workgroup take turns in steps of the depth, each with the whole tile, and with operands that go from memory straight to
//! the registers in which they are multiplied: they do not pass through LDS, waves do not wait for each other, and several steps of each are
//! on their way at any time. What the waves have summed meets in LDS when the depth is over, and is added in their order.
//!
//! That is for products of few results: where a compute unit has a workgroup or two, a loop whose waves meet in every round
//! ([`rounds`](super::rounds)) waits for memory and for LDS with nothing beside it.
//!
//! A lane has consecutive k of a row or column, as its instructions need them. Where lines lie along k it loads them; where they lie along
//! the width it loads neighbouring columns of as many lines, of which each goes to another instruction tile.

use super::Writer;
use super::choice::{self, Ending, Extents, Machine, Round};
use super::error::{Reason, Res};
use super::fragment::{self, across, down};
use super::gemm::{self, Sums};
use super::loader::Source;
use super::loader::tally::Tally;
use super::matrix::{self, MatrixForm};
use super::strip::{LOAD, MULTIPLY, Shape, Strip};
use super::tile::{Form, Tile, Types, WIDEST};
use crate::mir::{Builder, Gen, MInst, Part, Pipeline, Term};
use barewave_isa::Target;
use barewave_isa::matrix::{Fragment, Operand, Step};

/// Side of the instructions.
const SIDE: u32 = 16;

/// Rows and columns of tiles, waves, and steps of a wave that are on their way, of which those most that fit are considered: so many.
const TILES: [[u32; 2]; 7] = [[64, 64], [64, 32], [32, 64], [32, 32], [16, 64], [16, 128], [32, 128]];
const WAVES: [u32; 2] = [4, 8];
const STEPS: [u32; 5] = [6, 4, 3, 2, 1];
const CONSIDERED: u32 = 2;

/// Columns of a result that a workitem has side by side.
const TOGETHER: u32 = 4;

/// LDS in which sums meet, in bytes: so much at a time.
const MEET: u32 = 36 * 1024;

/// Registers of a workitem besides sums and operands.
const OTHERS: u32 = 24;

/// How a workgroup multiplies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sliced {
    /// What each wave multiplies the whole tile with.
    matrix: MatrixForm,
    /// Waves that share the depth.
    waves: u32,
    /// Steps of a wave that are on their way.
    pub steps: u32,
    /// k of a lane in a step, of which an instruction takes `own`, and groups of lanes that have different k.
    depth: u32,
    own: u32,
    groups: u32,
    /// Neighbouring columns that a lane loads; 1 where the right operand's lines lie along k.
    columns: u32,
}

/// Tiles and what a round of them takes; none where the target has no such instruction for the types, or operands have other lines.
pub(super) fn candidates(target: Target, types: Types, machine: &Machine, e: &Extents) -> Vec<(Tile, Round)> {
    // Columns that a lane loads beside each other are put together for instructions that take one k of a lane, or narrow elements.
    let types = if e.deep.1 { types } else { Types { matrix: None, ..types } };
    let types = matrix::types_of(types);
    let bytes = types.bytes();
    let fits = e.lines && bytes <= 4 && types.accumulate.dwords() == 1;
    let Some(matrix) = MatrixForm::of(target, types, SIDE as usize, false).filter(|_| fits) else { return Vec::new() };
    let Some(side) = matrix.operand(Operand::A) else { return Vec::new() };
    let (own, groups, run) = (side.own, side.groups, WIDEST / bytes);
    let depth = own.max(run);
    let columns_of = |n: u32| if e.deep.1 { 1 } else { (n / SIDE).min(WIDEST / bytes).min(4) };
    let mut found = Vec::new();
    for ([m, n], waves) in TILES.into_iter().flat_map(|t| WAVES.map(|w| (t, w))) {
        let mut fit = 0;
        for steps in STEPS {
            let (k, columns) = (waves * steps * depth * groups, columns_of(n));
            let form = Sliced { matrix, waves, steps, depth, own, groups, columns };
            let tile = Tile { types, m, n, k, run, buffers: 1, form: Form::Sliced(form) };
            let loads = columns == 1 || columns * bytes >= 4 && (bytes < 4 || own == 1);
            let whole = e.k.is_multiple_of(k as usize) && loads;
            let threads = tile.threads();
            if !whole || m * n < TOGETHER * threads || form.rows_at_once(&tile).is_none() {
                continue;
            }
            let round = form.round(target, &tile, machine, e);
            if machine.holds(&round, 0) {
                found.push((tile, round));
                fit += 1;
            }
            if fit == CONSIDERED {
                break;
            }
        }
    }
    found
}

impl Sliced {
    /// Workitems.
    pub fn threads(&self) -> u32 {
        self.waves * self.matrix.op.shape.lanes as u32
    }

    /// Registers for the sums of a wave.
    pub fn sums(&self, b: &mut Builder, tile: &Tile) -> Sums {
        self.matrix.sums(b, tile)
    }

    /// k of all lanes of a wave in a step.
    fn step_depth(&self) -> u32 {
        self.depth * self.groups
    }

    /// Dwords of what a lane multiplies of an instruction tile in a step.
    fn dwords(&self, tile: &Tile) -> u32 {
        self.depth * tile.types.bytes() / 4
    }

    /// Bytes from a row to the next where sums meet: lanes of different rows reach other banks.
    fn pitch(&self, tile: &Tile) -> u32 {
        (tile.n + TOGETHER) * 4
    }

    /// Rows of all waves that meet at a time: whole instruction tiles, of which each workitem has some; none where LDS has no room for them.
    fn rows_at_once(&self, tile: &Tile) -> Option<u32> {
        let fits = |rows: &u32| {
            tile.m.is_multiple_of(*rows)
                && rows * tile.n >= TOGETHER * self.threads()
                && self.waves * rows * self.pitch(tile) <= MEET
        };
        [64, 32, 16].into_iter().find(fits)
    }

    /// Who has which results in the end, in which registers.
    pub fn result(&self, tile: &Tile) -> Fragment {
        let (in_row, at_once) = (tile.n / TOGETHER, self.rows_at_once(tile).unwrap_or(tile.m));
        let rows = self.threads() / in_row;
        fragment::runs(
            &[(in_row, across(TOGETHER)), (rows, down(1))],
            &[(TOGETHER, across(1)), (at_once / rows, down(rows)), (tile.m / at_once, down(at_once))],
            32,
        )
    }

    /// What a workgroup does for each k of a tile.
    fn round(&self, target: Target, tile: &Tile, machine: &Machine, e: &Extents) -> Round {
        let (types, step) = (tile.types, f64::from(self.step_depth()));
        let (down, across) = (tile.m / SIDE, tile.n / SIDE);
        let dwords = self.dwords(tile);
        let of_one = f64::from(SIDE * SIDE) * f64::from(self.matrix.depth());
        let products = f64::from(tile.m * tile.n) / of_one * self.matrix.clocks(target);
        // Loads of a wave's step, and what puts columns together.
        let loads = match self.columns {
            1 => (down + across) * dwords / 4,
            columns => down * dwords / 4 + across / columns * self.depth,
        };
        let turned = if self.columns > 1 && types.bytes() < 4 { across * dwords } else { 0 };
        let moves = f64::from(loads + turned) / step * machine.issue;
        let loaded = machine.loaded(tile, e);
        // The first level gives a line at a time, whatever a load takes of it: lanes of a row their k, those of a k their columns.
        let lines = |width: u32, together: u32| width * types.bytes() * (machine.line / together).max(1);
        let of_row = self.groups * WIDEST;
        let of_k = if self.columns == 1 { of_row } else { SIDE * self.columns * types.bytes() };
        let given = lines(tile.m, of_row) + lines(tile.n, of_k);
        let t = target.info();
        let apart = t.max_agprs > 0 && !t.unified_agprs;
        let sums = if apart { 0 } else { tile.m * tile.n / self.matrix.op.shape.lanes as u32 };
        let vgprs = sums + self.steps * (down + across) * dwords + turned.max(4) + OTHERS;
        let rows = self.rows_at_once(tile).unwrap_or(tile.m);
        let lds = self.room(tile);
        // Each sum is written and read, and waves wait for each other and for LDS.
        let moved = f64::from(2 * self.waves * tile.m * tile.n * 4) / (machine.lds * f64::from(t.simds));
        let behind = moved + f64::from(tile.m / rows) * 2.0 * choice::lds_answer(target);
        Round {
            waves: self.waves,
            products,
            moves,
            spread: true,
            meetings: 0,
            loaded,
            given: given.max(loaded),
            own: tile.m * tile.n / tile.threads(),
            vgprs,
            lds,
            behind,
            bare: 0.0,
            ending: Ending::default(),
            crowded: false,
        }
    }

    /// No two lanes of a wave have the same elements of the left operand.
    pub fn has_lanes_apart(&self) -> bool {
        let left = self.matrix.operand(Operand::A);
        left.is_some_and(|a| a.lanes.iter().all(|s| s.row > 0 || s.col > 0))
    }

    /// Workitems that share a row of the left operand.
    pub fn members(&self) -> u32 {
        self.waves * self.groups
    }

    /// Bytes of LDS in which sums meet.
    pub fn room(&self, tile: &Tile) -> u32 {
        self.waves * self.rows_at_once(tile).unwrap_or(tile.m) * self.pitch(tile)
    }

    /// Multiplies over a depth, a multiple of the tile's, and gives the sums of all waves.
    pub fn multiply(&self, w: &mut Writer, tile: &Tile, sources: (Source, Source), depth: u32) -> Res<Sums> {
        let nothing = |_: &mut Writer, _: &Tally| Ok(None::<()>);
        self.multiply_and_count(w, tile, sources, depth, None, nothing).map(|(sums, _)| sums)
    }

    /// The same. Where `center` is given the left operand's rows are counted, and `behind` is told of them before sums meet.
    pub fn multiply_and_count<T>(
        &self,
        w: &mut Writer,
        tile: &Tile,
        (left, right): (Source, Source),
        depth: u32,
        center: Option<bool>,
        behind: impl FnOnce(&mut Writer, &Tally) -> Res<Option<T>>,
    ) -> Res<(Sums, Option<T>)> {
        if right.w_stride == 1 && self.columns == 1 || left.k_stride != 1 {
            return Err(Reason::Malformed("lines that lie otherwise"));
        }
        let sums = gemm::zeros(&mut w.b, tile);
        let b = &mut w.b;
        let bytes = tile.types.bytes();
        let mut left = Strip::new(b, self.shape(1), bytes, left, tile.m);
        let mut right = Strip::new(b, self.shape(self.columns), bytes, right, tile.n);
        let tally = center.map(|center| left.count_rows(b, self.members(), tile.types.storage, center));
        b.counted_loop("k", depth, tile.k, Pipeline::Stated, false, |b, _| {
            b.fix_order();
            let mut loads = Vec::new();
            for set in 0..self.steps as usize {
                b.stage(MULTIPLY);
                let mut products = b.aside(|b| self.step(b, tile, &sums.parts, (&left, &right), set));
                if let Some(tally) = &tally {
                    let counts = b.aside(|b| left.count(b, tally, set));
                    if tally.changes() {
                        products.splice(0..0, counts);
                    } else {
                        loads.extend(counts);
                    }
                }
                // Registers are loaded again among the products of those behind them.
                b.spread(products, loads);
                b.stage(LOAD);
                loads = b.aside(|b| {
                    b.moves(Some(Term::A));
                    left.load(b, set);
                    b.moves(Some(Term::B));
                    right.load(b, set);
                    b.moves(None);
                });
            }
            b.append(loads);
            b.stage(MULTIPLY);
        });
        w.b.lds_of_at_least(self.room(tile));
        let found = tally.map_or(Ok(None), |tally| behind(w, &tally))?;
        Ok((self.meet(w, tile, &sums), found))
    }

    /// How lanes share an operand, of which they load so many neighbouring columns.
    fn shape(&self, columns: u32) -> Shape {
        let lanes = self.matrix.operand(Operand::A).map_or(Vec::new(), |a| a.lanes);
        Shape {
            lane: lanes.iter().map(|s| Step { row: s.col * self.depth, col: s.row * columns }).collect(),
            waves: self.waves,
            steps: self.steps,
            depth: self.depth,
            step: self.step_depth(),
            side: SIDE,
            columns,
        }
    }

    /// Multiplies what was loaded for a step.
    fn step(&self, b: &mut Builder, tile: &Tile, sums: &[Part], (left, right): (&Strip, &Strip), set: usize) {
        let (rows, columns) = (left.turned(b, set), right.turned(b, set));
        let dwords = (self.own * tile.types.bytes() / 4) as u8;
        let across = tile.n / SIDE;
        for q in 0..(self.depth / self.own) as u8 {
            for i in 0..tile.m / SIDE {
                for j in 0..across {
                    let (x, y) = (rows.part(i, q, dwords), columns.part(j, q, dwords));
                    let column = j / self.columns * self.columns * SIDE + j % self.columns;
                    let k = set as u32 * self.waves * self.step_depth() + u32::from(q) * self.own;
                    b.product(Some((i * SIDE, column, k)));
                    self.matrix.multiply_add(b, sums[(i * across + j) as usize], x, y);
                }
            }
        }
        b.product(None);
    }

    /// Adds the sums of all waves, which meet in LDS some rows at a time.
    fn meet(&self, w: &mut Writer, tile: &Tile, sums: &Sums) -> Sums {
        let rows = self.rows_at_once(tile).unwrap_or(tile.m);
        let (pitch, across_tiles) = (self.pitch(tile), tile.n / SIDE);
        let of_wave = rows * pitch;
        let item = w.b.workitem_id();
        let Some(one) = self.matrix.op.fragment(Operand::D) else {
            return Sums { parts: Vec::new(), per: 1, dwords: 1 };
        };
        let address = |w: &mut Writer, lane: Vec<Step>| {
            let f = Fragment { lane, position: Vec::new(), bits: 32, spacing: 32 };
            let at = fragment::coordinate(&mut w.b, &f, item, fragment::row, 1, None);
            w.b.to_vector(at)
        };
        // A column of a lane's neighbours is in another instruction tile than the next.
        let place = |column: u32| {
            let wide = SIDE * self.columns;
            let (tiles, within) = (column / wide, column % wide);
            (tiles * wide + within % self.columns * SIDE + within / self.columns) * 4
        };
        let waves = (0..self.waves.trailing_zeros()).map(|bit| down(of_wave << bit));
        let write = one.lane.iter().map(|s| down(s.row * pitch + s.col * 4)).chain(waves).collect();
        let write = address(w, write);
        let result = self.result(tile);
        let read = result.lane.iter().map(|s| down(s.row * pitch + place(s.col))).collect();
        let read = address(w, read);
        let ty = tile.types.accumulate;
        let mut parts = Vec::new();
        for first in (0..tile.m).step_by(rows as usize) {
            if first > 0 {
                w.b.barrier();
            }
            for (i, j) in (0..rows / SIDE).flat_map(|i| (0..across_tiles).map(move |j| (i, j))) {
                let part = gemm::in_vectors(w, sums.parts[((first / SIDE + i) * across_tiles + j) as usize]);
                for p in 0..one.positions() {
                    let (row, column) = one.element(0, p);
                    let at = (i * SIDE + row) * pitch + (j * SIDE + column) * 4;
                    w.b.lds_write(write, part.dword(p as u8), at);
                }
            }
            w.b.barrier();
            let own = rows * tile.n / self.threads();
            for p in (0..own).step_by(TOGETHER as usize) {
                let row = result.element(0, p).0;
                let sum = w.b.v(TOGETHER as u8);
                let read_one = |w: &mut Writer, to: Part, wave: u32| {
                    let base = wave * of_wave + row * pitch;
                    // What lies together in LDS too is read at once: columns that are so far apart.
                    let together = TOGETHER / self.columns;
                    let as_it_is = self.columns == 1 || together == 1;
                    let held = if as_it_is { to } else { w.b.v(TOGETHER as u8) };
                    for c in (0..TOGETHER).step_by(together as usize) {
                        let piece = held.slice(c as u8, together as u8);
                        w.b.lds_read_into(piece, read, base + place(c / together));
                    }
                    if !as_it_is {
                        for c in 0..TOGETHER {
                            let from = c % self.columns * together + c / self.columns;
                            w.b.copy_into(to.dword(c as u8), held.dword(from as u8));
                        }
                    }
                };
                read_one(w, sum, 0);
                for wave in 1..self.waves {
                    let more = w.b.v(TOGETHER as u8);
                    read_one(w, more, wave);
                    for c in 0..TOGETHER as u8 {
                        let (sum, more) = (sum.dword(c), more.dword(c));
                        w.b.emit(Gen::Add.of(ty), &[sum.into()], &[sum.into(), more.into()]);
                    }
                }
                parts.push(sum);
            }
        }
        Sums { parts, per: TOGETHER, dwords: 1 }
    }
}

impl MatrixForm {
    /// Multiplies an instruction tile of rows and one of columns.
    fn multiply_add(&self, b: &mut Builder, sum: Part, rows: Part, columns: Part) {
        let mods = crate::mir::matrix_modifiers(self.instruction, &self.op);
        let srcs = [rows.into(), columns.into(), sum.into()];
        b.push(MInst { mods, ..MInst::new(self.instruction, &[sum.into()], &srcs) });
    }
}
