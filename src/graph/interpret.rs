//! Executes fused graphs on the host, one element at a time.
//!
//! Two uses: operators whose inputs are all known at compile time are computed with it, and tests compare kernels and
//! rewrites with it. Sums of many terms (convolutions, products, reductions) are computed in f64 and rounded once, scalar
//! expressions round after each operation as a device does. It is not fast and not how models are run.

use super::expr::{Binary, Expr, Node, Op, Scalar, Unary, Val};
use super::fused::{Access, FusedGraph, Role, Step, TensorId};
use super::lazy::Lazy;
use super::view::View;
use crate::tensor::{DType, HostTensor};
use half::{bf16, f16};

/// Why something could not be computed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// Number of inputs.
    #[error("{given} inputs given, {needed} needed")]
    InputCount {
        /// How many were given.
        given: usize,
        /// How many there are.
        needed: usize,
    },
    /// An input of another type or shape.
    #[error("input {input} is {dtype}{shape:?}, not {given}")]
    Input {
        /// Its name.
        input: String,
        /// Its type.
        dtype: DType,
        /// Its shape.
        shape: Vec<usize>,
        /// What was given.
        given: String,
    },
    /// The kind computes floats only.
    #[error("computes with integers, which is not supported")]
    Integers,
    /// In a step.
    #[error("step {step}: {what}")]
    Step {
        /// Its name.
        step: String,
        /// What is wrong.
        what: Box<Error>,
    },
}

/// Elements in the interpreter: all float types as f64, all others as i64.
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    /// Floats.
    Float(Vec<f64>),
    /// Integers and booleans.
    Int(Vec<i64>),
}

impl Data {
    fn of(t: &HostTensor) -> Data {
        if t.dtype().is_float() { Data::Float(t.to_f64()) } else { Data::Int(t.to_i64()) }
    }

    fn zeros(dtype: DType, len: usize) -> Data {
        if dtype.is_float() { Data::Float(vec![f64::NAN; len]) } else { Data::Int(vec![0; len]) }
    }

    pub(super) fn get(&self, i: usize) -> Scalar {
        match self {
            Data::Float(v) => Scalar::Float(v[i]),
            Data::Int(v) => Scalar::Int(v[i]),
        }
    }

    fn set(&mut self, i: usize, value: Scalar) {
        match self {
            Data::Float(v) => v[i] = value.as_f64(),
            Data::Int(v) => v[i] = value.as_i64(),
        }
    }

    fn host(&self, dtype: DType, shape: &[usize]) -> HostTensor {
        match self {
            Data::Float(v) => HostTensor::from_f64(dtype, shape, v),
            Data::Int(v) => HostTensor::from_ints(dtype, shape, v),
        }
    }
}

/// What sums of products are made of: floats, or integers that wrap as 64 bits do.
pub(super) trait Term: Copy {
    /// The empty sum.
    const ZERO: Self;

    /// This sum and the product of two factors.
    fn and(self, a: Self, b: Self) -> Self;
}

impl Term for f64 {
    const ZERO: f64 = 0.0;

    fn and(self, a: f64, b: f64) -> f64 {
        self + a * b
    }
}

impl Term for i64 {
    const ZERO: i64 = 0;

    fn and(self, a: i64, b: i64) -> i64 {
        self.wrapping_add(a.wrapping_mul(b))
    }
}

/// A step's operands, for its kind.
pub struct Operands<'a> {
    interpreter: &'a Interpreter,
    step: &'a Step,
}

impl<'a> Operands<'a> {
    /// The whole tensor behind operand `i`.
    pub fn data(&self, i: usize) -> &'a Data {
        self.interpreter.data(self.step.inputs[i].tensor)
    }

    /// The same, of a float tensor.
    pub fn floats(&self, i: usize) -> Result<&'a [f64], Error> {
        match self.data(i) {
            Data::Float(v) => Ok(v),
            Data::Int(_) => Err(Error::Integers),
        }
    }

    /// How operand `i` is walked.
    pub fn view(&self, i: usize) -> &'a View {
        &self.step.inputs[i].view
    }

    /// Operand `i` at the coordinates of its view, limits and tables followed.
    pub fn element(&self, i: usize, coords: &[usize]) -> Scalar {
        self.interpreter.read(&self.step.inputs[i], coords)
    }

    /// Dimensions of the output.
    pub fn dims(&self) -> &'a [usize] {
        &self.step.output.view.dims
    }
}

/// Holds the contents of all tensors of one graph.
pub struct Interpreter {
    data: Vec<Option<Data>>,
}

impl Interpreter {
    /// For a graph; constants are fetched when a step reads them.
    pub fn new(graph: &FusedGraph) -> Interpreter {
        Interpreter { data: vec![None; graph.tensors.len()] }
    }

    /// Runs the whole graph. `inputs` are in the order of [`FusedGraph::inputs`]; the result is in that of
    /// [`FusedGraph::outputs`]. Fails when an input has another type or shape.
    pub fn run(&mut self, graph: &FusedGraph, inputs: &[HostTensor]) -> Result<Vec<HostTensor>, Error> {
        if inputs.len() != graph.inputs.len() {
            return Err(Error::InputCount { given: inputs.len(), needed: graph.inputs.len() });
        }
        for (&id, value) in graph.inputs.iter().zip(inputs) {
            let t = graph.tensor(id);
            if value.dtype() != t.dtype || value.shape() != t.shape {
                let (dtype, shape) = (t.dtype, t.shape.clone());
                return Err(Error::Input { input: t.name.clone(), dtype, shape, given: format!("{value:?}") });
            }
            self.data[id.index()] = Some(Data::of(value));
        }
        for step in &graph.steps {
            self.step(graph, step)?;
        }
        Ok(graph.outputs.iter().map(|&id| self.tensor(graph, id)).collect())
    }

    /// The present content of a tensor; what was never written is NaN or 0.
    pub fn tensor(&self, graph: &FusedGraph, id: TensorId) -> HostTensor {
        let t = graph.tensor(id);
        match (&self.data[id.index()], &t.role) {
            (Some(d), _) => d.host(t.dtype, &t.shape),
            (None, Role::Constant(c)) => c.clone(),
            (None, _) => Data::zeros(t.dtype, t.len()).host(t.dtype, &t.shape),
        }
    }

    /// Runs the steps from number `from` on, which depend on constants only, and returns a tensor.
    pub(crate) fn evaluate_constant(
        mut self,
        graph: &FusedGraph,
        from: usize,
        id: TensorId,
    ) -> Result<HostTensor, Error> {
        for step in &graph.steps[from..] {
            self.step(graph, step)?;
        }
        Ok(self.tensor(graph, id))
    }

    fn fetch(&mut self, graph: &FusedGraph, id: TensorId) {
        let slot = &mut self.data[id.index()];
        if slot.is_none() {
            let t = graph.tensor(id);
            *slot = Some(match &t.role {
                Role::Constant(c) => Data::of(c),
                _ => Data::zeros(t.dtype, t.len()),
            });
        }
    }

    fn data(&self, id: TensorId) -> &Data {
        self.data[id.index()].as_ref().expect("fetched before")
    }

    fn read(&self, a: &Access, coords: &[usize]) -> Scalar {
        if let Some(g) = &a.guard
            && g.ranges.iter().zip(coords).any(|(&(lo, hi), &c)| c < lo || c >= hi)
        {
            return g.fill;
        }
        let mut at = a.view.at(coords);
        for ind in &a.indirect {
            let mut i = self.data(ind.index).get(ind.view.at(coords) as usize).as_i64();
            if i < 0 {
                i += ind.extent as i64;
            }
            at += i.clamp(0, ind.extent as i64 - 1) * ind.stride;
        }
        self.data(a.tensor).get(at as usize)
    }

    /// Executes one step.
    pub fn step(&mut self, graph: &FusedGraph, step: &Step) -> Result<(), Error> {
        for a in &step.inputs {
            self.fetch(graph, a.tensor);
            for i in &a.indirect {
                self.fetch(graph, i.index);
            }
        }
        self.fetch(graph, step.output.tensor);
        let at_step = |e| Error::Step { step: step.name.clone(), what: Box::new(e) };
        let filled = step.kind.fill(&Operands { interpreter: self, step }).map_err(at_step)?;
        for (i, data) in step.kind.filled().iter().zip(filled) {
            let (view, mut n) = (&step.inputs[*i].view, 0);
            let out = self.data[step.inputs[*i].tensor.index()].as_mut().expect("fetched before");
            each(&view.dims, |coords| {
                out.set(view.at(coords) as usize, data.get(n));
                n += 1;
            });
        }
        let operands = Operands { interpreter: self, step };
        let results = step.kind.interpret(&operands).map_err(at_step)?;
        let paired = step.kind.interpret_paired(&operands).map_err(at_step)?;
        let beside = step.kind.interpret_beside(&operands).map_err(at_step)?;
        let out_view = &step.output.view;
        let mut cells = Vec::new();
        let mut values = Vec::with_capacity(out_view.len());
        let mut n = 0;
        each(&out_view.dims, |coords| {
            let acc = results.as_ref().map(|r| r.get(n));
            let value = evaluate(&step.expr, acc, &mut cells, |i| match &paired {
                Some(paired) if i == PAIRED => paired.get(n),
                _ => self.read(&step.inputs[i as usize], coords),
            });
            n += 1;
            values.push((out_view.at(coords) as usize, value));
        });
        let out = self.data[step.output.tensor.index()].as_mut().expect("fetched before");
        if let (Some(view), Some(data)) = (step.kind.beside(), beside) {
            let mut n = 0;
            each(&view.dims, |coords| {
                out.set(view.at(coords) as usize, data.get(n));
                n += 1;
            });
        }
        for (at, value) in values {
            out.set(at, value);
        }
        Ok(())
    }
}

/// Calls `f` with all coordinates in row-major order.
pub(super) fn each(dims: &[usize], mut f: impl FnMut(&[usize])) {
    if dims.contains(&0) {
        return;
    }
    let mut coords = vec![0; dims.len()];
    loop {
        f(&coords);
        let mut d = dims.len();
        loop {
            if d == 0 {
                return;
            }
            d -= 1;
            coords[d] += 1;
            if coords[d] < dims[d] {
                break;
            }
            coords[d] = 0;
        }
    }
}

/// Calls `f` with the element indices of each run over the last `n` dimensions.
pub(super) fn rows(v: &View, n: usize, mut f: impl FnMut(&[usize])) {
    let outer = v.rank() - n;
    let mut at = Vec::new();
    each(&v.dims[..outer], |head| {
        at.clear();
        let start = v.offset + head.iter().zip(&v.strides).map(|(&c, &s)| c as i64 * s).sum::<i64>();
        let inner = View { offset: start, dims: v.dims[outer..].to_vec(), strides: v.strides[outer..].to_vec() };
        each(&inner.dims, |c| at.push(inner.at(c) as usize));
        f(&at);
    });
}

/// The operand number under which an evaluation asks for [`Op::Paired`].
pub(crate) const PAIRED: u32 = u32::MAX;

/// Evaluates an expression. `cells` is scratch space.
pub(crate) fn evaluate(
    expr: &Expr,
    acc: Option<Scalar>,
    cells: &mut Vec<Scalar>,
    mut input: impl FnMut(u32) -> Scalar,
) -> Scalar {
    cells.clear();
    for n in expr.nodes() {
        let round = |v: Scalar| if n.dtype.is_float() { cast(v, n.dtype) } else { v };
        let value = match n.op {
            // Sums of integers wrap as a register of their type does.
            Op::Acc => cast(acc.expect("an accumulator"), n.dtype),
            Op::Paired => cast(input(PAIRED), n.dtype),
            Op::Input(i) => round(input(i)),
            _ => operation(n, |v| (cells[v.index()], expr.type_of(v))),
        };
        cells.push(value);
    }
    *cells.last().expect("an expression has at least one node")
}

/// What an operation gives; `at` gives its operands and their types. It rounds to its type, so sums, products and quotients
/// are what a device computes. Panics for operations that stand for something else.
pub(super) fn operation(n: &Node, at: impl Fn(Val) -> (Scalar, DType)) -> Scalar {
    let value = match n.op {
        Op::Acc | Op::Paired | Op::Input(_) => unreachable!("operands are no operations"),
        Op::Const(c) => c,
        Op::Unary(op, a) => unary(op, n.dtype, at(a).0),
        Op::Binary(op, a, b) => binary(op, n.dtype, at(a).1, at(a).0, at(b).0),
        Op::Select(c, a, b) => at(if at(c).0.as_i64() != 0 { a } else { b }).0,
        Op::Cast(a) => convert(at(a), n.dtype),
        Op::Bits(a) => bits(at(a), n.dtype),
    };
    if n.dtype.is_float() { cast(value, n.dtype) } else { value }
}

/// The same bits as a value of another type of the same size.
fn bits((v, from): (Scalar, DType), to: DType) -> Scalar {
    let tensor = match v {
        Scalar::Float(x) => HostTensor::from_f64(from, &[], &[x]),
        Scalar::Int(x) => HostTensor::from_ints(from, &[], &[x]),
    };
    match HostTensor::new(to, &[], tensor.bytes().clone()) {
        Ok(t) if to.is_float() => Scalar::Float(t.to_f64()[0]),
        Ok(t) => Scalar::Int(t.to_i64()[0]),
        Err(_) => unreachable!("both types have one size"),
    }
}

/// Keeps the low bits of an integer, as a register of the type does.
fn wrap(v: i64, dtype: DType) -> i64 {
    match dtype {
        DType::I8 => v as i8 as i64,
        DType::U8 => v as u8 as i64,
        DType::I16 => v as i16 as i64,
        DType::U16 => v as u16 as i64,
        DType::I32 => v as i32 as i64,
        DType::U32 => v as u32 as i64,
        DType::Bool => (v != 0) as i64,
        DType::I4 | DType::I2 | DType::U4 | DType::U2 => HostTensor::from_ints(dtype, &[], &[v]).to_i64()[0],
        _ => v,
    }
}

fn cast(v: Scalar, to: DType) -> Scalar {
    match (v, to) {
        (Scalar::Float(f), DType::F32) => Scalar::Float(f as f32 as f64),
        (Scalar::Float(f), DType::F16) => Scalar::Float(f16::from_f64(f).to_f64()),
        (Scalar::Float(f), DType::BF16) => Scalar::Float(bf16::from_f64(f).to_f64()),
        (Scalar::Float(f), DType::F64) => Scalar::Float(f),
        (Scalar::Float(f), t) if t.is_small_float() => Scalar::Float(HostTensor::from_f64(t, &[], &[f]).to_f64()[0]),
        (Scalar::Float(f), DType::Bool) => Scalar::Int((f != 0.0) as i64),
        (Scalar::Float(f), t) if t.bits() < 8 => Scalar::Int(wrap(f as i64, t)),
        (Scalar::Float(f), DType::U64) => Scalar::Int(f as u64 as i64),
        (Scalar::Float(f), _) => {
            let bits = to.bits() as u32;
            let (lo, hi) = if to.is_signed_int() {
                (i64::MIN >> (64 - bits), i64::MAX >> (64 - bits))
            } else {
                (0, (1i64 << bits.min(62)) - 1)
            };
            Scalar::Int((f as i64).clamp(lo, hi))
        }
        (Scalar::Int(i), DType::Bool) => Scalar::Int((i != 0) as i64),
        (Scalar::Int(i), t) if t.is_float() => cast(Scalar::Float(i as f64), t),
        (Scalar::Int(i), t) => Scalar::Int(wrap(i, t)),
    }
}

/// A value of one type as one of another.
fn convert((v, from): (Scalar, DType), to: DType) -> Scalar {
    match v {
        // The largest half of them are negative as they are held here.
        Scalar::Int(i) if from == DType::U64 && to.is_float() => cast(Scalar::Float(i as u64 as f64), to),
        _ => cast(v, to),
    }
}

fn unary(op: Unary, dtype: DType, v: Scalar) -> Scalar {
    match v {
        Scalar::Int(i) => Scalar::Int(match op {
            Unary::Abs if dtype == DType::U64 => i,
            Unary::Sign if dtype == DType::U64 => (i != 0) as i64,
            Unary::Neg => wrap(i.wrapping_neg(), dtype),
            Unary::Abs => wrap(i.wrapping_abs(), dtype),
            Unary::Sign => i.signum(),
            Unary::Not if dtype == DType::Bool => (i == 0) as i64,
            Unary::Not => wrap(!i, dtype),
            Unary::IsNan | Unary::IsInf => 0,
            Unary::Floor | Unary::Ceil | Unary::Round => i,
            _ => wrap(float_unary(op, i as f64) as i64, dtype),
        }),
        Scalar::Float(x) => match op {
            Unary::IsNan => Scalar::Int(x.is_nan() as i64),
            Unary::IsInf => Scalar::Int(x.is_infinite() as i64),
            _ => Scalar::Float(float_unary(op, x)),
        },
    }
}

fn float_unary(op: Unary, x: f64) -> f64 {
    match op {
        Unary::Neg => -x,
        Unary::Abs => x.abs(),
        Unary::Floor => x.floor(),
        Unary::Ceil => x.ceil(),
        Unary::Round => x.round_ties_even(),
        Unary::Sign => {
            if x > 0.0 {
                1.0
            } else if x < 0.0 {
                -1.0
            } else {
                x
            }
        }
        Unary::Sqrt => x.sqrt(),
        Unary::Recip => 1.0 / x,
        Unary::Exp => x.exp(),
        Unary::Log => x.ln(),
        Unary::ExpMinusOne => x.exp_m1(),
        Unary::LogOnePlus => x.ln_1p(),
        Unary::Tanh => x.tanh(),
        Unary::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Unary::Erf => erf(x),
        Unary::Swish => x / (1.0 + (-x).exp()),
        Unary::Mish => x * x.exp().ln_1p().tanh(),
        Unary::Gelu => x * 0.5 * erfc(-x * std::f64::consts::FRAC_1_SQRT_2),
        Unary::Sin => x.sin(),
        Unary::Cos => x.cos(),
        Unary::Tan => x.tan(),
        Unary::Asin => x.asin(),
        Unary::Acos => x.acos(),
        Unary::Atan => x.atan(),
        Unary::Sinh => x.sinh(),
        Unary::Cosh => x.cosh(),
        Unary::Asinh => x.asinh(),
        Unary::Acosh => x.acosh(),
        Unary::Atanh => x.atanh(),
        Unary::Not => (x == 0.0) as u8 as f64,
        Unary::IsNan | Unary::IsInf => 0.0,
    }
}

/// `1 - erf(x)`, without cancellation for positive operands.
fn erfc(x: f64) -> f64 {
    if x < 2.5 { 1.0 - erf(x) } else { erfc_far(x) }
}

/// The continued fraction of `1 - erf(a)`, for operands from 2 on.
fn erfc_far(a: f64) -> f64 {
    let t = (1..=80).rev().fold(0.0, |t, k| k as f64 / 2.0 / (a + t));
    (-a * a).exp() / (a + t) * std::f64::consts::FRAC_2_SQRT_PI / 2.0
}

/// The error function: its Taylor series near 0, the continued fraction of erfc elsewhere. Error below 1e-14.
fn erf(x: f64) -> f64 {
    let a = x.abs();
    if a.is_nan() {
        return x;
    }
    let r = if a < 2.5 {
        let (mut term, mut sum, mut n) = (a, a, 0.0);
        while term.abs() > 1e-17 * sum.abs() {
            n += 1.0;
            term *= -a * a / n;
            sum += term / (2.0 * n + 1.0);
        }
        sum * std::f64::consts::FRAC_2_SQRT_PI
    } else {
        1.0 - erfc_far(a)
    };
    r.copysign(x)
}

pub(super) fn binary(op: Binary, dtype: DType, operand: DType, a: Scalar, b: Scalar) -> Scalar {
    match (a, b) {
        (Scalar::Int(a), Scalar::Int(b)) => {
            let v = int_binary(op, operand, a, b);
            Scalar::Int(if op.is_comparison() { v } else { wrap(v, dtype) })
        }
        _ => {
            let (a, b) = (a.as_f64(), b.as_f64());
            let nan = a.is_nan() || b.is_nan();
            Scalar::Float(match op {
                Binary::Add => a + b,
                Binary::Sub => a - b,
                Binary::Mul => a * b,
                Binary::Div => a / b,
                Binary::Min if nan => f64::NAN,
                Binary::Max if nan => f64::NAN,
                Binary::Min => a.min(b),
                Binary::Max => a.max(b),
                Binary::Pow => a.powf(b),
                Binary::Mod => {
                    let r = a % b;
                    if r != 0.0 && (r < 0.0) != (b < 0.0) { r + b } else { r }
                }
                Binary::Rem => a % b,
                Binary::Eq => return Scalar::Int((a == b) as i64),
                Binary::Lt => return Scalar::Int((a < b) as i64),
                Binary::Le => return Scalar::Int((a <= b) as i64),
                Binary::And => ((a != 0.0) && (b != 0.0)) as u8 as f64,
                Binary::Or => ((a != 0.0) || (b != 0.0)) as u8 as f64,
                Binary::Xor => ((a != 0.0) != (b != 0.0)) as u8 as f64,
                Binary::Shl | Binary::Shr => f64::NAN,
            })
        }
    }
}

fn int_binary(op: Binary, dtype: DType, a: i64, b: i64) -> i64 {
    let unsigned = dtype == DType::U64;
    let less = if unsigned { (a as u64) < b as u64 } else { a < b };
    match op {
        Binary::Add => a.wrapping_add(b),
        Binary::Sub => a.wrapping_sub(b),
        Binary::Mul => a.wrapping_mul(b),
        Binary::Div | Binary::Mod | Binary::Rem if b == 0 => 0,
        Binary::Div if unsigned => (a as u64 / b as u64) as i64,
        Binary::Mod | Binary::Rem if unsigned => (a as u64 % b as u64) as i64,
        Binary::Div => a.wrapping_div(b),
        Binary::Mod => {
            let r = a.wrapping_rem(b);
            if r != 0 && (r < 0) != (b < 0) { r + b } else { r }
        }
        Binary::Rem => a.wrapping_rem(b),
        Binary::Min => {
            if less {
                a
            } else {
                b
            }
        }
        Binary::Max => {
            if less {
                b
            } else {
                a
            }
        }
        Binary::Pow => {
            if b < 0 {
                match a {
                    1 => 1,
                    -1 => {
                        if b % 2 == 0 {
                            1
                        } else {
                            -1
                        }
                    }
                    _ => 0,
                }
            } else {
                let (mut base, mut e, mut r) = (a, b as u64, 1i64);
                while e > 0 {
                    if e & 1 == 1 {
                        r = r.wrapping_mul(base);
                    }
                    base = base.wrapping_mul(base);
                    e >>= 1;
                }
                r
            }
        }
        Binary::Eq => (a == b) as i64,
        Binary::Lt => less as i64,
        Binary::Le => (less || a == b) as i64,
        Binary::And => a & b,
        Binary::Or => a | b,
        Binary::Xor => a ^ b,
        Binary::Shl => {
            if (0..64).contains(&b) {
                a << b
            } else {
                0
            }
        }
        Binary::Shr => {
            if (0..64).contains(&b) {
                ((a as u64) >> b) as i64
            } else {
                0
            }
        }
    }
}

/// Computes a value that reads constants only. Copies move bytes, fills repeat them; the rest is interpreted.
pub(crate) fn evaluate_lazy(graph: &FusedGraph, lazy: &Lazy) -> Option<HostTensor> {
    let (dtype, count) = (lazy.dtype(), lazy.len());
    if lazy.inputs.is_empty() {
        let value = evaluate(&lazy.expr, None, &mut Vec::new(), |_| Scalar::Int(0));
        let one = match value {
            Scalar::Float(v) => HostTensor::from_f64(dtype, &[1], &[v]),
            Scalar::Int(v) => HostTensor::from_ints(dtype, &[1], &[v]),
        };
        return HostTensor::filled(dtype, &lazy.shape, one.bytes()).ok();
    }
    if let Some(access) = lazy.as_read()
        && access.is_plain()
        && let Role::Constant(source) = &graph.tensor(access.tensor).role
    {
        return match source.fill() {
            Some(element) => HostTensor::filled(dtype, &lazy.shape, element).ok(),
            None => HostTensor::new(dtype, &lazy.shape, copy_strided(source, &access.view)).ok(),
        };
    }
    let mut it = Interpreter::new(graph);
    for a in &lazy.inputs {
        it.fetch(graph, a.tensor);
        for i in &a.indirect {
            it.fetch(graph, i.index);
        }
    }
    let mut out = Data::zeros(dtype, count);
    let (mut cells, mut n) = (Vec::new(), 0);
    each(&lazy.grid, |coords| {
        let v = evaluate(&lazy.expr, None, &mut cells, |i| it.read(&lazy.inputs[i as usize], coords));
        out.set(n, v);
        n += 1;
    });
    Some(out.host(dtype, &lazy.shape))
}

fn copy_strided(source: &HostTensor, view: &View) -> Vec<u8> {
    let size = source.dtype().size();
    let bytes = source.bytes();
    let mut out = Vec::with_capacity(view.len() * size);
    if view.is_dense() {
        let at = view.offset as usize * size;
        out.extend_from_slice(&bytes[at..at + view.len() * size]);
        return out;
    }
    let inner = view.dims.last().copied().unwrap_or(1);
    let step = view.strides.last().copied().unwrap_or(0);
    let outer = View {
        offset: view.offset,
        dims: view.dims[..view.rank().saturating_sub(1)].to_vec(),
        strides: view.strides[..view.rank().saturating_sub(1)].to_vec(),
    };
    each(&outer.dims, |c| {
        let mut at = outer.at(c);
        for _ in 0..inner {
            let byte = at as usize * size;
            out.extend_from_slice(&bytes[byte..byte + size]);
            at += step;
        }
    });
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn erf_agrees_with_tables() {
        for (x, want) in [
            (0.0, 0.0),
            (0.1, 0.112_462_916_018_284_9),
            (0.5, 0.520_499_877_813_046_5),
            (1.0, 0.842_700_792_949_714_9),
            (2.0, 0.995_322_265_018_952_7),
            (2.5, 0.999_593_047_982_555),
            (3.0, 0.999_977_909_503_001_4),
            (6.0, 1.0),
        ] {
            assert!((erf(x) - want).abs() < 1e-14, "erf({x}) = {}", erf(x));
            assert_eq!(erf(-x), -erf(x));
        }
    }

    #[test]
    fn casts_round_saturate_and_wrap() {
        assert_eq!(cast(Scalar::Float(1e10), DType::I32).as_i64(), i32::MAX as i64);
        assert_eq!(cast(Scalar::Float(-3.7), DType::I8).as_i64(), -3);
        assert_eq!(cast(Scalar::Float(-3.7), DType::U8).as_i64(), 0);
        assert_eq!(cast(Scalar::Int(300), DType::U8).as_i64(), 44);
        assert_eq!(cast(Scalar::Int(3), DType::Bool).as_i64(), 1);
        assert_eq!(cast(Scalar::Float(0.1), DType::F32).as_f64(), 0.1f32 as f64);
        assert_eq!(cast(Scalar::Float(f64::NAN), DType::I64).as_i64(), 0);
    }

    #[test]
    fn integer_arithmetic_never_panics() {
        for op in [Binary::Div, Binary::Mod, Binary::Rem, Binary::Pow, Binary::Shl, Binary::Shr] {
            for a in [i64::MIN, -1, 0, 1, i64::MAX] {
                for b in [i64::MIN, -1, 0, 1, 64, i64::MAX] {
                    int_binary(op, DType::I64, a, b);
                }
            }
        }
        assert_eq!(int_binary(Binary::Mod, DType::I64, -7, 3), 2);
        assert_eq!(int_binary(Binary::Rem, DType::I64, -7, 3), -1);
        assert_eq!(int_binary(Binary::Pow, DType::I64, -2, 3), -8);
    }
}
