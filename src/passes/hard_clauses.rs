//! Clauses: `s_clause` in front of neighbouring memory instructions of one kind.
//!
//! The wave issues what stands in a clause with no memory instruction of another wave between, so that lines which the first one brings to
//! the cache are still there for the next. Before gfx10 the hardware found such runs itself. Loads form clauses, and
//! stores where these have clauses of their own; neighbours have a register of their addresses in common, since where nothing is shared
//! nothing is gained. Anything between them ends the run. What kinds there are, and how long a clause may be, the tables say
//! ([`barewave_isa::ClauseKind`]).
//!
//! It runs when waits and hazards have their places: nothing may come between them any more.

use crate::mir::{Function, MInst, Opnd};
use barewave_isa::{ClauseAccess, ClauseKind, Flags, Pipe, Regs, Target, op};

/// Inserts what marks clauses. Operands must be physical.
pub fn hard_clauses(f: &mut Function) {
    let (target, longest) = (f.target, f.target.longest_clause());
    if longest == 0 {
        return;
    }
    for block in &mut f.blocks {
        if !lives_by_memory(target, &block.insts) {
            continue;
        }
        // where each begins, and how many instructions it has
        let mut clauses: Vec<(usize, usize)> = Vec::new();
        let mut open: Option<(ClauseKind, usize)> = None;
        for (i, inst) in block.insts.iter().enumerate() {
            let kind = worth_joining(target, inst);
            let joins = open.is_some_and(|(of, start)| {
                kind == Some(of) && i - start < longest && share_address(&block.insts[i - 1], inst)
            });
            match (joins, open) {
                (true, Some((_, start))) if i - start == 1 => clauses.push((start, 2)),
                (true, _) => clauses.last_mut().into_iter().for_each(|c| c.1 += 1),
                _ => open = kind.map(|k| (k, i)),
            }
        }
        for (start, n) in clauses.into_iter().rev() {
            block.insts.insert(start, MInst::new(op::S_CLAUSE, &[], &[(n as u32 - 1).into()]));
        }
    }
}

/// Clocks of vector instructions for each access of memory, above which it is not memory that a block waits for.
const CLOCKS_AN_ACCESS: usize = 8;

/// Memory decides how long a block takes, or may.
fn lives_by_memory(target: Target, insts: &[MInst]) -> bool {
    let (mut accesses, mut clocks) = (0, 0);
    for info in insts.iter().filter_map(|i| i.info(target)) {
        match info.pipe {
            Pipe::Vmem | Pipe::Smem => accesses += 1,
            Pipe::Valu | Pipe::Trans | Pipe::Matrix => clocks += usize::from(info.busy),
            _ => {}
        }
    }
    accesses > 1 && clocks <= CLOCKS_AN_ACCESS * accesses
}

/// The kind of clause that an instruction gains by standing in.
fn worth_joining(target: Target, inst: &MInst) -> Option<ClauseKind> {
    let info = inst.info(target)?;
    let kind = target.clause_kind(inst.op()?)?;
    let loads = info.flags.has(Flags::LOAD) && !info.flags.has(Flags::STORE) && !info.flags.has(Flags::ATOMIC);
    let worth = match kind {
        ClauseKind::Scalar => loads,
        ClauseKind::Memory(ClauseAccess::Store) => true,
        ClauseKind::Memory(_) => loads && !inst.loads_to_lds(target),
        ClauseKind::Flat(_) | ClauseKind::Lds | ClauseKind::Vector => false,
    };
    worth.then_some(kind)
}

/// Both have a register of their addresses in common.
fn share_address(a: &MInst, b: &MInst) -> bool {
    let regs = |i: &MInst| -> smallvec::SmallVec<[Regs; 4]> {
        let sources = i.srcs.iter().filter_map(|o| if let Opnd::P(r) = o { Some(*r) } else { None });
        sources.collect()
    };
    let (a, b) = (regs(a), regs(b));
    a.iter().any(|a| b.iter().any(|b| a.overlaps(*b)))
}
