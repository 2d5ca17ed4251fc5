//! What branches bring about: memory instructions of two kinds with only a branch between them, and distances that do not
//! arrive (both gfx1010).
//!
//! Forwards over all paths, for each rule of the relation `branch`: an earlier producer was the last memory instruction of
//! either kind, and a branch has been taken or passed since. A consumer that comes then comes too early. Source:
//! hazards.md of the project's facts, section 2.

use super::code::{Code, Graph};
use super::inst::{Flow, Line};
use super::report::{Finding, Findings, Rule};
use super::solve::{Analysis, solve};
use barewave_isa::{Counter, HazardRule, Quirk, Relation, op};
use smallvec::SmallVec;

/// What is true on some path, for a rule.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Met {
    producer: bool,
    producer_and_branch: bool,
}

type State = SmallVec<[Met; 2]>;

struct Branches<'a, 'c> {
    rules: Vec<&'static HazardRule>,
    code: &'a Code<'c>,
    graph: &'a Graph,
}

impl Analysis for Branches<'_, '_> {
    type State = State;

    fn pass(&self, block: usize, state: &mut State) -> bool {
        walk(self, block, state, None)
    }

    fn join(&self, state: &mut State, other: &State) -> bool {
        let before = state.clone();
        for (a, b) in state.iter_mut().zip(other) {
            a.producer |= b.producer;
            a.producer_and_branch |= b.producer_and_branch;
        }
        *state != before
    }

    fn follow(&self, block: usize, state: &State, to: &mut dyn FnMut(usize, &State)) {
        self.graph.blocks[block].successors().for_each(|s| to(s, state));
    }
}

/// Checks a kernel.
pub fn check(code: &Code, g: &Graph, budget: &mut usize, out: &mut Findings) -> Option<()> {
    distances(code, g, out);
    let across = |r: &&HazardRule| r.relation == Relation::AcrossBranch;
    let rules: Vec<&'static HazardRule> = code.target.hazards().iter().filter(across).collect();
    if rules.is_empty() {
        return Some(());
    }
    let start = State::from_elem(Met::default(), rules.len());
    let a = Branches { rules, code, graph: g };
    for (b, mut state) in solve(g, &a, start, budget)? {
        walk(&a, b, &mut state, Some(out));
    }
    Some(())
}

fn distances(code: &Code, g: &Graph, out: &mut Findings) {
    if !code.target.info().has(Quirk::Branch3f) {
        return;
    }
    for l in g.order.iter().map(|&i| &code.lines[i as usize]) {
        if code.target.goes_astray(l.raw.branch_target(0)) {
            out.add(Finding {
                rule: Rule::Branch,
                line: Some((l.at, l.raw)),
                what: format!("{} has a bug: a branch over 63 dwords does not arrive", code.target),
                fix: "put `s_nop 0` behind it".into(),
            });
        }
    }
}

fn walk(a: &Branches, b: usize, state: &mut State, mut out: Option<&mut Findings>) -> bool {
    let mut found = false;
    for (_, line) in a.graph.lines(a.code, b) {
        let branch = matches!(line.flow, Flow::Jump(_) | Flow::Branch(_));
        let waited = line.inst.op == op::S_WAITCNT_VSCNT
            && a.code.target.decode_wait(&line.inst).is_some_and(|w| w.contains(&(Counter::Vs, 0)));
        for (rule, met) in a.rules.iter().zip(state.iter_mut()) {
            let consumer = rule.consumer.holds(line.inst.op, line.traits);
            if consumer && met.producer_and_branch {
                found = true;
                if let Some(out) = out.as_deref_mut() {
                    out.add(finding(rule, line));
                }
            }
            if rule.producer.holds(line.inst.op, line.traits) {
                *met = Met { producer: true, producer_and_branch: false };
            } else if consumer || waited {
                *met = Met::default();
            } else if branch {
                *met = Met { producer: false, producer_and_branch: met.producer | met.producer_and_branch };
            }
        }
    }
    found
}

fn finding(rule: &HazardRule, line: &Line) -> Finding {
    Finding {
        rule: Rule::Hazard,
        line: Some((line.at, line.raw)),
        what: format!("only a branch lies between this and a memory instruction of the other kind ({})", rule.name),
        fix: "put `s_waitcnt_vscnt null, 0` in front of it".into(),
    }
}
