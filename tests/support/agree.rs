//! Models on emulated devices in strict mode against their operators one by one, interpreted in f64.

use super::apart;
use super::build::Builder;
use super::device;
use super::drawn;
use barewave::graph::{Options, fuse};
use barewave::tensor::HostTensor;
use barewave::{kernels, passes};
use barewave_isa::Target;

pub const TARGETS: [&str; 5] = ["gfx906", "gfx942", "gfx1030", "gfx1100", "gfx1201"];

/// Runs a model everywhere; gives what its operators make of it one by one. `most` bounds the error by the largest magnitude.
pub fn outputs(b: &Builder, what: &str, most: f64) -> Vec<HostTensor> {
    outputs_on(b, what, most, &TARGETS)
}

/// The same on these targets.
pub fn outputs_on(b: &Builder, what: &str, most: f64, targets: &[&str]) -> Vec<HostTensor> {
    let mut model = b.model.clone();
    model.expand();
    let graph = fuse(&model, &Options::default()).unwrap_or_else(|e| panic!("{what}: {e}"));
    let want = apart::outputs(&model, &b.inputs).unwrap_or_else(|e| panic!("{what}: {e}"));
    for target in targets.iter().filter(|t| drawn(&format!("{what} {t}"))) {
        let (got, _) = device::run(&graph, &b.inputs, target, true).unwrap_or_else(|e| panic!("{what} {target}: {e}"));
        for (g, w) in got.iter().zip(&want) {
            assert_eq!((g.shape(), g.dtype()), (w.shape(), w.dtype()), "{what} {target}");
            close(&g.to_f64(), &w.to_f64(), most, &format!("{what} {target}"));
        }
    }
    want
}

/// The kernel of a model's first step for a target, as text.
pub fn listing(b: &Builder, target: Target) -> String {
    let graph = fuse(&b.model, &Options::default()).unwrap();
    let kernels = kernels::lower(&graph, &graph.steps[0], target, &Default::default(), "first").unwrap();
    passes::listing::listing(&passes::compile(kernels[0].function.clone()).unwrap())
}

pub fn close(got: &[f64], want: &[f64], most: f64, what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    let size = want.iter().filter(|x| x.is_finite()).fold(1e-30, |m: f64, x| m.max(x.abs()));
    for (i, (x, y)) in got.iter().zip(want).enumerate() {
        let error = if x == y || x.is_nan() && y.is_nan() { 0.0 } else { (x - y).abs() / size };
        assert!(error <= most, "{what}: element {i} is {x:e} instead of {y:e}");
    }
}

/// Makes the values that the last node gives outputs, and its domain another.
pub fn finish(b: &mut Builder, domain: &str, outputs: &[String]) {
    b.model.graph.nodes.last_mut().unwrap().domain = domain.into();
    outputs.iter().for_each(|o| b.output(o));
}
