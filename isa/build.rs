//! Compiles `tables/*.isa` to static Rust in `OUT_DIR`; `build/mod.rs` does the work.

#[path = "build/mod.rs"]
mod generator;

use generator::{Output, generate, read};
use std::{env, fs, path::Path, process};

fn main() {
    for path in ["build", "src/model/schema", "tables", "latency"] {
        println!("cargo::rerun-if-changed={path}");
    }
    let made = read(Path::new("tables")).and_then(|(sources, latency)| generate(&sources, &latency));
    match made {
        Ok(Output { text, rows }) => {
            let dir = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
            fs::write(Path::new(&dir).join("tables.rs"), text).expect("OUT_DIR is writable");
            fs::write(Path::new(&dir).join("rows.bin"), rows).expect("OUT_DIR is writable");
        }
        Err(fail) => {
            eprintln!("error: isa/tables/{fail}");
            process::exit(1);
        }
    }
}
