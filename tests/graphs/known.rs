//! Operators whose operands are known when a model is compiled: what the host makes of them is what a device does.

use crate::support::apart;
use crate::support::build::{Builder, int};
use crate::support::device;
use barewave::graph::{Options, fuse};
use barewave::tensor::{DType, HostTensor};

/// Runs the same operator on inputs, on a device, and on constants, on the host.
fn both(op: &str, operands: &[HostTensor], attributes: &[(&str, barewave::onnx::Attribute)]) -> HostTensor {
    let mut results = Vec::new();
    for known in [false, true] {
        let mut b = Builder::new(21, 1);
        let names: Vec<String> =
            operands.iter().map(|t| if known { b.constant(t.clone()) } else { b.input_of(t.clone()) }).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let y = b.node(op, &names, attributes);
        b.output(&y);
        let graph = fuse(&b.model, &Options::default()).unwrap_or_else(|e| panic!("{op}: {e}"));
        let got = device::run(&graph, &b.inputs, "gfx942", true).unwrap_or_else(|e| panic!("{op}: {e}")).0.remove(0);
        assert_eq!(got, apart::outputs(&b.model, &b.inputs).unwrap().remove(0), "{op}, known: {known}");
        results.push(got);
    }
    assert_eq!(results[0], results[1], "{op} of {operands:?}");
    results.remove(0)
}

#[test]
fn products_of_integers() {
    for t in [DType::I32, DType::U32, DType::I64, DType::U64] {
        let large = if t.bits() == 64 { i64::MAX / 3 } else { i64::from(i32::MAX / 3) };
        let x = HostTensor::from_ints(t, &[2, 3], &[1, 2, 3, large, 5, large]);
        let y = HostTensor::from_ints(t, &[3, 2], &[7, large, 9, 10, 11, 12]);
        both("MatMul", &[x.clone(), y.clone()], &[]);
        both("Gemm", &[x, y], &[]);
    }
    let bytes = |t: DType, shape: &[usize]| {
        let n: usize = shape.iter().product();
        HostTensor::from_ints(t, shape, &(0..n as i64).map(|i| (37 * i + 11) % 128).collect::<Vec<_>>())
    };
    for t in [DType::U8, DType::I8] {
        let zero = HostTensor::from_ints(t, &[], &[5]);
        let got = both("MatMulInteger", &[bytes(t, &[2, 3]), bytes(t, &[3, 2]), zero.clone(), zero.clone()], &[]);
        // 11 48 85 / 122 31 68 by 11 48 / 85 122 / 31 68, less 5 each.
        assert_eq!(
            got.to_i64(),
            [
                6 * 6 + 43 * 80 + 80 * 26,
                6 * 43 + 43 * 117 + 80 * 63,
                117 * 6 + 26 * 80 + 63 * 26,
                117 * 43 + 26 * 117 + 63 * 63
            ]
        );
        let pads = ("pads", barewave::onnx::Attribute::Ints(vec![1, 0, 2, 1]));
        both(
            "ConvInteger",
            &[bytes(t, &[1, 4, 5, 3]), bytes(t, &[6, 2, 3, 2]), zero.clone(), zero],
            &[pads, ("group", int(2))],
        );
    }
}

#[test]
fn integers_beyond_the_signed_ones() {
    let x = HostTensor::from_ints(DType::U64, &[4], &[0, 7, i64::MIN, -1]);
    assert_eq!(both("Sign", std::slice::from_ref(&x), &[]).to_i64(), [0, 1, 1, 1]);
    assert_eq!(both("Abs", std::slice::from_ref(&x), &[]), x);
    let to = int(DType::F64.to_onnx().into());
    assert_eq!(both("Cast", &[x], &[("to", to)]).to_f64(), [0.0, 7.0, 2f64.powi(63), 2f64.powi(64)]);
}

/// Sums of integers wrap, their means are what they are.
#[test]
fn means_of_integers_whose_sum_is_beyond_their_type() {
    for t in [DType::I32, DType::U32] {
        let most = if t == DType::I32 { i64::from(i32::MAX) } else { i64::from(u32::MAX) };
        for (list, mean) in [([most, most - 4, most - 5], most - 3), ([most, 0, 1], most / 3)] {
            let got = both("ReduceMean", &[HostTensor::from_ints(t, &[3], &list)], &[("keepdims", int(0))]);
            assert_eq!(got.to_i64(), [mean], "{t}");
        }
    }
}
