//! Softmax and normalisations: several passes over each line, which a workitem or a whole workgroup walks.

use super::address;
use super::reduce::{Lines, held, part_offset};
use super::values::{self, Value};
use super::{Arg, Cx, Kernel, Writer, epilogue, math};
use crate::mir::{Gen, Part, Type};
use crate::tensor::DType;

fn check_types(cx: &Cx) -> Result<(), String> {
    let t = cx.dtype(Arg::Input(0));
    if matches!(t, DType::F32 | DType::F16) { Ok(()) } else { Err(format!("{t} elements; floats are supported")) }
}

/// A walk over the lines of operand 0: the outer dimensions of the view number the lines.
struct Walk<'a> {
    cx: &'a Cx<'a>,
    lines: Lines,
    outer: usize,
}

impl Walk<'_> {
    /// Calls `body` with each element; elements behind the line's end come as `fill`.
    fn each(
        &self,
        w: &mut Writer,
        name: &str,
        fill: f32,
        body: impl FnOnce(&mut Writer, Part) -> Result<(), String>,
    ) -> Result<(), String> {
        let view = &self.cx.step.inputs[0].view;
        let t = self.cx.dtype(Arg::Input(0));
        let buf = w.buffer(self.cx, Arg::Input(0))?;
        let base = part_offset(w, view, t.size(), 0..self.outer, self.lines.line, true);
        self.lines.each(w, name, |w, i, inside| {
            let at = part_offset(w, view, t.size(), self.outer..view.rank(), i, false);
            let at = address::add(&mut w.b, base, at);
            let at = self.lines.mask_element(w, at, inside);
            let mut x = values::load(&mut w.b, t, buf, at)?.reg(&mut w.b);
            if let Some(mask) = inside {
                let fill = w.b.to_vector(fill);
                x = w.b.select(mask, x, fill);
            }
            body(w, x)
        })
    }

    /// Writes `f(element)` through the step's expression.
    fn write(&self, w: &mut Writer, f: impl FnOnce(&mut Writer, Part) -> Part) -> Result<(), String> {
        let cx = self.cx;
        let view = &cx.step.inputs[0].view;
        let t = cx.dtype(Arg::Input(0));
        let buf = w.buffer(cx, Arg::Input(0))?;
        // Bases of all accesses outside of the loop.
        let args: Vec<Arg> = epilogue::operands(cx).into_iter().map(Arg::Input).chain([Arg::Output]).collect();
        let view_of = |arg: Arg| match arg {
            Arg::Input(i) => &cx.step.inputs[i].view,
            _ => &cx.step.output.view,
        };
        let base = part_offset(w, view, t.size(), 0..self.outer, self.lines.line, true);
        let mut bases = Vec::new();
        for &arg in &args {
            bases.push(part_offset(w, view_of(arg), cx.dtype(arg).size(), 0..self.outer, self.lines.line, true));
            w.buffer(cx, arg)?;
        }
        self.lines.each(w, "write", |w, i, inside| {
            let at = part_offset(w, view, t.size(), self.outer..view.rank(), i, false);
            let at = address::add(&mut w.b, base, at);
            let at = self.lines.mask_element(w, at, inside);
            let x = values::load(&mut w.b, t, buf, at)?.reg(&mut w.b);
            let y = f(w, x);
            epilogue::finish(w, cx, Value::Word(y.into()), |w, arg| {
                let v = view_of(arg);
                let k = args.iter().position(|a| *a == arg).ok_or("an access that was not prepared")?;
                let at = part_offset(w, v, cx.dtype(arg).size(), self.outer..v.rank(), i, false);
                let at = address::add(&mut w.b, bases[k], at);
                Ok(if arg == Arg::Output { self.lines.mask_element(w, at, inside) } else { at })
            })
        })
    }

    fn sum(&self, w: &mut Writer, x: Part) -> Result<Part, String> {
        Ok(self.lines.combine(w, &[x], |w, a, b| Ok(vec![math::add(&mut w.b, a[0], b[0])]))?[0])
    }
}

/// Softmax over the last dimension: maximum, sum of exponentials, result.
pub(super) fn softmax(cx: &Cx, log: bool, masked: bool) -> Result<Vec<Kernel>, String> {
    check_types(cx)?;
    let out = &cx.step.output.view;
    let outer = out.rank() - 1;
    let length = out.dims[outer];
    let (mut w, lines) = Lines::begin(cx, out.len() / length, length);
    let walk = Walk { cx, lines, outer };
    let max = w.b.to_vector(f32::NEG_INFINITY);
    walk.each(&mut w, "max", f32::NEG_INFINITY, |w, x| {
        w.b.emit(Gen::Max.of(Type::F32), &[max.into()], &[max.into(), x.into()]);
        Ok(())
    })?;
    let merge =
        |w: &mut Writer, a: &[Part], b: &[Part]| Ok(vec![w.b.op(Gen::Max.of(Type::F32), &[a[0].into(), b[0].into()])]);
    let mut max = walk.lines.combine(&mut w, &[max], merge)?[0];
    if masked {
        // A line of -inf: the differences stay -inf, and the sum of exponentials is 0.
        max = w.b.op(Gen::Max.of(Type::F32), &[f32::MIN.into(), max.into()]);
    }
    let sum = held(&mut w, Value::Word(0.0f32.into()));
    walk.each(&mut w, "sum", f32::NEG_INFINITY, |w, x| {
        let d = math::sub(&mut w.b, x, max);
        let e = math::exp(&mut w.b, d.into());
        w.b.emit(Gen::Add.of(Type::F32), &[sum.into()], &[sum.into(), e.into()]);
        Ok(())
    })?;
    let mut sum = walk.sum(&mut w, sum)?;
    if masked {
        // Every other line has a sum of at least 1, or a NaN, which wins.
        sum = math::extremum(&mut w.b, true, sum.into(), f32::MIN_POSITIVE.into());
    }
    let scale = if log { math::log(&mut w.b, sum.into()) } else { math::div(&mut w.b, 1.0f32.into(), sum.into()) };
    walk.write(&mut w, |w, x| {
        let d = math::sub(&mut w.b, x, max);
        if log {
            return math::sub(&mut w.b, d, scale);
        }
        let e = math::exp(&mut w.b, d.into());
        math::mul(&mut w.b, e, scale)
    })?;
    let grid = walk.lines.grid();
    Ok(vec![w.finish(grid, 5 * out.len() as u64)])
}

/// Normalisation over the last `axes` dimensions: mean, variance around it, result.
pub(super) fn normalize(cx: &Cx, axes: usize, epsilon: f32, center: bool) -> Result<Vec<Kernel>, String> {
    check_types(cx)?;
    let out = &cx.step.output.view;
    let outer = out.rank() - axes;
    let length: usize = out.dims[outer..].iter().product();
    let (mut w, lines) = Lines::begin(cx, out.len() / length, length);
    let walk = Walk { cx, lines, outer };
    let scale = 1.0 / length as f32;
    let mean = if center {
        let sum = held(&mut w, Value::Word(0.0f32.into()));
        walk.each(&mut w, "mean", 0.0, |w, x| {
            w.b.emit(Gen::Add.of(Type::F32), &[sum.into()], &[sum.into(), x.into()]);
            Ok(())
        })?;
        let sum = walk.sum(&mut w, sum)?;
        math::mul(&mut w.b, scale, sum)
    } else {
        w.b.to_vector(0.0f32)
    };
    let squares = held(&mut w, Value::Word(0.0f32.into()));
    let view = &cx.step.inputs[0].view;
    let t = cx.dtype(Arg::Input(0));
    let buf = w.buffer(cx, Arg::Input(0))?;
    let base = part_offset(&mut w, view, t.size(), 0..outer, walk.lines.line, true);
    walk.lines.each(&mut w, "variance", |w, i, inside| {
        let at = part_offset(w, view, t.size(), outer..view.rank(), i, false);
        let at = address::add(&mut w.b, base, at);
        let at = walk.lines.mask_element(w, at, inside);
        let x = values::load(&mut w.b, t, buf, at)?.reg(&mut w.b);
        let mut d = math::sub(&mut w.b, x, mean);
        if let Some(mask) = inside {
            d = w.b.select(mask, d, 0.0f32);
        }
        w.b.fma_into(squares, d, d);
        Ok(())
    })?;
    let squares = walk.sum(&mut w, squares)?;
    let variance = w.b.fma(squares, scale, epsilon);
    let root = math::sqrt(&mut w.b, variance.into());
    let factor = math::div(&mut w.b, 1.0f32.into(), root.into());
    walk.write(&mut w, |w, x| {
        let d = math::sub(&mut w.b, x, mean);
        math::mul(&mut w.b, d, factor)
    })?;
    let grid = walk.lines.grid();
    Ok(vec![w.finish(grid, 7 * out.len() as u64)])
}
