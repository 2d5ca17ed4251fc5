//! Pad: constant padding is a guarded read, the other modes read through an index table per dimension.

use super::layout::sliced;
use crate::graph::ask::Ask;
use crate::graph::dim::{Dim, described};
use crate::graph::error::{Reason, Res};
use crate::graph::expr::Scalar;
use crate::graph::fused::{Guard, Indirect, TensorId};
use crate::graph::infer::Inference;
use crate::graph::lazy::Lazy;
use crate::graph::lower::{Lowering, splat};
use crate::graph::view::View;
use crate::tensor::HostTensor;

/// Replaces the coordinates of dimension `d` by `index[coordinate]`: the value then has `index.len()` elements there.
/// `lazy` is plain, see [`Lowering::plain`].
pub(super) fn indexed(cx: &mut Lowering<'_>, lazy: Lazy, d: usize, index: &[i32]) -> Lazy {
    let table = index_table(cx, index);
    indexed_by(cx, lazy, d, (table, index.len()))
}

/// A table that [`indexed_by`] reads.
pub(super) fn index_table(cx: &mut Lowering<'_>, index: &[i32]) -> TensorId {
    cx.add_const("index table".into(), HostTensor::from_i32(&[index.len()], index))
}

/// The same by a table of so many entries.
pub(super) fn indexed_by(cx: &mut Lowering<'_>, lazy: Lazy, d: usize, (table, n): (TensorId, usize)) -> Lazy {
    let mut y = lazy;
    if y.inputs.iter().any(|a| a.guard.is_some()) {
        let l = cx.normal(y);
        y = cx.stored(l).plain().expect("a stored tensor has plain dimensions");
    }
    let old = y.grid[d];
    for a in &mut y.inputs {
        let stride = a.view.strides[d];
        for other in &mut a.indirect {
            // Nested tables that vary along this dimension are composed on the host by storing first.
            debug_assert_eq!(other.view.strides[d], 0);
            other.view.dims[d] = n;
        }
        a.view.dims[d] = n;
        a.view.strides[d] = 0;
        if stride != 0 {
            let mut strides = vec![0; a.view.rank()];
            strides[d] = 1;
            let view = View { offset: 0, dims: a.view.dims.clone(), strides };
            a.indirect.push(Indirect { index: table, view, stride, extent: old });
        }
        let dims = a.view.dims.clone();
        for i in &mut a.indirect {
            i.view.dims = dims.clone();
        }
    }
    y.grid[d] = n;
    y
}

/// A plain value without index tables that vary along the dimensions to be indexed.
pub(super) fn without_tables(cx: &mut Lowering<'_>, lazy: Lazy) -> Lazy {
    if lazy.inputs.iter().all(|a| a.is_plain()) {
        return lazy;
    }
    let l = cx.normal(lazy);
    cx.stored(l).plain().expect("a stored tensor has plain dimensions")
}

/// How much is added in front of and behind each dimension; less than nothing crops.
fn amounts<'m>(cx: &impl Ask<'m>, numbers: impl Fn(usize, &str) -> Res<Vec<Dim>>) -> Res<[Vec<Dim>; 2]> {
    let rank = cx.rank(cx.input(0)?);
    let (list, axes): (Vec<Dim>, Vec<usize>) = if cx.opset() < 11 {
        let name = if cx.opset() < 2 { "paddings" } else { "pads" };
        let list = cx.ints(name)?.ok_or_else(|| Reason::attribute(name, "is missing"))?;
        (list.into_iter().map(Dim::Known).collect(), (0..rank).collect())
    } else {
        let axes = match cx.optional(3) {
            None => (0..rank).collect(),
            Some(_) => cx.const_ints(3, "the axes")?.iter().map(|&a| cx.axis(a, rank)).collect::<Res<_>>()?,
        };
        (numbers(1, "the pads")?, axes)
    };
    if list.len() != 2 * axes.len() {
        return Err(Reason::Shape(format!(
            "{} pads for {} dimensions; two for each are needed",
            list.len(),
            axes.len()
        )));
    }
    let mut amounts = [vec![Dim::Known(0); rank], vec![Dim::Known(0); rank]];
    for (side, list) in amounts.iter_mut().zip(list.chunks(axes.len().max(1))) {
        axes.iter().zip(list).for_each(|(d, n)| side[*d] = n.clone());
    }
    Ok(amounts)
}

/// A value of plain dimensions between so many elements of `fill` in front of each and behind it.
pub(super) fn framed(cx: &mut Lowering<'_>, lazy: Lazy, begin: &[usize], end: &[usize], fill: Scalar) -> Lazy {
    let mut lazy = lazy;
    if lazy.as_read().is_none_or(|a| !a.is_plain()) {
        let l = cx.normal(lazy);
        lazy = cx.stored(l).plain().expect("a stored tensor has plain dimensions");
    }
    let access = &mut lazy.inputs[0];
    let mut ranges = Vec::with_capacity(begin.len());
    for d in 0..begin.len() {
        access.view.offset -= begin[d] as i64 * access.view.strides[d];
        access.view.dims[d] += begin[d] + end[d];
        ranges.push((begin[d], begin[d] + lazy.grid[d]));
    }
    lazy.grid = access.view.dims.clone();
    access.guard = Some(Guard { ranges, fill });
    lazy
}

pub(super) fn pad(cx: &mut Lowering<'_>) -> Res<()> {
    let x = cx.input(0)?;
    let (rank, dtype) = (cx.rank(x), cx.dtype(x));
    let mut fill = Scalar::of(dtype, 0.0);
    if cx.opset() < 11 {
        fill = Scalar::of(dtype, cx.float("value", 0.0)?);
    } else if cx.optional(2).is_some() {
        let t = cx.known(2, "the constant value")?;
        if t.len() == 1 {
            fill = if dtype.is_float() { Scalar::Float(t.to_f64()[0]) } else { Scalar::Int(t.to_i64()[0]) };
        }
    }
    let numbers = |i: usize, what: &str| Ok(cx.const_ints(i, what)?.into_iter().map(Dim::Known).collect());
    let whole = |list: Vec<Dim>| -> Vec<i64> { list.iter().map(|d| d.at(&|_| 0)).collect() };
    let [begin, end] = amounts(cx, numbers)?.map(whole);
    let (shape, out) = (cx.shape(x).to_vec(), cx.result(0));
    let mode = cx.text("mode", "constant")?;
    if out.contains(&0) || (shape.contains(&0) && mode == "constant") {
        cx.set(0, splat(dtype, &out, fill));
        return Ok(());
    }
    // Negative pads crop.
    let kept = |d: usize| (shape[d] as i64 + begin[d].min(0) + end[d].min(0)).max(0) as usize;
    if let Some(d) = (0..rank).find(|&d| kept(d) == 0 && out[d] > 0).filter(|_| mode != "constant") {
        return Err(Reason::Shape(format!(
            "dimension {d} of shape {shape:?} has no elements to pad with (mode {mode})"
        )));
    }
    let cuts: Vec<(usize, i64, i64, usize)> =
        (0..rank).filter(|&d| begin[d] < 0 || end[d] < 0).map(|d| (d, (-begin[d]).max(0), 1, kept(d))).collect();
    if cuts.iter().any(|c| c.3 == 0) {
        cx.set(0, splat(dtype, &out, fill));
        return Ok(());
    }
    let mut lazy = cx.plain(x);
    if !cuts.is_empty() {
        let l = sliced(cx, &lazy, &cuts);
        lazy = match l.plain() {
            Some(p) => p,
            None => cx.stored(l).plain().expect("a stored tensor has plain dimensions"),
        };
    }
    let (begin, end): (Vec<usize>, Vec<usize>) =
        begin.iter().zip(&end).map(|(&b, &e)| (b.max(0) as usize, e.max(0) as usize)).unzip();
    let y = match mode {
        "constant" => {
            if begin.iter().chain(&end).all(|&p| p == 0) {
                lazy
            } else {
                framed(cx, lazy, &begin, &end, fill)
            }
        }
        "reflect" | "edge" | "wrap" => {
            if out.iter().any(|&d| d > super::source::MAX_GENERATED) {
                return Err(Reason::Size(format!("the result's shape {out:?} is too large")));
            }
            let mut y = without_tables(cx, lazy);
            for d in 0..rank {
                if begin[d] == 0 && end[d] == 0 {
                    continue;
                }
                let n = y.grid[d] as i64;
                let at = |i: i64| match mode {
                    "edge" => i.clamp(0, n - 1),
                    "wrap" => i.rem_euclid(n),
                    _ if n == 1 => 0,
                    _ => {
                        let r = i.rem_euclid(2 * (n - 1));
                        if r < n { r } else { 2 * (n - 1) - r }
                    }
                };
                let b = begin[d] as i64;
                let index: Vec<i32> = (-b..n + end[d] as i64).map(|i| at(i) as i32).collect();
                y = indexed(cx, y, d, &index);
            }
            y
        }
        other => {
            return Err(Reason::attribute(
                "mode",
                format!("is `{other}`; constant, reflect, edge and wrap are supported"),
            ));
        }
    };
    let y = cx.normal(y);
    cx.set(0, y);
    Ok(())
}

/// The middle of the data, in a frame of zeros where it is larger than that.
pub(super) fn center_crop_pad(cx: &mut Lowering<'_>) -> Res<()> {
    let x = cx.input(0)?;
    let (shape, dtype) = (cx.shape(x).to_vec(), cx.dtype(x));
    let out = cx.result(0);
    if out.contains(&0) || shape.contains(&0) {
        cx.set(0, crate::graph::lower::splat(dtype, &out, Scalar::of(dtype, 0.0)));
        return Ok(());
    }
    let mut plain = cx.plain(x);
    if !plain.expr.is_copy() || !plain.inputs[0].is_plain() {
        let l = cx.normal(plain);
        plain = cx.stored(l).plain().expect("a stored tensor has plain dimensions");
    }
    let access = &mut plain.inputs[0];
    let mut ranges = Vec::new();
    for d in 0..shape.len() {
        let (n, m) = (shape[d], out[d]);
        let (before, cut) = if m >= n { ((m - n) / 2, 0) } else { (0, (n - m) / 2) };
        access.view.offset += (cut as i64 - before as i64) * access.view.strides[d];
        access.view.dims[d] = m;
        ranges.push((before, before + n.min(m)));
    }
    if ranges.iter().zip(&out).any(|(r, n)| *r != (0, *n)) {
        access.guard = Some(Guard { ranges, fill: Scalar::of(dtype, 0.0) });
    }
    plain.grid = out;
    let y = cx.normal(plain);
    cx.set(0, y);
    Ok(())
}

// ---- rules ----

pub(super) fn of_pad(cx: &mut Inference<'_>) -> Res<()> {
    let x = cx.input(0)?;
    let [begin, end] = amounts(cx, |i, what| cx.numbers(i, what))?;
    let mut dims = Vec::new();
    for (n, (b, e)) in cx.dims(x).iter().zip(begin.iter().zip(&end)) {
        let padded = &(n + b) + e;
        if matches!(padded, Dim::Known(p) if p < 0) {
            return Err(Reason::Shape(format!("pads {b} and {e} of extent {n}")));
        }
        dims.push(padded);
    }
    cx.give(0, cx.dtype(x), dims)
}

pub(super) fn of_center_crop_pad(cx: &mut Inference<'_>) -> Res<()> {
    let x = cx.input(0)?;
    let want = cx.numbers(1, "the shape")?;
    let mut dims = cx.dims(x).to_vec();
    let axes: Vec<usize> = match cx.ints("axes")? {
        Some(list) => list.iter().map(|a| cx.axis(*a, dims.len())).collect::<Res<_>>()?,
        None => (0..dims.len()).collect(),
    };
    if axes.len() != want.len() || want.iter().any(|d| matches!(d, Dim::Known(n) if *n < 0)) {
        return Err(Reason::Shape(format!("extents {} for {} axes", described(&want), axes.len())));
    }
    axes.iter().zip(want).for_each(|(a, n)| dims[*a] = n);
    cx.give(0, cx.dtype(x), dims)
}
