//! Running sums and products.
//!
//! Hillis and Steele's scan: after step `k` each element covers the `2^k` elements before it, `y[i] = y[i] + y[i - 2^k]`.
//! Each step is a pointwise kernel with a guarded, shifted read, so `n` elements take `log2 n` kernels.

use crate::graph::ask::Ask;
use crate::graph::error::{Reason, Res};
use crate::graph::expr::{Binary, Scalar};
use crate::graph::fused::Guard;
use crate::graph::lazy::Lazy;
use crate::graph::lower::Lowering;

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

fn scan(cx: &mut Lowering<'_>, op: Binary, neutral: f64) -> Res<()> {
    let x = cx.input(0)?;
    let (dtype, shape) = (cx.dtype(x), cx.shape(x).to_vec());
    let axis = cx.const_ints(1, "the axis")?;
    let [axis] = axis[..] else { return Err(Reason::Value("the axis is not one number".into())) };
    let d = cx.axis(axis, shape.len())?;
    if shape.contains(&0) {
        cx.pass(0, x);
        return Ok(());
    }
    let (up, exclusive) = (cx.int("reverse", 0)? == 0, cx.int("exclusive", 0)? != 0);
    let fill = Scalar::of(dtype, neutral);
    let n = shape[d];
    let lazy = cx.lazy(x);
    let mut y = cx.stored(lazy);
    if exclusive && n == 1 {
        cx.set(0, crate::graph::lower::splat(dtype, &shape, fill));
        return Ok(());
    }
    if exclusive {
        let moved = shifted(cx, &y, d, 1, up, fill);
        y = cx.stored(moved);
    }
    let mut by = 1;
    while by < n {
        let moved = shifted(cx, &y, d, by, up, fill);
        let sum = cx.combine(vec![y, moved], &shape, |e, v| e.binary(op, v[0], v[1]))?;
        by *= 2;
        y = if by < n { cx.stored(sum) } else { sum };
    }
    cx.set(0, y);
    Ok(())
}

pub(super) fn sum(cx: &mut Lowering<'_>) -> Res<()> {
    scan(cx, Binary::Add, 0.0)
}

pub(super) fn prod(cx: &mut Lowering<'_>) -> Res<()> {
    scan(cx, Binary::Mul, 1.0)
}
