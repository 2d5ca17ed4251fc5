//! Products whose tiles are divided in equal shares: emulated devices in strict mode against sums in f64, each twice, since what parts are
//! added in which order must not depend on who is last, and counters must be as they were.

use crate::support::build::{Builder, int, ints};
use crate::support::device::TARGETS;
use crate::support::{all_cases, drawn};
use barewave::compile::Error;
use barewave::graph::{Options, fuse};
use barewave::kernels::{Candidate, EQUAL_SHARES, Tuned, Tuning, Way, candidates};
use barewave::runtime::EmulatedDevice;
use barewave::tensor::{DType, HostTensor};
use barewave::{Compiler, Session};
use barewave_isa::Target;
use std::sync::Arc;

/// Unit roundoffs of a type and of what is summed in.
fn roundoffs(t: DType) -> (f64, f64) {
    match t {
        DType::F16 => (2f64.powi(-11), 2f64.powi(-23)),
        DType::BF16 => (2f64.powi(-8), 2f64.powi(-23)),
        DType::F64 => (2f64.powi(-53), 2f64.powi(-52)),
        DType::I8 => (0.0, 0.0),
        _ => (2f64.powi(-24), 2f64.powi(-23)),
    }
}

/// Runs a product of `[batches, m, n, k]` by some of the tiles that can be divided. Gives how many there were.
fn check(target: &str, dtype: DType, extents: [usize; 4], turned: [bool; 2]) -> usize {
    check_by(target, dtype, extents, turned, |c| (c.parts == EQUAL_SHARES).then_some(*c)).len()
}

/// How a product was computed.
#[derive(Debug)]
struct Ran {
    parts: u32,
    /// Parts that are added together.
    grouped: u32,
    /// Its loop was written twice, for two buffers.
    in_turns: bool,
}

/// Runs it in some of the ways that are made of its candidates.
fn check_by(
    target: &str,
    dtype: DType,
    extents: [usize; 4],
    turned: [bool; 2],
    way: impl Fn(&Candidate) -> Option<Candidate>,
) -> Vec<Ran> {
    let [batches, m, n, k] = extents;
    let mut b = Builder::new(17, (m + k) as u64);
    let mut side = |rows: usize, cols: usize, turned: bool| {
        let shape = if turned { [batches, cols, rows] } else { [batches, rows, cols] };
        let mut values = b.random(&shape).to_f64();
        if dtype == DType::I8 {
            values.iter_mut().for_each(|v| *v = (*v * 90.0).round().clamp(-128.0, 127.0));
        }
        HostTensor::from_f64(dtype, &shape, &values)
    };
    let (x, y) = (side(m, k, turned[0]), side(k, n, turned[1]));
    let names = [b.input_of(x.clone()), b.input_of(y.clone())];
    let out = if dtype == DType::I8 {
        let turn = |b: &mut Builder, name: &str, turned| match turned {
            true => b.node("Transpose", &[name], &[("perm", ints(&[0, 2, 1]))]),
            false => name.to_string(),
        };
        let [x, y] = [0, 1].map(|i| turn(&mut b, &names[i], turned[i]));
        b.node("MatMulInteger", &[&x, &y], &[])
    } else {
        let [ta, tb] = turned.map(|t| int(t.into()));
        let out = b.node("FusedMatMul", &[&names[0], &names[1]], &[("transA", ta), ("transB", tb)]);
        b.model.graph.nodes.last_mut().unwrap().domain = "com.microsoft".into();
        b.node("Relu", &[&out], &[])
    };
    b.output(&out);
    let graph = fuse(&b.model, &Options::default()).unwrap();
    let chip = Target::parse(target).unwrap();
    let considered = candidates(&graph, &graph.steps[0], chip, &Tuning::default()).unwrap();
    let all: Vec<_> = considered.candidates.iter().filter_map(way).collect();
    // The best one, and the one with the largest tile.
    let largest = all.iter().max_by_key(|c| c.tile[0] * c.tile[1]);
    let mut some: Vec<_> = all.first().into_iter().chain(largest).collect();
    some.dedup();
    let (x, y) = (x.to_f64(), y.to_f64());
    let (u, v) = roundoffs(dtype);
    let mut ran = Vec::new();
    for (i, c) in some.iter().enumerate() {
        let mut tuning = Tuning::default();
        tuning.insert(considered.product.clone(), Tuned::from(*c));
        let options = barewave::Options { tuning: Arc::new(tuning), keep_ir: true, ..Default::default() };
        let compiled = match Compiler::new(chip, options).without_levels().compile_graph(&graph) {
            Ok(compiled) => compiled,
            // Of numbers of parts that nobody considered a tile may have no registers for the ends.
            Err(Error::Unsupported(_)) if c.parts != EQUAL_SHARES => continue,
            Err(e) => panic!("{target} {dtype} {extents:?} {turned:?} by {:?}: {e}", c.tile),
        };
        let name = format!("{target} {dtype} {extents:?} {turned:?} by {:?}", c.tile);
        assert_eq!(compiled.plan().launches.len(), 1, "{name}");
        let blocks = &compiled.ir()[0].machine.function.blocks;
        let in_turns = blocks.iter().any(|b| b.name.ends_with("_turned"));
        ran.push(Ran { parts: c.parts, grouped: compiled.plan().launches[0].sharing[2], in_turns });
        let device = Arc::new(EmulatedDevice::new(chip, true).unwrap());
        let mut session = Session::new(device, &compiled).unwrap();
        let (got, _) = session.run(&b.inputs).unwrap_or_else(|e| panic!("{name}: {e}"));
        if i == 0 {
            let (again, _) = session.run(&b.inputs).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert!(got[0] == again[0], "{name}: another result");
        }
        let got = got[0].to_f64();
        for i in (0..got.len()).step_by(7) {
            let (z, row, col) = (i / (m * n), i / n % m, i % n);
            let a = |l: usize| x[z * m * k + if turned[0] { l * m + row } else { row * k + l }];
            let b = |l: usize| y[z * k * n + if turned[1] { col * k + l } else { l * n + col }];
            let sum: f64 = (0..k).map(|l| a(l) * b(l)).sum();
            let want = if dtype == DType::I8 { sum } else { sum.max(0.0) };
            let size: f64 = (0..k).map(|l| (a(l) * b(l)).abs()).sum();
            let most = u * want.abs() + (k + 2) as f64 * v * size + 1e-30;
            assert!((got[i] - want).abs() <= most, "{name}: {} instead of {want} at {i}", got[i]);
        }
    }
    ran
}

/// Fewer tiles than compute units, each of them shared by several workgroups.
#[test]
fn tiles_that_many_share() {
    let (mut found, mut drawn_cases) = (0, 0);
    for (i, (target, dtype, m, n, k)) in [
        ("gfx803", DType::F32, 203, 197, 424),
        ("gfx900", DType::F16, 200, 136, 640),
        ("gfx906", DType::F16, 136, 200, 832),
        ("gfx906", DType::F64, 131, 197, 424),
        ("gfx908", DType::F32, 261, 197, 808),
        ("gfx908", DType::I8, 136, 136, 1856),
        ("gfx90a", DType::BF16, 136, 264, 1600),
        ("gfx942", DType::F64, 133, 197, 808),
        ("gfx942", DType::F16, 264, 136, 2624),
        ("gfx950", DType::F16, 264, 136, 2624),
        ("gfx1030", DType::F32, 197, 203, 424),
        ("gfx1030", DType::F16, 200, 136, 832),
        ("gfx1100", DType::F32, 261, 197, 424),
        ("gfx1201", DType::F32, 197, 133, 424),
    ]
    .into_iter()
    .enumerate()
    {
        if drawn(&format!("many share {target} {dtype}")) {
            drawn_cases += 1;
            found += check(target, dtype, [1, m, n, k], [[false, false], [false, true], [true, false]][i % 3]);
        }
    }
    assert!(found > if all_cases() { 14 } else { drawn_cases / 2 }, "{found} ways of {drawn_cases} cases");
}

/// More tiles than compute units: shares, and whole tiles behind them; of several products.
#[test]
fn whole_tiles_behind_shares() {
    let (mut found, mut drawn_cases) = (0, 0);
    for (i, (target, dtype, extents)) in [
        ("gfx803", DType::F32, [1, 523, 453, 136]),
        ("gfx906", DType::F16, [2, 520, 328, 160]),
        ("gfx908", DType::F32, [1, 581, 901, 128]),
        ("gfx908", DType::F16, [3, 392, 392, 512]),
        ("gfx90a", DType::F32, [1, 901, 581, 128]),
        ("gfx942", DType::F32, [2, 581, 901, 128]),
        ("gfx942", DType::F16, [1, 904, 840, 512]),
        ("gfx1030", DType::F32, [1, 581, 581, 128]),
        ("gfx1100", DType::F32, [5, 261, 261, 136]),
        ("gfx1201", DType::F32, [1, 453, 453, 128]),
    ]
    .into_iter()
    .enumerate()
    {
        if drawn(&format!("behind shares {target} {dtype}")) {
            drawn_cases += 1;
            found += check(target, dtype, extents, [[false, true], [false, false], [true, false]][i % 3]);
        }
    }
    assert!(found > if all_cases() { 12 } else { drawn_cases / 2 }, "{found} ways of {drawn_cases} cases");
}

/// Depths that end within a round, of lines that begin anywhere: no rest is left over for a round of its own, as parts of a depth have it.
#[test]
fn depths_that_end_within_a_round() {
    let (mut found, mut drawn_cases) = (0, 0);
    for (i, (target, dtype, m, n, k)) in [
        ("gfx900", DType::F32, 203, 197, 1_001),
        ("gfx906", DType::F16, 136, 200, 2_501),
        ("gfx908", DType::F32, 261, 197, 2_001),
        ("gfx908", DType::F16, 264, 136, 2_627),
        ("gfx90a", DType::F32, 261, 197, 2_003),
        ("gfx942", DType::F32, 261, 197, 4_001),
        ("gfx942", DType::F16, 264, 136, 5_251),
        ("gfx1030", DType::F32, 197, 203, 1_333),
        ("gfx1030", DType::I8, 136, 136, 1_901),
        ("gfx1100", DType::F32, 261, 197, 1_001),
        ("gfx1201", DType::F32, 197, 133, 1_427),
    ]
    .into_iter()
    .enumerate()
    {
        if drawn(&format!("end within a round {target} {dtype}")) {
            drawn_cases += 1;
            found += check(target, dtype, [1, m, n, k], [[false, false], [false, true], [true, false]][i % 3]);
        }
    }
    assert!(found > if all_cases() { 10 } else { drawn_cases / 2 }, "{found} ways of {drawn_cases} cases");
}

/// A product whose sums take all registers: the constant that guards lanes, made in the block of fixed order that the kernel begins with, is made anew
/// where it is read.
#[test]
fn constants_of_fixed_blocks_are_made_anew() {
    let parts = |c: &Candidate| (c.way == Way::Rounds).then_some(Candidate { parts: 2, ..*c });
    let ran = check_by("gfx908", DType::BF16, [1, 1, 2, 500], [false, true], parts);
    assert!(!ran.is_empty());
}

/// Fewer rows, or columns, than a tile has: only what there is of it is left for those that add, of equal shares as of parts, in every form
/// and type.
#[test]
fn fewer_results_than_a_tile_has() {
    for (i, target) in TARGETS.iter().chain(&["gfx803", "gfx908"]).enumerate() {
        for (j, dtype) in [DType::F32, DType::F16, DType::BF16, DType::I8, DType::F64].into_iter().enumerate() {
            if !drawn(&format!("fewer {target} {dtype}")) {
                continue;
            }
            let few = [1, 3, 5, 2, 9][(i + j) % 5];
            let turned = [[false, false], [false, true], [true, false]][(i + j) % 3];
            let extents = [[1, few, 397, 1_027], [2, 301, few, 1_027], [1, few, few + 1, 3_003]][(i + 2 * j) % 3];
            let shares = |c: &Candidate| (c.parts == EQUAL_SHARES).then_some(*c);
            let parts = |c: &Candidate| (c.way == Way::Rounds).then_some(Candidate { parts: 5, ..*c });
            check_by(target, dtype, extents, turned, shares);
            let ran = check_by(target, dtype, extents, turned, parts);
            assert!(!ran.is_empty(), "{target} {dtype} {extents:?}");
        }
    }
}

/// Many parts of a long depth are added in groups first, the last of which may have fewer.
#[test]
fn many_parts_in_groups() {
    for (i, target) in ["gfx803", "gfx900", "gfx1102"].iter().chain(&TARGETS).enumerate() {
        for (j, dtype) in [DType::F32, DType::F16, DType::I8, DType::F64].into_iter().enumerate() {
            // Two types of a target are enough: parts are added alike.
            if (i + j) % 2 > 0 || !drawn(&format!("many parts {target} {dtype}")) {
                continue;
            }
            let depth = [9_001, 11_008, 13_320][(i + j) % 3];
            let extents = [1 + (i + j) / 2 % 2, 19, 38, depth];
            let turned = [[false, false], [false, true], [true, false]][(i + j) % 3];
            let parts = |c: &Candidate| {
                let rounds = depth.div_ceil(c.tile[2] as usize);
                let parts = rounds.div_ceil(rounds.div_ceil(48).max(4)) as u32;
                (c.way == Way::Rounds && parts > 16).then_some(Candidate { parts, ..*c })
            };
            let ways = check_by(target, dtype, extents, turned, parts);
            // Tiles that are deep make fewer parts of it.
            let grouped = |r: &Ran| (2..r.parts / 2).contains(&r.grouped);
            let many = ways.iter().any(|r| r.parts >= 32);
            assert!(!many || ways.iter().any(grouped), "{target} {dtype} {extents:?}: {ways:?}");
            assert!(many || dtype == DType::I8, "{target} {dtype} {extents:?}: {ways:?}");
        }
    }
}

/// Loops of many rounds are written twice where addresses would be moved from buffer to buffer in time of products: they end behind either copy, of
/// whole depths as of shares.
#[test]
fn rounds_in_turns() {
    for (i, (target, dtype, k, rounds)) in [
        ("gfx942", DType::F32, 1_024, 64),
        ("gfx942", DType::F32, 1_051, 64),
        ("gfx90a", DType::F64, 1_032, 64),
        ("gfx90a", DType::F64, 1_059, 64),
        ("gfx906", DType::F32, 4_096, 256),
        ("gfx900", DType::F16, 4_120, 256),
        ("gfx906", DType::F64, 4_131, 256),
    ]
    .into_iter()
    .enumerate()
    {
        if drawn(&format!("in turns {target} {dtype} {k}")) {
            let many = |c: &Candidate| c.parts == 1 && c.way == Way::Rounds && k >= rounds * c.tile[2] as usize;
            let turned = [[false, false], [false, true], [true, false]][i % 3];
            let ran = check_by(target, dtype, [1, 40, 67, k], turned, |c| many(c).then_some(*c));
            assert!(!ran.is_empty() && ran.iter().all(|r| r.in_turns), "{target} {dtype} {k}: {ran:?}");
        }
    }
    for (dtype, k) in [(DType::F32, 45_003), (DType::F64, 45_011)] {
        if drawn(&format!("shares in turns {dtype}")) {
            let small = |c: &Candidate| c.parts == EQUAL_SHARES && c.tile[2] == 8 && c.tile[0] * c.tile[1] <= 64 * 64;
            let ran = check_by("mi308x", dtype, [1, 128, 128, k], [false; 2], |c| small(c).then_some(*c));
            assert!(ran.iter().any(|r| r.in_turns), "{dtype} {k}: {ran:?}");
        }
    }
}
