//! What the operands of a tile take of a workitem on their way to LDS: for the choice among tiles.

use super::MatrixForm;
use crate::kernels::choice::{Extents, Machine, Together};
use crate::kernels::loader::{COLUMNS, deep_load, is_of_whole_loads, is_stored_by_halves, wide_load, wide_own};
use crate::kernels::tile::{Form, Tile, WIDEST};

impl Tile {
    /// The same with transposing loads for some of the operands that may have them and that it divides in whole tiles, or for none.
    pub(super) fn ways_to_come(self, e: &Extents) -> impl Iterator<Item = Tile> {
        let whole = |o: usize, width: u32, all: usize| {
            let tiles = all.is_multiple_of(width as usize) && e.k.is_multiple_of(self.k as usize);
            e.transposed[o] && tiles && is_of_whole_loads(&self, width)
        };
        let may = match self.form {
            Form::Matrix(form) if !form.op.shape.sparse && !form.scaled => {
                [whole(0, self.m, e.m), whole(1, self.n, e.n)]
            }
            _ => [false; 2],
        };
        let all = [[false, false], [true, false], [false, true], [true, true]].into_iter();
        all.filter(move |t| (0..2).all(|o| may[o] || !t[o])).map(move |transposed| match self.form {
            Form::Matrix(form) => Tile { form: Form::Matrix(MatrixForm { transposed, ..form }), ..self },
            _ => self,
        })
    }

    /// Bytes per k of the lines that transposing loads ask the first-level cache for: each has 32 columns of a line. 0 where it has none.
    pub(super) fn lines_transposed(&self, machine: &Machine) -> u32 {
        let of = |(o, width): (usize, u32)| if self.is_transposed(o) { width / COLUMNS * machine.line } else { 0 };
        [self.m, self.n].into_iter().enumerate().map(of).sum()
    }

    /// Loads of a workitem for the tile of an operand, of so many elements at most.
    pub fn loads(&self, e: &Extents, operand: usize, together: u32) -> u32 {
        let (deep, width) = [(e.deep.0, self.m), (e.deep.1, self.n)][operand];
        if !deep {
            return wide_own(self, width) / wide_load(self, width, together);
        }
        let own = self.k * width / self.threads();
        own / deep_load(self, own, together, e.k as u32).1
    }

    /// What is loaded goes to LDS as it comes, or by halves of words.
    pub(super) fn comes_as_it_is_stored(&self, e: &Extents) -> bool {
        let operands = [(e.deep.0, self.m), (e.deep.1, self.n)].into_iter().zip(e.loads);
        operands.into_iter().all(|((deep, width), load)| deep || is_stored_by_halves(self, width, load.within))
    }

    /// Registers of a workitem for bytes of an operand that are turned before LDS stores them by halves of words: half of what it loads.
    pub(super) fn turned_by_halves(&self, e: &Extents) -> u32 {
        let bytes = self.types.bytes();
        let operands = [(e.deep.0, self.m), (e.deep.1, self.n)].into_iter().filter(|o| bytes == 1 && !o.0);
        operands.map(|(_, width)| width * self.k * bytes / (8 * self.threads())).max().unwrap_or(0)
    }

    /// What its operands take of a workitem over whole lines along the depth.
    pub(super) fn in_pieces(&self, e: &Extents) -> Pieces {
        let bytes = self.types.bytes();
        let mut all = Pieces::default();
        for o in [0, 1].into_iter().filter(|o| !self.is_transposed(*o)) {
            let (deep, width) = [(e.deep.0, self.m), (e.deep.1, self.n)][o];
            let width = if deep { width } else { width.next_power_of_two() };
            let held = f64::from(self.k * width * bytes) / f64::from(self.threads());
            let loads = self.loads(e, o, e.loads[o].within);
            all.loads += (f64::from(loads) - held / f64::from(WIDEST)).max(0.0);
            let by_halves = !deep && is_stored_by_halves(self, width, e.loads[o].within);
            if by_halves {
                all.stored += held / 2.0;
            }
            // Of elements that come one by one each but the first of a word is put beside others; words of lines along the width are turned in steps.
            let packed = match deep {
                _ if e.loads[o] == Together::ONE => 4 / bytes - 1,
                _ if e.gathers(o) && !e.comes_singly(o) => 1,
                true => 0,
                false => (4 / bytes).ilog2() - u32::from(by_halves),
            };
            all.packed += held / 4.0 * f64::from(packed);
        }
        all
    }

    /// Cycles of a SIMD per k for putting words together of operands that could come transposed, but do not.
    pub(super) fn packing(&self, machine: &Machine, e: &Extents) -> f64 {
        let bytes = self.types.bytes();
        let instructions = f64::from(2 / bytes);
        let whole = [(e.m, self.m), (e.n, self.n), (e.k, self.k)].map(|(all, of)| all.is_multiple_of(of as usize));
        let of = |(o, width): (usize, u32)| match e.transposed[o] && whole[o] && whole[2] && !self.is_transposed(o) {
            true => f64::from(width * bytes) / 4.0 * instructions / f64::from(machine.lanes()) * machine.issue,
            false => 0.0,
        };
        [self.m, self.n].into_iter().enumerate().map(of).sum()
    }
}

/// What operands of narrow elements take of a workitem for a tile, over what they would with whole lines along the depth.
#[derive(Default)]
pub(super) struct Pieces {
    /// Loads.
    pub loads: f64,
    /// Instructions that put words together of elements of several lines, or of those that come one by one.
    pub packed: f64,
    /// Instructions that store the halves of words one by one.
    pub stored: f64,
}

/// Rows and columns of a tile as they are loaded: lines along the width are as long as a power of two.
pub(super) fn loaded_widths(tile: &Tile, e: &Extents) -> [u32; 2] {
    [(tile.m, e.deep.0), (tile.n, e.deep.1)].map(|(width, deep)| if deep { width } else { width.next_power_of_two() })
}

/// Registers of a workitem for what it loads of a tile by loads of so many elements at most: each has one at least.
pub(super) fn loaded_words(tile: &Tile, e: &Extents, together: impl Fn(Together) -> u32) -> u32 {
    let widths = loaded_widths(tile, e);
    let of_loads = |o: usize| if e.comes_singly(o) { 1 } else { together(e.loads[o]).clamp(1, 4) };
    let bytes = |o: usize| tile.types.bytes().max(4 / of_loads(o));
    let cells: u32 = widths.iter().enumerate().map(|(o, width)| width * tile.of_operand(o).k * bytes(o)).sum();
    let words: u32 = [tile.m, tile.n].iter().enumerate().map(|(o, width)| tile.words_of(o, *width)).sum();
    (cells / 4 + words) / tile.threads()
}

/// Every workitem has something to load of all operands, and a pass has a whole row.
pub(super) fn can_load(tile: &Tile) -> bool {
    let threads = tile.threads();
    let fits = |tile: Tile, width: u32| {
        let own = tile.k / tile.run;
        (own * width).is_multiple_of(threads) && threads >= own.max(width)
    };
    let both = [tile.m, tile.n].iter().enumerate().all(|(o, width)| fits(tile.of_operand(o), *width));
    both && [tile.m, tile.n]
        .iter()
        .enumerate()
        .all(|(o, width)| !tile.has_words(o) || width.is_power_of_two() && fits(tile.of_words(), *width))
}
