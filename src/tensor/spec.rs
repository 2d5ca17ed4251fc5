//! Input specs of the command line, and writing outputs by file name.
//!
//! | spec                       | tensor                                                                     |
//! |----------------------------|----------------------------------------------------------------------------|
//! | `1x3x224x224xf32=0`        | filled with a number                                                       |
//! | `1x3x224x224xf32=random:7` | seeded: floats uniform in `[-1, 1)`, integers in `0..256`, bools; strings: the integers |
//! | `2xstring=some words`      | filled with a string                                                       |
//! | `5`, `0.25`, `-inf`        | one number of the type that the input has, for scalars and tensors of one element |
//! | `@x.npy`                   | a NumPy array                                                              |
//! | `@all.npz`                 | the array of the archive that has the input's name                         |
//! | `@input_0.pb`              | an ONNX `TensorProto`                                                      |
//! | `cat.png`, `.jpg`, `.webp` | an image, see [`ImageOptions`]; also `.bmp`, `.tif`, `.jp2`, `.ppm` and their like |
//!
//! Each may be preceded by `NAME=`.

use super::{
    DType, Error, HostTensor, ImageOptions, Npz, Problem, SplitMix64, element_count, image, load_image, npy, pb,
};
use crate::output;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Where an input comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// One number everywhere.
    Fill(DType, Vec<usize>, f64),
    /// One string everywhere.
    Text(Vec<usize>, String),
    /// Seeded random numbers.
    Random(DType, Vec<usize>, u64),
    /// One whole number, whose type is the input's.
    Integer(i64),
    /// One number, whose type is the input's.
    Real(f64),
    /// A file.
    File(PathBuf),
}

/// A parsed input spec.
#[derive(Clone, Debug, PartialEq)]
pub struct InputSpec {
    /// The input it is for; by position when absent.
    pub name: Option<String>,
    /// Where the values come from.
    pub source: Source,
}

/// What the model wants for an input.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// The input's name.
    pub name: String,
    /// Its type.
    pub dtype: DType,
    /// Its shape.
    pub shape: Vec<usize>,
}

/// `1x3xf32` as shape and type.
fn shape_and_type(text: &str) -> Option<(Vec<usize>, DType)> {
    let mut parts: Vec<&str> = text.split('x').collect();
    let dtype = DType::from_name(parts.pop()?)?;
    let shape = parts.into_iter().map(|p| p.parse().ok()).collect::<Option<_>>()?;
    Some((shape, dtype))
}

/// The names of all types.
fn types() -> String {
    DType::ALL.map(DType::name).join(", ")
}

impl FromStr for InputSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<InputSpec, Error> {
        let parse_source = |s: &str| -> Result<Source, Error> {
            if let Some((kind, value)) = s.split_once('=')
                && let Some((shape, dtype)) = shape_and_type(kind)
            {
                if element_count(&shape).is_none() {
                    return Err(Error::other(format!("input `{text}`: the shape is too large")));
                }
                if let Some(seed) = value.strip_prefix("random:") {
                    let seed =
                        seed.parse().map_err(|_| Error::other(format!("input `{text}`: the seed is not a number")))?;
                    return Ok(Source::Random(dtype, shape, seed));
                }
                if dtype == DType::Str {
                    return Ok(Source::Text(shape, value.into()));
                }
                let value = value.parse().map_err(|_| {
                    Error::other(format!("input `{text}`: `{value}` is neither a number nor random:SEED"))
                })?;
                return Ok(Source::Fill(dtype, shape, value));
            }
            let path = s.strip_prefix('@').unwrap_or(s);
            if path.is_empty() {
                return Err(Error::other(format!("input `{text}` names no file")));
            }
            if let Ok(value) = s.parse() {
                return Ok(Source::Integer(value));
            }
            if let Ok(value) = s.parse() {
                return Ok(Source::Real(value));
            }
            if let Some((kind, _)) = s.split_once('=')
                && kind.contains('x')
                && kind.starts_with(|c: char| c.is_ascii_digit())
                && !Path::new(s).exists()
            {
                let what = format!("`{kind}` is no shape with a type, such as 1x3xf32=0 (types: {})", types());
                return Err(Error::other(format!("input `{text}`: {what}")));
            }
            if shape_and_type(path).is_some() {
                return Err(Error::other(format!("input `{text}` has no value; write {path}=0 or {path}=random:1")));
            }
            Ok(Source::File(path.into()))
        };
        // An input may be named like a type: what is no value of a type says so.
        let is_name = |name: &str, rest: &str| {
            let value = rest.split_once('=').is_some_and(|(kind, _)| shape_and_type(kind).is_some());
            let typed = shape_and_type(name).filter(|(_, t)| *t == DType::Str || !value && !rest.starts_with('@'));
            typed.is_none() && !name.is_empty() && !name.starts_with('@')
        };
        match text.split_once('=') {
            Some((name, rest)) if is_name(name, rest) => {
                Ok(InputSpec { name: Some(name.into()), source: parse_source(rest)? })
            }
            _ => Ok(InputSpec { name: None, source: parse_source(text)? }),
        }
    }
}

impl InputSpec {
    /// Makes or reads the tensor and checks that it is what the model wants.
    pub fn load(&self, wanted: &Wanted, options: &ImageOptions) -> Result<HostTensor, Error> {
        let tensor = match &self.source {
            Source::File(path) if is_image(path) => load_image(path, wanted.dtype, &wanted.shape, options)?,
            _ => self.array(&wanted.name, None)?,
        };
        wanted.check(&tensor)?;
        Ok(tensor)
    }

    /// Bytes of a tensor that is made up, not read.
    pub fn bytes(&self) -> Option<u64> {
        match &self.source {
            Source::Fill(dtype, shape, _) | Source::Random(dtype, shape, _) => {
                Some(element_count(shape).map_or(u64::MAX, |n| (n * dtype.size()) as u64))
            }
            Source::Text(shape, _) => Some(element_count(shape).map_or(u64::MAX, |n| (n * DType::Str.size()) as u64)),
            Source::File(_) | Source::Integer(_) | Source::Real(_) => None,
        }
    }

    /// A number as a tensor of one element of that type; none where the spec is something else.
    ///
    /// # Errors
    /// A number that the type does not hold: a fraction or one that is too large for integers, any for strings.
    pub fn number(&self, dtype: DType, shape: &[usize]) -> Option<Result<HostTensor, Error>> {
        let made = match self.source {
            _ if dtype == DType::Str => None,
            Source::Integer(v) => HostTensor::from_ints(DType::I64, shape, &[v]).as_integers(dtype).or_else(|| {
                let one = HostTensor::from_ints(dtype, shape, &[v]);
                (dtype.is_float() || dtype == DType::Bool && (0..=1).contains(&v)).then_some(one)
            }),
            Source::Real(v) => dtype.is_float().then(|| HostTensor::from_f64(dtype, shape, &[v])),
            _ => return None,
        };
        let text = match self.source {
            Source::Integer(v) => v.to_string(),
            Source::Real(v) => v.to_string(),
            _ => String::new(),
        };
        Some(made.ok_or_else(|| Error::other(format!("{text} is no {dtype}"))))
    }

    /// True for pictures, whose size becomes the model's.
    pub fn is_image(&self) -> bool {
        matches!(&self.source, Source::File(path) if is_image(path))
    }

    /// Makes or reads the tensor of input `name` with the type and shape that it has itself. Not for pictures, which have
    /// none. `limit` is that of [`Npz::open`].
    pub fn array(&self, name: &str, limit: Option<u64>) -> Result<HostTensor, Error> {
        match &self.source {
            Source::Fill(dtype, shape, value) => {
                let one = HostTensor::from_f64(*dtype, &[1], &[*value]);
                let n = shape.iter().product();
                HostTensor::new(*dtype, shape, one.bytes().repeat(n)).map_err(|e| Error::other(e.to_string()))
            }
            Source::Text(shape, text) => {
                let n = shape.iter().product();
                HostTensor::from_texts(shape, std::iter::repeat_n(text.as_str(), n))
                    .map_err(|e| Error::other(e.to_string()))
            }
            Source::Random(dtype, shape, seed) => Ok(random(*dtype, shape, *seed)),
            Source::Integer(_) | Source::Real(_) => {
                Err(Error::other(format!("`{name}`: a number alone has no type here; write it as 1xf32=5")))
            }
            Source::File(path) => match kind_of(path).as_str() {
                "npy" => npy::load_npy(path),
                "npz" => Npz::open(path, limit)?.existing(name),
                "pb" => pb::load_pb(path).map(|(_, t)| t),
                // A word that was meant as something else is most often no file at all.
                _ => match path.metadata() {
                    Err(e) => Err(Error::io("read", path, &e)),
                    Ok(_) => Err(Error::file(
                        path,
                        format!("unknown kind of file; .npy, .npz, .pb and images (.{}) are known", IMAGES.join(", .")),
                    )),
                },
            },
        }
    }
}

impl Wanted {
    /// Fails when a tensor is of another type or shape.
    pub fn check(&self, tensor: &HostTensor) -> Result<(), Error> {
        if tensor.dtype() == self.dtype && tensor.shape() == self.shape {
            return Ok(());
        }
        Err(Error::other(format!(
            "`{}` is {}{:?}, but {}{:?} was given",
            self.name,
            self.dtype,
            self.shape,
            tensor.dtype(),
            tensor.shape()
        )))
    }
}

/// Extensions of files that are images; what is in them decides which format it is.
const IMAGES: [&str; 15] =
    ["png", "jpg", "jpeg", "webp", "bmp", "tif", "tiff", "jp2", "j2k", "jpc", "ppm", "pgm", "pbm", "pnm", "pam"];

fn is_image(path: &Path) -> bool {
    IMAGES.contains(&kind_of(path).as_str())
}

/// Elements that are made up together.
const RUN: usize = 1 << 16;

fn random(dtype: DType, shape: &[usize], seed: u64) -> HostTensor {
    let mut rng = SplitMix64(seed);
    let n: usize = shape.iter().product();
    let value = |rng: &mut SplitMix64| match dtype {
        DType::Bool => (rng.next_u64() >> 63) as f64,
        t if t.is_float() => 2.0 * rng.next_unit() - 1.0,
        DType::I8 => (rng.next_u64() >> 56) as i8 as f64,
        _ => (rng.next_u64() >> 56) as f64,
    };
    if dtype == DType::Str {
        let values: Vec<f64> = (0..n).map(|_| value(&mut rng)).collect();
        let texts: Vec<String> = values.iter().map(f64::to_string).collect();
        return HostTensor::from_texts(shape, texts.iter().map(String::as_str))
            .expect("short numbers have codes of their own");
    }
    let mut bytes = Vec::with_capacity(n * dtype.size());
    for at in (0..n).step_by(RUN) {
        let values: Vec<f64> = (at..n.min(at + RUN)).map(|_| value(&mut rng)).collect();
        bytes.extend_from_slice(&HostTensor::from_f64(dtype, &[values.len()], &values).bytes()[..]);
    }
    HostTensor::new(dtype, shape, bytes).expect("as many elements as the shape has")
}

/// Some names in a message: what has no end or is no text is not shown.
pub fn listed(names: &[String]) -> String {
    const MOST: usize = 20;
    let shown: Vec<String> = names.iter().take(MOST).map(|n| format!("'{}'", n.escape_debug())).collect();
    let more = if names.len() > MOST { format!(" and {} more", names.len() - MOST) } else { String::new() };
    shown.join(", ") + &more
}

/// What kind of file a name says: its extension in lower case.
pub fn kind_of(path: &Path) -> String {
    path.extension().map(|e| e.to_string_lossy().to_ascii_lowercase()).unwrap_or_default()
}

/// Writes tensors as the file name's extension says: `.npz` holds any number by their names, `.npy`, `.pb` and `.png` one.
pub fn save(path: &Path, tensors: &[(&str, &HostTensor)], options: &ImageOptions) -> Result<(), Error> {
    let wrong = |e: Problem| Error::file(path, e);
    let bytes = match (kind_of(path).as_str(), tensors) {
        ("npz", all) => npy::npz_bytes(all).map_err(wrong)?,
        ("npy", [(_, t)]) => npy::npy_bytes(t).map_err(wrong)?,
        ("pb", [(name, t)]) => pb::to_pb(name, t).map_err(wrong)?,
        ("png", [(_, t)]) => image::png_bytes(t, options).map_err(wrong)?,
        ("npy" | "pb" | "png", _) => {
            return Err(wrong(Problem::Shape(format!("holds one tensor, not {}", tensors.len()))));
        }
        _ => return Err(wrong(Problem::Unsupported(UNKNOWN.into()))),
    };
    output::write(path, |w| w.write_all(&bytes)).map_err(|e| Error::other(e.to_string()))
}

const UNKNOWN: &str = "unknown kind of file; .npy, .npz, .pb and .png can be written";

/// Fails when [`save`] of tensors of these shapes would, as far as that can be told before; without shapes, as far as the
/// path tells.
pub fn check_save(path: &Path, shapes: &[&[usize]], options: &ImageOptions) -> Result<(), Error> {
    let wrong = |e: Problem| Error::file(path, e);
    match (kind_of(path).as_str(), shapes) {
        ("npz", _) | ("npy" | "pb", [_]) | ("npy" | "pb" | "png", []) => {}
        ("png", [shape]) => image::is_image(shape, options).map_err(wrong)?,
        ("npy" | "pb" | "png", _) => {
            return Err(wrong(Problem::Shape(format!("holds one tensor, not {}", shapes.len()))));
        }
        _ => return Err(wrong(Problem::Unsupported(UNKNOWN.into()))),
    }
    output::check(path).map_err(|e| Error::other(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(s: &str) -> Result<InputSpec, String> {
        s.parse::<InputSpec>().map_err(|e| e.to_string())
    }

    #[test]
    fn every_form_of_spec() {
        let spec = |name: Option<&str>, source| Ok(InputSpec { name: name.map(str::to_string), source });
        let f = |p: &str| Source::File(p.into());
        assert_eq!(parse("2x3xf32=0.5"), spec(None, Source::Fill(DType::F32, vec![2, 3], 0.5)));
        assert_eq!(parse("f32=1"), spec(None, Source::Fill(DType::F32, vec![], 1.0)));
        assert_eq!(parse("x=4xi64=random:7"), spec(Some("x"), Source::Random(DType::I64, vec![4], 7)));
        assert_eq!(parse("n=5"), spec(Some("n"), Source::Integer(5)));
        assert_eq!(parse("-2.5e3"), spec(None, Source::Real(-2500.0)));
        assert_eq!(parse("@x.npy"), spec(None, f("x.npy")));
        assert_eq!(parse("data=@dir/x.npz"), spec(Some("data"), f("dir/x.npz")));
        assert_eq!(parse("cat.png"), spec(None, f("cat.png")));
        assert_eq!(parse("img=cat.png"), spec(Some("img"), f("cat.png")));
        assert_eq!(parse("i8=@x.npy"), spec(Some("i8"), f("x.npy")));
        assert_eq!(parse("i8=4xf32=2"), spec(Some("i8"), Source::Fill(DType::F32, vec![4], 2.0)));
        assert_eq!(parse("2xstring=@x"), spec(None, Source::Text(vec![2], "@x".into())));
    }

    #[test]
    fn wrong_specs_are_explained() {
        for (s, word) in [
            ("2x3xf32=zero", "neither a number"),
            ("2x3xf32=random:x", "seed"),
            ("2x3xf32", "has no value"),
            ("x=", "names no file"),
            ("99999999999x99999999999xf32=0", "too large"),
        ] {
            let e = parse(s).unwrap_err();
            assert!(e.contains(word), "{s}: {e}");
        }
    }

    #[test]
    fn what_is_given_must_be_what_is_wanted() {
        let wanted = Wanted { name: "x".into(), dtype: DType::F32, shape: vec![2] };
        let load = |s: &str| parse(s).unwrap().load(&wanted, &ImageOptions::default());
        assert_eq!(load("2xf32=3").unwrap().to_f64(), [3.0, 3.0]);
        assert_eq!(load("2xf32=random:1"), load("2xf32=random:1"));
        assert_ne!(load("2xf32=random:1"), load("2xf32=random:2"));
        let words = parse("2xstring=a b").unwrap().array("x", None).unwrap();
        assert_eq!(words.texts().unwrap(), ["a b", "a b"]);
        assert!(load("3xf32=3").unwrap_err().to_string().contains("`x` is f32[2]"));
        assert!(load("2xi32=3").is_err());
        assert!(load("@none.npy").unwrap_err().to_string().contains("cannot read none.npy"));
        assert!(load("@none.txt").unwrap_err().to_string().contains("cannot read none.txt"));
        assert!(load("@Cargo.toml").unwrap_err().to_string().contains("unknown kind"));
    }

    #[test]
    fn numbers_alone_take_the_type_that_holds_them() {
        let number = |s: &str, dtype| parse(s).unwrap().number(dtype, &[1]).unwrap().map_err(|e| e.to_string());
        let largest = number("9223372036854775807", DType::I64).unwrap();
        assert_eq!(largest.to_i64(), [i64::MAX]);
        assert_eq!(number("5", DType::BF16).unwrap().to_f64(), [5.0]);
        assert_eq!(number("1", DType::Bool).unwrap().to_f64(), [1.0]);
        assert_eq!(number("-inf", DType::F32).unwrap().to_f64(), [f64::NEG_INFINITY]);
        for (s, dtype) in
            [("2", DType::Bool), ("0.5", DType::I32), ("300", DType::U8), ("-1", DType::U64), ("1", DType::Str)]
        {
            assert!(number(s, dtype).unwrap_err().contains(s), "{s} {dtype}");
        }
        assert!(parse("2xf32=3").unwrap().number(DType::F32, &[1]).is_none());
        assert!(parse("5").unwrap().array("x", None).is_err());
    }

    #[test]
    fn every_kind_of_file_round_trips() {
        let t = random(DType::F32, &[1, 3, 2, 2], 3);
        let wanted = Wanted { name: "x".into(), dtype: DType::F32, shape: vec![1, 3, 2, 2] };
        for kind in ["npy", "npz", "pb"] {
            let path = std::env::temp_dir().join(format!("barewave-spec-{}.{kind}", std::process::id()));
            save(&path, &[("x", &t)], &ImageOptions::default()).unwrap();
            let spec = parse(&format!("@{}", path.display())).unwrap();
            assert_eq!(spec.load(&wanted, &ImageOptions::default()).unwrap(), t, "{kind}");
            std::fs::remove_file(path).unwrap();
        }
        let unwritable = Path::new("/nonexistent/x.npy");
        assert!(
            save(unwritable, &[("x", &t)], &ImageOptions::default()).unwrap_err().to_string().contains("cannot write")
        );
    }
}
