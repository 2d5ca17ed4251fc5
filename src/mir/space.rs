//! Which memory an instruction touches.
//!
//! The author of a kernel says it where the instruction is built; scheduler and waits take what is not said as any memory of
//! its kind. In the text form it stands behind the operands: `in arg0`, `in scratch`, `in lds1.0`, and for a load from
//! memory to LDS both: `in arg0 lds1.0`.

use super::Malformed;
use std::fmt;

/// Memory outside of the workgroup.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Memory {
    /// Not said: any of it.
    #[default]
    Any,
    /// What a kernel argument points to. Different arguments never point to the same bytes; who passes the same memory
    /// twice gives both uses the lower number.
    Arg(u8),
    /// Scratch of the workitem.
    Scratch,
}

/// LDS of the workgroup.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Lds {
    /// Not said: any of it.
    #[default]
    Any,
    /// A phase of a buffer. Between two barriers, accesses of different buffers or phases never touch the same bytes: the parts
    /// of a double buffer are its phases.
    Part {
        /// Which buffer.
        buffer: u8,
        /// Which of its phases.
        phase: u8,
    },
}

impl Lds {
    /// True when accesses of both may touch the same bytes.
    pub fn meets(self, other: Lds) -> bool {
        self == other || self == Lds::Any || other == Lds::Any
    }
}

/// What an instruction touches. Of instructions that touch no memory of a kind the entry has no meaning; a barrier's
/// LDS entry says which accesses of LDS it separates.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Space {
    /// Memory that it reads or writes.
    pub memory: Memory,
    /// LDS that it reads or writes.
    pub lds: Lds,
}

impl Space {
    /// Reads the text form, words behind `in`.
    pub(super) fn parse(text: &str) -> Result<Space, Malformed> {
        let mut space = Space::default();
        for w in text.split_whitespace() {
            let bad = || Malformed::not(w, "memory: arg0, scratch or lds0.1");
            if w == "scratch" {
                space.memory = Memory::Scratch;
            } else if let Some(n) = w.strip_prefix("arg") {
                space.memory = Memory::Arg(n.parse().map_err(|_| bad())?);
            } else {
                let part = w.strip_prefix("lds").and_then(|p| p.split_once('.')).ok_or_else(bad)?;
                let number = |n: &str| n.parse::<u8>().map_err(|_| bad());
                space.lds = Lds::Part { buffer: number(part.0)?, phase: number(part.1)? };
            }
        }
        Ok(space)
    }
}

impl fmt::Display for Space {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Space::default() {
            return Ok(());
        }
        out.write_str(" in")?;
        match self.memory {
            Memory::Any => {}
            Memory::Arg(n) => write!(out, " arg{n}")?,
            Memory::Scratch => out.write_str(" scratch")?,
        }
        match self.lds {
            Lds::Any => Ok(()),
            Lds::Part { buffer, phase } => write!(out, " lds{buffer}.{phase}"),
        }
    }
}
