//! Vectors that we do not reproduce on purpose, from `exceptions.txt`.

/// A line of `exceptions.txt`: targets, `asm` or `dis` or `both`, a glob on the text (words joined by one blank).
pub struct Exceptions(Vec<(Vec<&'static str>, &'static str, &'static str)>);

impl Exceptions {
    /// Reads the list.
    pub fn load() -> Exceptions {
        let line = |line: &'static str| {
            let fields: Vec<&str> = line.split(" | ").map(str::trim).collect();
            let [targets, kind, text, reason] = fields.as_slice() else { panic!("exceptions.txt: {line:?}") };
            assert!(!reason.is_empty(), "exceptions.txt: no reason in {line:?}");
            (targets.split(' ').collect(), *kind, *text)
        };
        let lines = include_str!("../exceptions.txt").lines();
        Exceptions(lines.filter(|l| !l.starts_with('#') && !l.trim().is_empty()).map(line).collect())
    }

    /// True when the vector is one of them.
    pub fn excuse(&self, target: &str, kind: &str, text: &str) -> bool {
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        self.0.iter().any(|(targets, k, pattern)| {
            (*k == kind || *k == "both") && targets.iter().any(|t| glob(t, target)) && glob(pattern, &words)
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
