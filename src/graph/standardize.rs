//! A normalisation in front of matrix products with constant weights becomes their own.
//!
//! A row's mean and deviation scale and shift all that a product makes of it, so a product multiplies rows as they are, finds both
//! meanwhile, and corrects its sums ([`Standardized`]). What scales the elements of a row behind the normalisation goes into the weights,
//! and what is added to them into a bias: `(z g + b) W = z (g W) + b W`.
//!
//! All who read the normalised rows must be such products, or the first of all readers one, which then writes the rows for the others
//! beside what it gives.

use super::attend::renumbered;
use super::expr::{Binary, Expr, Op, Val};
use super::forward::redirect;
use super::fused::{
    Access, FusedGraph, Gated, MadeRows, Normalize, Role, Standardized, Step, StepKind, Tensor, TensorId,
};
use super::join;
use super::uses::{Changes, Changing, Uses};
use super::view::View;
use crate::tensor::{DType, HostTensor, Room};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use rayon::prelude::*;

/// A product and what it becomes.
pub(crate) struct Turned {
    /// The step's place.
    pub at: usize,
    /// The product of normalised rows.
    pub step: Step,
}

/// The graph with such products, where `worth` says yes to a normalisation and all that it becomes part of; `None` where there are none.
pub(crate) fn standardize(
    graph: &FusedGraph,
    worth: impl Fn(&FusedGraph, &Step, &[Turned]) -> bool,
) -> Option<FusedGraph> {
    let (mut changing, mut room) = (Changing::of(graph), Room::default());
    for at in 0..graph.steps.len() {
        let now = changing.graph();
        let StepKind::Normalize(norm) = now.steps[at].kind else { continue };
        if let Some(found) = Found::of(now, changing.uses(), at, norm).filter(|_| !norm.magnitudes) {
            changing.attempt(|graph, uses| found.changes(graph, uses, at, &worth, &mut room));
        }
    }
    changing.end()
}

/// A normalisation whose rows products read.
struct Found {
    norm: Normalize,
    /// What is made of the normalised rows.
    rows: TensorId,
    /// What scales and what shifts their elements: operands of the normalisation.
    scale: Option<usize>,
    shift: Option<usize>,
    /// The products that become one with it, and all others who read the rows.
    products: Vec<usize>,
    others: Vec<usize>,
}

impl Found {
    fn of(graph: &FusedGraph, uses: &Uses, at: usize, norm: Normalize) -> Option<Found> {
        let step = &graph.steps[at];
        let (source, rows) = (step.inputs.first()?, step.output.tensor);
        let dtype = graph.tensor(rows).dtype;
        let alone = graph.tensor(rows).role == Role::Intermediate && uses.writers[rows.index()] == [at];
        let same = graph.tensor(source.tensor).dtype == dtype && matches!(dtype, DType::F32 | DType::F16 | DType::BF16);
        if norm.axes != 1 || !alone || !same || join::lying(graph, &step.output).is_none_or(|o| !o.is_sorted()) {
            return None;
        }
        let (scale, shift) = affine(&step.expr)?;
        let of_rows = |i: &usize| step.inputs.get(*i).and_then(|a| column(graph, step, a)).is_some();
        if ![scale, shift].iter().flatten().all(of_rows) {
            return None;
        }
        let takes = |i: &usize| product(graph, step, *i).is_some();
        let readers = &uses.readers[rows.index()];
        let (first, rest) = readers.split_first().filter(|(first, _)| takes(first))?;
        let (products, others) = match rest.iter().all(takes) {
            true => (readers.clone(), Vec::new()),
            false => (vec![*first], rest.to_vec()),
        };
        Some(Found { norm, rows, scale, shift, products, others })
    }

    /// What changes, where that is worth it.
    fn changes(
        &self,
        graph: &mut FusedGraph,
        uses: &Uses,
        at: usize,
        worth: &impl Fn(&FusedGraph, &Step, &[Turned]) -> bool,
        room: &mut Room,
    ) -> Option<Changes> {
        let normal = graph.steps[at].clone();
        let mut turned = Vec::new();
        let mut constants = Vec::new();
        for &i in &self.products {
            let (step, made) = self.turned(graph, &normal, i)?;
            turned.push(Turned { at: i, step });
            constants.push(made);
        }
        let mut readers = Vec::new();
        if let (Some(_), [first]) = (self.others.first(), &mut turned[..]) {
            readers = self.beside(graph, uses, &normal, first)?;
        }
        let promised = turned.iter().all(|t| graph.step_promises(&t.step).is_ok());
        if !promised || !worth(graph, &normal, &turned) {
            return None;
        }
        let operand = |graph: &FusedGraph, i: Option<usize>| i.and_then(|i| column(graph, &normal, &normal.inputs[i]));
        let (scale, shift) = (operand(graph, self.scale), operand(graph, self.shift));
        for (turned, made) in turned.iter().zip(constants) {
            let by = (scale.as_deref(), shift.as_deref());
            let [whole, of_columns @ ..] = folded(graph, &graph.steps[turned.at].inputs[1], by, room)?;
            let of_columns = of_columns.map(|t| if turned.step.kind.pairs() { in_halves(&t) } else { t });
            let folded = [whole].into_iter().chain(of_columns);
            for (t, data) in made.into_iter().zip(folded) {
                graph.tensors[t.index()].role = Role::Constant(data);
            }
        }
        let turned = turned.into_iter().map(|t| (t.at, t.step));
        Some(readers.into_iter().chain(turned).map(|(i, step)| (i, Some(step))).collect())
    }

    /// A product with the normalisation, and its constants, which do not have their contents yet: factors, their sums, and a bias.
    fn turned(&self, graph: &mut FusedGraph, normal: &Step, i: usize) -> Option<(Step, [TensorId; 3])> {
        let (read, factors, rest) = product(graph, normal, i)?;
        let product = &graph.steps[i];
        let t = graph.tensor(factors.tensor).clone();
        let columns = factors.view.dims[1];
        let step = |inputs: Vec<Access>, moved: u32| -> Option<Step> {
            let number = |i: u32| Some(if i < 2 { i } else { i + moved });
            Some(Step {
                name: format!("{}+{}", normal.name, product.name),
                kind: kind_of(product.kind.pairs(), Standardized { norm: self.norm, made: None }),
                inputs,
                expr: renumbered(&product.expr, product.expr.result(), number)?,
                output: product.output.clone(),
            })
        };
        let whole = step(Vec::new(), Standardized::FACTORS as u32 - 2)?;
        let of_columns = View { offset: 0, dims: vec![product.output.view.dims[0], columns], strides: vec![0, 1] };
        let empty = |graph: &mut FusedGraph| -> Option<TensorId> {
            let (name, dtype, shape) = (t.name.clone(), DType::F32, vec![columns]);
            let data = HostTensor::filled(dtype, &shape, &[0; 4]).ok()?;
            Some(graph.add_tensor(Tensor { name, dtype, shape, role: Role::Constant(data) }))
        };
        let made = [graph.add_tensor(t.clone()), empty(graph)?, empty(graph)?];
        let mut inputs = vec![read, Access::new(made[0], factors.view)];
        inputs.extend(made[1..].iter().map(|t| Access::new(*t, of_columns.clone())));
        inputs.extend(rest);
        Some((Step { inputs, ..whole }, made))
    }

    /// Lets the product write the rows in front of its result. Gives those who read either, reading parts of one tensor.
    fn beside(
        &self,
        graph: &mut FusedGraph,
        uses: &Uses,
        normal: &Step,
        first: &mut Turned,
    ) -> Option<Vec<(usize, Step)>> {
        let (result, rows) = (first.step.output.tensor, self.rows);
        let (t, dims) = (graph.tensor(result), first.step.inputs[0].view.dims.clone());
        let whole_result = uses.writers[result.index()] == [first.at]
            && t.role == Role::Intermediate
            && t.dtype == graph.tensor(rows).dtype
            && join::lying(graph, &first.step.output).is_some();
        let length = graph.tensor(rows).len();
        // All rows of the normalisation are those of the product.
        if !whole_result || dims.iter().product::<usize>() != length {
            return None;
        }
        let (whole, readers) = join::one_behind_the_other(graph, uses, [rows, result], first.at)?;
        let step = &mut first.step;
        step.output.tensor = whole;
        step.output.view.offset += length as i64;
        let operands: Vec<Access> = normal.inputs[1..]
            .iter()
            .map(|a| {
                let view = View { offset: a.view.offset, dims: dims.clone(), strides: vec![0, 1] };
                Access::new(a.tensor, view)
            })
            .collect();
        let count = operands.len();
        let own = |i: u32| i.checked_sub(1).map(|i| i + Standardized::FACTORS as u32);
        let expr = renumbered(&normal.expr, normal.expr.result(), own)?;
        let behind = |i: u32| Some(if (i as usize) < Standardized::FACTORS { i } else { i + count as u32 });
        step.expr = renumbered(&step.expr, step.expr.result(), behind)?;
        step.inputs.splice(Standardized::FACTORS..Standardized::FACTORS, operands);
        let view = View::dense(&dims);
        let made = Some(MadeRows { view, expr, operands: count });
        step.kind = kind_of(step.kind.pairs(), Standardized { norm: self.norm, made });
        Some(readers)
    }
}

/// A product of normalised rows, of single columns or of pairs.
fn kind_of(pairs: bool, rows: Standardized) -> StepKind {
    if pairs { StepKind::Gated(Gated { rows: Some(rows) }) } else { StepKind::Standardized(rows) }
}

/// What goes with columns in the order of a product of pairs: that of all first ones, then of all second ones.
fn in_halves(of_columns: &HostTensor) -> HostTensor {
    let all = of_columns.to_f32();
    let side = |side: usize| (0..all.len() / 2).map(move |n| Gated::columns(n)[side]);
    let turned: Vec<f32> = side(0).chain(side(1)).map(|column| all[column]).collect();
    HostTensor::from_f32(of_columns.shape(), &turned)
}

/// What multiplies the value that an expression is made of, and what is added then: operands, where there are any. `None` of expressions
/// that are anything else.
fn affine(e: &Expr) -> Option<(Option<usize>, Option<usize>)> {
    let node = |v: Val| e.nodes()[v.index()].op;
    let with_operand = |op: Binary, v: Val| match node(v) {
        Op::Binary(o, x, y) if o == op => match (node(x), node(y)) {
            (Op::Input(i), _) => Some((y, i as usize)),
            (_, Op::Input(i)) => Some((x, i as usize)),
            _ => None,
        },
        _ => None,
    };
    let (inner, shift) = with_operand(Binary::Add, e.result()).map_or((e.result(), None), |(v, i)| (v, Some(i)));
    let (inner, scale) = with_operand(Binary::Mul, inner).map_or((inner, None), |(v, i)| (v, Some(i)));
    (node(inner) == Op::Acc).then_some((scale, shift))
}

/// What an operand of a normalisation has for each place of a row, the same for all rows, if it is a constant.
fn column(graph: &FusedGraph, normal: &Step, a: &Access) -> Option<Vec<f32>> {
    let data = join::own_part(graph, a, normal.output.view.rank() - 1)?;
    (data.dtype() == graph.tensor(normal.output.tensor).dtype).then(|| data.to_f32())
}

/// How step `i`, if it is a product with constant factors, reads rows of a normalisation in the place of what that makes of them; its factors;
/// and all else that it reads.
fn product(graph: &FusedGraph, normal: &Step, i: usize) -> Option<(Access, Access, Vec<Access>)> {
    let (step, rows) = (&graph.steps[i], normal.output.tensor);
    let length = *normal.output.view.dims.last()?;
    let read = step.inputs.first()?;
    let once = step.inputs.iter().filter(|a| a.tensor == rows).count() == 1 && read.tensor == rows;
    let fits = step.kind.is_product() && step.output.view.rank() == 2 && step.output.tensor != rows;
    let whole = |elements: i64| elements % length as i64 == 0;
    if !fits || !once || read.view.dims[1] != length || read.view.strides[1] != 1 {
        return None;
    }
    if !whole(read.view.offset) || !(read.view.dims[0] == 1 || whole(read.view.strides[0])) {
        return None;
    }
    join::side(graph, step)?;
    let same = graph.tensor(step.inputs[1].tensor).dtype == graph.tensor(rows).dtype;
    let source = &normal.inputs[0];
    let view = redirect(&read.view, &source.view)?;
    let apart = source.tensor != step.output.tensor && source.is_plain() && view.strides[1] == 1;
    (same && apart).then(|| (Access::new(source.tensor, view), step.inputs[1].clone(), step.inputs[2..].to_vec()))
}

/// Scales of factors of f16 reach this at least: below 6e-5 each digit fewer of a factor is lost, and some matrix instructions take such for zero.
const LEAST_SCALE: f32 = 1.0 / 16.0;

/// Constant factors with the scale of each of their rows; the sum of each column of these; and of each column the sum of its elements times
/// what is added to rows. `None` where the type of the factors is too narrow for them. They are read in `room`; rows of f32 that lie as they are scaled
/// are scaled when somebody wants them.
fn folded(
    graph: &FusedGraph,
    factors: &Access,
    (scale, shift): (Option<&[f32]>, Option<&[f32]>),
    room: &mut Room,
) -> Option<[HostTensor; 3]> {
    let Role::Constant(data) = &graph.tensor(factors.tensor).role else { return None };
    let (depth, columns, wide) = (factors.view.dims[0], factors.view.dims[1], factors.view.strides[1] == 1);
    let dtype = data.dtype();
    if dtype == DType::F16 && scale.is_some_and(|g| g.iter().all(|g| g.abs() < LEAST_SCALE)) {
        return None;
    }
    let size = dtype.size();
    // A line has all columns of a row, or all of a column; lines are put together by some threads.
    let line = if wide { columns } else { depth };
    let lines = if wide { depth } else { columns };
    let at_once = lines.div_ceil(4 * rayon::current_num_threads()).max(1);
    // The sums of some lines, which are written where somebody wants them.
    let of_piece = |piece: usize, from: &[u8], mut to: Option<&mut [u8]>| {
        let sums = if wide { columns } else { from.len() / (line * size) };
        let (mut total, mut added) = (vec![0f32; sums], vec![0f32; sums]);
        let (mut before, mut after) = ([0f32; BLOCK], [0f32; BLOCK]);
        for (i, from) in from.chunks(line * size).enumerate() {
            let number = piece * at_once + i;
            let (mut sum, mut more) = (0.0, 0.0);
            for (first, from) in (0..line).step_by(BLOCK).zip(from.chunks(BLOCK * size)) {
                let own = first..line.min(first + BLOCK);
                let (before, after) = (&mut before[..own.len()], &mut after[..own.len()]);
                read_block(dtype, from, before);
                match (wide, scale) {
                    (_, None) => after.copy_from_slice(before),
                    (true, Some(g)) => in_places(after, before, |_, x| x * g[number]),
                    (false, Some(g)) => {
                        after.copy_from_slice(before);
                        in_places(after, &g[own.clone()], |x, g| x * g);
                    }
                }
                if let Some(to) = &mut to {
                    round_block(dtype, after, &mut to[(i * line + first) * size..][..from.len()]);
                }
                if wide {
                    in_places(&mut total[own.clone()], after, |t, x| t + x);
                    if let Some(b) = shift {
                        in_places(&mut added[own], before, |t, x| t + b[number] * x);
                    }
                } else {
                    sum += after.iter().map(|x| f64::from(*x)).sum::<f64>();
                    let product =
                        |b: &[f32]| before.iter().zip(b).map(|(x, b)| f64::from(*x) * f64::from(*b)).sum::<f64>();
                    more += shift.map_or(0.0, |b| product(&b[own]));
                }
            }
            if !wide {
                (total[i], added[i]) = (sum as f32, more as f32);
            }
        }
        (total, added)
    };
    let own = data.brought(room);
    let pieces = own.bytes().par_chunks(at_once * line * size).enumerate();
    let mut parts: Vec<(Vec<f32>, Vec<f32>)> = Vec::new();
    let whole = if wide && dtype == DType::F32 {
        parts = pieces.map(|(piece, from)| of_piece(piece, from, None)).collect();
        scale.map_or_else(|| data.clone(), |g| data.scaled(&g.iter().map(|g| f64::from(*g)).collect::<Vec<_>>()))
    } else {
        let written = HostTensor::written(dtype, data.shape(), |out| {
            let both = pieces.zip(out.par_chunks_mut(at_once * line * size));
            parts = both.map(|((piece, from), to)| of_piece(piece, from, Some(to))).collect();
        });
        written.ok()?
    };
    let together = |of: fn(&(Vec<f32>, Vec<f32>)) -> &Vec<f32>| match wide {
        true => (0..columns).map(|n| parts.iter().map(|p| f64::from(of(p)[n])).sum::<f64>() as f32).collect(),
        false => parts.iter().flat_map(|p| of(p).iter().copied()).collect::<Vec<f32>>(),
    };
    let sums = [together(|p| &p.0), together(|p| &p.1)];
    // A factor that is infinite shows in a sum.
    if !sums.iter().flatten().all(|x| x.is_finite()) {
        return None;
    }
    let [total, added] = sums.map(|list| HostTensor::from_f32(&[columns], &list));
    Some([whole, total, added])
}

/// Elements that are folded together.
const BLOCK: usize = 256;

/// Makes each number something of itself and another: a loop over places that becomes one over vectors.
#[inline(always)]
fn in_places(numbers: &mut [f32], others: &[f32], of: impl Fn(f32, f32) -> f32) {
    let others = &others[..numbers.len()];
    for i in 0..numbers.len() {
        numbers[i] = of(numbers[i], others[i]);
    }
}

/// Elements of memory as f32.
fn read_block(dtype: DType, from: &[u8], to: &mut [f32]) {
    let halves = from.as_chunks().0.iter().map(|c| u16::from_le_bytes(*c));
    match dtype {
        DType::F16 => {
            let mut block = [f16::ZERO; BLOCK];
            block.iter_mut().zip(halves).for_each(|(x, bits)| *x = f16::from_bits(bits));
            block[..to.len()].convert_to_f32_slice(to);
        }
        DType::BF16 => to.iter_mut().zip(halves).for_each(|(x, bits)| *x = bf16::from_bits(bits).to_f32()),
        _ => to.iter_mut().zip(from.as_chunks().0).for_each(|(x, c)| *x = f32::from_le_bytes(*c)),
    }
}

/// Rounds numbers to a type, and writes them to memory.
fn round_block(dtype: DType, values: &mut [f32], to: &mut [u8]) {
    match dtype {
        DType::F16 => {
            let block = &mut [f16::ZERO; BLOCK][..values.len()];
            block.convert_from_f32_slice(values);
            block.convert_to_f32_slice(values);
            to.as_chunks_mut().0.iter_mut().zip(block).for_each(|(c, x)| *c = x.to_bits().to_le_bytes());
        }
        DType::BF16 => {
            let block = &mut [bf16::ZERO; BLOCK][..values.len()];
            block.convert_from_f32_slice(values);
            block.convert_to_f32_slice(values);
            to.as_chunks_mut().0.iter_mut().zip(block).for_each(|(c, x)| *c = x.to_bits().to_le_bytes());
        }
        _ => to.as_chunks_mut().0.iter_mut().zip(values.iter()).for_each(|(c, x)| *c = x.to_le_bytes()),
    }
}
