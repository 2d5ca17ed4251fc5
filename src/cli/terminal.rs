//! Text for people: standard output and standard error without panics, and without control characters from files.
//!
//! [`println!`] and its siblings stand for those of the standard library in this crate. A terminal obeys escape
//! sequences, and names in files may hold them: control characters other than line ends and tabs are shown as `\u{1b}`, and
//! so are characters that reorder text or are not seen.

use std::fmt::{Arguments, Write as _};
use std::io::{IsTerminal, Write};

/// True for what a terminal obeys or does not show: controls, marks of writing direction, separators and spaces without
/// width. Joiners belong to words of some scripts.
fn hidden(c: char) -> bool {
    let unseen = matches!(c, '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}');
    c.is_control() && c != '\n' && c != '\t' || unseen || c == '\u{feff}'
}

/// Hidden characters of JSON as it writes them.
pub fn json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        let _ = if hidden(c) { write!(out, "\\u{:04x}", u32::from(c)) } else { out.write_char(c) };
    }
    out
}

/// Control characters made visible.
fn visible(text: &Arguments) -> String {
    let text = text.to_string();
    if !text.contains(hidden) {
        return text;
    }
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        let _ = if hidden(c) { write!(out, "{}", c.escape_default()) } else { out.write_char(c) };
    }
    out
}

/// Longer words are shortened to their first and last characters where people read them.
const LONGEST_WORD: usize = 240;
const FIRST_OF_WORD: usize = 100;
const LAST_OF_WORD: usize = 60;

/// A text in which no word, such as a name out of a file, is endless.
pub fn shortened(text: &str) -> String {
    let short = |word: &str| {
        let count = word.chars().count();
        if count <= LONGEST_WORD {
            return word.to_string();
        }
        let first: String = word.chars().take(FIRST_OF_WORD).collect();
        let last: String = word.chars().skip(count - LAST_OF_WORD).collect();
        format!("{first}...{last}")
    };
    let words = text.split_inclusive(char::is_whitespace);
    words.map(|w| if w.len() <= LONGEST_WORD { w.to_string() } else { short(w) }).collect()
}

/// Control characters of a text made visible, but for line ends and tabs.
pub fn made_visible(text: &str) -> String {
    visible(&format_args!("{text}"))
}

/// True when messages may have colours: standard error is a terminal that shows them, and nobody said no
/// (<https://no-color.org>).
pub fn has_colours() -> bool {
    let asked_not = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|t| t == "dumb");
    std::io::stderr().is_terminal() && !asked_not && !dumb
}

/// Prints to standard error what was drawn for it: what it shows of files was made visible before.
pub fn drawn(text: &str) {
    let _ = std::io::stderr().lock().write_all((text.trim_end().to_string() + "\n").as_bytes());
}

/// Prints results. When standard output takes no more (a full disk) the command has failed.
pub fn print(text: Arguments, line: bool) {
    let text = visible(&text) + if line { "\n" } else { "" };
    if let Err(e) = std::io::stdout().lock().write_all(text.as_bytes()) {
        lost(&e);
    }
}

/// Gives out what is buffered.
pub fn flush() {
    if let Err(e) = std::io::stdout().lock().flush() {
        lost(&e);
    }
}

fn lost(e: &std::io::Error) -> ! {
    message(format_args!("error: cannot write to standard output: {e}"));
    std::process::exit(1);
}

/// Prints a message to standard error, if anybody listens.
pub fn message(text: Arguments) {
    let _ = std::io::stderr().lock().write_all((shortened(&visible(&text)) + "\n").as_bytes());
}

macro_rules! print {
    ($($text:tt)*) => { $crate::terminal::print(format_args!($($text)*), false) };
}

macro_rules! println {
    () => { $crate::terminal::print(format_args!(""), true) };
    ($($text:tt)*) => { $crate::terminal::print(format_args!($($text)*), true) };
}

macro_rules! eprintln {
    ($($text:tt)*) => { $crate::terminal::message(format_args!($($text)*)) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_without_end_are_shortened() {
        let text = "node `x` of\ta file\n  says so";
        assert_eq!(shortened(text), text);
        let long = format!("node `{}z` and more\n", "ä".repeat(5000));
        let short = shortened(&long);
        assert!(short.starts_with("node `ää") && short.ends_with("ääz` and more\n"), "{short}");
        assert!(short.contains("ä...ä") && short.chars().count() < 200, "{short}");
    }
}
