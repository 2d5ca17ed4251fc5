//! `barewave isa`: reads the instruction tables.

use super::{Failure, Result};
use crate::emu;
use barewave_isa::{Class, Flags, Op, OpInfo, Slot, Target};
use serde::Serialize;

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
    },
    /// Counts, per target, instructions that can be encoded and those the emulated device executes. Compute instructions
    /// are all but images, ray tracing, interpolation, export and ordered counters (property `graphics` of the tables).
    Coverage {
        /// Machine-readable output.
        #[arg(long)]
        json: bool,
    },
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
}

pub fn run(command: &Command) -> Result {
    match command {
        Command::Targets { json } => targets(*json),
        Command::List { target, filter, json } => list(target, filter, *json),
        Command::Show { instruction, target, json } => show(instruction, target.as_deref(), *json),
        Command::Diff { from, to } => diff(from, to),
        Command::Coverage { json } => coverage(*json),
    }
}

/// All instructions of a target.
fn ops(target: Target) -> impl Iterator<Item = &'static OpInfo> {
    (0..Op::COUNT).filter_map(move |n| target.op(Op(n as u16)))
}

fn print_json(value: &impl Serialize) -> Result {
    println!("{}", serde_json::to_string_pretty(value)?);
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
        products: &'static [&'static str],
    }
    let rows: Vec<Row> = Target::all()
        .map(|t| t.info())
        .map(|i| Row {
            name: i.name,
            code_name: i.code_name,
            wave_size: i.wave_size,
            vgprs: i.vgprs_per_simd,
            lds_bytes: i.lds_bytes,
            products: i.products,
        })
        .collect();
    if json {
        return print_json(&rows);
    }
    println!("{:8} {:10} {:7} {:>10} {:>8}  products", "target", "code name", "wave", "VGPRs/SIMD", "LDS");
    for r in rows {
        let products = r.products.join(" ");
        println!(
            "{:8} {:10} wave{:<3} {:>10} {:>8}  {products}",
            r.name, r.code_name, r.wave_size, r.vgprs, r.lds_bytes
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

fn show(name: &str, target: Option<&str>, json: bool) -> Result {
    let only = target.map(Target::parse).transpose().map_err(Failure::usage)?;
    let found = |t: Target| ops(t).find(|i| i.name == name).map(|i| i.op);
    let op = Op::by_name(name).or_else(|| Target::all().find_map(found));
    let op = op.ok_or_else(|| {
        Failure::new(format!("no target has an instruction '{name}'; `barewave isa list` names them"))
    })?;
    let rows: Vec<Row> =
        Target::all().filter(|t| only.is_none_or(|o| o == *t)).filter_map(|t| t.op(op).map(|i| row(t, i))).collect();
    if rows.is_empty() {
        return Err(Failure::new(format!("{} has no {name}", only.map_or("no target", |t| t.info().name))));
    }
    if json {
        return print_json(&rows);
    }
    println!("{}", op.name());
    for r in rows {
        println!("  {:8} {} {}", r.target, r.name, r.operands);
        let cycles = format!("{}, latency {} cycles, busy {}", r.pipe, r.latency, r.busy);
        println!("           {cycles}{}", if r.emulated { ", emulated" } else { "" });
        for (what, list) in [("counts on", &r.counters), ("also reads", &r.reads), ("also writes", &r.writes)] {
            if !list.is_empty() {
                println!("           {what} {}", list.join(", "));
            }
        }
        if !r.properties.is_empty() {
            println!("           {}", r.properties.join(", "));
        }
    }
    Ok(())
}

fn row(target: Target, i: &'static OpInfo) -> Row {
    let slots = |list: &[Slot]| list.iter().map(operand).collect::<Vec<_>>().join(", ");
    let dsts = slots(i.dsts);
    let operands = if dsts.is_empty() { slots(i.srcs) } else { format!("{dsts} <- {}", slots(i.srcs)) };
    Row {
        target: target.info().name,
        name: i.name,
        operands,
        pipe: format!("{:?}", i.pipe).to_uppercase(),
        latency: i.latency,
        busy: i.busy,
        counters: i.counters.iter().map(|c| format!("{c:?}").to_lowercase()).collect(),
        reads: i.reads.iter().map(|r| format!("{r:?}")).collect(),
        writes: i.writes.iter().map(|r| format!("{r:?}")).collect(),
        properties: properties(i.flags),
        memory_bytes: i.mem_bytes,
        emulated: emu::implements(target, i.op),
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
    let all = [
        (Flags::LOAD, "load"),
        (Flags::STORE, "store"),
        (Flags::ATOMIC, "atomic"),
        (Flags::READS_EXEC, "masked by exec"),
        (Flags::COMMUTATIVE, "commutative"),
        (Flags::TRANS, "transcendental"),
        (Flags::PACKED, "packed"),
        (Flags::DOT, "dot product"),
        (Flags::CROSS_LANE, "reads other lanes"),
        (Flags::MATRIX, "matrix"),
        (Flags::BRANCH, "branch"),
        (Flags::BARRIER, "barrier"),
        (Flags::SIDE_EFFECTS, "side effects"),
        (Flags::OUT_OF_ORDER, "completes out of order"),
        (Flags::DUAL, "dual issue"),
        (Flags::GRAPHICS, "graphics only"),
    ];
    all.iter().filter(|(x, _)| f.has(*x)).map(|(_, n)| *n).collect()
}

fn diff(from: &str, to: &str) -> Result {
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
    for (what, p, q) in facts.iter().filter(|f| f.1 != f.2) {
        println!("~ {what}: {p} -> {q}");
    }
    for n in 0..Op::COUNT {
        let op = Op(n as u16);
        match (a.op(op), b.op(op)) {
            (Some(i), None) => println!("- {}", i.name),
            (None, Some(i)) => println!("+ {}", i.name),
            (Some(i), Some(j)) if i.name != j.name => println!("= {} -> {}", i.name, j.name),
            (Some(i), Some(j)) if (i.latency, i.busy) != (j.latency, j.busy) => {
                println!("~ {}: latency {} -> {}, busy {} -> {}", i.name, i.latency, j.latency, i.busy, j.busy);
            }
            _ => {}
        }
    }
    Ok(())
}

fn coverage(json: bool) -> Result {
    #[derive(Serialize)]
    struct Coverage {
        target: &'static str,
        encodable: usize,
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
    println!("{:8} {:>10} {:>10} {:>10} {:>10}", "target", "encodable", "emulated", "compute", "emulated");
    for r in rows {
        let percent = 100.0 * r.compute_emulated as f64 / r.compute.max(1) as f64;
        // Rounded down: 100% means all.
        let percent = (percent * 10.0).floor() / 10.0;
        let (t, n, e, c, ce) = (r.target, r.encodable, r.emulated, r.compute, r.compute_emulated);
        println!("{t:8} {n:>10} {e:>10} {c:>10} {ce:>10} {percent:>6}%");
    }
    Ok(())
}
