//! Running sums and products.
//!
//! Of a few elements each sum is an expression of those before it, by guarded, shifted reads; others are a step of their own ([`Scan`]).

use crate::graph::ask::Ask;
use crate::graph::error::{Reason, Res};
use crate::graph::expr::{Expr, Scalar};
use crate::graph::fused::{Guard, Scan, StepKind};
use crate::graph::lazy::Lazy;
use crate::graph::lower::Lowering;

/// Elements that an expression adds up.
const FEW: usize = 8;

/// The stored value moved by `by` along dimension `d` (to higher positions, or to lower ones); `fill` moves in.
fn shifted(cx: &mut Lowering<'_>, stored: &Lazy, d: usize, by: usize, up: bool, fill: Scalar) -> Lazy {
    let mut p = stored.plain().expect("a stored tensor has plain dimensions");
    let n = p.grid[d];
    let mut ranges: Vec<(usize, usize)> = p.grid.iter().map(|&n| (0, n)).collect();
    let access = &mut p.inputs[0];
    let move_by = by as i64 * access.view.strides[d];
    if up {
        access.view.offset -= move_by;
        ranges[d] = (by, n);
    } else {
        access.view.offset += move_by;
        ranges[d] = (0, n - by);
    }
    access.guard = Some(Guard { ranges, fill });
    cx.normal(p)
}

/// The scan of a stored value along its dimension `d`, of few elements.
fn few(cx: &mut Lowering<'_>, x: &Lazy, d: usize, kind: Scan) -> Res<Lazy> {
    let (dtype, shape) = (x.dtype(), x.shape.clone());
    let fill = Scalar::of(dtype, if kind.product { 1.0 } else { 0.0 });
    let skipped = usize::from(kind.exclusive);
    let moved = |by| if by == 0 { x.clone() } else { shifted(cx, x, d, by, !kind.reverse, fill) };
    let all: Vec<Lazy> = (skipped..shape[d]).map(moved).collect();
    cx.combine(all, &shape, |e, v| {
        let terms: Vec<_> = v.iter().map(|v| e.cast(*v, kind.dtype)).collect();
        let sum = terms.into_iter().reduce(|sum, term| e.binary(kind.op(), sum, term));
        let sum = sum.unwrap_or_else(|| e.literal(kind.dtype, kind.neutral()));
        e.cast(sum, dtype)
    })
}

/// The scan of a value along its dimension `d`.
fn many(cx: &mut Lowering<'_>, x: Lazy, d: usize, kind: Scan) -> Lazy {
    let (dtype, rank) = (x.dtype(), x.shape.len());
    // The dimension goes last, and comes back afterwards.
    let order: Vec<usize> = (0..rank).filter(|&o| o != d).chain([d]).collect();
    let moved = cx.permute(x, &order);
    let mut dims = moved.shape.clone();
    let mut access = cx.operand_of(moved, |_| true);
    if dims.len() == 1 {
        dims.insert(0, 1);
        access.view = access.view.repeated(0, 1);
    }
    let mut y = cx.produce(StepKind::Scan(kind), vec![access], &dims, kind.dtype);
    if kind.dtype != dtype {
        let mut e = Expr::new();
        let sum = e.push_acc(kind.dtype);
        let narrow = e.cast(sum, dtype);
        y.expr = e.finish(narrow);
    }
    if rank == 1 {
        return y.reshaped(&dims[1..]);
    }
    let mut back = vec![0; rank];
    order.iter().enumerate().for_each(|(i, &o)| back[o] = i);
    cx.permute(y, &back)
}

fn scan(cx: &mut Lowering<'_>, product: bool) -> Res<()> {
    let x = cx.input(0)?;
    let (dtype, shape) = (cx.dtype(x), cx.shape(x).to_vec());
    let axis = cx.const_ints(1, "the axis")?;
    let [axis] = axis[..] else { return Err(Reason::Value("the axis is not one number".into())) };
    let d = cx.axis(axis, shape.len())?;
    if shape.contains(&0) {
        cx.pass(0, x);
        return Ok(());
    }
    let (reverse, exclusive) = (cx.int("reverse", 0)? != 0, cx.int("exclusive", 0)? != 0);
    let kind = Scan { product, reverse, exclusive, start: false, dtype: Scan::computed(dtype) };
    if exclusive && shape[d] == 1 {
        let neutral = Scalar::of(dtype, if product { 1.0 } else { 0.0 });
        cx.set(0, crate::graph::lower::splat(dtype, &shape, neutral));
        return Ok(());
    }
    let lazy = cx.lazy(x);
    let y = if shape[d] <= FEW {
        let stored = cx.stored(lazy);
        few(cx, &stored, d, kind)?
    } else {
        many(cx, lazy, d, kind)
    };
    cx.set(0, y);
    Ok(())
}

pub(super) fn sum(cx: &mut Lowering<'_>) -> Res<()> {
    scan(cx, false)
}

pub(super) fn prod(cx: &mut Lowering<'_>) -> Res<()> {
    scan(cx, true)
}
