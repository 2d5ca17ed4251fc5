//! Steps over extents that are known when they are launched: one kernel serves every extent.
//!
//! These are elementwise steps, products of few rows with what the model computes (a query with all keys so far), and softmax.
//!
//! A model that leaves dimensions open is compiled for one shape after the other. What differs between the kernels of its
//! elementwise and layout steps (extents, strides, offsets) comes in scalar arguments instead of standing in their code. The
//! coordinates are found by division by extents that the host has turned into multiplications
//! ([`Number::Magic`](super::Number)). Lanes behind the last element compute that one again and store nothing.

use super::address::Offset;
use super::error::Reason;
use super::float::Float;
use super::pointwise::linear_index;
use super::values::{self, Value};
use super::{Arg, Cx, Kernel, MAX_TENSOR_BYTES, Number, Writer, epilogue, expr};
use crate::graph::fused::{Access, FusedGraph, Role, Softmax, Step, StepKind};
use crate::graph::view::View;
use crate::mir::{Gen, Part, Pipeline, Type};
use crate::tensor::DType;

const WORKGROUP: u32 = 256;
/// Steps with more numbers than this keep them in their code.
const MOST_NUMBERS: usize = 20;

/// How many numbers a step's kernel asks for.
fn numbers(step: &Step) -> usize {
    let strides = |a: &Access| {
        let walked = a.view.dims.iter().zip(&a.view.strides);
        walked.filter(|(d, s)| **d != 1 && !matches!(s, 0 | 1)).count()
    };
    let own: usize = accesses(step).map(|a| usize::from(a.view.offset != 0) + strides(a)).sum();
    let wide = step.output.view.dims.iter().filter(|d| **d != 1).count();
    // Elements, how many are put together and in how many rounds; what divides by each extent but the first.
    own + 3 + 3 * wide.saturating_sub(1)
}

fn accesses(step: &Step) -> impl Iterator<Item = &Access> {
    step.inputs.iter().chain([&step.output])
}

/// Elementwise steps of more workitems are worth kernels of their own: these serve one place after the other as fast as waves begin, which would then take
/// longer than a launch.
const MOST_ITEMS: usize = 1 << 16;
/// So are products of more rows.
const MOST_ROWS: usize = 8;
/// So is a softmax over more elements, or over more lines that are shorter: each has a workgroup.
const MOST_SOFTMAX: usize = 1 << 18;
const MOST_LINES: usize = MOST_ITEMS / WORKGROUP as usize;
const SHORT: usize = 64;

/// True when elementwise steps of so many workitems are compiled for any extents.
pub(super) fn is_open(graph: &FusedGraph, items: usize) -> bool {
    !graph.open_dims.is_empty() && items <= MOST_ITEMS
}

/// True when a step is compiled for any extents.
pub(super) fn fits(graph: &FusedGraph, step: &Step) -> bool {
    let t = |i: usize| graph.tensor(step.inputs[i].tensor);
    let narrow = |i: usize| matches!(t(i).dtype, DType::F32 | DType::F16 | DType::BF16);
    let computed = |i: usize| narrow(i) && !matches!(t(i).role, Role::Constant(_));
    let dims = &step.output.view.dims;
    let open = !graph.open_dims.is_empty()
        && match &step.kind {
            StepKind::Pointwise => is_open(graph, items(step, super::width_of(graph, step))),
            StepKind::MatMul => computed(0) && computed(1) && dims[dims.len() - 2] <= MOST_ROWS,
            StepKind::Softmax(_) => {
                let (all, length) = (step.output.view.len(), depth(step));
                narrow(0) && all <= MOST_SOFTMAX && (length >= SHORT || all <= MOST_LINES * length)
            }
            _ => false,
        };
    let small = |a: &Access| a.is_plain() && graph.tensor(a.tensor).bytes() < MAX_TENSOR_BYTES;
    open && accesses(step).all(small) && numbers(step) <= MOST_NUMBERS
}

/// What the code of such a step depends on.
pub(super) fn key(graph: &FusedGraph, step: &Step, width: usize) -> String {
    use std::fmt::Write;
    let mut s = format!("any extents|{:?}|{:?}|{width}|", step.kind, step.expr);
    let ones: String = steps(step, width).iter().map(|d| if *d == 1 { '1' } else { 'n' }).collect();
    s.push_str(&ones);
    for a in accesses(step) {
        let t = graph.tensor(a.tensor);
        let constant = if matches!(t.role, Role::Constant(_)) { "c" } else { "" };
        // A dimension that is not walked has no stride that matters.
        let walked = a.view.dims.iter().zip(&a.view.strides);
        let strides: String = walked.map(|(d, s)| if *d == 1 { '-' } else { class(*s) }).collect();
        let _ = write!(s, "|{}{constant} {strides} {}", t.dtype, a.view.offset != 0);
    }
    s.push_str(&super::same_tensors(step));
    s
}

/// Strides of 0 and 1 stand in the code.
fn class(stride: i64) -> char {
    match stride {
        0 => '0',
        1 => '1',
        _ => 's',
    }
}

/// The extents that lanes are counted over: four neighbours are one.
fn steps(step: &Step, width: usize) -> Vec<usize> {
    let mut dims = step.output.view.dims.clone();
    if let Some(last) = dims.last_mut() {
        *last /= width;
    }
    dims
}

/// Workitems of an elementwise step.
fn items(step: &Step, width: usize) -> usize {
    steps(step, width).iter().product()
}

/// The number behind an argument, for one step; `width` elements go together.
pub(super) fn number(graph: &FusedGraph, step: &Step, n: Number, width: usize) -> u32 {
    let dims = steps(step, width);
    let access = |i: usize| step.inputs.get(i).unwrap_or(&step.output);
    let bytes = |i: usize, elements: i64| (elements * graph.tensor(access(i).tensor).dtype.size() as i64) as u32;
    match n {
        Number::Count => items(step, width) as u32,
        Number::Depth => depth(step) as u32,
        Number::Rounds => (depth(step) as u32).div_ceil(WORKGROUP),
        Number::Extent(d) => dims[d] as u32,
        Number::Magic(d) => magic(dims[d] as u32).0,
        Number::Shift(d) => magic(dims[d] as u32).1,
        Number::Offset(i) => bytes(i, access(i).view.offset),
        Number::Stride(i, d) => bytes(i, access(i).view.strides[d]),
        Number::Length(i, d) => access(i).view.dims[d] as u32,
        Number::Round | Number::Before | Number::Wraps | Number::Counts | Number::Begins => 0,
        Number::Pieces(i, d, n) => (access(i).view.dims[d] as u32).div_ceil(n.max(1)),
    }
}

/// `(m, s)` with `x / n = (x m >> 32) >> s` for every `x` below 2^31; `n` is at least 2.
///
/// With `2^s < n <= 2^(s+1)` and `m = ceil(2^(32+s) / n)`, `m n` exceeds `2^(32+s)` by less than `n <= 2^(s+1)`, so that the
/// product of that with `x < 2^31` stays below `2^(32+s)` and never carries into the quotient.
pub fn magic(n: u32) -> (u32, u32) {
    let n = n.max(2);
    let shift = 31 - (n - 1).leading_zeros();
    let m = (1u64 << (32 + shift)).div_ceil(n as u64);
    (m as u32, shift)
}

/// Elements that are put together to one: of a product, of a line.
fn depth(step: &Step) -> usize {
    let view = step.inputs.first().map_or(&step.output.view, |a| &a.view);
    view.dims.last().copied().unwrap_or(1)
}

/// Workgroups of a launch.
pub(super) fn grid(step: &Step, width: usize) -> [u32; 3] {
    if let StepKind::Softmax(_) = step.kind {
        return [(step.output.view.len() / depth(step)) as u32, 1, 1];
    }
    [(items(step, width) as u32).div_ceil(WORKGROUP), 1, 1]
}

struct Sized<'a> {
    w: Writer,
    cx: &'a Cx<'a>,
    coords: Vec<Option<Part>>,
}

impl Sized<'_> {
    fn number(&mut self, n: Number) -> Part {
        self.w.number(n)
    }

    /// The lane's number, of those that have something to do.
    fn held(&mut self, index: Part, count: Part) -> Part {
        let b = &mut self.w.b;
        let last = b.sub(count, 1u32);
        let last = b.to_vector(last);
        b.op(Gen::Min.of(Type::U32), &[index.into(), last.into()])
    }

    /// Ends a kernel that has computed one element in each lane: the step's expression, and the store.
    fn finish(mut self, acc: Value, index: Part, count: Part) -> Result<Vec<Kernel>, Reason> {
        let cx = self.cx;
        let mut places = Vec::new();
        for i in epilogue::operands(cx) {
            let at = self.offset(i, &cx.step.inputs[i].view, cx.dtype(Arg::Input(i)).size(), 1);
            self.w.any_buffer(cx, Arg::Input(i));
            places.push((Arg::Input(i), at));
        }
        let at = self.offset(cx.step.inputs.len(), &cx.step.output.view, cx.dtype(Arg::Output).size(), 1);
        self.w.any_buffer(cx, Arg::Output);
        let b = &mut self.w.b;
        let count = b.to_vector(count);
        let inside = b.op(Gen::CmpGt.of(Type::U32), &[count.into(), index.into()]);
        let reg = at.vector(b);
        places.push((Arg::Output, Offset { reg: Some(b.guard(inside, reg)), imm: at.imm }));
        epilogue::finish(&mut self.w, cx, acc, |_, arg| {
            Ok(places.iter().find(|p| p.0 == arg).expect("operands() names every input of the expression").1)
        })?;
        Ok(vec![self.w.finish([1, 1, 1], 0)])
    }

    /// Coordinates of the lane's element in the dimensions that lanes are counted over.
    fn split(&mut self, index: Part, dims: &[usize]) {
        let wide: Vec<usize> = (0..dims.len()).filter(|d| dims[*d] != 1).collect();
        self.coords = vec![None; dims.len()];
        let mut rest = index;
        for (k, &d) in wide.iter().enumerate().rev() {
            if k == 0 {
                self.coords[d] = Some(rest);
                continue;
            }
            let (magic, shift, extent) =
                (self.number(Number::Magic(d)), self.number(Number::Shift(d)), self.number(Number::Extent(d)));
            let b = &mut self.w.b;
            let high = b.op(Gen::MulHi.of(Type::U32), &[magic.into(), rest.into()]);
            let quotient = b.shr(high, shift);
            let whole = b.mul(quotient, extent);
            self.coords[d] = Some(b.sub(rest, whole));
            rest = quotient;
        }
    }

    /// Byte offset of the lane's element in access `i`.
    fn offset(&mut self, i: usize, view: &View, size: usize, width: usize) -> Offset {
        let mut reg: Option<Part> = None;
        let last = view.rank().saturating_sub(1);
        for d in 0..view.rank() {
            let Some(mut c) = self.coords[d] else { continue };
            let stride = match view.strides[d] {
                _ if view.dims[d] == 1 => continue,
                0 => continue,
                1 => None,
                _ => Some(self.number(Number::Stride(i, d))),
            };
            let b = &mut self.w.b;
            if d == last && width > 1 {
                c = b.mul(c, width as u32);
            }
            let term = match stride {
                None => b.mul(c, size as u32),
                Some(s) => b.mul(c, s),
            };
            reg = Some(match reg {
                None => term,
                Some(r) => b.add(r, term),
            });
        }
        if view.offset != 0 {
            let start = self.number(Number::Offset(i));
            reg = Some(match reg {
                None => start,
                Some(r) => self.w.b.add(r, start),
            });
        }
        Offset { reg, imm: 0 }
    }
}

pub(super) fn lower(cx: &Cx, width: usize) -> Result<Vec<Kernel>, Reason> {
    match &cx.step.kind {
        StepKind::MatMul => product(cx),
        StepKind::Softmax(s) => softmax(cx, s),
        _ => elementwise(cx, width),
    }
}

/// One workitem computes one element of a product.
fn product(cx: &Cx) -> Result<Vec<Kernel>, Reason> {
    let mut k = Sized { w: cx.kernel(WORKGROUP), cx, coords: Vec::new() };
    let index = linear_index(&mut k.w.b);
    let count = k.number(Number::Count);
    let held = k.held(index, count);
    let r = cx.step.output.view.rank();
    k.split(held, &steps(cx.step, 1));
    let coords = k.coords.clone();
    let mut factors = Vec::new();
    for (i, along) in [(0, r - 1), (1, r - 2)] {
        // The dimension that is summed over has no coordinate.
        k.coords[along] = None;
        let view = &cx.step.inputs[i].view;
        let t = cx.dtype(Arg::Input(i));
        let buf = k.w.any_buffer(cx, Arg::Input(i));
        let base = k.offset(i, view, t.size(), 1).vector(&mut k.w.b);
        let pitch = match view.strides[along] {
            _ if view.dims[along] == 1 => None,
            0 => None,
            1 => Some(k.w.b.scalar(t.size() as u32)),
            _ => Some(k.number(Number::Stride(i, along))),
        };
        factors.push((t, buf, base, pitch));
        k.coords = coords.clone();
    }
    let depth = k.number(Number::Depth);
    let sum = k.w.b.to_vector(0.0f32);
    let node = k.w.b.begin_loop("product");
    let mut loaded = Vec::new();
    for (t, buf, base, pitch) in factors {
        let b = &mut k.w.b;
        let at = match pitch {
            None => base,
            Some(p) => {
                let far = b.mul(node.counter(), p);
                b.add(base, far)
            }
        };
        loaded.push(values::load(b, t, buf, Offset { reg: Some(at), imm: 0 }).reg(b));
    }
    k.w.b.fma_into(sum, loaded[0], loaded[1]);
    k.w.b.end_loop(node, depth, 1, Pipeline::Off, false);
    k.finish(Value::Word(sum.into()), index, count)
}

/// A workgroup computes one line: its largest element, the sum of exponentials, the result.
fn softmax(cx: &Cx, kind: &Softmax) -> Result<Vec<Kernel>, Reason> {
    let float = Float(Type::F32);
    let mut k = Sized { w: cx.kernel(WORKGROUP), cx, coords: Vec::new() };
    let lines = super::lines::Lines::of_team(&mut k.w);
    let last = cx.step.output.view.rank() - 1;
    let outer = cx.step.output.view.dims[..last].to_vec();
    let line = k.w.b.to_vector(lines.line);
    k.split(line, &outer);
    k.coords.push(None);
    let args: Vec<Arg> =
        epilogue::operands(cx).into_iter().map(Arg::Input).chain([Arg::Input(0), Arg::Output]).collect();
    // Where the line begins in each access, and how far its elements are apart.
    let mut walks = Vec::new();
    for &arg in &args {
        let (i, view) = match arg {
            Arg::Input(i) => (i, &cx.step.inputs[i].view),
            _ => (cx.step.inputs.len(), &cx.step.output.view),
        };
        let size = cx.dtype(arg).size();
        let base = k.offset(i, view, size, 1).vector(&mut k.w.b);
        let pitch = match view.strides[last] {
            _ if view.dims[last] == 1 => k.w.b.scalar(0),
            0 => k.w.b.scalar(0),
            1 => k.w.b.scalar(size as u32),
            _ => k.number(Number::Stride(i, last)),
        };
        if k.w.args.iter().all(|(a, _)| *a != arg) {
            k.w.any_buffer(cx, arg);
        }
        walks.push((arg, base, pitch));
    }
    let (depth, rounds) = (k.number(Number::Depth), k.number(Number::Rounds));
    let item = k.w.b.workitem_id();
    let t = cx.dtype(Arg::Input(0));
    let source = k.w.buffer(cx, Arg::Input(0))?;
    // The element of a round, its number, and the lanes that have one.
    let element = |w: &mut Writer, round: Part| {
        let b = &mut w.b;
        let first = b.mul(round, WORKGROUP);
        let at = b.add(first, item);
        let limit = b.to_vector(depth);
        let inside = b.op(Gen::CmpGt.of(Type::U32), &[limit.into(), at.into()]);
        (at, inside)
    };
    let place = |w: &mut Writer, arg: Arg, at: Part, inside: Part| {
        let (_, base, pitch) = walks.iter().find(|(a, _, _)| *a == arg).copied().expect("every access was prepared");
        let far = w.b.mul(at, pitch);
        let sum = w.b.add(base, far);
        Offset { reg: Some(w.b.guard(inside, sum)), imm: 0 }
    };
    let read = |w: &mut Writer, round: Part| {
        let (at, inside) = element(w, round);
        let offset = place(w, Arg::Input(0), at, inside);
        let x = values::load(&mut w.b, t, source, offset).reg(&mut w.b);
        let none = w.b.to_vector(f32::NEG_INFINITY);
        (w.b.select(inside, x, none), at, inside)
    };
    let w = &mut k.w;
    let max = float.held(&mut w.b, f64::NEG_INFINITY);
    let node = w.b.begin_loop("max");
    let (x, _, _) = read(w, node.counter());
    float.update(&mut w.b, Gen::Max, max, x);
    w.b.end_loop(node, rounds, 1, Pipeline::Off, false);
    let merge = |w: &mut Writer, a: &[Part], b: &[Part]| Ok(vec![float.op(&mut w.b, Gen::Max, a[0], b[0])]);
    let mut max = lines.combine(w, &[max], merge)?[0];
    if kind.masked {
        let low = float.constant(&mut w.b, f32::MIN.into());
        max = float.op(&mut w.b, Gen::Max, low, max);
    }
    let sum = float.held(&mut w.b, 0.0);
    let node = w.b.begin_loop("sum");
    let (x, _, _) = read(w, node.counter());
    let d = float.op(&mut w.b, Gen::Sub, x, max);
    let e = float.exp(&mut w.b, d);
    float.update(&mut w.b, Gen::Add, sum, e);
    w.b.end_loop(node, rounds, 1, Pipeline::Off, false);
    let merge = |w: &mut Writer, a: &[Part], b: &[Part]| Ok(vec![float.op(&mut w.b, Gen::Add, a[0], b[0])]);
    let mut sum = lines.combine(w, &[sum], merge)?[0];
    if kind.masked {
        let least = float.constant(&mut w.b, f32::MIN_POSITIVE.into());
        let r = float.op(&mut w.b, Gen::Max, sum, least);
        let nan = float.op(&mut w.b, Gen::CmpUnordered, sum, sum);
        sum = float.select(&mut w.b, nan, sum, r);
    }
    let scale = if kind.log {
        float.log(&mut w.b, sum)
    } else {
        let one = float.constant(&mut w.b, 1.0);
        float.div(&mut w.b, one, sum)
    };
    let node = w.b.begin_loop("write");
    let (x, at, inside) = read(w, node.counter());
    let d = float.op(&mut w.b, Gen::Sub, x, max);
    let y = if kind.log {
        float.op(&mut w.b, Gen::Sub, d, scale)
    } else {
        let e = float.exp(&mut w.b, d);
        float.op(&mut w.b, Gen::Mul, e, scale)
    };
    epilogue::finish(w, cx, Value::Word(y.into()), |w, arg| Ok(place(w, arg, at, inside)))?;
    w.b.end_loop(node, rounds, 1, Pipeline::Off, false);
    Ok(vec![k.w.finish([1, 1, 1], 0)])
}

fn elementwise(cx: &Cx, width: usize) -> Result<Vec<Kernel>, Reason> {
    let mut k = Sized { w: cx.kernel(WORKGROUP), cx, coords: Vec::new() };
    let index = linear_index(&mut k.w.b);
    let count = k.number(Number::Count);
    let held = k.held(index, count);
    // Which dimensions have an extent of 1 stands in the key.
    k.split(held, &steps(cx.step, width));
    let mut operands: Vec<Vec<Value>> = Vec::new();
    for (i, access) in cx.step.inputs.iter().enumerate() {
        let t = cx.dtype(Arg::Input(i));
        let buf = k.w.any_buffer(k.cx, Arg::Input(i));
        let at = k.offset(i, &access.view, t.size(), width);
        let dense = width > 1 && access.view.strides.last() == Some(&1);
        let b = &mut k.w.b;
        operands.push(if dense { values::load_some(b, t, buf, at, 4) } else { vec![values::load(b, t, buf, at)] });
    }
    let mut results = Vec::new();
    for lane in 0..width {
        let input = |i: u32| operands[i as usize][lane.min(operands[i as usize].len() - 1)];
        let shared = |i: u32| operands[i as usize].len() < width;
        results.push(expr::eval_to_store(&mut k.w.b, &cx.step.expr, &input, None, &shared)?);
    }
    let t = cx.dtype(Arg::Output);
    let out = k.w.any_buffer(k.cx, Arg::Output);
    let at = k.offset(cx.step.inputs.len(), &cx.step.output.view, t.size(), width);
    let b = &mut k.w.b;
    let count = b.to_vector(count);
    let inside = b.op(Gen::CmpGt.of(Type::U32), &[count.into(), index.into()]);
    let reg = at.vector(b);
    let at = Offset { reg: Some(b.guard(inside, reg)), imm: at.imm };
    match width {
        1 => values::store(b, t, out, at, results[0]),
        _ => values::store_some(b, t, out, at, &results),
    }
    Ok(vec![k.w.finish([1, 1, 1], 0)])
}

#[cfg(test)]
mod tests {
    use super::magic;

    #[test]
    fn multiplications_divide() {
        let divide = |x: u32, n: u32| {
            let (m, s) = magic(n);
            (((x as u64 * m as u64) >> 32) >> s) as u32
        };
        let most = (1u32 << 31) - 1;
        for n in (2..5000).chain([1 << 16, (1 << 16) + 1, 1 << 30, (1 << 30) + 1, most - 1, most]) {
            for x in [0, 1, n - 1, n, n.saturating_add(1), n.saturating_mul(2) - 1, 12_345_678, most - 1, most] {
                let x = x.min(most);
                assert_eq!(divide(x, n), x / n, "{x} / {n}");
                let edge = most / n * n;
                assert_eq!((divide(edge, n), divide(edge - 1, n)), (edge / n, (edge - 1) / n), "{edge} / {n}");
            }
        }
    }
}
