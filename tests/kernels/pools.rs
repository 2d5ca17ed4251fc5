//! Pools whose workitems compute neighbours, and rows below each other: on chips of few compute units, where that takes little data, and on a large one.
//! Emulated devices in strict mode against the f64 interpreter of the fused graph, and that against windows written down here.

use crate::support::agree::{close, finish, listing, outputs_on};
use crate::support::build::{Builder, float, int, ints};
use crate::support::device;
use barewave::graph::{Options, fuse};
use barewave::onnx::Attribute;
use barewave::tensor::{DType, HostTensor};
use barewave_isa::Target;

const TARGETS: [&str; 4] = ["gfx902", "gfx1036", "gfx1103", "gfx942"];

/// Second-level caches are slower there at what windows share than memory is at all.
const SLOW_CACHES: [&str; 2] = ["gfx803", "gfx906"];

/// A pool of planes.
struct Pool {
    kernel: [i64; 2],
    strides: [i64; 2],
    dilations: [i64; 2],
    /// Above, left, below and right.
    pads: [i64; 4],
    ceil: bool,
}

impl Pool {
    fn outputs(&self, shape: [usize; 4]) -> [usize; 2] {
        [0, 1].map(|d| {
            let room =
                shape[2 + d] as i64 + self.pads[d] + self.pads[2 + d] - (self.kernel[d] - 1) * self.dilations[d] - 1;
            let mut n = if self.ceil { (room + self.strides[d] - 1) / self.strides[d] } else { room / self.strides[d] };
            n += 1;
            if self.ceil && (n - 1) * self.strides[d] >= shape[2 + d] as i64 + self.pads[d] {
                n -= 1;
            }
            n as usize
        })
    }

    /// Largest element, sum, and how many taps an average divides by.
    fn window(&self, plane: &[f64], extents: [usize; 2], at: [usize; 2], include: bool) -> (f64, f64, f64) {
        let (mut most, mut sum, mut count) = (f64::NEG_INFINITY, 0.0, 0.0);
        for (i, j) in (0..self.kernel[0]).flat_map(|i| (0..self.kernel[1]).map(move |j| (i, j))) {
            let place =
                [(0, i), (1, j)].map(|(d, k)| at[d] as i64 * self.strides[d] + k * self.dilations[d] - self.pads[d]);
            let inside = (0..2).all(|d| (0..extents[d] as i64).contains(&place[d]));
            let padded = (0..2).all(|d| place[d] < extents[d] as i64 + self.pads[2 + d]);
            if inside {
                let x = plane[place[0] as usize * extents[1] + place[1] as usize];
                (most, sum) = (f64::max(most, x), sum + x);
            }
            count += f64::from(u8::from(inside || include && padded));
        }
        (most, sum, count)
    }
}

fn pool(kernel: [i64; 2], strides: [i64; 2], pads: [i64; 4]) -> Pool {
    Pool { kernel, strides, dilations: [1, 1], pads, ceil: false }
}

const FLOATS: [DType; 4] = [DType::F32, DType::F16, DType::BF16, DType::F64];

/// What is `[N,C,H,W]` as `[N,H,W,C]`.
fn to_last(data: &[f64], [n, c, h, w]: [usize; 4]) -> Vec<f64> {
    let places = (0..n).flat_map(|n| (0..h * w).flat_map(move |p| (0..c).map(move |c| (n, p, c))));
    places.map(|(n, p, k)| data[(n * c + k) * h * w + p]).collect()
}

/// Compares a pool, whose channels come `last` in memory, or first.
fn check(shape: [usize; 4], pool: &Pool, way: (&str, bool, DType), last: bool, seed: u64) {
    check_on(&TARGETS, shape, pool, way, (last, true), seed);
}

fn check_on(
    targets: &[&str],
    shape: [usize; 4],
    pool: &Pool,
    (op, include, dtype): (&str, bool, DType),
    (last, behind): (bool, bool),
    seed: u64,
) {
    let (f16, f32) = (DType::F16, DType::F32);
    let mut b = Builder::new(19, seed);
    let data: Vec<f64> = (0..shape.iter().product()).map(|_| b.below(240) as f64 - 100.0).collect();
    let data: Vec<f64> = match dtype {
        DType::U8 => data.iter().map(|x| x.abs()).collect(),
        DType::I8 => data.iter().map(|x| x.min(127.0)).collect(),
        _ => data,
    };
    let x = if last {
        let given = [shape[0], shape[2], shape[3], shape[1]];
        let x = b.input_of(HostTensor::from_f64(dtype, &given, &to_last(&data, shape)));
        b.node("Transpose", &[&x], &[("perm", ints(&[0, 3, 1, 2]))])
    } else {
        b.input_of(HostTensor::from_f64(dtype, &shape, &data))
    };
    let list = |v: &[i64]| ints(&v.iter().map(|x| *x as usize).collect::<Vec<_>>());
    let mut attributes = vec![
        ("kernel_shape", list(&pool.kernel)),
        ("strides", list(&pool.strides)),
        ("dilations", list(&pool.dilations)),
        ("pads", list(&pool.pads)),
        ("ceil_mode", int(pool.ceil.into())),
    ];
    if op == "AveragePool" {
        attributes.push(("count_include_pad", int(include.into())));
    }
    let mut y = b.node(op, &[&x], &attributes);
    // Something behind it, of a row and of each element.
    let outputs = pool.outputs(shape);
    let behind = behind && (dtype == f32 || dtype == f16);
    if behind {
        let row = b.input_of(HostTensor::from_f64(dtype, &[outputs[1]], &vec![0.5; outputs[1]]));
        let all = [shape[0], shape[1], outputs[0], outputs[1]];
        let all = b.input_of(HostTensor::from_f64(dtype, &all, &vec![0.25; all.iter().product()]));
        y = b.node("Add", &[&y, &row], &[]);
        y = b.node("Add", &[&y, &all], &[]);
    }
    if last {
        y = b.node("Transpose", &[&y], &[("perm", ints(&[0, 2, 3, 1]))]);
    }
    finish(&mut b, "", &[y]);
    let what = format!("{op} {dtype} {shape:?} by {:?}, include {include}, last {last}", pool.kernel);
    let most =
        if op == "MaxPool" { 0.0 } else { [1e-6, 2e-3, 1e-2, 1e-12][FLOATS.iter().position(|t| *t == dtype).unwrap()] };
    let most = if op == "MaxPool" && behind { 1e-3 } else { most };
    let got = outputs_on(&b, &what, most, targets).remove(0);
    let more = if behind { 0.75 } else { 0.0 };
    let plane = shape[2] * shape[3];
    let mut want = Vec::new();
    for c in 0..shape[0] * shape[1] {
        for (r, q) in (0..outputs[0]).flat_map(|r| (0..outputs[1]).map(move |q| (r, q))) {
            let of = &data[c * plane..(c + 1) * plane];
            let (largest, sum, count) = pool.window(of, [shape[2], shape[3]], [r, q], include);
            want.push(more + if op == "MaxPool" { largest } else { sum / count });
        }
    }
    let want = if last { to_last(&want, [shape[0], shape[1], outputs[0], outputs[1]]) } else { want };
    close(&got.to_f64(), &want, 1e-2, &what);
}

#[test]
fn pools_of_neighbours() {
    let (f16, f32, f64, bf16, i8, u8) = (DType::F16, DType::F32, DType::F64, DType::BF16, DType::I8, DType::U8);
    let cases = [
        ([2, 3, 40, 64], pool([3, 3], [1, 1], [1, 1, 1, 1])),
        ([1, 9, 38, 48], pool([5, 5], [1, 1], [2, 2, 2, 2])),
        ([1, 16, 37, 64], pool([3, 3], [2, 2], [1, 1, 1, 1])),
        ([1, 17, 32, 64], pool([2, 2], [2, 2], [0, 0, 0, 0])),
        // Rows that are no words, results that are no multiples, nothing on the left.
        ([1, 30, 23, 55], pool([3, 3], [2, 2], [0, 0, 0, 0])),
        ([1, 20, 31, 33], pool([3, 2], [1, 1], [1, 1, 1, 0])),
        ([1, 20, 30, 34], pool([2, 4], [1, 1], [0, 3, 1, 2])),
        ([1, 12, 30, 66], pool([3, 3], [1, 2], [0, 0, 2, 1])),
        // Gaps, results beyond the input, a window of one row and one of one column.
        ([1, 8, 40, 64], Pool { dilations: [2, 3], ..pool([3, 3], [1, 1], [2, 3, 2, 3]) }),
        ([1, 31, 29, 29], Pool { ceil: true, ..pool([3, 3], [2, 2], [0, 0, 0, 0]) }),
        ([1, 16, 22, 60], Pool { ceil: true, ..pool([2, 5], [3, 3], [1, 1, 0, 1]) }),
        ([1, 16, 32, 64], pool([1, 7], [1, 1], [0, 3, 0, 3])),
        ([1, 16, 32, 64], pool([6, 1], [1, 1], [5, 0, 0, 0])),
        // Too wide for registers.
        ([1, 2, 9, 90], pool([2, 70], [1, 1], [1, 0, 0, 8])),
    ];
    for (i, (shape, pool)) in cases.into_iter().enumerate() {
        let types = [f16, i8, u8, f32, f64, bf16];
        let ways = [
            ("MaxPool", false, types[i % 6]),
            ("MaxPool", false, types[(i + 1) % 6]),
            ("AveragePool", false, FLOATS[i % 4]),
            ("AveragePool", true, FLOATS[(i + 1) % 4]),
        ];
        for way in ways {
            check(shape, &pool, way, false, 19 + i as u64);
        }
    }
}

#[test]
fn pools_of_channels() {
    let cases = [
        ([2, 64, 17, 19], pool([3, 3], [2, 2], [1, 1, 1, 1])),
        ([1, 24, 40, 36], pool([3, 3], [1, 1], [1, 1, 1, 1])),
        ([1, 40, 21, 30], pool([5, 5], [1, 1], [2, 2, 2, 2])),
        ([1, 96, 16, 15], pool([2, 2], [2, 2], [0, 0, 0, 0])),
        // Channels that are no words, gaps, results beyond the input.
        ([1, 37, 22, 18], pool([3, 2], [1, 2], [1, 0, 0, 1])),
        ([1, 16, 30, 31], Pool { dilations: [2, 3], ..pool([3, 3], [1, 1], [2, 3, 2, 3]) }),
        ([1, 20, 29, 29], Pool { ceil: true, ..pool([3, 3], [2, 2], [0, 0, 0, 0]) }),
        ([1, 32, 16, 40], pool([1, 7], [1, 1], [0, 3, 0, 3])),
        // Few channels, and windows of more rows than registers take.
        ([1, 3, 33, 34], pool([3, 3], [2, 2], [1, 1, 1, 1])),
        ([1, 32, 14, 14], pool([7, 7], [1, 1], [3, 3, 3, 3])),
    ];
    for (i, (shape, pool)) in cases.into_iter().enumerate() {
        let types = [DType::F16, DType::I8, DType::F32, DType::U8, DType::F64, DType::BF16];
        let (most, even) = (types[i % 6], types[(i + 2) % 6]);
        let average = |k: usize| FLOATS[(i + k) % 4];
        let ways = [
            ("MaxPool", false, most),
            ("MaxPool", false, even),
            ("AveragePool", false, average(1)),
            ("AveragePool", true, average(2)),
        ];
        for way in ways {
            check(shape, &pool, way, true, 40 + i as u64);
        }
    }
}

/// Rows that windows of channels share along the outer dimension stay in registers where second-level caches are slow: whole blocks of rows only.
#[test]
fn pools_of_channels_in_blocks_of_rows() {
    let window = pool([3, 3], [1, 1], [1, 1, 1, 1]);
    for (shape, op, dtype) in [([1, 64, 46, 48], "MaxPool", DType::F64), ([2, 64, 46, 48], "AveragePool", DType::F32)] {
        check_on(&SLOW_CACHES, shape, &window, (op, false, dtype), (true, true), 60);
    }
}

/// Planes that workgroups have in LDS, several of them or a part of one: of rows that are no words, and words; results of whole rows, and of parts.
#[test]
fn pools_of_planes_in_lds() {
    let (f16, f32, bf16, i8, u8) = (DType::F16, DType::F32, DType::BF16, DType::I8, DType::U8);
    let few = ["gfx902", "gfx1036", "gfx1103"];
    let all = ["gfx906", "gfx942", "gfx1100"];
    let cases = [
        (&all, [2, 622, 7, 7], pool([3, 3], [1, 1], [1, 1, 1, 1])),
        (&all, [2, 622, 7, 7], pool([3, 3], [2, 2], [1, 1, 1, 1])),
        (&all, [4, 311, 6, 14], pool([3, 3], [1, 1], [1, 1, 1, 1])),
        (&few, [2, 34, 17, 17], pool([3, 3], [1, 1], [0, 0, 0, 0])),
        (&few, [1, 70, 12, 20], pool([5, 5], [1, 1], [2, 2, 2, 2])),
        (&few, [1, 68, 14, 14], Pool { dilations: [1, 2], ..pool([3, 3], [1, 1], [2, 0, 0, 3]) }),
        (&few, [1, 68, 13, 19], Pool { dilations: [2, 3], ..pool([3, 2], [1, 1], [2, 3, 2, 0]) }),
        (&few, [1, 70, 15, 16], Pool { ceil: true, ..pool([3, 3], [2, 2], [0, 0, 0, 0]) }),
        (&few, [1, 68, 8, 24], pool([2, 5], [1, 3], [1, 1, 0, 1])),
        // Parts of planes.
        (&few, [1, 11, 56, 112], pool([3, 3], [2, 2], [1, 1, 1, 1])),
        (&few, [1, 11, 60, 68], pool([3, 3], [1, 1], [1, 1, 1, 1])),
    ];
    for (i, (targets, shape, pool)) in cases.into_iter().enumerate() {
        let types = [f16, i8, bf16, f16, u8, f32];
        let floats = [f16, bf16, f32];
        let ways = [
            ("MaxPool", false, types[i % 6]),
            ("MaxPool", false, types[(i + 1) % 6]),
            ("AveragePool", false, floats[i % 3]),
            ("AveragePool", true, floats[(i + 1) % 3]),
        ];
        for way in ways {
            check_on(targets, shape, &pool, way, (false, false), 80 + i as u64);
        }
    }
    let mut b = Builder::new(19, 7);
    let x = b.input_of(HostTensor::from_f64(f16, &[1, 2048, 7, 7], &vec![1.0; 2048 * 49]));
    let attributes = [("kernel_shape", ints(&[3, 3])), ("pads", ints(&[1, 1, 1, 1]))];
    let y = b.node("MaxPool", &[&x], &attributes);
    b.output(&y);
    let text = listing(&b, Target::GFX906);
    assert!(text.contains("ds_read_u16") && text.contains("buffer_load_dwordx"), "{text}");
}

/// Where second-level caches are slow, what is read of a result's own place is among its window's elements: nothing is loaded again.
#[test]
fn own_places_are_read_once() {
    let padded = |pad: usize, more: &[(&'static str, Attribute)]| [&[("pads", ints(&[pad; 4]))], more].concat();
    let kernel = ("kernel_shape", ints(&[3, 3]));
    let ways = [
        ("LRN", DType::F32, vec![("size", int(5)), ("alpha", float(0.3))], 1e-5),
        ("LRN", DType::F16, vec![("size", int(5)), ("alpha", float(0.3))], 2e-3),
        // The reference rounds each square and each sum of them.
        ("LRN", DType::BF16, vec![("size", int(5)), ("alpha", float(0.3))], 2e-2),
        ("AveragePool", DType::F32, padded(1, std::slice::from_ref(&kernel)), 1e-5),
        ("MaxPool", DType::F32, padded(2, &[kernel, ("dilations", ints(&[2, 2]))]), 0.0),
    ];
    for (op, dtype, attributes, most) in ways {
        let shape = [2, 64, 46, 48];
        let mut b = Builder::new(19, 3);
        let data: Vec<f64> = (0..shape.iter().product()).map(|_| b.below(240) as f64 / 32.0 - 3.0).collect();
        let x = b.input_of(HostTensor::from_f64(dtype, &shape, &data));
        let pooled = b.node(op, &[&x], &attributes);
        let mut results = vec![pooled.clone()];
        if op != "LRN" {
            // Of another array no place is its own: that takes another kernel.
            let data: Vec<f64> = data.iter().map(|x| 1.0 - x * 0.5).collect();
            let other = b.input_of(HostTensor::from_f64(dtype, &shape, &data));
            let other = b.node(op, &[&other], &attributes);
            results = [pooled, other].map(|y| b.node("Sub", &[&y, &x], &[])).to_vec();
        }
        finish(&mut b, "", &results);
        outputs_on(&b, &format!("{op} {dtype} and its own place"), most, &["gfx906", "gfx942"]);
        let text = listing(&b, Target::GFX906);
        // Rows below each other, and two on either side; of planes three, each with a column on either side.
        let most = if op == "LRN" { 8 } else { 24 };
        let loads = text.matches("buffer_load").count();
        assert!(loads <= most, "{op} {dtype}: {loads} loads\n{text}");
    }
}

/// Of bf16 from the least to what has squares: roots and quotients are short, since what they are taken of is never denormal, but elements and results may be.
#[test]
fn local_responses_of_every_size() {
    for (beta, bias) in [(0.75, 1.0), (0.5, 1e-30), (0.75, 3e38), (1.0, 1.0), (0.75, 1e-39)] {
        let mut b = Builder::new(17, 9);
        let data: Vec<f64> = (0..6 * 40 * 40)
            .map(|i| {
                let (e, m) = (b.below(193) as i32 - 133, 1.0 + b.below(8) as f64 / 8.0);
                if i % 19 == 0 { 0.0 } else { (if b.coin() { m } else { -m }) * f64::from(e).exp2() }
            })
            .collect();
        let (channels, plane) = (40, 6 * 40);
        let x = b.input_of(HostTensor::from_f64(DType::BF16, &[1, channels, 6, 40], &data));
        let attributes = [("size", int(3)), ("alpha", float(0.5)), ("beta", float(beta)), ("bias", float(bias))];
        let y = b.node("LRN", &[&x], &attributes);
        finish(&mut b, "", &[y]);
        let graph = fuse(&b.model, &Options::default()).unwrap();
        let x = b.inputs[0].to_f64();
        let of = |i: usize| {
            let around = (i / plane).saturating_sub(1)..(i / plane + 2).min(channels);
            let sum: f64 = around.map(|k| x[k * plane + i % plane].powi(2)).sum();
            x[i] / (f64::from(bias) + sum / 6.0).powf(f64::from(beta))
        };
        let want: Vec<f64> = (0..x.len()).map(of).collect();
        for target in TARGETS {
            let (got, _) = device::run(&graph, &b.inputs, target, true).unwrap();
            for (i, (x, y)) in got[0].to_f64().into_iter().zip(&want).enumerate() {
                // A step of bf16, or of its denormals.
                let step = (y.abs() / 128.0).max(2f64.powi(-133));
                assert!((x - y).abs() <= step, "to {beta} from {bias} on {target}: element {i} is {x:e}, not {y:e}");
            }
        }
    }
}

/// Powers that are multiples of a quarter are made of roots, others are powers; of a base that may be negative too.
#[test]
fn local_responses_to_any_power() {
    let shape @ [n, c, h, w] = [2, 7, 3, 10];
    for (beta, bias, alpha) in
        [(0.75, 1.0, 0.3), (0.5, 2.0, 0.5), (1.0, 1.0, 0.2), (1.25, 0.5, 2.0), (0.6, 1.0, 0.3), (0.75, 3.0, -0.2)]
    {
        let mut b = Builder::new(17, 5);
        let x = b.input(&shape);
        let (size, half) = (5, 2);
        let attributes = [("size", int(size)), ("alpha", float(alpha)), ("beta", float(beta)), ("bias", float(bias))];
        let y = b.node("LRN", &[&x], &attributes);
        finish(&mut b, "", &[y]);
        let got = outputs_on(&b, &format!("LRN to {beta}"), 1e-5, &TARGETS);
        let x = b.inputs[0].to_f64();
        let place = |i: usize, k: usize, p: usize| (i * c + k) * h * w + p;
        let of = |i: usize, k: usize, p: usize| {
            let around = k.saturating_sub(half)..(k + half + 1).min(c);
            let sum: f64 = around.map(|k| x[place(i, k, p)].powi(2)).sum();
            x[place(i, k, p)] / (f64::from(bias) + f64::from(alpha) / size as f64 * sum).powf(f64::from(beta))
        };
        let channels = (0..n).flat_map(|i| (0..c).map(move |k| (i, k)));
        let want: Vec<f64> =
            channels.flat_map(|(i, k)| (0..h * w).map(move |p| (i, k, p))).map(|(i, k, p)| of(i, k, p)).collect();
        close(&got[0].to_f64(), &want, 1e-5, &format!("LRN to {beta}"));
    }
}
