//! What an instruction does for the tile of a product `C[m,n] = sum over k of A[m,k] B[k,n]`, as listings say it.
//!
//! The author of a kernel says it where the instruction is built ([`Builder::moves`](super::Builder::moves),
//! [`Builder::element`](super::Builder::element), [`Builder::product`](super::Builder::product)); passes carry it along, and
//! [`pipeline`](crate::passes::pipeline) adds the stage. Nothing depends on it: two instructions that differ in their notes are equal.

use std::fmt;

/// A matrix that a product is made of, or its result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Term {
    /// The first factor.
    A,
    /// The second factor.
    B,
    /// The result.
    C,
}

/// What an instruction does for a tile: in which stage, and at which element. Elements are those of the workgroup's first lane, counted
/// from the tile's first one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Note {
    /// The matrix whose elements it moves or sums.
    pub of: Option<Term>,
    /// Stage of the pipelined loop that the instruction was taken from, from 1 on; 0 elsewhere.
    pub stage: u8,
    /// Row of A or C.
    pub row: u16,
    /// Column of B or C.
    pub column: u16,
    /// Depth of A or B; of C that of the factors that are multiplied.
    pub k: u16,
}

impl PartialEq for Note {
    /// Notes make no difference.
    fn eq(&self, _: &Note) -> bool {
        true
    }
}

impl Note {
    /// There is nothing to say.
    pub fn is_empty(&self) -> bool {
        self.of.is_none() && self.stage == 0
    }

    /// Elements of a factor that begin at `k` of row or column `across`.
    pub(super) fn element(of: Option<Term>, k: u32, across: u32) -> Note {
        Note { of, row: across as u16, column: across as u16, k: k as u16, stage: 0 }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Note { of, stage, row, column, k } = *self;
        if let Some(stage) = stage.checked_sub(1) {
            write!(out, "stage {stage}")?;
        }
        if stage > 0 && of.is_some() {
            out.write_str(": ")?;
        }
        match of {
            Some(Term::A) => write!(out, "A[{row},{k}]"),
            Some(Term::B) => write!(out, "B[{k},{column}]"),
            Some(Term::C) => write!(out, "C[{row},{column}] += A[{row},{k}] B[{k},{column}]"),
            None => Ok(()),
        }
    }
}
