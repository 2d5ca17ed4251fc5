//! `properties.isa` and `latency/latency.csv`: yes/no properties and latency classes by pattern.

use super::text::{Fail, Line, Result};
use super::{Parents, chain, inherit};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Property names, in order of their bits.
pub const PROPS: &[&str] = &[
    "trans",
    "packed",
    "dot",
    "matrix",
    "dgemm",
    "xdl",
    "cross_lane",
    "no_exec",
    "commutative",
    "branch",
    "terminator",
    "conditional",
    "barrier",
    "side_effects",
    "atomic",
    "load",
    "store",
    "fp",
    "valu_sgpr",
    "out_of_order",
    "message",
    "graphics",
    "uncounted",
    "invalidate",
    "sampled",
    "rays",
    "lds_dma",
    "gds",
    "fp_atomic",
    "byte_results",
];

struct Class {
    name: String,
    target: Option<String>,
    patterns: Vec<String>,
}

pub struct Properties {
    props: Vec<(usize, Vec<String>)>,
    classes: Vec<Class>,
    /// class -> target -> (latency, busy, tag)
    latency: BTreeMap<String, BTreeMap<String, Cycles>>,
}

/// Latency, busy cycles, evidence.
type Cycles = (u16, u16, char);

/// Matches a glob with `*` and `{a,b}`.
pub fn matches(pattern: &str, name: &str) -> bool {
    match pattern.find(['*', '{']) {
        None => pattern == name,
        Some(at) => {
            let Some(rest) = name.strip_prefix(&pattern[..at]) else { return false };
            if pattern.as_bytes()[at] == b'*' {
                return (0..=rest.len()).any(|i| rest.is_char_boundary(i) && matches(&pattern[at + 1..], &rest[i..]));
            }
            let Some(close) = pattern[at..].find('}') else { return false };
            let tail = &pattern[at + close + 1..];
            pattern[at + 1..at + close].split(',').any(|alt| rest.strip_prefix(alt).is_some_and(|r| matches(tail, r)))
        }
    }
}

fn any(patterns: &[String], name: &str) -> bool {
    patterns.iter().any(|p| !p.starts_with('!') && matches(p, name))
        && !patterns.iter().any(|p| p.strip_prefix('!').is_some_and(|p| matches(p, name)))
}

pub fn parse(lines: &[Line], csv: &str, ops: &[String]) -> Result<Properties> {
    let mut out = Properties { props: Vec::new(), classes: Vec::new(), latency: latency(csv)? };
    for line in lines {
        let (head, list) =
            line.text.split_once(':').ok_or_else(|| line.fail(&line.text, "expected `:` before the patterns"))?;
        let patterns: Vec<String> = list.split_whitespace().map(str::to_string).collect();
        for p in list.split_whitespace() {
            let name = p.trim_start_matches('!');
            if !ops.iter().any(|o| matches(name, o)) {
                return Err(line.fail(p, "matches no operation"));
            }
        }
        let words: Vec<&str> = head.split_whitespace().collect();
        match words[..] {
            ["prop", name] => {
                let i = PROPS.iter().position(|p| *p == name).ok_or_else(|| line.fail(name, "no such property"))?;
                out.props.push((i, patterns));
            }
            ["class", name, ref target @ ..] if target.len() < 2 => {
                if !out.latency.contains_key(name) {
                    return Err(line.fail(name, "the class has no line in latency.csv"));
                }
                let target = target.first().map(|t| t.to_string());
                out.classes.push(Class { name: name.into(), target, patterns });
            }
            _ => return Err(line.fail(head, "expected `prop NAME` or `class NAME [TARGET]`")),
        }
    }
    Ok(out)
}

/// Cycles of each class, per target.
fn latency(csv: &str) -> Result<BTreeMap<String, BTreeMap<String, Cycles>>> {
    let mut out: BTreeMap<String, BTreeMap<String, Cycles>> = BTreeMap::new();
    let mut header: Option<Vec<&str>> = None;
    for (n, text) in csv.lines().enumerate().filter(|(_, l)| !l.starts_with('#') && !l.is_empty()) {
        let line = Line { file: "../latency/latency.csv".to_string(), number: n + 1, text: text.to_string() };
        let cells: Vec<&str> = text.split(',').collect();
        let Some(header) = &header else {
            header = Some(cells);
            continue;
        };
        if cells.len() != header.len() {
            return Err(line.fail(cells[0], "the line has not as many cells as the header"));
        }
        for (target, cell) in header.iter().zip(&cells).skip(1) {
            let bad = || line.fail(cell, "expected `latency/busy tag`");
            let (numbers, tag) = cell.split_once(' ').ok_or_else(bad)?;
            let (l, b) = numbers.split_once('/').ok_or_else(bad)?;
            let tag = tag.chars().next().filter(|t| "mdi".contains(*t)).ok_or_else(bad)?;
            let value = (l.parse().map_err(|_| bad())?, b.parse().map_err(|_| bad())?, tag);
            out.entry(cells[0].to_string()).or_default().insert(target.to_string(), value);
        }
    }
    Ok(out)
}

impl Properties {
    /// The class of an operation that these classes match, in their order.
    fn class<'a>(matching: &[&'a Class], target: &str, parents: &Parents) -> Option<&'a Class> {
        let of = |t: Option<&str>| matching.iter().find(|c| c.target.as_deref() == t).copied();
        chain(parents, target).find_map(|t| of(Some(t))).or_else(|| of(None))
    }

    /// Writes `OP_PROPS`, `CLASS_NAMES`, `OP_CLASS` and `LATENCY`.
    pub fn emit(&self, ops: &[String], targets: &[String], parents: &Parents, out: &mut String) -> Result<()> {
        let props: Vec<u32> = ops
            .iter()
            .map(|op| self.props.iter().filter(|(_, p)| any(p, op)).map(|(i, _)| 1u32 << i).fold(0, |a, b| a | b))
            .collect();
        let _ = writeln!(out, "pub(crate) static OP_PROPS: &[u32] = &{props:?};");
        out.push_str("#[allow(dead_code)]\npub(crate) mod prop {\n");
        for (i, p) in PROPS.iter().enumerate() {
            let _ = writeln!(out, "pub const {}: u32 = 1 << {i};", p.to_uppercase());
        }
        out.push_str("}\n");
        let names: Vec<&String> = self.latency.keys().collect();
        let _ = writeln!(out, "pub(crate) static CLASS_NAMES: &[&str] = &{names:?};");
        out.push_str("pub(crate) static LATENCY: &[&[(u16, u16, char)]] = &[\n");
        for t in targets {
            let of = |(name, class): (&String, &BTreeMap<String, Cycles>)| {
                let missing = || Fail::file("../latency/latency.csv", &format!("no cycles of {name} for {t}"));
                inherit(class, parents, t).copied().ok_or_else(missing)
            };
            let row = self.latency.iter().map(of).collect::<Result<Vec<Cycles>>>()?;
            let _ = writeln!(out, "&{row:?},");
        }
        out.push_str("];\n");
        self.emit_classes(ops, targets, parents, &names, out)
    }

    /// Writes the class of each operation, per target; targets that agree share a list.
    fn emit_classes(
        &self,
        ops: &[String],
        targets: &[String],
        parents: &Parents,
        names: &[&String],
        out: &mut String,
    ) -> Result<()> {
        let matching = |op: &String| self.classes.iter().filter(|c| any(&c.patterns, op)).collect();
        let matching: Vec<Vec<&Class>> = ops.iter().map(matching).collect();
        let mut seen: Vec<Vec<usize>> = Vec::new();
        let mut which = Vec::new();
        for t in targets {
            let of = |(op, matching): (&String, &Vec<&Class>)| {
                let class = Self::class(matching, t, parents).map(|c| &c.name);
                let number = class.and_then(|c| names.iter().position(|n| *n == c));
                number.ok_or_else(|| Fail::file("properties.isa", &format!("`{op}` has no latency class on {t}")))
            };
            let list = ops.iter().zip(&matching).map(of).collect::<Result<Vec<usize>>>()?;
            let at = seen.iter().position(|s| *s == list).unwrap_or_else(|| {
                seen.push(list);
                seen.len() - 1
            });
            which.push(at);
        }
        let _ = writeln!(out, "pub(crate) static OP_CLASS: &[&[u8]] = &[");
        for s in &seen {
            let _ = writeln!(out, "&{s:?},");
        }
        let _ = writeln!(out, "];\npub(crate) static OP_CLASS_OF: &[u8] = &{which:?};");
        Ok(())
    }
}
