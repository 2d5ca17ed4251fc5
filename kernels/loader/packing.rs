//! Narrow elements that come with their neighbours along the width are put together with those of other k, in words along k.

use super::Common;
use crate::kernels::tile::{Tile, WIDEST};
use crate::mir::{Builder, Gen, Part, Type};
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
