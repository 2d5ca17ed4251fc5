//! What we do not reproduce on purpose, from a list like `exceptions.txt`.
//!
//! A line names targets, `asm`, `dis` or `both`, a glob on the text (with ` @ ` a pattern of the bytes), how many vectors
//! it excuses, and the reason. The counts are what keeps a wide glob from hiding a regression: a vector more than
//! stated, or one less, fails the test.

use std::cell::Cell;

/// The lines of a list.
pub struct Exceptions(Vec<Line>);

struct Line {
    source: &'static str,
    targets: Vec<&'static str>,
    /// `asm`, `dis` or `both`.
    kind: &'static str,
    /// A glob on the text, its words joined by one blank.
    text: &'static str,
    /// What the bytes start with, in hex; a dot is any digit, `[89a]` one of these.
    bytes: &'static str,
    /// Vectors it excuses: texts (`dis`) and bytes (`asm`).
    stated: [usize; 2],
    used: Cell<usize>,
}

impl Exceptions {
    /// Reads the list; `BAREWAVE_EXCEPTIONS=none` leaves it empty, to see what it hides.
    pub fn load() -> Exceptions {
        if std::env::var("BAREWAVE_EXCEPTIONS").is_ok_and(|v| v == "none") {
            return Exceptions(Vec::new());
        }
        let line = |source: &'static str| {
            let fields: Vec<&str> = source.split(" | ").map(str::trim).collect();
            let [targets, kind, text, counts, reason] = fields.as_slice() else { panic!("exceptions.txt: {source:?}") };
            assert!(!reason.is_empty(), "exceptions.txt: no reason in {source:?}");
            let (text, bytes) = text.split_once(" @ ").unwrap_or((text, ""));
            let count = |n: &str| n.parse().unwrap_or_else(|e| panic!("exceptions.txt: {source:?}: {e}"));
            let (dis, asm) = counts.split_once(' ').unwrap_or_else(|| panic!("exceptions.txt: {source:?}"));
            let stated = [count(dis), count(asm)];
            Line { source, targets: targets.split(' ').collect(), kind, text, bytes, stated, used: Cell::new(0) }
        };
        let lines = include_str!("../exceptions.txt").lines();
        Exceptions(lines.filter(|l| !l.starts_with('#') && !l.trim().is_empty()).map(line).collect())
    }

    /// True when the vector is one of them. The first line that fits counts it.
    pub fn excuse(&self, target: &str, kind: &str, text: &str, bytes: &str) -> bool {
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let line = self.0.iter().find(|l| {
            (l.kind == kind || l.kind == "both")
                && l.targets.iter().any(|t| glob(t, target))
                && digits(l.bytes, bytes)
                && glob(l.text, &words)
        });
        if let Some(l) = line {
            l.used.set(l.used.get() + 1);
        }
        line.is_some()
    }

    /// Lines that excused another number of vectors than they state, in a run over all vectors of one direction.
    pub fn miscounted(&self, kind: &str) -> Vec<String> {
        let at = usize::from(kind == "asm");
        let wrong = self.0.iter().filter(|l| l.used.get() != l.stated[at]);
        wrong.map(|l| format!("{kind}: excuses {}, not {}: {}", l.used.get(), l.stated[at], l.source)).collect()
    }
}

/// True when hex digits start with a pattern of digits, dots and sets in brackets.
pub fn digits(pattern: &str, bytes: &str) -> bool {
    let mut pattern = pattern.chars();
    let mut bytes = bytes.chars();
    while let Some(p) = pattern.next() {
        let Some(b) = bytes.next() else { return false };
        let fits = match p {
            '.' => true,
            // the adapter stops behind the closing bracket
            '[' => pattern.by_ref().take_while(|c| *c != ']').fold(false, |any, c| any | (c == b)),
            p => p == b,
        };
        if !fits {
            return false;
        }
    }
    true
}

/// `*` matches any run of characters.
pub fn glob(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or("");
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut last = None;
    for part in parts {
        if let Some(middle) = last.replace(part) {
            match rest.find(middle) {
                Some(i) => rest = &rest[i + middle.len()..],
                None => return false,
            }
        }
    }
    last.map_or(rest.is_empty(), |tail| rest.ends_with(tail))
}
