//! `barewave disasm` and `barewave asm`: machine code to text and back, in LLVM's syntax.

use super::{Failure, Result};
use crate::codeobj::{ElfFile, SymbolKind};
use barewave_isa::{Decoder, Mode, Target, disassemble};
use clap::ValueEnum;
use std::collections::BTreeMap;
use std::io::{BufWriter, Read, Write, stdout};
use std::path::{Path, PathBuf};

/// How the code runs, where that changes its meaning.
#[derive(clap::Args)]
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

/// Disassembles a code object, or raw hexadecimal bytes.
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
    /// The input is hexadecimal, an instruction a line; prints a line each, <invalid> where it does not decode.
    #[arg(long)]
    hex: bool,
    #[command(flatten)]
    mode: ModeArgs,
}

/// Assembles instructions.
///
/// Example: echo 's_mov_b32 s0, 1' | barewave asm --show-encoding - --target gfx942
#[derive(clap::Args)]
pub struct AsmArgs {
    /// Assembly source, or - for standard input.
    file: PathBuf,
    /// Target.
    #[arg(long)]
    target: String,
    /// Print a line for each line of input: its bytes in hexadecimal, or <error> and why.
    #[arg(long)]
    show_encoding: bool,
    #[command(flatten)]
    mode: ModeArgs,
}

/// Bytes of a file or of standard input.
fn read(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let result = if path == Path::new("-") {
        std::io::stdin().read_to_end(&mut bytes).map(|_| ())
    } else {
        std::fs::File::open(path).and_then(|mut f| f.read_to_end(&mut bytes)).map(|_| ())
    };
    result.map_err(|e| Failure::new(format!("cannot read {}: {e}", path.display())))?;
    Ok(bytes)
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
    let file = ElfFile::parse(&bytes).map_err(|e| Failure::new(format!("{name}: {e}")))?;
    let target = match (file.target, target) {
        (_, Some(t)) => t,
        (Some(t), None) => t,
        (None, None) => {
            return Err(Failure::new(format!("{name} is for a processor without tables (machine {:#x})", file.mach)));
        }
    };
    disasm_file(&file, &bytes, target, args)
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

fn disasm_file(file: &ElfFile, bytes: &[u8], target: Target, args: &DisasmArgs) -> Result {
    let mut out = BufWriter::new(stdout().lock());
    writeln!(out, "\t.amdgcn_target \"amdgcn-amd-amdhsa--{}\"\n\t.text", target.info().name)?;
    if let Some(k) = &args.kernel
        && file.kernel(k).is_none()
    {
        let known: Vec<&str> = file.kernels.iter().map(|k| k.name.as_str()).collect();
        return Err(Failure::new(format!("no kernel '{k}'; the file has: {}", known.join(", "))));
    }
    let mut mode = args.mode.mode(target);
    for segment in file.segments.iter().filter(|s| s.executable) {
        let Some(code) = bytes.get(segment.file.clone()) else { continue };
        let functions: BTreeMap<usize, (String, u64)> = file
            .symbols
            .iter()
            .filter(|s| s.kind == SymbolKind::Function && s.defined && s.addr >= segment.addr)
            .map(|s| ((s.addr - segment.addr) as usize, (s.name.clone(), s.size)))
            .collect();
        for (start, (name, size)) in &functions {
            if args.kernel.as_ref().is_some_and(|k| k != name) {
                continue;
            }
            // Waves of the kernel decide how masks read.
            if let (Some(k), None) = (file.kernel(name), &args.mode.wave) {
                mode.wave64 = !k.descriptor.wave32();
            }
            let next = functions.range(start + 1..).next().map_or(code.len(), |f| *f.0);
            let end = if *size > 0 { start + *size as usize } else { next };
            let Some(body) = code.get(*start..end.min(code.len())) else { continue };
            let names = BTreeMap::from([(0, name.clone())]);
            writeln!(out)?;
            for line in disassemble(target, mode, body, &names) {
                if let Some(label) = &line.label {
                    writeln!(out, "{label}:")?;
                }
                writeln!(out, "\t{}", line.text)?;
            }
        }
    }
    Ok(out.flush()?)
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
    Err(Failure::usage("asm prints encodings only so far: add --show-encoding"))
}
