//! Where values stand when a wave starts, by the conventions of the kernel descriptor that we write.

use super::{Function, VReg};
use barewave_isa::{Reg, Target};

/// Physical registers of the values that the hardware preloads: user SGPRs from s0 on, workgroup ids behind them, the
/// wave's scratch offset last; workitem ids in v0.
pub fn preloaded(f: &Function) -> Vec<(VReg, Reg)> {
    let mut out = Vec::new();
    let mut next = 0;
    if let Some([desc, _]) = f.preloads.scratch {
        out.push((desc, Reg::s(next)));
        next += 4;
    }
    if let Some(v) = f.preloads.kernarg {
        out.push((v, Reg::s(next)));
        next += 2;
    }
    next = first_workgroup_id(f.target, next, f.preloads.workgroup_id.iter().flatten().count() as u16);
    for v in f.preloads.workgroup_id.into_iter().flatten() {
        out.push((v, Reg::s(next)));
        next += 1;
    }
    if let Some([_, wave]) = f.preloads.scratch {
        out.push((wave, Reg::s(next)));
    }
    if let Some(v) = f.preloads.workitem_id {
        out.push((v, Reg::v(0)));
    }
    out
}

/// The SGPR of the first of so many workgroup ids, behind user SGPRs.
pub fn first_workgroup_id(target: Target, user_sgprs: u16, ids: u16) -> u16 {
    user_sgprs.max(target.info().min_preloaded_sgprs.saturating_sub(ids))
}
