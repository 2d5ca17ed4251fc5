//! A stream of bytes to lines of text, with names for branch targets.
//!
//! Bytes that are no instruction become `.long` and decoding goes on with the next dword, so data between kernels or
//! an instruction of an unknown generation costs one line, not the rest of the section.

use crate::table::Style;
use crate::{Decoder, Mode, Operand, Raw, Target};
use std::collections::{BTreeMap, BTreeSet};

/// One line of disassembly.
#[derive(Clone, Debug)]
pub struct Line {
    /// Offset from the start of the bytes.
    pub offset: usize,
    /// Length in bytes.
    pub len: usize,
    /// The instruction; none for data.
    pub raw: Option<Raw>,
    /// Text without label.
    pub text: String,
    /// Label that stands before the line.
    pub label: Option<String>,
}

impl Raw {
    /// Offset that a branch at `offset` goes to.
    pub fn branch_target(&self, offset: usize) -> Option<i64> {
        let o = self.shape().operands.iter().find(|o| o.style == Style::Label)?;
        match self.operand(o) {
            Operand::Imm(d) => Some(offset as i64 + 4 + 4 * d as i64),
            _ => None,
        }
    }
}

/// Disassembles code. `names` gives symbols by offset; other branch targets inside the code are called `.L0`, `.L1`, ...,
/// counted from `first_label`.
pub fn disassemble(
    target: Target,
    mode: Mode,
    code: &[u8],
    names: &BTreeMap<usize, String>,
    first_label: usize,
) -> Vec<Line> {
    let decoder = Decoder::new(target, mode);
    let mut lines = Vec::new();
    let mut at = 0;
    while at < code.len() {
        let raw = code.get(at..).and_then(|b| decoder.decode(b));
        let len = raw.map_or(4.min(code.len() - at), |r| r.len());
        lines.push(Line { offset: at, len, raw, text: String::new(), label: None });
        at += len;
    }
    let starts: BTreeSet<usize> = lines.iter().map(|l| l.offset).collect();
    let mut labels: BTreeMap<usize, String> = names.clone();
    let mut targets: BTreeSet<usize> = BTreeSet::new();
    for l in &lines {
        if let Some(t) = l.raw.and_then(|r| r.branch_target(l.offset))
            && let Ok(t) = usize::try_from(t)
            && (starts.contains(&t) || t == code.len())
        {
            targets.insert(t);
        }
    }
    for (n, t) in targets.into_iter().filter(|t| !names.contains_key(t)).enumerate() {
        labels.insert(t, format!(".L{}", first_label + n));
    }
    for l in &mut lines {
        match l.raw {
            Some(r) => {
                r.print(&mut l.text);
                let to = r.branch_target(l.offset).and_then(|t| usize::try_from(t).ok()).and_then(|t| labels.get(&t));
                if let Some(name) = to
                    && let Some(cut) = l.text.rfind(' ')
                {
                    l.text.truncate(cut + 1);
                    l.text.push_str(name);
                }
            }
            None => {
                let bytes = code.get(l.offset..l.offset + l.len).unwrap_or(&[]);
                l.text = match <[u8; 4]>::try_from(bytes) {
                    Ok(b) => format!(".long {:#010x}", u32::from_le_bytes(b)),
                    Err(_) => {
                        format!(".byte {}", bytes.iter().map(|b| format!("{b:#04x}")).collect::<Vec<_>>().join(", "))
                    }
                };
            }
        }
        l.label = labels.get(&l.offset).cloned();
    }
    lines
}
