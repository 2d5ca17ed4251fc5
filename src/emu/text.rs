//! Text from files, for people and for other text.

use std::borrow::Cow;

/// Text in which control characters are written out (`\u{1b}`, `\n`). Names in files may hold line ends and escape
/// sequences; nothing that is made of names may become a line of its own or reach a terminal as a command.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if c.is_control() { out.extend(c.escape_default()) } else { out.push(c) }
    }
    Cow::Owned(out)
}

/// The message of an error with those of what caused it, as far as it does not say them itself.
pub fn with_sources(e: &dyn std::error::Error) -> String {
    let mut message = e.to_string();
    let mut source = e.source();
    while let Some(s) = source {
        let text = s.to_string();
        if !message.contains(&text) {
            message.push_str(": ");
            message.push_str(&text);
        }
        source = s.source();
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Failed(&'static str, Option<Box<Failed>>);
    impl std::fmt::Display for Failed {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str(self.0)
        }
    }
    impl std::error::Error for Failed {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            self.1.as_deref().map(|e| e as _)
        }
    }

    #[test]
    fn causes_are_named_once() {
        let cause = Failed("no room", Some(Box::new(Failed("disk full", None))));
        let e = Failed("cannot write x: no room", Some(Box::new(cause)));
        assert_eq!(with_sources(&e), "cannot write x: no room: disk full");
    }
}
