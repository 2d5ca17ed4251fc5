//! The table generator: `tables/*.isa` to static Rust. Uses the standard library only; a mistake in a table is an error with
//! file, line and column.
//!
//! Each kind of table is a section: `targets.isa` is the section `targets`, the files with rows are all the section `rows`. A
//! file `gfxN.isa` holds what a new generation adds to any of them, under headings like `[targets]` and `[rows]`; there a row
//! of an operation that exists already gives only its new columns.

mod alu;
mod emit;
mod expand;
mod formats;
mod hazards;
mod image;
mod meaning;
mod memory;
mod names;
mod operand;
mod properties;
mod rows;
#[path = "../src/model/schema/mod.rs"]
pub mod schema;
mod targets;
pub mod text;
mod vopd;

use std::collections::{BTreeMap, BTreeSet};
use std::{fs, path::Path};
use text::{Fail, Result, Sources};

/// Files with instruction rows.
const ROWS: &[&str] = &["sop", "smem", "ds", "buffer", "flat", "valu", "vcmp", "matrix", "graphics", "image"];

/// The other files, each a section of its own.
const SECTIONS: &[&str] = &["targets", "formats", "vopd", "properties", "names", "hazards"];

/// What the crate reads.
pub struct Output {
    /// `tables.rs`.
    pub text: String,
    /// `rows.bin`.
    pub rows: Vec<u8>,
}

/// Parents of targets.
pub type Parents = BTreeMap<String, Option<String>>;

/// A target and its ancestors, nearest first.
pub fn chain<'a>(parents: &'a Parents, target: &'a str) -> impl Iterator<Item = &'a str> {
    std::iter::successors(Some(target), |t| parents.get(*t).and_then(|p| p.as_deref()))
}

/// What a map has for a target or its nearest ancestor.
pub fn inherit<'a, T>(map: &'a BTreeMap<String, T>, parents: &Parents, target: &str) -> Option<&'a T> {
    chain(parents, target).find_map(|t| map.get(t))
}

/// The tables of a folder, and the latencies beside it.
pub fn read(folder: &Path) -> Result<(Sources, String)> {
    let text = |name: &str| fs::read_to_string(folder.join(name)).map_err(|e| Fail::file(name, &e.to_string()));
    let mut sources = Sources::default();
    for section in SECTIONS {
        let name = format!("{section}.isa");
        sources.add(section, &name, &text(&name)?);
    }
    for file in ROWS {
        let name = format!("{file}.isa");
        sources.add("rows", &name, &text(&name)?);
    }
    let entries = fs::read_dir(folder).map_err(|e| Fail::file("", &e.to_string()))?;
    let names = entries.filter_map(|e| e.ok()?.file_name().into_string().ok());
    let mut generations: Vec<String> = names.filter(|n| n.starts_with("gfx") && n.ends_with(".isa")).collect();
    generations.sort();
    for name in generations {
        sources.add_generation(&name, &text(&name)?)?;
    }
    Ok((sources, text("../latency/latency.csv")?))
}

/// All that the crate needs of the tables.
pub fn generate(sources: &Sources, latency: &str) -> Result<Output> {
    let mut out = String::new();
    let targets = targets::parse(&sources.lines("targets"))?;
    targets.emit(&mut out)?;
    let all = &targets.list;
    let parents: Parents = all.iter().map(|t| (t.name.clone(), t.parent.clone())).collect();
    let formats = formats::parse(&sources.lines("formats"), &parents)?;
    let table = rows::parse(&sources.lines("rows"), &parents)?;
    let pairs = vopd::parse(&sources.lines("vopd"), &parents)?;
    let mut lists = Vec::new();
    for t in all {
        let cx = expand::Context {
            formats: &formats,
            parents: &parents,
            target: &t.name,
            vop1_base: t.hex("vop1_in_vop3")?,
            true16: t.flag("true16")?,
        };
        let mut list = Vec::new();
        for (op, targets) in &table.targets {
            if let Some(row) = rows::find(targets, &parents, &t.name) {
                list.extend(expand::expand(op, row, &cx)?);
            }
        }
        pairs.expand(&cx, &mut list)?;
        lists.push(list);
    }
    let named = table.targets.keys().cloned();
    let ops: BTreeSet<String> = named.chain(lists.iter().flatten().map(|e| e.op.clone())).collect();
    let ops: Vec<String> = ops.into_iter().collect();
    // operands first, then modifiers: `Shape::operands` and `Shape::modifiers` are parts of one list
    for e in lists.iter_mut().flatten() {
        e.shape.operands.sort_by_key(|o| !o.role.is_shown());
    }
    meaning::emit(&ops, &table.does, &mut out);
    let names: Vec<String> = all.iter().map(|t| t.name.clone()).collect();
    let rows = emit::emit(&emit::Tables { targets: lists, ops: ops.clone() }, &mut out)?;
    properties::parse(&sources.lines("properties"), latency, &ops)?.emit(&ops, &names, &parents, &mut out)?;
    names::emit(&sources.lines("names"), &names, &parents, &mut out)?;
    hazards::emit(&sources.lines("hazards"), &ops, &names, &parents, &mut out)?;
    Ok(Output { text: out, rows })
}
