//! Quotients and remainders of integers of every type, by operands and by constants; floats that become integers of 64 bits; floats of 8 and 4 bits between
//! all neighbours; and moves of short runs.

use crate::support::agree::{finish, outputs};
use crate::support::build::{Builder, int, ints};
use crate::support::device;
use barewave::graph::{Options, fuse};
use barewave::tensor::{DType, HostTensor};

const INTS: [DType; 8] = [DType::I8, DType::U8, DType::I16, DType::U16, DType::I32, DType::U32, DType::I64, DType::U64];

/// Targets of every family.
const FAMILIES: [&str; 8] = ["gfx803", "gfx906", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201"];

fn is_signed(t: DType) -> bool {
    matches!(t, DType::I8 | DType::I16 | DType::I32 | DType::I64)
}

/// A number as the type holds it.
fn held(t: DType, x: i128) -> i128 {
    let low = x & ((1 << t.bits()) - 1);
    if is_signed(t) && low >> (t.bits() - 1) != 0 { low - (1 << t.bits()) } else { low }
}

/// Quotient, Python's remainder and C's.
fn results(t: DType, x: i128, y: i128) -> [i128; 3] {
    let r = x % y;
    let floor = if r != 0 && (r < 0) != (y < 0) { r + y } else { r };
    [x / y, floor, r].map(|v| held(t, v))
}

/// Adds the nodes of these results.
fn divide(b: &mut Builder, x: &str, y: &str) {
    for (op, attributes) in [("Div", vec![]), ("Mod", vec![]), ("Mod", vec![("fmod", int(1))])] {
        let out = b.node(op, &[x, y], &attributes);
        b.output(&out);
    }
}

fn tensor(t: DType, values: &[i128]) -> HostTensor {
    let values: Vec<i64> = values.iter().map(|v| *v as i64).collect();
    HostTensor::from_ints(t, &[values.len()], &values)
}

/// Edges of the type, and numbers of every length.
fn numbers(t: DType, count: usize, seed: u64) -> Vec<i128> {
    let mut rng = Builder::new(22, seed).rng;
    let top = 1i128 << (t.bits() - 1);
    let edges =
        [0, 1, 2, 3, 5, 7, 10, 127, 128, 255, 256, 641, 65535, 65536, 16777217, top - 1, top, top + 1, 2 * top - 1];
    let mut all: Vec<i128> = edges.iter().flat_map(|x| [*x, -x]).map(|x| held(t, x)).collect();
    while all.len() < count {
        let shift = rng.next_u64() % t.bits() as u64;
        all.push(held(t, i128::from(rng.next_u64() >> (64 - t.bits()) >> shift)));
    }
    all.truncate(count);
    all
}

#[test]
fn quotients_of_every_type() {
    for t in INTS {
        let pairs: Vec<(i128, i128)> = match t.bits() {
            8 => (0..256).flat_map(|x| (1..256).map(move |y| (held(t, x), held(t, y)))).collect(),
            _ => {
                let (xs, ys) = (numbers(t, 38, 1), numbers(t, 38, 2));
                let edges = xs.iter().flat_map(|x| ys.iter().map(|y| (*x, *y)));
                let mut all: Vec<_> = edges.chain(numbers(t, 3000, 3).into_iter().zip(numbers(t, 3000, 4))).collect();
                // Next to multiples, where estimates are on the wrong side if they are anywhere.
                let near = |(q, d): (i128, i128)| [-1, 0, 1].map(|k| (held(t, q / d.max(1) * d + k), d));
                all.extend(numbers(t, 1000, 5).into_iter().zip(numbers(t, 1000, 6)).flat_map(near));
                all.retain(|p| p.1 != 0);
                all
            }
        };
        let (x, y): (Vec<i128>, Vec<i128>) = pairs.iter().copied().unzip();
        let mut b = Builder::new(22, 1);
        let names = [&x, &y].map(|v| b.input_of(tensor(t, v)));
        divide(&mut b, &names[0], &names[1]);
        let graph = fuse(&b.model, &Options::default()).unwrap();
        for target in FAMILIES {
            let (out, _) = device::run(&graph, &b.inputs, target, true).unwrap();
            let out: Vec<Vec<i64>> = out.iter().map(|o| o.to_i64()).collect();
            for (i, &(x, y)) in pairs.iter().enumerate() {
                let got = [0, 1, 2].map(|k| held(t, i128::from(out[k][i])));
                assert_eq!(got, results(t, x, y), "{x} and {y} ({t}, {target})");
            }
        }
    }
}

#[test]
fn quotients_by_constants() {
    for t in INTS {
        let top = 1i128 << (t.bits() - 1);
        let divisors =
            [1, -1, 2, 3, -3, 6, 7, -7, 8, -16, 10, 25, 60, 100, 125, 641, 1000, 65537, top - 1, top, top + 1];
        let mut divisors: Vec<i128> = divisors.iter().map(|d| held(t, *d)).filter(|d| *d != 0).collect();
        divisors.sort_unstable();
        divisors.dedup();
        let mut x = numbers(t, 200, 9);
        x.extend(divisors.iter().flat_map(|d| [d - 1, *d, d + 1, top / d * d, top / d * d - 1, 2 * top / d * d - 1]));
        let x: Vec<i128> = x.into_iter().map(|x| held(t, x)).collect();
        let mut b = Builder::new(22, 1);
        let name = b.input_of(tensor(t, &x));
        for d in &divisors {
            let by = b.constant(HostTensor::from_ints(t, &[], &[*d as i64]));
            divide(&mut b, &name, &by);
        }
        let graph = fuse(&b.model, &Options::default()).unwrap();
        for target in FAMILIES {
            let (out, _) = device::run(&graph, &b.inputs, target, true).unwrap();
            for (k, out) in out.iter().enumerate() {
                let d = divisors[k / 3];
                for (x, got) in x.iter().zip(out.to_i64()) {
                    assert_eq!(held(t, i128::from(got)), results(t, *x, d)[k % 3], "{x} and {d} ({t}, {target})");
                }
            }
        }
    }
}

#[test]
fn floats_become_long_integers() {
    let mut x: Vec<f32> = vec![0.0, -0.0, 0.5, -0.5, 0.99, -0.99, 1.0, -1.0, 1.5, -1.5];
    x.extend((0..63).flat_map(|e| [1.0f32, 1.25, 1.999_999_9, -1.0, -1.25, -1.999_999_9].map(|m| m * 2f32.powi(e))));
    x.retain(|x| x.abs() < 2f32.powi(63));
    let signed = [x.clone(), vec![-2f32.powi(63)]].concat();
    x.retain(|x| *x > -1.0);
    x.extend([2f32.powi(63), 1.5 * 2f32.powi(63), 1.999_999_9 * 2f32.powi(63)]);
    for (t, x) in [(DType::I64, signed), (DType::U64, x)] {
        let doubles: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
        let mut b = Builder::new(22, 1);
        let name = b.input_of(HostTensor::from_f64(DType::F32, &[x.len()], &doubles));
        let y = b.node("Cast", &[&name], &[("to", int(t.to_onnx() as i64))]);
        b.output(&y);
        let graph = fuse(&b.model, &Options::default()).unwrap();
        for target in FAMILIES {
            let (out, _) = device::run(&graph, &b.inputs, target, true).unwrap();
            for (x, got) in x.iter().zip(out[0].to_i64()) {
                let want = if t == DType::I64 { *x as i64 } else { *x as u64 as i64 };
                assert_eq!(got, want, "{x} ({t}, {target})");
            }
        }
    }
}

/// Every code is read, and every code, every middle between two, and what lies beside them in f32 is rounded.
#[test]
fn every_small_float() {
    let small = [DType::F8E4M3, DType::F8E4M3Z, DType::F8E5M2, DType::F8E5M2Z, DType::F4E2M1];
    for t in small {
        let codes: Vec<u8> = if t == DType::F4E2M1 { (0..16).collect() } else { (0..=255).collect() };
        let all = HostTensor::new(t, &[codes.len()], codes).unwrap();
        let numbers = all.to_f64();
        let mut finite: Vec<f64> = numbers.iter().copied().filter(|x| x.is_finite()).collect();
        finite.sort_by(f64::total_cmp);
        let mut x: Vec<f64> = finite.windows(2).map(|two| (two[0] + two[1]) / 2.0).chain(finite.clone()).collect();
        let largest = finite[finite.len() - 1];
        x.extend([1.01, 1.03, 1.0625, 1.07, 1.25, 1.5, 2.0, 1e9].iter().flat_map(|m| [m * largest, -m * largest]));
        x.extend([f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e-30, -1e-30, 1e-40]);
        let beside = |x: f64| [(x as f32).next_down(), x as f32, (x as f32).next_up()].map(f64::from);
        let mut x: Vec<f64> = x.into_iter().flat_map(beside).collect();
        // Workitems take neighbours.
        x.resize(x.len().next_multiple_of(16), 1.0);
        let mut b = Builder::new(24, 1);
        let names = [b.input_of(all), b.input_of(HostTensor::from_f64(DType::F32, &[x.len()], &x))];
        let read = b.node("Cast", &[&names[0]], &[("to", int(1))]);
        let to = int(t.to_onnx() as i64);
        let rounded = b.node("Cast", &[&names[1]], &[("to", to.clone()), ("saturate", int(0))]);
        // In between, and as a result.
        let again = b.node("Cast", &[&rounded], &[("to", int(1))]);
        let only = b.node("Cast", &[&names[1]], &[("to", to), ("saturate", int(0))]);
        for y in [&read, &rounded, &again, &only] {
            b.output(y);
        }
        let graph = fuse(&b.model, &Options::default()).unwrap();
        let once = HostTensor::from_f64(t, &[x.len()], &x).to_f64();
        let same = |a: f64, b: f64| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
        for target in FAMILIES {
            let (out, _) = device::run(&graph, &b.inputs, target, true).unwrap();
            for (x, got) in numbers.iter().zip(out[0].to_f64()) {
                assert!(same(*x, got), "{x}, not {got} ({t}, {target})");
            }
            for out in &out[1..] {
                for ((x, want), got) in x.iter().zip(&once).zip(out.to_f64()) {
                    assert!(same(*want, got), "{x:e} is {want}, not {got} ({t}, {target})");
                }
            }
        }
    }
}

/// Runs of two, four or eight elements that keep their order are moved as one each.
#[test]
fn short_runs_move_together() {
    let types = [DType::I8, DType::Bool, DType::F16, DType::BF16, DType::F32, DType::I64];
    let shapes: [(&[usize], &[usize]); 6] = [
        (&[40, 33, 2], &[1, 0, 2]),
        (&[65, 34, 4], &[1, 0, 2]),
        (&[20, 31, 8], &[1, 0, 2]),
        (&[3, 9, 11, 2], &[2, 0, 1, 3]),
        (&[16, 3, 33, 2, 2], &[2, 0, 1, 3, 4]),
        (&[40, 33, 3], &[1, 0, 2]),
    ];
    for t in types {
        for (shape, perm) in shapes {
            let mut b = Builder::new(17, 1);
            let count: usize = shape.iter().product();
            let top = if t == DType::Bool { 2 } else { 100 };
            let values: Vec<f64> = (0..count).map(|_| b.below(top) as f64).collect();
            let x = b.input_of(HostTensor::from_f64(t, shape, &values));
            let y = b.node("Transpose", &[&x], &[("perm", ints(perm))]);
            finish(&mut b, "", &[y]);
            outputs(&b, &format!("{t} {shape:?} by {perm:?}"), 0.0);
        }
    }
}
