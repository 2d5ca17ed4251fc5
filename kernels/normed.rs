//! Products whose rows are normalised by the last workgroup that stores to them.
//!
//! The workgroups side by side that own the same rows of a product count themselves in once their results are where the whole
//! device sees them, as the parts of a shared depth do ([`split`](super::split), which also says why that is safe). The one that finds
//! all others counted reads the rows again, each wave some of them: a few at a time, all their elements in flight at once. A row is
//! normalised by the lanes of a wave alone. The other workgroups are done: nobody waits for another.
//!
//! That saves a launch and costs the time of that one workgroup, at the end of the kernel: worth it where its waves have few rows.

use super::address::Offset;
use super::choice::{self, Extents, Machine, Split};
use super::error::{Reason, Res};
use super::float::Float;
use super::lines;
use super::split::{self, Product};
use super::tile::Tile;
use super::values::{self, Value};
use super::{Arg, Cx, Kernel, Writer, epilogue, expr, gemm, lanes, matmul, sized};
use crate::graph::fused::{Normalize, Normed, StepKind};
use crate::graph::view::View;
use crate::mir::{BlockId, Gen, Part, Pipeline, Type};
use crate::tensor::DType;
use barewave_isa::Target;

/// Dwords of a row that a lane holds at most.
const MOST: u32 = 128;

/// Instructions for a row besides those for its elements: two sums over lanes, a root and a quotient. Counted.
const OF_A_ROW: f64 = 70.0;

/// Instructions for an element: its square and its scale, and where the row has a mean, its sum and difference.
const OF_AN_ELEMENT: f64 = 2.0;
const CENTERED: f64 = 2.0;

/// Clocks that they take a wave that is alone, over those that they take: where an instruction takes several clocks few of them cover the time
/// until a result may be used. Fitted to what the cycle model says of f16 and f32 on gfx90a and gfx942.
const ALONE: f64 = 2.5;

/// A launch of its own begins and ends while others do, in parts.
const APART: f64 = 0.5;

pub(super) fn lower(cx: &Cx, n: &Normed) -> Res<Vec<Kernel>> {
    let product = n.product(cx.step);
    let of_product = Cx { step: &product, ..*cx };
    matmul::lower(&of_product, Some(&Finish { cx, normed: n }), None)
}

/// True where the normalisation is less at the end of the product than as a launch of its own.
pub(super) fn is_worth(whole: &Cx) -> bool {
    let StepKind::Normed(n) = &whole.step.kind else { return false };
    let product = n.product(whole.step);
    let cx = Cx { step: &product, ..*whole };
    let float = |i: usize| matches!(cx.dtype(Arg::Input(i)), DType::F32 | DType::F16 | DType::BF16);
    let plain = (0..2).all(float) && !sized::fits(cx.graph, &product);
    let (Ok(types), true) = (gemm::types(&cx), plain) else { return false };
    let finish = Finish { cx: whole, normed: n };
    let extents = matmul::extents_in_rows(&cx);
    let apart = choice::quickest(cx.target, cx.tuning, types, &extents, |_, _| Some(0.0));
    match (finish.choose(&cx, &extents), apart) {
        (Ok((joined, ..)), Ok((product, ..))) => joined < product + finish.apart(),
        _ => false,
    }
}

/// Clocks of a SIMD for a row of so many elements of a type, with an expression of some cost behind its normalisation.
fn of_a_row(machine: &Machine, target: Target, length: usize, norm: &Normalize, cost: usize, t: DType) -> f64 {
    let held = (length as f64 / f64::from(machine.lanes())).ceil();
    let centered = if norm.center { CENTERED } else { 0.0 };
    let element = OF_AN_ELEMENT + centered + cost as f64;
    held * (element * machine.issue + values::conversions(target, t)) + OF_A_ROW * machine.issue
}

/// Clocks of a launch that normalises so many rows.
pub(super) fn apart(target: Target, (count, length): (usize, usize), norm: &Normalize, cost: usize, t: DType) -> f64 {
    let machine = Machine::of(target);
    let at_once = target.cus() * target.info().simds;
    let rounds = (count as u32).div_ceil(at_once);
    let rows = f64::from(rounds) * of_a_row(&machine, target, length, norm, cost, t);
    machine.launch + APART * machine.ends + 2.0 * machine.l2_latency + rows
}

/// How the last wave walks its rows.
struct Rows {
    /// Neighbours that one load takes.
    together: u32,
    /// Loads of a row.
    chunks: u32,
    /// Rows in flight, and how often.
    at_once: u32,
    rounds: u32,
    /// Rows of a wave, and the waves.
    own: u32,
    waves: u32,
}

impl Rows {
    /// `None` where a row is too long to be held.
    fn of(cx: &Cx, n: &Normed, tile: &Tile) -> Option<Rows> {
        let wave = cx.target.info().wave_size;
        let (rows, columns) = (n.sums.dims[0] as u32, n.sums.dims[1] as u32);
        let t = cx.dtype(Arg::Output);
        let operands = cx.step.inputs[2 + n.operands..].iter().zip(2 + n.operands..);
        let mut accesses = vec![(t, &n.sums), (t, &cx.step.output.view)];
        accesses.extend(operands.map(|(a, i)| (cx.dtype(Arg::Input(i)), &a.view)));
        let together = lines::together(&accesses).min(4);
        let chunks = columns.div_ceil(wave * together);
        let held = chunks * together;
        let waves = tile.threads() / wave;
        let own = tile.m / waves;
        let left = own.min(rows);
        // As many rows as registers allow without fewer waves for it.
        let in_flight = cx.target.info().named_vgprs() / 4;
        let at_once = (in_flight / held.max(1)).clamp(1, left.max(1).next_power_of_two());
        let at_once = 1 << at_once.ilog2();
        let fits = held <= MOST && own * waves == tile.m && own.is_power_of_two();
        fits.then(|| Rows { together, chunks, at_once, rounds: left.div_ceil(at_once), own, waves })
    }
}

/// What comes behind the product.
pub(super) struct Finish<'a> {
    /// The whole step.
    cx: &'a Cx<'a>,
    normed: &'a Normed,
}

impl Finish<'_> {
    /// The tile with which product and normalisation together take least time, and their clocks.
    pub fn choose(&self, product: &Cx, e: &Extents) -> Res<(f64, Tile, Split)> {
        let machine = Machine::of(product.target);
        let more = |tile: &Tile, split: &Split| {
            let rows = Rows::of(self.cx, self.normed, tile)?;
            Some(self.clocks(&machine, &rows, split.count > 1))
        };
        choice::quickest(product.target, product.tuning, gemm::types(product)?, e, more)
    }

    /// Clocks of a SIMD for a row.
    fn of_a_row(&self, machine: &Machine) -> f64 {
        let (length, cost) = (self.normed.sums.dims[1], self.cx.step.expr.cost());
        of_a_row(machine, self.cx.target, length, &self.normed.norm, cost, self.cx.dtype(Arg::Output))
    }

    /// Clocks at the end of the product's kernel. The workgroup's stores are waited for and counted, where the whole device sees them; twice
    /// where the depth is `shared`. In each round rows are asked for there, and what all rows have in common of the nearest cache.
    fn clocks(&self, machine: &Machine, rows: &Rows, shared: bool) -> f64 {
        let simds = self.cx.target.info().simds;
        let counted = 2.0 * machine.device_latency * if shared { 2.0 } else { 1.0 };
        let answers = machine.device_latency + machine.l2_latency;
        let alone = if machine.issue > 1.0 { ALONE } else { 1.0 };
        let computed = alone * f64::from(rows.at_once * rows.waves.div_ceil(simds)) * self.of_a_row(machine);
        counted + machine.l2_latency + f64::from(rows.rounds) * (answers + computed)
    }

    /// Clocks of the normalisation as a launch of its own.
    fn apart(&self) -> f64 {
        let extents = (self.normed.sums.dims[0], self.normed.sums.dims[1]);
        let cost = self.cx.step.expr.cost();
        apart(self.cx.target, extents, &self.normed.norm, cost, self.cx.dtype(Arg::Output))
    }

    /// Normalises the rows in the last workgroup that comes here; all others go to `done`. Counters begin `before` bytes behind
    /// others; gives how many bytes they have, and how many workgroups share a row.
    pub fn write(&self, w: &mut Writer, p: &Product, before: usize, done: BlockId) -> Res<(usize, u32)> {
        let rows = Rows::of(self.cx, self.normed, p.tile).ok_or(Reason::Malformed("a row that is too long"))?;
        let tiles = [p.extents.n.div_ceil(p.tile.n as usize), p.extents.m.div_ceil(p.tile.m as usize)];
        let (wave, threads) = (w.b.wave_size(), p.tile.threads());
        let (item, y) = (w.b.workitem_id(), w.b.workgroup_id(1));
        let at = w.b.mad(y, threads, item);
        let at = w.b.mul(at, 4u32);
        let at = w.b.add(at, before as u32);
        split::count_workgroup(w, at, (threads, split::Found::Apart), tiles[0] as u32 - 1, done);
        let number = w.b.shr(item, wave.trailing_zeros());
        let number = w.b.uniform(number);
        let first = w.b.mad(number, rows.own, p.first.0);
        let lane = w.b.and(item, wave - 1);
        self.normalize(w, &rows, first, lane)?;
        Ok((tiles[1] * threads as usize * 4, tiles[0] as u32))
    }

    /// Normalises the wave's rows from `first` on.
    fn normalize(&self, w: &mut Writer, rows: &Rows, first: Part, lane: Part) -> Res<()> {
        let (cx, n, float) = (self.cx, self.normed, Float(Type::F32));
        let (count, length) = (n.sums.dims[0] as u32, n.sums.dims[1] as u32);
        let t = cx.dtype(Arg::Output);
        let wave = w.b.wave_size();
        let own = w.b.mul(lane, rows.together);
        let args: Vec<Arg> = epilogue::operands(cx).into_iter().map(Arg::Input).chain([Arg::Output]).collect();
        for arg in &args {
            w.buffer(cx, *arg)?;
        }
        let walk = Walk { cx, rows, own, length };
        let insides: Vec<Option<Part>> = (0..rows.chunks)
            .map(|c| {
                let end = length.saturating_sub(c * wave * rows.together);
                let open = end < wave * rows.together;
                open.then(|| w.b.op(Gen::CmpGt.of(Type::U32), &[end.into(), own.into()]))
            })
            .collect();
        let node = w.b.begin_loop("rows");
        let start = w.b.mad(node.counter(), rows.at_once, first);
        let places: Vec<Row> = (0..rows.at_once)
            .map(|r| {
                let row = if r > 0 { w.b.add(start, r) } else { start };
                let row = w.b.to_vector(row);
                let open = !count.is_multiple_of(rows.own * rows.waves);
                let inside = open.then(|| w.b.op(Gen::CmpGt.of(Type::U32), &[count.into(), row.into()]));
                Row { row, inside }
            })
            .collect();
        w.b.loads_from_device(true);
        let mut held: Vec<Vec<Vec<Part>>> = Vec::new();
        for place in &places {
            let mut list = Vec::new();
            for (c, inside) in insides.iter().enumerate() {
                let values = walk.load(w, Arg::Output, t, &n.sums, place, c as u32, *inside)?;
                list.push(values.into_iter().map(|x| x.whole(&mut w.b)).collect());
            }
            held.push(list);
        }
        w.b.loads_from_device(false);
        let scale = float.constant(&mut w.b, (1.0 / length as f32).into());
        if n.norm.center {
            let sums = added(w, &held, |w, sum, x| float.update(&mut w.b, Gen::Add, sum, x))?;
            for (list, sum) in held.iter_mut().zip(sums) {
                let mean = float.op(&mut w.b, Gen::Mul, scale, sum);
                for (chunk, inside) in list.iter_mut().zip(&insides) {
                    for x in chunk {
                        *x = float.op(&mut w.b, Gen::Sub, *x, mean);
                        if let Some(mask) = inside {
                            let zero = float.constant(&mut w.b, 0.0);
                            *x = float.select(&mut w.b, *mask, *x, zero);
                        }
                    }
                }
            }
        }
        let squares = added(w, &held, |w, sum, x| float.fma_into(&mut w.b, sum, x, x))?;
        let mut factors = Vec::new();
        for s in squares {
            factors.push(float.inverse_deviation(&mut w.b, s, scale, n.norm.epsilon));
        }
        for (c, inside) in insides.iter().enumerate() {
            let mut same: Vec<Option<Vec<Value>>> = vec![None; cx.step.inputs.len()];
            for ((place, list), factor) in places.iter().zip(&held).zip(&factors) {
                let mut operands = vec![Vec::new(); cx.step.inputs.len()];
                for i in epilogue::operands(cx) {
                    let view = &cx.step.inputs[i].view;
                    let of_row = view.strides[0] != 0 && view.dims[0] > 1;
                    operands[i] = match &same[i] {
                        Some(v) if !of_row => v.clone(),
                        _ => walk.load(w, Arg::Input(i), cx.dtype(Arg::Input(i)), view, place, c as u32, *inside)?,
                    };
                    same[i] = Some(operands[i].clone());
                }
                let mut results = Vec::new();
                for (e, x) in list[c].iter().enumerate() {
                    let y = float.op(&mut w.b, Gen::Mul, *x, *factor);
                    let input = |i: u32| operands[i as usize][e.min(operands[i as usize].len() - 1)];
                    results.push(expr::eval(&mut w.b, &cx.step.expr, &input, Some(Value::Word(y.into())))?);
                }
                let view = &cx.step.output.view;
                let at = walk.offset(w, view, t, place, c as u32, *inside);
                let buf = w.buffer(cx, Arg::Output)?;
                match results[..] {
                    [one] => values::store(&mut w.b, t, buf, at, one),
                    _ => values::store_some(&mut w.b, t, buf, at, &results),
                }
            }
        }
        w.b.end_loop(node, rows.rounds, 1, Pipeline::Off, false);
        Ok(())
    }
}

/// What `add` makes of the elements of each row, over all lanes: all rows at once.
fn added(w: &mut Writer, held: &[Vec<Vec<Part>>], mut add: impl FnMut(&mut Writer, Part, Part)) -> Res<Vec<Part>> {
    let float = Float(Type::F32);
    let mut sums = Vec::new();
    for list in held {
        let sum = float.held(&mut w.b, 0.0);
        list.iter().flatten().for_each(|x| add(w, sum, *x));
        sums.push(sum);
    }
    let wave = w.b.wave_size();
    lanes::combine(w, wave, &sums, |w, a, b| {
        Ok(a.iter().zip(b).map(|(x, y)| float.op(&mut w.b, Gen::Add, *x, *y)).collect())
    })
}

/// A row, and the lanes for which it is one of the product's.
struct Row {
    row: Part,
    inside: Option<Part>,
}

/// A walk of a wave's lanes over rows.
struct Walk<'a> {
    cx: &'a Cx<'a>,
    rows: &'a Rows,
    /// First column of the lane.
    own: Part,
    length: u32,
}

impl Walk<'_> {
    /// Where a chunk of a row is in an access.
    fn offset(&self, w: &mut Writer, view: &View, t: DType, place: &Row, c: u32, inside: Option<Part>) -> Offset {
        let size = t.size() as i64;
        let wave = w.b.wave_size();
        let b = &mut w.b;
        let column = if view.strides[1] == 0 || self.length == 1 {
            None
        } else {
            Some(b.mul(self.own, (view.strides[1] * size) as u32))
        };
        let ahead = i64::from(c * wave * self.rows.together) * view.strides[1] * size;
        let reg = match (view.strides[0] != 0 && view.dims[0] > 1, column) {
            (true, Some(column)) => b.mad(place.row, (view.strides[0] * size) as u32, column),
            (true, None) => b.mul(place.row, (view.strides[0] * size) as u32),
            (false, Some(column)) => column,
            (false, None) => b.to_vector(0u32),
        };
        let mask = b.both(place.inside, inside);
        let reg = mask.map_or(reg, |m| b.guard(m, reg));
        Offset { reg: Some(reg), imm: (view.offset * size + ahead) as u32 }
    }

    /// The elements of a chunk of a row, or one that serves for all.
    fn load(
        &self,
        w: &mut Writer,
        arg: Arg,
        t: DType,
        view: &View,
        place: &Row,
        c: u32,
        inside: Option<Part>,
    ) -> Res<Vec<Value>> {
        let at = self.offset(w, view, t, place, c, inside);
        let buf = w.buffer(self.cx, arg)?;
        Ok(match self.rows.together {
            n if n > 1 && view.strides[1] != 0 => values::load_some(&mut w.b, t, buf, at, n),
            _ => vec![values::load(&mut w.b, t, buf, at)],
        })
    }
}
