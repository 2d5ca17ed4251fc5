//! Constants beyond what kernels address are split: with a bound of a few thousand bytes in place of a GiB, every kind of step that
//! is split gives what the whole constant gives, on strict devices and in f64. So do steps over such tensors that are computed.

use crate::support::build::{Builder, int, ints};
use crate::support::device;
use barewave::graph::fused::{FusedGraph, Role};
use barewave::graph::interpret::Interpreter;
use barewave::graph::{Options, fuse, split_far, split_large};
use barewave::tensor::{DType, HostTensor};

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

/// Cuts what reaches over `largest` bytes and compares; gives how many steps there are.
fn cut(b: &Builder, what: &str, largest: usize) -> usize {
    let whole = fuse(&b.model, &Options::default()).unwrap_or_else(|e| panic!("{what}: {e}"));
    let want = Interpreter::new(&whole).run(&whole, &b.inputs).unwrap();
    let mut graph = whole.clone();
    split_far(&mut graph, largest);
    assert!(graph.steps.len() > whole.steps.len(), "{what}: not cut");
    graph.check().unwrap_or_else(|e| panic!("{what}: {e}\n{graph}"));
    for step in &graph.steps {
        for a in step.inputs.iter().chain([&step.output]).filter(|a| a.indirect.is_empty() && a.guard.is_none()) {
            let (first, last) = a.view.extent().unwrap();
            let t = graph.tensor(a.tensor);
            assert!(
                (last + 1 - first) as usize * t.dtype.size() < largest,
                "{what}: {} of {}\n{graph}",
                step.name,
                t.name
            );
        }
    }
    let got = Interpreter::new(&graph).run(&graph, &b.inputs).unwrap();
    let on_device =
        TARGETS.map(|t| (t, device::run(&graph, &b.inputs, t, true).unwrap_or_else(|e| panic!("{what} {t}: {e}")).0));
    for (target, got) in [("host", got)].into_iter().chain(on_device) {
        for (got, want) in got.iter().zip(&want) {
            let size = want.to_f64().iter().fold(1e-30, |m: f64, x| m.max(x.abs()));
            let worst = got.to_f64().iter().zip(want.to_f64()).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
            assert!(got.len() == want.len() && worst <= 2e-6 * size, "{what} {target}: off by {worst:e} of {size}");
        }
    }
    graph.steps.len()
}

/// What is computed at run time is large as well.
#[test]
fn steps_over_large_inputs() {
    let make = |what: &str, f: &dyn Fn(&mut Builder) -> String| {
        let mut b = Builder::new(18, 50);
        let y = f(&mut b);
        b.output(&y);
        cut(&b, what, 8192)
    };
    make("elementwise", &|b| {
        let (x, z) = (b.input(&[70, 61]), b.input(&[61]));
        let y = b.node("Mul", &[&x, &z], &[]);
        b.node("Tanh", &[&y], &[])
    });
    let turned = make("transposed", &|b| {
        let x = b.input(&[70, 61]);
        let y = b.node("Transpose", &[&x], &[("perm", ints(&[1, 0]))]);
        b.node("Relu", &[&y], &[])
    });
    assert!(turned >= 9, "{turned}");
    make("joined", &|b| {
        let (x, z) = (b.input(&[50, 61]), b.input(&[30, 61]));
        b.node("Concat", &[&x, &z], &[("axis", int(0))])
    });
    make("padded", &|b| {
        let x = b.input(&[50, 61]);
        let pads = b.ints(&[40, 3, 60, 5]);
        b.node("Pad", &[&x, &pads], &[])
    });
    make("gathered", &|b| {
        let x = b.input(&[301, 24]);
        let at = b.input_of(HostTensor::from_i64(&[9], &[0, 300, -1, 31, 32, 150, -301, 299, 255]));
        b.node("Gather", &[&x, &at], &[])
    });
    make("gathered to many", &|b| {
        let x = b.input(&[9, 300]);
        let at: Vec<i64> = (0..40).map(|i| (i * 7) % 18 - 9).collect();
        let at = b.input_of(HostTensor::from_i64(&[40], &at));
        b.node("Gather", &[&x, &at], &[])
    });
    make("rows of a product", &|b| {
        let (x, w, z) = (b.input(&[90, 40]), b.weight(&[40, 33]), b.input(&[33]));
        let y = b.node("MatMul", &[&x, &w], &[]);
        b.node("Add", &[&y, &z], &[])
    });
    make("depth of a product", &|b| {
        let (x, w) = (b.input(&[2, 1500]), b.input(&[1500, 3]));
        let y = b.node("MatMul", &[&x, &w], &[]);
        b.node("Relu", &[&y], &[])
    });
    make("batches of a product", &|b| {
        let (x, w) = (b.input(&[5, 20, 30]), b.input(&[5, 30, 20]));
        b.node("MatMul", &[&x, &w], &[])
    });
    make("pictures", &|b| {
        let (x, w, z) = (b.input(&[4, 3, 14, 17]), b.weight(&[8, 3, 3, 3]), b.weight(&[8]));
        let y = b.node("Conv", &[&x, &w, &z], &[("pads", ints(&[1, 1, 1, 1]))]);
        b.node("Relu", &[&y], &[])
    });
    make("channels", &|b| {
        let (x, w) = (b.input(&[1, 3, 20, 17]), b.weight(&[16, 3, 3, 3]));
        b.node("Conv", &[&x, &w], &[("pads", ints(&[1, 1, 1, 1]))])
    });
    make("windows", &|b| {
        let x = b.input(&[2, 6, 20, 17]);
        b.node("MaxPool", &[&x], &[("kernel_shape", ints(&[3, 3])), ("strides", ints(&[2, 2]))])
    });
    make("softmax", &|b| {
        let x = b.input(&[3, 30, 61]);
        b.node("Softmax", &[&x], &[("axis", int(-1))])
    });
    make("layers", &|b| {
        let (x, s, z) = (b.input(&[90, 61]), b.weight(&[61]), b.weight(&[61]));
        b.node("LayerNormalization", &[&x, &s, &z], &[])
    });
    for op in ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceLogSumExp"] {
        make(op, &|b| {
            let x = b.input(&[70, 61]);
            b.node(op, &[&x], &[])
        });
    }
    make("columns", &|b| {
        let x = b.input(&[70, 61]);
        let axes = b.ints(&[0]);
        b.node("ReduceSum", &[&x, &axes], &[])
    });
    make("rows", &|b| {
        let x = b.input(&[70, 61]);
        b.node("ArgMax", &[&x], &[("axis", int(1))])
    });
}

/// Where offsets of 32 bits do not reach: rows and elements around the end of 1.1 GiB.
#[test]
fn a_table_of_more_than_a_gib() {
    let (rows, width) = (1_126_400, 1024);
    let mut bytes = vec![0; rows * width];
    for (i, at) in (0..rows * width).step_by(4097).enumerate() {
        bytes[at] = i as u8;
    }
    let mut b = Builder::new(18, 60);
    let x = b.input_of(HostTensor::new(DType::U8, &[rows, width], bytes).unwrap());
    let index = [0, -1, rows as i64 - 2, 524_288, 1_048_575, 1_048_576];
    let at = b.input_of(HostTensor::from_i64(&[index.len()], &index));
    let y = b.node("Gather", &[&x, &at], &[]);
    b.output(&y);
    let (from, to) = (b.ints(&[rows as i64 - 3]), b.ints(&[rows as i64]));
    let z = b.node("Slice", &[&x, &from, &to], &[]);
    b.output(&z);
    let graph = fuse(&b.model, &Options::default()).unwrap();
    let (got, _) = device::run(&graph, &b.inputs, "gfx942", false).unwrap();
    let row = |r: i64| b.inputs[0].part(r.rem_euclid(rows as i64) as usize * width, width).unwrap().to_i64();
    assert_eq!(got[0].to_i64(), index.map(row).concat());
    assert_eq!(got[1].to_i64(), [-3, -2, -1].map(row).concat());
}
