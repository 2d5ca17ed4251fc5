//! Images that are resized: a workgroup makes some rows of a result, of all images one below the other, or some columns of these.
//!
//! First it sums rows: for each row of its results and all columns that these need, the weighted sum of neighbours in a column, which are read
//! side by side in wide accesses, goes to LDS in f32. Then it sums columns: a workitem has a few neighbours of rows of results, always in the same columns: where what
//! these are made of lies in LDS, and by what it counts, it keeps. Both are told by tables that come with the kernel, but for what is the same for all
//! workitems: where two results of each are made of the same element it is read once, and weights that repeat from workitem to workitem, as they
//! do where images are twice as large, are constants.

use super::address::{self, Offset};
use super::blob::Blob;
use super::error::Res;
use super::lines::ENOUGH;
use super::reduce::scalar_loop;
use super::values::{self, Value};
use super::{Arg, Cx, Kernel, Writer, epilogue, expr, pointwise};
use crate::graph::fused::{Resample, Taps};
use crate::mir::{Buffer, Gen, Part, Type};

const WORKGROUP: usize = 256;

/// Bytes of an access, at most.
const BYTES: usize = 16;

/// Neighbours in a row that a workitem makes, and registers that keep what they are made of, at most; and dwords that it loads before it sums rows.
const WIDTH: usize = 4;
const KEPT: usize = 32;
const LOADED: usize = 32;

/// Rows that a workitem makes results of, at most; and dwords that these are made of in a round of a loop, which leave registers for other waves.
const TURNS: usize = 16;
const READ: usize = 40;

/// Workgroups that LDS of a compute unit has room for.
const RESIDENT: u32 = 4;

/// How results are shared among workgroups.
struct Plan<'a> {
    kind: &'a Resample,
    /// Columns and rows of an image, before and after, and elements that lie together in a column.
    from: [usize; 2],
    to: [usize; 2],
    inner: usize,
    /// Neighbours of a workitem in a row of results.
    width: usize,
    /// Workitems that share a row of a workgroup, and workgroups that do.
    lanes: usize,
    parts: usize,
    /// Elements of a row that each of these needs, and neighbours of these that are read together.
    span: usize,
    together: usize,
    /// Rows of all workitems, and those of one.
    slots: usize,
    turns: usize,
    /// Rows of one in a round.
    round: usize,
}

/// What workitems make results of, in the order of their results.
struct Columns {
    /// Which of those elements that are read it is.
    element: Vec<usize>,
    /// How many these are, and the first place that is made of each.
    first: Vec<usize>,
    /// The weight, where all have the same.
    weight: Vec<Option<f32>>,
}

impl Columns {
    /// Registers of a workitem.
    fn kept(&self) -> usize {
        self.first.len() + self.weight.iter().filter(|w| w.is_none()).count()
    }

    /// Of records of elements and weights.
    fn of(records: &[Vec<(usize, f32)>]) -> Columns {
        let taps = records.first().map_or(0, Vec::len);
        let (mut element, mut first): (Vec<usize>, Vec<usize>) = Default::default();
        for tap in 0..taps {
            let same = |other: &usize| records.iter().all(|r| r[*other].0 == r[tap].0);
            let known = first.iter().position(same).unwrap_or_else(|| {
                first.push(tap);
                first.len() - 1
            });
            element.push(known);
        }
        let of = |tap: usize| records.first().map(|r| r[tap].1).filter(|w| records.iter().all(|r| r[tap].1 == *w));
        Columns { element, first, weight: (0..taps).map(of).collect() }
    }
}

/// The first and the last element that some places are made of.
fn reach(taps: &Taps, extent: usize, places: std::ops::Range<usize>) -> [usize; 2] {
    let all = places.flat_map(|p| taps.of(p, extent).map(|(at, _)| at));
    let (low, high) = all.fold((extent - 1, 0), |(low, high), at| (low.min(at), high.max(at)));
    [low.min(high), high]
}

impl<'a> Plan<'a> {
    fn of(cx: &Cx, kind: &'a Resample) -> Plan<'a> {
        let [x, y] = [Arg::Input(0), Arg::Output].map(|arg| cx.view(arg));
        let at = y.rank() - 2 - usize::from(kind.channels_last);
        let of = |dims: &[usize]| [dims[at + 1], dims[at]];
        let (from, to) = (of(&x.dims), of(&y.dims));
        let inner = if kind.channels_last { y.dims[at + 2] } else { 1 };
        let sizes = [Arg::Input(0), Arg::Output].map(|arg| cx.dtype(arg).size());
        let dense = y.strides.last() == Some(&1) && cx.step.output.is_plain();
        let fits = |width: &usize| {
            let aligned = dense && values::is_aligned(cx.dtype(Arg::Output), y, width * sizes[1]);
            let whole = if inner > 1 { inner } else { to[0] }.is_multiple_of(*width);
            whole && width * sizes[1] <= BYTES && aligned
        };
        let row = from[0] * inner;
        let read = |n: &usize| row.is_multiple_of(*n) && n * sizes[0] <= BYTES;
        let together = [8, 4, 2].into_iter().find(read).unwrap_or(1);
        let mut plan = Plan {
            kind,
            from,
            to,
            inner,
            width: 1,
            lanes: 1,
            parts: 1,
            span: 1,
            together,
            slots: 1,
            turns: 1,
            round: 1,
        };
        for width in [WIDTH, 2].into_iter().filter(fits) {
            plan.width = width;
            if plan.columns().kept() <= KEPT {
                break;
            }
            plan.width = 1;
        }
        let most = (cx.target.info().lds_bytes / RESIDENT) as usize / 4;
        let groups = plan.groups();
        plan.parts = groups.div_ceil(WORKGROUP);
        loop {
            plan.lanes = groups.div_ceil(plan.parts);
            plan.span = plan.spanned();
            if plan.span <= most || plan.lanes == 1 {
                break;
            }
            plan.parts = groups.div_ceil(plan.lanes / 2);
        }
        plan.parts = groups.div_ceil(plan.lanes);
        let rows = y.dims[..=at].iter().product::<usize>();
        let enough = |rows_each: usize| rows.div_ceil(rows_each) * plan.parts >= ENOUGH * cx.target.cus() as usize;
        plan.slots = (WORKGROUP / plan.lanes).clamp(1, (most / plan.span).max(1)).min(rows);
        let turns = |turns: &usize| {
            let each = turns * plan.slots;
            plan.held(each) <= most && enough(each)
        };
        let read = plan.columns().first.len() * if inner > 1 { plan.width } else { 1 };
        let round = (READ / read).clamp(2, TURNS);
        let whole = |turns: &usize| *turns <= round || turns.is_multiple_of(round);
        plan.turns = (1..=TURNS).rev().filter(whole).find(turns).unwrap_or(1);
        plan.round = round.min(plan.turns);
        plan
    }

    /// Columns of so many rows that workitems leave in LDS.
    fn held(&self, rows: usize) -> usize {
        (rows * self.span / self.together).next_multiple_of(WORKGROUP) * self.together
    }

    /// Groups of neighbours of a row.
    fn groups(&self) -> usize {
        self.to[0] * self.inner / self.width
    }

    /// Groups of a column, where there are several.
    fn of_column(&self) -> usize {
        (self.inner / self.width).max(1)
    }

    /// Groups that differ in what they are made of, or in nothing but where in columns it is.
    fn records(&self) -> usize {
        self.groups() / self.of_column()
    }

    /// The places of columns that these are.
    fn places(&self, records: std::ops::Range<usize>) -> std::ops::Range<usize> {
        let each = if self.inner > 1 { 1 } else { self.width };
        records.start * each..records.end * each
    }

    /// What a record's places are made of.
    fn record(&self, record: usize) -> Vec<(usize, f32)> {
        self.places(record..record + 1).flat_map(|p| self.kind.columns.of(p, self.from[0])).collect()
    }

    /// The same of all.
    fn columns(&self) -> Columns {
        let records: Vec<_> = (0..self.records()).map(|r| self.record(r)).collect();
        Columns::of(&records)
    }

    /// The first element of a row that a workgroup needs, and the one behind the last.
    fn needed(&self, part: usize) -> [usize; 2] {
        let end = ((part + 1) * self.lanes).min(self.groups());
        let records = part * self.lanes / self.of_column()..end.div_ceil(self.of_column());
        let [first, last] = reach(&self.kind.columns, self.from[0], self.places(records));
        [first * self.inner, (last + 1) * self.inner]
    }

    /// The first element of a row that a workgroup reads, where it has so many.
    fn origin(&self, part: usize, span: usize) -> usize {
        match self.parts {
            1 => 0,
            _ => (self.needed(part)[0] / self.together * self.together).min(self.from[0] * self.inner - span),
        }
    }

    /// Elements of a row that any workgroup needs, from the first one on that it reads.
    fn spanned(&self) -> usize {
        let parts = 0..self.groups().div_ceil(self.lanes);
        let span = parts.map(|part| self.needed(part)[1] - self.origin(part, 0)).max().unwrap_or(1);
        span.next_multiple_of(self.together)
    }

    /// The tables: bytes in front of what each row is made of, and its weights; bytes in LDS in front of what each group of places is made of, and their
    /// weights; the first element of each part. And where they begin.
    fn tables(&self, columns: &Columns, size: usize) -> (Vec<u8>, [u32; 2]) {
        let mut data = Vec::new();
        let rows = &self.kind.rows;
        for i in 0..rows.places() {
            let list: Vec<(usize, f32)> = rows.of(i, self.from[1]).collect();
            list.iter().for_each(|(at, _)| data.extend(((at * self.from[0] * self.inner * size) as u32).to_le_bytes()));
            list.iter().for_each(|(_, w)| data.extend(w.to_le_bytes()));
        }
        let start = data.len() as u32;
        for record in 0..self.records() {
            let all = self.record(record);
            columns.first.iter().for_each(|tap| data.extend(((4 * all[*tap].0 * self.inner) as u32).to_le_bytes()));
            let told = all.iter().zip(&columns.weight).filter(|(_, weight)| weight.is_none());
            told.for_each(|((_, w), _)| data.extend(w.to_le_bytes()));
        }
        let origins = data.len() as u32;
        for part in 0..self.parts {
            data.extend((self.origin(part, self.span) as u32).to_le_bytes());
        }
        (data, [start, origins])
    }
}

/// So many dwords from there on.
fn dwords(w: &mut Writer, buf: Buffer, at: Part, (from, count): (u32, usize)) -> Vec<Part> {
    let (mut all, mut done) = (Vec::new(), 0);
    while done < count {
        let n = [4, 2, 1].into_iter().find(|n| *n <= count - done).unwrap_or(1);
        let some = w.b.load(buf, n as u8, at, 0u32, from + 4 * done as u32);
        all.extend((0..n as u8).map(|d| some.dword(d)));
        done += n;
    }
    all
}

pub(super) fn lower(cx: &Cx, kind: &Resample) -> Res<Vec<Kernel>> {
    let (x, out) = (cx.view(Arg::Input(0)), cx.view(Arg::Output));
    let t = cx.dtype(Arg::Input(0));
    let plan = Plan::of(cx, kind);
    let outer = out.rank() - 2 - usize::from(kind.channels_last);
    let images: usize = out.dims[..outer].iter().product();
    let (all, rows) = (images * plan.to[1], plan.slots * plan.turns);
    let mut w = cx.kernel(WORKGROUP as u32);
    let columns = plan.columns();
    let (data, [records, origins]) = plan.tables(&columns, t.size());
    let group = w.b.workgroup_id(0);
    let item = w.b.workitem_id();
    let table = w.blob(Blob::Data(data));
    let (buf, result) = (w.buffer(cx, Arg::Input(0))?, w.buffer(cx, Arg::Output)?);
    let (tile, part) = match plan.parts {
        1 => (group, None),
        parts => {
            let (tile, part) = w.b.divmod(group, parts as u32);
            (tile, Some(part))
        }
    };
    let first = w.b.mul(tile, rows as u32);
    let origin = part.map(|part| {
        let at = w.b.mul(part, 4u32);
        let at = w.b.to_vector(at);
        w.b.load(table, 1, at, 0u32, origins)
    });
    // Weights of columns are on their way while rows are summed.
    let (slot, lane) = w.b.divmod(item, plan.lanes as u32);
    let of_row = match part {
        Some(part) => w.b.mad(part, plan.lanes as u32, lane),
        None => lane,
    };
    let last = w.b.to_vector(plan.groups() as u32 - 1);
    let held = w.b.op(Gen::Min.of(Type::U32), &[of_row.into(), last.into()]);
    let (number, own) = w.b.divmod(held, plan.of_column() as u32);
    let record = w.b.mul(number, 4 * columns.kept() as u32);
    let mut places = dwords(&mut w, table, record, (records, columns.kept()));
    let mut told = places.split_off(columns.first.len()).into_iter();
    let constants = columns.weight.iter().map(|weight| match weight {
        Some(x) => w.b.scalar(x.to_bits()),
        None => told.next().unwrap_or(record),
    });
    let weights: Vec<Part> = constants.collect();
    let image = (plan.from[0] * plan.from[1] * plan.inner * t.size()) as u32;
    let base = w.b.lds(4 * plan.held(rows) as u32);
    plan.sum_rows(
        &mut w,
        (buf, table),
        (item, first, origin),
        (all, image, base),
        (t, x.offset as u32 * t.size() as u32),
    )?;
    w.b.barrier();
    // Lanes without a row read what is there.
    let inside = (plan.lanes * plan.slots < WORKGROUP)
        .then(|| w.b.op(Gen::CmpGt.of(Type::U32), &[(plan.slots as u32).into(), slot.into()]));
    let mut of_slot = w.b.mul(slot, 4 * plan.span as u32);
    if let Some(inside) = inside {
        of_slot = w.b.select(inside, of_slot, 0u32);
    }
    if plan.inner > 1 {
        of_slot = w.b.mad(own, 4 * plan.width as u32, of_slot);
    }
    if let Some(origin) = origin {
        let before = w.b.mul(origin, 4u32);
        of_slot = w.b.sub(of_slot, before);
    }
    let places: Vec<Part> = places.into_iter().map(|at| w.b.add(at, of_slot)).collect();
    let ends = (plan.parts * plan.lanes > plan.groups())
        .then(|| w.b.op(Gen::CmpGt.of(Type::U32), &[(plan.groups() as u32).into(), of_row.into()]));
    let inside = w.b.both(inside, ends);
    let along = w.b.mul(held, plan.width as u32);
    let behind = match plan.inner {
        1 => vec![Some(along)],
        _ => vec![Some(number), Some(w.b.mul(own, plan.width as u32))],
    };
    let t = cx.dtype(Arg::Output);
    let operands = epilogue::operands(cx);
    for i in 0..cx.step.inputs.len() {
        w.buffer(cx, Arg::Input(i))?;
    }
    // The rows of a turn, from one on, whose elements are so far ahead.
    let make = |w: &mut Writer, turn: usize, from: Part, places: &[Part]| -> Res<()> {
        let ahead = base + (turn * plan.slots * plan.span * 4) as u32;
        let each = if plan.inner > 1 { plan.width } else { 1 };
        let read: Vec<Part> = places.iter().map(|at| w.b.lds_read(each as u8, *at, ahead)).collect();
        let read: Vec<Part> = columns.element.iter().map(|i| read[*i]).collect();
        let mut sums = Vec::new();
        for (some, weights) in read.chunks(kind.columns.count).zip(weights.chunks(kind.columns.count)) {
            for e in 0..each as u8 {
                let mut sum = w.b.op(Gen::Mul.of(Type::F32), &[some[0].dword(e).into(), weights[0].into()]);
                for (x, weight) in some.iter().zip(weights).skip(1) {
                    sum = w.b.fma(x.dword(e), *weight, sum);
                }
                sums.push(Value::Word(sum.into()));
            }
        }
        let row = w.b.add(slot, (turn * plan.slots) as u32);
        let row = w.b.add(row, from);
        let there = (!all.is_multiple_of(rows) || plan.slots * plan.lanes < WORKGROUP)
            .then(|| w.b.op(Gen::CmpGt.of(Type::U32), &[(all as u32).into(), row.into()]));
        let inside = w.b.both(inside, there);
        let row = match there {
            Some(_) => {
                let last = w.b.to_vector(all as u32 - 1);
                w.b.op(Gen::Min.of(Type::U32), &[row.into(), last.into()])
            }
            None => row,
        };
        let mut coords = address::coordinates(&mut w.b, row, &out.dims[..=outer]);
        coords.extend(&behind);
        let (mut loaded, mut known) = (vec![Vec::new(); cx.step.inputs.len()], Vec::new());
        for &i in &operands {
            loaded[i] = pointwise::load(w, cx, i, &coords, plan.width, &mut known)?;
        }
        let mut results = Vec::new();
        for (e, sum) in sums.into_iter().enumerate() {
            let input = |i: u32| loaded[i as usize][e.min(loaded[i as usize].len() - 1)];
            results.push(expr::eval(&mut w.b, &cx.step.expr, &input, Some(sum))?);
        }
        let to = match out.is_dense() {
            true => {
                let to = w.b.mul(row, (plan.to[0] * plan.inner) as u32);
                let to = w.b.add(to, along);
                Offset { reg: Some(w.b.mul(to, t.size() as u32)), imm: (out.offset as usize * t.size()) as u32 }
            }
            false => address::offset(&mut w.b, out, t.size(), &coords),
        };
        let to = to.within(&mut w.b, inside);
        values::store_some(&mut w.b, t, result, to, &results);
        Ok(())
    };
    if plan.turns == plan.round {
        (0..plan.turns).try_for_each(|turn| make(&mut w, turn, first, &places))?;
    } else {
        let each = plan.round * plan.slots;
        scalar_loop(&mut w, "turns", (plan.turns / plan.round) as u32, |w, round| {
            let before = w.b.mul(round, (each * plan.span * 4) as u32);
            let places: Vec<Part> = places.iter().map(|at| w.b.add(*at, before)).collect();
            let rows = w.b.mul(round, each as u32);
            let from = w.b.add(first, rows);
            (0..plan.round).try_for_each(|turn| make(w, turn, from, &places))
        })?;
    }
    let flops = 2 * out.len() * (kind.rows.count + kind.columns.count);
    let groups = all.div_ceil(rows) * plan.parts;
    Ok(vec![w.finish([groups as u32, 1, 1], flops as u64)])
}

impl Plan<'_> {
    /// Leaves sums of rows in LDS.
    fn sum_rows(
        &self,
        w: &mut Writer,
        (buf, table): (Buffer, Buffer),
        (item, first, origin): (Part, Part, Option<Part>),
        (all, image, base): (usize, u32, u32),
        (t, start): (crate::tensor::DType, u32),
    ) -> Res<()> {
        let (count, across) = (self.kind.rows.count, self.span / self.together);
        let units = self.slots * self.turns * across;
        let size = t.size() as u32;
        // Bytes in front of the unit's first column.
        let of_origin = origin.map(|origin| w.b.mul(origin, size));
        let turns = units.div_ceil(WORKGROUP);
        let registers = (self.together * t.size()).div_ceil(4);
        let most = (LOADED / (count * registers)).max(1);
        let each = (1..=most).rev().find(|n| turns.is_multiple_of(*n)).unwrap_or(1);
        let sum = |w: &mut Writer, from: Part| {
            let mut asked = Vec::new();
            for turn in 0..each {
                let index = if turn > 0 { w.b.add(from, (turn * WORKGROUP) as u32) } else { from };
                let (row, unit) = w.b.divmod(index, across as u32);
                let row = w.b.add(row, first);
                let last = w.b.to_vector(all as u32 - 1);
                let row = w.b.op(Gen::Min.of(Type::U32), &[row.into(), last.into()]);
                let (number, row) = w.b.divmod(row, self.to[1] as u32);
                let record = w.b.mul(row, 8 * count as u32);
                let taps = dwords(w, table, record, (0, 2 * count));
                let unit = w.b.mul(unit, self.together as u32 * size);
                let mut at = w.b.mad(number, image, unit);
                if let Some(of_origin) = of_origin {
                    at = w.b.add(at, of_origin);
                }
                asked.push((index, at, taps));
            }
            let mut loaded = Vec::new();
            for (index, at, taps) in asked {
                let list = taps[..count].iter().map(|ahead| {
                    let at = w.b.add(at, *ahead);
                    let place = Offset { reg: Some(at), imm: start };
                    values::load_some(&mut w.b, t, buf, place, self.together as u32)
                });
                let list: Vec<Vec<Value>> = list.collect();
                loaded.push((index, list, taps));
            }
            for (index, list, taps) in loaded {
                let mut sums: Vec<Part> = Vec::new();
                for e in 0..self.together {
                    let mut sum: Option<Part> = None;
                    for (values, weight) in list.iter().zip(&taps[count..]) {
                        let x = values[e].word();
                        sum = Some(match sum {
                            None if count == 1 => values[e].reg(&mut w.b),
                            None => w.b.op(Gen::Mul.of(Type::F32), &[x, (*weight).into()]),
                            Some(sum) => w.b.fma(x, *weight, sum),
                        });
                    }
                    sums.extend(sum);
                }
                // Behind the last row there is room for what all workitems write.
                let to = w.b.mul(index, 4 * self.together as u32);
                for (i, some) in sums.chunks(4).enumerate() {
                    let words = w.b.v(some.len() as u8);
                    (0..).zip(some).for_each(|(d, x)| w.b.copy_into(words.dword(d), *x));
                    w.b.lds_write(to, words, base + 16 * i as u32);
                }
            }
        };
        if turns == each {
            sum(w, item);
            return Ok(());
        }
        scalar_loop(w, "sums", (turns / each) as u32, |w, round| {
            let before = w.b.mul(round, (each * WORKGROUP) as u32);
            let from = w.b.add(item, before);
            sum(w, from);
            Ok(())
        })
    }
}
