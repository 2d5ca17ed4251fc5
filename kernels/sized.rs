//! Elementwise steps over extents that are known when they are launched: one kernel serves every extent.
//!
//! A model that leaves dimensions open is compiled for one shape after the other. What differs between the kernels of its
//! elementwise and layout steps (extents, strides, offsets) comes in scalar arguments instead of standing in their code. The
//! coordinates are found by division by extents that the host has turned into multiplications
//! ([`Number::Magic`](super::Number)). Lanes behind the last element compute that one again and store nothing.

use super::address::Offset;
use super::pointwise::linear_index;
use super::values::{self, Value};
use super::{Arg, Cx, Kernel, MAX_TENSOR_BYTES, Number, Writer, expr};
use crate::graph::fused::{Access, FusedGraph, Role, Step, StepKind};
use crate::graph::view::View;
use crate::mir::{Buffer, Gen, Memory, Part, Type};

const WORKGROUP: u32 = 256;
/// Steps with more numbers than this keep them in their code.
const MOST_NUMBERS: usize = 20;

/// Numbers in `accesses` accesses of `rank` dimensions, at most.
fn numbers(step: &Step) -> usize {
    let own: usize = accesses(step).map(|a| 1 + a.view.strides.iter().filter(|s| !matches!(s, 0 | 1)).count()).sum();
    own + 1 + 3 * step.output.view.rank()
}

fn accesses(step: &Step) -> impl Iterator<Item = &Access> {
    step.inputs.iter().chain([&step.output])
}

/// True when a step is compiled for any extents.
pub(super) fn fits(graph: &FusedGraph, step: &Step) -> bool {
    let open = !graph.open_dims.is_empty() && step.kind == StepKind::Pointwise;
    let small = |a: &Access| a.is_plain() && graph.tensor(a.tensor).bytes() < MAX_TENSOR_BYTES;
    open && accesses(step).all(small) && numbers(step) <= MOST_NUMBERS
}

/// What the code of such a step depends on.
pub(super) fn key(graph: &FusedGraph, step: &Step, width: usize) -> String {
    use std::fmt::Write;
    let mut s = format!("any extents|{:?}|{width}|", step.expr);
    let ones: String = steps(step, width).iter().map(|d| if *d == 1 { '1' } else { 'n' }).collect();
    s.push_str(&ones);
    for a in accesses(step) {
        let t = graph.tensor(a.tensor);
        let constant = if matches!(t.role, Role::Constant(_)) { "c" } else { "" };
        let strides: String = a.view.strides.iter().map(|s| class(*s)).collect();
        let same = accesses(step).position(|b| b.tensor == a.tensor);
        let _ = write!(s, "|{}{constant} {strides} {} {same:?}", t.dtype, a.view.offset != 0);
    }
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

/// The number behind an argument, for one step; `width` elements go together.
pub(super) fn number(graph: &FusedGraph, step: &Step, n: Number, width: usize) -> u32 {
    let dims = steps(step, width);
    let access = |i: usize| step.inputs.get(i).unwrap_or(&step.output);
    let bytes = |i: usize, elements: i64| (elements * graph.tensor(access(i).tensor).dtype.size() as i64) as u32;
    match n {
        Number::Count => dims.iter().product::<usize>() as u32,
        Number::Extent(d) => dims[d] as u32,
        Number::Magic(d) => magic(dims[d] as u32).0,
        Number::Shift(d) => magic(dims[d] as u32).1,
        Number::Offset(i) => bytes(i, access(i).view.offset),
        Number::Stride(i, d) => bytes(i, access(i).view.strides[d]),
    }
}

/// `(m, s)` with `x / n = (x m >> 32) >> s` for every `x` below 2^31; `n` is at least 2.
///
/// With `2^s < n <= 2^(s+1)` and `m = ceil(2^(32+s) / n)`, `m n` exceeds `2^(32+s)` by less than `n <= 2^(s+1)`, so that the
/// product of that with `x < 2^31` stays below `2^(32+s)` and never carries into the quotient.
fn magic(n: u32) -> (u32, u32) {
    let n = n.max(2);
    let shift = 31 - (n - 1).leading_zeros();
    let m = (1u64 << (32 + shift)).div_ceil(n as u64);
    (m as u32, shift)
}

/// Workgroups of a launch.
pub(super) fn grid(step: &Step, width: usize) -> [u32; 3] {
    [(steps(step, width).iter().product::<usize>() as u32).div_ceil(WORKGROUP), 1, 1]
}

struct Sized<'a> {
    w: Writer,
    cx: &'a Cx<'a>,
    coords: Vec<Option<Part>>,
}

impl Sized<'_> {
    fn number(&mut self, n: Number) -> Part {
        if let Some((_, known)) = self.w.args.iter().find(|(a, _)| *a == Arg::Number(n)) {
            return known.desc;
        }
        let p = self.w.b.number_arg(self.w.args.len() as u32);
        self.w.args.push((Arg::Number(n), Buffer { desc: p, memory: Memory::Any }));
        p
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

pub(super) fn lower(cx: &Cx, width: usize) -> Result<Vec<Kernel>, String> {
    let mut k = Sized { w: cx.kernel(WORKGROUP), cx, coords: Vec::new() };
    let index = linear_index(&mut k.w.b);
    let count = k.number(Number::Count);
    let last = k.w.b.sub(count, 1u32);
    let last = k.w.b.to_vector(last);
    let held = k.w.b.op(Gen::Min.of(Type::U32), &[index.into(), last.into()]);
    // Which dimensions have an extent of 1 stands in the key.
    k.split(held, &steps(cx.step, width));
    let mut operands: Vec<Vec<Value>> = Vec::new();
    for (i, access) in cx.step.inputs.iter().enumerate() {
        let t = cx.dtype(Arg::Input(i));
        let buf = k.w.any_buffer(k.cx, Arg::Input(i));
        let at = k.offset(i, &access.view, t.size(), width);
        let dense = width > 1 && access.view.strides.last() == Some(&1);
        let b = &mut k.w.b;
        operands.push(if dense { values::load_four(b, t, buf, at) } else { vec![values::load(b, t, buf, at)] });
    }
    let mut results = Vec::new();
    for lane in 0..width {
        let input = |i: u32| operands[i as usize][lane.min(operands[i as usize].len() - 1)];
        results.push(expr::eval(&mut k.w.b, &cx.step.expr, &input, None)?);
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
        _ => values::store_four(b, t, out, at, &results),
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
