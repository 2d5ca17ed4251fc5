//! What all table files share: errors that name file, line and word.

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

/// `yes` or `no`.
pub fn yes(file: &str, word: &str) -> Result<bool> {
    match word {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(Fail::new(file, 0, word, "expected yes or no")),
    }
}
