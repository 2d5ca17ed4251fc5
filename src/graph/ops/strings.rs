//! Operators that make strings out of others, or read what is in them, and the one that reads image files: computed on the host.
//!
//! Whatever only moves, compares or looks up strings (Gather, Equal, LabelEncoder ...) works on their codes
//! ([`Words`](crate::tensor::Words)) and is lowered like any other operator. What is left, here, needs the texts. A model with
//! such a node is run in stages ([`crate::graph::cut`](crate::graph::cut())): what computes the node's inputs, the node itself
//! by [`evaluate`], and the rest.

use super::source::texts;
use crate::graph::ask::Ask;
use crate::graph::dim::{Dim, broadcast_dims};
use crate::graph::error::{Reason, Res};
use crate::graph::infer::Inference;
use crate::graph::lazy::broadcast_shape;
use crate::graph::lower::Lowering;
use crate::graph::view::View;
use crate::onnx::{Attribute, Node};
use crate::tensor::{Color, DType, HostTensor, decode_image};
use regex_lite::Regex;

/// Operators that take strings, sorted. All others refuse them.
pub(super) const TAKE_STRINGS: &[&str] = &[
    "Cast",
    "CastLike",
    "Compress",
    "Concat",
    "ConcatFromSequence",
    "DepthToSpace",
    "Equal",
    "Expand",
    "Flatten",
    "Gather",
    "GatherElements",
    "GatherND",
    "Identity",
    "If",
    "Loop",
    "Optional",
    "OptionalGetElement",
    "OptionalHasElement",
    "Pad",
    "RegexFullMatch",
    "Reshape",
    "ReverseSequence",
    "Scan",
    "ScatterElements",
    "ScatterND",
    "SequenceAt",
    "SequenceConstruct",
    "SequenceErase",
    "SequenceInsert",
    "SequenceLength",
    "SequenceMap",
    "Shape",
    "Size",
    "Slice",
    "SpaceToDepth",
    "Split",
    "SplitToSequence",
    "Squeeze",
    "StringConcat",
    "StringNormalizer",
    "StringSplit",
    "TfIdfVectorizer",
    "Tile",
    "Transpose",
    "Unique",
    "Unsqueeze",
    "Where",
    "ai.onnx.ml.ArrayFeatureExtractor",
    "ai.onnx.ml.CategoryMapper",
    "ai.onnx.ml.LabelEncoder",
    "ai.onnx.ml.OneHotEncoder",
    "com.microsoft.Tokenizer",
];

/// None of these is lowered.
pub(super) fn on_host(_: &mut Lowering<'_>) -> Res<()> {
    Err(Reason::OnHost)
}

// ---- rules: only for sizes that are open; models to be compiled are cut before ----

fn closed(cx: &Inference<'_>) -> Res<()> {
    if cx.is_open() { Ok(()) } else { Err(Reason::OnHost) }
}

fn texts_in(cx: &Inference<'_>, i: usize) -> Res<Vec<Dim>> {
    let x = cx.input(i)?;
    match cx.dtype(x) {
        DType::Str => Ok(cx.dims(x).to_vec()),
        t => Err(Reason::Type(format!("input {i} has type {t}; strings are needed"))),
    }
}

pub(super) fn of_concat(cx: &mut Inference<'_>) -> Res<()> {
    let (a, b) = (texts_in(cx, 0)?, texts_in(cx, 1)?);
    closed(cx)?;
    let dims = broadcast_dims([&a[..], &b[..]].into_iter())?;
    cx.give(0, DType::Str, dims)
}

pub(super) fn of_match(cx: &mut Inference<'_>) -> Res<()> {
    let dims = texts_in(cx, 0)?;
    closed(cx)?;
    cx.give(0, DType::Bool, dims)
}

pub(super) fn of_normalizer(cx: &mut Inference<'_>) -> Res<()> {
    let mut dims = texts_in(cx, 0)?;
    closed(cx)?;
    if let Some(last) = dims.len().checked_sub(1) {
        dims[last] = cx.told_by_run(0, last);
    }
    cx.give(0, DType::Str, dims)
}

pub(super) fn of_split(cx: &mut Inference<'_>) -> Res<()> {
    let mut dims = texts_in(cx, 0)?;
    closed(cx)?;
    cx.give(1, DType::I64, dims.clone())?;
    dims.push(cx.told_by_run(0, dims.len()));
    cx.give(0, DType::Str, dims)
}

pub(super) fn of_tokenizer(cx: &mut Inference<'_>) -> Res<()> {
    let mut dims = texts_in(cx, 0)?;
    closed(cx)?;
    dims.push(cx.told_by_run(0, dims.len()));
    cx.give(0, DType::Str, dims)
}

pub(super) fn of_image(cx: &mut Inference<'_>) -> Res<()> {
    let x = cx.input(0)?;
    if cx.dtype(x) != DType::U8 || cx.dims(x).len() != 1 {
        return Err(Reason::Type("input 0 is no file: a row of u8 is needed".into()));
    }
    let channels = if color(cx.text("pixel_format", "RGB")?)? == Color::Gray { 1 } else { 3 };
    closed(cx)?;
    let dims = vec![cx.told_by_run(0, 0), cx.told_by_run(0, 1), Dim::Known(channels)];
    cx.give(0, DType::U8, dims)
}

fn color(name: &str) -> Res<Color> {
    match name {
        "RGB" => Ok(Color::Rgb),
        "BGR" => Ok(Color::Bgr),
        "Grayscale" => Ok(Color::Gray),
        other => Err(Reason::attribute("pixel_format", format!("is `{other}`; RGB, BGR and Grayscale are supported"))),
    }
}

/// A conversion from or to strings.
pub(super) fn of_conversion(cx: &mut Inference<'_>, to: DType) -> Res<()> {
    closed(cx)?;
    let dims = cx.dims(cx.input(0)?).to_vec();
    cx.give(0, to, dims)
}

// ---- on the host ----

/// A node and its inputs, all known.
struct Call<'n> {
    node: &'n Node,
    inputs: &'n [Option<HostTensor>],
}

/// Computes the outputs of a node that [`Reason::OnHost`] was said of. `inputs` are its own, in order.
pub(crate) fn evaluate(node: &Node, inputs: &[Option<HostTensor>]) -> Res<Vec<HostTensor>> {
    let call = Call { node, inputs };
    match node.op.as_str() {
        "StringConcat" => Ok(vec![call.concat()?]),
        "StringNormalizer" => Ok(vec![call.normalize()?]),
        "StringSplit" => call.split(),
        "RegexFullMatch" => Ok(vec![call.full_match()?]),
        "Tokenizer" => Ok(vec![call.tokens()?]),
        "ImageDecoder" => Ok(vec![call.image()?]),
        "Cast" | "CastLike" => Ok(vec![call.cast()?]),
        _ => Err(Reason::Operator { hint: "; the host does not compute it".into() }),
    }
}

impl<'n> Call<'n> {
    fn input(&self, i: usize) -> Res<&'n HostTensor> {
        self.inputs.get(i).and_then(Option::as_ref).ok_or(Reason::MissingInput(i))
    }

    fn texts(&self, i: usize) -> Res<Vec<&'n str>> {
        self.input(i)?.texts().map_err(|e| Reason::Value(format!("input {i}: {e}")))
    }

    fn text(&self, name: &str) -> Res<Option<&'n str>> {
        match self.node.attributes.get(name) {
            None => Ok(None),
            Some(Attribute::Text(t)) => Ok(Some(t)),
            Some(_) => Err(Reason::attribute(name, "is not a text")),
        }
    }

    fn int(&self, name: &str) -> Res<Option<i64>> {
        match self.node.attributes.get(name) {
            None => Ok(None),
            Some(Attribute::Int(n)) => Ok(Some(*n)),
            Some(_) => Err(Reason::attribute(name, "is not an integer")),
        }
    }

    /// The pixels of an image file. What is none gives an image without pixels, as ONNX wants it.
    fn image(&self) -> Res<HostTensor> {
        let color = color(self.text("pixel_format")?.unwrap_or("RGB"))?;
        let channels = if color == Color::Gray { 1 } else { 3 };
        let none = |_| HostTensor::from_ints(DType::U8, &[0, 0, channels], &[]);
        Ok(decode_image(self.input(0)?.bytes(), color).unwrap_or_else(none))
    }

    /// Each pair joined, broadcast against each other.
    fn concat(&self) -> Res<HostTensor> {
        let [x, y] = [self.input(0)?, self.input(1)?];
        let (a, b) = (self.texts(0)?, self.texts(1)?);
        let shape = broadcast_shape([x.shape(), y.shape()].into_iter())?;
        let spread = |t: &HostTensor| View::dense(t.shape()).broadcast(&shape).unwrap_or_else(|| View::dense(&shape));
        let [va, vb] = [spread(x), spread(y)];
        let mut joined = Vec::new();
        crate::graph::interpret::each(&shape, |at| {
            joined.push(format!("{}{}", a[va.at(at) as usize], b[vb.at(at) as usize]))
        });
        texts(&shape, &joined)
    }

    /// Drops stop words, and changes the case of what is left; one empty string when nothing is.
    fn normalize(&self) -> Res<HostTensor> {
        let shape = self.input(0)?.shape();
        if !matches!(shape, [_] | [1, _]) {
            return Err(Reason::Shape(format!("strings of shape {shape:?}; one row of them is needed")));
        }
        let change: fn(&str) -> String = match self.text("case_change_action")?.unwrap_or("NONE") {
            "NONE" => str::to_string,
            "LOWER" => str::to_lowercase,
            "UPPER" => str::to_uppercase,
            other => {
                let what = format!("is `{other}`; NONE, LOWER and UPPER are supported");
                return Err(Reason::attribute("case_change_action", what));
            }
        };
        let exact = self.int("is_case_sensitive")?.unwrap_or(0) != 0;
        let key: fn(&str) -> String = if exact { str::to_string } else { str::to_lowercase };
        let stops: Vec<String> = match self.node.attributes.get("stopwords") {
            Some(Attribute::Texts(list)) => list.iter().map(|s| key(s)).collect(),
            None => Vec::new(),
            Some(_) => return Err(Reason::attribute("stopwords", "is not a list of texts")),
        };
        let kept = self.texts(0)?.into_iter().filter(|t| !stops.contains(&key(t)));
        let mut kept: Vec<String> = kept.map(change).collect();
        if kept.is_empty() {
            kept.push(String::new());
        }
        let mut shape = shape.to_vec();
        if let Some(last) = shape.last_mut() {
            *last = kept.len();
        }
        texts(&shape, &kept)
    }

    /// The parts of each string, filled up with empty ones, and how many there are.
    fn split(&self) -> Res<Vec<HostTensor>> {
        let shape = self.input(0)?.shape();
        let most = self.int("maxsplit")?.map_or(Ok(usize::MAX), |n| {
            // Python's -1, which exporters write, is no limit.
            if n < 0 { Ok(usize::MAX) } else { usize::try_from(n) }
        });
        let most = most.map_err(|_| Reason::attribute("maxsplit", "is too large"))?;
        let parts: Vec<Vec<&str>> = match self.text("delimiter")?.filter(|d| !d.is_empty()) {
            Some(d) => self.texts(0)?.into_iter().map(|t| t.splitn(most.saturating_add(1), d).collect()).collect(),
            None => self.texts(0)?.into_iter().map(|t| words(t, most)).collect(),
        };
        let counts: Vec<i64> = parts.iter().map(|p| p.len() as i64).collect();
        Ok(vec![lists(shape, &parts, "")?, HostTensor::from_i64(shape, &counts)])
    }

    /// The tokens of each string: what an expression finds, or what separators leave.
    fn tokens(&self) -> Res<HostTensor> {
        let list = match self.node.attributes.get("separators") {
            Some(Attribute::Texts(list)) => Some(list.iter().map(|s| regex("separators", s)).collect::<Res<Vec<_>>>()?),
            _ => None,
        };
        let expression = self.text("tokenexp")?.map(|e| regex("tokenexp", e)).transpose()?;
        let least = usize::try_from(self.int("mincharnum")?.unwrap_or(1)).unwrap_or(0);
        let mark = self.int("mark")?.unwrap_or(0) != 0;
        let cut = |t: &'n str| -> Res<Vec<&'n str>> {
            let parts = match (&list, &expression) {
                (_, Some(e)) => e.find_iter(t).map(|m| m.as_str()).collect(),
                // An empty separator stands between all characters.
                (Some(list), _) if list.iter().any(|s| s.as_str().is_empty()) => {
                    t.char_indices().map(|(at, c)| &t[at..at + c.len_utf8()]).collect()
                }
                (Some(list), _) => {
                    list.iter().fold(vec![t], |parts, s| parts.iter().flat_map(|p| s.split(p)).collect())
                }
                (None, None) => return Err(Reason::attribute("tokenexp", "and separators are missing")),
            };
            Ok(parts.into_iter().filter(|p: &&str| p.chars().count() >= least.max(1)).collect())
        };
        let mut parts: Vec<Vec<&str>> = self.texts(0)?.into_iter().map(cut).collect::<Res<_>>()?;
        if mark {
            parts.iter_mut().for_each(|p| {
                p.insert(0, "\u{2}");
                p.push("\u{3}");
            });
        }
        lists(self.input(0)?.shape(), &parts, self.text("pad_value")?.unwrap_or(""))
    }

    /// Which strings a pattern matches as a whole.
    fn full_match(&self) -> Res<HostTensor> {
        let pattern = self.text("pattern")?.ok_or_else(|| Reason::attribute("pattern", "is missing"))?;
        regex("pattern", pattern)?;
        let whole = regex("pattern", &format!("^(?:{pattern})$"))?;
        let hits: Vec<i64> = self.texts(0)?.into_iter().map(|t| i64::from(whole.is_match(t))).collect();
        Ok(HostTensor::from_ints(DType::Bool, self.input(0)?.shape(), &hits))
    }

    fn cast(&self) -> Res<HostTensor> {
        let x = self.input(0)?;
        let to = match self.node.op.as_str() {
            "CastLike" => self.input(1)?.dtype(),
            _ => {
                let code = self.int("to")?.and_then(|n| i32::try_from(n).ok());
                code.and_then(DType::from_onnx).ok_or_else(|| Reason::attribute("to", "is not supported"))?
            }
        };
        match (x.dtype(), to) {
            (DType::Str, DType::Str) => Ok(x.clone()),
            (DType::Str, to) => parsed(x.shape(), &self.texts(0)?, to),
            (_, _) => texts(x.shape(), &written(x)),
        }
    }
}

fn regex(attribute: &str, pattern: &str) -> Res<Regex> {
    Regex::new(pattern).map_err(|e| Reason::attribute(attribute, format!("`{pattern}` is not supported: {e}")))
}

/// Lists of texts as rows of the longest's length.
fn lists(shape: &[usize], lists: &[Vec<&str>], fill: &str) -> Res<HostTensor> {
    let widest = lists.iter().map(Vec::len).max().unwrap_or(0);
    let mut wide = shape.to_vec();
    wide.push(widest);
    super::conv::check_size(&wide)?;
    let all = lists.iter().flat_map(|p| p.iter().copied().chain(std::iter::repeat(fill)).take(widest));
    texts(&wide, &all.collect::<Vec<&str>>())
}

/// The words of a text; from the last split on, what is left of it.
fn words(text: &str, most: usize) -> Vec<&str> {
    let (mut out, mut rest) = (Vec::new(), text.trim());
    while !rest.is_empty() {
        let end = if out.len() < most { rest.find(char::is_whitespace) } else { None };
        let (word, behind) = rest.split_at(end.unwrap_or(rest.len()));
        out.push(word);
        rest = behind.trim_start();
    }
    out
}

/// Numbers out of texts.
fn parsed(shape: &[usize], texts: &[&str], to: DType) -> Res<HostTensor> {
    let wrong = |t: &str| Reason::Value(format!("{t:?} is not a number of type {to}"));
    if to.is_int() || to == DType::Bool {
        let int = |t: &&str| t.trim().parse::<i64>().or_else(|_| t.trim().parse::<u64>().map(|n| n as i64));
        let list: Vec<i64> = texts.iter().map(|t| int(t).map_err(|_| wrong(t))).collect::<Res<_>>()?;
        return Ok(HostTensor::from_ints(to, shape, &list));
    }
    let list: Vec<f64> = texts.iter().map(|t| t.trim().parse().map_err(|_| wrong(t))).collect::<Res<_>>()?;
    Ok(HostTensor::from_f64(to, shape, &list))
}

/// Texts of numbers: of floats 8 digits, of doubles 17, as onnxruntime writes them.
fn written(x: &HostTensor) -> Vec<String> {
    match x.dtype() {
        DType::U64 => x.to_i64().into_iter().map(|v| (v as u64).to_string()).collect(),
        t if !t.is_float() => x.to_i64().iter().map(i64::to_string).collect(),
        t => x.to_f64().into_iter().map(|v| shortest(v, if t == DType::F64 { 17 } else { 8 })).collect(),
    }
}

/// A number as C's `%.*g` writes it.
fn shortest(v: f64, digits: usize) -> String {
    if !v.is_finite() {
        return if v.is_nan() {
            "NaN".into()
        } else if v > 0.0 {
            "INF".into()
        } else {
            "-INF".into()
        };
    }
    let scientific = format!("{v:.*e}", digits - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trimmed =
        |s: &str| if s.contains('.') { s.trim_end_matches('0').trim_end_matches('.').to_string() } else { s.into() };
    if exponent < -4 || exponent >= digits as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs());
    }
    trimmed(&format!("{v:.*}", (digits as i32 - 1 - exponent).max(0) as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(op: &str, attributes: &[(&str, Attribute)], inputs: &[HostTensor]) -> Res<Vec<HostTensor>> {
        let node = Node {
            name: "n".into(),
            op: op.into(),
            domain: String::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            attributes: attributes.iter().map(|(n, a)| (n.to_string(), a.clone())).collect(),
        };
        evaluate(&node, &inputs.iter().cloned().map(Some).collect::<Vec<_>>())
    }

    fn of(shape: &[usize], texts: &[&str]) -> HostTensor {
        HostTensor::from_texts(shape, texts.iter().copied()).unwrap()
    }

    #[test]
    fn strings_are_joined_split_and_matched() {
        let y = call("StringConcat", &[], &[of(&[2, 1], &["a", "b"]), of(&[2], &["x", ""])]).unwrap();
        assert_eq!((y[0].shape(), y[0].texts().unwrap()), (&[2, 2][..], vec!["ax", "a", "bx", "b"]));
        let y = call("StringSplit", &[("maxsplit", Attribute::Int(1))], &[of(&[2], &["  a b  c ", ""])]).unwrap();
        assert_eq!((y[0].texts().unwrap(), y[1].to_i64()), (vec!["a", "b  c", "", ""], vec![2, 0]));
        let comma = ("delimiter", Attribute::Text(",".into()));
        let y = call("StringSplit", &[comma], &[of(&[2], &["a,,b", ""])]).unwrap();
        assert_eq!((y[0].texts().unwrap(), y[1].to_i64()), (vec!["a", "", "b", "", "", ""], vec![3, 1]));
        let pattern = |p: &str| [("pattern", Attribute::Text(p.into()))];
        let y = call("RegexFullMatch", &pattern("a|ab"), &[of(&[3], &["a", "ab", "abc"])]).unwrap();
        assert_eq!(y[0].to_i64(), [1, 1, 0]);
        assert!(call("RegexFullMatch", &pattern("("), &[of(&[1], &["a"])]).unwrap_err().to_string().contains("`(`"));
    }

    #[test]
    fn stop_words_go_before_the_case_changes() {
        let stops = ("stopwords", Attribute::Texts(vec!["Monday".into()]));
        let upper = ("case_change_action", Attribute::Text("UPPER".into()));
        let x = [of(&[3], &["monday", "Monday", "straße"])];
        let y = call("StringNormalizer", &[stops.clone(), upper.clone()], &x).unwrap();
        assert_eq!(y[0].texts().unwrap(), ["STRASSE"]);
        let exact = ("is_case_sensitive", Attribute::Int(1));
        let y = call("StringNormalizer", &[stops.clone(), upper, exact], &x).unwrap();
        assert_eq!(y[0].texts().unwrap(), ["MONDAY", "STRASSE"]);
        let y = call("StringNormalizer", &[stops], &[of(&[1, 1], &["MONDAY"])]).unwrap();
        assert_eq!((y[0].shape(), y[0].texts().unwrap()), (&[1, 1][..], vec![""]));
    }

    #[test]
    fn numbers_are_written_and_read() {
        let cast = |to: i64, x: HostTensor| call("Cast", &[("to", Attribute::Int(to))], &[x]).map(|y| y[0].clone());
        let floats = [0.1, 1e10, -2.5, 1e-5, f32::INFINITY, f32::NAN, 100.0, 0.0];
        let y = cast(8, HostTensor::from_f32(&[8], &floats)).unwrap();
        let want = ["0.1", "1e+10", "-2.5", "9.9999997e-06", "INF", "NaN", "100", "0"];
        assert_eq!(y.texts().unwrap(), want);
        assert_eq!(cast(1, y).unwrap().to_f32()[..4], floats[..4]);
        let y = cast(8, HostTensor::from_ints(DType::U64, &[1], &[-1])).unwrap();
        assert_eq!(y.texts().unwrap(), ["18446744073709551615"]);
        assert_eq!(cast(13, y).unwrap().to_i64(), [-1]);
        assert!(cast(7, of(&[1], &["seven"])).unwrap_err().to_string().contains("\"seven\" is not a number"));
    }

    #[test]
    fn the_list_is_sorted() {
        assert!(TAKE_STRINGS.is_sorted());
        assert!(TAKE_STRINGS.iter().all(|n| super::super::find("", n).is_some()), "all are operators");
    }
}
