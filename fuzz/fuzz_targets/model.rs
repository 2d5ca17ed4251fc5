//! Any bytes are an ONNX model or an error with a message; a model that reads is fused and compiled, or refused.
#![no_main]

use barewave::graph::Options;
use barewave::onnx::Model;
use barewave::{Compiler, Options as CompilerOptions};
use barewave_isa::Target;
use libfuzzer_sys::fuzz_target;
use std::path::Path;

fuzz_target!(|data: &[u8]| {
    let Ok(model) = Model::from_bytes(data.to_vec().into(), Path::new("/nonexistent/m.onnx")) else { return };
    let dims = ["N", "batch", "batch_size", "sequence"].map(|n| (n.to_string(), 2)).into();
    for options in [Options::default(), Options { dims, ..Options::default() }] {
        let compiled = Compiler::new(Target::GFX1100, CompilerOptions::default()).compile(&model, &options);
        let internal = compiled.as_ref().is_err_and(|e| e.to_string().contains("internal error"));
        assert!(!internal, "{}", compiled.unwrap_err());
    }
});
