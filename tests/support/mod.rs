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

/// Which part of the cases of tests with many that are alike is run: `(k, n)`, the k-th of n, as `BAREWAVE_TESTS=k/n` says, where `all` is `1/1`. A third is the
/// rule.
fn part() -> (u64, u64) {
    let Ok(said) = std::env::var("BAREWAVE_TESTS") else { return (1, 3) };
    let parsed = said.split_once('/').and_then(|(k, n)| Some((k.parse().ok()?, n.parse().ok()?)));
    match parsed {
        _ if said == "all" => (1, 1),
        Some((k, n)) if (1..=n).contains(&k) => (k, n),
        _ => panic!("BAREWAVE_TESTS={said}: neither `all` nor a part such as 1/3"),
    }
}

/// Whether every case is to be run.
pub fn all_cases() -> bool {
    part().1 == 1
}

/// Whether a case of many that are alike is run: always the same ones of a part.
pub fn drawn(case: &str) -> bool {
    let (k, n) = part();
    xxhash_rust::xxh3::xxh3_64(case.as_bytes()) % n == k - 1
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
