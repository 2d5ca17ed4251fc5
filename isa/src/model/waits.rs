//! Wait instructions: from counter values to instructions and back.
//!
//! gfx8 to gfx11 pack vmcnt, expcnt and lgkmcnt into the field of `s_waitcnt`, at places that moved with each
//! generation; gfx10 and gfx11 count stores apart (`s_waitcnt_vscnt`); gfx12 has an instruction per counter and two
//! combined ones. A counter that is not mentioned is left at its largest value, which waits for nothing.

use crate::{Counter, Inst, Op, Operand, Reg, Regs, Target, WaitScheme, op};
use smallvec::SmallVec;

/// Pieces of a counter in the field of `s_waitcnt`.
fn pieces(target: Target, counter: Counter) -> &'static [(u32, u32)] {
    target.info().waitcnt.iter().find(|p| p.0 == counter).map_or(&[], |p| p.1)
}

/// Instruction per counter on gfx12.
fn split_op(counter: Counter) -> Op {
    match counter {
        Counter::Vm => op::S_WAIT_LOADCNT,
        Counter::Lgkm => op::S_WAIT_DSCNT,
        Counter::Exp => op::S_WAITCNT_EXPCNT,
        Counter::Vs => op::S_WAIT_STORECNT,
        Counter::Sample => op::S_WAIT_SAMPLECNT,
        Counter::Bvh => op::S_WAIT_BVHCNT,
        Counter::Km => op::S_WAIT_KMCNT,
        Counter::X => op::S_WAIT_XCNT,
    }
}

const PACKED: [Counter; 3] = [Counter::Vm, Counter::Exp, Counter::Lgkm];

/// Largest value of a counter, 0 when the target has it not.
fn max(target: Target, counter: Counter) -> u8 {
    target.info().counters.iter().find(|c| c.counter == counter).map_or(0, |c| c.max)
}

/// The field of `s_waitcnt` for counter values.
pub(crate) fn pack(target: Target, value: impl Fn(Counter) -> u64) -> u64 {
    let mut field = 0;
    for c in PACKED {
        let mut v = value(c);
        for &(lo, n) in pieces(target, c) {
            field |= (v & ((1 << n) - 1)) << lo;
            v >>= n;
        }
    }
    field
}

/// A counter's value in the field of `s_waitcnt`.
pub(crate) fn unpack(target: Target, field: u64, counter: Counter) -> u64 {
    let (mut v, mut shift) = (0, 0);
    for &(lo, n) in pieces(target, counter) {
        v |= ((field >> lo) & ((1 << n) - 1)) << shift;
        shift += n;
    }
    v
}

impl Target {
    /// Instructions that wait until each given counter is at most the given value. Values at or above a counter's
    /// largest wait for nothing and give no instruction.
    pub fn encode_waits(self, waits: &[(Counter, u8)]) -> SmallVec<[Inst; 2]> {
        let mut out = SmallVec::new();
        let want = |c: Counter| {
            let m = max(self, c);
            waits.iter().filter(|w| w.0 == c).map(|w| w.1.min(m)).min().unwrap_or(m)
        };
        let needed = |c: Counter| want(c) < max(self, c);
        if self.info().waits == WaitScheme::Split {
            let mut done = [false; 8];
            for (counter, other, op) in [
                (Counter::Vm, Counter::Lgkm, op::S_WAIT_LOADCNT_DSCNT),
                (Counter::Vs, Counter::Lgkm, op::S_WAIT_STORECNT_DSCNT),
            ] {
                if needed(counter) && needed(other) && !done[other as usize] && self.has(op) {
                    let field = u64::from(want(counter)) << 8 | u64::from(want(other));
                    out.push(Inst::new(op, &[], &[Operand::Imm(field)]));
                    done[counter as usize] = true;
                    done[other as usize] = true;
                }
            }
            for c in self.info().counters {
                if needed(c.counter) && !done[c.counter as usize] {
                    out.push(Inst::new(split_op(c.counter), &[], &[Operand::Imm(u64::from(want(c.counter)))]));
                }
            }
            return out;
        }
        if PACKED.iter().any(|&c| needed(c)) {
            let field = pack(self, |c| u64::from(want(c)));
            out.push(Inst::new(op::S_WAITCNT, &[], &[Operand::Imm(field)]));
        }
        if needed(Counter::Vs) {
            let null = Operand::Regs(Regs::from(Reg::NULL));
            out.push(Inst::new(op::S_WAITCNT_VSCNT, &[], &[null, Operand::Imm(u64::from(want(Counter::Vs)))]));
        }
        out
    }

    /// What a wait instruction waits for; `None` when it is none. Counters left at their largest value are not listed.
    pub fn decode_wait(self, inst: &Inst) -> Option<SmallVec<[(Counter, u8); 3]>> {
        let mut out = SmallVec::new();
        let imm = |i: usize| match inst.srcs.get(i) {
            Some(Operand::Imm(v)) => Some(*v),
            _ => None,
        };
        let mut add = |c: Counter, v: u64| {
            if v < u64::from(max(self, c)) {
                out.push((c, v as u8));
            }
        };
        match inst.op {
            op::S_WAITCNT => {
                let field = imm(0)?;
                for c in PACKED {
                    add(c, unpack(self, field, c));
                }
            }
            op::S_WAITCNT_VSCNT | op::S_WAITCNT_VMCNT | op::S_WAITCNT_LGKMCNT => {
                let c = match inst.op {
                    op::S_WAITCNT_VSCNT => Counter::Vs,
                    op::S_WAITCNT_VMCNT => Counter::Vm,
                    _ => Counter::Lgkm,
                };
                add(c, imm(1)? & 63);
            }
            op::S_WAITCNT_EXPCNT => add(Counter::Exp, imm(inst.srcs.len().checked_sub(1)?)? & 7),
            op::S_WAIT_LOADCNT_DSCNT => {
                add(Counter::Vm, imm(0)? >> 8 & 63);
                add(Counter::Lgkm, imm(0)? & 63);
            }
            op::S_WAIT_STORECNT_DSCNT => {
                add(Counter::Vs, imm(0)? >> 8 & 63);
                add(Counter::Lgkm, imm(0)? & 63);
            }
            _ => {
                let c = self.info().counters.iter().find(|c| split_op(c.counter) == inst.op)?;
                add(c.counter, imm(0)?);
            }
        }
        Some(out)
    }
}
