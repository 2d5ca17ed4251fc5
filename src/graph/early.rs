//! What all readers of booleans make of them alone is made once, where they are written: a mask that each layer's attention would
//! turn to what is added to its scores, for each head anew, is stored as that.

use super::expr::{Expr, Op, Val, operands};
use super::fused::{FusedGraph, Role, Step, StepKind, TensorId};
use super::uses::Uses;
use crate::tensor::DType;

/// Makes such values early.
pub(super) fn make_early(graph: &mut FusedGraph) {
    let uses = Uses::of(graph);
    for id in (0..graph.tensors.len() as u32).map(TensorId) {
        let t = graph.tensor(id);
        let [writer] = uses.writers[id.index()][..] else { continue };
        let alone = t.role == Role::Intermediate && graph.steps[writer].kind == StepKind::Pointwise;
        if t.dtype != DType::Bool || !alone {
            continue;
        }
        let Some((made, readers)) = made_by_all(graph, &uses.readers[id.index()], id) else { continue };
        let mut expr = Expr::new();
        let old = expr.append(&graph.steps[writer].expr, None, |e, i, dtype| e.input(i as usize, dtype));
        let new = expr.append(&made, None, |_, _, _| old);
        graph.steps[writer].expr = expr.finish(new);
        graph.tensors[id.index()].dtype = made.dtype();
        readers.into_iter().for_each(|(r, step)| graph.steps[r] = step);
    }
}

/// What these steps all make of a tensor, as an expression of operand 0, and they when they read it made.
fn made_by_all(graph: &FusedGraph, readers: &[usize], id: TensorId) -> Option<(Expr, Vec<(usize, Step)>)> {
    let mut made: Option<Expr> = None;
    let mut steps = Vec::new();
    for &r in readers {
        let mut step = graph.steps[r].clone();
        if step.inputs.iter().flat_map(|a| &a.indirect).any(|x| x.index == id) {
            return None;
        }
        for k in (0..step.inputs.len()).filter(|k| graph.steps[r].inputs[*k].tensor == id) {
            if k < step.kind.operands() || step.inputs[k].guard.is_some() {
                return None;
            }
            let at = made_of(&step.expr, k)?;
            let own = step.expr.clone().finish(at).map_inputs(|_| 0);
            if made.get_or_insert_with(|| own.clone()) != &own {
                return None;
            }
            step.expr = read_made(&step.expr, k, at);
        }
        steps.push((r, step));
    }
    made.filter(|m| m.dtype().size() <= 4).map(|m| (m, steps))
}

/// The one node through which an expression depends on operand `k`, where that is computed of nothing else.
fn made_of(expr: &Expr, k: usize) -> Option<Val> {
    #[derive(Clone, Copy, PartialEq)]
    enum Of {
        Nothing,
        It,
        Others,
    }
    let mut of: Vec<Of> = Vec::new();
    let mut found: Option<Val> = None;
    let all = expr.nodes();
    for node in all {
        let below = operands(node.op).map(|v| of[v.index()]);
        let own = match node.op {
            Op::Input(i) if i as usize == k => Of::It,
            Op::Input(_) | Op::Acc | Op::Paired => Of::Others,
            _ => below.fold(Of::Nothing, |a, b| match (a, b) {
                (Of::Nothing, x) | (x, Of::Nothing) => x,
                (Of::It, Of::It) => Of::It,
                _ => Of::Others,
            }),
        };
        of.push(own);
        if own == Of::Others {
            for v in operands(node.op).filter(|v| of[v.index()] == Of::It) {
                if found.is_some_and(|f| f != v) {
                    return None;
                }
                found = Some(v);
            }
        }
    }
    let last = expr.result();
    if of[last.index()] == Of::It {
        found = Some(last);
    }
    found.filter(|v| !matches!(all[v.index()].op, Op::Input(_)))
}

/// An expression whose operand `k` is what node `at` was.
fn read_made(expr: &Expr, k: usize, at: Val) -> Expr {
    let mut new = Expr::new();
    let mut map: Vec<Val> = Vec::new();
    for (n, node) in expr.nodes().iter().enumerate() {
        let v = match node.op {
            _ if n == at.index() => new.input(k, node.dtype),
            op => new.push(super::expr::rename(op, |v| map[v.index()]), node.dtype),
        };
        map.push(v);
    }
    let result = map[expr.result().index()];
    new.finish(result)
}
