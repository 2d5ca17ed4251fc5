//! Random instructions against LLVM, from files in the directory that `BAREWAVE_FUZZ` names (skipped without it).
//!
//! A file is called `TARGET.anything.tsv` or `TARGET-w64.anything.tsv`; its lines are
//!
//! ```text
//! bytes in hex <TAB> text that LLVM prints, or <invalid> [<TAB> what assembling the text gives]
//! ```
//!
//! where the last column is `1` for the same bytes, `0` for others, `E` for an error, or the other bytes in hex.
//! `BAREWAVE_TARGETS` and `BAREWAVE_LIST` work as in `vectors.rs`, and so does `exceptions.txt`.

use crate::common::exceptions::Exceptions;
use crate::common::hex;
use barewave_isa::{Mode, Target, decode, parse};
use std::path::PathBuf;

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What is wrong with a line in the direction from bytes to text.
fn disassembly(target: Target, mode: Mode, bytes: &[u8], text: &str) -> Option<String> {
    match decode(target, mode, bytes) {
        None if text == "<invalid>" => None,
        None => Some("does not decode".into()),
        Some(raw) if text == "<invalid>" => Some(format!("decodes as {}", words(&raw.to_string()))),
        Some(raw) if raw.len() != bytes.len() => Some(format!("decodes {} bytes", raw.len())),
        Some(raw) => {
            let got = words(&raw.to_string());
            (got != text).then(|| format!("prints {got}"))
        }
    }
}

/// The same from text to bytes.
fn assembly(target: Target, mode: Mode, bytes: &[u8], text: &str, verdict: &str) -> Option<String> {
    let got = parse(target, mode, text).map(|r| hex(&r.bytes()));
    match (verdict, got) {
        ("1", Ok(got)) => (got != hex(bytes)).then(|| format!("assembles to {got}")),
        ("0", Ok(_)) | ("E", Err(_)) => None,
        ("E", Ok(got)) => Some(format!("assembles to {got}, LLVM refuses")),
        (other, Ok(got)) => (got != other).then(|| format!("assembles to {got}")),
        (_, Err(e)) => Some(format!("does not parse: {e}")),
    }
}

#[test]
fn agrees_with_llvm() {
    let Some(directory) = std::env::var_os("BAREWAVE_FUZZ").map(PathBuf::from) else {
        eprintln!("skipped: BAREWAVE_FUZZ names no directory");
        return;
    };
    let only = std::env::var("BAREWAVE_TARGETS").ok();
    let list = std::env::var("BAREWAVE_LIST").is_ok();
    let exceptions = Exceptions::load();
    let mut files: Vec<PathBuf> = std::fs::read_dir(&directory)
        .unwrap_or_else(|e| panic!("{}: {e}", directory.display()))
        .filter_map(|f| f.ok().map(|f| f.path()))
        .filter(|p| p.extension().is_some_and(|e| e == "tsv"))
        .collect();
    files.sort();
    let mut failures = Vec::new();
    for path in files {
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let name = file.split('.').next().unwrap_or("");
        let (name, wave64) = name.strip_suffix("-w64").map_or((name, false), |n| (n, true));
        let target = Target::parse(name).unwrap_or_else(|e| panic!("{file}: {e}"));
        if only.as_ref().is_some_and(|o| !o.split(',').any(|t| t == name)) {
            continue;
        }
        let mut mode = Mode::of(target);
        mode.wave64 |= wave64;
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{file}: {e}"));
        let (mut total, mut dis, mut asm, mut excused) = (0, 0, 0, 0);
        for line in text.lines() {
            let mut columns = line.split('\t');
            let bytes = columns.next().unwrap_or("");
            let text = words(columns.next().unwrap_or_else(|| panic!("{file}: {line:?}")));
            let bytes: Vec<u8> = (0..bytes.len() / 2)
                .map(|i| u8::from_str_radix(&bytes[2 * i..2 * i + 2], 16).unwrap_or_else(|e| panic!("{file}: {e}")))
                .collect();
            total += 1;
            let verdict = columns.next().filter(|v| !v.is_empty());
            for (kind, why) in [
                ("dis", disassembly(target, mode, &bytes, &text)),
                ("asm", verdict.and_then(|v| assembly(target, mode, &bytes, &text, v))),
            ] {
                let Some(why) = why else { continue };
                if exceptions.excuse(name, kind, &text, &hex(&bytes)) {
                    excused += 1;
                    continue;
                }
                *if kind == "dis" { &mut dis } else { &mut asm } += 1;
                let mode = if wave64 { "-w64" } else { "" };
                failures.push(format!("{name}{mode}\t{}\t{text}\t{kind} {why}", hex(&bytes)));
            }
        }
        eprintln!("{file}: {total} instructions, {dis} print otherwise, {asm} assemble otherwise, {excused} excepted");
    }
    for failure in failures.iter().take(if list { usize::MAX } else { 20 }) {
        eprintln!("{failure}");
    }
    assert!(failures.is_empty(), "{} disagreements", failures.len());
}
