//! Softmax and normalisations: lines that fit in their team's registers are read once, long ones in [`pieces`](super::pieces), others
//! once a pass, but for their beginning where registers hold that.
//!
//! The elements of lines may be what an expression makes of several operands, and a result, too ([`ComputedLines`]). Lines that are held
//! are made once. Of others the first pass stores them, if somebody is to, and later ones read that.

use super::crossed::Crossed;
use super::error::{Reason, Res};
use super::float::Float;
use super::grouped::Grouped;
use super::lines::{Chunk, Lines, Place, Shape};
use super::pieces::{Found, Pieces};
use super::staged::Staged;
use super::values::{self, Value};
use super::{Arg, Cx, Kernel, Writer, epilogue, expr, halves, lanes, pointwise};
use crate::graph::expr::Expr;
use crate::graph::fused::{Access, ComputedLines, LineRule, Normalize, Softmax, StepKind};
use crate::graph::view::View;
use crate::mir::{Gen, OpenLoop, Part, Type};
use crate::tensor::DType;

mod among;
mod found;

/// Dwords that a workitem loads of a line before it stores what comes of them: of other operands alone where the line is held.
const AHEAD: usize = 48;

/// Bytes that all images share from which on these are walked side by side.
const SHARED: usize = 1 << 16;

/// Dwords of operands that a workitem loads before it makes elements of them.
const MADE_AHEAD: usize = 64;

/// What the elements of lines are made of.
pub(super) struct Elements<'a> {
    /// Operands. Lines are walked as they lie in the first.
    pub sources: Vec<Arg>,
    /// What an element is of these, where it is not the first one's own.
    pub made: Option<&'a Expr>,
    pub dtype: DType,
    /// Where elements are written, if they are a result, too.
    pub kept: Option<Arg>,
}

impl<'a> Elements<'a> {
    pub fn of(cx: &Cx<'a>) -> Elements<'a> {
        let StepKind::ComputedLines(c) = &cx.step.kind else {
            return Elements { sources: vec![Arg::Input(0)], made: None, dtype: cx.dtype(Arg::Input(0)), kept: None };
        };
        Elements {
            sources: c.sources().map(Arg::Input).collect(),
            made: Some(&c.element),
            dtype: c.element.dtype(),
            kept: c.kept.then_some(Arg::Input(0)),
        }
    }

    /// So many elements of what was loaded of each operand: neighbours, or one that serves for all.
    pub fn of_loaded(&self, w: &mut Writer, loaded: &[Vec<Value>], count: usize) -> Res<Vec<Part>> {
        let Some(made) = self.made else {
            let mut list: Vec<Part> = loaded[0].iter().map(|x| x.whole(&mut w.b)).collect();
            list.resize(count, list[0]);
            return Ok(list);
        };
        let first = usize::from(self.kept.is_some());
        let one = |e: usize| {
            let operand = |i: u32| &loaded[i as usize - first];
            let made = expr::eval(&mut w.b, made, &|i| operand(i)[e.min(operand(i).len() - 1)], None)?;
            Ok(made.whole(&mut w.b))
        };
        (0..count).map(one).collect()
    }

    /// The type that they are computed in.
    fn float(&self) -> Res<Float> {
        if self.dtype.is_float() { Ok(Float(values::computed(self.dtype))) } else { Err(Reason::NotFloat(self.dtype)) }
    }
}

/// A walk over lines, the dimensions of a step's views from `outer` on.
pub(super) struct Walk<'a> {
    cx: &'a Cx<'a>,
    pub lines: Lines,
    elements: Elements<'a>,
    float: Float,
    /// Elements are where they are kept, and read there from now on.
    stored: bool,
    /// How the lines lie in each access: those of the elements, those of the expression, the result.
    places: Vec<(Arg, Place)>,
    /// The line, where it is held: what the last pass left of each chunk's elements.
    held: Vec<(Chunk, Vec<Part>)>,
    /// The loop over lines, where a workgroup takes several.
    turns: Option<OpenLoop>,
    /// What is the same for all of these lines, of each chunk.
    same: Vec<(Arg, Vec<Vec<Value>>)>,
    /// The workgroup's lines, where they go through LDS, and its results, where these alone do.
    staged: Option<Staged>,
    crossed: Option<Crossed>,
    /// Where lines begin in their dimensions, how many of them a team takes in straight code, and whether these lie among each other.
    outer: usize,
    abreast: u32,
    among: bool,
}

/// `e^x` of softmax, whose operands are not above 0: of 16 bits that stay 16 bits the short recipe.
pub(super) fn exponential(cx: &Cx, float: Float, w: &mut Writer, x: Part) -> Part {
    let dtype = Elements::of(cx).dtype;
    match dtype.is_half() && dtype == cx.dtype(Arg::Output) {
        true => halves::exp_below_one(&mut w.b, dtype, x),
        false => float.exp(&mut w.b, x),
    }
}

/// What is walked: what elements are made of, the expression's other operands, where elements are kept, the result.
pub(super) fn walked(cx: &Cx) -> Vec<Arg> {
    let Elements { mut sources, kept, .. } = Elements::of(cx);
    let others = epilogue::operands(cx).into_iter().map(Arg::Input);
    let others: Vec<Arg> = others.filter(|a| !sources.contains(a)).chain(kept).collect();
    sources.extend(others);
    sources.push(Arg::Output);
    sources
}

/// The lines of a step, the dimensions from `outer` on.
pub(super) fn shape(cx: &Cx, outer: usize) -> Res<Shape> {
    let args = walked(cx);
    let elements = (Elements::of(cx).dtype, cx.view(args[0]));
    let accesses: Vec<_> = [elements].into_iter().chain(args.iter().map(|a| (cx.dtype(*a), cx.view(*a)))).collect();
    Shape::of(&accesses, outer, cx.step.output.view.dims[..outer].iter().product(), true)
}

/// Lines lie in what they are read of as in their result, all in one piece.
fn is_alike(cx: &Cx) -> bool {
    let (input, out) = (&cx.step.inputs[0], &cx.step.output);
    let of_line = |v: &View, t: DType| (v.strides.last() == Some(&1), v.strides.clone(), t.size());
    let [a, b] = [(&input.view, Arg::Input(0)), (&out.view, Arg::Output)].map(|(v, arg)| of_line(v, cx.dtype(arg)));
    let is_made = matches!(cx.step.kind, StepKind::ComputedLines(_));
    a.0 && a == b && !is_made && input.is_plain() && out.is_plain()
}

impl<'a> Walk<'a> {
    /// Begins the kernel. Every access is prepared outside of loops.
    pub fn begin(cx: &'a Cx<'a>, outer: usize) -> Res<(Writer, Walk<'a>)> {
        let elements = Elements::of(cx);
        let float = elements.float()?;
        let out = &cx.step.output.view;
        let args = walked(cx);
        let shape = shape(cx, outer)?;
        let others = |a: &&Arg| cx.view(**a).strides.last() != Some(&0) && ![Arg::Input(0), Arg::Output].contains(a);
        let others = args.iter().filter(others);
        let apart = others.clone().any(|a| outer.checked_sub(1).is_some_and(|d| cx.view(*a).strides[d] != 0));
        let others = others.map(|a| cx.dtype(*a).size() * shape.length).sum();
        let shape = Shape { others, apart, ..shape };
        let among = among::together(cx, &elements, &shape, outer);
        let staged = among.is_none() && elements.sources[0] == Arg::Input(0) && Staged::fits(cx, &shape);
        let walked = match among {
            Some(lines) => shape.among(lines),
            None if staged => shape.staged(),
            None if is_alike(cx) => shape.as_memory(cx.target),
            None => shape,
        };
        let (mut w, mut lines) = Lines::begin(cx, walked);
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
        let (of_all, own): (Vec<Arg>, Vec<Arg>) = args.iter().partition(|a| is_same(a));
        let turns = match among {
            Some(_) => 1,
            None => lines.worth(cx.target, bytes(&own), bytes(&of_all), of_all.len() as u32),
        };
        let (mut same, mut node) = (Vec::new(), None);
        if turns > 1 {
            for arg in of_all {
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
        if node.is_none() && elements.kept.is_none() && among.is_none() {
            let beside = epilogue::operands(cx).len();
            lines.abreast(cx.target, bytes(&own) as usize, beside as u32);
        }
        // What all images share is read once for all of them, where caches would lose it before the next one.
        let shared = |a: &&Arg| cx.view(**a).strides[0] == 0 && cx.view(**a).strides[1..].iter().all(|s| *s != 0);
        let shared = args.iter().filter(shared).map(|a| cx.dtype(*a).size() * shape.count / out.dims[0] * shape.length);
        if node.is_none() && outer > 1 && out.dims[0] > 1 && shared.sum::<usize>() > SHARED {
            lines.side_by_side(out.dims[0]);
            lines.turn(&mut w, 0);
        }
        let (held, places) = (Vec::new(), Vec::new());
        let staged = if lines.are_staged() { Some(Staged::begin(cx, &mut w, &lines, true)?) } else { None };
        let (turns, abreast) = if node.is_some() { (node, 1) } else { (None, among.unwrap_or(lines.turns())) };
        let crossed = Crossed::begin(cx, &mut w, &lines, outer);
        let (stored, among) = (false, among.is_some());
        let mut walk = Walk {
            cx,
            lines,
            elements,
            float,
            stored,
            places,
            held,
            turns,
            same,
            staged,
            crossed,
            outer,
            abreast,
            among,
        };
        if walk.abreast == 1 {
            walk.prepare(&mut w);
        }
        Ok((w, walk))
    }

    /// How the line that is walked lies in each access of its own.
    fn prepare(&mut self, w: &mut Writer) {
        let cx = self.cx;
        let own = walked(cx).into_iter().filter(|a| self.same.iter().all(|s| s.0 != *a));
        let place = |arg: Arg| (arg, self.lines.place(w, cx.view(arg), cx.dtype(arg).size(), self.outer));
        self.places = own.map(place).collect();
        if let Some((_, result)) = self.places.iter().find(|p| p.0 == Arg::Output) {
            self.lines.begin_as_memory(w, result);
        }
    }

    /// Calls `body` for each line that a team takes in straight code; several are all loaded before, with `fill` behind their ends.
    pub fn each_line(
        &mut self,
        w: &mut Writer,
        fill: f64,
        mut body: impl FnMut(&mut Writer, &mut Walk<'a>) -> Res<()>,
    ) -> Res<()> {
        if self.abreast == 1 {
            return body(w, self);
        }
        let mut loaded = Vec::new();
        let mut among = if self.among { self.load_among(w)? } else { Vec::new() }.into_iter();
        for turn in 0..self.abreast {
            match among.next() {
                Some(line) => self.take_of(w, line, fill)?,
                None => {
                    self.lines.turn(w, turn);
                    self.take_staged(turn);
                    self.prepare(w);
                    self.hold(w, fill)?;
                }
            }
            let Lines { line, inside, .. } = self.lines;
            loaded.push(((line, inside), std::mem::take(&mut self.places), std::mem::take(&mut self.held)));
        }
        (0..).zip(loaded).try_for_each(|(turn, (taken, places, held))| {
            self.take_staged(turn);
            (self.lines.line, self.lines.inside) = taken;
            (self.places, self.held) = (places, held);
            body(w, self)
        })
    }

    /// Goes on to a turn's line in LDS.
    fn take_staged(&mut self, turn: u32) {
        if let Some(staged) = &mut self.staged {
            staged.take(&self.lines, turn);
        }
    }

    /// Lines from number `from` on have but so many elements, which those who walk them know ([`Lines::end_early`]).
    pub fn end_early(&mut self, from: u32, elements: u32) {
        self.crossed = self.crossed.take().and_then(|crossed| crossed.ending(from, elements));
    }

    /// Ends the kernel, in which the members of a team have met so many times. Gives how many workgroups there are.
    pub fn end(self, w: &mut Writer, meetings: u32) -> Res<[u32; 3]> {
        if let Some(node) = self.turns {
            self.lines.end(w, node, meetings);
        }
        if let Some(staged) = &self.staged {
            staged.end(self.cx, w)?;
        }
        Ok(self.lines.grid())
    }

    /// How the lines lie in an access.
    fn place(&self, arg: Arg) -> Res<&Place> {
        let found = self.places.iter().find(|p| p.0 == arg);
        found.map(|p| &p.1).ok_or(Reason::Malformed("an access that was not prepared"))
    }

    /// The elements of a chunk, by its number, in an access, or one that serves for all.
    fn load(&self, w: &mut Writer, arg: Arg, c: &Chunk, number: usize) -> Res<Vec<Value>> {
        if let Some((_, chunks)) = self.same.iter().find(|s| s.0 == arg) {
            return Ok(chunks[number].clone());
        }
        if let (Arg::Input(0), Some(staged)) = (arg, &self.staged) {
            return Ok(vec![staged.load(w, &self.lines, self.cx.dtype(arg), c)]);
        }
        let (place, buf) = (self.place(arg)?, w.buffer(self.cx, arg)?);
        Ok(self.lines.load(w, self.cx.dtype(arg), buf, place, c))
    }

    /// What is read of lines now, where they are not held.
    fn sources(&self) -> Vec<Arg> {
        match self.elements.kept {
            Some(kept) if self.stored => vec![kept],
            _ => self.elements.sources.clone(),
        }
    }

    /// That of a chunk.
    fn loaded(&self, w: &mut Writer, c: &Chunk, number: usize) -> Res<Vec<Vec<Value>>> {
        self.sources().into_iter().map(|arg| self.load(w, arg, c, number)).collect()
    }

    /// The elements that are made of it.
    fn made(&self, w: &mut Writer, loaded: &[Vec<Value>]) -> Res<Vec<Part>> {
        let count = self.lines.together() as usize;
        let Elements { made, dtype, .. } = self.elements;
        let stored =
            Elements { sources: Vec::new(), made: made.filter(|_| !self.stored), dtype, kept: self.elements.kept };
        stored.of_loaded(w, loaded, count)
    }

    /// Writes a chunk's elements where they are kept, if they are.
    fn keep(&self, w: &mut Writer, c: &Chunk, list: &[Part]) -> Res<()> {
        let Some(arg) = self.elements.kept.filter(|_| !self.stored) else { return Ok(()) };
        let (place, buf, t) = (self.place(arg)?, w.buffer(self.cx, arg)?, self.elements.dtype);
        let values: Vec<Value> = list.iter().map(|x| Value::of(t, *x)).collect();
        self.lines.store(w, t, buf, place, c, &values);
        Ok(())
    }

    /// The elements that are made of what was loaded, with `fill` behind the line's end.
    fn filled(&self, w: &mut Writer, c: &Chunk, loaded: &[Vec<Value>], fill: f64) -> Res<Vec<Part>> {
        let mut list = self.made(w, loaded)?;
        if let Some(mask) = c.inside {
            let fill = self.float.held(&mut w.b, fill);
            list.iter_mut().for_each(|x| *x = self.float.select(&mut w.b, mask, *x, fill));
        }
        Ok(list)
    }

    /// Loads the line that is held, or its beginning.
    fn hold(&mut self, w: &mut Writer, fill: f64) -> Res<()> {
        let mut held = Vec::new();
        self.lines.held(w, self.made_together(), |w, chunks| {
            let numbered = chunks.iter().zip(held.len()..);
            let loaded = pointwise::ahead(w, numbered, |w, (c, n)| self.loaded(w, c, n))?;
            for (c, loaded) in chunks.iter().zip(&loaded) {
                held.push((*c, self.filled(w, c, loaded, fill)?));
            }
            Ok(())
        })?;
        // Behind all loads, which do not pass stores.
        held.iter().try_for_each(|(c, list)| self.keep(w, c, list))?;
        self.held = held;
        Ok(())
    }

    /// A pass: calls `body` with each chunk, and each of its elements and its place in the chunk; what it gives is what the
    /// next pass sees of what is held. Before the first pass elements behind the line's end come as `fill`.
    pub fn pass(
        &mut self,
        w: &mut Writer,
        name: &str,
        fill: f64,
        body: impl FnMut(&mut Writer, &Chunk, usize, Part) -> Part,
    ) -> Res<()> {
        self.pass_of(w, name, fill, true, body)
    }

    /// The same over all of the line, or over what is held alone.
    fn pass_of(
        &mut self,
        w: &mut Writer,
        name: &str,
        fill: f64,
        all: bool,
        mut body: impl FnMut(&mut Writer, &Chunk, usize, Part) -> Part,
    ) -> Res<()> {
        if all && !self.lines.is_held() {
            self.lines.each(w, name, |w, c| {
                let loaded = self.loaded(w, c, 0)?;
                let list = self.filled(w, c, &loaded, fill)?;
                self.keep(w, c, &list)?;
                list.into_iter().enumerate().for_each(|(e, x)| {
                    body(w, c, e, x);
                });
                Ok(())
            })?;
        }
        if self.held.is_empty() && (self.lines.is_held() || self.lines.is_held_in_part()) {
            self.hold(w, fill)?;
        }
        for (c, list) in &mut self.held {
            for (e, x) in list.iter_mut().enumerate() {
                *x = body(w, c, e, *x);
            }
        }
        self.stored = self.elements.kept.is_some();
        Ok(())
    }

    /// A first pass over what is not held: calls `body` with the elements of each round of a workitem, those behind the line's end as `fill`.
    fn rounds(&mut self, w: &mut Writer, name: &str, fill: f64, mut body: impl FnMut(&mut Writer, &[Part])) -> Res<()> {
        self.lines.some(w, name, self.lines.chunks as usize, |w, chunks| {
            let loaded = chunks.iter().map(|c| self.loaded(w, c, 0)).collect::<Res<Vec<_>>>()?;
            let mut all = Vec::new();
            for (c, loaded) in chunks.iter().zip(&loaded) {
                let list = self.filled(w, c, loaded, fill)?;
                self.keep(w, c, &list)?;
                all.extend(list);
            }
            body(w, &all);
            Ok(())
        })
    }

    /// The operands of the expression beside the line of which one element serves for all of it; nothing of others.
    fn of_line(&self, w: &mut Writer) -> Res<Vec<Vec<Value>>> {
        let chunk = Chunk { first: self.lines.first(w), ahead: 0, inside: None };
        let mut operands = vec![Vec::new(); self.cx.step.inputs.len()];
        for arg in epilogue::operands(self.cx) {
            if self.place(Arg::Input(arg)).is_ok_and(Place::is_one) {
                operands[arg] = self.load(w, Arg::Input(arg), &chunk, 0)?;
            }
        }
        Ok(operands)
    }

    /// All of them of a chunk.
    fn beside(&self, w: &mut Writer, c: &Chunk, number: usize, of_line: &[Vec<Value>]) -> Res<Vec<Vec<Value>>> {
        let mut operands = of_line.to_vec();
        for i in epilogue::operands(self.cx) {
            if operands[i].is_empty() {
                operands[i] = self.load(w, Arg::Input(i), c, number)?;
            }
        }
        Ok(operands)
    }

    /// Dwords of a chunk that are loaded, of these accesses: not of what is the same for all lines.
    fn dwords(&self, args: impl Iterator<Item = Arg>) -> usize {
        let own = args.filter(|a| self.same.iter().all(|s| s.0 != *a));
        own.map(|a| (self.cx.dtype(a).size() * self.lines.together() as usize).div_ceil(4)).sum()
    }

    /// Chunks whose elements are loaded together, where the line is held: those that are made, or taken from LDS one by one.
    fn made_together(&self) -> usize {
        if self.elements.made.is_none() && self.staged.is_none() {
            return 1;
        }
        let dwords = self.dwords(self.elements.sources.iter().copied());
        (MADE_AHEAD.min(self.lines.room(self.cx.target) as usize) / dwords.max(1)).max(1)
    }

    /// Chunks whose other operands are loaded together, and themselves where they are not `held`. What is stored may be what is loaded: loads do not
    /// pass stores by themselves.
    fn chunks_together(&self, held: bool) -> usize {
        let (cx, together) = (self.cx, self.lines.together() as usize);
        let others = epilogue::operands(cx).into_iter().map(Arg::Input);
        let others: Vec<Arg> = others.filter(|a| self.same.iter().all(|s| s.0 != *a)).collect();
        let elements = others.len() * together;
        let read = if held { Vec::new() } else { self.sources() };
        let dwords = self.dwords(others.into_iter().chain(read));
        // Elements are computed in registers of their own.
        let room = if held { self.lines.room(cx.target) as usize / elements.max(1) } else { usize::MAX };
        (AHEAD / dwords.max(1)).min(room).max(1)
    }

    /// Writes `f(element, held)` through the step's expression, of elements as the last pass left them where they are held, else
    /// as they are in memory.
    pub fn write(&self, w: &mut Writer, mut f: impl FnMut(&mut Writer, Part, bool) -> Part) -> Res<()> {
        let cx = self.cx;
        let crossed = &self.crossed.as_ref().map(|crossed| crossed.placed(w));
        let mut one =
            |w: &mut Writer, [first, c]: [&Chunk; 2], operands: &[Vec<Value>], list: &[Part], held| -> Res<()> {
                let t = self.elements.dtype;
                let mut results = Vec::new();
                for (e, x) in list.iter().enumerate() {
                    let y = f(w, *x, held);
                    let input = |i: u32| operands[i as usize][e.min(operands[i as usize].len() - 1)];
                    results.push(expr::eval(&mut w.b, &cx.step.expr, &input, Some(Value::of(t, y)))?);
                }
                match (&self.staged, crossed, &results[..]) {
                    (Some(staged), _, [one]) => staged.store(w, &self.lines, cx.dtype(Arg::Output), c, *one),
                    (_, Some(crossed), [one]) => crossed.leave(w, cx, first, c, *one),
                    _ => {
                        let (place, buf) = (self.place(Arg::Output)?, w.buffer(cx, Arg::Output)?);
                        self.lines.store(w, cx.dtype(Arg::Output), buf, place, c, &results);
                    }
                }
                Ok(())
            };
        // Chunks that go to memory together, where they do not by themselves.
        let stored = |all: usize| crossed.as_ref().map_or(all, Crossed::chunks).max(1);
        let end = |w: &mut Writer, first: &Chunk, more: bool| match crossed {
            Some(crossed) => crossed.store(w, cx, &self.lines, first, more),
            None => Ok(()),
        };
        let of_line = self.of_line(w)?;
        let numbered: Vec<_> = self.held.iter().enumerate().collect();
        let (all, mut done) = (numbered.len(), 0);
        for some in numbered.chunks(stored(all)) {
            let first = &some[0].1.0;
            some.chunks(self.chunks_together(true)).try_for_each(|chunks| {
                let operands = pointwise::ahead(w, chunks.iter(), |w, (n, (c, _))| self.beside(w, c, *n, &of_line))?;
                let mut chunks = chunks.iter().zip(&operands);
                chunks.try_for_each(|((_, (c, list)), operands)| one(w, [first, c], operands, list, true))
            })?;
            done += some.len();
            end(w, first, done < all)?;
        }
        if self.lines.is_held() {
            return Ok(());
        }
        let together = self.chunks_together(false);
        self.lines.some(w, "write", stored(together), |w, some| {
            for chunks in some.chunks(together) {
                let mut loaded = Vec::new();
                for c in chunks {
                    let own = self.loaded(w, c, 0)?;
                    loaded.push((self.made(w, &own)?, self.beside(w, c, 0, &of_line)?));
                }
                let mut chunks = chunks.iter().zip(&loaded);
                chunks.try_for_each(|(c, (list, operands))| one(w, [&some[0], c], operands, list, false))?;
            }
            end(w, &some[0], true)
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

/// Softmax over the last dimension.
pub(super) fn softmax(cx: &Cx, s: &Softmax) -> Res<Vec<Kernel>> {
    let cx = &Cx { step: &among::as_in_memory(cx, 1), ..*cx };
    match Pieces::of(cx, cx.step.output.view.rank() - 1, Found::Softmax) {
        Some(found) => found.softmax(cx, s.log, s.masked),
        None => softmax_in_walk(cx, s),
    }
}

/// How a normalisation of groups of channels that lie last is computed.
fn grouped(cx: &Cx, n: &Normalize) -> Option<Grouped> {
    Grouped::of(cx, n.axes).filter(|_| !n.magnitudes)
}

/// Normalisation over the last dimensions.
pub(super) fn normalize(cx: &Cx, n: &Normalize) -> Res<Vec<Kernel>> {
    if let Some(found) = grouped(cx, n) {
        return found.lower(cx, n.epsilon, n.center);
    }
    let in_memory = Cx { step: &among::as_in_memory(cx, n.axes), ..*cx };
    let outer = cx.step.output.view.rank() - n.axes;
    let pieces = Pieces::of(&in_memory, outer, Found::Norm);
    // Operands with an element for each of a line are read once by a workgroup that walks it, by each of several that hold it at a time of its own.
    let of_elements = |a: &Access| a.view.strides.last() != Some(&0) && a.view.strides[..outer].iter().all(|s| *s == 0);
    let few = pieces.is_some() || !cx.step.inputs[1..].iter().any(of_elements);
    let others = Pieces::clocks(&in_memory, outer, Found::Norm).filter(|_| few);
    if let Some((step, few)) = others.and_then(|clocks| Grouped::of_few(cx, n, clocks)) {
        return few.lower(&Cx { step: &step, ..*cx }, n.epsilon, n.center);
    }
    match pieces {
        Some(found) => found.normalize(&in_memory, n),
        None => normalize_in_walk(&in_memory, n),
    }
}

/// Softmax or a normalisation of what an expression makes.
pub(super) fn of_computed(cx: &Cx, computed: &ComputedLines) -> Res<Vec<Kernel>> {
    match &computed.rule {
        LineRule::Softmax(s) => softmax_in_walk(cx, s),
        LineRule::Normalize(n) => match grouped(cx, n) {
            Some(found) => found.lower(cx, n.epsilon, n.center),
            None => normalize_in_walk(cx, n),
        },
    }
}

/// True where `whole`, which makes the lines of `alone` itself, is one walk over them, and does not read more than both steps by themselves.
pub(super) fn computes(alone: &Cx, whole: &Cx) -> bool {
    let StepKind::ComputedLines(computed) = &whole.step.kind else { return false };
    let outer = |cx: &Cx| cx.step.output.view.rank() - computed.rule.axes();
    let size = |a: Arg| whole.dtype(a).size();
    let sources: usize = computed.sources().map(|i| size(Arg::Input(i))).sum();
    let elements = computed.element.dtype().size();
    // Bytes of an element that the whole reads in so many passes, and those that both steps read and write which it does not.
    let pays = |passes: usize, before: usize| passes * sources <= sources + (1 + before) * elements;
    let apart = match &computed.rule {
        LineRule::Softmax(_) => Pieces::of(alone, outer(alone), Found::Softmax).is_some(),
        LineRule::Normalize(n) => match grouped(alone, n) {
            Some(before) => return grouped(whole, n).is_some_and(|g| pays(g.passes(), before.passes())),
            None => Pieces::of(alone, outer(alone), Found::Norm).is_some(),
        },
    };
    if apart {
        return false;
    }
    let (Ok(shape), Ok(before)) = (shape(whole, outer(whole)), shape(alone, outer(alone))) else { return false };
    // Operands whose neighbours are nowhere beside each other are turned over sooner by a step of its own.
    if before.dense && !shape.dense && shape.columns.is_none() {
        return false;
    }
    // Lines that are not held and not kept are made anew in each pass.
    let passes = match &computed.rule {
        LineRule::Normalize(n) if !n.center => 2,
        _ => 3,
    };
    let once = || Lines::begin(whole, shape).1.is_held();
    computed.kept || pays(passes, passes) || once()
}

/// Maximum, sum of exponentials, result.
fn softmax_in_walk(cx: &Cx, &Softmax { log, masked }: &Softmax) -> Res<Vec<Kernel>> {
    let out = &cx.step.output.view;
    let (mut w, mut walk) = Walk::begin(cx, out.rank() - 1)?;
    walk.each_line(&mut w, f64::NEG_INFINITY, |w, walk| {
        let float = walk.float;
        let (least, most_negative) = match float.0 {
            Type::F64 => (f64::MIN_POSITIVE, f64::MIN),
            _ => (f32::MIN_POSITIVE.into(), f32::MIN.into()),
        };
        let found = |w: &mut Writer, walk: &mut Walk<'_>| -> Res<[Part; 2]> {
            let behind = match !walk.lines.is_held() && float.0 == Type::F32 {
                true => Some(walk.exponentials(w, most_negative)?),
                false => None,
            };
            let whole = behind.is_none();
            let partial = |w: &mut Writer, walk: &Walk<'_>, start: f64| match whole || walk.lines.is_held_in_part() {
                true => walk.partial(w, start),
                false => Vec::new(),
            };
            let mut largest = partial(w, walk, f64::NEG_INFINITY);
            walk.pass_of(w, "max", f64::NEG_INFINITY, whole, |w, _, e, x| {
                float.update(&mut w.b, Gen::Max, largest[e], x);
                x
            })?;
            largest.extend(behind.map(|[largest, _]| largest));
            let mut max = walk.combine(w, largest, Gen::Max)?;
            if masked && whole {
                // A line of -inf: the differences stay -inf, and the sum of exponentials is 0.
                let low = float.constant(&mut w.b, most_negative);
                max = float.op(&mut w.b, Gen::Max, low, max);
            }
            let mut sums = partial(w, walk, 0.0);
            walk.pass_of(w, "sum", f64::NEG_INFINITY, whole, |w, _, e, x| {
                let d = float.op(&mut w.b, Gen::Sub, x, max);
                let y = exponential(cx, float, w, d);
                float.update(&mut w.b, Gen::Add, sums[e], y);
                if log { d } else { y }
            })?;
            if let Some([largest, sum]) = behind {
                let less = float.op(&mut w.b, Gen::Sub, largest, max);
                let scale = float.exp(&mut w.b, less);
                sums.push(float.op(&mut w.b, Gen::Mul, sum, scale));
            }
            Ok([max, walk.combine(w, sums, Gen::Add)?])
        };
        let [max, mut sum] = found(w, walk)?;
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
        walk.write(w, |w, x, held| {
            // What is held is what the last pass gave.
            let d = if held { x } else { float.op(&mut w.b, Gen::Sub, x, max) };
            if log {
                return float.op(&mut w.b, Gen::Sub, d, scale);
            }
            let e = if held { d } else { exponential(cx, float, w, d) };
            float.op(&mut w.b, Gen::Mul, e, scale)
        })
    })?;
    let grid = walk.end(&mut w, 2)?;
    Ok(vec![w.finish(grid, 5 * out.len() as u64)])
}

/// Adds what an element, or its difference from the mean, counts in what lines are divided by.
pub(super) fn count(w: &mut Writer, float: Float, magnitudes: bool, sum: Part, x: Part) {
    if magnitudes {
        let x = float.abs(&mut w.b, x);
        float.update(&mut w.b, Gen::Add, sum, x);
    } else {
        float.fma_into(&mut w.b, sum, x, x);
    }
}

/// Mean, variance around it, result; or the sum of magnitudes, and the result.
fn normalize_in_walk(cx: &Cx, &Normalize { axes, epsilon, center, magnitudes }: &Normalize) -> Res<Vec<Kernel>> {
    let out = &cx.step.output.view;
    let outer = out.rank() - axes;
    let length: usize = out.dims[outer..].iter().product();
    let (mut w, mut walk) = Walk::begin(cx, outer)?;
    let (float, held) = (walk.float, walk.lines.is_held());
    let scale = match float.0 {
        Type::F64 => 1.0 / length as f64,
        _ => (1.0 / length as f32).into(),
    };
    let scale = float.constant(&mut w.b, scale);
    walk.each_line(&mut w, 0.0, |w, walk| {
        let moments = match center && !held && float.0 == Type::F32 {
            true => Some(walk.moments(w)?),
            false => None,
        };
        let mean = if let Some([mean, _]) = moments {
            Some(mean)
        } else if center {
            let sums = walk.partial(w, 0.0);
            walk.pass(w, "mean", 0.0, |w, _, e, x| {
                float.update(&mut w.b, Gen::Add, sums[e], x);
                x
            })?;
            let sum = walk.combine(w, sums, Gen::Add)?;
            Some(float.op(&mut w.b, Gen::Mul, scale, sum))
        } else {
            None
        };
        let centred = |w: &mut Writer, x: Part| mean.map_or(x, |m| float.op(&mut w.b, Gen::Sub, x, m));
        let squares = if let Some([_, squares]) = moments {
            squares
        } else {
            let squares = walk.partial(w, 0.0);
            walk.pass(w, "variance", 0.0, |w, c, e, x| {
                let mut d = centred(w, x);
                if let (Some(mask), Some(_)) = (c.inside, mean) {
                    let zero = float.constant(&mut w.b, 0.0);
                    d = float.select(&mut w.b, mask, d, zero);
                }
                count(w, float, magnitudes, squares[e], d);
                d
            })?;
            walk.combine(w, squares, Gen::Add)?
        };
        let factor = match magnitudes {
            true => float.reciprocal_or_zero(&mut w.b, squares),
            false => float.inverse_deviation(&mut w.b, squares, scale, epsilon),
        };
        walk.write(w, |w, x, _| {
            let d = if held { x } else { centred(w, x) };
            float.op(&mut w.b, Gen::Mul, d, factor)
        })
    })?;
    let grid = walk.end(&mut w, 1 + u32::from(center))?;
    Ok(vec![w.finish(grid, 7 * out.len() as u64)])
}
