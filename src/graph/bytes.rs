//! What lies between quantised steps is stored in bytes, as those that read it want them.
//!
//! Models in the form of QuantizeLinear and DequantizeLinear have floats between all operators. While operators are lowered both become part of the
//! step before them, which then stores floats of which there are 256. Such a tensor holds the bytes instead, and who reads it widens them. The
//! largest float of a window is that of the largest byte where a larger byte is a larger float.
//!
//! Convolutions want unsigned bytes as signed ones, combined with a zero point by exclusive or, where others read them as they are. The
//! tensor holds what convolutions want, so that nothing is stored twice, and others take that back.

use super::expr::{Binary, Expr, Op, Scalar, Val, operands, rename};
use super::fused::{Conv, FusedGraph, Pool, PoolOp, Reduce, Role, Step, StepKind, TensorId};
use super::uses::{Changes, Changing, Uses};
use crate::tensor::DType;
use std::collections::BTreeSet;

/// Stores such tensors so.
pub(super) fn store_bytes(graph: &mut FusedGraph) {
    if !graph.steps.iter().any(|s| s.expr.nodes().iter().any(|n| is_byte(n.dtype))) {
        return;
    }
    let mut changing = Changing::of(graph);
    for t in 0..graph.tensors.len() {
        if graph.tensors[t].role == Role::Intermediate {
            changing.attempt(|graph, uses| narrow(graph, uses, t));
            changing.attempt(|graph, uses| combined(graph, uses, t));
        }
    }
    if let Some(changed) = changing.end() {
        *graph = changed;
    }
}

fn is_byte(t: DType) -> bool {
    matches!(t, DType::I8 | DType::U8)
}

/// The steps that write a tensor, where their expressions say what.
fn written_by<'g>(graph: &'g FusedGraph, uses: &Uses, t: usize) -> Option<Vec<(usize, &'g Step)>> {
    let says = |s: &Step| {
        let kind = matches!(
            s.kind,
            StepKind::Conv(_) | StepKind::MatMul | StepKind::Pool(_) | StepKind::Reduce(_) | StepKind::Pointwise
        );
        kind && s.written().count() == 1
    };
    let all: Vec<(usize, &Step)> = uses.writers[t].iter().map(|w| (*w, &graph.steps[*w])).collect();
    (!all.is_empty() && all.iter().all(|(_, s)| says(s))).then_some(all)
}

/// Floats that are made of bytes.
fn narrow(graph: &mut FusedGraph, uses: &Uses, t: usize) -> Option<Changes> {
    let [(at, step)] = written_by(graph, uses, t)?[..] else { return None };
    if !graph.tensors[t].dtype.is_float() {
        return None;
    }
    let (byte, read) = made_of_bytes(&step.expr)?;
    let write = Step { expr: step.expr.clone().finish(byte), ..step.clone() };
    let readers = uses.readers[t].iter().copied().collect();
    stored(graph, t, vec![(at, Some(write))], (&BTreeSet::new(), readers), &read)
}

/// Bytes that convolutions read by others, which they are combined with another byte for.
fn combined(graph: &mut FusedGraph, uses: &Uses, t: usize) -> Option<Changes> {
    let from = graph.tensors[t].dtype;
    if !is_byte(from) {
        return None;
    }
    let copy = |r: usize| {
        let (step, own) = (&graph.steps[r], graph.steps[r].output.tensor.index());
        let [read] = &step.inputs[..] else { return None };
        let alike = read.is_plain() && read.view == step.output.view;
        let alone = graph.tensors[own].role == Role::Intermediate && uses.writers[own] == [r];
        let convolved = uses.readers[own].iter().all(|s| matches!(graph.steps[*s].kind, StepKind::Conv(_)));
        let found = step.kind == StepKind::Pointwise && alike && alone && convolved;
        let byte = found.then(|| with_another(&step.expr)).flatten()?;
        Some(Copied { step: r, byte, to: step.output.tensor })
    };
    let all: Vec<Copied> = uses.readers[t].iter().filter_map(|r| copy(*r)).collect();
    // What is around an image decides, where something is.
    let around = |c: &&Copied| uses.readers[c.to.index()].iter().any(|r| !takes_any(&graph.steps[*r]));
    let byte = all.iter().find(around).or(all.first())?.byte;
    let mut changes = Changes::new();
    let (mut others, mut gone) = (BTreeSet::new(), BTreeSet::new());
    let mut turned: Vec<(usize, Step)> = Vec::new();
    for copied in &all {
        let readers = &uses.readers[copied.to.index()];
        let change = copied.byte ^ byte;
        if change == 0 {
            others.insert(copied.to);
        } else if readers.iter().all(|r| takes_any(&graph.steps[*r])) {
            let of = |r: &usize| Some((*r, combined_with(&graph.steps[*r], change, copied.to, t)?));
            turned.extend(readers.iter().map(of).collect::<Option<Vec<_>>>()?);
        } else {
            continue;
        }
        changes.push((copied.step, None));
        gone.insert(copied.step);
    }
    let write = with_byte(byte, from, DType::I8);
    let ends = |step: &Step| {
        let mut expr = Expr::new();
        let of = step.expr.nodes().iter().find(|n| n.op == Op::Acc).map(|n| expr.push_acc(n.dtype));
        let result = expr.append(&step.expr, of, |e, i, t| e.input(i as usize, t));
        let result = expr.append(&write, Some(result), |e, i, t| e.input(i as usize, t));
        Step { expr: expr.finish(result), ..step.clone() }
    };
    changes.extend(written_by(graph, uses, t)?.into_iter().map(|(w, s)| (w, Some(ends(s)))));
    let readers = others.iter().map(|o| o.index()).chain([t]).flat_map(|t| uses.readers[t].iter().copied());
    let readers: BTreeSet<usize> = readers.filter(|r| !gone.contains(r)).collect();
    // One step reads both: seldom.
    if turned.iter().any(|(r, _)| readers.contains(r)) {
        return None;
    }
    changes.extend(turned.into_iter().map(|(r, step)| (r, Some(step))));
    stored(graph, t, changes, (&others, readers), &with_byte(byte, DType::I8, from))
}

/// A step that combines the elements of a tensor with a byte, and what it gives.
struct Copied {
    step: usize,
    byte: u8,
    to: TensorId,
}

/// A convolution may combine what it reads with any byte for as little as with none: it has nothing around its image, and its image is none of the
/// operands of a product as it is.
fn takes_any(step: &Step) -> bool {
    let StepKind::Conv(Conv { window, before: None, also, .. }) = &step.kind else { return false };
    let (x, out) = (&step.inputs[0].view.dims, &step.output.view.dims);
    let last = |d: usize| (out[d + 2] - 1) * window.strides[d] + (window.kernel[d] - 1) * window.dilations[d];
    let within = |d: usize| window.pads[d] == 0 && last(d) < x[d + 2];
    also.is_empty() && !window.is_point() && (0..window.kernel.len()).all(within)
}

/// A convolution that reads `t` in the place of another tensor, whose bytes are those of `t` combined with a byte.
fn combined_with(step: &Step, byte: u8, other: TensorId, t: usize) -> Option<Step> {
    let mut step = step.clone();
    let StepKind::Conv(conv) = &mut step.kind else { return None };
    conv.flip ^= byte;
    if step.inputs[1..].iter().any(|a| a.tensor == other) {
        return None;
    }
    step.inputs[0].tensor = TensorId(t as u32);
    Some(step)
}

/// The changes, and those of steps that read the tensor: it holds what `read` makes its elements of. Others that hold the same are read as it.
fn stored(
    graph: &mut FusedGraph,
    t: usize,
    mut changes: Changes,
    (others, readers): (&BTreeSet<TensorId>, BTreeSet<usize>),
    read: &Expr,
) -> Option<Changes> {
    let id = TensorId(t as u32);
    for r in readers {
        let mut step = widened(&graph.steps[r], id, read)?;
        step.inputs.iter_mut().filter(|a| others.contains(&a.tensor)).for_each(|a| a.tensor = id);
        changes.push((r, Some(step)));
    }
    let holds = read.nodes().iter().find(|n| n.op == Op::Acc)?.dtype;
    let before = std::mem::replace(&mut graph.tensors[t].dtype, holds);
    if changes.iter().any(|(_, s)| s.as_ref().is_some_and(|s| graph.step_promises(s).is_err())) {
        graph.tensors[t].dtype = before;
        return None;
    }
    Some(changes)
}

/// A step that makes the elements of a tensor itself of what that holds.
fn widened(step: &Step, t: TensorId, read: &Expr) -> Option<Step> {
    let holds = read.nodes().iter().find(|n| n.op == Op::Acc)?.dtype;
    let reads = |a: &crate::graph::fused::Access| a.tensor == t;
    if step.inputs.iter().any(|a| reads(a) && !a.is_plain() || a.indirect.iter().any(|x| x.index == t)) {
        return None;
    }
    let mut kind = step.kind.clone();
    let mut expr = Expr::new();
    let mut acc = step.expr.nodes().iter().find(|n| n.op == Op::Acc).map(|n| expr.push_acc(n.dtype));
    for i in (0..step.kind.operands()).filter(|i| reads(&step.inputs[*i])) {
        let prologue = |own: &Expr| {
            let mut expr = Expr::new();
            let element = expr.push_acc(holds);
            let element = expr.append(read, Some(element), |e, i, t| e.input(i as usize, t));
            let element = expr.append(own, Some(element), |e, i, t| e.input(i as usize, t));
            expr.finish(element)
        };
        match &mut kind {
            StepKind::Pool(Pool { op: PoolOp::Max, prologue, .. }) if i == 0 && prologue.is_acc() && rises(read) => {
                *prologue = Expr::acc(holds);
                expr = Expr::new();
                let largest = expr.push_acc(holds);
                acc = Some(expr.append(read, Some(largest), |e, i, t| e.input(i as usize, t)));
            }
            StepKind::Pool(Pool { prologue: own, .. }) | StepKind::Reduce(Reduce { prologue: own, .. }) if i == 0 => {
                *own = prologue(own);
            }
            _ => return None,
        }
    }
    let result = expr.append(&step.expr, acc, |e, i, dtype| match step.inputs.get(i as usize) {
        Some(a) if reads(a) => {
            let element = e.input(i as usize, holds);
            e.append(read, Some(element), |e, i, t| e.input(i as usize, t))
        }
        _ => e.input(i as usize, dtype),
    });
    Some(Step { kind, expr: expr.finish(result), ..step.clone() })
}

/// The last byte of which alone, and of constants, the result of an expression is made, and how.
fn made_of_bytes(e: &Expr) -> Option<(Val, Expr)> {
    let nodes = e.nodes();
    (0..nodes.len()).rev().map(|i| Val(i as u32)).find_map(|byte| {
        let node = nodes[byte.index()];
        if !is_byte(node.dtype) || matches!(node.op, Op::Input(_) | Op::Const(_) | Op::Acc) {
            return None;
        }
        let mut out = Expr::new();
        let mut map: Vec<Option<Val>> = vec![None; nodes.len()];
        for (i, node) in nodes.iter().enumerate() {
            let known = operands(node.op).all(|v| map[v.index()].is_some());
            map[i] = match node.op {
                _ if i == byte.index() => Some(out.push_acc(node.dtype)),
                Op::Acc | Op::Input(_) => None,
                op if known => Some(out.push(rename(op, |v| map[v.index()].unwrap_or(v)), node.dtype)),
                _ => None,
            };
        }
        let result = map[e.result().index()]?;
        (byte != e.result()).then(|| (byte, out.finish(result)))
    })
}

/// The byte that an expression combines an element of one byte with by exclusive or, and gives that as a signed byte.
fn with_another(e: &Expr) -> Option<u8> {
    let node = |v: Val| e.nodes()[v.index()];
    let result = node(e.result());
    let xor = match result.op {
        Op::Cast(x) => node(x),
        _ => result,
    };
    match xor.op {
        _ if !is_byte(xor.dtype) || result.dtype != DType::I8 => None,
        Op::Input(0) if xor != result => Some(0),
        Op::Binary(Binary::Xor, x, c) => match (node(x).op, node(c).op) {
            (Op::Input(0), Op::Const(c)) => Some(c.as_i64() as u8),
            _ => None,
        },
        _ => None,
    }
}

/// Bytes of a type, combined with one, as those of another type.
fn with_byte(byte: u8, from: DType, to: DType) -> Expr {
    let byte = if from == DType::I8 { i64::from(byte as i8) } else { i64::from(byte) };
    let mut e = Expr::new();
    let (x, c) = (e.push_acc(from), e.literal(from, Scalar::Int(byte)));
    let x = e.binary(Binary::Xor, x, c);
    let x = e.cast(x, to);
    e.finish(x)
}

/// A larger byte becomes a larger number, or one that is as large.
fn rises(e: &Expr) -> bool {
    let nodes = e.nodes();
    let constant = |v: Val| match nodes[v.index()].op {
        Op::Const(c) => Some(c.as_f64()),
        _ => None,
    };
    // Signed bytes without their sign, which unsigned ones have as their highest bit.
    let turned = |v: Val| match nodes[v.index()].op {
        Op::Binary(Binary::Xor, x, c) => {
            constant(c).is_some_and(|c| c as i64 as u8 == 0x80) && nodes[x.index()].op == Op::Acc
        }
        _ => false,
    };
    nodes.iter().enumerate().all(|(i, node)| match node.op {
        Op::Acc | Op::Const(_) => true,
        Op::Cast(x) if node.dtype.is_float() => !turned(x),
        Op::Cast(x) => turned(x) && is_byte(node.dtype) && node.dtype != nodes[x.index()].dtype,
        Op::Binary(Binary::Add | Binary::Sub, _, c) => node.dtype.is_float() && constant(c).is_some(),
        Op::Binary(Binary::Mul, _, c) => node.dtype.is_float() && constant(c).is_some_and(|c| c > 0.0),
        Op::Binary(Binary::Xor, ..) => turned(Val(i as u32)) && i + 1 < nodes.len(),
        _ => false,
    })
}
