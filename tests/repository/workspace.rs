//! What makes cargo compile a crate once: the same features and the same profile in every command that a clone is built with.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Packages with their features, as `cargo tree` resolves them.
fn resolved(arguments: &[&str]) -> BTreeSet<String> {
    let out = Command::new(env!("CARGO"))
        .current_dir(ROOT)
        .args(["tree", "--offline", "--locked", "--prefix", "none", "--no-dedupe", "--format", "{p} {f}"])
        .args(arguments)
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap().lines().map(|l| l.trim_end_matches(" (*)").trim_end().to_owned()).collect()
}

/// Dependencies of tests must not add features to those of the command: cargo would compile these, the library and the command
/// again. `Cargo.toml` says how that is kept.
#[test]
fn tests_use_what_the_command_was_built_with() {
    // Packaged without its workspace: nothing to compare.
    if !std::path::Path::new(ROOT).join("src/cli/Cargo.toml").exists() {
        return;
    }
    let tests = resolved(&["--workspace"]);
    for command in [&["--edges", "normal,build"][..], &["--edges", "normal,build", "--package", "barewave-cli"]] {
        let lone: Vec<String> = resolved(command).difference(&tests).cloned().collect();
        assert!(lone.is_empty(), "`cargo test --workspace` has other features than `cargo tree {command:?}`: {lone:?}");
    }
}

/// `[profile.release…]` sections of a manifest: lines without comments by heading.
fn profiles(manifest: &str) -> BTreeMap<String, Vec<String>> {
    let mut sections = BTreeMap::<String, Vec<String>>::new();
    let mut heading = String::new();
    for line in manifest.lines().map(|l| l.split('#').next().unwrap().trim()).filter(|l| !l.is_empty()) {
        if line.starts_with('[') {
            heading = line.trim_matches(['[', ']']).to_owned();
        } else if heading.starts_with("profile.release") {
            sections.entry(heading.clone()).or_default().push(line.to_owned());
        }
    }
    sections
}

/// The Python package is a workspace of its own. With the same profile and versions a target folder serves both.
#[test]
fn the_python_package_is_built_as_the_command_is() {
    let read = |path: &str| std::fs::read_to_string(format!("{ROOT}/{path}")).unwrap();
    let (main, lock) = (profiles(&read("Cargo.toml")), read("tools/python/Cargo.lock"));
    let python = profiles(&read("tools/python/Cargo.toml"));
    for (heading, lines) in main {
        let package = heading.strip_prefix("profile.release.package.");
        if package.is_none_or(|p| lock.contains(&format!("name = \"{p}\"\n"))) {
            assert_eq!(python.get(&heading), Some(&lines), "[{heading}] in tools/python/Cargo.toml");
        }
    }
    let versions = |lock: &str| -> BTreeSet<(String, String)> {
        let fields = |p: &str, f: &str| p.lines().find_map(|l| Some(l.strip_prefix(f)?.trim_matches('"').to_owned()));
        let packages = lock.split("[[package]]\n").filter(|p| p.contains("source = "));
        packages.filter_map(|p| Some((fields(p, "name = ")?, fields(p, "version = ")?))).collect()
    };
    let ours = versions(&read("Cargo.lock"));
    let names: BTreeSet<&str> = ours.iter().map(|(n, _)| n.as_str()).collect();
    let other: Vec<_> =
        versions(&lock).into_iter().filter(|v| names.contains(v.0.as_str()) && !ours.contains(v)).collect();
    assert!(other.is_empty(), "other versions in tools/python/Cargo.lock: {other:?}");
    // What a crate of ours depends on here and there; here also what its tests do.
    let depends = |lock: &str| -> BTreeMap<String, BTreeSet<String>> {
        let packages = lock.split("[[package]]").filter(|p| p.contains("name = \"barewave"));
        let names = |p: &str| {
            p.lines().filter_map(|l| Some(l.trim().strip_prefix('"')?.split(['"', ' ']).next()?.to_owned())).collect()
        };
        packages.map(|p| (p.split('"').nth(1).unwrap().to_owned(), names(p))).collect()
    };
    let (ours, theirs) = (depends(&read("Cargo.lock")), depends(&lock));
    for (package, theirs) in theirs.iter().filter(|t| ours.contains_key(t.0)) {
        let gone: Vec<&String> = theirs.difference(&ours[package]).collect();
        assert!(
            gone.is_empty(),
            "{package} depends on {gone:?} only by tools/python/Cargo.lock: `cargo metadata` there writes it"
        );
    }
}
