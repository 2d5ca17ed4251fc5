//! Convolutions of bytes whose windows' lines come in words, and points of images whose lines begin and end anywhere: exact, on strict emulated
//! devices, against sums written down here.

use crate::support::agree::listing;
use crate::support::build::{Builder, ints};
use crate::support::device;
use barewave::graph::{Options, fuse};
use barewave::tensor::{DType, HostTensor};
use barewave_isa::Target;

/// Dot products of bytes, and matrix instructions of each family.
const TARGETS: [&str; 9] =
    ["gfx906", "gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1151", "gfx1201"];

/// A convolution of `images` of `channels`.
#[derive(Clone, Copy, Debug)]
struct Shape {
    images: usize,
    channels: usize,
    extents: [usize; 2],
    outputs: usize,
    window: [usize; 2],
    steps: [usize; 2],
    apart: [usize; 2],
    /// Above, left, below and right.
    pads: [usize; 4],
    groups: usize,
}

impl Shape {
    fn drawn(b: &mut Builder) -> Shape {
        let [above, left, below, right] = [0; 4].map(|_: i32| b.below(4));
        let window = [[1, 3, 2, 5][b.below(4)], [3, 3, 5, 2, 4, 7, 8, 1][b.below(8)]];
        let steps = [1 + b.below(2), [1, 1, 2, 3][b.below(4)]];
        let apart = [1 + b.below(2), [1, 1, 1, 2][b.below(4)]];
        let least = [0, 1].map(|d| (window[d] - 1) * apart[d] + 1);
        let extents = [least[0] + b.below(12), least[1].max(4) + b.below(14)];
        let groups = [1, 1, 2][b.below(3)];
        let (images, channels, outputs) = (1 + b.below(3), (1 + b.below(24)) * groups, (5 + b.below(40)) * groups);
        Shape { images, channels, extents, outputs, window, steps, apart, pads: [above, left, below, right], groups }
    }

    /// What it gives, with `zero` around the image.
    fn sums(&self, x: &[i64], w: &[i64], zero: i64) -> Vec<i64> {
        let ([h, width], [kh, kw]) = (self.extents, self.window);
        let places = |d: usize| {
            let room = self.extents[d] + self.pads[d] + self.pads[d + 2];
            (room - (self.window[d] - 1) * self.apart[d] - 1) / self.steps[d] + 1
        };
        let per_group = self.channels / self.groups;
        let mut all = Vec::new();
        for (image, m) in (0..self.images).flat_map(|i| (0..self.outputs).map(move |m| (i, m))) {
            let first = m / (self.outputs / self.groups) * per_group;
            for (r, c) in (0..places(0)).flat_map(|r| (0..places(1)).map(move |c| (r, c))) {
                let mut sum = 0;
                for (k, i, j) in (0..per_group).flat_map(|k| (0..kh).flat_map(move |i| (0..kw).map(move |j| (k, i, j))))
                {
                    let y = (r * self.steps[0] + i * self.apart[0]).wrapping_sub(self.pads[0]);
                    let z = (c * self.steps[1] + j * self.apart[1]).wrapping_sub(self.pads[1]);
                    if y < h && z < width {
                        let a = x[((image * self.channels + first + k) * h + y) * width + z] - zero;
                        sum += a * w[((m * per_group + k) * kh + i) * kw + j];
                    }
                }
                all.push(sum);
            }
        }
        all
    }
}

fn bytes(b: &mut Builder, t: DType, shape: &[usize]) -> HostTensor {
    let low = if t == DType::I8 { -128 } else { 0 };
    let values: Vec<i64> = (0..shape.iter().product()).map(|_| low + b.below(256) as i64).collect();
    HostTensor::from_ints(t, shape, &values)
}

/// A model of one, and what it gives.
fn model(b: &mut Builder, s: &Shape, (t, zero): (DType, i64)) -> Vec<i64> {
    let x = bytes(b, t, &[s.images, s.channels, s.extents[0], s.extents[1]]);
    let w = bytes(b, DType::I8, &[s.outputs, s.channels / s.groups, s.window[0], s.window[1]]);
    let want = s.sums(&x.to_i64(), &w.to_i64(), zero);
    let (x, w) = (b.input_of(x), b.constant(w));
    let zero = b.constant(HostTensor::from_ints(t, &[], &[zero]));
    let attributes = [
        ("pads", ints(&s.pads)),
        ("strides", ints(&s.steps)),
        ("dilations", ints(&s.apart)),
        ("group", barewave::onnx::Attribute::Int(s.groups as i64)),
    ];
    let y = b.node("ConvInteger", &[&x, &w, &zero], &attributes);
    b.output(&y);
    want
}

fn check(s: Shape, of: (DType, i64), seed: u64) {
    let mut b = Builder::new(17, seed);
    let want = model(&mut b, &s, of);
    let graph = fuse(&b.model, &Options::default()).unwrap();
    for target in TARGETS {
        let what = format!("{s:?} {of:?} {target}");
        let (out, _) = device::run(&graph, &b.inputs, target, true).unwrap_or_else(|e| panic!("{what}: {e}"));
        let wrong = out[0].to_i64().iter().zip(&want).position(|(x, y)| x != y);
        assert!(out[0].len() == want.len() && wrong.is_none(), "{what}: element {wrong:?}");
    }
}

const TYPES: [(DType, i64); 4] = [(DType::I8, 0), (DType::U8, 0), (DType::U8, 131), (DType::I8, -5)];

#[test]
fn windows_of_any_shape() {
    for seed in 0..40 {
        let s = Shape::drawn(&mut Builder::new(17, seed));
        check(s, TYPES[seed as usize % TYPES.len()], seed);
    }
}

/// Images of as few as four points and of odd ones, whose lines end within words; the last tile is not whole, and a depth may be shared.
#[test]
fn points_of_images_that_end_anywhere() {
    let cases =
        [(1, 40, [1, 5], 9), (2, 67, [7, 7], 33), (1, 256, [5, 5], 16), (3, 17, [3, 3], 70), (1, 33, [35, 35], 12)];
    for (i, (images, channels, extents, outputs)) in cases.into_iter().enumerate() {
        let one = [1; 2];
        let s =
            Shape { images, channels, extents, outputs, window: one, steps: one, apart: one, pads: [0; 4], groups: 1 };
        for of in TYPES {
            check(s, of, i as u64);
        }
    }
}

/// Windows of three bytes take a load for each of their lines where four bytes of a line have one, and words are put in place by selectors.
#[test]
fn lines_of_windows_take_a_load() {
    let s = Shape {
        images: 1,
        channels: 32,
        extents: [35, 35],
        outputs: 64,
        window: [3, 3],
        steps: [1, 1],
        apart: [1, 1],
        pads: [1; 4],
        groups: 1,
    };
    let mut b = Builder::new(17, 5);
    model(&mut b, &s, (DType::I8, 0));
    for target in ["gfx906", "gfx90a", "gfx942", "gfx1201"] {
        let text = listing(&b, Target::parse(target).unwrap());
        let count = |what: &[&str]| what.iter().map(|name| text.matches(name).count()).sum::<usize>();
        assert_eq!(count(&["buffer_load_ubyte", "buffer_load_u8"]), 0, "{target}");
        assert!(count(&["v_perm_b32"]) > 0, "{target}");
    }
}
