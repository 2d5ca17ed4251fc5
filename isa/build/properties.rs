//! `properties.isa` and `latency/latency.csv`: yes/no properties and latency classes by pattern.

use crate::text::{Fail, Result};
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
    latency: BTreeMap<String, BTreeMap<String, (u16, u16, char)>>,
}

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

pub fn parse(text: &str, csv: &str, ops: &[String]) -> Result<Properties> {
    let mut out = Properties { props: Vec::new(), classes: Vec::new(), latency: BTreeMap::new() };
    for (n, line) in text.lines().enumerate() {
        let at = |word: &str, what: &str| Fail::new("properties.isa", n + 1, word, what);
        let line = line.split('#').next().unwrap_or("");
        if line.trim().is_empty() {
            continue;
        }
        let (head, list) = line.split_once(':').ok_or_else(|| at(line, "expected `:` before the patterns"))?;
        let patterns: Vec<String> = list.split_whitespace().map(str::to_string).collect();
        let words: Vec<&str> = head.split_whitespace().collect();
        match words[..] {
            ["prop", name] => {
                let i = PROPS.iter().position(|p| *p == name).ok_or_else(|| at(name, "no such property"))?;
                out.props.push((i, patterns));
            }
            ["class", name] => out.classes.push(Class { name: name.into(), target: None, patterns }),
            ["class", name, target] => {
                out.classes.push(Class { name: name.into(), target: Some(target.into()), patterns })
            }
            _ => return Err(at(head, "expected `prop NAME` or `class NAME [TARGET]`")),
        }
    }
    let mut header: Vec<String> = Vec::new();
    for (n, line) in csv.lines().enumerate() {
        if line.starts_with('#') || line.is_empty() {
            continue;
        }
        let cells: Vec<&str> = line.split(',').collect();
        if header.is_empty() {
            header = cells[1..].iter().map(|c| c.to_string()).collect();
            continue;
        }
        for (target, cell) in header.iter().zip(&cells[1..]) {
            let bad = || Fail::new("../latency/latency.csv", n + 1, cell, "expected `latency/busy tag`");
            let (numbers, tag) = cell.split_once(' ').ok_or_else(bad)?;
            let (l, b) = numbers.split_once('/').ok_or_else(bad)?;
            let tag = tag.chars().next().filter(|t| "mdi".contains(*t)).ok_or_else(bad)?;
            let value = (l.parse().map_err(|_| bad())?, b.parse().map_err(|_| bad())?, tag);
            out.latency.entry(cells[0].to_string()).or_default().insert(target.clone(), value);
        }
    }
    for c in &out.classes {
        if !out.latency.contains_key(&c.name) && !c.name.is_empty() {
            return Err(Fail::new("properties.isa", 0, &c.name, "the class has no line in latency.csv"));
        }
    }
    for (_, patterns) in &out.props {
        for p in patterns {
            let p = p.trim_start_matches('!');
            let whole = !p.contains(['*', '{']);
            if whole && !ops.iter().any(|o| o == p) && !p.ends_with("_x") && !p.ends_with("_dpp") {
                return Err(Fail::new("properties.isa", 0, p, "no such operation"));
            }
        }
    }
    Ok(out)
}

impl Properties {
    fn class(&self, op: &str, target: &str, parents: &BTreeMap<String, Option<String>>) -> Option<usize> {
        let mut t = Some(target.to_string());
        while let Some(here) = t {
            if let Some(i) =
                self.classes.iter().position(|c| c.target.as_deref() == Some(&here) && any(&c.patterns, op))
            {
                return Some(i);
            }
            t = parents.get(&here).cloned().flatten();
        }
        self.classes.iter().position(|c| c.target.is_none() && any(&c.patterns, op))
    }

    /// Writes `OP_PROPS`, `CLASS_NAMES`, `OP_CLASS` and `LATENCY`.
    pub fn emit(
        &self,
        ops: &[String],
        targets: &[String],
        parents: &BTreeMap<String, Option<String>>,
        out: &mut String,
    ) -> Result<()> {
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
            let mut row = Vec::new();
            for class in self.latency.values() {
                let mut here = Some(t.clone());
                let mut found = None;
                while let Some(h) = here {
                    found = class.get(&h).copied();
                    if found.is_some() {
                        break;
                    }
                    here = parents.get(&h).cloned().flatten();
                }
                row.push(found.unwrap_or((0, 0, 'i')));
            }
            let _ = writeln!(out, "&{row:?},");
        }
        out.push_str("];\n");
        let mut seen: Vec<Vec<u8>> = Vec::new();
        let mut which = Vec::new();
        for t in targets {
            let mut list = Vec::with_capacity(ops.len());
            for op in ops {
                let class =
                    self.class(op, t, parents).ok_or_else(|| Fail::new("properties.isa", 0, op, "no latency class"))?;
                let name = &self.classes[class].name;
                list.push(names.iter().position(|n| *n == name).unwrap_or(0) as u8);
            }
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
