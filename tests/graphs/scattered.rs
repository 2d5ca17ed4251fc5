//! Scatter of many updates against references written down here, on emulated devices in strict mode.

use crate::support::agree::{close, finish, outputs};
use crate::support::build::{Builder, int, ints, text};
use barewave::compile::compile;
use barewave::graph::fused::StepKind;
use barewave::graph::view::dense_strides;
use barewave::graph::{Options, fuse};
use barewave::tensor::{DType, HostTensor};
use barewave_isa::Target;

const REDUCTIONS: [&str; 5] = ["none", "add", "mul", "max", "min"];

/// What becomes of an element.
fn combined(reduction: &str, old: f64, new: f64) -> f64 {
    match reduction {
        "none" => new,
        "add" => old + new,
        "mul" => old * new,
        "max" => old.max(new),
        _ => old.min(new),
    }
}

/// Coordinates of element `i` in row-major order.
fn coordinates(dims: &[usize], i: usize) -> Vec<usize> {
    dense_strides(dims).iter().zip(dims).map(|(s, n)| i / *s as usize % n).collect()
}

fn number(dims: &[usize], at: &[usize]) -> usize {
    dense_strides(dims).iter().zip(at).map(|(s, i)| *s as usize * i).sum()
}

/// Where an index points in `n` elements, if there.
fn wrapped(i: i64, n: usize) -> Option<usize> {
    let i = if i < 0 { i + n as i64 } else { i };
    (0..n as i64).contains(&i).then_some(i as usize)
}

/// Values that a type holds, whose products stay moderate.
fn values(b: &mut Builder, dtype: DType, shape: &[usize]) -> HostTensor {
    let n: usize = shape.iter().product();
    let all: Vec<f64> = match dtype {
        DType::Bool => (0..n).map(|_| b.below(2) as f64).collect(),
        t if t.is_float() => (0..n).map(|_| b.below(33) as f64 / 16.0 - 1.0).collect(),
        t => (0..n).map(|_| b.below(5) as f64 - if t.is_signed_int() { 2.0 } else { 0.0 }).collect(),
    };
    HostTensor::from_f64(dtype, shape, &all)
}

/// Indices of `extent` elements, some of them counted from the end, and some in neither way there.
fn indices(b: &mut Builder, extent: usize, n: usize) -> Vec<i64> {
    (0..n).map(|_| b.below(2 * extent + 2) as i64 - extent as i64 - 1).collect()
}

struct Case {
    shape: &'static [usize],
    idx: &'static [usize],
    axis: usize,
    /// Dimensions of the index before it is expanded.
    narrow: &'static [usize],
    constant: bool,
}

#[rustfmt::skip]
const CASES: [Case; 8] = [
    Case { shape: &[40], idx: &[300], axis: 0, narrow: &[300], constant: false },
    Case { shape: &[500], idx: &[70], axis: 0, narrow: &[70], constant: false },
    Case { shape: &[9, 7], idx: &[131, 7], axis: 0, narrow: &[131, 1], constant: false },
    Case { shape: &[9, 7], idx: &[131, 7], axis: 0, narrow: &[131, 1], constant: true },
    Case { shape: &[3, 11, 5], idx: &[2, 90, 4], axis: 1, narrow: &[2, 90, 4], constant: false },
    Case { shape: &[3, 11, 5], idx: &[2, 90, 4], axis: 1, narrow: &[1, 90, 4], constant: false },
    Case { shape: &[4, 30], idx: &[4, 100], axis: 1, narrow: &[1, 100], constant: true },
    Case { shape: &[3, 1, 2], idx: &[3, 80, 1], axis: 1, narrow: &[3, 80, 1], constant: true },
];

fn elements(case: &Case, dtype: DType, reduction: &str, seed: u64, most: f64) {
    let Case { shape, idx, axis, narrow, constant } = *case;
    let mut b = Builder::new(18, seed);
    let (data, updates) = (values(&mut b, dtype, shape), values(&mut b, dtype, idx));
    let (x, u) = (b.input_of(data.clone()), b.input_of(updates.clone()));
    let list = indices(&mut b, shape[axis], narrow.iter().product());
    let index = HostTensor::from_i64(narrow, &list);
    let mut i = if constant { b.constant(index) } else { b.input_of(index) };
    if narrow != idx {
        let whole: Vec<i64> = idx.iter().map(|n| *n as i64).collect();
        let whole = b.ints(&whole);
        i = b.node("Expand", &[&i, &whole], &[]);
    }
    let how = [("axis", int(axis as i64)), ("reduction", text(reduction))];
    let y = b.node("ScatterElements", &[&x, &i, &u], &how);
    finish(&mut b, "", &[y]);
    let what = format!("{reduction} of {dtype} {shape:?} {idx:?} {narrow:?}");
    let got = outputs(&b, &what, most).remove(0).to_f64();
    let (mut want, u) = (data.to_f64(), updates.to_f64());
    for (n, new) in u.iter().enumerate() {
        let mut at = coordinates(idx, n);
        let from: Vec<usize> = at.iter().zip(narrow).map(|(i, n)| i % n).collect();
        if let Some(row) = wrapped(list[number(narrow, &from)], shape[axis]) {
            at[axis] = row;
            let old = &mut want[number(shape, &at)];
            *old = combined(reduction, *old, *new);
        }
    }
    if dtype != DType::Bool {
        close(&got, &want, most, &what);
    }
}

#[test]
fn many_elements_are_scattered_in_their_order() {
    for (seed, case) in CASES.iter().enumerate() {
        for reduction in REDUCTIONS {
            elements(case, DType::F32, reduction, seed as u64, 1e-5);
        }
    }
}

#[rustfmt::skip]
const FEW: [Case; 7] = [
    Case { shape: &[6, 40], idx: &[6, 1], axis: 1, narrow: &[6, 1], constant: false },
    Case { shape: &[6, 40], idx: &[3, 40], axis: 0, narrow: &[3, 40], constant: false },
    Case { shape: &[5, 12, 16], idx: &[5, 3, 16], axis: 1, narrow: &[1, 3, 1], constant: false },
    Case { shape: &[5, 12, 16], idx: &[5, 3, 16], axis: 1, narrow: &[5, 3, 16], constant: true },
    Case { shape: &[5, 12, 16], idx: &[4, 19, 13], axis: 1, narrow: &[4, 19, 13], constant: false },
    Case { shape: &[5, 12, 16], idx: &[3, 12, 8], axis: 2, narrow: &[3, 12, 8], constant: false },
    Case { shape: &[64, 2048], idx: &[64, 9], axis: 1, narrow: &[64, 9], constant: false },
];

#[test]
fn few_elements_are_scattered_in_their_order() {
    for (seed, case) in (50..).zip(&FEW) {
        for reduction in REDUCTIONS {
            elements(case, DType::F32, reduction, seed, 1e-5);
        }
        for dtype in [DType::F16, DType::I8, DType::I64, DType::Bool] {
            elements(case, dtype, "none", seed, 0.0);
        }
    }
}

/// More than are looked at in front of each element, into so many lines that each is a workitem's.
#[test]
fn elements_of_many_lines_are_replaced_in_their_order() {
    #[rustfmt::skip]
    let cases = [
        Case { shape: &[40, 2100], idx: &[17, 2100], axis: 0, narrow: &[17, 2100], constant: false },
        Case { shape: &[40, 2100], idx: &[90, 2050], axis: 0, narrow: &[90, 1], constant: false },
        Case { shape: &[2100, 30], idx: &[2100, 12], axis: 1, narrow: &[2100, 12], constant: false },
        Case { shape: &[3, 20, 800], idx: &[3, 9, 760], axis: 1, narrow: &[1, 9, 760], constant: true },
    ];
    for (seed, case) in (70..).zip(&cases) {
        for dtype in [DType::F32, DType::F16, DType::I8, DType::I64, DType::Bool] {
            elements(case, dtype, "none", seed, 0.0);
        }
        elements(case, DType::F32, "add", seed, 1e-5);
    }
}

/// Elements that lie side by side are one workitem's, whatever is looked for in front of them.
#[test]
fn neighbours_are_scattered_together() {
    let launched = |shape: &[usize], idx: &[usize]| {
        let mut b = Builder::new(18, 60);
        let (data, updates) = (values(&mut b, DType::F32, shape), values(&mut b, DType::F32, idx));
        let (x, u) = (b.input_of(data), b.input_of(updates));
        let list = indices(&mut b, shape[1], idx[0] * idx[1]);
        let i = b.input_of(HostTensor::from_i64(idx, &list));
        let y = b.node("ScatterElements", &[&x, &i, &u], &[("axis", int(1))]);
        finish(&mut b, "", &[y]);
        let graph = fuse(&b.model, &Options::default()).unwrap();
        let compiled = compile(&graph, Target::GFX906).unwrap();
        let [launch] = &compiled.plan().launches[..] else { panic!("{} launches", compiled.plan().launches.len()) };
        (launch.grid[0] * launch.block) as usize
    };
    assert_eq!(launched(&[64, 2048], &[64, 1]), 64 * 2048 / 4);
    assert_eq!(launched(&[64, 2048], &[64, 9]), 64 * 2048 / 4, "with a loop");
}

#[test]
fn many_elements_of_all_types_are_scattered() {
    let types = [DType::F16, DType::BF16, DType::F64, DType::I8, DType::I16, DType::I32, DType::I64, DType::U8];
    for dtype in types {
        for reduction in ["none", "add", "max", "min"] {
            // Sums of 16 bits are rounded in each step.
            elements(&CASES[1], dtype, reduction, 11, if dtype.size() == 2 { 2e-2 } else { 1e-6 });
        }
    }
    for reduction in ["none", "max", "min"] {
        elements(&CASES[4], DType::Bool, reduction, 12, 0.0);
    }
}

/// `ScatterND` into data of this shape, of as many updates, whose indices have `k` numbers.
fn slices(shape: &[usize], count: usize, k: usize, reduction: &str, seed: u64) {
    let mut b = Builder::new(18, seed);
    let dims = [&[count], &shape[k..]].concat();
    let (data, updates) = (values(&mut b, DType::F32, shape), values(&mut b, DType::F32, &dims));
    let x = b.input_of(data.clone());
    let columns: Vec<Vec<i64>> = shape[..k].iter().map(|n| indices(&mut b, *n, count)).collect();
    let list: Vec<i64> = (0..count).flat_map(|u| columns.iter().map(move |c| c[u])).collect();
    let i = b.input_of(HostTensor::from_i64(&[count, k], &list));
    let u = b.input_of(updates.clone());
    let y = b.node("ScatterND", &[&x, &i, &u], &[("reduction", text(reduction))]);
    finish(&mut b, "", &[y]);
    let what = format!("{reduction} of {count} slices in {shape:?} by {k} numbers");
    let got = outputs(&b, &what, 1e-5).remove(0).to_f64();
    let (mut want, u) = (data.to_f64(), updates.to_f64());
    let inner: usize = shape[k..].iter().product();
    for n in 0..count {
        let at: Option<Vec<usize>> = columns.iter().zip(shape).map(|(c, extent)| wrapped(c[n], *extent)).collect();
        let Some(at) = at else { continue };
        let row = number(&shape[..k], &at);
        for e in 0..inner {
            let old = &mut want[row * inner + e];
            *old = combined(reduction, *old, u[n * inner + e]);
        }
    }
    close(&got, &want, 1e-5, &what);
}

#[test]
fn many_slices_are_scattered_in_their_order() {
    for (seed, reduction) in (20..).zip(REDUCTIONS) {
        slices(&[30, 6], 200, 1, reduction, seed);
        slices(&[5, 9, 3], 150, 2, reduction, seed);
        slices(&[5, 8], 199, 2, reduction, seed);
        for count in [1, 3, 7, 8, 21] {
            slices(&[5, 9, 3], count, 2, reduction, seed);
            slices(&[40, 16], count, 1, reduction, seed);
            slices(&[6, 8], count, 2, reduction, seed);
        }
    }
}

/// What is stored over a copy, because all other elements stay: found by looking, and of more updates by the last one of each place.
#[test]
fn a_few_of_many_elements_are_scattered_in_their_order() {
    #[rustfmt::skip]
    let looked = [
        Case { shape: &[1200], idx: &[100], axis: 0, narrow: &[100], constant: false },
        Case { shape: &[3, 900, 5], idx: &[2, 90, 4], axis: 1, narrow: &[2, 90, 4], constant: false },
        Case { shape: &[3, 900, 5], idx: &[2, 90, 4], axis: 1, narrow: &[1, 90, 4], constant: true },
    ];
    for (seed, case) in (80..).zip(&looked) {
        for dtype in [DType::F32, DType::F16, DType::I8, DType::I64, DType::Bool] {
            elements(case, dtype, "none", seed, 0.0);
        }
    }
    let combined = Case { shape: &[1 << 18], idx: &[100], axis: 0, narrow: &[100], constant: false };
    for (seed, reduction) in (84..).zip(REDUCTIONS) {
        elements(&combined, DType::F32, reduction, seed, 1e-5);
    }
    elements(&combined, DType::I8, "add", 89, 0.0);
    slices(&[1 << 17, 6], 80, 1, "add", 89);
    slices(&[1200, 6], 140, 1, "none", 90);
    slices(&[40, 30, 4], 140, 2, "none", 90);
    let sorted = Case { shape: &[2, 1 << 18], idx: &[2, 600], axis: 1, narrow: &[2, 600], constant: false };
    elements(&sorted, DType::F32, "none", 91, 0.0);
    slices(&[1 << 19], 600, 1, "none", 92);
    slices(&[1024, 512], 600, 2, "none", 93);
}

/// Updates that find out by themselves which of them are for one element: none, a few, and nearly all of them.
#[test]
fn contested_elements_are_replaced_by_the_last_update() {
    #[rustfmt::skip]
    let cases = [
        Case { shape: &[701, 7], idx: &[701, 6], axis: 0, narrow: &[701, 6], constant: false },
        Case { shape: &[90_001], idx: &[301], axis: 0, narrow: &[301], constant: false },
        Case { shape: &[3, 397, 5], idx: &[2, 333, 5], axis: 1, narrow: &[2, 333, 5], constant: true },
        Case { shape: &[5, 1024], idx: &[5, 513], axis: 1, narrow: &[5, 513], constant: false },
    ];
    for (seed, case) in (100..).zip(&cases) {
        for dtype in [DType::F32, DType::F16, DType::I8, DType::I64, DType::Bool] {
            elements(case, dtype, "none", seed, 0.0);
        }
    }
    // More than a small card takes at once.
    let many = Case { shape: &[1 << 16, 2], idx: &[40_000, 2], axis: 0, narrow: &[40_000, 2], constant: false };
    elements(&many, DType::F32, "none", 110, 0.0);
}

/// More than a workgroup sorts.
#[test]
fn very_many_updates_are_sorted_in_pieces() {
    for (seed, reduction) in (30..).zip(["none", "add"]) {
        slices(&[700, 2], 9001, 1, reduction, seed);
    }
    let long = Case { shape: &[3, 50], idx: &[2, 4800], axis: 1, narrow: &[2, 4800], constant: false };
    elements(&long, DType::F32, "add", 33, 1e-5);
}

/// Two layers over the edges of one graph, from nothing on: the edges are put in order once.
#[test]
fn scatters_by_the_same_indices_share_their_order() {
    for constant in [false, true] {
        let (nodes, edges, width) = (20, 110, 5);
        let mut b = Builder::new(18, 40);
        let (list, updates) = (indices(&mut b, nodes, edges), b.random(&[edges, width]));
        let u = b.input_of(updates.clone());
        let index = HostTensor::from_i64(&[edges, 1], &list);
        let i = if constant { b.constant(index) } else { b.input_of(index) };
        let (shape, whole) = (b.ints(&[nodes as i64, width as i64]), b.ints(&[edges as i64, width as i64]));
        let none = b.node("ConstantOfShape", &[&shape], &[]);
        let layer = |b: &mut Builder, x: &str, how: &str| {
            let i = b.node("Expand", &[&i, &whole], &[]);
            b.node("ScatterElements", &[x, &i, &u], &[("axis", int(0)), ("reduction", text(how))])
        };
        let sums = layer(&mut b, &none, "add");
        let y = layer(&mut b, &sums, "max");
        finish(&mut b, "", &[y]);
        let graph = fuse(&b.model, &Options::default()).unwrap();
        let sorted = graph.steps.iter().filter(|s| matches!(s.kind, StepKind::TopK(_))).count();
        assert_eq!(sorted, 1, "the edges are sorted {sorted} times");
        let got = outputs(&b, "layers", 1e-5).remove(0).to_f64();
        let (mut want, u) = (vec![0.0; nodes * width], updates.to_f64());
        for how in ["add", "max"] {
            for (e, i) in list.iter().enumerate() {
                let Some(node) = wrapped(*i, nodes) else { continue };
                for c in 0..width {
                    let old = &mut want[node * width + c];
                    *old = combined(how, *old, u[e * width + c]);
                }
            }
        }
        close(&got, &want, 1e-5, "layers");
    }
}

/// Keys and values that go to the same rows of two caches: which update is the last of each row is looked for once.
#[test]
fn scatters_by_the_same_indices_share_the_last_updates() {
    let (rows, count, width) = (40, 9, 6);
    let mut b = Builder::new(18, 41);
    let list = indices(&mut b, rows, count);
    let i = b.input_of(HostTensor::from_i64(&[count, 1], &list));
    let given = [(); 2].map(|()| [b.random(&[rows, width]), b.random(&[count, width])]);
    for pair in &given {
        let [x, u] = pair.clone().map(|t| b.input_of(t));
        let y = b.node("ScatterND", &[&x, &i, &u], &[]);
        b.output(&y);
    }
    assert_eq!(fuse(&b.model, &Options::default()).unwrap().steps.len(), 3);
    for (got, [data, updates]) in outputs(&b, "two caches", 0.0).iter().zip(&given) {
        let (mut want, u) = (data.to_f64(), updates.to_f64());
        for (n, i) in list.iter().enumerate() {
            let Some(row) = wrapped(*i, rows) else { continue };
            want[row * width..][..width].copy_from_slice(&u[n * width..][..width]);
        }
        close(&got.to_f64(), &want, 0.0, "two caches");
    }
}

#[test]
fn many_elements_are_unpooled() {
    for room in [[20, 18], [23, 18], [18, 21]] {
        let mut b = Builder::new(11, 50);
        let data = b.random(&[2, 3, 20, 18]);
        let x = b.input_of(data.clone());
        let window = [("kernel_shape", ints(&[2, 2])), ("strides", ints(&[2, 2]))];
        let best = b.node_n("MaxPool", &[&x], &window, 2);
        let shape = b.ints(&[2, 3, room[0] as i64, room[1] as i64]);
        let y = b.node("MaxUnpool", &[&best[0], &best[1], &shape], &window);
        finish(&mut b, "", &[y]);
        let got = outputs(&b, "unpooled", 0.0).remove(0).to_f64();
        let data = data.to_f64();
        let want: Vec<f64> = (0..6 * room[0] * room[1])
            .map(|n| {
                let at = coordinates(&[6, room[0], room[1]], n);
                if at[1] >= 20 || at[2] >= 18 {
                    return 0.0;
                }
                let value = |y: usize, x: usize| data[number(&[6, 20, 18], &[at[0], y, x])];
                let (y, x) = (at[1] / 2 * 2, at[2] / 2 * 2);
                let most = [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(i, j)| value(y + i, x + j));
                let own = value(at[1], at[2]);
                if most.iter().all(|m| own >= *m) { own } else { 0.0 }
            })
            .collect();
        close(&got, &want, 0.0, "unpooled");
    }
}

/// Constant places of a slice: a row of them for each element, or for each of the first axis of what is transposed; the result is one
/// elementwise step, or none of a kernel's.
#[test]
fn slices_are_assigned_without_a_search() {
    let runs = [(0, 2, 6), (1, 2, 6), (0, 3, 4), (0, 1, 5), (3, 1, 9), (0, 1, 12), (2, 3, 3), (11, 1, 1)];
    for (seed, (start, step, count)) in runs.into_iter().enumerate() {
        for grid in [false, true] {
            let shape = [12, 5, 3];
            let mut b = Builder::new(18, seed as u64);
            let dims = [count, 5, 3];
            let (data, updates) = (values(&mut b, DType::F32, &shape), values(&mut b, DType::F32, &dims));
            let (x, u) = (b.input_of(data.clone()), b.input_of(updates.clone()));
            let place = |i: usize| start + i * step;
            let y = if grid {
                // Along the last axis of another order, each element by three numbers.
                let turned = |b: &mut Builder, v: &str| b.node("Transpose", &[v], &[("perm", ints(&[1, 2, 0]))]);
                let [x, u] = [&x, &u].map(|v| turned(&mut b, v));
                let all = (0..5).flat_map(|i| (0..3).flat_map(move |j| (0..count).map(move |k| [i, j, place(k)])));
                let list: Vec<i64> = all.flatten().map(|v| v as i64).collect();
                let i = b.constant(HostTensor::from_i64(&[5, 3, count, 3], &list));
                let y = b.node("ScatterND", &[&x, &i, &u], &[]);
                b.node("Transpose", &[&y], &[("perm", ints(&[2, 0, 1]))])
            } else {
                let list: Vec<i64> = (0..count).map(|i| place(i) as i64 - if i == 0 { 12 } else { 0 }).collect();
                let i = b.constant(HostTensor::from_i64(&[count, 1], &list));
                b.node("ScatterND", &[&x, &i, &u], &[])
            };
            finish(&mut b, "", &[y]);
            let what = format!("{count} places from {start}, {step} apart, grid {grid}");
            let got = outputs(&b, &what, 0.0).remove(0).to_f64();
            let (mut want, u) = (data.to_f64(), updates.to_f64());
            (0..count).for_each(|i| want[place(i) * 15..][..15].copy_from_slice(&u[i * 15..][..15]));
            close(&got, &want, 0.0, &what);
            let graph = fuse(&b.model, &Options::default()).unwrap();
            let plain = graph.steps.iter().all(|s| s.kind == StepKind::Pointwise);
            assert_eq!(plain, (start, step) != (2, 3), "{what}");
        }
    }
}
