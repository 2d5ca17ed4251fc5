//! Elements that are moved together: where a step moves runs of two, four or eight elements that lie together before and after, and fill a wider
//! type, it moves elements of that.

use crate::graph::expr::Expr;
use crate::graph::fused::{Access, FusedGraph, Role, Step, Tensor, TensorId};
use crate::graph::view::View;
use crate::kernels::{Arg, Cx};
use crate::tensor::DType;

/// The step of a wider type that moves the same bytes, with its tensors, where there is one. The step computes nothing.
pub(super) fn united(cx: &Cx) -> Option<(FusedGraph, Step)> {
    let [from] = &cx.step.inputs[..] else { return None };
    let (to, size) = (&cx.step.output, cx.dtype(Arg::Output).size());
    let together = *to.view.dims.last()?;
    let dtype = match together * size {
        _ if together < 2 || to.view.rank() < 2 || from.tensor == to.tensor => return None,
        2 => DType::U16,
        4 => DType::U32,
        8 => DType::U64,
        _ => return None,
    };
    let mut graph = FusedGraph::default();
    let mut wider = |access: &Access| {
        let tensor = cx.graph.tensor(access.tensor);
        let view = in_units(&access.view, together).filter(|_| access.is_plain())?;
        let shape = vec![tensor.len() / together];
        let whole = tensor.len().is_multiple_of(together);
        graph.tensors.push(Tensor { name: tensor.name.clone(), dtype, shape, role: Role::Intermediate });
        whole.then(|| Access::new(TensorId(graph.tensors.len() as u32 - 1), view))
    };
    let (inputs, output) = (vec![wider(from)?], wider(to)?);
    let mut expr = Expr::new();
    expr.input(0, dtype);
    let step = Step { name: cx.step.name.clone(), kind: cx.step.kind.clone(), inputs, expr, output };
    Some((graph, step))
}

/// The walk over whole runs of so many elements, which the last dimension is.
fn in_units(view: &View, together: usize) -> Option<View> {
    let (dims, strides) = (view.dims.split_last()?.1, view.strides.split_last()?.1);
    let units = |n: i64| (n % together as i64 == 0).then_some(n / together as i64);
    let of = |(d, s): (&usize, &i64)| if *d > 1 { units(*s) } else { Some(0) };
    let strides = dims.iter().zip(strides).map(of).collect::<Option<_>>()?;
    let is_run = view.strides.last() == Some(&1);
    Some(View { offset: units(view.offset)?, dims: dims.to_vec(), strides }).filter(|_| is_run)
}
