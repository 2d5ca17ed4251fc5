//! Attention of few queries over many keys, whose keys workgroups share: emulated devices in strict mode against sums in f64.

mod support;

use barewave::Compiled;
use barewave::graph::{Options, fuse};
use barewave::tensor::{DType, HostTensor};
use support::build::{Builder, int};
use support::device;

const TARGETS: [&str; 7] = ["gfx906", "gfx908", "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"];

/// Heads of queries and of keys, queries, keys, size of a head, type, causal, with a mask that is added.
#[derive(Clone, Copy, Debug)]
struct Decoding {
    heads: [usize; 2],
    queries: usize,
    keys: usize,
    size: usize,
    dtype: DType,
    causal: bool,
    masked: bool,
}

impl Decoding {
    /// Runs it on a target; the most workgroups that share a result.
    fn check(&self, target: &str, seed: u64) -> u32 {
        let Decoding { heads: [hq, hk], queries, keys, size, dtype, .. } = *self;
        let mut b = Builder::new(23, seed);
        let mut side = |heads: usize, rows: usize| {
            let shape = [1, heads, rows, size];
            let values: Vec<f64> = b.random(&shape).to_f64().iter().map(|x| x * 2.0).collect();
            HostTensor::from_f64(dtype, &shape, &values)
        };
        let (q, k, v) = (side(hq, queries), side(hk, keys), side(hk, keys));
        let mask = HostTensor::from_f64(dtype, &[queries, keys], &b.random(&[queries, keys]).to_f64());
        let mut names: Vec<String> = [&q, &k, &v].map(|t| b.input_of(t.clone())).to_vec();
        if self.masked {
            names.push(b.input_of(mask.clone()));
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let y = b.node("Attention", &names, &[("is_causal", int(self.causal.into()))]);
        b.output(&y);
        let mut model = b.model.clone();
        model.expand();
        let graph = fuse(&model, &Options::default()).unwrap();
        let (mut session, program): (_, Compiled) = device::session(&graph, target, true).unwrap();
        let (got, _) = session.run(&b.inputs).unwrap_or_else(|e| panic!("{target} {self:?}: {e}"));
        let (got, q, k, v, mask) = (got[0].to_f64(), q.to_f64(), k.to_f64(), v.to_f64(), mask.to_f64());
        let most = match dtype {
            DType::F16 => 4e-3,
            DType::BF16 => 3e-2,
            _ => 2e-5,
        };
        let seen = |row: usize, key: usize| !self.causal || key <= row;
        for (h, row) in (0..hq).flat_map(|h| (0..queries).map(move |row| (h, row))) {
            let of = h / (hq / hk);
            let scores: Vec<f64> = (0..keys)
                .map(|key| {
                    let dot: f64 =
                        (0..size).map(|i| q[(h * queries + row) * size + i] * k[(of * keys + key) * size + i]).sum();
                    let more = if self.masked { mask[row * keys + key] } else { 0.0 };
                    if seen(row, key) { dot / (size as f64).sqrt() + more } else { f64::NEG_INFINITY }
                })
                .collect();
            let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = scores.iter().map(|s| (s - top).exp()).collect();
            let all: f64 = weights.iter().sum();
            for i in 0..size {
                let want: f64 = (0..keys).map(|key| weights[key] * v[(of * keys + key) * size + i]).sum::<f64>() / all;
                let have = got[(h * queries + row) * size + i];
                assert!(
                    (have - want).abs() <= most,
                    "{target} {self:?}: {have} instead of {want}, head {h}, query {row}"
                );
            }
        }
        program.plan().launches.iter().map(|l| l.sharing[2]).max().unwrap_or(1)
    }
}

#[test]
fn keys_are_shared_among_workgroups() {
    let plain =
        Decoding { heads: [2, 2], queries: 1, keys: 700, size: 64, dtype: DType::F16, causal: false, masked: false };
    let cases = [
        plain,
        Decoding { heads: [8, 2], keys: 1037, size: 128, ..plain },
        Decoding { heads: [4, 1], keys: 650, size: 72, dtype: DType::BF16, masked: true, ..plain },
        Decoding { queries: 3, keys: 523, dtype: DType::F32, ..plain },
        Decoding { heads: [3, 3], queries: 8, keys: 1100, dtype: DType::BF16, masked: true, ..plain },
        Decoding { heads: [6, 2], queries: 5, keys: 777, size: 80, causal: true, ..plain },
        Decoding { heads: [1, 1], queries: 40, keys: 900, size: 40, masked: true, ..plain },
    ];
    for target in TARGETS {
        let shared: Vec<u32> = cases.iter().zip(1..).map(|(c, seed)| c.check(target, seed)).collect();
        // Where there are matrix instructions.
        assert!(target == "gfx906" || shared.iter().filter(|s| **s > 1).count() > 2, "{target}: {shared:?}");
    }
}
