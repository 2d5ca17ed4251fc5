//! Products of integers of 4 bits are computed of these, two in a byte.
//!
//! Products of quantised values are products of bytes ([`super::ops`]), also of those that have 4 bits. Where all that a factor can be fits 4 bits,
//! with a sign or without one, and the target multiplies such ([`Nibbles`]), bytes hold two neighbours along the depth each. Constants are
//! packed here, with lines along the depth. What quantises data writes packed ones where it is an elementwise step; else another step packs
//! what it wrote.

use super::expr::{Binary, Expr, Op, Scalar, Unary, Val};
use super::forward::redirect;
use super::fused::{Access, FusedGraph, Nibbles, Role, Step, StepKind, Tensor, TensorId};
use super::interpret::each;
use super::narrow::writer_of;
use super::prune::prune;
use super::view::{View, dense_strides};
use crate::tensor::{DType, HostTensor};
use std::collections::BTreeMap;

/// Lines of packed constants begin at multiples of so many bytes, which loads take at once.
const LINE: usize = 16;

/// The graph with such products, of those that `takes` says yes to and `quicker` says that they take less time than what they stand for, with
/// steps that move so many bytes more; `None` where there are none.
pub(crate) fn nibble_factors(
    graph: &FusedGraph,
    takes: impl Fn(&FusedGraph, &Step) -> bool,
    quicker: impl Fn(&FusedGraph, [&Step; 2], &[usize]) -> bool,
) -> Option<FusedGraph> {
    let of_bytes = |s: &Step| {
        let bytes = |a: &Access| graph.tensor(a.tensor).dtype == DType::I8;
        s.kind == StepKind::MatMul && s.inputs[..2].iter().all(bytes)
    };
    if !graph.steps.iter().any(of_bytes) {
        return None;
    }
    let mut out = graph.clone();
    let (mut steps, mut packed) = (Vec::with_capacity(graph.steps.len()), BTreeMap::new());
    let mut found = false;
    for step in &graph.steps {
        if of_bytes(step)
            && let Some((product, before)) = product(graph, &mut out, &packed, step, (&takes, &quicker))
        {
            for (key, made) in before {
                packed.insert(key, made.output.tensor);
                steps.push(made);
            }
            steps.push(product);
            found = true;
            continue;
        }
        steps.push(step.clone());
    }
    found.then(|| {
        out.steps = steps;
        prune(&mut out);
        out
    })
}

/// A tensor that is packed along elements so far apart.
type Key = (TensorId, i64);

/// The product of packed factors, and the steps that pack what is not packed yet; `None` where it is not to be.
fn product(
    graph: &FusedGraph,
    out: &mut FusedGraph,
    packed: &BTreeMap<Key, TensorId>,
    step: &Step,
    (takes, quicker): (
        impl Fn(&FusedGraph, &Step) -> bool,
        impl Fn(&FusedGraph, [&Step; 2], &[usize]) -> bool,
    ),
) -> Option<(Step, Vec<(Key, Step)>)> {
    let signed = [sign(graph, step.inputs[0].tensor)?, sign(graph, step.inputs[1].tensor)?];
    let known = out.tensors.len();
    let mut all = || {
        let (mut inputs, mut before, mut moved) = (step.inputs.clone(), Vec::new(), Vec::new());
        for side in 0..2 {
            let access = &step.inputs[side];
            if let Role::Constant(data) = &graph.tensor(access.tensor).role {
                inputs[side] = constant(out, access, data, side)?;
                continue;
            }
            let pairs = Pairs::of(graph, access, side)?;
            let tensor = match packed.get(&pairs.key()) {
                Some(tensor) => *tensor,
                None => {
                    let (made, bytes) = pairs.made(graph, out)?;
                    moved.extend(bytes);
                    let tensor = made.output.tensor;
                    before.push((pairs.key(), made));
                    tensor
                }
            };
            inputs[side] = Access::new(tensor, pairs.read);
        }
        let product = Step { kind: StepKind::Nibbles(Nibbles { signed }), inputs, ..step.clone() };
        let fits = out.step_promises(&product).is_ok() && takes(out, &product);
        (fits && quicker(out, [&product, step], &moved)).then_some((product, before))
    };
    let made = all();
    if made.is_none() {
        out.tensors.truncate(known);
    }
    made
}

/// Whether the integers of 4 bits have a sign that a tensor's bytes are; `None` where they are others.
fn sign(graph: &FusedGraph, t: TensorId) -> Option<bool> {
    let (low, high) = match &graph.tensor(t).role {
        Role::Constant(data) => {
            let bytes = data.bytes().iter().map(|x| f64::from(*x as i8));
            bytes.fold((0.0, 0.0), |(low, high): (f64, f64), x| (low.min(x), high.max(x)))
        }
        Role::Intermediate => {
            let mut all = (0.0f64, 0.0f64);
            for step in graph.steps.iter().filter(|s| s.output.tensor == t) {
                let (low, high) = bounds(&step.expr, step.expr.result());
                all = (all.0.min(low), all.1.max(high));
            }
            let written = graph.steps.iter().any(|s| s.output.tensor == t);
            let others = graph.steps.iter().any(|s| s.kind.beside().is_some() || s.kind.filled().len() > 0)
                && graph.steps.iter().filter(|s| s.written().any(|w| w == t)).any(|s| s.output.tensor != t);
            if !written || others {
                return None;
            }
            all
        }
        _ => return None,
    };
    match () {
        () if low >= -8.0 && high <= 7.0 => Some(true),
        () if low >= 0.0 && high <= 15.0 => Some(false),
        () => None,
    }
}

/// What a value is at least and at most, as far as its type and limits around it say; that of a NaN, as an integer, is 0.
fn bounds(e: &Expr, v: Val) -> (f64, f64) {
    let node = &e.nodes()[v.index()];
    let of_type = match node.dtype {
        DType::Bool => (0.0, 1.0),
        t if t.is_int() && t.bits() <= 16 => {
            let (count, signed) = ((1u32 << t.bits()) as f64, t.is_signed_int());
            if signed { (-count / 2.0, count / 2.0 - 1.0) } else { (0.0, count - 1.0) }
        }
        _ => (f64::NEG_INFINITY, f64::INFINITY),
    };
    match node.op {
        Op::Const(Scalar::Float(x)) if x.is_nan() => of_type,
        Op::Const(x) => (x.as_f64(), x.as_f64()),
        Op::Unary(Unary::Round, x) => {
            let (low, high) = bounds(e, x);
            (low.round_ties_even(), high.round_ties_even())
        }
        Op::Binary(op @ (Binary::Min | Binary::Max), a, b) => {
            let (a, b) = (bounds(e, a), bounds(e, b));
            match op {
                Binary::Min => (a.0.min(b.0), a.1.min(b.1)),
                _ => (a.0.max(b.0), a.1.max(b.1)),
            }
        }
        Op::Select(_, a, b) => {
            let (a, b) = (bounds(e, a), bounds(e, b));
            (a.0.min(b.0), a.1.max(b.1))
        }
        Op::Cast(x) => {
            let (low, high) = bounds(e, x);
            let within = low >= of_type.0 && high <= of_type.1;
            let nothing = e.type_of(x).is_float() && node.dtype.is_int();
            match within {
                true if nothing => (low.trunc().min(0.0), high.trunc().max(0.0)),
                true => (low, high),
                false => of_type,
            }
        }
        _ => of_type,
    }
}

/// Factor `side` of a product, a constant, with its depth packed: its lines lie along the depth.
fn constant(out: &mut FusedGraph, access: &Access, data: &HostTensor, side: usize) -> Option<Access> {
    let (view, r) = (&access.view, access.view.rank());
    let (line, deep) = if side == 0 { (r - 2, r - 1) } else { (r - 1, r - 2) };
    if !access.is_plain() {
        return None;
    }
    let (depth, bytes) = (view.dims[deep], data.bytes());
    let pitch = depth.div_ceil(2).next_multiple_of(LINE);
    // Batches that are one stay one.
    let mut order: Vec<usize> = (0..r - 2).filter(|d| view.strides[*d] != 0).collect();
    order.push(line);
    let mut dims: Vec<usize> = order.iter().map(|d| view.dims[*d]).collect();
    let walk = View { offset: view.offset, dims: dims.clone(), strides: order.iter().map(|d| view.strides[*d]).collect() };
    let mut packed = Vec::with_capacity(walk.len() * pitch);
    each(&dims, |c| {
        let at = walk.at(c);
        let nibble = |k: usize| bytes[(at + k as i64 * view.strides[deep]) as usize] & 15;
        let end = packed.len() + pitch;
        packed.extend((0..depth).step_by(2).map(|k| nibble(k) | if k + 1 < depth { nibble(k + 1) << 4 } else { 0 }));
        packed.resize(end, 0);
    });
    dims.push(pitch);
    let packed = HostTensor::new(DType::U8, &dims, packed).ok()?;
    let name = out.tensor(access.tensor).name.clone();
    let tensor = out.add_tensor(Tensor { name, dtype: DType::U8, shape: dims.clone(), role: Role::Constant(packed) });
    let mut read = View { offset: 0, dims: view.dims.clone(), strides: vec![0; r] };
    order.iter().chain([&deep]).zip(dense_strides(&dims)).for_each(|(d, s)| read.strides[*d] = s);
    read.dims[deep] = depth.div_ceil(2);
    Some(Access::new(tensor, read))
}

/// How a tensor's elements are packed two by two: those of a depth that lie so far apart.
struct Pairs {
    tensor: TensorId,
    apart: usize,
    /// The walk over the bytes.
    read: View,
}

impl Pairs {
    /// None of a depth that is odd, or along which pairs of one line are not those of another.
    fn of(graph: &FusedGraph, access: &Access, side: usize) -> Option<Pairs> {
        let (view, r, len) = (&access.view, access.view.rank(), graph.tensor(access.tensor).len());
        let deep = if side == 0 { r - 1 } else { r - 2 };
        let apart = usize::try_from(view.strides[deep]).ok().filter(|s| *s > 0)?;
        let first = |elements: i64| elements % (2 * apart as i64) < apart as i64;
        let whole = view.dims[deep].is_multiple_of(2) && len.is_multiple_of(2 * apart) && access.is_plain();
        if !whole || view.strides.iter().any(|s| *s < 0) {
            return None;
        }
        let firsts = view.sliced(deep, 0, 2, view.dims[deep] / 2);
        let strides = firsts.dims.iter().zip(&firsts.strides).filter(|(n, _)| **n > 1);
        if !first(firsts.offset) || !strides.into_iter().all(|(_, s)| first(*s)) {
            return None;
        }
        let held = View { offset: 0, dims: vec![len / (2 * apart), 2, apart], strides: vec![apart as i64, 0, 1] };
        let read = redirect(&firsts, &held)?;
        Some(Pairs { tensor: access.tensor, apart, read })
    }

    fn key(&self) -> Key {
        (self.tensor, self.apart as i64)
    }

    /// The step that packs them, and the bytes that it moves where nothing would be moved without it.
    fn made(&self, graph: &FusedGraph, out: &mut FusedGraph) -> Option<(Step, Option<usize>)> {
        let from = graph.tensor(self.tensor);
        let len = from.len();
        let (name, shape) = (from.name.clone(), vec![len / (2 * self.apart), self.apart]);
        let tensor = out.add_tensor(Tensor { name, dtype: DType::U8, shape, role: Role::Intermediate });
        let readers: Vec<&Step> =
            graph.steps.iter().filter(|s| s.inputs.iter().any(|a| a.tensor == self.tensor)).collect();
        let products = readers.iter().filter(|s| s.kind == StepKind::MatMul).count();
        // Who quantises writes nothing else where only products read that.
        if products == readers.len()
            && let Some(writer) = writer_of(graph, self.tensor)
            && let Some(step) = self.written(writer, tensor)
            && out.step_promises(&step).is_ok()
        {
            return Some((step, None));
        }
        let half = self.apart as i64;
        let view = |offset: i64| View {
            offset,
            dims: vec![len / (2 * self.apart), self.apart],
            strides: vec![2 * half, 1],
        };
        let step = Step {
            name: from.name.clone(),
            kind: StepKind::Pointwise,
            inputs: [0, half].map(|o| Access::new(self.tensor, view(o))).to_vec(),
            expr: packing(&Expr::copy(DType::I8)),
            output: Access::new(tensor, View::dense(&[len / (2 * self.apart), self.apart])),
        };
        let step = collapsed(step);
        out.step_promises(&step).ok()?;
        Some((step, Some((len + len / 2) / products.max(1))))
    }

    /// What a step writes, packed.
    fn written(&self, writer: &Step, tensor: TensorId) -> Option<Step> {
        if !writer.inputs.iter().all(Access::is_plain) {
            return None;
        }
        // The dimension that pairs are in.
        let grid = &writer.output.view.dims;
        let strides = dense_strides(grid);
        let parts = |d: usize| {
            let (own, n) = (strides[d] as usize, grid[d]);
            let fits = n > 1 && self.apart.is_multiple_of(own) && (own * n).is_multiple_of(2 * self.apart);
            fits.then(|| [own * n / (2 * self.apart), 2, self.apart / own])
        };
        let (along, parts) = (0..grid.len()).rev().find_map(|d| Some((d, parts(d)?)))?;
        let half = |access: &Access, second: i64| {
            let mut view = access.view.split(along, &parts);
            view.offset += second * view.strides[along + 1];
            view.dims.remove(along + 1);
            view.strides.remove(along + 1);
            Access::new(access.tensor, view)
        };
        let inputs = writer.inputs.iter().flat_map(|a| [half(a, 0), half(a, 1)]).collect();
        let dims = half(&Access::new(tensor, View::dense(grid)), 0).view.dims;
        let output = Access::new(tensor, View::dense(&dims));
        Some(collapsed(Step { inputs, expr: packing(&writer.expr), output, ..writer.clone() }))
    }
}

/// The step with dimensions merged that all accesses walk as one.
fn collapsed(mut step: Step) -> Step {
    step.kind.clone().collapse(&mut step);
    step
}

/// A byte of two integers of 4 bits, each of which an expression gives: operand `i` of it is operand `2 i` for the first one, which has the
/// low bits, and the next one for the other.
fn packing(one: &Expr) -> Expr {
    let mut expr = Expr::new();
    let mut nibble = |second: usize| {
        let x = expr.append(one, None, |e, i, t| e.input(2 * i as usize + second, t));
        let x = expr.cast(x, DType::I32);
        let x = expr.bits(x, DType::U32);
        let mask = expr.constant(DType::U32, 15.0);
        expr.binary(Binary::And, x, mask)
    };
    let (low, high) = (nibble(0), nibble(1));
    let by = expr.constant(DType::U32, 4.0);
    let high = expr.binary(Binary::Shl, high, by);
    let byte = expr.binary(Binary::Or, low, high);
    let byte = expr.cast(byte, DType::U8);
    expr.finish(byte)
}
