//! Vectors that we do not reproduce on purpose, from `exceptions.txt`.

/// The lines of `exceptions.txt`.
pub struct Exceptions(Vec<Line>);

struct Line {
    targets: Vec<&'static str>,
    /// `asm`, `dis` or `both`.
    kind: &'static str,
    /// A glob on the text, its words joined by one blank.
    text: &'static str,
    /// What the bytes start with, in hex; a dot is any digit.
    bytes: &'static str,
}

impl Exceptions {
    /// Reads the list.
    pub fn load() -> Exceptions {
        let line = |line: &'static str| {
            let fields: Vec<&str> = line.split(" | ").map(str::trim).collect();
            let [targets, kind, text, reason] = fields.as_slice() else { panic!("exceptions.txt: {line:?}") };
            assert!(!reason.is_empty(), "exceptions.txt: no reason in {line:?}");
            let (text, bytes) = text.split_once(" @ ").unwrap_or((text, ""));
            Line { targets: targets.split(' ').collect(), kind, text, bytes }
        };
        let lines = include_str!("../exceptions.txt").lines();
        Exceptions(lines.filter(|l| !l.starts_with('#') && !l.trim().is_empty()).map(line).collect())
    }

    /// True when the vector is one of them.
    pub fn excuse(&self, target: &str, kind: &str, text: &str, bytes: &str) -> bool {
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        self.0.iter().any(|l| {
            (l.kind == kind || l.kind == "both")
                && l.targets.iter().any(|t| glob(t, target))
                && l.bytes.len() <= bytes.len()
                && l.bytes.chars().zip(bytes.chars()).all(|(p, b)| p == '.' || p == b)
                && glob(l.text, &words)
        })
    }
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
