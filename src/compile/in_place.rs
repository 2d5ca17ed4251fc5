//! Which outputs may lie where an input does, and which launches then have nothing to do.
//!
//! An output in the place of an input overwrites it. That is right where whoever reads the input does so in launches before the first one
//! that writes the output; or in that launch, if every workitem reads nothing of the input but the elements that it itself writes
//! afterwards: a cache that a scatter copies, or a team of an attention, line by line. Decided over launches, as steps that are launched
//! together are no longer in order.

use super::behind::Built;
use crate::graph::expr::{Binary, Op, Scalar, Val};
use crate::graph::fused::{Access, Attention, FusedGraph, Program, Role, Step, StepKind};
use crate::graph::kinds::program::Source;
use crate::graph::view::View;
use crate::runtime::plan::{InPlace, Region};

/// The input that an access reads, or the output that it writes.
fn port(graph: &FusedGraph, a: &Access) -> Option<Region> {
    match graph.tensor(a.tensor).role {
        Role::Input(i) => Some(Region::Input(i)),
        Role::Output(o) => Some(Region::Output(o)),
        _ => None,
    }
}

/// An access of all of a tensor as it lies.
fn is_whole(graph: &FusedGraph, a: &Access) -> bool {
    a.is_plain() && a.view.offset == 0 && a.view.is_dense() && a.view.len() == graph.tensor(a.tensor).len()
}

/// What a step's kernel number `n` copies, where it does nothing else.
fn copy(graph: &FusedGraph, step: &Step, n: usize) -> Option<InPlace> {
    let copies = match &step.kind {
        StepKind::Pointwise => step.expr.is_copy() && step.inputs.len() == 1,
        // The first one of its kernels.
        StepKind::Scatter(_) => n == 0,
        _ => false,
    };
    let from = step.inputs.first().filter(|_| copies)?;
    match (port(graph, from)?, port(graph, &step.output)?) {
        (Region::Input(input), Region::Output(output)) if is_whole(graph, from) && is_whole(graph, &step.output) => {
            Some(InPlace { input, output })
        }
        _ => None,
    }
}

/// What kernel number `n` of steps that are launched together copies, where it does nothing else.
pub(super) fn copies(graph: &FusedGraph, steps: &[usize], n: usize) -> Vec<InPlace> {
    steps.iter().map(|i| copy(graph, &graph.steps[*i], n)).collect::<Option<_>>().unwrap_or_default()
}

/// A value of a program as a number and so much for each coordinate; `None` where it is something else.
fn linear(program: &Program, v: Val, rank: usize) -> Option<(i64, Vec<i64>)> {
    let of = |v: Val| linear(program, v, rank);
    let none = vec![0; rank];
    match program.values.get(v.index())?.0 {
        Source::Coordinate(d) => Some((0, (0..rank).map(|i| i64::from(i == d)).collect())),
        Source::Operation(Op::Const(Scalar::Int(x))) => Some((x, none)),
        Source::Operation(Op::Binary(op @ (Binary::Add | Binary::Mul), a, b)) => {
            let ((x, xs), (y, ys)) = (of(a)?, of(b)?);
            match op {
                Binary::Add => Some((x + y, xs.iter().zip(&ys).map(|(a, b)| a + b).collect())),
                _ if xs == none => Some((x.checked_mul(y)?, ys.iter().map(|s| s.wrapping_mul(x)).collect())),
                _ if ys == none => Some((x.checked_mul(y)?, xs.iter().map(|s| s.wrapping_mul(y)).collect())),
                _ => None,
            }
        }
        _ => None,
    }
}

/// True for an operand of which a program reads nothing but the element at the place of its result.
fn reads_own(program: &Program, operand: usize, dims: &[usize]) -> bool {
    let own = (0, View::dense(dims).strides.iter().zip(dims).map(|(s, d)| if *d > 1 { *s } else { 0 }).collect());
    let fits = |(at, mut strides): (i64, Vec<i64>)| {
        // Coordinates of extents of 1 are 0, however often they are counted.
        strides.iter_mut().zip(dims).filter(|(_, d)| **d == 1).for_each(|(s, _)| *s = 0);
        (at, strides) == own
    };
    program.values.iter().all(|(source, _)| match *source {
        Source::Load { operand: i, at, .. } if i == operand => linear(program, at, dims.len()).is_some_and(fits),
        _ => true,
    })
}

/// True for operand `i` of a step of which every workitem reads what it itself writes to an output, and that afterwards.
fn is_own(graph: &FusedGraph, step: &Step, i: usize, output: usize) -> bool {
    let (a, out) = (&step.inputs[i], &step.output);
    let writes = |a: &Access| port(graph, a) == Some(Region::Output(output));
    let same = |to: &Access| a.is_plain() && writes(to) && a.view == to.view;
    match &step.kind {
        // Neighbours stay neighbours: nothing goes by way of LDS.
        StepKind::Pointwise => {
            let in_lines = |a: &Access| a.is_plain() && a.view.strides.last().is_none_or(|s| (0..=1).contains(s));
            same(out) && step.inputs.iter().all(in_lines)
        }
        StepKind::Scatter(_) => i == 0 && same(out),
        StepKind::Attention(kind @ Attention { cached: true, .. }) => {
            let first = kind.caches().start;
            [(first, 1), (first + 2, 2)].into_iter().any(|(past, of)| i == past && same(&step.inputs[of]))
        }
        StepKind::Program(program) => {
            let whole = is_whole(graph, a) && is_whole(graph, out) && writes(out);
            whole && i < program.operands && reads_own(program, i, &out.view.dims)
        }
        _ => false,
    }
}

/// Inputs and outputs of as many bytes that may share their memory.
pub(super) fn find(graph: &FusedGraph, launches: &[Built]) -> Vec<InPlace> {
    let takes = |b: &Built, region: Region| b.launch.args.iter().any(|a| a.region == region);
    let mut out = Vec::new();
    for (output, o) in graph.outputs.iter().enumerate() {
        let Some(first) = launches.iter().position(|l| takes(l, Region::Output(output))) else { continue };
        for (input, i) in graph.inputs.iter().enumerate() {
            let (from, to) = (graph.tensor(*i), graph.tensor(*o));
            if from.bytes() != to.bytes() || from.dtype.size() != to.dtype.size() {
                continue;
            }
            let last = launches.iter().rposition(|l| takes(l, Region::Input(input)));
            let own = |s: &usize| {
                let step = &graph.steps[*s];
                let reads = |i: &usize| step.inputs[*i].tensor == graph.inputs[input];
                let by_table = step.inputs.iter().flat_map(|a| &a.indirect).any(|t| t.index == graph.inputs[input]);
                !by_table && (0..step.inputs.len()).filter(reads).all(|i| is_own(graph, step, i, output))
            };
            let fits = match last {
                Some(last) if last == first => launches[first].steps.iter().all(own),
                last => last.is_none_or(|last| last < first),
            };
            if fits {
                out.push(InPlace { input, output });
            }
        }
    }
    out
}
