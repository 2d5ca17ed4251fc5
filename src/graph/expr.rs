//! Scalar expressions: what a kernel computes for one element.
//!
//! An [`Expr`] is a list of operations in SSA form, operands before users; the last node is the result. It is built
//! through methods that fold constants of trivial cases and share equal nodes, so composing expressions never repeats
//! work. Pointwise steps evaluate it over their operands, and every producing kernel (convolution, matrix product,
//! pooling, reduction ...) evaluates one as its epilogue, with [`Op::Acc`] standing for the value it has just computed.

use super::activations;
use crate::tensor::DType;
use std::fmt;

/// A node of an [`Expr`], by position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Val(pub u32);

impl Val {
    /// Position in [`Expr::nodes`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A literal. Floats compare by bits, so expressions can be shared and compared.
#[derive(Clone, Copy, Debug)]
pub enum Scalar {
    /// For the float types; rounded to the node's type where it is used.
    Float(f64),
    /// For the integer types and `Bool`.
    Int(i64),
}

impl Scalar {
    /// The literal as a double.
    pub fn as_f64(self) -> f64 {
        match self {
            Scalar::Float(v) => v,
            Scalar::Int(v) => v as f64,
        }
    }

    /// The literal as an integer, truncated toward zero.
    pub fn as_i64(self) -> i64 {
        match self {
            Scalar::Float(v) => v as i64,
            Scalar::Int(v) => v,
        }
    }

    /// `value` as a literal of `dtype`.
    pub fn of(dtype: DType, value: f64) -> Scalar {
        if dtype.is_float() { Scalar::Float(value) } else { Scalar::Int(value as i64) }
    }
}

impl PartialEq for Scalar {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Scalar::Float(a), Scalar::Float(b)) => a.to_bits() == b.to_bits(),
            (Scalar::Int(a), Scalar::Int(b)) => a == b,
            _ => false,
        }
    }
}

impl Eq for Scalar {}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::Float(v) => write!(f, "{v:?}"),
            Scalar::Int(v) => write!(f, "{v}"),
        }
    }
}

/// Operations of one operand. Operand and result have the node's type unless stated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unary {
    /// `-x`
    Neg,
    /// `|x|`
    Abs,
    /// Largest integer not above `x`.
    Floor,
    /// Smallest integer not below `x`.
    Ceil,
    /// Nearest integer, halves to even.
    Round,
    /// -1, 0 or 1.
    Sign,
    /// Square root.
    Sqrt,
    /// `1 / x`
    Recip,
    /// `e^x`
    Exp,
    /// Natural logarithm.
    Log,
    /// `e^x - 1`, precise near 0.
    ExpMinusOne,
    /// `ln(1 + x)`, precise near 0.
    LogOnePlus,
    /// Hyperbolic tangent.
    Tanh,
    /// `1 / (1 + e^-x)`
    Sigmoid,
    /// Error function.
    Erf,
    /// `x / (1 + e^-x)`
    Swish,
    /// `x tanh(ln(1 + e^x))`
    Mish,
    /// `x (1 + erf(x / √2)) / 2`
    Gelu,
    /// Sine of radians.
    Sin,
    /// Cosine of radians.
    Cos,
    /// Tangent of radians.
    Tan,
    /// Inverse sine.
    Asin,
    /// Inverse cosine.
    Acos,
    /// Inverse tangent.
    Atan,
    /// Hyperbolic sine.
    Sinh,
    /// Hyperbolic cosine.
    Cosh,
    /// Inverse hyperbolic sine.
    Asinh,
    /// Inverse hyperbolic cosine.
    Acosh,
    /// Inverse hyperbolic tangent.
    Atanh,
    /// Logical (Bool) or bitwise (integers) complement.
    Not,
    /// Is it a NaN? Result `Bool`.
    IsNan,
    /// Is it infinite? Result `Bool`.
    IsInf,
}

/// Operations of two operands of one type; that is also the result's type unless stated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Binary {
    /// Sum; integers wrap.
    Add,
    /// Difference; integers wrap.
    Sub,
    /// Product; integers wrap.
    Mul,
    /// Quotient; integers truncate toward zero.
    Div,
    /// The smaller operand; a NaN wins.
    Min,
    /// The larger operand; a NaN wins.
    Max,
    /// `a^b`
    Pow,
    /// Remainder with the sign of the divisor (Python's `%`).
    Mod,
    /// Remainder with the sign of the dividend (C's `fmod` and `%`).
    Rem,
    /// `a == b`, result `Bool`.
    Eq,
    /// `a < b`, result `Bool`.
    Lt,
    /// `a <= b`, result `Bool`.
    Le,
    /// Logical or bitwise and.
    And,
    /// Logical or bitwise or.
    Or,
    /// Logical or bitwise exclusive or.
    Xor,
    /// Shift left; the operand is unsigned.
    Shl,
    /// Logical shift right; the operand is unsigned.
    Shr,
}

impl Binary {
    /// True for the comparisons, whose result is `Bool`.
    pub const fn is_comparison(self) -> bool {
        matches!(self, Binary::Eq | Binary::Lt | Binary::Le)
    }
}

/// What a node computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// The value the producing kernel computed. Only in epilogues.
    Acc,
    /// The value that the producing kernel computed of the column that goes with this one ([`Gated`](super::fused::Gated)). Only in epilogues.
    Paired,
    /// The element that operand number `i` of the step has at the current coordinates.
    Input(u32),
    /// A literal.
    Const(Scalar),
    /// One operand.
    Unary(Unary, Val),
    /// Two operands.
    Binary(Binary, Val, Val),
    /// `cond ? then : other`; `cond` is `Bool`.
    Select(Val, Val, Val),
    /// The operand converted to the node's type: floats round to nearest even, float to integer truncates and
    /// saturates, anything to `Bool` is `x != 0`, integer to narrower integer wraps.
    Cast(Val),
    /// The bits of the operand as the node's type, which has the same size.
    Bits(Val),
}

/// One operation and the type of its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// What it computes.
    pub op: Op,
    /// The result's type.
    pub dtype: DType,
}

/// A scalar expression; the last node is its result.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Expr {
    nodes: Vec<Node>,
}

impl Expr {
    /// An expression without nodes, to build upon.
    pub fn new() -> Expr {
        Expr::default()
    }

    /// The expression that passes on the kernel's own value.
    pub fn acc(dtype: DType) -> Expr {
        Expr { nodes: vec![Node { op: Op::Acc, dtype }] }
    }

    /// The expression that passes on operand 0.
    pub fn copy(dtype: DType) -> Expr {
        Expr { nodes: vec![Node { op: Op::Input(0), dtype }] }
    }

    /// The nodes, operands before users.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The result. Panics for an expression without nodes.
    pub fn result(&self) -> Val {
        assert!(!self.nodes.is_empty(), "an expression has at least one node");
        Val(self.nodes.len() as u32 - 1)
    }

    /// The result's type. Panics for an expression without nodes.
    pub fn dtype(&self) -> DType {
        self.nodes[self.result().index()].dtype
    }

    /// The type of one node.
    pub fn type_of(&self, v: Val) -> DType {
        self.nodes[v.index()].dtype
    }

    /// True when the result is the kernel's own value, unchanged.
    pub fn is_acc(&self) -> bool {
        matches!(self.nodes.as_slice(), [Node { op: Op::Acc, .. }])
    }

    /// True when the result is one operand, unchanged.
    pub fn is_copy(&self) -> bool {
        matches!(self.nodes.as_slice(), [Node { op: Op::Input(_), .. }])
    }

    /// Number of operations that cost an instruction.
    pub fn cost(&self) -> usize {
        self.nodes.iter().filter(|n| !matches!(n.op, Op::Acc | Op::Paired | Op::Input(_) | Op::Const(_))).count()
    }

    /// Adds a node, or finds the equal one that is already there.
    pub fn push(&mut self, op: Op, dtype: DType) -> Val {
        let node = Node { op, dtype };
        match self.nodes.iter().position(|n| *n == node) {
            Some(i) => Val(i as u32),
            None => {
                self.nodes.push(node);
                Val(self.nodes.len() as u32 - 1)
            }
        }
    }

    /// The kernel's own value.
    pub fn push_acc(&mut self, dtype: DType) -> Val {
        self.push(Op::Acc, dtype)
    }

    /// Operand `i` of the step.
    pub fn input(&mut self, i: usize, dtype: DType) -> Val {
        self.push(Op::Input(i as u32), dtype)
    }

    /// A literal of `dtype`.
    pub fn constant(&mut self, dtype: DType, value: f64) -> Val {
        self.push(Op::Const(Scalar::of(dtype, value)), dtype)
    }

    /// A literal that may need all 64 bits of an integer.
    pub fn literal(&mut self, dtype: DType, value: Scalar) -> Val {
        self.push(Op::Const(value), dtype)
    }

    /// Applies a unary operation.
    pub fn unary(&mut self, op: Unary, a: Val) -> Val {
        let dtype = match op {
            Unary::IsNan | Unary::IsInf => DType::Bool,
            _ => self.type_of(a),
        };
        self.push(Op::Unary(op, a), dtype)
    }

    /// Applies a binary operation; `x + 0`, `x * 1` and the like vanish, and products that are activations are these.
    pub fn binary(&mut self, op: Binary, a: Val, b: Val) -> Val {
        let is = |v: Val, want: f64| match self.nodes[v.index()].op {
            Op::Const(Scalar::Float(c)) => c == want && (c != 0.0 || c.is_sign_positive()),
            Op::Const(Scalar::Int(c)) => c as f64 == want,
            _ => false,
        };
        match op {
            Binary::Mul | Binary::Div if is(b, 1.0) => return a,
            Binary::Mul if is(a, 1.0) => return b,
            Binary::Pow if is(b, 1.0) => return a,
            Binary::Sub | Binary::Xor if is(b, 0.0) => return a,
            Binary::Add if is(b, 0.0) => return a,
            Binary::Add if is(a, 0.0) => return b,
            Binary::Mul => {
                if let Some(v) = activations::product(self, a, b) {
                    return v;
                }
            }
            _ => {}
        }
        let dtype = if op.is_comparison() { DType::Bool } else { self.type_of(a) };
        self.push(Op::Binary(op, a, b), dtype)
    }

    /// `cond ? then : other`
    pub fn select(&mut self, cond: Val, then: Val, other: Val) -> Val {
        match self.nodes[cond.index()].op {
            _ if then == other => return then,
            Op::Const(c) => return if c.as_f64() == 0.0 { other } else { then },
            _ => {}
        }
        let dtype = self.type_of(then);
        self.push(Op::Select(cond, then, other), dtype)
    }

    /// Converts to `dtype`; nothing when it is that type already, or one of it that was widened. Literals of few bits are literals of floats.
    pub fn cast(&mut self, a: Val, dtype: DType) -> Val {
        let wide = self.type_of(a);
        match self.nodes[a.index()].op {
            _ if wide == dtype => a,
            Op::Const(c) if wide.is_int() && wide.bits() <= 16 && dtype == DType::F32 => {
                self.constant(dtype, c.as_f64())
            }
            // Every float has these.
            Op::Const(c) if wide.is_float() && dtype.is_float() && [0.0, 1.0].contains(&c.as_f64()) => {
                self.constant(dtype, c.as_f64())
            }
            Op::Cast(x) if self.type_of(x) == dtype && dtype.is_half() && wide == DType::F32 => x,
            _ => self.push(Op::Cast(a), dtype),
        }
    }

    /// The bits of a value as another type of its size.
    pub fn bits(&mut self, a: Val, dtype: DType) -> Val {
        self.push(Op::Bits(a), dtype)
    }

    /// Appends the nodes of `other`. Its operand `i` becomes what `input(self, i)` says and its [`Op::Acc`] becomes
    /// `acc`. Returns where the result of `other` is now.
    ///
    /// Panics when `other` has no nodes, or uses [`Op::Acc`] while `acc` is `None`.
    pub fn append(
        &mut self,
        other: &Expr,
        acc: Option<Val>,
        mut input: impl FnMut(&mut Expr, u32, DType) -> Val,
    ) -> Val {
        let mut map: Vec<Val> = Vec::with_capacity(other.nodes.len());
        for node in &other.nodes {
            let at = |v: Val| map[v.index()];
            let new = match node.op {
                Op::Acc => acc.expect("an accumulator to stand for Acc"),
                Op::Input(i) => input(self, i, node.dtype),
                Op::Paired | Op::Const(_) => self.push(node.op, node.dtype),
                Op::Unary(op, a) => self.push(Op::Unary(op, at(a)), node.dtype),
                Op::Binary(op, a, b) => self.binary(op, at(a), at(b)),
                Op::Select(c, a, b) => self.select(at(c), at(a), at(b)),
                Op::Cast(a) => {
                    let a = at(a);
                    self.cast(a, node.dtype)
                }
                Op::Bits(a) => self.push(Op::Bits(at(a)), node.dtype),
            };
            map.push(new);
        }
        *map.last().expect("an expression has at least one node")
    }

    /// Makes `v` the result: drops every node that it does not need.
    pub fn finish(mut self, v: Val) -> Expr {
        let mut used = vec![false; self.nodes.len()];
        used[v.index()] = true;
        for i in (0..=v.index()).rev() {
            if used[i] {
                for o in operands(self.nodes[i].op) {
                    used[o.index()] = true;
                }
            }
        }
        let mut map = vec![Val(0); self.nodes.len()];
        let mut kept = 0u32;
        for i in 0..=v.index() {
            if used[i] {
                let mut node = self.nodes[i];
                node.op = rename(node.op, |o| map[o.index()]);
                self.nodes[kept as usize] = node;
                map[i] = Val(kept);
                kept += 1;
            }
        }
        self.nodes.truncate(kept as usize);
        self
    }

    /// The same expression with its operands renumbered.
    pub fn map_inputs(&self, mut f: impl FnMut(u32) -> u32) -> Expr {
        let mut e = self.clone();
        for n in &mut e.nodes {
            if let Op::Input(i) = &mut n.op {
                *i = f(*i);
            }
        }
        e
    }
}

/// The nodes that `op` reads.
pub fn operands(op: Op) -> impl Iterator<Item = Val> {
    let list = match op {
        Op::Acc | Op::Paired | Op::Input(_) | Op::Const(_) => [None; 3],
        Op::Unary(_, a) | Op::Cast(a) | Op::Bits(a) => [Some(a), None, None],
        Op::Binary(_, a, b) => [Some(a), Some(b), None],
        Op::Select(a, b, c) => [Some(a), Some(b), Some(c)],
    };
    list.into_iter().flatten()
}

pub(super) fn rename(op: Op, f: impl Fn(Val) -> Val) -> Op {
    match op {
        Op::Acc | Op::Paired | Op::Input(_) | Op::Const(_) => op,
        Op::Unary(o, a) => Op::Unary(o, f(a)),
        Op::Cast(a) => Op::Cast(f(a)),
        Op::Bits(a) => Op::Bits(f(a)),
        Op::Binary(o, a, b) => Op::Binary(o, f(a), f(b)),
        Op::Select(a, b, c) => Op::Select(f(a), f(b), f(c)),
    }
}

impl fmt::Display for Expr {
    /// One line in call notation: nodes used once are nested, the others named `tN`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut uses = vec![0usize; self.nodes.len()];
        for n in &self.nodes {
            operands(n.op).for_each(|o| uses[o.index()] += 1);
        }
        let mut text: Vec<String> = Vec::with_capacity(self.nodes.len());
        for (i, n) in self.nodes.iter().enumerate() {
            let at = |v: &Val| text[v.index()].as_str();
            let leaf = matches!(n.op, Op::Acc | Op::Paired | Op::Input(_) | Op::Const(_));
            let s = match &n.op {
                Op::Acc => "acc".to_string(),
                Op::Paired => "paired".to_string(),
                Op::Input(k) => format!("in{k}"),
                Op::Const(c) => c.to_string(),
                Op::Unary(op, a) => format!("{}({})", format!("{op:?}").to_lowercase(), at(a)),
                Op::Binary(op, a, b) => format!("{}({}, {})", format!("{op:?}").to_lowercase(), at(a), at(b)),
                Op::Select(c, a, b) => format!("select({}, {}, {})", at(c), at(a), at(b)),
                Op::Cast(a) => format!("{}({})", n.dtype, at(a)),
                Op::Bits(a) => format!("{}_of_bits({})", n.dtype, at(a)),
            };
            if uses[i] > 1 && !leaf {
                write!(f, "t{i} = {s}; ")?;
                text.push(format!("t{i}"));
            } else {
                text.push(s);
            }
        }
        f.write_str(text.last().map_or("", |s| s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_nodes_are_shared_and_trivial_ones_vanish() {
        let mut e = Expr::new();
        let x = e.input(0, DType::F32);
        let one = e.constant(DType::F32, 1.0);
        let zero = e.constant(DType::F32, 0.0);
        let y = e.binary(Binary::Mul, x, one);
        assert_eq!(y, x);
        let a = e.binary(Binary::Max, y, zero);
        let b = e.binary(Binary::Max, x, zero);
        assert_eq!(a, b);
        let e = e.finish(a);
        assert_eq!(e.to_string(), "max(in0, 0.0)");
        assert_eq!(e.nodes().len(), 3);
    }

    #[test]
    fn appending_replaces_inputs_and_accumulator() {
        let mut bias = Expr::new();
        let acc = bias.push_acc(DType::F32);
        let b = bias.input(2, DType::F32);
        let sum = bias.binary(Binary::Add, acc, b);
        let bias = bias.finish(sum);
        let mut silu = Expr::new();
        let x = silu.input(0, DType::F32);
        let s = silu.unary(Unary::Sigmoid, x);
        let r = silu.binary(Binary::Mul, x, s);
        let silu = silu.finish(r);

        let mut e = bias.clone();
        let at = e.result();
        let r = e.append(&silu, None, |_, _, _| at);
        assert_eq!(e.finish(r).to_string(), "t2 = add(acc, in2); mul(t2, sigmoid(t2))");
    }

    #[test]
    fn finish_drops_what_is_unused() {
        let mut e = Expr::new();
        let x = e.input(0, DType::F32);
        e.unary(Unary::Exp, x);
        let y = e.unary(Unary::Neg, x);
        e.unary(Unary::Log, y);
        let e = e.finish(y);
        assert_eq!(e.to_string(), "neg(in0)");
        assert_eq!(e.cost(), 1);
    }
}
