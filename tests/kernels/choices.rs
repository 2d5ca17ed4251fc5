//! Which tiles products and convolutions take: what the estimate knows of memory, of compute units' room, and of what is beside products. Nothing
//! runs.

use crate::support::build::{Builder, ints};
use barewave::graph::fused::FusedGraph;
use barewave::graph::{Options, fuse};
use barewave::kernels::{Candidate, EQUAL_SHARES, Tuning, candidates, lower};
use barewave::onnx::{Dim, ValueInfo};
use barewave::passes;
use barewave::tensor::{DType, HostTensor};
use barewave_isa::Target;

/// A convolution of images of an element type with windows of so many output channels, with such steps.
fn convolution(dtype: DType, input: [usize; 4], weights: [usize; 2], step: usize) -> FusedGraph {
    let mut b = Builder::new(17, 1);
    b.model.graph.inputs.push(ValueInfo {
        name: "x".into(),
        dtype: Some(dtype),
        shape: Some(input.map(Dim::Known).to_vec()),
    });
    let [channels, side] = weights;
    let shape = [channels, input[1], side, side];
    let zeros = vec![0.0; shape.iter().product()];
    let w = b.constant(HostTensor::from_f64(dtype, &shape, &zeros));
    let y = b.node("Conv", &["x", &w], &[("strides", ints(&[step; 2]))]);
    b.output(&y);
    fuse(&b.model, &Options::default()).unwrap()
}

/// The ways that are considered for it, the best first.
fn considered(target: &str, dtype: DType, input: [usize; 4], weights: [usize; 2], step: usize) -> Vec<Candidate> {
    let graph = convolution(dtype, input, weights, step);
    let target = Target::parse(target).unwrap();
    candidates(&graph, &graph.steps[0], target, &Tuning::default()).unwrap().candidates
}

/// A product of two matrices of f32.
fn product([m, n, k]: [usize; 3]) -> FusedGraph {
    let mut b = Builder::new(17, 1);
    let mut input = |name: &str, shape: [usize; 2]| {
        let shape = Some(shape.map(Dim::Known).to_vec());
        b.model.graph.inputs.push(ValueInfo { name: name.into(), dtype: Some(DType::F32), shape });
    };
    input("x", [m, k]);
    input("w", [k, n]);
    let y = b.node("MatMul", &["x", "w"], &[]);
    b.output(&y);
    fuse(&b.model, &Options::default()).unwrap()
}

/// Tiles of a deep product that run side by side are close to each other: what one reads of a row another has just read.
#[test]
fn deep_products_of_few_tiles_are_divided_in_shares() {
    let (graph, target) = (product([256, 256, 50176]), Target::parse("gfx908").unwrap());
    let all = candidates(&graph, &graph.steps[0], target, &Tuning::default()).unwrap().candidates;
    assert_eq!(all[0].parts, EQUAL_SHARES, "{:?}", &all[..4]);
}

/// Who adds parts of a tile has them in registers beside its sums: there are as many workgroups as that leaves room for.
#[test]
fn workgroups_of_equal_shares_run_at_once() {
    let (graph, target) = (product([640, 1024, 30528]), Target::parse("gfx908").unwrap());
    let kernels = lower(&graph, &graph.steps[0], target, &Tuning::default(), "k").unwrap();
    let machine = passes::compile(kernels[0].function.clone()).unwrap();
    let groups: u32 = kernels[0].grid.iter().product();
    let at_once = target.cus() * machine.occupancy().workgroups;
    assert!(kernels[0].workspace > 0 && groups <= at_once, "{groups} of {at_once}: {:?}", machine.usage);
}

/// Windows overlap: what they have in common is read once by those who run together, but again for each row of tiles, and for each part of a depth
/// as for all of it, where no cache has it until then.
#[test]
fn images_are_read_again_where_no_cache_has_them() {
    let all = considered("gfx1151", DType::F32, [16, 64, 149, 149], [96, 3], 2);
    assert!(all[0].tile[0] >= 96 && all[0].parts == 1, "{:?}", all[0]);
    let least = |all: &[&Candidate]| all.iter().map(|c| c.clocks).reduce(f64::min).unwrap();
    let (whole, shared): (Vec<&Candidate>, Vec<&Candidate>) = all.iter().partition(|c| c.parts == 1);
    // Three rows of tiles, and one for all channels.
    let narrow: Vec<&Candidate> = whole.iter().copied().filter(|c| c.tile[0] == 32).collect();
    assert!(least(&narrow) > 1.5 * least(&whole) && least(&shared) > 1.2 * least(&whole), "{all:?}");
}

/// Of a step of two each second line is passed over.
#[test]
fn lines_that_no_window_reaches_are_not_read() {
    let points = |h: usize, step: usize| considered("gfx906", DType::F32, [16, 64, h, 224], [16, 1], step)[0].clocks;
    assert!(points(224, 2) < 0.7 * points(224, 1), "{} {}", points(224, 2), points(224, 1));
}

/// What leaves the vector registers for accumulation registers in a file of their own leaves room for the other waves of a workgroup.
#[test]
fn compute_units_hold_what_they_are_given() {
    for (dtype, input, weights, step) in [
        (DType::F16, [16, 256, 56, 56], [512, 1], 2),
        (DType::F32, [16, 256, 56, 56], [512, 1], 2),
        (DType::F16, [16, 128, 56, 56], [256, 3], 2),
    ] {
        let graph = convolution(dtype, input, weights, step);
        let kernels =
            lower(&graph, &graph.steps[0], Target::parse("gfx908").unwrap(), &Tuning::default(), "k").unwrap();
        let machine = passes::compile(kernels[0].function.clone()).unwrap();
        assert!(machine.occupancy().workgroups > 0, "{dtype} {input:?} {:?}", machine.usage);
    }
}
