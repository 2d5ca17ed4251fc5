//! Lines of a convolution's windows, bytes side by side, come in words: a load for four taps, put in place by a selector of the column.
//!
//! Lines of windows whose extent is no multiple of four are followed by weights of zero. A word that would begin before a line of the input, or end
//! behind it, is loaded from where all its bytes are the line's; which of them are taps, and which are zeros beside it, is the same for all lines and
//! channels of a column.

use super::{Term, first_bit, offset_table};
use crate::graph::fused::Window;
use crate::graph::view::View;
use crate::kernels::tile::{Tile, Types};
use crate::kernels::{Arg, Cx, Writer, loader};
use crate::mir::{Gen, Part, Type, dot_instruction};
use barewave_isa::op;

/// Elements of a window's line that may come in words: further words of it have offsets and selectors of their own.
const MOST_IN_WORDS: usize = 8;

impl Term<'_> {
    /// Elements of a window's line, and what they take of the depth where these come `in_words`.
    pub(super) fn line(self, in_words: bool) -> [usize; 2] {
        let line = self.window.kernel.last().copied().unwrap_or(1);
        [line, if in_words { line.next_multiple_of(loader::WORD as usize) } else { line }]
    }

    /// The depth of its product.
    pub(super) fn depth_of(self, cx: &Cx, in_words: bool) -> usize {
        let [line, taken] = self.line(in_words);
        self.depth(cx) / line * taken
    }

    /// Lines of its windows are bytes side by side, which loads of a word stay within a line of the input for, and the target multiplies words of bytes.
    pub(super) fn may_come_in_words(self, cx: &Cx, types: Types) -> bool {
        let (x, last) = (self.x(cx), self.window.kernel.len() - 1);
        let bytes = types.storage == Type::I8 && types.stored_bytes() == 1;
        let words = dot_instruction(cx.target, [types.storage; 2], types.accumulate)
            .is_some_and(|d| d.elements == loader::WORD);
        let together = x.strides[last + 2] == 1 && self.window.dilations[last] == 1;
        let line = self.window.kernel[last];
        let fits = (2..=MOST_IN_WORDS).contains(&line) && x.dims[last + 2] >= loader::WORD as usize;
        bytes && words && together && fits && self.has_constant_weights(cx)
    }

    /// Bytes of zeros between weights.
    pub(super) fn between_lines(self, cx: &Cx, in_words: bool) -> usize {
        let weights = &cx.step.inputs[self.weights()].view;
        weights.dims[0] * (self.depth_of(cx, in_words) - self.depth(cx)) * cx.dtype(Arg::Input(self.weights())).size()
    }
}

/// How lines of windows come in words.
pub(super) struct Words {
    /// Of each.
    count: u32,
    /// The word that the workitem's first is, where that differs between waves.
    first: Option<Part>,
}

impl Words {
    /// Of a tile so wide along positions.
    pub(super) fn of(w: &mut Writer, term: Term, (tile, width): (&Tile, u32), item: Part) -> Words {
        let count = term.line(true)[1] as u32 / loader::WORD;
        let (_, waves) = loader::gather_shape(tile, width);
        // Waves beside each other have words beside each other.
        let first = (count > 1 && tile.run == loader::WORD && waves > 1).then(|| {
            let row = w.b.udiv(item, width);
            w.b.umod(row, count)
        });
        Words { count, first }
    }

    /// Byte offset within a line of the input for each word of a column's line, whose window has the `coordinate`, and its selector: words at the ends
    /// are loaded from where all four bytes are the line's, and what is beside it is zero.
    pub(super) fn places(
        &self,
        w: &mut Writer,
        term: Term,
        coordinate: Option<Part>,
        line: usize,
    ) -> Vec<(Part, Part)> {
        /// A selector's byte for a zero.
        const ZERO: u32 = 12;
        let last = term.window.kernel.len() - 1;
        let b = &mut w.b;
        let corner = match coordinate {
            Some(c) => b.mul(c, term.window.strides[last] as u32),
            None => b.to_vector(0u32),
        };
        let corner = b.sub(corner, term.window.pads[last] as u32);
        let corner = match self.first {
            Some(first) => b.mad(first, loader::WORD, corner),
            None => corner,
        };
        let words = if self.first.is_some() { 1 } else { self.count };
        let mut all = Vec::new();
        for word in 0..words {
            let wanted = if word > 0 { b.add(corner, word * loader::WORD) } else { corner };
            let (zero, most) = (b.to_vector(0u32), b.to_vector(line as u32 - loader::WORD));
            let place = b.op(op::V_MED3_I32, &[wanted.into(), zero.into(), most.into()]);
            let ahead = b.sub(wanted, place);
            let mut selector = b.to_vector(0u32);
            for byte in 0..loader::WORD {
                let from = if byte > 0 { b.add(ahead, byte) } else { ahead };
                let inside = b.op(Gen::CmpGt.of(Type::U32), &[loader::WORD.into(), from.into()]);
                let none = b.to_vector(ZERO);
                let from = b.select(inside, from, none);
                let from = if byte > 0 { b.shl(from, 8 * byte) } else { from };
                selector = b.add(selector, from);
            }
            all.push((place, selector));
        }
        all
    }
}

/// Byte offset and coordinate mask of every word of windows' lines, as [`offset_table`] has them of elements: offsets of lines, within
/// which columns have places of their own, and masks of the coordinates of the other directions.
pub(super) fn word_table(window: &Window, x: &View, depth: usize, rows: usize) -> Vec<u8> {
    let last = window.kernel.len() - 1;
    let of = |list: &[usize]| [&list[..last], &[1]].concat();
    let lines = Window { kernel: of(&window.kernel), dilations: of(&window.dilations), ..window.clone() };
    let words = window.kernel[last].div_ceil(loader::WORD as usize);
    let word = loader::WORD as usize;
    let of_lines = offset_table(&lines, x, 1, depth / word / words, rows / word / words + 1);
    let coordinate = 1u32 << first_bit(window, last);
    let (entries, _) = of_lines.as_chunks::<8>();
    let entry = |&[a, b, c, d, mask @ ..]: &[u8; 8]| {
        let [e, f, g, h] = (u32::from_le_bytes(mask) & !coordinate).to_le_bytes();
        [a, b, c, d, e, f, g, h]
    };
    let entries = entries.iter().flat_map(|e| std::iter::repeat_n(entry(e), words));
    entries.take(rows / word).flatten().collect()
}
