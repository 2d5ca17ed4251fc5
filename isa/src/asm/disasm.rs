//! A stream of bytes to lines of text, with names for branch targets.
//!
//! Bytes that are no instruction become `.long` and decoding goes on with the next dword, so data between kernels or
//! an instruction of an unknown generation costs one line, not the rest of the section.
//!
//! The code is read twice: once for the targets of its branches, and again line by line, so that a line
//! costs no more memory than where it starts.

use crate::model::table::Style;
use crate::{Decoder, Mode, Operand, Quirk, Raw, Target};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Code whose branch targets have names.
pub struct Disassembly<'a> {
    decoder: Decoder,
    code: &'a [u8],
    /// Names by offset, in order.
    names: Vec<(usize, String)>,
}

/// One line of disassembly.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    /// Offset from the start of the bytes.
    pub offset: usize,
    /// What the line stands for.
    pub bytes: &'a [u8],
    /// The instruction; none for data.
    pub raw: Option<Raw>,
    /// Name that stands before the line.
    pub label: Option<&'a str>,
    /// Name of the place that it branches to.
    to: Option<&'a str>,
}

impl Raw {
    /// Offset that a branch at `offset` goes to.
    pub fn branch_target(&self, offset: usize) -> Option<i64> {
        let shape = self.shape();
        if shape.bytes != 4 || shape.vector {
            return None;
        }
        let o = shape.operands.iter().find(|o| o.style == Style::Label)?;
        match self.operand(o) {
            Operand::Imm(d) => Some(offset as i64 + 4 + 4 * d as i64),
            _ => None,
        }
    }
}

impl Target {
    /// True when a branch from 0 to `to` (bytes) does not arrive on this target: gfx1010 and the distance of 63 dwords.
    /// An `s_nop` behind the branch makes it longer. Source: LLVM, `FeatureOffset3fBug`.
    pub fn goes_astray(self, to: Option<i64>) -> bool {
        to == Some(4 + 4 * 0x3f) && self.info().has(Quirk::Branch3f)
    }
}

impl<'a> Disassembly<'a> {
    /// Reads code. `names` gives symbols by offset; other branch targets inside the code are called `.L0`, `.L1`, ...,
    /// counted from `first_label`.
    pub fn new(
        target: Target,
        mode: Mode,
        code: &'a [u8],
        names: &BTreeMap<usize, String>,
        first_label: usize,
    ) -> Disassembly<'a> {
        let mut d = Disassembly { decoder: Decoder::new(target, mode), code, names: Vec::new() };
        let mut targets = Vec::new();
        let mut starts = Vec::with_capacity(code.len() / 4);
        let mut at = 0;
        while at < code.len() {
            starts.push(at);
            let (raw, len) = d.decode(at);
            let to = raw.and_then(|r| r.branch_target(at)).and_then(|t| usize::try_from(t).ok());
            targets.extend(to.filter(|t| !names.contains_key(t)));
            at += len;
        }
        targets.sort_unstable();
        targets.dedup();
        targets.retain(|t| *t == code.len() || starts.binary_search(t).is_ok());
        let local = targets.into_iter().enumerate().map(|(n, t)| (t, format!(".L{}", first_label + n)));
        d.names = names.iter().map(|(at, n)| (*at, n.clone())).chain(local).collect();
        d.names.sort_by_key(|n| n.0);
        d
    }

    /// The instruction at an offset, and how many bytes the line takes.
    fn decode(&self, at: usize) -> (Option<Raw>, usize) {
        let rest = &self.code[at..];
        let raw = self.decoder.decode(rest);
        (raw, raw.map_or(rest.len().min(4), |r| r.len()))
    }

    fn name(&self, at: usize) -> Option<&str> {
        self.names.binary_search_by_key(&at, |n| n.0).ok().map(|i| self.names[i].1.as_str())
    }

    /// The lines, in order.
    pub fn lines(&self) -> impl Iterator<Item = Line<'_>> {
        let mut offset = 0;
        let mut names = self.names.iter().peekable();
        std::iter::from_fn(move || {
            let at = offset;
            if at >= self.code.len() {
                return None;
            }
            let (raw, len) = self.decode(at);
            offset += len;
            // names inside of an instruction stand nowhere
            while names.next_if(|n| n.0 < at).is_some() {}
            let label = names.next_if(|n| n.0 == at).map(|n| n.1.as_str());
            let to = raw.and_then(|r| r.branch_target(at)).and_then(|t| self.name(usize::try_from(t).ok()?));
            Some(Line { offset: at, bytes: &self.code[at..at + len], raw, label, to })
        })
    }
}

impl Line<'_> {
    /// Appends the text, without label.
    pub fn print(&self, out: &mut String) {
        if let Some(raw) = &self.raw {
            let start = out.len();
            raw.print(out);
            if let Some(name) = self.to
                && let Some(cut) = out[start..].rfind(' ')
            {
                out.truncate(start + cut + 1);
                out.push_str(name);
            }
            return;
        }
        let _ = match <[u8; 4]>::try_from(self.bytes) {
            Ok(word) => write!(out, ".long {:#010x}", u32::from_le_bytes(word)),
            Err(_) => {
                let list: Vec<String> = self.bytes.iter().map(|b| format!("{b:#04x}")).collect();
                write!(out, ".byte {}", list.join(", "))
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assemble;

    /// As llvm-mc 22 does it: a padded branch lies between another one and its target, and makes that one longer.
    #[test]
    fn branches_that_go_astray_are_padded() {
        let source = |n: usize| {
            let nops = "s_nop 0\n".repeat(n);
            format!("s_cbranch_scc0 L\ns_branch L\n{nops}L:\ns_branch M\n{nops}s_nop 0\nM:\ns_endpgm\n")
        };
        let words = |target, n| -> Vec<u32> {
            let code = assemble(target, Mode::of(target), &source(n)).unwrap();
            let (words, _) = code.sections[0].bytes.as_chunks::<4>();
            words.iter().map(|w| u32::from_le_bytes(*w)).filter(|w| *w != 0xbf80_0000).collect()
        };
        assert_eq!(words(Target::GFX1010, 0x3e), [0xbf84_0040, 0xbf82_003e, 0xbf82_0040, 0xbf81_0000]);
        assert_eq!(words(Target::GFX1030, 0x3e), [0xbf84_003f, 0xbf82_003e, 0xbf82_003f, 0xbf81_0000]);
        assert_eq!(words(Target::GFX1010, 0x3f), [0xbf84_0041, 0xbf82_0040, 0xbf82_0040, 0xbf81_0000]);
    }
}
