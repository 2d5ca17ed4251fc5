//! Convolutions and attention over time that carry a state from call to call.

use super::conv::check_size;
use crate::graph::ask::Ask;
use crate::graph::dim::Dim;
use crate::graph::error::{Reason, Res};
use crate::graph::expr::{Unary, Val};
use crate::graph::fused::Coder;
use crate::graph::infer::{Inference, by_lowering};
use crate::graph::lower::Lowering;
use crate::graph::view::View;
use crate::tensor::DType;

/// A convolution of each channel with the past, whose last elements are the state.
pub(super) fn causal_conv(cx: &mut Lowering<'_>) -> Res<()> {
    let (x, w) = (cx.input(0)?, cx.input(1)?);
    let (shape, ws, dtype) = (cx.shape(x).to_vec(), cx.shape(w).to_vec(), cx.dtype(x));
    let (&[n, channels, length], &[wc, 1, k]) = (&shape[..], &ws[..]) else {
        return Err(Reason::Shape(format!("data of shape {shape:?} and weights of shape {ws:?}")));
    };
    let silu = match cx.text("activation", "none")? {
        "none" => false,
        "silu" | "swish" => true,
        other => {
            return Err(Reason::attribute("activation", format!("is `{other}`; none, silu and swish are supported")));
        }
    };
    if wc != channels || shape.contains(&0) || k == 0 || !dtype.is_float() {
        return Err(Reason::Shape(format!("{dtype} data of shape {shape:?} and weights of shape {ws:?}")));
    }
    let (bias, past) = (cx.optional(2), cx.optional(3).filter(|_| k > 1));
    if past.is_some_and(|p| cx.shape(p) != [n, channels, k - 1]) {
        return Err(Reason::Shape(format!("a state for {} elements is needed", k - 1)));
    }
    if let Some(given) = bias.map(|v| cx.shape(v)).filter(|given| *given != [channels]) {
        return Err(Reason::Shape(format!("a bias of shape {given:?}, there are {channels} channels")));
    }
    let mut operands = vec![cx.operand_if(x, View::is_dense), cx.operand_if(w, View::is_dense)];
    let mut next = 2;
    let mut optional = |cx: &mut Lowering<'_>, v| {
        operands.push(cx.operand_if(v, View::is_dense));
        next += 1;
        next - 1
    };
    let bias = bias.map(|v| optional(cx, v));
    let past = past.map(|v| optional(cx, v));
    let t = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    // Element `at` of a channel, counted from the first of the state.
    let element = |c: &mut Coder, plane: Val, at: Val| {
        let own = c.plus(at, -(k as i64 - 1));
        let inside = c.within(own, 0, length as i64);
        let held = c.clamp(own, 0, length as i64);
        let place = c.place(&[plane, held], &[0, length]);
        let fresh = c.load(0, place);
        let old = match past {
            Some(p) => {
                let at = c.clamp(at, 0, k as i64 - 1);
                let place = c.place(&[plane, at], &[0, k - 1]);
                c.load(p, place)
            }
            None => c.constant(dtype, 0.0),
        };
        c.select(inside, fresh, old)
    };
    let y = cx.program(operands.clone(), &shape, |c| {
        let [b, channel, i] = [0, 1, 2].map(|d| c.coord(d));
        let plane = c.place(&[b, channel], &[n, channels]);
        let mut sum = c.sum(t, k, |c, tap| {
            let at = c.add(i, tap);
            let x = element(c, plane, at);
            let x = c.cast(x, t);
            let place = c.place(&[channel, tap], &[0, k]);
            let w = c.load(1, place);
            let w = c.cast(w, t);
            c.mul(x, w)
        });
        if let Some(operand) = bias {
            let v = c.load(operand, channel);
            let v = c.cast(v, t);
            sum = c.add(sum, v);
        }
        if silu {
            let gate = c.unary(Unary::Sigmoid, sum);
            sum = c.mul(sum, gate);
        }
        c.cast(sum, dtype)
    });
    cx.set(0, y);
    let state = [n, channels, k - 1];
    if k > 1 && cx.wants(1) {
        let y = cx.program(operands, &state, |c| {
            let [b, channel, i] = [0, 1, 2].map(|d| c.coord(d));
            let plane = c.place(&[b, channel], &[n, channels]);
            let at = c.plus(i, length as i64);
            element(c, plane, at)
        });
        cx.set(1, y);
    } else {
        cx.set(1, crate::graph::lower::splat(dtype, &state, crate::graph::expr::Scalar::of(dtype, 0.0)));
    }
    Ok(())
}

/// A number of heads.
fn heads<'m>(cx: &impl Ask<'m>, name: &str) -> Res<usize> {
    let n = usize::try_from(cx.int(name, 0)?).ok().filter(|n| *n > 0);
    n.ok_or_else(|| Reason::attribute(name, "is missing"))
}

/// Attention without softmax: a matrix for each head that each step decays, corrects, adds to and reads. A workitem keeps one
/// column of it in variables and goes through all steps up to its own.
pub(super) fn linear_attention(cx: &mut Lowering<'_>) -> Res<()> {
    const WIDEST: usize = 64;
    let (hq, hk) = (heads(cx, "q_num_heads")?, heads(cx, "kv_num_heads")?);
    let rule = cx.text("update_rule", "gated_delta")?;
    let (gated, delta) = match rule {
        "linear" => (false, false),
        "gated" => (true, false),
        "delta" => (false, true),
        "gated_delta" => (true, true),
        other => return Err(Reason::attribute("update_rule", format!("is `{other}`"))),
    };
    let ids = [cx.input(0)?, cx.input(1)?, cx.input(2)?];
    let shapes = ids.map(|v| cx.shape(v).to_vec());
    let dtype = cx.dtype(ids[0]);
    let (&[n, steps, q], &[_, _, kw], &[_, _, vw]) = (&shapes[0][..], &shapes[1][..], &shapes[2][..]) else {
        return Err(Reason::Shape(format!("queries, keys and values of shapes {shapes:?}")));
    };
    let (dk, dv) = (q / hq, vw / hk);
    let fits = q % hq == 0 && vw % hk == 0 && hq % hk == 0 && kw == hk * dk;
    let same = shapes.iter().all(|s| s[..2] == [n, steps]);
    if !fits || !same || n * steps * dk * dv == 0 || dk > WIDEST || !dtype.is_float() {
        return Err(Reason::Shape(format!("{hq} and {hk} heads of up to {WIDEST} elements in {shapes:?}")));
    }
    let mut operands = ids.map(|v| cx.operand_if(v, View::is_dense)).to_vec();
    let mut next = 3;
    let mut optional = |cx: &mut Lowering<'_>, v| {
        let width = cx.shape(v).last().copied().unwrap_or(0);
        operands.push(cx.operand_if(v, View::is_dense));
        next += 1;
        (next - 1, width)
    };
    let past = cx.optional(3).map(|v| (optional(cx, v), cx.dtype(v)));
    if let Some(given) = cx.optional(3).map(|v| cx.shape(v)).filter(|given| *given != [n, hk, dk, dv]) {
        return Err(Reason::Shape(format!("a state of shape {given:?}, not {:?}", [n, hk, dk, dv])));
    }
    let decay = if gated { Some(optional(cx, cx.input(4)?)) } else { None };
    let beta = if delta { Some(optional(cx, cx.input(5)?)) } else { None };
    let of_steps = |i: usize| cx.optional(i).is_none_or(|v| matches!(cx.shape(v), [b, s, _] if [*b, *s] == [n, steps]));
    let widths_fit = decay.is_none_or(|d| d.1 == hk || d.1 == hk * dk) && beta.is_none_or(|b| b.1 == hk || b.1 == 1);
    if !widths_fit || gated && !of_steps(4) || delta && !of_steps(5) {
        return Err(Reason::Shape(format!("decay and beta for {hk} heads of {dk} elements")));
    }
    let scale = match cx.float("scale", 0.0)? {
        0.0 => 1.0 / (dk as f64).sqrt(),
        s => s,
    };
    let t = DType::F32;
    let group = hq / hk;
    // Runs the steps for column `m` of key head `head`; at each, `read` gets the column.
    let run = |c: &mut Coder, b: Val, head: Val, m: Val, read: &mut dyn FnMut(&mut Coder, Val, &[Val])| -> Vec<Val> {
        let load = |c: &mut Coder, operand: usize, at: Val| {
            let v = c.load(operand, at);
            c.cast(v, t)
        };
        let mut state = Vec::new();
        for d in 0..dk {
            let first = match past {
                Some(((operand, _), _)) => {
                    let row = c.place(&[b, head], &[n, hk]);
                    let row = c.times(row, dk as i64);
                    let row = c.plus(row, d as i64);
                    let at = c.place(&[row, m], &[0, dv]);
                    load(c, operand, at)
                }
                None => c.constant(t, 0.0),
            };
            state.push(c.var(first));
        }
        c.repeat(steps, |c, i| {
            let step = c.place(&[b, i], &[n, steps]);
            let key = c.place(&[step, head], &[0, hk]);
            let place = c.times(key, dk as i64);
            let k: Vec<Val> = (0..dk)
                .map(|d| {
                    let at = c.plus(place, d as i64);
                    load(c, 1, at)
                })
                .collect();
            let at = c.place(&[key, m], &[0, dv]);
            let mut v = load(c, 2, at);
            let mut now: Vec<Val> = state.iter().map(|s| c.get(*s)).collect();
            if let Some((operand, width)) = decay {
                for (d, s) in now.iter_mut().enumerate() {
                    let at = if width == hk { key } else { c.plus(place, d as i64) };
                    let g = load(c, operand, at);
                    let g = c.unary(Unary::Exp, g);
                    *s = c.mul(*s, g);
                }
            }
            let dot = |c: &mut Coder, a: &[Val], b: &[Val]| {
                let mut total = c.mul(a[0], b[0]);
                for (x, y) in a.iter().zip(b).skip(1) {
                    let p = c.mul(*x, *y);
                    total = c.add(total, p);
                }
                total
            };
            if let Some((operand, width)) = beta {
                let found = dot(c, &now, &k);
                let rest = c.sub(v, found);
                let at = if width == hk { key } else { step };
                let beta = load(c, operand, at);
                v = c.mul(beta, rest);
            }
            for d in 0..dk {
                let p = c.mul(k[d], v);
                now[d] = c.add(now[d], p);
                c.set(state[d], now[d]);
            }
            read(c, i, &now);
        });
        state.iter().map(|s| c.get(*s)).collect()
    };
    check_size(&[n, steps, hq, dv])?;
    let y = cx.program(operands.clone(), &[n, steps, hq, dv], |c| {
        let [b, own, head, m] = [0, 1, 2, 3].map(|d| c.coord(d));
        let (key, _) = c.divide(head, group);
        let zero = c.constant(t, 0.0);
        let result = c.var(zero);
        let query = c.place(&[b, own, head], &[n, steps, hq]);
        let query = c.times(query, dk as i64);
        run(c, b, key, m, &mut |c, i, column| {
            let mut total = zero;
            for (d, s) in column.iter().enumerate() {
                let at = c.plus(query, d as i64);
                let q = c.load(0, at);
                let q = c.cast(q, t);
                let p = c.mul(q, *s);
                total = c.add(total, p);
            }
            let mine = c.eq(i, own);
            let old = c.get(result);
            let new = c.select(mine, total, old);
            c.set(result, new);
        });
        let total = c.get(result);
        let scale = c.constant(t, scale);
        let y = c.mul(total, scale);
        c.cast(y, dtype)
    });
    cx.set(0, y.reshaped(&[n, steps, hq * dv]));
    if cx.wants(1) {
        let to = past.map_or(dtype, |p| p.1);
        let y = cx.program(operands, &[n, hk, dk, dv], |c| {
            let [b, head, d, m] = [0, 1, 2, 3].map(|d| c.coord(d));
            let state = run(c, b, head, m, &mut |_, _, _| {});
            let mut result = state[0];
            for (i, s) in state.iter().enumerate().skip(1) {
                let this = c.int(i as i64);
                let this = c.eq(d, this);
                result = c.select(this, *s, result);
            }
            c.cast(result, to)
        });
        cx.set(1, y);
    }
    Ok(())
}

// ---- rules; what does not fit is left to lowering, which says why ----

pub(super) fn of_causal_conv(cx: &mut Inference<'_>) -> Res<()> {
    let x = cx.input(0)?;
    let ([n, channels, _], [_, _, k]) = (cx.dims(x), cx.dims(cx.input(1)?)) else { return by_lowering(cx) };
    let state = vec![n.clone(), channels.clone(), k - &Dim::Known(1)];
    cx.give(0, cx.dtype(x), cx.dims(x).to_vec())?;
    cx.give(1, cx.dtype(x), state)
}

pub(super) fn of_linear_attention(cx: &mut Inference<'_>) -> Res<()> {
    let (hq, hk): (Dim, Dim) = (heads(cx, "q_num_heads")?.into(), heads(cx, "kv_num_heads")?.into());
    let (q, v) = (cx.input(0)?, cx.input(2)?);
    let ([n, steps, width], [_, _, values]) = (cx.dims(q), cx.dims(v)) else { return by_lowering(cx) };
    let (dk, dv) = (width.quotient(&hq), values.quotient(&hk));
    let (y, state) = (vec![n.clone(), steps.clone(), &hq * &dv], vec![n.clone(), hk, dk, dv]);
    cx.give(0, cx.dtype(q), y)?;
    cx.give(1, cx.dtype(cx.optional(3).unwrap_or(q)), state)
}
