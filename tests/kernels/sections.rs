//! What is read twice and is more than a cache before memory keeps: in sections, each read again right behind its first time. An emulated device
//! with a small one in strict mode against the f64 interpreter of the fused graph.

use crate::support::agree::{finish, outputs_on};
use crate::support::build::{Builder, int, ints};
use barewave::tensor::{DType, HostTensor};
use barewave_isa::Target;

/// Its memory-side cache has 32 MiB.
const TARGET: (&str, Target) = ("gfx1102", Target::GFX1102);

/// Launches of a model.
fn launches(b: &Builder) -> usize {
    let graph = barewave::graph::fuse(&b.model, &Default::default()).unwrap();
    // Some may share a launch.
    let compiled = barewave::compile::compile(&graph, TARGET.1).unwrap();
    compiled.plan().launches.iter().map(|l| l.beside.len().max(1)).sum()
}

/// Groups of channels of images, of which the last section has fewer than the others.
#[test]
fn groups_of_channels_in_sections() {
    let (shape, groups) = ([5, 72, 64, 320], 32);
    let mut b = Builder::new(21, 1);
    let data: Vec<f64> = (0..shape.iter().product()).map(|i| b.below(64) as f64 / 16.0 + (i % 7) as f64).collect();
    let x = b.input_of(HostTensor::from_f64(DType::F32, &shape, &data));
    let first = b.node("Transpose", &[&x], &[("perm", ints(&[0, 3, 1, 2]))]);
    let scales: Vec<f64> = (0..shape[3]).map(|k| 1.0 + (k % 4) as f64 / 4.0).collect();
    let biases: Vec<f64> = (0..shape[3]).map(|k| (k % 3) as f64 - 1.0).collect();
    let [scale, bias] = [scales, biases].map(|v| b.constant(HostTensor::from_f64(DType::F32, &[shape[3]], &v)));
    let y = b.node("GroupNormalization", &[&first, &scale, &bias], &[("num_groups", int(groups))]);
    let y = b.node("Transpose", &[&y], &[("perm", ints(&[0, 2, 3, 1]))]);
    finish(&mut b, "", &[y]);
    assert_eq!(launches(&b), 4);
    outputs_on(&b, "groups in sections", 1e-5, &[TARGET.0]);
}

/// Running sums and products of few lines and of few columns, from either end, with and without their own elements, in pieces that are equal and where
/// some are left.
#[test]
fn running_sums_in_sections() {
    let cases: [(DType, &[usize], i32, [i64; 2]); 4] = [
        (DType::F32, &[2, 3_200_000], 1, [0, 0]),
        (DType::F32, &[1, 9_200_011], 1, [1, 1]),
        (DType::F16, &[1_200_000, 16], 0, [0, 1]),
        (DType::F32, &[600_003, 16], 0, [1, 0]),
    ];
    let mut equal = 0;
    for (t, shape, axis, [exclusive, reverse]) in cases {
        let what = format!("sums of {t} {shape:?} along {axis}, exclusive {exclusive}, reverse {reverse}");
        let mut b = Builder::new(17, 4);
        // Sums that every type holds: of each three neighbours along the axis 0.
        let step: usize = shape[axis as usize + 1..].iter().product();
        let of = |i: usize| [1.0, 2.0, -3.0][i / step % shape[axis as usize] % 3];
        let x: Vec<f64> = (0..shape.iter().product()).map(of).collect();
        let x = b.input_of(HostTensor::from_f64(t, shape, &x));
        let along = b.constant(HostTensor::from_i32(&[], &[axis]));
        let attributes = [("exclusive", int(exclusive)), ("reverse", int(reverse))];
        let y = b.node("CumSum", &[&x, &along], &attributes);
        let y = b.node("Neg", &[&y], &[]);
        finish(&mut b, "", &[y]);
        // One section takes three, and two more where pieces are left.
        let launches = launches(&b);
        assert!(launches > 5, "{what}: {launches} launches");
        equal += usize::from(launches.is_multiple_of(3));
        outputs_on(&b, &what, 0.0, &[TARGET.0]);
    }
    assert!((1..4).contains(&equal), "{equal} of 4 in equal pieces");
}
