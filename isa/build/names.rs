//! `names.isa`: names of numbers, per target.

use crate::text::{Fail, Result};
use std::collections::BTreeMap;
use std::fmt::Write;

pub fn emit(
    text: &str,
    targets: &[String],
    parents: &BTreeMap<String, Option<String>>,
    out: &mut String,
) -> Result<()> {
    let mut lists: BTreeMap<(String, String), Vec<(u32, String)>> = BTreeMap::new();
    for (n, line) in text.lines().enumerate() {
        let at = |word: &str, what: &str| Fail::new("names.isa", n + 1, word, what);
        let line = line.split('#').next().unwrap_or("");
        let words: Vec<&str> = line.split_whitespace().collect();
        let [kind, target, entries @ ..] = &words[..] else { continue };
        let list = lists.entry((kind.to_string(), target.to_string())).or_default();
        for e in entries {
            let (id, name) = e.split_once('=').ok_or_else(|| at(e, "expected id=NAME"))?;
            list.push((id.parse().map_err(|_| at(id, "expected a number"))?, name.to_string()));
        }
    }
    for kind in ["hwreg", "msg", "format", "dfmt", "nfmt"] {
        let _ = writeln!(out, "pub(crate) static NAMES_{}: &[&[(u16, &str)]] = &[", kind.to_uppercase());
        for t in targets {
            let mut chain = Vec::new();
            let mut here = Some(t.clone());
            while let Some(h) = here {
                here = parents.get(&h).cloned().flatten();
                chain.push(h);
            }
            let mut all: BTreeMap<u32, String> = BTreeMap::new();
            for h in chain.iter().rev() {
                for (id, name) in lists.get(&(kind.to_string(), h.clone())).into_iter().flatten() {
                    if name == "-" {
                        all.remove(id);
                    } else {
                        all.insert(*id, name.clone());
                    }
                }
            }
            let _ = writeln!(out, "&{:?},", all.into_iter().collect::<Vec<_>>());
        }
        out.push_str("];\n");
    }
    Ok(())
}
