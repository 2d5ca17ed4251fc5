//! Constants beyond what kernels address are split: with a bound of a few thousand bytes in place of a GiB, every kind of step that
//! is split gives what the whole constant gives, on strict devices and in f64.

mod support;

use barewave::graph::fused::{FusedGraph, Role};
use barewave::graph::interpret::Interpreter;
use barewave::graph::{Options, fuse, split_large};
use barewave::tensor::{DType, HostTensor};
use support::build::{Builder, int};
use support::device;

const TARGETS: [&str; 5] = ["gfx906", "gfx942", "gfx1030", "gfx1100", "gfx1201"];

/// Splits constants of `largest` bytes and compares; gives the graph.
fn check(b: &Builder, what: &str, largest: usize) -> FusedGraph {
    let mut model = b.model.clone();
    model.opsets.insert("com.microsoft".into(), 1);
    model.expand();
    let whole = fuse(&model, &Options::default()).unwrap_or_else(|e| panic!("{what}: {e}"));
    let want = Interpreter::new(&whole).run(&whole, &b.inputs).unwrap();
    let mut graph = whole.clone();
    split_large(&mut graph, largest);
    assert!(graph.steps.len() > whole.steps.len(), "{what}: not split");
    graph.check().unwrap_or_else(|e| panic!("{what}: {e}"));
    let constants = |t: &&barewave::graph::fused::Tensor| matches!(t.role, Role::Constant(_));
    for t in graph.tensors.iter().filter(constants) {
        assert!(t.bytes() < largest, "{what}: {} has {} bytes", t.name, t.bytes());
    }
    let size = want[0].to_f64().iter().fold(1e-30, |m: f64, x| m.max(x.abs()));
    for target in TARGETS {
        let (got, _) = device::run(&graph, &b.inputs, target, true).unwrap_or_else(|e| panic!("{what} {target}: {e}"));
        let worst = got[0].to_f64().iter().zip(want[0].to_f64()).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
        assert!(got[0].len() == want[0].len() && worst <= 2e-6 * size, "{what} {target}: off by {worst:e} of {size}");
    }
    graph
}

#[test]
fn rows_of_a_large_table() {
    for t in [DType::I64, DType::I32] {
        let mut b = Builder::new(17, 1);
        let table = b.weight(&[301, 24]);
        let index: Vec<i64> = vec![0, 300, -1, 31, 32, 150, -301, 299, 255];
        let at = b.input_of(HostTensor::from_ints(t, &[3, 3], &index));
        let x = b.node("Gather", &[&table, &at], &[]);
        let y = b.node("Tanh", &[&x], &[]);
        b.output(&y);
        let graph = check(&b, "gather", 4096);
        assert_eq!(graph.steps.last().unwrap().inputs.len(), 11, "{graph}");
    }
}

#[test]
fn products_with_large_constants() {
    for (case, rows) in [(0, 1), (1, 3), (2, 40), (3, 5)] {
        let mut b = Builder::new(17, 10 + case);
        let (k, n) = (70, 90);
        let x = b.input(&[rows, k]);
        let bias = b.weight(&[n]);
        let y = match case {
            // The rows of the constant are the depth, or the columns of the result.
            0 | 2 => {
                let w = b.weight(&[k, n]);
                b.node("MatMul", &[&x, &w], &[])
            }
            _ => {
                let w = b.weight(&[n, k]);
                b.node("Gemm", &[&x, &w], &[("transB", int(1))])
            }
        };
        let y = b.node("Add", &[&y, &bias], &[]);
        let y = b.node("Relu", &[&y], &[]);
        b.output(&y);
        check(&b, &format!("product {case}"), 8192);
    }
    // Experts side by side, and the constant on the left.
    let mut b = Builder::new(17, 20);
    let (x, w) = (b.input(&[6, 4, 20]), b.weight(&[6, 20, 30]));
    let y = b.node("MatMul", &[&x, &w], &[]);
    b.output(&y);
    check(&b, "batches", 8192);
    let mut b = Builder::new(17, 21);
    let (x, w) = (b.input(&[33, 9]), b.weight(&[80, 33]));
    let y = b.node("MatMul", &[&w, &x], &[]);
    b.output(&y);
    check(&b, "left", 8192);
}

/// The first and the last layer of a language model share runs of one table.
#[test]
fn a_large_table_that_is_looked_up_and_multiplied_by() {
    let mut b = Builder::new(17, 30);
    let table = b.weight(&[200, 32]);
    let at = b.input_of(HostTensor::from_i64(&[2], &[7, 199]));
    let x = b.node("Gather", &[&table, &at], &[]);
    let y = b.node("Gemm", &[&x, &table], &[("transB", int(1))]);
    b.output(&y);
    let graph = check(&b, "tied", 8192);
    let constants: usize =
        graph.tensors.iter().filter(|t| matches!(t.role, Role::Constant(_))).map(|t| t.bytes()).sum();
    assert_eq!(constants, 200 * 32 * 4);
}

#[test]
fn packed_and_added_constants() {
    let mut b = Builder::new(17, 40);
    let (k, n) = (128, 250);
    let x = b.input(&[2, k]);
    let bytes: Vec<i64> = (0..n * k / 2).map(|_| b.below(256) as i64).collect();
    let w = b.constant(HostTensor::from_ints(DType::U8, &[n, k / 32, 16], &bytes));
    let s = b.weight(&[n, k / 32]);
    let attributes = [("K", int(k as i64)), ("N", int(n as i64)), ("bits", int(4)), ("block_size", int(32))];
    let y = b.node("MatMulNBits", &[&x, &w, &s], &attributes);
    b.model.graph.nodes.last_mut().unwrap().domain = "com.microsoft".into();
    b.output(&y);
    check(&b, "packed", 8192);
    let mut b = Builder::new(17, 41);
    let (x, w) = (b.input(&[50, 60]), b.weight(&[50, 60]));
    let y = b.node("Mul", &[&x, &w], &[]);
    b.output(&y);
    check(&b, "elementwise", 8192);
}
