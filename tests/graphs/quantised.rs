//! Products and convolutions of whole numbers and of packed weights: emulated devices in strict mode against the host, and that against references
//! written down here.

use crate::support::agree::{TARGETS, close, finish, outputs};
use crate::support::build::{Builder, int, ints};
use crate::support::device;
use barewave::graph::{Options, fuse};
use barewave::tensor::{DType, HostTensor};

fn bytes(b: &mut Builder, t: DType, shape: &[usize]) -> HostTensor {
    let (low, n) = if t == DType::I8 { (-128, 256) } else { (0, 256) };
    let list: Vec<i64> = (0..shape.iter().product()).map(|_| low + b.below(n) as i64).collect();
    HostTensor::from_ints(t, shape, &list)
}

#[test]
fn integer_products_are_exact() {
    for (k, zero) in [(7, true), (200, true), (3000, false), (3000, true)] {
        let mut b = Builder::new(17, k as u64);
        let (m, n) = (3, 5);
        let (x, w) = (bytes(&mut b, DType::U8, &[m, k]), bytes(&mut b, DType::I8, &[k, n]));
        let (xn, wn) = (b.input_of(x.clone()), b.constant(w.clone()));
        let zeros: Vec<i64> = (0..n as i64).map(|i| i * 20 - 40).collect();
        let z = if zero { (99, zeros) } else { (0, vec![0; n]) };
        let xz = b.constant(HostTensor::from_ints(DType::U8, &[], &[z.0]));
        let wz = b.constant(HostTensor::from_ints(DType::I8, &[n], &z.1));
        let y = b.node("MatMulInteger", &[&xn, &wn, &xz, &wz], &[]);
        finish(&mut b, "", &[y]);
        let (x, w) = (x.to_i64(), w.to_i64());
        let want: Vec<f64> = (0..m * n)
            .map(|i| (0..k).map(|l| (x[i / n * k + l] - z.0) * (w[l * n + i % n] - z.1[i % n])).sum::<i64>() as f64)
            .collect();
        // Long products are not computed on the host.
        let mut model = b.model.clone();
        model.expand();
        let graph = fuse(&model, &Options::default()).unwrap();
        for target in TARGETS {
            let (got, _) = device::run(&graph, &b.inputs, target, true).unwrap();
            assert_eq!(got[0].to_f64(), want, "{target} {k}");
        }
    }
}

#[test]
fn quantised_convolutions_round_like_their_definition() {
    for (channels, groups) in [(3, 1), (64, 1), (8, 8)] {
        let mut b = Builder::new(17, channels as u64);
        let (h, out) = (7, 8);
        let x = bytes(&mut b, DType::U8, &[1, channels, h, h]);
        let w = bytes(&mut b, DType::I8, &[out, channels / groups, 3, 3]);
        let (xn, wn) = (b.input_of(x.clone()), b.constant(w.clone()));
        let scales: Vec<f32> = (0..out).map(|i| 0.002 + i as f32 * 0.001).collect();
        let names = [
            b.constant(HostTensor::from_f32(&[], &[0.05])),
            b.constant(HostTensor::from_ints(DType::U8, &[], &[120])),
            b.constant(HostTensor::from_f32(&[out], &scales)),
            b.constant(HostTensor::from_ints(DType::I8, &[], &[0])),
            b.constant(HostTensor::from_f32(&[], &[0.5])),
            b.constant(HostTensor::from_ints(DType::U8, &[], &[100])),
        ];
        let bias: Vec<i32> = (0..out as i32).map(|i| i * 50 - 100).collect();
        let bias_name = b.constant(HostTensor::from_i32(&[out], &bias));
        let [xs, xz, ws, wz, ys, yz] = &names;
        let attributes = [("pads", ints(&[1, 1, 1, 1])), ("group", int(groups as i64))];
        let y = b.node("QLinearConv", &[&xn, xs, xz, &wn, ws, wz, ys, yz, &bias_name], &attributes);
        finish(&mut b, "", &[y]);
        let mut model = b.model.clone();
        model.expand();
        let graph = fuse(&model, &Options::default()).unwrap();
        let (x, w) = (x.to_i64(), w.to_i64());
        let (cg, og) = (channels / groups, out / groups);
        let mut want = Vec::new();
        for o in 0..out {
            for i in 0..h * h {
                let mut sum = bias[o] as i64;
                for c in 0..cg {
                    for t in 0..9 {
                        let (p, q) = ((i / h + t / 3) as i64 - 1, (i % h + t % 3) as i64 - 1);
                        if (0..h as i64).contains(&p) && (0..h as i64).contains(&q) {
                            let at = (o / og * cg + c) * h * h + p as usize * h + q as usize;
                            sum += (x[at] - 120) * w[(o * cg + c) * 9 + t];
                        }
                    }
                }
                let scaled = sum as f32 * (0.05 * scales[o] / 0.5);
                want.push((scaled.round_ties_even() + 100.0).clamp(0.0, 255.0) as f64);
            }
        }
        for target in TARGETS {
            let (got, _) = device::run(&graph, &b.inputs, target, true).unwrap();
            let got = got[0].to_f64();
            // A product of scales may be an f32 apart, which decides ties.
            let apart = got.iter().zip(&want).filter(|(a, b)| a != b).count();
            let most = got.iter().zip(&want).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(apart * 100 <= want.len() && most <= 1.0, "{target}: {apart} of {} differ by {most}", want.len());
        }
    }
}

#[test]
fn packed_weights_are_widened() {
    for (bits, rows, zero) in [(4, 1, true), (4, 9, true), (8, 2, false), (2, 6, false)] {
        let mut b = Builder::new(17, bits as u64);
        let (k, n, block) = (64, 6, 16);
        let (blocks, each) = (k / block, 8 / bits);
        let x = b.input(&[rows, k]);
        let raw: Vec<i64> = (0..n * k).map(|_| b.below(1 << bits) as i64).collect();
        let pack = |list: &[i64]| -> Vec<i64> {
            list.chunks(each).map(|c| c.iter().enumerate().map(|(i, v)| v << (i * bits)).sum()).collect()
        };
        let w = b.constant(HostTensor::from_ints(DType::U8, &[n, blocks, block / each], &pack(&raw)));
        let s = b.weight(&[n * blocks]);
        let zeros: Vec<i64> =
            (0..n * blocks).map(|i| if zero { i as i64 % (1 << bits) } else { 1 << (bits - 1) }).collect();
        let packed: Vec<i64> = zeros.chunks(blocks).flat_map(pack).collect();
        let z = b.constant(HostTensor::from_ints(DType::U8, &[packed.len()], &packed));
        let names: Vec<&str> = if zero { vec![&x, &w, &s, &z] } else { vec![&x, &w, &s] };
        let sizes = [("K", k), ("N", n), ("bits", bits), ("block_size", block), ("weight_prepacked", 0)];
        let y = b.node("MatMulNBits", &names, &sizes.map(|(name, v)| (name, int(v as i64))));
        finish(&mut b, "com.microsoft", &[y]);
        let got = outputs(&b, "packed", 1e-5).remove(0);
        let (x, s) = (b.inputs[0].to_f64(), b.model.graph.initializers[&s].to_f64());
        let want: Vec<f64> = (0..rows * n)
            .map(|i| {
                let (r, c) = (i / n, i % n);
                (0..k)
                    .map(|l| {
                        x[r * k + l]
                            * (raw[c * k + l] - zeros[c * blocks + l / block]) as f64
                            * s[c * blocks + l / block]
                    })
                    .sum()
            })
            .collect();
        close(&got.to_f64(), &want, 1e-5, "packed");
    }
}
