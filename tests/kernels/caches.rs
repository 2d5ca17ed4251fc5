//! Attention of one token that puts its caches together itself: emulated devices in strict mode against sums in f64.

use crate::support::build::{Builder, int};
use crate::support::device;
use crate::support::drawn;
use barewave::graph::interpret::Interpreter;
use barewave::graph::{Options, fuse};
use barewave::kernels::{Tuning, joined};
use barewave::onnx::Dim;
use barewave::tensor::{DType, HostTensor};
use barewave_isa::Target;

const TARGETS: [&str; 9] =
    ["gfx803", "gfx906", "gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201"];

/// Sequences, heads of queries and of keys, room of the caches, size of a head, type, keys that each sequence has had.
#[derive(Clone, Debug)]
struct Caches {
    heads: [usize; 2],
    room: usize,
    size: usize,
    dtype: DType,
    had: Vec<usize>,
}

impl Caches {
    /// Runs it on a target; true where no other step copies the caches. Where it is open, kernels are told how large these are.
    fn check(&self, target: &str, seed: u64, open: bool) -> bool {
        let Caches { heads: [hq, hk], room, size, dtype, had } = self;
        let (hq, hk, room, size, dtype, batch) = (*hq, *hk, *room, *size, *dtype, had.len());
        let keys = room.max(had.iter().max().unwrap() + 1);
        let mut b = Builder::new(21, seed);
        let mut side = |shape: &[usize]| {
            let values: Vec<f64> = b.random(shape).to_f64().iter().map(|x| x * 2.0).collect();
            HostTensor::from_f64(dtype, shape, &values)
        };
        let q = side(&[batch, 1, hq * size]);
        let new = [(); 2].map(|()| side(&[batch, 1, hk * size]));
        let past = [(); 2].map(|()| side(&[batch, hk, room, size]));
        let mut names = vec![b.input_of(q.clone())];
        names.extend(new.iter().chain(&past).map(|t| b.input_of(t.clone())));
        let lengths: Vec<i32> = had.iter().map(|n| *n as i32).collect();
        names.push(b.input_of(HostTensor::from_i32(&[batch, 1], &lengths)));
        names.push(b.constant(HostTensor::from_i32(&[], &[keys as i32])));
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let attributes = [("num_heads", hq), ("kv_num_heads", hk)].map(|(n, v)| (n, int(v as i64)));
        let made = b.node_n("GroupQueryAttention", &names, &attributes, 3);
        b.model.graph.nodes.last_mut().unwrap().domain = "com.microsoft".into();
        b.model.opsets.insert("com.microsoft".into(), 1);
        made.iter().for_each(|o| b.output(o));
        b.model.expand();
        if open {
            for input in &mut b.model.graph.inputs[3..5] {
                let [batch, heads, size] = [batch, hk, size].map(Dim::Known);
                input.shape = Some(vec![batch, heads, Dim::Symbol("room".into()), size]);
            }
        }
        let dims = if open { [("room".to_string(), room)].into() } else { Default::default() };
        let graph = fuse(&b.model, &Options { dims, ..Options::default() }).unwrap();
        let (mut session, program) = device::session(&graph, target, true).unwrap();
        let given = session.run(&b.inputs).unwrap_or_else(|e| panic!("{target} {self:?}: {e}")).0;
        let place = |s: usize, h: usize, t: usize, room: usize| ((s * hk + h) * room + t) * size;
        // The caches to the bit.
        let whole = [0, 1].map(|i| {
            let (past, new) = (past[i].to_f64(), new[i].to_f64());
            let mut all = vec![0.0; batch * hk * keys * size];
            for (s, h) in (0..batch).flat_map(|s| (0..hk).map(move |h| (s, h))) {
                for t in 0..room {
                    all[place(s, h, t, keys)..][..size].copy_from_slice(&past[place(s, h, t, room)..][..size]);
                }
                all[place(s, h, had[s], keys)..][..size].copy_from_slice(&new[(s * hk + h) * size..][..size]);
            }
            assert!(given[1 + i].to_f64() == all, "{target} {self:?}: cache {i}");
            all
        });
        let most = match dtype {
            DType::F16 => 4e-3,
            DType::BF16 => 3e-2,
            _ => 2e-5,
        };
        let (q, got) = (q.to_f64(), given[0].to_f64());
        for (s, h) in (0..batch).flat_map(|s| (0..hq).map(move |h| (s, h))) {
            let line = |i: usize, t: usize| &whole[i][place(s, h / (hq / hk), t, keys)..][..size];
            let own = &q[(s * hq + h) * size..][..size];
            let scores: Vec<f64> = (0..=had[s])
                .map(|t| own.iter().zip(line(0, t)).map(|(x, y)| x * y).sum::<f64>() / (size as f64).sqrt())
                .collect();
            let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = scores.iter().map(|s| (s - top).exp()).collect();
            let all: f64 = weights.iter().sum();
            for i in 0..size {
                let want = weights.iter().enumerate().map(|(t, w)| w * line(1, t)[i]).sum::<f64>() / all;
                let have = got[(s * hq + h) * size + i];
                let near = (have - want).abs() <= most;
                assert!(near, "{target} {self:?}: {have} instead of {want}, sequence {s}, head {h}");
            }
        }
        // What the interpreter makes of the step.
        let whole = joined(&graph, Target::parse(target).unwrap(), &Tuning::default()).expect("an attention");
        let expected = Interpreter::new(&whole).run(&whole, &b.inputs).unwrap();
        for (x, y) in expected[0].to_f64().iter().zip(&got) {
            assert!((x - y).abs() <= most, "{target} {self:?}: {y}, and {x} by the interpreter");
        }
        assert!(
            (1..3).all(|i| expected[i].to_f64() == given[i].to_f64()),
            "{target} {self:?}: caches of the interpreter"
        );
        program.plan().launches.iter().all(|l| !l.kernel.starts_with("program"))
    }
}

/// What makes queries and new lines of what comes in.
#[derive(Clone, Copy, Debug)]
enum Made {
    /// New keys and values are negated.
    Negated,
    /// Queries and new keys are rotated: neighbours with each other, or halves.
    Rotated { interleaved: bool },
    /// The same of halves, as exporters write it.
    Turned,
}

impl Made {
    /// Queries and a new key, as they are rotated; the new value.
    fn of(self, b: &mut Builder, [q, k, v]: [String; 3], size: usize, dtype: DType) -> [String; 3] {
        let mut table = |shape: &[usize]| HostTensor::from_f64(dtype, shape, &b.random(shape).to_f64());
        match self {
            // Not as they come in: copied they are not.
            Made::Negated => [q, b.node("Neg", &[&k], &[]), b.node("Neg", &[&v], &[])],
            Made::Rotated { interleaved } => {
                let [cos, sin] = [(); 2].map(|()| table(&[50, size / 2]));
                let [cos, sin] = [cos, sin].map(|t| b.constant(t));
                let at = b.input_of(HostTensor::from_ints(DType::I64, &[1, 1], &[37]));
                let attributes = [("interleaved", int(i64::from(interleaved)))];
                let rotated = [&q, &k].map(|x| b.node("RotaryEmbedding", &[x, &cos, &sin, &at], &attributes));
                let [q, k] = rotated;
                [q, k, v]
            }
            Made::Turned => {
                let [cos, sin] = [(); 2].map(|()| table(&[1, 1, 1, size]));
                let [cos, sin] = [cos, sin].map(|t| b.input_of(t));
                let [start, middle, end, last] = [0, size as i64 / 2, i64::MAX, -1]
                    .map(|i| b.constant(HostTensor::from_ints(DType::I64, &[1], &[i])));
                let [q, k] = [q, k].map(|x| {
                    let low = b.node("Slice", &[&x, &start, &middle, &last], &[]);
                    let high = b.node("Slice", &[&x, &middle, &end, &last], &[]);
                    let high = b.node("Neg", &[&high], &[]);
                    let turned = b.node("Concat", &[&high, &low], &[("axis", int(-1))]);
                    let turned = b.node("Mul", &[&turned, &sin], &[]);
                    let straight = b.node("Mul", &[&x, &cos], &[]);
                    b.node("Add", &[&straight, &turned], &[])
                });
                [q, k, v]
            }
        }
    }
}

/// Attention over lists that grow, as exporters of torch write them: past keys and values, and behind them the new ones.
fn listed(made: Made, [hq, hk]: [usize; 2], past: usize, size: usize, dtype: DType, target: &str, open: bool) {
    let mut b = Builder::new(21, past as u64);
    let mut given = |shape: &[usize]| {
        let x = HostTensor::from_f64(dtype, shape, &b.random(shape).to_f64());
        b.input_of(x)
    };
    let q = given(&[1, hq, 1, size]);
    let new = [(); 2].map(|()| given(&[1, hk, 1, size]));
    let caches = [(); 2].map(|()| given(&[1, hk, past, size]));
    let [k, v] = new;
    let [q, k, v] = made.of(&mut b, [q, k, v], size, dtype);
    let y = b.node_n("Attention", &[&q, &k, &v, "", &caches[0], &caches[1]], &[], 3);
    y.iter().for_each(|o| b.output(o));
    b.model.opsets.insert(String::new(), 23);
    b.model.expand();
    if open {
        for input in &mut b.model.graph.inputs[3..5] {
            let [one, heads, size] = [1, hk, size].map(Dim::Known);
            input.shape = Some(vec![one, heads, Dim::Symbol("past".into()), size]);
        }
    }
    let dims = if open { [("past".to_string(), past)].into() } else { Default::default() };
    let graph = fuse(&b.model, &Options { dims, ..Options::default() }).unwrap();
    let want = Interpreter::new(&graph).run(&graph, &b.inputs).unwrap();
    let whole = joined(&graph, Target::parse(target).unwrap(), &Tuning::default()).expect("an attention");
    let told = Interpreter::new(&whole).run(&whole, &b.inputs).unwrap();
    let (mut session, program) = device::session(&graph, target, true).unwrap();
    let got = session.run(&b.inputs).unwrap_or_else(|e| panic!("{target} {past} of {size}, open {open}: {e}")).0;
    let most = if dtype == DType::F32 { 2e-5 } else { 4e-3 };
    let exact = matches!(made, Made::Negated);
    for (i, want) in want.iter().enumerate() {
        let (want, got, told) = (want.to_f64(), got[i].to_f64(), told[i].to_f64());
        let most = if i == 0 || i == 1 && !exact { most } else { 0.0 };
        let near = |x: &[f64]| x.iter().zip(&want).all(|(x, y)| (x - y).abs() <= most);
        assert!(near(&got) && near(&told), "{target} {made:?} {past} of {size}, open {open}, output {i}");
    }
    // Nothing is computed, or copied, elsewhere.
    assert_eq!(program.plan().launches.len(), 1, "{target} {made:?} {past} of {size}, open {open}");
}

#[test]
fn attention_puts_lists_together() {
    for target in TARGETS {
        for (heads, past, size, dtype) in
            [([2, 2], 77, 64, DType::F16), ([6, 2], 300, 128, DType::F16), ([2, 1], 40, 80, DType::F32)]
        {
            let rotated = [false, true].map(|interleaved| Made::Rotated { interleaved });
            for made in [Made::Negated, Made::Turned].into_iter().chain(rotated) {
                if drawn(&format!("lists {past} {made:?} {target}")) {
                    [false, true].into_iter().for_each(|open| listed(made, heads, past, size, dtype, target, open));
                }
            }
        }
    }
}

#[test]
fn attention_puts_caches_together() {
    let plain = Caches { heads: [2, 2], room: 80, size: 64, dtype: DType::F16, had: vec![80] };
    let cases = [
        plain.clone(),
        // Room for more, in the first line, in the middle, at the end.
        Caches { had: vec![0], ..plain.clone() },
        Caches { had: vec![41], room: 333, size: 128, ..plain.clone() },
        Caches { had: vec![332], room: 333, heads: [4, 1], ..plain.clone() },
        // Several sequences, one of which has more than there is room for.
        Caches { had: vec![5, 17, 40], room: 40, heads: [6, 2], size: 128, ..plain.clone() },
        Caches { had: vec![700, 3], room: 700, dtype: DType::BF16, heads: [2, 1], size: 72 },
        Caches { had: vec![90, 91], room: 95, dtype: DType::F32, size: 80, ..plain.clone() },
    ];
    for target in TARGETS {
        let some = cases.iter().zip(1..).filter(|(_, seed)| drawn(&format!("caches {seed} {target}")));
        for (case, seed) in some {
            for open in [false, true] {
                assert!(case.check(target, seed, open), "{target} {case:?}, open {open}, copies the caches");
            }
        }
    }
}
