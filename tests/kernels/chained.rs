//! Steps one behind the other in one launch, whose workgroups wait for each other: layers of language models that decode, on emulated devices in
//! strict mode, against the operators one by one, interpreted in f64.

use crate::support::apart;
use crate::support::build::{Builder, int};
use crate::support::device;
use crate::support::drawn;
use barewave::compile::compile;
use barewave::emu::LaunchOptions;
use barewave::graph::fused::FusedGraph;
use barewave::graph::{Options, fuse};
use barewave::runtime::{EmulatedDevice, EmulatedSettings, Session};
use barewave::tensor::{DType, HostTensor, SplitMix64};
use barewave_isa::Target;
use std::sync::Arc;

const TARGETS: [&str; 8] = ["gfx803", "gfx906", "gfx908", "gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"];

/// A layer's extents.
#[derive(Clone, Copy, Debug)]
struct Layer {
    wide: usize,
    heads: usize,
    /// Heads of keys.
    shared: usize,
    between: usize,
    past: usize,
    block: usize,
    sequences: usize,
}

impl Layer {
    fn product(&self, b: &mut Builder, t: DType, x: &str, [k, n]: [usize; 2]) -> String {
        let bytes: Vec<i64> = (0..n * k / 2).map(|_| b.below(256) as i64).collect();
        let w = b.constant(HostTensor::from_ints(DType::U8, &[n, k / self.block, self.block / 2], &bytes));
        // Results are about as large as what goes in.
        let scales = b.random(&[n * k / self.block]).to_f64();
        let scales: Vec<f64> = scales.iter().map(|s| (1.0 + 0.5 * s) / (5.0 * (k as f64).sqrt())).collect();
        let s = b.constant(HostTensor::from_f64(t, &[scales.len()], &scales));
        let sizes = [("K", k), ("N", n), ("bits", 4), ("block_size", self.block)].map(|(a, v)| (a, int(v as i64)));
        let y = b.node("MatMulNBits", &[x, &w, &s], &sizes);
        microsoft(b);
        y
    }

    fn norm(&self, b: &mut Builder, t: DType, x: &str) -> String {
        let scale: Vec<f64> = b.random(&[self.wide]).to_f64().iter().map(|s| 1.0 + 0.2 * s).collect();
        let scale = b.constant(HostTensor::from_f64(t, &[self.wide], &scale));
        b.node("SimplifiedLayerNormalization", &[x, &scale], &[("axis", int(-1))])
    }

    /// What a layer makes of `x`; its caches are outputs.
    fn append(&self, b: &mut Builder, t: DType, x: &str) -> String {
        let Layer { wide, heads, shared, between, past, sequences, .. } = *self;
        let size = wide / heads;
        let typed = |b: &mut Builder, shape: &[usize]| HostTensor::from_f64(t, shape, &b.random(shape).to_f64());
        let caches = [(); 2].map(|()| {
            let cache = typed(b, &[sequences, shared, past, size]);
            b.input_of(cache)
        });
        let lengths = b.input_of(HostTensor::from_i32(&[sequences, 1], &vec![past as i32; sequences]));
        let total = b.constant(HostTensor::from_i32(&[], &[past as i32 + 1]));
        let angles = [(); 2].map(|()| {
            let table = typed(b, &[2 * past, size / 2]);
            b.constant(table)
        });
        let h = self.norm(b, t, x);
        let [q, k, v] = [wide, shared * size, shared * size].map(|n| self.product(b, t, &h, [wide, n]));
        let names = [&q, &k, &v, &caches[0], &caches[1], &lengths, &total, &angles[0], &angles[1]].map(String::as_str);
        let attributes =
            [("num_heads", heads), ("kv_num_heads", shared), ("do_rotary", 1)].map(|(n, v)| (n, int(v as i64)));
        let made = b.node_n("GroupQueryAttention", &names, &attributes, 3);
        microsoft(b);
        made[1..].iter().for_each(|cache| b.output(cache));
        let o = self.product(b, t, &made[0], [wide, wide]);
        let h = b.node("Add", &[x, &o], &[]);
        let n = self.norm(b, t, &h);
        let [gate, up] = [(); 2].map(|()| self.product(b, t, &n, [wide, between]));
        let s = b.node("Sigmoid", &[&gate], &[]);
        let silu = b.node("Mul", &[&gate, &s], &[]);
        let product = b.node("Mul", &[&silu, &up], &[]);
        let down = self.product(b, t, &product, [between, wide]);
        b.node("Add", &[&h, &down], &[])
    }
}

/// Puts the last node into onnxruntime's own domain.
fn microsoft(b: &mut Builder) {
    b.model.graph.nodes.last_mut().unwrap().domain = "com.microsoft".into();
}

#[test]
fn layers_that_decode_are_rounds_of_a_launch() {
    let layer = |[wide, heads, shared, between, past, block]: [usize; 6], sequences: usize| Layer {
        wide,
        heads,
        shared,
        between,
        past,
        block,
        sequences,
    };
    let cases = [
        (layer([192, 3, 3, 352, 37, 32], 1), DType::F16, 2e-2),
        (layer([256, 4, 2, 480, 21, 32], 1), DType::F32, 2e-4),
        (layer([512, 4, 1, 736, 300, 16], 1), DType::F16, 2e-2),
        (layer([128, 2, 2, 2048, 64, 128], 1), DType::BF16, 1.5e-1),
        (layer([256, 2, 2, 320, 40, 32], 2), DType::F32, 2e-4),
    ];
    for (case, (layer, t, most)) in cases.into_iter().enumerate() {
        let mut b = Builder::new(21, 700 + case as u64);
        let shape = [layer.sequences, 1, layer.wide];
        let x = HostTensor::from_f64(t, &shape, &b.random(&shape).to_f64());
        let x = b.input_of(x);
        // Layers that are alike share their code.
        let y = layer.append(&mut b, t, &x);
        let y = layer.append(&mut b, t, &y);
        b.output(&y);
        b.model.opsets.insert("com.microsoft".into(), 1);
        b.model.expand();
        let graph = fuse(&b.model, &Options::default()).unwrap();
        let want = apart::outputs(&b.model, &b.inputs).unwrap();
        for target in TARGETS {
            let what = format!("{layer:?} {t} {target}");
            let compiled = compile(&graph, Target::parse(target).unwrap()).unwrap();
            let chained: Vec<usize> =
                compiled.plan().launches.iter().filter(|l| !l.chain.is_empty()).map(|l| l.chain.len()).collect();
            assert!(chained.iter().sum::<usize>() >= 8, "{what}: steps of launches that have several: {chained:?}");
            if !drawn(&what) {
                continue;
            }
            let (mut session, _) = device::session(&graph, target, true).unwrap();
            // What counts workgroups is as it was for the next run.
            let first = session.run(&b.inputs).unwrap_or_else(|e| panic!("{what}: {e}")).0;
            let second = session.run(&b.inputs).unwrap_or_else(|e| panic!("{what}, again: {e}")).0;
            for ((got, again), want) in first.iter().zip(&second).zip(&want) {
                assert!(got.bytes() == again.bytes(), "{what}: another result in another run");
                let (got, want) = (got.to_f64(), want.to_f64());
                let size = want.iter().fold(1e-30, |m: f64, x| m.max(x.abs()));
                for (i, (x, y)) in got.iter().zip(&want).enumerate() {
                    assert!((x - y).abs() / size <= most, "{what}: element {i} is {x:e} instead of {y:e}");
                }
            }
        }
    }
}

/// The graph of a finished model.
fn graph_of(mut b: Builder, y: &str) -> FusedGraph {
    b.output(y);
    b.model.opsets.insert("com.microsoft".into(), 1);
    b.model.expand();
    fuse(&b.model, &Options::default()).unwrap()
}

/// Three layers are three rounds of one launch: the same bits as of a model for each, however few workgroups run at once.
#[test]
fn rounds_give_what_launches_of_a_layer_give() {
    let layer = Layer { wide: 192, heads: 3, shared: 3, between: 352, past: 37, block: 32, sequences: 1 };
    let (t, shape, seeds) = (DType::F16, [1, 1, layer.wide], [751, 752, 753]);
    let mut all = Builder::new(21, 750);
    let first = HostTensor::from_f64(t, &shape, &all.random(&shape).to_f64());
    let mut y = all.input_of(first.clone());
    for seed in seeds {
        all.rng = SplitMix64(seed);
        y = layer.append(&mut all, t, &y);
    }
    let inputs = all.inputs.clone();
    let graph = graph_of(all, &y);
    for target in TARGETS.into_iter().filter(|target| drawn(&format!("rounds on {target}"))) {
        let run = |graph: &FusedGraph, inputs: &[HostTensor], resident: Option<usize>| {
            let target = Target::parse(target).unwrap();
            let program = compile(graph, target).unwrap();
            let options =
                LaunchOptions { strict: true, single_thread: resident.is_some(), resident, ..LaunchOptions::default() };
            let settings = EmulatedSettings { options, ..EmulatedSettings::default() };
            let device = EmulatedDevice::with_settings(target, settings).unwrap();
            let mut session = Session::new(Arc::new(device), &program).unwrap();
            let got = session.run(inputs).unwrap_or_else(|e| panic!("{target}, {resident:?} at once: {e}")).0;
            (got, program.plan().launches.iter().map(|l| l.chain.len()).collect::<Vec<_>>())
        };
        let (mut x, mut want) = (first.clone(), Vec::new());
        for seed in seeds {
            let mut one = Builder::new(21, seed);
            let name = one.input_of(x);
            let y = layer.append(&mut one, t, &name);
            let inputs = one.inputs.clone();
            let (mut got, steps) = run(&graph_of(one, &y), &inputs, None);
            assert_eq!(steps, [5], "{target}: steps of a layer's launch");
            x = got.pop().unwrap();
            want.extend(got);
        }
        want.push(x);
        for resident in [None, Some(1), Some(3)] {
            let (got, steps) = run(&graph, &inputs, resident);
            assert_eq!(steps, [15], "{target}: steps of a launch");
            let same = got.iter().zip(&want).all(|(x, y)| x.bytes() == y.bytes());
            assert!(same && got.len() == want.len(), "{target}: other bits with {resident:?} workgroups at once");
        }
    }
}

/// Scales that the product before gives are not there when weights are loaded ahead of the wait.
#[test]
fn weights_that_a_step_gives_are_not_loaded_ahead() {
    let (k, n, block) = (128, 64, 32);
    let mut b = Builder::new(21, 720);
    let layer = Layer { wide: k, heads: 1, shared: 1, between: k, past: 1, block, sequences: 1 };
    let [x, y] = [(); 2].map(|()| {
        let data = b.random(&[1, k]);
        b.input_of(data)
    });
    let scales = layer.product(&mut b, DType::F32, &x, [k, n * k / block]);
    let bytes: Vec<i64> = (0..n * k / 2).map(|_| b.below(256) as i64).collect();
    let w = b.constant(HostTensor::from_ints(DType::U8, &[n, k / block, block / 2], &bytes));
    let sizes = [("K", k), ("N", n), ("bits", 4), ("block_size", block)].map(|(a, v)| (a, int(v as i64)));
    let flat = b.constant(HostTensor::from_ints(DType::I64, &[1], &[-1]));
    let scales = b.node("Reshape", &[&scales, &flat], &[]);
    let y = b.node("MatMulNBits", &[&y, &w, &scales], &sizes);
    microsoft(&mut b);
    b.output(&y);
    b.model.opsets.insert("com.microsoft".into(), 1);
    let graph = fuse(&b.model, &Options::default()).unwrap();
    let want = apart::outputs(&b.model, &b.inputs).unwrap()[0].to_f64();
    for target in TARGETS {
        let compiled = compile(&graph, Target::parse(target).unwrap()).unwrap();
        assert!(compiled.plan().launches.iter().all(|l| l.chain.is_empty()), "{target}: one launch");
        let (mut session, _) = device::session(&graph, target, true).unwrap();
        let (got, _) = session.run(&b.inputs).unwrap_or_else(|e| panic!("{target}: {e}"));
        let size = want.iter().fold(1e-30, |m: f64, x| m.max(x.abs()));
        for (i, (x, y)) in got[0].to_f64().iter().zip(&want).enumerate() {
            assert!((x - y).abs() / size <= 2e-4, "{target}: element {i} is {x:e} instead of {y:e}");
        }
    }
}
