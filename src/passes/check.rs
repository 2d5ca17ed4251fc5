//! Proves a register allocation, independently of the allocator.
//!
//! The argument: run the allocated program on an abstract machine whose registers hold *names* instead of values. The
//! name of a value is the dword of the virtual register that it was computed into. At every instruction the function
//! before allocation says which names the operands must carry; the function after allocation says in which physical
//! registers they are looked for. If on every path each operand finds its name, every instruction sees the value it
//! would have seen with virtual registers. When a name is written its older copies become stale, so they are dropped
//! everywhere. Where paths meet, a register keeps only the names it holds on all of them; the analysis starts from
//! "every name" and shrinks to a fixpoint, so loops are covered. Both functions must have the same instructions in
//! the same order (spill code is in both), which is checked too.

use crate::mir::liveness::Units;
use crate::mir::{Function, MInst, Opnd};
use barewave_isa::{Reg, Regs};

/// A disproof.
#[derive(Debug, thiserror::Error)]
#[error("register allocation of {kernel} is wrong at {block}, instruction {index}: {what}")]
pub struct CheckError {
    kernel: String,
    block: String,
    index: usize,
    what: String,
}

/// Which name each register holds, and how many registers hold each name.
#[derive(Clone, PartialEq)]
struct State {
    names: Vec<u32>,
    holders: Vec<u16>,
}

/// No name.
const NOTHING: u32 = u32::MAX;

impl State {
    fn new(units: usize) -> State {
        State { names: vec![NOTHING; Reg::COUNT], holders: vec![0; units] }
    }
    fn get(&self, r: Reg) -> Option<u32> {
        self.names.get(usize::from(r.0)).copied().filter(|n| *n != NOTHING)
    }
    fn forget(&mut self, r: Reg) {
        if let Some(name) = self.get(r) {
            self.holders[name as usize] -= 1;
            self.names[usize::from(r.0)] = NOTHING;
        }
    }
    /// A register is written with a name: its older copies are stale.
    fn write(&mut self, r: Reg, name: u32) {
        self.forget(r);
        if self.holders[name as usize] > 0 {
            self.names.iter_mut().filter(|n| **n == name).for_each(|n| *n = NOTHING);
        }
        self.names[usize::from(r.0)] = name;
        self.holders[name as usize] = 1;
    }
    /// What both hold.
    fn meet(&self, other: &State) -> State {
        let mut out = self.clone();
        for (at, theirs) in other.names.iter().enumerate() {
            if out.names[at] != *theirs {
                out.forget(Reg(at as u16));
            }
        }
        out
    }
}

/// Checks that `after` is `before` with virtual registers replaced by physical ones so that every operand still
/// carries its value. `entry` tells which registers hold which virtual registers at the start.
pub fn check(before: &Function, after: &Function, entry: &[(crate::mir::VReg, Reg)]) -> Result<(), CheckError> {
    let units = Units::of(before);
    let mut start = State::new(units.count());
    for &(v, r) in entry {
        for (i, u) in units.of_part(before.whole(v)).enumerate() {
            start.write(r.offset(i as u16), u as u32);
        }
    }
    let mut at_block: Vec<Option<State>> = vec![None; before.blocks.len()];
    at_block[0] = Some(start);
    let mut work: Vec<usize> = vec![0];
    while let Some(b) = work.pop() {
        let mut state = at_block[b].clone().expect("a block on the list has a state");
        let fail = |index: usize, what: String| CheckError {
            kernel: before.name.clone(),
            block: before.blocks[b].name.clone(),
            index,
            what,
        };
        if before.blocks[b].insts.len() != after.blocks[b].insts.len() {
            return Err(fail(0, "the number of instructions differs".to_string()));
        }
        for (i, (x, y)) in before.blocks[b].insts.iter().zip(&after.blocks[b].insts).enumerate() {
            step(before, &units, x, y, &mut state).map_err(|what| fail(i, what))?;
        }
        for s in after.successors(b) {
            let new = match &at_block[s] {
                None => state.clone(),
                Some(old) => old.meet(&state),
            };
            if at_block[s].as_ref() != Some(&new) {
                at_block[s] = Some(new);
                work.push(s);
            }
        }
    }
    Ok(())
}

/// Executes one instruction on the abstract machine.
fn step(f: &Function, units: &Units, x: &MInst, y: &MInst, state: &mut State) -> Result<(), String> {
    if x.code != y.code || x.mods != y.mods || x.dsts.len() != y.dsts.len() || x.srcs.len() != y.srcs.len() {
        return Err(format!("it became another instruction: {x:?} is now {y:?}"));
    }
    let paired = |a: Opnd, b: Opnd| -> Result<Option<(std::ops::Range<usize>, Regs)>, String> {
        match (a, b) {
            (Opnd::V(p), Opnd::P(r)) if p.len == r.dwords => Ok(Some((units.of_part(p), r))),
            (a, b) if a == b && !matches!(a, Opnd::V(_)) => Ok(None),
            (a, b) => Err(format!("operand {a:?} became {b:?}")),
        }
    };
    for (a, b) in x.uses(f.target).zip(y.uses(f.target)) {
        if let Some((names, regs)) = paired(a, b)? {
            for (u, r) in names.zip(regs.iter()) {
                match state.get(r) {
                    Some(held) if held as usize == u => {}
                    Some(held) => return Err(format!("{r:?} should hold dword {u} of {a:?} but holds dword {held}")),
                    None => return Err(format!("{r:?} should hold dword {u} of {a:?} but holds nothing known")),
                }
            }
        }
    }
    let mut written: Vec<Reg> = Vec::new();
    for (a, b) in x.dsts.iter().zip(&y.dsts) {
        if let Some((names, regs)) = paired(*a, *b)? {
            for (u, r) in names.zip(regs.iter()) {
                if written.contains(&r) {
                    return Err(format!("{r:?} is written twice by one instruction"));
                }
                written.push(r);
                state.write(r, u as u32);
            }
        }
    }
    // Fixed registers that the instruction writes besides its operands hold nothing known afterwards.
    if let Some(info) = y.info(f.target) {
        for r in info.writes {
            if !written.contains(r) {
                state.forget(*r);
            }
        }
    }
    for b in &y.dsts {
        if let Opnd::P(r) = b {
            r.iter().filter(|r| !written.contains(r)).for_each(|r| {
                state.forget(r);
            });
        }
    }
    Ok(())
}
