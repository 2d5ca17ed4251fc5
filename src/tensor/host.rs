//! A tensor in host memory: type, shape and little-endian bytes in row-major order.
//!
//! The bytes are reference counted and may lie inside a memory-mapped model file, so cloning a tensor or importing
//! weights copies nothing. They are not necessarily aligned: read elements with [`HostTensor::to_f32`] and its
//! siblings or through [`HostTensor::bytes`].

use super::DType;
use bytes::Bytes;
use half::{bf16, f16};
use std::fmt;

/// A dense row-major tensor in host memory.
#[derive(Clone, PartialEq)]
pub struct HostTensor {
    dtype: DType,
    shape: Vec<usize>,
    data: Bytes,
}

/// The number of elements of `shape`, or `None` if it does not fit in memory.
pub fn element_count(shape: &[usize]) -> Option<usize> {
    shape
        .iter()
        .try_fold(1usize, |n, &d| n.checked_mul(d))
        .filter(|&n| n.checked_mul(8).is_some_and(|b| b <= isize::MAX as usize))
}

/// The bytes given to [`HostTensor::new`] do not fit the type and shape.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("a {dtype} tensor of shape {shape:?} needs {expected} bytes, got {got}")]
pub struct SizeMismatch {
    dtype: DType,
    shape: Vec<usize>,
    expected: String,
    got: usize,
}

impl SizeMismatch {
    /// `expected` bytes (`None`: more than fit in memory), not `got`.
    pub(super) fn new(dtype: DType, shape: &[usize], expected: Option<usize>, got: usize) -> SizeMismatch {
        let expected = expected.map_or("too many".into(), |n| n.to_string());
        SizeMismatch { dtype, shape: shape.to_vec(), expected, got }
    }
}

impl HostTensor {
    /// Wraps little-endian bytes. Fails when their number does not fit the shape.
    pub fn new(dtype: DType, shape: &[usize], data: impl Into<Bytes>) -> Result<Self, SizeMismatch> {
        let data = data.into();
        let expected = element_count(shape).and_then(|n| n.checked_mul(dtype.size()));
        if expected != Some(data.len()) {
            return Err(SizeMismatch::new(dtype, shape, expected, data.len()));
        }
        Ok(HostTensor { dtype, shape: shape.to_vec(), data })
    }

    /// A float32 tensor. Panics when `values` does not fit `shape`, which is a mistake of the caller.
    pub fn from_f32(shape: &[usize], values: &[f32]) -> Self {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        HostTensor::new(DType::F32, shape, bytes).expect("element count fits the shape")
    }

    /// An int64 tensor. Panics when `values` does not fit `shape`, which is a mistake of the caller.
    pub fn from_i64(shape: &[usize], values: &[i64]) -> Self {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        HostTensor::new(DType::I64, shape, bytes).expect("element count fits the shape")
    }

    /// An int32 tensor. Panics when `values` does not fit `shape`, which is a mistake of the caller.
    pub fn from_i32(shape: &[usize], values: &[i32]) -> Self {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        HostTensor::new(DType::I32, shape, bytes).expect("element count fits the shape")
    }

    /// A tensor of any type from doubles, rounded (floats: to nearest even; integers: toward zero, saturating).
    /// Panics when `values` does not fit `shape`, which is a mistake of the caller.
    pub fn from_f64(dtype: DType, shape: &[usize], values: &[f64]) -> Self {
        let mut bytes = Vec::with_capacity(values.len() * dtype.size());
        for &v in values {
            match dtype {
                DType::F32 => bytes.extend((v as f32).to_le_bytes()),
                DType::F64 => bytes.extend(v.to_le_bytes()),
                DType::F16 => bytes.extend(f16::from_f64(v).to_le_bytes()),
                DType::BF16 => bytes.extend(bf16::from_f64(v).to_le_bytes()),
                DType::I8 => bytes.extend((v as i8).to_le_bytes()),
                DType::I16 => bytes.extend((v as i16).to_le_bytes()),
                DType::I32 => bytes.extend((v as i32).to_le_bytes()),
                DType::I64 => bytes.extend((v as i64).to_le_bytes()),
                DType::U8 => bytes.extend((v as u8).to_le_bytes()),
                DType::U16 => bytes.extend((v as u16).to_le_bytes()),
                DType::U32 => bytes.extend((v as u32).to_le_bytes()),
                DType::U64 => bytes.extend((v as u64).to_le_bytes()),
                DType::Bool => bytes.push((v != 0.0) as u8),
            }
        }
        HostTensor::new(dtype, shape, bytes).expect("element count fits the shape")
    }

    /// A tensor of any type from integers, wrapping to the type's width.
    /// Panics when `values` does not fit `shape`, which is a mistake of the caller.
    pub fn from_ints(dtype: DType, shape: &[usize], values: &[i64]) -> Self {
        if dtype.is_float() {
            let doubles: Vec<f64> = values.iter().map(|&v| v as f64).collect();
            return HostTensor::from_f64(dtype, shape, &doubles);
        }
        let mut bytes = Vec::with_capacity(values.len() * dtype.size());
        for &v in values {
            match dtype {
                DType::Bool => bytes.push((v != 0) as u8),
                _ => bytes.extend(&v.to_le_bytes()[..dtype.size()]),
            }
        }
        HostTensor::new(dtype, shape, bytes).expect("element count fits the shape")
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Dimensions, outermost first; empty for a scalar.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// True when some dimension is zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements as little-endian bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.data
    }

    /// The same elements under another shape. Fails when the element counts differ.
    pub fn reshaped(&self, shape: &[usize]) -> Result<Self, SizeMismatch> {
        HostTensor::new(self.dtype, shape, self.data.clone())
    }

    /// All elements as `f64`; 64-bit integers are rounded.
    pub fn to_f64(&self) -> Vec<f64> {
        let b = &self.data[..];
        match self.dtype {
            DType::F32 => b.as_chunks().0.iter().map(|&c| f32::from_le_bytes(c) as f64).collect(),
            DType::F64 => b.as_chunks().0.iter().map(|&c| f64::from_le_bytes(c)).collect(),
            DType::F16 => b.as_chunks().0.iter().map(|&c| f16::from_le_bytes(c).to_f64()).collect(),
            DType::BF16 => b.as_chunks().0.iter().map(|&c| bf16::from_le_bytes(c).to_f64()).collect(),
            DType::U64 => b.as_chunks().0.iter().map(|&c| u64::from_le_bytes(c) as f64).collect(),
            _ => self.to_i64().into_iter().map(|v| v as f64).collect(),
        }
    }

    /// All elements as `f32`, rounded.
    pub fn to_f32(&self) -> Vec<f32> {
        match self.dtype {
            DType::F32 => self.data.as_chunks().0.iter().map(|&c| f32::from_le_bytes(c)).collect(),
            _ => self.to_f64().into_iter().map(|v| v as f32).collect(),
        }
    }

    /// All elements as `i64`; floats are truncated toward zero, `u64` wraps.
    pub fn to_i64(&self) -> Vec<i64> {
        let b = &self.data[..];
        match self.dtype {
            DType::I8 => b.iter().map(|&c| c as i8 as i64).collect(),
            DType::U8 => b.iter().map(|&c| c as i64).collect(),
            DType::Bool => b.iter().map(|&c| (c != 0) as i64).collect(),
            DType::I16 => b.as_chunks().0.iter().map(|&c| i16::from_le_bytes(c) as i64).collect(),
            DType::U16 => b.as_chunks().0.iter().map(|&c| u16::from_le_bytes(c) as i64).collect(),
            DType::I32 => b.as_chunks().0.iter().map(|&c| i32::from_le_bytes(c) as i64).collect(),
            DType::U32 => b.as_chunks().0.iter().map(|&c| u32::from_le_bytes(c) as i64).collect(),
            DType::I64 => b.as_chunks().0.iter().map(|&c| i64::from_le_bytes(c)).collect(),
            DType::U64 => b.as_chunks().0.iter().map(|&c| u64::from_le_bytes(c) as i64).collect(),
            _ => self.to_f64().into_iter().map(|v| v as i64).collect(),
        }
    }

    /// The only element, as `f64`, of a tensor that has exactly one.
    pub fn scalar_f64(&self) -> Option<f64> {
        (self.len() == 1).then(|| self.to_f64()[0])
    }
}

impl fmt::Debug for HostTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.dtype, self.shape)?;
        if self.len() <= 16 {
            if self.dtype.is_float() { write!(f, "{:?}", self.to_f64()) } else { write!(f, "{:?}", self.to_i64()) }
        } else {
            write!(f, "[..]")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_checked() {
        assert!(HostTensor::new(DType::F32, &[2, 3], vec![0; 24]).is_ok());
        assert!(HostTensor::new(DType::F32, &[2, 3], vec![0; 20]).is_err());
        assert!(HostTensor::new(DType::F32, &[usize::MAX, 3], vec![0; 20]).is_err());
        assert!(HostTensor::new(DType::F32, &[0, usize::MAX], vec![]).is_ok());
    }

    #[test]
    fn every_type_keeps_small_integers() {
        for dtype in DType::ALL {
            let want = if dtype == DType::Bool { vec![0.0, 1.0, 1.0] } else { vec![0.0, 1.0, 100.0] };
            let t = HostTensor::from_f64(dtype, &[3], &[0.0, 1.0, 100.0]);
            assert_eq!(t.to_f64(), want, "{dtype}");
            assert_eq!(HostTensor::from_ints(dtype, &[3], &[0, 1, 100]), t, "{dtype}");
            assert_eq!(DType::from_name(dtype.name()), Some(dtype));
            assert_eq!(DType::from_onnx(dtype.to_onnx()), Some(dtype));
        }
    }

    #[test]
    fn negative_integers_keep_their_sign() {
        for dtype in [DType::I8, DType::I16, DType::I32, DType::I64, DType::F16, DType::F32] {
            assert_eq!(HostTensor::from_ints(dtype, &[1], &[-7]).to_i64(), [-7], "{dtype}");
        }
    }
}
