//! Attention over a cache in blocks, as onnxruntime's PagedAttention has it: tokens of several sequences follow each other without
//! padding, and a table tells for each sequence which blocks hold its keys and values. Lengths and tables, and with them all places,
//! are known to a run only.
//!
//! Tokens of one sequence attend together, so many at most, to the keys in the blocks of its row of the table. In which row of the cache each of these
//! lies is computed first; kernels may look that up ([`read_by_tables`](crate::graph::read_by_tables)), or copies of them follow each other.
//! How many groups of tokens there are is bounded by the numbers of tokens and sequences, whatever the lengths are: with hardly more
//! tokens than sequences, as while all of them decode, each token is a group. Entries that name no block are hidden, whatever lies there.

use super::attention::{scores, weighted};
use super::scatter::in_turn;
use super::source::counted;
use crate::graph::ask::Ask;
use crate::graph::dim::{Dim, described};
use crate::graph::error::{Reason, Res};
use crate::graph::expr::{Binary, Scalar, Val};
use crate::graph::fused::{Access, Coder, Indirect, MadeUpdates, Scatter, StepKind};
use crate::graph::infer::Inference;
use crate::graph::lazy::{Lazy, reshape_access};
use crate::graph::lower::{Lowering, splat};
use crate::graph::resolve::ValueId;
use crate::graph::view::View;
use crate::tensor::DType;

/// Reading a key for a group takes as long as so many of its tokens take to attend to it.
const READING: usize = 112;

/// Ends of sequences that are read together.
const TOGETHER: usize = 8;

/// Places are counted in 32 bits.
fn countable(n: Option<usize>, what: &str) -> Res<usize> {
    n.filter(|n| i32::try_from(*n).is_ok())
        .ok_or_else(|| Reason::Size(format!("too many {what} for places of 32 bits")))
}

/// Row `i` of a stored `[n, length]` as a list.
fn row(whole: &Access, i: usize, length: usize, dtype: DType) -> Lazy {
    let view = View { offset: (i * length) as i64, dims: vec![length], strides: vec![1] };
    Lazy::read(Access::new(whole.tensor, view), dtype)
}

/// Where tokens are: in their sequence, the last key there that each may see, their sequence's number, and in the cache as rows of
/// one key each; and where tokens attend one by one, in which row each key of its sequence lies that a token sees. What is nowhere has -1, or one
/// behind the last row of the cache; inputs are anything that has a row for each token, running sums
/// of the sequences' lengths, how many keys each has had, the table, the cache and perhaps where keys go.
pub(super) fn token_places(cx: &mut Lowering<'_>) -> Res<()> {
    let [ends, past, table, cache] = [cx.input(1)?, cx.input(2)?, cx.input(3)?, cx.input(4)?];
    let (tokens, causal) = (cx.result(0)[0], cx.int("is_causal", 1)? != 0);
    let (&[batch, width], &[blocks, block, ..]) = (cx.shape(table), cx.shape(cache)) else {
        return Err(Reason::Shape("the table and the cache have other ranks".into()));
    };
    if [batch, width, blocks, block].contains(&0) {
        return Err(Reason::Shape(format!(
            "a table of shape [{batch}, {width}] for {blocks} blocks of {block}; none of them may be 0"
        )));
    }
    let lists = [(1, ends, batch + 1), (2, past, batch)].into_iter().chain(cx.optional(5).map(|v| (5, v, tokens)));
    for (i, v, length) in lists {
        if cx.shape(v) != [length] {
            return Err(Reason::Shape(format!(
                "input {i} has shape {:?}, not [{length}], for {tokens} tokens and a table of {batch} rows",
                cx.shape(v)
            )));
        }
    }
    let keys = countable(width.checked_mul(block), "keys of a sequence")?;
    let rows = countable(blocks.checked_mul(block), "keys of the cache")?;
    if tokens == 0 {
        (0..4).for_each(|i| cx.set(i, splat(DType::I32, &[0], Scalar::Int(0))));
        cx.set(4, splat(DType::I32, &[0, keys], Scalar::Int(0)));
        return Ok(());
    }
    let (told, window) = (cx.optional(5), window(cx)?);
    let operands = [Some(ends), Some(past), Some(table), told].into_iter().flatten();
    let operands = operands.map(|v| cx.operand_if(v, View::is_dense)).collect();
    // Four lists, and behind them a row of the table for each token that is a group.
    let alone = grouped(tokens, batch).1 == 1;
    let lists = 4 * tokens;
    let all = countable(keys.checked_mul(if alone { tokens } else { 0 }).and_then(|n| n.checked_add(lists)), "keys")?;
    let all = cx.program(operands, &[all], |c| {
        let number = c.coord(0);
        let of_lists = c.int(lists as i64);
        let of_lists = c.lt(number, of_lists);
        let last_of_lists = c.clamp(number, 0, lists as i64);
        let (what, mut token) = c.divide(last_of_lists, tokens);
        let zero = c.int(0);
        let mut key = zero;
        if alone {
            let behind = c.plus(number, -(lists as i64));
            let behind = c.binary(Binary::Max, behind, zero);
            let (of_row, of_key) = c.divide(behind, keys);
            token = c.select(of_lists, token, of_row);
            key = of_key;
        }
        let sequence = sequence_of(c, token, batch);
        let (start, end, had) = (c.load_int(0, sequence), end_of(c, sequence), c.load_int(1, sequence));
        let step = c.sub(token, start);
        let own = c.add(had, step);
        let none = c.int(-1);
        let (length, all) = (c.sub(end, start), c.int(keys as i64));
        let tests = [c.le(zero, had), c.le(zero, step), c.lt(step, length), c.le(zero, own), c.lt(own, all)];
        let real = tests.into_iter().reduce(|a, b| c.and(a, b)).expect("there are tests");
        let last = if causal {
            own
        } else {
            let after = c.add(had, length);
            let last = c.plus(after, -1);
            let end = c.int(keys as i64 - 1);
            c.binary(Binary::Min, last, end)
        };
        // The row of the token's own key, or of the one that is asked for.
        let at = c.select(of_lists, own, key);
        let inside = c.clamp(at, 0, keys as i64);
        let (of_row, offset) = c.divide(inside, block);
        let at = c.place(&[sequence, of_row], &[batch, width]);
        let entry = c.load_int(2, at);
        let (known, held) = (c.within(entry, 0, blocks as i64), c.clamp(entry, 0, blocks as i64));
        let row = c.place(&[held, offset], &[blocks, block]);
        let row = c.select(known, row, none);
        let slot = if told.is_some() { c.load_int(3, token) } else { row };
        let (inside, nowhere) = (c.within(slot, 0, rows as i64), c.int(rows as i64));
        let goes = c.and(real, inside);
        let slot = c.select(goes, slot, nowhere);
        let (own, last) = (c.select(real, own, none), c.select(real, last, none));
        let mut result = slot;
        for (i, x) in [own, last, sequence].into_iter().enumerate() {
            let number = c.int(i as i64);
            let asked = c.eq(what, number);
            result = c.select(asked, x, result);
        }
        if !alone {
            return result;
        }
        let first = first_seen(c, window, own);
        let (behind, before) = (c.le(first, key), c.le(key, last));
        let seen = c.and(behind, before);
        let row = c.select(seen, row, none);
        c.select(of_lists, result, row)
    });
    let all = cx.stored_access(all);
    (0..4).for_each(|i| cx.set(i, row(&all, i, tokens, DType::I32)));
    let lines = if alone {
        let view = View { offset: lists as i64, dims: vec![tokens, keys], strides: vec![keys as i64, 1] };
        Lazy::read(Access::new(all.tensor, view), DType::I32)
    } else {
        splat(DType::I32, &[tokens, keys], Scalar::Int(-1))
    };
    cx.set(4, lines);
    Ok(())
}

/// How far back a token sees, if not everything.
fn window(cx: &Lowering<'_>) -> Res<Option<i64>> {
    Ok(Some(cx.int("local_window_size", -1)?).filter(|w| *w > 0))
}

/// Where a sequence ends, by the sums in operand 0.
fn end_of(c: &mut Coder, sequence: Val) -> Val {
    let next = c.plus(sequence, 1);
    c.load_int(0, next)
}

/// The sequence of a token, by the sums in operand 0: so many have ended before it.
fn sequence_of(c: &mut Coder, token: Val, batch: usize) -> Val {
    let others = batch - 1;
    let zero = c.int(0);
    let ended = c.var(zero);
    if others <= 2 * TOGETHER {
        in_turn(c, (others, TOGETHER), end_of, |c, _, end| {
            let now = c.get(ended);
            let (behind, next) = (c.le(end, token), c.plus(now, 1));
            let now = c.select(behind, next, now);
            c.set(ended, now);
        });
        return c.get(ended);
    }
    let all = c.int(others as i64);
    let most = c.var(all);
    c.repeat(others.ilog2() as usize + 1, |c, _| {
        let (from, to) = (c.get(ended), c.get(most));
        let sum = c.add(from, to);
        let (middle, _) = c.divide(sum, 2);
        let held = c.clamp(middle, 0, others as i64);
        let end = end_of(c, held);
        let (behind, open, next) = (c.le(end, token), c.lt(from, to), c.plus(middle, 1));
        let next = c.select(behind, next, from);
        let from = c.select(open, next, from);
        let to = c.select(behind, to, middle);
        c.set(ended, from);
        c.set(most, to);
    });
    c.get(ended)
}

/// The first key that a token at a place sees.
fn first_seen(c: &mut Coder, window: Option<i64>, own: Val) -> Val {
    let zero = c.int(0);
    window.map_or(zero, |window| {
        let first = c.plus(own, 1 - window);
        c.binary(Binary::Max, first, zero)
    })
}

/// A cache `[rows, ..]` with new keys or values `[tokens, ..]` in it, each in another row, or in none where the number of that, `[tokens, 1]`, is of none.
pub(super) fn written(cx: &mut Lowering<'_>) -> Res<()> {
    let [cache, slots, new] = [cx.input(0)?, cx.input(1)?, cx.input(2)?];
    let (shape, dtype) = (cx.shape(cache).to_vec(), cx.dtype(cache));
    let count = cx.shape(new).first().copied().unwrap_or(0);
    if cx.dtype(new) != dtype || cx.shape(new).get(1..) != shape.get(1..) || cx.shape(slots) != [count, 1] {
        return Err(Reason::Shape(format!(
            "{} new ones of shape {:?} do not fit a cache of {dtype}{shape:?}",
            cx.dtype(new),
            cx.shape(new)
        )));
    }
    if count == 0 || shape.contains(&0) {
        cx.pass(0, cache);
        return Ok(());
    }
    if shape.iter().product::<usize>().saturating_mul(dtype.size()) >= crate::graph::LARGEST {
        return super::scatter::nd(cx);
    }
    let mut lazy = cx.without_base(new);
    let dims = |lazy: &Lazy| if count == 1 { [&[1], &lazy.grid[..]].concat() } else { lazy.grid.clone() };
    if dims(&lazy).first() != Some(&count) || lazy.inputs.is_empty() {
        lazy = cx.stored(lazy);
    }
    let updates = dims(&lazy);
    let whole = [&shape[..1], &updates[1..]].concat();
    let data = Access { view: View::dense(&whole), ..cx.operand_if(cache, |v| v.is_dense() && v.offset == 0) };
    let places = cx.operand_if(slots, View::is_dense);
    let strides = (0..updates.len()).map(|d| i64::from(d == 0)).collect();
    let places = Access::new(places.tensor, View { offset: places.view.offset, dims: updates.clone(), strides });
    let of = |a: &Access| reshape_access(a, &updates).expect("inserting an extent of 1 is always possible");
    let inputs: Vec<Access> = [data, places].into_iter().chain(lazy.inputs.iter().map(of)).collect();
    let plain = lazy.expr.is_copy() && lazy.inputs.len() == 1 && lazy.inputs[0].is_plain();
    let expr = lazy.expr.map_inputs(|i| i + 2);
    let made = (!plain).then_some(MadeUpdates { expr, operands: lazy.inputs.len() });
    let mut y = cx.produce(StepKind::Scatter(Scatter { axis: 0, apart: true, made }), inputs, &whole, dtype);
    y.nodes = lazy.nodes.iter().copied().chain(y.nodes).collect();
    y.nodes.dedup();
    let y = cx.stored(y);
    cx.set(0, y.reshaped(&shape));
    Ok(())
}

/// Tokens that attend together.
struct Groups {
    own: ValueId,
    last: ValueId,
    sequence: ValueId,
    table: ValueId,
    ends: ValueId,
    past: ValueId,
    tokens: usize,
    /// Sequences, entries of a row of the table, blocks of the cache, keys of a block.
    extents: [usize; 4],
    /// How far back a token sees, if not everything.
    window: Option<i64>,
    /// How many groups there are, at most.
    count: usize,
    /// Tokens of a group, at most; groups of one are the tokens.
    together: usize,
}

/// So many tokens of each sequence attend one by one: kernels that look up keys read them again for each of these in less time than launches take that
/// put keys and tokens together.
const ALONE: usize = 4;

/// How many groups of how many tokens of one sequence there are at most, such that they take the least time.
fn grouped(tokens: usize, batch: usize) -> (usize, usize) {
    if tokens <= ALONE * batch {
        return (tokens, 1);
    }
    let sizes = (0..=tokens.ilog2() + 1).map(|i| (1 << i).min(tokens));
    let groups = sizes.map(|n| (((tokens + batch * (n - 1)) / n).min(tokens), n));
    groups.min_by_key(|(count, n)| count * (READING + n)).expect("one size is 1")
}

impl Groups {
    fn keys(&self) -> usize {
        self.extents[1] * self.extents[3]
    }

    /// What has a number for each token, sequence or entry of the table.
    fn lists(&self, cx: &mut Lowering<'_>, of: &[ValueId]) -> Vec<Access> {
        of.iter().map(|v| cx.operand_if(*v, View::is_dense)).collect()
    }

    /// Numbers of tokens of a sequence, from its ends in an operand, and of its groups.
    fn sizes(&self, c: &mut Coder, operand: usize, sequence: Val) -> [Val; 3] {
        let next = c.plus(sequence, 1);
        let (start, end, zero) = (c.load_int(operand, sequence), c.load_int(operand, next), c.int(0));
        let length = c.sub(end, start);
        let length = c.binary(Binary::Max, length, zero);
        let more = c.plus(length, self.together as i64 - 1);
        [start, length, c.divide(more, self.together).0]
    }

    /// The tokens of each group; -1 where it has fewer.
    fn members(&self, cx: &mut Lowering<'_>) -> Access {
        let operands = self.lists(cx, &[self.ends]);
        let members = cx.program(operands, &[self.count, self.together], |c| {
            let (group, i) = (c.coord(0), c.coord(1));
            let (none, first) = (c.int(-1), c.int(0));
            let (found, before) = (c.var(none), c.var(first));
            c.repeat(self.extents[0], |c, sequence| {
                let [start, length, groups] = self.sizes(c, 0, sequence);
                let from = c.get(before);
                let to = c.add(from, groups);
                c.set(before, to);
                let of_sequence = c.sub(group, from);
                let step = c.times(of_sequence, self.together as i64);
                let step = c.add(step, i);
                let (behind, inside, real) = (c.le(from, group), c.lt(group, to), c.lt(step, length));
                let own = c.and(behind, inside);
                let own = c.and(own, real);
                let token = c.add(start, step);
                let token = c.clamp(token, 0, self.tokens as i64);
                let other = c.get(found);
                let token = c.select(own, token, other);
                c.set(found, token);
            });
            c.get(found)
        });
        cx.stored_access(members)
    }

    /// Which row of members each token is.
    fn places(&self, cx: &mut Lowering<'_>) -> Access {
        let operands = self.lists(cx, &[self.ends, self.sequence]);
        let places = cx.program(operands, &[self.tokens], |c| {
            let token = c.coord(0);
            let (sequence, first) = (c.load_int(1, token), c.int(0));
            let before = c.var(first);
            c.repeat(self.extents[0], |c, other| {
                let [_, _, groups] = self.sizes(c, 0, other);
                let (earlier, now) = (c.lt(other, sequence), c.get(before));
                let more = c.add(now, groups);
                let now = c.select(earlier, more, now);
                c.set(before, now);
            });
            let start = c.load_int(0, sequence);
            let (step, before) = (c.sub(token, start), c.get(before));
            // Groups of a sequence are side by side.
            let place = c.times(before, self.together as i64);
            let place = c.add(place, step);
            c.clamp(place, 0, (self.count * self.together) as i64)
        });
        cx.stored_access(places)
    }

    /// In which row of the cache each key of each group lies, or -1, by the sequences of the groups' members.
    fn rows(&self, cx: &mut Lowering<'_>, members: &Access) -> Access {
        let mut operands = self.lists(cx, &[self.ends, self.table, self.sequence, self.past]);
        operands.push(members.clone());
        let [batch, width, blocks, block] = self.extents;
        let rows = cx.program(operands, &[self.count, self.keys()], |c| {
            let (group, key) = (c.coord(0), c.coord(1));
            let first = c.times(group, self.together as i64);
            let first = c.load_int(4, first);
            let token = c.clamp(first, 0, self.tokens as i64);
            let sequence = c.load_int(2, token);
            let (of_row, offset) = c.divide(key, block);
            let at = c.place(&[sequence, of_row], &[batch, width]);
            let entry = c.load_int(1, at);
            let known = c.within(entry, 0, blocks as i64);
            let held = c.clamp(entry, 0, blocks as i64);
            let row = c.place(&[held, offset], &[blocks, block]);
            let [_, new, _] = self.sizes(c, 0, sequence);
            let had = c.load_int(3, sequence);
            let all = c.add(had, new);
            let (zero, none) = (c.int(0), c.int(-1));
            let tests = [known, c.le(zero, had), c.lt(key, all), c.le(zero, first)];
            let there = tests.into_iter().reduce(|a, b| c.and(a, b)).expect("there are tests");
            c.select(there, row, none)
        });
        cx.stored_access(rows)
    }

    /// From which key to which one each member sees.
    fn bounds(&self, cx: &mut Lowering<'_>, members: &Access) -> [Lazy; 2] {
        let mut operands = self.lists(cx, &[self.own, self.last]);
        operands.push(members.clone());
        let all = self.count * self.together;
        let bounds = cx.program(operands, &[2, all], |c| {
            let (what, i) = (c.coord(0), c.coord(1));
            let (token, zero, none) = (c.load_int(2, i), c.int(0), c.int(-1));
            let real = c.le(zero, token);
            let token = c.binary(Binary::Max, token, zero);
            let (own, last) = (c.load_int(0, token), c.load_int(1, token));
            let (first, last) = (first_seen(c, self.window, own), c.select(real, last, none));
            let from = c.eq(what, zero);
            c.select(from, first, last)
        });
        let bounds = cx.stored_access(bounds);
        [0, 1].map(|i| row(&bounds, i, all, DType::I32).reshaped(&[self.count, 1, 1, self.together, 1]))
    }

    /// Keys of a cache as they follow each other in each group, `[groups, keys, heads, size]`, by their rows.
    fn gathered(&self, cx: &mut Lowering<'_>, cache: ValueId, rows: &Access) -> Lazy {
        let (dims, dtype) = (cx.shape(cache).to_vec(), cx.dtype(cache));
        let (keys, all) = (self.count * self.keys(), self.extents[2] * self.extents[3]);
        let cache = cx.operand_if(cache, View::is_dense);
        let found = picked(cx, &cache, dtype, rows, [keys, dims[2..].iter().product(), all]);
        found.reshaped(&[self.count, self.keys(), dims[2], dims[3]])
    }
}

/// So many rows of a stored `[extent, size]`, by their numbers; `[rows, size]`.
fn picked(cx: &Lowering<'_>, from: &Access, dtype: DType, numbers: &Access, [rows, size, extent]: [usize; 3]) -> Lazy {
    let grid = vec![rows, size];
    let index = View { offset: numbers.view.offset, dims: grid.clone(), strides: vec![1, 0] };
    let view = View { offset: from.view.offset, dims: grid, strides: vec![0, 1] };
    let mut access = Access::new(from.tensor, view);
    access.indirect.push(Indirect { index: numbers.tensor, view: index, stride: size as i64, extent });
    Lazy { nodes: vec![cx.current as u32], ..Lazy::read(access, dtype) }
}

/// Queries `[tokens, heads, size]` over caches `[blocks, keys, heads, size]` that hold all keys and values, new ones too, by what
/// [`token_places`] says of tokens, the table, sums of lengths and past lengths.
pub(super) fn attention(cx: &mut Lowering<'_>) -> Res<()> {
    let ids = (0..10).map(|i| cx.input(i)).collect::<Res<Vec<ValueId>>>()?;
    let (&[tokens, heads, size], &[blocks, block, shared, _], &[batch, width]) =
        (cx.shape(ids[0]), cx.shape(ids[1]), cx.shape(ids[6]))
    else {
        return Err(Reason::Shape("queries, caches and the table have other ranks".into()));
    };
    let dtype = cx.dtype(ids[0]);
    if shared == 0 || heads % shared != 0 || cx.shape(ids[1])[3] != size || cx.shape(ids[2]) != cx.shape(ids[1]) {
        return Err(Reason::Shape(format!(
            "{heads} heads of {size} do not fit caches of shape {:?} and {:?}",
            cx.shape(ids[1]),
            cx.shape(ids[2])
        )));
    }
    let out = cx.result(0);
    if out.contains(&0) {
        cx.set(0, splat(dtype, &out, Scalar::of(dtype, 0.0)));
        return Ok(());
    }
    let window = window(cx)?;
    let [own, last, sequence, table, ends, past, lines] = [3, 4, 5, 6, 7, 8, 9].map(|i: usize| ids[i]);
    let (extents, (count, together)) = ([batch, width, blocks, block], grouped(tokens, batch));
    let groups = Groups { own, last, sequence, table, ends, past, tokens, extents, window, count, together };
    let keys = groups.keys();
    countable(count.checked_mul(keys.max(together)), "keys")?;
    let members = (together > 1).then(|| groups.members(cx));
    let rows = match &members {
        Some(members) => groups.rows(cx, members),
        None => cx.operand_if(lines, View::is_dense),
    };
    let seen = Lazy::read(rows.clone(), DType::I32);
    let k = groups.gathered(cx, ids[1], &rows);
    let v = groups.gathered(cx, ids[2], &rows);
    // What was never written may be anything, and 0 times that is not always 0.
    let known = seen.clone().reshaped(&[count, keys, 1, 1]);
    let v = cx.combine(vec![v, known], &[count, keys, shared, size], |e, v| {
        let (none, zero) = (e.constant(DType::I32, 0.0), e.constant(dtype, 0.0));
        let known = e.binary(Binary::Le, none, v[1]);
        e.select(known, v[0], zero)
    })?;
    let [k, v] = [k, v].map(|x| {
        let x = cx.stored(x);
        cx.permute(x, &[0, 2, 1, 3])
    });
    let mut q = cx.without_base(ids[0]).reshaped(&[tokens, heads * size]);
    if let Some(members) = &members {
        let all = cx.stored_access(q);
        q = picked(cx, &all, dtype, members, [count * together, heads * size, tokens]);
    }
    let q = cx.permute(q.reshaped(&[count, together, heads, size]), &[0, 2, 1, 3]);
    let found = scores(cx, q, k)?;
    let dims = found.shape.clone();
    let mut terms = vec![found, seen.reshaped(&[count, 1, 1, 1, keys])];
    if let Some(members) = &members {
        terms.push(counted(cx, "keys", DType::I32, keys, (4, 5))?);
        terms.extend(groups.bounds(cx, members));
    }
    let masked = cx.combine(terms, &dims, |e, v| {
        let zero = e.constant(DType::I32, 0.0);
        let mut seen = e.binary(Binary::Le, zero, v[1]);
        if let [_, _, key, from, to] = v[..] {
            for (low, high) in [(from, key), (key, to)] {
                let within = e.binary(Binary::Le, low, high);
                seen = e.binary(Binary::And, seen, within);
            }
        }
        let none = e.constant(dtype, f64::NEG_INFINITY);
        e.select(seen, v[0], none)
    })?;
    let [y, ..] = weighted(cx, masked, v)?;
    let mut y = cx.permute(y, &[0, 2, 1, 3]).reshaped(&[count * together, heads * size]);
    if members.is_some() {
        let all = cx.stored_access(y);
        let places = groups.places(cx);
        y = picked(cx, &all, dtype, &places, [tokens, heads * size, count * together]);
        // A token of no sequence is in no group.
        let own = cx.without_base(own).reshaped(&[tokens, 1]);
        y = cx.combine(vec![y, own], &[tokens, heads * size], |e, v| {
            let (zero, none) = (e.constant(DType::I32, 0.0), e.constant(dtype, 0.0));
            let real = e.binary(Binary::Le, zero, v[1]);
            e.select(real, v[0], none)
        })?;
    }
    cx.set(0, y);
    Ok(())
}

// ---- rules ----

/// Lists of whole numbers, by their dimensions.
fn lists<const N: usize>(cx: &Inference<'_>, inputs: [(usize, usize); N]) -> Res<[Vec<Dim>; N]> {
    let mut found = Vec::new();
    for (i, rank) in inputs {
        let v = cx.input(i)?;
        super::gather::check_index(cx, v)?;
        if cx.rank(v) != rank {
            return Err(Reason::Shape(format!("input {i} has shape {}, not {rank} dimensions", described(cx.dims(v)))));
        }
        found.push(cx.dims(v).to_vec());
    }
    Ok(found.try_into().expect("as many as asked for"))
}

pub(super) fn of_token_places(cx: &mut Inference<'_>) -> Res<()> {
    let (x, cache) = (cx.input(0)?, cx.input(4)?);
    let [ends, past, table] = lists(cx, [(1, 1), (2, 1), (3, 2)])?;
    let tokens = cx.dims(x).first().cloned().unwrap_or(Dim::Known(1));
    if cx.rank(cache) != 4 {
        return Err(Reason::Shape(format!(
            "the cache has shape {}, not [blocks, keys, heads, size]",
            described(cx.dims(cache))
        )));
    }
    let mut pairs = vec![(ends[0].clone(), &past[0] + &Dim::Known(1)), (past[0].clone(), table[0].clone())];
    if cx.optional(5).is_some() {
        let [slots] = lists(cx, [(5, 1)])?;
        pairs.push((slots[0].clone(), tokens.clone()));
    }
    cx.tie(pairs);
    let keys = &table[1] * &cx.dims(cache)[1];
    (0..4).try_for_each(|i| cx.give(i, DType::I32, vec![tokens.clone()]))?;
    cx.give(4, DType::I32, vec![tokens, keys])
}

pub(super) fn of_attention(cx: &mut Inference<'_>) -> Res<()> {
    let [q, k, v] = [cx.input(0)?, cx.input(1)?, cx.input(2)?];
    let dtype = cx.dtype(q);
    if !dtype.is_float() || [k, v].iter().any(|x| cx.dtype(*x) != dtype) {
        return Err(Reason::Type(format!(
            "queries are {dtype}, caches {} and {}; floats of one type are supported",
            cx.dtype(k),
            cx.dtype(v)
        )));
    }
    let [tokens, heads, size] = cx.dims(q) else {
        return Err(Reason::Shape(format!("queries have shape {}", described(cx.dims(q)))));
    };
    let dims = vec![tokens.clone(), heads * size];
    if cx.rank(v) != cx.rank(k) {
        return Err(Reason::Shape("the two caches have different ranks".into()));
    }
    let pairs = cx.dims(k).iter().cloned().zip(cx.dims(v).iter().cloned()).collect();
    cx.tie(pairs);
    cx.give(0, dtype, dims)
}

#[cfg(test)]
mod tests {
    use super::grouped;

    #[test]
    fn tokens_of_decoding_sequences_are_groups() {
        assert_eq!(grouped(8, 8), (8, 1));
        assert_eq!(grouped(1, 1), (1, 1));
        assert_eq!(grouped(32, 8), (32, 1));
        // All of one sequence together, one long one beside many in parts.
        assert_eq!(grouped(100, 1), (1, 100));
        assert_eq!(grouped(575, 64), (79, 32));
    }
}
