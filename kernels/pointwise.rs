//! Elementwise steps: a workitem computes neighbours, as many as one load takes together where operands allow it, and that in
//! several places where waves would otherwise begin more slowly than memory feeds them.
//!
//! The linear index is split into coordinates by constant division; each operand's offset is a sum of coordinate
//! times stride. Neighbours go together when the result is dense in the innermost dimension and every operand is dense or the same
//! for all of them, or its elements may as well be read one by one: they are far apart, or bytes, of which instructions
//! take longer than memory. Operands whose neighbours lie along
//! another dimension are turned over in LDS ([`turned`](super::turned)); rows of odd lengths whose neighbours lie densely are walked across their
//! ends ([`across`]).

mod across;
mod reordered;
mod united;

use super::address::{self, Offset};
use super::choice::Machine;
use super::error::Res;
use super::paired::Paired;
use super::shuffled::Shuffled;
use super::turned::Turned;
use super::unzipped::Unzipped;
use super::values::{self, Value};
use super::zipped::Zipped;
use super::{Arg, Cx, Kernel, Writer, expr};
use crate::graph::expr::Op;
use crate::graph::fused::{Access, FusedGraph, Indirect, Role, Step, StepKind};
use crate::graph::view::View;
use crate::mir::{Builder, Gen, MInst, Part, Space, Type};
use across::Across;
use barewave_isa::op;
use reordered::reordered;
use united::united;

pub(super) const WORKGROUP: u32 = 256;

/// Neighbours of a workitem: of one operand they fill at most so many bytes, and where others are small twice that.
const BYTES: usize = 16;
const MOST: usize = 16;

/// Elements times operations that a workitem computes at most where fewer would do.
pub(super) const WORK: usize = 256;

/// Elements further apart than this are in lines of their own.
const APART: i64 = 64;

/// Bytes of a line of memory.
const LINE: usize = 128;

/// Entries of tables that are looked at when kernels are made, at most.
const KNOWN: usize = 1 << 14;

/// What rows have in common, over what each has to itself, from which on it should be read once for several.
const COMMON: f64 = 0.45;

/// Dwords of operands that a workitem holds at most.
const HELD: usize = 48;

/// What waves should move, over what memory moves while one begins.
const MARGIN: f64 = 1.6;

/// Workitems of each compute unit below which they compute no more neighbours than four.
const FEW: usize = 512;

/// Workgroups that stay for each compute unit where workitems compute in several places.
const ENOUGH: usize = 8;

/// What a workitem computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Share {
    /// Neighbours.
    width: usize,
    /// Places.
    rounds: usize,
    /// Rows of each place, below each other.
    rows: usize,
}

/// Some operand's elements lie where tables say.
fn gathers(cx: &Cx) -> bool {
    cx.step.inputs.iter().any(|a| !a.indirect.is_empty())
}

/// A place of a workitem.
struct Where {
    round: u32,
    row: u32,
    index: Part,
    coords: Vec<Option<Part>>,
    /// What tables say there.
    known: Vec<Steps>,
}

/// The view changes along its last dimension only.
fn is_of_row(view: &View) -> bool {
    view.strides.split_last().is_some_and(|(_, others)| others.iter().all(|s| *s == 0))
}

/// Rows below each other in the last dimension but one read the same of it.
fn repeats_down(access: &Access) -> bool {
    let strides = &access.view.strides;
    access.is_plain() && strides.len() >= 2 && strides[strides.len() - 2] == 0
}

/// The step moves elements and computes nothing of them.
fn moves(cx: &Cx) -> bool {
    let [node] = cx.step.expr.nodes() else { return false };
    let Op::Input(i) = node.op else { return false };
    let from = &cx.step.inputs[i as usize];
    let zero = from.guard.as_ref().is_none_or(|g| g.fill.as_f64() == 0.0);
    zero && cx.dtype(Arg::Input(i as usize)) == cx.dtype(Arg::Output)
}

pub(super) fn lower(cx: &Cx) -> Res<Vec<Kernel>> {
    match reordered(cx).filter(|_| Turned::of(cx).is_none()) {
        Some(step) => in_order(&Cx { step: &step, ..*cx }),
        None => in_order(cx),
    }
}

/// The same in the order of the step's dimensions.
fn in_order(cx: &Cx) -> Res<Vec<Kernel>> {
    let cx = &Cx { moves: moves(cx), ..*cx };
    if let Some(paired) = Paired::of(cx) {
        return paired.lower(cx);
    }
    if let Some(unzipped) = Unzipped::of(cx) {
        return unzipped.lower(cx);
    }
    if let Some(zipped) = Zipped::of(cx) {
        return zipped.lower(cx);
    }
    if let Some((graph, step)) = united(cx).filter(|_| cx.moves) {
        return in_order(&Cx { graph: &graph, step: &step, ..*cx });
    }
    if let Some(shuffled) = Shuffled::of(cx) {
        return shuffled.lower(cx);
    }
    if let Some(turned) = Turned::of(cx) {
        return turned.lower(cx);
    }
    if let Some(across) = Across::of(cx) {
        return across.lower(cx);
    }
    let out = &cx.step.output;
    let dims = out.view.dims.clone();
    let Share { width, rounds, rows } = share(cx);
    let mut steps = dims.clone();
    if let Some(last) = steps.last_mut() {
        *last /= width;
    }
    if rows > 1 {
        steps[dims.len() - 2] /= rows;
    }
    let groups: usize = steps.iter().product();
    let per_group = WORKGROUP * rounds as u32;
    let mut w = cx.kernel(WORKGROUP);
    let group = w.b.workgroup_id(0);
    let item = w.b.workitem_id();
    let base = w.b.mul(group, per_group);
    let first = w.b.add(base, item);
    // Where the result lies as workitems are numbered, their places are an offset apart. Of many neighbours few instructions are saved.
    let bytes = width * cx.dtype(Arg::Output).size();
    let dense =
        (width <= 2 && rows == 1 && out.is_plain() && out.view.is_dense()).then(|| w.b.mul(first, bytes as u32));
    let start = (out.view.offset * (bytes / width) as i64) as u32;
    let twins = twins(cx.graph, cx.step, width);
    let mut later = Vec::new();
    let mut places: Vec<(Vec<Vec<Value>>, Offset)> = Vec::new();
    // Tables are asked for where all places are before what they point to.
    let all: Vec<_> = (0..rounds as u32).flat_map(|round| (0..rows as u32).map(move |row| (round, row))).collect();
    let together = if gathers(cx) { all.len() } else { 1 };
    for some in all.chunks(together) {
        let (mut wheres, mut behind): (Vec<Where>, Vec<MInst>) = (Vec::new(), Vec::new());
        for &(round, row) in some {
            let index = if round > 0 { w.b.add(first, round * WORKGROUP) } else { first };
            let mut coords = address::coordinates_of_item(&mut w.b, index, &steps);
            if width > 1
                && let Some(Some(c)) = coords.last().copied()
            {
                *coords.last_mut().expect("just seen") = Some(w.b.mul(c, width as u32));
            }
            if rows > 1 {
                let d = dims.len() - 2;
                let first = match coords[d] {
                    Some(c) => w.b.mul(c, rows as u32),
                    None => w.b.scalar(0),
                };
                coords[d] = Some(if row > 0 { w.b.add(first, row) } else { first });
            }
            // Rows have in common what only changes along them.
            let mut known: Vec<Steps> = match wheres.last() {
                Some(above) if row > 0 => above.known.iter().filter(|(t, ..)| is_of_row(&t.view)).cloned().collect(),
                _ => Vec::new(),
            };
            for (i, access) in cx.step.inputs.iter().enumerate() {
                for k in 0..access.indirect.len() {
                    self::steps(&mut w, cx, (i, k), &coords, width, &mut known, &mut behind)?;
                }
            }
            wheres.push(Where { round, row, index, coords, known });
        }
        w.b.append(behind);
        for Where { round, row, index, coords, mut known } in wheres {
            let before = places.last().filter(|_| row > 0).map(|p| &p.0);
            let mut operands: Vec<Vec<Value>> = Vec::new();
            for (i, access) in cx.step.inputs.iter().enumerate() {
                operands.push(match before {
                    Some(before) if repeats_down(access) => before[i].clone(),
                    _ => load_but(&mut w, cx, i, &coords, width, &mut known, (&twins[i], &operands), &mut later)?,
                });
            }
            let mut at = match dense {
                Some(_) => Offset { reg: dense, imm: start + round * WORKGROUP * bytes as u32 },
                None => address::offset(&mut w.b, &out.view, cx.dtype(Arg::Output).size(), &coords),
            };
            if !groups.is_multiple_of(per_group as usize) {
                let inside = w.b.op(Gen::CmpGt.of(Type::U32), &[(groups as u32).into(), index.into()]);
                at = at.within(&mut w.b, inside);
            }
            places.push((operands, at));
        }
    }
    w.b.append(later);
    for (operands, at) in places {
        let shared = |i: u32| {
            let i = i as usize;
            operands[i].len() < width || rows > 1 && repeats_down(&cx.step.inputs[i])
        };
        finish_sharing(&mut w, cx, &operands, width, at, &shared)?;
    }
    let flops = (dims.iter().product::<usize>() * cx.step.expr.cost()) as u64;
    Ok(vec![w.finish([(groups as u32).div_ceil(per_group), 1, 1], flops)])
}

/// Computes neighbours of the operands' elements and stores them.
pub(super) fn finish(w: &mut Writer, cx: &Cx, operands: &[Vec<Value>], width: usize, at: Offset) -> Res<()> {
    finish_sharing(w, cx, operands, width, at, &|i| operands[i as usize].len() < width)
}

/// The same where other operands, too, are `shared` with elements that the workitem computes.
fn finish_sharing(
    w: &mut Writer,
    cx: &Cx,
    operands: &[Vec<Value>],
    width: usize,
    at: Offset,
    shared: &dyn Fn(u32) -> bool,
) -> Res<()> {
    let mut results = Vec::new();
    for lane in 0..width {
        let input = |i: u32| operands[i as usize][lane.min(operands[i as usize].len() - 1)];
        results.push(expr::eval_to_store(&mut w.b, &cx.step.expr, &input, None, shared)?);
    }
    let buf = w.buffer(cx, Arg::Output)?;
    values::store_some(&mut w.b, cx.dtype(Arg::Output), buf, at, &results);
    Ok(())
}

/// How an operand's elements lie beside a workitem's neighbours.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lie {
    /// One element is all of them.
    Same,
    /// They are neighbours.
    Dense,
    /// Each is somewhere.
    Apart,
}

fn lie(graph: &FusedGraph, a: &Access, width: usize) -> Lie {
    let Some(d) = a.view.rank().checked_sub(1) else { return Lie::Same };
    let t = graph.tensor(a.tensor).dtype;
    let (bytes, whole) = (width * t.size(), |n: usize| n.is_multiple_of(width));
    // Tables do not tell them apart, nor does a limit lie between them.
    let alike = a.indirect.iter().all(|i| i.view.strides[d] == 0)
        && a.guard.as_ref().is_none_or(|g| whole(g.ranges[d].0) && whole(g.ranges[d].1));
    let steps = a.indirect.iter().all(|i| (i.stride * t.size() as i64) % bytes.min(4) as i64 == 0);
    match a.view.strides[d] {
        _ if width == 1 => Lie::Apart,
        0 if alike => Lie::Same,
        1 if alike && steps && values::is_aligned(t, &a.view, bytes) => Lie::Dense,
        _ => Lie::Apart,
    }
}

/// Neighbours are where neighbours in tables say.
fn by_tables(a: &Access) -> bool {
    let last = |v: &View| v.strides.last().copied().unwrap_or(0);
    last(&a.view) == 0 && a.indirect.iter().any(|i| last(&i.view) == 1)
}

/// A table is known when its kernel is made, and is not of any length, and none of its entries is negative or too large.
pub(super) fn is_sure(graph: &FusedGraph, table: &Indirect) -> bool {
    let Role::Constant(entries) = &graph.tensor(table.index).role else { return false };
    entries.len() <= KNOWN && entries.to_i64().iter().all(|i| (0..table.extent as i64).contains(i))
}

/// The operand, and which of its neighbours, that is the same element in all places.
type Twin = Option<(usize, usize)>;

/// The one table of an operand that says where neighbours are, and its entries, where these are known when the kernel is made.
fn table_of_row<'a>(graph: &FusedGraph, a: &'a Access) -> Option<(&'a Indirect, Vec<i64>)> {
    let along = |t: &&Indirect| t.view.strides.last() != Some(&0);
    let mut tables = a.indirect.iter().filter(along);
    let (table, None) = (tables.next()?, tables.next()) else { return None };
    let dense = is_of_row(&table.view) && table.view.strides.last() == Some(&1) && table.view.offset == 0;
    if a.guard.is_some() || !by_tables(a) || !dense || !is_sure(graph, table) {
        return None;
    }
    let Role::Constant(entries) = &graph.tensor(table.index).role else { return None };
    Some((table, entries.to_i64()))
}

/// For each operand of an elementwise step, of which so many neighbours go together: which of them operands before it, or neighbours before them, have
/// loaded. Interpolation reads most elements again for the next result.
fn twins(graph: &FusedGraph, step: &Step, width: usize) -> Vec<Vec<Twin>> {
    let tables: Vec<_> = step.inputs.iter().map(|a| table_of_row(graph, a)).collect();
    // What tells the operands apart beside those tables.
    let others = |a: &Access| {
        let row = |t: &&Indirect| t.view.strides.last() == Some(&0);
        a.indirect.iter().filter(row).cloned().collect::<Vec<_>>()
    };
    let twin = |i: usize, e: usize| {
        let (a, (table, entries)) = (&step.inputs[i], tables[i].as_ref()?);
        (0..=i).flat_map(|j| (0..width).map(move |f| (j, f))).take_while(|at| *at < (i, e)).find(|&(j, f)| {
            let b = &step.inputs[j];
            tables[j].as_ref().is_some_and(|(other, list)| {
                let place =
                    |list: &[i64], first: usize| list.iter().skip(first).step_by(width).copied().collect::<Vec<_>>();
                (a.tensor, &a.view, table.stride, table.extent) == (b.tensor, &b.view, other.stride, other.extent)
                    && others(a) == others(b)
                    && list.len() == entries.len()
                    && place(list, f) == place(entries, e)
            })
        })
    };
    (0..step.inputs.len()).map(|i| (0..width).map(|e| twin(i, e)).collect()).collect()
}

/// What a kernel takes from the entries of tables.
pub(super) fn twins_key(graph: &FusedGraph, step: &Step) -> Option<String> {
    let tables = step.inputs.iter().filter(|a| table_of_row(graph, a).is_some()).count();
    (step.kind == StepKind::Pointwise && tables > 0)
        .then(|| format!("{:?}", [2, 4].map(|width| twins(graph, step, width))))
}

/// So many neighbours are next to each other in memory.
pub(super) fn is_dense(graph: &FusedGraph, a: &Access, width: usize) -> bool {
    lie(graph, a, width) == Lie::Dense
}

/// So many neighbours leave enough workitems.
pub(super) fn enough(cx: &Cx, width: usize) -> bool {
    width <= 4 || many(cx, width)
}

/// So many neighbours leave every compute unit several waves.
pub(super) fn many(cx: &Cx, width: usize) -> bool {
    cx.step.output.view.len() / width >= FEW * cx.target.cus() as usize
}

/// Second-level caches have time to take results twice, as they do where each store of a workitem's is of half its neighbours.
fn stores_twice(cx: &Cx) -> bool {
    let machine = Machine::of(cx.target);
    let (all, written) = (bytes_of_place(cx) as f64, cx.dtype(Arg::Output).size() as f64);
    (all + written) / machine.l2 <= all / machine.memory
}

/// How much each workitem computes.
fn share(cx: &Cx) -> Share {
    let (step, cost) = (cx.step, cx.step.expr.cost().max(1));
    let last = step.output.view.dims.last().copied().unwrap_or(1);
    let size = |a: &Access| cx.graph.tensor(a.tensor).dtype.size();
    let fits = |width: usize| {
        let lies = |a: &Access| lie(cx.graph, a, width);
        let alone = |a: &Access| {
            let apart = a.view.strides.last().map(|s| (s * size(a) as i64).abs());
            apart.is_none_or(|bytes| bytes == 1 || bytes >= APART)
        };
        let (mut least, mut most) = (size(&step.output), size(&step.output));
        for a in step.inputs.iter().filter(|a| lies(a) == Lie::Dense) {
            (least, most) = (least.min(size(a)), most.max(size(a)));
        }
        let twice = size(&step.output) < most || stores_twice(cx);
        let few = width * most <= BYTES || (width * most <= 2 * BYTES && width * least <= 4 && twice);
        let read = |a: &Access| lies(a) != Lie::Apart || (width <= 4 && (alone(a) || by_tables(a)));
        last.is_multiple_of(width)
            && enough(cx, width)
            && (width <= 4 || width * cost <= WORK)
            && lies(&step.output) == Lie::Dense
            && few
            && step.inputs.iter().all(read)
    };
    let mut width = MOST;
    while width > 1 && !fits(width) {
        width /= 2;
    }
    // What a place moves and what it holds. Of operands that are read several times caches have most.
    let units = step.output.view.len() / width;
    let walked = |a: &&Access| lie(cx.graph, a, width) != Lie::Same;
    let moved = |a: &Access| (width * size(a)).min(cx.graph.tensor(a.tensor).bytes().div_ceil(units.max(1)));
    let first = |a: &&Access| step.inputs.iter().find(|b| b.tensor == a.tensor).is_none_or(|b| std::ptr::eq(b, *a));
    let bytes: usize = step.inputs.iter().filter(walked).chain([&step.output]).filter(first).map(moved).sum();
    let held: usize = step.inputs.iter().filter(walked).map(|a| width * size(a).max(4) / 4).sum();
    let rows = rows(cx, (width, units), |rows| rows * held <= 2 * HELD && rows * width * cost <= WORK);
    let would = |rounds| rows == 1 && rounds * held <= HELD && rounds * width * cost <= WORK;
    let rounds = places(cx, units, bytes, would);
    Share { width, rounds, rows }
}

/// Bytes that a place of a step takes of all its operands and its result.
pub(super) fn bytes_of_place(cx: &Cx) -> usize {
    (0..cx.step.inputs.len()).map(Arg::Input).chain([Arg::Output]).map(|arg| cx.dtype(arg).size()).sum()
}

/// How many rows a workitem computes at `units` places of so many neighbours, where tables along rows say where these are: it reads them once then.
fn rows(cx: &Cx, (width, units): (usize, usize), would: impl Fn(usize) -> bool) -> usize {
    let tables = |a: &Access| a.indirect.iter().any(|t| t.view.strides.last() == Some(&1) && is_of_row(&t.view));
    let [.., rows, row] = cx.step.output.view.dims[..] else { return 1 };
    let enough = |rows: usize| units / (WORKGROUP as usize * rows) >= ENOUGH * cx.target.cus() as usize;
    let fits = |n: &usize| rows.is_multiple_of(*n) && enough(*n) && would(*n);
    // Rows that end within a line of memory are written in parts of it.
    let bytes = row * cx.dtype(Arg::Output).size();
    let whole = bytes.is_multiple_of(LINE) || row > WORKGROUP as usize * width;
    // Second-level caches send what rows have in common again for each: they are slower at that than memory at the rest.
    let bytes_of = |a: &Access| cx.graph.tensor(a.tensor).dtype.size();
    let walked = |a: &&Access| lie(cx.graph, a, width) != Lie::Same;
    let common: usize = cx.step.inputs.iter().filter(walked).filter(|a| repeats_down(a)).map(bytes_of).sum();
    let own: usize = cx.step.inputs.iter().filter(walked).filter(|a| !repeats_down(a)).map(bytes_of).sum();
    let repeats = common as f64 >= COMMON * (own + bytes_of(&cx.step.output)) as f64;
    match width > 1 && whole && (repeats || cx.step.inputs.iter().any(tables)) {
        true => [4, 2].into_iter().find(fits).unwrap_or(1),
        false => 1,
    }
}

/// In how many places each workitem should compute, where `units` are to be done that move so many bytes each, and so many would do.
pub(super) fn places(cx: &Cx, units: usize, bytes: usize, would: impl Fn(usize) -> bool) -> usize {
    let machine = Machine::of(cx.target);
    let wave = f64::from(cx.target.info().wave_size);
    let fed = |places: usize| (places * bytes) as f64 * wave >= MARGIN * machine.memory * machine.dispatch;
    let enough = |places: usize| units / (WORKGROUP as usize * places) >= ENOUGH * cx.target.cus() as usize;
    let mut places = 1;
    while places < MOST && !fed(places) && enough(2 * places) && would(2 * places) {
        places *= 2;
    }
    places
}

/// Index of the workitem in a one-dimensional grid.
pub(super) fn linear_index(b: &mut Builder) -> Part {
    let group = b.workgroup_id(0);
    let item = b.workitem_id();
    let size = b.function().workgroup_size;
    let base = b.mul(group, size);
    b.add(base, item)
}

/// How many neighbours go together in a kernel that serves any extents.
pub(super) fn width(graph: &FusedGraph, step: &Step) -> usize {
    let Some((&last, d)) = step.output.view.dims.last().zip(step.output.view.rank().checked_sub(1)) else { return 1 };
    // A limit may lie anywhere once extents are told.
    let fits = |a: &Access| {
        values::comes_in_fours(graph.tensor(a.tensor).dtype)
            && lie(graph, a, 4) != Lie::Apart
            && a.indirect.is_empty()
            && a.guard.as_ref().is_none_or(|g| g.ranges[d] == (0, last))
    };
    let stores = fits(&step.output) && is_dense(graph, &step.output, 4);
    if last.is_multiple_of(4) && step.inputs.iter().all(fits) && stores { 4 } else { 1 }
}

/// What entries of a table come to in bytes: of a table, as it is walked, times so much.
pub(super) type Steps = (Indirect, i64, Vec<Part>);

/// The elements of operand `i` at the coordinates: `width` of them, or one that serves for all. What tables say there is `known` to the
/// operands behind it.
pub(super) fn load(
    w: &mut Writer,
    cx: &Cx,
    i: usize,
    coords: &[Option<Part>],
    width: usize,
    known: &mut Vec<Steps>,
) -> Res<Vec<Value>> {
    let mut later = Vec::new();
    let loaded = load_but(w, cx, i, coords, width, known, (&[], &[]), &mut later)?;
    w.b.append(later);
    Ok(loaded)
}

/// The same, but for neighbours that have twins among those of operands that are loaded, or of this one. What becomes of neighbours by tables behind their
/// loads is to be done `later`: before it others are loaded.
#[allow(clippy::too_many_arguments)]
fn load_but(
    w: &mut Writer,
    cx: &Cx,
    i: usize,
    coords: &[Option<Part>],
    width: usize,
    known: &mut Vec<Steps>,
    (twins, loaded): (&[Twin], &[Vec<Value>]),
    later: &mut Vec<MInst>,
) -> Res<Vec<Value>> {
    let access = &cx.step.inputs[i];
    let (mut tables, mut behind) = (Vec::new(), Vec::new());
    for k in 0..access.indirect.len() {
        tables.push(steps(w, cx, (i, k), coords, width, known, &mut behind)?);
    }
    w.b.append(behind);
    let at = |e: usize| tables.iter().map(|t| t[e.min(t.len() - 1)]).collect::<Vec<_>>();
    // Gathers wait for tables, and others for nothing behind them.
    let gathers = gathers(cx);
    let of_place = |w: &mut Writer, count: usize, later: &mut Vec<MInst>| {
        w.buffer(cx, Arg::Input(i))?;
        let from = w.b.here();
        let loaded = load_at(w, cx, i, access, coords, count, &at(0))?;
        if gathers && access.guard.is_none() {
            postpone(w, from, later);
        }
        Ok(loaded)
    };
    match lie(cx.graph, access, width) {
        Lie::Dense => of_place(w, width, later),
        Lie::Same => of_place(w, 1, later),
        Lie::Apart => {
            let waits = access.guard.is_none() && by_tables(access);
            let mut out: Vec<Value> = Vec::new();
            for e in 0..width {
                if let Some((other, f)) = twins.get(e).copied().flatten() {
                    out.push(if other == i { out[f] } else { loaded[other][f] });
                    continue;
                }
                let coords = if e == 0 { coords.to_vec() } else { moved(w, coords, e as u32) };
                w.buffer(cx, Arg::Input(i))?;
                let from = w.b.here();
                out.extend(load_at(w, cx, i, access, &coords, 1, &at(e))?);
                if waits {
                    postpone(w, from, later);
                }
            }
            Ok(out)
        }
    }
}

/// Loads for each of several things; what becomes of what is loaded is done when all of it has been asked for.
pub(super) fn ahead<T, R>(
    w: &mut Writer,
    all: impl Iterator<Item = T>,
    mut load: impl FnMut(&mut Writer, T) -> Res<R>,
) -> Res<Vec<R>> {
    let (mut loaded, mut later) = (Vec::new(), Vec::new());
    for one in all {
        let from = w.b.here();
        loaded.push(load(w, one)?);
        postpone(w, from, &mut later);
    }
    w.b.append(later);
    Ok(loaded)
}

/// Leaves for later what was written behind the last access of memory from there on.
pub(super) fn postpone(w: &mut Writer, from: (usize, usize), later: &mut Vec<MInst>) {
    let mut insts = w.b.cut(from);
    let behind = insts.iter().rposition(|inst| inst.space != Space::default()).map_or(0, |at| at + 1);
    later.extend(insts.split_off(behind));
    w.b.append(insts);
}

/// Coordinates so much further along the last dimension.
fn moved(w: &mut Writer, coords: &[Option<Part>], e: u32) -> Vec<Option<Part>> {
    let mut coords = coords.to_vec();
    if let Some(c) = coords.last_mut() {
        *c = Some(match *c {
            Some(c) => w.b.add(c, e),
            None => w.b.scalar(e),
        });
    }
    coords
}

/// What table `k` of operand `i` adds for neighbours, in bytes: for each, or one for all. What becomes of entries is to be done `behind` all tables.
fn steps(
    w: &mut Writer,
    cx: &Cx,
    (i, k): (usize, usize),
    coords: &[Option<Part>],
    width: usize,
    known: &mut Vec<Steps>,
    behind: &mut Vec<MInst>,
) -> Res<Vec<Part>> {
    let table = &cx.step.inputs[i].indirect[k];
    let bytes = table.stride * cx.dtype(Arg::Input(i)).size() as i64;
    if let Some((.., found)) = known.iter().find(|(t, size, _)| t == table && *size == bytes) {
        return Ok(found.clone());
    }
    let (buf, t) = (w.buffer(cx, Arg::Index(i, k))?, cx.dtype(Arg::Index(i, k)));
    let from = w.b.here();
    let at = address::offset(&mut w.b, &table.view, t.size(), coords);
    let raw = match table.view.strides.last() {
        Some(0) | None => vec![values::load(&mut w.b, t, buf, at)],
        Some(1) if values::is_aligned(t, &table.view, width * t.size()) => {
            values::load_some(&mut w.b, t, buf, at, width as u32)
        }
        _ => {
            let mut all = vec![values::load(&mut w.b, t, buf, at)];
            for e in 1..width as u32 {
                let coords = moved(w, coords, e);
                let at = address::offset(&mut w.b, &table.view, t.size(), &coords);
                all.push(values::load(&mut w.b, t, buf, at));
            }
            all
        }
    };
    let sure = is_sure(cx.graph, table);
    let of = |x: Value| {
        let b = &mut w.b;
        let mut index = x.reg(b);
        if !sure {
            let wrapped = b.add(index, table.extent as u32);
            let negative = b.op(Gen::CmpGt.of(Type::I32), &[0u32.into(), index.into()]);
            let from_end = b.select(negative, wrapped, index);
            let (zero, top) = (b.to_vector(0u32), b.to_vector(table.extent as u32 - 1));
            index = b.op(op::V_MED3_I32, &[from_end.into(), zero.into(), top.into()]);
        }
        b.mul(index, bytes as i32)
    };
    let found: Vec<Part> = raw.into_iter().map(of).collect();
    postpone(w, from, behind);
    known.push((table.clone(), bytes, found.clone()));
    Ok(found)
}

/// So many neighbours of operand `i`, from the coordinates on; tables add these steps.
fn load_at(
    w: &mut Writer,
    cx: &Cx,
    i: usize,
    access: &Access,
    coords: &[Option<Part>],
    count: usize,
    steps: &[Part],
) -> Res<Vec<Value>> {
    let buf = w.buffer(cx, Arg::Input(i))?;
    let t = cx.dtype(Arg::Input(i));
    let mut at = address::offset(&mut w.b, &access.view, t.size(), coords);
    for step in steps {
        at = address::add(&mut w.b, at, Offset { reg: Some(*step), imm: 0 });
    }
    let inside = guard(w, access, coords);
    if let Some(mask) = inside {
        let reg = at.vector(&mut w.b);
        let folded = if at.imm != 0 { w.b.add(reg, at.imm) } else { reg };
        at = Offset { reg: Some(w.b.guard(mask, folded)), imm: 0 };
    }
    let mut loaded = values::load_some(&mut w.b, t, buf, at, count as u32);
    fill(w, cx, i, access, inside, &mut loaded)?;
    Ok(loaded)
}

/// Replaces what was read of operand `i` outside of its guard. What lies out of bounds reads as zero: only another filling needs a
/// selection.
pub(super) fn fill(
    w: &mut Writer,
    cx: &Cx,
    i: usize,
    access: &Access,
    inside: Option<Part>,
    loaded: &mut [Value],
) -> Res<()> {
    let (Some(mask), Some(g)) = (inside, &access.guard) else { return Ok(()) };
    if g.fill.as_f64() == 0.0 && !matches!(loaded[0], Value::Mask(_)) {
        return Ok(());
    }
    let mut fill = crate::graph::expr::Expr::new();
    fill.literal(cx.dtype(Arg::Input(i)), g.fill);
    for x in loaded {
        let value = expr::eval(&mut w.b, &fill, &|_| unreachable!("a literal has no operands"), None)?;
        *x = values::select(&mut w.b, mask, *x, value);
    }
    Ok(())
}

/// Mask of the lanes whose coordinates an operand's guard lets through; `None` where that is all.
pub(super) fn guard(w: &mut Writer, access: &Access, coords: &[Option<Part>]) -> Option<Part> {
    let g = access.guard.as_ref()?;
    within(&mut w.b, &g.ranges, &access.view.dims, coords)
}

/// Mask of the lanes whose coordinates lie in all ranges; `None` when the ranges exclude nothing.
fn within(b: &mut Builder, ranges: &[(usize, usize)], dims: &[usize], coords: &[Option<Part>]) -> Option<Part> {
    let mut mask: Option<Part> = None;
    for (d, &(lo, hi)) in ranges.iter().enumerate() {
        if (lo, hi) == (0, dims[d]) {
            continue;
        }
        let c = match coords[d] {
            Some(c) => c,
            // The first coordinate.
            None if lo == 0 && hi > 0 => continue,
            None => b.scalar(0u32),
        };
        let c = if b.is_vector(c.into()) { c } else { b.to_vector(c) };
        let shifted = if lo > 0 { b.sub(c, lo as u32) } else { c };
        let m = b.op(Gen::CmpGt.of(Type::U32), &[((hi - lo) as u32).into(), shifted.into()]);
        mask = Some(match mask {
            Some(p) => b.mask_and(p, m),
            None => m,
        });
    }
    mask
}
