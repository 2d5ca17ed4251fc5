//! An open assembly source: positions, words, labels, and the target that it is for.

use barewave_isa::Target;
use serde_json::{Value, json};

/// How a client counts columns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Columns {
    /// In bytes.
    Utf8,
    /// In units of UTF-16: what the protocol has when nothing was agreed on.
    #[default]
    Utf16,
}

impl Columns {
    /// A byte of a line as a column.
    pub fn of_byte(self, line: &str, byte: usize) -> usize {
        let byte = (0..=byte.min(line.len())).rev().find(|b| line.is_char_boundary(*b)).unwrap_or(0);
        match self {
            Columns::Utf8 => byte,
            Columns::Utf16 => line[..byte].encode_utf16().count(),
        }
    }

    /// A column as a byte of the line; what lies beyond it is its end.
    pub fn to_byte(self, line: &str, column: usize) -> usize {
        let mut at = 0;
        for (byte, c) in line.char_indices() {
            if at >= column {
                return byte;
            }
            at += if self == Columns::Utf8 { c.len_utf8() } else { c.len_utf16() };
        }
        line.len()
    }
}

/// A range within a line (from 0) as the protocol writes it; bytes from 0.
pub fn range(columns: Columns, text: &str, line: usize, bytes: std::ops::Range<usize>) -> Value {
    let content = text.lines().nth(line).unwrap_or("");
    let at = |byte| json!({ "line": line, "character": columns.of_byte(content, byte) });
    json!({ "start": at(bytes.start), "end": at(bytes.end) })
}

/// The part of a line that is no comment.
fn code(line: &str) -> &str {
    let end = [";", "//"].iter().filter_map(|c| line.find(c)).min().unwrap_or(line.len());
    &line[..end]
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '$')
}

/// The word around a byte of a line.
pub fn word_at(line: &str, byte: usize) -> &str {
    let byte = byte.min(line.len());
    let (before, after) = (line.get(..byte).unwrap_or(""), line.get(byte..).unwrap_or(""));
    let from = before.rfind(|c| !is_word(c)).map_or(0, |i| i + before[i..].chars().next().map_or(1, char::len_utf8));
    let to = byte + after.find(|c| !is_word(c)).unwrap_or(after.len());
    line.get(from..to).unwrap_or("")
}

/// True when nothing but labels stands before this part of a line: a statement begins there.
pub fn starts_statement(before: &str) -> bool {
    let rest = before.rsplit(':').next().unwrap_or("");
    rest.trim().is_empty() && code(before).len() == before.len()
}

/// A name that a source defines: its line from 0, the bytes of it there, and what it names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Defined<'t> {
    /// The name.
    pub name: &'t str,
    /// Line, from 0.
    pub line: usize,
    /// Where in the line.
    pub bytes: std::ops::Range<usize>,
}

/// Labels, symbols and macros of a source, in order.
pub fn definitions(text: &str) -> Vec<Defined<'_>> {
    let mut out = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let code = code(line);
        let mut add = |name: &'_ str| {
            // Names are parts of the line: their place is that of the part.
            let from = name.as_ptr() as usize - line.as_ptr() as usize;
            let bytes = from..from + name.len();
            out.push(Defined { name: &line[bytes.clone()], line: number, bytes });
        };
        let is_name = |name: &str| !name.is_empty() && name.chars().all(is_word);
        let mut rest = code;
        while let Some((label, after)) = rest.split_once(':') {
            let name = label.trim().trim_matches('"');
            if !is_name(name) {
                break;
            }
            add(name);
            rest = after;
        }
        let mut words = rest.split_whitespace();
        let (first, second) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        let name = second.trim_end_matches(',').split(',').next().unwrap_or("");
        match first {
            ".set" | ".equ" | ".equiv" | ".macro" if is_name(name) => add(name),
            name if second.starts_with('=') && !second.starts_with("==") && is_name(name) => add(name),
            _ => {}
        }
    }
    out
}

/// Where a name is defined, as it is meant at a line: `1b` is the label `1` before it, `1f` the one behind.
pub fn find<'d, 't>(defined: &'d [Defined<'t>], word: &str, line: usize) -> Option<&'d Defined<'t>> {
    if let Some(found) = defined.iter().find(|d| d.name == word) {
        return Some(found);
    }
    let (number, way) = word.split_at_checked(word.len().checked_sub(1)?)?;
    let mut same = defined.iter().filter(|d| d.name == number && number.bytes().all(|c| c.is_ascii_digit()));
    match way {
        "b" => same.rfind(|d| d.line <= line),
        "f" => same.find(|d| d.line > line),
        _ => None,
    }
}

/// The target that a source names with `.amdgcn_target`.
pub fn target(text: &str) -> Option<Target> {
    let line = text.lines().find_map(|l| l.trim().strip_prefix(".amdgcn_target"))?;
    let id = line.split('"').nth(1)?;
    Target::parse(id.rsplit("--").next()?.split(':').next()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn columns_are_bytes_or_units_of_utf16() {
        let line = "é𝄞x";
        for (byte, utf16) in [(0, 0), (2, 1), (6, 3), (7, 4)] {
            assert_eq!(Columns::Utf16.of_byte(line, byte), utf16);
            assert_eq!(Columns::Utf16.to_byte(line, utf16), byte);
            assert_eq!(Columns::Utf8.of_byte(line, byte), byte);
        }
        assert_eq!(Columns::Utf16.of_byte(line, 3), 1, "inside of a character: its start");
        assert_eq!(Columns::Utf16.to_byte(line, 99), 7);
    }

    #[test]
    fn words_and_definitions() {
        assert_eq!(word_at("\tv_add_f32 v1, v2", 4), "v_add_f32");
        assert_eq!(word_at("é x", 0), "");
        let text = "a: b: s_nop 0\n.set c, 1\nd = 2\n.macro e x\n1: ; f:\n\ts_branch 1b\n\"g\":\nx == 1";
        let names: Vec<(&str, usize)> = definitions(text).iter().map(|d| (d.name, d.line)).collect();
        assert_eq!(names, [("a", 0), ("b", 0), ("c", 1), ("d", 2), ("e", 3), ("1", 4), ("g", 6)]);
        let defined = definitions(text);
        assert_eq!(find(&defined, "1b", 5).map(|d| d.line), Some(4));
        assert_eq!(find(&defined, "1f", 5), None);
        assert_eq!(find(&defined, "", 5), None);
        assert_eq!(find(&defined, "é", 5), None);
        assert!(
            starts_statement("a: ") && starts_statement("\t") && !starts_statement("v_mov ") && !starts_statement("; ")
        );
    }
}
