//! Lines of the first-level cache that rounds of a tile touch, and for how many rounds it has them.

/// Of the first level's lines so many are filled where rows begin anywhere; and steps in which it settles how long it has a line.
const FIT: f64 = 0.9;
const SETTLED: u32 = 3;

/// Rows or columns of an operand's tile, and the lines of the first level in which they lie.
pub(super) struct Side {
    pub(super) width: u32,
    pub(super) deep: bool,
    pub(super) lines: Lines,
}

/// Lines that a round of a tile touches of an operand.
pub(super) struct Lines {
    /// How many.
    pub(super) touched: f64,
    /// Those of them that no round before has touched.
    new: f64,
    /// Rounds that touch a line.
    rounds: f64,
    /// Of lines that come in the same round, those that come before the middle of all rounds.
    in_step: f64,
}

impl Lines {
    /// Of an operand so wide, dense along the depth or not, with elements of so many bytes; from line to line are `pitch` elements.
    pub(super) fn of((width, deep): (u32, bool), depth: u32, (bytes, line): (u32, u32), pitch: u32) -> Lines {
        let (piece, count) = if deep { (depth * bytes, width) } else { (width * bytes, depth) };
        // Pieces begin at multiples of so many bytes, a power of two as the line's are.
        let at = 1 << (pitch.wrapping_mul(bytes) | piece | line).trailing_zeros();
        let of_line = f64::from(piece) / f64::from(line);
        // Whole rows of a width lie behind each other.
        let whole = !deep && pitch == width;
        let of_piece = if whole { of_line } else { 1.0 + f64::from(piece - at) / f64::from(line) };
        let count = f64::from(count);
        let touched = count * of_piece;
        if !deep {
            return Lines { touched, new: touched, rounds: 1.0, in_step: 0.0 };
        }
        let new = count * of_line.min(of_piece);
        let in_step = if at == piece { count - new } else { 0.0 };
        Lines { touched, new, rounds: touched / new, in_step: in_step.max(0.0) }
    }

    /// Those that come to the first level in a round, where that has a line for so many whole rounds more.
    pub(super) fn come(&self, rounds: f64) -> f64 {
        let times = |touched: f64| (touched / (rounds + 1.0)).ceil().max(1.0);
        let (low, part) = (self.rounds.floor(), self.rounds.fract());
        let times = if part > 0.0 { times(low) * (1.0 - part) + times(low + 1.0) * part } else { times(low) };
        (self.new * times).min(self.touched)
    }
}

/// Whole rounds more for which the first level, of so many lines, has what a round of both operands brought.
pub(super) fn rounds_kept(sides: &[Side; 2], lines: f64) -> f64 {
    // Rows in step with each other ask for new lines in the same round, others now for more of them and now for less.
    let in_step: f64 = sides.iter().map(|s| s.lines.in_step).sum();
    let room = if in_step > 0.0 { lines - in_step } else { lines * FIT };
    let come = |rounds: f64| sides.iter().map(|s| s.lines.come(rounds)).sum::<f64>();
    // What comes in the first round stays where all of it has room, else it settles from there.
    let touched: f64 = sides.iter().map(|s| s.lines.touched).sum();
    let mut rounds = if in_step > 0.0 || touched <= room { f64::INFINITY } else { 0.0 };
    for _ in 0..SETTLED {
        rounds = (room / come(rounds)).max(0.0).floor();
    }
    rounds
}
