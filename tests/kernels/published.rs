//! Lines in pieces of one launch, whose workgroups wait for what those before them publish: in strict mode on every family of targets, and run after run
//! of a session with the same bits.

use crate::support::agree::{close, finish};
use crate::support::build::{Builder, int};
use crate::support::{apart, device, drawn};
use barewave::graph::{Options, fuse};
use barewave::tensor::{DType, HostTensor};

/// Running sums along the last axis, with their element or without, from either end.
fn sums(dtype: DType, shape: &[usize], [reverse, exclusive]: [i64; 2]) -> Builder {
    let mut b = Builder::new(17, 31);
    let count = shape.iter().product();
    let whole = !dtype.is_float();
    let x: Vec<f64> =
        (0..count).map(|_| b.below(2001) as f64).map(|x| if whole { x } else { x / 700.0 - 1.0 }).collect();
    let x = b.input_of(HostTensor::from_f64(dtype, shape, &x));
    let axis = b.constant(HostTensor::from_i64(&[], &[-1]));
    let y = b.node("CumSum", &[&x, &axis], &[("reverse", int(reverse)), ("exclusive", int(exclusive))]);
    finish(&mut b, "", &[y]);
    b
}

#[test]
fn pieces_of_lines_wait_for_those_before_them() {
    let mut launched_once = 0;
    for (dtype, shape) in [
        (DType::F32, &[2usize, 3 * 8192][..]),
        (DType::F32, &[1, 70 * 12_000]),
        (DType::F32, &[3, 2, 5 * 16_384]),
        (DType::I32, &[2, 66 * 9_216]),
        (DType::F16, &[3, 9 * 13_336]),
        (DType::BF16, &[1, 131 * 8_200]),
        (DType::U32, &[1, 4 * 11_000]),
    ] {
        for how in [[0, 0], [0, 1], [1, 0], [1, 1]] {
            let b = sums(dtype, shape, how);
            let want = apart::outputs(&b.model, &b.inputs).unwrap().remove(0);
            for target in device::TARGETS {
                let what = format!("{dtype} {shape:?}, reverse and exclusive {how:?}, on {target}");
                if !drawn(&what) {
                    continue;
                }
                let graph = fuse(&b.model, &Options::default()).unwrap();
                let (mut session, compiled) = device::session(&graph, target, true).unwrap();
                launched_once += usize::from(compiled.plan().launches.len() == 1);
                let mut first: Option<HostTensor> = None;
                for run in 0..2 {
                    let (mut got, _) = session.run(&b.inputs).unwrap_or_else(|e| panic!("{what}, run {run}: {e}"));
                    let got = got.remove(0);
                    match &first {
                        Some(first) => {
                            assert!(first.bytes()[..] == got.bytes()[..], "{what}: run {run} has other bits")
                        }
                        None => {
                            let most = if dtype.size() == 2 { 1e-2 } else { 2e-5 };
                            close(&got.to_f64(), &want.to_f64(), if dtype.is_float() { most } else { 0.0 }, &what);
                            first = Some(got);
                        }
                    }
                }
            }
        }
    }
    assert!(launched_once > 20, "only {launched_once} in one launch");
}
