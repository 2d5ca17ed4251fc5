//! Hazard insertion and its verifier: wait states between instructions that the hardware does not interlock.
//!
//! The tables say for a pair of instructions how many wait states must lie between them. A wait state is one issued
//! instruction of the same wave; `s_nop n` counts for `n + 1`. From each instruction the search goes backwards over
//! all paths until as many states have passed as any rule can ask for; what is missing is made up by one `s_nop`.
//! Some hazards of RDNA are resolved differently: by VALU instructions in between or by a wait for the VALU's
//! dependency counters. They count VALU instructions, and the same search finds them.

use super::emit::lower_inst;
use crate::mir::{Function, MInst};
use barewave_isa::{Fix, Inst, Pipe, op};

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
    let mut lowered = lower_all(f);
    for b in 0..f.blocks.len() {
        let mut i = 0;
        while i < lowered[b].len() {
            if let Some((fix, producer)) = unfixed(f, &preds, &lowered, b, i) {
                let inst = match fix {
                    Fix::DepCtr => {
                        let trans = f.target.op(producer.op).is_some_and(|x| x.pipe == Pipe::Trans);
                        let wait: u32 = if trans { VA_VDST_0 } else { 0 };
                        MInst::new(op::S_WAITCNT_DEPCTR, &[], &[wait.into()])
                    }
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
}

/// Proves that all required wait states are there.
pub fn verify(f: &Function) -> Result<(), Hazard> {
    if f.target.hazards().is_empty() {
        return Ok(());
    }
    let preds = predecessors(f);
    let lowered = lower_all(f);
    for b in 0..f.blocks.len() {
        for i in 0..lowered[b].len() {
            let (mut missing, mut producer) = missing_states(f, &preds, &lowered, b, i);
            if let Some((_, p)) = unfixed(f, &preds, &lowered, b, i) {
                (missing, producer) = (missing.max(1), Some(p));
            }
            if missing > 0 {
                return Err(Hazard {
                    kernel: f.name.clone(),
                    block: f.blocks[b].name.clone(),
                    index: i,
                    missing,
                    producer: producer.map_or(String::new(), |p| format!("{p:?}")),
                    consumer: format!("{:?}", lowered[b][i]),
                });
            }
        }
    }
    Ok(())
}

/// `s_waitcnt_depctr va_vdst(0)`: all VALU results written, nothing else waited for.
const VA_VDST_0: u32 = 0x0fff;

/// A hazard before instruction `i` of block `b` that wait states do not resolve and nothing has resolved yet.
fn unfixed<'a>(
    f: &Function,
    preds: &[Vec<usize>],
    code: &'a [Vec<Inst>],
    b: usize,
    i: usize,
) -> Option<(Fix, &'a Inst)> {
    let farthest = u32::from(barewave_isa::max_fix_reach(f.target));
    if farthest == 0 {
        return None;
    }
    let consumer = &code[b][i];
    let mut paths = vec![(b, i, 0u32)];
    let mut seen: Vec<(usize, u32)> = Vec::new();
    while let Some((b, before, mut valus)) = paths.pop() {
        let mut k = before;
        let mut resolved = false;
        while k > 0 && valus < farthest && !resolved {
            k -= 1;
            let producer = &code[b][k];
            if let Some((fix, reach)) = barewave_isa::required_fix(f.target, producer, consumer)
                && valus < reach as u32
            {
                return Some((fix, producer));
            }
            let pipe = f.target.op(producer.op).map(|x| x.pipe);
            valus += u32::from(matches!(pipe, Some(Pipe::Valu | Pipe::Trans | Pipe::Matrix)));
            resolved = producer.op == op::S_WAITCNT_DEPCTR;
        }
        if k == 0 && valus < farthest && !resolved {
            for &p in &preds[b] {
                if !seen.iter().any(|&(q, s)| q == p && s <= valus) {
                    seen.push((p, valus));
                    paths.push((p, code[p].len(), valus));
                }
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
        (true, Some(barewave_isa::Operand::Imm(n))) => *n as u32 + 1,
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
