//! `TensorProto`, the tensors of ONNX files and the content of `.pb` files: raw bytes, typed fields, external files.
//!
//! Every encoding ends as little-endian bytes in row-major order. `raw_data` already is that and is shared with the
//! mapped file; external data is mapped likewise, each file once. Typed fields are converted: `int32_data` carries every
//! type of up to 32 bits, with half floats as bit patterns in its low 16 bits.

use super::{DType, Error, HostTensor, Problem, element_count};
use crate::mapped::{map_file, map_regular_file};
use bytes::Bytes;
use prost::Message;
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

// The names and numbers are those of the published schema.

#[derive(Clone, PartialEq, Message)]
pub(crate) struct StringStringEntryProto {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(string, tag = "2")]
    pub value: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TensorProto {
    #[prost(int64, repeated, tag = "1")]
    pub dims: Vec<i64>,
    #[prost(int32, tag = "2")]
    pub data_type: i32,
    #[prost(float, repeated, tag = "4")]
    pub float_data: Vec<f32>,
    #[prost(int32, repeated, tag = "5")]
    pub int32_data: Vec<i32>,
    #[prost(bytes = "bytes", repeated, tag = "6")]
    pub string_data: Vec<Bytes>,
    #[prost(int64, repeated, tag = "7")]
    pub int64_data: Vec<i64>,
    #[prost(string, tag = "8")]
    pub name: String,
    #[prost(bytes = "bytes", optional, tag = "9")]
    pub raw_data: Option<Bytes>,
    #[prost(double, repeated, tag = "10")]
    pub double_data: Vec<f64>,
    #[prost(uint64, repeated, tag = "11")]
    pub uint64_data: Vec<u64>,
    #[prost(message, repeated, tag = "13")]
    pub external_data: Vec<StringStringEntryProto>,
    #[prost(int32, tag = "14")]
    pub data_location: i32,
}

/// External files mapped so far.
pub(crate) struct External {
    model: PathBuf,
    maps: BTreeMap<PathBuf, Bytes>,
}

impl External {
    pub(crate) fn new(model: &Path) -> External {
        External { model: model.to_path_buf(), maps: BTreeMap::new() }
    }

    /// Where external data is looked for.
    fn folder(&self) -> &Path {
        match self.model.parent() {
            Some(p) if !p.as_os_str().is_empty() => p,
            _ => Path::new("."),
        }
    }

    /// Fails when a path leads out of the model's folder through symbolic links. Where the model itself is a link, the
    /// folder that it leads to counts too: caches keep files in one place and link to them from another.
    fn stays(&self, path: &Path) -> std::io::Result<()> {
        let place = path.canonicalize()?;
        let mut roots = vec![self.folder().canonicalize()?];
        roots.extend(self.model.canonicalize().ok().and_then(|m| m.parent().map(Path::to_path_buf)));
        if roots.iter().any(|r| place.starts_with(r)) {
            return Ok(());
        }
        Err(std::io::Error::other("it is a link to outside of the model's directory, which is not allowed"))
    }

    /// The data of a tensor that takes so many bytes.
    fn read(&mut self, t: &TensorProto, size: usize) -> Result<Bytes, Problem> {
        let get = |key: &str| t.external_data.iter().find(|e| e.key == key).map(|e| e.value.as_str());
        let number = |key: &str| match get(key) {
            None => Ok(None),
            Some(v) => v
                .parse::<usize>()
                .map(Some)
                .map_err(|_| Problem::Damaged(format!("external {key} `{v}` is not a number"))),
        };
        let location = get("location").ok_or(Problem::Damaged("its external data has no location".into()))?;
        let relative = Path::new(location);
        // A model must not reach outside its own directory.
        if !relative.components().all(|c| matches!(c, Component::Normal(_) | Component::CurDir)) {
            return Err(Problem::Unsupported(format!(
                "its external data {location:?} is outside the model's directory, which is not allowed"
            )));
        }
        let path = self.folder().join(relative);
        // Names may have ends of lines, and a message is one line.
        let shown = path.display().to_string().replace('\n', "\\n");
        let all = match self.maps.get(&path) {
            Some(b) => b.clone(),
            None => {
                let b = self.stays(&path).and_then(|()| map_regular_file(&path)).map_err(|e| {
                    Problem::Damaged(format!("cannot read its external data {shown}: {e}; keep it next to the model"))
                })?;
                self.maps.insert(path.clone(), b.clone());
                b
            }
        };
        let from = number("offset")?.unwrap_or(0);
        // Some exporters write 0 for what the type and shape tell.
        let len = number("length")?.filter(|n| *n > 0).unwrap_or(size);
        if len != size {
            return Err(Problem::Damaged(format!(
                "the model says that its external data has {len} bytes, but its type and shape take {size}"
            )));
        }
        match from.checked_add(len) {
            Some(end) if end <= all.len() => Ok(all.slice(from..end)),
            _ => Err(Problem::Damaged(format!(
                "its external data {shown} has {} bytes, but {len} bytes at {from} are needed; the file may be truncated",
                all.len()
            ))),
        }
    }
}

/// Name of an ONNX element type that barewave has no tensors of.
fn foreign_type(code: i32) -> Problem {
    let name = match code {
        0 => "undefined",
        14 => "complex64",
        15 => "complex128",
        _ => return Problem::Unsupported(format!("unknown element type {code}")),
    };
    Problem::Unsupported(format!("element type {name} is not supported"))
}

pub(crate) fn decode(t: &TensorProto, external: Option<&mut External>) -> Result<HostTensor, Problem> {
    let dtype = DType::from_onnx(t.data_type).ok_or_else(|| foreign_type(t.data_type))?;
    let shape: Vec<usize> = t
        .dims
        .iter()
        .map(|&d| usize::try_from(d).map_err(|_| Problem::Damaged(format!("has the negative dimension {d}"))))
        .collect::<Result<_, _>>()?;
    let count = element_count(&shape).ok_or_else(|| Problem::Size(format!("its shape {shape:?} is too large")))?;
    if dtype == DType::Str {
        return strings(t, &shape, count);
    }
    let data = if t.data_location == 1 {
        let size = if dtype.bits() < 8 { (count * dtype.bits()).div_ceil(8) } else { count * dtype.size() };
        external.ok_or(Problem::Unsupported("external data is not allowed here".into()))?.read(t, size)?
    } else if let Some(raw) = &t.raw_data {
        raw.clone()
    } else {
        typed_data(t, dtype, count)?
    };
    let data = if dtype.bits() < 8 { unpacked(&data, dtype, count)? } else { data };
    HostTensor::new(dtype, &shape, data).map_err(|e| Problem::Damaged(format!("{e}; the file may be truncated")))
}

fn strings(t: &TensorProto, shape: &[usize], count: usize) -> Result<HostTensor, Problem> {
    let have = t.string_data.len();
    if have != count {
        return Err(Problem::Shape(format!("has {have} strings, its shape {shape:?} needs {count}")));
    }
    let text = |b: &Bytes| {
        String::from_utf8(b.to_vec()).map_err(|_| Problem::Damaged("has a string that is not UTF-8".into()))
    };
    let texts = t.string_data.iter().map(text).collect::<Result<Vec<_>, _>>()?;
    HostTensor::from_texts(shape, texts.iter().map(String::as_str))
}

fn typed_data(t: &TensorProto, dtype: DType, count: usize) -> Result<Bytes, Problem> {
    fn bytes<const N: usize, T: Copy>(values: &[T], to: impl Fn(T) -> [u8; N]) -> Vec<u8> {
        values.iter().flat_map(|&v| to(v)).collect()
    }
    let have = match dtype {
        DType::F32 => t.float_data.len(),
        DType::F64 => t.double_data.len(),
        DType::I64 => t.int64_data.len(),
        DType::U32 | DType::U64 => t.uint64_data.len(),
        _ => t.int32_data.len(),
    };
    let needed = if dtype.bits() < 8 { count.div_ceil(8 / dtype.bits()) } else { count };
    if have != needed {
        return Err(Problem::Shape(format!("has {have} values of type {dtype}, its shape {:?} needs {count}", t.dims)));
    }
    let data = match dtype {
        DType::F32 => bytes(&t.float_data, f32::to_le_bytes),
        DType::F64 => bytes(&t.double_data, f64::to_le_bytes),
        DType::I64 => bytes(&t.int64_data, i64::to_le_bytes),
        DType::U64 => bytes(&t.uint64_data, u64::to_le_bytes),
        DType::U32 => bytes(&t.uint64_data, |v| (v as u32).to_le_bytes()),
        DType::I32 => bytes(&t.int32_data, i32::to_le_bytes),
        DType::I16 | DType::U16 | DType::F16 | DType::BF16 => bytes(&t.int32_data, |v| (v as u16).to_le_bytes()),
        DType::I8 | DType::U8 => bytes(&t.int32_data, |v| [v as u8]),
        DType::Bool => bytes(&t.int32_data, |v| [(v != 0) as u8]),
        _ => bytes(&t.int32_data, |v| [v as u8]),
    };
    Ok(data.into())
}

/// Elements of fewer than 8 bits, which files hold packed from the low bits up, as a byte each.
///
/// # Errors
/// When there are not as many bytes as `count` elements take.
pub fn unpacked(data: &[u8], dtype: DType, count: usize) -> Result<Bytes, Problem> {
    let (bits, each) = (dtype.bits(), 8 / dtype.bits());
    if data.len() != count.div_ceil(each) {
        let (have, want) = (data.len(), count.div_ceil(each));
        return Err(Problem::Damaged(format!(
            "has {have} bytes for {count} elements of type {dtype}, which need {want}"
        )));
    }
    let element = |i: usize| {
        let raw = data[i / each] >> (i % each * bits) & ((1 << bits) - 1);
        let empty = 8 - bits;
        if dtype.is_signed_int() { ((raw << empty) as i8 >> empty) as u8 } else { raw }
    };
    Ok((0..count).map(element).collect::<Vec<u8>>().into())
}

/// The inverse of [`unpacked`].
pub fn packed(data: &[u8], dtype: DType) -> Bytes {
    let (bits, each) = (dtype.bits(), 8 / dtype.bits());
    let mask = ((1u16 << bits) - 1) as u8;
    let byte = |c: &[u8]| c.iter().enumerate().fold(0, |b, (i, x)| b | (x & mask) << (i * bits));
    data.chunks(each).map(byte).collect::<Vec<u8>>().into()
}

/// Reads a serialised `TensorProto`, the format of the `.pb` files of ONNX test data. Returns its name and content.
pub fn load_pb(path: &Path) -> Result<(String, HostTensor), Error> {
    parse_pb(map_file(path).map_err(|e| Error::io("read", path, &e))?, path)
}

/// As [`load_pb`], from the bytes of the file; `path` is for messages and external data.
pub fn parse_pb(bytes: Bytes, path: &Path) -> Result<(String, HostTensor), Error> {
    let t = TensorProto::decode(bytes)
        .map_err(|e| Error::file(path, format!("not a TensorProto ({e}); the file may be truncated")))?;
    match decode(&t, Some(&mut External::new(path))) {
        Ok(tensor) => Ok((t.name, tensor)),
        Err(reason) => Err(Error::file(path, format!("tensor `{}`: {reason}", t.name))),
    }
}

/// A sequence of tensors, or an optional of some: of the elements of both messages those that hold tensors.
#[derive(Clone, PartialEq, Message)]
struct ListProto {
    #[prost(message, repeated, tag = "3")]
    tensors: Vec<TensorProto>,
    #[prost(message, repeated, tag = "5")]
    sequences: Vec<ListProto>,
}

/// Reads a file with a `SequenceProto` or an `OptionalProto`: the tensors in it.
pub fn load_pb_list(path: &Path) -> Result<Vec<HostTensor>, Error> {
    let bytes = map_file(path).map_err(|e| Error::io("read", path, &e))?;
    let list = ListProto::decode(bytes)
        .map_err(|e| Error::file(path, format!("not a SequenceProto or OptionalProto ({e}); it may be truncated")))?;
    let all = list.tensors.iter().chain(list.sequences.iter().flat_map(|s| &s.tensors));
    let read = |t: &TensorProto| {
        decode(t, Some(&mut External::new(path)))
            .map_err(|reason| Error::file(path, format!("tensor `{}`: {reason}", t.name)))
    };
    all.map(read).collect()
}

/// A tensor as a serialised `TensorProto`.
///
/// # Errors
/// When it has strings whose texts are not known.
pub fn to_pb(name: &str, tensor: &HostTensor) -> Result<Vec<u8>, Problem> {
    let dims = tensor.shape().iter().map(|&d| d as i64).collect();
    let (data_type, name) = (tensor.dtype().to_onnx(), name.to_string());
    if tensor.dtype() == DType::Str {
        let string_data = tensor.texts()?.into_iter().map(|t| Bytes::copy_from_slice(t.as_bytes())).collect();
        return Ok(TensorProto { dims, data_type, name, string_data, ..Default::default() }.encode_to_vec());
    }
    let small = tensor.dtype().bits() < 8;
    let raw_data = Some(if small { packed(tensor.bytes(), tensor.dtype()) } else { tensor.bytes().clone() });
    Ok(TensorProto { dims, data_type, name, raw_data, ..Default::default() }.encode_to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proto(data_type: i32, dims: &[i64]) -> TensorProto {
        TensorProto { data_type, dims: dims.to_vec(), ..Default::default() }
    }

    #[test]
    fn typed_fields_of_every_width() {
        let t = TensorProto { int32_data: vec![-1, 2], ..proto(3, &[2]) };
        assert_eq!(decode(&t, None).unwrap().to_i64(), [-1, 2]);
        let t = TensorProto { int32_data: vec![0x3c00, 0xc000], ..proto(10, &[2]) };
        assert_eq!(decode(&t, None).unwrap().to_f64(), [1.0, -2.0]);
        let t = TensorProto { uint64_data: vec![7], ..proto(12, &[]) };
        assert_eq!(decode(&t, None).unwrap().to_i64(), [7]);
        let t = TensorProto { int32_data: vec![0, 5], ..proto(9, &[2]) };
        assert_eq!(decode(&t, None).unwrap().to_i64(), [0, 1]);
        let t = TensorProto { double_data: vec![0.5], ..proto(11, &[1]) };
        assert_eq!(decode(&t, None).unwrap().to_f64(), [0.5]);
    }

    #[test]
    fn bad_tensors_are_explained() {
        let short = TensorProto { float_data: vec![1.0], ..proto(1, &[2]) };
        assert!(decode(&short, None).unwrap_err().to_string().contains("needs 2"));
        let raw = TensorProto { raw_data: Some(Bytes::from_static(&[0; 7])), ..proto(1, &[2]) };
        assert!(decode(&raw, None).unwrap_err().to_string().contains("8 bytes, got 7"));
        assert!(decode(&proto(8, &[1]), None).unwrap_err().to_string().contains("has 0 strings"));
        let bad = TensorProto { string_data: vec![Bytes::from_static(&[0xff])], ..proto(8, &[1]) };
        assert!(decode(&bad, None).unwrap_err().to_string().contains("UTF-8"));
        assert!(decode(&proto(14, &[1]), None).unwrap_err().to_string().contains("complex64"));
        assert!(decode(&proto(1, &[-1]), None).unwrap_err().to_string().contains("negative"));
        assert!(decode(&proto(1, &[i64::MAX, i64::MAX]), None).unwrap_err().to_string().contains("too large"));
    }

    #[test]
    fn external_data_must_stay_beside_the_model() {
        use StringStringEntryProto as Entry;
        let entry = |key: &str, value: &str| Entry { key: key.into(), value: value.into() };
        let mut t = TensorProto { data_location: 1, ..proto(2, &[3]) };
        for bad in ["../x.bin", "/etc/passwd", "a/../../x"] {
            t.external_data = vec![entry("location", bad)];
            assert!(
                decode(&t, Some(&mut External::new(Path::new("m.onnx"))))
                    .unwrap_err()
                    .to_string()
                    .contains("not allowed")
            );
        }
        let dir = std::env::temp_dir().join(format!("barewave-external-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("w.bin"), [1, 2, 3, 4, 5, 6]).unwrap();
        t.external_data = vec![entry("location", "w.bin"), entry("offset", "2"), entry("length", "3")];
        let mut external = External::new(&dir.join("m.onnx"));
        assert_eq!(decode(&t, Some(&mut external)).unwrap().to_i64(), [3, 4, 5]);
        // Who gives no length means what the type and shape take, wherever it lies.
        t.external_data[2].value = "0".into();
        assert_eq!(decode(&t, Some(&mut external)).unwrap().to_i64(), [3, 4, 5]);
        let length = t.external_data.pop();
        assert_eq!(decode(&t, Some(&mut external)).unwrap().to_i64(), [3, 4, 5]);
        t.external_data.extend(length);
        t.external_data[2].value = "4".into();
        let message = decode(&t, Some(&mut external)).unwrap_err().to_string();
        assert!(message.contains("has 4 bytes, but its type and shape take 3"), "{message}");
        t.external_data[2].value = "3".into();
        t.external_data[1].value = "5".into();
        assert!(decode(&t, Some(&mut external)).unwrap_err().to_string().contains("truncated"));
        #[cfg(unix)]
        {
            // Links may not lead out of the folder, and what is not a file is not waited for.
            std::os::unix::fs::symlink("/etc/hostname", dir.join("out.bin")).unwrap();
            std::os::unix::fs::symlink("w.bin", dir.join("in.bin")).unwrap();
            let fifo = std::ffi::CString::new(dir.join("fifo").to_str().unwrap()).unwrap();
            // SAFETY: a path that ends with a zero.
            assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
            t.external_data.truncate(1);
            let mut read = |name: &str| {
                t.external_data[0].value = name.into();
                t.dims = vec![6];
                decode(&t, Some(&mut External::new(&dir.join("m.onnx"))))
            };
            assert_eq!(read("in.bin").unwrap().len(), 6);
            assert!(read("out.bin").unwrap_err().to_string().contains("outside"));
            assert!(read("fifo").unwrap_err().to_string().contains("not a file"));
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
