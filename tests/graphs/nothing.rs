//! Extents of nothing: what has no element, no round, no place.

use crate::support::agree::{close, outputs};
use crate::support::build::{Builder, int, ints, text};
use barewave::graph::{Options, fuse};
use barewave::onnx::{Attribute, Dim, Graph, ValueInfo};
use barewave::tensor::{DType, HostTensor};

#[test]
fn the_mean_of_nothing_is_zero() {
    for (dtype, shape, axis) in [(DType::F32, [2, 0, 3], 1), (DType::F16, [0, 2, 3], 0), (DType::I32, [2, 3, 0], 2)] {
        let mut b = Builder::new(17, 3);
        let x = b.input_of(HostTensor::from_f64(dtype, &shape, &[]));
        let y = b.node("ReduceMean", &[&x], &[("axes", ints(&[axis])), ("keepdims", int(0))]);
        b.output(&y);
        let got = outputs(&b, "ReduceMean", 0.0).remove(0);
        assert_eq!(got.to_f64(), vec![0.0; 6]);
    }
}

/// Along no element a window of SAME has no place, however large it is.
#[test]
fn windows_over_nothing_have_no_place() {
    for auto in ["SAME_UPPER", "SAME_LOWER"] {
        let mut b = Builder::new(17, 3);
        let (x, w) = (b.input(&[1, 2, 0, 5]), b.weight(&[3, 2, 2, 2]));
        let y = b.node("Conv", &[&x, &w], &[("auto_pad", text(auto)), ("strides", ints(&[1, 2]))]);
        b.output(&y);
        assert_eq!(outputs(&b, "Conv", 0.0)[0].shape(), [1, 3, 0, 3]);
        for op in ["MaxPool", "AveragePool"] {
            let mut b = Builder::new(17, 3);
            let x = b.input(&[0, 2, 0]);
            let y = b.node(op, &[&x], &[("auto_pad", text(auto)), ("kernel_shape", ints(&[2]))]);
            b.output(&y);
            assert_eq!(outputs(&b, op, 0.0)[0].shape(), [0, 2, 0], "{op}");
        }
    }
}

/// A Scan over `x` that sums up and collects the sums, which its body declares so; the other axis is collected along.
fn scan(x: &[usize], declared: Option<Vec<Dim>>) -> Builder {
    let mut b = Builder::new(17, 7);
    let (sum, x) = (b.input(&[2]), b.input(x));
    let info = |name: &str, shape| ValueInfo { name: name.into(), dtype: Some(DType::F32), shape };
    let next = b.node("Add", &["sum", "part"], &[]);
    let seen = b.node("Relu", &[&next], &[]);
    let at = b.model.graph.nodes.len() - 2;
    let nodes = b.model.graph.nodes.split_off(at);
    let inputs = vec![info("sum", None), info("part", None)];
    let body = Graph { nodes, inputs, outputs: vec![info(&next, None), info(&seen, declared)], ..Graph::default() };
    let attributes =
        [("num_scan_inputs", int(1)), ("scan_output_axes", ints(&[1])), ("body", Attribute::Graph(Box::new(body)))];
    b.node_n("Scan", &[&sum, &x], &attributes, 2).iter().for_each(|y| b.output(y));
    b
}

#[test]
fn a_scan_of_no_round_gives_what_it_carries() {
    let b = scan(&[0, 2], Some(vec![Dim::Known(2)]));
    let got = outputs(&b, "Scan", 0.0);
    assert_eq!((got[0].to_f64(), got[1].shape()), (b.inputs[0].to_f64(), &[2, 0][..]));
    let got = outputs(&scan(&[3, 2], Some(vec![Dim::Known(2)])), "Scan", 1e-6);
    assert_eq!((got[0].shape(), got[1].shape()), (&[2][..], &[2, 3][..]));
    // What is not declared only a round would tell.
    for declared in [None, Some(vec![Dim::Unknown]), Some(vec![Dim::Symbol("n".into())])] {
        let e = fuse(&scan(&[0, 2], declared).model, &Options::default()).unwrap_err().to_string();
        assert!(e.contains("Scan") && e.contains("it runs no round, and type and extents"), "{e}");
    }
}

/// A window that is larger than the image by less than a stride: before version 19 onnxruntime's mean counts all of it.
#[test]
fn means_over_more_than_there_is() {
    for (opset, part) in [(18, 0.5), (19, 1.0)] {
        let mut b = Builder::new(opset, 7);
        let x = b.input(&[1, 3, 1]);
        let list = [("kernel_shape", ints(&[2])), ("strides", ints(&[2])), ("count_include_pad", int(1))];
        let y = b.node("AveragePool", &[&x], &list);
        b.output(&y);
        let want: Vec<f64> = b.inputs[0].to_f64().iter().map(|v| v * part).collect();
        close(&outputs(&b, "AveragePool", 1e-6)[0].to_f64(), &want, 1e-6, "AveragePool");
    }
}
