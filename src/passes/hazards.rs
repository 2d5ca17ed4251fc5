//! Hazard insertion and its verifier: wait states between instructions that the hardware does not interlock.
//!
//! The tables say for a pair of instructions how many wait states must lie between them. A wait state is one issued
//! instruction of the same wave; `s_nop n` counts for `n + 1`. From each instruction the search goes backwards over
//! all paths until as many states have passed as any rule can ask for; what is missing is made up by one `s_nop`.

use super::emit::lower_inst;
use crate::mir::{Function, MInst};
use barewave_isa::{Inst, op};

/// Two instructions that are too close.
#[derive(Debug, thiserror::Error)]
#[error("kernel {kernel}, {block}, instruction {index}: {missing} more wait states are needed between {producer} and {consumer}")]
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
    if barewave_isa::max_required_states(f.target) == 0 {
        return;
    }
    let preds = predecessors(f);
    let mut lowered = lower_all(f);
    for b in 0..f.blocks.len() {
        let mut i = 0;
        while i < lowered[b].len() {
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
    if barewave_isa::max_required_states(f.target) == 0 {
        return Ok(());
    }
    let preds = predecessors(f);
    let lowered = lower_all(f);
    for b in 0..f.blocks.len() {
        for i in 0..lowered[b].len() {
            let (missing, producer) = missing_states(f, &preds, &lowered, b, i);
            if missing > 0 {
                return Err(Hazard {
                    kernel: f.name.clone(),
                    block: f.blocks[b].name.clone(),
                    index: i,
                    missing,
                    producer: producer.map_or(String::new(), |p| p.display(f.target).to_string()),
                    consumer: lowered[b][i].display(f.target).to_string(),
                });
            }
        }
    }
    Ok(())
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
