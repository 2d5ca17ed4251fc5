//! The README's listings are what the commands print.
//!
//! Every fenced block marked `console` is run, in order, in one folder that holds the repository's examples: lines that
//! begin with `$ ` are commands, the lines under one what it prints (both streams). Times differ from run to run and are
//! not compared. `BAREWAVE_BLESS=1` writes what the commands print, with the times of that run, into the README. Blocks that need what is not in the
//! repository are marked `shell`.

use std::path::Path;
use std::process::Command;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// A command and the lines under it.
struct Example {
    command: String,
    output: Vec<String>,
}

/// The text with each number before ` ms` replaced, and without spaces at the ends of lines.
fn without_times(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line.trim_end();
    while let Some(at) = rest.find(" ms") {
        let number = rest[..at].rfind(|c: char| !c.is_ascii_digit() && c != '.').map_or(0, |i| i + 1);
        out.push_str(&rest[..number]);
        out.push_str("N ms");
        rest = &rest[at + 3..];
    }
    out + rest
}

/// Runs a command of the README.
fn run(command: &str, folder: &Path) -> Vec<String> {
    let bin = Path::new(env!("CARGO_BIN_EXE_barewave")).parent().unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    let line = command.replace("cargo run --release --", "barewave");
    let out = Command::new("sh")
        .args(["-c", &format!("{{ {line}\n}} 2>&1")])
        .current_dir(folder)
        .env("PATH", format!("{}:{path}", bin.display()))
        .env("BAREWAVE_CACHE", "off")
        .env_remove("LD_LIBRARY_PATH")
        .output()
        .unwrap();
    String::from_utf8(out.stdout).unwrap().lines().map(|l| l.trim_end().to_string()).collect()
}

#[test]
fn listings_are_what_the_commands_print() {
    let readme = Path::new(ROOT).join("README.md");
    let text = std::fs::read_to_string(&readme).unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(
        Path::new(ROOT).canonicalize().unwrap().join("examples"),
        folder.path().join("examples"),
    )
    .unwrap();
    let (mut fresh, mut differ, mut ran) = (Vec::new(), Vec::new(), 0);
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        fresh.push(line.to_string());
        if line != "```console" {
            continue;
        }
        let mut examples: Vec<Example> = Vec::new();
        for line in lines.by_ref().take_while(|l| *l != "```") {
            match line.strip_prefix("$ ") {
                Some(command) => examples.push(Example { command: command.to_string(), output: Vec::new() }),
                None => examples.last_mut().expect("a block begins with a command").output.push(line.to_string()),
            }
        }
        // An empty line between two commands is not printed by the first.
        for e in &mut examples {
            while e.output.last().is_some_and(|l| l.trim().is_empty()) {
                e.output.pop();
            }
        }
        for e in examples {
            let is_test = e.command.starts_with("cargo test") || e.command.starts_with("cargo build");
            let got = if is_test { Vec::new() } else { run(&e.command, folder.path()) };
            ran += usize::from(!is_test);
            let same = got.iter().map(|l| without_times(l)).eq(e.output.iter().map(|l| without_times(l)));
            fresh.push(format!("$ {}", e.command));
            if !same {
                differ.push(format!("$ {}\n{}\n-- the README has\n{}", e.command, got.join("\n"), e.output.join("\n")));
            }
            fresh.extend(got);
        }
        fresh.push("```".to_string());
    }
    assert!(ran >= 10, "{ran} commands");
    if std::env::var_os("BAREWAVE_BLESS").is_some() {
        std::fs::write(&readme, fresh.join("\n") + "\n").unwrap();
        return;
    }
    assert!(differ.is_empty(), "BAREWAVE_BLESS=1 takes over what is printed:\n{}", differ.join("\n\n"));
}

/// The table of dependencies names what the manifests name.
#[test]
fn dependencies_are_listed() {
    let read = |name: &str| std::fs::read_to_string(Path::new(ROOT).join(name)).unwrap();
    let (manifest, readme) = (read("Cargo.toml"), read("README.md"));
    let mut named = std::collections::BTreeSet::new();
    for heading in ["[workspace.dependencies]", "[dev-dependencies]"] {
        let (_, section) = manifest.split_once(&format!("\n{heading}\n")).unwrap();
        for line in section.lines().take_while(|l| !l.is_empty()) {
            let name = line.split([' ', '=', '.']).next().unwrap();
            named.extend((!name.starts_with("barewave")).then_some(name));
        }
    }
    let (_, table) = readme.split_once("| crate | what for |\n|---|---|\n").unwrap();
    let rows = table.lines().take_while(|l| l.starts_with('|'));
    let listed = rows.flat_map(|row| row.split('|').nth(1).unwrap_or("").split('`').skip(1).step_by(2)).collect();
    pretty_assertions::assert_eq!(named, listed);
}
