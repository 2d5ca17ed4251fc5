//! Hazard insertion: wait states between instructions that the hardware does not interlock. Whether they suffice is proved
//! over the bytes, by `verify`.
//!
//! The tables say for a pair of instructions how many wait states must lie between them. A wait state is one issued
//! instruction of the same wave; `s_nop n` counts for `n + 1`. From each instruction the search goes backwards over
//! all paths until as many states have passed as any rule can ask for; what is missing is made up by one `s_nop`.
//! Some hazards of RDNA are resolved differently: by VALU instructions in between or by a wait for the VALU's
//! dependency counters. They count VALU instructions, and the same search finds them. Where scalar registers that the VALU
//! has read must be waited for after every later write, their uses are followed forwards over all paths. Registers that
//! may still be read when they are written are the business of `still_read`, memory instructions around a branch that of
//! `across_branch`, runs of memory instructions that may be issued again that of `clauses`.

use super::across_branch::across_branch;
use super::clauses::clauses;
use super::emit::lower_inst;
use super::forward::forward;
use super::repeated::Repeated;
use super::still_read::still_read;
use crate::mir::{Function, MInst};
use barewave_isa::{
    AluWaits, Between, Distance, Fix, HazardInst, HazardSets, Inst, Operand, ScalarHistory, Target, op,
};
use smallvec::{SmallVec, smallvec};

/// Largest number that one `s_nop` can wait for on every target.
const NOP_STATES: u32 = 8;

/// Inserts `s_nop` where the function needs wait states, and what resolves other hazards. Operands must be physical.
pub fn hazards(f: &mut Function) {
    still_read(f);
    across_branch(f);
    clauses(f);
    let Some(mut code) = Code::of(f) else { return };
    let fixes = code.insts.iter().any(HazardInst::may_ask_for_fix);
    for b in 0..f.blocks.len() {
        let mut i = 0;
        while i < code.blocks[b].len() {
            if fixes && let Some(fix) = code.unfixed(b, i) {
                let inst = match fix {
                    Fix::DepCtr => MInst::new(op::S_WAITCNT_DEPCTR, &[], &[VA_VDST_0.into()]),
                    _ => MInst::new(op::V_NOP, &[], &[]),
                };
                code.insert(f, b, i, inst);
                continue;
            }
            let mut left = code.missing_states(b, i);
            while left > 0 {
                let n = left.min(NOP_STATES);
                code.insert(f, b, i, MInst::new(op::S_NOP, &[], &[(n - 1).into()]));
                i += 1;
                left -= n;
            }
            i += 1;
        }
    }
    let mut inserts = Vec::new();
    code.scalar_hazards(f, &mut |b, i, wait| inserts.push((b, i, wait)));
    for (b, i, wait) in inserts.into_iter().rev() {
        f.blocks[b].insts.insert(i, MInst::new(op::S_WAITCNT_DEPCTR, &[], &[wait.immediate().into()]));
    }
}

/// `s_waitcnt_depctr va_vdst(0)`: all VALU results written, nothing else waited for.
const VA_VDST_0: u32 = 0x0fff;

/// A function's instructions as the rules see them.
struct Code {
    target: Target,
    sets: HazardSets,
    /// Those that differ.
    insts: Vec<HazardInst>,
    /// Of each block, by their numbers.
    blocks: Vec<Vec<u32>>,
    predecessors: Vec<Vec<usize>>,
    /// The largest number of wait states that any rule asks for.
    most_states: u32,
    /// The largest number of VALU instructions over which a hazard reaches that wait states do not resolve.
    farthest: u8,
}

fn part_of(sets: &mut HazardSets, inst: &MInst) -> HazardInst {
    let inst = lower_inst(inst, |_| 0).expect("operands are physical after register allocation");
    HazardInst::with(sets, inst).expect("the target has the instructions that were selected for it")
}

fn states(i: &Inst) -> u32 {
    match (i.op == op::S_NOP, i.srcs.first()) {
        (true, Some(Operand::Imm(n))) => *n as u32 + 1,
        _ => 1,
    }
}

impl Code {
    /// None when the target interlocks everything.
    fn of(f: &Function) -> Option<Code> {
        if f.target.hazards().is_empty() {
            return None;
        }
        let mut predecessors = vec![Vec::new(); f.blocks.len()];
        for b in 0..f.blocks.len() {
            for s in f.successors(b) {
                predecessors[s].push(b);
            }
        }
        let (mut sets, mut repeated) = (HazardSets::new(f.target), Repeated::new());
        let mut insts = Vec::with_capacity(f.inst_count());
        let mut number = |i| {
            let before = repeated.find(i, insts.len());
            before.unwrap_or_else(|| {
                insts.push(part_of(&mut sets, i));
                insts.len() - 1
            }) as u32
        };
        let blocks = f.blocks.iter().map(|b| b.insts.iter().map(&mut number).collect()).collect();
        Some(Code {
            target: f.target,
            insts,
            blocks,
            sets,
            predecessors,
            most_states: barewave_isa::max_required_states(f.target).into(),
            farthest: barewave_isa::max_fix_reach(f.target),
        })
    }

    fn insert(&mut self, f: &mut Function, b: usize, i: usize, inst: MInst) {
        self.blocks[b].insert(i, self.insts.len() as u32);
        self.insts.push(part_of(&mut self.sets, &inst));
        f.blocks[b].insts.insert(i, inst);
    }

    /// Instruction `i` of block `b`.
    fn inst(&self, b: usize, i: usize) -> &HazardInst {
        &self.insts[self.blocks[b][i] as usize]
    }

    /// The first so many instructions of a block, from the last of them on.
    fn backwards(&self, b: usize, before: usize) -> impl Iterator<Item = &HazardInst> {
        self.blocks[b][..before].iter().rev().map(|n| &self.insts[*n as usize])
    }

    /// Wait states missing before instruction `i` of block `b`.
    fn missing_states(&self, b: usize, i: usize) -> u32 {
        let consumer = self.inst(b, i);
        if !consumer.may_need_states() {
            return 0;
        }
        let mut worst = 0;
        // (block, number of its instructions that precede, states passed, what lies between)
        let mut paths: SmallVec<[_; 4]> = smallvec![(b, i, 0, Between::default())];
        let mut seen: SmallVec<[(usize, u32, Between); 4]> = SmallVec::new();
        while let Some((b, before, mut passed, mut between)) = paths.pop() {
            for producer in self.backwards(b, before) {
                let need = u32::from(consumer.states_after(producer, between));
                worst = worst.max(need.saturating_sub(passed));
                passed += states(producer);
                between.pass(producer);
                if passed >= self.most_states {
                    break;
                }
            }
            if passed < self.most_states {
                for &p in &self.predecessors[b] {
                    if !seen.iter().any(|s| s.0 == p && s.1 <= passed && s.2 == between) {
                        seen.push((p, passed, between));
                        paths.push((p, self.blocks[p].len(), passed, between));
                    }
                }
            }
        }
        worst
    }

    /// A hazard before instruction `i` of block `b` that wait states do not resolve and nothing has resolved yet.
    fn unfixed(&self, b: usize, i: usize) -> Option<Fix> {
        let consumer = self.inst(b, i);
        if self.farthest == 0 || !consumer.may_need_fix() {
            return None;
        }
        let mut paths: SmallVec<[_; 4]> = smallvec![(b, i, Distance::default())];
        let mut seen: SmallVec<[(usize, Distance); 4]> = SmallVec::new();
        while let Some((b, before, mut distance)) = paths.pop() {
            let mut more = true;
            for producer in self.backwards(b, before) {
                if let Some((fix, reach)) = consumer.fix_after(producer)
                    && distance.within(fix, reach)
                {
                    return Some(fix);
                }
                more = distance.pass(self.target, producer, self.farthest);
                if !more {
                    break;
                }
            }
            for &p in self.predecessors[b].iter().filter(|_| more) {
                if !seen.contains(&(p, distance)) {
                    seen.push((p, distance));
                    paths.push((p, self.blocks[p].len(), distance));
                }
            }
        }
        None
    }

    /// Calls `on_need` in order of place with every instruction before which a scalar register must be waited for; what
    /// is found is taken as waited for from there on.
    fn scalar_hazards(&self, f: &Function, on_need: &mut dyn FnMut(usize, usize, AluWaits)) {
        let uses: Vec<_> = self.insts.iter().map(|i| self.target.scalar_use(i)).collect();
        if uses.iter().all(Option::is_none) {
            return;
        }
        let wait = |w: AluWaits| {
            self.target.scalar_use(&Inst::new(op::S_WAITCNT_DEPCTR, &[], &[Operand::Imm(w.immediate().into())]))
        };
        let walk = |b: usize, h: &mut ScalarHistory, on_need: &mut dyn FnMut(usize, usize, AluWaits)| {
            for (i, n) in self.blocks[b].iter().enumerate() {
                let Some(u) = &uses[*n as usize] else { continue };
                if let Some((_, waits)) = h.missing(u) {
                    on_need(b, i, waits);
                    h.pass(&wait(waits).expect("the target has the hazard"));
                }
                h.pass(u);
            }
        };
        let entry = forward(f, ScalarHistory::default(), ScalarHistory::merge, |b, h| walk(b, h, &mut |_, _, _| {}));
        for (b, h) in entry.into_iter().enumerate() {
            if let Some(mut h) = h {
                walk(b, &mut h, on_need);
            }
        }
    }
}
