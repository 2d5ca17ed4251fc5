//! Compiles a fused graph and runs it on an emulated device, from the bytes of the code object.

use super::parts;
use barewave::Compiled;
use barewave::compile::compile;
use barewave::graph::fused::FusedGraph;
use barewave::passes::listing::listing;
use barewave::runtime::{EmulatedDevice, RunReport, Session};
use barewave::tensor::HostTensor;
use barewave_isa::Target;
use std::sync::Arc;

/// Targets that tests run on: one of each kind of wave, counter and register file.
pub const TARGETS: [&str; 7] = ["gfx906", "gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx803", "gfx1201"];

/// A model loaded on an emulated device. `strict` checks every launch for undefined behaviour.
pub fn session(fused: &FusedGraph, target: &str, strict: bool) -> Result<(Session, Compiled), String> {
    parts::unwritten(fused)?;
    let target = Target::parse(target).map_err(|e| e.to_string())?;
    let program = compile(fused, target).map_err(|e| e.to_string())?;
    let device = EmulatedDevice::new(target, strict).map_err(|e| e.to_string())?;
    let session = Session::new(Arc::new(device), &program);
    Ok((session.map_err(|e| e.to_string())?, program))
}

/// Runs a graph once.
pub fn run(
    fused: &FusedGraph,
    inputs: &[HostTensor],
    target: &str,
    strict: bool,
) -> Result<(Vec<HostTensor>, RunReport), String> {
    session(fused, target, strict)?.0.run(inputs).map_err(|e| e.to_string())
}

/// The listing of the first kernel of a graph's first step.
pub fn first_listing(fused: &FusedGraph, target: &str) -> String {
    let target = Target::parse(target).unwrap();
    let kernels = barewave::kernels::lower(fused, &fused.steps[0], target, &Default::default(), "first").unwrap();
    listing(&barewave::passes::compile(kernels[0].function.clone()).unwrap())
}
