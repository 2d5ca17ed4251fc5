//! The texts of string tensors.
//!
//! An element of a string tensor is a *code*: a 64-bit hash of its text (xxh3; 0 for the empty text). Equal texts have equal
//! codes wherever they are, in files, in other tensors and on devices, so that moving, comparing and looking up strings is
//! moving, comparing and looking up numbers. The texts themselves stay on the host, beside the tensors: a [`Words`] knows
//! them by their codes. Two texts of one code are refused as soon as they meet.

use super::Problem;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The code of a text.
pub fn code_of(text: &str) -> u64 {
    if text.is_empty() { 0 } else { xxhash_rust::xxh3::xxh3_64(text.as_bytes()) }
}

/// Texts by their codes. The empty text need not be there.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Words(BTreeMap<u64, Arc<str>>);

impl Words {
    /// The words of some texts.
    ///
    /// # Errors
    /// When two different texts have one code.
    pub fn of<'t>(texts: impl IntoIterator<Item = &'t str>) -> Result<Words, Problem> {
        let mut words = Words::default();
        texts.into_iter().try_for_each(|t| words.add(t).map(drop))?;
        Ok(words)
    }

    /// Adds a text; gives its code.
    ///
    /// # Errors
    /// When another text has that code.
    pub fn add(&mut self, text: &str) -> Result<u64, Problem> {
        let code = code_of(text);
        match self.text(code) {
            Some(known) if known != text => return Err(collision(known, text)),
            Some(_) => {}
            None => {
                self.0.insert(code, text.into());
            }
        }
        Ok(code)
    }

    /// Adds all words of another list.
    ///
    /// # Errors
    /// When two different texts have one code.
    pub fn merge(&mut self, other: &Words) -> Result<(), Problem> {
        for (code, text) in &other.0 {
            match self.0.get(code) {
                Some(known) if known != text => return Err(collision(known, text)),
                Some(_) => {}
                None => {
                    self.0.insert(*code, text.clone());
                }
            }
        }
        Ok(())
    }

    /// The text of a code.
    pub fn text(&self, code: u64) -> Option<&str> {
        if code == 0 { Some("") } else { self.0.get(&code).map(AsRef::as_ref) }
    }

    /// All texts, in the order of their codes.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.0.values().map(AsRef::as_ref)
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn collision(a: &str, b: &str) -> Problem {
    Problem::Unsupported(format!("the strings {a:?} and {b:?} have the same hash and cannot be told apart"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_keep_texts_and_refuse_two_of_one_code() {
        let mut words = Words::of(["a", "", "größer", "a"]).unwrap();
        assert_eq!(words.text(code_of("größer")), Some("größer"));
        assert_eq!((words.text(0), words.text(1), words.texts().count()), (Some(""), None, 2));
        // No two texts of one code are known, so one is put there.
        words.0.insert(code_of("x"), "y".into());
        assert!(words.add("x").unwrap_err().to_string().contains("\"y\" and \"x\""));
        assert!(words.merge(&Words::of(["x"]).unwrap()).is_err());
    }
}
