//! Random models: the fused graph, run on the host, must compute what the independent reference computes.
//!
//! `operators` tries each operator with random attributes and odd shapes; `networks` grows random graphs with branches,
//! values that are read several times, and layout operators between computations, which is where fusion and views can go
//! wrong. A failure prints the seed and the fused graph.

use crate::support::build::Builder;
use crate::support::generate::{OPERATORS, network, operator};
use crate::support::{mixed, parts, reference, wider};
use barewave::graph::interpret::Interpreter;
use barewave::graph::{self, Options, plan};

/// Compares the outputs; the error names what differs.
fn agree(b: &Builder, tolerance: f64) -> Result<usize, String> {
    let fused = graph::fuse(&b.model, &Options::default()).map_err(|e| e.to_string())?;
    parts::unwritten(&fused)?;
    let got = Interpreter::new(&fused).run(&fused, &b.inputs).map_err(|e| format!("{e}\n{fused}"))?;
    let want = reference::run(&b.model, &b.inputs);
    for (i, (g, w)) in got.iter().zip(&want).enumerate() {
        if g.shape() != w.shape {
            return Err(format!("output {i} has shape {:?}, not {:?}\n{fused}", g.shape(), w.shape));
        }
        for (k, (x, y)) in g.to_f64().iter().zip(&w.data).enumerate() {
            // Not `> tolerance`: a NaN must fail.
            let close = (x - y).abs() <= tolerance * (1.0 + y.abs());
            if !close {
                return Err(format!("output {i}, element {k}: {x} instead of {y}\n{fused}"));
            }
        }
    }
    let p = plan::plan(&fused, |_| true, |_| 0, &mut plan::WeightsRegion::default());
    assert!(p.arena_bytes <= p.sum_bytes);
    Ok(fused.steps.len())
}

/// How many models of each operator are tried.
const EACH: u64 = 1000;

fn operators_of(list: &[&str], opset: i64, make: fn(&mut Builder, &str)) {
    for op in list {
        for seed in 0..EACH {
            let mut b = Builder::new(opset, seed);
            make(&mut b, op);
            if let Err(e) = agree(&b, 1e-5) {
                panic!("{op}, seed {seed}: {e}\n{:?}", b.model.graph.nodes);
            }
        }
    }
}

#[test]
fn operators() {
    operators_of(&OPERATORS, 17, operator);
}

#[test]
fn wider_operators() {
    operators_of(&wider::OPERATORS, 18, wider::operator);
}

#[test]
fn networks() {
    let mut nodes = 0;
    let mut steps = 0;
    for seed in 0..1500 {
        let b = network(1000 + seed);
        match agree(&b, 1e-5) {
            Ok(n) => steps += n,
            Err(e) => panic!(
                "seed {seed}: {e}\n{:#?}",
                b.model
                    .graph
                    .nodes
                    .iter()
                    .map(|n| format!("{:?} = {}({:?})", n.outputs, n.op, n.inputs))
                    .collect::<Vec<_>>()
            ),
        }
        nodes += b.model.graph.nodes.len();
    }
    println!("{nodes} nodes in {steps} steps");
    assert!(steps * 3 < nodes * 2, "fusion does little: {nodes} nodes in {steps} steps");
}

/// Values of every type, moved and joined, before every family of operators: the fused graph against each operator by itself.
#[test]
fn mixed_networks() {
    let (mut nodes, mut failures) = (0, Vec::new());
    for seed in 0..4000 {
        let g = mixed::network(seed);
        nodes += g.len();
        let fused = graph::fuse(&g.b.model, &Options::default()).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        parts::unwritten(&fused).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let got = Interpreter::new(&fused).run(&fused, &g.b.inputs).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        if let Err(e) = g.agree(&got) {
            failures.push(format!("seed {seed}, {e}"));
        }
    }
    println!("{nodes} nodes");
    assert!(failures.is_empty(), "{} fail:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn parts_that_are_read_too_early_are_found() {
    let mut b = Builder::new(17, 0);
    let x = b.input(&[3, 5]);
    // Kernels of their own, which write a part each.
    let parts = ["Softmax", "LogSoftmax"].map(|op| b.node(op, &[&x], &[]));
    let all = b.node("Concat", &[&parts[0], &parts[1]], &[("axis", crate::support::build::int(1))]);
    let y = b.node("Softmax", &[&all], &[]);
    b.output(&y);
    let mut fused = graph::fuse(&b.model, &Options::default()).unwrap();
    assert_eq!(parts::unwritten(&fused), Ok(()));
    let last = fused.steps.len() - 1;
    fused.steps.swap(last - 1, last);
    let e = parts::unwritten(&fused).unwrap_err();
    assert!(e.contains("before it is written"), "{e}");
}
