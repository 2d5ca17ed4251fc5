//! Softmax and normalisations of lines that are too long for the registers of their team: in pieces that fit, in two kernels.
//!
//! The first leaves what each piece gives in the step's workspace: of a normalisation the piece's mean and its sum of squares around
//! that, of softmax its maximum and the sum of exponentials relative to that. In the second each team puts together what all pieces of
//! its line have left, always in the same order, while the elements of its own piece come, and writes results. So memory is read
//! twice, whatever caches keep, and lines are as many workgroups' work as there are pieces.
//!
//! A line's mean is the mean of the means of its pieces, each with the weight of its elements `n`, and its sum of squares is the sum of theirs and of
//! `n (mean of the piece - mean)^2` (Chan, Golub and LeVeque, 1979). The last piece of a line may be shorter.
//!
//! Columns are cut across: pieces of the same rows of all columns are neighbours, as their elements are.

use super::choice::Machine;
use super::error::Res;
use super::float::Float;
use super::lines::Shape;
use super::softmax::{self, Walk};
use super::values;
use super::{Arg, Cx, Kernel, Writer, address, epilogue, lanes};
use crate::graph::fused::{Normalize, Step};
use crate::graph::view::View;
use crate::mir::{Gen, Part, Type};

/// Clocks of a workgroup for each element of a line that it walks again and again, of normalisations and of softmax: the least that
/// the cycle model has of single lines of 16 million on gfx90a, gfx942, gfx1100 and gfx1201 (0.5 to 0.7, and 0.9 to 1.2).
const NORMALIZED: f64 = 0.5;
const SOFTMAX: f64 = 0.9;

/// The same by what it waits for: passes, bytes that it loads before it waits in each, and clocks of a round beside the wait; instructions for an element of
/// normalisations, and as many as an exponential takes the time of; lanes of a compute unit.
const PASSES: f64 = 3.0;
const IN_FLIGHT: usize = 16 << 10;
const ROUND: f64 = 100.0;
const INSTRUCTIONS: f64 = 8.0;
const EXPONENTIAL: f64 = 8.0;
const LANES: f64 = 64.0;

/// Workgroups that a compute unit walks lines with as fast as one.
const ABREAST: usize = 4;

/// Elements of a piece: as many as are light for a workgroup, and at least, where there are enough pieces.
const PIECE: usize = 8192;
const LEAST: usize = 2048;

/// Elements of a line in one workgroup's registers.
const HELD: usize = 1 << 15;

/// Pieces of a line at most.
const MOST: usize = 4096;

/// Dwords that a piece leaves.
const LEFT: u32 = 2;

/// Of columns: clocks of a workgroup's round beside its wait; clocks of a compute unit for an element, of softmax and of normalisations: for an
/// exponential, as the cycle model has a single workgroup of 1024 on gfx942, and counted;
/// most pieces that a workitem puts together, and of a column.
const COLUMN_ROUND: f64 = 100.0;
const SOFTMAX_COLUMNS: f64 = 0.35;
const NORMALIZED_COLUMNS: f64 = 0.15;
const JOINED: usize = 16;
const MOST_OF_COLUMN: usize = 1 << 10;

/// What is found of lines.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    Softmax,
    Norm,
}

impl Found {
    /// Clocks of a workgroup that walks dense lines for an element.
    fn of_dense(self) -> f64 {
        if self == Found::Softmax { SOFTMAX } else { NORMALIZED }
    }

    /// Instructions for an element in all passes beside the expression's.
    fn instructions(self) -> f64 {
        INSTRUCTIONS + if self == Found::Softmax { EXPONENTIAL } else { 0.0 }
    }

    /// Clocks of a compute unit for an element of columns.
    fn of_columns(self) -> f64 {
        if self == Found::Softmax { SOFTMAX_COLUMNS } else { NORMALIZED_COLUMNS }
    }
}

/// How lines are cut.
pub(super) struct Pieces {
    /// The step, each dimension of a piece behind `outer` others.
    step: Step,
    outer: usize,
    /// Pieces of a line, how many pieces from one of them to the next, and of all lines.
    of_line: usize,
    apart: usize,
    all: usize,
    /// Elements of a piece, and of a line.
    length: usize,
    whole: usize,
}

/// Pieces of so many elements of dimension `d`, whose numbers become the dimension in front of `at`.
#[derive(Clone, Copy)]
struct Cut {
    d: usize,
    part: usize,
    at: usize,
}

impl Cut {
    /// The view with that dimension. It ends behind the original one where the last piece is shorter.
    fn of(self, v: &View) -> View {
        let mut v = v.clone();
        let (parts, stride) = (v.dims[self.d].div_ceil(self.part), v.strides[self.d] * self.part as i64);
        v.dims[self.d] = self.part;
        v.dims.insert(self.at, parts);
        v.strides.insert(self.at, stride);
        v
    }
}

impl Pieces {
    /// The pieces of a step's lines, the dimensions from `outer` on; none where lines fit a workgroup's registers, are neither dense nor columns,
    /// or are not worth it.
    pub fn of(cx: &Cx, outer: usize, found: Found) -> Option<Pieces> {
        let out = &cx.step.output.view;
        let whole = out.dims[outer..].iter().try_fold(1usize, |n, d| n.checked_mul(*d))?;
        let t = cx.dtype(Arg::Input(0));
        if whole >= super::LONGEST || !t.is_float() || values::computed(t) != Type::F32 {
            return None;
        }
        let count: usize = out.dims[..outer].iter().product();
        let dense = cx.step.inputs[0].view.strides.last() == Some(&1);
        let (cut, of_line) = match dense {
            true => of_dense(cx, outer, [count, whole], found)?,
            false => of_columns(cx, outer, [count, whole], found)?,
        };
        let mut step = cx.step.clone();
        for access in step.inputs.iter_mut().chain([&mut step.output]) {
            access.view = cut.of(&access.view);
        }
        let outer = if dense { cut.d + 1 } else { outer + 1 };
        let length = step.output.view.dims[outer..].iter().product();
        let apart = if dense { 1 } else { count };
        Some(Pieces { step, outer, of_line, apart, all: count * of_line, length, whole })
    }

    /// Clocks of the step's lines, the dimensions from `outer` on, by the quicker of a workgroup for each and pieces; none where they fit a workgroup's registers, or
    /// their elements do not lie together.
    pub fn clocks(cx: &Cx, outer: usize, found: Found) -> Option<f64> {
        let dims = &cx.step.output.view.dims;
        let [count, length] = [0..outer, outer..dims.len()].map(|range| dims[range].iter().product::<usize>());
        let dense = cx.step.inputs[0].view.strides.last() == Some(&1);
        if !dense || length <= HELD {
            return None;
        }
        let [once, twice] = clocks_of_dense(cx, outer, [count, length], found)?;
        Some(once.min(twice))
    }

    fn bytes(&self) -> usize {
        self.all * LEFT as usize * 4
    }

    /// Writes both kernels: `find` gives what a piece leaves, `join` what that of several gives as the final expression needs it, and
    /// `result` an element's.
    fn lower(
        &self,
        cx: &Cx,
        find: impl Fn(&mut Writer, &mut Walk) -> Res<[Part; 2]>,
        join: impl Fn(&mut Writer, &Walk, &[[Part; 2]]) -> Res<[Part; 2]>,
        result: impl Fn(&mut Writer, Part, [Part; 2]) -> Part,
    ) -> Res<Vec<Kernel>> {
        let first = Step {
            inputs: self.step.inputs[..1].to_vec(),
            expr: crate::graph::expr::Expr::acc(cx.dtype(Arg::Input(0))),
            ..self.step.clone()
        };
        let flops = 4 * self.step.output.view.len() as u64;
        let of_first = Cx { step: &first, ..*cx };
        let (mut w, mut walk) = self.begin(&of_first)?;
        let found = find(&mut w, &mut walk)?;
        let workspace = w.workspace(self.bytes());
        let data = w.b.v(LEFT as u8);
        (0..2).for_each(|i| w.b.copy_into(data.dword(i), found[usize::from(i)]));
        let at = w.b.mul(walk.lines.line, LEFT * 4);
        let at = walk.lines.mask_result(&mut w, address::Offset { reg: Some(at), imm: 0 });
        let (v, s, imm) = at.operands(&mut w.b);
        w.b.store(workspace, data, v, s, imm);
        let grid = walk.end(&mut w, 2)?;
        let finding = Kernel { workspace: self.bytes(), ..w.finish(grid, flops) };

        let of_second = Cx { step: &self.step, ..*cx };
        let (mut w, mut walk) = self.begin(&of_second)?;
        walk.pass(&mut w, "elements", 0.0, |_, _, _, x| x)?;
        let workspace = w.workspace(self.bytes());
        let (line, beside) = match self.apart {
            1 => (w.b.divmod(walk.lines.line, self.of_line as u32).0, None),
            apart => {
                let (piece, beside) = w.b.divmod(walk.lines.line, apart as u32);
                (w.b.divmod(piece, self.of_line as u32).0, Some(beside))
            }
        };
        let (size, apart) = (LEFT * 4, LEFT * 4 * self.apart as u32);
        let mut all = w.b.mul(line, self.of_line as u32 * apart);
        if let Some(beside) = beside {
            all = w.b.mad(beside, size, all);
        }
        let mut left = Vec::new();
        let team = walk.lines.team();
        for first in (0..self.of_line as u32).step_by(team as usize) {
            let at = walk.lines.own(&mut w, all, apart, first, self.of_line as u32);
            let (v, s, imm) = at.operands(&mut w.b);
            let both = w.b.load(workspace, LEFT as u8, v, s, imm);
            left.push([both.dword(0), both.dword(1)]);
        }
        let joined = join(&mut w, &walk, &left)?;
        walk.write(&mut w, |w, x, _| result(w, x, joined))?;
        let grid = walk.end(&mut w, 2)?;
        Ok(vec![finding, Kernel { workspace: self.bytes(), ..w.finish(grid, flops) }])
    }

    /// Begins a kernel in which each line is a piece.
    fn begin<'a>(&self, cx: &'a Cx<'a>) -> Res<(Writer, Walk<'a>)> {
        let (mut w, mut walk) = Walk::begin(cx, self.outer)?;
        if self.is_even() {
            return Ok((w, walk));
        }
        let piece = match self.apart {
            1 => walk.lines.line,
            apart => w.b.divmod(walk.lines.line, apart as u32).0,
        };
        let number = w.b.divmod(piece, self.of_line as u32).1;
        walk.lines.end_early(&mut w, number, (self.of_line - 1) as u32, self.last() as u32);
        // Last pieces of columns follow those before them.
        walk.end_early(((self.of_line - 1) * self.apart) as u32, self.last() as u32);
        Ok((w, walk))
    }

    /// Elements of a line's last piece.
    fn last(&self) -> usize {
        self.whole - (self.of_line - 1) * self.length
    }

    /// All pieces of a line have as many elements.
    fn is_even(&self) -> bool {
        self.last() == self.length
    }

    /// Something of each piece that a workitem has read: a constant of all pieces, or of all but the last.
    fn of_each(&self, w: &mut Writer, walk: &Walk, first: u32, constant: impl Fn(usize) -> f64) -> Part {
        let float = Float(Type::F32);
        let own = float.held(&mut w.b, constant(self.length));
        let others = self.of_line as u32 - 1;
        if self.is_even() || first + walk.lines.team() <= others {
            return own;
        }
        let last = float.held(&mut w.b, constant(self.last()));
        if first == others {
            return last;
        }
        // Of the pieces from `first` on these are not the last one.
        match walk.lines.is_below(w, first, others) {
            Some(before) => float.select(&mut w.b, before, own, last),
            None => own,
        }
    }

    /// Which of the numbers that a workitem has read are some piece's: none where all are.
    fn inside(&self, w: &mut Writer, walk: &Walk, count: usize) -> Vec<Option<Part>> {
        (0..count as u32).map(|i| walk.lines.is_below(w, i * walk.lines.team(), self.of_line as u32)).collect()
    }

    /// Mean, or 0, and what each element's difference from it is multiplied with.
    pub fn normalize(&self, cx: &Cx, n: &Normalize) -> Res<Vec<Kernel>> {
        let &Normalize { epsilon, center, magnitudes, .. } = n;
        let float = Float(Type::F32);
        let find = |w: &mut Writer, walk: &mut Walk| {
            let mut mean = float.held(&mut w.b, 0.0);
            if center {
                let sums = walk.partial(w, 0.0);
                walk.pass(w, "mean", 0.0, |w, _, e, x| {
                    float.update(&mut w.b, Gen::Add, sums[e], x);
                    x
                })?;
                let sum = walk.combine(w, sums, Gen::Add)?;
                let mut scale = float.held(&mut w.b, 1.0 / self.length as f64);
                if let Some(early) = walk.lines.ends_early(w) {
                    let last = float.held(&mut w.b, 1.0 / self.last() as f64);
                    scale = float.select(&mut w.b, early, last, scale);
                }
                mean = float.op(&mut w.b, Gen::Mul, scale, sum);
            }
            let squares = walk.partial(w, 0.0);
            walk.pass(w, "variance", 0.0, |w, c, e, x| {
                let mut d = if center { float.op(&mut w.b, Gen::Sub, x, mean) } else { x };
                if let (Some(mask), true) = (c.inside, center) {
                    let zero = float.constant(&mut w.b, 0.0);
                    d = float.select(&mut w.b, mask, d, zero);
                }
                softmax::count(w, float, magnitudes, squares[e], d);
                d
            })?;
            Ok([mean, walk.combine(w, squares, Gen::Add)?])
        };
        let join = |w: &mut Writer, walk: &Walk, left: &[[Part; 2]]| {
            let zero = float.held(&mut w.b, 0.0);
            let inside = self.inside(w, walk, left.len());
            let firsts: Vec<u32> = (0..left.len() as u32).map(|i| i * walk.lines.team()).collect();
            let mut mean = zero;
            if center {
                let mut means = Vec::new();
                for (l, first) in left.iter().zip(&firsts) {
                    let share = self.of_each(w, walk, *first, |n| n as f64 / self.whole as f64);
                    means.push(float.op(&mut w.b, Gen::Mul, share, l[0]));
                }
                mean = total(w, walk, means, Gen::Add)?;
            }
            let mut squares = Vec::new();
            for ((l, inside), first) in left.iter().zip(inside).zip(&firsts) {
                let mut own = l[1];
                if center {
                    let d = float.op(&mut w.b, Gen::Sub, l[0], mean);
                    let length = self.of_each(w, walk, *first, |n| n as f64);
                    let apart = float.op(&mut w.b, Gen::Mul, d, length);
                    own = float.fma(&mut w.b, apart, d, own);
                }
                squares.push(match inside {
                    Some(mask) => float.select(&mut w.b, mask, own, zero),
                    None => own,
                });
            }
            let squares = total(w, walk, squares, Gen::Add)?;
            if magnitudes {
                return Ok([mean, float.reciprocal_or_zero(&mut w.b, squares)]);
            }
            let scale = float.constant(&mut w.b, 1.0 / self.whole as f64);
            Ok([mean, float.inverse_deviation(&mut w.b, squares, scale, epsilon)])
        };
        self.lower(cx, find, join, |w, x, [mean, factor]| {
            let d = if center { float.op(&mut w.b, Gen::Sub, x, mean) } else { x };
            float.op(&mut w.b, Gen::Mul, d, factor)
        })
    }

    /// The maximum, and what exponentials relative to it are multiplied with; of logarithms what is subtracted behind it.
    pub fn softmax(&self, cx: &Cx, log: bool, masked: bool) -> Res<Vec<Kernel>> {
        let float = Float(Type::F32);
        let exponential = |w: &mut Writer, x: Part, max: Part| {
            let d = float.op(&mut w.b, Gen::Sub, x, max);
            softmax::exponential(cx, float, w, d)
        };
        let find = |w: &mut Writer, walk: &mut Walk| {
            let largest = walk.partial(w, f64::NEG_INFINITY);
            walk.pass(w, "max", f64::NEG_INFINITY, |w, _, e, x| {
                float.update(&mut w.b, Gen::Max, largest[e], x);
                x
            })?;
            let max = walk.combine(w, largest, Gen::Max)?;
            // A piece of -inf: its sum is 0.
            let low = float.held(&mut w.b, f32::MIN.into());
            let max = float.op(&mut w.b, Gen::Max, low, max);
            let sums = walk.partial(w, 0.0);
            walk.pass(w, "sum", f64::NEG_INFINITY, |w, _, e, x| {
                let y = exponential(w, x, max);
                float.update(&mut w.b, Gen::Add, sums[e], y);
                y
            })?;
            Ok([max, walk.combine(w, sums, Gen::Add)?])
        };
        let join = |w: &mut Writer, walk: &Walk, left: &[[Part; 2]]| {
            let inside = self.inside(w, walk, left.len());
            let low = float.held(&mut w.b, f32::MIN.into());
            let choose = |w: &mut Writer, (l, inside): (&[Part; 2], &Option<Part>)| match inside {
                Some(mask) => float.select(&mut w.b, *mask, l[0], low),
                None => l[0],
            };
            let own: Vec<Part> = left.iter().zip(&inside).map(|both| choose(w, both)).collect();
            let max = total(w, walk, own.clone(), Gen::Max)?;
            let mut sums = Vec::new();
            for (l, own) in left.iter().zip(own) {
                let factor = exponential(w, own, max);
                sums.push(float.op(&mut w.b, Gen::Mul, l[1], factor));
            }
            let mut sum = total(w, walk, sums, Gen::Add)?;
            if masked {
                // Every other line has a sum of at least 1, or a NaN, which wins.
                let least = float.constant(&mut w.b, f32::MIN_POSITIVE.into());
                let r = float.op(&mut w.b, Gen::Max, sum, least);
                let nan = float.op(&mut w.b, Gen::CmpUnordered, sum, sum);
                sum = float.select(&mut w.b, nan, sum, r);
            }
            if log {
                return Ok([max, float.log(&mut w.b, sum)]);
            }
            let one = float.held(&mut w.b, 1.0);
            Ok([max, float.div(&mut w.b, one, sum)])
        };
        self.lower(cx, find, join, |w, x, [max, scale]| {
            if log {
                let d = float.op(&mut w.b, Gen::Sub, x, max);
                return float.op(&mut w.b, Gen::Sub, d, scale);
            }
            let e = exponential(w, x, max);
            float.op(&mut w.b, Gen::Mul, e, scale)
        })
    }
}

/// Clocks of `count` lines whose elements lie together with a workgroup for each, and of pieces in two launches.
fn clocks_of_dense(cx: &Cx, outer: usize, [count, length]: [usize; 2], found: Found) -> Option<[f64; 2]> {
    let t = cx.dtype(Arg::Input(0));
    let machine = Machine::of(cx.target);
    let moved = [t, cx.dtype(Arg::Output)].map(|t| (t.size() * count * length) as f64);
    let [read, written] = moved.map(|bytes| bytes / machine.memory);
    let computed = (found.instructions() + cx.step.expr.cost() as f64) / LANES;
    let answer = machine.answer(moved[0] + moved[1]);
    let cus = cx.target.cus() as usize;
    let shape = softmax::shape(cx, outer).ok()?;
    let behind = shape.behind(cx.target);
    let (passes, walked) =
        if let Some([share, rounds]) = behind.or(shape.needs_largest(cx.target).then_some([0.0, 0.0])) {
            // A workgroup that holds a line has a compute unit for itself: it loads all, computes and stores; what is behind that twice.
            let bytes = ((1.0 + share) * moved[0] + moved[1]) / count as f64;
            let waits = 2.0 * (1.0 + rounds) * (answer + ROUND);
            let each = waits + machine.ends + bytes / machine.l1 + computed * (1.0 + share) * length as f64;
            (1.0 + share, each * count.div_ceil(cus) as f64)
        } else {
            // One that walks waits for each pass's loads of a round.
            let round = (IN_FLIGHT / t.size()) as f64;
            let each = found.of_dense().max(PASSES * (answer + ROUND) / round + computed);
            (PASSES, each * (length * count.div_ceil(ABREAST * cus)) as f64)
        };
    // What the second-level cache gives beside the passes over the line: other operands, but for those that change along outer dimensions only.
    let walked_too = |i: &usize| cx.step.inputs[*i].view.strides.last() != Some(&0);
    let bytes = |i: usize| cx.dtype(Arg::Input(i)).size() * count * length;
    let beside: usize = epilogue::operands(cx).into_iter().filter(walked_too).map(bytes).sum();
    let beside = beside as f64 / machine.l2;
    let of_l2 = |passes: f64| (passes * moved[0] + moved[1]) / machine.l2 + beside;
    let once = walked.max(read + written).max(of_l2(passes));
    let twice = machine.launch + machine.ends + (2.0 * read + written).max(of_l2(2.0));
    Some([once, twice])
}

/// How `count` lines whose elements lie together are cut, and in how many pieces each; none where they fit a workgroup's registers, or are not worth it.
fn of_dense(cx: &Cx, outer: usize, [count, length]: [usize; 2], found: Found) -> Option<(Cut, usize)> {
    if length <= HELD {
        return None;
    }
    let [once, twice] = clocks_of_dense(cx, outer, [count, length], found)?;
    if once <= twice {
        return None;
    }
    let out = &cx.step.output.view;
    let wanted = (2 * cx.target.cus() as usize).div_ceil(count);
    let mut best: Option<(usize, usize, usize)> = None;
    let mut before = 1;
    for d in outer..out.rank() {
        let n = out.dims[d];
        for parts in (1..=n.min(MOST / before)).filter(|p| n.is_multiple_of(*p)) {
            let (all, whole) = (before * parts, n / parts);
            let wide = d + 1 < out.rank() || whole.is_multiple_of(8) || !n.is_multiple_of(8);
            let piece = length / all;
            if all < 2 || !wide || !(LEAST / 8..=HELD).contains(&piece) {
                continue;
            }
            // Light pieces, enough of them, and then as few as that takes.
            let rank = |all: usize| {
                let piece = length / all;
                let short = if piece < LEAST { wanted } else { wanted.saturating_sub(all).min(wanted / 2) };
                (piece > PIECE, short, all)
            };
            if best.is_none_or(|b| rank(all) < rank(b.2)) {
                best = Some((d, parts, all));
            }
        }
        before *= n;
        if before > MOST {
            break;
        }
    }
    if let Some((d, parts, of_line)) = best {
        return Some((Cut { d, part: out.dims[d] / parts, at: d }, of_line));
    }
    // Of a line without factors the last piece is shorter; neighbours that are loaded together are pieces' as they are lines'.
    let together = 8 >> 3u32.saturating_sub(length.trailing_zeros());
    let part = (PIECE / 8 + 1) * together;
    (outer + 1 == out.rank()).then(|| (Cut { d: outer, part, at: outer }, length.div_ceil(part)))
}

/// How `count` columns are cut, and in how many pieces each; none where their neighbours are too few, or it is not worth it.
fn of_columns(cx: &Cx, outer: usize, [count, length]: [usize; 2], found: Found) -> Option<(Cut, usize)> {
    let (out, t) = (&cx.step.output.view, cx.dtype(Arg::Input(0)));
    if outer + 1 != out.rank() {
        return None;
    }
    let accesses = [(t, &cx.step.inputs[0].view), (cx.dtype(Arg::Output), out)];
    let shape = Shape::of(&accesses, outer, count, true).ok()?;
    let machine = Machine::of(cx.target);
    let cus = cx.target.cus() as usize;
    let [read, written] = accesses.map(|(t, _)| (t.size() * count * length) as f64);
    // Clocks of loads, once or again so many times where the columns are not held, or of what is computed beside them: of each element once, or
    // once more where it is not held.
    let passes = |pieces: usize, again: f64, anew: f64| {
        let shape = Shape { count: count * pieces, length: length.div_ceil(pieces), ..shape };
        let (walked, held) = (shape.walked(cx.target)?, shape.are_held_columns(cx.target)?);
        let at_once = walked.workgroups.min(cus * walked.resident());
        let busy = walked.workgroups.min(cus) as f64;
        let asked = (walked.in_flight * at_once) as f64 / (machine.answer(read + written) + COLUMN_ROUND);
        let rate = asked.min(machine.l1 * busy);
        let [again, anew] = if held { [0.0, 0.0] } else { [again, anew] };
        let loaded = read / rate.min(machine.memory) + again * read / rate.min(machine.l2);
        let computed = (1.0 + anew) * found.of_columns() * (count * length) as f64 / busy;
        (pieces.div_ceil(walked.team as usize) <= JOINED).then_some(loaded.max(computed))
    };
    let once = passes(1, 2.0, 1.0)? + written / machine.memory;
    let twice = |pieces: usize| {
        // Of each piece the second kernel reads what all pieces of its columns have left.
        let left = (pieces * pieces * count * LEFT as usize * 4) as f64 / machine.l2;
        let both = passes(pieces, 1.0, 0.0)? + passes(pieces, 0.0, 0.0)? + written / machine.memory;
        Some(both + left + machine.launch + machine.ends)
    };
    let parts = shape.best_pieces(MOST_OF_COLUMN, once, twice)?;
    let part = length.div_ceil(parts);
    Some((Cut { d: outer, part, at: 0 }, length.div_ceil(part)))
}

/// What the numbers of all members of a team give together.
fn total(w: &mut Writer, walk: &Walk, numbers: Vec<Part>, by: Gen) -> Res<Part> {
    let merge = lanes::by(by, Type::F32);
    let own = lanes::folded(w, numbers.into_iter().map(|p| vec![p]).collect(), &merge)?;
    Ok(walk.lines.combine(w, &own, merge)?[0])
}
