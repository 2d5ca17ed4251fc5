//! The instructions that a wave is said to execute ([`Function::executed`](barewave::mir::Function::executed)), which levels are chosen by, beside
//! those that an emulated device counts.

use crate::support::build::{Builder, int, ints, text};
use barewave::Compiler;
use barewave::graph::Options;
use barewave::kernels;
use barewave::runtime::{EmulatedDevice, Session};
use barewave_isa::Target;
use std::sync::Arc;

const TARGETS: [&str; 5] = ["gfx906", "gfx942", "gfx1030", "gfx1100", "gfx1201"];

/// What is said over what is counted, for the model's kernels together.
fn ratio(b: &Builder, target: Target) -> f64 {
    let compiler = Compiler::new(target, Default::default()).without_levels();
    let graph = compiler.fuse(&b.model, &Options::default()).unwrap();
    let lowered = |step| kernels::lower(&graph, step, target, &Default::default(), "k").unwrap();
    let all: Vec<_> = graph.steps.iter().flat_map(lowered).collect();
    let compiled = compiler.compile_graph(&graph).unwrap();
    let launches = compiled.plan().launches.iter().map(|l| &l.step).collect::<Vec<_>>();
    assert_eq!(launches.len(), all.len(), "{launches:?}");
    let waves = |k: &kernels::Kernel| {
        let workgroups: u32 = k.grid.iter().product();
        u64::from(workgroups * k.function.workgroup_size.div_ceil(target.info().wave_size))
    };
    let said: u64 = all.iter().map(|k| waves(k) * u64::from(k.function.executed())).sum();
    let device = EmulatedDevice::new(target, false).unwrap();
    let (_, report) = Session::new(Arc::new(device), &compiled).unwrap().run(&b.inputs).unwrap();
    said as f64 / report.instructions.unwrap() as f64
}

#[test]
fn instructions_are_about_those_that_are_executed() {
    type Make = fn(&mut Builder) -> String;
    let operators: [(&str, Make); 13] = [
        ("3x3", |b| {
            let (x, w) = (b.input(&[1, 64, 28, 28]), b.weight(&[64, 64, 3, 3]));
            b.node("Conv", &[&x, &w], &[("pads", ints(&[1; 4]))])
        }),
        ("3x3 by two", |b| {
            let (x, w) = (b.input(&[1, 32, 28, 28]), b.weight(&[64, 32, 3, 3]));
            b.node("Conv", &[&x, &w], &[("pads", ints(&[1; 4])), ("strides", ints(&[2; 2]))])
        }),
        ("1x1", |b| {
            let (x, w) = (b.input(&[1, 96, 14, 14]), b.weight(&[192, 96, 1, 1]));
            b.node("Conv", &[&x, &w], &[])
        }),
        ("depthwise", |b| {
            let (x, w) = (b.input(&[1, 96, 28, 28]), b.weight(&[96, 1, 5, 5]));
            b.node("Conv", &[&x, &w], &[("pads", ints(&[2; 4])), ("group", int(96))])
        }),
        ("product", |b| {
            let (x, w) = (b.input(&[197, 192]), b.weight(&[192, 576]));
            b.node("MatMul", &[&x, &w], &[])
        }),
        ("row", |b| {
            let (x, w) = (b.input(&[1, 2048]), b.weight(&[2048, 1000]));
            b.node("MatMul", &[&x, &w], &[])
        }),
        ("layer norm", |b| {
            let (x, w) = (b.input(&[197, 192]), b.weight(&[192]));
            b.node("LayerNormalization", &[&x, &w], &[])
        }),
        ("softmax", |b| {
            let x = b.input(&[12, 128, 128]);
            b.node("Softmax", &[&x], &[])
        }),
        ("gelu", |b| {
            let x = b.input(&[197, 768]);
            b.node("Gelu", &[&x], &[("approximate", text("tanh"))])
        }),
        ("pool", |b| {
            let x = b.input(&[1, 64, 56, 56]);
            let sizes = [("kernel_shape", ints(&[3; 2])), ("strides", ints(&[2; 2])), ("pads", ints(&[1; 4]))];
            b.node("MaxPool", &[&x], &sizes)
        }),
        ("mean", |b| {
            let x = b.input(&[1, 512, 7, 7]);
            b.node("GlobalAveragePool", &[&x], &[])
        }),
        ("transpose", |b| {
            let x = b.input(&[1, 96, 56, 56]);
            b.node("Transpose", &[&x], &[("perm", ints(&[0, 2, 3, 1]))])
        }),
        ("batch norm", |b| {
            let x = b.input(&[2, 64, 28, 28]);
            let w = [0; 4].map(|_| b.weight(&[64]));
            let of = [&x, &w[0], &w[1], &w[2], &w[3]].map(String::as_str);
            b.node("BatchNormalization", &of, &[])
        }),
    ];
    for (what, make) in operators {
        for target in TARGETS {
            let mut b = Builder::new(23, 5);
            let y = make(&mut b);
            b.output(&y);
            let said = ratio(&b, Target::parse(target).unwrap());
            // The waves of a row's products share results: one of them adds up, as all are said to.
            // A matrix instruction is said to be as many as take its time.
            let by_matrix = target == "gfx942" && ["3x3", "3x3 by two", "1x1", "product"].contains(&what);
            let most = if what == "row" || by_matrix { 2.6 } else { 1.35 };
            assert!((0.7..most).contains(&said), "{what} on {target}: {said:.2} of what is executed");
        }
    }
}
