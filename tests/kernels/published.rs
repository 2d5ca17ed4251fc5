//! Pieces of one launch, whose workgroups wait for what others publish: for those before them along lines, and for their whole team where channels come
//! last. In strict mode on every family of targets, and run after run of a session with the same bits.

use crate::support::agree::{close, finish};
use crate::support::build::{Builder, int, ints};
use crate::support::{apart, device, drawn};
use barewave::codeobj::ElfFile;
use barewave::compile::compile;
use barewave::emu::LaunchOptions;
use barewave::graph::{Options, fuse};
use barewave::runtime::{EmulatedDevice, EmulatedSettings, Session};
use barewave::tensor::{DType, HostTensor};
use barewave_isa::{Decoder, Mode, Target};
use std::sync::Arc;

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

/// Two runs of a session, which agree with what is wanted and have the same bits; 1 where it takes one launch whose workgroups wait.
fn same_every_time(b: &Builder, want: &HostTensor, target: &str, most: f64, what: &str) -> usize {
    let graph = fuse(&b.model, &Options::default()).unwrap();
    let (mut session, compiled) = device::session(&graph, target, true).unwrap();
    let mut first: Option<HostTensor> = None;
    for run in 0..2 {
        let (mut got, _) = session.run(&b.inputs).unwrap_or_else(|e| panic!("{what}, run {run}: {e}"));
        let got = got.remove(0);
        match &first {
            Some(first) => assert!(first.bytes()[..] == got.bytes()[..], "{what}: run {run} has other bits"),
            None => {
                close(&got.to_f64(), &want.to_f64(), most, what);
                first = Some(got);
            }
        }
    }
    usize::from(compiled.plan().launches.len() == 1 && compiled.plan().counter_bytes > 0)
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
                let most = if dtype.size() == 2 { 1e-2 } else { 2e-5 };
                launched_once += same_every_time(&b, &want, target, if dtype.is_float() { most } else { 0.0 }, &what);
            }
        }
    }
    assert!(launched_once > 20, "only {launched_once} in one launch");
}

/// Images whose channels come last, normalised in groups of these.
fn groups(dtype: DType, shape: [usize; 4], groups: i64) -> Builder {
    normalized(dtype, shape, groups, true)
}

/// The same of images whose channels come first.
fn images(dtype: DType, shape: [usize; 4], groups: i64) -> Builder {
    normalized(dtype, shape, groups, false)
}

/// Images normalised in groups of channels, which come last or first.
fn normalized(dtype: DType, shape: [usize; 4], groups: i64, last: bool) -> Builder {
    let mut b = Builder::new(21, 7);
    let channels = shape[if last { 3 } else { 1 }];
    let data: Vec<f64> = (0..shape.iter().product()).map(|i| b.below(640) as f64 / 64.0 + (i % 7) as f64).collect();
    let x = b.input_of(HostTensor::from_f64(dtype, &shape, &data));
    let first = if last { b.node("Transpose", &[&x], &[("perm", ints(&[0, 3, 1, 2]))]) } else { x };
    let scales: Vec<f64> = (0..channels).map(|k| 1.0 + (k % 4) as f64 / 4.0).collect();
    let biases: Vec<f64> = (0..channels).map(|k| (k % 3) as f64 - 1.0).collect();
    let [scale, bias] = [scales, biases].map(|v| b.constant(HostTensor::from_f64(dtype, &[channels], &v)));
    let y = b.node("GroupNormalization", &[&first, &scale, &bias], &[("num_groups", int(groups))]);
    let y = if last { b.node("Transpose", &[&y], &[("perm", ints(&[0, 2, 3, 1]))]) } else { y };
    finish(&mut b, "", &[y]);
    b
}

/// How many of such normalisations, of floats of all sizes in turn, take one launch whose workgroups wait.
fn waiting(cases: &[([usize; 4], i64)], targets: &[&str], make: impl Fn(DType, [usize; 4], i64) -> Builder) -> usize {
    let mut launched_once = 0;
    for (i, (shape, of)) in cases.iter().enumerate() {
        let (dtype, most) = [(DType::F32, 2e-6), (DType::F16, 2e-3), (DType::BF16, 1e-2)][i % 3];
        let b = make(dtype, *shape, *of);
        let want = apart::outputs(&b.model, &b.inputs).unwrap().remove(0);
        for target in targets {
            let what = format!("{of} groups of {dtype} {shape:?} on {target}");
            if drawn(&what) {
                launched_once += same_every_time(&b, &want, target, most, &what);
            }
        }
    }
    launched_once
}

/// Whole pieces and others, groups of one channel and of several, bands of all groups and of some.
#[test]
fn pieces_of_points_wait_for_their_team() {
    let cases = [
        ([1, 40, 36, 320], 32),
        ([2, 101, 33, 64], 64),
        ([1, 100, 99, 48], 4),
        ([1, 71, 73, 30], 3),
        ([2, 30, 31, 320], 32),
        ([3, 40, 36, 96], 8),
    ];
    let targets = ["gfx906", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201"];
    let launched_once = waiting(&cases, &targets, groups);
    assert!(launched_once > 2, "only {launched_once} in one launch");
}

/// Images whose channels come first, in few groups that lie together: lines of many elements, in pieces that are whole and others.
#[test]
fn pieces_of_few_long_lines_wait_for_their_team() {
    let cases = [([1, 60, 64, 64], 1), ([2, 60, 64, 60], 1), ([1, 113, 64, 66], 1), ([3, 34, 50, 54], 2)];
    let launched_once = waiting(&cases, &["gfx1030", "gfx1201"], images);
    assert!(launched_once > 0, "only {launched_once} in one launch");
}

/// The branches back of a kernel: their addresses relative to where it is loaded, and how far back they go.
fn branches_back(t: Target, elf: &[u8], kernel: &str) -> Vec<(u64, i64)> {
    let file = ElfFile::parse(elf).unwrap();
    let k = file.kernel(kernel).unwrap();
    let code = file.file_range(k.entry, k.code_size).unwrap();
    let decoder = Decoder::new(t, Mode::of(t));
    let (mut at, mut found) = (code.start, Vec::new());
    while at < code.end {
        let raw = decoder.decode(&elf[at..code.end]).unwrap();
        let back = raw.branch_target(at).map(|to| at as i64 - to).filter(|back| *back > 0);
        found.extend(back.map(|back| (k.entry + (at - code.start) as u64, back)));
        at += raw.len();
    }
    found
}

/// Workgroups that wait in vain, since those behind them do not begin before they end, or since they look only once, compute what these would
/// leave, with the same results; without that they have others.
#[test]
fn who_waits_in_vain_computes_what_is_missing() {
    let mut found = 0;
    for (dtype, shape, of, most) in [
        (DType::F32, [1, 100, 100, 48], 4, 2e-6),
        (DType::F32, [2, 64, 64, 320], 32, 2e-6),
        (DType::F16, [1, 71, 73, 96], 8, 2e-3),
    ] {
        let b = groups(dtype, shape, of);
        let want = apart::outputs(&b.model, &b.inputs).unwrap().remove(0).to_f64();
        let graph = fuse(&b.model, &Options::default()).unwrap();
        for target in ["gfx803", "gfx906", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201"] {
            let what = format!("{of} groups of {dtype} {shape:?} on {target}");
            if !drawn(&what) {
                continue;
            }
            let t = Target::parse(target).unwrap();
            let program = compile(&graph, t).unwrap();
            // Where workgroups are estimated to be quicker apart nobody waits.
            let ([launch], true) = (&program.plan().launches[..], program.plan().counter_bytes > 0) else { continue };
            let back = branches_back(t, program.code(), &launch.kernel);
            let run = |resident: Option<usize>, without: Option<u64>| {
                let options =
                    LaunchOptions { strict: true, single_thread: true, resident, without, ..LaunchOptions::default() };
                let settings = EmulatedSettings { options, ..EmulatedSettings::default() };
                let device = EmulatedDevice::with_settings(t, settings).unwrap();
                let mut session = Session::new(Arc::new(device), &program).unwrap();
                session.run(&b.inputs).map(|(mut got, _)| got.remove(0)).map_err(|e| e.to_string())
            };
            let whole = run(None, None).unwrap_or_else(|e| panic!("{what}: {e}"));
            close(&whole.to_f64(), &want, most, &what);
            let (looks, again) = (back[0].0, back.iter().max_by_key(|b| b.1).unwrap().0);
            for (resident, without) in [(Some(1), None), (Some(3), None), (None, Some(looks)), (Some(1), Some(looks))] {
                let got = run(resident, without).unwrap_or_else(|e| panic!("{what}, {resident:?} at once: {e}"));
                assert!(got.bytes()[..] == whole.bytes()[..], "{what}, {resident:?} at once, {without:?}");
            }
            let other = run(Some(1), Some(again));
            assert!(
                other.is_err() || other.is_ok_and(|x| x.bytes()[..] != whole.bytes()[..]),
                "{what}: nothing missing"
            );
            found += 1;
        }
    }
    assert!(found > 1, "only {found} wait");
}
