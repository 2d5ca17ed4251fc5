//! Results of matrix instructions, regrouped through LDS so that a wave stores whole lines of memory.
//!
//! An instruction leaves a lane few columns of a row, and neighbouring lanes those of other rows: what is stored at once reaches many lines
//! of memory and fills none, and caches ask for each. So a wave writes the results of a row of its instruction tiles to LDS, side by side,
//! and reads them row by row, four columns a lane. Each wave has a part of LDS of its own, which takes its accesses in their order: nobody
//! waits for anybody, but once until all have read what was multiplied last ([`free`]).
//!
//! The results of the next row of tiles are on their way while those of one are stored.

use super::Writer;
use super::fragment::{self, across, down};
use super::gemm::{self, Sums};
use super::matrix::MatrixForm;
use super::tile::{Form, Tile, WIDEST};
use crate::mir::{Builder, Part};
use barewave_isa::matrix::{Fragment, Operand, Step};
use barewave_isa::{Class, op};

/// Columns that a lane has side by side.
const TOGETHER: u32 = 4;

/// Fewest columns of a row that are worth it.
const LEAST: u32 = 32;

/// Waits until all have read what was multiplied last, where results take its place in LDS.
pub(super) fn free(b: &mut Builder, tile: &Tile) {
    if Rows::of(tile).is_some() {
        b.barrier();
    }
}

/// How results are regrouped.
pub(super) struct Rows<'a> {
    form: &'a MatrixForm,
    tile: &'a Tile,
    /// Columns that lie side by side in LDS, and the bytes from one row to the next.
    span: u32,
    pitch: u32,
}

/// Results on their way.
pub(super) struct Turned {
    /// Where they will be.
    pub sums: Sums,
    /// Where a workitem writes and reads.
    write: Part,
    read: Part,
    /// Rows of tiles that are there.
    done: u32,
}

impl<'a> Rows<'a> {
    /// Of a tile; none where results stay as they are, or LDS has no room for them.
    pub fn of(tile: &'a Tile) -> Option<Rows<'a>> {
        let Form::Matrix(form) = &tile.form else { return None };
        let whole = (tile.n / form.waves.1).is_power_of_two();
        if !form.in_rows || !whole || tile.types.accumulate.dwords() > 1 {
            return None;
        }
        let (lanes, side) = (form.op.shape.lanes as u32, form.side());
        let room = tile.buffers * (tile.m + tile.n) * tile.k * tile.types.bytes();
        // Lanes that write at a time reach other banks: those of neighbouring rows, of which each writes a whole access or one dword.
        let apart = if form.swapped { WIDEST } else { 4 * side };
        let fits = |span: &u32| form.waves.0 * form.waves.1 * side * (4 * span + apart) <= room;
        let most = (tile.n / form.waves.1).min(TOGETHER * lanes);
        let span = std::iter::successors(Some(most), |s| Some(s / 2)).take_while(|s| *s >= LEAST).find(fits)?;
        // A read of all lanes has rows of one tile.
        (span * side >= TOGETHER * lanes).then_some(Rows { form, tile, span, pitch: 4 * span + apart })
    }

    /// Rows that are read at once.
    fn at_once(&self) -> u32 {
        TOGETHER * self.form.op.shape.lanes as u32 / self.span
    }

    /// Bytes of LDS of a wave.
    fn bytes(&self) -> u32 {
        self.form.side() * self.pitch
    }

    /// Which workitem has which results behind that, in which of its registers.
    pub fn fragment(&self) -> Fragment {
        let (down_waves, across_waves) = self.form.waves;
        let (own_m, own_n, side) = (self.tile.m / down_waves, self.tile.n / across_waves, self.form.side());
        let (lanes, rows) = (self.form.op.shape.lanes as u32, self.at_once());
        fragment::runs(
            &[
                (lanes / rows, across(TOGETHER)),
                (rows, down(1)),
                (across_waves, across(own_n)),
                (down_waves, down(own_m)),
            ],
            &[
                (TOGETHER, across(1)),
                (side / rows, down(rows)),
                (own_n / self.span, across(self.span)),
                (own_m / side, down(side)),
            ],
            32,
        )
    }

    /// Begins to regroup.
    pub fn begin(&self, w: &mut Writer) -> Turned {
        let b = &mut w.b;
        let waves = self.form.waves.0 * self.form.waves.1;
        b.lds_of_at_least(waves * self.bytes());
        let item = b.workitem_id();
        let byte = |s: &Step| down(s.row * self.pitch + 4 * s.col);
        let of_wave = |bit: u32| down(self.bytes() << bit);
        let address = |b: &mut Builder, lane: Vec<Step>| {
            let lane: Vec<Step> = lane.iter().map(byte).chain((0..waves.trailing_zeros()).map(of_wave)).collect();
            let f = Fragment { lane, position: Vec::new(), bits: 32, spacing: 32 };
            let at = fragment::coordinate(b, &f, item, fragment::row, 1, None);
            b.to_vector(at)
        };
        let write = address(b, self.form.result_of_one().lane);
        let own = self.form.op.shape.lanes.trailing_zeros() as usize;
        let read = address(b, self.fragment().lane[..own].to_vec());
        let parts =
            (0..self.tile.m * self.tile.n / self.tile.threads() / TOGETHER).map(|_| b.v(TOGETHER as u8)).collect();
        Turned { sums: Sums { parts, per: TOGETHER, dwords: 1 }, write, read, done: 0 }
    }

    /// Has the results of the row of tiles in which a row is, and has those of the next one on their way.
    pub fn reach(&self, w: &mut Writer, of: &Sums, turned: &mut Turned, row: u32) {
        let side = self.form.side();
        let all = self.tile.m / self.form.waves.0 / side;
        while turned.done < all.min(row / side + 2) {
            self.turn(w, of, turned);
            turned.done += 1;
        }
    }

    /// Regroups the results of the next row of tiles.
    fn turn(&self, w: &mut Writer, of: &Sums, turned: &Turned) {
        let (side, own_n) = (self.form.side(), self.tile.n / self.form.waves.1);
        let one = self.form.result_of_one();
        // Registers that follow each other may have columns that do.
        let beside = (0..TOGETHER.trailing_zeros()).all(|bit| one.element(0, 1 << bit) == (0, 1 << bit));
        let together = if beside { TOGETHER } else { 1 };
        let data = w.b.target().op(op::DS_WRITE_B128).and_then(|i| i.srcs.get(1));
        let as_they_are = data.is_some_and(|slot| slot.class.contains(Class::AGPR));
        let reads = side / self.at_once();
        let (tiles, spans) = (own_n / side, own_n / self.span);
        for s in 0..spans {
            let within = tiles / spans;
            for t in 0..within {
                let first = (turned.done * tiles + s * within + t) * of.per;
                for p in (0..of.per).step_by(together as usize) {
                    let (row, column) = one.element(0, p);
                    let data = of.slice(first + p, together);
                    let data = if as_they_are { data } else { gemm::in_vectors(w, data) };
                    w.b.lds_write(turned.write, data, row * self.pitch + 4 * (column + t * side));
                }
            }
            for r in 0..reads {
                let to = turned.sums.parts[((turned.done * spans + s) * reads + r) as usize];
                w.b.lds_read_into(to, turned.read, r * self.at_once() * self.pitch);
            }
        }
    }
}

impl MatrixForm {
    /// The result of one instruction, by the rows and columns of the product.
    fn result_of_one(&self) -> Fragment {
        let d = self.op.fragment(Operand::D).expect("a usable instruction");
        let turn = |s: &Step| if self.swapped { Step { row: s.col, col: s.row } } else { *s };
        Fragment { lane: d.lane.iter().map(turn).collect(), position: d.position.iter().map(turn).collect(), ..d }
    }
}
