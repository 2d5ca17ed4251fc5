//! Convolutions of few channels of a group, whose workitems compute several positions below each other: against their definition, on
//! emulated devices of few compute units in strict mode.

use crate::support::build::{Builder, int, ints};
use crate::support::device;
use crate::support::drawn;
use barewave::Compiler;
use barewave::graph::{Options, fuse};
use barewave::tensor::{DType, HostTensor};
use barewave_isa::Target;

/// Channels, channels of a result, of each group; rows and columns; window, stride, zeros above and left, below and right.
struct Case {
    groups: usize,
    inputs: usize,
    outputs: usize,
    image: [usize; 2],
    window: [usize; 2],
    strides: [usize; 2],
    pads: [usize; 4],
}

impl Case {
    fn output(&self) -> [usize; 2] {
        [0, 1].map(|d| (self.image[d] + self.pads[d] + self.pads[2 + d] - self.window[d]) / self.strides[d] + 1)
    }

    fn reference(&self, images: usize, x: &[f64], w: &[f64]) -> Vec<f64> {
        let ([h, wide], [rows, columns], [r, s]) = (self.image, self.output(), self.window);
        let (channels, plane) = (self.groups * self.outputs, rows * columns);
        let one = |i: usize| {
            let (image, channel, row, column) =
                (i / plane / channels, i / plane % channels, i % plane / columns, i % columns);
            let taps = (0..self.inputs).flat_map(|c| (0..r * s).map(move |t| (c, t / s, t % s)));
            taps.map(|(c, a, b)| {
                let (y, z) = (row * self.strides[0] + a, column * self.strides[1] + b);
                let (y, z) = (y.wrapping_sub(self.pads[0]), z.wrapping_sub(self.pads[1]));
                let from = image * self.groups * self.inputs + channel / self.outputs * self.inputs + c;
                let weight = w[((channel * self.inputs + c) * r + a) * s + b];
                if y < h && z < wide { x[(from * h + y) * wide + z] * weight } else { 0.0 }
            })
            .sum()
        };
        (0..images * channels * plane).map(one).collect()
    }
}

const CASES: [Case; 5] = [
    Case { groups: 47, inputs: 1, outputs: 1, image: [43, 51], window: [3, 3], strides: [1, 1], pads: [1; 4] },
    Case { groups: 40, inputs: 1, outputs: 1, image: [65, 61], window: [3, 5], strides: [2, 1], pads: [0, 3, 2, 1] },
    Case { groups: 37, inputs: 1, outputs: 1, image: [57, 55], window: [5, 5], strides: [1, 2], pads: [2; 4] },
    Case { groups: 1, inputs: 5, outputs: 3, image: [170, 158], window: [3, 3], strides: [1, 1], pads: [1, 0, 2, 1] },
    Case { groups: 21, inputs: 2, outputs: 2, image: [58, 47], window: [2, 3], strides: [1, 1], pads: [0; 4] },
];

impl Case {
    /// Two images of a type on some targets of few compute units, against the definition. The launches that were not left out, each with its
    /// workitems along x and its workgroups.
    fn check(&self, number: usize, t: DType, targets: &[&str]) -> Vec<(u32, u32)> {
        let mut b = Builder::new(17, number as u64);
        let (images, [rows, columns]) = (2, self.output());
        let (c, m) = (self.groups * self.inputs, self.groups * self.outputs);
        // Small whole numbers: sums are exact, and so are results in every type.
        let values = |b: &mut Builder, shape: &[usize]| {
            let x: Vec<f64> = b.random(shape).to_f64().iter().map(|x| (2.0 * x).round().clamp(-2.0, 2.0)).collect();
            HostTensor::from_f64(t, shape, &x)
        };
        let x = values(&mut b, &[images, c, self.image[0], self.image[1]]);
        let w = values(&mut b, &[m, self.inputs, self.window[0], self.window[1]]);
        let mut want = self.reference(images, &x.to_f64(), &w.to_f64());
        let (x, w) = (b.input_of(x), b.constant(w));
        let attributes =
            [("group", int(self.groups as i64)), ("pads", ints(&self.pads)), ("strides", ints(&self.strides))];
        if t == DType::I8 {
            let y = b.node("ConvInteger", &[&x, &w], &attributes);
            b.output(&y);
        } else {
            // Behind it a residual, read where results are.
            let other = values(&mut b, &[images, m, rows, columns]);
            want.iter_mut().zip(other.to_f64()).for_each(|(y, z)| *y += z);
            let other = b.input_of(other);
            let y = b.node("Conv", &[&x, &w], &attributes);
            let y = b.node("Add", &[&y, &other], &[]);
            b.output(&y);
        }
        let graph = fuse(&b.model, &Options::default()).unwrap();
        let mut launches = Vec::new();
        for name in targets {
            let target = Target::parse(name).unwrap();
            let compiled =
                Compiler::new(target, barewave::Options::default()).without_levels().compile_graph(&graph).unwrap();
            let launch = compiled.plan().launches.last().unwrap();
            launches.push((launch.grid[0] * launch.block, launch.grid.iter().product()));
            if drawn(&format!("{name} {t} case {number}")) {
                let (out, _) = device::run(&graph, &b.inputs, name, true).unwrap();
                assert!(out[0].to_f64() == want, "{name} {t} case {number}");
            }
        }
        launches
    }
}

#[test]
fn positions_below_each_other() {
    let mut several = 0;
    for (number, case) in CASES.iter().enumerate() {
        for t in [DType::F32, DType::F16, DType::BF16, DType::I8] {
            let positions: usize = case.output().iter().product();
            let launches = case.check(number, t, &["gfx902", "gfx1036", "gfx1103", "gfx1200"]);
            several += launches.iter().filter(|(items, _)| *items < positions as u32).count();
        }
    }
    assert!(several >= 50, "{several} of 80 are computed by several positions");
}

/// Of these all but the first two are walked by tiles whose depth is shared on large devices.
const LONG: [Case; 7] = [
    Case { groups: 3, inputs: 8, outputs: 2, image: [9, 13], window: [3, 3], strides: [1, 1], pads: [1; 4] },
    Case { groups: 2, inputs: 12, outputs: 4, image: [11, 7], window: [2, 2], strides: [2, 1], pads: [0, 1, 1, 0] },
    Case { groups: 1, inputs: 36, outputs: 1, image: [13, 11], window: [3, 3], strides: [1, 1], pads: [1, 0, 0, 1] },
    Case { groups: 1, inputs: 64, outputs: 3, image: [14, 14], window: [1, 1], strides: [1, 1], pads: [0; 4] },
    Case { groups: 1, inputs: 99, outputs: 1, image: [8, 9], window: [1, 1], strides: [2, 2], pads: [0; 4] },
    Case { groups: 1, inputs: 130, outputs: 2, image: [7, 5], window: [1, 1], strides: [1, 1], pads: [1; 4] },
    Case { groups: 1, inputs: 256, outputs: 1, image: [16, 16], window: [1, 1], strides: [1, 1], pads: [0; 4] },
];

#[test]
fn many_input_channels() {
    let mut spread = 0;
    for (number, case) in LONG.iter().enumerate() {
        let largest = 4 * case.inputs * case.window.iter().product::<usize>();
        for t in [DType::F32, DType::F16, DType::BF16, DType::I8] {
            // Whole numbers that a float of the type has.
            if largest
                > match t {
                    DType::F16 => 2000,
                    DType::BF16 => 250,
                    _ => 1 << 20,
                }
            {
                continue;
            }
            let targets = ["gfx902", "gfx906", "gfx942", "gfx1036", "gfx1100", "gfx1201"];
            let launches = case.check(number, t, &targets);
            spread += launches.iter().filter(|(_, groups)| *groups > (2 * case.groups * case.outputs) as u32).count();
        }
    }
    assert!(spread >= 20, "{spread} share the depth");
}
