//! What an instruction does for the tile of a product `C[m,n] = sum over k of A[m,k] B[k,n]`, as listings say it.
//!
//! The author of a kernel says it where the instruction is built ([`Builder::moves`](super::Builder::moves),
//! [`Builder::element`](super::Builder::element), [`Builder::product`](super::Builder::product)); passes carry it along, and
//! [`pipeline`](crate::passes::pipeline) adds the stage. Nothing depends on it: two instructions that differ in their notes are equal.

use super::Malformed;
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

    /// Reads what `Display` prints.
    pub(super) fn parse(text: &str) -> Result<Note, Malformed> {
        let bad = || Malformed::not(text, "a note, like `stage 1: A[16,0]`");
        let (stage, element) = match text.strip_prefix("stage ") {
            Some(rest) => rest.split_once(": ").unwrap_or((rest, "")),
            None => ("", text),
        };
        let stage = match stage {
            "" => 0,
            n => n.parse::<u8>().ok().and_then(|n| n.checked_add(1)).ok_or_else(bad)?,
        };
        let pair = |of: &str| {
            let (x, y) = element.split_once(of)?.1.split_once(']')?.0.split_once(',')?;
            Some((x.parse::<u16>().ok()?, y.parse::<u16>().ok()?))
        };
        let note = Note { stage, ..Note::default() };
        Ok(match element.chars().next() {
            None => note,
            Some('A') => {
                let (row, k) = pair("A[").ok_or_else(bad)?;
                Note { stage, ..Note::element(Some(Term::A), k.into(), row.into()) }
            }
            Some('B') => {
                let (k, column) = pair("B[").ok_or_else(bad)?;
                Note { stage, ..Note::element(Some(Term::B), k.into(), column.into()) }
            }
            Some('C') => {
                let ((row, column), (_, k)) = pair("C[").zip(pair("A[")).ok_or_else(bad)?;
                Note { of: Some(Term::C), row, column, k, ..note }
            }
            Some(_) => return Err(bad()),
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_read_as_they_are_written() {
        for text in ["stage 0", "A[16,8]", "stage 2: B[8,112]", "stage 1: C[16,32] += A[16,8] B[8,32]"] {
            assert_eq!(Note::parse(text).unwrap().to_string(), text);
        }
        for text in ["stage", "stage 255", "stage x", "D[1,2]", "A[1]", "A[1,70000]", "C[1,2]", "é"] {
            assert!(Note::parse(text).is_err(), "{text}");
        }
    }
}
