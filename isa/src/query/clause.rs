//! Clauses: instructions of one kind that `s_clause` has a wave issue with none of another wave between them.
//!
//! Sources: "RDNA2" and "RDNA3" manuals, S_CLAUSE; LLVM's SIInsertHardClauses (kinds, and the 32 instructions from gfx11 on, where
//! the manual allows 63) and Mesa's aco_form_hard_clauses.

use crate::{Flags, Op, Pipe, Quirk, Target, op};

/// What instructions of a clause have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClauseKind {
    /// Scalar memory.
    Scalar,
    /// Vector memory, images included.
    Memory(ClauseAccess),
    /// Vector memory by addresses that may be of LDS.
    Flat(ClauseAccess),
    /// LDS.
    Lds,
    /// Vector ALU.
    Vector,
}

/// What instructions of a clause do to memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClauseAccess {
    /// Anything: one clause may have loads and stores.
    Any,
    /// They load.
    Load,
    /// They store.
    Store,
    /// They change memory in place.
    Atomic,
}

impl Target {
    /// Most instructions of a clause; 0 where there is no `s_clause`.
    pub fn longest_clause(self) -> usize {
        match (self.has(op::S_CLAUSE), self.info().has(Quirk::TypedClauses)) {
            (false, _) => 0,
            (true, false) => 63,
            (true, true) => 32,
        }
    }

    /// The kind of clause that an operation may stand in; none of branches, waits, scalar ALU and the like.
    pub fn clause_kind(self, op: Op) -> Option<ClauseKind> {
        let info = self.op(op)?;
        let access = match info.flags {
            _ if !self.info().has(Quirk::TypedClauses) => ClauseAccess::Any,
            f if f.has(Flags::ATOMIC) => ClauseAccess::Atomic,
            f if f.has(Flags::STORE) => ClauseAccess::Store,
            _ => ClauseAccess::Load,
        };
        match info.pipe {
            Pipe::Smem => Some(ClauseKind::Scalar),
            Pipe::Vmem if info.flags.has(Flags::FLAT) => Some(ClauseKind::Flat(access)),
            Pipe::Vmem => Some(ClauseKind::Memory(access)),
            Pipe::Lds => Some(ClauseKind::Lds),
            Pipe::Valu | Pipe::Trans | Pipe::Matrix => Some(ClauseKind::Vector),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Mode, parse};

    #[test]
    fn kinds_are_those_of_the_target() {
        let kind = |t: Target, text: &str| t.clause_kind(parse(t, Mode::of(t), text).unwrap().op());
        let (load, store) = ("global_load_dword v0, v1, s[0:1]", "global_store_dword v1, v0, s[0:1]");
        assert_eq!(kind(Target::GFX1030, load), kind(Target::GFX1030, store));
        assert_eq!(kind(Target::GFX1030, load), kind(Target::GFX1030, "buffer_load_dword v0, v1, s[0:3], 0 offen"));
        assert_ne!(kind(Target::GFX1030, load), kind(Target::GFX1030, "flat_load_dword v0, v[2:3]"));
        let (load, store) = ("global_load_b32 v0, v1, s[0:1]", "global_store_b32 v1, v0, s[0:1]");
        assert_ne!(kind(Target::GFX1100, load), kind(Target::GFX1100, store));
        assert_eq!(kind(Target::GFX1100, "s_load_b32 s0, s[2:3], 0x0"), Some(ClauseKind::Scalar));
        assert_eq!(kind(Target::GFX1100, "s_waitcnt vmcnt(0)"), None);
        assert_eq!(kind(Target::GFX1100, "s_add_u32 s0, s0, s1"), None);
        let most = [Target::GFX906, Target::GFX942, Target::GFX1010, Target::GFX1030, Target::GFX1151, Target::GFX1201];
        assert_eq!(most.map(Target::longest_clause), [0, 0, 63, 63, 32, 32]);
    }
}
