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
use super::sparse::product_of_points;
use super::view::{View, dense_strides};
use crate::tensor::{DType, HostTensor};
use rayon::prelude::*;
use std::collections::BTreeMap;

/// Lines of packed constants begin at multiples of so many bytes, which loads take at once.
const LINE: usize = 16;

/// Lines that are packed side by side.
const LINES: usize = 64;

/// Added to unsigned integers of 4 bits as an exclusive or it makes signed ones of them that are less by as much.
const MOVED: u8 = 8;

/// The graph with such products, of those that `takes` says yes to and `quicker` says that they take less time than what they stand for, with
/// steps that move so many bytes more; `None` where there are none.
pub(crate) fn nibble_factors(
    graph: &FusedGraph,
    takes: impl Fn(&FusedGraph, &Step) -> bool,
    quicker: impl Fn(&FusedGraph, [&Step; 2], &[usize]) -> bool,
) -> Option<FusedGraph> {
    let of_bytes = |s: &&Step| s.inputs.iter().take(2).all(|a| graph.tensor(a.tensor).dtype == DType::I8);
    let products = |s: &Step| match &s.kind {
        StepKind::MatMul => Some(s.clone()),
        StepKind::Conv(conv) => product_of_points(conv, s),
        _ => None,
    };
    let products: Vec<Option<Step>> = graph.steps.iter().map(|s| Some(s).filter(of_bytes).and_then(products)).collect();
    if products.iter().all(Option::is_none) {
        return None;
    }
    let mut out = graph.clone();
    let (mut steps, mut packed) = (Vec::with_capacity(graph.steps.len()), BTreeMap::new());
    let mut found = false;
    for (step, product) in graph.steps.iter().zip(products) {
        let change = product.and_then(|product| Change::of(graph, product, &takes));
        let made = change.and_then(|c| c.made(&mut out, &packed, |out, new, moved| quicker(out, [new, step], moved)));
        let Some((product, before)) = made else {
            steps.push(step.clone());
            continue;
        };
        for (key, made) in before {
            packed.insert(key, made.output.tensor);
            steps.push(made);
        }
        steps.push(product);
        found = true;
    }
    found.then(|| {
        out.steps = steps;
        prune(&mut out);
        out
    })
}

/// What tells a packed tensor: which one is packed, how far apart the elements of a byte are, and what they are combined with.
type Key = (TensorId, usize, u8);

/// A product that becomes one of packed factors.
struct Change<'g> {
    graph: &'g FusedGraph,
    product: Step,
    signed: [bool; 2],
    /// The factor without a sign that gets one, where instructions multiply none of two kinds: the other one is a constant.
    moved: Option<usize>,
}

impl<'g> Change<'g> {
    fn of(graph: &'g FusedGraph, product: Step, takes: impl Fn(&FusedGraph, &Step) -> bool) -> Option<Change<'g>> {
        let signed = [sign(graph, product.inputs[0].tensor)?, sign(graph, product.inputs[1].tensor)?];
        let takes =
            |signed: [bool; 2]| takes(graph, &Step { kind: StepKind::Nibbles(Nibbles { signed }), ..product.clone() });
        let (signed, moved) = match signed {
            all if takes(all) => (all, None),
            [left, right] if left != right && takes([true; 2]) => ([true; 2], Some(usize::from(left))),
            _ => return None,
        };
        Some(Change { graph, product, signed, moved })
    }

    /// What the elements of a factor are combined with.
    fn with(&self, side: usize) -> u8 {
        if self.moved == Some(side) { MOVED } else { 0 }
    }

    /// The product of packed factors, and the steps that pack what is not packed yet; `None` where it is not to be.
    fn made(
        &self,
        out: &mut FusedGraph,
        packed: &BTreeMap<Key, TensorId>,
        quicker: impl Fn(&FusedGraph, &Step, &[usize]) -> bool,
    ) -> Option<(Step, Vec<(Key, Step)>)> {
        let known = out.tensors.len();
        let made = self.tried(out, packed, quicker);
        if made.is_none() {
            out.tensors.truncate(known);
        }
        made
    }

    fn tried(
        &self,
        out: &mut FusedGraph,
        packed: &BTreeMap<Key, TensorId>,
        quicker: impl Fn(&FusedGraph, &Step, &[usize]) -> bool,
    ) -> Option<(Step, Vec<(Key, Step)>)> {
        let step = &self.product;
        let (mut inputs, mut before, mut moved) = (step.inputs.clone(), Vec::new(), Vec::new());
        let mut constants = Vec::new();
        for side in 0..2 {
            let access = &step.inputs[side];
            if let Some(matrix) = Matrix::of(self.graph, access, side) {
                let (tensor, name) = (matrix.zeros()?, self.graph.tensor(access.tensor).name.clone());
                let (dtype, shape, role) = (DType::U8, tensor.shape().to_vec(), Role::Constant(tensor));
                let tensor = out.add_tensor(Tensor { name, dtype, shape, role });
                inputs[side] = Access::new(tensor, matrix.read.clone());
                constants.push((tensor, matrix, side));
                continue;
            }
            let pairs = Pairs::of(self.graph, access, side, self.with(side))?;
            let tensor = match packed.get(&pairs.key()) {
                Some(tensor) => *tensor,
                None => {
                    let (made, bytes) = pairs.made(self.graph, out)?;
                    moved.extend(bytes);
                    let tensor = made.output.tensor;
                    before.push((pairs.key(), made));
                    tensor
                }
            };
            inputs[side] = Access::new(tensor, pairs.read);
        }
        let kind = StepKind::Nibbles(Nibbles { signed: self.signed });
        let mut product = Step { kind, inputs, ..step.clone() };
        if let Some(side) = self.moved {
            let (_, matrix, _) = constants.iter().find(|c| c.2 != side)?;
            product = matrix.corrected(out, product);
        }
        if out.step_promises(&product).is_err() || !quicker(out, &product, &moved) {
            return None;
        }
        for (tensor, matrix, side) in constants {
            out.tensors[tensor.index()].role = Role::Constant(matrix.packed(self.with(side)));
        }
        Some((product, before))
    }
}

/// Whether the integers of 4 bits have a sign that a tensor's bytes are; `None` where they are others.
fn sign(graph: &FusedGraph, t: TensorId) -> Option<bool> {
    const SIGNED: (f64, f64) = (-8.0, 7.0);
    const UNSIGNED: (f64, f64) = (0.0, 15.0);
    let fit = |all: &dyn Fn((f64, f64)) -> bool| match () {
        () if all(SIGNED) => Some(true),
        () if all(UNSIGNED) => Some(false),
        () => None,
    };
    match &graph.tensor(t).role {
        Role::Constant(data) => {
            fit(&|(low, high)| data.bytes().iter().all(|x| (low..=high).contains(&f64::from(*x as i8))))
        }
        Role::Intermediate => {
            let writers: Vec<&Step> = graph.steps.iter().filter(|s| s.written().any(|w| w == t)).collect();
            let others = writers.iter().any(|s| s.output.tensor != t || s.kind.beside().is_some());
            let known: Vec<(f64, f64)> = writers.iter().map(|s| bounds(&s.expr, s.expr.result())).collect();
            fit(&|(low, high)| known.iter().all(|(a, b)| *a >= low && *b <= high))
                .filter(|_| !others && !known.is_empty())
        }
        _ => None,
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

/// A constant factor: lines of bytes along the depth, which are packed one behind the other.
struct Matrix<'g> {
    data: &'g HostTensor,
    /// The walk over the first elements of all lines, and from one element of a line to the next.
    lines: View,
    along: i64,
    depth: usize,
    /// The dimensions of a product that lines are counted along.
    order: Vec<usize>,
    /// The walk over the bytes of packed lines.
    read: View,
}

impl<'g> Matrix<'g> {
    /// Factor `side` of a product, if it is one.
    fn of(graph: &'g FusedGraph, access: &Access, side: usize) -> Option<Matrix<'g>> {
        let Role::Constant(data) = &graph.tensor(access.tensor).role else { return None };
        let (view, r) = (&access.view, access.view.rank());
        let (line, deep) = if side == 0 { (r - 2, r - 1) } else { (r - 1, r - 2) };
        let depth = view.dims[deep];
        // Batches that are one stay one.
        let mut order: Vec<usize> = (0..r - 2).filter(|d| view.strides[*d] != 0).collect();
        order.push(line);
        let dims: Vec<usize> = order.iter().map(|d| view.dims[*d]).collect();
        let strides = order.iter().map(|d| view.strides[*d]).collect();
        let lines = View { offset: view.offset, dims, strides };
        let mut read = View { offset: 0, dims: view.dims.clone(), strides: vec![0; r] };
        let whole = [&lines.dims[..], &[depth.div_ceil(2).next_multiple_of(LINE)]].concat();
        order.iter().chain([&deep]).zip(dense_strides(&whole)).for_each(|(d, s)| read.strides[*d] = s);
        read.dims[deep] = depth.div_ceil(2);
        access.is_plain().then_some(Matrix { data, lines, along: view.strides[deep], depth, order, read })
    }

    /// Bytes from a packed line to the next.
    fn pitch(&self) -> usize {
        self.depth.div_ceil(2).next_multiple_of(LINE)
    }

    /// Zeros of the packed matrix's shape.
    fn zeros(&self) -> Option<HostTensor> {
        HostTensor::filled(DType::U8, &[&self.lines.dims[..], &[self.pitch()]].concat(), &[0]).ok()
    }

    /// The first element of each line.
    fn starts(&self) -> Vec<i64> {
        let mut starts = Vec::with_capacity(self.lines.len());
        each(&self.lines.dims, |c| starts.push(self.lines.at(c)));
        starts
    }

    /// Two elements in a byte, each combined with others by exclusive or.
    fn packed(&self, with: u8) -> HostTensor {
        let (bytes, starts, pitch) = (self.data.bytes(), self.starts(), self.pitch());
        let mut packed = vec![0; starts.len() * pitch];
        let nibble = |start: i64, k: usize| (bytes[(start + k as i64 * self.along) as usize] & 15) ^ with;
        packed.par_chunks_mut(LINES * pitch).zip(starts.par_chunks(LINES)).for_each(|(packed, starts)| {
            // Lines that lie side by side are read side by side.
            for k in (0..self.depth).step_by(2) {
                for (line, start) in packed.chunks_mut(pitch).zip(starts) {
                    let high = if k + 1 < self.depth { nibble(*start, k + 1) } else { 0 };
                    line[k / 2] = nibble(*start, k) | high << 4;
                }
            }
        });
        let shape = [&self.lines.dims[..], &[pitch]].concat();
        HostTensor::new(DType::U8, &shape, packed).expect("lines of a pitch each")
    }

    /// The product with this factor of another one whose elements were [moved](MOVED): as if they were not.
    fn corrected(&self, out: &mut FusedGraph, product: Step) -> Step {
        let bytes = self.data.bytes();
        let sum = |start: &i64| -> i64 {
            let elements = (0..self.depth).map(|k| bytes[(start + k as i64 * self.along) as usize] as i8);
            i64::from(MOVED) * elements.map(i64::from).sum::<i64>()
        };
        let sums: Vec<i64> = self.starts().par_iter().map(sum).collect();
        let (name, dtype, shape) = ("sums of lines".into(), DType::I32, self.lines.dims.clone());
        let role = Role::Constant(HostTensor::from_ints(dtype, &shape, &sums));
        let tensor = out.add_tensor(Tensor { name, dtype, shape: shape.clone(), role });
        let dims = product.output.view.dims.clone();
        let mut view = View { offset: 0, strides: vec![0; dims.len()], dims };
        self.order.iter().zip(dense_strides(&shape)).for_each(|(d, s)| view.strides[*d] = s);
        let mut inputs = product.inputs.clone();
        inputs.insert(2, Access::new(tensor, view));
        let mut expr = Expr::new();
        let (acc, by) = (expr.push_acc(dtype), expr.input(2, dtype));
        let acc = expr.binary(Binary::Add, acc, by);
        let result = expr.append(&product.expr, Some(acc), |e, i, t| e.input(i as usize + 1, t));
        Step { inputs, expr: expr.finish(result), ..product }
    }
}

/// How a tensor's elements are packed two by two: those of a depth that lie so far apart.
struct Pairs {
    tensor: TensorId,
    apart: usize,
    /// What elements are combined with by exclusive or.
    with: u8,
    /// The walk over the bytes.
    read: View,
}

impl Pairs {
    /// None of a depth that is odd, or along which pairs of one line are not those of another.
    fn of(graph: &FusedGraph, access: &Access, side: usize, with: u8) -> Option<Pairs> {
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
        Some(Pairs { tensor: access.tensor, apart, with, read })
    }

    fn key(&self) -> Key {
        (self.tensor, self.apart, self.with)
    }

    /// The step that packs them, and the bytes that it moves where nothing would be moved without it.
    fn made(&self, graph: &FusedGraph, out: &mut FusedGraph) -> Option<(Step, Option<usize>)> {
        let from = graph.tensor(self.tensor);
        let len = from.len();
        let (name, shape) = (from.name.clone(), vec![len / (2 * self.apart), self.apart]);
        let tensor = out.add_tensor(Tensor { name, dtype: DType::U8, shape, role: Role::Intermediate });
        let readers: Vec<&Step> =
            graph.steps.iter().filter(|s| s.inputs.iter().any(|a| a.tensor == self.tensor)).collect();
        let products = readers.iter().filter(|s| matches!(s.kind, StepKind::MatMul | StepKind::Conv(_))).count();
        // Who quantises writes nothing else where only products read that.
        if products == readers.len()
            && let Some(writer) = writer_of(graph, self.tensor)
            && let Some(step) = self.written(writer, tensor)
            && out.step_promises(&step).is_ok()
        {
            return Some((step, None));
        }
        let half = self.apart as i64;
        let view =
            |offset: i64| View { offset, dims: vec![len / (2 * self.apart), self.apart], strides: vec![2 * half, 1] };
        let step = Step {
            name: from.name.clone(),
            kind: StepKind::Pointwise,
            inputs: [0, half].map(|o| Access::new(self.tensor, view(o))).to_vec(),
            expr: packing(&Expr::copy(DType::I8), self.with),
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
        Some(collapsed(Step { inputs, expr: packing(&writer.expr, self.with), output, ..writer.clone() }))
    }
}

/// The step with dimensions merged that all accesses walk as one.
fn collapsed(mut step: Step) -> Step {
    step.kind.clone().collapse(&mut step);
    step
}

/// A byte of two integers of 4 bits, each of which an expression gives: operand `i` of it is operand `2 i` for the first one, which has the
/// low bits, and the next one for the other. Both are combined with the same.
fn packing(one: &Expr, with: u8) -> Expr {
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
    let mut byte = expr.binary(Binary::Or, low, high);
    if with != 0 {
        let both = expr.constant(DType::U32, f64::from(with | with << 4));
        byte = expr.binary(Binary::Xor, byte, both);
    }
    let byte = expr.cast(byte, DType::U8);
    expr.finish(byte)
}
