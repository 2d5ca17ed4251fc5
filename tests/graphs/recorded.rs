//! Small models of operators that ONNX's own tests do not have, against what onnxruntime computed
//! (`tools/record_operators.py`), on devices that check every launch.

use barewave::onnx::Model;
use barewave::runtime::EmulatedDevice;
use barewave::tensor::{HostTensor, compare, load_pb};
use barewave::{AnyShape, Compiler, Options};
use barewave_isa::Target;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn tensors(case: &Path, kind: &str) -> Vec<HostTensor> {
    let file = |i: usize| case.join(format!("test_data_set_0/{kind}_{i}.pb"));
    (0..).map(file).take_while(|f| f.exists()).map(|f| load_pb(&f).unwrap().1).collect()
}

fn check(case: &Path, target: Target) -> Result<(), String> {
    let model = Model::load(&case.join("model.onnx")).map_err(|e| e.to_string())?;
    let tolerance: f64 = model.metadata.get("tolerance").map_or(1e-4, |t| t.parse().unwrap());
    let device = Arc::new(EmulatedDevice::new(target, true).unwrap());
    let mut runner = AnyShape::new(device, Compiler::new(target, Options::default()), Arc::new(model), 1);
    let (results, _) = runner.run(&tensors(case, "input")).map_err(|e| e.to_string())?;
    let expected = tensors(case, "output");
    assert_eq!(results.len(), expected.len());
    for (i, (got, want)) in results.iter().zip(&expected).enumerate() {
        let compared = compare(got, want, 1e-4, 1e-5).map_err(|e| format!("output {i}: {e}"))?;
        if !compared.passes() && (compared.relative() > tolerance || tolerance == 1e-4) {
            return Err(format!("output {i}: {compared}"));
        }
    }
    Ok(())
}

#[test]
fn operators_compute_what_onnxruntime_does() {
    let mut cases: Vec<PathBuf> =
        std::fs::read_dir("tests/recorded").unwrap().map(|e| e.unwrap().path()).filter(|p| p.is_dir()).collect();
    cases.sort();
    assert!(cases.len() >= 25);
    let mut wrong = Vec::new();
    for target in [Target::GFX942, Target::GFX1100] {
        for case in &cases {
            if let Err(e) = check(case, target) {
                wrong.push(format!("{} on {}: {e}", case.display(), target.info().name));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
