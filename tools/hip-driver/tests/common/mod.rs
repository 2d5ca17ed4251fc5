//! The emulated driver as cargo built it for these tests, and a kernel to run on it.

#![allow(dead_code)]

pub mod hip;

use barewave::Compiled;
use barewave::compile::compile;
use barewave::graph::{self, Options};
use barewave::onnx::Model;
use barewave_isa::Target;
use std::path::{Path, PathBuf};

/// Where cargo put a file: beside the test's own executable, or one folder up.
pub fn built(name: &str) -> Option<PathBuf> {
    let exe = std::env::current_exe().unwrap();
    let deps = exe.parent().unwrap();
    [deps.join(name), deps.parent().unwrap().join(name)].into_iter().find(|p| p.is_file())
}

/// The driver.
pub fn driver() -> PathBuf {
    built("libamdhip64.so").expect("cargo builds the driver before its tests")
}

/// A file of the repository.
pub fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// A model of the examples, compiled.
pub fn program(path: &str, target: &str) -> Compiled {
    let model = Model::load(&repository(path)).unwrap();
    let graph = graph::fuse(&model, &Options::default()).unwrap();
    compile(&graph, Target::parse(target).unwrap()).unwrap()
}

/// Says that a test is to do its work in this process.
const ALONE: &str = "BAREWAVE_TEST_ALONE";

/// Runs this test again in a process of its own with such an environment, and returns what it wrote to stderr.
///
/// # Panics
/// When the test fails there, or this process is already its own: the caller should have asked [`alone`].
pub fn in_own_process(test: &str, environment: &[(&str, &str)]) -> String {
    assert!(!alone(), "a test of a process of its own starts another");
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(ALONE, "1");
    for name in ["BAREWAVE_TARGET", "BAREWAVE_STRICT", "BAREWAVE_LOG", "BAREWAVE_MEMORY", "AMD_LOG_LEVEL"] {
        command.env_remove(name);
    }
    let out = command.envs(environment.iter().copied()).output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success() && stdout.contains("1 passed"), "{stdout}\n{stderr}");
    stderr.into_owned()
}

/// True in the process that [`in_own_process`] started.
pub fn alone() -> bool {
    std::env::var_os(ALONE).is_some()
}
