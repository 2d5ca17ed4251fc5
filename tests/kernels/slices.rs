//! Products whose waves share the depth, and those of a few rows whose workitems own columns: emulated devices in strict mode against sums in f64.

use crate::support::build::{Builder, int, ints};
use crate::support::{all_cases, drawn};
use barewave::graph::{Options, fuse};
use barewave::kernels::{Candidate, Tuned, Tuning, Way, candidates};
use barewave::runtime::EmulatedDevice;
use barewave::tensor::{DType, HostTensor};
use barewave::{Compiler, Session};
use barewave_isa::Target;
use std::sync::Arc;

const TARGETS: [&str; 7] = ["gfx908", "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1150", "gfx1201"];

/// Unit roundoffs of a type and of what is summed in.
fn roundoffs(t: DType) -> (f64, f64) {
    match t {
        DType::F16 => (2f64.powi(-11), 2f64.powi(-23)),
        DType::BF16 => (2f64.powi(-8), 2f64.powi(-23)),
        DType::I8 => (0.0, 0.0),
        _ => (2f64.powi(-24), 2f64.powi(-23)),
    }
}

/// Runs a product of `[batches, m, n, k]`, with a column's bias and what it is added to, by each of the tiles of a way that `which` takes. Gives
/// how many there were.
fn check(
    way: Way,
    target: &str,
    dtype: DType,
    extents: [usize; 4],
    turned: bool,
    which: impl Fn(usize, &Candidate) -> bool,
) -> usize {
    let [batches, m, n, k] = extents;
    let mut b = Builder::new(17, (m + n + k) as u64);
    let mut side = |shape: [usize; 3]| {
        let mut values = b.random(&shape).to_f64();
        if dtype == DType::I8 {
            values.iter_mut().for_each(|v| *v = (*v * 90.0).round().clamp(-128.0, 127.0));
        }
        HostTensor::from_f64(dtype, &shape, &values)
    };
    let (x, y) = (side([batches, m, k]), side(if turned { [batches, n, k] } else { [batches, k, n] }));
    let (bias, more) = (side([1, 1, n]), side([batches, m, n]));
    let names = [b.input_of(x.clone()), b.input_of(y.clone())];
    let out = if dtype == DType::I8 {
        let y =
            if turned { b.node("Transpose", &[&names[1]], &[("perm", ints(&[0, 2, 1]))]) } else { names[1].clone() };
        b.node("MatMulInteger", &[&names[0], &y], &[])
    } else {
        let out = b.node("FusedMatMul", &[&names[0], &names[1]], &[("transB", int(turned.into()))]);
        b.model.graph.nodes.last_mut().unwrap().domain = "com.microsoft".into();
        let [bias, more] = [&bias, &more].map(|t| b.input_of(t.clone()));
        let out = b.node("Add", &[&out, &bias], &[]);
        b.node("Add", &[&out, &more], &[])
    };
    b.output(&out);
    let graph = fuse(&b.model, &Options::default()).unwrap();
    let chip = Target::parse(target).unwrap();
    let considered = candidates(&graph, &graph.steps[0], chip, &Tuning::default()).unwrap();
    let all = considered.candidates.iter().filter(|c| c.way == way).enumerate();
    let some: Vec<&Candidate> = all.filter(|(i, c)| which(*i, c)).map(|(_, c)| c).collect();
    let [x, y, bias, more] = [x, y, bias, more].map(|t| t.to_f64());
    let (u, v) = roundoffs(dtype);
    for c in &some {
        let mut tuning = Tuning::default();
        tuning.insert(considered.product.clone(), Tuned::from(*c));
        let compiler =
            Compiler::new(chip, barewave::Options { tuning: Arc::new(tuning), ..Default::default() }).without_levels();
        let name = format!("{target} {dtype} {extents:?} {turned} by {:?} in {}", c.tile, c.parts);
        let compiled = compiler.compile_graph(&graph).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(compiled.plan().launches.len(), 1, "{name}");
        let device = Arc::new(EmulatedDevice::new(chip, true).unwrap());
        let mut session = Session::new(device, &compiled).unwrap();
        let (got, _) = session.run(&b.inputs).unwrap_or_else(|e| panic!("{name}: {e}"));
        let (again, _) = session.run(&b.inputs).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(got[0] == again[0], "{name}: another result");
        let got = got[0].to_f64();
        for i in 0..got.len() {
            let (z, row, col) = (i / (m * n), i / n % m, i % n);
            let a = |l: usize| x[z * m * k + row * k + l];
            let b = |l: usize| y[z * k * n + if turned { col * k + l } else { l * n + col }];
            let (mut want, mut size) = (0.0, 0.0);
            for l in 0..k {
                want += a(l) * b(l);
                size += (a(l) * b(l)).abs();
            }
            let mut most = u * want.abs() + (k + 2) as f64 * v * size + 1e-30;
            if dtype != DType::I8 {
                want += bias[col] + more[i];
                // Each sum is rounded to the type.
                most += 3.0 * u * (want.abs() + bias[col].abs() + more[i].abs());
            }
            assert!((got[i] - want).abs() <= most, "{name}: {} instead of {want} at {i}", got[i]);
        }
    }
    some.len()
}

#[test]
fn each_type_and_layout_with_rows_and_columns_left_over() {
    for target in TARGETS {
        let mut run = 0;
        for dtype in [DType::F16, DType::BF16, DType::F32, DType::I8] {
            for (i, extents) in [[1, 37, 92, 768], [2, 70, 48, 512], [1, 128, 136, 1536]].into_iter().enumerate() {
                for turned in [false, true] {
                    let of_case = |j: usize, c: &Candidate| {
                        (j * 5 + i + usize::from(turned)).is_multiple_of(11) || c.parts > 2 && j % 13 == i
                    };
                    if drawn(&format!("{target} {dtype} {extents:?} {turned}")) {
                        run += check(Way::Slices, target, dtype, extents, turned, of_case);
                    }
                }
            }
        }
        let info = Target::parse(target).unwrap().info();
        assert!(run > 3, "{}: {run} products", info.name);
    }
}

/// Runs a convolution of a point, `[images, channels in, channels out, rows, columns]` in groups, with a bias and what it is added to, by some
/// of the tiles. Gives how many there were.
fn check_points(target: &str, dtype: DType, extents: [usize; 5], groups: usize) -> usize {
    let [images, inputs, channels, rows, columns] = extents;
    let (positions, depth) = (rows * columns, inputs / groups);
    let mut b = Builder::new(17, (inputs + positions) as u64);
    let mut typed = |shape: &[usize]| HostTensor::from_f64(dtype, shape, &b.random(shape).to_f64());
    let x = typed(&[images, inputs, rows, columns]);
    let weights = typed(&[channels, depth, 1, 1]);
    let (bias, more) = (typed(&[channels]), typed(&[images, channels, rows, columns]));
    let [input, other] = [&x, &more].map(|t| b.input_of(t.clone()));
    let [w, c] = [&weights, &bias].map(|t| b.constant(t.clone()));
    let y = b.node("Conv", &[&input, &w, &c], &[("group", int(groups as i64))]);
    let y = b.node("Add", &[&y, &other], &[]);
    b.output(&y);
    let graph = fuse(&b.model, &Options::default()).unwrap();
    let chip = Target::parse(target).unwrap();
    let considered = candidates(&graph, &graph.steps[0], chip, &Tuning::default()).unwrap();
    let all = considered.candidates.iter().filter(|c| c.way == Way::Slices);
    // The best ones with a whole depth, and with a shared one.
    let (whole, shared): (Vec<&Candidate>, Vec<&Candidate>) = all.partition(|c| c.parts == 1);
    let some: Vec<&Candidate> = whole.into_iter().take(2).chain(shared.into_iter().take(1)).collect();
    let [x, weights, bias, more] = [x, weights, bias, more].map(|t| t.to_f64());
    let (u, v) = roundoffs(dtype);
    for c in &some {
        let mut tuning = Tuning::default();
        tuning.insert(considered.product.clone(), Tuned::from(*c));
        let compiler =
            Compiler::new(chip, barewave::Options { tuning: Arc::new(tuning), ..Default::default() }).without_levels();
        let name = format!("{target} {dtype} {extents:?} {groups} by {:?} in {}", c.tile, c.parts);
        let compiled = compiler.compile_graph(&graph).unwrap_or_else(|e| panic!("{name}: {e}"));
        let device = Arc::new(EmulatedDevice::new(chip, true).unwrap());
        let mut session = Session::new(device, &compiled).unwrap();
        let (got, _) = session.run(&b.inputs).unwrap_or_else(|e| panic!("{name}: {e}"));
        for (i, got) in got[0].to_f64().into_iter().enumerate() {
            let (image, channel, at) = (i / (channels * positions), i / positions % channels, i % positions);
            let first = image * inputs + channel / (channels / groups) * depth;
            let (mut want, mut size) = (0.0, 0.0);
            for l in 0..depth {
                let product = weights[channel * depth + l] * x[(first + l) * positions + at];
                want += product;
                size += product.abs();
            }
            let sum = u * want.abs() + (depth + 2) as f64 * v * size + 1e-30;
            want += bias[channel] + more[i];
            let most = sum + 3.0 * u * (want.abs() + bias[channel].abs() + more[i].abs());
            assert!((got - want).abs() <= most, "{name}: {got} instead of {want} at {i}");
        }
    }
    some.len()
}

#[test]
fn convolutions_of_a_point() {
    for target in TARGETS {
        // Of f32 not every target has such.
        let (mut run, mut least) = (0, 0);
        for dtype in [DType::F16, DType::BF16, DType::F32] {
            for (extents, groups) in [([1, 512, 75, 14, 14], 1), ([2, 1024, 66, 6, 10], 2), ([1, 256, 130, 20, 7], 1)] {
                if drawn(&format!("points {target} {dtype} {extents:?}")) {
                    run += check_points(target, dtype, extents, groups);
                    least += usize::from(dtype != DType::F32);
                }
            }
        }
        assert!(run >= least, "{target}: {run} ways of {least} cases");
    }
}

/// Lines that begin or end anywhere, and a depth of which waves have no equal parts, are for others.
#[test]
fn other_lines_are_not_taken() {
    for (extents, turned) in [([1, 64, 70, 512], false), ([1, 64, 64, 500], true), ([1, 64, 64, 96], false)] {
        assert_eq!(check(Way::Slices, "gfx942", DType::F16, extents, turned, |_, _| true), 0, "{extents:?}");
    }
}

/// Each number of rows, columns that tiles do not divide, lines that are longer than they have columns, several products.
#[test]
fn columns_of_a_few_rows() {
    let targets = ["gfx803", "gfx906", "gfx90a", "gfx942", "gfx1010", "gfx1030", "gfx1100", "gfx1201"];
    for (i, target) in targets.into_iter().enumerate() {
        let mut run = 0;
        for rows in 1..=8 {
            let columns = [4, 36, 64, 100, 132, 260, 28, 512][(i + rows) % 8];
            let extents = [1 + usize::from(rows == 3), rows, columns, [256, 768, 1024, 448, 1408][(i + 3 * rows) % 5]];
            let of_case = |j: usize, _: &Candidate| (j + rows + i).is_multiple_of(5);
            if drawn(&format!("few {target} {extents:?}")) {
                run += check(Way::Columns, target, DType::F32, extents, false, of_case);
            }
        }
        assert!(run > 2 || !all_cases(), "{target}: {run} products");
    }
    for extents in [[1, 9, 64, 512], [1, 4, 63, 512], [1, 4, 64, 500]] {
        assert_eq!(check(Way::Columns, "gfx1100", DType::F32, extents, false, |_, _| true), 0, "{extents:?}");
    }
}
