//! Questions about the tables, for tests and for the command line: what a target has, what a generation changed, and
//! all there is to say about one operation.

use crate::model::table::{self, DPP8, FAKE16, Role, Row, TRUE16, WAVE32, WAVE64};
use crate::{Counter, Flags, Op, Raw, Target};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};

/// One way to encode one operation on one target: a row of the tables.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Encoding {
    target: Target,
    row: u16,
}

/// All encodings of a target.
pub fn encodings(target: Target) -> impl Iterator<Item = Encoding> {
    (0..table::table(target).rows.len() as u16).map(move |row| Encoding { target, row })
}

/// The encodings of an operation, shortest first; none when the target lacks it.
pub fn encodings_of(target: Target, op: Op) -> impl Iterator<Item = Encoding> {
    table::table(target).rows_of(op).iter().map(move |&row| Encoding { target, row })
}

impl Encoding {
    fn row(&self) -> &'static Row {
        let rows = &table::table(self.target).rows;
        &rows[usize::from(self.row).min(rows.len() - 1)]
    }

    /// Number of the row in its target.
    pub fn index(&self) -> usize {
        usize::from(self.row)
    }

    /// The operation.
    pub fn op(&self) -> Op {
        self.row().op
    }

    /// The target's mnemonic, without a suffix for the encoding.
    pub fn mnemonic(&self) -> &'static str {
        self.row().mnemonic()
    }

    /// Format, with its overlay (`VOP2+DPP`).
    pub fn format(&self) -> String {
        let shape = self.row().shape();
        if shape.overlay.is_empty() { shape.format.into() } else { format!("{}+{}", shape.format, shape.overlay) }
    }

    /// Bytes, without a literal.
    pub fn bytes(&self) -> u8 {
        self.row().bytes
    }

    /// The bits that are given, and which they are.
    pub fn fixed_bits(&self) -> (u128, u128) {
        (self.row().fixed, self.row().mask)
    }

    /// Bytes of this encoding with its free bits taken from `fill`, and eight more that a literal may use.
    pub fn with_free_bits(&self, fill: u128) -> Vec<u8> {
        let row = self.row();
        let mut bits = row.fixed | fill & !row.mask;
        if row.variant & DPP8 != 0 {
            let at = if row.bytes == 8 { 0 } else { 32 };
            bits = bits & !(0x1ff << at) | 0xe9 << at;
        }
        let mut bytes = bits.to_le_bytes()[..usize::from(row.bytes).min(16)].to_vec();
        bytes.resize(usize::from(row.bytes), fill as u8);
        bytes.extend([0u8; 8]);
        bytes
    }

    /// Operands and modifiers in the order of assembly, each with type and bits.
    pub fn operands(&self) -> Vec<String> {
        let shape = self.row().shape();
        shape
            .operands
            .iter()
            .filter(|o| matches!(o.role, Role::Dst | Role::Src))
            .map(|o| {
                let role = if o.role == Role::Dst { "writes" } else { "reads" };
                format!("{role} {}: {:?}, {} bits", o.name, o.ty, o.bits)
            })
            .chain(shape.operands.iter().filter(|o| o.role == Role::Mod).map(|o| format!("modifier {}", o.name)))
            .collect()
    }

    /// True when the same bits mean this encoding and the other, and neither is a special case of the other.
    fn collides(&self, other: &Encoding) -> bool {
        let (a, b) = (self.row(), other.row());
        let both = a.variant | b.variant;
        let apart = both & (FAKE16 | TRUE16) == FAKE16 | TRUE16 || both & (WAVE32 | WAVE64) == WAVE32 | WAVE64;
        let common = a.mask & b.mask;
        // A longer encoding goes first: the shorter one is the head of it.
        !apart && a.bytes == b.bytes && (a.fixed ^ b.fixed) & common == 0 && common != a.mask && common != b.mask
    }

    /// True when the two cannot be told apart by any bit.
    fn duplicates(&self, other: &Encoding) -> bool {
        let (a, b) = (self.row(), other.row());
        let both = a.variant | b.variant;
        let apart = both & (FAKE16 | TRUE16) == FAKE16 | TRUE16 || both & (WAVE32 | WAVE64) == WAVE32 | WAVE64;
        !apart && a.mask == b.mask && a.fixed == b.fixed && (a.variant ^ b.variant) & DPP8 == 0
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.mnemonic(), self.format())
    }
}

impl fmt::Debug for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Raw {
    /// The row of the tables that these bits belong to.
    pub fn table_row(&self) -> Encoding {
        Encoding { target: self.target(), row: self.row_index() }
    }
}

/// Pairs of encodings that claim the same bits without one being a special case of the other.
pub fn claimed_twice(target: Target) -> Vec<(Encoding, Encoding)> {
    let mut by_head: BTreeMap<u32, Vec<Encoding>> = BTreeMap::new();
    for e in encodings(target) {
        // The top bits of the first dword are given in every format, to different depths.
        let (fixed, mask) = e.fixed_bits();
        let free = !(mask as u32 >> 26) & 63;
        let mut sub = free;
        loop {
            by_head.entry((fixed as u32 >> 26) | sub).or_default().push(e);
            if sub == 0 {
                break;
            }
            sub = (sub - 1) & free;
        }
    }
    let mut out = Vec::new();
    for list in by_head.values() {
        for (i, a) in list.iter().enumerate() {
            for b in &list[i + 1..] {
                if (a.collides(b) || a.duplicates(b)) && !out.contains(&(*a, *b)) {
                    out.push((*a, *b));
                }
            }
        }
    }
    out
}

/// Operations of a target in order of their names.
pub fn operations(target: Target) -> Vec<Op> {
    let mut ops: Vec<Op> = (0..Op::COUNT as u16).map(Op).filter(|op| target.has(*op)).collect();
    ops.sort_by_key(|op| target.op(*op).map_or("", |i| i.name));
    ops
}

/// What changes from one target to another.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Difference {
    /// Operations that only the second has.
    pub added: Vec<Op>,
    /// Operations that only the first has.
    pub removed: Vec<Op>,
    /// Operations with another mnemonic: the first's, the second's.
    pub renamed: Vec<(Op, &'static str, &'static str)>,
    /// Operations whose encodings differ: what the first has, what the second has.
    pub recoded: Vec<(Op, String, String)>,
}

fn codes(target: Target, op: Op) -> BTreeSet<String> {
    encodings_of(target, op)
        .map(|e| {
            let (fixed, mask) = e.fixed_bits();
            format!("{} {:08x}/{:08x}", e.format(), fixed as u32, mask as u32)
        })
        .collect()
}

/// Compares two targets, pairs left out.
pub fn difference(a: Target, b: Target) -> Difference {
    let mut out = Difference::default();
    for op in (0..Op::COUNT as u16).map(Op).filter(|op| op.dual_parts().is_none()) {
        match (a.op(op), b.op(op)) {
            (None, Some(_)) => out.added.push(op),
            (Some(_), None) => out.removed.push(op),
            (Some(x), Some(y)) => {
                if x.name != y.name {
                    out.renamed.push((op, x.name, y.name));
                }
                let (p, q) = (codes(a, op), codes(b, op));
                if p != q {
                    let only = |x: &BTreeSet<String>, y: &BTreeSet<String>| {
                        x.difference(y).cloned().collect::<Vec<_>>().join(", ")
                    };
                    out.recoded.push((op, only(&p, &q), only(&q, &p)));
                }
            }
            (None, None) => {}
        }
    }
    for list in [&mut out.added, &mut out.removed] {
        list.sort_by_key(|op| op.name());
    }
    out
}

/// Operations whose name on any target contains the words, in order of their canonical names.
pub fn find(words: &str) -> Vec<Op> {
    let mut ops: Vec<Op> = (0..Op::COUNT as u16)
        .map(Op)
        .filter(|op| {
            op.dual_parts().is_none()
                && (op.name().contains(words)
                    || Target::all().any(|t| t.op(*op).is_some_and(|i| i.name.contains(words))))
        })
        .collect();
    ops.sort_by_key(|op| op.name());
    ops
}

/// A page about an operation: per group of targets that agree (or of the `only` one), its name, encodings, operands,
/// properties and timing.
pub fn page(op: Op, only: Option<Target>) -> String {
    let mut groups: Vec<(String, Vec<Target>)> = Vec::new();
    for target in Target::all().filter(|t| t.has(op) && only.is_none_or(|o| o == *t)) {
        let text = section(target, op);
        match groups.iter_mut().find(|g| g.0 == text) {
            Some(g) => g.1.push(target),
            None => groups.push((text, vec![target])),
        }
    }
    let mut out = format!("{}\n", op.name());
    for (text, targets) in groups {
        let names: Vec<String> = targets.iter().map(|t| t.to_string()).collect();
        let _ = write!(out, "\n{}:\n{text}", names.join(" "));
    }
    out
}

fn section(target: Target, op: Op) -> String {
    let mut out = String::new();
    let Some(info) = target.op(op) else { return out };
    let _ = writeln!(out, "  written {}", info.name);
    let mut last = Vec::new();
    for e in encodings_of(target, op) {
        let (fixed, mask) = e.fixed_bits();
        let width = usize::from(e.bytes()) * 2;
        let _ = writeln!(out, "  {:<12} {} bytes, bits {fixed:0width$x} of {mask:0width$x}", e.format(), e.bytes());
        let operands = e.operands();
        if operands != last {
            let _ = writeln!(out, "    {}", operands.join("; "));
            last = operands;
        }
    }
    let (class, evidence) = target.latency_class(op);
    let _ = writeln!(
        out,
        "  {:?} pipe, latency {} cycles, busy {} cycles ({class}, {evidence:?})",
        info.pipe, info.latency, info.busy
    );
    let flags: Vec<&str> = Flags::NAMES.iter().filter(|(f, _)| info.flags.has(*f)).map(|f| f.1).collect();
    if !flags.is_empty() {
        let _ = writeln!(out, "  {}", flags.join(", "));
    }
    if info.mem_bytes > 0 {
        let _ = writeln!(out, "  {} bytes of memory a lane", info.mem_bytes);
    }
    if !info.counters.is_empty() {
        let names: Vec<String> = info.counters.iter().map(|c: &Counter| format!("{c:?}")).collect();
        let _ = writeln!(out, "  counts {}", names.join(", "));
    }
    let rules: Vec<&str> = target.hazards_after(op).map(|r| r.name).collect();
    if !rules.is_empty() {
        let _ = writeln!(out, "  may start hazards: {}", rules.join(", "));
    }
    out
}
