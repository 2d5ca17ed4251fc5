//! Softmax and normalisations: several passes over each line, which a workitem or a whole workgroup walks.

use super::address;
use super::error::{Reason, Res};
use super::float::Float;
use super::reduce::{Lines, part_offset};
use super::values::{self, Value};
use super::{Arg, Cx, Kernel, Writer, epilogue};
use crate::mir::{Gen, Part, Type};

/// The type that the elements of operand 0 are computed in.
fn float_type(cx: &Cx) -> Res<Float> {
    let t = cx.dtype(Arg::Input(0));
    if t.is_float() { Ok(Float(values::computed(t))) } else { Err(Reason::NotFloat(t)) }
}

/// A walk over the lines of operand 0: the outer dimensions of the view number the lines.
struct Walk<'a> {
    cx: &'a Cx<'a>,
    lines: Lines,
    outer: usize,
    float: Float,
}

impl Walk<'_> {
    /// Calls `body` with each element; elements behind the line's end come as `fill`.
    fn each(&self, w: &mut Writer, name: &str, fill: f64, body: impl FnOnce(&mut Writer, Part) -> Res<()>) -> Res<()> {
        let view = &self.cx.step.inputs[0].view;
        let t = self.cx.dtype(Arg::Input(0));
        let buf = w.buffer(self.cx, Arg::Input(0))?;
        let base = part_offset(w, view, t.size(), 0..self.outer, self.lines.line, true);
        self.lines.each(w, name, |w, i, inside| {
            let at = part_offset(w, view, t.size(), self.outer..view.rank(), i, false);
            let at = address::add(&mut w.b, base, at);
            let at = self.lines.mask_element(w, at, inside);
            let mut x = values::load(&mut w.b, t, buf, at).whole(&mut w.b);
            if let Some(mask) = inside {
                let fill = self.float.held(&mut w.b, fill);
                x = self.float.select(&mut w.b, mask, x, fill);
            }
            body(w, x)
        })
    }

    /// Writes `f(element)` through the step's expression.
    fn write(&self, w: &mut Writer, f: impl FnOnce(&mut Writer, Part) -> Part) -> Res<()> {
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
            let x = values::load(&mut w.b, t, buf, at).whole(&mut w.b);
            let y = f(w, x);
            epilogue::finish(w, cx, Value::of(t, y), |w, arg| {
                let v = view_of(arg);
                let k =
                    args.iter().position(|a| *a == arg).ok_or(Reason::Malformed("an access that was not prepared"))?;
                let at = part_offset(w, v, cx.dtype(arg).size(), self.outer..v.rank(), i, false);
                let at = address::add(&mut w.b, bases[k], at);
                Ok(if arg == Arg::Output { self.lines.mask_element(w, at, inside) } else { at })
            })
        })
    }

    fn sum(&self, w: &mut Writer, x: Part) -> Res<Part> {
        Ok(self.lines.combine(w, &[x], |w, a, b| Ok(vec![self.float.op(&mut w.b, Gen::Add, a[0], b[0])]))?[0])
    }
}

/// Softmax over the last dimension: maximum, sum of exponentials, result.
pub(super) fn softmax(cx: &Cx, log: bool, masked: bool) -> Res<Vec<Kernel>> {
    let float = float_type(cx)?;
    let out = &cx.step.output.view;
    let outer = out.rank() - 1;
    let length = out.dims[outer];
    let (mut w, lines) = Lines::begin(cx, out.len() / length, length);
    let walk = Walk { cx, lines, outer, float };
    let max = float.held(&mut w.b, f64::NEG_INFINITY);
    walk.each(&mut w, "max", f64::NEG_INFINITY, |w, x| {
        float.update(&mut w.b, Gen::Max, max, x);
        Ok(())
    })?;
    let merge = |w: &mut Writer, a: &[Part], b: &[Part]| Ok(vec![float.op(&mut w.b, Gen::Max, a[0], b[0])]);
    let mut max = walk.lines.combine(&mut w, &[max], merge)?[0];
    let (least, most_negative) = match float.0 {
        Type::F64 => (f64::MIN_POSITIVE, f64::MIN),
        _ => (f32::MIN_POSITIVE.into(), f32::MIN.into()),
    };
    if masked {
        // A line of -inf: the differences stay -inf, and the sum of exponentials is 0.
        let low = float.constant(&mut w.b, most_negative);
        max = float.op(&mut w.b, Gen::Max, low, max);
    }
    let sum = float.held(&mut w.b, 0.0);
    walk.each(&mut w, "sum", f64::NEG_INFINITY, |w, x| {
        let d = float.op(&mut w.b, Gen::Sub, x, max);
        let e = float.exp(&mut w.b, d);
        float.update(&mut w.b, Gen::Add, sum, e);
        Ok(())
    })?;
    let mut sum = walk.sum(&mut w, sum)?;
    if masked {
        // Every other line has a sum of at least 1, or a NaN, which wins.
        let least = float.constant(&mut w.b, least);
        let r = float.op(&mut w.b, Gen::Max, sum, least);
        let nan = float.op(&mut w.b, Gen::CmpUnordered, sum, sum);
        sum = float.select(&mut w.b, nan, sum, r);
    }
    let scale = if log {
        float.log(&mut w.b, sum)
    } else {
        let one = float.constant(&mut w.b, 1.0);
        float.div(&mut w.b, one, sum)
    };
    walk.write(&mut w, |w, x| {
        let d = float.op(&mut w.b, Gen::Sub, x, max);
        if log {
            return float.op(&mut w.b, Gen::Sub, d, scale);
        }
        let e = float.exp(&mut w.b, d);
        float.op(&mut w.b, Gen::Mul, e, scale)
    })?;
    let grid = walk.lines.grid();
    Ok(vec![w.finish(grid, 5 * out.len() as u64)])
}

/// Normalisation over the last `axes` dimensions: mean, variance around it, result.
pub(super) fn normalize(cx: &Cx, axes: usize, epsilon: f32, center: bool) -> Res<Vec<Kernel>> {
    let float = float_type(cx)?;
    let out = &cx.step.output.view;
    let outer = out.rank() - axes;
    let length: usize = out.dims[outer..].iter().product();
    let (mut w, lines) = Lines::begin(cx, out.len() / length, length);
    let walk = Walk { cx, lines, outer, float };
    let scale = match float.0 {
        Type::F64 => 1.0 / length as f64,
        _ => (1.0 / length as f32).into(),
    };
    let mean = if center {
        let sum = float.held(&mut w.b, 0.0);
        walk.each(&mut w, "mean", 0.0, |w, x| {
            float.update(&mut w.b, Gen::Add, sum, x);
            Ok(())
        })?;
        let sum = walk.sum(&mut w, sum)?;
        let scale = float.constant(&mut w.b, scale);
        float.op(&mut w.b, Gen::Mul, scale, sum)
    } else {
        float.held(&mut w.b, 0.0)
    };
    let squares = float.held(&mut w.b, 0.0);
    let view = &cx.step.inputs[0].view;
    let t = cx.dtype(Arg::Input(0));
    let buf = w.buffer(cx, Arg::Input(0))?;
    let base = part_offset(&mut w, view, t.size(), 0..outer, walk.lines.line, true);
    walk.lines.each(&mut w, "variance", |w, i, inside| {
        let at = part_offset(w, view, t.size(), outer..view.rank(), i, false);
        let at = address::add(&mut w.b, base, at);
        let at = walk.lines.mask_element(w, at, inside);
        let x = values::load(&mut w.b, t, buf, at).whole(&mut w.b);
        let mut d = float.op(&mut w.b, Gen::Sub, x, mean);
        if let Some(mask) = inside {
            let zero = float.constant(&mut w.b, 0.0);
            d = float.select(&mut w.b, mask, d, zero);
        }
        float.fma_into(&mut w.b, squares, d, d);
        Ok(())
    })?;
    let squares = walk.sum(&mut w, squares)?;
    let (scale, epsilon) = (float.constant(&mut w.b, scale), float.constant(&mut w.b, epsilon.into()));
    let variance = float.fma(&mut w.b, squares, scale, epsilon);
    let root = float.sqrt(&mut w.b, variance);
    let one = float.constant(&mut w.b, 1.0);
    let factor = float.div(&mut w.b, one, root);
    walk.write(&mut w, |w, x| {
        let d = float.op(&mut w.b, Gen::Sub, x, mean);
        float.op(&mut w.b, Gen::Mul, d, factor)
    })?;
    let grid = walk.lines.grid();
    Ok(vec![w.finish(grid, 7 * out.len() as u64)])
}
