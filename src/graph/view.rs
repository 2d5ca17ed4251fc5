//! Strided views: how a step walks over the elements of a tensor.
//!
//! A view maps the coordinates of an iteration space to an element index: `offset + sum(coordinate[d] * strides[d])`.
//! Broadcasting is a stride of 0, a transposition permutes strides, a slice moves the offset and multiplies a stride
//! (negative when it walks backwards), DepthToSpace and nearest upsampling split a dimension in two. So those operators
//! need no kernel: whoever reads the tensor next reads it through the view.
//!
//! Extents and strides are numbers, not [`Dim`](super::Dim)s. Nearly every decision between a view and a kernel rests on them:
//! which dimensions merge, what a load may take together, which tile divides, what repeats; a plan for unknown extents would
//! be a plan for the few shapes that decide alike. So run-time sizes end with inference, and a model is lowered when its
//! shapes are there, to kernels that take sizes and strides as arguments or are known from before; shapes that grow evenly
//! are lowered ahead of the run that needs them (`cargo bench --bench new_shapes` prints what that costs).

use std::fmt;

/// Element index as a function of coordinates. All numbers count elements, not bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Element at coordinates 0.
    pub offset: i64,
    /// Extent of each dimension, outermost first.
    pub dims: Vec<usize>,
    /// Step of each dimension; 0 repeats, negative walks backwards.
    pub strides: Vec<i64>,
}

/// Row-major strides of a dense tensor.
pub fn dense_strides(dims: &[usize]) -> Vec<i64> {
    let mut strides = vec![1i64; dims.len()];
    for d in (1..dims.len()).rev() {
        strides[d - 1] = strides[d].saturating_mul(dims[d].max(1) as i64);
    }
    strides
}

impl View {
    /// All elements of a dense row-major tensor of these dimensions.
    pub fn dense(dims: &[usize]) -> View {
        View { offset: 0, dims: dims.to_vec(), strides: dense_strides(dims) }
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.dims.len()
    }

    /// Number of coordinates; elements read repeatedly count repeatedly.
    pub fn len(&self) -> usize {
        self.dims.iter().product()
    }

    /// True when some dimension is zero.
    pub fn is_empty(&self) -> bool {
        self.dims.contains(&0)
    }

    /// True when the elements follow each other in memory in row-major order (at any offset).
    pub fn is_dense(&self) -> bool {
        let mut want = 1i64;
        for (&d, &s) in self.dims.iter().zip(&self.strides).rev() {
            if d != 1 && s != want {
                return false;
            }
            want *= d as i64;
        }
        true
    }

    /// True when the last `n` dimensions are dense, whatever the outer strides are.
    pub fn is_inner_dense(&self, n: usize) -> bool {
        let from = self.rank().saturating_sub(n);
        View { offset: 0, dims: self.dims[from..].to_vec(), strides: self.strides[from..].to_vec() }.is_dense()
    }

    /// The element at `coords`.
    pub fn at(&self, coords: &[usize]) -> i64 {
        self.offset + coords.iter().zip(&self.strides).map(|(&c, &s)| c as i64 * s).sum::<i64>()
    }

    /// The smallest and the largest element touched, or `None` for an empty view.
    pub fn extent(&self) -> Option<(i64, i64)> {
        if self.is_empty() {
            return None;
        }
        let (mut lo, mut hi) = (self.offset, self.offset);
        for (&d, &s) in self.dims.iter().zip(&self.strides) {
            let reach = (d as i64 - 1) * s;
            lo += reach.min(0);
            hi += reach.max(0);
        }
        Some((lo, hi))
    }

    /// Dimensions in another order: dimension `d` of the result is dimension `perm[d]` of `self`.
    pub fn permuted(&self, perm: &[usize]) -> View {
        View {
            offset: self.offset,
            dims: perm.iter().map(|&p| self.dims[p]).collect(),
            strides: perm.iter().map(|&p| self.strides[p]).collect(),
        }
    }

    /// `len` coordinates of dimension `d` from `start`, `step` apart (may be negative).
    pub fn sliced(&self, d: usize, start: usize, step: i64, len: usize) -> View {
        let mut v = self.clone();
        v.offset += start as i64 * self.strides[d];
        v.strides[d] *= step;
        v.dims[d] = len;
        v
    }

    /// Broadcast to `dims` by ONNX's rule: dimensions are matched from the right, missing ones and ones of extent 1
    /// repeat. `None` when the extents do not allow it.
    pub fn broadcast(&self, dims: &[usize]) -> Option<View> {
        let missing = dims.len().checked_sub(self.rank())?;
        let mut strides = vec![0; dims.len()];
        for d in 0..self.rank() {
            if self.dims[d] == dims[missing + d] {
                strides[missing + d] = self.strides[d];
            } else if self.dims[d] != 1 {
                return None;
            }
        }
        Some(View { offset: self.offset, dims: dims.to_vec(), strides })
    }

    /// Splits dimension `d` into `parts` (outermost first), whose product is its extent.
    pub fn split(&self, d: usize, parts: &[usize]) -> View {
        debug_assert_eq!(parts.iter().product::<usize>(), self.dims[d]);
        let mut v = self.clone();
        let strides = dense_strides(parts).into_iter().map(|s| s * self.strides[d]);
        v.strides.splice(d..=d, strides);
        v.dims.splice(d..=d, parts.iter().copied());
        v
    }

    /// Inserts a dimension of extent `n` that repeats, at position `d`.
    pub fn repeated(&self, d: usize, n: usize) -> View {
        let mut v = self.clone();
        v.dims.insert(d, n);
        v.strides.insert(d, 0);
        v
    }

    /// The same elements in the same order under other dimensions, or `None` when no strides can express it (then a
    /// copy is needed).
    pub fn reshaped(&self, dims: &[usize]) -> Option<View> {
        if dims.iter().product::<usize>() != self.len() {
            return None;
        }
        if self.is_empty() {
            return Some(View { offset: self.offset, dims: dims.to_vec(), strides: dense_strides(dims) });
        }
        // Walk both from the outside. Group the fewest dimensions of each with equal products; within a group the
        // old strides must be those of one run.
        let old: Vec<(usize, i64)> =
            self.dims.iter().copied().zip(self.strides.iter().copied()).filter(|&(d, _)| d != 1).collect();
        let mut strides = vec![0i64; dims.len()];
        let (mut i, mut j) = (0, 0);
        while i < old.len() {
            let (first_i, first_j) = (i, j);
            let mut have = old[i].0;
            i += 1;
            let mut want = *dims.get(j)?;
            j += 1;
            while have != want {
                if have < want {
                    have *= old.get(i)?.0;
                    i += 1;
                } else {
                    want *= *dims.get(j)?;
                    j += 1;
                }
            }
            for k in first_i..i - 1 {
                if old[k].1 != old[k + 1].1 * old[k + 1].0 as i64 {
                    return None;
                }
            }
            let mut s = old[i - 1].1;
            for k in (first_j..j).rev() {
                strides[k] = s;
                s *= dims[k] as i64;
            }
        }
        Some(View { offset: self.offset, dims: dims.to_vec(), strides })
    }
}

impl fmt::Display for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.offset != 0 {
            write!(f, "+{}", self.offset)?;
        }
        write!(f, "[")?;
        for (i, (d, s)) in self.dims.iter().zip(&self.strides).enumerate() {
            write!(f, "{}{d}:{s}", if i > 0 { " " } else { "" })?;
        }
        write!(f, "]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elements(v: &View) -> Vec<i64> {
        let mut out = Vec::new();
        for i in 0..v.len() {
            let mut rest = i;
            let mut coords = vec![0; v.rank()];
            for d in (0..v.rank()).rev() {
                coords[d] = rest % v.dims[d];
                rest /= v.dims[d];
            }
            out.push(v.at(&coords));
        }
        out
    }

    #[test]
    fn reshapes_keep_the_order_or_refuse() {
        let v = View::dense(&[2, 3, 4]);
        assert_eq!(elements(&v.reshaped(&[6, 4]).unwrap()), elements(&v));
        assert_eq!(elements(&v.reshaped(&[1, 2, 12, 1]).unwrap()), elements(&v));
        let t = v.permuted(&[0, 2, 1]);
        assert!(t.reshaped(&[2, 12]).is_none());
        assert_eq!(elements(&t.reshaped(&[2, 2, 2, 3]).unwrap()), elements(&t));
        assert_eq!(elements(&t.reshaped(&[1, 2, 4, 3, 1]).unwrap()), elements(&t));
        assert!(v.reshaped(&[5]).is_none());
        assert_eq!(View::dense(&[1, 1]).reshaped(&[]).unwrap().at(&[]), 0);
        assert_eq!(View::dense(&[]).reshaped(&[1, 1]).unwrap().dims, [1, 1]);
    }

    #[test]
    fn every_reshape_of_every_permutation_is_right_or_refused() {
        let shapes: [&[usize]; 8] =
            [&[24], &[2, 12], &[12, 2], &[4, 6], &[2, 3, 4], &[4, 3, 2], &[1, 24], &[2, 2, 3, 2]];
        let mut accepted = 0;
        for perm in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let v = View::dense(&[2, 3, 4]).permuted(&perm);
            for shape in shapes {
                if let Some(r) = v.reshaped(shape) {
                    assert_eq!(elements(&r), elements(&v), "{perm:?} {shape:?}");
                    accepted += 1;
                }
            }
        }
        assert!(accepted > 12);
    }

    #[test]
    fn slices_splits_and_broadcasts_address_the_right_elements() {
        let v = View::dense(&[2, 6]);
        assert_eq!(elements(&v.sliced(1, 4, -2, 2)), [4, 2, 10, 8]);
        assert_eq!(elements(&v.split(1, &[2, 3]).permuted(&[0, 2, 1])), [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]);
        assert_eq!(elements(&View::dense(&[2, 1]).broadcast(&[2, 2, 2]).unwrap()), [0, 0, 1, 1, 0, 0, 1, 1]);
        assert!(View::dense(&[3]).broadcast(&[2]).is_none());
        assert_eq!(v.sliced(1, 4, -2, 2).extent(), Some((2, 10)));
    }

    #[test]
    fn density_ignores_extents_of_one() {
        assert!(View { offset: 3, dims: vec![2, 1, 4], strides: vec![4, 99, 1] }.is_dense());
        assert!(!View { offset: 0, dims: vec![2, 4], strides: vec![8, 1] }.is_dense());
        assert!(View { offset: 0, dims: vec![2, 4], strides: vec![8, 1] }.is_inner_dense(1));
    }
}
