//! Steps that memory bounds: elements of every type taken in words and in several places, transpositions through LDS, reductions,
//! softmax and normalisations along dimensions that lie apart, short lines. Emulated devices in strict mode against the f64
//! interpreter of the fused graph, on extents around those of tiles, and on sizes for which workitems take several elements.

use crate::support::agree::{close, finish, listing, outputs, outputs_on};
use crate::support::build::{Builder, int, ints, text};
use barewave::graph::fused::{Role, Tensor};
use barewave::onnx::Attribute;
use barewave::tensor::{DType, HostTensor};
use barewave_isa::Target;

const TYPES: [DType; 8] =
    [DType::F32, DType::F16, DType::BF16, DType::I8, DType::U16, DType::Bool, DType::I64, DType::F64];

/// Small integers of a type, which every type holds.
fn small(b: &mut Builder, t: DType, shape: &[usize]) -> String {
    let top = if t == DType::Bool { 2 } else { 100 };
    let values: Vec<f64> = (0..shape.iter().product()).map(|_| b.below(top) as f64).collect();
    b.input_of(HostTensor::from_f64(t, shape, &values))
}

fn check(b: &mut Builder, y: String, most: f64, what: &str) {
    finish(b, "", &[y]);
    outputs(b, what, most);
}

#[test]
fn transpositions_of_every_type() {
    let shapes: [(&[usize], &[usize]); 6] = [
        (&[65, 66], &[1, 0]),
        (&[3, 40, 64], &[0, 2, 1]),
        (&[130, 3], &[1, 0]),
        (&[2, 7, 33, 12], &[0, 2, 3, 1]),
        (&[2, 16, 17, 8], &[3, 1, 0, 2]),
        (&[8, 128], &[1, 0]),
    ];
    for t in TYPES {
        for (shape, perm) in shapes {
            let mut b = Builder::new(17, 1);
            let x = small(&mut b, t, shape);
            let y = b.node("Transpose", &[&x], &[("perm", ints(perm))]);
            check(&mut b, y, 0.0, &format!("{t} {shape:?} by {perm:?}"));
        }
    }
}

/// What a guard leaves out of a transposed operand is filled: whole words of it, and parts of them.
#[test]
fn transpositions_that_are_padded() {
    let shapes: [(&[usize], &[usize], &[i64]); 4] = [
        (&[3, 70, 32], &[0, 2, 1], &[0, 0, 0, 0, 1, 0]),
        (&[40, 64], &[1, 0], &[4, 8, 12, 4]),
        (&[40, 64], &[1, 0], &[1, 3, 2, 5]),
        (&[2, 7, 12, 24], &[0, 3, 1, 2], &[0, 0, 1, 4, 0, 8, 0, 0]),
    ];
    for t in [DType::F32, DType::F16, DType::I8, DType::Bool, DType::I64] {
        for (shape, perm, pads) in shapes {
            let mut b = Builder::new(17, 1);
            let x = small(&mut b, t, shape);
            let x = b.node("Transpose", &[&x], &[("perm", ints(perm))]);
            let pads = b.ints(pads);
            let one = b.constant(HostTensor::from_f64(t, &[], &[1.0]));
            let y = b.node("Pad", &[&x, &pads, &one], &[]);
            check(&mut b, y, 0.0, &format!("{t} {shape:?} by {perm:?}, padded"));
        }
    }
}

/// Large enough that dies take four tiles each that lie together: of a matrix, of several, and of images.
#[test]
fn tiles_that_dies_take_together() {
    let shapes: [(&[usize], &[usize]); 3] =
        [(&[1024, 2048], &[1, 0]), (&[4, 512, 256], &[0, 2, 1]), (&[2, 256, 32, 32], &[0, 2, 3, 1])];
    for t in [DType::I8, DType::Bool, DType::U16] {
        for (shape, perm) in shapes {
            let mut b = Builder::new(17, 12);
            let x = small(&mut b, t, shape);
            let y = b.node("Transpose", &[&x], &[("perm", ints(perm))]);
            check(&mut b, y, 0.0, &format!("{t} {shape:?} by {perm:?}"));
        }
    }
}

/// Rows that begin anywhere in lines of memory, of which dies have ranges of tiles or of columns: in equal ones, and with some left over.
#[test]
fn ranges_that_dies_take_of_odd_rows() {
    let shapes: [(&[usize], &[usize]); 4] = [
        (&[1037, 333], &[1, 0]),
        (&[512, 1000], &[1, 0]),
        (&[3, 255, 13, 13], &[0, 2, 3, 1]),
        (&[5, 13, 13, 84], &[0, 3, 1, 2]),
    ];
    for t in [DType::I8, DType::F16, DType::I64] {
        for (shape, perm) in shapes {
            let mut b = Builder::new(17, 12);
            let x = small(&mut b, t, shape);
            let y = b.node("Transpose", &[&x], &[("perm", ints(perm))]);
            check(&mut b, y, 0.0, &format!("{t} {shape:?} by {perm:?}"));
        }
    }
    for shape in [[11, 84, 13, 13], [8, 40, 7, 7], [1, 300, 1, 333]] {
        for op in ["Softmax", "ArgMax", "LpNormalization"] {
            let mut b = Builder::new(22, 12);
            let x = small(&mut b, DType::F16, &shape);
            let y = b.node(op, &[&x], &[("axis", int(1))]);
            check(&mut b, y, 2e-3, &format!("{op} {shape:?}"));
        }
    }
}

/// Bytes that begin anywhere are loaded one by one, and stored together where rows allow it.
#[test]
fn bytes_at_odd_places_are_stored_together() {
    for t in [DType::I8, DType::U8, DType::Bool] {
        for (width, stored) in [(32, "buffer_store_short"), (30, "buffer_store_dword"), (31, "buffer_store_byte")] {
            let mut b = Builder::new(17, 1);
            let x = small(&mut b, t, &[3, 5, 9, width]);
            let pads = b.ints(&[0, 0, 1, 1, 0, 0, 1, 1]);
            let y = b.node("Pad", &[&x, &pads], &[]);
            check(&mut b, y, 0.0, &format!("{t} rows of {width}"));
            let text = listing(&b, Target::GFX906);
            assert!(text.contains(stored), "{t} rows of {width}: {text}");
        }
    }
}

/// Windows of an image, and patches: several dimensions are a line of the operand's, or of the result's, or of both. With what is not turned,
/// too.
#[test]
fn windows_and_patches_are_turned_in_whole_lines() {
    let shapes: [(&[usize], &[usize]); 7] = [
        (&[2, 70, 3, 7, 5, 7], &[0, 2, 4, 3, 5, 1]),
        (&[2, 3, 5, 7, 7, 70], &[0, 5, 1, 3, 2, 4]),
        (&[3, 12, 5, 3, 4, 2], &[0, 2, 4, 3, 5, 1]),
        (&[3, 33, 9, 2, 2, 16], &[0, 5, 1, 3, 2, 4]),
        (&[2, 32, 17, 2, 33, 2], &[0, 2, 4, 3, 5, 1]),
        (&[5, 20, 6, 2, 96], &[0, 4, 1, 3, 2]),
        (&[2, 96, 9, 4, 3, 4], &[0, 2, 4, 1, 3, 5]),
    ];
    for t in TYPES {
        for (shape, perm) in shapes {
            let mut b = Builder::new(17, 1);
            let x = small(&mut b, t, shape);
            let y = b.node("Transpose", &[&x], &[("perm", ints(perm))]);
            check(&mut b, y, 0.0, &format!("{t} windows {shape:?} by {perm:?}"));
        }
    }
    for (shape, perm) in [(&[2, 9, 4, 2, 4, 36], &[0, 5, 1, 3, 2, 4]), (&[2, 36, 9, 2, 4, 4], &[0, 2, 4, 3, 5, 1])] {
        let mut b = Builder::new(17, 2);
        let turned: Vec<usize> = perm.iter().map(|d: &usize| shape[*d]).collect();
        let (x, z) = (small(&mut b, DType::F16, shape), small(&mut b, DType::F16, &turned));
        let x = b.node("Transpose", &[&x], &[("perm", ints(perm))]);
        let y = b.node("Add", &[&x, &z], &[]);
        check(&mut b, y, 0.0, &format!("windows {shape:?} and what is not turned"));
    }
    // Through LDS, where lines are whole.
    let mut b = Builder::new(17, 3);
    let x = small(&mut b, DType::F16, &[4, 8, 8, 7, 7, 96]);
    let y = b.node("Transpose", &[&x], &[("perm", ints(&[0, 5, 1, 3, 2, 4]))]);
    b.output(&y);
    let graph = barewave::graph::fuse(&b.model, &Default::default()).unwrap();
    let compiled = barewave::compile::compile(&graph, barewave_isa::Target::GFX1100).unwrap();
    assert!(compiled.plan().kernels[0].lds > 0);
}

#[test]
fn what_is_turned_meets_what_is_not() {
    for t in [DType::F32, DType::F16, DType::I8, DType::I64] {
        let mut b = Builder::new(17, 2);
        let (x, z, row) = (small(&mut b, t, &[5, 36, 68]), small(&mut b, t, &[5, 36, 68]), small(&mut b, t, &[36]));
        let own = small(&mut b, t, &[5, 68, 36]);
        let x = b.node("Transpose", &[&x], &[("perm", ints(&[0, 2, 1]))]);
        let z = b.node("Transpose", &[&z], &[("perm", ints(&[0, 2, 1]))]);
        let y = b.node("Max", &[&x, &row], &[]);
        let y = b.node("Min", &[&y, &own], &[]);
        let y = b.node("Max", &[&y, &z], &[]);
        check(&mut b, y, 0.0, &format!("two turned operands of {t}"));
    }
}

#[test]
fn elements_are_taken_in_words() {
    for t in TYPES {
        for last in [48, 20, 6, 5] {
            let mut b = Builder::new(17, 3);
            let x = small(&mut b, t, &[9, last]);
            let rows = b.ints(&[8, 0, -1, 3, 5, -9]);
            let y = b.node("Gather", &[&x, &rows], &[("axis", int(0))]);
            check(&mut b, y, 0.0, &format!("rows of {last} of {t}"));
            for to in [DType::F32, DType::I8, DType::I64] {
                let mut b = Builder::new(17, 4);
                let x = small(&mut b, t, &[9, last]);
                let y = b.node("Cast", &[&x], &[("to", int(to.to_onnx().into()))]);
                check(&mut b, y, 0.0, &format!("{last} of {t} as {to}"));
            }
        }
        // More than a chip of few compute units begins at once, and not a multiple of anything.
        let mut b = Builder::new(17, 5);
        let x = small(&mut b, t, &[3, 99_991]);
        let z = small(&mut b, t, &[3, 99_991]);
        let y = b.node("Concat", &[&x, &z], &[("axis", int(1))]);
        check(&mut b, y, 0.0, &format!("many of {t}"));
    }
}

#[test]
fn lines_along_dimensions_that_lie_apart() {
    for (shape, axis) in [([2, 300, 40], 1), ([70, 9, 33], 0), ([1, 2000, 64], 1), ([3, 17, 500], 1), ([600, 1, 20], 0)]
    {
        for t in [DType::F32, DType::F16] {
            let most = if t == DType::F16 { 4e-3 } else { 3e-6 };
            let mut b = Builder::new(13, 6);
            let x = b.random(&shape);
            let x = b.input_of(HostTensor::from_f64(t, &shape, &x.to_f64()));
            let soft = b.node("Softmax", &[&x], &[("axis", int(axis))]);
            let mean = b.node("ReduceMean", &[&x], &[("axes", Attribute::Ints(vec![axis])), ("keepdims", int(1))]);
            let top = b.node("ReduceMax", &[&x], &[("axes", Attribute::Ints(vec![axis])), ("keepdims", int(0))]);
            let place = b.node("ArgMax", &[&x], &[("axis", int(axis))]);
            finish(&mut b, "", &[soft, mean, top, place]);
            outputs(&b, &format!("{t} {shape:?} along {axis}"), most);
        }
    }
}

#[test]
fn short_lines_in_any_number() {
    for length in [2, 3, 7, 13, 49, 64, 99] {
        for count in [5, 1000, 70_001] {
            let mut b = Builder::new(13, 7);
            let x = b.input(&[count, length]);
            let y = b.node("ReduceMean", &[&x], &[("axes", ints(&[1])), ("keepdims", int(0))]);
            check(&mut b, y, 3e-6, &format!("{count} lines of {length}"));
        }
    }
}

#[test]
fn groups_of_channels_keep_their_weights_small() {
    let mut b = Builder::new(17, 8);
    let x = b.input(&[2, 12, 10, 14]);
    let (groups, whole) = (b.ints(&[0, 4, -1]), b.ints(&[2, 12, 10, 14]));
    let (one, none) = (b.weight(&[4]), b.weight(&[4]));
    let (scale, bias) = (b.weight(&[12, 1, 1]), b.weight(&[12, 1, 1]));
    let y = b.node("Reshape", &[&x, &groups], &[]);
    let y = b.node("InstanceNormalization", &[&y, &one, &none], &[]);
    let y = b.node("Reshape", &[&y, &whole], &[]);
    let y = b.node("Mul", &[&y, &scale], &[]);
    let y = b.node("Add", &[&y, &bias], &[]);
    finish(&mut b, "", &[y]);
    outputs(&b, "group normalisation", 1e-5);
    let fused = barewave::graph::fuse(&b.model, &Default::default()).expect("it fuses");
    let constant = |t: &&Tensor| matches!(t.role, Role::Constant(_));
    assert!(fused.tensors.iter().filter(constant).all(|t| t.len() <= 12), "{fused}");
}

/// Few lines that no workgroup holds: softmax and normalisations in pieces, of which some are the first and the last that a
/// workgroup has, with elements that make a maximum of one piece of no use for another.
#[test]
fn few_lines_in_pieces() {
    // Of 40,009 elements, a prime, and of 41,002, twice one, the last piece is shorter.
    let lines: [&[usize]; 6] = [&[1, 65536], &[3, 46530], &[1, 2, 36864], &[1, 2, 5, 8000], &[2, 40009], &[1, 41002]];
    for t in [DType::F32, DType::F16, DType::BF16] {
        let most = if t == DType::F32 { 2e-5 } else { 1e-2 };
        for shape in lines {
            let what = format!("{t} {shape:?}");
            let values = |b: &mut Builder| -> Vec<f64> {
                let all: usize = shape.iter().product();
                let x: Vec<f64> =
                    (0..all).map(|i| b.below(64) as f64 / 16.0 + if i % 40000 < 20 { 6.0 } else { 0.0 }).collect();
                x
            };
            let flat = [shape[0], shape[1..].iter().product()];
            let mut b = Builder::new(17, 1);
            let mut x = values(&mut b);
            // A piece of nothing but -inf, and, in another line, NaN.
            x[..9000].fill(f64::NEG_INFINITY);
            if flat[0] > 1 {
                x[flat[1] + 5] = f64::NAN;
            }
            let x = b.input_of(HostTensor::from_f64(t, &flat, &x));
            let y = b.node("Softmax", &[&x], &[("axis", int(1))]);
            check(&mut b, y, most, &format!("softmax {what}"));
            if t != DType::BF16 {
                let mut b = Builder::new(17, 2);
                let x = values(&mut b);
                let x = b.input_of(HostTensor::from_f64(t, &flat, &x));
                let y = b.node("LogSoftmax", &[&x], &[("axis", int(1))]);
                check(&mut b, y, most, &format!("log softmax {what}"));
            }
            let mut b = Builder::new(17, 3);
            let x = values(&mut b);
            let x = b.input_of(HostTensor::from_f64(t, shape, &x));
            let (scale, bias) = (small(&mut b, t, &shape[1..2]), small(&mut b, t, &shape[1..2]));
            if shape.len() > 2 {
                let y = b.node("InstanceNormalization", &[&x, &scale, &bias], &[]);
                check(&mut b, y, most, &format!("instance {what}"));
            } else {
                let y = b.node("LayerNormalization", &[&x, &scale, &bias], &[("axis", int(1))]);
                check(&mut b, y, most, &format!("layer {what}"));
            }
        }
    }
}

/// Few columns of many rows: softmax and normalisations in pieces of rows, whose last one may be shorter, of columns that fill whole waves and of others,
/// with columns of -inf and of NaN, behind an expression of their own; that pieces are taken is counted in launches.
#[test]
fn few_columns_in_pieces() {
    for t in [DType::F32, DType::F16] {
        let most = if t == DType::F32 { 2e-5 } else { 1e-2 };
        let shapes = if t == DType::F32 { [[1, 8192, 32], [2, 6001, 36]] } else { [[1, 8193, 40], [1, 7000, 64]] };
        for [n, rows, columns] in shapes {
            let values = |b: &mut Builder| -> Vec<f64> {
                let value =
                    |b: &mut Builder, i: usize| b.below(64) as f64 / 16.0 + if i % 40000 < 20 { 6.0 } else { 0.0 };
                (0..n * rows * columns).map(|i| value(b, i)).collect()
            };
            let what = format!("{t} {n}x{rows}x{columns}");
            for op in if n > 1 { ["LogSoftmax"] } else { ["Softmax"] } {
                let mut b = Builder::new(17, 1);
                let mut x = values(&mut b);
                // A piece of -inf and a column of it, and one with NaN.
                x[..columns * 3000].fill(f64::NEG_INFINITY);
                (0..rows).for_each(|row| x[row * columns + 3] = f64::NEG_INFINITY);
                x[5000 * columns + 7] = f64::NAN;
                let x = b.input_of(HostTensor::from_f64(t, &[n, rows, columns], &x));
                let y = b.node(op, &[&x], &[("axis", int(1))]);
                let y = b.node("Neg", &[&y], &[]);
                finish(&mut b, "", &[y]);
                let graph = barewave::graph::fuse(&b.model, &Default::default()).unwrap();
                let compiled = barewave::compile::compile(&graph, barewave_isa::Target::GFX942).unwrap();
                assert_eq!(compiled.plan().launches.len(), 2, "{op} {what}");
                outputs(&b, &format!("{op} {what}"), most);
            }
            let mut b = Builder::new(17, 3);
            let x = values(&mut b);
            let x = b.input_of(HostTensor::from_f64(t, &[n, rows, columns], &x));
            let (scale, bias) = (small(&mut b, t, &[rows]), small(&mut b, t, &[rows]));
            let y = b.node("Transpose", &[&x], &[("perm", ints(&[0, 2, 1]))]);
            let y = b.node("LayerNormalization", &[&y, &scale, &bias], &[("axis", int(-1))]);
            check(&mut b, y, most, &format!("layer {what}"));
        }
    }
}

/// Running sums of so few columns that they are a part of a line of memory: in pieces where they are long, on every chip.
#[test]
fn running_sums_of_few_columns() {
    let sums = |t: DType, shape: [usize; 3], axis: i32| {
        let mut b = Builder::new(17, 4);
        // Sums that every type holds.
        let x: Vec<f64> = (0..shape.iter().product()).map(|_| b.below(3) as f64 - 1.0).collect();
        let x = b.input_of(HostTensor::from_f64(t, &shape, &x));
        let axis = b.constant(HostTensor::from_i32(&[], &[axis]));
        let y = b.node("CumSum", &[&x, &axis], &[]);
        finish(&mut b, "", &[y]);
        b
    };
    for (t, shape) in
        [(DType::F16, [1, 3000, 16]), (DType::F16, [3, 700, 24]), (DType::F32, [2, 513, 17]), (DType::F16, [5, 70, 31])]
    {
        outputs(&sums(t, shape, 1), &format!("sums of {t} {shape:?}"), 0.0);
    }
    for target in [barewave_isa::Target::GFX90A, barewave_isa::Target::GFX942, barewave_isa::Target::GFX950] {
        let b = sums(DType::F16, [1, 1 << 18, 16], 1);
        let graph = barewave::graph::fuse(&b.model, &Default::default()).unwrap();
        let compiled = barewave::compile::compile(&graph, target).unwrap();
        assert_eq!(compiled.plan().launches.len(), 3, "{target}");
    }
}

/// Coordinates of a padded image's elements are not multiplied out again to where they are stored.
#[test]
fn dense_results_are_stored_one_behind_the_other() {
    let mut b = Builder::new(17, 6);
    let x = small(&mut b, DType::I8, &[16384, 2, 64, 64]);
    let pads = b.constant(HostTensor::from_f64(DType::I64, &[8], &[0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0]));
    let y = b.node("Pad", &[&x, &pads], &[]);
    b.output(&y);
    let graph = barewave::graph::fuse(&b.model, &Default::default()).unwrap();
    let compiled = barewave::compile::compile(&graph, barewave_isa::Target::GFX906).unwrap();
    // Of 16 places of two neighbours, with two divisions, two loads and a store each.
    let instructions = compiled.plan().kernels[0].instructions;
    assert!(instructions < 16 * 34, "{instructions} instructions");
}

/// Volumes whose rows are longer than a workgroup, resized by tables of taps and weights along rows: workitems take several rows below each other, and
/// read tables once.
#[test]
fn rows_share_tables() {
    for (t, [height, width], scale, targets) in [
        (DType::F32, [16, 700], 2.0, ["gfx902", "gfx1036"]),
        (DType::F16, [10, 1100], 2.0, ["gfx902", "gfx1036"]),
        (DType::F32, [10, 460], 3.0, ["gfx1036", "gfx902"]),
    ] {
        for mode in ["linear", "cubic"] {
            let mut b = Builder::new(19, 8);
            let shape = [1, 1, 3, height, width];
            let values: Vec<f64> = (0..3 * height * width).map(|_| b.below(64) as f64).collect();
            let x = b.input_of(HostTensor::from_f64(t, &shape, &values));
            let scales = b.constant(HostTensor::from_f64(DType::F32, &[5], &[1.0, 1.0, 2.0, scale, scale]));
            let y = b.node("Resize", &[&x, "", &scales], &[("mode", text(mode))]);
            finish(&mut b, "", &[y]);
            for target in targets {
                outputs_on(
                    &b,
                    &format!("{mode} {t} {width}, {target}"),
                    if t == DType::F32 { 1e-5 } else { 4e-3 },
                    &[target],
                );
            }
            let graph = barewave::graph::fuse(&b.model, &Default::default()).unwrap();
            let compiled = barewave::compile::compile(&graph, barewave_isa::Target::GFX1036).unwrap();
            let last = compiled.plan().launches.last().unwrap().grid[0] as usize;
            let results = 6 * height * width * (scale * scale) as usize;
            assert!(
                t != DType::F32 || mode == "cubic" || last <= results.div_ceil(256 * 4 * 2),
                "{mode} {width}: {last} workgroups"
            );
        }
    }
}

/// Gathers along the last dimension, of whose neighbours tables are read together: known ones, and given ones that count from the end.
#[test]
fn neighbours_by_tables() {
    for (dtype, count) in [(DType::F32, 64), (DType::F16, 36), (DType::I8, 40), (DType::F64, 12), (DType::F16, 35)] {
        for known in [true, false] {
            let mut b = Builder::new(19, 5);
            let shape = [9, 21, 30];
            let data: Vec<f64> = (0..shape.iter().product()).map(|_| b.below(200) as f64 - 100.0).collect();
            let x = b.input_of(HostTensor::from_f64(dtype, &shape, &data));
            let places: Vec<i64> = (0..count).map(|_| b.below(60) as i64 - 30).collect();
            let table = HostTensor::from_i64(&[count], &places);
            let table = if known { b.constant(table) } else { b.input_of(table) };
            let y = b.node("Gather", &[&x, &table], &[("axis", int(2))]);
            finish(&mut b, "", &[y]);
            let what = format!("{count} of {dtype}, known {known}");
            let got = outputs(&b, &what, 0.0).remove(0);
            let element = |line: usize, p: &i64| data[line * 30 + p.rem_euclid(30) as usize];
            let want: Vec<f64> = (0..9 * 21).flat_map(|line| places.iter().map(move |p| element(line, p))).collect();
            close(&got.to_f64(), &want, 0.0, &what);
        }
    }
}

/// Linear sampling of neighbours, of several types and by several rules.
#[test]
fn neighbours_of_a_larger_image() {
    for (dtype, most) in [(DType::F32, 1e-6), (DType::F16, 2e-3), (DType::BF16, 2e-2), (DType::F64, 1e-12)] {
        for (mode, size) in [
            ("half_pixel", [32, 40]),
            ("align_corners", [31, 44]),
            ("asymmetric", [8, 12]),
            ("asymmetric", [32, 40]),
            ("align_corners", [32, 40]),
            ("half_pixel", [64, 80]),
        ] {
            let mut b = Builder::new(19, 6);
            let x = b.input_of(HostTensor::from_f64(
                dtype,
                &[2, 3, 16, 20],
                &(0..2 * 3 * 16 * 20).map(|i| f64::from(i * 37 % 101) - 50.0).collect::<Vec<_>>(),
            ));
            let sizes = b.ints(&[2, 3, size[0], size[1]]);
            let at = [("mode", text("linear")), ("coordinate_transformation_mode", text(mode))];
            let y = b.node("Resize", &[&x, "", "", &sizes], &at);
            finish(&mut b, "", &[y]);
            outputs(&b, &format!("{dtype} {mode}"), most);
        }
    }
}

/// What two results are interpolated of is loaded once, which takes other kernels for other tables.
#[test]
fn neighbours_share_what_they_are_interpolated_of() {
    let resized = |mode: &str| {
        let mut b = Builder::new(19, 6);
        let x = b.input_of(HostTensor::from_f64(DType::F16, &[1, 2, 3, 16, 20], &vec![1.0; 2 * 3 * 16 * 20]));
        let sizes = b.ints(&[1, 2, 6, 32, 40]);
        let at = [("mode", text("linear")), ("coordinate_transformation_mode", text(mode))];
        let y = b.node("Resize", &[&x, "", "", &sizes], &at);
        finish(&mut b, "", &[y]);
        b
    };
    let text = listing(&resized("half_pixel"), Target::GFX906);
    // Of four results: four elements of each of four rows, and four weights.
    assert!(text.matches("buffer_load_ushort").count() <= 20, "{text}");
    let keys = ["half_pixel", "align_corners"].map(|mode| {
        let graph = barewave::graph::fuse(&resized(mode).model, &Default::default()).unwrap();
        barewave::kernels::key(&graph, &graph.steps[0])
    });
    assert_ne!(keys[0], keys[1]);
}

/// Pixels of blocks that go to channels, and channels that come last and go first: moved, and added to what is the same for all, for each channel,
/// or for each pixel.
#[test]
fn few_coordinates_between_neighbours() {
    let targets = ["gfx803", "gfx902", "gfx906", "gfx90a", "gfx942", "gfx1010", "gfx1036", "gfx1103", "gfx1201"];
    let types = [
        DType::F32,
        DType::F16,
        DType::I8,
        DType::BF16,
        DType::F64,
        DType::U8,
        DType::I64,
        DType::Bool,
        DType::I16,
        DType::I32,
    ];
    let cases = [
        ([1, 3, 192, 128], 2),
        ([2, 2, 96, 144], 3),
        ([1, 2, 128, 256], 4),
        ([1, 1, 128, 192], 8),
        ([1, 5, 60, 70], 5),
    ];
    for (i, (shape, block)) in cases.into_iter().enumerate() {
        for (j, dtype) in types.into_iter().enumerate() {
            let [n, c, h, w] = shape;
            let (rows, columns) = (h / block, w / block);
            let way = if dtype == DType::Bool { 0 } else { (i + j) % 4 };
            let mut b = Builder::new(19, (10 * i + j) as u64);
            let most = if dtype == DType::Bool { 2 } else { 60 };
            let data: Vec<f64> = (0..shape.iter().product()).map(|_| b.below(most) as f64).collect();
            let x = b.input_of(HostTensor::from_f64(dtype, &shape, &data));
            let mut y = b.node("SpaceToDepth", &[&x], &[("blocksize", int(block as i64))]);
            let given = [n, block * block * c, rows, columns];
            let beside = match way {
                1 => vec![1],
                2 => vec![given[1], 1, 1],
                _ => vec![rows, columns],
            };
            let added: Vec<f64> = (0..beside.iter().product()).map(|_| b.below(60) as f64).collect();
            if way > 0 {
                let other = b.input_of(HostTensor::from_f64(dtype, &beside, &added));
                y = b.node("Add", &[&y, &other], &[]);
            }
            finish(&mut b, "", &[y]);
            let what = format!("blocks of {block}, {shape:?} of {dtype}, way {way}");
            let got = outputs_on(&b, &what, 0.0, &targets).remove(0);
            let mut want = Vec::new();
            for (image, channel, row, column) in places(given) {
                let (part, from) = (channel / c, channel % c);
                let at = ((image * c + from) * h + row * block + part / block) * w + column * block + part % block;
                let more = match way {
                    0 => 0.0,
                    1 => added[0],
                    2 => added[channel],
                    _ => added[row * columns + column],
                };
                want.push(data[at] + more);
            }
            close(&got.to_f64(), &want, 0.0, &what);
        }
    }
    for (j, dtype) in types.into_iter().enumerate() {
        let channels = [2, 3, 5, 6][j % 4];
        let mut b = Builder::new(19, j as u64);
        let shape = [2, 60, 104, channels];
        let most = if dtype == DType::Bool { 2 } else { 100 };
        let data: Vec<f64> = (0..shape.iter().product()).map(|_| b.below(most) as f64).collect();
        let x = b.input_of(HostTensor::from_f64(dtype, &shape, &data));
        let y = b.node("Transpose", &[&x], &[("perm", ints(&[0, 3, 1, 2]))]);
        finish(&mut b, "", &[y]);
        let what = format!("{channels} channels of {dtype}");
        let got = outputs_on(&b, &what, 0.0, &targets).remove(0);
        let given = places([2, channels, 60, 104]);
        let want: Vec<f64> = given.map(|(n, c, h, w)| data[((n * 60 + h) * 104 + w) * channels + c]).collect();
        close(&got.to_f64(), &want, 0.0, &what);
    }
}

/// Channels that go last and blocks of channels that become pixels: moved, and added to what is the same for all, for each channel, for each pixel, or
/// lies as the result does.
#[test]
fn few_coordinates_of_neighbours() {
    let targets = ["gfx803", "gfx902", "gfx906", "gfx942", "gfx1010", "gfx1036", "gfx1103", "gfx1201"];
    let types = [DType::F32, DType::F16, DType::I8, DType::BF16, DType::F64, DType::U8, DType::I64, DType::Bool];
    for (j, dtype) in types.into_iter().enumerate() {
        for (i, channels) in [2usize, 3, 5, 6, 7, 8].into_iter().enumerate().skip(j % 2).step_by(2) {
            let (rows, columns) = (60, 104);
            let way = if dtype == DType::Bool { 0 } else { (i / 2 + j) % 5 };
            let mut b = Builder::new(19, (10 * i + j) as u64);
            let most = if dtype == DType::Bool { 2 } else { 60 };
            let shape = [2, channels, rows, columns];
            let data: Vec<f64> = (0..shape.iter().product()).map(|_| b.below(most) as f64).collect();
            let x = b.input_of(HostTensor::from_f64(dtype, &shape, &data));
            let mut y = b.node("Transpose", &[&x], &[("perm", ints(&[0, 2, 3, 1]))]);
            let beside = match way {
                1 => vec![1],
                2 => vec![channels],
                3 => vec![rows, columns, 1],
                _ => vec![rows, columns, channels],
            };
            let added: Vec<f64> = (0..beside.iter().product()).map(|_| b.below(60) as f64).collect();
            if way > 0 {
                let other = b.input_of(HostTensor::from_f64(dtype, &beside, &added));
                y = b.node("Add", &[&y, &other], &[]);
            }
            finish(&mut b, "", &[y]);
            let what = format!("{channels} channels of {dtype} go last, way {way}");
            let got = outputs_on(&b, &what, 0.0, &targets).remove(0);
            let mut want = Vec::new();
            for (image, row, column, channel) in places([2, rows, columns, channels]) {
                let pixel = row * columns + column;
                let more = match way {
                    0 => 0.0,
                    1 => added[0],
                    2 => added[channel],
                    3 => added[pixel],
                    _ => added[pixel * channels + channel],
                };
                want.push(data[((image * channels + channel) * rows + row) * columns + column] + more);
            }
            close(&got.to_f64(), &want, 0.0, &what);
        }
    }
    for (j, dtype) in types.into_iter().enumerate() {
        let (block, channels, rows, columns) = ([2, 4, 3, 8][j % 4], 2, 24, 32);
        let mut b = Builder::new(19, j as u64);
        let shape = [1, block * block * channels, rows, columns];
        let most = if dtype == DType::Bool { 2 } else { 100 };
        let data: Vec<f64> = (0..shape.iter().product()).map(|_| b.below(most) as f64).collect();
        let x = b.input_of(HostTensor::from_f64(dtype, &shape, &data));
        let y = b.node("DepthToSpace", &[&x], &[("blocksize", int(block as i64))]);
        finish(&mut b, "", &[y]);
        let what = format!("blocks of {block} of {dtype} become pixels");
        let got = outputs_on(&b, &what, 0.0, &targets).remove(0);
        let given = places([1, channels, rows * block, columns * block]);
        let from = |(_, c, h, w): (usize, usize, usize, usize)| {
            let channel = (h % block * block + w % block) * channels + c;
            data[(channel * rows + h / block) * columns + w / block]
        };
        close(&got.to_f64(), &given.map(from).collect::<Vec<_>>(), 0.0, &what);
    }
}

/// All coordinates of a tensor, in order.
fn places([n, c, h, w]: [usize; 4]) -> impl Iterator<Item = (usize, usize, usize, usize)> {
    (0..n).flat_map(move |n| (0..c).flat_map(move |c| (0..h).flat_map(move |h| (0..w).map(move |w| (n, c, h, w)))))
}

/// Neighbours along a padded dimension, of which the first lies inside: what else is padded counts for it, too.
#[test]
fn the_first_of_padded_neighbours_is_within_other_borders() {
    for t in [DType::F32, DType::F16, DType::I8] {
        for (channels, begins, ends) in
            [(1, [0, 0, 0, 2], [0, 1, 0, 0]), (1, [0, 0, 1, 4], [0, 3, 2, 2]), (2, [0, 1, 0, 3], [0, 1, 1, 0])]
        {
            let mut b = Builder::new(17, 3);
            let x = small(&mut b, t, &[2, 3, 14, channels]);
            let first = b.node("Transpose", &[&x], &[("perm", ints(&[0, 3, 1, 2]))]);
            let pads = b.ints(&[begins, ends].concat());
            let padded = b.node("Pad", &[&first, &pads], &[]);
            let y = b.node("Transpose", &[&padded], &[("perm", ints(&[0, 2, 3, 1]))]);
            check(&mut b, y, 0.0, &format!("{t}, {channels} channels, {begins:?} and {ends:?}"));
        }
    }
}

/// What is read from its end on, along dimensions of lines and of others.
#[test]
fn what_goes_back_is_read_by_every_kind() {
    let far = i64::from(i32::MAX);
    for (shape, axes, steps) in [
        (&[2usize, 8, 16, 12][..], &[2i64][..], &[-1i64][..]),
        (&[2, 5, 33, 16], &[1, 2], &[-1, -2]),
        (&[1, 7, 14, 31], &[2, 3], &[-1, -1]),
    ] {
        for last in [false, true] {
            let mut b = Builder::new(18, 9);
            let mut x = b.input(shape);
            if last {
                x = b.node("Transpose", &[&x], &[("perm", ints(&[0, 3, 1, 2]))]);
            }
            let ends = [far, -far].map(|end| b.ints(&vec![end; axes.len()]));
            let (axes_of, steps_of) = (b.ints(axes), b.ints(steps));
            let back = b.node("Slice", &[&x, &ends[0], &ends[1], &axes_of, &steps_of], &[]);
            let (points, one) = (b.ints(&[2, 3]), b.ints(&[2]));
            let pads = b.ints(&[0, 0, 2, 1, 0, 0, 0, 3]);
            let made = [
                b.node("ReduceSum", &[&back, &points], &[]),
                b.node("ReduceMax", &[&back], &[("axes", ints(&[1]))]),
                b.node("ArgMax", &[&back], &[("axis", int(2))]),
                b.node("Softmax", &[&back], &[("axis", int(2))]),
                b.node("LpNormalization", &[&back], &[("axis", int(1))]),
                b.node("CumSum", &[&back, &one], &[]),
                b.node("GlobalAveragePool", &[&back], &[]),
                b.node("MaxPool", &[&back], &[("kernel_shape", ints(&[2, 2]))]),
                b.node("Pad", &[&back, &pads], &[("mode", text("reflect"))]),
            ];
            finish(&mut b, "", &made);
            outputs(&b, &format!("{shape:?} back along {axes:?}, channels last: {last}"), 1e-5);
        }
    }
}

/// What takes few instructions for f16: maxima that keep NaN where an instruction does, exponentials of softmax, quotients of powers, and the rests of
/// divisions of small quotients.
#[test]
fn few_instructions_for_halves() {
    let (gfx906, gfx950, gfx1201) = (Target::GFX906, Target::GFX950, Target::GFX1201);
    let data = |b: &mut Builder, shape: &[usize]| {
        let mut x: Vec<f64> = (0..shape.iter().product()).map(|_| b.below(64) as f64 / 16.0 - 2.0).collect();
        x[5] = f64::NAN;
        b.input_of(HostTensor::from_f64(DType::F16, shape, &x))
    };
    let mut b = Builder::new(13, 1);
    let x = data(&mut b, &[9, 4100]);
    let y = b.node("ReduceMax", &[&x], &[("axes", ints(&[1]))]);
    finish(&mut b, "", &[y]);
    outputs_on(&b, "maxima", 0.0, &["gfx906", "gfx950", "gfx1201"]);
    assert!(listing(&b, gfx950).contains("v_maximum3_f32") && listing(&b, gfx1201).contains("v_maximum_f32"));
    let mut b = Builder::new(17, 2);
    let x = data(&mut b, &[7, 4096]);
    let y = b.node("Softmax", &[&x], &[("axis", int(1))]);
    finish(&mut b, "", &[y]);
    outputs_on(&b, "softmax", 1e-3, &["gfx906", "gfx950"]);
    assert!(!listing(&b, gfx950).contains("v_ldexp_f32"));
    let mut b = Builder::new(17, 3);
    let x = data(&mut b, &[2, 12, 16, 32]);
    let y = b.node("LRN", &[&x], &[("size", int(5))]);
    finish(&mut b, "", &[y]);
    outputs_on(&b, "local responses", 1e-3, &["gfx906", "gfx950", "gfx1201"]);
    assert!(!listing(&b, gfx950).contains("v_div_fixup_f32"));
    let mut b = Builder::new(17, 4);
    let x = data(&mut b, &[3, 5, 64, 64]);
    let pads = b.constant(HostTensor::from_f64(DType::I64, &[8], &[0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0]));
    let y = b.node("Pad", &[&x, &pads], &[]);
    finish(&mut b, "", &[y]);
    outputs_on(&b, "padded", 0.0, &["gfx906", "gfx950", "gfx1201"]);
    let text = listing(&b, gfx906);
    assert!(text.contains("v_mad_i32_i24") && !text.contains("v_mul_lo_u32"), "{text}");
}

/// What rows below each other read of an operand they read once: of a row, and of blocks' scales.
#[test]
fn rows_that_read_the_same() {
    let targets = ["gfx906", "gfx1201"];
    let mut b = Builder::new(21, 5);
    let [column, row] = [&[4096, 1][..], &[512]].map(|shape| small(&mut b, DType::F32, shape));
    let y = b.node("Add", &[&column, &row], &[]);
    finish(&mut b, "", &[y]);
    outputs_on(&b, "a column and a row", 0.0, &targets);
    let mut b = Builder::new(21, 6);
    let x = small(&mut b, DType::I8, &[4096, 512]);
    let scales = small(&mut b, DType::F32, &[64, 512]);
    let y = b.node("DequantizeLinear", &[&x, &scales], &[("axis", int(0)), ("block_size", int(64))]);
    finish(&mut b, "", &[y]);
    outputs_on(&b, "blocks of rows", 0.0, &targets);
}

/// Operands that all coordinates of an outer dimension read, and more than caches keep between: sections of these, of which each is read by all before the
/// next. Angles by positions, halves that are turned, a mask whose rows are one dimension with its columns.
#[test]
fn sections_that_an_outer_dimension_shares() {
    let targets = ["gfx906", "gfx90a"];
    for (t, size, most) in [(DType::F16, 64, 4e-3), (DType::F32, 34, 1e-5)] {
        let mut b = Builder::new(23, 8);
        let long = 20_480;
        let x = small(&mut b, t, &[1, 3, long, size]);
        let [c, s] = [1, 2].map(|_| small(&mut b, t, &[long, size / 2]));
        let places: Vec<f64> = (0..long).map(|i| ((i * 7) % long) as f64).collect();
        let places = b.input_of(HostTensor::from_f64(DType::I64, &[1, long], &places));
        let y = b.node("RotaryEmbedding", &[&x, &c, &s, &places], &[]);
        finish(&mut b, "", &[y]);
        outputs_on(&b, &format!("angles of {t}"), most, &targets);
        let mut b = Builder::new(23, 9);
        let rows = 1024 + size;
        let (x, z) = (small(&mut b, t, &[2, 3, rows, 1024]), small(&mut b, t, &[2, 1, rows, 1024]));
        let y = b.node("Add", &[&x, &z], &[]);
        finish(&mut b, "", &[y]);
        outputs_on(&b, &format!("a mask of {t}"), most, &targets);
    }
}
