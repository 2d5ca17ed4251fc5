//! Clauses that `s_clause` begins: all their instructions are of one kind, and no more than the hardware takes.
//!
//! What ends a clause early, or is of another kind, makes the hardware do what no manual says. The kind is that of the first
//! instruction ([`barewave_isa::ClauseKind`]); `s_nop` may stand between. A clause is followed to the end of its block: what an instruction that others jump to
//! belongs to is not looked into.

use super::code::{Code, Graph};
use super::report::{Finding, Findings, Rule};
use barewave_isa::{ClauseKind, Operand, op};

/// Checks a kernel.
pub fn check(code: &Code, g: &Graph, out: &mut Findings) {
    let longest = code.target.longest_clause();
    if longest == 0 {
        return;
    }
    for b in 0..g.blocks.len() {
        // how many instructions of a clause are still to come, of which kind, and where it began
        let mut left = 0;
        let mut kind: Option<(ClauseKind, u64)> = None;
        for (_, line) in g.lines(code, b) {
            if left > 0 {
                left -= 1;
                let this = code.target.clause_kind(line.inst.op);
                let wrong = match (this, kind) {
                    (None, _) if line.inst.op == op::S_NOP => None,
                    (None, _) => {
                        Some("it stands in a clause, where only memory and vector instructions may".to_string())
                    }
                    (Some(this), Some((of, first))) if this != of => {
                        Some(format!("it stands in a clause of another kind, which that at {first:#x} began"))
                    }
                    (Some(this), _) => {
                        kind = kind.or(Some((this, line.at)));
                        None
                    }
                };
                if let Some(what) = wrong {
                    out.add(Finding {
                        rule: Rule::Clause,
                        line: Some((line.at, line.raw)),
                        what,
                        fix: "let `s_clause` count only instructions of one kind behind it".into(),
                    });
                    left = 0;
                }
            }
            if line.inst.op != op::S_CLAUSE {
                continue;
            }
            let field = match line.inst.srcs.first() {
                Some(Operand::Imm(n)) => (*n & 63) as usize,
                _ => 0,
            };
            (left, kind) = (field + 1, None);
            if left > longest {
                out.add(Finding {
                    rule: Rule::Clause,
                    line: Some((line.at, line.raw)),
                    what: format!("a clause of {left} instructions; {} takes {longest}", code.target),
                    fix: format!("begin another one behind {longest} instructions"),
                });
            }
        }
    }
}
