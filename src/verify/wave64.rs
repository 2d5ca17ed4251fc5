//! Hazards of waves of 64 on targets that issue them in two halves (gfx11; rules of the relations `mask>again` and
//! `exec>between`).
//!
//! *Masks.* A vector instruction reads a scalar register as a mask; before it is done with it, the register is written, and
//! the next to read it may get the old value. Forwards over all paths: which registers were read as masks lately (any other
//! scalar operand of a vector instruction ends that), which of them were written since. A wait right behind the write
//! resolves it.
//!
//! *Partial forwarding.* A vector instruction reads one register that was written before the scalar ALU changed EXEC and
//! another that was written after it, all within a few vector instructions. Backwards from each vector instruction that reads
//! two vector registers, over all paths.
//!
//! Source: LLVM's `GCNHazardRecognizer`; hazards.md of the project's facts, section 2.

use super::code::{Code, Graph};
use super::inst::{IMPLIED, Line};
use super::regs::{Set, Span};
use super::report::{Finding, Findings, Rule};
use super::solve::{Analysis, solve};
use barewave_isa::{HazardRule, Operand, Pipe, Reg, Relation, Traits, VCC, op};
use smallvec::SmallVec;

/// Vector instructions between the write in front of the change of EXEC and that behind it, at most.
const AROUND_EXEC: i32 = 2;
/// Vector instructions between the later write and the read, at most.
const BEFORE_READ: i32 = 4;

/// Checks a kernel.
pub fn check(code: &Code, g: &Graph, budget: &mut usize, out: &mut Findings) -> Option<()> {
    let rule = |relation| code.target.hazards().iter().find(|r| r.relation == relation).filter(|_| code.wave64);
    if let Some(rule) = rule(Relation::MaskAgain) {
        let a = Masks { rule, code, graph: g };
        for (b, mut state) in solve(g, &a, Mask::default(), budget)? {
            walk(&a, b, &mut state, Some(out));
        }
    }
    match rule(Relation::AcrossExec) {
        Some(rule) => forwarding(code, g, rule, budget, out),
        None => Some(()),
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Mask {
    /// Read as a mask, and possibly still being read.
    read: Set,
    /// Of these, written since by the scalar ALU, and by the vector ALU.
    by_scalar: Set,
    by_vector: Set,
}

struct Masks<'a, 'c> {
    rule: &'static HazardRule,
    code: &'a Code<'c>,
    graph: &'a Graph,
}

impl Analysis for Masks<'_, '_> {
    type State = Mask;

    fn pass(&self, block: usize, state: &mut Mask) -> bool {
        walk(self, block, state, None)
    }

    fn join(&self, state: &mut Mask, other: &Mask) -> bool {
        state.read.join(&other.read) | state.by_scalar.join(&other.by_scalar) | state.by_vector.join(&other.by_vector)
    }

    fn follow(&self, block: usize, state: &Mask, to: &mut dyn FnMut(usize, &Mask)) {
        self.graph.blocks[block].successors().for_each(|s| to(s, state));
    }
}

fn is_scalar(s: Span) -> bool {
    !s.is_vector() && !is_exec(s) && !matches!(s.start(), Reg::M0 | Reg::SCC)
}

fn is_exec(s: Span) -> bool {
    matches!(s.start(), Reg::EXEC_LO | Reg::EXEC_HI)
}

/// The mask that a vector instruction reads, if it reads one.
fn mask(rule: &HazardRule, line: &Line) -> Option<Span> {
    let masks = rule.producer.holds(line.inst.op, line.traits);
    line.uses.iter().find(|u| masks && u.reads && matches!(u.source, 2 | IMPLIED) && is_scalar(u.span)).map(|u| u.span)
}

fn walk(a: &Masks, b: usize, s: &mut Mask, mut out: Option<&mut Findings>) -> bool {
    let mut found = false;
    for (_, line) in a.graph.lines(a.code, b) {
        let (vector, scalar) = (line.is(Traits::VALU), line.info.pipe == Pipe::Salu);
        if line.inst.op == op::S_WAITCNT_DEPCTR {
            let field = |shift: u32, bits: u64| line.constant(0).is_some_and(|v| v >> shift & bits == 0);
            if field(0, 1) {
                (s.read, s.by_scalar) = (Set::default(), Set::default());
            }
            // vector results in VCC, and in other scalar registers
            for set in [&mut s.read, &mut s.by_vector] {
                let vcc = Span::of(VCC).filter(|vcc| set.meets(*vcc) && !field(1, 1));
                let others = if field(9, 7) { Set::default() } else { *set };
                *set = others;
                Span::of(VCC).into_iter().for_each(|vcc| set.remove(vcc));
                vcc.into_iter().for_each(|vcc| set.insert(vcc));
            }
        }
        if !vector && !scalar {
            continue;
        }
        // the scalar ALU waits for the vector ALU by itself
        let stale = |r: &Span| s.by_scalar.meets(*r) || vector && s.by_vector.meets(*r);
        if let Some(r) = line.reads().filter(|r| is_scalar(*r)).find(stale) {
            found = true;
            if let Some(out) = out.as_deref_mut() {
                let wait = match (s.by_scalar.meets(r), r.start() == Reg::VCC_LO) {
                    (true, _) => "sa_sdst(0)",
                    (_, true) => "va_vcc(0)",
                    _ => "va_sdst(0)",
                };
                out.add(Finding {
                    rule: Rule::Hazard,
                    line: Some((line.at, line.raw)),
                    what: format!(
                        "{} was written while a vector instruction may still have been reading it as a mask: this may \
                         read the old value ({})",
                        r.regs(),
                        a.rule.name
                    ),
                    fix: format!("put `s_waitcnt_depctr depctr_{wait}` right behind the instruction that writes it"),
                });
            }
            s.by_scalar.remove(r);
            s.by_vector.remove(r);
        }
        let mask = mask(a.rule, line);
        let literal = || line.inst.srcs.iter().any(|o| matches!(o, Operand::Imm(v) if *v > 64)) && line.raw.len() > 4;
        if vector && (literal() || line.reads().any(is_scalar)) {
            // any other scalar operand has the mask's read done
            s.read = Set::default();
        }
        for w in line.writes().filter(|w| is_scalar(*w)) {
            (if scalar { &mut s.by_vector } else { &mut s.by_scalar }).remove(w);
            if s.read.meets(w) {
                (if scalar { &mut s.by_scalar } else { &mut s.by_vector }).insert(w);
            }
        }
        if let Some(mask) = mask {
            s.read.insert(mask);
        }
    }
    found
}

/// A path backwards from a vector instruction.
#[derive(Clone)]
struct Back {
    block: usize,
    /// Instructions of the block that are still in front.
    before: usize,
    /// Vector instructions passed.
    vectors: i32,
    /// When each register that is read was written last, by vector instructions passed.
    written: SmallVec<[Option<i32>; 4]>,
    /// When EXEC was changed in front of the first of these writes.
    exec: Option<i32>,
}

fn forwarding(code: &Code, g: &Graph, rule: &HazardRule, budget: &mut usize, out: &mut Findings) -> Option<()> {
    let mut predecessors = vec![Vec::new(); g.blocks.len()];
    for b in 0..g.blocks.len() {
        g.blocks[b].successors().for_each(|s| predecessors[s].push(b));
    }
    for b in 0..g.blocks.len() {
        let lines: Vec<(u32, &Line)> = g.lines(code, b).collect();
        for (n, (_, line)) in lines.iter().enumerate() {
            if !line.is(Traits::VALU) {
                continue;
            }
            let mut sources: SmallVec<[Span; 4]> = SmallVec::new();
            for s in line.uses.iter().filter(|u| u.reads && u.source < 8 && u.span.is_vector()).map(|u| u.span) {
                if !sources.iter().any(|o| (o.first, o.count) == (s.first, s.count)) {
                    sources.push(s);
                }
            }
            if sources.len() < 2 {
                continue;
            }
            let written = SmallVec::from_elem(None, sources.len());
            let mut paths = vec![Back { block: b, before: n, vectors: 0, written, exec: None }];
            let mut seen = vec![false; g.blocks.len()];
            while let Some(mut path) = paths.pop() {
                let lines: Vec<(u32, &Line)> = g.lines(code, path.block).take(path.before).collect();
                *budget = budget.checked_sub(lines.len() + 1)?;
                match back(&mut path, &sources, lines.iter().rev().map(|l| l.1)) {
                    Way::Hazard => {
                        out.add(Finding {
                            rule: Rule::Hazard,
                            line: Some((line.at, line.raw)),
                            what: format!(
                                "one of its operands was written just before the scalar ALU changed EXEC, another just \
                                 after it: it may get the lanes of the wrong half ({})",
                                rule.name
                            ),
                            fix: "put `s_waitcnt_depctr depctr_va_vdst(0)` in front of it".into(),
                        });
                        break;
                    }
                    Way::Clear => {}
                    Way::Open => {
                        for &p in &predecessors[path.block] {
                            if !std::mem::replace(&mut seen[p], true) {
                                paths.push(Back { block: p, before: usize::MAX, ..path.clone() });
                            }
                        }
                    }
                }
            }
        }
    }
    Some(())
}

/// Where going back has led.
enum Way {
    Hazard,
    Clear,
    Open,
}

fn back<'l>(path: &mut Back, sources: &[Span], lines: impl Iterator<Item = &'l Line>) -> Way {
    for line in lines {
        // these wait for all results of the vector ALU
        let waits = matches!(line.info.pipe, Pipe::Vmem | Pipe::Lds | Pipe::Export)
            || line.inst.op == op::S_WAITCNT_DEPCTR && line.constant(0).is_some_and(|v| v >> 12 & 15 == 0);
        if waits || path.vectors > AROUND_EXEC + BEFORE_READ + 2 {
            return Way::Clear;
        }
        let mut changed = false;
        if line.is(Traits::VALU) {
            for (s, at) in sources.iter().zip(&mut path.written) {
                if at.is_none() && line.writes().any(|w| w.overlaps(*s)) {
                    *at = Some(path.vectors);
                    changed = true;
                }
            }
        } else if line.info.pipe == Pipe::Salu
            && path.exec.is_none()
            && path.written.iter().any(Option::is_some)
            && line.writes().any(is_exec)
        {
            path.exec = Some(path.vectors);
            changed = true;
        }
        if path.vectors > BEFORE_READ && path.written.iter().all(Option::is_none) {
            return Way::Clear;
        }
        if let (true, Some(exec)) = (changed, path.exec) {
            let times = || path.written.iter().flatten().copied();
            // behind the change of EXEC, and in front of it
            let (after, before) = (times().filter(|t| *t < exec).min(), times().filter(|t| *t >= exec).min());
            let Some(after) = after else { return Way::Clear };
            if after > BEFORE_READ || exec - after - 1 > AROUND_EXEC {
                return Way::Clear;
            }
            if let Some(before) = before {
                return if before - after - 1 > AROUND_EXEC { Way::Clear } else { Way::Hazard };
            }
        }
        path.vectors += i32::from(line.is(Traits::VALU));
    }
    Way::Open
}
