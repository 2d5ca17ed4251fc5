//! Elementwise steps that do the same to neighbouring parts become one step.
//!
//! Queries and keys are turned by the same angles (rotary embeddings), and lie next to each other where their products were
//! [joined](super::join). Two steps become one where they have the same expression, and a dimension along which each operand of the
//! second begins where that of the first ends, or which none of them walks, in whatever order each of them walks its dimensions.
//! What is read by a table is read so by both, from the same entries along that dimension. Their results are parts of one tensor.

use super::fused::{Access, FusedGraph, Guard, Role, Step, StepKind, Tensor, TensorId};
use super::join::{lying, redirected_readers};
use super::prune::prune;
use super::uses::Uses;
use super::view::View;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// Constants of up to this many bytes are compared by content.
const SMALL: usize = 1 << 12;

/// Joins all that can be.
pub(super) fn join_elementwise(graph: &mut FusedGraph) {
    let mut uses = Uses::of(graph);
    let mut groups: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (i, step) in graph.steps.iter().enumerate().filter(|(_, s)| may_join(graph, s)) {
        groups.entry(form(graph, step)).or_default().push(i);
    }
    let mut gone = vec![false; graph.steps.len()];
    for members in groups.into_values() {
        for &first in &members {
            // Both read the same of what is computed.
            let computed = graph.steps[first].inputs.iter().find(|a| is_computed(graph, a));
            let readers = computed.map_or(Vec::new(), |a| uses.readers[a.tensor.index()].clone());
            for other in readers.into_iter().filter(|other| *other > first && members.binary_search(other).is_ok()) {
                if !gone[first] && !gone[other] && join(graph, first, other, &mut uses).is_some() {
                    gone[other] = true;
                }
            }
        }
    }
    if gone.contains(&true) {
        let mut gone = gone.into_iter();
        graph.steps.retain(|_| !gone.next().unwrap_or(false));
        prune(graph);
    }
}

fn is_computed(graph: &FusedGraph, a: &Access) -> bool {
    !matches!(graph.tensor(a.tensor).role, Role::Constant(_))
}

/// A step of several operands, some of them computed, whose whole result is nobody's but later steps'.
fn may_join(graph: &FusedGraph, step: &Step) -> bool {
    step.kind == StepKind::Pointwise
        && step.inputs.len() > 1
        && step.inputs.iter().any(|a| is_computed(graph, a))
        && graph.tensor(step.output.tensor).role == Role::Intermediate
        && lying(graph, &step.output).is_some()
}

/// A step with its dimensions in the order in which its first operand has them in memory: the same for all orders.
fn turned(step: &Step) -> Step {
    let strides = &step.inputs[0].view.strides;
    let mut order: Vec<usize> = (0..strides.len()).collect();
    order.sort_by_key(|&d| (std::cmp::Reverse(strides[d]), d));
    permuted(step, &order)
}

fn permuted(step: &Step, order: &[usize]) -> Step {
    let mut out = step.clone();
    for a in out.inputs.iter_mut().chain([&mut out.output]) {
        a.view = a.view.permuted(order);
        if let Some(guard) = &mut a.guard {
            guard.ranges = order.iter().map(|d| guard.ranges[*d]).collect();
        }
        for table in &mut a.indirect {
            table.view = table.view.permuted(order);
        }
    }
    out
}

/// What steps that are joined have in common.
fn form(graph: &FusedGraph, step: &Step) -> String {
    let step = turned(step);
    let of = |a: &Access| {
        let t = graph.tensor(a.tensor).dtype;
        format!("{:?} {t:?} {} {}", a.view.strides, a.guard.is_some(), a.indirect.len())
    };
    let operands: Vec<String> = step.inputs.iter().map(of).collect();
    format!("{:?} {operands:?} {:?}", step.expr, graph.tensor(step.output.tensor).dtype)
}

/// The same tensor, or equal constants.
fn equal(graph: &FusedGraph, a: TensorId, b: TensorId) -> bool {
    match (&graph.tensor(a).role, &graph.tensor(b).role) {
        _ if a == b => true,
        (Role::Constant(x), Role::Constant(y)) => {
            x.dtype() == y.dtype() && x.shape() == y.shape() && x.byte_len() <= SMALL && x.bytes() == y.bytes()
        }
        _ => false,
    }
}

/// Makes step `first` compute what step `other` does too, whose readers read the joined tensor.
fn join(graph: &mut FusedGraph, first: usize, other: usize, uses: &mut Uses) -> Option<()> {
    let (a, b) = (turned(&graph.steps[first]), turned(&graph.steps[other]));
    let order = lying(graph, &a.output)?;
    let (a, b) = (permuted(&a, &order), permuted(&b, &order));
    let alone = |t: TensorId| uses.writers[t.index()].len() == 1;
    let there = |t: TensorId| uses.writers[t.index()].iter().all(|w| *w < first);
    let early = b.inputs.iter().all(|x| there(x.tensor) && x.indirect.iter().all(|table| there(table.index)));
    let (da, db) = (&a.output.view.dims, &b.output.view.dims);
    if !early || !alone(a.output.tensor) || !alone(b.output.tensor) || da.len() != db.len() {
        return None;
    }
    let fits = |d: usize, a: &Step, b: &Step| {
        let others = (0..da.len()).all(|i| i == d || da[i] == db[i]);
        others && a.inputs.iter().zip(&b.inputs).all(|(x, y)| follows(graph, x, y, d))
    };
    // The one whose operands come first may be the later step.
    let along = |a: &Step, b: &Step| (0..da.len()).find(|&d| fits(d, a, b));
    let (along, swapped) = along(&a, &b).map(|d| (d, false)).or_else(|| along(&b, &a).map(|d| (d, true)))?;
    let mut dims = da.clone();
    dims[along] += db[along];
    let mut step = if swapped { b.clone() } else { a.clone() };
    step.name = format!("{}+{}", a.name, b.name);
    for access in &mut step.inputs {
        access.view.dims[along] = dims[along];
        if let Some(guard) = &mut access.guard {
            guard.ranges[along] = (0, dims[along]);
        }
        access.indirect.iter_mut().for_each(|table| table.view.dims[along] = dims[along]);
    }
    let t = graph.tensor(a.output.tensor);
    let tensor = Tensor { name: t.name.clone(), dtype: t.dtype, shape: dims.clone(), role: Role::Intermediate };
    let (orders, view) = ([lying(graph, &a.output)?, lying(graph, &b.output)?], View::dense(&dims));
    let whole = TensorId(graph.tensors.len() as u32);
    step.output = Access::new(whole, view.clone());
    let mut parts: FxHashMap<TensorId, (usize, View)> = FxHashMap::default();
    let starts = if swapped { (db[along], 0) } else { (0, da[along]) };
    let places = [(first, &a, starts.0, da[along]), (other, &b, starts.1, db[along])];
    for ((i, s, from, n), order) in places.into_iter().zip(orders) {
        parts.insert(s.output.tensor, (i, view.sliced(along, from, 1, n).permuted(&order)));
    }
    graph.add_tensor(tensor);
    uses.add(Some(first), Vec::new());
    let changed = redirected_readers(graph, &parts, whole, uses).ok()?;
    graph.step_promises(&step).ok()?;
    uses.readers[whole.index()] = changed.keys().copied().collect();
    changed.into_iter().for_each(|(i, step)| graph.steps[i] = step);
    graph.steps[first] = step;
    Some(())
}

/// True when the second access goes on along a dimension where the first ends, or when neither walks it.
fn follows(graph: &FusedGraph, a: &Access, b: &Access, d: usize) -> bool {
    let n = a.view.dims[d] as i64;
    let whole = |x: &Access| x.guard.as_ref().is_none_or(|g| g.ranges[d] == (0, x.view.dims[d]));
    let others = |g: &Option<Guard>| {
        let apart = |g: &Guard| {
            (g.ranges.iter().enumerate().filter(|(i, _)| *i != d).map(|(_, r)| *r).collect::<Vec<_>>(), g.fill)
        };
        g.as_ref().map(apart)
    };
    let tables = || {
        a.indirect.len() == b.indirect.len()
            && a.indirect.iter().zip(&b.indirect).all(|(x, y)| {
                let alike = x.index == y.index && x.view.offset == y.view.offset && x.view.strides == y.view.strides;
                alike && x.view.strides[d] == 0 && (x.stride, x.extent) == (y.stride, y.extent)
            })
    };
    a.view.strides == b.view.strides
        && tables()
        && a.view.offset + n * a.view.strides[d] == b.view.offset
        && whole(a)
        && whole(b)
        && others(&a.guard) == others(&b.guard)
        && equal(graph, a.tensor, b.tensor)
}
