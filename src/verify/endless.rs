//! Hazards of any distance: registers that an instruction may still be reading when a later one writes them.
//!
//! Forwards over all paths, for each such rule of the target: the scalar registers (or EXEC) that producers have read
//! since the last instruction that resolves the rule. A consumer that writes one of them comes too early. Which
//! instructions resolve a rule is LLVM's finding (`GCNHazardRecognizer.cpp`; hazards.md of the project's facts, section 2).

use super::code::{Code, Graph};
use super::inst::{Line, RESULT};
use super::regs::{Set, Span};
use super::report::{Finding, Findings, Rule};
use super::solve::{Analysis, solve};
use barewave_isa::{Counter, Fix, HazardRule, Pipe, Reg, Relation, Target, Traits, op};
use smallvec::SmallVec;

/// Registers read, by rule.
type State = SmallVec<[Set; 3]>;

struct Endless<'a, 'c> {
    rules: Vec<&'static HazardRule>,
    code: &'a Code<'c>,
    graph: &'a Graph,
}

impl Analysis for Endless<'_, '_> {
    type State = State;

    fn pass(&self, block: usize, state: &mut State) -> bool {
        walk(self, block, state, None)
    }

    fn join(&self, state: &mut State, other: &State) -> bool {
        state.iter_mut().zip(other).fold(false, |more, (a, b)| a.join(b) | more)
    }

    fn follow(&self, block: usize, state: &State, to: &mut dyn FnMut(usize, &State)) {
        self.graph.blocks[block].successors().for_each(|s| to(s, state));
    }
}

/// Checks a kernel.
pub fn check(code: &Code, g: &Graph, budget: &mut usize, out: &mut Findings) -> Option<()> {
    let reads = |r: &&HazardRule| matches!(r.relation, Relation::ReadsSgpr | Relation::ReadsExec);
    let rules: Vec<&'static HazardRule> = code.target.hazards().iter().filter(reads).collect();
    if rules.is_empty() {
        return Some(());
    }
    let start = State::from_elem(Set::default(), rules.len());
    let a = Endless { rules, code, graph: g };
    for (b, mut state) in solve(g, &a, start, budget)? {
        walk(&a, b, &mut state, Some(out));
    }
    Some(())
}

fn walk(a: &Endless, b: usize, state: &mut State, mut out: Option<&mut Findings>) -> bool {
    let mut found = false;
    for (_, line) in a.graph.lines(a.code, b) {
        for (rule, read) in a.rules.iter().zip(state.iter_mut()) {
            if rule.consumer.holds(line.inst.op, line.traits)
                && let Some(w) = written(rule, line).find(|w| read.meets(*w))
            {
                found = true;
                if let Some(out) = out.as_deref_mut() {
                    out.add(finding(rule, line, w));
                }
                *read = Set::default();
            }
            if resolves(a.code.target, rule.fix, line) {
                *read = Set::default();
            }
            if rule.producer.holds(line.inst.op, line.traits) {
                let wanted = |s: &Span| !s.is_vector() && (rule.relation == Relation::ReadsSgpr || is_exec(*s));
                line.reads().filter(wanted).for_each(|s| read.insert(s));
            }
        }
    }
    found
}

fn is_exec(s: Span) -> bool {
    matches!(s.start(), Reg::EXEC_LO | Reg::EXEC_HI)
}

/// What the consumer writes that the rule is about.
fn written<'l>(rule: &HazardRule, line: &'l Line) -> impl Iterator<Item = Span> + 'l {
    let exec = rule.relation == Relation::ReadsExec;
    let scalar = line.info.pipe == Pipe::Salu || line.info.pipe == Pipe::Smem;
    line.uses
        .iter()
        .filter(move |u| {
            // of scalar instructions, what they name: SCC and the like are interlocked
            let named = !scalar || line.inst.dsts.iter().any(|d| d.regs().and_then(Span::of) == Some(u.span));
            u.writes && u.source == RESULT && !u.span.is_vector() && named && is_exec(u.span) >= exec
        })
        .map(|u| u.span)
}

/// Nothing is read any more when the instruction has been issued.
fn resolves(target: Target, fix: Fix, line: &Line) -> bool {
    let field = |shift: u32, mask: u64| {
        line.inst.op == op::S_WAITCNT_DEPCTR && line.constant(0).is_some_and(|v| v >> shift & mask == 0)
    };
    let vector = line.is(Traits::VALU);
    match fix {
        Fix::VmVsrc => vector || field(2, 7) || line.inst.op == op::S_WAITCNT && line.constant(0) == Some(0),
        Fix::SaSdst => vector && line.writes().any(|w| !w.is_vector()) || field(0, 1),
        Fix::Salu => {
            let odd = matches!(line.inst.op, op::S_SETVSKIP | op::S_VERSION);
            let waits = || {
                let waits = target.decode_wait(&line.inst);
                waits.is_some_and(|w| w.contains(&(Counter::Lgkm, 0)))
            };
            line.info.pipe == Pipe::Salu && !odd && target.decode_wait(&line.inst).is_none() || waits()
        }
        Fix::Nop | Fix::VNop | Fix::DepCtr | Fix::VsCnt => false,
    }
}

fn finding(rule: &HazardRule, line: &Line, w: Span) -> Finding {
    let fix = match rule.fix {
        Fix::VmVsrc => "s_waitcnt_depctr depctr_vm_vsrc(0)",
        Fix::SaSdst => "s_waitcnt_depctr depctr_sa_sdst(0)",
        _ => "s_mov_b32 null, 0",
    };
    Finding {
        rule: Rule::Hazard,
        line: Some((line.at, line.raw)),
        what: format!("{} is written while an earlier instruction may still be reading it ({})", w.regs(), rule.name),
        fix: format!("put `{fix}` in front of it"),
    }
}
