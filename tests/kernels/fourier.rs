//! Fourier transforms: emulated devices in strict mode against the f64 interpreter of the fused graph, and that against sums written down here.

use crate::support::agree::{close, finish, outputs};
use crate::support::build::{Builder, int};
use barewave::tensor::{DType, HostTensor};
use std::f64::consts::PI;

/// Element `k` of the transform of complex numbers.
fn transform(x: &[(f64, f64)], k: usize, inverse: bool) -> (f64, f64) {
    let n = x.len();
    let sign = if inverse { 1.0 } else { -1.0 };
    let turned = x.iter().enumerate().map(|(j, (re, im))| {
        let (sin, cos) = (sign * 2.0 * PI * ((j * k % n) as f64) / n as f64).sin_cos();
        (re * cos - im * sin, re * sin + im * cos)
    });
    let (re, im) = turned.fold((0.0, 0.0), |a, b| (a.0 + b.0, a.1 + b.1));
    let scale = if inverse { 1.0 / n as f64 } else { 1.0 };
    (re * scale, im * scale)
}

/// A line of some length, of what there is of it.
fn line(at: impl Fn(usize) -> (f64, f64), own: usize, n: usize) -> Vec<(f64, f64)> {
    (0..n).map(|j| if j < own { at(j) } else { (0.0, 0.0) }).collect()
}

/// Lines, their elements, what lies within an element, and the length: of one pass and of several, of odd radices and even ones, a longer and a shorter one; a
/// large prime factor, of a length that a workgroup can hold and of one for which passes are launches.
#[test]
fn transforms_of_any_length() {
    let (there, back) = ((false, false, 2), (true, false, 2));
    let (real, half, whole) = ((false, false, 1), (false, true, 1), (true, true, 2));
    for (outer, own, inner, n, kinds) in [
        (6, 360, 1, 360, [there, whole]),
        (2, 256, 9, 256, [back, real]),
        (6, 368, 1, 368, [half, back]),
        (7, 200, 1, 256, [whole, there]),
        (7, 300, 1, 256, [half, whole]),
        (30, 16, 1, 16, [there, half]),
        (9, 12, 5, 12, [back, whole]),
        (3, 625, 2, 625, [there, half]),
        (2, 4096, 1, 4096, [whole, there]),
        (2, 1155, 1, 1155, [back, there]),
        (1, 1001, 5, 1001, [half, real]),
        (1, 500, 17, 512, [there, back]),
        (2, 1009, 3, 1009, [whole, back]),
        (5, 34, 1, 37, [there, half]),
        (1, 4102, 1, 4102, [real, whole]),
    ] {
        for (inverse, onesided, parts) in kinds {
            let mut b = Builder::new(20, 7);
            let given = if inverse && onesided { own / 2 + 1 } else { own };
            let x = b.input(&[outer, given, inner, parts]);
            let (length, axis) = (b.ints(&[n as i64]), b.ints(&[1]));
            let (length, axis) = (scalar(&mut b, &length), scalar(&mut b, &axis));
            let flags = [("inverse", int(inverse.into())), ("onesided", int(onesided.into()))];
            let y = b.node("DFT", &[&x, &length, &axis], &flags);
            finish(&mut b, "", &[y]);
            let what = format!("{outer}x{own}x{inner} in {n}, inverse {inverse}, onesided {onesided}, {parts} parts");
            let got = outputs(&b, &what, 1e-6).remove(0);
            let data = b.inputs[0].to_f64();
            let (bins, out_parts) =
                (if onesided && !inverse { n / 2 + 1 } else { n }, if inverse && onesided { 1 } else { 2 });
            assert_eq!(got.shape(), [outer, bins, inner, out_parts], "{what}");
            // A few lines are enough to compare in full.
            let got = got.to_f64();
            for (o, q) in [(0, 0), (outer / 2, inner / 2), (outer - 1, inner - 1)] {
                let at = |j: usize| {
                    let i = ((o * given + j) * inner + q) * parts;
                    (data[i], if parts == 2 { data[i + 1] } else { 0.0 })
                };
                let whole = |j: usize| match j {
                    j if inverse && onesided && j > n / 2 => {
                        at_or_none(&at, n - j, given).map_or((0.0, 0.0), |x| (x.0, -x.1))
                    }
                    j => at_or_none(&at, j, given).unwrap_or((0.0, 0.0)),
                };
                let x = line(whole, n, n);
                let (mut found, mut want) = (Vec::new(), Vec::new());
                for k in (0..bins).step_by(7) {
                    let (re, im) = transform(&x, k, inverse);
                    want.extend([re, im].into_iter().take(out_parts));
                    found.extend((0..out_parts).map(|p| got[((o * bins + k) * inner + q) * out_parts + p]));
                }
                close(&found, &want, 1e-6, &what);
            }
        }
    }
}

fn at_or_none(at: &impl Fn(usize) -> (f64, f64), j: usize, given: usize) -> Option<(f64, f64)> {
    (j < given).then(|| at(j))
}

/// A constant of one element as a scalar.
fn scalar(b: &mut Builder, list: &str) -> String {
    let value = b.model.graph.initializers[list].to_i64();
    b.constant(HostTensor::from_i64(&[], &value))
}

/// Frames overlap, or leave something out between them; those of 46 elements are convolutions.
#[test]
fn frames_of_any_length() {
    for (n, step, onesided) in [(128, 40, true), (400, 160, true), (480, 121, false), (46, 51, true)] {
        let frames = 40;
        let samples = n + step * (frames - 1);
        let mut b = Builder::new(17, 9);
        let x = b.input(&[1, samples, 1]);
        let window = b.input(&[n]);
        let step_of = b.constant(HostTensor::from_i64(&[], &[step as i64]));
        let y = b.node("STFT", &[&x, &step_of, &window], &[("onesided", int(onesided.into()))]);
        finish(&mut b, "", &[y]);
        let what = format!("frames of {n}");
        let got = outputs(&b, &what, 2e-6).remove(0).to_f64();
        let (data, window) = (b.inputs[0].to_f64(), b.inputs[1].to_f64());
        let bins = if onesided { n / 2 + 1 } else { n };
        let (mut found, mut want) = (Vec::new(), Vec::new());
        for frame in [0, frames / 3, frames - 1] {
            let x: Vec<(f64, f64)> = (0..n).map(|j| (data[frame * step + j] * window[j], 0.0)).collect();
            for k in 0..bins {
                let (re, im) = transform(&x, k, false);
                want.extend([re, im]);
                found.extend_from_slice(&got[(frame * bins + k) * 2..][..2]);
            }
        }
        close(&found, &want, 2e-6, &what);
    }
}

/// Lengths and lines drawn anew, in f32 and f64: rounding grows with the number of passes alone.
#[test]
fn random_transforms() {
    let mut draw = Builder::new(20, 31);
    for round in 0..40 {
        let n = match draw.below(3) {
            0 => 1 << draw.between(1, 10),
            1 => [2, 3, 5, 7, 11, 13][draw.below(6)] * draw.between(1, 30),
            _ => draw.between(2, 500),
        };
        let (outer, inner) = (draw.between(1, 9), [1, 1, 2, 19][draw.below(4)]);
        let (inverse, onesided) = (draw.below(2) == 1, draw.below(2) == 1);
        let parts = if inverse && onesided {
            2
        } else if onesided {
            1
        } else {
            draw.between(1, 2)
        };
        let given = if inverse && onesided { n / 2 + 1 } else { n.saturating_sub(draw.below(3)).max(1) };
        let mut b = Builder::new(20, round);
        let t = if draw.below(3) == 0 { DType::F64 } else { DType::F32 };
        let shape = [outer, given, inner, parts];
        let values: Vec<f64> = (0..shape.iter().product()).map(|_| draw.below(2001) as f64 / 1000.0 - 1.0).collect();
        let x = b.input_of(HostTensor::from_f64(t, &shape, &values));
        let (length, axis) = (b.ints(&[n as i64]), b.ints(&[1]));
        let (length, axis) = (scalar(&mut b, &length), scalar(&mut b, &axis));
        let flags = [("inverse", int(inverse.into())), ("onesided", int(onesided.into()))];
        let y = b.node("DFT", &[&x, &length, &axis], &flags);
        finish(&mut b, "", &[y]);
        let what = format!("{t} {shape:?} in {n}, inverse {inverse}, onesided {onesided}");
        outputs(&b, &what, if t == DType::F64 { 1e-14 } else { 2e-7 });
    }
}
