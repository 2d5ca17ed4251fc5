//! Whose turn it is: when waves can issue, and who goes first of those that can at the same clock.

use crate::prepared::Path;
use crate::stall::Stall;

/// When a wave issues, and of those that can at the same clock who goes first, as one number.
pub(crate) type Turn = u128;
/// Behind every wave.
pub(crate) const NOBODY: Turn = Turn::MAX;

/// The wave of an order, or of a turn.
pub(crate) fn wave_of(turn: Turn) -> usize {
    turn as u32 as usize
}

/// When an instruction can issue, and what decides that.
pub(crate) struct Until {
    pub(crate) at: u64,
    pub(crate) why: Stall,
}

impl Until {
    /// Not before a clock, for a reason.
    pub(crate) fn later(&mut self, at: u64, reason: Stall) {
        if at > self.at {
            *self = Until { at, why: reason };
        }
    }
}

/// A wave that waits for its turn.
#[derive(Clone, Copy)]
pub(crate) struct Waiting {
    /// When it can issue as far as it is concerned itself.
    pub(crate) own: u64,
    pub(crate) path: Path,
    /// Who goes first of those that can at the same clock: of the highest priority (S_SETPRIO in AMD's manuals), of equals the oldest,
    /// unless it is ahead: nobody starves. As one number, that of the wave last ([`wave_of`]).
    pub(crate) order: u64,
}
