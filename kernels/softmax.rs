//! Softmax and normalisations: lines that fit in their team's registers are read once, long ones in [`pieces`](super::pieces), others
//! once a pass.

use super::error::{Reason, Res};
use super::float::Float;
use super::grouped::Grouped;
use super::lines::{Chunk, Lines, Place, Shape};
use super::pieces::{Found, Pieces};
use super::staged::Staged;
use super::values::{self, Value};
use super::{Arg, Cx, Kernel, Writer, epilogue, expr, halves, lanes};
use crate::graph::expr::Unary;
use crate::mir::{Gen, OpenLoop, Part, Type};
use crate::tensor::DType;

/// Dwords that a workitem loads of a line before it stores what comes of them: of other operands alone where the line is held.
const AHEAD: usize = 48;

/// The type that the elements of operand 0 are computed in.
fn float_type(cx: &Cx) -> Res<Float> {
    let t = cx.dtype(Arg::Input(0));
    if t.is_float() { Ok(Float(values::computed(t))) } else { Err(Reason::NotFloat(t)) }
}

/// A walk over the lines of operand 0, the dimensions of its view from `outer` on.
pub(super) struct Walk<'a> {
    cx: &'a Cx<'a>,
    pub lines: Lines,
    float: Float,
    /// How the lines lie in each access: operand 0, those of the expression, the result.
    places: Vec<(Arg, Place)>,
    /// The line, where it is held: what the last pass left of each chunk's elements.
    held: Vec<(Chunk, Vec<Part>)>,
    /// The loop over lines, where a workgroup takes several.
    turns: Option<OpenLoop>,
    /// What is the same for all of these lines, of each chunk.
    same: Vec<(Arg, Vec<Vec<Value>>)>,
    /// The workgroup's lines, where they go through LDS.
    staged: Option<Staged>,
}

/// `e^x` of softmax: of f16 that becomes f16 the short recipe.
pub(super) fn exponential(cx: &Cx, float: Float, w: &mut Writer, x: Part) -> Part {
    let halves = [Arg::Input(0), Arg::Output].iter().all(|a| cx.dtype(*a) == DType::F16);
    match halves.then(|| halves::unary(&mut w.b, Unary::Exp, DType::F16, x)).flatten() {
        Some(y) => y,
        None => float.exp(&mut w.b, x),
    }
}

/// What is walked: operand 0, the expression's other operands, the result.
fn walked(cx: &Cx) -> Vec<Arg> {
    let others = epilogue::operands(cx).into_iter().filter(|i| *i > 0).map(Arg::Input);
    [Arg::Input(0)].into_iter().chain(others).chain([Arg::Output]).collect()
}

/// The lines of a step, the dimensions from `outer` on.
pub(super) fn shape(cx: &Cx, outer: usize) -> Res<Shape> {
    let accesses: Vec<_> = walked(cx).into_iter().map(|a| (cx.dtype(a), cx.view(a))).collect();
    Shape::of(&accesses, outer, cx.step.output.view.dims[..outer].iter().product(), true)
}

impl<'a> Walk<'a> {
    /// Begins the kernel. Every access is prepared outside of loops.
    pub fn begin(cx: &'a Cx<'a>, outer: usize) -> Res<(Writer, Walk<'a>)> {
        let float = float_type(cx)?;
        let out = &cx.step.output.view;
        let args = walked(cx);
        let shape = shape(cx, outer)?;
        let (mut w, mut lines) = Lines::begin(cx, Shape { staged: Staged::fits(cx, &shape), ..shape });
        for &arg in &args {
            w.buffer(cx, arg)?;
        }
        // Those of which every line reads the same elements, each once.
        let is_same = |a: &Arg| {
            let (outside, inside) = cx.view(*a).strides.split_at(outer);
            outside.iter().all(|s| *s == 0) && inside.iter().all(|s| *s != 0)
        };
        let bytes = |args: &[Arg]| {
            let length: usize = out.dims[outer..].iter().product();
            args.iter().map(|a| (cx.dtype(*a).size() * length) as f64).sum::<f64>()
        };
        let (kept, own): (Vec<Arg>, Vec<Arg>) = args.iter().partition(|a| is_same(a));
        let turns = lines.worth(cx.target, bytes(&own), bytes(&kept), kept.len() as u32);
        let (mut same, mut node) = (Vec::new(), None);
        if turns > 1 {
            for arg in kept {
                let (place, buf) = (lines.place(&mut w, cx.view(arg), cx.dtype(arg).size(), outer), w.buffer(cx, arg)?);
                let mut chunks = Vec::new();
                lines.each(&mut w, "same", |w, c| {
                    chunks.push(lines.load(w, cx.dtype(arg), buf, &place, c));
                    Ok(())
                })?;
                same.push((arg, chunks));
            }
            node = Some(lines.take(&mut w, turns));
        }
        let mut places = Vec::new();
        for &arg in args.iter().filter(|a| same.iter().all(|s| s.0 != **a)) {
            places.push((arg, lines.place(&mut w, cx.view(arg), cx.dtype(arg).size(), outer)));
        }
        let staged = if lines.are_staged() { Some(Staged::begin(cx, &mut w, &lines)?) } else { None };
        Ok((w, Walk { cx, lines, float, places, held: Vec::new(), turns: node, same, staged }))
    }

    /// Ends the kernel, in which the members of a team have met so many times. Gives how many workgroups there are.
    pub fn end(self, w: &mut Writer, meetings: u32) -> [u32; 3] {
        if let Some(node) = self.turns {
            self.lines.end(w, node, meetings);
        }
        self.lines.grid()
    }

    /// The elements of a chunk in an access, or one that serves for all.
    fn load(&self, w: &mut Writer, arg: Arg, c: &Chunk) -> Res<Vec<Value>> {
        if let (Arg::Input(0), Some(staged)) = (arg, &self.staged) {
            return Ok(vec![staged.load(w, &self.lines, self.cx.dtype(arg), c)]);
        }
        let place =
            self.places.iter().find(|p| p.0 == arg).ok_or(Reason::Malformed("an access that was not prepared"))?;
        let buf = w.buffer(self.cx, arg)?;
        Ok(self.lines.load(w, self.cx.dtype(arg), buf, &place.1, c))
    }

    /// The elements of a chunk of operand 0.
    fn elements(&self, w: &mut Writer, c: &Chunk) -> Res<Vec<Part>> {
        let mut list: Vec<Part> = self.load(w, Arg::Input(0), c)?.into_iter().map(|x| x.whole(&mut w.b)).collect();
        list.resize(self.lines.together() as usize, list[0]);
        Ok(list)
    }

    /// A pass: calls `body` with each chunk, and each of its elements and its place in the chunk; what it gives is what the
    /// next pass sees where the line is held. Before the first pass elements behind the line's end come as `fill`.
    pub fn pass(
        &mut self,
        w: &mut Writer,
        name: &str,
        fill: f64,
        mut body: impl FnMut(&mut Writer, &Chunk, usize, Part) -> Part,
    ) -> Res<()> {
        let float = self.float;
        let filled = |w: &mut Writer, walk: &Walk, c: &Chunk| -> Res<Vec<Part>> {
            let mut list = walk.elements(w, c)?;
            if let Some(mask) = c.inside {
                let fill = float.held(&mut w.b, fill);
                list.iter_mut().for_each(|x| *x = float.select(&mut w.b, mask, *x, fill));
            }
            Ok(list)
        };
        if !self.lines.is_held() {
            return self.lines.each(w, name, |w, c| {
                let list = filled(w, self, c)?;
                list.into_iter().enumerate().for_each(|(e, x)| {
                    body(w, c, e, x);
                });
                Ok(())
            });
        }
        if self.held.is_empty() {
            let mut held = Vec::new();
            self.lines.each(w, name, |w, c| {
                held.push((*c, filled(w, self, c)?));
                Ok(())
            })?;
            self.held = held;
        }
        for (c, list) in &mut self.held {
            for (e, x) in list.iter_mut().enumerate() {
                *x = body(w, c, e, *x);
            }
        }
        Ok(())
    }

    /// The operands of the expression beside the line, of a chunk.
    fn beside(&self, w: &mut Writer, c: &Chunk, number: usize) -> Res<Vec<Vec<Value>>> {
        let mut operands = vec![Vec::new(); self.cx.step.inputs.len()];
        for i in epilogue::operands(self.cx) {
            operands[i] = match self.same.iter().find(|s| s.0 == Arg::Input(i)) {
                Some((_, chunks)) => chunks[number].clone(),
                None => self.load(w, Arg::Input(i), c)?,
            };
        }
        Ok(operands)
    }

    /// Chunks whose other operands are loaded together, and themselves where they are not held. What is stored may be what is loaded: loads do not
    /// pass stores by themselves.
    fn chunks_together(&self) -> usize {
        let (cx, together) = (self.cx, self.lines.together() as usize);
        let others = epilogue::operands(cx).into_iter().map(Arg::Input);
        let others: Vec<Arg> = others.filter(|a| self.same.iter().all(|s| s.0 != *a)).collect();
        let held = self.lines.is_held();
        let elements = others.len() * together;
        let read = others.into_iter().chain((!held).then_some(Arg::Input(0)));
        let dwords: usize = read.map(|a| (cx.dtype(a).size() * together).div_ceil(4)).sum();
        // Elements are computed in registers of their own.
        let room = if held { self.lines.room(cx.target) as usize / elements.max(1) } else { usize::MAX };
        (AHEAD / dwords.max(1)).min(room).max(1)
    }

    /// Writes `f(element)` through the step's expression, of elements as the last pass left them where the line is held, else
    /// as they are in memory.
    pub fn write(&self, w: &mut Writer, mut f: impl FnMut(&mut Writer, Part) -> Part) -> Res<()> {
        let cx = self.cx;
        let mut one = |w: &mut Writer, c: &Chunk, operands: &[Vec<Value>], list: &[Part]| -> Res<()> {
            let t = cx.dtype(Arg::Input(0));
            let mut results = Vec::new();
            for (e, x) in list.iter().enumerate() {
                let y = f(w, *x);
                let input = |i: u32| operands[i as usize][e.min(operands[i as usize].len() - 1)];
                results.push(expr::eval(&mut w.b, &cx.step.expr, &input, Some(Value::of(t, y)))?);
            }
            if let (Some(staged), [one]) = (&self.staged, &results[..]) {
                staged.store(w, &self.lines, cx.dtype(Arg::Output), c, *one);
                return Ok(());
            }
            let (_, place) = self.places.last().ok_or(Reason::Malformed("a step without a result"))?;
            let buf = w.buffer(cx, Arg::Output)?;
            self.lines.store(w, cx.dtype(Arg::Output), buf, place, c, &results);
            Ok(())
        };
        if self.lines.is_held() {
            let numbered: Vec<_> = self.held.iter().enumerate().collect();
            numbered.chunks(self.chunks_together()).try_for_each(|chunks| {
                let operands: Vec<_> = chunks.iter().map(|(n, (c, _))| self.beside(w, c, *n)).collect::<Res<_>>()?;
                chunks.iter().zip(&operands).try_for_each(|((_, (c, list)), operands)| one(w, c, operands, list))
            })?;
            return self.staged.as_ref().map_or(Ok(()), |staged| staged.end(cx, w));
        }
        self.lines.some(w, "write", self.chunks_together(), |w, chunks| {
            let mut loaded = Vec::new();
            for c in chunks {
                loaded.push((self.elements(w, c)?, self.beside(w, c, 0)?));
            }
            chunks.iter().zip(&loaded).try_for_each(|(c, (list, operands))| one(w, c, operands, list))
        })
    }

    /// Registers that neighbours of chunks are combined in, apart from each other.
    pub fn partial(&self, w: &mut Writer, start: f64) -> Vec<Part> {
        (0..self.lines.together()).map(|_| self.float.held(&mut w.b, start)).collect()
    }

    /// Combines such registers, and then the team's.
    pub fn combine(&self, w: &mut Writer, partial: Vec<Part>, by: Gen) -> Res<Part> {
        let merge = lanes::by(by, self.float.0);
        let own = lanes::folded(w, partial.into_iter().map(|p| vec![p]).collect(), &merge)?;
        Ok(self.lines.combine(w, &own, merge)?[0])
    }
}

/// Softmax over the last dimension: maximum, sum of exponentials, result.
pub(super) fn softmax(cx: &Cx, log: bool, masked: bool) -> Res<Vec<Kernel>> {
    let out = &cx.step.output.view;
    if let Some(found) = Pieces::of(cx, out.rank() - 1, Found::Softmax) {
        return found.softmax(cx, log, masked);
    }
    let (mut w, mut walk) = Walk::begin(cx, out.rank() - 1)?;
    let (float, held) = (walk.float, walk.lines.is_held());
    let largest = walk.partial(&mut w, f64::NEG_INFINITY);
    walk.pass(&mut w, "max", f64::NEG_INFINITY, |w, _, e, x| {
        float.update(&mut w.b, Gen::Max, largest[e], x);
        x
    })?;
    let mut max = walk.combine(&mut w, largest, Gen::Max)?;
    let (least, most_negative) = match float.0 {
        Type::F64 => (f64::MIN_POSITIVE, f64::MIN),
        _ => (f32::MIN_POSITIVE.into(), f32::MIN.into()),
    };
    if masked {
        // A line of -inf: the differences stay -inf, and the sum of exponentials is 0.
        let low = float.constant(&mut w.b, most_negative);
        max = float.op(&mut w.b, Gen::Max, low, max);
    }
    let sums = walk.partial(&mut w, 0.0);
    walk.pass(&mut w, "sum", f64::NEG_INFINITY, |w, _, e, x| {
        let d = float.op(&mut w.b, Gen::Sub, x, max);
        let y = exponential(cx, float, w, d);
        float.update(&mut w.b, Gen::Add, sums[e], y);
        if log { d } else { y }
    })?;
    let mut sum = walk.combine(&mut w, sums, Gen::Add)?;
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
        // What is held is what the last pass gave.
        let d = if held { x } else { float.op(&mut w.b, Gen::Sub, x, max) };
        if log {
            return float.op(&mut w.b, Gen::Sub, d, scale);
        }
        let e = if held { d } else { exponential(cx, float, w, d) };
        float.op(&mut w.b, Gen::Mul, e, scale)
    })?;
    let grid = walk.end(&mut w, 2);
    Ok(vec![w.finish(grid, 5 * out.len() as u64)])
}

/// Normalisation over the last `axes` dimensions: mean, variance around it, result.
pub(super) fn normalize(cx: &Cx, axes: usize, epsilon: f64, center: bool) -> Res<Vec<Kernel>> {
    if let Some(found) = Grouped::of(cx, axes) {
        return found.lower(cx, epsilon, center);
    }
    let out = &cx.step.output.view;
    let outer = out.rank() - axes;
    if let Some(found) = Pieces::of(cx, outer, Found::Norm) {
        return found.normalize(cx, epsilon, center);
    }
    let length: usize = out.dims[outer..].iter().product();
    let (mut w, mut walk) = Walk::begin(cx, outer)?;
    let (float, held) = (walk.float, walk.lines.is_held());
    let scale = match float.0 {
        Type::F64 => 1.0 / length as f64,
        _ => (1.0 / length as f32).into(),
    };
    let scale = float.constant(&mut w.b, scale);
    let mean = if center {
        let sums = walk.partial(&mut w, 0.0);
        walk.pass(&mut w, "mean", 0.0, |w, _, e, x| {
            float.update(&mut w.b, Gen::Add, sums[e], x);
            x
        })?;
        let sum = walk.combine(&mut w, sums, Gen::Add)?;
        Some(float.op(&mut w.b, Gen::Mul, scale, sum))
    } else {
        None
    };
    let centred = |w: &mut Writer, x: Part| mean.map_or(x, |m| float.op(&mut w.b, Gen::Sub, x, m));
    let squares = walk.partial(&mut w, 0.0);
    walk.pass(&mut w, "variance", 0.0, |w, c, e, x| {
        let mut d = centred(w, x);
        if let (Some(mask), Some(_)) = (c.inside, mean) {
            let zero = float.constant(&mut w.b, 0.0);
            d = float.select(&mut w.b, mask, d, zero);
        }
        float.fma_into(&mut w.b, squares[e], d, d);
        d
    })?;
    let squares = walk.combine(&mut w, squares, Gen::Add)?;
    let factor = float.inverse_deviation(&mut w.b, squares, scale, epsilon);
    walk.write(&mut w, |w, x| {
        let d = if held { x } else { centred(w, x) };
        float.op(&mut w.b, Gen::Mul, d, factor)
    })?;
    let grid = walk.end(&mut w, 1 + u32::from(center));
    Ok(vec![w.finish(grid, 7 * out.len() as u64)])
}
