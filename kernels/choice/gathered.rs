//! What a tile takes whose columns are gathered: those of a convolution's input.

use super::Extents;
use crate::kernels::tile::{Layout, Tile};

/// Columns that are gathered, positions of a window each, where neighbouring elements of the input's lines are neighbours in memory.
#[derive(Clone, Copy, Debug)]
pub(in crate::kernels) struct Reach {
    /// Results of a line; further lines follow.
    pub line: usize,
    /// Elements of the input from a result to the next, and from one line to the next.
    pub steps: [usize; 2],
    /// Elements between lines of the input.
    pub pitch: usize,
    /// Lines and elements of a line from the first to the last tap of a window, both counted.
    pub window: [usize; 2],
    /// Taps of a window.
    pub taps: usize,
}

/// How columns are gathered.
#[derive(Clone, Copy, Debug)]
pub(in crate::kernels) struct Gathered {
    /// By a table of the places of taps, some of which are outside of the input.
    pub table: bool,
    /// What they reach over, where that is known.
    pub reach: Option<Reach>,
}

/// Vector instructions of a lane for an element: its place, and whether it is in the image; and where both are certain. Fitted.
const BY_TABLE: f64 = 6.0;
const EVENLY: f64 = 2.0;

impl Gathered {
    /// Cycles of a round more of a workgroup that is alone: its elements come by many loads, one behind the other. Fitted.
    pub const BEHIND: f64 = 200.0;

    /// Vector instructions of a lane for an element.
    pub fn instructions(&self) -> f64 {
        if self.table { BY_TABLE } else { EVENLY }
    }
}

impl Reach {
    /// Bytes of the lines of a cache that so many columns ask for per k, of elements of so many bytes: what a channel's taps have in common comes
    /// once.
    pub fn bytes(&self, columns: usize, (bytes, line): (u32, u32)) -> f64 {
        let [columns, of_line, bytes] = [columns, self.line, bytes as usize].map(|n| n as f64);
        let [step, further, pitch] = [self.steps[0], self.steps[1], self.pitch].map(|n| n as f64 * bytes);
        let [high, wide] = [self.window[0] as f64, self.window[1] as f64 * bytes];
        let line = f64::from(line);
        // Tiles begin anywhere in a line.
        let lines = 1.0 + (columns - 1.0) / of_line;
        let apart = (further / pitch.max(bytes)).max(1.0);
        let read = if apart <= high { (lines - 1.0) * apart + high } else { lines * high };
        let each = (columns.min(of_line) - 1.0) * step + wide;
        // Whole lines of the input follow each other.
        let together = ((lines - 1.0) * apart + high) * pitch;
        let asked = (read * (each / line + 1.0)).min(together / line + 1.0);
        (asked / self.taps as f64).min(columns) * line
    }
}

impl Extents {
    /// An operand is gathered: each of its elements comes by a load of its own, to a register.
    pub fn gathers(&self, operand: usize) -> bool {
        operand == 1 && self.gathered.is_some()
    }

    /// Bytes of LDS of an operand's tile, as far as it is known how it is loaded.
    pub fn lds(&self, tile: &Tile, operand: usize, width: u32) -> u32 {
        match operand {
            _ if self.gathers(operand) => Layout::dense(tile, width).bytes(tile.k),
            0 if self.gathered.is_some() && self.deep.0 && tile.run > 1 => Layout::deep(tile, width).bytes(tile.k),
            _ => Layout::most(tile, width),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taps_of_a_channel_have_lines_in_common() {
        let of = |step: usize, window: usize, taps: usize| Reach {
            line: 56,
            steps: [step, 56 * step * step],
            pitch: 56 * step,
            window: [window; 2],
            taps,
        };
        let bytes = |reach: Reach| reach.bytes(112, (4, 64));
        let [points, windows, apart] = [of(1, 1, 1), of(1, 3, 9), of(2, 1, 1)].map(bytes);
        // Two lines of 56 elements and the end of a third; of nine taps a ninth of four and five.
        assert!((448.0..768.0).contains(&points), "{points}");
        assert!(windows < points / 3.0, "{windows} {points}");
        assert!(apart > 1.9 * points, "{apart} {points}");
    }
}
