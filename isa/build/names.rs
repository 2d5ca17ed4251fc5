//! Section `names`: names of numbers, per target.

use super::text::{Line, Result};
use super::{Parents, chain};
use std::collections::BTreeMap;
use std::fmt::Write;

/// What has names.
const KINDS: &[&str] = &["hwreg", "msg", "format", "dfmt", "nfmt"];

/// A number and its name.
type Entry = (u16, String);

/// Writes a list per kind and target.
pub fn emit(lines: &[Line], targets: &[String], parents: &Parents, out: &mut String) -> Result<()> {
    let mut lists: BTreeMap<(&str, &str), Vec<Entry>> = BTreeMap::new();
    for line in lines {
        let words: Vec<&str> = line.text.split_whitespace().collect();
        let [kind, target, entries @ ..] = &words[..] else {
            return Err(line.fail(&line.text, "expected `kind target id=NAME ..`"));
        };
        if !KINDS.contains(kind) {
            return Err(line.fail(kind, "no such kind of names"));
        }
        if !parents.contains_key(*target) {
            return Err(line.fail(target, "no such target"));
        }
        let list = lists.entry((kind, target)).or_default();
        for e in entries {
            let (id, name) = e.split_once('=').ok_or_else(|| line.fail(e, "expected id=NAME"))?;
            list.push((line.number(id)?, name.to_string()));
        }
    }
    for kind in KINDS {
        let _ = writeln!(out, "pub(crate) static NAMES_{}: &[&[(u16, &str)]] = &[", kind.to_uppercase());
        for t in targets {
            let mut all: BTreeMap<u16, &str> = BTreeMap::new();
            let mut chain: Vec<&str> = chain(parents, t).collect();
            chain.reverse();
            for (id, name) in chain.iter().filter_map(|h| lists.get(&(*kind, *h))).flatten() {
                if name == "-" {
                    all.remove(id);
                } else {
                    all.insert(*id, name);
                }
            }
            let _ = writeln!(out, "&{:?},", all.into_iter().collect::<Vec<_>>());
        }
        out.push_str("];\n");
    }
    Ok(())
}
