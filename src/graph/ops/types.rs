//! What operators take: how many inputs, which types these may have, and which have one in common.
//!
//! An operator's row in [`OPERATORS`](super::OPERATORS) has a word for each input, in ONNX's order. The word's first letter says what the type may be ([`Kind`]),
//! an upper-case letter behind it which other inputs have the same one, and a star that any number of inputs is like it (with a letter none of
//! them may be left out). What some version of the operator takes
//! passes, so that models of any opset do: inputs share a letter where all versions want one type of them. Source: ONNX's type constraints of each operator, all
//! versions. Rules and lowering rest on it: nothing else tells a model whose types do not fit.

use crate::graph::ask::Ask;
use crate::graph::error::{Reason, Res};
use crate::graph::infer::Inference;
use crate::graph::lower::Lowering;
use crate::tensor::DType;

/// What a type may be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// `f`: floats of 16 to 64 bits.
    Float,
    /// `r`: floats of any width.
    Real,
    /// `n`: numbers of 8 to 64 bits, floats of 16 at least: what is computed with.
    Number,
    /// `e`: numbers of any width.
    Element,
    /// `i`: integers of 32 or 64 bits. Where ONNX wants 64 bits, 32 pass, too: functions hand on what they got.
    Index,
    /// `q`: integers of 8 bits.
    Byte,
    /// `b`: truth values.
    Bool,
    /// `s`: strings.
    Text,
    /// `.`: anything.
    Any,
}

impl Kind {
    fn of(letter: u8) -> Kind {
        match letter {
            b'f' => Kind::Float,
            b'r' => Kind::Real,
            b'n' => Kind::Number,
            b'e' => Kind::Element,
            b'i' => Kind::Index,
            b'q' => Kind::Byte,
            b'b' => Kind::Bool,
            b's' => Kind::Text,
            _ => Kind::Any,
        }
    }

    fn takes(self, dtype: DType) -> bool {
        match self {
            Kind::Float => dtype.is_float() && !dtype.is_small_float(),
            Kind::Real => dtype.is_float(),
            Kind::Number => dtype.is_float() && !dtype.is_small_float() || dtype.is_int() && dtype.bits() >= 8,
            Kind::Element => dtype.is_float() || dtype.is_int(),
            Kind::Index => matches!(dtype, DType::I32 | DType::I64),
            Kind::Byte => matches!(dtype, DType::I8 | DType::U8),
            Kind::Bool => dtype == DType::Bool,
            Kind::Text => dtype == DType::Str,
            Kind::Any => true,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Kind::Float => "f16, bf16, f32 or f64",
            Kind::Real => "a float",
            Kind::Number => "an integer of 8 to 64 bits, f16, bf16, f32 or f64",
            Kind::Element => "a number",
            Kind::Index => "i32 or i64",
            Kind::Byte => "i8 or u8",
            Kind::Bool => "bool",
            Kind::Text => "str",
            Kind::Any => "any type",
        }
    }
}

/// Fails where an operator has more inputs than its `words` or lacks one of many that are alike, or one has a type, as far as that is known, that the word does not take, or another one than those
/// it has to be like.
pub(super) fn check<V>(op: &str, words: &str, inputs: &[Option<V>], dtype: impl Fn(&V) -> Option<DType>) -> Res<()> {
    let mut words = words.split_ascii_whitespace().peekable();
    let most = words.clone().count();
    let mut shared: [Option<(usize, DType)>; 26] = [None; 26];
    for (i, input) in inputs.iter().enumerate() {
        let Some(word) = words.peek().map(|word| word.as_bytes()) else {
            return Err(Reason::Value(format!("it has {} inputs and takes {most}", inputs.len())));
        };
        if !word.ends_with(b"*") {
            words.next();
        } else if input.is_none() && word.len() > 2 {
            return Err(Reason::MissingInput(i));
        }
        let Some(dtype) = input.as_ref().and_then(&dtype) else { continue };
        let kind = Kind::of(word[0]);
        if !kind.takes(dtype) {
            return Err(Reason::Type(format!("input {i} is {}, {op} takes {}", dtype.name(), kind.name())));
        }
        let Some(letter) = word.get(1).filter(|l| l.is_ascii_uppercase()) else { continue };
        match shared[usize::from(letter - b'A')] {
            Some((first, other)) if other != dtype => {
                let (dtype, other) = (dtype.name(), other.name());
                return Err(Reason::Type(format!(
                    "input {first} is {other} and input {i} {dtype}, {op} takes one type for both"
                )));
            }
            Some(_) => {}
            None => shared[usize::from(letter - b'A')] = Some((i, dtype)),
        }
    }
    Ok(())
}

/// The inputs of an operator that is written with others, which are of the types that its row would have.
pub(super) fn of_checked(cx: &mut Inference<'_>) -> Res<()> {
    let (op, words) = (cx.text("operator", "")?, cx.text("inputs", "")?);
    let inputs = cx.node().inputs.clone();
    check(op, words, &inputs, |v| cx.fact(*v).filter(|f| !f.is_list()).map(|f| f.dtype))?;
    for (i, input) in inputs.into_iter().enumerate() {
        if let Some(v) = input {
            cx.same(i, v);
        }
    }
    Ok(())
}

/// The same ones.
pub(super) fn checked(cx: &mut Lowering<'_>) -> Res<()> {
    for (i, input) in cx.node().inputs.iter().enumerate() {
        if let Some(v) = *input {
            cx.pass(i, v);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{OPERATORS, find};
    use super::*;

    #[test]
    fn words_are_understood() {
        let word = |w: &str| {
            let (kind, rest) = w.split_at(1);
            let letter = rest.trim_end_matches('*');
            ".frneiqbs".contains(kind) && letter.len() <= 1 && letter.bytes().all(|l| l.is_ascii_uppercase())
        };
        for op in OPERATORS {
            assert!(op.inputs.split_ascii_whitespace().all(word), "{}: {}", op.name, op.inputs);
        }
    }

    #[test]
    fn inputs_are_of_a_kind_and_of_one_type() {
        let of = |op, types: &[Option<DType>]| {
            find("", op).unwrap().check_inputs(types, |t| Some(*t)).map_err(|e| e.to_string())
        };
        let (f, l, none) = (Some(DType::F32), Some(DType::I64), None);
        assert!(of("Gemm", &[f, f, f]).is_ok() && of("Gemm", &[l, l]).is_ok() && of("Gemm", &[f, none, f]).is_ok());
        let e = of("Gemm", &[f, f, l]).unwrap_err();
        assert!(e.contains("input 0 is f32 and input 2 i64, Gemm takes one type for both"), "{e}");
        let e = of("Conv", &[l, l]).unwrap_err();
        assert!(e.contains("input 0 is i64, Conv takes f16, bf16, f32 or f64"), "{e}");
        assert!(of("Concat", &[f, f, f, l]).unwrap_err().contains("input 3 i64"));
        assert!(of("Loop", &[l, none, f, l, f]).is_ok());
        // Of what is put together or added up nothing is left out in silence.
        for op in ["Concat", "Sum", "Max"] {
            let e = of(op, &[f, none, f]).unwrap_err();
            assert!(e.contains("input 1"), "{op}: {e}");
        }
        // What is computed with has 8 bits at least, and floats 16.
        for (op, n) in [("Add", 2), ("Abs", 1), ("ReduceSum", 1), ("Max", 3)] {
            for small in [DType::F8E4M3, DType::F4E2M1, DType::I4, DType::U2] {
                let e = of(op, &[Some(small)].repeat(n)).unwrap_err();
                assert!(e.contains(&format!("input 0 is {}, {op} takes", small.name())), "{e}");
            }
        }
        let (e4, i4) = (Some(DType::F8E4M3), Some(DType::I4));
        assert!(of("IsNaN", &[e4]).is_ok() && of("DequantizeLinear", &[i4, f, i4]).is_ok());
        let e = of("GridSample", &[e4, f]).unwrap_err();
        assert!(e.contains("input 0 is f8e4m3, GridSample takes an integer of 8 to 64 bits, f16"), "{e}");
        let e = of("GridSample", &[f, e4]).unwrap_err();
        assert!(e.contains("input 1 is f8e4m3, GridSample takes f16, bf16"), "{e}");
        assert!(of("Dropout", &[e4, f]).is_ok() && of("Dropout", &[f, l]).is_err() && of("Dropout", &[l]).is_err());
        assert!(of("Sqrt", &[f, f]).unwrap_err().contains("it has 2 inputs and takes 1"));
    }
}
