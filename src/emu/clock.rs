//! The clock of a launch, which ticks when waves synchronise.

use std::sync::atomic::{AtomicU32, Ordering};

/// The clock stops here, and nothing is reported any more.
pub const END_OF_TIME: u32 = (1 << 26) - 1;

/// The clock of a launch.
#[derive(Debug)]
pub struct Clock(AtomicU32);

impl Default for Clock {
    fn default() -> Self {
        Clock(AtomicU32::new(1))
    }
}

impl Clock {
    /// The time.
    pub fn now(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }

    /// Waves have synchronised: what was done so far happened before the time that is returned.
    pub fn tick(&self) -> u32 {
        let next = |t: u32| (t < END_OF_TIME).then_some(t + 1);
        self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next).map_or(END_OF_TIME, |t| t + 1)
    }
}
