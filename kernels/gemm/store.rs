//! Results of a product: the step's expression is applied to the sums of a tile, row by row, and what comes of it is stored.
//!
//! Operands of the expression are loaded in the rows' order. Where this is the order of the code, those of several rows are on their way at once ([`AHEAD`]): waves
//! that are alone on their part of a compute unit would wait for each row's by itself.

use super::images::Gap;
use super::pairs::Pairs;
use super::{Sums, Walk, in_vectors};
use crate::graph::PAIRED;
use crate::graph::fused::Gated;
use crate::graph::view::View;
use crate::kernels::address::{self, Offset};
use crate::kernels::error::Res;
use crate::kernels::loader::tally::Levels;
use crate::kernels::regroup::Rows;
use crate::kernels::tile::{Form, Tile};
use crate::kernels::values::{self, Value};
use crate::kernels::{Arg, Cx, Writer, epilogue, expr, fragment, standardized};
use crate::mir::{Gen, Opnd, Part, RegClass, Type};
use crate::tensor::DType;
use barewave_isa::{Class, op};
use std::collections::VecDeque;

/// Added to the offset of rows beyond the end; with a column's own mark the sum stays out of bounds.
const ROW_OUT: u32 = 0x4000_0000;

/// Registers of a workitem that operands of later rows are loaded to. What a tile is multiplied from takes as many, and is not there any more.
const AHEAD: usize = 24;

/// Accesses of the results' walk: operands of the expression, and the output.
struct Accesses {
    args: Vec<Arg>,
    views: Vec<View>,
    /// Their columns, in as few dimensions as all agree on.
    inner: Vec<View>,
    /// So many neighbours of a row go together in all of them: four, two of 64 bits, or one.
    together: u32,
    /// The same where a row does not end among them: rows may begin anywhere.
    within: u32,
}

impl Accesses {
    fn of(cx: &Cx, walk: &Walk) -> Accesses {
        let args: Vec<Arg> = epilogue::operands(cx).into_iter().map(Arg::Input).chain([Arg::Output]).collect();
        let views: Vec<View> = args.iter().map(|a| walk.view(cx.view(*a))).collect();
        let all: Vec<&View> = views.iter().collect();
        let runs = crate::graph::collapse::groups(&all, walk.n_dims.clone());
        let of = |v: &View| {
            let (dims, strides) = crate::graph::collapse::apply(v, &runs);
            View { offset: 0, dims, strides }
        };
        let inner: Vec<View> = views.iter().map(of).collect();
        // Lanes with neighbouring columns of what WMMA leaves store bytes of lines as quickly as words of them, which have to be put together.
        let alone = cx.dtype(Arg::Output).size() == 1 && cx.target.info().wmma.is_some();
        let count = if alone { 1 } else { values::come_together(cx.dtype(Arg::Output)) };
        let lie_together = |(a, v): (&Arg, &View)| {
            matches!(v.strides.last(), Some(0 | 1)) && values::come_together(cx.dtype(*a)) == count
        };
        let in_words = |(a, v): (&Arg, &View)| {
            let t = cx.dtype(*a);
            v.strides.last() == Some(&0) || values::is_word_aligned(t, v) && values::is_word_aligned(t, cx.view(*a))
        };
        let all = || args.iter().zip(&inner);
        let dense = inner.last().and_then(|v| v.strides.last()) == Some(&1) && all().all(lie_together);
        let last = inner[0].dims.last().copied().unwrap_or(1);
        let whole = dense && last.is_multiple_of(count as usize) && all().all(in_words);
        let within = dense && inner[0].rank() == 1;
        let [together, within] = [whole, whole || within].map(|go| if go { count } else { 1 });
        Accesses { args, views, inner, together, within }
    }
}

/// Neighbouring columns of the results are neighbours in memory, but are stored one by one: lanes of a wave should have them
/// side by side.
pub(in crate::kernels) fn stores_apart(cx: &Cx, walk: &Walk) -> bool {
    let all = Accesses::of(cx, walk);
    let dense = all.inner.last().and_then(|v| v.strides.last()) == Some(&1);
    dense && all.together == 1
}

/// Neighbouring columns of the results are stored together.
pub(in crate::kernels) fn stores_together(cx: &Cx, walk: &Walk) -> bool {
    Accesses::of(cx, walk).together > 1
}

/// Offsets of one access.
struct Plan {
    arg: Arg,
    /// Scalar part and constant.
    outer: Offset,
    row_stride: i64,
    /// Vector byte offset of the workitem's first row.
    row: Option<Part>,
    /// What rows of later images add, where a tile may have several.
    gap: Option<Gap>,
    /// Byte offset of each column chunk (first column), out of bounds where the column is; and the constant part of it: where no row ends in a
    /// tile chunks lie so far behind the first one.
    cols: Vec<Offset>,
    col_stride: i64,
    dtype: DType,
}

/// Applies the step's expression to the accumulators, corrected where `levels` are known of their rows, and stores them. `outer` gives an
/// access's offset from everything but rows and columns. Where neighbours go together but for those at the end of a row, the last tiles of rows
/// store one by one, and all others several at a time.
pub(in crate::kernels) fn store(
    w: &mut Writer,
    cx: &Cx,
    of: (&Tile, &Sums),
    walk: &Walk,
    first: (Part, Part),
    levels: Option<(&standardized::Rows, Levels)>,
    mut outer: impl FnMut(&mut Writer, &View, usize) -> Offset,
) -> Res<()> {
    let all = Accesses::of(cx, walk);
    let (together, within) = (all.together, all.within);
    let (tile, columns) = (of.0, walk.columns(cx));
    let of_column = cx.step.kind.of_column() as u32;
    let width = tile.n / of_column;
    let first = if of_column > 1 { (first.0, w.b.udiv(first.1, of_column)) } else { first };
    let vector = matches!(tile.form, Form::Vector { .. });
    if within == together || !vector || levels.is_some() || columns < width as usize {
        let ends = !columns.is_multiple_of(width as usize);
        return store_tile(w, cx, of, (walk, &all), (first, levels), Columns { together, ends }, &mut outer);
    }
    all.args.iter().try_for_each(|arg| w.buffer(cx, *arg).map(|_| ()))?;
    let (last, done) = (w.b.label(), w.b.label());
    let end = w.b.add(first.1, width);
    w.b.branch_lt(columns as u32, end, last);
    store_tile(w, cx, of, (walk, &all), (first, None), Columns { together: within, ends: false }, &mut outer)?;
    w.b.emit(op::S_BRANCH, &[], &[Opnd::Block(done)]);
    w.b.place(last, "last");
    store_tile(w, cx, of, (walk, &all), (first, None), Columns { together, ends: true }, &mut outer)?;
    w.b.place(done, "stored");
    Ok(())
}

/// Columns of a tile.
#[derive(Clone, Copy)]
struct Columns {
    /// So many neighbours are stored together.
    together: u32,
    /// Rows may end among them.
    ends: bool,
}

/// Stores a tile.
fn store_tile(
    w: &mut Writer,
    cx: &Cx,
    (tile, sums): (&Tile, &Sums),
    (walk, Accesses { args, views, inner, .. }): (&Walk, &Accesses),
    (first, levels): ((Part, Part), Option<(&standardized::Rows, Levels)>),
    Columns { together, ends }: Columns,
    outer: &mut impl FnMut(&mut Writer, &View, usize) -> Offset,
) -> Res<()> {
    let regrouped = Rows::of(tile);
    let fragment = regrouped.as_ref().map_or_else(|| tile.fragment(), Rows::fragment);
    let paired = if cx.step.kind.pairs() { Pairs::of(&fragment) } else { None };
    let fragment = paired.as_ref().map_or(fragment, |paired| paired.results.clone());
    let item = w.b.workitem_id();
    let m = fragment::coordinate(&mut w.b, &fragment, item, fragment::row, 1, Some(first.0));
    let n = fragment::coordinate(&mut w.b, &fragment, item, fragment::col, 1, Some(first.1));
    let (m, n) = (w.b.to_vector(m), w.b.to_vector(n));
    let columns = walk.columns(cx);
    let dims = inner[0].dims.clone();
    // Neighbours of a row lie together in registers and in memory.
    let neighbours = |p: u32| fragment.position.get(p as usize).is_some_and(|s| (s.row, s.col) == (0, 1 << p));
    let together = if paired.is_some() { together.min(Gated::GROUP as u32) } else { together };
    let wide = (0..together.trailing_zeros()).all(neighbours);
    // Each group of columns is handled at once: these neighbours, or one.
    let group = if wide { together } else { 1 };
    // Positions of the first row's groups, and of the first column's rows, with what they add to it.
    let all = 0..tile.m * tile.n / tile.threads() / cx.step.kind.of_column() as u32;
    let row_of = |p: &u32| fragment.element(0, *p).0;
    let col_of = |p: &u32| fragment.element(0, *p).1;
    let mut groups: Vec<u32> = all.clone().filter(|p| row_of(p) == 0 && p % group == 0).collect();
    let mut rows: Vec<u32> = all.filter(|p| col_of(p) == 0).collect();
    groups.sort_by_key(col_of);
    rows.sort_by_key(row_of);
    let mut col_coords = Vec::new();
    let mut of_columns = Vec::new();
    for p in &groups {
        let delta = col_of(p);
        let at = if delta > 0 { w.b.add(n, delta) } else { n };
        let inside = ends.then(|| w.b.op(Gen::CmpGt.of(Type::U32), &[(columns as u32).into(), at.into()]));
        let coords = address::coordinates(&mut w.b, at, &dims);
        col_coords.push((coords, inside));
        if let Some((rows, _)) = levels {
            let behind = [0, columns].into_iter().take(cx.step.kind.of_column());
            of_columns.push(behind.map(|behind| rows.columns(w, at, behind, group)).collect::<Res<Vec<_>>>()?);
        }
    }
    let mut plans = Vec::new();
    for (k, &arg) in args.iter().enumerate() {
        let (view, dtype) = (&views[k], cx.dtype(arg));
        let size = dtype.size();
        let mut outer = outer(w, cx.view(arg), size);
        let gap = Gap::of(walk, view, size).and_then(|gap| gap.of_tile(&mut w.b, &mut outer, first.0, tile.m));
        let row_stride = view.strides[walk.m_dim] * size as i64;
        let mut row = (row_stride != 0 && gap.is_none()).then(|| w.b.mul(m, row_stride as i32));
        let col_stride = inner[k].strides.last().copied().unwrap_or(0);
        let guarded = ends && epilogue::has_ends(cx, arg);
        let regular = !ends && dims.len() == 1 && col_stride > 0;
        let mut cols: Vec<Offset> = Vec::new();
        for (p, (coords, inside)) in groups.iter().zip(&col_coords) {
            if let Some(first) = cols.first().filter(|_| regular) {
                cols.push(Offset { imm: col_of(p) * (col_stride * size as i64) as u32, ..*first });
                continue;
            }
            let o = address::offset_of_dims(&mut w.b, &inner[k], size, coords, 0..dims.len(), false);
            let reg = match (o.reg, inside) {
                (reg, Some(mask)) if guarded => {
                    let reg = reg.unwrap_or_else(|| w.b.to_vector(0u32));
                    Some(w.b.guard(*mask, reg))
                }
                (reg, _) => reg,
            };
            cols.push(Offset { reg, imm: 0 });
        }
        // Rows and columns are constants behind the workitem's first result.
        if let Some(of_row) = row.filter(|_| regular && row_stride > 0) {
            let at = join(w, Offset { reg: Some(of_row), imm: 0 }, cols[0], outer.reg.take());
            row = at.reg;
            cols.iter_mut().for_each(|col| col.reg = None);
        }
        plans.push(Plan { arg, outer, row_stride, row, gap, cols, col_stride, dtype });
    }
    let t = cx.step.inputs[0].tensor;
    let t = cx.graph.tensor(t).dtype;
    // Where what is known of the workitem's first row is.
    let pairs = levels.map(|(_, levels)| {
        let at = fragment::coordinate(&mut w.b, &fragment, item, fragment::row, 8 * levels.team, None);
        w.b.to_vector(at)
    });
    let mut turned = regrouped.as_ref().map(|r| r.begin(w));
    if levels.is_some() && matches!(tile.form, Form::Vector { .. }) {
        // Reads do not come early at the price of registers, which waves have few of that sum in them.
        w.b.block("corrected");
    }
    if regrouped.is_some() {
        // What is regrouped is stored while the next results are on their way, in the order in which this is written.
        args.iter().try_for_each(|arg| w.buffer(cx, *arg).map(|_| ()))?;
        w.b.block("rows");
        w.b.fix_order();
    }
    let count = groups.len();
    let mut results = Results { cx, of_all: vec![vec![None; count]; plans.len()], plans, t, group: group as usize };
    let ahead = regrouped.as_ref().map_or(0, |_| results.ahead(count));
    let mut loaded = VecDeque::new();
    let mut later = rows.iter();
    for p in &rows {
        while loaded.len() <= ahead {
            let Some(delta) = later.next().map(row_of) else { break };
            let at = if delta > 0 { w.b.add(m, delta) } else { m };
            let inside = (!walk.rows.is_multiple_of(tile.m as usize))
                .then(|| w.b.op(Gen::CmpGt.of(Type::U32), &[(walk.rows as u32).into(), at.into()]));
            loaded.push_back(results.begin(w, (at, delta as usize, inside), ahead > 0)?);
        }
        let delta = row_of(p);
        if let (Some(rows), Some(turned)) = (&regrouped, &mut turned) {
            rows.reach(w, sums, turned, delta);
        }
        let sums = turned.as_ref().map_or(sums, |t| &t.sums);
        let of_group = |c: &u32| match &paired {
            Some(paired) => paired.positions(p + c).map(|p| sums.slice(p, group)).to_vec(),
            None => vec![sums.slice(p + c, group)],
        };
        let mut row: Vec<Vec<Part>> = groups.iter().map(of_group).collect();
        if let (Some((rows, levels)), Some(pairs)) = (levels, pairs) {
            let pair = w.b.lds_read(2, pairs, levels.pairs + 8 * levels.team * delta);
            for (sums, columns) in row.iter_mut().flatten().zip(of_columns.iter().flatten()) {
                *sums = rows.corrected(w, *sums, pair, columns);
            }
        }
        let begun = loaded.pop_front().expect("a row begins before it is stored");
        results.store(w, begun, &row)?;
    }
    Ok(())
}

/// What is known of the results of a workitem's block while its rows are stored.
struct Results<'a> {
    cx: &'a Cx<'a>,
    plans: Vec<Plan>,
    /// What is the same in all rows, of each access and group of columns.
    of_all: Vec<Vec<Option<Vec<Value>>>>,
    /// The sums' type.
    t: DType,
    /// Columns that go together.
    group: usize,
}

/// A row of a workitem's block that is to be stored.
struct Begun {
    /// Row part of each access's offset.
    rows: Vec<Offset>,
    /// What is on its way already, of each access and group of columns.
    raw: Vec<Vec<Vec<Part>>>,
}

impl Results<'_> {
    /// An operand of which each row has neighbours of its own.
    fn is_loaded_ahead(&self, p: &Plan) -> bool {
        let own = p.row.is_some() || p.gap.is_some();
        matches!(p.arg, Arg::Input(_)) && own && self.group > 1 && p.col_stride == 1
    }

    /// Sums in accumulation registers are the results, and are stored from there.
    fn goes_as_it_is(&self, w: &mut Writer, sums: Part) -> bool {
        let output = self.plans.last().expect("the output is an access");
        let data = w.b.target().op(op::BUFFER_STORE_DWORD).and_then(|i| i.srcs.first());
        let stores = data.is_some_and(|slot| slot.class.contains(Class::AGPR));
        let apart = w.b.function().vreg(sums.reg).class == RegClass::A;
        stores && apart && self.cx.step.expr.is_acc() && output.dtype.size() == 4
    }

    /// Rows, of so many groups of columns, whose operands are loaded while those before are stored.
    fn ahead(&self, groups: usize) -> usize {
        let bytes = |p: &Plan| groups * self.group * p.dtype.size();
        let own: usize = self.plans.iter().filter(|p| self.is_loaded_ahead(p)).map(bytes).sum();
        (AHEAD * 4).checked_div(own).unwrap_or(0)
    }

    /// Where row `at`, which is `delta` rows behind the workitem's first one, has its elements; and loads what can be loaded `early`.
    fn begin(&self, w: &mut Writer, (at, delta, inside): (Part, usize, Option<Part>), early: bool) -> Res<Begun> {
        let mut begun = Begun { rows: Vec::new(), raw: Vec::new() };
        for p in &self.plans {
            let shift = (delta as i64 * p.row_stride) as u32;
            let mut reg = p.row;
            let mut imm = p.outer.imm;
            if let Some(gap) = p.gap {
                reg = Some(gap.of_row(&mut w.b, at, p.row_stride));
            } else if p.row_stride >= 0 {
                imm = imm.wrapping_add(shift);
            } else if let Some(r) = reg {
                reg = Some(w.b.add(r, shift));
            }
            if let Some(mask) = inside.filter(|_| epilogue::has_ends(self.cx, p.arg)) {
                let r = reg.unwrap_or_else(|| w.b.to_vector(0u32));
                let out = w.b.to_vector(ROW_OUT);
                reg = Some(w.b.select(mask, r, out));
            }
            let row = Offset { reg, imm };
            begun.rows.push(row);
            let mut raw = Vec::new();
            if early && self.is_loaded_ahead(p) {
                let buf = w.buffer(self.cx, p.arg)?;
                for col in &p.cols {
                    let at = join(w, row, *col, p.outer.reg);
                    raw.push(values::load_raw(&mut w.b, p.dtype, buf, at, self.group as u32));
                }
            }
            begun.raw.push(raw);
        }
        Ok(begun)
    }

    /// Stores the results of a row, whose sums are there: those of each group of columns, and of what is paired with them.
    fn store(&mut self, w: &mut Writer, Begun { rows, raw }: Begun, row: &[Vec<Part>]) -> Res<()> {
        let (cx, group) = (self.cx, self.group);
        let mut once: Vec<Option<Vec<Value>>> = vec![None; self.plans.len()];
        let (last, output) = self.plans.iter().enumerate().next_back().expect("the output is an access");
        for (g, sums) in row.iter().enumerate() {
            if let [sums] = sums[..]
                && self.goes_as_it_is(w, sums)
            {
                let buf = w.buffer(cx, Arg::Output)?;
                let (v, s, imm) = join(w, rows[last], output.cols[g], output.outer.reg).operands(&mut w.b);
                w.b.store(buf, sums, v, s, imm);
                continue;
            }
            let narrow = output.dtype.size() < 4;
            let of_group = |sums: &Part| {
                // What is stored as wide as it is may stay one tuple.
                let sums = if narrow { *sums } else { in_vectors(w, *sums) };
                let own = sums.len / group as u8;
                let one = |e: u8| Value::of(self.t, in_vectors(w, sums.slice(e * own, own)));
                (0..group as u8).map(one).collect()
            };
            let values: Vec<Vec<Value>> = sums.iter().map(of_group).collect();
            let mut operands: Vec<Vec<Value>> = vec![Vec::new(); cx.step.inputs.len()];
            for (k, p) in self.plans.iter().enumerate() {
                let Arg::Input(i) = p.arg else { continue };
                let same_for_all = p.cols.iter().all(|c| c.reg.is_none() && c.imm == 0);
                let known = if same_for_all { &once[k] } else { &self.of_all[k][g] };
                operands[i] = match (known, raw[k].get(g)) {
                    (Some(v), _) => v.clone(),
                    (None, Some(raw)) => values::elements(&mut w.b, p.dtype, raw, group as u32),
                    (None, None) => load_group(w, cx, p, rows[k], g, group)?,
                };
                if same_for_all {
                    once[k] = Some(operands[i].clone());
                } else if p.row.is_none() && p.gap.is_none() {
                    self.of_all[k][g] = Some(operands[i].clone());
                }
            }
            let mut results = Vec::new();
            for e in 0..group {
                let of = |i: u32| operands[i as usize][e.min(operands[i as usize].len() - 1)];
                let input = |i: u32| values.get(1).filter(|_| i == PAIRED).map_or_else(|| of(i), |paired| paired[e]);
                results.push(expr::eval_sum(&mut w.b, &cx.step.expr, &input, values[0][e])?);
            }
            let buf = w.buffer(cx, Arg::Output)?;
            let at = join(w, rows[last], output.cols[g], output.outer.reg);
            if group == 1 {
                values::store(&mut w.b, output.dtype, buf, at, results[0]);
            } else {
                values::store_some(&mut w.b, output.dtype, buf, at, &results);
            }
        }
        Ok(())
    }
}

/// Loads the elements of an operand that go with one group of columns.
fn load_group(w: &mut Writer, cx: &Cx, p: &Plan, row: Offset, g: usize, group: usize) -> Res<Vec<Value>> {
    let buf = w.buffer(cx, p.arg)?;
    let at = join(w, row, p.cols[g], p.outer.reg);
    if group > 1 && p.col_stride == 1 {
        return Ok(values::load_some(&mut w.b, p.dtype, buf, at, group as u32));
    }
    Ok(vec![values::load(&mut w.b, p.dtype, buf, at)])
}

/// A whole offset: of the row, the column and what is the same for the workgroup.
fn join(w: &mut Writer, row: Offset, col: Offset, outer: Option<Part>) -> Offset {
    let reg = match (row.reg, col.reg) {
        (Some(r), Some(c)) => Some(w.b.add(r, c)),
        (r, c) => r.or(c),
    };
    let reg = match (reg, outer) {
        (Some(v), Some(s)) => Some(w.b.add(v, s)),
        (v, s) => v.or(s),
    };
    Offset { reg, imm: row.imm.wrapping_add(col.imm) }
}
