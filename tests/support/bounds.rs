//! Results in every float type on emulated devices in strict mode, against references in f64 with bounds that follow from the type: what is
//! stored is rounded once, sums are kept in f32 (f64 for doubles), so that an error is at most half a unit in the last place of
//! the result's type, and a unit of the type that sums are kept in for each addition of a term.

use super::build::Builder;
use super::{device, drawn};
use barewave::graph::{Options, fuse};
use barewave::tensor::{DType, HostTensor};

/// One target per instruction set with other matrix instructions, registers or waves.
pub const TARGETS: [&str; 9] =
    ["gfx803", "gfx906", "gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201"];

pub const FLOATS: [DType; 4] = [DType::F16, DType::BF16, DType::F32, DType::F64];

/// Bits of a type's fraction.
pub fn fraction(t: DType) -> i32 {
    match t {
        DType::F16 => 10,
        DType::BF16 => 7,
        DType::F32 => 23,
        _ => 52,
    }
}

/// Rounding of a result that is `size` large, and of `terms` sums of magnitude `mass`.
pub fn bound(t: DType, size: f64, terms: usize, mass: f64) -> f64 {
    let sums = if t == DType::F64 { 53 } else { 24 };
    let least = if t == DType::F16 { 2f64.powi(-25) } else { 0.0 };
    size * 2f64.powi(-fraction(t) - 1) * 1.001 + least + (terms + 4) as f64 * 2f64.powi(-sums) * mass
}

pub fn values(b: &mut Builder, t: DType, shape: &[usize]) -> HostTensor {
    let x = b.random(shape).to_f64();
    HostTensor::from_f64(t, shape, &x)
}

/// Runs on all targets and compares with reference values and their bounds.
pub fn check(b: &Builder, what: &str, want: &[(f64, f64)], targets: &[&str]) {
    let graph = fuse(&b.model, &Options::default()).unwrap_or_else(|e| panic!("{what}: {e}"));
    for target in targets.iter().filter(|t| drawn(&format!("{what} {t}"))) {
        let (out, _) = device::run(&graph, &b.inputs, target, true).unwrap_or_else(|e| panic!("{what} {target}: {e}"));
        let got = out[0].to_f64();
        assert_eq!(got.len(), want.len(), "{what} {target}");
        for (i, (x, (y, bound))) in got.iter().zip(want).enumerate() {
            let error = if x == y { 0.0 } else { (x - y).abs() };
            assert!(error <= *bound, "{what} {target}: element {i} is {x:e} instead of {y:e}, {error:e} > {bound:e}");
        }
    }
}
