//! Elementwise functions over whole ranges and at their edges. `tools/ulp` measures all 2^32 single-precision operands;
//! here every f16 operand and every operand that bf16 can hold is tried.

#[allow(dead_code)]
use crate::support::device;
#[path = "../../tools/ulp/src/measure.rs"]
mod measure;

use crate::support::build::{Builder, int, ints};
use barewave::graph::{Options, fuse};
use barewave::tensor::{DType, HostTensor};
use barewave_isa::Target;
use measure::{FUNCTIONS, Operator, compare, error};

/// One target per instruction set with other transcendentals or another wave size.
const WIDTHS: [&str; 2] = ["gfx942", "gfx1100"];

/// Bound of a function's recipe for a type of 16 bits, in ULP of f32: some have a shorter one.
fn bound(f: &measure::Function, dtype: DType) -> f64 {
    match (f.op, dtype) {
        ("Erf", _) => 45.0,
        ("Gelu", DType::BF16) => 1000.0,
        ("Gelu", DType::F16) | ("Exp" | "Sigmoid" | "Swish" | "Tanh" | "Mish", _) => 80.0,
        ("Acos" | "Acosh" | "Asin" | "Asinh" | "Atan" | "Atanh" | "Cos" | "Sin" | "Tan", _) => 80.0,
        ("Celu" | "Cosh" | "Elu" | "Selu" | "Sinh" | "Softplus", _) => 80.0,
        _ => f.bound,
    }
}

#[test]
fn every_f16_operand() {
    for target in WIDTHS {
        let target = Target::parse(target).unwrap();
        for f in FUNCTIONS {
            let mut op = Operator::new(f.op, DType::F16, target, 1 << 16).unwrap();
            let (x, got) = op.run(0..1u32 << 16).unwrap();
            let w = compare(DType::F16, f.exact, &x, &got);
            // A result within the bound in f32 rounds to one of the neighbours.
            assert!(
                w.ulp <= if f.bound == 0.0 { 0.0 } else { 0.5 + bound(f, DType::F16) / 8192.0 },
                "{} {target}: {w:?}",
                f.op
            );
        }
    }
}

#[test]
fn every_bf16_operand_and_result() {
    for target in WIDTHS {
        let target = Target::parse(target).unwrap();
        for f in FUNCTIONS {
            let mut op = Operator::new(f.op, DType::BF16, target, 1 << 16).unwrap();
            let (x, got) = op.run(0..1u32 << 16).unwrap();
            let w = compare(DType::BF16, f.exact, &x, &got);
            assert!(
                w.ulp <= if f.bound == 0.0 { 0.0 } else { 0.5 + bound(f, DType::BF16) / 65536.0 },
                "{} {target}: {w:?}",
                f.op
            );
        }
    }
}

/// Doubles: a sample of all bit patterns and of magnitudes that functions are interesting at. The host's own functions, with
/// which they are compared, are allowed 2 ULP.
#[test]
fn sampled_doubles() {
    let mut rng = Builder::new(22, 11).rng;
    let mut bits: Vec<u64> = [0.0, 1.0, f64::MIN_POSITIVE, 5e-324, f64::MAX, f64::INFINITY, f64::NAN, 709.78, 710.5]
        .into_iter()
        .flat_map(|x: f64| [x.to_bits(), (-x).to_bits()])
        .collect();
    while bits.len() < 1 << 14 {
        bits.push(rng.next_u64());
        bits.push(((rng.next_unit() * 2.0 - 1.0) * 2f64.powi((rng.next_u64() % 24) as i32 - 12)).to_bits());
    }
    for target in ["gfx803", "gfx90a", "gfx1100"] {
        let target = Target::parse(target).unwrap();
        // The tool's HardSigmoid rounds as single precision does.
        for f in FUNCTIONS.iter().filter(|f| f.op != "HardSigmoid") {
            let mut op = Operator::new(f.op, DType::F64, target, bits.len()).unwrap();
            let (x, got) = op.run(bits.iter().copied()).unwrap();
            let w = compare(DType::F64, f.exact, &x, &got);
            assert!(w.ulp <= if f.bound == 0.0 { 0.0 } else { f.bound + 2.0 }, "{} {target}: {w:?}", f.op);
        }
    }
}

#[test]
fn every_bf16_operand() {
    for target in device::TARGETS {
        let target = Target::parse(target).unwrap();
        for f in FUNCTIONS {
            let mut op = Operator::new(f.op, DType::F32, target, 1 << 16).unwrap();
            let (x, got) = op.run((0..1u32 << 16).map(|b| b << 16)).unwrap();
            let w = compare(DType::F32, f.exact, &x, &got);
            assert!(w.ulp <= f.bound, "{} {target}: {w:?}", f.op);
        }
    }
}

/// The worst arguments for range reduction: huge ones, those nearest to multiples of a quarter turn, poles, edges.
#[test]
fn trigonometric_functions_at_hard_arguments() {
    let mut bits: Vec<u32> = vec![
        0x0000_0001,
        0x007f_ffff,
        0x0080_0000,
        0x3f49_0fda,
        0x3f49_0fdb,
        0x3f49_0fdc,
        0x3fc9_0fda,
        0x3fc9_0fdb,
        0x3fc9_0fdc,
        0x4049_0fda,
        0x4049_0fdb,
        0x4049_0fdc,
        0x7f7f_ffff,
        0x7e80_0000,
        0x7f80_0000,
        0x7fc0_0000,
        0x6f79_be45,
        0x5c5e_c0dd,
    ];
    // Every multiple of π/2 up to 2^24, thinned out, and its neighbours.
    for k in (1..10_000u32).chain((10_000..10_000_000).step_by(997)) {
        let near = (f64::from(k) * std::f64::consts::FRAC_PI_2) as f32;
        bits.extend([near.to_bits() - 1, near.to_bits(), near.to_bits() + 1]);
    }
    // Every power of two, and 1e4, 1e8.
    bits.extend((1..255).flat_map(|e| [e << 23, e << 23 | 0x0049_0fdb, e << 23 | 0x007f_ffff]));
    bits.extend([1e4f32, 1e8, 1e20, 1e38].map(f32::to_bits));
    bits.extend(bits.clone().into_iter().map(|b| b | 0x8000_0000));
    let n = bits.len();
    for target in device::TARGETS {
        let target = Target::parse(target).unwrap();
        for name in ["Sin", "Cos", "Tan"] {
            let f = FUNCTIONS.iter().find(|f| f.op == name).unwrap();
            let (x, got) = Operator::new(name, DType::F32, target, n).unwrap().run(bits.iter().copied()).unwrap();
            let w = compare(DType::F32, f.exact, &x, &got);
            assert!(w.ulp <= 4.0, "{name} {target}: {w:?}");
        }
    }
}

/// Runs a node of two operands on every target.
fn binary(
    op: &str,
    attributes: &[(&str, barewave::onnx::Attribute)],
    x: &[f32],
    y: &[f32],
    check: impl Fn(&[f32], &str),
) {
    let mut b = Builder::new(22, 1);
    let names = [x, y].map(|v| b.input_of(HostTensor::from_f32(&[v.len()], v)));
    let out = b.node(op, &[&names[0], &names[1]], attributes);
    b.output(&out);
    let graph = fuse(&b.model, &Options::default()).unwrap();
    for target in device::TARGETS {
        let (out, _) = device::run(&graph, &b.inputs, target, true).unwrap();
        check(&out[0].to_f32(), target);
    }
}

/// The same number, or both NaN.
fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
}

#[test]
fn remainders_are_exact() {
    let special = [
        0.0,
        -0.0,
        1e-45,
        -1e-45,
        1.1754942e-38,
        1.1754944e-38,
        0.1,
        -0.1,
        0.5,
        1.0,
        -1.0,
        3.0,
        7.5,
        1e8,
        -1e8,
        16777216.0,
        3e38,
        f32::MAX,
        f32::MIN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        2.3283064e-10,
        6.2831855,
    ];
    let (mut x, mut y): (Vec<f32>, Vec<f32>) = special.iter().flat_map(|&a| special.map(|b| (a, b))).unzip();
    let mut rng = Builder::new(22, 7).rng;
    while !x.len().is_multiple_of(4) || x.len() < 6000 {
        let mut any = || f32::from_bits((rng.next_u64() >> 32) as u32);
        x.push(any());
        y.push(any());
    }
    binary("Mod", &[("fmod", int(1))], &x, &y, |got, target| {
        for i in 0..x.len() {
            let want = x[i] % y[i];
            assert!(same(got[i], want), "fmod({:e}, {:e}) is {want:e}, not {:e} ({target})", x[i], y[i], got[i]);
        }
    });
    binary("Mod", &[], &x, &y, |got, target| {
        for i in 0..x.len() {
            let r = x[i] % y[i];
            let want = if r != 0.0 && (r < 0.0) != (y[i] < 0.0) { r + y[i] } else { r };
            assert!(same(got[i], want), "{:e} mod {:e} is {want:e}, not {:e} ({target})", x[i], y[i], got[i]);
        }
    });
}

#[test]
fn powers_at_their_edges() {
    let special = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -0.5,
        2.0,
        -2.0,
        3.0,
        -3.0,
        1e-40,
        -1e-40,
        1e30,
        -1e30,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        16777217.0,
        0.9999999,
        1.0000001,
    ];
    let (x, y): (Vec<f32>, Vec<f32>) = special.iter().flat_map(|&a| special.map(|b| (a, b))).unzip();
    binary("Pow", &[], &x, &y, |got, target| {
        for i in 0..x.len() {
            let want = f64::from(x[i]).powf(f64::from(y[i]));
            // What is special (zeros, infinities, NaN, 1) is exact, with its sign; the rest is close.
            let exact = same(got[i], want as f32);
            let close = error(DType::F32, got[i].into(), want) <= 4.0;
            assert!(exact || close, "pow({:e}, {:e}) is {want:e}, not {:e} ({target})", x[i], y[i], got[i]);
        }
    });
}

/// Powers of random bases whose results are numbers, in both types: 4 ULP. And what division of doubles leaves, exactly.
#[test]
fn powers_and_remainders_of_both_types() {
    let mut rng = Builder::new(22, 5).rng;
    let mut pairs = Vec::new();
    while pairs.len() < 1 << 13 {
        let x = (rng.next_unit() + 0.5) * 2f64.powi((rng.next_u64() % 60) as i32 - 30);
        // Every size of the result's exponent, and bases next to 1.
        let x = if pairs.len() % 4 == 0 { 1.0 + (x - 1.0) * 1e-5 } else { x };
        pairs.push((x, (rng.next_unit() * 2.0 - 1.0) * 90.0 / x.ln().abs()));
    }
    let (x, y): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
    for dtype in [DType::F32, DType::F64] {
        let of = |v: &[f64]| match dtype {
            DType::F32 => HostTensor::from_f32(&[v.len()], &v.iter().map(|x| *x as f32).collect::<Vec<_>>()),
            _ => {
                let bytes: Vec<u8> = v.iter().flat_map(|x| x.to_le_bytes()).collect();
                HostTensor::new(dtype, &[v.len()], bytes).unwrap()
            }
        };
        let mut b = Builder::new(22, 1);
        let inputs = [of(&x), of(&y)];
        let names = inputs.clone().map(|t| b.input_of(t));
        let power = b.node("Pow", &[&names[0], &names[1]], &[]);
        let rest = b.node("Mod", &[&names[0], &names[1]], &[("fmod", int(1))]);
        b.output(&power);
        b.output(&rest);
        let graph = fuse(&b.model, &Options::default()).unwrap();
        let [x, y] = inputs.map(|t| t.to_f64());
        for target in device::TARGETS {
            let (out, _) = device::run(&graph, &b.inputs, target, true).unwrap();
            let [power, rest] = [0, 1].map(|i| out[i].to_f64());
            for i in 0..x.len() {
                let e = error(dtype, power[i], x[i].powf(y[i]));
                assert!(e <= 4.0, "{:e}^{:e} is {:e}: {e} ULP ({target})", x[i], y[i], power[i]);
                assert_eq!(rest[i], x[i] % y[i], "{:e} and {:e} ({target})", x[i], y[i]);
            }
        }
    }
}

/// Powers of floats of 16 bits: every pair of special numbers, with their signs, and random bit patterns, of which denormal ones and such with denormal results are some.
#[test]
fn powers_of_halves() {
    let mut rng = Builder::new(17, 6).rng;
    for dtype in [DType::F16, DType::BF16] {
        let special = [0.0, 1.0, 0.5, 2.0, 3.0, 2.5, 1e-7, 1e-40, 60000.0, 1e38, f64::INFINITY, f64::NAN];
        let special: Vec<f64> = special.iter().flat_map(|x| [*x, -*x]).collect();
        let mut pairs: Vec<(f64, f64)> = special.iter().flat_map(|&x| special.iter().map(move |&y| (x, y))).collect();
        let one = |bits: u16| match dtype {
            DType::F16 => half::f16::from_bits(bits).to_f64(),
            _ => half::bf16::from_bits(bits).to_f64(),
        };
        while pairs.len() < 1 << 14 {
            let (x, y) = (one(rng.next_u64() as u16), one(rng.next_u64() as u16));
            // An exponent that makes a number of it, more often than not.
            let fit = (rng.next_unit() * 2.0 - 1.0) * 95.0 / x.abs().ln().abs();
            pairs.push((x, if rng.next_u64() & 1 == 0 && fit.is_finite() { fit } else { y }));
        }
        let of = |part: fn(&(f64, f64)) -> f64| {
            HostTensor::from_f64(dtype, &[pairs.len()], &pairs.iter().map(part).collect::<Vec<f64>>())
        };
        let (x, y) = (of(|p| p.0), of(|p| p.1));
        let mut b = Builder::new(17, 6);
        let names = [&x, &y].map(|t| b.input_of(t.clone()));
        let power = b.node("Pow", &[&names[0], &names[1]], &[]);
        b.output(&power);
        let graph = fuse(&b.model, &Options::default()).unwrap();
        let (x, y) = (x.to_f64(), y.to_f64());
        for target in WIDTHS {
            let (out, _) = device::run(&graph, &b.inputs, target, true).unwrap();
            for ((x, y), got) in x.iter().zip(&y).zip(out[0].to_f64()) {
                let e = error(dtype, got, x.powf(*y));
                assert!(e <= 0.52, "{x:e}^{y:e} is {:e}, not {got:e}: {e} ULP ({dtype}, {target})", x.powf(*y));
            }
        }
    }
}

/// Quotients of f16 are those of numbers without end, rounded: of numbers of every size and sign, of zeros, infinities and what is no number; and those
/// that are whole are whole before anything is made of them.
#[test]
fn quotients_of_halves_are_rounded_once() {
    let mut rng = Builder::new(17, 4).rng;
    let edges = [0u16, 0x8000, 0x7c00, 0xfc00, 0x7e00, 1, 0x8001, 0x3ff, 0x400, 0x7bff, 0xfbff, 0x3c00, 0xbc00];
    let mut pairs: Vec<(u16, u16)> = edges.iter().flat_map(|&x| edges.map(|y| (x, y))).collect();
    pairs.resize_with(1 << 14, || (rng.next_u64() as u16, rng.next_u64() as u16));
    let numbers = |of: fn(&(u16, u16)) -> u16| -> Vec<f64> {
        pairs.iter().map(|p| half::f16::from_bits(of(p)).to_f64()).collect()
    };
    let (x, y) = (numbers(|p| p.0), numbers(|p| p.1));
    let mut b = Builder::new(17, 4);
    let names = [&x, &y].map(|v| b.input_of(HostTensor::from_f64(DType::F16, &[v.len()], v)));
    let quotient = b.node("Div", &[&names[0], &names[1]], &[]);
    b.output(&quotient);
    // Products of whole numbers up to 44 have no more than 11 bits.
    let whole: Vec<(f64, f64)> = (1..45).flat_map(|q| (1..45).map(move |d| (f64::from(q), f64::from(d)))).collect();
    let lists = [whole.iter().map(|(q, d)| q * d).collect::<Vec<f64>>(), whole.iter().map(|p| p.1).collect()];
    let names = lists.map(|v| b.input_of(HostTensor::from_f64(DType::F16, &[v.len()], &v)));
    let quotient = b.node("Div", &[&names[0], &names[1]], &[]);
    let down = b.node("Floor", &[&quotient], &[]);
    b.output(&down);
    let graph = fuse(&b.model, &Options::default()).unwrap();
    for target in WIDTHS {
        let (out, _) = device::run(&graph, &b.inputs, target, true).unwrap();
        for ((x, y), got) in x.iter().zip(&y).zip(out[0].to_f64()) {
            let want = half::f16::from_f64(x / y).to_f64();
            assert!(got == want || got.is_nan() && want.is_nan(), "{x} / {y} is {want}, not {got} ({target})");
        }
        let got = out[1].to_f64();
        assert!(whole.iter().zip(&got).all(|((q, _), got)| q == got), "{target}");
    }
}

/// Quotients beyond the largest number are infinite, however far, and those below the least are nothing.
#[test]
fn quotients_at_the_ends() {
    let ends = [1e38f32, 3.4e38, 1e30, 1e25, 1.0, 1e-30, 1.2e-38, 1e-40, 1.4e-45, 0.0, f32::INFINITY, f32::NAN];
    let pairs: Vec<(f32, f32)> = ends.iter().flat_map(|x| ends.iter().flat_map(|y| [(*x, *y), (-*x, *y)])).collect();
    let (x, y): (Vec<f32>, Vec<f32>) = pairs.iter().copied().unzip();
    binary("Div", &[], &x, &y, |got, target| {
        for ((x, y), got) in pairs.iter().zip(got) {
            // What is denormal is rounded twice.
            let near = (x / y).abs() < f32::MIN_POSITIVE && (got - x / y).abs() <= f32::from_bits(1);
            assert!(same(*got, x / y) || near, "{x:e} / {y:e} is {:e}, not {got:e} ({target})", x / y);
        }
    });
}

/// The same of doubles.
#[test]
fn quotients_of_doubles_at_the_ends() {
    let ends = [1e308f64, 1e300, 1e200, 1.0, 1e-200, 1e-300, 3e-308, 4e-310, 5e-324, 0.0, f64::INFINITY, f64::NAN];
    let pairs: Vec<(f64, f64)> = ends.iter().flat_map(|x| ends.iter().flat_map(|y| [(*x, *y), (-*x, *y)])).collect();
    let (x, y): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
    let of = |v: &[f64]| {
        HostTensor::new(DType::F64, &[v.len()], v.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>()).unwrap()
    };
    let mut b = Builder::new(22, 1);
    let names = [of(&x), of(&y)].map(|t| b.input_of(t));
    let out = b.node("Div", &[&names[0], &names[1]], &[]);
    b.output(&out);
    let graph = fuse(&b.model, &Options::default()).unwrap();
    for target in device::TARGETS {
        let (out, _) = device::run(&graph, &b.inputs, target, true).unwrap();
        for ((x, y), got) in pairs.iter().zip(out[0].to_f64()) {
            let same = got.to_bits() == (x / y).to_bits() || got.is_nan() && (x / y).is_nan();
            // What is denormal is rounded twice.
            let near = (x / y).abs() < f64::MIN_POSITIVE && (got - x / y).abs() <= f64::from_bits(1);
            assert!(same || near, "{x:e} / {y:e} is {:e}, not {got:e} ({target})", x / y);
        }
    }
}

/// Constant whole exponents are products, which are as near as other powers: of numbers of every size, and of those at the ends.
#[test]
fn powers_by_whole_constants() {
    let mut rng = Builder::new(22, 8).rng;
    let mut x = vec![0.0f32, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1.0, -1.0, 1e-40, -1e-40, 3e38, 1.2e-38];
    x.resize_with(1 << 12, || {
        let m = (1.0 + rng.next_unit()) * if rng.next_u64().is_multiple_of(2) { 1.0 } else { -1.0 };
        (m * 2f64.powi((rng.next_u64() % 80) as i32 - 40)) as f32
    });
    let exponents = [2, 3, 4, 5, 6, 7, 8, -2, -3, -4];
    let mut b = Builder::new(22, 1);
    let name = b.input_of(HostTensor::from_f32(&[x.len()], &x));
    for n in exponents {
        let by = b.constant(HostTensor::from_f32(&[], &[n as f32]));
        let y = b.node("Pow", &[&name, &by], &[]);
        b.output(&y);
    }
    let graph = fuse(&b.model, &Options::default()).unwrap();
    for target in WIDTHS {
        let (out, _) = device::run(&graph, &b.inputs, target, true).unwrap();
        for (n, out) in exponents.iter().zip(&out) {
            for (x, got) in x.iter().zip(out.to_f32()) {
                let exact = f64::from(*x).powi(*n);
                let want = exact as f32;
                let step = f64::from(want.abs().next_up() - want.abs());
                let near = (f64::from(got) - exact).abs() <= 4.0 * step;
                assert!(same(got, want) || near, "{x:e}^{n} is {want:e}, not {got:e} ({target})");
            }
        }
    }
}

/// Division and powers of 64-bit integers, at the edges and in between.
#[test]
fn long_integers_divide_and_raise() {
    let mut rng = Builder::new(22, 3).rng;
    let edges = [0i64, 1, -1, 2, -3, 7, i64::MAX, i64::MIN, i64::MIN + 1, 1 << 53, (1 << 53) + 1, u32::MAX as i64];
    let mut pairs: Vec<(i64, i64)> = edges.iter().flat_map(|&x| edges.map(|y| (x, y))).collect();
    while pairs.len() < 1024 {
        let mut any = || (rng.next_u64() >> (rng.next_u64() % 64)) as i64;
        pairs.push((any(), any()));
    }
    pairs.retain(|p| p.1 != 0);
    pairs.truncate(pairs.len() / 4 * 4);
    for dtype in [DType::I64, DType::U64, DType::I32] {
        let signed = dtype != DType::U64;
        let narrow = |x: i64| if dtype == DType::I32 { i64::from(x as i32) } else { x };
        let pairs: Vec<_> =
            pairs.iter().map(|&(x, y)| (narrow(x), if narrow(y) == 0 { 5 } else { narrow(y) })).collect();
        let (x, y): (Vec<i64>, Vec<i64>) = pairs.iter().copied().unzip();
        let mut b = Builder::new(22, 1);
        let tensors = [&x, &y].map(|v| HostTensor::from_ints(dtype, &[v.len()], v));
        let names = tensors.map(|t| b.input_of(t));
        for (op, attributes) in [("Div", vec![]), ("Mod", vec![]), ("Mod", vec![("fmod", int(1))]), ("Pow", vec![])] {
            let out = b.node(op, &[&names[0], &names[1]], &attributes);
            b.output(&out);
        }
        let graph = fuse(&b.model, &Options::default()).unwrap();
        let (ux, uy) = (|i: usize| x[i] as u64, |i: usize| y[i] as u64);
        let power = |i: usize| match y[i] {
            e if signed && e < 0 => match x[i] {
                1 => 1,
                -1 => {
                    if e % 2 == 0 {
                        1
                    } else {
                        -1
                    }
                }
                _ => 0,
            },
            _ => {
                let (mut r, mut base, mut e) = (1i64, x[i], uy(i));
                while e > 0 {
                    r = if e % 2 == 1 { r.wrapping_mul(base) } else { r };
                    base = base.wrapping_mul(base);
                    e /= 2;
                }
                narrow(r)
            }
        };
        for target in device::TARGETS {
            let (out, _) = device::run(&graph, &b.inputs, target, true).unwrap();
            let out: Vec<Vec<i64>> = out.iter().map(|t| t.to_i64()).collect();
            for i in 0..x.len() {
                let rem = if signed { x[i].wrapping_rem(y[i]) } else { (ux(i) % uy(i)) as i64 };
                let floor = if signed && rem != 0 && (rem < 0) != (y[i] < 0) { rem + y[i] } else { rem };
                let quotient = if signed { narrow(x[i].wrapping_div(y[i])) } else { (ux(i) / uy(i)) as i64 };
                let want = [quotient, floor, rem, power(i)];
                let got = [0, 1, 2, 3].map(|k| out[k][i]);
                assert_eq!(got, want, "{} and {} ({dtype}, {target})", x[i], y[i]);
            }
        }
    }
}

/// Doubles next to multiples of a quarter turn, of every size: what is left of them is as exact as of any other.
#[test]
fn doubles_at_hard_arguments() {
    // The double nearest to a multiple of π/2 (J.-M. Muller), where the host's own functions are wrong by 8 ULP.
    let mut x = vec![6381956970095103.0 * 2f64.powi(797), 1e22, 1e300, f64::MAX, 2f64.powi(945), 2f64.powi(54) * 3.0];
    let sines = [-0.852_200_849_767_188_8, -0.817_881_912_115_908_6];
    x.extend((1..2000).map(|k| f64::from(k) * std::f64::consts::FRAC_PI_2));
    x.resize(2048, 0.5);
    for target in device::TARGETS {
        let target = Target::parse(target).unwrap();
        for name in ["Sin", "Cos", "Tan"] {
            let f = FUNCTIONS.iter().find(|f| f.op == name).unwrap();
            let mut op = Operator::new(name, DType::F64, target, x.len()).unwrap();
            let (_, got) = op.run(x.iter().map(|x| x.to_bits())).unwrap();
            let w = compare(DType::F64, f.exact, &x[1..], &got[1..]);
            assert!(w.ulp <= 4.0, "{name} {target}: {w:?}");
            if name == "Cos" {
                assert_eq!(got[0], -4.687_165_924_254_628e-19, "the nearest one ({target})");
            }
            if name == "Sin" {
                assert_eq!(got[1], sines[0], "sin 1e22 ({target})");
                assert_eq!(got[2], sines[1], "sin 1e300 ({target})");
            }
        }
    }
}

#[test]
fn attention_to_nothing_is_zero() {
    let mut b = Builder::new(23, 3);
    let q = b.input(&[1, 1, 3, 8]);
    let k = b.input(&[1, 1, 4, 8]);
    let v = b.input(&[1, 1, 4, 8]);
    let seen = [1, 1, 1, 1, 0, 0, 0, 0, 0, 1, 0, 0];
    let m = b.constant(HostTensor::from_ints(DType::Bool, &[3, 4], &seen));
    let y = b.node("Attention", &[&q, &k, &v, &m], &[]);
    b.output(&y);
    let graph = fuse(&b.model, &Options::default()).unwrap();
    let host = barewave::graph::interpret::Interpreter::new(&graph).run(&graph, &b.inputs).unwrap();
    for target in device::TARGETS {
        let (out, _) = device::run(&graph, &b.inputs, target, true).unwrap();
        for out in [&out[0], &host[0]] {
            let out = out.to_f32();
            assert!(out.iter().all(|x| x.is_finite()), "{target}: {out:?}");
            assert!(out[8..16].iter().all(|&x| x == 0.0), "{target}: {out:?}");
            // A single visible key gives its value.
            let value = &b.inputs[2].to_f32()[8..16];
            assert!(out[16..].iter().zip(value).all(|(a, b)| (a - b).abs() < 1e-6), "{target}: {out:?}");
            assert!(out[..8].iter().any(|&x| x != 0.0));
        }
    }
}

#[test]
fn a_softmax_of_nothing_stays_nan() {
    let mut b = Builder::new(22, 3);
    let x = b.input_of(HostTensor::from_f32(&[2, 4], &[[f32::NEG_INFINITY; 4], [0.0; 4]].concat()));
    let y = b.node("Softmax", &[&x], &[]);
    b.output(&y);
    let graph = fuse(&b.model, &Options::default()).unwrap();
    let (out, _) = device::run(&graph, &b.inputs, "gfx942", true).unwrap();
    let out = out[0].to_f32();
    assert!(out[..4].iter().all(|x| x.is_nan()) && out[4..] == [0.25; 4], "{out:?}");
}

#[test]
fn logarithms_of_sums_of_exponentials_at_the_ends() {
    const INF: f64 = f64::INFINITY;
    let rows = [[INF, 1.0], [-INF, -INF], [1.0, -INF], [INF, -INF], [f64::NAN, INF], [200.0, 200.0]];
    let want = [INF, -INF, 1.0, INF, f64::NAN, 200.0 + 2f64.ln()];
    for t in [DType::F32, DType::F16, DType::BF16, DType::F64] {
        let mut b = Builder::new(17, 3);
        let x = b.input_of(HostTensor::from_f64(t, &[rows.len(), 2], &rows.concat()));
        let y = b.node("ReduceLogSumExp", &[&x], &[("axes", ints(&[1])), ("keepdims", int(0))]);
        b.output(&y);
        // More ones than f16 has numbers for.
        let n = 70_000;
        let ones = b.input_of(HostTensor::from_f64(t, &[n], &vec![1.0; n]));
        let y = b.node("ReduceLogSumExp", &[&ones], &[("keepdims", int(0))]);
        b.output(&y);
        let graph = fuse(&b.model, &Options::default()).unwrap();
        for target in ["gfx906", "gfx1100"] {
            let (out, _) = device::run(&graph, &b.inputs, target, true).unwrap();
            let got = out[0].to_f64();
            let close = |a: f64, b: f64| a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= 8e-3 * b.abs();
            assert!(got.iter().zip(want).all(|(a, b)| close(*a, b)), "{target} {t}: {got:?}");
            let all = out[1].to_f64()[0];
            assert!(close(all, 1.0 + (n as f64).ln()), "{target} {t}: {all}");
        }
    }
}
