//! `barewave compile`: an ONNX model becomes one ELF file with code, launch plan and weights.

use super::{Failure, Result, stats};
use barewave::codeobj::Abi;
use barewave::compile::KernelCache;
use barewave::graph::fused::FusedGraph;
use barewave::graph::{self, Options};
use barewave::onnx::Model;
use barewave::passes::listing::listing;
use barewave::{Compiled, Compiler};
use barewave_isa::Target;
use clap::ValueEnum;
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
    /// Extent of a symbolic dimension, as NAME=N.
    #[arg(long = "dim", value_name = "NAME=N")]
    dims: Vec<String>,
    /// What to write: the code object, or an intermediate form as text to standard output.
    #[arg(long, value_enum, default_value = "code")]
    emit: Emit,
    /// Code object version.
    #[arg(long, value_parser = ["4", "5", "6"], default_value = "5")]
    code_object_version: String,
    /// Print a table of the kernels.
    #[arg(long)]
    stats: bool,
    /// Say what is missing to compile the model, all at once, and compile nothing: operators, types and attributes with
    /// reason, count and first node. Fails when something is.
    #[arg(long, conflicts_with_all = ["stats", "output", "emit"])]
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

/// Parses `NAME=N` arguments.
pub fn options(dims: &[String]) -> Result<Options> {
    let mut options = Options::default();
    for d in dims {
        let bad = || Failure::usage(format!("--dim {d}: expected NAME=N with a positive number N"));
        let (name, n) = d.split_once('=').ok_or_else(bad)?;
        let n: usize = n.parse().ok().filter(|n| *n > 0).ok_or_else(bad)?;
        options.dims.insert(name.to_string(), n);
    }
    Ok(options)
}

/// Reads a model and fuses its graph.
pub fn load(model: &Path, options: &Options) -> Result<FusedGraph> {
    let model = Model::load(model)?;
    Ok(graph::fuse(&model, options)?)
}

pub fn run(args: &Args) -> Result {
    let target = Target::parse(&args.target).map_err(Failure::usage)?;
    if args.json && !args.stats && !args.check {
        return Err(Failure::usage("--json goes with --stats or --check"));
    }
    if args.check {
        return check(args, target);
    }
    let start = Instant::now();
    let graph = load(&args.model, &options(&args.dims)?)?;
    let read = start.elapsed();
    if args.emit == Emit::Graph {
        print!("{graph}");
        return Ok(());
    }
    let keep_ir = matches!(args.emit, Emit::Asm | Emit::Mir);
    let cache = Arc::new(KernelCache::of_user());
    let program = Compiler::new(target, barewave::Options { cache, keep_ir }).compile_graph(&graph)?;
    let compiled = start.elapsed();
    match args.emit {
        Emit::Code => write_code(args, &program)?,
        Emit::Mir => program.ir().iter().for_each(|k| println!("{}", k.source)),
        Emit::Plan => println!("{}", serde_json::to_string_pretty(program.plan())?),
        Emit::Asm => {
            println!("\t.amdgcn_target \"amdgcn-amd-amdhsa--{}\"\n\t.text", target.info().name);
            program.ir().iter().for_each(|k| print!("{}", listing(&k.machine)));
        }
        Emit::Graph => unreachable!("handled above"),
    }
    if args.stats && args.json {
        println!("{}", serde_json::to_string_pretty(program.stats())?);
    } else if args.stats {
        stats::print(&program);
    }
    eprintln!(
        "{}: {} launches of {} kernels for {}, graph {:.1} ms, code {:.1} ms",
        args.model.display(),
        program.plan().launches.len(),
        program.stats().len(),
        program.plan().target,
        read.as_secs_f64() * 1e3,
        (compiled - read).as_secs_f64() * 1e3
    );
    Ok(())
}

/// Reports what becomes of each node.
fn check(args: &Args, target: Target) -> Result {
    let model = Model::load(&args.model)?;
    let support = Compiler::new(target, barewave::Options::default()).supports(&model, &options(&args.dims)?)?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&support)?);
    } else {
        println!("{support}");
    }
    if support.is_complete() {
        return Ok(());
    }
    Err(Failure::new(format!("{} does not compile for {}", args.model.display(), target.info().name)))
}

fn write_code(args: &Args, program: &Compiled) -> Result {
    let path = args.output.clone().unwrap_or_else(|| args.model.with_extension("hsaco"));
    let abi = match args.code_object_version.as_str() {
        "4" => Abi::V4,
        "6" => Abi::V6,
        _ => Abi::V5,
    };
    Ok(program.save(&path, abi)?)
}
