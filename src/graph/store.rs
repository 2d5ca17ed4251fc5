//! Emits steps: stores lazy values in tensors.
//!
//! A value that rests on a kernel is emitted as that kernel with the value's expression as epilogue, any other value as a
//! pointwise step. What depends on constants only is computed here instead.

use super::ask::Ask;
use super::expr::{Expr, Op};
use super::fused::{Access, Role, Step, StepKind, Tensor, TensorId};
use super::lazy::{Lazy, ProducerId, groups, reshape_access, split_access, without_ones};
use super::lower::{Lowering, Part};
use super::view::View;
use crate::tensor::{DType, HostTensor, element_count};

/// Larger constants (in bytes) are not computed at compile time: a file of a few bytes can ask for any size.
const EVALUATE_LIMIT: usize = 1 << 30;

impl Lowering<'_> {
    /// Stores a value in a dense tensor, emitting its steps; a value that already is one stays where it is.
    pub(crate) fn store_lazy(&mut self, lazy: Lazy) -> TensorId {
        if let Some(access) = lazy.as_read()
            && access.is_plain()
            && access.view.offset == 0
            && access.view.is_dense()
            && access.view.len() == self.graph.tensor(access.tensor).len()
        {
            return access.tensor;
        }
        let name = self.step_name(&lazy.nodes);
        let dtype = lazy.dtype();
        if lazy.base.is_none()
            && let Some(tensor) = self.evaluate(&lazy)
        {
            let id = self.add_const(name.clone(), tensor);
            let narrow = lazy.inputs.iter().any(|a| self.graph.tensor(a.tensor).dtype.is_small_float());
            if narrow && !dtype.is_small_float() {
                let output = Access::new(id, View::dense(&lazy.grid));
                let (inputs, expr) = (lazy.inputs, lazy.expr);
                self.graph.widened.push(Step { name, kind: StepKind::Pointwise, inputs, expr, output });
            }
            return id;
        }
        let shape = lazy.shape.clone();
        let tensor = Tensor { name: self.tensor_name(&lazy.nodes), dtype, shape, role: Role::Intermediate };
        let Some(base) = lazy.base else {
            let out = self.graph.add_tensor(tensor);
            let output = Access::new(out, View::dense(&lazy.grid));
            self.graph.steps.push(Step {
                name,
                kind: StepKind::Pointwise,
                inputs: lazy.inputs,
                expr: lazy.expr,
                output,
            });
            return out;
        };
        let dims = self.producers[base.0 as usize].dims.clone();
        let out = self.graph.add_tensor(tensor);
        self.emit_producer(&lazy, base, out, &View::dense(&dims));
        out
    }

    /// Splits the dimensions of a producer as its epilogue walks them, where an operand of that lies otherwise and the kind can.
    fn split_producer(&mut self, lazy: &Lazy, base: ProducerId) {
        let producer = &mut self.producers[base.0 as usize];
        let fits = |a: &Access| !a.is_plain() || reshape_access(a, &producer.dims).is_some();
        let Some(runs) = groups(&producer.dims, &lazy.grid).filter(|_| !lazy.inputs.iter().all(fits)) else { return };
        let split = |part: &Part| {
            let kind = part.kind.split(&runs).filter(|_| part.slices.is_none())?;
            let inputs = part.inputs.iter().map(|a| split_access(a, &lazy.grid)).collect::<Option<_>>()?;
            Some(Part { kind, inputs, slices: None, acc: part.acc })
        };
        if let Some(parts) = producer.parts.iter().map(split).collect() {
            (producer.parts, producer.dims) = (parts, lazy.grid.clone());
        }
    }

    /// Emits the steps of a producer with everything that rests on it as epilogue. `whole` is where the result goes and
    /// has the producer's dimensions.
    fn emit_producer(&mut self, lazy: &Lazy, base: ProducerId, out: TensorId, whole: &View) {
        let name = self.step_name(&lazy.nodes);
        self.split_producer(lazy, base);
        let dims = self.producers[base.0 as usize].dims.clone();
        let split =
            (whole.dims != dims).then(|| whole.reshaped(&dims).expect("splitting dimensions is always possible"));
        let whole = split.as_ref().unwrap_or(whole);
        let mut extra = Vec::with_capacity(lazy.inputs.len());
        for access in &lazy.inputs {
            // An epilogue reads plain views with the dimensions of the kernel's output.
            let plain = if access.is_plain() { reshape_access(access, &dims) } else { None };
            extra.push(match plain {
                Some(a) => a,
                None => {
                    let dtype = self.graph.tensor(access.tensor).dtype;
                    let copy = Lazy {
                        shape: lazy.grid.clone(),
                        grid: lazy.grid.clone(),
                        base: None,
                        inputs: vec![access.clone()],
                        expr: Expr::copy(dtype),
                        nodes: lazy.nodes.clone(),
                    };
                    Access::new(self.store_lazy(copy), View::dense(&dims))
                }
            });
        }
        for part in &self.producers[base.0 as usize].parts {
            let cut = |view: &View| match &part.slices {
                None => view.clone(),
                Some(slices) => slices
                    .iter()
                    .enumerate()
                    .fold(view.clone(), |v, (d, &(start, step, len))| v.sliced(d, start, step as i64, len)),
            };
            let mut inputs = part.inputs.clone();
            let own = inputs.len() as u32;
            inputs.extend(extra.iter().map(|a| Access::new(a.tensor, cut(&a.view))));
            let mut expr = Expr::new();
            let acc = part.acc.map(|c| expr.literal(acc_dtype(&lazy.expr), c));
            let acc = acc.unwrap_or_else(|| expr.push_acc(acc_dtype(&lazy.expr)));
            let result = expr.append(&lazy.expr, Some(acc), |e, i, t| e.input((i + own) as usize, t));
            let expr = expr.finish(result);
            let output = Access::new(out, cut(whole));
            self.graph.steps.push(Step { name: name.clone(), kind: part.kind.clone(), inputs, expr, output });
        }
    }

    /// Name of output `i`.
    pub(crate) fn output_name(&self, i: usize) -> String {
        let v = self.node().outputs.get(i).copied().flatten();
        v.map_or_else(|| "value".into(), |v| self.resolved.names[v.index()].to_string())
    }

    /// Writes a value to a part of a tensor; `view` has the dimensions of the value's shape.
    pub(crate) fn write(&mut self, mut lazy: Lazy, tensor: TensorId, view: &View) {
        if lazy.nodes.last() != Some(&(self.current as u32)) {
            lazy.nodes.push(self.current as u32);
        }
        if let Some(base) = lazy.base {
            let dims = self.producers[base.0 as usize].dims.clone();
            if let Some(whole) = view.reshaped(&dims) {
                self.emit_producer(&lazy, base, tensor, &whole);
                return;
            }
            let nodes = lazy.nodes.clone();
            lazy = self.stored(lazy);
            lazy.nodes = nodes;
        }
        let shape = lazy.shape.clone();
        let (lazy, output) = match lazy.regrid() {
            Some(l) => {
                let grid = l.grid.clone();
                let part = without_ones(&shape);
                let flat = view.reshaped(&part).expect("dropping extents of 1 is always possible");
                (l, split_access(&Access::new(tensor, flat), &grid).expect("the grid refines the shape"))
            }
            None => {
                let nodes = lazy.nodes.clone();
                let mut l = self.stored(lazy);
                l.nodes = nodes;
                let flat = view.reshaped(&l.grid).expect("dropping extents of 1 is always possible");
                (l, Access::new(tensor, flat))
            }
        };
        let name = self.step_name(&lazy.nodes);
        let step = Step { name, kind: StepKind::Pointwise, inputs: lazy.inputs, expr: lazy.expr, output };
        self.graph.steps.push(step);
    }

    /// The value, if it depends on constants only.
    fn evaluate(&self, lazy: &Lazy) -> Option<HostTensor> {
        let constant = |id: TensorId| match &self.graph.tensor(id).role {
            Role::Constant(t) => Some(t),
            _ => None,
        };
        if element_count(&lazy.shape).is_none_or(|n| n * lazy.dtype().size() > EVALUATE_LIMIT) {
            return None;
        }
        for a in &lazy.inputs {
            constant(a.tensor)?;
            for i in &a.indirect {
                constant(i.index)?;
            }
        }
        super::interpret::evaluate_lazy(&self.graph, lazy)
    }

    fn step_name(&self, nodes: &[u32]) -> String {
        let names: Vec<&str> = nodes.iter().map(|&n| self.resolved.nodes[n as usize].node.name.as_str()).collect();
        names.join("+")
    }

    fn tensor_name(&self, nodes: &[u32]) -> String {
        let last = nodes.last().map(|&n| &self.resolved.nodes[n as usize]);
        let value = last.and_then(|n| n.outputs.iter().flatten().next());
        value.map_or_else(|| "value".into(), |v| self.resolved.names[v.index()].to_string())
    }
}

/// The type of what a step's kind computes, as its expression takes it.
pub(super) fn acc_dtype(expr: &Expr) -> DType {
    expr.nodes().iter().find(|n| n.op == Op::Acc).map_or(expr.dtype(), |n| n.dtype)
}
