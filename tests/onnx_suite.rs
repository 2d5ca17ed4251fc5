//! Runs the ONNX backend test tree through import, fusion and the host interpreter.
//!
//! The tree is not part of the repository: set `BAREWAVE_ONNX_TESTS` to a directory with `NAME/model.onnx` and
//! `NAME/test_data_set_*/{input,output}_N.pb` (the `onnx` 1.22 wheel has it under `onnx/backend/test/data/node`) and run
//! `cargo test --release --test onnx_suite -- --ignored --nocapture`.

use barewave::graph::interpret::Interpreter;
use barewave::graph::{self, Options};
use barewave::onnx::Model;
use barewave::tensor::load_pb;
use std::collections::BTreeMap;
use std::path::Path;

enum Verdict {
    Pass,
    Unsupported(String),
    Fail(String),
}

fn run_case(dir: &Path) -> Verdict {
    let model = match Model::load(&dir.join("model.onnx")) {
        Ok(m) => m,
        Err(e) => return Verdict::Unsupported(e.to_string()),
    };
    let mut sets: Vec<_> = std::fs::read_dir(dir).unwrap().flatten().map(|e| e.path()).filter(|p| p.is_dir()).collect();
    sets.sort();
    for set in sets {
        let mut m = model.clone();
        // Inputs are given by position; what the graph needs at compile time becomes part of the model.
        let mut given = BTreeMap::new();
        let names: Vec<String> = m.graph.inputs.iter().map(|v| v.name.clone()).collect();
        for (i, name) in names.iter().enumerate() {
            let path = set.join(format!("input_{i}.pb"));
            if !path.exists() {
                continue;
            }
            match load_pb(&path) {
                Ok((_, t)) => given.insert(name.clone(), t),
                Err(e) => return Verdict::Unsupported(e.to_string()),
            };
        }
        let fused = match graph::fuse(&m, &Options::default()) {
            Ok(f) => f,
            Err(first) => {
                // Shapes, axes and the like that the test passes as inputs: fix all but the first as constants.
                for name in names.iter().skip(1).chain(names.first()) {
                    if let Some(t) = given.get(name) {
                        m.graph.initializers.insert(name.clone(), t.clone());
                        if graph::fuse(&m, &Options::default()).is_ok() {
                            break;
                        }
                    }
                }
                match graph::fuse(&m, &Options::default()) {
                    Ok(f) => f,
                    Err(_) if first.to_string().contains("internal error") => return Verdict::Fail(first.to_string()),
                    Err(_) => return Verdict::Unsupported(first.to_string()),
                }
            }
        };
        let inputs: Vec<_> = m.required_inputs().map(|v| given[&v.name].clone()).collect();
        let outputs = match Interpreter::new(&fused).run(&fused, &inputs) {
            Ok(o) => o,
            Err(e) => return Verdict::Fail(e),
        };
        for (i, got) in outputs.iter().enumerate() {
            let want = match load_pb(&set.join(format!("output_{i}.pb"))) {
                Ok((_, t)) => t,
                Err(e) => return Verdict::Unsupported(e.to_string()),
            };
            if got.shape() != want.shape() || got.dtype() != want.dtype() {
                return Verdict::Fail(format!("output {i} is {got:?}, not {want:?}"));
            }
            for (k, (a, b)) in got.to_f64().iter().zip(want.to_f64()).enumerate() {
                let same = *a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-7 + 1e-3 * b.abs();
                if !same {
                    return Verdict::Fail(format!("output {i}, element {k}: {a} instead of {b}"));
                }
            }
        }
    }
    Verdict::Pass
}

#[test]
#[ignore = "needs the ONNX test tree, see the head of this file"]
fn node_tests() {
    let Some(root) = std::env::var_os("BAREWAVE_ONNX_TESTS") else { panic!("BAREWAVE_ONNX_TESTS is not set") };
    let filter = std::env::var("BAREWAVE_ONNX_FILTER").unwrap_or_default();
    let mut dirs: Vec<_> = std::fs::read_dir(root).unwrap().flatten().map(|e| e.path()).collect();
    dirs.sort();
    let (mut pass, mut failed, mut unsupported) = (0, Vec::new(), BTreeMap::<String, usize>::new());
    for dir in dirs.iter().filter(|d| d.join("model.onnx").exists()) {
        let name = dir.file_name().unwrap().to_string_lossy().into_owned();
        if !name.contains(&filter) {
            continue;
        }
        match run_case(dir) {
            Verdict::Pass => pass += 1,
            Verdict::Fail(e) => failed.push(format!("{name}: {e}")),
            Verdict::Unsupported(e) => {
                println!("unsupported {name}: {e}");
                *unsupported.entry(e).or_default() += 1;
            }
        }
    }
    println!("{pass} pass, {} fail, {} unsupported", failed.len(), unsupported.values().sum::<usize>());
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
