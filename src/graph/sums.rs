//! Convolutions that are added up become one.
//!
//! A residual block whose shortcut is a projection adds two convolutions, of which the epilogue of one reads what the other has
//! written. As products they have the same rows and columns: one product whose depth is that of both, one behind the other, has
//! their sum, and nothing of it goes through memory ([`Conv::also`]). What each of them is multiplied with by its channels (batch
//! normalisation) goes into its weights before. Whoever asks says what is worth it.

use super::compose::{MAX_COST, MAX_INPUTS};
use super::expr::{Binary, Expr, Op, Val, operands, rename};
use super::fused::{Access, Conv, FusedGraph, Role, Step, StepKind, Summand, Tensor, TensorId};
use super::join::{own_part, side};
use super::prune::prune;
use super::uses::Uses;
use super::view::View;
use crate::tensor::{DType, HostTensor};

/// The graph with such convolutions as one, where `worth` says yes to the whole instead of both; `None` where there are none.
pub(crate) fn sum_convolutions(
    graph: &FusedGraph,
    worth: impl Fn(&FusedGraph, &Step, [&Step; 2]) -> bool,
) -> Option<FusedGraph> {
    let mut out: Option<FusedGraph> = None;
    let uses = Uses::of(graph);
    let mut gone = vec![false; graph.steps.len()];
    for at in 0..graph.steps.len() {
        // The summands of a step one by one; whole sums are summands of later ones.
        loop {
            let now = out.as_ref().unwrap_or(graph);
            let wholes = (0..now.steps[at].inputs.len()).filter_map(|i| Sum::of(now, &uses, at, i));
            let fits = |s: &Sum| {
                let parts = [&now.steps[s.first], &now.steps[at]];
                now.step_promises(&s.step).is_ok() && worth(now, &s.step, parts)
            };
            let Some(sum) = wholes.into_iter().find(fits) else { break };
            gone[sum.first] = true;
            let now = out.get_or_insert_with(|| graph.clone());
            now.steps[at] = sum.scaled(now);
        }
    }
    out.map(|mut graph| {
        let mut gone = gone.into_iter();
        graph.steps.retain(|_| !gone.next().unwrap_or(false));
        prune(&mut graph);
        graph
    })
}

/// A convolution that others can be added to.
fn summable(step: &Step) -> Option<&Conv> {
    match &step.kind {
        StepKind::Conv(c) if c.groups == 1 && c.before.is_none() => Some(c),
        _ => None,
    }
}

/// Two convolutions as one.
struct Sum {
    /// The step that is not needed any more.
    first: usize,
    /// What stands for the other.
    step: Step,
    /// Operands that are weights, and what their rows are to be multiplied with.
    scales: Vec<(usize, HostTensor)>,
}

impl Sum {
    /// The sum of what step `at` computes and its operand `operand`, where both are convolutions.
    fn of(graph: &FusedGraph, uses: &Uses, at: usize, operand: usize) -> Option<Sum> {
        let last = &graph.steps[at];
        let main = last.kind.operands();
        if operand < main || summable(last).is_none() || !last.inputs[operand].is_plain() {
            return None;
        }
        let between = last.inputs[operand].tensor;
        // Written by one step, for this one alone.
        let [writer] = uses.writers[between.index()][..] else { return None };
        let first = &graph.steps[writer];
        summable(first)?;
        let once = last.inputs.iter().filter(|a| a.tensor == between).count() == 1;
        let alone = uses.readers[between.index()] == [at] && graph.tensor(between).role == Role::Intermediate;
        let aside = first.inputs.iter().all(|a| a.tensor != last.output.tensor);
        if !once || !alone || !aside || !first.inputs.iter().chain(&last.inputs).all(Access::is_plain) {
            return None;
        }
        // In as many dimensions as the one that has more.
        let dims = [first, last].map(|s| &s.output.view.dims).into_iter().max_by_key(|d| d.len())?;
        let (mut first, mut last) = (spread(first, dims)?, spread(last, dims)?);
        let scales = [unscaled(graph, &mut last), unscaled(graph, &mut first)];
        if !reads(&last.inputs[operand], between, &first.output.view) {
            return None;
        }
        let (StepKind::Conv(a), StepKind::Conv(b)) = (&last.kind, &first.kind) else { return None };
        let own = first.kind.operands();
        // The operands of both, then those of both epilogues.
        let mut inputs: Vec<Access> = last.inputs[..main].iter().chain(&first.inputs[..own]).cloned().collect();
        let moved_behind = (main + own) as u32;
        let rest = last.inputs[main..].iter().enumerate().filter(|(i, _)| main + i != operand).map(|(_, a)| a);
        inputs.extend(rest.chain(&first.inputs[own..]).cloned());
        let of_last = |i: u32| i + own as u32 - u32::from(i as usize > operand);
        let of_first = |i: u32| moved_behind + (last.inputs.len() - main - 1) as u32 + i - own as u32;
        let expr = added(&last.expr, operand as u32, &first.expr, of_last, of_first)?;
        let (inputs, expr) = without_unread(inputs, expr, main + own);
        if inputs.len() > MAX_INPUTS || expr.cost() > MAX_COST {
            return None;
        }
        let mut also = a.also.clone();
        also.push(Summand { window: b.window.clone(), flip: b.flip });
        also.extend(b.also.iter().cloned());
        let kind = StepKind::Conv(Conv { also, ..a.clone() });
        let name = format!("{}+{}", first.name, last.name);
        let scales = scales.into_iter().zip([1, main + 1]).filter_map(|(scale, i)| Some((i, scale?))).collect();
        Some(Sum { first: writer, step: Step { name, kind, inputs, expr, output: last.output }, scales })
    }

    /// The step with its weights multiplied, which become constants of the graph.
    fn scaled(self, graph: &mut FusedGraph) -> Step {
        let Sum { mut step, scales, .. } = self;
        for (i, scale) in scales {
            let t = graph.tensor(step.inputs[i].tensor);
            let Role::Constant(weights) = &t.role else { continue };
            let multiplied = weights.scaled(&scale.to_f64());
            let role = Role::Constant(multiplied);
            let scaled = Tensor { role, ..t.clone() };
            step.inputs[i].tensor = graph.add_tensor(scaled);
        }
        step
    }
}

/// What the step multiplies all that it computes with, a constant for each channel, if its weights can have that in them; the step
/// then does without. Small types would round them once more.
fn unscaled(graph: &FusedGraph, step: &mut Step) -> Option<HostTensor> {
    let StepKind::Conv(conv) = &step.kind else { return None };
    let e = &step.expr;
    let find = |op: Op| e.nodes().iter().position(|n| n.op == op).map(|i| Val(i as u32));
    // The only node that reads another one.
    let reader = |of: Val| {
        let mut all = (0..e.nodes().len()).filter(|i| operands(e.nodes()[*i].op).any(|v| v == of));
        let first = all.next()?;
        (all.next().is_none() && e.result() != of).then_some(Val(first as u32))
    };
    let of = |v: Val| e.nodes()[v.index()].op;
    let other = |op: Op, one: Val, wanted: Binary| match op {
        Op::Binary(found, a, b) if found == wanted && a != b => Some(if a == one { b } else { a }),
        _ => None,
    };
    // It may add something before.
    let acc = find(Op::Acc)?;
    let first = reader(acc)?;
    let (more, inner, product) = match other(of(first), acc, Binary::Add) {
        Some(more) => (Some(more), first, reader(first)?),
        None => (None, acc, first),
    };
    let factor = other(of(product), inner, Binary::Mul)?;
    let Op::Input(i) = of(factor) else { return None };
    let scale = own_part(graph, &step.inputs[i as usize], 1)?.clone();
    let exact = matches!(scale.dtype(), DType::F32 | DType::F64);
    let whole = conv.also.is_empty() && side(graph, step).is_some();
    if !exact || !whole || scale.len() != step.inputs[1].view.dims[0] {
        return None;
    }
    let mut out = Expr::new();
    let mut map: Vec<Val> = Vec::with_capacity(e.nodes().len());
    for (at, node) in e.nodes().iter().enumerate() {
        let v = if Val(at as u32) != product {
            out.push(rename(node.op, |v| map[v.index()]), node.dtype)
        } else {
            let acc = out.push_acc(node.dtype);
            match more {
                None => acc,
                Some(more) => {
                    let more = out.binary(Binary::Mul, map[more.index()], map[factor.index()]);
                    out.binary(Binary::Add, acc, more)
                }
            }
        };
        map.push(v);
    }
    let result = map[e.result().index()];
    step.expr = out.finish(result);
    Some(scale)
}

/// Operands and the expression without those, behind the first `main`, that the expression does not read.
fn without_unread(inputs: Vec<Access>, expr: Expr, main: usize) -> (Vec<Access>, Expr) {
    let read = |i: usize| i < main || expr.nodes().iter().any(|n| n.op == Op::Input(i as u32));
    let kept: Vec<usize> = (0..inputs.len()).filter(|i| read(*i)).collect();
    let expr = expr.map_inputs(|i| kept.iter().position(|k| *k == i as usize).unwrap_or(0) as u32);
    let inputs = inputs.into_iter().enumerate().filter(|(i, _)| kept.contains(i)).map(|(_, a)| a);
    (inputs.collect(), expr)
}

/// True for an access that goes through a tensor as a view does.
fn reads(a: &Access, tensor: TensorId, view: &View) -> bool {
    let strides = (0..view.rank()).all(|d| view.dims[d] == 1 || a.view.strides[d] == view.strides[d]);
    a.tensor == tensor && a.view.offset == view.offset && a.view.dims == view.dims && strides
}

/// The convolution in these dimensions of its result, which it has or has as a line.
fn spread(step: &Step, dims: &[usize]) -> Option<Step> {
    let own = &step.output.view.dims;
    if own == dims {
        return Some(step.clone());
    }
    let StepKind::Conv(conv) = &step.kind else { return None };
    let line = own.len() == 3 && own[..2] == dims[..2] && own[2] == dims[2..].iter().product::<usize>();
    let still = conv.window.is_point() && conv.also.is_empty() && step.inputs[0].view.dims[2] == own[2];
    if !line || !still {
        return None;
    }
    let mut step = step.clone();
    for (i, a) in step.inputs.iter_mut().chain([&mut step.output]).enumerate() {
        let mut stride = a.view.strides.pop()?;
        a.view.dims.pop();
        let spatial = if i == 1 { &vec![1; dims.len() - 2] } else { &dims[2..].to_vec() };
        let mut strides = Vec::new();
        for d in spatial.iter().rev() {
            strides.push(stride);
            stride *= *d as i64;
        }
        a.view.dims.extend(spatial);
        a.view.strides.extend(strides.into_iter().rev());
    }
    let n = dims.len() - 2;
    if let StepKind::Conv(conv) = &mut step.kind {
        let w = &mut conv.window;
        [&mut w.kernel, &mut w.strides, &mut w.dilations].into_iter().for_each(|v| *v = vec![1; n]);
        w.pads = vec![0; n];
    }
    Some(step)
}

/// An expression of the sum of what two steps compute: of one that reads the other's result as operand `operand`, and the other's.
/// `None` where it is not their sum that the first needs of both. Operands get new numbers.
fn added(
    e: &Expr,
    operand: u32,
    other: &Expr,
    number: impl Fn(u32) -> u32,
    other_number: impl Fn(u32) -> u32,
) -> Option<Expr> {
    // The other is what it computes and something more; the first takes both as often.
    if shares(other, None)? != [1, 0] || shares(e, Some(operand)).is_none_or(|[acc, read]| acc != read) {
        return None;
    }
    let of_acc = |e: &Expr| e.nodes().iter().find(|n| n.op == Op::Acc).map(|n| n.dtype);
    if of_acc(e)? != of_acc(other)? || of_acc(e)? != other.dtype() {
        return None;
    }
    let mut out = Expr::new();
    let acc = out.push_acc(of_acc(e)?);
    let result = out.append(e, Some(acc), |out, i, dtype| {
        if i != operand {
            return out.input(number(i) as usize, dtype);
        }
        let nothing = out.constant(dtype, 0.0);
        out.append(other, Some(nothing), |out, i, dtype| out.input(other_number(i) as usize, dtype))
    });
    Some(out.finish(result))
}

/// How often the result of an expression has what its step computes and operand `operand` as summands, if all else that is made of
/// these two is made of sums that have both as often.
fn shares(e: &Expr, operand: Option<u32>) -> Option<[u32; 2]> {
    let mut shares: Vec<[u32; 2]> = Vec::with_capacity(e.nodes().len());
    for node in e.nodes() {
        let at = |v: Val| shares[v.index()];
        shares.push(match node.op {
            Op::Acc => [1, 0],
            Op::Input(i) if Some(i) == operand => [0, 1],
            Op::Binary(Binary::Add, a, b) => [at(a)[0] + at(b)[0], at(a)[1] + at(b)[1]],
            op => {
                let alike = |[acc, read]: [u32; 2]| acc == read && (operand.is_some() || acc == 0);
                if !operands(op).all(|v| alike(at(v))) {
                    return None;
                }
                [0, 0]
            }
        });
    }
    shares.last().copied()
}
