//! `barewave check`: proofs over the machine code of a code object.

use super::disasm::read;
use super::{Failure, Result};
use barewave::codeobj::{ElfFile, code_objects_for};
use barewave::runtime::plan::PLAN_SECTION;
use barewave::verify::{self, KernelReport, Options};
use std::io::{self, BufWriter, Write, stdout};
use std::path::PathBuf;

/// Checks machine code without running it: waits, hazards, undefined registers, descriptor and metadata against code,
/// ways out of the code, unreachable code.
///
/// Takes code objects of any compiler, offload bundles and relocatable objects. Exits with 1 when something was found.
///
/// Example: barewave check model.hsaco --kernel conv_0
#[derive(clap::Args)]
pub struct Args {
    /// Code object, or - for standard input.
    file: PathBuf,
    /// Only this kernel.
    #[arg(long)]
    kernel: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// What was found in one code object of the file.
struct Entry {
    /// Its name in a bundle, or nothing.
    id: String,
    target: String,
    kernels: Vec<KernelReport>,
}

pub fn run(args: &Args) -> Result {
    let bytes = read(&args.file)?;
    let name = args.file.display();
    let mut entries = Vec::new();
    let mut missing = None;
    let objects = code_objects_for(&bytes, None).map_err(|e| Failure::new(format!("{name}: {e}")))?;
    for e in &objects {
        let label = if e.id.is_empty() { name.to_string() } else { format!("{name} ({})", e.id) };
        let file = ElfFile::parse(&e.data).map_err(|e| Failure::new(format!("{label}: {e}")))?;
        let options = Options { fixed_lds: file.section(PLAN_SECTION).is_some(), without: None };
        match verify::check(&file, &e.data, args.kernel.as_deref(), &options) {
            Ok(kernels) => entries.push(Entry { id: e.id.clone(), target: file.target_id().to_string(), kernels }),
            // a kernel need not be in all entries of a bundle
            Err(e @ verify::Error::NoKernel { .. }) => missing = Some(Failure::new(format!("{label}: {e}"))),
            Err(e) => return Err(Failure::new(format!("{label}: {e}"))),
        }
    }
    if let (true, Some(failure)) = (entries.is_empty(), missing) {
        return Err(failure);
    }
    let mut out = BufWriter::new(stdout().lock());
    if args.json {
        print_json(&name.to_string(), &entries, &mut out)?;
    } else {
        entries.iter().try_for_each(|e| print(e, &mut out))?;
    }
    out.flush()?;
    match entries.iter().flat_map(|e| &e.kernels).map(|k| k.findings.list.len()).sum() {
        0 => Ok(()),
        1 => Err(Failure::new(format!("{name}: 1 finding"))),
        n => Err(Failure::new(format!("{name}: {n} findings"))),
    }
}

fn print(e: &Entry, out: &mut impl Write) -> io::Result<()> {
    if !e.id.is_empty() {
        writeln!(out, "{}", e.id)?;
    }
    for k in &e.kernels {
        let findings = &k.findings;
        if !findings.list.is_empty() || !findings.notes.is_empty() {
            writeln!(out, "{}", k.name)?;
        }
        for f in &findings.list {
            match &f.line {
                Some((at, raw)) => writeln!(out, "  {:<11} {at:#x}  {raw}", f.rule.name())?,
                None => writeln!(out, "  {}", f.rule)?,
            }
            writeln!(out, "    {}\n    {}", f.what, f.fix)?;
        }
        for n in &findings.notes {
            writeln!(out, "  note        {n}")?;
        }
    }
    let instructions: usize = e.kernels.iter().map(|k| k.instructions).sum();
    let faulty = e.kernels.iter().filter(|k| !k.findings.list.is_empty()).count();
    let s = |n: usize| if n == 1 { "" } else { "s" };
    let verdict = match faulty {
        0 => "nothing found".to_owned(),
        n => format!("something found in {n}"),
    };
    let kernels = e.kernels.len();
    writeln!(out, "{}: {kernels} kernel{}, {instructions} instructions: {verdict}", e.target, s(kernels))
}

fn print_json(name: &str, entries: &[Entry], out: &mut impl Write) -> Result {
    use serde_json::json;
    let kernel = |k: &KernelReport| {
        let finding = |f: &verify::Finding| {
            json!({
                "rule": f.rule.name(),
                "address": f.line.map(|l| l.0),
                "instruction": f.line.map(|l| l.1.to_string()),
                "what": f.what,
                "fix": f.fix,
            })
        };
        json!({
            "kernel": k.name,
            "instructions": k.instructions,
            "findings": k.findings.list.iter().map(finding).collect::<Vec<_>>(),
            "notes": k.findings.notes,
        })
    };
    let list = entries.iter().map(
        |e| json!({ "id": e.id, "target": e.target, "kernels": e.kernels.iter().map(kernel).collect::<Vec<_>>() }),
    );
    let all = json!({ "file": name, "code_objects": list.collect::<Vec<_>>() });
    writeln!(out, "{}", crate::terminal::json(&serde_json::to_string_pretty(&all)?))?;
    Ok(())
}
