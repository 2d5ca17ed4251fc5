//! `barewave launch`: runs a kernel of any code object, from any compiler.
//!
//! Arguments are given in the order of the kernel's signature. Buffers are allocated on the device, filled, and read
//! back after the launch; values are converted to bytes. Where they go in the argument block, and which hidden
//! arguments the kernel wants, says the metadata of the code object ([`barewave::emu::kernarg`]).

use super::limits::{BadValue, Limits};
use super::progress::Progress;
use super::{Failure, Result};
use barewave::codeobj::{ElfFile, KernelInfo, code_objects_for};
use barewave::emu::kernarg::LaunchError;
use barewave::emu::{EmuDevice, LaunchOptions, kernarg};
use barewave::runtime;
use barewave::runtime::plan::PLAN_SECTION;
use barewave::tensor::{DType, HostTensor, ImageOptions, InputSpec, Source, check_save, element_count, load_npy, save};
use barewave::verify;
use barewave_isa::Target;
use barewave_timing::Modelled;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Runs a kernel of a code object that any compiler wrote.
///
/// Arguments, in order: in:@a.npy (or in:1024xf32=0, in:64xf32=random:1), out:1024xf32@c.npy (or without a file), inout:@a.npy
/// (written back there) or inout:@a.npy@b.npy, i32:5 (also i8 to u64, f16, bf16, f32, f64), lds:BYTES for a
/// pointer to LDS, null for a null pointer.
///
/// Example: barewave launch add.hsaco --kernel add --grid 16,1,1 --block 64,1,1 --arg in:@a.npy --arg in:@b.npy
/// --arg out:1000xf32@c.npy --arg u32:1000
#[derive(clap::Args)]
pub struct Args {
    /// Code object, relocatable object or offload bundle.
    code: PathBuf,
    /// Kernel to run.
    #[arg(long)]
    kernel: String,
    /// Workgroups: X,Y,Z (Y and Z may be left out).
    #[arg(long, value_name = "X,Y,Z", value_parser = extent)]
    grid: [u32; 3],
    /// Workitems of a workgroup: X,Y,Z.
    #[arg(long, value_name = "X,Y,Z", value_parser = extent)]
    block: [u32; 3],
    /// Argument; see above.
    #[arg(long = "arg", value_name = "SPEC", allow_hyphen_values = true)]
    args: Vec<String>,
    /// Device: auto (the emulated one for the code), emu:TARGET, hip or hip:N.
    #[arg(long, default_value = "auto")]
    device: String,
    /// Dynamic LDS, bytes, added to what the kernel declares.
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    lds: u32,
    /// Check the launch on the emulated device for undefined behaviour (slow).
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    limits: Limits,
    /// Model the cycles of the launch: time, occupancy, traffic and what bounds it.
    #[arg(long)]
    cycles: bool,
    /// Machine-readable output.
    #[arg(long)]
    json: bool,
}

/// `16`, `16,2` or `16,2,1`.
pub fn extent(text: &str) -> std::result::Result<[u32; 3], BadValue> {
    let mut out = [1; 3];
    let parts: Vec<&str> = text.split(',').collect();
    if parts.len() > 3 {
        return Err(BadValue::Extents);
    }
    for (o, p) in out.iter_mut().zip(parts) {
        *o = p.trim().parse().map_err(|_| BadValue::Number(p.into()))?;
        if *o == 0 {
            return Err(BadValue::NoExtent);
        }
    }
    Ok(out)
}

/// A parsed `--arg`.
#[derive(Clone, PartialEq, Debug)]
enum Spec {
    /// A buffer with these contents, and the file to write its contents to after the launch.
    Buffer { tensor: HostTensor, filled: bool, read_back: bool, file: Option<PathBuf> },
    /// Bytes by value.
    Value(Vec<u8>),
    /// A pointer to this much dynamic LDS.
    Lds(u32),
}

/// Splits `A@FILE`.
fn at_file(text: &str) -> (&str, Option<PathBuf>) {
    match text.split_once('@') {
        Some((a, file)) => (a, Some(PathBuf::from(file))),
        None => (text, None),
    }
}

fn parse(text: &str, limits: &Limits) -> Result<Spec> {
    let usage = |what: String| Failure::usage(format!("--arg {text}: {what}"));
    if text == "null" {
        return Ok(Spec::Value(vec![0; 8]));
    }
    let (kind, rest) = text
        .split_once(':')
        .ok_or_else(|| usage("write KIND:VALUE, for example in:@a.npy, out:1024xf32@c.npy, i32:5".into()))?;
    let existing = |path: &Path| -> Result<()> {
        if path.as_os_str().is_empty() { Err(usage("the file name is missing".into())) } else { Ok(()) }
    };
    match kind {
        "in" => {
            let spec: InputSpec = rest.parse().map_err(|e| usage(format!("{e}")))?;
            let tensor = match &spec.source {
                Source::File(path) => {
                    existing(path)?;
                    load_npy(path)?
                }
                Source::Integer(_) | Source::Real(_) => spec.array(text, None)?,
                Source::Fill(..) | Source::Text(..) | Source::Random(..) => {
                    limits.check(&format!("--arg {text}"), spec.bytes().unwrap_or(u64::MAX))?;
                    spec.array(text, None)?
                }
            };
            numbers(&tensor).ok_or_else(|| usage("strings have no place on a device".into()))?;
            Ok(Spec::Buffer { tensor, filled: true, read_back: false, file: None })
        }
        "inout" => {
            let file = rest
                .strip_prefix('@')
                .ok_or_else(|| usage("write inout:@FILE.npy, or inout:@FROM.npy@TO.npy".into()))?;
            let (from, to) = at_file(file);
            existing(Path::new(from))?;
            let to = to.unwrap_or_else(|| PathBuf::from(from));
            let tensor = load_npy(Path::new(from))?;
            numbers(&tensor).ok_or_else(|| usage("strings have no place on a device".into()))?;
            Ok(Spec::Buffer { tensor, filled: true, read_back: true, file: Some(to) })
        }
        "out" => {
            let (shape, file) = at_file(rest);
            let mut parts: Vec<&str> = shape.split('x').collect();
            let dtype = parts.pop().and_then(DType::from_name);
            let dims: Option<Vec<usize>> = parts.iter().map(|p| p.parse().ok()).collect();
            let (Some(dtype), Some(dims)) = (dtype, dims) else {
                return Err(usage("write out:SHAPExTYPE@FILE, for example out:16x64xf32@c.npy".into()));
            };
            let n = element_count(&dims).and_then(|n| n.checked_mul(dtype.size()));
            let n = n.ok_or_else(|| usage("the shape is too large".into()))?;
            limits.check(&format!("--arg {text}"), n as u64)?;
            let tensor = HostTensor::new(dtype, &dims, vec![0; n]).map_err(|e| usage(e.to_string()))?;
            Ok(Spec::Buffer { tensor, filled: false, read_back: true, file })
        }
        "lds" => Ok(Spec::Lds(rest.parse().map_err(|_| usage(format!("'{rest}' is not a number of bytes")))?)),
        _ => match DType::from_name(kind).filter(|t| *t != DType::Str) {
            Some(t) => value(t, rest).map(Spec::Value).ok_or_else(|| usage(format!("'{rest}' is not a {kind}"))),
            None => Err(usage(format!(
                "unknown kind '{kind}': in, out, inout, lds, or a type such as i32, u32, i64, f32, f16"
            ))),
        },
    }
}

/// The tensor, unless it is of strings.
fn numbers(tensor: &HostTensor) -> Option<&HostTensor> {
    Some(tensor).filter(|t| t.dtype() != DType::Str)
}

/// The bytes of a number of a type; integers may be hexadecimal and must fit.
fn value(t: DType, text: &str) -> Option<Vec<u8>> {
    if t.is_float() {
        let v: f64 = text.parse().ok()?;
        return Some(HostTensor::from_f64(t, &[1], &[v]).bytes().to_vec());
    }
    let (negative, digits) = match text.strip_prefix('-') {
        Some(d) => (true, d),
        None => (false, text),
    };
    let magnitude = match digits.strip_prefix("0x") {
        Some(h) => u64::from_str_radix(h, 16).ok()?,
        None => digits.parse().ok()?,
    } as i128;
    let v = if negative { -magnitude } else { magnitude };
    let bits = 8 * t.size() as u32;
    let (low, high) = match t {
        DType::Bool => (0, 1),
        t if t.is_signed_int() => (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1),
        _ => (0, (1i128 << bits) - 1),
    };
    (low..=high).contains(&v).then(|| v.to_le_bytes()[..t.size()].to_vec())
}

/// A device that a kernel can be launched on: the emulated one directly, others through the runtime's interface.
enum Runner {
    Emulated(Box<EmuDevice>),
    Other(Arc<dyn runtime::Device>),
}

impl Runner {
    fn open(name: &str, code: Option<Target>, strict: bool, memory: u64) -> Result<Runner> {
        let target = match name.strip_prefix("emu:") {
            Some(t) => Target::parse(t).map_err(Failure::usage)?,
            None if matches!(name, "auto" | "emu") => match code {
                Some(t) => t,
                None => return Err(Failure::new("the code is for a processor that has no emulated device")),
            },
            None if strict => return Err(Failure::usage("--strict needs an emulated device")),
            None => {
                let opened = runtime::open(name, code, false).map_err(|e| match e {
                    runtime::DeviceError::Unknown(_) => Failure::usage(e),
                    e => e.into(),
                })?;
                return Ok(Runner::Other(opened.device));
            }
        };
        Ok(Runner::Emulated(Box::new(EmuDevice::with_memory(target, memory)?)))
    }
    fn name(&self) -> String {
        match self {
            Runner::Emulated(d) => format!("emulated {}", d.target().info().name),
            Runner::Other(d) => d.info().name.clone(),
        }
    }
    fn target(&self) -> Target {
        match self {
            Runner::Emulated(d) => d.target(),
            Runner::Other(d) => d.target(),
        }
    }
    fn alloc(&mut self, bytes: u64) -> Result<u64> {
        Ok(match self {
            Runner::Emulated(d) => d.alloc(bytes)?,
            Runner::Other(d) => d.alloc(bytes)?,
        })
    }
    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        match self {
            Runner::Emulated(d) => d.write(at, bytes)?,
            Runner::Other(d) => d.write(at, bytes)?,
        }
        Ok(())
    }
    fn read(&mut self, at: u64, bytes: &mut [u8]) -> Result<()> {
        match self {
            Runner::Emulated(d) => d.read(at, bytes)?,
            Runner::Other(d) => d.read(at, bytes)?,
        }
        Ok(())
    }
}

/// A kernel and how it is launched.
pub struct What<'a> {
    /// Code object, relocatable object or offload bundle.
    pub code: &'a Path,
    /// The kernel's name.
    pub kernel: &'a str,
    /// Workgroups.
    pub grid: [u32; 3],
    /// Workitems of a workgroup.
    pub block: [u32; 3],
    /// Arguments as the command line has them.
    pub args: &'a [String],
    /// Dynamic LDS, bytes.
    pub lds: u32,
}

/// Everything that a launch needs, on its device.
struct Ready {
    code: Vec<u8>,
    kernel: KernelInfo,
    specs: Vec<Spec>,
    /// Of each argument: where its buffer lies, 0 for others.
    addresses: Vec<u64>,
    device: Runner,
    /// The argument block.
    block: Vec<u8>,
    /// All dynamic LDS, bytes.
    lds: u32,
}

fn prepare(what: &What<'_>, device: &str, strict: bool, limits: &Limits) -> Result<Ready> {
    let file = what.code.display();
    let bytes = barewave::mapped::read_file(what.code).map_err(|e| Failure::new(format!("cannot read {file}: {e}")))?;
    // Of a bundle, the device says which; else the first.
    let wanted = device.strip_prefix("emu:").and_then(|t| Target::parse(t).ok()).map(|t| t.info().name);
    let mut entries = code_objects_for(&bytes, wanted).map_err(|e| Failure::new(format!("{file}: {e}")))?;
    let code = entries.swap_remove(0).data;
    let elf = ElfFile::parse(&code).map_err(|e| Failure::new(format!("{file}: {e}")))?;
    if elf.section(PLAN_SECTION).is_some() {
        verify::admit(&code).map_err(|e| Failure::new(format!("{file}: {e}")))?;
    }
    let Some(kernel) = elf.kernels.iter().find(|k| k.name == what.kernel) else {
        let names: Vec<&str> = elf.kernels.iter().map(|k| k.name.as_str()).collect();
        let has = if names.is_empty() { "no kernels".to_string() } else { names.join(", ") };
        return Err(Failure::new(format!("{file} has no kernel '{}'; it has {has}", what.kernel)));
    };
    let specs = what.args.iter().map(|a| parse(a, limits)).collect::<Result<Vec<Spec>>>()?;
    for spec in &specs {
        if let Spec::Buffer { tensor, file: Some(file), .. } = spec {
            check_save(file, &[tensor.shape()], &ImageOptions::default())?;
        }
    }
    let mut device = Runner::open(device, elf.target, strict, limits.memory())?;
    if !elf.target.is_some_and(|code| device.target().runs_code_of(code)) {
        let code = barewave::codeobj::Family::processor(elf.mach).unwrap_or("an unknown processor");
        let name = device.target().info().name;
        return Err(Failure::new(format!("{file} is for {code}, the device is {name}")));
    }
    let (values, addresses, lds) = place(&mut device, &specs, kernel, what.lds)?;
    let block = kernarg::pack(kernel, &values).map_err(|e| match e {
        LaunchError::ArgumentCount { .. } | LaunchError::ArgumentSize { .. } => Failure::usage(e),
        e => e.into(),
    })?;
    kernarg::check(device.target(), kernel, what.grid, what.block, lds)
        .map_err(|e| Failure::new(format!("kernel `{}`: {e}", kernel.name)))?;
    let kernel = kernel.clone();
    Ok(Ready { code: code.to_vec(), kernel, specs, addresses, device, block, lds })
}

/// Models a launch on the emulated device of a target.
pub fn modelled(what: &What<'_>, target: Target, limits: &Limits) -> Result<Modelled> {
    let ready = prepare(what, &format!("emu:{}", target.info().name), false, limits)?;
    match &ready.device {
        Runner::Emulated(d) => cycles_of(what, d, &ready, limits),
        Runner::Other(_) => Err(Failure::usage("only launches on emulated devices are modelled")),
    }
}

/// Runs the command.
pub fn run(args: &Args) -> Result {
    let what = What {
        code: &args.code,
        kernel: &args.kernel,
        grid: args.grid,
        block: args.block,
        args: &args.args,
        lds: args.lds,
    };
    let mut ready = prepare(&what, &args.device, args.strict, &args.limits)?;
    let start = Instant::now();
    let progress = Progress::start("running", 0);
    let stats = launch(args, &mut ready)?;
    drop(progress);
    let ms = start.elapsed().as_secs_f64() * 1e3;
    let mut outputs = Vec::new();
    for (i, (spec, address)) in ready.specs.iter_mut().zip(&ready.addresses).enumerate() {
        let Spec::Buffer { tensor, read_back: true, file, .. } = spec else { continue };
        let mut data = vec![0; tensor.bytes().len()];
        ready.device.read(*address, &mut data)?;
        *tensor = HostTensor::new(tensor.dtype(), tensor.shape(), data)?;
        if let Some(f) = file {
            save(f, &[("data", tensor)], &ImageOptions::default())?;
        }
        outputs.push((i, tensor.clone(), file.clone()));
    }
    let modelled = match (&ready.device, args.cycles) {
        (_, false) => None,
        (Runner::Emulated(d), true) => Some(cycles_of(&what, d, &ready, &args.limits)?),
        (Runner::Other(_), true) => {
            return Err(Failure::usage("--cycles models the launch on an emulated device: --device emu:TARGET"));
        }
    };
    report(args, &ready.device, &ready.kernel, &stats, ms, &outputs, modelled.as_ref());
    Ok(())
}

/// Allocates and fills buffers: the bytes of every argument, the address of every buffer (0 for others), and all
/// dynamic LDS.
fn place(device: &mut Runner, specs: &[Spec], kernel: &KernelInfo, lds: u32) -> Result<(Vec<Vec<u8>>, Vec<u64>, u32)> {
    let (mut values, mut addresses, mut dynamic) = (Vec::new(), Vec::new(), lds);
    for s in specs {
        let mut address = 0;
        values.push(match s {
            Spec::Buffer { tensor, filled, .. } => {
                address = device.alloc(tensor.bytes().len() as u64)?;
                if *filled {
                    device.write(address, tensor.bytes())?;
                }
                address.to_le_bytes().to_vec()
            }
            Spec::Value(v) => v.clone(),
            Spec::Lds(n) => {
                let at = (kernel.descriptor.lds_bytes + dynamic).next_multiple_of(16);
                dynamic = at.saturating_add(*n) - kernel.descriptor.lds_bytes;
                at.to_le_bytes().to_vec()
            }
        });
        addresses.push(address);
    }
    Ok((values, addresses, dynamic))
}

/// Models the launch. The workgroups that are traced run again, after the results were read.
fn cycles_of(what: &What<'_>, device: &EmuDevice, ready: &Ready, limits: &Limits) -> Result<Modelled> {
    let options = LaunchOptions { dynamic_lds: ready.lds, ..limits.options(false) };
    let module = device.load(&ready.code)?;
    let kernel = module.kernel(what.kernel)?;
    let items: u32 = what.block.iter().product();
    let stated = ready.kernel.meta.as_ref().filter(|m| m.reqd_workgroup_size.is_none());
    if let Some(most) = stated.map(|m| m.max_flat_workgroup_size).filter(|most| items < *most) {
        eprintln!(
            "note: workgroups of {items} workitems are modelled; {} is for up to {most} (Triton's kernels are for exactly as many)",
            what.kernel
        );
    }
    Ok(barewave_timing::model(device, &kernel, what.grid, what.block, &ready.block, &options)?.modelled)
}

/// What a launch did, as far as the device tells.
struct Counts {
    workgroups: u64,
    waves: Option<u64>,
    instructions: Option<u64>,
}

fn launch(args: &Args, ready: &mut Ready) -> Result<Counts> {
    let workgroups = args.grid.iter().map(|&g| g as u64).product();
    let (code, block, lds) = (&ready.code, &ready.block, ready.lds);
    match &mut ready.device {
        Runner::Emulated(d) => {
            let options = LaunchOptions { dynamic_lds: lds, ..args.limits.options(args.strict) };
            let module = d.load(code)?;
            match d.launch(&module.kernel(&args.kernel)?, args.grid, args.block, block, &options) {
                Ok(s) => Ok(Counts { workgroups, waves: Some(s.waves), instructions: Some(s.instructions) }),
                Err(f) => {
                    if args.json {
                        let fault = json!({
                            "what": f.kind.to_string(), "kernel": f.kernel, "pc": f.pc, "instruction": f.instruction,
                            "workgroup": f.workgroup, "wave": f.wave, "lane": f.lane,
                        });
                        println!(
                            "{}",
                            crate::terminal::json(&serde_json::to_string_pretty(&json!({ "fault": fault }))?)
                        );
                    }
                    Err(Failure::new(f))
                }
            }
        }
        Runner::Other(d) => {
            let kernel = d.kernel(d.load(code)?, &args.kernel)?;
            let stream = d.create_stream()?;
            let shape = runtime::LaunchShape { grid: args.grid, block: args.block, dynamic_lds: lds };
            d.launch(stream, kernel, shape, block)?;
            d.synchronize(stream)?;
            Ok(Counts { workgroups, waves: None, instructions: None })
        }
    }
}

fn report(
    args: &Args,
    device: &Runner,
    kernel: &KernelInfo,
    c: &Counts,
    ms: f64,
    outputs: &[(usize, HostTensor, Option<PathBuf>)],
    modelled: Option<&Modelled>,
) {
    let shape = |t: &HostTensor| {
        let mut s: String = t.shape().iter().map(|d| format!("{d}x")).collect();
        s += t.dtype().name();
        s
    };
    let name = |i: usize| {
        let arg = kernarg::explicit(kernel).and_then(|mut a| a.nth(i));
        arg.map(|a| a.name.clone()).filter(|n| !n.is_empty()).unwrap_or_else(|| format!("argument {i}"))
    };
    if args.json {
        let outputs: Vec<_> = outputs
            .iter()
            .map(|(i, t, f)| json!({ "argument": i, "name": name(*i), "tensor": shape(t), "file": f }))
            .collect();
        let out = json!({
            "device": device.name(), "kernel": kernel.name, "grid": args.grid, "block": args.block,
            "workgroups": c.workgroups, "waves": c.waves, "instructions": c.instructions,
            "milliseconds": ms, "outputs": outputs,
            "modelled": modelled.map(super::cycles::json),
        });
        println!("{out:#}");
        return;
    }
    println!("device   {}", device.name());
    let detail = match (c.waves, c.instructions) {
        (Some(w), Some(n)) => format!(", {w} waves, {n} wave instructions"),
        _ => String::new(),
    };
    println!("launch   {ms:.1} ms, {} workgroups{detail}", c.workgroups);
    if let Some(m) = modelled {
        super::cycles::print(m);
    }
    for (i, t, file) in outputs {
        match file {
            Some(f) => println!("wrote    {} ({}, {})", f.display(), name(*i), shape(t)),
            None => {
                let all = t.to_f64();
                let first: Vec<String> = all.iter().take(8).map(|v| format!("{v}")).collect();
                let more = if all.len() > 8 { " ..." } else { "" };
                println!("{:8} {}: {}{more}", name(*i), shape(t), first.join(" "));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_their_size_and_range() {
        assert_eq!(value(DType::I32, "-5"), Some((-5i32).to_le_bytes().to_vec()));
        assert_eq!(value(DType::U32, "0x10"), Some(16u32.to_le_bytes().to_vec()));
        assert_eq!(value(DType::U64, "18446744073709551615"), Some(vec![255; 8]));
        assert_eq!(value(DType::F16, "1.5"), Some(vec![0, 0x3e]));
        for (t, text) in [(DType::I8, "128"), (DType::U32, "-1"), (DType::I32, "x"), (DType::F32, "")] {
            assert_eq!(value(t, text), None, "{text}");
        }
    }

    #[test]
    fn wrong_specs_say_what_is_wrong() {
        #[derive(clap::Parser)]
        struct Only {
            #[command(flatten)]
            limits: Limits,
        }
        let limits = <Only as clap::Parser>::parse_from(["launch"]).limits;
        for (text, part) in [
            ("in", "KIND:VALUE"),
            ("in:@", "names no file"),
            ("out:4y4", "SHAPExTYPE"),
            ("out:99999999999x99999999999xf32", "too large"),
            ("out:99999999999999xf32", "--max-memory"),
            ("in:99999999999999xf32=0", "--max-memory"),
            ("quux:1", "unknown kind 'quux'"),
            ("i32:1.5", "is not a i32"),
            ("inout:a.npy", "inout:@FILE"),
        ] {
            let e = parse(text, &limits).unwrap_err();
            assert!(e.message.contains(part), "{text}: {}", e.message);
        }
    }
}
