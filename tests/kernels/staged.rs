//! Short lines of an odd number of elements, of which there are so many that they go through LDS.

use crate::support::agree::{listing, outputs_on};
use crate::support::build::{Builder, int};
use barewave::tensor::{DType, HostTensor};
use barewave_isa::Target;

/// Adds values of a type; lines of one value, and of very different ones are among them.
fn input(b: &mut Builder, t: DType, lines: usize, length: usize) -> String {
    let values = (0..lines * length).map(|i| match i / length % 5 {
        0 => 2.5,
        1 => (b.below(200) as f64 - 100.0) / 2.0,
        _ => (b.below(257) as f64 - 128.0) / 32.0,
    });
    let values: Vec<f64> = values.collect();
    b.input_of(HostTensor::from_f64(t, &[lines, length], &values))
}

#[test]
fn odd_lines_go_through_lds() {
    let cases = [
        ("Softmax", DType::F16, 61_442, 33),
        ("LogSoftmax", DType::BF16, 61_444, 21),
        ("Softmax", DType::F32, 30_725, 35),
        ("LpNormalization", DType::F16, 122_882, 7),
        ("Softmax", DType::F16, 4_002, 197),
    ];
    for (op, t, lines, length) in cases {
        let mut b = Builder::new(22, 3);
        let x = input(&mut b, t, lines, length);
        let y = b.node(op, &[&x], &[("axis", int(-1))]);
        b.output(&y);
        // Lines behind others, with others behind them: what is not theirs stays.
        let (before, behind) = (input(&mut b, t, 4, length), input(&mut b, t, 6, length));
        let again = b.node(op, &[&x], &[("axis", int(-1))]);
        let all = b.node("Concat", &[&before, &again, &behind], &[("axis", int(0))]);
        b.output(&all);
        let most = match t {
            DType::F32 => 1e-5,
            DType::F16 => 2e-3,
            _ => 1e-2,
        };
        outputs_on(&b, &format!("{op} {t} {lines} {length}"), most, &["gfx906", "gfx950", "gfx1100"]);
        if length == 33 {
            let mut b = Builder::new(22, 3);
            let x = input(&mut b, t, lines.next_multiple_of(8), length);
            let y = b.node(op, &[&x], &[("axis", int(-1))]);
            b.output(&y);
            let text = listing(&b, Target::parse("gfx906").unwrap());
            assert!(text.contains("ds_read_u16") && text.contains("buffer_load_dwordx4"), "{text}");
        }
    }
}

/// What is found of odd lines, and sums along them: of whole tensors, and of lines behind others.
#[test]
fn odd_lines_are_reduced_and_summed_in_lds() {
    let cases = [
        (DType::F16, 30_722, 77),
        (DType::BF16, 15_362, 197),
        (DType::F32, 30_725, 77),
        (DType::I8, 98_308, 77),
        (DType::U8, 49_156, 129),
    ];
    for (t, lines, length) in cases {
        let mut b = Builder::new(18, 4);
        let x = input(&mut b, t, lines, length);
        let axes = b.constant(HostTensor::from_f64(DType::I64, &[1], &[1.0]));
        let one = b.constant(HostTensor::from_f64(DType::I64, &[], &[1.0]));
        let y = b.node("ReduceMax", &[&x, &axes], &[("keepdims", int(0))]);
        b.output(&y);
        for (op, last) in [("ArgMax", 0), ("ArgMin", 1)] {
            let y = b.node(op, &[&x], &[("axis", int(1)), ("select_last_index", int(last))]);
            b.output(&y);
        }
        if t.is_float() {
            for op in ["ReduceSum", "ReduceL2", "ReduceLogSumExp"] {
                let y = b.node(op, &[&x, &axes], &[]);
                b.output(&y);
            }
            for (exclusive, reverse) in [(0, 0), (1, 1)] {
                let attributes = [("exclusive", int(exclusive)), ("reverse", int(reverse))];
                let y = b.node("CumSum", &[&x, &one], &attributes);
                b.output(&y);
            }
        }
        let from = b.constant(HostTensor::from_f64(DType::I64, &[1], &[4.0]));
        let to = b.constant(HostTensor::from_f64(DType::I64, &[1], &[lines as f64]));
        let zero = b.constant(HostTensor::from_f64(DType::I64, &[1], &[0.0]));
        let part = b.node("Slice", &[&x, &from, &to, &zero], &[]);
        let y = b.node("ReduceMin", &[&part, &axes], &[]);
        b.output(&y);
        let most = match t {
            DType::F16 => 4e-3,
            DType::BF16 => 3e-2,
            _ => 2e-5,
        };
        outputs_on(&b, &format!("{t} {lines} {length}"), most, &["gfx906", "gfx1100"]);
        let text = listing(&b, Target::parse("gfx906").unwrap());
        let read = ["ds_read_u8", "ds_read_u16", "ds_read_b32"][t.size().ilog2() as usize];
        assert!(t == DType::F32 || text.contains(read), "{t} {length}: {text}");
    }
}

/// Lines divided by the root of the sum of their squares, or by the sum of their magnitudes, along every axis: of nothing, of little, and of single numbers.
#[test]
fn lines_of_length_one() {
    for (t, p) in [DType::F32, DType::F16, DType::F64].into_iter().flat_map(|t| [(t, 1), (t, 2)]) {
        let mut b = Builder::new(22, 5);
        let shape = [3, 20, 9, 5];
        let mut values: Vec<f64> = (0..2700).map(|_| (b.below(2001) as f64 - 1000.0) / 250.0).collect();
        values[..900].fill(0.0);
        values[900..990].iter_mut().for_each(|x| *x *= 2f64.powi(-8));
        let x = b.input_of(HostTensor::from_f64(t, &shape, &values));
        for axis in 0..4 {
            let y = b.node("LpNormalization", &[&x], &[("axis", int(axis)), ("p", int(p))]);
            b.output(&y);
        }
        let line = b.input_of(HostTensor::from_f64(t, &[6], &[0.0, 3.0, 0.0, -4.0, 0.0, 0.0]));
        let y = b.node("LpNormalization", &[&line], &[("p", int(p))]);
        b.output(&y);
        let one = b.input_of(HostTensor::from_f64(t, &[4, 1], &[0.0, 3.0, -4.0, 0.5]));
        let y = b.node("LpNormalization", &[&one], &[("p", int(p))]);
        b.output(&y);
        // In pieces, and what a product reads, or gives.
        let long: Vec<f64> = (0..70_001).map(|_| (b.below(2001) as f64 - 1000.0) / 250.0).collect();
        let long = b.input_of(HostTensor::from_f64(t, &[1, long.len()], &long));
        let y = b.node("LpNormalization", &[&long], &[("p", int(p))]);
        b.output(&y);
        let rows: Vec<f64> = (0..24 * 32).map(|_| (b.below(65) as f64 - 32.0) / 32.0).collect();
        let rows = b.input_of(HostTensor::from_f64(t, &[24, 32], &rows));
        let side: Vec<f64> = (0..32 * 32).map(|_| (b.below(65) as f64 - 32.0) / 32.0).collect();
        let side = b.input_of(HostTensor::from_f64(t, &[32, 32], &side));
        let y = b.node("LpNormalization", &[&rows], &[("p", int(p))]);
        let y = b.node("MatMul", &[&y, &side], &[]);
        let y = b.node("LpNormalization", &[&y], &[("p", int(p))]);
        b.output(&y);
        let most = if t == DType::F16 { 2e-3 } else { 1e-6 };
        let want = outputs_on(
            &b,
            &format!("LpNormalization {t} {p}"),
            most,
            &["gfx803", "gfx906", "gfx942", "gfx1100", "gfx1201"],
        );
        let last = want[4].to_f64();
        let whole = if p == 1 { 7.0 } else { 5.0 };
        assert!((last[1] - 3.0 / whole).abs() < 1e-3 && (last[3] + 4.0 / whole).abs() < 1e-3, "{last:?}");
        assert!(last[0] == 0.0, "{last:?}");
    }
}

/// Short lines of which a wave takes several one after the other, where waves would begin too slowly: that lie together, and apart.
#[test]
fn teams_take_lines_one_after_the_other() {
    let cases = [
        ("Softmax", DType::BF16, [17, 2, 16_411], 1),
        ("LpNormalization", DType::F32, [17, 2, 16_385], 1),
        ("Softmax", DType::F16, [1, 8_193, 197], 2),
    ];
    for (op, t, shape, axis) in cases {
        let mut b = Builder::new(22, 7);
        let all = shape.iter().product::<usize>() / shape[2];
        let x = input(&mut b, t, all, shape[2]);
        let dims: Vec<f64> = shape.iter().map(|n| *n as f64).collect();
        let dims = b.constant(HostTensor::from_f64(DType::I64, &[3], &dims));
        let x = b.node("Reshape", &[&x, &dims], &[]);
        let y = b.node(op, &[&x], &[("axis", int(axis))]);
        b.output(&y);
        let most = match t {
            DType::F32 => 1e-5,
            DType::F16 => 2e-3,
            _ => 1e-2,
        };
        outputs_on(&b, &format!("{op} {t} {shape:?}"), most, &["gfx906"]);
    }
}
