//! Matrix products of every type and layout: emulated devices in strict mode against sums in f64.
//!
//! The bound of an error is that of the result's rounding and of a sum in the type that is added in:
//! `u |y| + n v sum |a b|`, with u and v the unit roundoffs of both.

mod support;

use barewave::graph::{Options, fuse};
use barewave::tensor::{DType, HostTensor};
use barewave_isa::Target;
use support::build::{Builder, int};
use support::device;

const TARGETS: [&str; 8] = ["gfx906", "gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201"];

/// A product: batches, rows, columns, depth; whether each side is given transposed.
#[derive(Clone, Copy, Debug)]
struct Product {
    extents: [usize; 4],
    turned: [bool; 2],
    dtype: DType,
}

impl Product {
    /// Unit roundoffs of the type, and of what is summed in.
    fn roundoffs(&self) -> (f64, f64) {
        match self.dtype {
            DType::F16 => (2f64.powi(-11), 2f64.powi(-23)),
            DType::BF16 => (2f64.powi(-8), 2f64.powi(-23)),
            DType::F64 => (2f64.powi(-53), 2f64.powi(-52)),
            _ => (2f64.powi(-24), 2f64.powi(-23)),
        }
    }

    /// Runs it on a target and compares every `stride`-th element. Gives the grid of its launch.
    fn check(&self, target: &str, seed: u64, stride: usize) -> [u32; 3] {
        let [batches, m, n, k] = self.extents;
        let mut b = Builder::new(17, seed);
        let mut side = |rows: usize, cols: usize, turned: bool| {
            let shape = if turned { [batches, cols, rows] } else { [batches, rows, cols] };
            let values = b.random(&shape).to_f64();
            HostTensor::from_f64(self.dtype, &shape, &values)
        };
        let (x, y) = (side(m, k, self.turned[0]), side(k, n, self.turned[1]));
        let names = [b.input_of(x.clone()), b.input_of(y.clone())];
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let turns = self.turned.map(|t| int(t.into()));
        let [ta, tb] = turns;
        let out = b.node("FusedMatMul", &names, &[("transA", ta), ("transB", tb)]);
        b.model.graph.nodes.last_mut().unwrap().domain = "com.microsoft".into();
        b.output(&out);
        let graph = fuse(&b.model, &Options::default()).unwrap();
        let (mut session, compiled) =
            device::session(&graph, target, true).unwrap_or_else(|e| panic!("{target} {self:?}: {e}"));
        let (got, _) = session.run(&b.inputs).unwrap_or_else(|e| panic!("{target} {self:?}: {e}"));
        let (got, x, y) = (got[0].to_f64(), x.to_f64(), y.to_f64());
        assert_eq!(got.len(), batches * m * n);
        let (u, v) = self.roundoffs();
        for i in (0..got.len()).step_by(stride) {
            let (z, row, col) = (i / (m * n), i / n % m, i % n);
            let a = |l: usize| x[z * m * k + if self.turned[0] { l * m + row } else { row * k + l }];
            let b = |l: usize| y[z * k * n + if self.turned[1] { col * k + l } else { l * n + col }];
            let want: f64 = (0..k).map(|l| a(l) * b(l)).sum();
            let size: f64 = (0..k).map(|l| (a(l) * b(l)).abs()).sum();
            let most = u * want.abs() + (k + 2) as f64 * v * size + 1e-30;
            assert!((got[i] - want).abs() <= most, "{target} {self:?}: {} instead of {want} at {i}", got[i]);
        }
        compiled.plan().launches[0].grid
    }
}

#[test]
fn every_type_and_layout_of_odd_extents() {
    let mut random = Builder::new(17, 99);
    for (i, target) in TARGETS.iter().enumerate() {
        for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
            for turned in [[false, false], [false, true], [true, false], [true, true]] {
                let mut extent =
                    |most: usize| if random.coin() { random.between(1, most) } else { random.below(most / 8) * 8 + 8 };
                let extents = [1 + i % 2, extent(150), extent(150), extent(200)];
                Product { extents, turned, dtype }.check(target, i as u64 + 1, 1);
            }
        }
    }
}

/// A product for each compute unit that fills the largest tiles: those that are no power of two, and those of which LDS holds one.
#[test]
fn tiles_that_fill_a_device() {
    let (plain, turned) = ([false, false], [false, true]);
    for (target, rows, turned, dtype, depth) in [
        ("gfx908", 192, plain, DType::F16, 131),
        ("gfx90a", 256, turned, DType::BF16, 72),
        ("gfx942", 224, plain, DType::F16, 72),
        ("gfx942", 224, turned, DType::BF16, 131),
        ("gfx950", 256, turned, DType::F16, 136),
    ] {
        // Four tiles across for each product.
        let units = Target::parse(target).unwrap().info().cus as usize / 4;
        Product { extents: [units, rows - 9, 4 * 256 - 3, depth], turned, dtype }.check(target, 7, 997);
    }
}

/// Operands that do not stay in the last cache, of a product that memory bounds: rows of tiles run in bands, so that what they share is
/// read while it is there. Bands are a dimension of the grid, rows or columns the first one.
#[test]
fn bands_of_tiles() {
    let shape = |n: usize, k: usize| [1, 500, n, k];
    for (target, dtype, extents) in
        [("gfx906", DType::F32, shape(27_003, 40)), ("gfx90a", DType::BF16, shape(50_001, 90))]
    {
        let product = Product { extents, turned: [false, false], dtype };
        // Far more columns than rows.
        let banded = product.check(target, 3, 99_991);
        assert!(banded[0] * banded[2] < banded[1], "{target}: {banded:?}");
        let whole = Product { extents: [1, 70, 1500, 40], ..product }.check(target, 3, 97);
        assert!(whole[0] > whole[1] && whole[2] == 1, "{target}: {whole:?}");
    }
}
