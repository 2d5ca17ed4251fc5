//! Steps side by side in one launch, on emulated devices in strict mode against the interpreter.

use crate::support::build::{Builder, int, ints};
use crate::support::device::{TARGETS, session};
use crate::support::drawn;
use barewave::Compiled;
use barewave::graph::interpret::Interpreter;
use barewave::graph::{Options, fuse};
use barewave::tensor::{DType, HostTensor, compare};

/// Runs a model on every target, or what is drawn of them, and compares its results with the interpreter's; `look` is shown what was compiled.
fn agrees(b: &Builder, tolerance: f64, what: &str, look: impl Fn(&Compiled, &str)) {
    let fused = fuse(&b.model, &Options::default()).unwrap();
    let want = Interpreter::new(&fused).run(&fused, &b.inputs).unwrap();
    for target in TARGETS {
        let what = format!("{what} {target}");
        if !drawn(&what) {
            continue;
        }
        let (mut session, compiled) = session(&fused, target, true).unwrap_or_else(|e| panic!("{what}: {e}"));
        look(&compiled, &what);
        let (got, _) = session.run(&b.inputs).unwrap_or_else(|e| panic!("{what}: {e}"));
        for (g, w) in got.iter().zip(&want) {
            let c = compare(g, w, tolerance, tolerance).unwrap();
            assert!(c.passes(), "{what}: {c}");
        }
    }
}

/// Steps of each launch that has several.
fn shared(compiled: &Compiled) -> Vec<usize> {
    compiled.plan().launches.iter().map(|l| l.beside.len()).filter(|n| *n > 0).collect()
}

fn typed(b: &mut Builder, t: DType, shape: &[usize]) -> HostTensor {
    HostTensor::from_f64(t, shape, &b.random(shape).to_f64())
}

const TYPES: [(DType, f64); 3] = [(DType::F32, 1e-4), (DType::F16, 2e-2), (DType::BF16, 1e-1)];

#[test]
fn phases_of_transposed_convolutions_are_one_launch() {
    // Data, channels of the result, window, stride, padding, groups.
    type Case = (&'static [usize], usize, usize, usize, usize, usize);
    let cases: [Case; 5] = [
        (&[1, 24, 50], 16, 16, 8, 4, 1),
        (&[2, 16, 7, 9], 12, 2, 2, 0, 1),
        (&[1, 8, 9, 5], 3, 9, 3, 4, 1),
        (&[3, 32, 4, 4], 16, 4, 2, 1, 1),
        (&[1, 6, 6, 11], 4, 3, 2, 1, 2),
    ];
    for (case, (data, channels, window, stride, pad, groups)) in cases.into_iter().enumerate() {
        let (t, tolerance) = TYPES[case % 3];
        let mut b = Builder::new(21, 300 + case as u64);
        let x = typed(&mut b, t, data);
        let x = b.input_of(x);
        let spatial = data.len() - 2;
        let shape = [&[data[1], channels / groups][..], &vec![window; spatial]].concat();
        let w = typed(&mut b, t, &shape);
        let w = b.constant(w);
        let attributes = [
            ("strides", ints(&vec![stride; spatial])),
            ("pads", ints(&vec![pad; 2 * spatial])),
            ("group", int(groups as i64)),
        ];
        let y = b.node("ConvTranspose", &[&x, &w], &attributes);
        b.output(&y);
        let phases = stride.pow(spatial as u32);
        agrees(&b, tolerance, &format!("{case} {t}"), |compiled, what| {
            let n = compiled.plan().launches.len();
            assert!(n <= phases / 2 && !shared(compiled).is_empty(), "{what}: {n} launches");
        });
    }
}

/// A step of a random kind that gives an image of as many pixels.
fn branch(b: &mut Builder, t: DType, x: &str, channels: usize, to: usize) -> String {
    let window = 1 + 2 * b.below(3);
    let pads = ("pads", ints(&[window / 2; 4]));
    let conv = |b: &mut Builder, shape: &[usize], attributes: &[(&str, _)]| {
        let w = typed(b, t, shape);
        let w = b.constant(w);
        b.node("Conv", &[x, &w], attributes)
    };
    match b.below(6) {
        0 => b.node("Sigmoid", &[x], &[]),
        1 => b.node("MaxPool", &[x], &[("kernel_shape", ints(&[window; 2])), pads]),
        2 => b.node("ReduceMean", &[x], &[("axes", ints(&[1]))]),
        3 => conv(b, &[channels, 1, window, window], &[pads, ("group", int(channels as i64))]),
        _ => conv(b, &[to, channels, window, window], &[pads]),
    }
}

#[test]
fn branches_share_launches() {
    let mut launches = [0; 2];
    for case in 0..12 {
        let (t, tolerance) = TYPES[case % 3];
        let mut b = Builder::new(17, 400 + case as u64);
        let (channels, height, width) = (b.between(2, 40), b.between(3, 19), b.between(3, 19));
        let x = typed(&mut b, t, &[1 + case % 2, channels, height, width]);
        let mut x = b.input_of(x);
        // Branches of one step or two, then a step that reads all of them.
        for _ in 0..2 {
            let count = b.between(2, 6);
            let mut ends = Vec::new();
            for _ in 0..count {
                let first = branch(&mut b, t, &x, channels, channels);
                ends.push(match b.coin() {
                    true => b.node("Relu", &[&first], &[]),
                    false => first,
                });
            }
            let sum = ends.iter().skip(1).fold(ends[0].clone(), |sum, y| b.node("Add", &[&sum, y], &[]));
            ends.iter().take(2).for_each(|y| b.output(y));
            x = b.node("Tanh", &[&sum], &[]);
        }
        b.output(&x);
        let fused = fuse(&b.model, &Options::default()).unwrap();
        for target in TARGETS {
            let (_, compiled) = session(&fused, target, true).unwrap();
            launches[0] += compiled.plan().launches.len();
            launches[1] += shared(&compiled).iter().map(|n| n - 1).sum::<usize>();
        }
        agrees(&b, tolerance, &format!("{case} {t}"), |_, _| {});
    }
    assert!(launches[1] * 5 > launches[0], "{} launches, {} were saved", launches[0], launches[1]);
}

#[test]
fn steps_that_wait_for_each_other_share_no_launch() {
    let mut b = Builder::new(21, 500);
    let mut x = b.input(&[1, 8, 12, 12]);
    for _ in 0..4 {
        let w = b.weight(&[8, 8, 3, 3]);
        x = b.node("Conv", &[&x, &w], &[("pads", ints(&[1; 4]))]);
    }
    b.output(&x);
    agrees(&b, 1e-4, "one behind the other", |compiled, what| {
        assert!(shared(compiled).is_empty(), "{what}: {:?}", compiled.plan().launches.len());
    });
}

/// Two rows of steps: what ends in one must not be where the other's next step writes.
#[test]
fn steps_of_a_launch_share_no_memory() {
    let mut b = Builder::new(21, 501);
    let mut ends = [(); 3].map(|()| b.input(&[1, 16, 9, 9]));
    for _ in 0..3 {
        for x in &mut ends {
            let w = b.weight(&[16, 16, 3, 3]);
            *x = b.node("Conv", &[x.as_str(), &w], &[("pads", ints(&[1; 4]))]);
        }
    }
    ends.iter().for_each(|x| b.output(x));
    agrees(&b, 1e-4, "three rows", |compiled, what| {
        assert_eq!(shared(compiled), [3; 3], "{what}");
    });
}
