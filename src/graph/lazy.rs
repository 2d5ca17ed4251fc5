//! Values that are not stored yet: an expression over strided accesses.
//!
//! While operators are lowered, a value is a [`Lazy`]: a scalar expression, evaluated at each point of an iteration grid
//! over operands that are read through views. Elementwise operators compose expressions, layout operators change views;
//! neither emits a step. A lazy value may rest on a *producer* (a convolution, a pooling ...), whose result its expression
//! sees as [`Op::Acc`](super::expr::Op::Acc): then it is the future epilogue of that kernel.
//!
//! The grid is a refinement of the shape: the same elements in the same order, but a dimension may be split into several
//! grid dimensions, and dimensions of extent 1 are left out. Splitting is what lets DepthToSpace, channel shuffles and
//! nearest upsampling stay views, and two grids that split differently are brought to a common refinement.

use super::dim::{Dim, broadcast_dims, known};
use super::error::Reason;
use super::expr::{Expr, Op};
use super::fused::{Access, Guard};
use super::view::{View, dense_strides};
use crate::tensor::DType;
use std::ops::Range;

/// A kernel to be emitted, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ProducerId(pub u32);

/// A value that is not stored yet.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Lazy {
    pub shape: Vec<usize>,
    /// Iteration dimensions; refines `shape`, without extents of 1.
    pub grid: Vec<usize>,
    pub base: Option<ProducerId>,
    /// Operands; each view has the dimensions of the grid.
    pub inputs: Vec<Access>,
    pub expr: Expr,
    /// The model's nodes that it computes, ascending.
    pub nodes: Vec<u32>,
}

/// `dims` without extents of 1.
pub(crate) fn without_ones(dims: &[usize]) -> Vec<usize> {
    dims.iter().copied().filter(|&d| d != 1).collect()
}

/// The coarsest grid that refines both, or `None` when their boundaries cross.
pub(crate) fn refine(a: &[usize], b: &[usize]) -> Option<Vec<usize>> {
    let (mut out, mut i, mut j) = (Vec::new(), 0, 0);
    let (mut ra, mut rb) = (1, 1);
    loop {
        if ra == 1 && rb == 1 {
            match (a.get(i), b.get(j)) {
                (None, None) => return Some(out),
                (Some(&x), Some(&y)) => (ra, rb, i, j) = (x, y, i + 1, j + 1),
                _ => return None,
            }
        } else if ra == 1 || rb == 1 {
            return None;
        }
        if ra == rb {
            out.push(ra);
            (ra, rb) = (1, 1);
        } else if ra % rb == 0 {
            out.push(rb);
            ra /= rb;
            rb = *b.get(j)?;
            j += 1;
        } else if rb % ra == 0 {
            out.push(ra);
            rb /= ra;
            ra = *a.get(i)?;
            i += 1;
        } else {
            return None;
        }
    }
}

/// For each dimension of `shape`, the grid dimensions it consists of. `None` when the grid does not refine the shape.
pub(crate) fn groups(shape: &[usize], grid: &[usize]) -> Option<Vec<Range<usize>>> {
    let mut out = Vec::with_capacity(shape.len());
    let mut g = 0;
    for &d in shape {
        let start = g;
        let mut have = 1;
        while have < d {
            have *= grid.get(g)?;
            g += 1;
        }
        if have != d {
            return None;
        }
        out.push(start..g);
    }
    (g == grid.len()).then_some(out)
}

/// Splits the dimensions of a view to a finer grid.
fn split_view(view: &View, fine: &[usize]) -> Option<View> {
    let parts = groups(&view.dims, fine)?;
    let mut strides = Vec::with_capacity(fine.len());
    for (d, range) in parts.into_iter().enumerate() {
        strides.extend(dense_strides(&fine[range]).into_iter().map(|s| s * view.strides[d]));
    }
    Some(View { offset: view.offset, dims: fine.to_vec(), strides })
}

/// Splits the dimensions of an access to a finer grid. `None` when a guarded dimension would be split.
pub(crate) fn split_access(access: &Access, fine: &[usize]) -> Option<Access> {
    if access.view.dims == fine {
        return Some(access.clone());
    }
    let mut out = access.clone();
    out.view = split_view(&access.view, fine)?;
    if let Some(guard) = &access.guard {
        let mut ranges = Vec::with_capacity(fine.len());
        for (d, range) in groups(&access.view.dims, fine)?.into_iter().enumerate() {
            let full = guard.ranges[d] == (0, access.view.dims[d]);
            match range.len() {
                1 => ranges.push(guard.ranges[d]),
                _ if full => ranges.extend(fine[range].iter().map(|&n| (0, n))),
                _ => return None,
            }
        }
        out.guard = Some(Guard { ranges, fill: guard.fill });
    }
    for ind in &mut out.indirect {
        ind.view = split_view(&ind.view, fine)?;
    }
    Some(out)
}

/// The access under other dimensions (merged, split, with or without extents of 1), when strides can express it.
pub(crate) fn reshape_access(access: &Access, dims: &[usize]) -> Option<Access> {
    if access.view.dims == dims {
        return Some(access.clone());
    }
    if let Some(guard) = &access.guard {
        // Only inserting and removing extents of 1 keeps the meaning of a guard.
        if without_ones(dims) != without_ones(&access.view.dims) {
            return None;
        }
        let mut real = guard.ranges.iter().zip(&access.view.dims).filter(|&(_, &d)| d != 1).map(|(&r, _)| r);
        if guard.ranges.iter().zip(&access.view.dims).any(|(&r, &d)| d == 1 && r != (0, 1)) {
            return None;
        }
        let ranges = dims.iter().map(|&d| if d == 1 { Some((0, 1)) } else { real.next() }).collect::<Option<_>>()?;
        let mut out = reshape_access(&Access { guard: None, ..access.clone() }, dims)?;
        out.guard = Some(Guard { ranges, fill: guard.fill });
        return Some(out);
    }
    let mut out = access.clone();
    out.view = access.view.reshaped(dims)?;
    for ind in &mut out.indirect {
        ind.view = ind.view.reshaped(dims)?;
    }
    Some(out)
}

/// Applies `f` to every view of an access and `guard` to the ranges of its guard.
pub(crate) fn map_access(
    access: &Access,
    f: impl Fn(&View) -> View,
    guard: impl Fn(&[(usize, usize)]) -> Vec<(usize, usize)>,
) -> Access {
    let mut out = access.clone();
    out.view = f(&access.view);
    for ind in &mut out.indirect {
        ind.view = f(&ind.view);
    }
    if let Some(g) = &mut out.guard {
        g.ranges = guard(&g.ranges);
    }
    out
}

impl Lazy {
    /// Operand 0 alone, read through `access`, whose dimensions are the shape.
    pub(crate) fn read(access: Access, dtype: DType) -> Lazy {
        let shape = access.view.dims.clone();
        let grid = without_ones(&shape);
        let access = reshape_access(&access, &grid).expect("dropping extents of 1 is always possible");
        Lazy { shape, grid, base: None, inputs: vec![access], expr: Expr::copy(dtype), nodes: Vec::new() }
    }

    pub(crate) fn dtype(&self) -> DType {
        self.expr.dtype()
    }

    pub(crate) fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// The access, if the value is nothing but operand 0 of a stored tensor.
    pub(crate) fn as_read(&self) -> Option<&Access> {
        match self.inputs.as_slice() {
            [a] if self.base.is_none() && self.expr.is_copy() => Some(a),
            _ => None,
        }
    }

    /// The halves, if the value is nothing but a plain read of such as floats of 32 bits.
    pub(crate) fn halves(&self) -> Option<Lazy> {
        let ([a], [read, cast]) = (self.inputs.as_slice(), self.expr.nodes()) else { return None };
        let widens = read.dtype.is_half() && cast.dtype == DType::F32;
        let plain = self.base.is_none() && a.is_plain() && matches!((read.op, cast.op), (Op::Input(_), Op::Cast(_)));
        (widens && plain).then(|| Lazy { expr: Expr::copy(read.dtype), ..self.clone() })
    }

    /// True when reading it again and again costs no more than reading a stored tensor.
    pub(crate) fn is_cheap(&self) -> bool {
        let read = self.as_read().is_some_and(Access::is_plain);
        self.base.is_none() && (self.inputs.is_empty() || read || self.halves().is_some())
    }

    /// The same elements under another shape.
    pub(crate) fn reshaped(mut self, shape: &[usize]) -> Lazy {
        debug_assert_eq!(self.len(), shape.iter().product::<usize>());
        self.shape = shape.to_vec();
        self
    }

    /// Refines the grid to `fine`. `None` when an operand cannot follow.
    pub(crate) fn refined(&self, fine: &[usize]) -> Option<Lazy> {
        if self.grid == fine {
            return Some(self.clone());
        }
        let inputs = self.inputs.iter().map(|a| split_access(a, fine)).collect::<Option<_>>()?;
        Some(Lazy { grid: fine.to_vec(), inputs, ..self.clone() })
    }

    /// The value with a grid that refines its own shape (after reshapes it may not). `None` when that needs a copy.
    pub(crate) fn regrid(&self) -> Option<Lazy> {
        if groups(&self.shape, &self.grid).is_some() {
            return Some(self.clone());
        }
        let plain = without_ones(&self.shape);
        if let Some(lazy) = refine(&self.grid, &plain).and_then(|fine| self.refined(&fine)) {
            return Some(lazy);
        }
        let inputs = self.inputs.iter().map(|a| reshape_access(a, &plain)).collect::<Option<_>>()?;
        Some(Lazy { grid: plain, inputs, ..self.clone() })
    }

    /// The value with accesses whose dimensions are exactly the shape (including extents of 1), or `None` when that
    /// needs a copy. The grid of the result is the shape; [`Lazy::normal`] undoes that.
    pub(crate) fn plain(&self) -> Option<Lazy> {
        let inputs = self.inputs.iter().map(|a| reshape_access(a, &self.shape)).collect::<Option<_>>()?;
        Some(Lazy { grid: self.shape.clone(), inputs, ..self.clone() })
    }

    /// Back from [`Lazy::plain`] after its views and its grid were changed: the shape is the grid.
    pub(crate) fn normal(mut self) -> Option<Lazy> {
        self.shape = self.grid.clone();
        self.grid = without_ones(&self.shape);
        // A guard that excludes the only coordinate of a dimension cannot be dropped with it.
        let inputs: Option<Vec<Access>> = self.inputs.iter().map(|a| reshape_access(a, &self.grid)).collect();
        self.inputs = inputs?;
        Some(self)
    }

    /// True when it is the same everywhere (or has no elements): it reads nothing.
    fn is_splat(&self) -> bool {
        self.base.is_none() && self.inputs.is_empty()
    }

    fn with_splat_shape(&self, shape: Vec<usize>) -> Lazy {
        Lazy { grid: without_ones(&shape), shape, ..self.clone() }
    }

    /// Dimensions in another order. Without a base only. `None` when that needs a copy first.
    pub(crate) fn permuted(&self, perm: &[usize]) -> Option<Lazy> {
        if self.is_splat() {
            return Some(self.with_splat_shape(perm.iter().map(|&p| self.shape[p]).collect()));
        }
        let lazy = self.regrid()?;
        let parts = groups(&lazy.shape, &lazy.grid)?;
        let order: Vec<usize> = perm.iter().flat_map(|&p| parts[p].clone()).collect();
        let pick = |ranges: &[(usize, usize)]| order.iter().map(|&o| ranges[o]).collect();
        Some(Lazy {
            shape: perm.iter().map(|&p| lazy.shape[p]).collect(),
            grid: order.iter().map(|&o| lazy.grid[o]).collect(),
            inputs: lazy.inputs.iter().map(|a| map_access(a, |v| v.permuted(&order), pick)).collect(),
            ..lazy
        })
    }

    /// True where ONNX's rule lets it be broadcast to `shape`.
    pub(crate) fn broadcasts_to(&self, shape: &[usize]) -> bool {
        let ends = self.shape.iter().rev().zip(shape.iter().rev());
        self.shape.len() <= shape.len() && ends.into_iter().all(|(own, n)| own == n || *own == 1)
    }

    /// Broadcast to `shape`, to which it [can be](Self::broadcasts_to). `None` when that needs a copy first. Panics with more
    /// dimensions than that.
    pub(crate) fn broadcast(&self, shape: &[usize]) -> Option<Lazy> {
        let missing = shape.len() - self.shape.len();
        if self.shape[..] == shape[missing..] && shape[..missing].iter().all(|&d| d == 1) {
            return Some(self.clone().reshaped(shape));
        }
        if self.is_splat() {
            return Some(self.with_splat_shape(shape.to_vec()));
        }
        let lazy = self.regrid()?;
        let parts = groups(&lazy.shape, &lazy.grid)?;
        let mut sources: Vec<Option<usize>> = Vec::new();
        let mut grid = Vec::new();
        for (d, &n) in shape.iter().enumerate() {
            if d >= missing && lazy.shape[d - missing] == n {
                for g in parts[d - missing].clone() {
                    sources.push(Some(g));
                    grid.push(lazy.grid[g]);
                }
            } else if n != 1 {
                sources.push(None);
                grid.push(n);
            }
        }
        let stretch = |v: &View| View {
            offset: v.offset,
            dims: grid.clone(),
            strides: sources.iter().map(|s| s.map_or(0, |g| v.strides[g])).collect(),
        };
        let ranges =
            |r: &[(usize, usize)]| sources.iter().zip(&grid).map(|(s, &n)| s.map_or((0, n), |g| r[g])).collect();
        let inputs = lazy.inputs.iter().map(|a| map_access(a, stretch, ranges)).collect();
        Some(Lazy { shape: shape.to_vec(), grid: grid.clone(), inputs, ..lazy })
    }
}

/// The shape that all of `shapes` broadcast to, or why they do not.
pub(crate) fn broadcast_shape<'a>(shapes: impl Iterator<Item = &'a [usize]> + Clone) -> Result<Vec<usize>, Reason> {
    let dims: Vec<Vec<Dim>> = shapes.map(|s| s.iter().map(|&d| d.into()).collect()).collect();
    let out = broadcast_dims(dims.iter().map(Vec::as_slice))?;
    Ok(known(&out).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::super::fused::TensorId;
    use super::*;

    #[test]
    fn grids_have_a_common_refinement_or_cross() {
        assert_eq!(refine(&[6], &[2, 3]), Some(vec![2, 3]));
        assert_eq!(refine(&[2, 12], &[4, 6]), Some(vec![2, 2, 6]));
        assert_eq!(refine(&[4, 6], &[6, 4]), None);
        assert_eq!(refine(&[], &[]), Some(vec![]));
        assert_eq!(refine(&[2], &[]), None);
        assert_eq!(groups(&[1, 6, 1, 4], &[2, 3, 4]), Some(vec![0..0, 0..2, 2..2, 2..3]));
        assert_eq!(groups(&[4, 6], &[2, 12]), None);
    }

    #[test]
    fn a_shuffle_stays_a_view() {
        // ShuffleNet: [1, 6, 5] -> [1, 2, 3, 5] -> swap -> [1, 6, 5]
        let x = Lazy::read(Access::new(TensorId(0), View::dense(&[1, 6, 5])), DType::F32);
        let y = x.reshaped(&[1, 2, 3, 5]).permuted(&[0, 2, 1, 3]).unwrap().reshaped(&[1, 6, 5]);
        assert_eq!((y.grid.as_slice(), y.inputs[0].view.strides.as_slice()), (&[3, 2, 5][..], &[5, 15, 1][..]));
        assert!(y.plain().is_none());
        let z = y.broadcast(&[4, 6, 5]).unwrap();
        assert_eq!(z.inputs[0].view.strides, [0, 5, 15, 1]);
    }

    #[test]
    fn shapes_broadcast_like_numpy() {
        let of = |list: &[&[usize]]| broadcast_shape(list.iter().copied());
        assert_eq!(of(&[&[2, 1, 3], &[4, 1]]).unwrap(), [2, 4, 3]);
        assert_eq!(of(&[&[], &[2]]).unwrap(), [2]);
        assert!(of(&[&[2], &[3]]).is_err());
    }
}
