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

#[test]
fn positions_below_each_other() {
    let mut several = 0;
    for (number, case) in CASES.iter().enumerate() {
        for t in [DType::F32, DType::F16, DType::BF16, DType::I8] {
            let mut b = Builder::new(17, number as u64);
            let (images, [rows, columns]) = (2, case.output());
            let (c, m) = (case.groups * case.inputs, case.groups * case.outputs);
            // Small whole numbers: sums are exact, and so are results in every type.
            let values = |b: &mut Builder, shape: &[usize]| {
                let x: Vec<f64> = b.random(shape).to_f64().iter().map(|x| (2.0 * x).round().clamp(-2.0, 2.0)).collect();
                HostTensor::from_f64(t, shape, &x)
            };
            let x = values(&mut b, &[images, c, case.image[0], case.image[1]]);
            let w = values(&mut b, &[m, case.inputs, case.window[0], case.window[1]]);
            let mut want = case.reference(images, &x.to_f64(), &w.to_f64());
            let (x, w) = (b.input_of(x), b.constant(w));
            let attributes =
                [("group", int(case.groups as i64)), ("pads", ints(&case.pads)), ("strides", ints(&case.strides))];
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
            for name in ["gfx902", "gfx1036", "gfx1103", "gfx1200"] {
                let target = Target::parse(name).unwrap();
                let compiled = Compiler::new(target, barewave::Options::default()).compile_graph(&graph).unwrap();
                let launch = compiled.plan().launches.last().unwrap();
                several += usize::from(launch.grid[0] * launch.block < (rows * columns) as u32);
                if !drawn(&format!("{name} {t} case {number}")) {
                    continue;
                }
                let (out, _) = device::run(&graph, &b.inputs, name, true).unwrap();
                assert!(out[0].to_f64() == want, "{name} {t} case {number}");
            }
        }
    }
    assert!(several >= 50, "{several} of 80 are computed by several positions");
}
