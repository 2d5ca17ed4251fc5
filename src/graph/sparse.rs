//! Products, and convolutions of single points, of which one factor is a constant that has at most two elements other than zero in every four along the depth.
//!
//! Networks are pruned so for instructions that multiply the elements that are kept, two of every four, by those that stand beside them.
//! Such a factor is packed: what is kept, and where in its four each element was. What stands beside a zero is not read, so infinities
//! there give no NaN.

use super::fused::{Access, Conv, FusedGraph, Role, Sparse, Step, StepKind, Tensor, TensorId};
use super::uses::Changing;
use super::view::View;
use crate::tensor::{DType, HostTensor};
use rayon::prelude::*;
use std::collections::BTreeMap;

/// Of so many groups of four a constant is looked at first: what is not sparse is not read as a whole.
const SAMPLE: usize = 64;

/// Lines that are looked at side by side.
const LINES: usize = 64;

/// The graph with such products, of those that `fits` says yes to and where `quicker` does to what would replace one; `None` where there
/// are none.
pub(crate) fn sparse_factors(
    graph: &FusedGraph,
    fits: impl Fn(&FusedGraph, &Step) -> bool,
    quicker: impl Fn(&FusedGraph, &Step, &Step) -> bool,
) -> Option<FusedGraph> {
    let mut changing = Changing::of(graph);
    let mut packed: BTreeMap<(TensorId, [usize; 5]), [TensorId; 2]> = BTreeMap::new();
    for (at, step) in graph.steps.iter().enumerate() {
        let of_points = match &step.kind {
            StepKind::MatMul => None,
            StepKind::Conv(conv) => Some(product_of_points(conv, step)),
            _ => continue,
        };
        let Some(product) = of_points.as_ref().map_or(Some(step), Option::as_ref) else { continue };
        let Some((side, matrix)) = (0..2).find_map(|side| Some((side, Matrix::of(graph, product, side)?))) else {
            continue;
        };
        if !(fits(graph, product) && matrix.is_sparse()) {
            continue;
        }
        let from = product.inputs[side].tensor;
        changing.attempt(|graph, _| {
            let known = packed.get(&(from, matrix.place()));
            let to = match known {
                Some(known) => *known,
                None => matrix.without_contents()?.map(|data| {
                    let (name, dtype, shape) = (graph.tensor(from).name.clone(), data.dtype(), data.shape().to_vec());
                    graph.add_tensor(Tensor { name, dtype, shape, role: Role::Constant(data) })
                }),
            };
            let sparse = matrix.product(product, side, to);
            if graph.step_promises(&sparse).is_err() || !quicker(graph, &sparse, step) {
                return None;
            }
            if known.is_none() {
                for (t, data) in to.into_iter().zip(matrix.packed()) {
                    graph.tensors[t.index()].role = Role::Constant(data);
                }
                packed.insert((from, matrix.place()), to);
            }
            Some(vec![(at, Some(sparse))])
        });
    }
    changing.end()
}

/// A convolution of single points as a product: its channels are the rows, each image is a right factor.
pub(super) fn product_of_points(conv: &Conv, step: &Step) -> Option<Step> {
    let line = conv.window.kernel.len() == 1 && conv.window.is_point();
    if !line || conv.groups != 1 || conv.before.is_some() || conv.flip != 0 || !conv.also.is_empty() {
        return None;
    }
    let (images, weights) = (&step.inputs[0], &step.inputs[1]);
    let w = &weights.view;
    let dims = vec![images.view.dims[0], w.dims[0], w.dims[1]];
    let rows = View { offset: w.offset, dims, strides: vec![0, w.strides[0], w.strides[1]] };
    let mut inputs = step.inputs.clone();
    inputs[..2].clone_from_slice(&[Access::new(weights.tensor, rows), images.clone()]);
    Some(Step { kind: StepKind::MatMul, inputs, ..step.clone() })
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
    /// Factor `side` of a product, if it is such a matrix as far as some of it says.
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
        (one && matrix.seems_sparse()).then_some(matrix)
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

    /// At most two of every four elements are not zero, of some groups.
    fn seems_sparse(&self) -> bool {
        let groups = self.depth.div_ceil(4);
        let is_zero = zero_of(self.data.dtype());
        let mut sampled = (0..SAMPLE).map(|i| (i * self.lines / SAMPLE, i * groups / SAMPLE));
        sampled.all(|(l, g)| self.group(l, g).filter(|i| !is_zero(self.data.element(*i))).count() <= 2)
    }

    /// The same of all.
    fn is_sparse(&self) -> bool {
        let groups = self.depth.div_ceil(4);
        let is_zero = zero_of(self.data.dtype());
        let (bytes, size) = (self.data.bytes(), self.data.dtype().size());
        let is_other = |i: &usize| !is_zero(&bytes[i * size..][..size]);
        let blocks: Vec<usize> = (0..self.lines).step_by(LINES).collect();
        blocks.into_par_iter().all(|first| {
            let lines = first..self.lines.min(first + LINES);
            let mut all = (0..groups).flat_map(|g| lines.clone().map(move |l| (l, g)));
            all.all(|(l, g)| self.group(l, g).filter(is_other).count() <= 2)
        })
    }

    /// Shapes of the cells of what is kept, and of the words of places.
    fn shapes(&self) -> [[usize; 2]; 2] {
        let (dtype, kind) = (self.data.dtype(), Sparse { side: 0, depth: self.depth });
        [Sparse::run(dtype), 1].map(|each| [kind.cells(dtype), self.lines * each])
    }

    /// Both as constants of zeros.
    fn without_contents(&self) -> Option<[HostTensor; 2]> {
        let dtype = self.data.dtype();
        let zeros = |t: DType, shape: [usize; 2]| HostTensor::filled(t, &shape, &[0; 8][..t.size()]).ok();
        let [values, words] = self.shapes();
        Some([zeros(dtype, values)?, zeros(Sparse::places(dtype)?, words)?])
    }

    /// Cells of what is kept, and words of places: of all lines the first one, then the next of each.
    fn packed(&self) -> [HostTensor; 2] {
        let dtype = self.data.dtype();
        let (bytes, size, run) = (self.data.bytes(), dtype.size(), Sparse::run(dtype));
        let is_zero = zero_of(dtype);
        let cells = Sparse { side: 0, depth: self.depth }.cells(dtype);
        let places = Sparse::places(dtype).unwrap_or(DType::U32);
        let mut values = vec![0u8; cells * self.lines * run * size];
        let mut words = vec![0u8; cells * self.lines * places.size()];
        let of_depth = values.par_chunks_mut(self.lines * run * size);
        of_depth.zip(words.par_chunks_mut(self.lines * places.size())).enumerate().for_each(
            |(cell, (values, words))| {
                for (line, group) in (0..self.lines).flat_map(|l| (0..run / 2).map(move |g| (l, g))) {
                    let at = |k: usize| (self.offset + line * self.across + k * self.along) * size;
                    let first = 2 * run * cell + 4 * group;
                    let left = self.depth.saturating_sub(first).min(4);
                    let others = (0..left).filter(|i| !is_zero(&bytes[at(first + i)..][..size]));
                    let two = KEPT[others.fold(0, |set, i| set | 1 << i)];
                    for (e, place) in two.into_iter().enumerate() {
                        let e = 2 * group + e;
                        if place < left {
                            values[(line * run + e) * size..][..size]
                                .copy_from_slice(&bytes[at(first + place)..][..size]);
                        }
                        // Four of them have a byte.
                        words[line * places.size() + e / 4] |= (place as u8) << (2 * (e % 4));
                    }
                }
            },
        );
        let [of_values, of_words] = self.shapes();
        let values = HostTensor::new(dtype, &of_values, values).expect("a cell of each line and depth");
        let words = HostTensor::new(places, &of_words, words).expect("a word of each line and depth");
        [values, words]
    }

    /// The product with the packed matrix.
    fn product(&self, step: &Step, side: usize, [kept, places]: [TensorId; 2]) -> Step {
        let view = &step.inputs[side].view;
        let kind = Sparse { side, depth: self.depth };
        let dtype = self.data.dtype();
        let (cells, r) = (kind.cells(dtype), view.rank());
        let of = |tensor: TensorId, line: usize| {
            let last = [cells, self.lines * line];
            let strides = [&vec![0; r - 2][..], &[last[1] as i64, 1]].concat();
            Access::new(tensor, View { offset: 0, dims: [&view.dims[..r - 2], &last].concat(), strides })
        };
        let mut inputs = step.inputs[..2].to_vec();
        inputs[side] = of(kept, Sparse::run(dtype));
        inputs.push(of(places, 1));
        inputs.extend_from_slice(&step.inputs[2..]);
        let mut expr = super::expr::Expr::new();
        let acc = step.expr.nodes().iter().find(|n| n.op == super::expr::Op::Acc).map(|n| expr.push_acc(n.dtype));
        let result = expr.append(&step.expr, acc, |e, i, t| e.input(i as usize + 1, t));
        Step { kind: StepKind::Sparse(kind), inputs, expr: expr.finish(result), ..step.clone() }
    }
}

/// Which two of four are kept, in their order, by the set of those that are not zero: they, and the first of the others where they are
/// fewer. No set has more.
const KEPT: [[usize; 2]; 16] = {
    let mut all = [[0, 1]; 16];
    let mut set = 1;
    while set < 16usize {
        let first = set.trailing_zeros() as usize;
        let rest = set & (set - 1);
        all[set] = match (rest, first) {
            (0, 0) => [0, 1],
            (0, _) => [0, first],
            _ => [first, rest.trailing_zeros() as usize],
        };
        set += 1;
    }
    all
};

/// Whether the bytes of an element of a type are zero, of either sign where it has one.
fn zero_of(t: DType) -> impl Fn(&[u8]) -> bool + Sync {
    let signed = matches!(t, DType::F16 | DType::BF16 | DType::F8E4M3 | DType::F8E5M2);
    let last = if signed { 0x7f } else { 0xff };
    move |bytes| bytes.split_last().is_some_and(|(high, low)| high & last == 0 && low.iter().all(|b| *b == 0))
}
