//! Levels of a launch, whose workgroups wait for those of the level before, on emulated devices in strict mode against the interpreter.

use crate::support::build::{Builder, int, ints, text};
use crate::support::device::TARGETS;
use crate::support::drawn;
use crate::support::generate::network;
use barewave::graph::interpret::Interpreter;
use barewave::graph::{Options, fuse};
use barewave::kernels::{Tuning, When};
use barewave::onnx::Dim;
use barewave::runtime::{EmulatedDevice, Session};
use barewave::tensor::{DType, HostTensor, compare};
use barewave::{Compiled, Compiler};
use barewave_isa::Target;
use std::sync::Arc;

const TYPES: [(DType, f64); 3] = [(DType::F32, 1e-4), (DType::F16, 2e-2), (DType::BF16, 1e-1)];

/// Runs a model twice on every target, or what is drawn of them, each time with results of the interpreter; `look` is shown what was compiled.
fn agrees(b: &Builder, shapes: &Options, tolerance: f64, what: &str, look: impl Fn(&Compiled, &str)) {
    agrees_on(&TARGETS, b, shapes, tolerance, what, look);
}

/// The same on some targets.
fn agrees_on(
    targets: &[&str],
    b: &Builder,
    shapes: &Options,
    tolerance: f64,
    what: &str,
    look: impl Fn(&Compiled, &str),
) {
    let fused = fuse(&b.model, shapes).unwrap();
    let want = Interpreter::new(&fused).run(&fused, &b.inputs).unwrap();
    for target in targets {
        let what = format!("{what} {target}");
        if !drawn(&what) {
            continue;
        }
        let target = Target::parse(target).unwrap();
        let compiled = Compiler::new(target, Default::default()).compile_graph(&fused);
        let compiled = compiled.unwrap_or_else(|e| panic!("{what}: {e}"));
        look(&compiled, &what);
        let device = Arc::new(EmulatedDevice::new(target, true).unwrap());
        let mut session = Session::new(device, &compiled).unwrap();
        // Counters are as they were.
        for _ in 0..2 {
            let (got, _) = session.run(&b.inputs).unwrap_or_else(|e| panic!("{what}: {e}"));
            for (g, w) in got.iter().zip(&want) {
                let c = compare(g, w, tolerance, tolerance).unwrap();
                assert!(c.passes(), "{what}: {c}");
            }
        }
    }
}

/// Launches, and levels of all of them.
fn counted(compiled: &Compiled) -> (usize, usize) {
    let launches = &compiled.plan().launches;
    let levels = launches.iter().map(|l| l.chain.chunk_by(|a, b| a.level == b.level).count().max(1)).sum();
    (launches.len(), levels)
}

fn is_one(compiled: &Compiled, what: &str) {
    let (launches, levels) = counted(compiled);
    assert!(launches == 1 && levels > 1, "{what}: {launches} launches of {levels} levels");
}

fn typed(b: &mut Builder, t: DType, shape: &[usize]) -> String {
    let part: usize = shape[1..].iter().product();
    let values = b.random(shape).to_f64().into_iter().map(|x| x / (part as f64).sqrt()).collect::<Vec<_>>();
    b.constant(HostTensor::from_f64(t, shape, &values))
}

fn given(b: &mut Builder, t: DType, shape: &[usize]) -> String {
    let x = HostTensor::from_f64(t, shape, &b.random(shape).to_f64());
    b.input_of(x)
}

/// Squeezes an image, and scales its channels by what two products make of that.
fn squeezed(b: &mut Builder, t: DType, x: &str, [channels, few]: [usize; 2]) -> String {
    let p = b.node("GlobalAveragePool", &[x], &[]);
    let (w, bias) = (typed(b, t, &[few, channels, 1, 1]), typed(b, t, &[few]));
    let y = b.node("Conv", &[&p, &w, &bias], &[]);
    let y = b.node("Relu", &[&y], &[]);
    let (w, bias) = (typed(b, t, &[channels, few, 1, 1]), typed(b, t, &[channels]));
    let y = b.node("Conv", &[&y, &w, &bias], &[]);
    let y = b.node("Sigmoid", &[&y], &[]);
    b.node("Mul", &[x, &y], &[])
}

#[test]
fn channels_are_squeezed_and_scaled_in_one_launch() {
    for (case, (images, channels, few, side)) in [(1, 24, 6, 9), (3, 40, 10, 7), (1, 96, 4, 14)].into_iter().enumerate()
    {
        let (t, tolerance) = TYPES[case];
        let mut b = Builder::new(17, 900 + case as u64);
        let x = given(&mut b, t, &[images, channels, side, side]);
        let y = squeezed(&mut b, t, &x, [channels, few]);
        b.output(&y);
        agrees(&b, &Options::default(), tolerance, &format!("squeezed {case}"), is_one);
    }
}

#[test]
fn layers_of_a_row_are_levels() {
    for (case, sizes) in [[13, 64, 33, 1], [64, 64, 64, 64], [7, 130, 5, 90]].into_iter().enumerate() {
        let (t, tolerance) = TYPES[case];
        let mut b = Builder::new(17, 910 + case as u64);
        let mut x = given(&mut b, t, &[1 + case, sizes[0]]);
        for pair in sizes.windows(2) {
            let (w, bias) = (typed(&mut b, t, &[pair[1], pair[0]]), typed(&mut b, t, &[pair[1]]));
            x = b.node("Gemm", &[&x, &w, &bias], &[("transB", int(1))]);
            x = b.node("Relu", &[&x], &[]);
        }
        let y = b.node("Softmax", &[&x], &[]);
        b.output(&y);
        agrees(&b, &Options::default(), tolerance, &format!("layers {case}"), is_one);
    }
}

/// Branches are side by side within a level.
#[test]
fn levels_have_several_steps() {
    for (case, (t, tolerance)) in TYPES.into_iter().enumerate() {
        let mut b = Builder::new(17, 920 + case as u64);
        let mut ends = [(); 3].map(|()| given(&mut b, t, &[1, 8, 9, 9]));
        for _ in 0..3 {
            for x in &mut ends {
                let w = typed(&mut b, t, &[8, 8, 3, 3]);
                *x = b.node("Conv", &[x.as_str(), &w], &[("pads", ints(&[1; 4]))]);
            }
        }
        let first = b.node("Concat", &[&ends[0], &ends[1], &ends[2]], &[("axis", int(1))]);
        let y = b.node("Tanh", &[&first], &[]);
        b.output(&y);
        agrees(&b, &Options::default(), tolerance, &format!("branches {case}"), |compiled, what| {
            let (launches, levels) = counted(compiled);
            assert!(launches < levels, "{what}: {launches} launches of {levels} levels");
            let several = |l: &barewave::runtime::plan::Launch| l.chain.windows(2).any(|p| p[0].level == p[1].level);
            assert!(compiled.plan().launches.iter().any(several), "{what}");
        });
    }
}

/// Steps of a layer that is spread over the device, which is told in each which one it is.
#[test]
fn steps_of_a_layer_are_levels() {
    let (steps, units) = (4, 160);
    for (kind, gates) in [("LSTM", 4), ("GRU", 3)] {
        let mut b = Builder::new(17, 930 + gates as u64);
        let x = b.input(&[steps, 1, 16]);
        let (w, r) =
            (typed(&mut b, DType::F32, &[1, gates * units, 16]), typed(&mut b, DType::F32, &[1, gates * units, units]));
        let y = b.node(kind, &[&x, &w, &r], &[("hidden_size", int(units as i64))]);
        b.output(&y);
        agrees(&b, &Options::default(), 1e-4, kind, |compiled, what| {
            let (launches, levels) = counted(compiled);
            assert!(launches < levels, "{what}: {launches} launches of {levels} levels");
        });
    }
}

/// The model leaves these dimensions of its inputs open, or all.
fn open(b: &mut Builder, which: Option<&[usize]>) -> Options {
    let mut shapes = Options::default();
    for (n, input) in b.model.graph.inputs.iter_mut().enumerate() {
        for (d, dim) in input.shape.iter_mut().flatten().enumerate() {
            if let (Dim::Known(extent), true) = (&*dim, which.is_none_or(|w| w.contains(&d))) {
                let name = format!("d{n}_{d}");
                shapes.dims.insert(name.clone(), *extent);
                *dim = Dim::Symbol(name);
            }
        }
    }
    shapes
}

/// Extents that the model leaves open.
#[test]
fn open_extents_have_levels() {
    let mut b = Builder::new(17, 940);
    let x = given(&mut b, DType::F32, &[2, 12, 5, 6]);
    let y = squeezed(&mut b, DType::F32, &x, [12, 3]);
    let y = b.node("ReduceMean", &[&y], &[("axes", ints(&[2, 3])), ("keepdims", int(0))]);
    let y = b.node("Softmax", &[&y], &[]);
    b.output(&y);
    let shapes = open(&mut b, Some(&[0, 2, 3]));
    agrees(&b, &shapes, 1e-4, "open", is_one);
}

/// Lines of any number and length: so many levels that what the launch is told of them is asked for more than once, branches of which some have one workgroup and others
/// several, and a product among them whose code knows its extents.
fn any_lines(lines: usize, length: usize, deep: usize) -> (Builder, Options) {
    let mut b = Builder::new(17, 941);
    let x = given(&mut b, DType::F32, &[1, lines, length]);
    let z = given(&mut b, DType::F32, &[1, 3, length + 2]);
    let (mut ends, row) = ([x, z], given(&mut b, DType::F32, &[2, 40]));
    for n in 0..deep {
        for x in &mut ends {
            let y = b.node("Softmax", &[x.as_str()], &[("axis", int(2))]);
            *x = b.node(if n % 2 == 0 { "Add" } else { "Mul" }, &[&y, x.as_str()], &[]);
        }
    }
    let (w, bias) = (typed(&mut b, DType::F32, &[33, 40]), typed(&mut b, DType::F32, &[33]));
    let y = b.node("Gemm", &[&row, &w, &bias], &[("transB", int(1))]);
    let y = b.node("Softmax", &[&y], &[]);
    ends.iter().chain([&y]).for_each(|y| b.output(y));
    let shapes = open(&mut b, None);
    (b, shapes)
}

#[test]
fn launches_that_are_told_their_extents_have_the_same_code() {
    const SOME: [&str; 5] = ["gfx906", "gfx942", "gfx1030", "gfx1100", "gfx1201"];
    for deep in [1, 9, 20] {
        let mut codes: Vec<Vec<Vec<u8>>> = vec![Vec::new(); SOME.len()];
        for (lines, length) in [(2, 65), (7, 131), (12, 699)] {
            let (b, shapes) = any_lines(lines, length, deep);
            agrees(&b, &shapes, 1e-4, &format!("{deep} times {lines} lines of {length}"), is_one);
            let fused = fuse(&b.model, &shapes).unwrap();
            for (target, known) in SOME.iter().zip(&mut codes) {
                let compiler = Compiler::new(Target::parse(target).unwrap(), Default::default());
                known.push(compiler.compile_graph(&fused).unwrap().code().to_vec());
            }
        }
        for (target, codes) in SOME.iter().zip(codes) {
            assert!(codes.windows(2).all(|c| c[0] == c[1]), "{target}, {deep}: each extent has its own code");
        }
    }
}

#[test]
fn random_networks_of_open_extents_agree() {
    for seed in 0..60 {
        let mut b = network(3000 + seed);
        let shapes = open(&mut b, None);
        agrees(&b, &shapes, 1e-4, &format!("network {seed}"), |_, _| {});
    }
}

#[test]
fn launches_join_never_where_waits_are_worth_it_or_always() {
    // So many waves count that a launch takes less than a wait for them.
    let mut b = Builder::new(17, 940);
    let x = given(&mut b, DType::F32, &[8192, 64]);
    let y = b.node("Softmax", &[&x], &[("axis", int(-1))]);
    let y = b.node("ReduceSum", &[&y], &[("keepdims", int(1))]);
    let y = b.node("Sub", &[&x, &y], &[]);
    let y = b.node("Softmax", &[&y], &[("axis", int(0))]);
    b.output(&y);
    let fused = fuse(&b.model, &Options::default()).unwrap();
    let launches = |when| {
        let mut tuning = Tuning::default();
        tuning.set_levels(when);
        let options = barewave::Options { tuning: Arc::new(tuning), ..Default::default() };
        Compiler::new(Target::GFX1100, options).compile_graph(&fused).unwrap().plan().launches.len()
    };
    let [never, faster, always] = [When::Never, When::Faster, When::Always].map(launches);
    assert!(
        never >= faster && faster > always,
        "{never} apart, {faster} where it is faster, {always} wherever it can be"
    );
}

/// On targets that have rules of their own: the last instruction of a level may be a store that reads its mask.
#[test]
fn other_targets_have_levels() {
    let mut b = Builder::new(17, 5);
    let x = b.input(&[1, 3, 8, 8]);
    let y = b.node("Relu", &[&x], &[]);
    let scales = b.constant(HostTensor::from_f32(&[4], &[1.0, 1.0, 2.0, 2.0]));
    let y = b.node("Resize", &[&y, "", &scales], &[("mode", text("linear"))]);
    let z = b.input(&[1, 3, 16, 16]);
    let y = b.node("Add", &[&y, &z], &[]);
    b.output(&y);
    let targets = ["gfx900", "gfx908", "gfx950", "gfx1010", "gfx1012", "gfx1036", "gfx1103", "gfx1151", "gfx1200"];
    agrees_on(&targets, &b, &Options::default(), 1e-4, "other targets", |compiled, what| {
        assert_eq!(compiled.plan().launches.len(), 1, "{what}");
    });
}
