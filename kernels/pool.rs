//! Pooling: a workitem computes one output, or several in different places where waves would otherwise begin more slowly than
//! memory feeds them. Small windows are unrolled, large ones walked by a scalar loop.

use super::direct::Taps;
use super::error::{Reason, Res};
use super::float::Float;
use super::pointwise::{self, WORKGROUP};
use super::values::{self, Value, kind};
use super::{Arg, Cx, Kernel, Writer, address, epilogue, expr, reduce};
use crate::graph::expr::{Expr, Scalar};
use crate::graph::fused::{PoolOp, Window};
use crate::graph::view::View;
use crate::mir::{Gen, Part, Type};

/// Largest window that is unrolled.
const UNROLLED: usize = 32;

pub(super) fn lower(cx: &Cx, pool: PoolOp, window: &Window, prologue: &Expr) -> Res<Vec<Kernel>> {
    let out = &cx.step.output.view;
    let t = prologue.dtype();
    let float = match kind(t) {
        values::Kind::Float | values::Kind::Double => true,
        values::Kind::Int { .. } if pool == PoolOp::Max => false,
        _ => return Err(Reason::Operation { op: format!("{pool:?} pooling"), dtype: t }),
    };
    let ty = values::computed(t);
    let neutral = match (pool, float, t.is_signed_int()) {
        (PoolOp::Max, true, _) => Scalar::Float(f64::NEG_INFINITY),
        (PoolOp::Max, false, true) => Scalar::Int(i32::MIN as i64),
        (PoolOp::Max, false, false) => Scalar::Int(0),
        _ => Scalar::Float(0.0),
    };
    let taps: usize = window.kernel.iter().product();
    let outputs = out.len();
    let source = cx.graph.tensor(cx.tensor(Arg::Input(0))).bytes().div_ceil(outputs.max(1));
    let bytes = source + cx.dtype(Arg::Output).size();
    let places = pointwise::places(cx, outputs, bytes, |places| places * taps <= UNROLLED);
    let per_group = WORKGROUP * places as u32;
    let mut w = cx.kernel(WORKGROUP);
    let (group, item) = (w.b.workgroup_id(0), w.b.workitem_id());
    let base = w.b.mul(group, per_group);
    let first = w.b.add(base, item);
    for place in 0..places as u32 {
        let index = if place > 0 { w.b.add(first, place * WORKGROUP) } else { first };
        let coords = address::coordinates(&mut w.b, index, &out.dims);
        let start = reduce::literal(&mut w, t, neutral)?;
        let acc = reduce::held(&mut w, start);
        let walk = PoolWalk { cx, window, prologue, pool, acc, neutral: start };
        if taps <= UNROLLED {
            walk.unrolled(&mut w, &coords, taps)?
        } else {
            walk.looped(&mut w, &coords, taps)?
        }
        let total = match divisor(&mut w, pool, window, &coords, &cx.step.inputs[0].view, &out.dims) {
            Some(Divisor::Constant(n)) => {
                let share = if ty == Type::F64 { 1.0 / n as f64 } else { (1.0 / n as f32).into() };
                let share = Float(ty).constant(&mut w.b, share);
                Float(ty).op(&mut w.b, Gen::Mul, share, acc)
            }
            Some(Divisor::Count(n)) => {
                let n = w.b.convert(Type::U32, ty, n);
                Float(ty).div(&mut w.b, acc, n)
            }
            None => acc,
        };
        let inside = (!outputs.is_multiple_of(per_group as usize))
            .then(|| w.b.op(Gen::CmpGt.of(Type::U32), &[(outputs as u32).into(), index.into()]));
        epilogue::finish(&mut w, cx, Value::of(t, total), |w, arg| {
            let view = match arg {
                Arg::Input(i) => &cx.step.inputs[i].view,
                _ => &cx.step.output.view,
            };
            let mut at = address::offset(&mut w.b, view, cx.dtype(arg).size(), &coords);
            if let (Some(mask), Arg::Output) = (inside, arg) {
                let v = at.vector(&mut w.b);
                at.reg = Some(w.b.guard(mask, v));
            }
            Ok(at)
        })?;
    }
    Ok(vec![w.finish([(outputs as u32).div_ceil(per_group), 1, 1], (outputs * taps) as u64)])
}

struct PoolWalk<'a> {
    cx: &'a Cx<'a>,
    window: &'a Window,
    prologue: &'a Expr,
    pool: PoolOp,
    acc: Part,
    neutral: Value,
}

impl PoolWalk<'_> {
    /// Combines the element at an offset; lanes outside of `mask` contribute nothing.
    fn take(&self, w: &mut Writer, at: Part, mask: Option<Part>) -> Res<()> {
        let t = self.cx.dtype(Arg::Input(0));
        let buf = w.buffer(self.cx, Arg::Input(0))?;
        let at = match mask {
            Some(m) => w.b.guard(m, at),
            None => at,
        };
        let x = values::load(&mut w.b, t, buf, address::Offset { reg: Some(at), imm: 0 });
        let mut x = expr::eval(&mut w.b, self.prologue, &|_| x, Some(x))?;
        if let Some(m) = mask {
            x = values::select(&mut w.b, m, x, self.neutral);
        }
        let op = if self.pool == PoolOp::Max { Gen::Max } else { Gen::Add };
        let x = match x {
            Value::Pair(p) => p.into(),
            x => x.word(),
        };
        let ty = values::computed(self.prologue.dtype());
        w.b.emit(op.of(ty), &[self.acc.into()], &[x, self.acc.into()]);
        Ok(())
    }

    fn view(&self) -> &View {
        &self.cx.step.inputs[0].view
    }

    /// Byte offset of image and channel.
    fn base(&self, w: &mut Writer, coords: &[Option<Part>], constant: bool) -> address::Offset {
        let size = self.cx.dtype(Arg::Input(0)).size();
        address::offset_of_dims(&mut w.b, self.view(), size, coords, 0..2, constant)
    }

    fn unrolled(&self, w: &mut Writer, coords: &[Option<Part>], taps: usize) -> Res<()> {
        let base = self.base(w, coords, false).vector(&mut w.b);
        let size = self.cx.dtype(Arg::Input(0)).size();
        let at = Taps::new(w, self.window, &coords[2..], self.view(), size, &self.cx.step.output.view);
        for t in 0..taps {
            let (offset, mask) = at.offset_and_mask(w, t);
            let offset = w.b.add(offset, base);
            self.take(w, offset, mask)?;
        }
        Ok(())
    }

    fn looped(&self, w: &mut Writer, coords: &[Option<Part>], taps: usize) -> Res<()> {
        let size = self.cx.dtype(Arg::Input(0)).size();
        let view = self.view();
        let base = self.base(w, coords, true);
        let base = match base.reg {
            Some(_) => {
                let v = base.vector(&mut w.b);
                w.b.add(v, base.imm)
            }
            None => w.b.to_vector(base.imm),
        };
        let corners: Vec<Part> = (0..self.window.kernel.len())
            .map(|d| {
                let scaled = match coords[d + 2] {
                    Some(c) => w.b.mul(c, self.window.strides[d] as u32),
                    None => w.b.to_vector(0u32),
                };
                w.b.sub(scaled, self.window.pads[d] as u32)
            })
            .collect();
        reduce::scalar_loop(w, "window", taps as u32, |w, tap| {
            let k = address::coordinates(&mut w.b, tap, &self.window.kernel);
            let mut offset = base;
            let mut mask: Option<Part> = None;
            for (d, corner) in corners.iter().enumerate() {
                let at = match k[d] {
                    Some(k) => {
                        let step = w.b.mul(k, self.window.dilations[d] as u32);
                        w.b.add(*corner, step)
                    }
                    None => *corner,
                };
                let inside = w.b.op(Gen::CmpGt.of(Type::U32), &[(view.dims[d + 2] as u32).into(), at.into()]);
                mask = Some(match mask {
                    Some(m) => w.b.mask_and(m, inside),
                    None => inside,
                });
                let bytes = (view.strides[d + 2] * size as i64) as i32;
                offset = w.b.mad(at, bytes, offset);
            }
            self.take(w, offset, mask)
        })
    }
}

enum Divisor {
    Constant(usize),
    /// A count per lane.
    Count(Part),
}

/// Number of taps that an average divides by.
fn divisor(
    w: &mut Writer,
    pool: PoolOp,
    window: &Window,
    coords: &[Option<Part>],
    input: &View,
    outputs: &[usize],
) -> Option<Divisor> {
    // Positions -before .. extent + after count.
    let (before, after): (Vec<usize>, Vec<usize>) = match pool {
        PoolOp::Max | PoolOp::Sum => return None,
        PoolOp::Average => (vec![0; 3], vec![0; 3]),
        PoolOp::AverageIncludePad { pad_end } => {
            let mut pads = window.pads.clone();
            pads.resize(3, 0);
            (pads, pad_end.to_vec())
        }
    };
    let b = &mut w.b;
    let mut count: Option<Part> = None;
    let mut constant = 1;
    for d in 0..window.kernel.len() {
        let (kernel, step) = (window.kernel[d], window.dilations[d]);
        let counts = |o: usize| {
            let first = (o * window.strides[d]) as i64 - window.pads[d] as i64;
            let valid = -(before[d] as i64)..(input.dims[d + 2] + after[d]) as i64;
            (0..kernel).filter(|k| valid.contains(&(first + (k * step) as i64))).count()
        };
        let all: Vec<usize> = (0..outputs[d + 2]).map(counts).collect();
        if all.iter().all(|c| *c == all[0]) {
            constant *= all[0];
            continue;
        }
        let c = coords[d + 2].expect("an extent of 1 has one count");
        let corner = b.mul(c, window.strides[d] as u32);
        let n = b.to_vector(0u32);
        for k in 0..kernel {
            let shift = (k * step) as i32 - window.pads[d] as i32 + before[d] as i32;
            let at = b.add(corner, shift);
            let limit = (input.dims[d + 2] + after[d] + before[d]) as u32;
            let inside = b.op(Gen::CmpGt.of(Type::U32), &[limit.into(), at.into()]);
            let (one, zero) = (b.to_vector(1u32), b.to_vector(0u32));
            let add = b.select(inside, one, zero);
            b.emit(Gen::Add.of(Type::I32), &[n.into()], &[n.into(), add.into()]);
        }
        count = Some(match count {
            Some(p) => b.mul(p, n),
            None => n,
        });
    }
    Some(match count {
        None => Divisor::Constant(constant),
        Some(n) => {
            let n = if constant > 1 { b.mul(n, constant as u32) } else { n };
            Divisor::Count(n)
        }
    })
}
