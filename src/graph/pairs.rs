//! Dense products of which one gates the other become one product of pairs of columns ([`Gated`]).
//!
//! A gated layer multiplies the same rows by two constants, and makes one result of a column of each. Exporters write that as two products, of which
//! one then has the other as an operand of its end, or as one of twice as many columns whose halves an elementwise step puts together. Where
//! the columns of a pair lie side by side in the constant, who sums one of them sums the other, too, and stores their result alone.

use super::expr::{Expr, Op, Val};
use super::fused::{Access, FusedGraph, Gated, Role, Step, StepKind, Tensor, TensorId};
use super::join;
use super::uses::{Changes, Changing, Uses};
use super::view::View;
use crate::tensor::{DType, HostTensor, Room};
use rayon::prelude::*;

/// The graph with such products, where `worth` says yes to one and the steps whose place it takes; `None` where there are none.
pub(crate) fn gate_dense_products(
    graph: &FusedGraph,
    worth: impl Fn(&FusedGraph, &Step, [&Step; 2]) -> bool,
) -> Option<FusedGraph> {
    let (mut changing, mut room) = (Changing::of(graph), Room::default());
    for at in 0..graph.steps.len() {
        let (now, uses) = (changing.graph(), changing.uses());
        if let Some(found) = Found::of_halves(now, uses, at).or_else(|| Found::of_two(now, uses, at)) {
            changing.attempt(|graph, _| found.changes(graph, at, &worth, &mut room));
        }
    }
    changing.end()
}

/// A product of pairs, whose constant is still to be made.
struct Found {
    step: Step,
    /// The constant with the first columns of all pairs in front of the second ones, and the dimension along which these are.
    weights: HostTensor,
    axis: usize,
    /// The step in front of the one whose place it takes, which goes.
    before: usize,
}

impl Found {
    /// Of an elementwise step that puts the halves of a product's rows together.
    fn of_halves(graph: &FusedGraph, uses: &Uses, at: usize) -> Option<Found> {
        let step = &graph.steps[at];
        if step.kind != StepKind::Pointwise || !step.inputs.iter().all(Access::is_plain) {
            return None;
        }
        let (whole, before) = step.inputs.iter().find_map(|a| Some((a.tensor, product(graph, uses, a.tensor, at)?)))?;
        let product = &graph.steps[before];
        let dims = &product.output.view.dims;
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
        let (axis, weights) = (join::side(graph, product)?, constant(graph, product)?.clone());
        let step = Step {
            name: format!("{}+{}", product.name, step.name),
            kind: StepKind::Gated(Gated { rows: None }),
            inputs,
            expr: expr.finish(result),
            output,
        };
        Some(Found { step, weights, axis, before })
    }

    /// Of a product whose end has another one of the same rows as an operand.
    fn of_two(graph: &FusedGraph, uses: &Uses, at: usize) -> Option<Found> {
        let step = &graph.steps[at];
        if step.kind != StepKind::MatMul || !uses.writers[step.output.tensor.index()].contains(&at) {
            return None;
        }
        let (number, before) = step.inputs.iter().enumerate().skip(2).find_map(|(i, a)| {
            let before = product(graph, uses, a.tensor, at)?;
            let once = step.inputs.iter().filter(|other| other.tensor == a.tensor).count() == 1;
            (once && a.is_plain() && agree(&a.view, &graph.steps[before].output.view)).then_some((i, before))
        })?;
        let first = &graph.steps[before];
        let both = [step, first];
        let [own, other] = both.map(|s| &s.inputs[1]);
        let alike = step.inputs[0] == first.inputs[0] && own.view == other.view;
        let same = graph.tensor(own.tensor).dtype == graph.tensor(other.tensor).dtype;
        let columns = *step.output.view.dims.last()?;
        if !alike || !same || !columns.is_multiple_of(Gated::GROUP) {
            return None;
        }
        let axis = join::side(graph, step)?;
        let weights = join::joined_weights(graph, &both, 1)?;
        let d = step.output.view.rank() - 1;
        let view = join::widened(step, 1, &[columns; 2], d);
        let mut inputs = vec![step.inputs[0].clone(), Access { view, ..own.clone() }];
        let mut expr = Expr::new();
        let read = |expr: &mut Expr, inputs: &mut Vec<Access>, access: &Access, dtype| {
            operand(expr, inputs, access.clone(), dtype)
        };
        let acc = push_side(&mut expr, step, 0);
        let result = expr.append(&step.expr, acc, |expr, i, dtype| match i as usize {
            i if i == number => end_of(expr, first, 1, |expr, a, dtype| read(expr, &mut inputs, a, dtype)),
            i => read(expr, &mut inputs, &step.inputs[i], dtype),
        });
        let step = Step {
            name: format!("{}+{}", first.name, step.name),
            kind: StepKind::Gated(Gated { rows: None }),
            inputs,
            expr: expr.finish(result),
            output: step.output.clone(),
        };
        Some(Found { step, weights, axis, before })
    }

    /// What changes, where that is worth it.
    fn changes(
        self,
        graph: &mut FusedGraph,
        at: usize,
        worth: &impl Fn(&FusedGraph, &Step, [&Step; 2]) -> bool,
        room: &mut Room,
    ) -> Option<Changes> {
        let Found { mut step, weights, axis, before } = self;
        let (dtype, shape) = (weights.dtype(), weights.shape().to_vec());
        let empty = HostTensor::filled(dtype, &shape, &vec![0; dtype.size()]).ok()?;
        let name = graph.tensor(step.inputs[1].tensor).name.clone();
        let made = graph.add_tensor(Tensor { name, dtype, shape, role: Role::Constant(empty) });
        step.inputs[1].tensor = made;
        let parts = [&graph.steps[before], &graph.steps[at]];
        if graph.step_promises(&step).is_err() || !worth(graph, &step, parts) {
            return None;
        }
        graph.tensors[made.index()].role =
            Role::Constant(in_pairs(&weights, step.inputs[1].view.dims.iter().rev(), axis, room)?);
        Some(vec![(before, None), (at, Some(step))])
    }
}

/// The product by a constant, in front of step `reader`, that wrote all of a tensor which that step alone reads.
fn product(graph: &FusedGraph, uses: &Uses, t: TensorId, reader: usize) -> Option<usize> {
    let &[writer] = &uses.writers[t.index()][..] else { return None };
    let step = &graph.steps[writer];
    let alone = graph.tensor(t).role == Role::Intermediate && uses.readers[t.index()] == [reader];
    let dense = join::lying(graph, &step.output).is_some_and(|order| order.is_sorted());
    let known = matches!(
        graph.tensor(step.inputs.get(1)?.tensor).dtype,
        DType::F32 | DType::F16 | DType::BF16 | DType::I8 | DType::U8
    );
    (step.kind == StepKind::MatMul && alone && dense && known && join::side(graph, step).is_some()).then_some(writer)
}

fn constant<'g>(graph: &'g FusedGraph, product: &Step) -> Option<&'g HostTensor> {
    match &graph.tensor(product.inputs[1].tensor).role {
        Role::Constant(data) => Some(data),
        _ => None,
    }
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

/// A constant in the order of pairs. What lies along the other dimension is read in `room`.
fn in_pairs<'d>(
    weights: &HostTensor,
    mut extents: impl Iterator<Item = &'d usize>,
    axis: usize,
    room: &mut Room,
) -> Option<HostTensor> {
    let (columns, depth) = (*extents.next()?, *extents.next()?);
    let size = weights.dtype().size();
    let (line, each) = if axis == 1 { (columns * size, size) } else { (columns * depth * size, depth * size) };
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
