//! `barewave run`: compiles a model if needed and runs it.

use super::compile::{load, options};
use super::{Failure, Result};
use barewave::compile::KernelCache;
use barewave::runtime::plan::{Plan, Port};
use barewave::runtime::{Device, DeviceError, Session, open};
use barewave::tensor::{HostTensor, ImageOptions, InputSpec, Wanted, compare, format_top, save, top_k};
use barewave::{Compiled, Compiler};
use barewave_isa::Target;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Runs a model: an ONNX file, or a file that `barewave compile` wrote.
///
/// Example: barewave run examples/digits/digits.onnx --input examples/digits/7.png
#[derive(clap::Args)]
pub struct Args {
    /// ONNX file or compiled model.
    model: PathBuf,
    /// Device: auto (a GPU if there is one), hip or hip:N for a GPU, emu:TARGET for an emulated one.
    #[arg(long, default_value = "auto")]
    device: String,
    /// Input as [NAME=]SPEC: 1x3xf32=0, 1x3xf32=random:7, @x.npy, @all.npz, @x.pb, cat.png. Missing ones are random.
    #[arg(long = "input", value_name = "[NAME=]SPEC")]
    inputs: Vec<String>,
    /// Write an output to [NAME=]FILE (.npy, .npz, .pb, .png).
    #[arg(long = "output", value_name = "[NAME=]FILE")]
    outputs: Vec<String>,
    /// Compare an output with [NAME=]FILE and fail when it differs.
    #[arg(long = "expect", value_name = "[NAME=]FILE")]
    expect: Vec<String>,
    /// Relative tolerance of --expect.
    #[arg(long, default_value_t = 1e-3)]
    rtol: f64,
    /// Absolute tolerance of --expect.
    #[arg(long, default_value_t = 1e-5)]
    atol: f64,
    /// Print the K largest elements of the first output (default: 3 when the model names its classes).
    #[arg(long, value_name = "K")]
    top: Option<usize>,
    /// File with one class name a line.
    #[arg(long)]
    labels: Option<PathBuf>,
    /// Extent of a symbolic dimension, as NAME=N.
    #[arg(long = "dim", value_name = "NAME=N")]
    dims: Vec<String>,
    /// Run N times and print the fastest.
    #[arg(long, default_value_t = 1)]
    repeat: u32,
    /// Check every launch on the emulated device for undefined behaviour (slow).
    #[arg(long)]
    strict: bool,
    /// Print time and instructions of each launch.
    #[arg(long)]
    timing: bool,
    /// Channel means of image inputs, 0 to 1, separated by commas.
    #[arg(long, value_delimiter = ',')]
    mean: Option<Vec<f32>>,
    /// Channel deviations of image inputs.
    #[arg(long, value_delimiter = ',')]
    std: Option<Vec<f32>>,
    /// Layout of image inputs: NCHW or NHWC.
    #[arg(long)]
    layout: Option<String>,
    /// How images reach the model's size: stretch, crop or fit.
    #[arg(long)]
    resize: Option<String>,
}

pub fn run(args: &Args) -> Result {
    let is_elf = starts_with_elf(&args.model)?;
    let (compiled, device, compile_ms) = if is_elf {
        let compiled = Compiled::load(&args.model)?;
        let device = open_device(args, Some(compiled.target()))?;
        (compiled, device, None)
    } else {
        let device = open_device(args, None)?;
        let start = Instant::now();
        let compiled = compile_now(args, device.target())?;
        (compiled, device, Some(start.elapsed().as_secs_f64() * 1e3))
    };
    let mut session = Session::new(device, &compiled)?;
    drop(compiled);
    if args.timing {
        session.time_launches()?;
    }
    let plan = session.plan().clone();
    let images = image_options(args, &plan)?;
    let inputs = read_inputs(args, &plan, &images)?;
    println!("device   {}", session.device().info().name);
    let mut best = None;
    let mut outputs = Vec::new();
    for _ in 0..args.repeat.max(1) {
        let (out, report) = session.run(&inputs)?;
        if best.as_ref().is_none_or(|b: &barewave::runtime::RunReport| report.time < b.time) {
            best = Some(report);
        }
        outputs = out;
    }
    let report = best.expect("at least one run");
    match compile_ms {
        Some(ms) => println!("compile  {ms:.1} ms"),
        None => println!("compile  none (ahead of time)"),
    }
    let ms = report.time.as_secs_f64() * 1e3;
    let counted = report.instructions.map_or(String::new(), |n| format!(", {n} wave instructions"));
    println!("run      {ms:.1} ms, {} kernels{counted}", report.launches);
    if args.timing {
        for (launch, (time, n)) in plan.launches.iter().zip(&report.per_launch) {
            let ms = time.as_secs_f64() * 1e3;
            let counted = n.map_or(String::new(), |n| format!("{n:12} instructions"));
            println!("  {ms:9.3} ms {counted}  {:16} {}", launch.kernel, launch.step);
        }
    }
    print_top(args, &plan, &outputs)?;
    for spec in &args.outputs {
        let (i, file) = port_and_file(spec, &plan.outputs)?;
        save(&file, &plan.outputs[i].name, &outputs[i], &images)?;
        println!("wrote    {} ({})", file.display(), plan.outputs[i].name);
    }
    check_expected(args, &plan, &outputs)
}

fn starts_with_elf(path: &Path) -> Result<bool> {
    use std::io::Read;
    let cannot = |e| Failure::new(format!("cannot read {}: {e}", path.display()));
    let mut magic = [0u8; 4];
    let mut file = std::fs::File::open(path).map_err(cannot)?;
    match file.read_exact(&mut magic) {
        Ok(()) => Ok(magic == *b"\x7fELF"),
        Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => Ok(false),
        Err(e) => Err(cannot(e)),
    }
}

/// Opens the device that was asked for; one line says so when it is not a GPU and might have been.
fn open_device(args: &Args, preferred: Option<Target>) -> Result<Arc<dyn Device>> {
    let opened = open(&args.device, preferred, args.strict).map_err(|e| match e {
        DeviceError::Target(e) => Failure::usage(e),
        e => e.into(),
    })?;
    if let Some(note) = opened.note {
        eprintln!("note: {note}");
    }
    Ok(opened.device)
}

fn compile_now(args: &Args, target: Target) -> Result<Compiled> {
    let graph = load(&args.model, &options(&args.dims)?)?;
    let options = barewave::Options { cache: Arc::new(KernelCache::of_user()), keep_ir: false };
    Ok(Compiler::new(target, options).compile_graph(&graph)?)
}

fn image_options(args: &Args, plan: &Plan) -> Result<ImageOptions> {
    let given = ImageOptions {
        mean: args.mean.clone(),
        std: args.std.clone(),
        layout: args.layout.as_deref().map(str::parse).transpose().map_err(Failure::usage)?,
        color: None,
        resize: args.resize.as_deref().map(str::parse).transpose().map_err(Failure::usage)?,
    };
    Ok(given.or(ImageOptions::from_metadata(&plan.metadata)?))
}

fn read_inputs(args: &Args, plan: &Plan, images: &ImageOptions) -> Result<Vec<HostTensor>> {
    let mut specs: BTreeMap<String, InputSpec> = BTreeMap::new();
    let mut unnamed = Vec::new();
    for text in &args.inputs {
        let spec: InputSpec = text.parse().map_err(Failure::usage)?;
        match spec.name.clone() {
            Some(name) if plan.inputs.iter().any(|p| p.name == name) => {
                specs.insert(name, spec);
            }
            Some(name) => {
                return Err(Failure::new(format!(
                    "the model has no input '{name}'; it has {} (a spec such as 1x3xf32=0 needs a known element type)",
                    names(&plan.inputs)
                )));
            }
            None => unnamed.push(spec),
        }
    }
    if unnamed.len() > plan.inputs.len() {
        return Err(Failure::new(format!("{} inputs given, the model has {}", unnamed.len(), names(&plan.inputs))));
    }
    let mut unnamed = unnamed.into_iter();
    let mut out = Vec::new();
    for (i, port) in plan.inputs.iter().enumerate() {
        let dtype =
            port.element_type().ok_or_else(|| Failure::new(format!("input {} has no known type", port.name)))?;
        let wanted = Wanted { name: port.name.clone(), dtype, shape: port.shape.clone() };
        let spec = match specs.remove(&port.name).or_else(|| unnamed.next()) {
            Some(s) => s,
            None => {
                let dims: Vec<String> = port.shape.iter().map(usize::to_string).collect();
                format!("{}x{}=random:{i}", dims.join("x"), port.dtype)
                    .trim_start_matches('x')
                    .parse()
                    .map_err(Failure::new)?
            }
        };
        out.push(spec.load(&wanted, images)?);
    }
    Ok(out)
}

fn names(ports: &[Port]) -> String {
    ports.iter().map(|p| format!("'{}'", p.name)).collect::<Vec<_>>().join(", ")
}

/// Splits `[NAME=]FILE`; without a name it is the first output.
fn port_and_file(spec: &str, ports: &[Port]) -> Result<(usize, PathBuf)> {
    if let Some((name, file)) = spec.split_once('=') {
        let i = ports.iter().position(|p| p.name == name);
        let i = i.ok_or_else(|| Failure::new(format!("the model has no output '{name}'; it has {}", names(ports))))?;
        return Ok((i, PathBuf::from(file.trim_start_matches('@'))));
    }
    if ports.is_empty() {
        return Err(Failure::new("the model has no outputs"));
    }
    Ok((0, PathBuf::from(spec.trim_start_matches('@'))))
}

fn print_top(args: &Args, plan: &Plan, outputs: &[HostTensor]) -> Result {
    let labels: Vec<String> = match (&args.labels, plan.metadata.get("labels")) {
        (Some(path), _) => std::fs::read_to_string(path)
            .map_err(|e| Failure::new(format!("cannot read {}: {e}", path.display())))?
            .lines()
            .map(str::to_string)
            .collect(),
        (None, Some(list)) => list.split([',', '\n']).map(|s| s.trim().to_string()).collect(),
        (None, None) => Vec::new(),
    };
    let k = args.top.unwrap_or(if labels.is_empty() { 0 } else { 3 });
    if let (Some(first), true) = (outputs.first(), k > 0) {
        println!("top {}:", k.min(first.len()));
        print!("{}", format_top(&top_k(first, k), &labels));
    }
    Ok(())
}

fn check_expected(args: &Args, plan: &Plan, outputs: &[HostTensor]) -> Result {
    let mut failed = 0;
    for spec in &args.expect {
        let (i, file) = port_and_file(spec, &plan.outputs)?;
        let port = &plan.outputs[i];
        let dtype = port.element_type().ok_or_else(|| Failure::new("an output has no known type"))?;
        let wanted = Wanted { name: port.name.clone(), dtype, shape: port.shape.clone() };
        let spec: InputSpec = format!("@{}", file.display()).parse().map_err(Failure::new)?;
        let want = spec.load(&wanted, &ImageOptions::default())?;
        let c = compare(&outputs[i], &want, args.rtol, args.atol).map_err(Failure::new)?;
        println!("{} {c}", port.name);
        failed += usize::from(!c.passes());
    }
    if failed > 0 { Err(Failure::new(format!("{failed} outputs differ from what was expected"))) } else { Ok(()) }
}
