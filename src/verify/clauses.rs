//! Runs of memory instructions that are issued again as a whole (rules of the relation `clause`).
//!
//! Where XNACK is on, an instruction that meets a page fault is issued again, with those in front of it that it forms a clause
//! with: neighbours of one kind, scalar or vector. So no instruction of a run may write what one of the run reads, and a store
//! does not follow a load. Code that does not say whether XNACK is on runs either way. How long a clause can become is not
//! published; LLVM looks five instructions back (`checkSoftClauseHazards`), and so does this.

use super::code::{Code, Graph};
use super::inst::{Line, RESULT};
use super::regs::Span;
use super::report::{Finding, Findings, Rule};
use barewave_isa::{Flags, HazardRule, Relation};
use std::collections::VecDeque;

/// Instructions that a clause is looked at for, before the one that ends it.
const REACH: usize = 5;

/// Checks a kernel.
pub fn check(code: &Code, g: &Graph, out: &mut Findings) {
    let rules: Vec<&HazardRule> = code.target.hazards().iter().filter(|r| r.relation == Relation::Clause).collect();
    if !code.replays || rules.is_empty() {
        return;
    }
    for b in 0..g.blocks.len() {
        let mut run: VecDeque<&Line> = VecDeque::new();
        let mut kind = None;
        for (_, line) in g.lines(code, b) {
            let rule = rules.iter().position(|r| r.consumer.holds(line.inst.op, line.traits));
            if rule.is_none() || rule != kind {
                run.clear();
                kind = rule;
            }
            let Some(rule) = rule else { continue };
            if run.len() > REACH {
                run.pop_front();
            }
            if let Some(what) = broken(&run, line) {
                out.add(Finding {
                    rule: Rule::Hazard,
                    line: Some((line.at, line.raw)),
                    what: format!("{what}: with XNACK on, a fault has both issued again ({})", rules[rule].name),
                    fix: "put `s_nop 0` in front of it, or compile for the target with `:xnack-`".into(),
                });
                run.clear();
            }
            run.push_back(line);
        }
    }
}

/// What is wrong with a run when this instruction ends it: whatever is wrong without it was found before, but for an
/// instruction that is fine as long as it is alone.
fn broken(run: &VecDeque<&Line>, line: &Line) -> Option<String> {
    let results = |l: &'_ Line| l.uses.iter().any(|u| u.writes && u.source == RESULT);
    if !run.iter().any(|l| results(l)) {
        return None;
    }
    if line.has(Flags::STORE) {
        return Some("it stores behind loads of the same run".into());
    }
    let pairs = run.iter().flat_map(|l| [(line, *l), (*l, line)]).chain([(line, line)]);
    let alone = run.iter().take(1).map(|l| (*l, *l));
    let (reader, span) = pairs.chain(alone).find_map(|(reader, writer)| Some((reader, read_back(reader, writer)?)))?;
    Some(format!("{} is read by `{}` at {:#x} and written in the same run", span.regs(), reader.raw, reader.at))
}

/// Registers that one instruction reads and the other writes.
fn read_back(reader: &Line, writer: &Line) -> Option<Span> {
    let written = |s: &Span| writer.uses.iter().any(|u| u.writes && u.source == RESULT && u.span.overlaps(*s));
    reader.reads().find(written)
}
