//! Matrix instructions.

use crate::emu::program::Machine;
use crate::emu::wave::{Run, UOp};
use barewave_isa::Inst;

/// Handler by name.
pub fn find(_name: &str, _m: &Machine) -> Option<Run> {
    None
}

/// Fills in what the handler needs.
pub fn prepare(_op: &mut UOp, _inst: &Inst, _m: &Machine, _lanes: usize) -> Option<()> {
    None
}
