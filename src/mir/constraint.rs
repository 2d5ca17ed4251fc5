//! What an author states about the order of a block's instructions.
//!
//! Instructions belong to [`Group`]s, and [`Constraint`]s speak of them. In a pipelined loop a constraint speaks of a round
//! of the steady state, in which the stages of several iterations stand side by side. The scheduler takes
//! constraints as edges beside those of dependences, so that everything else stays its choice; what comes out is
//! checked ([`passes::constraints`](crate::passes::constraints)), not trusted. Who wants every single instruction in its place
//! fixes the block's order ([`Order::Fixed`](super::Order)).
//!
//! In the text form an instruction ends in `group 1`, and constraints follow the line of their block:
//!
//! ```text
//! block k_2
//!   where group 1 before group 2
//!   where group 3 once per 4 of group 4
//!   where group 4 at priority 1
//! ```

use super::Malformed;
use std::fmt;

/// Instructions of a block that constraints speak of, by number. Number 0 is those in no group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Group(pub u16);

/// A statement about the order of a block's instructions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Constraint {
    /// Every instruction of the first group stands before any of the second.
    Before(Group, Group),
    /// The instructions of both groups take turns, each group in the order it was written: one of `group`, then `per` of `among`, and
    /// so on while both last.
    Interleaved {
        /// Whose instructions stand alone.
        group: Group,
        /// How many of the others follow each of them.
        per: u16,
        /// The others.
        among: Group,
    },
    /// From the first to the last instruction of the group the wavefront has at least this priority (0 to 3) among those of its SIMD.
    Priority(Group, u8),
}

impl Constraint {
    /// The groups that it speaks of.
    pub fn groups(self) -> [Group; 2] {
        match self {
            Constraint::Before(a, b) | Constraint::Interleaved { group: a, among: b, .. } => [a, b],
            Constraint::Priority(g, _) => [g, g],
        }
    }
    /// The same of other groups.
    pub fn map(self, mut to: impl FnMut(Group) -> Group) -> Constraint {
        match self {
            Constraint::Before(a, b) => Constraint::Before(to(a), to(b)),
            Constraint::Interleaved { group, per, among } => {
                Constraint::Interleaved { group: to(group), per, among: to(among) }
            }
            Constraint::Priority(g, level) => Constraint::Priority(to(g), level),
        }
    }
    /// Reads what `Display` prints.
    pub fn parse(text: &str) -> Result<Constraint, Malformed> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let bad = || Malformed::not(text, "a constraint, like `group 1 before group 2`");
        let group = |w: &str| w.parse().map(Group).map_err(|_| bad());
        Ok(match words[..] {
            ["group", a, "before", "group", b] => Constraint::Before(group(a)?, group(b)?),
            ["group", a, "once", "per", n, "of", "group", b] => {
                Constraint::Interleaved { group: group(a)?, per: n.parse().map_err(|_| bad())?, among: group(b)? }
            }
            ["group", a, "at", "priority", n] => Constraint::Priority(group(a)?, n.parse().map_err(|_| bad())?),
            _ => return Err(bad()),
        })
    }
}

impl fmt::Display for Constraint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Constraint::Before(a, b) => write!(out, "group {} before group {}", a.0, b.0),
            Constraint::Interleaved { group, per, among } => {
                write!(out, "group {} once per {per} of group {}", group.0, among.0)
            }
            Constraint::Priority(g, level) => write!(out, "group {} at priority {level}", g.0),
        }
    }
}
