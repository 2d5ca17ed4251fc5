//! What all table files share: sections, lines, and errors that name file, line, column and word.

use std::collections::BTreeMap;
use std::fmt;

/// A mistake in a table.
#[derive(Debug)]
pub struct Fail(String);

pub type Result<T> = std::result::Result<T, Fail>;

impl Fail {
    /// A file that cannot be read.
    pub fn file(file: &str, what: &str) -> Fail {
        Fail(format!("{file}: {what}"))
    }
}

impl fmt::Display for Fail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A line of a table, without its comment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    pub file: String,
    /// From 1.
    pub number: usize,
    pub text: String,
}

impl Line {
    /// The lines of a file that hold more than a comment.
    fn all(file: &str, text: &str) -> Vec<Line> {
        let lines = text.lines().enumerate().map(|(n, line)| Line {
            file: file.to_string(),
            number: n + 1,
            text: line.split_once('#').map_or(line, |(text, _)| text).trim_end().to_string(),
        });
        lines.filter(|l| !l.text.trim().is_empty()).collect()
    }

    /// A mistake at a word: one cut out of this line is found where it stands, any other where it first occurs.
    pub fn fail(&self, word: &str, what: &str) -> Fail {
        let inside =
            (word.as_ptr() as usize).checked_sub(self.text.as_ptr() as usize).filter(|at| *at < self.text.len());
        let column = inside.or_else(|| self.text.find(word)).map_or(1, |at| at + 1);
        Fail(format!("{}:{}:{column}: `{word}`: {what}", self.file, self.number))
    }

    /// A number in a word.
    pub fn number<T: std::str::FromStr>(&self, word: &str) -> Result<T> {
        word.parse().map_err(|_| self.fail(word, "expected a number that fits"))
    }

    /// A hexadecimal number in a word.
    pub fn hex(&self, word: &str) -> Result<u64> {
        u64::from_str_radix(word, 16).map_err(|_| self.fail(word, "expected a number in hex"))
    }
}

/// The lines of all tables, by section.
#[derive(Clone, Default)]
pub struct Sources(BTreeMap<String, Vec<Line>>);

impl Sources {
    /// Adds a file that belongs to one section.
    pub fn add(&mut self, section: &str, file: &str, text: &str) {
        self.0.entry(section.to_string()).or_default().extend(Line::all(file, text));
    }

    /// Adds a file with headings.
    pub fn add_generation(&mut self, file: &str, text: &str) -> Result<()> {
        let mut section = None;
        for line in Line::all(file, text) {
            if let Some(name) = line.text.trim().strip_prefix('[').and_then(|n| n.strip_suffix(']')) {
                if name != "rows" && !super::SECTIONS.contains(&name) {
                    return Err(line.fail(name, "no such section"));
                }
                section = Some(name.to_string());
                continue;
            }
            let section = section.clone().ok_or_else(|| line.fail(&line.text, "before the first heading"))?;
            self.0.entry(section).or_default().push(line);
        }
        Ok(())
    }

    /// The lines of a section.
    pub fn lines(&self, section: &str) -> Vec<Line> {
        self.0.get(section).cloned().unwrap_or_default()
    }
}
