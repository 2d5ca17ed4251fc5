//! Memory instructions of two kinds with only a branch between them: a hazard of any distance (gfx1010).
//!
//! For each rule of the relation `branch`, forwards over all paths: the last memory instruction of either kind was the
//! producer, and whether a branch has come since. In front of a consumer behind such a branch goes what resolves the rule.

use super::emit::lower_inst;
use super::forward::forward;
use crate::mir::{Function, MInst, Opnd};
use barewave_isa::{Counter, Flags, HazardRule, Inst, Reg, Regs, Relation, Target, Traits, op};

/// Paths on which the producer came last, by what has come since.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Since {
    nothing: bool,
    branch: bool,
}

/// Inserts what resolves the rules. Operands must be physical.
pub fn across_branch(f: &mut Function) {
    let rules: Vec<&HazardRule> = f.target.hazards().iter().filter(|r| r.relation == Relation::AcrossBranch).collect();
    if rules.is_empty() {
        return;
    }
    let insts: Vec<Vec<Inst>> =
        f.blocks.iter().map(|b| b.insts.iter().filter_map(|i| lower_inst(i, |_| 0)).collect()).collect();
    let join = |a: &mut Vec<Since>, b: &Vec<Since>| {
        let before = a.clone();
        for (a, b) in a.iter_mut().zip(b) {
            *a = Since { nothing: a.nothing | b.nothing, branch: a.branch | b.branch };
        }
        *a != before
    };
    let start = vec![Since::default(); rules.len()];
    let entry = forward(f, start, join, |b, state| walk(f.target, &rules, &insts[b], state, &mut |_| {}));
    for (b, state) in entry.into_iter().enumerate() {
        let Some(mut state) = state else { continue };
        let mut places = Vec::new();
        walk(f.target, &rules, &insts[b], &mut state, &mut |i| places.push(i));
        for i in places.into_iter().rev() {
            let null = Opnd::P(Regs::from(Reg::NULL));
            f.blocks[b].insts.insert(i, MInst::new(op::S_WAITCNT_VSCNT, &[], &[null, 0u32.into()]));
        }
    }
}

fn walk(target: Target, rules: &[&HazardRule], insts: &[Inst], state: &mut [Since], on_need: &mut dyn FnMut(usize)) {
    for (i, inst) in insts.iter().enumerate() {
        let Some(info) = target.op(inst.op) else { continue };
        let traits = Traits::of(info, inst);
        let mut resolved =
            inst.op == op::S_WAITCNT_VSCNT && target.decode_wait(inst).is_some_and(|w| w.contains(&(Counter::Vs, 0)));
        if rules.iter().zip(&*state).any(|(r, s)| s.branch && r.consumer.holds(inst.op, traits)) {
            on_need(i);
            resolved = true;
        }
        for (rule, since) in rules.iter().zip(state.iter_mut()) {
            if rule.producer.holds(inst.op, traits) {
                *since = Since { nothing: true, branch: false };
            } else if resolved || rule.consumer.holds(inst.op, traits) {
                *since = Since::default();
            } else if info.flags.has(Flags::BRANCH) {
                *since = Since { nothing: false, branch: since.nothing | since.branch };
            }
        }
    }
}
