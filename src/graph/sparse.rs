//! Products of which one factor is a constant that has at most two elements other than zero in every four along the depth.
//!
//! Networks are pruned so for instructions that multiply the elements that are kept, two of every four, by those that stand beside them.
//! Such a factor is packed: what is kept, and where in its four each element was. What stands beside a zero is not read, so infinities
//! there give no NaN.

use super::fused::{Access, FusedGraph, Role, Sparse, Step, StepKind, Tensor, TensorId};
use super::prune;
use super::view::View;
use crate::tensor::{DType, HostTensor};
use rayon::prelude::*;
use std::collections::BTreeMap;

/// Of so many groups of four a constant is looked at first: what is not sparse is not read as a whole.
const SAMPLE: usize = 64;

/// Lines that are packed side by side.
const LINES: usize = 64;

/// The graph with such products, of those that `fits` says yes to and where `quicker` does to what would replace one; `None` where there
/// are none.
pub(crate) fn sparse_factors(
    graph: &FusedGraph,
    fits: impl Fn(&FusedGraph, &Step) -> bool,
    quicker: impl Fn(&FusedGraph, &Step, &Step) -> bool,
) -> Option<FusedGraph> {
    let mut out: Option<FusedGraph> = None;
    let mut packed: BTreeMap<(TensorId, [usize; 5]), [TensorId; 2]> = BTreeMap::new();
    for (at, step) in graph.steps.iter().enumerate().filter(|(_, s)| s.kind == StepKind::MatMul && fits(graph, s)) {
        let Some((side, matrix)) = (0..2).find_map(|side| Some((side, Matrix::of(graph, step, side)?))) else {
            continue;
        };
        let mut next = out.clone().unwrap_or_else(|| graph.clone());
        let from = step.inputs[side].tensor;
        let [kept, places] = match packed.get(&(from, matrix.place())) {
            Some(known) => *known,
            None => {
                let name = graph.tensor(from).name.clone();
                matrix.packed().map(|data| {
                    let (dtype, shape) = (data.dtype(), data.shape().to_vec());
                    next.add_tensor(Tensor { name: name.clone(), dtype, shape, role: Role::Constant(data) })
                })
            }
        };
        let sparse = matrix.product(step, side, [kept, places]);
        if next.step_promises(&sparse).is_ok() && quicker(&next, &sparse, step) {
            next.steps[at] = sparse;
            packed.insert((from, matrix.place()), [kept, places]);
            out = Some(next);
        }
    }
    out.map(|mut graph| {
        prune::prune(&mut graph);
        graph
    })
}

/// A matrix of constants: lines of elements along the depth.
struct Matrix<'g> {
    data: &'g HostTensor,
    lines: usize,
    depth: usize,
    /// Element of the first line's first, and steps to the next line and along the depth.
    offset: usize,
    across: usize,
    along: usize,
}

impl<'g> Matrix<'g> {
    /// Factor `side` of a product, if it is such a matrix.
    fn of(graph: &'g FusedGraph, step: &Step, side: usize) -> Option<Matrix<'g>> {
        let access = &step.inputs[side];
        let (t, v) = (graph.tensor(access.tensor), &access.view);
        let Role::Constant(data) = &t.role else { return None };
        Sparse::places(t.dtype).filter(|_| data.fill().is_none() && t.dtype != DType::Bool)?;
        let r = v.rank();
        let (line, deep) = if side == 0 { (r - 2, r - 1) } else { (r - 1, r - 2) };
        let one = (0..r - 2).all(|d| v.dims[d] == 1 || v.strides[d] == 0);
        let number = |x: i64| usize::try_from(x).ok();
        let (across, along) = (number(v.strides[line])?, number(v.strides[deep])?);
        let (lines, depth) = (v.dims[line], v.dims[deep]);
        let matrix = Matrix { data, lines, depth, offset: number(v.offset)?, across, along };
        (one && matrix.is_sparse()).then_some(matrix)
    }

    /// What tells it from others of its tensor.
    fn place(&self) -> [usize; 5] {
        [self.offset, self.lines, self.depth, self.across, self.along]
    }

    /// Elements of a group of four of a line, as far as there are any.
    fn group(&self, line: usize, group: usize) -> impl Iterator<Item = usize> + use<> {
        let (first, along) = (self.offset + line * self.across, self.along);
        (4 * group..self.depth.min(4 * group + 4)).map(move |k| first + k * along)
    }

    /// At most two of every four elements are not zero.
    fn is_sparse(&self) -> bool {
        let groups = self.depth.div_ceil(4);
        let is_zero = zero_of(self.data.dtype());
        let fits = |others: usize| others <= 2;
        let sampled = (0..SAMPLE).map(|i| (i * self.lines / SAMPLE, i * groups / SAMPLE));
        let mut sampled = sampled.map(|(l, g)| self.group(l, g).filter(|i| !is_zero(self.data.element(*i))).count());
        if !sampled.all(fits) {
            return false;
        }
        let (bytes, size) = (self.data.bytes(), self.data.dtype().size());
        let is_other = |i: &usize| !is_zero(&bytes[i * size..][..size]);
        let blocks: Vec<usize> = (0..self.lines).step_by(LINES).collect();
        blocks.into_par_iter().all(|first| {
            let lines = first..self.lines.min(first + LINES);
            let mut all = (0..groups).flat_map(|g| lines.clone().map(move |l| (l, g)));
            all.all(|(l, g)| fits(self.group(l, g).filter(is_other).count()))
        })
    }

    /// What is kept, lines one behind the other, and words of places: those of all lines, then the next of each.
    fn packed(&self) -> [HostTensor; 2] {
        let dtype = self.data.dtype();
        let (bytes, size, run) = (self.data.bytes(), dtype.size(), Sparse::run(dtype));
        let kept = Sparse { side: 0, depth: self.depth }.kept(dtype);
        let is_zero = zero_of(dtype);
        let words = kept / run;
        let places = Sparse::places(dtype).unwrap_or(DType::U32);
        let mut values = vec![0u8; self.lines * kept * size];
        let mut of_lines = vec![0u32; self.lines * words];
        let blocks = values.par_chunks_mut(LINES * kept * size).zip(of_lines.par_chunks_mut(LINES * words));
        blocks.enumerate().for_each(|(block, (values, of_lines))| {
            let lines = values.len() / (kept * size);
            for (group, line) in (0..kept / 2).flat_map(|g| (0..lines).map(move |l| (g, l))) {
                let four: Vec<usize> = self.group(block * LINES + line, group).collect();
                let two = chosen(|i| four.get(i).is_some_and(|at| !is_zero(&bytes[at * size..][..size])));
                for (e, place) in two.into_iter().enumerate() {
                    let e = 2 * group + e;
                    if let Some(at) = four.get(place) {
                        values[(line * kept + e) * size..][..size].copy_from_slice(&bytes[at * size..][..size]);
                    }
                    of_lines[line * words + e / run] |= (place as u32) << (2 * (e % run));
                }
            }
        });
        let turned = (0..words).flat_map(|w| (0..self.lines).map(move |l| (l, w)));
        let turned: Vec<i64> = turned.map(|(l, w)| i64::from(of_lines[l * words + w])).collect();
        let values = HostTensor::new(dtype, &[self.lines, kept], values).expect("a value for each kept element");
        [values, HostTensor::from_ints(places, &[words, self.lines], &turned)]
    }

    /// The product with the packed matrix.
    fn product(&self, step: &Step, side: usize, [kept, places]: [TensorId; 2]) -> Step {
        let view = &step.inputs[side].view;
        let kind = Sparse { side, depth: self.depth };
        let count = kind.kept(self.data.dtype());
        let r = view.rank();
        let of = |last: [usize; 2], strides: [usize; 2]| View {
            offset: 0,
            dims: [&view.dims[..r - 2], &last].concat(),
            strides: [&vec![0; r - 2][..], &strides.map(|s| s as i64)].concat(),
        };
        let whole = match side {
            0 => of([self.lines, count], [count, 1]),
            _ => of([count, self.lines], [1, count]),
        };
        let words = count / Sparse::run(self.data.dtype());
        let mut inputs = step.inputs[..2].to_vec();
        inputs[side] = Access::new(kept, whole);
        inputs.push(Access::new(places, of([words, self.lines], [self.lines, 1])));
        inputs.extend_from_slice(&step.inputs[2..]);
        let mut expr = super::expr::Expr::new();
        let acc = step.expr.nodes().iter().find(|n| n.op == super::expr::Op::Acc).map(|n| expr.push_acc(n.dtype));
        let result = expr.append(&step.expr, acc, |e, i, t| e.input(i as usize + 1, t));
        Step { kind: StepKind::Sparse(kind), inputs, expr: expr.finish(result), ..step.clone() }
    }
}

/// Which two of four are kept, in their order: the others than zero, and in the place of those that are missing the first.
fn chosen(is_other: impl Fn(usize) -> bool) -> [usize; 2] {
    let others: Vec<usize> = (0..4).filter(|i| is_other(*i)).collect();
    match others[..] {
        [] => [0, 1],
        [0] => [0, 1],
        [x] => [0, x],
        [x, y, ..] => [x, y],
    }
}

/// Whether the bytes of an element of a type are zero, of either sign where it has one.
fn zero_of(t: DType) -> impl Fn(&[u8]) -> bool + Sync {
    let signed = matches!(t, DType::F16 | DType::BF16 | DType::F8E4M3 | DType::F8E5M2);
    let last = if signed { 0x7f } else { 0xff };
    move |bytes| bytes.split_last().is_some_and(|(high, low)| high & last == 0 && low.iter().all(|b| *b == 0))
}
