//! A tensor in host memory: type, shape and little-endian bytes in row-major order.
//!
//! The bytes are reference counted and may lie inside a memory-mapped model file, so cloning a tensor or importing
//! weights copies nothing. They are not necessarily aligned: read elements with [`HostTensor::to_f32`] and its
//! siblings or through [`HostTensor::bytes`]. A tensor of one element over and over ([`HostTensor::filled`]) has no bytes
//! until somebody asks for them, nor has one of others side by side ([`HostTensor::joined`]), or one with factors in it.

use super::scaled::Scaled;
use super::small::{SmallFloat, decode_exponent, encode_exponent};
use super::{DType, Problem, Words};
use crate::mapped::{self, Room, zeroed};
use bytes::Bytes;
use half::{bf16, f16};
use std::convert::Infallible;
use std::fmt;
use std::sync::{Arc, OnceLock};
use xxhash_rust::xxh3::xxh3_128;

/// A dense row-major tensor in host memory.
#[derive(Clone)]
pub struct HostTensor {
    dtype: DType,
    shape: Vec<usize>,
    data: Data,
    /// The texts of a string tensor.
    words: Option<Arc<Words>>,
}

#[derive(Clone)]
enum Data {
    Bytes(Bytes),
    /// One element over and over, and its bytes once they were asked for.
    Fill(Element, OnceLock<Bytes>),
    /// Others side by side.
    Joined(Arc<Joined>),
    /// Another one with factors in it.
    Scaled(Arc<Scaled>),
}

/// Each row is the rows of the parts one after the other.
struct Joined {
    parts: Vec<HostTensor>,
    rows: usize,
    /// The bytes, once they were asked for.
    bytes: OnceLock<Bytes>,
}

/// The bytes of one element; those behind its size are zero.
type Element = [u8; 8];

/// What tells the contents of two tensors apart without reading them: equal contents may differ in it, different ones
/// always do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Identity {
    /// Bytes at an address of the host.
    At(*const u8, usize),
    /// One element over and over, this many bytes.
    Fill(Element, usize),
    /// A hash of the bytes, of which there are so many.
    Content(u128, usize),
    /// A hash of what a tensor that is not in memory is made of, of so many bytes.
    Made(u128, usize),
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
        Ok(HostTensor { dtype, shape: shape.to_vec(), data: Data::Bytes(data), words: None })
    }

    /// A tensor of bytes that `write` writes, zeros at first. Fails when there are more than fit in memory.
    pub fn written(dtype: DType, shape: &[usize], write: impl FnOnce(&mut [u8])) -> Result<Self, SizeMismatch> {
        let bytes = element_count(shape).and_then(|n| n.checked_mul(dtype.size()));
        let mut data = zeroed(bytes.ok_or_else(|| SizeMismatch::new(dtype, shape, None, 0))?);
        write(&mut data);
        HostTensor::new(dtype, shape, data.freeze())
    }

    /// One element, of its little-endian bytes, over and over. Fails when these are not one element, or the tensor is too
    /// large for any memory.
    pub fn filled(dtype: DType, shape: &[usize], element: &[u8]) -> Result<Self, SizeMismatch> {
        let expected = element_count(shape).and_then(|n| n.checked_mul(dtype.size()));
        if expected.is_none() || element.len() != dtype.size() {
            return Err(SizeMismatch::new(dtype, shape, expected, element.len()));
        }
        let mut own = Element::default();
        own[..element.len()].copy_from_slice(element);
        Ok(HostTensor { dtype, shape: shape.to_vec(), data: Data::Fill(own, OnceLock::new()), words: None })
    }

    /// Tensors side by side along a dimension, without a copy of them.
    ///
    /// # Errors
    /// When there are none, they are strings, or they differ in type or in another dimension.
    pub fn joined(parts: Vec<HostTensor>, axis: usize) -> Result<Self, Problem> {
        let misfit = || Problem::Shape(format!("tensors do not fit side by side along dimension {axis}: {parts:?}"));
        let first = parts.first().filter(|t| axis < t.shape.len() && t.dtype != DType::Str).ok_or_else(misfit)?;
        let (dtype, mut shape) = (first.dtype, first.shape.clone());
        shape[axis] = parts.iter().map(|t| t.shape.get(axis).copied().unwrap_or(0)).sum();
        let same = |t: &HostTensor| {
            let others = |d: usize| d == axis || t.shape[d] == shape[d];
            t.dtype == dtype && t.shape.len() == shape.len() && (0..shape.len()).all(others)
        };
        if !parts.iter().all(same) || element_count(&shape).is_none() {
            return Err(misfit());
        }
        let rows = shape[..axis].iter().product();
        let data = Data::Joined(Arc::new(Joined { parts, rows, bytes: OnceLock::new() }));
        Ok(HostTensor { dtype, shape, data, words: None })
    }

    /// A tensor of strings. Panics when their number does not fit `shape`, which is a mistake of the caller.
    ///
    /// # Errors
    /// When two different ones have one code.
    pub fn from_texts<'t>(shape: &[usize], texts: impl IntoIterator<Item = &'t str>) -> Result<Self, Problem> {
        let mut words = Words::default();
        let mut bytes = Vec::new();
        for text in texts {
            bytes.extend(words.add(text)?.to_le_bytes());
        }
        let codes = HostTensor::new(DType::Str, shape, bytes).expect("element count fits the shape");
        Ok(codes.with_words(Arc::new(words)))
    }

    /// The tensor with the texts of its strings.
    pub fn with_words(mut self, words: Arc<Words>) -> Self {
        self.words = (self.dtype == DType::Str).then_some(words);
        self
    }

    /// The texts of its strings, and perhaps more; `None` for other types.
    pub fn words(&self) -> Option<&Arc<Words>> {
        self.words.as_ref()
    }

    /// The strings.
    ///
    /// # Errors
    /// When it has other elements, or some whose text is not known.
    pub fn texts(&self) -> Result<Vec<&str>, Problem> {
        if self.dtype != DType::Str {
            return Err(Problem::Shape(format!("a tensor of {}, not of strings", self.dtype)));
        }
        let text = |c: &[u8; 8]| match (u64::from_le_bytes(*c), &self.words) {
            (0, _) => Some(""),
            (code, words) => words.as_ref().and_then(|w| w.text(code)),
        };
        let unknown = || Problem::Damaged("a string whose text is not known; it came without words".into());
        self.bytes().as_chunks().0.iter().map(|c| text(c).ok_or_else(unknown)).collect()
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

    /// A tensor of any type from doubles, rounded (floats: to nearest even; integers: toward zero, saturating, but those of 4 and 2
    /// bits, which keep their low bits as ONNX's Cast has it).
    /// Panics when `values` does not fit `shape`, which is a mistake of the caller.
    pub fn from_f64(dtype: DType, shape: &[usize], values: &[f64]) -> Self {
        let mut bytes = vec![0; values.len() * dtype.size()];
        write_f64(dtype, values, &mut bytes);
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
                DType::I4 | DType::I2 | DType::U4 | DType::U2 => bytes.push(small_integer(dtype, v)),
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
        match &self.data {
            Data::Bytes(bytes) => bytes,
            Data::Fill(e, bytes) => bytes.get_or_init(|| e[..self.dtype.size()].repeat(self.len()).into()),
            Data::Joined(j) => j.bytes.get_or_init(|| self.made()),
            Data::Scaled(s) => s.bytes.get_or_init(|| self.made()),
        }
    }

    /// The bytes, of memory of its own.
    fn made(&self) -> Bytes {
        let mut bytes = zeroed(self.byte_len());
        self.copy_to(&mut bytes);
        bytes.freeze()
    }

    /// The bytes, where they lie in memory already.
    pub fn ready(&self) -> Option<&Bytes> {
        match &self.data {
            Data::Bytes(bytes) => Some(bytes),
            Data::Fill(..) => None,
            Data::Joined(j) => j.bytes.get(),
            Data::Scaled(s) => s.bytes.get(),
        }
    }

    /// The tensor for somebody who reads its bytes once: they are in `room` until it is dropped, unless they lie in memory already, or
    /// are all one element.
    pub(crate) fn brought(&self, room: &mut Room) -> HostTensor {
        let lies = self.ready().is_some_and(|bytes| !mapped::is_of_file(bytes));
        if lies || self.fill().is_some() {
            return self.clone();
        }
        let bytes = room.lend(self.byte_len(), |out| self.copy_to(out));
        HostTensor { data: Data::Bytes(bytes), ..self.clone() }
    }

    /// The bytes of one element; nothing else is made of what is put together. Panics behind the last one.
    pub fn element(&self, i: usize) -> &[u8] {
        match &self.data {
            Data::Bytes(bytes) => &bytes[i * self.dtype.size()..][..self.dtype.size()],
            Data::Fill(e, _) => &e[..self.dtype.size()],
            Data::Joined(j) => {
                let pitch = self.len() / j.rows.max(1);
                let (row, mut column) = (i / pitch, i % pitch);
                for part in &j.parts {
                    let width = part.len() / j.rows.max(1);
                    if column < width {
                        return part.element(row * width + column);
                    }
                    column -= width;
                }
                unreachable!("parts fill a row")
            }
            Data::Scaled(_) => &self.bytes()[i * self.dtype.size()..][..self.dtype.size()],
        }
    }

    /// Size of the elements in bytes.
    pub fn byte_len(&self) -> usize {
        self.len() * self.dtype.size()
    }

    /// The bytes of the element that fills the tensor, when it was made so.
    pub fn fill(&self) -> Option<&[u8]> {
        match &self.data {
            Data::Bytes(_) | Data::Joined(_) | Data::Scaled(_) => None,
            Data::Fill(e, _) => Some(&e[..self.dtype.size()]),
        }
    }

    /// An element that all of them are, if there is one and they lie in memory.
    pub fn repeated(&self) -> Option<HostTensor> {
        let size = self.dtype.size();
        let all = |bytes: &Bytes| bytes[size..] == bytes[..bytes.len() - size];
        let alike = self.fill().is_some() || self.ready().is_some_and(|b| !b.is_empty() && all(b));
        alike.then(|| self.part(0, 1)).flatten()
    }

    /// What tells it from other tensors of its type.
    pub fn identity(&self) -> Identity {
        self.identity_where(&|_| true)
    }

    /// The same for what lies at different addresses: only addresses that `lasting` says yes to tell, what lies at others is
    /// read.
    pub fn identity_where(&self, lasting: &dyn Fn(*const u8) -> bool) -> Identity {
        match &self.data {
            Data::Bytes(bytes) if lasting(bytes.as_ptr()) => Identity::At(bytes.as_ptr(), bytes.len()),
            Data::Bytes(bytes) => Identity::Content(xxh3_128(bytes), bytes.len()),
            Data::Fill(e, _) => Identity::Fill(*e, self.byte_len()),
            Data::Joined(j) => {
                let parts: Vec<Identity> = j.parts.iter().map(|t| t.identity_where(lasting)).collect();
                Identity::Made(xxh3_128(format!("{} {parts:?}", j.rows).as_bytes()), self.byte_len())
            }
            Data::Scaled(s) => {
                let factors: Vec<u8> = s.factors.iter().flat_map(|f| f.to_le_bytes()).collect();
                let (of, by) = (s.of.identity_where(lasting), xxh3_128(&factors));
                Identity::Made(xxh3_128(format!("{of:?} by {by:x}").as_bytes()), self.byte_len())
            }
        }
    }

    /// The elements as bytes; copied where they are not this tensor's alone.
    pub fn into_bytes(self) -> Vec<u8> {
        let bytes = self.bytes().clone();
        drop(self);
        bytes.into()
    }

    /// Writes the elements to memory of their size.
    pub fn copy_to(&self, out: &mut [u8]) {
        match (&self.data, self.fill(), self.ready()) {
            (_, Some(element), _) => fill(out, element),
            (Data::Joined(j), _, None) => j.copy_to(out),
            (Data::Scaled(s), _, None) => s.copy_to(out),
            _ => mapped::copy(self.bytes(), out),
        }
    }

    /// `count` elements from `start` on, in a row, without a copy of them; `None` where there are none, and for strings.
    pub fn part(&self, start: usize, count: usize) -> Option<HostTensor> {
        let end = start.checked_add(count).filter(|end| *end <= self.len() && self.dtype != DType::Str)?;
        match self.fill() {
            Some(element) => HostTensor::filled(self.dtype, &[count], element).ok(),
            None => {
                let size = self.dtype.size();
                HostTensor::new(self.dtype, &[count], self.bytes().slice(start * size..end * size)).ok()
            }
        }
    }

    /// The same elements under another shape. Fails when the element counts differ.
    pub fn reshaped(&self, shape: &[usize]) -> Result<Self, SizeMismatch> {
        match &self.data {
            Data::Bytes(bytes) => {
                let t = HostTensor::new(self.dtype, shape, bytes.clone())?;
                Ok(HostTensor { words: self.words.clone(), ..t })
            }
            _ if element_count(shape) != Some(self.len()) => {
                let expected = element_count(shape).and_then(|n| n.checked_mul(self.dtype.size()));
                Err(SizeMismatch::new(self.dtype, shape, expected, self.byte_len()))
            }
            _ => Ok(HostTensor { shape: shape.to_vec(), ..self.clone() }),
        }
    }

    /// All elements as `f64`; 64-bit integers are rounded.
    pub fn to_f64(&self) -> Vec<f64> {
        let b = &self.bytes()[..];
        match self.dtype {
            DType::F32 => b.as_chunks().0.iter().map(|&c| f32::from_le_bytes(c) as f64).collect(),
            DType::F64 => b.as_chunks().0.iter().map(|&c| f64::from_le_bytes(c)).collect(),
            DType::F16 => b.as_chunks().0.iter().map(|&c| f16::from_le_bytes(c).to_f64()).collect(),
            DType::BF16 => b.as_chunks().0.iter().map(|&c| bf16::from_le_bytes(c).to_f64()).collect(),
            DType::U64 => b.as_chunks().0.iter().map(|&c| u64::from_le_bytes(c) as f64).collect(),
            DType::F8E8M0 => b.iter().map(|&c| decode_exponent(c)).collect(),
            t if t.is_small_float() => {
                let decode = SmallFloat::of(t);
                b.iter().map(|&c| decode.map_or(f64::NAN, |f| f.decode(c))).collect()
            }
            _ => self.to_i64().into_iter().map(|v| v as f64).collect(),
        }
    }

    /// The same one after the other, of large tensors without memory for all.
    pub fn doubles(&self) -> impl Iterator<Item = f64> + '_ {
        self.pieces().flat_map(|piece| piece.to_f64())
    }

    /// A tensor of a type and the same shape made of runs of elements, each with the number of its first one, without memory for all
    /// as numbers.
    pub(crate) fn mapped(&self, dtype: DType, mut change: impl FnMut(usize, &mut [f64])) -> HostTensor {
        let (mut bytes, mut at) = (zeroed(self.len() * dtype.size()), 0);
        for piece in self.pieces() {
            let mut values = piece.to_f64();
            change(at, &mut values);
            write_f64(dtype, &values, &mut bytes[at * dtype.size()..]);
            at += values.len();
        }
        HostTensor::new(dtype, &self.shape, bytes.freeze()).expect("as many elements")
    }

    /// A tensor of the same type and shape, of which as many equal parts as there are factors are multiplied by one each; every
    /// element is rounded once. Of f32 nothing is made before somebody asks for it.
    pub(crate) fn scaled(&self, factors: &[f64]) -> HostTensor {
        let part = self.len() / factors.len().max(1);
        if self.dtype != DType::F32 || part == 0 {
            return self.mapped(self.dtype, |at, values| {
                (at..).zip(values).for_each(|(at, v)| *v *= factors[at / part]);
            });
        }
        let scaled = Scaled { of: self.clone(), factors: factors.to_vec(), bytes: OnceLock::new() };
        HostTensor { data: Data::Scaled(Arc::new(scaled)), ..self.clone() }
    }

    /// Runs of elements, few enough to be converted together.
    fn pieces(&self) -> impl Iterator<Item = HostTensor> + '_ {
        let n = self.len();
        (0..n).step_by(PIECE).filter_map(move |at| self.part(at, PIECE.min(n - at)))
    }

    /// All elements as `f32`, rounded.
    pub fn to_f32(&self) -> Vec<f32> {
        match self.dtype {
            DType::F32 => self.bytes().as_chunks().0.iter().map(|&c| f32::from_le_bytes(c)).collect(),
            _ => self.to_f64().into_iter().map(|v| v as f32).collect(),
        }
    }

    /// All elements as `i64`; floats are truncated toward zero, `u64` wraps, of strings the codes.
    pub fn to_i64(&self) -> Vec<i64> {
        let b = &self.bytes()[..];
        match self.dtype {
            DType::I8 | DType::I4 | DType::I2 => b.iter().map(|&c| c as i8 as i64).collect(),
            DType::U8 | DType::U4 | DType::U2 => b.iter().map(|&c| c as i64).collect(),
            DType::Bool => b.iter().map(|&c| (c != 0) as i64).collect(),
            DType::I16 => b.as_chunks().0.iter().map(|&c| i16::from_le_bytes(c) as i64).collect(),
            DType::U16 => b.as_chunks().0.iter().map(|&c| u16::from_le_bytes(c) as i64).collect(),
            DType::I32 => b.as_chunks().0.iter().map(|&c| i32::from_le_bytes(c) as i64).collect(),
            DType::U32 => b.as_chunks().0.iter().map(|&c| u32::from_le_bytes(c) as i64).collect(),
            DType::I64 | DType::Str => b.as_chunks().0.iter().map(|&c| i64::from_le_bytes(c)).collect(),
            DType::U64 => b.as_chunks().0.iter().map(|&c| u64::from_le_bytes(c) as i64).collect(),
            _ => self.to_f64().into_iter().map(|v| v as i64).collect(),
        }
    }

    /// The same integers in another integer type; `None` when one does not fit, or a type is no integer.
    pub fn as_integers(&self, to: DType) -> Option<HostTensor> {
        if !self.dtype.is_int() || !to.is_int() {
            return None;
        }
        let mut bytes = Vec::with_capacity(self.len() * to.size());
        for piece in self.pieces() {
            let values = piece.to_i64();
            let out = HostTensor::from_ints(to, piece.shape(), &values);
            // Halves of the 64-bit range that mean different numbers in the two types.
            let turned = (self.dtype == DType::U64) != (to == DType::U64) && values.iter().any(|v| *v < 0);
            if turned || out.to_i64() != values {
                return None;
            }
            bytes.extend_from_slice(&out.bytes()[..]);
        }
        HostTensor::new(to, &self.shape, bytes).ok()
    }

    /// The only element, as `f64`, of a tensor that has exactly one.
    pub fn scalar_f64(&self) -> Option<f64> {
        (self.len() == 1).then(|| self.to_f64()[0])
    }
}

/// Elements that are converted together: as numbers they stay in the first cache.
const PIECE: usize = 1 << 12;

impl Joined {
    /// Writes the bytes to memory of their size.
    fn copy_to(&self, out: &mut [u8]) {
        // Bytes of a part that are read together.
        const SOME: usize = 1 << 18;
        let pitch = out.len() / self.rows.max(1);
        let (mut at, mut buffer) = (0, Vec::new());
        for part in &self.parts {
            let width = part.byte_len() / self.rows.max(1);
            if width == 0 {
                continue;
            }
            let mut rows = out.chunks_exact_mut(pitch).map(|row| &mut row[at..at + width]);
            match part.fill() {
                Some(element) => rows.for_each(|row| fill(row, element)),
                None => {
                    let Ok(()) = mapped::pieces(part.bytes(), (SOME / width).max(1) * width, &mut buffer, |some| {
                        some.chunks_exact(width).zip(&mut rows).for_each(|(own, row)| row.copy_from_slice(own));
                        Ok::<_, Infallible>(())
                    });
                }
            }
            at += width;
        }
    }
}

/// Writes values as elements of a type one after the other, rounded as [`HostTensor::from_f64`] says.
fn write_f64(dtype: DType, values: &[f64], to: &mut [u8]) {
    match dtype {
        DType::F32 => write_each(values, to, |v| (v as f32).to_le_bytes()),
        DType::F64 => write_each(values, to, f64::to_le_bytes),
        DType::F16 => write_each(values, to, |v| f16::from_f64(v).to_le_bytes()),
        DType::BF16 => write_each(values, to, |v| bf16::from_f64(v).to_le_bytes()),
        DType::I8 => write_each(values, to, |v| (v as i8).to_le_bytes()),
        DType::I16 => write_each(values, to, |v| (v as i16).to_le_bytes()),
        DType::I32 => write_each(values, to, |v| (v as i32).to_le_bytes()),
        DType::I64 | DType::Str => write_each(values, to, |v| (v as i64).to_le_bytes()),
        DType::U8 => write_each(values, to, |v| (v as u8).to_le_bytes()),
        DType::U16 => write_each(values, to, |v| (v as u16).to_le_bytes()),
        DType::U32 => write_each(values, to, |v| (v as u32).to_le_bytes()),
        DType::U64 => write_each(values, to, |v| (v as u64).to_le_bytes()),
        DType::Bool => write_each(values, to, |v| [u8::from(v != 0.0)]),
        DType::I4 | DType::I2 | DType::U4 | DType::U2 => write_each(values, to, |v| [small_integer(dtype, v as i64)]),
        _ => write_each(values, to, |v| [small_float(dtype, v)]),
    }
}

/// Writes values one after the other, each as `element` has it.
fn write_each<const SIZE: usize>(values: &[f64], to: &mut [u8], element: impl Fn(f64) -> [u8; SIZE]) {
    to.as_chunks_mut().0.iter_mut().zip(values).for_each(|(to, v)| *to = element(*v));
}

/// The byte of an integer of 4 or 2 bits: its low bits.
fn small_integer(t: DType, v: i64) -> u8 {
    let empty = 64 - t.bits() as u32;
    if t.is_signed_int() { (v << empty >> empty) as u8 } else { ((v << empty) as u64 >> empty) as u8 }
}

/// The code of a float of at most 8 bits.
fn small_float(t: DType, v: f64) -> u8 {
    SmallFloat::of(t).map_or_else(|| encode_exponent(v), |f| f.encode(v))
}

/// Fills memory with one element, which divides it.
pub fn fill(out: &mut [u8], element: &[u8]) {
    if let [byte] = element {
        return out.fill(*byte);
    }
    // A block that stays in the cache is copied over and over.
    let (first, rest) = out.split_at_mut(out.len().min(1 << 12));
    let mut done = element.len().min(first.len());
    first[..done].copy_from_slice(&element[..done]);
    while done < first.len() {
        let more = done.min(first.len() - done);
        first.copy_within(..more, done);
        done += more;
    }
    rest.chunks_mut(first.len().max(1)).for_each(|c| c.copy_from_slice(&first[..c.len()]));
}

impl PartialEq for HostTensor {
    fn eq(&self, other: &HostTensor) -> bool {
        self.dtype == other.dtype
            && self.shape == other.shape
            && (self.identity() == other.identity() || self.bytes() == other.bytes())
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
    fn filled_tensors_are_like_any_other() {
        for dtype in DType::ALL {
            let one = HostTensor::from_f64(dtype, &[], &[1.0]);
            let filled = HostTensor::filled(dtype, &[3, 700], one.bytes()).unwrap();
            let plain = HostTensor::from_f64(dtype, &[3, 700], &[1.0; 2100]);
            assert_eq!((&filled, filled.byte_len()), (&plain, plain.bytes().len()), "{dtype}");
            let mut out = vec![0xff; plain.byte_len()];
            filled.copy_to(&mut out);
            assert_eq!(out, plain.bytes()[..], "{dtype}");
            assert_eq!(filled.reshaped(&[2100]).unwrap(), plain.reshaped(&[2100]).unwrap());
            assert_eq!(filled.reshaped(&[7]).unwrap_err(), plain.reshaped(&[7]).unwrap_err());
            assert_ne!(filled, HostTensor::from_f64(dtype, &[3, 700], &[0.0; 2100]));
        }
        let empty = HostTensor::filled(DType::F32, &[0], &[0; 4]).unwrap();
        assert_eq!((empty.bytes().len(), empty.is_empty()), (0, true));
        assert!(HostTensor::filled(DType::F32, &[2], &[0; 8]).is_err());
        assert!(HostTensor::filled(DType::F32, &[usize::MAX, 4], &[0; 4]).is_err());
    }

    #[test]
    fn joined_tensors_are_like_any_other() {
        let a = HostTensor::from_f32(&[2, 1, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let b = HostTensor::filled(DType::F32, &[2, 2, 3], &7f32.to_le_bytes()).unwrap();
        let both = HostTensor::joined(vec![a.clone(), b.clone(), a.clone()], 1).unwrap();
        let want = [1.0, 2.0, 3.0, 7.0, 7.0, 7.0, 7.0, 7.0, 7.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 7.0, 7.0, 7.0, 7.0];
        let want = HostTensor::from_f32(&[2, 4, 3], &[&want[..], &[7.0, 4.0, 5.0, 6.0]].concat());
        assert_eq!((both.ready(), both.byte_len()), (None, 96));
        let mut out = vec![0xff; 96];
        both.copy_to(&mut out);
        assert_eq!(out, want.bytes()[..]);
        assert_eq!(both.reshaped(&[24]).unwrap(), want.reshaped(&[24]).unwrap());
        assert!(both.reshaped(&[7]).is_err());
        assert_eq!(HostTensor::joined(vec![a.clone(), b.clone(), a.clone()], 1).unwrap().identity(), both.identity());
        let never = |_: *const u8| false;
        let turned = HostTensor::joined(vec![b.clone(), a.clone(), a.clone()], 1).unwrap();
        assert_ne!(turned.identity_where(&never), both.identity_where(&never));
        assert!(HostTensor::joined(vec![a.clone(), b.clone()], 0).is_err() && HostTensor::joined(vec![], 0).is_err());
        assert!(HostTensor::joined(vec![a, HostTensor::from_i32(&[2, 1, 3], &[0; 6])], 1).is_err());
    }

    #[test]
    fn factors_are_in_what_somebody_reads() {
        // As many runs as have several parts, a part each, and a part of one element.
        for (parts, part) in [(3, 5), (300, 1000), (3, 70_000), (70_000, 1)] {
            let values: Vec<f32> = (0..parts * part).map(|i| (i % 1013) as f32 / 7.0).collect();
            let factors: Vec<f64> = (0..parts).map(|i| i as f64 / 3.0 - 2.0).collect();
            let want = values.iter().enumerate().map(|(i, v)| (f64::from(*v) * factors[i / part]) as f32);
            let want = HostTensor::from_f32(&[parts, part], &want.collect::<Vec<_>>());
            let plain = HostTensor::from_f32(&[parts, part], &values);
            let scaled = plain.scaled(&factors);
            assert_eq!((scaled.ready(), scaled.byte_len()), (None, want.byte_len()));
            let mut room = Room::default();
            assert!(scaled.brought(&mut room).bytes() == want.bytes() && scaled.ready().is_none());
            assert_eq!(scaled.identity(), plain.scaled(&factors).identity());
            assert_ne!(scaled.identity(), scaled.scaled(&factors).identity());
            assert_ne!(scaled.identity(), plain.scaled(&vec![1.0; parts]).identity());
            assert_eq!(scaled.element(parts * part / 2), want.element(parts * part / 2));
            assert!(scaled == want && scaled.reshaped(&[parts * part]).unwrap().bytes() == want.bytes());
            // Nothing is made of what is put together.
            let columns = |own: std::ops::Range<usize>| {
                let rows = values.chunks(part).flat_map(|row| row[own.clone()].to_vec());
                HostTensor::from_f32(&[parts, own.len()], &rows.collect::<Vec<_>>())
            };
            let joined = HostTensor::joined(vec![columns(0..part / 3), columns(part / 3..part)], 1).unwrap();
            let scaled = joined.scaled(&factors);
            assert!(scaled.brought(&mut room).bytes() == want.bytes() && joined.ready().is_none());
        }
    }

    #[test]
    fn every_type_keeps_small_integers() {
        for dtype in DType::ALL.into_iter().filter(|t| t.bits() >= 8 && !t.is_small_float()) {
            let want = if dtype == DType::Bool { vec![0.0, 1.0, 1.0] } else { vec![0.0, 1.0, 100.0] };
            let t = HostTensor::from_f64(dtype, &[3], &[0.0, 1.0, 100.0]);
            assert_eq!(t.to_f64(), want, "{dtype}");
            assert_eq!(HostTensor::from_ints(dtype, &[3], &[0, 1, 100]), t, "{dtype}");
            assert_eq!(DType::from_name(dtype.name()), Some(dtype));
            assert_eq!(DType::from_onnx(dtype.to_onnx()), Some(dtype));
        }
    }

    #[test]
    fn integers_change_their_type_only_where_they_fit() {
        let t = |dtype, values: &[i64]| HostTensor::from_ints(dtype, &[values.len()], values);
        let fits = |from: DType, to: DType, v: i64| t(from, &[v]).as_integers(to) == Some(t(to, &[v]));
        assert!(
            fits(DType::I32, DType::I64, -5) && fits(DType::I64, DType::I32, 7) && fits(DType::U8, DType::U64, 255)
        );
        assert!(!fits(DType::I64, DType::I32, 1 << 31) && !fits(DType::I8, DType::U8, -1));
        assert!(!fits(DType::U64, DType::I64, -1) && !fits(DType::I64, DType::U64, -1));
        assert_eq!(t(DType::I32, &[1]).as_integers(DType::Bool), None);
        assert_eq!(HostTensor::from_f32(&[1], &[1.0]).as_integers(DType::I32), None);
    }

    #[test]
    fn negative_integers_keep_their_sign() {
        for dtype in [DType::I8, DType::I16, DType::I32, DType::I64, DType::F16, DType::F32] {
            assert_eq!(HostTensor::from_ints(dtype, &[1], &[-7]).to_i64(), [-7], "{dtype}");
        }
    }

    #[test]
    fn elements_are_mapped_piece_by_piece() {
        let values: Vec<f64> = (0..PIECE + 5).map(|i| i as f64 / 8.0).collect();
        let t = HostTensor::from_f64(DType::F32, &[1, PIECE + 5], &values);
        let want: Vec<f64> = values.iter().enumerate().map(|(i, v)| v * (i % 3) as f64).collect();
        let got = t.mapped(DType::F16, |at, values| {
            values.iter_mut().enumerate().for_each(|(i, v)| *v *= ((at + i) % 3) as f64);
        });
        assert!(got == HostTensor::from_f64(DType::F16, &[1, PIECE + 5], &want));
        let none = HostTensor::from_f64(DType::F32, &[0, 3], &[]);
        assert_eq!(none.mapped(DType::BF16, |_, _| {}).shape(), [0, 3]);
    }
}
