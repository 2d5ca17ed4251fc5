//! Scatter and its variants, seen from the result: each element looks for the updates that are meant for it, in their
//! order, so that nothing is written twice and equal places are combined the same way in every run. Of few updates it looks
//! at all; many are [sorted](super::ordered) first, or where they replace, the [last one](crate::graph::fused::Lasts) of each place is found first. Those that
//! replace single elements are stored over a copy ([`Scatter`]).

use super::conv::check_size;
use super::few::{self, Few};
use super::ordered::{self, Indices, Updates};
use super::rank::{around, extremum};
use crate::graph::ask::Ask;
use crate::graph::error::{Reason, Res};
use crate::graph::expr::{Node, Op, Scalar, Val};
use crate::graph::fused::{Access, Coder, Scatter, Scattered, StepKind};
use crate::graph::kinds::program::Var;
use crate::graph::lazy::Lazy;
use crate::graph::lower::Lowering;
use crate::graph::resolve::ValueId;
use crate::graph::view::View;
use crate::tensor::{DType, HostTensor};

/// So many rows that replace others are looked at in front of each element: fewer launches are sooner done.
const FEW_ROWS: usize = 4;

/// What an update does to what is there.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Combine {
    Replace,
    Add,
    Mul,
    Max,
    Min,
}

impl Combine {
    fn read(cx: &Lowering<'_>) -> Res<Combine> {
        Ok(match cx.text("reduction", "none")? {
            "none" => Combine::Replace,
            how if cx.dtype(cx.input(0)?) == DType::Str => {
                return Err(Reason::attribute(
                    "reduction",
                    format!("is `{how}`, of strings; they can be replaced only"),
                ));
            }
            "add" => Combine::Add,
            "mul" => Combine::Mul,
            "max" => Combine::Max,
            "min" => Combine::Min,
            other => {
                return Err(Reason::attribute(
                    "reduction",
                    format!("is `{other}`; none, add, mul, max and min are supported"),
                ));
            }
        })
    }

    pub(super) fn apply(self, c: &mut Coder, old: Val, update: Val) -> Val {
        match self {
            Combine::Replace => update,
            Combine::Add => c.add(old, update),
            Combine::Mul => c.mul(old, update),
            Combine::Max => extremum(c, true, old, update),
            Combine::Min => extremum(c, false, old, update),
        }
    }

    /// The same of a variable, where an update is for it.
    fn update(self, c: &mut Coder, var: Var, update: Val, hit: Val) {
        let update = held(c, update);
        let old = c.get(var);
        let new = self.apply(c, old, update);
        let new = c.select(hit, new, old);
        c.set(var, new);
    }

    /// What a held value is after those of so many updates that go to its place; `read` tells where each goes and what it is.
    pub(super) fn all(
        self,
        c: &mut Coder,
        (old, place): (Val, Val),
        turns: (usize, usize),
        read: impl Fn(&mut Coder, Val) -> [Val; 2],
    ) -> Val {
        let now = c.var(old);
        in_turn(c, turns, read, |c, _, [to, update]| {
            let hit = c.eq(to, place);
            self.update(c, now, update, hit);
        });
        c.get(now)
    }
}

/// Updates whose memory is on its way together.
const TOGETHER: usize = 8;

/// Numbers below `count` in turn, each with what is read for it: so many are read before the first one is used.
pub(super) fn in_turn<T>(
    c: &mut Coder,
    (count, together): (usize, usize),
    read: impl Fn(&mut Coder, Val) -> T,
    used: impl Fn(&mut Coder, Val, T),
) {
    let some = |c: &mut Coder, first: Val, count: usize| {
        let numbers: Vec<Val> = (0..count as i64).map(|i| c.plus(first, i)).collect();
        let known: Vec<T> = numbers.iter().map(|u| read(c, *u)).collect();
        numbers.into_iter().zip(known).for_each(|(u, x)| used(c, u, x));
    };
    c.repeat(count / together, |c, round| {
        let first = c.times(round, together as i64);
        some(c, first, together);
    });
    let rest = count % together;
    let first = c.int((count - rest) as i64);
    some(c, first, rest);
}

fn same_types(cx: &Lowering<'_>, data: ValueId, updates: ValueId, indices: ValueId) -> Res<()> {
    super::gather::check_index(cx, indices)?;
    let (a, b) = (cx.dtype(data), cx.dtype(updates));
    if a == b {
        Ok(())
    } else {
        Err(Reason::Type(format!("data of type {a} and updates of type {b}; they must be equal")))
    }
}

/// Booleans are variables as bytes.
pub(super) fn held(c: &mut Coder, x: Val) -> Val {
    if c.type_of(x) == crate::tensor::DType::Bool { c.cast(x, crate::tensor::DType::U8) } else { x }
}

pub(super) fn elements(cx: &mut Lowering<'_>) -> Res<()> {
    let (x, index, updates) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    same_types(cx, x, updates, index)?;
    let (shape, idx, dtype) = (cx.shape(x).to_vec(), cx.shape(index).to_vec(), cx.dtype(x));
    let axis = cx.axis(cx.int("axis", 0)?, shape.len())?;
    let how = Combine::read(cx)?;
    if idx.len() != shape.len() || cx.shape(updates) != idx || (0..idx.len()).any(|d| d != axis && idx[d] > shape[d]) {
        return Err(Reason::Shape(format!("indices of shape {idx:?} do not fit data of shape {shape:?}")));
    }
    if idx.contains(&0) || shape.contains(&0) {
        cx.pass(0, x);
        return Ok(());
    }
    let (table, lines) = narrowed(cx, index, axis);
    // A number of each element may be held for a while, and bits.
    let bytes = [(&shape, dtype.size().max(5)), (&idx, 8)].map(|(dims, each)| dims.iter().product::<usize>() * each);
    let small = bytes.iter().all(|b| *b < crate::graph::LARGEST);
    let many = ordered::many(idx[axis], shape.iter().product());
    // Updates of single elements find out by themselves which of them are for one place, where it is not nearly all of them.
    let alone = many && lines == idx && (few::LOOKED_AT + 1..=shape[axis]).contains(&idx[axis]);
    if how == Combine::Replace
        && (Scatter::has_many_lines(&idx, axis) && idx[axis] > TOGETHER || alone)
        && small
        && everywhere(&cx.lazy(x)).is_none()
    {
        let mut places = table;
        (0..idx.len()).filter(|d| lines[*d] < idx[*d]).for_each(|d| places.view.strides[d] = 0);
        places.view.dims.clone_from(&idx);
        let [data, updates] = [x, updates].map(|v| cx.operand_if(v, View::is_dense));
        let y = cx.produce(
            StepKind::Scatter(Scatter { axis, apart: false, made: None }),
            vec![data, places, updates],
            &shape,
            dtype,
        );
        let y = cx.stored(y);
        cx.set(0, y);
        return Ok(());
    }
    if many {
        let indices = Indices { table, lines: lines.clone(), axis, extents: vec![shape[axis]] };
        if everywhere(&cx.lazy(x)).is_none() {
            let [data, updates] = [x, updates].map(|v| cx.operand_if(v, View::is_dense));
            let few = Few { data, shape: shape.clone(), updates, dims: idx.clone(), indices: indices.clone() };
            if few.is_worth(how) {
                let y = few.apply(cx, how);
                cx.set(0, y);
                return Ok(());
            }
        }
        let (data, updates) = (given(cx, x), cx.operand_if(updates, View::is_dense));
        let y = Updates { data, shape, axis, updates, dims: idx, lines }.by_indices(cx, &indices, how);
        cx.set(0, y);
        return Ok(());
    }
    let [data, updates] = [x, updates].map(|v| cx.operand_if(v, View::is_dense));
    let y = cx.program(vec![data, table, updates], &shape, |c| {
        let at: Vec<Val> = (0..shape.len()).map(|d| c.coord(d)).collect();
        let here = c.place(&at, &shape);
        let old = c.load(0, here);
        let old = held(c, old);
        let now = c.var(old);
        // Other coordinates beyond those of the indices get no updates.
        let mut covered = None;
        for d in (0..shape.len()).filter(|d| *d != axis && idx[*d] < shape[*d]) {
            let inside = c.within(at[d], 0, idx[d] as i64);
            covered = Some(covered.map_or(inside, |m| c.and(m, inside)));
        }
        let read = |c: &mut Coder, operand: usize, place: Val| match covered {
            Some(_) => c.load_checked(operand, place),
            None => c.load(operand, place),
        };
        let update = |c: &mut Coder, j: Val| {
            let mut from = at.clone();
            from[axis] = j;
            let place = ordered::place(c, &from, &lines);
            let target = read(c, 1, place);
            let place = c.place(&from, &idx);
            [target, read(c, 2, place)]
        };
        in_turn(c, (idx[axis], TOGETHER), update, |c, _, [target, update]| {
            let target = c.cast(target, DType::I32);
            let target = c.wrapped(target, shape[axis]);
            let mut hit = c.eq(target, at[axis]);
            if let Some(m) = covered {
                hit = c.and(hit, m);
            }
            how.update(c, now, update, hit);
        });
        let result = c.get(now);
        c.cast(result, dtype)
    });
    cx.set(0, y);
    Ok(())
}

/// What a value is everywhere, where that is known of it.
fn everywhere(lazy: &Lazy) -> Option<Scalar> {
    match lazy.expr.nodes() {
        [Node { op: Op::Const(fill), .. }] if lazy.base.is_none() && lazy.inputs.is_empty() => Some(*fill),
        _ => None,
    }
}

/// A tensor, or what all of it is.
fn given(cx: &mut Lowering<'_>, v: ValueId) -> Result<Access, Scalar> {
    everywhere(&cx.lazy(v)).map_or_else(|| Ok(cx.operand_if(v, View::is_dense)), Err)
}

/// Indices along an axis, densely, and their dimensions: 1 where all along another dimension are the same.
fn narrowed(cx: &mut Lowering<'_>, index: ValueId, axis: usize) -> (Access, Vec<usize>) {
    let mut dims = cx.shape(index).to_vec();
    if let Some(t) = cx.constant(index) {
        let mut list = t.to_i64();
        for d in (0..dims.len()).filter(|d| *d != axis) {
            let [_, n, inner] = around(&dims, d);
            if list.chunks(n * inner).all(|block| block.chunks(inner).all(|line| *line == block[..inner])) {
                list = list.chunks(n * inner).flat_map(|block| block[..inner].to_vec()).collect();
                dims[d] = 1;
            }
        }
        let table = cx.add_const("indices".into(), HostTensor::from_i64(&dims, &list));
        return (Access::new(table, View::dense(&dims)), dims);
    }
    let index = cx.plain(index);
    let same = |a: &Access, d: usize| {
        a.guard.is_none() && a.view.strides[d] == 0 && a.indirect.iter().all(|i| i.view.strides[d] == 0)
    };
    let repeated = |d: &usize| *d != axis && dims[*d] > 1 && index.inputs.iter().all(|a| same(a, *d));
    let cuts: Vec<_> = (0..dims.len()).filter(repeated).map(|d| (d, 0, 1, 1)).collect();
    cuts.iter().for_each(|cut| dims[cut.0] = 1);
    let index = super::layout::sliced(cx, &index, &cuts);
    (cx.operand_of(index, View::is_dense), dims)
}

pub(super) fn nd(cx: &mut Lowering<'_>) -> Res<()> {
    let (x, index, updates) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    same_types(cx, x, updates, index)?;
    let (shape, idx, dtype) = (cx.shape(x).to_vec(), cx.shape(index).to_vec(), cx.dtype(x));
    let how = Combine::read(cx)?;
    let Some((&k, lead)) = idx.split_last() else { return Err(Reason::Shape("the indices are a scalar".into())) };
    let count: usize = lead.iter().product();
    if k == 0 || k > shape.len() || cx.shape(updates) != [lead, &shape[k..]].concat() {
        return Err(Reason::Shape(format!(
            "indices of shape {idx:?} and updates of shape {:?} do not fit data of shape {shape:?}",
            cx.shape(updates)
        )));
    }
    if count == 0 || shape.contains(&0) {
        cx.pass(0, x);
        return Ok(());
    }
    if how == Combine::Replace
        && let Some(y) = super::assigned::slice(cx, [x, index, updates])?
    {
        cx.set(0, y);
        return Ok(());
    }
    let (rows, inner): (usize, usize) = (shape[..k].iter().product(), shape[k..].iter().product());
    let row_dims = &shape[..k];
    let [table, values] = [index, updates].map(|v| cx.operand_if(v, View::is_dense));
    // One search for what replaces serves a whole row: it may take twice as many.
    let (looks, looking) = if how == Combine::Replace { (count / 2, rows) } else { (count, rows * inner) };
    if ordered::many(looks, looking) {
        let (whole, dims, lines) = (vec![rows, inner], vec![count, inner], vec![count, 1]);
        let indices = Indices { table, lines: lines.clone(), axis: 0, extents: row_dims.to_vec() };
        if everywhere(&cx.lazy(x)).is_none() {
            let data = cx.operand_if(x, View::is_dense);
            let [data, updates] = [(data, &whole), (values.clone(), &dims)]
                .map(|(a, dims)| Access { view: a.view.reshaped(dims).unwrap_or_else(|| View::dense(dims)), ..a });
            let few = Few { data, shape: whole.clone(), updates, dims: dims.clone(), indices: indices.clone() };
            if few.is_worth(how) {
                let y = few.apply(cx, how);
                cx.set(0, y.reshaped(&shape));
                return Ok(());
            }
        }
        let data = given(cx, x);
        let y = Updates { data, shape: whole, axis: 0, updates: values, dims, lines }.by_indices(cx, &indices, how);
        cx.set(0, y.reshaped(&shape));
        return Ok(());
    }
    let data = cx.operand_if(x, View::is_dense);
    // The row that update `u` is for.
    let target = |c: &mut Coder, operand: usize, u: Val| ordered::target(c, operand, u, row_dims);
    let y = if how == Combine::Replace && count > FEW_ROWS {
        // The last update of each row, perhaps found for another scatter, then one read.
        let lines = vec![count, 1];
        let last = last_updates(cx, Indices { table, lines: lines.clone(), axis: 0, extents: row_dims.to_vec() });
        let updates = Updates {
            data: Ok(data),
            shape: vec![rows, inner],
            axis: 0,
            updates: values,
            dims: vec![count, inner],
            lines,
        };
        updates.replace(cx, last)
    } else {
        cx.program(vec![data, table, values], &[rows, inner], |c| {
            let (row, i) = (c.coord(0), c.coord(1));
            let place = c.place(&[row, i], &[rows, inner]);
            let old = c.load(0, place);
            let old = held(c, old);
            let update = |c: &mut Coder, u: Val| {
                let to = target(c, 1, u);
                let place = c.place(&[u, i], &[count, inner]);
                [to, c.load(2, place)]
            };
            let result = how.all(c, (old, row), (count, TOGETHER), update);
            c.cast(result, dtype)
        })
    };
    cx.set(0, y.reshaped(&shape));
    Ok(())
}

/// The last update of each row by its indices, -1 where there is none.
fn last_updates(cx: &mut Lowering<'_>, indices: Indices) -> Access {
    if let Some((_, last)) = cx.lasts.iter().find(|(other, _)| other.is_same(&indices, cx)) {
        return last.clone();
    }
    let Indices { table, lines, extents, .. } = &indices;
    let last = cx.program(vec![table.clone()], &[extents.iter().product()], |c| {
        let row = c.coord(0);
        let none = c.int(-1);
        let found = c.var(none);
        in_turn(
            c,
            (lines[0], TOGETHER),
            |c, u| ordered::target(c, 0, u, extents),
            |c, u, to| {
                let hit = c.eq(to, row);
                let old = c.get(found);
                let new = c.select(hit, u, old);
                c.set(found, new);
            },
        );
        c.get(found)
    });
    let last = cx.stored_access(last);
    cx.lasts.push((indices, last.clone()));
    last
}

/// A cache of which one stretch of an axis, at another place for each batch, is replaced.
pub(super) fn tensor_scatter(cx: &mut Lowering<'_>) -> Res<()> {
    let (cache, update) = (cx.input(0)?, cx.input(1)?);
    let (shape, new) = (cx.shape(cache).to_vec(), cx.shape(update).to_vec());
    let axis = cx.axis(cx.int("axis", -2)?, shape.len())?;
    let circular = match cx.text("mode", "linear")? {
        "linear" => false,
        "circular" => true,
        other => return Err(Reason::attribute("mode", format!("is `{other}`; linear and circular are supported"))),
    };
    if axis == 0
        || new.len() != shape.len()
        || (0..shape.len()).any(|d| d != axis && new[d] != shape[d])
        || new[axis] > shape[axis]
    {
        return Err(Reason::Shape(format!("an update of shape {new:?} does not fit a cache of shape {shape:?}")));
    }
    if new.contains(&0) {
        cx.pass(0, cache);
        return Ok(());
    }
    check_size(&shape)?;
    let old = Cache::of(cx, cache, axis);
    let mut operands: Vec<Access> =
        [cx.operand_if(update, View::is_dense)].into_iter().chain(old.held.clone()).collect();
    let starts = cx.optional(2);
    if let Some(v) = starts {
        super::gather::check_index(cx, v)?;
        if cx.shape(v) != [shape[0]] {
            return Err(Reason::Shape(format!("input 2 has shape {:?}, not [{}]", cx.shape(v), shape[0])));
        }
        operands.push(cx.operand_if(v, View::is_dense));
    }
    let last = operands.len() - 1;
    let zeros = matches!(old.fill, Scalar::Float(x) if x == 0.0) || old.fill == Scalar::Int(0);
    let y = cx.program(operands, &shape, |c| {
        if starts.is_some() && old.held.is_some() && zeros && !circular {
            c.scatters(Scattered { axis, start: last });
        }
        let mut at: Vec<Val> = (0..shape.len()).map(|d| c.coord(d)).collect();
        let old = old.load(c, &at, axis);
        let start = match starts {
            Some(_) => c.load_int(last, at[0]),
            None => c.int(0),
        };
        let mut from = c.sub(at[axis], start);
        if circular {
            from = c.wrapped(from, shape[axis]);
        }
        let inside = c.within(from, 0, new[axis] as i64);
        at[axis] = c.clamp(from, 0, new[axis] as i64);
        let place = c.place(&at, &new);
        let fresh = c.load(0, place);
        c.select(inside, fresh, old)
    });
    cx.set(0, y);
    Ok(())
}

/// What a cache holds before: a tensor, perhaps of less room along the axis, and a number behind it.
struct Cache {
    /// The tensor; none where the number is all.
    held: Option<Access>,
    dtype: DType,
    dims: Vec<usize>,
    /// Extent along the axis that is asked for.
    room: usize,
    fill: Scalar,
}

impl Cache {
    /// Padding behind a tensor is not stored.
    fn of(cx: &mut Lowering<'_>, v: ValueId, axis: usize) -> Cache {
        let (dtype, dims) = (cx.dtype(v), cx.shape(v).to_vec());
        let room = dims[axis];
        let lazy = cx.lazy(v);
        if let Some(fill) = everywhere(&lazy) {
            return Cache { held: None, dtype, dims, room, fill };
        }
        if let Some(Lazy { base: None, inputs, expr, .. }) = lazy.plain()
            && expr.is_copy()
            && let [Access { tensor, view, guard: Some(guard), indirect }] = &inputs[..]
        {
            let mut held = dims.clone();
            held[axis] = guard.ranges[axis].1;
            let whole = |d: usize| guard.ranges[d] == (0, held[d]);
            let lies = View::dense(&held);
            if (0..held.len()).all(whole) && indirect.is_empty() && view.offset == 0 && view.strides == lies.strides {
                let fill = guard.fill;
                return Cache { held: Some(Access::new(*tensor, lies)), dtype, dims: held, room, fill };
            }
        }
        let held = Some(cx.operand_if(v, View::is_dense));
        Cache { held, dtype, dims, room, fill: Scalar::of(dtype, 0.0) }
    }

    /// The element at coordinates; what is held is operand 1.
    fn load(&self, c: &mut Coder, at: &[Val], axis: usize) -> Val {
        let fill = match self.fill {
            Scalar::Float(x) => c.constant(self.dtype, x),
            Scalar::Int(x) => c.constant(self.dtype, x as f64),
        };
        if self.held.is_none() {
            return fill;
        }
        let held = self.dims[axis];
        let mut at = at.to_vec();
        let inside = (held < self.room).then(|| c.within(at[axis], 0, held as i64));
        if inside.is_some() {
            at[axis] = c.clamp(at[axis], 0, held as i64);
        }
        let place = c.place(&at, &self.dims);
        let old = c.load(1, place);
        inside.map_or(old, |inside| c.select(inside, old, fill))
    }
}

/// The inverse of a max pooling that gave indices.
pub(super) fn max_unpool(cx: &mut Lowering<'_>) -> Res<()> {
    let (x, index) = (cx.input(0)?, cx.input(1)?);
    let (shape, dtype) = (cx.shape(x).to_vec(), cx.dtype(x));
    super::gather::check_index(cx, index)?;
    if shape.len() < 3 || cx.shape(index) != shape {
        return Err(Reason::Shape(format!("data of shape {shape:?} and indices of shape {:?}", cx.shape(index))));
    }
    let frame = super::conv::Frame::read(cx, shape.len() - 2, None)?;
    let (begin, end) = frame.padding(&shape[2..]);
    let extent = |d: usize| ((shape[2 + d] - 1) * frame.strides[d] + frame.kernel[d]).saturating_sub(begin[d] + end[d]);
    let own: Vec<usize> = shape[..2].iter().copied().chain((0..shape.len() - 2).map(extent)).collect();
    let out = match cx.optional(2) {
        Some(_) => super::source::to_shape(&cx.const_ints(2, "the output shape")?)?,
        None => own.clone(),
    };
    if out.len() != shape.len() || out[..2] != shape[..2] || shape.contains(&0) || out.contains(&0) {
        return Err(Reason::Shape(format!("data of shape {shape:?} does not unpool to {out:?}")));
    }
    check_size(&out)?;
    // Indices count elements of the tensor that was pooled, which a larger output shape embeds.
    let [planes, n] = [shape[0] * shape[1], shape[2..].iter().product()];
    let area: usize = own[2..].iter().product();
    let operands = [x, index].map(|v| cx.operand_if(v, View::is_dense));
    let full: usize = out[2..].iter().product();
    if ordered::many(n, planes * full) {
        let [updates, table] = operands;
        let lines = vec![planes, n];
        let places = cx.program(vec![table], &lines, |c| {
            let (plane, i) = (c.coord(0), c.coord(1));
            let at = c.place(&[plane, i], &lines);
            let index = c.load_int(0, at);
            let base = c.times(plane, area as i64);
            let mut rest = c.sub(index, base);
            let inside = c.within(rest, 0, area as i64);
            rest = c.clamp(rest, 0, area as i64);
            let mut coords = Vec::new();
            for d in (2..out.len()).rev() {
                let (q, r) = c.divide(rest, own[d]);
                rest = q;
                coords.insert(0, r);
            }
            // The result may have less room in one dimension, too.
            let fits = coords.iter().zip(&out[2..]).fold(inside, |m, (i, n)| {
                let fits = c.within(*i, 0, *n as i64);
                c.and(m, fits)
            });
            let place = c.place(&coords, &out[2..]);
            let none = c.int(full as i64);
            c.select(fits, place, none)
        });
        let places = cx.stored_access(places);
        let last = ordered::lasts(cx, places, &lines, 1, full);
        let (data, shape, dims) = (Err(Scalar::of(dtype, 0.0)), vec![planes, full], lines.clone());
        let y = Updates { data, shape, axis: 1, updates, dims, lines }.replace(cx, last);
        cx.set(0, y.reshaped(&out));
        return Ok(());
    }
    let y = cx.program(operands.to_vec(), &[planes, full], |c| {
        let (plane, place) = (c.coord(0), c.coord(1));
        // Where this element is in the tensor that was pooled.
        let (mut rest, mut coords, mut inside) = (place, Vec::new(), None);
        for d in (2..out.len()).rev() {
            let (q, r) = c.divide(rest, out[d]);
            rest = q;
            let m = c.within(r, 0, own[d] as i64);
            inside = Some(inside.map_or(m, |i| c.and(i, m)));
            coords.insert(0, r);
        }
        let same = if out[2..] == own[2..] { place } else { c.place(&coords, &own[2..]) };
        let base = c.times(plane, area as i64);
        let wanted = c.add(base, same);
        let zero = c.constant(dtype, 0.0);
        let found = c.var(zero);
        c.repeat(n, |c, i| {
            let at = c.place(&[plane, i], &[planes, n]);
            let target = c.load_int(1, at);
            let mut hit = c.eq(target, wanted);
            if let Some(m) = inside {
                hit = c.and(hit, m);
            }
            let value = c.load(0, at);
            let old = c.get(found);
            let new = c.select(hit, value, old);
            c.set(found, new);
        });
        c.get(found)
    });
    cx.set(0, y.reshaped(&out));
    Ok(())
}
