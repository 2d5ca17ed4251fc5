//! Hazard insertion and its verifier: wait states between instructions that the hardware does not interlock.
//!
//! The tables say for a pair of instructions how many wait states must lie between them. A wait state is one issued
//! instruction of the same wave; `s_nop n` counts for `n + 1`. From each instruction the search goes backwards over
//! all paths until as many states have passed as any rule can ask for; what is missing is made up by one `s_nop`.
//! Some hazards of RDNA are resolved differently: by VALU instructions in between or by a wait for the VALU's
//! dependency counters. They count VALU instructions, and the same search finds them. Where scalar registers that the VALU
//! has read must be waited for after every later write, their uses are followed forwards over all paths.

use super::emit::lower_inst;
use crate::mir::{Function, MInst};
use barewave_isa::{AluWaits, Distance, Fix, Inst, Operand, Reg, Regs, ScalarHistory, op};

/// Two instructions that are too close.
#[derive(Debug, thiserror::Error)]
#[error(
    "kernel {kernel}, {block}, instruction {index}: {missing} more wait states are needed between {producer} and {consumer}"
)]
pub struct Hazard {
    kernel: String,
    block: String,
    index: usize,
    missing: u32,
    producer: String,
    consumer: String,
}

/// Largest number that one `s_nop` can wait for on every target.
const NOP_STATES: u32 = 8;

/// Inserts `s_nop` where the function needs wait states. Operands must be physical.
pub fn hazards(f: &mut Function) {
    if f.target.hazards().is_empty() {
        return;
    }
    let preds = predecessors(f);
    let farthest = barewave_isa::max_fix_reach(f.target);
    let mut lowered = lower_all(f);
    for b in 0..f.blocks.len() {
        let mut i = 0;
        while i < lowered[b].len() {
            if let Some((fix, _)) = unfixed(f, &preds, &lowered, farthest, b, i) {
                let inst = match fix {
                    Fix::DepCtr => MInst::new(op::S_WAITCNT_DEPCTR, &[], &[VA_VDST_0.into()]),
                    _ => MInst::new(op::V_NOP, &[], &[]),
                };
                lowered[b].insert(i, lower_inst(&inst, |_| 0).expect("a target instruction"));
                f.blocks[b].insts.insert(i, inst);
                continue;
            }
            let (missing, _) = missing_states(f, &preds, &lowered, b, i);
            let mut left = missing;
            while left > 0 {
                let n = left.min(NOP_STATES);
                let nop = MInst::new(op::S_NOP, &[], &[(n - 1).into()]);
                lowered[b].insert(i, lower_inst(&nop, |_| 0).expect("s_nop is a target instruction"));
                f.blocks[b].insts.insert(i, nop);
                i += 1;
                left -= n;
            }
            i += 1;
        }
    }
    let mut inserts = Vec::new();
    scalar_hazards(f, &lowered, &mut |b, i, _, wait| inserts.push((b, i, wait)));
    for (b, i, wait) in inserts.into_iter().rev() {
        f.blocks[b].insts.insert(i, MInst::new(op::S_WAITCNT_DEPCTR, &[], &[wait.immediate().into()]));
    }
}

/// Proves that all required wait states are there.
pub fn verify(f: &Function) -> Result<(), Hazard> {
    if f.target.hazards().is_empty() {
        return Ok(());
    }
    let preds = predecessors(f);
    let farthest = barewave_isa::max_fix_reach(f.target);
    let lowered = lower_all(f);
    for b in 0..f.blocks.len() {
        for i in 0..lowered[b].len() {
            let (mut missing, mut producer) = missing_states(f, &preds, &lowered, b, i);
            if let Some((_, p)) = unfixed(f, &preds, &lowered, farthest, b, i) {
                (missing, producer) = (missing.max(1), Some(p));
            }
            if missing > 0 {
                let producer = producer.map_or(String::new(), |p| format!("{p:?}"));
                return Err(hazard(f, &lowered, b, i, missing, producer));
            }
        }
    }
    let mut first = None;
    scalar_hazards(f, &lowered, &mut |b, i, register, wait| {
        first.get_or_insert_with(|| {
            hazard(f, &lowered, b, i, 1, format!("the write of {} ({wait})", Regs::from(register)))
        });
    });
    first.map_or(Ok(()), Err)
}

fn hazard(f: &Function, code: &[Vec<Inst>], b: usize, i: usize, missing: u32, producer: String) -> Hazard {
    Hazard {
        kernel: f.name.clone(),
        block: f.blocks[b].name.clone(),
        index: i,
        missing,
        producer,
        consumer: format!("{:?}", code[b][i]),
    }
}

/// Calls `on_need` in order of place with every instruction before which a scalar register must be waited for; what is
/// found is taken as waited for from there on.
fn scalar_hazards(f: &Function, code: &[Vec<Inst>], on_need: &mut dyn FnMut(usize, usize, Reg, AluWaits)) {
    let uses: Vec<Vec<_>> = code.iter().map(|b| b.iter().map(|i| f.target.scalar_use(i)).collect()).collect();
    if uses.iter().flatten().all(Option::is_none) {
        return;
    }
    let wait =
        |w: AluWaits| f.target.scalar_use(&Inst::new(op::S_WAITCNT_DEPCTR, &[], &[Operand::Imm(w.immediate().into())]));
    let walk = |b: usize, h: &mut ScalarHistory, on_need: &mut dyn FnMut(usize, usize, Reg, AluWaits)| {
        for (i, u) in uses[b].iter().enumerate() {
            let Some(u) = u else { continue };
            if let Some((register, waits)) = h.missing(u) {
                on_need(b, i, register, waits);
                h.pass(&wait(waits).expect("the target has the hazard"));
            }
            h.pass(u);
        }
    };
    let mut entry: Vec<Option<ScalarHistory>> = vec![None; code.len()];
    entry[0] = Some(ScalarHistory::default());
    let mut work = vec![0];
    while let Some(b) = work.pop() {
        let mut h = entry[b].expect("a block on the list has a state");
        walk(b, &mut h, &mut |_, _, _, _| {});
        for s in f.successors(b) {
            let changed = match &mut entry[s] {
                Some(old) => old.merge(&h),
                none => none.replace(h).is_none(),
            };
            if changed && !work.contains(&s) {
                work.push(s);
            }
        }
    }
    for (b, h) in entry.into_iter().enumerate() {
        if let Some(mut h) = h {
            walk(b, &mut h, on_need);
        }
    }
}

/// `s_waitcnt_depctr va_vdst(0)`: all VALU results written, nothing else waited for.
const VA_VDST_0: u32 = 0x0fff;

/// A hazard before instruction `i` of block `b` that wait states do not resolve and nothing has resolved yet.
fn unfixed<'a>(
    f: &Function,
    preds: &[Vec<usize>],
    code: &'a [Vec<Inst>],
    farthest: u8,
    b: usize,
    i: usize,
) -> Option<(Fix, &'a Inst)> {
    if farthest == 0 {
        return None;
    }
    let consumer = &code[b][i];
    let mut paths = vec![(b, i, Distance::default())];
    let mut seen: Vec<(usize, Distance)> = Vec::new();
    while let Some((b, before, mut distance)) = paths.pop() {
        let mut more = true;
        for producer in code[b][..before].iter().rev() {
            if let Some((fix, reach)) = barewave_isa::required_fix(f.target, producer, consumer)
                && distance.within(fix, reach)
            {
                return Some((fix, producer));
            }
            more = distance.pass(f.target, producer, farthest);
            if !more {
                break;
            }
        }
        for &p in preds[b].iter().filter(|_| more) {
            if !seen.contains(&(p, distance)) {
                seen.push((p, distance));
                paths.push((p, code[p].len(), distance));
            }
        }
    }
    None
}

fn predecessors(f: &Function) -> Vec<Vec<usize>> {
    let mut preds = vec![Vec::new(); f.blocks.len()];
    for b in 0..f.blocks.len() {
        for s in f.successors(b) {
            preds[s].push(b);
        }
    }
    preds
}

fn lower_all(f: &Function) -> Vec<Vec<Inst>> {
    let lower = |i: &MInst| lower_inst(i, |_| 0).expect("operands are physical after register allocation");
    f.blocks.iter().map(|b| b.insts.iter().map(lower).collect()).collect()
}

fn states(i: &Inst) -> u32 {
    match (i.op == op::S_NOP, i.srcs.first()) {
        (true, Some(Operand::Imm(n))) => *n as u32 + 1,
        _ => 1,
    }
}

/// Wait states missing before instruction `i` of block `b`, and the producer that asks for them.
fn missing_states<'a>(
    f: &Function,
    preds: &[Vec<usize>],
    code: &'a [Vec<Inst>],
    b: usize,
    i: usize,
) -> (u32, Option<&'a Inst>) {
    let limit = barewave_isa::max_required_states(f.target) as u32;
    let consumer = &code[b][i];
    let mut worst = (0, None);
    // (block, number of its instructions that precede, states passed)
    let mut paths = vec![(b, i, 0u32)];
    let mut seen: Vec<(usize, u32)> = Vec::new();
    while let Some((b, before, mut passed)) = paths.pop() {
        let mut k = before;
        while k > 0 && passed < limit {
            k -= 1;
            let producer = &code[b][k];
            let need = barewave_isa::required_states(f.target, producer, consumer) as u32;
            if need > passed && need - passed > worst.0 {
                worst = (need - passed, Some(producer));
            }
            passed += states(producer);
        }
        if k == 0 && passed < limit {
            for &p in &preds[b] {
                if !seen.iter().any(|&(q, s)| q == p && s <= passed) {
                    seen.push((p, passed));
                    paths.push((p, code[p].len(), passed));
                }
            }
        }
    }
    worst
}
