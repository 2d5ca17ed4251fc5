//! Registers that are written while they may still be read: hazards of any distance (gfx1010).
//!
//! Such a rule says that a register which one kind of instruction reads must not be written by another until something
//! has resolved it. The registers read since the last such instruction are followed forwards over all paths; in front of
//! an instruction that writes one of them goes what resolves the rule.

use super::emit::lower_inst;
use super::forward::forward;
use crate::mir::{Function, MInst, Opnd};
use barewave_isa::{Counter, Fix, HazardRule, Inst, Pipe, Reg, Regs, Relation, Target, Traits, op};
use std::collections::BTreeSet;

/// Registers read, by rule.
type State = Vec<BTreeSet<Reg>>;

/// Inserts what resolves the rules. Operands must be physical.
pub fn still_read(f: &mut Function) {
    let endless = |r: &&HazardRule| matches!(r.relation, Relation::ReadsSgpr | Relation::ReadsExec);
    let rules: Vec<&HazardRule> = f.target.hazards().iter().filter(endless).collect();
    if rules.is_empty() {
        return;
    }
    let insts: Vec<Vec<Inst>> =
        f.blocks.iter().map(|b| b.insts.iter().filter_map(|i| lower_inst(i, |_| 0)).collect()).collect();
    let join = |old: &mut State, state: &State| {
        let before: usize = old.iter().map(BTreeSet::len).sum();
        old.iter_mut().zip(state).for_each(|(a, b)| a.extend(b));
        old.iter().map(BTreeSet::len).sum::<usize>() > before
    };
    let start = vec![BTreeSet::new(); rules.len()];
    let entry = forward(f, start, join, |b, state| walk(f.target, &rules, &insts[b], state, &mut |_, _| {}));
    for (b, state) in entry.into_iter().enumerate() {
        let Some(mut state) = state else { continue };
        let mut inserts = Vec::new();
        walk(f.target, &rules, &insts[b], &mut state, &mut |i, fix| inserts.push((i, fix)));
        for (i, fix) in inserts.into_iter().rev() {
            f.blocks[b].insts.insert(i, remedy(fix));
        }
    }
}

/// What `s_waitcnt_depctr` waits for: that vector memory instructions have read their registers, and that scalar instructions have written their
/// results. All other fields wait for nothing.
pub(crate) const ACCESSES_READ: u32 = 0xffe3;
pub(crate) const SCALARS_WRITTEN: u32 = 0xfffe;

/// The instruction that resolves rules with this fix.
fn remedy(fix: Fix) -> MInst {
    match fix {
        Fix::VmVsrc => MInst::new(op::S_WAITCNT_DEPCTR, &[], &[ACCESSES_READ.into()]),
        Fix::SaSdst => MInst::new(op::S_WAITCNT_DEPCTR, &[], &[SCALARS_WRITTEN.into()]),
        _ => MInst::new(op::S_MOV_B32, &[Opnd::P(Regs::from(Reg::NULL))], &[0u32.into()]),
    }
}

fn walk(target: Target, rules: &[&HazardRule], insts: &[Inst], state: &mut State, on_need: &mut dyn FnMut(usize, Fix)) {
    for (i, inst) in insts.iter().enumerate() {
        let Some(info) = target.op(inst.op) else { continue };
        let traits = Traits::of(info, inst);
        let valu = traits.has(Traits::VALU);
        let scalars = |list: &mut dyn Iterator<Item = Regs>| -> Vec<Reg> {
            list.flat_map(|r| r.iter()).filter(|r| !r.is_vector() && !matches!(*r, Reg::NULL | Reg::MODE)).collect()
        };
        let tied = inst.dsts.iter().zip(info.dsts).filter(|(_, s)| s.read).filter_map(|(d, _)| d.regs());
        let implied = |list: &'static [Reg]| list.iter().map(|r| Regs::from(*r));
        let reads = scalars(&mut inst.srcs.iter().filter_map(|s| s.regs()).chain(tied).chain(implied(info.reads)));
        let named = inst.dsts.iter().filter_map(|d| d.regs());
        // what scalar instructions write besides, SCC and the like, is interlocked
        let writes = scalars(&mut named.chain(implied(if valu { info.writes } else { &[] })));
        let exec = |r: &Reg| matches!(*r, Reg::EXEC_LO | Reg::EXEC_HI);
        for (rule, read) in rules.iter().zip(state.iter_mut()) {
            if rule.consumer.holds(inst.op, traits) && writes.iter().any(|w| read.contains(w)) {
                on_need(i, rule.fix);
                read.clear();
            }
            let waited = |c: Counter| target.decode_wait(inst).is_some_and(|w| w.contains(&(c, 0)));
            let resolved = match rule.fix {
                Fix::VmVsrc => valu,
                Fix::SaSdst => valu && !writes.is_empty(),
                Fix::Salu => info.pipe == Pipe::Salu && target.decode_wait(inst).is_none() || waited(Counter::Lgkm),
                _ => false,
            };
            if resolved {
                read.clear();
            }
            if rule.producer.holds(inst.op, traits) {
                read.extend(reads.iter().filter(|r| rule.relation == Relation::ReadsSgpr || exec(r)));
            }
        }
    }
}
