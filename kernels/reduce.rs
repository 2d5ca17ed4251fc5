//! Reductions: every workitem of a line's team combines its elements, then the team what its members have found. Few long lines are cut in
//! [pieces](super::joint).

use super::address::part_offset;
use super::choice::Machine;
use super::error::{Reason, Res};
use super::float::Float;
use super::joint::{self, Joint};
use super::lines::{self, Chunk, Lines, Shape, Walked};
use super::staged::{Staged, Work};
use super::values::{self, Value, kind};
use super::{Arg, Cx, Kernel, Writer, epilogue, expr, pointwise};
use crate::graph::comes_out_even;
use crate::graph::expr as gexpr;
use crate::graph::expr::{Binary, Expr, Scalar, Unary};
use crate::graph::fused::{Reduce, ReduceOp, StepKind};
use crate::mir::{Gen, Opnd, Part, Pipeline, Type};
use crate::tensor::DType;
use barewave_isa::op;

/// Runs `body` with a scalar counter from 0 to `n - 1`.
pub(super) fn scalar_loop(
    w: &mut Writer,
    name: &str,
    n: u32,
    body: impl FnOnce(&mut Writer, Part) -> Res<()>,
) -> Res<()> {
    let node = w.b.begin_loop(name);
    body(w, node.counter())?;
    w.b.end_loop(node, n, 1, Pipeline::Off, false);
    Ok(())
}

/// Keeps a value in a register of its own, to be updated in a loop.
pub(super) fn held(w: &mut Writer, v: Value) -> Part {
    match v {
        Value::Pair(p) => {
            let r = w.b.v(2);
            w.b.copy_into(r, p);
            r
        }
        v => {
            let o = v.word();
            w.b.to_vector(o)
        }
    }
}

/// Evaluates a literal.
pub(super) fn literal(w: &mut Writer, t: DType, c: Scalar) -> Res<Value> {
    let mut e = Expr::new();
    e.literal(t, c);
    expr::eval(&mut w.b, &e, &|_| unreachable!("a literal has no operands"), None)
}

/// The words of a value that is no mask.
fn words(w: &mut Writer, v: Value) -> Vec<Opnd> {
    let all = v.whole(&mut w.b);
    (0..all.len).map(|d| all.dword(d).into()).collect()
}

/// `op` of two values of a type.
pub(super) fn apply(w: &mut Writer, t: DType, op: Binary, x: Part, y: Value) -> Res<Part> {
    let mut e = Expr::new();
    let (a, b) = (e.input(0, t), e.input(1, t));
    e.push(gexpr::Op::Binary(op, a, b), t);
    let x = Value::of(t, x);
    let v = expr::eval(&mut w.b, &e, &|i| if i == 0 { x } else { y }, None)?;
    Ok(v.whole(&mut w.b))
}

/// The value that changes nothing when combined.
fn neutral(op: ReduceOp, t: DType) -> Scalar {
    let lowest = |t: DType| match t {
        DType::I8 => i8::MIN as i64,
        DType::I16 => i16::MIN as i64,
        DType::I32 => i32::MIN as i64,
        DType::I64 => i64::MIN,
        DType::I4 | DType::I2 => -(1 << (t.bits() - 1)),
        _ => 0,
    };
    let highest = |t: DType| match t {
        DType::I8 => i8::MAX as i64,
        DType::I16 => i16::MAX as i64,
        DType::I32 => i32::MAX as i64,
        DType::I64 => i64::MAX,
        DType::U8 => u8::MAX as i64,
        DType::U16 => u16::MAX as i64,
        DType::U32 => u32::MAX as i64,
        DType::I4 | DType::I2 => (1 << (t.bits() - 1)) - 1,
        DType::U4 | DType::U2 => (1 << t.bits()) - 1,
        _ => -1,
    };
    match op {
        ReduceOp::Sum => Scalar::of(t, 0.0),
        ReduceOp::Prod => Scalar::of(t, 1.0),
        ReduceOp::Max | ReduceOp::LogSumExp | ReduceOp::ArgMax { .. } if t.is_float() => {
            Scalar::Float(f64::NEG_INFINITY)
        }
        ReduceOp::Min | ReduceOp::ArgMin { .. } if t.is_float() => Scalar::Float(f64::INFINITY),
        ReduceOp::Max | ReduceOp::LogSumExp | ReduceOp::ArgMax { .. } => Scalar::Int(lowest(t)),
        ReduceOp::Min | ReduceOp::ArgMin { .. } => Scalar::Int(highest(t)),
    }
}

/// A reduction's lines, and how they lie.
struct Reduction<'a> {
    cx: &'a Cx<'a>,
    prologue: &'a Expr,
    lines: &'a Lines,
    place: lines::Place,
    /// Where workgroups have pieces of lines.
    joint: Option<Joint>,
    /// The workgroup's lines, where they go through LDS.
    staged: Option<Staged>,
}

pub(super) fn lower(cx: &Cx, op: ReduceOp, prologue: &Expr) -> Res<Vec<Kernel>> {
    let view = &cx.step.inputs[0].view;
    let source = cx.dtype(Arg::Input(0));
    let (count, outer) = (cx.step.output.view.len(), cx.step.output.view.rank());
    let flops = view.len() as u64;
    if let Some(Cut::Joint(pieces)) = cut(cx) {
        let (mut w, lines, place, joint) = pieces.begin(cx, source, view, outer)?;
        let mut r = Reduction { cx, prologue, lines: &lines, place, joint: Some(joint), staged: None };
        r.reduce(&mut w, op)?;
        return Ok(r.joint.take().map(|joint| joint.end(w, &lines, flops)).into_iter().collect());
    }
    let shape = Shape::of(&[(source, view)], outer, count, false)?;
    let staged = Staged::fits_by(cx, &shape, false, &work(op));
    let (mut w, mut lines) = Lines::begin(cx, Shape { staged, ..shape });
    if !staged {
        lines.abreast(cx.target, shape.length * source.size() + cx.dtype(Arg::Output).size(), 0);
    }
    for turn in 0..lines.turns() {
        lines.turn(&mut w, turn);
        let place = lines.place(&mut w, view, source.size(), outer);
        let staged = if staged { Some(Staged::begin(cx, &mut w, &lines, false)?) } else { None };
        Reduction { cx, prologue, lines: &lines, place, joint: None, staged }.reduce(&mut w, op)?;
    }
    let grid = lines.grid();
    Ok(vec![w.finish(grid, flops)])
}

/// Bytes of a line at most whose places stand below them in a word, with a bit to spare.
const KEYED: usize = 1 << 23;

/// Clocks of a round of a workgroup beside its wait; instructions for an element that is added or compared, for one that is compared with its
/// place, or converted before, and for one of a sum of exponentials, of so many lanes of a compute unit at once; and most pieces of a line.
const ROUND: f64 = 100.0;
const COMBINED: f64 = 3.0;
const PLACED: f64 = 6.0;
const EXPONENTIAL: f64 = 20.0;
const LANES: f64 = 64.0;
const MOST_PIECES: usize = 1 << 10;
/// Share of a round's bytes that are in flight together where a workgroup walks a line, of words, and of narrower elements and single ones, which take more
/// registers than memory, or more instructions: the schedule that leaves room for most waves asks for a part of them at once.
const WORDS: f64 = 0.6;
const NARROWER: f64 = 0.3;

/// Answers that the last workgroup of a line waits for one after the other: its stores', its count's, and those of what all have left.
const ANSWERS: f64 = 3.0;

/// Elements for which a workitem looks for the largest before it changes its sum of exponentials.
const RESCALED: u32 = 8;

/// What single elements of short lines take.
fn work(op: ReduceOp) -> Work {
    match op {
        ReduceOp::Sum | ReduceOp::Prod | ReduceOp::Max | ReduceOp::Min => Work { element: 8.0, meeting: 6.0 },
        ReduceOp::ArgMax { .. } | ReduceOp::ArgMin { .. } => Work { element: 10.0, meeting: 16.0 },
        ReduceOp::LogSumExp => Work { element: 16.0, meeting: 12.0 },
    }
}

/// How lines are reduced where few workgroups have them.
enum Cut {
    /// In so many pieces in one launch.
    Joint(joint::Pieces),
    /// In so many pieces that other launches put together.
    Stages(usize),
}

/// In how many pieces lines are reduced by several launches.
pub(super) fn pieces(cx: &Cx) -> Option<usize> {
    match cut(cx) {
        Some(Cut::Stages(pieces)) => Some(pieces),
        _ => None,
    }
}

fn cut(cx: &Cx) -> Option<Cut> {
    plan(cx)?.0
}

/// What a reduction takes, about, without its launch.
pub(super) fn clocks(cx: &Cx) -> Option<f64> {
    Some(plan(cx)?.1)
}

/// How lines are cut, in so many pieces as take least where that is worth what puts them together, and the clocks of all.
fn plan(cx: &Cx) -> Option<(Option<Cut>, f64)> {
    let StepKind::Reduce(Reduce { op, .. }) = &cx.step.kind else { return None };
    let view = &cx.step.inputs[0].view;
    let source = cx.dtype(Arg::Input(0));
    let shape = Shape::of(&[(source, view)], cx.step.output.view.rank(), cx.step.output.view.len(), false).ok()?;
    let machine = Machine::of(cx.target);
    let bytes = (shape.count * shape.length * source.size()) as f64;
    let (asked, sure) = match source.size() {
        _ if !shape.dense => (1.0, 1.0),
        1..=3 => (NARROWER, NARROWER),
        _ if shape.together == 1 => (NARROWER, NARROWER),
        _ => (WORDS, NARROWER),
    };
    let extremum = matches!(op, ReduceOp::ArgMax { .. } | ReduceOp::ArgMin { .. });
    let slow_extreme = (source.size() < 4 || !shape.dense) && matches!(op, ReduceOp::Max | ReduceOp::Min);
    // Behind its wait a workgroup moves and combines what a round has loaded. Of bytes that lie together instructions hide behind others' waits more than
    // this says, by the cycle model.
    let instructions = match op {
        ReduceOp::LogSumExp => EXPONENTIAL,
        _ if extremum || slow_extreme => PLACED,
        _ => COMBINED,
    };
    // Of rows that begin anywhere in lines of memory workitems that lie together ask for parts of two more.
    let line = machine.line as usize;
    let is_odd = !shape.dense && shape.columns.is_some_and(|row| !(row * source.size()).is_multiple_of(line));
    let each = |walked: &Walked| {
        let strip = (walked.workitems / walked.team) as usize * source.size();
        let asked = if is_odd { (strip + line) as f64 / strip as f64 } else { 1.0 };
        match source.size() {
            1 if shape.dense => 0.0,
            size => asked / machine.l1 + instructions / LANES / size as f64,
        }
    };
    // What compute units take, and memory. A round's loads are answered together; a compute unit has as many workitems as walk lines at once.
    let times = |pieces: usize, asked: f64| {
        let shape = Shape { count: shape.count * pieces, length: shape.length / pieces, ..shape };
        let walked = shape.walked(cx.target)?;
        let cus = cx.target.cus() as usize;
        let workgroups = walked.workgroups.max(1);
        let at_once = workgroups.min(cus * walked.resident());
        let in_flight = walked.in_flight as f64;
        // What is not asked for at once is waited for again; workgroups of a compute unit wait together, and work one after the other.
        let work = in_flight * each(&walked) * at_once.div_ceil(cus) as f64;
        let round = (machine.answer(bytes) + ROUND) / asked + work;
        let rate = in_flight * at_once as f64 / round;
        // Others begin where workgroups end, which memory does not wait for.
        let turns = workgroups.div_ceil(at_once) - 1;
        Some([bytes / rate + turns as f64 * machine.ends, bytes / machine.memory])
    };
    let clocks = |pieces: usize, asked: f64| times(pieces, asked).map(|[busy, memory]| busy.max(memory));
    let once = clocks(1, asked)?;
    let left = |pieces: usize| (2 * pieces * shape.count * 4) as f64 / machine.l2;
    let jointly = |pieces: usize| {
        let meeting = ANSWERS * machine.device_latency + 2.0 * ROUND + machine.ends;
        Some(clocks(pieces, sure)? + left(pieces) + meeting)
    };
    if shape.dense && view.rank() == cx.step.output.view.rank() + 1 {
        let most = joint::MOST.min(shape.length / joint::LEAST);
        let found = shape.best_pieces(most, once, jointly);
        let pieces = found.map(|pieces| joint::Pieces::of(shape.count, shape.length, pieces));
        return Some((pieces.map(Cut::Joint), found.and_then(jointly).unwrap_or(once)));
    }
    let columns = view.rank() == cx.step.output.view.rank() + 1 && shape.columns.is_some();
    let together = |pieces: usize| joint::Pieces::of_columns(cx.target, &shape, pieces).filter(|_| columns);
    // Of an extremum's place what lies there is gathered, and the best one's place.
    let launches = if extremum { 3.0 } else { 1.0 };
    let twice = |pieces: usize| {
        // A shorter last piece is reduced by itself.
        let launches =
            if comes_out_even(shape.length, pieces) { launches } else { launches + if extremum { 2.0 } else { 1.0 } };
        Some(clocks(pieces, sure)? + launches * (left(pieces) + machine.launch + 2.0 * machine.ends))
    };
    let found = shape.best_pieces(MOST_PIECES, once, twice);
    let jointly = |pieces: usize| together(pieces).and_then(|_| jointly(pieces));
    // More pieces are quicker even where memory is slower than compute units: these do not wait for it all the time.
    let met = |pieces: usize| {
        let [busy, memory] = times(pieces, sure)?;
        Some((busy.powi(3) + memory.powi(3)).cbrt())
    };
    let more = |pieces: usize| Some(met(pieces)? + jointly(pieces)? - clocks(pieces, sure)?);
    let joint = shape.best_pieces(joint::MOST, met(1)?, more);
    let clocks = found.and_then(twice).unwrap_or(once);
    match joint.and_then(|pieces| Some((Cut::Joint(together(pieces)?), jointly(pieces)?))) {
        Some((cut, least)) if least < clocks => Some((Some(cut), least)),
        _ => Some((found.map(Cut::Stages), clocks)),
    }
}

impl Reduction<'_> {
    fn reduce(&mut self, w: &mut Writer, op: ReduceOp) -> Res<()> {
        let value = match op {
            ReduceOp::Sum => self.plain(w, op, Binary::Add)?,
            ReduceOp::Prod => self.plain(w, op, Binary::Mul)?,
            ReduceOp::Max => self.plain(w, op, Binary::Max)?,
            ReduceOp::Min => self.plain(w, op, Binary::Min)?,
            ReduceOp::LogSumExp => self.log_sum_exp(w)?,
            ReduceOp::ArgMax { last } => self.extremum(w, op, true, last)?,
            ReduceOp::ArgMin { last } => self.extremum(w, op, false, last)?,
        };
        self.finish(w, value)
    }

    /// What all of a line's workitems have found together; `none` changes nothing when it is merged.
    fn meet(
        &mut self,
        w: &mut Writer,
        own: Vec<Part>,
        none: &[Opnd],
        merge: impl Fn(&mut Writer, &[Part], &[Part]) -> Res<Vec<Part>>,
    ) -> Res<Vec<Part>> {
        match &mut self.joint {
            Some(joint) => joint.meet(w, self.lines, own, none, merge),
            None => Ok(own),
        }
    }

    /// The elements of a chunk behind the prologue.
    fn elements(&self, w: &mut Writer, c: &Chunk) -> Res<Vec<Value>> {
        let (buf, t) = (w.buffer(self.cx, Arg::Input(0))?, self.cx.dtype(Arg::Input(0)));
        let mut raw = match &self.staged {
            Some(staged) => vec![staged.load(w, self.lines, t, c)],
            None => self.lines.load(w, t, buf, &self.place, c),
        };
        raw.resize(self.lines.together() as usize, raw[0]);
        raw.into_iter().map(|x| expr::eval(&mut w.b, self.prologue, &|_| x, Some(x))).collect()
    }

    /// Elements combined by one operation. Neighbours of a chunk are summed apart at first.
    fn plain(&mut self, w: &mut Writer, op: ReduceOp, combine: Binary) -> Res<Value> {
        let t = self.prologue.dtype();
        let start = literal(w, t, neutral(op, t))?;
        if matches!(start, Value::Mask(_)) {
            return Err(Reason::Reduction(t));
        }
        let sums: Vec<Part> = (0..self.lines.together()).map(|_| held(w, start)).collect();
        self.lines.each(w, "reduce", |w, c| {
            for (x, sum) in self.elements(w, c)?.into_iter().zip(&sums) {
                let mut x = x;
                if let Some(mask) = c.inside {
                    let none = literal(w, t, neutral(op, t))?;
                    x = values::select(&mut w.b, mask, x, none);
                }
                let r = apply(w, t, combine, *sum, x)?;
                w.b.copy_into(*sum, r);
            }
            Ok(())
        })?;
        let merge = |w: &mut Writer, x: &[Part], y: &[Part]| Ok(vec![apply(w, t, combine, x[0], Value::of(t, y[0]))?]);
        let own = super::lanes::folded(w, sums.iter().map(|s| vec![*s]).collect(), &merge)?;
        let total = self.lines.combine(w, &own, merge)?;
        let none = words(w, start);
        let total = self.meet(w, total, &none, merge)?;
        Ok(Value::of(t, total[0]))
    }

    /// The logarithm of the sum of exponentials: workitems keep the largest element `m` and the sum of `e^(x - m)`, which changes with `m` once for several
    /// elements. An infinite `m` is the result, and nothing is taken from the elements then, of which it would make NaN.
    fn log_sum_exp(&mut self, w: &mut Writer) -> Res<Value> {
        let t = self.prologue.dtype();
        if !t.is_float() {
            return Err(Reason::NotFloat(t));
        }
        let float = Float(values::computed(t));
        // Of 16 bits the error of a product that is not rounded with its difference is no more than what rounding the largest element would be.
        let short = self.cx.dtype(Arg::Input(0)).is_half() && t == DType::F32;
        // e^(x - m), and what is taken from elements.
        let (mut power, mut shift) = (Expr::new(), Expr::new());
        for (e, is_power) in [(&mut power, true), (&mut shift, false)] {
            let m = e.input(0, t);
            let (infinite, zero) = (e.unary(Unary::IsInf, m), e.constant(t, 0.0));
            let m = e.select(infinite, zero, m);
            if is_power {
                let x = e.input(1, t);
                let d = e.binary(Binary::Sub, x, m);
                e.unary(Unary::Exp, d);
            }
        }
        let eval = |w: &mut Writer, e: &Expr, m: Part, x: Part| -> Res<Part> {
            let of = |i: u32| Value::of(t, if i == 0 { m } else { x });
            Ok(expr::eval(&mut w.b, e, &of, None)?.whole(&mut w.b))
        };
        // What powers relative to `m` know of it.
        let relative = |w: &mut Writer, m: Part| -> Res<Part> {
            if !short {
                return Ok(m);
            }
            let m = eval(w, &shift, m, m)?;
            Ok(float.scaled(&mut w.b, m, -std::f64::consts::LOG2_E))
        };
        let power = |w: &mut Writer, relative: Part, x: Part| -> Res<Part> {
            if !short {
                return eval(w, &power, relative, x);
            }
            let scale = float.constant(&mut w.b, std::f64::consts::LOG2_E);
            let y = float.fma(&mut w.b, x, scale, relative);
            Ok(float.one(&mut w.b, Gen::Exp2, y))
        };
        let merge = |w: &mut Writer, x: &[Part], y: &[Part]| -> Res<Vec<Part>> {
            let m = float.op(&mut w.b, Gen::Max, x[0], y[0]);
            let to = relative(w, m)?;
            let [a, b] = [power(w, to, x[0])?, power(w, to, y[0])?];
            let own = float.mul(&mut w.b, a, x[1]);
            let other = float.mul(&mut w.b, b, y[1]);
            Ok(vec![m, float.add(&mut w.b, own, other)])
        };
        let lowest = literal(w, t, neutral(ReduceOp::LogSumExp, t))?;
        let zero = literal(w, t, neutral(ReduceOp::Sum, t))?;
        let own = [held(w, lowest), held(w, zero)];
        let chunks = (RESCALED / self.lines.together()).max(1) as usize;
        self.lines.some(w, "reduce", chunks, |w, chunks| {
            // All are asked for before any is converted.
            let (mut loaded, mut later) = (Vec::new(), Vec::new());
            for c in chunks {
                let from = w.b.here();
                loaded.push((self.elements(w, c)?, c.inside));
                pointwise::postpone(w, from, &mut later);
            }
            w.b.append(later);
            let mut all = Vec::new();
            for (mut x, inside) in
                loaded.into_iter().flat_map(|(all, inside)| all.into_iter().map(move |x| (x, inside)))
            {
                if let Some(inside) = inside {
                    let none = literal(w, t, neutral(ReduceOp::LogSumExp, t))?;
                    x = values::select(&mut w.b, inside, x, none);
                }
                all.push(x.whole(&mut w.b));
            }
            let m = all.iter().fold(own[0], |m, x| float.op(&mut w.b, Gen::Max, m, *x));
            let to = relative(w, m)?;
            let before = power(w, to, own[0])?;
            let before = float.mul(&mut w.b, before, own[1]);
            let mut terms = vec![vec![before]];
            for x in all {
                terms.push(vec![power(w, to, x)?]);
            }
            let sum = super::lanes::folded(w, terms, &|w: &mut Writer, x: &[Part], y: &[Part]| {
                Ok(vec![float.add(&mut w.b, x[0], y[0])])
            })?[0];
            w.b.copy_into(own[0], m);
            w.b.copy_into(own[1], sum);
            Ok(())
        })?;
        // The team first finds the largest: what each then adds needs no power for every two that meet.
        let m = self.lines.combine(w, &own[..1], super::lanes::by(Gen::Max, float.0))?[0];
        let to = relative(w, m)?;
        let power_of_own = power(w, to, own[0])?;
        let sum = float.mul(&mut w.b, power_of_own, own[1]);
        let sum = self.lines.combine(w, &[sum], super::lanes::by(Gen::Add, float.0))?[0];
        let found = vec![m, sum];
        let none = [words(w, lowest), words(w, zero)].concat();
        let found = self.meet(w, found, &none, merge)?;
        let mut result = Expr::new();
        let (m, sum) = (result.input(0, t), result.input(1, t));
        let log = result.unary(Unary::Log, sum);
        result.binary(Binary::Add, log, m);
        let m = eval(w, &shift, found[0], found[0])?;
        Ok(Value::of(t, eval(w, &result, m, found[1])?))
    }

    /// The extremum of a line of bytes, and its index: a key has the byte above the index, counted from the end where the first of equal bytes
    /// wins a maximum or the last a minimum. So one comparison decides both, and byte and index come together in one instruction.
    fn byte_extremum(&self, w: &mut Writer, max: bool, last: bool) -> Res<Vec<Part>> {
        let signed = self.prologue.dtype() == DType::I8;
        let ty = if signed { Type::I32 } else { Type::U32 };
        let (best, from_end) = (if max { Gen::Max } else { Gen::Min }, max != last);
        let buf = w.buffer(self.cx, Arg::Input(0))?;
        // Nothing is less than these, whose indices are behind all others, or no better than the first that there is; the neighbour's number goes in without a carry.
        let none = match (max, signed, from_end) {
            (true, true, true) => 0x8000_0007u32,
            (true, true, false) => 0x8000_0000,
            (true, false, true) => 7,
            (true, false, false) => 0,
            (false, true, true) => 0x7fff_ffff,
            (false, true, false) => 0x7fff_fff8,
            (false, false, true) => u32::MAX,
            (false, false, false) => 0xffff_fff8,
        };
        let keys: Vec<Part> = (0..self.lines.together()).map(|_| w.b.to_vector(none)).collect();
        self.lines.each(w, "reduce", |w, c| {
            let at = self.lines.index(w, c, 0);
            let low = if from_end { w.b.op(Gen::Not.of(Type::B32), &[at.into()]) } else { at };
            let words = match &self.staged {
                Some(staged) => staged.load_raw(w, self.lines, self.prologue.dtype(), c),
                None => self.lines.load_words(w, buf, &self.place, c),
            };
            for (key, e) in keys.iter().zip(0..) {
                let bytes = (4 + e % 4) << 24 | 0x02_0100;
                let mut x = w.b.op(op::V_PERM_B32, &[words.dword((e / 4) as u8).into(), low.into(), bytes.into()]);
                if let Some(mask) = c.inside {
                    x = w.b.select(mask, x, none);
                }
                let better = w.b.op(best.of(ty), &[x.into(), (*key).into()]);
                w.b.copy_into(*key, better);
            }
            Ok(())
        })?;
        let merge = super::lanes::by(best, ty);
        let whole = keys.into_iter().zip(0u32..).map(|(key, e)| {
            vec![match (e, from_end) {
                (0, _) => key,
                (e, true) => w.b.sub(key, e),
                (e, false) => w.b.add(key, e),
            }]
        });
        let whole = whole.collect();
        let own = super::lanes::folded(w, whole, &merge)?;
        let key = self.lines.combine(w, &own, merge)?[0];
        let shift = if signed { op::V_ASHRREV_I32 } else { op::V_LSHRREV_B32 };
        let value = w.b.op(shift, &[24u32.into(), key.into()]);
        let index = if from_end { w.b.op(Gen::Not.of(Type::B32), &[key.into()]) } else { key };
        Ok(vec![value, w.b.and(index, 0xff_ffffu32)])
    }

    /// Lines are bytes, whose [keys](Self::byte_extremum) have room for their places.
    fn has_keys(&self) -> bool {
        let copied = matches!(self.prologue.nodes(), [gexpr::Node { op: gexpr::Op::Acc | gexpr::Op::Input(0), .. }]);
        copied && matches!(self.prologue.dtype(), DType::I8 | DType::U8) && self.lines.are_bytes(KEYED)
    }

    /// Index of the extremum: values and indices are combined together; equal values are decided by the index.
    fn extremum(&mut self, w: &mut Writer, op: ReduceOp, max: bool, last: bool) -> Res<Value> {
        let t = self.prologue.dtype();
        if kind(t) == values::Kind::Bool {
            return Err(Reason::Operation { op: "the index of the extremum".into(), dtype: t });
        }
        let ty = values::computed(t);
        let (gt, lt) = (Gen::CmpGt.of(ty), Gen::CmpLt.of(ty));
        let start = literal(w, t, neutral(op, t))?;
        let merge = |w: &mut Writer, x: &[Part], y: &[Part]| -> Res<Vec<Part>> {
            let b = &mut w.b;
            let better = b.op(if max { gt } else { lt }, &[y[0].into(), x[0].into()]);
            let worse = b.op(if max { lt } else { gt }, &[y[0].into(), x[0].into()]);
            // Where neither is better the index decides.
            let order = if last { Gen::CmpGt } else { Gen::CmpLt };
            let by_index = b.op(order.of(Type::U32), &[y[1].into(), x[1].into()]);
            let (i, v) = (b.select(by_index, y[1], x[1]), x[0]);
            let i = b.select(better, y[1], i);
            let i = b.select(worse, x[1], i);
            let v = values::select(b, better, Value::of(t, y[0]), Value::of(t, v)).whole(b);
            Ok(vec![v, i])
        };
        let mut r = match self.has_keys() {
            true => self.byte_extremum(w, max, last)?,
            false => self.compared(w, (op, max, last), merge)?,
        };
        if let Some(joint) = &self.joint {
            // Places are the line's.
            let before = w.b.mul(joint.piece, joint.each());
            r[1] = w.b.add(r[1], before);
        }
        let mut none = words(w, start);
        none.push(if last { 0 } else { u32::MAX }.into());
        let r = self.meet(w, r, &none, merge)?;
        let wide = w.b.v(2);
        w.b.copy_into(wide.dword(0), r[1]);
        w.b.copy_into(wide.dword(1), 0u32);
        Ok(Value::Pair(wide))
    }

    /// The extremum of a line and its index.
    fn compared(
        &self,
        w: &mut Writer,
        (op, max, last): (ReduceOp, bool, bool),
        merge: impl Fn(&mut Writer, &[Part], &[Part]) -> Res<Vec<Part>>,
    ) -> Res<Vec<Part>> {
        let t = self.prologue.dtype();
        let ty = values::computed(t);
        let (gt, lt) = (Gen::CmpGt.of(ty), Gen::CmpLt.of(ty));
        let start = literal(w, t, neutral(op, t))?;
        // A workitem comes to its elements in their order: of equal ones the first stays, or the last. Neighbours of chunks are compared apart at
        // first, each with the index of its chunk; nothing is less than what they begin with, which the first element replaces or equals.
        let takes = match (max, last) {
            (true, false) => gt,
            (false, false) => lt,
            (true, true) => Gen::CmpGe.of(ty),
            (false, true) => Gen::CmpLe.of(ty),
        };
        let first = if last { w.b.scalar(0) } else { self.lines.first(w) };
        let mut own: Vec<[Part; 2]> = Vec::new();
        for _ in 0..self.lines.together() {
            own.push([held(w, start), w.b.to_vector(first)]);
        }
        self.lines.each(w, "reduce", |w, c| {
            let at = self.lines.index(w, c, 0);
            for (x, [best, index]) in self.elements(w, c)?.into_iter().zip(&own) {
                let x = x.whole(&mut w.b);
                let mut take = w.b.op(takes, &[x.into(), (*best).into()]);
                if let Some(mask) = c.inside {
                    take = w.b.mask_and(take, mask);
                }
                w.b.select_into(*best, take, x);
                w.b.select_into(*index, take, at);
            }
            Ok(())
        })?;
        let of_neighbours = own.into_iter().zip(0..).map(|([v, i], e)| vec![v, if e > 0 { w.b.add(i, e) } else { i }]);
        let of_neighbours = of_neighbours.collect();
        let own = super::lanes::folded(w, of_neighbours, &merge)?;
        self.lines.combine(w, &own, merge)
    }

    /// The step's expression and the store, by each team's first member.
    fn finish(&self, w: &mut Writer, value: Value) -> Res<()> {
        let cx = self.cx;
        let line = self.joint.as_ref().map_or(self.lines.line, |joint| joint.line);
        epilogue::finish(w, cx, value, |w, arg| {
            let view = cx.view(arg);
            let at = part_offset(&mut w.b, view, cx.dtype(arg).size(), 0..view.rank(), line, true);
            Ok(if epilogue::has_ends(cx, arg) { self.lines.mask_result(w, at) } else { at })
        })
    }
}
