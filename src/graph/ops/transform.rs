//! Fourier transforms, what goes with them (windows, mel weights), and determinants.
//!
//! What a workgroup can hold is a step of its own ([`Fourier`]). A longer transform is done in launches for passes (Cooley and Tukey 1965, in Stockham's order, which sorts itself): after passes whose radices have the product `l`, there are transforms of `l`
//! elements each, of those that lie `n / l` apart. A pass is a sum of as many terms as its radix against a table of cosines and sines; the place in the
//! table is a product of indices modulo its length, so that angles are exact. Short transforms and few are one pass of all terms, and so is
//! what a large prime factor leaves.

use super::conv::check_size;
use super::rank::around;
use super::source::MAX_GENERATED;
use crate::graph::ask::Ask;
use crate::graph::dim::{Dim, product};
use crate::graph::error::{Reason, Res};
use crate::graph::expr::{Binary, Expr, Scalar, Unary, Val};
use crate::graph::fused::{Access, Coder, Fourier, StepKind};
use crate::graph::infer::{Inference, by_lowering};
use crate::graph::large::LARGEST;
use crate::graph::lazy::Lazy;
use crate::graph::lower::{Lowering, splat};
use crate::graph::view::View;
use crate::tensor::{DType, HostTensor};
use std::f64::consts::PI;

/// Cosines, then sines, of `n` angles around the circle.
fn circle(cx: &mut Lowering<'_>, n: usize, dtype: DType) -> Access {
    let angle = |i: usize| 2.0 * PI * (i as f64 / n as f64);
    let values: Vec<f64> = (0..n).map(|i| angle(i).cos()).chain((0..n).map(|i| angle(i).sin())).collect();
    let id = cx.add_const("circle".into(), HostTensor::from_f64(dtype, &[2 * n], &values));
    Access::new(id, View::dense(&[2 * n]))
}

/// Terms of a pass at most, where the length has such factors.
const RADIX: usize = 8;

/// Terms that another launch must save: what chips sum up in the microseconds that it takes.
const WORTH: usize = 1 << 21;

/// Transforms of `n` elements each, in type `dtype`: `outer` times `inner` of them, which lie `inner` apart.
struct Transform {
    outer: usize,
    n: usize,
    inner: usize,
    inverse: bool,
    dtype: DType,
    /// How many results are wanted, and how many parts of each: 2, or 1 for the real one alone.
    bins: usize,
    parts: usize,
    /// How many of the elements are not 0: the first ones.
    given: usize,
}

impl Transform {
    /// The radix of each pass.
    fn radices(&self) -> Vec<usize> {
        let (mut out, mut left) = (Vec::new(), self.n);
        while left > 1 {
            let radix = (2..=RADIX.min(left)).rev().find(|r| left.is_multiple_of(*r));
            let radix = radix.or_else(|| (RADIX..left).find(|r| left.is_multiple_of(*r))).unwrap_or(left);
            out.push(radix);
            left /= radix;
        }
        let all = self.outer * self.inner * self.n * 2;
        let saved = all.saturating_mul(self.n.saturating_sub(out.iter().sum()));
        let fits = all.saturating_mul(self.dtype.size()) < LARGEST;
        let worth = fits && saved >= out.len().saturating_sub(1).saturating_mul(WORTH);
        if out.len() > 1 && worth { out } else { vec![self.n] }
    }

    /// The results, of dimensions `outer`, `bins`, `inner` and `parts`, as `result` makes them. `read` gives the real and perhaps the imaginary part of
    /// element `i` of transform `(o, q)` of the operands.
    fn lower(
        &self,
        cx: &mut Lowering<'_>,
        mut operands: Vec<Access>,
        read: impl Fn(&mut Coder, [Val; 3]) -> (Val, Option<Val>),
        result: impl Fn(&mut Coder, Val) -> Val,
    ) -> Lazy {
        let (n, t) = (self.n, self.dtype);
        let table = circle(cx, n, t);
        let mut done = 1;
        for radix in self.radices() {
            let (length, apart) = (done * radix, n / (done * radix));
            let (first, last) = (done == 1, apart == 1);
            let ends = if last { [self.bins, self.inner, self.parts] } else { [length, self.inner, 2] };
            let dims = [self.outer, apart, ends[0], ends[1], ends[2]];
            operands.push(table.clone());
            let place_of_table = operands.len() - 1;
            let terms = if first { self.given.div_ceil(apart).max(1) } else { radix };
            let y = cx.program(operands, &dims, |c| {
                let [o, i, k, q, part] = [0, 1, 2, 3, 4].map(|d| c.coord(d));
                let (_, before) = c.divide(k, done);
                let sum = transformed(c, place_of_table, (n, length, terms, self.inverse), (k, part), |c, j| {
                    let at = c.times(j, apart as i64);
                    let at = c.add(at, i);
                    if !first {
                        let at = c.place(&[o, at, before, q], &[self.outer, n / done, done, self.inner]);
                        let at = c.times(at, 2);
                        let re = c.load(0, at);
                        let at = c.plus(at, 1);
                        return (re, Some(c.load(0, at)));
                    }
                    if terms * apart <= self.given {
                        return read(c, [o, at, q]);
                    }
                    let inside = c.within(at, 0, self.given as i64);
                    let near = c.clamp(at, 0, self.given as i64);
                    let (re, im) = read(c, [o, near, q]);
                    let zero = c.constant(t, 0.0);
                    (c.select(inside, re, zero), im.map(|im| c.select(inside, im, zero)))
                });
                if last { result(c, sum) } else { sum }
            });
            if last {
                return y.reshaped(&[self.outer, self.bins, self.inner, self.parts]);
            }
            operands = vec![cx.stored_access(y)];
            done = length;
        }
        unreachable!("a transform has a last pass")
    }
}

/// The bins and parts that are wanted of transforms that one launch computes, if it can. Operands are the elements, seen with these dimensions and strides, and a
/// window.
fn at_once(
    cx: &mut Lowering<'_>,
    kind: Fourier,
    operands: [Option<&Access>; 2],
    (dims, strides): ([usize; 5], [usize; 5]),
    [bins, parts]: [usize; 2],
) -> Option<Lazy> {
    Fourier::passes(kind.n, kind.dtype)?;
    let mut operands: Vec<Access> = operands.into_iter().flatten().cloned().collect();
    if !operands.iter().all(|a| a.is_plain() && a.view.is_dense()) {
        return None;
    }
    let strides = strides.iter().map(|s| *s as i64).collect();
    operands[0].view = View { offset: operands[0].view.offset, dims: dims.to_vec(), strides };
    let [a, b, _, q, _] = dims;
    Some(cx.produce(StepKind::Fourier(kind), operands, &[a, b, bins, q, parts], kind.dtype))
}

/// Part `part` (0 real, 1 imaginary) of the sum of `term(j)` times `exp(-+2 pi i k j / length)` for `count` terms, with a table for `n`, which `length`
/// divides; a term is a real and perhaps an imaginary part.
fn transformed(
    c: &mut Coder,
    table: usize,
    (n, length, count, inverse): (usize, usize, usize, bool),
    (k, part): (Val, Val),
    term: impl FnOnce(&mut Coder, Val) -> (Val, Option<Val>),
) -> Val {
    let dtype = c.operand_type(table);
    let zero = c.int(0);
    let real = c.eq(part, zero);
    c.sum(dtype, count, |c, j| {
        let product = c.mul(k, j);
        let (_, place) = c.divide(product, length);
        let place = c.times(place, (n / length) as i64);
        let cos = c.load(table, place);
        let place = c.plus(place, n as i64);
        let sin = c.load(table, place);
        let sin = if inverse { sin } else { c.unary(Unary::Neg, sin) };
        let (re, im) = term(c, j);
        let (a, b) = (c.mul(re, cos), c.mul(re, sin));
        let (a, b) = match im {
            None => (a, b),
            Some(im) => {
                let (p, q) = (c.mul(im, sin), c.mul(im, cos));
                (c.sub(a, p), c.add(b, q))
            }
        };
        c.select(real, a, b)
    })
}

/// An optional input that is one number.
fn number<'m>(cx: &impl Ask<'m>, i: usize, what: &str) -> Res<Option<i64>> {
    if cx.optional(i).is_none() {
        return Ok(None);
    }
    match cx.const_ints(i, what)?[..] {
        [n] => Ok(Some(n)),
        _ => Err(Reason::Value(format!("{what} is not one number"))),
    }
}

/// The axis along which a DFT of `rank` dimensions transforms.
fn dft_axis<'m>(cx: &impl Ask<'m>, rank: usize) -> Res<usize> {
    let axis = match number(cx, 2, "the axis")? {
        Some(axis) => axis,
        None => cx.int("axis", if cx.opset() < 20 { 1 } else { -2 })?,
    };
    cx.axis(axis, rank)
}

pub(super) fn dft(cx: &mut Lowering<'_>) -> Res<()> {
    let x = cx.input(0)?;
    let (shape, dtype) = (cx.shape(x).to_vec(), cx.dtype(x));
    let (inverse, onesided) = (cx.int("inverse", 0)? != 0, cx.int("onesided", 0)? != 0);
    let axis = dft_axis(cx, shape.len())?;
    let parts = shape.last().copied().unwrap_or(0);
    if axis + 1 >= shape.len()
        || !(1..=2).contains(&parts)
        || shape.contains(&0)
        || !matches!(dtype, DType::F32 | DType::F64)
    {
        return Err(Reason::Shape(format!(
            "transforms {dtype} data of shape {shape:?} along axis {axis}; f32 or f64 with a last extent of 1 or 2 is supported"
        )));
    }
    let length = number(cx, 1, "the length")?.unwrap_or(if inverse && onesided {
        2 * (shape[axis] as i64 - 1)
    } else {
        shape[axis] as i64
    });
    let n = usize::try_from(length).ok().filter(|n| (1..1 << 15).contains(n));
    let n = n.ok_or_else(|| Reason::Value(format!("a length of {length}; 1 to 32767 are supported")))?;
    let [outer, own, inner] = around(&shape[..shape.len() - 1], axis);
    let given = own.min(if inverse && onesided { n / 2 + 1 } else { n });
    let half = onesided && !inverse;
    let mut out = shape.clone();
    out[axis] = if half { n / 2 + 1 } else { n };
    *out.last_mut().unwrap_or(&mut 0) = if inverse && onesided { 1 } else { 2 };
    check_size(&out)?;
    // In f64: what cancels would leave the noise of the table otherwise.
    let (t, whole) = (DType::F64, inverse && onesided);
    // A half stands for the other one too, which has the same real parts and the opposite imaginary ones.
    let missing = whole && given <= n / 2;
    let last = out[out.len() - 1];
    let transform = Transform {
        outer,
        n,
        inner,
        inverse,
        dtype: t,
        bins: out[axis],
        parts: last,
        given: if whole { n } else { given },
    };
    let operand = cx.operand_if(x, View::is_dense);
    let strides = [own * inner * parts, 0, inner * parts, parts, 1];
    let dims = [outer, 1, given, inner, parts];
    let kind = Fourier { n, inverse, hermitian: whole, window: false, dtype: t };
    let scale = if inverse { 1.0 / n as f64 } else { 1.0 };
    if let Some(mut y) = at_once(cx, kind, [Some(&operand), None], (dims, strides), [out[axis], last]) {
        let mut e = Expr::new();
        let sum = e.push_acc(t);
        let factor = e.literal(t, Scalar::Float(scale));
        let scaled = if inverse { e.binary(Binary::Mul, sum, factor) } else { sum };
        let result = e.cast(scaled, dtype);
        y.expr = e.finish(result);
        cx.set(0, y.reshaped(&out));
        return Ok(());
    }
    let operands = vec![operand];
    let read = |c: &mut Coder, [o, j, q]: [Val; 3]| {
        let other = c.times(j, -1);
        let other = c.plus(other, n as i64);
        let beyond = c.lt(other, j);
        let j = if whole { c.select(beyond, other, j) } else { j };
        let inside = missing.then(|| c.within(j, 0, given as i64));
        let j = if missing { c.clamp(j, 0, given as i64) } else { j };
        let zero = c.constant(t, 0.0);
        let known = |c: &mut Coder, x: Val| inside.map_or(x, |inside| c.select(inside, x, zero));
        let at = c.place(&[o, j, q], &[outer, own, inner]);
        let at = c.times(at, parts as i64);
        let re = c.load(0, at);
        let re = c.cast(re, t);
        let re = known(c, re);
        let im = (parts == 2).then(|| {
            let at = c.plus(at, 1);
            let im = c.load(0, at);
            let im = c.cast(im, t);
            let im = known(c, im);
            let minus = c.unary(Unary::Neg, im);
            if whole { c.select(beyond, minus, im) } else { im }
        });
        (re, im)
    };
    let y = transform.lower(cx, operands, read, |c, sum| {
        let scale = c.constant(t, scale);
        let y = c.mul(sum, scale);
        c.cast(y, dtype)
    });
    cx.set(0, y.reshaped(&out));
    Ok(())
}

pub(super) fn stft(cx: &mut Lowering<'_>) -> Res<()> {
    let x = cx.input(0)?;
    let (shape, dtype) = (cx.shape(x).to_vec(), cx.dtype(x));
    let step = number(cx, 1, "the frame step")?.unwrap_or(0);
    let window = cx.optional(2);
    let window_length = window.map(|w| cx.shape(w).iter().product::<usize>());
    let length = match (number(cx, 3, "the frame length")?, window_length) {
        (Some(n), _) => n,
        (None, Some(n)) => n as i64,
        (None, None) => return Err(Reason::Value("neither a window nor a frame length is given".into())),
    };
    let onesided = cx.int("onesided", 1)? != 0;
    let (batch, samples, parts) = match shape[..] {
        [b, n] => (b, n, 1),
        [b, n, p @ 1..=2] => (b, n, p),
        _ => return Err(Reason::Shape(format!("a signal of shape {shape:?}"))),
    };
    let fits = |v: i64| usize::try_from(v).ok().filter(|n| (1..1 << 15).contains(n));
    let (Some(n), Some(step)) = (fits(length), fits(step)) else {
        return Err(Reason::Value(format!("a frame of {length} with a step of {step}; 1 to 32767 are supported")));
    };
    if samples < n || batch == 0 || window_length.is_some_and(|w| w != n) || !matches!(dtype, DType::F32 | DType::F64) {
        return Err(Reason::Shape(format!("a {dtype} signal of shape {shape:?} in frames of {n}")));
    }
    let frames = (samples - n) / step + 1;
    let bins = if onesided { n / 2 + 1 } else { n };
    let out = [batch, frames, bins, 2];
    check_size(&out)?;
    let mut operands = vec![cx.operand_if(x, View::is_dense)];
    if let Some(w) = window {
        operands.push(cx.operand_if(w, View::is_dense));
    }
    let (outer, inverse) = (batch * frames, false);
    let strides = [samples * parts, step * parts, parts, 0, 1];
    let dims = [batch, frames, n, 1, parts];
    let computed = if Fourier::passes(n, dtype).is_some() { dtype } else { DType::F64 };
    let kind = Fourier { n, inverse, hermitian: false, window: window.is_some(), dtype: computed };
    if let Some(mut y) = at_once(cx, kind, [operands.first(), operands.get(1)], (dims, strides), [bins, 2]) {
        let mut e = Expr::new();
        let sum = e.push_acc(computed);
        let result = e.cast(sum, dtype);
        y.expr = e.finish(result);
        cx.set(0, y.reshaped(&out));
        return Ok(());
    }
    let transform = Transform { outer, n, inner: 1, inverse, dtype, bins, parts: 2, given: n };
    let read = |c: &mut Coder, [o, j, _]: [Val; 3]| {
        let (b, frame) = c.divide(o, frames);
        let start = c.times(frame, step as i64);
        let at = c.add(start, j);
        let at = c.place(&[b, at], &[batch, samples]);
        let at = c.times(at, parts as i64);
        let weight = window.map(|_| c.load(1, j));
        let read = |c: &mut Coder, at: Val| {
            let x = c.load(0, at);
            weight.map_or(x, |w| c.mul(x, w))
        };
        let re = read(c, at);
        let im = (parts == 2).then(|| {
            let at = c.plus(at, 1);
            read(c, at)
        });
        (re, im)
    };
    let y = transform.lower(cx, operands, read, |_, sum| sum).reshaped(&out);
    cx.set(0, y);
    Ok(())
}

/// A window function of a known length: a sum of cosines with these factors.
fn window(cx: &mut Lowering<'_>, factors: &[f64]) -> Res<()> {
    let n = cx.const_ints(0, "the size")?;
    let [n] = n[..] else { return Err(Reason::Value("the size is not one number".into())) };
    let n = usize::try_from(n).ok().filter(|n| *n <= MAX_GENERATED);
    let n = n.ok_or_else(|| Reason::Size("the size is negative or too large".into()))?;
    let dtype = output_type(cx, "output_datatype")?;
    let around = if cx.int("periodic", 1)? != 0 { n } else { n.saturating_sub(1) }.max(1);
    let at = |i: usize| {
        let angle = 2.0 * PI * i as f64 / around as f64;
        factors.iter().enumerate().map(|(k, f)| f * (k as f64 * angle).cos()).sum()
    };
    let values: Vec<f64> = (0..n).map(at).collect();
    cx.set_const(0, HostTensor::from_f64(dtype, &[n], &values));
    Ok(())
}

fn output_type<'m>(cx: &impl Ask<'m>, name: &str) -> Res<DType> {
    let code = cx.int(name, 1)?;
    DType::from_onnx(code as i32)
        .ok_or_else(|| Reason::attribute(name, format!("is type {code}, which is not supported")))
}

pub(super) fn hann(cx: &mut Lowering<'_>) -> Res<()> {
    window(cx, &[0.5, -0.5])
}

pub(super) fn hamming(cx: &mut Lowering<'_>) -> Res<()> {
    window(cx, &[25.0 / 46.0, -21.0 / 46.0])
}

pub(super) fn blackman(cx: &mut Lowering<'_>) -> Res<()> {
    window(cx, &[0.42, -0.5, 0.08])
}

pub(super) fn mel_weights(cx: &mut Lowering<'_>) -> Res<()> {
    let one = |i: usize, what: &str| -> Res<f64> { cx.scalar(i, what)?.ok_or(Reason::MissingInput(i)) };
    let (bins, length, rate) = (one(0, "the number of bins")?, one(1, "the length")?, one(2, "the sample rate")?);
    let (low, high) = (one(3, "the lower edge")?, one(4, "the upper edge")?);
    let (bins, lines) = (bins.max(0.0) as usize, (length.max(0.0) as usize) / 2 + 1);
    if bins.saturating_mul(lines) > MAX_GENERATED || bins == 0 {
        return Err(Reason::Size(format!("{bins} bins of {lines} lines")));
    }
    let dtype = output_type(cx, "output_datatype")?;
    let mel = |hz: f64| 2595.0 * (1.0 + hz / 700.0).log10();
    let (from, to) = (mel(low), mel(high));
    let step = (to - from) / (bins as f64 + 2.0);
    let edge = |i: usize| {
        let hz = 700.0 * (10f64.powf((from + i as f64 * step) / 2595.0) - 1.0);
        ((length + 1.0) * hz / rate).floor().max(0.0) as usize
    };
    let mut values = vec![0.0; lines * bins];
    for b in 0..bins {
        let (left, middle, right) = (edge(b), edge(b + 1), edge(b + 2));
        if middle == left && middle < lines {
            values[middle * bins + b] = 1.0;
        } else {
            for i in left..=middle.min(lines - 1) {
                values[i * bins + b] = (i - left) as f64 / (middle - left) as f64;
            }
        }
        for i in middle..right.min(lines) {
            values[i * bins + b] = (right - i) as f64 / (right - middle) as f64;
        }
    }
    cx.set_const(0, HostTensor::from_f64(dtype, &[lines, bins], &values));
    Ok(())
}

/// Determinants by elimination with the largest pivot first, one matrix per workitem.
pub(super) fn det(cx: &mut Lowering<'_>) -> Res<()> {
    const LARGEST: usize = 8;
    let x = cx.input(0)?;
    let (shape, dtype) = (cx.shape(x).to_vec(), cx.dtype(x));
    let &[ref batch @ .., n, columns] = &shape[..] else {
        return Err(Reason::Shape(format!("data of shape {shape:?} is not a matrix")));
    };
    if n != columns || n > LARGEST || n == 0 || !dtype.is_float() {
        return Err(Reason::Shape(format!(
            "{dtype} matrices of shape {shape:?}; square floats of up to {LARGEST} rows are supported"
        )));
    }
    let count: usize = batch.iter().product();
    if count == 0 {
        cx.set(0, splat(dtype, batch, Scalar::of(dtype, 0.0)));
        return Ok(());
    }
    let operands = vec![cx.operand_if(x, View::is_dense)];
    let y = cx.program(operands, &[count], |c| {
        let first = c.coord(0);
        let first = c.times(first, (n * n) as i64);
        let mut m: Vec<Vec<Val>> = Vec::new();
        for i in 0..n {
            m.push(
                (0..n)
                    .map(|j| {
                        let at = c.plus(first, (i * n + j) as i64);
                        c.load(0, at)
                    })
                    .collect(),
            );
        }
        let mut result = c.constant(dtype, 1.0);
        let zero = c.constant(dtype, 0.0);
        for k in 0..n {
            for i in k + 1..n {
                let (a, b) = (c.unary(Unary::Abs, m[k][k]), c.unary(Unary::Abs, m[i][k]));
                let swap = c.lt(a, b);
                for j in k..n {
                    let (p, q) = (m[k][j], m[i][j]);
                    m[k][j] = c.select(swap, q, p);
                    m[i][j] = c.select(swap, p, q);
                }
                let minus = c.unary(Unary::Neg, result);
                result = c.select(swap, minus, result);
            }
            let pivot = m[k][k];
            result = c.mul(result, pivot);
            let none = c.eq(pivot, zero);
            for i in k + 1..n {
                let factor = c.binary(Binary::Div, m[i][k], pivot);
                let factor = c.select(none, zero, factor);
                for j in k + 1..n {
                    let share = c.mul(factor, m[k][j]);
                    m[i][j] = c.sub(m[i][j], share);
                }
            }
        }
        result
    });
    cx.set(0, y.reshaped(batch));
    Ok(())
}

/// Inverses by elimination with the largest pivot of a column first, all matrices together: a launch for each column, which works on
/// the matrices and the unit matrices beside them.
pub(super) fn inverse(cx: &mut Lowering<'_>) -> Res<()> {
    const LARGEST: usize = 256;
    let x = cx.input(0)?;
    let (shape, dtype) = (cx.shape(x).to_vec(), cx.dtype(x));
    let square = matches!(shape[..], [.., n, columns] if n == columns && n <= LARGEST);
    if !square || !dtype.is_float() || dtype.is_small_float() {
        return Err(Reason::Shape(format!(
            "{dtype} matrices of shape {shape:?}; square floats of up to {LARGEST} rows are supported"
        )));
    }
    if shape.contains(&0) {
        cx.set(0, splat(dtype, &shape, Scalar::of(dtype, 0.0)));
        return Ok(());
    }
    let n = shape[shape.len() - 1];
    let count = shape.iter().product::<usize>() / (n * n);
    let held = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let mut now = cx.operand_if(x, View::is_dense);
    for k in 0..n {
        let (first, last) = (k == 0, k + 1 == n);
        let columns = if last { n } else { 2 * n };
        let y = cx.program(vec![now], &[count, n, columns], |c| {
            let [batch, row, column] = [0, 1, 2].map(|d| c.coord(d));
            let column = if last { c.plus(column, n as i64) } else { column };
            let element = |c: &mut Coder, row: Val, column: Val| {
                if !first {
                    let at = c.place(&[batch, row, column], &[count, n, 2 * n]);
                    return c.load(0, at);
                }
                let inside = c.within(column, 0, n as i64);
                let near = c.clamp(column, 0, n as i64);
                let at = c.place(&[batch, row, near], &[count, n, n]);
                let own = c.load(0, at);
                let own = c.cast(own, held);
                let beside = c.plus(row, n as i64);
                let diagonal = c.eq(column, beside);
                let unit = c.cast(diagonal, held);
                c.select(inside, own, unit)
            };
            let at_k = c.int(k as i64);
            let pivot = element(c, at_k, at_k);
            let size = c.unary(Unary::Abs, pivot);
            let (largest, place) = (c.var(size), c.var(at_k));
            c.repeat(n - k - 1, |c, i| {
                let row = c.plus(i, k as i64 + 1);
                let x = element(c, row, at_k);
                let x = c.unary(Unary::Abs, x);
                let (before, at) = (c.get(largest), c.get(place));
                let larger = c.lt(before, x);
                let (x, row) = (c.select(larger, x, before), c.select(larger, row, at));
                c.set(largest, x);
                c.set(place, row);
            });
            // That row and row k change places; row k has 1 in its column then, all others 0.
            let chosen = c.get(place);
            let (pivot, head) = (element(c, chosen, at_k), element(c, chosen, column));
            let head = c.binary(Binary::Div, head, pivot);
            let (is_k, is_chosen) = (c.eq(row, at_k), c.eq(row, chosen));
            let from = c.select(is_chosen, at_k, row);
            let (factor, x) = (element(c, from, at_k), element(c, from, column));
            let share = c.mul(factor, head);
            let x = c.sub(x, share);
            let x = c.select(is_k, head, x);
            if last { c.cast(x, dtype) } else { x }
        });
        if last {
            cx.set(0, y.reshaped(&shape));
            break;
        }
        now = cx.stored_access(y);
    }
    Ok(())
}

// ---- rules; what does not fit is left to lowering, which says why ----

/// How many of `n` frequencies tell all of a real signal.
fn half(n: &Dim) -> Dim {
    &n.quotient(&Dim::Known(2)) + &Dim::Known(1)
}

pub(super) fn of_dft(cx: &mut Inference<'_>) -> Res<()> {
    let x = cx.input(0)?;
    let (inverse, onesided) = (cx.int("inverse", 0)? != 0, cx.int("onesided", 0)? != 0);
    let mut dims = cx.dims(x).to_vec();
    let axis = dft_axis(cx, dims.len())?;
    let n = match cx.optional(1) {
        Some(_) => cx.numbers(1, "the length")?,
        None if inverse && onesided => vec![&(&dims[axis] - &Dim::Known(1)) * &Dim::Known(2)],
        None => vec![dims[axis].clone()],
    };
    let [n] = &n[..] else { return by_lowering(cx) };
    dims[axis] = if onesided && !inverse { half(n) } else { n.clone() };
    if let Some(parts) = dims.last_mut() {
        *parts = Dim::Known(if inverse && onesided { 1 } else { 2 });
    }
    cx.give(0, cx.dtype(x), dims)
}

pub(super) fn of_stft(cx: &mut Inference<'_>) -> Res<()> {
    let x = cx.input(0)?;
    let step = cx.numbers(1, "the frame step")?;
    let n = match (cx.optional(3), cx.optional(2)) {
        (Some(_), _) => cx.numbers(3, "the frame length")?,
        (None, Some(window)) => vec![product(cx.dims(window))],
        (None, None) => return by_lowering(cx),
    };
    let ([step], [n], [batch, samples, ..]) = (&step[..], &n[..], cx.dims(x)) else { return by_lowering(cx) };
    let room = samples - n;
    if matches!(step, Dim::Known(..1)) || matches!(room, Dim::Known(..0)) {
        return by_lowering(cx);
    }
    let frames = &room.quotient(step) + &Dim::Known(1);
    let bins = if cx.int("onesided", 1)? != 0 { half(n) } else { n.clone() };
    cx.give(0, cx.dtype(x), vec![batch.clone(), frames, bins, Dim::Known(2)])
}

/// A window of as many elements as input 0 says.
pub(super) fn of_window(cx: &mut Inference<'_>) -> Res<()> {
    let dims = cx.numbers(0, "the size")?;
    if dims.len() != 1 || matches!(dims[0], Dim::Known(..0)) {
        return by_lowering(cx);
    }
    cx.give(0, output_type(cx, "output_datatype")?, dims)
}

pub(super) fn of_det(cx: &mut Inference<'_>) -> Res<()> {
    let x = cx.input(0)?;
    let [batch @ .., _, _] = cx.dims(x) else { return by_lowering(cx) };
    cx.give(0, cx.dtype(x), batch.to_vec())
}
