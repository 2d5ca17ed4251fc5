//! Parts that become rows, and rows that are parted, of odd widths and so many rows that these go through LDS.

use crate::support::agree::outputs_on;
use crate::support::build::{Builder, int};
use crate::support::device::session;
use barewave::graph::{self, Options};
use barewave::tensor::{DType, HostTensor};

fn input(b: &mut Builder, t: DType, dims: &[usize]) -> String {
    let values: Vec<f64> = (0..dims.iter().product()).map(|_| b.below(101) as f64).collect();
    let values = if t == DType::Bool { values.iter().map(|x| x % 2.0).collect() } else { values };
    b.input_of(HostTensor::from_f64(t, dims, &values))
}

/// A Concat, and a Split, of parts of so many columns.
fn model(t: DType, rows: usize, columns: &[usize], behind: &[usize]) -> Builder {
    let mut b = Builder::new(19, 11);
    let dims = |n: usize| [&[rows, n], behind].concat();
    let parts: Vec<String> = columns.iter().map(|n| input(&mut b, t, &dims(*n))).collect();
    let parts: Vec<&str> = parts.iter().map(|p| &p[..]).collect();
    let y = b.node("Concat", &parts, &[("axis", int(1))]);
    b.output(&y);
    let x = input(&mut b, t, &dims(columns.iter().sum()));
    let sizes: Vec<f64> = columns.iter().map(|n| *n as f64).collect();
    let sizes = b.constant(HostTensor::from_f64(DType::I64, &[columns.len()], &sizes));
    let outputs = b.node_n("Split", &[&x, &sizes], &[("axis", int(1))], columns.len());
    outputs.iter().for_each(|y| b.output(y));
    b
}

#[test]
fn odd_parts_of_rows_go_through_lds() {
    let few = ["gfx902", "gfx1036", "gfx1103"];
    let cases: [(&[&str], DType, usize, &[usize], &[usize]); 10] = [
        (&few, DType::F16, 26_002, &[3, 5], &[]),
        (&few, DType::F16, 2_006, &[77, 33], &[]),
        (&few, DType::F32, 1_003, &[85, 80, 91], &[]),
        (&few, DType::I8, 60_004, &[1, 2, 4], &[]),
        (&few, DType::U8, 4_004, &[77, 33], &[]),
        (&few, DType::I64, 4_001, &[3, 1, 9], &[]),
        (&few, DType::Bool, 36_008, &[5, 8], &[]),
        (&few, DType::F16, 1_202, &[3, 5], &[7, 7]),
        (&["gfx906", "gfx803"], DType::F16, 21_002, &[31, 19], &[]),
        (&["gfx1201"], DType::I8, 110_004, &[7, 12, 2], &[]),
    ];
    for (targets, t, rows, columns, behind) in cases {
        let b = model(t, rows, columns, behind);
        outputs_on(&b, &format!("{t} {rows} {columns:?} {behind:?}"), 0.0, targets);
        let fused = graph::fuse(&b.model, &Options::default()).unwrap();
        let (_, compiled) = session(&fused, targets[0], true).unwrap();
        // They may share a launch.
        let kernels: usize = compiled.plan().launches.iter().map(|l| l.beside.len().max(1)).sum();
        assert_eq!(kernels, 2, "{t} {columns:?}");
    }
}

/// What does not come out even, or is little, is moved as it was; and others read some of the parts, or compute what becomes them.
#[test]
fn other_parts_of_rows() {
    for (rows, columns) in [(101, vec![3, 5]), (26_005, vec![3, 5]), (6_002, vec![64, 64])] {
        let b = model(DType::F16, rows, &columns, &[]);
        outputs_on(&b, &format!("{rows} {columns:?}"), 0.0, &["gfx902", "gfx1103"]);
    }
    let mut b = Builder::new(19, 5);
    let rows = 10_004;
    let (x, z) = (input(&mut b, DType::F16, &[rows, 7]), input(&mut b, DType::F16, &[rows, 9]));
    let y = b.node("Relu", &[&z], &[]);
    let both = b.node("Concat", &[&x, &y, &x], &[("axis", int(1))]);
    let axes = b.constant(HostTensor::from_f64(DType::I64, &[1], &[1.0]));
    let sum = b.node("ReduceMax", &[&both, &axes], &[]);
    b.output(&sum);
    let sizes = b.constant(HostTensor::from_f64(DType::I64, &[2], &[11.0, 12.0]));
    let parts = b.node_n("Split", &[&both, &sizes], &[("axis", int(1))], 2);
    let y = b.node("Add", &[&parts[0], &sum], &[]);
    b.output(&y);
    b.output(&parts[1]);
    outputs_on(&b, "parts of what is computed", 1e-3, &["gfx902", "gfx1103"]);
}

/// What is the same along rows of odd lengths, of which neighbours are taken across their ends: scales of channels, and of images, and others' elements.
#[test]
fn neighbours_are_taken_across_the_ends_of_rows() {
    let cases = [
        (DType::F16, [80, 64, 7, 7], true),
        (DType::BF16, [61, 33, 13, 13], false),
        (DType::F16, [997, 31, 3, 5], true),
        (DType::BF16, [334, 250, 3, 1], false),
        (DType::I8, [160, 64, 7, 7], true),
        (DType::F32, [41, 65, 7, 7], false),
    ];
    for (t, dims, whole) in cases {
        let mut b = Builder::new(19, 5);
        let x = input(&mut b, t, &dims);
        let (scale, shift) = (input(&mut b, t, &[dims[0], dims[1], 1, 1]), input(&mut b, t, &[dims[1], 1, 1]));
        let y = b.node("Mul", &[&x, &scale], &[]);
        let mut y = b.node("Add", &[&y, &shift], &[]);
        if whole {
            let other = input(&mut b, t, &dims);
            y = b.node("Sub", &[&y, &other], &[]);
        }
        b.output(&y);
        let most = [(DType::F32, 1e-6), (DType::F16, 2e-3), (DType::BF16, 2e-2)]
            .iter()
            .find(|m| m.0 == t)
            .map_or(0.0, |m| m.1);
        outputs_on(&b, &format!("{t} {dims:?}"), most, &["gfx906", "gfx942", "gfx1030", "gfx1100", "gfx1201"]);
    }
}
