//! `barewave isa grammar`: a TextMate grammar of AMDGPU assembly, made from the instruction tables.
//!
//! Names of instructions are told apart by what executes them. Each group is one expression that shares common beginnings
//! (a trie), so that a highlighter reads a name once.

use barewave_isa::{DIRECTIVES, Flags, KERNEL_DIRECTIVES, OpInfo, Pipe, Reg, Regs, Target};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// What highlighters call a group of instructions.
fn scope(i: &OpInfo) -> &'static str {
    match i.pipe {
        _ if i.flags.has(Flags::BRANCH) => "keyword.control.branch",
        Pipe::Branch => "keyword.other.flow",
        Pipe::Salu => "support.function.scalar",
        Pipe::Valu | Pipe::Trans => "entity.name.function.vector",
        Pipe::Matrix => "entity.name.function.matrix",
        Pipe::Smem | Pipe::Lds | Pipe::Vmem => "storage.type.memory",
        Pipe::Export => "support.other.export",
    }
}

/// The grammar for one target, or for all of them.
pub fn grammar(only: Option<Target>) -> Value {
    let mut groups: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for t in Target::all().filter(|t| only.is_none_or(|o| o == *t)) {
        for i in crate::isa::ops(t) {
            groups.entry(scope(i)).or_default().insert(i.name);
        }
    }
    let pattern = |name: &str, expression: String| json!({ "name": format!("{name}.amdgpu"), "match": expression });
    let mut patterns = vec![
        pattern("comment.line", "(?:;|//).*$".into()),
        pattern("comment.line", "^\\s*#.*$".into()),
        json!({ "name": "comment.block.amdgpu", "begin": "/\\*", "end": "\\*/" }),
        json!({
            "name": "string.quoted.double.amdgpu", "begin": "\"", "end": "\"",
            "patterns": [{ "name": "constant.character.escape.amdgpu", "match": "\\\\." }],
        }),
        pattern("entity.name.label", "^\\s*[\\w.$]+(?=\\s*:)".into()),
    ];
    // Encodings that a name may end in.
    let ending = "(?:_e32|_e64|_e64_dpp|_dpp|_dpp8|_e64_dpp8|_sdwa)?";
    for (scope, names) in &groups {
        patterns.push(pattern(scope, format!("\\b{}{ending}\\b", any_of(names))));
    }
    let directives: BTreeSet<String> = DIRECTIVES.iter().map(|d| d.trim_start_matches('.').to_string()).collect();
    let kernel: BTreeSet<String> = KERNEL_DIRECTIVES.iter().map(|d| format!("amdhsa_{d}")).collect();
    let directives: BTreeSet<&str> = directives.iter().chain(&kernel).map(String::as_str).collect();
    patterns.extend([
        pattern("keyword.control.directive", format!("\\.{}\\b", any_of(&directives))),
        pattern("variable.language.register", format!("\\b{}\\b", any_of(&special_registers()))),
        pattern(
            "variable.parameter.register",
            "\\b(?:v|s|a|ttmp)(?:\\d+(?:\\.[lh])?\\b|\\[[^\\]]*\\](?:\\.[lh])?)".into(),
        ),
        pattern("constant.numeric", "\\b(?:0[xX][0-9a-fA-F]+|0[bB][01]+|\\d+(?:\\.\\d*)?(?:[eE][-+]?\\d+)?)\\b".into()),
        pattern("support.variable.modifier", "\\b[a-z_0-9]+(?=:)".into()),
    ]);
    let of = only.map_or("every target".into(), |t| t.to_string());
    json!({
        "$schema": "https://raw.githubusercontent.com/martinring/tmlanguage/master/tmlanguage.json",
        "name": "AMDGPU assembly", "scopeName": "source.amdgpu", "fileTypes": ["s", "S", "asm"],
        "comment": format!("Made by `barewave isa grammar` from the instruction tables of {of}."),
        "patterns": patterns,
    })
}

/// Names of registers that are no numbered ones.
fn special_registers() -> BTreeSet<&'static str> {
    let numbers = (0..u16::MAX).map(Reg).take_while(|r| r.0 <= Reg::SCC.0.max(Reg::NULL.0) + 64);
    let names = numbers.flat_map(|r| [1, 2].map(|dwords| Regs::new(r, dwords).special_name())).flatten();
    names.collect()
}

/// A trie of names.
#[derive(Default)]
struct Trie {
    next: BTreeMap<char, Trie>,
    ends: bool,
}

/// An expression that matches each of the names and nothing else.
fn any_of(names: &BTreeSet<&str>) -> String {
    let mut root = Trie::default();
    for name in names {
        let last = name.chars().fold(&mut root, |t, c| t.next.entry(c).or_default());
        last.ends = true;
    }
    root.expression()
}

impl Trie {
    fn expression(&self) -> String {
        let part = |(c, t): (&char, &Trie)| match c {
            c if c.is_ascii_alphanumeric() || *c == '_' => format!("{c}{}", t.expression()),
            c => format!("\\{c}{}", t.expression()),
        };
        let parts: Vec<String> = self.next.iter().map(part).collect();
        match (parts.as_slice(), self.ends) {
            ([], _) => String::new(),
            ([one], false) => one.clone(),
            (_, ends) => format!("(?:{}){}", parts.join("|"), if ends { "?" } else { "" }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;
    use regex_lite::Regex;

    #[test]
    fn a_trie_matches_its_names_and_nothing_else() {
        let names = BTreeSet::from(["v_add", "v_add_co", "v_sub", "s_nop"]);
        assert_eq!(any_of(&names), "(?:s_nop|v_(?:add(?:_co)?|sub))");
    }

    #[test]
    fn every_instruction_of_every_target_is_in_its_group() {
        for only in [None, Target::parse("gfx942").ok()] {
            let grammar = grammar(only);
            let patterns: Vec<(&str, Regex)> = grammar["patterns"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|p| p["match"].as_str().is_some_and(|m| m.ends_with("_sdwa)?\\b")))
                .map(|p| {
                    (p["name"].as_str().unwrap(), Regex::new(&format!("^{}$", p["match"].as_str().unwrap())).unwrap())
                })
                .collect();
            assert!(patterns.len() >= 6);
            for t in Target::all().filter(|t| only.is_none_or(|o| o == *t)) {
                for i in crate::isa::ops(t) {
                    let groups: Vec<&str> = patterns.iter().filter(|p| p.1.is_match(i.name)).map(|p| p.0).collect();
                    assert!(groups.contains(&format!("{}.amdgpu", scope(i)).as_str()), "{t} {}: {groups:?}", i.name);
                }
            }
            assert!(!patterns.iter().any(|p| p.1.is_match("v_nonsense_f32")));
        }
        let gfx803 = grammar(Target::parse("gfx803").ok()).to_string();
        assert!(gfx803.len() < grammar(None).to_string().len() / 2 && special_registers().contains("vcc_lo"));
    }
}
