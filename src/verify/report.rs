//! What the checks have found.

use barewave_isa::Raw;
use std::fmt;

/// Which check it was.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Rule {
    /// A result of memory is used before it is waited for.
    Wait,
    /// Two instructions are closer than the hardware allows.
    Hazard,
    /// A clause has instructions that cannot stand in it.
    Clause,
    /// A value that nobody has written decides something or is stored.
    Undefined,
    /// Descriptor, metadata and code contradict each other.
    Resources,
    /// Control leaves the code or enters an instruction in its middle.
    Branch,
    /// Code that nothing leads to.
    Unreachable,
}

impl Rule {
    /// One word.
    pub fn name(self) -> &'static str {
        match self {
            Rule::Wait => "wait",
            Rule::Hazard => "hazard",
            Rule::Clause => "clause",
            Rule::Undefined => "undefined",
            Rule::Resources => "resources",
            Rule::Branch => "branch",
            Rule::Unreachable => "unreachable",
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Something that is wrong.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Which check found it.
    pub rule: Rule,
    /// Address, relative to the load address, and the instruction; none when it is about the kernel as a whole.
    pub line: Option<(u64, Raw)>,
    /// What must be true and is not.
    pub what: String,
    /// What to do.
    pub fix: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((at, raw)) = self.line {
            write!(f, "{at:#x} `{raw}`: ")?;
        }
        write!(f, "{} ({}; {})", self.what, self.rule, self.fix)
    }
}

/// Findings of a kernel, and what could not be checked.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// What is wrong.
    pub list: Vec<Finding>,
    /// What could not be followed: no fault, but not proved.
    pub notes: Vec<String>,
}

impl Findings {
    /// One more.
    pub fn add(&mut self, f: Finding) {
        self.list.push(f);
    }
}
