//! `barewave isa`: reads the instruction tables.

use super::{Failure, Result};
use barewave::emu;
use barewave::passes::selectable;
use barewave_isa::{Class, Flags, Op, OpInfo, Slot, Target};
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Reads the instruction tables.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Lists the targets. Example: barewave isa targets
    Targets {
        /// Machine-readable output.
        #[arg(long)]
        json: bool,
    },
    /// Lists the instructions of a target. Example: barewave isa list gfx942 --filter mfma
    List {
        /// Target (gfx942, mi300x, cdna3).
        target: String,
        /// Only names that contain this text.
        #[arg(long, default_value = "")]
        filter: String,
        /// Machine-readable output.
        #[arg(long)]
        json: bool,
    },
    /// Shows an instruction on every target that has it. Example: barewave isa show v_fma_f32
    Show {
        /// Name on any target.
        instruction: String,
        /// Only this target.
        #[arg(long)]
        target: Option<String>,
        /// Machine-readable output.
        #[arg(long)]
        json: bool,
    },
    /// Shows what differs between two targets. Example: barewave isa diff gfx90a gfx942
    Diff {
        /// First target.
        from: String,
        /// Second target.
        to: String,
        /// Machine-readable output.
        #[arg(long)]
        json: bool,
    },
    /// Latencies of the tables.
    #[command(subcommand)]
    Latency(Latency),
    /// Prints a TextMate grammar of assembly for highlighters. Example: barewave isa grammar --target gfx942
    Grammar {
        /// Only names of this target.
        #[arg(long)]
        target: Option<String>,
    },
    /// Counts, per target, instructions that can be encoded, that the compiler selects, and that the emulated device
    /// executes; the last columns leave out graphics. Compute instructions
    /// are all but images, ray tracing, interpolation, export and ordered counters (property `graphics` of the tables).
    Coverage {
        /// Machine-readable output.
        #[arg(long)]
        json: bool,
    },
}

/// Latencies of the tables.
#[derive(clap::Subcommand)]
pub enum Latency {
    /// Shows what a file in the form of isa/latency/latency.csv, such as `barewave ubench --all -o FILE` writes, would change
    /// in the tables. Example: barewave isa latency import mycard.csv
    Import {
        /// The file.
        file: std::path::PathBuf,
        /// Machine-readable output.
        #[arg(long)]
        json: bool,
    },
}

/// `latency/busy tag`.
fn cycles(cell: &str) -> Option<(u16, u16, &str)> {
    let (numbers, tag) = cell.trim().split_once(' ')?;
    let (latency, busy) = numbers.split_once('/')?;
    let known = ["m", "d", "i"].contains(&tag);
    Some((latency.parse().ok()?, busy.parse().ok()?, tag)).filter(|_| known)
}

/// Compares a file of latencies with the tables.
fn import(path: &std::path::Path, json: bool) -> Result {
    let name = path.display();
    let text = barewave::mapped::read_text(path).map_err(|e| Failure::new(format!("cannot read {name}: {e}")))?;
    let mut lines = text.lines().enumerate().filter(|(_, l)| !l.starts_with('#') && !l.trim().is_empty());
    let Some((_, head)) = lines.next() else { return Err(Failure::new(format!("{name} is empty"))) };
    let Some(targets) = head.strip_prefix("class,") else {
        return Err(Failure::new(format!("{name}: the first line must be `class,TARGET,...`")));
    };
    let targets: Vec<Target> =
        targets.split(',').map(Target::parse).collect::<std::result::Result<_, _>>().map_err(Failure::new)?;
    let mut changes = Vec::new();
    for (n, line) in lines {
        let at = |what: String| Failure::new(format!("{name}, line {}: {what}", n + 1));
        let cells: Vec<&str> = line.split(',').collect();
        if cells.len() != targets.len() + 1 {
            return Err(at(format!("{} cells, the header has {}", cells.len(), targets.len() + 1)));
        }
        for (t, cell) in targets.iter().zip(&cells[1..]) {
            let (latency, busy, tag) = cycles(cell).ok_or_else(|| at(format!("'{cell}' is not `latency/busy tag`")))?;
            let member = ops(*t).find(|i| t.latency_class(i.op).0 == cells[0]);
            let Some(member) = member else {
                return Err(at(format!("{t} has no instruction of class '{}'", cells[0])));
            };
            let evidence = t.latency_class(member.op).1;
            if (member.latency, member.busy) != (latency, busy) {
                changes.push((cells[0].to_string(), *t, [member.latency, member.busy], evidence, [latency, busy], tag));
            }
        }
    }
    if json {
        let list: Vec<_> = changes
            .iter()
            .map(|(class, t, old, evidence, new, tag)| {
                json!({
                    "class": class, "target": t.info().name, "from": old, "evidence": format!("{evidence:?}"), "to": new, "tag": tag,
                })
            })
            .collect();
        println!("{:#}", json!(list));
        return Ok(());
    }
    for (class, t, old, evidence, new, tag) in &changes {
        println!("{t} {class:10} {}/{} ({evidence:?}) -> {}/{} {tag}", old[0], old[1], new[0], new[1]);
    }
    println!("{} cells would change", changes.len());
    Ok(())
}

/// An instruction of a target.
#[derive(Serialize)]
struct Row {
    target: &'static str,
    name: &'static str,
    operands: String,
    pipe: String,
    latency: u16,
    busy: u16,
    counters: Vec<String>,
    reads: Vec<String>,
    writes: Vec<String>,
    properties: Vec<&'static str>,
    memory_bytes: u8,
    emulated: bool,
    selectable: bool,
}

pub fn run(command: &Command) -> Result {
    match command {
        Command::Targets { json } => targets(*json),
        Command::List { target, filter, json } => list(target, filter, *json),
        Command::Show { instruction, target, json } => show(instruction, target.as_deref(), *json),
        Command::Diff { from, to, json } => diff(from, to, *json),
        Command::Coverage { json } => coverage(*json),
        Command::Grammar { target } => {
            let only = target.as_deref().map(Target::parse).transpose().map_err(Failure::usage)?;
            print_json(&super::editor::grammar::grammar(only))
        }
        Command::Latency(Latency::Import { file, json }) => import(file, *json),
    }
}

/// All instructions of a target.
pub fn ops(target: Target) -> impl Iterator<Item = &'static OpInfo> {
    barewave_isa::operations(target).into_iter().filter_map(move |op| target.op(op))
}

fn print_json(value: &impl Serialize) -> Result {
    println!("{}", crate::terminal::json(&serde_json::to_string_pretty(value)?));
    Ok(())
}

fn targets(json: bool) -> Result {
    #[derive(Serialize)]
    struct Row {
        name: &'static str,
        code_name: &'static str,
        wave_size: u32,
        vgprs: u32,
        lds_bytes: u32,
        compute_units: u32,
        products: &'static [&'static str],
        /// Of products that are not like the largest one: by the names of `isa/latency/chips.csv`.
        product_facts: BTreeMap<&'static str, BTreeMap<&'static str, f64>>,
    }
    let rows: Vec<Row> = Target::all()
        .map(|t| t.info())
        .map(|i| Row {
            name: i.name,
            code_name: i.code_name,
            wave_size: i.wave_size,
            vgprs: i.vgprs_per_simd,
            lds_bytes: i.lds_bytes,
            compute_units: i.cus,
            products: i.products,
            product_facts: (i.products.iter().copied().zip(i.product_facts.iter()))
                .filter(|(_, facts)| !facts.is_empty())
                .map(|(name, facts)| (name, facts.iter().copied().collect()))
                .collect(),
        })
        .collect();
    if json {
        return print_json(&rows);
    }
    println!("{:8} {:10} {:7} {:>10} {:>8} {:>5}  products", "target", "code name", "wave", "VGPRs/SIMD", "LDS", "CUs");
    for r in rows {
        let units = |name: &str| r.product_facts.get(name)?.get("cus").filter(|n| **n != f64::from(r.compute_units));
        let product = |name: &&str| units(name).map_or(name.to_string(), |n| format!("{name}({n} CUs)"));
        let products: Vec<String> = r.products.iter().map(product).collect();
        println!(
            "{:8} {:10} wave{:<3} {:>10} {:>8} {:>5}  {}",
            r.name,
            r.code_name,
            r.wave_size,
            r.vgprs,
            r.lds_bytes,
            r.compute_units,
            products.join(" ")
        );
    }
    Ok(())
}

fn list(target: &str, filter: &str, json: bool) -> Result {
    let target = Target::parse(target).map_err(Failure::usage)?;
    let rows: Vec<Row> = ops(target).filter(|i| i.name.contains(filter)).map(|i| row(target, i)).collect();
    if rows.is_empty() {
        return Err(Failure::new(format!("no instruction of {} contains '{filter}'", target.info().name)));
    }
    if json {
        return print_json(&rows);
    }
    for r in &rows {
        println!("{:36} {:7} {}", r.name, r.pipe, r.operands);
    }
    eprintln!("{} instructions", rows.len());
    Ok(())
}

/// The instruction of a name, which may end in the name of an encoding (`v_add_f32_e32`): as a target has it, or any.
pub fn op_of(name: &str, target: Option<Target>) -> Option<Op> {
    const ENCODINGS: [&str; 5] = ["_e32", "_e64", "_dpp", "_dpp8", "_sdwa"];
    let on = |t: Target| ops(t).find(|i| i.name == name).map(|i| i.op);
    let found = target.and_then(on).or_else(|| Op::by_name(name)).or_else(|| Target::all().find_map(on));
    let without = || ENCODINGS.iter().find_map(|e| name.strip_suffix(e)).and_then(|name| op_of(name, target));
    found.or_else(without)
}

fn show(name: &str, target: Option<&str>, json: bool) -> Result {
    let only = target.map(Target::parse).transpose().map_err(Failure::usage)?;
    let op = op_of(name, None).ok_or_else(|| {
        let near: Vec<&str> = barewave_isa::find(name).iter().take(8).map(|op| op.name()).collect();
        let near = if near.is_empty() { String::new() } else { format!("; there is {}", near.join(", ")) };
        Failure::new(format!("no target has an instruction '{name}'{near}; `barewave isa list` names them"))
    })?;
    let rows = rows(op, only);
    if rows.is_empty() {
        return Err(Failure::new(format!("{} has no {name}", only.map_or("no target", |t| t.info().name))));
    }
    if json {
        return print_json(&rows);
    }
    print!("{}", shown(op, only));
    Ok(())
}

/// An instruction on every target that has it, or on one.
fn rows(op: Op, only: Option<Target>) -> Vec<Row> {
    let targets = Target::all().filter(|t| only.is_none_or(|o| o == *t));
    targets.filter_map(|t| t.op(op).map(|i| row(t, i))).collect()
}

/// All that is known of an instruction, as text.
pub fn shown(op: Op, only: Option<Target>) -> String {
    let rows = rows(op, only);
    let mut out = barewave_isa::page(op, only);
    let names: Vec<&str> = rows.iter().filter(|r| r.emulated).map(|r| r.target).collect();
    let _ = writeln!(out, "\nemulated on: {}", if names.is_empty() { "no target".into() } else { names.join(" ") });
    let names: Vec<&str> = rows.iter().filter(|r| r.selectable).map(|r| r.target).collect();
    if !names.is_empty() {
        let _ = writeln!(out, "selected by the compiler on: {}", names.join(" "));
    }
    // Targets that place elements alike share a paragraph.
    let mut layouts: Vec<(String, Vec<&str>)> = Vec::new();
    for t in Target::all().filter(|t| rows.iter().any(|r| r.target == t.info().name)) {
        let Some(text) = barewave_isa::matrix::describe(t, op) else { continue };
        match layouts.iter_mut().find(|l| l.0 == text) {
            Some(l) => l.1.push(t.info().name),
            None => layouts.push((text, vec![t.info().name])),
        }
    }
    for (text, names) in layouts {
        let _ = writeln!(out, "\nlane layout on {}:\n{text}", names.join(" "));
    }
    out
}

/// What an instruction writes and reads.
pub fn operands(i: &OpInfo) -> String {
    let slots = |list: &[Slot]| list.iter().map(operand).collect::<Vec<_>>().join(", ");
    let dsts = slots(i.dsts);
    if dsts.is_empty() { slots(i.srcs) } else { format!("{dsts} <- {}", slots(i.srcs)) }
}

fn row(target: Target, i: &'static OpInfo) -> Row {
    Row {
        target: target.info().name,
        name: i.name,
        operands: operands(i),
        pipe: format!("{:?}", i.pipe).to_uppercase(),
        latency: i.latency,
        busy: i.busy,
        counters: i.counters.iter().map(|c| format!("{c:?}").to_lowercase()).collect(),
        reads: i.reads.iter().map(|r| format!("{r:?}")).collect(),
        writes: i.writes.iter().map(|r| format!("{r:?}")).collect(),
        properties: properties(i.flags),
        memory_bytes: i.mem_bytes,
        emulated: emu::implements(target, i.op),
        selectable: selectable(target, i.op),
    }
}

/// `src0:f32(v s #)`: name, type, and what may stand there (v VGPR, a AGPR, s SGPR, # constant).
fn operand(s: &Slot) -> String {
    let kinds = [(Class::VGPR, 'v'), (Class::AGPR, 'a'), (Class::SGPR, 's'), (Class::INLINE, '#'), (Class::OFF, '-')];
    let what: String = kinds.iter().filter(|(c, _)| s.class.contains(*c)).map(|(_, k)| *k).collect();
    let width = if s.dwords() > 1 { format!("x{}", s.dwords()) } else { String::new() };
    format!("{}:{}{width}({what})", s.name, format!("{:?}", s.ty).to_lowercase())
}

fn properties(f: Flags) -> Vec<&'static str> {
    Flags::NAMES.iter().filter(|(flag, _)| f.has(*flag)).map(|(_, name)| *name).collect()
}

fn diff(from: &str, to: &str, json: bool) -> Result {
    let (a, b) = (Target::parse(from).map_err(Failure::usage)?, Target::parse(to).map_err(Failure::usage)?);
    let (x, y) = (a.info(), b.info());
    let facts = [
        ("wave size", x.wave_size, y.wave_size),
        ("VGPRs per SIMD lane", x.vgprs_per_simd, y.vgprs_per_simd),
        ("AGPRs", x.max_agprs, y.max_agprs),
        ("SGPRs", x.max_sgprs, y.max_sgprs),
        ("waves per SIMD", x.max_waves, y.max_waves),
        ("LDS bytes", x.lds_bytes, y.lds_bytes),
    ];
    let d = barewave_isa::difference(a, b);
    let name = |t: Target, op: Op| t.op(op).map_or(op.name(), |i| i.name);
    if json {
        let facts = facts.iter().filter(|f| f.1 != f.2).map(|f| json!({ "what": f.0, "from": f.1, "to": f.2 }));
        let retimed = ops(b).filter_map(|i| {
            let old = a.op(i.op).filter(|old| (old.latency, old.busy) != (i.latency, i.busy))?;
            let (from, to) = ([old.latency, old.busy], [i.latency, i.busy]);
            Some(json!({ "name": i.name, "latency": [from[0], to[0]], "busy": [from[1], to[1]] }))
        });
        let all = json!({
            "from": x.name, "to": y.name,
            "facts": facts.collect::<Vec<_>>(),
            "removed": d.removed.iter().map(|op| name(a, *op)).collect::<Vec<_>>(),
            "added": d.added.iter().map(|op| name(b, *op)).collect::<Vec<_>>(),
            "renamed": d.renamed.iter().map(|(_, f, t)| json!({ "from": f, "to": t })).collect::<Vec<_>>(),
            "recoded": d.recoded.iter().map(|(op, f, t)| json!({ "name": name(b, *op), "from": f, "to": t }))
                .collect::<Vec<_>>(),
            "retimed": retimed.collect::<Vec<_>>(),
        });
        println!("{all:#}");
        return Ok(());
    }
    for (what, p, q) in facts.iter().filter(|f| f.1 != f.2) {
        println!("~ {what}: {p} -> {q}");
    }
    d.removed.iter().for_each(|op| println!("- {}", name(a, *op)));
    d.added.iter().for_each(|op| println!("+ {}", name(b, *op)));
    d.renamed.iter().for_each(|(_, old, new)| println!("= {old} -> {new}"));
    for (op, old, new) in &d.recoded {
        let or_none = |s: &str| if s.is_empty() { "none".to_string() } else { s.to_string() };
        println!("# {}: {} -> {}", name(b, *op), or_none(old), or_none(new));
    }
    for i in ops(b) {
        if let Some(old) = a.op(i.op).filter(|old| (old.latency, old.busy) != (i.latency, i.busy)) {
            println!("~ {}: latency {} -> {}, busy {} -> {}", i.name, old.latency, i.latency, old.busy, i.busy);
        }
    }
    eprintln!(
        "{} removed (-), {} added (+), {} renamed (=), {} encoded otherwise (#)",
        d.removed.len(),
        d.added.len(),
        d.renamed.len(),
        d.recoded.len()
    );
    Ok(())
}

fn coverage(json: bool) -> Result {
    #[derive(Serialize)]
    struct Coverage {
        target: &'static str,
        encodable: usize,
        selectable: usize,
        emulated: usize,
        compute: usize,
        compute_emulated: usize,
        missing: Vec<&'static str>,
    }
    let rows: Vec<Coverage> = Target::all()
        .map(|t| {
            let emulated = |i: &&OpInfo| emu::implements(t, i.op);
            let compute = |i: &&OpInfo| !i.flags.has(Flags::GRAPHICS);
            Coverage {
                target: t.info().name,
                encodable: ops(t).count(),
                selectable: ops(t).filter(|i| selectable(t, i.op)).count(),
                emulated: ops(t).filter(emulated).count(),
                compute: ops(t).filter(compute).count(),
                compute_emulated: ops(t).filter(compute).filter(emulated).count(),
                missing: ops(t).filter(compute).filter(|i| !emulated(i)).map(|i| i.name).collect(),
            }
        })
        .collect();
    if json {
        return print_json(&rows);
    }
    println!(
        "{:8} {:>10} {:>10} {:>10} {:>10} {:>10}",
        "target", "encodable", "selectable", "emulated", "compute", "emulated"
    );
    for r in rows {
        let percent = 100.0 * r.compute_emulated as f64 / r.compute.max(1) as f64;
        // Rounded down: 100% means all.
        let percent = (percent * 10.0).floor() / 10.0;
        let (t, n, s, e, c, ce) = (r.target, r.encodable, r.selectable, r.emulated, r.compute, r.compute_emulated);
        println!("{t:8} {n:>10} {s:>10} {e:>10} {c:>10} {ce:>10} {percent:>6}%");
    }
    Ok(())
}
