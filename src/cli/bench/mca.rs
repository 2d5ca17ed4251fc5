//! `barewave bench validate --llvm-mca`: hot loops of our kernels under LLVM's machine model of gfx942, which knows issue,
//! latencies and matrix passes of one wave and gives memory a fixed time, beside the cycle model with one wave.

use super::kernels::own;
use super::shape::{self, Factors, Family, Layout, Shaped};
use crate::{Failure, Result};
use barewave::codeobj::ElfFile;
use barewave::tensor::DType;
use barewave::{Compiler, Shapes};
use barewave_isa::{Decoder, Flags, Mode, Target};
use barewave_timing::hot::{self, HotLoop};
use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

/// One kernel of each family: its name, the family, its shape and type.
const KERNELS: [(&str, Family, &str, DType); 9] = [
    ("gemm", Family::Gemm, "4096x4096x4096", DType::F32),
    ("gemm", Family::Gemm, "4096x4096x4096", DType::F16),
    ("gemv", Family::Gemm, "1x4096x4096", DType::F32),
    ("conv", Family::Conv, "16x64x56x56:64x3x3:1:1", DType::F32),
    ("conv", Family::Conv, "16x64x56x56:64x3x3:1:1", DType::F16),
    ("attention", Family::Attention, "1x16x1024x64", DType::F16),
    ("softmax", Family::Softmax, "256x65536", DType::F32),
    ("normalize", Family::Normalize, "256x65536", DType::F32),
    ("reduce", Family::Reduce, "256x65536", DType::F32),
];

/// Clocks of one of LLVM's cycles: a wave of gfx9 issues every fourth.
const CLOCKS: f64 = 4.0;

/// A loop under both models: clocks of a round of one wave.
struct Row {
    family: &'static str,
    dtype: DType,
    kernel: String,
    instructions: usize,
    llvm: f64,
    ours: f64,
}

/// Compares, and prints a table; with `json` adds to `out` instead.
pub fn run(tool: &Path, json: bool, out: &mut Vec<Value>) -> Result {
    let target = Target::GFX942;
    let mut rows = Vec::new();
    for (name, family, text, dtype) in KERNELS {
        let shaped = shape::of_text(family, text, [dtype; 2], (Layout::default(), Factors::default()))?;
        rows.extend(row(tool, target, name, &shaped, dtype)?);
    }
    if json {
        out.extend(rows.iter().map(|r| {
            json!({
                "kind": "llvm-mca", "chip": target.info().name, "family": r.family, "dtype": r.dtype.name(),
                "kernel": r.kernel, "instructions": r.instructions, "llvm_clocks": r.llvm, "clocks": r.ours,
            })
        }));
        return Ok(());
    }
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    table.set_header([
        "family",
        "type",
        "kernel",
        "instructions",
        "llvm-mca, clocks",
        "model, clocks",
        "model/llvm-mca",
    ]);
    for r in &rows {
        table.add_row([
            r.family.to_string(),
            r.dtype.name().to_string(),
            r.kernel.clone(),
            r.instructions.to_string(),
            format!("{:.0}", r.llvm),
            format!("{:.0}", r.ours),
            format!("{:.2}", r.ours / r.llvm),
        ]);
    }
    table.column_iter_mut().skip(3).for_each(|c| c.set_cell_alignment(CellAlignment::Right));
    println!("The longest loop of one kernel of each family on {target}, one wave, a round:\n{table}");
    Ok(())
}

/// Nothing for a family whose kernel has no loop.
fn row(tool: &Path, target: Target, family: &'static str, shaped: &Shaped, dtype: DType) -> Result<Option<Row>> {
    let launches = own(target, &Arc::default(), shaped)?;
    let time = |l: &crate::cycles::Launched| l.modelled.as_ref().map_or(0.0, |m| m.microseconds);
    let Some(launch) = launches.iter().max_by(|a, b| time(a).total_cmp(&time(b))) else { return Ok(None) };
    let compiled = Compiler::new(target, barewave::Options::default()).compile(&shaped.model, &Shapes::default())?;
    let file = ElfFile::parse(compiled.code())?;
    let Some(kernel) = file.kernel(&launch.kernel) else { return Ok(None) };
    let Some(code) = file.kernel_code(compiled.code(), kernel) else { return Ok(None) };
    let loops = hot::alone(target, kernel, code).map_err(|e| Failure::new(e.to_string()))?;
    let Some(longest) = loops.into_iter().max_by_key(|l| l.marks.len()) else { return Ok(None) };
    let body = listing(target, kernel.entry, code, &longest);
    Ok(Some(Row {
        family,
        dtype,
        kernel: kernel.name.clone(),
        instructions: longest.marks.len(),
        llvm: CLOCKS * llvm(tool, target, &body)?,
        ours: longest.clocks,
    }))
}

/// The loop as LLVM's assembler reads it, without its branch and barriers, which mean nothing to one wave going straight on.
fn listing(target: Target, entry: u64, code: &[u8], l: &HotLoop) -> String {
    let decoder = Decoder::new(target, Mode::of(target));
    let mut body = String::new();
    for m in &l.marks {
        let at = usize::try_from(m.address - entry).unwrap_or(usize::MAX);
        let Some(raw) = code.get(at..).and_then(|bytes| decoder.decode(bytes)) else { continue };
        let info = target.op(raw.op());
        if info.is_some_and(|i| !i.flags.has(Flags::BRANCH) && !i.name.starts_with("s_barrier")) {
            body += &format!("{raw}\n");
        }
    }
    body
}

/// LLVM's cycles of a round, behind the first ones.
fn llvm(tool: &Path, target: Target, body: &str) -> Result<f64> {
    let cycles = |rounds: u32| -> Result<f64> {
        let fail = |what: &str| Failure::new(format!("{}: {what}", tool.display()));
        let mut child = Command::new(tool)
            .args(["-mtriple=amdgcn-amd-amdhsa", &format!("-mcpu={}", target.info().name)])
            .arg(format!("-iterations={rounds}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| fail(&format!("cannot be run: {e}")))?;
        if let Some(mut to) = child.stdin.take() {
            to.write_all(body.as_bytes())?;
        }
        let out = child.wait_with_output()?;
        let text = String::from_utf8_lossy(&out.stdout);
        let total = text.lines().find_map(|l| l.strip_prefix("Total Cycles:")?.trim().parse::<f64>().ok());
        let error = String::from_utf8_lossy(&out.stderr);
        total.ok_or_else(|| fail(error.lines().next().unwrap_or("it says nothing of `Total Cycles`")))
    };
    Ok((cycles(20)? - cycles(10)?) / 10.0)
}
