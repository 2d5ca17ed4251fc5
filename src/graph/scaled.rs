//! Products of factors that have scales of F8E8M0 for blocks of 32 floats of 8 or 4 bits along the depth are computed of these.
//!
//! Exporters put a DequantizeLinear with blocks between such values and a product, and a QuantizeLinear in front of that for data. Where a
//! target multiplies blocks with their scales ([`Scaled`]) the product reads codes and scales. What has quantised and dequantised data in
//! one step gives codes instead. Scales of neighbouring lines are to lie side by side: a tile has few of a line. Constants are turned so, others
//! where that is worth a step. Floats of 4 bits go to the product two in a byte: constants lie so already ([`pair_in_byte`]), others
//! are put together.

use super::expr::{Binary, Expr, Op, Val};
use super::forward::redirect;
use super::fused::{Access, FusedGraph, Role, Scaled, Step, StepKind, Tensor};
use super::interpret::each;
use super::narrow::writer_of;
use super::prune::prune;
use super::view::{View, dense_strides};
use crate::tensor::{DType, HostTensor};

/// The graph with such products, of those that `takes` says yes to; `None` where there are none. Where a step for it is worth it, as `turns` says
/// of a product and one of its factors, scales are turned.
pub(crate) fn scaled_factors(
    graph: &FusedGraph,
    takes: impl Fn(&FusedGraph, &Step) -> bool,
    turns: impl Fn(&FusedGraph, &Step, usize) -> bool,
) -> Option<FusedGraph> {
    let mut out = graph.clone();
    let mut steps = Vec::with_capacity(graph.steps.len());
    let mut found = false;
    for step in &graph.steps {
        let known = out.tensors.len();
        if step.kind == StepKind::MatMul
            && let Some(factors) = factors(&out, step)
        {
            let (mut product, mut before) = scaled(&mut out, step, factors);
            if out.step_promises(&product).is_ok() && takes(&out, &product) {
                for side in 0..2 {
                    let worth = turns(&out, &product, side);
                    before.extend(turn(&mut out, &mut product, side, worth));
                }
                steps.extend(before);
                steps.push(product);
                found = true;
                continue;
            }
            out.tensors.truncate(known);
        }
        steps.push(step.clone());
    }
    found.then(|| {
        out.steps = steps;
        prune(&mut out);
        out
    })
}

/// A factor's codes and scales.
struct Factor {
    t: DType,
    /// Where codes are, or what computes them and how they are read.
    codes: Codes,
    scales: Access,
}

enum Codes {
    Read(Access),
    /// The step computes its output, which is a tensor of this type and shape to come, read so.
    Made(Box<Step>, DType, View),
}

fn factors(graph: &FusedGraph, product: &Step) -> Option<[Factor; 2]> {
    let both = [factor(graph, product, 0)?, factor(graph, product, 1)?];
    let depth = product.inputs[0].view.dims.last()?;
    (both[0].t.bits() == both[1].t.bits() && depth.is_multiple_of(Scaled::BLOCK)).then_some(both)
}

/// The product of the codes, and the steps that make codes for it.
fn scaled(graph: &mut FusedGraph, product: &Step, factors: [Factor; 2]) -> (Step, Vec<Step>) {
    let kind =
        Scaled { types: [factors[0].t, factors[1].t], depth: product.inputs[0].view.dims.last().copied().unwrap_or(0) };
    let (mut before, mut inputs, mut scales) = (Vec::new(), Vec::new(), Vec::new());
    for Factor { codes, scales: s, .. } in factors {
        scales.push(s);
        inputs.push(match codes {
            Codes::Read(access) => access,
            Codes::Made(mut step, dtype, read) => {
                let (name, shape) = (step.name.clone(), step.output.view.dims.clone());
                let tensor = graph.add_tensor(Tensor { name, dtype, shape, role: Role::Intermediate });
                step.output.tensor = tensor;
                before.push(*step);
                Access::new(tensor, read)
            }
        });
    }
    inputs.extend(scales);
    inputs.extend_from_slice(&product.inputs[2..]);
    let mut expr = Expr::new();
    let sum = expr.push_acc(DType::F32);
    let acc = product.expr.nodes().iter().find(|n| n.op == Op::Acc).map(|n| expr.cast(sum, n.dtype));
    let result = expr.append(&product.expr, acc, |e, i, t| e.input(i as usize + 2, t));
    (Step { kind: StepKind::Scaled(kind), inputs, expr: expr.finish(result), ..product.clone() }, before)
}

/// Puts the scales of neighbouring lines of a factor side by side where those along the depth are: of constants, and of others where that is
/// `worth` the step that is given.
fn turn(graph: &mut FusedGraph, product: &mut Step, side: usize, worth: bool) -> Option<Step> {
    let access = product.inputs[2 + side].clone();
    let (from, r) = (graph.tensor(access.tensor).clone(), access.view.rank());
    let (line, deep) = if side == 0 { (r - 2, r - 1) } else { (r - 1, r - 2) };
    let constant = if let Role::Constant(data) = &from.role { Some(data) } else { None };
    if access.view.strides[deep] != 1 || access.view.strides[line] == 1 || constant.is_none() && !worth {
        return None;
    }
    // Batches that are one stay one.
    let mut order: Vec<usize> = (0..r - 2).filter(|d| access.view.strides[*d] != 0).collect();
    order.extend([deep, line]);
    let of = |list: &[i64]| order.iter().map(|d| list[*d]).collect::<Vec<_>>();
    let dims: Vec<usize> = order.iter().map(|d| access.view.dims[*d]).collect();
    let walk = View { offset: access.view.offset, dims: dims.clone(), strides: of(&access.view.strides) };
    let role = match constant {
        Some(data) => {
            let bytes = data.bytes();
            let mut turned = Vec::with_capacity(walk.len());
            each(&dims, |c| turned.push(bytes[walk.at(c) as usize]));
            Role::Constant(HostTensor::new(from.dtype, &dims, turned).ok()?)
        }
        None => Role::Intermediate,
    };
    let step = constant.is_none();
    let tensor = graph.add_tensor(Tensor { name: from.name, dtype: from.dtype, shape: dims.clone(), role });
    let mut strides = vec![0; r];
    order.iter().zip(dense_strides(&dims)).for_each(|(d, s)| strides[*d] = s);
    product.inputs[2 + side] = Access::new(tensor, View { offset: 0, dims: access.view.dims.clone(), strides });
    step.then(|| Step {
        name: product.name.clone(),
        kind: StepKind::Pointwise,
        inputs: vec![Access::new(access.tensor, walk)],
        expr: Expr::copy(from.dtype),
        output: Access::new(tensor, View::dense(&dims)),
    })
}

/// Factor `i` of a product as codes and scales.
fn factor(graph: &FusedGraph, product: &Step, i: usize) -> Option<Factor> {
    let read = product.inputs.get(i).filter(|a| a.is_plain())?;
    let step = writer_of(graph, read.tensor)?;
    let (codes, scale) = dequantised(&step.expr)?;
    let t = step.expr.type_of(codes);
    let scale = step.inputs.get(scale as usize).filter(|a| a.is_plain())?;
    if graph.tensor(scale.tensor).dtype != DType::F8E8M0 || !matches!(t, DType::F8E4M3 | DType::F8E5M2 | DType::F4E2M1)
    {
        return None;
    }
    let (view, r) = (&read.view, read.view.rank());
    let deep = if i == 0 { r - 1 } else { r - 2 };
    let depth = view.dims[deep];
    if !depth.is_multiple_of(Scaled::BLOCK) {
        return None;
    }
    // One scale for all of a block.
    let blocks = redirect(&view.split(deep, &[depth / Scaled::BLOCK, Scaled::BLOCK]), &scale.view)?;
    if blocks.strides[deep + 1] != 0 {
        return None;
    }
    let mut scales = View { offset: blocks.offset, dims: view.dims.clone(), strides: blocks.strides.clone() };
    scales.strides.remove(deep + 1);
    scales.dims[deep] /= Scaled::BLOCK;
    let codes = match t {
        DType::F4E2M1 => pairs(graph, step, codes, view, deep)?,
        _ => bytes(step, codes, t, view)?,
    };
    Some(Factor { t, codes, scales: Access::new(scale.tensor, scales) })
}

/// What an expression multiplies by an operand: a float of 8 or 4 bits.
fn dequantised(expr: &Expr) -> Option<(Val, u32)> {
    let nodes = expr.nodes();
    let under_casts = |mut v: Val| {
        while let Op::Cast(x) = nodes[v.index()].op
            && !nodes[v.index()].dtype.is_small_float()
        {
            v = x;
        }
        v
    };
    let Op::Binary(Binary::Mul, x, by) = nodes[under_casts(expr.result()).index()].op else { return None };
    let (x, by) = (under_casts(x), under_casts(by));
    match nodes[by.index()].op {
        Op::Input(scale) if nodes[x.index()].dtype.is_small_float() => Some((x, scale)),
        _ => None,
    }
}

/// Codes of 8 bits, read as the wide values are by `view`.
fn bytes(step: &Step, codes: Val, t: DType, view: &View) -> Option<Codes> {
    if let Op::Input(source) = step.expr.nodes()[codes.index()].op {
        let source = step.inputs.get(source as usize).filter(|a| a.is_plain())?;
        return Some(Codes::Read(Access::new(source.tensor, redirect(view, &source.view)?)));
    }
    let (expr, inputs) = needed(&step.expr, codes, &step.inputs);
    let made = Step { expr, inputs, ..step.clone() };
    Some(Codes::Made(Box::new(made), t, view.clone()))
}

/// Pairs of codes of 4 bits along dimension `deep` of what reads the wide values by `view`.
fn pairs(graph: &FusedGraph, step: &Step, codes: Val, view: &View, deep: usize) -> Option<Codes> {
    let first = view.sliced(deep, 0, 2, view.dims[deep] / 2);
    if let Some(source) = paired(graph, step, codes) {
        return Some(Codes::Read(Access::new(source.tensor, redirect(&first, &source.view)?)));
    }
    // The dimension of the step that the depth is, or the last part of it.
    let grid = &step.output.view.dims;
    let along = dense_strides(grid).iter().position(|s| *s == view.strides[deep])?;
    if !grid[along].is_multiple_of(2) || view.offset % (2 * view.strides[deep]) != 0 {
        return None;
    }
    let mut dims = grid.clone();
    dims[along] /= 2;
    // Elements of the wide values, and the bytes that hold them.
    let mut held = View { offset: 0, dims: dims.clone(), strides: dense_strides(&dims) };
    held.dims.insert(along + 1, 2);
    held.strides.insert(along + 1, 0);
    let read = redirect(&first, &held)?;
    let (one, from) = needed(&step.expr, codes, &step.inputs);
    if !from.iter().all(Access::is_plain) {
        return None;
    }
    let mut expr = Expr::new();
    let mut of = |second: usize| {
        let code = expr.append(&one, None, |e, i, t| e.input(2 * i as usize + second, t));
        let code = expr.bits(code, DType::U8);
        expr.cast(code, DType::U32)
    };
    let (low, high) = (of(0), of(1));
    let places = expr.constant(DType::U32, 16.0);
    let high = expr.binary(Binary::Mul, high, places);
    let byte = expr.binary(Binary::Add, low, high);
    let byte = expr.cast(byte, DType::U8);
    let halves = from
        .iter()
        .flat_map(|a| [0, 1].map(|second| Access::new(a.tensor, a.view.sliced(along, second, 2, dims[along]))));
    let inputs = halves.collect();
    let output = Access::new(step.output.tensor, View::dense(&dims));
    let made = Step { expr: expr.finish(byte), inputs, output, ..step.clone() };
    Some(Codes::Made(Box::new(made), DType::U8, read))
}

/// A part of an expression, and the operands that it needs.
fn needed(expr: &Expr, part: Val, inputs: &[Access]) -> (Expr, Vec<Access>) {
    let expr = expr.clone().finish(part);
    let mut used: Vec<u32> =
        expr.nodes().iter().filter_map(|n| if let Op::Input(i) = n.op { Some(i) } else { None }).collect();
    used.sort_unstable();
    used.dedup();
    let place = |i: u32| used.iter().position(|u| *u == i).unwrap_or(0) as u32;
    (expr.map_inputs(place), used.iter().map(|i| inputs[*i as usize].clone()).collect())
}

/// The float of 4 bits that a byte, operand `byte`, has as many bits from its lowest as operand `shift` says.
pub(super) fn pair_in_byte(e: &mut Expr, byte: usize, shift: usize) -> Val {
    let [byte, shift] = [byte, shift].map(|i| {
        let x = e.input(i, DType::U8);
        e.cast(x, DType::U32)
    });
    let x = e.binary(Binary::Shr, byte, shift);
    let mask = e.constant(DType::U32, 15.0);
    let x = e.binary(Binary::And, x, mask);
    let x = e.cast(x, DType::U8);
    e.bits(x, DType::F4E2M1)
}

/// The shifts of [`pair_in_byte`].
pub(super) const SHIFTS: [u8; 2] = [0, 4];

/// The bytes of which `codes` are the halves.
fn paired<'s>(graph: &FusedGraph, step: &'s Step, codes: Val) -> Option<&'s Access> {
    let (part, inputs) = (step.expr.clone().finish(codes), &step.inputs);
    let at = |n: usize| {
        part.nodes().iter().filter_map(|n| if let Op::Input(i) = n.op { Some(i as usize) } else { None }).nth(n)
    };
    let (byte, shift) = (at(0)?, at(1)?);
    let mut same = Expr::new();
    let v = pair_in_byte(&mut same, byte, shift);
    let (byte, shift) = (inputs.get(byte)?, inputs.get(shift)?);
    let Role::Constant(shifts) = &graph.tensor(shift.tensor).role else { return None };
    let in_turn =
        shift.view == View { offset: 0, dims: shift.view.dims.clone(), strides: shifts_along(shift.view.rank()) };
    let twice = byte.view.strides.last() == Some(&0) && byte.view.dims.last() == Some(&2);
    (same.finish(v) == part && in_turn && twice && shifts.bytes()[..] == SHIFTS).then_some(byte)
}

/// Strides of the shifts for numbers that lie side by side along a last dimension.
pub(super) fn shifts_along(rank: usize) -> Vec<i64> {
    let mut strides = vec![0; rank];
    strides.iter_mut().next_back().into_iter().for_each(|s| *s = 1);
    strides
}
