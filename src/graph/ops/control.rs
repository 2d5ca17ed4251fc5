//! Control flow that is decided before the model runs: the taken branch of an If, and the rounds of Loop and Scan, whose
//! nodes are lowered once for each. A Loop that is not decided before is a stage of its own, whose body is a model
//! ([`crate::graph::cut`](crate::graph::cut())).

use super::layout::{join, sliced};
use crate::graph::ask::Ask;
use crate::graph::error::{Reason, Res};
use crate::graph::expr::Scalar;
use crate::graph::infer::{Inference, by_lowering};
use crate::graph::lazy::Lazy;
use crate::graph::lower::{Lowering, Value, splat};
use crate::graph::resolve::{Branch, Resolved, ResolvedNode, ValueId};
use crate::onnx::{Attribute, Dim, ValueInfo};
use crate::tensor::HostTensor;
use std::collections::BTreeSet;

/// More nodes than this are not laid out for loops.
const MOST_NODES: usize = 200_000;

/// The same for a Loop of which only its rounds tell how many there are: one that does not end is refused soon.
const MOST_UNCOUNTED: usize = 40_000;

/// So many loops inside of each other are refused: each is laid out twice for each time that the one around it is.
const MOST_LOOPS: usize = 9;

/// How many loops lie inside of each other in a node, itself included.
fn depth(resolved: &Resolved<'_>, node: &ResolvedNode<'_>) -> usize {
    let inside = node.branches.iter().flat_map(|b| &b.nodes).map(|n| depth(resolved, &resolved.nodes[*n as usize]));
    inside.max().unwrap_or(0) + usize::from(node.branches.iter().any(|b| b.name == "body"))
}

/// The graph in an attribute.
pub(super) fn branch<'m>(cx: &Lowering<'m>, name: &str) -> Res<&'m Branch<'m>> {
    let found = cx.node().branches.iter().find(|b| b.name == name);
    found.ok_or_else(|| Reason::attribute(name, "is missing"))
}

/// Lowers the nodes of a graph in the place of the current node.
fn lower(cx: &mut Lowering<'_>, branch: &Branch<'_>, name: &'static str) -> Res<()> {
    cx.infer(&branch.nodes)
        .and_then(|()| cx.lower_nodes(&branch.nodes))
        .map_err(|(i, reason)| Reason::within(i, cx.resolved_node(i).node, reason))?;
    if branch.outputs.iter().any(|v| !cx.is_known(*v)) {
        return Err(Reason::Branch(name));
    }
    Ok(())
}

/// What If gives with a condition that is known: its branch is looked at in its place, once for each walk however deep it lies.
pub(super) fn of_if(cx: &mut Inference<'_>) -> Res<()> {
    let taken = cx.constant(cx.input(0)?).and_then(HostTensor::scalar_f64).map(|c| c != 0.0);
    let name = if taken == Some(true) { "then_branch" } else { "else_branch" };
    let node = cx.node();
    let found = node.branches.iter().find(|b| b.name == name && b.outputs.len() == node.node.outputs.len());
    // Lowering says what is wrong.
    let (Some(_), Some(branch)) = (taken, found) else { return by_lowering(cx) };
    cx.walk_within(&branch.nodes)?;
    for (i, &v) in branch.outputs.iter().enumerate() {
        cx.fact(v).ok_or(Reason::Branch(name))?;
        cx.same(i, v);
    }
    Ok(())
}

/// If with a condition that is known: the nodes of its branch are lowered in its place, the other branch is not looked at.
pub(super) fn if_(cx: &mut Lowering<'_>) -> Res<()> {
    let condition = cx.input(0)?;
    let not_constant = || Reason::NotConstant { what: "the condition".into(), input: 0 };
    let taken = cx.constant(condition).ok_or_else(not_constant)?;
    let taken = taken.scalar_f64().ok_or_else(|| Reason::Shape("the condition is not one value".into()))? != 0.0;
    let name = if taken { "then_branch" } else { "else_branch" };
    let branch = branch(cx, name)?;
    if branch.outputs.len() != cx.node().node.outputs.len() {
        let (has, wants) = (branch.outputs.len(), cx.node().node.outputs.len());
        return Err(Reason::attribute(name, format!("has {has} outputs, the node {wants}")));
    }
    lower(cx, branch, name)?;
    for (i, &v) in branch.outputs.iter().enumerate() {
        cx.pass(i, v);
    }
    Ok(())
}

/// The rounds of a loop as they are laid out, of which there may not be too many.
pub(super) struct Rounds {
    /// Nodes that were laid out before the first round.
    before: usize,
    done: usize,
    /// How many may be laid out.
    most: usize,
}

impl Rounds {
    /// Of the node at hand, unless loops lie too deep in it.
    pub fn of(cx: &Lowering<'_>) -> Res<Rounds> {
        match depth(cx.place().0, cx.node()) {
            more @ MOST_LOOPS.. => {
                Err(Reason::Rounds(format!("{more} loops lie inside of each other; at most {} may", MOST_LOOPS - 1)))
            }
            _ => Ok(Rounds { before: cx.laid_out, done: 0, most: MOST_NODES }),
        }
    }

    /// Refuses a loop of at least `rounds` rounds in all that would not end or fill the memory, by what a round has taken so far,
    /// loops inside of it too.
    pub fn check(&self, cx: &Lowering<'_>, body: &Branch<'_>, rounds: usize) -> Res<()> {
        let nodes = (cx.laid_out - self.before).checked_div(self.done).unwrap_or(body.nodes.len()).max(1);
        let more = rounds.saturating_sub(self.done).saturating_mul(nodes);
        if more.saturating_add(cx.laid_out) > self.most {
            let (op, most) = (&cx.node().node.op, self.most);
            let how = if most < MOST_NODES { " of which only its rounds tell how many there are" } else { "" };
            return Err(Reason::Rounds(format!(
                "{rounds} rounds of {nodes} nodes; at most {most} nodes are laid out for a {op}{how}"
            )));
        }
        Ok(())
    }

    /// One round: the body's parameters are given values, its nodes lowered, its outputs returned.
    pub fn lower(&mut self, cx: &mut Lowering<'_>, body: &Branch<'_>, parameters: Vec<Value>) -> Res<Vec<Value>> {
        cx.forget(body);
        for (&p, value) in body.parameters.iter().zip(parameters) {
            cx.bind(p, value);
        }
        lower(cx, body, "body")?;
        self.done += 1;
        // What a later round computes must not change it: kernels that are not emitted yet are emitted here.
        Ok(body.outputs.iter().map(|&v| cx.settled(v)).collect())
    }
}

/// True if neither the number of a round nor what rounds carry decides whether a Loop goes on: what one round tells is so for all.
fn is_steady(cx: &Lowering<'_>, body: &Branch<'_>) -> bool {
    let mut depends: BTreeSet<ValueId> = body.parameters.iter().copied().collect();
    // The parameter that says that it goes on is true in each round.
    body.parameters.get(1).map(|flag| depends.remove(flag));
    for &i in &body.nodes {
        let node = cx.resolved_node(i);
        if !node.branches.is_empty() || node.inputs.iter().flatten().any(|v| depends.contains(v)) {
            depends.extend(node.outputs.iter().flatten());
        }
    }
    body.outputs.first().is_some_and(|again| !depends.contains(again))
}

/// Values one after the other along a new dimension; none have no shape.
pub(super) fn stacked(cx: &mut Lowering<'_>, parts: &[Value], axis: usize) -> Res<Lazy> {
    if parts.is_empty() {
        return Err(Reason::Value("it runs no round".into()));
    }
    let mut list = Vec::new();
    for p in parts {
        if matches!(p, Value::List(_) | Value::Nothing) {
            return Err(Reason::Type("it collects sequences, of which no tensor can be made".into()));
        }
        let lazy = cx.as_lazy(p);
        let mut shape = lazy.shape.clone();
        if axis > shape.len() {
            return Err(Reason::Shape(format!("axis {axis} is outside of a result of {} dimensions", shape.len() + 1)));
        }
        shape.insert(axis, 1);
        list.push(lazy.reshaped(&shape));
    }
    if list[0].len() == 0 {
        let mut shape = list[0].shape.clone();
        shape[axis] = list.len();
        return Ok(splat(list[0].dtype(), &shape, Scalar::of(list[0].dtype(), 0.0)));
    }
    join(cx, list, axis)
}

/// What a loop collects in no round, by what its body declares: extents that only a round would tell are 0, and dimensions of which nothing is
/// said are none but that of the rounds, as onnxruntime has them.
pub(crate) fn nothing_collected(declared: &ValueInfo) -> Res<HostTensor> {
    let extent = |d: &Dim| if let Dim::Known(n) = d { *n } else { 0 };
    let Some(dtype) = declared.dtype else {
        return Err(Reason::Value(
            "it runs no round, and of which type what it collects is is not declared in its body".into(),
        ));
    };
    let shape: Vec<usize> = [0].into_iter().chain(declared.shape.iter().flatten().map(extent)).collect();
    Ok(HostTensor::from_f64(dtype, &shape, &[]))
}

/// What a Scan collects in no round, along an axis. onnxruntime refuses such a Scan; ONNX says what it is where its body declares all
/// extents of a slice.
fn nothing_scanned(cx: &Lowering<'_>, declared: &ValueInfo, axis: i64) -> Res<HostTensor> {
    let extent = |d: &Dim| if let Dim::Known(n) = d { Some(*n) } else { None };
    let slice: Option<Vec<usize>> = declared.shape.as_ref().and_then(|s| s.iter().map(extent).collect());
    let (Some(dtype), Some(mut shape)) = (declared.dtype, slice) else {
        let what = "it runs no round, and type and extents of what it collects are not declared in its body";
        return Err(Reason::Value(what.into()));
    };
    shape.insert(cx.axis(axis, shape.len() + 1)?, 0);
    Ok(HostTensor::from_f64(dtype, &shape, &[]))
}

fn known_flag(value: &Value) -> Option<bool> {
    match value {
        Value::Const(t) => t.scalar_f64().map(|x| x != 0.0),
        _ => None,
    }
}

/// Loop with a known number of rounds, or a condition that is known in each.
pub(super) fn loop_(cx: &mut Lowering<'_>) -> Res<()> {
    let body = branch(cx, "body")?;
    let most = cx.scalar(0, "the number of rounds")?.map(|rounds| rounds.max(0.0) as usize);
    let not_constant = |input| Reason::NotConstant { what: "the condition".into(), input };
    let mut go = match cx.optional(1) {
        Some(v) => {
            let value = cx.constant(v).ok_or_else(|| not_constant(1))?;
            value.scalar_f64().is_some_and(|x| x != 0.0)
        }
        None => true,
    };
    let states = cx.node().inputs.len().saturating_sub(2);
    if body.parameters.len() != states + 2 || body.outputs.len() < states + 1 {
        return Err(Reason::attribute("body", format!("has {} inputs for {states} values", body.parameters.len())));
    }
    let mut carried: Vec<Value> = (2..states + 2).map(|i| cx.input(i).map(|v| cx.settled(v))).collect::<Res<_>>()?;
    let mut scanned: Vec<Vec<Value>> = vec![Vec::new(); body.outputs.len() - states - 1];
    let mut rounds = Rounds::of(cx)?;
    let steady = is_steady(cx, body);
    if most.is_none() && !steady {
        rounds.most = MOST_UNCOUNTED;
    }
    while go && most.is_none_or(|m| rounds.done < m) {
        let known = if steady && rounds.done > 0 { most.unwrap_or(usize::MAX) } else { rounds.done + 1 };
        rounds.check(cx, body, known)?;
        let number = HostTensor::from_i64(&[], &[rounds.done as i64]);
        let flag = HostTensor::from_ints(crate::tensor::DType::Bool, &[], &[1]);
        let mut parameters = vec![Value::Const(number), Value::Const(flag)];
        parameters.append(&mut carried);
        let mut outputs = rounds.lower(cx, body, parameters)?.into_iter();
        let again = outputs.next().and_then(|c| known_flag(&c));
        go = again.ok_or_else(|| {
            Reason::Rounds("whether it goes on depends on what it computes: run the ONNX file itself".into())
        })?;
        carried = outputs.by_ref().take(states).collect();
        scanned.iter_mut().zip(outputs).for_each(|(list, v)| list.push(v));
    }
    for (i, value) in carried.into_iter().enumerate() {
        cx.give(i, value);
    }
    for (i, list) in scanned.into_iter().enumerate() {
        if list.is_empty() {
            let Some(Attribute::Graph(graph)) = cx.attribute("body") else { return Err(Reason::MissingInput(0)) };
            cx.set_const(states + i, nothing_collected(&graph.outputs[states + 1 + i])?);
            continue;
        }
        let y = stacked(cx, &list, 0)?;
        cx.set(states + i, y);
    }
    Ok(())
}

/// A list attribute with an entry for each of `n` values.
fn per_value(cx: &Lowering<'_>, name: &str, n: usize) -> Res<Vec<i64>> {
    match cx.ints(name)? {
        None => Ok(vec![0; n]),
        Some(list) if list.len() == n => Ok(list),
        Some(list) => Err(Reason::attribute(name, format!("has {} entries for {n} values", list.len()))),
    }
}

/// Scan: as many rounds as the scanned inputs have slices.
pub(super) fn scan(cx: &mut Lowering<'_>) -> Res<()> {
    let body = branch(cx, "body")?;
    let batched = cx.opset() < 9;
    let scans = usize::try_from(cx.int("num_scan_inputs", 0)?).unwrap_or(0);
    let first = usize::from(batched);
    let given = cx.node().inputs.len().saturating_sub(first);
    if batched && cx.optional(0).is_some() {
        return Err(Reason::Value("sequence lengths (input 0) are not supported".into()));
    }
    let states = given.checked_sub(scans).filter(|_| scans > 0);
    let states =
        states.ok_or_else(|| Reason::attribute("num_scan_inputs", format!("is {scans} for {given} inputs")))?;
    if body.parameters.len() != given || body.outputs.len() < states {
        return Err(Reason::attribute("body", format!("has {} inputs for {given} values", body.parameters.len())));
    }
    let results = body.outputs.len() - states;
    let (directions, axes, out_directions, out_axes) = if batched {
        (per_value(cx, "directions", scans)?, vec![0; scans], vec![0; results], vec![0; results])
    } else {
        (
            per_value(cx, "scan_input_directions", scans)?,
            per_value(cx, "scan_input_axes", scans)?,
            per_value(cx, "scan_output_directions", results)?,
            per_value(cx, "scan_output_axes", results)?,
        )
    };
    let inputs: Vec<ValueId> = (0..given).map(|i| cx.input(i + first)).collect::<Res<_>>()?;
    let batches = if batched { cx.shape(inputs[states]).first().copied().unwrap_or(0) } else { 1 };
    let apart = |v: &ValueId| batched && cx.shape(*v).first() != Some(&batches);
    if let Some(v) = inputs.iter().find(|v| apart(v)) {
        return Err(Reason::Shape(format!("a value of shape {:?} in a batch of {batches}", cx.shape(*v))));
    }
    let mut finals: Vec<Vec<Value>> = vec![Vec::new(); states];
    let mut all: Vec<Vec<Value>> = vec![Vec::new(); results];
    let mut laid = Rounds::of(cx)?;
    for batch in 0..batches {
        let mut carried = Vec::new();
        for &v in &inputs[..states] {
            let value = cx.settled(v);
            carried.push(if batched { part(cx, &value, 0, batch) } else { value });
        }
        let mut lists = Vec::new();
        for (&v, axis) in inputs[states..].iter().zip(&axes) {
            let mut value = cx.settled(v);
            if batched {
                value = part(cx, &value, 0, batch);
            }
            let rank = cx.as_lazy(&value).shape.len();
            lists.push((value, cx.axis(*axis, rank)?));
        }
        let rounds = lists.first().map_or(0, |(v, axis)| cx.as_lazy(v).shape[*axis]);
        let mut collected: Vec<Vec<Value>> = vec![Vec::new(); results];
        for t in 0..rounds {
            laid.check(cx, body, rounds.saturating_mul(batches))?;
            let mut parameters = std::mem::take(&mut carried);
            for ((value, axis), direction) in lists.iter().zip(&directions) {
                let at = if *direction == 0 { t } else { rounds - 1 - t };
                parameters.push(part(cx, value, *axis, at));
            }
            let mut outputs = laid.lower(cx, body, parameters)?.into_iter();
            carried = outputs.by_ref().take(states).collect();
            collected.iter_mut().zip(outputs).for_each(|(list, v)| list.push(v));
        }
        finals.iter_mut().zip(carried).for_each(|(list, v)| list.push(v));
        for (i, mut list) in collected.into_iter().enumerate() {
            if list.is_empty() {
                let Some(Attribute::Graph(graph)) = cx.attribute("body") else { return Err(Reason::MissingInput(0)) };
                all[i].push(Value::Const(nothing_scanned(cx, &graph.outputs[states + i], out_axes[i])?));
                continue;
            }
            if out_directions[i] != 0 {
                list.reverse();
            }
            let rank = cx.as_lazy(&list[0]).shape.len() + 1;
            let axis = cx.axis(out_axes[i], rank)?;
            all[i].push(Value::Lazy(stacked(cx, &list, axis)?));
        }
    }
    for (i, list) in finals.into_iter().chain(all).enumerate() {
        if batched {
            let y = stacked(cx, &list, 0)?;
            cx.set(i, y);
        } else if let Some(value) = list.into_iter().next() {
            cx.give(i, value);
        }
    }
    Ok(())
}

/// Slice `at` of a value along an axis, without that axis.
fn part(cx: &mut Lowering<'_>, value: &Value, axis: usize, at: usize) -> Value {
    let lazy = cx.as_lazy(value);
    let mut shape = lazy.shape.clone();
    shape.remove(axis);
    let plain = cx.plain_of(lazy);
    Value::Lazy(sliced(cx, &plain, &[(axis, at as i64, 1, 1)]).reshaped(&shape))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::DType;

    #[test]
    fn no_round_collects_what_is_declared() {
        let of = |dtype, shape: Option<Vec<Dim>>| {
            let declared = ValueInfo { name: "y".into(), dtype, shape };
            nothing_collected(&declared).map(|t| (t.dtype(), t.shape().to_vec()))
        };
        let dims = vec![Dim::Known(3), Dim::Symbol("n".into())];
        assert_eq!(of(Some(DType::F16), Some(dims)).unwrap(), (DType::F16, vec![0, 3, 0]));
        assert_eq!(of(Some(DType::F32), None).unwrap(), (DType::F32, vec![0]));
        assert!(of(None, None).is_err());
    }
}
