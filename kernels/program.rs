//! Programs: a workitem runs the program of one element, or of neighbours.
//!
//! Values are registers, variables are registers that loops write again, loops are loop nodes with a scalar counter. Lanes
//! behind the last element run the program of the last one and store nothing; waves behind it end, so that what a result may lie in the place of
//! is read by none but its own wave.
//!
//! Programs are run for neighbours of the last dimension together where all that they read is the same for these or
//! lies side by side ([`Along`]), and where these take the same rounds of every loop: what does not depend on that coordinate is computed
//! once, and memory is read and written as widely as elementwise kernels do. Else they are run for neighbours of another dimension, as channels
//! of a place are that is computed (samples of regions), where most of what they compute is the same for these and all that
//! they read is the same or lies a known way apart.

mod planes;

use super::address::{self, Offset};
use super::error::{Reason, Res};
use super::values::{self, Kind, Value, kind};
use super::{Arg, Cx, Kernel, Writer, epilogue, expr, pointwise, reduce};
use crate::graph::expr::{Binary, Node, Op, Scalar, Val};
use crate::graph::fused::Program;
use crate::graph::kinds::program::{Source, Statement};
use crate::mir::{Buffer, Gen, Part, Type};
use crate::tensor::DType;
use planes::{Held, InLds};

const WORKGROUP: u32 = 256;

/// Bytes of an operand that a lane reads side by side, at most.
const MOST_LOADED: usize = 32;

pub(super) fn lower(cx: &Cx, program: &Program) -> Res<Vec<Kernel>> {
    if let Some(held) = Held::of(cx, program) {
        return held.lower(cx, program);
    }
    let dims = cx.step.output.view.dims.clone();
    let along = neighbours(cx, program);
    let (width, dim) = (along.width, along.dim);
    let apart = width > 1 && dim + 1 < dims.len();
    let mut units = dims.clone();
    if let Some(extent) = units.get_mut(dim) {
        *extent /= width;
    }
    let count: usize = units.iter().product();
    let mut w = cx.kernel(WORKGROUP);
    let index = pointwise::linear_index(&mut w.b);
    let inside = (!count.is_multiple_of(WORKGROUP as usize))
        .then(|| w.b.op(Gen::CmpGt.of(Type::U32), &[(count as u32).into(), index.into()]));
    let wave = cx.target.info().wave_size as usize;
    let idle = !count.div_ceil(wave).is_multiple_of(WORKGROUP as usize / wave);
    let done = inside.filter(|_| idle).map(|inside| {
        let done = w.b.label();
        w.b.branch_if_none(inside, done, "some");
        done
    });
    let last = w.b.to_vector(count as u32 - 1);
    let held = w.b.op(Gen::Min.of(Type::U32), &[index.into(), last.into()]);
    let mut coords = address::coordinates(&mut w.b, held, &units);
    if let Some(Some(c)) = coords.get_mut(dim).filter(|_| width > 1) {
        *c = w.b.mul(*c, width as u32);
    }
    let mut run = Run::new(cx, program, &along, apart, &coords, &mut w)?;
    run.block(&mut w, &program.body)?;
    finish(&mut w, cx, &mut run, &along, inside)?;
    if let Some(done) = done {
        w.b.place(done, "done");
    }
    let flops = (count * width * program.values.len()) as u64;
    Ok(vec![w.finish([(count as u32).div_ceil(WORKGROUP), 1, 1], flops)])
}

/// Stores what a program has computed for neighbours, with the step's expression.
fn finish(w: &mut Writer, cx: &Cx, run: &mut Run, along: &Neighbours, inside: Option<Part>) -> Res<()> {
    let Neighbours { width, dim, .. } = *along;
    let (apart, coords) = (run.apart, run.coords.clone());
    let acc: Vec<Value> = (0..width).map(|e| run.lane(w, run.program.result, e)).collect::<Res<_>>()?;
    let (mut operands, mut known) = (vec![Vec::new(); cx.step.inputs.len()], Vec::new());
    for i in epilogue::operands(cx) {
        if !apart {
            operands[i] = pointwise::load(w, cx, i, &coords, width, &mut known)?;
            continue;
        }
        for e in 0..width as u32 {
            let mut own = coords.clone();
            own[dim] = Some(match own[dim] {
                Some(c) => w.b.add(c, e),
                None => w.b.to_vector(e),
            });
            operands[i].extend(pointwise::load(w, cx, i, &own, 1, &mut Vec::new())?);
        }
    }
    let mut results = Vec::new();
    for (e, acc) in acc.into_iter().enumerate() {
        let input = |i: u32| operands[i as usize][e.min(operands[i as usize].len() - 1)];
        results.push(expr::eval(&mut w.b, &cx.step.expr, &input, Some(acc))?);
    }
    let out = cx.dtype(Arg::Output);
    let buf = w.buffer(cx, Arg::Output)?;
    let mut at = address::offset(&mut w.b, &cx.step.output.view, out.size(), &coords);
    at = at.within(&mut w.b, inside);
    if apart {
        let step = (cx.step.output.view.strides[dim] * out.size() as i64) as u32;
        for (e, result) in results.into_iter().enumerate() {
            let at = Offset { imm: at.imm.wrapping_add(step.wrapping_mul(e as u32)), ..at };
            values::store(&mut w.b, out, buf, at, result);
        }
    } else {
        values::store_some(&mut w.b, out, buf, at, &results);
    }
    Ok(())
}

/// How a value changes from one neighbour to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Along {
    /// What is added each time, or every so many times; none where nothing is known.
    step: Option<i64>,
    every: i64,
    /// The first one is a multiple of this.
    multiple: i64,
    /// It is 0, 1, 2 ... again and again for so many neighbours, where that is not 0.
    round: i64,
}

/// What 0 is a multiple of.
const ANY: i64 = 1 << 40;

impl Along {
    const UNKNOWN: Along = Along { step: None, every: 1, multiple: 1, round: 0 };
    const SAME: Along = Along { step: Some(0), ..Along::UNKNOWN };

    /// The values of a program for so many neighbours, of variables of which some are the same for all.
    fn of(program: &Program, vars: &[bool], dim: usize, width: i64) -> Vec<Along> {
        let mut found: Vec<Along> = Vec::with_capacity(program.values.len());
        let constant = |v: Val| match program.values[v.index()].0 {
            Source::Operation(Op::Const(Scalar::Int(n))) => Some(n),
            _ => None,
        };
        for (source, _) in &program.values {
            let at = |v: Val| found[v.index()];
            let next = match *source {
                Source::Round => Along::SAME,
                Source::Get(var) if vars[var.0 as usize] => Along::SAME,
                Source::Coordinate(d) if d == dim => Along { step: Some(1), multiple: width, ..Along::UNKNOWN },
                Source::Coordinate(_) => Along::SAME,
                Source::Load { at: place, .. } if at(place).step == Some(0) => Along::SAME,
                Source::Quotient(a, _) | Source::Remainder(a, _) if at(a).step == Some(0) => Along::SAME,
                Source::Quotient(a, n) | Source::Remainder(a, n)
                    if at(a).step == Some(1) && at(a).every == 1 && at(a).multiple % width == 0 =>
                {
                    let (rest, n) = (matches!(source, Source::Remainder(..)), i64::from(n));
                    match n % width {
                        0 => {
                            Along { step: Some(rest.into()), multiple: if rest { width } else { 1 }, ..Along::UNKNOWN }
                        }
                        _ if width % n != 0 => Along::UNKNOWN,
                        _ if rest => Along { round: n, ..Along::UNKNOWN },
                        _ => Along { step: Some(1), every: n, multiple: width / n, round: 0 },
                    }
                }
                Source::Operation(op) => Along::of_operation(op, at, constant),
                _ => Along::UNKNOWN,
            };
            found.push(next);
        }
        found
    }

    fn of_operation(op: Op, at: impl Fn(Val) -> Along, constant: impl Fn(Val) -> Option<i64>) -> Along {
        match op {
            Op::Const(Scalar::Int(0)) => Along { multiple: ANY, ..Along::SAME },
            Op::Const(Scalar::Int(n)) => Along { multiple: 1 << n.trailing_zeros().min(40), ..Along::SAME },
            Op::Binary(how @ (Binary::Add | Binary::Sub), a, b) => {
                let (a, b) = (at(a), at(b));
                let sign = if how == Binary::Sub { -1 } else { 1 };
                let every = if a.step == Some(0) { b.every } else { a.every };
                let alike = |x: Along| x.step == Some(0) || x.every == every;
                let step = a.step.zip(b.step).filter(|_| alike(a) && alike(b)).map(|(x, y)| x + sign * y);
                let multiple = 1 << a.multiple.trailing_zeros().min(b.multiple.trailing_zeros());
                Along { step, every: if step.is_some() { every } else { 1 }, multiple, round: 0 }
            }
            Op::Binary(Binary::Mul, a, b) if at(a).step == Some(0) && at(b).step == Some(0) => {
                let bits = at(a).multiple.trailing_zeros() + at(b).multiple.trailing_zeros();
                Along { multiple: 1 << bits.min(40), ..Along::SAME }
            }
            _ if crate::graph::expr::operands(op).all(|v| at(v).step == Some(0)) => Along::SAME,
            Op::Binary(Binary::Mul, a, b) => match (at(a), at(b), constant(a), constant(b)) {
                (Along { step: Some(step), every, .. }, _, _, Some(n))
                | (_, Along { step: Some(step), every, .. }, Some(n), _) => {
                    Along { step: step.checked_mul(n), every, ..Along::UNKNOWN }
                }
                _ => Along::UNKNOWN,
            },
            _ => Along::UNKNOWN,
        }
    }
}

/// How a program runs for neighbours.
struct Neighbours {
    /// How many, and the dimension in which they follow each other.
    width: usize,
    dim: usize,
    values: Vec<Along>,
    /// The variables that are the same for all.
    vars: Vec<bool>,
}

impl Neighbours {
    /// So many of them.
    fn of(program: &Program, dim: usize, width: usize) -> Neighbours {
        let mut vars = vec![true; program.vars.len()];
        loop {
            let values = Along::of(program, &vars, dim, width as i64);
            let before = vars.clone();
            differing(&program.body, &values, &mut vars);
            if vars == before {
                return Neighbours { width, dim, values, vars };
            }
        }
    }

    /// What they read apart is read in loops that are unrolled, neighbour by neighbour ([`Run::one_by_one`]): elsewhere caches would lose what
    /// one of them reads again.
    fn read_one_by_one(&self, program: &Program, body: &[Statement]) -> bool {
        body.iter().all(|s| match s {
            Statement::Let(v) => {
                let loads = matches!(program.values[v.index()].0, Source::Load { .. });
                !loads || self.values[v.index()].step.is_some()
            }
            Statement::Set(..) => true,
            Statement::Repeat { count, body, .. } if *count <= UNROLLED && is_straight(body) => true,
            Statement::Repeat { body, .. } | Statement::While { body, .. } => self.read_one_by_one(program, body),
        })
    }

    /// They take the same rounds of all loops.
    fn stay_together(&self, body: &[Statement]) -> bool {
        let same = |v: &Val| self.values[v.index()].step == Some(0);
        body.iter().all(|s| match s {
            Statement::Let(_) | Statement::Set(..) => true,
            Statement::Repeat { body, .. } => self.stay_together(body),
            Statement::While { first, body, again } => same(first) && same(again) && self.stay_together(body),
        })
    }
}

/// Notes which variables get values that are not the same for all neighbours.
fn differing(body: &[Statement], values: &[Along], vars: &mut [bool]) {
    for s in body {
        match s {
            Statement::Let(_) => {}
            Statement::Set(var, v) => vars[var.0 as usize] &= values[v.index()].step == Some(0),
            Statement::Repeat { body, .. } | Statement::While { body, .. } => differing(body, values, vars),
        }
    }
}

/// Neighbours of a dimension that is not the last one that go together, at most first.
const APART: [usize; 3] = [8, 4, 2];

/// Neighbours of another dimension than the last that go together: where all that is read is the same or lies a known way apart, and no less of what is
/// computed is the same than is not.
fn apart(cx: &Cx, program: &Program) -> Option<Neighbours> {
    let out = &cx.step.output.view;
    let costs = |source: &Source| !matches!(source, Source::Operation(Op::Const(_)) | Source::Coordinate(_));
    let ways = (0..out.rank().saturating_sub(1)).rev().flat_map(|dim| APART.map(|width| (dim, width)));
    let fits = |(dim, width): (usize, usize)| {
        if !out.dims[dim].is_multiple_of(width) || !pointwise::many(cx, width) {
            return None;
        }
        let along = Neighbours::of(program, dim, width);
        let known = |source: &Source| match *source {
            Source::Load { at, .. } => {
                let at = along.values[at.index()];
                at.step == Some(0) || at.step.is_some() && at.every == 1
            }
            _ => true,
        };
        let all = || program.values.iter().zip(&along.values).filter(|((source, _), _)| costs(source));
        let same = all().filter(|(_, a)| a.step == Some(0)).count();
        let worth = 2 * same >= all().count();
        let fits = worth
            && along.stay_together(&program.body)
            && along.read_one_by_one(program, &program.body)
            && program.values.iter().all(|(source, _)| known(source));
        fits.then_some(along)
    };
    ways.into_iter().find_map(fits)
}

/// Rounds of loops that are unrolled for such neighbours, at most.
const UNROLLED: u32 = 4;

/// Statements without loops.
fn is_straight(body: &[Statement]) -> bool {
    body.iter().all(|s| matches!(s, Statement::Let(_) | Statement::Set(..)))
}

/// How many neighbours go together, and how these run the program.
fn neighbours(cx: &Cx, program: &Program) -> Neighbours {
    let out = &cx.step.output.view;
    let last = out.rank().saturating_sub(1);
    let loops = program.body.iter().any(|s| matches!(s, Statement::Repeat { .. } | Statement::While { .. }));
    let mut width = 16 / cx.dtype(Arg::Output).size();
    while width > 1 {
        let along = Neighbours::of(program, last, width);
        let together = |source: &Source| match *source {
            Source::Load { operand, at, .. } => {
                let a = along.values[at.index()];
                let (view, t) = (&cx.step.inputs[operand].view, cx.dtype(Arg::Input(operand)));
                let count = (width as i64 / a.every).max(1) as usize;
                let dense = a.step == Some(1)
                    && a.multiple % count as i64 == 0
                    && view.len().is_multiple_of(count)
                    && count * t.size() <= MOST_LOADED
                    && (view.offset * t.size() as i64) % (count * t.size()).min(4) as i64 == 0;
                a.step == Some(0) || dense
            }
            _ => true,
        };
        let fits = out.dims.last().is_some_and(|n| n.is_multiple_of(width))
            && if loops { pointwise::many(cx, width) } else { pointwise::enough(cx, width) }
            && pointwise::is_dense(cx.graph, &cx.step.output, width)
            && along.stay_together(&program.body)
            && program.values.iter().all(|(source, _)| together(source));
        if fits {
            return along;
        }
        width /= 2;
    }
    let (values, vars) = (vec![Along::SAME; program.values.len()], vec![true; program.vars.len()]);
    apart(cx, program).unwrap_or(Neighbours { width: 1, dim: last, values, vars })
}

/// A program being written as a kernel.
struct Run<'a> {
    cx: &'a Cx<'a>,
    program: &'a Program,
    /// Neighbours that are computed.
    width: usize,
    /// They are not of the last dimension.
    apart: bool,
    along: Vec<Along>,
    /// What is known of each value: of the first neighbour, where it is clear how it goes on, else of each.
    values: Vec<Vec<Value>>,
    /// A variable of each neighbour, or one where it is the same for all.
    vars: Vec<Vec<Part>>,
    coords: Vec<Option<Part>>,
    /// In a loop with a condition of its own: the lanes that are in it.
    active: Option<Part>,
    /// An operand's planes in LDS.
    held: Option<InLds>,
}

impl<'a> Run<'a> {
    /// At coordinates, of the first of the neighbours.
    fn new(
        cx: &'a Cx<'a>,
        program: &'a Program,
        along: &Neighbours,
        apart: bool,
        coords: &[Option<Part>],
        w: &mut Writer,
    ) -> Res<Run<'a>> {
        let mut vars = Vec::with_capacity(program.vars.len());
        for (t, same) in program.vars.iter().zip(&along.vars) {
            let dwords = match kind(*t) {
                Kind::Bool => return Err(Reason::Operation { op: "a variable".into(), dtype: DType::Bool }),
                Kind::Long { .. } | Kind::Double => 2,
                _ => 1,
            };
            let count = if *same { 1 } else { along.width };
            vars.push((0..count).map(|_| w.b.v(dwords)).collect());
        }
        Ok(Run {
            cx,
            program,
            width: along.width,
            apart,
            along: along.values.clone(),
            values: vec![Vec::new(); program.values.len()],
            vars,
            coords: coords.to_vec(),
            active: None,
            held: None,
        })
    }
}

impl Run<'_> {
    /// A value of the first neighbour.
    fn value(&self, v: Val) -> Res<Value> {
        self.values[v.index()].first().copied().ok_or(Reason::Malformed("a value is read before it is computed"))
    }

    /// A value of neighbour `e`.
    fn lane(&self, w: &mut Writer, v: Val, e: usize) -> Res<Value> {
        let first = self.value(v)?;
        let along = self.along[v.index()];
        Ok(match along.step {
            None => self.values[v.index()].get(e).copied().unwrap_or(first),
            Some(step) if step != 0 && e as i64 >= along.every => {
                let first = first.reg(&mut w.b);
                Value::Word(w.b.add(first, (step * (e as i64 / along.every)) as i32).into())
            }
            Some(_) => first,
        })
    }

    fn block(&mut self, w: &mut Writer, body: &[Statement]) -> Res<()> {
        for s in body {
            match s {
                Statement::Let(v) => {
                    self.values[v.index()] = match self.along[v.index()].step {
                        Some(_) => vec![self.compute(w, *v, 0)?],
                        None => self.compute_all(w, *v)?,
                    };
                }
                Statement::Repeat { round, count, body } if self.apart && *count <= UNROLLED && is_straight(body) => {
                    self.one_by_one(w, Some(*round), *count, body)?;
                }
                Statement::Set(var, v) => {
                    let to = self.vars[var.0 as usize].clone();
                    let values: Vec<Value> = (0..to.len()).map(|e| self.lane(w, *v, e)).collect::<Res<_>>()?;
                    values.into_iter().zip(to).try_for_each(|(value, to)| self.set(w, to, value))?;
                }
                Statement::While { first, body, again } => self.lower_while(w, *first, body, *again)?,
                Statement::Repeat { round, count, body } => reduce::scalar_loop(w, "repeat", *count, |w, i| {
                    self.values[round.index()] = vec![Value::Word(i.into())];
                    self.block(w, body)
                })?,
            }
        }
        Ok(())
    }

    /// Rounds of a loop, or statements without one, neighbour by neighbour: what a neighbour reads in all rounds lies close together, and caches have it while it does. What is the
    /// same for all is computed first, for all rounds.
    fn one_by_one(&mut self, w: &mut Writer, round: Option<Val>, count: u32, body: &[Statement]) -> Res<()> {
        let mut rounds = Vec::new();
        for i in 0..count {
            if let Some(round) = round {
                self.values[round.index()] = vec![Value::Word(i.into())];
            }
            for s in body {
                match s {
                    Statement::Let(v) if self.along[v.index()].step.is_some() => {
                        self.values[v.index()] = vec![self.compute(w, *v, 0)?];
                    }
                    Statement::Set(var, v) if self.vars[var.0 as usize].len() == 1 => {
                        let value = self.lane(w, *v, 0)?;
                        self.set(w, self.vars[var.0 as usize][0], value)?;
                    }
                    _ => {}
                }
            }
            rounds.push(self.values.clone());
        }
        // The program's result, where it is computed here, is one of each neighbour.
        let result = self.program.result;
        let gives = body.contains(&Statement::Let(result)) && self.along[result.index()].step.is_none();
        let mut results = Vec::new();
        for (e, values) in (0..self.width).flat_map(|e| rounds.iter().map(move |values| (e, values))) {
            self.values.clone_from(values);
            for s in body {
                match s {
                    Statement::Let(v) if self.along[v.index()].step.is_none() => {
                        let value = self.of_neighbour(w, *v, e)?;
                        self.values[v.index()] = vec![value; self.width];
                    }
                    Statement::Set(var, v) if self.vars[var.0 as usize].len() > 1 => {
                        let value = self.lane(w, *v, e)?;
                        self.set(w, self.vars[var.0 as usize][e], value)?;
                    }
                    _ => {}
                }
            }
            if gives {
                results.truncate(e);
                results.extend(&self.values[result.index()][..1]);
            }
        }
        if gives {
            self.values[result.index()] = results;
        }
        Ok(())
    }

    /// A value of neighbour `e` of another dimension than the last.
    fn of_neighbour(&mut self, w: &mut Writer, v: Val, e: usize) -> Res<Value> {
        match self.program.values[v.index()].0 {
            Source::Load { operand, at, .. } if self.held.as_ref().is_some_and(|h| h.holds(operand)) => {
                self.load_held(w, at, e)
            }
            Source::Load { operand, at, checked } => match self.along[at.index()].step {
                Some(step) => self.load_further(w, operand, at, checked, step * e as i64),
                None => Err(Reason::Malformed("a load of neighbours that lie anywhere")),
            },
            _ => self.compute(w, v, e),
        }
    }

    /// Gives a variable a value, in lanes that run.
    fn set(&self, w: &mut Writer, to: Part, value: Value) -> Res<()> {
        let value = match (self.active, value) {
            (Some(m), Value::Pair(_)) => values::select(&mut w.b, m, value, Value::Pair(to)),
            (Some(m), Value::Word(_)) => {
                let new = value.reg(&mut w.b);
                Value::Word(w.b.select(m, new, to).into())
            }
            _ => value,
        };
        match value {
            Value::Pair(p) => (0..2).for_each(|i| w.b.copy_into(to.dword(i), p.dword(i))),
            Value::Word(x) => w.b.copy_into(to, x),
            Value::Mask(_) => {
                return Err(Reason::Operation { op: "a variable".into(), dtype: DType::Bool });
            }
        }
        Ok(())
    }

    /// A loop that goes on while any lane needs another round. Lanes that need none keep their variables.
    fn lower_while(&mut self, w: &mut Writer, first: Val, body: &[Statement], again: Val) -> Res<()> {
        let Value::Mask(first) = self.value(first)? else {
            return Err(Reason::Malformed("the condition of a loop is not a boolean"));
        };
        let one = w.b.to_vector(1u32);
        // Whether a lane is in the loop, as a vector that survives the rounds.
        let flag = w.b.v(1);
        let start = w.b.select(first, one, 0u32);
        let outside = self.active;
        let start = match outside {
            Some(m) => w.b.select(m, start, 0u32),
            None => start,
        };
        w.b.copy_into(flag, start);
        let head = w.b.open_any("while");
        let active = w.b.op(Gen::CmpNe.of(Type::U32), &[0u32.into(), flag.into()]);
        self.active = Some(active);
        let done = self.block(w, body);
        self.active = outside;
        done?;
        let Value::Mask(again) = self.value(again)? else {
            return Err(Reason::Malformed("the condition of a loop is not a boolean"));
        };
        let next = w.b.select(again, flag, 0u32);
        w.b.copy_into(flag, next);
        let more = w.b.op(Gen::CmpNe.of(Type::U32), &[0u32.into(), next.into()]);
        w.b.close_any(head, more);
        Ok(())
    }

    /// A value of each neighbour.
    fn compute_all(&mut self, w: &mut Writer, v: Val) -> Res<Vec<Value>> {
        let along = |v: Val| self.along[v.index()];
        if let Source::Load { operand, at, checked } = self.program.values[v.index()].0 {
            if self.apart {
                return (0..self.width).map(|e| self.of_neighbour(w, v, e)).collect();
            }
            let every = along(at).every as usize;
            let loaded = self.load(w, operand, at, checked, (self.width / every) as u32)?;
            return Ok((0..self.width).map(|e| loaded[e / every]).collect());
        }
        if let round @ 1.. = along(v).round {
            return Ok((0..self.width).map(|e| Value::Word((e as u32 % round as u32).into())).collect());
        }
        // What is made of a few values is made of each once.
        let operands = match self.program.values[v.index()].0 {
            Source::Operation(op) => crate::graph::expr::operands(op).collect(),
            _ => Vec::new(),
        };
        let listed = |o: &Val| matches!(along(*o).step, None | Some(0));
        let once = !operands.is_empty() && operands.iter().all(listed);
        let mut made: Vec<(Vec<Value>, Value)> = Vec::new();
        let mut all = Vec::new();
        for e in 0..self.width {
            let of = operands.iter().filter(|_| once).map(|o| self.lane(w, *o, e)).collect::<Res<Vec<_>>>()?;
            let known = made.iter().find(|(x, _)| once && *x == of).map(|(_, y)| *y);
            let y = known.map_or_else(|| self.compute(w, v, e), Ok)?;
            made.push((of, y));
            all.push(y);
        }
        Ok(all)
    }

    /// A value of neighbour `e`.
    fn compute(&mut self, w: &mut Writer, v: Val, e: usize) -> Res<Value> {
        let (source, dtype) = self.program.values[v.index()];
        Ok(match source {
            Source::Coordinate(d) => Value::Word(self.coords[d].map_or(0u32.into(), Into::into)),
            Source::Round => self.value(v)?,
            Source::Load { operand, at, .. } if self.held.as_ref().is_some_and(|h| h.holds(operand)) => {
                self.load_held(w, at, e)?
            }
            Source::Load { operand, at, checked } => self.load(w, operand, at, checked, 1)?[0],
            // A copy: the variable may change while the value lives.
            Source::Get(var) => {
                let vars = &self.vars[var.0 as usize];
                let from = vars[e.min(vars.len() - 1)];
                if from.len == 2 {
                    let p = w.b.v(2);
                    (0..2).for_each(|i| w.b.copy_into(p.dword(i), from.dword(i)));
                    Value::Pair(p)
                } else {
                    Value::Word(w.b.to_vector(from).into())
                }
            }
            Source::Quotient(a, n) | Source::Remainder(a, n) => {
                let x = self.lane(w, a, e)?.reg(&mut w.b);
                let (q, r) = w.b.divmod(x, n);
                Value::Word(if matches!(source, Source::Quotient(..)) { q } else { r }.into())
            }
            Source::Operation(op) => {
                let mut operands: Vec<(Val, Value)> = Vec::new();
                for o in crate::graph::expr::operands(op) {
                    operands.push((o, self.lane(w, o, e)?));
                }
                let program = self.program;
                let at = |v: Val| {
                    let found = operands.iter().find(|o| o.0 == v).expect("operands() names every operand");
                    (found.1, program.type_of(v))
                };
                expr::operation(&mut w.b, &Node { op, dtype }, at)?
            }
        })
    }

    /// So many elements of an operand.
    fn load(&mut self, w: &mut Writer, operand: usize, at: Val, checked: bool, count: u32) -> Res<Vec<Value>> {
        let (buf, offset, t) = self.place(w, operand, at, checked, 0)?;
        Ok(values::load_some(&mut w.b, t, buf, offset, count))
    }

    /// The element of an operand that lies so many behind one.
    fn load_further(&mut self, w: &mut Writer, operand: usize, at: Val, checked: bool, further: i64) -> Res<Value> {
        let (buf, offset, t) = self.place(w, operand, at, checked, further)?;
        Ok(values::load(&mut w.b, t, buf, offset))
    }

    /// Where the element of an operand is that lies so many behind one.
    fn place(
        &mut self,
        w: &mut Writer,
        operand: usize,
        at: Val,
        checked: bool,
        further: i64,
    ) -> Res<(Buffer, Offset, DType)> {
        let arg = Arg::Input(operand);
        let (t, view) = (self.cx.dtype(arg), &self.cx.step.inputs[operand].view);
        let buf = w.buffer(self.cx, arg)?;
        let place = self.value(at)?;
        let size = t.size() as u32;
        let mut imm = view.offset as u32 * size;
        let p = match place {
            Value::Word(crate::mir::Opnd::V(p)) => p,
            _ => place.reg(&mut w.b),
        };
        let reg = if checked {
            let own = if further != 0 { w.b.add(p, further as i32) } else { p };
            let inside = w.b.op(Gen::CmpGt.of(Type::U32), &[(view.len() as u32).into(), own.into()]);
            let scaled = w.b.mul(own, size);
            w.b.guard(inside, scaled)
        } else {
            imm = imm.wrapping_add((further as u32).wrapping_mul(size));
            w.b.mul(p, size)
        };
        Ok((buf, Offset { reg: Some(reg), imm }, t))
    }
}
