//! `barewave run`: compiles a model if needed and runs it.

use super::compile::{Precision, load, one, print_notes};
use super::cycles::Launched;
use super::inputs::{self, Declared, Inputs, Outputs};
use super::limits::{BadValue, Limits};
use super::made::{Compiling, Made};
use super::profile::{self, Profile};
use super::progress::Progress;
use super::trace::Passes;
use super::tune::Tune;
use super::{Failure, Result};
use barewave::compile::KernelCache;
use barewave::graph::Options;
use barewave::onnx::{Dim, IndexChecks, Model};
use barewave::output;
use barewave::runtime::plan::{Plan, Port};
use barewave::runtime::{Device, DeviceError, EmulatedSettings, RunReport, Session, open_with};
use barewave::tensor::{HostTensor, ImageOptions, InputSpec, Wanted};
use barewave::{AnyShape, Compiled, Compiler};
use barewave_isa::Target;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
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
    /// What other commands take; here the message says what to write instead.
    #[arg(long = "target", hide = true, value_parser = inputs::device_of_target)]
    _target: Option<std::convert::Infallible>,
    /// Input as [NAME=]SPEC: 1x3xf32=0, 1x3xf32=random:7, 5 (for a scalar), @x.npy, @all.npz, @x.pb, cat.png. Without NAME
    /// an archive gives every input that it holds, others go by position.
    #[arg(long = "input", value_name = "[NAME=]SPEC")]
    inputs: Vec<String>,
    #[command(flatten)]
    tune: Tune,
    /// Make up the inputs that are not given.
    #[arg(long, value_name = "SEED", num_args = 0..=1, require_equals = true, default_missing_value = "0")]
    random_inputs: Option<u64>,
    /// Write an output to [NAME=]FILE (.npy, .npz, .pb, .png). Without NAME an .npz, or a folder (DIR/), takes every
    /// output, others go by position.
    #[arg(long = "output", value_name = "[NAME=]FILE")]
    outputs: Vec<String>,
    /// Compare an output with [NAME=]FILE and fail when it differs. Without NAME as --output.
    #[arg(long = "expect", value_name = "[NAME=]FILE")]
    expect: Vec<String>,
    /// Relative tolerance of --expect.
    #[arg(long, default_value_t = 1e-3, value_parser = tolerance)]
    pub rtol: f64,
    /// Absolute tolerance of --expect.
    #[arg(long, default_value_t = 1e-5, value_parser = tolerance)]
    pub atol: f64,
    /// Print the K largest elements of the first output (default: 3 when the model names its classes).
    #[arg(long, value_name = "K")]
    pub top: Option<usize>,
    /// File with one class name a line.
    #[arg(long)]
    labels: Option<PathBuf>,
    /// Extent of a symbolic dimension that no given array tells, as NAME=N.
    #[arg(long = "dim", value_name = "NAME=N")]
    dims: Vec<String>,
    /// Compute 32-bit floats of an ONNX file in this type; inputs and outputs stay what they are.
    #[arg(long, value_enum)]
    dtype: Option<Precision>,
    /// Run N times and print the fastest.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// Check every launch on the emulated device for undefined behaviour, and the indices of Gather and Scatter (slow).
    #[arg(long)]
    strict: bool,
    /// Print time and instructions of each launch, and its time on the chip by the cycle model.
    #[arg(long)]
    pub timing: bool,
    /// Write what the run did to a page (.html: the model's graph with times, timelines, memory, roofline, machine code
    /// with operators and cycles) or a Chrome trace with the compiler's passes (.json).
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
    /// Machine-readable output.
    #[arg(long)]
    pub json: bool,
    /// Say why no GPU is used.
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    limits: Limits,
    /// Channel means of image inputs, 0 to 1, separated by commas.
    #[arg(long, value_delimiter = ',', value_parser = finite)]
    mean: Option<Vec<f32>>,
    /// Channel deviations of image inputs.
    #[arg(long, value_delimiter = ',', value_parser = finite)]
    std: Option<Vec<f32>>,
    /// Layout of image inputs: NCHW or NHWC.
    #[arg(long)]
    layout: Option<String>,
    /// How images reach the model's size: stretch, crop or fit.
    #[arg(long)]
    resize: Option<String>,
}

impl Args {
    /// Whether each launch is timed.
    fn is_timed(&self) -> bool {
        self.timing || self.profile.is_some()
    }
}

/// A NaN or an infinity would let everything pass.
fn tolerance(text: &str) -> std::result::Result<f64, BadValue> {
    let wrong = || BadValue::Tolerance(text.into());
    text.parse().ok().filter(|t: &f64| t.is_finite() && *t >= 0.0).ok_or_else(wrong)
}

/// Others make every pixel the same.
fn finite(text: &str) -> std::result::Result<f32, BadValue> {
    let wrong = || BadValue::Finite(text.into());
    text.trim().parse().ok().filter(|v: &f32| v.is_finite()).ok_or_else(wrong)
}

pub fn run(args: &Args) -> Result {
    if let Some(path) = &args.profile {
        profile::is_page(path)?;
        output::check(path)?;
    }
    let passes = args.profile.as_ref().map(|_| Passes::collect());
    let specs = inputs::parse(&args.inputs)?;
    check_sizes(args, &specs)?;
    let labels = read_labels(args)?;
    inputs::check_outputs(&args.outputs)?;
    let given_options = image_options(args)?;
    let (mut number, mut checks) = (0, IndexChecks::default());
    let launches = Arc::new(AtomicU64::new(0));
    let (compiled, device, given, compile_ms) = if starts_with_elf(&args.model)? {
        let compiled = Compiled::load(&args.model)?;
        if args.tune.given() {
            return Err(Failure::usage("--tune is for ONNX files: a compiled model's tiles are chosen"));
        }
        let told = one(&args.dims)?;
        if let (Some(dim), 1) = (args.dims.first(), compiled.plans().len()) {
            let model = args.model.display();
            return Err(Failure::usage(format!("--dim {dim}: {model} is compiled, its extents are fixed")));
        }
        if args.dtype.is_some() {
            let model = args.model.display();
            return Err(Failure::usage(format!("--dtype: {model} is compiled; compile it with --dtype")));
        }
        let target = compiled.target();
        check_names(args, compiled.plan().outputs.iter().map(|p| p.name.as_str()).collect())?;
        let device = open_device(args, Some(target), &launches)?;
        if !device.target().runs_code_of(target) {
            let (code, device) = (target.info().name.to_string(), device.target().info().name.to_string());
            return Err(DeviceError::WrongTarget { code, device }.into());
        }
        let declared: Vec<Declared> = compiled.plan().inputs.iter().map(declared_port).collect();
        let given = Inputs::gather(specs, &declared, args.random_inputs, args.limits.asked_memory())?;
        number = choose(&compiled, &given, &told)?;
        (compiled, device, given, None)
    } else {
        let mut options = one(&args.dims)?;
        let start = Instant::now();
        let mut model = load(&args.model, args.dtype)?;
        let reading = start.elapsed();
        check_names(args, model.graph.outputs.iter().map(|v| v.name.as_str()).collect())?;
        let named = inputs::given_names(&specs, args.limits.asked_memory())?;
        model.give_up_defaults(|name| named.contains(name));
        if args.strict {
            checks = IndexChecks::add(&mut model);
        }
        let device = open_device(args, None, &launches)?;
        barewave::graph::check_tensors(&model)?;
        let declared: Vec<Declared> = model.required_inputs().map(declared_value).collect();
        let given = Inputs::gather(specs, &declared, args.random_inputs, args.limits.asked_memory())?;
        given.shapes(&declared, &mut options);
        let start = Instant::now();
        let progress = Progress::start("compiling", 0);
        let cache = Arc::new(KernelCache::of_user());
        let compiler =
            Compiler::new(device.target(), barewave::Options { cache, keep_ir: false, tuning: args.tune.read()? });
        let compiled = match compiler.compile(&model, &options) {
            Ok(compiled) => compiled,
            Err(e) => {
                drop(progress);
                return match barewave::graph::cut(&model, &options) {
                    Ok(Some(_)) => {
                        in_stages(args, (model, checks), compiler, device, given, &options, &labels, passes.as_deref())
                    }
                    _ => Err(e.into()),
                };
            }
        };
        drop(progress);
        print_notes(compiled.notes());
        let ms = (reading + start.elapsed()).as_secs_f64() * 1e3;
        (compiled, device, given, Some(ms))
    };
    // Everything that can be wrong with files is found before the model runs.
    let plan = compiled.plans()[number].clone();
    let images = given_options.or(ImageOptions::from_metadata(&plan.metadata)?);
    let wanted = |ports: &[Port]| ports.iter().map(wanted).collect::<Result<Vec<Wanted>>>();
    let (takes, mut makes) = (wanted(&plan.inputs)?, wanted(&plan.outputs)?);
    makes.truncate(makes.len() - checks.outputs());
    let outputs = Outputs::prepare(&args.outputs, &makes, &images)?;
    let expected = inputs::expected(&args.expect, &makes, args.limits.asked_memory())?;
    let tensors = given.load(&takes, &images, &args.limits)?;
    let mut session = Session::new(device, &compiled)?;
    session.select(number)?;
    if args.is_timed() {
        session.time_launches()?;
    }
    let modelled =
        if args.is_timed() { super::cycles::whole(super::cycles::plan(&compiled, number)?) } else { Vec::new() };
    let listing = if args.profile.is_some() { profile::listing(&compiled, &modelled)? } else { String::new() };
    drop(compiled);
    let device = session.device().clone();
    if !args.json {
        println!("device   {}", device.info().name);
    }
    // Only the emulated device counts launches, and only there they take long.
    let emulated = device.info().driver.is_none();
    let parts = if emulated { u64::from(args.repeat) * plan.launches.len() as u64 } else { 0 };
    let progress = Progress::counted("running", parts, launches);
    let (mut results, report) = repeat(args, || session.run(&tensors))?;
    drop(progress);
    checks.verify(&mut results)?;
    if let Some(path) = &args.profile {
        let (info, target) = (device.info(), device.target());
        let (model, device) = (plan.model.as_str(), info.name.as_str());
        let passes = passes.map(|p| p.done()).unwrap_or_default();
        let (report, modelled, listing, passes) = (&report, &modelled[..], &listing[..], &passes[..]);
        Profile { model, device, target, report, modelled, listing, passes }.save(path)?;
    }
    let made = Made { results, report, makes, modelled, metadata: &plan.metadata };
    made.finish(args, &labels, device, Compiling::Before(compile_ms), outputs, expected, &images)
}

/// Runs a model of which a part decides how the rest looks: each part is compiled when what it depends on is known.
fn in_stages(
    args: &Args,
    (model, checks): (Model, IndexChecks),
    compiler: Compiler,
    device: Arc<dyn Device>,
    given: Inputs,
    options: &Options,
    labels: &[String],
    passes: Option<&Passes>,
) -> Result {
    let takes = |v: &barewave::onnx::ValueInfo| {
        let shape = options.shapes.get(&v.name).cloned().or_else(|| {
            let dims = v.shape.as_ref()?.iter().map(|d| match d {
                Dim::Known(n) => Some(*n),
                Dim::Symbol(s) => options.dims.get(s).copied(),
                Dim::Unknown => None,
            });
            dims.collect()
        });
        match (shape, v.dtype) {
            (Some(shape), Some(dtype)) => Ok(Wanted { name: v.name.clone(), dtype, shape }),
            _ => Err(Failure::new(format!("the shape of input '{}' is not known; give an array for it", v.name))),
        }
    };
    let takes = model.required_inputs().map(takes).collect::<Result<Vec<Wanted>>>()?;
    let images = image_options(args)?.or(ImageOptions::from_metadata(&model.metadata)?);
    let tensors = given.load(&takes, &images, &args.limits)?;
    let names: Vec<String> = model.graph.outputs.iter().map(|o| o.name.clone()).collect();
    let (metadata, whole) = (model.metadata.clone(), model.graph.name.clone());
    if !args.json {
        println!("device   {}", device.info().name);
    }
    let start = Instant::now();
    let mut stages = AnyShape::new(device.clone(), compiler, Arc::new(model), 1);
    let programs = Arc::new(Mutex::new(Vec::new()));
    if args.is_timed() {
        stages.time_launches();
        let programs = programs.clone();
        stages = stages.on_compiled(move |c| programs.lock().unwrap_or_else(PoisonError::into_inner).push(c.clone()));
    }
    let progress = Progress::start("running in stages", 0);
    let (mut results, report) = repeat(args, || stages.run(&tensors))?;
    checks.verify(&mut results)?;
    drop(progress);
    let whole_ms = start.elapsed().as_secs_f64() * 1e3;
    let programs = std::mem::take(&mut *programs.lock().unwrap_or_else(PoisonError::into_inner));
    let (modelled, listing) = modelled_stages(&report, &programs, args.profile.is_some())?;
    if let Some(path) = &args.profile {
        let (info, target) = (device.info(), device.target());
        let (model, device) = (whole.as_str(), info.name.as_str());
        let passes = passes.map(|p| p.done()).unwrap_or_default();
        let (report, modelled, listing, passes) = (&report, &modelled[..], &listing[..], &passes[..]);
        Profile { model, device, target, report, modelled, listing, passes }.save(path)?;
    }
    let made =
        |(name, t): (&String, &HostTensor)| Wanted { name: name.clone(), dtype: t.dtype(), shape: t.shape().to_vec() };
    let makes: Vec<Wanted> = names.iter().zip(&results).map(made).collect();
    let outputs = Outputs::prepare(&args.outputs, &makes, &images)?;
    let expected = inputs::expected(&args.expect, &makes, args.limits.asked_memory())?;
    let made = Made { results, report, makes, modelled, metadata: &metadata };
    made.finish(args, labels, device, Compiling::Between(whole_ms), outputs, expected, &images)
}

/// Each launch of a run in stages by the cycle model, and the code of all parts as text where that is asked.
fn modelled_stages(report: &RunReport, programs: &[Compiled], listed: bool) -> Result<(Vec<Launched>, String)> {
    let mut known: Vec<(&Plan, Vec<Launched>)> = Vec::new();
    let (mut all, mut text) = (Vec::new(), String::new());
    for plan in &report.plans {
        let at = match known.iter().position(|(p, _)| *p == &**plan) {
            Some(at) => at,
            None => {
                let of = programs.iter().find(|c| c.plan() == &**plan);
                let modelled =
                    of.map(|c| super::cycles::plan(c, 0)).transpose()?.map(super::cycles::whole).unwrap_or_default();
                if let (Some(compiled), true) = (of, listed) {
                    text += &profile::listing(compiled, &modelled)?;
                }
                known.push((plan, modelled));
                known.len() - 1
            }
        };
        all.extend_from_slice(&known[at].1);
    }
    Ok((all, text))
}

/// The number of the plan that the given arrays and `--dim` fit: of the extents that a file was compiled for, the first.
fn choose(compiled: &Compiled, given: &Inputs, told: &Options) -> Result<usize> {
    let plans = compiled.plans();
    let has = |port: &Port, name: &str, n: usize| {
        port.open.iter().zip(&port.shape).any(|(o, d)| o.as_deref() == Some(name) && *d == n)
    };
    let fits = |p: &Plan| told.dims.iter().all(|(name, n)| p.inputs.iter().any(|port| has(port, name, *n)));
    let found = plans.iter().position(|p| fits(p) && (plans.len() == 1 || given.fit(&p.inputs)));
    found.ok_or_else(|| {
        let ports = |p: &Plan| p.inputs.iter().map(|i| format!("{}={}", i.name, i.described())).collect::<Vec<_>>();
        let known: Vec<String> = plans.iter().map(|p| format!("  {}", ports(p).join(", "))).collect();
        Failure::new(format!("the file was not compiled for these extents; it was for\n{}", known.join("\n")))
    })
}

/// Runs as often as asked; gives the last outputs and the fastest report.
fn repeat<E: Into<Failure>>(
    args: &Args,
    mut run: impl FnMut() -> std::result::Result<(Vec<HostTensor>, RunReport), E>,
) -> Result<(Vec<HostTensor>, RunReport)> {
    let (mut outputs, mut best) = run().map_err(Into::into)?;
    for _ in 1..args.repeat {
        let (out, report) = run().map_err(Into::into)?;
        if report.time < best.time {
            best = report;
        }
        outputs = out;
    }
    Ok((outputs, best))
}

/// Checks the names in `--output` and `--expect`.
fn check_names(args: &Args, outputs: Vec<&str>) -> Result {
    inputs::files("output", &args.outputs, &outputs)?;
    inputs::files("expect", &args.expect, &outputs).map(drop)
}

fn declared_value(v: &barewave::onnx::ValueInfo) -> Declared {
    Declared { name: v.name.clone(), shape: v.shape.clone(), dtype: v.dtype, described: v.described() }
}

fn declared_port(p: &Port) -> Declared {
    Declared {
        name: p.name.clone(),
        shape: Some(p.shape.iter().map(|d| Dim::Known(*d)).collect()),
        dtype: p.element_type(),
        described: p.described(),
    }
}

fn wanted(port: &Port) -> Result<Wanted> {
    let dtype = port.element_type().ok_or_else(|| Failure::new(format!("'{}' has no known type", port.name)))?;
    Ok(Wanted { name: port.name.clone(), dtype, shape: port.shape.clone() })
}

/// Refuses inputs that are made up and do not fit in memory.
fn check_sizes(args: &Args, specs: &[InputSpec]) -> Result {
    specs.iter().zip(&args.inputs).try_for_each(|(spec, text)| match spec.bytes() {
        Some(bytes) => args.limits.check(&format!("--input {text}"), bytes),
        None => Ok(()),
    })
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

/// Opens the device that was asked for. Why it is not a GPU, when it might have been, is said when there is a driver or
/// seems to be a GPU, and with --verbose.
fn open_device(args: &Args, preferred: Option<Target>, launches: &Arc<AtomicU64>) -> Result<Arc<dyn Device>> {
    let settings = EmulatedSettings {
        ended: Some(launches.clone()),
        options: args.limits.options(args.strict),
        memory: Some(args.limits.memory()),
        ..EmulatedSettings::default()
    };
    let opened = open_with(&args.device, preferred, &settings).map_err(|e| match e {
        DeviceError::Target(_) | DeviceError::Unknown(_) => Failure::usage(e),
        e => e.into(),
    })?;
    if let Some(note) = opened.note
        && (args.verbose || !opened.no_driver || gpu_seems_present())
    {
        eprintln!("note: {note}");
    }
    Ok(opened.device)
}

/// True when the kernel's driver for AMD GPUs has made its device.
fn gpu_seems_present() -> bool {
    Path::new("/dev/kfd").exists()
}

fn image_options(args: &Args) -> Result<ImageOptions> {
    Ok(ImageOptions {
        mean: args.mean.clone(),
        std: args.std.clone(),
        layout: args.layout.as_deref().map(str::parse).transpose().map_err(Failure::usage)?,
        color: None,
        resize: args.resize.as_deref().map(str::parse).transpose().map_err(Failure::usage)?,
    })
}

fn read_labels(args: &Args) -> Result<Vec<String>> {
    let Some(path) = &args.labels else { return Ok(Vec::new()) };
    let text =
        barewave::mapped::read_text(path).map_err(|e| Failure::new(format!("cannot read {}: {e}", path.display())))?;
    Ok(text.lines().map(str::to_string).collect())
}

pub fn split(list: &str) -> Vec<String> {
    list.split([',', '\n']).map(|s| s.trim().to_string()).collect()
}
