//! Attention that is found in a graph computes what the steps did that it stands for.

use crate::support::agree::outputs_on;
use crate::support::build::{Builder, float, int, ints};
use barewave::graph::fused::{Attention, FusedGraph, StepKind, Undefined};
use barewave::graph::interpret::Interpreter;
use barewave::graph::{Options, attend, fuse};
use barewave::tensor::{DType, HostTensor};

/// Both forms of a graph compute the same; gives the attention.
fn same(b: &Builder) -> Attention {
    let graph = fuse(&b.model, &Options::default()).unwrap();
    let joined = attend(&graph, |_, _, _| true).expect("an attention is found");
    joined.check().unwrap();
    let run = |g: &FusedGraph| Interpreter::new(g).run(g, &b.inputs).unwrap()[0].to_f64();
    for (x, y) in run(&graph).iter().zip(run(&joined)) {
        assert!((x - y).abs() < 1e-5, "{x} {y}");
    }
    let found = |kind: &StepKind| if let StepKind::Attention(a) = kind { Some(a.clone()) } else { None };
    joined.steps.iter().find_map(|s| found(&s.kind)).unwrap()
}

#[test]
fn operators_of_shared_heads_and_a_diagonal() {
    let heads = [("q_num_heads", int(4)), ("kv_num_heads", int(2))];
    let causal = [&heads[..], &[("is_causal", int(1)), ("softcap", float(2.0))]].concat();
    for (attributes, diagonal) in [(&heads[..], None), (&causal[..], Some(0))] {
        let mut b = Builder::new(23, 7);
        let [q, k, v] = [[2, 5, 24], [2, 7, 12], [2, 7, 18]].map(|shape| b.input(&shape));
        let y = b.node("Attention", &[&q, &k, &v], attributes);
        b.output(&y);
        let found = same(&b);
        assert_eq!((found.causal, found.operands), (diagonal, 0));
    }
}

#[test]
fn what_exporters_write() {
    let mut b = Builder::new(23, 7);
    let [q, k, v, mask] = [[1, 3, 6, 8], [1, 3, 9, 8], [1, 3, 9, 4], [1, 1, 6, 9]].map(|shape| b.input(&shape));
    let turned = b.node("Transpose", &[&k], &[("perm", ints(&[0, 1, 3, 2]))]);
    let scores = b.node("MatMul", &[&q, &turned], &[]);
    let masked = b.node("Add", &[&scores, &mask], &[]);
    let weights = b.node("Softmax", &[&masked], &[("axis", int(-1))]);
    let out = b.node("MatMul", &[&weights, &v], &[]);
    let y = b.node("Transpose", &[&out], &[("perm", ints(&[0, 2, 1, 3]))]);
    b.output(&y);
    let found = same(&b);
    assert_eq!((found.causal, found.operands, found.undefined), (None, 1, Undefined::Nan));
}

/// Scores with a mask of this type, and what becomes of them; of each batch the first half of the queries sees nothing, and the last one
/// only half of the keys.
fn hidden(dtype: DType, [queries, keys, size]: [usize; 3], hides: f64, zero_of_nan: bool) -> Builder {
    let mut b = Builder::new(17, keys as u64);
    let mut input = |shape: &[usize]| {
        let x = b.random(shape).to_f64();
        b.input_of(HostTensor::from_f64(dtype, shape, &x))
    };
    // Keys in lines, or lines across keys.
    let lines = keys % 100 == 0;
    let of_k = if lines { [2, 3, keys, size] } else { [2, 3, size, keys] };
    let [q, mut k, v] = [[2, 3, queries, size], of_k, [2, 3, keys, size]].map(|shape| input(&shape));
    if lines {
        k = b.node("Transpose", &[&k], &[("perm", ints(&[0, 1, 3, 2]))]);
    }
    let row = |m: usize, n: usize| {
        let none = m < queries / 2 || m + 1 == queries && (queries == 1 || n >= keys / 2);
        if none { hides } else { 0.0 }
    };
    let mask: Vec<f64> = (0..queries).flat_map(|m| (0..keys).map(move |n| row(m, n))).collect();
    let mask = b.input_of(HostTensor::from_f64(dtype, &[1, 1, queries, keys], &mask));
    let scores = b.node("MatMul", &[&q, &k], &[]);
    let masked = b.node("Add", &[&scores, &mask], &[]);
    let mut weights = b.node("Softmax", &[&masked], &[("axis", int(-1))]);
    if zero_of_nan {
        let nan = b.node("IsNaN", &[&weights], &[]);
        let zero = b.constant(HostTensor::from_f64(dtype, &[], &[0.0]));
        weights = b.node("Where", &[&nan, &zero, &weights], &[]);
    }
    let y = b.node("MatMul", &[&weights, &v], &[]);
    b.output(&y);
    b
}

const HIDDEN: [[usize; 3]; 4] = [[64, 64, 32], [40, 300, 64], [1, 512, 64], [3, 700, 64]];
const HIDDEN_ON: [&str; 7] = ["gfx906", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201"];

#[test]
fn keys_that_a_finite_mask_hides_from_a_query_all_count_alike() {
    for shape in HIDDEN {
        for hides in [f64::from(f32::MIN), -1e38, -1e30, -1e12, 1e12] {
            let b = hidden(DType::F32, shape, hides, false);
            outputs_on(&b, &format!("{shape:?} hidden by {hides:e}"), 1e-4, &HIDDEN_ON);
        }
        let b = hidden(DType::BF16, shape, -3.38e38, false);
        outputs_on(&b, &format!("bf16 {shape:?} hidden"), 2e-2, &HIDDEN_ON);
    }
}

#[test]
fn zeros_in_the_place_of_weights_that_are_no_numbers() {
    for (dtype, most) in [(DType::F32, 1e-5), (DType::F16, 4e-3)] {
        for shape in HIDDEN {
            let mut b = hidden(dtype, shape, f64::NEG_INFINITY, true);
            if dtype == DType::F32 {
                assert_eq!(same(&b).undefined, Undefined::Zero);
            }
            outputs_on(&b, &format!("{dtype} {shape:?} sees nothing"), most, &HIDDEN_ON);
            // A score that is none, and one that is infinite.
            let [queries, keys, _] = shape;
            let mut mask = vec![0.0; queries * keys];
            (mask[keys - 1], mask[queries * keys / 2]) = (f64::NAN, f64::INFINITY);
            b.inputs[3] = HostTensor::from_f64(dtype, &[1, 1, queries, keys], &mask);
            outputs_on(&b, &format!("{dtype} {shape:?} of no numbers"), most, &HIDDEN_ON);
        }
    }
}
