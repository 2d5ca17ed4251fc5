//! NumPy's file formats: `.npy`, one array, and `.npz`, a zip archive of them.
//!
//! An npy file is a magic string, a version, and a header in Python syntax, `{'descr': '<f4', 'fortran_order': False,
//! 'shape': (2, 3), }`, followed by the elements. Big-endian files are swapped, Fortran order is transposed. Strings are as
//! wide as the longest (`<U5`: five UTF-32 units; `|S5`: five bytes), shorter ones padded with zeros.

use super::{DType, Error, HostTensor, Problem, element_count};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Cursor, ErrorKind, Read, Seek, Write};
use std::path::{Path, PathBuf};

const MAGIC: &[u8] = b"\x93NUMPY";
/// No header is longer.
const MAX_HEADER: usize = 1 << 20;

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
        // NumPy has no types of fewer than 8 bits and no small floats.
        _ => return None,
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
pub fn parse_npy(bytes: &[u8]) -> Result<HostTensor, Problem> {
    read_npy(&mut &bytes[..], bytes.len() as u64)
}

/// Reads an npy file of at most `limit` bytes of elements: what the header asks for is not believed beyond that.
fn read_npy(from: &mut dyn Read, limit: u64) -> Result<HostTensor, Problem> {
    let mut fill = |buffer: &mut [u8], what: &str| {
        from.read_exact(buffer).map_err(|e| match e.kind() {
            ErrorKind::UnexpectedEof => Problem::Damaged(format!("the {what} is truncated")),
            _ => Problem::Damaged(e.to_string()),
        })
    };
    let mut magic = [0; 8];
    fill(&mut magic, "file")?;
    if !magic.starts_with(MAGIC) {
        return Err(Problem::Damaged("not an npy file: its magic is missing".into()));
    }
    let mut len = [0; 4];
    fill(&mut len[..if magic[6] == 1 { 2 } else { 4 }], "file")?;
    let len = u32::from_le_bytes(len) as usize;
    if len > MAX_HEADER {
        return Err(Problem::Size(format!("a header of {len} bytes is not one")));
    }
    let mut header = vec![0; len];
    fill(&mut header, "header")?;
    let header = String::from_utf8_lossy(&header);
    let kind = entry(&header, "descr").ok_or(Problem::Damaged("the header has no descr".into()))?.trim_matches('\'');
    let (order, name) = kind.split_at_checked(1).ok_or(Problem::Damaged("the header has an empty descr".into()))?;
    let kind = Kind::parse(name).ok_or_else(|| match name {
        "O" => Problem::Unsupported("arrays of Python objects are not read; save strings with .astype(str)".into()),
        "V1" => Problem::Unsupported(
            "it does not say which type of 8 bits or fewer it holds: save it with .astype(numpy.float32)".into(),
        ),
        _ => Problem::Unsupported(format!("element type {kind} is not supported")),
    })?;
    let fortran = entry(&header, "fortran_order") == Some("True");
    let shape =
        entry(&header, "shape").ok_or(Problem::Damaged("the header has no shape".into()))?.trim_matches(['(', ')']);
    let shape: Vec<usize> = shape
        .split(',')
        .map(str::trim)
        .filter(|s| !s.is_empty())
        .map(|s| s.parse().map_err(|_| Problem::Damaged(format!("the shape ({shape}) is not valid"))))
        .collect::<Result<_, _>>()?;
    let count = element_count(&shape).ok_or(Problem::Size("the shape is too large".into()))?;
    let size = count.checked_mul(kind.size()).ok_or(Problem::Size("the shape is too large".into()))?;
    // Strings of no width take room too, once they are read.
    if size.max(count) as u64 > limit {
        return Err(Problem::Damaged(format!(
            "{}{shape:?} needs {size} bytes, there are at most {limit}; it is truncated or damaged",
            kind.dtype()
        )));
    }
    let mut data = vec![0; size];
    fill(&mut data, "data")?;
    if order == ">" {
        data.chunks_exact_mut(kind.unit()).for_each(<[u8]>::reverse);
    }
    if fortran && shape.len() > 1 && kind.size() > 0 {
        data = from_fortran(&data, &shape, kind.size());
    }
    match kind {
        Kind::Number(dtype) => HostTensor::new(dtype, &shape, data).map_err(|e| Problem::Damaged(e.to_string())),
        _ => {
            let texts: Vec<String> = match kind.size() {
                0 => vec![String::new(); count],
                size => data.chunks_exact(size).map(|c| kind.text(c)).collect::<Result<_, _>>()?,
            };
            HostTensor::from_texts(&shape, texts.iter().map(String::as_str))
        }
    }
}

/// What the elements of a file are.
#[derive(Clone, Copy)]
enum Kind {
    Number(DType),
    /// Strings of so many UTF-32 units.
    Wide(usize),
    /// Strings of so many bytes.
    Narrow(usize),
}

impl Kind {
    /// By its name in a header, without the byte order.
    fn parse(name: &str) -> Option<Kind> {
        let width = |digits: &str| digits.parse().ok().filter(|n| *n <= 1 << 28);
        match name.split_at_checked(1)? {
            ("U", n) => width(n).map(Kind::Wide),
            ("S", n) => width(n).map(Kind::Narrow),
            // What NumPy writes for bfloat16 of ml_dtypes.
            ("V", "2") => Some(Kind::Number(DType::BF16)),
            _ => DType::ALL.into_iter().find(|&t| descr(t).is_some_and(|d| d[1..] == *name)).map(Kind::Number),
        }
    }

    /// Bytes of an element.
    fn size(self) -> usize {
        match self {
            Kind::Number(t) => t.size(),
            Kind::Wide(n) => 4 * n,
            Kind::Narrow(n) => n,
        }
    }

    /// Bytes that have an order.
    fn unit(self) -> usize {
        match self {
            Kind::Number(t) => t.size(),
            Kind::Wide(_) => 4,
            Kind::Narrow(_) => 1,
        }
    }

    fn dtype(self) -> DType {
        match self {
            Kind::Number(t) => t,
            Kind::Wide(_) | Kind::Narrow(_) => DType::Str,
        }
    }

    /// A string without the zeros that fill it up.
    fn text(self, element: &[u8]) -> Result<String, Problem> {
        let bad = || Problem::Damaged("it has a string that is not Unicode".into());
        let text = match self {
            Kind::Wide(_) => {
                let unit = |c: &[u8; 4]| char::from_u32(u32::from_le_bytes(*c)).ok_or_else(bad);
                element.as_chunks().0.iter().map(unit).collect::<Result<String, _>>()?
            }
            _ => String::from_utf8(element.to_vec()).map_err(|_| bad())?,
        };
        Ok(text.trim_end_matches('\0').to_string())
    }
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

impl HostTensor {
    /// The numbers of an npy file in a type that NumPy does not know, for which such files have `f32`. `None` when NumPy knows the
    /// type, or it does not have one of the numbers.
    pub fn unwidened(&self, to: DType) -> Option<HostTensor> {
        if self.dtype() != DType::F32 || descr(to).is_some() || to == DType::Str {
            return None;
        }
        let numbers = self.to_f64();
        let narrow = HostTensor::from_f64(to, self.shape(), &numbers);
        let same = |(a, b): (&f64, f64)| *a == b || a.is_nan() && b.is_nan();
        numbers.iter().zip(narrow.to_f64()).all(same).then_some(narrow)
    }
}

/// The bytes of an npy file. Types that NumPy does not know (`bf16`, those of 8 bits and fewer) are written as `f32`.
///
/// # Errors
/// When it has strings whose texts are not known.
pub(crate) fn npy_bytes(t: &HostTensor) -> Result<Vec<u8>, Problem> {
    if t.dtype() == DType::Str {
        let texts = t.texts()?;
        let width = texts.iter().map(|t| t.chars().count()).max().unwrap_or(0).max(1);
        let wide = |t: &&str| t.chars().map(u32::from).chain(std::iter::repeat(0)).take(width).collect::<Vec<_>>();
        let units: Vec<u8> = texts.iter().flat_map(wide).flat_map(u32::to_le_bytes).collect();
        return Ok(file_of(&format!("<U{width}"), t.shape(), &units));
    }
    match descr(t.dtype()) {
        Some(kind) => Ok(file_of(kind, t.shape(), t.bytes())),
        None => npy_bytes(&HostTensor::from_f64(DType::F32, t.shape(), &t.to_f64())),
    }
}

fn file_of(kind: &str, shape: &[usize], elements: &[u8]) -> Vec<u8> {
    let dims: Vec<String> = shape.iter().map(usize::to_string).collect();
    let tail = if dims.len() == 1 { "," } else { "" };
    let mut header = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({}{tail}), }}", dims.join(", "));
    // The elements start at a multiple of 64 bytes.
    let used = MAGIC.len() + 4 + header.len() + 1;
    header.push_str(&" ".repeat(used.next_multiple_of(64) - used));
    header.push('\n');
    let mut out = MAGIC.to_vec();
    out.extend([1, 0]);
    out.extend((header.len() as u16).to_le_bytes());
    out.extend(header.as_bytes());
    out.extend_from_slice(elements);
    out
}

/// Reads an npy file.
pub fn load_npy(path: &Path) -> Result<HostTensor, Error> {
    let bytes = crate::mapped::read_file(path).map_err(|e| Error::io("read", path, &e))?;
    parse_npy(&bytes).map_err(|e| Error::file(path, e))
}

/// Where an archive lies.
trait Place: Read + Seek + Send {}

impl<T: Read + Seek + Send> Place for T {}

/// An npz file: arrays by name, read one at a time.
pub struct Npz {
    path: PathBuf,
    archive: zip::ZipArchive<Box<dyn Place>>,
    /// The bytes that one array may unpack to.
    limit: u64,
}

impl Npz {
    /// Opens an archive. A small file can claim to unpack to anything: an array of more than `limit` bytes is refused;
    /// without a limit, one of more than 64 MiB and a hundred times the file.
    pub fn open(path: &Path, limit: Option<u64>) -> Result<Npz, Error> {
        let io = |e: std::io::Error| Error::io("read", path, &e);
        let file = File::open(path).map_err(io)?;
        let size = file.metadata().map_err(io)?.len();
        Npz::over(Box::new(BufReader::new(file)), size, path, limit)
    }

    /// As [`Npz::open`], from the bytes of the file; `path` is for messages.
    pub fn from_bytes(bytes: &[u8], path: &Path, limit: Option<u64>) -> Result<Npz, Error> {
        Npz::over(Box::new(Cursor::new(bytes.to_vec())), bytes.len() as u64, path, limit)
    }

    fn over(place: Box<dyn Place>, size: u64, path: &Path, limit: Option<u64>) -> Result<Npz, Error> {
        let archive = zip::ZipArchive::new(place)
            .map_err(|e| Error::file(path, format!("not a valid npz file: {e}; it may be truncated")))?;
        let limit = limit.unwrap_or(size.saturating_mul(100).saturating_add(64 << 20));
        Ok(Npz { path: path.into(), archive, limit })
    }

    /// Names of the arrays, in the archive's order.
    pub fn names(&self) -> Vec<String> {
        self.archive.file_names().flatten().map(|n| n.trim_end_matches(".npy").to_string()).collect()
    }

    /// Reads an array; `None` when there is none of that name.
    pub fn array(&mut self, name: &str) -> Result<Option<HostTensor>, Error> {
        let wrong = |e: Problem| Error::file(&self.path, format!("array `{name}`: {e}"));
        let Some(i) = [format!("{name}.npy"), name.to_string()].iter().find_map(|n| self.archive.index_for_name(n))
        else {
            return Ok(None);
        };
        let mut file = self.archive.by_index(i).map_err(|e| wrong(Problem::Damaged(e.to_string())))?;
        let t = read_npy(&mut file, self.limit).map_err(wrong)?;
        Ok(Some(t))
    }

    /// The same, of an array that must be there: otherwise the error lists what is.
    pub fn existing(&mut self, name: &str) -> Result<HostTensor, Error> {
        let found = self.array(name)?;
        let missing = || format!("has no array `{name}`; it has: {}", super::listed(&self.names()));
        found.ok_or_else(|| Error::file(&self.path, missing()))
    }
}

/// Reads all arrays of an npz file, by name.
pub fn load_npz(path: &Path) -> Result<BTreeMap<String, HostTensor>, Error> {
    let mut file = Npz::open(path, None)?;
    let mut out = BTreeMap::new();
    for name in file.names() {
        if let Some(t) = file.array(&name)? {
            out.insert(name, t);
        }
    }
    Ok(out)
}

/// Arrays as the bytes of an npz file, uncompressed as `numpy.savez` writes it.
pub(crate) fn npz_bytes(tensors: &[(&str, &HostTensor)]) -> Result<Vec<u8>, Problem> {
    let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, t) in tensors {
        let bytes = npy_bytes(t)?;
        let options = zip::write::SimpleFileOptions::default()
            .compression_method(zip::CompressionMethod::Stored)
            .large_file(bytes.len() as u64 >= u32::MAX.into());
        writer.start_file(format!("{name}.npy"), options).map_err(|e| Problem::Damaged(e.to_string()))?;
        writer.write_all(&bytes).map_err(|e| Problem::Damaged(e.to_string()))?;
    }
    Ok(writer.finish().map_err(|e| Problem::Damaged(e.to_string()))?.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        for dtype in DType::ALL.into_iter().filter(|&t| descr(t).is_some()) {
            for shape in [vec![], vec![1], vec![2, 3], vec![0, 4]] {
                let n: usize = shape.iter().product();
                let values: Vec<f64> = (0..n).map(|i| (i % 2) as f64).collect();
                let t = HostTensor::from_f64(dtype, &shape, &values);
                assert_eq!(parse_npy(&npy_bytes(&t).unwrap()).unwrap(), t);
            }
        }
        let t = HostTensor::from_f64(DType::BF16, &[2], &[1.0, -2.0]);
        assert_eq!(parse_npy(&npy_bytes(&t).unwrap()).unwrap().to_f64(), [1.0, -2.0]);
        for texts in [vec!["a", "größer", ""], vec!["", "", ""]] {
            let t = HostTensor::from_texts(&[3, 1], texts.iter().copied()).unwrap();
            let back = parse_npy(&npy_bytes(&t).unwrap()).unwrap();
            assert_eq!((&back, back.texts().unwrap()), (&t, texts));
        }
    }

    #[test]
    fn floats_stand_for_types_without_a_name() {
        let t = |values: &[f64]| HostTensor::from_f64(DType::F32, &[values.len()], values);
        for (dtype, values) in
            [(DType::BF16, [1.5, f64::NAN]), (DType::F8E4M3, [-0.5, 448.0]), (DType::I4, [-8.0, 7.0])]
        {
            let narrow = t(&values).unwidened(dtype).unwrap();
            assert_eq!((narrow.dtype(), parse_npy(&npy_bytes(&narrow).unwrap()).unwrap().dtype()), (dtype, DType::F32));
        }
        assert_eq!(t(&[1.001]).unwidened(DType::BF16), None);
        assert_eq!(t(&[8.0]).unwidened(DType::I4), None);
        assert_eq!(t(&[1.0]).unwidened(DType::F16), None);
    }

    #[test]
    fn strings_of_every_kind() {
        let header = |kind: &str| format!("{{'descr': '{kind}', 'fortran_order': True, 'shape': (2, 2), }}\n");
        let texts = |f: &[u8]| parse_npy(f).map(|t| t.texts().unwrap().join(","));
        assert_eq!(texts(&file(&header("|S2"), b"a\0bbc\0dd")).unwrap(), "a,c,bb,dd");
        let wide: Vec<u8> = "abcd".chars().flat_map(|c| u32::from(c).to_be_bytes()).collect();
        assert_eq!(texts(&file(&header(">U1"), &wide)).unwrap(), "a,c,b,d");
        assert_eq!(texts(&file(&header("<U0"), &[])).unwrap(), ",,,");
        for (f, word) in [
            (file(&header("|O"), &[]), "astype(str)"),
            (file(&header("|S1"), b"\xff\xff\xff\xff"), "not Unicode"),
            (file(&header("<U1"), &[0xff; 16]), "not Unicode"),
            (file(&header("<U99999999999"), &[]), "not supported"),
            (file(&header("<U268435456"), &[]), "truncated"),
            (file(&header("<U0").replace("2, 2", "1, 9999999999"), &[]), "truncated"),
        ] {
            assert!(texts(&f).unwrap_err().to_string().contains(word), "{word}");
        }
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
        let f = file("{'descr': '<V2', 'fortran_order': False, 'shape': (2,), }\n", &[0x80, 0x3f, 0x20, 0xc0]);
        assert_eq!(parse_npy(&f).unwrap(), HostTensor::from_f64(DType::BF16, &[2], &[1.0, -2.5]));
        let f = file("{'descr': '>i2', 'fortran_order': False, 'shape': (2,), }\n", &[0, 1, 1, 0]);
        assert_eq!(parse_npy(&f).unwrap().to_i64(), [1, 256]);
    }

    #[test]
    fn damage_is_explained() {
        let good = npy_bytes(&HostTensor::from_f32(&[3], &[1.0, 2.0, 3.0])).unwrap();
        for n in 0..good.len() {
            assert!(parse_npy(&good[..n]).is_err());
        }
        for (header, word) in [
            ("{'descr': '<V1', 'fortran_order': False, 'shape': (2,), }", "astype(numpy.float32)"),
            ("{'descr': '<c8', 'fortran_order': False, 'shape': (2,), }", "<c8"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999, 99999999999), }", "too large"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (x,), }", "not valid"),
            ("{}", "descr"),
        ] {
            let e = parse_npy(&file(header, &[])).unwrap_err();
            assert!(e.to_string().contains(word), "{e}");
        }
    }

    #[test]
    fn archives_round_trip() {
        let path = std::env::temp_dir().join(format!("barewave-{}.npz", std::process::id()));
        let mut all = BTreeMap::new();
        all.insert("a".to_string(), HostTensor::from_f32(&[2], &[1.0, 2.0]));
        all.insert("b".to_string(), HostTensor::from_i64(&[], &[7]));
        let list: Vec<(&str, &HostTensor)> = all.iter().map(|(n, t)| (n.as_str(), t)).collect();
        std::fs::write(&path, npz_bytes(&list).unwrap()).unwrap();
        assert_eq!(load_npz(&path).unwrap(), all);
        assert!(Npz::open(&path, Some(7)).unwrap().array("a").unwrap_err().to_string().contains("needs 8 bytes"));
        std::fs::write(&path, b"nonsense").unwrap();
        assert!(load_npz(&path).unwrap_err().to_string().contains("not a valid npz"));
        std::fs::remove_file(&path).unwrap();
    }
}
