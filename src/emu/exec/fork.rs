//! Rare control flow: forks and joins of gfx8 and gfx9, subvector loops of RDNA, skipping of vector instructions.
//!
//! Source: "Vega" and "RDNA2" instruction set manuals (S_CBRANCH_G_FORK, S_CBRANCH_JOIN, S_SUBVECTOR_LOOP_BEGIN,
//! S_SETVSKIP). The depth of the fork stack is kept in MODE bits 31:29, as the hardware does; an entry is four SGPRs.

use super::flow::{branch, go, next_address};
use crate::fault::FaultKind;
use crate::uop::{Run, UOp};
use crate::wave::{Ctl, EXEC, Wave};
use barewave_isa::action::Fork;

fn depth(w: &Wave) -> usize {
    (w.mode >> 29) as usize
}
fn set_depth(w: &mut Wave, n: usize) {
    let mode = w.mode & 0x1fff_ffff | (n as u32) << 29;
    w.set_mode(mode);
}

/// Lanes whose bit is set in `mask` want to go to `target`, the others to the next instruction; the smaller set goes
/// first and the other is remembered.
fn fork(w: &mut Wave, mask: u64, target: u64, next: u64) -> Ctl {
    let exec = w.exec();
    let (pass, fail) = (mask & exec, !mask & exec);
    if pass == exec {
        return go(w, target);
    }
    if fail == exec {
        return Ctl::Next;
    }
    let n = depth(w);
    if n >= 7 {
        return w.fail(FaultKind::Unsupported("more than 6 forks are open".into()), None);
    }
    let (now, later, later_exec) =
        if fail.count_ones() < pass.count_ones() { (fail, target, pass) } else { (pass, next, fail) };
    w.set_pair(4 * n, later);
    w.set_pair(4 * n + 2, later_exec);
    set_depth(w, n + 1);
    w.set_bits(EXEC, now);
    if now == fail { Ctl::Next } else { go(w, target) }
}

unsafe fn fork_register(w: &mut Wave, op: &UOp) -> Ctl {
    let (mask, target, next) = (w.r64(&op.src[0]), w.r64(&op.src[1]), next_address(w, op));
    fork(w, mask, target, next)
}

unsafe fn fork_label(w: &mut Wave, op: &UOp) -> Ctl {
    let (mask, next) = (w.pair(op.dst as usize), next_address(w, op));
    fork(w, mask, op.src[1].value, next)
}

unsafe fn join(w: &mut Wave, op: &UOp) -> Ctl {
    let (saved, n) = (w.r32(&op.src[0]) as usize & 7, depth(w));
    if n == saved || n == 0 {
        return Ctl::Next;
    }
    set_depth(w, n - 1);
    let (to, exec) = (w.pair(4 * (n - 1)), w.pair(4 * (n - 1) + 2));
    w.set_bits(EXEC, exec);
    go(w, to)
}

unsafe fn subvector_begin(w: &mut Wave, op: &UOp) -> Ctl {
    let d = op.dst as usize;
    if w.pair(EXEC) == 0 {
        return branch(w, op, true);
    }
    if w.s[EXEC] == 0 {
        // Only the high half has lanes.
        w.s[d] = 0;
    } else {
        w.s[d] = w.s[EXEC + 1];
        w.s[EXEC + 1] = 0;
    }
    Ctl::Next
}

unsafe fn subvector_end(w: &mut Wave, op: &UOp) -> Ctl {
    let d = op.dst as usize;
    if w.s[EXEC + 1] != 0 {
        w.s[EXEC] = w.s[d];
        return Ctl::Next;
    }
    if w.s[d] == 0 {
        return Ctl::Next;
    }
    w.s[EXEC + 1] = w.s[d];
    w.s[d] = w.s[EXEC];
    w.s[EXEC] = 0;
    branch(w, op, true)
}

/// The interpreter looks at the flag when it is entered again.
unsafe fn setvskip(w: &mut Wave, op: &UOp) -> Ctl {
    let bit = w.r32(&op.src[0]) >> (w.r32(&op.src[1]) & 31) & 1;
    w.vskip = bit == 1;
    Ctl::Yield
}

/// Instructions of trap handlers, which do not run here.
unsafe fn privileged(w: &mut Wave, op: &UOp) -> Ctl {
    // SAFETY: the program outlives the launch.
    let name = unsafe { &*w.program }.name_at(op.pc);
    w.fail(FaultKind::Unsupported(format!("{name} outside of a trap handler")), None)
}

/// Handlers.
pub fn run(f: Fork) -> Run {
    match f {
        Fork::CbranchGFork => fork_register,
        Fork::CbranchIFork => fork_label,
        Fork::CbranchJoin => join,
        Fork::SubvectorLoopBegin => subvector_begin,
        Fork::SubvectorLoopEnd => subvector_end,
        Fork::Setvskip => setvskip,
        Fork::RfeB64 => privileged,
    }
}
