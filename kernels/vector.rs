//! Tiles of plain multiply-adds, or of dot products, of which each workitem owns some rows and columns.

use super::choice::{Ending, Extents, Machine, Round, Together, multiply_add};
use super::tile::{Form, Tile, Types};
use crate::mir::{Dot, dot_instruction};
use barewave_isa::{Op, Target};

/// Tiles of multiply-adds: rows, columns, both per workitem.
const VECTOR: [[u32; 4]; 14] = [
    [128, 128, 16, 8],
    [128, 128, 8, 8],
    [128, 64, 8, 8],
    [64, 128, 8, 8],
    [64, 64, 8, 8],
    [32, 64, 4, 8],
    [64, 32, 8, 4],
    [32, 32, 4, 4],
    [16, 64, 2, 8],
    [64, 64, 4, 4],
    [32, 64, 4, 4],
    [64, 32, 4, 4],
    [32, 32, 2, 2],
    [16, 16, 2, 2],
];

/// The same of those that sum in fewer bits beside: twice as quick, so that LDS has to give a workitem more for what it is asked for, which has fewer
/// registers for sums.
const PACKED: [[u32; 4]; 2] = [[128, 64, 8, 4], [64, 128, 4, 8]];

/// Results of a workitem at most, and workitems at least, of tiles of [small blocks](has_small_blocks); and what their reads from LDS take over
/// those of others: lanes have less of what they read in common. By the cycle model's times of 70 products and 28 convolutions, for sixteen
/// pairs of target and type.
const SMALL: u32 = 16;
const MANY: u32 = 64;
const MORE_READS: f64 = 1.35;

/// Depths of a tile, in cells, the least first: one that is deeper takes more of a line that lies along k in a round, and meets less often.
const DEPTHS: [u32; 3] = [LEAST, 16, 32];
const LEAST: u32 = 8;

/// What products take more for each further least depth: fewer workgroups have room beside each other, and hide less of what each moves at
/// once. By the cycle model's times of products on six targets, and of ResNet-50 and BERT on two.
const DEEPER: f64 = 0.16;

/// The same where an instruction of a wave keeps its SIMD busy for four cycles: few waves fill it.
const DEEPER_OF_FOUR: f64 = 0.04;

/// Most instructions of a workitem for the products of a round: more of them are more code, and hide no more.
const MOST_PRODUCTS: u32 = 1024;

/// Workitems have few results each, of the least tile or of one that is shared among several waves: a round of theirs is short.
pub(super) fn has_small_blocks(tile: &Tile) -> bool {
    let own = tile.m * tile.n / tile.threads();
    matches!(tile.form, Form::Vector { .. }) && (own < SMALL || own == SMALL && tile.threads() > MANY)
}

/// Deepest tile whose products are summed in fewer bits: the bound of what they are off by grows with it.
pub(super) const MOST_PACKED: u32 = 32;

/// Registers of a workitem for addresses and the like; counted where sums are of two types, of which each row's are in few registers.
const BESIDE: u32 = 16;
const BESIDE_PACKED: u32 = 8;

/// Most registers of a workitem for sums: of products, and of a round's products in fewer bits.
const MOST_SUMS: u32 = 128;

/// Tiles of multiply-adds, or dot products where the target has them for the type; and those that sum a round's products in fewer bits, where
/// they may.
pub(super) fn candidates(
    target: Target,
    types: Types,
    machine: &Machine,
    e: &Extents,
    min_n: u32,
) -> Vec<(Tile, Round)> {
    let factors = [types.storage, types.right.unwrap_or(types.storage)];
    let whole = Types { packed: None, ..types };
    let packed = types.packed.map(|_| (Types { compute: types.storage, ..types }, 1, None));
    let ways = match dot_instruction(target, factors, types.accumulate) {
        Some(d) => [Some((Types { compute: d.operands, ..whole }, d.elements, Some(d))), None],
        None => [Some((whole, 1, None)), packed],
    };
    ways.into_iter().flatten().flat_map(|way| tiles(target, way, machine, e, min_n)).collect()
}

/// Tiles of some types, of cells of so many elements, and the dot products of these.
fn tiles(
    target: Target,
    (types, run, dot): (Types, u32, Option<Dot>),
    machine: &Machine,
    e: &Extents,
    min_n: u32,
) -> Vec<(Tile, Round)> {
    let busy = |op: Op| target.op(op).map_or(1.0, |i| f64::from(i.busy.max(1)));
    let product = match (dot, types.packed) {
        (Some(d), _) => busy(d.op) / f64::from(run),
        (None, Some(packed)) => busy(packed.multiply_add) / 2.0,
        (None, None) => multiply_add(target, types.accumulate),
    };
    // Of a round, behind its last step.
    let adding = types.packed.map_or(0.0, |packed| busy(packed.mixed));
    let sums = |own: u32| own * u32::from(types.accumulate.dwords()) + types.packed.map_or(0, |_| own / 2);
    // Who gathers has a table of places for each k of a round; what comes one by one takes a register for each.
    let depths = if min_n == 1 && e.loads[e.image] != Together::ONE { &DEPTHS[..] } else { &[LEAST] };
    let more = types.packed.map_or(&[][..], |_| &PACKED);
    let tiles = VECTOR.iter().chain(more).flat_map(|t| depths.iter().map(move |cells| (t, *cells)));
    let products = |own: u32| if types.packed.is_some() { own / 2 } else { own };
    let tiles = tiles.filter(|&(&[_, _, tm, tn], cells)| cells == LEAST || cells * products(tm * tn) <= MOST_PRODUCTS);
    let tiles = tiles.filter(|(_, cells)| types.packed.is_none() || *cells <= MOST_PACKED);
    let tiles = tiles.map(|(&[m, n, tm, tn], cells)| {
        (Tile { types, m, n, k: cells * run, run, buffers: 2, form: Form::Vector { tm, tn, dot } }, tm, tn)
    });
    // Each workitem loads a run of both operands at least.
    let fits = |(t, tm, tn): &(Tile, u32, u32)| {
        e.along_image(t).0 >= min_n && sums(tm * tn) <= MOST_SUMS && t.k * t.m.min(t.n) >= t.threads() * run
    };
    let others = if types.packed.is_some() { BESIDE_PACKED } else { BESIDE };
    let round = |(t, tm, tn): (Tile, u32, u32)| {
        let (threads, bytes) = (t.threads(), f64::from(types.bytes()));
        let waves = threads.div_ceil(target.info().wave_size);
        let more = if has_small_blocks(&t) { MORE_READS } else { 1.0 };
        let reads = f64::from(threads * (tm + tn)) * bytes / machine.lds * more;
        let moves = f64::from(t.m + t.n) * bytes / 16.0;
        let bytes_of = |o: usize| if e.comes_singly(o) { types.stored_bytes().max(4) } else { types.stored_bytes() };
        let loaded = (t.m * bytes_of(0) + t.n * bytes_of(1)) * t.k / 4 / threads;
        let vgprs = sums(tm * tn) + 2 * (tm + tn) * t.cell() / 4 + loaded + others;
        let deeper = f64::from(t.k / (LEAST * run) - 1) * if machine.issue > 1.0 { DEEPER_OF_FOUR } else { DEEPER };
        let each = product * (1.0 + deeper) + adding / f64::from(t.k);
        let products = f64::from(waves * tm * tn) * each;
        let lds = t.lds(e.lds(&t, 0, t.m) + e.lds(&t, 1, t.n));
        let loaded = machine.loaded(&t, e);
        let (spread, meetings) = (false, 1);
        (
            t,
            Round {
                waves,
                products,
                moves: reads + moves,
                spread,
                meetings,
                loaded,
                given: machine.given(&t, e),
                own: tm * tn,
                vgprs,
                lds,
                behind: 0.0,
                bare: 0.0,
                ending: Ending::of(target, &t, e),
                crowded: false,
            },
        )
    };
    tiles.filter(fits).map(round).filter(|(t, r)| t.k == LEAST * run || machine.holds(r, 0)).collect()
}
