//! Matrix products of every type and layout: emulated devices in strict mode against sums in f64.
//!
//! The bound of an error is that of the result's rounding and of a sum in the type that is added in:
//! `u |y| + n v sum |a b|`, with u and v the unit roundoffs of both.

use crate::support::build::{Builder, int, ints};
use crate::support::device;
use crate::support::drawn;
use barewave::graph::fused::FusedGraph;
use barewave::graph::{Options, fuse};
use barewave::kernels::{Candidate, Considered, Tuned, Tuning, Way, candidates, joined};
use barewave::runtime::EmulatedDevice;
use barewave::tensor::{DType, HostTensor};
use barewave::{Compiler, Session};
use barewave_isa::Target;
use std::sync::Arc;

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
            DType::I8 => (0.0, 0.0),
            _ => (2f64.powi(-24), 2f64.powi(-23)),
        }
    }

    /// The product as a graph, its builder and its factors.
    fn graph(&self, seed: u64) -> (FusedGraph, Builder, [HostTensor; 2]) {
        let [batches, m, n, k] = self.extents;
        let mut b = Builder::new(17, seed);
        let mut side = |rows: usize, cols: usize, turned: bool| {
            let shape = if turned { [batches, cols, rows] } else { [batches, rows, cols] };
            let mut values = b.random(&shape).to_f64();
            if self.dtype == DType::I8 {
                values.iter_mut().for_each(|v| *v = (*v * 90.0).round().clamp(-128.0, 127.0));
            }
            HostTensor::from_f64(self.dtype, &shape, &values)
        };
        let (x, y) = (side(m, k, self.turned[0]), side(k, n, self.turned[1]));
        let names = [b.input_of(x.clone()), b.input_of(y.clone())];
        let small = self.dtype.is_float() && self.dtype.size() == 1;
        let widened = |b: &mut Builder, name: String| match small {
            true => b.node("Cast", &[&name], &[("to", int(DType::F32.to_onnx().into()))]),
            false => name,
        };
        let names = names.map(|name| widened(&mut b, name));
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let out = if self.dtype == DType::I8 {
            let turn = |b: &mut Builder, name: &str, turned| match turned {
                true => b.node("Transpose", &[name], &[("perm", ints(&[0, 2, 1]))]),
                false => name.to_string(),
            };
            let [x, y] = [0, 1].map(|i| turn(&mut b, names[i], self.turned[i]));
            b.node("MatMulInteger", &[&x, &y], &[])
        } else {
            let [ta, tb] = self.turned.map(|t| int(t.into()));
            let out = b.node("FusedMatMul", &names, &[("transA", ta), ("transB", tb)]);
            b.model.graph.nodes.last_mut().unwrap().domain = "com.microsoft".into();
            out
        };
        b.output(&out);
        (fuse(&b.model, &Options::default()).unwrap(), b, [x, y])
    }

    /// Runs it on a target and compares every `stride`-th element. Gives the grid of its launch.
    fn check(&self, target: &str, seed: u64, stride: usize) -> [u32; 3] {
        self.check_by(None, target, seed, stride)
    }

    /// The same by a tile.
    fn check_by(&self, tile: Option<&Candidate>, target: &str, seed: u64, stride: usize) -> [u32; 3] {
        let [batches, m, n, k] = self.extents;
        let (graph, b, [x, y]) = self.graph(seed);
        let chip = Target::parse(target).unwrap();
        let mut tuning = Tuning::default();
        if let Some(tile) = tile {
            tuning.insert(considered(&graph, chip).product, Tuned::from(tile));
        }
        let compiler =
            Compiler::new(chip, barewave::Options { tuning: Arc::new(tuning), ..Default::default() }).without_levels();
        let compiled = compiler.compile_graph(&graph).unwrap_or_else(|e| panic!("{target} {self:?}: {e}"));
        let device = Arc::new(EmulatedDevice::new(chip, true).unwrap());
        let mut session = Session::new(device, &compiled).unwrap_or_else(|e| panic!("{target} {self:?}: {e}"));
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

/// The ways to compute a graph's first step.
fn considered(graph: &FusedGraph, target: Target) -> Considered {
    let of = |graph: &FusedGraph| candidates(graph, &graph.steps[0], target, &Tuning::default());
    // Floats of 8 bits are widened by steps in front of the product.
    of(graph).or_else(|| of(&joined(graph, target, &Tuning::default())?)).unwrap()
}

/// Where there are few results, tiles whose workitems have four of them each fill more compute units: of rows and columns that they do not divide,
/// of odd depths, whole and shared ones. A product of few rows takes them.
#[test]
fn tiles_of_small_blocks() {
    for (i, target) in ["gfx803", "gfx900", "gfx906", "gfx1030", "gfx1100", "gfx1201"].into_iter().enumerate() {
        for (j, dtype) in [DType::F32, DType::F16, DType::I8, DType::F64].into_iter().enumerate() {
            let chip = Target::parse(target).unwrap();
            for (l, turned) in [[false, false], [false, true], [true, false], [true, true]].into_iter().enumerate() {
                let odd = (i + j + l) % 3;
                let product = Product { extents: [1 + l % 2, 13 + 8 * odd, 44 - odd, 256 + odd], turned, dtype };
                let all = considered(&product.graph(1).0, chip).candidates;
                for side in [16, 32] {
                    let found: Vec<&Candidate> =
                        all.iter().filter(|c| c.tile[..2] == [side; 2] && c.way == Way::Rounds).collect();
                    let some = [false, true].map(|shared| found.iter().copied().find(|c| (c.parts > 1) == shared));
                    assert!(some.iter().all(Option::is_some) || dtype != DType::F32, "{target} {dtype}: {all:?}");
                    let drawn = |c: &&Candidate| drawn(&format!("small {target} {dtype} {turned:?} {c:?}"));
                    for tile in some.into_iter().flatten().filter(drawn) {
                        product.check_by(Some(tile), target, 60 + j as u64, 1);
                    }
                }
            }
        }
    }
    let few = Product { extents: [1, 9, 64, 512], turned: [false; 2], dtype: DType::F32 };
    let chosen = considered(&few.graph(1).0, Target::parse("gfx900").unwrap()).candidates[0];
    assert_eq!(chosen.tile[..2], [16; 2], "{chosen:?}");
}

/// Tiles whose operands go straight to LDS, in every layout: of rows and columns that they do not divide, depths that end within a tile and with it,
/// of one round and of many, several products.
#[test]
fn operands_go_straight_to_lds() {
    let chip = Target::parse("gfx950").unwrap();
    let mut taken = Vec::new();
    for (i, dtype) in [DType::F16, DType::BF16, DType::I8, DType::F8E4M3].into_iter().enumerate() {
        let whole = if dtype.size() == 1 { 16 } else { 8 };
        for (j, turned) in [[false, true], [false, false], [true, true], [true, false]].into_iter().enumerate() {
            for l in 0..2 {
                // What lies along lines is whole loads.
                let odd = |line: bool, extent: usize| if line { extent / whole * whole } else { extent };
                let m = odd(turned[0], [269, 365][(i + l) % 2]);
                let n = odd(!turned[1], [381, 203][(j + l) % 2]);
                let k = [64 * whole / 8 * 3, 8 * whole, 5 * whole, 64 * whole / 8 * 9 + 3 * whole][(i + 2 * j + l) % 4];
                let product = Product { extents: [1 + (j + l) % 2, m, n, k], turned, dtype };
                let all = considered(&product.graph(1).0, chip).candidates;
                let mut large: Vec<&Candidate> = all.iter().filter(|c| c.tile[0].max(c.tile[1]) > 256).collect();
                // Of blocks of lines along the width there may be no larger ones; of two with as many rows and columns it is preferred.
                large.extend(all.iter().filter(|c| c.tile[..2] == [256; 2] && c.tile[2] == 8 * whole as u32));
                let tile = large[(i + j + l) % large.len()];
                taken.push(tile.tile);
                product.check_by(Some(tile), "gfx950", 300 + l as u64, 7);
            }
        }
    }
    taken.sort_unstable();
    taken.dedup();
    assert!(taken.len() > 4, "{taken:?}");
}

/// Tiles of multiply-adds and dot products of which a round is deeper than the least, of rows and columns that they do not divide; of odd
/// depths, and shared ones.
#[test]
fn deep_rounds_of_multiply_adds() {
    for (i, target) in ["gfx803", "gfx900", "gfx906", "gfx1030", "gfx1100", "gfx1201"].into_iter().enumerate() {
        for (j, dtype) in [DType::F32, DType::F16, DType::BF16, DType::I8, DType::F64].into_iter().enumerate() {
            let chip = Target::parse(target).unwrap();
            for (l, turned) in [[false, false], [false, true], [true, false], [true, true]].into_iter().enumerate() {
                let odd = (i + j + l) % 3;
                let product = Product { extents: [1 + l % 2, 61 + 6 * odd, 70 - odd, 256 + odd], turned, dtype };
                let all = considered(&product.graph(1).0, chip).candidates;
                let rounds = |c: &&Candidate| c.tile[2] >= 16;
                let mut found: Vec<&Candidate> = all.iter().filter(rounds).collect();
                // The deepest ones, one of whole depths and one of shared ones.
                found.sort_by_key(|c| std::cmp::Reverse(c.tile[2]));
                let one = |shared: bool| found.iter().copied().find(|c| (c.parts > 1) == shared);
                let some: Vec<&Candidate> = [one(false), one(true)].into_iter().flatten().collect();
                assert!(some.len() == 2 || dtype != DType::F32, "{target} {dtype}: {all:?}");
                for tile in some.into_iter().filter(|c| drawn(&format!("deep {target} {dtype} {turned:?} {c:?}"))) {
                    product.check_by(Some(tile), target, (i + j) as u64, 3);
                }
            }
        }
    }
}

/// Rows of results that end among neighbours which are stored together: the last tiles of rows store theirs one by one.
#[test]
fn rows_that_end_among_neighbours() {
    for (i, target) in ["gfx803", "gfx900", "gfx906", "gfx1030", "gfx1100", "gfx1201"].into_iter().enumerate() {
        for (j, dtype) in [DType::F32, DType::F16, DType::BF16, DType::I8, DType::F64].into_iter().enumerate() {
            for (l, columns) in [129, 131, 194, 262].into_iter().enumerate() {
                let product = Product { extents: [1 + l % 2, 35, columns + 4 * i, 24], turned: [false; 2], dtype };
                if drawn(&format!("ends among neighbours {target} {dtype} {columns}")) {
                    product.check(target, j as u64, 1);
                }
            }
        }
        let (graph, ..) = Product { extents: [1, 512, 515, 64], turned: [false; 2], dtype: DType::F32 }.graph(1);
        let of = Target::parse(target).unwrap();
        let kernels = barewave::kernels::lower(&graph, &graph.steps[0], of, &Default::default(), "product");
        let machine = barewave::passes::compile(kernels.unwrap()[0].function.clone()).unwrap();
        let text = barewave::passes::listing::listing(&machine);
        let stores = |names: [&str; 2]| names.iter().any(|n| text.contains(n));
        assert!(stores(["buffer_store_dwordx4", "buffer_store_b128"]), "{target}:\n{text}");
        assert!(stores(["buffer_store_dword ", "buffer_store_b32"]), "{target}:\n{text}");
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
                if drawn(&format!("{target} {dtype} {extents:?}")) {
                    Product { extents, turned, dtype }.check(target, i as u64 + 1, 1);
                }
            }
        }
    }
}

/// Floats of 8 bits behind what widens and scales them: of one launch where a target multiplies them as they are, and the same numbers
/// anywhere else.
#[test]
fn floats_of_8_bits() {
    let (e4, e5) = ([DType::F8E4M3, DType::F8E4M3Z], [DType::F8E5M2, DType::F8E5M2Z]);
    for (i, target) in ["gfx942", "gfx950", "gfx1201", "gfx1200", "gfx90a"].into_iter().enumerate() {
        let info = Target::parse(target).unwrap().info();
        let twice = [e4[0], e4[1], e5[0], e5[1]].map(|t| [t; 2]);
        let mixed = [[e4[0], e5[0]], [e4[1], e5[1]], [e5[0], e4[0]], [e5[1], e4[1]]];
        for (j, factors) in [twice, mixed].concat().into_iter().enumerate() {
            let as_it_is = target != "gfx90a" && info.fnuz == (j % 2 == 1);
            for (l, turned) in [[false, false], [false, true], [true, false], [true, true]].into_iter().enumerate() {
                let extents = [1 + (i + l) % 2, 35 + 7 * l + 2 * j, 64 + l * (i + j), 96 + 33 * j + l];
                for scales in 0..3 {
                    // On others one of them will do.
                    let what = format!("{target} {factors:?} {extents:?} {scales}");
                    if (as_it_is || l + scales == j) && drawn(&what) {
                        // Of half of them the right factor is part of the model.
                        let constant = !(i + j + l + scales).is_multiple_of(2);
                        let launches = scaled_product(target, factors, extents, turned, (scales, constant));
                        assert!((launches == 1) == as_it_is, "{what}: {launches} launches");
                    }
                }
            }
        }
    }
}

/// Checks a product of floats of 8 bits: as they are, with scales of tensors, with those of rows and columns. Gives its launches.
fn scaled_product(
    target: &str,
    factors: [DType; 2],
    extents: [usize; 4],
    turned: [bool; 2],
    (scales, constant): (usize, bool),
) -> usize {
    let [batches, m, n, k] = extents;
    let mut b = Builder::new(21, (m * n) as u64);
    let mut sides = Vec::new();
    for (rows, cols, turned, line) in [(m, k, turned[0], 1), (k, n, turned[1], 2)] {
        let shape = if turned { [batches, cols, rows] } else { [batches, rows, cols] };
        let values: Vec<f64> = b.random(&shape).to_f64().iter().map(|v| v * 4.0).collect();
        let narrow = HostTensor::from_f64(factors[line - 1], &shape, &values);
        // Rows of the left one, columns of the right one.
        let axis = if turned { 3 - line } else { line };
        let lines = if line == 1 { rows } else { cols };
        let scale: Vec<f64> = (0..lines).map(|i| 0.25 + (i % 7) as f64).collect();
        let name = if constant && line == 2 { b.constant(narrow.clone()) } else { b.input_of(narrow.clone()) };
        let (wide, scale) = match scales {
            0 => (b.node("Cast", &[&name], &[("to", int(DType::F32.to_onnx().into()))]), vec![1.0; lines]),
            1 => {
                let s = b.constant(HostTensor::from_f64(DType::F32, &[], &[0.375]));
                (b.node("DequantizeLinear", &[&name, &s], &[]), vec![0.375; lines])
            }
            _ => {
                let s = b.constant(HostTensor::from_f64(DType::F32, &[lines], &scale));
                (b.node("DequantizeLinear", &[&name, &s], &[("axis", int(axis as i64))]), scale)
            }
        };
        sides.push((wide, narrow.to_f64(), scale));
    }
    let [ta, tb] = turned.map(|t| int(t.into()));
    let product = b.node("FusedMatMul", &[&sides[0].0, &sides[1].0], &[("transA", ta), ("transB", tb)]);
    b.model.graph.nodes.last_mut().unwrap().domain = "com.microsoft".into();
    let out = b.node("Relu", &[&product], &[]);
    b.output(&out);
    let graph = fuse(&b.model, &Options::default()).unwrap();
    let what = format!("{target} {factors:?} {extents:?} {turned:?} {scales} {constant}");
    let (mut session, compiled) = device::session(&graph, target, true).unwrap_or_else(|e| panic!("{what}: {e}"));
    let (got, _) = session.run(&b.inputs).unwrap_or_else(|e| panic!("{what}: {e}"));
    let got = got[0].to_f64();
    let (x, y) = (&sides[0].1, &sides[1].1);
    for (i, got) in got.iter().enumerate() {
        let (z, row, col) = (i / (m * n), i / n % m, i % n);
        let a = |l: usize| x[z * m * k + if turned[0] { l * m + row } else { row * k + l }];
        let b = |l: usize| y[z * k * n + if turned[1] { col * k + l } else { l * n + col }];
        let scale = sides[0].2[row] * sides[1].2[col];
        let want: f64 = (0..k).map(|l| a(l) * b(l)).sum::<f64>() * scale;
        let size: f64 = (0..k).map(|l| (a(l) * b(l)).abs()).sum::<f64>() * scale;
        let most = (k + 8) as f64 * 2f64.powi(-23) * size + 1e-30;
        assert!((got - want.max(0.0)).abs() <= most, "{what}: {got} instead of {want} at {i}");
    }
    compiled.plan().launches.len()
}

/// Lines that begin and end anywhere, of a depth of several rounds that leaves a rest; also where workgroups share it.
#[test]
fn deep_products_of_odd_lines() {
    let all = [DType::F16, DType::BF16, DType::I8, DType::F32, DType::F64];
    for (i, target) in ["gfx803", "gfx900"].iter().chain(&TARGETS).enumerate() {
        for (j, dtype) in all.into_iter().enumerate() {
            for (l, turned) in [[false, false], [false, true], [true, false], [true, true]].into_iter().enumerate() {
                let (odd, some) = (2 * (i + j) + 1, i + 2 * j + 3 * l);
                let (m, n, k) = match some % 4 {
                    0 => (40 + odd, 131, 289 + 2 * l),
                    1 => (33, 70 + odd, 384 + l),
                    2 => (64, 35 + odd, 512),
                    _ => (17 + odd, 30, 1031),
                };
                if drawn(&format!("odd lines {target} {dtype} {turned:?}")) {
                    Product { extents: [1 + some % 2, m, n, k], turned, dtype }.check(target, some as u64, 1);
                }
            }
        }
    }
}

/// What is left over of lines along the depth comes in whole loads, with elements in front of it that were summed already: these count once,
/// also where they are infinite.
#[test]
fn what_is_left_over_comes_with_what_was_summed() {
    const DEPTH: usize = 1031;
    for (i, target) in ["gfx906", "gfx908", "gfx942", "gfx1030", "gfx1100", "gfx1201"].into_iter().enumerate() {
        for (j, dtype) in [DType::I8, DType::F16, DType::F32].into_iter().enumerate() {
            let product = Product { extents: [1, 100 + i, 170 + j, DEPTH], turned: [false, true], dtype };
            let (graph, mut b, [_, y]) = product.graph(i as u64);
            let of = Target::parse(target).unwrap();
            let kernels = barewave::kernels::lower(&graph, &graph.steps[0], of, &Default::default(), "product");
            let machine = barewave::passes::compile(kernels.unwrap()[0].function.clone()).unwrap();
            let text = barewave::passes::listing::listing(&machine);
            let single = ["_load_ubyte", "_load_u8", "_load_ushort", "_load_u16"].iter().any(|n| text.contains(n));
            assert!(!single, "{target} {dtype}:\n{text}");
            if dtype != DType::F16 {
                continue;
            }
            // A row for each place of an infinity near the end of the depth.
            let rows = product.extents[1];
            let mut x = vec![1.0; rows * DEPTH];
            (0..rows).for_each(|row| x[row * DEPTH + DEPTH - 1 - row] = f64::INFINITY);
            b.inputs[0] = HostTensor::from_f64(dtype, &[1, rows, DEPTH], &x);
            let (got, _) = device::run(&graph, &b.inputs, target, true).unwrap_or_else(|e| panic!("{target}: {e}"));
            let y = y.to_f64();
            for (at, got) in got[0].to_f64().into_iter().enumerate() {
                let (row, column) = (at / product.extents[2], at % product.extents[2]);
                let beside = y[column * DEPTH + DEPTH - 1 - row];
                let want = if beside == 0.0 { f64::NAN } else { beside.signum() * f64::INFINITY };
                assert!(got == want || got.is_nan() && want.is_nan(), "{target} {got} at {row}, {column}: {want}");
            }
        }
    }
}

/// Equal shares of tiles begin at different depths, so that dies with caches of their own wait for memory in each round: few deep rounds.
#[test]
fn equal_shares_on_several_dies_have_deep_rounds() {
    let of = Target::parse("gfx942").unwrap();
    for turned in [false, true] {
        let product = Product { extents: [1, 1000, 1000, 1000], turned: [false, turned], dtype: DType::F32 };
        let best = considered(&product.graph(1).0, of).candidates[0];
        assert!(best.tile[2] > 8, "{best:?}");
    }
}

/// Depths that are shared in whole tiles of which the last part has fewer: no lane asks where they end.
#[test]
fn parts_that_end_between_tiles() {
    const DEPTH: usize = 448;
    for (i, target) in ["gfx803", "gfx900", "gfx1102"].iter().chain(&TARGETS).enumerate() {
        let chip = Target::parse(target).unwrap();
        for (j, dtype) in [DType::F16, DType::BF16, DType::I8, DType::F32, DType::F64].into_iter().enumerate() {
            for (l, turned) in [[false, false], [false, true], [true, false], [true, true]].into_iter().enumerate() {
                let (m, n) = ([96, 70][(i + l) % 2], [128, 76][(j + l) % 2]);
                let product = Product { extents: [1 + l % 2, m, n, DEPTH], turned, dtype };
                let (graph, ..) = product.graph(1);
                let considered = considered(&graph, chip);
                let whole = |c: &&Candidate| DEPTH.is_multiple_of(c.tile[2] as usize);
                let uneven = |c: &&Candidate| !(DEPTH / c.tile[2] as usize).is_multiple_of(3);
                let mut rounds = considered.candidates.iter().filter(|c| c.way == Way::Rounds && c.parts == 1);
                let Some(one) = rounds.find(|c| whole(c) && uneven(c)) else { panic!("{target} {product:?}") };
                let parts = Candidate { parts: 3, ..*one };
                let mut tuning = Tuning::default();
                tuning.insert(considered.product, Tuned::from(&parts));
                let kernels = barewave::kernels::lower(&graph, &graph.steps[0], chip, &tuning, "product").unwrap();
                let machine = barewave::passes::compile(kernels[0].function.clone()).unwrap();
                let text = barewave::passes::listing::listing(&machine);
                let end = format!("{DEPTH:#x}");
                let asks = |line: &str| line.contains("v_cmp") && line.contains(&end);
                assert!(!text.lines().any(asks), "{target} {product:?} {parts:?}:\n{text}");
                if drawn(&format!("ends between tiles {target} {dtype} {turned:?}")) {
                    product.check_by(Some(&parts), target, (i + j) as u64, 1);
                }
            }
        }
    }
}

/// Whoever adds parts has no more of them in registers than leave room for the workgroups that multiply beside it, where there are so many.
#[test]
fn adding_parts_takes_no_room() {
    for (target, [m, n, k], tile, parts) in [
        ("gfx900", [128, 1760, 1760], [128, 64, 8], 8),
        ("gfx906", [128, 1760, 1760], [64, 128, 8], 8),
        ("gfx1030", [512, 2048, 1024], [64, 128, 8], 4),
    ] {
        let product = Product { extents: [1, m, n, k], turned: [false; 2], dtype: DType::F32 };
        let (graph, ..) = product.graph(1);
        let chip = Target::parse(target).unwrap();
        let of = |parts: u32| Candidate { tile, parts, clocks: 0.0, way: Way::Rounds };
        let waves = |parts: u32| {
            let mut tuning = Tuning::default();
            tuning.insert(considered(&graph, chip).product, Tuned::from(&of(parts)));
            let compiler = Compiler::new(chip, barewave::Options { tuning: Arc::new(tuning), ..Default::default() })
                .without_levels();
            compiler.compile_graph(&graph).unwrap().stats()[0].occupancy
        };
        assert_eq!(waves(parts), waves(1), "{target} {product:?}");
        product.check_by(Some(&of(parts)), target, 1, 89);
    }
}

/// Waves share the depth of products of few results and little depth, where of what they load nothing is waited for twice; and of more where
/// rounds wait for memory they are deep.
#[test]
fn ways_of_little_products() {
    let sliced = |c: &Candidate| c.way == Way::Slices;
    let deep = |c: &Candidate| c.tile[2] >= 128;
    let cases: [(_, _, _, fn(&Candidate) -> bool); 6] = [
        ("gfx908", DType::BF16, [128, 256, 128], sliced),
        ("gfx942", DType::BF16, [128, 128, 128], sliced),
        ("gfx950", DType::F16, [128, 128, 256], sliced),
        ("gfx1201", DType::BF16, [192, 192, 192], sliced),
        ("gfx942", DType::F16, [576, 576, 576], deep),
        ("gfx950", DType::BF16, [576, 576, 576], deep),
    ];
    for (target, dtype, [m, n, k], is_best) in cases {
        let product = Product { extents: [1, m, n, k], turned: [false, true], dtype };
        let all = considered(&product.graph(1).0, Target::parse(target).unwrap()).candidates;
        assert!(is_best(&all[0]), "{target} {product:?}: {all:?}");
        product.check(target, 1, 7);
    }
}

/// Lines of fewer elements than a word, which come one by one to registers of their own: no tile is taken that has no room for these.
#[test]
fn lines_that_come_one_by_one() {
    for (i, target) in TARGETS.into_iter().enumerate() {
        for (j, dtype) in [DType::F16, DType::BF16, DType::I8].into_iter().enumerate() {
            for (l, [m, n]) in [[1, 5], [3, 9], [7, 1], [384, 154]].into_iter().enumerate() {
                let product = Product { extents: [1, m, n, [512, 509, 506, 1024][l]], turned: [true, false], dtype };
                let chip = Target::parse(target).unwrap();
                let compiled = Compiler::new(chip, Default::default())
                    .without_levels()
                    .compile_graph(&product.graph(1).0)
                    .unwrap();
                let spills: u32 = compiled.stats().iter().map(|k| k.spills).sum();
                assert_eq!(spills, 0, "{target} {product:?}");
                if drawn(&format!("one by one {target} {dtype} {m} {n}")) {
                    product.check(target, (i + j) as u64, 1);
                }
            }
        }
    }
}

/// Of few rounds where many workgroups wait, or of lines along the depth: RDNA3 has one buffer in LDS then.
#[test]
fn few_rounds_of_many_tiles() {
    for (i, (target, batches)) in [("gfx1102", 40), ("gfx1100", 104), ("gfx1151", 48)].into_iter().enumerate() {
        for (j, dtype) in [DType::F16, DType::BF16, DType::I8].into_iter().enumerate() {
            for (l, turned) in [[false, false], [false, true], [true, false], [true, true]].into_iter().enumerate() {
                // Of lines along the depth it has one of many rounds too.
                let depth =
                    if turned == [false, true] { [330, 517, 256][j] } else { [64, 100, 39, 128][(i + j + l) % 4] };
                let (m, n) = [(136, 72), (70, 131), (129, 66)][(j + l) % 3];
                if drawn(&format!("{target} {dtype} {turned:?} {depth}")) {
                    Product { extents: [batches, m, n, depth], turned, dtype }.check(target, i as u64 + 3, 7);
                }
            }
        }
        let product = Product { extents: [1, 2048, 1536, 1024], turned: [false, true], dtype: DType::F16 };
        let (graph, chip) = (product.graph(1).0, Target::parse(target).unwrap());
        let [m, n, k] = considered(&graph, chip).candidates[0].tile;
        let compiled = Compiler::new(chip, Default::default()).without_levels().compile_graph(&graph).unwrap();
        let lds = compiled.stats()[0].lds;
        assert!(lds < 2 * 2 * (m + n) * k, "{target}: {lds} bytes for {m}x{n}x{k}");
    }
}

/// A product for each compute unit that fills the largest tiles: those that are no power of two, and those of which LDS holds one.
#[test]
fn tiles_that_fill_a_device() {
    let (plain, turned, both, left) = ([false, false], [false, true], [true, true], [true, false]);
    for (target, rows, turned, dtype, depth) in [
        ("gfx908", 192, plain, DType::F16, 131),
        ("gfx90a", 256, turned, DType::BF16, 200),
        ("gfx942", 224, plain, DType::F16, 72),
        ("gfx942", 224, turned, DType::BF16, 131),
        ("gfx942", 224, left, DType::F16, 130),
        ("gfx942", 224, both, DType::I8, 260),
        ("gfx942", 224, left, DType::I8, 129),
        ("gfx950", 256, turned, DType::F16, 136),
    ] {
        // Four tiles across for each product.
        let units = Target::parse(target).unwrap().info().cus as usize / 4;
        let product = Product { extents: [units, rows - 9, 4 * 256 - 3, depth], turned, dtype };
        let all = considered(&product.graph(7).0, Target::parse(target).unwrap()).candidates;
        // Not all operands come to tiles of every number of rows.
        let fills = |high: usize| all.iter().find(|c| c.tile[..2] == [high as u32, 256] && c.parts == 1);
        let tile = fills(rows).or_else(|| fills(256));
        let grid = product.check_by(Some(tile.unwrap()), target, 7, 997);
        assert_eq!(grid.iter().product::<u32>(), 4 * units as u32, "{target} {product:?}");
    }
}

/// Products of narrow elements in the layouts whose lines run along the width, on two targets and of two of some extents each; `see` looks at
/// the listing of a large one, whose name stands behind it.
fn narrow_along_the_width(what: &str, targets: [&str; 2], extents: &[[usize; 4]], see: impl Fn(DType, &str, &str)) {
    for (i, target) in targets.into_iter().enumerate() {
        for (j, dtype) in [DType::F16, DType::BF16, DType::I8].into_iter().enumerate() {
            for (l, turned) in [[false, false], [true, false], [true, true]].into_iter().enumerate() {
                for other in [0, 2] {
                    let extents = extents[(i + j + l + other) % extents.len()];
                    if drawn(&format!("{what} {target} {dtype} {turned:?} {extents:?}")) {
                        Product { extents, turned, dtype }.check(target, i as u64 + 5, 3);
                    }
                }
                let (graph, ..) = Product { extents: [1, 1024, 1024, 512], turned, dtype }.graph(1);
                let of = Target::parse(target).unwrap();
                let kernels = barewave::kernels::lower(&graph, &graph.steps[0], of, &Default::default(), "product");
                let machine = barewave::passes::compile(kernels.unwrap()[0].function.clone()).unwrap();
                let name = format!("{target} {dtype} {turned:?}");
                see(dtype, &barewave::passes::listing::listing(&machine), &name);
            }
        }
    }
}

/// Lines along the width that are whole tiles come by transposing loads, also of several products, and where workgroups share the depth.
#[test]
fn whole_tiles_by_transposing_loads() {
    let deep = [1, 64, 128, 4096];
    let all = [[1, 256, 384, 256], [3, 128, 256, 192], deep, [1, 128, 64, 640], [2, 256, 256, 128]];
    narrow_along_the_width("transposing loads", ["gfx1200", "gfx1201"], &all, |_, text, name| {
        assert!(text.contains("global_load_tr_b"), "{name}:\n{text}");
    });
    let floats = [DType::F8E4M3, DType::F8E5M2];
    for (i, turned) in [[false, false], [true, false], [true, true]].into_iter().enumerate() {
        scaled_product("gfx1201", floats, [1 + i % 2, 128, 256, 192], turned, (i, false));
    }
}

/// Narrow elements of lines along the width that RDNA3's LDS stores by halves of words: with one buffer and with two, where tiles and the depth end
/// within a round, and where workgroups share the depth.
#[test]
fn lines_along_the_width_by_halves() {
    let all = [[1, 504, 640, 200], [3, 192, 256, 192], [1, 64, 128, 4096], [1, 248, 392, 131]];
    narrow_along_the_width("halves", ["gfx1100", "gfx1102"], &all, |dtype, text, name| {
        assert!(text.contains("ds_store_b16_d16_hi"), "{name}:\n{text}");
        let turns = text.contains("v_perm_b32");
        assert!(dtype == DType::I8 || !turns, "{name} turns words:\n{text}");
    });
}

/// So many results of so little depth that L2 would notice in which pieces they are stored: they leave in whole rows, also where the last
/// rows and columns are not whole tiles.
#[test]
fn results_in_whole_rows() {
    for (i, target) in ["gfx908", "gfx90a", "gfx942", "gfx950", "gfx1102", "gfx1201"].into_iter().enumerate() {
        for (j, dtype) in [DType::F16, DType::I8, DType::BF16].into_iter().enumerate() {
            let turned = [(i + j) % 2 == 1, (i + j) % 3 == 1];
            if drawn(&format!("whole rows {target} {dtype}")) {
                Product { extents: [64, 250, 252, 64 - 8 * j], turned, dtype }.check(target, 5, 97);
            }
        }
    }
    Product { extents: [1, 8000, 256, 250], turned: [false, true], dtype: DType::F16 }.check("gfx942", 5, 97);
}

/// Many products that are smaller than tiles: workitems compute results of several of them.
#[test]
fn products_of_small_matrices() {
    for (i, target) in ["gfx803", "gfx906", "gfx942", "gfx1030", "gfx1100", "gfx1201"].into_iter().enumerate() {
        for (j, dtype) in [DType::F32, DType::F16, DType::BF16, DType::F64].into_iter().enumerate() {
            let sides = [[3, 3, 3], [4, 4, 4], [1, 8, 2], [2, 1, 3], [6, 7, 1], [8, 8, 4]];
            let [m, n, k] = sides[(2 * i + j) % sides.len()];
            let turned = [i % 2 == 1, j % 2 == 1];
            let grid = Product { extents: [1500, m, n, k], turned, dtype }.check(target, 13, 1);
            assert!(grid[0] < 1500 && grid[1] * grid[2] == 1, "{target} {dtype} {m}x{n}x{k}: {grid:?}");
        }
    }
}

/// Products of few rows and columns whose lines lie along k, one behind the other in operands that no cache keeps: workitems of no row read none of the
/// next product's.
#[test]
fn few_rows_of_many_deep_products() {
    for (i, target) in TARGETS.into_iter().enumerate() {
        for (j, dtype) in [DType::F32, DType::F16, DType::I8].into_iter().enumerate() {
            if (i + j) % 2 == 0 && drawn(&format!("few rows {target} {dtype}")) {
                let extents = [12 << j, 3 + 14 * (i / 2 % 2), 8, 8001];
                Product { extents, turned: [false, i % 3 > 0], dtype }.check(target, 11, 1);
            }
        }
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
