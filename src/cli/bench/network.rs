//! A whole model, launch by launch.

use super::kernels::{Total, align, failures, json_of, print_choice, total};
use crate::compile::{Precision, load};
use crate::cycles::{self, Launched};
use crate::tune::Tune;
use crate::{Failure, Result};
use barewave::kernels::{Candidate, candidates, joined};
use barewave::{Compiled, Compiler};
use barewave_isa::Target;
use barewave_timing::Chip;
use comfy_table::{Table, presets};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Models a whole model, launch by launch.
///
/// Tables of measured times hold single products and convolutions: those of a model go beside them one by one, with bench gemm and
/// bench conv.
#[derive(clap::Args)]
pub struct Args {
    /// ONNX file, or a model that `barewave compile` wrote.
    model: PathBuf,
    /// Target (needed for an ONNX file).
    #[arg(long)]
    target: Option<String>,
    /// Extent of a symbolic dimension, as NAME=N.
    #[arg(long = "dim", value_name = "NAME=N")]
    dims: Vec<String>,
    /// File with the names of symbolic dimensions in its first line, and their extents in each further one: the model is modelled for each.
    #[arg(long, value_name = "CSV")]
    shapes: Option<PathBuf>,
    /// Another model, ONNX or compiled, to model for the same target beside this one: before a change, say, or compiled with --tune.
    #[arg(long, value_name = "FILE", conflicts_with = "shapes")]
    against: Option<PathBuf>,
    /// Refused, with what to use instead.
    #[arg(long, value_name = "CSV", hide = true)]
    measured: Option<PathBuf>,
    /// Compute 32-bit floats of an ONNX file in this type, weights included; inputs and outputs stay what they are.
    #[arg(long, value_enum)]
    dtype: Option<Precision>,
    #[command(flatten)]
    tune: Tune,
    /// With outputs in the memory of inputs where they may lie there, as caches do while a model is served: launches that would copy them are left out.
    #[arg(long)]
    in_place: bool,
    /// Every launch in order: what bounds it, where its time goes, and the tiles that its estimate puts next.
    #[arg(long)]
    explain: bool,
    /// Machine-readable output.
    #[arg(long)]
    json: bool,
}

/// Candidates by step, of products and convolutions; known of ONNX files only.
type Considered = BTreeMap<String, Vec<Candidate>>;

/// A model in a file, compiled, and what was considered for it.
fn compiled(args: &Args, path: &Path, target: Option<Target>, dims: &[String]) -> Result<(Compiled, Considered)> {
    let file = path.display();
    let bytes = barewave::mapped::read_file(path).map_err(|e| Failure::new(format!("cannot read {file}: {e}")))?;
    if bytes.starts_with(b"\x7fELF") {
        let compiled = Compiled::from_bytes(bytes.into(), path)?;
        if let Some(other) = target.filter(|t| *t != compiled.target()) {
            let own = compiled.target();
            return Err(Failure::usage(format!("{file} was compiled for {own}, not for {other}")));
        }
        return Ok((compiled, Considered::new()));
    }
    let target = target.ok_or_else(|| Failure::usage("an ONNX file needs --target"))?;
    let model = load(path, args.dtype)?;
    let (tuning, shapes) = (args.tune.read()?, crate::compile::one(dims)?);
    let compiler = Compiler::new(target, barewave::Options { tuning: tuning.clone(), ..barewave::Options::default() });
    let compiled = compiler.compile(&model, &shapes)?;
    let mut considered = Considered::new();
    if args.explain {
        let graph = compiler.fuse(&compiler.settle(&model), &shapes)?;
        let graph = joined(&graph, target, &tuning).unwrap_or(graph);
        let of =
            |s| candidates(&graph, s, target, &tuning).filter(|c| !c.by_lines).map(|c| (s.name.clone(), c.candidates));
        considered.extend(graph.steps.iter().filter_map(of));
    }
    Ok((compiled, considered))
}

/// The lines of a file of shapes, each as `--dim` has it: names in the first line, an extent for each in the others.
fn dims_of(path: &Path) -> Result<Vec<Vec<String>>> {
    let text =
        barewave::mapped::read_text(path).map_err(|e| Failure::new(format!("cannot read {}: {e}", path.display())))?;
    let cells = |l: &str| l.split(',').map(|c| c.trim().to_string()).collect::<Vec<_>>();
    let mut lines = text.lines().zip(1..).filter(|(l, _)| !l.trim().is_empty() && !l.starts_with('#'));
    let names = lines.next().map(|(l, _)| cells(l)).unwrap_or_default();
    let mut out = Vec::new();
    for (line, number) in lines {
        let extents = cells(line);
        if extents.len() != names.len() || extents.iter().any(|e| e.parse::<usize>().is_err()) {
            let (file, names) = (path.display(), names.join(","));
            return Err(Failure::new(format!("{file}: line {number}: '{line}' has no extent for each of {names}")));
        }
        out.push(names.iter().zip(extents).map(|(n, e)| format!("{n}={e}")).collect());
    }
    if out.is_empty() {
        let form = "names of dimensions in the first line (batch,tokens) and extents in the others (1,128)";
        return Err(Failure::new(format!("{}: no line with extents: write {form}", path.display())));
    }
    Ok(out)
}

/// A model for some shapes, modelled.
struct Run {
    name: String,
    chip: Chip,
    launches: Vec<Launched>,
    considered: Considered,
    total: Total,
    /// Share of the peak, of each launch that for what it multiplies.
    share: f64,
}

fn modelled(args: &Args, path: &Path, target: Option<Target>, dims: &[String]) -> Result<Run> {
    let (compiled, considered) = compiled(args, path, target, dims)?;
    let launches = if args.in_place { cycles::plan_in_place(&compiled, 0)? } else { cycles::plan(&compiled, 0)? };
    let target = compiled.target();
    let chip =
        Chip::of(target).ok_or_else(|| Failure::new(format!("the cycle model knows no chip of target {target}")))?;
    if compiled.plans().len() > 1 {
        eprintln!("note: the first of the {} shapes that the model was compiled for", compiled.plans().len());
    }
    failures(&launches);
    let total = total(&launches);
    let share = cycles::share_of_peak(&launches);
    let name = if dims.is_empty() { compiled.plan().model.clone() } else { dims.join(" ") };
    Ok(Run { name, chip, launches, considered, total, share })
}

fn us(l: &Launched) -> f64 {
    l.modelled.as_ref().map_or(0.0, |m| m.microseconds)
}

/// Runs the command.
pub fn run(args: &Args) -> Result {
    if args.measured.is_some() {
        return Err(Failure::usage(
            "--measured is for bench gemm and bench conv: the tables hold single products and convolutions, no models",
        ));
    }
    let target = args.target.as_deref().map(Target::parse).transpose().map_err(Failure::usage)?;
    let is_compiled = barewave::mapped::read_file(&args.model).is_ok_and(|b| b.starts_with(b"\x7fELF"));
    if is_compiled && (args.tune.given() || args.dtype.is_some() || !args.dims.is_empty() || args.shapes.is_some()) {
        return Err(Failure::usage(
            "--tune, --dtype, --dim and --shapes are for ONNX files: a compiled model's tiles, types and shapes are chosen",
        ));
    }
    let sets = args.shapes.as_deref().map_or_else(|| Ok(vec![Vec::new()]), dims_of)?;
    let of = |set: Vec<String>| modelled(args, &args.model, target, &[&args.dims[..], &set].concat());
    let runs = sets.into_iter().map(of).collect::<Result<Vec<Run>>>()?;
    let beside = |path: &PathBuf| modelled(args, path, Some(runs[0].chip.target), &args.dims);
    let peer = args.against.as_ref().map(beside).transpose()?;
    if args.json {
        let of = |r: &Run| json_of(&r.name, &r.launches, r.share, None);
        let mut all: Vec<Value> = runs.iter().map(of).collect();
        if let Some(p) = &peer {
            all[0]["against"] = of(p);
        }
        let json = if args.shapes.is_some() { Value::Array(all) } else { all.swap_remove(0) };
        println!("{}", crate::terminal::json(&serde_json::to_string_pretty(&json)?));
        return Ok(());
    }
    for r in &runs {
        if args.explain {
            explain(r);
        }
        if args.shapes.is_none() {
            slowest(r, args.explain);
            println!("{}", summary(r));
        }
    }
    if args.shapes.is_some() {
        print(&runs);
    }
    if let Some(p) = &peer {
        println!(
            "\n{}, by the same model:\n{}",
            args.against.as_deref().unwrap_or(Path::new("")).display(),
            summary(p)
        );
        println!("our time over its time: {:.2}", runs[0].total.microseconds / p.total.microseconds.max(1e-9));
    }
    Ok(())
}

/// Every launch in order: what bounds it, where its time goes, what was considered for it.
fn explain(r: &Run) {
    for l in &r.launches {
        if let Ok(m) = &l.modelled {
            println!("{} ({}), {:.1}% of the time", l.kernel, l.step, 100.0 * us(l) / r.total.microseconds.max(1e-9));
            cycles::print(m);
            print_choice(r.considered.get(&l.step).map_or(&[], |c| c));
        }
    }
    println!();
}

/// A table of the slowest launches, or of all.
fn slowest(r: &Run, all: bool) {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(["kernel", "us", "share", "bound", "workgroups", "operators"]);
    let mut order: Vec<&Launched> = r.launches.iter().filter(|l| l.modelled.is_ok()).collect();
    order.sort_by(|a, b| us(b).total_cmp(&us(a)));
    /// Launches in the table where not all are.
    const SHOWN: usize = 12;
    let shown = if all { usize::MAX } else { SHOWN };
    for l in order.iter().take(shown) {
        if let Ok(m) = &l.modelled {
            table.add_row([
                l.kernel.clone(),
                format!("{:.1}", m.microseconds),
                format!("{:.1}%", 100.0 * m.microseconds / r.total.microseconds.max(1e-9)),
                m.bound.name().into(),
                m.workgroups.to_string(),
                crate::page::shortened(&l.step, 60),
            ]);
        }
    }
    align(&mut table, 1..3);
    println!("{table}");
    if order.len() > shown {
        let rest: f64 = order.iter().skip(shown).map(|l| us(l)).sum();
        println!("{} others take {rest:.1} us together (--explain shows them)", order.len() - shown);
    }
}

/// All launches of a model together, in a line.
fn summary(r: &Run) -> String {
    format!(
        "{} launches, {:.1} us{}, {}{:.2} GFLOP, {:.1}% of the peak",
        cycles::launches(&r.launches),
        r.total.microseconds,
        r.chip.note(),
        cycles::again(&r.launches).map_or(String::new(), |us| format!("{us:.1} us right behind another run, ")),
        r.total.flops / 1e9,
        100.0 * r.share
    )
}

/// A table of several shapes.
fn print(runs: &[Run]) {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(["shape", "launches", "us", "us again", "GFLOP", "of peak"]);
    for r in runs {
        table.add_row([
            r.name.clone(),
            cycles::launches(&r.launches).to_string(),
            format!("{:.1}{}", r.total.microseconds, r.chip.note()),
            cycles::again(&r.launches).map_or("-".into(), |us| format!("{us:.1}")),
            format!("{:.2}", r.total.flops / 1e9),
            format!("{:.1}%", 100.0 * r.share),
        ]);
    }
    align(&mut table, 1..6);
    println!("{table}");
}
