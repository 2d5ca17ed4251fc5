//! Gather and its variants: reads through index tensors.

use crate::graph::ask::Ask;
use crate::graph::error::{Reason, Res};
use crate::graph::fused::Indirect;
use crate::graph::infer::Inference;
use crate::graph::lazy::Lazy;
use crate::graph::lower::{Lowering, splat};
use crate::graph::resolve::ValueId;
use crate::graph::view::View;
use crate::tensor::{DType, HostTensor};

/// The data input as plain accesses that may get index tables.
fn data(cx: &mut Lowering<'_>, v: ValueId) -> Lazy {
    let lazy = cx.plain(v);
    super::pad::without_tables(cx, lazy)
}

pub(super) fn check_index<'m>(cx: &impl Ask<'m>, v: ValueId) -> Res<()> {
    match cx.dtype(v) {
        DType::I32 | DType::I64 => Ok(()),
        t => Err(Reason::Type(format!("the indices have type {t}; i32 and i64 are supported"))),
    }
}

/// An empty result when one of the shapes has no elements.
fn empty(cx: &mut Lowering<'_>, v: ValueId, shape: &[usize]) -> bool {
    if shape.contains(&0) {
        let t = cx.dtype(v);
        cx.set(0, splat(t, shape, crate::graph::expr::Scalar::of(t, 0.0)));
        return true;
    }
    false
}

fn some_elements(cx: &Lowering<'_>, v: ValueId) -> Res<()> {
    if cx.shape(v).contains(&0) { Err(Reason::Shape("gathers from a tensor without elements".into())) } else { Ok(()) }
}

pub(super) fn gather(cx: &mut Lowering<'_>) -> Res<()> {
    let (x, index) = (cx.input(0)?, cx.input(1)?);
    let d = cx.axis(cx.int("axis", 0)?, cx.rank(x))?;
    let (dims, out) = (cx.shape(x).to_vec(), cx.result(0));
    if empty(cx, x, &out) {
        return Ok(());
    }
    some_elements(cx, x)?;
    let n = dims[d] as i64;
    if let Some(t) = cx.constant(index) {
        let list = t.to_i64();
        if let Some(bad) = list.iter().find(|i| !(-n..n).contains(i)) {
            return Err(Reason::Shape(format!("index {bad} is outside the extent {n} of axis {d}")));
        }
        // One known index is a slice.
        if let [i] = list[..] {
            let plain = cx.plain(x);
            let y = super::layout::sliced(cx, &plain, &[(d, if i < 0 { i + n } else { i }, 1, 1)]).reshaped(&out);
            cx.set(0, y);
            return Ok(());
        }
    }
    let y = along(cx, x, index, d);
    cx.set(0, y);
    Ok(())
}

/// Rows of a table (dimension 0), by index.
pub(super) fn rows(cx: &mut Lowering<'_>, x: ValueId, index: ValueId) -> Res<Lazy> {
    check_index(cx, index)?;
    Ok(along(cx, x, index, 0))
}

/// Dimension `d` replaced by the dimensions of the index tensor. Both have elements.
fn along(cx: &mut Lowering<'_>, x: ValueId, index: ValueId, d: usize) -> Lazy {
    let (dims, idx) = (cx.shape(x).to_vec(), cx.shape(index).to_vec());
    let mut out = dims.clone();
    out.splice(d..=d, idx.iter().copied());
    let mut y = data(cx, x);
    let table = cx.operand(index);
    let spread = |outer: &[i64], middle: &[i64], inner: &[i64]| [outer, middle, inner].concat();
    let (zeros_o, zeros_i) = (vec![0; d], vec![0; dims.len() - d - 1]);
    let index_view =
        View { offset: table.view.offset, dims: out.clone(), strides: spread(&zeros_o, &table.view.strides, &zeros_i) };
    for a in &mut y.inputs {
        let s = &a.view.strides;
        let stride = s[d];
        let strides = spread(&s[..d], &vec![0; idx.len()], &s[d + 1..]);
        a.view = View { offset: a.view.offset, dims: out.clone(), strides };
        if stride != 0 {
            a.indirect.push(Indirect { index: table.tensor, view: index_view.clone(), stride, extent: dims[d] });
        }
    }
    y.grid = out;
    cx.normal(y)
}

pub(super) fn elements(cx: &mut Lowering<'_>) -> Res<()> {
    let (x, index) = (cx.input(0)?, cx.input(1)?);
    let d = cx.axis(cx.int("axis", 0)?, cx.rank(x))?;
    let (dims, out) = (cx.shape(x).to_vec(), cx.result(0));
    if dims.len() != out.len() || (0..dims.len()).any(|i| i != d && out[i] > dims[i]) {
        return Err(Reason::Shape(format!("indices of shape {out:?} do not fit data of shape {dims:?}")));
    }
    if empty(cx, x, &out) {
        return Ok(());
    }
    some_elements(cx, x)?;
    let mut y = data(cx, x);
    let table = cx.operand(index);
    for a in &mut y.inputs {
        let stride = std::mem::replace(&mut a.view.strides[d], 0);
        a.view.dims = out.clone();
        a.indirect.push(Indirect { index: table.tensor, view: table.view.clone(), stride, extent: dims[d] });
    }
    y.grid = out;
    let y = cx.normal(y);
    cx.set(0, y);
    Ok(())
}

/// Batch dimensions, and dimensions of the data that one entry of the indices selects in.
fn selected<'m>(cx: &impl Ask<'m>, ranks: [usize; 2], k: usize) -> Res<usize> {
    let batch =
        usize::try_from(cx.int("batch_dims", 0)?).map_err(|_| Reason::attribute("batch_dims", "is negative"))?;
    if batch >= ranks[1] || batch + k > ranks[0] {
        return Err(Reason::Shape(format!(
            "indices of {} dimensions, {k} numbers each, do not fit data of {} dimensions with {batch} batch dimensions",
            ranks[1], ranks[0]
        )));
    }
    Ok(batch)
}

pub(super) fn nd(cx: &mut Lowering<'_>) -> Res<()> {
    let (x, index) = (cx.input(0)?, cx.input(1)?);
    let (dims, idx) = (cx.shape(x).to_vec(), cx.shape(index).to_vec());
    let Some((&k, lead)) = idx.split_last() else { return Err(Reason::Shape("the indices are a scalar".into())) };
    let batch = selected(cx, [dims.len(), idx.len()], k)?;
    if dims[..batch] != idx[..batch] {
        return Err(Reason::Shape(format!(
            "indices of shape {idx:?} do not fit data of shape {dims:?} with {batch} batch dimensions"
        )));
    }
    let out = cx.result(0);
    if empty(cx, x, &out) {
        return Ok(());
    }
    some_elements(cx, x)?;
    let mut y = data(cx, x);
    let table = cx.operand(index);
    let last = table.view.strides[lead.len()];
    for a in &mut y.inputs {
        let s = a.view.strides.clone();
        let mut strides = s[..batch].to_vec();
        strides.resize(lead.len(), 0);
        strides.extend(&s[batch + k..]);
        a.view = View { offset: a.view.offset, dims: out.clone(), strides };
        for j in 0..k {
            let mut strides = table.view.strides[..lead.len()].to_vec();
            strides.resize(out.len(), 0);
            let view = View { offset: table.view.offset + j as i64 * last, dims: out.clone(), strides };
            a.indirect.push(Indirect { index: table.tensor, view, stride: s[batch + j], extent: dims[batch + j] });
        }
    }
    y.grid = out;
    let y = cx.normal(y);
    cx.set(0, y);
    Ok(())
}

// ---- rules ----

pub(super) fn of_gather(cx: &mut Inference<'_>) -> Res<()> {
    let (x, index) = (cx.input(0)?, cx.input(1)?);
    check_index(cx, index)?;
    let d = cx.axis(cx.int("axis", 0)?, cx.rank(x))?;
    let mut dims = cx.dims(x).to_vec();
    dims.splice(d..=d, cx.dims(index).iter().cloned());
    let list = cx.sized_numbers(x).filter(|_| cx.rank(x) == 1);
    let at = cx.constant(index).map(HostTensor::to_i64);
    cx.give(0, cx.dtype(x), dims)?;
    if let (Some(list), Some(at)) = (list, at) {
        let n = list.len() as i64;
        let one = |i: &i64| list.get(if *i < 0 { i + n } else { *i } as usize).cloned();
        if let Some(picked) = at.iter().map(one).collect() {
            cx.give_numbers(0, picked);
        }
    }
    Ok(())
}

pub(super) fn of_elements(cx: &mut Inference<'_>) -> Res<()> {
    let (x, index) = (cx.input(0)?, cx.input(1)?);
    check_index(cx, index)?;
    cx.give(0, cx.dtype(x), cx.dims(index).to_vec())
}

pub(super) fn of_nd(cx: &mut Inference<'_>) -> Res<()> {
    let (x, index) = (cx.input(0)?, cx.input(1)?);
    check_index(cx, index)?;
    let Some((k, lead)) = cx.dims(index).split_last() else {
        return Err(Reason::Shape("the indices are a scalar".into()));
    };
    let count = || Reason::NotConstant { what: "how many numbers an index is made of".into(), input: 1 };
    let k = k.known().ok_or_else(count)?;
    let batch = selected(cx, [cx.rank(x), cx.rank(index)], k)?;
    let dims = lead.iter().chain(&cx.dims(x)[batch + k..]).cloned().collect();
    cx.give(0, cx.dtype(x), dims)
}
