//! Operations: instructions by meaning.

use crate::model::action::Action;
use crate::model::generated;
use std::fmt;

/// An instruction by meaning, the same number on every target.
///
/// The canonical name is the first spelling AMD gave the operation that is still in use on gfx9 or CDNA
/// (`global_load_dwordx4`, `v_add_u32`), else the name of the generation that introduced it. Constants are in
/// [`op`](crate::op): `op::V_ADD_F32`. The min/max family of gfx12 (`v_min_num_f32`) is the same operation as
/// `v_min_f32` of older targets; `v_minimum_f32` (NaN wins) is another one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Op(pub u16);

impl Op {
    /// Number of operations: the size of a table indexed by `Op`.
    pub const COUNT: usize = generated::OP_COUNT;

    /// Canonical name, lower case.
    pub fn name(self) -> &'static str {
        generated::op_name(self)
    }

    /// The dual-issue pair of two operations, if some target has it. Its name is `v_add_f32 :: v_mov_b32`.
    pub fn dual(x: Op, y: Op) -> Option<Op> {
        Op::by_name(&format!("{} :: {}", x.name(), y.name()))
    }

    /// It is a dual-issue pair.
    #[inline]
    pub fn is_pair(self) -> bool {
        matches!(*self.action(), Action::Pair(..))
    }

    /// The halves of a dual-issue pair. `v_bitop2_b32` exists only as a half and has no number of its own.
    pub fn dual_parts(self) -> Option<(Op, Op)> {
        match *self.action() {
            Action::Pair(Some(x), Some(y)) => Some((x, y)),
            _ => None,
        }
    }

    /// The operation of a canonical name (lower case).
    pub fn by_name(name: &str) -> Option<Op> {
        generated::op_by_name(name)
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
