//! Fingerprint of the sources that decide what code is generated, for the kernel cache: a cached kernel of another
//! compiler is never used.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

/// What a kernel's code depends on: its author, the passes, and the tables.
const SOURCES: [&str; 8] =
    ["kernels", "src/mir", "src/passes", "src/graph", "isa/src", "isa/build", "isa/latency", "isa/tables"];

fn main() {
    let mut files = BTreeMap::new();
    for folder in SOURCES {
        println!("cargo::rerun-if-changed={folder}");
        collect(Path::new(folder), &mut files);
    }
    let mut hasher = DefaultHasher::new();
    env!("CARGO_PKG_VERSION").hash(&mut hasher);
    files.hash(&mut hasher);
    println!("cargo::rustc-env=BAREWAVE_SOURCES={:016x}", hasher.finish());
}

/// Adds the contents of all files below a folder. As a package of a registry barewave lacks the folders of its siblings;
/// its version then stands for them.
fn collect(folder: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files);
        } else if let Ok(bytes) = std::fs::read(&path) {
            files.insert(path, bytes);
        }
    }
}
