//! Operators that rank or choose elements: TopK on the device; those whose result's extent depends on values (NonZero,
//! Compress, Unique, NonMaxSuppression) take what decides it as known, and only that.

use super::conv::check_size;
use crate::graph::ask::Ask;
use crate::graph::dim::{Dim, product};
use crate::graph::error::{Reason, Res};
use crate::graph::expr::{Binary, Expr, Scalar, Unary, Val};
use crate::graph::fused::{Access, Coder, Role, StepKind, Tensor, TopK};
use crate::graph::infer::{Inference, by_lowering};
use crate::graph::lazy::Lazy;
use crate::graph::lower::{Lowering, splat};
use crate::graph::resolve::ValueId;
use crate::graph::view::View;
use crate::tensor::{DType, HostTensor};
use std::cmp::Ordering;

/// Extents before, at and behind an axis.
pub(super) fn around(shape: &[usize], axis: usize) -> [usize; 3] {
    [shape[..axis].iter().product(), shape[axis], shape[axis + 1..].iter().product()]
}

/// What is looked for: the best `k` of each line.
struct Best {
    k: usize,
    largest: bool,
}

/// The elements of lines at places.
fn found(cx: &mut Lowering<'_>, data: &Access, places: &Access, [outer, n, inner]: [usize; 3], k: usize) -> Lazy {
    cx.program(vec![data.clone(), places.clone()], &[outer, k, inner], |c| {
        let (o, j, q) = (c.coord(0), c.coord(1), c.coord(2));
        let at = c.place(&[o, j, q], &[outer, k, inner]);
        let i = c.load_int(1, at);
        let at = c.place(&[o, i, q], &[outer, n, inner]);
        c.load(0, at)
    })
}

/// What merging gives.
#[derive(Clone, Copy, PartialEq)]
enum Given {
    /// The elements.
    Elements,
    /// Where in its line each of them was, an `i32`.
    Places,
}

/// The first `k` elements of each two neighbouring sorted runs of `run` elements (the last ones of a line may be shorter) when they are merged: for
/// each place of the result, a search for how many of those in front of it the first run has (Green, McColl and Bader 2012).
fn merged(
    cx: &mut Lowering<'_>,
    data: &Access,
    [outer, n, inner]: [usize; 3],
    run: usize,
    &Best { k, largest }: &Best,
    given: Given,
) -> Access {
    let merged = cx.program(vec![data.clone()], &[outer, k, inner], |c| {
        let (o, j, q) = (c.coord(0), c.coord(1), c.coord(2));
        let (pair, ahead) = c.divide(j, 2 * run);
        let first = c.times(pair, 2 * run as i64);
        let second = c.plus(first, run as i64);
        let limit = c.int(n as i64);
        // Elements of both runs.
        let lengths = [first, second].map(|start| {
            let left = c.sub(limit, start);
            c.clamp(left, 0, run as i64 + 1)
        });
        let element = |c: &mut Coder, start: Val, i: Val| {
            let i = c.add(start, i);
            let i = c.clamp(i, 0, n as i64);
            let at = c.place(&[o, i, q], &[outer, n, inner]);
            c.load(0, at)
        };
        // Element `i` of the first run comes before element `j` of the second one.
        let before = |c: &mut Coder, i: Val, j: Val| {
            let (x, y) = (element(c, first, i), element(c, second, j));
            let [x, y] = if largest { [x, y] } else { [y, x] };
            let mut later = c.lt(x, y);
            if c.operand_type(0).is_float() {
                let [x, y] = [x, y].map(|x| c.unary(Unary::IsNan, x));
                let number = c.unary(Unary::Not, x);
                let only = c.and(number, y);
                later = c.binary(Binary::Or, later, only);
            }
            c.unary(Unary::Not, later)
        };
        let least = c.sub(ahead, lengths[1]);
        let zero = c.int(0);
        let least = c.binary(Binary::Max, least, zero);
        let most = c.binary(Binary::Min, ahead, lengths[0]);
        let (low, high) = (c.var(least), c.var(most));
        c.repeat(run.next_power_of_two().ilog2() as usize + 1, |c, _| {
            let (from, to) = (c.get(low), c.get(high));
            let sum = c.add(from, to);
            let (middle, _) = c.divide(sum, 2);
            let other = c.sub(ahead, middle);
            let other = c.plus(other, -1);
            let more = before(c, middle, other);
            let open = c.lt(from, to);
            let (up, down) = (c.plus(middle, 1), middle);
            let from_next = c.select(more, up, from);
            let to_next = c.select(more, to, down);
            let (from, to) = (c.select(open, from_next, from), c.select(open, to_next, to));
            c.set(low, from);
            c.set(high, to);
        });
        let i = c.get(low);
        let j = c.sub(ahead, i);
        let (some, none) = (c.lt(i, lengths[0]), c.le(lengths[1], j));
        let is_first = before(c, i, j);
        let is_first = c.binary(Binary::Or, none, is_first);
        let is_first = c.and(some, is_first);
        let (i, j) = (c.add(first, i), c.add(second, j));
        let place = c.select(is_first, i, j);
        if given == Given::Places {
            return place;
        }
        let at = c.place(&[o, place, q], &[outer, n, inner]);
        c.load(0, at)
    });
    cx.stored_access(merged)
}

/// Lines on their way to their best elements.
struct Lines {
    data: Access,
    outer: usize,
    /// Elements of a line that are left.
    n: usize,
    inner: usize,
    /// Where in its line each of them was, if not where it is.
    origins: Option<Access>,
}

impl Lines {
    fn dims(&self) -> [usize; 3] {
        [self.outer, self.n, self.inner]
    }

    /// Makes lines longer, by elements that are behind all others when they are in order.
    fn lengthen(&mut self, cx: &mut Lowering<'_>, n: usize, largest: bool) {
        let Lines { outer, n: old, inner, .. } = *self;
        let longer = cx.program(vec![self.data.clone()], &[outer, n, inner], |c| {
            let (o, i, q) = (c.coord(0), c.coord(1), c.coord(2));
            let inside = c.clamp(i, 0, old as i64);
            let at = c.place(&[o, inside, q], &[outer, old, inner]);
            let x = c.load(0, at);
            let t = c.operand_type(0);
            let none = c.literal(t, last_of(t, largest));
            let beyond = c.lt(inside, i);
            c.select(beyond, none, x)
        });
        (self.data, self.n) = (cx.stored_access(longer), n);
    }

    /// Pieces of one length that can be sorted each, of lines that are made longer where they do not divide.
    fn divide(&mut self, cx: &mut Lowering<'_>, largest: bool) -> usize {
        let n = self.n;
        let fewest = n.div_ceil(TopK::LONGEST);
        let even = (fewest..2 * fewest).filter(|p| n.is_multiple_of(*p)).min_by_key(|p| !n.is_multiple_of(8 * p));
        if even.is_none() {
            self.lengthen(cx, n.next_multiple_of(8 * fewest), largest);
        }
        even.unwrap_or(fewest)
    }

    /// Leaves the best of each of so many pieces, in their order.
    fn keep(&mut self, cx: &mut Lowering<'_>, pieces: usize, best: &Best) {
        let (places, elements) = topk(cx, self, pieces, best, DType::I32, true);
        self.origins = Some(cx.stored_access(places));
        self.data = elements.unwrap_or_else(|| self.data.clone());
        self.n = pieces * best.k;
    }

    /// Leaves the elements, so many of a line, that are at these places, in their order.
    fn take(&mut self, cx: &mut Lowering<'_>, places: Access, count: usize) {
        let dims = self.dims();
        let left = found(cx, &self.data, &places, dims, count);
        let from = self.origins.as_ref().map(|from| found(cx, from, &places, dims, count));
        self.data = cx.stored_access(left);
        self.origins = Some(from.map_or(places, |from| cx.stored_access(from)));
        self.n = count;
    }
}

/// Where the best of each of so many pieces of lines were, in type `dtype` and one piece's behind the other's, by a kernel of their own; and where it leaves
/// these elements, if they are asked for.
fn topk(
    cx: &mut Lowering<'_>,
    lines: &Lines,
    pieces: usize,
    &Best { k, largest }: &Best,
    dtype: DType,
    elements: bool,
) -> (Lazy, Option<Access>) {
    let Lines { outer, n, inner, .. } = *lines;
    // The dimension goes last, and comes back afterwards.
    let of_line = |a: &Access| {
        let view = View { offset: a.view.offset, ..View::dense(&[outer, n, inner]) };
        let view = if inner == 1 { view.reshaped(&[outer, n]).unwrap_or(view) } else { view.permuted(&[0, 2, 1]) };
        Access::new(a.tensor, view)
    };
    let mut operands = vec![of_line(&lines.data)];
    let mut dims = operands[0].view.dims[..operands[0].view.rank() - 1].to_vec();
    dims.extend([pieces, k]);
    let found = elements.then(|| {
        let (name, shape) = (cx.output_name(0), vec![outer, pieces * k, inner]);
        let dtype = cx.graph.tensor(lines.data.tensor).dtype;
        let id = cx.graph.add_tensor(Tensor { name, dtype, shape: shape.clone(), role: Role::Intermediate });
        let view = match inner {
            1 => View::dense(&[outer, pieces, k]),
            _ => View::dense(&[outer, pieces, k, inner]).permuted(&[0, 3, 1, 2]),
        };
        operands.push(Access::new(id, view));
        Access::new(id, View::dense(&shape))
    });
    operands.extend(lines.origins.as_ref().map(of_line));
    let kind = TopK { largest, elements, origins: lines.origins.is_some() };
    let mut places = cx.produce(StepKind::TopK(kind), operands, &dims, DType::I32);
    if dtype != DType::I32 {
        let mut e = Expr::new();
        let place = e.push_acc(DType::I32);
        let place = e.cast(place, dtype);
        places.expr = e.finish(place);
    }
    let places = if inner == 1 { places } else { cx.permute(places, &[0, 2, 3, 1]) };
    (places.reshaped(&[outer, pieces * k, inner]), found)
}

/// What of a type is behind all others in order, or equal to the last of them.
fn last_of(t: DType, largest: bool) -> Scalar {
    if t.is_float() {
        return Scalar::Float(if largest { f64::NEG_INFINITY } else { f64::NAN });
    }
    let (ones, low) = (u64::MAX >> (64 - t.bits()), i64::MIN >> (64 - t.bits()));
    Scalar::Int(match (t.is_signed_int(), largest) {
        (true, true) => low,
        (true, false) => !low,
        (false, true) => 0,
        (false, false) => ones as i64,
    })
}

/// Elements of a piece of a longer line, at least: in shorter ones the best are too large a share.
const SHORT: usize = 1024;

/// So many elements give every compute unit of a large chip several pieces.
const MANY: usize = 1 << 20;

/// So many lines take no launches one behind the other for their pieces, where these are not sorted.
const FEW: usize = 64;

/// In how many pieces lines of `n` elements are ranked, none longer than so many: such that lanes may load neighbours, where there are some. Sorting
/// takes as long for shorter ones.
fn pieces(n: usize, longest: usize, sorting: bool) -> usize {
    let fewest = n.div_ceil(longest);
    let most = if sorting { fewest + fewest / 8 } else { 2 * fewest - 1 };
    let even = |unit: usize| (fewest..=most).find(|p| n.is_multiple_of(unit * p));
    even(8).or_else(|| even(2)).unwrap_or(fewest)
}

/// The best `k` of each line. Of long lines, the best `k` of each piece first: what is not among these is not among the best of all. Pieces and
/// their best stay in order, so that of equal elements the first one counts. Where that leaves much, pieces are sorted and these merged.
pub(super) fn top_k(cx: &mut Lowering<'_>) -> Res<()> {
    let x = cx.input(0)?;
    let (shape, dtype) = (cx.shape(x).to_vec(), cx.dtype(x));
    let axis = cx.axis(cx.int("axis", -1)?, shape.len())?;
    let [outer, n, inner] = around(&shape, axis);
    let largest = cx.int("largest", 1)? != 0;
    let out = cx.result(1);
    let k = out[axis];
    if out.contains(&0) {
        cx.set(0, splat(dtype, &out, Scalar::of(dtype, 0.0)));
        cx.set(1, splat(DType::I64, &out, Scalar::Int(0)));
        return Ok(());
    }
    // Places are counted in 32 bits.
    if i32::try_from(n).is_err() {
        return Err(Reason::Size(format!("ranks lines of {n} elements; less than 2^31 are supported")));
    }
    let wanted = Best { k, largest };
    let mut lines = Lines { data: cx.operand_if(x, View::is_dense), outer, n, inner, origins: None };
    if !TopK::ranks(dtype) {
        return Err(Reason::Type(format!("ranks type {dtype}; numbers are supported")));
    }
    if 2 * k > TopK::LONGEST && n > TopK::LONGEST {
        let places = sorted(cx, &mut lines, &wanted);
        if cx.wants(0) {
            let values = found(cx, &lines.data, &places, lines.dims(), k);
            cx.set(0, values.reshaped(&out));
        }
        let origins = match &lines.origins {
            Some(from) => {
                let from = found(cx, from, &places, lines.dims(), k).reshaped(&out);
                cx.combine(vec![from], &out, |e, v| e.cast(v[0], DType::I64))?
            }
            None => Lazy::read(places, DType::I32).reshaped(&out),
        };
        cx.set(1, origins);
        return Ok(());
    }
    let sorting = !TopK::few(dtype, k);
    // Of few elements lines go in fewer launches.
    let longest = match outer * n * inner < MANY {
        true if sorting => TopK::LONGEST,
        // As long as what is left of it when each has its best.
        true => (n * k).isqrt().clamp(SHORT, TopK::LONGEST),
        false if sorting => (4 * k).next_power_of_two().clamp(SHORT, TopK::LONGEST),
        false => TopK::LONGEST,
    };
    let most = if sorting { longest } else { TopK::LONGEST };
    let at_once = (sorting || outer * inner <= FEW) && dtype.size() <= 4;
    while lines.n > most && !(at_once && TopK::at_once(outer * inner, lines.n, k)) {
        let pieces = pieces(lines.n, longest, sorting);
        lines.keep(cx, pieces, &wanted);
    }
    let (places, elements) = topk(cx, &lines, 1, &wanted, DType::I64, cx.wants(0));
    let places = cx.stored_access(places);
    cx.set(1, Lazy::read(places, DType::I64).reshaped(&out));
    if let Some(elements) = elements {
        cx.set(0, Lazy::read(elements, dtype).reshaped(&out));
    }
    Ok(())
}

/// What holds a number below another one in an `i64`.
pub(super) const ABOVE: i64 = 1 << 32;

/// The elements of lines along the middle dimension, each an `i32`, with the least ones first and equal ones in their order: each as an `i64`, [`ABOVE`] times the
/// element and where in its line it was.
pub(super) fn in_order(cx: &mut Lowering<'_>, data: Access, [outer, n, inner]: [usize; 3]) -> Access {
    let mut lines = Lines { data, outer, n, inner, origins: None };
    let pieces = if n > TopK::LONGEST { lines.divide(cx, false) } else { 1 };
    let mut wanted = Best { k: lines.n / pieces, largest: false };
    let (places, _) = topk(cx, &lines, pieces, &wanted, DType::I32, false);
    let (places, dims) = (cx.stored_access(places), lines.dims());
    let keys = cx.program(vec![lines.data, places], &dims, |c| {
        let (o, i, q) = (c.coord(0), c.coord(1), c.coord(2));
        let at = c.place(&[o, i, q], &dims);
        let i = c.load_int(1, at);
        let at = c.place(&[o, i, q], &dims);
        let [element, i] = [c.load(0, at), i].map(|x| c.cast(x, DType::I64));
        let above = c.literal(DType::I64, Scalar::Int(ABOVE));
        let element = c.mul(element, above);
        c.add(element, i)
    });
    let mut keys = cx.stored_access(keys);
    let mut run = wanted.k;
    while run < lines.n {
        wanted.k = if 2 * run >= lines.n { n } else { lines.n };
        keys = merged(cx, &keys, dims, run, &wanted, Given::Elements);
        run *= 2;
    }
    keys
}

/// Where the best of lines are that are sorted: pieces, and these merged.
fn sorted(cx: &mut Lowering<'_>, lines: &mut Lines, wanted: &Best) -> Access {
    let &Best { k, largest } = wanted;
    let pieces = lines.divide(cx, largest);
    let mut run = lines.n / pieces;
    lines.keep(cx, pieces, &Best { k: run, largest });
    loop {
        let last = 2 * run >= lines.n;
        let left = if last { k } else { lines.n };
        let places = merged(cx, &lines.data, lines.dims(), run, &Best { k: left, largest }, Given::Places);
        if last {
            return places;
        }
        lines.take(cx, places, left);
        run *= 2;
    }
}

pub(super) fn non_zero(cx: &mut Lowering<'_>) -> Res<()> {
    let t = cx.known(0, "the data, which decides how many indices there are,")?.clone();
    let hit: Vec<usize> = t.to_f64().iter().enumerate().filter(|(_, x)| **x != 0.0).map(|(i, _)| i).collect();
    let strides = crate::graph::view::dense_strides(t.shape());
    let mut out = Vec::with_capacity(hit.len() * strides.len());
    for (d, s) in strides.iter().enumerate() {
        out.extend(hit.iter().map(|i| (*i as i64 / s) % t.shape()[d] as i64));
    }
    cx.set_const(0, HostTensor::from_i64(&[strides.len(), hit.len()], &out));
    Ok(())
}

/// Elements of `data`, by their places along an axis of `[outer, n, inner]`.
fn picked(cx: &mut Lowering<'_>, data: ValueId, dims: [usize; 3], places: &[i64], out: &[usize]) -> Res<Lazy> {
    let dtype = cx.dtype(data);
    check_size(out)?;
    if out.contains(&0) {
        return Ok(splat(dtype, out, Scalar::of(dtype, 0.0)));
    }
    let data = cx.operand_if(data, View::is_dense);
    let n = places.len();
    let table = cx.add_const("places".into(), HostTensor::from_i64(&[n], places));
    let table = Access::new(table, View::dense(&[n]));
    let y = cx.program(vec![data, table], &[dims[0], n, dims[2]], |c| {
        let (o, j, q) = (c.coord(0), c.coord(1), c.coord(2));
        let i = c.load_int(1, j);
        let at = c.place(&[o, i, q], &dims);
        c.load(0, at)
    });
    Ok(y.reshaped(out))
}

pub(super) fn compress(cx: &mut Lowering<'_>) -> Res<()> {
    let data = cx.input(0)?;
    let condition = cx.known(1, "the condition, which decides how many elements there are,")?.clone().to_i64();
    let shape = cx.shape(data).to_vec();
    // The condition may be shorter than what it is for.
    let places = |n: usize| condition.iter().take(n).zip(0..).filter(|(c, _)| **c != 0).map(|(_, i)| i).collect();
    let y = match cx.attribute("axis") {
        None => {
            let places: Vec<i64> = places(shape.iter().product());
            let out = [places.len()];
            picked(cx, data, [1, shape.iter().product(), 1], &places, &out)?
        }
        Some(_) => {
            let axis = cx.axis(cx.int("axis", 0)?, shape.len())?;
            let places: Vec<i64> = places(shape[axis]);
            let mut out = shape.clone();
            out[axis] = places.len();
            picked(cx, data, around(&shape, axis), &places, &out)?
        }
    };
    cx.set(0, y);
    Ok(())
}

/// For each string its place among all of them, in order.
fn ranks(t: &HostTensor) -> Res<Vec<i64>> {
    let texts = t.texts().map_err(|e| Reason::Value(e.to_string()))?;
    let all: std::collections::BTreeSet<&str> = texts.iter().copied().collect();
    let places: std::collections::BTreeMap<&str, i64> = all.into_iter().zip(0..).collect();
    Ok(texts.iter().map(|t| places[t]).collect())
}

pub(super) fn unique(cx: &mut Lowering<'_>) -> Res<()> {
    let t = cx.known(0, "the data, which decides how many elements there are,")?.clone();
    let data = cx.input(0)?;
    let sorted = cx.int("sorted", 1)? != 0;
    let (shape, [outer, n, inner]) = match cx.attribute("axis") {
        None => (None, [1, t.len(), 1]),
        Some(_) => {
            let axis = cx.axis(cx.int("axis", 0)?, t.shape().len())?;
            (Some((t.shape().to_vec(), axis)), around(t.shape(), axis))
        }
    };
    // Slices are compared element by element, zeros of both signs as equals; strings by their places among each other.
    let (ints, floats) = match t.dtype() {
        DType::Str => (Some(ranks(&t)?), None),
        dtype if dtype.is_float() => (None, Some(t.to_f64().into_iter().map(|v| v + 0.0).collect::<Vec<f64>>())),
        _ => (Some(t.to_i64()), None),
    };
    let order = |a: usize, b: usize| {
        for o in 0..outer {
            for q in 0..inner {
                let (p, q) = ((o * n + a) * inner + q, (o * n + b) * inner + q);
                let c = match (&ints, &floats) {
                    (Some(v), _) => v[p].cmp(&v[q]),
                    (_, Some(v)) => v[p].total_cmp(&v[q]),
                    _ => Ordering::Equal,
                };
                if c != Ordering::Equal {
                    return c;
                }
            }
        }
        Ordering::Equal
    };
    let mut by_value: Vec<usize> = (0..n).collect();
    by_value.sort_by(|a, b| order(*a, *b).then(a.cmp(b)));
    // The first of each run of equals, and which run each element is in.
    let (mut first, mut run, mut counts): (Vec<usize>, Vec<usize>, Vec<i64>) = (Vec::new(), vec![0; n], Vec::new());
    for (k, &i) in by_value.iter().enumerate() {
        if k == 0 || order(by_value[k - 1], i) != Ordering::Equal {
            first.push(i);
            counts.push(0);
        }
        run[i] = first.len() - 1;
        *counts.last_mut().unwrap_or(&mut 0) += 1;
    }
    let mut arranged: Vec<usize> = (0..first.len()).collect();
    if !sorted {
        arranged.sort_by_key(|r| first[*r]);
    }
    let mut place_of = vec![0; first.len()];
    arranged.iter().enumerate().for_each(|(new, old)| place_of[*old] = new as i64);
    let firsts: Vec<i64> = arranged.iter().map(|r| first[*r] as i64).collect();
    let m = firsts.len();
    let out = match shape {
        None => vec![m],
        Some((mut s, axis)) => {
            s[axis] = m;
            s
        }
    };
    let y = picked(cx, data, [outer, n, inner], &firsts, &out)?;
    cx.set(0, y);
    let inverse: Vec<i64> = run.iter().map(|r| place_of[*r]).collect();
    let counts: Vec<i64> = arranged.iter().map(|r| counts[*r]).collect();
    cx.set_const(1, HostTensor::from_i64(&[m], &firsts));
    cx.set_const(2, HostTensor::from_i64(&[inverse.len()], &inverse));
    cx.set_const(3, HostTensor::from_i64(&[m], &counts));
    Ok(())
}

/// Greedy selection of boxes by score, none of which overlaps a better one of its class by too much.
pub(super) fn non_max_suppression(cx: &mut Lowering<'_>) -> Res<()> {
    let boxes = cx.known(0, "the boxes, which decide how many are selected,")?.clone();
    let scores = cx.known(1, "the scores, which decide how many are selected,")?.clone();
    let most = cx.scalar(2, "the number of boxes")?.unwrap_or(0.0).max(0.0) as usize;
    let overlap = cx.scalar(3, "the overlap threshold")?.unwrap_or(0.0);
    if !(0.0..=1.0).contains(&overlap) {
        return Err(Reason::Value(format!("the overlap threshold is {overlap}, which is not from 0 to 1")));
    }
    let least = cx.scalar(4, "the score threshold")?;
    let center = cx.int("center_point_box", 0)? != 0;
    let (&[batches, n, 4], &[sb, classes, sn]) = (boxes.shape(), scores.shape()) else {
        return Err(Reason::Shape(format!("boxes {:?} and scores {:?} do not fit", boxes.shape(), scores.shape())));
    };
    if (sb, sn) != (batches, n) {
        return Err(Reason::Shape(format!("boxes {:?} and scores {:?} do not fit", boxes.shape(), scores.shape())));
    }
    let (b, s) = (boxes.to_f32(), scores.to_f32());
    let corners = |i: usize| {
        let v = &b[i * 4..i * 4 + 4];
        if center {
            [v[1] - v[3] / 2.0, v[0] - v[2] / 2.0, v[1] + v[3] / 2.0, v[0] + v[2] / 2.0]
        } else {
            [v[0].min(v[2]), v[1].min(v[3]), v[0].max(v[2]), v[1].max(v[3])]
        }
    };
    let shared = |p: [f32; 4], q: [f32; 4]| {
        let side = |i: usize| (p[i + 2].min(q[i + 2]) - p[i].max(q[i])).max(0.0);
        let area = |r: [f32; 4]| (r[2] - r[0]) * (r[3] - r[1]);
        let both = side(0) * side(1);
        if both <= 0.0 { 0.0 } else { both / (area(p) + area(q) - both) }
    };
    let mut out = Vec::new();
    for batch in 0..batches {
        for class in 0..classes {
            let score = |i: usize| s[(batch * classes + class) * n + i];
            let mut order: Vec<usize> = (0..n).filter(|i| least.is_none_or(|l| score(*i) > l as f32)).collect();
            order.sort_by(|p, q| score(*q).total_cmp(&score(*p)).then(p.cmp(q)));
            let mut kept: Vec<[f32; 4]> = Vec::new();
            for i in order {
                if kept.len() >= most {
                    break;
                }
                let own = corners(batch * n + i);
                if kept.iter().all(|k| shared(*k, own) <= overlap as f32) {
                    kept.push(own);
                    out.extend([batch as i64, class as i64, i as i64]);
                }
            }
        }
    }
    cx.set_const(0, HostTensor::from_i64(&[out.len() / 3, 3], &out));
    Ok(())
}

/// Each line reversed up to its own length.
pub(super) fn reverse_sequence(cx: &mut Lowering<'_>) -> Res<()> {
    let (x, lengths) = (cx.input(0)?, cx.input(1)?);
    let (shape, dtype) = (cx.shape(x).to_vec(), cx.dtype(x));
    let time = cx.axis(cx.int("time_axis", 0)?, shape.len())?;
    let batch = cx.axis(cx.int("batch_axis", 1)?, shape.len())?;
    if cx.shape(lengths) != [shape[batch]] || time == batch {
        return Err(Reason::Shape(format!(
            "lengths of shape {:?} do not fit axis {batch} of {shape:?}",
            cx.shape(lengths)
        )));
    }
    if shape.contains(&0) {
        cx.set(0, splat(dtype, &shape, Scalar::of(dtype, 0.0)));
        return Ok(());
    }
    let operands = vec![cx.operand_if(x, View::is_dense), cx.operand_if(lengths, View::is_dense)];
    let y = cx.program(operands, &shape, |c| {
        let mut at: Vec<Val> = (0..shape.len()).map(|d| c.coord(d)).collect();
        let length = c.load_int(1, at[batch]);
        let inside = c.lt(at[time], length);
        let last = c.plus(length, -1);
        let mirrored = c.sub(last, at[time]);
        let t = c.select(inside, mirrored, at[time]);
        at[time] = c.clamp(t, 0, shape[time] as i64);
        let place = c.place(&at, &shape);
        c.load(0, place)
    });
    cx.set(0, y);
    Ok(())
}

/// The smaller or larger of two.
pub(super) fn extremum(c: &mut Coder, largest: bool, a: Val, b: Val) -> Val {
    c.binary(if largest { Binary::Max } else { Binary::Min }, a, b)
}

// ---- rules ----

pub(super) fn of_top_k(cx: &mut Inference<'_>) -> Res<()> {
    let x = cx.input(0)?;
    let k = if cx.opset() < 10 { vec![Dim::Known(cx.int("k", -1)?)] } else { cx.numbers(1, "the number k")? };
    let [k] = &k[..] else { return Err(Reason::Value("k is not one number".into())) };
    let mut dims = cx.dims(x).to_vec();
    let axis = cx.axis(cx.int("axis", -1)?, dims.len())?;
    let n = &dims[axis];
    if [k.clone(), n - k].iter().any(|d| matches!(d, Dim::Known(n) if *n < 0)) {
        return Err(Reason::Value(format!("k is {k}, not between 0 and the extent {n} of axis {axis}")));
    }
    dims[axis] = k.clone();
    cx.give(0, cx.dtype(x), dims.clone())?;
    cx.give(1, DType::I64, dims)
}

/// Places of what is not zero: how many, only a run tells.
pub(super) fn of_non_zero(cx: &mut Inference<'_>) -> Res<()> {
    let x = cx.input(0)?;
    if !cx.is_open() || cx.constant(x).is_some() {
        return by_lowering(cx);
    }
    let dims = vec![cx.rank(x).into(), cx.told_by_run(0, 1)];
    cx.give(0, DType::I64, dims)
}

/// What a condition picks: how much, only a run tells.
pub(super) fn of_compress(cx: &mut Inference<'_>) -> Res<()> {
    let (x, condition) = (cx.input(0)?, cx.input(1)?);
    if !cx.is_open() || cx.constant(condition).is_some() {
        return by_lowering(cx);
    }
    let mut dims = cx.dims(x).to_vec();
    match cx.attribute("axis") {
        None => dims = vec![cx.told_by_run(0, 0)],
        Some(_) => {
            let axis = cx.axis(cx.int("axis", 0)?, dims.len())?;
            dims[axis] = cx.told_by_run(0, axis);
        }
    }
    cx.give(0, cx.dtype(x), dims)
}

/// Different elements, or slices: how many, only a run tells.
pub(super) fn of_unique(cx: &mut Inference<'_>) -> Res<()> {
    let x = cx.input(0)?;
    if !cx.is_open() || cx.constant(x).is_some() {
        return by_lowering(cx);
    }
    let mut dims = cx.dims(x).to_vec();
    let axis = match cx.attribute("axis") {
        None => None,
        Some(_) => Some(cx.axis(cx.int("axis", 0)?, dims.len())?),
    };
    let count = cx.told_by_run(0, axis.unwrap_or(0));
    let all = axis.map_or_else(|| product(&dims), |a| dims[a].clone());
    match axis {
        None => dims = vec![count.clone()],
        Some(axis) => dims[axis] = count.clone(),
    }
    cx.give(0, cx.dtype(x), dims)?;
    cx.give(1, DType::I64, vec![count.clone()])?;
    cx.give(2, DType::I64, vec![all])?;
    cx.give(3, DType::I64, vec![count])
}

/// Boxes that are selected: how many, only a run tells.
pub(super) fn of_selection(cx: &mut Inference<'_>) -> Res<()> {
    let constant = [cx.input(0)?, cx.input(1)?].iter().all(|v| cx.constant(*v).is_some());
    if !cx.is_open() || constant {
        return by_lowering(cx);
    }
    let dims = vec![cx.told_by_run(0, 0), Dim::Known(3)];
    cx.give(0, DType::I64, dims)
}
