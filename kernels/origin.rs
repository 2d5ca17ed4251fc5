//! Where a kernel's part of a tensor begins.
//!
//! Steps that differ only in which part of a tensor they read or write (inputs of a Concat, outputs of a Split, the three
//! products of a projection) share a kernel: the address that it is given is that of the part, and its code knows nothing of
//! what lies in front. Addresses move by whole lines of [`LINE`] bytes, so that what a kernel concludes about alignment stays
//! true; the few bytes that are left stand in its code, as the offset of the [`relative`] step.

use super::Arg;
use crate::graph::fused::{Access, FusedGraph, Indirect, Step};
use crate::graph::{LARGEST, walked};
use crate::tensor::DType;

/// Bytes of the widest load: tensors begin at multiples of it.
const LINE: i64 = 16;

/// Bytes of an access's tensor that lie in front of what its kernel is given.
fn in_front(graph: &FusedGraph, step: &Step, access: &Access) -> i64 {
    // What is read through tables or outside of which nothing is read has no first element that the view tells. A kernel
    // that reads other parts of what it writes must see that they are one memory.
    let out = step.output.tensor;
    let shared = access.tensor == out && (step.inputs.iter().any(|a| a.tensor == out) || step.kind.beside().is_some());
    let t = graph.tensor(access.tensor);
    let first = match access.view.extent() {
        // Offsets do not reach it from the tensor's beginning.
        _ if t.bytes() >= LARGEST && step.kind.beside().is_none() => {
            let accesses = step.inputs.iter().chain([&step.output]).filter(|a| shared && a.tensor == out);
            accesses.chain([access]).filter_map(walked).map(|(first, _)| first).min().unwrap_or(0)
        }
        Some((first, _)) if access.is_plain() && !shared => first,
        _ => 0,
    };
    lines(first, t.dtype)
}

/// That of an index table.
fn in_front_of_table(graph: &FusedGraph, table: &Indirect) -> i64 {
    let t = graph.tensor(table.index);
    let first = table.view.extent().filter(|_| t.bytes() >= LARGEST).map_or(0, |(first, _)| first);
    lines(first, t.dtype)
}

/// Bytes in front of an element, down to a whole line.
fn lines(first: i64, t: DType) -> i64 {
    let bytes = first * t.size() as i64;
    bytes - bytes % LINE
}

/// Bytes between the beginning of an argument's tensor and the address that the kernel is given.
pub(super) fn of(graph: &FusedGraph, step: &Step, arg: Arg) -> usize {
    let bytes = match arg {
        Arg::Input(i) => in_front(graph, step, &step.inputs[i]),
        Arg::Output => in_front(graph, step, &step.output),
        Arg::Index(i, k) => in_front_of_table(graph, &step.inputs[i].indirect[k]),
        _ => 0,
    };
    bytes as usize
}

/// The step as its kernel sees it: offsets count from the addresses that it is given.
pub(super) fn relative(graph: &FusedGraph, step: &Step) -> Step {
    let mut seen = step.clone();
    for (to, from) in seen.inputs.iter_mut().chain([&mut seen.output]).zip(step.inputs.iter().chain([&step.output])) {
        to.view.offset -= in_front(graph, step, from) / graph.tensor(from.tensor).dtype.size() as i64;
        for (to, from) in to.indirect.iter_mut().zip(&from.indirect) {
            to.view.offset -= in_front_of_table(graph, from) / graph.tensor(from.index).dtype.size() as i64;
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::expr::Expr;
    use crate::graph::fused::{Guard, Role, StepKind, Tensor};
    use crate::graph::view::View;

    /// Copies a part of 4 rows of 5 to another part of such a tensor.
    fn copy(dtype: DType, from: View, to: View) -> (FusedGraph, Step) {
        let mut graph = FusedGraph::default();
        let tensor = |role| Tensor { name: "t".into(), dtype, shape: vec![40, 5], role };
        let (x, y) = (graph.add_tensor(tensor(Role::Input(0))), graph.add_tensor(tensor(Role::Output(0))));
        let mut expr = Expr::new();
        expr.input(0, dtype);
        let (inputs, output) = (vec![Access::new(x, from)], Access::new(y, to));
        (graph, Step { name: "copy".into(), kind: StepKind::Pointwise, inputs, expr, output })
    }

    #[test]
    fn parts_of_tensors_look_alike_from_their_own_lines() {
        let whole = View::dense(&[40, 5]);
        let rows = |first: usize| whole.sliced(0, first, 1, 4);
        for (dtype, kinds) in [(DType::F32, 4), (DType::F16, 8), (DType::U8, 16), (DType::I64, 2)] {
            let mut seen = std::collections::BTreeSet::new();
            for first in 0..36 {
                let (graph, step) = copy(dtype, rows(0), rows(first));
                let at = of(&graph, &step, Arg::Output);
                let relative = relative(&graph, &step);
                assert_eq!(at % LINE as usize, 0);
                assert_eq!(
                    at as i64 + relative.output.view.offset * dtype.size() as i64,
                    (first * 5 * dtype.size()) as i64
                );
                assert_eq!((of(&graph, &step, Arg::Input(0)), relative.inputs[0].view.offset), (0, 0));
                seen.insert(super::super::key(&graph, &step));
            }
            assert_eq!(seen.len(), kinds, "{dtype}");
        }
    }

    #[test]
    fn what_is_walked_backwards_begins_at_its_last_element() {
        let back = View::dense(&[40, 5]).sliced(0, 39, -1, 4);
        let (graph, step) = copy(DType::F32, back, View::dense(&[4, 5]));
        // Rows 39 to 36, of 20 bytes: the first byte is 720.
        assert_eq!((of(&graph, &step, Arg::Input(0)), relative(&graph, &step).inputs[0].view.offset), (720, 15));
    }

    #[test]
    fn far_parts_begin_at_their_own_lines_however_they_are_read() {
        let mut graph = FusedGraph::default();
        let tensor = |dtype, shape: &[usize], role| Tensor { name: "t".into(), dtype, shape: shape.to_vec(), role };
        let x = graph.add_tensor(tensor(DType::F32, &[3 << 20, 1001], Role::Input(0)));
        let index = graph.add_tensor(tensor(DType::I64, &[7], Role::Input(1)));
        let y = graph.add_tensor(tensor(DType::F32, &[7, 5], Role::Output(0)));
        let view = View { offset: 2_000_000_003, dims: vec![7, 5], strides: vec![0, 1] };
        let table = View { offset: 0, dims: vec![7, 5], strides: vec![1, 0] };
        let indirect = vec![Indirect { index, view: table, stride: 1001, extent: 100 }];
        let access = Access { tensor: x, view, guard: None, indirect };
        let expr = Expr::copy(DType::F32);
        let output = Access::new(y, View::dense(&[7, 5]));
        let mut step = Step { name: "far".into(), kind: StepKind::Pointwise, inputs: vec![access], expr, output };
        // Byte 8,000,000,012 is 12 behind a line.
        let at = |step: &Step| (of(&graph, step, Arg::Input(0)), relative(&graph, step).inputs[0].view.offset);
        assert_eq!(at(&step), (8_000_000_000, 3));
        // Indices that lead backwards, and what is not read.
        step.inputs[0].indirect[0].stride = -1001;
        assert_eq!(at(&step), (7_999_603_616, 99_099));
        step.inputs[0].indirect.clear();
        step.inputs[0].view = View { offset: 2_000_000_000 - 2002, dims: vec![7, 5], strides: vec![1001, 1] };
        let fill = crate::graph::expr::Scalar::of(DType::F32, 0.0);
        step.inputs[0].guard = Some(Guard { ranges: vec![(2, 7), (0, 5)], fill });
        assert_eq!(at(&step), (8_000_000_000, -2002));
    }

    #[test]
    fn guarded_and_shared_memory_is_given_whole() {
        let rows = View::dense(&[40, 5]).sliced(0, 8, 1, 4);
        let (graph, mut step) = copy(DType::F32, rows.clone(), rows.clone());
        assert_eq!((of(&graph, &step, Arg::Input(0)), of(&graph, &step, Arg::Output)), (160, 160));
        let fill = crate::graph::expr::Scalar::of(DType::F32, 0.0);
        step.inputs[0].guard = Some(Guard { ranges: vec![(1, 4), (0, 5)], fill });
        assert_eq!((of(&graph, &step, Arg::Input(0)), of(&graph, &step, Arg::Output)), (0, 160));
        step.inputs[0] = Access::new(step.output.tensor, rows.sliced(0, 0, 1, 4));
        assert_eq!((of(&graph, &step, Arg::Input(0)), of(&graph, &step, Arg::Output)), (0, 0));
    }
}
