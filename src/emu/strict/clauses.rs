//! Clauses: what stands behind `s_clause` is of one kind, and all of it is there.

use super::Problem;
use super::facts::Facts;
use crate::fault::FaultKind;
use barewave_isa::{ClauseKind, Target, op};

/// The clause that a wave is in.
#[derive(Default)]
pub struct Clause {
    /// Instructions still to come.
    left: usize,
    /// What they are, once the first one has come.
    kind: Option<ClauseKind>,
}

impl Clause {
    /// A wave starts.
    pub fn clear(&mut self) {
        *self = Clause::default();
    }

    /// An instruction comes.
    pub fn pass(&mut self, target: Target, f: &Facts) -> Result<(), Problem> {
        let fail = |what: &str| Err((FaultKind::BrokenClause { what: what.into() }, None));
        if self.left > 0 {
            self.left -= 1;
            match (target.clause_kind(f.inst.op), self.kind) {
                (None, _) if f.inst.op == op::S_NOP => {}
                (None, _) => return fail(&format!("{} stands in it", f.info.name)),
                (Some(this), Some(of)) if this != of => return fail(&format!("{} is of another kind", f.info.name)),
                (this, _) => self.kind = this,
            }
        }
        if f.clause > 0 {
            let longest = target.longest_clause();
            if f.clause > longest {
                return fail(&format!("it has {} instructions, and {target} takes {longest}", f.clause));
            }
            (self.left, self.kind) = (f.clause, None);
        }
        Ok(())
    }
}
