//! Numbers of 16 bits by divisors that many share, by constants and by one each; quantisation to integers and floats of 8 bits; and limits, which keep what is
//! no number.

use crate::support::build::{Builder, int};
use crate::support::device;
use barewave::graph::{Options, fuse};
use barewave::tensor::{DType, HostTensor};

/// Targets of every family, and with and without conversions of floats of 8 bits.
const FAMILIES: [&str; 7] = ["gfx803", "gfx906", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201"];

const TINY: f64 = f32::MIN_POSITIVE as f64;

/// A number as the type has it.
fn rounded(t: DType, x: f64) -> f64 {
    HostTensor::from_f64(t, &[1], &[x]).to_f64()[0]
}

/// Numbers of every size and sign, zeros, infinities, NaN, denormals, the largest.
fn numbers(t: DType, count: usize, seed: u64) -> Vec<f64> {
    let mut rng = Builder::new(22, seed).rng;
    let edges: &[u16] = match t {
        DType::F16 => &[0, 1, 2, 0x3ff, 0x400, 0x401, 0x3c00, 0x3e00, 0x7bff, 0x7c00, 0x7e00],
        _ => &[0, 1, 2, 0x7f, 0x80, 0x81, 0x3f80, 0x3fc0, 0x7f7f, 0x7f80, 0x7fc0],
    };
    let mut bits: Vec<u16> = edges.iter().flat_map(|x| [*x, x | 0x8000]).collect();
    bits.resize_with(count, || rng.next_u64() as u16);
    let of = |bits: u16| match t {
        DType::F16 => half::f16::from_bits(bits).to_f64(),
        _ => half::bf16::from_bits(bits).to_f64(),
    };
    bits.into_iter().map(of).collect()
}

/// Divisors: a NaN last.
fn divisors(t: DType) -> Vec<f64> {
    let mut all =
        vec![1.0, 0.013_1, -0.5, 3.0, 0.1, -7.0, 1.0 / 127.0, 640.0, 0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY];
    all.extend(match t {
        DType::F16 => vec![2f64.powi(-24), -3.0 * 2f64.powi(-24), 2f64.powi(-14), 65504.0, -65504.0],
        _ => vec![
            2f64.powi(-133),
            3.0 * 2f64.powi(-132),
            TINY,
            1.5 * 2f64.powi(-64),
            2f64.powi(64),
            -1.75 * 2f64.powi(64),
            1e30,
            3e38,
        ],
    });
    all.push(f64::NAN);
    all.into_iter().map(|x| rounded(t, x)).collect()
}

#[test]
fn quotients_by_shared_divisors_are_rounded_once() {
    const WIDTH: usize = 320;
    for t in [DType::F16, DType::BF16] {
        let divisors = divisors(t);
        let lines = divisors.len();
        // Whole multiples and halves of the divisors, too: their quotients lie in the middle between integers.
        let mut x = numbers(t, lines * WIDTH, 3);
        for (line, d) in x.chunks_mut(WIDTH).zip(&divisors) {
            line.iter_mut().skip(WIDTH / 2).enumerate().for_each(|(k, x)| *x = rounded(t, (k as f64 - 80.0) / 2.0 * d));
        }
        let mut b = Builder::new(22, 1);
        let name = b.input_of(HostTensor::from_f64(t, &[lines, WIDTH], &x));
        let by_line = b.input_of(HostTensor::from_f64(t, &[lines, 1], &divisors));
        let of_line = b.node("Div", &[&name, &by_line], &[]);
        let whole = b.node("Round", &[&of_line], &[]);
        let alone = b.node("Identity", &[&of_line], &[]);
        b.output(&alone);
        b.output(&whole);
        for d in &divisors {
            let by = b.constant(HostTensor::from_f64(t, &[], &[*d]));
            let of_constant = b.node("Div", &[&name, &by], &[]);
            b.output(&of_constant);
        }
        let graph = fuse(&b.model, &Options::default()).unwrap();
        let check = |x: f64, d: f64, got: f64, target: &str, how: &str| {
            let want = rounded(t, x / d);
            // What is denormal in f32 is rounded twice.
            let near = t == DType::BF16 && want.abs() <= TINY && (got - want).abs() <= 2f64.powi(-133);
            let same = got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan();
            assert!(same || near, "{x:e} / {d:e} is {want:e}, not {got:e} ({t}, {how}, {target})");
        };
        for target in FAMILIES {
            let (out, _) = device::run(&graph, &b.inputs, target, true).unwrap();
            let out: Vec<Vec<f64>> = out.iter().map(|o| o.to_f64()).collect();
            for (i, x) in x.iter().enumerate() {
                let d = divisors[i / WIDTH];
                check(*x, d, out[0][i], target, "shared");
                let (exact, got) = (x / d, out[1][i]);
                if exact.abs() < 256.0 && exact.fract().abs() == 0.5 {
                    assert_eq!(got, exact.round_ties_even(), "{x:e} / {d:e} ({t}, {target})");
                }
                for (d, out) in divisors.iter().zip(&out[2..]) {
                    check(*x, *d, out[i], target, "constant");
                }
            }
        }
    }
}

#[test]
fn floats_are_quantised_by_scales_of_any_size() {
    const WIDTH: usize = 160;
    let small = [DType::F8E4M3, DType::F8E4M3Z, DType::F8E5M2, DType::F8E5M2Z];
    for t in [DType::F16, DType::BF16, DType::F32] {
        let mut scales = divisors(if t == DType::F32 { DType::BF16 } else { t });
        // Those of which results are specified.
        scales.retain(|s| s.is_finite() && *s != 0.0);
        if t == DType::F32 {
            scales.retain(|s| (2f64.powi(-60)..2f64.powi(60)).contains(&s.abs()));
        }
        let lines = scales.len();
        let mut x = numbers(if t == DType::F32 { DType::BF16 } else { t }, lines * WIDTH, 5);
        for (line, d) in x.chunks_mut(WIDTH).zip(&scales) {
            line.iter_mut().skip(24).enumerate().for_each(|(k, x)| *x = rounded(t, (k as f64 - 68.0) * 4.5 * d));
        }
        let mut b = Builder::new(24, 1);
        let name = b.input_of(HostTensor::from_f64(t, &[lines, WIDTH], &x));
        let scale = b.input_of(HostTensor::from_f64(t, &[lines], &scales));
        let one = b.constant(HostTensor::from_f64(t, &[], &[0.25]));
        let mut made = Vec::new();
        for to in [DType::I8, DType::U8].into_iter().chain(small) {
            let zero = if to == DType::U8 { 128.0 } else { 0.0 };
            let zeros = b.constant(HostTensor::from_f64(to, &[lines], &vec![zero; lines]));
            let y = b.node("QuantizeLinear", &[&name, &scale, &zeros], &[("axis", int(0))]);
            b.output(&y);
            made.push((to, zero, None));
            let zero_of_all = b.constant(HostTensor::from_f64(to, &[], &[zero]));
            let y = b.node("QuantizeLinear", &[&name, &one, &zero_of_all], &[]);
            b.output(&y);
            made.push((to, zero, Some(0.25)));
        }
        let graph = fuse(&b.model, &Options::default()).unwrap();
        for target in FAMILIES {
            let (out, _) = device::run(&graph, &b.inputs, target, true).unwrap();
            for ((to, zero, scale), out) in made.iter().zip(&out) {
                for (i, (x, got)) in x.iter().zip(out.to_f64()).enumerate() {
                    let scale = scale.unwrap_or(scales[i / WIDTH]);
                    let q = f64::from((*x as f32) / (scale as f32));
                    let want = if small.contains(to) {
                        let most = match to {
                            DType::F8E4M3 => 448.0,
                            DType::F8E4M3Z => 240.0,
                            _ => 57344.0,
                        };
                        rounded(*to, if q.is_nan() { q } else { q.clamp(-most, most) })
                    } else if q.is_nan() {
                        // Nothing says what becomes of it.
                        continue;
                    } else {
                        let (low, high) = if *to == DType::I8 { (-128.0, 127.0) } else { (0.0, 255.0) };
                        (q.round_ties_even() + zero).clamp(low, high)
                    };
                    let same = got == want || got.is_nan() && want.is_nan();
                    assert!(same, "{x:e} by {scale:e} is {want}, not {got} ({t} to {to}, {target})");
                }
            }
        }
    }
}

#[test]
fn limits_keep_what_is_no_number() {
    for t in [DType::F16, DType::BF16, DType::F32] {
        let x = numbers(if t == DType::F32 { DType::BF16 } else { t }, 1024, 7);
        let limits = [(-1.0, 6.0), (0.0, 6.0), (2.0, 2.0), (f64::NEG_INFINITY, 1.0), (3.0, -3.0)];
        let mut b = Builder::new(22, 1);
        let name = b.input_of(HostTensor::from_f64(t, &[x.len()], &x));
        for (low, high) in limits {
            let [low, high] = [low, high].map(|c| b.constant(HostTensor::from_f64(t, &[], &[c])));
            let first = b.node("Max", &[&name, &low], &[]);
            let y = b.node("Min", &[&first, &high], &[]);
            b.output(&y);
            let first = b.node("Min", &[&high, &name], &[]);
            let y = b.node("Max", &[&low, &first], &[]);
            b.output(&y);
        }
        let graph = fuse(&b.model, &Options::default()).unwrap();
        for target in FAMILIES {
            let (out, _) = device::run(&graph, &b.inputs, target, true).unwrap();
            for ((low, high), out) in limits.iter().zip(out.chunks(2)) {
                for (order, out) in out.iter().enumerate() {
                    for (x, got) in x.iter().zip(out.to_f64()) {
                        let want = if order == 0 { x.max(*low).min(*high) } else { x.min(*high).max(*low) };
                        let same = if x.is_nan() { got.is_nan() } else { got == want };
                        assert!(same, "{x:e} from {low} to {high} is {want}, not {got} ({t}, {target})");
                    }
                }
            }
        }
    }
}
