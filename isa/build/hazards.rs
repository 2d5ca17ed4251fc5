//! `hazards.isa` to `static HAZARDS`, a rule list per target.

use super::properties::matches;
use super::text::{Line, Result};
use super::{Parents, chain};
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

fn predicate(line: &Line, text: &str, ops: &[String]) -> Result<String> {
    let (mut all, mut none, mut some) = (0u32, 0u32, 0u32);
    let mut list = Vec::new();
    let bit =
        |w: &str| WORDS.iter().position(|x| *x == w).map(|i| 1u32 << i).ok_or_else(|| line.fail(w, "no such word"));
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
                    return Err(line.fail(w, "matches no operation"));
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

/// Relations of producer and consumer: word, name in Rust.
const RELATIONS: &[(&str, &str)] = &[
    ("writes>reads", "WritesReads"),
    ("writes>writes", "WritesWrites"),
    ("writes>touches", "WritesTouches"),
    ("sgpr>reads", "SgprReads"),
    ("sgpr>again", "SgprAgain"),
    ("sgpr>lane", "SgprLane"),
    ("writes>ab", "WritesAb"),
    ("writes>c", "WritesC"),
    ("writes=c", "WritesSameC"),
    ("c>writes", "CWrites"),
    ("data>writes", "DataWrites"),
    ("reads>sgpr", "ReadsSgpr"),
    ("reads>exec", "ReadsExec"),
    ("branch", "AcrossBranch"),
    ("clause", "Clause"),
    ("mask>again", "MaskAgain"),
    ("exec>between", "AcrossExec"),
    ("exec", "Exec"),
    ("vcc", "Vcc"),
    ("m0", "M0"),
    ("hwreg", "HwReg"),
    ("order", "Order"),
];

/// What keeps the two apart: word, name in Rust.
const FIXES: &[(&str, &str)] = &[
    ("nop", "Nop"),
    ("vnop", "VNop"),
    ("depctr", "DepCtr"),
    ("vsrc", "VmVsrc"),
    ("sdst", "SaSdst"),
    ("salu", "Salu"),
    ("vscnt", "VsCnt"),
];

fn named<'a>(line: &Line, list: &[(&str, &'a str)], word: &str) -> Result<&'a str> {
    let known: Vec<&str> = list.iter().map(|r| r.0).collect();
    let found = list.iter().find(|r| r.0 == word).map(|r| r.1);
    found.ok_or_else(|| line.fail(word, &format!("expected one of {}", known.join(", "))))
}

/// A rule as Rust, and the targets that it is for.
fn rule(line: &Line, ops: &[String], targets: &[String], parents: &Parents) -> Result<(Vec<String>, String)> {
    let cells: Vec<&str> = line.text.split('|').map(str::trim).collect();
    let &[name, scope, producer, relation, consumer, need, fix, ref rest @ ..] = &cells[..] else {
        return Err(line.fail(line.text.trim(), "expected seven columns"));
    };
    let mut states = Vec::new();
    for part in need.split(',') {
        let (passes, n) = part.split_once(':').unwrap_or(("0", part));
        let passes: u8 = if passes == "0" { 0 } else { line.number(passes)? };
        states.push(format!("({passes}, {})", line.number::<u8>(n)?));
    }
    let between = match rest {
        [] => "None".to_string(),
        [b] => format!("Some({})", predicate(line, b, ops)?),
        [_, more, ..] => return Err(line.fail(more, "expected at most eight columns")),
    };
    let scope: Vec<&str> = scope.split_whitespace().collect();
    for w in &scope {
        if !parents.contains_key(w.trim_start_matches('-')) {
            return Err(line.fail(w, "no such target"));
        }
    }
    // the nearest ancestor that the scope names decides
    let inside = |t: &&String| {
        let named = |h: &&str| scope.iter().any(|w| w.trim_start_matches('-') == *h);
        chain(parents, t).find(named).is_some_and(|h| scope.contains(&h))
    };
    let holds = targets.iter().filter(inside).cloned().collect();
    let text = format!(
        "HazardRule {{ name: {name:?}, producer: {}, relation: Relation::{}, consumer: {}, states: &[{}], fix: Fix::{}, \
         between: {between} }}",
        predicate(line, producer, ops)?,
        named(line, RELATIONS, relation)?,
        predicate(line, consumer, ops)?,
        states.join(", "),
        named(line, FIXES, fix)?,
    );
    Ok((holds, text))
}

/// Writes a rule list per target; targets that agree share one.
pub fn emit(lines: &[Line], ops: &[String], targets: &[String], parents: &Parents, out: &mut String) -> Result<()> {
    let rules = lines.iter().map(|l| rule(l, ops, targets, parents)).collect::<Result<Vec<_>>>()?;
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
