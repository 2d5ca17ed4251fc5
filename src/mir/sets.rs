//! Kernels that workgroups along z run with arguments of their own: what several launches would do, one does.

use super::{Function, MInst, Opnd, Part, RegClass};
use barewave_isa::{Reg, op};

impl Function {
    /// Makes workgroup `z` of a launch read the set of arguments number `z` of so many, which follow each other. Nothing is changed, and the
    /// result is false, where that number means something to the kernel already, or it has no arguments.
    pub fn take_sets(&mut self, sets: u32) -> bool {
        let Some(own) = self.preloads.kernarg else { return false };
        let architected = self.target.info().architected_sgprs;
        let numbers = Opnd::P(Reg::ttmp(7).into());
        let of_z = |i: &MInst| i.op() == Some(op::S_LSHR_B32) && i.srcs.contains(&numbers);
        if self.preloads.workgroup_id[2].is_some() || self.blocks.iter().flat_map(|b| &b.insts).any(of_z) {
            return false;
        }
        let own = self.whole(own);
        let [z, ahead]: [Part; 2] = [(); 2].map(|()| self.new_vreg(RegClass::S, 1));
        let all = self.new_vreg(RegClass::S, 2);
        let mut first = Vec::new();
        if architected {
            first.push(MInst::new(op::S_LSHR_B32, &[z.into()], &[numbers, 16u32.into()]));
        } else {
            self.preloads.workgroup_id[2] = Some(z.reg);
        }
        first.push(MInst::new(op::S_MUL_I32, &[ahead.into()], &[z.into(), self.kernarg_bytes.into()]));
        let [low, high] = [0, 1].map(|i| (Opnd::from(own.dword(i)), Opnd::from(all.dword(i))));
        first.push(MInst::new(op::S_ADD_U32, &[low.0], &[low.1, ahead.into()]));
        first.push(MInst::new(op::S_ADDC_U32, &[high.0], &[high.1, 0u32.into()]));
        self.preloads.kernarg = Some(all.reg);
        self.kernarg_bytes *= sets;
        let entry = &mut self.blocks[0].insts;
        entry.splice(0..0, first);
        true
    }
}
