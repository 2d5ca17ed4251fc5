//! Programs: results whose elements each take a small program to compute, with loops and reads at computed places.
//!
//! Every element of the result is computed by itself: a list of statements over scalar values, variables that loops change,
//! and loops with known numbers of rounds. There are no branches: what does not count is selected away. Operators that are
//! neither an expression of strided reads nor one of the large kinds (sampling, scattering, ranking, transforms, trees) are
//! written as programs with [`Coder`]; one kernel family runs them all.

use super::{Inferred, Kind, Operand};
use crate::graph::expr::{Binary, Node, Op, Scalar, Unary, Val};
use crate::graph::fused::Step;
use crate::graph::interpret::{Data, Error, Operands, each, operation};
use crate::graph::rules::Broken;
use crate::tensor::DType;
use std::fmt;

/// A variable of a [`Program`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Var(pub u32);

/// How a value of a program comes about.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Source {
    /// Coordinate of the element that is computed, in one dimension of the result.
    Coordinate(usize),
    /// The number of the round of the loop it belongs to, from 0.
    Round,
    /// An element of an operand by its number in row-major order.
    Load {
        /// Which operand.
        operand: usize,
        /// The element, an `i32`.
        at: Val,
        /// The element may be outside of the operand: then the value is 0. Otherwise it never is.
        checked: bool,
    },
    /// What a variable holds.
    Get(Var),
    /// Quotient of a value that is not negative by a constant.
    Quotient(Val, u32),
    /// Remainder of the same.
    Remainder(Val, u32),
    /// An operation on values; neither [`Op::Acc`] nor [`Op::Input`].
    Operation(Op),
}

/// A statement of a program.
#[derive(Clone, Debug, PartialEq)]
pub enum Statement {
    /// Computes a value.
    Let(Val),
    /// Gives a variable a value.
    Set(Var, Val),
    /// Runs statements again and again.
    Repeat {
        /// The value that counts the rounds.
        round: Val,
        /// How many rounds, at least one.
        count: u32,
        /// What is run.
        body: Vec<Statement>,
    },
    /// Runs statements while a condition holds, which each element has for itself.
    While {
        /// Whether they run at all.
        first: Val,
        /// What is run.
        body: Vec<Statement>,
        /// Whether they run again, computed by the body.
        again: Val,
    },
}

/// `O[c] = program(c)`; the operands are dense and read wherever the program says.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// Number of operands.
    pub operands: usize,
    /// Source and type of each value.
    pub values: Vec<(Source, DType)>,
    /// Types of the variables; never `Bool`.
    pub vars: Vec<DType>,
    /// What is run for each element.
    pub body: Vec<Statement>,
    /// The value that is the element.
    pub result: Val,
    /// What it is as a whole, where it is a tensor with other lines in it.
    pub scattered: Option<Scattered>,
    /// An operand of which each element reads one plane.
    pub planes: Option<Planes>,
}

/// An operand of planes of so many elements, of which an element of the result reads only the one with the number that its first two coordinates have in
/// row-major order, and what is behind the operand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planes {
    /// The operand.
    pub operand: usize,
    /// Elements of a plane.
    pub elements: usize,
    /// For each element of it that is read, as the program numbers it: its number in its plane, and whether there is one where not all are there.
    pub own: Vec<(Val, Val, Option<Val>)>,
}

/// What a program gives that is operand 1, with zeros behind it along a dimension, and in it all of operand 0, as many elements
/// along that dimension further on as the element of an operand says that has the first coordinate's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scattered {
    /// The dimension.
    pub axis: usize,
    /// The operand that says where.
    pub start: usize,
}

/// Behind any element of a tensor, wherever its plane begins.
const NOWHERE: i64 = 1 << 30;

/// Writes a [`Program`].
pub struct Coder {
    values: Vec<(Source, DType)>,
    vars: Vec<DType>,
    open: Vec<Vec<Statement>>,
    types: Vec<DType>,
    scattered: Option<Scattered>,
    planes: Option<Planes>,
}

impl Coder {
    /// For operands of these types.
    pub fn new(operands: &[DType]) -> Coder {
        Coder {
            values: Vec::new(),
            vars: Vec::new(),
            open: vec![Vec::new()],
            types: operands.to_vec(),
            scattered: None,
            planes: None,
        }
    }

    fn value(&mut self, source: Source, dtype: DType) -> Val {
        let v = Val(self.values.len() as u32);
        self.values.push((source, dtype));
        v
    }

    fn state(&mut self, s: Statement) {
        self.open.last_mut().expect("the outermost block is never closed").push(s);
    }

    fn push(&mut self, source: Source, dtype: DType) -> Val {
        let v = self.value(source, dtype);
        self.state(Statement::Let(v));
        v
    }

    /// Says what the program is as a whole.
    pub fn scatters(&mut self, whole: Scattered) {
        self.scattered = Some(whole);
    }

    /// Element `own` of a plane of an operand, of planes of so many elements, of which the first has the number `base` and is that of the first two
    /// coordinates; 0 where it is not `inside`, if that is told. The program reads none of its elements otherwise.
    pub fn load_in_plane(
        &mut self,
        operand: usize,
        (base, elements): (Val, usize),
        own: Val,
        inside: Option<Val>,
    ) -> Val {
        let at = match inside {
            Some(inside) => {
                let nowhere = self.int(NOWHERE);
                let own = self.select(inside, own, nowhere);
                self.add(base, own)
            }
            None => self.add(base, own),
        };
        let planes = self.planes.get_or_insert_with(|| Planes { operand, elements, own: Vec::new() });
        planes.own.push((at, own, inside));
        if inside.is_some() { self.load_checked(operand, at) } else { self.load(operand, at) }
    }

    /// Type of a value.
    pub fn type_of(&self, v: Val) -> DType {
        self.values[v.index()].1
    }

    /// Type of an operand.
    pub fn operand_type(&self, operand: usize) -> DType {
        self.types[operand]
    }

    /// Coordinate of the element in dimension `d`.
    pub fn coord(&mut self, d: usize) -> Val {
        self.push(Source::Coordinate(d), DType::I32)
    }

    /// A literal of some type.
    pub fn constant(&mut self, dtype: DType, value: f64) -> Val {
        self.literal(dtype, Scalar::of(dtype, value))
    }

    /// The same, of any value of the type.
    pub fn literal(&mut self, dtype: DType, value: Scalar) -> Val {
        self.push(Source::Operation(Op::Const(value)), dtype)
    }

    /// A literal `i32`.
    pub fn int(&mut self, value: i64) -> Val {
        self.push(Source::Operation(Op::Const(Scalar::Int(value))), DType::I32)
    }

    /// Element `at` of an operand, which exists.
    pub fn load(&mut self, operand: usize, at: Val) -> Val {
        self.push(Source::Load { operand, at, checked: false }, self.types[operand])
    }

    /// Element `at` of an operand, 0 where there is none.
    pub fn load_checked(&mut self, operand: usize, at: Val) -> Val {
        self.push(Source::Load { operand, at, checked: true }, self.types[operand])
    }

    /// Element `at` of an operand as an `i32`.
    pub fn load_int(&mut self, operand: usize, at: Val) -> Val {
        let v = self.load(operand, at);
        self.cast(v, DType::I32)
    }

    /// A new variable.
    pub fn var(&mut self, initial: Val) -> Var {
        let var = Var(self.vars.len() as u32);
        self.vars.push(self.type_of(initial));
        self.set(var, initial);
        var
    }

    /// What a variable holds now.
    pub fn get(&mut self, var: Var) -> Val {
        let dtype = self.vars[var.0 as usize];
        self.push(Source::Get(var), dtype)
    }

    /// Gives a variable a value of its type.
    pub fn set(&mut self, var: Var, value: Val) {
        debug_assert_eq!(self.type_of(value), self.vars[var.0 as usize]);
        self.state(Statement::Set(var, value));
    }

    /// Runs `body` for each number below `count`.
    pub fn repeat(&mut self, count: usize, body: impl FnOnce(&mut Coder, Val)) {
        match count {
            0 => {}
            1 => {
                let zero = self.int(0);
                body(self, zero);
            }
            _ => {
                let round = self.value(Source::Round, DType::I32);
                self.open.push(Vec::new());
                body(self, round);
                let body = self.open.pop().unwrap_or_default();
                self.state(Statement::Repeat { round, count: count as u32, body });
            }
        }
    }

    /// Runs `body` while what it gives is true, if `first` is.
    pub fn repeat_while(&mut self, first: Val, body: impl FnOnce(&mut Coder) -> Val) {
        self.open.push(Vec::new());
        let again = body(self);
        let body = self.open.pop().unwrap_or_default();
        self.state(Statement::While { first, body, again });
    }

    /// Sum over `count` rounds of what `term` gives, starting from a zero of type `dtype`.
    pub fn sum(&mut self, dtype: DType, count: usize, term: impl FnOnce(&mut Coder, Val) -> Val) -> Val {
        let zero = self.constant(dtype, 0.0);
        let total = self.var(zero);
        self.repeat(count, |c, i| {
            let x = term(c, i);
            let now = c.get(total);
            let next = c.add(now, x);
            c.set(total, next);
        });
        self.get(total)
    }

    /// An operation of one operand.
    pub fn unary(&mut self, op: Unary, a: Val) -> Val {
        let dtype = match op {
            Unary::IsNan | Unary::IsInf => DType::Bool,
            _ => self.type_of(a),
        };
        self.push(Source::Operation(Op::Unary(op, a)), dtype)
    }

    /// An operation of two operands of one type.
    pub fn binary(&mut self, op: Binary, a: Val, b: Val) -> Val {
        debug_assert_eq!(self.type_of(a), self.type_of(b), "{op:?}");
        let dtype = if op.is_comparison() { DType::Bool } else { self.type_of(a) };
        self.push(Source::Operation(Op::Binary(op, a, b)), dtype)
    }

    /// `cond ? then : other`
    pub fn select(&mut self, cond: Val, then: Val, other: Val) -> Val {
        let dtype = self.type_of(then);
        self.push(Source::Operation(Op::Select(cond, then, other)), dtype)
    }

    /// Converts.
    pub fn cast(&mut self, a: Val, dtype: DType) -> Val {
        if self.type_of(a) == dtype { a } else { self.push(Source::Operation(Op::Cast(a)), dtype) }
    }

    /// `a + b`
    pub fn add(&mut self, a: Val, b: Val) -> Val {
        self.binary(Binary::Add, a, b)
    }

    /// `a - b`
    pub fn sub(&mut self, a: Val, b: Val) -> Val {
        self.binary(Binary::Sub, a, b)
    }

    /// `a * b`
    pub fn mul(&mut self, a: Val, b: Val) -> Val {
        self.binary(Binary::Mul, a, b)
    }

    /// `a <= b`
    pub fn le(&mut self, a: Val, b: Val) -> Val {
        self.binary(Binary::Le, a, b)
    }

    /// `a < b`
    pub fn lt(&mut self, a: Val, b: Val) -> Val {
        self.binary(Binary::Lt, a, b)
    }

    /// `a == b`
    pub fn eq(&mut self, a: Val, b: Val) -> Val {
        self.binary(Binary::Eq, a, b)
    }

    /// Both, of booleans.
    pub fn and(&mut self, a: Val, b: Val) -> Val {
        self.binary(Binary::And, a, b)
    }

    /// `a + n` for an `i32`.
    pub fn plus(&mut self, a: Val, n: i64) -> Val {
        if n == 0 {
            return a;
        }
        let n = self.int(n);
        self.add(a, n)
    }

    /// `a * n` for an `i32`.
    pub fn times(&mut self, a: Val, n: i64) -> Val {
        if n == 1 {
            return a;
        }
        let n = self.int(n);
        self.mul(a, n)
    }

    /// Quotient and remainder of an `i32` that is not negative.
    pub fn divide(&mut self, a: Val, n: usize) -> (Val, Val) {
        if n == 1 {
            let zero = self.int(0);
            return (a, zero);
        }
        (self.push(Source::Quotient(a, n as u32), DType::I32), self.push(Source::Remainder(a, n as u32), DType::I32))
    }

    /// `low <= a < high` for an `i32`.
    pub fn within(&mut self, a: Val, low: i64, high: i64) -> Val {
        let (l, h) = (self.int(low), self.int(high));
        let above = self.binary(Binary::Le, l, a);
        let below = self.lt(a, h);
        self.and(above, below)
    }

    /// The nearest number to an `i32` in `low..high`.
    pub fn clamp(&mut self, a: Val, low: i64, high: i64) -> Val {
        let (l, h) = (self.int(low), self.int(high - 1));
        let a = self.binary(Binary::Max, a, l);
        self.binary(Binary::Min, a, h)
    }

    /// An index that may count from the end of `extent`.
    pub fn wrapped(&mut self, index: Val, extent: usize) -> Val {
        let zero = self.int(0);
        let negative = self.lt(index, zero);
        let other = self.plus(index, extent as i64);
        self.select(negative, other, index)
    }

    /// The number in row-major order of the element at coordinates in a tensor of these dimensions.
    pub fn place(&mut self, coords: &[Val], dims: &[usize]) -> Val {
        let mut at = None;
        for (&c, &n) in coords.iter().zip(dims) {
            at = Some(match at {
                None => c,
                Some(a) => {
                    let scaled = self.times(a, n as i64);
                    self.add(scaled, c)
                }
            });
        }
        at.unwrap_or_else(|| self.int(0))
    }

    /// Ends the program.
    pub fn finish(mut self, result: Val) -> Program {
        let body = self.open.pop().unwrap_or_default();
        let (operands, scattered, planes) = (self.types.len(), self.scattered, self.planes);
        Program { operands, values: self.values, vars: self.vars, body, result, scattered, planes }
    }
}

impl Program {
    /// Type of a value.
    pub fn type_of(&self, v: Val) -> DType {
        self.values[v.index()].1
    }

    /// The element at coordinates of the result.
    pub(crate) fn element(&self, coords: &[usize], operands: &dyn Read) -> Scalar {
        let none = Scalar::Int(0);
        let (cells, vars) = (vec![none; self.values.len()], vec![none; self.vars.len()]);
        let mut machine = Machine { cells, vars, coords, operands };
        self.run(&self.body, &mut machine);
        machine.cells[self.result.index()]
    }

    /// The types that its operands are read as; nothing for one that is not read.
    pub(crate) fn operand_types(&self) -> Vec<Option<DType>> {
        let mut out = vec![None; self.operands];
        for (source, dtype) in &self.values {
            if let Source::Load { operand, .. } = *source {
                out[operand] = Some(*dtype);
            }
        }
        out
    }

    fn run(&self, body: &[Statement], machine: &mut Machine<'_>) {
        for s in body {
            match s {
                Statement::Let(v) => {
                    let value = self.evaluate(*v, machine);
                    machine.cells[v.index()] = value;
                }
                Statement::Set(var, v) => machine.vars[var.0 as usize] = machine.cells[v.index()],
                Statement::Repeat { round, count, body } => {
                    for i in 0..*count {
                        machine.cells[round.index()] = Scalar::Int(i as i64);
                        self.run(body, machine);
                    }
                }
                Statement::While { first, body, again } => {
                    let mut more = machine.cells[first.index()].as_i64() != 0;
                    while more {
                        self.run(body, machine);
                        more = machine.cells[again.index()].as_i64() != 0;
                    }
                }
            }
        }
    }

    fn evaluate(&self, v: Val, machine: &Machine<'_>) -> Scalar {
        let (source, dtype) = self.values[v.index()];
        let at = |v: Val| (machine.cells[v.index()], self.type_of(v));
        match source {
            Source::Coordinate(d) => Scalar::Int(machine.coords[d] as i64),
            Source::Round => machine.cells[v.index()],
            Source::Load { operand, at: place, .. } => {
                let read = machine.operands.read(operand, at(place).0.as_i64());
                read.unwrap_or_else(|| Scalar::of(dtype, 0.0))
            }
            Source::Get(var) => machine.vars[var.0 as usize],
            Source::Quotient(a, n) => Scalar::Int(at(a).0.as_i64() / n as i64),
            Source::Remainder(a, n) => Scalar::Int(at(a).0.as_i64() % n as i64),
            Source::Operation(op) => operation(&Node { op, dtype }, at),
        }
    }
}

/// Where a program that the host runs finds its operands.
pub(crate) trait Read {
    /// An element of an operand by its number in row-major order; nothing outside of it.
    fn read(&self, operand: usize, at: i64) -> Option<Scalar>;
}

impl Read for Operands<'_> {
    fn read(&self, operand: usize, at: i64) -> Option<Scalar> {
        let view = self.view(operand);
        (0..view.len() as i64).contains(&at).then(|| self.data(operand).get((view.offset + at) as usize))
    }
}

/// The state of a program that the host runs.
struct Machine<'a> {
    cells: Vec<Scalar>,
    vars: Vec<Scalar>,
    coords: &'a [usize],
    operands: &'a dyn Read,
}

impl Kind for Program {
    fn name(&self) -> &'static str {
        "program"
    }

    fn operands(&self) -> usize {
        self.operands
    }

    fn infer(&self, operands: &[Operand<'_>], rank: usize) -> Result<Option<Inferred>, Broken> {
        for (source, dtype) in &self.values {
            match *source {
                Source::Load { operand, .. } if operands.get(operand).is_none_or(|o| o.0 != *dtype) => {
                    return Err(Broken::Fit(format!("its program reads operand {operand} as {dtype}")));
                }
                Source::Coordinate(d) if d >= rank => {
                    return Err(Broken::Fit(format!("its program asks for coordinate {d} of {rank}")));
                }
                _ => {}
            }
        }
        Ok(Some(Inferred { dtype: self.type_of(self.result), dims: vec![None; rank] }))
    }

    fn check(&self, step: &Step) -> Result<(), Broken> {
        if step.inputs[..self.operands].iter().any(|a| !a.view.is_dense()) {
            return Err(Broken::Layout("an operand of a program is not dense"));
        }
        Ok(())
    }

    fn interpret(&self, at: &Operands<'_>) -> Result<Option<Data>, Error> {
        let mut results = Vec::with_capacity(at.dims().iter().product());
        each(at.dims(), |coords| {
            results.push(self.element(coords, at));
        });
        Ok(Some(if self.type_of(self.result).is_float() {
            Data::Float(results.into_iter().map(Scalar::as_f64).collect())
        } else {
            Data::Int(results.into_iter().map(Scalar::as_i64).collect())
        }))
    }

    fn collapse(&self, _: &mut Step) {
        // Its coordinates have a meaning.
    }

    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "    program of {} values, {} variables", self.values.len(), self.vars.len())
    }
}
