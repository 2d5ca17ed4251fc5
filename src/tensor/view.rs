//! Tensors in memory that somebody else owns.

use super::host::SizeMismatch;
use super::{DType, HostTensor, Words, element_count};
use std::sync::Arc;

/// A dense row-major tensor in the caller's memory, little-endian, of any alignment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TensorView<'a> {
    dtype: DType,
    shape: &'a [usize],
    bytes: &'a [u8],
    words: Option<&'a Arc<Words>>,
}

/// A dense row-major tensor in the caller's memory, to be written.
#[derive(Debug, PartialEq)]
pub struct TensorViewMut<'a> {
    dtype: DType,
    shape: &'a [usize],
    bytes: &'a mut [u8],
}

fn check(dtype: DType, shape: &[usize], bytes: &[u8]) -> Result<(), SizeMismatch> {
    let expected = element_count(shape).and_then(|n| n.checked_mul(dtype.size()));
    if expected == Some(bytes.len()) { Ok(()) } else { Err(SizeMismatch::new(dtype, shape, expected, bytes.len())) }
}

impl<'a> TensorView<'a> {
    /// A view of bytes. Fails when their number does not fit the shape.
    pub fn new(dtype: DType, shape: &'a [usize], bytes: &'a [u8]) -> Result<TensorView<'a>, SizeMismatch> {
        check(dtype, shape, bytes)?;
        Ok(TensorView { dtype, shape, bytes, words: None })
    }
    /// A copy of its own.
    pub fn to_tensor(&self) -> HostTensor {
        let t = HostTensor::new(self.dtype, self.shape, self.bytes.to_vec()).expect("a view's bytes fit its shape");
        match self.words {
            Some(words) => t.with_words(words.clone()),
            None => t,
        }
    }
    /// The texts of its strings, where they are known.
    pub fn words(&self) -> Option<&'a Arc<Words>> {
        self.words
    }
    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }
    /// Extents, outermost first.
    pub fn shape(&self) -> &'a [usize] {
        self.shape
    }
    /// The elements.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

impl<'a> TensorViewMut<'a> {
    /// A view of bytes. Fails when their number does not fit the shape.
    pub fn new(dtype: DType, shape: &'a [usize], bytes: &'a mut [u8]) -> Result<TensorViewMut<'a>, SizeMismatch> {
        check(dtype, shape, bytes)?;
        Ok(TensorViewMut { dtype, shape, bytes })
    }
    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }
    /// Extents, outermost first.
    pub fn shape(&self) -> &'a [usize] {
        self.shape
    }
    /// The elements.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.bytes
    }
}

/// What can be looked at as a tensor.
pub trait AsTensor {
    /// The view.
    fn view(&self) -> TensorView<'_>;
}

impl AsTensor for TensorView<'_> {
    fn view(&self) -> TensorView<'_> {
        *self
    }
}

impl AsTensor for HostTensor {
    fn view(&self) -> TensorView<'_> {
        TensorView { dtype: self.dtype(), shape: self.shape(), bytes: self.bytes(), words: self.words() }
    }
}

impl<T: AsTensor> AsTensor for &T {
    fn view(&self) -> TensorView<'_> {
        (*self).view()
    }
}
