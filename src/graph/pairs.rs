//! Dense products of which one gates the other become one product of pairs of columns ([`Gated`]).
//!
//! A gated layer multiplies the same rows by two constants, and makes one result of a column of each. Exporters write that as two products, of which
//! one then has the other as an operand of its end, or as one of twice as many columns whose halves an elementwise step puts together. Where
//! the columns of a pair lie side by side in the constant, who sums one of them sums the other, too, and stores their result alone.
//!
//! Packed weights that are widened before so many rows are multiplied by them are put in that order while they are packed.

use super::expr::{Expr, Op, Val};
use super::fused::{Access, FusedGraph, Gated, Packed, Role, Step, StepKind, Tensor, TensorId};
use super::join;
use super::unpack::widened_weights;
use super::uses::{Changes, Changing, Uses};
use super::view::View;
use crate::tensor::{DType, HostTensor, Room};
use rayon::prelude::*;

/// The graph with such products, where `worth` says yes to one and the steps whose place it takes; `None` where there are none.
pub(crate) fn gate_dense_products(
    graph: &FusedGraph,
    worth: impl Fn(&FusedGraph, &Step, [&Step; 2]) -> bool,
) -> Option<FusedGraph> {
    gated(graph, &|_, step| step.kind == StepKind::MatMul, worth)
}

/// The same of products with packed weights, of those that `which` names, whose weights are widened.
pub(crate) fn gate_widened_products(
    graph: &FusedGraph,
    which: impl Fn(&FusedGraph, &Step) -> bool,
    worth: impl Fn(&FusedGraph, &Step, [&Step; 2]) -> bool,
) -> Option<FusedGraph> {
    let takes = |graph: &FusedGraph, step: &Step| match &step.kind {
        StepKind::Packed(p) => p.rows.is_none() && p.gate.is_none() && which(graph, step),
        _ => false,
    };
    gated(graph, &takes, worth)
}

/// The same of products that are taken.
fn gated(
    graph: &FusedGraph,
    takes: &dyn Fn(&FusedGraph, &Step) -> bool,
    worth: impl Fn(&FusedGraph, &Step, [&Step; 2]) -> bool,
) -> Option<FusedGraph> {
    let (mut changing, mut room) = (Changing::of(graph), Room::default());
    for at in 0..graph.steps.len() {
        let search = Search { graph: changing.graph(), uses: changing.uses(), takes };
        if let Some(found) = search.halves(at).or_else(|| search.two(at)) {
            changing.attempt(|graph, _| found.changes(graph, at, &worth, &mut room));
        }
    }
    changing.end()
}

/// A product of pairs, whose weights are still to be made.
struct Found {
    step: Step,
    /// The constants of a product of which each is that of two, the first columns of all pairs in front of the second ones: what they are
    /// like, and the dimension along which columns are.
    weights: Vec<(Access, HostTensor)>,
    axis: usize,
    /// How they are packed, if they are.
    packed: Option<Packed>,
    /// The step in front of the one whose place it takes, which goes.
    before: usize,
}

/// Where such products are looked for.
struct Search<'a> {
    graph: &'a FusedGraph,
    uses: &'a Uses,
    takes: &'a dyn Fn(&FusedGraph, &Step) -> bool,
}

impl Search<'_> {
    /// The product by a constant, in front of step `reader`, that wrote all of a tensor which that step alone reads.
    fn product(&self, t: TensorId, reader: usize) -> Option<usize> {
        let (graph, uses) = (self.graph, self.uses);
        let &[writer] = &uses.writers[t.index()][..] else { return None };
        let step = &graph.steps[writer];
        let alone = graph.tensor(t).role == Role::Intermediate && uses.readers[t.index()] == [reader];
        let dense = || join::lying(graph, &step.output).is_some_and(|order| order.is_sorted());
        let known = |a: &Access| {
            matches!(graph.tensor(a.tensor).dtype, DType::F32 | DType::F16 | DType::BF16 | DType::I8 | DType::U8)
        };
        let fits = alone && step.inputs.get(1).is_some_and(known) && (self.takes)(graph, step) && dense();
        (fits && join::side(graph, step).is_some()).then_some(writer)
    }

    /// Of an elementwise step that puts the halves of a product's rows together.
    fn halves(&self, at: usize) -> Option<Found> {
        let graph = self.graph;
        let step = &graph.steps[at];
        if step.kind != StepKind::Pointwise || !step.inputs.iter().all(Access::is_plain) {
            return None;
        }
        let (whole, before) = step.inputs.iter().find_map(|a| Some((a.tensor, self.product(a.tensor, at)?)))?;
        let product = &graph.steps[before];
        let (dims, end) = (&product.output.view.dims, product.kind.operands());
        let (last, columns) = (dims.len() - 1, dims[dims.len() - 1] / 2);
        let results: Vec<usize> = dims[..last].iter().copied().chain([columns]).collect();
        let output = lifted(&step.output, &results)?;
        let others: Vec<Access> = step.inputs.iter().map(|a| lifted(a, &results)).collect::<Option<_>>()?;
        let half = |side: usize| product.output.view.sliced(last, side * columns, 1, columns);
        let side = |a: &Access| (0..2).find(|side| agree(&a.view, &half(*side)));
        let of_whole = others.iter().filter(|a| a.tensor == whole);
        let sides: Vec<usize> = of_whole.map(side).collect::<Option<_>>()?;
        if !(0..2).all(|side| sides.contains(&side)) || !dims[last].is_multiple_of(2 * Gated::GROUP) {
            return None;
        }
        let mut inputs = product.inputs[..2].to_vec();
        let mut expr = Expr::new();
        let result = expr.append(&step.expr, None, |expr, i, dtype| {
            let access = &others[i as usize];
            let Some(side) = (access.tensor == whole).then(|| side(access)).flatten() else {
                return operand(expr, &mut inputs, access.clone(), dtype);
            };
            end_of(expr, product, side, |expr, access, dtype| {
                let view = access.view.sliced(last, side * columns, 1, columns);
                operand(expr, &mut inputs, Access { view, ..access.clone() }, dtype)
            })
        });
        let weights = product.inputs[1..end].iter().map(|a| match &graph.tensor(a.tensor).role {
            Role::Constant(data) => Some((a.clone(), data.clone())),
            _ => None,
        });
        let name = format!("{}+{}", product.name, step.name);
        let step =
            Step { name, kind: StepKind::Gated(Gated { rows: None }), inputs, expr: expr.finish(result), output };
        let axis = join::side(graph, product)?;
        Some(Found { step, weights: weights.collect::<Option<_>>()?, axis, packed: packed(product), before })
    }

    /// Of a product whose end has another one of the same rows as an operand.
    fn two(&self, at: usize) -> Option<Found> {
        let graph = self.graph;
        let (step, end) = (&graph.steps[at], graph.steps[at].kind.operands());
        if !(self.takes)(graph, step) || !self.uses.writers[step.output.tensor.index()].contains(&at) {
            return None;
        }
        let (number, before) = step.inputs.iter().enumerate().skip(end).find_map(|(i, a)| {
            let before = self.product(a.tensor, at)?;
            let once = step.inputs.iter().filter(|other| other.tensor == a.tensor).count() == 1;
            (once && a.is_plain() && agree(&a.view, &graph.steps[before].output.view)).then_some((i, before))
        })?;
        let first = &graph.steps[before];
        let dtype = |a: &Access| graph.tensor(a.tensor).dtype;
        let alike = |k: usize| {
            let [own, other] = [step, first].map(|s| &s.inputs[k]);
            own.view == other.view && dtype(own) == dtype(other)
        };
        let same = step.kind == first.kind && step.inputs[0] == first.inputs[0] && (1..end).all(alike);
        let columns = *step.output.view.dims.last()?;
        if !same || !columns.is_multiple_of(Gated::GROUP) {
            return None;
        }
        let axis = join::side(graph, step)?;
        let d = step.output.view.rank() - 1;
        let weights = (1..end).map(|k| {
            let view = join::widened(step, k, &[columns; 2], d);
            Some((Access { view, ..step.inputs[k].clone() }, join::joined_weights(graph, &[step, first], k)?))
        });
        let weights: Vec<(Access, HostTensor)> = weights.collect::<Option<_>>()?;
        let mut inputs = vec![step.inputs[0].clone(), weights[0].0.clone()];
        let mut expr = Expr::new();
        let read = |expr: &mut Expr, inputs: &mut Vec<Access>, access: &Access, dtype| {
            operand(expr, inputs, access.clone(), dtype)
        };
        let acc = push_side(&mut expr, step, 0);
        let result = expr.append(&step.expr, acc, |expr, i, dtype| match i as usize {
            i if i == number => end_of(expr, first, 1, |expr, a, dtype| read(expr, &mut inputs, a, dtype)),
            i => read(expr, &mut inputs, &step.inputs[i], dtype),
        });
        let whole = Step {
            name: format!("{}+{}", first.name, step.name),
            kind: StepKind::Gated(Gated { rows: None }),
            inputs,
            expr: expr.finish(result),
            output: step.output.clone(),
        };
        Some(Found { step: whole, weights, axis, packed: packed(step), before })
    }
}

impl Found {
    /// What changes, where that is worth it.
    fn changes(
        self,
        graph: &mut FusedGraph,
        at: usize,
        worth: &impl Fn(&FusedGraph, &Step, [&Step; 2]) -> bool,
        room: &mut Room,
    ) -> Option<Changes> {
        let Found { mut step, weights, axis, packed, before } = self;
        let mut made = Vec::new();
        for (access, data) in &weights {
            let (dtype, shape) = (data.dtype(), data.shape().to_vec());
            let empty = HostTensor::filled(dtype, &shape, &vec![0; dtype.size()]).ok()?;
            let name = graph.tensor(access.tensor).name.clone();
            let tensor = graph.add_tensor(Tensor { name, dtype, shape, role: Role::Constant(empty) });
            made.push(Access { tensor, ..access.clone() });
        }
        let mut widening = None;
        let is_worth = match &packed {
            None => {
                step.inputs[1] = made[0].clone();
                worth(graph, &step, [&graph.steps[before], &graph.steps[at]])
            }
            Some(packed) => {
                let dtype = graph.tensor(step.inputs[0].tensor).dtype;
                let (first, wide) = widened_weights(graph, packed, &step.name, &made, dtype)?;
                widening = Some(first);
                step.inputs[1] = wide;
                let apart = apart(graph, &step, dtype);
                worth(graph, &step, apart.each_ref())
            }
        };
        if !is_worth || graph.step_promises(&step).is_err() {
            return None;
        }
        let columns = 2 * step.output.view.dims.last()?;
        for (access, (_, data)) in made.iter().zip(&weights) {
            graph.tensors[access.tensor.index()].role = Role::Constant(in_pairs(data, columns, axis, room)?);
        }
        Some(vec![(before, widening), (at, Some(step))])
    }
}

/// How the weights of a product are packed, if they are.
fn packed(product: &Step) -> Option<Packed> {
    match &product.kind {
        StepKind::Packed(p) => Some(p.clone()),
        _ => None,
    }
}

/// A product of pairs of widened weights as a product alone, and a step that makes results of what that stores.
fn apart(graph: &mut FusedGraph, step: &Step, dtype: DType) -> [Step; 2] {
    let mut dims = step.output.view.dims.clone();
    dims.iter_mut().last().into_iter().for_each(|columns| *columns *= 2);
    let whole = Tensor { name: step.name.clone(), dtype, shape: dims.clone(), role: Role::Intermediate };
    let output = Access::new(graph.add_tensor(whole), View::dense(&dims));
    let product = Step {
        kind: StepKind::MatMul,
        inputs: step.inputs[..2].to_vec(),
        expr: Expr::acc(dtype),
        output: output.clone(),
        ..step.clone()
    };
    [product, Step { kind: StepKind::Pointwise, inputs: vec![output], expr: Expr::copy(dtype), ..step.clone() }]
}

/// Both walk the same elements.
fn agree(x: &View, y: &View) -> bool {
    let strides =
        |v: &View| -> Vec<i64> { v.dims.iter().zip(&v.strides).map(|(d, s)| if *d == 1 { 0 } else { *s }).collect() };
    x.offset == y.offset && x.dims == y.dims && strides(x) == strides(y)
}

/// An access with the dimensions of a product's results, of which it may lack those in front that are 1.
fn lifted(a: &Access, dims: &[usize]) -> Option<Access> {
    let missing = dims.len().checked_sub(a.view.rank())?;
    if a.view.dims != dims[missing..] || dims[..missing].iter().any(|d| *d > 1) {
        return None;
    }
    let strides = std::iter::repeat_n(0, missing).chain(a.view.strides.iter().copied()).collect();
    let view = View { offset: a.view.offset, dims: dims.to_vec(), strides };
    Some(Access { view, ..a.clone() })
}

/// An operand of the expression, which may be there already.
fn operand(expr: &mut Expr, inputs: &mut Vec<Access>, access: Access, dtype: DType) -> Val {
    let known = inputs.iter().skip(2).position(|a| *a == access).map(|i| i + 2);
    let number = known.unwrap_or_else(|| {
        inputs.push(access);
        inputs.len() - 1
    });
    expr.input(number, dtype)
}

/// What a product computes of the first columns of pairs, or of the second ones, if its end asks for it.
fn push_side(expr: &mut Expr, product: &Step, side: usize) -> Option<Val> {
    let dtype = product.expr.nodes().iter().find(|n| n.op == Op::Acc)?.dtype;
    Some(expr.push([Op::Acc, Op::Paired][side], dtype))
}

/// The end of a product for one side of pairs. `read` gives its operands.
fn end_of(expr: &mut Expr, product: &Step, side: usize, mut read: impl FnMut(&mut Expr, &Access, DType) -> Val) -> Val {
    let acc = push_side(expr, product, side);
    expr.append(&product.expr, acc, |expr, i, dtype| read(expr, &product.inputs[i as usize], dtype))
}

/// A constant in the order of pairs of so many columns. What does not lie in memory is read in `room`.
fn in_pairs(weights: &HostTensor, columns: usize, axis: usize, room: &mut Room) -> Option<HostTensor> {
    let each = if axis == 1 { weights.dtype().size() } else { weights.byte_len() / columns };
    let line = columns * each;
    let own = weights.brought(room);
    let turn = |(to, from): (&mut [u8], &[u8])| {
        let (first, second) = from.split_at(line / 2);
        let group = Gated::GROUP * each;
        let pairs = first.chunks_exact(group).zip(second.chunks_exact(group));
        for (to, (first, second)) in to.chunks_exact_mut(2 * group).zip(pairs) {
            to[..group].copy_from_slice(first);
            to[group..].copy_from_slice(second);
        }
    };
    let written = HostTensor::written(weights.dtype(), weights.shape(), |out| {
        out.par_chunks_mut(line).zip(own.bytes().par_chunks(line)).for_each(turn);
    });
    written.ok()
}
