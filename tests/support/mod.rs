//! Shared by the integration tests; each group of them uses a part of it.
#![allow(dead_code)]

use std::path::{Path, PathBuf};

pub mod agree;
pub mod apart;
pub mod bounds;
pub mod build;
pub mod clang;
pub mod device;
pub mod generate;
pub mod hints;
pub mod machine;
pub mod mixed;
pub mod parts;
pub mod reference;
pub mod round_trip;
pub mod wider;

/// Whether every case is to be run, as in CI: `BAREWAVE_TESTS=all`.
pub fn all_cases() -> bool {
    std::env::var_os("BAREWAVE_TESTS").is_some_and(|v| v == "all")
}

/// Whether a case of many that are alike is run: of those of a test about a third are, always the same ones, unless all are.
pub fn drawn(case: &str) -> bool {
    all_cases() || xxhash_rust::xxh3::xxh3_64(case.as_bytes()).is_multiple_of(3)
}

/// A part of ONNX's backend tests, which are not part of the repository: `BAREWAVE_ONNX_DATA` names the directory
/// `onnx/backend/test/data` of the onnx 1.22 wheel. Without it there is nothing to check.
pub fn onnx_data(part: &str) -> Option<PathBuf> {
    let path = Path::new(&std::env::var_os("BAREWAVE_ONNX_DATA")?).join(part);
    path.exists().then_some(path)
}

/// A real architecture among them.
pub fn light(name: &str) -> Option<PathBuf> {
    onnx_data(&format!("light/light_{name}.onnx"))
}
