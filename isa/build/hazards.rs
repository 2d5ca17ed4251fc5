//! `hazards.isa` to `static HAZARDS`, a rule list per target.

use crate::properties::matches;
use crate::text::{Fail, Result};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Words of a predicate, in order of their bits.
pub const WORDS: &[&str] = &[
    "any",
    "valu",
    "salu",
    "vmem",
    "smem",
    "lds",
    "mem",
    "matrix",
    "xdl",
    "sgemm",
    "dgemm",
    "trans",
    "dot",
    "dpp",
    "partial",
    "wide_store",
    "gds",
    "ldsdma",
    "fp_atomic",
    "message",
    "same_op",
    "other_op",
    "to_agpr",
];

fn predicate(text: &str, ops: &[String], at: &dyn Fn(&str, &str) -> Fail) -> Result<String> {
    let (mut all, mut none, mut some) = (0u32, 0u32, 0u32);
    let mut list = Vec::new();
    let bit = |w: &str| WORDS.iter().position(|x| *x == w).map(|i| 1u32 << i).ok_or_else(|| at(w, "no such word"));
    for word in text.split_whitespace() {
        if let Some(w) = word.strip_prefix('!') {
            none |= bit(w)?;
            continue;
        }
        let mut in_ops = false;
        let alternatives: Vec<&str> = word.split(',').collect();
        let single = alternatives.len() == 1;
        for mut w in alternatives {
            if let Some(p) = w.strip_prefix("op:") {
                in_ops = true;
                w = p;
            }
            if in_ops {
                let before = list.len();
                list.extend(ops.iter().enumerate().filter(|(_, o)| matches(w, o)).map(|(i, _)| i));
                if list.len() == before {
                    return Err(at(w, "matches no operation"));
                }
            } else if single {
                all |= bit(w)?;
            } else {
                some |= bit(w)?;
            }
        }
    }
    list.sort_unstable();
    list.dedup();
    let list: Vec<String> = list.iter().map(|i| format!("Op({i})")).collect();
    Ok(format!("Match {{ all: {all}, none: {none}, any: {some}, ops: &[{}] }}", list.join(", ")))
}

pub fn emit(
    text: &str,
    ops: &[String],
    targets: &[String],
    parents: &BTreeMap<String, Option<String>>,
    out: &mut String,
) -> Result<()> {
    let mut rules: Vec<(Vec<String>, String)> = Vec::new();
    for (n, line) in text.lines().enumerate() {
        let at = |word: &str, what: &str| Fail::new("hazards.isa", n + 1, word, what);
        let line = line.split('#').next().unwrap_or("");
        if line.trim().is_empty() {
            continue;
        }
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let &[name, scope, producer, relation, consumer, need, fix, ref rest @ ..] = &cells[..] else {
            return Err(at(line.trim(), "expected seven columns"));
        };
        let relation = match relation {
            "writes>reads" => "WritesReads",
            "writes>writes" => "WritesWrites",
            "writes>touches" => "WritesTouches",
            "sgpr>reads" => "SgprReads",
            "sgpr>again" => "SgprAgain",
            "sgpr>lane" => "SgprLane",
            "writes>ab" => "WritesAb",
            "writes>c" => "WritesC",
            "writes=c" => "WritesSameC",
            "c>writes" => "CWrites",
            "data>writes" => "DataWrites",
            "reads>sgpr" => "ReadsSgpr",
            "reads>exec" => "ReadsExec",
            "exec" => "Exec",
            "vcc" => "Vcc",
            "m0" => "M0",
            "hwreg" => "HwReg",
            "order" => "Order",
            _ => return Err(at(relation, "no such relation")),
        };
        let mut states = Vec::new();
        for part in need.split(',') {
            let (passes, n) = part.split_once(':').unwrap_or(("0", part));
            let parse = |x: &str| x.parse::<u8>().map_err(|_| at(x, "expected a number"));
            states.push(format!("({}, {})", parse(passes)?, parse(n)?));
        }
        let fix = match fix {
            "nop" => "Nop",
            "vnop" => "VNop",
            "depctr" => "DepCtr",
            "vsrc" => "VmVsrc",
            "sdst" => "SaSdst",
            "salu" => "Salu",
            _ => return Err(at(fix, "expected nop, vnop, depctr, vsrc, sdst or salu")),
        };
        let between = match rest {
            [] => "None".to_string(),
            [b, ..] => format!("Some({})", predicate(b, ops, &at)?),
        };
        let scope: Vec<&str> = scope.split_whitespace().collect();
        for w in &scope {
            if !parents.contains_key(w.trim_start_matches('-')) {
                return Err(at(w, "no such target"));
            }
        }
        let holds = targets
            .iter()
            .filter(|t| {
                let mut here = Some((*t).clone());
                while let Some(h) = here {
                    if scope.contains(&format!("-{h}").as_str()) {
                        return false;
                    }
                    if scope.contains(&h.as_str()) {
                        return true;
                    }
                    here = parents.get(&h).cloned().flatten();
                }
                false
            })
            .cloned()
            .collect();
        let rule = format!(
            "HazardRule {{ name: {name:?}, producer: {}, relation: Relation::{relation}, consumer: {}, states: &[{}], fix: Fix::{fix}, between: {between} }}",
            predicate(producer, ops, &at)?,
            predicate(consumer, ops, &at)?,
            states.join(", ")
        );
        rules.push((holds, rule));
    }
    let mut seen: Vec<Vec<&String>> = Vec::new();
    let mut which = Vec::new();
    for t in targets {
        let list: Vec<&String> = rules.iter().filter(|(h, _)| h.contains(t)).map(|(_, r)| r).collect();
        let at = seen.iter().position(|s| *s == list).unwrap_or_else(|| {
            seen.push(list);
            seen.len() - 1
        });
        which.push(at);
    }
    out.push_str("pub(crate) static HAZARDS: &[&[HazardRule]] = &[\n");
    for list in &seen {
        let list: Vec<&str> = list.iter().map(|s| s.as_str()).collect();
        let _ = writeln!(out, "&[{}],", list.join(",\n"));
    }
    let _ = writeln!(out, "];\npub(crate) static HAZARDS_OF: &[u8] = &{which:?};");
    Ok(())
}
