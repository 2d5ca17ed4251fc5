//! Registers that begin as constants are set while the first loads of a loop are on their way.
//!
//! Sums begin at zero, hundreds of them in a wave that multiplies matrices. Code in front of the loop sets them, and then asks for the first
//! tile; but memory takes longer to answer than all of that. So they are set behind the loads that fill the pipeline, in front of
//! the first instruction that waits for these, unless lanes are switched between. Where an instruction of a wave takes one cycle they are left where they are.

use super::pipeline::is_constant;
use crate::mir::{Function, MInst, Opnd, RegClass, VReg};
use barewave_isa::{Flags, Pipe, Reg, op};
use rustc_hash::FxHashSet;

/// Takes constants of vector registers out of a block that `first` follows, and puts them into that where it begins to wait for loads.
pub(super) fn set_late(f: &mut Function, before: usize, first: &mut Vec<MInst>) {
    let takes_long = f.target.op(op::V_MOV_B32).is_some_and(|info| info.busy > 1);
    let Some(at) = waits_at(f, first).filter(|_| takes_long) else { return };
    let insts = &f.blocks[before].insts;
    if insts.iter().any(|i| i.info(f.target).is_none_or(|info| info.flags.has(Flags::BRANCH))) {
        return;
    }
    // What is set later is set for the lanes that are active there.
    if insts.iter().chain(&first[..at]).any(|i| writes_exec(f, i)) {
        return;
    }
    let vector = |i: &MInst| match i.dsts[..] {
        [Opnd::V(d)] => is_constant(i) && matches!(f.vreg(d.reg).class, RegClass::V | RegClass::A),
        _ => false,
    };
    let others = insts.iter().filter(|i| !vector(i)).chain(&first[..at]);
    let touched: FxHashSet<VReg> = others.flat_map(registers).collect();
    let (late, rest): (Vec<MInst>, Vec<MInst>) =
        insts.iter().cloned().partition(|i| vector(i) && registers(i).all(|r| !touched.contains(&r)));
    f.blocks[before].insts = rest;
    first.splice(at..at, late);
}

/// The first instruction that waits for loads in front of it: one that uses what they bring, or LDS, or meets other waves.
fn waits_at(f: &Function, insts: &[MInst]) -> Option<usize> {
    let mut loaded: FxHashSet<VReg> = FxHashSet::default();
    let mut any = false;
    for (n, i) in insts.iter().enumerate() {
        let info = i.info(f.target)?;
        if info.pipe == Pipe::Vmem && !info.flags.has(Flags::STORE) {
            any = true;
            loaded.extend(i.dsts.iter().filter_map(|o| o.part()).map(|p| p.reg));
        } else if info.pipe == Pipe::Lds || info.flags.has(Flags::BARRIER) || registers(i).any(|r| loaded.contains(&r))
        {
            return any.then_some(n);
        }
    }
    None
}

/// An instruction changes which lanes are active.
fn writes_exec(f: &Function, i: &MInst) -> bool {
    let exec = |r: &Reg| matches!(*r, Reg::EXEC_LO | Reg::EXEC_HI);
    let named = i.dsts.iter().any(|o| matches!(o, Opnd::P(r) if r.iter().any(|r| exec(&r))));
    named || i.info(f.target).is_some_and(|info| info.writes.iter().any(exec))
}

/// Registers that an instruction names.
fn registers(i: &MInst) -> impl Iterator<Item = VReg> {
    i.dsts.iter().chain(&i.srcs).filter_map(|o| o.part()).map(|p| p.reg)
}
