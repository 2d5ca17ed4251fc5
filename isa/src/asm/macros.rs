//! `.macro`, `.rept`, `.irp` and `.if`: text that is repeated, filled in or left out.
//!
//! Lines pass through here first. While a block is open its lines are collected; at its end they are expanded and fed
//! to the assembler again, so blocks nest. Depth and total size are bounded: a macro that calls itself for ever is an
//! error, not a hang.

use super::source::{is_name, split, unquote};
use super::state::{Outcome, State};
use crate::text::lex::ParseError;
use std::borrow::Cow;
use std::collections::HashMap;

/// Deepest nesting of expansions.
const MAX_DEPTH: usize = 64;
/// Most bytes that expansions may produce.
const MAX_EXPANSION: usize = 1 << 25;

#[derive(Clone)]
struct Parameter {
    name: String,
    default: Option<String>,
    required: bool,
    /// Takes all arguments that are left.
    rest: bool,
}

#[derive(Clone)]
struct Macro {
    parameters: Vec<Parameter>,
    body: String,
    /// Line of its directive; none when an expansion defines it.
    line: Option<usize>,
}

/// A block whose end has not been seen.
struct Open {
    /// The directive's line.
    head: String,
    line: usize,
    body: String,
    /// Blocks of the same kind inside it that are open.
    nested: usize,
}

/// An `.if` that is open.
struct Condition {
    line: usize,
    /// Lines count now: they do outside of it too.
    active: bool,
    /// A branch has been taken: no later one is.
    taken: bool,
    otherwise: bool,
}

/// Definitions and open blocks.
#[derive(Default)]
pub(super) struct Macros {
    macros: HashMap<String, Macro>,
    block: Option<Open>,
    conditions: Vec<Condition>,
    depth: usize,
    produced: usize,
    /// Number of expansions so far: `\@`.
    count: usize,
    /// `.exitm` was met in the current expansion.
    leave: bool,
    /// `.end` was met.
    pub ended: bool,
}

impl Macros {
    /// What is still open at the end of the source.
    pub fn open(&self) -> Option<(usize, String)> {
        if let Some(b) = &self.block {
            let word = b.head.split_whitespace().next().unwrap_or("");
            let end = if word == ".macro" { ".endm" } else { ".endr" };
            return Some((b.line, format!("{word} of line {} has no {end}", b.line)));
        }
        self.conditions.last().map(|c| (c.line, format!(".if of line {} has no .endif", c.line)))
    }

    fn active(&self) -> bool {
        self.conditions.last().is_none_or(|c| c.active)
    }
}

fn fail<T>(message: impl Into<String>) -> Outcome<T> {
    Err(ParseError { column: 0, message: message.into() })
}

fn word(line: &str) -> (&str, &str) {
    let line = line.trim();
    line.split_at(line.find(char::is_whitespace).unwrap_or(line.len()))
}

impl State<'_> {
    /// Deals with a line that belongs to a block or a condition; false when it is an ordinary statement.
    pub(super) fn takes_line(&mut self, line: &str) -> Outcome<bool> {
        // what opens or closes something starts with a dot
        let first = line.bytes().find(|c| !c.is_ascii_whitespace());
        if first != Some(b'.') && self.macros.block.is_none() {
            return Ok(!self.macros.active());
        }
        let (name, rest) = word(line);
        if let Some(open) = &mut self.macros.block {
            let is_macro = open.head.starts_with(".macro");
            match name {
                ".macro" if is_macro => open.nested += 1,
                ".rept" | ".irp" | ".irpc" if !is_macro => open.nested += 1,
                ".endm" | ".endmacro" if is_macro && open.nested > 0 => open.nested -= 1,
                ".endr" if !is_macro && open.nested > 0 => open.nested -= 1,
                ".endm" | ".endmacro" if is_macro => return self.close_block().map(|()| true),
                ".endr" if !is_macro => return self.close_block().map(|()| true),
                _ => {}
            }
            if let Some(open) = &mut self.macros.block {
                open.body.push_str(line);
                open.body.push('\n');
            }
            return Ok(true);
        }
        if !name.starts_with('.') {
            return Ok(!self.macros.active());
        }
        match name {
            ".else" | ".elseif" | ".endif" => self.condition_goes_on(name, rest.trim())?,
            _ if name.starts_with(".if") => {
                let outer = self.macros.active();
                let met = outer && self.condition(name, rest.trim())?;
                let line = self.line;
                self.macros.conditions.push(Condition { line, active: met, taken: met || !outer, otherwise: false });
            }
            _ if !self.macros.active() => {}
            ".macro" | ".rept" | ".irp" | ".irpc" => {
                let open = Open { head: line.trim().into(), line: self.line, body: String::new(), nested: 0 };
                self.macros.block = Some(open);
            }
            ".endm" | ".endmacro" | ".endr" => return fail(format!("{name} without its beginning")),
            ".exitm" if self.macros.depth == 0 => return fail(".exitm outside of a macro"),
            ".exitm" => self.macros.leave = true,
            ".purgem" => {
                if self.macros.macros.remove(rest.trim()).is_none() {
                    return fail(format!("there is no macro `{}`", rest.trim()));
                }
            }
            ".error" | ".err" => {
                let text = unquote(rest.trim()).map(|b| String::from_utf8_lossy(&b).into_owned());
                return fail(text.unwrap_or_else(|| format!("{name} met")));
            }
            ".print" | ".warning" => {}
            ".end" => self.macros.ended = true,
            ".include" | ".incbin" => return fail(format!("`{name}` is not supported: put the text into this file")),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn condition_goes_on(&mut self, name: &str, rest: &str) -> Outcome {
        let n = self.macros.conditions.len();
        let outer = n < 2 || self.macros.conditions[n - 2].active;
        let Some(c) = self.macros.conditions.last() else { return fail(format!("{name} without .if")) };
        if name == ".endif" {
            self.macros.conditions.pop();
            return Ok(());
        }
        if c.otherwise {
            return fail(format!("{name} after .else"));
        }
        let met = outer && !c.taken && (name == ".else" || self.condition(".if", rest)?);
        if let Some(c) = self.macros.conditions.last_mut() {
            c.active = met;
            c.taken |= met;
            c.otherwise = name == ".else";
        }
        Ok(())
    }

    fn condition(&self, name: &str, rest: &str) -> Outcome<bool> {
        let number = || self.value(rest).map(|v| v.number);
        let two = || match split(rest).as_slice() {
            [a, b] => Ok((a.1.to_string(), b.1.to_string())),
            _ => fail(format!("{name} takes two strings")),
        };
        Ok(match name {
            ".if" | ".ifne" => number()? != 0,
            ".ifeq" => number()? == 0,
            ".ifgt" => number()? > 0,
            ".ifge" => number()? >= 0,
            ".iflt" => number()? < 0,
            ".ifle" => number()? <= 0,
            ".ifdef" => self.is_defined(rest),
            ".ifndef" | ".ifnotdef" => !self.is_defined(rest),
            ".ifb" => rest.is_empty(),
            ".ifnb" => !rest.is_empty(),
            ".ifc" | ".ifeqs" => two().map(|(a, b)| a == b)?,
            ".ifnc" | ".ifnes" => two().map(|(a, b)| a != b)?,
            _ => return fail(format!("unknown directive `{name}`")),
        })
    }

    fn close_block(&mut self) -> Outcome {
        let Some(open) = self.macros.block.take() else { return Ok(()) };
        let (kind, rest) = word(&open.head);
        let rest = rest.trim();
        let (name, list) = rest.split_at(rest.find([' ', '\t', ',']).unwrap_or(rest.len()));
        let list = list.trim_start_matches([' ', '\t', ',']);
        match kind {
            ".macro" => {
                if !is_name(name) {
                    return fail(format!("`{name}` is no name for a macro"));
                }
                let parameters = parameters(list)?;
                let line = (self.macros.depth == 0).then_some(open.line);
                self.macros.macros.insert(name.into(), Macro { parameters, body: open.body, line });
                Ok(())
            }
            ".rept" => {
                let n = self.value(rest)?.number;
                // What cannot end well is not begun.
                let size = usize::try_from(n).unwrap_or(0).saturating_mul(open.body.len() + 1);
                if size > MAX_EXPANSION {
                    return fail(format!(".rept {n} of {} bytes makes more than {MAX_EXPANSION}", open.body.len()));
                }
                for _ in 0..n.max(0) {
                    self.feed_all(&open.body).map_err(|(_, e)| e)?;
                }
                Ok(())
            }
            _ => {
                let values: Vec<String> = match kind {
                    ".irp" => split(list).iter().map(|x| x.1.to_string()).collect(),
                    _ => list.trim_matches('"').chars().map(String::from).collect(),
                };
                for v in values {
                    let text = fill_in(&open.body, &[(name, &v)], self.macros.count);
                    self.feed_all(&text).map_err(|(_, e)| e)?;
                }
                Ok(())
            }
        }
    }

    /// True when a statement starts with the name of a macro.
    pub(super) fn invokes(&self, text: &str) -> bool {
        !self.macros.macros.is_empty() && self.macros.macros.contains_key(word(text).0)
    }

    pub(super) fn expand_macro(&mut self, text: &str) -> Outcome {
        let (name, rest) = word(text);
        let Some(m) = self.macros.macros.get(name).cloned() else { return Ok(()) };
        let mut values: Vec<Option<String>> = vec![None; m.parameters.len()];
        let given = arguments(rest.trim());
        let mut next = 0;
        for (i, a) in given.iter().enumerate() {
            let named = a.split_once('=').and_then(|(n, v)| {
                let at = m.parameters.iter().position(|p| p.name == n.trim())?;
                (!v.starts_with('=')).then(|| (at, v.trim().to_string()))
            });
            let (at, value) = match named {
                Some(x) => x,
                None => (next, a.to_string()),
            };
            let Some(p) = m.parameters.get(at) else {
                return fail(format!("macro `{name}` takes {} arguments", m.parameters.len()));
            };
            next = at + 1;
            if p.rest {
                values[at] = Some(given[i..].join(", "));
                break;
            }
            values[at] = Some(value);
        }
        let mut pairs = Vec::new();
        for (p, v) in m.parameters.iter().zip(values) {
            let v = v.filter(|v| !v.is_empty()).or_else(|| p.default.clone());
            if v.is_none() && p.required {
                return fail(format!("macro `{name}` needs its argument `{}`", p.name));
            }
            pairs.push((p.name.as_str(), v.unwrap_or_default()));
        }
        let pairs: Vec<(&str, &str)> = pairs.iter().map(|(n, v)| (*n, v.as_str())).collect();
        self.macros.count += 1;
        let text = fill_in(&m.body, &pairs, self.macros.count - 1);
        let conditions = self.macros.conditions.len();
        let done = self.feed_all(&text).map_err(|(n, e)| {
            if let Some(line) = m.line {
                self.relate(line + 1 + n, format!("this line of macro `{name}`"));
            }
            let place = format!(" (in macro `{name}`)");
            // A macro that calls itself is named once.
            let message = if e.message.ends_with(&place) { e.message } else { e.message + &place };
            ParseError { column: 0, message }
        });
        if std::mem::take(&mut self.macros.leave) {
            self.macros.conditions.truncate(conditions);
        }
        done
    }

    /// Takes the lines of an expansion; an error comes with the number of its line there, from 0.
    fn feed_all(&mut self, text: &str) -> Result<(), (usize, ParseError)> {
        self.macros.produced += text.len() + 1;
        if self.macros.depth >= MAX_DEPTH || self.macros.produced > MAX_EXPANSION {
            return fail("macros nested too deeply or too long").map_err(|e| (0, e));
        }
        self.macros.depth += 1;
        let mut done = Ok(());
        for (n, line) in text.lines().enumerate() {
            done = self.feed(line).map_err(|e| (n, e));
            if done.is_err() || self.macros.leave {
                break;
            }
        }
        self.macros.depth -= 1;
        done
    }
}

/// `a, b=1, c:req, d:vararg`.
fn parameters(list: &str) -> Outcome<Vec<Parameter>> {
    let mut out: Vec<Parameter> = Vec::new();
    for text in arguments(list) {
        let (head, default) = match text.split_once('=') {
            Some((h, d)) => (h.trim(), Some(d.trim().to_string())),
            None => (&*text, None),
        };
        let (name, quality) = head.split_once(':').unwrap_or((head, ""));
        if !is_name(name) || out.iter().any(|p| p.name == name || p.rest) {
            return fail(format!("`{text}` is no parameter"));
        }
        let (required, rest) = (quality == "req", quality == "vararg");
        out.push(Parameter { name: name.into(), default, required, rest });
    }
    Ok(out)
}

/// Arguments of a macro: separated by commas, or by white space that no operator touches.
fn arguments(text: &str) -> Vec<Cow<'_, str>> {
    let mut out = Vec::new();
    for (_, part) in split(text) {
        if part.starts_with('"') {
            out.push(unquote(part).map_or(Cow::Borrowed(part), |b| String::from_utf8_lossy(&b).into_owned().into()));
            continue;
        }
        let mut current = String::new();
        let mut depth = 0i32;
        for w in part.split_whitespace() {
            let operator = |c: char| matches!(c, '+' | '-' | '*' | '/' | '=' | '&' | '|' | '<' | '>' | ':' | ',');
            let joins = current.ends_with(operator) || w.starts_with(operator) || depth > 0;
            if !current.is_empty() && !joins {
                out.push(std::mem::take(&mut current).into());
            }
            current.push_str(w);
            depth += w.matches(['(', '[']).count() as i32 - w.matches([')', ']']).count() as i32;
        }
        out.push(current.into());
    }
    out
}

/// Puts values in the place of `\name`, the number of the expansion in the place of `\@`, nothing in that of `\()`.
fn fill_in(body: &str, values: &[(&str, &str)], count: usize) -> String {
    let mut out = String::with_capacity(body.len());
    let mut rest = body;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(r) = rest.strip_prefix('@') {
            out.push_str(&count.to_string());
            rest = r;
        } else if let Some(r) = rest.strip_prefix("()") {
            rest = r;
        } else {
            let end = rest.bytes().position(|c| !(c.is_ascii_alphanumeric() || c == b'_')).unwrap_or(rest.len());
            match values.iter().find(|v| v.0 == &rest[..end]) {
                Some((_, v)) => out.push_str(v),
                None => {
                    out.push('\\');
                    out.push_str(&rest[..end]);
                }
            }
            rest = &rest[end..];
        }
    }
    out.push_str(rest);
    out
}
