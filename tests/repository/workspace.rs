//! What makes cargo compile a crate once: the same features and the same profile in every command that a clone is built with.

use std::collections::BTreeSet;
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

/// Dependencies of tests must not add features to those of the command, the plugin and the Python package, nor the other way
/// round: cargo would compile these and the library again. `Cargo.toml` says how that is kept.
#[test]
fn tests_use_what_the_command_was_built_with() {
    // Packaged without its workspace: nothing to compare.
    if !std::path::Path::new(ROOT).join("src/cli/Cargo.toml").exists() {
        return;
    }
    let tests = resolved(&["--workspace"]);
    let packages: BTreeSet<&str> = tests.iter().filter_map(|p| p.split(' ').next()).collect();
    for command in [
        &["--edges", "normal,build"][..],
        &["--edges", "normal,build", "--package", "barewave-cli"],
        &["--edges", "normal,build", "--package", "barewave-onnxruntime-ep"],
        &["--edges", "normal,build", "--package", "barewave-python", "--features", "extension"],
    ] {
        let mut lone = resolved(command);
        // What only Python's package depends on is no package of the tests.
        lone.retain(|p| {
            packages.contains(p.split(' ').next().unwrap()) && !tests.contains(p) && !p.starts_with("barewave-python")
        });
        assert!(lone.is_empty(), "`cargo test --workspace` has other features than `cargo tree {command:?}`: {lone:?}");
    }
}
