//! Text to statements: comments, labels, arguments, strings.

use std::borrow::Cow;

/// Takes comments out, keeping columns. `open` tells that a `/*` of an earlier line is still open.
///
/// Comments start with `;` or `//` and, at the start of a line, `#`.
pub fn strip<'a>(line: &'a str, open: &mut bool) -> Cow<'a, str> {
    let b = line.as_bytes();
    // all bytes are looked at, because a loop that ends early is not vectorised
    let marked = b.iter().fold(false, |m, &c| m | (c == b'"') | (c == b';') | (c == b'#') | (c == b'/'));
    if !*open && !marked {
        return Cow::Borrowed(line.trim_ascii_end());
    }
    if !*open {
        // Most lines have no block comment: then the rest of the line goes, nothing is copied.
        let mut quoted = false;
        let mut end = b.len();
        let mut block = false;
        let mut blank = true;
        for (i, &c) in b.iter().enumerate() {
            match c {
                b'"' if i == 0 || b[i - 1] != b'\\' => quoted = !quoted,
                b';' if !quoted => {
                    end = i;
                    break;
                }
                b'#' if blank => {
                    end = i;
                    break;
                }
                b'/' if !quoted && b.get(i + 1) == Some(&b'/') => {
                    end = i;
                    break;
                }
                b'/' if !quoted && b.get(i + 1) == Some(&b'*') => {
                    block = true;
                    break;
                }
                _ => {}
            }
            blank &= c.is_ascii_whitespace();
        }
        if !block {
            return Cow::Borrowed(line[..end].trim_ascii_end());
        }
    }
    let mut out = String::with_capacity(line.len());
    let mut quoted = false;
    let mut rest = line;
    while let Some(c) = rest.chars().next() {
        if *open {
            let closes = rest.starts_with("*/");
            *open = !closes;
            let n = if closes { 2 } else { c.len_utf8() };
            out.extend(std::iter::repeat_n(' ', n));
            rest = &rest[n..];
            continue;
        }
        if !quoted && (c == ';' || rest.starts_with("//")) {
            break;
        }
        if !quoted && rest.starts_with("/*") {
            *open = true;
            out.push_str("  ");
            rest = &rest[2..];
            continue;
        }
        if c == '"' && !out.ends_with('\\') {
            quoted = !quoted;
        }
        out.push(c);
        rest = &rest[c.len_utf8()..];
    }
    out.truncate(out.trim_end().len());
    Cow::Owned(out)
}

/// From where to where an error points that is at a column (0: the statement): the word there, or all of the line but white
/// space and comments.
pub fn extent(line: &str, column: usize) -> (usize, usize) {
    let text = strip(line, &mut false);
    let begin = text.len() - text.trim_ascii_start().len();
    if column <= begin {
        return (begin, text.trim_ascii_end().len().max(begin));
    }
    let rest = line.get(column..).unwrap_or("");
    let end = rest.find(|c: char| c.is_whitespace() || matches!(c, ',' | ';' | ')')).unwrap_or(rest.len());
    let one = rest.chars().next().map_or(0, char::len_utf8);
    (column, column + end.max(one))
}

/// Bytes of names of symbols: letters, digits, `_`, `.`, `$`.
static NAME: [bool; 256] = {
    let mut out = [false; 256];
    let mut c = 0;
    while c < 256 {
        out[c] = (c as u8).is_ascii_alphanumeric() || matches!(c as u8, b'_' | b'.' | b'$');
        c += 1;
    }
    out
};

/// True for a name of a symbol.
pub fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|c| NAME[usize::from(c)])
}

/// How a statement starts.
#[derive(PartialEq, Eq, Debug)]
pub enum Start<'a> {
    /// A label, and the offset of what follows its colon.
    Label(&'a str, usize),
    /// `name = value`, and not a comparison.
    Assignment,
    /// Anything else.
    Other,
}

/// Looks at the name that a statement starts with and at what follows it.
pub fn start(text: &str) -> Start<'_> {
    let b = text.as_bytes();
    let after = |from: usize, f: fn(u8) -> bool| (from..b.len()).find(|&i| !f(b[i])).unwrap_or(b.len());
    let begin = after(0, |c| c.is_ascii_whitespace());
    let (name, end) = match text[begin..].strip_prefix('"').and_then(|quoted| quoted.split_once('"')) {
        Some((name, _)) => (name, begin + name.len() + 2),
        None => {
            let end = after(begin, |c| NAME[usize::from(c)]);
            (&text[begin..end], end)
        }
    };
    let next = after(end, |c| c.is_ascii_whitespace());
    let second = b.get(next + 1);
    match b.get(next) {
        Some(b':') if end > begin && second != Some(&b':') => Start::Label(name, next + 1),
        Some(b'=') if end > begin && second != Some(&b'=') => Start::Assignment,
        _ => Start::Other,
    }
}

/// Splits arguments at commas outside quotes and brackets: offset and text of each, without white space around.
pub fn split(args: &str) -> Vec<(usize, &str)> {
    let mut out = Vec::new();
    let (mut start, mut depth, mut quoted, mut last) = (0, 0usize, false, 0);
    let mut push = |a: usize, b: usize| {
        let part = &args[a..b];
        let lead = part.len() - part.trim_start().len();
        out.push((a + lead, part.trim()));
    };
    for (i, c) in args.bytes().enumerate() {
        match c {
            b'"' if last != b'\\' => quoted = !quoted,
            b'(' | b'[' if !quoted => depth += 1,
            b')' | b']' if !quoted => depth = depth.saturating_sub(1),
            b',' if !quoted && depth == 0 => {
                push(start, i);
                start = i + 1;
            }
            _ => {}
        }
        last = c;
    }
    if !args[start..].trim().is_empty() {
        push(start, args.len());
    }
    out
}

/// Bytes of a string in quotes; none when it is none.
pub fn unquote(text: &str) -> Option<Vec<u8>> {
    let inner = text.strip_prefix('"')?.strip_suffix('"')?;
    let mut out = Vec::new();
    let mut chars = inner.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.extend(c.to_string().bytes());
            continue;
        }
        match chars.next()? {
            'n' => out.push(b'\n'),
            't' => out.push(b'\t'),
            'r' => out.push(b'\r'),
            'b' => out.push(8),
            'f' => out.push(12),
            'x' => {
                let mut n = 0u8;
                while let Some(d) = chars.peek().and_then(|c| c.to_digit(16)) {
                    n = n << 4 | d as u8;
                    chars.next();
                }
                out.push(n);
            }
            d @ '0'..='7' => {
                let mut n = d as u8 - b'0';
                for _ in 0..2 {
                    let Some(d) = chars.peek().and_then(|c| c.to_digit(8)) else { break };
                    n = n << 3 | d as u8;
                    chars.next();
                }
                out.push(n);
            }
            other => out.extend(other.to_string().bytes()),
        }
    }
    Some(out)
}

/// A name that may stand in quotes.
pub fn plain(text: &str) -> &str {
    text.strip_prefix('"').and_then(|t| t.strip_suffix('"')).unwrap_or(text)
}
