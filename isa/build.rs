//! Compiles `tables/*.isa` to static Rust in `OUT_DIR`. Uses the standard library only.

#[path = "build/targets.rs"]
mod targets;
#[path = "build/text.rs"]
mod text;

use std::{env, fmt::Write, fs, path::Path, process};

fn run() -> text::Result<String> {
    let read = |name: &str| {
        println!("cargo::rerun-if-changed=tables/{name}");
        fs::read_to_string(Path::new("tables").join(name)).map_err(|e| text::Fail::new(name, 0, name, &e.to_string()))
    };
    println!("cargo::rerun-if-changed=build");
    let mut out = String::new();
    let all = targets::parse("targets.isa", &read("targets.isa")?)?;
    targets::emit(&all, &mut out)?;
    let ops = read("ops.txt")?;
    out.push_str("/// All operations, by canonical name.\npub mod op {\nuse super::Op;\n");
    let mut names = String::new();
    for (i, name) in ops.lines().enumerate() {
        let _ = writeln!(out, "pub const {}: Op = Op({i});", name.to_uppercase());
        let _ = write!(names, "{name:?},");
    }
    let _ = writeln!(out, "}}\nstatic OP_NAMES: &[&str] = &[{names}];");
    Ok(out)
}

fn main() {
    match run() {
        Ok(text) => {
            let dir = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
            fs::write(Path::new(&dir).join("tables.rs"), text).expect("OUT_DIR is writable");
        }
        Err(fail) => {
            eprintln!("error: isa/tables/{fail}");
            process::exit(1);
        }
    }
}
