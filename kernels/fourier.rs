//! Fourier transforms of lines in LDS: passes of mixed radices (Cooley and Tukey 1965) in Stockham's order, which sorts itself.
//!
//! After passes whose radices have the product `l`, there are transforms of `l` elements each, of those that lie `n / l` apart: one behind the other, in the
//! order of their first element. A workitem takes the elements of a butterfly, which lie `n / radix` apart whatever the pass, turns and transforms them in
//! registers, and leaves them `l` apart where the next pass looks for them, in LDS. What the first pass takes comes from memory, and what the last one gives
//! goes there. A workgroup has several lines where these are short. Real and imaginary parts go through LDS together, or one after the other where both are long.
//!
//! Lengths with large prime factors are convolutions with a chirp, by passes of a longer transform and back (Bluestein 1970). Those back have the radices in the opposite
//! order, so that the first of them takes what the last one there gives, in the same registers.
//!
//! What is turned by a root of unity is turned by its power: one root is read from a table for each butterfly, the others are products of it, which is right to a
//! few units in the last place. Places are spread by one in each sixteen where radices are powers of two, so that lanes meet different banks.

mod butterfly;

use super::address;
use super::blob::Blob;
use super::epilogue;
use super::error::{Reason, Res};
use super::expr;
use super::float::Float;
use super::values::{self, Value};
use super::{Arg, Cx, Kernel, Writer};
use crate::graph::fused::Fourier;
use crate::graph::view::View;
use crate::mir::{Buffer, Gen, Part, Type};
use crate::tensor::DType;
use barewave_isa::Target;
use butterfly::{Butterfly, Number};
use std::f64::consts::PI;

/// Elements that a workitem holds at most, of f32 and of f64.
const HELD: [usize; 2] = [40, 20];

/// Workitems of a workgroup at most.
const TEAM: usize = 256;

/// LDS that a workgroup takes beside others on its compute unit.
const SHARE: usize = 32 << 10;

/// How transforms are spread over workgroups.
struct Plan {
    radices: Vec<usize>,
    /// Elements of a line: the product of the radices.
    length: usize,
    /// Transforms, and how many of them a workgroup has.
    count: usize,
    lines: usize,
    team: usize,
    /// Neighbouring workitems have neighbouring lines, which lie together in memory.
    across: bool,
    /// One place in each sixteen of LDS is left free.
    spread: bool,
    /// Parts of elements that go through LDS together.
    planes: usize,
    /// Bytes of a part, and places of a line in LDS.
    size: usize,
    pitch: usize,
}

impl Plan {
    fn of(cx: &Cx, kind: &Fourier) -> Option<Plan> {
        let passes = Fourier::passes(kind.n, kind.dtype)?;
        let (n, double, radices) = (passes.length(), kind.dtype == DType::F64, passes.radices);
        let out = &cx.step.output.view.dims;
        let count = out[0] * out[1] * out[3];
        let wave = cx.target.info().wave_size as usize;
        let spread = radices.iter().all(|r| r.is_power_of_two());
        let mut plan = Plan {
            radices,
            length: n,
            count,
            lines: 1,
            team: wave,
            across: out[3] > 1,
            spread,
            planes: 1,
            size: kind.dtype.size(),
            pitch: 0,
        };
        // Lines that lie across each other are as far apart as an odd number of words, for lanes that have one each.
        plan.pitch = if plan.across { plan.place(n) | 1 } else { plan.place(n) };
        let held = HELD[usize::from(double)];
        let mut best: Option<(f64, usize, usize)> = None;
        for team in (wave..=TEAM).step_by(wave) {
            for lines in 1..=(team * held / n).min(count).min(team) {
                plan.lines = lines;
                plan.team = team;
                let fits = plan.rounds().all(|(rounds, r)| rounds * r <= held) && plan.bytes(1) <= 2 * SHARE;
                if fits {
                    let cost = plan.cost(cx.target);
                    if best.is_none_or(|b| cost < b.0) {
                        best = Some((cost, team, lines));
                    }
                }
            }
        }
        (_, plan.team, plan.lines) = best?;
        plan.planes = if plan.bytes(2) <= SHARE { 2 } else { 1 };
        Some(plan)
    }

    /// Butterflies of a workitem in each pass, and their radix.
    fn rounds(&self) -> impl Iterator<Item = (usize, usize)> {
        self.radices.iter().map(|r| ((self.lines * self.length / r).div_ceil(self.team), *r))
    }

    /// Lines that LDS has room for: workitems beyond the last butterfly have some of their own.
    fn kept(&self) -> usize {
        self.rounds().map(|(rounds, r)| (rounds * self.team).div_ceil(self.length / r)).max().unwrap_or(1)
    }

    /// Bytes of LDS for so many parts.
    fn bytes(&self, planes: usize) -> usize {
        if self.radices.len() == 1 { 0 } else { planes * self.kept() * self.pitch * self.size }
    }

    /// What a transform costs, in elements that are transformed by all workitems, idle ones too: more where compute units have no workgroup, few waves, or
    /// parts of lines of memory. How much more is an assumption: nothing was fitted.
    fn cost(&self, target: Target) -> f64 {
        let work: usize = self.rounds().map(|(rounds, r)| rounds * r * self.team).sum();
        let (groups, cus) = (self.count.div_ceil(self.lines), target.cus() as usize);
        let whole = groups.div_ceil(cus) * cus;
        // Neighbours of so many lines fill lines of memory.
        let narrow = if self.across { 1.0 + 4.0 / self.lines as f64 } else { 1.0 };
        let few = 1.0 + 32.0 / self.team as f64;
        (work * whole) as f64 * narrow * few
    }

    /// Where an element of a line is in LDS.
    fn place(&self, x: usize) -> usize {
        if self.spread { x + (x >> 4) } else { x }
    }

    /// How far the places of the others of a butterfly are from the first one's, if that is the same for all `butterflies`.
    fn steps(&self, butterflies: usize, radix: usize, x: impl Fn(usize, usize) -> usize) -> Option<Vec<usize>> {
        let step = |t: usize, j: usize| self.place(x(t, j)).checked_sub(self.place(x(t, 0)));
        let first: Option<Vec<usize>> = (0..radix).map(|j| step(0, j)).collect();
        first.filter(|first| (0..butterflies).all(|t| (0..radix).all(|j| step(t, j) == Some(first[j]))))
    }
}

/// A butterfly of a workitem: its line, and its number in the line.
#[derive(Clone, Copy)]
struct Own {
    line: Option<Part>,
    number: Part,
}

struct Lines<'a> {
    cx: &'a Cx<'a>,
    kind: &'a Fourier,
    plan: Plan,
    float: Float,
    /// Where LDS begins.
    base: u32,
    /// LDS was used before.
    used: bool,
    /// Number of the workgroup's first line.
    first: Part,
}

/// A pass over lines: its radix, the product of those before it, and the direction of its roots.
#[derive(Clone, Copy)]
struct Pass {
    radix: usize,
    done: usize,
    inverse: bool,
}

/// Where in the kernel's constants each pass has its roots, and a convolution its chirp and the chirp's transform.
struct Tables {
    buffer: Option<Buffer>,
    roots: Vec<u32>,
    chirp: u32,
    spectrum: u32,
}

pub(super) fn lower(cx: &Cx, kind: &Fourier) -> Res<Vec<Kernel>> {
    let plan = Plan::of(cx, kind).ok_or(Reason::Malformed("a transform of a length that has no passes"))?;
    let groups = plan.count.div_ceil(plan.lines) as u32;
    let mut w = cx.kernel(plan.team as u32);
    let group = w.b.workgroup_id(0);
    let first = w.b.mul(group, plan.lines as u32);
    let base = if plan.bytes(1) > 0 { w.b.lds(plan.bytes(plan.planes) as u32) } else { 0 };
    let float = Float(if kind.dtype == DType::F64 { Type::F64 } else { Type::F32 });
    let (count, n) = (plan.count as u64, kind.n as u64);
    let convolved = plan.length != kind.n;
    let of = |radices: Vec<usize>, inverse: bool| {
        radices.into_iter().scan(1, move |all, radix| {
            let done = *all;
            *all *= radix;
            Some(Pass { radix, done, inverse })
        })
    };
    let mut passes: Vec<Pass> = of(plan.radices.clone(), kind.inverse && !convolved).collect();
    let there = passes.len();
    if convolved {
        passes.extend(of(plan.radices.iter().rev().copied().collect(), true));
    }
    let mut lines = Lines { cx, kind, plan, float, base, used: false, first };
    let tables = lines.tables(&mut w, &passes, convolved);
    let mut butterflies = [false, true].map(|inverse| Butterfly::new(float, inverse));
    let mut held: Vec<Vec<Number>> = Vec::new();
    for (number, pass) in passes.iter().enumerate() {
        let butterfly = &mut butterflies[usize::from(pass.inverse)];
        let mut results = Vec::new();
        for (round, at) in lines.owns(&mut w, pass.radix, true).into_iter().enumerate() {
            let mut x = match number {
                0 => lines.load(&mut w, pass.radix, at)?,
                _ => std::mem::take(&mut held[round]),
            };
            if let Some(buffer) = tables.buffer {
                let start = match number {
                    0 if convolved => Some(tables.chirp),
                    _ if number == there => Some(tables.spectrum),
                    _ => None,
                };
                if let Some(start) = start {
                    lines.scale(&mut w, butterfly, (buffer, start), at.number, &mut x);
                }
                if pass.done > 1 {
                    let (_, k) = w.b.divmod(at.number, pass.done as u32);
                    let root = lines.root(&mut w, buffer, tables.roots[number], k);
                    butterfly.turn(&mut w.b, &mut x, root);
                }
            }
            results.push(butterfly.transform(&mut w.b, &x));
        }
        held = match passes.get(number + 1) {
            Some(_) if number + 1 == there => results,
            Some(next) => lines.exchange(&mut w, (pass.done, pass.radix, next.radix), &results),
            None => {
                let owns = lines.owns(&mut w, pass.radix, false);
                for (at, mut x) in owns.into_iter().zip(results) {
                    // Others are not stored.
                    let bins = cx.step.output.view.dims[2];
                    x.iter_mut().skip(bins.div_ceil(pass.done)).for_each(|x| *x = Number::ZERO);
                    if let Some(buffer) = tables.buffer.filter(|_| convolved) {
                        lines.scale(&mut w, butterfly, (buffer, tables.chirp), at.number, &mut x);
                    }
                    lines.store(&mut w, pass.done, at, &x)?;
                }
                Vec::new()
            }
        };
    }
    let flops = count * 5 * n * u64::from(n.ilog2());
    Ok(vec![w.finish([groups, 1, 1], flops)])
}

/// The transform of some numbers on the host.
fn transformed(x: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let n = x.len();
    let Some(p) = (2..=n).find(|p| n.is_multiple_of(*p)) else { return x.to_vec() };
    let parts: Vec<Vec<(f64, f64)>> =
        (0..p).map(|j| transformed(&x.iter().skip(j).step_by(p).copied().collect::<Vec<_>>())).collect();
    let term = |k: usize, j: usize| {
        let (sin, cos) = (2.0 * PI * ((j * k % n) as f64 / n as f64)).sin_cos();
        let (re, im) = parts[j][k % (n / p)];
        (re * cos + im * sin, im * cos - re * sin)
    };
    let sum = |k: usize| (0..p).map(|j| term(k, j)).fold((0.0, 0.0), |a, b| (a.0 + b.0, a.1 + b.1));
    (0..n).map(sum).collect()
}

impl Lines<'_> {
    /// Roots of unity that butterflies of each pass are turned by; and, of a convolution, the chirp and its transform.
    fn tables(&self, w: &mut Writer, passes: &[Pass], convolved: bool) -> Tables {
        let mut data = Vec::new();
        let add = |data: &mut Vec<u8>, numbers: Vec<(f64, f64)>| {
            let start = data.len() as u32;
            for part in numbers.into_iter().flat_map(|(re, im)| [re, im]) {
                match self.float.is_double() {
                    true => data.extend(part.to_le_bytes()),
                    false => data.extend((part as f32).to_le_bytes()),
                }
            }
            start
        };
        let unit = |turns: f64, inverse: bool| {
            let (sin, cos) = (2.0 * PI * turns).sin_cos();
            (cos, if inverse { sin } else { -sin })
        };
        let roots = |pass: &Pass| {
            let length = (pass.done * pass.radix) as f64;
            let count = if pass.done > 1 { pass.done } else { 0 };
            (0..count).map(|k| unit(k as f64 / length, pass.inverse)).collect()
        };
        let roots = passes.iter().map(|pass| add(&mut data, roots(pass))).collect();
        let (mut chirp, mut spectrum) = (0, 0);
        if convolved {
            let (n, length) = (self.kind.n, self.plan.length);
            let all: Vec<(f64, f64)> =
                (0..n).map(|j| unit((j * j % (2 * n)) as f64 / (2 * n) as f64, self.kind.inverse)).collect();
            let mut other = vec![(0.0, 0.0); length];
            for (j, (re, im)) in all.iter().enumerate() {
                // What the way there and back multiplies by goes in with it.
                let conjugate = (re / length as f64, -im / length as f64);
                other[j] = conjugate;
                other[(length - j) % length] = conjugate;
            }
            chirp = add(&mut data, all);
            spectrum = add(&mut data, transformed(&other));
        }
        let buffer = (!data.is_empty()).then(|| w.blob(Blob::Data(data)));
        Tables { buffer, roots, chirp, spectrum }
    }

    /// Elements of a butterfly, which lie a pass's results apart, times those of a table. There is one for each element that is not 0, or is stored.
    fn scale(
        &self,
        w: &mut Writer,
        butterfly: &Butterfly,
        (table, start): (Buffer, u32),
        first: Part,
        x: &mut [Number],
    ) {
        let apart = self.plan.length / x.len();
        for (j, x) in x.iter_mut().enumerate().filter(|(_, x)| !x.is_zero()) {
            let k = w.b.add(first, (j * apart) as u32);
            let factor = self.root(w, table, start, k);
            *x = butterfly.times(&mut w.b, *x, factor);
        }
    }

    /// A root of a pass.
    fn root(&self, w: &mut Writer, table: Buffer, start: u32, k: Part) -> Number {
        let size = self.plan.size as u32;
        let at = w.b.mul(k, 2 * size);
        let dwords = (size / 4) as u8;
        let both = w.b.load(table, 2 * dwords, at, 0u32, start);
        Number::of(both.slice(0, dwords), Some(both.slice(dwords, dwords)))
    }

    /// The workitem's butterflies of a pass: those beyond the last one are the last one again, or of lines of their own.
    fn owns(&self, w: &mut Writer, radix: usize, inside: bool) -> Vec<Own> {
        let (n, lines, team) = (self.plan.length, self.plan.lines, self.plan.team);
        let (each, all) = (n / radix, lines * n / radix);
        let item = w.b.workitem_id();
        let of = |w: &mut Writer, round: usize| {
            let mut at = if round == 0 { item } else { w.b.add(item, (round * team) as u32) };
            if inside && (round + 1) * team > all {
                at = w.b.generic(Gen::Min.of(Type::U32), &[at.into(), ((all - 1) as u32).into()]);
            }
            let below = ((round + 1) * team) as u64;
            if lines == 1 && (inside || below <= all as u64) {
                return Own { line: None, number: at };
            }
            let (mut line, mut number) = w.b.divmod_below(at, each as u32, below);
            if self.plan.across {
                let (number_across, line_across) = w.b.divmod_below(at, lines as u32, below);
                if inside || below <= all as u64 {
                    return Own { line: Some(line_across), number: number_across };
                }
                let is_own = w.b.lt_u32(at, all as u32);
                line = w.b.select(is_own, line_across, line);
                number = w.b.select(is_own, number_across, number);
            }
            Own { line: Some(line), number }
        };
        (0..all.div_ceil(team)).map(|round| of(w, round)).collect()
    }

    /// Coordinates of a line in the first two dimensions and the fourth, and a mask of lines that there are, where others can be asked for.
    fn line(&self, w: &mut Writer, at: Own) -> ([Option<Part>; 3], Option<Part>) {
        let out = &self.cx.step.output.view.dims;
        let line = match at.line {
            Some(line) => w.b.add(line, self.first),
            None => w.b.to_vector(self.first),
        };
        let whole = self.plan.count.is_multiple_of(self.plan.lines);
        let inside = (!whole).then(|| w.b.lt_u32(line, self.plan.count as u32));
        let places = address::coordinates_of_item(&mut w.b, line, &[out[0], out[1], out[3]]);
        ([places[0], places[1], places[2]], inside)
    }

    /// The elements of a butterfly of the first pass, from memory.
    fn load(&self, w: &mut Writer, radix: usize, at: Own) -> Res<Vec<Number>> {
        let (cx, n) = (self.cx, self.kind.n);
        let view = &cx.step.inputs[0].view;
        let (given, apart, t) = (view.dims[2], self.plan.length / radix, cx.dtype(Arg::Input(0)));
        let ([a, b, q], there) = self.line(w, at);
        let buf = w.buffer(cx, Arg::Input(0))?;
        let window = if self.kind.window { Some(w.buffer(cx, Arg::Input(1))?) } else { None };
        let mut out = Vec::new();
        for j in 0..radix {
            let (least, most) = (j * apart, (j + 1) * apart - 1);
            if least >= n || !self.kind.hermitian && least >= given {
                out.push(Number::ZERO);
                continue;
            }
            let place = w.b.add(at.number, least as u32);
            let (mut from, mut beyond, mut mask) = (place, None, there);
            let mut maybe_missing = most >= given;
            if self.kind.hermitian {
                if most >= n {
                    let inside = w.b.lt_u32(place, n as u32);
                    mask = w.b.both(mask, Some(inside));
                }
                let all = w.b.scalar(n as u32);
                let other = w.b.sub(all, place);
                let turned = w.b.lt_u32(other, place);
                from = w.b.select(turned, other, place);
                beyond = Some(turned);
                maybe_missing = given <= n / 2;
            }
            if maybe_missing {
                let inside = w.b.lt_u32(from, given as u32);
                mask = w.b.both(mask, Some(inside));
            }
            let mut offset = address::offset(&mut w.b, view, t.size(), &[a, b, Some(from), q, None]);
            offset = offset.within(&mut w.b, mask);
            let parts = values::load_some(&mut w.b, t, buf, offset, view.dims[4] as u32);
            let parts: Vec<Part> = parts.into_iter().map(|x| self.computed(w, t, x)).collect();
            let weight = match window {
                Some(buf) => {
                    let view = &cx.step.inputs[1].view;
                    let mut offset = address::offset(&mut w.b, view, t.size(), &[Some(from)]);
                    offset = offset.within(&mut w.b, mask);
                    let x = values::load(&mut w.b, t, buf, offset);
                    Some(self.computed(w, t, x))
                }
                None => None,
            };
            let weighted = |w: &mut Writer, x: Part| weight.map_or(x, |weight| self.float.mul(&mut w.b, weight, x));
            let re = weighted(w, parts[0]);
            let im = parts.get(1).map(|im| {
                let im = weighted(w, *im);
                match beyond {
                    Some(beyond) => {
                        let minus = self.float.neg(&mut w.b, im);
                        self.float.select(&mut w.b, beyond, minus, im)
                    }
                    None => im,
                }
            });
            out.push(Number::of(re, im));
        }
        Ok(out)
    }

    /// An element in the type that is computed in.
    fn computed(&self, w: &mut Writer, t: DType, x: Value) -> Part {
        let x = x.whole(&mut w.b);
        let from = values::computed(t);
        if from == self.float.0 { x } else { w.b.convert(from, self.float.0, x) }
    }

    /// Where the first element of a butterfly is in LDS, and the others behind it, by the number of the element.
    fn places(&self, w: &mut Writer, at: Own, first: Part, steps: &Steps) -> Vec<(Part, u32)> {
        let (size, pitch) = (self.plan.size as u32, (self.plan.pitch * self.plan.size) as u32);
        let of = |w: &mut Writer, x: Part| {
            let x = match self.plan.spread {
                true => {
                    let more = w.b.shr(x, 4u32);
                    w.b.add(x, more)
                }
                false => x,
            };
            let x = w.b.mul(x, size);
            match at.line {
                Some(line) => w.b.mad(line, pitch, x),
                None => x,
            }
        };
        match steps {
            Steps::Same(steps) => {
                let first = of(w, first);
                steps.iter().map(|step| (first, *step as u32 * size)).collect()
            }
            Steps::Each(apart, radix) => (0..*radix)
                .map(|j| {
                    let x = w.b.add(first, (j * apart) as u32);
                    (of(w, x), 0)
                })
                .collect(),
        }
    }

    /// Hands the results of a pass to the next one by way of LDS: `done` elements of each transform before the pass, its radix and the next one's.
    fn exchange(
        &mut self,
        w: &mut Writer,
        (done, radix, next): (usize, usize, usize),
        results: &[Vec<Number>],
    ) -> Vec<Vec<Number>> {
        let (each, after) = (self.plan.length / radix, self.plan.length / next);
        let written = |t: usize, q: usize| (t - t % done) * radix + t % done + q * done;
        let to_steps = Steps::of(&self.plan, each, radix, done, written);
        let from_steps = Steps::of(&self.plan, after, next, after, |t, j| t + j * after);
        let to: Vec<Vec<(Part, u32)>> = self
            .owns(w, radix, false)
            .into_iter()
            .map(|at| {
                let first = match done {
                    1 => w.b.mul(at.number, radix as u32),
                    _ => {
                        let (i, k) = w.b.divmod(at.number, done as u32);
                        w.b.mad(i, (done * radix) as u32, k)
                    }
                };
                self.places(w, at, first, &to_steps)
            })
            .collect();
        let from: Vec<Vec<(Part, u32)>> =
            self.owns(w, next, true).into_iter().map(|at| self.places(w, at, at.number, &from_steps)).collect();
        let dwords = (self.plan.size / 4) as u8;
        let plane = (self.plan.kept() * self.plan.pitch * self.plan.size) as u32;
        let mut read: Vec<Vec<[Option<Part>; 2]>> = from.iter().map(|at| vec![[None; 2]; at.len()]).collect();
        for parts in [0, 1].chunks(self.plan.planes) {
            if std::mem::replace(&mut self.used, true) {
                w.b.barrier();
            }
            for &part in parts {
                let base = self.base + (part % self.plan.planes) as u32 * plane;
                for (at, number) in to.iter().flatten().zip(results.iter().flatten()) {
                    let x = number.part(&mut w.b, self.float, part);
                    w.b.lds_write(at.0, x, base + at.1);
                }
            }
            w.b.barrier();
            for &part in parts {
                let base = self.base + (part % self.plan.planes) as u32 * plane;
                for (at, number) in from.iter().flatten().zip(read.iter_mut().flatten()) {
                    number[part] = Some(w.b.lds_read(dwords, at.0, base + at.1));
                }
            }
        }
        read.into_iter().map(|some| some.into_iter().map(Number::from).collect()).collect()
    }

    /// Stores the results of a butterfly of the last pass, which lie `apart`.
    fn store(&self, w: &mut Writer, apart: usize, at: Own, results: &[Number]) -> Res<()> {
        let cx = self.cx;
        let view: &View = &cx.step.output.view;
        let (bins, parts) = (view.dims[2], view.dims[4]);
        let ([a, b, q], mut there) = self.line(w, at);
        // Other lines than the workgroup's are nobody's.
        let radix = results.len();
        let all = self.plan.lines * self.plan.length / radix;
        if !all.is_multiple_of(self.plan.team)
            && let Some(line) = at.line
        {
            let own = w.b.lt_u32(line, self.plan.lines as u32);
            there = w.b.both(there, Some(own));
        }
        let alone = epilogue::operands(cx).is_empty();
        for (i, x) in results.iter().enumerate() {
            let (least, most) = (i * apart, (i + 1) * apart - 1);
            if least >= bins {
                continue;
            }
            let k = w.b.add(at.number, least as u32);
            let mut mask = there;
            if most >= bins {
                let inside = w.b.lt_u32(k, bins as u32);
                mask = w.b.both(mask, Some(inside));
            }
            let offset = |w: &mut Writer, arg: Arg, part: usize| {
                let part = (parts > 1 && part > 0).then(|| w.b.to_vector(part as u32));
                let mut at = address::offset(&mut w.b, cx.view(arg), cx.dtype(arg).size(), &[a, b, Some(k), q, part]);
                at = at.within(&mut w.b, mask);
                Ok(at)
            };
            let of = |w: &mut Writer, p: usize| Value::of(self.kind.dtype, x.part(&mut w.b, self.float, p));
            if alone && view.strides[4] == 1 {
                let mut values = Vec::new();
                for p in 0..parts {
                    let x = of(w, p);
                    values.push(expr::eval(&mut w.b, &cx.step.expr, &|_| x, Some(x))?);
                }
                let at = offset(w, Arg::Output, 0)?;
                let buf = w.buffer(cx, Arg::Output)?;
                values::store_some(&mut w.b, cx.dtype(Arg::Output), buf, at, &values);
            } else {
                for p in 0..parts {
                    let x = of(w, p);
                    epilogue::finish(w, cx, x, |w, arg| offset(w, arg, p))?;
                }
            }
        }
        Ok(())
    }
}

/// How the elements of butterflies of a pass lie in LDS.
enum Steps {
    /// So many places behind the first one.
    Same(Vec<usize>),
    /// So many elements apart, of so many.
    Each(usize, usize),
}

impl Steps {
    fn of(plan: &Plan, butterflies: usize, radix: usize, apart: usize, x: impl Fn(usize, usize) -> usize) -> Steps {
        plan.steps(butterflies, radix, x).map_or(Steps::Each(apart, radix), Steps::Same)
    }
}
