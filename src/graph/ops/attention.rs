//! Attention and rotary position embeddings, composed of matrix products, a softmax and pointwise steps.
//!
//! Heads that share keys and values are a dimension of their own, over which keys and values are broadcast; so grouped
//! queries copy nothing.

use super::matmul::product;
use super::source::counted;
use crate::graph::ask::Ask;
use crate::graph::dim::{Dim, aligned, described};
use crate::graph::error::{Reason, Res};
use crate::graph::expr::{Binary, Expr, Scalar, Unary, Val};
use crate::graph::fused::{Access, Guard, Softmax, StepKind};
use crate::graph::infer::Inference;
use crate::graph::lazy::Lazy;
use crate::graph::lower::Lowering;
use crate::graph::resolve::ValueId;
use crate::graph::view::View;
use crate::tensor::{DType, HostTensor};

/// The value as `[batch, heads, length, size]`.
fn heads(cx: &mut Lowering<'_>, v: ValueId, count: usize) -> Res<Lazy> {
    let lazy = cx.without_base(v);
    match lazy.shape[..] {
        [_, _, _, _] => Ok(lazy),
        [b, s, hidden] if count > 0 && hidden % count == 0 => {
            let split = lazy.reshaped(&[b, s, count, hidden / count]);
            Ok(cx.permute(split, &[0, 2, 1, 3]))
        }
        _ => Err(Reason::Shape(format!("shape {:?} does not hold {count} heads", lazy.shape))),
    }
}

/// `past` followed by `new` along dimension 2.
fn extended(cx: &mut Lowering<'_>, past: Option<ValueId>, new: Lazy) -> Res<Lazy> {
    let Some(past) = past else { return Ok(new) };
    let past = cx.without_base(past);
    super::layout::join(cx, vec![past, new], 2)
}

fn count<'m>(cx: &impl Ask<'m>, name: &str) -> Res<usize> {
    usize::try_from(cx.int(name, 0)?).map_err(|_| Reason::attribute(name, "is negative"))
}

/// Appends `extra` positions of `fill` to the last dimension.
fn padded(cx: &mut Lowering<'_>, lazy: Lazy, extra: usize, fill: Scalar) -> Lazy {
    if extra == 0 {
        return lazy;
    }
    let read = cx.stored(lazy);
    let mut p = read.plain().expect("a stored tensor has plain dimensions");
    let last = p.grid.len() - 1;
    let ranges = p.grid.iter().map(|&n| (0, n)).collect();
    p.grid[last] += extra;
    p.inputs[0].view.dims[last] += extra;
    p.inputs[0].guard = Some(Guard { ranges, fill });
    cx.normal(p)
}

pub(super) fn attention(cx: &mut Lowering<'_>) -> Res<()> {
    let ids = [cx.input(0)?, cx.input(1)?, cx.input(2)?];
    let dtype = cx.dtype(ids[0]);
    if !dtype.is_float() || ids.iter().any(|&v| cx.dtype(v) != dtype || cx.shape(v).contains(&0)) {
        return Err(Reason::Type("queries, keys and values must be floats of one type, with elements".into()));
    }
    let flat = cx.rank(ids[0]) == 3;
    let (q_heads, kv_heads) = (count(cx, "q_num_heads")?, count(cx, "kv_num_heads")?);
    let q = heads(cx, ids[0], q_heads)?;
    let (k, v) = (heads(cx, ids[1], kv_heads)?, heads(cx, ids[2], kv_heads)?);
    let past = cx.optional(4).map_or(0, |p| cx.shape(p).get(2).copied().unwrap_or(0));
    let k = extended(cx, cx.optional(4), k)?;
    let v = extended(cx, cx.optional(5), v)?;
    let (&[b, h, s, d], &[_, hk, t, _]) = (&q.shape[..], &k.shape[..]) else {
        return Err(Reason::Shape("queries and keys have different ranks".into()));
    };
    if hk == 0 || h % hk != 0 || k.shape[0] != b || v.shape[..3] != k.shape[..3] || k.shape[3] != d {
        return Err(Reason::Shape(format!(
            "queries {:?}, keys {:?} and values {:?} do not fit",
            q.shape, k.shape, v.shape
        )));
    }
    let capped = scores(cx, q, k.clone())?;
    let dims = capped.shape.clone();
    let mode = cx.int("qk_matmul_output_mode", 0)?;
    let capped = if cx.wants(3) && mode < 2 { cx.stored(capped) } else { capped };
    let masked = mask(cx, capped.clone(), &dims, (b, h, hk, past))?;
    let [y, rows, weights] = weighted(cx, masked, v.clone())?;
    let y = if flat { cx.permute(y, &[0, 2, 1, 3]).reshaped(&cx.result(0)) } else { y };
    cx.set(0, y);
    cx.set(1, k);
    cx.set(2, v);
    if cx.wants(3) {
        let scores = match mode {
            0 | 1 => capped,
            2 => rows,
            3 => weights,
            other => {
                return Err(Reason::attribute("qk_matmul_output_mode", format!("is {other}; 0 to 3 are supported")));
            }
        };
        cx.set(3, scores.reshaped(&[b, h, s, t]));
    }
    Ok(())
}

/// Scores `[batch, key heads, group, queries, keys]` of queries `[batch, heads, queries, size]` and keys `[batch, key heads, keys, size]`
/// that fit, with the node's scale and cap.
pub(super) fn scores(cx: &mut Lowering<'_>, q: Lazy, k: Lazy) -> Res<Lazy> {
    let (&[b, h, s, d], &[_, hk, t, _]) = (&q.shape[..], &k.shape[..]) else {
        return Err(Reason::Shape("queries and keys have different ranks".into()));
    };
    let dtype = q.dtype();
    let scale = match cx.float("scale", 0.0)? {
        0.0 => 1.0 / (d as f64).sqrt(),
        given => given,
    };
    let softcap = cx.float("softcap", 0.0)?;
    let left = cx.operand_of(q.reshaped(&[b, hk, h / hk, s, d]), super::matmul::good);
    let keys = cx.operand_of(k.reshaped(&[b, hk, 1, t, d]), super::matmul::good);
    let keys = Access::new(keys.tensor, keys.view.permuted(&[0, 1, 2, 4, 3]));
    let scores = product(cx, left, keys, dtype)?;
    let dims = scores.shape.clone();
    cx.combine(vec![scores], &dims, |e, v| {
        let factor = e.constant(dtype, scale);
        let x = e.binary(Binary::Mul, v[0], factor);
        if softcap <= 0.0 {
            return x;
        }
        let (c, r) = (e.constant(dtype, softcap), e.constant(dtype, 1.0 / softcap));
        let x = e.binary(Binary::Mul, x, r);
        let x = e.unary(Unary::Tanh, x);
        e.binary(Binary::Mul, x, c)
    })
}

/// Values `[batch, key heads, keys, size]` as masked [`scores`] weigh them, `[batch, heads, queries, size]`; these scores, and their softmax.
pub(super) fn weighted(cx: &mut Lowering<'_>, masked: Lazy, v: Lazy) -> Res<[Lazy; 3]> {
    let (dtype, dims) = (masked.dtype(), masked.shape.clone());
    let (&[b, hk, group, s, t], &[.., size]) = (&dims[..], &v.shape[..]) else {
        return Err(Reason::Shape(format!("scores of shape {dims:?}")));
    };
    let rows = cx.operand_of(masked, |_| true);
    let weights = cx.produce(StepKind::Softmax(Softmax { log: false, masked: true }), vec![rows.clone()], &dims, dtype);
    let weights = cx.operand_of(weights, |_| true);
    let values = cx.operand_of(v.reshaped(&[b, hk, 1, t, size]), super::matmul::good);
    let y = product(cx, weights.clone(), values, dtype)?.reshaped(&[b, hk * group, s, size]);
    Ok([y, Lazy::read(rows, dtype), Lazy::read(weights, dtype)])
}

/// Elements of a causal mask; scores with more are not gone through by kernels either.
const LARGEST_MASK: usize = (1 << 31) - 1;

/// Adds the given mask, the causal mask and the mask of unused positions to the scores `[b, hk, group, s, t]`.
fn mask(
    cx: &mut Lowering<'_>,
    scores: Lazy,
    dims: &[usize],
    (b, h, hk, past): (usize, usize, usize, usize),
) -> Res<Lazy> {
    let (s, t) = (dims[3], dims[4]);
    let dtype = scores.dtype();
    let mut terms = vec![scores];
    let hide = |e: &mut Expr, keep: Val, x: Val| {
        let none = e.constant(dtype, f64::NEG_INFINITY);
        e.select(keep, x, none)
    };
    let mut given = None;
    if let Some(m) = cx.optional(3) {
        let boolean = cx.dtype(m) == DType::Bool;
        if !boolean && cx.dtype(m) != dtype {
            return Err(Reason::Type(format!("the mask has type {}; bool and {dtype} are supported", cx.dtype(m))));
        }
        let lazy = cx.without_base(m);
        let mut shape = vec![1; 4usize.saturating_sub(lazy.shape.len())];
        shape.extend(&lazy.shape);
        let last = shape.pop().unwrap_or(1);
        let fits =
            shape.len() == 3 && [1, b].contains(&shape[0]) && [1, h].contains(&shape[1]) && (1..=t).contains(&last);
        if !fits || ![1, s].contains(&shape[2]) {
            return Err(Reason::Shape(format!(
                "a mask of shape {:?} does not fit scores of {b} x {h} x {s} x {t}",
                lazy.shape
            )));
        }
        let fill = if boolean { Scalar::Int(0) } else { Scalar::Float(f64::NEG_INFINITY) };
        let lazy = padded(cx, lazy, t - last, fill);
        let (kv, group) = if shape[1] == 1 { (1, 1) } else { (hk, h / hk) };
        terms.push(lazy.reshaped(&[shape[0], kv, group, shape[2], t]));
        given = Some(boolean);
    }
    let causal = cx.int("is_causal", 0)? != 0;
    if causal {
        let Some(elements) = s.checked_mul(t).filter(|&n| n <= LARGEST_MASK) else {
            return Err(Reason::Size(format!("the causal mask of {s} x {t} is too large")));
        };
        let mut seen = vec![0u8; elements];
        seen.chunks_mut(t).enumerate().for_each(|(i, row)| row[..t.min(i + past + 1)].fill(1));
        let seen = HostTensor::new(DType::Bool, &[s, t], seen).expect("a byte for each element");
        let id = cx.add_const("causal mask".into(), seen);
        terms.push(Lazy::read(Access::new(id, View::dense(&[s, t])), DType::Bool));
    }
    let used = cx.optional(6);
    if let Some(n) = used {
        if cx.shape(n) != [b] {
            return Err(Reason::Shape(format!(
                "input 6 has shape {:?}, not [{b}]: a length for each of the batch",
                cx.shape(n)
            )));
        }
        terms.push(counted(cx, "positions", cx.dtype(n), t, (0, 1))?);
        let n = cx.without_base(n).reshaped(&[b, 1, 1, 1, 1]);
        terms.push(n);
    }
    cx.combine(terms, dims, |e, v| {
        let (mut x, mut at) = (v[0], 1);
        if let Some(boolean) = given {
            x = if boolean { hide(e, v[1], x) } else { e.binary(Binary::Add, x, v[1]) };
            at = 2;
        }
        if causal {
            x = hide(e, v[at], x);
            at += 1;
        }
        if used.is_some() {
            let inside = e.binary(Binary::Lt, v[at], v[at + 1]);
            x = hide(e, inside, x);
        }
        x
    })
}

/// Rotates pairs of elements of each head by the angle of their position.
pub(super) fn rotary(cx: &mut Lowering<'_>) -> Res<()> {
    let x = cx.input(0)?;
    let dtype = cx.dtype(x);
    let given = cx.shape(x).to_vec();
    if !dtype.is_float() || given.contains(&0) {
        return Err(Reason::Type(format!("data of type {dtype} and shape {given:?}; floats are needed")));
    }
    // Half of a head's size, where the whole head is rotated.
    let half = cx.shape(cx.input(1)?).last().copied().unwrap_or(0);
    let heads_given = match (count(cx, "num_heads")?, count(cx, "rotary_embedding_dim")?, &given[..]) {
        (0, 0, [_, _, width]) if half > 0 && width % (2 * half) == 0 => width / (2 * half),
        (n, ..) => n,
    };
    let data = heads(cx, x, heads_given)?;
    let [b, h, s, d] = data.shape[..] else { return Err(Reason::Shape(format!("data of shape {given:?}"))) };
    let rotated = match count(cx, "rotary_embedding_dim")? {
        0 => d.min(2 * half),
        n => n,
    };
    if rotated > d || rotated % 2 != 0 {
        return Err(Reason::attribute("rotary_embedding_dim", format!("is {rotated} for heads of size {d}")));
    }
    let half = rotated / 2;
    let mut caches = Vec::new();
    for i in [1, 2] {
        let cache = cx.input(i)?;
        let shape = cx.shape(cache).to_vec();
        if shape.last() != Some(&half) || shape.contains(&0) {
            return Err(Reason::Shape(format!("input {i} has shape {shape:?}; its last dimension must be {half}")));
        }
        let lazy = match cx.optional(3) {
            Some(ids) if shape.len() == 2 && cx.shape(ids) == [b, s] => super::gather::rows(cx, cache, ids)?,
            None if shape == [b, s, half] => cx.without_base(cache),
            _ => {
                return Err(Reason::Shape(format!(
                    "input {i} of shape {shape:?} does not fit data of shape {given:?}"
                )));
            }
        };
        caches.push(lazy);
    }
    // It is read twice.
    let data = if data.is_cheap() { data } else { cx.stored(data) };
    let plain = cx.plain_of(data);
    let interleaved = cx.int("interleaved", 0)? != 0;
    let cut = |cx: &mut Lowering<'_>, start: usize, n| super::layout::sliced(cx, &plain, &[(3, start as i64, 1, n)]);
    // Pairs `p, q` become `p cos - q sin, q cos + p sin`: each element with the cosine, the other of its pair with the sine, whose
    // sign is the element's place.
    let (pairs, along, of_pair) = match interleaved {
        true => ([b, h, s, half, 2], [b, 1, s, half, 1], 4),
        false => ([b, h, s, 2, half], [b, 1, s, 1, half], 3),
    };
    let head = cut(cx, 0, rotated);
    let own = cx.plain_of(head.reshaped(&pairs));
    let other = super::layout::sliced(cx, &own, &[(of_pair, 1, -1, 2)]);
    let own = cx.normal(own);
    let mut ones = [1; 5];
    ones[of_pair] = 2;
    let sign = cx.add_const("sign".into(), HostTensor::from_f64(dtype, &ones, &[-1.0, 1.0]));
    let sign = Lazy::read(Access::new(sign, View::dense(&ones)), dtype);
    let [cos, sin] = [0, 1].map(|i| caches[i].clone().reshaped(&along));
    let y = cx.combine(vec![own, other, cos, sin, sign], &pairs, |e, v| {
        let (real, turned) = (e.binary(Binary::Mul, v[0], v[2]), e.binary(Binary::Mul, v[1], v[3]));
        let turned = e.binary(Binary::Mul, turned, v[4]);
        e.binary(Binary::Add, real, turned)
    })?;
    let mut y = y.reshaped(&[b, h, s, rotated]);
    if rotated < d {
        let rest = cut(cx, rotated, d - rotated);
        y = super::layout::join(cx, vec![y, rest], 3)?;
    }
    let y = if given.len() == 3 { cx.permute(y, &[0, 2, 1, 3]) } else { y };
    cx.set(0, y.reshaped(&given));
    Ok(())
}

/// Which keys count, as onnxruntime's masks say it: how many of each sequence, perhaps with where they begin, a flag for each key,
/// or one for each query and key. The result is `[batch, 1, 1 or queries, keys]`; input 1 are the keys, `[batch, keys, ..]` or `[batch, heads, keys, size]`,
/// and input 2, if there is one, those of the past, which come first, `[batch, heads, keys, size]`.
pub(super) fn key_mask(cx: &mut Lowering<'_>) -> Res<()> {
    let m = cx.input(0)?;
    let (dtype, dims) = (cx.dtype(m), cx.result(0));
    let mask = cx.without_base(m);
    let y = if let [count] = mask.shape[..] {
        let (batch, n) = (dims[0], dims[3]);
        let positions = counted(cx, "positions", dtype, n, (0, 1))?;
        let numbers = cx.plain_of(mask);
        let parts = if count == 2 * batch { 2 } else { 1 };
        let bounds = (0..parts).map(|i| super::layout::sliced(cx, &numbers, &[(0, (i * batch) as i64, 1, batch)]));
        let bounds = bounds.map(|x| x.reshaped(&[batch, 1, 1, 1])).collect::<Vec<_>>();
        cx.combine([vec![positions], bounds].concat(), &dims, |e, v| {
            let before_end = e.binary(Binary::Lt, v[0], v[1]);
            let Some(&start) = v.get(2) else { return before_end };
            let behind_start = e.binary(Binary::Le, start, v[0]);
            e.binary(Binary::And, before_end, behind_start)
        })?
    } else {
        cx.combine(vec![mask.reshaped(&dims)], &dims, |e, v| e.cast(v[0], DType::Bool))?
    };
    cx.set(0, y);
    Ok(())
}

/// Where new tokens go, by lengths that count all but one of a sequence's keys: how many each sequence has had, and each token's place.
/// One token goes where its sequence's length says, which is never negative.
pub(super) fn places(cx: &mut Lowering<'_>) -> Res<()> {
    let (lengths, new) = (cx.input(0)?, cx.result(1)[1]);
    let (dtype, batch) = (cx.dtype(lengths), cx.shape(lengths).iter().product());
    let lengths = cx.without_base(lengths).reshaped(&[batch]);
    if new == 1 {
        cx.set(0, lengths.clone());
        cx.set(1, lengths.reshaped(&[batch, 1]));
        return Ok(());
    }
    let had = cx.combine(vec![lengths], &[batch], |e, v| {
        let (others, none) = (e.constant(dtype, new as f64 - 1.0), e.constant(dtype, 0.0));
        let had = e.binary(Binary::Sub, v[0], others);
        e.binary(Binary::Max, had, none)
    })?;
    let steps = counted(cx, "steps", dtype, new, (0, 1))?;
    let first = had.clone().reshaped(&[batch, 1]);
    let own = cx.combine(vec![first, steps], &[batch, new], |e, v| e.binary(Binary::Add, v[0], v[1]))?;
    cx.set(0, had);
    cx.set(1, own);
    Ok(())
}

/// A bias for heads that lie in the last dimension; heads apart, `[batch, heads, length, size]`, stay as they are.
pub(super) fn head_bias(cx: &mut Lowering<'_>) -> Res<()> {
    let x = cx.input(0)?;
    if cx.rank(x) == 4 {
        cx.pass(0, x);
        return Ok(());
    }
    super::elementwise::add(cx)
}

// ---- rules ----

pub(super) fn of_head_bias(cx: &mut Inference<'_>) -> Res<()> {
    let x = cx.input(0)?;
    if cx.dims(x).len() == 4 {
        cx.same(0, x);
        return Ok(());
    }
    super::elementwise::of_sum(cx)
}

pub(super) fn of_places(cx: &mut Inference<'_>) -> Res<()> {
    let (lengths, x) = (cx.input(0)?, cx.input(1)?);
    let (dtype, dims, new) = (cx.dtype(lengths), cx.dims(lengths), cx.dims(x).get(1));
    let one = Dim::Known(1);
    let (Some(new), true) = (new.cloned(), dims.iter().skip(1).all(|d| !d.differs(&one))) else {
        let (dims, x) = (described(dims), described(cx.dims(x)));
        return Err(Reason::Shape(format!("lengths of shape {dims} for tokens of shape {x}")));
    };
    let batch = dims.first().cloned().unwrap_or(one);
    cx.give(0, dtype, vec![batch.clone()])?;
    cx.give(1, dtype, vec![batch, new])
}

pub(super) fn of_key_mask(cx: &mut Inference<'_>) -> Res<()> {
    let (m, k) = (cx.input(0)?, cx.input(1)?);
    let (mask, keys) = (cx.dims(m), cx.dims(k));
    let (Some(batch), Some(length)) = (keys.first(), keys.get(if keys.len() == 4 { 2 } else { 1 })) else {
        return Err(Reason::Shape(format!("keys of shape {}", described(keys))));
    };
    let had = cx.optional(2).and_then(|p| cx.dims(p).get(2)).cloned();
    let length = had.map_or(length.clone(), |had| &had + length);
    let one = Dim::Known(1);
    // Ends of keys; ends, then starts; ends, then running sums of the lengths of queries and of keys.
    let times = |n| batch * &Dim::Known(n);
    let forms = [times(1), times(2), &times(3) + &Dim::Known(2)];
    let dims = match mask {
        [n] if forms.iter().any(|form| !n.differs(form)) => [batch.clone(), one.clone(), one, length.clone()],
        [b, t] => [b.clone(), one.clone(), one, t.clone()],
        [b, s, t] => [b.clone(), one, s.clone(), t.clone()],
        [b, h, s, t] => [b.clone(), h.clone(), s.clone(), t.clone()],
        _ => {
            let (mask, keys) = (described(mask), described(keys));
            return Err(Reason::Shape(format!("a mask of shape {mask} for keys of shape {keys}")));
        }
    };
    // Keys that a mask says nothing of would count as hidden.
    if dims[3].differs(&length) {
        let mask = described(mask);
        return Err(Reason::Shape(format!("a mask of shape {mask} for {length} keys of each sequence")));
    }
    cx.give(0, DType::Bool, dims.to_vec())
}

/// Dimensions under heads: `[batch, heads, length, size]`.
fn headed(dims: &[Dim], count: usize) -> Res<[Dim; 4]> {
    let n = Dim::from(count);
    match dims {
        [b, h, s, d] => Ok([b, h, s, d].map(Dim::clone)),
        [b, s, width] if count > 0 && !width.differs(&(&width.quotient(&n) * &n)) => {
            Ok([b.clone(), n.clone(), s.clone(), width.quotient(&n)])
        }
        _ => Err(Reason::Shape(format!("shape {} does not hold {count} heads", described(dims)))),
    }
}

/// The result, all keys, all values, and the scores.
pub(super) fn of_attention(cx: &mut Inference<'_>) -> Res<()> {
    let [q, k, v] = [cx.input(0)?, cx.input(1)?, cx.input(2)?];
    let (own, shared) = (count(cx, "q_num_heads")?, count(cx, "kv_num_heads")?);
    let [b, h, s, dq] = headed(cx.dims(q), own)?;
    let ([bk, hk, t, d], [bv, hv, tv, dv]) = (headed(cx.dims(k), shared)?, headed(cx.dims(v), shared)?);
    cx.tie(vec![(b.clone(), bk.clone()), (bk, bv), (dq, d.clone()), (hk.clone(), hv), (t.clone(), tv)]);
    let past = |i: usize| cx.optional(i).map(|p| cx.dims(p).to_vec()).unwrap_or_default();
    let (past_k, past_v) = (past(4), past(5));
    if let Some(other) =
        [&past_k, &past_v].into_iter().zip([4, 5]).find(|(p, i)| cx.optional(*i).is_some() && p.len() != 4)
    {
        let (dims, i) = (described(other.0), other.1);
        return Err(Reason::Shape(format!("the past (input {i}) has shape {dims}, not [batch, heads, length, size]")));
    }
    let long = |past: &[Dim]| past.get(2).cloned().unwrap_or(Dim::Known(0));
    let own = |past: &[Dim], own: [&Dim; 4]| past.iter().cloned().zip(own.map(Dim::clone)).collect::<Vec<_>>();
    cx.tie([own(&past_k, [&b, &hk, &long(&past_v), &d]), own(&past_v, [&b, &hk, &long(&past_k), &dv])].concat());
    let t = &t + &long(&past_k);
    if let Some(mask) = cx.optional(3) {
        let scores = [&b, &h, &s, &t].map(Dim::clone);
        cx.tie(aligned([&scores[..], cx.dims(mask)].into_iter()));
    }
    let dtype = cx.dtype(q);
    let y =
        if cx.rank(q) == 3 { vec![b.clone(), s.clone(), &h * &dv] } else { [&b, &h, &s, &dv].map(Dim::clone).to_vec() };
    cx.give(0, dtype, y)?;
    cx.give(1, dtype, vec![b.clone(), hk.clone(), t.clone(), d])?;
    cx.give(2, dtype, vec![b.clone(), hk, t.clone(), dv])?;
    cx.give(3, dtype, vec![b, h, s, t])
}
