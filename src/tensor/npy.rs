//! NumPy's file formats: `.npy`, one array, and `.npz`, a zip archive of them.
//!
//! An npy file is a magic string, a version, and a header in Python syntax, `{'descr': '<f4', 'fortran_order': False,
//! 'shape': (2, 3), }`, followed by the elements. Big-endian files are swapped, Fortran order is transposed.

use super::{DType, Error, HostTensor, element_count};
use std::collections::BTreeMap;
use std::io::{Cursor, Read, Write};
use std::path::Path;

const MAGIC: &[u8] = b"\x93NUMPY";
/// Entries of archives larger than this are refused: a small file can claim to unpack to anything.
const MAX_ENTRY: u64 = 1 << 34;

fn descr(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::F32 => "<f4",
        DType::F64 => "<f8",
        DType::F16 => "<f2",
        DType::BF16 => return None,
        DType::I8 => "|i1",
        DType::I16 => "<i2",
        DType::I32 => "<i4",
        DType::I64 => "<i8",
        DType::U8 => "|u1",
        DType::U16 => "<u2",
        DType::U32 => "<u4",
        DType::U64 => "<u8",
        DType::Bool => "|b1",
    })
}

/// The text of a header entry, up to the comma that ends it.
fn entry<'a>(header: &'a str, key: &str) -> Option<&'a str> {
    let at = header.find(&format!("'{key}'"))?;
    let rest = header[at..].split_once(':')?.1.trim_start();
    let end = if rest.starts_with('(') { rest.find(')')? + 1 } else { rest.find([',', '}'])? };
    Some(rest[..end].trim())
}

/// Parses the bytes of an npy file.
pub(crate) fn parse_npy(bytes: &[u8]) -> Result<HostTensor, String> {
    let rest = bytes.strip_prefix(MAGIC).ok_or("not an npy file: its magic is missing")?;
    let (&[major, _], rest) = rest.split_first_chunk().ok_or("the file is truncated")?;
    let (len, rest) = if major == 1 {
        let (n, rest) = rest.split_first_chunk().ok_or("the file is truncated")?;
        (u16::from_le_bytes(*n) as usize, rest)
    } else {
        let (n, rest) = rest.split_first_chunk().ok_or("the file is truncated")?;
        (u32::from_le_bytes(*n) as usize, rest)
    };
    let (header, data) = rest.split_at_checked(len).ok_or("the header is truncated")?;
    let header = String::from_utf8_lossy(header);
    let kind = entry(&header, "descr").ok_or("the header has no descr")?.trim_matches('\'');
    let (order, name) = kind.split_at_checked(1).ok_or("the header has an empty descr")?;
    let dtype = DType::ALL
        .into_iter()
        .find(|&t| descr(t).is_some_and(|d| d[1..] == *name))
        .ok_or_else(|| format!("element type {kind} is not supported"))?;
    let fortran = entry(&header, "fortran_order") == Some("True");
    let shape = entry(&header, "shape").ok_or("the header has no shape")?.trim_matches(['(', ')']);
    let shape: Vec<usize> = shape
        .split(',')
        .map(str::trim)
        .filter(|s| !s.is_empty())
        .map(|s| s.parse().map_err(|_| format!("the shape ({shape}) is not valid")))
        .collect::<Result<_, _>>()?;
    let size = element_count(&shape).ok_or("the shape is too large")? * dtype.size();
    if data.len() < size {
        return Err(format!("{dtype}{shape:?} needs {size} bytes, the file has {}; it is truncated", data.len()));
    }
    let mut data = data[..size].to_vec();
    if order == ">" {
        data.chunks_exact_mut(dtype.size()).for_each(<[u8]>::reverse);
    }
    if fortran && shape.len() > 1 {
        data = from_fortran(&data, &shape, dtype.size());
    }
    HostTensor::new(dtype, &shape, data).map_err(|e| e.to_string())
}

/// Column-major elements in row-major order.
fn from_fortran(data: &[u8], shape: &[usize], size: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(data.len());
    let mut coords = vec![0usize; shape.len()];
    for _ in 0..data.len() / size {
        let at = coords.iter().zip(shape).rev().fold(0, |at, (&c, &d)| at * d + c) * size;
        out.extend_from_slice(&data[at..at + size]);
        for d in (0..shape.len()).rev() {
            coords[d] += 1;
            if coords[d] < shape[d] {
                break;
            }
            coords[d] = 0;
        }
    }
    out
}

/// The bytes of an npy file. `bf16`, which NumPy does not know, is written as `f32`.
pub(crate) fn npy_bytes(t: &HostTensor) -> Vec<u8> {
    if t.dtype() == DType::BF16 {
        return npy_bytes(&HostTensor::from_f64(DType::F32, t.shape(), &t.to_f64()));
    }
    let dims: Vec<String> = t.shape().iter().map(usize::to_string).collect();
    let tail = if dims.len() == 1 { "," } else { "" };
    let kind = descr(t.dtype()).unwrap_or("<f4");
    let mut header = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({}{tail}), }}", dims.join(", "));
    // The elements start at a multiple of 64 bytes.
    let used = MAGIC.len() + 4 + header.len() + 1;
    header.push_str(&" ".repeat(used.next_multiple_of(64) - used));
    header.push('\n');
    let mut out = MAGIC.to_vec();
    out.extend([1, 0]);
    out.extend((header.len() as u16).to_le_bytes());
    out.extend(header.as_bytes());
    out.extend_from_slice(t.bytes());
    out
}

/// Reads an npy file.
pub fn load_npy(path: &Path) -> Result<HostTensor, Error> {
    let bytes = std::fs::read(path).map_err(|e| Error::io("read", path, &e))?;
    parse_npy(&bytes).map_err(|e| Error::file(path, e))
}

/// Writes an npy file.
pub fn save_npy(path: &Path, tensor: &HostTensor) -> Result<(), Error> {
    std::fs::write(path, npy_bytes(tensor)).map_err(|e| Error::io("write", path, &e))
}

/// Reads all arrays of an npz file, by name.
pub fn load_npz(path: &Path) -> Result<BTreeMap<String, HostTensor>, Error> {
    let bytes = std::fs::read(path).map_err(|e| Error::io("read", path, &e))?;
    let broken = |e: zip::result::ZipError| Error::file(path, format!("not a valid npz file: {e}"));
    let mut archive = zip::ZipArchive::new(Cursor::new(bytes)).map_err(broken)?;
    let mut out = BTreeMap::new();
    for i in 0..archive.len() {
        let file = archive.by_index(i).map_err(broken)?;
        let name = file.name().map_err(broken)?.trim_end_matches(".npy").to_string();
        let mut data = Vec::new();
        file.take(MAX_ENTRY).read_to_end(&mut data).map_err(|e| Error::file(path, format!("array `{name}`: {e}")))?;
        let t = parse_npy(&data).map_err(|e| Error::file(path, format!("array `{name}`: {e}")))?;
        out.insert(name, t);
    }
    Ok(out)
}

/// Writes arrays as an npz file, uncompressed as `numpy.savez` does.
pub fn save_npz(path: &Path, tensors: &BTreeMap<String, HostTensor>) -> Result<(), Error> {
    let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    let failed = |e: &dyn std::fmt::Display| Error::file(path, format!("cannot make an npz file: {e}"));
    for (name, t) in tensors {
        writer.start_file(format!("{name}.npy"), options).map_err(|e| failed(&e))?;
        writer.write_all(&npy_bytes(t)).map_err(|e| failed(&e))?;
    }
    let bytes = writer.finish().map_err(|e| failed(&e))?.into_inner();
    std::fs::write(path, bytes).map_err(|e| Error::io("write", path, &e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        for dtype in DType::ALL.into_iter().filter(|&t| t != DType::BF16) {
            for shape in [vec![], vec![1], vec![2, 3], vec![0, 4]] {
                let n: usize = shape.iter().product();
                let values: Vec<f64> = (0..n).map(|i| (i % 2) as f64).collect();
                let t = HostTensor::from_f64(dtype, &shape, &values);
                assert_eq!(parse_npy(&npy_bytes(&t)).unwrap(), t);
            }
        }
        let t = HostTensor::from_f64(DType::BF16, &[2], &[1.0, -2.0]);
        assert_eq!(parse_npy(&npy_bytes(&t)).unwrap().to_f64(), [1.0, -2.0]);
    }

    fn file(header: &str, data: &[u8]) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend([1, 0]);
        out.extend((header.len() as u16).to_le_bytes());
        out.extend(header.as_bytes());
        out.extend(data);
        out
    }

    #[test]
    fn fortran_order_and_big_endian() {
        let f = file("{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3), }\n", &[1, 4, 2, 5, 3, 6]);
        assert_eq!(parse_npy(&f).unwrap().to_i64(), [1, 2, 3, 4, 5, 6]);
        let f = file("{'descr': '>i2', 'fortran_order': False, 'shape': (2,), }\n", &[0, 1, 1, 0]);
        assert_eq!(parse_npy(&f).unwrap().to_i64(), [1, 256]);
    }

    #[test]
    fn damage_is_explained() {
        let good = npy_bytes(&HostTensor::from_f32(&[3], &[1.0, 2.0, 3.0]));
        for n in 0..good.len() {
            assert!(parse_npy(&good[..n]).is_err());
        }
        for (header, word) in [
            ("{'descr': '<c8', 'fortran_order': False, 'shape': (2,), }", "<c8"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999, 99999999999), }", "too large"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (x,), }", "not valid"),
            ("{}", "descr"),
        ] {
            let e = parse_npy(&file(header, &[])).unwrap_err();
            assert!(e.contains(word), "{e}");
        }
    }

    #[test]
    fn archives_round_trip() {
        let path = std::env::temp_dir().join(format!("barewave-{}.npz", std::process::id()));
        let mut all = BTreeMap::new();
        all.insert("a".to_string(), HostTensor::from_f32(&[2], &[1.0, 2.0]));
        all.insert("b".to_string(), HostTensor::from_i64(&[], &[7]));
        save_npz(&path, &all).unwrap();
        assert_eq!(load_npz(&path).unwrap(), all);
        std::fs::write(&path, b"nonsense").unwrap();
        assert!(load_npz(&path).unwrap_err().to_string().contains("not a valid npz"));
        std::fs::remove_file(&path).unwrap();
    }
}
