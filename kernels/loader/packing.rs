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

/// Of two words their bytes 0 and 1 in turn, and their bytes 2 and 3.
const FIRST_TWO: u32 = 0x0501_0400;
const LAST_TWO: u32 = 0x0703_0602;

/// Puts the elements at `place` of two or four words together: halves or bytes.
pub(in crate::kernels) fn gather_word(b: &mut Builder, dst: Part, words: &[Part], place: u32) {
    if let [word] = *words {
        return b.copy_into(dst, word);
    }
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
                let at = base + common.place(b, pass * self.run, column);
                b.lds_write(common.lds, *tuple, at);
            }
        }
    }
}

impl Common {
    /// Cells are halves of words, as memory has them.
    pub(super) fn is_of_halves(&self) -> bool {
        self.cell() == 2 && self.types.stored_bytes() == 2
    }

    /// Writes such cells of a load along the depth with those of the next column, which the next load brought.
    pub(super) fn write_both(&self, b: &mut Builder, base: u32, load: u32) {
        let both = [0, 1].map(|next| self.regs[(load + next) as usize]);
        for e in 0..self.vec {
            let word = b.v(1);
            gather_word(b, word, &both.map(|column| column.dword((e / 2) as u8)), e % 2);
            let at = base + self.place(b, load, e);
            b.lds_write(self.lds, word, at);
        }
    }
}

/// How narrow elements of lines along the width are dealt out that LDS stores by halves of words, where matrix instructions leave the vector ALU no room
/// for putting words together (RDNA3). A workitem has as many k as a word of LDS: the halves of a word that was loaded are of two columns, or, of bytes,
/// become so in half the instructions that whole words take. What a wave stores at a time are whole cells of as many columns as reach all banks.
#[derive(Clone, Copy)]
pub(in crate::kernels) struct Halves {
    /// Columns of a load.
    pub vec: u32,
    /// Loads along a line.
    per_row: u32,
    /// Elements of a word.
    per_word: u32,
}

impl Halves {
    /// Columns of a load, whose bytes are at least these: such loads reach few more lines than those of whole rows do.
    const COLUMNS: [u32; 2] = [8, 4];
    const BYTES: u32 = 8;
    /// Cells that all banks hold.
    const BESIDE: u32 = 8;

    /// Of a tile so wide, by loads of so many elements at most.
    pub fn of(tile: &Tile, width: u32, together: u32) -> Option<Halves> {
        let Form::Matrix(form) = tile.form else { return None };
        let bytes = tile.types.bytes();
        let narrow = bytes < 4 && tile.types.stored_bytes() == bytes && tile.cell() == WIDEST;
        if form.op.shape.layout != Layout::Wmma11 || !narrow || !width.is_power_of_two() {
            return None;
        }
        // Bytes go through the vector ALU, which pays where a wave beside others has one buffer.
        if bytes == 1 && tile.buffers > 1 {
            return None;
        }
        let fits = |vec: &u32| {
            let per_row = width / vec;
            let lanes = per_row * WIDEST / 4;
            let deep = (tile.threads() / lanes.max(1)) * tile.run;
            let wide = vec * bytes >= Self::BYTES && per_row >= Self::BESIDE;
            wide && *vec <= together && deep > 0 && tile.k.is_multiple_of(deep)
        };
        let vec = Self::COLUMNS.into_iter().find(fits)?;
        Some(Halves { vec, per_row: width / vec, per_word: 4 / bytes })
    }

    /// What a workitem moves of a tile.
    pub fn share(&self, tile: &Tile) -> Fragment {
        let (vec, per_word, words) = (self.vec, self.per_word, WIDEST / 4);
        let runs = tile.threads() / (self.per_row * words);
        let lanes = [
            (Self::BESIDE, across(vec)),
            (words, down(per_word)),
            (self.per_row / Self::BESIDE, across(Self::BESIDE * vec)),
            (runs, down(tile.run)),
        ];
        let deep = runs * tile.run;
        let positions = [(vec, across(1)), (per_word, down(1)), (tile.k / deep, down(deep))];
        fragment::runs(&lanes, &positions, 8 * tile.types.bytes())
    }

    /// Writes what was loaded to LDS at `base` and what the loader says.
    pub fn commit(&self, b: &mut Builder, common: &Common, base: u32) {
        // Words whose halves are of two columns: of which load, and which its first column is. LDS waits for the vector ALU, so that comes first.
        let mut words: Vec<(Part, u32, u32)> = Vec::new();
        let each = self.per_word as usize / 2;
        for (load, regs) in (0..).step_by(each).zip(common.regs.chunks(each)) {
            for (word, column) in (0..regs[0].len).zip((0..).step_by(self.per_word as usize)) {
                let low = regs[0].dword(word);
                if let [_, high] = *regs {
                    let (high, first) = (high.dword(word), b.v(1));
                    permuted(b, first, high, low, FIRST_TWO);
                    permuted(b, high, high, low, LAST_TWO);
                    words.extend([(first, load, column), (high, load, column + 2)]);
                } else {
                    words.push((low, load, column));
                }
            }
        }
        for (word, load, column) in words {
            for (high, column) in [(false, column), (true, column + 1)] {
                let at = base + common.place(b, load, column);
                b.lds_write_half(common.lds, word, high, at);
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
        let of = |dtype: DType, (m, n, k, waves): (u32, u32, u32, (u32, u32)), width: u32| {
            let types = Types::of(dtype);
            let types = Types { compute: types.storage, ..types };
            let form = MatrixForm::of(Target::GFX1102, types, 16, true).unwrap();
            let form = Form::Matrix(MatrixForm { waves, ..form });
            let tile = Tile { types, m, n, k, run: 16 / types.bytes(), buffers: 1, form };
            let halves = Halves::of(&tile, width, 16)?;
            let (share, layout) = (halves.share(&tile), Places::wide(&tile, width, halves.vec));
            let mut all = BTreeSet::new();
            for position in 0..k * width / tile.threads() {
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
        for (dtype, tile, [of_a, of_b]) in [
            (DType::BF16, (128, 64, 32, (2, 2)), [Some(8), Some(8)]),
            (DType::BF16, (64, 64, 64, (2, 2)), [Some(8), Some(8)]),
            (DType::BF16, (32, 64, 64, (1, 2)), [Some(4), Some(8)]),
            (DType::BF16, (256, 128, 32, (4, 2)), [Some(8), Some(8)]),
            (DType::BF16, (16, 64, 32, (1, 1)), [None, Some(8)]),
            (DType::I8, (128, 64, 64, (2, 2)), [Some(8), Some(8)]),
            (DType::I8, (32, 64, 64, (1, 2)), [None, Some(8)]),
        ] {
            assert_eq!([of(dtype, tile, tile.0), of(dtype, tile, tile.1)], [of_a, of_b], "{tile:?}");
        }
    }
}
