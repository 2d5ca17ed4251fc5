//! `barewave compile`: an ONNX model becomes one ELF file with code, launch plan and weights.

use super::progress::Progress;
use super::tune::Tune;
use super::{Failure, Result, report, stats};
use barewave::codeobj::Abi;
use barewave::compile::KernelCache;
use barewave::graph::{Note, Options};
use barewave::onnx::Model;
use barewave::passes::listing::listing;
use barewave::runtime::plan::{Launch, Linked};
use barewave::tensor::DType;
use barewave::{Compiled, Compiler};
use barewave_isa::Target;
use clap::ValueEnum;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Compiles a model.
///
/// Example: barewave compile model.onnx --target gfx942 -o model.hsaco --stats
#[derive(clap::Args)]
pub struct Args {
    /// The ONNX file.
    model: PathBuf,
    /// Target: architecture (gfx942), product (mi300x) or code name (cdna3).
    #[arg(long)]
    target: String,
    /// File to write (default: the model's name with .hsaco).
    #[arg(short, long)]
    output: Option<PathBuf>,
    /// Extents of a dimension that the model leaves open, as NAME=N or NAME=N,N,...: the file then serves each of them.
    #[arg(long = "dim", value_name = "NAME=N[,N]")]
    dims: Vec<String>,
    /// Compute 32-bit floats in this type, weights included; inputs and outputs stay what they are.
    #[arg(long, value_enum)]
    dtype: Option<Precision>,
    #[command(flatten)]
    tune: Tune,
    /// What to write: the code object, or an intermediate form as text, to standard output where -o names no file.
    #[arg(long, value_enum, default_value = "code")]
    emit: Emit,
    /// Code object version.
    #[arg(long, value_parser = ["4", "5", "6"], default_value = "5")]
    code_object_version: String,
    /// Print a table of the kernels: size, occupancy, and time by the cycle model.
    #[arg(long)]
    stats: bool,
    /// Write a page (.html) about the machine code: kernels, occupancy, live registers, schedules of hot loops.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Say what is missing to compile the model, all at once, and compile nothing: operators, types and attributes with
    /// reason, count and first node. Fails when something is.
    #[arg(long, conflicts_with_all = ["stats", "output", "emit", "report"])]
    check: bool,
    /// With --stats or --check: machine-readable output.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Emit {
    /// ELF file.
    Code,
    /// Assembly.
    Asm,
    /// Machine IR as the kernels' authors wrote it.
    Mir,
    /// Fused graph.
    Graph,
    /// Launch plan (JSON).
    Plan,
}

/// What 32-bit floats are computed in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Precision {
    /// As they are.
    F32,
    /// IEEE half precision.
    F16,
    /// The upper half of f32.
    Bf16,
}

/// Reads a model, for computing in a type.
pub fn load(path: &Path, dtype: Option<Precision>) -> Result<Model> {
    let model = Model::load(path)?;
    Ok(match dtype {
        None | Some(Precision::F32) => model,
        Some(Precision::F16) => barewave::graph::in_type(&model, DType::F16)?,
        Some(Precision::Bf16) => barewave::graph::in_type(&model, DType::BF16)?,
    })
}

/// A file serves at most as many combinations of extents.
const MOST_SHAPES: usize = 256;

/// Parses `NAME=N,N,...` arguments: all combinations, the last name's extents fastest.
pub fn options(dims: &[String]) -> Result<Vec<Options>> {
    let mut all = vec![Options::default()];
    for d in dims {
        let bad = || Failure::usage(format!("--dim {d}: expected NAME=N or NAME=N,N,... with numbers N"));
        let (name, list) = d.split_once('=').ok_or_else(bad)?;
        let list: Vec<usize> = list.split(',').map(|n| n.parse().map_err(|_| bad())).collect::<Result<_>>()?;
        if all.iter().any(|o| o.dims.contains_key(name)) {
            return Err(Failure::usage(format!("--dim {name} is given twice; write {name}=N,N for several extents")));
        }
        if all.len() * list.len() > MOST_SHAPES {
            return Err(Failure::usage(format!("--dim asks for more than {MOST_SHAPES} combinations of extents")));
        }
        let with = |o: &Options, n: usize| {
            let mut o = o.clone();
            o.dims.insert(name.to_string(), n);
            o
        };
        all = all.iter().flat_map(|o| list.iter().map(|n| with(o, *n)).collect::<Vec<_>>()).collect();
    }
    Ok(all)
}

/// Parses `NAME=N` arguments where there can be one of each only.
pub fn one(dims: &[String]) -> Result<Options> {
    match <[Options; 1]>::try_from(options(dims)?) {
        Ok([options]) => Ok(options),
        Err(_) => Err(Failure::usage("--dim takes one extent for each name here")),
    }
}

/// Tells what the user should know about a model.
pub fn print_notes(notes: &[Note]) {
    notes.iter().for_each(|n| eprintln!("note: {n}"));
}

pub fn run(args: &Args) -> Result {
    let target = Target::parse(&args.target).map_err(Failure::usage)?;
    if args.json && !args.stats && !args.check {
        return Err(Failure::usage("--json goes with --stats or --check"));
    }
    if args.check {
        return check(args, target);
    }
    if let Some(path) = &args.report {
        if path.extension().is_none_or(|e| e != "html") {
            return Err(Failure::usage(format!("--report {}: a file ending in .html is needed", path.display())));
        }
        barewave::output::check(path)?;
    }
    if args.emit == Emit::Code || args.output.is_some() {
        barewave::output::check(&destination(args))?;
    }
    let start = Instant::now();
    let shapes = options(&args.dims)?;
    let keep_ir = matches!(args.emit, Emit::Asm | Emit::Mir);
    let cache = Arc::new(KernelCache::of_user());
    let compiler = Compiler::new(target, barewave::Options { cache, keep_ir, tuning: args.tune.read()? });
    let model = load(&args.model, args.dtype)?;
    let progress = Progress::start("compiling", 0);
    let model = compiler.settle(&model);
    let graphs = shapes.iter().map(|s| compiler.fuse(&model, s)).collect::<std::result::Result<Vec<_>, _>>()?;
    let read = start.elapsed();
    if args.emit == Emit::Graph {
        drop(progress);
        return write_text(args, graphs.iter().map(|g| g.to_string()).collect());
    }
    let program = compiler.compile_graphs(&graphs).map_err(|e| compiler.all_missing(e, &model, &shapes[0]))?;
    drop(progress);
    print_notes(program.notes());
    let compiled = start.elapsed();
    match args.emit {
        Emit::Code => write_code(args, &program)?,
        Emit::Mir => write_text(args, program.ir().iter().map(|k| format!("{}\n", k.source)).collect())?,
        Emit::Plan => {
            let plans = program.plans().iter().map(|plan| Ok(serde_json::to_string_pretty(plan)? + "\n"));
            let plans = plans.collect::<Result<String>>()?;
            write_text(args, crate::terminal::json(&plans))?;
        }
        Emit::Asm => {
            let begin = format!("\t.amdgcn_target \"amdgcn-amd-amdhsa--{}\"\n\t.text\n", target.info().name);
            let kernels = program.ir().iter().map(|k| listing(&k.machine));
            // Code that stands above already, in one kernel.
            let own: Vec<&str> = program.ir().iter().map(|k| &*k.machine.function.name).collect();
            let several = program.plans().iter().flat_map(|p| &p.launches);
            let several = several.filter(|l| l.chain.len() + l.beside.len() > 0 && !own.contains(&&*l.kernel));
            let several: BTreeMap<_, _> = several.map(|l| (&l.kernel, described(l))).collect();
            write_text(args, [begin].into_iter().chain(kernels).chain(several.into_values()).collect())?;
        }
        Emit::Graph => unreachable!("handled above"),
    }
    let wanted = args.stats || args.report.is_some();
    let progress = wanted.then(|| Progress::start("modelling cycles", 0));
    let launches = if wanted { super::cycles::whole(super::cycles::plan(&program, 0)?) } else { Vec::new() };
    drop(progress);
    if let Some(path) = &args.report {
        report::save(path, &program, &launches)?;
    }
    if args.stats {
        let launches = super::cycles::whole(launches);
        if args.json {
            println!("{}", crate::terminal::json(&serde_json::to_string_pretty(&stats::json(&program, &launches)?)?));
        } else {
            stats::print(&program, &launches);
        }
    }
    let launches: Vec<String> = program.plans().iter().map(|p| p.launches.len().to_string()).collect();
    eprintln!(
        "{}: {} launches of {} kernels for {}, graph {:.1} ms, code {:.1} ms",
        args.model.display(),
        launches.join(", "),
        program.kernel_count(),
        program.target().title(),
        read.as_secs_f64() * 1e3,
        (compiled - read).as_secs_f64() * 1e3
    );
    // The process ends: nobody needs what they hold piece by piece.
    std::mem::forget((program, graphs, model, compiler));
    Ok(())
}

/// The steps of a launch that has several, as a comment: those of a level side by side, levels one behind the other.
fn described(l: &Launch) -> String {
    let level = |steps: &[Linked]| steps.iter().map(|s| &*s.step).collect::<Vec<_>>().join(", ");
    let steps = if l.chain.is_empty() { &l.beside } else { &l.chain };
    let levels: Vec<String> = steps.chunk_by(|a, b| a.level == b.level).map(level).collect();
    let how = if levels.len() > 1 { "one behind the other" } else { "side by side" };
    format!("; {}: {} {how}\n", l.kernel, levels.join("; then "))
}

/// Reports what becomes of each node.
fn check(args: &Args, target: Target) -> Result {
    let model = load(&args.model, args.dtype)?;
    let support = Compiler::new(target, barewave::Options::default()).supports(&model, &one(&args.dims)?)?;
    if args.json {
        println!("{}", crate::terminal::json(&serde_json::to_string_pretty(&support)?));
    } else {
        println!("{}", crate::terminal::shortened(&support.to_string()));
    }
    if support.is_complete() {
        return Ok(());
    }
    Err(Failure::new(format!("{} does not compile for {}", args.model.display(), target.info().name)))
}

/// Where the code goes.
fn destination(args: &Args) -> PathBuf {
    args.output.clone().unwrap_or_else(|| args.model.with_extension("hsaco"))
}

/// Writes an intermediate form.
fn write_text(args: &Args, text: String) -> Result {
    let to = args.output.as_deref().unwrap_or(Path::new("-"));
    Ok(barewave::output::write(to, |out| out.write_all(text.as_bytes()))?)
}

fn write_code(args: &Args, program: &Compiled) -> Result {
    let abi = match args.code_object_version.as_str() {
        "4" => Abi::V4,
        "6" => Abi::V6,
        _ => Abi::V5,
    };
    Ok(program.save(&destination(args), abi)?)
}
