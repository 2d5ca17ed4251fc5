//! Undefined registers: nothing that no instruction has written decides anything or reaches memory.
//!
//! Forwards over all paths the set of registers that may hold a value of the program: at the start what descriptor and
//! hardware put there, later all results whose operands may hold one. An operand all of whose registers nobody can have
//! written makes the result undefined. Such a value may be moved about: compilers leave operands undefined that do not
//! matter. It must not be an address, a condition, a new EXEC, the target of a jump, or data for device memory.
//!
//! A path is enough to define a register, and a vector instruction defines it though EXEC may turn lanes off: a register
//! that is written under a condition is read, by correct programs, by the lanes that wrote it. What is reported is therefore
//! certain: no path and no lane has ever written the register.
//!
//! The set at a block only grows, and what is larger leaves less undefined. So a block in which nothing was adds the registers that it writes, and those that were there at its end before are
//! all of these: it is walked once, however often what comes before it changes.

use super::code::{Code, Graph};
use super::inst::{IMPLIED, Line, TIED, Use};
use super::regs::{Set, Span};
use super::report::{Finding, Findings, Rule};
use super::solve::{Analysis, solve};
use crate::codeobj::{Descriptor, Family, ScratchSetup};
use barewave_isa::action::Address;
use barewave_isa::{Flags, Pipe, Reg, Regs, Traits, op};
use std::cell::RefCell;

/// Registers that the hardware sets when a wave of the kernel starts.
fn at_start(d: &Descriptor, family: Family) -> Set {
    let mut set = Set::default();
    let mut add = |r: Regs| {
        if let Some(s) = Span::of(r) {
            set.insert(s);
        }
    };
    let layout = d.user_sgpr_layout(family);
    let values = [
        (layout.private_segment_buffer, 4),
        (layout.dispatch_ptr, 2),
        (layout.queue_ptr, 2),
        (layout.kernarg_segment_ptr, 2),
        (layout.dispatch_id, 2),
        (layout.flat_scratch_init, 2),
        (layout.private_segment_size, 1),
        (layout.system.workgroup_id[0], 1),
        (layout.system.workgroup_id[1], 1),
        (layout.system.workgroup_id[2], 1),
        (layout.system.workgroup_info, 1),
        (layout.system.scratch_wave_offset, 1),
    ];
    for (at, n) in values {
        at.into_iter().for_each(|at| add(Regs::s(at, n)));
    }
    if let Some((at, n, _)) = layout.kernarg_preload {
        (0..n).for_each(|i| add(Regs::s(at + i, 1)));
    }
    let ids = if family.packed_workitem_ids() { 0 } else { u16::from(d.workitem_ids()) };
    (0..=ids.min(2)).for_each(|i| add(Regs::v(i, 1)));
    (0..16).for_each(|i| add(Regs::from(Reg::ttmp(i))));
    // what is not a register of the program always reads as something
    for r in [Reg::EXEC_LO, Reg::EXEC_HI, Reg::FLAT_SCRATCH_LO, Reg::FLAT_SCRATCH_HI, Reg::XNACK_MASK_LO] {
        add(Regs::from(r));
    }
    add(Regs::from(Reg::XNACK_MASK_HI));
    set
}

/// Registers whose undefined values are no fault: the hardware sets them, or instructions name them as a habit.
fn matters(s: Span) -> bool {
    let r = s.start();
    !matches!(r, Reg::EXEC_LO | Reg::EXEC_HI | Reg::M0) && !(Reg::FLAT_SCRATCH_LO.0..Reg::M0.0).contains(&r.0)
}

struct Defined<'a, 'c> {
    code: &'a Code<'c>,
    graph: &'a Graph,
    /// The description of scratch that compilers keep where functions expect it.
    frame: Option<Span>,
    /// Of blocks that were walked, and in which nothing was undefined, the set at their end.
    ends: RefCell<Vec<Option<Set>>>,
}

impl Analysis for Defined<'_, '_> {
    type State = Set;

    fn pass(&self, block: usize, state: &mut Set) -> bool {
        let end = self.ends.borrow()[block];
        if let Some(end) = end {
            state.join(&end);
            return false;
        }
        let (found, sure) = walk(self, block, state, None);
        self.ends.borrow_mut()[block] = (sure && !found).then_some(*state);
        found
    }

    fn join(&self, state: &mut Set, other: &Set) -> bool {
        state.join(other)
    }

    fn follow(&self, block: usize, state: &Set, to: &mut dyn FnMut(usize, &Set)) {
        let b = &self.graph.blocks[block];
        b.successors().for_each(|s| to(s, state));
        if !b.calls.is_empty() {
            // what a function does not touch is as it was before the call
            b.next.iter().for_each(|s| to(*s as usize, state));
        }
    }
}

/// Checks a kernel.
pub fn check(code: &Code, g: &Graph, d: &Descriptor, budget: &mut usize, out: &mut Findings) -> Option<()> {
    let family = code.file.family;
    let by_kernel = d.scratch_setup(family) == ScratchSetup::ByKernel && d.scratch_enabled();
    let frame = Span::of(Regs::s(0, 4)).filter(|_| by_kernel);
    let a = Defined { code, graph: g, frame, ends: RefCell::new(vec![None; g.blocks.len()]) };
    for (b, mut state) in solve(g, &a, at_start(d, family), budget)? {
        walk(&a, b, &mut state, Some(out));
    }
    Some(())
}

/// Whether there is something to report in a block, and whether it is sure to write all that it names.
fn walk(a: &Defined, b: usize, s: &mut Set, mut out: Option<&mut Findings>) -> (bool, bool) {
    let (mut found, mut sure) = (false, true);
    let Defined { code, graph: g, frame, .. } = *a;
    for (_, line) in g.lines(code, b) {
        // Most operands are there, all of them.
        let indexed = line.inst.op.is_indexed() || sets_index(line);
        if !indexed && line.uses.iter().all(|u| !u.reads || s.covers(u.span)) {
            line.writes().for_each(|w| s.insert(w));
            continue;
        }
        if let Some((span, what)) = decides(line, s, frame) {
            found = true;
            if let Some(out) = out.as_deref_mut() {
                out.add(Finding {
                    rule: Rule::Undefined,
                    line: Some((line.at, line.raw)),
                    what: format!("nothing has written {} on any way to here, and {what}", span.regs()),
                    fix: "write it first, or have the descriptor provide it".into(),
                });
            }
        }
        sure &= pass(line, s);
    }
    if g.blocks[b].calls_unknown {
        // arguments and results are not known
        *s = Set::ALL;
    }
    (found, sure)
}

/// The operand is undefined as a whole.
fn is_undefined(s: &Set, span: Span) -> bool {
    !s.meets(span) && matters(span)
}

/// The registers of what follows depend on an index.
fn sets_index(line: &Line) -> bool {
    line.inst.op == op::S_SET_GPR_IDX_ON || line.inst.op == op::S_SET_GPR_IDX_MODE
}

/// What may hold values behind an instruction; true where what it writes does.
fn pass(line: &Line, s: &mut Set) -> bool {
    if line.inst.op.is_indexed() {
        // which register it is depends on an index
        if line.writes().any(Span::is_vector) || line.inst.dsts.is_empty() {
            *s = Set::ALL;
            return true;
        }
        line.writes().for_each(|w| s.insert(w));
        return true;
    }
    if sets_index(line) {
        *s = Set::ALL;
        return true;
    }
    let loads = line.has(Flags::LOAD) || line.info.pipe == Pipe::Smem || line.has(Flags::ATOMIC);
    let undefined = !loads && is_result_undefined(line, s);
    for w in line.writes() {
        if !undefined {
            s.insert(w);
        } else if !w.is_vector() && w.start() != Reg::EXEC_LO {
            // lanes that are turned off keep what vector registers hold
            s.remove(w);
        }
    }
    !undefined
}

/// Nothing that the result is made of was written.
fn is_result_undefined(line: &Line, s: &Set) -> bool {
    let mut operands = line.uses.iter().filter(|u| {
        let habit = u.source == IMPLIED && (line.is(Traits::LDS) || matches!(u.span.start(), Reg::EXEC_LO | Reg::M0));
        u.reads && u.source != TIED && !habit
    });
    if line.inst.op.is_bitwise() {
        // bits of lanes: those that one operand leaves undefined the other takes out
        let explicit = |u: &&Use| u.source < IMPLIED;
        let names_exec = line.uses.iter().any(|u| u.reads && u.span.start() == Reg::EXEC_LO);
        return !names_exec && operands.clone().any(|u| explicit(&u)) && operands.all(|u| is_undefined(s, u.span));
    }
    !ignores_operands(line) && operands.any(|u| is_undefined(s, u.span))
}

/// The result does not depend on the operands: `x ^ x`, `x - x`.
fn ignores_operands(line: &Line) -> bool {
    line.inst.op.cancels() && line.inst.srcs.len() >= 2 && line.inst.srcs[0] == line.inst.srcs[1]
}

/// An undefined value that decides something, and what.
fn decides(line: &Line, s: &Set, frame: Option<Span>) -> Option<(Span, &'static str)> {
    if !line.decides || line.inst.op.is_indexed() {
        return None;
    }
    let memory = line.has(Flags::LOAD) || line.has(Flags::STORE) || line.has(Flags::ATOMIC);
    let writes_exec = line.writes().any(|w| !w.is_vector() && w.start() == Reg::EXEC_LO);
    let branches = line.has(Flags::BRANCH);
    if !(memory || writes_exec || branches) || ignores_operands(line) {
        return None;
    }
    if writes_exec && line.inst.op.is_bitwise() {
        // lanes come from the operands besides EXEC; of two, one may leave out what the other leaves undefined
        let mut masks = line.uses.iter().filter(|u| u.reads && u.source < IMPLIED && u.span.start() != Reg::EXEC_LO);
        let first = masks.next()?.span;
        let undefined = is_undefined(s, first) && masks.all(|u| is_undefined(s, u.span));
        return undefined.then_some((first, "it decides which lanes are on"));
    }
    for u in line.uses.iter().filter(|u| u.reads && u.source != TIED) {
        let name = if u.source < IMPLIED { line.source_name(u.source) } else { "" };
        let data = name.contains("data");
        let m0 = u.span.start() == Reg::M0;
        let what = if branches && !memory {
            "it decides where to go"
        } else if writes_exec {
            "it decides which lanes are on"
        } else if m0 {
            if !takes_m0(line) || s.meets(u.span) {
                continue;
            }
            "it is an address"
        } else if u.source == IMPLIED {
            continue;
        } else if data && line.info.pipe == Pipe::Lds {
            // LDS may hold anything; what is read from it later is not followed
            continue;
        } else if data && in_scratch(line, frame) {
            // registers are saved whatever they hold
            continue;
        } else if data {
            "it is stored"
        } else {
            "it is an address"
        };
        let undefined = if data || !memory { is_undefined(s, u.span) } else { !s.covers(u.span) && matters(u.span) };
        if undefined || m0 {
            return Some((u.span, what));
        }
    }
    None
}

/// A store to the stack. `frame` holds the description of scratch, where there is one.
fn in_scratch(line: &Line, frame: Option<Span>) -> bool {
    line.has(Flags::SCRATCH) || frame.is_some() && line.named("srsrc") == frame
}

/// M0 is part of the address; other memory instructions name it as a habit.
fn takes_m0(line: &Line) -> bool {
    line.is(Traits::LDSDMA) || line.address() == Some(Address::ThreadId)
}
