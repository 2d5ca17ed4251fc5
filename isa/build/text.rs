//! What all table files share: lines, and errors that name file, line, column and word.

use std::fmt;

/// A mistake in a table.
#[derive(Debug)]
pub struct Fail(String);

pub type Result<T> = std::result::Result<T, Fail>;

impl Fail {
    pub fn new(file: &str, line: usize, word: &str, what: &str) -> Fail {
        match line {
            0 => Fail(format!("{file}: `{word}`: {what}")),
            _ => Fail(format!("{file}:{line}: `{word}`: {what}")),
        }
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
    pub fn all(file: &str, text: &str) -> Vec<Line> {
        let lines = text.lines().enumerate().map(|(n, line)| Line {
            file: file.to_string(),
            number: n + 1,
            text: line.split('#').next().unwrap_or("").trim_end().to_string(),
        });
        lines.filter(|l| !l.text.trim().is_empty()).collect()
    }

    /// A mistake at a word: one cut out of this line is found where it stands, any other where it first occurs.
    pub fn fail(&self, word: &str, what: &str) -> Fail {
        let inside =
            (word.as_ptr() as usize).checked_sub(self.text.as_ptr() as usize).filter(|at| *at < self.text.len());
        let column = inside.or_else(|| self.text.find(word)).unwrap_or(0) + 1;
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
