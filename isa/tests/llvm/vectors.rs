//! LLVM's machine-code tests, both ways, from `../shared/data/vectors` next to the repository (skipped when absent).
//!
//! `BAREWAVE_SHARED` names another place for `../shared`.
//!
//! Every vector must pass unless `exceptions.txt` names it with a reason. `BAREWAVE_TARGETS=gfx942,gfx90a` narrows the
//! run; `BAREWAVE_LIST=1` prints every failure as a line in the form of the vectors, to extend the list from.

use crate::common;
use crate::common::exceptions::{Exceptions, digits, glob};
use std::path::{Path, PathBuf};
use std::process::Command;

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
    let exceptions = Exceptions::load();
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
            let known = exceptions.excuse(&target, kind, vector.text, &common::hex(&vector.bytes));
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
    if only.is_none() {
        let wrong = exceptions.miscounted(kind);
        assert!(wrong.is_empty(), "exceptions.txt is out of date:\n{}", wrong.join("\n"));
    }
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
    assert!(digits(".a[89]", "fa9c"));
    assert!(!digits(".a[89]f", "fa9c"));
    assert!(!digits(".a", "f"));
}
