//! Where a kernel's part of a tensor begins.
//!
//! Steps that differ only in which part of a tensor they read or write (inputs of a Concat, outputs of a Split, the three
//! products of a projection) share a kernel: the address that it is given is that of the part, and its code knows nothing of
//! what lies in front. Addresses move by whole lines of [`LINE`] bytes, so that what a kernel concludes about alignment stays
//! true; the few bytes that are left stand in its code, as the offset of the [`relative`] step.

use super::Arg;
use crate::graph::fused::{Access, FusedGraph, Step};

/// Bytes of the widest load: tensors begin at multiples of it.
const LINE: i64 = 16;

/// Bytes of an access's tensor that lie in front of what its kernel is given.
fn in_front(graph: &FusedGraph, step: &Step, access: &Access) -> i64 {
    // What is read through tables or outside of which nothing is read has no first element that the view tells. A kernel
    // that reads other parts of what it writes must see that they are one memory.
    let out = step.output.tensor;
    let shared = access.tensor == out && (step.inputs.iter().any(|a| a.tensor == out) || step.kind.beside().is_some());
    let first = access.view.extent().filter(|_| access.is_plain() && !shared).map_or(0, |(first, _)| first);
    let bytes = first * graph.tensor(access.tensor).dtype.size() as i64;
    bytes - bytes % LINE
}

/// Bytes between the beginning of an argument's tensor and the address that the kernel is given.
pub(super) fn of(graph: &FusedGraph, step: &Step, arg: Arg) -> usize {
    let access = match arg {
        Arg::Input(i) => &step.inputs[i],
        Arg::Output => &step.output,
        _ => return 0,
    };
    in_front(graph, step, access) as usize
}

/// The step as its kernel sees it: offsets count from the addresses that it is given.
pub(super) fn relative(graph: &FusedGraph, step: &Step) -> Step {
    let mut seen = step.clone();
    for (to, from) in seen.inputs.iter_mut().chain([&mut seen.output]).zip(step.inputs.iter().chain([&step.output])) {
        to.view.offset -= in_front(graph, step, from) / graph.tensor(from.tensor).dtype.size() as i64;
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::expr::Expr;
    use crate::graph::fused::{Guard, Role, StepKind, Tensor};
    use crate::graph::view::View;
    use crate::tensor::DType;

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
