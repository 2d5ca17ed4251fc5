//! Composes values while operators are lowered: kernels, programs, and expressions of several values on one grid.

use super::error::{Reason, Res};
use super::expr::{Expr, Op, Scalar, Val};
use super::fused::{Access, Coder, Role, StepKind};
use super::lazy::{Lazy, ProducerId, broadcast_shape, refine, without_ones};
use super::lower::{Lowering, Part, Producer, literal, splat};
use super::resolve::ValueId;
use super::view::View;
use crate::tensor::{DType, HostTensor, element_count};

/// A kernel gets no more operands than this.
pub(super) const MAX_INPUTS: usize = 24;
/// Expressions with more operations are cut.
pub(super) const MAX_COST: usize = 192;

impl Lowering<'_> {
    /// The value that a program computes from dense operands; `dims` are its coordinates.
    pub(crate) fn program(
        &mut self,
        operands: Vec<Access>,
        dims: &[usize],
        code: impl FnOnce(&mut Coder) -> Val,
    ) -> Lazy {
        let types: Vec<DType> = operands.iter().map(|a| self.graph.tensor(a.tensor).dtype).collect();
        let mut coder = Coder::new(&types);
        let result = code(&mut coder);
        self.coded(operands, dims, coder, result)
    }

    fn coded(&mut self, operands: Vec<Access>, dims: &[usize], coder: Coder, result: Val) -> Lazy {
        let program = coder.finish(result);
        let dtype = program.type_of(result);
        self.produce(StepKind::Program(program), operands, dims, dtype)
    }

    /// Stores a value and gives out where it is, densely.
    pub(crate) fn stored_access(&mut self, lazy: Lazy) -> Access {
        let shape = lazy.shape.clone();
        Access::new(self.store_lazy(lazy), View::dense(&shape))
    }

    /// The value that a kernel computes: `dims` is the shape of its result.
    pub(crate) fn produce(&mut self, kind: StepKind, inputs: Vec<Access>, dims: &[usize], dtype: DType) -> Lazy {
        self.produce_parts(vec![Part { kind, inputs, slices: None, acc: None }], dims, dtype)
    }

    /// The value that several kernels compute, each a part of it.
    pub(crate) fn produce_parts(&mut self, parts: Vec<Part>, dims: &[usize], dtype: DType) -> Lazy {
        self.producers.push(Producer { parts, dims: dims.to_vec() });
        Lazy {
            shape: dims.to_vec(),
            grid: without_ones(dims),
            base: Some(ProducerId(self.producers.len() as u32 - 1)),
            inputs: Vec::new(),
            expr: Expr::acc(dtype),
            nodes: vec![self.current as u32],
        }
    }

    /// Applies a scalar expression to values, broadcast against each other.
    pub(crate) fn elementwise(&mut self, ids: &[ValueId], build: impl FnOnce(&mut Expr, &[Val]) -> Val) -> Res<Lazy> {
        let (lazies, shape) = self.on_one_kernel(ids)?;
        self.combine(lazies, &shape, build)
    }

    /// Values of which at most one kernel is the base, and what they broadcast to.
    fn on_one_kernel(&mut self, ids: &[ValueId]) -> Res<(Vec<Lazy>, Vec<usize>)> {
        // Two kernels cannot be fused into one: keep the last, store the others.
        let bases: Vec<Option<ProducerId>> = ids.iter().map(|&v| self.lazy(v).base).collect();
        let shape = broadcast_shape(ids.iter().map(|&v| self.shape(v)))?;
        let total: usize = shape.iter().product();
        let keep = ids.iter().zip(&bases).filter(|(v, _)| self.shape(**v).iter().product::<usize>() == total);
        let keep = keep.filter_map(|(_, b)| *b).max();
        for (&v, base) in ids.iter().zip(&bases) {
            if base.is_some() && *base != keep {
                self.store(v);
            }
        }
        Ok((ids.iter().map(|&v| self.with_literals(v)).collect(), shape))
    }

    /// A value as a lazy one, with literals for constants that are the same everywhere (masks that hide nothing). Rows stay what they are: what one convolution
    /// has of each channel is put together with what its neighbours have.
    pub(crate) fn with_literals(&mut self, v: ValueId) -> Lazy {
        let mut lazy = self.lazy(v);
        let is_row = |t: &HostTensor| t.dtype() != DType::Bool && t.shape().iter().filter(|n| **n > 1).count() == 1;
        let literal = |a: &Access| match &self.graph.tensor(a.tensor).role {
            Role::Constant(t) if a.guard.is_none() && !is_row(t) => Some(literal(&t.repeated()?)),
            _ => None,
        };
        let literals: Vec<Option<Scalar>> = lazy.inputs.iter().map(literal).collect();
        if literals.iter().all(Option::is_none) {
            return lazy;
        }
        let mut expr = Expr::new();
        let acc = lazy.expr.nodes().iter().find(|n| n.op == Op::Acc).map(|n| expr.push_acc(n.dtype));
        let v = expr.append(&lazy.expr, acc, |e, i, dtype| match literals[i as usize] {
            Some(value) => e.literal(dtype, value),
            None => e.input(i as usize, dtype),
        });
        lazy.expr = expr.finish(v);
        drop_unused_inputs(&mut lazy);
        lazy
    }

    /// [`Lowering::elementwise`] for lazy values of which at most one kernel is the base; `shape` is what they broadcast
    /// to.
    pub(crate) fn combine(
        &mut self,
        lazies: Vec<Lazy>,
        shape: &[usize],
        build: impl FnOnce(&mut Expr, &[Val]) -> Val,
    ) -> Res<Lazy> {
        // The long part is compiled once, not for each expression that somebody builds.
        let mut build = Some(build);
        self.combine_by(lazies, shape, &mut |e, v| build.take().expect("an expression is built once")(e, v))
    }

    fn combine_by(
        &mut self,
        lazies: Vec<Lazy>,
        shape: &[usize],
        build: &mut dyn FnMut(&mut Expr, &[Val]) -> Val,
    ) -> Res<Lazy> {
        let total =
            element_count(shape).ok_or_else(|| Reason::Size(format!("the result's shape {shape:?} is too large")))?;
        if total == 0 {
            let mut e = Expr::new();
            let vals: Vec<_> = lazies.iter().map(|l| e.constant(l.dtype(), 0.0)).collect();
            let v = build(&mut e, &vals);
            return Ok(splat(e.type_of(v), shape, Scalar::of(e.type_of(v), 0.0)));
        }
        let mut parts = Vec::with_capacity(lazies.len());
        for lazy in lazies {
            if !lazy.broadcasts_to(shape) {
                return Err(Reason::Shape(format!("shape {:?} cannot be broadcast to {shape:?}", lazy.shape)));
            }
            // Repeating an expensive expression costs more than storing it.
            let heavy = (lazy.base.is_some() && lazy.len() != total)
                || !lazy.inputs.is_empty() && lazy.len() < total && lazy.expr.cost() > 6;
            let lazy = if heavy { self.stored(lazy) } else { lazy };
            parts.push(match lazy.broadcast(shape) {
                Some(l) => l,
                None => self.stored(lazy).broadcast(shape).expect("a stored tensor can be broadcast"),
            });
        }
        let mut inputs: usize = parts.iter().map(|p| p.inputs.len()).sum();
        let mut cost: usize = parts.iter().map(|p| p.expr.cost()).sum();
        while inputs > MAX_INPUTS || cost > MAX_COST {
            let Some(worst) = parts
                .iter_mut()
                .filter(|p| p.inputs.len() > 1 || p.expr.cost() > 0)
                .max_by_key(|p| p.inputs.len() * 8 + p.expr.cost())
            else {
                break;
            };
            let stored = self.stored(worst.clone());
            *worst = stored;
            let (i, c) = (parts.iter().map(|p| p.inputs.len()).sum(), parts.iter().map(|p| p.expr.cost()).sum());
            if (i, c) == (inputs, cost) {
                break;
            }
            (inputs, cost) = (i, c);
        }
        let parts = self.common_grid(parts, shape);
        let grid = parts[0].grid.clone();
        let mut expr = Expr::new();
        let mut accesses: Vec<Access> = Vec::new();
        let mut nodes: Vec<u32> = Vec::new();
        let mut base = None;
        let mut vals = Vec::with_capacity(parts.len());
        for p in &parts {
            let acc = match p.base {
                None => None,
                Some(b) => {
                    base = Some(b);
                    let dtype = p.expr.nodes().iter().find(|n| n.op == Op::Acc).map(|n| n.dtype);
                    dtype.map(|d| expr.push_acc(d))
                }
            };
            let v = expr.append(&p.expr, acc, |e, i, dtype| {
                let access = &p.inputs[i as usize];
                let at = accesses.iter().position(|a| a == access).unwrap_or_else(|| {
                    accesses.push(access.clone());
                    accesses.len() - 1
                });
                e.input(at, dtype)
            });
            vals.push(v);
            nodes.extend(&p.nodes);
        }
        let result = build(&mut expr, &vals);
        let expr = expr.finish(result);
        nodes.sort_unstable();
        nodes.dedup();
        let mut lazy = Lazy { shape: shape.to_vec(), grid, base, inputs: accesses, expr, nodes };
        drop_unused_inputs(&mut lazy);
        if lazy.base.is_some() && !lazy.expr.nodes().iter().any(|n| n.op == Op::Acc) {
            lazy.base = None;
        }
        Ok(lazy)
    }

    /// Brings all values to one grid, storing those that cannot follow.
    fn common_grid(&mut self, mut parts: Vec<Lazy>, shape: &[usize]) -> Vec<Lazy> {
        for attempt in 0..2 {
            let mut grid: Option<Vec<usize>> = None;
            let mut fits = true;
            for p in parts.iter().filter(|p| !p.inputs.is_empty() || p.base.is_some()) {
                match &grid {
                    None => grid = Some(p.grid.clone()),
                    Some(g) => match refine(g, &p.grid) {
                        Some(fine) => grid = Some(fine),
                        None => fits = false,
                    },
                }
            }
            let grid = grid.unwrap_or_else(|| without_ones(shape));
            if fits {
                let refined: Option<Vec<Lazy>> = parts
                    .iter()
                    .map(|p| {
                        if p.inputs.is_empty() {
                            Some(Lazy { grid: grid.clone(), ..p.clone() })
                        } else {
                            p.refined(&grid)
                        }
                    })
                    .collect();
                if let Some(r) = refined {
                    return r;
                }
            }
            debug_assert_eq!(attempt, 0, "stored tensors always have a common grid");
            parts = parts
                .into_iter()
                .map(|p| if p.inputs.is_empty() && p.base.is_none() { p } else { self.stored(p) })
                .collect();
        }
        unreachable!("stored tensors always have a common grid")
    }
}

fn drop_unused_inputs(lazy: &mut Lazy) {
    let mut map = vec![None; lazy.inputs.len()];
    let mut kept = Vec::new();
    for n in lazy.expr.nodes() {
        if let super::expr::Op::Input(i) = n.op
            && map[i as usize].is_none()
        {
            map[i as usize] = Some(kept.len() as u32);
            kept.push(lazy.inputs[i as usize].clone());
        }
    }
    lazy.expr = lazy.expr.map_inputs(|i| map[i as usize].expect("collected above"));
    lazy.inputs = kept;
}
