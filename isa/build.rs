//! Compiles `tables/*.isa` to static Rust in `OUT_DIR`. Uses the standard library only.

#[path = "build/alu.rs"]
mod alu;
#[path = "build/emit.rs"]
mod emit;
#[path = "build/expand.rs"]
mod expand;
#[path = "build/formats.rs"]
mod formats;
#[path = "build/hazards.rs"]
mod hazards;
#[path = "build/image.rs"]
mod image;
#[path = "build/meaning.rs"]
mod meaning;
#[path = "build/memory.rs"]
mod memory;
#[path = "build/names.rs"]
mod names;
#[path = "build/properties.rs"]
mod properties;
#[path = "build/rows.rs"]
mod rows;
#[path = "src/schema.rs"]
mod schema;
#[path = "build/targets.rs"]
mod targets;
#[path = "build/text.rs"]
mod text;
#[path = "build/vopd.rs"]
mod vopd;

use std::collections::BTreeMap;
use std::{env, fs, path::Path, process};

/// Files with instruction rows.
const ROWS: &[&str] = &[
    "sop.isa",
    "smem.isa",
    "ds.isa",
    "buffer.isa",
    "flat.isa",
    "valu.isa",
    "vcmp.isa",
    "matrix.isa",
    "graphics.isa",
    "image.isa",
];

fn run() -> text::Result<(String, Vec<u8>)> {
    let read = |name: &str| {
        println!("cargo::rerun-if-changed=tables/{name}");
        fs::read_to_string(Path::new("tables").join(name)).map_err(|e| text::Fail::new(name, 0, name, &e.to_string()))
    };
    println!("cargo::rerun-if-changed=build");
    println!("cargo::rerun-if-changed=src/schema.rs");
    let mut out = String::new();
    let targets = targets::parse("targets.isa", &read("targets.isa")?)?;
    targets.emit(&mut out)?;
    let all = &targets.list;
    let parents: BTreeMap<String, Option<String>> = all.iter().map(|t| (t.name.clone(), t.parent.clone())).collect();
    let formats = formats::parse("formats.isa", &read("formats.isa")?)?;
    let mut table = rows::Rows::default();
    for name in ROWS {
        rows::parse(name, &read(name)?, &parents, &mut table)?;
    }
    let mut tables = emit::Tables { targets: Vec::new(), ops: table.targets.keys().cloned().collect() };
    let pairs = vopd::parse(&read("vopd.isa")?)?;
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
        pairs.expand(&t.name, &parents, &mut list);
        tables.targets.push(list);
    }
    let every: std::collections::BTreeSet<String> =
        tables.ops.iter().cloned().chain(tables.targets.iter().flatten().map(|e| e.op.clone())).collect();
    tables.ops = every.into_iter().collect();
    // operands first, then modifiers: `Shape::operands` and `Shape::modifiers` are parts of one list
    for e in tables.targets.iter_mut().flatten() {
        e.shape.operands.sort_by_key(|o| o.role > 1);
    }
    meaning::emit(&tables.ops, &table.does, &mut out);
    let bin = emit::emit(&tables, &mut out);
    let csv = read("../latency/latency.csv")?;
    let names: Vec<String> = all.iter().map(|t| t.name.clone()).collect();
    properties::parse(&read("properties.isa")?, &csv, &tables.ops)?.emit(&tables.ops, &names, &parents, &mut out)?;
    names::emit(&read("names.isa")?, &names, &parents, &mut out)?;
    hazards::emit(&read("hazards.isa")?, &tables.ops, &names, &parents, &mut out)?;
    Ok((out, bin))
}

fn main() {
    match run() {
        Ok((text, bin)) => {
            let dir = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
            fs::write(Path::new(&dir).join("tables.rs"), text).expect("OUT_DIR is writable");
            fs::write(Path::new(&dir).join("rows.bin"), bin).expect("OUT_DIR is writable");
        }
        Err(fail) => {
            eprintln!("error: isa/tables/{fail}");
            process::exit(1);
        }
    }
}
