//! Weights that alone are quantised: they stay numbers of a few bits in the compiled model, and products and rows of them are what
//! dequantising says. References are computed here in f64; devices are strict.

use crate::support::build::{Builder, int, ints};
use crate::support::device;
use barewave::compile;
use barewave::graph::{Options, fuse};
use barewave::tensor::small::SmallFloat;
use barewave::tensor::{DType, HostTensor};
use barewave_isa::Target;

const TARGETS: [&str; 5] = ["gfx906", "gfx942", "gfx1030", "gfx1100", "gfx1201"];

/// How scales lie over a matrix.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Scales {
    One,
    /// One for each row or column.
    Slices,
    /// One for each block of so many, along a row or column of the product's depth.
    Blocks(usize),
}

/// A dequantised constant matrix: its name in the model, and its elements.
fn dequantised(
    b: &mut Builder,
    [t, of]: [DType; 2],
    shape: [usize; 2],
    depth: usize,
    how: Scales,
    zero: bool,
) -> (String, Vec<f64>) {
    let signed = t.is_signed_int();
    let low = if signed { -(1i64 << (t.bits() - 1)) } else { 0 };
    let fields =
        |b: &mut Builder, n: usize| -> Vec<i64> { (0..n).map(|_| low + b.below(1 << t.bits()) as i64).collect() };
    let (axis, block, dims) = match how {
        Scales::One => (1, 0, vec![]),
        Scales::Slices => (1 - depth, 0, vec![shape[1 - depth]]),
        Scales::Blocks(size) => {
            let mut dims = shape.to_vec();
            dims[depth] = shape[depth] / size;
            (depth, size, dims)
        }
    };
    let count = dims.iter().product::<usize>();
    let numbers = fields(b, shape[0] * shape[1]);
    let zeros = if zero { fields(b, count) } else { vec![0; count] };
    let scales: Vec<f64> = b.random(&[count]).to_f64();
    let scales = HostTensor::from_f64(of, &dims, &scales);
    let s = scales.to_f64();
    let mut elements = Vec::new();
    for (r, c) in (0..shape[0]).flat_map(|r| (0..shape[1]).map(move |c| (r, c))) {
        let at = match how {
            Scales::One => 0,
            Scales::Slices => [r, c][1 - depth],
            Scales::Blocks(size) if depth == 1 => r * dims[1] + c / size,
            Scales::Blocks(size) => r / size * dims[1] + c,
        };
        elements.push((numbers[r * shape[1] + c] - zeros[at]) as f64 * s[at]);
    }
    let mut names = vec![b.constant(HostTensor::from_ints(t, &shape, &numbers)), b.constant(scales)];
    if zero {
        names.push(b.constant(HostTensor::from_ints(t, &dims, &zeros)));
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let attributes = [("axis", int(axis as i64)), ("block_size", int(block as i64))];
    let plain = how == Scales::One;
    (b.node("DequantizeLinear", &names, if plain { &[] } else { &attributes }), elements)
}

/// Runs everywhere with less than `most` bytes of weights.
fn check(b: &Builder, what: &str, want: &[f64], error: f64, most: usize) {
    let mut model = b.model.clone();
    model.opsets.insert("com.microsoft".into(), 1);
    model.expand();
    let graph = fuse(&model, &Options::default()).unwrap_or_else(|e| panic!("{what}: {e}"));
    let size = want.iter().fold(1e-30, |m: f64, x| m.max(x.abs()));
    for target in TARGETS {
        let compiled = compile::compile(&graph, Target::parse(target).unwrap()).unwrap();
        assert!(compiled.weights_len() <= most, "{what} {target}: {} bytes, not {most}", compiled.weights_len());
        let (out, _) = device::run(&graph, &b.inputs, target, true).unwrap_or_else(|e| panic!("{what} {target}: {e}"));
        assert_eq!(out[0].len(), want.len(), "{what} {target}");
        let worst = out[0].to_f64().iter().zip(want).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
        assert!(worst <= error * size, "{what} {target}: off by {worst:e} of {size}");
    }
}

/// What a matrix of `elements` numbers of a type may take, with its scales and zero points; kernels may have data of their own.
fn room(t: DType, elements: usize, scales: usize) -> usize {
    elements * t.bits() / 8 + scales * 6 + 4096
}

/// A constant matrix of floats of 4 or 8 bits with scales of some type for each block along the depth, or one for each slice of the other
/// dimension where blocks have no size.
fn of_floats(
    b: &mut Builder,
    [t, of, to]: [DType; 3],
    shape: [usize; 2],
    depth: usize,
    block: usize,
) -> (String, Vec<f64>) {
    let mut dims = if block > 0 { shape.to_vec() } else { vec![shape[1 - depth]] };
    if block > 0 {
        dims[depth] = shape[depth].div_ceil(block);
    }
    let codes: Vec<f64> = b.random(&[shape[0] * shape[1]]).to_f64().iter().map(|x| x * 6.0).collect();
    let codes = HostTensor::from_f64(t, &shape, &codes);
    let scales: Vec<f64> = b.random(&[dims.iter().product()]).to_f64().iter().map(|x| 0.01 + x.abs()).collect();
    let scales = HostTensor::from_f64(of, &dims, &scales);
    let (q, s) = (codes.to_f64(), scales.to_f64());
    let at = |r: usize, c: usize| match (block, depth) {
        (0, _) => [r, c][1 - depth],
        (_, 0) => r / block * dims[1] + c,
        _ => r * dims[1] + c / block,
    };
    let each = (0..shape[0]).flat_map(|r| (0..shape[1]).map(move |c| (r, c)));
    let elements = each.map(|(r, c)| q[r * shape[1] + c] * s[at(r, c)]).collect();
    let axis = if block > 0 { depth } else { 1 - depth };
    let mut attributes = vec![("axis", int(axis as i64)), ("block_size", int(block as i64))];
    if of != to {
        attributes.push(("output_dtype", int(to.to_onnx().into())));
    }
    let names = [b.constant(codes), b.constant(scales)];
    (b.node("DequantizeLinear", &[&names[0], &names[1]], &attributes), elements)
}

#[test]
fn products_with_weights_of_small_floats() {
    let (four, powers) = (DType::F4E2M1, DType::F8E8M0);
    let cases = [
        // Type of the codes and of their scales (none: that of the data), block, extents, transposed weights.
        (four, Some(powers), 32, [1, 192, 331], true),
        (four, Some(powers), 32, [3, 256, 40], false),
        (four, Some(powers), 32, [37, 320, 72], true),
        (four, None, 32, [8, 1024, 5], true),
        (four, None, 16, [2, 96, 33], false),
        (four, Some(powers), 32, [5, 101, 24], true),
        (four, Some(powers), 32, [70, 75, 31], false),
        (DType::F8E4M3, Some(powers), 32, [4, 160, 70], true),
        (DType::F8E4M3, None, 128, [1, 512, 66], false),
        (DType::F8E4M3Z, None, 64, [2, 128, 34], true),
        (DType::F8E5M2, Some(powers), 32, [6, 64, 9], true),
        (DType::F8E5M2, None, 0, [1, 256, 18], false),
        (DType::F8E4M3, None, 0, [19, 96, 65], true),
        (four, None, 0, [7, 224, 12], true),
        // Has no form of its own.
        (DType::F8E5M2Z, None, 32, [3, 64, 20], true),
    ];
    for (number, (t, scales, block, [m, k, n], rowwise)) in cases.into_iter().enumerate() {
        for to in [DType::F32, DType::F16, DType::BF16] {
            let mut b = Builder::new(25, 70 + number as u64);
            let x = HostTensor::from_f64(to, &[m, k], &b.random(&[m, k]).to_f64());
            let xs = x.to_f64();
            let x = b.input_of(x);
            let (shape, depth) = if rowwise { ([n, k], 1) } else { ([k, n], 0) };
            let types = [t, scales.unwrap_or(to), to];
            let (w, elements) = of_floats(&mut b, types, shape, depth, block);
            let y = match rowwise {
                true => b.node("Gemm", &[&x, &w], &[("transB", int(1))]),
                false => b.node("MatMul", &[&x, &w], &[]),
            };
            b.output(&y);
            let at = |c: usize, l: usize| if rowwise { c * k + l } else { l * n + c };
            let sum = |i: usize| -> f64 { (0..k).map(|l| xs[i / n * k + l] * elements[at(i % n, l)]).sum() };
            let want: Vec<f64> = (0..m * n).map(sum).collect();
            let error = match to {
                DType::F32 => 2e-6,
                DType::F16 => 2e-3,
                _ => 1.5e-2,
            };
            let what = format!("{t} by {:?} in {to}, blocks of {block}, {m}x{k}x{n}, rowwise {rowwise}", types[1]);
            let packed = SmallFloat::of(t).is_some_and(SmallFloat::fits_halves);
            let most = if packed { room(t, k.next_multiple_of(32) * n, n * k.div_ceil(16)) } else { usize::MAX };
            check(&b, &what, &want, error, most);
        }
    }
}

/// A scale that is not a number makes its block's products none, and nothing else.
#[test]
fn blocks_of_no_number() {
    let (k, n) = (64, 20);
    let mut b = Builder::new(25, 9);
    let x = HostTensor::from_f64(DType::F16, &[2, k], &vec![1.0; 2 * k]);
    let x = b.input_of(x);
    let codes = b.constant(HostTensor::from_f64(DType::F4E2M1, &[n, k], &vec![0.5; n * k]));
    let mut powers = vec![127u8; n * 2];
    powers[2 * 7 + 1] = 255;
    let scales = b.constant(HostTensor::new(DType::F8E8M0, &[n, 2], powers).unwrap());
    let to = ("output_dtype", int(DType::F16.to_onnx().into()));
    let w = b.node("DequantizeLinear", &[&codes, &scales], &[("axis", int(1)), ("block_size", int(32)), to]);
    let y = b.node("Gemm", &[&x, &w], &[("transB", int(1))]);
    b.output(&y);
    let mut model = b.model.clone();
    model.expand();
    let graph = fuse(&model, &Options::default()).unwrap();
    for target in TARGETS {
        let (out, _) = device::run(&graph, &b.inputs, target, true).unwrap();
        for (i, y) in out[0].to_f64().iter().enumerate() {
            assert!(if i % n == 7 { y.is_nan() } else { *y == 32.0 }, "{target} {i}: {y}");
        }
    }
}

#[test]
fn products_with_dequantised_weights() {
    let (i8, u8, i4, u4, i2) = (DType::I8, DType::U8, DType::I4, DType::U4, DType::I2);
    let cases = [
        // Type of the numbers, scales, zero points, operator, rows of data, transposed weights.
        (i8, Scales::One, false, "MatMul", 1, false),
        (i8, Scales::Slices, false, "MatMul", 3, false),
        (u8, Scales::Slices, true, "MatMul", 8, true),
        (u8, Scales::One, false, "Gemm", 2, true),
        (i8, Scales::Slices, true, "Gemm", 17, true),
        (i4, Scales::Blocks(32), false, "MatMul", 1, false),
        (u4, Scales::Blocks(16), true, "MatMul", 4, false),
        (i4, Scales::Blocks(64), true, "Gemm", 5, true),
        (u4, Scales::Blocks(32), false, "Transpose", 1, true),
        (i8, Scales::Blocks(64), false, "Transpose", 20, true),
        (i4, Scales::Slices, false, "Transpose", 2, false),
        (i2, Scales::Blocks(64), true, "MatMul", 2, false),
    ];
    for (number, (t, how, zero, op, rows, rowwise)) in cases.into_iter().enumerate() {
        for of in [DType::F32, DType::F16] {
            let mut b = Builder::new(25, number as u64);
            let (k, n) = (192, 331);
            let x = HostTensor::from_f64(of, &[rows, k], &b.random(&[rows, k]).to_f64());
            let xs = x.to_f64();
            let x = b.input_of(x);
            let (shape, depth) = if rowwise { ([n, k], 1) } else { ([k, n], 0) };
            let (w, elements) = dequantised(&mut b, [t, of], shape, depth, how, zero);
            let bias = HostTensor::from_f64(of, &[n], &b.random(&[n]).to_f64());
            let y = match op {
                "MatMul" if !rowwise => b.node("MatMul", &[&x, &w], &[]),
                "Gemm" => {
                    let c = b.constant(bias.clone());
                    b.node("Gemm", &[&x, &w, &c], &[("transB", int(rowwise.into()))])
                }
                _ if rowwise => {
                    let w = b.node("Transpose", &[&w], &[("perm", ints(&[1, 0]))]);
                    b.node("MatMul", &[&x, &w], &[])
                }
                _ => {
                    let w = b.node("Transpose", &[&w], &[]);
                    b.node("Gemm", &[&x, &w], &[("transB", int(1))])
                }
            };
            b.output(&y);
            let bias = if b.model.graph.nodes.last().unwrap().inputs.len() == 3 { bias.to_f64() } else { vec![0.0; n] };
            let at = |c: usize, l: usize| if rowwise { c * k + l } else { l * n + c };
            let want = (0..rows * n).map(|i| {
                let (r, c) = (i / n, i % n);
                bias[c] + (0..k).map(|l| xs[r * k + l] * elements[at(c, l)]).sum::<f64>()
            });
            let want: Vec<f64> = want.collect();
            let scales = if let Scales::Blocks(size) = how { n * k / size } else { n * 3 };
            let error = if of == DType::F16 { 2e-3 } else { 2e-6 };
            let what = format!("{t} by {of} {how:?}, zero points {zero}, {op} of {rows} rows");
            check(&b, &what, &want, error, room(t, k * n, scales + n));
        }
    }
}

#[test]
fn rows_of_dequantised_tables() {
    let cases = [
        (DType::I8, Scales::One, false),
        (DType::U8, Scales::Slices, true),
        (DType::I4, Scales::Blocks(32), false),
        (DType::U4, Scales::Blocks(16), true),
    ];
    for (number, (t, how, zero)) in cases.into_iter().enumerate() {
        let mut b = Builder::new(25, 50 + number as u64);
        let (rows, depth) = (600, 160);
        let (table, elements) = dequantised(&mut b, [t, DType::F32], [rows, depth], 1, how, zero);
        let index: Vec<i64> = vec![0, 599, -1, 7, 300, -600];
        let at = b.input_of(HostTensor::from_i64(&[2, 3], &index));
        let y = b.node("Gather", &[&table, &at], &[]);
        b.output(&y);
        let row = |i: i64| elements[i.rem_euclid(rows as i64) as usize * depth..][..depth].to_vec();
        let want: Vec<f64> = index.into_iter().flat_map(row).collect();
        let scales = if let Scales::Blocks(size) = how { rows * depth / size } else { rows * 5 };
        check(&b, &format!("{t} {how:?}"), &want, 1e-6, room(t, rows * depth, scales));
    }
}

/// One table for the first and the last layer of a language model is there once.
#[test]
fn a_table_that_is_looked_up_and_multiplied_by_is_there_once() {
    for t in [DType::I8, DType::I4] {
        let mut b = Builder::new(25, 70);
        let (rows, depth) = (700, 128);
        let (table, elements) = dequantised(&mut b, [t, DType::F32], [rows, depth], 1, Scales::Blocks(32), false);
        let at = b.input_of(HostTensor::from_i64(&[2], &[5, 699]));
        let x = b.node("Gather", &[&table, &at], &[]);
        let turned = b.node("Transpose", &[&table], &[("perm", ints(&[1, 0]))]);
        let y = b.node("MatMul", &[&x, &turned], &[]);
        b.output(&y);
        let row = |i: usize| &elements[i * depth..][..depth];
        let dot = |i: usize, j: usize| row(i).iter().zip(row(j)).map(|(x, y)| x * y).sum::<f64>();
        let want: Vec<f64> = [5, 699].into_iter().flat_map(|i| (0..rows).map(move |j| dot(i, j))).collect();
        check(&b, &format!("{t}"), &want, 2e-6, room(t, rows * depth, rows * depth / 32));
    }
}

/// Where no block of the product's depth has one scale the matrix is widened, and right.
#[test]
fn scales_across_the_depth_are_widened() {
    for (shape, how, depth) in
        [([96, 40], Scales::Slices, 1), ([70, 40], Scales::One, 0), ([72, 40], Scales::Blocks(24), 0)]
    {
        let mut b = Builder::new(25, 90);
        let (k, n) = (shape[0], shape[1]);
        let x = b.input(&[3, k]);
        let (w, elements) = dequantised(&mut b, [DType::I8, DType::F32], shape, depth, how, false);
        let y = b.node("MatMul", &[&x, &w], &[]);
        b.output(&y);
        let xs = b.inputs[0].to_f64();
        let dot = |r: usize, c: usize| (0..k).map(|l| xs[r * k + l] * elements[l * n + c]).sum::<f64>();
        let want: Vec<f64> = (0..3).flat_map(|r| (0..n).map(move |c| (r, c))).map(|(r, c)| dot(r, c)).collect();
        check(&b, &format!("{how:?}"), &want, 2e-6, 4 * k * n + 4096);
    }
}
