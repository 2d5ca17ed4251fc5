//! Running sums and products.
//!
//! A line is cut into chunks: a reduction gives what each comes to, a scan of these what lies in front of it, and an element is that and
//! those of its chunk up to it, by guarded, shifted reads that caches serve. So memory moves a line little more than twice. Where the
//! extent has no divisor that serves, the elements are added in steps of which each covers so many times more than the one before (Hillis
//! and Steele 1986).

use crate::graph::ask::Ask;
use crate::graph::error::{Reason, Res};
use crate::graph::expr::{Binary, Expr, Scalar};
use crate::graph::fused::{Access, Guard, Reduce, ReduceOp, StepKind};
use crate::graph::lazy::Lazy;
use crate::graph::lower::Lowering;
use crate::graph::view::View;
use crate::tensor::DType;

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

/// Elements that a launch adds up for each.
const CHUNK: usize = 8;

/// A running sum or product.
struct Scan {
    op: Binary,
    neutral: f64,
    /// Dimension.
    d: usize,
    /// From the first element on, not from the last.
    up: bool,
}

impl Scan {
    /// Each element of a stored value with those that lie so many places before it, of `d`'s extent; nothing is added at a place without one.
    fn added(&self, cx: &mut Lowering<'_>, x: &Lazy, places: &[usize], before: Option<Lazy>) -> Res<Lazy> {
        let fill = Scalar::of(x.dtype(), self.neutral);
        let (shape, wide) = (x.shape.clone(), held(x.dtype()));
        let moved = |by: &usize| if *by == 0 { x.clone() } else { shifted(cx, x, self.d, *by, self.up, fill) };
        let mut all: Vec<Lazy> = places.iter().map(moved).collect();
        all.extend(before);
        let dtype = x.dtype();
        cx.combine(all, &shape, |e, v| {
            let terms: Vec<_> = v.iter().map(|v| e.cast(*v, wide)).collect();
            let mut terms = terms.into_iter();
            let first = terms.next().unwrap_or_else(|| e.constant(wide, self.neutral));
            let sum = terms.fold(first, |sum, term| e.binary(self.op, sum, term));
            e.cast(sum, dtype)
        })
    }

    /// The scan of a stored value along its dimension `d`; `skipped` elements next to each are left out, itself or none.
    fn of(&self, cx: &mut Lowering<'_>, x: &Lazy, skipped: usize) -> Res<Lazy> {
        let n = x.shape[self.d];
        if n <= CHUNK {
            return self.added(cx, x, &(skipped..n).collect::<Vec<_>>(), None);
        }
        let Some(chunk) = (CHUNK / 2..=CHUNK).rev().find(|c| n.is_multiple_of(*c)) else {
            return self.in_steps(cx, x, skipped);
        };
        let mut shape = x.shape.clone();
        shape.splice(self.d..=self.d, [n / chunk, chunk]);
        let x = x.clone().reshaped(&shape);
        let sums = self.reduced(cx, &x);
        let sums = cx.stored(sums);
        let before = self.of(cx, &sums, 1)?;
        let before = cx.stored(before);
        let mut one = before.shape.clone();
        one.insert(self.d + 1, 1);
        let within = Scan { d: self.d + 1, ..*self };
        let y = within.added(cx, &x, &(skipped..chunk).collect::<Vec<_>>(), Some(before.reshaped(&one)))?;
        shape.splice(self.d..=self.d + 1, [n]);
        Ok(y.reshaped(&shape))
    }

    /// What chunks, dimension `d + 1`, come to.
    fn reduced(&self, cx: &mut Lowering<'_>, x: &Lazy) -> Lazy {
        let (dtype, wide) = (x.dtype(), held(x.dtype()));
        let access = cx.operand_of(x.clone(), View::is_dense);
        let order: Vec<usize> = (0..x.shape.len()).filter(|d| *d != self.d + 1).chain([self.d + 1]).collect();
        let view = access.view.permuted(&order);
        let dims = view.dims[..order.len() - 1].to_vec();
        let mut prologue = Expr::new();
        let acc = prologue.push_acc(dtype);
        let acc = prologue.cast(acc, wide);
        let op = if self.op == Binary::Mul { ReduceOp::Prod } else { ReduceOp::Sum };
        let kind = StepKind::Reduce(Reduce { op, prologue: prologue.finish(acc) });
        cx.produce(kind, vec![Access::new(access.tensor, view)], &dims, wide)
    }

    /// The scan in steps over the whole line.
    fn in_steps(&self, cx: &mut Lowering<'_>, x: &Lazy, skipped: usize) -> Res<Lazy> {
        let (n, mut y, mut covered) = (x.shape[self.d], x.clone(), 1);
        if skipped > 0 {
            let moved = self.added(cx, x, &[skipped], None)?;
            y = cx.stored(moved);
        }
        while covered < n {
            let places: Vec<usize> = (0..CHUNK).map(|i| i * covered).take_while(|by| *by < n).collect();
            let sum = self.added(cx, &y, &places, None)?;
            covered *= CHUNK;
            y = if covered < n { cx.stored(sum) } else { sum };
        }
        Ok(y)
    }
}

/// The type that sums of a type are computed in.
fn held(dtype: DType) -> DType {
    if dtype.is_float() && dtype.size() < 4 { DType::F32 } else { dtype }
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
    if exclusive && shape[d] == 1 {
        cx.set(0, crate::graph::lower::splat(dtype, &shape, Scalar::of(dtype, neutral)));
        return Ok(());
    }
    let lazy = cx.lazy(x);
    let stored = cx.stored(lazy);
    let y = Scan { op, neutral, d, up }.of(cx, &stored, exclusive.into())?;
    cx.set(0, y);
    Ok(())
}

pub(super) fn sum(cx: &mut Lowering<'_>) -> Res<()> {
    scan(cx, Binary::Add, 0.0)
}

pub(super) fn prod(cx: &mut Lowering<'_>) -> Res<()> {
    scan(cx, Binary::Mul, 1.0)
}
