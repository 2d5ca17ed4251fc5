//! Attention that is found in a graph computes what the steps did that it stands for.

use crate::support::build::{Builder, float, int, ints};
use barewave::graph::fused::{Attention, FusedGraph, StepKind};
use barewave::graph::interpret::Interpreter;
use barewave::graph::{Options, attend, fuse};

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
    assert_eq!((found.causal, found.operands, found.masked), (None, 1, false));
}
