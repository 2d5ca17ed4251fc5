//! LLVM's machine-code tests, both ways, from `../shared/data/vectors` next to the repository (skipped when absent).
//!
//! `BAREWAVE_SHARED` names another place for `../shared`.
//!
//! Every vector must pass unless `exceptions.txt` names it with a reason. `BAREWAVE_TARGETS=gfx942,gfx90a` narrows the
//! run; `BAREWAVE_LIST=1` prints every failure as a line in the form of the vectors, to extend the list from.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

/// A line of `exceptions.txt`: targets, `asm` or `dis` or `both`, a glob on the text (words joined by one blank).
struct Exception {
    targets: Vec<&'static str>,
    kind: &'static str,
    text: &'static str,
}

fn exceptions() -> Vec<Exception> {
    include_str!("exceptions.txt")
        .lines()
        .filter(|l| !l.starts_with('#') && !l.trim().is_empty())
        .map(|line| {
            let fields: Vec<&str> = line.split(" | ").map(str::trim).collect();
            let [targets, kind, text, reason] = fields.as_slice() else { panic!("exceptions.txt: {line:?}") };
            assert!(!reason.is_empty(), "exceptions.txt: no reason in {line:?}");
            Exception { targets: targets.split(' ').collect(), kind, text }
        })
        .collect()
}

/// `*` matches any run of characters.
fn glob(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or("");
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut last = None;
    for part in parts {
        if let Some(middle) = last.replace(part) {
            match rest.find(middle) {
                Some(i) => rest = &rest[i + middle.len()..],
                None => return false,
            }
        }
    }
    last.map_or(rest.is_empty(), |tail| rest.ends_with(tail))
}

fn directory() -> Option<PathBuf> {
    let shared = match std::env::var_os("BAREWAVE_SHARED") {
        Some(path) => PathBuf::from(path),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared"),
    };
    let path = shared.join("data/vectors");
    path.is_dir().then_some(path)
}

fn read(path: &Path) -> Option<String> {
    let output = Command::new("xz").arg("-dc").arg(path).output().ok()?;
    output.status.success().then(|| String::from_utf8(output.stdout).ok())?
}

fn run(kind: &str, check: fn(&common::Vector) -> Result<(), String>) {
    let Some(directory) = directory() else {
        eprintln!("skipped: no vectors beside the repository");
        return;
    };
    let only = std::env::var("BAREWAVE_TARGETS").ok();
    let list = std::env::var("BAREWAVE_LIST").is_ok();
    let exceptions = exceptions();
    let mut failures = Vec::new();
    for target in barewave_isa::Target::all().map(|t| t.to_string()) {
        if only.as_ref().is_some_and(|o| !o.split(',').any(|t| t == target)) {
            continue;
        }
        let path = directory.join(format!("{target}.{kind}.tsv.xz"));
        if !path.exists() {
            continue; // a target whose vectors are its parent's
        }
        let Some(text) = read(&path) else {
            eprintln!("skipped: xz cannot read {}", path.display());
            return;
        };
        let (mut passed, mut excepted, mut total) = (0, 0, 0);
        for line in text.lines() {
            total += 1;
            let vector = common::vector(line);
            let Err(why) = check(&vector) else {
                passed += 1;
                continue;
            };
            let words = vector.text.split_whitespace().collect::<Vec<_>>().join(" ");
            let known = exceptions.iter().any(|e| {
                (e.kind == kind || e.kind == "both")
                    && e.targets.iter().any(|t| glob(t, &target))
                    && glob(e.text, &words)
            });
            if known {
                excepted += 1;
            } else {
                failures.push(format!("{line}\t{kind} {why}"));
            }
        }
        eprintln!("{target} {kind}: {passed} of {total} pass, {excepted} excepted");
    }
    for failure in failures.iter().take(if list { usize::MAX } else { 20 }) {
        eprintln!("{failure}");
    }
    assert!(failures.is_empty(), "{} vectors fail", failures.len());
}

#[test]
fn disassembles() {
    run("dis", common::check_disassembly);
}

#[test]
fn assembles() {
    run("asm", common::check_assembly);
}

#[test]
fn globs() {
    assert!(glob("image_*", "image_load v0"));
    assert!(glob("*a, *z", "a, b, z"));
    assert!(!glob("*a*b", "bca"));
    assert!(!glob("ab", "abc"));
}
