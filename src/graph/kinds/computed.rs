//! Softmax and normalisations of lines that an expression makes.

use super::{Inferred, Kind, Normalize, Operand, Softmax};
use crate::graph::expr::{Expr, Op};
use crate::graph::fused::Step;
use crate::graph::interpret::{Data, Error, Operands, each, evaluate};
use crate::graph::rules::Broken;
use crate::graph::view::View;
use std::fmt;
use std::ops::Range;

/// `O = rule(z)` where an expression of several operands makes each element of `z`: a residual's sum is normalised, masked scores have a
/// softmax. The step may write `z`, too.
#[derive(Clone, Debug, PartialEq)]
pub struct ComputedLines {
    /// What is done to lines.
    pub rule: LineRule,
    /// What an element of a line is: an expression of operands by their number in the step.
    pub element: Expr,
    /// How many of those there are, with the dimensions of the output.
    pub operands: usize,
    /// Operand 0 is where the step writes the elements, of the expression's type; its others come behind.
    pub kept: bool,
}

/// What is done to lines.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LineRule {
    /// Softmax over the last dimension.
    Softmax(Softmax),
    /// A normalisation over the last dimensions.
    Normalize(Normalize),
}

impl LineRule {
    /// The kind that does it to an operand's own elements.
    fn kind(&self) -> &dyn Kind {
        match self {
            LineRule::Softmax(s) => s,
            LineRule::Normalize(n) => n,
        }
    }

    /// Dimensions that a line is of: the last ones.
    pub fn axes(&self) -> usize {
        match self {
            LineRule::Softmax(_) => 1,
            LineRule::Normalize(n) => n.axes,
        }
    }
}

impl ComputedLines {
    /// The operands of the elements' expression.
    pub fn sources(&self) -> Range<usize> {
        let first = usize::from(self.kept);
        first..first + self.operands
    }

    /// All elements, in row-major order.
    fn elements(&self, at: &Operands<'_>) -> Vec<f64> {
        let (mut out, mut cells) = (Vec::new(), Vec::new());
        each(at.dims(), |c| {
            out.push(evaluate(&self.element, None, &mut cells, |i| at.element(i as usize, c)).as_f64());
        });
        out
    }
}

impl Kind for ComputedLines {
    fn name(&self) -> &'static str {
        match self.rule {
            LineRule::Softmax(_) => "computed_softmax",
            LineRule::Normalize(_) => "computed_normalize",
        }
    }

    fn operands(&self) -> usize {
        self.sources().end
    }

    fn filled(&self) -> &'static [usize] {
        if self.kept { &[0] } else { &[] }
    }

    fn infer(&self, operands: &[Operand<'_>], rank: usize) -> Result<Option<Inferred>, Broken> {
        let (dtype, (first, dims)) = (self.element.dtype(), operands[0]);
        let alike = operands.iter().all(|(_, d)| *d == dims) && !(self.kept && first != dtype);
        if !alike || !dtype.is_float() {
            return Err(Broken::Fit(format!("lines of {dtype} are not made of {operands:?}")));
        }
        self.rule.kind().infer(&[(dtype, dims)], rank)
    }

    fn check(&self, _: &Step) -> Result<(), Broken> {
        let known = |op: Op| match op {
            Op::Input(i) => self.sources().contains(&(i as usize)),
            op => op != Op::Acc,
        };
        match self.element.nodes().iter().all(|n| known(n.op)) {
            true => Ok(()),
            false => Err(Broken::Fit("elements are made of something else than their operands".into())),
        }
    }

    fn cut(&self, i: usize, d: usize, rank: usize) -> Option<Option<usize>> {
        self.rule.kind().cut(i, d, rank).filter(|_| !self.kept)
    }

    fn fill(&self, at: &Operands<'_>) -> Result<Vec<Data>, Error> {
        Ok(self.filled().iter().map(|_| Data::Float(self.elements(at))).collect())
    }

    fn interpret(&self, at: &Operands<'_>) -> Result<Option<Data>, Error> {
        let (elements, view) = (self.elements(at), View::dense(at.dims()));
        let out = match self.rule {
            LineRule::Softmax(s) => s.of_lines(&elements, &view),
            LineRule::Normalize(n) => n.of_lines(&elements, &view),
        };
        Ok(Some(Data::Float(out)))
    }

    /// Its dimensions are those of a step of the rule's kind, which were merged before.
    fn collapse(&self, _: &mut Step) {}

    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "    elements {}{}", self.element, if self.kept { ", kept in in0" } else { "" })?;
        self.rule.kind().print(f)
    }
}
