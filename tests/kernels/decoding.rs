//! Attention whose keys workgroups share, because there are few queries, and whose work is divided in equal shares, because there are many:
//! emulated devices in strict mode against sums in f64.

use crate::support::build::{Builder, int};
use crate::support::device;
use crate::support::{all_cases, drawn};
use barewave::Compiled;
use barewave::compile::compile;
use barewave::graph::{Options, fuse};
use barewave::tensor::{DType, HostTensor};
use barewave_isa::Target;

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
    /// The mask says which keys are seen.
    barred: bool,
    /// Keys that come from a cache.
    past: usize,
}

impl Decoding {
    /// Its model, with queries, keys, values and the mask.
    fn model(&self, seed: u64) -> (Builder, [HostTensor; 4]) {
        let Decoding { heads: [hq, hk], queries, keys, size, dtype, past, .. } = *self;
        let mut b = Builder::new(23, seed);
        let mut side = |heads: usize, rows: usize| {
            let shape = [1, heads, rows, size];
            let values: Vec<f64> = b.random(&shape).to_f64().iter().map(|x| x * 2.0).collect();
            HostTensor::from_f64(dtype, &shape, &values)
        };
        let (q, k, v) = (side(hq, queries), side(hk, keys), side(hk, keys));
        let mask = b.random(&[queries, keys]).to_f64();
        let mask = match self.barred {
            true => {
                let seen: Vec<i64> = mask.iter().map(|x| i64::from(*x > -0.5)).collect();
                HostTensor::from_ints(DType::Bool, &[queries, keys], &seen)
            }
            false => HostTensor::from_f64(dtype, &[queries, keys], &mask),
        };
        // Rows of keys and values: those of the cache, and the others.
        let rows = |t: &HostTensor, of: std::ops::Range<usize>| {
            let all = t.to_f64();
            let head = |h: usize| all[(h * keys + of.start) * size..(h * keys + of.end) * size].to_vec();
            HostTensor::from_f64(dtype, &[1, hk, of.len(), size], &(0..hk).flat_map(head).collect::<Vec<f64>>())
        };
        let mut names = vec![b.input_of(q.clone())];
        names.extend([&k, &v].map(|t| b.input_of(rows(t, past..keys))));
        names.push(if self.masked || self.barred { b.input_of(mask.clone()) } else { String::new() });
        if past > 0 {
            names.extend([&k, &v].map(|t| b.input_of(rows(t, 0..past))));
        }
        let given = names.iter().rposition(|n| !n.is_empty()).map_or(0, |i| i + 1);
        let names: Vec<&str> = names[..given].iter().map(String::as_str).collect();
        let y = b.node("Attention", &names, &[("is_causal", int(self.causal.into()))]);
        b.output(&y);
        (b, [q, k, v, mask])
    }

    /// How many workgroups share something on a target, by dimension of the grid: the launch that has most.
    fn sharing(&self, target: &str) -> [u32; 3] {
        let mut model = self.model(1).0.model;
        model.expand();
        let graph = fuse(&model, &Options::default()).unwrap();
        let compiled = compile(&graph, Target::parse(target).unwrap()).unwrap();
        compiled.plan().launches.iter().map(|l| l.sharing).max().unwrap_or([1; 3])
    }

    /// Runs it on a target; the most workgroups that share a result.
    fn check(&self, target: &str, seed: u64) -> u32 {
        let Decoding { heads: [hq, hk], queries, keys, size, dtype, past, .. } = *self;
        let (b, [q, k, v, mask]) = self.model(seed);
        let mut model = b.model.clone();
        model.expand();
        let graph = fuse(&model, &Options::default()).unwrap();
        let (mut session, program): (_, Compiled) = device::session(&graph, target, true).unwrap();
        let mut run = || session.run(&b.inputs).unwrap_or_else(|e| panic!("{target} {self:?}: {e}")).0;
        let got = run();
        // Whoever comes last, and counters begin at zero again.
        assert_eq!(run()[0].bytes(), got[0].bytes(), "{target} {self:?}");
        let barred: Vec<bool> = if self.barred { mask.to_i64().iter().map(|x| *x == 0).collect() } else { Vec::new() };
        let (got, q, k, v) = (got[0].to_f64(), q.to_f64(), k.to_f64(), v.to_f64());
        let mask = if self.masked { mask.to_f64() } else { Vec::new() };
        let most = match dtype {
            DType::F16 => 4e-3,
            DType::BF16 => 3e-2,
            _ => 2e-5,
        };
        let open = |row: usize, key: usize| !barred.get(row * keys + key).copied().unwrap_or(false);
        let seen = |row: usize, key: usize| (!self.causal || key <= row + past) && open(row, key);
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
    let plain = Decoding {
        heads: [2, 2],
        queries: 1,
        keys: 700,
        size: 64,
        dtype: DType::F16,
        causal: false,
        masked: false,
        barred: false,
        past: 0,
    };
    let cases = [
        plain,
        Decoding { heads: [8, 2], keys: 1037, size: 128, ..plain },
        Decoding { heads: [4, 1], keys: 650, size: 72, dtype: DType::BF16, masked: true, ..plain },
        Decoding { queries: 3, keys: 523, dtype: DType::F32, ..plain },
        Decoding { heads: [3, 3], queries: 8, keys: 1100, dtype: DType::BF16, masked: true, ..plain },
        Decoding { heads: [6, 2], queries: 5, keys: 777, size: 80, causal: true, ..plain },
        Decoding { heads: [4, 2], queries: 7, keys: 301, barred: true, ..plain },
        Decoding { heads: [1, 1], queries: 40, keys: 900, size: 40, masked: true, ..plain },
    ];
    for target in TARGETS {
        let some = cases.iter().zip(1..).filter(|(_, seed)| drawn(&format!("decoding {seed} {target}")));
        let shared: Vec<u32> = some.map(|(c, seed)| c.check(target, seed)).collect();
        // Where there are matrix instructions.
        assert!(
            !all_cases() || target == "gfx906" || shared.iter().filter(|s| **s > 1).count() > 2,
            "{target}: {shared:?}"
        );
    }
}

/// Work divided equally among workgroups: of all shapes the first one that a target divides so is computed.
#[test]
fn work_in_equal_shares() {
    let plain = Decoding {
        heads: [1, 1],
        queries: 1,
        keys: 1,
        size: 64,
        dtype: DType::F16,
        causal: false,
        masked: false,
        barred: false,
        past: 0,
    };
    // The first target has no matrix instructions. Heads, queries, size: ends of blocks and of tiles anywhere.
    let shapes = [
        (12, 200, 64),
        (3, 701, 32),
        (12, 203, 128),
        (5, 501, 64),
        (7, 333, 128),
        (3, 999, 64),
        (7, 701, 64),
        (1, 2001, 64),
        (2, 1001, 128),
        (1, 1501, 128),
        (9, 703, 72),
        (5, 1003, 64),
        (9, 1501, 16),
        (2, 1400, 128),
        (7, 1400, 40),
        (1, 2200, 128),
    ];
    // Shared heads of keys, causal, masked, keys of a cache.
    let kinds = [
        Decoding { ..plain },
        Decoding { causal: true, heads: [1, 0], ..plain },
        Decoding { dtype: DType::F32, heads: [1, 0], ..plain },
        Decoding { dtype: DType::F32, causal: true, past: 77, ..plain },
        Decoding { dtype: DType::BF16, masked: true, ..plain },
        Decoding { causal: true, past: 300, ..plain },
    ];
    for (number, target) in TARGETS.into_iter().enumerate().skip(1) {
        // Another kind on each.
        let case = (0..kinds.len()).find_map(|turn| {
            let kind = &kinds[(turn + number) % kinds.len()];
            let of = |&(heads, queries, size): &(usize, usize, usize)| {
                let heads = [heads, if kind.heads[1] == 0 { 1 } else { heads }];
                Decoding { heads, queries, keys: queries + kind.past, size, ..*kind }
            };
            shapes.iter().map(of).find(|c| c.sharing(target)[0] > 1)
        });
        // Where a workgroup has much to do in little time, only work that is too much for a test is divided.
        assert!(case.is_some() || target == "gfx950", "{target}");
        if let Some(c) = case.filter(|_| drawn(&format!("equal shares {target}"))) {
            c.check(target, number as u64);
        }
    }
}
