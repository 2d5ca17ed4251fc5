//! Tiles of plain multiply-adds, or of dot products, of which each workitem owns some rows and columns.

use super::choice::{Extents, Machine, Round, multiply_add};
use super::tile::{Form, Tile, Types};
use crate::mir::dot_instruction;
use barewave_isa::{Op, Target};

/// Tiles of multiply-adds: rows, columns, both per workitem.
const VECTOR: [[u32; 4]; 9] = [
    [128, 128, 16, 8],
    [128, 128, 8, 8],
    [128, 64, 8, 8],
    [64, 128, 8, 8],
    [64, 64, 8, 8],
    [32, 64, 4, 8],
    [64, 32, 8, 4],
    [32, 32, 4, 4],
    [16, 64, 2, 8],
];

/// Tiles of multiply-adds, or dot products where the target has them for the type.
pub(super) fn candidates(
    target: Target,
    types: Types,
    machine: &Machine,
    e: &Extents,
    min_n: u32,
) -> Vec<(Tile, Round)> {
    let (types, run, dot) = match dot_instruction(target, types.storage, types.accumulate) {
        Some(d) => (Types { compute: d.operands, ..types }, d.elements, Some(d)),
        None => (types, 1, None),
    };
    let sum = u32::from(types.accumulate.dwords());
    let busy = |op: Op| target.op(op).map_or(1.0, |i| f64::from(i.busy.max(1)));
    let product = match dot {
        Some(d) => busy(d.op) / f64::from(run),
        None => multiply_add(target, types.accumulate),
    };
    let tiles = VECTOR.iter().map(|&[m, n, tm, tn]| {
        (Tile { types, m, n, k: 8 * run, run, buffers: 2, form: Form::Vector { tm, tn, dot } }, tm, tn)
    });
    let fits = |(t, tm, tn): &(Tile, u32, u32)| t.n >= min_n && tm * tn * sum <= 128;
    let round = |(t, tm, tn): (Tile, u32, u32)| {
        let (threads, bytes) = (t.threads(), f64::from(types.bytes()));
        let waves = threads.div_ceil(target.info().wave_size);
        let reads = f64::from(threads * (tm + tn)) * bytes / machine.lds;
        let moves = f64::from(t.m + t.n) * bytes / 16.0;
        let dwords = types.bytes().div_ceil(4);
        let vgprs =
            tm * tn * sum + 2 * (tm + tn) * dwords + (t.m + t.n) * t.k * types.stored_bytes() / 4 / threads + 16;
        let products = f64::from(waves * tm * tn) * product;
        let lds = 2 * (t.m + t.n) * t.k * types.bytes();
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
            },
        )
    };
    tiles.filter(fits).map(round).collect()
}
