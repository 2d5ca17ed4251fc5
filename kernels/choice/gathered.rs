//! What a tile takes whose columns are gathered: those of a convolution's input.

use super::{Extents, Machine, has_matrix_shadow};
use crate::kernels::tile::{Form, Layout, Tile};

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
    /// Results of an image: those of the next lie elsewhere.
    pub image: usize,
}

/// How columns are gathered.
#[derive(Clone, Copy, Debug)]
pub(in crate::kernels) struct Gathered {
    /// By a table of the places of taps, some of which are outside of the input.
    pub table: bool,
    /// Bytes of a window's lines come in words.
    pub words: bool,
    /// Lines lie along the depth: what the channels of a tap take of it, in whole tiles.
    pub channels: Option<usize>,
    /// What they reach over, where that is known.
    pub reach: Option<Reach>,
}

/// Who gathers: what it costs depends on what else the same units do. Constants are fitted to the full model: of 106 convolutions, f32 and narrow, on
/// nine targets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Gathering {
    /// Plain multiply-adds.
    Vector,
    /// Matrix instructions beside which others run.
    Shadow,
    /// Matrix instructions for the ALU that also gathers.
    InTurn,
}

impl Gathering {
    /// For a tile.
    pub fn of(machine: &Machine, tile: &Tile) -> Gathering {
        match tile.form {
            Form::Matrix(_) if has_matrix_shadow(machine.target) => Gathering::Shadow,
            Form::Matrix(_) => Gathering::InTurn,
            _ => Gathering::Vector,
        }
    }

    /// Vector instructions of a lane for an element: its place, and whether it is in the image; and where both are certain.
    pub fn instructions(self, gathered: &Gathered) -> f64 {
        match self {
            // Of a load for four of them.
            _ if gathered.channels.is_some() => 0.5,
            Gathering::Vector if gathered.words => 1.25,
            _ if gathered.words => 1.0,
            Gathering::Vector if gathered.table => 6.0,
            Gathering::Vector => 2.0,
            _ if gathered.table => 4.0,
            _ => 1.0,
        }
    }

    /// Cycles of a round more of a workgroup that is alone: its elements come by many loads, one behind the other, and narrow ones are put
    /// together.
    pub fn behind(self, gathered: &Gathered, narrow: bool) -> f64 {
        match self {
            _ if gathered.channels.is_some() => 0.0,
            Gathering::Shadow if gathered.words => 150.0,
            Gathering::InTurn if gathered.words => 400.0,
            Gathering::Vector if gathered.words => 100.0,
            Gathering::Vector => 200.0,
            Gathering::Shadow if narrow => 600.0,
            Gathering::Shadow => 300.0,
            Gathering::InTurn => 700.0,
        }
    }

    /// These are for the ALU that multiplies.
    pub fn is_beside_products(self) -> bool {
        self != Gathering::Shadow
    }

    /// Of what is not the longest a compute unit that is full sees this share, where it sees so much without gathering.
    pub fn seen(self, gathered: &Gathered, without: f64) -> f64 {
        match self {
            _ if gathered.channels.is_some() => without,
            Gathering::Vector => without,
            Gathering::Shadow => 0.1,
            Gathering::InTurn if gathered.table => 0.5,
            Gathering::InTurn => 0.2,
        }
    }
}

impl Reach {
    /// The share of the input's lines that windows reach.
    pub fn share(&self) -> f64 {
        let further = self.steps[1] as f64 / self.pitch.max(1) as f64;
        (self.window[0] as f64 / further.max(1.0)).min(1.0)
    }

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
        // Whole lines of the input follow each other, as far as an image.
        let together = ((lines - 1.0) * apart + high) * pitch;
        let images = 1.0 + (columns - 1.0) / self.image as f64;
        let asked = (read * (each / line + 1.0)).min(together / line + images);
        (asked / self.taps as f64).min(columns) * line
    }
}

impl Extents {
    /// How wide a tile is along an image, and how many positions there are.
    pub fn along_image(&self, tile: &Tile) -> (u32, usize) {
        [(tile.m, self.m), (tile.n, self.n)][self.image]
    }

    /// An operand is gathered.
    pub fn gathers(&self, operand: usize) -> bool {
        operand == self.image && self.gathered.is_some_and(|g| g.channels.is_none())
    }

    /// An operand's elements come one by one: each takes a register.
    pub fn comes_singly(&self, operand: usize) -> bool {
        self.gathers(operand) && self.gathered.is_some_and(|g| !g.words)
    }

    /// Bytes of LDS of an operand's tile, as far as it is known how it is loaded.
    pub fn lds(&self, tile: &Tile, operand: usize, width: u32) -> u32 {
        match operand {
            _ if self.gathers(operand) => Layout::dense(tile, width).bytes(tile.k),
            _ if [self.deep.0, self.deep.1][operand] && tile.run > 1 => Layout::deep(tile, width).bytes(tile.k),
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
            image: 56 * 56,
        };
        let bytes = |reach: Reach| reach.bytes(112, (4, 64));
        let [points, windows, apart] = [of(1, 1, 1), of(1, 3, 9), of(2, 1, 1)].map(bytes);
        // Two lines of 56 elements and the end of a third; of nine taps a ninth of four and five.
        assert!((448.0..768.0).contains(&points), "{points}");
        assert!(windows < points / 3.0, "{windows} {points}");
        assert!(apart > 1.9 * points, "{apart} {points}");
    }

    #[test]
    fn images_lie_apart() {
        // Seven lines of seven results with steps of two in each direction, of an image after the other.
        let reach = |image: usize| Reach { line: 7, steps: [2, 28], pitch: 14, window: [1; 2], taps: 1, image };
        let [one, several] = [49 * 16, 49].map(|image| reach(image).bytes(128, (2, 128)));
        assert!(several > one + 128.0, "{several} {one}");
        assert_eq!(reach(49).share(), 0.5);
    }
}
