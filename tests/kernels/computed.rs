//! Softmax and normalisations of what an elementwise step makes: a residual's sum, with what is the same for all lines, or elements that come
//! in another type. The elements are a result, too, or not. Emulated devices in strict mode against the operators one by one, in f64.

use super::joined::outputs_on;
use crate::support::build::{Builder, float, int, ints};
use barewave::tensor::{DType, HostTensor};

const TARGETS: [&str; 7] = ["gfx803", "gfx906", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201"];

/// What becomes of lines of so many last dimensions.
fn ended(b: &mut Builder, op: &str, x: &str, t: DType, length: usize, axis: i64) -> String {
    match op {
        "Softmax" => b.node(op, &[x], &[("axis", int(axis))]),
        _ => {
            let scale = b.random(&[length]).to_f64();
            let scale = b.constant(HostTensor::from_f64(t, &[length], &scale));
            b.node(op, &[x, &scale], &[("axis", int(axis)), ("epsilon", float(1e-3))])
        }
    }
}

/// Checks that on every target the last operator is one launch with what comes before it.
fn is_one(b: &Builder, what: &str, most: f64) {
    let (_, joined) = outputs_on(&TARGETS, b, what, most, "computed_");
    assert_eq!(joined, TARGETS.len(), "{what}");
}

/// A sum of two, or of two and a row, of lines that single lanes, waves and workgroups hold: of even and odd lengths, and more than are
/// taken together.
#[test]
fn residuals() {
    let shapes = [[3, 70, 64], [1, 33, 197], [2, 9, 768], [1, 7, 4096], [1, 5, 2052], [1, 300, 21], [1, 2, 12_288]];
    let types = [(DType::F32, 2e-5), (DType::F16, 4e-3), (DType::BF16, 3e-2)];
    for (i, shape) in shapes.into_iter().enumerate() {
        for (j, (t, most)) in types.into_iter().enumerate() {
            let mut b = Builder::new(23, (10 * i + j) as u64);
            let typed = |b: &mut Builder, shape: &[usize]| {
                let x = b.random(shape).to_f64();
                b.input_of(HostTensor::from_f64(t, shape, &x))
            };
            let (x, y, row) = (typed(&mut b, &shape), typed(&mut b, &shape), typed(&mut b, &shape[2..]));
            let mut sum = b.node("Add", &[&x, &y], &[]);
            if (i + j) % 2 > 0 {
                sum = b.node("Add", &[&sum, &row], &[]);
            }
            let op = ["LayerNormalization", "RMSNormalization", "Softmax"][(i + j) % 3];
            let z = ended(&mut b, op, &sum, t, shape[2], -1);
            b.output(&z);
            let is_kept = i % 3 != 1;
            if is_kept {
                b.output(&sum);
            }
            is_one(&b, &format!("{op} of {t} {shape:?}, kept {is_kept}"), most);
        }
    }
}

/// Elements of 8 bits that become floats, and of 16 bits that are normalised in 32.
#[test]
fn elements_of_other_types() {
    for (case, length) in [768, 100, 33].into_iter().enumerate() {
        let mut b = Builder::new(23, case as u64);
        let codes: Vec<f64> = (0..11 * length).map(|_| b.below(255) as f64 - 127.0).collect();
        let codes = b.input_of(HostTensor::from_f64(DType::I8, &[11, length], &codes));
        let scales: Vec<f64> = (0..11).map(|i| f64::from(1 + i % 4) / 64.0).collect();
        let scales = b.constant(HostTensor::from_f64(DType::F32, &[11], &scales));
        let (x, half) = (b.node("DequantizeLinear", &[&codes, &scales], &[("axis", int(0))]), b.random(&[11, length]));
        let half = b.input_of(HostTensor::from_f64(DType::F16, &[11, length], &half.to_f64()));
        let half = b.node("Cast", &[&half], &[("to", int(1))]);
        let sum = b.node("Add", &[&x, &half], &[]);
        let y = ended(&mut b, "LayerNormalization", &sum, DType::F32, length, -1);
        b.output(&y);
        if case != 1 {
            b.output(&sum);
        }
        is_one(&b, &format!("bytes and halves, lines of {length}"), 2e-5);
    }
}

/// Lines that are walked once a pass: what is kept is read again.
#[test]
fn lines_too_long_for_registers() {
    for (op, is_kept) in [("LayerNormalization", true), ("RMSNormalization", false), ("Softmax", true)] {
        let (shape, mut b) = ([2, 70_002], Builder::new(23, 5));
        let input = |b: &mut Builder| {
            let x = b.random(&shape).to_f64();
            b.input_of(HostTensor::from_f64(DType::F64, &shape, &x))
        };
        let (x, y) = (input(&mut b), input(&mut b));
        let sum = b.node("Add", &[&x, &y], &[]);
        let z = ended(&mut b, op, &sum, DType::F64, shape[1], -1);
        b.output(&z);
        if is_kept {
            b.output(&sum);
        }
        is_one(&b, &format!("{op} of f64 {shape:?}"), 1e-9);
    }
}

/// What is the same for each image's lines, which are walked as one row of them.
#[test]
fn operands_of_other_dimensions() {
    for (case, shape) in [[3, 7, 64], [2, 5, 33]].into_iter().enumerate() {
        let mut b = Builder::new(23, case as u64);
        let (x, position, scale) = (b.input(&shape), b.input(&shape[1..]), b.input(&[shape[0], 1, 1]));
        let scaled = b.node("Mul", &[&x, &scale], &[]);
        let sum = b.node("Add", &[&scaled, &position], &[]);
        let z = ended(&mut b, "RMSNormalization", &sum, DType::F32, shape[2], -1);
        b.output(&z);
        if case > 0 {
            b.output(&sum);
        }
        is_one(&b, &format!("positions of {shape:?}"), 2e-5);
    }
}

/// Lines whose elements lie apart, and whose neighbours are other lines.
#[test]
fn columns() {
    for (case, shape) in [[2, 40, 96], [1, 300, 33]].into_iter().enumerate() {
        let mut b = Builder::new(23, case as u64);
        let (x, y) = (b.input(&shape), b.input(&shape));
        let sum = b.node("Sub", &[&x, &y], &[]);
        let z = ended(&mut b, "Softmax", &sum, DType::F32, 1, 1);
        b.output(&z);
        if case > 0 {
            b.output(&sum);
        }
        is_one(&b, &format!("columns of {shape:?}"), 2e-5);
    }
}

/// Who reads the elements before the softmax or normalisation could write them has them from a step of their own.
#[test]
fn elements_that_are_read_before() {
    let mut b = Builder::new(23, 1);
    let (x, y) = (b.input(&[40, 768]), b.input(&[40, 768]));
    let sum = b.node("Add", &[&x, &y], &[]);
    let other = b.weight(&[768, 32]);
    let product = b.node("MatMul", &[&sum, &other], &[]);
    let z = ended(&mut b, "LayerNormalization", &sum, DType::F32, 768, -1);
    b.output(&product);
    b.output(&z);
    let (_, joined) = outputs_on(&TARGETS, &b, "a product between", 2e-5, "computed_");
    assert_eq!(joined, 0);
}

/// Sums whose channels come last, normalised in groups: held by workgroups, by teams of them, and read twice; with what is the same for all points, or
/// all images.
#[test]
fn groups_of_channels_that_come_last() {
    let cases = [
        ([2, 9, 7, 64], 8, true),
        ([1, 40, 36, 320], 32, false),
        ([1, 71, 73, 30], 3, false),
        ([3, 21, 23, 35], 7, true),
        ([2, 101, 33, 64], 64, true),
        ([1, 128, 130, 12], 2, false),
    ];
    for (i, (shape, groups, is_kept)) in cases.into_iter().enumerate() {
        let (t, most) = [(DType::F32, 2e-5), (DType::F16, 4e-3), (DType::BF16, 3e-2)][i % 3];
        let mut b = Builder::new(21, i as u64);
        let [n, _, _, c] = shape;
        let typed = |b: &mut Builder, shape: &[usize]| {
            let data: Vec<f64> = (0..shape.iter().product()).map(|_| b.below(64) as f64 / 16.0 + 1.0).collect();
            b.input_of(HostTensor::from_f64(t, shape, &data))
        };
        let (x, z, same) = (typed(&mut b, &shape), typed(&mut b, &shape), typed(&mut b, &[n, 1, 1, c]));
        let mut sum = b.node("Add", &[&x, &z], &[]);
        if i % 2 == 0 {
            sum = b.node("Add", &[&sum, &same], &[]);
        }
        let first = b.node("Transpose", &[&sum], &[("perm", ints(&[0, 3, 1, 2]))]);
        let [scale, bias] = [1.5, -0.5].map(|v| b.constant(HostTensor::from_f64(t, &[c], &vec![v; c])));
        let attributes = [("num_groups", int(groups))];
        let y = b.node("GroupNormalization", &[&first, &scale, &bias], &attributes);
        let y = b.node("Transpose", &[&y], &[("perm", ints(&[0, 2, 3, 1]))]);
        b.output(&y);
        if is_kept {
            b.output(&sum);
        }
        is_one(&b, &format!("{groups} groups of {t} {shape:?}, kept {is_kept}"), most);
    }
}

/// Scores with a mask of each image: odd lines of narrow elements, so many that they go through LDS.
#[test]
fn masked_lines_in_lds() {
    let cases = [(DType::F16, 4e-3, [2, 6, 197]), (DType::BF16, 3e-2, [5, 8, 77]), (DType::F32, 2e-5, [12, 16, 33])];
    for (t, most, [n, heads, length]) in cases {
        let mut b = Builder::new(23, length as u64);
        let x = b.random(&[n, heads, length, length]).to_f64();
        let x = b.input_of(HostTensor::from_f64(t, &[n, heads, length, length], &x));
        let mask: Vec<f64> = (0..n * length).map(|i| if i % length > 20 + i / length { -100.0 } else { 0.0 }).collect();
        let mask = b.input_of(HostTensor::from_f64(t, &[n, 1, 1, length], &mask));
        let sum = b.node("Add", &[&x, &mask], &[]);
        let y = b.node("Softmax", &[&sum], &[("axis", int(-1))]);
        b.output(&y);
        let what = format!("masked lines of {t}, {length}");
        let (_, joined) = outputs_on(&["gfx803", "gfx906"], &b, &what, most, "computed_");
        assert_eq!(joined, 2, "{what}");
    }
}
