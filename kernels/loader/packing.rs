//! Narrow elements that come with their neighbours along the width are put together with those of other k, in words along k: by the vector
//! ALU, or, of halves, by LDS, which stores each half of a word where it belongs ([`Halves`]).

use super::Common;
use crate::kernels::fragment::{self, across, down};
use crate::kernels::tile::{Form, Tile, WIDEST};
use crate::mir::{Builder, Gen, Part, Type};
use barewave_isa::matrix::{Fragment, Layout};
use barewave_isa::op;

/// The bytes of two words that one word takes: of `high` those from number 4 on, of `low` the others; 12 is a zero.
fn permuted(b: &mut Builder, dst: Part, high: Part, low: Part, selector: u32) {
    b.emit(op::V_PERM_B32, &[dst.into()], &[high.into(), low.into(), selector.into()]);
}

/// Puts the elements at `place` of two or four words together: halves or bytes.
pub(in crate::kernels) fn gather_word(b: &mut Builder, dst: Part, words: &[Part], place: u32) {
    if let [low, high] = *words {
        return permuted(b, dst, high, low, 0x0504_0100 + 0x0202_0202 * place);
    }
    let (low, high) = (b.v(1), b.v(1));
    permuted(b, high, words[3], words[2], 0x0400_0c0c + 0x0101_0000 * place);
    permuted(b, low, words[1], words[0], 0x0c0c_0400 + 0x0101 * place);
    b.emit(Gen::Or.of(Type::B32), &[dst.into()], &[low.into(), high.into()]);
}

/// Turns four words of four bytes: byte `c` of word `r` becomes byte `r` of `columns[c]`, which may be the same registers as `words`. The last
/// two words are taken first where they were loaded first.
pub(in crate::kernels) fn turn_bytes(b: &mut Builder, words: [Part; 4], columns: [Part; 4], late_first: bool) {
    const FIRST_TWO: u32 = 0x0501_0400;
    const LAST_TWO: u32 = 0x0703_0602;
    const LOW_HALVES: u32 = 0x0504_0100;
    const HIGH_HALVES: u32 = 0x0706_0302;
    // Of the words in pairs bytes 0 and 1 of both, and bytes 2 and 3.
    let first = [b.v(1), b.v(1)];
    for pair in if late_first { [1, 0] } else { [0, 1] } {
        permuted(b, first[pair], words[2 * pair + 1], words[2 * pair], FIRST_TWO);
        permuted(b, columns[2 * pair + 1], words[2 * pair + 1], words[2 * pair], LAST_TWO);
    }
    permuted(b, columns[2], columns[3], columns[1], LOW_HALVES);
    permuted(b, columns[3], columns[3], columns[1], HIGH_HALVES);
    permuted(b, columns[0], first[1], first[0], LOW_HALVES);
    permuted(b, columns[1], first[1], first[0], HIGH_HALVES);
}

/// Registers of loads of four bytes along the width that are turned where they are: of each pass those of `run` k, in tuples as they are written.
pub(super) struct TurnedBytes {
    tuples: Vec<Part>,
    run: u32,
}

impl TurnedBytes {
    /// Columns of a load.
    const COLUMNS: u32 = 4;

    /// For so many loads of `vec` elements; none where elements are not bytes, or loads and runs not whole words.
    pub fn new(b: &mut Builder, tile: &Tile, loads: u32, vec: u32) -> Option<TurnedBytes> {
        let run = tile.run;
        let whole = vec == Self::COLUMNS && matches!(run, 4 | 8 | 16);
        let bytes = tile.types.stored_bytes() == 1 && tile.types.bytes() == 1;
        let tuple = (WIDEST / 4) as u8;
        (bytes && whole)
            .then(|| TurnedBytes { tuples: (0..loads / u32::from(tuple)).map(|_| b.v(tuple)).collect(), run })
    }

    /// Columns that a tuple has the cells of.
    fn together(&self) -> u32 {
        WIDEST / self.run
    }

    /// Where the cell of a column of a pass has a word.
    fn word(&self, pass: u32, column: u32, word: u32) -> Part {
        let (together, words) = (self.together(), self.run / 4);
        let tuple = self.tuples[(pass * Self::COLUMNS / together + column / together) as usize];
        tuple.dword((column % together * words + word) as u8)
    }

    /// The register of each load: what is loaded of a k takes the place of the column of the same number among four.
    pub fn registers(&self) -> Vec<Part> {
        let loads = 0..self.tuples.len() as u32 * 4;
        loads.map(|l| self.word(l / self.run, l % 4, l % self.run / 4)).collect()
    }

    /// Turns what was loaded of each pass, and what `clear` leaves of it, and writes it to LDS at `base` and what the loader says.
    pub fn commit(&self, b: &mut Builder, common: &Common, base: u32, clear: impl Fn(&mut Builder, Part)) {
        let per_pass = (Self::COLUMNS / self.together()) as usize;
        for (pass, tuples) in (0..).zip(self.tuples.chunks(per_pass)) {
            let words = 0..self.run / 4;
            let words: Vec<u32> = if common.late_first { words.rev().collect() } else { words.collect() };
            for word in words {
                let all = [0, 1, 2, 3].map(|column| self.word(pass, column, word));
                let order = if common.late_first { [3, 2, 1, 0] } else { [0, 1, 2, 3] };
                order.into_iter().for_each(|i| clear(b, all[i]));
                turn_bytes(b, all, all, common.late_first);
            }
            for (tuple, column) in tuples.iter().zip((0..).step_by(self.together() as usize)) {
                b.lds_write(common.lds, *tuple, base + common.place(pass * self.run, column));
            }
        }
    }
}

/// How halves of lines along the width are dealt out that LDS stores one by one, where matrix instructions leave the vector ALU no room for putting words
/// together (RDNA3). A workitem has pairs of k, the two halves of a word of LDS. What a wave stores at a time are whole cells of as many columns as
/// reach all banks.
#[derive(Clone, Copy)]
pub(in crate::kernels) struct Halves {
    /// Columns of a load.
    pub vec: u32,
    /// Loads along a line.
    per_row: u32,
}

impl Halves {
    /// Columns of a load: such loads reach no more lines than those of whole rows do.
    const COLUMNS: [u32; 2] = [8, 4];
    /// Cells that all banks hold.
    const BESIDE: u32 = 8;

    /// Of a tile so wide, by loads of so many elements at most.
    pub fn of(tile: &Tile, width: u32, together: u32) -> Option<Halves> {
        let Form::Matrix(form) = tile.form else { return None };
        let halves = tile.types.stored_bytes() == 2 && tile.types.bytes() == 2 && tile.cell() == WIDEST;
        if form.op.shape.layout != Layout::Wmma11 || !halves || !width.is_power_of_two() {
            return None;
        }
        let fits = |vec: &u32| {
            let per_row = width / vec;
            let lanes = per_row * tile.run / 2;
            let deep = (tile.threads() / lanes.max(1)) * tile.run;
            per_row >= Self::BESIDE && *vec <= together && deep > 0 && tile.k.is_multiple_of(deep)
        };
        let vec = Self::COLUMNS.into_iter().find(fits)?;
        Some(Halves { vec, per_row: width / vec })
    }

    /// What a workitem moves of a tile.
    pub fn share(&self, tile: &Tile) -> Fragment {
        let (vec, pairs) = (self.vec, tile.run / 2);
        let runs = tile.threads() / (self.per_row * pairs);
        let lanes = [
            (Self::BESIDE, across(vec)),
            (pairs, down(2)),
            (self.per_row / Self::BESIDE, across(Self::BESIDE * vec)),
            (runs, down(tile.run)),
        ];
        let deep = runs * tile.run;
        fragment::runs(&lanes, &[(vec, across(1)), (2, down(1)), (tile.k / deep, down(deep))], Type::F16.bits())
    }

    /// Writes what was loaded to LDS at `base` and what the loader says.
    pub fn commit(&self, b: &mut Builder, common: &Common, base: u32) {
        for (load, reg) in (0..).zip(&common.regs) {
            for e in 0..self.vec {
                let word = reg.dword((e / 2) as u8);
                b.lds_write_half(common.lds, word, e % 2 > 0, base + common.place(load, e));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::matrix::MatrixForm;
    use crate::kernels::tile::{Layout as Places, Types};
    use crate::tensor::DType;
    use barewave_isa::Target;
    use std::collections::BTreeSet;

    /// Each element is somebody's, and what a wave stores at a time goes to as many banks as it has lanes.
    #[test]
    fn halves_reach_all_banks() {
        let types = Types::of(DType::BF16);
        let types = Types { compute: types.storage, ..types };
        let form = MatrixForm::of(Target::GFX1102, types, 16, true).unwrap();
        let of = |(m, n, k, waves): (u32, u32, u32, (u32, u32)), width: u32| {
            let form = Form::Matrix(MatrixForm { waves, ..form });
            let tile = Tile { types, m, n, k, run: 8, buffers: 1, form };
            let halves = Halves::of(&tile, width, 8)?;
            let (share, layout) = (halves.share(&tile), Places::wide(&tile, width, halves.vec));
            let own = k * width / tile.threads();
            let mut all = BTreeSet::new();
            for position in 0..own {
                for wave in 0..tile.threads() / 32 {
                    let lanes = (wave * 32..wave * 32 + 32).map(|item| share.element(item, position));
                    let places: Vec<u32> = lanes.map(|(k, column)| layout.at(k, column)).collect();
                    let banks: BTreeSet<u32> = places.iter().map(|at| at / 4 % 32).collect();
                    assert_eq!(banks.len(), 32, "{m}x{n}x{k}, position {position}");
                    all.extend(places);
                }
            }
            assert_eq!(all.len() as u32, k * width, "{m}x{n}x{k}");
            Some(halves.vec)
        };
        for (tile, [of_a, of_b]) in [
            ((128, 64, 32, (2, 2)), [Some(8), Some(8)]),
            ((64, 64, 64, (2, 2)), [Some(8), Some(8)]),
            ((32, 64, 64, (1, 2)), [Some(4), Some(8)]),
            ((256, 128, 32, (4, 2)), [Some(8), Some(8)]),
            ((16, 64, 32, (1, 1)), [None, Some(8)]),
        ] {
            assert_eq!([of(tile, tile.0), of(tile, tile.1)], [of_a, of_b], "{tile:?}");
        }
    }
}
