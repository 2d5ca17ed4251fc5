//! Reductions: every workitem of a line's team combines its elements, then the team what its members have found.

use super::choice::Machine;
use super::error::{Reason, Res};
use super::lines::{self, Chunk, Lines, Shape, part_offset};
use super::values::{self, Value, kind};
use super::{Arg, Cx, Kernel, Writer, epilogue, expr};
use crate::graph::comes_out_even;
use crate::graph::expr as gexpr;
use crate::graph::expr::{Binary, Expr, Scalar};
use crate::graph::fused::{Reduce, ReduceOp, StepKind};
use crate::mir::{Gen, Part, Pipeline, Type};
use crate::tensor::DType;

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
        ReduceOp::Max | ReduceOp::ArgMax { .. } if t.is_float() => Scalar::Float(f64::NEG_INFINITY),
        ReduceOp::Min | ReduceOp::ArgMin { .. } if t.is_float() => Scalar::Float(f64::INFINITY),
        ReduceOp::Max | ReduceOp::ArgMax { .. } => Scalar::Int(lowest(t)),
        ReduceOp::Min | ReduceOp::ArgMin { .. } => Scalar::Int(highest(t)),
    }
}

/// A reduction's lines, and how they lie.
struct Reduction<'a> {
    cx: &'a Cx<'a>,
    prologue: &'a Expr,
    lines: &'a Lines,
    place: lines::Place,
}

pub(super) fn lower(cx: &Cx, op: ReduceOp, prologue: &Expr) -> Res<Vec<Kernel>> {
    let view = &cx.step.inputs[0].view;
    let source = cx.dtype(Arg::Input(0));
    let (count, outer) = (cx.step.output.view.len(), cx.step.output.view.rank());
    let shape = Shape::of(&[(source, view)], outer, count, false)?;
    let (mut w, mut lines) = Lines::begin(cx, shape);
    lines.abreast(cx.target, shape.length * source.size() + cx.dtype(Arg::Output).size());
    for turn in 0..lines.turns() {
        lines.turn(&mut w, turn);
        let place = lines.place(&mut w, view, source.size(), outer);
        let r = Reduction { cx, prologue, lines: &lines, place };
        let value = match op {
            ReduceOp::Sum => r.plain(&mut w, op, Binary::Add)?,
            ReduceOp::Prod => r.plain(&mut w, op, Binary::Mul)?,
            ReduceOp::Max => r.plain(&mut w, op, Binary::Max)?,
            ReduceOp::Min => r.plain(&mut w, op, Binary::Min)?,
            ReduceOp::ArgMax { last } => r.extremum(&mut w, op, true, last)?,
            ReduceOp::ArgMin { last } => r.extremum(&mut w, op, false, last)?,
        };
        r.finish(&mut w, value)?;
    }
    let grid = lines.grid();
    Ok(vec![w.finish(grid, view.len() as u64)])
}

/// Clocks of a round of a workgroup beside its wait; instructions for an element that is added or compared, and for one that is compared with its
/// place, or converted before, of so many lanes of a compute unit at once; and most pieces of a line.
const ROUND: f64 = 100.0;
const COMBINED: f64 = 3.0;
const PLACED: f64 = 6.0;
const LANES: f64 = 64.0;
const MOST_PIECES: usize = 1 << 10;
/// Share of a round's bytes that are in flight together where a workgroup walks a line, of words, and of narrower elements and single ones, which take more
/// registers than memory, or more instructions: the schedule that leaves room for most waves asks for a part of them at once.
const WORDS: f64 = 0.6;
const NARROWER: f64 = 0.3;

/// In how many pieces lines are reduced where few workgroups have them: so many as take least, where that is worth other launches.
pub(super) fn pieces(cx: &Cx) -> Option<usize> {
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
    let narrow_extreme = source.size() < 4 && matches!(op, ReduceOp::Max | ReduceOp::Min);
    // Where single elements are loaded what is done with each counts too.
    let each = match shape.dense {
        true => 0.0,
        false if extremum || narrow_extreme => 1.0 / machine.l1 + PLACED / LANES / source.size() as f64,
        false => 1.0 / machine.l1 + COMBINED / LANES / source.size() as f64,
    };
    // A round's loads are answered together; a compute unit has as many workitems as walk lines at once.
    let clocks = |pieces: usize, asked: f64| {
        let shape = Shape { count: shape.count * pieces, length: shape.length / pieces, ..shape };
        let walked = shape.walked(cx.target)?;
        let at_once = walked.workgroups.min(cx.target.cus() as usize * walked.resident());
        let in_flight = walked.in_flight as f64;
        let round = machine.answer(bytes) + ROUND + in_flight * each;
        let rate = in_flight * at_once as f64 / round;
        Some(bytes / (asked * rate).min(machine.memory))
    };
    let once = clocks(1, asked)?;
    // Of an extremum's place what lies there is gathered, and the best one's place.
    let launches = if extremum { 3.0 } else { 1.0 };
    let twice = |pieces: usize| {
        // A shorter last piece is reduced by itself.
        let launches =
            if comes_out_even(shape.length, pieces) { launches } else { launches + if extremum { 2.0 } else { 1.0 } };
        let left = (2 * pieces * shape.count * 4) as f64 / machine.l2;
        Some(clocks(pieces, sure)? + launches * (left + machine.launch + 2.0 * machine.ends))
    };
    shape.best_pieces(MOST_PIECES, once, twice)
}

impl Reduction<'_> {
    /// The elements of a chunk behind the prologue.
    fn elements(&self, w: &mut Writer, c: &Chunk) -> Res<Vec<Value>> {
        let buf = w.buffer(self.cx, Arg::Input(0))?;
        let mut raw = self.lines.load(w, self.cx.dtype(Arg::Input(0)), buf, &self.place, c);
        raw.resize(self.lines.together() as usize, raw[0]);
        raw.into_iter().map(|x| expr::eval(&mut w.b, self.prologue, &|_| x, Some(x))).collect()
    }

    /// Elements combined by one operation. Neighbours of a chunk are summed apart at first.
    fn plain(&self, w: &mut Writer, op: ReduceOp, combine: Binary) -> Res<Value> {
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
        Ok(Value::of(t, total[0]))
    }

    /// Index of the extremum: values and indices are combined together; equal values are decided by the index.
    fn extremum(&self, w: &mut Writer, op: ReduceOp, max: bool, last: bool) -> Res<Value> {
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
                let v = values::select(&mut w.b, take, Value::of(t, x), Value::of(t, *best)).whole(&mut w.b);
                let i = w.b.select(take, at, *index);
                w.b.copy_into(*best, v);
                w.b.copy_into(*index, i);
            }
            Ok(())
        })?;
        let of_neighbours = own.into_iter().zip(0..).map(|([v, i], e)| vec![v, if e > 0 { w.b.add(i, e) } else { i }]);
        let of_neighbours = of_neighbours.collect();
        let own = super::lanes::folded(w, of_neighbours, &merge)?;
        let r = self.lines.combine(w, &own, merge)?;
        let wide = w.b.v(2);
        w.b.copy_into(wide.dword(0), r[1]);
        w.b.copy_into(wide.dword(1), 0u32);
        Ok(Value::Pair(wide))
    }

    /// The step's expression and the store, by each team's first member.
    fn finish(&self, w: &mut Writer, value: Value) -> Res<()> {
        let cx = self.cx;
        epilogue::finish(w, cx, value, |w, arg| {
            let view = cx.view(arg);
            let at = part_offset(w, view, cx.dtype(arg).size(), 0..view.rank(), self.lines.line, true);
            Ok(if arg == Arg::Output { self.lines.mask_result(w, at) } else { at })
        })
    }
}
