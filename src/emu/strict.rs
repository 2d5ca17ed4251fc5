//! Strict mode.

use super::launch::Launch;
use super::wave::{Ctl, Wave};

/// What a barrier orders.
pub enum Space {
    /// LDS.
    Lds,
}

/// State of the checks of one workgroup.
pub struct Checker {}

impl Checker {
    /// A checker for workgroups of `waves` waves.
    pub fn new(_l: &Launch, _waves: usize) -> Checker {
        Checker {}
    }
    /// A workgroup starts.
    pub fn begin(&mut self, _l: &Launch, _waves: &[Wave]) {}
    /// All waves have met at a barrier.
    pub fn barrier(&mut self, _s: Space) {}
    /// Runs a wave until it stops.
    pub fn interpret(&mut self, w: &mut Wave, l: &Launch) -> Ctl {
        loop {
            let op = &l.program.ops[w.ip];
            w.count += 1;
            // SAFETY: as in the fast interpreter.
            match unsafe { (op.run)(w, op) } {
                Ctl::Next => w.ip += 1,
                Ctl::Jump => {}
                c @ (Ctl::Barrier | Ctl::Yield) => {
                    w.ip += 1;
                    return c;
                }
                c => return c,
            }
        }
    }
}
