//! Products of one left side become one product.
//!
//! Q, K and V of an attention, gate and up of a gated layer, the branches of an Inception block: matrix products (with packed
//! weights too) or convolutions of the same operand by different constants. One product by these constants side by side ([`HostTensor::joined`],
//! which copies nothing) writes all results next to each other; who reads one of them reads a part of the whole
//! ([`redirect_access`]). Their epilogues must be the same but for constants along the joined dimension, which are put side by side too.

use super::forward::redirect_access;
use super::fused::{Access, Conv, FusedGraph, Packed, Role, Step, StepKind, Tensor, TensorId};
use super::prune::prune;
use super::uses::Uses;
use super::view::View;
use crate::tensor::HostTensor;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// Joins all that can be. A product whose readers cannot read a part is left alone.
pub(crate) fn join_products(graph: &mut FusedGraph) {
    let mut uses = Uses::of(graph);
    let mut groups: BTreeMap<(u32, String), Vec<usize>> = BTreeMap::new();
    for (i, step) in graph.steps.iter().enumerate() {
        if let Some(form) = form(graph, step, &uses) {
            groups.entry((step.inputs[0].tensor.0, form)).or_default().push(i);
        }
    }
    let (mut gone, tensors) = (vec![false; graph.steps.len()], graph.tensors.len());
    for mut members in groups.into_values() {
        while members.len() > 1 {
            match join(graph, &members, &mut uses) {
                Ok(changed) => {
                    changed.into_iter().for_each(|(i, step)| graph.steps[i] = step);
                    members[1..].iter().for_each(|i| gone[*i] = true);
                    break;
                }
                Err(odd) => members.retain(|i| !odd.contains(i)),
            }
        }
    }
    if graph.tensors.len() > tensors {
        let mut gone = gone.into_iter();
        graph.steps.retain(|_| !gone.next().unwrap_or(false));
        prune(graph);
    }
}

/// The dimension of the output along which products of a kind are joined.
fn along(step: &Step) -> Option<usize> {
    match &step.kind {
        StepKind::MatMul => Some(step.output.view.rank() - 1),
        StepKind::Packed(Packed { gate: None, .. }) => Some(1),
        StepKind::Conv(Conv { groups: 1, before: None, .. }) => Some(1),
        _ => None,
    }
}

/// Where the constant of a product has the joined dimension; `None` when it is not all of a constant, as it lies or, for a matrix,
/// transposed.
pub(super) fn side(graph: &FusedGraph, step: &Step) -> Option<usize> {
    let access = &step.inputs[1];
    let tensor = graph.tensor(access.tensor);
    let v = &access.view;
    if !matches!(tensor.role, Role::Constant(_)) || v.offset != 0 {
        return None;
    }
    if !step.kind.is_product() {
        let whole = |a: &Access| {
            let t = graph.tensor(a.tensor);
            let rows = a.view.is_dense() && a.view.offset == 0 && a.view.len() == t.len();
            rows && matches!(t.role, Role::Constant(_))
        };
        return step.inputs[1..step.kind.operands()].iter().all(whole).then_some(0);
    }
    let r = v.rank();
    let (k, n) = (v.dims[r - 2], v.dims[r - 1]);
    let shared = (0..r - 2).all(|d| v.dims[d] == 1 || v.strides[d] == 0);
    let (sk, sn) = (v.strides[r - 2], v.strides[r - 1]);
    match (shared && k * n == tensor.len(), sn == 1 && sk == n as i64, sk == 1 && sn == k as i64) {
        (true, true, _) => Some(1),
        (true, _, true) => Some(0),
        _ => None,
    }
}

/// What products that are joined have in common, if a step is such a product.
fn form(graph: &FusedGraph, step: &Step, uses: &Uses) -> Option<String> {
    let d = along(step)?;
    let side = side(graph, step)?;
    let out = &step.output;
    let tensor = graph.tensor(out.tensor);
    let alone = tensor.role == Role::Intermediate && uses.writers[out.tensor.index()].len() == 1;
    if !alone || step.inputs[0].tensor == out.tensor || lying(graph, out).is_none() {
        return None;
    }
    let mut form = format!("{:?} {:?} {side} {:?}", step.kind, step.inputs[0].view, step.expr);
    let main = step.kind.operands();
    for a in &step.inputs[1..main] {
        form += &format!(" {}", graph.tensor(a.tensor).dtype);
    }
    for a in &step.inputs[main..] {
        form += &match own_part(graph, a, d) {
            Some(_) => format!(" {}", graph.tensor(a.tensor).dtype),
            None if a.is_plain() && a.view.strides[d] == 0 => {
                format!(" {} {} {:?}", a.tensor.0, a.view.offset, a.view.strides)
            }
            None => return None,
        };
    }
    let mut dims = out.view.dims.clone();
    dims[d] = 0;
    Some(form + &format!(" {dims:?} {}", tensor.dtype))
}

/// The constant that an epilogue reads along dimension `d` alone, all of it.
pub(super) fn own_part<'g>(graph: &'g FusedGraph, a: &Access, d: usize) -> Option<&'g HostTensor> {
    let tensor = graph.tensor(a.tensor);
    let Role::Constant(data) = &tensor.role else { return None };
    let v = &a.view;
    let flat = (0..v.rank()).all(|i| i == d || v.dims[i] == 1 || v.strides[i] == 0);
    let whole = v.offset == 0 && v.strides[d] == 1 && v.dims[d] == tensor.len();
    (a.is_plain() && flat && whole).then_some(data)
}

/// The dimensions of an output that is all of its tensor, in the order in which they lie.
pub(super) fn lying(graph: &FusedGraph, out: &Access) -> Option<Vec<usize>> {
    let v = &out.view;
    let mut order: Vec<usize> = (0..v.rank()).collect();
    order.sort_by_key(|&d| (std::cmp::Reverse(v.strides[d]), d));
    let turned = v.permuted(&order);
    (v.offset == 0 && turned.is_dense() && v.len() == graph.tensor(out.tensor).len()).then_some(order)
}

/// The steps that change when products become one, which stands where the first of them stood; or those of them that are in
/// the way.
fn join(graph: &mut FusedGraph, members: &[usize], uses: &mut Uses) -> Result<BTreeMap<usize, Step>, Vec<usize>> {
    let all = || members.to_vec();
    let first = graph.steps[members[0]].clone();
    let d = along(&first).ok_or_else(all)?;
    // What all of them read has to be there for the first.
    let main = first.kind.operands();
    let early = first.inputs[main..].iter().all(|a| uses.writers[a.tensor.index()].iter().all(|w| *w < members[0]));
    let steps: Vec<&Step> = members.iter().map(|i| &graph.steps[*i]).collect();
    let extents: Vec<usize> = steps.iter().map(|s| s.output.view.dims[d]).collect();
    let weights: Option<Vec<HostTensor>> = (1..main).map(|k| joined_weights(graph, &steps, k)).collect();
    let weights = weights.filter(|_| early).ok_or_else(all)?;
    let operands: Vec<Option<HostTensor>> = (main..first.inputs.len())
        .map(|k| {
            let parts: Option<Vec<HostTensor>> = steps
                .iter()
                .map(|s| own_part(graph, &s.inputs[k], d).and_then(|t| t.reshaped(&[t.len()]).ok()))
                .collect();
            HostTensor::joined(parts?, 0).ok()
        })
        .collect();
    let name = steps.iter().map(|s| s.name.as_str()).collect::<Vec<_>>().join("+");

    // The whole, and where in it each part lies.
    let mut dims = first.output.view.dims.clone();
    dims[d] = extents.iter().sum();
    let (shape, view) = (dims.clone(), View::dense(&dims));
    let t = graph.tensor(first.output.tensor);
    let tensor = Tensor { name: t.name.clone(), dtype: t.dtype, shape, role: Role::Intermediate };
    let whole = TensorId(graph.tensors.len() as u32);
    let mut parts: FxHashMap<TensorId, (usize, View)> = FxHashMap::default();
    let mut from = 0;
    for (i, n) in members.iter().zip(&extents) {
        let out = &graph.steps[*i].output;
        let order = lying(graph, out).ok_or_else(all)?;
        parts.insert(out.tensor, (*i, view.sliced(d, from, 1, *n).permuted(&order)));
        from += n;
    }
    graph.add_tensor(tensor);
    uses.add(Some(members[0]), Vec::new());
    let mut changed = redirected_readers(graph, &parts, whole, uses)?;
    uses.readers[whole.index()] = changed.keys().copied().collect();
    let mut constant = |graph: &mut FusedGraph, like: TensorId, data: HostTensor| {
        let name = graph.tensor(like).name.clone();
        let (dtype, shape) = (data.dtype(), data.shape().to_vec());
        uses.add(None, vec![members[0]]);
        graph.add_tensor(Tensor { name, dtype, shape, role: Role::Constant(data) })
    };
    let mut step = Step { name, output: Access::new(whole, view), ..first };
    for (k, data) in (1..main).zip(weights) {
        step.inputs[k] = Access::new(constant(graph, step.inputs[k].tensor, data), widened(&step, k, &extents, d));
    }
    for (access, data) in step.inputs[main..].iter_mut().zip(operands) {
        access.view.dims[d] = dims[d];
        if let Some(data) = data {
            access.tensor = constant(graph, access.tensor, data);
        }
    }
    graph.step_promises(&step).map_err(|_| all())?;
    changed.insert(members[0], step);
    Ok(changed)
}

/// The constants that are operand `k` of products side by side.
pub(super) fn joined_weights(graph: &FusedGraph, steps: &[&Step], k: usize) -> Option<HostTensor> {
    let axis = side(graph, steps[0])?;
    let parts = steps.iter().map(|s| {
        let Role::Constant(t) = &graph.tensor(s.inputs[k].tensor).role else { return None };
        let v = &s.inputs[k].view;
        let lines = if s.kind == StepKind::MatMul { v.dims[v.rank() - 1] } else { v.dims[0] };
        let shape = if axis == 1 { [t.len() / lines, lines] } else { [lines, t.len() / lines] };
        t.reshaped(&shape).ok()
    });
    HostTensor::joined(parts.collect::<Option<_>>()?, axis).ok()
}

/// The view of the joined constant that is operand `k`.
pub(super) fn widened(first: &Step, k: usize, extents: &[usize], d: usize) -> View {
    let mut v = first.inputs[k].view.clone();
    let n = extents.iter().sum();
    if first.kind != StepKind::MatMul {
        v.dims[0] = n;
        return v;
    }
    v.dims[d] = n;
    if v.strides[d] == 1 {
        v.strides[d - 1] = n as i64;
    }
    v
}

/// The readers of the parts, reading the whole; or the products whose readers cannot.
pub(super) fn redirected_readers(
    graph: &FusedGraph,
    parts: &FxHashMap<TensorId, (usize, View)>,
    whole: TensorId,
    uses: &Uses,
) -> Result<BTreeMap<usize, Step>, Vec<usize>> {
    let mut changed: BTreeMap<usize, Step> = BTreeMap::new();
    let mut odd = Vec::new();
    for (t, (member, target)) in parts {
        for &reader in &uses.readers[t.index()] {
            let step = changed.get(&reader).unwrap_or(&graph.steps[reader]);
            match redirected(graph, step, *t, whole, target) {
                Some(step) => _ = changed.insert(reader, step),
                None => odd.push(*member),
            }
        }
    }
    if odd.is_empty() { Ok(changed) } else { Err(odd) }
}

/// Makes two results parts of a new tensor, one behind the other, which it gives with the steps of those who read either, but for step `but`;
/// `None` where one of these cannot read a part.
pub(super) fn one_behind_the_other(
    graph: &mut FusedGraph,
    uses: &Uses,
    results: [TensorId; 2],
    but: usize,
) -> Option<(TensorId, Vec<(usize, Step)>)> {
    let [first, second] = results.map(|t| graph.tensor(t));
    let lengths = [first.len(), second.len()];
    let (name, dtype) = (second.name.clone(), second.dtype);
    let shape = vec![lengths.iter().sum()];
    let whole = graph.add_tensor(Tensor { name, dtype, shape, role: Role::Intermediate });
    let mut changed: BTreeMap<usize, Step> = BTreeMap::new();
    for (t, offset, len) in [(results[0], 0, lengths[0]), (results[1], lengths[0], lengths[1])] {
        let part = View { offset: offset as i64, dims: vec![len], strides: vec![1] };
        for reader in uses.readers[t.index()].iter().filter(|reader| **reader != but) {
            let step = changed.get(reader).unwrap_or(&graph.steps[*reader]);
            changed.insert(*reader, redirected(graph, step, t, whole, &part)?);
        }
    }
    Some((whole, changed.into_iter().collect()))
}

/// A step that reads a part of a whole where it read a tensor; `None` where it cannot.
fn redirected(graph: &FusedGraph, step: &Step, from: TensorId, whole: TensorId, part: &View) -> Option<Step> {
    let mut step = step.clone();
    for a in &mut step.inputs {
        if a.indirect.iter().any(|i| i.index == from) {
            return None;
        }
        if a.tensor == from {
            *a = redirect_access(a, whole, part)?;
        }
    }
    graph.step_promises(&step).is_ok().then_some(step)
}
