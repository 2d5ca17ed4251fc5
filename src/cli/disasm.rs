//! `barewave disasm` and `barewave asm`: machine code to text and back, in LLVM's syntax.

use super::{Failure, Result, snippets};
use barewave::codeobj::{Abi, ElfFile, Family, Listing, code_objects_for, link_assembly, list};
use barewave::mapped;
use barewave_isa::{AsmError, Decoder, Mode, Target, assemble};
use barewave_timing::{Chip, hot};
use clap::ValueEnum;
use std::collections::BTreeMap;
use std::io::{BufWriter, Write, stdout};
use std::path::{Path, PathBuf};

/// How the code runs, where that changes its meaning.
#[derive(clap::Args, Default)]
pub struct ModeArgs {
    /// Lanes of a wavefront (default: the target's).
    #[arg(long, value_parser = ["32", "64"])]
    wave: Option<String>,
    /// Names of 16-bit register halves (default: as LLVM 22).
    #[arg(long, value_enum)]
    true16: Option<Switch>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
}

impl ModeArgs {
    fn mode(&self, target: Target) -> Mode {
        let mut mode = Mode::of(target);
        if let Some(w) = &self.wave {
            mode.wave64 = w == "64";
        }
        if let Some(t) = self.true16 {
            mode.true16 = t == Switch::On;
        }
        mode
    }
}

/// Disassembles a code object, an offload bundle, or raw hexadecimal bytes.
///
/// Example: barewave disasm model.hsaco --kernel conv_0
#[derive(clap::Args)]
pub struct DisasmArgs {
    /// Code object, or - for standard input.
    file: PathBuf,
    /// Target (needed with --hex).
    #[arg(long)]
    target: Option<String>,
    /// Only this kernel.
    #[arg(long)]
    kernel: Option<String>,
    /// Print the kernel descriptors too, as .amdhsa_kernel directives.
    #[arg(long)]
    descriptors: bool,
    /// Print the metadata too, as YAML.
    #[arg(long)]
    metadata: bool,
    /// Print all that is needed to assemble the text again: symbols, data, descriptors and metadata.
    #[arg(long, conflicts_with = "kernel")]
    full: bool,
    /// The input is hexadecimal, an instruction a line; prints a line each, `<invalid>` where it does not decode.
    #[arg(long)]
    hex: bool,
    /// Remark at each instruction of an innermost loop: the clock at which it issues within a round, and why not earlier.
    /// Accesses are taken to be without conflicts and to hit L2; what else a round leaves out stands behind its figures.
    #[arg(long, conflicts_with_all = ["full", "hex"])]
    cycles: bool,
    #[command(flatten)]
    mode: ModeArgs,
}

/// Assembles a source to a code object, or shows encodings.
///
/// Without --wave the source's .amdhsa_wavefront_size32 decides, then the target's default.
///
/// Example: barewave asm kernel.s --target gfx942 -o kernel.hsaco
///
/// Example: echo 's_mov_b32 s0, 1' | barewave asm --show-encoding - --target gfx942
#[derive(clap::Args)]
pub struct AsmArgs {
    /// Assembly source, or - for standard input.
    file: PathBuf,
    /// Target.
    #[arg(long)]
    target: String,
    /// Code object to write (default: the source's name with .hsaco).
    #[arg(short, long, conflicts_with = "show_encoding")]
    output: Option<PathBuf>,
    /// Code object version, where the source does not say.
    #[arg(long, default_value = "5", value_parser = ["4", "5", "6"])]
    code_object_version: String,
    /// Print a line for each line of input: its bytes in hexadecimal, or `<error>` and why.
    #[arg(long)]
    show_encoding: bool,
    #[command(flatten)]
    mode: ModeArgs,
}

/// Bytes of a file or of standard input.
pub(super) fn read(path: &Path) -> Result<Vec<u8>> {
    let from_input = path == Path::new("-");
    let result = if from_input { mapped::read_stream(std::io::stdin()) } else { mapped::read_file(path) };
    result.map_err(|e| Failure::new(format!("cannot read {}: {e}", path.display())))
}

fn read_text(path: &Path) -> Result<String> {
    String::from_utf8(read(path)?).map_err(|_| Failure::new(format!("{} is not text", path.display())))
}

pub fn disasm(args: &DisasmArgs) -> Result {
    let target = args.target.as_deref().map(Target::parse).transpose().map_err(Failure::usage)?;
    if args.hex {
        let target = target.ok_or_else(|| Failure::usage("--hex needs --target: bytes alone do not tell"))?;
        return disasm_hex(&read_text(&args.file)?, target, args.mode.mode(target));
    }
    let bytes = read(&args.file)?;
    let name = args.file.display();
    // Of a bundle, --target picks the entries of one processor.
    let wanted = target.map(|t| t.info().name);
    let entries = code_objects_for(&bytes, wanted).map_err(|e| Failure::new(format!("{name}: {e}")))?;
    let bundle = entries.iter().any(|e| !e.id.is_empty());
    let mut listing = Listing {
        remarks: BTreeMap::new(),
        kernel: args.kernel.clone(),
        descriptors: args.descriptors,
        metadata: args.metadata,
        full: args.full,
        wave: args.mode.wave.as_deref().map(|w| if w == "64" { 64 } else { 32 }),
        true16: args.mode.true16.map(|t| t == Switch::On),
    };
    let mut out = BufWriter::new(stdout().lock());
    for (i, e) in entries.iter().enumerate() {
        let label = if bundle { format!("{name} ({})", e.id) } else { name.to_string() };
        let file = ElfFile::parse(&e.data).map_err(|e| Failure::new(format!("{label}: {e}")))?;
        let decode_as = match (target.filter(|_| !bundle), file.target, Family::nearest_tables(file.mach)) {
            (Some(t), ..) | (None, Some(t), _) => t,
            (None, None, Some(near)) => {
                let processor = Family::processor(file.mach).unwrap_or("its processor");
                eprintln!("note: no tables for {processor}: decoded as {near}");
                Target::parse(near).map_err(Failure::new)?
            }
            (None, None, None) => {
                let what = format!("{label} is for a processor without tables (machine {:#x})", file.mach);
                return Err(Failure::new(what));
            }
        };
        if bundle {
            writeln!(out, "{}; {}", if i > 0 { "\n" } else { "" }, e.id)?;
        }
        if args.cycles {
            listing.remarks = remarks(&file, &e.data, decode_as, args.kernel.as_deref());
        }
        list(&file, &e.data, decode_as, &listing, &mut out).map_err(|e| Failure::new(format!("{label}: {e}")))?;
    }
    Ok(out.flush()?)
}

/// What the cycle model says about the hot loops of a file's kernels, by address.
pub fn remarks(file: &ElfFile, bytes: &[u8], target: Target, only: Option<&str>) -> BTreeMap<u64, String> {
    let mut out = BTreeMap::new();
    let validated = Chip::of(target).is_some_and(|c| c.is_validated());
    let note = if validated { "" } else { ", not validated" };
    for k in file.kernels.iter().filter(|k| only.is_none_or(|name| name == k.name)) {
        let Some(code) = file.kernel_code(bytes, k) else { continue };
        let size = k.meta.as_ref().map_or(256, |m| m.max_flat_workgroup_size).max(1);
        let loops = match hot::loops(target, k, code, size) {
            Ok(loops) => loops,
            Err(e) => {
                eprintln!("note: {} has no cycles: {e}", k.name);
                continue;
            }
        };
        for l in loops {
            let [valu, matrix, lds] = l.busy.map(|b| 100.0 * b);
            let left_out: String = l.approximations.iter().map(|a| format!(", {a}")).collect();
            for (i, m) in l.marks.iter().enumerate() {
                let mut text = format!("{:5}", m.issued);
                if m.waited > 0 {
                    text += &format!(" +{} {}", m.waited, m.stall.name());
                }
                if i == 0 {
                    text += &format!(
                        "  round of {:.0} cycles, {} waves/SIMD, valu {valu:.0}%, matrix {matrix:.0}%, lds {lds:.0}%{left_out}{note}",
                        l.clocks, l.waves
                    );
                }
                out.insert(m.address, text);
            }
        }
    }
    out
}

fn disasm_hex(text: &str, target: Target, mode: Mode) -> Result {
    let decoder = Decoder::new(target, mode);
    let mut out = BufWriter::new(stdout().lock());
    let mut line_out = String::with_capacity(96);
    for line in text.lines() {
        line_out.clear();
        let bytes = parse_hex(line);
        // The whole line must be one instruction.
        match bytes.as_deref().and_then(|b| decoder.decode(b).filter(|r| r.len() == b.len())) {
            Some(raw) => raw.print(&mut line_out),
            None => line_out.push_str("<invalid>"),
        }
        line_out.push('\n');
        out.write_all(line_out.as_bytes())?;
    }
    Ok(out.flush()?)
}

/// Bytes of a line of hexadecimal digits; spaces, commas and `0x` are allowed between bytes.
fn parse_hex(line: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = line
        .replace("0x", " ")
        .bytes()
        .filter(|b| !matches!(b, b' ' | b',' | b'\t' | b'[' | b']' | b'\r'))
        .map(|b| (b as char).to_digit(16).map(|d| d as u8))
        .collect::<Option<_>>()?;
    if digits.is_empty() || !digits.len().is_multiple_of(2) {
        return None;
    }
    Some(digits.chunks(2).map(|p| p[0] << 4 | p[1]).collect())
}

pub fn asm(args: &AsmArgs) -> Result {
    let target = Target::parse(&args.target).map_err(Failure::usage)?;
    let mode = args.mode.mode(target);
    let source = read_text(&args.file)?;
    if args.show_encoding {
        let mut out = BufWriter::new(stdout().lock());
        for line in source.lines() {
            match barewave_isa::parse(target, mode, line) {
                Ok(raw) => {
                    for b in raw.bytes() {
                        write!(out, "{b:02x}")?;
                    }
                    writeln!(out)?;
                }
                Err(e) => writeln!(out, "<error> {}", e.to_string().replace('\n', " "))?,
            }
        }
        return Ok(out.flush()?);
    }
    let output = match &args.output {
        Some(o) => o.clone(),
        None if args.file == Path::new("-") => return Err(Failure::usage("name the file to write with -o")),
        None => args.file.with_extension("hsaco"),
    };
    let abi = match args.code_object_version.as_str() {
        "4" => Abi::V4,
        "6" => Abi::V6,
        _ => Abi::V5,
    };
    let name = args.file.display();
    let bytes = assembled(target, &args.mode, &source, abi).map_err(|e| match e {
        Broken::Source(errors) => Failure::rendered(snippets::render(&name.to_string(), &source, &errors)),
        Broken::Link(e) => Failure::new(format!("{name}: {e}")),
    })?;
    barewave::output::write(&output, |to| to.write_all(&bytes))?;
    Ok(())
}

/// What is wrong with a source.
pub enum Broken {
    /// Mistakes in its text.
    Source(Vec<AsmError>),
    /// No code object can be made of what it says.
    Link(barewave::codeobj::Error),
}

/// A source as a code object. Without `wave` its `.amdhsa_wavefront_size32` decides, then the target's default.
pub fn assembled(target: Target, given: &ModeArgs, source: &str, abi: Abi) -> std::result::Result<Vec<u8>, Broken> {
    let mut mode = given.mode(target);
    if given.wave.is_none()
        && let Some(wave32) = wavefront_directive(source)
    {
        mode.wave64 = !wave32;
    }
    let assembly = assemble(target, mode, source).map_err(Broken::Source)?;
    link_assembly(target, mode, &assembly, abi).map_err(Broken::Link)
}

/// What the first `.amdhsa_wavefront_size32` of a source says.
fn wavefront_directive(source: &str) -> Option<bool> {
    let line = source.lines().find_map(|l| l.trim().strip_prefix(".amdhsa_wavefront_size32"))?;
    match line.split_whitespace().next()? {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}
