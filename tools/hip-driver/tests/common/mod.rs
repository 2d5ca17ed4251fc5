//! The emulated driver as cargo built it for these tests, and a kernel to run on it.

#![allow(dead_code)]

use barewave::compile::{Program, compile};
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
pub fn program(path: &str, target: &str) -> Program {
    let model = Model::load(&repository(path)).unwrap();
    let graph = graph::fuse(&model, &Options::default()).unwrap();
    compile(&graph, Target::parse(target).unwrap()).unwrap()
}

/// The child process of a test: this executable with one of its ignored tests.
pub fn child(test: &str, environment: &[(&str, &str)]) -> std::process::Output {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"]);
    for name in ["BAREWAVE_TARGET", "BAREWAVE_STRICT", "BAREWAVE_LOG", "BAREWAVE_MEMORY", "AMD_LOG_LEVEL"] {
        command.env_remove(name);
    }
    command.envs(environment.iter().copied()).output().unwrap()
}
