//! Breaks runs of memory instructions that cannot be issued again (rules of the relation `clause`).
//!
//! Where XNACK is on, a page fault has the run of neighbouring scalar or vector memory instructions issued again that the
//! instruction is part of. Code that leaves XNACK open, as ours does, has to be right then too: in front of an instruction
//! that would store behind a load of its run, or bring together a register that one writes and another reads, goes `s_nop`.

use super::emit::lower_inst;
use crate::mir::{Function, MInst};
use barewave_isa::{Flags, HazardRule, Inst, OpInfo, Pipe, Regs, Relation, Traits, op};

/// Inserts what the rules ask for. Operands must be physical.
pub fn clauses(f: &mut Function) {
    let rules: Vec<&HazardRule> = f.target.hazards().iter().filter(|r| r.relation == Relation::Clause).collect();
    if rules.is_empty() {
        return;
    }
    // A run goes on where a block leads to the next one without a branch.
    let (mut kind, mut read, mut written) = (None, Vec::new(), Vec::new());
    for b in &mut f.blocks {
        let mut places = Vec::new();
        for (i, inst) in b.insts.iter().enumerate() {
            // nothing else is in a clause, and most instructions are something else
            let memory = |i: &&OpInfo| matches!(i.pipe, Pipe::Smem | Pipe::Vmem);
            let found = inst.info(f.target).filter(memory).and_then(|info| Some((info, lower_inst(inst, |_| 0)?)));
            let rule = found.as_ref().and_then(|(info, inst)| {
                let traits = Traits::of(info, inst);
                rules.iter().position(|r| r.consumer.holds(inst.op, traits))
            });
            let new = rule.is_none() || rule != kind;
            kind = rule;
            if new {
                read.clear();
                written.clear();
            }
            let (Some(_), Some((info, inst))) = (rule, found) else { continue };
            let (reads, writes) = operands(&inst);
            let meet = |a: &[Regs], b: &[Regs]| a.iter().any(|a| b.iter().any(|b| a.overlaps(*b)));
            let stores = info.flags.has(Flags::STORE);
            let again =
                meet(&written, &reads) || meet(&writes, &read) || meet(&writes, &reads) || meet(&written, &read);
            if !written.is_empty() && (stores || again) {
                places.push(i);
                read.clear();
                written.clear();
            }
            read.extend(reads);
            written.extend(writes);
        }
        for i in places.into_iter().rev() {
            b.insts.insert(i, MInst::new(op::S_NOP, &[], &[0u32.into()]));
        }
    }
}

/// Registers that an instruction reads, and those that it writes.
fn operands(inst: &Inst) -> (Vec<Regs>, Vec<Regs>) {
    let regs = |list: &[barewave_isa::Operand]| list.iter().filter_map(|o| o.regs()).collect();
    (regs(&inst.srcs), regs(&inst.dsts))
}
