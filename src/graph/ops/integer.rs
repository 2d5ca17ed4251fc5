//! Products and convolutions of small integers, exact in 32 bits.
//!
//! Matrices stay bytes: an unsigned one moves by 128 with its zero point, and what the zero points add to a sum of products,
//! `Σ (a - za) (b - zb) = Σ a b - za Σ b - zb Σ a + k za zb`, is taken off afterwards. Convolutions are made of bytes where
//! weights are around 0 and the data's zero point is known; else zero points are taken off first, and where no sum can leave the
//! integers that an f32 holds, the product is one of floats; longer sums are products of 32-bit integers.
//!
//! Integers of 4 bits are bytes of the same value. Constants among them have no zero point where they fit without it.

use super::conv::{self, Frame};
use crate::graph::ask::Ask;
use crate::graph::dim::Dim;
use crate::graph::error::{Reason, Res};
use crate::graph::expr::{Binary, Scalar, Unary};
use crate::graph::fused::{Access, Conv, Role, StepKind, Window};
use crate::graph::infer::{Inference, by_lowering};
use crate::graph::lazy::Lazy;
use crate::graph::lower::{Lowering, splat};
use crate::graph::resolve::ValueId;
use crate::graph::view::View;
use crate::tensor::{DType, HostTensor};

/// The largest magnitude of a value without its zero point.
fn largest(t: DType, zero: bool) -> Res<usize> {
    match t {
        DType::U8 => Ok(255),
        DType::I8 => Ok(if zero { 255 } else { 128 }),
        DType::U4 => Ok(15),
        DType::I4 => Ok(if zero { 15 } else { 8 }),
        other => Err(unknown(other)),
    }
}

fn unknown(t: DType) -> Reason {
    Reason::Type(format!("computes with type {t}; i8, u8, i4 and u4 are supported"))
}

/// Integers of 4 bits, which are bytes of the same value.
fn is_narrow(t: DType) -> bool {
    matches!(t, DType::I4 | DType::U4)
}

/// All of them are integers of 4 bits, all signed or all unsigned.
fn fit_nibbles(list: &[u8]) -> bool {
    let within = |low: i8, high: i8| list.iter().all(|x| (low..=high).contains(&(*x as i8)));
    within(-8, 7) || within(0, 15)
}

/// A factor and its zero point.
#[derive(Clone, Copy)]
struct Factor {
    value: ValueId,
    zero: Option<ValueId>,
}

impl Factor {
    fn read(cx: &Lowering<'_>, value: usize, zero: usize) -> Res<Factor> {
        let (value, zero) = (cx.input(value)?, cx.optional(zero));
        if let Some(z) = zero
            && cx.shape(z).contains(&0)
        {
            return Err(Reason::Shape(format!("a zero point of shape {:?}", cx.shape(z))));
        }
        // A zero point of zero is none.
        let zero = zero.filter(|z| !cx.constant(*z).is_some_and(|t| t.to_i64().iter().all(|x| *x == 0)));
        Ok(Factor { value, zero })
    }

    fn largest(self, cx: &Lowering<'_>) -> Res<usize> {
        largest(cx.dtype(self.value), self.zero.is_some())
    }

    /// Constants of 4 bits as bytes without their zero point: one for all, or for each slice along `axis`.
    fn centered_constant(self, cx: &Lowering<'_>, axis: usize) -> Option<HostTensor> {
        let value = cx.constant(self.value).filter(|t| is_narrow(t.dtype()))?;
        let zeros = match self.zero {
            Some(z) => cx.constant(z).filter(|z| z.shape().len() < 2 && is_narrow(z.dtype()))?.bytes().to_vec(),
            None => vec![0],
        };
        let (shape, count) = (value.shape(), zeros.len());
        if count != 1 && Some(&count) != shape.get(axis) {
            return None;
        }
        let inner: usize = shape.get(axis + 1..)?.iter().product();
        let zero = |i: usize| zeros[i / inner % count];
        let bytes: Vec<u8> = value.bytes().iter().enumerate().map(|(i, x)| x.wrapping_sub(zero(i))).collect();
        HostTensor::new(DType::I8, shape, bytes).ok()
    }

    /// The factor as it is, or as bytes of the same value.
    fn as_bytes(self, cx: &mut Lowering<'_>) -> Res<Lazy> {
        let (shape, t) = (cx.shape(self.value).to_vec(), cx.dtype(self.value));
        let lazy = cx.without_base(self.value);
        if is_narrow(t) { cx.combine(vec![lazy], &shape, |e, v| e.cast(v[0], DType::I8)) } else { Ok(lazy) }
    }

    /// The zero point as it broadcasts with the data: one for all, or for each slice along `axis`.
    fn zero_point(self, cx: &mut Lowering<'_>, axis: usize) -> Res<Option<Lazy>> {
        let Some(z) = self.zero else { return Ok(None) };
        let shape = cx.shape(self.value).to_vec();
        let n = cx.shape(z).iter().product::<usize>();
        let zero = cx.without_base(z);
        Ok(Some(if n == 1 {
            zero.reshaped(&[])
        } else if cx.rank(z) > 1 {
            zero
        } else if n == shape[axis] {
            let mut dims = vec![1; shape.len()];
            dims[axis] = n;
            zero.reshaped(&dims)
        } else {
            return Err(Reason::Shape(format!("{n} zero points do not fit data of shape {shape:?}")));
        }))
    }

    /// The factor in the type that is computed in. A zero point for each slice stands along `axis`.
    fn centered(self, cx: &mut Lowering<'_>, t: DType, axis: usize) -> Res<Lazy> {
        let shape = cx.shape(self.value).to_vec();
        let mut terms = vec![cx.without_base(self.value)];
        terms.extend(self.zero_point(cx, axis)?);
        cx.combine(terms, &shape, |e, v| {
            let x = e.cast(v[0], t);
            match v.get(1) {
                None => x,
                Some(&z) => {
                    let z = e.cast(z, t);
                    e.binary(Binary::Sub, x, z)
                }
            }
        })
    }
}

/// A matrix of signed bytes and its zero point in 32 bits, where it has one.
fn signed(cx: &mut Lowering<'_>, factor: Factor, axis: usize) -> Res<(Access, Option<Lazy>)> {
    let (unsigned, narrow) = match cx.dtype(factor.value) {
        DType::I8 => (false, false),
        DType::U8 => (true, false),
        t if is_narrow(t) => (false, true),
        other => return Err(unknown(other)),
    };
    if let Some(t) = factor.centered_constant(cx, axis).filter(|t| fit_nibbles(t.bytes())) {
        let view = View::dense(t.shape());
        let id = cx.add_const("weights".into(), t);
        return Ok((Access::new(id, view), None));
    }
    let zero = match factor.zero_point(cx, axis)? {
        Some(zero) => {
            let shape = zero.shape.clone();
            Some(cx.combine(vec![zero], &shape, |e, v| {
                let z = e.cast(v[0], DType::I32);
                let by = e.constant(DType::I32, if unsigned { 128.0 } else { 0.0 });
                e.binary(Binary::Sub, z, by)
            })?)
        }
        None => unsigned.then(|| splat(DType::I32, &[], Scalar::of(DType::I32, -128.0))),
    };
    if narrow {
        let data = factor.as_bytes(cx)?;
        return Ok((cx.operand_of(data, super::matmul::good), zero));
    }
    if !unsigned {
        return Ok((cx.operand_if(factor.value, super::matmul::good), zero));
    }
    // Unsigned bytes less 128 are signed ones.
    let data = cx.lazy(factor.value);
    let moved = combined(cx, data, 0x80)?;
    Ok((cx.operand_of(moved, super::matmul::good), zero))
}

/// The sums of the columns of a constant matrix of bytes.
fn sums_of_columns(cx: &mut Lowering<'_>, matrix: &Access) -> Option<Lazy> {
    let Role::Constant(t) = &cx.graph.tensor(matrix.tensor).role else { return None };
    let (v, r) = (&matrix.view, matrix.view.rank());
    if v.len() != v.dims[r - 2] * v.dims[r - 1] || !matrix.is_plain() {
        return None;
    }
    let (rows, columns) = (v.dims[r - 2], v.dims[r - 1]);
    let at = |row: usize, column: usize| {
        (v.offset + row as i64 * v.strides[r - 2] + column as i64 * v.strides[r - 1]) as usize
    };
    let mut sums = vec![0i64; columns];
    let bytes = t.bytes();
    for row in 0..rows {
        sums.iter_mut().enumerate().for_each(|(c, sum)| *sum += i64::from(bytes[at(row, c)] as i8));
    }
    let mut shape = v.dims.clone();
    shape[r - 2] = 1;
    let id = cx.add_const("sums of columns".into(), HostTensor::from_ints(DType::I32, &shape, &sums));
    Some(Lazy::read(Access::new(id, View::dense(&shape)), DType::I32))
}

/// A product of two matrices of bytes, or of batches of them, in 32 bits.
fn product_of_bytes(cx: &mut Lowering<'_>, a: Factor, b: Factor) -> Res<Lazy> {
    let (ra, rb) = (cx.rank(a.value), cx.rank(b.value));
    let (left, left_zero) = signed(cx, a, ra - 2)?;
    let (right, right_zero) = signed(cx, b, rb - 1)?;
    let k = left.view.dims[ra - 1];
    let mut terms = Vec::new();
    let of_right = left_zero.is_some().then(|| match sums_of_columns(cx, &right) {
        Some(sums) => sums,
        None => super::reduce::sum_along(cx, right.clone(), rb - 2, DType::I8, DType::I32),
    });
    let of_left =
        right_zero.is_some().then(|| super::reduce::sum_along(cx, left.clone(), ra - 1, DType::I8, DType::I32));
    for sums in [of_right, of_left].into_iter().flatten() {
        terms.push(cx.stored(sums));
    }
    let (has_left, has_right) = (left_zero.is_some(), right_zero.is_some());
    terms.extend([left_zero, right_zero].into_iter().flatten());
    let product = super::matmul::product(cx, left, right, DType::I32)?;
    let shape = product.shape.clone();
    terms.insert(0, product);
    cx.combine(terms, &shape, |e, v| {
        let (mut y, mut rest) = (v[0], v[1..].iter().copied());
        let mut next = |there: bool| if there { rest.next() } else { None };
        let (of_right, of_left) = (next(has_left), next(has_right));
        let (za, zb) = (next(has_left), next(has_right));
        for (z, sums) in [(za, of_right), (zb, of_left)] {
            if let (Some(z), Some(sums)) = (z, sums) {
                let part = e.binary(Binary::Mul, z, sums);
                y = e.binary(Binary::Sub, y, part);
            }
        }
        if let (Some(za), Some(zb)) = (za, zb) {
            let k = e.constant(DType::I32, k as f64);
            let both = e.binary(Binary::Mul, za, zb);
            let part = e.binary(Binary::Mul, both, k);
            y = e.binary(Binary::Add, y, part);
        }
        y
    })
}

/// The type for sums of `count` products of these magnitudes.
fn working_type(count: usize, a: usize, b: usize) -> DType {
    if count.saturating_mul(a * b) <= 1 << 24 { DType::F32 } else { DType::I32 }
}

fn to_i32(cx: &mut Lowering<'_>, y: Lazy) -> Res<Lazy> {
    let shape = y.shape.clone();
    cx.combine(vec![y], &shape, |e, v| e.cast(v[0], DType::I32))
}

/// The result of a product or convolution without a single term.
fn sums_of_nothing(cx: &Lowering<'_>) -> Lazy {
    splat(DType::I32, &cx.result(0), Scalar::of(DType::I32, 0.0))
}

pub(super) fn matmul(cx: &mut Lowering<'_>) -> Res<()> {
    let (a, b) = (Factor::read(cx, 0, 2)?, Factor::read(cx, 1, 3)?);
    let (sa, sb) = (cx.shape(a.value).to_vec(), cx.shape(b.value).to_vec());
    let (Some(&k), false) = (sa.last(), sb.is_empty()) else {
        return Err(Reason::Shape(format!("factors of shape {sa:?} and {sb:?}")));
    };
    if sa.contains(&0) || sb.contains(&0) {
        let y = sums_of_nothing(cx);
        cx.set(0, y);
        return Ok(());
    }
    if sa.len() > 1 && sb.len() > 1 {
        let y = product_of_bytes(cx, a, b)?;
        cx.set(0, y);
        return Ok(());
    }
    let t = working_type(k, a.largest(cx)?, b.largest(cx)?);
    let left = a.centered(cx, t, sa.len().saturating_sub(2))?;
    let right = b.centered(cx, t, sb.len() - 1)?;
    // Vectors are matrices of one row or one column.
    let left = if sa.len() == 1 { left.reshaped(&[1, k]) } else { left };
    let right = if sb.len() == 1 { right.reshaped(&[sb[0], 1]) } else { right };
    let (x, y) = (cx.operand_of(left, super::matmul::good), cx.operand_of(right, super::matmul::good));
    let product = super::matmul::product(cx, x, y, t)?;
    let shape = cx.result(0);
    let y = to_i32(cx, product.reshaped(&shape))?;
    cx.set(0, y);
    Ok(())
}

/// A convolution of signed bytes, where it can be one: weights around 0, data around a known zero point. What that adds to a
/// sum, it times the weights of a channel, is taken off afterwards; padding is the zero point.
fn convolved_bytes(
    cx: &mut Lowering<'_>,
    [x, w]: [Factor; 2],
    frame: &Frame,
    [begin, end]: [&[usize]; 2],
    groups: usize,
    dims: &[usize],
) -> Res<Option<Lazy>> {
    let unsigned = [x, w].map(|f| cx.dtype(f.value) == DType::U8);
    let zero = |f: Factor, unsigned: bool| {
        let zero = match f.zero {
            None => 0,
            Some(z) => cx.constant(z).map(HostTensor::to_i64).filter(|z| z.iter().all(|n| *n == z[0]))?[0],
        };
        Some(zero - if unsigned { 128 } else { 0 })
    };
    let centered = w.centered_constant(cx, 0);
    let of_weights = if centered.is_some() { Some(0) } else { zero(w, unsigned[1]) };
    let (Some(zero), Some(0)) = (zero(x, unsigned[0]), of_weights) else { return Ok(None) };
    let channels = dims[1];
    let mut sums = Vec::new();
    if zero != 0 {
        let Some(weights) = centered.as_ref().or(cx.constant(w.value)) else { return Ok(None) };
        let moved = if unsigned[1] { 128 } else { 0 };
        let of = |row: &[i64]| row.iter().map(|x| x - moved).sum::<i64>() * zero;
        sums = weights.to_i64().chunks_exact(weights.len() / channels).map(of).collect();
    }
    // Unsigned bytes less 128 are signed ones, which is an exclusive or. Where there is padding they lie combined with the zero
    // point too: the kernel takes that back, and makes it of the zeros that it finds around them.
    let flip = if begin.iter().chain(end).any(|p| *p != 0) { zero as u8 } else { 0 };
    let top = |unsigned: bool| if unsigned { 0x80 } else { 0 };
    let data = if is_narrow(cx.dtype(x.value)) { x.as_bytes(cx)? } else { cx.lazy(x.value) };
    let data = combined(cx, data, top(unsigned[0]) ^ flip)?;
    let data = cx.operand_of(data, |v| v.is_inner_dense(1));
    let weights = match centered {
        Some(t) => {
            let view = View::dense(t.shape());
            Access::new(cx.add_const("weights".into(), t), view)
        }
        None => {
            let weights = w.as_bytes(cx)?;
            let weights = combined(cx, weights, top(unsigned[1]))?;
            cx.operand_of(weights, View::is_dense)
        }
    };
    let (kernel, strides, dilations) = (frame.kernel.clone(), frame.strides.clone(), frame.dilations.clone());
    let window = Window { kernel, strides, dilations, pads: begin.to_vec() };
    let kind = StepKind::Conv(Conv { flip, ..Conv::new(window, groups) });
    let y = cx.produce(kind, vec![data, weights], dims, DType::I32);
    if sums.is_empty() {
        return Ok(Some(y));
    }
    let mut along = vec![1; dims.len()];
    along[1] = channels;
    let id = cx.add_const("sums of weights".into(), HostTensor::from_ints(DType::I32, &along, &sums));
    let sums = Lazy::read(Access::new(id, View::dense(&along)), DType::I32);
    cx.combine(vec![y, sums], dims, |e, v| e.binary(Binary::Sub, v[0], v[1])).map(Some)
}

/// Bytes combined with another by exclusive or, as signed ones.
fn combined(cx: &mut Lowering<'_>, data: Lazy, with: u8) -> Res<Lazy> {
    let (shape, dtype) = (data.shape.clone(), data.dtype());
    if with == 0 && dtype == DType::I8 {
        return Ok(data);
    }
    let with = if dtype == DType::I8 { f64::from(with as i8) } else { f64::from(with) };
    cx.combine(vec![data], &shape, |e, v| {
        let with = e.constant(dtype, with);
        let x = e.binary(Binary::Xor, v[0], with);
        e.cast(x, DType::I8)
    })
}

/// A convolution of centered integers, in `i32`.
fn convolved(cx: &mut Lowering<'_>, x: Factor, w: Factor) -> Res<Lazy> {
    let (xs, ws) = (cx.shape(x.value).to_vec(), cx.shape(w.value).to_vec());
    if xs.contains(&0) || ws.contains(&0) {
        return Ok(sums_of_nothing(cx));
    }
    let groups = conv::groups(cx)?;
    let frame = Frame::read(cx, xs.len() - 2, Some(&ws[2..]))?;
    let (begin, end) = frame.padding(&xs[2..]);
    let dims = cx.result(0);
    if !conv::is_wide(&frame)
        && let Some(y) = convolved_bytes(cx, [x, w], &frame, [&begin, &end], groups, &dims)?
    {
        return Ok(y);
    }
    let t = working_type(ws[1..].iter().product(), x.largest(cx)?, w.largest(cx)?);
    let (data, weights) = (x.centered(cx, t, 1)?, w.centered(cx, t, 0)?);
    let y = if t == DType::F32 && !conv::is_wide(&frame) {
        let data = cx.operand_of(data, |v| v.is_inner_dense(1));
        let weights = cx.operand_of(weights, View::is_dense);
        let window = Window { kernel: frame.kernel, strides: frame.strides, dilations: frame.dilations, pads: begin };
        cx.produce(StepKind::Conv(Conv::new(window, groups)), vec![data, weights], &dims, t)
    } else {
        conv::as_product(cx, data, weights, &frame, &begin, groups, &dims)?
    };
    to_i32(cx, y)
}

pub(super) fn conv_integer(cx: &mut Lowering<'_>) -> Res<()> {
    let (x, w) = (Factor::read(cx, 0, 2)?, Factor::read(cx, 1, 3)?);
    let y = convolved(cx, x, w)?;
    cx.set(0, y);
    Ok(())
}

/// A convolution of quantised data: `round((sum + bias) * (x_scale * w_scale / y_scale)) + zero`.
pub(super) fn qlinear_conv(cx: &mut Lowering<'_>) -> Res<()> {
    let (x, w) = (Factor::read(cx, 0, 2)?, Factor::read(cx, 3, 5)?);
    let (zero, bias) = (cx.optional(7), cx.optional(8));
    let y = convolved(cx, x, w)?;
    let shape = y.shape.clone();
    let channel = |cx: &mut Lowering<'_>, v: ValueId| -> Res<Lazy> {
        let n = cx.shape(v).iter().product::<usize>();
        let lazy = cx.without_base(v);
        let mut dims = vec![1; shape.len()];
        dims[1] = n;
        match n {
            1 => Ok(lazy.reshaped(&[])),
            _ if n == shape[1] => Ok(lazy.reshaped(&dims)),
            _ => Err(Reason::Shape(format!("{n} values for {} channels", shape[1]))),
        }
    };
    let mut terms = vec![y];
    for i in [1, 4, 6] {
        let v = cx.input(i)?;
        terms.push(channel(cx, v)?);
    }
    for v in [zero, bias].into_iter().flatten() {
        terms.push(channel(cx, v)?);
    }
    let to = zero.map_or(DType::U8, |z| cx.dtype(z));
    let (low, high) = super::quantize::range(to)?;
    let y = cx.combine(terms, &shape, |e, v| {
        let mut rest = v[4..].iter().copied();
        let z = zero.and_then(|_| rest.next());
        let mut sum = v[0];
        if let Some(b) = bias.and_then(|_| rest.next()) {
            let b = e.cast(b, DType::I32);
            sum = e.binary(Binary::Add, sum, b);
        }
        let sum = e.cast(sum, DType::F32);
        let scale = e.binary(Binary::Mul, v[1], v[2]);
        let scale = e.binary(Binary::Div, scale, v[3]);
        let y = e.binary(Binary::Mul, sum, scale);
        let mut y = e.unary(Unary::Round, y);
        if let Some(z) = z {
            let z = e.cast(z, DType::F32);
            y = e.binary(Binary::Add, y, z);
        }
        let (low, high) = (e.constant(DType::F32, low), e.constant(DType::F32, high));
        let y = e.binary(Binary::Max, y, low);
        let y = e.binary(Binary::Min, y, high);
        e.cast(y, to)
    })?;
    cx.set(0, y);
    Ok(())
}

/// Scales of the rows of input 1, which stand along them; one scale stays as it is.
pub(super) fn rows(cx: &mut Lowering<'_>) -> Res<()> {
    let scale = cx.input(0)?;
    let shape = cx.shape(scale).to_vec();
    let lazy = cx.without_base(scale);
    let y = match shape[..] {
        [1] => lazy.reshaped(&[]),
        [n] => lazy.reshaped(&[n, 1]),
        _ => lazy,
    };
    cx.set(0, y);
    Ok(())
}

/// MatMul of perhaps transposed factors with a factor: onnxruntime's FusedMatMul. A vector is not transposed; it is a matrix of
/// one row (left) or one column (right), which the result then lacks.
pub(super) fn fused_matmul(cx: &mut Lowering<'_>) -> Res<()> {
    let alpha = cx.float("alpha", 1.0)?;
    let (a, b) = (cx.input(0)?, cx.input(1)?);
    if cx.shape(a).contains(&0) || cx.shape(b).contains(&0) {
        let (dtype, shape) = (cx.dtype(a), cx.result(0));
        cx.set(0, splat(dtype, &shape, Scalar::of(dtype, 0.0)));
        return Ok(());
    }
    let mut factors = Vec::new();
    for (i, (name, batch)) in FLIPS.into_iter().enumerate() {
        let v = cx.input(i)?;
        let r = cx.rank(v);
        if r == 0 {
            return Err(Reason::Shape(format!("input {i} has shape {:?}; a matrix is needed", cx.shape(v))));
        }
        let order = factor_order(r, cx.int(name, 0)? != 0, cx.int(batch, 0)? != 0);
        let turned = |view: &View| super::matmul::good(&view.permuted(&order));
        let mut access = cx.operand_if(v, turned);
        if turned(&access.view) {
            access.view = access.view.permuted(&order);
        } else {
            let lazy = Lazy::read(Access::new(access.tensor, access.view.permuted(&order)), cx.dtype(v));
            access = cx.operand_of(lazy, super::matmul::good);
        }
        if r == 1 {
            access.view = access.view.repeated(i, 1);
        }
        factors.push(access);
    }
    let dtype = cx.dtype(cx.input(0)?);
    let (b, a) = (factors.pop(), factors.pop());
    let (Some(a), Some(b)) = (a, b) else { return Err(Reason::MissingInput(1)) };
    let y = super::matmul::product(cx, a, b, dtype)?;
    let shape = y.shape.clone();
    let y = cx.combine(vec![y], &shape, |e, v| {
        let factor = e.constant(dtype, alpha);
        e.binary(Binary::Mul, v[0], factor)
    })?;
    let shape = cx.result(0);
    cx.set(0, y.reshaped(&shape));
    Ok(())
}

// ---- rules ----

pub(super) fn of_matmul(cx: &mut Inference<'_>) -> Res<()> {
    let dims = super::matmul::product_dims(cx.dims(cx.input(0)?), cx.dims(cx.input(1)?))?;
    cx.give(0, DType::I32, dims)
}

pub(super) fn of_conv(cx: &mut Inference<'_>) -> Res<()> {
    let (x, w) = (cx.input(0)?, cx.input(1)?);
    conv::of_convolution(cx, x, w, DType::I32)
}

/// The result has the type of its zero point.
pub(super) fn of_quantized_conv(cx: &mut Inference<'_>) -> Res<()> {
    let (x, w) = (cx.input(0)?, cx.input(3)?);
    let zero = cx.optional(7).unwrap_or(x);
    conv::of_convolution(cx, x, w, cx.dtype(zero))
}

/// Output 0 of [`rows`]: a scale for each row.
pub(super) fn of_rows(cx: &mut Inference<'_>) -> Res<()> {
    let scale = cx.input(0)?;
    let dims = match cx.dims(scale) {
        [n] if n.is(1) => Vec::new(),
        [n] if n.known().is_some() => vec![n.clone(), Dim::Known(1)],
        [_] => return by_lowering(cx),
        dims => dims.to_vec(),
    };
    cx.give(0, cx.dtype(scale), dims)
}

/// The attributes that turn the factors of [`fused_matmul`].
const FLIPS: [(&str, &str); 2] = [("transA", "transBatchA"), ("transB", "transBatchB")];

/// The order in which a factor of rank `r` takes its dimensions: with `batch` the first one comes behind those of the batch, then
/// with `flipped` the last two change places. A vector stays as it is.
fn factor_order(r: usize, flipped: bool, batch: bool) -> Vec<usize> {
    let mut order: Vec<usize> = (0..r).collect();
    if r < 2 {
        return order;
    }
    if batch {
        order[..r - 1].rotate_left(1);
    }
    if flipped {
        order.swap(r - 1, r - 2);
    }
    order
}

pub(super) fn of_fused_matmul(cx: &mut Inference<'_>) -> Res<()> {
    let side = |i: usize| -> Res<Vec<Dim>> {
        let dims = cx.dims(cx.input(i)?);
        let (flipped, batch) = FLIPS[i];
        let order = factor_order(dims.len(), cx.int(flipped, 0)? != 0, cx.int(batch, 0)? != 0);
        Ok(order.into_iter().map(|d| dims[d].clone()).collect())
    };
    let (a, b) = (side(0)?, side(1)?);
    cx.give(0, cx.dtype(cx.input(0)?), super::matmul::product_dims(&a, &b)?)
}
