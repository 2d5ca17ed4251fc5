//! Pass tests as files: machine IR in, machine IR (or assembly) out, for several targets.
//!
//! A file `tests/files/<pass>/<name>.mir` holds one kernel, in which the word `TARGET` stands for the target, and below
//! it a line `==== <target>` with the expected result for each target. `BAREWAVE_BLESS=1 cargo test --test filetests`
//! rewrites the results.

use barewave::mir::{self, Function};
use barewave::passes::{check, emit, hazards, listing, pipeline, regalloc, schedule, select, simplify, waits};
use pretty_assertions::StrComparison;
use std::path::{Path, PathBuf};

/// Runs one pass, as the pipeline does, and gives the result as text.
fn run_pass(pass: &str, mut f: Function) -> Result<String, String> {
    let err = |e: &dyn std::fmt::Display| format!("error: {e}\n");
    match pass {
        "select" => select::select(&mut f).map_err(|e| err(&e))?,
        "simplify" => simplify::simplify(&mut f),
        "pipeline" => pipeline::pipeline(&mut f).map_err(|e| err(&e))?,
        "schedule" => {
            let reach = f.target.info().max_waves;
            schedule::schedule(&mut f, 8, reach);
        }
        "regalloc" => {
            let goal = regalloc::Goal { wanted: 8, most: 8 };
            let a = regalloc::allocate(&mut f, goal).map_err(|e| err(&e))?;
            let before = f.clone();
            regalloc::rewrite(&mut f, &a);
            check::check(&before, &f, &regalloc::fixed_places(&before)).map_err(|e| err(&e))?;
            regalloc::remove_identities(&mut f);
            return Ok(format!("; {:?}\n{}", a.usage, body(&f)));
        }
        "waits" => waits::waits(&mut f),
        "hazards" => hazards::hazards(&mut f),
        "emit" => {
            let emitted = emit::emit(&f).map_err(|e| err(&e))?;
            let bytes: Vec<String> =
                emitted.code.chunks(4).map(|w| format!("{:08x}", u32::from_le_bytes(w.try_into().unwrap()))).collect();
            let usage = regalloc::Usage::default();
            let text = listing::listing(&barewave::passes::Machine { function: f, emitted, usage });
            return Ok(format!("{}\n{text}", bytes.join(" ")));
        }
        other => panic!("no pass {other}"),
    }
    Ok(body(&f))
}

/// The blocks of a function, without its header.
fn body(f: &Function) -> String {
    let text = f.to_string();
    let start = text.find("block ").unwrap_or(0);
    text[start..].to_string()
}

fn run_file(path: &Path, pass: &str, bless: bool) -> Result<(), String> {
    let text = std::fs::read_to_string(path).unwrap();
    let mut parts = text.split("==== ");
    let source = parts.next().unwrap_or("");
    let mut out = source.to_string();
    let mut wrong = String::new();
    for part in parts {
        let (target, expected) = part.split_once('\n').unwrap_or((part, ""));
        let target = target.trim();
        let f = mir::parse(&source.replace("TARGET", target)).map_err(|e| format!("{}: {e}", path.display()))?;
        // The text form round-trips.
        let again = mir::parse(&f.to_string()).map_err(|e| e.to_string())?;
        assert_eq!(f, again, "{}", path.display());
        let got = run_pass(pass, f).unwrap_or_else(|e| e);
        if got.trim() != expected.trim() {
            let diff = StrComparison::new(expected.trim(), got.trim());
            wrong.push_str(&format!("{} {target}:\n{diff}\n", path.display()));
        }
        out.push_str(&format!("==== {target}\n{}\n", got.trim_end()));
    }
    if bless {
        std::fs::write(path, out).unwrap();
        return Ok(());
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}

#[test]
fn files() {
    let bless = std::env::var("BAREWAVE_BLESS").is_ok();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files");
    let mut failures = String::new();
    let mut count = 0;
    let mut passes: Vec<PathBuf> = std::fs::read_dir(&root).unwrap().map(|e| e.unwrap().path()).collect();
    passes.sort();
    for dir in passes {
        let pass = dir.file_name().unwrap().to_string_lossy().into_owned();
        let mut files: Vec<PathBuf> = std::fs::read_dir(&dir).unwrap().map(|e| e.unwrap().path()).collect();
        files.sort();
        for file in files {
            count += 1;
            if let Err(e) = run_file(&file, &pass, bless) {
                failures.push_str(&e);
            }
        }
    }
    assert!(count >= 10, "only {count} files");
    assert!(failures.is_empty(), "{failures}");
}
